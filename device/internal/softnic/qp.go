package softnic

import (
	"fmt"
	"sync"
	"sync/atomic"

	"kdapl/verbs"
)

// sideMode is what a side of a QP does with posts. It is under the side's lane.
type sideMode uint8

const (
	sideOff    sideMode = iota // nothing can be posted
	sideHold                   // receives are kept until the QP is connected
	sideRun                    // posts are done
	sideDrain                  // sends: what is there is done, nothing new is taken
	sideHalt                   // sends: a fault was found; kept to be flushed
	sideFlush                  // posts are flushed at once
	sideClosed                 // the QP was destroyed
)

// QP is a queue pair.
type QP struct {
	ctx  *Context
	pd   *PD
	wire Wire
	bell Doorbell // the wire, if it is one

	// The send side, under lane.
	lane   *Lane
	sq     sendQueue
	mine   lastKey // of local segments
	asked  lastKey // of what the peer reads, if the answer goes out on this side
	ops    opMask
	direct bool
	smode  sideMode
	sowes  bool // a drained mark is owed
	rang   bool // the bell asked to be flushed when the lane is released
	failed bool // a request failed or was flushed: so is what is behind it, done or not
	sendCQ *CQ
	sowner uint32
	sknown *owner // what sendCQ knows of the queue
	// Completions that were pushed, and those of them of which it is known that they were polled.
	sqPushed, sqPolled uint32
	reads              int  // agreed depth of outbound reads
	slink              Link // the connection that sends belong to
	peer               *QP  // see SetPeer

	// The receive side, under the lane that rlane holds.
	rlane   atomic.Pointer[Lane]
	rq      recvQueue
	sinks   lastKey // of receives
	theirs  lastKey // of the peer's RDMA
	part    receive // of a message that comes in pieces
	parted  bool    // part is in use
	rmode   sideMode
	rowes   bool
	starved bool // the wire waits for RecvReady
	recvCQ  *CQ
	rowner  uint32
	rknown  *owner
	// As of the send side.
	rqPushed, rqPolled uint32
	srq                *SRQ
	draw               *srqDraw // what goes with srq

	num          uint32
	qkey         uint32
	userData     uint64
	typ          verbs.QPType
	maxInline    uint16
	maxRead      uint8
	boundWindows atomic.Int32

	// The control part. ctl comes before the lanes.
	ctl    sync.Mutex
	state  atomic.Uint32
	link   Link
	up     bool // link is an established connection
	dead   bool
	asks   []Link // questions of a UD QP
	events Events[verbs.ConnEvent]
}

func newQP(pd *PD, in *verbs.QPInit) *QP {
	q := &QP{
		ctx: pd.ctx, pd: pd, typ: in.Type, userData: in.UserData, qkey: in.QKey,
		lane: new(Lane), maxInline: uint16(in.MaxInline),
		maxRead: uint8(min(in.MaxSendSGE, pd.ctx.attr.MaxReadSGE)),
	}
	q.sq.depth, q.sq.maxSGE, q.sq.maxInline = uint32(in.MaxSend), uint8(in.MaxSendSGE), uint16(in.MaxInline)
	q.rq.depth, q.rq.maxSGE = uint32(in.MaxRecv), uint8(in.MaxRecvSGE)
	q.direct = pd.ctx.direct
	q.ops = allowed(in.Type, pd.ctx.attr.Caps)
	q.events.Do = in.Conn
	q.rlane.Store(q.lane)
	if in.Type == verbs.UD {
		q.rlane.Store(new(Lane))
	}
	return q
}

// Num implements [verbs.QP].
func (q *QP) Num() uint32 { return q.num }

// State implements [verbs.QP].
func (q *QP) State() verbs.QPState { return verbs.QPState(q.state.Load()) }

func (q *QP) setState(s verbs.QPState) { q.state.Store(uint32(s)) }

// Context is the one that the QP belongs to.
func (q *QP) Context() *Context { return q.ctx }

