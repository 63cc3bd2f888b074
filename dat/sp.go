package dat

import (
	"errors"
	"fmt"
	"net/netip"

	"kdapl/verbs"
)

// PSPConfig describes a public service point (the arguments of dat_psp_create).
type PSPConfig struct {
	// ConnQual is the connection qualifier to listen on; 0 lets the provider pick a free one
	// (dat_psp_create_any).
	ConnQual uint64
	// EVD receives a ConnectionRequest event for each request; it needs
	// StreamConnectionRequest. Requests that find it full are refused.
	EVD *EVD
	// Flags say who makes the EP for a request.
	Flags PSPFlags
}

// PSP is a public service point: a listener that takes any number of connection requests.
type PSP struct {
	base
	cfg      PSPConfig
	listener verbs.Listener
}

// NewPSP creates a service point and starts to listen (dat_psp_create, dat_psp_create_any). It does not
// block.
//
// INVALID_HANDLE (EVD_CR): the EVD was freed, is of another IA, or lacks the stream.
// CONN_QUAL_IN_USE: somebody listens there. CONN_QUAL_UNAVAILABLE: no qualifier is free, or the adapter
// does not have this one. INVALID_PARAMETER (ARG4): unknown flags. MODEL_NOT_SUPPORTED: flags that the
// provider's ep_creator excludes.
func (ia *IA) NewPSP(cfg PSPConfig) (*PSP, error) {
	const op = "psp_create"
	if err := ia.check(op); err != nil {
		return nil, err
	}
	switch {
	case cfg.Flags != PSPConsumer && cfg.Flags != PSPProvider:
		return nil, ia.fail(op, InvalidParameter, InvalidArg4, nil, fmt.Sprintf("unknown flags %v", cfg.Flags))
	case cfg.Flags == PSPProvider && ia.provider.EPCreator == EPCreatorNever:
		return nil, ia.fail(op, ModelNotSupported, NoSubtype, nil, "the provider makes no EPs (ep_creator)")
	case cfg.EVD.freedOrNil() || cfg.EVD.ia != ia || cfg.EVD.streams&StreamConnectionRequest == 0:
		return nil, ia.fail(op, InvalidHandle, InvalidHandleEVDCR, nil, "the EVD was freed, is of another IA, or lacks StreamConnectionRequest")
	case cfg.ConnQual > ia.device.Attr().MaxPort:
		return nil, ia.fail(op, ConnQualUnavailable, NoSubtype, nil, fmt.Sprintf("qualifier %d, the adapter has 1 to %d", cfg.ConnQual, ia.device.Attr().MaxPort))
	}
	if err := cfg.EVD.attach(op, 0, discNone); err != nil {
		return nil, err
	}
	p := &PSP{cfg: cfg}
	p.base = base{self: p, ia: ia, kind: HandlePSP}
	if !ia.register(&p.base, ia.attr.MaxEPs) {
		cfg.EVD.detach(0, discNone)
		return nil, ia.full(op, NoSubtype)
	}
	l, err := ia.device.Listen(verbs.ListenConfig{Local: verbs.Address{Port: cfg.ConnQual}, Request: p.onRequest})
	if err != nil {
		p.freed.Store(true)
		ia.unregister(&p.base)
		cfg.EVD.detach(0, discNone)
		e := ia.deviceError(op, &ia.base, err).(*Error)
		if errors.Is(err, verbs.ErrAddr) || errors.Is(err, verbs.ErrLimit) {
			e.Type, e.Sub = ConnQualUnavailable, NoSubtype
		}
		e.Hint = fmt.Sprintf("qualifier %d", cfg.ConnQual)
		return nil, e
	}
	ia.mu.Lock()
	p.listener = l
	p.cfg.ConnQual = l.Addr().Port
	ia.mu.Unlock()
	return p, nil
}

// ConnQual is the connection qualifier that the PSP listens on.
func (p *PSP) ConnQual() uint64 {
	if p == nil || p.ia == nil {
		return 0
	}
	p.ia.mu.Lock()
	defer p.ia.mu.Unlock()
	return p.cfg.ConnQual
}

// PSPParam is what Query tells (DAT_PSP_PARAM).
type PSPParam struct {
	ConnQual uint64
	EVD      *EVD
	Flags    PSPFlags
}

// Query tells the PSP's parameters (dat_psp_query). It does not block.
func (p *PSP) Query() (PSPParam, error) {
	if p.gone() {
		return PSPParam{}, p.errGone("psp_query")
	}
	return PSPParam{ConnQual: p.ConnQual(), EVD: p.cfg.EVD, Flags: p.cfg.Flags}, nil
}

// Free ends the listening (dat_psp_free). Requests that were delivered stay valid; peers that come later are
// refused. It does not block.
func (p *PSP) Free() error {
	if p.gone() || !p.destroy() {
		return p.errGone("psp_free")
	}
	return nil
}

func (p *PSP) abandon() { p.destroy() }

