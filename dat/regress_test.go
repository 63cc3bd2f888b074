package dat_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// An activation that was started and has not begun to run when Teardown is called is awaited too.
func TestTeardownAwaitsAnActivationThatHasNotBegun(t *testing.T) {
	ia := newIA(t)
	for range 200 {
		e := newEVD(t, ia, dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: func(dat.Event, bool) {}})
		ok(t, e.PostSE(1))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		ok(t, e.Teardown(ctx))
		cancel()
		ok(t, e.Free())
	}
}

// A late event of the device about the previous connection does not touch the next one.
func TestReconnectAtOnceIsNotDisturbedByTheOldConnection(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	for i := range 100 {
		ok(t, p.call())
		ep := p.b.newEP(t, nil)
		ok(t, p.b.request1(t).Accept(ep, nil))
		next(t, p.a.connect, dat.ConnectionEstablished)
		next(t, p.b.connect, dat.ConnectionEstablished)
		ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
		if i%2 == 0 {
			next(t, p.a.connect, dat.ConnectionDisconnected)
			ok(t, p.a.ep.Reset())
		} else {
			ok(t, p.a.ep.Reset())
			next(t, p.a.connect, dat.ConnectionDisconnected)
		}
		next(t, p.b.connect, dat.ConnectionDisconnected)
		ok(t, ep.Free())
	}
}

// The set-up that is cancelled here ends for the device some time later.
func TestConnectAfterACancelledSetUpIsNotDisturbedByIt(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	for range 100 {
		ok(t, p.call())
		ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
		ok(t, p.a.ep.Reset())
		next(t, p.a.connect, dat.ConnectionDisconnected)
		ok(t, p.call())
		var est bool
		for !est {
			ev, err := p.b.cr.Dequeue()
			if err == nil {
				if err := ev.Request().CR.Accept(p.b.ep, nil); err == nil {
					ev, _, err := p.b.connect.Wait(context.Background(), 1, patience)
					ok(t, err)
					if est = ev.Number == dat.ConnectionEstablished; !est {
						ok(t, p.b.ep.Reset())
					}
				}
			}
		}
		next(t, p.a.connect, dat.ConnectionEstablished)
		ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
		next(t, p.a.connect, dat.ConnectionDisconnected)
		next(t, p.b.connect, dat.ConnectionDisconnected)
		ok(t, p.a.ep.Reset())
		ok(t, p.b.ep.Reset())
	}
}

func TestResizeBelowWhatIsQueuedIsRefused(t *testing.T) {
	ia := newIA(t)
	for _, streams := range []dat.Stream{dat.StreamSoftware, dat.StreamSoftware | dat.StreamDTO} {
		e := newEVD(t, ia, dat.EVDConfig{Streams: streams})
		for i := range 5 {
			ok(t, e.PostSE(uint64(i)))
		}
		refused(t, e.Resize(4), dat.InvalidState, dat.NoSubtype)
		ok(t, e.Resize(5))
	}
}

// A post finds the EP's queue pair gone between its look at the state and its turn at the queue.
func TestPostsThatRaceWithFreeAreRefused(t *testing.T) {
	p := newPair(t, pairConfig{})
	for range 100 {
		p.connect(t)
		ep, seg := p.a.ep, p.a.lmr.Triplet(0, 8)
		done := make(chan error)
		for i := range 2 {
			go func() {
				for {
					var err error
					if i == 0 {
						err = ep.PostRDMAWrite(1, dat.CompletionSuppress, p.b.lmr.RMRTriplet(0, 8), seg)
					} else {
						_, err = ep.Post([]dat.Request{{Op: dat.OpRDMAWrite, Flags: dat.CompletionSuppress, Remote: p.b.lmr.RMRTriplet(0, 8), Local: []dat.LMRTriplet{seg}}})
					}
					if err != nil && !errors.Is(err, dat.ErrPostFull) {
						done <- err
						return
					}
				}
			}()
		}
		for range 20 {
			runtime.Gosched() // the posters are at it
		}
		ok(t, ep.Free())
		for range 2 {
			refused(t, receive(t, "the poster's end", done), dat.InvalidHandle, dat.InvalidHandleEP)
		}
		next(t, p.b.connect, dat.ConnectionDisconnected)
		drainNumbers(p.a.evd)
		ok(t, p.b.ep.Reset())
		p.a.ep = p.a.newEP(t, nil)
	}
}

