package verbstest

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"kdapl/verbs"
)

// atomicRules hold for 8-byte words in the byte order of the host, which is that of
// sync/atomic.
var atomicRules = []rule{
	{"fetch-and-add adds and returns what was there", verbs.CapAtomics, fetchAdd},
	{"fetch-and-add wraps", verbs.CapAtomics, fetchAddWraps},
	{"compare-and-swap stores if equal and returns what was there", verbs.CapAtomics, compareSwap},
	{"an atomic changes its word only", verbs.CapAtomics, atomicWordOnly},
	{"a misaligned atomic is refused", verbs.CapAtomics, atomicMisaligned},
	{"the result of an atomic is 8 bytes", verbs.CapAtomics, atomicResultSize},
	{"more atomics than ReadsOut wait their turn", verbs.CapAtomics, atomicDepth},
	{"an atomic that is not signalled happens once", verbs.CapAtomics, atomicUnsignaled},
	{"atomics of several QPs on one word do not get lost", verbs.CapAtomics, atomicShared},
	{"the owner may use the word with sync/atomic meanwhile", verbs.CapAtomics, atomicOwner},
	{"an aligned word that a peer writes may be polled with sync/atomic", 0, wordPolled},
}

// word reads the 8 bytes at an offset.
func (m *mem) word(off int) uint64 { return binary.NativeEndian.Uint64(m.buf[off:]) }

// setWord writes the 8 bytes at an offset.
func (m *mem) setWord(off int, v uint64) { binary.NativeEndian.PutUint64(m.buf[off:], v) }

// shared is the word at an aligned offset, for sync/atomic. The buffers of the suite are
// at least 16 bytes long, and so start at a multiple of 8.
func (m *mem) shared(off int) *uint64 { return (*uint64)(unsafe.Pointer(&m.buf[off])) }

// atomicTarget is a region for atomics.
func (s *side) atomicTarget() *mem { return s.mem(64, s.remoteAll()) }

// fetchAdd is a fetch-and-add.
func (e *env) fetchAdd(m *mem, off int, add uint64, sge verbs.SGE) verbs.SendWR {
	wr := e.rdma(verbs.OpFetchAdd, m, off, sge)
	wr.Swap = add
	return wr
}

// compareSwap is a compare-and-swap.
func (e *env) compareSwap(m *mem, off int, compare, swap uint64, sge verbs.SGE) verbs.SendWR {
	wr := e.rdma(verbs.OpCompareSwap, m, off, sge)
	wr.Compare, wr.Swap = compare, swap
	return wr
}

func fetchAdd(e *env) {
	a, b := e.couple()
	target, sink := e.b.atomicTarget(), e.a.sink(16)
	target.setWord(8, 40)
	want := uint64(40)
	for _, add := range []uint64{2, 0, 1 << 40, 0x0102030405060708} {
		a.post(e.fetchAdd(target, 8, add, sink.sge(8, 8)))
		a.scq.ok(1, "fetch-and-add")
		if got := sink.word(8); got != want {
			e.Errorf("fetch-and-add returned %#x, want %#x", got, want)
		}
		want += add
	}
	e.ping(a, b)
	if got := target.word(8); got != want {
		e.Errorf("the word is %#x, want %#x", got, want)
	}
}

func fetchAddWraps(e *env) {
	a, b := e.couple()
	target, sink := e.b.atomicTarget(), e.a.sink(8)
	target.setWord(0, ^uint64(0)-1)
	a.post(e.fetchAdd(target, 0, 5, sink.all()))
	a.scq.ok(1, "fetch-and-add")
	e.ping(a, b)
	if got, old := target.word(0), sink.word(0); got != 3 || old != ^uint64(0)-1 {
		e.Errorf("2^64-2 plus 5 is %#x, it was %#x", got, old)
	}
}

func compareSwap(e *env) {
	a, b := e.couple()
	target, sink := e.b.atomicTarget(), e.a.sink(8)
	const first, second, third = 0x1122334455667788, 0x99aabbccddeeff00, 7
	target.setWord(16, first)
	for _, step := range []struct{ compare, swap, old, after uint64 }{
		{second, third, first, first},
		{first, second, first, second},
		{second ^ 1<<63, third, second, second},
		{second ^ 1, third, second, second},
		{second, third, second, third},
	} {
		a.post(e.compareSwap(target, 16, step.compare, step.swap, sink.all()))
		a.scq.ok(1, "compare-and-swap")
		e.ping(a, b)
		if got, old := target.word(16), sink.word(0); got != step.after || old != step.old {
			e.Errorf("compare %#x, swap %#x: returned %#x and left %#x, want %#x and %#x",
				step.compare, step.swap, old, got, step.old, step.after)
		}
	}
}

func atomicWordOnly(e *env) {
	a, b := e.couple()
	target, sink := e.b.atomicTarget(), e.a.sink(24)
	target.fill(1)
	want := append([]byte(nil), target.buf...)
	binary.NativeEndian.PutUint64(want[24:], target.word(24)+1)
	a.post(e.fetchAdd(target, 24, 1, sink.sge(8, 8)))
	a.scq.ok(1, "fetch-and-add")
	e.ping(a, b)
	target.same(0, want, "region of an atomic")
	sink.zero(0, 8, "before the result")
	sink.zero(16, 8, "behind the result")
}