// Wire is the transport's part, made by Driver.NewWire.
func (q *QP) Wire() Wire { return q.wire }

// Type is the transport service.
func (q *QP) Type() verbs.QPType { return q.typ }

// Lane is the lane of the send side.
func (q *QP) Lane() *Lane { return q.lane }

// LockRecv takes the lane of the receive side.
func (q *QP) LockRecv() *Lane {
	for {
		l := q.rlane.Load()
		l.mu.Lock()
		if q.rlane.Load() == l {
			return l
		}
		l.mu.Unlock()
	}
}

// SetRecvLane makes l the lane of the receive side, or, with nil, the QP's own again. The caller
// holds the present one.
func (q *QP) SetRecvLane(l *Lane) {
	if l == nil {
		l = q.lane
	}
	q.rlane.Store(l)
}

// Fault stops the send side and, when the lane is released, breaks the connection with err as
// the cause. The caller holds the lane of the send side.
func (q *QP) Fault(l *Lane, err error) {
	if q.smode == sideRun || q.smode == sideDrain {
		q.smode = sideHalt
		l.later(deed{kind: deedFail, qp: q, link: q.slink, err: err})
	}
}

// fail ends the connection because of a fault; link is nil for a QP that had none.
func (q *QP) fail(link Link, err error) {
	if link != nil {
		q.End(link, verbs.ConnBroken, err)
		return
	}
	var b batch
	q.ctl.Lock()
	was := q.State()
	q.toError(&b)
	q.ctl.Unlock()
	b.run()
	if was == verbs.QPRTS {
		q.ctx.async.Post(verbs.AsyncEvent{Kind: verbs.AsyncQPFatal, UserData: q.userData, Err: err})
	}
}

// Fail ends the QP's connection, if it has one, and its life until the next reset, because of a
// fault outside of it. No lock is held.
func (q *QP) Fail(err error) {
	q.ctl.Lock()
	link := q.link
	q.ctl.Unlock()
	if link == nil || !q.End(link, verbs.ConnBroken, err) {
		q.fail(nil, err)
	}
}

// toError flushes both sides. The caller holds ctl.
func (q *QP) toError(b *batch) {
	if s := q.State(); s == verbs.QPReset || s == verbs.QPError {
		return
	}
	q.setState(verbs.QPError)
	q.dropAsks(b)
	q.lane.Lock()
	if q.smode != sideFlush && q.smode != sideClosed {
		q.wire.SendStopped(q.lane)
		q.flushSend(q.lane)
		q.smode = sideFlush
	}
	q.lane.unlockTo(b)
	l := q.LockRecv()
	if q.rmode != sideFlush && q.rmode != sideClosed {
		q.flushRecv(l)
		q.rmode = sideFlush
		q.wire.RecvStopped(l)
	}
	l.unlockTo(b)
}

func (q *QP) flushSend(l *Lane) {
	s := &q.sq
	for ; s.head != s.tail; s.head++ {
		slot := s.at(s.head)
		if slot.state == slotDone && slot.status == verbs.StatusSuccess && !q.failed {
			q.completeSend(l, &slot.Head, slot.length)
			continue
		}
		if slot.Op == verbs.OpRegMR && slot.state == slotWaits {
			q.ctx.regDone(slot.Key)
		}
		st := verbs.StatusFlushed
		if slot.state == slotDone && !q.failed {
			st = slot.status
		}
		q.failed = true
		q.pushSend(l, &slot.Head, st, 0)
	}
	s.next, s.reads, q.slink, q.failed = s.head, 0, nil, false
	if q.sowes && q.sendCQ != nil {
		q.sendCQ.mark(l, q.sowner, 0)
	}
	q.sowes = false
}

