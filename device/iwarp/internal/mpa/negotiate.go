package mpa

import "errors"

// ErrRejected: the Reply rejects the connection (R bit). Its private data says why,
// if anything does.
var ErrRejected = errors.New("mpa: connection rejected by the peer")

// Local is what one side wants of a connection, and the limits of what it can do.
type Local struct {
	Rev     uint8 // 1 or 2: the revision of a Request, the highest one of a Reply
	CRC     bool  // wants CRCs; false is a preference that the peer can overrule
	Markers bool  // wants markers in what it receives
	GSO     bool  // agrees to FPDUs larger than a TCP segment (FlagGSO)

	// PeerToPeer asks, as initiator, for an RTR message; a responder follows the
	// Request. RTR is what an initiator can send and what a responder understands;
	// a responder must understand at least one kind (RFC 6581 section 9.2).
	PeerToPeer bool
	RTR        RTR

	// IRD and ORD are the wanted depths, up to MaxDepth. IRD may be raised to
	// MaxIRD if the peer wants more; a MaxIRD below IRD counts as IRD.
	IRD, ORD, MaxIRD uint16
	// RequireORD makes a responder reject a peer whose IRD is below ORD, instead of
	// lowering ORD.
	RequireORD bool
	// LeaveDepths makes an initiator leave both depths to the ULPs: it sends
	// NotNegotiated and keeps IRD and ORD whatever the Reply says.
	LeaveDepths bool
}

// Result is what a finished negotiation means for one side.
type Result struct {
	Rev            uint8
	Enhanced       bool
	CRC            bool // generate and check CRCs, in both directions
	SendMarkers    bool // insert markers into what this side sends
	ReceiveMarkers bool // remove them from what it receives
	GSO            bool
	IRD, ORD       uint16 // in force at this side
	// PeerIRD and PeerORD are the peer's own words, for the ULP (RFC 6581 section
	// 9.1), on rejection too; NotNegotiated in a plain frame.
	PeerIRD, PeerORD uint16
	// RTR is, for the initiator, the one message to send before any other FPDU; for
	// the responder, the kinds it named, one of which comes first. 0: none is due.
	RTR RTR
}

// Request is the initiator's frame.
func (l Local) Request() Header {
	h := Header{Rev: l.Rev, Flags: l.flags()}
	if l.Rev < 2 {
		return h
	}
	h.Flags |= FlagEnhanced
	h.Enhanced = Enhanced{IRD: l.ird(), ORD: min(l.ORD, MaxDepth)}
	if l.PeerToPeer {
		h.Enhanced.PeerToPeer, h.Enhanced.RTR = true, l.RTR
		if l.RTR == RTRRead {
			// Only a Read can be sent, so one must be allowed. (Section 9.1 lets the
			// responder raise its IRD by itself; asking is surer.)
			h.Enhanced.ORD = max(h.Enhanced.ORD, 1)
		}
	}
	if l.LeaveDepths {
		h.Enhanced.IRD, h.Enhanced.ORD = NotNegotiated, NotNegotiated
	}
	return h
}

func (l Local) flags() (f Flags) {
	if l.CRC {
		f |= FlagCRC
	}
	if l.Markers {
		f |= FlagMarkers
	}
	if l.GSO {
		f |= FlagGSO
	}
	return f
}

func (l Local) ird() uint16    { return min(l.IRD, MaxDepth) }
func (l Local) maxIRD() uint16 { return min(max(l.IRD, l.MaxIRD), MaxDepth) }

