package iwarp

import (
	"encoding/binary"

	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rddp"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/verbs"
)

// segment acts upon one DDP segment, whole and with a right CRC. It reports whether the connection goes
// on.
func (c *conn) segment(u []byte) bool {
	op, err := rdmap.CheckHeader(u, len(u))
	if err != nil {
		if l, ok := c.onSend(); ok && c.tx.held {
			// It was an FPDU, and its CRC was right: from now on this side may send.
			c.tx.held = false
			c.fill(l)
		}
		c.violated(err, u)
		return false
	}
	if !c.rx.live && op != rdmap.OpTerminate {
		if taken, ok := c.first(op, u); taken || !ok {
			return ok
		}
	}
	goes := true
	switch op {
	case rdmap.OpWrite:
		goes, err = c.write1(u)
	case rdmap.OpSend, rdmap.OpSendInv, rdmap.OpSendSE, rdmap.OpSendSEInv:
		goes, err = c.send1(op, u)
	case rdmap.OpImmediate, rdmap.OpImmediateSE:
		goes, err = c.immediate(op, u)
	case rdmap.OpReadRequest, rdmap.OpAtomicRequest:
		goes, err = c.request(op, u)
	case rdmap.OpReadResponse:
		goes, err = c.response(u)
	case rdmap.OpAtomicResponse:
		goes, err = c.atomicResponse(u)
	case rdmap.OpTerminate:
		c.terminated(u)
		return false
	}
	if err != nil {
		c.violated(err, u)
		return false
	}
	if !goes {
		c.off()
	}
	return goes
}

// write1 places a segment of an RDMA write.
func (c *conn) write1(u []byte) (bool, error) {
	r := &c.rx
	h := (*ddp.Tagged)(u)
	p := u[ddp.TaggedLen:]
	if len(p) > 0 {
		l, ok := c.onRecv()
		if !ok {
			return false, nil
		}
		r.head.Op, r.head.RemoteKey, r.head.RemoteAddr = verbs.OpRDMAWrite, h.STag(), h.TO()
		switch v := c.qp.TargetWrite(l, &r.head, softnic.VecOf(p)); v {
		case softnic.Accepted:
		case softnic.NotReady:
			return false, nil
		default:
			return true, tagged(v, h.TO(), len(p))
		}
	}
	r.writing += uint32(len(p))
	if h.Control().Last() {
		r.written, r.writing = r.writing, 0
	}
	return true, nil
}

// describe makes the head of a send from its segment.
func (r *rx) describe(op rdmap.Opcode, h *ddp.Untagged) {
	r.head.Op, r.head.Flags = verbs.OpSend, 0
	if op.Invalidates() {
		r.head.Op, r.head.InvKey = verbs.OpSendInval, h.ULP32()
	}
	if op.Solicited() {
		r.head.Flags = verbs.SendSolicited
	}
}

// send1 places a segment of a send.
func (c *conn) send1(op rdmap.Opcode, u []byte) (bool, error) {
	r := &c.rx
	h := (*ddp.Untagged)(u)
	p := u[ddp.UntaggedLen:]
	if h.MSN() != r.sends.MSN() {
		return true, ddp.ErrMSN
	}
	l, ok := c.onRecv()
	if !ok {
		return false, nil
	}
	r.describe(op, h)
	r.written = 0
	if !h.Control().Last() || h.MO() != 0 || r.sends.Open() {
		return c.part(l, op, h, p)
	}
	switch v := c.qp.TargetSend(l, &r.head, softnic.VecOf(p)); v {
	case softnic.Accepted:
		r.sends.Accept(len(p), true)
		return true, nil
	case softnic.NotReady:
		if !c.qp.Receiving() {
			return false, nil
		}
		return true, ddp.ErrNoBuffer
	default:
		return true, untagged(v)
	}
}

