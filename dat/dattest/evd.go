package dattest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"kdapl/dat"
)

// Event dispatchers as queues (dat_evd_*): order, room, overflow.
var evdRules = []rule{
	{"a dequeue takes the oldest event, or says that there is none", 0, evdDequeue},
	{"events of all streams come in the order of arrival", 0, evdOrder},
	{"a software event needs the stream", 0, evdStream},
	{"a full EVD refuses software events, and tells nobody else", 0, evdFull},
	{"operations have room in the EVD, whatever else fills it", 0, evdReserved},
	{"an EVD that cannot hold an EP's operations refuses the EP", 0, evdNoRoom},
	{"a resize keeps what is queued, and is refused where it cannot", 0, evdResize},
	{"an overflow is told once for as long as it lasts", 0, evdOverflow},
	{"a connection that cannot be told of is ended", 0, evdEstablishedLost},
	{"each event goes to one of several dequeuers", 0, evdDequeuers},
	{"an EVD that is fed is not freed, a freed one has no events", 0, evdFree},
	{"the queue is in the consumer's memory if he supplies it", 0, evdMemory},
	{"streams of every discipline share an EVD if solicited receives are known", 0, evdDisciplines},
}

// short is an event in a few words.
func short(ev dat.Event) string {
	switch ev.Number {
	case dat.DTOCompletion, dat.IBDTOEvent:
		d := ev.DTO()
		return fmt.Sprintf("%v %d %v", d.Operation, d.Cookie, d.Status)
	case dat.SoftwareEvent:
		return fmt.Sprintf("SE %d", ev.Software())
	case 0:
		return "notified"
	}
	return ev.Number.String()
}

// all takes everything that is queued.
func all(evd *dat.EVD) (names []string) {
	for ev := range evd.Drain() {
		names = append(names, short(ev))
	}
	return names
}

// same fails the rule if two lists differ.
func (e *env) same(what string, got []string, want ...string) {
	e.Helper()
	if !slices.Equal(got, want) {
		e.Fatalf("%s: got %q, want %q", what, got, want)
	}
}

// post posts software events.
func (e *env) post(evd *dat.EVD, values ...uint64) {
	e.Helper()
	for _, v := range values {
		e.must(evd.PostSE(v), "PostSE")
	}
}

// on puts all events of an EP on one EVD.
func on(evd *dat.EVD) func(*dat.EPConfig, *dat.EPAttr) {
	return func(c *dat.EPConfig, _ *dat.EPAttr) { c.Recv, c.Request, c.Connect = evd, evd, evd }
}

// linkOn connects two EPs that have all events on one EVD each.
func (e *env) linkOn(ea, eb *dat.EVD, change ...func(*dat.EPConfig, *dat.EPAttr)) (a, b *dat.EP) {
	e.Helper()
	a, b = e.a.ep(append(change, on(ea))...), e.b.ep(append(change, on(eb))...)
	psp := e.b.listen()
	e.call(a, psp.ConnQual())
	e.must(e.b.request1().Accept(b, nil), "Accept")
	e.event(ea, dat.ConnectionEstablished)
	e.event(eb, dat.ConnectionEstablished)
	e.must(psp.Free(), "PSP.Free")
	return a, b
}

// write8 posts an RDMA write of 8 bytes from a.
func (e *env) write8(ep *dat.EP, cookie uint64, flags dat.CompletionFlags) {
	e.Helper()
	e.must(ep.PostRDMAWrite(cookie, flags, e.b.lmr.RMRTriplet(8, 8), e.a.lmr.Triplet(0, 8)), "PostRDMAWrite")
}

func evdDequeue(e *env) {
	evd := e.a.evd()
	if ev, err := evd.Dequeue(); err != dat.ErrQueueEmpty {
		e.Fatalf("a new EVD has %v, %v", ev, err)
	}
	e.post(evd, 1, 2, 3, 4)
	ev, err := evd.Dequeue()
	if err != nil || short(ev) != "SE 1" || ev.EVD() != evd {
		e.Fatalf("got %v, %v", ev, err)
	}
	buf := make([]dat.Event, 2)
	if n := evd.DequeueInto(buf); n != 2 || short(buf[0]) != "SE 2" || short(buf[1]) != "SE 3" {
		e.Fatalf("got %d: %v", n, buf)
	}
	e.same("the rest", all(evd), "SE 4")
	if n := evd.DequeueInto(buf); n != 0 {
		e.Fatalf("got %d events of none", n)
	}
}

