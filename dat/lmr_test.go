package dat_test

import (
	"bytes"
	"math"
	"testing"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Tests of protection zones and memory regions (1.4, section 6 of the reference).

func TestPZIsNotFreedWhileItIsUsed(t *testing.T) {
	p := newPair(t, pairConfig{})
	pz := must[*dat.PZ](t)(p.a.ia.NewPZ())
	if q := must[dat.PZParam](t)(pz.Query()); q.IA != p.a.ia {
		t.Fatalf("%+v", q)
	}
	for name, user := range map[string]func() (interface{ Free() error }, error){
		"LMR":      func() (interface{ Free() error }, error) { return pz.Register(make([]byte, 8), dat.PrivAll) },
		"fast LMR": func() (interface{ Free() error }, error) { return pz.AllocateLMR(1, dat.RMRScopePZ) },
		"EP":       func() (interface{ Free() error }, error) { return pz.NewEP(dat.EPConfig{}) },
		"RMR":      func() (interface{ Free() error }, error) { return pz.NewRMR() },
		"SRQ": func() (interface{ Free() error }, error) {
			return pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1})
		},
	} {
		o, err := user()
		ok(t, err)
		refused(t, pz.Free(), dat.InvalidState, dat.InvalidStatePZInUse)
		if _, err := pz.Query(); err != nil {
			t.Fatalf("%s: a refused Free has freed", name)
		}
		ok(t, o.Free())
	}
	ok(t, pz.Free())
	refused(t, pz.Free(), dat.InvalidHandle, dat.InvalidHandlePZ)
	for _, err := range []error{
		func() error { _, err := pz.Register(make([]byte, 8), dat.PrivAll); return err }(),
		func() error { _, err := pz.NewEP(dat.EPConfig{}); return err }(),
		func() error { _, err := pz.NewRMR(); return err }(),
		func() error { _, err := pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1}); return err }(),
	} {
		refused(t, err, dat.InvalidHandle, dat.InvalidHandlePZ)
	}
}

func TestPZsAndLMRsAreLimited(t *testing.T) {
	ia := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.MaxPD, a.MaxMR, a.MaxMRSize = 2, 2, 1000 }}), dat.Config{})
	pz := must[*dat.PZ](t)(ia.NewPZ())
	other := must[*dat.PZ](t)(ia.NewPZ())
	_, err := ia.NewPZ()
	refused(t, err, dat.InsufficientResources, dat.ResourceProtectionDomain)
	ok(t, other.Free())
	ok(t, must[*dat.PZ](t)(ia.NewPZ()).Free())
	var lmrs []*dat.LMR
	for range 2 {
		lmrs = append(lmrs, must[*dat.LMR](t)(pz.Register(make([]byte, 1000), dat.PrivAll)))
	}
	_, err = pz.Register(make([]byte, 8), dat.PrivAll)
	refused(t, err, dat.InsufficientResources, dat.ResourceMemoryRegion)
	ok(t, lmrs[0].Free())
	_, err = pz.Register(make([]byte, 1001), dat.PrivAll)
	refused(t, err, dat.LengthError, dat.NoSubtype)
	must[*dat.LMR](t)(pz.Register(make([]byte, 1), dat.PrivAll))
}

func TestLMRDescribesItsRegion(t *testing.T) {
	p := newPair(t, pairConfig{})
	mem := make([]byte, 100)
	l := must[*dat.LMR](t)(p.a.pz.Register(mem, dat.PrivLocalRead|dat.PrivRemoteRead))
	q := must[dat.LMRParam](t)(l.Query())
	if q.MemType != dat.MemVirtual || q.PZ != p.a.pz || q.Priv != dat.PrivLocalRead|dat.PrivRemoteRead || q.VAType != dat.VATypeVA ||
		q.RegisteredLength != 100 || q.RegisteredAddress != l.Address() || q.LMRContext != l.LMRContext() || q.RMRContext != l.RMRContext() || q.FMRSupport || !q.Bound {
		t.Fatalf("%+v", q)
	}
	if l.LMRContext() == 0 || l.RMRContext() == 0 || l.Address() == 0 || &l.Bytes()[0] != &mem[0] || len(l.Bytes()) != 100 {
		t.Fatal("contexts, address or memory are wrong")
	}
	if tr := l.Triplet(10, 20); tr.VirtualAddress != l.Address()+10 || tr.SegmentLength != 20 || tr.LMRContext != l.LMRContext() {
		t.Fatalf("%+v", tr)
	}
	if tr := l.RMRTriplet(10, 20); tr.VirtualAddress != l.Address()+10 || tr.SegmentLength != 20 || tr.RMRContext != l.RMRContext() {
		t.Fatalf("%+v", tr)
	}
	for _, n := range []int{-1, math.MinInt, 1 << 32, math.MaxInt} {
		if tr, rt := l.Triplet(0, n), l.RMRTriplet(0, n); tr.SegmentLength != math.MaxUint32 || rt.SegmentLength != math.MaxUint32 {
			t.Fatalf("a length of %d became %d", n, tr.SegmentLength)
		}
	}
	// Without a remote privilege there is no remote context.
	local := must[*dat.LMR](t)(p.a.pz.Register(mem, dat.PrivLocalRead|dat.PrivLocalWrite))
	if local.RMRContext() != 0 {
		t.Fatal("a remote context without a remote privilege")
	}
	ok(t, l.Free())
	if l.Bytes() != nil || l.LMRContext() != 0 || l.RMRContext() != 0 {
		t.Fatal("a freed region still has memory and contexts")
	}
	refused(t, l.Free(), dat.InvalidHandle, dat.InvalidHandleLMR)
}

