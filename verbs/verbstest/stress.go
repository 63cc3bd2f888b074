package verbstest

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"

	"kdapl/verbs"
)

// stressRules let goroutines loose on one object and count: every request that was
// taken completes exactly once. They are made for the race detector.
var stressRules = []rule{
	{"several goroutines post to one QP and poll one CQ", 0, stressPostPoll},
	{"the messages of one poster stay in order among others", 0, stressOrder},
	{"several QPs drain one SRQ", verbs.CapSRQ, stressSRQ},
	{"posts race with the end of the connection", 0, stressEnd},
	{"connections come and go", 0, stressConnect},
	{"regions come and go under a peer's writes", 0, stressDereg},
	{"windows come and go under a peer's writes", verbs.CapMW1, stressWindow},
	{"a CQ is resized under load", 0, stressResize},
	{"an SRQ is resized under load", verbs.CapSRQ | verbs.CapSRQResize, stressSRQResize},
	{"objects are made and freed by several goroutines", 0, stressObjects},
	{"both ends mix all operations", 0, stressMix},
}

// tally counts the completions of requests whose IDs are indexes.
type tally struct {
	next atomic.Int64   // IDs that were drawn
	n    atomic.Int64   // requests that the device took
	done atomic.Int64   // completions
	seen []atomic.Int32 // completions of each request
}

func newTally(most int) *tally { return &tally{seen: make([]atomic.Int32, most)} }

// id draws an ID.
func (t *tally) id() uint64 { return uint64(t.next.Add(1) - 1) }

// room waits until fewer than most IDs are drawn and not completed, so that no CQ
// overflows however far its poller lags behind.
func (t *tally) room(e *env, most int64) bool {
	return e.within(func() bool { return t.next.Load()-t.done.Load() < most })
}

// took counts a request that the device took.
func (t *tally) took(n int) { t.n.Add(int64(n)) }

// add counts a completion; marks are counted apart.
func (t *tally) add(e *env, c verbs.Completion) {
	if c.ID >= uint64(len(t.seen)) {
		e.Errorf("completion of an unknown request: %v", c)
		return
	}
	if t.seen[c.ID].Add(1) != 1 {
		e.Errorf("a second completion: %v", c)
	}
	t.done.Add(1)
}

// count is the number of completions so far.
func (t *tally) count() int64 { return t.done.Load() }

// polled moves completions of a CQ to their tallies and counts the marks.
func polled(e *env, c *cq, send, recv *tally, marks *atomic.Int32) int {
	var buf [8]verbs.Completion
	n := c.v.Poll(buf[:])
	for _, comp := range buf[:n] {
		switch {
		case comp.Op == verbs.OpDrained:
			marks.Add(1)
		case comp.Flags&verbs.CompletionRecvQueue != 0:
			recv.add(e, comp)
		default:
			send.add(e, comp)
		}
	}
	if p, ok := c.v.(verbs.Progresser); ok && n == 0 {
		p.Progress()
	}
	return n
}

func stressPostPoll(e *env) {
	const posters, pollers = 3, 2
	per := e.rounds(2000)
	ca, cb := e.a.cq(100), e.b.cq(100)
	a, b := e.link(conf{scq: ca, rcq: ca, raw: true}, conf{scq: cb, rcq: cb, raw: true})
	sends, recvs, none := newTally(posters*per), newTally(posters*per), newTally(0)
	var marks atomic.Int32
	src, dst := e.a.source(64), e.b.mem(64, localWrite)
	var credit atomic.Int64 // receives that wait
	post := func(wr verbs.RecvWR) bool {
		return e.within(func() bool {
			n, _ := b.v.PostRecv([]verbs.RecvWR{wr})
			return n == 1
		})
	}
	total := int64(posters * per)
	e.together(posters+pollers+1, func(i int) {
		switch {
		case i < posters:
			for range per {
				if !e.within(func() bool { return take(&credit) }) {
					e.Error("no receive was given back")
					return
				}
				if !sends.room(e, 32) {
					e.Error("sends do not complete")
					return
				}
				wr := e.send(src.sge(0, 8))
				wr.ID = sends.id()
				if !e.within(func() bool {
					n, err := a.v.PostSend([]verbs.SendWR{wr})
					if err != nil {
						e.refused(err, "PostSend", verbs.ErrQueueFull)
					}
					return n == 1
				}) {
					e.Error("the send queue stays full")
					return
				}
				sends.took(1)
			}
		case i < posters+pollers:
			e.within(func() bool {
				polled(e, ca, sends, none, &marks)
				polled(e, cb, none, recvs, &marks)
				return sends.count() >= total && recvs.count() >= total
			})
		default:
			// Receives are posted as they are used up.
			for range total {
				if !recvs.room(e, 32) {
					e.Error("receives do not complete")
					return
				}
				wr := e.recv(dst.sge(0, 8))
				wr.ID = recvs.id()
				if !post(wr) {
					e.Error("the receive queue stays full")
					return
				}
				recvs.took(1)
				credit.Add(1)
			}
		}
	})
	if s, r := sends.count(), recvs.count(); s != total || r != total || marks.Load() != 0 {
		e.Errorf("%d sends and %d receives of %d completed, and %d marks", s, r, total, marks.Load())
	}
}

