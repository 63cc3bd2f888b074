package dat_test

import (
	"fmt"
	"strings"
	"testing"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Watermarks: dat_srq_set_lw, dat_ep_set_watermark, dat_ep_recv_query, and the attribute srq_soft_hw.

// watermark checks that the next asynchronous event is a watermark of an object.
func watermark(t testing.TB, e *dat.EVD, about dat.Object, reason dat.AsyncReason) {
	t.Helper()
	ev := next(t, e, dat.AsyncWatermark)
	if a := ev.Async(); a.Object != about || a.Reason != reason {
		t.Fatalf("%+v, want %v of %v", a, reason, about)
	}
}

func TestSRQLowWatermarkTellsOnce(t *testing.T) {
	s := newShared(t, sharedConfig{})
	async := s.b.ia.AsyncEVD()
	s.post(t, 1, 2, 3, 4)
	ok(t, s.srq.SetLowWatermark(3))
	if q := must[dat.SRQParam](t)(s.srq.Query()); q.LowWatermark != 3 {
		t.Fatalf("%+v", q)
	}
	s.send(t, 0, 1) // three are left, which is not fewer
	empty(t, async)
	s.send(t, 0, 1)
	watermark(t, async, s.srq, dat.ReasonSRQLowWatermark)
	s.send(t, 0, 2)
	s.post(t, 5, 6, 7)
	s.send(t, 0, 3)
	empty(t, async) // not armed again
}

func TestSRQLowWatermarkTellsAtOnceIfItIsSo(t *testing.T) {
	s := newShared(t, sharedConfig{})
	async := s.b.ia.AsyncEVD()
	s.post(t, 1)
	ok(t, s.srq.SetLowWatermark(2))
	watermark(t, async, s.srq, dat.ReasonSRQLowWatermark)
	ok(t, s.srq.SetLowWatermark(2)) // armed again, and it is still so
	watermark(t, async, s.srq, dat.ReasonSRQLowWatermark)
	ok(t, s.srq.SetLowWatermark(1))
	empty(t, async)
	s.send(t, 0, 1)
	watermark(t, async, s.srq, dat.ReasonSRQLowWatermark)
	ok(t, s.srq.SetLowWatermark(dat.SRQLowWatermarkDefault))
	empty(t, async)
}

func TestSRQLowWatermarkOf0Disarms(t *testing.T) {
	s := newShared(t, sharedConfig{})
	s.post(t, 1, 2)
	ok(t, s.srq.SetLowWatermark(2))
	ok(t, s.srq.SetLowWatermark(0))
	s.send(t, 0, 2)
	empty(t, s.b.ia.AsyncEVD())
}

func TestSRQLowWatermarkRange(t *testing.T) {
	s := newShared(t, sharedConfig{})
	for _, low := range []int{-1, 17} {
		refused(t, s.srq.SetLowWatermark(low), dat.InvalidParameter, dat.InvalidArg2)
	}
	s.post(t, 1)
	ok(t, s.srq.SetLowWatermark(16))
}

func TestSoftHighWatermarkTellsOnce(t *testing.T) {
	s := newShared(t, sharedConfig{eps: 2})
	async := s.b.ia.AsyncEVD()
	s.post(t, 1, 2, 3, 4, 5, 6, 7, 8)
	ok(t, s.to[0].SetWatermark(2, dat.WatermarkInfinite))
	s.send(t, 1, 3) // another EP's do not count
	s.send(t, 0, 2)
	empty(t, async)
	s.send(t, 0, 1)
	watermark(t, async, s.to[0], dat.ReasonEPSoftHighWatermark)
	s.send(t, 0, 1)
	empty(t, async)
	ok(t, s.to[0].SetWatermark(4, dat.WatermarkInfinite)) // four are held
	empty(t, async)
	s.send(t, 0, 1)
	watermark(t, async, s.to[0], dat.ReasonEPSoftHighWatermark)
	if st := state(t, s.to[0]); st != dat.StateConnected {
		t.Fatalf("the EP is %v", st)
	}
}

func TestReceivesWhoseEventsWereTakenAreNotHeld(t *testing.T) {
	s := newShared(t, sharedConfig{})
	async := s.b.ia.AsyncEVD()
	ok(t, s.to[0].SetWatermark(2, 2))
	for c := uint64(1); c <= 10; c++ {
		s.post(t, c)
		s.send(t, 0, 1)
		nextDTO(t, s.b.recv, c, dat.StatusSuccess)
	}
	empty(t, async)
}

// "These can occur during this call": what is queued already counts, also if nothing watched before.
func TestHighWatermarksThatAreExceededAlready(t *testing.T) {
	s := newShared(t, sharedConfig{eps: 2})
	async := s.b.ia.AsyncEVD()
	s.post(t, 1, 2, 3, 4, 5, 6)
	s.send(t, 0, 3)
	s.send(t, 1, 3)
	nextDTO(t, s.b.recv, 1, dat.StatusSuccess)
	ok(t, s.to[0].SetWatermark(2, 2)) // it holds two
	empty(t, async)
	ok(t, s.to[0].SetWatermark(1, 3))
	watermark(t, async, s.to[0], dat.ReasonEPSoftHighWatermark)
	ok(t, s.to[0].SetWatermark(1, 3)) // and again
	watermark(t, async, s.to[0], dat.ReasonEPSoftHighWatermark)
	ok(t, s.to[0].SetWatermark(dat.WatermarkInfinite, 1))
	next(t, s.b.connect, dat.ConnectionBroken)
}

func TestHardHighWatermarkBreaksTheConnection(t *testing.T) {
	s := newShared(t, sharedConfig{eps: 2})
	s.post(t, 1, 2, 3, 4, 5)
	ok(t, s.to[0].SetWatermark(dat.WatermarkInfinite, 2))
	s.send(t, 0, 2)
	empty(t, s.b.connect)
	s.send(t, 0, 1)
	ev := next(t, s.b.connect, dat.ConnectionBroken)
	if c := ev.Connection(); c.EP != s.to[0] || c.Cause == nil || !strings.Contains(c.Cause.Error(), "watermark") {
		t.Fatalf("%+v", c)
	}
	next(t, s.a.connect, dat.ConnectionDisconnected)
	if ev := next(t, s.b.ia.AsyncEVD(), dat.AsyncErrorEPBroken); ev.Async().Object != dat.Object(s.to[0]) {
		t.Fatal(ev)
	}
	for c := uint64(1); c <= 3; c++ { // what has arrived is there
		nextDTO(t, s.b.recv, c, dat.StatusSuccess)
	}
	s.send(t, 1, 1)
	if d := nextDTO(t, s.b.recv, 4, dat.StatusSuccess); d.EP != s.to[1] {
		t.Fatalf("%+v", d)
	}
}

func TestSoftHighWatermarkAsAttribute(t *testing.T) {
	s := newShared(t, sharedConfig{attr: func(a *dat.EPAttr) { a.SRQSoftHW = 1 }})
	s.post(t, 1, 2)
	s.send(t, 0, 1)
	empty(t, s.b.ia.AsyncEVD())
	s.send(t, 0, 1)
	watermark(t, s.b.ia.AsyncEVD(), s.to[0], dat.ReasonEPSoftHighWatermark)
}

func TestSetWatermarkRefusesWhatDoesNotFit(t *testing.T) {
	s := newShared(t, sharedConfig{})
	plain := s.b.newEP(t, nil)
	refused(t, plain.SetWatermark(1, 1), dat.InvalidState, dat.NoSubtype)
	for _, bad := range []int{0, -2} {
		refused(t, s.to[0].SetWatermark(bad, 1), dat.InvalidParameter, dat.InvalidArg2)
		refused(t, s.to[0].SetWatermark(1, bad), dat.InvalidParameter, dat.InvalidArg3)
	}
	ok(t, plain.Free())
	refused(t, plain.SetWatermark(1, 1), dat.InvalidHandle, dat.InvalidHandleEP)

	lesser := newShared(t, sharedConfig{pair: pairConfig{loop: loop.Config{Adjust: func(a *verbs.Attr) { a.Caps &^= verbs.CapSRQLimit }}}})
	refused(t, lesser.to[0].SetWatermark(1, 1), dat.ModelNotSupported, dat.NoSubtype)
	attr := lesser.b.attr(t)
	attr.SRQSoftHW = 1
	_, err := lesser.b.pz.NewEP(dat.EPConfig{SRQ: lesser.srq, Attr: &attr})
	refused(t, err, dat.ModelNotSupported, dat.NoSubtype)
}

func TestRecvQueryCountsPostedReceives(t *testing.T) {
	s := newShared(t, sharedConfig{})
	check := func(ep *dat.EP, want int) {
		t.Helper()
		if got := must[dat.RecvInfo](t)(ep.RecvQuery()); got.Allocated != want || got.Span != want {
			t.Fatalf("%+v, want %d", got, want)
		}
	}
	p := newPair(t, pairConfig{split: true}).connect(t)
	check(p.b.ep, 0)
	for i := range 3 {
		ok(t, p.b.ep.PostRecv(uint64(i), 0))
	}
	check(p.b.ep, 3)
	ok(t, p.a.ep.PostSend(1, 0))
	nextDTO(t, p.a.request, 1, dat.StatusSuccess)
	check(p.b.ep, 2) // its completion is there, taken or not
	s.post(t, 1, 2)
	check(s.to[0], 0) // none is allocated to an EP before a message comes
	s.send(t, 0, 1)
	check(s.to[0], 0)
	ok(t, p.b.ep.Free())
	_, err := p.b.ep.RecvQuery()
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleEP)
}

