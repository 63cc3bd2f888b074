package iwarp

import (
	"math/rand/v2"
	"net/netip"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/internal/faultnet"
	"kdapl/verbs"
	"kdapl/verbs/verbstest"
)

// nowhere is an address that 127.0.0.1 does not reach: of the documentation prefix of RFC 5737.
var nowhere = verbs.Address{IP: netip.AddrFrom4([4]byte{192, 0, 2, 77}), Port: 1}

func onTCP(cfg Config) func(testing.TB) verbstest.Pair {
	a, b := New(cfg), New(cfg)
	return func(testing.TB) verbstest.Pair {
		return verbstest.Pair{Active: a, Passive: b, Unreachable: nowhere}
	}
}

func TestSuiteOverTCP(t *testing.T) { verbstest.Run(t, onTCP(Config{})) }

// The other ways to speak MPA.
func TestSuiteOverTCPWithOptions(t *testing.T) {
	for _, options := range []string{"crc=off", "markers=on", "gso=on,crc=off", "rev=1", "spin=off", "addr=::1"} {
		if testing.Short() && options != "markers=on" {
			continue
		}
		t.Run(options, func(t *testing.T) {
			cfg, err := ParseConfig(options)
			must(t, err)
			if cfg.Rev == 1 {
				t.Skip("without an RTR message the passive side cannot send first")
			}
			verbstest.Run(t, onTCP(cfg))
		})
	}
}

// hosts are the two machines of a simulated network.
func hosts(plan func(faultnet.Attempt) faultnet.Plan) (a, b Config) {
	n := faultnet.New()
	n.Plan = plan
	x, y := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	ha, hb := n.Host(x), n.Host(y)
	ha.UserTimeout, hb.UserTimeout = time.Minute, time.Minute
	ha.KeepAlive, hb.KeepAlive = time.Minute, time.Minute
	return Config{Name: "a", Addr: x, Network: ha}, Config{Name: "b", Addr: y, Network: hb}
}

// gentle draws plans that split and delay everything, but only a little.
func gentle(a faultnet.Attempt) faultnet.Plan {
	rng := rand.New(rand.NewPCG(uint64(a.Index), 'g'))
	stream := func() faultnet.Stream {
		s := faultnet.Stream{Latency: time.Duration(rng.IntN(50)) * time.Microsecond, MSS: 128 + rng.IntN(9000)}
		if rng.IntN(2) == 0 {
			s.ReadMax = 16 + rng.IntN(20000)
		}
		if rng.IntN(2) == 0 {
			s.WriteMax = 16 + rng.IntN(20000)
		}
		if rng.IntN(3) == 0 {
			s.Window = 1000 + rng.IntN(100000)
		}
		return s
	}
	return faultnet.Plan{Seed: rng.Uint64(), Up: stream(), Down: stream()}
}

// harsh draws plans that also stall, for up to a tenth of a second, that have small windows and slow lines,
// and that split as finely as can be.
func harsh(a faultnet.Attempt) faultnet.Plan {
	return faultnet.Each(0, 20000, faultnet.Lossless)(a)
}

// coarse is harsh with pieces of at least 500 bytes, for rules that move many megabytes.
func coarse(a faultnet.Attempt) faultnet.Plan {
	p := harsh(a)
	for _, s := range []*faultnet.Stream{&p.Up, &p.Down} {
		for _, n := range []*int{&s.ReadMax, &s.WriteMax, &s.Window} {
			if *n != 0 {
				*n = max(*n, 500)
			}
		}
	}
	return p
}

// megabytes is what the names of rules say that move many.
var megabytes = regexp.MustCompile("both_sides_full|a_large_transfer|memory_is_not_touched|come_and_go_under")

// Over networks that split and delay, with segments of many sizes; time is fake.
func TestAC54SuiteOverFaultnet(t *testing.T) {
	for _, c := range []struct {
		options, network string
		plan, bulk       func(faultnet.Attempt) faultnet.Plan
	}{
		{"crc=on", "gentle", gentle, gentle}, {"crc=on", "harsh", harsh, coarse},
		{"crc=off", "harsh", harsh, coarse}, {"crc=off,markers=on", "gentle", gentle, gentle},
	} {
		t.Run(c.options+"/"+c.network, func(t *testing.T) {
			if testing.Short() && c.options != "crc=on" {
				t.Skip("the short form runs with the defaults only")
			}
			overFaultnet(t, c.options, c.plan, c.bulk)
		})
	}
}

func overFaultnet(t *testing.T, options string, plan, bulk func(faultnet.Attempt) faultnet.Plan) {
	bubbles(t, func(t testing.TB) verbstest.Pair {
		plan := plan
		if megabytes.MatchString(t.Name()) {
			plan = bulk
		}
		ca, cb := hosts(plan)
		for _, c := range []*Config{&ca, &cb} {
			o, err := ParseConfig(options)
			must(t, err)
			c.NoCRC, c.Markers = o.NoCRC, o.Markers
		}
		return verbstest.Pair{Active: New(ca), Passive: New(cb), Deadline: time.Hour}
	})
}

// bubbles runs the suite with each rule in a bubble of its own.
func bubbles(t *testing.T, open func(testing.TB) verbstest.Pair) {
	verbstest.RunIn(t, func(t *testing.T, rule func(*testing.T)) {
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(func() { time.Sleep(time.Hour) }) // the last connections end
			rule(t)
		})
	}, open)
}