func evdOrder(e *env) {
	ea, eb := e.a.evd(), e.b.evd()
	a, b := e.linkOn(ea, eb)
	var want []string
	for i := range 6 {
		e.write8(a, uint64(i), 0)
		want = append(want, fmt.Sprintf("RDMA_WRITE %d SUCCESS", i))
		e.queued(ea, len(want))
		e.post(ea, uint64(i))
		want = append(want, fmt.Sprintf("SE %d", i))
	}
	e.must(b.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.queued(ea, len(want)+1)
	e.same("the order", all(ea), append(want, dat.ConnectionDisconnected.String())...)
}

func evdStream(e *env) {
	evd := e.a.evdOf(dat.EVDConfig{Streams: dat.StreamDTO | dat.StreamConnection})
	e.refused(evd.PostSE(1), "PostSE without the stream", dat.InvalidParameter, dat.InvalidArg1)
	for _, c := range []struct {
		cfg dat.EPConfig
		sub dat.Subtype
	}{
		{dat.EPConfig{Recv: e.a.evdOf(dat.EVDConfig{Streams: dat.StreamSoftware})}, dat.InvalidHandleEVDRecv},
		{dat.EPConfig{Request: e.a.evdOf(dat.EVDConfig{Streams: dat.StreamConnection})}, dat.InvalidHandleEVDRequest},
		{dat.EPConfig{Connect: e.a.evdOf(dat.EVDConfig{Streams: dat.StreamDTO})}, dat.InvalidHandleEVDConn},
	} {
		_, err := e.a.pz.NewEP(c.cfg)
		e.refused(err, "NewEP on an EVD without the stream", dat.InvalidHandle, c.sub)
	}
}

func evdFull(e *env) {
	for _, s := range []dat.Stream{dat.StreamSoftware, streams} {
		evd := e.a.evdOf(dat.EVDConfig{MinLen: 3, Streams: s})
		q, err := evd.Query()
		e.must(err, "Query")
		for i := range q.QLen {
			e.post(evd, uint64(i))
		}
		if err := evd.PostSE(99); err != dat.ErrQueueFull {
			e.Fatalf("PostSE on a full EVD: %v", err)
		}
		if q, err := evd.Query(); err != nil || q.Queued != q.QLen {
			e.Fatalf("%v, %v", q, err)
		}
		_, err = evd.Dequeue()
		e.must(err, "Dequeue")
		e.post(evd, 100)
	}
	e.none(e.a.ia.AsyncEVD(), "a software event that found no room")
}

func evdReserved(e *env) {
	const depth = 24
	ea, eb := e.a.evdOf(dat.EVDConfig{MinLen: 4}), e.b.evd()
	deep := func(_ *dat.EPConfig, a *dat.EPAttr) { a.MaxRecvDTOs, a.MaxRequestDTOs = depth, depth }
	a, b := e.linkOn(ea, eb, deep)
	e.post(ea, 1, 2, 3, 4)
	if err := ea.PostSE(5); err != dat.ErrQueueFull {
		e.Errorf("a software event in room that operations will need: %v", err)
	}
	e.same("the EVD's own room", all(ea), "SE 1", "SE 2", "SE 3", "SE 4")
	var want []string
	for i := range depth {
		e.must(a.PostRecv(uint64(i), 0, e.a.lmr.Triplet(0, 8)), "PostRecv")
		e.write8(a, uint64(i), 0)
		want = append(want, fmt.Sprintf("RDMA_WRITE %d SUCCESS", i))
	}
	e.queued(ea, depth)
	e.post(ea, 1, 2, 3) // one place is for the end
	e.must(b.Disconnect(dat.CloseAbrupt), "Disconnect")
	want = append(want, "SE 1", "SE 2", "SE 3")
	for i := range depth {
		want = append(want, fmt.Sprintf("RECEIVE %d FLUSHED", i))
	}
	e.queued(ea, 2*depth+4)
	if err := ea.PostSE(9); err != dat.ErrQueueFull {
		e.Errorf("a software event in room of an EP's: %v", err)
	}
	e.same("the events", all(ea), append(want, dat.ConnectionDisconnected.String())...)
	e.none(e.a.ia.AsyncEVD(), "completions that have room")
}

func evdNoRoom(e *env) {
	evd := e.a.evd()
	attr := dat.DefaultEPAttr(e.a.attr)
	attr.MaxRecvDTOs, attr.MaxRequestDTOs = e.a.attr.MaxDTOPerEP, e.a.attr.MaxDTOPerEP
	if e.a.attr.MaxEVDQLen/e.a.attr.MaxDTOPerEP > 16 {
		e.Skip("an EVD of this adapter has room for more than 16 of the largest EPs: run the suite on one with a smaller MaxEVDQLen")
	}
	var eps []*dat.EP
	for {
		ep, err := e.a.pz.NewEP(dat.EPConfig{Recv: evd, Request: evd, Attr: &attr})
		if err != nil {
			e.refused(err, "an EP for which there is no room", dat.InsufficientResources)
			break
		}
		if eps = append(eps, ep); len(eps) > 64 {
			e.Fatalf("%d EPs of %d operations share an EVD of at most %d", len(eps), 2*e.a.attr.MaxDTOPerEP, e.a.attr.MaxEVDQLen)
		}
	}
	for _, ep := range eps {
		e.must(ep.Free(), "Free")
	}
	e.must(evd.Free(), "Free of the EVD that nothing feeds any more")

	// Software events' room and that of an EP are together within the limit.
	attr.MaxRecvDTOs, attr.MaxRequestDTOs = 4, 4
	evd = e.a.evdOf(dat.EVDConfig{MinLen: e.a.attr.MaxEVDQLen - 7})
	cfg := dat.EPConfig{Recv: evd, Request: evd, Attr: &attr}
	_, err := e.a.pz.NewEP(cfg)
	e.refused(err, "an EP of 8 operations on an EVD that can grow by 7", dat.InsufficientResources)
	e.must(evd.Resize(e.a.attr.MaxEVDQLen-8), "Resize")
	ep, err := e.a.pz.NewEP(cfg)
	e.must(err, "an EP for which there is room")
	e.must(ep.Free(), "Free")
}

func evdResize(e *env) {
	for _, s := range []dat.Stream{dat.StreamSoftware, streams} {
		evd := e.a.evdOf(dat.EVDConfig{MinLen: 8, Streams: s})
		e.post(evd, 1, 2, 3)
		e.must(evd.Resize(500), "Resize to more")
		e.must(evd.Resize(500), "Resize to the same")
		e.must(evd.Resize(3), "Resize to what is queued")
		e.refused(evd.Resize(2), "Resize to less than is queued", dat.InvalidState)
		for _, n := range []int{0, -1, e.a.attr.MaxEVDQLen + 1} {
			e.refused(evd.Resize(n), fmt.Sprint("Resize to ", n), dat.InvalidParameter, dat.InvalidArg2)
		}
		e.same("what was queued", all(evd), "SE 1", "SE 2", "SE 3")
	}
}

func evdOverflow(e *env) {
	evd := e.b.evdOf(dat.EVDConfig{MinLen: 1, Streams: dat.StreamConnectionRequest | dat.StreamSoftware})
	q, err := evd.Query()
	e.must(err, "Query")
	psp, err := e.b.ia.NewPSP(dat.PSPConfig{EVD: evd})
	e.must(err, "NewPSP")
	for range 2 {
		for i := range q.QLen {
			e.post(evd, uint64(i))
		}
		for range 3 {
			ep := e.a.ep()
			e.call(ep, psp.ConnQual())
			e.event(e.a.connect, dat.ConnectionNonPeerRejected)
			e.must(ep.Free(), "Free")
		}
		ev := e.event(e.b.ia.AsyncEVD(), dat.AsyncErrorEVDOverflow)
		if d := ev.Async(); d.Object != dat.Object(evd) || d.Reason != dat.ReasonEVDOverflow {
			e.Errorf("%v: %+v", ev, d)
		}
		e.none(e.b.ia.AsyncEVD(), "the same overflow")
		all(evd)
	}
}

func evdEstablishedLost(e *env) {
	small := e.b.evdOf(dat.EVDConfig{MinLen: 1, Streams: dat.StreamConnection | dat.StreamSoftware})
	q, err := small.Query()
	e.must(err, "Query")
	for i := range q.QLen {
		e.post(small, uint64(i))
	}
	a, b := e.a.ep(), e.b.ep(func(c *dat.EPConfig, _ *dat.EPAttr) { c.Connect = small })
	e.must(b.PostRecv(1, 0), "PostRecv")
	e.call(a, e.b.listen().ConnQual())
	e.must(e.b.request1().Accept(b, nil), "Accept")
	e.event(e.a.connect, dat.ConnectionEstablished)
	e.event(e.a.connect, dat.ConnectionDisconnected, dat.ConnectionBroken)
	e.done(e.b.recv, 1, dat.StatusFlushed)
	e.state(b, dat.StateDisconnected)
	e.event(e.b.ia.AsyncEVD(), dat.AsyncErrorEVDOverflow)
}

func evdDequeuers(e *env) {
	evd := e.a.evd()
	a, _ := e.link(func(c *dat.EPConfig, _ *dat.EPAttr) {
		if c.Request == e.a.request {
			c.Request = evd
		}
	})
	const burst = 64
	n := e.rounds(2000) * burst
	counts := make([]atomic.Int32, n)
	var open, left atomic.Int64 // events that may be taken, and events to come
	left.Store(int64(n))
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			buf := make([]dat.Event, 1+15*i)
			for left.Load() > 0 {
				if int64(n)-left.Load() >= open.Load() {
					e.yield()
					continue
				}
				for _, ev := range buf[:evd.DequeueInto(buf)] {
					v := ev.Software()
					if ev.Number != dat.SoftwareEvent {
						v = ev.DTO().Cookie
					}
					counts[v].Add(1)
					left.Add(-1)
				}
			}
		})
	}
	for i := range n {
		e.eventually("room", func() bool {
			if i%8 != 0 {
				return evd.PostSE(uint64(i)) == nil
			}
			return a.PostRDMAWrite(uint64(i), 0, e.b.lmr.RMRTriplet(8, 8), e.a.lmr.Triplet(0, 8)) == nil
		})
		if (i+1)%burst == 0 { // they find many at once, and take them from each other
			e.eventually("a burst", func() bool {
				q, err := evd.Query()
				return err == nil && n-int(left.Load())+q.Queued > i
			})
			open.Store(int64(i) + 1)
			e.eventually("the events of a burst", func() bool { return n-int(left.Load()) > i })
		}
	}
	e.eventually("every event", func() bool { return left.Load() <= 0 })
	wg.Wait()
	for i := range counts {
		if c := counts[i].Load(); c != 1 {
			e.Fatalf("event %d came %d times", i, c)
		}
	}
}

