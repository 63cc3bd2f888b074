//go:build kdapl_capi && cgo && linux

package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"

	"kdapl/device/iwarp"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// adapters are the names that libdat2 has announced, with the ia_params of their lines.
var adapters struct {
	sync.Mutex
	params  map[string]string
	devices map[string]verbs.Device
}

// addAdapter notes a name. The same name with other parameters becomes another adapter; IAs that are open stay.
func addAdapter(name, params string) {
	a := &adapters
	a.Lock()
	defer a.Unlock()
	if a.params == nil {
		a.params, a.devices = map[string]string{}, map[string]verbs.Device{}
	}
	if old, ok := a.params[name]; ok && old != params {
		delete(a.devices, name)
	}
	a.params[name] = params
}

// adapter is the device of a name: one for all IAs of it.
func adapter(name string) (verbs.Device, error) {
	a := &adapters
	a.Lock()
	defer a.Unlock()
	if d := a.devices[name]; d != nil {
		return d, nil
	}
	params, ok := a.params[name]
	if !ok {
		return nil, fmt.Errorf("no adapter %q", name)
	}
	d, err := newDevice(name, params)
	if err != nil {
		// The registry turns every failure into "not found"; the reason is for whoever wrote the line.
		fmt.Fprintf(os.Stderr, "libkdapl: dat.conf: %s: %v\n", name, err)
		return nil, err
	}
	a.devices[name] = d
	return d, nil
}

// newDevice makes the device that ia_params describe: a kind and its options.
func newDevice(name, params string) (verbs.Device, error) {
	kind, rest, _ := strings.Cut(strings.TrimSpace(params), " ")
	switch kind {
	case "iwarp":
		cfg, err := iwarp.ParseConfig(rest)
		if err != nil {
			return nil, err
		}
		if cfg.Name == "" {
			cfg.Name = name
		}
		return iwarp.New(cfg), nil
	case "loop":
		cfg := loop.Config{Name: name}
		if value, ok := strings.CutPrefix(strings.TrimSpace(rest), "addr="); ok {
			addr, err := netip.ParseAddr(value)
			if err != nil {
				return nil, err
			}
			cfg.Addr = addr
		} else if rest != "" {
			return nil, fmt.Errorf("loop: %q is no option; it has addr=IP", rest)
		}
		return loop.New(cfg), nil
	}
	return nil, fmt.Errorf("ia_params: no kind of adapter %q; known: iwarp, loop", kind)
}
