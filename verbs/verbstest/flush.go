package verbstest

import (
	"fmt"

	"kdapl/verbs"
)

var flushRules = append([]rule{
	{"receives flush when a QP that was never connected goes to Error", 0, flushEarly},
	{"receives of a QP that was never connected flush when it is reset or destroyed", 0, flushEarlyReset},
	{"an idle QP delivers its marks and nothing else", 0, flushIdle},
	{"requests posted in Error complete flushed, behind the mark, in order", 0, flushInError},
	{"going to Error again delivers no second mark", 0, flushOnce},
	{"requests that are not signalled flush with a completion", 0, flushUnsignaled},
	{"a full queue flushes", 0, flushFull},
	{"every operation flushes", 0, flushAllOps},
	{"a QP that was reset can be connected again, and flushes again", 0, flushLives},
	{"a flushed receive gets no later message", 0, flushedRecvIsOut},
	{"a flushed send does not arrive later", 0, flushedSendIsOut},
	{"several QPs that share a CQ deliver their own marks", 0, flushSharedCQ},
	{"a large transfer that is cut completes once", 0, flushLarge},
	{"the memory of flushed requests can be deregistered", 0, flushDereg},
}, flushWays()...)

func flushEarly(e *env) {
	q := e.a.ready(conf{})
	n := min(5, e.a.depth())
	var ids []uint64
	for range n {
		wr := e.recv()
		ids = append(ids, wr.ID)
		q.recv(wr)
	}
	q.rcq.none("receives of a QP that is not connected")
	q.modify(verbs.QPError)
	got := q.rcq.untilMark(q, true, "Modify to Error")
	for i, c := range got {
		if c.Status != verbs.StatusFlushed || c.ID != ids[i] {
			e.Errorf("flushed receive %d: %v, want %#x", i, c, ids[i])
		}
	}
	if len(got) != n {
		e.Errorf("%d of %d receives flushed", len(got), n)
	}
	q.scq.untilMark(q, false, "Modify to Error")
	q.rcq.none("behind the mark")
	q.scq.none("behind the mark")
}

// flushEarlyReset leaves it to the accounts, which are closed as soon as the call returns.
func flushEarlyReset(e *env) {
	q := e.a.ready(conf{})
	q.recv(e.recv(), e.recv())
	q.modify(verbs.QPReset)
	q.modify(verbs.QPInitialized)
	q.recv(e.recv(), e.recv(), e.recv())
	q.destroy()
	if n := len(q.rcq.seen); n != 4 {
		e.Errorf("%d completions in the receive CQ, want three receives and a mark", n)
	}
}

func flushIdle(e *env) {
	a, b := e.couple()
	e.disconnect(a, b, false)
	for _, q := range []*qp{a, b} {
		if rest := q.scq.untilMark(q, false, "Disconnect"); len(rest) != 0 {
			e.Errorf("completions of an idle send queue: %v", rest)
		}
		if rest := q.rcq.untilMark(q, true, "Disconnect"); len(rest) != 0 {
			e.Errorf("completions of an idle receive queue: %v", rest)
		}
		q.scq.none("behind the mark")
		q.rcq.none("behind the mark")
	}
}

func flushInError(e *env) {
	a, b := e.couple()
	e.disconnect(a, b, true)
	a.state(verbs.QPError)
	a.scq.untilMark(a, false, "Disconnect")
	a.rcq.untilMark(a, true, "Disconnect")
	for range e.rounds(50) {
		sends := []verbs.SendWR{e.send(), unsignaled(e.send()), e.write(e.b.mem(64, remoteWrite), 0, e.a.source(8).all())}
		recvs := []verbs.RecvWR{e.recv(), e.recv()}
		a.post(sends...)
		a.recv(recvs...)
		for i, c := range a.scq.take(3, "sends in Error") {
			if c.ID != sends[i].ID || c.Status != verbs.StatusFlushed {
				e.Fatalf("send %#x in Error: %v", sends[i].ID, c)
			}
		}
		for i, c := range a.rcq.take(2, "receives in Error") {
			if c.ID != recvs[i].ID || c.Status != verbs.StatusFlushed {
				e.Fatalf("receive %#x in Error: %v", recvs[i].ID, c)
			}
		}
	}
}

func flushOnce(e *env) {
	a, b := e.couple()
	e.disconnect(a, b, false)
	a.scq.untilMark(a, false, "Disconnect")
	a.rcq.untilMark(a, true, "Disconnect")
	for range 3 {
		a.modify(verbs.QPError)
		a.post(e.send())
		a.scq.take(1, "send in Error")
	}
	a.scq.none("behind the mark")
	a.rcq.none("behind the mark")
	a.destroy() // the accounts want one mark
}

