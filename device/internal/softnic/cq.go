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

// owner is what a CQ knows of a work queue that completes to it. The queue counts what it has pushed, and the poller what was
// polled: a work queue has room again when its completion was polled, as on an adapter, so that a CQ as long as its
// work queues together cannot overflow.
type owner struct {
	user   uint64
	qpn    uint32
	polled atomic.Uint32 // completions; written by the poller
	marks  atomic.Uint32 // drained marks; likewise
	shared *srqShare     // if the receives are an SRQ's

	pushedMarks uint32 // under the lock
	pushed      uint32 // of a queue that is gone: what it has pushed in all
}

// idle reports that no completion of a queue that is gone is left.
func (o *owner) idle() bool {
	return o.polled.Load() == o.pushed && o.marks.Load() == o.pushedMarks
}

// CQ is a completion queue: a ring of plain values, written under a lock and read by one poller without.
//
// The lock and the tail are one word, so that the store that publishes a completion also unlocks. The poller publishes the
// head behind what it has read, and only then counts the completions as polled: who sees that there is
// room in a work queue sees the room in the ring.
type CQ struct {
	word  atomic.Uint64 // bit 0 is the lock; above, the position behind the last completion
	turn  sync.Mutex    // the right to wait for the lock
	head  atomic.Uint64 // the position of the next one to poll; written by the poller
	polls fastlock.Mutex

	// ring is nil before the first completion, and once the CQ is closed. It changes under the lock; a new one has what
	// an old one had that was not polled, so the poller may still read an old one.
	ring atomic.Pointer[[]cqe]
	// owners are the work queues, by number. The list changes under the lock.
	owners      atomic.Pointer[[]atomic.Pointer[owner]]
	polledMarks atomic.Uint64 // drained marks; written by the poller

	// The rest is under the lock.

	slots  []cqe  // the ring
	free   uint64 // the position up to which it is known to have room; 0 once the CQ takes nothing any more
	loud   uint64 // the position behind the last completion that ArmSolicited waits for
	cap    int    // a power of two
	marks  uint64 // drained marks that were pushed; they need no room of the consumer's
	armed  armState
	failed bool // it takes nothing any more
	closed bool
	left   []uint32 // owners whose queues are gone

	ctx    *Context
	fed    *fedCQ // what the consumer has, if the CQ has a feed
	notify func()
	queues int // attached, under the context's object lock
}

const (
	cqLocked = 1
	cqSpins  = 32 // looks at the lock before yielding
)

// tryLock takes the lock if nobody has it, and returns the tail.
func (c *CQ) tryLock() (tail uint64, ok bool) {
	w := c.word.Load() &^ cqLocked
	return w >> 1, c.word.CompareAndSwap(w, w|cqLocked)
}

// lock takes the lock and returns the tail.
func (c *CQ) lock() (tail uint64) {
	t, ok := c.tryLock()
	if !ok {
		t = c.lockSlow()
	}
	return t
}

func (c *CQ) lockSlow() (tail uint64) {
	c.turn.Lock()
	defer c.turn.Unlock()
	for i := 1; ; i++ {
		if t, ok := c.tryLock(); ok {
			return t
		}
		if i%cqSpins == 0 {
			runtime.Gosched()
		}
	}
}

// unlock publishes the tail and releases the lock.
func (c *CQ) unlock(tail uint64) { fastlock.StoreRelease64(&c.word, tail<<1) }

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

// attach adds a work queue, and returns its number and what the CQ knows of it.
func (c *CQ) attach(q *QP, shared *srqShare) (uint32, *owner) {
	t := c.lock()
	defer c.unlock(t)
	o := &owner{user: q.userData, qpn: q.num, shared: shared}
	var all []atomic.Pointer[owner]
	if p := c.owners.Load(); p != nil {
		all = *p
	}
	for k, i := range c.left {
		if all[i].Load().idle() {
			c.left = append(c.left[:k], c.left[k+1:]...)
			all[i].Store(o)
			return i, o
		}
	}
	n := uint32(len(all))
	if len(all) == cap(all) {
		grown := make([]atomic.Pointer[owner], n, max(1, 2*n))
		for i := range all {
			grown[i].Store(all[i].Load())
		}
		all = grown
	}
	all = all[:n+1] // nobody reads beyond the length of the list that he has
	all[n].Store(o)
	c.owners.Store(&all)
	return n, o
}

// detach removes a work queue that has pushed a number of completions; those that are queued stay.
func (c *CQ) detach(i, pushed uint32) {
	t := c.lock()
	defer c.unlock(t)
	(*c.owners.Load())[i].Load().pushed = pushed
	c.left = append(c.left, i)
}

// push adds a completion of the work queue i. The caller holds l.
func (c *CQ) push(l *Lane, i uint32, id, what uint64, length uint32, tags uint64) {
	t, ok := c.tryLock() // lock would not be inlined
	if !ok {
		t = c.lockSlow()
	}
	if t >= c.free && !c.grow(l, t, false) {
		c.unlock(t)
		return
	}
	e := &c.slots[t&uint64(len(c.slots)-1)]
	e.id = id
	e.amount = uint64(length) | uint64(i)<<32
	e.tags = tags
	e.what = what
	t++
	if c.armed != armedNot || what&whatLoud != 0 {
		c.notice(l, t, what&whatLoud != 0)
	}
	c.unlock(t)
}

