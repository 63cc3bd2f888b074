package softnic

import (
	"reflect"
	"runtime"
	"sync"

	"kdapl/internal/explore"
)

// Events delivers one object's events in order, one at a time, with no lock held and in no
// consumer's stack: a goroutine starts when there is something to deliver and ends
// when there is not, or the device's own that found the event delivers it. The zero value with Do set is ready.
type Events[T any] struct {
	// Do receives the events. It is set before the first Post and not changed.
	Do func(T)

	mu      sync.Mutex
	queue   []T
	running bool // there is a goroutine
	calling bool // it is in Do
	closed  bool
}

// Post queues an event. After Close or Finish it does nothing and returns false.
func (e *Events[T]) Post(ev T) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	if e.Do == nil {
		return true
	}
	e.queue = append(e.queue, ev)
	if !e.running {
		e.running = true
		e.start()
	}
	return true
}

// Hold is Post for a goroutine of the device's own that can deliver the event itself, without another one to start and to
// switch to: if mine is true it has to call Deliver, soon and with no lock held. Otherwise somebody else does.
func (e *Events[T]) Hold(ev T) (mine, ok bool) {
	if explore.On {
		return false, e.Post(ev)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false, false
	}
	if e.Do == nil {
		return false, true
	}
	e.queue = append(e.queue, ev)
	mine = !e.running
	e.running = true
	return mine, true
}

// Deliver calls back for what is queued, and for what is posted meanwhile, in the stack of the caller. A callback that leaves by
// runtime.Goexit takes the caller with it, so to deliver is the last that the caller does.
func (e *Events[T]) Deliver() { e.run() }

// Close drops what is queued and returns it. A call in progress goes on.
func (e *Events[T]) Close() []T {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.queue
	e.closed, e.queue = true, nil
	return q
}

// Finish delivers what is queued and lets nothing follow. It does so in the caller's stack,
// unless a call is in progress: that is not waited for, and goes on to the rest if it is not the
// caller's own, in which case there is nobody left to tell.
func (e *Events[T]) Finish() {
	e.mu.Lock()
	e.closed = true
	if e.calling {
		if calledFrom() {
			e.queue = nil
		}
		e.mu.Unlock()
		return
	}
	rest := e.queue
	e.queue = nil
	e.mu.Unlock()
	for _, ev := range rest {
		e.Do(ev)
	}
}

// start starts the goroutine.
func (e *Events[T]) start() {
	if explore.On {
		explore.Go(e.run)
		return
	}
	go e.run()
}

func (e *Events[T]) run() {
	ended := false
	defer func() {
		if !ended {
			// The callback left by runtime.Goexit (or panics, which ends the program).
			e.start()
		}
	}()
	for {
		e.mu.Lock()
		e.calling = len(e.queue) > 0
		if !e.calling {
			e.running, e.queue = false, nil
			ended = true
			e.mu.Unlock()
			return
		}
		ev := e.queue[0]
		e.queue = e.queue[1:]
		e.mu.Unlock()
		deliver(func() { e.Do(ev) })
	}
}

// deliver is the frame by which calledFrom knows a callback's stack.
//
//go:noinline
func deliver(call func()) { call() }

var deliverEntry = reflect.ValueOf(deliver).Pointer()

// calledFrom reports whether a callback is on the caller's stack.
func calledFrom() bool {
	var pcs [64]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		for _, pc := range pcs[:n] {
			if f := runtime.FuncForPC(pc - 1); f != nil && f.Entry() == deliverEntry {
				return true
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}
