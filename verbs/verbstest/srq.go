package verbstest

import (
	"fmt"

	"kdapl/verbs"
)

var srqRules = []rule{
	{"receives of an SRQ serve several QPs", verbs.CapSRQ, srqShared},
	{"one QP takes the receives of an SRQ in their order", verbs.CapSRQ, srqOrder},
	{"a QP with an SRQ takes no receives of its own", verbs.CapSRQ, srqOwnRecv},
	{"Available counts what no QP has taken", verbs.CapSRQ, srqAvailable},
	{"a full SRQ refuses and takes nothing", verbs.CapSRQ, srqFull},
	{"a list of shared receives is taken up to its first bad one", verbs.CapSRQ, srqPartial},
	{"a shared receive needs local write and the SRQ's PD", verbs.CapSRQ, srqProtection},
	{"an empty SRQ lets a send wait where there is RNR", verbs.CapSRQ | verbs.CapRNR, srqWaits},
	{"an empty SRQ ends the connection where there is no RNR", verbs.CapSRQ, srqEmptyEnds},
	{"the limit event comes once, below the limit", verbs.CapSRQ | verbs.CapSRQLimit, srqLimit},
	{"the limit event comes at once if few are available", verbs.CapSRQ | verbs.CapSRQLimit, srqLimitAtOnce},
	{"a limit of 0 disarms", verbs.CapSRQ | verbs.CapSRQLimit, srqLimitDisarm},
	{"a limit beyond the depth is refused", verbs.CapSRQ | verbs.CapSRQLimit, srqLimitTooHigh},
	{"Resize of an SRQ keeps its receives", verbs.CapSRQ | verbs.CapSRQResize, srqResize},
	{"Resize of an SRQ below its receives is busy", verbs.CapSRQ | verbs.CapSRQResize, srqResizeBusy},
	{"Resize of an SRQ beyond the limits is refused", verbs.CapSRQ | verbs.CapSRQResize, srqResizeLimits},
	{"the end of a QP leaves the receives that it has not taken", verbs.CapSRQ, srqFlush},
	{"the last receive completion of a QP with an SRQ is announced once", verbs.CapSRQ, srqLastWQE},
	{"an SRQ with receives can be destroyed", verbs.CapSRQ, srqDestroyFull},
	{"an SRQ outlives its QPs", verbs.CapSRQ, srqOutlives},
	{"a message that does not fit a shared receive ends that connection only", verbs.CapSRQ, srqMisfit},
}

// srqPairs connects n QPs to QPs of the passive side that share an SRQ.
func (e *env) srqPairs(s *srq, n int) (as, bs []*qp) {
	e.Helper()
	for range n {
		a, b := e.link(conf{}, conf{srq: s})
		as, bs = append(as, a), append(bs, b)
	}
	return as, bs
}

func srqShared(e *env) {
	s := e.b.srq(e.b.srqDepth())
	as, bs := e.srqPairs(s, 3)
	const size = 16
	n := min(24, e.b.srqDepth()) / 3 * 3
	dst := e.b.mem(size*n, localWrite)
	slot := map[uint64]int{}
	for i := range n {
		wr := e.recv(dst.sge(size*i, size))
		slot[wr.ID] = i
		s.recv(wr)
	}
	for i := range n {
		src := e.a.source(size)
		a, b := as[i%3], bs[i%3]
		a.post(e.send(src.all()))
		c := b.rcq.ok(1, "shared receive")[0]
		dst.same(size*slot[c.ID], src.buf, "message in a shared receive")
		a.scq.ok(1, "send")
	}
	s.available(0, "after as many messages as receives")
}

func srqOrder(e *env) {
	s := e.b.srq(e.b.srqDepth())
	as, bs := e.srqPairs(s, 1)
	n := min(10, e.b.srqDepth())
	var ids []uint64
	for range n {
		wr := e.recv()
		ids = append(ids, wr.ID)
		s.recv(wr)
	}
	for range n {
		as[0].post(e.send())
	}
	for i, c := range bs[0].rcq.ok(n, "shared receives") {
		if c.ID != ids[i] {
			e.Fatalf("message %d took receive %#x, want %#x", i, c.ID, ids[i])
		}
	}
	as[0].scq.ok(n, "sends")
}

func srqOwnRecv(e *env) {
	q := e.b.ready(conf{srq: e.b.srq(4)})
	n, err := q.v.PostRecv([]verbs.RecvWR{e.recv()})
	if n != 0 {
		e.Errorf("a QP with an SRQ took %d receives", n)
	}
	e.refused(err, "PostRecv of a QP with an SRQ", verbs.ErrState)
}