// take takes one from a counter that is above 0.
func take(n *atomic.Int64) bool {
	for {
		v := n.Load()
		if v <= 0 {
			return false
		}
		if n.CompareAndSwap(v, v-1) {
			return true
		}
	}
}

func stressOrder(e *env) {
	const posters = 3
	per := e.rounds(1000)
	a, b := e.couple()
	src, dst := e.a.mem(8*posters*32, localOnly), e.b.mem(8*32, localWrite)
	var credit atomic.Int64
	var posted sync.Mutex
	next := make([]uint32, posters)
	depth := min(32, b.s.depth())
	for k := range depth {
		b.recv(e.recv(dst.sge(8*k, 8)))
	}
	credit.Store(int64(depth))
	inline := e.a.attr.Can(verbs.CapInline) && e.a.attr.MaxInline >= 8
	e.together(posters+1, func(i int) {
		if i < posters {
			for k := range per {
				if !e.within(func() bool { return take(&credit) }) {
					e.Error("no receive was given back")
					return
				}
				off := 8 * (i*32 + k%32)
				posted.Lock()
				binary.BigEndian.PutUint32(src.buf[off:], uint32(i))
				binary.BigEndian.PutUint32(src.buf[off+4:], uint32(k))
				posted.Unlock()
				wr := unsignaled(e.send(src.sge(off, 8)))
				if inline {
					wr.Flags |= verbs.SendInline
				} else {
					wr.Flags |= verbs.SendSignaled
				}
				if !e.within(func() bool {
					a.scq.poll()
					n, _ := a.tryPost(wr)
					return n == 1
				}) {
					e.Error("the send queue stays full")
					return
				}
			}
			return
		}
		for k := range posters * per {
			if !e.within(func() bool { return b.rcq.size() > 0 }) {
				e.Errorf("%d of %d messages arrived", k, posters*per)
				return
			}
			b.rcq.ok(1, "message")
			off := 8 * (k % depth)
			who, seq := binary.BigEndian.Uint32(dst.buf[off:]), binary.BigEndian.Uint32(dst.buf[off+4:])
			if who >= posters || seq != next[who] {
				e.Errorf("message %d of poster %d, want number %d", seq, who, next[min(who, posters-1)])
				return
			}
			next[who]++
			if n, err := b.tryRecv(e.recv(dst.sge(off, 8))); n != 1 {
				e.Errorf("PostRecv: %v", err)
				return
			}
			credit.Add(1)
		}
	})
}

func stressSRQ(e *env) {
	const qps = 3
	per := e.rounds(1000)
	total := int64(qps * per)
	srq := e.b.srq(e.b.srqDepth())
	cb := e.b.cq(e.b.srqDepth() + 50)
	var as []*qp
	for range qps {
		a, b := e.link(conf{}, conf{srq: srq, rcq: cb, raw: true})
		b.raw = true
		as = append(as, a)
	}
	recvs, none := newTally(qps*per), newTally(0)
	var marks atomic.Int32
	var credit atomic.Int64
	dst := e.b.mem(64, localWrite)
	e.together(qps+2, func(i int) {
		switch {
		case i < qps:
			for range per {
				if !e.within(func() bool { return take(&credit) }) {
					e.Error("no receive was given back")
					return
				}
				if !e.within(func() bool {
					as[i].scq.poll()
					n, _ := as[i].tryPost(unsignaled(e.send()))
					return n == 1
				}) {
					e.Error("the send queue stays full")
					return
				}
			}
		case i == qps:
			for range total {
				if !recvs.room(e, int64(e.b.srqDepth())) {
					e.Error("receives do not complete")
					return
				}
				wr := e.recv(dst.sge(0, 8))
				wr.ID = recvs.id()
				if !e.within(func() bool {
					n, _ := srq.v.PostRecv([]verbs.RecvWR{wr})
					return n == 1
				}) {
					e.Error("the SRQ stays full")
					return
				}
				credit.Add(1)
			}
		default:
			e.within(func() bool {
				polled(e, cb, none, recvs, &marks)
				return recvs.count() >= total
			})
		}
	})
	if n := recvs.count(); n != total || marks.Load() != 0 {
		e.Errorf("%d of %d shared receives completed, and %d marks", n, total, marks.Load())
	}
	srq.available(0, "after as many messages as receives")
}

