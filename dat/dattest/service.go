package dattest

import (
	"errors"
	"net/netip"
	"time"

	"kdapl/dat"
)

// soon is a time that a rule lets pass.
const soon = 20 * time.Millisecond

// Reserved and common service points, end points of the provider's (dat_rsp_*, dat_csp_*, DAT_PSP_PROVIDER_FLAG).
var serviceRules = []rule{
	{"an RSP takes one request, for its EP", 0, rspOne},
	{"an EP that an RSP reserves is kept for it", 0, rspReserves},
	{"a freed RSP gives its EP back, with its receives", 0, rspFree},
	{"a rejected request gives the RSP's EP back", 0, rspReject},
	{"an RSP wants an unconnected EP", 0, rspStates},
	{"an RSP without EP has one of the provider's", 0, rspProvider},
	{"a request of an RSP that gave up ends in an accept error", 0, rspGone},
	{"a PSP of the provider's brings an EP to configure", 0, pspProvider},
	{"a reject frees an EP of the provider's", 0, pspReject},
	{"a freed PSP leaves its requests valid", 0, pspFree},
	{"a request that finds its EVD full is refused", 0, pspFull},
	{"a CSP takes connections at a socket address", 0, cspListens},
	{"a CSP can bring EPs of the provider's", 0, cspProvider},
	{"service points share the connection qualifiers", 0, spInUse},
	{"a service point needs an EVD with the stream", 0, spEVD},
	{"the end of an IA refuses who waits for an answer", 0, spClose},
	{"the end of an EVD refuses the requests that nobody has taken", 0, spEndOfEVD},
}

var handoffRules = []rule{
	{"a handoff gives the request to another service point, with its data", 0, handoff},
	{"a handoff to nobody leaves the request valid", 0, handoffNobody},
	{"a handoff lets go of the EP that came with the request", 0, handoffEP},
	{"a handoff to a full service point refuses the peer", 0, handoffFull},
}

// reserve makes an RSP for an EP.
func (s *side) reserve(ep *dat.EP) *dat.RSP {
	s.e.Helper()
	rsp, err := s.ia.NewRSP(dat.RSPConfig{EP: ep, EVD: s.cr})
	s.e.must(err, "NewRSP")
	return rsp
}

// configure gives an EP of the provider's a zone and EVDs.
func (s *side) configure(ep *dat.EP) {
	s.e.Helper()
	s.e.must(ep.Modify(dat.EPFieldPZ|dat.EPFieldRecvEVD|dat.EPFieldRequestEVD|dat.EPFieldConnectEVD,
		dat.EPParam{PZ: s.pz, Recv: s.recv, Request: s.request, Connect: s.connect}), "Modify of the provider's EP")
	s.note(ep)
}

// theirs is the EP that comes with a request.
func (e *env) theirs(cr *dat.CR) *dat.EP {
	e.Helper()
	q, err := cr.Query()
	e.must(err, "CR.Query")
	return q.LocalEP
}

func rspOne(e *env) {
	ep := e.b.ep()
	rsp := e.b.reserve(ep)
	a := e.a.ep()
	e.call(a, rsp.ConnQual())
	ev := e.event(e.b.cr, dat.ConnectionRequest)
	r := ev.Request()
	if r.ServicePoint != nil || r.ConnQual != rsp.ConnQual() || e.theirs(r.CR) != ep {
		e.Errorf("%+v", r)
	}
	e.state(ep, dat.StatePassiveConnectionPending)
	e.refused(rsp.Free(), "Free of an RSP whose request has come", dat.InvalidHandle, dat.InvalidHandleRSP)
	_, err := rsp.Query()
	e.refused(err, "Query of an RSP whose request has come", dat.InvalidHandle, dat.InvalidHandleRSP)
	e.call(e.a.ep(), rsp.ConnQual())
	e.event(e.a.connect, dat.ConnectionNonPeerRejected)
	e.refused(r.CR.Accept(e.b.ep(), nil), "Accept with another EP", dat.InvalidHandle, dat.InvalidHandleEP)
	e.must(r.CR.Accept(nil, nil), "Accept")
	e.established()
	e.state(ep, dat.StateConnected)
}

