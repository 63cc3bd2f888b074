package dat

import (
	"kdapl/internal/evring"
	"kdapl/internal/explore"
	"kdapl/internal/fastlock"
	"kdapl/verbs"
)

// pollInto takes completions straight from the CQ to a dequeuer who found the ring empty, in the common case: nobody
// is to be notified, and nothing about the completions is special. empty reports that there are none; without that, 0 says
// nothing.
func (e *EVD) pollInto(dst []Event) (got int, empty bool) {
	r := e.ring.Load()
	tail, ok := r.TryLock()
	if !ok {
		return 0, false
	}
	if !r.Empty(tail) || !e.quiet || e.waiter.owned || e.freed.Load() { // Empty: the lock is the EVD's
		r.Release(tail)
		return 0, false
	}
	if explore.On {
		explore.At(explore.Refill)
	}
	n := e.poller.PollAlone(e.scratch[:min(len(dst), len(e.scratch))])
	for ; got < n; got++ {
		if !e.plain(&dst[got], &e.scratch[got]) {
			return e.pollRest(r, dst, e.scratch[:n], got), false
		}
	}
	e.counters.direct += uint64(got)
	if e.foreign != nil {
		e.share() // the CQ may be known to be empty now
	}
	r.Release(tail)
	return got, n == 0
}

// pollRest goes on for pollInto with the first completion that is special. The EVD is locked; it is unlocked afterwards.
func (e *EVD) pollRest(r *evring.Ring, dst []Event, polled []verbs.Completion, got int) int {
	a := after{ring: r, got: got}
	for i := range polled[got:] {
		e.complete(&a, dst, &polled[got+i])
	}
	e.end(&a)
	return a.got
}

// plain is complete for the success of a request about which nothing is special, and does nothing for
// others. The event goes to a dequeuer.
func (e *EVD) plain(ev *Event, c *verbs.Completion) bool {
	b := e.ia.objects.lookup(ref(c.UserData))
	if b == nil || c.Status != verbs.StatusSuccess || c.Flags&^(verbs.CompletionRecvQueue|verbs.CompletionSolicited) != 0 || c.Op == verbs.OpDrained {
		return false
	}
	ep := b.self.(*EP)
	q := &ep.request
	if c.Flags&verbs.CompletionRecvQueue != 0 {
		q = &ep.recv
	}
	i := c.ID & uint64(len(q.rec)-1)
	if q.holding || q.discard || i >= uint64(len(q.rec)) { // an SRQ has the records of its receives
		return false
	}
	rec := &q.rec[i]
	if rec.done != 0 || rec.flags != 0 || rec.op > OpReceive { // the first four are the plain ones
		return false
	}
	q.counters.Succeeded++
	q.counters.Bytes += uint64(c.Length)
	ev.fill(e, uint64(DTOCompletion)|uint64(rec.op)<<32, uint64(b.ref), rec.cookie, uint64(c.Length), 0)
	ev.obj = b.self
	rec.done = doneWithoutEvent
	// A queue completes in order, and with an empty ring and nothing held back, all earlier events are taken.
	fastlock.StoreRelease64(&q.passed, c.ID+1)
	return true
}
