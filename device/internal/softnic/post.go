package softnic

import (
	"fmt"

	"kdapl/verbs"
)

// PostSend implements [verbs.QP].
func (q *QP) PostSend(wrs []verbs.SendWR) (int, error) {
	q.lane.mu.Lock()
	n, err := q.PostSendLocked(wrs)
	q.UnlockSendQueue()
	return n, err
}

// LockSendQueue implements [verbs.Serial].
func (q *QP) LockSendQueue() { q.lane.mu.Lock() }

// PostSendLocked implements [verbs.Serial].
func (q *QP) PostSendLocked(wrs []verbs.SendWR) (n int, err error) {
	l := q.lane
	for n < len(wrs) {
		if q.peer == nil || !q.plain(l, &wrs[n]) {
			if err = q.postSend(l, &wrs[n]); err != nil {
				break
			}
		}
		n++
	}
	if n > 0 && (!q.direct || q.bell != nil) && q.smode == sideRun {
		if q.bell == nil {
			q.wire.Posted(l)
		} else if q.bell.Rang(l) {
			q.rang = true
		}
	}
	return n, err
}

// UnlockSendQueue implements [verbs.Serial].
func (q *QP) UnlockSendQueue() {
	l, rang := q.lane, q.rang
	if !rang && !l.dirty {
		l.mu.Unlock()
		return
	}
	q.rang = false
	l.Unlock()
	if rang {
		q.bell.Flush()
	}
}

func (q *QP) postSend(l *Lane, wr *verbs.SendWR) error {
	h := headOf(wr)
	if q.ops>>h.Op&1 == 0 || h.NumSGE > q.sq.maxSGE {
		return q.refuseOp(h)
	}
	if q.smode != sideRun {
		return q.postStopped(l, wr)
	}
	if q.sendUsed() >= q.sq.depth && !q.sendRoom() {
		return verbs.ErrQueueFull
	}
	info := &ops[h.Op]
	sg := wr.SGE[:h.NumSGE]
	if info.class > classWrite || h.Flags&verbs.SendInline != 0 || q.typ == verbs.UD {
		if err := q.checkSpecial(h, sg, info.class); err != nil {
			return err
		}
	}
	var v Vec
	if info.class != classLocal {
		var t Verdict
		v, t = q.pd.gather(l, &q.mine, sg, info.need, ours)
		if t != Accepted && !(t == BadKey && h.Flags&verbs.SendInline == 0 && q.early(sg)) {
			return t.postError()
		}
	}
	if q.sq.empty() && q.direct {
		var out Outcome
		var st verbs.Status
		if info.class == classLocal {
			out, st = Done, q.runLocal(l, h, sg)
		} else {
			out, st = q.wire.Start(l, h, v)
		}
		if out == Done {
			n := uint32(v.Len())
			v.release()
			if st == verbs.StatusSuccess {
				if h.Flags&verbs.SendSignaled != 0 {
					q.pushSend(l, h, st, n)
				}
			} else {
				q.failSend(l, h, st)
			}
			return nil
		}
	}
	q.enqueue(h, sg, v)
	v.release()
	return nil
}

// enqueue keeps a request that cannot run now.
func (q *QP) enqueue(h *Head, sg []verbs.SGE, v Vec) {
	pos := q.sq.tail
	slot := q.sq.add(h, sg)
	if h.Flags&verbs.SendInline != 0 {
		slot.inline = uint16(v.Len())
		CopyVec(VecOf(q.sq.inlineRoom(pos)[:slot.inline]), v)
	}
	if h.Op == verbs.OpRegMR {
		q.ctx.regQueued(h.Key)
	}
}

// sendUsed counts the places of the send queue that are in use: by requests, and by completions of which
// it is not known that they were polled.
func (q *QP) sendUsed() uint32 { return q.sq.count() + q.sqPushed - q.sqPolled }

// sendRecount asks how many completions were polled.
func (q *QP) sendRecount() {
	if q.sendCQ != nil {
		q.sqPolled = q.sknown.polled.Load()
	}
}

// sendRoom is whether there is room after all.
func (q *QP) sendRoom() bool {
	q.sendRecount()
	return q.sendUsed() < q.sq.depth
}

// refuseOp says why an operation or its number of segments is not allowed.
func (q *QP) refuseOp(h *Head) error {
	switch {
	case q.smode == sideClosed:
		return verbs.ErrClosed
	case int(h.Op) >= len(ops) || ops[h.Op].class == classNone:
		return verbs.ErrInvalid
	case allowed(q.typ, ^verbs.Caps(0))>>h.Op&1 != 0 && allowed(q.typ, q.ctx.attr.Caps)>>h.Op&1 == 0:
		return verbs.ErrNotSupported
	}
	return verbs.ErrInvalid
}

