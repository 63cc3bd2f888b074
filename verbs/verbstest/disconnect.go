package verbstest

import (
	"fmt"

	"kdapl/verbs"
)

var disconnectRules = append([]rule{
	{"a graceful Disconnect lets posted requests run", 0, gracefulRuns},
	{"a graceful Disconnect refuses new requests", 0, gracefulRefuses},
	{"a graceful Disconnect waits for requests that wait", 0, gracefulWaits},
	{"a graceful Disconnect can be made abrupt", 0, gracefulThenAbrupt},
	{"a second graceful Disconnect changes nothing", 0, gracefulTwice},
	{"an abrupt Disconnect ends both sides", 0, abruptEnds},
	{"either side may disconnect", 0, eitherDisconnects},
	{"a side that is sent to meanwhile loses nothing that succeeded", 0, disconnectUnderTraffic},
	{"a connection ends once however often it is disconnected", 0, disconnectTwice},
	{"a peer that vanishes ends the connection", 0, peerVanishes},
	{"two QPs can be connected again after any end", 0, reconnect},
}, endMatrix()...)

func gracefulRuns(e *env) {
	for _, n := range []int{1, 1000, 300000} {
		a, b := e.couple()
		k := min(8, e.a.depth()-2, e.b.depth())
		src, dst := e.a.source(n*k), e.b.mem(n*k, localWrite)
		target, sink := e.b.mem(n, remoteBoth), e.a.sink(n)
		for i := range k {
			b.recv(e.recv(dst.sge(n*i, n)))
		}
		for i := range k {
			a.post(e.send(src.sge(n*i, n)))
		}
		a.post(e.write(target, 0, src.sge(0, n)), e.read(target, 0, sink.all()))
		e.must(a.v.Disconnect(true), "Disconnect")
		if got := a.scq.untilMark(a, false, "graceful Disconnect"); len(got) != k+2 {
			e.Errorf("%d completions of %d requests", len(got), k+2)
		} else {
			for _, c := range got {
				a.failed(c, "a request before a graceful Disconnect", verbs.StatusSuccess)
			}
		}
		for _, c := range b.rcq.untilMark(b, true, "the peer's graceful Disconnect") {
			b.failed(c, "a message before a graceful Disconnect", verbs.StatusSuccess)
		}
		a.conn.next("graceful Disconnect", verbs.ConnDisconnected)
		b.conn.next("the peer's graceful Disconnect", verbs.ConnDisconnected)
		dst.same(0, src.buf, "messages before a graceful Disconnect")
		sink.same(0, src.buf[:n], "a read before a graceful Disconnect")
		a.state(verbs.QPError)
		b.state(verbs.QPError)
	}
}

// draining makes a QP whose graceful Disconnect waits for a send.
func draining(e *env) (a, b *qp) {
	e.Helper()
	if !e.a.stalls() {
		e.Skip("nothing keeps a send of this device outstanding")
	}
	a, b = e.couple()
	a.post(e.send(e.a.source(8).all()))
	e.must(a.v.Disconnect(true), "Disconnect")
	a.state(verbs.QPSQD)
	return a, b
}

func gracefulRefuses(e *env) {
	a, b := draining(e)
	n, err := a.tryPost(e.send())
	if n != 0 {
		e.Errorf("a QP that drains took %d requests", n)
	}
	e.refused(err, "PostSend of a QP that drains", verbs.ErrState)
	a.recv(e.recv())
	b.recv(e.recv(e.b.mem(8, localWrite).all()))
	b.rcq.ok(1, "the send that drains")
	a.scq.ok(1, "the send that drains")
	a.conn.next("graceful Disconnect", verbs.ConnDisconnected)
	b.conn.next("the peer's graceful Disconnect", verbs.ConnDisconnected)
}

func gracefulWaits(e *env) {
	a, b := draining(e)
	a.scq.none("a send that waits")
	a.conn.none("a graceful Disconnect that waits")
	b.conn.none("a graceful Disconnect that waits")
	// Messages of the peer still come.
	a.recv(e.recv())
	b.post(e.send())
	a.rcq.ok(1, "a message to a QP that drains")
	b.scq.ok(1, "a message to a QP that drains")
	b.recv(e.recv(e.b.mem(8, localWrite).all()))
	b.rcq.ok(1, "the send that drains")
	a.scq.ok(1, "the send that drains")
	a.conn.next("graceful Disconnect", verbs.ConnDisconnected)
	b.conn.next("the peer's graceful Disconnect", verbs.ConnDisconnected)
}

