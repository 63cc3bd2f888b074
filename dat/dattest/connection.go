package dattest

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"kdapl/dat"
)

// Connections: their set-up (dat_ep_connect, dat_cr_accept, dat_cr_reject) and what their states allow.
var connectionRules = []rule{
	{"connect and accept establish a connection on both sides", 0, connEstablished},
	{"private data go both ways", 0, connPrivate},
	{"a rejected connect tells so, with the peer's private data", 0, connRejected},
	{"a connect to nobody is refused", 0, connNobody},
	{"a connect to an unreachable address tells so", needUnreachable, connUnreachable},
	{"a connect that nobody answers times out, and its accept fails later", 0, connTimedOut},
	{"an EP must be reset before it connects again", 0, connAgain},
	{"a connection needs a zone and a connect EVD", 0, connNotReady},
	{"an accept needs an unconnected EP of its IA, or changes nothing", 0, connAcceptStates},
	{"a disconnect ends a set-up", 0, connCancelled},
	{"both ends know the addresses of both", 0, connAddresses},
	{"read depths are agreed for both directions", 0, connReads},
	{"established comes before the completions of the connection", 0, connOrder},
	{"a message is answered in its upcall, whichever EVDs the EP has", 0, connAnswer},
	{"EPs connect again and again", 0, connReuse},
	{"the end of an earlier connection does not touch the next one", 0, connStale},
	{"many connections are set up at once", 0, connMany},
	{"arguments of connect are checked", 0, connArgs},
	{"a duplicate connect goes where the other EP is connected", 0, dupConnect},
	{"a duplicate connect needs an EP that is connected", 0, dupStates},
	{"a common connect checks its arguments", 0, commonArgs},
	{"an EP is modified as its state allows, wholly or not at all", 0, connModify},
	{"an EP gets other EVDs as soon as its end is told", 0, connModifyAtOnce},
}

func connEstablished(e *env) {
	a, b := e.a.ep(), e.b.ep()
	psp := e.b.listen()
	e.call(a, psp.ConnQual())
	ev := e.event(e.b.cr, dat.ConnectionRequest)
	if r := ev.Request(); r.ServicePoint != dat.Object(psp) || r.ConnQual != psp.ConnQual() || r.CR == nil {
		e.Errorf("%+v", r)
	}
	cr := ev.Request().CR
	e.must(cr.Accept(b, nil), "Accept")
	for _, s := range []*side{e.a, e.b} {
		ep := map[*side]*dat.EP{e.a: a, e.b: b}[s]
		ev := e.event(s.connect, dat.ConnectionEstablished)
		if c := ev.Connection(); c.EP != ep || c.Cause != nil {
			e.Errorf("%v: %+v", ev, c)
		}
		e.state(ep, dat.StateConnected)
	}
	_, err := cr.Query()
	e.refused(err, "a query of an answered request", dat.InvalidHandle, dat.InvalidHandleCR)
	e.refused(cr.Reject(nil), "a reject of an answered request", dat.InvalidHandle, dat.InvalidHandleCR)
	e.none(e.a.connect, "after the connection")
	e.none(e.b.connect, "after the connection")
}

func connPrivate(e *env) {
	for _, n := range []int{0, 1, min(64, e.a.prov.MaxPrivateDataSize)} {
		a, b := e.a.ep(), e.b.ep()
		psp := e.b.listen()
		there, back := bytes.Repeat([]byte{0xA0}, n), bytes.Repeat([]byte{0x0B}, n)
		e.call(a, psp.ConnQual(), there...)
		cr := e.b.request1()
		q, err := cr.Query()
		e.must(err, "CR.Query")
		// A transport may pad with zeros.
		if !bytes.HasPrefix(q.PrivateData, there) || len(bytes.TrimRight(q.PrivateData, "\x00")) > n {
			e.Errorf("%d bytes came as %x", n, q.PrivateData)
		}
		e.must(cr.Accept(b, back), "Accept")
		ev := e.event(e.a.connect, dat.ConnectionEstablished)
		if got := ev.Connection().PrivateData; !bytes.HasPrefix(got, back) || len(bytes.TrimRight(got, "\x00")) > n {
			e.Errorf("%d bytes came back as %x", n, got)
		}
		ev = e.event(e.b.connect, dat.ConnectionEstablished)
		if got := ev.Connection().PrivateData; len(got) != 0 {
			e.Errorf("the passive side has private data: %x", got)
		}
		e.must(psp.Free(), "PSP.Free")
	}
}

