//go:build kdapl_capi && cgo && linux

package main

import (
	"fmt"
	"os"
	"sync"

	"kdapl/registry"
	"kdapl/verbs"
)

// adapters are the names that libdat2 has announced, with the ia_params of their lines, which package registry reads.
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
	d, err := registry.NewDevice(name, params)
	if err != nil {
		// libdat2 turns every failure into "not found"; the reason is for whoever wrote the line.
		fmt.Fprintf(os.Stderr, "libkdapl: dat.conf: %s: %v\n", name, err)
		return nil, err
	}
	a.devices[name] = d
	return d, nil
}
