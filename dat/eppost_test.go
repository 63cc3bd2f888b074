package dat_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Tests of data transfer operations (section 7 of the reference; acceptance AC-15, AC-16, AC-23, AC-26).

func (p *pair) write(t testing.TB, cookie uint64, f dat.CompletionFlags) {
	t.Helper()
	ok(t, p.a.ep.PostRDMAWrite(cookie, f, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
}

// At most MaxRequestDTOs and MaxRecvDTOs operations are outstanding; one is until its event was taken. What is
// refused for want of room changes nothing.
func TestPostsAreLimitedUntilTheirEventsAreTaken(t *testing.T) {
	for _, depth := range []int{1, 2, 5, 16} {
		p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) { a.MaxRequestDTOs, a.MaxRecvDTOs = depth, depth }}).connect(t)
		next := uint64(0)
		taken := uint64(0)
		fill := func() {
			for {
				err := p.a.ep.PostRDMAWrite(next, 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8))
				if err == dat.ErrPostFull {
					break
				}
				ok(t, err)
				next++
			}
			if next-taken != uint64(depth) {
				t.Fatalf("%d of %d fit", next-taken, depth)
			}
			n, err := p.a.ep.Post([]dat.Request{{Op: dat.OpSend, Cookie: 99}})
			if n != 0 || err != dat.ErrPostFull {
				t.Fatal(n, err)
			}
		}
		fill()
		for i := range 3 * depth {
			nextDTO(t, p.a.evd, taken, dat.StatusSuccess)
			taken++
			if i%3 == 2 || taken == next {
				fill()
			}
		}
		if depth == 1 {
			continue
		}
		for i := range depth {
			ok(t, p.b.ep.PostRecv(uint64(i), 0, p.b.lmr.Triplet(0, 8)))
		}
		if err := p.b.ep.PostRecv(99, 0, p.b.lmr.Triplet(0, 8)); err != dat.ErrPostFull {
			t.Fatal(err)
		}
		if n, err := p.b.ep.PostRecvs([]dat.Receive{{Cookie: 99}}); n != 0 || err != dat.ErrPostFull {
			t.Fatal(n, err)
		}
		for range p.a.evd.Drain() {
		}
		ok(t, p.a.ep.PostSend(0, 0, p.a.lmr.Triplet(0, 8)))
		// It has completed; its place is free when the event is taken.
		if err := p.b.ep.PostRecv(99, 0, p.b.lmr.Triplet(0, 8)); err != dat.ErrPostFull {
			t.Fatal(err)
		}
		nextDTO(t, p.b.evd, 0, dat.StatusSuccess)
		ok(t, p.b.ep.PostRecv(0, 0, p.b.lmr.Triplet(0, 8)))
	}
}

// Suppressing completions leaks no room, whoever looks at the EVD or not, and hides success only.
func TestSuppressedCompletions(t *testing.T) {
	p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) { a.MaxRequestDTOs = 4 }}).connect(t)
	for range 100 {
		p.write(t, 1, dat.CompletionSuppress)
	}
	empty(t, p.a.evd)
	p.write(t, 2, 0)
	p.write(t, 3, dat.CompletionSuppress)
	nextDTO(t, p.a.evd, 2, dat.StatusSuccess)
	empty(t, p.a.evd)
	if q := must[dat.EPParam](t)(p.a.ep.Query()); q.RequestCounters.Succeeded != 102 {
		t.Fatalf("%+v", q.RequestCounters)
	}
	// A failure completes in any case.
	bad := p.b.lmr.RMRTriplet(0, 8)
	bad.RMRContext++
	ok(t, p.a.ep.PostRDMARead(4, dat.CompletionSuppress, bad, p.a.lmr.Triplet(0, 8)))
	nextDTO(t, p.a.evd, 4, dat.StatusRemoteAccess)
	p.a.next(t, dat.ConnectionBroken)
}

