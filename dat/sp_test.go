package dat_test

import (
	"bytes"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Reserved and common service points, end points that the provider makes, handoff, and the connects that go with them.

// connectTo starts a connection of one of a's EPs to a qualifier of b.
func (p *pair) connectTo(t testing.TB, ep *dat.EP, qual uint64) {
	t.Helper()
	ok(t, ep.Connect(p.b.ia.Address(), qual, dat.ConnectConfig{Timeout: patience}))
}

// established takes the event of both sides.
func (p *pair) established(t testing.TB) {
	t.Helper()
	next(t, p.a.connect, dat.ConnectionEstablished)
	next(t, p.b.connect, dat.ConnectionEstablished)
}

// wantState checks an EP's state.
func wantState(t testing.TB, ep *dat.EP, want dat.EPState) {
	t.Helper()
	if got := state(t, ep); got != want {
		t.Fatalf("%v is %v, want %v", ep, got, want)
	}
}

// pzAndEVDs is what an EP of the provider's lacks.
const pzAndEVDs = dat.EPFieldPZ | dat.EPFieldRecvEVD | dat.EPFieldRequestEVD | dat.EPFieldConnectEVD

// supply gives an EP of the provider's what it lacks.
func (s *side) supply(t testing.TB, ep *dat.EP) {
	t.Helper()
	ok(t, ep.Modify(pzAndEVDs, dat.EPParam{PZ: s.pz, Recv: s.recv, Request: s.request, Connect: s.connect}))
}

func TestRSPTakesOneRequestForItsEP(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	rsp := must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: p.b.ep, EVD: p.b.cr}))
	wantState(t, p.b.ep, dat.StateReserved)
	if q := must[dat.RSPParam](t)(rsp.Query()); q.EP != p.b.ep || q.EVD != p.b.cr || q.ConnQual != rsp.ConnQual() || q.ConnQual == 0 {
		t.Fatalf("%+v", q)
	}
	p.connectTo(t, p.a.ep, rsp.ConnQual())
	ev := next(t, p.b.cr, dat.ConnectionRequest)
	r := ev.Request()
	if r.ServicePoint != nil || r.ConnQual != rsp.ConnQual() {
		t.Fatalf("%+v", r) // the RSP is gone
	}
	wantState(t, p.b.ep, dat.StatePassiveConnectionPending)
	refused(t, rsp.Free(), dat.InvalidHandle, dat.InvalidHandleRSP)
	_, err := rsp.Query()
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleRSP)
	if q := must[dat.CRParam](t)(r.CR.Query()); q.LocalEP != p.b.ep {
		t.Fatalf("%+v", q)
	}
	second := p.a.newEP(t, nil)
	p.connectTo(t, second, rsp.ConnQual())
	next(t, p.a.connect, dat.ConnectionNonPeerRejected)
	refused(t, r.CR.Accept(p.b.newEP(t, nil), nil), dat.InvalidHandle, dat.InvalidHandleEP)
	ok(t, r.CR.Accept(nil, nil))
	p.established(t)
	wantState(t, p.b.ep, dat.StateConnected)
	refused(t, r.CR.Accept(nil, nil), dat.InvalidHandle, dat.InvalidHandleCR)
}

func TestFreeOfAnRSPEndsTheReservation(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 8)))
	rsp := must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: p.b.ep, EVD: p.b.cr}))
	refused(t, p.b.cr.Free(), dat.InvalidState, dat.InvalidStateEVDInUse)
	ok(t, rsp.Free())
	refused(t, rsp.Free(), dat.InvalidHandle, dat.InvalidHandleRSP)
	wantState(t, p.b.ep, dat.StateUnconnected)
	p.connectTo(t, p.a.ep, rsp.ConnQual())
	next(t, p.a.connect, dat.ConnectionNonPeerRejected)
	ok(t, p.a.ep.Reset())
	p.connect(t)
	ok(t, p.a.ep.PostSend(2, 0, p.a.lmr.Triplet(0, 8)))
	nextDTO(t, p.b.recv, 1, dat.StatusSuccess) // posted before, and kept
}

