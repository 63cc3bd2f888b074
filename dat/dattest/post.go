package dattest

import (
	"fmt"
	"math"
	"slices"

	"kdapl/dat"
)

// What dat_ep_post_* take, what they refuse, and how many are outstanding.
var postRules = []rule{
	{"an operation has its place until its event is taken", 0, postLimits},
	{"suppressed successes have no event, and leave no place behind", 0, postSuppressed},
	{"a list is posted in order, up to the first that cannot be", 0, postList},
	{"lengths fit the segments, the peer's buffer and the EP's limits", 0, postLengths},
	{"segments are of the EP's zone, within their region and its privileges", 0, postSegments},
	{"an operation has as many segments as the EP allows", 0, postSegmentCount},
	{"completion flags fit the EP's", 0, postFlags},
	{"each state allows its posts", 0, postStates},
	{"receives that are posted before the connection serve it", 0, postEarly},
	{"an EP without EVDs works all the same", 0, postSilent},
	{"an EP without room for a kind of operation takes none", 0, postNone},
	{"an EP has as many operations as the attributes say", 0, postMost},
}

// depth bounds the operations of an EP.
func depth(n int) func(*dat.EPConfig, *dat.EPAttr) {
	return func(_ *dat.EPConfig, a *dat.EPAttr) { a.MaxRecvDTOs, a.MaxRequestDTOs = n, n }
}

func postLimits(e *env) {
	for _, n := range []int{1, 2, 5} {
		a, b := e.link(depth(n))
		write := func(cookie uint64) error {
			return a.PostRDMAWrite(cookie, 0, e.b.lmr.RMRTriplet(0, 8), e.a.lmr.Triplet(0, 8))
		}
		next, taken := uint64(0), uint64(0)
		full := func() {
			for ; next < taken+uint64(n); next++ {
				e.must(write(next), "write %d behind %d of %d", next, taken, n)
			}
			e.queued(e.a.request, n) // their events are there: they have completed, and still have their places
			if err := write(99); err != dat.ErrPostFull {
				e.Fatalf("one more than %d: %v", n, err)
			}
			if got, err := a.Post([]dat.Request{{Op: dat.OpSend, Cookie: 99}}); got != 0 || err != dat.ErrPostFull {
				e.Fatalf("a list beyond %d: %d, %v", n, got, err)
			}
		}
		for range 3 * n {
			full()
			e.done(e.a.request, taken, dat.StatusSuccess)
			taken++
		}
		for range all(e.a.request) {
			taken++
		}
		if taken != next {
			e.Fatalf("%d events for %d writes", taken, next)
		}
		for i := range n {
			e.must(b.PostRecv(uint64(i), 0), "PostRecv")
		}
		if err := b.PostRecv(99, 0); err != dat.ErrPostFull {
			e.Fatalf("one more receive than %d: %v", n, err)
		}
		if got, err := b.PostRecvs([]dat.Receive{{Cookie: 99}}); got != 0 || err != dat.ErrPostFull {
			e.Fatalf("a list of receives beyond %d: %d, %v", n, got, err)
		}
		e.must(a.PostSend(0, 0), "PostSend")
		e.queued(e.b.recv, 1)
		if err := b.PostRecv(99, 0); err != dat.ErrPostFull {
			e.Fatalf("a receive whose event is not taken has lost its place: %v", err)
		}
		e.done(e.b.recv, 0, dat.StatusSuccess)
		e.must(b.PostRecv(0, 0), "PostRecv")
		e.done(e.a.request, 0, dat.StatusSuccess)
		e.must(b.Disconnect(dat.CloseAbrupt), "Disconnect")
		for i := range n {
			e.done(e.b.recv, uint64((i+1)%n), dat.StatusFlushed)
		}
		e.event(e.b.connect, dat.ConnectionDisconnected)
		e.event(e.a.connect, dat.ConnectionDisconnected)
	}
}

