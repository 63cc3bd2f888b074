package iwarp

import (
	"errors"
	"fmt"

	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/rddp"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/verbs"
)

// The causes of failed set-ups and of ended connections.
var (
	errBacklog   = errors.New("iwarp: too many requests wait for an answer")
	errClosed    = errors.New("iwarp: the connection was closed before it was established")
	errNoAnswer  = errors.New("iwarp: no answer in time")
	errNoReply   = errors.New("iwarp: the peer ended the connection instead of answering")
	errNoFPDU    = errors.New("iwarp: the peer sent no first message in time")
	errRejected  = errors.New("iwarp: rejected by the peer's consumer")
	errTruncated = &rddp.Error{Code: rddp.MPAClosed, Reason: "the stream ends inside an FPDU"}
	errStalled   = &rddp.Error{Code: rddp.MPAMarker, Reason: "an FPDU is not completed"}
	errLost      = &rddp.Error{Code: rddp.MPAClosed, Reason: "the TCP connection was lost"}
)

// Fault is the cause of a connection that ended by a violation of the protocol, or by a request that
// the peer could not serve. It is found with errors.As in verbs.ConnEvent.Err.
type Fault struct {
	// Layer, Type and Code are those of the Terminate message (RFC 5040 section 4.8, RFC 6580).
	Layer, Type, Code uint8
	// ByPeer reports that the peer found the fault and said so; otherwise this side did.
	ByPeer bool
	// Reason says it in words.
	Reason string
	// Err is the cause below, if there is one: that of a lost TCP connection.
	Err error
}

func (f *Fault) Error() string {
	who := "terminate sent"
	switch {
	case f.ByPeer:
		who = "terminated by the peer"
	case f.Layer == uint8(rddp.LayerLLP) && f.Code == uint8(rddp.MPAClosed&0xFF):
		who = "connection lost"
	}
	s := fmt.Sprintf("iwarp: %s: %s (%d/%d/%02x)", who, f.Reason, f.Layer, f.Type, f.Code)
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	return s
}

// Unwrap gives the cause below.
func (f *Fault) Unwrap() error { return f.Err }

func faultOf(code rddp.Code, byPeer bool, reason string, err error) *Fault {
	return &Fault{Layer: uint8(code.Layer()), Type: code.Type(), Code: code.Value(), ByPeer: byPeer, Reason: reason, Err: err}
}

// asFault describes an error that this side found.
func asFault(err error, below error) *Fault {
	if e, ok := errors.AsType[*rddp.Error](err); ok {
		return faultOf(e.Code, false, e.Reason, below)
	}
	return faultOf(rddp.RDMAPLocalCatastrophic, false, err.Error(), below)
}

// tagged is the error of an RDMA write, or of the sink of a read, that the target refuses (RFC 5041
// section 7.1). DDP has no code for a missing right.
func tagged(v softnic.Verdict, to uint64, n int) error {
	switch v {
	case softnic.BadBounds:
		if to+uint64(n) < to {
			return ddp.ErrTOWrap
		}
		return ddp.ErrBounds
	case softnic.BadDomain:
		return ddp.ErrSTagStream
	}
	return ddp.ErrSTag
}

// remote is the error of a read or an atomic that the target refuses (RFC 5040 section 7.2, RFC 7306
// section 8).
func remote(v softnic.Verdict, to uint64, n uint32) error {
	switch v {
	case softnic.BadBounds:
		if to+uint64(n) < to {
			return rdmap.ErrTOWrap
		}
		return rdmap.ErrBounds
	case softnic.BadDomain:
		return rdmap.ErrSTagStream
	case softnic.BadRight:
		return rdmap.ErrAccess
	case softnic.Misaligned:
		return rdmap.ErrMisaligned
	}
	return rdmap.ErrSTag
}

// untagged is the error of a send that the target refuses.
func untagged(v softnic.Verdict) error {
	switch v {
	case softnic.NotReady:
		return ddp.ErrNoBuffer
	case softnic.TooLong:
		return ddp.ErrTooLong
	case softnic.BadInvalidate:
		return rdmap.ErrInvalidate
	}
	return ddp.ErrLocal
}

// refusal is the status of a read or atomic that a Terminate of the peer answers.
func refusal(code rddp.Code) (verbs.Status, bool) {
	if code.Layer() != rddp.LayerRDMAP {
		return 0, false
	}
	switch code.Type() {
	case rddp.TypeRemoteProtection:
		return verbs.StatusRemoteAccess, true
	case rddp.TypeRemoteOperation:
		if code == rddp.RDMAPStreamCatastrophic {
			return verbs.StatusRemoteOp, true
		}
		return verbs.StatusRemoteInvalidRequest, true
	}
	return 0, false
}
