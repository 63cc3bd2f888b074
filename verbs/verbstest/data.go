package verbstest

import (
	"fmt"

	"kdapl/verbs"
)

var dataRules = []rule{
	{"messages of every size arrive", 0, dataSizes},
	{"a message is gathered and scattered over any segments", 0, dataSegments},
	{"a message may be shorter than its receive", 0, dataShort},
	{"a message of no bytes uses up a receive", 0, dataEmpty},
	{"messages go both ways at once", 0, dataBothWays},
	{"both sides full in both directions go on", 0, dataBothFull},
	{"a send with immediate brings it", verbs.CapSendImm, dataSendImm},
	{"a write with immediate uses up a receive and leaves its buffer", verbs.CapWriteImm, dataWriteImm},
	{"a write with immediate of no bytes brings it", verbs.CapWriteImm, dataWriteImmEmpty},
	{"a receive is solicited if the send said so", verbs.CapSolicited, dataSolicited},
	{"a write with immediate is solicited if it said so", verbs.CapSolicited | verbs.CapWriteImm, dataWriteImmSolicited},
	{"a list of all operations runs in order", 0, dataAllOps},
	{"a QP sends to a QP of its own context", 0, dataOwnContext},
	{"the source of a send is not changed", 0, dataSourceKept},
}

// sizes are message lengths around the borders that matter to devices.
func (e *env) sizes() []int {
	sizes := []int{1, 2, 3, 7, 8, 64, 65, 1023, 1460, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20}
	var out []int
	for _, n := range sizes {
		if uint64(n) <= uint64(min(e.a.attr.MaxMessage, e.b.attr.MaxMessage)) {
			out = append(out, n)
		}
	}
	return out
}

func dataSizes(e *env) {
	a, b := e.couple()
	for _, n := range e.sizes() {
		src, dst := e.a.source(n), e.b.mem(n, localWrite)
		b.recv(e.recv(dst.all()))
		a.post(e.send(src.all()))
		if c := b.rcq.ok(1, fmt.Sprintf("message of %d bytes", n))[0]; int(c.Length) != n {
			e.Errorf("a message of %d bytes: %v", n, c)
		}
		a.scq.ok(1, fmt.Sprintf("message of %d bytes", n))
		dst.same(0, src.buf, fmt.Sprintf("message of %d bytes", n))
		src.free()
		dst.free()
	}
}

// cuts divides n bytes into k segments of uneven length, in an order that is not theirs.
func (m *mem) cuts(k, n int) (sges []verbs.SGE) {
	for i, at := 0, 0; i < k; i++ {
		size := n / k
		if i%2 == 1 {
			size = max(1, size-1)
		}
		if i == k-1 {
			size = n - at
		}
		sges = append(sges, m.sge(at, size))
		at += size
	}
	return sges
}

func dataSegments(e *env) {
	a, b := e.link(conf{sendSGE: e.a.attr.MaxSendSGE}, conf{recvSGE: e.b.attr.MaxRecvSGE})
	const n = 1000
	for _, from := range []int{1, 2, e.a.attr.MaxSendSGE} {
		for _, to := range []int{1, 3, e.b.attr.MaxRecvSGE} {
			from, to := min(from, e.a.attr.MaxSendSGE), min(to, e.b.attr.MaxRecvSGE)
			src, dst := e.a.source(n), e.b.mem(n+16, localWrite)
			b.recv(e.recv(dst.cuts(to, n)...))
			a.post(e.send(src.cuts(from, n)...))
			b.rcq.ok(1, "receive")
			a.scq.ok(1, "send")
			dst.same(0, src.buf, fmt.Sprintf("message of %d segments in %d", from, to))
			dst.zero(n, 16, "what is behind the message")
		}
	}
	// Segments in another order than in memory.
	if e.a.attr.MaxSendSGE >= 2 && e.b.attr.MaxRecvSGE >= 2 {
		src, dst := e.a.source(30), e.b.mem(30, localWrite)
		b.recv(e.recv(dst.sge(20, 10), dst.sge(0, 20)))
		a.post(e.send(src.sge(15, 15), src.sge(0, 15)))
		b.rcq.ok(1, "receive")
		a.scq.ok(1, "send")
		sent := append(append([]byte(nil), src.buf[15:]...), src.buf[:15]...)
		dst.same(20, sent[:10], "first segment")
		dst.same(0, sent[10:], "second segment")
	}
}