func TestNewLMRChecksItsArguments(t *testing.T) {
	p := newPair(t, pairConfig{})
	mem := make([]byte, 8)
	freed := must[*dat.LMR](t)(p.a.pz.Register(mem, dat.PrivAll))
	ok(t, freed.Free())
	before := must[dat.IAParam](t)(p.a.ia.Query()).Counters
	for name, c := range map[string]struct {
		cfg dat.LMRConfig
		typ dat.Type
		sub dat.Subtype
	}{
		"nothing":            {dat.LMRConfig{}, dat.LengthError, dat.NoSubtype},
		"empty memory":       {dat.LMRConfig{Memory: []byte{}}, dat.LengthError, dat.NoSubtype},
		"negative length":    {dat.LMRConfig{Length: -1}, dat.LengthError, dat.NoSubtype},
		"least length":       {dat.LMRConfig{Length: math.MinInt}, dat.LengthError, dat.NoSubtype},
		"greatest length":    {dat.LMRConfig{Length: math.MaxInt}, dat.LengthError, dat.NoSubtype},
		"memory and length":  {dat.LMRConfig{Memory: mem, Length: 8}, dat.InvalidParameter, dat.InvalidArg3},
		"memory and source":  {dat.LMRConfig{Memory: mem, Source: p.a.lmr}, dat.InvalidParameter, dat.InvalidArg3},
		"LMR with memory":    {dat.LMRConfig{MemType: dat.MemLMR, Memory: mem, Source: p.a.lmr}, dat.InvalidParameter, dat.InvalidArg3},
		"LMR without source": {dat.LMRConfig{MemType: dat.MemLMR}, dat.InvalidHandle, dat.InvalidHandleLMR},
		"freed source":       {dat.LMRConfig{MemType: dat.MemLMR, Source: freed}, dat.InvalidHandle, dat.InvalidHandleLMR},
		"zero source":        {dat.LMRConfig{MemType: dat.MemLMR, Source: new(dat.LMR)}, dat.InvalidHandle, dat.InvalidHandleLMR},
		"source elsewhere":   {dat.LMRConfig{MemType: dat.MemLMR, Source: p.b.lmr}, dat.InvalidHandle, dat.InvalidHandleLMR},
		"physical":           {dat.LMRConfig{MemType: dat.MemPhysical, Memory: mem}, dat.ModelNotSupported, dat.NoSubtype},
		"unknown type":       {dat.LMRConfig{MemType: 1 << 31, Memory: mem}, dat.ModelNotSupported, dat.NoSubtype},
		"unknown privilege":  {dat.LMRConfig{Memory: mem, Priv: 0x80}, dat.InvalidParameter, dat.InvalidArg6},
		"all privileges":     {dat.LMRConfig{Memory: mem, Priv: ^dat.Priv(0)}, dat.InvalidParameter, dat.InvalidArg6},
		"unknown VA type":    {dat.LMRConfig{Memory: mem, VAType: 2}, dat.InvalidParameter, dat.InvalidArg7},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.a.pz.NewLMR(c.cfg)
			refused(t, err, c.typ, c.sub)
			if after := must[dat.IAParam](t)(p.a.ia.Query()).Counters; after != before {
				t.Fatalf("left behind: %+v, was %+v", after, before)
			}
		})
	}
	lesser := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.Caps &^= verbs.CapZeroBased | verbs.CapAtomics }}), dat.Config{})
	pz := must[*dat.PZ](t)(lesser.NewPZ())
	_, err := pz.NewLMR(dat.LMRConfig{Memory: mem, VAType: dat.VATypeZB})
	refused(t, err, dat.ModelNotSupported, dat.NoSubtype)
	_, err = pz.NewLMR(dat.LMRConfig{Memory: mem, Priv: dat.PrivRemoteAtomic})
	refused(t, err, dat.ModelNotSupported, dat.NoSubtype)
}

