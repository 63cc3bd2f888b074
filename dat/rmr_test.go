package dat_test

import (
	"bytes"
	"testing"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Windows: dat_rmr_* of the DAT specification.

// rmrKinds runs a test for both kinds of windows.
func rmrKinds(t *testing.T, test func(t *testing.T, p *pair, r *dat.RMR)) {
	for _, kind := range []struct {
		name string
		make func(*dat.PZ) (*dat.RMR, error)
	}{{"PZ scope", (*dat.PZ).NewRMR}, {"EP scope", (*dat.PZ).NewRMRForEP}} {
		t.Run(kind.name, func(t *testing.T) {
			p := connectPair(t, 4096)
			test(t, p, must[*dat.RMR](t)(kind.make(p.b.pz)))
		})
	}
}

const remoteBoth = dat.PrivRemoteRead | dat.PrivRemoteWrite

// bind binds n bytes at off of b's memory and takes the event.
func (s *side) bind(t testing.TB, r *dat.RMR, off, n int, priv dat.Priv) dat.RMRTriplet {
	t.Helper()
	context := must[uint32](t)(r.Bind(s.lmr, s.lmr.Triplet(off, n), priv, dat.VATypeVA, s.ep, 77, 0))
	ev := next(t, s.request, dat.RMRBindCompletion)
	if b := ev.RMRBind(); b.RMR != r || b.Cookie != 77 || b.Status != dat.StatusSuccess {
		t.Fatalf("bind completed as %+v", b)
	}
	return dat.RMRTriplet{VirtualAddress: s.lmr.Address() + uint64(off), SegmentLength: uint32(n), RMRContext: context}
}

func TestRMRGivesPeersAccessToItsPartOnly(t *testing.T) {
	rmrKinds(t, func(t *testing.T, p *pair, r *dat.RMR) {
		w := p.b.bind(t, r, 1024, 512, remoteBoth)
		copy(p.a.mem, bytes.Repeat([]byte("x"), 512))
		ok(t, p.a.ep.PostRDMAWrite(1, 0, w, p.a.lmr.Triplet(0, 512)))
		nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
		ok(t, p.a.ep.PostRDMARead(2, 0, w, p.a.lmr.Triplet(2048, 512)))
		nextDTO(t, p.a.evd, 2, dat.StatusSuccess)
		if !bytes.Equal(p.b.mem[1024:1536], p.a.mem[:512]) || !bytes.Equal(p.a.mem[2048:2560], p.a.mem[:512]) {
			t.Fatal("data")
		}
		w.SegmentLength++ // one byte more than the window has
		ok(t, p.a.ep.PostRDMAWrite(3, 0, w, p.a.lmr.Triplet(0, 513)))
		nextDTO(t, p.a.evd, 3, dat.StatusRemoteAccess)
		p.a.next(t, dat.ConnectionBroken)
		p.b.next(t, dat.ConnectionBroken)
		if p.b.mem[1536] != 0 {
			t.Fatal("written past the window")
		}
	})
}

func TestRMRGivesOnlyThePrivilegesOfItsBind(t *testing.T) {
	rmrKinds(t, func(t *testing.T, p *pair, r *dat.RMR) {
		w := p.b.bind(t, r, 0, 64, dat.PrivRemoteRead)
		ok(t, p.a.ep.PostRDMARead(1, 0, w, p.a.lmr.Triplet(0, 64)))
		nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
		ok(t, p.a.ep.PostRDMAWrite(2, 0, w, p.a.lmr.Triplet(0, 64)))
		nextDTO(t, p.a.evd, 2, dat.StatusRemoteAccess)
	})
}

func TestRMRQueryTellsTheLastBind(t *testing.T) {
	rmrKinds(t, func(t *testing.T, p *pair, r *dat.RMR) {
		unbound := must[dat.RMRParam](t)(r.Query())
		if want := (dat.RMRParam{IA: p.b.ia, PZ: p.b.pz, Scope: unbound.Scope}); unbound != want {
			t.Fatalf("before a bind: %+v", unbound)
		}
		w := p.b.bind(t, r, 8, 64, remoteBoth)
		got := must[dat.RMRParam](t)(r.Query())
		want := dat.RMRParam{IA: p.b.ia, PZ: p.b.pz, Scope: unbound.Scope, Triplet: p.b.lmr.Triplet(8, 64), Priv: remoteBoth, RMRContext: w.RMRContext}
		if got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
	p := connectPair(t, 64)
	for scope, make := range map[dat.RMRScope]func() (*dat.RMR, error){dat.RMRScopePZ: p.a.pz.NewRMR, dat.RMRScopeEP: p.a.pz.NewRMRForEP} {
		if got := must[dat.RMRParam](t)(must[*dat.RMR](t)(make()).Query()); got.Scope != scope {
			t.Errorf("scope %v, want %v", got.Scope, scope)
		}
	}
}

// The context may be sent right after the bind: the bind runs first.
func TestBindRunsBeforeLaterRequests(t *testing.T) {
	rmrKinds(t, func(t *testing.T, p *pair, r *dat.RMR) {
		ok(t, p.a.ep.PostRecv(1, 0, p.a.lmr.Triplet(0, 8)))
		context := must[uint32](t)(r.Bind(p.b.lmr, p.b.lmr.Triplet(0, 8), remoteBoth, dat.VATypeVA, p.b.ep, 2, dat.CompletionSuppress))
		ok(t, p.b.ep.PostSend(3, 0, p.b.lmr.Triplet(0, 8)))
		nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
		ok(t, p.a.ep.PostRDMAWrite(4, 0, dat.RMRTriplet{VirtualAddress: p.b.lmr.Address(), SegmentLength: 8, RMRContext: context}, p.a.lmr.Triplet(0, 8)))
		nextDTO(t, p.a.evd, 4, dat.StatusSuccess)
		// SUPPRESS hid the success of the bind.
		nextDTO(t, p.b.evd, 3, dat.StatusSuccess)
		empty(t, p.b.evd)
	})
}

func TestEachBindMakesAFreshContextAndEndsTheOldOne(t *testing.T) {
	rmrKinds(t, func(t *testing.T, p *pair, r *dat.RMR) {
		first := p.b.bind(t, r, 0, 64, remoteBoth)
		second := p.b.bind(t, r, 64, 64, remoteBoth)
		if first.RMRContext == second.RMRContext {
			t.Fatal("the context did not change")
		}
		ok(t, p.a.ep.PostRDMAWrite(1, 0, second, p.a.lmr.Triplet(0, 64)))
		nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
		ok(t, p.a.ep.PostRDMAWrite(2, 0, first, p.a.lmr.Triplet(0, 64)))
		nextDTO(t, p.a.evd, 2, dat.StatusRemoteAccess)
	})
}

func TestBindOfNoBytesUnbinds(t *testing.T) {
	rmrKinds(t, func(t *testing.T, p *pair, r *dat.RMR) {
		w := p.b.bind(t, r, 0, 64, remoteBoth)
		refused(t, p.b.lmr.Free(), dat.InvalidState, dat.InvalidStateLMRInUse)
		context := must[uint32](t)(r.Bind(nil, dat.LMRTriplet{}, 0, dat.VATypeVA, p.b.ep, 5, 0))
		if b := p.b.next(t, dat.RMRBindCompletion); context != 0 || b.RMRBind().Status != dat.StatusSuccess {
			t.Fatalf("context %#x, %v", context, b)
		}
		if got := must[dat.RMRParam](t)(r.Query()); got.RMRContext != 0 || got.Triplet.SegmentLength != 0 || got.Priv != 0 {
			t.Fatalf("still %+v", got)
		}
		ok(t, p.b.lmr.Free())
		ok(t, p.a.ep.PostRDMAWrite(1, 0, w, p.a.lmr.Triplet(0, 64)))
		nextDTO(t, p.a.evd, 1, dat.StatusRemoteAccess)
	})
}

func TestUnbindOfAnUnboundRMR(t *testing.T) {
	p := connectPair(t, 64)
	any, ofEP := must[*dat.RMR](t)(p.b.pz.NewRMR()), must[*dat.RMR](t)(p.b.pz.NewRMRForEP())
	must[uint32](t)(any.Bind(nil, dat.LMRTriplet{}, 0, 0, p.b.ep, 1, 0))
	p.b.next(t, dat.RMRBindCompletion)
	_, err := ofEP.Bind(nil, dat.LMRTriplet{}, 0, 0, p.b.ep, 1, 0)
	refused(t, err, dat.InvalidState, dat.NoSubtype)
}

func TestScopeOfAnRMR(t *testing.T) {
	for _, scope := range []dat.RMRScope{dat.RMRScopePZ, dat.RMRScopeEP} {
		t.Run(scope.String(), func(t *testing.T) {
			p := newPair(t, pairConfig{split: true}).connect(t)
			q := p.second(t)
			make := p.b.pz.NewRMR
			if scope == dat.RMRScopeEP {
				make = p.b.pz.NewRMRForEP
			}
			r := must[*dat.RMR](t)(make())
			w := p.b.bind(t, r, 0, 64, remoteBoth)
			want := dat.StatusSuccess
			if scope == dat.RMRScopeEP {
				want = dat.StatusRemoteAccess
				_, err := r.Bind(p.b.lmr, p.b.lmr.Triplet(0, 8), remoteBoth, dat.VATypeVA, q.b.ep, 1, 0)
				refused(t, err, dat.InvalidState, dat.NoSubtype) // it belongs to the first EP
			}
			ok(t, q.a.ep.PostRDMAWrite(1, 0, w, p.a.lmr.Triplet(0, 64)))
			nextDTO(t, p.a.request, 1, want)
		})
	}
}

// second connects two more EPs of a split pair.
func (p *pair) second(t testing.TB) *pair {
	t.Helper()
	q := *p
	q.a.ep, q.b.ep = p.a.newEP(t, nil), p.b.newEP(t, nil)
	return q.connect(t)
}

func TestManyRMRsOfOneLMRMayOverlap(t *testing.T) {
	rmrKinds(t, func(t *testing.T, p *pair, _ *dat.RMR) {
		for i := range 10 {
			make := p.b.pz.NewRMR
			if i%2 == 1 {
				make = p.b.pz.NewRMRForEP
			}
			w := p.b.bind(t, must[*dat.RMR](t)(make()), i*8, 64, remoteBoth)
			ok(t, p.a.ep.PostRDMAWrite(1, 0, w, p.a.lmr.Triplet(0, 64)))
			nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
		}
	})
}

func TestFreeOfABoundRMREndsItsAccess(t *testing.T) {
	rmrKinds(t, func(t *testing.T, p *pair, r *dat.RMR) {
		w := p.b.bind(t, r, 0, 64, remoteBoth)
		refused(t, p.b.pz.Free(), dat.InvalidState, dat.InvalidStatePZInUse)
		ok(t, r.Free())
		refused(t, r.Free(), dat.InvalidHandle, dat.InvalidHandleRMR)
		_, err := r.Query()
		refused(t, err, dat.InvalidHandle, dat.InvalidHandleRMR)
		_, err = r.Bind(p.b.lmr, p.b.lmr.Triplet(0, 8), 0, 0, p.b.ep, 1, 0)
		refused(t, err, dat.InvalidHandle, dat.InvalidHandleRMR)
		ok(t, p.b.lmr.Free())
		ok(t, p.a.ep.PostRDMAWrite(1, 0, w, p.a.lmr.Triplet(0, 64)))
		nextDTO(t, p.a.evd, 1, dat.StatusRemoteAccess)
	})
}

func TestZeroBasedRMR(t *testing.T) {
	rmrKinds(t, func(t *testing.T, p *pair, r *dat.RMR) {
		context := must[uint32](t)(r.Bind(p.b.lmr, p.b.lmr.Triplet(100, 50), remoteBoth, dat.VATypeZB, p.b.ep, 1, 0))
		p.b.next(t, dat.RMRBindCompletion)
		p.a.mem[0] = 9
		ok(t, p.a.ep.PostRDMAWrite(1, 0, dat.RMRTriplet{VirtualAddress: 49, SegmentLength: 1, RMRContext: context}, p.a.lmr.Triplet(0, 1)))
		nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
		if p.b.mem[149] != 9 {
			t.Fatal("not at the offset")
		}
		ok(t, p.a.ep.PostRDMAWrite(2, 0, dat.RMRTriplet{VirtualAddress: 50, SegmentLength: 1, RMRContext: context}, p.a.lmr.Triplet(0, 1)))
		nextDTO(t, p.a.evd, 2, dat.StatusRemoteAccess)
	})
}

func TestBindRefusesWhatDoesNotFit(t *testing.T) {
	p := connectPair(t, 4096)
	s := &p.b
	pz := must[*dat.PZ](t)(s.ia.NewPZ())
	register := func(pz *dat.PZ, priv dat.Priv) *dat.LMR {
		return must[*dat.LMR](t)(pz.Register(make([]byte, 64), priv))
	}
	foreign := register(pz, dat.PrivAll)
	readOnly, writeOnly := register(s.pz, dat.PrivLocalRead), register(s.pz, dat.PrivLocalWrite)
	freed := register(s.pz, dat.PrivAll)
	ok(t, freed.Free())
	rmr := must[*dat.RMR](t)(s.pz.NewRMR())
	foreignRMR := must[*dat.RMR](t)(pz.NewRMR())
	unconnected := s.newEP(t, nil)
	gone := s.newEP(t, nil)
	ok(t, gone.Free())
	noStream := newEVD(t, s.ia, dat.EVDConfig{Streams: dat.StreamDTO | dat.StreamConnection | dat.StreamConnectionRequest})
	plain := must[*dat.EP](t)(s.pz.NewEP(dat.EPConfig{Recv: noStream, Request: noStream, Connect: noStream}))
	ok(t, plain.Connect(s.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
	ok(t, s.request1(t).Accept(unconnected, nil))
	next(t, noStream, dat.ConnectionEstablished)
	p.b.next(t, dat.ConnectionEstablished)
	unconnected = s.newEP(t, nil)

	type args struct {
		rmr   *dat.RMR
		lmr   *dat.LMR
		tr    dat.LMRTriplet
		priv  dat.Priv
		va    dat.VAType
		ep    *dat.EP
		flags dat.CompletionFlags
	}
	for name, c := range map[string]struct {
		change func(*args)
		typ    dat.Type
		sub    dat.Subtype
	}{
		"a triplet past the end":             {func(a *args) { a.tr = s.lmr.Triplet(4090, 7) }, dat.InvalidParameter, dat.InvalidArg2},
		"a triplet before the start":         {func(a *args) { a.tr.VirtualAddress = s.lmr.Address() - 1 }, dat.InvalidParameter, dat.InvalidArg2},
		"a triplet of another LMR":           {func(a *args) { a.tr = readOnly.Triplet(0, 8) }, dat.InvalidParameter, dat.InvalidArg2},
		"unknown privileges":                 {func(a *args) { a.priv = 0x80 }, dat.InvalidParameter, dat.InvalidArg4},
		"an unknown VA type":                 {func(a *args) { a.va = 7 }, dat.InvalidParameter, dat.InvalidArg5},
		"flags for receives":                 {func(a *args) { a.flags = dat.CompletionEVDThreshold }, dat.InvalidParameter, dat.InvalidArg8},
		"UNSIGNALLED without the attribute":  {func(a *args) { a.flags = dat.CompletionUnsignalled }, dat.InvalidParameter, dat.InvalidArg8},
		"an LMR of another PZ":               {func(a *args) { a.lmr, a.tr = foreign, foreign.Triplet(0, 8) }, dat.ProtectionViolation, dat.NoSubtype},
		"an RMR of another PZ than the LMR":  {func(a *args) { a.rmr = foreignRMR }, dat.ProtectionViolation, dat.NoSubtype},
		"an EP of another PZ":                {func(a *args) { a.rmr, a.lmr, a.tr = foreignRMR, foreign, foreign.Triplet(0, 8) }, dat.ProtectionViolation, dat.NoSubtype},
		"remote write without local write":   {func(a *args) { a.lmr, a.tr = readOnly, readOnly.Triplet(0, 8) }, dat.PrivilegesViolation, dat.PrivilegesWrite},
		"remote read without local read":     {func(a *args) { a.lmr, a.tr = writeOnly, writeOnly.Triplet(0, 8) }, dat.PrivilegesViolation, dat.PrivilegesRead},
		"a freed LMR":                        {func(a *args) { a.lmr = freed }, dat.InvalidHandle, dat.InvalidHandleLMR},
		"no LMR":                             {func(a *args) { a.lmr = nil }, dat.InvalidHandle, dat.InvalidHandleLMR},
		"an LMR of another IA":               {func(a *args) { a.lmr = p.a.lmr }, dat.InvalidHandle, dat.InvalidHandleLMR},
		"a freed EP":                         {func(a *args) { a.ep = gone }, dat.InvalidHandle, dat.InvalidHandleEP},
		"no EP":                              {func(a *args) { a.ep = nil }, dat.InvalidHandle, dat.InvalidHandleEP},
		"an EP of another IA":                {func(a *args) { a.ep = p.a.ep }, dat.InvalidHandle, dat.InvalidHandleEP},
		"an unconnected EP":                  {func(a *args) { a.ep = unconnected }, dat.InvalidState, dat.InvalidStateEPUnconnected},
		"an EVD without the RMR bind stream": {func(a *args) { a.ep = plain }, dat.InvalidHandle, dat.InvalidHandleEVDRequest},
		"no RMR":                             {func(a *args) { a.rmr = nil }, dat.InvalidHandle, dat.InvalidHandleRMR},
	} {
		t.Run(name, func(t *testing.T) {
			a := args{rmr: rmr, lmr: s.lmr, tr: s.lmr.Triplet(0, 8), priv: remoteBoth, ep: s.ep}
			c.change(&a)
			_, err := a.rmr.Bind(a.lmr, a.tr, a.priv, a.va, a.ep, 1, a.flags)
			refused(t, err, c.typ, c.sub)
		})
	}
	// Nothing of that was posted, and the RMR works.
	empty(t, s.evd)
	s.bind(t, rmr, 0, 8, remoteBoth)
}

func TestWindowsThatTheAdapterLacks(t *testing.T) {
	without := func(c verbs.Caps) *dat.PZ {
		ia := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.Caps &^= c }}), dat.Config{})
		return must[*dat.PZ](t)(ia.NewPZ())
	}
	_, err := without(verbs.CapMW1).NewRMR()
	refused(t, err, dat.ModelNotSupported, dat.NoSubtype)
	_, err = without(verbs.CapMW2).NewRMRForEP()
	refused(t, err, dat.ModelNotSupported, dat.NoSubtype)

	p := newPair(t, pairConfig{loop: loop.Config{Adjust: func(a *verbs.Attr) { a.Caps &^= verbs.CapZeroBased }}}).connect(t)
	r := must[*dat.RMR](t)(p.b.pz.NewRMR())
	_, err = r.Bind(p.b.lmr, p.b.lmr.Triplet(0, 8), remoteBoth, dat.VATypeZB, p.b.ep, 1, 0)
	refused(t, err, dat.ModelNotSupported, dat.NoSubtype)
}

func TestMoreRMRsThanTheAdapterHas(t *testing.T) {
	ia := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.MaxMW = 1 }}), dat.Config{})
	pz := must[*dat.PZ](t)(ia.NewPZ())
	r := must[*dat.RMR](t)(pz.NewRMR())
	_, err := pz.NewRMRForEP()
	refused(t, err, dat.InsufficientResources, dat.ResourceMemoryRegion)
	ok(t, r.Free())
	ok(t, must[*dat.RMR](t)(pz.NewRMRForEP()).Free())
	ok(t, pz.Free())
	_, err = pz.NewRMR()
	refused(t, err, dat.InvalidHandle, dat.InvalidHandlePZ)
}