func connRejected(e *env) {
	a := e.a.ep()
	e.must(a.PostRecv(1, 0), "PostRecv")
	e.call(a, e.b.listen().ConnQual())
	e.must(e.b.request1().Reject([]byte("no")), "Reject")
	e.done(e.a.recv, 1, dat.StatusFlushed)
	ev := e.event(e.a.connect, dat.ConnectionPeerRejected)
	if c := ev.Connection(); !bytes.HasPrefix(c.PrivateData, []byte("no")) || c.EP != a {
		e.Errorf("%+v", c)
	}
	e.state(a, dat.StateDisconnected)
	e.must(a.Reset(), "Reset")
	e.state(a, dat.StateUnconnected)
}

func connNobody(e *env) {
	psp := e.b.listen()
	qual := psp.ConnQual()
	e.must(psp.Free(), "PSP.Free")
	a := e.a.ep()
	e.must(a.PostRecv(1, 0), "PostRecv")
	e.call(a, qual)
	e.done(e.a.recv, 1, dat.StatusFlushed)
	e.event(e.a.connect, dat.ConnectionNonPeerRejected)
	e.state(a, dat.StateDisconnected)
}

func connUnreachable(e *env) {
	a := e.a.ep()
	e.must(a.Connect(e.ad.Unreachable, 9, dat.ConnectConfig{Timeout: e.deadline}), "Connect")
	ev := e.event(e.a.connect, dat.ConnectionUnreachable)
	if ev.Connection().Cause == nil {
		e.Errorf("%v tells no cause", ev)
	}
	e.state(a, dat.StateDisconnected)
}

func connTimedOut(e *env) {
	a, b := e.a.ep(), e.b.ep()
	e.must(b.PostRecv(1, 0), "PostRecv")
	psp := e.b.listen()
	var cr *dat.CR
	for timeout := soon; cr == nil; timeout *= 2 {
		start := time.Now()
		e.must(a.Connect(e.b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: timeout}), "Connect")
		e.event(e.a.connect, dat.ConnectionTimedOut)
		if took := time.Since(start); took < timeout {
			e.Errorf("after %v of %v", took, timeout)
		}
		e.state(a, dat.StateDisconnected)
		if ev, err := e.b.cr.Dequeue(); err == nil {
			cr = ev.Request().CR
		} else { // it was too short for the request to arrive
			e.must(a.Reset(), "Reset")
		}
	}
	e.must(cr.Accept(b, nil), "Accept")
	e.done(e.b.recv, 1, dat.StatusFlushed)
	e.event(e.b.connect, dat.ConnectionAcceptCompletionError)
	e.state(b, dat.StateDisconnected)
}

func connAgain(e *env) {
	a, b := e.link()
	psp := e.b.listen()
	again := func() error {
		return a.Connect(e.b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: e.deadline})
	}
	e.refused(again(), "Connect of a connected EP", dat.InvalidState, dat.InvalidStateEPConnected)
	e.refused(a.Reset(), "Reset of a connected EP", dat.InvalidState, dat.InvalidStateEPConnected)
	e.must(b.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(e.a.connect, dat.ConnectionDisconnected)
	e.refused(again(), "Connect of a disconnected EP", dat.InvalidState, dat.InvalidStateEPDisconnected)
	e.must(a.Reset(), "Reset")
	e.must(a.Reset(), "Reset of an unconnected EP")
	e.must(again(), "Connect")
	e.refused(again(), "Connect of a connecting EP", dat.InvalidState, dat.InvalidStateEPActConnPending)
	e.must(e.b.request1().Reject(nil), "Reject")
	e.event(e.a.connect, dat.ConnectionPeerRejected)
}

