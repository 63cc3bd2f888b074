package dat

import (
	"errors"
	"fmt"
	"sync"

	"kdapl/verbs"
)

// service is what the three kinds of service points share: a listener that makes connection
// requests of what arrives.
type service struct {
	base
	evd *EVD

	mu       sync.Mutex
	listener verbs.Listener
	local    verbs.Address // as it was asked for, then as it is
}

// listen checks the EVD, registers the object and starts to listen.
func (s *service) listen(op string, onRequest func(verbs.ConnRequest)) error {
	ia, e := s.ia, s.evd
	switch {
	case e.gone() || e.ia != ia || e.streams&StreamConnectionRequest == 0:
		return ia.fail(op, InvalidHandle, InvalidHandleEVDCR, nil, "the EVD was freed, is of another IA, or lacks StreamConnectionRequest")
	case s.local.Port > ia.device.Attr().MaxPort:
		return ia.fail(op, ConnQualUnavailable, NoSubtype, nil, fmt.Sprintf("qualifier %d, the adapter has 1 to %d", s.local.Port, ia.device.Attr().MaxPort))
	}
	if err := e.attach(op, 0, discNone); err != nil {
		return err
	}
	if !ia.register(&s.base, ia.attr.MaxEPs) {
		e.detach(0, discNone)
		return ia.full(op, NoSubtype)
	}
	// Requests may come before Listen has returned: they find the object complete.
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := ia.device.Listen(verbs.ListenConfig{Local: s.local, Request: onRequest})
	if err != nil {
		if s.freed.CompareAndSwap(false, true) { // the IA's end may have done it
			ia.unregister(&s.base)
			e.detach(0, discNone)
		}
		f := ia.deviceError(op, &ia.base, err).(*Error)
		if errors.Is(err, verbs.ErrLimit) || errors.Is(err, verbs.ErrAddr) && s.kind != HandleCSP {
			f.Type, f.Sub = ConnQualUnavailable, NoSubtype
		}
		if errors.Is(err, verbs.ErrAddrInUse) && s.kind == HandleCSP {
			f.Type = PortInUse
		}
		f.Hint = s.local.String()
		return f
	}
	s.listener, s.local = l, l.Addr()
	return nil
}

// address is where the service point listens.
func (s *service) address() verbs.Address {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local
}

// stop ends the listening, once.
func (s *service) stop() bool {
	if !s.freed.CompareAndSwap(false, true) {
		return false
	}
	s.mu.Lock()
	l := s.listener
	s.mu.Unlock()
	if l != nil {
		l.Close()
	}
	s.evd.detach(0, discNone)
	s.ia.unregister(&s.base)
	return true
}

// deliver makes a CR of a request and tells the consumer. ep is one that comes with it, or nil. false means
// that the consumer could not be told; the request is still open then.
func (s *service) deliver(req verbs.ConnRequest, sp Object, ep *EP) bool {
	cr := &CR{req: req, sp: sp, ep: ep, connQual: s.address().Port}
	cr.base = base{self: cr, ia: s.ia, kind: HandleCR}
	if !s.ia.register(&cr.base, s.ia.attr.MaxEPs) {
		return false
	}
	number := ConnectionRequest
	if _, _, ud := req.RemoteQP(); ud {
		number = IBUDConnectionRequest
	}
	if !s.evd.post(&Event{Number: number, ref: cr.ref}) {
		cr.freed.Store(true)
		s.ia.unregister(&cr.base)
		return false
	}
	return true
}

// receiver is a service point to which a request can be handed.
type receiver interface {
	address() verbs.Address
	onRequest(verbs.ConnRequest)
}

// PSPConfig describes a public service point (the arguments of dat_psp_create).
type PSPConfig struct {
	// ConnQual is the connection qualifier to listen on; 0 lets the provider pick a free one
	// (dat_psp_create_any).
	ConnQual uint64
	// EVD receives a ConnectionRequest event for each request; it needs
	// StreamConnectionRequest. Requests that find it full are refused, and so are those beyond
	// what the adapter lets wait for an answer (128 on loop and iWARP).
	EVD *EVD
	// Flags say who makes the EP for a request: the consumer, who names it in Accept, or the provider; its
	// EP comes with the CR, without PZ and EVDs, which Modify supplies.
	Flags PSPFlags
}