func TestBindOnADisconnectedEPIsFlushed(t *testing.T) {
	rmrKinds(t, func(t *testing.T, p *pair, r *dat.RMR) {
		w := p.b.bind(t, r, 0, 64, dat.PrivRemoteRead)
		ok(t, p.b.ep.Disconnect(dat.CloseAbrupt))
		p.b.next(t, dat.ConnectionDisconnected)
		must[uint32](t)(r.Bind(p.b.lmr, p.b.lmr.Triplet(64, 64), remoteBoth, dat.VATypeVA, p.b.ep, 9, 0))
		ev := p.b.next(t, dat.RMRBindCompletion)
		if b := ev.RMRBind(); b.Cookie != 9 || b.Status != dat.StatusFlushed || b.RMR != r {
			t.Fatalf("%+v", b)
		}
		empty(t, p.b.evd) // one event for one bind
		if got := must[dat.RMRParam](t)(r.Query()); got.RMRContext != w.RMRContext || got.Priv != dat.PrivRemoteRead {
			t.Fatalf("the earlier bind does not hold any more: %+v", got)
		}
	})
}

// stall keeps b's requests queued until the peer posts a receive.
func (p *pair) stall(t testing.TB) (release func()) {
	t.Helper()
	ok(t, p.b.ep.PostSend(500, dat.CompletionSuppress))
	return func() {
		ok(t, p.a.ep.PostRecv(501, 0))
		nextDTO(t, p.a.recv, 501, dat.StatusSuccess)
	}
}

