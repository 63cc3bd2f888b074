package dat_test

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Datagrams: end points of ServiceUD, the InfiniBand extension's DAT_IB_UD_* events and calls.

const header = 40 // bytes before a datagram's payload

// udPair is a pair whose EPs are of ServiceUD.
func udPair(t testing.TB, cfg pairConfig) *pair {
	t.Helper()
	attr := cfg.attr
	cfg.attr = func(a *dat.EPAttr) {
		a.ServiceType = dat.ServiceUD
		if attr != nil {
			attr(a)
		}
	}
	return newPair(t, cfg)
}

// udEP makes one more EP of ServiceUD.
func (s *side) udEP(t testing.TB) *dat.EP {
	t.Helper()
	return s.newEP(t, func(a *dat.EPAttr) { a.ServiceType = dat.ServiceUD })
}

// question takes the next question of a datagram peer.
func (s *side) question(t testing.TB) *dat.CR {
	t.Helper()
	ev := next(t, s.cr, dat.IBUDConnectionRequest)
	cr := ev.Request().CR
	if cr == nil {
		t.Fatal("a question without CR")
	}
	return cr
}

// introduced takes the event of a peer that is known now.
func introduced(t testing.TB, s *side, ep *dat.EP, passive bool) *dat.AddressHandle {
	t.Helper()
	ev := next(t, s.connect, dat.IBUDConnectionEstablished)
	d := ev.UD()
	if d.EP != ep || d.Handle == nil || d.Passive != passive || d.Cause != nil {
		t.Fatalf("%+v, of %v", d, ep)
	}
	return d.Handle
}

// introduce makes the two EPs known to each other.
func (p *pair) introduce(t testing.TB) (atA, atB *dat.AddressHandle) {
	t.Helper()
	ok(t, p.call())
	ok(t, p.b.question(t).Accept(p.b.ep, nil))
	return introduced(t, &p.a, p.a.ep, false), introduced(t, &p.b, p.b.ep, true)
}

func TestDatagramPeersLearnOfEachOther(t *testing.T) {
	p := udPair(t, pairConfig{split: true})
	ok(t, p.a.ep.Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: patience, PrivateData: []byte("who")}))
	ev := next(t, p.b.cr, dat.IBUDConnectionRequest)
	r := ev.Request()
	if r.ServicePoint != dat.Object(p.psp) || r.ConnQual != p.psp.ConnQual() {
		t.Fatalf("%+v", r)
	}
	if q := must[dat.CRParam](t)(r.CR.Query()); string(q.PrivateData) != "who" || q.LocalEP != nil {
		t.Fatalf("%+v", q)
	}
	ok(t, r.CR.Accept(p.b.ep, []byte("me")))
	ev = next(t, p.a.connect, dat.IBUDConnectionEstablished)
	d := ev.UD()
	if d.EP != p.a.ep || d.Passive || string(d.PrivateData) != "me" || d.Address != p.b.ia.Address() || d.PortQual != p.psp.ConnQual() {
		t.Fatalf("%+v", d)
	}
	back := introduced(t, &p.b, p.b.ep, true)
	for i, way := range []struct {
		from, to *side
		ah       *dat.AddressHandle
	}{{&p.a, &p.b, d.Handle}, {&p.b, &p.a, back}} {
		q := must[dat.AddressHandleParam](t)(way.ah.Query())
		if q.Address != way.to.ia.Address() || q.PZ != way.from.pz {
			t.Fatalf("%+v", q)
		}
		copy(way.from.mem, "datagram")
		ok(t, way.to.ep.PostRecv(1, 0, way.to.lmr.Triplet(1024, header+8)))
		ok(t, way.from.ep.PostSendUD(2, 0, way.ah, way.from.lmr.Triplet(0, 8)))
		if s := nextDTO(t, way.from.request, 2, dat.StatusSuccess); s.Operation != dat.OpSendUD || s.EP != way.from.ep {
			t.Fatalf("%+v", s)
		}
		ev := next(t, way.to.recv, dat.IBDTOEvent)
		other := must[dat.AddressHandleParam](t)([]*dat.AddressHandle{back, d.Handle}[i].Query())
		if r := ev.DTO(); r.Operation != dat.OpReceiveUD || r.Length != header+8 || r.SourceQPN != other.QPN || r.Cookie != 1 {
			t.Fatalf("%+v, from %+v", r, other)
		}
		if got := string(way.to.mem[1024+header:][:8]); got != "datagram" {
			t.Fatalf("%q", got)
		}
		if from := netip.AddrFrom16([16]byte(way.to.mem[1024+8:][:16])).Unmap(); from != way.from.ia.Address() {
			t.Fatalf("the header names %v", from)
		}
	}
	if q := must[dat.IAParam](t)(p.a.ia.Query()); q.Counters.AddressHandles != 1 {
		t.Errorf("%+v", q.Counters)
	}
}

