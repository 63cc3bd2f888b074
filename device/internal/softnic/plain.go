package softnic

import "kdapl/verbs"

// SetPeer names the QP at the other end of the connection, if it is in this process and its receive side is under the
// lane of this one's send side; nil while nothing can be sent to it. The caller holds that lane.
func (q *QP) SetPeer(p *QP) { q.peer = p }

// Peer is what SetPeer has named. The caller holds the lane of the send side.
func (q *QP) Peer() *QP { return q.peer }

// plain runs a request to its end at once, if it is of the most common kind: a send, write or read of one segment in one piece,
// with nothing queued before it and the peer ready, all memory that of the requests before. false means that nothing has
// happened; then postSend does it, or says what is wrong.
//
// It is what postSend, the wire and the Target call do together, with the same checks (lastKey.hit, PD.check,
// QP.permit), which are inlined here: for a few bytes the calls, and the Vecs that they hand on, cost
// more than everything else but the locks. The caller holds l; q has a peer.
func (q *QP) plain(l *Lane, wr *verbs.SendWR) bool {
	p, s := q.peer, &wr.SGE[0]
	n := s.Length
	if wr.NumSGE != 1 || wr.Flags&^verbs.SendSignaled != 0 || n == 0 || n >= longCopy || q.sq.maxSGE == 0 ||
		q.smode != sideRun || p.rmode != sideRun || !q.sq.empty() || !q.mine.hit(l, s.LKey) ||
		q.sendUsed() >= q.sq.depth && !q.sendRoom() {
		return false
	}
	e := q.mine.e
	off, v := q.pd.check(e, s, ops[wr.Op&15].need)
	if v != Accepted || e.pieces != nil || n > q.ctx.attr.MaxMessage {
		return false
	}
	own := e.buf[off:][:n]
	if wr.Op == verbs.OpSend {
		if !p.plainSend(l, own) {
			return false
		}
	} else {
		need := verbs.AccessRemoteWrite
		switch wr.Op {
		case verbs.OpRDMAWrite:
		case verbs.OpRDMARead:
			if q.reads == 0 || q.maxRead == 0 {
				return false
			}
			need = verbs.AccessRemoteRead
		default:
			return false
		}
		if !p.theirs.hit(l, wr.RemoteKey) {
			return false
		}
		e := p.theirs.e
		off, v := p.permit(e, wr.RemoteAddr, n, need)
		if v != Accepted || e.pieces != nil || e.under != nil {
			return false
		}
		from, to := own, e.buf[off:][:n]
		if need == verbs.AccessRemoteRead {
			from, to = to, from
		}
		if !copyWord(to, from) {
			copy(to, from)
		}
	}
	if wr.Flags&verbs.SendSignaled != 0 {
		q.pushSend(l, headOf(wr), verbs.StatusSuccess, n)
	}
	return true
}

// plainSend places a message into the next receive of p and completes that.
func (p *QP) plainSend(l *Lane, src []byte) bool {
	if p.srq != nil || p.rq.count() == 0 {
		return false
	}
	id, sg := p.rq.first()
	if len(sg) != 1 || uint64(sg[0].Length) < uint64(len(src)) || !p.sinks.hit(l, sg[0].LKey) {
		return false
	}
	e := p.sinks.e
	off, v := p.pd.check(e, &sg[0], verbs.AccessLocalWrite)
	if v != Accepted || e.pieces != nil {
		return false
	}
	copy(e.buf[off:][:len(src)], src)
	p.rq.head++
	p.pushRecv(l, id, packWhat(verbs.OpRecv, verbs.StatusSuccess, verbs.CompletionRecvQueue), uint32(len(src)), 0)
	return true
}
