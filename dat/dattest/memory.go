package dattest

import (
	"bytes"

	"kdapl/dat"
)

// Protection zones and local memory regions (dat_pz_*, dat_lmr_*).
var memoryRules = []rule{
	{"a region describes itself", 0, memDescribes},
	{"contexts exist as privileges do, and end with the region", 0, memContexts},
	{"a peer has the privileges that a region gives", 0, memPrivileges},
	{"regions of the same memory do not know each other", 0, memOverlap},
	{"memory of the IA is zeroed, and serves both ends", 0, memOfIA},
	{"a duplicate has privileges of its own, and outlives its source", 0, memDuplicate},
	{"a zero-based region is addressed from 0", needZB, memZeroBased},
	{"an operation that names a freed region fails, and touches nothing", 0, memFreed},
	{"contexts of freed regions do not come back soon", 0, memFresh},
	{"arguments of a registration are checked", 0, memArgs},
	{"a zone in use is not freed", 0, memZoneInUse},
}

const localBoth = dat.PrivLocalRead | dat.PrivLocalWrite

func memDescribes(e *env) {
	mem := make([]byte, 100)
	l := e.a.register(mem, dat.PrivLocalRead|dat.PrivRemoteRead)
	q, err := l.Query()
	e.must(err, "LMR.Query")
	want := dat.LMRParam{
		MemType: dat.MemVirtual, PZ: e.a.pz, Priv: dat.PrivLocalRead | dat.PrivRemoteRead, VAType: dat.VATypeVA, Bound: true,
		RegisteredLength: 100, RegisteredAddress: l.Address(), LMRContext: l.LMRContext(), RMRContext: l.RMRContext(),
	}
	if q.RegisteredLength != want.RegisteredLength || q.RegisteredAddress != want.RegisteredAddress || q.Priv != want.Priv || q.PZ != want.PZ ||
		q.MemType != want.MemType || q.VAType != want.VAType || q.LMRContext != want.LMRContext || q.RMRContext != want.RMRContext || !q.Bound {
		e.Errorf("got %+v, want %+v", q, want)
	}
	if b := l.Bytes(); len(b) != 100 || &b[0] != &mem[0] {
		e.Errorf("the region is of other memory")
	}
	if tr := l.Triplet(10, 20); tr != (dat.LMRTriplet{VirtualAddress: l.Address() + 10, SegmentLength: 20, LMRContext: l.LMRContext()}) {
		e.Errorf("%+v", tr)
	}
	if tr := l.RMRTriplet(10, 20); tr != (dat.RMRTriplet{VirtualAddress: l.Address() + 10, SegmentLength: 20, RMRContext: l.RMRContext()}) {
		e.Errorf("%+v", tr)
	}
}

func memContexts(e *env) {
	l := e.a.register(make([]byte, 8), localBoth)
	if l.LMRContext() == 0 || l.RMRContext() != 0 {
		e.Errorf("a local region has the contexts %#x and %#x", l.LMRContext(), l.RMRContext())
	}
	for _, p := range []dat.Priv{dat.PrivRemoteRead | localBoth, dat.PrivRemoteWrite | localBoth, dat.PrivAll} {
		l := e.a.register(make([]byte, 8), p)
		if l.LMRContext() == 0 || l.RMRContext() == 0 {
			e.Errorf("a region with %v has the contexts %#x and %#x", p, l.LMRContext(), l.RMRContext())
		}
		e.must(l.Free(), "LMR.Free")
		if l.Bytes() != nil || l.LMRContext() != 0 || l.RMRContext() != 0 {
			e.Errorf("a freed region has memory or contexts")
		}
		e.refused(l.Free(), "a second Free", dat.InvalidHandle, dat.InvalidHandleLMR)
	}
}

// reads reads 8 bytes of a peer's region.
func (e *env) reads(a *dat.EP, from dat.RMRTriplet) string {
	e.Helper()
	clear(e.a.mem[64:72])
	e.must(a.PostRDMARead(30, 0, from, e.a.lmr.Triplet(64, 8)), "PostRDMARead")
	e.done(e.a.request, 30, dat.StatusSuccess)
	return string(e.a.mem[64:72])
}

func memPrivileges(e *env) {
	a, _ := e.link()
	for _, p := range []dat.Priv{dat.PrivRemoteRead | localBoth, dat.PrivRemoteWrite | localBoth, dat.PrivAll} {
		mem := []byte("........")
		l := e.b.register(mem, p)
		copy(e.a.mem, "written!")
		if p&dat.PrivRemoteWrite != 0 {
			e.write(a, l.RMRTriplet(0, 8), 0, 8)
			if string(mem) != "written!" {
				e.Errorf("with %v: %q", p, mem)
			}
		}
		copy(mem, "to read.")
		if p&dat.PrivRemoteRead != 0 {
			if got := e.reads(a, l.RMRTriplet(0, 8)); got != "to read." {
				e.Errorf("with %v: %q", p, got)
			}
		}
	}
}