func TestDatagramEPIsConnectedWithItsFirstConnectOrAccept(t *testing.T) {
	p := udPair(t, pairConfig{split: true})
	stateIs := func(ep *dat.EP, want dat.EPState) {
		t.Helper()
		if got := state(t, ep); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	stateIs(p.a.ep, dat.StateUnconnected)
	refused(t, p.a.ep.PostSendUD(1, 0, nil), dat.InvalidState, dat.InvalidStateEPUnconnected)
	ok(t, p.call())
	stateIs(p.a.ep, dat.StateConnected)
	stateIs(p.b.ep, dat.StateUnconnected)
	ok(t, p.b.question(t).Accept(p.b.ep, nil))
	stateIs(p.b.ep, dat.StateConnected)
	introduced(t, &p.a, p.a.ep, false)
	introduced(t, &p.b, p.b.ep, true)

	// A question that is not answered with an address changes nothing.
	ok(t, p.call())
	ok(t, p.b.question(t).Reject(nil))
	next(t, p.a.connect, dat.IBUDConnectionReject)
	stateIs(p.a.ep, dat.StateConnected)
}

func TestOneDatagramEPKnowsManyPeers(t *testing.T) {
	p := udPair(t, pairConfig{split: true, evd: dat.EVDConfig{MinLen: 64}})
	const n = 8
	peers := make([]*dat.EP, n)
	for i := range peers { // all of them ask before any is answered
		peers[i] = p.a.udEP(t)
		ok(t, peers[i].Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
	}
	var handles []*dat.AddressHandle
	for range n {
		ok(t, p.b.question(t).Accept(p.b.ep, nil))
		handles = append(handles, introduced(t, &p.b, p.b.ep, true))
	}
	byQPN := map[uint32]*dat.EP{}
	for range n {
		ev := next(t, p.a.connect, dat.IBUDConnectionEstablished)
		ep := ev.UD().EP
		ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, header)))
		ok(t, ep.PostSendUD(2, 0, ev.UD().Handle))
		nextDTO(t, p.a.request, 2, dat.StatusSuccess)
		d := nextDTO(t, p.b.recv, 1, dat.StatusSuccess)
		if byQPN[d.SourceQPN] != nil {
			t.Fatalf("two peers have the number %#x", d.SourceQPN)
		}
		byQPN[d.SourceQPN] = ep
	}
	for _, h := range handles {
		to := byQPN[must[dat.AddressHandleParam](t)(h.Query()).QPN]
		ok(t, to.PostRecv(3, 0, p.a.lmr.Triplet(0, header)))
		ok(t, p.b.ep.PostSendUD(4, 0, h))
		nextDTO(t, p.b.request, 4, dat.StatusSuccess)
		if d := nextDTO(t, p.a.recv, 3, dat.StatusSuccess); d.EP != to {
			t.Fatalf("%+v, want %v", d, to)
		}
	}
	// An address handle works for every EP of its PZ, and outlives the one that it was made for.
	other := p.b.udEP(t)
	ok(t, other.Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
	ok(t, p.b.question(t).Reject(nil))
	next(t, p.b.connect, dat.IBUDConnectionReject)
	ok(t, p.b.ep.Free())
	to := byQPN[must[dat.AddressHandleParam](t)(handles[0].Query()).QPN]
	ok(t, to.PostRecv(5, 0, p.a.lmr.Triplet(0, header)))
	ok(t, other.PostSendUD(6, 0, handles[0]))
	nextDTO(t, p.a.recv, 5, dat.StatusSuccess)
}