func postSuppressed(e *env) {
	a, _ := e.link(depth(4))
	write := func(cookie uint64, f dat.CompletionFlags) {
		e.Helper()
		e.eventually("room for another write", func() bool {
			err := a.PostRDMAWrite(cookie, f, e.b.lmr.RMRTriplet(0, 8), e.a.lmr.Triplet(0, 8))
			if err != nil && err != dat.ErrPostFull {
				e.Fatalf("PostRDMAWrite: %v", err)
			}
			return err == nil
		})
	}
	n := e.rounds(500)
	for range n {
		write(1, dat.CompletionSuppress)
	}
	write(2, 0)
	e.done(e.a.request, 2, dat.StatusSuccess)
	e.none(e.a.request, "behind suppressed writes")
	if q, err := a.Query(); err != nil || q.RequestCounters.Succeeded != uint64(n)+1 {
		e.Errorf("%+v, %v; want %d successes", q.RequestCounters, err, n+1)
	}
	// A failure has an event in any case.
	bad := e.b.lmr.RMRTriplet(0, 8)
	bad.RMRContext ^= 0xFF00
	e.must(a.PostRDMARead(3, dat.CompletionSuppress, bad, e.a.lmr.Triplet(0, 8)), "PostRDMARead")
	e.done(e.a.request, 3, dat.StatusRemoteAccess)
	e.broken()
}

func postList(e *env) {
	const n = 40
	e.a.request = e.a.evdOf(dat.EVDConfig{MinLen: 2 * n})
	a, _ := e.link(depth(n))
	for _, post := range []func() (int, error){
		func() (int, error) { return a.Post(nil) },
		func() (int, error) { return a.PostRecvs(nil) },
	} {
		if got, err := post(); got != 0 || err != nil {
			e.Errorf("an empty list: %d, %v", got, err)
		}
	}
	good := dat.Request{Op: dat.OpRDMAWrite, Remote: e.b.lmr.RMRTriplet(0, 8), Local: []dat.LMRTriplet{e.a.lmr.Triplet(0, 8)}}
	list := func(n int) []dat.Request {
		l := slices.Repeat([]dat.Request{good}, n)
		for i := range l {
			l[i].Cookie = uint64(i)
		}
		return l
	}
	posted := func(want int) {
		e.Helper()
		for i := range want {
			e.done(e.a.request, uint64(i), dat.StatusSuccess)
		}
		e.none(e.a.request, "behind a list")
	}
	for _, at := range []int{0, 1, 31, 32, 33, n - 1} {
		for _, c := range []struct {
			what  string
			spoil func(*dat.Request)
			typ   dat.Type
		}{
			{"flags", func(r *dat.Request) { r.Flags = 1 << 31 }, dat.InvalidParameter},
			{"a segment", func(r *dat.Request) { r.Local = []dat.LMRTriplet{{SegmentLength: 8, LMRContext: 1}} }, dat.ProtectionViolation},
			{"no such operation", func(r *dat.Request) { r.Op = 99 }, dat.InvalidParameter},
		} {
			l := list(n)
			c.spoil(&l[at])
			got, err := a.Post(l)
			e.refused(err, c.what, c.typ)
			if got != at {
				e.Fatalf("%s at %d: %d were posted", c.what, at, got)
			}
			posted(at)
		}
		r := make([]dat.Receive, n)
		r[at].Local = []dat.LMRTriplet{{SegmentLength: 8, LMRContext: 1}}
		b := e.a.ep(depth(n))
		got, err := b.PostRecvs(r)
		e.refused(err, "a receive", dat.ProtectionViolation)
		if got != at {
			e.Fatalf("a receive at %d: %d were posted", at, got)
		}
		if q, err := b.Query(); err != nil || q.RecvCounters.Posted != uint64(at) {
			e.Errorf("%+v, %v", q.RecvCounters, err)
		}
		e.must(b.Free(), "Free")
		all(e.a.recv)
	}
	got, err := a.Post(list(n + 10))
	if got != n || err != dat.ErrPostFull {
		e.Errorf("%d of %d for %d places: %v", got, n+10, n, err)
	}
	posted(n)
}

