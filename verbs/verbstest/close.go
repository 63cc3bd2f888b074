package verbstest

import (
	"bytes"
	"runtime"
	"sync/atomic"

	"kdapl/verbs"
)

var closeRules = []rule{
	{"Close destroys everything that is alive", 0, closeAlive},
	{"Close frees the ports of its listeners", 0, closeFreesPorts},
	{"Close refuses requests that wait for their answer", 0, closeRefuses},
	{"Close aborts set-ups", 0, closeAborts},
	{"Close ends a set-up of either side once", 0, closeEndsSetUp},
	{"Close under load returns, and calls are refused from then on", 0, closeUnderLoad},
	{"both ends close at once", 0, closeBoth},
	{"memory is not touched when Close has returned", 0, closeReleasesMemory},
	{"an instance leaves no goroutine behind", 0, closeLeavesNothing},
}

// everything makes one of each object, in use.
func everything(e *env, s *side, l *listener) {
	e.Helper()
	m := s.mem(4096, remoteBoth)
	q, peer := s.ready(conf{}), l.s.ready(conf{})
	e.connectAt(l, q, peer, s.params(l.v.Addr(), nil), l.s.params(verbs.Address{}, nil))
	for range 4 {
		q.recv(e.recv(m.sge(0, 8)))
	}
	if s.stalls() {
		q.post(e.send(m.sge(0, 8)), unsignaled(e.send(m.sge(0, 8))))
	}
	s.cq(4)
	s.qp(conf{})
	s.ready(conf{}).recv(e.recv(m.all()))
	s.ready(conf{}).modify(verbs.QPError)
	s.listen()
	waiting := s.ready(conf{})
	e.must(waiting.connect(s.params(l.v.Addr(), nil)), "Connect")
	l.next("Connect")
	if s.attr.Can(verbs.CapSRQ) {
		srq := s.srq(4)
		srq.recv(e.recv(m.sge(0, 8)))
		s.ready(conf{srq: srq})
	}
	if s.attr.Can(verbs.CapMW1) {
		w := s.window(verbs.MWType1)
		q.post(w.bind(0, 64, verbs.AccessRemoteRead))
	}
	if s.attr.Can(verbs.CapFastReg) {
		q.post(s.fast(1).reg(remoteBoth))
	}
	if s.attr.Can(verbs.CapUD) {
		s.ud()
		s.handle()
	}
}

func closeAlive(e *env) {
	for range e.rounds(10) {
		s := e.open("spare", e.pair.Active)
		l := e.b.listen()
		everything(e, s, l)
		passive := e.all
		s.close()
		for _, q := range passive {
			if q.s != l.s || q.gone || q.conn.established == 0 {
				continue
			}
			q.conn.next("the close of the peer's context", verbs.ConnDisconnected, verbs.ConnBroken)
			q.destroy()
		}
		l.close()
	}
}

func closeFreesPorts(e *env) {
	s := e.open("spare", e.pair.Passive)
	addr := s.listen().v.Addr()
	s.close()
	l := e.b.listenTo(verbs.ListenConfig{Local: addr})
	a, b := e.a.ready(conf{}), e.b.ready(conf{})
	e.connectAt(l, a, b, e.a.params(addr, nil), e.b.params(verbs.Address{}, nil))
}

