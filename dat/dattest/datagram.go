package dattest

import (
	"kdapl/dat"
)

// Datagrams: EPs of ServiceUD, and how they learn of each other (DAT_IB_UD_*).
var datagramRules = []rule{
	{"two EPs learn where the other takes datagrams", needUD, datagramIntroduce},
	{"a datagram arrives behind 40 bytes of header, and names its sender", needUD, datagramArrives},
	{"an EP can send from its first connect or accept on", needUD, datagramState},
	{"one EP knows many peers", needUD, datagramMany},
	{"a question that is rejected tells why", needUD, datagramReject},
	{"a question to nobody is an error", needUD, datagramNobody},
	{"a question to an unreachable address is an error", needUD | needUnreachable, datagramUnreachable},
	{"a datagram without a receive is lost, and its sender not held", needUD, datagramLost},
	{"a datagram that does not fit the receive is lost", needUD, datagramTooLong},
	{"an EP for datagrams has no other requests, and other EPs no datagrams", needUD, datagramOnly},
	{"a freed address handle cannot be used", needUD, datagramHandle},
	{"a disconnect ends the EP, and tells no peer", needUD, datagramDisconnect},
	{"service and request fit each other", needUD, datagramService},
	{"receives of an SRQ take datagrams", needUD | needSRQ, datagramSRQ},
}

const routeHeader = 40

func ud(_ *dat.EPConfig, a *dat.EPAttr) { a.ServiceType = dat.ServiceUD }

// ask asks from an EP at a qualifier of b.
func (e *env) ask(ep *dat.EP, qual uint64) *dat.CR {
	e.Helper()
	e.call(ep, qual)
	ev := e.event(e.b.cr, dat.IBUDConnectionRequest)
	return ev.Request().CR
}

// introduced takes the event of a peer that is known now.
func (s *side) introduced(ep *dat.EP, passive bool) *dat.AddressHandle {
	s.e.Helper()
	ev := s.e.event(s.connect, dat.IBUDConnectionEstablished)
	d := ev.UD()
	if d.EP != ep || d.Handle == nil || d.Passive != passive || d.Address != s.peer().ia.Address() {
		s.e.Fatalf("%+v of %v", d, ep)
	}
	return d.Handle
}

func (s *side) peer() *side {
	if s == s.e.a {
		return s.e.b
	}
	return s.e.a
}

// introduce makes two EPs known to each other.
func (e *env) introduce(a, b *dat.EP) (toB, toA *dat.AddressHandle) {
	e.Helper()
	psp := e.b.listen()
	e.must(e.ask(a, psp.ConnQual()).Accept(b, nil), "Accept")
	e.must(psp.Free(), "PSP.Free")
	return e.a.introduced(a, false), e.b.introduced(b, true)
}

// datagram sends until one has arrived, for datagrams may be lost.
func (e *env) datagram(from *side, a *dat.EP, to *dat.AddressHandle, b *dat.EP, payload int) dat.DTO {
	e.Helper()
	s := from.peer()
	e.must(b.PostRecv(1, 0, s.lmr.Triplet(4096, routeHeader+payload)), "PostRecv")
	for range 100 {
		e.must(a.PostSendUD(2, 0, to, from.lmr.Triplet(0, payload)), "PostSendUD")
		if d := e.done(from.request, 2, dat.StatusSuccess); d.Operation != dat.OpSendUD || d.EP != a {
			e.Errorf("the sender's event: %+v", d)
		}
		ev, _, err := s.recv.Wait(e.Context(), 1, soon)
		if err == nil {
			if d := ev.DTO(); ev.Number == dat.IBDTOEvent && d.EP == b && d.Cookie == 1 && d.Status == dat.StatusSuccess {
				return d
			}
			e.Fatalf("got %v, want a datagram", ev)
		}
	}
	e.Fatalf("none of 100 datagrams has arrived")
	return dat.DTO{}
}

func datagramIntroduce(e *env) {
	a, b := e.a.ep(ud), e.b.ep(ud)
	psp := e.b.listen()
	e.call(a, psp.ConnQual(), 'w', 'h', 'o')
	ev := e.event(e.b.cr, dat.IBUDConnectionRequest)
	r := ev.Request()
	if q, err := r.CR.Query(); err != nil || r.ServicePoint != dat.Object(psp) || len(q.PrivateData) < 3 || string(q.PrivateData[:3]) != "who" {
		e.Errorf("%+v, %+v, %v", r, q, err)
	}
	e.must(r.CR.Accept(b, []byte("me")), "Accept")
	ev = e.event(e.a.connect, dat.IBUDConnectionEstablished)
	d := ev.UD()
	if d.EP != a || d.Passive || len(d.PrivateData) < 2 || string(d.PrivateData[:2]) != "me" || d.PortQual != psp.ConnQual() {
		e.Errorf("%+v", d)
	}
	if x, ok := ev.IBExtension(); !ok || x.Type != dat.IBExtUDRemoteAH || x.Handle != d.Handle {
		e.Errorf("%+v, %v", x, ok)
	}
	if q, err := d.Handle.Query(); err != nil || q.Address != e.b.ia.Address() || q.PZ != e.a.pz {
		e.Errorf("%+v, %v", q, err)
	}
	e.b.introduced(b, true)
	e.none(e.a.connect, "behind the answer")
}

