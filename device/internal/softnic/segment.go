package softnic

import (
	"encoding/binary"

	"kdapl/verbs"
)

// A transport that cuts messages places them piece by piece, and looks the memory up again for
// each piece. The caller holds l, the lane of the receive side, unless said otherwise.

// BeginRecv finds the receive for a message that comes in pieces and tells how long it may be. The
// receive stays the message's until EndRecv or FailRecv.
func (q *QP) BeginRecv(l *Lane) (size uint64, ok bool) {
	r, ok := q.peekRecv(l)
	if !ok {
		return 0, false
	}
	q.part, q.parted = r, true
	return room(r.sg), true
}

// RecvAt resolves n bytes at an offset of the receive that BeginRecv found.
func (q *QP) RecvAt(l *Lane, off, n uint32) (Vec, Verdict) {
	if !q.parted || q.rmode != sideRun {
		return Vec{}, RecvFault
	}
	var sg [verbs.MaxSGE]verbs.SGE
	k := 0
	for _, s := range q.part.sg {
		if off >= s.Length {
			off -= s.Length
			continue
		}
		s.Addr += uint64(off)
		s.Length -= off
		off = 0
		sg[k] = s
		k++
	}
	return q.pd.place(l, &q.sinks, sg[:k], n)
}

// EndRecv completes the receive of a message of n bytes. The operation, flags and key to
// invalidate are h's.
func (q *QP) EndRecv(l *Lane, h *Head, n uint32) Verdict {
	if !q.parted || q.rmode != sideRun {
		return RecvFault
	}
	if h.Op == verbs.OpSendInval {
		if v := q.ctx.invalidate(l, q, h.InvKey, true); v != Accepted {
			return v // the receive is flushed with the QP
		}
	}
	r := q.part
	q.part, q.parted = receive{}, false
	q.takeRecv()
	tags, f := recvTags(h)
	q.pushRecv(l, r.id, packWhat(verbs.OpRecv, verbs.StatusSuccess, f), n, tags)
	return Accepted
}

// FailRecv completes the receive of a message that it cannot hold: TooLong, or RecvFault if its
// memory is not usable.
func (q *QP) FailRecv(l *Lane, v Verdict) {
	if !q.parted || q.rmode != sideRun {
		return
	}
	st := verbs.StatusLocalProtection
	if v == TooLong {
		st = verbs.StatusLocalLength
	}
	r := q.part
	q.part, q.parted = receive{}, false
	q.takeRecv()
	q.pushRecv(l, r.id, packWhat(verbs.OpRecv, st, verbs.CompletionRecvQueue), 0, 0)
}

// flushPart flushes the receive of an unfinished message. One of the QP's own queue is still in it.
func (q *QP) flushPart(l *Lane) {
	if q.parted && q.srq != nil {
		q.untake(l, q.part)
	}
	q.part, q.parted = receive{}, false
}

// WriteAt resolves n bytes of memory that the peer may write to.
func (q *QP) WriteAt(l *Lane, key uint32, addr uint64, n uint32) (Vec, Verdict) {
	if q.rmode != sideRun {
		return Vec{}, NotReady
	}
	return q.remote(l, key, addr, n, verbs.AccessRemoteWrite)
}

// TargetImm uses up a receive for the immediate data behind an RDMA write of n bytes.
func (q *QP) TargetImm(l *Lane, h *Head, n uint32) Verdict {
	r, ok := q.peekRecv(l)
	if !ok {
		return NotReady
	}
	q.takeRecv()
	tags, f := recvTags(h)
	q.pushRecv(l, r.id, packWhat(verbs.OpRecvRDMAImm, verbs.StatusSuccess, f), n, tags)
	return Accepted
}

// ReadAt resolves n bytes of memory that the peer may read. The caller holds l, the lane of the
// send side, on which the answer goes out.
func (q *QP) ReadAt(l *Lane, key uint32, addr uint64, n uint32) (Vec, Verdict) {
	if n == 0 {
		return Vec{}, Accepted
	}
	return q.reach(l, &q.asked, key, addr, n, verbs.AccessRemoteRead)
}

// Atomic is TargetAtomic for a caller that holds l, the lane of the send side, on which the answer
// goes out.
func (q *QP) Atomic(l *Lane, h *Head) (before uint64, _ Verdict) {
	return q.atomic(l, &q.asked, h)
}

// Append appends n bytes of v from the offset on to b, and reads an aligned word at once.
func (v Vec) Append(b []byte, off, n int) []byte {
	if v.more == nil {
		p := v.one[off:][:n]
		if n == 8 {
			if w := word(p); w != nil {
				return binary.NativeEndian.AppendUint64(b, w.Load())
			}
		}
		return append(b, p...)
	}
	for _, p := range *v.more {
		if off >= len(p) {
			off -= len(p)
			continue
		}
		p = p[off:]
		off = 0
		if len(p) >= n {
			return append(b, p[:n]...)
		}
		b = append(b, p...)
		n -= len(p)
	}
	return b
}

// Slices appends the pieces of v that hold n bytes from the offset on.
func (v Vec) Slices(to [][]byte, off, n int) [][]byte {
	if v.more == nil {
		if n == 0 {
			return to
		}
		return append(to, v.one[off:][:n:n])
	}
	for _, p := range *v.more {
		if off >= len(p) {
			off -= len(p)
			continue
		}
		p = p[off:]
		off = 0
		if len(p) >= n {
			if n == 0 {
				return to
			}
			return append(to, p[:n:n])
		}
		to = append(to, p)
		n -= len(p)
	}
	return to
}

// VecOfPieces is the Vec of a list of pieces, which is cleared when it is released.
func VecOfPieces(p *[][]byte) Vec { return Vec{more: p} }

// Put copies src to v from the offset on.
func (v Vec) Put(off int, src []byte) {
	if v.more == nil {
		copy(v.one[off:], src)
		return
	}
	copyAt(v, off, VecOf(src))
}

// Place is CopyVec for RDMA into v, which has the length of src: an aligned word is written at once.
func (l *Lane) Place(v Vec, src []byte) { l.copyRDMA(v, VecOf(src), uint32(len(src))) }

// Release lets go of the memory, if it is a list in the lane.
func (v Vec) Release() { v.release() }

// Stay and Move are for a holder that keeps the lane for long, without waiting for anything.
func (l *Lane) Stay() { l.mu.Stay() }

// Move ends what Stay began.
func (l *Lane) Move() { l.mu.Move() }

// Masked is Atomic for any operation: what was there before is replaced by what apply makes of it,
// which may be called several times.
func (q *QP) Masked(l *Lane, key uint32, addr uint64, apply func(before uint64) uint64) (before uint64, _ Verdict) {
	if addr&7 != 0 {
		return 0, Misaligned
	}
	m, v := q.reach(l, &q.asked, key, addr, 8, verbs.AccessRemoteAtomic)
	if v != Accepted {
		return 0, v
	}
	defer m.release()
	p := word(m.one)
	if p == nil {
		q.ctx.words.Lock()
		defer q.ctx.words.Unlock()
		var b [8]byte
		CopyVec(VecOf(b[:]), m)
		before = binary.NativeEndian.Uint64(b[:])
		binary.NativeEndian.PutUint64(b[:], apply(before))
		CopyVec(m, VecOf(b[:]))
		return before, Accepted
	}
	for {
		before = p.Load()
		if p.CompareAndSwap(before, apply(before)) {
			return before, Accepted
		}
	}
}