// stressEnd posts from several goroutines while the connection is ended in one of several
// ways: what was taken completes once, and there is one mark for each queue.
func stressEnd(e *env) {
	for round := range e.rounds(60) {
		depth := min(64, e.a.attr.MaxQPWR)
		ca := e.a.cq(4*depth + 8)
		// Where a send without a receive ends the connection, there are receives enough.
		wait := e.b.depth()
		if !e.a.stalls() {
			wait = min(2*depth, e.b.attr.MaxQPWR)
		}
		a, b := e.a.ready(conf{scq: ca, rcq: ca, send: depth, recv: depth, raw: true}), e.b.ready(conf{recv: wait})
		e.connect(a, b)
		for range wait {
			b.recv(e.recv())
		}
		sends, recvs := newTally(2*depth), newTally(2*depth)
		var marks atomic.Int32
		e.together(4, func(i int) {
			switch i {
			case 0, 1:
				for range depth {
					wr := e.send()
					wr.ID = sends.id()
					n, err := a.v.PostSend([]verbs.SendWR{wr})
					if err != nil {
						e.refused(err, "PostSend while the connection ends", verbs.ErrQueueFull, verbs.ErrState, verbs.ErrClosed)
					}
					sends.took(n)
				}
			case 2:
				for range depth {
					wr := e.recv()
					wr.ID = recvs.id()
					n, err := a.v.PostRecv([]verbs.RecvWR{wr})
					if err != nil {
						e.refused(err, "PostRecv while the connection ends", verbs.ErrQueueFull, verbs.ErrState, verbs.ErrClosed)
					}
					recvs.took(n)
				}
			case 3:
				for range round {
					runtime.Gosched()
				}
				var err error
				switch round % 5 {
				case 0:
					err = a.v.Disconnect(false)
				case 1:
					err = a.v.Modify(verbs.QPError)
				case 2:
					err = a.v.Modify(verbs.QPReset)
				case 3:
					a.gone = true
					err = a.v.Destroy()
				case 4:
					err = b.v.Disconnect(false)
				}
				if err != nil {
					e.Errorf("the end of a connection under load: %v", err)
				}
			}
		})
		e.eventually(func() bool {
			polled(e, ca, sends, recvs, &marks)
			return sends.count() == sends.n.Load() && recvs.count() == recvs.n.Load() && marks.Load() >= 2
		}, "round %d: %d sends of %d and %d receives of %d completed, %d marks", round,
			sends.count(), sends.n.Load(), recvs.count(), recvs.n.Load(), marks.Load())
		for range 20 {
			polled(e, ca, sends, recvs, &marks)
		}
		if m := marks.Load(); m != 2 {
			e.Errorf("round %d: %d marks", round, m)
		}
		if !a.gone {
			a.destroy()
		}
		b.destroy()
	}
}

// stressConnect lets several goroutines connect, talk and part through one listener. The
// logs count outcomes and ends.
func stressConnect(e *env) {
	const clients = 4
	per := e.rounds(40)
	var serving sync.WaitGroup
	l, err := e.b.ctx.Listen(verbs.ListenConfig{Backlog: 2 * clients, Request: func(r verbs.ConnRequest) {
		serving.Go(func() {
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
		})
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
	done := make(chan struct{})
	go func() { serving.Wait(); close(done) }()
	if !e.woken(done) {
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
				for !stop.Load() {
					_, _ = a.v.PostSend([]verbs.SendWR{wr})
					a.scq.poll()
					runtime.Gosched()
				}
				return
			}
			defer stop.Store(true)
			for range 30 {
				b.rcq.poll()
				runtime.Gosched()
			}
			if err := release(); err != nil {
				e.Errorf("taking a buffer back: %v", err)
				return
			}
			clear(buf)
			look(b.rcq.poll)
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
				runtime.Gosched()
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
				runtime.Gosched()
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
