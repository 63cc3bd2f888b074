package iwarp

import (
	"encoding/binary"
	"sync/atomic"

	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/internal/netio"
	"kdapl/verbs"
)

// tx is the sending side of a connection. It is under the lane of the QP's send side, but for
// flight and sent, which belong to whoever has set writing.
//
// What is sent is copied into out, CRC included, so that what a CRC covers is what is sent,
// whatever happens to the source meanwhile; but see refer.go. A writer claims what is there, sends it without the lane,
// and looks for more; requests that find no room stay in the send queue.
type tx struct {
	enc    mpa.Encoder
	mulpdu int
	ird    int // requests of the peer that are answered at a time
	ord    int // and of this side that are under way

	out     buffer // encoded, not claimed
	flight  buffer // claimed
	sent    int    // of flight
	vec     [1][]byte
	writing bool
	blocked bool // the claim is left to the flusher, which waits for TCP, or to a poller
	spawned bool // there is a flusher
	fresh   int  // requests in out

	// pending tells pollers that there is something to send.
	pending atomic.Bool

	held      bool // the passive side may not send before the first FPDU (RFC 5044 section 7.1.2)
	stopped   bool // the send side was flushed
	drain     bool // the connection ends when everything is sent
	dead      bool // TCP takes nothing any more
	torn      bool // the stream ends inside an FPDU
	answering bool // a read response is half encoded

	cur      outgoing
	sendMSN  ddp.SendQueue
	askMSN   ddp.SendQueue
	reply    ddp.SendQueue  // of atomic responses
	asked    ring[asked]    // own reads and atomics under way
	answers  ring[answer]   // those of the peer
	refs     ring[outgoing] // messages that are sent from where they lie
	refLen   int            // their lengths together
	segments int            // messages of several segments
	head     softnic.Head   // scratch
}

// idle reports that there is nothing to send, or nothing more can be sent.
func (t *tx) idle() bool {
	return t.dead || t.out.empty() && !t.writing && !t.cur.active && !t.referring()
}

// room makes sure that an FPDU with a ULPDU of n bytes fits.
func (t *tx) room(n int) bool { return t.out.room(t.frameLen(n)) }

// stop drops what has not been encoded.
func (t *tx) stop() {
	t.stopped, t.answering = true, false
	t.cur = outgoing{}
	t.asked, t.answers = ring[asked]{}, ring[answer]{}
	t.refs, t.refLen = ring[outgoing]{}, 0
}

// whole encodes a message of one segment. There is room.
func (t *tx) whole(m *outgoing, v softnic.Vec) {
	b := t.out.b
	start := len(b)
	b = mpa.Begin(b)
	if m.op == rdmap.OpWrite {
		b = rdmap.AppendWrite(b, true, m.stag, m.to)
	} else {
		b = rdmap.AppendSend(b, m.op, true, m.inv, t.sendMSN.Next(), 0)
	}
	if n := v.Len(); n > 0 {
		b = v.Append(b, 0, n)
	}
	t.out.b = t.enc.Finish(b, start)
}

// startCut begins a message of several segments, and is done with it if all of it fits.
func (c *conn) startCut(l *softnic.Lane, m *outgoing, v softnic.Vec) (softnic.Outcome, verbs.Status) {
	t := &c.tx
	if t.segments++; t.segments%64 == 1 {
		c.resize()
	}
	n := int(m.length)
	frames := n/(t.mulpdu-m.header()) + 1
	size := t.frameLen(n+frames*m.header()) + frames*(2+3+4)
	if m.imm {
		size += t.frameLen(18 + rdmap.ImmediateLen)
	}
	fits := size <= largeLen-len(t.out.b)
	if !fits && !c.qp.Queued() {
		t.fresh--
		return softnic.Stalled, 0
	}
	if m.op != rdmap.OpWrite {
		m.msn = t.sendMSN.Next()
	}
	t.cur = *m
	t.cur.active, t.cur.pos = true, c.qp.Starting()
	if c.cut(v) {
		return softnic.Done, verbs.StatusSuccess
	}
	return softnic.Running, 0
}

