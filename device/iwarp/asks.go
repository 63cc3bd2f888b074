package iwarp

import (
	"encoding/binary"

	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/verbs"
)

// ring is a queue of few entries that keeps its memory.
type ring[T any] struct {
	e          []T
	head, tail uint32
}

func (r *ring[T]) count() int { return int(r.tail - r.head) }

func (r *ring[T]) at(i uint32) *T { return &r.e[i&uint32(len(r.e)-1)] }

func (r *ring[T]) push() *T {
	if int(r.tail-r.head) == len(r.e) {
		n := make([]T, max(4, 2*len(r.e)))
		for i := r.head; i != r.tail; i++ {
			n[i&uint32(len(n)-1)] = *r.at(i)
		}
		r.e = n
	}
	r.tail++
	return r.at(r.tail - 1)
}

func (r *ring[T]) pop() { r.head++ }

// asked is a read or an atomic operation under way.
type asked struct {
	sink   rdmap.ReadSink
	length uint32
	pos    uint32 // of the request
	msn    uint32
	inval  uint32 // key to invalidate at the end
	kind   askKind
}

type askKind uint8

const (
	askRead askKind = iota
	askReadInval
	askAtomic
	askRTR // the read that is this side's RTR message, and no request's
)

// sinkKey stands as sink STag where there is no local memory: a read of nothing. The peer
// returns it unread.
const sinkKey = 1

// ask encodes the request for a read or an atomic. There is room.
func (t *tx) ask(q *softnic.QP, h *softnic.Head, n int) {
	e := t.asked.push()
	*e = asked{length: uint32(n), pos: q.Starting(), msn: t.askMSN.Next()}
	b := t.out.b
	start := len(b)
	b = mpa.Begin(b)
	switch h.Op {
	case verbs.OpFetchAdd, verbs.OpCompareSwap:
		e.kind = askAtomic
		r := rdmap.AtomicRequest{
			Op: rdmap.FetchAdd, ID: e.msn, STag: h.RemoteKey, TO: h.RemoteAddr, Data: h.Swap,
		}
		if h.Op == verbs.OpCompareSwap {
			r.Op, r.Mask, r.Compare, r.CompareMask = rdmap.CmpSwap, ^uint64(0), h.Compare, ^uint64(0)
		}
		b = rdmap.AppendAtomicRequest(b, e.msn, r)
	default:
		if h.Op == verbs.OpRDMAReadInval {
			e.kind, e.inval = askReadInval, h.InvKey
		}
		// The sink is found by the request, so that any list of segments can be one, without a
		// remote right; what is sent only has to come back.
		r := rdmap.ReadRequest{SinkSTag: sinkKey, Size: uint32(n), SrcSTag: h.RemoteKey, SrcTO: h.RemoteAddr}
		e.sink = rdmap.NewReadSink(r)
		b = rdmap.AppendReadRequest(b, e.msn, r)
	}
	t.out.b = t.enc.Finish(b, start)
}

// answer is a request of the peer that waits for its answer.
type answer struct {
	read   rdmap.ReadRequest
	atomic rdmap.AtomicRequest
	msn    uint32
	off    uint32 // what is encoded of the response
	word   bool   // it is an atomic
}

// ulpdu makes the request again, for a Terminate.
func (a *answer) ulpdu() []byte {
	if a.word {
		return rdmap.AppendAtomicRequest(nil, a.msn, a.atomic)
	}
	return rdmap.AppendReadRequest(nil, a.msn, a.read.Advance(a.off))
}

// answer encodes responses, in the order of the requests, as far as there is room. The caller holds l, the
// lane of the send side.
func (c *conn) answer(l *softnic.Lane) {
	t := &c.tx
	for t.answers.count() > 0 && !t.cur.active && !t.referring() && !t.stopped && !t.held {
		a := t.answers.at(t.answers.head)
		done, err := false, error(nil)
		if a.word {
			done, err = c.answerAtomic(l, a)
		} else {
			done, err = c.answerRead(l, a)
		}
		if err != nil {
			u := a.ulpdu()
			c.terminate(l, err, u, len(u))
			c.qp.Fault(l, asFault(err, nil))
			return
		}
		if !done {
			return
		}
		t.answering = false
		t.answers.pop()
	}
}

func (c *conn) answerRead(l *softnic.Lane, a *answer) (done bool, err error) {
	t := &c.tx
	r := &a.read
	if a.off == 0 && r.Size > 0 {
		// The whole source must be there before the first byte goes out.
		v, verdict := c.qp.ReadAt(l, r.SrcSTag, r.SrcTO, r.Size)
		v.Release()
		if verdict != softnic.Accepted {
			return false, remote(verdict, r.SrcTO, r.Size)
		}
	}
	for {
		n := min(r.Size-a.off, uint32(t.mulpdu-ddp.TaggedLen))
		if !t.room(ddp.TaggedLen + int(n)) {
			t.answering = a.off > 0
			return false, nil
		}
		v, verdict := c.qp.ReadAt(l, r.SrcSTag, r.SrcTO+uint64(a.off), n)
		if verdict != softnic.Accepted {
			return false, remote(verdict, r.SrcTO+uint64(a.off), n)
		}
		b := t.out.b
		start := len(b)
		b = rdmap.AppendReadResponse(mpa.Begin(b), a.off+n == r.Size, r.SinkSTag, r.SinkTO+uint64(a.off))
		if n > 0 {
			b = v.Append(b, 0, int(n))
		}
		v.Release()
		t.out.b = t.enc.Finish(b, start)
		if a.off += n; a.off == r.Size {
			return true, nil
		}
	}
}

