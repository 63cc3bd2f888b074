package dattest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"kdapl/dat"
)

// Data transfer operations (dat_ep_post_send, _recv, _rdma_read, _rdma_write): what they move, and in which order.
var transferRules = []rule{
	{"a message arrives byte for byte, from and in any segments", 0, xferSegments},
	{"a completion names its operation, EP, cookie and length", 0, xferNames},
	{"a receive leaves what is behind the message alone", 0, xferBehind},
	{"a read fills its segments in order", 0, xferRead},
	{"messages come in the order of posting", 0, xferOrder},
	{"what was written is visible when a later send is received", 0, xferVisible},
	{"a fenced request comes behind the reads before it", 0, xferFence},
	{"large transfers arrive whole, in both directions", 0, xferLarge},
	{"many EPs transfer in both directions at once", 0, xferMany},
	{"EPs that are full in both directions go on", needWait, xferFull},
	{"a send that finds no receive waits for one", needWait, xferWaits},
	{"a send that finds no receive ends the connection if it cannot wait", 0, xferNoReceive},
	{"a message longer than its receive ends the connection", 0, xferTooLong},
	{"what a peer may not do ends the connection, and touches nothing", 0, xferViolations},
	{"receives are flushed in the order of posting", 0, xferFlushOrder},
}

// fill makes n bytes that differ by the seed.
func fill(mem []byte, seed int) []byte {
	for i := range mem {
		mem[i] = byte(seed + i + i>>8*7)
	}
	return mem
}

// cut makes segments of the side's memory: of the lengths, with gaps between. at tells the memory of each.
func (s *side) cut(lengths ...int) (segs []dat.LMRTriplet, at [][]byte) {
	off := 0
	for _, n := range lengths {
		segs = append(segs, s.lmr.Triplet(off, n))
		at = append(at, s.mem[off:off+n])
		off += n + 16
	}
	return segs, at
}

// spread copies data over segments; gather reads them.
func spread(at [][]byte, data []byte) {
	for _, m := range at {
		data = data[copy(m, data):]
	}
}

func gather(at [][]byte) []byte { return bytes.Join(at, nil) }

func xferSegments(e *env) {
	a, b := e.link()
	attr, err := b.Query()
	e.must(err, "Query")
	most := min(attr.Attr.MaxRecvIOV, attr.Attr.MaxRequestIOV, 4)
	for _, from := range [][]int{nil, {0}, {1}, {7}, {1000}, {3, 5}, {0, 8}, {100, 0, 1}, {1, 2, 3, 4}} {
		for _, to := range [][]int{{1100}, {500, 600}, {1, 1099}, {0, 3, 1200}, {1, 2, 3, 1100}} {
			if len(from) > most || len(to) > most {
				continue
			}
			clear(e.b.mem)
			src, mine := e.a.cut(from...)
			dst, theirs := e.b.cut(to...)
			n := len(gather(mine))
			data := fill(make([]byte, n), n)
			spread(mine, data)
			e.must(b.PostRecv(1, 0, dst...), "PostRecv")
			e.must(a.PostSend(2, 0, src...), "PostSend")
			if d := e.done(e.b.recv, 1, dat.StatusSuccess); int(d.Length) != n {
				e.Errorf("%v to %v: %d bytes came", from, to, d.Length)
			}
			e.done(e.a.request, 2, dat.StatusSuccess)
			if got := gather(theirs)[:n]; !bytes.Equal(got, data) {
				e.Fatalf("%v to %v: got %x, want %x", from, to, got, data)
			}
		}
	}
}