// UNSIGNALLED completions queue and start nothing; once an activation runs they come in their order.
func TestUnsignalledCompletionsDoNotNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) {
			a.RequestCompletionFlags, a.RecvCompletionFlags = dat.CompletionUnsignalled, dat.CompletionUnsignalled
		}}).connect(t)
		l := &upcallLog{}
		ok(t, p.a.evd.ModifyUpcall(dat.UpcallSingleInstance, l.upcall, dat.InvocNew))
		p.write(t, 1, dat.CompletionUnsignalled)
		p.write(t, 2, dat.CompletionUnsignalled)
		l.want(t)
		p.write(t, 3, 0)
		l.want(t, "RDMA_WRITE 1 SUCCESS", "RDMA_WRITE 2 SUCCESS", "RDMA_WRITE 3 SUCCESS")
		// The queue was empty: quiet again.
		p.write(t, 4, dat.CompletionUnsignalled)
		l.want(t, "RDMA_WRITE 1 SUCCESS", "RDMA_WRITE 2 SUCCESS", "RDMA_WRITE 3 SUCCESS")
		if ev := must[dat.Event](t)(p.a.evd.Dequeue()); short(ev) != "RDMA_WRITE 4 SUCCESS" {
			t.Fatal(ev)
		}
		// Receives say it at their post.
		ok(t, p.a.ep.PostRecv(5, dat.CompletionUnsignalled, p.a.lmr.Triplet(0, 8)))
		ok(t, p.a.ep.PostRecv(6, 0, p.a.lmr.Triplet(0, 8)))
		ok(t, p.a.ep.PostRecv(7, dat.CompletionUnsignalled, p.a.lmr.Triplet(0, 8)))
		l.calls = nil
		ok(t, p.b.ep.PostSend(1, dat.CompletionUnsignalled, p.b.lmr.Triplet(0, 8)))
		l.want(t)
		ok(t, p.b.ep.PostSend(2, dat.CompletionUnsignalled, p.b.lmr.Triplet(0, 8)))
		l.want(t, "RECEIVE 5 SUCCESS", "RECEIVE 6 SUCCESS")
		// Failures notify.
		l.calls = nil
		ok(t, p.b.ep.Disconnect(dat.CloseAbrupt))
		l.want(t, "RECEIVE 7 FLUSHED", dat.ConnectionDisconnected.String())
	})
}

// A quiet completion that arrives while an upcall of an emptied queue still runs is no reason for another.
func TestAQuietCompletionDuringAnUpcallStartsNoFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) { a.RequestCompletionFlags = dat.CompletionUnsignalled }}).connect(t)
		l := &upcallLog{}
		ok(t, p.a.evd.ModifyUpcall(dat.UpcallSingleInstance, l.upcall, dat.InvocNew))
		gate := l.block()
		p.write(t, 1, 0)
		l.want(t, "RDMA_WRITE 1 SUCCESS")
		p.write(t, 2, dat.CompletionUnsignalled)
		must[dat.EVDParam](t)(p.a.evd.Query()) // somebody looks
		close(gate)
		l.want(t, "RDMA_WRITE 1 SUCCESS")
		p.write(t, 3, 0)
		l.want(t, "RDMA_WRITE 1 SUCCESS", "RDMA_WRITE 2 SUCCESS", "RDMA_WRITE 3 SUCCESS")
	})
}