func TestDatagramQuestionsThatFail(t *testing.T) {
	p := udPair(t, pairConfig{split: true})
	fails := func(what string, number dat.EventNumber, addr netip.Addr, qual uint64) dat.UDData {
		t.Helper()
		ev := next(t, p.a.connect, number)
		d := ev.UD()
		if d.EP != p.a.ep || d.Handle != nil || d.Cause == nil || d.Address != addr || d.PortQual != qual {
			t.Fatalf("%s: %+v", what, d)
		}
		return d
	}
	here, qual := p.b.ia.Address(), p.psp.ConnQual()
	ok(t, p.call())
	ok(t, p.b.question(t).Reject([]byte("no")))
	if d := fails("reject", dat.IBUDConnectionReject, here, qual); string(d.PrivateData) != "no" {
		t.Fatalf("%+v", d)
	}
	ok(t, p.a.ep.Connect(here, 999999, dat.ConnectConfig{Timeout: patience}))
	fails("nobody listens", dat.IBUDConnectionError, here, 999999)
	away := netip.MustParseAddr("127.9.9.9")
	ok(t, p.a.ep.Connect(away, 5, dat.ConnectConfig{Timeout: patience}))
	fails("nobody's address", dat.IBUDConnectionError, away, 5)
	var cr *dat.CR
	for timeout := time.Millisecond; cr == nil; timeout *= 2 { // the question may not arrive in so short a time
		ok(t, p.a.ep.Connect(here, qual, dat.ConnectConfig{Timeout: timeout}))
		fails("no answer", dat.IBUDConnectionError, here, qual)
		if ev, err := p.b.cr.Dequeue(); err == nil {
			cr = ev.Request().CR
		}
	}
	ok(t, cr.Accept(p.b.ep, nil)) // who asked is gone
	ev := next(t, p.b.connect, dat.IBUDConnectionError)
	if d := ev.UD(); d.EP != p.b.ep || !d.Passive || !errors.Is(d.Cause, verbs.ErrPeerGone) {
		t.Fatalf("%+v", d)
	}
	refused(t, p.a.ep.Connect(netip.Addr{}, 1, dat.ConnectConfig{Timeout: 1}), dat.InvalidParameter, dat.InvalidArg2)
	refused(t, p.a.ep.Connect(here, 0, dat.ConnectConfig{Timeout: 1}), dat.InvalidAddress, dat.InvalidAddressUnsupported)
	eventually(t, "failures leave no handles", func() bool {
		return must[dat.IAParam](t)(p.a.ia.Query()).Counters.AddressHandles == 0
	})
}

func TestDatagramsMayBeLost(t *testing.T) {
	p := udPair(t, pairConfig{split: true})
	toB, _ := p.introduce(t)
	ok(t, p.a.ep.PostSendUD(1, 0, toB, p.a.lmr.Triplet(0, 8))) // no receive
	nextDTO(t, p.a.request, 1, dat.StatusSuccess)
	ok(t, p.b.ep.PostRecv(2, 0, p.b.lmr.Triplet(0, header+7)))
	ok(t, p.a.ep.PostSendUD(3, 0, toB, p.a.lmr.Triplet(0, 8))) // too long for it
	nextDTO(t, p.a.request, 3, dat.StatusSuccess)
	empty(t, p.b.recv)
	ok(t, p.a.ep.PostSendUD(4, 0, toB, p.a.lmr.Triplet(0, 7)))
	nextDTO(t, p.b.recv, 2, dat.StatusSuccess)
}

func TestOperationsByServiceType(t *testing.T) {
	ud := udPair(t, pairConfig{split: true})
	toB, _ := ud.introduce(t)
	rc := newPair(t, pairConfig{split: true}).connect(t)
	a := ud.a.ep
	tr, remote := ud.a.lmr.Triplet(0, 8), ud.b.lmr.RMRTriplet(0, 8)
	for name, err := range map[string]error{
		"send":            a.PostSend(1, 0, tr),
		"write":           a.PostRDMAWrite(1, 0, remote, tr),
		"read":            a.PostRDMARead(1, 0, remote, tr),
		"write immediate": a.PostRDMAWriteImmediate(1, 0, 1, remote, tr),
		"atomic":          a.PostFetchAdd(1, 0, 1, remote, tr),
		"datagram of RC":  rc.a.ep.PostSendUD(1, 0, toB, rc.a.lmr.Triplet(0, 8)),
	} {
		t.Run(name, func(t *testing.T) { refused(t, err, dat.InvalidParameter, dat.InvalidArg1) })
	}
	r := must[*dat.RMR](t)(ud.a.pz.NewRMR())
	_, err := r.Bind(ud.a.lmr, tr, remoteBoth, dat.VATypeVA, a, 1, 0)
	refused(t, err, dat.InvalidParameter, dat.NoSubtype)
	n, err := a.Post([]dat.Request{{Op: dat.OpSendUD, To: toB, Cookie: 7}, {Op: dat.OpSend}})
	if n != 1 {
		t.Fatalf("%d posted", n)
	}
	refused(t, err, dat.InvalidParameter, dat.InvalidArg1)
	nextDTO(t, ud.a.request, 7, dat.StatusSuccess)
	empty(t, ud.a.request)
	if n := testing.AllocsPerRun(100, func() {
		ok(t, a.PostSendUD(1, 0, toB, tr))
		var ev [1]dat.Event
		if ud.a.request.DequeueInto(ev[:]) != 1 {
			t.Fatal("no event")
		}
	}); n != 0 {
		t.Errorf("a datagram allocates %v times", n)
	}
}

