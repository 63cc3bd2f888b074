package verbstest

import (
	"bytes"
	"sync/atomic"

	"kdapl/verbs"
)

// stressConnect lets several goroutines connect, talk and part through one listener. The
// logs count outcomes and ends.
func stressConnect(e *env) {
	const clients = 4
	per := e.rounds(40)
	var serving atomic.Int32
	l, err := e.b.ctx.Listen(verbs.ListenConfig{Backlog: 2 * clients, Request: func(r verbs.ConnRequest) {
		serving.Add(1)
		go func() {
			defer serving.Add(-1)
			q := e.b.ready(conf{})
			if _, err := q.tryRecv(e.recv(), e.recv()); err != nil {
				e.Errorf("PostRecv: %v", err)
			}
			if err := q.accept(r, e.b.params(verbs.Address{}, nil)); err != nil {
				e.refused(err, "Accept", verbs.ErrPeerGone)
			} else if !e.within(func() bool {
				q.help()
				q.conn.mu.Lock()
				defer q.conn.mu.Unlock()
				return q.conn.outcomes == 1 && q.conn.ended == q.conn.established
			}) {
				e.Error("a passive QP saw no end")
			}
			q.destroy()
		}()
	}})
	e.must(err, "Listen")
	e.together(clients, func(i int) {
		for k := range per {
			q := e.a.ready(conf{})
			if err := q.connect(e.a.params(l.Addr(), nil)); err != nil {
				e.Errorf("Connect: %v", err)
				return
			}
			if (i+k)%3 != 0 {
				if !e.within(func() bool {
					q.help()
					q.conn.mu.Lock()
					defer q.conn.mu.Unlock()
					return q.conn.established == 1
				}) {
					e.Errorf("no ConnEstablished: %v", q.conn.events)
					return
				}
				if _, err := q.tryPost(e.send()); err != nil {
					e.refused(err, "PostSend", verbs.ErrState)
				}
			}
			switch (i + k) % 4 {
			case 0:
				_ = q.v.Disconnect(true)
			case 1:
				_ = q.v.Disconnect(false)
			case 2:
				if err := q.tryModify(verbs.QPError); err != nil {
					e.Errorf("Modify to Error: %v", err)
				}
			}
			q.destroy()
		}
	})
	e.must(l.Close(), "Listener.Close") // what has not been delivered is refused
	if !e.within(func() bool { return serving.Load() == 0 }) {
		e.Fatal("passive QPs did not end")
	}
}

// stressDereg registers and deregisters a buffer while a peer writes to it under every key
// that there was: when Dereg has returned the buffer is the owner's.
func stressDereg(e *env) {
	e.stressTarget(func(buf []byte) (key uint32, at uint64, release func() error, err error) {
		mr, err := e.b.pd.RegMR(buf, 1<<20, remoteBoth)
		if err != nil {
			return 0, 0, nil, err
		}
		return mr.RKey(), 1 << 20, mr.Dereg, nil
	})
}

func stressWindow(e *env) {
	_, binder := e.link(conf{}, conf{})
	e.stressTarget(func(buf []byte) (key uint32, at uint64, release func() error, err error) {
		mr, err := e.b.pd.RegMR(buf, 1<<20, bindRights)
		if err != nil {
			return 0, 0, nil, err
		}
		w := &window{e: e, m: &mem{e: e, s: e.b, buf: buf, mr: mr, base: 1 << 20}}
		if w.v, err = e.b.pd.AllocMW(verbs.MWType1); err != nil {
			return 0, 0, nil, err
		}
		binder.bound(w, 0, len(buf), verbs.AccessRemoteWrite)
		return w.v.RKey(), 1 << 20, func() error {
			if err := w.v.Dealloc(); err != nil {
				return err
			}
			return mr.Dereg()
		}, nil
	})
}

// stressTarget exposes a buffer and takes it back, again and again, while the peer writes.
// A write that comes too late ends the connection, and another takes its place.
func (e *env) stressTarget(expose func([]byte) (key uint32, at uint64, release func() error, err error)) {
	e.Helper()
	const size = 30000
	src := e.a.source(size)
	l := e.b.listen()
	for range e.rounds(40) {
		a, b := e.a.ready(conf{raw: true}), e.b.ready(conf{raw: true})
		e.connectAt(l, a, b, e.a.params(l.v.Addr(), nil), e.b.params(verbs.Address{}, nil))
		buf := make([]byte, size)
		key, at, release, err := expose(buf)
		e.must(err, "exposing a buffer")
		wr := unsignaled(e.send(src.all()))
		wr.Op, wr.RemoteKey, wr.RemoteAddr = verbs.OpRDMAWrite, key, at
		var stop atomic.Bool
		e.together(2, func(i int) {
			if i == 0 {
				for k := 1; !stop.Load(); k++ {
					_, _ = a.v.PostSend([]verbs.SendWR{wr})
					a.scq.poll()
					e.pause(k)
				}
				return
			}
			defer stop.Store(true)
			for range 30 {
				b.rcq.poll()
				e.yield()
			}
			if err := release(); err != nil {
				e.Errorf("taking a buffer back: %v", err)
				return
			}
			clear(buf)
			e.look(b.rcq.poll)
			if !bytes.Equal(buf, make([]byte, size)) {
				e.Error("a buffer was written after it had been taken back")
			}
		})
		a.destroy()
		b.destroy()
	}
}

