package dat_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/dat"
	"kdapl/dat/internal/altered"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Tests of the set-up of connections (5.2, 5.3, 5.5 of the reference).

// outcome checks the event of a set-up and the state that the EP is in after it.
func outcome(t testing.TB, e *dat.EVD, ep *dat.EP, want dat.EventNumber) dat.ConnectionData {
	t.Helper()
	ev := next(t, e, want)
	c := ev.Connection()
	if c.EP != ep {
		t.Fatalf("%v is about %v, want %v", ev, c.EP, ep)
	}
	s := dat.StateDisconnected
	if want == dat.ConnectionEstablished {
		s = dat.StateConnected
	}
	if got := state(t, ep); got != s {
		t.Fatalf("after %v the EP is %v", want, got)
	}
	if (c.Cause == nil) != (want == dat.ConnectionEstablished || want == dat.ConnectionDisconnected) {
		t.Fatalf("cause of %v: %v", want, c.Cause)
	}
	return c
}

func TestConnectAndAcceptEstablish(t *testing.T) {
	p := newPair(t, pairConfig{})
	ok(t, p.a.ep.Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: dat.Infinite, PrivateData: []byte("hello")}))
	if s := state(t, p.a.ep); s != dat.StateActiveConnectionPending {
		t.Fatal(s)
	}
	ev := p.b.next(t, dat.ConnectionRequest)
	r := ev.Request()
	if r.ServicePoint != dat.Object(p.psp) || r.ConnQual != p.psp.ConnQual() || r.Truncated {
		t.Fatalf("%+v", r)
	}
	q := must[dat.CRParam](t)(r.CR.Query())
	if string(q.PrivateData) != "hello" || q.RemoteAddress != p.a.ia.Address() || q.RemotePortQual == 0 || q.LocalEP != nil {
		t.Fatalf("%+v", q)
	}
	ok(t, r.CR.Accept(p.b.ep, []byte("welcome")))
	if c := outcome(t, p.a.evd, p.a.ep, dat.ConnectionEstablished); string(c.PrivateData) != "welcome" {
		t.Fatalf("private data %q", c.PrivateData)
	}
	if c := outcome(t, p.b.evd, p.b.ep, dat.ConnectionEstablished); len(c.PrivateData) != 0 {
		t.Fatalf("private data of the passive side: %q", c.PrivateData)
	}
	// The CR is gone.
	_, err := r.CR.Query()
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleCR)
	refused(t, r.CR.Accept(p.b.ep, nil), dat.InvalidHandle, dat.InvalidHandleCR)
	refused(t, r.CR.Reject(nil), dat.InvalidHandle, dat.InvalidHandleCR)
	a, b := must[dat.EPParam](t)(p.a.ep.Query()), must[dat.EPParam](t)(p.b.ep.Query())
	if a.RemoteAddress != p.b.ia.Address() || a.RemotePortQual != p.psp.ConnQual() || b.RemoteAddress != p.a.ia.Address() ||
		b.RemotePortQual != a.LocalPortQual || b.LocalPortQual != a.RemotePortQual || a.LocalAddress != b.RemoteAddress {
		t.Fatalf("%+v\n%+v", a, b)
	}
	empty(t, p.a.evd)
	empty(t, p.b.evd)
}