func xferNames(e *env) {
	a, b := e.link()
	const cookie = 0xFEDCBA9876543210
	e.must(b.PostRecv(^uint64(0), 0, e.b.lmr.Triplet(0, 100)), "PostRecv")
	e.must(a.PostSend(0, 0, e.a.lmr.Triplet(0, 100)), "PostSend")
	e.must(a.PostRDMAWrite(cookie, 0, e.b.lmr.RMRTriplet(200, 50), e.a.lmr.Triplet(0, 50)), "PostRDMAWrite")
	e.must(a.PostRDMARead(cookie+1, 0, e.b.lmr.RMRTriplet(200, 30), e.a.lmr.Triplet(200, 30)), "PostRDMARead")
	check := func(d dat.DTO, ep *dat.EP, op dat.Operation, length uint32) {
		e.Helper()
		if d.EP != ep || d.Operation != op || d.Length != length {
			e.Errorf("got %+v, want %v of %d bytes on %v", d, op, length, ep)
		}
	}
	check(e.done(e.b.recv, ^uint64(0), dat.StatusSuccess), b, dat.OpReceive, 100)
	check(e.done(e.a.request, 0, dat.StatusSuccess), a, dat.OpSend, 100)
	check(e.done(e.a.request, cookie, dat.StatusSuccess), a, dat.OpRDMAWrite, 50)
	check(e.done(e.a.request, cookie+1, dat.StatusSuccess), a, dat.OpRDMARead, 30)
	for _, c := range []struct {
		ep                *dat.EP
		requests, receive uint64
		out, in           uint64
	}{{a, 3, 0, 180, 0}, {b, 0, 1, 0, 100}} {
		q, err := c.ep.Query()
		e.must(err, "Query")
		if q.RequestCounters.Posted != c.requests || q.RequestCounters.Succeeded != c.requests ||
			q.RecvCounters.Posted != c.receive || q.RecvCounters.Succeeded != c.receive ||
			q.RequestCounters.Bytes != c.out || q.RecvCounters.Bytes != c.in {
			e.Errorf("%v: %+v, %+v", c.ep, q.RequestCounters, q.RecvCounters)
		}
		if s, err := c.ep.Status(); err != nil || !s.RequestIdle || !s.RecvIdle {
			e.Errorf("%v: %+v, %v; everything has completed", c.ep, s, err)
		}
	}
}

func xferBehind(e *env) {
	a, b := e.link()
	for i := range e.b.mem {
		e.b.mem[i] = '.'
	}
	copy(e.a.mem, "message")
	e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(4, 100)), "PostRecv")
	e.must(a.PostSend(2, 0, e.a.lmr.Triplet(0, 7)), "PostSend")
	e.done(e.b.recv, 1, dat.StatusSuccess)
	e.done(e.a.request, 2, dat.StatusSuccess)
	if got := string(e.b.mem[:110]); got != "....message"+string(bytes.Repeat([]byte{'.'}, 99)) {
		e.Errorf("got %q", got)
	}
	e.write(a, e.b.lmr.RMRTriplet(1000, 0), 0, 7)
	if got := string(e.b.mem[990:1020]); got != "..........message............." {
		e.Errorf("got %q", got)
	}
}

func xferRead(e *env) {
	a, _ := e.link()
	copy(e.b.mem, "0123456789")
	for i := range e.a.mem {
		e.a.mem[i] = '.'
	}
	segs := []dat.LMRTriplet{e.a.lmr.Triplet(20, 4), e.a.lmr.Triplet(10, 4), e.a.lmr.Triplet(0, 4)}
	want := "89........4567......0123."
	if e.a.attr.MaxIOVSegmentsPerRDMARead < len(segs) {
		segs, want = []dat.LMRTriplet{e.a.lmr.Triplet(5, 12)}, ".....0123456789.........."
	}
	e.must(a.PostRDMARead(1, 0, e.b.lmr.RMRTriplet(0, 10), segs...), "PostRDMARead")
	if d := e.done(e.a.request, 1, dat.StatusSuccess); d.Length != 10 {
		e.Errorf("%d bytes were read", d.Length)
	}
	if got := string(e.a.mem[:25]); got != want {
		e.Errorf("got %q, want %q", got, want)
	}
	e.must(a.PostRDMARead(2, 0, e.b.lmr.RMRTriplet(0, 0)), "PostRDMARead of nothing")
	e.done(e.a.request, 2, dat.StatusSuccess)
}

