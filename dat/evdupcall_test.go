package dat_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"kdapl/dat"
)

// Tests of upcalls (section 5 of the design; 4.4 to 4.7 of the reference). They run in bubbles, where Wait
// tells that nothing more will happen by itself.

// upcallLog is an upcall that notes what it is called with and can be stopped inside.
type upcallLog struct {
	mu    sync.Mutex
	calls []string // "SE 1" or "SE 1+" if there were more
	gate  chan struct{}
	in    atomic.Int32 // upcalls that run now
	most  atomic.Int32
}

func (l *upcallLog) upcall(ev dat.Event, more bool) {
	n := l.in.Add(1)
	for m := l.most.Load(); n > m && !l.most.CompareAndSwap(m, n); m = l.most.Load() {
	}
	s := short(ev)
	if ev.Number == 0 {
		s = "notified"
	}
	if more {
		s += "+"
	}
	l.mu.Lock()
	l.calls = append(l.calls, s)
	gate := l.gate
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	l.in.Add(-1)
}

// block makes upcalls wait for a receive from the channel that it returns.
func (l *upcallLog) block() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = make(chan struct{})
	return l.gate
}

// want waits until nothing happens any more and compares all calls. Whether there were more events is compared
// if calls say so; it depends on who is faster if events are posted while upcalls are on.
func (l *upcallLog) want(t testing.TB, calls ...string) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	got := slices.Clone(l.calls)
	if !strings.Contains(strings.Join(calls, ""), "+") {
		for i := range got {
			got[i] = strings.TrimSuffix(got[i], "+")
		}
	}
	if !slices.Equal(got, calls) {
		t.Fatalf("upcalls %q, want %q", l.calls, calls)
	}
}

// bubble runs a test in a bubble with an IA and an EVD of software events that logs.
func bubble(t *testing.T, policy dat.UpcallPolicy, f func(t *testing.T, e *dat.EVD, l *upcallLog)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &upcallLog{}
		e := newEVD(t, newIA(t), dat.EVDConfig{Policy: policy, Upcall: l.upcall})
		f(t, e, l)
	})
}

// post posts software events.
func post(t testing.TB, e *dat.EVD, values ...uint64) {
	t.Helper()
	for _, v := range values {
		ok(t, e.PostSE(v))
	}
}

func modify(t testing.TB, e *dat.EVD, p dat.UpcallPolicy, f dat.UpcallFlag) {
	t.Helper()
	ok(t, e.ModifyUpcall(p, nil, f))
}

func TestSingleInstanceCallsUpOneAtATimeInOrder(t *testing.T) {
	bubble(t, dat.UpcallSingleInstance, func(t *testing.T, e *dat.EVD, l *upcallLog) {
		gate := l.block()
		post(t, e, 1, 2, 3)
		l.want(t, "SE 1")
		gate <- struct{}{}
		l.want(t, "SE 1", "SE 2")
		gate <- struct{}{}
		gate <- struct{}{}
		l.want(t, "SE 1", "SE 2", "SE 3")
		post(t, e, 4)
		close(gate)
		l.want(t, "SE 1", "SE 2", "SE 3", "SE 4")
		if l.most.Load() != 1 {
			t.Fatalf("%d upcalls at once", l.most.Load())
		}
	})
}

func TestManyCallsUpSeveralAtOnceUpToTheCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []int{0, 1, 3} {
			l := &upcallLog{}
			ia := openIA(t, newLoop(), dat.Config{MaxUpcalls: limit})
			if limit == 0 {
				limit = 8 // the default
			}
			e := newEVD(t, ia, dat.EVDConfig{Policy: dat.UpcallMany, Upcall: l.upcall})
			gate := l.block()
			for i := range 12 {
				post(t, e, uint64(i))
			}
			synctest.Wait()
			if n := int(l.in.Load()); n != limit {
				t.Fatalf("%d upcalls at once, want %d", n, limit)
			}
			if n := queued(t, e); n != 12-limit {
				t.Fatalf("%d events are queued, want %d", n, 12-limit)
			}
			// Those that run have the oldest events.
			var first []string
			for i := range limit {
				first = append(first, fmt.Sprintf("SE %d", i))
			}
			l.mu.Lock()
			calls := slices.Clone(l.calls)
			l.mu.Unlock()
			for i := range calls {
				calls[i] = strings.TrimSuffix(calls[i], "+")
			}
			slices.Sort(calls)
			slices.Sort(first)
			if !slices.Equal(calls, first) {
				t.Fatalf("upcalls with %q, want %q", calls, first)
			}
			close(gate)
			synctest.Wait()
			if l.most.Load() != int32(limit) || len(l.calls) != 12 || l.in.Load() != 0 {
				t.Fatalf("%d at once, %d in all", l.most.Load(), len(l.calls))
			}
			ok(t, e.Free())
		}
	})
}

