package dat

import (
	"context"
	"fmt"
	"reflect"
	"runtime"

	"kdapl/internal/evring"
	"kdapl/internal/explore"
)

// ModifyUpcall changes when and what the EVD calls up (dat_evd_modify_upcall). fn nil keeps the
// function (DAT_UPCALL_SAME). It does not block, except with UpcallTeardown, which is
// Teardown with a background context.
//
// When it returns with a policy that makes no upcalls, no new upcall starts; one that has started
// may still run. A policy that does make upcalls is subject to the flag: with InvocNew only an
// event that arrives after the call starts upcalls, which then deliver what was queued
// first; with InvocAny anything queued starts one at once; InvocEmpty refuses to change
// anything while events are queued. From a live policy to the same one nothing changes, whatever is queued, except that
// UpcallNotify is armed again: if events are pending, that is an upcall at once.
//
// INVALID_PARAMETER: an unknown policy (ARG2), a live policy without any function (ARG3), an
// unknown flag (ARG4). INVALID_STATE: InvocEmpty with events queued; a live policy while a
// waiter waits (EVD_WAITER). INVALID_HANDLE: the EVD was freed.
func (e *EVD) ModifyUpcall(policy UpcallPolicy, fn UpcallFunc, flag UpcallFlag) error {
	const op = "evd_modify_upcall"
	if e.gone() {
		return e.errGone(op)
	}
	switch {
	case !policy.Live() && policy != UpcallDisable && policy != UpcallTeardown:
		return e.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("unknown policy %v", policy))
	case flag != InvocNew && flag != InvocAny && flag != InvocEmpty:
		return e.fail(op, InvalidParameter, InvalidArg4, nil, fmt.Sprintf("unknown flag %v", flag))
	}
	if policy == UpcallTeardown {
		return e.teardown(context.Background(), fn)
	}
	if explore.On {
		explore.At(explore.Modify)
	}
	var a after
	e.begin(&a)
	defer e.end(&a)
	switch {
	case e.freed.Load():
		return e.errGone(op)
	case policy.Live() && fn == nil && e.fn == nil:
		return e.fail(op, InvalidParameter, InvalidArg3, nil, fmt.Sprintf("policy %v needs a function", policy))
	case policy.Live() && e.waiter.owned:
		return e.fail(op, InvalidState, InvalidStateEVDWaiter, nil, "a waiter waits for the events")
	}
	if a.appended { // what the refill found is backlog
		e.arrived(&a)
	}
	queued := a.ring.Len()+a.n > 0
	if flag == InvocEmpty && !queued && e.cq != nil && e.cq.Arm(e.discs.arm()) {
		e.refill(&a, nil) // came before the arming: it counts
		queued = a.ring.Len()+a.n > 0
	}
	up, start, ok := e.up.modify(policy, flag, queued)
	if !ok {
		return e.fail(op, InvalidState, NoSubtype, nil, fmt.Sprintf("%d events are queued; dequeue them first", a.ring.Len()+a.n))
	}
	if policy != e.up.policy || fn != nil {
		a.ring.Turn() // activations that are about to take an event ask again
	}
	e.up = up
	if fn != nil {
		e.fn = fn
	}
	if start {
		a.start++
	}
	return nil
}

// Teardown stops upcalls as UpcallDisable does, and waits until every upcall of this EVD that was
// running has returned (DAT_UPCALL_TEARDOWN), or for the context: then the cause is in the
// error, and upcalls stay disabled. Afterwards no code of the consumer's runs for this EVD.
//
// INVALID_STATE: called in an upcall, of whatever EVD, where it could wait for itself. A goroutine
// that an upcall starts and then waits for is not recognized: it waits for ever.
func (e *EVD) Teardown(ctx context.Context) error {
	if e.gone() {
		return e.errGone("evd_modify_upcall")
	}
	return e.teardown(ctx, nil)
}

func (e *EVD) teardown(ctx context.Context, fn UpcallFunc) error {
	const op = "evd_modify_upcall"
	if inUpcall() {
		return e.fail(op, InvalidState, NoSubtype, nil, "TEARDOWN in an upcall would wait for itself; use UpcallDisable here")
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if explore.On {
		explore.At(explore.Modify)
	}
	var a after
	e.begin(&a)
	if e.freed.Load() {
		e.end(&a)
		return e.errGone(op)
	}
	e.tearDown()
	if fn != nil {
		e.fn = fn
	}
	a.ring.Turn()
	var wait chan struct{}
	if e.up.old > 0 {
		if e.torn == nil {
			e.torn = make(chan struct{})
		}
		wait = e.torn
	}
	e.end(&a)
	if wait == nil {
		return nil
	}
	if explore.On {
		explore.Block(func() bool { return explore.Closed(wait) || ctx.Err() != nil }, false)
	}
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return e.fail(op, InterruptedCall, NoSubtype, context.Cause(ctx), "an upcall still runs; upcalls are disabled")
	}
}