// part places a segment of a send of several.
func (c *conn) part(l *softnic.Lane, op rdmap.Opcode, h *ddp.Untagged, p []byte) (bool, error) {
	q := c.qp
	if goes, err := c.openPart(l, op, h, len(p)); !goes || err != nil {
		return goes, err
	}
	if len(p) > 0 {
		v, verdict := q.RecvAt(l, h.MO(), uint32(len(p)))
		if verdict != softnic.Accepted {
			q.FailRecv(l, softnic.RecvFault)
			return true, ddp.ErrLocal
		}
		v.Put(0, p)
		v.Release()
	}
	return c.endPart(l, h.Control().Last(), len(p))
}

// openPart checks a segment of n bytes of a send of several, and finds the receive for the first.
func (c *conn) openPart(l *softnic.Lane, op rdmap.Opcode, h *ddp.Untagged, n int) (bool, error) {
	r := &c.rx
	q := c.qp
	if !q.Receiving() {
		return false, nil
	}
	if !r.sends.Open() {
		size, ok := q.BeginRecv(l)
		if !ok {
			return true, ddp.ErrNoBuffer
		}
		r.size, r.sendOp = uint32(min(size, 1<<32-1)), uint8(op)
	} else if uint8(op) != r.sendOp {
		return true, rdmap.ErrOpcode
	}
	err := r.sends.Check(h.MSN(), h.MO(), n, true, r.size)
	if err == ddp.ErrTooLong {
		q.FailRecv(l, softnic.TooLong)
	}
	return true, err
}

// endPart takes a segment of n bytes as placed, and completes the receive behind the last.
func (c *conn) endPart(l *softnic.Lane, last bool, n int) (bool, error) {
	r := &c.rx
	total := r.sends.Accept(n, last)
	if !last {
		return true, nil
	}
	switch v := c.qp.EndRecv(l, &r.head, total); v {
	case softnic.Accepted:
		return true, nil
	case softnic.RecvFault: // the QP has ended meanwhile
		return false, nil
	default:
		return true, untagged(v)
	}
}

// immediate takes the immediate data behind a write (RFC 7306 section 6).
func (c *conn) immediate(op rdmap.Opcode, u []byte) (bool, error) {
	r := &c.rx
	h := (*ddp.Untagged)(u)
	switch {
	case h.MSN() != r.sends.MSN():
		return true, ddp.ErrMSN
	case r.sends.Open():
		return true, rdmap.ErrOpcode
	case h.MO() != 0:
		return true, ddp.ErrMO
	}
	l, ok := c.onRecv()
	if !ok || !c.qp.Receiving() {
		return false, nil
	}
	r.describe(op, h)
	r.head.Op, r.head.Imm = verbs.OpRDMAWriteImm, binary.BigEndian.Uint32(u[ddp.UntaggedLen:])
	if v := c.qp.TargetImm(l, &r.head, r.written); v != softnic.Accepted {
		return true, untagged(v)
	}
	r.written = 0
	r.sends.Accept(rdmap.ImmediateLen, true)
	return true, nil
}

// request queues a read or an atomic of the peer and answers it if there is room for the answer. The
// peer may not have more of them outstanding than was agreed (RFC 5040 section 4.4).
func (c *conn) request(op rdmap.Opcode, u []byte) (bool, error) {
	r, t := &c.rx, &c.tx
	h := (*ddp.Untagged)(u)
	p := u[ddp.UntaggedLen:]
	l, ok := c.onSend()
	if !ok {
		return false, nil
	}
	if err := r.requests.Check(h.MSN(), h.MO(), len(p), t.answers.count() < t.ird, uint32(len(p))); err != nil {
		return true, err
	}
	a := answer{msn: h.MSN()}
	var err error
	if op == rdmap.OpReadRequest {
		a.read, err = rdmap.ParseReadRequest(p)
	} else {
		a.word = true
		a.atomic, err = rdmap.ParseAtomicRequest(p)
	}
	if err != nil {
		return true, err
	}
	r.requests.Accept(len(p), true)
	*t.answers.push() = a
	if t.answers.count() == 1 {
		c.answer(l)
	}
	r.ask = true
	return !t.stopped, nil
}

// response takes a segment of a read response.
func (c *conn) response(u []byte) (bool, error) {
	l, ok := c.onSend()
	if !ok {
		return false, nil
	}
	c.rx.ask = true
	return true, c.arrived(l, (*ddp.Tagged)(u), u[ddp.TaggedLen:])
}

