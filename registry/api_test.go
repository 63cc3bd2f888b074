package registry_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/registry"
	"kdapl/verbs"
)

// The registry as programs see it.
func TestRegisteredProviderIsListedOpenedAndRemoved(t *testing.T) {
	t.Setenv("DAT_OVERRIDE", filepath.Join(t.TempDir(), "missing"))
	const name = "registered for a test"
	made := 0
	make := func() (verbs.Device, error) { made++; return loop.New(loop.Config{Name: name}), nil }
	if err := registry.Register(name, make); err != nil {
		t.Fatal(err)
	}
	if err := registry.Register(name, make); !errors.Is(err, dat.ProviderAlreadyRegistered) {
		t.Errorf("a second time: %v", err)
	}
	infos, _ := registry.List()
	i := slices.IndexFunc(infos, func(i registry.Info) bool { return i.Name == name })
	if i < 0 || !infos[i].Openable || infos[i].Open != 0 || infos[i].Major != dat.DAPLVersionMajor {
		t.Fatalf("listed: %+v", infos)
	}
	ia, err := registry.OpenWith(name, registry.Options{Config: dat.Config{AsyncEVDMinLen: 3}, Major: 2})
	if err != nil || made != 1 || ia.Name() != name {
		t.Fatal(ia, err, made)
	}
	if err := registry.Unregister(name); !errors.Is(err, dat.ProviderInUse) {
		t.Errorf("while it is open: %v", err)
	}
	if err := ia.Close(context.Background(), dat.CloseGraceful); err != nil {
		t.Fatal(err)
	}
	if err := registry.Unregister(name); err != nil {
		t.Fatal(err)
	}
	if err := registry.Unregister(name); !errors.Is(err, dat.ProviderNotFound) || !errors.Is(err, dat.NameNotRegistered) {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := registry.Open(name); !errors.Is(err, dat.NameNotRegistered) {
		t.Errorf("opened after its end: %v", err)
	}
	for _, c := range []struct {
		opt registry.Options
		sub dat.Subtype
	}{
		{registry.Options{Major: 1}, dat.MajorNotFound},
		{registry.Options{Major: 2, Minor: 1}, dat.MinorNotFound},
		{registry.Options{NonThreadSafe: true}, dat.ThreadSafetyNotFound},
	} {
		if _, err := registry.OpenWith("loop0", c.opt); !errors.Is(err, dat.ProviderNotFound) || !errors.Is(err, c.sub) {
			t.Errorf("%+v: %v", c.opt, err)
		}
	}
}
