package dattest

import (
	"bytes"

	"kdapl/dat"
)

// Remote memory regions (dat_rmr_*).
var rmrRules = []rule{
	{"an RMR is unbound when it is made", needRMR, rmrUnbound},
	{"an RMR gives access to its part of the LMR only", needRMR, both(rmrPart)},
	{"an RMR gives the privileges of its bind only", needRMR, both(rmrPrivileges)},
	{"a query tells the last bind", needRMR, both(rmrQuery)},
	{"the context works for what is posted behind the bind", needRMR, both(rmrContextAtOnce)},
	{"each bind makes a fresh context, and the old one ends", needRMR, both(rmrFresh)},
	{"a bind of no bytes unbinds, and the LMR is ignored", needRMR, both(rmrUnbind)},
	{"an LMR with a bound RMR is not freed", needRMR, both(rmrHoldsLMR)},
	{"a freed RMR gives no access", needRMR, both(rmrFree)},
	{"an RMR of the PZ serves every EP of the PZ", needRMR, rmrScopePZ},
	{"an RMR for an EP serves that EP only", needRMRForEP, rmrScopeEP},
	{"a bound RMR for an EP is bound again without more ado", needRMRForEP, rmrBindAgain},
	{"a reset of its EP unbinds an RMR for an EP", needRMRForEP, rmrReset},
	{"RMRs of one LMR may overlap", needRMR, both(rmrOverlap)},
	{"a zero-based RMR is addressed from 0", needRMR | needZB, both(rmrZeroBased)},
	{"a bind on a disconnected EP is flushed, and what was bound before stays", needRMR, rmrFlushed},
	{"a suppressed bind has no event", needRMR, both(rmrSuppressed)},
	{"a bind needs a triplet within its LMR", needRMR, rmrTriplet},
	{"a bind needs the local privilege beneath the remote one", needRMR, rmrLocalPrivilege},
	{"RMR, LMR and EP of a bind are of one PZ", needRMR, rmrZones},
	{"a bind needs an EP that is or was connected", needRMR, rmrStates},
	{"a bind needs a request EVD with the stream", needRMR, rmrStream},
	{"a PZ with an RMR is not freed", needRMR, rmrHoldsPZ},
}

const readWrite = dat.PrivRemoteRead | dat.PrivRemoteWrite

// both checks a rule for RMRs of the PZ and, if there are any, for EPs.
func both(check func(e *env, a, b *dat.EP, r *dat.RMR)) func(*env) {
	return func(e *env) {
		a, b := e.link()
		check(e, a, b, e.b.rmr())
		if e.can(needRMRForEP) && !e.Failed() {
			a, b := e.link()
			check(e, a, b, e.b.rmrForEP())
		}
	}
}

func (s *side) rmr() *dat.RMR {
	s.e.Helper()
	r, err := s.pz.NewRMR()
	s.e.must(err, "NewRMR")
	return r
}

func (s *side) rmrForEP() *dat.RMR {
	s.e.Helper()
	r, err := s.pz.NewRMRForEP()
	s.e.must(err, "NewRMRForEP")
	return r
}

// bind binds n bytes of the side's memory and takes the event.
func (s *side) bind(r *dat.RMR, ep *dat.EP, off, n int, priv dat.Priv) dat.RMRTriplet {
	s.e.Helper()
	context, err := r.Bind(s.lmr, s.lmr.Triplet(off, n), priv, dat.VATypeVA, ep, 70, 0)
	s.e.must(err, "Bind")
	s.bound(r, 70, dat.StatusSuccess)
	return dat.RMRTriplet{VirtualAddress: s.lmr.Address() + uint64(off), SegmentLength: uint32(n), RMRContext: context}
}

// bound takes the event of a bind.
func (s *side) bound(r *dat.RMR, cookie uint64, want dat.Status) {
	s.e.Helper()
	ev := s.e.event(s.request, dat.RMRBindCompletion)
	if b := ev.RMRBind(); b.RMR != r || b.Cookie != cookie || b.Status != want {
		s.e.Fatalf("bind %d of %v: %+v, want %v", cookie, r, b, want)
	}
}

