package softnic

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"kdapl/internal/fastlock"
	"kdapl/verbs"
)

// cqe is a queued completion. It is written and read in whole words, because a load that
// is wider than the store before it has to wait for the store to leave the core.
type cqe struct {
	id     uint64
	amount uint64 // length, and owner in the upper half
	tags   uint64 // immediate data, and invalidated key in the upper half
	what   uint64 // operation, status, flags from the lowest byte on; source QP in the upper half
}

// owner is what a CQ knows of a work queue that completes to it. queued counts its
// completions that were not polled: a work queue has room again when its completion was
// polled, as on an adapter, so that a CQ as long as its work queues together cannot overflow.
type owner struct {
	user   uint64
	qpn    uint32
	queued int32
	marks  int32
	gone   bool
	shared *srqShare // if the receives are an SRQ's
}

// CQ is a completion queue: a ring of plain values.
//
// Its lock, head and tail are one word, so that the store that publishes a completion also
// unlocks, and to see that the queue is empty takes one load.
type CQ struct {
	word atomic.Uint64
	turn sync.Mutex // the right to wait for the lock

	ring []cqe // a power of two long
	room int   // length of the ring, 0 once it takes nothing any more
	// loud tells, from the head on, up to where completions are queued that ArmSolicited
	// waits for.
	loud   uint32
	cap    int // a power of two
	marks  int // drained marks among the queued; they need no room of the consumer's
	armed  armState
	failed bool
	closed bool
	owners []owner
	spare  []uint32 // owners that are free

	ctx    *Context
	fed    *fedCQ // what the consumer has, if the CQ has a feed
	notify func()
	queues int // attached, under the context's object lock
}

// The parts of CQ.word: a lock bit, and positions that count on modulo 2^31.
const (
	cqLocked  = 1
	cqSpins   = 32 // looks at the lock before yielding
	cqPosBits = 31
	cqPosMask = 1<<cqPosBits - 1
)

func cqWord(head, tail uint32) uint64 {
	return uint64(head&cqPosMask)<<(cqPosBits+1) | uint64(tail&cqPosMask)<<1
}

func cqHead(w uint64) uint32 { return uint32(w >> (cqPosBits + 1)) }

func cqTail(w uint64) uint32 { return uint32(w>>1) & cqPosMask }

// tryLock takes the lock if nobody has it. The word that it returns has no lock bit.
func (c *CQ) tryLock() (w uint64, ok bool) {
	w = c.word.Load() &^ cqLocked
	return w, c.word.CompareAndSwap(w, w|cqLocked)
}

// lock takes the lock and returns the head and tail.
func (c *CQ) lock() (head, tail uint32) {
	w, ok := c.tryLock()
	if !ok {
		w = c.lockSlow()
	}
	return cqHead(w), cqTail(w)
}

func (c *CQ) lockSlow() uint64 {
	c.turn.Lock()
	defer c.turn.Unlock()
	for i := 1; ; i++ {
		if w, ok := c.tryLock(); ok {
			return w
		}
		if i%cqSpins == 0 {
			runtime.Gosched()
		}
	}
}

// unlock publishes the head and tail and releases the lock.
func (c *CQ) unlock(head, tail uint32) { fastlock.StoreRelease64(&c.word, cqWord(head, tail)) }

// count is the number of queued completions between two positions.
func count(head, tail uint32) int { return int((tail - head) & cqPosMask) }

type armState uint8

const (
	armedNot armState = iota
	armedSolicited
	armedNext
)

// The parts of cqe.what.
func packWhat(op verbs.Opcode, s verbs.Status, f verbs.CompletionFlags) uint64 {
	return uint64(op) | uint64(s)<<8 | uint64(f)<<16
}

const whatLoud = uint64(verbs.CompletionSolicited)<<16 | 0xFF<<8 // a failure or solicited

func newCQ(c *Context, cqe int, notify func()) *CQ {
	if notify == nil {
		notify = func() {}
	}
	return &CQ{ctx: c, cap: ceilPow2(cqe), notify: notify}
}

func ceilPow2(n int) int { return 1 << bits.Len(uint(n-1)) }

// attach adds a work queue.
func (c *CQ) attach(q *QP, shared *srqShare) uint32 {
	h, t := c.lock()
	defer c.unlock(h, t)
	o := owner{user: q.userData, qpn: q.num, shared: shared}
	if n := len(c.spare); n > 0 {
		i := c.spare[n-1]
		c.spare = c.spare[:n-1]
		c.owners[i] = o
		return i
	}
	c.owners = append(c.owners, o)
	return uint32(len(c.owners) - 1)
}

// detach removes a work queue; its queued completions stay.
func (c *CQ) detach(i uint32) {
	h, t := c.lock()
	defer c.unlock(h, t)
	o := &c.owners[i]
	o.gone = true
	if o.queued+o.marks == 0 {
		c.spare = append(c.spare, i)
	}
}

// queued is the number of a work queue's completions that were not polled.
func (c *CQ) queued(i uint32) uint32 {
	h, t := c.lock()
	n := c.owners[i].queued
	c.unlock(h, t)
	return uint32(n)
}

