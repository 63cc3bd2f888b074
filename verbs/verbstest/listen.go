package verbstest

import (
	"fmt"
	"net/netip"
	"sync/atomic"

	"kdapl/verbs"
)

var listenRules = []rule{
	{"port 0 is a free port and Addr tells which", 0, listenFreePort},
	{"a named port is taken, and freed by Close", 0, listenNamedPort},
	{"a port in use is refused", 0, listenInUse},
	{"the device's own address can be named", 0, listenOwnAddress},
	{"another address is refused", 0, listenForeignAddress},
	{"a port beyond MaxPort is refused", 0, listenBeyondMaxPort},
	{"a closed listener refuses connections", 0, listenClosed},
	{"a request outlives its listener", 0, requestOutlivesListener},
	{"several listeners get their own requests", 0, listenSeveral},
	{"a request names both ends", 0, requestEnds},
	{"a full backlog refuses", 0, listenBacklog},
	{"a request is answered once", 0, requestOnce},
	{"of several answers at once one takes effect", 0, requestRace},
	{"a listener can be closed in its callback", 0, listenCloseInCallback},
	{"a request can be answered in its callback", 0, answerInCallback},
	{"a request is not accepted with a QP of another context", 0, acceptForeignQP},
	{"a request can be left unanswered", 0, requestUnanswered},
}

func listenFreePort(e *env) {
	seen := map[verbs.Address]bool{}
	for range 5 {
		l := e.b.listen()
		addr := l.v.Addr()
		if addr.Port == 0 || addr.Port > e.b.attr.MaxPort || !addr.IP.IsValid() || addr.IP.IsUnspecified() {
			e.Errorf("a listener on a free port is at %v", addr)
		}
		if seen[addr] {
			e.Errorf("two listeners are at %v", addr)
		}
		seen[addr] = true
	}
}

func listenNamedPort(e *env) {
	first := e.b.listen()
	addr := first.v.Addr()
	first.close()
	for range 3 {
		l := e.b.listenTo(verbs.ListenConfig{Local: addr})
		if got := l.v.Addr(); got != addr {
			e.Errorf("a listener for %v is at %v", addr, got)
		}
		a, b := e.a.ready(conf{}), e.b.ready(conf{})
		e.connectAt(l, a, b, e.a.params(addr, nil), e.b.params(verbs.Address{}, nil))
		a.destroy()
		b.destroy()
		l.close()
	}
}

func listenInUse(e *env) {
	l := e.b.listen()
	for _, local := range []verbs.Address{l.v.Addr(), {Port: l.v.Addr().Port}} {
		_, err := e.b.ctx.Listen(verbs.ListenConfig{Local: local, Request: func(verbs.ConnRequest) {}})
		e.refused(err, fmt.Sprintf("Listen at %v, which is in use", local), verbs.ErrAddrInUse)
	}
	// The first still works.
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	e.connectAt(l, a, b, e.a.params(l.v.Addr(), nil), e.b.params(verbs.Address{}, nil))
}

func listenOwnAddress(e *env) {
	l := e.b.listenTo(verbs.ListenConfig{Local: verbs.Address{IP: e.b.attr.Addr}})
	if got := l.v.Addr(); got.IP != e.b.attr.Addr || got.Port == 0 {
		e.Errorf("a listener at the device's address %v is at %v", e.b.attr.Addr, got)
	}
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	e.connectAt(l, a, b, e.a.params(l.v.Addr(), nil), e.b.params(verbs.Address{}, nil))
}

func listenForeignAddress(e *env) {
	// TEST-NET-1 and the documentation prefix of RFC 5737 and RFC 3849 are nobody's.
	for _, ip := range []string{"192.0.2.77", "2001:db8::77"} {
		_, err := e.b.ctx.Listen(verbs.ListenConfig{
			Local: verbs.Address{IP: netip.MustParseAddr(ip)}, Request: func(verbs.ConnRequest) {},
		})
		e.refused(err, "Listen at the foreign address "+ip, verbs.ErrAddr)
	}
}

func listenBeyondMaxPort(e *env) {
	if e.b.attr.MaxPort == ^uint64(0) {
		e.Skip("every number is a port of this device")
	}
	for _, port := range []uint64{e.b.attr.MaxPort + 1, ^uint64(0)} {
		_, err := e.b.ctx.Listen(verbs.ListenConfig{Local: verbs.Address{Port: port}, Request: func(verbs.ConnRequest) {}})
		e.refused(err, fmt.Sprintf("Listen at port %d", port), verbs.ErrAddr)
		q := e.a.ready(conf{})
		if err := q.connect(e.a.params(verbs.Address{IP: e.b.attr.Addr, Port: port}, nil)); err != nil {
			e.refused(err, fmt.Sprintf("Connect to port %d", port), verbs.ErrAddr, verbs.ErrInvalid)
		} else {
			q.conn.next("Connect beyond MaxPort", verbs.ConnRefused, verbs.ConnUnreachable)
		}
	}
}