// atomicResponse takes the answer to an atomic.
func (c *conn) atomicResponse(u []byte) (bool, error) {
	r := &c.rx
	h := (*ddp.Untagged)(u)
	p := u[ddp.UntaggedLen:]
	l, ok := c.onSend()
	if !ok {
		return false, nil
	}
	if err := r.atomics.Check(h.MSN(), h.MO(), len(p), true, uint32(len(p))); err != nil {
		return true, err
	}
	res, err := rdmap.ParseAtomicResponse(p)
	if err != nil {
		return true, err
	}
	r.atomics.Accept(len(p), true)
	r.ask = true
	return true, c.original(l, res)
}

// terminated ends the connection as the peer wishes. A read or atomic that it refuses gets its status
// from the Terminate.
func (c *conn) terminated(u []byte) {
	m, _ := rdmap.ParseTerminate(u[ddp.UntaggedLen:], !c.rx.live)
	fault := faultOf(m.Code, true, reason(m.Code), nil)
	if l, ok := c.onSend(); ok {
		if st, is := refusal(m.Code); is && refusesRequest(&m) {
			if e := c.tx.refused(&m); e != nil {
				pos := e.pos
				c.qp.Fault(l, fault)
				c.qp.Finish(l, pos, st, 0)
			}
		}
	}
	c.off()
	c.end(verbs.ConnBroken, fault)
	c.shut()
}

// refusesRequest reports whether a Terminate of RDMAP may be about a read or an atomic.
func refusesRequest(m *rdmap.Terminate) bool {
	if m.DDP == nil {
		return true
	}
	op := rdmap.Control(m.DDP[1]).Opcode()
	return op == rdmap.OpReadRequest || op == rdmap.OpAtomicRequest
}

// refused finds the request that a Terminate is about: the one with the quoted sequence number or, as not
// everybody quotes it right, the oldest.
func (t *tx) refused(m *rdmap.Terminate) *asked {
	var oldest *asked
	for i := t.asked.head; i != t.asked.tail; i++ {
		e := t.asked.at(i)
		if e.kind == askDone || e.kind == askRTR {
			continue
		}
		if oldest == nil {
			oldest = e
		}
		if len(m.DDP) == ddp.UntaggedLen && (*ddp.Untagged)(m.DDP).MSN() == e.msn {
			return e
		}
	}
	return oldest
}

// reason names the code of a Terminate.
func reason(code rddp.Code) string {
	s := code.String()
	if i := len("0/0/00 "); len(s) > i {
		return s[i:]
	}
	return s
}

// first takes note of the first FPDU that a passive side gets: now it may send, and in peer-to-peer
// mode the connection is established (RFC 5044 section 7.1.2, RFC 6581 section 9.2). taken
// reports that it was the RTR message and nothing else.
func (c *conn) first(op rdmap.Opcode, u []byte) (taken, ok bool) {
	r := &c.rx
	r.live = true
	if c.res.RTR == 0 {
		l, ok := c.onSend()
		if !ok {
			c.off()
			return false, false
		}
		c.tx.held = false
		c.fill(l)
		r.ask = true
		return false, true
	}
	c.off()
	c.drv.starting.remove(c)
	if r.here {
		r.due, ok = c.qp.EstablishHere(c, c.established(nil), nil)
	} else {
		ok = c.qp.Establish(c, c.established(nil), nil)
	}
	if !ok {
		return false, false
	}
	// A send without payload is the RTR message, and nobody's.
	if op == rdmap.OpSend && c.res.RTR&mpa.RTRSend != 0 && len(u) == ddp.UntaggedLen {
		h := (*ddp.Untagged)(u)
		if err := r.sends.Check(h.MSN(), h.MO(), 0, true, 0); err != nil || !h.Control().Last() {
			return false, true // judged as any other
		}
		r.sends.Accept(0, true)
		return true, true
	}
	return false, true
}

// established is the event of that name.
func (c *conn) established(private []byte) verbs.ConnEvent {
	ev := c.reads
	ev.PrivateData, ev.Local, ev.Remote = private, c.local, c.remote
	return ev
}