// PSP is a public service point: a listener that takes any number of connection requests.
type PSP struct {
	service
	flags PSPFlags
}

// NewPSP creates a service point and starts to listen (dat_psp_create, dat_psp_create_any). It does not
// block.
//
// INVALID_HANDLE (EVD_CR): the EVD was freed, is of another IA, or lacks the stream.
// CONN_QUAL_IN_USE: somebody listens there. CONN_QUAL_UNAVAILABLE: no qualifier is free, or the adapter
// does not have this one. INVALID_PARAMETER (ARG4): unknown flags.
func (ia *IA) NewPSP(cfg PSPConfig) (*PSP, error) {
	const op = "psp_create"
	if err := ia.check(op); err != nil {
		return nil, err
	}
	if cfg.Flags != PSPConsumer && cfg.Flags != PSPProvider {
		return nil, ia.fail(op, InvalidParameter, InvalidArg4, nil, fmt.Sprintf("unknown flags %v", cfg.Flags))
	}
	p := &PSP{service: service{evd: cfg.EVD, local: verbs.Address{Port: cfg.ConnQual}}, flags: cfg.Flags}
	p.base = base{self: p, ia: ia, kind: HandlePSP}
	if err := p.listen(op, p.onRequest); err != nil {
		return nil, err
	}
	return p, nil
}

// ConnQual is the connection qualifier that the PSP listens on.
func (p *PSP) ConnQual() uint64 {
	if p == nil || p.ia == nil {
		return 0
	}
	return p.address().Port
}

// PSPParam is what Query tells (DAT_PSP_PARAM).
type PSPParam struct {
	// IA is the adapter.
	IA       *IA
	ConnQual uint64
	EVD      *EVD
	Flags    PSPFlags
}

// Query tells the PSP's parameters (dat_psp_query). It does not block.
func (p *PSP) Query() (PSPParam, error) {
	if p.gone() {
		return PSPParam{}, p.errGone("psp_query")
	}
	return PSPParam{IA: p.ia, ConnQual: p.ConnQual(), EVD: p.evd, Flags: p.flags}, nil
}

// Free ends the listening (dat_psp_free). Requests that were delivered stay valid; peers that come later are
// refused. It does not block.
func (p *PSP) Free() error {
	if p.gone() || !p.stop() {
		return p.errGone("psp_free")
	}
	return nil
}

func (p *PSP) abandon() { p.stop() }

// onRequest receives a peer's request.
func (p *PSP) onRequest(req verbs.ConnRequest) {
	var ep *EP
	if p.flags == PSPProvider && !p.gone() {
		var err error
		if ep, err = p.ia.makeEP(StateTentativeConnectionPending, req); err != nil {
			req.Refuse()
			return
		}
	}
	if p.gone() || !p.deliver(req, p, ep) {
		req.Refuse()
		ep.unmake()
	}
}

// makeEP makes an EP on behalf of the consumer, who is to configure it, of the service that the request
// needs.
func (ia *IA) makeEP(s EPState, req verbs.ConnRequest) (*EP, error) {
	attr := DefaultEPAttr(ia.attr)
	if req != nil {
		if _, _, ud := req.RemoteQP(); ud {
			attr.ServiceType = ServiceUD
		}
	}
	ep, err := ia.NewEP(EPConfig{Attr: &attr})
	if err == nil {
		ep.state.Store(uint32(s))
	}
	return ep, err
}

// unmake ends an EP that the consumer was not, or can no longer be, told of.
func (ep *EP) unmake() {
	if ep != nil {
		ep.abandon()
	}
}

