package dat_test

import (
	"bytes"
	"testing"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Fast registration: dat_lmr_allocate, dat_lmr_fmr, dat_lmr_invalidate.

const page = 4096

// fastLMR makes an LMR for fast registration.
func (s *side) fastLMR(t testing.TB, pages int) *dat.LMR {
	t.Helper()
	return must[*dat.LMR](t)(s.pz.AllocateLMR(pages, dat.RMRScopePZ))
}

// fmr maps ranges and takes the event.
func (s *side) fmr(t testing.TB, l *dat.LMR, ranges ...[]byte) {
	t.Helper()
	_, _, err := l.FMR(ranges, dat.PrivAll, dat.VATypeVA, s.ep, 60, 0)
	ok(t, err)
	if d := nextDTO(t, s.request, 60, dat.StatusSuccess); d.Operation != dat.OpLMRFMR || d.EP != s.ep {
		t.Fatalf("%+v", d)
	}
}

func (s *side) invalidate(t testing.TB, l *dat.LMR) {
	t.Helper()
	ok(t, l.Invalidate(s.ep, 61, 0))
	if d := nextDTO(t, s.request, 61, dat.StatusSuccess); d.Operation != dat.OpLMRInvalidate {
		t.Fatalf("%+v", d)
	}
}

func TestAllocatedLMRIsUnboundUntilMapped(t *testing.T) {
	p := connectPair(t, 64)
	l := p.b.fastLMR(t, 4)
	q := must[dat.LMRParam](t)(l.Query())
	if !q.FMRSupport || q.Bound || q.LMRContext != 0 || q.RMRContext != 0 || q.RegisteredLength != 0 || q.PZ != p.b.pz || l.Bytes() != nil {
		t.Fatalf("%+v", q)
	}
	if q := must[dat.LMRParam](t)(p.b.lmr.Query()); q.FMRSupport || !q.Bound {
		t.Fatalf("an ordinary LMR: %+v", q)
	}
	mem := make([]byte, 100)
	p.b.fmr(t, l, mem)
	q = must[dat.LMRParam](t)(l.Query())
	if !q.Bound || q.LMRContext == 0 || q.RMRContext == 0 || q.RegisteredLength != 100 || q.RegisteredAddress != l.Address() || q.Priv != dat.PrivAll {
		t.Fatalf("%+v", q)
	}
	p.b.invalidate(t, l)
	if q := must[dat.LMRParam](t)(l.Query()); q.Bound || q.LMRContext != 0 || q.RMRContext != 0 || q.Priv != 0 {
		t.Fatalf("%+v", q)
	}
	ok(t, l.Free())
}

// The ranges are one region, in order, for the owner and for peers.
func TestFastRegistrationOfSeveralRangesIsOneRegion(t *testing.T) {
	for _, va := range []dat.VAType{dat.VATypeVA, dat.VATypeZB} {
		t.Run(va.String(), func(t *testing.T) {
			p := connectPair(t, 3*page)
			l := p.b.fastLMR(t, 3)
			parts := [][]byte{make([]byte, page), make([]byte, page), make([]byte, 10)}
			lctx, rctx, err := l.FMR(parts, dat.PrivAll, va, p.b.ep, 1, 0)
			ok(t, err)
			if lctx == 0 || rctx == 0 || lctx != l.LMRContext() || rctx != l.RMRContext() {
				t.Fatalf("contexts %#x %#x, of the LMR %#x %#x", lctx, rctx, l.LMRContext(), l.RMRContext())
			}
			if zero := va == dat.VATypeZB; zero != (l.Address() == 0) {
				t.Fatalf("address %#x", l.Address())
			}
			nextDTO(t, p.b.evd, 1, dat.StatusSuccess)
			for i := range p.a.mem {
				p.a.mem[i] = byte(i / 100)
			}
			n := 2*page + 10
			ok(t, p.a.ep.PostRDMAWrite(2, 0, l.RMRTriplet(0, n), p.a.lmr.Triplet(0, n)))
			nextDTO(t, p.a.evd, 2, dat.StatusSuccess)
			if !bytes.Equal(bytes.Join(parts, nil), p.a.mem[:n]) {
				t.Fatal("a peer's write went elsewhere")
			}
			ok(t, p.a.ep.PostRecv(3, 0, p.a.lmr.Triplet(0, page)))
			ok(t, p.b.ep.PostSend(4, 0, l.Triplet(page-5, 10))) // across the seam
			nextDTO(t, p.a.evd, 3, dat.StatusSuccess)
			if want := append(bytes.Clone(parts[0][page-5:]), parts[1][:5]...); !bytes.Equal(p.a.mem[:10], want) {
				t.Fatal("a send across the seam")
			}
			ok(t, p.a.ep.PostRDMAWrite(5, 0, l.RMRTriplet(0, n+1), p.a.lmr.Triplet(0, n+1)))
			nextDTO(t, p.a.evd, 5, dat.StatusRemoteAccess)
		})
	}
}

// The contexts hold at once for requests that are posted behind the registration.
func TestRequestsBehindAFastRegistrationMayUseIt(t *testing.T) {
	p := connectPair(t, 64)
	release := p.stall(t)
	l := p.b.fastLMR(t, 1)
	_, _, err := l.FMR([][]byte{[]byte("mapped")}, dat.PrivLocalRead, dat.VATypeVA, p.b.ep, 1, 0)
	ok(t, err)
	ok(t, p.b.ep.PostSend(2, 0, l.Triplet(0, 6)))
	ok(t, l.Invalidate(p.b.ep, 3, 0))
	release()
	ok(t, p.a.ep.PostRecv(4, 0, p.a.lmr.Triplet(0, 6)))
	for _, cookie := range []uint64{1, 2, 3} {
		nextDTO(t, p.b.evd, cookie, dat.StatusSuccess)
	}
	nextDTO(t, p.a.evd, 4, dat.StatusSuccess)
	if string(p.a.mem[:6]) != "mapped" {
		t.Fatalf("%q", p.a.mem[:6])
	}
}

func TestInvalidatedContextsAreDead(t *testing.T) {
	p := connectPair(t, 64)
	l := p.b.fastLMR(t, 1)
	p.b.fmr(t, l, make([]byte, 64))
	local, remote := l.Triplet(0, 8), l.RMRTriplet(0, 8)
	p.b.invalidate(t, l)
	refused(t, p.b.ep.PostSend(1, 0, local), dat.ProtectionViolation, dat.NoSubtype)
	p.b.fmr(t, l, make([]byte, 64))
	if l.LMRContext() == local.LMRContext || l.RMRContext() == remote.RMRContext {
		t.Fatal("the contexts did not change")
	}
	ok(t, p.a.ep.PostRDMAWrite(2, 0, remote, p.a.lmr.Triplet(0, 8)))
	nextDTO(t, p.a.evd, 2, dat.StatusRemoteAccess)
}

func TestStatesOfAFastLMR(t *testing.T) {
	p := connectPair(t, 64)
	l := p.b.fastLMR(t, 1)
	mem := [][]byte{make([]byte, 64)}
	refused(t, l.Invalidate(p.b.ep, 1, 0), dat.InvalidState, dat.InvalidStateLMRFree)
	p.b.fmr(t, l, mem...)
	_, _, err := l.FMR(mem, dat.PrivAll, dat.VATypeVA, p.b.ep, 1, 0)
	refused(t, err, dat.InvalidState, dat.InvalidStateLMRInUse)
	p.b.invalidate(t, l)
	refused(t, l.Invalidate(p.b.ep, 1, 0), dat.InvalidState, dat.InvalidStateLMRFree)

	// While a registration or an invalidation waits in the queue the LMR is in use.
	release := p.stall(t)
	_, _, err = l.FMR(mem, dat.PrivAll, dat.VATypeVA, p.b.ep, 2, 0)
	ok(t, err)
	refused(t, l.Free(), dat.InvalidState, dat.InvalidStateLMRInUse)
	release()
	nextDTO(t, p.b.evd, 2, dat.StatusSuccess)
	release = p.stall(t)
	ok(t, l.Invalidate(p.b.ep, 3, 0))
	_, _, err = l.FMR(mem, dat.PrivAll, dat.VATypeVA, p.b.ep, 4, 0)
	refused(t, err, dat.InvalidState, dat.InvalidStateLMRInUse)
	refused(t, l.Free(), dat.InvalidState, dat.InvalidStateLMRInUse)
	release()
	nextDTO(t, p.b.evd, 3, dat.StatusSuccess)
	p.b.fmr(t, l, mem...)
	ok(t, l.Free()) // without an invalidate
	refused(t, l.Free(), dat.InvalidHandle, dat.InvalidHandleLMR)
	_, _, err = l.FMR(mem, dat.PrivAll, dat.VATypeVA, p.b.ep, 4, 0)
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleLMR)
	empty(t, p.b.evd)
}

