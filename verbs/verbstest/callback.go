package verbstest

import (
	"sync"
	"sync/atomic"

	"kdapl/verbs"
)

var callbackRules = []rule{
	{"Conn may post and poll", 0, connPosts},
	{"Conn may disconnect, reset and connect again", 0, connDrivesLives},
	{"Conn may destroy its QP when it is established", 0, connDestroysEstablished},
	{"Conn may destroy its QP when the connection ends", 0, connDestroysEnded},
	{"Conn may destroy its QP when the set-up fails", 0, connDestroysFailed},
	{"Conn may close its context", 0, connClosesContext},
	{"notify may poll, arm and post", 0, notifyPosts},
	{"notify may disconnect and destroy", 0, notifyDestroys},
	{"notify may close its context", 0, notifyClosesContext},
	{"a request may be answered with objects made in its callback", 0, requestMakesObjects},
	{"a request's callback may close its context", 0, requestClosesContext},
	{"Async may post and arm", verbs.CapSRQ | verbs.CapSRQLimit, asyncPosts},
	{"Poll does not call back", 0, pollDoesNotCallBack},
	{"Destroy does not wait for a callback in progress", 0, destroyDoesNotWait},
	{"an instance without Async drops its events", 0, asyncNil},
}

// connPosts sends from the callback that says the connection is there, and receives what
// was posted in it.
func connPosts(e *env) {
	src := map[*side]*mem{e.a: e.a.source(32), e.b: e.b.source(32)}
	dst := map[*side]*mem{e.a: e.a.mem(32, localWrite), e.b: e.b.mem(32, localWrite)}
	hook := func(q *qp, ev verbs.ConnEvent) {
		if ev.Kind != verbs.ConnEstablished {
			return
		}
		if _, err := q.v.PostSend([]verbs.SendWR{e.send(src[q.s].all())}); err != nil {
			e.Errorf("PostSend in Conn: %v", err)
		}
		var buf [1]verbs.Completion
		q.scq.v.Arm(verbs.ArmNext)
		q.rcq.v.Poll(buf[:0])
	}
	a, b := e.a.ready(conf{conn: hook, raw: true}), e.b.ready(conf{conn: hook, raw: true})
	for _, q := range []*qp{a, b} {
		if _, err := q.v.PostRecv([]verbs.RecvWR{e.recv(dst[q.s].all())}); err != nil {
			e.Fatalf("PostRecv: %v", err)
		}
	}
	l := e.b.listen()
	e.bounded("a set-up with callbacks that post", func() {
		if err := a.connect(e.a.params(l.v.Addr(), nil)); err != nil {
			e.Errorf("Connect: %v", err)
		}
	})
	r := l.next("Connect")
	e.bounded("a set-up with callbacks that post", func() {
		if err := b.accept(r, e.b.params(verbs.Address{}, nil)); err != nil {
			e.Errorf("Accept: %v", err)
		}
	})
	a.rcq.ok(1, "a message posted in Conn")
	b.rcq.ok(1, "a message posted in Conn")
	dst[e.a].same(0, src[e.b].buf, "a message posted in Conn")
	dst[e.b].same(0, src[e.a].buf, "a message posted in Conn")
}

