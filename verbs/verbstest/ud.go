package verbstest

import (
	"kdapl/verbs"
)

var udRules = []rule{
	{"a datagram arrives with its source and payload", verbs.CapUD, udArrives},
	{"a datagram of no bytes arrives", verbs.CapUD, udEmpty},
	{"a datagram brings immediate data", verbs.CapUD | verbs.CapSendImm, udImm},
	{"a datagram with another QKey is dropped", verbs.CapUD, udWrongQKey},
	{"a datagram for no QP is dropped", verbs.CapUD, udNoQP},
	{"a datagram without a receive is dropped and the sender not held", verbs.CapUD, udNoRecv},
	{"one QP sends to several", verbs.CapUD, udSeveral},
	{"a UD QP is answered by its number", verbs.CapUD, udAnswer},
	{"a UD QP only sends", verbs.CapUD, udOnlySends},
	{"a UD QP has no connection", verbs.CapUD, udNoConnection},
	{"calls on a UD QP by state", verbs.CapUD, udStates},
	{"a UD QP flushes like any other", verbs.CapUD, udFlush},
	{"an unknown address handle is refused", verbs.CapUD, udUnknownAH},
	{"address handles differ and can be destroyed", verbs.CapUD, udHandles},
}

const qkey = 0x11223344

// ud makes a UD QP in QPRTS.
func (s *side) ud() *qp {
	s.e.Helper()
	q := s.ready(conf{typ: verbs.UD, qkey: qkey})
	q.modify(verbs.QPRTS)
	return q
}

// handle makes an address handle for the other end.
func (s *side) handle() verbs.AH {
	s.e.Helper()
	ah, err := s.pd.CreateAH(verbs.Address{IP: s.peer().attr.Addr})
	s.e.must(err, "CreateAH for %v", s.peer().attr.Addr)
	return ah
}

// datagram is a send to a QP.
func (e *env) datagram(ah verbs.AH, to *qp, sges ...verbs.SGE) verbs.SendWR {
	wr := e.send(sges...)
	wr.AH, wr.RemoteQPN, wr.QKey = ah.Handle(), to.v.Num(), qkey
	return wr
}

// grh is the length of the global route header before the payload of a receive.
func grh(c verbs.Completion) int {
	if c.Flags&verbs.CompletionGRH != 0 {
		return 40
	}
	return 0
}

// deliver sends a datagram until one arrives, for datagrams may be lost, and returns the
// completion of the receive. The receiver must have receives enough.
func (e *env) deliver(from, to *qp, again func() verbs.SendWR) verbs.Completion {
	e.Helper()
	for tries := 0; ; tries++ {
		from.post(again())
		from.scq.ok(1, "datagram")
		for i := range 20 * spins {
			if to.rcq.size() > 0 {
				return to.rcq.ok(1, "datagram")[0]
			}
			e.pause(i + 1)
		}
		if tries == 10 {
			e.Fatal("none of 10 datagrams arrived")
		}
	}
}

func udArrives(e *env) {
	a, b := e.a.ud(), e.b.ud()
	ah := e.a.handle()
	src, dst := e.a.source(100), e.b.mem(256, localWrite)
	for range 12 {
		b.recv(e.recv(dst.all()))
	}
	c := e.deliver(a, b, func() verbs.SendWR { return e.datagram(ah, b, src.all()) })
	if c.SrcQPN != a.v.Num() || int(c.Length) != 100+grh(c) || c.Op != verbs.OpRecv {
		e.Errorf("a datagram of 100 bytes from QP %#x: %v, source %#x", a.v.Num(), c, c.SrcQPN)
	}
	dst.same(grh(c), src.buf, "a datagram")
}

func udEmpty(e *env) {
	a, b := e.a.ud(), e.b.ud()
	ah := e.a.handle()
	dst := e.b.mem(64, localWrite)
	for range 12 {
		b.recv(e.recv(dst.all()))
	}
	c := e.deliver(a, b, func() verbs.SendWR { return e.datagram(ah, b) })
	if int(c.Length) != grh(c) {
		e.Errorf("a datagram of no bytes: %v", c)
	}
}

func udImm(e *env) {
	a, b := e.a.ud(), e.b.ud()
	ah := e.a.handle()
	dst := e.b.mem(64, localWrite)
	for range 12 {
		b.recv(e.recv(dst.all()))
	}
	c := e.deliver(a, b, func() verbs.SendWR {
		wr := e.datagram(ah, b)
		wr.Op, wr.Imm = verbs.OpSendImm, 0x01020304
		return wr
	})
	if c.Flags&verbs.CompletionImm == 0 || c.Imm != 0x01020304 {
		e.Errorf("a datagram with immediate: %v, immediate %#x", c, c.Imm)
	}
}

