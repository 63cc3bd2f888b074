package dat_test

import (
	"math"
	"testing"

	"kdapl/dat"
	"kdapl/dat/internal/altered"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Tests of EPs as objects: creation, query, modify, free, in every state (2.4, 5.6, 8.3 of the reference).

// inState brings a's EP of a fresh pair into a state that can be stayed in.
var inState = map[dat.EPState]func(t *testing.T, p *pair) *dat.EP{
	dat.StateUnconnected: func(t *testing.T, p *pair) *dat.EP { return p.a.ep },
	dat.StateUnconfiguredUnconnected: func(t *testing.T, p *pair) *dat.EP {
		r := must[*dat.RSP](t)(p.a.ia.NewRSP(dat.RSPConfig{EVD: p.a.cr}))
		ep := must[dat.RSPParam](t)(r.Query()).EP
		ok(t, r.Free())
		return ep
	},
	dat.StateReserved: func(t *testing.T, p *pair) *dat.EP {
		must[*dat.RSP](t)(p.a.ia.NewRSP(dat.RSPConfig{EP: p.a.ep, EVD: p.a.cr}))
		return p.a.ep
	},
	dat.StateUnconfiguredReserved: func(t *testing.T, p *pair) *dat.EP {
		r := must[*dat.RSP](t)(p.a.ia.NewRSP(dat.RSPConfig{EVD: p.a.cr}))
		return must[dat.RSPParam](t)(r.Query()).EP
	},
	dat.StatePassiveConnectionPending: func(t *testing.T, p *pair) *dat.EP {
		r := must[*dat.RSP](t)(p.a.ia.NewRSP(dat.RSPConfig{EP: p.a.ep, EVD: p.a.cr}))
		ok(t, p.b.ep.Connect(p.a.ia.Address(), r.ConnQual(), dat.ConnectConfig{Timeout: patience}))
		p.a.request1(t)
		return p.a.ep
	},
	dat.StateUnconfiguredPassive: func(t *testing.T, p *pair) *dat.EP {
		r := must[*dat.RSP](t)(p.a.ia.NewRSP(dat.RSPConfig{EVD: p.a.cr}))
		ok(t, p.b.ep.Connect(p.a.ia.Address(), r.ConnQual(), dat.ConnectConfig{Timeout: patience}))
		return must[dat.CRParam](t)(p.a.request1(t).Query()).LocalEP
	},
	dat.StateActiveConnectionPending: func(t *testing.T, p *pair) *dat.EP {
		ok(t, p.call())
		p.b.request1(t)
		return p.a.ep
	},
	dat.StateTentativeConnectionPending: func(t *testing.T, p *pair) *dat.EP {
		l := must[*dat.PSP](t)(p.a.ia.NewPSP(dat.PSPConfig{EVD: p.a.cr, Flags: dat.PSPProvider}))
		ok(t, p.b.ep.Connect(p.a.ia.Address(), l.ConnQual(), dat.ConnectConfig{Timeout: patience}))
		return must[dat.CRParam](t)(p.a.request1(t).Query()).LocalEP
	},
	dat.StateUnconfiguredTentative: func(t *testing.T, p *pair) *dat.EP {
		l := must[*dat.CSP](t)(p.a.ia.NewCSP(dat.CSPConfig{EVD: p.a.cr, MakeEP: true}))
		ok(t, p.b.ep.CommonConnect(l.Address(), dat.ConnectConfig{Timeout: patience}))
		return must[dat.CRParam](t)(p.a.request1(t).Query()).LocalEP
	},
	dat.StateConnected: func(t *testing.T, p *pair) *dat.EP { p.connect(t); return p.a.ep },
	dat.StateDisconnectPending: func(t *testing.T, p *pair) *dat.EP {
		p.connect(t)
		ok(t, p.a.ep.PostSend(1, 0, p.a.lmr.Triplet(0, 8))) // waits for a receive
		ok(t, p.a.ep.Disconnect(dat.CloseGraceful))
		return p.a.ep
	},
	dat.StateDisconnected: func(t *testing.T, p *pair) *dat.EP {
		p.connect(t)
		ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
		p.a.next(t, dat.ConnectionDisconnected)
		return p.a.ep
	},
	dat.StateCompletionPending: func(t *testing.T, p *pair) *dat.EP {
		ok(t, p.b.ep.Connect(p.a.ia.Address(), must[*dat.PSP](t)(p.a.ia.NewPSP(dat.PSPConfig{EVD: p.a.cr})).ConnQual(), dat.ConnectConfig{Timeout: patience}))
		ok(t, p.a.request1(t).Accept(p.a.ep, nil))
		return p.a.ep
	},
}

// eachState runs a test for an EP in each state.
func eachState(t *testing.T, f func(t *testing.T, p *pair, ep *dat.EP, s dat.EPState)) {
	for s, to := range inState {
		t.Run(s.String(), func(t *testing.T) {
			cfg := pairConfig{}
			if s == dat.StateCompletionPending {
				// The adapter does not tell of the end of a set-up.
				cfg.wrap = func(d *loop.Device) verbs.Device {
					return &altered.Device{Device: d, Hooks: altered.Hooks{Conn: func(ev verbs.ConnEvent, deliver func(verbs.ConnEvent)) {
						if ev.Kind != verbs.ConnEstablished {
							deliver(ev)
						}
					}}}
				}
			}
			p := newPair(t, cfg)
			ep := to(t, p)
			if got := state(t, ep); got != s {
				t.Fatalf("the EP is %v, want %v", got, s)
			}
			f(t, p, ep, s)
		})
	}
}

// held is whether a service point or request holds an EP in a state.
func held(s dat.EPState) bool {
	switch s {
	case dat.StateReserved, dat.StateUnconfiguredReserved, dat.StatePassiveConnectionPending, dat.StateUnconfiguredPassive,
		dat.StateTentativeConnectionPending, dat.StateUnconfiguredTentative:
		return true
	}
	return false
}

func TestFreeInEveryState(t *testing.T) {
	eachState(t, func(t *testing.T, p *pair, ep *dat.EP, s dat.EPState) {
		before := must[dat.IAParam](t)(p.a.ia.Query()).Counters.EPs
		if held(s) {
			refused(t, ep.Free(), dat.InvalidState, s.Subtype())
			if got := state(t, ep); got != s {
				t.Fatalf("refused, the EP is %v", got)
			}
			return
		}
		ok(t, ep.Free())
		refused(t, ep.Free(), dat.InvalidHandle, dat.InvalidHandleEP)
		if n := must[dat.IAParam](t)(p.a.ia.Query()).Counters.EPs; n != before-1 {
			t.Fatalf("%d EPs are counted", n)
		}
		// Its EVD and zone are free of it; the events of its end are not promised, those of its posts are there.
		for range p.a.evd.Drain() {
		}
		if ep != p.a.ep {
			ok(t, p.a.ep.Free())
		}
		ok(t, p.a.lmr.Free())
		ok(t, p.a.pz.Free())
	})
}

// What each call says in each state.
func TestCallsInEveryState(t *testing.T) {
	eachState(t, func(t *testing.T, p *pair, ep *dat.EP, s dat.EPState) {
		bad := func(err error) { t.Helper(); refused(t, err, dat.InvalidState, s.Subtype()) }
		quiescent := s == dat.StateUnconnected || s == dat.StateUnconfiguredUnconnected
		if s != dat.StateUnconnected {
			bad(ep.Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: 1}))
		}
		if !quiescent {
			_, err := p.a.ia.NewRSP(dat.RSPConfig{EP: ep, EVD: p.a.cr})
			bad(err)
		}
		if s != dat.StateUnconnected && s != dat.StateDisconnected {
			bad(ep.Reset())
		}
		if s != dat.StateConnected && s != dat.StateDisconnected {
			bad(ep.PostSend(1, 0))
			bad(ep.PostRDMAWrite(1, 0, dat.RMRTriplet{}))
			bad(ep.PostRDMARead(1, 0, dat.RMRTriplet{}))
			_, err := ep.Post([]dat.Request{{Op: dat.OpSend}})
			bad(err)
		}
		if held(s) || quiescent {
			bad(ep.Disconnect(dat.CloseAbrupt))
			bad(ep.Disconnect(dat.CloseGraceful))
		}
		// Receives are taken in every state, as soon as there is a zone.
		err := ep.PostRecv(2, 0)
		if must[dat.EPParam](t)(ep.Query()).PZ == nil {
			refused(t, err, dat.InvalidState, dat.InvalidStateEPNotReady)
		} else {
			ok(t, err)
		}
		if got := state(t, ep); got != s {
			t.Fatalf("the EP has become %v", got)
		}
	})
}

