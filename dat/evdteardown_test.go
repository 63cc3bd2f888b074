package dat_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"kdapl/dat"
)

// Tests of the end of upcalls: Teardown, Goexit, panics.

func TestTeardownReturnsWhenNoUpcallRuns(t *testing.T) {
	for name, teardown := range map[string]func(*dat.EVD) error{
		"Teardown": func(e *dat.EVD) error { return e.Teardown(context.Background()) },
		//lint:ignore SA1012 bad input
		"nil context":  func(e *dat.EVD) error { return e.Teardown(nil) },
		"ModifyUpcall": func(e *dat.EVD) error { return e.ModifyUpcall(dat.UpcallTeardown, nil, dat.InvocNew) },
	} {
		bubble(t, dat.UpcallMany, func(t *testing.T, e *dat.EVD, l *upcallLog) {
			ok(t, teardown(e)) // with none running
			modify(t, e, dat.UpcallMany, dat.InvocNew)
			gate := l.block()
			post(t, e, 1, 2, 3)
			synctest.Wait()
			var done [2]chan error
			for i := range done {
				done[i] = make(chan error, 1)
				go func() { done[i] <- teardown(e) }()
			}
			synctest.Wait()
			post(t, e, 4)
			for i := range 3 {
				if len(done[0])+len(done[1]) > 0 {
					t.Fatalf("%s returned with %d upcalls running", name, 3-i)
				}
				gate <- struct{}{}
				synctest.Wait()
			}
			ok(t, receive(t, "the end of "+name, done[0]))
			ok(t, receive(t, "the end of "+name, done[1]))
			if l.in.Load() != 0 || len(l.calls) != 3 {
				t.Fatalf("%d upcalls run, %d in all", l.in.Load(), len(l.calls))
			}
			if q := must[dat.EVDParam](t)(e.Query()); q.Policy != dat.UpcallTeardown || q.Queued != 1 {
				t.Fatal(q)
			}
			close(gate)
			modify(t, e, dat.UpcallSingleInstance, dat.InvocAny)
			synctest.Wait()
			if len(l.calls) != 4 {
				t.Fatal("upcalls cannot be enabled again")
			}
		})
	}
}

func TestTeardownGivesUpWithItsContext(t *testing.T) {
	bubble(t, dat.UpcallSingleInstance, func(t *testing.T, e *dat.EVD, l *upcallLog) {
		gate := l.block()
		post(t, e, 1, 2)
		synctest.Wait()
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		err := e.Teardown(ctx)
		refused(t, err, dat.InterruptedCall, dat.NoSubtype)
		if !errors.Is(err, cause) {
			t.Fatalf("%v does not tell the cause", err)
		}
		// Upcalls stay disabled.
		close(gate)
		l.want(t, "SE 1")
		ok(t, e.Teardown(context.Background()))
		l.want(t, "SE 1")
	})
}

// What was started after a teardown began is not its concern.
func TestTeardownAwaitsOnlyUpcallsThatBeganBeforeIt(t *testing.T) {
	bubble(t, dat.UpcallMany, func(t *testing.T, e *dat.EVD, l *upcallLog) {
		old := l.block()
		post(t, e, 1)
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- e.Teardown(context.Background()) }()
		synctest.Wait()
		fresh := l.block()
		modify(t, e, dat.UpcallMany, dat.InvocNew)
		post(t, e, 2)
		synctest.Wait()
		if l.in.Load() != 2 {
			t.Fatalf("%d upcalls run", l.in.Load())
		}
		close(old)
		ok(t, receive(t, "the end of Teardown", done))
		if l.in.Load() != 1 {
			t.Fatalf("%d upcalls run", l.in.Load())
		}
		close(fresh)
	})
}

func TestTeardownAndCloseInAnUpcallAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ia := newIA(t)
		other := newEVD(t, ia, dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: func(dat.Event, bool) {}})
		var own *dat.EVD
		try := func() {
			for _, e := range []*dat.EVD{own, other} {
				refused(t, e.Teardown(context.Background()), dat.InvalidState, dat.NoSubtype)
				refused(t, e.ModifyUpcall(dat.UpcallTeardown, nil, dat.InvocNew), dat.InvalidState, dat.NoSubtype)
			}
			refused(t, ia.Close(context.Background(), dat.CloseAbrupt), dat.InvalidState, dat.NoSubtype)
			refused(t, ia.Close(context.Background(), dat.CloseGraceful), dat.InvalidState, dat.NoSubtype)
		}
		var deep func(n int)
		deep = func(n int) {
			if n > 0 {
				deep(n - 1)
				return
			}
			try()
		}
		done := make(chan struct{})
		own = newEVD(t, ia, dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: func(dat.Event, bool) {
			defer close(done)
			try()
			deep(50)
			deep(500)
			defer func() { recover() }()
			defer try() // also while a panic unwinds
			panic("to be recovered")
		}})
		post(t, own, 1)
		<-done
		// The policies are unchanged.
		for _, e := range []*dat.EVD{own, other} {
			if q := must[dat.EVDParam](t)(e.Query()); q.Policy != dat.UpcallSingleInstance {
				t.Fatal(q)
			}
		}
	})
}

// A goroutine that an upcall starts is not in an upcall.
func TestTeardownInAGoroutineThatAnUpcallStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *dat.EVD
		done := make(chan error)
		e = newEVD(t, newIA(t), dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: func(dat.Event, bool) {
			go func() { done <- e.Teardown(context.Background()) }()
		}})
		post(t, e, 1)
		ok(t, receive(t, "the end of Teardown", done))
		ok(t, e.Free())
	})
}

func TestGoexitInAnUpcallCountsAsReturn(t *testing.T) {
	for _, p := range []dat.UpcallPolicy{dat.UpcallSingleInstance, dat.UpcallMany, dat.UpcallNotify} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int32
			gate := make(chan struct{})
			e := newEVD(t, newIA(t), dat.EVDConfig{Policy: p, Upcall: func(dat.Event, bool) {
				calls.Add(1)
				<-gate
				runtime.Goexit()
			}})
			post(t, e, 1, 2, 3)
			synctest.Wait()
			torn := make(chan error, 1)
			if p == dat.UpcallNotify {
				close(gate)
				synctest.Wait()
				modify(t, e, p, dat.InvocNew)
				synctest.Wait()
				if calls.Load() != 2 || queued(t, e) != 3 {
					t.Fatalf("%d upcalls", calls.Load())
				}
			} else {
				go func() { close(gate) }()
				synctest.Wait()
				if calls.Load() != 3 || queued(t, e) != 0 {
					t.Fatalf("%d upcalls", calls.Load())
				}
			}
			go func() { torn <- e.Teardown(context.Background()) }()
			ok(t, receive(t, "the end of Teardown", torn))
			if q := must[dat.EVDParam](t)(e.Query()); q.Counters.Upcalls != uint64(calls.Load()) {
				t.Fatalf("%d upcalls counted, want %d", q.Counters.Upcalls, calls.Load())
			}
			ok(t, e.Free())
		})
	}
}

func init() {
	childCases["panic in an upcall"] = func() {
		ia, err := dat.Open(newLoop(), dat.Config{})
		if err != nil {
			panic(err)
		}
		e, err := ia.NewEVD(dat.EVDConfig{MinLen: 1, Streams: dat.StreamSoftware, Policy: dat.UpcallSingleInstance, Upcall: func(dat.Event, bool) {
			panic("the consumer's own")
		}})
		if err != nil {
			panic(err)
		}
		e.PostSE(1)
		select {}
	}
}

// A panic in an upcall ends the program, as any panic of a goroutine.
func TestAPanicInAnUpcallIsNotSwallowed(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=panic in an upcall")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), "panic: the consumer's own") {
		t.Fatalf("%v: %s", err, out)
	}
}