func TestBindsThatWaitInTheQueueRunInOrder(t *testing.T) {
	rmrKinds(t, func(t *testing.T, p *pair, r *dat.RMR) {
		release := p.stall(t)
		var last dat.RMRTriplet
		for i := range 5 {
			context := must[uint32](t)(r.Bind(p.b.lmr, p.b.lmr.Triplet(8*i, 8), remoteBoth, dat.VATypeVA, p.b.ep, uint64(i), 0))
			last = dat.RMRTriplet{VirtualAddress: p.b.lmr.Address() + uint64(8*i), SegmentLength: 8, RMRContext: context}
		}
		release()
		for i := range 5 {
			ev := p.b.next(t, dat.RMRBindCompletion)
			if b := ev.RMRBind(); b.Cookie != uint64(i) || b.Status != dat.StatusSuccess {
				t.Fatalf("bind %d: %+v", i, b)
			}
		}
		ok(t, p.a.ep.PostRDMAWrite(1, 0, last, p.a.lmr.Triplet(0, 8)))
		nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
	})
}

func TestBindThatFailsWhenItRuns(t *testing.T) {
	rmrKinds(t, func(t *testing.T, p *pair, r *dat.RMR) {
		ok(t, p.b.ep.PostRecv(40, 0))
		release := p.stall(t)
		lmr := must[*dat.LMR](t)(p.b.pz.Register(make([]byte, 64), dat.PrivAll))
		must[uint32](t)(r.Bind(lmr, lmr.Triplet(0, 64), remoteBoth, dat.VATypeVA, p.b.ep, 4, 0))
		ok(t, lmr.Free()) // nothing is bound yet
		release()
		if b := p.b.next(t, dat.RMRBindCompletion); b.RMRBind().Status != dat.StatusRMROperationFailed {
			t.Fatal(b)
		}
		nextDTO(t, p.b.evd, 40, dat.StatusFlushed)
		p.b.next(t, dat.ConnectionBroken)
		p.a.next(t, dat.ConnectionBroken)
		if got := must[dat.RMRParam](t)(r.Query()); got.RMRContext != 0 {
			t.Fatalf("bound to %+v", got)
		}
	})
}