// unbind unbinds and takes the event.
func (s *side) unbind(r *dat.RMR, ep *dat.EP) {
	s.e.Helper()
	context, err := r.Bind(nil, dat.LMRTriplet{}, dat.PrivNone, dat.VATypeVA, ep, 71, 0)
	s.e.must(err, "Bind of no bytes")
	if context != 0 {
		s.e.Errorf("an unbind returns the context %#x", context)
	}
	s.bound(r, 71, dat.StatusSuccess)
}

// write writes n bytes of a's memory to the peer's, and awaits that the peer has them.
func (e *env) write(ep *dat.EP, to dat.RMRTriplet, off, n int) {
	e.Helper()
	to.SegmentLength = uint32(n)
	e.must(ep.PostRDMAWrite(80, 0, to, e.a.lmr.Triplet(off, n)), "PostRDMAWrite")
	e.done(e.a.request, 80, dat.StatusSuccess)
	e.placed(ep)
}

// placed awaits that the peer has what was written before: a read comes behind that.
func (e *env) placed(ep *dat.EP) {
	e.Helper()
	e.must(ep.PostRDMARead(82, 0, e.b.lmr.RMRTriplet(memSize-1, 1), e.a.lmr.Triplet(memSize-1, 1)), "PostRDMARead")
	e.done(e.a.request, 82, dat.StatusSuccess)
}

// forbidden posts a write that the peer must refuse.
func (e *env) forbidden(ep *dat.EP, to dat.RMRTriplet) {
	e.Helper()
	e.must(ep.PostRDMAWrite(81, 0, to, e.a.lmr.Triplet(0, int(to.SegmentLength))), "PostRDMAWrite")
	e.violation(81, false)
}

func rmrUnbound(e *env) {
	for scope, r := range map[dat.RMRScope]*dat.RMR{dat.RMRScopePZ: e.b.rmr()} {
		if q, err := r.Query(); err != nil || q != (dat.RMRParam{IA: e.b.ia, PZ: e.b.pz, Scope: scope}) {
			e.Errorf("%+v, %v", q, err)
		}
	}
	if e.can(needRMRForEP) {
		if q, err := e.b.rmrForEP().Query(); err != nil || q != (dat.RMRParam{IA: e.b.ia, PZ: e.b.pz, Scope: dat.RMRScopeEP}) {
			e.Errorf("%+v, %v", q, err)
		}
	}
}

func rmrPart(e *env, a, b *dat.EP, r *dat.RMR) {
	w := e.b.bind(r, b, 1024, 256, readWrite)
	for i := range 256 {
		e.a.mem[i] = byte(i) | 1
	}
	e.write(a, w, 0, 256)
	e.must(a.PostRDMARead(1, 0, w, e.a.lmr.Triplet(512, 256)), "PostRDMARead")
	e.done(e.a.request, 1, dat.StatusSuccess)
	if !bytes.Equal(e.a.mem[512:768], e.a.mem[:256]) || !bytes.Equal(e.b.mem[1024:1280], e.a.mem[:256]) {
		e.Errorf("what was written through the window is not what was read")
	}
	w.SegmentLength++
	e.forbidden(a, w)
	if e.b.mem[1280] != 0 {
		e.Errorf("written past the window")
	}
}

func rmrPrivileges(e *env, a, b *dat.EP, r *dat.RMR) {
	w := e.b.bind(r, b, 0, 64, dat.PrivRemoteRead)
	e.must(a.PostRDMARead(1, 0, w, e.a.lmr.Triplet(0, 64)), "PostRDMARead")
	e.done(e.a.request, 1, dat.StatusSuccess)
	e.forbidden(a, w)
}

