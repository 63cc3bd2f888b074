package registry

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"kdapl/device/iwarp"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// builtin are the names that need no file, with their ia_params.
var builtin = map[string]string{
	"iwarp0": "iwarp addr=127.0.0.1",
	"loop0":  "loop",
}

// kinds are the adapters that ia_params can name, by their first word.
var kinds = map[string]func(name string, settings map[string]string) (verbs.Device, error){
	"iwarp": newIWARP,
	"loop":  newLoop,
}

// deviceOf makes the device that ia_params describe, with settings that go before theirs.
func deviceOf(name, params string, settings map[string]string) (verbs.Device, error) {
	words := strings.Fields(params)
	known := strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
	if len(words) == 0 {
		return nil, fmt.Errorf("ia_params are empty; they begin with a kind of adapter: %s", known)
	}
	kind := kinds[words[0]]
	if kind == nil {
		return nil, fmt.Errorf("ia_params: no kind of adapter %q; known: %s", words[0], known)
	}
	all := map[string]string{}
	for _, w := range words[1:] {
		key, value, ok := strings.Cut(w, "=")
		if _, twice := all[key]; !ok || twice {
			return nil, fmt.Errorf("ia_params: %q is not a new key=value", w)
		}
		all[key] = value
	}
	maps.Copy(all, settings)
	return kind(name, all)
}

func newLoop(name string, settings map[string]string) (verbs.Device, error) {
	cfg := loop.Config{Name: name}
	for key, value := range settings {
		var err error
		switch key {
		case "addr":
			cfg.Addr, err = netip.ParseAddr(value)
		case "completion":
			switch value {
			case "remote-acked":
				cfg.Completion = verbs.RemoteAcked
			case "source-reusable":
				cfg.Completion = verbs.SourceReusable
			default:
				err = fmt.Errorf("%q is neither remote-acked nor source-reusable", value)
			}
		case "rnr-timeout":
			if cfg.RNRTimeout, err = time.ParseDuration(value); err == nil && cfg.RNRTimeout < 0 {
				err = fmt.Errorf("%v is negative", cfg.RNRTimeout)
			}
		default:
			err = fmt.Errorf("unknown; loop has addr, completion and rnr-timeout")
		}
		if err != nil {
			return nil, fmt.Errorf("ia_params: %s: %w", key, err)
		}
	}
	return loop.New(cfg), nil
}

// newIWARP makes an iWARP adapter; its package knows the settings.
func newIWARP(name string, settings map[string]string) (verbs.Device, error) {
	cfg := iwarp.Config{}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if err := cfg.Set(key, settings[key]); err != nil {
			return nil, fmt.Errorf("ia_params: %w", err)
		}
	}
	if name != "" {
		cfg.Name = name
	}
	return iwarp.New(cfg), nil
}