// connDrivesLives runs a number of lives of an active QP from its own callbacks; the
// passive side makes a QP for each request and destroys it at the end.
func connDrivesLives(e *env) {
	lives := e.rounds(50)
	l, err := e.b.ctx.Listen(verbs.ListenConfig{Request: func(r verbs.ConnRequest) {
		q := &qp{e: e, s: e.b, user: e.id(), raw: true}
		q.conn = &connLog{q: q, hook: func(q *qp, ev verbs.ConnEvent) {
			if ev.Kind.Terminal() {
				// The rule may be over, and the context closed.
				if err := q.v.Destroy(); err != nil {
					e.refused(err, "Destroy in Conn", verbs.ErrClosed)
				}
			}
		}}
		v, err := e.b.pd.CreateQP(verbs.QPInit{Conn: q.conn.add})
		if err != nil {
			e.Errorf("CreateQP in Request: %v", err)
			return
		}
		q.v = v
		if err := v.Modify(verbs.QPInitialized); err != nil {
			e.Errorf("Modify in Request: %v", err)
		}
		if err := r.Accept(v, e.b.params(verbs.Address{}, nil)); err != nil {
			e.Errorf("Accept in Request: %v", err)
		}
	}})
	e.must(err, "Listen")
	done := make(chan struct{})
	var n atomic.Int32
	a := e.a.ready(conf{raw: true, conn: func(q *qp, ev verbs.ConnEvent) {
		switch {
		case ev.Kind == verbs.ConnEstablished:
			if err := q.v.Disconnect(false); err != nil {
				e.Errorf("Disconnect in Conn: %v", err)
			}
		case !ev.Kind.Terminal():
			e.Errorf("set-up in Conn: %v", ev)
			close(done)
		case int(n.Add(1)) == lives:
			close(done)
		default:
			for _, to := range []verbs.QPState{verbs.QPReset, verbs.QPInitialized} {
				if err := q.v.Modify(to); err != nil {
					e.Errorf("Modify to %v in Conn: %v", to, err)
				}
			}
			if err := q.v.Connect(e.a.params(l.Addr(), nil)); err != nil {
				e.Errorf("Connect in Conn: %v", err)
				close(done)
			}
		}
	}})
	e.bounded("lives driven by callbacks", func() {
		if err := a.connect(e.a.params(l.Addr(), nil)); err != nil {
			e.Errorf("Connect: %v", err)
		}
		<-done
	})
}

// destroyIn connects a QP that destroys itself in its callback at the event that match names.
func (e *env) destroyIn(match func(verbs.ConnEvent) bool, then func(a, b *qp, r verbs.ConnRequest)) {
	e.Helper()
	for range e.rounds(10) {
		done := make(chan struct{})
		var once sync.Once
		a := e.a.ready(conf{raw: true, conn: func(q *qp, ev verbs.ConnEvent) {
			if match(ev) {
				once.Do(func() {
					if err := q.v.Destroy(); err != nil {
						e.Errorf("Destroy in Conn: %v", err)
					}
					close(done)
				})
			}
		}})
		a.gone = true
		if _, err := a.v.PostRecv([]verbs.RecvWR{e.recv(), e.recv()}); err != nil {
			e.Fatalf("PostRecv: %v", err)
		}
		b := e.b.ready(conf{})
		l := e.b.listen()
		e.bounded("a Destroy in Conn", func() {
			if err := a.v.Connect(e.a.params(l.v.Addr(), nil)); err != nil {
				e.Errorf("Connect: %v", err)
			}
		})
		then(a, b, l.next("Connect"))
		if !e.woken(done) {
			e.Fatal("no Destroy in Conn")
		}
		e.qpClosed(a)
		// The requests completed before Destroy returned.
		got := a.rcq.now()
		if len(got) != 3 || got[2].Op != verbs.OpDrained {
			e.Errorf("a QP destroyed in Conn left %v, want two receives and a mark", got)
		}
		if got := a.scq.now(); len(got) != 1 {
			e.Errorf("a QP destroyed in Conn left %v, want a mark", got)
		}
		b.destroy()
		l.close()
	}
}

func connDestroysEstablished(e *env) {
	e.destroyIn(func(ev verbs.ConnEvent) bool { return ev.Kind == verbs.ConnEstablished }, func(_, b *qp, r verbs.ConnRequest) {
		e.bounded("Accept", func() {
			if err := b.accept(r, e.b.params(verbs.Address{}, nil)); err != nil {
				e.Errorf("Accept: %v", err)
			}
		})
	})
}

func connDestroysEnded(e *env) {
	e.destroyIn(func(ev verbs.ConnEvent) bool { return ev.Kind.Terminal() }, func(a, b *qp, r verbs.ConnRequest) {
		e.must(b.accept(r, e.b.params(verbs.Address{}, nil)), "Accept")
		a.conn.next("Accept", verbs.ConnEstablished)
		b.conn.next("Accept", verbs.ConnEstablished)
		e.bounded("Disconnect", func() {
			if err := b.v.Disconnect(false); err != nil {
				e.Errorf("Disconnect: %v", err)
			}
		})
	})
}

