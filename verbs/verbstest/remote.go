package verbstest

import (
	"fmt"

	"kdapl/verbs"
)

var remoteRules = []rule{
	{"an RDMA operation may touch both ends of a region", 0, remoteEnds},
	{"an RDMA operation of length 0 needs no valid key", 0, remoteZeroLength},
	{"a remote key that is unknown is refused", 0, remoteUnknownKey},
	{"remote key 0 names nothing", 0, remoteKeyZero},
	{"a remote key dies with its region", 0, remoteStaleKey},
	{"a new region does not revive an old remote key", 0, remoteOldKey},
	{"a remote key of another PD is refused", 0, remoteForeignPD},
	{"a remote key of another context is refused", 0, remoteForeignContext},
	{"a remote range outside the region is refused", 0, remoteBounds},
	{"a remote range that wraps around the address space is refused", 0, remoteWrap},
	{"a write needs remote write", 0, writeNeedsRight},
	{"a write with immediate needs remote write", verbs.CapWriteImm, writeImmNeedsRight},
	{"a read needs remote read", 0, readNeedsRight},
	{"an atomic needs remote atomic", verbs.CapAtomics, atomicNeedsRight},
	{"a zero-based region is addressed from 0 by a peer", verbs.CapZeroBased, zeroBasedRemote},
	{"a remote fault leaves other connections alone", 0, remoteFaultIsLocal},
	{"what precedes a remote fault succeeds and what follows is flushed", 0, remoteFaultInList},
}

// remoteOps are the operations on a peer's region that the devices have.
func (e *env) remoteOps() []verbs.Opcode {
	ops := []verbs.Opcode{verbs.OpRDMAWrite, verbs.OpRDMARead}
	if e.can(verbs.CapAtomics) {
		ops = append(ops, verbs.OpFetchAdd, verbs.OpCompareSwap)
	}
	if e.can(verbs.CapWriteImm) {
		ops = append(ops, verbs.OpRDMAWriteImm)
	}
	return ops
}

// answered is whether the initiator learns from the completion what the peer said.
func (s *side) answered(op verbs.Opcode) bool {
	switch op {
	case verbs.OpRDMARead, verbs.OpRDMAReadInval, verbs.OpFetchAdd, verbs.OpCompareSwap:
		return true
	}
	return s.acked()
}

// remoteAll are all remote rights that the side has.
func (s *side) remoteAll() verbs.Access {
	if s.attr.Can(verbs.CapAtomics) {
		return remoteBoth | verbs.AccessRemoteAtomic
	}
	return remoteBoth
}

// denied posts an operation that the peer must refuse, checks the completion and the end of the
// connection on both sides, and connects again.
func (e *env) denied(a, b *qp, wr verbs.SendWR, what string) {
	e.Helper()
	what = fmt.Sprintf("%v: %s", wr.Op, what)
	if wr.Op == verbs.OpRDMAWriteImm {
		b.recv(e.recv())
	}
	a.post(wr)
	c := a.scq.one(what)
	if a.s.answered(wr.Op) {
		a.failed(c, what, verbs.StatusRemoteAccess)
	} else {
		a.failed(c, what, verbs.StatusSuccess, verbs.StatusFlushed)
	}
	e.broken(what, a, b)
	for _, q := range []*qp{a, b} {
		q.scq.untilMark(q, false, what)
		q.rcq.untilMark(q, true, what)
	}
	e.renew(a, b)
}

// deniedAll tries an operation of each kind with a fault that change makes.
func (e *env) deniedAll(what string, change func(*verbs.SendWR)) {
	e.Helper()
	a, b := e.couple()
	target := e.b.mem(64, e.b.remoteAll())
	target.fill(9)
	before := append([]byte(nil), target.buf...)
	for _, op := range e.remoteOps() {
		sink := e.a.sink(8)
		sink.fill(5)
		kept := append([]byte(nil), sink.buf...)
		wr := e.rdma(op, target, 0, sink.all())
		wr.Swap = 1
		change(&wr)
		e.denied(a, b, wr, what)
		target.same(0, before, op.String()+" that was refused")
		sink.same(0, kept, op.String()+" that was refused, local side")
	}
	e.ping(a, b)
}