func TestPrivateDataHasItsLimitsOnEveryWay(t *testing.T) {
	p := newPair(t, pairConfig{})
	limit := must[dat.IAParam](t)(p.a.ia.Query()).Provider.MaxPrivateDataSize
	if limit < 64 {
		t.Fatalf("at most %d bytes, 64 are promised", limit)
	}
	for _, n := range []int{0, 1, 64, limit} {
		data := bytes.Repeat([]byte{byte(n)}, n)
		ok(t, p.a.ep.Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: patience, PrivateData: data}))
		cr := p.b.request1(t)
		if got := must[dat.CRParam](t)(cr.Query()).PrivateData; !bytes.Equal(got, data) {
			t.Fatalf("%d bytes came as %d", n, len(got))
		}
		if n == 1 {
			ok(t, cr.Reject(data))
			if c := outcome(t, p.a.evd, p.a.ep, dat.ConnectionPeerRejected); !bytes.Equal(c.PrivateData, data) {
				t.Fatalf("%d bytes came as %d", n, len(c.PrivateData))
			}
			ok(t, p.a.ep.Reset())
			continue
		}
		ok(t, cr.Accept(p.b.ep, data))
		if n > 0 {
			data[0]++ // is the consumer's again
		}
		c := outcome(t, p.a.evd, p.a.ep, dat.ConnectionEstablished)
		if len(c.PrivateData) != n || n > 0 && c.PrivateData[0] == data[0] {
			t.Fatalf("%d bytes came as %d", n, len(c.PrivateData))
		}
		outcome(t, p.b.evd, p.b.ep, dat.ConnectionEstablished)
		ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
		outcome(t, p.a.evd, p.a.ep, dat.ConnectionDisconnected)
		outcome(t, p.b.evd, p.b.ep, dat.ConnectionDisconnected)
		ok(t, p.a.ep.Reset())
		ok(t, p.b.ep.Reset())
	}
	// Too much is refused at once and changes nothing.
	for _, n := range []int{limit + 1, 1 << 20} {
		data := make([]byte, n)
		refused(t, p.a.ep.Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: patience, PrivateData: data}), dat.InvalidParameter, dat.InvalidArg5)
		ok(t, p.call())
		cr := p.b.request1(t)
		refused(t, cr.Accept(p.b.ep, data), dat.InvalidParameter, dat.InvalidArg3)
		refused(t, cr.Reject(data), dat.InvalidParameter, dat.InvalidArg2)
		if state(t, p.a.ep) != dat.StateActiveConnectionPending || state(t, p.b.ep) != dat.StateUnconnected {
			t.Fatal("something has changed")
		}
		ok(t, cr.Reject(nil))
		outcome(t, p.a.evd, p.a.ep, dat.ConnectionPeerRejected)
		ok(t, p.a.ep.Reset())
	}
}

func TestConnectFailsAsTheReasonSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		nowhere := netip.MustParseAddr("192.0.2.1")
		here, qual := p.b.ia.Address(), p.psp.ConnQual()
		for _, c := range []struct {
			addr  netip.Addr
			qual  uint64
			event dat.EventNumber
			after time.Duration
		}{
			{nowhere, qual, dat.ConnectionUnreachable, 0},
			{here, qual + 1, dat.ConnectionNonPeerRejected, 0},
			{here, 1<<64 - 1, dat.ConnectionNonPeerRejected, 0},
			{here, qual, dat.ConnectionTimedOut, time.Minute},
		} {
			ok(t, p.a.ep.PostRecv(1, 0, p.a.lmr.Triplet(0, 8)))
			start := time.Now()
			ok(t, p.a.ep.Connect(c.addr, c.qual, dat.ConnectConfig{Timeout: time.Minute}))
			// What was posted is flushed first.
			if ev, _, err := p.a.evd.Wait(background, 1, dat.Infinite); err != nil || short(ev) != "RECEIVE 1 FLUSHED" {
				t.Fatal(ev, err)
			}
			outcome(t, p.a.evd, p.a.ep, c.event)
			if took := time.Since(start); took != c.after {
				t.Fatalf("%v after %v, want %v", c.event, took, c.after)
			}
			// It must be reset before another attempt.
			refused(t, p.a.ep.Connect(here, qual, dat.ConnectConfig{Timeout: time.Second}), dat.InvalidState, dat.InvalidStateEPDisconnected)
			ok(t, p.a.ep.Reset())
		}
		// The request of the connect that timed out is still there; its acceptance fails.
		cr := p.b.request1(t)
		ok(t, p.b.ep.PostRecv(2, 0, p.b.lmr.Triplet(0, 8)))
		ok(t, cr.Accept(p.b.ep, nil))
		if ev := p.b.next(t, dat.DTOCompletion); short(ev) != "RECEIVE 2 FLUSHED" {
			t.Fatal(ev)
		}
		outcome(t, p.b.evd, p.b.ep, dat.ConnectionAcceptCompletionError)
		ok(t, p.b.ep.Reset())
		p.connect(t)
	})
}