func connDestroysFailed(e *env) {
	e.destroyIn(func(ev verbs.ConnEvent) bool { return ev.Kind == verbs.ConnRejected }, func(_, _ *qp, r verbs.ConnRequest) {
		e.bounded("Reject", func() {
			if err := r.Reject(nil); err != nil {
				e.Errorf("Reject: %v", err)
			}
		})
	})
}

// closeOnce closes an instance from a callback, the first time it is called.
type closeOnce struct {
	s    *side
	once sync.Once
	done chan struct{}
}

func newCloseOnce(s *side) *closeOnce { return &closeOnce{s: s, done: make(chan struct{})} }

func (c *closeOnce) do() {
	c.once.Do(func() {
		if err := c.s.ctx.Close(); err != nil {
			c.s.e.Errorf("Context.Close in a callback: %v", err)
		}
		close(c.done)
	})
}

// wait waits until the instance is closed.
func (c *closeOnce) wait() {
	c.s.e.Helper()
	if !c.s.e.woken(c.done) {
		c.s.e.Fatal("Context.Close in a callback did not return")
	}
	c.s.closed = true
	c.s.e.closed("AllocPD", accept2(c.s.ctx.AllocPD()))
}

func connClosesContext(e *env) {
	s := e.open("spare", e.pair.Active)
	c := newCloseOnce(s)
	a := s.ready(conf{raw: true, conn: func(_ *qp, ev verbs.ConnEvent) {
		if ev.Kind == verbs.ConnEstablished {
			c.do()
		}
	}})
	a.lost = true
	b, l := e.b.ready(conf{}), e.b.listen()
	e.must(a.v.Connect(s.params(l.v.Addr(), nil)), "Connect")
	r := l.next("Connect")
	e.bounded("Accept", func() {
		if err := b.accept(r, e.b.params(verbs.Address{}, nil)); err != nil {
			e.Errorf("Accept: %v", err)
		}
	})
	c.wait()
	b.conn.next("Accept", verbs.ConnEstablished, verbs.ConnAcceptFailed)
}

// notifyPosts bounces a message between two QPs from the notify functions alone.
func notifyPosts(e *env) {
	bounces := e.rounds(200)
	done := make(chan struct{})
	var n atomic.Int32
	serve := func(q *qp) func() {
		return func() {
			var buf [4]verbs.Completion
			for {
				k := q.rcq.v.Poll(buf[:])
				for _, c := range buf[:k] {
					if c.Status != verbs.StatusSuccess || c.Op != verbs.OpRecv {
						continue // the end
					}
					switch m := int(n.Add(1)); {
					case m == bounces:
						close(done)
					case m < bounces:
						if _, err := q.v.PostRecv([]verbs.RecvWR{e.recv()}); err != nil {
							e.Errorf("PostRecv in notify: %v", err)
						}
						if _, err := q.v.PostSend([]verbs.SendWR{unsignaled(e.send())}); err != nil {
							e.Errorf("PostSend in notify: %v", err)
						}
					}
				}
				if k == 0 && !q.rcq.v.Arm(verbs.ArmNext) {
					return
				}
			}
		}
	}
	a, b := e.link(conf{raw: true}, conf{raw: true})
	for _, q := range []*qp{a, b} {
		if _, err := q.v.PostRecv([]verbs.RecvWR{e.recv(), e.recv()}); err != nil {
			e.Fatalf("PostRecv: %v", err)
		}
		q.rcq.onNotify(serve(q))
		q.rcq.v.Arm(verbs.ArmNext)
	}
	e.bounded("messages bounced in notify", func() {
		if _, err := a.v.PostSend([]verbs.SendWR{unsignaled(e.send())}); err != nil {
			e.Errorf("PostSend: %v", err)
		}
		<-done
	})
}