func evdFree(e *env) {
	evd := e.a.evdOf(dat.EVDConfig{Streams: streams})
	inUse := func(by string) {
		e.Helper()
		e.refused(evd.Free(), "Free with "+by, dat.InvalidState, dat.InvalidStateEVDInUse)
	}
	ep, err := e.a.pz.NewEP(dat.EPConfig{Connect: evd})
	e.must(err, "NewEP")
	inUse("an EP")
	e.must(ep.Free(), "EP.Free")
	psp, err := e.a.ia.NewPSP(dat.PSPConfig{EVD: evd})
	e.must(err, "NewPSP")
	inUse("a PSP")
	e.must(psp.Free(), "PSP.Free")
	e.post(evd, 1)
	e.must(evd.Free(), "Free")
	_, err = evd.Dequeue()
	e.refused(err, "Dequeue of a freed EVD", dat.InvalidHandle)
	e.refused(evd.PostSE(1), "PostSE to a freed EVD", dat.InvalidHandle)
	e.refused(e.a.ia.AsyncEVD().Free(), "Free of the asynchronous EVD", dat.InvalidState, dat.InvalidStateEVDInUse)
}

func evdMemory(e *env) {
	gave, back := 0, 0
	evd := e.a.evdOf(dat.EVDConfig{MinLen: 4, Streams: streams, Memory: func(size int) ([]byte, func()) {
		gave++
		return alignedBytes(size), func() { back++ }
	}})
	a, _ := e.link(func(c *dat.EPConfig, _ *dat.EPAttr) {
		if c.Request == e.a.request {
			c.Request = evd
		}
	})
	e.post(evd, 1)
	e.must(evd.Resize(200), "Resize")
	e.write8(a, 2, 0)
	e.queued(evd, 2)
	e.same("the events", all(evd), "SE 1", "RDMA_WRITE 2 SUCCESS")
	if gave < 2 || back != 0 {
		e.Errorf("memory was asked for %d times and given back %d times", gave, back)
	}
	e.must(a.Free(), "EP.Free")
	e.must(evd.Free(), "Free")
	if back != gave {
		e.Errorf("%d of %d memories came back", back, gave)
	}
}

