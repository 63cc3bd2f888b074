package verbstest

import (
	"encoding/binary"
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
					e.yield()
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
