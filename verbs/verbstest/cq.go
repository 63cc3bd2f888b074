package verbstest

import (
	"fmt"

	"kdapl/verbs"
)

var cqRules = []rule{
	{"Poll returns the oldest first and no more than there is room for", 0, pollOrder},
	{"Poll without room takes nothing", 0, pollNoRoom},
	{"Poll of an empty CQ returns 0", 0, pollEmpty},
	{"completions of several QPs share a CQ", 0, cqShared},
	{"send and receive completions share a CQ", 0, cqBothQueues},
	{"completions outlive their QP", 0, cqOutlives},
	{"Peek counts and takes nothing", verbs.CapPeek, cqPeek},
	{"Resize keeps contents and order", 0, cqResizeKeeps},
	{"Resize below the contents is busy", 0, cqResizeBusy},
	{"Resize beyond the limits is refused", 0, cqResizeLimits},
	{"Resize makes room", 0, cqResizeRoom},
	{"a CQ without a notify function can be polled", 0, cqNoNotify},
	{"Progress may be called at any time by several goroutines", 0, cqProgress},
	{"an overflow is reported once and ends the QPs of the CQ", 0, cqOverflow},
	{"an overflow keeps what is queued, in order", 0, cqOverflowKeeps},
	{"an overflow leaves other CQs and their QPs alone", 0, cqOverflowAlone},
}

// load puts n flushed receives and the mark into a CQ, at once, by destroying a QP that
// has them outstanding. It returns their IDs, in order.
func (c *cq) load(n int) []uint64 {
	c.e.Helper()
	q := c.s.qp(conf{rcq: c, recv: max(n, 1), raw: true})
	c.e.must(q.v.Modify(verbs.QPInitialized), "Modify to Initialized")
	var ids []uint64
	for range n {
		wr := c.e.recv()
		ids = append(ids, wr.ID)
		if _, err := q.v.PostRecv([]verbs.RecvWR{wr}); err != nil {
			c.e.Fatalf("PostRecv: %v", err)
		}
	}
	c.e.must(q.v.Destroy(), "QP.Destroy")
	q.gone = true
	return append(ids, 0)
}

// loaded checks completions against the IDs that load returned.
func (e *env) loaded(got []verbs.Completion, want []uint64) {
	e.Helper()
	for i, c := range got {
		if i >= len(want) || c.ID != want[i] || (c.Op == verbs.OpDrained) != (want[i] == 0) {
			e.Fatalf("completion %d of %d is %v, want the IDs %#x", i, len(got), c, want)
		}
	}
	if len(got) != len(want) {
		e.Fatalf("%d completions, want %d", len(got), len(want))
	}
}

func pollOrder(e *env) {
	c := e.a.cq(40)
	ids := append(c.load(10), c.load(7)...)
	var got []verbs.Completion
	for _, room := range []int{1, 3, 1, 5, 16, 16} {
		dst := make([]verbs.Completion, room)
		n := c.v.Poll(dst)
		if want := min(room, len(ids)-len(got)); n != want {
			e.Fatalf("Poll with room for %d returned %d, want %d", room, n, want)
		}
		got = append(got, dst[:n]...)
	}
	e.loaded(got, ids)
}

func pollNoRoom(e *env) {
	c := e.a.cq(8)
	ids := c.load(2)
	for _, dst := range [][]verbs.Completion{nil, {}} {
		if n := c.v.Poll(dst); n != 0 {
			e.Errorf("Poll without room returned %d", n)
		}
	}
	e.loaded(c.now(), ids)
}

func pollEmpty(e *env) {
	c := e.a.cq(8)
	var dst [4]verbs.Completion
	for range 100 {
		if n := c.v.Poll(dst[:]); n != 0 {
			e.Fatalf("Poll of an empty CQ returned %d: %v", n, dst[0])
		}
	}
}

// cqShared: the accounts check that each QP's completions come in order.
func cqShared(e *env) {
	const n = 8
	c := e.b.cq(200)
	var as, bs []*qp
	for range 3 {
		a, b := e.link(conf{}, conf{scq: c, rcq: c})
		for range n {
			b.recv(e.recv(e.b.mem(16, localWrite).all()))
		}
		as, bs = append(as, a), append(bs, b)
	}
	src := e.a.source(16)
	for range n {
		for _, a := range as {
			a.post(e.send(src.all()))
		}
	}
	per := map[uint64]int{}
	for _, comp := range c.ok(3*n, "receives of three QPs") {
		per[comp.UserData]++
	}
	for _, b := range bs {
		if per[b.user] != n {
			e.Errorf("%d receives of one QP, want %d", per[b.user], n)
		}
	}
}

