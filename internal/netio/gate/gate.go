// Package gate is the place where one goroutine waits for a condition that other goroutines, a
// deadline or the passing of time make true. It is what the software connections (netio's portable
// one, faultnet's) build WaitReadable and WaitWritable from. It uses channels, timers and mutexes
// only, so a waiter counts as durably blocked under testing/synctest.
package gate

import (
	"os"
	"sync"
	"time"
)

// A Gate belongs to one mutex, that of the state which the condition reads. At most one goroutine
// waits at a time; the others' methods may be called by any number of goroutines.
type Gate struct {
	wake     chan struct{} // holds at most one wake-up, so that Open never blocks and none is lost
	timer    *time.Timer
	deadline time.Time
}

// New returns a gate without a deadline. Under testing/synctest it belongs to the caller's bubble.
func New() *Gate {
	return &Gate{wake: make(chan struct{}, 1)}
}

// Open makes a waiter look at its condition again. It may be called with or without the mutex held,
// and never blocks.
func (g *Gate) Open() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// SetDeadline moves the deadline of the wait in progress and of later ones; the zero time removes
// it. The caller holds the mutex.
func (g *Gate) SetDeadline(t time.Time) {
	g.deadline = t
	g.Open()
}

// Wait blocks until ready reports true and returns nil, or until the deadline and returns
// os.ErrDeadlineExceeded, whatever the condition is then. The caller holds mu, and holds it again
// afterwards; ready is called with mu held. Beside the verdict, ready reports the time at which the
// condition is worth a look though nobody calls Open, or the zero time.
func (g *Gate) Wait(mu *sync.Mutex, ready func(now time.Time) (ok bool, next time.Time)) error {
	for {
		now := time.Now()
		if !g.deadline.IsZero() && !now.Before(g.deadline) {
			return os.ErrDeadlineExceeded
		}
		ok, next := ready(now)
		if ok {
			return nil
		}
		if next.IsZero() || !g.deadline.IsZero() && g.deadline.Before(next) {
			next = g.deadline
		}
		mu.Unlock()
		g.sleep(now, next)
		mu.Lock()
	}
}

// sleep returns at an Open or at the time until, if there is one.
func (g *Gate) sleep(now, until time.Time) {
	if until.IsZero() {
		<-g.wake
		return
	}
	if g.timer == nil {
		g.timer = time.NewTimer(until.Sub(now))
	} else {
		g.timer.Reset(until.Sub(now))
	}
	select {
	case <-g.wake:
		g.timer.Stop()
	case <-g.timer.C:
	}
}