func postLengths(e *env) {
	a, b := e.link(func(_ *dat.EPConfig, a *dat.EPAttr) { a.MaxMessageSize, a.MaxRDMASize = 1000, 2000 })
	seg := func(lengths ...int) []dat.LMRTriplet {
		segs, _ := e.a.cut(lengths...)
		return segs
	}
	for _, c := range []struct {
		op     dat.Operation
		remote int
		local  []dat.LMRTriplet
		bad    bool
		length uint32
	}{
		{dat.OpSend, 0, nil, false, 0},
		{dat.OpSend, 0, seg(0), false, 0},
		{dat.OpSend, 0, seg(1000), false, 1000},
		{dat.OpSend, 0, seg(400, 600), false, 1000},
		{dat.OpSend, 0, seg(1001), true, 0},
		{dat.OpSend, 0, seg(500, 501), true, 0},
		{dat.OpRDMAWrite, 0, nil, false, 0},
		{dat.OpRDMAWrite, 2000, seg(2000), false, 2000},
		{dat.OpRDMAWrite, 2000, seg(1999), false, 1999},
		{dat.OpRDMAWrite, 1999, seg(2000), true, 0},
		{dat.OpRDMAWrite, 4000, seg(1000, 1001), true, 0},
		{dat.OpRDMARead, 0, nil, false, 0},
		{dat.OpRDMARead, 2000, seg(2000), false, 2000},
		{dat.OpRDMARead, 10, seg(2000), false, 10},
		{dat.OpRDMARead, 2000, seg(1999), true, 0},
		{dat.OpRDMARead, 2001, seg(3000), true, 0},
		{dat.OpRDMAWrite, 0, []dat.LMRTriplet{e.a.lmr.Triplet(0, math.MaxUint32)}, true, 0},
	} {
		if c.op == dat.OpSend && !c.bad {
			e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(0, 2000)), "PostRecv")
		}
		what := fmt.Sprintf("%v of %v at %d", c.op, c.local, c.remote)
		got, err := a.Post([]dat.Request{{Op: c.op, Cookie: 2, Remote: e.b.lmr.RMRTriplet(0, c.remote), Local: c.local}})
		if c.bad {
			if e.refused(err, what, dat.LengthError); got != 0 {
				e.Errorf("%s was posted", what)
			}
			continue
		}
		e.must(err, "%s", what)
		if d := e.done(e.a.request, 2, dat.StatusSuccess); d.Length != c.length {
			e.Errorf("%s: %d bytes, want %d", what, d.Length, c.length)
		}
		if c.op == dat.OpSend {
			e.done(e.b.recv, 1, dat.StatusSuccess)
		}
	}
	e.none(e.a.request, "after refusals")
}

// posts are one post of each kind with a local segment of 8 bytes.
func (e *env) posts(ep *dat.EP, segs ...dat.LMRTriplet) map[string]error {
	return map[string]error{
		"a send":    ep.PostSend(1, 0, segs...),
		"a write":   ep.PostRDMAWrite(1, 0, e.b.lmr.RMRTriplet(0, 64), segs...),
		"a read":    ep.PostRDMARead(1, 0, e.b.lmr.RMRTriplet(0, 8), segs...),
		"a receive": ep.PostRecv(1, 0, segs...),
	}
}

