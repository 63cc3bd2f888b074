package verbstest

import (
	"kdapl/verbs"
)

var faultRules = []rule{
	{"a message that does not fit its receive ends the connection", 0, tooLongForRecv},
	{"a message that does not fit leaves what lies behind the buffer", 0, tooLongLeavesRest},
	{"a send waits for a receive where there is RNR", verbs.CapRNR, sendWaitsForRecv},
	{"sends that wait for receives keep their order", verbs.CapRNR, sendsWaitInOrder},
	{"a write with immediate waits for a receive where there is RNR", verbs.CapRNR | verbs.CapWriteImm, writeImmWaits},
	{"a send without a receive ends the connection where there is no RNR", 0, sendWithoutRecv},
	{"a write needs no receive", 0, writeNeedsNoRecv},
	{"a QP can be used again after a fault", 0, reuseAfterFault},
	{"a fault flushes the other side's requests", 0, faultFlushesPeer},
}

// misfit sends a message of n bytes to a receive with less room.
func (e *env) misfit(a, b *qp, n int, into ...verbs.SGE) {
	e.Helper()
	const what = "a message that does not fit"
	b.recv(e.recv(into...))
	a.post(e.send(e.a.source(n).all()))
	b.failed(b.rcq.one(what), what, verbs.StatusLocalLength)
	if c := a.scq.one(what); a.s.acked() {
		a.failed(c, what, verbs.StatusRemoteInvalidRequest, verbs.StatusRemoteOp)
	} else {
		a.failed(c, what, verbs.StatusSuccess, verbs.StatusFlushed)
	}
	e.broken(what, a, b)
}

func tooLongForRecv(e *env) {
	a, b := e.couple()
	dst := e.b.mem(64, localWrite)
	for _, into := range [][]verbs.SGE{{}, {dst.sge(0, 7)}, {dst.sge(0, 3), dst.sge(8, 4)}} {
		if len(into) > e.b.attr.MaxRecvSGE {
			continue
		}
		e.misfit(a, b, 8, into...)
		e.renew(a, b)
	}
	// What follows is flushed.
	rest := []verbs.RecvWR{e.recv(dst.all()), e.recv(dst.all())}
	e.misfitThen(a, b, rest)
}

// misfitThen is misfit with receives behind the one that is too small.
func (e *env) misfitThen(a, b *qp, rest []verbs.RecvWR) {
	e.Helper()
	dst := e.b.mem(4, localWrite)
	b.recv(append([]verbs.RecvWR{e.recv(dst.all())}, rest...)...)
	src := e.a.source(8)
	a.post(e.send(src.all()), e.send(src.all()))
	b.failed(b.rcq.one("receive"), "a message that does not fit", verbs.StatusLocalLength)
	for _, c := range b.rcq.untilMark(b, true, "receives behind the one that failed") {
		b.failed(c, "a receive behind the one that failed", verbs.StatusFlushed)
	}
	a.scq.untilMark(a, false, "sends")
	e.broken("a message that does not fit", a, b)
}

func tooLongLeavesRest(e *env) {
	a, b := e.couple()
	dst := e.b.mem(64, localWrite)
	e.misfit(a, b, 64, dst.sge(8, 16))
	dst.zero(0, 8, "before the receive")
	dst.zero(24, 40, "behind the receive")
}

func sendWaitsForRecv(e *env) {
	a, b := e.couple()
	src, dst := e.a.source(64), e.b.mem(64, localWrite)
	for range e.rounds(20) {
		a.post(e.send(src.all()))
		b.rcq.none("a send without a receive")
		if a.s.acked() {
			a.scq.none("a send without a receive")
		}
		b.recv(e.recv(dst.all()))
		b.rcq.ok(1, "receive that a send waited for")
		a.scq.ok(1, "send that waited for a receive")
		dst.same(0, src.buf, "message that waited for a receive")
		dst.clear()
	}
}