func flushUnsignaled(e *env) {
	if !e.a.stalls() {
		e.Skip("nothing keeps a send of this device outstanding")
	}
	a, b := e.couple()
	wrs := []verbs.SendWR{unsignaled(e.send()), e.send(), unsignaled(e.send()), unsignaled(e.write(e.b.mem(64, remoteWrite), 0, e.a.source(8).all()))}
	a.post(wrs...)
	e.disconnect(a, b, false)
	got := a.scq.untilMark(a, false, "Disconnect")
	if len(got) != len(wrs) {
		e.Fatalf("%d of %d requests flushed: %v", len(got), len(wrs), got)
	}
	for i, c := range got {
		if c.ID != wrs[i].ID || c.Status != verbs.StatusFlushed {
			e.Errorf("request %d: %v, want %#x flushed", i, c, wrs[i].ID)
		}
	}
}

func flushFull(e *env) {
	a, b := e.couple()
	n := e.b.depth()
	for range n {
		b.recv(e.recv())
	}
	sent := 0
	if e.a.stalls() {
		for range e.b.depth() {
			b.post(e.send())
			sent++
		}
	}
	e.disconnect(a, b, false)
	if got := len(b.rcq.untilMark(b, true, "the peer's Disconnect")); got != n {
		e.Errorf("%d of %d receives flushed", got, n)
	}
	if got := len(b.scq.untilMark(b, false, "the peer's Disconnect")); got != sent {
		e.Errorf("%d of %d sends flushed", got, sent)
	}
}

// flushAllOps posts one of each operation in Error.
func flushAllOps(e *env) {
	a, b := e.couple()
	target, src := e.b.mem(64, e.b.remoteAll()), e.a.sink(64)
	var wrs []verbs.SendWR
	for op, c := range map[verbs.Opcode]verbs.Caps{
		verbs.OpSend: 0, verbs.OpSendImm: verbs.CapSendImm, verbs.OpSendInval: verbs.CapSendInval, verbs.OpRDMAWrite: 0,
		verbs.OpRDMAWriteImm: verbs.CapWriteImm, verbs.OpRDMARead: 0, verbs.OpFetchAdd: verbs.CapAtomics, verbs.OpCompareSwap: verbs.CapAtomics,
	} {
		if e.can(c) {
			wrs = append(wrs, e.rdma(op, target, 0, src.sge(0, 8)))
		}
	}
	e.disconnect(a, b, false)
	a.state(verbs.QPError)
	a.scq.untilMark(a, false, "Disconnect")
	a.post(wrs...)
	for i, c := range a.scq.take(len(wrs), "requests in Error") {
		if c.ID != wrs[i].ID || c.Op != wrs[i].Op || c.Status != verbs.StatusFlushed {
			e.Errorf("%v %#x in Error: %v", wrs[i].Op, wrs[i].ID, c)
		}
	}
	target.zero(0, 64, "the target of flushed requests")
}

// flushLives leaves it to the accounts, which are closed and opened at each reset.
func flushLives(e *env) {
	a, b := e.couple()
	for i := range e.rounds(50) {
		e.ping(a, b)
		e.ping(b, a)
		for range i % 5 {
			a.recv(e.recv())
			b.recv(e.recv())
		}
		switch i % 3 {
		case 0:
			e.disconnect(a, b, false)
		case 1:
			e.disconnect(b, a, true)
		case 2:
			a.modify(verbs.QPError)
			a.conn.next("Modify to Error", verbs.ConnDisconnected)
			b.conn.next("the peer's Modify to Error", verbs.ConnDisconnected, verbs.ConnBroken)
		}
		e.renew(a, b)
	}
}

func flushedRecvIsOut(e *env) {
	a, b := e.couple()
	dst := e.b.mem(64, localWrite)
	b.recv(e.recv(dst.all()))
	e.disconnect(a, b, false)
	b.rcq.untilMark(b, true, "Disconnect")
	e.renew(a, b)
	e.ping(a, b)
	dst.zero(0, 64, "a receive of an earlier connection")
}

func flushedSendIsOut(e *env) {
	if !e.a.stalls() {
		e.Skip("nothing keeps a send of this device outstanding")
	}
	a, b := e.couple()
	a.post(e.send(e.a.source(64).all()))
	e.disconnect(a, b, false)
	a.scq.untilMark(a, false, "Disconnect")
	e.renew(a, b)
	b.recv(e.recv(e.b.mem(64, localWrite).all()))
	b.rcq.none("a send of an earlier connection")
}

func flushSharedCQ(e *env) {
	c := e.b.cq(200)
	var as, bs []*qp
	for i := range 3 {
		a, b := e.link(conf{}, conf{scq: c, rcq: c})
		for range i + 1 {
			b.recv(e.recv())
		}
		as, bs = append(as, a), append(bs, b)
	}
	for _, a := range as {
		e.must(a.v.Disconnect(false), "Disconnect")
	}
	for i, b := range bs {
		if n := len(c.untilMark(b, true, "the peer's Disconnect")); n != i+1 {
			e.Errorf("%d of %d receives flushed", n, i+1)
		}
		c.untilMark(b, false, "the peer's Disconnect")
	}
}

