package verbstest_test

import (
	"net/netip"
	"testing"

	"kdapl/device/loop"
	"kdapl/verbs"
	"kdapl/verbs/verbstest"
)

// nowhere is an address without an adapter.
var nowhere = verbs.Address{IP: netip.AddrFrom4([4]byte{127, 9, 9, 9}), Port: 1}

// onLoop makes pairs of one loop adapter.
func onLoop(cfg loop.Config) func(testing.TB) verbstest.Pair {
	d := loop.New(cfg)
	return func(testing.TB) verbstest.Pair {
		return verbstest.Pair{Active: d, Passive: d, Unreachable: nowhere}
	}
}

func TestLoopRemoteAcked(t *testing.T) {
	verbstest.Run(t, onLoop(loop.Config{Completion: verbs.RemoteAcked}))
}

func TestLoopSourceReusable(t *testing.T) {
	verbstest.Run(t, onLoop(loop.Config{Completion: verbs.SourceReusable}))
}

// Two adapters, the second made for each rule so that it can be removed.
func TestLoopBetweenAdapters(t *testing.T) {
	first := loop.New(loop.Config{Name: "loop1", Addr: netip.MustParseAddr("127.0.0.2")})
	verbstest.Run(t, func(t testing.TB) verbstest.Pair {
		second := loop.New(loop.Config{Name: "loop2", Addr: netip.MustParseAddr("127.0.0.3")})
		t.Cleanup(second.Remove)
		return verbstest.Pair{Active: first, Passive: second, Unreachable: nowhere, Remove: second.Remove}
	})
}
