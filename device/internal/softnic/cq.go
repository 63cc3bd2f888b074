package softnic

import (
	"math/bits"

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
}

// CQ is a completion queue: a ring of plain values under a lock.
type CQ struct {
	mu         lock
	ring       []cqe // a power of two long
	head, tail uint64
	// loud is the tail behind the newest completion that ArmSolicited waits for.
	loud   uint64
	cap    int // a power of two
	marks  int // drained marks among the queued; they need no room of the consumer's
	armed  armState
	failed bool
	closed bool
	owners []owner
	spare  []uint32 // owners that are free

	ctx    *Context
	notify func()
	queues int // attached, under the context's object lock
}

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
func (c *CQ) attach(q *QP) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := owner{user: q.userData, qpn: q.num}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	o := &c.owners[i]
	o.gone = true
	if o.queued+o.marks == 0 {
		c.spare = append(c.spare, i)
	}
}

// queued is the number of a work queue's completions that were not polled.
func (c *CQ) queued(i uint32) uint32 {
	c.mu.Lock()
	n := c.owners[i].queued
	c.mu.Unlock()
	return uint32(n)
}

// push adds a completion of the work queue i. The caller holds l.
func (c *CQ) push(l *Lane, i uint32, id, what uint64, length uint32, tags uint64) {
	c.mu.Lock()
	if c.tail-c.head >= uint64(len(c.ring)) && !c.grow(l) {
		c.mu.Unlock()
		return
	}
	e := &c.ring[c.tail&uint64(len(c.ring)-1)]
	e.id = id
	e.amount = uint64(length) | uint64(i)<<32
	e.tags = tags
	e.what = what
	c.owners[i].queued++
	c.tail++
	if what&whatLoud != 0 {
		c.loud = c.tail
		if c.armed != armedNot {
			c.armed = armedNot
			l.notify(c)
		}
	} else if c.armed == armedNext {
		c.armed = armedNot
		l.notify(c)
	}
	c.mu.Unlock()
}

// mark adds the drained mark of the work queue i. The caller holds l.
func (c *CQ) mark(l *Lane, i uint32, f verbs.CompletionFlags) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marks++
	if c.tail-c.head >= uint64(len(c.ring)) && !c.grow(l) {
		c.marks--
		return
	}
	c.ring[c.tail&uint64(len(c.ring)-1)] = cqe{amount: uint64(i) << 32, what: packWhat(verbs.OpDrained, verbs.StatusSuccess, f)}
	c.owners[i].marks++
	c.tail++
	c.loud = c.tail
	if c.armed != armedNot {
		c.armed = armedNot
		l.notify(c)
	}
}

// grow makes room for one more completion, or fails the CQ.
func (c *CQ) grow(l *Lane) bool {
	if c.failed || c.closed {
		return false
	}
	n := int(c.tail - c.head)
	if n-c.marks >= c.cap || c.marks > c.ctx.attr.MaxCQE {
		c.failed = true
		l.later(deed{kind: deedCQError, cq: c})
		return false
	}
	ring := make([]cqe, max(16, ceilPow2(n+1)))
	for i := c.head; i != c.tail; i++ {
		ring[i&uint64(len(ring)-1)] = c.ring[i&uint64(len(c.ring)-1)]
	}
	c.ring = ring
	return true
}

// Poll implements [verbs.CQ].
func (c *CQ) Poll(dst []verbs.Completion) int {
	c.mu.Lock()
	h := c.head
	n := int(min(uint64(len(dst)), c.tail-h))
	for k := range dst[:n] {
		e := &c.ring[h&uint64(len(c.ring)-1)]
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
		h++
		if d.Op == verbs.OpDrained {
			o.marks--
			c.marks--
		} else {
			o.queued--
		}
		if o.gone && o.queued+o.marks == 0 {
			c.spare = append(c.spare, uint32(amount>>32))
		}
	}
	c.head = h
	c.mu.Unlock()
	return n
}

// Arm implements [verbs.CQ].
func (c *CQ) Arm(kind verbs.ArmKind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind == verbs.ArmSolicited && c.ctx.attr.Can(verbs.CapSolicited) {
		if c.loud > c.head {
			return true
		}
		c.armed = max(c.armed, armedSolicited)
		return false
	}
	if c.tail != c.head {
		return true
	}
	c.armed = armedNext
	return false
}

// Peek implements [verbs.Peeker].
func (c *CQ) Peek(max int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(max, int(c.tail-c.head))
}

// Cap implements [verbs.CQ].
func (c *CQ) Cap() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cap
}

// Resize implements [verbs.CQ].
func (c *CQ) Resize(cqe int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return verbs.ErrClosed
	case cqe < 1 || cqe > c.ctx.attr.MaxCQE:
		return verbs.ErrInvalid
	case ceilPow2(cqe) < int(c.tail-c.head)-c.marks:
		return verbs.ErrBusy
	}
	c.cap = ceilPow2(cqe)
	return nil
}

// Destroy implements [verbs.CQ].
func (c *CQ) Destroy() error { return c.ctx.destroyCQ(c, false) }
