package verbstest_test

import (
	"net/netip"
	"os"
	"testing"
	"time"

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
		return verbstest.Pair{Active: d, Passive: d, Unreachable: nowhere, Deadline: deadline()}
	}
}

func TestLoopRemoteAcked(t *testing.T) {
	verbstest.Run(t, onLoop(loop.Config{Completion: verbs.RemoteAcked}))
}

func TestLoopSourceReusable(t *testing.T) {
	verbstest.Run(t, onLoop(loop.Config{Completion: verbs.SourceReusable}))
}

func deadline() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("VT_DEADLINE"))
	return d
}
