// Package registry turns names into adapters: names that are built in, names that a program
// registers, and names of a dat.conf file.
//
// [Open] looks for a name among the built-in and registered providers first and then
// in the file, in the order of its lines. A provider fits if its name and DAT major version
// are those asked for, its minor version is that or a later one, and its thread safety is
// that asked for; "safer" does not match. Those that fit are tried in turn until one works. Nothing
// fits: PROVIDER_NOT_FOUND, and the subtype says how far the search came: NAME_NOT_REGISTERED,
// MAJOR_NOT_FOUND, MINOR_NOT_FOUND or THREAD_SAFETY_NOT_FOUND.
//
// One device is made for each provider when it is first opened, and shared by all of its IAs; IAs that ask for
// other settings ([Options]) have devices of their own.
//
// # Built-in names
//
//	iwarp0  software iWARP over TCP at 127.0.0.1 (package device/iwarp)
//	loop0   the in-process adapter at 127.0.0.1 (package device/loop)
//
// # dat.conf
//
// The environment variable DAT_OVERRIDE names the file; without it /etc/dat.conf is read if it
// is there. It is read anew by each call that needs it. A line has eight fields:
//
//	ia_name  api_version  thread_safety  default  lib_path  provider_version  ia_params  platform_params
//	loop1    k2.0         threadsafe     default  kdapl     kdapl.1.0         "loop addr=127.0.0.2"  ""
//
// A field is a word or a quoted string, in which \\ stands for \ and \" for ". The last
// two are always quoted. What follows a # where a field could begin is a comment. An
// api_version starts with k or u; both kinds of lines serve here. A lib_path means the adapters of
// this module if it is "kdapl", or if its last element is libkdapl with the suffix of
// a shared library, as in "libkdapl.so.2": so C programs and Go programs can share
// a line. Lines that name other libraries are listed and cannot be opened. platform_params
// are ignored.
//
// ia_params are the kind of the adapter and its settings:
//
//	iwarp [addr=IP] [crc=on|off] … (the settings of iwarp.ParseConfig)
//	loop [addr=IP] [completion=remote-acked|source-reusable] [rnr-timeout=DURATION]
//
// addr is the adapter's address, 127.0.0.1 if not given; adapters with the same address share
// its connection qualifiers. completion is what a successful send or RDMA write means (see
// the attribute KDAPL_COMPLETION_MEANING), remote-acked if not given. rnr-timeout, as in
// "200ms", is how long a request waits for the peer to post a receive, without limit if not given.
package registry