// Which fields may change in which state.
func TestModifyInEveryState(t *testing.T) {
	eachState(t, func(t *testing.T, p *pair, ep *dat.EP, s dat.EPState) {
		pz := must[*dat.PZ](t)(p.a.ia.NewPZ())
		evd := newEVD(t, p.a.ia, dat.EVDConfig{Streams: allStreams})
		attr := p.a.attr(t)
		attr.MaxRequestDTOs = 20
		attr.TransportSpecific, attr.ProviderSpecific = []dat.NamedAttr{{Name: "t"}}, []dat.NamedAttr{{Name: "p"}}
		param := dat.EPParam{PZ: pz, Recv: evd, Request: evd, Connect: evd, Attr: attr}
		before := must[dat.EPParam](t)(ep.Query())
		quiescent := s == dat.StateUnconnected || s == dat.StateUnconfiguredUnconnected
		for _, c := range []struct {
			mask dat.EPMask
			may  bool
		}{
			{dat.EPFieldRecvEVD, quiescent || held(s)},
			{dat.EPFieldRequestEVD, quiescent || held(s)},
			{dat.EPFieldConnectEVD | dat.EPFieldMaxRequestDTOs, quiescent || held(s)},
			{dat.EPFieldPZ, quiescent || s == dat.StateTentativeConnectionPending || s == dat.StateUnconfiguredTentative ||
				s == dat.StateUnconfiguredReserved || s == dat.StateUnconfiguredPassive},
			{dat.EPFieldTransportSpecific, quiescent},
			{dat.EPFieldProviderSpecific, quiescent},
		} {
			err := ep.Modify(c.mask, param)
			after := must[dat.EPParam](t)(ep.Query())
			if !c.may {
				refused(t, err, dat.InvalidState, state(t, ep).Subtype())
				continue
			}
			ok(t, err)
			for name, is := range map[string]bool{
				"recv":    (after.Recv == evd) == (c.mask&dat.EPFieldRecvEVD != 0 || before.Recv == evd),
				"request": (after.Request == evd) == (c.mask&dat.EPFieldRequestEVD != 0 || before.Request == evd),
				"connect": (after.Connect == evd) == (c.mask&dat.EPFieldConnectEVD != 0 || before.Connect == evd),
				"zone":    (after.PZ == pz) == (c.mask&dat.EPFieldPZ != 0 || before.PZ == pz),
				"depth":   (after.Attr.MaxRequestDTOs == 20) == (c.mask&dat.EPFieldMaxRequestDTOs != 0 || before.Attr.MaxRequestDTOs == 20),
			} {
				if !is {
					t.Fatalf("%v: %s is wrong", c.mask, name)
				}
			}
			before = after
		}
	})
}

