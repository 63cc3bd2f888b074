package dat_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/dat/internal/altered"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// The completions that are held back until ESTABLISHED is queued come with it, not some time after: a
// consumer that has seen ESTABLISHED gets the completion of its send, however the goroutine that told
// of the connection is scheduled. With room for two requests, one that is held blocks the next but one.
func TestCompletionsAreNotHeldOnceEstablishedIsSeen(t *testing.T) {
	const rounds = 30
	runs := 200
	if testing.Short() {
		runs = 40
	}
	for range runs {
		p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) { a.MaxRequestDTOs = 2 }})
		a, b := &p.a, &p.b
		for _, s := range []*side{a, b} {
			for range 8 {
				ok(t, s.ep.PostRecv(0, 0, s.lmr.Triplet(0, 1)))
			}
		}
		ok(t, p.call())
		ok(t, b.request1(t).Accept(b.ep, nil))
		var wg sync.WaitGroup
		for _, s := range []*side{a, b} {
			wg.Go(func() {
				s.next(t, dat.ConnectionEstablished)
				if s == a {
					ok(t, s.ep.PostSend(1, 0, s.lmr.Triplet(0, 1)))
				}
				for got := 0; got < rounds; {
					ev, _, err := s.evd.Wait(context.Background(), 1, 5*time.Second)
					if err != nil {
						t.Errorf("round %d: %v", got, err)
						return
					}
					if ev.DTO().Operation == dat.OpSend {
						continue
					}
					got++
					ok(t, s.ep.PostRecv(0, 0, s.lmr.Triplet(0, 1)))
					if s == a && got == rounds {
						return
					}
					if err := s.ep.PostSend(1, 0, s.lmr.Triplet(0, 1)); err != nil {
						t.Errorf("round %d: %v", got, err)
						return
					}
					runtime.Gosched()
				}
			})
		}
		wg.Wait()
		for _, s := range []*side{a, b} {
			ok(t, s.ia.Close(context.Background(), dat.CloseAbrupt))
		}
		if t.Failed() {
			return
		}
	}
}

// early is a connection that one side has not been told of, although the first of its three receives has completed.
type early struct {
	*pair
	late, other *side
	tell        func() // tells it
}

// newEarly makes one. split: the late side has an EVD for each kind of event.
func newEarly(t *testing.T, hooks altered.Hooks, active, split bool) *early {
	t.Helper()
	told := make(chan struct{})
	hooks.Conn = func(ev verbs.ConnEvent, deliver func(verbs.ConnEvent)) {
		if ev.Kind == verbs.ConnEstablished && (ev.PrivateData != nil) == active { // the accept has some
			<-told
		}
		deliver(ev)
	}
	wrap := func(d *loop.Device) verbs.Device { return &altered.Device{Device: d, Hooks: hooks} }
	x := &early{pair: newPair(t, pairConfig{split: split, wrap: wrap, evd: dat.EVDConfig{MinLen: 4}}), tell: sync.OnceFunc(func() { close(told) })}
	t.Cleanup(x.tell)
	x.late, x.other = &x.b, &x.a
	if active {
		x.late, x.other = &x.a, &x.b
	}
	for i := range 3 {
		ok(t, x.late.ep.PostRecv(uint64(i), 0, x.late.lmr.Triplet(0, 8)))
	}
	ok(t, x.call())
	ok(t, x.b.request1(t).Accept(x.b.ep, []byte{1}))
	next(t, x.other.connect, dat.ConnectionEstablished)
	ok(t, x.other.ep.PostSend(9, 0, x.other.lmr.Triplet(0, 8)))
	nextDTO(t, x.other.request, 9, dat.StatusSuccess)
	empty(t, x.late.recv) // it is there, and is not told of, whoever looks
	return x
}

// receives checks that the three receives have come, with these outcomes, and nothing behind them.
func (x *early) receives(t *testing.T, want ...dat.Status) {
	t.Helper()
	for i, s := range want {
		nextDTO(t, x.late.recv, uint64(i), s)
	}
}

// forEarly runs a check for each side and each way to spread the events.
func forEarly(t *testing.T, check func(t *testing.T, x *early)) {
	forEarlyOn(t, altered.Hooks{}, check)
}

// forEarlyOn is forEarly on an adapter with hooks.
func forEarlyOn(t *testing.T, hooks altered.Hooks, check func(t *testing.T, x *early)) {
	for _, active := range []bool{true, false} {
		for _, split := range []bool{true, false} {
			t.Run(fmt.Sprintf("active %v, split %v", active, split), func(t *testing.T) { check(t, newEarly(t, hooks, active, split)) })
		}
	}
}

// A receive whose EVD is not the connection's waits for ESTABLISHED too, and its upcall can answer.
func TestAnUpcallOfAnEarlyReceiveCanAnswer(t *testing.T) {
	forEarly(t, func(t *testing.T, x *early) {
		said := make(chan error, 3)
		ok(t, x.late.recv.ModifyUpcall(dat.UpcallSingleInstance, func(ev dat.Event, _ bool) {
			if ev.Number == dat.DTOCompletion && ev.DTO().Operation == dat.OpReceive {
				if _, err := x.late.connect.Dequeue(); err != nil && x.late.connect != x.late.recv {
					said <- err // ESTABLISHED is not there
				}
				said <- ev.DTO().EP.PostSend(5, 0, x.late.lmr.Triplet(0, 8))
			}
		}, dat.InvocAny))
		ok(t, x.other.ep.PostRecv(6, 0, x.other.lmr.Triplet(0, 8)))
		x.tell()
		ok(t, receive(t, "the upcall", said))
		nextDTO(t, x.other.recv, 6, dat.StatusSuccess)
	})
}