// alignedBytes is zeroed memory aligned to 8.
func alignedBytes(size int) []byte {
	return wordBytes(make([]uint64, size/8+1))[:size]
}

func evdDisciplines(e *env) {
	for _, recv := range []dat.CompletionFlags{dat.CompletionEVDThreshold, dat.CompletionUnsignalled, dat.CompletionSolicitedWait} {
		for _, request := range []dat.CompletionFlags{dat.CompletionEVDThreshold, dat.CompletionUnsignalled} {
			attr := dat.DefaultEPAttr(e.a.attr)
			attr.RecvCompletionFlags, attr.RequestCompletionFlags = recv, request
			evd := e.a.evd()
			ep, err := e.a.pz.NewEP(dat.EPConfig{Recv: evd, Request: evd, Connect: evd, Attr: &attr})
			switch known := e.a.named(dat.AttrSolicitedKnown) == "TRUE"; {
			case known || recv == dat.CompletionEVDThreshold && request == dat.CompletionEVDThreshold:
				e.must(err, "NewEP with %v and %v", recv, request)
				e.must(ep.Free(), "Free")
			case recv == dat.CompletionSolicitedWait:
				e.refused(err, "SOLICITED_WAIT on an adapter that does not know", dat.ModelNotSupported)
			default:
				e.refused(err, fmt.Sprintf("%v and %v with connection events", recv, request), dat.InvalidParameter, dat.InvalidArg8)
			}
		}
	}
}