func xferOrder(e *env) {
	a, b := e.link()
	attr, err := a.Query()
	e.must(err, "Query")
	n := min(attr.Attr.MaxRequestDTOs, attr.Attr.MaxRecvDTOs, 16)
	for round := range e.rounds(50) {
		for i := range n {
			e.must(b.PostRecv(uint64(i), 0, e.b.lmr.Triplet(32*i, 32)), "PostRecv")
		}
		for i := range n {
			binary.NativeEndian.PutUint64(e.a.mem[8*i:], uint64(round<<16|i))
			e.must(a.PostSend(uint64(i), 0, e.a.lmr.Triplet(8*i, 8)), "PostSend")
		}
		for i := range n {
			e.done(e.a.request, uint64(i), dat.StatusSuccess)
			e.done(e.b.recv, uint64(i), dat.StatusSuccess)
			if got := binary.NativeEndian.Uint64(e.b.mem[32*i:]); got != uint64(round<<16|i) {
				e.Fatalf("receive %d of round %d has %#x", i, round, got)
			}
		}
	}
}

func xferVisible(e *env) {
	a, b := e.link()
	for round := range e.rounds(200) {
		e.must(b.PostRecv(1, 0), "PostRecv")
		data := fill(e.a.mem[:3000], round)
		e.must(a.PostRDMAWrite(2, dat.CompletionSuppress, e.b.lmr.RMRTriplet(round%8, 3000), e.a.lmr.Triplet(0, 3000)), "PostRDMAWrite")
		e.must(a.PostSend(3, 0), "PostSend")
		e.done(e.b.recv, 1, dat.StatusSuccess)
		if !bytes.Equal(e.b.mem[round%8:][:3000], data) {
			e.Fatalf("round %d: the send came before what was written", round)
		}
		e.done(e.a.request, 3, dat.StatusSuccess)
	}
}

func xferFence(e *env) {
	a, b := e.link()
	for round := range e.rounds(200) {
		clear(e.a.mem[:2000])
		data := fill(e.b.mem[:2000], round)
		e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(4096, 2000)), "PostRecv")
		e.must(a.PostRDMARead(2, dat.CompletionSuppress, e.b.lmr.RMRTriplet(0, 2000), e.a.lmr.Triplet(0, 2000)), "PostRDMARead")
		e.must(a.PostSend(3, dat.CompletionBarrierFence, e.a.lmr.Triplet(0, 2000)), "PostSend")
		e.done(e.b.recv, 1, dat.StatusSuccess)
		if !bytes.Equal(e.b.mem[4096:6096], data) {
			e.Fatalf("round %d: the fenced send did not send what was read before", round)
		}
		e.done(e.a.request, 3, dat.StatusSuccess)
	}
}