// Objects that are made while the IA closes are made or refused, never half made.
func TestCreatingWhileTheIACloses(t *testing.T) {
	for range 100 {
		ia := newIA(t)
		pz := must[*dat.PZ](t)(ia.NewPZ())
		e := newEVD(t, ia, dat.EVDConfig{Streams: allStreams &^ dat.StreamAsync})
		done := make(chan error)
		for _, create := range []func() error{
			func() error { _, err := pz.NewEP(dat.EPConfig{Recv: e, Request: e, Connect: e}); return err },
			func() error { _, err := ia.NewPSP(dat.PSPConfig{EVD: e}); return err },
			func() error { _, err := ia.NewEVD(dat.EVDConfig{MinLen: 1, Streams: dat.StreamDTO}); return err },
			func() error { _, err := pz.Register(make([]byte, 8), dat.PrivAll); return err },
		} {
			go func() {
				for {
					if err := create(); err != nil {
						done <- err
						return
					}
				}
			}()
		}
		ok(t, ia.Close(context.Background(), dat.CloseAbrupt))
		for range 4 {
			if err := receive(t, "an error of create", done); !errors.Is(err, dat.InvalidHandle) {
				t.Fatal(err)
			}
		}
	}
}

// An IA may send its asynchronous events to an EVD of another IA: they are still about its own objects.
func TestAsyncEventsOfAnotherIANameItsObjects(t *testing.T) {
	dev := loop.New(loop.Config{})
	host := openIA(t, dev, dat.Config{})
	async := newEVD(t, host, dat.EVDConfig{Streams: dat.StreamAsync})
	guest := openIA(t, dev, dat.Config{AsyncEVD: async, Name: "guest"})
	pz := must[*dat.PZ](t)(guest.NewPZ())
	srq := must[*dat.SRQ](t)(pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1}))
	ok(t, srq.SetLowWatermark(1))
	ev := next(t, async, dat.AsyncWatermark)
	if got := ev.Async().Object; got != dat.Object(srq) {
		t.Fatalf("the event is about %v, want %v", got, srq)
	}
	dev.Remove()
	about := map[dat.Object]bool{}
	for range 1 { // the host has its own EVD
		ev := next(t, async, dat.AsyncErrorIACatastrophic)
		about[ev.Async().Object] = true
	}
	if !about[guest] {
		t.Fatalf("the event is about %v, want %v", about, guest)
	}
	if ev := next(t, host.AsyncEVD(), dat.AsyncErrorIACatastrophic); ev.Async().Object != dat.Object(host) {
		t.Fatal(ev)
	}
}

// One overflow is reported for each time that the EVD was full; a software event that found room
// ends such a time as any other event does.
func TestAnOverflowEpisodeEndsWhenASoftwareEventFindsRoom(t *testing.T) {
	p := newPair(t, pairConfig{})
	small := newEVD(t, p.b.ia, dat.EVDConfig{MinLen: 1, Streams: dat.StreamSoftware | dat.StreamConnectionRequest})
	psp := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: small}))
	for range 3 {
		ok(t, small.PostSE(1))
		for range 2 {
			ok(t, p.a.ep.Connect(p.b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
			p.a.next(t, dat.ConnectionNonPeerRejected)
			ok(t, p.a.ep.Reset())
		}
		if ev := next(t, p.b.ia.AsyncEVD(), dat.AsyncErrorEVDOverflow); ev.Async().Object != dat.Object(small) || ev.Async().Reason != dat.ReasonEVDOverflow {
			t.Fatal(ev)
		}
		empty(t, p.b.ia.AsyncEVD())
		must[dat.Event](t)(small.Dequeue())
	}
}

// At the limit of the adapter an EP is refused for want of room, whatever the adapter says.
func TestAnEPThatDoesNotFitItsEVDIsRefused(t *testing.T) {
	ia := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.MaxCQE = 64 }}), dat.Config{})
	pz := must[*dat.PZ](t)(ia.NewPZ())
	for n := 50; n <= 70; n++ {
		attr := dat.DefaultEPAttr(must[dat.IAParam](t)(ia.Query()).Attr)
		attr.MaxRequestDTOs, attr.MaxRecvDTOs = n, 0
		e := newEVD(t, ia, dat.EVDConfig{MinLen: 1, Streams: dat.StreamDTO})
		ep, err := pz.NewEP(dat.EPConfig{Recv: e, Request: e, Attr: &attr})
		if err != nil {
			refused(t, err, dat.InsufficientResources, dat.ResourceTEVD)
		} else {
			ok(t, ep.Free())
		}
		if q := must[dat.EVDParam](t)(e.Query()); err != nil && q.QLen != 1 {
			t.Fatalf("room for %d events is left behind", q.QLen)
		}
		ok(t, e.Free())
	}
}

// The count of an EVD's events includes those that go straight from the adapter to a dequeuer.
func TestEventCounterCountsEveryEvent(t *testing.T) {
	p := connectPair(t, 64)
	for range 100 {
		ok(t, p.a.ep.PostRDMAWrite(1, 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
		nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
		ok(t, p.a.ep.PostRDMAWrite(1, 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
		must[dat.Event](t)(p.a.evd.Dequeue())
	}
	if q := must[dat.EVDParam](t)(p.a.evd.Query()); q.Counters.Events != 201 {
		t.Fatalf("%d events counted, want 201", q.Counters.Events)
	}
}