func gracefulThenAbrupt(e *env) {
	a, b := draining(e)
	e.must(a.v.Disconnect(false), "abrupt Disconnect")
	for _, c := range a.scq.untilMark(a, false, "abrupt Disconnect") {
		a.failed(c, "a send that drained", verbs.StatusFlushed)
	}
	a.conn.next("abrupt Disconnect", verbs.ConnDisconnected)
	b.conn.next("the peer's abrupt Disconnect", verbs.ConnDisconnected)
	a.state(verbs.QPError)
}

func gracefulTwice(e *env) {
	a, b := draining(e)
	e.must(a.v.Disconnect(true), "a second graceful Disconnect")
	a.state(verbs.QPSQD)
	a.conn.none("a second graceful Disconnect")
	b.recv(e.recv(e.b.mem(8, localWrite).all()))
	b.rcq.ok(1, "the send that drains")
	a.scq.ok(1, "the send that drains")
	a.conn.next("graceful Disconnect", verbs.ConnDisconnected)
}

func abruptEnds(e *env) {
	a, b := e.couple()
	a.recv(e.recv(), e.recv())
	b.recv(e.recv())
	e.disconnect(a, b, false)
	for q, n := range map[*qp]int{a: 2, b: 1} {
		got := q.rcq.untilMark(q, true, "abrupt Disconnect")
		if len(got) != n {
			e.Errorf("%d of %d receives flushed on the %s side", len(got), n, q.s.name)
		}
		for _, c := range got {
			q.failed(c, "a receive after an abrupt Disconnect", verbs.StatusFlushed)
		}
		q.scq.untilMark(q, false, "abrupt Disconnect")
		q.state(verbs.QPError)
		q.conn.none("behind the end")
	}
}

func eitherDisconnects(e *env) {
	for _, graceful := range []bool{true, false} {
		a, b := e.couple()
		e.disconnect(b, a, graceful)
		a.state(verbs.QPError)
		b.state(verbs.QPError)
		a.conn.none("behind the end")
		b.conn.none("behind the end")
	}
}

// disconnectUnderTraffic cuts a stream of messages: what the receiver got is a prefix
// of what was sent, in order, and the accounts are right on both sides.
func disconnectUnderTraffic(e *env) {
	for i := range e.rounds(30) {
		a, b := e.couple()
		n := min(20, e.a.depth(), e.b.depth())
		src, dst := e.a.source(64*n), e.b.mem(64*n, localWrite)
		for k := range n {
			b.recv(e.recv(dst.sge(64*k, 64)))
		}
		for k := range n {
			if k == i%n {
				e.must([]*qp{a, b}[i%2].v.Disconnect(false), "Disconnect")
			}
			if _, err := a.tryPost(e.send(src.sge(64*k, 64))); err != nil {
				e.Fatalf("PostSend number %d: %v", k, err)
			}
		}
		a.conn.next("Disconnect", verbs.ConnDisconnected, verbs.ConnBroken)
		b.conn.next("Disconnect", verbs.ConnDisconnected, verbs.ConnBroken)
		arrived := 0
		for _, c := range b.rcq.untilMark(b, true, "Disconnect") {
			if c.Status == verbs.StatusSuccess {
				arrived++
			}
		}
		sent := 0
		for _, c := range a.scq.untilMark(a, false, "Disconnect") {
			if c.Status == verbs.StatusSuccess {
				sent++
			}
		}
		dst.same(0, src.buf[:64*arrived], "messages before the end")
		if e.a.acked() && sent > arrived {
			e.Errorf("%d sends succeeded, %d arrived", sent, arrived)
		}
	}
}

func disconnectTwice(e *env) {
	a, b := e.couple()
	e.disconnect(a, b, false)
	for _, q := range []*qp{a, b} {
		q.state(verbs.QPError)
		e.refused(q.v.Disconnect(false), "Disconnect behind the end", verbs.ErrState)
		e.refused(q.v.Disconnect(true), "Disconnect behind the end", verbs.ErrState)
		q.modify(verbs.QPError)
		q.conn.none("behind the end")
	}
}