// push adds a completion of the work queue i. The caller holds l.
func (c *CQ) push(l *Lane, i uint32, id, what uint64, length uint32, tags uint64) {
	w, ok := c.tryLock() // lock would not be inlined
	if !ok {
		w = c.lockSlow()
	}
	h, t := cqHead(w), cqTail(w)
	if n := count(h, t); n >= c.room && !c.grow(l, h, t, n-c.marks >= c.cap) {
		c.unlock(h, t)
		return
	}
	e := &c.ring[t&uint32(len(c.ring)-1)]
	e.id = id
	e.amount = uint64(length) | uint64(i)<<32
	e.tags = tags
	e.what = what
	c.owners[i].queued++
	t++
	if what&whatLoud != 0 {
		c.loud = uint32(count(h, t))
		if c.armed != armedNot {
			c.armed = armedNot
			l.notify(c)
		}
	} else if c.armed == armedNext {
		c.armed = armedNot
		l.notify(c)
	}
	c.unlock(h, t)
}

// mark adds the drained mark of the work queue i. The caller holds l.
func (c *CQ) mark(l *Lane, i uint32, f verbs.CompletionFlags) {
	h, t := c.lock()
	if count(h, t) >= c.room && !c.grow(l, h, t, c.marks > c.ctx.attr.MaxCQE) {
		c.unlock(h, t)
		return
	}
	c.marks++
	c.ring[t&uint32(len(c.ring)-1)] = cqe{amount: uint64(i) << 32, what: packWhat(verbs.OpDrained, verbs.StatusSuccess, f)}
	c.owners[i].marks++
	t++
	c.loud = uint32(count(h, t))
	if c.armed != armedNot {
		c.armed = armedNot
		l.notify(c)
	}
	c.unlock(h, t)
}

// grow makes room for one more completion, or, if the CQ is full, fails it.
func (c *CQ) grow(l *Lane, h, t uint32, full bool) bool {
	if c.failed || c.closed {
		return false
	}
	if full {
		// What is there can be polled; nothing comes behind what is lost.
		c.failed, c.room = true, 0
		l.later(deed{kind: deedCQError, cq: c})
		return false
	}
	n := count(h, t)
	ring := make([]cqe, max(min(16, c.cap), ceilPow2(n+1)))
	for i := range uint32(n) {
		ring[(h+i)&uint32(len(ring)-1)] = c.ring[(h+i)&uint32(len(c.ring)-1)]
	}
	c.ring, c.room = ring, len(ring)
	return true
}

// Poll implements [verbs.CQ].
func (c *CQ) Poll(dst []verbs.Completion) int {
	if w := c.word.Load(); cqHead(w) == cqTail(w) {
		return 0
	}
	w, ok := c.tryLock() // lock would not be inlined
	if !ok {
		w = c.lockSlow()
	}
	h, t := cqHead(w), cqTail(w)
	n := min(len(dst), count(h, t))
	for k := range dst[:n] {
		e := &c.ring[h&uint32(len(c.ring)-1)]
		h++
		amount, tags, what := e.amount, e.tags, e.what
		o := &c.owners[amount>>32]
		d := &dst[k]
		d.ID = e.id
		d.UserData = o.user
		d.Length = uint32(amount)
		d.QPN = o.qpn
		d.Imm = uint32(tags)
		d.InvKey = uint32(tags >> 32)
		d.SrcQPN = uint32(what >> 32)
		d.Op = verbs.Opcode(what)
		d.Status = verbs.Status(what >> 8)
		d.Flags = verbs.CompletionFlags(what >> 16)
		if d.Op == verbs.OpDrained {
			o.marks--
			c.marks--
		} else {
			o.queued--
			if o.shared != nil {
				o.shared.polled++
			}
		}
		if o.gone && o.queued+o.marks == 0 {
			c.spare = append(c.spare, uint32(amount>>32))
		}
	}
	c.loud -= min(c.loud, uint32(n))
	c.unlock(h, t)
	return n
}

// Arm implements [verbs.CQ].
func (c *CQ) Arm(kind verbs.ArmKind) (ready bool) {
	h, t := c.lock()
	switch {
	case kind == verbs.ArmSolicited && c.ctx.attr.Can(verbs.CapSolicited):
		if ready = c.loud > 0; !ready {
			c.armed = max(c.armed, armedSolicited)
		}
	default:
		if ready = h != t; !ready {
			c.armed = armedNext
		}
	}
	c.unlock(h, t)
	return ready
}

// Peek implements [verbs.Peeker].
func (c *CQ) Peek(max int) int {
	w := c.word.Load()
	return min(max, count(cqHead(w), cqTail(w)))
}

// Serial is a word that changes with each completion that is queued, for consumers that look without a call.
func (c *CQ) Serial() *atomic.Uint64 { return &c.word }

// Cap implements [verbs.CQ].
func (c *CQ) Cap() int {
	h, t := c.lock()
	defer c.unlock(h, t)
	return c.cap
}

// Resize implements [verbs.CQ].
func (c *CQ) Resize(cqe int) error {
	h, t := c.lock()
	defer c.unlock(h, t)
	switch {
	case c.closed:
		return verbs.ErrClosed
	case cqe < 1 || cqe > c.ctx.attr.MaxCQE:
		return verbs.ErrInvalid
	case ceilPow2(cqe) < count(h, t)-c.marks:
		return verbs.ErrBusy
	}
	c.cap = ceilPow2(cqe)
	return nil
}

// Destroy implements [verbs.CQ].
func (c *CQ) Destroy() error { return c.ctx.destroyCQ(c, false) }

// shut makes a destroyed CQ empty.
func (c *CQ) shut() {
	_, t := c.lock()
	c.closed, c.armed, c.ring, c.room, c.loud, c.marks = true, armedNot, nil, 0, 0, 0
	c.unlock(t, t)
}