func stressResize(e *env) {
	a, b := e.couple()
	total := e.rounds(2000)
	for range b.s.depth() {
		b.recv(e.recv())
	}
	var credit atomic.Int64
	credit.Store(int64(b.s.depth()))
	var stop atomic.Bool
	e.together(3, func(i int) {
		switch i {
		case 0:
			for range total {
				if !e.within(func() bool { return take(&credit) }) {
					e.Error("no receive was given back")
					return
				}
				if !e.within(func() bool {
					a.scq.poll()
					n, _ := a.tryPost(unsignaled(e.send()))
					return n == 1
				}) {
					e.Error("the send queue stays full")
					return
				}
			}
		case 1:
			defer stop.Store(true)
			for k := range total {
				if !e.within(func() bool { return b.rcq.size() > 0 }) {
					e.Errorf("%d of %d receives completed", k, total)
					return
				}
				b.rcq.ok(1, "receive")
				if n, err := b.tryRecv(e.recv()); n != 1 {
					e.Errorf("PostRecv: %v", err)
					return
				}
				credit.Add(1)
			}
		case 2:
			for k := 0; !stop.Load(); k++ {
				cqe := b.s.depth() + 8 + k%50
				if err := b.rcq.v.Resize(min(cqe, e.b.attr.MaxCQE)); err != nil {
					e.refused(err, "Resize under load", verbs.ErrBusy)
				}
				e.pause(k + 1)
			}
		}
	})
}

func stressSRQResize(e *env) {
	srq := e.b.srq(16)
	as, bs := e.srqPairs(srq, 1)
	total := e.rounds(1000)
	var stop atomic.Bool
	e.together(2, func(i int) {
		if i == 1 {
			for k := 0; !stop.Load(); k++ {
				if err := srq.v.Resize(8 + k%9); err != nil {
					e.refused(err, "Resize under load", verbs.ErrBusy)
				}
				e.pause(k + 1)
			}
			return
		}
		defer stop.Store(true)
		for range total {
			if n, err := srq.tryRecv(e.recv()); n != 1 {
				e.Errorf("SRQ.PostRecv: %v", err)
				return
			}
			if n, err := as[0].tryPost(e.send()); n != 1 {
				e.Errorf("PostSend: %v", err)
				return
			}
			if !e.within(func() bool { return bs[0].rcq.size() > 0 && as[0].scq.size() > 0 }) {
				e.Error("no completion")
				return
			}
			bs[0].rcq.ok(1, "receive")
			as[0].scq.ok(1, "send")
		}
	})
}

func stressObjects(e *env) {
	e.together(4, func(i int) {
		for range e.rounds(200) {
			pd, err := e.a.ctx.AllocPD()
			if err != nil {
				e.Errorf("AllocPD: %v", err)
				return
			}
			mr, err1 := pd.RegMR(make([]byte, 64), uint64(i)<<20, remoteBoth)
			cq, err2 := e.a.ctx.CreateCQ(4, func() {})
			if err1 != nil || err2 != nil {
				e.Errorf("RegMR: %v, CreateCQ: %v", err1, err2)
				return
			}
			q, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1, MaxSendSGE: 1, MaxRecvSGE: 1,
				Conn: func(verbs.ConnEvent) {}})
			if err != nil {
				e.Errorf("CreateQP: %v", err)
				return
			}
			for what, f := range map[string]func() error{"Dereg": mr.Dereg, "QP.Destroy": q.Destroy} {
				if err := f(); err != nil {
					e.Errorf("%s: %v", what, err)
				}
			}
			for _, f := range []func() error{cq.Destroy, pd.Dealloc} {
				if err := f(); err != nil {
					e.Errorf("CQ.Destroy or PD.Dealloc: %v", err)
				}
			}
		}
	})
}

// stressMix lets both ends of two connections post sends, writes and reads at once and
// checks what the reads bring.
func stressMix(e *env) {
	const size = 5000
	rounds := e.rounds(200)
	type end struct {
		q                     *qp
		src, own, sink, inbox *mem
		peer                  *end
	}
	var ends []*end
	for range 2 {
		a, b := e.couple()
		x, y := &end{q: a}, &end{q: b}
		x.peer, y.peer = y, x
		ends = append(ends, x, y)
	}
	for _, x := range ends {
		x.src, x.own = x.q.s.source(size), x.q.s.mem(size, remoteBoth)
		x.sink, x.inbox = x.q.s.sink(size), x.q.s.mem(size, localWrite)
	}
	// The receives are ahead of the sends by a credit that the receiver gives back.
	credit := map[*end]*atomic.Int64{}
	for _, x := range ends {
		credit[x] = new(atomic.Int64)
		for range 8 {
			x.q.recv(e.recv(x.inbox.all()))
		}
		credit[x].Store(8)
	}
	e.together(2*len(ends), func(i int) {
		x := ends[i/2]
		if i%2 == 0 {
			for k := range rounds {
				if !e.within(func() bool { return take(credit[x.peer]) }) {
					e.Error("no receive was given back")
					return
				}
				wrs := []verbs.SendWR{
					e.write(x.peer.own, 0, x.src.all()),
					e.read(x.peer.own, 0, x.sink.all()),
					e.send(x.src.sge(0, 1+k%size)),
				}
				if n, err := x.q.tryPost(wrs...); n != 3 {
					e.Errorf("PostSend took %d of 3: %v", n, err)
					return
				}
				if !e.within(func() bool { return x.q.scq.size() >= 3 }) {
					e.Error("no completions")
					return
				}
				x.q.scq.ok(3, "write, read and send")
				if !bytes.Equal(x.sink.buf, x.src.buf) {
					e.Error("a read brought something else than what was written")
					return
				}
			}
			return
		}
		for range rounds {
			if !e.within(func() bool { return x.q.rcq.size() > 0 }) {
				e.Error("no message")
				return
			}
			x.q.rcq.ok(1, "message")
			if n, err := x.q.tryRecv(e.recv(x.inbox.all())); n != 1 {
				e.Errorf("PostRecv: %v", err)
				return
			}
			credit[x].Add(1)
		}
	})
}
