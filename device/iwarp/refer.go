package iwarp

import (
	"encoding/binary"
	"sync"

	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/internal/netio"
	"kdapl/verbs"
)

// Without CRCs, and without markers, the payload of a large send or write is not copied: a vectored write
// takes it from where it lies, with the lane held, and the request completes when TCP has taken
// the last byte.

// referLen is the length of a message from which that is worth holding the lane.
const referLen = 16 << 10

// refers reports that a message of n bytes is sent from where it lies.
func (t *tx) refers(m *outgoing) bool {
	return m.length >= referLen && !m.imm && !t.enc.CRC && !t.enc.Markers
}

// referring reports that messages are being sent from where they lie.
func (t *tx) referring() bool { return t.refs.count() > 0 }

// startRef begins a message that is sent from where it lies; several go into one vectored write. Others wait
// for them, and they for what is to be answered.
func (c *conn) startRef(m *outgoing) (softnic.Outcome, verbs.Status) {
	t := &c.tx
	if !t.refers(m) || !c.qp.Queued() || t.refLen >= netio.MaxBytes || t.referring() && t.answers.count() > 0 {
		t.fresh--
		return softnic.Stalled, 0
	}
	if t.segments++; t.segments%64 == 1 && !t.referring() {
		c.resize() // not in the middle of an FPDU
	}
	if m.op != rdmap.OpWrite {
		m.msn = t.sendMSN.Next()
	}
	m.pos = c.qp.Starting()
	*t.refs.push() = *m
	t.refLen += int(m.length)
	return softnic.Running, 0
}

// gatherer is room for the pieces of one vectored write: headers and trailers, and the list.
type gatherer struct {
	own []byte
	vec [][]byte
}

var gatherers = sync.Pool{New: func() any { return new(gatherer) }}

const (
	// trailerLen is the most that follows a payload.
	trailerLen = mpa.MaxPad + mpa.CRCLen
	// ownLen is the most that an FPDU has of its own.
	ownLen = mpa.LengthLen + 18 + trailerLen
)

var trailer [trailerLen]byte

// frame appends the parts of the FPDU with n bytes of payload from off on. There is room in own.
func (g *gatherer) frame(m *outgoing, v softnic.Vec, off, n uint32) {
	start := len(g.own)
	g.own = m.appendHeader(mpa.Begin(g.own), off, off+n == m.length)
	size := m.header() + int(n)
	binary.BigEndian.PutUint16(g.own[start:], uint16(size))
	g.vec = append(g.vec, g.own[start:len(g.own):len(g.own)])
	g.vec = v.Slices(g.vec, int(off), int(n))
	g.vec = append(g.vec, trailer[:mpa.PadLen(size)+mpa.CRCLen])
}

// drop takes n bytes from the front.
func (g *gatherer) drop(n int) {
	for i := 0; n > 0; i++ {
		k := min(n, len(g.vec[i]))
		g.vec[i] = g.vec[i][k:]
		n -= k
	}
}

// segmentLen is the payload of the FPDU from off on.
func (t *tx) segmentLen(m *outgoing, off uint32) uint32 {
	return min(m.length-off, uint32(t.mulpdu-m.header()))
}

// gather lists the FPDUs of the messages that are to be sent, up to the length of one vectored write. It
// reports false if the memory of the first is not there any more.
func (c *conn) gather(l *softnic.Lane, g *gatherer) bool {
	t := &c.tx
	total := 0
	for i := t.refs.head; i != t.refs.tail && total < netio.MaxBytes; i++ {
		m := t.refs.at(i)
		v, verdict := c.qp.Source(l, m.pos)
		if verdict != softnic.Accepted {
			return i != t.refs.head // a later one is judged when it is the first
		}
		for off := m.off; off < m.length && total < netio.MaxBytes; {
			k := t.segmentLen(m, off)
			g.frame(m, v, off, k)
			total += mpa.FPDULen(m.header() + int(k))
			off += k
		}
		v.Release()
	}
	g.drop(t.refs.at(t.refs.head).gone)
	return true
}

// refer makes one vectored write. The caller has the right to write, everything else is sent, and holds l,
// the lane of the send side.
func (c *conn) refer(l *softnic.Lane) (n int, err error) {
	t := &c.tx
	g := gatherers.Get().(*gatherer)
	// Each message may end in a short FPDU, beside those that are as long as can be.
	frames := netio.MaxBytes/(t.mulpdu-ownLen) + t.refs.count() + 1
	if cap(g.own) < frames*ownLen {
		g.own = make([]byte, 0, frames*ownLen)
	}
	all := g.vec[:0]
	g.own, g.vec = g.own[:0], all
	ok := c.gather(l, g)
	all = g.vec[:0:cap(g.vec)]
	if ok {
		l.Stay()
		n, err = c.nc.TryWritev(g.vec)
		l.Move()
	}
	clear(g.vec)
	g.vec = all
	gatherers.Put(g)
	if !ok {
		c.sourceGone(l, t.refs.at(t.refs.head).pos)
		return 0, nil
	}
	c.referred(l, n)
	return n, err
}

// referred counts n bytes as sent, and ends the messages that are.
func (c *conn) referred(l *softnic.Lane, n int) {
	t := &c.tx
	if !t.referring() {
		return
	}
	m := t.refs.at(t.refs.head)
	for m.gone += n; ; {
		k := t.segmentLen(m, m.off)
		size := mpa.FPDULen(m.header() + int(k))
		if m.gone < size {
			return
		}
		rest := m.gone - size
		m.gone = rest
		if m.off += k; m.off < m.length {
			continue
		}
		pos, length := m.pos, m.length
		t.refs.pop()
		t.refLen -= int(length)
		c.qp.Finish(l, pos, verbs.StatusSuccess, length)
		if !t.referring() {
			return
		}
		m = t.refs.at(t.refs.head)
		m.gone = rest
	}
}

// sourceGone fails a message in progress, whose memory is not there any more.
func (c *conn) sourceGone(l *softnic.Lane, pos uint32) {
	c.terminate(l, rdmap.ErrLocal, nil, 0)
	c.qp.Fault(l, asFault(rdmap.ErrLocal, nil))
	c.qp.Finish(l, pos, verbs.StatusLocalProtection, 0)
}

// mend copies the rest of an FPDU that is half sent, before its memory is the consumer's again: the
// stream ends between two FPDUs. If the memory is gone the stream cannot be mended.
func (c *conn) mend(l *softnic.Lane) {
	t := &c.tx
	if !t.referring() || t.refs.at(t.refs.head).gone == 0 {
		return
	}
	m := t.refs.at(t.refs.head)
	v, verdict := c.qp.Source(l, m.pos)
	if verdict != softnic.Accepted {
		t.torn = true
		return
	}
	g := gatherer{own: make([]byte, 0, ownLen)}
	g.frame(m, v, m.off, t.segmentLen(m, m.off))
	g.drop(m.gone)
	t.room(t.mulpdu)
	for _, p := range g.vec {
		t.out.b = append(t.out.b, p...)
	}
	v.Release()
	m.gone = 0
}
