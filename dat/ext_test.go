package dat_test

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// The InfiniBand extension: immediate data and atomics, by their own calls and by dat_extension_op.

// words is a region of aligned 64-bit words.
func words(t testing.TB, s *side, n int, priv dat.Priv) (*dat.LMR, []uint64) {
	t.Helper()
	w := make([]uint64, n)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 8*n)
	return must[*dat.LMR](t)(s.pz.Register(mem, priv)), w
}

const atomicPriv = dat.PrivLocalRead | dat.PrivLocalWrite | dat.PrivRemoteAtomic

func TestRDMAWriteWithImmediateData(t *testing.T) {
	p := connectPair(t, 4096)
	copy(p.a.mem, "placed")
	for _, n := range []int{6, 0} {
		ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(100, 8)))
		ok(t, p.a.ep.PostRDMAWriteImmediate(2, 0, 0xFEEDF00D, p.b.lmr.RMRTriplet(200, n), p.a.lmr.Triplet(0, n)))
		ev := p.a.next(t, dat.IBDTOEvent)
		if d := ev.DTO(); d.Operation != dat.OpRDMAWriteImmediate || d.Cookie != 2 || d.Status != dat.StatusSuccess || int(d.Length) != n {
			t.Fatalf("%+v", d)
		}
		if x, is := ev.IBExtension(); !is || x.Type != dat.IBExtRDMAWriteImmed {
			t.Fatalf("%+v", x)
		}
		ev = p.b.next(t, dat.IBDTOEvent)
		if d := ev.DTO(); d.Operation != dat.OpReceiveImmediate || d.Cookie != 1 || d.Immediate != 0xFEEDF00D || int(d.Length) != n || d.EP != p.b.ep {
			t.Fatalf("%+v", d)
		}
		if x, is := ev.IBExtension(); !is || x.Type != dat.IBExtRDMAWriteImmedData || x.Immediate != 0xFEEDF00D {
			t.Fatalf("%+v", x)
		}
		if string(p.b.mem[200:206]) != "placed" || p.b.mem[100] != 0 { // the receive's own memory is not touched
			t.Fatalf("%q, %d", p.b.mem[200:206], p.b.mem[100])
		}
	}
	refused(t, p.a.ep.PostRDMAWriteImmediate(3, 0, 1, p.b.lmr.RMRTriplet(0, 5), p.a.lmr.Triplet(0, 6)), dat.LengthError, dat.NoSubtype)
	ok(t, p.b.ep.PostRecv(4, 0))
	bad := p.b.lmr.RMRTriplet(4090, 7)
	ok(t, p.a.ep.PostRDMAWriteImmediate(5, 0, 1, bad, p.a.lmr.Triplet(0, 7)))
	nextDTO(t, p.a.evd, 5, dat.StatusRemoteAccess)
	nextDTO(t, p.b.evd, 4, dat.StatusFlushed)
}