func xferLarge(e *env) {
	size := min(1<<20, e.a.attr.MaxMessageSize, e.b.attr.MaxMessageSize, e.a.attr.MaxRDMASize, e.b.attr.MaxRDMASize)
	a, b := e.link()
	mem := [2][]byte{make([]byte, size), make([]byte, size)}
	lmr := [2]*dat.LMR{e.a.register(mem[0], dat.PrivAll), e.b.register(mem[1], dat.PrivAll)}
	n := int(size)
	for i, c := range []struct {
		what string
		ep   *dat.EP
		s    *side
		from int
		move func(ep *dat.EP, from, to *dat.LMR) error
	}{
		{"a send there", a, e.a, 0, nil},
		{"a send back", b, e.b, 1, nil},
		{"a write", a, e.a, 0, func(ep *dat.EP, from, to *dat.LMR) error {
			return ep.PostRDMAWrite(1, 0, to.RMRTriplet(0, n), from.Triplet(0, n))
		}},
		{"a read", a, e.a, 1, func(ep *dat.EP, from, to *dat.LMR) error {
			return ep.PostRDMARead(1, 0, from.RMRTriplet(0, n), to.Triplet(0, n))
		}},
	} {
		data := fill(mem[c.from], i)
		clear(mem[1-c.from])
		if c.move == nil {
			peer, ps := b, e.b
			if c.s == e.b {
				peer, ps = a, e.a
			}
			e.must(peer.PostRecv(2, 0, lmr[1-c.from].Triplet(0, n)), "PostRecv")
			e.must(c.ep.PostSend(1, 0, lmr[c.from].Triplet(0, n)), "PostSend")
			if d := e.done(ps.recv, 2, dat.StatusSuccess); int(d.Length) != n {
				e.Errorf("%s: %d bytes of %d", c.what, d.Length, n)
			}
		} else {
			e.must(c.move(c.ep, lmr[c.from], lmr[1-c.from]), "%s", c.what)
		}
		if d := e.done(c.s.request, 1, dat.StatusSuccess); int(d.Length) != n {
			e.Errorf("%s: %d bytes of %d", c.what, d.Length, n)
		}
		if c.s == e.a {
			e.placed(a)
		}
		if !bytes.Equal(mem[1-c.from], data) {
			e.Fatalf("%s: %d bytes did not arrive as they were sent", c.what, n)
		}
	}
}

