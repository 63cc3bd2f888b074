package iwarp

import (
	"net/netip"
	"testing"
	"time"

	"kdapl/verbs"
	"kdapl/verbs/verbstest"
)

// nowhere is an address that 127.0.0.1 does not reach: the documentation prefix of RFC 5737.
var nowhere = verbs.Address{IP: netip.AddrFrom4([4]byte{192, 0, 2, 77}), Port: 1}

func onTCP(cfg Config) func(testing.TB) verbstest.Pair {
	a, b := New(cfg), New(cfg)
	return func(testing.TB) verbstest.Pair {
		return verbstest.Pair{Active: a, Passive: b, Unreachable: nowhere, Deadline: 20 * time.Second}
	}
}

func TestSuiteOverTCP(t *testing.T) { verbstest.Run(t, onTCP(Config{})) }