func TestConnectChecksItsArguments(t *testing.T) {
	p := newPair(t, pairConfig{})
	here, qual := p.b.ia.Address(), p.psp.ConnQual()
	for _, c := range []struct {
		addr netip.Addr
		qual uint64
		cfg  dat.ConnectConfig
		typ  dat.Type
		sub  dat.Subtype
	}{
		{netip.Addr{}, qual, dat.ConnectConfig{Timeout: 1}, dat.InvalidParameter, dat.InvalidArg2},
		{here, 0, dat.ConnectConfig{Timeout: 1}, dat.InvalidAddress, dat.InvalidAddressUnsupported},
		{here, qual, dat.ConnectConfig{}, dat.InvalidParameter, dat.InvalidArg4},
		{here, qual, dat.ConnectConfig{Timeout: -2}, dat.InvalidParameter, dat.InvalidArg4},
		{here, qual, dat.ConnectConfig{Timeout: -1 << 63}, dat.InvalidParameter, dat.InvalidArg4},
		{here, qual, dat.ConnectConfig{Timeout: 1, QoS: dat.QoSPremium}, dat.ModelNotSupported, dat.NoSubtype},
		{here, qual, dat.ConnectConfig{Timeout: 1, QoS: 1 << 31}, dat.ModelNotSupported, dat.NoSubtype},
		{here, qual, dat.ConnectConfig{Timeout: 1, Flags: dat.ConnectMultipathRequired}, dat.ModelNotSupported, dat.NoSubtype},
		{here, qual, dat.ConnectConfig{Timeout: 1, Flags: 3}, dat.InvalidParameter, dat.InvalidArg8},
		{here, qual, dat.ConnectConfig{Timeout: 1, Flags: 1<<32 - 1}, dat.InvalidParameter, dat.InvalidArg8},
	} {
		err := p.a.ep.Connect(c.addr, c.qual, c.cfg)
		refused(t, err, c.typ, c.sub)
		var e *dat.Error
		if errors.As(err, &e); e.Peer == "" || e.Op != "ep_connect" {
			t.Fatalf("%+v says neither call nor peer", e)
		}
		if s := state(t, p.a.ep); s != dat.StateUnconnected {
			t.Fatalf("%+v left the EP %v", c, s)
		}
	}
	// Several paths, if possible: it is not.
	ok(t, p.a.ep.Connect(here, qual, dat.ConnectConfig{Timeout: patience, Flags: dat.ConnectMultipathRequested}))
	ok(t, p.b.request1(t).Accept(p.b.ep, nil))
	p.a.next(t, dat.ConnectionEstablished)
}

func TestAConnectionNeedsAZoneAndAConnectEVD(t *testing.T) {
	p := newPair(t, pairConfig{})
	ok(t, p.call())
	cr := p.b.request1(t)
	for _, cfg := range []dat.EPConfig{
		{Recv: p.b.evd, Request: p.b.evd, Connect: p.b.evd},
		{PZ: p.b.pz, Recv: p.b.evd, Request: p.b.evd},
	} {
		ep := must[*dat.EP](t)(p.b.ia.NewEP(cfg))
		refused(t, cr.Accept(ep, nil), dat.InvalidState, dat.InvalidStateEPNotReady)
		refused(t, ep.Connect(p.b.ia.Address(), 1, dat.ConnectConfig{Timeout: 1}), dat.InvalidState, dat.InvalidStateEPNotReady)
		if s := state(t, ep); s != dat.StateUnconnected {
			t.Fatal(s)
		}
		if cfg.PZ == nil {
			refused(t, ep.PostRecv(1, 0), dat.InvalidState, dat.InvalidStateEPNotReady)
		}
		// What is missing can be supplied.
		ok(t, ep.Modify(dat.EPFieldPZ|dat.EPFieldConnectEVD, dat.EPParam{PZ: p.b.pz, Connect: p.b.evd}))
		if cfg.PZ != nil {
			ok(t, cr.Accept(ep, nil))
			p.b.next(t, dat.ConnectionEstablished)
		}
	}
	p.a.next(t, dat.ConnectionEstablished)
}

