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

// adapterFlags choose an adapter and its settings.
type adapterFlags struct {
	Adapter string     `placeholder:"NAME" help:"The adapter: a name of kdapl info, or settings as in a dat.conf, such as \"iwarp crc=off\" (default: iwarp0; for a pair in one process loop0)."`
	Addr    netip.Addr `placeholder:"IP" help:"The adapter's own address, instead of the name's."`
	settingFlags
}

// settingFlags are settings of an adapter that is chosen in another way.
type settingFlags struct {
	CRC  string            `enum:"on,off,default" default:"default" placeholder:"on|off" help:"off: no CRC32c, if the peer's adapter says off too (default: what the adapter says, on for iwarp0)."`
	Set  map[string]string `placeholder:"KEY=VALUE" help:"Any other setting of the adapter, as in the ia_params of a dat.conf. May be repeated."`
	Pcap string            `type:"path" placeholder:"FILE" help:"Write all that goes over the wire to a pcapng file, for Wireshark."`
}

// settings are the settings that the flags ask for.
func (f *settingFlags) settings() map[string]string {
	set := map[string]string{}
	maps.Copy(set, f.Set)
	if f.CRC != "" && f.CRC != "default" {
		set["crc"] = f.CRC
	}
	if f.Pcap != "" {
		set["pcap"] = f.Pcap
	}
	return set
}

// parseAdapter splits what --adapter names: a name, or a kind of adapter with settings, which is the
// built-in adapter of that kind with those settings.
func parseAdapter(text string) (name string, set map[string]string, err error) {
	kind, rest, _ := strings.Cut(text, " ")
	switch {
	case kind == "iwarp" || kind == "loop":
	case strings.Contains(rest, "="):
		return "", nil, usageError{fmt.Errorf("--adapter: there is no kind of adapter %q; iwarp and loop take settings", kind)}
	default:
		return text, nil, nil
	}
	set = map[string]string{}
	for _, word := range strings.Fields(rest) {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return "", nil, usageError{fmt.Errorf("--adapter: %q is not key=value", word)}
		}
		set[key] = value
	}
	return kind + "0", set, nil
}

// openAdapter opens what --adapter names, with settings that go before those that stand there.
func openAdapter(adapter string, settings map[string]string) (*dat.IA, error) {
	name, set, err := parseAdapter(adapter)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	maps.Copy(all, set)
	maps.Copy(all, settings)
	if all["pcap"] != "" && inProcess(name) {
		return nil, usageError{fmt.Errorf("--pcap: nothing goes over a wire with %s; try --adapter %s", name, wireAdapter)}
	}
	ia, err := registry.OpenWith(name, registry.Options{Settings: all})
	if errors.Is(err, dat.ProviderNotFound) {
		err = usageError{err}
	}
	return ia, err
}

// inProcess reports whether an adapter connects end points of one process only.
func inProcess(name string) bool {
	infos, _ := registry.List() // what is wrong with dat.conf, opening tells
	i := slices.IndexFunc(infos, func(i registry.Info) bool { return i.Name == name })
	return i >= 0 && strings.HasPrefix(infos[i].Params+" ", "loop ")
}

// open opens the adapter, by a name if the flags have none.
func (a *adapterFlags) open(byDefault string) (*dat.IA, error) {
	set := a.settings()
	if a.Addr.IsValid() {
		set["addr"] = a.Addr.String()
	}
	return openAdapter(a.name(byDefault), set)
}

// wire checks that the adapter, by default iwarp0, is not one within a process.
func (a *adapterFlags) wire() error {
	name, _, err := parseAdapter(a.name(wireAdapter))
	if err == nil && inProcess(name) {
		err = usageError{fmt.Errorf("%s connects end points of one process only; try --adapter %s", name, wireAdapter)}
	}
	return err
}

// name is what the flags name, or a default.
func (a *adapterFlags) name(byDefault string) string {
	if a.Adapter == "" {
		return byDefault
	}
	return a.Adapter
}
