package verbstest

import (
	"fmt"

	"kdapl/verbs"
)

var rdmaRules = []rule{
	{"writes of every size arrive", 0, writeSizes},
	{"reads of every size arrive", 0, readSizes},
	{"a write gathers its segments", 0, writeGathers},
	{"a read scatters over its segments", 0, readScatters},
	{"writes and reads use up no receive and tell the peer nothing", 0, rdmaSilent},
	{"a read behind a write sees it", 0, readAfterWrite},
	{"more reads than ReadsOut wait their turn", 0, readDepth},
	{"reads at a depth of 1 take turns", 0, readDepthOne},
	{"reads go both ways at once", 0, readsBothWays},
	{"reads that are not signalled complete silently", 0, readUnsignaled},
	{"a QP may read and write any region of the peer's PD", 0, rdmaAnyRegion},
	{"a write and a read work on part of a region", 0, rdmaParts},
}

func writeSizes(e *env) {
	a, b := e.couple()
	for _, n := range e.sizes() {
		src, dst := e.a.source(n), e.b.mem(n, remoteWrite)
		a.post(e.write(dst, 0, src.all()))
		if c := a.scq.ok(1, fmt.Sprintf("write of %d bytes", n))[0]; int(c.Length) != n {
			e.Errorf("a write of %d bytes: %v", n, c)
		}
		e.ping(a, b)
		dst.same(0, src.buf, fmt.Sprintf("write of %d bytes", n))
		src.free()
		dst.free()
	}
}

func readSizes(e *env) {
	a, _ := e.couple()
	for _, n := range e.sizes() {
		dst, target := e.a.sink(n), e.b.mem(n, remoteRead)
		target.fill(e.id())
		a.post(e.read(target, 0, dst.all()))
		if c := a.scq.ok(1, fmt.Sprintf("read of %d bytes", n))[0]; int(c.Length) != n {
			e.Errorf("a read of %d bytes: %v", n, c)
		}
		dst.same(0, target.buf, fmt.Sprintf("read of %d bytes", n))
		target.free()
		dst.free()
	}
}

func writeGathers(e *env) {
	a, b := e.link(conf{sendSGE: e.a.attr.MaxSendSGE}, conf{})
	for k := 1; k <= e.a.attr.MaxSendSGE; k++ {
		src, dst := e.a.source(777), e.b.mem(800, remoteWrite)
		a.post(e.write(dst, 11, src.cuts(k, 777)...))
		a.scq.ok(1, "write")
		e.ping(a, b)
		dst.zero(0, 11, "before the target")
		dst.same(11, src.buf, fmt.Sprintf("write of %d segments", k))
		dst.zero(788, 12, "behind the target")
	}
}

func readScatters(e *env) {
	most := min(e.a.attr.MaxReadSGE, e.a.attr.MaxSendSGE)
	a, _ := e.link(conf{sendSGE: most}, conf{})
	for k := 1; k <= most; k++ {
		dst, target := e.a.sink(800), e.b.mem(800, remoteRead)
		target.fill(e.id())
		a.post(e.read(target, 5, dst.cuts(k, 777)...))
		a.scq.ok(1, "read")
		dst.same(0, target.buf[5:782], fmt.Sprintf("read of %d segments", k))
		dst.zero(777, 23, "behind the sink")
	}
}

func rdmaSilent(e *env) {
	a, b := e.couple()
	target := e.b.mem(64, remoteBoth)
	dst := e.b.mem(64, localWrite)
	b.recv(e.recv(dst.all()))
	a.post(e.write(target, 0, e.a.source(8).all()), e.read(target, 0, e.a.sink(8).all()))
	a.scq.ok(2, "write and read")
	b.rcq.none("a peer's write and read")
	b.scq.none("a peer's write and read")
	a.post(e.send(e.a.source(8).all()))
	b.rcq.ok(1, "the receive is still there")
	a.scq.ok(1, "send")
}

func readAfterWrite(e *env) {
	a, _ := e.couple()
	target := e.b.mem(4096, remoteBoth)
	for range e.rounds(100) {
		src, dst := e.a.source(4096), e.a.sink(4096)
		a.post(unsignaled(e.write(target, 0, src.all())), e.read(target, 0, dst.all()))
		a.scq.ok(1, "read")
		dst.same(0, src.buf, "a read behind a write")
		src.free()
		dst.free()
	}
}