func TestRejectAtAnRSPFreesTheEPForTheNext(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 8)))
	rsp := must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: p.b.ep, EVD: p.b.cr}))
	p.connectTo(t, p.a.ep, rsp.ConnQual())
	ok(t, p.b.request1(t).Reject([]byte("busy")))
	ev := next(t, p.a.connect, dat.ConnectionPeerRejected)
	if c := ev.Connection(); !bytes.Equal(c.PrivateData, []byte("busy")) {
		t.Fatalf("%+v", c)
	}
	wantState(t, p.b.ep, dat.StateUnconnected)
	empty(t, p.b.connect)
	ok(t, p.a.ep.Reset())
	rsp = must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: p.b.ep, EVD: p.b.cr}))
	p.connectTo(t, p.a.ep, rsp.ConnQual())
	ok(t, p.b.request1(t).Accept(p.b.ep, nil)) // naming the EP that comes with it is allowed
	p.established(t)
	ok(t, p.a.ep.PostSend(2, 0, p.a.lmr.Triplet(0, 8)))
	nextDTO(t, p.b.recv, 1, dat.StatusSuccess)
}

func TestRSPWantsAnUnconnectedEP(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	reserve := func(ep *dat.EP) error {
		_, err := p.b.ia.NewRSP(dat.RSPConfig{EP: ep, EVD: p.b.cr})
		return err
	}
	held := must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: p.b.ep, EVD: p.b.cr}))
	refused(t, reserve(p.b.ep), dat.InvalidState, dat.InvalidStateEPReserved)
	refused(t, p.b.ep.Free(), dat.InvalidState, dat.InvalidStateEPReserved)
	refused(t, p.b.ep.Connect(p.b.ia.Address(), 1, dat.ConnectConfig{Timeout: 1}), dat.InvalidState, dat.InvalidStateEPReserved)
	refused(t, p.b.ep.Disconnect(dat.CloseAbrupt), dat.InvalidState, dat.InvalidStateEPReserved)
	refused(t, p.b.ep.Reset(), dat.InvalidState, dat.InvalidStateEPReserved)
	refused(t, p.b.ep.PostSend(1, 0), dat.InvalidState, dat.InvalidStateEPReserved)
	// EVDs and attributes may still change, the zone not.
	refused(t, p.b.ep.Modify(dat.EPFieldPZ, dat.EPParam{PZ: p.b.pz}), dat.InvalidState, dat.InvalidStateEPReserved)
	ok(t, p.b.ep.Modify(dat.EPFieldConnectEVD, dat.EPParam{Connect: p.b.connect}))
	p.connectTo(t, p.a.ep, held.ConnQual())
	cr := p.b.request1(t)
	refused(t, reserve(p.b.ep), dat.InvalidState, dat.InvalidStateEPPassConnPending)
	refused(t, p.b.ep.Free(), dat.InvalidState, dat.InvalidStateEPPassConnPending)
	refused(t, p.b.ep.Disconnect(dat.CloseAbrupt), dat.InvalidState, dat.InvalidStateEPPassConnPending)
	refused(t, p.b.ep.Modify(dat.EPFieldPZ, dat.EPParam{PZ: p.b.pz}), dat.InvalidState, dat.InvalidStateEPPassConnPending)
	ok(t, p.b.ep.Modify(dat.EPFieldRecvEVD, dat.EPParam{Recv: p.b.recv}))
	ok(t, cr.Accept(nil, nil))
	p.established(t)
	refused(t, reserve(p.b.ep), dat.InvalidState, dat.InvalidStateEPConnected)
	refused(t, reserve(p.a.ep), dat.InvalidHandle, dat.InvalidHandleEP) // of another IA
	freed := p.b.newEP(t, nil)
	ok(t, freed.Free())
	refused(t, reserve(freed), dat.InvalidHandle, dat.InvalidHandleEP)
	fresh := p.b.newEP(t, nil)
	_, err := p.b.ia.NewRSP(dat.RSPConfig{EP: fresh, EVD: p.b.recv, ConnQual: p.psp.ConnQual()})
	refused(t, err, dat.ConnQualInUse, dat.NoSubtype)
	wantState(t, fresh, dat.StateUnconnected) // the failure left nothing behind
	noStream := newEVD(t, p.b.ia, dat.EVDConfig{Streams: dat.StreamDTO})
	_, err = p.b.ia.NewRSP(dat.RSPConfig{EP: fresh, EVD: noStream})
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleEVDCR)
	wantState(t, fresh, dat.StateUnconnected)
}

