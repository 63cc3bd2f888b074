package dattest_test

import (
	"net/netip"
	"testing"

	"kdapl/dat"
	"kdapl/dat/dattest"
	"kdapl/device/iwarp"
)

// onTCP makes pairs of iWARP adapters, connected over the host's TCP.
func onTCP(cfg iwarp.Config) func(testing.TB) dattest.Adapters {
	opened := func() func(dat.Config) (*dat.IA, error) {
		d := iwarp.New(cfg)
		return func(cfg dat.Config) (*dat.IA, error) { return dat.Open(d, cfg) }
	}
	active, passive := opened(), opened()
	return func(testing.TB) dattest.Adapters {
		// An address of the documentation prefix of RFC 5737, which 127.0.0.1 does not reach.
		return dattest.Adapters{Active: active, Passive: passive, Unreachable: netip.AddrFrom4([4]byte{192, 0, 2, 77})}
	}
}

func TestAC22IWARPKeepsTheRulesOfLoop(t *testing.T) {
	dattest.Run(t, onTCP(iwarp.Config{}))
}