func rspReserves(e *env) {
	ep := e.b.ep()
	rsp := e.b.reserve(ep)
	e.state(ep, dat.StateReserved)
	if q, err := rsp.Query(); err != nil || q.EP != ep || q.EVD != e.b.cr || q.ConnQual != rsp.ConnQual() {
		e.Errorf("%+v, %v", q, err)
	}
	reserved := func(err error, what string) {
		e.Helper()
		e.refused(err, what+" of a reserved EP", dat.InvalidState, dat.InvalidStateEPReserved)
	}
	reserved(ep.Free(), "Free")
	reserved(ep.Reset(), "Reset")
	reserved(ep.Disconnect(dat.CloseAbrupt), "Disconnect")
	reserved(ep.Connect(e.b.ia.Address(), 1, dat.ConnectConfig{Timeout: 1}), "Connect")
	reserved(ep.Modify(dat.EPFieldPZ, dat.EPParam{PZ: e.b.pz}), "Modify of the zone")
	e.must(ep.Modify(dat.EPFieldConnectEVD, dat.EPParam{Connect: e.b.connect}), "Modify of an EVD of a reserved EP")
	_, err := e.b.ia.NewRSP(dat.RSPConfig{EP: ep, EVD: e.b.cr})
	reserved(err, "NewRSP")
}

func rspFree(e *env) {
	a, b := e.a.ep(), e.b.ep()
	e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(0, 8)), "PostRecv")
	rsp := e.b.reserve(b)
	e.must(rsp.Free(), "RSP.Free")
	e.refused(rsp.Free(), "a second Free", dat.InvalidHandle, dat.InvalidHandleRSP)
	e.state(b, dat.StateUnconnected)
	e.call(e.a.ep(), rsp.ConnQual())
	e.event(e.a.connect, dat.ConnectionNonPeerRejected)
	e.join(a, b)
	e.must(a.PostSend(2, 0, e.a.lmr.Triplet(0, 8)), "PostSend")
	e.done(e.b.recv, 1, dat.StatusSuccess)
}

func rspReject(e *env) {
	a, b := e.a.ep(), e.b.ep()
	e.call(a, e.b.reserve(b).ConnQual())
	e.must(e.b.request1().Reject([]byte("busy")), "Reject")
	ev := e.event(e.a.connect, dat.ConnectionPeerRejected)
	if c := ev.Connection(); len(c.PrivateData) < 4 || string(c.PrivateData[:4]) != "busy" {
		e.Errorf("%+v", c)
	}
	e.state(b, dat.StateUnconnected)
	e.none(e.b.connect, "after a reject")
	e.must(a.Reset(), "Reset")
	e.call(a, e.b.reserve(b).ConnQual())
	e.must(e.b.request1().Accept(b, nil), "Accept")
	e.established()
}

func rspStates(e *env) {
	a, b := e.link()
	for what, c := range map[string]struct {
		ep  *dat.EP
		typ dat.Type
		sub dat.Subtype
	}{
		"a connected EP":        {b, dat.InvalidState, dat.InvalidStateEPConnected},
		"an EP of another IA's": {a, dat.InvalidHandle, dat.InvalidHandleEP},
	} {
		_, err := e.b.ia.NewRSP(dat.RSPConfig{EP: c.ep, EVD: e.b.cr})
		e.refused(err, "NewRSP with "+what, c.typ, c.sub)
	}
	fresh := e.b.ep()
	_, err := e.b.ia.NewRSP(dat.RSPConfig{EP: fresh, EVD: e.b.cr, ConnQual: e.b.listen().ConnQual()})
	e.refused(err, "NewRSP where somebody listens", dat.ConnQualInUse)
	e.state(fresh, dat.StateUnconnected)
}

func rspProvider(e *env) {
	rsp := e.b.reserve(nil)
	q, err := rsp.Query()
	e.must(err, "RSP.Query")
	e.state(q.EP, dat.StateUnconfiguredReserved)
	e.call(e.a.ep(), rsp.ConnQual())
	cr := e.b.request1()
	e.state(q.EP, dat.StateUnconfiguredPassive)
	e.refused(cr.Accept(nil, nil), "Accept with an EP that lacks everything", dat.InvalidState)
	e.b.configure(q.EP)
	e.state(q.EP, dat.StatePassiveConnectionPending)
	e.must(cr.Accept(nil, nil), "Accept")
	e.established()
}