func TestRSPWithoutEPHasOneOfTheProviders(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	rsp := must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EVD: p.b.cr}))
	ep := must[dat.RSPParam](t)(rsp.Query()).EP
	wantState(t, ep, dat.StateUnconfiguredReserved)
	refused(t, ep.Free(), dat.InvalidState, dat.InvalidStateEPUnconfReserved)
	refused(t, ep.PostRecv(1, 0), dat.InvalidState, dat.InvalidStateEPNotReady)
	p.connectTo(t, p.a.ep, rsp.ConnQual())
	cr := p.b.request1(t)
	wantState(t, ep, dat.StateUnconfiguredPassive)
	refused(t, cr.Accept(nil, nil), dat.InvalidState, dat.InvalidStateEPUnconfPassive)
	ok(t, cr.Reject(nil))
	next(t, p.a.connect, dat.ConnectionPeerRejected)
	wantState(t, ep, dat.StateUnconfiguredUnconnected) // it is the consumer's now
	ok(t, p.a.ep.Reset())
	refused(t, ep.Connect(p.b.ia.Address(), 1, dat.ConnectConfig{Timeout: 1}), dat.InvalidState, dat.InvalidStateEPUnconfigured)

	rsp = must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: ep, EVD: p.b.cr}))
	wantState(t, ep, dat.StateUnconfiguredReserved)
	ok(t, rsp.Free())
	wantState(t, ep, dat.StateUnconfiguredUnconnected)
	rsp = must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: ep, EVD: p.b.cr}))
	p.connectTo(t, p.a.ep, rsp.ConnQual())
	cr = p.b.request1(t)
	wantState(t, ep, dat.StateUnconfiguredPassive)
	p.b.supply(t, ep)
	wantState(t, ep, dat.StatePassiveConnectionPending)
	ok(t, cr.Accept(nil, nil))
	p.established(t)
	// Supplied before the request, it waits as any reserved EP does.
	rsp = must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EVD: p.b.cr}))
	ep = must[dat.RSPParam](t)(rsp.Query()).EP
	p.b.supply(t, ep)
	wantState(t, ep, dat.StateReserved)
	p.connectTo(t, p.a.newEP(t, nil), rsp.ConnQual())
	ok(t, p.b.request1(t).Accept(nil, nil))
	p.established(t)
	ok(t, must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EVD: p.b.cr})).Free())
}

func TestRequestAtAnRSPThatGivesUp(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 8)))
	rsp := must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: p.b.ep, EVD: p.b.cr}))
	p.connectTo(t, p.a.ep, rsp.ConnQual())
	cr := p.b.request1(t)
	ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
	next(t, p.a.connect, dat.ConnectionDisconnected)
	wantState(t, p.b.ep, dat.StatePassiveConnectionPending) // the consumer learns of it when it accepts
	ok(t, cr.Accept(nil, nil))
	nextDTO(t, p.b.recv, 1, dat.StatusFlushed)
	ev := next(t, p.b.connect, dat.ConnectionAcceptCompletionError)
	if c := ev.Connection(); !errors.Is(c.Cause, verbs.ErrPeerGone) {
		t.Fatalf("%+v", c)
	}
	wantState(t, p.b.ep, dat.StateDisconnected)
	ok(t, p.b.ep.Reset())
}

func TestRequestThatFindsItsEVDFullIsRefused(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	small := newEVD(t, p.b.ia, dat.EVDConfig{MinLen: 1, Streams: dat.StreamConnectionRequest | dat.StreamSoftware})
	ok(t, small.PostSE(1))
	rsp := must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: p.b.ep, EVD: small}))
	p.connectTo(t, p.a.ep, rsp.ConnQual())
	next(t, p.a.connect, dat.ConnectionNonPeerRejected)
	ev := next(t, p.b.ia.AsyncEVD(), dat.AsyncErrorEVDOverflow)
	if a := ev.Async(); a.Object != dat.Object(small) || a.Reason != dat.ReasonEVDOverflow {
		t.Fatalf("%+v", a)
	}
	eventually(t, "the end of the RSP, whose one request that was", func() bool {
		_, err := rsp.Query()
		return errors.Is(err, dat.InvalidHandleRSP)
	})
	wantState(t, p.b.ep, dat.StateUnconnected)

	psp := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: small, Flags: dat.PSPProvider}))
	eps := must[dat.IAParam](t)(p.b.ia.Query()).Counters.EPs
	p.connectTo(t, p.a.newEP(t, nil), psp.ConnQual())
	next(t, p.a.connect, dat.ConnectionNonPeerRejected)
	eventually(t, "the provider's EP is taken back", func() bool {
		q := must[dat.IAParam](t)(p.b.ia.Query()).Counters
		return q.EPs == eps && q.CRs == 0
	})
}