// Each crossing of a watermark is told exactly once, however many messages come.
func TestWatermarksUnderLoad(t *testing.T) {
	const eps, rounds = 4, 200
	s := newShared(t, sharedConfig{eps: eps, srq: dat.SRQAttr{MaxRecvDTOs: 64, MaxRecvIOV: 1},
		pair: pairConfig{dat: dat.Config{AsyncEVDMinLen: 64}}})
	async := s.b.ia.AsyncEVD()
	for round := range rounds {
		for c := range uint64(24) {
			s.post(t, c)
		}
		ok(t, s.srq.SetLowWatermark(4))
		for _, ep := range s.to {
			ok(t, ep.SetWatermark(3, dat.WatermarkInfinite))
		}
		done := make(chan error, eps)
		for _, from := range s.from {
			go func() {
				for range 6 {
					if err := from.PostSend(1, dat.CompletionSuppress); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range eps {
			ok(t, receive(t, "senders", done))
		}
		for range 24 {
			next(t, s.b.recv, dat.DTOCompletion)
		}
		want := map[string]int{fmt.Sprint(s.srq): 1}
		for _, ep := range s.to {
			want[fmt.Sprint(ep)] = 1
		}
		got := map[string]int{}
		for range want {
			ev := next(t, async, dat.AsyncWatermark)
			got[fmt.Sprint(ev.Async().Object)]++
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("round %d: watermarks %v, want %v", round, got, want)
		}
		empty(t, async)
		if got := s.counts(t); got != "64/0/0" {
			t.Fatalf("round %d leaves %s", round, got)
		}
		ok(t, s.srq.SetLowWatermark(0))
	}
}
