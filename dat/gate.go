package dat

import (
	"kdapl/internal/fastlock"
	"kdapl/verbs"
)

// gate is the way of common posts into one of a QP's queues, under the lock that the device takes for a
// post anyway (verbs.Serial): what dat keeps about the post is under the same one.
//
// Whoever needs more than a post, above all the lock of an EVD, which must not be taken with the device's held, takes
// dtoQueue.mu and shuts the gate; posts that find it shut queue for mu.
type gate struct {
	qp   verbs.Serial
	recv bool
}

func (g *gate) lock() {
	if g.recv {
		g.qp.LockRecvQueue()
	} else {
		g.qp.LockSendQueue()
	}
}

func (g *gate) unlock() {
	if g.recv {
		g.qp.UnlockRecvQueue()
	} else {
		g.qp.UnlockSendQueue()
	}
}

// enter locks the queue for a common post, and returns nil if that must be done with lock.
func (q *dtoQueue) enter() *gate {
	for {
		g := q.gate.Load()
		if g == nil {
			return nil
		}
		g.lock()
		if q.open(g) {
			return g
		}
		again := q.gate.Load() != g // the EP has another QP now
		g.unlock()
		if !again {
			return nil
		}
	}
}

// open reports that a common post may go on under the lock of g, which the caller holds.
func (q *dtoQueue) open(g *gate) bool { return q.gate.Load() == g && !q.shut && !q.dead }

// lock locks the queue for everything.
func (q *dtoQueue) lock() {
	q.mu.Lock()
	q.setShut(true)
}

func (q *dtoQueue) unlock() {
	q.setShut(false)
	q.mu.Unlock()
}

func (q *dtoQueue) setShut(shut bool) {
	if g := q.gate.Load(); g != nil {
		g.lock()
		q.shut = shut
		g.unlock()
	}
}

// setGate makes the gate that of another QP, or of none. The queue is locked.
func (q *dtoQueue) setGate(qp verbs.QP, recv bool) {
	if qp == nil {
		q.gate.Store(nil)
		return
	}
	s, ok := qp.(verbs.Serial)
	if !ok {
		s = &serialQP{QP: qp}
	}
	if q.gate.Load() == nil {
		q.shut = true // as that of another QP is already
	}
	q.gate.Store(&gate{s, recv})
}

// serialQP is verbs.Serial for QPs that lack it.
type serialQP struct {
	verbs.QP
	mu fastlock.Mutex
}

func (s *serialQP) LockSendQueue()                               { s.mu.Lock() }
func (s *serialQP) UnlockSendQueue()                             { s.mu.Unlock() }
func (s *serialQP) LockRecvQueue()                               { s.mu.Lock() }
func (s *serialQP) UnlockRecvQueue()                             { s.mu.Unlock() }
func (s *serialQP) PostSendLocked(w []verbs.SendWR) (int, error) { return s.PostSend(w) }
func (s *serialQP) PostRecvLocked(w []verbs.RecvWR) (int, error) { return s.PostRecv(w) }
