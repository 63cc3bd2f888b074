package dat_test

import (
	"testing"

	"kdapl/dat"
	"kdapl/device/iwarp"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// A nil adapter of whatever type is an argument that is refused.
func TestOpenRefusesANilDevice(t *testing.T) {
	for name, dev := range map[string]verbs.Device{"nil": nil, "loop": (*loop.Device)(nil), "iwarp": (*iwarp.Device)(nil)} {
		if ia, err := dat.Open(dev, dat.Config{}); ia != nil || err == nil {
			t.Errorf("%s: %v, %v", name, ia, err)
		}
	}
}