func TestUnsolicitedReceivesDoNotNotifyUnderSolicitedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, merged := range []bool{false, true} {
			p := newPair(t, pairConfig{split: !merged})
			ok(t, p.b.ep.Free())
			p.b.ep = p.b.newEP(t, func(a *dat.EPAttr) { a.RecvCompletionFlags = dat.CompletionSolicitedWait })
			p.connect(t)
			l := &upcallLog{}
			ok(t, p.b.recv.ModifyUpcall(dat.UpcallSingleInstance, l.upcall, dat.InvocNew))
			for i := range 6 {
				ok(t, p.b.ep.PostRecv(uint64(i), 0, p.b.lmr.Triplet(0, 8)))
			}
			send := func(cookie uint64, f dat.CompletionFlags) {
				ok(t, p.a.ep.PostSend(cookie, f|dat.CompletionSuppress, p.a.lmr.Triplet(0, 8)))
			}
			send(0, 0)
			send(1, 0)
			l.want(t)
			send(2, dat.CompletionSolicitedWait)
			l.want(t, "RECEIVE 0 SUCCESS", "RECEIVE 1 SUCCESS", "RECEIVE 2 SUCCESS")
			send(3, 0)
			l.want(t, "RECEIVE 0 SUCCESS", "RECEIVE 1 SUCCESS", "RECEIVE 2 SUCCESS")
			// INVOC_ANY is about any event, this one too.
			modify(t, p.b.recv, dat.UpcallDisable, dat.InvocNew)
			modify(t, p.b.recv, dat.UpcallSingleInstance, dat.InvocAny)
			l.want(t, "RECEIVE 0 SUCCESS", "RECEIVE 1 SUCCESS", "RECEIVE 2 SUCCESS", "RECEIVE 3 SUCCESS")
			l.calls = nil
			ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
			synctest.Wait()
			if want := []string{"RECEIVE 4 FLUSHED", "RECEIVE 5 FLUSHED"}; len(l.calls) < 2 || l.calls[1] != want[1] && l.calls[1] != want[1]+"+" {
				t.Fatalf("%q, want %q", l.calls, want)
			}
		}
	})
}

// A list is posted in order, up to the first request that cannot be.
func TestPostingAList(t *testing.T) {
	p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) { a.MaxRequestDTOs, a.MaxRecvDTOs = 100, 100 }}).connect(t)
	if n, err := p.a.ep.Post(nil); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := p.a.ep.PostRecvs(nil); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	good := dat.Request{Op: dat.OpRDMAWrite, Remote: p.b.lmr.RMRTriplet(0, 8), Local: []dat.LMRTriplet{p.a.lmr.Triplet(0, 8)}}
	recv := dat.Receive{Local: []dat.LMRTriplet{p.a.lmr.Triplet(0, 8)}}
	for _, at := range []int{0, 1, 31, 32, 33, 50, 99} {
		rs, vs := slices.Repeat([]dat.Request{good}, 100), slices.Repeat([]dat.Receive{recv}, 100)
		for i := range rs {
			rs[i].Cookie = uint64(i)
			vs[i].Cookie = uint64(i)
		}
		rs[at].Flags = 1 << 31
		n, err := p.a.ep.Post(rs)
		if refused(t, err, dat.InvalidParameter, dat.InvalidArg5); n != at {
			t.Fatalf("%d were posted, want %d", n, at)
		}
		for i := range at {
			nextDTO(t, p.a.evd, uint64(i), dat.StatusSuccess)
		}
		empty(t, p.a.evd)
		// One that the adapter refuses.
		rs[at].Flags = 0
		rs[at].Local = []dat.LMRTriplet{{SegmentLength: 8, LMRContext: 1}}
		if n, err = p.a.ep.Post(rs); n != at {
			t.Fatalf("%d were posted, want %d: %v", n, at, err)
		}
		refused(t, err, dat.ProtectionViolation, dat.NoSubtype)
		for i := range at {
			nextDTO(t, p.a.evd, uint64(i), dat.StatusSuccess)
		}
		empty(t, p.a.evd)
		vs[at].Local = slices.Repeat(recv.Local, 9)
		if at != 99 {
			continue
		}
		n, err = p.a.ep.PostRecvs(vs)
		if refused(t, err, dat.InvalidParameter, dat.InvalidArg2); n != at {
			t.Fatalf("%d were posted, want %d", n, at)
		}
	}
	// Longer than there is room for.
	n, err := p.a.ep.Post(slices.Repeat([]dat.Request{good}, 150))
	if n != 100 || err != dat.ErrPostFull {
		t.Fatal(n, err)
	}
}