// Memory that the IA allocates is zeroed, usable by both ends, and shared by LMRs of it until the last is freed.
func TestMemoryOfTheIAsAndDuplicatesOfIt(t *testing.T) {
	p := connectPair(t, 64)
	l := must[*dat.LMR](t)(p.b.pz.NewLMR(dat.LMRConfig{Length: 1 << 16, Priv: dat.PrivAll}))
	if !bytes.Equal(l.Bytes(), make([]byte, 1<<16)) {
		t.Fatal("the memory is not zeroed")
	}
	copy(p.a.mem, "written!")
	write := func(r dat.RMRTriplet) {
		t.Helper()
		ok(t, p.a.ep.PostRDMAWrite(1, 0, r, p.a.lmr.Triplet(0, 8)))
		nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
	}
	write(l.RMRTriplet(100, 8))
	if string(l.Bytes()[100:108]) != "written!" {
		t.Fatal("not written")
	}
	// A duplicate has privileges and a zone of its own, and outlives its source.
	dup := must[*dat.LMR](t)(p.b.pz.NewLMR(dat.LMRConfig{MemType: dat.MemLMR, Source: l, Priv: dat.PrivLocalRead | dat.PrivLocalWrite | dat.PrivRemoteWrite}))
	if q := must[dat.LMRParam](t)(dup.Query()); q.MemType != dat.MemLMR || q.RegisteredLength != 1<<16 || q.RegisteredAddress != l.Address() || q.LMRContext == l.LMRContext() {
		t.Fatalf("%+v", q)
	}
	ok(t, l.Free())
	write(dup.RMRTriplet(1<<16-8, 8))
	if string(dup.Bytes()[1<<16-8:]) != "written!" || string(dup.Bytes()[100:108]) != "written!" {
		t.Fatal("the duplicate is of other memory")
	}
	third := must[*dat.LMR](t)(p.b.pz.NewLMR(dat.LMRConfig{MemType: dat.MemLMR, Source: dup, Priv: dat.PrivRemoteRead | dat.PrivLocalRead}))
	ok(t, dup.Free())
	ok(t, p.a.ep.PostRDMARead(2, 0, third.RMRTriplet(100, 8), p.a.lmr.Triplet(16, 8)))
	nextDTO(t, p.a.evd, 2, dat.StatusSuccess)
	if string(p.a.mem[16:24]) != "written!" {
		t.Fatalf("%q", p.a.mem[16:24])
	}
	ok(t, third.Free())
}

// A zero-based region is addressed from 0, locally and by peers.
func TestZeroBasedRegions(t *testing.T) {
	p := connectPair(t, 64)
	mem := make([]byte, 64)
	zb := must[*dat.LMR](t)(p.b.pz.NewLMR(dat.LMRConfig{Memory: mem, Priv: dat.PrivAll, VAType: dat.VATypeZB}))
	if zb.Address() != 0 || zb.Triplet(5, 1).VirtualAddress != 5 {
		t.Fatal("not from 0")
	}
	copy(p.a.mem, "zero-based")
	ok(t, p.a.ep.PostRDMAWrite(1, 0, zb.RMRTriplet(54, 10), p.a.lmr.Triplet(0, 10)))
	nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
	if string(mem[54:]) != "zero-based" {
		t.Fatalf("%q", mem)
	}
	ok(t, p.a.ep.PostRecv(2, 0, p.a.lmr.Triplet(20, 10)))
	ok(t, p.b.ep.PostSend(3, 0, zb.Triplet(54, 10)))
	nextDTO(t, p.a.evd, 2, dat.StatusSuccess)
	if string(p.a.mem[20:30]) != "zero-based" {
		t.Fatalf("%q", p.a.mem)
	}
	refused(t, p.b.ep.PostSend(4, 0, zb.Triplet(60, 5)), dat.ProtectionViolation, dat.NoSubtype)
}

// An LMR is freed whatever still names it; operations that do fail, and touch nothing.
func TestFreeingAnLMRThatOperationsName(t *testing.T) {
	p := newPair(t, pairConfig{loop: loop.Config{Completion: verbs.RemoteAcked}}).connect(t)
	mem := bytes.Repeat([]byte{'.'}, 16)
	l := must[*dat.LMR](t)(p.b.pz.Register(mem, dat.PrivAll))
	ok(t, p.b.ep.PostRecv(1, 0, l.Triplet(0, 16)))
	ok(t, l.Free())
	ok(t, p.a.ep.PostSend(2, 0, p.a.lmr.Triplet(0, 16)))
	done, end := collectEnd(t, p.b.evd)
	if done[1] != dat.StatusLocalProtection || end != dat.ConnectionBroken || !bytes.Equal(mem, bytes.Repeat([]byte{'.'}, 16)) {
		t.Fatal(done, end, mem)
	}
	done, end = collectEnd(t, p.a.evd)
	if done[2] != dat.StatusRemoteResponder || end != dat.ConnectionBroken {
		t.Fatal(done, end)
	}
}

// Contexts are not handed out again soon: those of a freed region do not open the next one.
func TestContextsOfFreedRegionsStayDead(t *testing.T) {
	p := newPair(t, pairConfig{})
	seen := map[uint32]bool{}
	for range 1000 {
		l := must[*dat.LMR](t)(p.a.pz.Register(p.a.mem, dat.PrivAll))
		if seen[l.RMRContext()] {
			t.Fatalf("context %#x comes again", l.RMRContext())
		}
		seen[l.RMRContext()] = true
		ok(t, l.Free())
	}
}