func rmrQuery(e *env, _, b *dat.EP, r *dat.RMR) {
	before, _ := r.Query()
	w := e.b.bind(r, b, 8, 64, readWrite)
	want := dat.RMRParam{IA: e.b.ia, PZ: e.b.pz, Scope: before.Scope, Triplet: e.b.lmr.Triplet(8, 64), Priv: readWrite, RMRContext: w.RMRContext}
	if q, err := r.Query(); err != nil || q != want {
		e.Errorf("%+v, %v; want %+v", q, err, want)
	}
	e.b.unbind(r, b)
	if q, err := r.Query(); err != nil || q != before {
		e.Errorf("unbound: %+v, %v", q, err)
	}
}

func rmrContextAtOnce(e *env, a, b *dat.EP, r *dat.RMR) {
	e.must(a.PostRecv(1, 0, e.a.lmr.Triplet(0, 4)), "PostRecv")
	context, err := r.Bind(e.b.lmr, e.b.lmr.Triplet(0, 8), readWrite, dat.VATypeVA, b, 2, 0)
	e.must(err, "Bind")
	e.must(b.PostSend(3, 0, e.b.lmr.Triplet(0, 4)), "PostSend")
	e.done(e.a.recv, 1, dat.StatusSuccess)
	e.write(a, dat.RMRTriplet{VirtualAddress: e.b.lmr.Address(), RMRContext: context}, 0, 8)
	e.b.bound(r, 2, dat.StatusSuccess)
	e.done(e.b.request, 3, dat.StatusSuccess)
}

func rmrFresh(e *env, a, b *dat.EP, r *dat.RMR) {
	first := e.b.bind(r, b, 0, 64, readWrite)
	second := e.b.bind(r, b, 64, 64, readWrite)
	if first.RMRContext == second.RMRContext {
		e.Errorf("two binds, one context")
	}
	e.write(a, second, 0, 64)
	e.forbidden(a, first)
}

func rmrUnbind(e *env, a, b *dat.EP, r *dat.RMR) {
	w := e.b.bind(r, b, 0, 64, readWrite)
	e.b.unbind(r, b)
	e.forbidden(a, w)
}

func rmrHoldsLMR(e *env, _, b *dat.EP, r *dat.RMR) {
	lmr := e.b.register(make([]byte, 64), dat.PrivAll)
	if _, err := r.Bind(lmr, lmr.Triplet(0, 64), readWrite, dat.VATypeVA, b, 1, 0); err != nil {
		e.Fatalf("Bind: %v", err)
	}
	e.b.bound(r, 1, dat.StatusSuccess)
	e.refused(lmr.Free(), "Free of an LMR with a bound RMR", dat.InvalidState, dat.InvalidStateLMRInUse)
	e.b.unbind(r, b)
	e.must(lmr.Free(), "Free of an LMR whose RMR was unbound")
}

func rmrFree(e *env, a, b *dat.EP, r *dat.RMR) {
	w := e.b.bind(r, b, 0, 64, readWrite)
	e.must(r.Free(), "Free of a bound RMR")
	e.refused(r.Free(), "a second Free", dat.InvalidHandle, dat.InvalidHandleRMR)
	e.forbidden(a, w)
}

func rmrScopePZ(e *env) {
	_, b1 := e.link()
	a2, _ := e.link()
	w := e.b.bind(e.b.rmr(), b1, 0, 64, readWrite)
	e.write(a2, w, 0, 64)
}

func rmrScopeEP(e *env) {
	a1, b1 := e.link()
	a2, b2 := e.link()
	r := e.b.rmrForEP()
	w := e.b.bind(r, b1, 0, 64, readWrite)
	e.write(a1, w, 0, 64)
	_, err := r.Bind(e.b.lmr, e.b.lmr.Triplet(0, 8), readWrite, dat.VATypeVA, b2, 1, 0)
	e.refused(err, "Bind through another EP", dat.InvalidState)
	e.forbidden(a2, w)
}

func rmrBindAgain(e *env) {
	a, b := e.link()
	r := e.b.rmrForEP()
	var last dat.RMRTriplet
	for i := range uint64(4) { // several at once
		context, err := r.Bind(e.b.lmr, e.b.lmr.Triplet(int(i)*8, 8), readWrite, dat.VATypeVA, b, i, 0)
		e.must(err, "Bind %d", i)
		last = dat.RMRTriplet{VirtualAddress: e.b.lmr.Address() + i*8, RMRContext: context}
	}
	for i := range uint64(4) {
		e.b.bound(r, i, dat.StatusSuccess)
	}
	e.none(e.b.request, "behind the events of four binds")
	e.write(a, last, 0, 8)
}