func srqAvailable(e *env) {
	s := e.b.srq(8)
	s.available(0, "a new SRQ")
	as, bs := e.srqPairs(s, 1)
	s.available(0, "an SRQ with a connected QP")
	s.recv(e.recv(), e.recv(), e.recv())
	s.available(3, "after three receives")
	as[0].post(e.send())
	bs[0].rcq.ok(1, "receive")
	s.available(2, "after a message")
	s.recv(e.recv())
	s.available(3, "after another receive")
	as[0].scq.ok(1, "send")
}

func srqFull(e *env) {
	s := e.b.srq(4)
	n := e.full("shared receive", 4, 4+e.b.attr.MaxSRQWR, func() error { return accept2(s.tryRecv(e.recv())) })
	if m, err := s.tryRecv(e.recv(), e.recv()); m != 0 {
		e.Errorf("a full SRQ took %d: %v", m, err)
	}
	s.available(n, "a full SRQ")
	as, bs := e.srqPairs(s, 1)
	as[0].post(e.send())
	bs[0].rcq.ok(1, "receive")
	as[0].scq.ok(1, "send")
	s.recv(e.recv())
}

func srqPartial(e *env) {
	s := e.b.srq(8)
	for _, bad := range []int{verbs.MaxSGE + 1, 255, e.b.attr.MaxSRQSGE + 1} {
		before := s.v.Available()
		wr := e.recv()
		wr.NumSGE = uint8(bad)
		n, err := s.tryRecv(e.recv(), wr, e.recv())
		if n != 1 {
			e.Errorf("a list with a bad receive in second place: %d taken", n)
		}
		e.refused(err, fmt.Sprintf("a shared receive with %d segments", bad), verbs.ErrInvalid, verbs.ErrLength)
		s.available(before+1, "after a list with a bad receive")
	}
}

func srqProtection(e *env) {
	pd, err := e.b.ctx.AllocPD()
	e.must(err, "AllocPD")
	foreign := e.b.memIn(pd, 64, localWrite)
	readOnly := e.b.mem(64, remoteRead)
	s := e.b.srq(8)
	for what, bad := range map[string]struct {
		sge  verbs.SGE
		want error
	}{
		"a region of another PD":       {foreign.sge(0, 8), verbs.ErrProtection},
		"a region without local write": {readOnly.sge(0, 8), verbs.ErrAccess},
		"a segment behind its region":  {e.b.mem(64, localWrite).sge(60, 8), verbs.ErrBounds},
	} {
		n, err := s.tryRecv(e.recv(bad.sge))
		if e.b.attr.Can(verbs.CapPostChecks) {
			if n != 0 {
				e.Errorf("a shared receive into %s was taken", what)
			}
			e.refused(err, "a shared receive into "+what, bad.want)
			continue
		}
		e.must(err, "PostRecv")
		as, bs := e.srqPairs(s, 1)
		as[0].post(e.send(e.a.source(8).all()))
		bs[0].failed(bs[0].rcq.one(what), what, verbs.StatusLocalProtection)
		e.broken(what, as[0], bs[0])
	}
	foreign.zero(0, 64, "a region of another PD")
	readOnly.zero(0, 64, "a region without local write")
}

func srqWaits(e *env) {
	s := e.b.srq(8)
	as, bs := e.srqPairs(s, 3)
	for _, a := range as {
		a.post(e.send())
	}
	for _, b := range bs {
		b.rcq.none("a send to an empty SRQ")
	}
	for i := range as {
		s.recv(e.recv())
		e.eventually(func() bool {
			n := 0
			for _, b := range bs {
				n += b.rcq.size()
			}
			return n == i+1
		}, "receive %d serves a waiting send", i+1)
	}
	for i := range as {
		as[i].scq.ok(1, "send that waited")
		bs[i].rcq.ok(1, "receive that was waited for")
	}
	s.available(0, "after as many messages as receives")
}

func srqEmptyEnds(e *env) {
	if e.can(verbs.CapRNR) {
		e.Skip("sends of these devices wait for a receive")
	}
	s := e.b.srq(8)
	as, bs := e.srqPairs(s, 2)
	as[0].post(e.send())
	as[0].scq.one("a send to an empty SRQ")
	e.broken("a send to an empty SRQ", as[0], bs[0])
	s.recv(e.recv())
	as[1].post(e.send())
	bs[1].rcq.ok(1, "receive of another QP")
}