func TestModifyChecksItsArguments(t *testing.T) {
	p := newPair(t, pairConfig{})
	for _, mask := range []dat.EPMask{
		dat.EPFieldIA, dat.EPFieldState, dat.EPFieldComm, dat.EPFieldLocalIAAddress, dat.EPFieldLocalPortQual,
		dat.EPFieldRemoteIAAddress, dat.EPFieldRemotePortQual, dat.EPFieldSRQ, dat.EPFieldAll, 1 << 31, 1 << 63, math.MaxUint64,
	} {
		refused(t, p.a.ep.Modify(mask, dat.EPParam{}), dat.InvalidParameter, dat.InvalidArg2)
	}
	ok(t, p.a.ep.Modify(0, dat.EPParam{}))
	// Objects of another IA, and streams that are missing.
	deaf := newEVD(t, p.a.ia, dat.EVDConfig{})
	for _, c := range []struct {
		mask dat.EPMask
		p    dat.EPParam
		sub  dat.Subtype
	}{
		{dat.EPFieldPZ, dat.EPParam{PZ: p.b.pz}, dat.InvalidHandlePZ},
		{dat.EPFieldRecvEVD, dat.EPParam{Recv: p.b.evd}, dat.InvalidHandleEVDRecv},
		{dat.EPFieldRequestEVD, dat.EPParam{Request: p.b.evd}, dat.InvalidHandleEVDRequest},
		{dat.EPFieldConnectEVD, dat.EPParam{Connect: p.b.evd}, dat.InvalidHandleEVDConn},
		{dat.EPFieldRecvEVD, dat.EPParam{Recv: deaf}, dat.InvalidHandleEVDRecv},
		{dat.EPFieldRequestEVD, dat.EPParam{Request: deaf}, dat.InvalidHandleEVDRequest},
		{dat.EPFieldConnectEVD, dat.EPParam{Connect: deaf}, dat.InvalidHandleEVDConn},
	} {
		refused(t, p.a.ep.Modify(c.mask, c.p), dat.InvalidHandle, c.sub)
	}
	// Attributes out of range.
	for _, n := range []int{-1, 1<<16 + 1, math.MaxInt32 + 1, math.MaxInt} {
		refused(t, p.a.ep.Modify(dat.EPFieldMaxRecvDTOs, dat.EPParam{Attr: dat.EPAttr{MaxRecvDTOs: n}}), dat.InvalidParameter, dat.InvalidArg3)
	}
	// With receives posted nothing can change.
	ok(t, p.a.ep.PostRecv(1, 0))
	refused(t, p.a.ep.Modify(dat.EPFieldConnectEVD, dat.EPParam{Connect: p.a.evd}), dat.InvalidState, dat.InvalidStateEPUnconnected)
	// After all that the EP works.
	p.connect(t)
	ok(t, p.b.ep.PostSend(2, 0))
	nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
	nextDTO(t, p.b.evd, 2, dat.StatusSuccess)
}

