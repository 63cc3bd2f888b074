package verbstest

import (
	"bytes"

	"kdapl/verbs"
)

// How a UD QP learns the number and key of another one.
var questionRules = []rule{
	{"a UD QP learns where the QP behind a port takes datagrams, and the other way around", verbs.CapUD, questionAnswered},
	{"a question is not a request for a connection", verbs.CapUD, questionKind},
	{"a UD QP asks several at a time and is named in several answers", verbs.CapUD, questionSeveral},
	{"a question leaves the state of the QPs alone", verbs.CapUD, questionState},
	{"a question can be rejected and refused", verbs.CapUD, questionDeclined},
	{"a question where nobody listens is refused, one to nobody's address unreachable", verbs.CapUD, questionNobody},
	{"a question times out", verbs.CapUD, questionTimesOut},
	{"a question ends with its QP", verbs.CapUD, questionAborted},
	{"a question is answered once", verbs.CapUD, questionOnce},
	{"a question wants a UD QP that is ready", verbs.CapUD, questionWrongQP},
}

// introduce asks from a for a QP of b, which answers with b.
func (e *env) introduce(l *listener, a, b *qp) (ae, be verbs.ConnEvent) {
	e.Helper()
	e.must(a.connect(a.s.params(l.v.Addr(), []byte("who"))), "Connect of a UD QP")
	r := l.next("the question of a UD QP")
	if !bytes.Equal(r.PrivateData(), []byte("who")) {
		e.Errorf("private data of a question: %q", r.PrivateData())
	}
	e.must(b.accept(r, b.s.params(verbs.Address{}, []byte("me"))), "Accept with a UD QP")
	ae = a.conn.next("question", verbs.ConnEstablished)
	be = b.conn.next("answer", verbs.ConnEstablished)
	return ae, be
}

func questionAnswered(e *env) {
	a, b := e.a.ud(), e.b.ready(conf{typ: verbs.UD, qkey: qkey + 1})
	b.modify(verbs.QPRTS)
	l := e.b.listen()
	ae, be := e.introduce(l, a, b)
	if ae.RemoteQPN != b.v.Num() || ae.RemoteQKey != qkey+1 || !bytes.Equal(ae.PrivateData, []byte("me")) || ae.Remote != l.v.Addr() {
		e.Errorf("a QP %#x with key %#x at %v answers %v, QP %#x, key %#x, %q", b.v.Num(), qkey+1, l.v.Addr(), ae, ae.RemoteQPN, ae.RemoteQKey, ae.PrivateData)
	}
	if be.RemoteQPN != a.v.Num() || be.RemoteQKey != qkey || be.Remote.IP != e.a.attr.Addr || len(be.PrivateData) != 0 {
		e.Errorf("a QP %#x with key %#x asks: %v, QP %#x, key %#x, %q", a.v.Num(), qkey, be, be.RemoteQPN, be.RemoteQKey, be.PrivateData)
	}
	// What both have learned is what a datagram needs.
	for _, way := range []struct {
		from, to *qp
		ev       verbs.ConnEvent
	}{{a, b, ae}, {b, a, be}} {
		ah, err := way.from.s.pd.CreateAH(way.ev.Remote)
		e.must(err, "CreateAH for %v", way.ev.Remote)
		src, dst := way.from.s.source(50), way.to.s.mem(128, localWrite)
		for range 12 {
			way.to.recv(e.recv(dst.all()))
		}
		c := e.deliver(way.from, way.to, func() verbs.SendWR {
			wr := e.send(src.all())
			wr.AH, wr.RemoteQPN, wr.QKey = ah.Handle(), way.ev.RemoteQPN, way.ev.RemoteQKey
			return wr
		})
		dst.same(grh(c), src.buf, "a datagram to a QP that was asked for")
	}
}