func connNotReady(e *env) {
	psp := e.b.listen()
	for _, cfg := range []dat.EPConfig{{Connect: e.a.connect}, {PZ: e.a.pz}} {
		ep, err := e.a.ia.NewEP(cfg)
		e.must(err, "NewEP")
		e.refused(ep.Connect(e.b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: e.deadline}), "Connect",
			dat.InvalidState, dat.InvalidStateEPNotReady)
		e.state(ep, dat.StateUnconnected)
		e.must(ep.Modify(dat.EPFieldPZ|dat.EPFieldConnectEVD, dat.EPParam{PZ: e.a.pz, Connect: e.a.connect}), "Modify")
		e.call(ep, psp.ConnQual())
		e.must(e.b.request1().Accept(e.b.ep(), nil), "Accept")
		e.established()
		e.must(ep.Free(), "Free")
		e.event(e.b.connect, dat.ConnectionDisconnected)
	}
}

func connAcceptStates(e *env) {
	connected := e.b.ep()
	e.join(e.a.ep(), connected)
	a, b := e.a.ep(), e.b.ep()
	e.call(a, e.b.listen().ConnQual())
	cr := e.b.request1()
	freed := e.b.ep()
	e.must(freed.Free(), "Free")
	for what, ep := range map[string]*dat.EP{"no EP": nil, "a freed EP": freed, "an EP of the other IA": a} {
		e.refused(cr.Accept(ep, nil), "Accept with "+what, dat.InvalidHandle, dat.InvalidHandleEP)
	}
	e.refused(cr.Accept(connected, nil), "Accept with a connected EP", dat.InvalidState, dat.InvalidStateEPConnected)
	e.must(cr.Accept(b, nil), "Accept after all that")
	e.established()
}

func connCancelled(e *env) {
	for _, how := range []dat.CloseFlags{dat.CloseAbrupt, dat.CloseGraceful} {
		a := e.a.ep()
		psp := e.b.listen()
		e.must(a.PostRecv(1, 0), "PostRecv")
		e.call(a, psp.ConnQual())
		cr := e.b.request1()
		e.must(a.Disconnect(how), "Disconnect")
		e.done(e.a.recv, 1, dat.StatusFlushed)
		e.event(e.a.connect, dat.ConnectionDisconnected)
		e.state(a, dat.StateDisconnected)
		e.must(cr.Accept(e.b.ep(), nil), "Accept")
		e.event(e.b.connect, dat.ConnectionAcceptCompletionError)
		e.none(e.a.connect, "after the end")
	}
}

func connAddresses(e *env) {
	a, b := e.link()
	qa, err := a.Query()
	e.must(err, "Query")
	qb, err := b.Query()
	e.must(err, "Query")
	if qa.LocalAddress != qb.RemoteAddress || qa.RemoteAddress != qb.LocalAddress || qa.LocalPortQual != qb.RemotePortQual ||
		qa.RemotePortQual != qb.LocalPortQual || qa.RemoteAddress != e.b.ia.Address() || qa.RemotePortQual == 0 || qa.LocalPortQual == 0 {
		e.Errorf("%+v\n%+v", qa, qb)
	}
}

func connReads(e *env) {
	in, out := min(4, e.a.attr.MaxRDMAReadPerEPIn), min(16, e.a.attr.MaxRDMAReadPerEPOut)
	a, b := e.link(func(_ *dat.EPConfig, a *dat.EPAttr) { a.MaxRDMAReadIn, a.MaxRDMAReadOut = in, out })
	qa, err := a.Query()
	e.must(err, "Query")
	qb, err := b.Query()
	e.must(err, "Query")
	if want := min(in, out); qa.Attr.MaxRDMAReadOut != want || qb.Attr.MaxRDMAReadOut != want || qa.Attr.MaxRDMAReadIn < want || qb.Attr.MaxRDMAReadIn < want {
		e.Errorf("agreed on %d → %d and %d ← %d", qa.Attr.MaxRDMAReadOut, qb.Attr.MaxRDMAReadIn, qa.Attr.MaxRDMAReadIn, qb.Attr.MaxRDMAReadOut)
	}
	// What is more waits in the queue.
	for i := range 12 {
		e.must(a.PostRDMARead(uint64(i), 0, e.b.lmr.RMRTriplet(0, 64), e.a.lmr.Triplet(64*i, 64)), "PostRDMARead")
	}
	for i := range 12 {
		e.done(e.a.request, uint64(i), dat.StatusSuccess)
	}
}