// limits counts the limit events of an SRQ.
func (s *srq) limits() int { return s.s.async.of(verbs.AsyncSRQLimit, s.user) }

// message sends one message of no bytes and waits for both completions.
func (e *env) message(a, b *qp) {
	e.Helper()
	a.post(e.send())
	b.rcq.ok(1, "receive")
	a.scq.ok(1, "send")
}

func srqLimit(e *env) {
	s := e.b.srq(8)
	as, bs := e.srqPairs(s, 1)
	a, b := as[0], bs[0]
	for range 5 {
		s.recv(e.recv())
	}
	e.message(a, b)
	if n := s.limits(); n != 0 {
		e.Errorf("%d limit events of an SRQ that is not armed", n)
	}
	e.must(s.v.SetLimit(3), "SetLimit")
	e.message(a, b) // 3 are left, which is not fewer than 3
	a.rcq.none("looking around")
	if n := s.limits(); n != 0 {
		e.Errorf("%d limit events with as many receives as the limit", n)
	}
	e.message(a, b)
	e.eventually(func() bool { return s.limits() == 1 }, "limit event with 2 receives and a limit of 3")
	e.message(a, b)
	e.message(a, b)
	a.rcq.none("looking around")
	if n := s.limits(); n != 1 {
		e.Errorf("%d limit events of one arming", n)
	}
	// Armed again it comes again.
	s.recv(e.recv(), e.recv(), e.recv())
	e.must(s.v.SetLimit(2), "SetLimit")
	e.message(a, b)
	e.message(a, b)
	e.eventually(func() bool { return s.limits() == 2 }, "second limit event")
}

func srqLimitAtOnce(e *env) {
	s := e.b.srq(8)
	s.recv(e.recv(), e.recv())
	e.must(s.v.SetLimit(2), "SetLimit")
	e.b.cq(1).none("looking around")
	if n := s.limits(); n != 0 {
		e.Errorf("%d limit events with 2 receives and a limit of 2", n)
	}
	e.must(s.v.SetLimit(3), "SetLimit")
	e.eventually(func() bool { return s.limits() == 1 }, "limit event with 2 receives and a limit of 3")
	e.b.cq(1).none("looking around")
	if n := s.limits(); n != 1 {
		e.Errorf("%d limit events of one arming", n)
	}
}

func srqLimitDisarm(e *env) {
	s := e.b.srq(8)
	as, bs := e.srqPairs(s, 1)
	s.recv(e.recv(), e.recv(), e.recv())
	e.must(s.v.SetLimit(3), "SetLimit")
	e.must(s.v.SetLimit(0), "SetLimit(0)")
	e.message(as[0], bs[0])
	e.message(as[0], bs[0])
	as[0].rcq.none("looking around")
	if n := s.limits(); n != 0 {
		e.Errorf("%d limit events of an SRQ that was disarmed", n)
	}
}

func srqLimitTooHigh(e *env) {
	s := e.b.srq(4)
	for _, limit := range []int{-1, e.b.attr.MaxSRQWR + 1} {
		e.refused(s.v.SetLimit(limit), fmt.Sprintf("SetLimit(%d)", limit), tooMuch...)
	}
	e.b.cq(1).none("looking around")
	if n := s.limits(); n != 0 {
		e.Errorf("%d limit events of a limit that was refused", n)
	}
}

func srqResize(e *env) {
	s := e.b.srq(4)
	as, bs := e.srqPairs(s, 1)
	var ids []uint64
	add := func(n int) {
		e.Helper()
		for range n {
			wr := e.recv()
			ids = append(ids, wr.ID)
			s.recv(wr)
		}
	}
	take := func(n int) {
		e.Helper()
		for range n {
			as[0].post(e.send())
			if c := bs[0].rcq.ok(1, "receive")[0]; c.ID != ids[0] {
				e.Fatalf("a message took receive %#x, want %#x", c.ID, ids[0])
			}
			ids = ids[1:]
			as[0].scq.ok(1, "send")
		}
	}
	add(3)
	take(2)
	add(3) // the ring has wrapped
	e.must(s.v.Resize(8), "Resize to 8")
	s.available(4, "after Resize")
	add(4)
	take(5)
	e.must(s.v.Resize(3), "Resize to 3")
	s.available(3, "after Resize")
	take(3)
	add(3)
	take(3)
}