func TestAcceptNeedsAnEPOfItsIAInTheRightState(t *testing.T) {
	p := newPair(t, pairConfig{})
	ok(t, p.call())
	cr := p.b.request1(t)
	freed := p.b.newEP(t, nil)
	ok(t, freed.Free())
	for _, ep := range []*dat.EP{nil, {}, freed, p.a.ep} {
		refused(t, cr.Accept(ep, nil), dat.InvalidHandle, dat.InvalidHandleEP)
	}
	// A connected one, and one that is connecting.
	busy := p.b.newEP(t, nil)
	lis := must[*dat.PSP](t)(p.a.ia.NewPSP(dat.PSPConfig{EVD: p.a.evd}))
	ok(t, busy.Connect(p.a.ia.Address(), lis.ConnQual(), dat.ConnectConfig{Timeout: patience}))
	refused(t, cr.Accept(busy, nil), dat.InvalidState, dat.InvalidStateEPActConnPending)
	ok(t, p.a.request1(t).Accept(p.a.newEP(t, nil), nil))
	p.a.next(t, dat.ConnectionEstablished)
	p.b.next(t, dat.ConnectionEstablished)
	refused(t, cr.Accept(busy, nil), dat.InvalidState, dat.InvalidStateEPConnected)
	refused(t, busy.Connect(p.a.ia.Address(), lis.ConnQual(), dat.ConnectConfig{Timeout: patience}), dat.InvalidState, dat.InvalidStateEPConnected)
	ok(t, busy.Disconnect(dat.CloseAbrupt))
	p.b.next(t, dat.ConnectionDisconnected)
	refused(t, cr.Accept(busy, nil), dat.InvalidState, dat.InvalidStateEPDisconnected)
	// The request is still there.
	ok(t, cr.Accept(p.b.ep, nil))
	outcome(t, p.b.evd, p.b.ep, dat.ConnectionEstablished)
}

// RDMA read depths are agreed in both directions: nobody sends more than the other takes.
func TestReadDepthsAreAgreed(t *testing.T) {
	p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) { a.MaxRDMAReadIn, a.MaxRDMAReadOut = 2, 16 }})
	ok(t, p.b.ep.Free())
	p.b.ep = p.b.newEP(t, func(a *dat.EPAttr) { a.MaxRDMAReadIn, a.MaxRDMAReadOut = 5, 7 })
	ok(t, p.call())
	cr := p.b.request1(t)
	if q := must[dat.CRParam](t)(cr.Query()); q.ReadsIn != 16 || q.ReadsOut != 2 {
		t.Fatalf("the request wishes %d and %d", q.ReadsIn, q.ReadsOut)
	}
	ok(t, cr.Accept(p.b.ep, nil))
	p.a.next(t, dat.ConnectionEstablished)
	p.b.next(t, dat.ConnectionEstablished)
	a, b := must[dat.EPParam](t)(p.a.ep.Query()).Attr, must[dat.EPParam](t)(p.b.ep.Query()).Attr
	if a.MaxRDMAReadOut > b.MaxRDMAReadIn || b.MaxRDMAReadOut > a.MaxRDMAReadIn || a.MaxRDMAReadOut != 5 || b.MaxRDMAReadOut != 2 {
		t.Fatalf("agreed on %d → %d and %d ← %d", a.MaxRDMAReadOut, b.MaxRDMAReadIn, a.MaxRDMAReadIn, b.MaxRDMAReadOut)
	}
	// More reads than that wait in the queue.
	for i := range 16 {
		ok(t, p.a.ep.PostRDMARead(uint64(i), 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(8*i, 8)))
	}
	for i := range 16 {
		nextDTO(t, p.a.evd, uint64(i), dat.StatusSuccess)
	}
	// The wishes of the consumer stay what they were.
	ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
	p.a.next(t, dat.ConnectionDisconnected)
	if a := must[dat.EPParam](t)(p.a.ep.Query()).Attr; a.MaxRDMAReadIn != 2 || a.MaxRDMAReadOut != 16 {
		t.Fatalf("%d and %d", a.MaxRDMAReadIn, a.MaxRDMAReadOut)
	}
}