func (p *PSP) destroy() bool {
	if !p.freed.CompareAndSwap(false, true) {
		return false
	}
	p.ia.mu.Lock()
	l := p.listener
	p.ia.mu.Unlock()
	if l != nil {
		l.Close()
	}
	p.cfg.EVD.detach(0, discNone)
	p.ia.unregister(&p.base)
	return true
}

func (p *PSP) gone() bool { return p == nil || p.ia == nil || p.freed.Load() }

func (p *PSP) errGone(op string) error {
	if p == nil || p.ia == nil {
		return (&base{kind: HandlePSP}).errFreed(op)
	}
	return p.errFreed(op)
}

// onRequest makes a CR of a peer's request and tells the consumer.
func (p *PSP) onRequest(req verbs.ConnRequest) {
	cr := &CR{req: req, sp: p, connQual: req.Local().Port}
	cr.base = base{self: cr, ia: p.ia, kind: HandleCR}
	if p.gone() || !p.ia.register(&cr.base, p.ia.attr.MaxEPs) {
		req.Refuse()
		return
	}
	if !p.cfg.EVD.post(&Event{Number: ConnectionRequest, ref: cr.ref}) {
		cr.drop()
	}
}

// CR is a connection request that a service point received. It lives until it is accepted or
// rejected.
type CR struct {
	base
	req      verbs.ConnRequest
	sp       *PSP
	connQual uint64
}

func (cr *CR) servicePoint() Object { return cr.sp }

// CRParam is what Query tells (DAT_CR_PARAM).
type CRParam struct {
	// RemoteAddress and RemotePortQual are the peer's.
	RemoteAddress  netip.Addr
	RemotePortQual uint64
	// PrivateData is the peer's, valid until the CR is answered.
	PrivateData []byte
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
		RemoteAddress: r.Remote().IP, RemotePortQual: r.Remote().Port, PrivateData: r.PrivateData(),
		ReadsIn: r.ReadsIn(), ReadsOut: r.ReadsOut(),
	}, nil
}

// Accept accepts the request with an EP in StateUnconnected (dat_cr_accept). The EP goes to
// StateCompletionPending; ConnectionEstablished or, if the peer is gone or the set-up fails,
// ConnectionAcceptCompletionError follows on its Connect EVD. The CR is gone then. It does not
// block.
//
// INVALID_HANDLE (EP): nil, freed or of another IA. INVALID_STATE: the EP's state, or EP_NOTREADY
// without PZ or Connect EVD. INVALID_PARAMETER (ARG3): too much private data. The CR stays valid
// then.
func (cr *CR) Accept(ep *EP, privateData []byte) error {
	const op = "cr_accept"
	switch {
	case cr.gone():
		return cr.errGone(op)
	case ep.gone() || ep.ia != cr.ia:
		return cr.fail(op, InvalidHandle, InvalidHandleEP, nil, "the EP is nil, was freed, or is of another IA")
	case len(privateData) > cr.ia.provider.MaxPrivateDataSize:
		return cr.tooLong(op, len(privateData), InvalidArg3)
	}
	ep.ctl.Lock()
	defer ep.ctl.Unlock()
	before := ep.loadState()
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
		// DAT tells of that with an event, after the receives that were posted are flushed.
		ep.advance(causeAcceptFailed, &verbs.ConnEvent{Kind: verbs.ConnAcceptFailed, Remote: cr.req.Remote(), Err: err})
		ep.disconnectQP(false)
	case err != nil:
		cr.freed.Store(false)
		ep.returnTo(before)
		return cr.ia.deviceError(op, &cr.base, err)
	}
	cr.ia.unregister(&cr.base)
	return nil
}

// Reject declines the request (dat_cr_reject); the peer sees ConnectionPeerRejected with the private
// data. The CR is gone then. It does not block.
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
	cr.ia.unregister(&cr.base)
	if err != nil && !errors.Is(err, verbs.ErrPeerGone) {
		return cr.ia.deviceError(op, &cr.base, err)
	}
	return nil
}

func (cr *CR) tooLong(op string, n int, sub Subtype) error {
	return cr.fail(op, InvalidParameter, sub, nil, fmt.Sprintf("%d bytes of private data, at most %d are possible", n, cr.ia.provider.MaxPrivateDataSize))
}

// answer makes the caller the one who answers the request.
func (cr *CR) answer() bool { return cr.freed.CompareAndSwap(false, true) }

// drop refuses a request that the consumer was not, or can no longer be, told of.
func (cr *CR) drop() {
	if cr.answer() {
		cr.req.Refuse()
		cr.ia.unregister(&cr.base)
	}
}

func (cr *CR) abandon() { cr.drop() }

func (cr *CR) gone() bool { return cr == nil || cr.ia == nil || cr.freed.Load() }

func (cr *CR) errGone(op string) error {
	if cr == nil || cr.ia == nil {
		return (&base{kind: HandleCR}).errFreed(op)
	}
	return cr.errFreed(op)
}