func sendsWaitInOrder(e *env) {
	a, b := e.couple()
	const n = 8
	src, dst := e.a.source(n), e.b.mem(n, localWrite)
	target, sink := e.b.mem(64, remoteBoth), e.a.sink(64)
	for i := range n {
		a.post(e.send(src.sge(i, 1)))
	}
	// Writes and reads do not overtake.
	a.post(e.write(target, 0, src.all()), e.read(target, 0, sink.sge(0, n)))
	e.look(func() {
		a.scq.poll()
		b.rcq.poll()
	})
	if a.s.acked() {
		target.zero(0, 64, "a write behind sends that wait")
	}
	for i := range n {
		b.recv(e.recv(dst.sge(i, 1)))
		b.rcq.ok(1, "receive")
	}
	a.scq.ok(n+2, "requests that waited")
	dst.same(0, src.buf, "messages that waited")
	sink.same(0, src.buf, "read behind them")
}

func writeImmWaits(e *env) {
	a, b := e.couple()
	target, src := e.b.mem(64, remoteWrite), e.a.source(64)
	a.post(e.writeImm(9, target, 0, src.all()))
	b.rcq.none("a write with immediate without a receive")
	b.recv(e.recv())
	if c := b.rcq.ok(1, "receive")[0]; c.Imm != 9 {
		e.Errorf("write with immediate 9: %v, immediate %d", c, c.Imm)
	}
	a.scq.ok(1, "write with immediate")
	target.same(0, src.buf, "write with immediate")
}

func sendWithoutRecv(e *env) {
	if e.a.attr.Can(verbs.CapRNR) && e.b.attr.Can(verbs.CapRNR) {
		e.Skip("sends of these devices wait for a receive")
	}
	a, b := e.couple()
	a.post(e.send(e.a.source(8).all()))
	const what = "a send without a receive"
	if c := a.scq.one(what); a.s.acked() {
		a.failed(c, what, verbs.StatusRNRRetryExceeded, verbs.StatusRemoteOp, verbs.StatusRemoteInvalidRequest)
	} else {
		a.failed(c, what, verbs.StatusSuccess, verbs.StatusFlushed)
	}
	e.broken(what, a, b)
	if rest := b.rcq.untilMark(b, true, what); len(rest) != 0 {
		e.Errorf("receives that were never posted: %v", rest)
	}
}

func writeNeedsNoRecv(e *env) {
	a, _ := e.couple()
	target, sink := e.b.mem(64, remoteBoth), e.a.sink(64)
	src := e.a.source(64)
	for range 20 {
		a.post(e.write(target, 0, src.all()), e.read(target, 0, sink.all()))
		a.scq.ok(2, "write and read without a receive")
	}
	sink.same(0, src.buf, "write and read without a receive")
}

func reuseAfterFault(e *env) {
	a, b := e.couple()
	dst := e.b.mem(8, localWrite)
	for range e.rounds(20) {
		e.misfit(a, b, 9, dst.all())
		e.renew(a, b)
		e.ping(a, b)
		e.ping(b, a)
	}
}

func faultFlushesPeer(e *env) {
	a, b := e.couple()
	dst := e.a.mem(64, localWrite)
	a.recv(e.recv(dst.all()), e.recv(dst.all()))
	b.recv(e.recv(e.b.mem(4, localWrite).all()), e.recv(), e.recv())
	a.post(e.send(e.a.source(8).all()))
	b.failed(b.rcq.one("receive"), "a message that does not fit", verbs.StatusLocalLength)
	for q, n := range map[*qp]int{a: 2, b: 2} {
		rest := q.rcq.untilMark(q, true, "a fault")
		if len(rest) != n {
			e.Errorf("%d receives flushed on the %s side, want %d", len(rest), q.s.name, n)
		}
		for _, c := range rest {
			q.failed(c, "a receive after a fault", verbs.StatusFlushed)
		}
	}
	dst.zero(0, 64, "receives that were flushed")
	e.broken("a fault", a, b)
}
