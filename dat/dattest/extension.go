package dattest

import (
	"unsafe"

	"kdapl/dat"
)

// The InfiniBand extension: immediate data, atomics, dat_extension_op.
var extensionRules = []rule{
	{"an RDMA write with immediate data uses up a receive, and tells its data", needImmediate, immediateArrives},
	{"a refused write with immediate data uses up no receive", needImmediate, immediateRefused},
	{"a write with immediate data waits for a receive", needImmediate | needWait, immediateWaits},
	{"fetch-and-add adds, and returns what was there", needAtomics, fetchAdd},
	{"compare-and-swap swaps what compares, and returns what was there", needAtomics, compareSwap},
	{"an atomic needs eight own bytes and eight aligned ones of the peer's", needAtomics, atomicArgs},
	{"an atomic needs the peer's privilege", needAtomics, atomicPrivilege},
	{"atomics of several EPs are atomic", needAtomics, atomicLoad},
	{"extension_op is the one call for all of them", needAtomics | needImmediate, extensionOp},
	{"extension_op knows its own operations only", 0, extensionUnknown},
}

func immediateArrives(e *env) {
	a, b := e.link()
	for n := range 2 {
		n *= 64
		e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(4096, 8)), "PostRecv")
		e.a.mem[0] = 9
		e.must(a.PostRDMAWriteImmediate(2, 0, 0xFEEDF00D, e.b.lmr.RMRTriplet(0, n), e.a.lmr.Triplet(0, n)), "PostRDMAWriteImmediate")
		ev := e.event(e.b.recv, dat.IBDTOEvent)
		if d := ev.DTO(); d.Operation != dat.OpReceiveImmediate || d.Cookie != 1 || d.Status != dat.StatusSuccess || d.Immediate != 0xFEEDF00D || int(d.Length) != n {
			e.Errorf("%d bytes: %+v", n, d)
		}
		if x, ok := ev.IBExtension(); !ok || x.Type != dat.IBExtRDMAWriteImmedData || x.Immediate != 0xFEEDF00D {
			e.Errorf("%+v, %v", x, ok)
		}
		ev = e.event(e.a.request, dat.IBDTOEvent)
		if d := ev.DTO(); d.Operation != dat.OpRDMAWriteImmediate || d.Cookie != 2 || d.Status != dat.StatusSuccess {
			e.Errorf("%+v", d)
		}
	}
	if e.b.mem[0] != 9 || e.b.mem[4096] != 0 {
		e.Errorf("the write went to the receive")
	}
}

func immediateRefused(e *env) {
	a, b := e.link()
	e.must(b.PostRecv(1, 0), "PostRecv")
	past := e.b.lmr.RMRTriplet(memSize-4, 8)
	e.must(a.PostRDMAWriteImmediate(2, 0, 1, past, e.a.lmr.Triplet(0, 8)), "PostRDMAWriteImmediate")
	e.violation(2, false)
	e.done(e.b.recv, 1, dat.StatusFlushed)
	e.refused(a.PostRDMAWriteImmediate(2, 0, 1, e.b.lmr.RMRTriplet(0, 4), e.a.lmr.Triplet(0, 8)), "more than fits", dat.LengthError)
}

func immediateWaits(e *env) {
	a, b := e.link()
	e.must(a.PostRDMAWriteImmediate(1, 0, 7, e.b.lmr.RMRTriplet(0, 8), e.a.lmr.Triplet(0, 8)), "PostRDMAWriteImmediate")
	e.none(e.a.request, "without a receive")
	e.must(b.PostRecv(2, 0), "PostRecv")
	e.done(e.a.request, 1, dat.StatusSuccess)
	e.done(e.b.recv, 2, dat.StatusSuccess)
}

// words makes a region of n aligned words.
func (s *side) words(n int, priv dat.Priv) (*dat.LMR, []uint64) {
	s.e.Helper()
	w := make([]uint64, n)
	return s.register(unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 8*n), priv), w
}

const atomicPriv = dat.PrivLocalRead | dat.PrivLocalWrite | dat.PrivRemoteAtomic

func fetchAdd(e *env) {
	a, _ := e.link()
	lmr, w := e.b.words(2, atomicPriv)
	local, got := e.a.words(1, dat.PrivAll)
	w[1] = 40
	e.must(a.PostFetchAdd(1, 0, 2, lmr.RMRTriplet(8, 8), local.Triplet(0, 8)), "PostFetchAdd")
	ev := e.event(e.a.request, dat.IBDTOEvent)
	if d := ev.DTO(); d.Operation != dat.OpFetchAdd || d.Status != dat.StatusSuccess || d.Cookie != 1 {
		e.Errorf("%+v", d)
	}
	if x, ok := ev.IBExtension(); !ok || x.Type != dat.IBExtFetchAndAdd {
		e.Errorf("%+v", x)
	}
	if got[0] != 40 || w[1] != 42 || w[0] != 0 {
		e.Errorf("before %d, now %v", got[0], w)
	}
}