func TestNotifyCallsUpOncePerArmingAndTakesNothing(t *testing.T) {
	bubble(t, dat.UpcallNotify, func(t *testing.T, e *dat.EVD, l *upcallLog) {
		post(t, e, 1)
		l.want(t, "notified")
		post(t, e, 2, 3)
		l.want(t, "notified")
		// Armed again with something pending: at once, and more says that it is more than one event.
		modify(t, e, dat.UpcallNotify, dat.InvocNew)
		l.want(t, "notified", "notified+")
		if got := drainNumbers(e); !slices.Equal(got, []string{"SE 1", "SE 2", "SE 3"}) {
			t.Fatalf("queued %q", got)
		}
		// Armed over an empty queue: at the next event.
		modify(t, e, dat.UpcallNotify, dat.InvocNew)
		l.want(t, "notified", "notified+")
		post(t, e, 4)
		l.want(t, "notified", "notified+", "notified")
	})
}

func TestDisableStartsNothingAndLetsTheRunningUpcallEnd(t *testing.T) {
	bubble(t, dat.UpcallSingleInstance, func(t *testing.T, e *dat.EVD, l *upcallLog) {
		gate := l.block()
		post(t, e, 1, 2)
		l.want(t, "SE 1")
		modify(t, e, dat.UpcallDisable, dat.InvocNew)
		post(t, e, 3)
		close(gate)
		l.want(t, "SE 1")
		if got := drainNumbers(e); !slices.Equal(got, []string{"SE 2", "SE 3"}) {
			t.Fatalf("queued %q", got)
		}
	})
}

func TestInvocNewLeavesTheBacklogUntilANewEventComes(t *testing.T) {
	for _, p := range []dat.UpcallPolicy{dat.UpcallSingleInstance, dat.UpcallMany, dat.UpcallNotify} {
		bubble(t, dat.UpcallDisable, func(t *testing.T, e *dat.EVD, l *upcallLog) {
			post(t, e, 1, 2)
			modify(t, e, p, dat.InvocNew)
			l.want(t)
			post(t, e, 3)
			synctest.Wait()
			if p == dat.UpcallNotify {
				l.want(t, "notified+")
				return
			}
			// The backlog first, oldest first.
			if p == dat.UpcallSingleInstance {
				l.want(t, "SE 1+", "SE 2+", "SE 3")
			}
			if len(l.calls) != 3 {
				t.Fatalf("%v: %q", p, l.calls)
			}
		})
	}
}

func TestInvocAnyStartsAnUpcallForWhatIsQueued(t *testing.T) {
	for _, p := range []dat.UpcallPolicy{dat.UpcallSingleInstance, dat.UpcallMany, dat.UpcallNotify} {
		bubble(t, dat.UpcallDisable, func(t *testing.T, e *dat.EVD, l *upcallLog) {
			modify(t, e, p, dat.InvocAny)
			l.want(t)
			modify(t, e, dat.UpcallDisable, dat.InvocAny)
			post(t, e, 1)
			l.want(t)
			modify(t, e, p, dat.InvocAny)
			if p == dat.UpcallNotify {
				l.want(t, "notified")
				empty2 := queued(t, e)
				if empty2 != 1 {
					t.Fatal("NOTIFY took the event")
				}
				return
			}
			l.want(t, "SE 1")
		})
	}
}

