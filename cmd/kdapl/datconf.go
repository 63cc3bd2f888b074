package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"kdapl/dat"
	"kdapl/registry"
)

type datConfCmd struct {
	Library string            `default:"libkdapl.so" placeholder:"PATH" help:"The library as C programs find it: a path, or a name for the system's loader (default: ${default})."`
	Addr    netip.Addr        `default:"127.0.0.1" placeholder:"IP" help:"The address of the iWARP adapters (default: ${default})."`
	CRC     string            `enum:"on,off" default:"on" placeholder:"on|off" help:"off: no CRC32c, if the peer says off too (default: ${default})."`
	Set     map[string]string `placeholder:"KEY=VALUE" help:"Any other setting of the iWARP adapters. May be repeated."`
}

// Help is the long text of --help.
func (datConfCmd) Help() string {
	return `Prints the lines of a dat.conf that make this module's adapters known to C programs of the DAT API,
through libdat2 and the library that make capi builds, and to Go programs that name them:

    kdapl-loop         within one process
    kdapl-iwarp        iWARP over TCP
    kdapl-iwarp-plain  the same without the peer-to-peer mode of RFC 6581

For example: kdapl dat-conf --library /usr/local/lib/libkdapl.so >dat.conf, and DAT_OVERRIDE=dat.conf in the
environment of the program.`
}

// entries are the lines.
func (c *datConfCmd) entries() ([]registry.Entry, error) {
	iwarp := "iwarp addr=" + c.Addr.String()
	if c.CRC == "off" {
		iwarp += " crc=off"
	}
	for key, value := range c.Set {
		if key == "addr" || key == "crc" {
			return nil, fmt.Errorf("--set %s: there is the option --%s", key, key)
		}
		if strings.ContainsAny(key+value, " \t") {
			return nil, fmt.Errorf("--set %s: a dat.conf cannot hold a setting with spaces", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Set)) {
		iwarp += " " + key + "=" + c.Set[key]
	}
	var all []registry.Entry
	for _, a := range [][2]string{{"kdapl-loop", "loop"}, {"kdapl-iwarp", iwarp}, {"kdapl-iwarp-plain", iwarp + " peer2peer=off"}} {
		if strings.HasSuffix(a[0], "-plain") && c.Set["peer2peer"] != "" {
			continue // that is what the other name says
		}
		right := a[1] // is it? A capture would begin now.
		if file := c.Set["pcap"]; file != "" {
			right = strings.Replace(right, " pcap="+file, "", 1)
		}
		ia, err := registry.OpenParams(right, dat.Config{Name: a[0]})
		if err != nil {
			return nil, err
		}
		if err := closeIA(ia); err != nil {
			return nil, err
		}
		all = append(all, registry.Entry{
			Name: a[0], API: 'u', Major: 2, Default: true, LibPath: c.Library,
			ProviderID: "kdapl", ProviderMajor: 1, IAParams: a[1],
		})
	}
	return all, nil
}

// Run prints the lines.
func (c *datConfCmd) Run(e env) error {
	if c.Library == "" {
		return usageError{errors.New("--library is empty")}
	}
	entries, err := c.entries()
	if err != nil {
		return usageError{err}
	}
	if !entries[0].Ours() {
		return usageError{fmt.Errorf("--library: the file's name must be libkdapl.so, not %q, for kdapl to know it again", c.Library)}
	}
	return registry.WriteConf(e.stdout, entries...)
}
