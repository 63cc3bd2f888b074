package dat_test

import (
	"testing"

	"kdapl/dat"
	"kdapl/dat/internal/altered"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// An adapter that overruns a completion queue in spite of what it was asked for (acceptance AC-13): one asynchronous
// event, the connections break, and everything that was posted completes exactly once, by dat itself where the adapter
// has lost it.
func TestACompletionQueueThatOverflows(t *testing.T) {
	p := newPair(t, pairConfig{split: true, wrap: func(d *loop.Device) verbs.Device {
		return &altered.Device{Device: d, Hooks: altered.Hooks{Resize: func(int) int { return 2 }}}
	}}).connect(t)
	for i := range 4 {
		ok(t, p.a.ep.PostRecv(uint64(10+i), 0, p.a.lmr.Triplet(0, 8)))
	}
	other := p.a.newEP(t, nil) // not connected, on the same EVDs
	ok(t, other.PostRecv(20, 0, p.a.lmr.Triplet(0, 8)))
	const writes = 7
	for i := range writes {
		p.write(t, uint64(i), 0)
	}
	if ev := next(t, p.a.ia.AsyncEVD(), dat.AsyncErrorEVDOverflow); ev.Async().Object != dat.Object(p.a.request) || ev.Async().Reason != dat.ReasonEVDOverflow {
		t.Fatal(ev)
	}
	next(t, p.a.connect, dat.ConnectionBroken)
	done := map[uint64]dat.Status{}
	take := func(e *dat.EVD) {
		for ev := range e.Drain() {
			d := ev.DTO()
			if _, twice := done[d.Cookie]; twice {
				t.Fatalf("%v came twice", ev)
			}
			done[d.Cookie] = d.Status
		}
	}
	take(p.a.request)
	for i := range uint64(writes) {
		want := dat.StatusFlushed
		if i < 2 {
			want = dat.StatusSuccess
		}
		if got, there := done[i]; !there || got != want {
			t.Fatalf("write %d: %v, %v", i, got, there)
		}
	}
	// The receives of the connection, whose queue is another, and then too small for its flush as well.
	eventually(t, "every receive", func() bool {
		take(p.a.recv)
		return len(done) == writes+5
	})
	// What is posted from now on is flushed, and nothing is connected.
	ok(t, p.a.ep.PostRDMAWrite(30, 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
	ok(t, p.a.ep.PostRecv(31, 0))
	nextDTO(t, p.a.request, 30, dat.StatusFlushed)
	nextDTO(t, p.a.recv, 31, dat.StatusFlushed)
	ok(t, p.a.ep.Reset())
	refused(t, p.call(), dat.InvalidState, dat.InvalidStateEPNotReady)
	next(t, p.b.connect, dat.ConnectionBroken)
	ok(t, p.a.ep.Free())
	ok(t, other.Free())
	ok(t, p.a.request.Free())
	for ev := range p.a.ia.AsyncEVD().Drain() {
		if ev.Async().Object == dat.Object(p.a.request) {
			t.Fatalf("%v again", ev)
		}
	}
}