func postSegments(e *env) {
	a, b := e.link()
	pz, err := e.a.ia.NewPZ()
	e.must(err, "NewPZ")
	foreign, err := pz.Register(make([]byte, 64), dat.PrivAll)
	e.must(err, "Register")
	freed := e.a.register(make([]byte, 64), dat.PrivAll)
	stale := freed.Triplet(0, 8)
	e.must(freed.Free(), "LMR.Free")
	unknown := e.a.lmr.Triplet(0, 8)
	unknown.LMRContext ^= 0xFFFF
	for what, seg := range map[string]dat.LMRTriplet{
		"of another zone":  foreign.Triplet(0, 8),
		"freed":            stale,
		"unknown":          unknown,
		"beyond the end":   e.a.lmr.Triplet(memSize-7, 8),
		"before the start": e.a.lmr.Triplet(-1, 8),
		"far away":         e.a.lmr.Triplet(1<<31, 8),
		"wrapping around":  {VirtualAddress: math.MaxUint64 - 3, SegmentLength: 8, LMRContext: e.a.lmr.LMRContext()},
	} {
		for op, err := range e.posts(a, seg) {
			e.refused(err, op+" with a segment "+what, dat.ProtectionViolation)
		}
		e.refused(a.PostSend(1, 0, e.a.lmr.Triplet(0, 8), seg), "a second segment "+what, dat.ProtectionViolation)
	}
	readOnly := e.a.register(make([]byte, 8), dat.PrivLocalRead).Triplet(0, 8)
	writeOnly := e.a.register(make([]byte, 8), dat.PrivLocalWrite).Triplet(0, 8)
	e.refused(a.PostSend(1, 0, writeOnly), "a send from what is not to be read", dat.PrivilegesViolation)
	e.refused(a.PostRDMAWrite(1, 0, e.b.lmr.RMRTriplet(0, 8), writeOnly), "a write from what is not to be read", dat.PrivilegesViolation)
	e.refused(a.PostRDMARead(1, 0, e.b.lmr.RMRTriplet(0, 8), readOnly), "a read into what is not to be written", dat.PrivilegesViolation)
	e.refused(a.PostRecv(1, 0, readOnly), "a receive into what is not to be written", dat.PrivilegesViolation)
	// What has no length may be anywhere.
	e.must(b.PostRecv(3, 0), "PostRecv")
	e.must(a.PostSend(2, 0, dat.LMRTriplet{VirtualAddress: 1, LMRContext: 12345}), "PostSend of an empty segment")
	e.done(e.a.request, 2, dat.StatusSuccess)
	e.done(e.b.recv, 3, dat.StatusSuccess)
	if s, err := a.Status(); err != nil || s.State != dat.StateConnected || !s.RecvIdle || !s.RequestIdle {
		e.Errorf("after refusals: %+v, %v", s, err)
	}
}

func postSegmentCount(e *env) {
	a, b := e.link()
	q, err := a.Query()
	e.must(err, "Query")
	segs := slices.Repeat([]dat.LMRTriplet{e.a.lmr.Triplet(0, 1)}, 1+max(q.Attr.MaxRequestIOV, q.Attr.MaxRecvIOV, q.Attr.MaxRDMAReadIOV, q.Attr.MaxRDMAWriteIOV))
	remote := e.b.lmr.RMRTriplet(0, 64)
	one := e.b.lmr.RMRTriplet(0, 1)
	for _, c := range []struct {
		what string
		most int
		post func(n int) error
	}{
		{"a send", q.Attr.MaxRequestIOV, func(n int) error { return a.PostSend(1, 0, segs[:n]...) }},
		{"a receive", q.Attr.MaxRecvIOV, func(n int) error { return a.PostRecv(1, 0, segs[:n]...) }},
		{"a write", q.Attr.MaxRDMAWriteIOV, func(n int) error { return a.PostRDMAWrite(1, 0, remote, segs[:n]...) }},
		{"a read", q.Attr.MaxRDMAReadIOV, func(n int) error { return a.PostRDMARead(1, 0, one, segs[:n]...) }},
	} {
		e.refused(c.post(c.most+1), fmt.Sprintf("%s with %d segments of %d", c.what, c.most+1, c.most), dat.InvalidParameter, dat.InvalidArg2)
		if c.what == "a send" {
			e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(0, 64)), "PostRecv")
		}
		e.must(c.post(c.most), "%s with %d segments", c.what, c.most)
		if c.what != "a receive" {
			e.done(e.a.request, 1, dat.StatusSuccess)
		}
	}
}