func rspGone(e *env) {
	a, b := e.a.ep(), e.b.ep()
	e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(0, 8)), "PostRecv")
	e.call(a, e.b.reserve(b).ConnQual())
	cr := e.b.request1()
	e.must(a.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(e.a.connect, dat.ConnectionDisconnected)
	e.state(b, dat.StatePassiveConnectionPending)
	e.must(cr.Accept(nil, nil), "Accept of a request that gave up")
	ev := e.event(e.b.connect, dat.ConnectionAcceptCompletionError, dat.ConnectionEstablished)
	if ev.Number == dat.ConnectionEstablished { // the adapter learns of it a little later
		e.event(e.b.connect, dat.ConnectionDisconnected, dat.ConnectionBroken)
	}
	e.done(e.b.recv, 1, dat.StatusFlushed)
	e.state(b, dat.StateDisconnected)
}

// provided makes a PSP whose requests bring EPs.
func (s *side) provided() *dat.PSP {
	s.e.Helper()
	psp, err := s.ia.NewPSP(dat.PSPConfig{EVD: s.cr, Flags: dat.PSPProvider})
	if s.prov.EPCreator == dat.EPCreatorNever {
		s.e.refused(err, "NewPSP with EPs of the provider's", dat.ModelNotSupported)
		s.e.Skip("the provider makes no EPs")
	}
	s.e.must(err, "NewPSP")
	return psp
}

func pspProvider(e *env) {
	psp := e.b.provided()
	a := e.a.ep()
	e.call(a, psp.ConnQual())
	ev := e.event(e.b.cr, dat.ConnectionRequest)
	cr := ev.Request().CR
	ep := e.theirs(cr)
	q, err := ep.Query()
	if err != nil || ev.Request().ServicePoint != dat.Object(psp) || q.State != dat.StateTentativeConnectionPending || q.PZ != nil || q.Connect != nil {
		e.Errorf("%+v, %v", q, err)
	}
	e.refused(ep.Free(), "Free of a tentative EP", dat.InvalidState, dat.InvalidStateEPTentConnPending)
	e.refused(cr.Accept(nil, nil), "Accept with an EP that lacks everything", dat.InvalidState, dat.InvalidStateEPNotReady)
	e.refused(cr.Accept(e.b.ep(), nil), "Accept with another EP", dat.InvalidHandle, dat.InvalidHandleEP)
	e.b.configure(ep)
	e.must(ep.PostRecv(1, 0, e.b.lmr.Triplet(0, 8)), "PostRecv")
	e.must(cr.Accept(nil, nil), "Accept")
	e.established()
	e.must(a.PostSend(2, 0, e.a.lmr.Triplet(0, 8)), "PostSend")
	if d := e.done(e.b.recv, 1, dat.StatusSuccess); d.EP != ep {
		e.Errorf("%+v", d)
	}
}

func pspReject(e *env) {
	e.call(e.a.ep(), e.b.provided().ConnQual())
	cr := e.b.request1()
	ep := e.theirs(cr)
	e.must(cr.Reject(nil), "Reject")
	e.event(e.a.connect, dat.ConnectionPeerRejected)
	_, err := ep.Query()
	e.refused(err, "Query of an EP that went with its request", dat.InvalidHandle, dat.InvalidHandleEP)
}

func pspFree(e *env) {
	psp := e.b.listen()
	if q, err := psp.Query(); err != nil || q.EVD != e.b.cr || q.ConnQual != psp.ConnQual() || q.Flags != dat.PSPConsumer {
		e.Errorf("%+v, %v", q, err)
	}
	e.call(e.a.ep(), psp.ConnQual())
	cr := e.b.request1()
	e.must(psp.Free(), "PSP.Free")
	e.must(cr.Accept(e.b.ep(), nil), "Accept after the end of the PSP")
	e.established()
	e.call(e.a.ep(), psp.ConnQual())
	e.event(e.a.connect, dat.ConnectionNonPeerRejected)
	_, err := e.b.ia.NewPSP(dat.PSPConfig{ConnQual: psp.ConnQual(), EVD: e.b.cr})
	e.must(err, "NewPSP where the freed one was")
}

func pspFull(e *env) {
	small := e.b.evdOf(dat.EVDConfig{MinLen: 1, Streams: dat.StreamConnectionRequest | dat.StreamSoftware})
	e.must(small.PostSE(1), "PostSE")
	psp, err := e.b.ia.NewPSP(dat.PSPConfig{EVD: small})
	e.must(err, "NewPSP")
	e.call(e.a.ep(), psp.ConnQual())
	e.event(e.a.connect, dat.ConnectionNonPeerRejected)
	ev := e.event(e.b.ia.AsyncEVD(), dat.AsyncErrorEVDOverflow)
	if a := ev.Async(); a.Object != dat.Object(small) {
		e.Errorf("%+v", a)
	}
}