// An EVD of an EP that is modified away from it can be freed, and its events stay until then.
func TestModifyLetsGoOfTheOldObjects(t *testing.T) {
	p := newPair(t, pairConfig{})
	old := newEVD(t, p.a.ia, dat.EVDConfig{MinLen: 4, Streams: dat.StreamDTO | dat.StreamConnection})
	pz := must[*dat.PZ](t)(p.a.ia.NewPZ())
	ep := must[*dat.EP](t)(pz.NewEP(dat.EPConfig{Recv: old, Request: old, Connect: old}))
	refused(t, old.Free(), dat.InvalidState, dat.InvalidStateEVDInUse)
	refused(t, pz.Free(), dat.InvalidState, dat.InvalidStatePZInUse)
	ok(t, ep.Modify(dat.EPFieldPZ|dat.EPFieldRecvEVD|dat.EPFieldRequestEVD|dat.EPFieldConnectEVD,
		dat.EPParam{PZ: p.a.pz, Recv: p.a.evd, Request: p.a.evd, Connect: p.a.evd}))
	if q := must[dat.EVDParam](t)(old.Query()); q.QLen != 4 {
		t.Fatalf("room for %d is kept", q.QLen)
	}
	ok(t, old.Free())
	ok(t, pz.Free())
	p.a.ep = ep
	p.connect(t)
	// A modify that fails leaves everything as it was.
	other := p.a.newEP(t, nil)
	tiny := openIA(t, p.dev, dat.Config{})
	refused(t, other.Modify(dat.EPFieldRecvEVD|dat.EPFieldPZ, dat.EPParam{Recv: p.a.evd, PZ: must[*dat.PZ](t)(tiny.NewPZ())}), dat.InvalidHandle, dat.InvalidHandlePZ)
	ok(t, other.PostRecv(5, 0))
	ok(t, other.Free())
	nextDTO(t, p.a.evd, 5, dat.StatusFlushed)
}