func postFlags(e *env) {
	a, _ := e.link()
	quiet, _ := e.quietly()
	for _, c := range []struct {
		ep    *dat.EP
		f     dat.CompletionFlags
		send  bool
		recvs bool
	}{
		{a, 0, true, true},
		{a, dat.CompletionBarrierFence, true, false},
		{a, dat.CompletionSuppress, true, false},
		{a, dat.CompletionSolicitedWait, true, false},
		{a, dat.CompletionUnsignalled, false, false},
		{a, 0x80, false, false},
		{a, 1 << 31, false, false},
		{quiet, dat.CompletionUnsignalled, true, true},
		{quiet, dat.CompletionUnsignalled | dat.CompletionSuppress, true, false},
	} {
		check := func(op string, err error, good bool) {
			e.Helper()
			if good {
				e.must(err, "%s with %v on %v", op, c.f, c.ep)
			} else {
				e.refused(err, fmt.Sprintf("%s with %v on %v", op, c.f, c.ep), dat.InvalidParameter, dat.InvalidArg5)
			}
		}
		check("a write", c.ep.PostRDMAWrite(1, c.f, e.b.lmr.RMRTriplet(0, 8), e.a.lmr.Triplet(0, 8)), c.send)
		check("a receive", c.ep.PostRecv(2, c.f, e.a.lmr.Triplet(0, 8)), c.recvs)
	}
}

func postStates(e *env) {
	a := e.a.ep()
	seg := e.a.lmr.Triplet(0, 8)
	check := func(when string, sub dat.Subtype) {
		e.Helper()
		for op, err := range e.posts(a, seg) {
			if op == "a receive" {
				e.must(err, "%s %s", op, when)
			} else {
				e.refused(err, op+" "+when, dat.InvalidState, sub)
			}
		}
	}
	check("on an unconnected EP", dat.InvalidStateEPUnconnected)
	psp := e.b.listen()
	e.call(a, psp.ConnQual())
	cr := e.b.request1()
	check("during the connect", dat.InvalidStateEPActConnPending)
	e.must(cr.Reject(nil), "Reject")
	e.event(e.a.connect, dat.ConnectionPeerRejected)
	for range 2 {
		e.done(e.a.recv, 1, dat.StatusFlushed)
	}
	a2, b := e.a.ep(), e.b.ep()
	e.join(a2, b)
	e.must(a2.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(e.a.connect, dat.ConnectionDisconnected)
	a = a2
	for op, err := range e.posts(a, seg) {
		e.must(err, "%s on a disconnected EP", op)
	}
	for range 3 {
		e.done(e.a.request, 1, dat.StatusFlushed)
	}
	e.done(e.a.recv, 1, dat.StatusFlushed)
}

func postEarly(e *env) {
	a, b := e.a.ep(), e.b.ep()
	e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(0, 8)), "PostRecv")
	e.must(a.PostRecv(2, 0, e.a.lmr.Triplet(64, 8)), "PostRecv")
	psp := e.b.listen()
	e.call(a, psp.ConnQual())
	cr := e.b.request1()
	e.must(b.PostRecv(3, 0, e.b.lmr.Triplet(8, 8)), "PostRecv")
	e.must(cr.Accept(b, nil), "Accept")
	e.established()
	copy(e.a.mem, "message1message2")
	e.must(a.PostSend(4, 0, e.a.lmr.Triplet(0, 8)), "PostSend")
	e.must(a.PostSend(5, 0, e.a.lmr.Triplet(8, 8)), "PostSend")
	e.done(e.b.recv, 1, dat.StatusSuccess)
	e.done(e.b.recv, 3, dat.StatusSuccess)
	if got := string(e.b.mem[:16]); got != "message1message2" {
		e.Errorf("got %q", got)
	}
	e.must(b.PostSend(6, 0, e.b.lmr.Triplet(0, 8)), "PostSend")
	e.done(e.a.recv, 2, dat.StatusSuccess)
}