func cspListens(e *env) {
	csp, err := e.b.ia.NewCSP(dat.CSPConfig{EVD: e.b.cr})
	e.must(err, "NewCSP")
	addr := csp.Address()
	if q, err := csp.Query(); err != nil || q.Address != addr || q.EVD != e.b.cr || addr.Addr() != e.b.ia.Address() || addr.Port() == 0 {
		e.Errorf("at %v: %+v, %v", addr, q, err)
	}
	e.must(e.a.ep().CommonConnect(addr, dat.ConnectConfig{Timeout: e.deadline, PrivateData: []byte("hello")}), "CommonConnect")
	ev := e.event(e.b.cr, dat.ConnectionRequest)
	r := ev.Request()
	if q, err := r.CR.Query(); err != nil || r.ServicePoint != dat.Object(csp) || q.LocalEP != nil || len(q.PrivateData) < 5 || string(q.PrivateData[:5]) != "hello" {
		e.Errorf("%+v, %+v, %v", r, q, err)
	}
	e.must(r.CR.Accept(e.b.ep(), nil), "Accept")
	e.established()
	e.must(csp.Free(), "CSP.Free")
	e.must(e.a.ep().CommonConnect(addr, dat.ConnectConfig{Timeout: e.deadline}), "CommonConnect")
	e.event(e.a.connect, dat.ConnectionNonPeerRejected)
	csp, err = e.b.ia.NewCSP(dat.CSPConfig{Address: addr, EVD: e.b.cr})
	e.must(err, "NewCSP where the freed one was")
	if csp.Address() != addr {
		e.Errorf("at %v, want %v", csp.Address(), addr)
	}
}

func cspProvider(e *env) {
	csp, err := e.b.ia.NewCSP(dat.CSPConfig{EVD: e.b.cr, MakeEP: true})
	e.must(err, "NewCSP")
	e.must(e.a.ep().CommonConnect(csp.Address(), dat.ConnectConfig{Timeout: e.deadline}), "CommonConnect")
	cr := e.b.request1()
	ep := e.theirs(cr)
	e.state(ep, dat.StateUnconfiguredTentative)
	e.refused(cr.Accept(nil, nil), "Accept with an EP that lacks everything", dat.InvalidState)
	e.b.configure(ep)
	e.state(ep, dat.StateTentativeConnectionPending)
	e.must(cr.Accept(nil, nil), "Accept")
	e.established()
}

func spInUse(e *env) {
	// A qualifier that is a port too, which that of a PSP need not be.
	csp, err := e.b.ia.NewCSP(dat.CSPConfig{EVD: e.b.cr})
	e.must(err, "NewCSP")
	qual := uint64(csp.Address().Port())
	_, err = e.b.ia.NewPSP(dat.PSPConfig{ConnQual: qual, EVD: e.b.cr})
	e.refused(err, "a PSP where a CSP listens", dat.ConnQualInUse)
	e.must(csp.Free(), "CSP.Free")
	_, err = e.b.ia.NewPSP(dat.PSPConfig{ConnQual: qual, EVD: e.b.cr})
	e.must(err, "NewPSP")
	_, err = e.b.ia.NewPSP(dat.PSPConfig{ConnQual: qual, EVD: e.b.cr})
	e.refused(err, "a second PSP", dat.ConnQualInUse)
	_, err = e.b.ia.NewCSP(dat.CSPConfig{Address: netip.AddrPortFrom(e.b.ia.Address(), uint16(qual)), EVD: e.b.cr})
	e.refused(err, "a CSP where a PSP listens", dat.PortInUse)
	_, err = e.b.ia.NewPSP(dat.PSPConfig{EVD: e.b.cr, Flags: 7})
	e.refused(err, "unknown flags", dat.InvalidParameter, dat.InvalidArg4)
	_, err = e.b.ia.NewCSP(dat.CSPConfig{EVD: e.b.cr, Comm: dat.Comm{Domain: -1}})
	e.refused(err, "an unknown communicator", dat.CommNotSupported)
}