// A registration that is flushed maps nothing, an invalidation that is flushed ends nothing.
func TestFlushedFastRegistrations(t *testing.T) {
	p := connectPair(t, 64)
	never, kept := p.b.fastLMR(t, 1), p.b.fastLMR(t, 1)
	mem := make([]byte, 64)
	p.b.fmr(t, kept, mem)
	remote := kept.RMRTriplet(0, 8)
	p.stall(t)
	_, _, err := never.FMR([][]byte{mem}, dat.PrivAll, dat.VATypeVA, p.b.ep, 1, 0)
	ok(t, err)
	ok(t, kept.Invalidate(p.b.ep, 2, 0))
	ok(t, p.b.ep.Disconnect(dat.CloseAbrupt))
	nextDTO(t, p.b.evd, 500, dat.StatusFlushed)
	nextDTO(t, p.b.evd, 1, dat.StatusFlushed)
	nextDTO(t, p.b.evd, 2, dat.StatusFlushed)
	p.b.next(t, dat.ConnectionDisconnected)
	if q := must[dat.LMRParam](t)(never.Query()); q.Bound {
		t.Fatalf("the flushed registration is there: %+v", q)
	}
	if kept.RMRContext() != remote.RMRContext {
		t.Fatalf("the flushed invalidation took the mapping away: %#x", kept.RMRContext())
	}
	p.a.next(t, dat.ConnectionDisconnected)
	ok(t, p.b.ep.Reset())
	ok(t, p.a.ep.Reset())
	p.connect(t)
	ok(t, p.a.ep.PostRDMAWrite(3, 0, remote, p.a.lmr.Triplet(0, 8)))
	nextDTO(t, p.a.evd, 3, dat.StatusSuccess)
	p.b.invalidate(t, kept)
	p.b.fmr(t, kept, mem)
	p.b.fmr(t, never, mem)
}

