package dat

import (
	"errors"
	"fmt"
	"net/netip"

	"kdapl/verbs"
)

// CR is a connection request that a service point received. It lives until it is accepted,
// rejected or handed off.
type CR struct {
	base
	req      verbs.ConnRequest
	sp       Object // nil for an RSP's, which is gone
	ep       *EP    // that comes with the request, if one does
	connQual uint64
}

// CRParam is what Query tells (DAT_CR_PARAM).
type CRParam struct {
	// RemoteAddress and RemotePortQual are the peer's.
	RemoteAddress  netip.Addr
	RemotePortQual uint64
	// PrivateData is the peer's, valid until the CR is answered.
	PrivateData []byte
	// LocalEP is the EP that comes with the request; nil if Accept must name one.
	LocalEP *EP
	// ReadsIn and ReadsOut are the read depths that the peer wishes, seen from here: what
	// an EP's MaxRDMAReadIn and MaxRDMAReadOut would meet.
	ReadsIn, ReadsOut int
}

// Query tells the request's parameters (dat_cr_query). It does not block.
func (cr *CR) Query() (CRParam, error) {
	if cr.gone() {
		return CRParam{}, cr.errGone("cr_query")
	}
	r := cr.req
	return CRParam{
		RemoteAddress: r.Remote().IP, RemotePortQual: r.Remote().Port, PrivateData: r.PrivateData(), LocalEP: cr.ep,
		ReadsIn: r.ReadsIn(), ReadsOut: r.ReadsOut(),
	}, nil
}

// Accept accepts the request (dat_cr_accept), with an EP in StateUnconnected or, if one comes with the
// request, with nil. The EP goes to StateCompletionPending; ConnectionEstablished or, if the
// peer is gone or the set-up fails, ConnectionAcceptCompletionError follows on its Connect EVD. The
// CR is gone then. It does not block.
//
// INVALID_HANDLE (EP): nil, freed, of another IA, or one too many. INVALID_STATE: the EP's state, or
// EP_NOTREADY without PZ or Connect EVD. INVALID_PARAMETER (ARG3): too much private data. The CR stays
// valid then.
func (cr *CR) Accept(ep *EP, privateData []byte) error {
	const op = "cr_accept"
	if cr.gone() {
		return cr.errGone(op)
	}
	switch {
	case cr.ep != nil && ep != nil && ep != cr.ep:
		return cr.fail(op, InvalidHandle, InvalidHandleEP, nil, "an EP comes with the request; accept with nil")
	case cr.ep != nil:
		ep = cr.ep
	case ep.gone() || ep.ia != cr.ia:
		return cr.fail(op, InvalidHandle, InvalidHandleEP, nil, "the EP is nil, was freed, or is of another IA")
	}
	if len(privateData) > cr.ia.provider.MaxPrivateDataSize {
		return cr.tooLong(op, len(privateData), InvalidArg3)
	}
	ep.ctl.Lock()
	defer ep.ctl.Unlock()
	if _, _, ud := cr.req.RemoteQP(); ud != (ep.attr.ServiceType == ServiceUD) {
		return cr.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("%v is of service %v, the request is not", ep, ep.attr.ServiceType))
	} else if ud {
		return cr.acceptDatagrams(op, ep, privateData)
	}
	before := ep.loadState()
	if cr.ep == nil && before != StateUnconnected {
		return ep.fail(op, InvalidState, before.Subtype(), nil, "the EP is in state "+before.String())
	}
	if err := ep.leaveUnconnected(op, causeAccept); err != nil {
		return err
	}
	if !cr.answer() {
		ep.returnTo(before)
		return cr.errGone(op)
	}
	err := cr.req.Accept(ep.qp, verbs.ConnParams{
		PrivateData: privateData, ReadsIn: ep.attr.MaxRDMAReadIn, ReadsOut: ep.attr.MaxRDMAReadOut,
	})
	switch {
	case errors.Is(err, verbs.ErrPeerGone):
		// DAT tells of that with an event, after the receives that were posted are flushed. The device does not.
		ep.mu.Lock()
		ep.begun--
		ep.mu.Unlock()
		ep.advance(causeAcceptFailed, &verbs.ConnEvent{Kind: verbs.ConnAcceptFailed, Remote: cr.req.Remote(), Err: err})
		ep.disconnectQP(false)
	case err != nil:
		ep.returnTo(before)
		cr.freed.Store(false)
		return cr.ia.deviceError(op, &cr.base, err)
	}
	cr.ia.unregister(&cr.base)
	return nil
}

// Reject declines the request (dat_cr_reject); the peer sees ConnectionPeerRejected with the private
// data. An EP that comes with the request goes back to StateUnconnected if an RSP reserved it, and
// is freed if the provider made it. The CR is gone then. It does not block.
//
// INVALID_PARAMETER (ARG2): too much private data; the CR stays valid.
func (cr *CR) Reject(privateData []byte) error {
	const op = "cr_reject"
	switch {
	case cr.gone():
		return cr.errGone(op)
	case len(privateData) > cr.ia.provider.MaxPrivateDataSize:
		return cr.tooLong(op, len(privateData), InvalidArg2)
	case !cr.answer():
		return cr.errGone(op)
	}
	err := cr.req.Reject(privateData)
	cr.end()
	if err != nil && !errors.Is(err, verbs.ErrPeerGone) {
		return cr.ia.deviceError(op, &cr.base, err)
	}
	return nil
}

// Handoff gives the request to the service point of the IA that listens on a connection qualifier, as if it had
// arrived there (dat_cr_handoff). What comes of an EP that came with the request is as for Reject. The CR is gone
// then; if the other service point cannot take the request, the peer is refused. It does not block.
//
// INVALID_PARAMETER (ARG2): nobody listens there; the CR stays valid.
func (cr *CR) Handoff(connQual uint64) error {
	const op = "cr_handoff"
	if cr.gone() {
		return cr.errGone(op)
	}
	to := cr.ia.receiverAt(connQual)
	if to == nil {
		return cr.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("no service point of the IA listens on %d", connQual))
	}
	if !cr.answer() {
		return cr.errGone(op)
	}
	cr.end()
	to.onRequest(cr.req)
	return nil
}

// receiverAt finds the service point that listens on a qualifier.
func (ia *IA) receiverAt(connQual uint64) receiver {
	for _, kind := range [...]HandleType{HandlePSP, HandleRSP, HandleCSP} {
		for _, o := range ia.objects.live(kind) {
			if r := o.(receiver); r.address().Port == connQual {
				return r
			}
		}
	}
	return nil
}

func (cr *CR) tooLong(op string, n int, sub Subtype) error {
	return cr.fail(op, InvalidParameter, sub, nil, fmt.Sprintf("%d bytes of private data, at most %d are possible", n, cr.ia.provider.MaxPrivateDataSize))
}

// answer makes the caller the one who answers the request.
func (cr *CR) answer() bool { return cr.freed.CompareAndSwap(false, true) }

// end lets go of the EP of a request that was answered without connecting, and of the CR.
func (cr *CR) end() {
	cr.ia.unregister(&cr.base)
	if cr.ep == nil {
		return
	}
	switch s := cr.ep.loadState(); s {
	case StateTentativeConnectionPending, StateUnconfiguredTentative:
		cr.ep.unmake()
	default:
		cr.ep.advance(causeReject, nil)
	}
}

// abandon refuses the request with the IA's end.
func (cr *CR) abandon() {
	if cr.answer() {
		cr.req.Refuse()
		cr.end()
	}
}
