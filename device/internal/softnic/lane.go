package softnic

import (
	"sync/atomic"

	"kdapl/internal/fastlock"
)

// A Lane is the lock under which one direction of a connection moves: the sender's
// send queue and, once connected in one process, the receiver's receive queue. All
// access to registered memory happens with a lane held; so to take a lane is to wait
// for the copies in progress under it.
//
// No goroutine holds two lanes, but for a datagram's receive side, which is taken inside
// of the sender's. Inside of a lane come, in this order, the lane of an SRQ, the lock
// of a CQ and the context's memory lock.
//
// What must not happen under a lock, notifications and what follows from a fault, is
// noted in the lane and runs after it is released.
type Lane struct {
	mu fastlock.Mutex
	// paused is set while the holder waits for other lanes' copies, and so copies nothing.
	paused atomic.Bool
	dirty  bool
	work   batch
	lists  *[2][][]byte // room for memory in more than one piece
}

// The two sides of a copy, each with a list.
const (
	ours = iota
	peers
)

// list is where a side's pieces are kept.
func (l *Lane) list(side int) *[][]byte {
	if l.lists == nil {
		l.lists = new([2][][]byte)
	}
	return &l.lists[side]
}

// deed is something to do after the lock is released.
type deed struct {
	kind deedKind
	qp   *QP
	link Link
	srq  *SRQ
	cq   *CQ
	err  error
}

type deedKind uint8

const (
	deedNotify     deedKind = iota // a CQ that was armed has a completion
	deedFail                       // the QP has failed: end its connection
	deedDrained                    // the last request before a graceful end is done
	deedFeed                       // an SRQ has receives for QPs that wait
	deedCQError                    // a CQ overflowed
	deedSRQLow                     // an SRQ fell below its limit
	deedAskDropped                 // a question of a UD QP has ended with it
)

// batch collects what runs after the last unlock. Two notifications, as of one message, need no
// allocation.
type batch struct {
	cqs   [2]*CQ
	deeds []deed
}

func (b *batch) notify(c *CQ) {
	for i := range b.cqs {
		if b.cqs[i] == nil {
			b.cqs[i] = c
			return
		}
	}
	b.deeds = append(b.deeds, deed{kind: deedNotify, cq: c})
}

func (b *batch) add(from *batch) {
	for _, c := range from.cqs {
		if c != nil {
			b.notify(c)
		}
	}
	b.deeds = append(b.deeds, from.deeds...)
	*from = batch{}
}

func (b *batch) run() {
	for _, c := range b.cqs {
		if c != nil {
			c.notify()
		}
	}
	for _, d := range b.deeds {
		d.do()
	}
}

func (d *deed) do() {
	switch d.kind {
	case deedNotify:
		d.cq.notify()
	case deedFail:
		d.qp.fail(d.link, d.err)
	case deedDrained:
		d.qp.drained()
	case deedFeed:
		d.srq.feed()
	case deedCQError:
		d.cq.ctx.cqFailed(d.cq)
	case deedSRQLow:
		d.srq.low()
	case deedAskDropped:
		d.qp.askDropped(d.link)
	}
}

// Lock takes the lane.
func (l *Lane) Lock() { l.mu.Lock() }

// Unlock releases the lane and then does what was noted while it was held. The caller holds no
// other lock.
func (l *Lane) Unlock() {
	if l.dirty {
		l.unlockDirty()
		return
	}
	l.mu.Unlock()
}

func (l *Lane) unlockDirty() {
	b := l.work
	l.work, l.dirty = batch{}, false
	l.mu.Unlock()
	b.run()
}

// unlockTo releases the lane, with the caller to do later what was noted.
func (l *Lane) unlockTo(b *batch) {
	if l.dirty {
		b.add(&l.work)
		l.dirty = false
	}
	l.mu.Unlock()
}

func (l *Lane) notify(c *CQ) {
	l.dirty = true
	l.work.notify(c)
}

func (l *Lane) later(d deed) {
	l.dirty = true
	l.work.deeds = append(l.work.deeds, d)
}

// waitFor returns when every copy that was in progress under other at the call is over. The
// caller holds l, or no lane (nil), and copies nothing meanwhile.
//
// It must not simply take the other lane: two holders may wait for each other's. So one that waits
// counts as idle.
func (l *Lane) waitFor(other *Lane) {
	for other != l && !other.paused.Load() {
		if other.mu.TryLock() {
			other.mu.Unlock()
			return
		}
		other.mu.Yield()
	}
}

// longCopy is the length from which a copy takes longer than to put a waiter to sleep.
const longCopy = 64 << 10

// copy is CopyVec for a message of n bytes.
func (l *Lane) copy(dst, src Vec, n uint32) {
	if n < longCopy {
		CopyVec(dst, src)
		return
	}
	l.mu.Stay()
	CopyVec(dst, src)
	l.mu.Move()
}