// notice notes where a completion ends that ArmSolicited waits for, and notifies if the CQ is armed for it.
func (c *CQ) notice(l *Lane, tail uint64, loud bool) {
	if loud {
		c.loud = tail
	}
	if c.armed == armedNext || loud && c.armed == armedSolicited {
		c.armed = armedNot
		l.notify(c)
	}
}

// mark adds the drained mark of the work queue i. The caller holds l.
func (c *CQ) mark(l *Lane, i uint32, f verbs.CompletionFlags) {
	t := c.lock()
	if t >= c.free && !c.grow(l, t, true) {
		c.unlock(t)
		return
	}
	c.marks++
	c.slots[t&uint64(len(c.slots)-1)] = cqe{amount: uint64(i) << 32, what: packWhat(verbs.OpDrained, verbs.StatusSuccess, f)}
	(*c.owners.Load())[i].Load().pushedMarks++
	c.notice(l, t+1, true)
	c.unlock(t + 1)
}

// grow looks for room for the completion at the tail, makes some, or, if the CQ is full, fails it. The caller holds the lock.
func (c *CQ) grow(l *Lane, t uint64, mark bool) bool {
	if c.failed || c.closed {
		return false
	}
	marks := c.marks - c.polledMarks.Load() // before the head: then they are none too few, and it is not full too early
	h := c.head.Load()
	full := int(t-h)-int(marks) >= c.cap
	if mark {
		full = int(marks) > c.ctx.attr.MaxCQE
	}
	if full {
		// What is there can be polled; nothing comes behind what is lost.
		c.failed, c.free = true, 0
		l.later(deed{kind: deedCQError, cq: c})
		return false
	}
	if int(t-h) == len(c.slots) {
		ring := make([]cqe, max(min(16, c.cap), 2*len(c.slots)))
		for i := h; i != t; i++ {
			ring[i&uint64(len(ring)-1)] = c.slots[i&uint64(len(c.slots)-1)]
		}
		c.slots = ring
		c.ring.Store(&ring)
	}
	// No further than the consumer's room, which is looked at again then.
	c.free = h + min(uint64(len(c.slots)), uint64(c.cap)+marks)
	return true
}

// Poll implements [verbs.CQ].
func (c *CQ) Poll(dst []verbs.Completion) int {
	if c.word.Load()>>1 == c.head.Load() {
		return 0
	}
	c.polls.Lock()
	n := c.PollAlone(dst)
	c.polls.Unlock()
	return n
}

// PollAlone implements [verbs.SinglePoller].
func (c *CQ) PollAlone(dst []verbs.Completion) int {
	h := c.head.Load()
	n := min(len(dst), int(c.word.Load()>>1-h))
	if n <= 0 {
		return 0
	}
	p := c.ring.Load()
	if p == nil {
		return 0
	}
	ring, owners := *p, *c.owners.Load()
	for k := range dst[:n] {
		e := &ring[h&uint64(len(ring)-1)]
		h++
		amount, tags, what := e.amount, e.tags, e.what
		o := owners[amount>>32].Load()
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
		fastlock.StoreRelease64(&c.head, h)
		if d.Op == verbs.OpDrained {
			fastlock.StoreRelease64(&c.polledMarks, c.polledMarks.Load()+1)
			fastlock.StoreRelease32(&o.marks, o.marks.Load()+1)
			continue
		}
		if o.shared != nil {
			fastlock.StoreRelease32(&o.shared.polled, o.shared.polled.Load()+1)
		}
		fastlock.StoreRelease32(&o.polled, o.polled.Load()+1)
	}
	return n
}

// Arm implements [verbs.CQ].
func (c *CQ) Arm(kind verbs.ArmKind) (ready bool) {
	t := c.lock()
	h := c.head.Load()
	switch {
	case c.closed:
	case kind == verbs.ArmSolicited && c.ctx.attr.Can(verbs.CapSolicited):
		if ready = c.loud > h; !ready {
			c.armed = max(c.armed, armedSolicited)
		}
	default:
		if ready = h != t; !ready {
			c.armed = armedNext
		}
	}
	c.unlock(t)
	return ready
}

// Peek implements [verbs.Peeker].
func (c *CQ) Peek(max int) int {
	h := c.head.Load() // before the tail, which is never behind it then
	n := min(max, int(c.word.Load()>>1-h))
	if c.ring.Load() == nil {
		return 0
	}
	return n
}

// Serial is a word that changes with each completion that is queued, for consumers that look without a call.
func (c *CQ) Serial() *atomic.Uint64 { return &c.word }

// Cap implements [verbs.CQ].
func (c *CQ) Cap() int {
	t := c.lock()
	defer c.unlock(t)
	return c.cap
}

// Resize implements [verbs.CQ].
func (c *CQ) Resize(cqe int) error {
	t := c.lock()
	defer c.unlock(t)
	marks := c.marks - c.polledMarks.Load()
	h := c.head.Load()
	switch {
	case c.closed:
		return verbs.ErrClosed
	case cqe < 1 || cqe > c.ctx.attr.MaxCQE:
		return verbs.ErrInvalid
	case ceilPow2(cqe) < int(t-h)-int(marks):
		return verbs.ErrBusy
	}
	c.cap, c.free = ceilPow2(cqe), 0 // room is looked for anew
	return nil
}

// Destroy implements [verbs.CQ].
func (c *CQ) Destroy() error { return c.ctx.destroyCQ(c, false) }

// shut makes a destroyed CQ empty.
func (c *CQ) shut() {
	t := c.lock()
	c.closed, c.armed, c.slots, c.free = true, armedNot, nil, 0
	c.ring.Store(nil)
	c.unlock(t)
}