func notifyDestroys(e *env) {
	for i := range e.rounds(20) {
		a, b := e.link(conf{}, conf{raw: true})
		done := make(chan struct{})
		var once sync.Once
		b.rcq.onNotify(func() {
			once.Do(func() {
				if i%2 == 0 {
					if err := b.v.Disconnect(false); err != nil {
						e.Errorf("Disconnect in notify: %v", err)
					}
				}
				if err := b.v.Destroy(); err != nil {
					e.Errorf("Destroy in notify: %v", err)
				}
				close(done)
			})
		})
		b.gone = true
		if _, err := b.v.PostRecv([]verbs.RecvWR{e.recv(), e.recv()}); err != nil {
			e.Fatalf("PostRecv: %v", err)
		}
		b.rcq.v.Arm(verbs.ArmNext)
		e.bounded("a Destroy in notify", func() { a.post(e.send()); <-done })
		e.qpClosed(b)
		a.conn.next("the peer's Destroy", verbs.ConnDisconnected, verbs.ConnBroken)
		if got := b.rcq.now(); len(got) != 3 {
			e.Errorf("a QP destroyed in notify left %v, want two receives and a mark", got)
		}
		a.destroy()
	}
}

func notifyClosesContext(e *env) {
	s := e.open("spare", e.pair.Passive)
	c := newCloseOnce(s)
	a, b := e.a.ready(conf{}), s.ready(conf{raw: true})
	e.connect(a, b)
	b.lost = true
	if _, err := b.v.PostRecv([]verbs.RecvWR{e.recv()}); err != nil {
		e.Fatalf("PostRecv: %v", err)
	}
	b.rcq.onNotify(c.do)
	b.rcq.v.Arm(verbs.ArmNext)
	e.bounded("PostSend", func() { a.post(e.send()) })
	c.wait()
	a.conn.next("the close of the peer's context", verbs.ConnDisconnected, verbs.ConnBroken)
}

func requestMakesObjects(e *env) {
	made := make(chan *qp, 4)
	l, err := e.b.ctx.Listen(verbs.ListenConfig{Request: func(r verbs.ConnRequest) {
		q := e.b.ready(conf{})
		if err := q.accept(r, e.b.params(verbs.Address{}, nil)); err != nil {
			e.Errorf("Accept in Request: %v", err)
		}
		made <- q
	}})
	e.must(err, "Listen")
	for range 3 {
		a := e.a.ready(conf{})
		e.must(a.connect(e.a.params(l.Addr(), nil)), "Connect")
		a.conn.next("Accept in Request", verbs.ConnEstablished)
		b := <-made
		b.conn.next("Accept in Request", verbs.ConnEstablished)
		a.state(verbs.QPRTS)
		b.state(verbs.QPRTS)
		e.ping(a, b)
		e.ping(b, a)
	}
}

func requestClosesContext(e *env) {
	s := e.open("spare", e.pair.Passive)
	c := newCloseOnce(s)
	l, err := s.ctx.Listen(verbs.ListenConfig{Request: func(verbs.ConnRequest) { c.do() }})
	e.must(err, "Listen")
	a := e.a.ready(conf{})
	addr := l.Addr()
	e.bounded("Connect", func() {
		if err := a.connect(e.a.params(addr, nil)); err != nil {
			e.Errorf("Connect: %v", err)
		}
	})
	c.wait()
	a.conn.next("the close of the peer's context", verbs.ConnRefused, verbs.ConnRejected)
}

// asyncPosts fills up an SRQ from its limit event and arms it again.
func asyncPosts(e *env) {
	s := e.b.srq(8)
	rounds := e.rounds(100)
	refill := func(ev verbs.AsyncEvent) {
		if ev.Kind != verbs.AsyncSRQLimit || ev.UserData != s.user {
			return
		}
		s.mu.Lock()
		wrs := []verbs.RecvWR{e.recv(), e.recv(), e.recv(), e.recv()}
		for _, wr := range wrs {
			s.pending[wr.ID] = true
		}
		s.mu.Unlock()
		if n, err := s.v.PostRecv(wrs); err != nil {
			e.Errorf("SRQ.PostRecv in Async took %d: %v", n, err)
		}
		if err := s.v.SetLimit(2); err != nil {
			e.Errorf("SetLimit in Async: %v", err)
		}
	}
	e.b.async.onEvent(refill)
	as, bs := e.srqPairs(s, 1)
	e.must(s.v.SetLimit(2), "SetLimit") // at once: the SRQ is empty
	for i := range rounds {
		e.eventually(func() bool { return s.v.Available() > 0 }, "the limit event of message %d has refilled the SRQ", i)
		e.message(as[0], bs[0])
	}
	e.b.async.onEvent(nil)
}