// The attributes of a created EP are what was asked for.
func TestNewEPChecksItsArguments(t *testing.T) {
	p := newPair(t, pairConfig{})
	good := p.a.attr(t)
	with := func(change func(*dat.EPAttr)) dat.EPConfig {
		a := good
		change(&a)
		return dat.EPConfig{PZ: p.a.pz, Recv: p.a.evd, Request: p.a.evd, Connect: p.a.evd, Attr: &a}
	}
	freedPZ := must[*dat.PZ](t)(p.a.ia.NewPZ())
	ok(t, freedPZ.Free())
	freedEVD := newEVD(t, p.a.ia, dat.EVDConfig{Streams: allStreams})
	ok(t, freedEVD.Free())
	deaf := newEVD(t, p.a.ia, dat.EVDConfig{})
	before := must[dat.IAParam](t)(p.a.ia.Query()).Counters
	room := must[dat.EVDParam](t)(p.a.evd.Query()).QLen
	for _, c := range []struct {
		name string
		cfg  dat.EPConfig
		typ  dat.Type
		sub  dat.Subtype
	}{
		{"zone of another IA", dat.EPConfig{PZ: p.b.pz}, dat.InvalidHandle, dat.InvalidHandlePZ},
		{"freed zone", dat.EPConfig{PZ: freedPZ}, dat.InvalidHandle, dat.InvalidHandlePZ},
		{"zero zone", dat.EPConfig{PZ: new(dat.PZ)}, dat.InvalidHandle, dat.InvalidHandlePZ},
		{"recv EVD of another IA", dat.EPConfig{PZ: p.a.pz, Recv: p.b.evd}, dat.InvalidHandle, dat.InvalidHandleEVDRecv},
		{"freed recv EVD", dat.EPConfig{PZ: p.a.pz, Recv: freedEVD}, dat.InvalidHandle, dat.InvalidHandleEVDRecv},
		{"zero request EVD", dat.EPConfig{PZ: p.a.pz, Recv: p.a.evd, Request: new(dat.EVD)}, dat.InvalidHandle, dat.InvalidHandleEVDRequest},
		{"deaf request EVD", dat.EPConfig{PZ: p.a.pz, Recv: p.a.evd, Request: deaf}, dat.InvalidHandle, dat.InvalidHandleEVDRequest},
		{"deaf connect EVD", dat.EPConfig{PZ: p.a.pz, Recv: p.a.evd, Request: p.a.evd, Connect: deaf}, dat.InvalidHandle, dat.InvalidHandleEVDConn},
		{"freed SRQ", dat.EPConfig{PZ: p.a.pz, Recv: p.a.evd, SRQ: new(dat.SRQ)}, dat.InvalidHandle, dat.InvalidHandleSRQ},
		{"negative depth", with(func(a *dat.EPAttr) { a.MaxRecvDTOs = -1 }), dat.InvalidParameter, dat.InvalidArg6},
		{"depth of 2^31", with(func(a *dat.EPAttr) { a.MaxRequestDTOs = 1 << 31 }), dat.InvalidParameter, dat.InvalidArg6},
		{"depth of 2^32", with(func(a *dat.EPAttr) { a.MaxRequestDTOs = 1 << 32 }), dat.InvalidParameter, dat.InvalidArg6},
		{"depth of 2^63-1", with(func(a *dat.EPAttr) { a.MaxRecvDTOs = math.MaxInt }), dat.InvalidParameter, dat.InvalidArg6},
		{"too many segments", with(func(a *dat.EPAttr) { a.MaxRequestIOV = 9 }), dat.InvalidParameter, dat.InvalidArg6},
		{"message too long", with(func(a *dat.EPAttr) { a.MaxMessageSize = math.MaxUint32 }), dat.InvalidParameter, dat.InvalidArg6},
		{"reads of 2^31", with(func(a *dat.EPAttr) { a.MaxRDMAReadIn = 1 << 31 }), dat.InvalidParameter, dat.InvalidArg6},
		{"SUPPRESS as discipline", with(func(a *dat.EPAttr) { a.RequestCompletionFlags = dat.CompletionSuppress }), dat.InvalidParameter, dat.InvalidArg6},
		{"solicited requests", with(func(a *dat.EPAttr) { a.RequestCompletionFlags = dat.CompletionSolicitedWait }), dat.InvalidParameter, dat.InvalidArg6},
		{"quality of service", with(func(a *dat.EPAttr) { a.QoS = dat.QoSPremium }), dat.ModelNotSupported, dat.NoSubtype},
		{"unknown service", with(func(a *dat.EPAttr) { a.ServiceType = 200 }), dat.InvalidParameter, dat.InvalidArg6},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := p.a.ia.NewEP(c.cfg)
			refused(t, err, c.typ, c.sub)
			if after := must[dat.IAParam](t)(p.a.ia.Query()).Counters; after != before {
				t.Fatalf("left behind: %+v, was %+v", after, before)
			}
			if q := must[dat.EVDParam](t)(p.a.evd.Query()); q.QLen != room {
				t.Fatalf("room for %d is kept, was %d", q.QLen, room)
			}
		})
	}
	ep := must[*dat.EP](t)(p.a.ia.NewEP(with(func(a *dat.EPAttr) { a.MaxRecvDTOs = 7 })))
	q := must[dat.EPParam](t)(ep.Query())
	if q.State != dat.StateUnconnected || q.PZ != p.a.pz || q.Recv != p.a.evd || q.Request != p.a.evd || q.Connect != p.a.evd ||
		q.Attr.MaxRecvDTOs != 7 || q.LocalAddress != p.a.ia.Address() || q.RemoteAddress.IsValid() {
		t.Fatalf("%+v", q)
	}
}