func spEVD(e *env) {
	without := e.b.evdOf(dat.EVDConfig{Streams: dat.StreamConnection})
	for _, evd := range []*dat.EVD{nil, without, e.a.cr} {
		_, err := e.b.ia.NewPSP(dat.PSPConfig{EVD: evd})
		e.refused(err, "NewPSP", dat.InvalidHandle, dat.InvalidHandleEVDCR)
		_, err = e.b.ia.NewRSP(dat.RSPConfig{EVD: evd})
		e.refused(err, "NewRSP", dat.InvalidHandle, dat.InvalidHandleEVDCR)
		_, err = e.b.ia.NewCSP(dat.CSPConfig{EVD: evd})
		e.refused(err, "NewCSP", dat.InvalidHandle, dat.InvalidHandleEVDCR)
	}
	psp := e.b.listen()
	e.refused(e.b.cr.Free(), "Free of an EVD that a PSP feeds", dat.InvalidState, dat.InvalidStateEVDInUse)
	e.must(psp.Free(), "PSP.Free")
	e.must(e.b.cr.Free(), "Free")
}

func spClose(e *env) {
	quals := []uint64{e.b.listen().ConnQual(), e.b.reserve(e.b.ep()).ConnQual()}
	for _, qual := range quals {
		e.call(e.a.ep(), qual)
		e.b.request1()
	}
	e.must(e.b.ia.Close(e.Context(), dat.CloseAbrupt), "Close")
	for range quals {
		e.event(e.a.connect, dat.ConnectionNonPeerRejected)
	}
}

func handoff(e *env) {
	evd := e.b.evd()
	other, err := e.b.ia.NewPSP(dat.PSPConfig{EVD: evd})
	e.must(err, "NewPSP")
	psp := e.b.listen()
	e.call(e.a.ep(), psp.ConnQual(), 'd', 'a', 't', 'a')
	cr := e.b.request1()
	e.must(cr.Handoff(other.ConnQual()), "Handoff")
	e.refused(cr.Accept(e.b.ep(), nil), "Accept of a request that was handed off", dat.InvalidHandle, dat.InvalidHandleCR)
	ev := e.event(evd, dat.ConnectionRequest)
	r := ev.Request()
	if q, err := r.CR.Query(); err != nil || r.ServicePoint != dat.Object(other) || r.ConnQual != other.ConnQual() || len(q.PrivateData) < 4 || string(q.PrivateData[:4]) != "data" {
		e.Errorf("%+v, %+v, %v", r, q, err)
	}
	e.must(r.CR.Handoff(psp.ConnQual()), "Handoff back")
	e.must(e.b.request1().Accept(e.b.ep(), nil), "Accept")
	e.established()
}

func handoffNobody(e *env) {
	psp := e.b.listen()
	e.call(e.a.ep(), psp.ConnQual())
	cr := e.b.request1()
	e.refused(cr.Handoff(psp.ConnQual()+1), "Handoff to nobody", dat.InvalidParameter, dat.InvalidArg2)
	e.must(cr.Accept(e.b.ep(), nil), "Accept")
	e.established()
}

func handoffEP(e *env) {
	psp, kept := e.b.listen(), e.b.ep()
	e.call(e.a.ep(), e.b.reserve(kept).ConnQual())
	e.must(e.b.request1().Handoff(psp.ConnQual()), "Handoff")
	e.state(kept, dat.StateUnconnected)
	e.must(e.b.request1().Accept(kept, nil), "Accept")
	e.established()
	if e.b.prov.EPCreator == dat.EPCreatorNever {
		return
	}
	e.call(e.a.ep(), e.b.provided().ConnQual())
	cr := e.b.request1()
	made := e.theirs(cr)
	e.must(cr.Handoff(psp.ConnQual()), "Handoff")
	_, err := made.Query()
	e.refused(err, "Query of an EP that went with its request", dat.InvalidHandle, dat.InvalidHandleEP)
	e.must(e.b.request1().Accept(e.b.ep(), nil), "Accept")
	e.established()
}

func handoffFull(e *env) {
	small := e.b.evdOf(dat.EVDConfig{MinLen: 1, Streams: dat.StreamConnectionRequest | dat.StreamSoftware})
	e.must(small.PostSE(1), "PostSE")
	full, err := e.b.ia.NewPSP(dat.PSPConfig{EVD: small})
	e.must(err, "NewPSP")
	e.call(e.a.ep(), e.b.listen().ConnQual())
	e.must(e.b.request1().Handoff(full.ConnQual()), "Handoff")
	e.event(e.a.connect, dat.ConnectionNonPeerRejected)
}

