package dat_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/dat"
)

// Tests of EVD.Wait and its kin (uDAPL; 2.2 and 3.11 of the reference).

// waited is what a wait came to.
type waited struct {
	ev   string
	more int
	err  error
	took time.Duration
}

// wait waits in a goroutine.
func wait(ctx context.Context, e *dat.EVD, threshold int, timeout time.Duration) <-chan waited {
	c := make(chan waited, 1)
	go func() {
		start := time.Now()
		ev, more, err := e.Wait(ctx, threshold, timeout)
		c <- waited{short(ev), more, err, time.Since(start)}
	}()
	return c
}

var background = context.Background()

func TestWaitReturnsTheOldestEventAndHowManyAreLeft(t *testing.T) {
	e := newEVD(t, newIA(t), dat.EVDConfig{})
	post(t, e, 1, 2, 3)
	for i, want := range []int{2, 1, 0} {
		ev, more, err := e.Wait(background, 1, dat.Infinite)
		if err != nil || short(ev) != []string{"SE 1", "SE 2", "SE 3"}[i] || more != want || ev.EVD() != e {
			t.Fatalf("%v, %d more, %v", ev, more, err)
		}
	}
}

func TestWaitTakesItsTimeExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, spin := range []int{-1, 0, 1000} {
			e := newEVD(t, openIA(t, newLoop(), dat.Config{Spin: spin}), dat.EVDConfig{})
			for _, timeout := range []time.Duration{0, 1, time.Second, time.Hour} {
				for n := range 2 {
					w := <-wait(background, e, 2, timeout)
					if w.err != dat.ErrTimeout || w.took != timeout || w.more != n {
						t.Fatalf("after %v of %v: %v, %d more; want %d", w.took, timeout, w.err, w.more, n)
					}
					if n == 0 {
						post(t, e, 1)
					}
				}
				if got := drainNumbers(e); !slices.Equal(got, []string{"SE 1"}) {
					t.Fatalf("a wait that timed out took something: left %q", got)
				}
			}
		}
	})
}

func TestWaitReturnsAtItsThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEVD(t, newIA(t), dat.EVDConfig{MinLen: 4})
		for _, threshold := range []int{1, 3, 4} {
			c := wait(background, e, threshold, dat.Infinite)
			for i := range threshold {
				synctest.Wait()
				if len(c) > 0 {
					t.Fatalf("returned with %d of %d events: %v", i, threshold, <-c)
				}
				post(t, e, uint64(i))
			}
			if w := <-c; w.err != nil || w.ev != "SE 0" || w.more != threshold-1 {
				t.Fatalf("threshold %d: %v", threshold, w)
			}
			drainNumbers(e)
		}
	})
}

func TestWaitRefusesBadThresholdsAndTimeouts(t *testing.T) {
	e := newEVD(t, newIA(t), dat.EVDConfig{MinLen: 4})
	post(t, e, 1, 2)
	for _, threshold := range []int{0, -1, 5, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32 + 1, math.MaxInt, math.MinInt} {
		_, _, err := e.Wait(background, threshold, 0)
		refused(t, err, dat.InvalidParameter, dat.InvalidArg3)
	}
	for _, timeout := range []time.Duration{-2, -time.Second, math.MinInt64} {
		_, _, err := e.Wait(background, 1, timeout)
		refused(t, err, dat.InvalidParameter, dat.InvalidArg2)
	}
	if queued(t, e) != 2 {
		t.Fatal("something was taken")
	}
}