func TestSendWithInvalidateOfAFastLMR(t *testing.T) {
	p := connectPair(t, 64)
	l := p.b.fastLMR(t, 1)
	for range 3 {
		p.b.fmr(t, l, make([]byte, 64))
		context := l.RMRContext()
		ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 8)))
		ok(t, p.a.ep.PostSendWithInvalidate(2, 0, true, context, p.a.lmr.Triplet(0, 8)))
		if d := nextDTO(t, p.b.evd, 1, dat.StatusSuccess); d.Operation != dat.OpReceiveWithInvalidate || d.RMRContext != context {
			t.Fatalf("%+v", d)
		}
		nextDTO(t, p.a.evd, 2, dat.StatusSuccess)
		if q := must[dat.LMRParam](t)(l.Query()); q.Bound {
			t.Fatalf("%+v", q)
		}
		refused(t, l.Invalidate(p.b.ep, 3, 0), dat.InvalidState, dat.InvalidStateLMRFree)
	}
}

// An invalidation that cannot run ends the connection with LOCAL_MM_ERROR.
func TestInvalidationOfALMRWithABoundRMRFails(t *testing.T) {
	p := connectPair(t, 64)
	l := p.b.fastLMR(t, 1)
	p.b.fmr(t, l, make([]byte, 64))
	r := must[*dat.RMR](t)(p.b.pz.NewRMR())
	must[uint32](t)(r.Bind(l, l.Triplet(0, 64), remoteBoth, dat.VATypeVA, p.b.ep, 1, dat.CompletionSuppress))
	refused(t, l.Free(), dat.InvalidState, dat.InvalidStateLMRInUse)
	ok(t, l.Invalidate(p.b.ep, 2, 0))
	if d := nextDTO(t, p.b.evd, 2, dat.StatusLocalMMError); d.Operation != dat.OpLMRInvalidate {
		t.Fatalf("%+v", d)
	}
	p.b.next(t, dat.ConnectionBroken)
	if l.RMRContext() == 0 {
		t.Fatal("the mapping went away")
	}
}