func TestAddressHandleIsGoneWhenItIsFreed(t *testing.T) {
	p := udPair(t, pairConfig{split: true})
	toB, toA := p.introduce(t)
	ok(t, toB.Free())
	refused(t, toB.Free(), dat.InvalidHandle, dat.NoSubtype)
	_, err := toB.Query()
	refused(t, err, dat.InvalidHandle, dat.NoSubtype)
	refused(t, p.a.ep.PostSendUD(1, 0, toB), dat.InvalidHandle, dat.InvalidHandle4)
	refused(t, p.a.ep.PostSendUD(1, 0, nil), dat.InvalidHandle, dat.InvalidHandle4)
	refused(t, p.a.ep.PostSendUD(1, 0, toA), dat.InvalidHandle, dat.InvalidHandle4) // of another IA

	pz := must[*dat.PZ](t)(p.b.ia.NewPZ())
	attr := p.b.attr(t)
	attr.ServiceType = dat.ServiceUD
	ep := must[*dat.EP](t)(pz.NewEP(dat.EPConfig{Recv: p.b.recv, Request: p.b.request, Connect: p.b.connect, Attr: &attr}))
	ok(t, p.call())
	ok(t, p.b.question(t).Accept(ep, nil))
	h := introduced(t, &p.b, ep, true)
	introduced(t, &p.a, p.a.ep, false)
	refused(t, p.b.ep.PostSendUD(1, 0, h), dat.ProtectionViolation, dat.NoSubtype)
	ok(t, ep.Free())
	ok(t, pz.Free()) // takes the handle with it
	_, err = h.Query()
	refused(t, err, dat.InvalidHandle, dat.NoSubtype)
	if q := must[dat.IAParam](t)(p.b.ia.Query()); q.Counters.AddressHandles != 1 {
		t.Errorf("%+v", q.Counters)
	}
	var none *dat.AddressHandle
	refused(t, none.Free(), dat.InvalidHandle, dat.NoSubtype)
	if none.HandleType() != dat.HandleExtensionBase || none.Context() != nil || none.String() == "" {
		t.Error("a nil handle")
	}
	toA.SetContext(5)
	if toA.Context() != 5 {
		t.Error("context")
	}
}

func TestDisconnectOfADatagramEP(t *testing.T) {
	for _, flags := range []dat.CloseFlags{dat.CloseAbrupt, dat.CloseGraceful} {
		t.Run(flags.String(), func(t *testing.T) {
			p := udPair(t, pairConfig{split: true})
			toB, _ := p.introduce(t)
			ok(t, p.a.ep.PostRecv(1, 0, p.a.lmr.Triplet(0, 64)))
			ok(t, p.call()) // a question that nobody answers in time
			late := p.b.question(t)
			ok(t, p.a.ep.Disconnect(flags))
			if d := nextDTO(t, p.a.recv, 1, dat.StatusFlushed); d.Operation != dat.OpReceiveUD {
				t.Fatalf("%+v", d)
			}
			next(t, p.a.connect, dat.ConnectionDisconnected)
			ok(t, p.a.ep.PostSendUD(2, 0, toB))
			if d := nextDTO(t, p.a.request, 2, dat.StatusFlushed); d.Operation != dat.OpSendUD {
				t.Fatalf("%+v", d)
			}
			refused(t, p.call(), dat.InvalidState, dat.InvalidStateEPDisconnected)
			ok(t, p.a.ep.Reset())
			empty(t, p.a.connect)
			// The peer has not noticed, and the handle is good still.
			if got := state(t, p.b.ep); got != dat.StateConnected {
				t.Fatalf("the peer is %v", got)
			}
			ok(t, late.Reject(nil))
			h, _ := p.introduce(t)
			ok(t, p.b.ep.PostRecv(3, 0, p.b.lmr.Triplet(0, 64)))
			ok(t, p.a.ep.PostSendUD(4, 0, h))
			nextDTO(t, p.b.recv, 3, dat.StatusSuccess)
		})
	}
}

