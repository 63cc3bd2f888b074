// Command capi is libkdapl.so: a provider of uDAPL 2.0 for C programs, which the registry of the DAT
// Collaborative's C library, libdat2, loads by its dat.conf.
//
// It is built as a shared library, with cgo and the headers of that library (Debian: libdapl-dev):
//
//	make capi
//
// which is go build -buildmode=c-shared -tags kdapl_capi ./capi. Without the tag the package has nothing but this
// file, so that the module builds on machines without a C compiler.
//
// # How C and Go share the work
//
// Dequeue, software events and the sleep of waits are C (queue.c), on the rings of the EVDs, which lie in memory of
// C's and are shared with package dat; see package internal/foreign.
//
// The provider table (table.c) is C. Its entries take the unions of DAT apart, which cgo cannot, and
// call Go functions named kd…, one for each call of DAT; these check handles, convert arguments, and
// call package dat.
//
// A handle is the address of a shell: 64 bytes of C memory with the table, which libdat2 looks for in
// the first word, the kind of object and the consumer's context. Shells come from one reserved
// range of addresses, so whether a handle is one is arithmetic, and a stale one can be looked at without harm.
// A freed shell is used again only after many others.
//
// What DAT hands out by address lies in C memory that belongs to an object: private data and
// addresses to the connection request or EP, attributes to the IA.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "capi is a shared library for C programs: build it with make capi")
	os.Exit(2)
}
