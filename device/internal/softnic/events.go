package softnic

import "sync"

// Events delivers one object's events in order, one at a time, with no lock held and in no
// caller's stack: a goroutine starts when there is something to deliver and ends
// when there is not. The zero value with Do set is ready.
type Events[T any] struct {
	// Do receives the events. It is set before the first Post and not changed.
	Do func(T)

	mu      sync.Mutex
	queue   []T
	running bool
	closed  bool
}

// Post queues an event. After Close it does nothing and returns false.
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
		go e.run()
	}
	return true
}

// Close drops what is queued and returns it. A call in progress goes on.
func (e *Events[T]) Close() []T {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.queue
	e.closed, e.queue = true, nil
	return q
}

func (e *Events[T]) run() {
	ended := false
	defer func() {
		if !ended {
			// The callback left by runtime.Goexit (or panics, which ends the program).
			go e.run()
		}
	}()
	for {
		e.mu.Lock()
		if len(e.queue) == 0 {
			e.running, e.queue = false, nil
			ended = true
			e.mu.Unlock()
			return
		}
		ev := e.queue[0]
		e.queue = e.queue[1:]
		e.mu.Unlock()
		e.Do(ev)
	}
}
