package dattest

import (
	"bytes"

	"kdapl/dat"
)

// Fast registration (dat_lmr_allocate, dat_lmr_fmr, dat_lmr_invalidate).
var fmrRules = []rule{
	{"an allocated LMR is unbound until it is mapped", needFMR, fmrUnbound},
	{"several ranges are one region, in order", needFMR, fmrRanges},
	{"the contexts work for what is posted behind the registration", needFMR, fmrAtOnce},
	{"an invalidated mapping is gone, locally and for peers", needFMR, fmrInvalidated},
	{"a request with the invalidate fence comes behind the invalidations before it", needFMR, fmrFence},
	{"a mapped LMR is not mapped again, an unmapped one not invalidated", needFMR, fmrStates},
	{"a flushed registration maps nothing, a flushed invalidation ends nothing", needFMR, fmrFlushed},
	{"a mapped LMR is freed without an invalidation", needFMR, fmrFree},
	{"a zero-based mapping is addressed from 0", needFMR | needZB, fmrZeroBased},
	{"a registration needs ranges of whole pages, as many as were allocated", needFMR, fmrBadRanges},
	{"a registration needs an EP of its PZ that is or was connected", needFMR, fmrBadEP},
	{"an LMR with memory of its own is not mapped", needFMR, fmrOrdinary},
	{"an allocation needs a number of pages that the adapter has", needFMR, fmrAllocate},
}

// pageSize is a multiple of every adapter's.
const pageSize = 65536

func (s *side) allocate(pages int) *dat.LMR {
	s.e.Helper()
	l, err := s.pz.AllocateLMR(pages, dat.RMRScopePZ)
	s.e.must(err, "AllocateLMR(%d)", pages)
	return l
}

// fmr maps ranges and takes the event.
func (s *side) fmr(l *dat.LMR, ep *dat.EP, ranges ...[]byte) {
	s.e.Helper()
	lmrContext, rmrContext, err := l.FMR(ranges, dat.PrivAll, dat.VATypeVA, ep, 60, 0)
	s.e.must(err, "FMR")
	if d := s.e.done(s.request, 60, dat.StatusSuccess); d.Operation != dat.OpLMRFMR || d.EP != ep {
		s.e.Fatalf("the event of a registration: %+v", d)
	}
	if lmrContext == 0 || rmrContext == 0 || lmrContext != l.LMRContext() || rmrContext != l.RMRContext() {
		s.e.Errorf("FMR returns %#x and %#x, the LMR has %#x and %#x", lmrContext, rmrContext, l.LMRContext(), l.RMRContext())
	}
}

func (s *side) invalidate(l *dat.LMR, ep *dat.EP) {
	s.e.Helper()
	s.e.must(l.Invalidate(ep, 61, 0), "Invalidate")
	if d := s.e.done(s.request, 61, dat.StatusSuccess); d.Operation != dat.OpLMRInvalidate {
		s.e.Fatalf("the event of an invalidation: %+v", d)
	}
}

func fmrUnbound(e *env) {
	_, b := e.link()
	l := e.b.allocate(2)
	check := func(when string, bound bool) {
		e.Helper()
		q, err := l.Query()
		if err != nil || !q.FMRSupport || q.Bound != bound || (q.LMRContext != 0) != bound || (q.RMRContext != 0) != bound || (q.RegisteredLength == 100) != bound {
			e.Errorf("%s: %+v, %v", when, q, err)
		}
	}
	check("allocated", false)
	e.b.fmr(l, b, make([]byte, 100))
	check("mapped", true)
	e.b.invalidate(l, b)
	check("invalidated", false)
}

func fmrRanges(e *env) {
	a, b := e.link()
	l := e.b.allocate(2)
	parts := [][]byte{make([]byte, pageSize), make([]byte, 100)}
	e.b.fmr(l, b, parts...)
	src := e.a.register(bytes.Repeat([]byte("0123456789"), (pageSize+100)/10), dat.PrivAll)
	n := len(src.Bytes())
	off := pageSize + 100 - n
	e.must(a.PostRDMAWrite(1, 0, l.RMRTriplet(off, n), src.Triplet(0, n)), "PostRDMAWrite")
	e.done(e.a.request, 1, dat.StatusSuccess)
	e.placed(a)
	e.must(a.PostRecv(2, 0, e.a.lmr.Triplet(0, 64)), "PostRecv")
	e.must(b.PostSend(3, 0, l.Triplet(pageSize-8, 16)), "PostSend across the seam")
	e.done(e.b.request, 3, dat.StatusSuccess)
	e.done(e.a.recv, 2, dat.StatusSuccess)
	all := bytes.Join(parts, nil)
	if !bytes.Equal(all[off:], src.Bytes()) || !bytes.Equal(e.a.mem[:16], all[pageSize-8:pageSize+8]) {
		e.Errorf("the ranges do not join")
	}
	e.forbidden(a, dat.RMRTriplet{VirtualAddress: l.Address() + pageSize + 99, SegmentLength: 2, RMRContext: l.RMRContext()})
}