// cut encodes more of the current message and reports whether that was the rest.
func (c *conn) cut(v softnic.Vec) bool {
	t := &c.tx
	m := &t.cur
	for first := m.off == 0; first || m.off < m.length; first = false {
		n := min(int(m.length-m.off), t.mulpdu-m.header())
		if !t.room(m.header() + n) {
			return false
		}
		b := t.out.b
		start := len(b)
		b = m.appendHeader(mpa.Begin(b), m.off, m.off+uint32(n) == m.length)
		if n > 0 {
			b = v.Append(b, int(m.off), n)
		}
		t.out.b = t.enc.Finish(b, start)
		m.off += uint32(n)
		if m.length == 0 {
			break
		}
	}
	if m.imm {
		if !t.room(18 + rdmap.ImmediateLen) {
			return false
		}
		op := rdmap.OpImmediate
		if m.se {
			op = rdmap.OpImmediateSE
		}
		// The 32 bits stand in the first half, as other implementations have it.
		var data [rdmap.ImmediateLen]byte
		binary.BigEndian.PutUint32(data[:], m.immed)
		b := t.out.b
		start := len(b)
		b = rdmap.AppendImmediate(mpa.Begin(b), op, t.sendMSN.Next(), data)
		t.out.b = t.enc.Finish(b, start)
	}
	m.active = false
	return true
}

// fill encodes what waits, as far as there is room: the rest of the current message, then answers to the
// peer, then further requests. The caller holds l, the lane of the send side.
func (c *conn) fill(l *softnic.Lane) {
	t := &c.tx
	if t.stopped || t.held {
		return
	}
	if t.referring() {
		if t.answers.count() == 0 {
			c.qp.Pump(l)
		}
		return
	}
	if m := &t.cur; m.active {
		v, verdict := c.qp.Source(l, m.pos)
		if verdict != softnic.Accepted {
			c.sourceGone(l, m.pos)
			return
		}
		pos, n := m.pos, m.length
		done := c.cut(v)
		v.Release()
		if !done {
			return
		}
		c.qp.Finish(l, pos, verbs.StatusSuccess, n)
	}
	c.answer(l)
	if !t.stopped && !t.answering {
		c.qp.Pump(l)
	}
}

// terminate encodes the Terminate message for an error, as the last thing that is sent. The caller holds
// the lane of the send side.
func (c *conn) terminate(l *softnic.Lane, err error, ulpdu []byte, n int) {
	t := &c.tx
	c.mend(l)
	m, ok := rdmap.TerminateFor(err, ulpdu, n)
	if t.stopped || t.held || t.torn || !ok {
		t.stop()
		return
	}
	t.stop()
	t.out.room(t.frameLen(rdmap.MaxTerminateULPDULen)) // if not, it grows out of the pool's buffer
	b := t.out.b
	start := len(b)
	t.out.b = t.enc.Finish(rdmap.AppendTerminate(mpa.Begin(b), m), start)
}

// claim takes the right to write, if there is something to write or the stream is to be ended. The
// caller holds the lane of the send side.
func (c *conn) claim() bool {
	t := &c.tx
	if t.writing || t.out.empty() && !t.referring() && !c.closing.Load() {
		return false
	}
	t.take()
	return true
}

// take makes out the flight.
func (t *tx) take() {
	t.flight, t.out, t.sent, t.fresh = t.out, buffer{}, 0, 0
	t.writing = true
	t.pending.Store(false)
}

// push sends what is there, as far as TCP takes it.
func (c *conn) push() bool {
	l := c.qp.Lane()
	l.Lock()
	switch {
	case c.tx.blocked:
		c.tx.blocked = false
	case !c.claim():
		if !c.tx.blocked {
			c.tx.pending.Store(false)
		}
		l.Unlock()
		return false
	}
	l.Unlock()
	return c.write(postRounds)
}