func TestServicePointsShareTheQualifiers(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	ia, evd := p.b.ia, p.b.cr
	make := map[string]func(qual uint64) (uint64, error){
		"PSP": func(qual uint64) (uint64, error) {
			sp, err := ia.NewPSP(dat.PSPConfig{ConnQual: qual, EVD: evd})
			return sp.ConnQual(), err
		},
		"RSP": func(qual uint64) (uint64, error) {
			sp, err := ia.NewRSP(dat.RSPConfig{ConnQual: qual, EVD: evd, EP: p.b.newEP(t, nil)})
			return sp.ConnQual(), err
		},
		"CSP": func(qual uint64) (uint64, error) {
			sp, err := ia.NewCSP(dat.CSPConfig{Address: netip.AddrPortFrom(ia.Address(), uint16(qual)), EVD: evd})
			return uint64(sp.Address().Port()), err
		},
	}
	for first, one := range make {
		qual, err := one(0)
		ok(t, err)
		for second, other := range make {
			_, err := other(qual)
			if second == "CSP" {
				refused(t, err, dat.PortInUse, dat.NoSubtype)
			} else {
				refused(t, err, dat.ConnQualInUse, dat.NoSubtype)
			}
			if !errors.Is(err, verbs.ErrAddrInUse) {
				t.Errorf("%s over %s: %v", second, first, err)
			}
		}
	}
	lesser := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.MaxPort = 65535 }}), dat.Config{})
	e := newEVD(t, lesser, dat.EVDConfig{Streams: dat.StreamConnectionRequest})
	_, err := lesser.NewPSP(dat.PSPConfig{ConnQual: 65536, EVD: e})
	refused(t, err, dat.ConnQualUnavailable, dat.NoSubtype)
	_, err = lesser.NewRSP(dat.RSPConfig{ConnQual: 65536, EVD: e})
	refused(t, err, dat.ConnQualUnavailable, dat.NoSubtype)
	if n := must[dat.IAParam](t)(lesser.Query()).Counters.EPs; n != 0 {
		t.Errorf("an RSP that failed left %d EPs", n)
	}
}

func TestProviderMakesEPsForAPSP(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	if c := must[dat.IAParam](t)(p.b.ia.Query()).Provider.EPCreator; c != dat.EPCreatorIfAsked {
		t.Fatal(c)
	}
	psp := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.cr, Flags: dat.PSPProvider}))
	if q := must[dat.PSPParam](t)(psp.Query()); q.Flags != dat.PSPProvider || q.EVD != p.b.cr || q.ConnQual != psp.ConnQual() {
		t.Fatalf("%+v", q)
	}
	p.connectTo(t, p.a.ep, psp.ConnQual())
	ev := next(t, p.b.cr, dat.ConnectionRequest)
	r := ev.Request()
	ep := must[dat.CRParam](t)(r.CR.Query()).LocalEP
	q := must[dat.EPParam](t)(ep.Query())
	if r.ServicePoint != dat.Object(psp) || q.State != dat.StateTentativeConnectionPending || q.PZ != nil || q.Recv != nil || q.Request != nil || q.Connect != nil {
		t.Fatalf("%+v, %+v", r, q)
	}
	tentative := func(err error) {
		t.Helper()
		refused(t, err, dat.InvalidState, dat.InvalidStateEPTentConnPending)
	}
	tentative(ep.Free())
	tentative(ep.Reset())
	tentative(ep.Disconnect(dat.CloseAbrupt))
	tentative(ep.Connect(p.b.ia.Address(), 1, dat.ConnectConfig{Timeout: 1}))
	tentative(ep.PostSend(1, 0))
	_, err := p.b.ia.NewRSP(dat.RSPConfig{EP: ep, EVD: p.b.cr})
	tentative(err)
	refused(t, r.CR.Accept(nil, nil), dat.InvalidState, dat.InvalidStateEPNotReady)
	refused(t, r.CR.Accept(p.b.ep, nil), dat.InvalidHandle, dat.InvalidHandleEP)
	p.b.supply(t, ep)
	attr := p.b.attr(t)
	attr.MaxRecvDTOs = 100
	ok(t, ep.Modify(dat.EPFieldMaxRecvDTOs, dat.EPParam{Attr: attr}))
	wantState(t, ep, dat.StateTentativeConnectionPending)
	ok(t, ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 8)))
	ok(t, r.CR.Accept(nil, []byte("in")))
	p.established(t)
	ok(t, p.a.ep.PostSend(2, 0, p.a.lmr.Triplet(0, 8)))
	if d := nextDTO(t, p.b.recv, 1, dat.StatusSuccess); d.EP != ep {
		t.Fatalf("%+v", d)
	}
	ok(t, ep.Free()) // as any other now
}