// Between the post of a second bind and its run a peer ends the first one: the bind could not be done, which is no
// flush, and those behind it are flushed.
func TestBindWhoseWindowAPeerTookMeanwhileFails(t *testing.T) {
	p := connectPair(t, 4096)
	r, other := must[*dat.RMR](t)(p.b.pz.NewRMRForEP()), must[*dat.RMR](t)(p.b.pz.NewRMRForEP())
	w := p.b.bind(t, r, 0, 64, remoteBoth)
	ok(t, p.b.ep.PostRecv(40, 0))
	release := p.stall(t)
	for i, r := range []*dat.RMR{r, other} {
		must[uint32](t)(r.Bind(p.b.lmr, p.b.lmr.Triplet(64, 64), remoteBoth, dat.VATypeVA, p.b.ep, uint64(i), 0))
	}
	ok(t, p.a.ep.PostSendWithInvalidate(2, 0, true, w.RMRContext))
	nextDTO(t, p.b.evd, 40, dat.StatusSuccess)
	nextDTO(t, p.a.evd, 2, dat.StatusSuccess)
	release()
	for i, want := range []dat.Status{dat.StatusRMROperationFailed, dat.StatusFlushed} {
		ev := p.b.next(t, dat.RMRBindCompletion)
		if b := ev.RMRBind(); b.Cookie != uint64(i) || b.Status != want {
			t.Fatalf("bind %d: %+v, want %v", i, b, want)
		}
	}
	p.b.next(t, dat.ConnectionBroken)
	p.a.next(t, dat.ConnectionBroken)
	if q := must[dat.EPParam](t)(p.b.ep.Query()); q.RequestCounters.Posted != 4 || q.RequestCounters.Failed != 1 || q.RequestCounters.Flushed != 1 {
		t.Fatalf("%+v", q.RequestCounters) // the bind, the send that waited, and the two
	}
	for _, r := range []*dat.RMR{r, other} {
		if got := must[dat.RMRParam](t)(r.Query()); got.RMRContext != 0 {
			t.Fatalf("bound to %+v", got)
		}
	}
	ok(t, p.b.lmr.Free())
}