func TestRDMAWriteImmediateWaitsForAReceive(t *testing.T) {
	p := connectPair(t, 64)
	ok(t, p.a.ep.PostRDMAWriteImmediate(1, 0, 7, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
	empty(t, p.a.evd)
	ok(t, p.b.ep.PostRecv(2, 0))
	nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
	nextDTO(t, p.b.evd, 2, dat.StatusSuccess)
}

func TestFetchAndAdd(t *testing.T) {
	p := connectPair(t, 64)
	lmr, w := words(t, &p.b, 2, atomicPriv)
	w[1] = 40
	local, got := words(t, &p.a, 1, dat.PrivAll)
	ok(t, p.a.ep.PostFetchAdd(1, 0, 2, lmr.RMRTriplet(8, 8), local.Triplet(0, 8)))
	ev := p.a.next(t, dat.IBDTOEvent)
	if d := ev.DTO(); d.Operation != dat.OpFetchAdd || d.Cookie != 1 || d.Status != dat.StatusSuccess || d.Length != 8 {
		t.Fatalf("%+v", d)
	}
	if x, is := ev.IBExtension(); !is || x.Type != dat.IBExtFetchAndAdd {
		t.Fatalf("%+v", x)
	}
	if got[0] != 40 || w[1] != 42 || w[0] != 0 {
		t.Fatalf("before %d, now %v", got[0], w)
	}
	empty(t, p.b.evd) // the peer is not told
}

func TestCompareAndSwap(t *testing.T) {
	p := connectPair(t, 64)
	lmr, w := words(t, &p.b, 1, atomicPriv)
	w[0] = 5
	local, got := words(t, &p.a, 1, dat.PrivAll)
	for _, c := range []struct{ compare, swap, before, after uint64 }{{4, 9, 5, 5}, {5, 9, 5, 9}, {9, 1 << 63, 9, 1 << 63}} {
		ok(t, p.a.ep.PostCompareSwap(1, 0, c.compare, c.swap, lmr.RMRTriplet(0, 8), local.Triplet(0, 8)))
		ev := p.a.next(t, dat.IBDTOEvent)
		if d := ev.DTO(); d.Operation != dat.OpCompareSwap || d.Status != dat.StatusSuccess {
			t.Fatalf("%+v", d)
		}
		if x, is := ev.IBExtension(); !is || x.Type != dat.IBExtCompareAndSwap {
			t.Fatalf("%+v", x)
		}
		if got[0] != c.before || w[0] != c.after {
			t.Fatalf("%+v: before %d, now %d", c, got[0], w[0])
		}
	}
}

func TestAtomicsCheckTheirMemory(t *testing.T) {
	p := connectPair(t, 64)
	lmr, _ := words(t, &p.b, 4, atomicPriv)
	readOnly := must[*dat.LMR](t)(p.a.pz.Register(make([]byte, 8), dat.PrivLocalRead))
	local := p.a.lmr.Triplet(0, 8)
	post := func(remote dat.RMRTriplet, local dat.LMRTriplet) error {
		return p.a.ep.PostFetchAdd(1, 0, 1, remote, local)
	}
	refused(t, post(lmr.RMRTriplet(0, 7), local), dat.InvalidParameter, dat.InvalidArg4)
	refused(t, post(lmr.RMRTriplet(4, 8), local), dat.InvalidParameter, dat.InvalidArg4)
	refused(t, post(lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 4)), dat.InvalidParameter, dat.InvalidArg2)
	refused(t, post(lmr.RMRTriplet(0, 8), readOnly.Triplet(0, 8)), dat.PrivilegesViolation, dat.NoSubtype)
	refused(t, dat.ExtensionOp(p.a.ep, dat.IBFetchAndAdd, dat.IBArgs{Remote: lmr.RMRTriplet(0, 8)}), dat.InvalidParameter, dat.InvalidArg2)
	empty(t, p.a.evd)
	// The privilege is the peer's to check.
	ok(t, post(p.b.lmr.RMRTriplet(0, 8), local))
	nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
	plain, _ := words(t, &p.b, 1, dat.PrivAll)
	ok(t, post(plain.RMRTriplet(0, 8), local))
	nextDTO(t, p.a.evd, 1, dat.StatusRemoteAccess)
	p.a.next(t, dat.ConnectionBroken)
}

func TestAtomicsCountAsReads(t *testing.T) {
	p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) { a.MaxRDMAReadIn, a.MaxRDMAReadOut = 0, 0 }}).connect(t)
	lmr, _ := words(t, &p.b, 1, atomicPriv)
	refused(t, p.a.ep.PostFetchAdd(1, 0, 1, lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)), dat.InvalidParameter, dat.NoSubtype)
	p = newPair(t, pairConfig{attr: func(a *dat.EPAttr) { a.MaxRDMAReadIn, a.MaxRDMAReadOut = 1, 1 }}).connect(t)
	lmr, w := words(t, &p.b, 1, atomicPriv)
	for range 10 { // more than are under way at a time wait in the queue
		ok(t, p.a.ep.PostFetchAdd(1, 0, 1, lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
	}
	for range 10 {
		nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
	}
	if w[0] != 10 {
		t.Fatal(w[0])
	}
}

// Several EPs and the owner itself count at the same word.
func TestAtomicsAreAtomic(t *testing.T) {
	const eps, each = 4, 300
	p := newPair(t, pairConfig{split: true})
	lmr, w := words(t, &p.b, 1, atomicPriv)
	var wg sync.WaitGroup
	for i := range eps {
		q := *p
		request := newEVD(t, p.a.ia, dat.EVDConfig{Streams: dat.StreamDTO})
		q.a.request = request
		q.a.ep, q.b.ep = q.a.newEP(t, nil), q.b.newEP(t, nil)
		q.connect(t)
		wg.Go(func() {
			buf := make([]byte, 8)
			local, err := q.a.pz.Register(buf, dat.PrivAll)
			if err != nil {
				t.Error(err)
				return
			}
			for done := 0; done < each; {
				old := binary.NativeEndian.Uint64(buf)
				if i%2 == 0 {
					err = q.a.ep.PostFetchAdd(1, 0, 1, lmr.RMRTriplet(0, 8), local.Triplet(0, 8))
				} else {
					err = q.a.ep.PostCompareSwap(1, 0, old, old+1, lmr.RMRTriplet(0, 8), local.Triplet(0, 8))
				}
				if err != nil {
					t.Error(err)
					return
				}
				if ev, _, err := request.Wait(t.Context(), 1, patience); err != nil || ev.DTO().Status != dat.StatusSuccess {
					t.Error(ev, err)
					return
				}
				if i%2 == 0 || binary.NativeEndian.Uint64(buf) == old {
					done++
				}
			}
		})
	}
	for range each {
		atomic.AddUint64(&w[0], 1)
	}
	wg.Wait()
	if got := atomic.LoadUint64(&w[0]); got != (eps+1)*each {
		t.Fatalf("%d, want %d", got, (eps+1)*each)
	}
}

func TestExtensionOpIsTheOneCallForAll(t *testing.T) {
	p := connectPair(t, 64)
	lmr, w := words(t, &p.b, 1, atomicPriv|dat.PrivRemoteWrite)
	local, got := words(t, &p.a, 1, dat.PrivAll)
	args := dat.IBArgs{Cookie: 1, Remote: lmr.RMRTriplet(0, 8), Local: []dat.LMRTriplet{local.Triplet(0, 8)}}
	run := func(op dat.IBOp, want dat.Operation) {
		t.Helper()
		ok(t, dat.ExtensionOp(p.a.ep, op, args))
		if d := nextDTO(t, p.a.evd, 1, dat.StatusSuccess); d.Operation != want {
			t.Fatalf("%+v", d)
		}
	}
	args.Operand = 3
	run(dat.IBFetchAndAdd, dat.OpFetchAdd)
	args.Compare, args.Operand = 3, 8
	run(dat.IBCompareAndSwap, dat.OpCompareSwap)
	if got[0] != 3 || w[0] != 8 {
		t.Fatal(got, w)
	}
	got[0], args.Immediate = 77, 5
	ok(t, p.b.ep.PostRecv(2, 0))
	run(dat.IBRDMAWriteImmed, dat.OpRDMAWriteImmediate)
	if d := nextDTO(t, p.b.evd, 2, dat.StatusSuccess); d.Immediate != 5 || w[0] != 77 {
		t.Fatal(d, w)
	}
	args.Flags = dat.CompletionSuppress
	ok(t, dat.ExtensionOp(p.a.ep, dat.IBFetchAndAdd, args))
	empty(t, p.a.evd)

	for op := dat.IBOp(0); op < 40; op++ {
		switch op {
		case dat.IBFetchAndAdd, dat.IBCompareAndSwap, dat.IBRDMAWriteImmed, dat.IBUDSend, dat.IBUDAHFree:
		default:
			refused(t, dat.ExtensionOp(p.a.ep, op, args), dat.NotImplemented, dat.NoSubtype)
		}
	}
	refused(t, dat.ExtensionOp(p.a.ep, dat.IBUDSend, args), dat.InvalidParameter, dat.InvalidArg1) // not of ServiceUD
	for _, h := range []dat.Object{nil, p.a.ia, p.a.evd, (*dat.EP)(nil)} {
		refused(t, dat.ExtensionOp(h, dat.IBFetchAndAdd, args), dat.InvalidHandle, dat.InvalidHandleEP)
	}
	ok(t, p.a.ep.Free())
	refused(t, dat.ExtensionOp(p.a.ep, dat.IBFetchAndAdd, args), dat.InvalidHandle, dat.InvalidHandleEP)
}

func TestExtensionsThatTheAdapterLacks(t *testing.T) {
	p := newPair(t, pairConfig{loop: loop.Config{Adjust: func(a *verbs.Attr) {
		a.Caps &^= verbs.CapAtomics | verbs.CapWriteImm | verbs.CapSendInval
	}}}).connect(t)
	remote, local := p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)
	refused(t, p.a.ep.PostFetchAdd(1, 0, 1, remote, local), dat.ModelNotSupported, dat.NoSubtype)
	refused(t, p.a.ep.PostCompareSwap(1, 0, 1, 2, remote, local), dat.ModelNotSupported, dat.NoSubtype)
	refused(t, p.a.ep.PostRDMAWriteImmediate(1, 0, 1, remote, local), dat.ModelNotSupported, dat.NoSubtype)
	refused(t, p.a.ep.PostSendWithInvalidate(1, 0, true, 1, local), dat.ModelNotSupported, dat.NoSubtype)
	_, err := p.a.pz.Register(make([]byte, 8), dat.PrivRemoteAtomic)
	refused(t, err, dat.ModelNotSupported, dat.NoSubtype)
	ok(t, p.b.ep.PostRecv(2, 0))
	ok(t, p.a.ep.PostSendWithInvalidate(3, 0, false, 1)) // a plain send
	nextDTO(t, p.b.evd, 2, dat.StatusSuccess)
	empty(t, p.a.ia.AsyncEVD())
}