func questionKind(e *env) {
	l := e.b.listen()
	a := e.a.ud()
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect of a UD QP")
	r := l.next("question")
	if qpn, key, ud := r.RemoteQP(); !ud || qpn != a.v.Num() || key != qkey {
		e.Errorf("RemoteQP of a question: %#x, %#x, %v; want %#x, %#x", qpn, key, ud, a.v.Num(), qkey)
	}
	e.must(r.Refuse(), "Refuse")
	a.conn.next("Refuse", verbs.ConnRefused)
	rc := e.a.ready(conf{})
	e.must(rc.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	r = l.next("Connect")
	if _, _, ud := r.RemoteQP(); ud {
		e.Errorf("RemoteQP takes a connection for a question")
	}
	e.must(r.Refuse(), "Refuse")
	rc.conn.next("Refuse", verbs.ConnRefused)
}

func questionSeveral(e *env) {
	const n = 5
	a := e.a.ud()
	l := e.b.listen()
	for range n {
		e.must(a.connect(e.a.params(l.v.Addr(), nil)), "one of several questions")
	}
	shared, own := e.b.ud(), e.b.ud()
	want := map[uint32]int{shared.v.Num(): n - 1, own.v.Num(): 1}
	for i := range n {
		q := shared
		if i == n/2 {
			q = own
		}
		e.must(q.accept(l.next("one of several questions"), e.b.params(verbs.Address{}, nil)), "Accept")
		q.conn.next("Accept", verbs.ConnEstablished)
	}
	for range n {
		want[a.conn.next("one of several questions", verbs.ConnEstablished).RemoteQPN]--
	}
	for qpn, left := range want {
		if left != 0 {
			e.Errorf("%d events too few for QP %#x", left, qpn)
		}
	}
}

func questionState(e *env) {
	a, b := e.a.ud(), e.b.ud()
	l := e.b.listen()
	e.introduce(l, a, b)
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	e.must(l.next("question").Reject(nil), "Reject")
	a.conn.next("Reject", verbs.ConnRejected)
	a.state(verbs.QPRTS)
	b.state(verbs.QPRTS)
	a.conn.none("behind questions")
	b.conn.none("behind answers")
}

func questionDeclined(e *env) {
	a := e.a.ud()
	l := e.b.listen()
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	e.must(l.next("question").Reject([]byte("no")), "Reject")
	if ev := a.conn.next("Reject", verbs.ConnRejected); !bytes.Equal(ev.PrivateData, []byte("no")) || ev.Remote != l.v.Addr() {
		e.Errorf("rejected by %v with %q: %v, %q", l.v.Addr(), "no", ev, ev.PrivateData)
	}
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	e.must(l.next("question").Refuse(), "Refuse")
	a.conn.next("Refuse", verbs.ConnRefused)
}

func questionNobody(e *env) {
	a := e.a.ud()
	l := e.b.listen()
	addr := l.v.Addr()
	l.close()
	e.must(a.connect(e.a.params(addr, nil)), "Connect")
	a.conn.next("nobody listens", verbs.ConnRefused)
	if e.pair.Unreachable.IP.IsValid() {
		e.must(a.connect(e.a.params(e.pair.Unreachable, nil)), "Connect")
		a.conn.next("nobody's address", verbs.ConnUnreachable)
	}
	e.refused(a.v.Connect(e.a.params(verbs.Address{}, nil)), "Connect to no address", verbs.ErrAddr, verbs.ErrInvalid)
}

func questionTimesOut(e *env) {
	a := e.a.ud()
	l := e.b.listen()
	p := e.a.params(l.v.Addr(), nil)
	p.Timeout = soon
	e.must(a.connect(p), "Connect")
	r := l.next("question")
	a.conn.next("no answer", verbs.ConnTimedOut)
	e.refused(r.Accept(e.b.ud().v, e.b.params(verbs.Address{}, nil)), "Accept of a question that timed out", verbs.ErrPeerGone)
}

func questionAborted(e *env) {
	l := e.b.listen()
	for _, to := range []verbs.QPState{verbs.QPError, verbs.QPReset} {
		a := e.a.ud()
		e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
		r := l.next("question")
		a.modify(to)
		a.conn.next("Modify to "+to.String(), verbs.ConnAborted)
		e.refused(r.Accept(e.b.ud().v, e.b.params(verbs.Address{}, nil)), "Accept of a question whose QP is in "+to.String(), verbs.ErrPeerGone)
		e.refused(a.v.Connect(e.a.params(l.v.Addr(), nil)), "Connect in "+to.String(), verbs.ErrState, verbs.ErrInvalid)
	}
	a := e.a.ud()
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	r := l.next("question")
	a.destroy()
	e.refused(r.Reject(nil), "Reject of a question whose QP is gone", verbs.ErrPeerGone)
}

func questionOnce(e *env) {
	a, b := e.a.ud(), e.b.ud()
	l := e.b.listen()
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	r := l.next("question")
	e.must(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept")
	e.refused(r.Accept(b.v, e.b.params(verbs.Address{}, nil)), "a second Accept", verbs.ErrState)
	e.refused(r.Reject(nil), "Reject behind Accept", verbs.ErrState)
	e.refused(r.Refuse(), "Refuse behind Accept", verbs.ErrState)
	a.conn.next("Accept", verbs.ConnEstablished)
	a.conn.none("behind the answer")
}

func questionWrongQP(e *env) {
	a := e.a.ud()
	l := e.b.listen()
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	r := l.next("question")
	early := e.b.ready(conf{typ: verbs.UD, qkey: qkey})
	e.refused(r.Accept(e.b.ready(conf{}).v, e.b.params(verbs.Address{}, nil)), "Accept of a question with an RC QP", verbs.ErrState, verbs.ErrInvalid)
	e.refused(r.Accept(early.v, e.b.params(verbs.Address{}, nil)), "Accept with a QP in QPInitialized", verbs.ErrState, verbs.ErrInvalid)
	b := e.b.ud()
	e.must(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept after refusals")
	a.conn.next("Accept", verbs.ConnEstablished)
	b.conn.next("Accept", verbs.ConnEstablished)
}