func TestInvalidateFenceWaitsForInvalidations(t *testing.T) {
	p := connectPair(t, 64)
	l := p.b.fastLMR(t, 1)
	p.b.fmr(t, l, make([]byte, 64))
	ok(t, p.a.ep.PostRecv(1, 0))
	ok(t, l.Invalidate(p.b.ep, 2, dat.CompletionSuppress))
	ok(t, p.b.ep.PostSend(3, dat.CompletionLMRInvalidateFence))
	nextDTO(t, p.b.evd, 3, dat.StatusSuccess)
	nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
	if l.RMRContext() != 0 {
		t.Fatal("still mapped")
	}
}

func TestFastRegistrationRefusesWhatDoesNotFit(t *testing.T) {
	p := connectPair(t, 64)
	s := &p.b
	l := s.fastLMR(t, 2)
	whole, part := make([]byte, page), make([]byte, 100)
	otherPZ := must[*dat.PZ](t)(s.ia.NewPZ())
	foreign := must[*dat.LMR](t)(otherPZ.AllocateLMR(1, dat.RMRScopePZ))
	unconnected := s.newEP(t, nil)
	type args struct {
		lmr    *dat.LMR
		ranges [][]byte
		priv   dat.Priv
		va     dat.VAType
		ep     *dat.EP
		flags  dat.CompletionFlags
	}
	for name, c := range map[string]struct {
		change func(*args)
		typ    dat.Type
		sub    dat.Subtype
	}{
		"no range":                        {func(a *args) { a.ranges = nil }, dat.InvalidParameter, dat.InvalidArg3},
		"more ranges than were allocated": {func(a *args) { a.ranges = [][]byte{whole, whole, whole} }, dat.InvalidParameter, dat.InvalidArg3},
		"an empty range":                  {func(a *args) { a.ranges = [][]byte{whole, {}} }, dat.InvalidParameter, dat.InvalidArg3},
		"a part of a page in the middle":  {func(a *args) { a.ranges = [][]byte{part, whole} }, dat.InvalidParameter, dat.InvalidArg3},
		"unknown privileges":              {func(a *args) { a.priv = 0x100 }, dat.InvalidParameter, dat.InvalidArg5},
		"an unknown VA type":              {func(a *args) { a.va = 9 }, dat.InvalidParameter, dat.InvalidArg6},
		"flags for receives":              {func(a *args) { a.flags = dat.CompletionEVDThreshold }, dat.InvalidParameter, dat.InvalidArg9},
		"an LMR with memory of its own":   {func(a *args) { a.lmr = s.lmr }, dat.InvalidParameter, dat.InvalidArg1},
		"an LMR of another PZ":            {func(a *args) { a.lmr = foreign }, dat.ProtectionViolation, dat.NoSubtype},
		"an EP of another IA":             {func(a *args) { a.ep = p.a.ep }, dat.InvalidHandle, dat.InvalidHandleEP},
		"no EP":                           {func(a *args) { a.ep = nil }, dat.InvalidHandle, dat.InvalidHandleEP},
		"an unconnected EP":               {func(a *args) { a.ep = unconnected }, dat.InvalidState, dat.InvalidStateEPUnconnected},
		"no LMR":                          {func(a *args) { a.lmr = nil }, dat.InvalidHandle, dat.InvalidHandleLMR},
	} {
		t.Run(name, func(t *testing.T) {
			a := args{lmr: l, ranges: [][]byte{whole}, priv: dat.PrivAll, ep: s.ep}
			c.change(&a)
			_, _, err := a.lmr.FMR(a.ranges, a.priv, a.va, a.ep, 1, a.flags)
			refused(t, err, c.typ, c.sub)
		})
	}
	s.fmr(t, l, whole)
	refused(t, l.Invalidate(s.ep, 1, dat.CompletionEVDThreshold), dat.InvalidParameter, dat.InvalidArg4)
	refused(t, l.Invalidate(unconnected, 1, 0), dat.InvalidState, dat.InvalidStateEPUnconnected)
	refused(t, l.Invalidate(p.a.ep, 1, 0), dat.InvalidHandle, dat.InvalidHandleEP)
	refused(t, s.lmr.Invalidate(s.ep, 1, 0), dat.InvalidParameter, dat.InvalidArg1)
	empty(t, s.evd)
	s.invalidate(t, l)
}