// tearDown makes the activations old that run now: those that have begun, and as many of those that begin next
// as were started and have not begun. The EVD is locked.
func (e *EVD) tearDown() {
	e.up = e.up.teardown()
	e.oldBelow = e.counters.ends + uint64(e.up.running)
}

// launch is the first decision of an activation, made for it when it is started: to take the head of the queue.
type launch struct {
	ring       *evring.Ring
	generation uint64
	fn         UpcallFunc
	number     uint64
}

// prepareLaunch makes the first step of the one activation that the section starts, if that is simple: under
// SINGLE_INSTANCE, where none other is about and the head of the queue is what it takes. It saves the activation a
// section; if anything changes until it takes the event, the generation does, and it asks then. The EVD is locked.
func (e *EVD) prepareLaunch(a *after) {
	if e.up.policy != UpcallSingleInstance || e.up.running != 1 || !e.up.pending || a.ring.Len()+a.n == 0 {
		return
	}
	a.launched = true
	e.launch = launch{a.ring, a.ring.Generation(), e.fn, e.counters.starts}
	e.counters.starts++
}

func (e *EVD) setRun() {
	e.run = func() { e.activate(false) }
	e.runLaunched = func() { e.activate(true) }
}

// activate is an activation: a goroutine that calls the consumer up until the machine says stop.
// Its name is how a stack is recognized that must not wait for upcalls.
//
//go:noinline
func (e *EVD) activate(launched bool) {
	var a after
	var calls, number uint64
	ended := false
	if launched {
		number = e.launch.number // nobody writes it before this activation has ended
	} else {
		e.begin(&a)
		number = e.counters.starts
		e.counters.starts++
	}
	defer func() {
		if !ended { // the consumer's function ended the goroutine, or panics
			e.begin(&a)
			e.counters.upcalls += calls
			e.endActivation(&a, number)
		}
	}()
	if launched {
		l := &e.launch
		e.callUp(l.ring, l.generation, l.fn, UpcallSingleInstance, &calls)
		e.begin(&a)
	}
	for {
		e.counters.upcalls += calls
		calls = 0
		if a.appended {
			e.arrived(&a)
		}
		e.publish(&a) // what the refill found must be there to be claimed
		queued := a.ring.Len()
		up, act, start := e.up.step(queued, number < e.oldBelow)
		if act == actStop {
			ended = true
			e.endActivation(&a, number)
			return
		}
		e.up = up
		if start {
			a.start++
		}
		ring, generation := a.ring, a.ring.Generation()
		fn, policy := e.fn, up.policy
		e.end(&a)
		if act == actNotify {
			calls++
			if explore.On {
				explore.At(explore.Call)
			}
			fn(Event{}, queued > 1)
			if explore.On {
				explore.At(explore.Return)
			}
		} else {
			e.callUp(ring, generation, fn, policy, &calls)
		}
		e.begin(&a)
	}
}

// endActivation takes the activation out of the count. If its events came back between its last
// look and the arming of the CQ, end starts another one.
func (e *EVD) endActivation(a *after, number uint64) {
	up, start := e.up.end(a.ring.Len()+a.n, number < e.oldBelow)
	e.up = up
	e.counters.ends++
	if start {
		a.start++
	}
	if up.old == 0 {
		a.torn, e.torn = e.torn, nil
	}
	e.end(a)
}

// callUp calls the consumer up with the head of the queue, and under SINGLE_INSTANCE goes on
// without the lock for as long as nothing changes that the machine decides by: the
// generation of the ring tells.
func (e *EVD) callUp(ring *evring.Ring, generation uint64, fn UpcallFunc, policy UpcallPolicy, calls *uint64) {
	var ev Event
	for {
		w, n := ring.Ready(2)
		if n == 0 || evring.Generation(w) != generation {
			return
		}
		// Written before the claim, the event is at rest when it is copied for the call.
		ev.fetch(e, ring.At(w, 0))
		if explore.On {
			explore.At(explore.Take)
		}
		if !ring.Claim(w, 1) {
			continue
		}
		*calls++
		if explore.On {
			explore.At(explore.Call)
		}
		fn(ev, n > 1)
		if explore.On {
			explore.At(explore.Return)
		}
		if policy == UpcallMany {
			return
		}
	}
}

// activateName is the function whose frame marks a stack with an upcall.
var activateName = runtime.FuncForPC(reflect.ValueOf((*EVD).activate).Pointer()).Name()

// inUpcall reports whether the caller runs in an upcall, of whatever EVD.
func inUpcall() bool {
	var pcs [64]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		if n == 0 {
			return false
		}
		frames := runtime.CallersFrames(pcs[:n])
		for {
			f, more := frames.Next()
			if f.Function == activateName {
				return true
			}
			if !more {
				break
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}