func fmrAtOnce(e *env) {
	a, b := e.link()
	l := e.b.allocate(1)
	e.must(a.PostRecv(1, 0, e.a.lmr.Triplet(0, 6)), "PostRecv")
	lmrContext, rmrContext, err := l.FMR([][]byte{[]byte("mapped")}, dat.PrivLocalRead, dat.VATypeVA, b, 2, 0)
	e.must(err, "FMR")
	if rmrContext != 0 {
		e.Errorf("a remote context %#x without remote privileges", rmrContext)
	}
	local := l.Triplet(0, 6)
	local.LMRContext = lmrContext
	e.must(b.PostSend(3, 0, local), "PostSend behind a registration")
	e.must(l.Invalidate(b, 4, dat.CompletionBarrierFence), "Invalidate behind a send")
	for _, cookie := range []uint64{2, 3, 4} {
		e.done(e.b.request, cookie, dat.StatusSuccess)
	}
	e.done(e.a.recv, 1, dat.StatusSuccess)
	if string(e.a.mem[:6]) != "mapped" {
		e.Errorf("arrived: %q", e.a.mem[:6])
	}
}

func fmrInvalidated(e *env) {
	a, b := e.link()
	l := e.b.allocate(1)
	e.b.fmr(l, b, make([]byte, 64))
	local, remote := l.Triplet(0, 8), l.RMRTriplet(0, 8)
	e.b.invalidate(l, b)
	if l.LMRContext() != 0 || l.RMRContext() != 0 {
		e.Errorf("contexts %#x, %#x", l.LMRContext(), l.RMRContext())
	}
	if err := b.PostSend(1, 0, local); err == nil { // an adapter may tell with the completion
		e.done(e.b.request, 1, dat.StatusLocalProtection)
		return
	}
	e.b.fmr(l, b, make([]byte, 64))
	if l.RMRContext() == remote.RMRContext {
		e.Errorf("two registrations, one context")
	}
	e.forbidden(a, remote)
}

func fmrFence(e *env) {
	a, b := e.link()
	l := e.b.allocate(1)
	for range e.rounds(20) {
		e.b.fmr(l, b, make([]byte, 64))
		e.must(a.PostRecv(1, 0), "PostRecv")
		e.must(l.Invalidate(b, 2, dat.CompletionSuppress), "Invalidate")
		e.must(b.PostSend(3, dat.CompletionLMRInvalidateFence), "PostSend")
		e.done(e.b.request, 3, dat.StatusSuccess)
		e.done(e.a.recv, 1, dat.StatusSuccess)
		if l.LMRContext() != 0 || l.RMRContext() != 0 {
			e.Fatalf("it is still mapped: %#x, %#x", l.LMRContext(), l.RMRContext())
		}
	}
	e.b.fmr(l, b, make([]byte, 64))
	remote := l.RMRTriplet(0, 8)
	e.must(l.Invalidate(b, 2, dat.CompletionSuppress), "Invalidate")
	e.must(a.PostRecv(1, 0), "PostRecv")
	e.must(b.PostSend(3, dat.CompletionLMRInvalidateFence), "PostSend")
	e.done(e.b.request, 3, dat.StatusSuccess)
	e.done(e.a.recv, 1, dat.StatusSuccess)
	e.forbidden(a, remote)
}

func fmrStates(e *env) {
	_, b := e.link()
	l := e.b.allocate(1)
	mem := [][]byte{make([]byte, 64)}
	e.refused(l.Invalidate(b, 1, 0), "Invalidate of an LMR that is not mapped", dat.InvalidState, dat.InvalidStateLMRFree)
	e.b.fmr(l, b, mem...)
	_, _, err := l.FMR(mem, dat.PrivAll, dat.VATypeVA, b, 1, 0)
	e.refused(err, "FMR of a mapped LMR", dat.InvalidState, dat.InvalidStateLMRInUse)
	e.b.invalidate(l, b)
	e.refused(l.Invalidate(b, 1, 0), "a second Invalidate", dat.InvalidState, dat.InvalidStateLMRFree)
	e.b.fmr(l, b, mem...)
}