// pollDoesNotCallBack polls and peeks with a lock held that every callback takes.
func pollDoesNotCallBack(e *env) {
	var mu sync.Mutex
	take := func(*qp, verbs.ConnEvent) {
		mu.Lock()
		defer mu.Unlock()
	}
	a, b := e.link(conf{conn: take, raw: true}, conf{conn: take, raw: true})
	for _, q := range []*qp{a, b} {
		for _, c := range []*cq{q.scq, q.rcq} {
			c.onNotify(func() { take(nil, verbs.ConnEvent{}) })
		}
	}
	for range e.rounds(100) {
		if _, err := b.v.PostRecv([]verbs.RecvWR{e.recv()}); err != nil {
			e.Fatalf("PostRecv: %v", err)
		}
		b.rcq.v.Arm(verbs.ArmNext)
		a.scq.v.Arm(verbs.ArmNext)
		if _, err := a.v.PostSend([]verbs.SendWR{e.send()}); err != nil {
			e.Fatalf("PostSend: %v", err)
		}
		e.bounded("Poll with a lock held that callbacks take", func() {
			for _, c := range []*cq{a.scq, b.rcq} {
				if !e.within(func() bool {
					var buf [2]verbs.Completion
					mu.Lock()
					n := c.v.Poll(buf[:])
					if p, ok := c.v.(verbs.Peeker); ok {
						p.Peek(1)
					}
					mu.Unlock()
					return n > 0
				}) {
					e.Error("no completion")
				}
			}
		})
	}
	for _, q := range []*qp{a, b} {
		for _, c := range []*cq{q.scq, q.rcq} {
			c.onNotify(func() {})
		}
	}
}

// destroyDoesNotWait holds a Conn callback until Destroy has returned.
func destroyDoesNotWait(e *env) {
	started, release := make(chan struct{}), make(chan struct{})
	a := e.a.ready(conf{raw: true, conn: func(_ *qp, ev verbs.ConnEvent) {
		if ev.Kind == verbs.ConnEstablished {
			close(started)
			<-release
		}
	}})
	b, l := e.b.ready(conf{}), e.b.listen()
	accepted := make(chan struct{})
	e.must(a.v.Connect(e.a.params(l.v.Addr(), nil)), "Connect")
	r := l.next("Connect")
	go func() {
		defer close(accepted)
		if err := b.accept(r, e.b.params(verbs.Address{}, nil)); err != nil {
			e.Errorf("Accept: %v", err)
		}
	}()
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	if !e.woken(started) {
		e.Fatal("no ConnEstablished")
	}
	a.gone = true
	ok := make(chan struct{})
	go func() {
		defer close(ok)
		if err := a.v.Destroy(); err != nil {
			e.Errorf("Destroy: %v", err)
		}
	}()
	if !e.woken(ok) {
		e.Error("Destroy waits for a callback in progress")
	}
	free()
	if !e.woken(ok) || !e.woken(accepted) {
		e.Fatal("Destroy or Accept did not return")
	}
}

func asyncNil(e *env) {
	ctx, err := e.pair.Passive.Open(verbs.OpenConfig{})
	e.must(err, "Open without Async")
	s := &side{e: e, name: "spare", dev: e.pair.Passive, ctx: ctx, attr: ctx.Attr(), async: newAsyncLog()}
	e.opened = append(e.opened, s)
	s.pd, err = ctx.AllocPD()
	e.must(err, "AllocPD")
	if s.attr.Can(verbs.CapSRQ) {
		srq := s.srq(4)
		q := s.ready(conf{srq: srq})
		if s.attr.Can(verbs.CapSRQLimit) {
			e.must(srq.v.SetLimit(1), "SetLimit")
		}
		q.modify(verbs.QPError)
		q.destroy()
	}
	a, b := e.a.ready(conf{}), s.ready(conf{})
	e.connect(a, b)
	e.ping(a, b)
}
