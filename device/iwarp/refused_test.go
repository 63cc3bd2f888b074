package iwarp_test

import (
	"context"
	"net/netip"
	"syscall"
	"testing"

	"kdapl/dat"
	"kdapl/device/iwarp"
	"kdapl/internal/netio"
)

// resets is a network that resets connections while they are set up.
type resets struct{ netio.Network }

func (resets) Dial(_ context.Context, local, remote netip.AddrPort) (netio.Conn, error) {
	return nil, &netio.Error{Stage: netio.StageConnect, Local: local, Remote: remote, Err: syscall.ECONNRESET}
}

// A listener that closes resets the connections in its queue: the peer has refused, and was reached.
func TestResetWhileConnectingIsARefusal(t *testing.T) {
	a := newSide(t, iwarp.Config{Network: resets{&netio.TCP{}}})
	ok(t, a.ep.Connect(a.ia.Address(), 9, dat.ConnectConfig{Timeout: patience}))
	a.next(t, dat.ConnectionNonPeerRejected)
}