// AC-59: a peer's send ends the binding, the region is free and the window can be bound again.
func TestSendWithInvalidateEndsTheBindingOfAnRMRForEP(t *testing.T) {
	p := connectPair(t, 4096)
	r := must[*dat.RMR](t)(p.b.pz.NewRMRForEP())
	for round := range 3 {
		w := p.b.bind(t, r, 64*round, 64, remoteBoth)
		ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(1024, 8)))
		ok(t, p.a.ep.PostSendWithInvalidate(2, 0, true, w.RMRContext, p.a.lmr.Triplet(0, 8)))
		d := nextDTO(t, p.b.evd, 1, dat.StatusSuccess)
		if d.Operation != dat.OpReceiveWithInvalidate || d.RMRContext != w.RMRContext || d.Length != 8 {
			t.Fatalf("%+v", d)
		}
		if d := nextDTO(t, p.a.evd, 2, dat.StatusSuccess); d.Operation != dat.OpSend {
			t.Fatalf("%+v", d)
		}
		if got := must[dat.RMRParam](t)(r.Query()); got.RMRContext != 0 {
			t.Fatalf("still bound: %+v", got)
		}
	}
	_, err := r.Bind(nil, dat.LMRTriplet{}, 0, 0, p.b.ep, 3, 0)
	refused(t, err, dat.InvalidState, dat.NoSubtype)
	ok(t, p.b.lmr.Free())
}