func TestRejectFreesAnEPOfTheProviders(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	psp := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.cr, Flags: dat.PSPProvider}))
	p.connectTo(t, p.a.ep, psp.ConnQual())
	cr := p.b.request1(t)
	ep := must[dat.CRParam](t)(cr.Query()).LocalEP
	ok(t, psp.Free()) // what was delivered stays
	ok(t, cr.Reject(nil))
	next(t, p.a.connect, dat.ConnectionPeerRejected)
	_, err := ep.Query()
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleEP)
	if q := must[dat.IAParam](t)(p.b.ia.Query()).Counters; q.EPs != 1 || q.CRs != 0 {
		t.Fatalf("%+v", q)
	}
	refused(t, cr.Reject(nil), dat.InvalidHandle, dat.InvalidHandleCR)
}

func TestPSPRefusesUnknownFlags(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	_, err := p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.cr, Flags: 2})
	refused(t, err, dat.InvalidParameter, dat.InvalidArg4)
}

func TestCSPListensOnASocketAddress(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	csp := must[*dat.CSP](t)(p.b.ia.NewCSP(dat.CSPConfig{EVD: p.b.cr}))
	addr := csp.Address()
	if addr.Addr() != p.b.ia.Address() || addr.Port() == 0 {
		t.Fatalf("at %v", addr)
	}
	if q := must[dat.CSPParam](t)(csp.Query()); q.Address != addr || q.EVD != p.b.cr || q.MakeEP || q.Comm != (dat.Comm{}) {
		t.Fatalf("%+v", q)
	}
	ok(t, p.a.ep.CommonConnect(addr, dat.ConnectConfig{Timeout: patience, PrivateData: []byte("hello")}))
	ev := next(t, p.b.cr, dat.ConnectionRequest)
	r := ev.Request()
	if r.ServicePoint != dat.Object(csp) || r.ConnQual != uint64(addr.Port()) {
		t.Fatalf("%+v", r)
	}
	if q := must[dat.CRParam](t)(r.CR.Query()); q.LocalEP != nil || string(q.PrivateData) != "hello" {
		t.Fatalf("%+v", q)
	}
	ok(t, r.CR.Accept(p.b.ep, nil))
	p.established(t)
	ok(t, csp.Free())
	refused(t, csp.Free(), dat.InvalidHandle, dat.InvalidHandleCSP)
	_, err := csp.Query()
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleCSP)
	late := p.a.newEP(t, nil)
	ok(t, late.CommonConnect(addr, dat.ConnectConfig{Timeout: patience}))
	next(t, p.a.connect, dat.ConnectionNonPeerRejected)
}

func TestCSPWithEPsOfTheProviders(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	csp := must[*dat.CSP](t)(p.b.ia.NewCSP(dat.CSPConfig{EVD: p.b.cr, MakeEP: true}))
	ok(t, p.a.ep.CommonConnect(csp.Address(), dat.ConnectConfig{Timeout: patience}))
	cr := p.b.request1(t)
	ep := must[dat.CRParam](t)(cr.Query()).LocalEP
	wantState(t, ep, dat.StateUnconfiguredTentative)
	refused(t, cr.Accept(nil, nil), dat.InvalidState, dat.InvalidStateEPUnconfTentative)
	refused(t, ep.Free(), dat.InvalidState, dat.InvalidStateEPUnconfTentative)
	ok(t, ep.Modify(dat.EPFieldConnectEVD, dat.EPParam{Connect: p.b.connect})) // a part of what it lacks
	wantState(t, ep, dat.StateUnconfiguredTentative)
	p.b.supply(t, ep)
	wantState(t, ep, dat.StateTentativeConnectionPending)
	ok(t, cr.Accept(nil, nil))
	p.established(t)

	other := p.a.newEP(t, nil)
	ok(t, other.CommonConnect(csp.Address(), dat.ConnectConfig{Timeout: patience}))
	cr = p.b.request1(t)
	ep = must[dat.CRParam](t)(cr.Query()).LocalEP
	ok(t, cr.Reject(nil))
	next(t, p.a.connect, dat.ConnectionPeerRejected)
	_, err := ep.Query()
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleEP)
}