// The sizes of a transfer must fit each other and the EP's limits.
func TestLengthRules(t *testing.T) {
	p := newPair(t, pairConfig{size: 1 << 16, attr: func(a *dat.EPAttr) { a.MaxMessageSize, a.MaxRDMASize = 1000, 2000 }}).connect(t)
	seg := func(lengths ...int) (all []dat.LMRTriplet) {
		for i, n := range lengths {
			all = append(all, p.a.lmr.Triplet(4096*i, n))
		}
		return all
	}
	remote := func(n int) dat.RMRTriplet { return p.b.lmr.RMRTriplet(0, n) }
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
		{dat.OpSend, 0, seg(400, 0, 600), false, 1000},
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
		{dat.OpRDMARead, 10, seg(7, 7, 7), false, 10},
		{dat.OpRDMARead, 2000, seg(1999), true, 0},
		{dat.OpRDMARead, 2001, seg(3000), true, 0},
		{dat.OpRDMAWrite, 0, seg(math.MaxUint32), true, 0},
	} {
		if c.op == dat.OpSend && !c.bad {
			ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 1<<16)))
		}
		n, err := p.a.ep.Post([]dat.Request{{Op: c.op, Cookie: 2, Remote: remote(c.remote), Local: c.local}})
		if c.bad {
			if refused(t, err, dat.LengthError, dat.NoSubtype); n != 0 {
				t.Fatal(n)
			}
			continue
		}
		ok(t, err)
		if d := nextDTO(t, p.a.evd, 2, dat.StatusSuccess); d.Length != c.length || d.Operation != c.op {
			t.Fatalf("%+v: %+v", c, d)
		}
		if c.op == dat.OpSend {
			if d := nextDTO(t, p.b.evd, 1, dat.StatusSuccess); d.Length != c.length {
				t.Fatalf("%+v: %+v", c, d)
			}
		}
	}
	empty(t, p.a.evd)
}

func TestReadsFillTheSegmentsInOrder(t *testing.T) {
	p := connectPair(t, 4096)
	copy(p.b.mem, "0123456789")
	for i := range p.a.mem {
		p.a.mem[i] = '.'
	}
	ok(t, p.a.ep.PostRDMARead(1, 0, p.b.lmr.RMRTriplet(0, 10), p.a.lmr.Triplet(20, 4), p.a.lmr.Triplet(10, 4), p.a.lmr.Triplet(0, 4)))
	nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
	if got := string(p.a.mem[:25]); got != "89........4567......0123." {
		t.Fatalf("%q", got)
	}
}