func connOrder(e *env) {
	for range e.rounds(200) {
		ea, eb := e.a.evd(), e.b.evd()
		a, b := e.a.ep(on(ea)), e.b.ep(on(eb))
		for i := range 3 {
			e.must(b.PostRecv(uint64(i), 0, e.b.lmr.Triplet(64*i, 64)), "PostRecv")
		}
		psp := e.b.listen()
		e.call(a, psp.ConnQual())
		cr := e.b.request1()
		// The active side sends as soon as it may, which can be before the passive side has heard of the connection.
		var sender sync.WaitGroup
		sender.Go(func() {
			for i, end := 0, time.Now().Add(e.deadline); i < 3; {
				if err := a.PostSend(uint64(i), 0, e.a.lmr.Triplet(0, 8)); err == nil {
					i++
				} else if time.Now().After(end) {
					e.Errorf("PostSend: %v", err)
					return
				} else {
					e.yield()
				}
			}
		})
		err := cr.Accept(b, nil)
		sender.Wait()
		e.must(err, "Accept")
		e.event(ea, dat.ConnectionEstablished)
		e.queued(eb, 4)
		e.same("the passive side", all(eb), dat.ConnectionEstablished.String(), "RECEIVE 0 SUCCESS", "RECEIVE 1 SUCCESS", "RECEIVE 2 SUCCESS")
		e.must(psp.Free(), "PSP.Free")
		e.must(a.Free(), "Free")
		e.event(eb, dat.ConnectionDisconnected)
	}
}

func connReuse(e *env) {
	a, b := e.a.ep(), e.b.ep()
	for i := range e.rounds(20) {
		e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(0, 64)), "PostRecv")
		e.join(a, b)
		e.must(a.PostSend(2, 0, e.a.lmr.Triplet(0, 8)), "PostSend")
		e.done(e.a.request, 2, dat.StatusSuccess)
		e.done(e.b.recv, 1, dat.StatusSuccess)
		ender := a
		if i%2 != 0 {
			ender = b
		}
		e.must(ender.Disconnect(dat.CloseFlags(i/2%2)), "Disconnect")
		e.event(e.a.connect, dat.ConnectionDisconnected)
		e.event(e.b.connect, dat.ConnectionDisconnected)
		e.must(a.Reset(), "Reset")
		e.must(b.Reset(), "Reset")
	}
}

func connStale(e *env) {
	a := e.a.ep()
	psp := e.b.listen()
	for range e.rounds(50) {
		b := e.b.ep()
		e.call(a, psp.ConnQual())
		e.must(e.b.request1().Accept(b, nil), "Accept")
		e.established()
		e.must(a.Disconnect(dat.CloseAbrupt), "Disconnect")
		e.must(a.Reset(), "Reset") // at once
		e.event(e.a.connect, dat.ConnectionDisconnected)
		e.event(e.b.connect, dat.ConnectionDisconnected)
		e.must(b.Free(), "Free")
	}
}