// RSPConfig describes a reserved service point (the arguments of dat_rsp_create).
type RSPConfig struct {
	// ConnQual is the connection qualifier to listen on; 0 lets the provider pick a free one.
	ConnQual uint64
	// EP, in StateUnconnected, is reserved for the request. nil makes the provider supply one, in
	// StateUnconfiguredReserved; Query tells it, and Modify supplies its PZ and EVDs.
	EP *EP
	// EVD receives the ConnectionRequest event; it needs StreamConnectionRequest.
	EVD *EVD
}

// RSP is a reserved service point: a listener that takes one request, for one EP.
type RSP struct {
	service
	ep    *EP
	taken sync.Once
}

// NewRSP creates a service point for one request and starts to listen (dat_rsp_create). The EP is reserved
// until the request comes or the RSP is freed. It does not block.
//
// INVALID_HANDLE (EP, EVD_CR). INVALID_STATE: the EP is not in StateUnconnected. CONN_QUAL_IN_USE,
// CONN_QUAL_UNAVAILABLE: see NewPSP.
func (ia *IA) NewRSP(cfg RSPConfig) (*RSP, error) {
	const op = "rsp_create"
	if err := ia.check(op); err != nil {
		return nil, err
	}
	ep, made := cfg.EP, cfg.EP == nil
	if made {
		var err error
		if ep, err = ia.makeEP(StateUnconfiguredUnconnected, nil); err != nil {
			return nil, err
		}
	} else if ep.gone() || ep.ia != ia {
		return nil, ia.fail(op, InvalidHandle, InvalidHandleEP, nil, "the EP was freed, or is of another IA")
	}
	before, ok := ep.advance(causeReserve, nil)
	if !ok {
		return nil, ep.fail(op, InvalidState, before.Subtype(), nil, "only an unconnected EP can be reserved")
	}
	r := &RSP{service: service{evd: cfg.EVD, local: verbs.Address{Port: cfg.ConnQual}}, ep: ep}
	r.base = base{self: r, ia: ia, kind: HandleRSP}
	if err := r.listen(op, r.onRequest); err != nil {
		ep.advance(causeUnreserve, nil)
		if made {
			ep.unmake()
		}
		return nil, err
	}
	return r, nil
}

// ConnQual is the connection qualifier that the RSP listens on.
func (r *RSP) ConnQual() uint64 {
	if r == nil || r.ia == nil {
		return 0
	}
	return r.address().Port
}

// RSPParam is what Query tells (DAT_RSP_PARAM).
type RSPParam struct {
	// IA is the adapter.
	IA       *IA
	ConnQual uint64
	EVD      *EVD
	EP       *EP
}

// Query tells the RSP's parameters (dat_rsp_query). It does not block.
func (r *RSP) Query() (RSPParam, error) {
	if r.gone() {
		return RSPParam{}, r.errGone("rsp_query")
	}
	return RSPParam{IA: r.ia, ConnQual: r.ConnQual(), EVD: r.evd, EP: r.ep}, nil
}

// Free ends the listening, and the reservation of the EP (dat_rsp_free). It does not block.
//
// INVALID_HANDLE: its request has come, and with it its end.
func (r *RSP) Free() error {
	if r.gone() || !r.destroy() {
		return r.errGone("rsp_free")
	}
	return nil
}

func (r *RSP) abandon() { r.destroy() }

func (r *RSP) destroy() bool {
	ended := false
	r.taken.Do(func() {
		ended = r.stop()
		r.ep.advance(causeUnreserve, nil)
	})
	return ended
}

// onRequest receives the one request. Those that come after it are refused, as are those that do not fit the EP's
// service.
func (r *RSP) onRequest(req verbs.ConnRequest) {
	if _, _, ud := req.RemoteQP(); ud != r.ep.datagrams() {
		req.Refuse()
		return
	}
	delivered := false
	r.taken.Do(func() {
		if r.gone() {
			return
		}
		r.ep.advance(causeRequest, nil)
		if delivered = r.deliver(req, nil, r.ep); !delivered {
			r.ep.advance(causeReject, nil)
		}
		r.stop()
	})
	if !delivered {
		req.Refuse()
	}
}
