package softnic

import (
	"sync/atomic"

	"kdapl/verbs"
)

// SRQ is a shared receive queue.
type SRQ struct {
	ctx      *Context
	pd       *PD
	userData uint64
	qps      int // attached, under the context's object lock

	// The rest is under lane.
	lane    Lane
	rq      recvQueue
	sinks   lastKey
	limit   int
	closed  bool
	waiters []*QP // QPs whose peers wait for a receive, oldest first
	shares  []*srqShare
	out     uint32 // receives that were taken and whose completions may not have been polled
}

// srqShare is what an SRQ and one of the CQs know of each other: an SRQ has room again when
// a completion was polled, like any work queue.
type srqShare struct {
	cq     *CQ
	taken  uint32        // under the SRQ's lane
	polled atomic.Uint32 // written by the CQ's poller
}

// srqDraw is what a QP of an SRQ has beside.
type srqDraw struct {
	share   *srqShare   // with the QP's receive CQ
	taken   []verbs.SGE // segments of the receive that was taken last
	waiting bool        // among the waiters; under the SRQ's lane
}

// share finds or makes the share of a CQ.
func (s *SRQ) share(c *CQ) *srqShare {
	s.lane.Lock()
	defer s.lane.Unlock()
	for _, sh := range s.shares {
		if sh.cq == c {
			return sh
		}
	}
	sh := &srqShare{cq: c}
	s.shares = append(s.shares, sh)
	return sh
}

// recount asks the CQs how many completions are still there. The caller holds the SRQ's lane.
func (s *SRQ) recount() {
	s.out = 0
	kept := s.shares[:0]
	for _, sh := range s.shares {
		t := sh.cq.lock()
		closed := sh.cq.closed
		sh.cq.unlock(t)
		if !closed {
			kept = append(kept, sh)
			s.out += sh.taken - sh.polled.Load()
		}
	}
	clear(s.shares[len(kept):])
	s.shares = kept
}

// PostRecv implements [verbs.SRQ].
func (s *SRQ) PostRecv(wrs []verbs.RecvWR) (int, error) {
	l := &s.lane
	l.Lock()
	n, err := 0, error(nil)
	for n < len(wrs) {
		if err = s.post(&wrs[n]); err != nil {
			break
		}
		n++
	}
	wake := len(s.waiters) > 0
	l.Unlock()
	if wake {
		s.feed()
	}
	return n, err
}

func (s *SRQ) post(wr *verbs.RecvWR) error {
	switch {
	case s.closed:
		return verbs.ErrClosed
	case wr.NumSGE > s.rq.maxSGE:
		return verbs.ErrInvalid
	case s.rq.count()+s.out >= s.rq.depth:
		if s.recount(); s.rq.count()+s.out >= s.rq.depth {
			return verbs.ErrQueueFull
		}
	}
	if v := s.pd.checkRecv(&s.lane, &s.sinks, wr.SGE[:wr.NumSGE]); v != Accepted {
		return v.postError()
	}
	s.rq.add(wr)
	return nil
}

// take removes the oldest receive for q, or notes that q waits for one. One with room for less
// than n bytes stays. The caller holds l.
func (s *SRQ) take(l *Lane, q *QP, n uint64) (r receive, ok bool) {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	d := q.draw
	if s.rq.count() == 0 {
		if !d.waiting {
			d.waiting = true
			s.waiters = append(s.waiters, q)
		}
		return r, false
	}
	id, sg := s.rq.first()
	if room(sg) < n {
		return r, false
	}
	if d.taken == nil {
		d.taken = make([]verbs.SGE, s.rq.maxSGE)
	}
	r = receive{id: id, sg: d.taken[:copy(d.taken, sg)]}
	s.rq.head++
	s.out++
	d.share.taken++
	if int(s.rq.count()) < s.limit {
		s.limit = 0
		l.later(deed{kind: deedSRQLow, srq: s})
	}
	return r, true
}

// leave forgets that q waits.
func (s *SRQ) leave(q *QP) {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	if !q.draw.waiting {
		return
	}
	q.draw.waiting = false
	for i, w := range s.waiters {
		if w == q {
			s.waiters = append(s.waiters[:i], s.waiters[i+1:]...)
			return
		}
	}
}

// feed lets the QPs that wait go on, the longest waiting first, as long as there are receives.
func (s *SRQ) feed() {
	for {
		s.lane.mu.Lock()
		if len(s.waiters) == 0 || s.rq.count() == 0 {
			s.lane.mu.Unlock()
			return
		}
		q := s.waiters[0]
		s.waiters = append(s.waiters[:0], s.waiters[1:]...)
		q.draw.waiting = false
		s.lane.mu.Unlock()
		l := q.LockRecv()
		q.wire.RecvReady(l)
		l.Unlock()
	}
}

func (s *SRQ) low() {
	s.ctx.async.Post(verbs.AsyncEvent{Kind: verbs.AsyncSRQLimit, UserData: s.userData})
}

// SetLimit implements [verbs.SRQ].
func (s *SRQ) SetLimit(limit int) error {
	if !s.ctx.attr.Can(verbs.CapSRQLimit) {
		return verbs.ErrNotSupported
	}
	s.lane.Lock()
	defer s.lane.Unlock()
	switch {
	case s.closed:
		return verbs.ErrClosed
	case limit < 0 || limit > int(s.rq.depth):
		return verbs.ErrInvalid
	}
	s.limit = limit
	if int(s.rq.count()) < limit {
		s.limit = 0
		s.lane.later(deed{kind: deedSRQLow, srq: s})
	}
	return nil
}

// Resize implements [verbs.SRQ].
func (s *SRQ) Resize(maxWR int) error {
	if !s.ctx.attr.Can(verbs.CapSRQResize) {
		return verbs.ErrNotSupported
	}
	s.lane.Lock()
	defer s.lane.Unlock()
	s.recount()
	switch {
	case s.closed:
		return verbs.ErrClosed
	case maxWR < 1 || maxWR > s.ctx.attr.MaxSRQWR:
		return verbs.ErrInvalid
	case maxWR < int(s.rq.count()+s.out) || maxWR < s.limit:
		return verbs.ErrBusy
	}
	s.rq.resize(uint32(maxWR))
	return nil
}

// Available implements [verbs.SRQ].
func (s *SRQ) Available() int {
	s.lane.Lock()
	defer s.lane.Unlock()
	return int(s.rq.count())
}

// Destroy implements [verbs.SRQ].
func (s *SRQ) Destroy() error { return s.ctx.destroySRQ(s, false) }
