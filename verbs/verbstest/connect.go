package verbstest

import (
	"bytes"
	"fmt"
	"time"

	"kdapl/verbs"
)

var connectRules = []rule{
	{"a connection is established once on each side", 0, connectOnce},
	{"private data of every size goes both ways", 0, connectPrivate},
	{"private data beyond the limit is refused at once", 0, connectPrivateTooLong},
	{"private data is copied", 0, connectPrivateCopied},
	{"a rejection brings its private data", 0, connectRejected},
	{"a refusal is told from a rejection", 0, connectRefused},
	{"nobody listens", 0, connectNobody},
	{"an address that is nobody's is unreachable", 0, connectUnreachable},
	{"a set-up that is not answered times out", 0, connectTimesOut},
	{"a request whose peer gave up cannot be accepted", 0, acceptTooLate},
	{"no timeout is no limit", 0, connectNoTimeout},
	{"the passive side may send first", 0, passiveSendsFirst},
	{"receives posted before the connection serve it", 0, connectPrepost},
	{"read depths are agreed on", 0, connectDepths},
	{"read depths beyond the limits are refused or cut", 0, connectDepthLimits},
	{"a set-up is aborted by Disconnect", 0, connectAborted},
	{"a set-up is aborted by Modify to Error", 0, connectAbortedModify},
	{"a set-up is aborted by Modify to Reset", 0, connectAbortedReset},
	{"a set-up is aborted by Destroy", 0, connectAbortedDestroy},
	{"the passive side aborts behind Accept", 0, acceptAborted},
	{"a peer's context that closes ends the set-up", 0, connectPeerCloses},
	{"a QP connects again after every kind of failure", 0, connectAgain},
	{"many connections are set up at once", 0, connectMany},
	{"a context connects to itself", 0, connectSelf},
}

// checkPrivate compares private data with what was sent. A transport of fixed size
// pads it with zeros.
func checkPrivate(e *env, s *side, what string, got, want []byte) {
	e.Helper()
	if len(got) < len(want) || !bytes.Equal(got[:len(want)], want) || len(bytes.Trim(got[len(want):], "\x00")) != 0 {
		e.Errorf("%s: private data %q, want %q", what, got, want)
	}
}

func connectOnce(e *env) {
	a, b := e.couple()
	e.ping(a, b)
	e.ping(b, a)
	a.conn.none("a connection at rest")
	b.conn.none("a connection at rest")
}

func connectPrivate(e *env) {
	l := e.b.listen()
	most := min(e.a.attr.MaxPrivateData, e.b.attr.MaxPrivateData)
	step := max(1, most/e.rounds(64))
	for n := 0; n <= most; n = min(most, n+step) {
		hello, reply := pattern(n, 1), pattern(n, 2)
		a, b := e.a.ready(conf{}), e.b.ready(conf{})
		e.must(a.connect(e.a.params(l.v.Addr(), hello)), "Connect with %d bytes", n)
		r := l.next("Connect")
		checkPrivate(e, e.b, fmt.Sprintf("request with %d bytes", n), r.PrivateData(), hello)
		e.must(b.accept(r, e.b.params(verbs.Address{}, reply)), "Accept with %d bytes", n)
		ev := a.conn.next("Accept", verbs.ConnEstablished)
		checkPrivate(e, e.a, fmt.Sprintf("answer with %d bytes", n), ev.PrivateData, reply)
		b.conn.next("Accept", verbs.ConnEstablished)
		a.destroy()
		b.destroy()
		if n == most {
			break
		}
	}
}