func TestInvocEmptyIsRefusedWithEventsQueuedAndChangesNothing(t *testing.T) {
	bubble(t, dat.UpcallDisable, func(t *testing.T, e *dat.EVD, l *upcallLog) {
		post(t, e, 1)
		for _, p := range []dat.UpcallPolicy{dat.UpcallSingleInstance, dat.UpcallMany, dat.UpcallNotify, dat.UpcallDisable} {
			refused(t, e.ModifyUpcall(p, func(dat.Event, bool) { panic("another function") }, dat.InvocEmpty), dat.InvalidState, dat.NoSubtype)
			if q := must[dat.EVDParam](t)(e.Query()); q.Policy != dat.UpcallDisable || q.Queued != 1 {
				t.Fatalf("%v has changed something: %v", p, q)
			}
		}
		post(t, e, 2)
		modify(t, e, dat.UpcallSingleInstance, dat.InvocAny)
		l.want(t, "SE 1+", "SE 2")
		modify(t, e, dat.UpcallDisable, dat.InvocEmpty)
		modify(t, e, dat.UpcallSingleInstance, dat.InvocEmpty)
		post(t, e, 3)
		l.want(t, "SE 1+", "SE 2", "SE 3")
	})
}

// "Empty" includes the adapter: completions that nobody has moved to the EVD's own queue are a backlog as any other.
func TestFlagsSeeCompletionsThatAreStillInTheAdapter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connectPair(t, 64)
		l := &upcallLog{}
		write := func(cookie uint64) {
			ok(t, p.a.ep.PostRDMAWrite(cookie, 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
		}
		write(1)
		refused(t, p.a.evd.ModifyUpcall(dat.UpcallSingleInstance, l.upcall, dat.InvocEmpty), dat.InvalidState, dat.NoSubtype)
		ok(t, p.a.evd.ModifyUpcall(dat.UpcallSingleInstance, l.upcall, dat.InvocNew))
		l.want(t)
		write(2)
		l.want(t, "RDMA_WRITE 1 SUCCESS+", "RDMA_WRITE 2 SUCCESS")
		modify(t, p.a.evd, dat.UpcallDisable, dat.InvocNew)
		write(3)
		modify(t, p.a.evd, dat.UpcallSingleInstance, dat.InvocAny)
		l.want(t, "RDMA_WRITE 1 SUCCESS+", "RDMA_WRITE 2 SUCCESS", "RDMA_WRITE 3 SUCCESS")
	})
}

func TestTheSameLivePolicyAgainChangesNothing(t *testing.T) {
	bubble(t, dat.UpcallSingleInstance, func(t *testing.T, e *dat.EVD, l *upcallLog) {
		gate := l.block()
		post(t, e, 1, 2)
		l.want(t, "SE 1")
		modify(t, e, dat.UpcallSingleInstance, dat.InvocNew)
		close(gate)
		l.want(t, "SE 1", "SE 2")
	})
}

// An activation that sees the policy become live again while its upcall runs behaves as one started then.
func TestDisableAndEnableDuringAnUpcall(t *testing.T) {
	for flag, want := range map[dat.UpcallFlag][]string{
		dat.InvocNew: {"SE 1"},
		dat.InvocAny: {"SE 1", "SE 2"},
	} {
		bubble(t, dat.UpcallSingleInstance, func(t *testing.T, e *dat.EVD, l *upcallLog) {
			gate := l.block()
			post(t, e, 1, 2)
			l.want(t, "SE 1")
			modify(t, e, dat.UpcallDisable, dat.InvocNew)
			modify(t, e, dat.UpcallSingleInstance, flag)
			close(gate)
			l.want(t, want...)
			post(t, e, 3)
			if flag == dat.InvocNew {
				l.want(t, "SE 1", "SE 2", "SE 3")
			} else {
				l.want(t, "SE 1", "SE 2", "SE 3")
			}
		})
	}
}

func TestEventsTakenInAnUpcallCauseNoUpcalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *dat.EVD
		var got []string
		calls := 0
		start := make(chan struct{})
		e = newEVD(t, newIA(t), dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: func(ev dat.Event, more bool) {
			<-start
			calls++
			got = append(got, short(ev))
			got = append(got, drainNumbers(e)...)
		}})
		post(t, e, 1, 2, 3)
		close(start)
		synctest.Wait()
		if calls != 1 || !slices.Equal(got, []string{"SE 1", "SE 2", "SE 3"}) {
			t.Fatalf("%d upcalls, events %q", calls, got)
		}
		post(t, e, 4)
		synctest.Wait()
		if calls != 2 {
			t.Fatalf("%d upcalls", calls)
		}
	})
}

func TestThePolicyChangesInAnUpcallForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *dat.EVD
		var calls []string
		second := func(ev dat.Event, more bool) { calls = append(calls, "second "+short(ev)) }
		first := func(ev dat.Event, more bool) {
			calls = append(calls, "first "+short(ev))
			switch ev.Software() {
			case 1:
				ok(t, e.ModifyUpcall(dat.UpcallSingleInstance, second, dat.InvocNew))
			case 3:
				ok(t, e.ModifyUpcall(dat.UpcallDisable, nil, dat.InvocNew))
			}
		}
		e = newEVD(t, newIA(t), dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: first})
		post(t, e, 1, 2)
		synctest.Wait()
		ok(t, e.ModifyUpcall(dat.UpcallSingleInstance, first, dat.InvocNew))
		post(t, e, 3, 4)
		synctest.Wait()
		if want := []string{"first SE 1", "second SE 2", "first SE 3"}; !slices.Equal(calls, want) {
			t.Fatalf("%q, want %q", calls, want)
		}
		if queued(t, e) != 1 {
			t.Fatal("DISABLE in an upcall did not stop the next")
		}
	})
}

func TestFreeWithAnUpcallRunningIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *dat.EVD
		inside := make(chan error, 1)
		gate := make(chan struct{})
		e = newEVD(t, newIA(t), dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: func(dat.Event, bool) {
			inside <- e.Free()
			<-gate
		}})
		post(t, e, 1)
		refused(t, <-inside, dat.InvalidState, dat.InvalidStateEVDInUse)
		refused(t, e.Free(), dat.InvalidState, dat.InvalidStateEVDInUse)
		close(gate)
		synctest.Wait()
		// With a live policy and nobody in an upcall it is no matter.
		ok(t, e.Free())
		refused(t, e.PostSE(2), dat.InvalidHandle, dat.InvalidHandle1)
	})
}

func TestTheFunctionIsKeptUnlessAnotherIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ia := newIA(t)
		_, err := ia.NewEVD(dat.EVDConfig{MinLen: 1, Streams: dat.StreamSoftware, Policy: dat.UpcallNotify})
		refused(t, err, dat.InvalidParameter, dat.InvalidArg4)
		e := newEVD(t, ia, dat.EVDConfig{})
		for _, p := range []dat.UpcallPolicy{dat.UpcallSingleInstance, dat.UpcallMany, dat.UpcallNotify} {
			refused(t, e.ModifyUpcall(p, nil, dat.InvocNew), dat.InvalidParameter, dat.InvalidArg3)
		}
		// A function that comes with DISABLE or TEARDOWN is stored.
		a, b := &upcallLog{}, &upcallLog{}
		ok(t, e.ModifyUpcall(dat.UpcallDisable, a.upcall, dat.InvocNew))
		modify(t, e, dat.UpcallSingleInstance, dat.InvocNew)
		post(t, e, 1)
		a.want(t, "SE 1")
		ok(t, e.ModifyUpcall(dat.UpcallTeardown, b.upcall, dat.InvocNew))
		modify(t, e, dat.UpcallMany, dat.InvocNew)
		post(t, e, 2)
		a.want(t, "SE 1")
		b.want(t, "SE 2")
		ok(t, e.ModifyUpcall(dat.UpcallMany, a.upcall, dat.InvocNew))
		post(t, e, 3)
		a.want(t, "SE 1", "SE 3")
	})
}

func TestUnknownPoliciesAndFlagsAreRefused(t *testing.T) {
	bubble(t, dat.UpcallSingleInstance, func(t *testing.T, e *dat.EVD, l *upcallLog) {
		for _, p := range []dat.UpcallPolicy{3, 99, 101, -2, 1<<31 - 1, -1 << 31} {
			refused(t, e.ModifyUpcall(p, l.upcall, dat.InvocNew), dat.InvalidParameter, dat.InvalidArg2)
		}
		for _, f := range []dat.UpcallFlag{3, 1 << 31, 1<<32 - 1} {
			refused(t, e.ModifyUpcall(dat.UpcallDisable, nil, f), dat.InvalidParameter, dat.InvalidArg4)
		}
		post(t, e, 1)
		l.want(t, "SE 1")
	})
}