// checkSpecial checks what only some operations need.
func (q *QP) checkSpecial(h *Head, sg []verbs.SGE, class opClass) error {
	switch class {
	case classRead:
		if h.NumSGE > q.maxRead || q.reads == 0 {
			return verbs.ErrInvalid
		}
	case classAtomic:
		if len(sg) != 1 || sg[0].Length != 8 || q.reads == 0 {
			return verbs.ErrInvalid
		}
	case classLocal:
		return q.checkLocal(h, sg)
	}
	if q.typ == verbs.UD {
		if ah := q.ctx.LookupAH(h.AH); ah == nil || ah.pd != q.pd {
			return verbs.ErrInvalid
		}
	}
	if h.Flags&verbs.SendInline != 0 {
		if !q.ctx.attr.Can(verbs.CapInline) {
			return verbs.ErrNotSupported
		}
		if class > classWrite {
			return verbs.ErrInvalid
		}
		n := uint64(0)
		for i := range sg {
			n += uint64(sg[i].Length)
		}
		if n > uint64(q.maxInline) {
			return verbs.ErrLength
		}
	}
	return nil
}

// postStopped takes a request in a state other than the usual.
func (q *QP) postStopped(l *Lane, wr *verbs.SendWR) error {
	h := headOf(wr)
	switch q.smode {
	case sideClosed:
		return verbs.ErrClosed
	case sideHalt, sideFlush:
		if q.sendUsed() >= q.sq.depth && !q.sendRoom() {
			return verbs.ErrQueueFull
		}
		if q.smode == sideHalt {
			q.enqueue(&Head{ID: h.ID, Op: h.Op}, nil, Vec{})
		} else {
			q.pushSend(l, h, verbs.StatusFlushed, 0)
		}
		return nil
	}
	return verbs.ErrState
}

// completeSend reports a success, if that is wished.
func (q *QP) completeSend(l *Lane, h *Head, n uint32) {
	if h.Flags&verbs.SendSignaled != 0 {
		q.pushSend(l, h, verbs.StatusSuccess, n)
	}
}

// failSend reports a failure, and that is the end of the QP's connection.
func (q *QP) failSend(l *Lane, h *Head, st verbs.Status) {
	q.pushSend(l, h, st, 0)
	q.failed = true // what is behind it is flushed, done or not
	if q.smode == sideRun || q.smode == sideDrain {
		q.Fault(l, fmt.Errorf("%s: request %#x failed: status %d", q.Describe(), h.ID, st))
	}
}

func (q *QP) pushSend(l *Lane, h *Head, st verbs.Status, n uint32) {
	q.sqPushed++
	q.sendCQ.push(l, q.sowner, h.ID, uint64(h.Op)|uint64(st)<<8, n, 0)
}

// Pump starts queued requests as far as that is possible. The caller holds l, the lane of the
// send side.
func (q *QP) Pump(l *Lane) {
	s := &q.sq
	for s.next != s.tail && (q.smode == sideRun || q.smode == sideDrain) {
		slot := s.at(s.next)
		h := &slot.Head
		info := &ops[h.Op]
		asks := info.class == classRead || info.class == classAtomic
		if s.reads > 0 && (h.Flags&verbs.SendFence != 0 || asks && int(s.reads) >= q.reads) {
			break
		}
		v, t := q.source(l, s.next)
		out, st := Done, verbs.StatusLocalProtection
		if t == Accepted {
			if info.class == classLocal {
				out, st = Done, q.runLocal(l, h, s.segments(s.next))
			} else {
				out, st = q.wire.Start(l, h, v)
			}
		}
		n := uint32(v.Len())
		v.release()
		if out == Stalled {
			break
		}
		if h.Op == verbs.OpRegMR {
			q.ctx.regDone(h.Key)
		}
		s.next++
		if out == Running {
			slot.state = slotRuns
			if asks {
				s.reads++
			}
			continue
		}
		slot.state, slot.status, slot.length = slotDone, st, n
		q.retire(l)
	}
	q.checkDrained(l)
}

// source resolves the local memory of a queued request.
func (q *QP) source(l *Lane, pos uint32) (Vec, Verdict) {
	slot := q.sq.at(pos)
	info := &ops[slot.Op]
	if info.class == classLocal {
		return Vec{}, Accepted
	}
	if slot.Flags&verbs.SendInline != 0 {
		return VecOf(q.sq.inlineRoom(pos)[:slot.inline]), Accepted
	}
	return q.pd.gather(l, &q.mine, q.sq.segments(pos), info.need, ours)
}

// Starting is the position of the request that Wire.Start is being called for.
func (q *QP) Starting() uint32 { return q.sq.next }

// Source resolves the local memory of a running request again. The caller holds l, the lane of
// the send side.
func (q *QP) Source(l *Lane, pos uint32) (Vec, Verdict) { return q.source(l, pos) }

