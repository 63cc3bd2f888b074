package dat

import (
	"context"
	"fmt"
	"iter"
	"math"
	"runtime"
	"time"

	"kdapl/internal/explore"
	"kdapl/internal/foreign"
	"kdapl/verbs"
)

// waiter is the one waiter that an EVD can have. All but wake is under the EVD's lock.
type waiter struct {
	owned      bool // a Wait is under way
	parked     bool // … and wants to be woken
	unwaitable bool
	ready      bool // an event that notifies has come, and enough are queued
	threshold  int
	err        error // ends the wait
	wake       chan struct{}
	timer      *time.Timer
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
}

// startTimer makes the timer fire after d. It is the EVD's own, so that waits allocate nothing.
func (w *waiter) startTimer(d time.Duration) {
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
}

// Wait blocks until at least threshold events are queued, takes the oldest, and returns it
// with the number of those that are left (dat_evd_wait). If enough are queued it returns at once,
// and nothing else can be dequeued from the EVD while it waits. timeout bounds the wait: 0
// only looks, Infinite waits for ever. It allocates nothing unless the context ends it.
//
// A wait is ended by events that notify; those that do not are counted but end none.
//
// ErrTimeout: time is up; nothing was taken and more counts the events queued.
// INVALID_PARAMETER: timeout below Infinite (ARG2), threshold below 1 or above the queue's length (ARG3). INVALID_STATE: another
// waiter waits (EVD_WAITER), the EVD is unwaitable (EVD_UNWAITABLE), it has an upcall policy
// other than UpcallDisable, or threshold is above 1 on an EVD with UNSIGNALLED
// (EVD_CONFIG_NOTIFY) or SOLICITED_WAIT (EVD_CONFIG_SOLICITED) streams. ABORT: the IA was
// closed meanwhile. INTERRUPTED_CALL: the context ended; its cause is in the error.
func (e *EVD) Wait(ctx context.Context, threshold int, timeout time.Duration) (ev Event, more int, err error) {
	if e.gone() {
		return Event{}, 0, e.errGone("evd_wait")
	}
	if ctx == nil {
		ctx = context.Background()
	}
	var a after
	e.begin(&a)
	if err := e.startWait(&a, threshold, timeout); err != nil {
		return Event{}, 0, err
	}
	deadline, timed := timeout == 0, false
	for {
		ev, more, err, done := e.look(&a, deadline)
		if done {
			return ev, more, err
		}
		if timeout > 0 && !timed {
			e.waiter.startTimer(timeout)
			timed = true
		}
		outcome := e.park(ctx, timed)
		e.begin(&a)
		switch outcome {
		case parkTimeout:
			deadline = true
		case parkCancelled:
			e.waiter.err = e.fail("evd_wait", InterruptedCall, NoSubtype, context.Cause(ctx), "the context ended")
		}
	}
}

// startWait makes the caller the EVD's waiter, or says why not and gives up the lock.
func (e *EVD) startWait(a *after, threshold int, timeout time.Duration) error {
	if err := e.waitRefused(a, threshold, timeout); err != nil {
		e.end(a)
		return err
	}
	e.setStatus(foreign.StatusWaited)
	w := &e.waiter
	// What is queued at the beginning ends the wait, whatever it is; after that, what notifies.
	w.owned, w.threshold, w.err, w.ready = true, threshold, nil, true
	return nil
}

// look is a look of the waiter, which ends the wait (done) or tells the waiter to sleep. The EVD was locked by a, which
// is given up.
func (e *EVD) look(a *after, deadline bool) (ev Event, more int, err error, done bool) {
	w := &e.waiter
	if a.appended {
		e.arrived(a)
	}
	w.parked = false
	e.publish(a)
	if w.ready {
		if ev, more, ok := e.takeOfMany(a, w.threshold); ok {
			e.leaveWait(a)
			return ev, more, nil, true
		}
		w.ready = false // somebody who began before the wait was faster
	}
	more, err = a.ring.Len(), w.err
	if err == nil && deadline {
		err = ErrTimeout
	}
	if err != nil {
		e.leaveWait(a)
		return Event{}, more, err, true
	}
	w.parked = true
	e.armed = false // what is armed since an earlier wait is armed again: the device learns that somebody sleeps now
	e.end(a)
	return Event{}, 0, nil, false
}

// takeOfMany takes the oldest event if at least threshold are published, and returns how many are left.
// The EVD is locked.
func (e *EVD) takeOfMany(a *after, threshold int) (ev Event, more int, ok bool) {
	for {
		w, n := a.ring.Ready(math.MaxInt)
		if n < threshold {
			return Event{}, 0, false
		}
		ev.fetch(e, a.ring.At(w, 0))
		if explore.On {
			explore.At(explore.Take)
		}
		if a.ring.Claim(w, 1) {
			return ev, n - 1, true
		}
	}
}