func cqBothQueues(e *env) {
	c := e.b.cq(64)
	a, b := e.link(conf{}, conf{scq: c, rcq: c})
	b.recv(e.recv(e.b.mem(16, localWrite).all()))
	a.recv(e.recv(e.a.mem(16, localWrite).all()))
	b.post(e.send(e.b.source(16).all()))
	a.post(e.send(e.a.source(16).all()))
	a.rcq.ok(1, "receive")
	for _, comp := range c.ok(2, "a send and a receive") {
		if recv := comp.Flags&verbs.CompletionRecvQueue != 0; recv != (comp.Op == verbs.OpRecv) {
			e.Errorf("a completion of the wrong queue: %v", comp)
		}
	}
	b.modify(verbs.QPError)
	b.conn.next("Modify to Error", verbs.ConnDisconnected)
	c.untilMark(b, false, "Modify to Error")
	c.untilMark(b, true, "Modify to Error")
}

func cqOutlives(e *env) {
	c := e.b.cq(64)
	a, b := e.link(conf{}, conf{rcq: c})
	dst := e.b.mem(48, localWrite)
	for i := range 3 {
		b.recv(e.recv(dst.sge(16*i, 16)))
	}
	src := e.a.source(48)
	a.post(e.send(src.sge(0, 16)), e.send(src.sge(16, 16)), e.send(src.sge(32, 16)))
	a.scq.ok(3, "sends")
	if a.s.acked() {
		b.destroy()
		if n := len(c.seen); n != 4 {
			e.Errorf("a destroyed QP left %d completions, want three receives and a mark", n)
		}
		c.ok(3, "receives of a destroyed QP")
		dst.same(0, src.buf, "messages")
		return
	}
	c.take(3, "receives")
	b.recv(e.recv())
	b.destroy()
	if n := len(c.seen); n != 2 {
		e.Errorf("a destroyed QP left %d completions, want a receive and a mark", n)
	}
}

func cqPeek(e *env) {
	c := e.a.cq(16)
	p, ok := c.v.(verbs.Peeker)
	if !ok {
		e.Fatal("a CQ of a device with CapPeek is no Peeker")
	}
	if n := p.Peek(10); n != 0 {
		e.Errorf("Peek of an empty CQ: %d", n)
	}
	ids := c.load(4)
	for max, want := range map[int]int{0: 0, 1: 1, 4: 4, 5: 5, 6: 5, 1 << 30: 5} {
		if n := p.Peek(max); n != want {
			e.Errorf("Peek(%d) of %d completions: %d", max, len(ids), n)
		}
	}
	var one [1]verbs.Completion
	c.v.Poll(one[:])
	if n := p.Peek(10); n != 4 {
		e.Errorf("Peek after one of 5 was taken: %d", n)
	}
	e.loaded(append(one[:], c.now()...), ids)
}

func cqResizeKeeps(e *env) {
	c := e.a.cq(12)
	// Leave the start of the ring in the middle.
	first := c.load(6)
	e.loaded(c.now(), first)
	ids := c.load(7)
	for _, cqe := range []int{64, 9, 200, 8} {
		e.must(c.v.Resize(min(cqe, e.a.attr.MaxCQE)), "Resize to %d", cqe)
		if got := c.v.Cap(); got < min(cqe, e.a.attr.MaxCQE) {
			e.Errorf("after Resize to %d there is room for %d", cqe, got)
		}
	}
	e.loaded(c.now(), ids)
	ids = c.load(5)
	e.loaded(c.now(), ids)
}

func cqResizeBusy(e *env) {
	c := e.a.cq(100)
	ids := c.load(min(80, e.a.attr.MaxQPWR))
	if err := c.v.Resize(4); err != nil {
		e.refused(err, fmt.Sprintf("Resize to 4 with %d completions", len(ids)), verbs.ErrBusy)
	} else if c.v.Cap() < len(ids) {
		// More room than was asked for is allowed, less than is needed is not.
		e.Errorf("Resize to 4 with %d completions leaves room for %d", len(ids), c.v.Cap())
	}
	e.loaded(c.now(), ids)
	e.must(c.v.Resize(4), "Resize to 4 of an empty CQ")
}

func cqResizeLimits(e *env) {
	c := e.a.cq(8)
	for _, cqe := range []int{-1, e.a.attr.MaxCQE + 1, 1 << 40} {
		e.refused(c.v.Resize(cqe), fmt.Sprintf("Resize to %d", cqe), tooMuch...)
	}
	if c.v.Cap() < 8 {
		e.Errorf("after a refused Resize there is room for %d", c.v.Cap())
	}
	ids := c.load(4)
	e.loaded(c.now(), ids)
}

func cqResizeRoom(e *env) {
	c := e.a.cq(4)
	n := min(c.v.Cap()*2, e.a.attr.MaxQPWR-1, e.a.attr.MaxCQE-8)
	e.must(c.v.Resize(n+4), "Resize")
	ids := c.load(n)
	e.loaded(c.now(), ids)
	if got := e.a.async.count(func(ev verbs.AsyncEvent) bool { return ev.Kind == verbs.AsyncCQError }); got != 0 {
		e.Errorf("%d overflows of a CQ that was made large enough", got)
	}
}

func cqNoNotify(e *env) {
	v, err := e.a.ctx.CreateCQ(8, nil)
	if err != nil {
		e.refused(err, "CreateCQ without notify", verbs.ErrInvalid)
		return
	}
	c := &cq{e: e, s: e.a, v: v}
	v.Arm(verbs.ArmNext)
	ids := c.load(3)
	e.loaded(c.now(), ids)
	e.must(v.Destroy(), "CQ.Destroy")
}

