package main

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"kdapl/dat"
	"kdapl/registry"
)

// adapterFlags choose an adapter and its settings.
type adapterFlags struct {
	Adapter string            `placeholder:"NAME" help:"The adapter (default: iwarp0, for a pair in one process loop0). Names are those of kdapl info."`
	Addr    netip.Addr        `placeholder:"IP" help:"The adapter's own address, instead of the name's."`
	CRC     string            `enum:"on,off,default" default:"default" placeholder:"on|off" help:"off: no CRC32c, if the peer's adapter says off too (default: what the name says; iwarp0: on)."`
	Set     map[string]string `placeholder:"KEY=VALUE" help:"Any other setting of the adapter, as in the ia_params of dat.conf. May be repeated."`
	Pcap    string            `type:"path" placeholder:"FILE" help:"Write all that goes over the wire to a pcapng file, for Wireshark."`
}

// settings are the settings of the flags.
func (a *adapterFlags) settings(capture bool) map[string]string {
	set := map[string]string{}
	maps.Copy(set, a.Set)
	if a.Addr.IsValid() {
		set["addr"] = a.Addr.String()
	}
	if a.CRC != "" && a.CRC != "default" {
		set["crc"] = a.CRC
	}
	if capture && a.Pcap != "" {
		set["pcap"] = a.Pcap
	}
	return set
}

// inProcess reports whether an adapter connects end points of one process only.
func inProcess(name string) bool {
	infos, _ := registry.List() // what is wrong with dat.conf, opening tells
	i := slices.IndexFunc(infos, func(i registry.Info) bool { return i.Name == name })
	return i >= 0 && strings.HasPrefix(infos[i].Params+" ", "loop ")
}

// open opens the adapter, by a name if the flags have none. The IA is captured, if that is asked for.
func (a *adapterFlags) open(byDefault string) (*dat.IA, error) { return a.openAs(byDefault, true) }

// openAs opens the adapter, with or without the capture: of several IAs that talk to each other one is
// enough.
func (a *adapterFlags) openAs(byDefault string, capture bool) (*dat.IA, error) {
	name := a.name(byDefault)
	if a.Pcap != "" && inProcess(name) {
		return nil, usageError{errors.New("--pcap: nothing goes over a wire with " + name + "; try --adapter iwarp0")}
	}
	ia, err := registry.OpenWith(name, registry.Options{Settings: a.settings(capture)})
	if errors.Is(err, dat.ProviderNotFound) {
		err = usageError{err}
	}
	return ia, err
}

// name is the adapter's name.
func (a *adapterFlags) name(byDefault string) string {
	if a.Adapter == "" {
		return byDefault
	}
	return a.Adapter
}
