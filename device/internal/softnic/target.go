package softnic

import "kdapl/verbs"

// The Target methods do at a QP what its peer asks for. The caller holds l, the lane of
// the receive side (for a datagram: the sender's, with the receive side's inside). What they
// are given is from the wire and may be anything.

// receive is a receive that a message is about to use.
type receive struct {
	id uint64
	sg []verbs.SGE
}

// peekRecv finds the receive for the next message; takeRecv then uses it up.
func (q *QP) peekRecv(l *Lane) (r receive, ok bool) {
	if q.rmode != sideRun {
		q.starved = true
		return r, false
	}
	if q.srq != nil {
		return q.srq.take(l, q, 0)
	}
	if q.rq.count() == 0 {
		q.starved = true
		return r, false
	}
	r.id, r.sg = q.rq.first()
	return r, true
}

// peekRecvFor is peekRecv for a datagram, which leaves a receive alone that is too short.
func (q *QP) peekRecvFor(l *Lane, n uint64) (r receive, ok bool) {
	if q.srq != nil && q.rmode == sideRun {
		return q.srq.take(l, q, n)
	}
	r, ok = q.peekRecv(l)
	return r, ok && room(r.sg) >= n
}

func (q *QP) takeRecv() {
	if q.srq == nil {
		q.rq.head++
	}
}

// Receiving reports that the QP is connected, as far as its receive side knows. The caller
// holds the lane of the receive side.
func (q *QP) Receiving() bool { return q.rmode == sideRun }

// untake gives up a receive that its message did not use. One from an SRQ does not go back: it
// is flushed with the QP, which the fault ends.
func (q *QP) untake(l *Lane, r receive) {
	if q.srq != nil {
		q.pushRecv(l, r.id, packWhat(verbs.OpRecv, verbs.StatusFlushed, verbs.CompletionRecvQueue), 0, 0)
	}
}

// recvTags are the tags of a receive completion, and the flags that go with them.
func recvTags(h *Head) (tags uint64, f verbs.CompletionFlags) {
	f = verbs.CompletionRecvQueue
	if h.Flags&verbs.SendSolicited != 0 {
		f |= verbs.CompletionSolicited
	}
	switch h.Op {
	case verbs.OpSendImm, verbs.OpRDMAWriteImm:
		return uint64(h.Imm), f | verbs.CompletionImm
	case verbs.OpSendInval:
		return uint64(h.InvKey) << 32, f | verbs.CompletionInval
	}
	return 0, f
}

// TargetSend places a send into a receive and completes that. The operation, flags, immediate data
// and key to invalidate are h's.
func (q *QP) TargetSend(l *Lane, h *Head, src Vec) Verdict {
	var r receive
	if q.rmode == sideRun && q.srq == nil && q.rq.count() != 0 {
		r.id, r.sg = q.rq.first() // as peekRecv does, without a call
	} else {
		var ok bool
		if r, ok = q.peekRecv(l); !ok {
			return NotReady
		}
	}
	if h.Op == verbs.OpSendInval {
		if v := q.ctx.canInvalidate(q, h.InvKey, true); v != Accepted {
			q.untake(l, r)
			return v
		}
	}
	n := uint32(src.Len())
	dst, v := q.pd.place(l, &q.sinks, r.sg, n)
	if v != Accepted {
		st := verbs.StatusLocalProtection
		if v == TooLong {
			st = verbs.StatusLocalLength
		} else {
			v = RecvFault
		}
		q.takeRecv()
		q.pushRecv(l, r.id, packWhat(verbs.OpRecv, st, verbs.CompletionRecvQueue), 0, 0)
		return v
	}
	if n < longCopy && dst.more == nil && src.more == nil {
		copy(dst.one, src.one)
	} else {
		l.copy(dst, src, n)
		dst.release()
	}
	if h.Op == verbs.OpSendInval {
		// The memory of both sides is let go by now: this may wait for other lanes.
		if v := q.ctx.invalidate(l, q, h.InvKey, true); v != Accepted {
			q.untake(l, r)
			return v
		}
	}
	q.takeRecv()
	tags, f := recvTags(h)
	q.pushRecv(l, r.id, packWhat(verbs.OpRecv, verbs.StatusSuccess, f), n, tags)
	return Accepted
}

// TargetWrite writes to the memory that h names. With immediate data it also uses up a
// receive; it then does nothing if there is none.
func (q *QP) TargetWrite(l *Lane, h *Head, src Vec) Verdict {
	if q.rmode != sideRun {
		q.starved = true
		return NotReady
	}
	n := uint32(src.Len())
	var dst Vec
	if n > 0 {
		var v Verdict
		if dst, v = q.remote(l, h.RemoteKey, h.RemoteAddr, n, verbs.AccessRemoteWrite); v != Accepted {
			return v
		}
	}
	if h.Op == verbs.OpRDMAWriteImm {
		r, ok := q.peekRecv(l)
		if !ok {
			dst.release()
			return NotReady
		}
		q.takeRecv()
		l.copyRDMA(dst, src, n)
		tags, f := recvTags(h)
		q.pushRecv(l, r.id, packWhat(verbs.OpRecvRDMAImm, verbs.StatusSuccess, f), n, tags)
	} else {
		l.copyRDMA(dst, src, n)
	}
	dst.release()
	return Accepted
}

// TargetRead reads the memory that h names into dst.
func (q *QP) TargetRead(l *Lane, h *Head, dst Vec) Verdict {
	if q.rmode != sideRun {
		q.starved = true
		return NotReady
	}
	n := uint32(dst.Len())
	if n == 0 {
		return Accepted
	}
	src, v := q.remote(l, h.RemoteKey, h.RemoteAddr, n, verbs.AccessRemoteRead)
	if v != Accepted {
		return v
	}
	l.copyRDMA(dst, src, n)
	src.release()
	return Accepted
}

// TargetAtomic does the atomic operation of h on the memory that it names and returns what
// was there before.
func (q *QP) TargetAtomic(l *Lane, h *Head) (before uint64, _ Verdict) {
	if q.rmode != sideRun {
		q.starved = true
		return 0, NotReady
	}
	return q.atomic(l, &q.theirs, h)
}

func (q *QP) atomic(l *Lane, k *lastKey, h *Head) (before uint64, _ Verdict) {
	if h.RemoteAddr&7 != 0 {
		return 0, Misaligned
	}
	m, v := q.reach(l, k, h.RemoteKey, h.RemoteAddr, 8, verbs.AccessRemoteAtomic)
	if v != Accepted {
		return 0, v
	}
	defer m.release()
	p := word(m.one)
	if p == nil {
		return q.ctx.slowAtomic(h, m), Accepted
	}
	if h.Op == verbs.OpFetchAdd {
		return p.Add(h.Swap) - h.Swap, Accepted
	}
	for {
		before = p.Load()
		if before != h.Compare || p.CompareAndSwap(before, h.Swap) {
			return before, Accepted
		}
	}
}