func peerVanishes(e *env) {
	s := e.open("spare", e.pair.Passive)
	a, b := e.a.ready(conf{}), s.ready(conf{})
	a2, b2 := e.a.ready(conf{}), s.ready(conf{})
	e.connect(a, b)
	e.connect(a2, b2)
	a.recv(e.recv())
	s.close()
	for _, q := range []*qp{a, a2} {
		q.conn.next("the close of the peer's context", verbs.ConnDisconnected, verbs.ConnBroken)
		q.state(verbs.QPError)
		q.rcq.untilMark(q, true, "the close of the peer's context")
		q.conn.none("behind the end")
	}
}

func reconnect(e *env) {
	a, b := e.couple()
	for i := range e.rounds(30) {
		e.ping(a, b)
		e.ping(b, a)
		who, other := a, b
		if i%2 == 1 {
			who, other = b, a
		}
		switch i / 2 % 4 {
		case 0:
			e.must(who.v.Disconnect(true), "Disconnect")
		case 1:
			e.must(who.v.Disconnect(false), "Disconnect")
		case 2:
			who.modify(verbs.QPError)
		case 3:
			who.modify(verbs.QPReset)
		}
		who.conn.next("the end", verbs.ConnDisconnected)
		other.conn.next("the peer's end", verbs.ConnDisconnected, verbs.ConnBroken)
		e.renew(a, b)
	}
}

// endMatrix makes one rule for each pair of ways in which the two sides can end a
// connection at the same time: each side gets one terminal event, which the logs
// count, and every request completes once, which the accounts check.
func endMatrix() []rule {
	ways := []struct {
		name string
		do   func(q *qp) error
	}{
		{"nothing", func(*qp) error { return nil }},
		{"a graceful Disconnect", func(q *qp) error { return q.v.Disconnect(true) }},
		{"an abrupt Disconnect", func(q *qp) error { return q.v.Disconnect(false) }},
		{"Modify to Error", func(q *qp) error { return q.v.Modify(verbs.QPError) }},
		{"Modify to Reset", func(q *qp) error { return q.v.Modify(verbs.QPReset) }},
		{"Destroy", func(q *qp) error { return q.v.Destroy() }},
		{"Context.Close", func(q *qp) error { return q.s.ctx.Close() }},
	}
	var rules []rule
	for i, wa := range ways {
		for _, wb := range ways[i:] {
			if wb.name == "nothing" {
				continue
			}
			rules = append(rules, rule{fmt.Sprintf("%s against %s ends a connection once", wb.name, wa.name), 0, func(e *env) {
				for round := range e.rounds(10) {
					e.endRound(round, wa.name, wa.do, wb.name, wb.do)
				}
			}})
		}
	}
	return rules
}

// endRound connects two QPs in contexts of their own and ends the connection on both sides.
func (e *env) endRound(round int, na string, da func(*qp) error, nb string, db func(*qp) error) {
	e.Helper()
	sa, sb := e.open("first", e.pair.Active), e.open("second", e.pair.Passive)
	if round%2 == 1 {
		sa, sb = sb, sa
	}
	a, b := sa.ready(conf{}), sb.ready(conf{})
	e.connect(a, b)
	for range 3 {
		a.recv(e.recv())
		b.recv(e.recv())
	}
	a.post(e.send(), unsignaled(e.send()))
	b.post(unsignaled(e.send()), e.send())
	names, qs, do := []string{na, nb}, []*qp{a, b}, []func(*qp) error{da, db}
	e.together(2, func(i int) {
		switch err := do[i](qs[i]); {
		case err == nil:
		case names[i] == "a graceful Disconnect" || names[i] == "an abrupt Disconnect":
			// The other side may have been faster.
			e.refused(err, names[i], verbs.ErrState)
		default:
			e.Errorf("%s: %v", names[i], err)
		}
	})
	for i, q := range qs {
		switch names[i] {
		case "Context.Close":
			q.lost, q.s.closed = true, true
		case "Destroy":
			q.gone = true // its own end need not be told
			q.closeAccount("Destroy")
		case "Modify to Reset":
			q.closeAccount("Modify to Reset")
			q.acct.left, q.acct.send, q.acct.recv = false, ledger{}, ledger{}
		}
		if !q.lost && !q.gone {
			q.conn.next(fmt.Sprintf("%s against %s", na, nb), verbs.ConnDisconnected, verbs.ConnBroken)
			q.conn.settled(names[i])
		}
	}
	for _, q := range qs {
		if !q.lost && !q.gone {
			q.destroy()
		}
	}
	for _, s := range []*side{sa, sb} {
		if !s.closed {
			s.close()
		}
	}
}
