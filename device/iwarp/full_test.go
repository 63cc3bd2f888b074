package iwarp_test

import (
	"context"
	"testing"

	"kdapl/dat"
	"kdapl/device/iwarp"
)

// Both sides fill the network in both directions before anybody takes an event (AC-24).
func TestAC24FullInBothDirectionsAtOnce(t *testing.T) {
	a, b := newSide(t, iwarp.Config{}), newSide(t, iwarp.Config{})
	psp := must[*dat.PSP](t)(b.ia.NewPSP(dat.PSPConfig{EVD: b.evd}))
	ok(t, a.ep.Connect(b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
	ev := b.next(t, dat.ConnectionRequest)
	ok(t, ev.Request().CR.Accept(b.ep, nil))
	a.next(t, dat.ConnectionEstablished)
	b.next(t, dat.ConnectionEstablished)
	const half = 1 << 19
	n := 0
	for ; n < 32; n++ { // together more than any socket buffer takes
		if a.ep.PostRDMAWrite(uint64(n), 0, b.lmr.RMRTriplet(half, half), a.lmr.Triplet(0, half)) != nil {
			break
		}
		ok(t, b.ep.PostRDMAWrite(uint64(n), 0, a.lmr.RMRTriplet(half, half), b.lmr.Triplet(0, half)))
	}
	if n < 8 {
		t.Fatalf("only %d requests fit", n)
	}
	for _, s := range []*side{a, b} {
		for i := range n {
			if d := s.dto(t); d.Status != dat.StatusSuccess || d.Cookie != uint64(i) {
				t.Fatal(d)
			}
		}
	}
	ok(t, a.ep.Disconnect(dat.CloseAbrupt))
	if _, _, err := b.evd.Wait(context.Background(), 1, patience); err != nil {
		t.Fatal(err)
	}
}