func TestSendWithInvalidateFalseIsASend(t *testing.T) {
	p := connectPair(t, 64)
	ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 8)))
	ok(t, p.a.ep.PostSendWithInvalidate(2, 0, false, 0xdead, p.a.lmr.Triplet(0, 8)))
	if d := nextDTO(t, p.b.evd, 1, dat.StatusSuccess); d.Operation != dat.OpReceive || d.RMRContext != 0 {
		t.Fatalf("%+v", d)
	}
}

func TestSendWithInvalidateOfWhatMayNotBeInvalidatedEndsTheConnection(t *testing.T) {
	for name, context := range map[string]func(t *testing.T, s *side) uint32{
		"an LMR": func(t *testing.T, s *side) uint32 { return s.lmr.RMRContext() },
		"an RMR of the PZ": func(t *testing.T, s *side) uint32 {
			return s.bind(t, must[*dat.RMR](t)(s.pz.NewRMR()), 0, 8, remoteBoth).RMRContext
		},
		"nothing": func(*testing.T, *side) uint32 { return 0x1234 },
	} {
		t.Run(name, func(t *testing.T) {
			p := connectPair(t, 64)
			context := context(t, &p.b)
			ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 8)))
			ok(t, p.a.ep.PostSendWithInvalidate(2, 0, true, context, p.a.lmr.Triplet(0, 8)))
			nextDTO(t, p.a.evd, 2, dat.StatusRemoteAccess)
			p.a.next(t, dat.ConnectionBroken)
			nextDTO(t, p.b.evd, 1, dat.StatusFlushed)
			p.b.next(t, dat.ConnectionBroken)
		})
	}
}