func TestCSPRefusesWhatDoesNotFit(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	ia, here := p.b.ia, p.b.ia.Address()
	at := func(a string) netip.AddrPort { return netip.MustParseAddrPort(a) }
	noStream := newEVD(t, ia, dat.EVDConfig{Streams: dat.StreamConnection})
	for name, c := range map[string]struct {
		cfg dat.CSPConfig
		typ dat.Type
		sub dat.Subtype
	}{
		"an address of another host": {dat.CSPConfig{EVD: p.b.cr, Address: at("127.9.9.9:0")}, dat.InvalidAddress, dat.InvalidAddressUnsupported},
		"no EVD":                     {dat.CSPConfig{Address: netip.AddrPortFrom(here, 0)}, dat.InvalidHandle, dat.InvalidHandleEVDCR},
		"an EVD without the stream":  {dat.CSPConfig{EVD: noStream}, dat.InvalidHandle, dat.InvalidHandleEVDCR},
		"datagrams":                  {dat.CSPConfig{EVD: p.b.cr, Comm: dat.Comm{Type: syscall.SOCK_DGRAM}}, dat.CommNotSupported, dat.NoSubtype},
		"another domain":             {dat.CSPConfig{EVD: p.b.cr, Comm: dat.Comm{Domain: syscall.AF_UNIX}}, dat.CommNotSupported, dat.NoSubtype},
		"IPv6 at an IPv4 address":    {dat.CSPConfig{EVD: p.b.cr, Address: netip.AddrPortFrom(here, 0), Comm: dat.Comm{Domain: syscall.AF_INET6}}, dat.CommNotSupported, dat.NoSubtype},
		"IPv4 at an IPv6 address":    {dat.CSPConfig{EVD: p.b.cr, Address: at("[::1]:0"), Comm: dat.Comm{Domain: syscall.AF_INET}}, dat.CommNotSupported, dat.NoSubtype},
		"another protocol":           {dat.CSPConfig{EVD: p.b.cr, Comm: dat.Comm{Protocol: syscall.IPPROTO_UDP}}, dat.CommNotSupported, dat.NoSubtype},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ia.NewCSP(c.cfg)
			refused(t, err, c.typ, c.sub)
		})
	}
	comm := dat.Comm{Domain: syscall.AF_INET, Type: syscall.SOCK_STREAM, Protocol: syscall.IPPROTO_TCP}
	csp := must[*dat.CSP](t)(ia.NewCSP(dat.CSPConfig{EVD: p.b.cr, Comm: comm}))
	if q := must[dat.CSPParam](t)(csp.Query()); q.Comm != comm {
		t.Fatalf("%+v", q)
	}
}

func TestCommonConnectChecksItsArguments(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	addr := netip.AddrPortFrom(p.b.ia.Address(), 5)
	refused(t, p.a.ep.CommonConnect(addr, dat.ConnectConfig{}), dat.InvalidParameter, dat.InvalidArg3)
	refused(t, p.a.ep.CommonConnect(netip.AddrPort{}, dat.ConnectConfig{Timeout: 1}), dat.InvalidParameter, dat.InvalidArg2)
	refused(t, p.a.ep.CommonConnect(addr, dat.ConnectConfig{Timeout: 1, PrivateData: make([]byte, 1<<16)}), dat.InvalidParameter, dat.InvalidArg4)
	wantState(t, p.a.ep, dat.StateUnconnected)
	p.connect(t)
	refused(t, p.a.ep.CommonConnect(addr, dat.ConnectConfig{Timeout: 1}), dat.InvalidState, dat.InvalidStateEPConnected)
}

