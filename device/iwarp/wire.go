package iwarp

import (
	"runtime"

	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/verbs"
)

func yield() { runtime.Gosched() }

// wire is the part of a QP that stays when connections come and go.
type wire struct {
	qp   *softnic.QP
	drv  *driver
	recv softnic.Lane // the lane of the receive side

	c  *conn // under the lane of the send side
	rc *conn // under the lane of the receive side
}

var _ softnic.Doorbell = (*wire)(nil)

// Start implements [softnic.Wire]. What fits is copied into the transmit buffer, and is over: its source
// may be reused.
func (w *wire) Start(l *softnic.Lane, h *softnic.Head, v softnic.Vec) (softnic.Outcome, verbs.Status) {
	c := w.c
	if c == nil {
		return softnic.Stalled, 0
	}
	t := &c.tx
	if t.held || t.cur.active || t.answering {
		return softnic.Stalled, 0
	}
	t.fresh++
	switch h.Op {
	case verbs.OpSend, verbs.OpSendInval, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
		m := message(h, v.Len())
		if t.refers(&m) || t.referring() {
			return c.startRef(&m)
		}
		if n := v.Len(); n+m.header() <= t.mulpdu && h.Op != verbs.OpRDMAWriteImm {
			if !t.room(n + m.header()) {
				t.fresh--
				return softnic.Stalled, 0
			}
			t.whole(&m, v)
			return softnic.Done, verbs.StatusSuccess
		}
		return c.startCut(l, &m, v)
	case verbs.OpRDMARead, verbs.OpRDMAReadInval, verbs.OpFetchAdd, verbs.OpCompareSwap:
		if w.qp.Queued() && !t.referring() && t.room(maxRequest) && t.asked.count() < t.ord {
			t.ask(w.qp, h, v.Len())
			return softnic.Running, 0
		}
	}
	t.fresh--
	return softnic.Stalled, 0
}

// maxRequest is the ULPDU of the longest request.
const maxRequest = 18 + rdmap.AtomicRequestLen

// Posted implements [softnic.Wire]; see Rang.
func (w *wire) Posted(*softnic.Lane) {}

const (
	// fullBatch is how much is gathered before the poster sends it itself.
	fullBatch = 32 << 10
	// postRounds bounds how long a poster goes on sending.
	postRounds = 8
)

// Rang implements [softnic.Doorbell]. The only request of an idle QP is sent at once, by the poster;
// others gather until the batch is full, the consumer polls, or the flusher comes to it, which is
// started for them.
func (w *wire) Rang(l *softnic.Lane) bool {
	w.qp.Pump(l)
	c := w.c
	if c == nil {
		return false
	}
	t := &c.tx
	if t.writing || t.out.empty() && !t.referring() {
		return false
	}
	switch {
	case len(t.out.b) >= fullBatch, t.referring():
		return true
	case t.spawned:
		return false
	case !w.qp.Busy(t.fresh):
		return true
	}
	t.pending.Store(true)
	t.spawned = true
	go c.flushFn()
	return false
}

// Flush implements [softnic.Doorbell].
func (w *wire) Flush() {
	l := w.qp.Lane()
	l.Lock()
	c := w.c
	if c == nil || !c.claim() {
		l.Unlock()
		return
	}
	l.Unlock()
	c.write(postRounds)
}

// RecvReady implements [softnic.Wire]; nothing waits for a receive.
func (w *wire) RecvReady(*softnic.Lane) {}

// SendStopped implements [softnic.Wire].
func (w *wire) SendStopped(l *softnic.Lane) {
	if w.c != nil {
		w.c.mend(l)
		w.c.tx.stop()
		w.c = nil
	}
}

// RecvStopped implements [softnic.Wire].
func (w *wire) RecvStopped(*softnic.Lane) { w.rc = nil }

// Ready implements [softnic.Wire]; there are no UD QPs.
func (w *wire) Ready() {}

// Close implements [softnic.Wire].
func (w *wire) Close() {}

// outgoing is a send or a write on its way: from which the headers of its segments are made.
type outgoing struct {
	active bool
	imm    bool // immediate data follows
	se     bool
	op     rdmap.Opcode
	pos    uint32 // of the request
	msn    uint32
	inv    uint32
	immed  uint32
	stag   uint32
	to     uint64
	off    uint32 // what is encoded, or sent in whole segments
	length uint32
	gone   int // what is sent of the FPDU at off, of a message that is sent from where it lies
}

// message describes a send or a write.
func message(h *softnic.Head, n int) outgoing {
	m := outgoing{length: uint32(n)}
	se := h.Flags&verbs.SendSolicited != 0
	switch h.Op {
	case verbs.OpSend:
		m.op = rdmap.OpSend
		if se {
			m.op = rdmap.OpSendSE
		}
	case verbs.OpSendInval:
		m.op, m.inv = rdmap.OpSendInv, h.InvKey
		if se {
			m.op = rdmap.OpSendSEInv
		}
	default:
		m.op, m.stag, m.to = rdmap.OpWrite, h.RemoteKey, h.RemoteAddr
		if h.Op == verbs.OpRDMAWriteImm {
			m.imm, m.immed, m.se = true, h.Imm, se
		}
	}
	return m
}

// header is the length of the DDP header of a segment.
func (m *outgoing) header() int {
	if m.op == rdmap.OpWrite {
		return 14
	}
	return 18
}

// appendHeader appends the header of the segment with the payload from off on.
func (m *outgoing) appendHeader(b []byte, off uint32, last bool) []byte {
	if m.op == rdmap.OpWrite {
		return rdmap.AppendWrite(b, last, m.stag, m.to+uint64(off))
	}
	return rdmap.AppendSend(b, m.op, last, m.inv, m.msn, off)
}

// frameLen is an FPDU with a ULPDU of n bytes, with the most markers.
func (t *tx) frameLen(n int) int {
	size := mpa.FPDULen(n)
	if t.enc.Markers {
		size += mpa.MarkerLen * (size/(mpa.MarkerInterval-mpa.MarkerLen) + 2)
	}
	return size
}