func TestEPsAreLimited(t *testing.T) {
	ia := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.MaxQP = 2 }}), dat.Config{})
	pz := must[*dat.PZ](t)(ia.NewPZ())
	eps := []*dat.EP{must[*dat.EP](t)(pz.NewEP(dat.EPConfig{})), must[*dat.EP](t)(pz.NewEP(dat.EPConfig{}))}
	_, err := pz.NewEP(dat.EPConfig{})
	refused(t, err, dat.InsufficientResources, dat.ResourceTEP)
	ok(t, eps[0].Free())
	must[*dat.EP](t)(pz.NewEP(dat.EPConfig{}))
}

// If the adapter cannot make a queue pair, the EP is not made, and everything is as it was.
func TestNewEPUndoesWhatItDid(t *testing.T) {
	broken := false
	p := newPair(t, pairConfig{wrap: func(d *loop.Device) verbs.Device {
		return &altered.Device{Device: d, Hooks: altered.Hooks{CreateQP: func(*verbs.QPInit) error {
			if broken {
				return verbs.ErrLimit
			}
			return nil
		}}}
	}})
	room := must[dat.EVDParam](t)(p.a.evd.Query()).QLen
	broken = true
	_, err := p.a.pz.NewEP(dat.EPConfig{Recv: p.a.evd, Request: p.a.evd, Connect: p.a.evd})
	refused(t, err, dat.InsufficientResources, dat.ResourceDevice)
	refused(t, p.a.ep.Modify(dat.EPFieldMaxRecvDTOs, dat.EPParam{Attr: dat.EPAttr{MaxRecvDTOs: 99}}), dat.InsufficientResources, dat.ResourceDevice)
	if q := must[dat.EVDParam](t)(p.a.evd.Query()); q.QLen != room {
		t.Fatalf("room for %d is kept, was %d", q.QLen, room)
	}
	p.connect(t)
	ok(t, p.a.ep.Free())
	ok(t, p.a.lmr.Free())
	ok(t, p.a.pz.Free())
	for range p.a.evd.Drain() {
	}
	ok(t, p.a.evd.Free())
}