func memOverlap(e *env) {
	a, b := e.link()
	mem := []byte("................")
	first, second := e.b.register(mem[:12], dat.PrivAll), e.b.register(mem[4:], dat.PrivAll)
	copy(e.a.mem, "12345678")
	e.write(a, first.RMRTriplet(0, 8), 0, 8)
	e.must(first.Free(), "LMR.Free")
	e.write(a, second.RMRTriplet(0, 8), 0, 8)
	e.must(b.PostRecv(1, 0, second.Triplet(8, 4)), "PostRecv")
	e.must(a.PostSend(2, 0, e.a.lmr.Triplet(0, 4)), "PostSend")
	e.done(e.b.recv, 1, dat.StatusSuccess)
	if string(mem) != "1234123456781234" {
		e.Errorf("%q", mem)
	}
}

func memOfIA(e *env) {
	a, b := e.link()
	const size = 1 << 16
	l, err := e.b.pz.NewLMR(dat.LMRConfig{Length: size, Priv: dat.PrivAll})
	e.must(err, "NewLMR")
	if !bytes.Equal(l.Bytes(), make([]byte, size)) {
		e.Fatalf("the memory is not zeroed")
	}
	copy(e.a.mem, "written!")
	e.write(a, l.RMRTriplet(size-8, 8), 0, 8)
	if got := string(l.Bytes()[size-8:]); got != "written!" {
		e.Errorf("written: %q", got)
	}
	if got := e.reads(a, l.RMRTriplet(size-8, 8)); got != "written!" {
		e.Errorf("read: %q", got)
	}
	e.must(b.PostRecv(1, 0, l.Triplet(100, 8)), "PostRecv")
	e.must(a.PostSend(2, 0, e.a.lmr.Triplet(0, 8)), "PostSend")
	e.done(e.b.recv, 1, dat.StatusSuccess)
	if got := string(l.Bytes()[100:108]); got != "written!" {
		e.Errorf("received: %q", got)
	}
	e.must(l.Free(), "LMR.Free")
}

func memDuplicate(e *env) {
	a, _ := e.link()
	source, err := e.b.pz.NewLMR(dat.LMRConfig{Length: 4096, Priv: localBoth})
	e.must(err, "NewLMR")
	of := func(l *dat.LMR, p dat.Priv) *dat.LMR {
		d, err := e.b.pz.NewLMR(dat.LMRConfig{MemType: dat.MemLMR, Source: l, Priv: p})
		e.must(err, "NewLMR of an LMR")
		return d
	}
	dup := of(source, localBoth|dat.PrivRemoteWrite)
	q, err := dup.Query()
	if e.must(err, "LMR.Query"); q.MemType != dat.MemLMR || q.RegisteredLength != 4096 || q.RegisteredAddress != source.Address() || q.LMRContext == source.LMRContext() {
		e.Errorf("%+v", q)
	}
	e.must(source.Free(), "LMR.Free")
	copy(e.a.mem, "written!")
	e.write(a, dup.RMRTriplet(4088, 8), 0, 8)
	third := of(dup, dat.PrivLocalRead|dat.PrivRemoteRead)
	e.must(dup.Free(), "LMR.Free")
	if got := e.reads(a, third.RMRTriplet(4088, 8)); got != "written!" {
		e.Errorf("%q", got)
	}
	e.must(third.Free(), "LMR.Free")
}

func memZeroBased(e *env) {
	a, b := e.link()
	mem := make([]byte, 64)
	l, err := e.b.pz.NewLMR(dat.LMRConfig{Memory: mem, Priv: dat.PrivAll, VAType: dat.VATypeZB})
	e.must(err, "NewLMR")
	if l.Address() != 0 || l.Triplet(5, 1).VirtualAddress != 5 || l.RMRTriplet(5, 1).VirtualAddress != 5 {
		e.Errorf("it begins at %#x", l.Address())
	}
	copy(e.a.mem, "zero-based")
	e.write(a, l.RMRTriplet(54, 10), 0, 10)
	if string(mem[54:]) != "zero-based" {
		e.Errorf("%q", mem)
	}
	e.must(a.PostRecv(1, 0, e.a.lmr.Triplet(100, 10)), "PostRecv")
	e.must(b.PostSend(2, 0, l.Triplet(54, 10)), "PostSend")
	e.done(e.a.recv, 1, dat.StatusSuccess)
	if got := string(e.a.mem[100:110]); got != "zero-based" {
		e.Errorf("%q", got)
	}
	e.refused(b.PostSend(3, 0, l.Triplet(60, 5)), "a send beyond the end", dat.ProtectionViolation)
}