func connectPrivateTooLong(e *env) {
	l := e.b.listen()
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	long := make([]byte, e.a.attr.MaxPrivateData+1)
	e.refused(a.connect(e.a.params(l.v.Addr(), long)), "Connect with too much private data", tooMuch...)
	if s := a.v.State(); s != verbs.QPInitialized {
		e.Errorf("a refused Connect left the QP in %v", s)
	}
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect after a refused one")
	r := l.next("Connect")
	long = make([]byte, e.b.attr.MaxPrivateData+1)
	e.refused(b.accept(r, e.b.params(verbs.Address{}, long)), "Accept with too much private data", tooMuch...)
	e.refused(r.Reject(long), "Reject with too much private data", tooMuch...)
	e.must(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept after refused answers")
	a.conn.next("Accept", verbs.ConnEstablished)
	b.conn.next("Accept", verbs.ConnEstablished)
	e.ping(a, b)
}

func connectPrivateCopied(e *env) {
	l := e.b.listen()
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	n := min(16, e.a.attr.MaxPrivateData, e.b.attr.MaxPrivateData)
	hello, reply := pattern(n, 1), pattern(n, 2)
	mine := bytes.Clone(hello)
	e.must(a.connect(e.a.params(l.v.Addr(), mine)), "Connect")
	clear(mine)
	r := l.next("Connect")
	checkPrivate(e, e.b, "request whose private data was cleared", r.PrivateData(), hello)
	mine = bytes.Clone(reply)
	e.must(b.accept(r, e.b.params(verbs.Address{}, mine)), "Accept")
	clear(mine)
	ev := a.conn.next("Accept", verbs.ConnEstablished)
	checkPrivate(e, e.a, "answer whose private data was cleared", ev.PrivateData, reply)
}

// declined connects to a listener whose requests are answered with answer, which is to
// fail, and returns the active QP and its event.
func (e *env) declined(answer func(verbs.ConnRequest) error, want verbs.ConnEventKind) (*qp, verbs.ConnEvent) {
	e.Helper()
	l := e.b.listen()
	a := e.a.ready(conf{})
	a.recv(e.recv())
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	e.must(answer(l.next("Connect")), "the answer")
	ev := a.conn.next("the answer", want)
	a.rcq.untilMark(a, true, "a set-up that failed")
	a.scq.untilMark(a, false, "a set-up that failed")
	a.state(verbs.QPError)
	a.conn.none("behind a set-up that failed")
	return a, ev
}

func connectRejected(e *env) {
	for _, n := range []int{0, 1, min(e.a.attr.MaxPrivateData, e.b.attr.MaxPrivateData)} {
		reason := pattern(n, 3)
		_, ev := e.declined(func(r verbs.ConnRequest) error { return r.Reject(reason) }, verbs.ConnRejected)
		checkPrivate(e, e.a, "rejection", ev.PrivateData, reason)
	}
}

func connectRefused(e *env) {
	e.declined(func(r verbs.ConnRequest) error { return r.Refuse() }, verbs.ConnRefused)
}

func connectNobody(e *env) {
	l := e.b.listen()
	addr := l.v.Addr()
	l.close()
	a := e.a.ready(conf{})
	a.recv(e.recv())
	e.must(a.connect(e.a.params(addr, nil)), "Connect")
	ev := a.conn.next("Connect to nobody", verbs.ConnRefused)
	if ev.Remote != addr {
		e.Errorf("refused by %v, says %v", addr, ev.Remote)
	}
	a.rcq.untilMark(a, true, "a set-up that failed")
}

func connectUnreachable(e *env) {
	if !e.pair.Unreachable.IP.IsValid() {
		e.Skip("the pair names no unreachable address")
	}
	a := e.a.ready(conf{})
	e.must(a.connect(e.a.params(e.pair.Unreachable, nil)), "Connect")
	a.conn.next("Connect to an unreachable address", verbs.ConnUnreachable)
	a.state(verbs.QPError)
}

// connectTimesOut waits for the real time of the set-up.
func connectTimesOut(e *env) {
	l := e.b.listen()
	a := e.a.ready(conf{})
	a.recv(e.recv())
	p := e.a.params(l.v.Addr(), nil)
	p.Timeout = soon
	start := time.Now()
	e.must(a.connect(p), "Connect")
	l.next("Connect")
	a.conn.next("no answer", verbs.ConnTimedOut)
	if d := time.Since(start); d < soon {
		e.Errorf("a timeout of %v passed within %v", soon, d)
	}
	a.rcq.untilMark(a, true, "a set-up that timed out")
	a.state(verbs.QPError)
	a.conn.none("behind a timeout")
	// The QP is as good as new.
	a.modify(verbs.QPReset)
	a.modify(verbs.QPInitialized)
	b := e.b.ready(conf{})
	l2 := e.b.listen()
	e.connectAt(l2, a, b, e.a.params(l2.v.Addr(), nil), e.b.params(verbs.Address{}, nil))
	e.ping(a, b)
}

// acceptTooLate: the passive side learns that the peer gave up at Accept, or afterwards
// by an event.
func acceptTooLate(e *env) {
	l := e.b.listen()
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	r := l.next("Connect")
	e.must(a.v.Disconnect(false), "Disconnect")
	a.conn.next("Disconnect", verbs.ConnAborted)
	err := b.accept(r, e.b.params(verbs.Address{}, nil))
	if err != nil {
		e.refused(err, "Accept of a peer that gave up", verbs.ErrPeerGone)
		b.conn.none("an Accept that failed")
		if s := b.v.State(); s != verbs.QPInitialized {
			e.Errorf("an Accept that failed left the QP in %v", s)
		}
		e.refused(r.Reject(nil), "Reject of a peer that gave up", verbs.ErrState, verbs.ErrPeerGone)
		return
	}
	if ev := b.conn.next("Accept of a peer that gave up", verbs.ConnAcceptFailed, verbs.ConnEstablished); ev.Kind == verbs.ConnEstablished {
		b.conn.next("a peer that gave up", verbs.ConnDisconnected, verbs.ConnBroken)
	}
	b.state(verbs.QPError)
}

func connectNoTimeout(e *env) {
	l := e.b.listen()
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	p := e.a.params(l.v.Addr(), nil)
	p.Timeout = 0
	e.must(a.connect(p), "Connect")
	r := l.next("Connect")
	a.conn.none("a set-up without a timeout")
	e.must(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept")
	a.conn.next("Accept", verbs.ConnEstablished)
}

func passiveSendsFirst(e *env) {
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	src, dst := e.b.source(64), e.a.mem(64, localWrite)
	a.recv(e.recv(dst.all()))
	l := e.b.listen()
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	e.must(b.accept(l.next("Connect"), e.b.params(verbs.Address{}, nil)), "Accept")
	b.conn.next("Accept", verbs.ConnEstablished)
	b.state(verbs.QPRTS)
	b.post(e.send(src.all()))
	a.rcq.ok(1, "the passive side's first message")
	b.scq.ok(1, "the passive side's first message")
	a.conn.next("Accept", verbs.ConnEstablished)
	dst.same(0, src.buf, "the passive side's first message")
}

func connectPrepost(e *env) {
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	dst := e.b.mem(32, localWrite)
	b.recv(e.recv(dst.sge(0, 16)), e.recv(dst.sge(16, 16)))
	e.connect(a, b)
	src := e.a.source(32)
	a.post(e.send(src.sge(0, 16)), e.send(src.sge(16, 16)))
	b.rcq.ok(2, "receives posted before the connection")
	a.scq.ok(2, "sends")
	dst.same(0, src.buf, "messages")
}

// connectDepths: each side's ReadsOut is at most its peer's ReadsIn and its own wish.
func connectDepths(e *env) {
	l := e.b.listen()
	for _, w := range [][4]int{{4, 4, 4, 4}, {1, 1, 1, 1}, {2, 1, 1, 2}, {1, 4, 2, 2}, {4, 1, 2, 4}, {3, 2, 1, 1}} {
		a, b := e.a.ready(conf{}), e.b.ready(conf{})
		ap := verbs.ConnParams{Remote: l.v.Addr(), ReadsIn: min(w[0], e.a.attr.MaxReadsIn), ReadsOut: min(w[1], e.a.attr.MaxReadsOut)}
		bp := verbs.ConnParams{ReadsIn: min(w[2], e.b.attr.MaxReadsIn), ReadsOut: min(w[3], e.b.attr.MaxReadsOut)}
		e.must(a.connect(ap), "Connect")
		r := l.next("Connect")
		if r.ReadsIn() != ap.ReadsOut || r.ReadsOut() != ap.ReadsIn {
			e.Errorf("the peer wishes %d in and %d out; the request says %d and %d from this side",
				ap.ReadsIn, ap.ReadsOut, r.ReadsIn(), r.ReadsOut())
		}
		e.must(b.accept(r, bp), "Accept")
		ae, be := a.conn.next("Accept", verbs.ConnEstablished), b.conn.next("Accept", verbs.ConnEstablished)
		what := fmt.Sprintf("active in %d out %d of %d/%d, passive in %d out %d of %d/%d",
			ae.ReadsIn, ae.ReadsOut, ap.ReadsIn, ap.ReadsOut, be.ReadsIn, be.ReadsOut, bp.ReadsIn, bp.ReadsOut)
		if ae.ReadsOut > be.ReadsIn || be.ReadsOut > ae.ReadsIn {
			e.Errorf("a side may have more reads under way than its peer answers: %s", what)
		}
		if ae.ReadsOut > ap.ReadsOut || be.ReadsOut > bp.ReadsOut {
			e.Errorf("a side got more than it wished: %s", what)
		}
		if ae.ReadsOut < min(ap.ReadsOut, bp.ReadsIn) || be.ReadsOut < min(bp.ReadsOut, ap.ReadsIn) {
			e.Errorf("a side got less than both wished: %s", what)
		}
		a.state(verbs.QPRTS)
		b.state(verbs.QPRTS)
		for _, q := range []*qp{a, b} {
			target, sink := q.s.peer().mem(64, remoteRead), q.s.sink(64)
			for i := range 8 {
				q.post(e.read(target, 8*i, sink.sge(8*i, 8)))
			}
			q.scq.ok(8, "reads at the agreed depth")
		}
		a.destroy()
		b.destroy()
	}
}

func connectDepthLimits(e *env) {
	l := e.b.listen()
	for _, p := range []verbs.ConnParams{{ReadsIn: -1, ReadsOut: 1}, {ReadsIn: 1, ReadsOut: -1}} {
		a := e.a.ready(conf{})
		p.Remote = l.v.Addr()
		e.refused(a.connect(p), fmt.Sprintf("Connect with depths of %d and %d", p.ReadsIn, p.ReadsOut), verbs.ErrInvalid)
	}
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	p := verbs.ConnParams{Remote: l.v.Addr(), ReadsIn: e.a.attr.MaxReadsIn + 1, ReadsOut: e.a.attr.MaxReadsOut + 1}
	if err := a.connect(p); err != nil {
		e.refused(err, "Connect with depths beyond the limits", tooMuch...)
		return
	}
	e.must(b.accept(l.next("Connect"), e.b.params(verbs.Address{}, nil)), "Accept")
	ev := a.conn.next("Accept", verbs.ConnEstablished)
	if ev.ReadsIn > e.a.attr.MaxReadsIn || ev.ReadsOut > e.a.attr.MaxReadsOut {
		e.Errorf("agreed on %d in and %d out, the limits are %d and %d", ev.ReadsIn, ev.ReadsOut, e.a.attr.MaxReadsIn, e.a.attr.MaxReadsOut)
	}
}

// abort ends the set-up of a QP with receives, before and after the peer has seen the
// request, and checks what is left of it.
func (e *env) abort(end func(a *qp)) {
	e.Helper()
	for _, seen := range []bool{true, false} {
		l := e.b.listen()
		a := e.a.ready(conf{})
		a.recv(e.recv(), e.recv())
		p := e.a.params(l.v.Addr(), nil)
		p.Timeout = eventBefore
		e.must(a.connect(p), "Connect")
		var r verbs.ConnRequest
		if seen {
			r = l.next("Connect")
		}
		end(a)
		if !a.gone {
			a.conn.next("the end of a set-up", verbs.ConnAborted)
		}
		if a.v.State() != verbs.QPReset {
			if n := len(a.rcq.untilMark(a, true, "the end of a set-up")); n != 2 {
				e.Errorf("%d of 2 receives flushed", n)
			}
			a.scq.untilMark(a, false, "the end of a set-up")
		}
		if !a.gone {
			a.conn.none("behind the end of a set-up")
		}
		if seen {
			// The request may be declined, or be known to be stale.
			if err := r.Reject(nil); err != nil {
				e.refused(err, "Reject of a peer that gave up", verbs.ErrPeerGone, verbs.ErrState)
			}
		}
		l.close()
	}
}

func connectAborted(e *env) {
	e.abort(func(a *qp) { e.must(a.v.Disconnect(true), "Disconnect") })
	e.abort(func(a *qp) { e.must(a.v.Disconnect(false), "Disconnect") })
}

func connectAbortedModify(e *env) { e.abort(func(a *qp) { a.modify(verbs.QPError) }) }

func connectAbortedReset(e *env) { e.abort(func(a *qp) { a.modify(verbs.QPReset) }) }

func connectAbortedDestroy(e *env) { e.abort(func(a *qp) { a.destroy() }) }

// acceptAborted ends the passive side right behind Accept: the set-up may be over by then
// or not, and each side gets one outcome and one end, which the logs check.
func acceptAborted(e *env) {
	l := e.b.listen()
	for i := range e.rounds(30) {
		a, b := e.a.ready(conf{}), e.b.ready(conf{})
		e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
		e.must(b.accept(l.next("Connect"), e.b.params(verbs.Address{}, nil)), "Accept")
		switch i % 3 {
		case 0:
			e.must(b.v.Disconnect(false), "Disconnect")
		case 1:
			b.modify(verbs.QPError)
		case 2:
			b.destroy()
		}
		if ev := a.conn.next("the peer's end", verbs.ConnEstablished, verbs.ConnRefused, verbs.ConnRejected); ev.Kind == verbs.ConnEstablished {
			a.conn.next("the peer's end", verbs.ConnDisconnected, verbs.ConnBroken)
		}
		if i%3 != 2 {
			if ev := b.conn.next("the end", verbs.ConnEstablished, verbs.ConnAborted, verbs.ConnAcceptFailed); ev.Kind == verbs.ConnEstablished {
				b.conn.next("the end", verbs.ConnDisconnected, verbs.ConnBroken)
			}
		}
		a.destroy()
		if !b.gone {
			b.destroy()
		}
	}
}

func connectPeerCloses(e *env) {
	l := e.b.listen()
	a := e.a.ready(conf{})
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	l.next("Connect")
	e.b.close()
	a.conn.next("the close of the peer's context", verbs.ConnRefused, verbs.ConnRejected)
	a.state(verbs.QPError)
}

func connectAgain(e *env) {
	a, _ := e.declined(func(r verbs.ConnRequest) error { return r.Reject(nil) }, verbs.ConnRejected)
	l := e.b.listen()
	for i := range e.rounds(20) {
		a.modify(verbs.QPReset)
		a.modify(verbs.QPInitialized)
		e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
		r := l.next("Connect")
		switch i % 3 {
		case 0:
			e.must(r.Refuse(), "Refuse")
			a.conn.next("Refuse", verbs.ConnRefused)
		case 1:
			e.must(a.v.Disconnect(false), "Disconnect")
			a.conn.next("Disconnect", verbs.ConnAborted)
		case 2:
			e.must(r.Reject(nil), "Reject")
			a.conn.next("Reject", verbs.ConnRejected)
		}
		a.state(verbs.QPError)
	}
	a.modify(verbs.QPReset)
	a.modify(verbs.QPInitialized)
	b := e.b.ready(conf{})
	e.connect(a, b)
	e.ping(a, b)
}

// connectMany: each client sends its number and must get it back.
func connectMany(e *env) {
	n := min(24, e.a.attr.MaxQP/2, e.a.attr.MaxCQ/4)
	l := e.b.listenTo(verbs.ListenConfig{Backlog: n})
	var as, bs []*qp
	for range n {
		as, bs = append(as, e.a.ready(conf{})), append(bs, e.b.ready(conf{}))
	}
	e.together(n, func(i int) {
		if err := as[i].connect(e.a.params(l.v.Addr(), []byte{byte(i + 1)})); err != nil {
			e.Errorf("Connect %d: %v", i, err)
		}
	})
	who := make([]int, n)
	for i := range n {
		r := l.next("Connect")
		d := r.PrivateData()
		if len(d) == 0 {
			e.Fatal("a request without its private data")
		}
		who[i] = int(d[0]) - 1
		e.must(bs[i].accept(r, e.b.params(verbs.Address{}, d[:1])), "Accept")
	}
	for i, a := range as {
		ev := a.conn.next("Accept", verbs.ConnEstablished)
		checkPrivate(e, e.a, "answer", ev.PrivateData, []byte{byte(i + 1)})
	}
	for i, b := range bs {
		b.conn.next("Accept", verbs.ConnEstablished)
		b.state(verbs.QPRTS)
		as[who[i]].state(verbs.QPRTS)
		e.ping(as[who[i]], b)
	}
}

func connectSelf(e *env) {
	a, b := e.a.ready(conf{}), e.a.ready(conf{})
	e.connect(a, b)
	e.ping(a, b)
	e.ping(b, a)
	e.disconnect(a, b, true)
}