func TestNamesOfExtensionOperations(t *testing.T) {
	for op, want := range map[dat.IBOp]string{
		dat.IBFetchAndAdd: "FETCH_AND_ADD", dat.IBCompareAndSwap: "CMP_AND_SWAP", dat.IBRDMAWriteImmed: "RDMA_WRITE_IMMED",
		dat.IBUDSend: "UD_SEND", dat.IBUDAHFree: "UD_AH_FREE", 4: "IBOp(0x4)",
	} {
		if op.String() != want {
			t.Errorf("%d is %q, want %q", uint32(op), op.String(), want)
		}
	}
	for typ, want := range map[dat.IBExtType]string{
		dat.IBExtFetchAndAdd: "FETCH_AND_ADD", dat.IBExtRecvImmedData: "RECV_IMMED_DATA", dat.IBExtUDConnectError: "UD_CONNECT_ERROR",
	} {
		if b, err := typ.MarshalText(); err != nil || string(b) != want {
			t.Errorf("%d is %q, want %q", typ, b, want)
		}
	}
	if dat.IBExtUDConnectError != 11 || dat.IBExtUDRemoteAH != 6 || dat.IBExtCollectiveErr != 2 {
		t.Error("numbers of the extension's types")
	}
	if b, err := dat.IBExtOpErr.MarshalText(); err != nil || string(b) != "OP_ERR" {
		t.Errorf("%q", b)
	}
}