func memFreed(e *env) {
	a, b := e.link()
	mem := []byte("................")
	l := e.b.register(mem, dat.PrivAll)
	e.must(b.PostRecv(1, 0, l.Triplet(0, 16)), "PostRecv")
	e.must(l.Free(), "LMR.Free")
	e.must(a.PostSend(2, 0, e.a.lmr.Triplet(0, 16)), "PostSend")
	e.done(e.b.recv, 1, dat.StatusLocalProtection)
	if e.a.acked() {
		e.done(e.a.request, 2, dat.StatusRemoteResponder)
	} else {
		e.done(e.a.request, 2, dat.StatusSuccess, dat.StatusFlushed)
	}
	e.broken()
	if string(mem) != "................" {
		e.Errorf("%q", mem)
	}
}

func memFresh(e *env) {
	seen := map[uint32]bool{}
	for range e.rounds(1000) {
		l := e.a.register(e.a.mem, dat.PrivAll)
		for _, c := range []uint32{l.RMRContext(), l.LMRContext()} {
			if seen[c] {
				e.Fatalf("the context %#x comes again", c)
			}
		}
		seen[l.RMRContext()], seen[l.LMRContext()] = true, true
		e.must(l.Free(), "LMR.Free")
	}
}

func memArgs(e *env) {
	mem := make([]byte, 8)
	freed := e.a.register(mem, dat.PrivAll)
	e.must(freed.Free(), "LMR.Free")
	before, err := e.a.ia.Query()
	e.must(err, "IA.Query")
	for _, c := range []struct {
		what string
		cfg  dat.LMRConfig
		typ  dat.Type
		sub  dat.Subtype
	}{
		{"nothing", dat.LMRConfig{}, dat.LengthError, dat.NoSubtype},
		{"no bytes", dat.LMRConfig{Memory: []byte{}}, dat.LengthError, dat.NoSubtype},
		{"a negative length", dat.LMRConfig{Length: -1}, dat.LengthError, dat.NoSubtype},
		{"memory and a length", dat.LMRConfig{Memory: mem, Length: 8}, dat.InvalidParameter, dat.InvalidArg3},
		{"memory and a source", dat.LMRConfig{Memory: mem, Source: e.a.lmr}, dat.InvalidParameter, dat.InvalidArg3},
		{"no source", dat.LMRConfig{MemType: dat.MemLMR}, dat.InvalidHandle, dat.InvalidHandleLMR},
		{"a freed source", dat.LMRConfig{MemType: dat.MemLMR, Source: freed}, dat.InvalidHandle, dat.InvalidHandleLMR},
		{"a source of another IA", dat.LMRConfig{MemType: dat.MemLMR, Source: e.b.lmr}, dat.InvalidHandle, dat.InvalidHandleLMR},
		{"unknown privileges", dat.LMRConfig{Memory: mem, Priv: 0x80}, dat.InvalidParameter, dat.InvalidArg6},
		{"an unknown way to address", dat.LMRConfig{Memory: mem, VAType: 2}, dat.InvalidParameter, dat.InvalidArg7},
	} {
		_, err := e.a.pz.NewLMR(c.cfg)
		e.refused(err, c.what, c.typ, c.sub)
	}
	if after, err := e.a.ia.Query(); err != nil || after.Counters != before.Counters {
		e.Errorf("refusals left %+v, %v; before there were %+v", after.Counters, err, before.Counters)
	}
}

func memZoneInUse(e *env) {
	pz, err := e.a.ia.NewPZ()
	e.must(err, "NewPZ")
	if q, err := pz.Query(); err != nil || q.IA != e.a.ia {
		e.Errorf("%+v, %v", q, err)
	}
	l, err := pz.Register(make([]byte, 8), dat.PrivAll)
	e.must(err, "Register")
	e.refused(pz.Free(), "Free with a region", dat.InvalidState, dat.InvalidStatePZInUse)
	e.must(l.Free(), "LMR.Free")
	ep, err := pz.NewEP(dat.EPConfig{})
	e.must(err, "NewEP")
	e.refused(pz.Free(), "Free with an EP", dat.InvalidState, dat.InvalidStatePZInUse)
	e.must(ep.Free(), "EP.Free")
	e.must(pz.Free(), "PZ.Free")
	e.refused(pz.Free(), "a second Free", dat.InvalidHandle, dat.InvalidHandlePZ)
	_, err = pz.Register(make([]byte, 8), dat.PrivAll)
	e.refused(err, "Register in a freed zone", dat.InvalidHandle, dat.InvalidHandlePZ)
}
