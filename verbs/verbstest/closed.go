package verbstest

import "kdapl/verbs"

var closedRules = []rule{
	{"a destroyed QP refuses every call", 0, closedQP},
	{"a destroyed CQ refuses every call and is empty", 0, closedCQ},
	{"a destroyed SRQ refuses every call", verbs.CapSRQ, closedSRQ},
	{"a deregistered region refuses every call", 0, closedMR},
	{"a deallocated window refuses every call", 0, closedMW},
	{"a deallocated PD refuses every call", 0, closedPD},
	{"a closed listener can be closed again", 0, closedListener},
	{"a closed context refuses every call", 0, closedContext},
	{"a closed context has destroyed all its objects", 0, closedContextObjects},
	{"a QP cannot be made of a destroyed CQ", 0, qpOfDestroyedCQ},
}

// closed checks that a call returns ErrClosed.
func (e *env) closed(what string, err error) {
	e.Helper()
	e.refused(err, what, verbs.ErrClosed)
}

// qpClosed makes every call of a destroyed QP.
func (e *env) qpClosed(q *qp) {
	e.Helper()
	n, err := q.v.PostSend([]verbs.SendWR{e.send()})
	e.closed("PostSend", err)
	m, err := q.v.PostRecv([]verbs.RecvWR{e.recv()})
	e.closed("PostRecv", err)
	if n != 0 || m != 0 {
		e.Errorf("a destroyed QP took %d sends and %d receives", n, m)
	}
	for _, to := range []verbs.QPState{verbs.QPReset, verbs.QPInitialized, verbs.QPRTS, verbs.QPError} {
		e.closed("Modify to "+to.String(), q.v.Modify(to))
	}
	e.closed("Connect", q.v.Connect(q.s.params(verbs.Address{IP: q.s.attr.Addr, Port: 1}, nil)))
	e.closed("Disconnect", q.v.Disconnect(true))
	e.closed("abrupt Disconnect", q.v.Disconnect(false))
	e.closed("Destroy", q.v.Destroy())
	q.v.Num()
	q.v.State()
}