// While somebody waits, nobody else takes events or waits, and the EVD keeps its shape.
func TestAWaiterOwnsTheEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEVD(t, newIA(t), dat.EVDConfig{})
		c := wait(background, e, 2, dat.Infinite)
		synctest.Wait()
		post(t, e, 1)
		_, _, err := e.Wait(background, 1, 0)
		refused(t, err, dat.InvalidState, dat.InvalidStateEVDWaiter)
		_, err = e.Dequeue()
		refused(t, err, dat.InvalidState, dat.InvalidStateEVDWaiter)
		if n := e.DequeueInto(make([]dat.Event, 4)); n != 0 {
			t.Fatalf("%d events were taken", n)
		}
		if got := drainNumbers(e); got != nil {
			t.Fatalf("%q were taken", got)
		}
		for ev, err := range e.Events(background) {
			refused(t, err, dat.InvalidState, dat.InvalidStateEVDWaiter)
			if ev.Number != 0 {
				t.Fatal(ev)
			}
		}
		refused(t, e.Resize(8), dat.InvalidState, dat.InvalidStateEVDWaiter)
		refused(t, e.Free(), dat.InvalidState, dat.InvalidStateEVDInUse)
		for _, p := range []dat.UpcallPolicy{dat.UpcallSingleInstance, dat.UpcallMany, dat.UpcallNotify} {
			refused(t, e.ModifyUpcall(p, func(dat.Event, bool) {}, dat.InvocNew), dat.InvalidState, dat.InvalidStateEVDWaiter)
		}
		ok(t, e.ModifyUpcall(dat.UpcallDisable, nil, dat.InvocNew))
		post(t, e, 2)
		if w := <-c; w.err != nil || w.ev != "SE 1" || w.more != 1 {
			t.Fatal(w)
		}
		ok(t, e.Resize(8))
		must[dat.Event](t)(e.Dequeue())
	})
}

func TestWaitIsRefusedWithALivePolicy(t *testing.T) {
	for _, p := range []dat.UpcallPolicy{dat.UpcallSingleInstance, dat.UpcallMany, dat.UpcallNotify} {
		bubble(t, p, func(t *testing.T, e *dat.EVD, l *upcallLog) {
			_, _, err := e.Wait(background, 1, 0)
			refused(t, err, dat.InvalidState, dat.NoSubtype)
			modify(t, e, dat.UpcallDisable, dat.InvocNew)
			if _, _, err := e.Wait(background, 1, 0); err != dat.ErrTimeout {
				t.Fatal(err)
			}
			modify(t, e, p, dat.InvocNew)
			ok(t, e.Teardown(background))
			if _, _, err := e.Wait(background, 1, 0); err != dat.ErrTimeout {
				t.Fatal(err)
			}
		})
	}
}

func TestSetUnwaitableEndsTheWaitAndRefusesLaterOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEVD(t, newIA(t), dat.EVDConfig{})
		c := wait(background, e, 2, dat.Infinite)
		synctest.Wait()
		post(t, e, 1)
		ok(t, e.SetUnwaitable())
		refused(t, (<-c).err, dat.InvalidState, dat.InvalidStateEVDUnwaitable)
		ok(t, e.SetUnwaitable())
		_, _, err := e.Wait(background, 1, 0)
		refused(t, err, dat.InvalidState, dat.InvalidStateEVDUnwaitable)
		if q := must[dat.EVDParam](t)(e.Query()); q.State&(dat.EVDStateWaitable|dat.EVDStateUnwaitable) != dat.EVDStateUnwaitable || q.Queued != 1 {
			t.Fatal(q.State)
		}
		ok(t, e.ClearUnwaitable())
		ok(t, e.ClearUnwaitable())
		if w := <-wait(background, e, 1, 0); w.err != nil || w.ev != "SE 1" {
			t.Fatal(w)
		}
		if q := must[dat.EVDParam](t)(e.Query()); q.State&(dat.EVDStateWaitable|dat.EVDStateUnwaitable) != dat.EVDStateWaitable {
			t.Fatal(q.State)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEVD(t, newIA(t), dat.EVDConfig{})
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(background)
		c := wait(ctx, e, 2, time.Hour)
		synctest.Wait()
		post(t, e, 1)
		synctest.Wait()
		cancel(cause)
		w := <-c
		refused(t, w.err, dat.InterruptedCall, dat.NoSubtype)
		if !errors.Is(w.err, cause) || w.took != 0 || w.more != 1 {
			t.Fatal(w)
		}
		deadline, stop := context.WithTimeout(background, time.Minute)
		defer stop()
		w = <-wait(deadline, e, 2, dat.Infinite)
		if refused(t, w.err, dat.InterruptedCall, dat.NoSubtype); !errors.Is(w.err, context.DeadlineExceeded) || w.took != time.Minute {
			t.Fatal(w)
		}
		// What is there is taken even so, as with time-out 0.
		if w := <-wait(ctx, e, 1, dat.Infinite); w.err != nil || w.ev != "SE 1" {
			t.Fatal(w)
		}
		// Nothing of a wait that was ended stays behind.
		//lint:ignore SA1012 bad input: no context is one without end
		c = wait(nil, e, 1, dat.Infinite)
		synctest.Wait()
		post(t, e, 2)
		if w := <-c; w.err != nil || w.ev != "SE 2" {
			t.Fatal(w)
		}
	})
}

func TestClosingTheIAEndsWaitsWithAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ia := newIA(t)
		e, other := newEVD(t, ia, dat.EVDConfig{}), newEVD(t, ia, dat.EVDConfig{Streams: dat.StreamDTO})
		post(t, e, 1)
		a, b, c := wait(background, e, 2, dat.Infinite), wait(background, other, 1, time.Hour), wait(background, ia.AsyncEVD(), 1, dat.Infinite)
		synctest.Wait()
		ok(t, ia.Close(background, dat.CloseAbrupt))
		for _, c := range []<-chan waited{a, b, c} {
			w := <-c
			refused(t, w.err, dat.Abort, dat.NoSubtype)
			if w.took != 0 {
				t.Fatal(w)
			}
		}
		_, _, err := e.Wait(background, 1, 0)
		refused(t, err, dat.InvalidHandle, dat.InvalidHandle1)
	})
}

// A wait is ended by what notifies. What does not is counted, and taken in its turn.
func TestWaitsAreNotEndedByWhatDoesNotNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, spin := range []int{-1, 0, 100000} {
			p := newPair(t, pairConfig{dat: dat.Config{Spin: spin}, attr: func(a *dat.EPAttr) { a.RequestCompletionFlags = dat.CompletionUnsignalled }})
			p.connect(t)
			write := func(cookie uint64, f dat.CompletionFlags) {
				ok(t, p.a.ep.PostRDMAWrite(cookie, f, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
			}
			c := wait(background, p.a.evd, 1, dat.Infinite)
			synctest.Wait()
			write(1, dat.CompletionUnsignalled)
			synctest.Wait()
			if len(c) > 0 {
				t.Fatalf("spin %d: ended by an unsignalled completion", spin)
			}
			write(2, 0)
			if w := <-c; w.err != nil || w.ev != "RDMA_WRITE 1 SUCCESS" || w.more != 1 {
				t.Fatal(w)
			}
			nextDTO(t, p.a.evd, 2, dat.StatusSuccess)
			// What is there when the wait begins counts, whatever it is.
			write(3, dat.CompletionUnsignalled)
			if w := <-wait(background, p.a.evd, 1, 0); w.err != nil || w.ev != "RDMA_WRITE 3 SUCCESS" {
				t.Fatal(w)
			}
			// At the end of its time a wait tells what has come.
			c = wait(background, p.a.evd, 1, time.Second)
			synctest.Wait()
			write(4, dat.CompletionUnsignalled)
			if w := <-c; w.err != dat.ErrTimeout || w.more != 1 || w.took != time.Second {
				t.Fatal(w)
			}
			// A failure notifies in any case.
			c = wait(background, p.a.evd, 1, dat.Infinite)
			ok(t, p.a.ep.PostRecv(5, 0, p.a.lmr.Triplet(0, 8)))
			ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
			if w := <-c; w.err != nil || w.ev != "RDMA_WRITE 4 SUCCESS" {
				t.Fatal(w)
			}
		}
	})
}

