package dattest_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/dat"
	"kdapl/dat/dattest"
	"kdapl/device/iwarp"
	"kdapl/internal/faultnet"
)

// Over networks that split, delay and stall, with small windows and slow lines; time is fake.
func TestIWARPOverFaultnet(t *testing.T) {
	for _, options := range []string{"crc=on", "crc=off"} {
		t.Run(options, func(t *testing.T) {
			if testing.Short() && options != "crc=on" {
				t.Skip("without -short, as in the README's test command: the short form runs with CRC, the default")
			}
			in := func(t *testing.T, rule func(*testing.T)) {
				synctest.Test(t, func(t *testing.T) {
					t.Cleanup(func() { time.Sleep(time.Hour) }) // the last connections end
					rule(t)
				})
			}
			dattest.RunIn(t, in, func(t testing.TB) dattest.Adapters { return onFaultnet(t, options) })
		})
	}
}

// onFaultnet makes two machines of a network of their own.
func onFaultnet(t testing.TB, options string) dattest.Adapters {
	n := faultnet.New()
	n.Plan = faultnet.Each(0, 5000, faultnet.Lossless)
	open := func(name, addr string) func(dat.Config) (*dat.IA, error) {
		cfg, err := iwarp.ParseConfig(options)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Name, cfg.Addr = name, netip.MustParseAddr(addr)
		h := n.Host(cfg.Addr)
		h.UserTimeout, h.KeepAlive = time.Minute, time.Minute
		cfg.Network = h
		d := iwarp.New(cfg)
		return func(cfg dat.Config) (*dat.IA, error) { return dat.Open(d, cfg) }
	}
	return dattest.Adapters{Active: open("a", "10.0.0.1"), Passive: open("b", "10.0.0.2"), Unreachable: nowhere, Deadline: time.Hour}
}