func TestResetAndFreeOfItsEPUnbindAnRMRForEP(t *testing.T) {
	p := connectPair(t, 64)
	r := must[*dat.RMR](t)(p.b.pz.NewRMRForEP())
	p.b.bind(t, r, 0, 8, remoteBoth)
	ok(t, p.b.ep.Disconnect(dat.CloseAbrupt))
	p.b.next(t, dat.ConnectionDisconnected)
	ok(t, p.b.ep.Reset())
	if got := must[dat.RMRParam](t)(r.Query()); got.RMRContext != 0 {
		t.Fatalf("bound after the reset: %+v", got)
	}
	p.a.next(t, dat.ConnectionDisconnected)
	ok(t, p.a.ep.Reset())
	p.connect(t)
	p.b.bind(t, r, 0, 8, remoteBoth)
	ok(t, p.b.ep.Free())
	if got := must[dat.RMRParam](t)(r.Query()); got.RMRContext != 0 {
		t.Fatalf("bound after the end of its EP: %+v", got)
	}
	ok(t, p.b.lmr.Free())
}

func TestBindsCountAgainstMaxRequestDTOs(t *testing.T) {
	p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) { a.MaxRequestDTOs = 2 }}).connect(t)
	r := must[*dat.RMR](t)(p.b.pz.NewRMRForEP())
	bind := func() error {
		_, err := r.Bind(p.b.lmr, p.b.lmr.Triplet(0, 8), remoteBoth, dat.VATypeVA, p.b.ep, 1, 0)
		return err
	}
	ok(t, bind())
	if err := bind(); err != dat.ErrPostFull { // it needs two, and one has its event queued
		t.Fatal(err)
	}
	p.b.next(t, dat.RMRBindCompletion)
	ok(t, bind())
	p.b.next(t, dat.RMRBindCompletion)
}