// What was asked before a reset has no event after it.
func TestQuestionsOfBeforeAResetAreForgotten(t *testing.T) {
	p := udPair(t, pairConfig{split: true, evd: dat.EVDConfig{MinLen: 2000}})
	for range 100 {
		for range 3 {
			ok(t, p.call())
		}
		stop, done := make(chan bool), make(chan bool)
		go func() { // answers what arrives, before and after the reset
			defer close(done)
			for {
				if ev, err := p.b.cr.Dequeue(); err == nil {
					ev.Request().CR.Accept(p.b.ep, nil)
					continue
				}
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
			}
		}()
		ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
		ok(t, p.a.ep.Reset())
		close(stop)
		receive(t, "answers", done)
		before := drainNumbers(p.a.connect)
		if n := len(before); n < 1 || before[n-1] != dat.ConnectionDisconnected.String() {
			t.Fatalf("before the reset: %v", before)
		}
		drainNumbers(p.b.connect)
		ok(t, p.a.ep.Connect(p.b.ia.Address(), 999999, dat.ConnectConfig{Timeout: patience}))
		next(t, p.a.connect, dat.IBUDConnectionError)
		ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
		next(t, p.a.connect, dat.ConnectionDisconnected)
		ok(t, p.a.ep.Reset())
	}
}

func TestServicePointsTakeDatagramQuestions(t *testing.T) {
	p := udPair(t, pairConfig{split: true})
	ask := func(qual uint64) {
		t.Helper()
		ok(t, p.a.ep.Connect(p.b.ia.Address(), qual, dat.ConnectConfig{Timeout: patience}))
	}
	configure := func(ep *dat.EP) {
		t.Helper()
		ok(t, ep.Modify(dat.EPFieldPZ|dat.EPFieldRecvEVD|dat.EPFieldRequestEVD|dat.EPFieldConnectEVD,
			dat.EPParam{PZ: p.b.pz, Recv: p.b.recv, Request: p.b.request, Connect: p.b.connect}))
	}
	t.Run("PSP with EPs of the provider's", func(t *testing.T) {
		psp := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.cr, Flags: dat.PSPProvider}))
		ask(psp.ConnQual())
		cr := p.b.question(t)
		ep := must[dat.CRParam](t)(cr.Query()).LocalEP
		if q := must[dat.EPParam](t)(ep.Query()); q.State != dat.StateTentativeConnectionPending || q.Attr.ServiceType != dat.ServiceUD {
			t.Fatalf("%+v", q)
		}
		refused(t, cr.Accept(nil, nil), dat.InvalidState, dat.InvalidStateEPNotReady)
		configure(ep)
		ok(t, cr.Accept(nil, nil))
		introduced(t, &p.b, ep, true)
		introduced(t, &p.a, p.a.ep, false)
	})
	t.Run("RSP", func(t *testing.T) {
		ep := p.b.udEP(t)
		rsp := must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: ep, EVD: p.b.cr}))
		plain := p.a.newEP(t, nil) // asks for a connection, which an EP of ServiceUD cannot have
		ok(t, plain.Connect(p.b.ia.Address(), rsp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
		next(t, p.a.connect, dat.ConnectionNonPeerRejected)
		ask(rsp.ConnQual())
		cr := p.b.question(t)
		if got := state(t, ep); got != dat.StatePassiveConnectionPending {
			t.Fatal(got)
		}
		ok(t, cr.Accept(nil, nil))
		introduced(t, &p.b, ep, true)
		introduced(t, &p.a, p.a.ep, false)
	})
	t.Run("CSP", func(t *testing.T) {
		csp := must[*dat.CSP](t)(p.b.ia.NewCSP(dat.CSPConfig{EVD: p.b.cr, MakeEP: true}))
		ok(t, p.a.ep.CommonConnect(csp.Address(), dat.ConnectConfig{Timeout: patience}))
		cr := p.b.question(t)
		ep := must[dat.CRParam](t)(cr.Query()).LocalEP
		configure(ep)
		ok(t, cr.Accept(nil, nil))
		introduced(t, &p.b, ep, true)
		introduced(t, &p.a, p.a.ep, false)
	})
	t.Run("an EP of the wrong service", func(t *testing.T) {
		ask(p.psp.ConnQual())
		cr := p.b.question(t)
		refused(t, cr.Accept(p.b.newEP(t, nil), nil), dat.InvalidParameter, dat.InvalidArg2)
		plain := p.a.newEP(t, nil)
		ok(t, plain.Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
		rc := p.b.request1(t)
		refused(t, rc.Accept(p.b.ep, nil), dat.InvalidParameter, dat.InvalidArg2)
		ok(t, rc.Reject(nil))
		next(t, p.a.connect, dat.ConnectionPeerRejected)
		reserved := p.b.udEP(t)
		rsp := must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: reserved, EVD: p.b.cr}))
		refused(t, cr.Accept(reserved, nil), dat.InvalidState, dat.InvalidStateEPReserved)
		ok(t, rsp.Free())
		ok(t, cr.Accept(p.b.ep, nil)) // the CR is good still
		introduced(t, &p.a, p.a.ep, false)
		introduced(t, &p.b, p.b.ep, true)
	})
}