// ESTABLISHED comes before the completions of the connection, however early the adapter has them.
func TestEstablishedComesBeforeTheCompletions(t *testing.T) {
	release := make(chan struct{})
	wrap := func(d *loop.Device) verbs.Device {
		return &altered.Device{Device: d, Hooks: altered.Hooks{Conn: func(ev verbs.ConnEvent, deliver func(verbs.ConnEvent)) {
			if ev.Kind == verbs.ConnEstablished && ev.PrivateData == nil { // the passive side's
				<-release
			}
			deliver(ev)
		}}}
	}
	p := newPair(t, pairConfig{wrap: wrap})
	for i := range 3 {
		ok(t, p.b.ep.PostRecv(uint64(i), 0, p.b.lmr.Triplet(0, 8)))
	}
	ok(t, p.call())
	ok(t, p.b.request1(t).Accept(p.b.ep, []byte{1}))
	p.a.next(t, dat.ConnectionEstablished)
	for i := range 3 {
		ok(t, p.a.ep.PostSend(uint64(i), 0, p.a.lmr.Triplet(0, 8)))
		nextDTO(t, p.a.evd, uint64(i), dat.StatusSuccess)
	}
	// The messages are there, and are not told of yet, whoever looks.
	empty(t, p.b.evd)
	ok(t, p.b.evd.PostSE(9))
	if got := drainNumbers(p.b.evd); !slices.Equal(got, []string{"SE 9"}) {
		t.Fatalf("%q", got)
	}
	if s := must[dat.EPStatus](t)(p.b.ep.Status()); s.State != dat.StateCompletionPending {
		t.Fatal(s)
	}
	close(release)
	p.b.next(t, dat.ConnectionEstablished)
	for i := range 3 {
		nextDTO(t, p.b.evd, uint64(i), dat.StatusSuccess)
	}
}

// The same when the set-up ends before it is told of: what was held comes before the end.
func TestHeldCompletionsComeBeforeTheEndOfASetUp(t *testing.T) {
	release := make(chan struct{})
	wrap := func(d *loop.Device) verbs.Device {
		return &altered.Device{Device: d, Hooks: altered.Hooks{Conn: func(ev verbs.ConnEvent, deliver func(verbs.ConnEvent)) {
			if ev.Kind == verbs.ConnEstablished && ev.PrivateData == nil {
				<-release
			}
			deliver(ev)
		}}}
	}
	p := newPair(t, pairConfig{wrap: wrap})
	for i := range 3 {
		ok(t, p.b.ep.PostRecv(uint64(i), 0, p.b.lmr.Triplet(0, 8)))
	}
	ok(t, p.call())
	ok(t, p.b.request1(t).Accept(p.b.ep, []byte{1}))
	p.a.next(t, dat.ConnectionEstablished)
	ok(t, p.a.ep.PostSend(0, 0, p.a.lmr.Triplet(0, 8)))
	ok(t, p.b.ep.Disconnect(dat.CloseGraceful)) // ends a set-up abruptly
	for i, want := range []dat.Status{dat.StatusSuccess, dat.StatusFlushed, dat.StatusFlushed} {
		nextDTO(t, p.b.evd, uint64(i), want)
	}
	outcome(t, p.b.evd, p.b.ep, dat.ConnectionDisconnected)
	close(release)
	p.a.next(t, dat.DTOCompletion)
	p.a.next(t, dat.ConnectionDisconnected)
	empty(t, p.b.evd)
}

func TestDupConnectGoesWhereTheOtherEPIsConnected(t *testing.T) {
	p := newPair(t, pairConfig{})
	ep := p.a.newEP(t, nil)
	refused(t, ep.DupConnect(p.a.ep, dat.ConnectConfig{Timeout: 1}), dat.InvalidState, dat.InvalidStateEPUnconnected)
	refused(t, ep.DupConnect(nil, dat.ConnectConfig{Timeout: 1}), dat.InvalidHandle, dat.InvalidHandle2)
	p.connect(t)
	refused(t, ep.DupConnect(p.a.ep, dat.ConnectConfig{}), dat.InvalidParameter, dat.InvalidArg3)
	ok(t, ep.DupConnect(p.a.ep, dat.ConnectConfig{Timeout: patience, PrivateData: []byte("again")}))
	cr := p.b.request1(t)
	if q := must[dat.CRParam](t)(cr.Query()); string(q.PrivateData) != "again" {
		t.Fatalf("%+v", q)
	}
	ok(t, cr.Accept(p.b.newEP(t, nil), nil))
	outcome(t, p.a.evd, ep, dat.ConnectionEstablished)
	p.b.next(t, dat.ConnectionEstablished)
	if s := state(t, p.a.ep); s != dat.StateConnected {
		t.Fatal(s)
	}
}