func remoteEnds(e *env) {
	a, b := e.couple()
	src, dst := e.a.source(64), e.b.mem(64, remoteBoth)
	a.post(e.write(dst, 0, src.sge(0, 1)), e.write(dst, 63, src.sge(63, 1)), e.write(dst, 1, src.sge(1, 62)))
	a.scq.ok(3, "writes to both ends")
	sink := e.a.sink(64)
	a.post(e.read(dst, 63, sink.sge(63, 1)), e.read(dst, 0, sink.sge(0, 63)))
	a.scq.ok(2, "reads of both ends")
	sink.same(0, src.buf, "what was written and read back")
	a.post(e.write(dst, 0, src.all()), e.read(dst, 0, sink.all()))
	a.scq.ok(2, "write and read of a whole region")
	e.ping(b, a)
	dst.same(0, src.buf, "write of a whole region")
}

// remoteZeroLength: IBTA and RFC 5040 agree that nothing is checked for no bytes.
func remoteZeroLength(e *env) {
	a, b := e.couple()
	dst := e.b.mem(64, remoteBoth)
	for _, op := range []verbs.Opcode{verbs.OpRDMAWrite, verbs.OpRDMARead} {
		for _, off := range []int{0, 64} {
			a.post(e.rdma(op, dst, off))
			if c := a.scq.ok(1, "no bytes at the end of a region")[0]; c.Length != 0 {
				e.Errorf("%v of nothing transferred %d bytes", op, c.Length)
			}
		}
		wr := e.rdma(op, dst, 0)
		wr.RemoteKey, wr.RemoteAddr = 0, ^uint64(0)
		a.post(wr)
		a.scq.ok(1, "no bytes under no key")
	}
	e.ping(a, b)
}

func remoteUnknownKey(e *env) {
	for _, flip := range []uint32{1, 1 << 8, 1 << 31} {
		e.deniedAll(fmt.Sprintf("a key with bits %#x changed", flip), func(wr *verbs.SendWR) { wr.RemoteKey ^= flip })
	}
}

func remoteKeyZero(e *env) {
	e.deniedAll("key 0", func(wr *verbs.SendWR) { wr.RemoteKey = 0 })
	e.deniedAll("key 0, address 0", func(wr *verbs.SendWR) { wr.RemoteKey, wr.RemoteAddr = 0, 0 })
}

func remoteStaleKey(e *env) {
	e.deniedAll("the key of a deregistered region", func(wr *verbs.SendWR) {
		gone := e.b.mem(64, e.b.remoteAll())
		wr.RemoteKey, wr.RemoteAddr = gone.mr.RKey(), gone.at(0)
		gone.free()
	})
}

func remoteOldKey(e *env) {
	e.deniedAll("an old key with the addresses of a new region", func(wr *verbs.SendWR) {
		gone := e.b.mem(64, e.b.remoteAll())
		wr.RemoteKey = gone.mr.RKey()
		gone.free()
		wr.RemoteAddr = e.b.mem(64, e.b.remoteAll()).at(0)
	})
}

func remoteForeignPD(e *env) {
	pd, err := e.b.ctx.AllocPD()
	e.must(err, "AllocPD")
	foreign := e.b.memIn(pd, 64, e.b.remoteAll())
	e.deniedAll("a region of another PD", func(wr *verbs.SendWR) {
		wr.RemoteKey, wr.RemoteAddr = foreign.mr.RKey(), foreign.at(0)
	})
	foreign.zero(0, 64, "a region of another PD")
}

func remoteForeignContext(e *env) {
	foreign := e.open("spare", e.pair.Passive).mem(64, e.b.remoteAll())
	e.deniedAll("a region of another context", func(wr *verbs.SendWR) {
		wr.RemoteKey, wr.RemoteAddr = foreign.mr.RKey(), foreign.at(0)
	})
	foreign.zero(0, 64, "a region of another context")
}

func remoteBounds(e *env) {
	for _, off := range []int{-8, 64, 72, 1 << 20, -1 << 20} {
		e.deniedAll(fmt.Sprintf("8 bytes at offset %d of 64", off), func(wr *verbs.SendWR) { wr.RemoteAddr += uint64(off) })
	}
	// The rest is no address for an atomic.
	a, b := e.couple()
	target := e.b.mem(64, remoteBoth)
	sink := e.a.sink(128)
	for _, r := range []struct{ off, n int }{{-1, 1}, {-1, 8}, {57, 8}, {63, 2}, {0, 65}, {-1, 66}} {
		for _, op := range []verbs.Opcode{verbs.OpRDMAWrite, verbs.OpRDMARead} {
			e.denied(a, b, e.rdma(op, target, r.off, sink.sge(0, r.n)), fmt.Sprintf("%d bytes at offset %d of 64", r.n, r.off))
		}
	}
	target.zero(0, 64, "the region that was missed")
}