func listenClosed(e *env) {
	l := e.b.listen()
	addr := l.v.Addr()
	l.close()
	q := e.a.ready(conf{})
	e.must(q.connect(e.a.params(addr, nil)), "Connect")
	q.conn.next("Connect to a closed listener", verbs.ConnRefused)
	if n := len(l.reqs); n != 0 {
		e.Errorf("a closed listener got %d requests", n)
	}
}

func requestOutlivesListener(e *env) {
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	l := e.b.listen()
	e.must(a.connect(e.a.params(l.v.Addr(), []byte("hello"))), "Connect")
	r := l.next("Connect")
	l.close()
	checkPrivate(e, e.b, "request of a closed listener", r.PrivateData(), []byte("hello"))
	e.must(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept")
	a.conn.next("Accept", verbs.ConnEstablished)
	b.conn.next("Accept", verbs.ConnEstablished)
	e.ping(a, b)
}

func listenSeveral(e *env) {
	var ls []*listener
	for range 3 {
		ls = append(ls, e.b.listen())
	}
	for i, l := range ls {
		a, b := e.a.ready(conf{}), e.b.ready(conf{})
		e.must(a.connect(e.a.params(l.v.Addr(), []byte{byte(i)})), "Connect")
		r := l.next("Connect")
		if d := r.PrivateData(); len(d) == 0 || d[0] != byte(i) {
			e.Errorf("listener %d got the request %v", i, d)
		}
		e.must(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept")
		a.conn.next("Accept", verbs.ConnEstablished)
	}
	for i, l := range ls {
		if n := len(l.reqs); n != 0 {
			e.Errorf("listener %d got %d requests too many", i, n)
		}
	}
}

func requestEnds(e *env) {
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	l := e.b.listen()
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	r := l.next("Connect")
	local, remote := r.Local(), r.Remote()
	if local != l.v.Addr() {
		e.Errorf("a request at %v says it is at %v", l.v.Addr(), local)
	}
	if remote.IP != e.a.attr.Addr {
		e.Errorf("a request from %v says it is from %v", e.a.attr.Addr, remote)
	}
	e.must(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept")
	ae, be := a.conn.next("Accept", verbs.ConnEstablished), b.conn.next("Accept", verbs.ConnEstablished)
	if ae.Remote != l.v.Addr() || (be.Local.IP.IsValid() && be.Local != l.v.Addr()) {
		e.Errorf("connected to %v: the active side sees %v, the passive side is %v", l.v.Addr(), ae.Remote, be.Local)
	}
	if ae.Local.IP.IsValid() && (ae.Local.IP != e.a.attr.Addr || (be.Remote.IP.IsValid() && be.Remote != ae.Local)) {
		e.Errorf("connected from %v: the passive side sees %v", ae.Local, be.Remote)
	}
}

func listenBacklog(e *env) {
	l := e.b.listenTo(verbs.ListenConfig{Backlog: 1})
	first, second := e.a.ready(conf{}), e.a.ready(conf{})
	e.must(first.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	r := l.next("Connect")
	e.must(second.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	second.conn.next("Connect to a full backlog", verbs.ConnRefused)
	b := e.b.ready(conf{})
	e.must(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept")
	first.conn.next("Accept", verbs.ConnEstablished)
	b.conn.next("Accept", verbs.ConnEstablished)
	// The answer has made room.
	third, c := e.a.ready(conf{}), e.b.ready(conf{})
	e.connectAt(l, third, c, e.a.params(l.v.Addr(), nil), e.b.params(verbs.Address{}, nil))
	if n := len(l.reqs); n != 0 {
		e.Errorf("%d requests beyond the backlog", n)
	}
}

func requestOnce(e *env) {
	l := e.b.listen()
	for name, answer := range map[string]func(verbs.ConnRequest, *qp) error{
		"Accept": func(r verbs.ConnRequest, q *qp) error { return q.accept(r, e.b.params(verbs.Address{}, nil)) },
		"Reject": func(r verbs.ConnRequest, _ *qp) error { return r.Reject(nil) },
		"Refuse": func(r verbs.ConnRequest, _ *qp) error { return r.Refuse() },
	} {
		a, b, c := e.a.ready(conf{}), e.b.ready(conf{}), e.b.ready(conf{})
		e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
		r := l.next("Connect")
		e.must(answer(r, b), "%s", name)
		e.refused(c.accept(r, e.b.params(verbs.Address{}, nil)), "Accept after "+name, verbs.ErrState)
		e.refused(r.Reject(nil), "Reject after "+name, verbs.ErrState)
		e.refused(r.Refuse(), "Refuse after "+name, verbs.ErrState)
		a.conn.next(name, verbs.ConnEstablished, verbs.ConnRejected, verbs.ConnRefused)
		a.conn.none("after " + name)
		if s := c.v.State(); s != verbs.QPInitialized {
			e.Errorf("a QP that was not accepted is in %v", s)
		}
	}
}

func requestRace(e *env) {
	l := e.b.listen()
	for range e.rounds(50) {
		a := e.a.ready(conf{})
		e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
		r := l.next("Connect")
		b1, b2 := e.b.ready(conf{}), e.b.ready(conf{})
		var took atomic.Int32
		errs := make([]error, 4)
		e.together(4, func(i int) {
			switch i {
			case 0:
				errs[i] = b1.accept(r, e.b.params(verbs.Address{}, nil))
			case 1:
				errs[i] = b2.accept(r, e.b.params(verbs.Address{}, nil))
			case 2:
				errs[i] = r.Reject(nil)
			case 3:
				errs[i] = r.Refuse()
			}
			if errs[i] == nil {
				took.Add(1)
			}
		})
		if n := took.Load(); n != 1 {
			e.Errorf("%d of four answers took effect: %v", n, errs)
		}
		for _, err := range errs {
			if err != nil {
				e.refused(err, "an answer that came too late", verbs.ErrState)
			}
		}
		a.conn.next("an answer", verbs.ConnEstablished, verbs.ConnRejected, verbs.ConnRefused)
		for _, q := range []*qp{a, b1, b2} {
			q.destroy()
		}
	}
}

func listenCloseInCallback(e *env) {
	lis := make(chan verbs.Listener, 1)
	reqs := make(chan verbs.ConnRequest, 8)
	l, err := e.b.ctx.Listen(verbs.ListenConfig{Request: func(r verbs.ConnRequest) {
		l := <-lis
		if err := l.Close(); err != nil {
			e.Errorf("Close in the callback of a request: %v", err)
		}
		reqs <- r
	}})
	e.must(err, "Listen")
	addr := l.Addr()
	lis <- l
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	e.bounded("Connect", func() {
		if err := a.connect(e.a.params(addr, nil)); err != nil {
			e.Errorf("Connect: %v", err)
		}
	})
	r := (&listener{s: e.b, reqs: reqs}).next("Connect")
	e.must(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept")
	a.conn.next("Accept", verbs.ConnEstablished)
}

func answerInCallback(e *env) {
	b := e.b.ready(conf{})
	n := 0
	l, err := e.b.ctx.Listen(verbs.ListenConfig{Request: func(r verbs.ConnRequest) {
		var err error
		switch n++; n {
		case 1:
			err = b.accept(r, e.b.params(verbs.Address{}, []byte("yes")))
		case 2:
			err = r.Reject([]byte("no"))
		default:
			err = r.Refuse()
		}
		if err != nil {
			e.Errorf("answer %d in the callback: %v", n, err)
		}
	}})
	e.must(err, "Listen")
	for i, want := range []verbs.ConnEventKind{verbs.ConnEstablished, verbs.ConnRejected, verbs.ConnRefused} {
		a := e.a.ready(conf{})
		e.must(a.connect(e.a.params(l.Addr(), nil)), "Connect")
		ev := a.conn.next(fmt.Sprintf("answer %d in the callback", i+1), want)
		if i < 2 {
			checkPrivate(e, e.a, "answer in the callback", ev.PrivateData, []byte([]string{"yes", "no"}[i]))
		}
		if i == 0 {
			b.conn.next("Accept in the callback", verbs.ConnEstablished)
			e.ping(a, b)
		}
	}
}

func acceptForeignQP(e *env) {
	a := e.a.ready(conf{})
	l := e.b.listen()
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	r := l.next("Connect")
	for _, s := range []*side{e.a, e.open("spare", e.pair.Passive)} {
		foreign := s.ready(conf{})
		e.refused(foreign.accept(r, e.b.params(verbs.Address{}, nil)), "Accept with a QP of another context", verbs.ErrInvalid)
		foreign.destroy()
	}
	e.refused(r.Accept(nil, e.b.params(verbs.Address{}, nil)), "Accept without a QP", verbs.ErrInvalid)
	b := e.b.ready(conf{})
	e.must(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept after refused ones")
	a.conn.next("Accept", verbs.ConnEstablished)
}

// requestUnanswered leaves requests to the end of the rule, in which both contexts are closed.
func requestUnanswered(e *env) {
	l := e.b.listen()
	for range 3 {
		a := e.a.ready(conf{})
		e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
		l.next("Connect")
	}
}
