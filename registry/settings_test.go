package registry

import (
	"net/netip"
	"testing"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

func TestSettingsGoBeforeThoseOfTheName(t *testing.T) {
	s := withConf(t, line("there", "k2.0", "threadsafe", "loop addr=127.0.0.7"))
	for name, was := range map[string]string{"there": "127.0.0.7", "iwarp0": "127.0.0.1"} {
		plain, err := s.openWith(name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer closeIA(t, plain)
		other, err := s.openWith(name, Options{Settings: map[string]string{"addr": "127.0.0.9"}})
		if err != nil {
			t.Fatal(err)
		}
		defer closeIA(t, other)
		if plain.Address() != netip.MustParseAddr(was) || other.Address() != netip.MustParseAddr("127.0.0.9") {
			t.Errorf("%s: at %v and, with settings, at %v", name, plain.Address(), other.Address())
		}
		if other.Name() != name {
			t.Errorf("%s is called %s with settings", name, other.Name())
		}
	}
}

func TestIAsOfTheSameSettingsShareADevice(t *testing.T) {
	s := withConf(t)
	for range 2 {
		for _, addr := range []string{"127.0.0.8", "127.0.0.9"} {
			ia, err := s.openWith("loop0", Options{Settings: map[string]string{"addr": addr}})
			if err != nil {
				t.Fatal(err)
			}
			defer closeIA(t, ia)
		}
	}
	if n := len(s.dynamic[s.index("loop0")].devices); n != 2 {
		t.Errorf("%d devices for two sorts of settings", n)
	}
}

func TestSettingsThatMakeNoSenseAreTold(t *testing.T) {
	s := withConf(t)
	if err := s.register("own", func() (verbs.Device, error) { return loop.New(loop.Config{}), nil }); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string][3]string{
		"iwarp0": {"crc", "perhaps", "neither on nor off"},
		"loop0":  {"crc", "off", "loop has addr"},
		"own":    {"addr", "127.0.0.9", "takes no settings"},
	} {
		_, err := s.openWith(name, Options{Settings: map[string]string{c[0]: c[1]}})
		wantFailure(t, err, dat.NameNotRegistered, c[2])
	}
}