// readDepth posts more reads at once than may be under way; the excess waits in the queue.
func readDepth(e *env) {
	depth := min(64, e.a.attr.MaxQPWR)
	a, _ := e.link(conf{send: depth}, conf{})
	target, dst := e.b.mem(depth*16, remoteRead), e.a.sink(depth*16)
	target.fill(1)
	var wrs []verbs.SendWR
	for i := range depth {
		wrs = append(wrs, e.read(target, 16*i, dst.sge(16*i, 16)))
	}
	a.post(wrs...)
	for i, c := range a.scq.ok(depth, "more reads than ReadsOut") {
		if c.ID != wrs[i].ID {
			e.Fatalf("read %d completed as %v", i, c)
		}
	}
	dst.same(0, target.buf, "many reads")
}

func readDepthOne(e *env) {
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	l := e.b.listen()
	p := verbs.ConnParams{Remote: l.v.Addr(), ReadsIn: 1, ReadsOut: 1}
	ae, be := e.connectAt(l, a, b, p, p)
	if ae.ReadsOut != 1 || be.ReadsIn < 1 {
		e.Errorf("asked for a depth of 1, got %d out and %d in", ae.ReadsOut, be.ReadsIn)
	}
	n := min(16, e.a.depth(), e.b.depth())
	for _, q := range []*qp{a, b} {
		target, dst := q.s.peer().mem(n*8, remoteRead), q.s.sink(n*8)
		target.fill(2)
		for i := range n {
			q.post(e.read(target, 8*i, dst.sge(8*i, 8)))
		}
		q.scq.ok(n, "reads at a depth of 1")
		dst.same(0, target.buf, "reads at a depth of 1")
	}
}

func readsBothWays(e *env) {
	a, b := e.couple()
	const size = 20000
	n := min(20, e.a.depth(), e.b.depth())
	for range e.rounds(10) {
		for _, q := range []*qp{a, b} {
			target, dst := q.s.peer().mem(size, remoteRead), q.s.sink(size)
			target.fill(e.id())
			for range n {
				q.post(e.read(target, 0, dst.all()))
			}
		}
		a.scq.ok(n, "reads both ways")
		b.scq.ok(n, "reads both ways")
	}
}

func readUnsignaled(e *env) {
	a, _ := e.couple()
	target, dst := e.b.mem(64, remoteRead), e.a.sink(64)
	target.fill(1)
	last := e.read(target, 32, dst.sge(32, 32))
	a.post(unsignaled(e.read(target, 0, dst.sge(0, 16))), unsignaled(e.read(target, 16, dst.sge(16, 16))), last)
	if c := a.scq.ok(1, "the signalled read")[0]; c.ID != last.ID {
		e.Errorf("the completion is %v, want that of the last read", c)
	}
	dst.same(0, target.buf, "reads of which the last is signalled")
	a.scq.none("reads that are not signalled")
}

func rdmaAnyRegion(e *env) {
	a, b := e.couple()
	a2, b2 := e.couple()
	for range 5 {
		target := e.b.mem(32, remoteBoth)
		src, dst := e.a.source(32), e.a.sink(32)
		a.post(e.write(target, 0, src.all()))
		a.scq.ok(1, "write")
		e.ping(a, b)
		a2.post(e.read(target, 0, dst.all()))
		a2.scq.ok(1, "read through another QP")
		dst.same(0, src.buf, "what another QP wrote")
	}
	e.ping(a2, b2)
}

func rdmaParts(e *env) {
	a, b := e.couple()
	target, src := e.b.mem(100, remoteBoth), e.a.source(100)
	a.post(e.write(target, 50, src.sge(0, 25)), e.write(target, 10, src.sge(60, 40)))
	a.scq.ok(2, "writes")
	e.ping(a, b)
	target.zero(0, 10, "before the targets")
	target.same(10, src.buf[60:100], "second target")
	target.same(50, src.buf[:25], "first target")
	target.zero(75, 25, "behind the targets")
	dst := e.a.sink(100)
	a.post(e.read(target, 30, dst.sge(7, 40)))
	a.scq.ok(1, "read")
	dst.zero(0, 7, "before the sink")
	dst.same(7, target.buf[30:70], "the sink")
	dst.zero(47, 53, "behind the sink")
}