// Segments: how many, of which zone, with which privileges, within their region.
func TestLocalSegmentsAreCheckedByThePost(t *testing.T) {
	p := connectPair(t, 4096)
	mem := make([]byte, 64)
	otherPZ := must[*dat.PZ](t)(p.a.ia.NewPZ())
	lmr := func(pz *dat.PZ, priv dat.Priv) *dat.LMR { return must[*dat.LMR](t)(pz.Register(mem, priv)) }
	foreign := lmr(otherPZ, dat.PrivAll)
	readOnly, writeOnly := lmr(p.a.pz, dat.PrivLocalRead), lmr(p.a.pz, dat.PrivLocalWrite)
	freed := lmr(p.a.pz, dat.PrivAll)
	old := freed.Triplet(0, 8)
	ok(t, freed.Free())
	good := p.a.lmr.Triplet(0, 8)
	remote := p.b.lmr.RMRTriplet(0, 8)
	unknown := good
	unknown.LMRContext ^= 0xFFFF
	remoteOnly := good
	remoteOnly.LMRContext = p.a.lmr.RMRContext() ^ 1
	// These are refused for every kind of operation.
	for name, seg := range map[string]dat.LMRTriplet{
		"of another zone":    foreign.Triplet(0, 8),
		"of another IA":      p.b.lmr.Triplet(0, 8),
		"freed":              old,
		"unknown":            unknown,
		"nobody's":           remoteOnly,
		"beyond the end":     p.a.lmr.Triplet(4089, 8),
		"before the start":   p.a.lmr.Triplet(-1, 8),
		"far away":           p.a.lmr.Triplet(1<<31, 8),
		"wrapping":           {VirtualAddress: math.MaxUint64 - 3, SegmentLength: 8, LMRContext: good.LMRContext},
		"of a negative size": p.a.lmr.Triplet(0, -1),
		"of 4 GiB":           p.a.lmr.Triplet(0, 1<<32),
	} {
		for _, segs := range [][]dat.LMRTriplet{{seg}, {good, seg}} {
			total := int(seg.SegmentLength) + 8*(len(segs)-1)
			for op, err := range map[string]error{
				"send":  p.a.ep.PostSend(1, 0, segs...),
				"write": p.a.ep.PostRDMAWrite(1, 0, p.b.lmr.RMRTriplet(0, math.MaxInt32), segs...),
				"read":  p.a.ep.PostRDMARead(1, 0, p.b.lmr.RMRTriplet(0, min(total, 1<<20)), segs...),
				"recv":  p.a.ep.PostRecv(1, 0, segs...),
			} {
				if err == nil {
					t.Fatalf("%s with a segment %s was accepted", op, name)
				}
				if seg.SegmentLength > 1<<20 && op != "recv" {
					continue // too long, or outside
				}
				refused(t, err, dat.ProtectionViolation, dat.NoSubtype)
			}
		}
	}
	for name, c := range map[string]struct {
		err error
		sub dat.Subtype
	}{
		"send":  {p.a.ep.PostSend(1, 0, writeOnly.Triplet(0, 8)), dat.NoSubtype},
		"write": {p.a.ep.PostRDMAWrite(1, 0, remote, writeOnly.Triplet(0, 8)), dat.NoSubtype},
		"read":  {p.a.ep.PostRDMARead(1, 0, remote, readOnly.Triplet(0, 8)), dat.NoSubtype},
		"recv":  {p.a.ep.PostRecv(1, 0, readOnly.Triplet(0, 8)), dat.NoSubtype},
	} {
		t.Run(name, func(t *testing.T) { refused(t, c.err, dat.PrivilegesViolation, c.sub) })
	}
	// A segment without length has its other fields ignored.
	ok(t, p.b.ep.PostRecv(3, 0))
	ok(t, p.a.ep.PostSend(2, 0, dat.LMRTriplet{VirtualAddress: 1, LMRContext: 12345}))
	nextDTO(t, p.a.evd, 2, dat.StatusSuccess)
	nextDTO(t, p.b.evd, 3, dat.StatusSuccess)
	// How many.
	attr := must[dat.EPParam](t)(p.a.ep.Query()).Attr
	segs := slices.Repeat([]dat.LMRTriplet{p.a.lmr.Triplet(0, 1)}, 100)
	refused(t, p.a.ep.PostSend(1, 0, segs[:attr.MaxRequestIOV+1]...), dat.InvalidParameter, dat.InvalidArg2)
	refused(t, p.a.ep.PostRecv(1, 0, segs[:attr.MaxRecvIOV+1]...), dat.InvalidParameter, dat.InvalidArg2)
	refused(t, p.a.ep.PostRDMAWrite(1, 0, p.b.lmr.RMRTriplet(0, 100), segs[:attr.MaxRDMAWriteIOV+1]...), dat.InvalidParameter, dat.InvalidArg2)
	refused(t, p.a.ep.PostRDMARead(1, 0, p.b.lmr.RMRTriplet(0, 1), segs[:attr.MaxRDMAReadIOV+1]...), dat.InvalidParameter, dat.InvalidArg2)
	refused(t, p.a.ep.PostSend(1, 0, segs...), dat.InvalidParameter, dat.InvalidArg2)
	empty(t, p.a.evd)
	if s := must[dat.EPStatus](t)(p.a.ep.Status()); s.State != dat.StateConnected || !s.RecvIdle || !s.RequestIdle {
		t.Fatalf("%+v", s)
	}
}