func (c *conn) answerAtomic(l *softnic.Lane, a *answer) (done bool, err error) {
	t := &c.tx
	if !t.room(ddp.UntaggedLen + rdmap.AtomicResponseLen) {
		return false, nil
	}
	r := &a.atomic
	if r.Op != rdmap.FetchAdd && r.Op != rdmap.CmpSwap {
		return false, rdmap.ErrAtomicOp
	}
	before, verdict := c.operate(l, r)
	if verdict != softnic.Accepted {
		return false, remote(verdict, r.TO, rdmap.AtomicLen)
	}
	b := t.out.b
	start := len(b)
	b = rdmap.AppendAtomicResponse(mpa.Begin(b), t.reply.Next(), rdmap.AtomicResponse{ID: r.ID, Original: before})
	t.out.b = t.enc.Finish(b, start)
	return true, nil
}

// operate does an atomic operation. The usual ones are those of package verbs.
func (c *conn) operate(l *softnic.Lane, r *rdmap.AtomicRequest) (before uint64, _ softnic.Verdict) {
	h := &c.tx.head
	h.RemoteKey, h.RemoteAddr, h.Swap, h.Compare = r.STag, r.TO, r.Data, r.Compare
	switch {
	case r.Op == rdmap.FetchAdd && r.Mask == 0:
		h.Op = verbs.OpFetchAdd
	case r.Op == rdmap.CmpSwap && r.Mask&r.CompareMask == ^uint64(0):
		h.Op = verbs.OpCompareSwap
	default:
		request := *r
		return c.qp.Masked(l, r.STag, r.TO, request.Apply)
	}
	return c.qp.Atomic(l, h)
}

// find returns the oldest request under way that a response of the kind answers.
func (t *tx) find(atomic bool, id uint32) *asked {
	for i := t.asked.head; i != t.asked.tail; i++ {
		e := t.asked.at(i)
		if e.kind == askDone || (e.kind == askAtomic) != atomic || atomic && e.msn != id {
			continue
		}
		return e
	}
	return nil
}

// askDone marks an entry that has its answer.
const askDone askKind = 0xFF

// settle ends a request with its answer: what is done at the head leaves the ring.
func (t *tx) settle(e *asked) {
	e.kind = askDone
	for t.asked.count() > 0 && t.asked.at(t.asked.head).kind == askDone {
		t.asked.pop()
	}
}

// arrived places a segment of a read response. The caller holds l, the lane of the send side.
func (c *conn) arrived(l *softnic.Lane, h *ddp.Tagged, payload []byte) error {
	e := c.tx.find(false, 0)
	if e == nil {
		return rdmap.ErrUnrequested
	}
	sink := e.sink
	if err := sink.Accept(h.Control().Last(), h.STag(), h.TO(), len(payload)); err != nil {
		return err
	}
	if len(payload) > 0 {
		v, verdict := c.qp.Source(l, e.pos)
		if verdict != softnic.Accepted {
			c.qp.Fault(l, asFault(ddp.ErrLocal, nil))
			c.qp.Finish(l, e.pos, verbs.StatusLocalProtection, 0)
			return ddp.ErrLocal
		}
		if len(payload) == int(e.length) {
			l.Place(v, payload)
		} else {
			v.Put(int(e.length-e.sink.Left), payload)
		}
		v.Release()
	}
	return c.advanced(l, h, len(payload))
}

// advanced takes a segment of a read response as placed, and ends the request behind the last. The caller
// holds l, the lane of the send side.
func (c *conn) advanced(l *softnic.Lane, h *ddp.Tagged, n int) error {
	t := &c.tx
	e := t.find(false, 0)
	if e == nil {
		return rdmap.ErrUnrequested
	}
	last := h.Control().Last()
	if err := e.sink.Accept(last, h.STag(), h.TO(), n); err != nil || !last {
		return err
	}
	kind, pos, length, inval := e.kind, e.pos, e.length, e.inval
	t.settle(e)
	switch {
	case kind == askRTR:
	case kind == askReadInval && !c.qp.InvalidateSink(l, inval):
		c.qp.Finish(l, pos, verbs.StatusMemoryManagement, 0)
	default:
		c.qp.Finish(l, pos, verbs.StatusSuccess, length)
	}
	c.qp.Pump(l)
	return nil
}

// original places the result of an atomic. The caller holds l, the lane of the send side.
func (c *conn) original(l *softnic.Lane, r rdmap.AtomicResponse) error {
	t := &c.tx
	e := t.find(true, r.ID)
	if e == nil {
		return rdmap.ErrUnrequested
	}
	pos := e.pos
	v, verdict := c.qp.Source(l, pos)
	if verdict != softnic.Accepted {
		c.qp.Fault(l, asFault(ddp.ErrLocal, nil))
		c.qp.Finish(l, pos, verbs.StatusLocalProtection, 0)
		return ddp.ErrLocal
	}
	binary.NativeEndian.PutUint64(c.rx.word[:], r.Original)
	l.Place(v, c.rx.word[:])
	v.Release()
	t.settle(e)
	c.qp.Finish(l, pos, verbs.StatusSuccess, rdmap.AtomicLen)
	c.qp.Pump(l)
	return nil
}