func closeRefuses(e *env) {
	s := e.open("spare", e.pair.Passive)
	l := s.listen()
	a := e.a.ready(conf{})
	e.must(a.connect(e.a.params(l.v.Addr(), nil)), "Connect")
	r := l.next("Connect")
	s.close()
	a.conn.next("the close of the peer's context", verbs.ConnRefused, verbs.ConnRejected)
	b := e.b.ready(conf{})
	gone := []error{verbs.ErrClosed, verbs.ErrPeerGone, verbs.ErrState, verbs.ErrInvalid}
	e.refused(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept of a request of a closed context", gone...)
	e.refused(r.Reject(nil), "Reject of a request of a closed context", gone...)
}

// closeAborts: the peer may find out at Accept, or afterwards by an event.
func closeAborts(e *env) {
	s := e.open("spare", e.pair.Active)
	a := s.ready(conf{})
	l := e.b.listen()
	e.must(a.connect(s.params(l.v.Addr(), nil)), "Connect")
	r := l.next("Connect")
	s.close()
	b := e.b.ready(conf{})
	if err := b.accept(r, e.b.params(verbs.Address{}, nil)); err != nil {
		e.refused(err, "Accept of a peer that is gone", verbs.ErrPeerGone)
		return
	}
	if ev := b.conn.next("Accept of a peer that is gone", verbs.ConnAcceptFailed, verbs.ConnEstablished); ev.Kind == verbs.ConnEstablished {
		b.conn.next("a peer that is gone", verbs.ConnDisconnected, verbs.ConnBroken)
	}
}

// closeEndsSetUp closes either side while the other connects or accepts.
func closeEndsSetUp(e *env) {
	for i := range e.rounds(30) {
		sa, sb := e.open("first", e.pair.Active), e.open("second", e.pair.Passive)
		a, b := sa.ready(conf{}), sb.ready(conf{})
		l := sb.listen()
		e.must(a.connect(sa.params(l.v.Addr(), nil)), "Connect")
		r := l.next("Connect")
		doomed, rest := sa, b
		if i%2 == 1 {
			doomed, rest = sb, a
		}
		e.together(2, func(k int) {
			if k == 0 {
				if err := b.accept(r, sb.params(verbs.Address{}, nil)); err != nil {
					e.refused(err, "Accept while a context closes", verbs.ErrPeerGone, verbs.ErrClosed, verbs.ErrState)
				}
			} else if err := doomed.ctx.Close(); err != nil {
				e.Errorf("Context.Close: %v", err)
			}
		})
		doomed.closed = true
		a.lost, b.lost = true, true
		rest.lost = false
		if rest.v.State() != verbs.QPInitialized {
			rest.state(verbs.QPError)
		}
		rest.destroy()
		for _, s := range []*side{sa, sb} {
			if !s.closed {
				s.close()
			}
		}
	}
}

func closeUnderLoad(e *env) {
	for range e.rounds(20) {
		s := e.open("spare", e.pair.Active)
		var as []*qp
		for range 2 {
			a, b := s.ready(conf{raw: true}), e.b.ready(conf{raw: true})
			e.connect(a, b)
			as = append(as, a)
		}
		l := e.b.listen()
		src := s.source(64)
		var stop atomic.Bool
		ended := func(err error) bool {
			if err != nil {
				e.refused(err, "a call while the context closes", verbs.ErrClosed, verbs.ErrQueueFull, verbs.ErrState, verbs.ErrProtection)
			}
			return stop.Load()
		}
		e.together(6, func(i int) {
			switch i {
			case 0, 1:
				for {
					_, err := as[i].v.PostSend([]verbs.SendWR{unsignaled(e.send(src.sge(0, 8))), e.send()})
					if ended(err) {
						return
					}
					as[i].scq.poll()
					e.yield()
				}
			case 2:
				for {
					m, err := s.pd.RegMR(make([]byte, 64), 0, remoteBoth)
					if err == nil {
						err = m.Dereg()
					}
					if ended(err) {
						return
					}
					e.yield()
				}
			case 3:
				for !stop.Load() {
					as[0].rcq.v.Arm(verbs.ArmNext)
					as[0].rcq.poll()
					e.yield()
				}
			case 4:
				for {
					q, err := s.pd.CreateQP(verbs.QPInit{Conn: func(verbs.ConnEvent) {}})
					if err == nil {
						if err = q.Modify(verbs.QPInitialized); err == nil {
							err = q.Connect(s.params(l.v.Addr(), nil))
						}
						if err == nil {
							err = q.Destroy()
						}
					}
					if ended(err) {
						return
					}
					e.yield()
				}
			case 5:
				for range 50 {
					e.yield()
				}
				if err := s.ctx.Close(); err != nil {
					e.Errorf("Context.Close under load: %v", err)
				}
				s.closed = true
				stop.Store(true)
			}
		})
		for _, a := range as {
			a.lost = true
			e.qpClosed(a)
		}
		l.close()
		for len(l.reqs) > 0 {
			<-l.reqs
		}
	}
}

func closeBoth(e *env) {
	for range e.rounds(20) {
		sa, sb := e.open("first", e.pair.Active), e.open("second", e.pair.Passive)
		for range 3 {
			a, b := sa.ready(conf{raw: true}), sb.ready(conf{raw: true})
			e.connect(a, b)
			a.lost, b.lost = true, true
		}
		e.together(2, func(i int) {
			s := []*side{sa, sb}[i]
			if err := s.ctx.Close(); err != nil {
				e.Errorf("Context.Close: %v", err)
			}
			s.closed = true
		})
	}
}

// closeReleasesMemory writes into a region from afar while its context closes. What it
// holds when Close has returned it must keep.
func closeReleasesMemory(e *env) {
	for range e.rounds(20) {
		s := e.open("spare", e.pair.Passive)
		a, b := e.a.ready(conf{raw: true}), s.ready(conf{raw: true})
		e.connect(a, b)
		b.lost = true
		const n = 100000
		target, src := s.mem(n, remoteBoth), e.a.source(n)
		var stop atomic.Bool
		e.together(2, func(i int) {
			if i == 0 {
				for k := 1; !stop.Load(); k++ {
					_, _ = a.v.PostSend([]verbs.SendWR{unsignaled(e.write(target, 0, src.all()))})
					a.scq.poll()
					e.pause(k)
				}
				return
			}
			for range 20 {
				e.yield()
			}
			if err := s.ctx.Close(); err != nil {
				e.Errorf("Context.Close: %v", err)
			}
			s.closed = true
			clear(target.buf)
			e.look(func() {})
			if !bytes.Equal(target.buf, make([]byte, n)) {
				e.Error("a region was written after Close of its context had returned")
			}
			stop.Store(true)
		})
		src.free()
	}
}

// closeLeavesNothing counts goroutines over several lives; what a device keeps for the
// whole process does not add up.
func closeLeavesNothing(e *env) {
	life := func() {
		sa, sb := e.open("first", e.pair.Active), e.open("second", e.pair.Passive)
		for range 3 {
			a, b := sa.ready(conf{}), sb.ready(conf{})
			e.connect(a, b)
			e.ping(a, b)
		}
		sa.close()
		sb.close()
	}
	life()
	before := runtime.NumGoroutine()
	e.look(func() { before = min(before, runtime.NumGoroutine()) })
	lives := 5
	for range lives {
		life()
	}
	e.eventually(func() bool { return runtime.NumGoroutine() < before+lives },
		"%d goroutines before %d lives of two contexts, %d after", before, lives, runtime.NumGoroutine())
}