func TestDatagramEPWithSRQ(t *testing.T) {
	p := udPair(t, pairConfig{split: true})
	srq := must[*dat.SRQ](t)(p.b.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1}))
	ok(t, p.b.ep.Free())
	p.b.ep = p.b.srqEP(t, srq, func(a *dat.EPAttr) { a.ServiceType = dat.ServiceUD })
	toB, _ := p.introduce(t)
	ok(t, srq.PostRecv(1, p.b.lmr.Triplet(0, header+8)))
	ok(t, p.a.ep.PostSendUD(2, 0, toB, p.a.lmr.Triplet(0, 8)))
	ev := next(t, p.b.recv, dat.IBDTOEvent)
	if d := ev.DTO(); d.Operation != dat.OpReceiveUD || d.EP != p.b.ep || d.Cookie != 1 || d.Length != header+8 {
		t.Fatalf("%+v", d)
	}
}

func TestDatagramsAreAnExtension(t *testing.T) {
	ia := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.Caps &^= verbs.CapUD | verbs.CapAtomics | verbs.CapWriteImm }}), dat.Config{})
	q := must[dat.IAParam](t)(ia.Query())
	if q.Attr.Extension != dat.ExtensionNone {
		t.Errorf("extension %v", q.Attr.Extension)
	}
	attr := dat.DefaultEPAttr(q.Attr)
	attr.ServiceType = dat.ServiceUD
	_, err := must[*dat.PZ](t)(ia.NewPZ()).NewEP(dat.EPConfig{Attr: &attr})
	refused(t, err, dat.ModelNotSupported, dat.NoSubtype)
	ia = openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.Caps &^= verbs.CapAtomics | verbs.CapWriteImm }}), dat.Config{})
	if q := must[dat.IAParam](t)(ia.Query()); q.Attr.Extension != dat.ExtensionIB {
		t.Errorf("an adapter with datagrams alone: %v", q.Attr.Extension)
	}
}

func TestDatagramEPBreaksWithItsAdapter(t *testing.T) {
	p := udPair(t, pairConfig{split: true})
	p.introduce(t)
	ok(t, p.a.ep.PostRecv(1, 0, p.a.lmr.Triplet(0, 64)))
	p.dev.Remove()
	nextDTO(t, p.a.recv, 1, dat.StatusFlushed)
	ev := next(t, p.a.connect, dat.ConnectionBroken)
	if c := ev.Connection(); c.EP != p.a.ep || !errors.Is(c.Cause, loop.ErrRemoved) {
		t.Fatalf("%+v", c)
	}
	async := map[string]bool{}
	for range 2 {
		ev, _, err := p.a.ia.AsyncEVD().Wait(t.Context(), 1, patience)
		ok(t, err)
		async[ev.Number.String()] = true
	}
	if !async[dat.AsyncErrorIACatastrophic.String()] || !async[dat.AsyncErrorEPBroken.String()] {
		t.Fatalf("%v", async)
	}
}