// write sends the flight and what is encoded meanwhile. The caller has the right to write, and has it no
// more when write returns. It reports whether anything was sent.
func (c *conn) write(rounds int) (moved bool) {
	t := &c.tx
	l := c.qp.Lane()
	for {
		for t.sent < len(t.flight.b) {
			t.vec[0] = t.flight.b[t.sent:min(len(t.flight.b), t.sent+netio.MaxBytes)]
			n, err := c.nc.TryWritev(t.vec[:])
			if err == netio.ErrWouldBlock {
				c.leave(l)
				return moved
			}
			if err != nil {
				c.unwritable(l)
				return moved
			}
			moved = true
			t.sent += n
		}
		l.Lock()
		t.flight.release()
		t.sent = 0
		c.fill(l)
		var err error
		switch {
		case !t.out.empty():
			t.take()
		case t.referring():
			var n int
			n, err = c.refer(l)
			moved = moved || n > 0
		default:
			c.allWritten(l)
			return moved
		}
		l.Unlock()
		if rounds--; rounds == 0 && err == nil {
			err = netio.ErrWouldBlock
		}
		switch err {
		case nil:
		case netio.ErrWouldBlock:
			c.leave(l)
			return moved
		default:
			c.unwritable(l)
			return moved
		}
	}
}

// allWritten gives up the right to write, or ends the stream if the connection has ended. The caller holds
// the lane, which it releases.
func (c *conn) allWritten(l *softnic.Lane) {
	t := &c.tx
	if c.closing.Load() {
		torn := t.torn
		l.Unlock() // writing stays set: nothing is written behind this
		if torn {
			c.abort()
			return
		}
		c.nc.CloseWrite()
		c.done(false, true)
		return
	}
	t.writing = false
	drained := t.drain && t.idle()
	l.Unlock()
	if drained {
		c.qp.End(c, verbs.ConnDisconnected, nil)
	}
}

// leave leaves the flight to the flusher or, if the consumer polls, to it.
func (c *conn) leave(l *softnic.Lane) {
	t := &c.tx
	l.Lock()
	t.blocked = true
	t.pending.Store(true)
	spawn := !t.spawned && !c.driven.Load()
	t.spawned = t.spawned || spawn
	l.Unlock()
	if spawn {
		go c.flushFn()
	}
}

// unwritable gives up sending. The reader finds out why, and what the peer has said before.
func (c *conn) unwritable(l *softnic.Lane) {
	t := &c.tx
	l.Lock()
	t.dead = true
	t.flight.release()
	t.out.release()
	t.pending.Store(false)
	drained := t.drain
	l.Unlock() // writing stays set
	c.done(false, true)
	if drained {
		c.qp.End(c, verbs.ConnDisconnected, nil)
	}
}

// flusher sends what nobody else sends: what gathers while requests are outstanding, and what TCP did not
// take at once, unless the consumer polls. It ends when there is nothing left for it.
func (c *conn) flusher() {
	t := &c.tx
	l := c.qp.Lane()
	yield() // the poster may have more
	for idle := 0; ; {
		l.Lock()
		switch {
		case t.blocked && c.driven.Load():
			t.spawned = false
			l.Unlock()
			return
		case t.blocked && idle > 0:
			l.Unlock()
			if c.help() {
				continue
			}
			c.nc.WaitWritable() // its error is found again by the write
			idle = 0
			continue
		case t.blocked:
			t.blocked = false
		case !c.claim():
			t.spawned = false
			l.Unlock()
			return
		}
		l.Unlock()
		if c.write(-1) {
			idle = 0
		} else {
			idle++
		}
	}
}

// resume starts a flusher if there is something to send and nobody who does. Pollers have left.
func (c *conn) resume() {
	t := &c.tx
	l := c.qp.Lane()
	l.Lock()
	spawn := !t.spawned && (t.blocked || !t.writing && (!t.out.empty() || t.referring()))
	t.spawned = t.spawned || spawn
	l.Unlock()
	if spawn {
		c.flusher()
	}
}