// What a post refuses for its flags.
func TestCompletionFlagsAreChecked(t *testing.T) {
	for _, unsignalled := range []bool{false, true} {
		p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) {
			if unsignalled {
				a.RequestCompletionFlags, a.RecvCompletionFlags = dat.CompletionUnsignalled, dat.CompletionUnsignalled
			}
		}}).connect(t)
		for f := dat.CompletionFlags(0); f <= 0x80; f++ {
			const allowed = dat.CompletionSuppress | dat.CompletionSolicitedWait | dat.CompletionBarrierFence | dat.CompletionLMRInvalidateFence
			good := f&^(allowed|dat.CompletionUnsignalled) == 0 && (unsignalled || f&dat.CompletionUnsignalled == 0)
			err := p.a.ep.PostRDMAWrite(1, f, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8))
			if good {
				ok(t, err)
				for range p.a.evd.Drain() {
				}
			} else {
				refused(t, err, dat.InvalidParameter, dat.InvalidArg5)
			}
			good = f == 0 || f == dat.CompletionUnsignalled && unsignalled
			err = p.b.ep.PostRecv(1, f, p.b.lmr.Triplet(0, 8))
			if good {
				ok(t, err)
			} else {
				refused(t, err, dat.InvalidParameter, dat.InvalidArg5)
			}
		}
		refused(t, p.a.ep.PostRDMAWrite(1, 1<<31, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)), dat.InvalidParameter, dat.InvalidArg5)
	}
}

// What a peer refuses: contexts, bounds, privileges, zones. By the meaning of completions the requester learns of it with the
// operation or with the end of the connection; reads always tell.
func TestRemoteViolationsEndTheConnection(t *testing.T) {
	for _, meaning := range []verbs.CompletionMeaning{verbs.RemoteAcked, verbs.SourceReusable} {
		for name, bad := range map[string]func(t *testing.T, p *pair) dat.RMRTriplet{
			"unknown": func(t *testing.T, p *pair) dat.RMRTriplet {
				r := p.b.lmr.RMRTriplet(0, 8)
				r.RMRContext ^= 0xFF00
				return r
			},
			"freed": func(t *testing.T, p *pair) dat.RMRTriplet {
				l := must[*dat.LMR](t)(p.b.pz.Register(make([]byte, 64), dat.PrivAll))
				r := l.RMRTriplet(0, 8)
				ok(t, l.Free())
				return r
			},
			"beyond the end":   func(t *testing.T, p *pair) dat.RMRTriplet { return p.b.lmr.RMRTriplet(4089, 8) },
			"before the start": func(t *testing.T, p *pair) dat.RMRTriplet { return p.b.lmr.RMRTriplet(-8, 8) },
			"of another zone": func(t *testing.T, p *pair) dat.RMRTriplet {
				pz := must[*dat.PZ](t)(p.b.ia.NewPZ())
				return must[*dat.LMR](t)(pz.Register(make([]byte, 64), dat.PrivAll)).RMRTriplet(0, 8)
			},
			"without the privilege": func(t *testing.T, p *pair) dat.RMRTriplet {
				l := must[*dat.LMR](t)(p.b.pz.Register(make([]byte, 64), dat.PrivLocalRead|dat.PrivLocalWrite|dat.PrivRemoteAtomic))
				return l.RMRTriplet(0, 8)
			},
		} {
			for _, op := range []dat.Operation{dat.OpRDMAWrite, dat.OpRDMARead} {
				t.Run(fmt.Sprintf("%v/%v %s", meaning, op, name), func(t *testing.T) {
					p := newPair(t, pairConfig{loop: loop.Config{Completion: meaning}}).connect(t)
					ok(t, p.b.ep.PostRecv(7, 0, p.b.lmr.Triplet(0, 8)))
					ok(t, p.a.ep.PostRecv(8, 0, p.a.lmr.Triplet(0, 8)))
					before := bytes.Clone(p.b.mem)
					p.a.mem[0] = 0xEE
					_, err := p.a.ep.Post([]dat.Request{
						{Op: op, Cookie: 1, Remote: bad(t, p), Local: []dat.LMRTriplet{p.a.lmr.Triplet(0, 8)}},
						{Op: dat.OpSend, Cookie: 2},
					})
					ok(t, err)
					done, end := collectEnd(t, p.a.evd)
					want := dat.StatusRemoteAccess
					if meaning == verbs.SourceReusable && op == dat.OpRDMAWrite {
						want = dat.StatusSuccess
					}
					if done[1] != want || done[2] != dat.StatusFlushed || done[8] != dat.StatusFlushed || end != dat.ConnectionBroken {
						t.Fatal(done, end)
					}
					// The target sees only that the connection broke, and its memory is untouched.
					done, end = collectEnd(t, p.b.evd)
					if len(done) != 1 || done[7] != dat.StatusFlushed || end != dat.ConnectionBroken || !bytes.Equal(before, p.b.mem) {
						t.Fatal(done, end)
					}
				})
			}
		}
	}
}