func TestReadToRMR(t *testing.T) {
	p := connectPair(t, 4096)
	copy(p.b.mem, "from b")
	r := must[*dat.RMR](t)(p.a.pz.NewRMR())
	window := p.a.bind(t, r, 100, 50, dat.PrivRemoteWrite)
	zeroBased := must[*dat.RMR](t)(p.a.pz.NewRMR())
	zb := must[uint32](t)(zeroBased.Bind(p.a.lmr, p.a.lmr.Triplet(200, 50), dat.PrivRemoteWrite, dat.VATypeZB, p.a.ep, 1, dat.CompletionSuppress))
	remote := p.b.lmr.RMRTriplet(0, 6)
	for name, c := range map[string]struct {
		local dat.RMRTriplet
		at    int
	}{
		"an LMR":            {p.a.lmr.RMRTriplet(300, 6), 300},
		"an RMR":            {dat.RMRTriplet{VirtualAddress: window.VirtualAddress + 4, SegmentLength: 6, RMRContext: window.RMRContext}, 104},
		"a zero-based RMR":  {dat.RMRTriplet{VirtualAddress: 10, SegmentLength: 6, RMRContext: zb}, 210},
		"more than is read": {p.a.lmr.RMRTriplet(400, 60), 400},
	} {
		ok(t, p.a.ep.PostRDMAReadToRMR(1, 0, c.local, remote))
		if d := nextDTO(t, p.a.evd, 1, dat.StatusSuccess); d.Operation != dat.OpRDMARead || d.Length != 6 {
			t.Fatalf("%s: %+v", name, d)
		}
		if string(p.a.mem[c.at:c.at+6]) != "from b" {
			t.Fatalf("%s: nothing arrived", name)
		}
	}
	ok(t, p.a.ep.PostRDMAReadToRMR(2, 0, dat.RMRTriplet{}, p.b.lmr.RMRTriplet(0, 0)))
	nextDTO(t, p.a.evd, 2, dat.StatusSuccess)

	readOnly := must[*dat.LMR](t)(p.a.pz.Register(make([]byte, 64), dat.PrivAll&^dat.PrivRemoteWrite))
	past := window
	past.SegmentLength++
	before := window
	before.VirtualAddress--
	for name, c := range map[string]struct {
		local dat.RMRTriplet
		typ   dat.Type
		sub   dat.Subtype
	}{
		"an unknown context":   {dat.RMRTriplet{SegmentLength: 6, RMRContext: 0x777}, dat.ProtectionViolation, dat.ProtectionRDMAWrite},
		"past the window":      {past, dat.ProtectionViolation, dat.ProtectionRDMAWrite},
		"before the window":    {before, dat.ProtectionViolation, dat.ProtectionRDMAWrite},
		"past the LMR":         {p.a.lmr.RMRTriplet(4090, 7), dat.ProtectionViolation, dat.ProtectionRDMAWrite},
		"without remote write": {readOnly.RMRTriplet(0, 6), dat.PrivilegesViolation, dat.PrivilegesRDMAWrite},
		"too short":            {p.a.lmr.RMRTriplet(0, 5), dat.LengthError, dat.NoSubtype},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, p.a.ep.PostRDMAReadToRMR(1, 0, c.local, remote), c.typ, c.sub)
		})
	}
	ok(t, r.Free())
	refused(t, p.a.ep.PostRDMAReadToRMR(1, 0, window, remote), dat.ProtectionViolation, dat.ProtectionRDMAWrite)
	empty(t, p.a.evd)
}