func connMany(e *env) {
	n := min(e.rounds(100), e.a.attr.MaxEPs/4, e.b.attr.MaxEPs/4)
	for _, s := range []*side{e.a, e.b} {
		s.connect, s.cr = s.evdOf(dat.EVDConfig{MinLen: 2 * n}), s.evdOf(dat.EVDConfig{MinLen: 2 * n})
	}
	few := func(_ *dat.EPConfig, a *dat.EPAttr) { a.MaxRecvDTOs, a.MaxRequestDTOs = 1, 1 }
	psp := e.b.listen()
	eps := map[*dat.EP]bool{}
	for range n {
		a := e.a.ep(few)
		eps[a] = true
		e.call(a, psp.ConnQual())
	}
	for range n {
		e.must(e.b.request1().Accept(e.b.ep(few), nil), "Accept")
	}
	for range n {
		ev := e.event(e.a.connect, dat.ConnectionEstablished)
		if !eps[ev.Connection().EP] {
			e.Fatalf("%v came twice", ev)
		}
		delete(eps, ev.Connection().EP)
		e.event(e.b.connect, dat.ConnectionEstablished)
	}
}

func connArgs(e *env) {
	a := e.a.ep()
	here := e.b.ia.Address()
	tooMuch := make([]byte, e.a.prov.MaxPrivateDataSize+1)
	for _, c := range []struct {
		what string
		err  error
		typ  dat.Type
		sub  dat.Subtype
	}{
		{"no time", a.Connect(here, 9, dat.ConnectConfig{}), dat.InvalidParameter, dat.InvalidArg4},
		{"a negative time", a.Connect(here, 9, dat.ConnectConfig{Timeout: -2}), dat.InvalidParameter, dat.InvalidArg4},
		{"too much private data", a.Connect(here, 9, dat.ConnectConfig{Timeout: 1, PrivateData: tooMuch}), dat.InvalidParameter, dat.InvalidArg5},
		{"unknown flags", a.Connect(here, 9, dat.ConnectConfig{Timeout: 1, Flags: 4}), dat.InvalidParameter, dat.InvalidArg8},
		{"a quality of service that is not offered", a.Connect(here, 9, dat.ConnectConfig{Timeout: 1, QoS: 1 << 31}), dat.ModelNotSupported, dat.NoSubtype},
		{"no connection to end", a.Disconnect(dat.CloseAbrupt), dat.InvalidState, dat.InvalidStateEPUnconnected},
		{"an unknown way to disconnect", a.Disconnect(9), dat.InvalidParameter, dat.InvalidArg2},
	} {
		e.refused(c.err, c.what, c.typ, c.sub)
		e.state(a, dat.StateUnconnected)
	}
	if !e.a.prov.SupportsMultipath {
		e.refused(a.Connect(here, 9, dat.ConnectConfig{Timeout: 1, Flags: dat.ConnectMultipathRequired}), "several paths", dat.ModelNotSupported)
	}
	psp := e.b.listen()
	_, err := e.b.ia.NewPSP(dat.PSPConfig{EVD: e.b.cr, ConnQual: psp.ConnQual()})
	e.refused(err, fmt.Sprint("a second listener on ", psp.ConnQual()), dat.ConnQualInUse)
}