// A message that is longer than the receive ends the connection on both sides.
func TestAMessageLongerThanTheReceive(t *testing.T) {
	for _, meaning := range []verbs.CompletionMeaning{verbs.RemoteAcked, verbs.SourceReusable} {
		p := newPair(t, pairConfig{loop: loop.Config{Completion: meaning}}).connect(t)
		ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 4), p.b.lmr.Triplet(8, 3)))
		ok(t, p.a.ep.PostSend(2, 0, p.a.lmr.Triplet(0, 8)))
		done, end := collectEnd(t, p.b.evd)
		if done[1] != dat.StatusLocalLength || end != dat.ConnectionBroken {
			t.Fatal(done, end)
		}
		done, end = collectEnd(t, p.a.evd)
		want := dat.StatusRemoteResponder
		if meaning == verbs.SourceReusable {
			want = dat.StatusSuccess
		}
		if done[2] != want || end != dat.ConnectionBroken {
			t.Fatal(done, end)
		}
	}
}

// A send that finds no receive waits for one where the transport can, for as long as it does; elsewhere it ends the
// connection.
func TestASendThatFindsNoReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{loop: loop.Config{RNRTimeout: time.Second}}).connect(t)
		q := must[dat.IAParam](t)(p.a.ia.Query()).Provider
		if providerAttr(q, dat.AttrReceiverNotReady) != "TRUE" || providerAttr(q, dat.AttrCompletionMeaning) != "REMOTE_ACKED" {
			t.Fatal(q.ProviderSpecificAttrs)
		}
		ok(t, p.a.ep.PostSend(1, 0, p.a.lmr.Triplet(0, 8)))
		synctest.Wait()
		empty(t, p.a.evd)
		ok(t, p.b.ep.PostRecv(2, 0, p.b.lmr.Triplet(0, 8)))
		nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
		nextDTO(t, p.b.evd, 2, dat.StatusSuccess)
		start := time.Now()
		ok(t, p.a.ep.PostSend(3, 0, p.a.lmr.Triplet(0, 8)))
		done, end := collectEnd(t, p.a.evd)
		if done[3] != dat.StatusReceiverNotReady || end != dat.ConnectionBroken || time.Since(start) != time.Second {
			t.Fatal(done, end, time.Since(start))
		}
		outcome(t, p.b.evd, p.b.ep, dat.ConnectionBroken)

		p = newPair(t, pairConfig{loop: loop.Config{Completion: verbs.SourceReusable}}).connect(t)
		q = must[dat.IAParam](t)(p.a.ia.Query()).Provider
		if providerAttr(q, dat.AttrReceiverNotReady) != "FALSE" || providerAttr(q, dat.AttrCompletionMeaning) != "SOURCE_REUSABLE" {
			t.Fatal(q.ProviderSpecificAttrs)
		}
		ok(t, p.a.ep.PostSend(1, 0, p.a.lmr.Triplet(0, 8)))
		done, end = collectEnd(t, p.a.evd)
		if done[1] != dat.StatusSuccess || end != dat.ConnectionBroken {
			t.Fatal(done, end)
		}
		outcome(t, p.b.evd, p.b.ep, dat.ConnectionBroken)
	})
}