func remoteWrap(e *env) {
	e.deniedAll("the last 8 bytes of the address space", func(wr *verbs.SendWR) { wr.RemoteAddr = ^uint64(7) })
	a, b := e.couple()
	buf := make([]byte, 64)
	mr, err := e.b.pd.RegMR(buf, 0, remoteBoth)
	e.must(err, "RegMR at address 0")
	target := &mem{e: e, s: e.b, buf: buf, mr: mr}
	src := e.a.source(16)
	e.denied(a, b, e.write(target, -8, src.all()), "16 bytes across the end of the address space")
	e.denied(a, b, e.read(target, -8, e.a.sink(16).all()), "16 bytes across the end of the address space")
	target.zero(0, 64, "the region at the start of the address space")
}

// needsRight tries an operation on regions with all rights but its own.
func (e *env) needsRight(right verbs.Access, ops ...verbs.Opcode) {
	e.Helper()
	a, b := e.couple()
	for _, access := range []verbs.Access{e.b.remoteAll() &^ right, remoteBoth &^ right, localWrite} {
		target := e.b.mem(64, access)
		for _, op := range ops {
			src := e.a.sink(8)
			wr := e.rdma(op, target, 0, src.all())
			wr.Swap = 1
			e.denied(a, b, wr, fmt.Sprintf("a region with %v", access))
		}
		target.zero(0, 64, "a region without the right")
	}
}

func writeNeedsRight(e *env) { e.needsRight(verbs.AccessRemoteWrite, verbs.OpRDMAWrite) }

func writeImmNeedsRight(e *env) { e.needsRight(verbs.AccessRemoteWrite, verbs.OpRDMAWriteImm) }

func readNeedsRight(e *env) { e.needsRight(verbs.AccessRemoteRead, verbs.OpRDMARead) }

func atomicNeedsRight(e *env) {
	e.needsRight(verbs.AccessRemoteAtomic, verbs.OpFetchAdd, verbs.OpCompareSwap)
}

func zeroBasedRemote(e *env) {
	a, b := e.couple()
	src := e.a.source(64)
	dst := e.b.mem(64, remoteBoth|verbs.AccessZeroBased)
	a.post(e.write(dst, 0, src.all()))
	a.scq.ok(1, "write to offset 0")
	sink := e.a.sink(64)
	a.post(e.read(dst, 0, sink.all()))
	a.scq.ok(1, "read of offset 0")
	sink.same(0, src.buf, "zero-based region")
	e.denied(a, b, e.write(dst, 60, src.sge(0, 8)), "behind a zero-based region")
	e.denied(a, b, e.write(dst, -8, src.sge(0, 8)), "before a zero-based region")
}

func remoteFaultIsLocal(e *env) {
	a1, b1 := e.couple()
	a2, b2 := e.couple()
	target := e.b.mem(64, remoteBoth)
	wr := e.write(target, 64, e.a.source(8).all())
	e.denied(a1, b1, wr, "behind the region")
	e.ping(a2, b2)
	e.ping(b2, a2)
	if n := a2.conn.count() + b2.conn.count(); n != 2 {
		e.Errorf("another connection saw %d events, want the two of its set-up", n)
	}
}

func remoteFaultInList(e *env) {
	a, b := e.couple()
	target := e.b.mem(64, remoteBoth)
	src, sink := e.a.source(8), e.a.sink(16)
	bad := e.read(target, 60, sink.sge(8, 8))
	behind := e.write(target, 32, src.all())
	a.post(
		e.write(target, 0, src.all()),
		unsignaled(e.write(target, 8, src.all())),
		e.read(target, 0, sink.sge(0, 8)),
		bad,
		behind,
		unsignaled(e.read(target, 0, sink.sge(8, 8))),
	)
	a.scq.ok(2, "requests before the fault")
	a.failed(a.scq.one("the fault"), "read behind the region", verbs.StatusRemoteAccess)
	rest := a.scq.untilMark(a, false, "requests behind the fault")
	if len(rest) != 2 {
		e.Fatalf("%d completions behind the fault, want 2: %v", len(rest), rest)
	}
	e.broken("a fault in a list", a, b)
	sink.same(0, src.buf, "read before the fault")
	sink.zero(8, 8, "read behind the fault")
	target.same(0, src.buf, "write before the fault")
	target.same(8, src.buf, "unsignalled write before the fault")
}