func compareSwap(e *env) {
	a, _ := e.link()
	lmr, w := e.b.words(1, atomicPriv)
	local, got := e.a.words(1, dat.PrivAll)
	w[0] = 5
	for _, c := range []struct{ compare, swap, before, after uint64 }{{4, 9, 5, 5}, {5, 9, 5, 9}, {9, 1 << 63, 9, 1 << 63}} {
		e.must(a.PostCompareSwap(1, 0, c.compare, c.swap, lmr.RMRTriplet(0, 8), local.Triplet(0, 8)), "PostCompareSwap")
		if d := e.done(e.a.request, 1, dat.StatusSuccess); d.Operation != dat.OpCompareSwap {
			e.Errorf("%+v", d)
		}
		if got[0] != c.before || w[0] != c.after {
			e.Errorf("%+v: before %d, now %d", c, got[0], w[0])
		}
	}
}

func atomicArgs(e *env) {
	a, _ := e.link()
	lmr, _ := e.b.words(2, atomicPriv)
	post := func(what string, remote dat.RMRTriplet, local dat.LMRTriplet, sub dat.Subtype) {
		e.Helper()
		e.refused(a.PostFetchAdd(1, 0, 1, remote, local), what, dat.InvalidParameter, sub)
	}
	post("seven bytes of the peer's", lmr.RMRTriplet(0, 7), e.a.lmr.Triplet(0, 8), dat.InvalidArg4)
	post("bytes that are not aligned", lmr.RMRTriplet(4, 8), e.a.lmr.Triplet(0, 8), dat.InvalidArg4)
	post("four own bytes", lmr.RMRTriplet(0, 8), e.a.lmr.Triplet(0, 4), dat.InvalidArg2)
	e.none(e.a.request, "after refusals")
}

func atomicPrivilege(e *env) {
	a, _ := e.link()
	plain, _ := e.b.words(1, dat.PrivAll)
	e.must(a.PostFetchAdd(1, 0, 1, plain.RMRTriplet(0, 8), e.a.lmr.Triplet(0, 8)), "PostFetchAdd")
	e.violation(1, true)
}

func atomicLoad(e *env) {
	const eps = 3
	each := e.rounds(300)
	lmr, w := e.b.words(1, atomicPriv)
	failed := make(chan error, eps)
	for range eps {
		request := e.a.evdOf(dat.EVDConfig{Streams: dat.StreamDTO})
		a, b := e.a.ep(func(c *dat.EPConfig, _ *dat.EPAttr) { c.Request = request }), e.b.ep()
		e.join(a, b)
		local, _ := e.a.words(1, dat.PrivAll)
		go func() {
			for range each {
				if err := a.PostFetchAdd(1, 0, 1, lmr.RMRTriplet(0, 8), local.Triplet(0, 8)); err != nil {
					failed <- err
					return
				}
				if _, _, err := request.Wait(e.Context(), 1, e.deadline); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range eps {
		e.must(<-failed, "a counter")
	}
	if w[0] != uint64(eps*each) {
		e.Errorf("%d, want %d", w[0], eps*each)
	}
}

func extensionOp(e *env) {
	a, b := e.link()
	lmr, w := e.b.words(1, atomicPriv|dat.PrivRemoteWrite)
	local, got := e.a.words(1, dat.PrivAll)
	args := dat.IBArgs{Cookie: 1, Remote: lmr.RMRTriplet(0, 8), Local: []dat.LMRTriplet{local.Triplet(0, 8)}, Operand: 3}
	run := func(op dat.IBOp, want dat.Operation) {
		e.Helper()
		e.must(dat.ExtensionOp(a, op, args), "ExtensionOp(%v)", op)
		if d := e.done(e.a.request, 1, dat.StatusSuccess); d.Operation != want {
			e.Errorf("%v: %+v", op, d)
		}
	}
	run(dat.IBFetchAndAdd, dat.OpFetchAdd)
	args.Compare, args.Operand = 3, 8
	run(dat.IBCompareAndSwap, dat.OpCompareSwap)
	if got[0] != 3 || w[0] != 8 {
		e.Errorf("before %d, now %d", got[0], w[0])
	}
	got[0], args.Immediate = 77, 5
	e.must(b.PostRecv(2, 0), "PostRecv")
	run(dat.IBRDMAWriteImmed, dat.OpRDMAWriteImmediate)
	if d := e.done(e.b.recv, 2, dat.StatusSuccess); d.Immediate != 5 || w[0] != 77 {
		e.Errorf("%+v, %d", d, w[0])
	}
}

func extensionUnknown(e *env) {
	ep := e.a.ep()
	for _, op := range []dat.IBOp{4, 5, 12, 30, 0x1000} {
		e.refused(dat.ExtensionOp(ep, op, dat.IBArgs{}), "ExtensionOp of an unknown operation", dat.NotImplemented)
	}
	e.refused(dat.ExtensionOp(e.a.ia, dat.IBFetchAndAdd, dat.IBArgs{}), "ExtensionOp on an IA", dat.InvalidHandle)
	e.refused(dat.ExtensionOp(nil, dat.IBFetchAndAdd, dat.IBArgs{}), "ExtensionOp on nothing", dat.InvalidHandle)
}
