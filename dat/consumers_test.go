package dat_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"kdapl/dat"
)

// The consumers of the examples under load: events of several posters, software events and completions, and not one of them is
// lost or had twice, however the consumer and the posters meet.

// census counts events by their value.
type census struct {
	counts []atomic.Int32
	left   atomic.Int64
}

func newCensus(n int) *census {
	c := &census{counts: make([]atomic.Int32, n)}
	c.left.Store(int64(n))
	return c
}

func (c *census) have(ev dat.Event) {
	c.counts[valueOf(ev)].Add(1)
	c.left.Add(-1)
}

func (c *census) check(t *testing.T) {
	t.Helper()
	eventually(t, "every event", func() bool { return c.left.Load() <= 0 })
	for i := range c.counts {
		if n := c.counts[i].Load(); n != 1 {
			t.Fatalf("event %d came %d times", i, n)
		}
	}
}

// postAll posts n events from several goroutines, in bursts.
func postAll(p *pair, e *dat.EVD, n int) *sync.WaitGroup {
	const posters = 3
	var wg sync.WaitGroup
	for poster := range posters {
		wg.Go(func() {
			for i := poster; i < n; i += posters {
				for {
					var err error
					if i%2 == 0 {
						err = e.PostSE(uint64(i))
					} else {
						err = p.a.ep.PostRDMAWrite(uint64(i), 0, p.b.lmr.RMRTriplet(8*poster, 8), p.a.lmr.Triplet(8*poster, 8))
					}
					if err == nil {
						break
					}
					runtime.Gosched()
				}
				if i%7 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	return &wg
}

func TestConsumersOfTheExamplesMissNothing(t *testing.T) {
	n := 8000
	if testing.Short() {
		n = 2000
	}
	for name, consume := range map[string]func(t *testing.T, e *dat.EVD, c *census){
		// Off in the first upcall, drained by a goroutine, on again with INVOC_ANY.
		"drain from a goroutine": func(t *testing.T, e *dat.EVD, c *census) {
			work := make(chan bool, 1)
			upcall := func(ev dat.Event, _ bool) {
				ok(t, e.ModifyUpcall(dat.UpcallDisable, nil, dat.InvocNew))
				c.have(ev)
				work <- true
			}
			ok(t, e.ModifyUpcall(dat.UpcallSingleInstance, upcall, dat.InvocAny))
			for c.left.Load() > 0 {
				receive(t, "an upcall", work)
				for ev := range e.Drain() {
					c.have(ev)
				}
				ok(t, e.ModifyUpcall(dat.UpcallSingleInstance, nil, dat.InvocAny))
			}
		},
		// On for new events, then polled one final time, over and over.
		"enable and poll": func(t *testing.T, e *dat.EVD, c *census) {
			upcall := func(ev dat.Event, _ bool) { c.have(ev) }
			for c.left.Load() > 0 {
				ok(t, e.ModifyUpcall(dat.UpcallSingleInstance, upcall, dat.InvocNew))
				for ev := range e.Drain() {
					c.have(ev)
				}
				// From here on every event is an upcall's.
				before := c.left.Load()
				eventually(t, "another event", func() bool { return c.left.Load() < max(before, 1) })
				ok(t, e.ModifyUpcall(dat.UpcallDisable, nil, dat.InvocNew))
			}
		},
		// On only over an empty queue.
		"enable when empty": func(t *testing.T, e *dat.EVD, c *census) {
			upcall := func(ev dat.Event, _ bool) { c.have(ev) }
			for c.left.Load() > 0 {
				for e.ModifyUpcall(dat.UpcallMany, upcall, dat.InvocEmpty) != nil {
					for ev := range e.Drain() {
						c.have(ev)
					}
				}
				before := c.left.Load()
				eventually(t, "another event", func() bool { return c.left.Load() < max(before, 1) })
				ok(t, e.Teardown(background))
			}
		},
		// Notified, armed again and drained in the upcall.
		"notify": func(t *testing.T, e *dat.EVD, c *census) {
			ok(t, e.ModifyUpcall(dat.UpcallNotify, func(dat.Event, bool) {
				ok(t, e.ModifyUpcall(dat.UpcallNotify, nil, dat.InvocNew))
				for ev := range e.Drain() {
					c.have(ev)
				}
			}, dat.InvocAny))
			eventually(t, "every event", func() bool { return c.left.Load() <= 0 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, pairConfig{evd: dat.EVDConfig{MinLen: 16}}).connect(t)
			c := newCensus(n)
			wg := postAll(p, p.a.evd, n)
			consume(t, p.a.evd, c)
			wg.Wait()
			c.check(t)
			ok(t, p.a.evd.Teardown(background))
			empty(t, p.a.evd)
		})
	}
}

// Two EPs answer each other by upcalls alone: a lost one would stop them.
func TestPingPongByUpcalls(t *testing.T) {
	n := 8000
	if testing.Short() {
		n = 2000
	}
	for _, policy := range []dat.UpcallPolicy{dat.UpcallSingleInstance, dat.UpcallMany, dat.UpcallNotify} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			p := newPair(t, pairConfig{split: true}).connect(t)
			done := make(chan bool, 1)
			var count atomic.Int64
			for _, s := range []*side{&p.a, &p.b} {
				answer := func(ev dat.Event) {
					if ev.DTO().Status != dat.StatusSuccess {
						return // the end
					}
					ok(t, s.ep.PostRecv(1, 0, s.lmr.Triplet(0, 8)))
					if count.Add(1) == int64(n) {
						done <- true
						return
					}
					ok(t, s.ep.PostSend(2, dat.CompletionSuppress, s.lmr.Triplet(8, 8)))
				}
				ok(t, s.ep.PostRecv(1, 0, s.lmr.Triplet(0, 8)))
				ok(t, s.ep.PostRecv(1, 0, s.lmr.Triplet(0, 8)))
				ok(t, s.recv.ModifyUpcall(policy, func(ev dat.Event, _ bool) {
					if ev.Number != 0 {
						answer(ev)
						return
					}
					ok(t, s.recv.ModifyUpcall(policy, nil, dat.InvocNew))
					for ev := range s.recv.Drain() {
						answer(ev)
					}
				}, dat.InvocNew))
			}
			ok(t, p.a.ep.PostSend(2, dat.CompletionSuppress, p.a.lmr.Triplet(8, 8)))
			receive(t, "the last message", done)
		})
	}
}