func datagramArrives(e *env) {
	a, b := e.a.ep(ud), e.b.ep(ud)
	toB, toA := e.introduce(a, b)
	copy(e.a.mem, "to the passive")
	copy(e.b.mem, "to the active!")
	for _, c := range []struct {
		from     *side
		out, in  *dat.EP
		to, back *dat.AddressHandle
	}{{e.a, a, b, toB, toA}, {e.b, b, a, toA, toB}} {
		d := e.datagram(c.from, c.out, c.to, c.in, 14)
		sender, err := c.back.Query()
		e.must(err, "Query")
		if d.Operation != dat.OpReceiveUD || d.Length != routeHeader+14 || d.SourceQPN != sender.QPN {
			e.Errorf("%+v, from %+v", d, sender)
		}
		if got := c.from.peer().mem[4096+routeHeader:][:14]; string(got) != string(c.from.mem[:14]) {
			e.Errorf("arrived: %q", got)
		}
	}
}

func datagramState(e *env) {
	a, b := e.a.ep(ud), e.b.ep(ud)
	e.refused(a.PostSendUD(1, 0, nil), "a datagram of an unconnected EP", dat.InvalidState, dat.InvalidStateEPUnconnected)
	psp := e.b.listen()
	cr := e.ask(a, psp.ConnQual())
	e.state(a, dat.StateConnected)
	e.state(b, dat.StateUnconnected)
	e.must(cr.Accept(b, nil), "Accept")
	e.state(b, dat.StateConnected)
	e.a.introduced(a, false)
	e.b.introduced(b, true)
	e.must(e.ask(a, psp.ConnQual()).Reject(nil), "Reject")
	e.event(e.a.connect, dat.IBUDConnectionReject)
	e.state(a, dat.StateConnected)
}

func datagramMany(e *env) {
	b := e.b.ep(ud)
	psp := e.b.listen()
	for range 4 {
		a := e.a.ep(ud)
		e.must(e.ask(a, psp.ConnQual()).Accept(b, nil), "Accept")
		toB, toA := e.a.introduced(a, false), e.b.introduced(b, true)
		e.datagram(e.a, a, toB, b, 8)
		e.datagram(e.b, b, toA, a, 8)
	}
}

func datagramReject(e *env) {
	a := e.a.ep(ud)
	psp := e.b.listen()
	e.must(e.ask(a, psp.ConnQual()).Reject([]byte("no")), "Reject")
	ev := e.event(e.a.connect, dat.IBUDConnectionReject)
	if d := ev.UD(); d.EP != a || d.Handle != nil || len(d.PrivateData) < 2 || string(d.PrivateData[:2]) != "no" || d.PortQual != psp.ConnQual() {
		e.Errorf("%+v", d)
	}
}

func datagramNobody(e *env) {
	a := e.a.ep(ud)
	psp := e.b.listen()
	qual := psp.ConnQual()
	e.must(psp.Free(), "PSP.Free")
	e.call(a, qual)
	ev := e.event(e.a.connect, dat.IBUDConnectionError)
	if d := ev.UD(); d.EP != a || d.Handle != nil || d.Cause == nil || d.PortQual != qual {
		e.Errorf("%+v", d)
	}
}

func datagramUnreachable(e *env) {
	a := e.a.ep(ud)
	e.must(a.Connect(e.ad.Unreachable, 5, dat.ConnectConfig{Timeout: e.deadline}), "Connect")
	ev := e.event(e.a.connect, dat.IBUDConnectionError)
	if d := ev.UD(); d.EP != a || d.Address != e.ad.Unreachable || d.Cause == nil {
		e.Errorf("%+v", d)
	}
}

func datagramLost(e *env) {
	a, b := e.a.ep(ud), e.b.ep(ud)
	toB, _ := e.introduce(a, b)
	for i := range uint64(5) {
		e.must(a.PostSendUD(i, 0, toB, e.a.lmr.Triplet(0, 8)), "PostSendUD")
		e.done(e.a.request, i, dat.StatusSuccess)
	}
	e.none(e.b.recv, "without a receive")
	e.datagram(e.a, a, toB, b, 8)
}