func TestDupConnectChecksItsArguments(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	dup := p.a.newEP(t, nil)
	later := dat.ConnectConfig{Timeout: patience}
	refused(t, dup.DupConnect(p.a.ep, later), dat.InvalidState, dat.InvalidStateEPUnconnected)
	ok(t, p.call())
	refused(t, dup.DupConnect(p.a.ep, later), dat.InvalidState, dat.InvalidStateEPActConnPending)
	ok(t, p.b.request1(t).Accept(p.b.ep, nil))
	p.established(t)
	refused(t, dup.DupConnect(p.a.ep, dat.ConnectConfig{}), dat.InvalidParameter, dat.InvalidArg3)
	refused(t, dup.DupConnect(nil, later), dat.InvalidHandle, dat.InvalidHandle2)
	refused(t, p.a.ep.DupConnect(p.a.ep, later), dat.InvalidState, dat.InvalidStateEPConnected)
	freed := p.a.newEP(t, nil)
	ok(t, freed.Free())
	refused(t, dup.DupConnect(freed, later), dat.InvalidHandle, dat.InvalidHandle2)
	refused(t, freed.DupConnect(p.a.ep, later), dat.InvalidHandle, dat.InvalidHandleEP)
	wantState(t, dup, dat.StateUnconnected)
	ok(t, dup.DupConnect(p.a.ep, later))
	ok(t, p.b.request1(t).Accept(p.b.newEP(t, nil), nil))
	p.established(t)
	ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
	next(t, p.a.connect, dat.ConnectionDisconnected)
	refused(t, p.a.newEP(t, nil).DupConnect(p.a.ep, later), dat.InvalidState, dat.InvalidStateEPDisconnected)
	wantState(t, dup, dat.StateConnected)
}

func TestHandoffGivesTheRequestToAnotherServicePoint(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	elsewhere := newEVD(t, p.b.ia, dat.EVDConfig{Streams: dat.StreamConnectionRequest})
	other := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: elsewhere}))
	ok(t, p.a.ep.Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: patience, PrivateData: []byte("hello")}))
	cr := p.b.request1(t)
	refused(t, cr.Handoff(999999), dat.InvalidParameter, dat.InvalidArg2)
	if q := must[dat.CRParam](t)(cr.Query()); string(q.PrivateData) != "hello" { // the CR is good still
		t.Fatalf("%+v", q)
	}
	ok(t, cr.Handoff(other.ConnQual()))
	for _, err := range []error{cr.Handoff(other.ConnQual()), cr.Accept(p.b.ep, nil), cr.Reject(nil)} {
		refused(t, err, dat.InvalidHandle, dat.InvalidHandleCR)
	}
	ev := next(t, elsewhere, dat.ConnectionRequest)
	r := ev.Request()
	if r.ServicePoint != dat.Object(other) || r.ConnQual != other.ConnQual() || r.CR == cr {
		t.Fatalf("%+v", r)
	}
	if q := must[dat.CRParam](t)(r.CR.Query()); string(q.PrivateData) != "hello" || q.RemoteAddress != p.a.ia.Address() {
		t.Fatalf("%+v", q)
	}
	ok(t, r.CR.Handoff(p.psp.ConnQual())) // and back again
	ok(t, p.b.request1(t).Accept(p.b.ep, nil))
	p.established(t)
	if q := must[dat.IAParam](t)(p.b.ia.Query()).Counters; q.CRs != 0 {
		t.Fatalf("%+v", q)
	}
}

func TestHandoffLetsGoOfTheEPThatCameWithTheRequest(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	provider := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.cr, Flags: dat.PSPProvider}))
	rsp := must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: p.b.ep, EVD: p.b.cr}))
	csp := must[*dat.CSP](t)(p.b.ia.NewCSP(dat.CSPConfig{EVD: p.b.cr}))
	p.connectTo(t, p.a.ep, provider.ConnQual())
	cr := p.b.request1(t)
	made := must[dat.CRParam](t)(cr.Query()).LocalEP
	ok(t, cr.Handoff(rsp.ConnQual()))
	_, err := made.Query()
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleEP)
	cr = p.b.request1(t)
	wantState(t, p.b.ep, dat.StatePassiveConnectionPending)
	ok(t, cr.Handoff(uint64(csp.Address().Port())))
	wantState(t, p.b.ep, dat.StateUnconnected)
	refused(t, rsp.Free(), dat.InvalidHandle, dat.InvalidHandleRSP) // its request has come
	ok(t, p.b.request1(t).Accept(p.b.ep, nil))
	p.established(t)
}