func rmrReset(e *env) {
	a, b := e.link()
	r := e.b.rmrForEP()
	e.b.bind(r, b, 0, 8, readWrite)
	e.must(b.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(e.b.connect, dat.ConnectionDisconnected)
	e.event(e.a.connect, dat.ConnectionDisconnected)
	e.must(b.Reset(), "Reset")
	if q, err := r.Query(); err != nil || q.RMRContext != 0 {
		e.Errorf("bound after the reset: %+v, %v", q, err)
	}
	e.must(a.Reset(), "Reset")
	e.join(a, b)
	e.b.bind(r, b, 0, 8, readWrite)
}

func rmrOverlap(e *env, a, b *dat.EP, r *dat.RMR) {
	one, two := e.b.bind(r, b, 0, 64, readWrite), e.b.bind(e.b.rmr(), b, 32, 64, readWrite)
	e.write(a, one, 0, 64)
	e.write(a, two, 0, 64)
}

func rmrZeroBased(e *env, a, b *dat.EP, r *dat.RMR) {
	context, err := r.Bind(e.b.lmr, e.b.lmr.Triplet(100, 50), readWrite, dat.VATypeZB, b, 1, 0)
	e.must(err, "Bind")
	e.b.bound(r, 1, dat.StatusSuccess)
	e.a.mem[0] = 77
	e.write(a, dat.RMRTriplet{VirtualAddress: 49, RMRContext: context}, 0, 1)
	e.must(a.PostRDMARead(2, 0, dat.RMRTriplet{VirtualAddress: 49, SegmentLength: 1, RMRContext: context}, e.a.lmr.Triplet(1, 1)), "PostRDMARead")
	e.done(e.a.request, 2, dat.StatusSuccess)
	if e.a.mem[1] != 77 || e.b.mem[149] != 77 {
		e.Errorf("not at the window's offset")
	}
	e.forbidden(a, dat.RMRTriplet{VirtualAddress: 50, SegmentLength: 1, RMRContext: context})
}

func rmrFlushed(e *env) {
	_, b := e.link()
	r := e.b.rmr()
	w := e.b.bind(r, b, 0, 64, dat.PrivRemoteRead)
	e.must(b.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(e.b.connect, dat.ConnectionDisconnected)
	if _, err := r.Bind(e.b.lmr, e.b.lmr.Triplet(64, 64), readWrite, dat.VATypeVA, b, 9, 0); err != nil {
		e.Fatalf("Bind on a disconnected EP: %v", err)
	}
	e.b.bound(r, 9, dat.StatusFlushed)
	e.none(e.b.request, "behind the event of a flushed bind")
	if q, err := r.Query(); err != nil || q.RMRContext != w.RMRContext || q.Priv != dat.PrivRemoteRead {
		e.Errorf("after a flushed bind: %+v, %v; want the context %#x", q, err, w.RMRContext)
	}
}

func rmrSuppressed(e *env, a, b *dat.EP, r *dat.RMR) {
	context, err := r.Bind(e.b.lmr, e.b.lmr.Triplet(0, 8), readWrite, dat.VATypeVA, b, 1, dat.CompletionSuppress)
	e.must(err, "Bind")
	e.must(a.PostRecv(2, 0), "PostRecv")
	e.must(b.PostSend(3, 0), "PostSend")
	e.done(e.b.request, 3, dat.StatusSuccess)
	e.write(a, dat.RMRTriplet{VirtualAddress: e.b.lmr.Address(), RMRContext: context}, 0, 8)
	e.done(e.a.recv, 2, dat.StatusSuccess)
}

// tryBind is a bind that is to be refused.
func (e *env) tryBind(r *dat.RMR, lmr *dat.LMR, tr dat.LMRTriplet, priv dat.Priv, ep *dat.EP) error {
	_, err := r.Bind(lmr, tr, priv, dat.VATypeVA, ep, 1, 0)
	return err
}

func rmrTriplet(e *env) {
	_, b := e.link()
	r, lmr := e.b.rmr(), e.b.lmr
	other := e.b.register(make([]byte, 64), dat.PrivAll)
	before := lmr.Triplet(0, 8)
	before.VirtualAddress--
	for what, tr := range map[string]dat.LMRTriplet{
		"past the end": lmr.Triplet(memSize-4, 5), "before the start": before, "of another LMR": other.Triplet(0, 8),
	} {
		e.refused(e.tryBind(r, lmr, tr, readWrite, b), "Bind of a triplet "+what, dat.InvalidParameter, dat.InvalidArg2)
	}
	e.b.bind(r, b, memSize-4, 4, readWrite)
}

func rmrLocalPrivilege(e *env) {
	_, b := e.link()
	r := e.b.rmr()
	readOnly, writeOnly := e.b.register(make([]byte, 64), dat.PrivLocalRead), e.b.register(make([]byte, 64), dat.PrivLocalWrite)
	e.refused(e.tryBind(r, readOnly, readOnly.Triplet(0, 8), dat.PrivRemoteWrite, b), "remote write over local read", dat.PrivilegesViolation, dat.PrivilegesWrite)
	e.refused(e.tryBind(r, writeOnly, writeOnly.Triplet(0, 8), dat.PrivRemoteRead, b), "remote read over local write", dat.PrivilegesViolation, dat.PrivilegesRead)
}

func rmrZones(e *env) {
	_, b := e.link()
	pz, err := e.b.ia.NewPZ()
	e.must(err, "NewPZ")
	lmr, err := pz.Register(make([]byte, 64), dat.PrivAll)
	e.must(err, "Register")
	r, err := pz.NewRMR()
	e.must(err, "NewRMR")
	e.refused(e.tryBind(e.b.rmr(), lmr, lmr.Triplet(0, 8), readWrite, b), "an LMR of another PZ", dat.ProtectionViolation)
	e.refused(e.tryBind(r, lmr, lmr.Triplet(0, 8), readWrite, b), "an EP of another PZ", dat.ProtectionViolation)
	e.refused(e.tryBind(r, e.b.lmr, e.b.lmr.Triplet(0, 8), readWrite, b), "an RMR of another PZ", dat.ProtectionViolation)
}

func rmrStates(e *env) {
	r, ep := e.b.rmr(), e.b.ep()
	e.refused(e.tryBind(r, e.b.lmr, e.b.lmr.Triplet(0, 8), readWrite, ep), "Bind on an unconnected EP", dat.InvalidState, dat.InvalidStateEPUnconnected)
	e.must(ep.Free(), "Free")
	e.refused(e.tryBind(r, e.b.lmr, e.b.lmr.Triplet(0, 8), readWrite, ep), "Bind on a freed EP", dat.InvalidHandle, dat.InvalidHandleEP)
}

func rmrStream(e *env) {
	without := e.b.evdOf(dat.EVDConfig{Streams: dat.StreamDTO})
	_, b := e.link(func(cfg *dat.EPConfig, _ *dat.EPAttr) {
		if cfg.Request == e.b.request {
			cfg.Request = without
		}
	})
	e.refused(e.tryBind(e.b.rmr(), e.b.lmr, e.b.lmr.Triplet(0, 8), readWrite, b), "Bind without the stream", dat.InvalidHandle, dat.InvalidHandleEVDRequest)
}

func rmrHoldsPZ(e *env) {
	pz, err := e.b.ia.NewPZ()
	e.must(err, "NewPZ")
	r, err := pz.NewRMR()
	e.must(err, "NewRMR")
	e.refused(pz.Free(), "Free of a PZ with an RMR", dat.InvalidState, dat.InvalidStatePZInUse)
	e.must(r.Free(), "RMR.Free")
	e.must(pz.Free(), "Free of an empty PZ")
}