func dataShort(e *env) {
	a, b := e.couple()
	src, dst := e.a.source(10), e.b.mem(64, localWrite)
	wr := e.recv(dst.sge(0, 4), dst.sge(8, 16), dst.sge(32, 8))
	if e.b.attr.MaxRecvSGE < 3 {
		wr = e.recv(dst.all())
	}
	b.recv(wr)
	a.post(e.send(src.all()))
	if c := b.rcq.ok(1, "receive")[0]; c.Length != 10 {
		e.Errorf("a message of 10 bytes: %v", c)
	}
	a.scq.ok(1, "send")
	if wr.NumSGE == 3 {
		dst.same(0, src.buf[:4], "first segment")
		dst.zero(4, 4, "between the segments")
		dst.same(8, src.buf[4:], "second segment")
		dst.zero(14, 50, "behind the message")
	}
}

func dataEmpty(e *env) {
	a, b := e.couple()
	dst := e.b.mem(64, localWrite)
	empty := e.a.source(8)
	b.recv(e.recv(), e.recv(dst.all()), e.recv(dst.all()))
	a.post(e.send(), e.send(), e.send(empty.sge(0, 0)))
	for _, c := range b.rcq.ok(3, "messages of no bytes") {
		if c.Length != 0 {
			e.Errorf("a message of no bytes: %v", c)
		}
	}
	a.scq.ok(3, "messages of no bytes")
	dst.zero(0, 64, "receives of no bytes")
}

func dataBothWays(e *env) {
	a, b := e.couple()
	const n = 256
	rounds := e.rounds(200)
	type end struct {
		q        *qp
		src, dst *mem
		sent     int
		got      int
	}
	ends := []*end{{q: a, src: e.a.source(n), dst: e.a.mem(n, localWrite)}, {q: b, src: e.b.source(n), dst: e.b.mem(n, localWrite)}}
	for _, x := range ends {
		for range 4 {
			x.q.recv(e.recv(x.dst.all()))
		}
	}
	for ends[0].got < rounds || ends[1].got < rounds {
		for i, x := range ends {
			peer := ends[1-i]
			if x.sent < rounds && x.sent < peer.got+3 {
				x.q.post(unsignaled(e.send(x.src.all())))
				x.sent++
			}
		}
		for i, x := range ends {
			if x.got < ends[1-i].sent {
				x.q.rcq.ok(1, "receive")
				x.got++
				x.q.recv(e.recv(x.dst.all()))
			}
			x.q.scq.poll()
		}
	}
	ends[0].dst.same(0, ends[1].src.buf, "the last message")
	ends[1].dst.same(0, ends[0].src.buf, "the last message")
}

// dataBothFull posts more in both directions than any buffer between the two ends holds,
// before either side looks at what has come.
func dataBothFull(e *env) {
	n := int(min(e.a.attr.MaxMessage, e.b.attr.MaxMessage, 4<<20))
	k := min(8, e.a.depth(), e.b.depth())
	a, b := e.couple()
	src := map[*qp]*mem{a: e.a.source(n), b: e.b.source(n)}
	dst := map[*qp]*mem{a: e.a.mem(n, localWrite), b: e.b.mem(n, localWrite)}
	receives := func() {
		for _, q := range []*qp{a, b} {
			for range k {
				q.recv(e.recv(dst[q].all()))
			}
		}
	}
	// Where a send waits for a receive, the queues fill up before there is any.
	if !e.a.stalls() {
		receives()
	}
	for range k {
		a.post(e.send(src[a].all()))
		b.post(e.send(src[b].all()))
	}
	if e.a.stalls() {
		receives()
	}
	for _, q := range []*qp{a, b} {
		q.rcq.ok(k, "messages of both sides")
		q.scq.ok(k, "sends of both sides")
	}
	dst[a].same(0, src[b].buf, "the last message")
	dst[b].same(0, src[a].buf, "the last message")
}