func xferMany(e *env) {
	const eps = 6
	messages := e.rounds(300)
	type stream struct {
		from, to *dat.EP
		s, peer  *side
	}
	var streams []stream
	for _, s := range []*side{e.a, e.b} {
		s.recv, s.request = s.evdOf(dat.EVDConfig{MinLen: 8 * eps}), s.evdOf(dat.EVDConfig{MinLen: 8 * eps})
	}
	index := map[*dat.EP]int{}
	for range eps {
		a, b := e.link()
		for _, st := range []stream{{a, b, e.a, e.b}, {b, a, e.b, e.a}} {
			index[st.to] = len(streams)
			streams = append(streams, st)
		}
	}
	credits := make([]chan bool, len(streams)) // not every adapter waits for a receive
	place := func(i int) int { return 32 * i }
	for i, st := range streams {
		credits[i] = make(chan bool, 2)
		e.must(st.to.PostRecv(uint64(i), 0, st.peer.lmr.Triplet(8192+place(i), 16)), "PostRecv")
		credits[i] <- true
	}
	failed := make(chan error, len(streams))
	for i, st := range streams {
		go func() {
			failed <- func() error {
				word := st.s.mem[place(i):]
				for m := range messages {
					<-credits[i]
					binary.NativeEndian.PutUint64(word, uint64(i))
					binary.NativeEndian.PutUint64(word[8:], uint64(m))
					if err := st.from.PostSend(uint64(i), dat.CompletionSuppress, st.s.lmr.Triplet(place(i), 16)); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	next := make([]uint64, len(streams))
	bad := make(chan string, 2)
	for _, s := range []*side{e.a, e.b} {
		go func() {
			bad <- func() string {
				for range eps * messages {
					ev, _, err := s.recv.Wait(e.Context(), 1, e.deadline)
					if err != nil {
						return fmt.Sprint(err)
					}
					d := ev.DTO()
					i := index[d.EP]
					word := s.mem[8192+place(i):]
					who, m := binary.NativeEndian.Uint64(word), binary.NativeEndian.Uint64(word[8:])
					if d.Status != dat.StatusSuccess || int(d.Cookie) != i || int(who) != i || m != next[i] {
						return fmt.Sprintf("%v of stream %d: message %d of stream %d, want %d", ev, i, m, who, next[i])
					}
					next[i]++
					if err := d.EP.PostRecv(d.Cookie, 0, s.lmr.Triplet(8192+place(i), 16)); err != nil {
						return fmt.Sprint(err)
					}
					credits[i] <- true
				}
				return ""
			}()
		}()
	}
	for range 2 {
		e.must(e.within("a receiver", func() error {
			if msg := <-bad; msg != "" {
				return errors.New(msg)
			}
			return nil
		}), "a receiver")
	}
	for range streams {
		e.must(e.within("a sender", func() error { return <-failed }), "a sender")
	}
}

// xferFull fills the send queues of both sides, without a receive on either, before anybody receives.
func xferFull(e *env) {
	a, b := e.link(func(_ *dat.EPConfig, a *dat.EPAttr) { a.MaxRecvDTOs, a.MaxRequestDTOs = 4, 4 })
	size := min(256<<10, int(e.a.attr.MaxMessageSize), int(e.b.attr.MaxMessageSize))
	ends := []struct {
		ep  *dat.EP
		s   *side
		lmr *dat.LMR
		in  *dat.LMR
	}{
		{a, e.a, e.a.register(make([]byte, size), dat.PrivAll), e.a.register(make([]byte, size), dat.PrivAll)},
		{b, e.b, e.b.register(make([]byte, size), dat.PrivAll), e.b.register(make([]byte, size), dat.PrivAll)},
	}
	for _, end := range ends {
		for i := range 4 {
			e.must(end.ep.PostSend(uint64(i), 0, end.lmr.Triplet(0, size)), "PostSend")
		}
		if err := end.ep.PostSend(9, 0); err != dat.ErrPostFull {
			e.Fatalf("a fifth send of four: %v", err)
		}
	}
	for i := range 4 {
		for _, end := range ends {
			e.must(end.ep.PostRecv(uint64(i), 0, end.in.Triplet(0, size)), "PostRecv")
		}
	}
	for i := range 4 {
		for _, end := range ends {
			e.done(end.s.recv, uint64(i), dat.StatusSuccess)
			e.done(end.s.request, uint64(i), dat.StatusSuccess)
		}
	}
}

func xferWaits(e *env) {
	a, b := e.link()
	e.must(a.PostSend(1, 0, e.a.lmr.Triplet(0, 8)), "PostSend")
	e.must(a.PostSend(2, 0, e.a.lmr.Triplet(0, 8)), "PostSend")
	e.none(e.a.request, "without a receive")
	e.must(b.PostRecv(3, 0, e.b.lmr.Triplet(0, 8)), "PostRecv")
	e.done(e.a.request, 1, dat.StatusSuccess)
	e.done(e.b.recv, 3, dat.StatusSuccess)
	e.none(e.a.request, "without a second receive")
	e.must(b.PostRecv(4, 0, e.b.lmr.Triplet(0, 8)), "PostRecv")
	e.done(e.a.request, 2, dat.StatusSuccess)
	e.done(e.b.recv, 4, dat.StatusSuccess)
}

func xferNoReceive(e *env) {
	if e.waits() {
		e.Skip("a send waits")
	}
	a, _ := e.link()
	e.must(a.PostSend(1, 0, e.a.lmr.Triplet(0, 8)), "PostSend")
	e.done(e.a.request, 1, dat.StatusSuccess, dat.StatusFlushed, dat.StatusReceiverNotReady)
	e.broken()
}

func xferTooLong(e *env) {
	a, b := e.link()
	for i := range e.b.mem {
		e.b.mem[i] = '.'
	}
	e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(0, 4), e.b.lmr.Triplet(8, 3)), "PostRecv")
	e.must(b.PostRecv(2, 0, e.b.lmr.Triplet(0, 100)), "PostRecv")
	e.must(a.PostSend(3, 0, e.a.lmr.Triplet(0, 8)), "PostSend")
	e.done(e.b.recv, 1, dat.StatusLocalLength)
	e.done(e.b.recv, 2, dat.StatusFlushed)
	if e.a.acked() {
		e.done(e.a.request, 3, dat.StatusRemoteResponder)
	} else {
		e.done(e.a.request, 3, dat.StatusSuccess, dat.StatusFlushed)
	}
	e.broken()
	if got := string(e.b.mem[4:8]) + string(e.b.mem[11:20]); got != "............." {
		e.Errorf("beside the segments: %q", got)
	}
}

func xferViolations(e *env) {
	pz, err := e.b.ia.NewPZ()
	e.must(err, "NewPZ")
	target := make([]byte, 64)
	in := func(pz *dat.PZ, priv dat.Priv) *dat.LMR {
		l, err := pz.Register(target, priv)
		e.must(err, "Register")
		return l
	}
	const local = dat.PrivLocalRead | dat.PrivLocalWrite
	mine := in(e.b.pz, dat.PrivAll)
	freed := in(e.b.pz, dat.PrivAll)
	stale := freed.RMRTriplet(0, 8)
	e.must(freed.Free(), "LMR.Free")
	unknown := mine.RMRTriplet(0, 8)
	unknown.RMRContext ^= 0xFF00
	nothing := mine.RMRTriplet(0, 8)
	nothing.RMRContext = 0
	for _, c := range []struct {
		what        string
		bad         dat.RMRTriplet
		write, read bool
	}{
		{"an unknown context", unknown, true, true},
		{"no context", nothing, true, true},
		{"a freed region", stale, true, true},
		{"behind the region", mine.RMRTriplet(57, 8), true, true},
		{"before the region", mine.RMRTriplet(-8, 8), true, true},
		{"an address that wraps around", dat.RMRTriplet{VirtualAddress: ^uint64(0) - 3, SegmentLength: 8, RMRContext: mine.RMRContext()}, true, true},
		{"a region of another zone", in(pz, dat.PrivAll).RMRTriplet(0, 8), true, true},
		{"a region to be read", in(e.b.pz, local|dat.PrivRemoteRead).RMRTriplet(0, 8), true, false},
		{"a region to be written", in(e.b.pz, local|dat.PrivRemoteWrite).RMRTriplet(0, 8), false, true},
	} {
		for _, read := range []bool{false, true} {
			if read && !c.read || !read && !c.write {
				continue
			}
			what := c.what + ", written"
			if read {
				what = c.what + ", read"
			}
			e.Log(what) // for whoever sees the failure
			a, b := e.link()
			copy(target, bytes.Repeat([]byte{'.'}, len(target)))
			copy(e.a.mem, "intruder")
			e.must(b.PostRecv(5, 0), "PostRecv")
			if read {
				e.must(a.PostRDMARead(6, 0, c.bad, e.a.lmr.Triplet(64, 8)), "PostRDMARead")
			} else {
				e.must(a.PostRDMAWrite(6, 0, c.bad, e.a.lmr.Triplet(0, 8)), "PostRDMAWrite")
			}
			e.violation(6, read)
			e.done(e.b.recv, 5, dat.StatusFlushed)
			if !bytes.Equal(target, bytes.Repeat([]byte{'.'}, len(target))) {
				e.Fatalf("%s: %q", what, target)
			}
			e.must(a.Free(), "Free")
			e.must(b.Free(), "Free")
		}
	}
}

func xferFlushOrder(e *env) {
	a, _ := e.link()
	var cookies []uint64
	for i := range uint64(10) {
		e.must(a.PostRecv(i*i, 0), "PostRecv")
		cookies = append(cookies, i*i)
	}
	e.must(a.Disconnect(dat.CloseAbrupt), "Disconnect")
	var got []uint64
	for range cookies {
		ev := e.event(e.a.recv, dat.DTOCompletion)
		got = append(got, ev.DTO().Cookie)
	}
	if !slices.Equal(got, cookies) {
		e.Errorf("flushed as %v, posted as %v", got, cookies)
	}
}