// Finish ends a running request. The completion comes when the earlier ones have ended. The
// caller holds l, the lane of the send side, and pumps afterwards.
func (q *QP) Finish(l *Lane, pos uint32, st verbs.Status, n uint32) {
	s := &q.sq
	if pos-s.head >= s.next-s.head {
		return // flushed in the meantime
	}
	slot := s.at(pos)
	if slot.state != slotRuns {
		return
	}
	slot.state, slot.status, slot.length = slotDone, st, n
	if c := ops[slot.Op].class; c == classRead || c == classAtomic {
		s.reads--
	}
	q.retire(l)
	q.checkDrained(l)
}

// GiveUp ends the first request that has not been started, and with it the connection. The
// caller holds l, the lane of the send side.
func (q *QP) GiveUp(l *Lane, st verbs.Status, cause error) {
	s := &q.sq
	if s.next == s.tail || q.smode != sideRun && q.smode != sideDrain {
		return
	}
	slot := s.at(s.next)
	if slot.Op == verbs.OpRegMR {
		q.ctx.regDone(slot.Key)
	}
	s.next++
	slot.state, slot.status = slotDone, st
	q.Fault(l, cause)
	q.retire(l)
}

// retire reports what is done at the head of the queue.
func (q *QP) retire(l *Lane) {
	s := &q.sq
	for s.head != s.next {
		slot := s.at(s.head)
		if slot.state != slotDone {
			return
		}
		s.head++
		if slot.status != verbs.StatusSuccess {
			q.failSend(l, &slot.Head, slot.status)
			return
		}
		q.completeSend(l, &slot.Head, slot.length)
	}
}

func (q *QP) checkDrained(l *Lane) {
	if q.smode == sideDrain && q.sq.empty() {
		l.later(deed{kind: deedDrained, qp: q})
	}
}

// PostRecv implements [verbs.QP].
func (q *QP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.LockRecvQueue()
	n, err := q.PostRecvLocked(wrs)
	q.UnlockRecvQueue()
	return n, err
}

// LockRecvQueue implements [verbs.Serial].
func (q *QP) LockRecvQueue() {
	if l := q.rlane.Load(); l.mu.TryLock() {
		if q.rlane.Load() == l {
			return
		}
		l.mu.Unlock()
	}
	q.LockRecv()
}

// PostRecvLocked implements [verbs.Serial].
func (q *QP) PostRecvLocked(wrs []verbs.RecvWR) (n int, err error) {
	l := q.rlane.Load()
	for n < len(wrs) {
		if err = q.postRecv(l, &wrs[n]); err != nil {
			break
		}
		n++
	}
	if n > 0 && q.starved {
		q.starved = false
		q.wire.RecvReady(l)
	}
	return n, err
}

// UnlockRecvQueue implements [verbs.Serial].
func (q *QP) UnlockRecvQueue() { q.rlane.Load().Unlock() }

func (q *QP) postRecv(l *Lane, wr *verbs.RecvWR) error {
	switch {
	case q.rmode == sideClosed:
		return verbs.ErrClosed
	case q.rmode == sideOff || q.srq != nil:
		return verbs.ErrState
	case wr.NumSGE > q.rq.maxSGE:
		return verbs.ErrInvalid
	}
	if q.recvUsed() >= q.rq.depth && !q.recvRoom() {
		return verbs.ErrQueueFull
	}
	if q.rmode == sideFlush {
		q.pushRecv(l, wr.ID, packWhat(verbs.OpRecv, verbs.StatusFlushed, verbs.CompletionRecvQueue), 0, 0)
		return nil
	}
	if t := q.pd.checkRecv(l, &q.sinks, wr.SGE[:wr.NumSGE]); t != Accepted {
		return t.postError()
	}
	q.rq.add(wr)
	return nil
}

// recvUsed is sendUsed of the receive queue, recvRoom its sendRoom.
func (q *QP) recvUsed() uint32 { return q.rq.count() + q.rqPushed - q.rqPolled }

func (q *QP) recvRoom() bool {
	if q.recvCQ != nil {
		q.rqPolled = q.rknown.polled.Load()
	}
	return q.recvUsed() < q.rq.depth
}

// checkRecv checks the segments of a receive at the post.
func (pd *PD) checkRecv(l *Lane, k *lastKey, sg []verbs.SGE) Verdict {
	for i := range sg {
		s := &sg[i]
		if s.Length == 0 {
			continue
		}
		e := k.enter(pd.ctx, l, s.LKey)
		if _, t := pd.check(e, s, verbs.AccessLocalWrite); t != Accepted {
			return t
		}
	}
	return Accepted
}

func (q *QP) pushRecv(l *Lane, id, what uint64, n uint32, tags uint64) {
	q.rqPushed++
	q.recvCQ.push(l, q.rowner, id, what, n, tags)
}