func dataSendImm(e *env) {
	a, b := e.couple()
	src, dst := e.a.source(16), e.b.mem(16, localWrite)
	for _, imm := range []uint32{0, 1, 0x01020304, ^uint32(0)} {
		b.recv(e.recv(dst.all()))
		wr := e.send(src.all())
		wr.Op, wr.Imm = verbs.OpSendImm, imm
		a.post(wr)
		c := b.rcq.ok(1, "send with immediate")[0]
		if c.Flags&verbs.CompletionImm == 0 || c.Imm != imm || c.Op != verbs.OpRecv || c.Length != 16 {
			e.Errorf("receive of a send with immediate %#x: %v, immediate %#x", imm, c, c.Imm)
		}
		a.scq.ok(1, "send with immediate")
		dst.same(0, src.buf, "send with immediate")
	}
	b.recv(e.recv())
	a.post(e.send())
	if c := b.rcq.ok(1, "receive")[0]; c.Flags&verbs.CompletionImm != 0 {
		e.Errorf("receive of a send without immediate: %v", c)
	}
	a.scq.ok(1, "send")
}

// writeImm is a write with immediate.
func (e *env) writeImm(imm uint32, m *mem, off int, sges ...verbs.SGE) verbs.SendWR {
	wr := e.rdma(verbs.OpRDMAWriteImm, m, off, sges...)
	wr.Imm = imm
	return wr
}

func dataWriteImm(e *env) {
	a, b := e.couple()
	src, target, dst := e.a.source(40), e.b.mem(64, remoteWrite), e.b.mem(64, localWrite)
	for _, imm := range []uint32{0, 0x01020304, ^uint32(0)} {
		target.clear()
		b.recv(e.recv(dst.all()))
		a.post(e.writeImm(imm, target, 8, src.all()))
		c := b.rcq.ok(1, "write with immediate")[0]
		if c.Flags&verbs.CompletionImm == 0 || c.Imm != imm || c.Op != verbs.OpRecvRDMAImm || c.Length != 40 {
			e.Errorf("receive of a write with immediate %#x: %v, immediate %#x", imm, c, c.Imm)
		}
		target.same(8, src.buf, "write with immediate")
		a.scq.ok(1, "write with immediate")
	}
	dst.zero(0, 64, "the buffer of a receive that a write used up")
	// A receive without a buffer, or with one that is too small, will do.
	b.recv(e.recv(), e.recv(dst.sge(0, 1)))
	a.post(e.writeImm(1, target, 0, src.all()), e.writeImm(2, target, 0, src.all()))
	for i, c := range b.rcq.ok(2, "writes with immediate") {
		if int(c.Imm) != i+1 {
			e.Errorf("write with immediate %d: %v, immediate %d", i+1, c, c.Imm)
		}
	}
	a.scq.ok(2, "writes with immediate")
}

func dataWriteImmEmpty(e *env) {
	a, b := e.couple()
	target := e.b.mem(64, remoteWrite)
	b.recv(e.recv())
	a.post(e.writeImm(77, target, 0))
	if c := b.rcq.ok(1, "write with immediate")[0]; c.Imm != 77 || c.Length != 0 || c.Op != verbs.OpRecvRDMAImm {
		e.Errorf("receive of an empty write with immediate 77: %v, immediate %d", c, c.Imm)
	}
	a.scq.ok(1, "write with immediate")
	target.zero(0, 64, "the target of an empty write")
}

func dataSolicited(e *env) {
	a, b := e.couple()
	b.recv(e.recv(), e.recv(), e.recv())
	a.post(e.send(), flagged(e.send(), verbs.SendSolicited), e.send())
	for i, c := range b.rcq.ok(3, "receives") {
		if got := c.Flags&verbs.CompletionSolicited != 0; got != (i == 1) {
			e.Errorf("message %d, the second of three being solicited: %v", i+1, c)
		}
	}
	for _, c := range a.scq.ok(3, "sends") {
		if c.Flags != 0 {
			e.Errorf("completion of a send: %v", c)
		}
	}
	for _, op := range []struct {
		needs verbs.Caps
		op    verbs.Opcode
	}{{verbs.CapSendImm, verbs.OpSendImm}} {
		if !e.can(op.needs) {
			continue
		}
		b.recv(e.recv())
		wr := flagged(e.send(), verbs.SendSolicited)
		wr.Op = op.op
		a.post(wr)
		if c := b.rcq.ok(1, "receive")[0]; c.Flags&verbs.CompletionSolicited == 0 {
			e.Errorf("a solicited %v: %v", op.op, c)
		}
		a.scq.ok(1, "send")
	}
}