// A waiter is woken by a receive that was held back.
func TestAnEarlyReceiveWakesItsWaiter(t *testing.T) {
	forEarly(t, func(t *testing.T, x *early) {
		done := wait(context.Background(), x.late.recv, 1, patience)
		eventually(t, "the wait", func() bool {
			_, err := x.late.recv.Dequeue()
			return errors.Is(err, dat.InvalidStateEVDWaiter)
		})
		x.tell()
		if w := receive(t, "the event", done); w.err != nil {
			t.Fatal(w.err)
		}
	})
}

// However the set-up ends, what was held back is told of before that.
func TestEarlyReceivesComeBeforeTheEndOfASetUp(t *testing.T) {
	forEarly(t, func(t *testing.T, x *early) {
		ok(t, x.late.ep.Disconnect(dat.CloseAbrupt))
		if x.late.connect != x.late.recv {
			next(t, x.late.connect, dat.ConnectionDisconnected)
			if q := must[dat.EVDParam](t)(x.late.recv.Query()); q.Queued != 3 {
				t.Fatalf("%d events before the end", q.Queued)
			}
		}
		x.receives(t, dat.StatusSuccess, dat.StatusFlushed, dat.StatusFlushed)
		if x.late.connect == x.late.recv {
			next(t, x.late.connect, dat.ConnectionDisconnected)
		}
		x.tell()
		// The EP connects again, and holds nothing back for ever.
		ok(t, x.late.ep.Reset())
		next(t, x.other.connect, dat.ConnectionDisconnected)
		ok(t, x.other.ep.Reset())
		ok(t, x.late.ep.PostRecv(0, 0, x.late.lmr.Triplet(0, 8)))
		x.connect(t)
		ok(t, x.other.ep.PostSend(1, 0, x.other.lmr.Triplet(0, 8)))
		x.receives(t, dat.StatusSuccess)
	})
}

// An EP that is freed leaves the events of what was held back.
func TestEarlyReceivesOfAFreedEP(t *testing.T) {
	forEarly(t, func(t *testing.T, x *early) {
		if err := x.late.ep.Free(); errors.Is(err, dat.InvalidState) { // an accept may not be freed in the middle
			ok(t, x.late.ia.Close(context.Background(), dat.CloseAbrupt))
			return
		}
		x.receives(t, dat.StatusSuccess, dat.StatusFlushed, dat.StatusFlushed)
		x.tell()
		empty(t, x.late.recv)
	})
}

// Without room for ESTABLISHED the connection ends, and what was held back is not lost.
func TestEarlyReceivesWithoutRoomForEstablished(t *testing.T) {
	forEarly(t, func(t *testing.T, x *early) {
		for range 4 {
			ok(t, x.late.connect.PostSE(1))
		}
		x.tell()
		next(t, x.other.connect, dat.ConnectionDisconnected)
		if x.late.connect == x.late.recv {
			for range 4 {
				next(t, x.late.connect, dat.SoftwareEvent)
			}
		}
		x.receives(t, dat.StatusSuccess, dat.StatusFlushed, dat.StatusFlushed)
	})
}

// The adapter loses a completion queue, by overflow at the flush, while completions are held back: each comes once.
func TestEarlyReceivesOfACompletionQueueThatFails(t *testing.T) {
	const more = 9
	forEarlyOn(t, altered.Hooks{Resize: func(int) int { return 2 }}, func(t *testing.T, x *early) {
		for i := range more {
			ok(t, x.late.ep.PostRecv(uint64(3+i), 0, x.late.lmr.Triplet(0, 8)))
		}
		ok(t, x.late.ep.Disconnect(dat.CloseAbrupt))
		if ev := next(t, x.late.ia.AsyncEVD(), dat.AsyncErrorEVDOverflow); ev.Async().Object != dat.Object(x.late.recv) {
			t.Fatal(ev)
		}
		came := map[uint64]dat.Status{}
		eventually(t, "the end of the receives", func() bool {
			for ev := range x.late.recv.Drain() {
				if ev.Number != dat.DTOCompletion {
					continue
				}
				if _, twice := came[ev.DTO().Cookie]; twice {
					t.Fatalf("%v comes twice", ev)
				}
				came[ev.DTO().Cookie] = ev.DTO().Status
			}
			return len(came) == 3+more
		})
		for cookie, s := range came {
			if (cookie == 0) != (s == dat.StatusSuccess) {
				t.Fatal(came)
			}
		}
		x.tell()
		ok(t, x.late.ep.Free())
		for ev := range x.late.recv.Drain() {
			if ev.Number == dat.DTOCompletion {
				t.Fatalf("%v comes twice", ev)
			}
		}
	})
}