// udDropped posts a datagram that must not arrive: the sender sees success, the
// receiver nothing.
func (e *env) udDropped(change func(*verbs.SendWR), what string) {
	e.Helper()
	a, b := e.a.ud(), e.b.ud()
	ah := e.a.handle()
	dst := e.b.mem(64, localWrite)
	for range 12 {
		b.recv(e.recv(dst.all()))
	}
	wr := e.datagram(ah, b, e.a.source(8).all())
	change(&wr)
	a.post(wr)
	a.scq.ok(1, what)
	b.rcq.none(what)
	e.deliver(a, b, func() verbs.SendWR { return e.datagram(ah, b, e.a.source(8).all()) })
}

func udWrongQKey(e *env) {
	e.udDropped(func(wr *verbs.SendWR) { wr.QKey ^= 1 }, "a datagram with another QKey")
}

func udNoQP(e *env) {
	gone := e.b.ud()
	num := gone.v.Num()
	gone.destroy()
	e.udDropped(func(wr *verbs.SendWR) { wr.RemoteQPN = num }, "a datagram for a QP that is gone")
	rc := e.b.ready(conf{})
	rc.recv(e.recv(e.b.mem(64, localWrite).all()))
	e.udDropped(func(wr *verbs.SendWR) { wr.RemoteQPN = rc.v.Num() }, "a datagram for an RC QP")
	rc.rcq.none("a datagram for an RC QP")
}

func udNoRecv(e *env) {
	a, b := e.a.ud(), e.b.ud()
	ah := e.a.handle()
	for range 10 {
		a.post(e.datagram(ah, b))
		a.scq.ok(1, "a datagram without a receive")
	}
	dst := e.b.mem(64, localWrite)
	for range 12 {
		b.recv(e.recv(dst.all()))
	}
	b.rcq.none("datagrams that came before the receive")
	e.deliver(a, b, func() verbs.SendWR { return e.datagram(ah, b) })
	if a.v.State() != verbs.QPRTS || b.v.State() != verbs.QPRTS {
		e.Errorf("lost datagrams left the QPs in %v and %v", a.v.State(), b.v.State())
	}
}

func udSeveral(e *env) {
	a := e.a.ud()
	ah := e.a.handle()
	for range 3 {
		b := e.b.ud()
		dst := e.b.mem(64, localWrite)
		for range 12 {
			b.recv(e.recv(dst.all()))
		}
		src := e.a.source(16)
		c := e.deliver(a, b, func() verbs.SendWR { return e.datagram(ah, b, src.all()) })
		dst.same(grh(c), src.buf, "a datagram")
	}
}

func udAnswer(e *env) {
	a, b := e.a.ud(), e.b.ud()
	for _, q := range []*qp{a, b} {
		dst := q.s.mem(64, localWrite)
		for range 12 {
			q.recv(e.recv(dst.all()))
		}
	}
	there, back := e.a.handle(), e.b.handle()
	c := e.deliver(a, b, func() verbs.SendWR { return e.datagram(there, b) })
	c = e.deliver(b, a, func() verbs.SendWR {
		wr := e.datagram(back, a)
		wr.RemoteQPN = c.SrcQPN
		return wr
	})
	if c.SrcQPN != b.v.Num() {
		e.Errorf("the answer comes from %#x, want %#x", c.SrcQPN, b.v.Num())
	}
}

func udOnlySends(e *env) {
	a, b := e.a.ud(), e.b.ud()
	ah := e.a.handle()
	target := e.b.mem(64, e.b.remoteAll())
	ops := append(e.remoteOps(), verbs.OpSendInval)
	for _, op := range ops {
		wr := e.rdma(op, target, 0, e.a.sink(8).all())
		wr.AH, wr.RemoteQPN, wr.QKey = ah.Handle(), b.v.Num(), qkey
		a.rejected(wr, op.String()+" on a UD QP", verbs.ErrInvalid, verbs.ErrNotSupported)
	}
	target.zero(0, 64, "the target of refused requests")
}