func fmrFlushed(e *env) {
	a, b := e.link()
	never, kept := e.b.allocate(1), e.b.allocate(1)
	mem := make([]byte, 64)
	e.b.fmr(kept, b, mem)
	remote := kept.RMRTriplet(0, 8)
	e.must(b.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(e.b.connect, dat.ConnectionDisconnected)
	_, _, err := never.FMR([][]byte{mem}, dat.PrivAll, dat.VATypeVA, b, 1, 0)
	e.must(err, "FMR on a disconnected EP")
	e.must(kept.Invalidate(b, 2, 0), "Invalidate on a disconnected EP")
	e.done(e.b.request, 1, dat.StatusFlushed)
	e.done(e.b.request, 2, dat.StatusFlushed)
	if never.LMRContext() != 0 || kept.RMRContext() != remote.RMRContext {
		e.Errorf("contexts %#x, %#x after the flush; want 0, %#x", never.LMRContext(), kept.RMRContext(), remote.RMRContext)
	}
	e.event(e.a.connect, dat.ConnectionDisconnected)
	e.must(a.Reset(), "Reset")
	e.must(b.Reset(), "Reset")
	e.join(a, b)
	e.write(a, remote, 0, 8)
	e.b.invalidate(kept, b)
	e.b.fmr(never, b, mem)
}

func fmrFree(e *env) {
	a, b := e.link()
	l := e.b.allocate(1)
	e.b.fmr(l, b, make([]byte, 64))
	remote := l.RMRTriplet(0, 8)
	e.must(l.Free(), "Free")
	e.refused(l.Free(), "a second Free", dat.InvalidHandle, dat.InvalidHandleLMR)
	e.forbidden(a, remote)
}

func fmrZeroBased(e *env) {
	a, b := e.link()
	l := e.b.allocate(1)
	mem := make([]byte, 100)
	_, rmrContext, err := l.FMR([][]byte{mem}, dat.PrivAll, dat.VATypeZB, b, 1, 0)
	e.must(err, "FMR")
	e.done(e.b.request, 1, dat.StatusSuccess)
	if l.Address() != 0 {
		e.Errorf("at %#x", l.Address())
	}
	e.a.mem[0] = 55
	e.write(a, dat.RMRTriplet{VirtualAddress: 99, RMRContext: rmrContext}, 0, 1)
	e.forbidden(a, dat.RMRTriplet{VirtualAddress: 100, SegmentLength: 1, RMRContext: rmrContext})
	if mem[99] != 55 {
		e.Errorf("not at the offset")
	}
}

func fmrBadRanges(e *env) {
	_, b := e.link()
	l := e.b.allocate(2)
	whole, part := make([]byte, pageSize), make([]byte, 100)
	for what, ranges := range map[string][][]byte{
		"no range": nil, "three ranges for two": {whole, whole, whole}, "an empty range": {whole, {}}, "a part of a page in front": {part, whole},
	} {
		_, _, err := l.FMR(ranges, dat.PrivAll, dat.VATypeVA, b, 1, 0)
		e.refused(err, "FMR of "+what, dat.InvalidParameter, dat.InvalidArg3)
	}
	_, _, err := l.FMR([][]byte{whole}, 0x400, dat.VATypeVA, b, 1, 0)
	e.refused(err, "FMR with unknown privileges", dat.InvalidParameter, dat.InvalidArg5)
	e.none(e.b.request, "after refusals")
	e.b.fmr(l, b, whole, part)
}

func fmrBadEP(e *env) {
	_, b := e.link()
	l := e.b.allocate(1)
	mem := [][]byte{make([]byte, 64)}
	_, _, err := l.FMR(mem, dat.PrivAll, dat.VATypeVA, e.b.ep(), 1, 0)
	e.refused(err, "FMR on an unconnected EP", dat.InvalidState, dat.InvalidStateEPUnconnected)
	pz, err := e.b.ia.NewPZ()
	e.must(err, "NewPZ")
	other, err := pz.AllocateLMR(1, dat.RMRScopePZ)
	e.must(err, "AllocateLMR")
	_, _, err = other.FMR(mem, dat.PrivAll, dat.VATypeVA, b, 1, 0)
	e.refused(err, "FMR on an EP of another PZ", dat.ProtectionViolation)
	_, _, err = l.FMR(mem, dat.PrivAll, dat.VATypeVA, e.a.ep(), 1, 0)
	e.refused(err, "FMR on an EP of another IA", dat.InvalidHandle, dat.InvalidHandleEP)
	_, _, err = l.FMR(mem, dat.PrivAll, dat.VATypeVA, nil, 1, 0)
	e.refused(err, "FMR without EP", dat.InvalidHandle, dat.InvalidHandleEP)
}

func fmrOrdinary(e *env) {
	_, b := e.link()
	_, _, err := e.b.lmr.FMR([][]byte{make([]byte, 64)}, dat.PrivAll, dat.VATypeVA, b, 1, 0)
	e.refused(err, "FMR of an LMR with memory", dat.InvalidParameter, dat.InvalidArg1)
	e.refused(e.b.lmr.Invalidate(b, 1, 0), "Invalidate of an LMR with memory", dat.InvalidParameter, dat.InvalidArg1)
}

func fmrAllocate(e *env) {
	for _, pages := range []int{0, -1, 1 << 30} {
		_, err := e.b.pz.AllocateLMR(pages, dat.RMRScopePZ)
		e.refused(err, "AllocateLMR", dat.InvalidParameter, dat.InvalidArg3)
	}
}