// Messages arrive in the order of posting, matched to receives in theirs; RDMA writes before a send are visible when the send
// is received.
func TestOrderAndVisibility(t *testing.T) {
	p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) { a.MaxRequestDTOs, a.MaxRecvDTOs = 64, 32 }}).connect(t)
	for i := range 32 {
		ok(t, p.b.ep.PostRecv(uint64(i), 0, p.b.lmr.Triplet(32*i, 8)))
	}
	for i := range 32 {
		binary.BigEndian.PutUint64(p.a.mem[8*i:], uint64(i))
		ok(t, p.a.ep.PostRDMAWrite(uint64(2*i), 0, p.b.lmr.RMRTriplet(2048+8*i, 8), p.a.lmr.Triplet(8*i, 8)))
		ok(t, p.a.ep.PostSend(uint64(2*i+1), dat.CompletionBarrierFence, p.a.lmr.Triplet(8*i, 8)))
	}
	for i := range 64 {
		nextDTO(t, p.a.evd, uint64(i), dat.StatusSuccess)
	}
	for i := range 32 {
		if d := nextDTO(t, p.b.evd, uint64(i), dat.StatusSuccess); d.Operation != dat.OpReceive || d.EP != p.b.ep {
			t.Fatal(d)
		}
		got, written := binary.BigEndian.Uint64(p.b.mem[32*i:]), binary.BigEndian.Uint64(p.b.mem[2048+8*i:])
		if got != uint64(i) || written != uint64(i) {
			t.Fatalf("message %d: %d, and %d was written", i, got, written)
		}
	}
}

// An EP without room for a side takes none of its posts; one without EVDs works all the same.
func TestEPsWithoutRoomOrEVDs(t *testing.T) {
	p := newPair(t, pairConfig{})
	none := p.a.newEP(t, func(a *dat.EPAttr) { a.MaxRecvDTOs, a.MaxRequestDTOs = 0, 0 })
	if err := none.PostRecv(1, 0); err != dat.ErrPostFull {
		t.Fatal(err)
	}
	ok(t, none.Free())
	attr := p.a.attr(t)
	attr.MaxRequestDTOs, attr.MaxRecvDTOs = 3, 3
	silent := must[*dat.EP](t)(p.a.pz.NewEP(dat.EPConfig{Connect: p.a.evd, Attr: &attr}))
	q := must[dat.EPParam](t)(silent.Query())
	if q.Recv != nil || q.Request != nil || q.Connect != p.a.evd {
		t.Fatalf("%+v", q)
	}
	ok(t, p.a.ep.Free())
	p.a.ep = silent
	p.connect(t)
	for range 50 {
		p.write(t, 1, 0)
		ok(t, silent.PostRecv(1, 0, p.a.lmr.Triplet(0, 8)))
		ok(t, p.b.ep.PostSend(2, 0, p.b.lmr.Triplet(0, 8)))
		nextDTO(t, p.b.evd, 2, dat.StatusSuccess)
	}
	ok(t, silent.PostRecv(1, 0, p.a.lmr.Triplet(0, 8)))
	ok(t, silent.Disconnect(dat.CloseGraceful))
	p.a.next(t, dat.ConnectionDisconnected)
	q = must[dat.EPParam](t)(silent.Query())
	if q.RecvCounters.Succeeded != 50 || q.RecvCounters.Flushed != 1 || q.RequestCounters.Succeeded != 50 {
		t.Fatalf("%+v", q)
	}
	empty(t, p.a.evd)
}