func dupConnect(e *env) {
	psp := e.b.listen()
	first, second := e.a.ep(), e.a.ep()
	e.call(first, psp.ConnQual())
	e.must(e.b.request1().Accept(e.b.ep(), nil), "Accept")
	e.established()
	e.must(second.DupConnect(first, dat.ConnectConfig{Timeout: e.deadline, PrivateData: []byte("two")}), "DupConnect")
	ev := e.event(e.b.cr, dat.ConnectionRequest)
	r := ev.Request()
	if q, err := r.CR.Query(); err != nil || r.ServicePoint != dat.Object(psp) || len(q.PrivateData) < 3 || string(q.PrivateData[:3]) != "two" {
		e.Errorf("%+v, %+v, %v", r, q, err)
	}
	e.must(r.CR.Accept(e.b.ep(), nil), "Accept")
	e.established()
	e.state(first, dat.StateConnected)
}

func dupStates(e *env) {
	later := dat.ConnectConfig{Timeout: e.deadline}
	one, two := e.a.ep(), e.a.ep()
	e.refused(two.DupConnect(one, later), "DupConnect of an unconnected EP", dat.InvalidState, dat.InvalidStateEPUnconnected)
	e.refused(two.DupConnect(nil, later), "DupConnect of no EP", dat.InvalidHandle)
	connected, _ := e.link()
	e.refused(two.DupConnect(connected, dat.ConnectConfig{}), "DupConnect without time", dat.InvalidParameter, dat.InvalidArg3)
	e.refused(connected.DupConnect(connected, later), "DupConnect on a connected EP", dat.InvalidState, dat.InvalidStateEPConnected)
	e.state(two, dat.StateUnconnected)
}

func commonArgs(e *env) {
	ep := e.a.ep()
	addr := netip.AddrPortFrom(e.b.ia.Address(), 5)
	e.refused(ep.CommonConnect(addr, dat.ConnectConfig{}), "CommonConnect without time", dat.InvalidParameter, dat.InvalidArg3)
	e.refused(ep.CommonConnect(netip.AddrPort{}, dat.ConnectConfig{Timeout: 1}), "CommonConnect to nowhere", dat.InvalidParameter, dat.InvalidArg2)
	big := make([]byte, e.a.prov.MaxPrivateDataSize+1)
	e.refused(ep.CommonConnect(addr, dat.ConnectConfig{Timeout: 1, PrivateData: big}), "CommonConnect with too much data", dat.InvalidParameter)
	e.state(ep, dat.StateUnconnected)
}

func spEndOfEVD(e *env) {
	before, err := e.b.ia.Query()
	e.must(err, "IA.Query")
	for _, reserved := range []bool{false, true} {
		for _, flags := range []dat.PSPFlags{dat.PSPConsumer, dat.PSPProvider} {
			evd := e.b.evd()
			ep := e.b.ep()
			var sp interface{ Free() error }
			var qual uint64
			if reserved {
				rsp, err := e.b.ia.NewRSP(dat.RSPConfig{EP: ep, EVD: evd})
				e.must(err, "NewRSP")
				sp, qual = nil, rsp.ConnQual() // it ends with its request
			} else {
				psp, err := e.b.ia.NewPSP(dat.PSPConfig{EVD: evd, Flags: flags})
				e.must(err, "NewPSP")
				sp, qual = psp, psp.ConnQual()
			}
			taken := e.a.ep()
			if !reserved {
				e.call(taken, qual)
				ev := e.event(evd, dat.ConnectionRequest)
				defer ev.Request().CR.Reject(nil) // it is the consumer's, and stays
			}
			a := e.a.ep()
			e.call(a, qual)
			e.queued(evd, 1)
			if sp != nil {
				e.must(sp.Free(), "Free of the service point")
			}
			e.eventually("EVD.Free", func() bool {
				// An RSP leaves its EVD when it has delivered its request, not before.
				err := evd.Free()
				if !reserved || !errors.Is(err, dat.InvalidState) {
					e.must(err, "EVD.Free")
				}
				return err == nil
			})
			if ev := e.event(e.a.connect, dat.ConnectionNonPeerRejected); ev.Connection().EP != a {
				e.Errorf("%v, of another EP", ev)
			}
			e.state(ep, dat.StateUnconnected)
			e.must(ep.Free(), "EP.Free")
		}
	}
	after, err := e.b.ia.Query()
	e.must(err, "IA.Query")
	if n := after.Counters.CRs - before.Counters.CRs; n != 2 {
		e.Errorf("%d requests are left of the 2 that were taken", n)
	}
	if n := after.Counters.EPs - before.Counters.EPs; n != 1 {
		e.Errorf("%d EPs are left, of the provider's for one request", n)
	}
}
