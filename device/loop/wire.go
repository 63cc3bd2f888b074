package loop

import (
	"encoding/binary"
	"time"

	"kdapl/device/internal/softnic"
	"kdapl/verbs"
)

// wire is the loop's part of a QP: the way to the peer.
//
// For two connected QPs A and B the lane of A's send side is also the lane of B's receive side,
// and the other way around. So a request of A runs from end to end under one lock, and B's
// posting of a receive can let a waiting request of A go on.
type wire struct {
	qp  *softnic.QP
	dev *Device

	// Under the lane of the send side.
	conn  *conn
	rnr   *time.Timer // runs while the first request waits for a receive
	stall uint64      // counts such waits

	// Under the lane of the receive side.
	from *wire // who sends to this QP
	side *conn // the connection that from belongs to
}

// Start implements [softnic.Wire].
func (w *wire) Start(l *softnic.Lane, h *softnic.Head, v softnic.Vec) (softnic.Outcome, verbs.Status) {
	p := w.qp.Peer()
	if p == nil {
		if w.qp.Type() == verbs.UD {
			w.datagram(l, h, v)
			return softnic.Done, verbs.StatusSuccess
		}
		return softnic.Stalled, 0
	}
	var verdict softnic.Verdict
	switch h.Op {
	case verbs.OpSend, verbs.OpSendImm, verbs.OpSendInval:
		verdict = p.TargetSend(l, h, v)
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
		verdict = p.TargetWrite(l, h, v)
	case verbs.OpRDMARead, verbs.OpRDMAReadInval:
		verdict = p.TargetRead(l, h, v)
		if verdict == softnic.Accepted && h.Op == verbs.OpRDMAReadInval && !w.qp.InvalidateSink(l, h.InvKey) {
			return softnic.Done, verbs.StatusMemoryManagement
		}
	default:
		var b [8]byte
		var before uint64
		if before, verdict = p.TargetAtomic(l, h); verdict == softnic.Accepted {
			binary.NativeEndian.PutUint64(b[:], before)
			softnic.CopyVec(v, softnic.VecOf(b[:]))
		}
	}
	if verdict == softnic.Accepted {
		return softnic.Done, verbs.StatusSuccess
	}
	return w.refused(l, h, verdict)
}

// refused turns what the peer thinks of a request into its outcome here.
func (w *wire) refused(l *softnic.Lane, h *softnic.Head, v softnic.Verdict) (softnic.Outcome, verbs.Status) {
	if v == softnic.NotReady {
		if !w.qp.Peer().Receiving() {
			return softnic.Stalled, 0 // the peer's side of the set-up is not through yet
		}
		if w.dev.attr.Can(verbs.CapRNR) {
			w.startRNR()
			return softnic.Stalled, 0
		}
	}
	cause := w.conn.fault(w.qp, h, v)
	w.qp.Fault(l, cause)
	if w.dev.attr.Completion == verbs.SourceReusable {
		switch h.Op {
		case verbs.OpRDMARead, verbs.OpRDMAReadInval, verbs.OpFetchAdd, verbs.OpCompareSwap:
			return softnic.Done, verbs.StatusRemoteAccess
		}
		// The source was free as soon as the message had left; what the peer thinks of it
		// shows as the connection's end.
		return softnic.Done, verbs.StatusSuccess
	}
	switch v {
	case softnic.TooLong, softnic.Misaligned:
		return softnic.Done, verbs.StatusRemoteInvalidRequest
	case softnic.RecvFault:
		return softnic.Done, verbs.StatusRemoteOp
	case softnic.NotReady:
		return softnic.Done, verbs.StatusRNRRetryExceeded
	}
	return softnic.Done, verbs.StatusRemoteAccess
}

// startRNR starts the clock of a request that waits for a receive.
func (w *wire) startRNR() {
	if w.rnr != nil || w.dev.cfg.RNRTimeout <= 0 {
		return
	}
	w.stall++
	n := w.stall
	w.rnr = time.AfterFunc(w.dev.cfg.RNRTimeout, func() { w.rnrOver(n) })
}

func (w *wire) rnrOver(n uint64) {
	l := w.qp.Lane()
	l.Lock()
	if w.rnr != nil && w.stall == n {
		w.rnr = nil
		w.qp.GiveUp(l, verbs.StatusRNRRetryExceeded, errRNR)
	}
	l.Unlock()
}

func (w *wire) stopRNR() {
	if w.rnr != nil {
		w.rnr.Stop()
		w.rnr = nil
	}
}

// Posted implements [softnic.Wire]; a direct wire has no use for it.
func (w *wire) Posted(*softnic.Lane) {}

// RecvReady implements [softnic.Wire].
func (w *wire) RecvReady(l *softnic.Lane) {
	if w.from != nil {
		w.from.stopRNR()
		w.from.qp.Pump(l)
	}
}

// SendStopped implements [softnic.Wire].
func (w *wire) SendStopped(*softnic.Lane) {
	w.stopRNR()
	w.qp.SetPeer(nil)
	w.conn = nil
}

// RecvStopped implements [softnic.Wire].
func (w *wire) RecvStopped(*softnic.Lane) {
	if w.side != nil {
		w.side.cut(w)
		w.from, w.side = nil, nil
	}
	if w.qp.Type() == verbs.RC {
		w.qp.SetRecvLane(nil)
	}
}

// Ready implements [softnic.Wire].
func (w *wire) Ready() { fabric.addUD(w.qp) }

// Close implements [softnic.Wire].
func (w *wire) Close() {
	if w.qp.Type() == verbs.UD {
		fabric.removeUD(w.qp)
	}
}

// datagram sends to a UD QP of the process, if it is there and wants it.
func (w *wire) datagram(l *softnic.Lane, h *softnic.Head, v softnic.Vec) {
	ah := w.qp.Context().LookupAH(h.AH)
	if ah == nil {
		return
	}
	to := fabric.findUD(ah.Addr().IP, h.RemoteQPN)
	if to == nil {
		return
	}
	d := softnic.Datagram{From: w.dev.cfg.Addr, To: ah.Addr().IP, SrcQPN: w.qp.Num(), QKey: h.QKey}
	to.TargetDatagram(l, &d, h, v)
}