// Answer is the responder's side: the Reply to a Request, and what holds after it.
//
// [ErrRevision] means close without a Reply. [ErrInsufficientIRD] (RequireORD is
// set) and [ErrNoRTR] (RTR is empty) come with a rejecting Reply that names what
// this side needs.
func (l Local) Answer(req Header) (Header, Result, error) {
	if req.Rev < 1 || req.Rev > l.Rev || req.Rev > 2 {
		return Header{}, Result{}, ErrRevision
	}
	rep := Header{Rev: req.Rev, Flags: l.flags()}
	// The Reply says what will be: some initiators refuse C=0 after they asked for
	// CRC, though either side's bit turns it on (RFC 5044 section 7.1.1).
	rep.Flags |= req.Flags & FlagCRC
	rep.Flags &^= FlagGSO &^ req.Flags
	r := Result{
		Rev: req.Rev, Enhanced: req.HasEnhanced(),
		CRC:         rep.Flags&FlagCRC != 0,
		SendMarkers: req.Flags&FlagMarkers != 0, ReceiveMarkers: l.Markers,
		GSO: rep.Flags&FlagGSO != 0,
		IRD: l.ird(), ORD: min(l.ORD, MaxDepth),
		PeerIRD: NotNegotiated, PeerORD: NotNegotiated,
	}
	if !r.Enhanced {
		return rep, r, nil
	}
	rep.Flags |= FlagEnhanced
	peer := req.Enhanced
	r.PeerIRD, r.PeerORD = peer.IRD, peer.ORD

	// RFC 6581 section 9.2: every offered kind that this side has; if there is
	// none, one that it has all the same.
	if peer.PeerToPeer {
		r.RTR = peer.RTR & l.RTR
		if r.RTR == 0 {
			r.RTR = l.RTR
		}
		rep.Enhanced.PeerToPeer, rep.Enhanced.RTR = true, r.RTR
	}
	// Section 9.1.
	if peer.ORD != NotNegotiated {
		r.IRD = min(max(r.IRD, peer.ORD), l.maxIRD())
	}
	if r.RTR&RTRRead != 0 {
		r.IRD = max(r.IRD, 1)
	}
	rep.Enhanced.IRD = r.IRD
	if peer.ORD == NotNegotiated {
		rep.Enhanced.IRD = NotNegotiated
	}
	var err error
	switch {
	case peer.IRD == NotNegotiated:
		rep.Enhanced.ORD = NotNegotiated
	case r.ORD > peer.IRD && l.RequireORD:
		rep.Enhanced.ORD = r.ORD
		err = ErrInsufficientIRD
	default:
		r.ORD = min(r.ORD, peer.IRD)
		rep.Enhanced.ORD = r.ORD
	}
	if peer.PeerToPeer && r.RTR == 0 {
		err = ErrNoRTR
	}
	if err != nil {
		rep.Flags |= FlagReject
	}
	return rep, r, err
}

// Reject is the responder's Reply when its ULP refuses the connection. It is
// enhanced if the Request is, and then names the depths of an acceptance. A Request
// that [Local.Answer] refuses with [ErrRevision] gets no Reply; ok is false.
func (l Local) Reject(req Header) (h Header, ok bool) {
	h, _, err := l.Answer(req)
	h.Flags |= FlagReject
	return h, err != ErrRevision
}

// Conclude is the initiator's side: what a Reply to req, its own Request, means.
//
// [ErrRejected] comes with the peer's depths in the Result. [ErrRevision] and
// [ErrEnhancedReply] mean close; [ErrInsufficientIRD] and [ErrNoRTR] mean send a
// Terminate with their code and close. After a close without any Reply the peer
// may know revision 1 only (RFC 6581 section 10).
func (l Local) Conclude(req, rep Header) (Result, error) {
	r := Result{
		Rev: rep.Rev, Enhanced: rep.HasEnhanced(),
		CRC:         (req.Flags|rep.Flags)&FlagCRC != 0,
		SendMarkers: rep.Flags&FlagMarkers != 0, ReceiveMarkers: req.Flags&FlagMarkers != 0,
		GSO: req.Flags&rep.Flags&FlagGSO != 0,
		IRD: l.ird(), ORD: min(l.ORD, MaxDepth),
		PeerIRD: NotNegotiated, PeerORD: NotNegotiated,
	}
	if rep.Rev < 1 || rep.Rev > req.Rev {
		return r, ErrRevision
	}
	peer := rep.Enhanced
	if r.Enhanced {
		r.PeerIRD, r.PeerORD = peer.IRD, peer.ORD
	}
	if rep.Flags&FlagReject != 0 {
		return r, ErrRejected
	}
	if r.Enhanced != req.HasEnhanced() {
		return r, ErrEnhancedReply
	}
	if !r.Enhanced {
		return r, nil
	}
	// RFC 6581 section 9.1: ORD at most the peer's IRD, IRD at least the peer's ORD.
	if peer.IRD != NotNegotiated && req.Enhanced.ORD != NotNegotiated {
		r.ORD = min(r.ORD, peer.IRD)
	}
	if peer.ORD != NotNegotiated && req.Enhanced.IRD != NotNegotiated {
		if r.IRD = max(r.IRD, peer.ORD); r.IRD > l.maxIRD() {
			return r, ErrInsufficientIRD
		}
	}
	// Section 9.2. A Reply with A=1 to a Request with A=0 asks for nothing.
	if req.Enhanced.PeerToPeer {
		var named RTR // B, C and D mean nothing while A is 0
		if peer.PeerToPeer {
			named = peer.RTR & req.Enhanced.RTR
		}
		if r.RTR = chooseRTR(named, peer.IRD); r.RTR == 0 {
			return r, ErrNoRTR
		}
	}
	return r, nil
}

// chooseRTR picks the message to send: a Write disturbs nothing, a Read needs a
// place in the peer's inbound read queue, a Send takes a receive buffer.
func chooseRTR(kinds RTR, peerIRD uint16) RTR {
	switch {
	case kinds&RTRWrite != 0:
		return RTRWrite
	case kinds&RTRRead != 0 && peerIRD != 0:
		return RTRRead
	}
	return kinds & RTRSend
}
