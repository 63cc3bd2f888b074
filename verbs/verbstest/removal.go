package verbstest

import (
	"sync/atomic"

	"kdapl/verbs"
)

// removalRules hold when an adapter disappears under its instances. Passive is the one
// that goes.
var removalRules = []rule{
	{"removal is announced once to each instance", 0, removalAnnounced},
	{"removal breaks connections and flushes on both sides", 0, removalBreaks},
	{"removal flushes QPs that are not connected", 0, removalFlushes},
	{"removal ends set-ups", 0, removalEndsSetUps},
	{"a removed device cannot be opened, and its instances can be closed", 0, removalCloses},
	{"removal under load loses no completion", 0, removalUnderLoad},
}

// remove takes the passive device away, or skips the rule.
func (e *env) remove() {
	e.Helper()
	if e.pair.Remove == nil {
		e.Skip("the pair cannot take its device away")
	}
	e.bounded("Remove", e.pair.Remove)
}

// fatal counts the announcements.
func (s *side) fatal() int {
	return s.async.count(func(ev verbs.AsyncEvent) bool { return ev.Kind == verbs.AsyncDeviceFatal })
}

func removalAnnounced(e *env) {
	other := e.open("spare", e.pair.Passive)
	e.remove()
	for _, s := range []*side{e.b, other} {
		e.eventually(func() bool { return s.fatal() == 1 }, "AsyncDeviceFatal")
	}
	e.look(func() {})
	if n := [3]int{e.a.fatal(), e.b.fatal(), other.fatal()}; n != [3]int{0, 1, 1} {
		e.Errorf("AsyncDeviceFatal came %v times to the other device and to two instances of the removed one", n)
	}
}

func removalBreaks(e *env) {
	a, b := e.couple()
	a2, b2 := e.couple()
	dst := e.b.mem(64, localWrite)
	b.recv(e.recv(dst.all()), e.recv(dst.all()))
	a.recv(e.recv(), e.recv(), e.recv())
	e.remove()
	b.conn.next("removal", verbs.ConnBroken)
	b2.conn.next("removal", verbs.ConnBroken)
	for q, n := range map[*qp]int{a: 3, a2: 0, b: 2, b2: 0} {
		if q.s == e.a {
			q.conn.next("removal of the peer", verbs.ConnBroken, verbs.ConnDisconnected)
		}
		q.state(verbs.QPError)
		got := q.rcq.untilMark(q, true, "removal")
		if len(got) != n {
			e.Errorf("%d of %d receives flushed on the %s side", len(got), n, q.s.name)
		}
		for _, c := range got {
			q.failed(c, "removal", verbs.StatusFlushed, verbs.StatusFatal)
		}
		q.scq.untilMark(q, false, "removal")
		q.conn.none("behind the end")
	}
}

func removalFlushes(e *env) {
	b := e.b.ready(conf{})
	b.recv(e.recv(), e.recv())
	e.remove()
	b.state(verbs.QPError)
	if got := b.rcq.untilMark(b, true, "removal"); len(got) != 2 {
		e.Errorf("%d of 2 receives flushed", len(got))
	}
	b.scq.untilMark(b, false, "removal")
}

func removalEndsSetUps(e *env) {
	la, lb := e.a.listen(), e.b.listen()
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	e.must(a.connect(e.a.params(lb.v.Addr(), nil)), "Connect to the device that goes")
	e.must(b.connect(e.b.params(la.v.Addr(), nil)), "Connect from the device that goes")
	lb.next("Connect")
	la.next("Connect")
	e.remove()
	a.conn.next("removal of the peer", verbs.ConnRefused, verbs.ConnUnreachable, verbs.ConnRejected)
	if ev := b.conn.next("removal", verbs.ConnAborted, verbs.ConnRefused, verbs.ConnUnreachable); ev.Err == nil {
		e.Errorf("removal ended a set-up without a cause: %v", ev)
	}
	// Nobody is there any more.
	again := e.a.ready(conf{})
	e.must(again.connect(e.a.params(lb.v.Addr(), nil)), "Connect to the device that is gone")
	again.conn.next("Connect to the device that is gone", verbs.ConnRefused, verbs.ConnUnreachable)
}

func removalCloses(e *env) {
	_, b := e.couple()
	m := e.b.mem(64, remoteBoth)
	e.remove()
	_, err := e.pair.Passive.Open(verbs.OpenConfig{})
	e.refused(err, "Open of a removed device", verbs.ErrNoDevice)
	b.destroy()
	m.free()
	e.b.close()
	e.qpClosed(b)
}

func removalUnderLoad(e *env) {
	if e.pair.Remove == nil {
		e.Skip("the pair cannot take its device away")
	}
	depth := min(64, e.b.attr.MaxQPWR)
	cb := e.b.cq(4*depth + 8)
	a, b := e.a.ready(conf{}), e.b.ready(conf{scq: cb, rcq: cb, send: depth, recv: depth, raw: true})
	e.connect(a, b)
	sends, recvs := newTally(depth), newTally(depth)
	for range e.a.depth() {
		a.recv(e.recv())
	}
	var marks atomic.Int32
	e.together(3, func(i int) {
		switch i {
		case 0:
			for range min(depth, e.a.depth()) {
				wr := e.send()
				wr.ID = sends.id()
				n, _ := b.v.PostSend([]verbs.SendWR{wr})
				sends.took(n)
				e.yield()
			}
		case 1:
			for range depth {
				wr := e.recv()
				wr.ID = recvs.id()
				n, _ := b.v.PostRecv([]verbs.RecvWR{wr})
				recvs.took(n)
			}
		case 2:
			for range 10 {
				e.yield()
			}
			e.pair.Remove()
		}
	})
	e.eventually(func() bool {
		polled(e, cb, sends, recvs, &marks)
		return sends.count() == sends.n.Load() && recvs.count() == recvs.n.Load() && marks.Load() >= 2
	}, "%d sends and %d receives complete, with two marks", sends.n.Load(), recvs.n.Load())
	if marks.Load() != 2 {
		e.Errorf("%d marks", marks.Load())
	}
}