func dataWriteImmSolicited(e *env) {
	a, b := e.couple()
	target := e.b.mem(8, remoteWrite)
	src := e.a.source(8)
	b.recv(e.recv(), e.recv())
	a.post(flagged(e.writeImm(1, target, 0, src.all()), verbs.SendSolicited), e.writeImm(2, target, 0, src.all()))
	for i, c := range b.rcq.ok(2, "writes with immediate") {
		if got := c.Flags&verbs.CompletionSolicited != 0; got != (i == 0) {
			e.Errorf("write with immediate %d, the first of two being solicited: %v", i+1, c)
		}
	}
	a.scq.ok(2, "writes with immediate")
}

// dataAllOps posts one of each operation of the devices as one list.
func dataAllOps(e *env) {
	a, b := e.link(conf{sendSGE: 1}, conf{})
	src := e.a.source(16)
	target := e.b.mem(64, e.b.remoteAll())
	sink := e.a.sink(64)
	var wrs []verbs.SendWR
	recvs := 0
	add := func(c verbs.Caps, wr verbs.SendWR, recv bool) {
		if !e.can(c) {
			return
		}
		wrs = append(wrs, wr)
		if recv {
			recvs++
			b.recv(e.recv(e.b.mem(16, localWrite).all()))
		}
	}
	atomic := func(op verbs.Opcode) verbs.SendWR {
		wr := e.rdma(op, target, 0, sink.sge(0, 8))
		wr.Swap = 1
		return wr
	}
	sendImm := e.send(src.all())
	sendImm.Op = verbs.OpSendImm
	add(0, e.send(src.all()), true)
	add(verbs.CapSendImm, sendImm, true)
	add(0, e.write(target, 0, src.all()), false)
	add(verbs.CapWriteImm, e.writeImm(5, target, 16, src.all()), true)
	add(0, e.read(target, 32, sink.sge(0, 16)), false)
	add(verbs.CapAtomics, atomic(verbs.OpFetchAdd), false)
	add(verbs.CapAtomics, atomic(verbs.OpCompareSwap), false)
	if e.can(verbs.CapFastReg) {
		f, g := e.a.fast(1), a.registered(1, localWrite)
		reg := f.reg(remoteBoth)
		add(0, reg, false)
		add(0, e.send(f.under(reg.Key, 0, 8)), true)
		add(0, e.inval(g.mr.LKey()), false)
	}
	if e.can(verbs.CapMW1) {
		add(0, e.a.window(verbs.MWType1).bind(0, 64, verbs.AccessRemoteRead), false)
	}
	add(0, e.send(src.all()), true)
	a.post(wrs...)
	for i, c := range a.scq.ok(len(wrs), "a list of all operations") {
		if c.ID != wrs[i].ID {
			e.Fatalf("completion %d of a list: %v, want %#x", i, c, wrs[i].ID)
		}
	}
	b.rcq.ok(recvs, "messages of a list of all operations")
	target.same(8, src.buf[8:], "a write of the list")
}

func dataOwnContext(e *env) {
	for _, s := range e.sides() {
		a, b := s.ready(conf{}), s.ready(conf{})
		e.connect(a, b)
		e.ping(a, b)
		e.ping(b, a)
	}
}

func dataSourceKept(e *env) {
	a, b := e.couple()
	src, dst := e.a.source(4096), e.b.mem(4096, remoteWrite)
	want := append([]byte(nil), src.buf...)
	b.recv(e.recv(dst.all()))
	a.post(e.write(dst, 0, src.all()), e.send(src.all()))
	b.rcq.ok(1, "receive")
	a.scq.ok(2, "write and send")
	src.same(0, want, "the source")
}