func TestMoreAddressHandlesThanTheAdapterHas(t *testing.T) {
	p := udPair(t, pairConfig{split: true, loop: loop.Config{Adjust: func(a *verbs.Attr) { a.MaxAH = 1 }}})
	toB, toA := p.introduce(t)
	ok(t, p.call())
	ok(t, p.b.question(t).Accept(p.b.ep, nil))
	for _, s := range []*side{&p.a, &p.b} {
		ev := next(t, s.connect, dat.IBUDConnectionError)
		if d := ev.UD(); !errors.Is(d.Cause, verbs.ErrLimit) || d.Handle != nil {
			t.Fatalf("%+v", d)
		}
	}
	ok(t, toB.Free())
	ok(t, toA.Free())
	p.introduce(t)
}

// A peer that speaks verbs can send immediate data with datagrams and sends; DAT has no call for it.
func TestImmediateDataOfPeersThatSpeakVerbs(t *testing.T) {
	p := udPair(t, pairConfig{split: true})
	_, _ = p.introduce(t)
	v := newVerbsPeer(t, p.dev)
	t.Run("datagram", func(t *testing.T) {
		qp := v.qp(t, verbs.QPInit{Type: verbs.UD, QKey: 5})
		ok(t, qp.Modify(verbs.QPRTS))
		ok(t, qp.Connect(verbs.ConnParams{Remote: verbs.Address{IP: p.b.ia.Address(), Port: p.psp.ConnQual()}}))
		ok(t, p.b.question(t).Accept(p.b.ep, nil))
		introduced(t, &p.b, p.b.ep, true)
		ev := receive(t, "answer", v.events)
		ah := must[verbs.AH](t)(v.pd.CreateAH(ev.Remote))
		ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, header)))
		v.send(t, qp, verbs.SendWR{Op: verbs.OpSendImm, Imm: 77, AH: ah.Handle(), RemoteQPN: ev.RemoteQPN, QKey: ev.RemoteQKey})
		got := next(t, p.b.recv, dat.IBDTOEvent)
		if d := got.DTO(); d.Operation != dat.OpReceiveUDImmediate || d.Immediate != 77 || d.SourceQPN != qp.Num() {
			t.Fatalf("%+v", d)
		}
		if x, is := got.IBExtension(); !is || x.Type != dat.IBExtUDRecv || x.Immediate != 77 {
			t.Fatalf("%+v", x)
		}
	})
	t.Run("send", func(t *testing.T) {
		qp := v.qp(t, verbs.QPInit{})
		ok(t, qp.Connect(verbs.ConnParams{Remote: verbs.Address{IP: p.b.ia.Address(), Port: p.psp.ConnQual()}}))
		ep := p.b.newEP(t, nil)
		ok(t, p.b.request1(t).Accept(ep, nil))
		next(t, p.b.connect, dat.ConnectionEstablished)
		receive(t, "connection", v.events)
		ok(t, ep.PostRecv(2, 0, p.b.lmr.Triplet(0, 8)))
		v.send(t, qp, verbs.SendWR{Op: verbs.OpSendImm, Imm: 78})
		got := next(t, p.b.recv, dat.IBDTOEvent)
		if d := got.DTO(); d.Operation != dat.OpReceiveMessageImmediate || d.Immediate != 78 || d.EP != ep {
			t.Fatalf("%+v", d)
		}
		if x, is := got.IBExtension(); !is || x.Type != dat.IBExtRecvImmedData || x.Immediate != 78 {
			t.Fatalf("%+v", x)
		}
	})
}

// verbsPeer is a peer without package dat.
type verbsPeer struct {
	pd     verbs.PD
	cq     verbs.CQ
	events chan verbs.ConnEvent
}

func newVerbsPeer(t testing.TB, dev verbs.Device) *verbsPeer {
	t.Helper()
	ctx := must[verbs.Context](t)(dev.Open(verbs.OpenConfig{}))
	t.Cleanup(func() { ctx.Close() })
	return &verbsPeer{
		pd: must[verbs.PD](t)(ctx.AllocPD()), cq: must[verbs.CQ](t)(ctx.CreateCQ(64, nil)),
		events: make(chan verbs.ConnEvent, 16),
	}
}