// cqProgress has several goroutines help a CQ along, at rest and under traffic.
func cqProgress(e *env) {
	a, b := e.couple()
	p, ok := b.rcq.v.(verbs.Progresser)
	if !ok {
		e.Skip("the CQs of this device take no help")
	}
	for range spins {
		p.Progress()
	}
	e.together(3, func(i int) {
		if i > 0 {
			for range e.rounds(2000) {
				p.Progress()
			}
			return
		}
		for range e.rounds(200) {
			if n, err := b.tryRecv(e.recv()); n != 1 {
				e.Errorf("PostRecv: %v", err)
				return
			}
			if n, err := a.tryPost(e.send()); n != 1 {
				e.Errorf("PostSend: %v", err)
				return
			}
			if !e.within(func() bool { return a.scq.size() > 0 && b.rcq.size() > 0 }) {
				e.Error("no completion")
				return
			}
			a.scq.now()
			b.rcq.now()
		}
	})
	b.destroy()
	p.Progress()
}

// overflow is a CQ that has received more than it has room for.
type overflow struct {
	small *cq
	// a sends to b, whose receive CQ is small; idle uses it too, and peer is connected to it.
	a, b, peer, idle *qp
	// ids are b's receives, in order.
	ids []uint64
}

// overflowing sends more messages than the receiver's CQ has room for and returns when
// that is reported.
func (e *env) overflowing() overflow {
	e.Helper()
	small := e.b.cq(16)
	room := small.v.Cap()
	// A device may have more room than it says; so much more it may not.
	n := 2*room + 16
	if n > min(e.b.attr.MaxQPWR, e.a.attr.MaxQPWR) {
		e.Skipf("a small CQ has room for %d, too much for the requests of one QP", room)
	}
	o := overflow{small: small}
	o.peer, o.idle = e.link(conf{}, conf{rcq: small, raw: true})
	o.a, o.b = e.link(conf{send: n}, conf{rcq: small, recv: n, raw: true})
	o.b.lost, o.idle.lost = true, true
	dst := e.b.mem(8, localWrite)
	for range n {
		wr := e.recv(dst.all())
		o.ids = append(o.ids, wr.ID)
		if _, err := o.b.v.PostRecv([]verbs.RecvWR{wr}); err != nil {
			e.Fatalf("PostRecv: %v", err)
		}
	}
	src := e.a.source(8)
	for range n {
		if _, err := o.a.tryPost(e.send(src.all())); err != nil {
			break // the overflow has ended the connection already
		}
	}
	e.eventually(func() bool { o.a.scq.poll(); return e.overflowed(small) > 0 },
		"AsyncCQError for a CQ with room for %d that got %d completions", room, n)
	return o
}

// overflowed is how often the CQ was reported as failed.
func (e *env) overflowed(c *cq) int {
	return e.b.async.count(func(ev verbs.AsyncEvent) bool { return ev.Kind == verbs.AsyncCQError && ev.CQ == c.v })
}

func cqOverflow(e *env) {
	o := e.overflowing()
	for _, q := range []*qp{o.b, o.idle} {
		q.state(verbs.QPError)
		q.conn.next("an overflow", verbs.ConnBroken)
		if rest := q.scq.untilMark(q, false, "an overflow of the other CQ"); len(rest) != 0 {
			e.Errorf("completions of an idle send queue: %v", rest)
		}
	}
	for _, q := range []*qp{o.a, o.peer} {
		q.conn.next("the peer's overflow", verbs.ConnBroken, verbs.ConnDisconnected)
		q.state(verbs.QPError)
	}
	e.look(o.a.scq.poll)
	if n := e.overflowed(o.small); n != 1 {
		e.Errorf("%d reports of one overflow", n)
	}
	for _, q := range []*qp{o.b, o.idle} {
		q.gone = true
		e.bounded("Destroy of a QP whose CQ overflowed", func() {
			if err := q.v.Destroy(); err != nil {
				e.Errorf("Destroy of a QP whose CQ overflowed: %v", err)
			}
		})
	}
	e.must(o.small.v.Destroy(), "Destroy of a CQ that overflowed")
}

func cqOverflowKeeps(e *env) {
	o := e.overflowing()
	o.b.state(verbs.QPError)
	room := o.small.v.Cap()
	for i, c := range o.small.take(room, "what a CQ held when it overflowed") {
		if c.ID != o.ids[i] || c.Status != verbs.StatusSuccess || c.Op != verbs.OpRecv {
			e.Fatalf("completion %d in a CQ that overflowed: %v, want that of receive %#x", i, c, o.ids[i])
		}
	}
}

func cqOverflowAlone(e *env) {
	c, d := e.couple()
	e.overflowing().b.state(verbs.QPError)
	e.ping(c, d)
	e.ping(d, c)
	if n := c.conn.count() + d.conn.count(); n != 2 {
		e.Errorf("a connection with other CQs saw %d events, want the two of its set-up", n)
	}
}
