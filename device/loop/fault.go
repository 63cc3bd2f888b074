package loop

import (
	"fmt"

	"kdapl/device/internal/softnic"
	"kdapl/verbs"
)

// Fault is the cause of a broken connection when the peer could not do what a request asked
// for. It is found with errors.As in ConnEvent.Err.
type Fault struct {
	// QPN is the number of the QP whose request it was.
	QPN uint32
	// WRID and Op are the request's.
	WRID uint64
	Op   verbs.Opcode
	// Layer, Type and Code are those of the Terminate message that an iWARP peer would have sent
	// (RFC 5040 4.8).
	Layer, Type, Code uint8
	// Reason says it in words.
	Reason string
}

func (f *Fault) Error() string {
	return fmt.Sprintf("loop: request %#x of QP %d: %s (terminate %d/%d/%02d)", f.WRID, f.QPN, f.Reason, f.Layer, f.Type, f.Code)
}

// fault describes a refusal.
func (c *conn) fault(q *softnic.QP, h *softnic.Head, v softnic.Verdict) error {
	f := &Fault{QPN: q.Num(), WRID: h.ID, Op: h.Op, Reason: v.String()}
	f.Layer, f.Type, f.Code = terminate(h.Op, v)
	return f
}

// terminate is the layer, type and code of a refusal: DDP finds what is wrong with a send or
// the sink of a write, RDMAP what is wrong with a read, an atomic or an invalidation.
func terminate(op verbs.Opcode, v softnic.Verdict) (layer, etype, code uint8) {
	const rdmap, ddp, protection, operation, tagged, untagged = 0, 1, 1, 2, 1, 2
	switch v {
	case softnic.NotReady:
		return ddp, untagged, 2
	case softnic.TooLong:
		return ddp, untagged, 5
	case softnic.BadInvalidate:
		return rdmap, protection, 9
	case softnic.Misaligned, softnic.RecvFault:
		return rdmap, operation, 7
	}
	if op == verbs.OpRDMAWrite || op == verbs.OpRDMAWriteImm {
		switch v {
		case softnic.BadBounds:
			return ddp, tagged, 1
		case softnic.BadDomain:
			return ddp, tagged, 2
		}
		return ddp, tagged, 0
	}
	switch v {
	case softnic.BadBounds:
		return rdmap, protection, 1
	case softnic.BadRight:
		return rdmap, protection, 2
	case softnic.BadDomain:
		return rdmap, protection, 3
	}
	return rdmap, protection, 0
}