func TestHandoffToWhoCannotTakeItRefusesThePeer(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	small := newEVD(t, p.b.ia, dat.EVDConfig{MinLen: 1, Streams: dat.StreamConnectionRequest | dat.StreamSoftware})
	ok(t, small.PostSE(1))
	full := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: small}))
	ok(t, p.call())
	ok(t, p.b.request1(t).Handoff(full.ConnQual()))
	next(t, p.a.connect, dat.ConnectionNonPeerRejected)
	next(t, p.b.ia.AsyncEVD(), dat.AsyncErrorEVDOverflow)
}

func TestHandoffAfterThePeerGaveUp(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	other := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.cr}))
	ok(t, p.a.ep.Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
	cr := p.b.request1(t)
	ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
	next(t, p.a.connect, dat.ConnectionDisconnected)
	ok(t, cr.Handoff(other.ConnQual()))
	ok(t, p.b.request1(t).Accept(p.b.ep, nil))
	next(t, p.b.connect, dat.ConnectionAcceptCompletionError)
}

// Whoever closes the IA takes the service points and their requests with it, and the peers are told.
func TestCloseRefusesWhatWaitsAtServicePoints(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	provider := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.cr, Flags: dat.PSPProvider}))
	rsp := must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: p.b.ep, EVD: p.b.cr}))
	csp := must[*dat.CSP](t)(p.b.ia.NewCSP(dat.CSPConfig{EVD: p.b.cr}))
	quals := []uint64{p.psp.ConnQual(), provider.ConnQual(), rsp.ConnQual(), uint64(csp.Address().Port())}
	for _, qual := range quals {
		p.connectTo(t, p.a.newEP(t, nil), qual)
	}
	for range quals {
		p.b.request1(t)
	}
	ok(t, p.b.ia.Close(t.Context(), dat.CloseAbrupt))
	for range quals {
		next(t, p.a.connect, dat.ConnectionNonPeerRejected)
	}
	for _, qual := range quals {
		p.connectTo(t, p.a.newEP(t, nil), qual)
		next(t, p.a.connect, dat.ConnectionNonPeerRejected)
	}
}

// Requests pour in while service points come and go: each gets an answer.
func TestServicePointsUnderLoad(t *testing.T) {
	p := newPair(t, pairConfig{split: true, evd: dat.EVDConfig{MinLen: 64}})
	const rounds, callers = 60, 6
	for range rounds {
		rsp := must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EVD: p.b.cr}))
		psp := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.cr, Flags: dat.PSPProvider}))
		eps := make([]*dat.EP, callers)
		for i := range eps {
			eps[i] = p.a.newEP(t, nil)
			go func() {
				qual := rsp.ConnQual()
				if i%2 == 0 {
					qual = psp.ConnQual()
				}
				eps[i].Connect(p.b.ia.Address(), qual, dat.ConnectConfig{Timeout: patience})
			}()
		}
		outcomes := 0
		for deadline := time.Now().Add(patience); outcomes < callers; {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d outcomes", outcomes, callers)
			}
			if ev, err := p.b.cr.Dequeue(); err == nil {
				cr := ev.Request().CR
				switch q, err := cr.Query(); {
				case err != nil:
					t.Fatal(err)
				case outcomes%2 == 0:
					ok(t, q.LocalEP.Modify(pzAndEVDs, dat.EPParam{PZ: p.b.pz, Recv: p.b.recv, Request: p.b.request, Connect: p.b.connect}))
					ok(t, cr.Accept(nil, nil))
				default:
					ok(t, cr.Reject(nil))
				}
			}
			if ev, _, err := p.a.connect.Wait(t.Context(), 1, time.Millisecond); err == nil {
				switch ev.Number {
				case dat.ConnectionEstablished, dat.ConnectionPeerRejected, dat.ConnectionNonPeerRejected:
					outcomes++
				default:
					t.Fatal(ev)
				}
			}
		}
		for _, ep := range eps {
			ok(t, ep.Free())
		}
		ok(t, psp.Free())
		rsp.Free() // unless its request has come
		eventually(t, "the ends of the connections", func() bool {
			for _, o := range []*dat.EVD{p.b.connect, p.b.cr} {
				for range o.Drain() {
				}
			}
			q := must[dat.IAParam](t)(p.b.ia.Query()).Counters
			return q.CRs == 0
		})
	}
}
