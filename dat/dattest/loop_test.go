package dattest_test

import (
	"flag"
	"net/netip"
	"testing"

	"kdapl/dat"
	"kdapl/dat/dattest"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// deadline bounds each wait, for runs that are to fail; 0 is the suite's own bound.
var deadline = flag.Duration("deadline", 0, "bound of each wait of the suite")

// nowhere is an address without an adapter.
var nowhere = netip.AddrFrom4([4]byte{127, 9, 9, 9})

// onLoop makes the adapters of one loop device.
func onLoop(cfg loop.Config) func(testing.TB) dattest.Adapters {
	d := loop.New(cfg)
	open := func(cfg dat.Config) (*dat.IA, error) { return dat.Open(d, cfg) }
	return func(testing.TB) dattest.Adapters {
		return dattest.Adapters{Active: open, Passive: open, Unreachable: nowhere, Deadline: *deadline}
	}
}

func TestLoopRemoteAcked(t *testing.T) {
	dattest.Run(t, onLoop(loop.Config{Completion: verbs.RemoteAcked}))
}

func TestLoopSourceReusable(t *testing.T) {
	dattest.Run(t, onLoop(loop.Config{Completion: verbs.SourceReusable}))
}

// Two adapters, the second made for each rule so that it can be taken away.
func TestLoopBetweenAdapters(t *testing.T) {
	first := loop.New(loop.Config{Name: "loop1", Addr: netip.MustParseAddr("127.0.0.2")})
	dattest.Run(t, func(t testing.TB) dattest.Adapters {
		second := loop.New(loop.Config{Name: "loop2", Addr: netip.MustParseAddr("127.0.0.3")})
		t.Cleanup(second.Remove)
		return dattest.Adapters{
			Active:      func(cfg dat.Config) (*dat.IA, error) { return dat.Open(first, cfg) },
			Passive:     func(cfg dat.Config) (*dat.IA, error) { return dat.Open(second, cfg) },
			Unreachable: nowhere, Remove: second.Remove, Deadline: *deadline,
		}
	})
}

// An adapter whose limits are near.
func TestSmallAdapter(t *testing.T) {
	dattest.Run(t, onLoop(loop.Config{Adjust: func(a *verbs.Attr) {
		a.MaxQPWR, a.MaxCQE, a.MaxMessage, a.MaxReadSGE, a.MaxReadsIn, a.MaxReadsOut = 128, 1024, 1<<17, 1, 1, 1
	}}))
}

// An adapter without any of what may be missing.
func TestLesserAdapter(t *testing.T) {
	dattest.Run(t, onLoop(loop.Config{Adjust: func(a *verbs.Attr) { a.Caps = 0 }}))
}