func datagramTooLong(e *env) {
	a, b := e.a.ep(ud), e.b.ep(ud)
	toB, _ := e.introduce(a, b)
	e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(4096, routeHeader+7)), "PostRecv")
	e.must(a.PostSendUD(2, 0, toB, e.a.lmr.Triplet(0, 8)), "PostSendUD")
	e.done(e.a.request, 2, dat.StatusSuccess)
	e.none(e.b.recv, "one byte too many")
}

func datagramOnly(e *env) {
	a, b := e.a.ep(ud), e.b.ep(ud)
	toB, _ := e.introduce(a, b)
	tr, remote := e.a.lmr.Triplet(0, 8), e.b.lmr.RMRTriplet(0, 8)
	for what, err := range map[string]error{
		"a send": a.PostSend(1, 0, tr), "a write": a.PostRDMAWrite(1, 0, remote, tr), "a read": a.PostRDMARead(1, 0, remote, tr),
	} {
		e.refused(err, what+" of an EP for datagrams", dat.InvalidParameter)
	}
	plain, _ := e.link()
	e.refused(plain.PostSendUD(1, 0, toB, tr), "a datagram of another EP", dat.InvalidParameter)
}

func datagramHandle(e *env) {
	a, b := e.a.ep(ud), e.b.ep(ud)
	toB, toA := e.introduce(a, b)
	e.refused(a.PostSendUD(1, 0, toA), "a handle of another IA", dat.InvalidHandle)
	e.must(toB.Free(), "Free")
	e.refused(toB.Free(), "a second Free", dat.InvalidHandle)
	e.refused(a.PostSendUD(1, 0, toB), "a freed handle", dat.InvalidHandle)
	e.refused(a.PostSendUD(1, 0, nil), "no handle", dat.InvalidHandle)
	toB, _ = e.introduce(a, b)
	e.datagram(e.a, a, toB, b, 8)
}

func datagramDisconnect(e *env) {
	a, b := e.a.ep(ud), e.b.ep(ud)
	toB, _ := e.introduce(a, b)
	e.must(a.PostRecv(1, 0, e.a.lmr.Triplet(0, 64)), "PostRecv")
	e.must(a.Disconnect(dat.CloseGraceful), "Disconnect")
	if d := e.done(e.a.recv, 1, dat.StatusFlushed); d.Operation != dat.OpReceiveUD {
		e.Errorf("%+v", d)
	}
	e.event(e.a.connect, dat.ConnectionDisconnected)
	e.must(a.PostSendUD(2, 0, toB), "PostSendUD of a disconnected EP")
	e.done(e.a.request, 2, dat.StatusFlushed)
	e.none(e.b.connect, "a peer has disconnected")
	e.state(b, dat.StateConnected)
	e.must(a.Reset(), "Reset")
	toB, _ = e.introduce(a, b)
	e.datagram(e.a, a, toB, b, 8)
}

func datagramService(e *env) {
	a, b := e.a.ep(ud), e.b.ep(ud)
	psp := e.b.listen()
	cr := e.ask(a, psp.ConnQual())
	e.refused(cr.Accept(e.b.ep(), nil), "Accept of a question with an EP for connections", dat.InvalidParameter)
	e.must(cr.Accept(b, nil), "Accept")
	e.a.introduced(a, false)
	e.b.introduced(b, true)
	e.call(e.a.ep(), psp.ConnQual())
	rc := e.b.request1()
	e.refused(rc.Accept(b, nil), "Accept of a connection with an EP for datagrams", dat.InvalidParameter)
	e.must(rc.Reject(nil), "Reject")
	e.event(e.a.connect, dat.ConnectionPeerRejected)
	e.call(e.a.ep(), e.b.reserve(e.b.ep(ud)).ConnQual())
	e.event(e.a.connect, dat.ConnectionNonPeerRejected)
}

func datagramSRQ(e *env) {
	srq, err := e.b.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1})
	e.must(err, "NewSRQ")
	a, b := e.a.ep(ud), e.b.ep(ud, func(c *dat.EPConfig, _ *dat.EPAttr) { c.SRQ = srq })
	toB, _ := e.introduce(a, b)
	e.must(srq.PostRecv(1, e.b.lmr.Triplet(0, 64)), "SRQ.PostRecv")
	e.must(a.PostSendUD(2, 0, toB, e.a.lmr.Triplet(0, 8)), "PostSendUD")
	if d := e.done(e.b.recv, 1, dat.StatusSuccess); d.Operation != dat.OpReceiveUD || d.EP != b {
		e.Errorf("%+v", d)
	}
}