// TEARDOWN at creation is DISABLE.
func TestTeardownPolicyAtCreationIsDisable(t *testing.T) {
	bubble(t, dat.UpcallTeardown, func(t *testing.T, e *dat.EVD, l *upcallLog) {
		if q := must[dat.EVDParam](t)(e.Query()); q.Policy != dat.UpcallDisable {
			t.Fatal(q)
		}
		post(t, e, 1)
		l.want(t)
	})
}

// An upcall runs neither in the stack of the call that caused it nor with a lock held: a caller may hold a lock
// that its upcall takes, and the upcall may call everything.
func TestUpcallsRunInNobodysStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		p := connectPair(t, 64)
		calls := make(chan string, 16)
		ok(t, p.b.evd.ModifyUpcall(dat.UpcallSingleInstance, func(ev dat.Event, _ bool) {
			mu.Lock()
			defer mu.Unlock()
			buf := make([]byte, 1<<16)
			if s := string(buf[:runtime.Stack(buf, false)]); strings.Contains(s, "PostSend") || strings.Contains(s, "PostSE") || strings.Contains(s, "Disconnect(") {
				t.Errorf("in the stack of a call: %s", s)
			}
			calls <- short(ev)
		}, dat.InvocNew))
		ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 8)))
		mu.Lock()
		ok(t, p.a.ep.PostSend(2, 0, p.a.lmr.Triplet(0, 8)))
		ok(t, p.b.evd.PostSE(3))
		ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
		mu.Unlock()
		for _, want := range []string{"RECEIVE 1 SUCCESS", "SE 3", dat.ConnectionDisconnected.String()} {
			if got := receive(t, want, calls); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
	})
}

// Connections are made, used and ended by upcalls alone, on both sides.
func TestEverythingCanBeDoneInAnUpcall(t *testing.T) {
	for _, policy := range []dat.UpcallPolicy{dat.UpcallSingleInstance, dat.UpcallMany} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{})
			done := make(chan string, 2)
			check := func(err error) {
				if err != nil {
					t.Error(err)
				}
			}
			var received, sent atomic.Int32
			ok(t, p.b.evd.ModifyUpcall(policy, func(ev dat.Event, _ bool) {
				switch ev.Number {
				case dat.ConnectionRequest:
					lmr, err := p.b.pz.Register(make([]byte, 16), dat.PrivAll)
					check(err)
					for i := range 3 {
						check(p.b.ep.PostRecv(uint64(i), 0, lmr.Triplet(0, 16)))
					}
					check(ev.Request().CR.Accept(p.b.ep, []byte("welcome")))
				case dat.DTOCompletion:
					if d := ev.DTO(); d.Status == dat.StatusSuccess && received.Add(1) == 3 {
						check(p.b.evd.PostSE(1))
						check(p.b.ep.Disconnect(dat.CloseGraceful))
					}
				case dat.ConnectionDisconnected:
					check(p.b.ep.Free())
					done <- "b"
				}
			}, dat.InvocNew))
			ok(t, p.a.evd.ModifyUpcall(policy, func(ev dat.Event, _ bool) {
				switch ev.Number {
				case dat.SoftwareEvent:
					check(p.call())
				case dat.ConnectionEstablished:
					if string(ev.Connection().PrivateData) != "welcome" {
						t.Errorf("private data %q", ev.Connection().PrivateData)
					}
					check(p.a.ep.PostSend(0, 0, p.a.lmr.Triplet(0, 8)))
				case dat.DTOCompletion:
					if sent.Add(1) < 3 {
						check(p.a.ep.PostSend(0, 0, p.a.lmr.Triplet(0, 8)))
					}
				case dat.ConnectionDisconnected:
					check(p.a.ep.Reset())
					_, err := p.a.ep.Query()
					check(err)
					check(p.a.ep.Free())
					check(p.a.evd.Resize(64))
					done <- "a"
				}
			}, dat.InvocNew))
			post(t, p.a.evd, 1)
			receive(t, "one side's end", done)
			receive(t, "the other side's end", done)
			ok(t, p.a.evd.Teardown(context.Background()))
			ok(t, p.b.evd.Teardown(context.Background()))
		})
	}
}