func TestDisconnectEndsASetUp(t *testing.T) {
	for _, how := range []dat.CloseFlags{dat.CloseAbrupt, dat.CloseGraceful} {
		p := newPair(t, pairConfig{})
		ok(t, p.a.ep.PostRecv(1, 0, p.a.lmr.Triplet(0, 8)))
		ok(t, p.call())
		ok(t, p.a.ep.Disconnect(how))
		nextDTO(t, p.a.evd, 1, dat.StatusFlushed)
		outcome(t, p.a.evd, p.a.ep, dat.ConnectionDisconnected)
		empty(t, p.a.evd)
		// The peer accepts in vain.
		ev, err := p.b.evd.Dequeue()
		if err == dat.ErrQueueEmpty {
			continue // it was never asked
		}
		ok(t, err)
		ok(t, ev.Request().CR.Accept(p.b.ep, nil))
		outcome(t, p.b.evd, p.b.ep, dat.ConnectionAcceptCompletionError)
	}
}

// Rejecting a request whose peer has given up is no error.
func TestRejectAfterThePeerGaveUp(t *testing.T) {
	p := newPair(t, pairConfig{})
	ok(t, p.call())
	cr := p.b.request1(t)
	ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
	ok(t, cr.Reject([]byte("no")))
	outcome(t, p.a.evd, p.a.ep, dat.ConnectionDisconnected)
}

// What a closed IA leaves behind at its peers.
func TestAClosedIARefusesItsRequests(t *testing.T) {
	p := newPair(t, pairConfig{})
	ok(t, p.call())
	p.b.request1(t)
	ok(t, p.b.ia.Close(context.Background(), dat.CloseAbrupt))
	outcome(t, p.a.evd, p.a.ep, dat.ConnectionNonPeerRejected)
}

// If the adapter refuses a connect or an accept at once, nothing has changed.
func TestWhatTheAdapterRefusesChangesNothing(t *testing.T) {
	broken := true
	wrap := func(d *loop.Device) verbs.Device {
		return &altered.Device{Device: d, Hooks: altered.Hooks{
			Connect: func(p verbs.ConnParams, connect func(verbs.ConnParams) error) error {
				if broken {
					return verbs.ErrLimit
				}
				return connect(p)
			},
			Accept: func(p verbs.ConnParams, accept func(verbs.ConnParams) error) error {
				if broken {
					return verbs.ErrLimit
				}
				return accept(p)
			},
		}}
	}
	p := newPair(t, pairConfig{wrap: wrap})
	ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 8)))
	for range 3 {
		refused(t, p.call(), dat.InsufficientResources, dat.ResourceDevice)
		if s := state(t, p.a.ep); s != dat.StateUnconnected {
			t.Fatal(s)
		}
	}
	broken = false
	ok(t, p.call())
	cr := p.b.request1(t)
	broken = true
	for range 3 {
		refused(t, cr.Accept(p.b.ep, nil), dat.InsufficientResources, dat.ResourceDevice)
		if s := must[dat.EPStatus](t)(p.b.ep.Status()); s.State != dat.StateUnconnected || s.RecvIdle {
			t.Fatal(s)
		}
	}
	broken = false
	ok(t, cr.Accept(p.b.ep, nil))
	outcome(t, p.a.evd, p.a.ep, dat.ConnectionEstablished)
	outcome(t, p.b.evd, p.b.ep, dat.ConnectionEstablished)
	ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
	outcome(t, p.a.evd, p.a.ep, dat.ConnectionDisconnected)
	nextDTO(t, p.b.evd, 1, dat.StatusFlushed)
	outcome(t, p.b.evd, p.b.ep, dat.ConnectionDisconnected)
}