// qp makes a QP in QPInitialized.
func (v *verbsPeer) qp(t testing.TB, in verbs.QPInit) verbs.QP {
	t.Helper()
	in.SendCQ, in.RecvCQ, in.MaxSend, in.MaxRecv, in.MaxSendSGE, in.MaxRecvSGE = v.cq, v.cq, 8, 8, 1, 1
	in.Conn = func(ev verbs.ConnEvent) { v.events <- ev }
	qp := must[verbs.QP](t)(v.pd.CreateQP(in))
	ok(t, qp.Modify(verbs.QPInitialized))
	return qp
}

// send posts a request and awaits its success.
func (v *verbsPeer) send(t testing.TB, qp verbs.QP, wr verbs.SendWR) {
	t.Helper()
	wr.Flags |= verbs.SendSignaled
	must[int](t)(qp.PostSend([]verbs.SendWR{wr}))
	var c [1]verbs.Completion
	eventually(t, "completion of a verbs peer", func() bool { return v.cq.Poll(c[:]) == 1 })
	if c[0].Status != verbs.StatusSuccess {
		t.Fatal(c[0])
	}
}

func TestExtensionDataOfDatagramEvents(t *testing.T) {
	p := udPair(t, pairConfig{split: true})
	view := func(ev dat.Event, typ dat.IBExtType, status dat.IBExtStatus) dat.IBExtData {
		t.Helper()
		x, is := ev.IBExtension()
		if !is || x.Type != typ || x.Status != status {
			t.Fatalf("%v: %+v, %v; want %v, %v", ev, x, is, typ, status)
		}
		return x
	}
	ok(t, p.call())
	ev := next(t, p.b.cr, dat.IBUDConnectionRequest)
	view(ev, dat.IBExtUDConnectRequest, dat.IBExtSuccess)
	ok(t, ev.Request().CR.Accept(p.b.ep, nil))
	toB := view(next(t, p.a.connect, dat.IBUDConnectionEstablished), dat.IBExtUDRemoteAH, dat.IBExtSuccess).Handle
	if x := view(next(t, p.b.connect, dat.IBUDConnectionEstablished), dat.IBExtUDPassiveRemoteAH, dat.IBExtSuccess); x.Handle == nil || toB == nil {
		t.Fatal("no handle")
	}
	ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, header)))
	ok(t, p.b.ep.PostRecv(2, 0, p.b.lmr.Triplet(0, header)))
	ok(t, dat.ExtensionOp(p.a.ep, dat.IBUDSend, dat.IBArgs{Cookie: 3, To: toB}))
	view(next(t, p.a.request, dat.IBDTOEvent), dat.IBExtUDSend, dat.IBExtSuccess)
	view(next(t, p.b.recv, dat.IBDTOEvent), dat.IBExtUDRecv, dat.IBExtSuccess)
	ok(t, p.b.ep.Disconnect(dat.CloseAbrupt))
	view(next(t, p.b.recv, dat.IBDTOEvent), dat.IBExtUDRecv, dat.IBExtOpErr)
	ok(t, p.call())
	ok(t, p.b.question(t).Reject(nil))
	view(next(t, p.a.connect, dat.IBUDConnectionReject), dat.IBExtUDConnectReject, dat.IBExtOpErr)
	ok(t, p.a.ep.Connect(p.b.ia.Address(), 999999, dat.ConnectConfig{Timeout: patience}))
	view(next(t, p.a.connect, dat.IBUDConnectionError), dat.IBExtUDConnectError, dat.IBExtOpErr)
	ok(t, dat.ExtensionOp(p.a.ep, dat.IBUDAHFree, dat.IBArgs{To: toB}))
	refused(t, dat.ExtensionOp(p.a.ep, dat.IBUDAHFree, dat.IBArgs{To: toB}), dat.InvalidHandle, dat.NoSubtype)
	plain := next(t, p.b.connect, dat.ConnectionDisconnected)
	if x, is := plain.IBExtension(); is {
		t.Fatalf("an event of DAT's own: %+v", x)
	}
	if d := plain.UD(); fmt.Sprint(d) != fmt.Sprint(dat.UDData{}) {
		t.Fatalf("%+v", d)
	}
}