func TestThresholdsNeedStreamsWhoseCompletionsAllNotify(t *testing.T) {
	for _, c := range []struct {
		change func(*dat.EPAttr)
		sub    dat.Subtype
		state  dat.EVDState
	}{
		{func(a *dat.EPAttr) {}, dat.NoSubtype, dat.EVDStateConfigThreshold},
		{func(a *dat.EPAttr) { a.RequestCompletionFlags = dat.CompletionUnsignalled }, dat.InvalidStateEVDConfigNotify, dat.EVDStateConfigNotify},
		{func(a *dat.EPAttr) { a.RecvCompletionFlags = dat.CompletionUnsignalled }, dat.InvalidStateEVDConfigNotify, dat.EVDStateConfigNotify},
		{func(a *dat.EPAttr) { a.RecvCompletionFlags = dat.CompletionSolicitedWait }, dat.InvalidStateEVDConfigSolicited, dat.EVDStateConfigSolicited},
	} {
		p := newPair(t, pairConfig{attr: c.change})
		_, _, err := p.a.evd.Wait(background, 2, 0)
		if c.sub == dat.NoSubtype {
			if err != dat.ErrTimeout {
				t.Fatal(err)
			}
		} else {
			refused(t, err, dat.InvalidState, c.sub)
		}
		if _, _, err := p.a.evd.Wait(background, 1, 0); err != dat.ErrTimeout {
			t.Fatal(err)
		}
		if s := must[dat.EVDParam](t)(p.a.evd.Query()).State & dat.EVDStateConfigThreshold; s != c.state {
			t.Fatalf("state %v, want %v", s, c.state)
		}
		ok(t, p.a.ep.Free())
		if _, _, err := p.a.evd.Wait(background, 2, 0); err != dat.ErrTimeout {
			t.Fatalf("without the EP: %v", err)
		}
	}
}

func TestEventsWaitsForEventAfterEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEVD(t, newIA(t), dat.EVDConfig{})
		ctx, cancel := context.WithCancel(background)
		var got []string
		var last error
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ev, err := range e.Events(ctx) {
				got = append(got, short(ev))
				last = err
			}
		}()
		for i := range 3 {
			post(t, e, uint64(i))
			synctest.Wait()
		}
		cancel()
		<-done
		if refused(t, last, dat.InterruptedCall, dat.NoSubtype); !slices.Equal(got, []string{"SE 0", "SE 1", "SE 2", dat.EventNumber(0).String()}) {
			t.Fatalf("%q", got)
		}
		// Leaving the loop leaves the rest.
		post(t, e, 3, 4)
		for ev, err := range e.Events(background) {
			if err != nil || short(ev) != "SE 3" {
				t.Fatal(ev, err)
			}
			break
		}
		if got := drainNumbers(e); !slices.Equal(got, []string{"SE 4"}) {
			t.Fatalf("%q", got)
		}
	})
}

// No wake-up is lost between a waiter that goes to sleep and a poster, however the two meet.
func TestWaitersMissNothing(t *testing.T) {
	n := 4000
	if testing.Short() {
		n = 1000
	}
	for _, spin := range []int{-1, 0} {
		p := newPair(t, pairConfig{dat: dat.Config{Spin: spin}}).connect(t)
		go func() {
			for i := range n {
				if i%2 == 0 {
					for p.a.evd.PostSE(0) == dat.ErrQueueFull {
					}
					continue
				}
				for p.a.ep.PostRDMAWrite(0, 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)) == dat.ErrPostFull {
				}
			}
		}()
		for i := range n {
			if _, _, err := p.a.evd.Wait(background, 1, patience); err != nil {
				t.Fatalf("event %d: %v", i, err)
			}
		}
	}
}