func TestAllocateLMRRefusesWhatDoesNotFit(t *testing.T) {
	ia := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.MaxMR = 2; a.MaxFastRegPages = 8 }}), dat.Config{})
	pz := must[*dat.PZ](t)(ia.NewPZ())
	for _, c := range []struct {
		pages int
		scope dat.RMRScope
		typ   dat.Type
		sub   dat.Subtype
	}{
		{0, dat.RMRScopePZ, dat.InvalidParameter, dat.InvalidArg3},
		{-1, dat.RMRScopePZ, dat.InvalidParameter, dat.InvalidArg3},
		{9, dat.RMRScopePZ, dat.InvalidParameter, dat.InvalidArg3},
		{1, dat.RMRScopeEP, dat.ModelNotSupported, dat.NoSubtype},
		{1, dat.RMRScopeAny, dat.ModelNotSupported, dat.NoSubtype},
		{1, 3, dat.InvalidParameter, dat.InvalidArg4},
	} {
		_, err := pz.AllocateLMR(c.pages, c.scope)
		refused(t, err, c.typ, c.sub)
	}
	must[*dat.LMR](t)(pz.AllocateLMR(8, dat.RMRScopePZ))
	must[*dat.LMR](t)(pz.Register(make([]byte, 8), dat.PrivAll))
	_, err := pz.AllocateLMR(1, dat.RMRScopePZ)
	refused(t, err, dat.InsufficientResources, dat.ResourceMemoryRegion)

	ia = openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.Caps &^= verbs.CapFastReg }}), dat.Config{})
	pz = must[*dat.PZ](t)(ia.NewPZ())
	_, err = pz.AllocateLMR(1, dat.RMRScopePZ)
	refused(t, err, dat.ModelNotSupported, dat.NoSubtype)
	if must[dat.IAParam](t)(ia.Query()).Provider.FMRSupported {
		t.Error("fmr_supported is true")
	}
	ok(t, pz.Free())
	_, err = pz.AllocateLMR(1, dat.RMRScopePZ)
	refused(t, err, dat.InvalidHandle, dat.InvalidHandlePZ)
}

func TestMemTypeHint(t *testing.T) {
	ia := newIA(t)
	attr := must[dat.IAParam](t)(ia.Query())
	for _, c := range []struct {
		mem    dat.MemType
		length uint64
		opt    dat.MemOptimize
		want   uint64
	}{
		{dat.MemVirtual, 1, dat.MemOptimizeDontCare, 256},
		{dat.MemVirtual, 257, dat.MemOptimizeIA, 512},
		{dat.MemLMR, 512, dat.MemOptimizeIA, 512},
		{dat.MemVirtual, 1, dat.MemOptimizeMinExposure, 1},
		{dat.MemVirtual, 300, dat.MemOptimizeExactExposure, 300},
		{dat.MemVirtual, attr.Attr.MaxLMRBlockSize, dat.MemOptimizeIA, attr.Attr.MaxLMRBlockSize},
	} {
		got := must[dat.MemHint](t)(ia.MemTypeHint(c.mem, c.length, c.opt))
		if want := (dat.MemHint{Length: c.want, Alignment: attr.Provider.OptimalBufferAlignment}); got != want {
			t.Errorf("%v of %d bytes, %v: %+v, want %+v", c.mem, c.length, c.opt, got, want)
		}
	}
	for _, c := range []struct {
		mem    dat.MemType
		length uint64
		opt    dat.MemOptimize
		typ    dat.Type
		sub    dat.Subtype
	}{
		{0x200, 1, 0, dat.InvalidParameter, dat.InvalidArg2},
		{dat.MemVirtual, 0, 0, dat.InvalidParameter, dat.InvalidArg3},
		{dat.MemVirtual, attr.Attr.MaxLMRBlockSize + 1, 0, dat.InvalidParameter, dat.InvalidArg3},
		{dat.MemVirtual, 1, 3, dat.InvalidParameter, dat.InvalidArg4},
		{dat.MemVirtual, 1, 8, dat.InvalidParameter, dat.InvalidArg4},
		{dat.MemSharedVirtual, 1, 0, dat.ModelNotSupported, dat.NoSubtype},
		{dat.MemPhysical, 1, 0, dat.ModelNotSupported, dat.NoSubtype},
		{dat.MemPlatform, 1, 0, dat.ModelNotSupported, dat.NoSubtype},
		{dat.MemIA, 1, 0, dat.ModelNotSupported, dat.NoSubtype},
		{dat.MemBypass, 1, 0, dat.ModelNotSupported, dat.NoSubtype},
		{dat.MemPhysicalVarPages, 1, 0, dat.ModelNotSupported, dat.NoSubtype},
	} {
		_, err := ia.MemTypeHint(c.mem, c.length, c.opt)
		refused(t, err, c.typ, c.sub)
	}
}