// leaveWait ends the ownership of the events and gives up the lock.
func (e *EVD) leaveWait(a *after) {
	e.waiter.owned, e.waiter.parked = false, false
	if e.waiter.timer != nil {
		e.waiter.timer.Stop()
	}
	e.clearStatus(foreign.StatusWaited)
	a.wake = false
	select { // a late wake-up is not for the next waiter
	case <-e.waiter.wake:
	default:
	}
	e.end(a)
}

// waitRefused says why a wait cannot begin.
func (e *EVD) waitRefused(a *after, threshold int, timeout time.Duration) error {
	const op = "evd_wait"
	switch {
	case e.freed.Load():
		return e.errGone(op)
	case timeout < Infinite:
		return e.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("timeout %v, allowed are 0 and more, and Infinite", timeout))
	case threshold < 1 || threshold > e.qlen+e.reserved:
		return e.fail(op, InvalidParameter, InvalidArg3, nil, fmt.Sprintf("threshold %d, allowed are 1 to %d", threshold, e.qlen+e.reserved))
	case e.waiter.owned:
		return e.fail(op, InvalidState, InvalidStateEVDWaiter, nil, "another waiter waits")
	case e.waiter.unwaitable:
		return e.fail(op, InvalidState, InvalidStateEVDUnwaitable, nil, "the EVD is unwaitable")
	case e.up.policy.Live():
		return e.fail(op, InvalidState, NoSubtype, nil, fmt.Sprintf("the upcall policy is %v; only UpcallDisable leaves events to a waiter", e.up.policy))
	case threshold > 1 && !e.discs.thresholdOnly():
		sub := InvalidStateEVDConfigNotify
		if e.discs.n[discSolicited] > 0 {
			sub = InvalidStateEVDConfigSolicited
		}
		return e.fail(op, InvalidState, sub, nil, "a threshold above 1 needs streams whose completions all notify")
	}
	return nil
}

// parkOutcome is why park returned.
type parkOutcome uint8

const (
	parkWoken parkOutcome = iota
	parkTimeout
	parkCancelled
)

// park waits for a wake-up: first in turns that help the adapter and yield, then asleep.
func (e *EVD) park(ctx context.Context, timed bool) parkOutcome {
	var expired <-chan time.Time
	if timed {
		expired = e.waiter.timer.C
	}
	// An adapter that always has something to do for others must not keep the wait from its end.
	select {
	case <-expired:
		return parkTimeout
	case <-ctx.Done():
		return parkCancelled
	default:
	}
	for range e.ia.spin {
		if len(e.waiter.wake) > 0 {
			<-e.waiter.wake // taken, for there is one receiver: left there, it would wake each time
			return parkWoken
		}
		if e.progress() {
			return parkWoken
		}
		if p, ok := e.cq.(verbs.Peeker); ok && p.Peek(1) > 0 {
			return parkWoken
		}
		runtime.Gosched()
	}
	if explore.On && explore.Block(func() bool { return len(e.waiter.wake) > 0 || ctx.Err() != nil }, timed) {
		return parkTimeout
	}
	select {
	case <-e.waiter.wake:
		return parkWoken
	case <-expired:
		return parkTimeout
	case <-ctx.Done():
		return parkCancelled
	}
}

// abortWait ends a wait that is under way with an error. The EVD is locked.
func (e *EVD) abortWait(a *after, err error) {
	if e.waiter.owned {
		e.waiter.err = err
		a.wake = true
	}
}

// SetUnwaitable makes waits fail, the one under way included, with INVALID_STATE
// (EVD_UNWAITABLE) until ClearUnwaitable (dat_evd_set_unwaitable). It does not block.
func (e *EVD) SetUnwaitable() error { return e.setWaitable("evd_set_unwaitable", true) }

// ClearUnwaitable undoes SetUnwaitable (dat_evd_clear_unwaitable). It does not block.
func (e *EVD) ClearUnwaitable() error { return e.setWaitable("evd_clear_unwaitable", false) }

func (e *EVD) setWaitable(op string, unwaitable bool) error {
	if e.gone() {
		return e.errGone(op)
	}
	var a after
	e.begin(&a)
	defer e.end(&a)
	if e.freed.Load() {
		return e.errGone(op)
	}
	e.waiter.unwaitable = unwaitable
	e.foreign.Mark(foreign.StatusUnwaitable, unwaitable)
	if unwaitable {
		e.abortWait(&a, e.fail("evd_wait", InvalidState, InvalidStateEVDUnwaitable, nil, "the EVD was made unwaitable"))
	}
	return nil
}

// Events returns an iterator that waits for events one by one:
//
//	for ev, err := range evd.Events(ctx) { … }
//
// It ends after the error of a wait that failed: the context's, or that of the EVD's end.
func (e *EVD) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			ev, _, err := e.Wait(ctx, 1, Infinite)
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}