// flushLarge cuts a transfer that may be under way.
func flushLarge(e *env) {
	n := int(min(e.a.attr.MaxMessage, 4<<20))
	src, target := e.a.source(n), e.b.mem(n, remoteBoth)
	for i := range e.rounds(20) {
		a, b := e.couple()
		b.recv(e.recv(target.all()))
		a.post(e.write(target, 0, src.all()), e.read(target, 0, e.a.sink(64).all()), e.send(src.all()))
		e.must([]*qp{a, b}[i%2].v.Disconnect(false), "Disconnect")
		a.conn.next("Disconnect", verbs.ConnDisconnected, verbs.ConnBroken)
		b.conn.next("Disconnect", verbs.ConnDisconnected, verbs.ConnBroken)
		if got := len(a.scq.untilMark(a, false, "a transfer that was cut")); got != 3 {
			e.Errorf("%d completions of 3 requests", got)
		}
		if got := len(b.rcq.untilMark(b, true, "a transfer that was cut")); got != 1 {
			e.Errorf("%d completions of a receive", got)
		}
	}
}

func flushDereg(e *env) {
	a, b := e.couple()
	dst := e.b.mem(64, localWrite)
	b.recv(e.recv(dst.all()))
	e.disconnect(a, b, false)
	b.rcq.untilMark(b, true, "Disconnect")
	dst.free()
}

// flushWays makes one rule for each way in which a connection can end: everything
// outstanding on both sides completes once, in order, before the marks.
func flushWays() []rule {
	type way struct {
		name string
		// abrupt is whether nothing that is outstanding may succeed.
		end func(e *env, a, b *qp)
	}
	ways := []way{
		{"an abrupt Disconnect", func(e *env, a, _ *qp) { e.must(a.v.Disconnect(false), "Disconnect") }},
		{"a Disconnect on both sides", func(e *env, a, b *qp) {
			e.must(a.v.Disconnect(false), "Disconnect")
			if err := b.v.Disconnect(false); err != nil {
				e.refused(err, "Disconnect of both sides", verbs.ErrState)
			}
		}},
		{"Modify to Error", func(_ *env, a, _ *qp) { a.modify(verbs.QPError) }},
		{"Modify to Reset", func(_ *env, a, _ *qp) { a.modify(verbs.QPReset) }},
		{"Destroy", func(_ *env, a, _ *qp) { a.destroy() }},
		{"the peer's abrupt Disconnect", func(e *env, _, b *qp) { e.must(b.v.Disconnect(false), "Disconnect") }},
		{"the peer's Modify to Error", func(_ *env, _, b *qp) { b.modify(verbs.QPError) }},
		{"the peer's Destroy", func(_ *env, _, b *qp) { b.destroy() }},
		{"the close of the peer's context", func(e *env, _, _ *qp) { e.b.close() }},
	}
	var rules []rule
	for _, w := range ways {
		rules = append(rules, rule{"everything outstanding flushes by " + w.name, 0, func(e *env) {
			a, b := e.couple()
			target := e.b.mem(64, remoteBoth)
			src, sink := e.a.source(8), e.a.sink(64)
			for range 4 {
				a.recv(e.recv(sink.sge(0, 8)))
			}
			sends := 0
			if e.a.stalls() {
				a.post(e.send(src.all()), unsignaled(e.send(src.all())), e.write(target, 0, src.all()), e.read(target, 0, sink.sge(8, 8)))
				sends = 4
			}
			w.end(e, a, b)
			if a.v.State() == verbs.QPReset {
				a.conn.next(w.name, verbs.ConnDisconnected)
				return // the account is closed and was checked
			}
			what := "after " + w.name
			for _, x := range []struct {
				c    *cq
				recv bool
				want int
			}{{a.scq, false, sends}, {a.rcq, true, 4}} {
				got := x.c.untilMark(a, x.recv, what)
				if len(got) != x.want {
					e.Errorf("%s: %d of %d completions", what, len(got), x.want)
				}
				for _, c := range got {
					a.failed(c, what, verbs.StatusFlushed)
				}
			}
			if a.gone {
				return
			}
			if !b.lost {
				b.help()
			}
			a.conn.next(what, verbs.ConnDisconnected, verbs.ConnBroken)
			a.state(verbs.QPError)
			a.scq.none(fmt.Sprintf("behind the mark, %s", what))
			a.rcq.none(fmt.Sprintf("behind the mark, %s", what))
		}})
	}
	return rules
}