func TestReservedLMRIsTheKernels(t *testing.T) {
	ia := newIA(t)
	_, err := ia.ReservedLMR()
	refused(t, err, dat.ModelNotSupported, dat.NoSubtype)
	if must[dat.IAParam](t)(ia.Query()).Attr.ReservedLMRSupported {
		t.Error("reserved_lmr_supported is true")
	}
}

func TestSyncChecksTriplets(t *testing.T) {
	p := connectPair(t, 64)
	s := &p.b
	fast := s.fastLMR(t, 1)
	s.fmr(t, fast, make([]byte, 32))
	zb := must[*dat.LMR](t)(s.pz.NewLMR(dat.LMRConfig{Length: 32, Priv: dat.PrivAll, VAType: dat.VATypeZB}))
	dead := fast.Triplet(0, 8)
	freed := must[*dat.LMR](t)(s.pz.Register(make([]byte, 8), dat.PrivAll))
	gone := freed.Triplet(0, 8)
	ok(t, freed.Free())
	for name, sync := range map[string]func(...dat.LMRTriplet) error{"read": s.ia.SyncRDMARead, "write": s.ia.SyncRDMAWrite} {
		t.Run(name, func(t *testing.T) {
			ok(t, sync())
			ok(t, sync(s.lmr.Triplet(0, 64), dat.LMRTriplet{LMRContext: 0x99}, zb.Triplet(31, 1), fast.Triplet(0, 32)))
			for _, bad := range []dat.LMRTriplet{
				s.lmr.Triplet(0, 65), s.lmr.Triplet(-1, 1), zb.Triplet(32, 1), fast.Triplet(0, 33), gone,
				{SegmentLength: 1, LMRContext: 0x99}, {SegmentLength: 1},
			} {
				refused(t, sync(s.lmr.Triplet(0, 1), bad), dat.InvalidParameter, dat.InvalidArg2)
			}
			list := []dat.LMRTriplet{s.lmr.Triplet(0, 64), fast.Triplet(0, 1)}
			if n := testing.AllocsPerRun(100, func() { sync(list...) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
	s.invalidate(t, fast)
	refused(t, s.ia.SyncRDMARead(dead), dat.InvalidParameter, dat.InvalidArg2)
	if must[dat.IAParam](t)(s.ia.Query()).Provider.LMRSyncReq {
		t.Error("lmr_sync_req is true")
	}
}

func TestNoProviderIsHARelated(t *testing.T) {
	ia := newIA(t)
	if related := must[bool](t)(ia.HARelated("loop0")); related {
		t.Error("related")
	}
	for _, name := range []string{"", string(make([]byte, 256))} {
		_, err := ia.HARelated(name)
		refused(t, err, dat.InvalidParameter, dat.InvalidArg2)
	}
	if p := must[dat.IAParam](t)(ia.Query()).Provider; p.HASupported || p.HALoadBalancing != dat.HALoadBalancingNone {
		t.Error("HA attributes")
	}
}