func atomicMisaligned(e *env) {
	a, b := e.couple()
	target := e.b.atomicTarget()
	for _, off := range []int{1, 2, 4, 7, 12} {
		for _, wr := range []verbs.SendWR{
			e.fetchAdd(target, off, 1, e.a.sink(8).all()),
			e.compareSwap(target, off, 0, 1, e.a.sink(8).all()),
		} {
			n, err := a.tryPost(wr)
			if n == 0 {
				e.refused(err, "a misaligned atomic", verbs.ErrInvalid)
				continue
			}
			a.failed(a.scq.one("a misaligned atomic"), "a misaligned atomic",
				verbs.StatusRemoteInvalidRequest, verbs.StatusRemoteAccess, verbs.StatusRemoteOp)
			e.broken("a misaligned atomic", a, b)
			e.renew(a, b)
		}
	}
	e.ping(a, b)
	target.zero(0, 64, "the target of misaligned atomics")
}

func atomicResultSize(e *env) {
	a, b := e.couple()
	target, sink := e.b.atomicTarget(), e.a.sink(16)
	for _, n := range []int{4, 7, 9, 16} {
		atPost := a.fails(e.fetchAdd(target, 0, 1, sink.sge(0, n)), "an atomic with a result of another size",
			[]error{verbs.ErrInvalid, verbs.ErrLength}, verbs.StatusLocalLength, verbs.StatusLocalQPOp, verbs.StatusLocalProtection)
		e.again(a, b, atPost)
	}
	target.zero(0, 64, "the target of refused atomics")
}

func atomicDepth(e *env) {
	depth := min(64, e.a.attr.MaxQPWR)
	a, _ := e.link(conf{send: depth}, conf{})
	target, sink := e.b.atomicTarget(), e.a.sink(8*depth)
	for i := range depth {
		a.post(e.fetchAdd(target, 0, 1, sink.sge(8*i, 8)))
	}
	a.scq.ok(depth, "atomics")
	for i := range depth {
		if got := sink.word(8 * i); got != uint64(i) {
			e.Fatalf("fetch-and-add %d returned %d", i, got)
		}
	}
}

func atomicUnsignaled(e *env) {
	a, b := e.couple()
	target, sink := e.b.atomicTarget(), e.a.sink(16)
	a.post(unsignaled(e.fetchAdd(target, 0, 1, sink.sge(0, 8))), e.fetchAdd(target, 0, 1, sink.sge(8, 8)))
	a.scq.ok(1, "the signalled fetch-and-add")
	e.ping(a, b)
	if got := target.word(0); got != 2 {
		e.Errorf("two additions of 1 make %d", got)
	}
}

// atomicShared adds to one word through several QPs at once; each sum must be returned once.
func atomicShared(e *env) {
	target := e.b.atomicTarget()
	const qps = 3
	depth := min(16, e.a.attr.MaxQPWR)
	rounds := max(1, e.rounds(300)/depth)
	var as []*qp
	var sinks []*mem
	for range qps {
		a, _ := e.link(conf{send: depth}, conf{})
		as, sinks = append(as, a), append(sinks, e.a.sink(8*depth))
	}
	got := make([][]uint64, qps)
	e.together(qps, func(i int) {
		for range rounds {
			for k := range depth {
				wr := e.fetchAdd(target, 0, 1, sinks[i].sge(8*k, 8))
				if n, err := as[i].tryPost(wr); n != 1 {
					e.Errorf("PostSend: %v", err)
					return
				}
			}
			if !e.within(func() bool { return as[i].scq.size() >= depth }) {
				e.Errorf("%d of %d atomics completed", as[i].scq.size(), depth)
				return
			}
			as[i].scq.ok(depth, "atomics")
			for k := range depth {
				got[i] = append(got[i], sinks[i].word(8*k))
			}
		}
	})
	seen := map[uint64]bool{}
	for i := range got {
		for k, v := range got[i] {
			if seen[v] || v >= uint64(qps*depth*rounds) {
				e.Fatalf("QP %d got the sum %d again", i, v)
			}
			if k > 0 && v <= got[i][k-1] {
				e.Fatalf("QP %d got the sum %d after %d", i, v, got[i][k-1])
			}
			seen[v] = true
		}
	}
	if n := atomic.LoadUint64(target.shared(0)); n != uint64(len(seen)) {
		e.Errorf("the word is %d after %d additions", n, len(seen))
	}
}

func atomicOwner(e *env) {
	a, _ := e.couple()
	target, sink := e.b.atomicTarget(), e.a.sink(8)
	n := e.rounds(1000)
	e.together(2, func(i int) {
		for range n {
			if i == 0 {
				atomic.AddUint64(target.shared(8), 1)
				continue
			}
			if m, err := a.tryPost(e.fetchAdd(target, 8, 1, sink.all())); m != 1 {
				e.Errorf("PostSend: %v", err)
				return
			}
			if !e.within(func() bool { return a.scq.size() > 0 }) {
				e.Error("an atomic did not complete")
				return
			}
			a.scq.now()
		}
	})
	if got := atomic.LoadUint64(target.shared(8)); got != uint64(2*n) {
		e.Errorf("%d additions of 1 make %d", 2*n, got)
	}
}

// wordPolled waits for a word that the peer writes, without any completion of its own.
func wordPolled(e *env) {
	a, b := e.couple()
	target, src := e.b.mem(64, remoteWrite), e.a.source(16)
	for i := range e.rounds(200) {
		src.setWord(8, uint64(i+1))
		a.post(e.write(target, 16, src.sge(8, 8)))
		e.eventually(func() bool {
			b.rcq.poll()
			return atomic.LoadUint64(target.shared(16)) == uint64(i+1)
		}, "word %d is there", i+1)
		a.scq.ok(1, "write of a word")
	}
}