func udNoConnection(e *env) {
	a := e.a.ud()
	e.refused(a.v.Disconnect(true), "Disconnect of a UD QP", verbs.ErrState, verbs.ErrInvalid, verbs.ErrNotSupported)
	e.refused(a.v.Disconnect(false), "abrupt Disconnect of a UD QP", verbs.ErrState, verbs.ErrInvalid, verbs.ErrNotSupported)
	l := e.a.listen()
	ready := e.a.ready(conf{typ: verbs.UD, qkey: qkey})
	e.refused(ready.v.Connect(e.a.params(l.v.Addr(), nil)), "Connect of a UD QP that is not in QPRTS", verbs.ErrState, verbs.ErrInvalid)
	active := e.b.ready(conf{})
	e.must(active.connect(e.b.params(l.v.Addr(), nil)), "Connect")
	r := l.next("Connect")
	e.refused(r.Accept(a.v, e.a.params(verbs.Address{}, nil)), "Accept with a UD QP", verbs.ErrState, verbs.ErrInvalid, verbs.ErrNotSupported)
	e.must(r.Reject(nil), "Reject")
	active.conn.next("Reject", verbs.ConnRejected)
}

func udStates(e *env) {
	q := e.a.qp(conf{typ: verbs.UD, qkey: qkey})
	ah := e.a.handle()
	try := func(call string, allowed outcome, err error) {
		e.Helper()
		what := call + " in " + q.v.State().String()
		if bool(allowed) {
			e.must(err, "%s", what)
		} else {
			e.refused(err, what, verbs.ErrState)
		}
	}
	posts := func(send, recv outcome) {
		e.Helper()
		try("PostSend", send, accept2(q.tryPost(e.datagram(ah, q))))
		try("PostRecv", recv, accept2(q.tryRecv(e.recv())))
	}
	posts(no, no)
	try("Modify to RTS", no, q.tryModify(verbs.QPRTS))
	try("Modify to Error", no, q.tryModify(verbs.QPError))
	q.modify(verbs.QPInitialized)
	posts(no, yes)
	try("Modify to Initialized", no, q.tryModify(verbs.QPInitialized))
	q.modify(verbs.QPRTS)
	if s := q.v.State(); s != verbs.QPRTS {
		e.Errorf("after Modify to RTS the QP is in %v", s)
	}
	posts(yes, yes)
	try("Modify to RTS", no, q.tryModify(verbs.QPRTS))
	try("Modify to Initialized", no, q.tryModify(verbs.QPInitialized))
	q.modify(verbs.QPError)
	posts(yes, yes)
	try("Modify to RTS", no, q.tryModify(verbs.QPRTS))
	q.modify(verbs.QPReset)
	posts(no, no)
	q.modify(verbs.QPInitialized)
	q.modify(verbs.QPRTS)
	posts(yes, yes)
}

func udFlush(e *env) {
	q := e.a.ud()
	q.recv(e.recv(), e.recv())
	q.modify(verbs.QPError)
	for _, c := range q.rcq.untilMark(q, true, "Modify to Error") {
		q.failed(c, "a receive of a UD QP", verbs.StatusFlushed)
	}
	q.scq.untilMark(q, false, "Modify to Error")
	q.post(e.datagram(e.a.handle(), q))
	q.failed(q.scq.one("send in Error"), "send in Error", verbs.StatusFlushed)
}

func udUnknownAH(e *env) {
	a, b := e.a.ud(), e.b.ud()
	ah := e.a.handle()
	for _, flip := range []uint32{1, 1 << 20, ^uint32(0)} {
		wr := e.datagram(ah, b)
		wr.AH ^= flip
		e.badHandle(a, wr, "a datagram with an unknown address handle")
	}
	wr := e.datagram(ah, b)
	e.must(ah.Destroy(), "AH.Destroy")
	e.badHandle(a, wr, "a datagram with a destroyed address handle")
	e.closed("AH.Destroy", ah.Destroy())
}

// badHandle checks that a datagram is refused, or fails when it runs.
func (e *env) badHandle(q *qp, wr verbs.SendWR, what string) {
	e.Helper()
	atPost := q.fails(wr, what, []error{verbs.ErrInvalid, verbs.ErrProtection}, verbs.StatusLocalQPOp, verbs.StatusLocalProtection)
	if atPost {
		return
	}
	q.state(verbs.QPError)
	for _, to := range []verbs.QPState{verbs.QPReset, verbs.QPInitialized, verbs.QPRTS} {
		q.modify(to)
	}
}

func udHandles(e *env) {
	seen := map[uint32]bool{}
	for range min(50, e.a.attr.MaxAH) {
		h := e.a.handle().Handle()
		if seen[h] {
			e.Fatalf("two address handles are %#x", h)
		}
		seen[h] = true
	}
}