func postSilent(e *env) {
	a := e.a.ep(depth(3), func(c *dat.EPConfig, _ *dat.EPAttr) { c.Recv, c.Request = nil, nil })
	b := e.b.ep()
	e.join(a, b)
	q, err := a.Query()
	if e.must(err, "Query"); q.Recv != nil || q.Request != nil {
		e.Errorf("%+v", q)
	}
	n := e.rounds(100)
	for range n {
		e.eventually("room for a receive", func() bool { return a.PostRecv(1, 0, e.a.lmr.Triplet(64, 8)) == nil })
		e.must(b.PostSend(2, 0, e.b.lmr.Triplet(0, 8)), "PostSend")
		e.done(e.b.request, 2, dat.StatusSuccess)
		e.eventually("room for a write", func() bool {
			return a.PostRDMAWrite(3, 0, e.b.lmr.RMRTriplet(64, 8), e.a.lmr.Triplet(0, 8)) == nil
		})
	}
	e.eventually("the outcome of everything", func() bool {
		q, err := a.Query()
		return err == nil && q.RecvCounters.Succeeded == uint64(n) && q.RequestCounters.Succeeded == uint64(n)
	})
	e.must(a.PostRecv(4, 0), "PostRecv")
	e.must(a.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(e.a.connect, dat.ConnectionDisconnected)
	e.eventually("the flush of the receive", func() bool {
		q, err := a.Query()
		return err == nil && q.RecvCounters.Flushed == 1
	})
}

func postNone(e *env) {
	a := e.a.ep(depth(0))
	if err := a.PostRecv(1, 0); err != dat.ErrPostFull {
		e.Errorf("a receive of none: %v", err)
	}
	e.join(a, e.b.ep(depth(0)))
	if err := a.PostSend(1, 0); err != dat.ErrPostFull {
		e.Errorf("a send of none: %v", err)
	}
	e.must(a.Disconnect(dat.CloseGraceful), "Disconnect")
	e.event(e.a.connect, dat.ConnectionDisconnected)
	e.event(e.b.connect, dat.ConnectionDisconnected)
}

func postMost(e *env) {
	n := min(e.a.attr.MaxDTOPerEP, e.a.attr.MaxEVDQLen-1)
	e.a.recv = e.a.evdOf(dat.EVDConfig{Streams: dat.StreamDTO})
	a := e.a.ep(func(c *dat.EPConfig, a *dat.EPAttr) { a.MaxRecvDTOs, a.MaxRequestDTOs, c.Request = n, min(n, 1), nil })
	for i := range n {
		e.must(a.PostRecv(uint64(i), 0, e.a.lmr.Triplet(0, 1)), "PostRecv %d of %d", i, n)
	}
	if err := a.PostRecv(0, 0); err != dat.ErrPostFull {
		e.Errorf("one more than %d: %v", n, err)
	}
	b := e.a.ep(func(c *dat.EPConfig, a *dat.EPAttr) {
		a.MaxRecvDTOs, a.MaxRequestDTOs, c.Recv, c.Request = 1, n, nil, nil
	})
	e.join(b, e.b.ep())
	for i := range n {
		e.must(b.PostRDMAWrite(uint64(i), 0, e.b.lmr.RMRTriplet(0, 8), e.a.lmr.Triplet(0, 8)), "PostRDMAWrite %d of %d", i, n)
	}
	e.must(a.Free(), "Free")
	for i := range n {
		e.done(e.a.recv, uint64(i), dat.StatusFlushed)
	}
}