func closedQP(e *env) {
	a, b := e.couple()
	a.destroy()
	e.qpClosed(a)
	fresh := e.a.qp(conf{})
	fresh.destroy()
	e.qpClosed(fresh)
	ready := e.a.ready(conf{})
	l := e.b.listen()
	ready.destroy()
	e.qpClosed(ready)
	b.conn.next("the peer's Destroy", verbs.ConnDisconnected, verbs.ConnBroken)

	// A request is not used up by a QP that is gone.
	c := e.a.ready(conf{})
	gone := e.b.ready(conf{})
	gone.destroy()
	e.must(c.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	r := l.next("Connect")
	e.refused(r.Accept(gone.v, e.b.params(verbs.Address{}, nil)), "Accept with a destroyed QP", verbs.ErrClosed)
	d := e.b.ready(conf{})
	e.must(d.accept(r, e.b.params(verbs.Address{}, nil)), "Accept with a live QP")
	c.conn.next("Accept", verbs.ConnEstablished)
	d.conn.next("Accept", verbs.ConnEstablished)
	e.ping(c, d)
}

// cqClosed makes every call of a destroyed CQ.
func (e *env) cqClosed(c *cq) {
	e.Helper()
	var buf [4]verbs.Completion
	if n := c.v.Poll(buf[:]); n != 0 {
		e.Errorf("Poll of a destroyed CQ returned %d", n)
	}
	c.v.Arm(verbs.ArmNext)
	c.v.Cap()
	e.closed("CQ.Resize", c.v.Resize(8))
	e.closed("CQ.Destroy", c.v.Destroy())
	if p, ok := c.v.(verbs.Peeker); ok {
		if n := p.Peek(8); n != 0 {
			e.Errorf("Peek of a destroyed CQ returned %d", n)
		}
	}
	if p, ok := c.v.(verbs.Progresser); ok {
		p.Progress()
	}
}

func closedCQ(e *env) {
	c := e.a.cq(8)
	q := e.a.ready(conf{scq: c, rcq: c})
	q.recv(e.recv())
	q.destroy()
	if len(c.seen) != 3 {
		e.Errorf("a destroyed QP left %d completions, want its receive and two marks", len(c.seen))
	}
	e.must(c.v.Destroy(), "CQ.Destroy")
	e.cqClosed(c)
}

func (e *env) srqClosed(v verbs.SRQ) {
	e.Helper()
	n, err := v.PostRecv([]verbs.RecvWR{e.recv()})
	e.closed("SRQ.PostRecv", err)
	if n != 0 {
		e.Errorf("a destroyed SRQ took %d receives", n)
	}
	e.refused(v.SetLimit(1), "SRQ.SetLimit", verbs.ErrClosed, verbs.ErrNotSupported)
	e.refused(v.Resize(8), "SRQ.Resize", verbs.ErrClosed, verbs.ErrNotSupported)
	v.Available()
	e.closed("SRQ.Destroy", v.Destroy())
}

func closedSRQ(e *env) {
	q := e.a.srq(4)
	e.must(q.v.Destroy(), "SRQ.Destroy")
	e.srqClosed(q.v)
}

func closedMR(e *env) {
	m := e.a.mem(64, localWrite)
	m.free()
	e.closed("MR.Dereg", m.mr.Dereg())
	m.mr.LKey()
	m.mr.RKey()
	if e.a.attr.Can(verbs.CapFastReg) {
		mr, err := e.a.pd.AllocFastMR(1)
		e.must(err, "AllocFastMR")
		e.must(mr.Dereg(), "Dereg")
		_, err = mr.Map([][]byte{make([]byte, 64)}, 0)
		e.closed("MR.Map", err)
		e.closed("MR.Dereg", mr.Dereg())
	}
}

func closedMW(e *env) {
	found := false
	for c, typ := range map[verbs.Caps]verbs.MWType{verbs.CapMW1: verbs.MWType1, verbs.CapMW2: verbs.MWType2} {
		if !e.a.attr.Can(c) {
			continue
		}
		found = true
		mw, err := e.a.pd.AllocMW(typ)
		e.must(err, "AllocMW")
		e.must(mw.Dealloc(), "MW.Dealloc")
		_, err = mw.NextKey()
		e.closed("MW.NextKey", err)
		e.closed("MW.Dealloc", mw.Dealloc())
		mw.RKey()
		if mw.Type() != typ {
			e.Errorf("a window of %v is of %v", typ, mw.Type())
		}
	}
	if !found {
		e.Skip("the device has no windows")
	}
}

// pdClosed makes every call of a PD that is gone.
func (e *env) pdClosed(s *side, pd verbs.PD) {
	e.Helper()
	closed := func(what string, err error, missing verbs.Caps) {
		e.Helper()
		if missing == 0 || s.attr.Can(missing) {
			e.closed(what, err)
		} else {
			e.refused(err, what, verbs.ErrClosed, verbs.ErrNotSupported)
		}
	}
	closed("RegMR", accept2(pd.RegMR(make([]byte, 64), 0, localWrite)), 0)
	closed("AllocFastMR", accept2(pd.AllocFastMR(1)), verbs.CapFastReg)
	closed("AllocMW", accept2(pd.AllocMW(verbs.MWType1)), verbs.CapMW1)
	closed("AllocMW", accept2(pd.AllocMW(verbs.MWType2)), verbs.CapMW2)
	closed("CreateSRQ", accept2(pd.CreateSRQ(verbs.SRQInit{MaxWR: 1, MaxSGE: 1})), verbs.CapSRQ)
	closed("CreateQP", accept2(pd.CreateQP(verbs.QPInit{Conn: func(verbs.ConnEvent) {}})), 0)
	closed("CreateAH", accept2(pd.CreateAH(verbs.Address{IP: s.attr.Addr, Port: 1})), verbs.CapUD)
	closed("Dealloc", pd.Dealloc(), 0)
}

func closedPD(e *env) {
	pd, err := e.a.ctx.AllocPD()
	e.must(err, "AllocPD")
	e.must(pd.Dealloc(), "Dealloc")
	e.pdClosed(e.a, pd)
}

func closedListener(e *env) {
	l := e.b.listen()
	l.close()
	if err := l.v.Close(); err != nil {
		e.closed("a second Listener.Close", err)
	}
	l.v.Addr()
}

func closedContext(e *env) {
	s := e.open("spare", e.pair.Active)
	s.close()
	e.closed("AllocPD", accept2(s.ctx.AllocPD()))
	e.closed("CreateCQ", accept2(s.ctx.CreateCQ(8, func() {})))
	e.closed("Listen", accept2(s.ctx.Listen(verbs.ListenConfig{Request: func(verbs.ConnRequest) {}})))
	e.closed("Close", s.ctx.Close())
	if s.ctx.Attr() == nil {
		e.Error("Attr of a closed context is nil")
	}
}

func closedContextObjects(e *env) {
	s := e.open("spare", e.pair.Active)
	m := s.mem(64, remoteBoth)
	cq := s.cq(16)
	q := s.ready(conf{scq: cq, rcq: cq, raw: true})
	q.recv(e.recv(m.all()))
	var srq *srq
	if s.attr.Can(verbs.CapSRQ) {
		srq = s.srq(4)
	}
	l := s.listen()
	s.close()
	e.qpClosed(q)
	e.cqClosed(cq)
	e.closed("MR.Dereg", m.mr.Dereg())
	if srq != nil {
		e.srqClosed(srq.v)
	}
	e.pdClosed(s, s.pd)
	if err := l.v.Close(); err != nil {
		e.closed("Listener.Close", err)
	}
}

func qpOfDestroyedCQ(e *env) {
	for _, side := range []string{"send", "receive"} {
		gone, other := e.a.cq(8), e.a.cq(8)
		e.must(gone.v.Destroy(), "CQ.Destroy")
		q := &qp{e: e, s: e.a, user: e.id()}
		q.conn = &connLog{q: q}
		c := conf{scq: gone, rcq: other}
		if side == "receive" {
			c = conf{scq: other, rcq: gone}
		}
		_, err := e.a.pd.CreateQP(e.a.init(q, c))
		e.refused(err, "CreateQP with a destroyed "+side+" CQ", verbs.ErrClosed, verbs.ErrInvalid)
	}
}