func srqResizeBusy(e *env) {
	s := e.b.srq(8)
	for range 6 {
		s.recv(e.recv())
	}
	e.refused(s.v.Resize(4), "Resize to 4 with 6 receives", verbs.ErrBusy)
	s.available(6, "after a refused Resize")
	e.must(s.v.Resize(6), "Resize to 6 with 6 receives")
	s.available(6, "after Resize")
}

func srqResizeLimits(e *env) {
	s := e.b.srq(4)
	s.recv(e.recv())
	for _, n := range []int{-1, e.b.attr.MaxSRQWR + 1} {
		e.refused(s.v.Resize(n), fmt.Sprintf("Resize to %d", n), tooMuch...)
	}
	s.available(1, "after a refused Resize")
}

func srqFlush(e *env) {
	s := e.b.srq(8)
	as, bs := e.srqPairs(s, 2)
	s.recv(e.recv(), e.recv(), e.recv())
	e.message(as[0], bs[0])
	bs[0].modify(verbs.QPError)
	if rest := bs[0].rcq.untilMark(bs[0], true, "Modify to Error"); len(rest) != 0 {
		e.Errorf("receives that the QP had not taken: %v", rest)
	}
	s.available(2, "after the end of one QP")
	e.message(as[1], bs[1])
	e.must(as[1].v.Disconnect(false), "Disconnect")
	bs[1].conn.next("the peer's Disconnect", verbs.ConnDisconnected)
	if rest := bs[1].rcq.untilMark(bs[1], true, "the peer's Disconnect"); len(rest) != 0 {
		e.Errorf("receives that the QP had not taken: %v", rest)
	}
	s.available(1, "after the end of both QPs")
}

func srqLastWQE(e *env) {
	s := e.b.srq(8)
	as, bs := e.srqPairs(s, 2)
	s.recv(e.recv(), e.recv())
	last := func(q *qp) int { return e.b.async.of(verbs.AsyncLastWQE, q.user) }
	e.message(as[0], bs[0])
	if last(bs[0])+last(bs[1]) != 0 {
		e.Error("AsyncLastWQE of a live QP")
	}
	bs[0].modify(verbs.QPError)
	e.eventually(func() bool { return last(bs[0]) == 1 }, "AsyncLastWQE after Modify to Error")
	e.must(as[1].v.Disconnect(true), "Disconnect")
	e.eventually(func() bool { bs[1].help(); return last(bs[1]) == 1 }, "AsyncLastWQE after the peer's Disconnect")
	bs[0].modify(verbs.QPError)
	bs[0].rcq.untilMark(bs[0], true, "Modify to Error")
	bs[1].rcq.untilMark(bs[1], true, "the peer's Disconnect")
	bs[0].rcq.none("looking around")
	if last(bs[0]) != 1 || last(bs[1]) != 1 {
		e.Errorf("AsyncLastWQE came %d and %d times", last(bs[0]), last(bs[1]))
	}
}

func srqDestroyFull(e *env) {
	s := e.b.srq(8)
	as, bs := e.srqPairs(s, 1)
	s.recv(e.recv(), e.recv(), e.recv())
	e.message(as[0], bs[0])
	bs[0].destroy()
	e.must(s.v.Destroy(), "Destroy of an SRQ with receives")
	bs[0].rcq.untilMark(bs[0], true, "Destroy")
	bs[0].rcq.none("receives of a destroyed SRQ")
}

func srqOutlives(e *env) {
	s := e.b.srq(8)
	for range e.rounds(20) {
		s.recv(e.recv())
		as, bs := e.srqPairs(s, 1)
		e.message(as[0], bs[0])
		as[0].destroy()
		bs[0].destroy()
	}
	s.available(0, "after as many messages as receives")
}

func srqMisfit(e *env) {
	s := e.b.srq(8)
	as, bs := e.srqPairs(s, 2)
	s.recv(e.recv(e.b.mem(4, localWrite).all()), e.recv(e.b.mem(64, localWrite).all()))
	as[0].post(e.send(e.a.source(8).all()))
	bs[0].failed(bs[0].rcq.one("receive"), "a message that does not fit", verbs.StatusLocalLength)
	e.broken("a message that does not fit", as[0], bs[0])
	as[1].post(e.send(e.a.source(8).all()))
	bs[1].rcq.ok(1, "receive of another QP")
	as[1].scq.ok(1, "send of another QP")
}