func (q *QP) flushRecv(l *Lane) {
	r := &q.rq
	q.flushPart(l)
	for ; r.head != r.tail; r.head++ {
		id, _ := r.first()
		q.pushRecv(l, id, packWhat(verbs.OpRecv, verbs.StatusFlushed, verbs.CompletionRecvQueue), 0, 0)
	}
	if q.srq != nil {
		q.srq.leave(q)
	}
	if q.rowes && q.recvCQ != nil {
		q.recvCQ.mark(l, q.rowner, verbs.CompletionRecvQueue)
		if q.srq != nil {
			q.ctx.async.Post(verbs.AsyncEvent{Kind: verbs.AsyncLastWQE, UserData: q.userData})
		}
	}
	q.rowes = false
}

// Modify implements [verbs.QP].
func (q *QP) Modify(to verbs.QPState) error {
	switch to {
	case verbs.QPInitialized, verbs.QPRTS:
		return q.advance(to)
	case verbs.QPError, verbs.QPReset:
		return q.retreat(to)
	case verbs.QPRTR, verbs.QPSQD:
		return verbs.ErrState
	}
	return verbs.ErrInvalid
}

// advance moves a QP towards use.
func (q *QP) advance(to verbs.QPState) error {
	if err := q.ctx.Usable(); err != nil {
		return err
	}
	q.ctl.Lock()
	if q.dead {
		q.ctl.Unlock()
		return verbs.ErrClosed
	}
	from := q.State()
	if to == verbs.QPInitialized && from != verbs.QPReset ||
		to == verbs.QPRTS && (from != verbs.QPInitialized || q.typ != verbs.UD) {
		q.ctl.Unlock()
		return verbs.ErrState
	}
	var b batch
	q.lane.Lock()
	if to == verbs.QPInitialized {
		q.smode, q.sowes = sideOff, true
	} else {
		q.smode = sideRun
	}
	q.lane.unlockTo(&b)
	l := q.LockRecv()
	if to == verbs.QPInitialized {
		q.rmode, q.rowes, q.starved = sideHold, true, false
	} else {
		q.rmode = sideRun
	}
	l.unlockTo(&b)
	q.setState(to)
	q.ctl.Unlock()
	b.run()
	if to == verbs.QPRTS {
		q.wire.Ready()
	}
	return nil
}

// retreat moves a QP to QPError or QPReset.
func (q *QP) retreat(to verbs.QPState) error {
	for {
		q.ctl.Lock()
		if q.dead {
			q.ctl.Unlock()
			return verbs.ErrClosed
		}
		link := q.link
		if link == nil {
			break
		}
		q.ctl.Unlock()
		q.End(link, verbs.ConnDisconnected, nil)
	}
	if to == verbs.QPError && q.State() == verbs.QPReset {
		q.ctl.Unlock()
		return verbs.ErrState
	}
	var b batch
	q.toError(&b)
	if to == verbs.QPReset {
		q.lane.Lock()
		q.smode = sideOff
		q.lane.unlockTo(&b)
		l := q.LockRecv()
		q.rmode = sideOff
		l.unlockTo(&b)
		q.setState(verbs.QPReset)
	}
	q.ctl.Unlock()
	b.run()
	if to == verbs.QPReset {
		q.ctx.unbindAll(q)
	}
	return nil
}

// Destroy implements [verbs.QP].
func (q *QP) Destroy() error {
	q.ctl.Lock()
	if q.dead {
		q.ctl.Unlock()
		return verbs.ErrClosed
	}
	q.dead = true
	link := q.link
	q.ctl.Unlock()
	if link != nil {
		q.End(link, verbs.ConnDisconnected, nil)
	}
	var b batch
	q.ctl.Lock()
	q.toError(&b)
	q.lane.Lock()
	q.smode = sideClosed
	q.lane.unlockTo(&b)
	l := q.LockRecv()
	q.rmode = sideClosed
	l.unlockTo(&b)
	q.ctl.Unlock()
	b.run()
	q.wire.Close()
	q.ctx.unbindAll(q)
	q.ctx.removeQP(q)
	q.events.Finish()
	return nil
}

// Describe names the QP in causes.
func (q *QP) Describe() string { return fmt.Sprintf("%s QP %d", q.ctx.attr.Name, q.num) }