func connModify(e *env) {
	ep := e.b.ep()
	evd := e.b.evd()
	p := dat.EPParam{PZ: e.b.pz, Recv: evd, Request: evd, Connect: evd, Attr: dat.DefaultEPAttr(e.b.attr)}
	p.Attr.TransportSpecific = []dat.NamedAttr{{Name: "x", Value: "y"}}
	const evds = dat.EPFieldRecvEVD | dat.EPFieldRequestEVD | dat.EPFieldConnectEVD
	may := func(mask dat.EPMask) {
		e.Helper()
		e.must(ep.Modify(mask, p), "Modify of %v in %v", mask, e.stateOf(ep))
	}
	mayNot := func(mask dat.EPMask) {
		e.Helper()
		s := e.stateOf(ep)
		e.refused(ep.Modify(mask, p), "Modify of "+mask.String()+" in "+s.String(), dat.InvalidState, s.Subtype())
	}
	// What never changes, what is out of range, and what is refused together with good ones.
	for _, mask := range []dat.EPMask{dat.EPFieldIA, dat.EPFieldState, dat.EPFieldLocalIAAddress, dat.EPFieldRemotePortQual, dat.EPFieldSRQ} {
		e.refused(ep.Modify(mask|evds, p), "Modify of "+mask.String(), dat.InvalidParameter, dat.InvalidArg2)
	}
	bad := p
	bad.Attr.MaxRecvDTOs = e.b.attr.MaxDTOPerEP + 1
	e.refused(ep.Modify(evds|dat.EPFieldMaxRecvDTOs, bad), "Modify beyond the limits", dat.InvalidParameter, dat.InvalidArg3)
	if q, err := ep.Query(); err != nil || q.Recv != e.b.recv || q.Request != e.b.request || q.Connect != e.b.connect {
		e.Errorf("a refused Modify changed the EP: %+v, %v", q, err)
	}
	may(evds | dat.EPFieldPZ | dat.EPFieldTransportSpecific)
	rsp := e.b.reserve(ep)
	may(evds | dat.EPFieldMaxRecvDTOs)
	mayNot(dat.EPFieldPZ)
	mayNot(dat.EPFieldTransportSpecific)
	a := e.a.ep()
	e.call(a, rsp.ConnQual())
	cr := e.b.request1()
	e.state(ep, dat.StatePassiveConnectionPending)
	may(evds | dat.EPFieldMaxRequestDTOs)
	mayNot(dat.EPFieldPZ)
	e.must(ep.PostRecv(1, 0), "PostRecv")
	mayNot(dat.EPFieldRecvEVD) // for the receive has a place in the present one
	e.must(cr.Accept(nil, nil), "Accept")
	e.event(e.a.connect, dat.ConnectionEstablished)
	e.event(evd, dat.ConnectionEstablished)
	mayNot(evds)
	mayNot(dat.EPFieldMaxRequestDTOs)
	e.must(a.PostSend(2, 0), "PostSend")
	e.done(evd, 1, dat.StatusSuccess)
	e.must(a.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(evd, dat.ConnectionDisconnected)
	mayNot(evds)
	e.must(ep.Reset(), "Reset")
	may(evds | dat.EPFieldPZ)
}

// connModifyAtOnce moves both ends of a connection between EVDs, while whoever told the end may still be at it.
func connModifyAtOnce(e *env) {
	a, b := e.a.ep(), e.b.ep()
	psp := e.b.listen()
	type set struct{ recv, request, connect *dat.EVD }
	sets := map[*side][2]set{
		e.a: {{e.a.recv, e.a.request, e.a.connect}, {e.a.evd(), e.a.evd(), e.a.evd()}},
		e.b: {{e.b.recv, e.b.request, e.b.connect}, {e.b.evd(), e.b.evd(), e.b.evd()}},
	}
	for i := range e.rounds(100) {
		now := i % 2
		e.must(b.PostRecv(uint64(i), 0), "PostRecv")
		e.call(a, psp.ConnQual())
		e.must(e.b.request1().Accept(b, nil), "Accept")
		for _, s := range []*side{e.a, e.b} {
			e.event(sets[s][now].connect, dat.ConnectionEstablished)
		}
		e.must([2]*dat.EP{a, b}[i/2%2].Disconnect(dat.CloseAbrupt), "Disconnect")
		for _, end := range []struct {
			s  *side
			ep *dat.EP
		}{{e.a, a}, {e.b, b}} {
			e.event(sets[end.s][now].connect, dat.ConnectionDisconnected)
			e.must(end.ep.Reset(), "Reset")
			next := sets[end.s][1-now]
			p := dat.EPParam{Recv: next.recv, Request: next.request, Connect: next.connect}
			e.must(end.ep.Modify(dat.EPFieldRecvEVD|dat.EPFieldRequestEVD|dat.EPFieldConnectEVD, p), "Modify")
		}
		e.done(sets[e.b][now].recv, uint64(i), dat.StatusFlushed)
	}
}

// stateOf is the EP's state.
func (e *env) stateOf(ep *dat.EP) dat.EPState {
	e.Helper()
	s, err := ep.Status()
	e.must(err, "EP.Status")
	return s.State
}
