package dat_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"unsafe"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Tests of the EVD as a queue: creation, order, room, overflow, resizing (section 3 of the reference, section 4 of
// the design).

func TestNewEVDChecksItsArguments(t *testing.T) {
	ia := newIA(t)
	limit := must[dat.IAParam](t)(ia.Query()).Attr.MaxEVDQLen
	upcall := func(dat.Event, bool) {}
	for _, c := range []struct {
		cfg dat.EVDConfig
		typ dat.Type
		sub dat.Subtype
	}{
		{dat.EVDConfig{Streams: dat.StreamSoftware}, dat.InvalidParameter, dat.InvalidArg2},
		{dat.EVDConfig{MinLen: -1, Streams: dat.StreamSoftware}, dat.InvalidParameter, dat.InvalidArg2},
		{dat.EVDConfig{MinLen: math.MinInt, Streams: dat.StreamSoftware}, dat.InvalidParameter, dat.InvalidArg2},
		{dat.EVDConfig{MinLen: limit + 1, Streams: dat.StreamSoftware}, dat.InsufficientResources, dat.ResourceTEVD},
		{dat.EVDConfig{MinLen: math.MaxInt32, Streams: dat.StreamSoftware}, dat.InsufficientResources, dat.ResourceTEVD},
		{dat.EVDConfig{MinLen: math.MaxInt32 + 1, Streams: dat.StreamSoftware}, dat.InsufficientResources, dat.ResourceTEVD},
		{dat.EVDConfig{MinLen: math.MaxUint32 + 1, Streams: dat.StreamSoftware}, dat.InsufficientResources, dat.ResourceTEVD},
		{dat.EVDConfig{MinLen: math.MaxInt, Streams: dat.StreamSoftware}, dat.InsufficientResources, dat.ResourceTEVD},
		{dat.EVDConfig{MinLen: 1, Streams: dat.StreamSoftware, Policy: 3, Upcall: upcall}, dat.InvalidParameter, dat.InvalidArg3},
		{dat.EVDConfig{MinLen: 1, Streams: dat.StreamSoftware, Policy: math.MinInt32, Upcall: upcall}, dat.InvalidParameter, dat.InvalidArg3},
		{dat.EVDConfig{MinLen: 1, Streams: dat.StreamSoftware, Policy: dat.UpcallMany}, dat.InvalidParameter, dat.InvalidArg4},
		{dat.EVDConfig{MinLen: 1}, dat.InvalidParameter, dat.InvalidArg5},
		{dat.EVDConfig{MinLen: 1, Streams: 0x002}, dat.InvalidParameter, dat.InvalidArg5},
		{dat.EVDConfig{MinLen: 1, Streams: dat.StreamSoftware | 1<<31}, dat.InvalidParameter, dat.InvalidArg5},
	} {
		before := must[dat.IAParam](t)(ia.Query()).Counters
		_, err := ia.NewEVD(c.cfg)
		refused(t, err, c.typ, c.sub)
		if after := must[dat.IAParam](t)(ia.Query()).Counters; after != before {
			t.Fatalf("%+v left something behind", c.cfg)
		}
	}
}

// The whole merging matrix is true.
func TestEverySetOfStreamsMerges(t *testing.T) {
	ia := newIA(t)
	for set := range 64 {
		var streams dat.Stream
		for i, s := range []dat.Stream{dat.StreamSoftware, dat.StreamConnectionRequest, dat.StreamDTO, dat.StreamConnection, dat.StreamRMRBind, dat.StreamAsync} {
			if set>>i&1 != 0 {
				streams |= s
			}
		}
		if set == 0 {
			continue
		}
		e := must[*dat.EVD](t)(ia.NewEVD(dat.EVDConfig{MinLen: 1, Streams: streams}))
		if q := must[dat.EVDParam](t)(e.Query()); q.Streams != streams {
			t.Fatalf("streams %v, want %v", q.Streams, streams)
		}
		if err := e.PostSE(1); streams&dat.StreamSoftware == 0 {
			refused(t, err, dat.InvalidParameter, dat.InvalidArg1)
		} else {
			ok(t, err)
		}
		ok(t, e.Free())
	}
}

// On an adapter that tells solicited receives from others, streams of every discipline share an EVD with all others;
// one that cannot enforces the specification's restriction.
func TestDisciplinesShareAnEVDOnlyWhereEachCompletionIsKnown(t *testing.T) {
	disciplines := []dat.CompletionFlags{dat.CompletionEVDThreshold, dat.CompletionUnsignalled, dat.CompletionSolicitedWait}
	for _, known := range []bool{true, false} {
		dev := loop.New(loop.Config{Adjust: func(a *verbs.Attr) {
			if !known {
				a.Caps &^= verbs.CapSolicited
			}
		}})
		ia := openIA(t, dev, dat.Config{})
		q := must[dat.IAParam](t)(ia.Query())
		if v := providerAttr(q.Provider, dat.AttrSolicitedKnown); v != map[bool]string{true: "TRUE", false: "FALSE"}[known] {
			t.Fatalf("%s is %q", dat.AttrSolicitedKnown, v)
		}
		pz := must[*dat.PZ](t)(ia.NewPZ())
		for _, other := range []dat.Stream{0, dat.StreamSoftware, dat.StreamConnection} {
			for _, a := range disciplines {
				for _, b := range disciplines[:2] {
					e := newEVD(t, ia, dat.EVDConfig{Streams: dat.StreamDTO | other})
					attr := dat.DefaultEPAttr(q.Attr)
					attr.RecvCompletionFlags, attr.RequestCompletionFlags = a, b
					ep, err := pz.NewEP(dat.EPConfig{Recv: e, Request: e, Attr: &attr})
					switch {
					case known:
						ok(t, err)
					case a == dat.CompletionSolicitedWait:
						refused(t, err, dat.ModelNotSupported, dat.NoSubtype)
					case a != b || a != dat.CompletionEVDThreshold && other != 0:
						refused(t, err, dat.InvalidParameter, dat.InvalidArg8)
					default:
						ok(t, err)
					}
					if err == nil {
						ok(t, ep.Free())
					}
					ok(t, e.Free())
				}
			}
		}
	}
}

// providerAttr is the value of a provider-specific attribute.
func providerAttr(p dat.ProviderAttr, name string) string {
	for _, a := range p.ProviderSpecificAttrs {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

func TestDequeueTakesTheOldestAndSaysWhenThereIsNone(t *testing.T) {
	e := newEVD(t, newIA(t), dat.EVDConfig{MinLen: 4})
	empty(t, e)
	post(t, e, 1, 2, 3, 4)
	for i := range 4 {
		ev := must[dat.Event](t)(e.Dequeue())
		if ev.Software() != uint64(i+1) || ev.EVD() != e || ev.Stream() != dat.StreamSoftware {
			t.Fatal(ev)
		}
	}
	empty(t, e)
	// Many at a time, across the end of the ring.
	buf := make([]dat.Event, 3)
	next := uint64(0)
	want := uint64(0)
	for range 100 {
		for e.PostSE(next) == nil {
			next++
		}
		if n := e.DequeueInto(buf); n != 3 {
			t.Fatalf("%d events", n)
		}
		for i := range buf {
			if buf[i].Software() != want || buf[i].EVD() != e {
				t.Fatalf("%v, want %d", buf[i], want)
			}
			want++
		}
	}
	if n := e.DequeueInto(buf); n != 1 {
		t.Fatalf("%d events", n)
	}
	if e.DequeueInto(buf) != 0 || e.DequeueInto(nil) != 0 {
		t.Fatal("more than there was")
	}
}

func TestDrainTakesWhatTheLoopTakes(t *testing.T) {
	e := newEVD(t, newIA(t), dat.EVDConfig{})
	post(t, e, 1, 2, 3)
	for ev := range e.Drain() {
		if ev.Software() == 2 {
			break
		}
	}
	if got := drainNumbers(e); !slices.Equal(got, []string{"SE 3"}) {
		t.Fatalf("left %q", got)
	}
}

// Events of all streams come in the order in which they arrived, wherever they waited meanwhile.
func TestSoftwareAndDTOEventsComeInOrderOfArrival(t *testing.T) {
	for _, batch := range []int{1, 3, 40} {
		p := newPair(t, pairConfig{evd: dat.EVDConfig{MinLen: 64}}).connect(t)
		var want []string
		for i := range 16 {
			c := uint64(i)
			if i%3 == 0 {
				post(t, p.a.evd, c)
				want = append(want, fmt.Sprintf("SE %d", i))
			}
			ok(t, p.a.ep.PostRDMAWrite(c, 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
			want = append(want, fmt.Sprintf("RDMA_WRITE %d SUCCESS", i))
			if i%5 == 0 {
				post(t, p.a.evd, c)
				want = append(want, fmt.Sprintf("SE %d", i))
			}
		}
		var got []string
		buf := make([]dat.Event, batch)
		for n := p.a.evd.DequeueInto(buf); n > 0; n = p.a.evd.DequeueInto(buf) {
			for _, ev := range buf[:n] {
				got = append(got, short(ev))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	}
}

// PostSE on a full EVD returns QUEUE_FULL, by identity, changes nothing and raises nothing.
func TestPostSEOnAFullEVD(t *testing.T) {
	for _, streams := range []dat.Stream{dat.StreamSoftware, dat.StreamSoftware | dat.StreamDTO} {
		for _, n := range []int{1, 3, 8} {
			ia := newIA(t)
			e := newEVD(t, ia, dat.EVDConfig{MinLen: n, Streams: streams})
			for i := range n {
				post(t, e, uint64(i))
			}
			for range 2 {
				if err := e.PostSE(99); err != dat.ErrQueueFull {
					t.Fatalf("with %d of %d: %v", n, n, err)
				}
			}
			must[dat.Event](t)(e.Dequeue())
			post(t, e, 100)
			if err := e.PostSE(99); err != dat.ErrQueueFull {
				t.Fatal(err)
			}
			if q := must[dat.EVDParam](t)(e.Query()); q.Queued != n || q.Counters.Refused != 3 || q.Counters.Events != uint64(n+1) {
				t.Fatalf("%+v", q)
			}
			empty(t, ia.AsyncEVD())
		}
	}
}

// A connection request that finds no room is refused, and raises one overflow for as long as there is none.
func TestAConnectionRequestThatFindsNoRoomIsRefused(t *testing.T) {
	p := newPair(t, pairConfig{})
	e := newEVD(t, p.b.ia, dat.EVDConfig{MinLen: 2, Streams: dat.StreamConnectionRequest})
	psp := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: e}))
	connect := func() *dat.EP {
		ep := p.a.newEP(t, nil)
		ok(t, ep.Connect(p.b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
		return ep
	}
	connect()
	connect()
	eventually(t, "two requests", func() bool { return queued(t, e) == 2 })
	for range 3 {
		ep := connect()
		if ev := p.a.next(t, dat.ConnectionNonPeerRejected); ev.Connection().EP != ep {
			t.Fatal(ev)
		}
	}
	if n := must[dat.IAParam](t)(p.b.ia.Query()).Counters.CRs; n != 2 {
		t.Fatalf("%d CRs are left", n)
	}
	if ev := next(t, p.b.ia.AsyncEVD(), dat.AsyncErrorEVDOverflow); ev.Async().Object != dat.Object(e) || ev.Async().Reason != dat.ReasonEVDOverflow {
		t.Fatal(ev)
	}
	empty(t, p.b.ia.AsyncEVD())
	ev := must[dat.Event](t)(e.Dequeue())
	ok(t, ev.Request().CR.Reject(nil))
	p.a.next(t, dat.ConnectionPeerRejected)
	// There was room again: another time of overflow is another event.
	connect()
	eventually(t, "another request", func() bool { return queued(t, e) == 2 })
	connect()
	p.a.next(t, dat.ConnectionNonPeerRejected)
	next(t, p.b.ia.AsyncEVD(), dat.AsyncErrorEVDOverflow)
	empty(t, p.b.ia.AsyncEVD())
}

// A connection whose ESTABLISHED finds no room is ended: nobody would know of it.
func TestAConnectionThatCannotBeToldOfIsEnded(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	small := newEVD(t, p.b.ia, dat.EVDConfig{MinLen: 1, Streams: dat.StreamConnection | dat.StreamSoftware})
	post(t, small, 1)
	attr := p.b.attr(t)
	ep := must[*dat.EP](t)(p.b.pz.NewEP(dat.EPConfig{Recv: p.b.recv, Request: p.b.request, Connect: small, Attr: &attr}))
	ok(t, ep.PostRecv(7, 0, p.b.lmr.Triplet(0, 8)))
	ok(t, p.call())
	ok(t, p.b.request1(t).Accept(ep, nil))
	next(t, p.a.connect, dat.ConnectionEstablished)
	next(t, p.a.connect, dat.ConnectionDisconnected)
	nextDTO(t, p.b.recv, 7, dat.StatusFlushed)
	if s := state(t, ep); s != dat.StateDisconnected {
		t.Fatal(s)
	}
	// The end finds no room either; that is the same overflow.
	eventually(t, "two refused events", func() bool { return must[dat.EVDParam](t)(small.Query()).Counters.Refused == 2 })
	next(t, p.b.ia.AsyncEVD(), dat.AsyncErrorEVDOverflow)
	empty(t, p.b.ia.AsyncEVD())
	if got := drainNumbers(small); !slices.Equal(got, []string{"SE 1"}) {
		t.Fatalf("queued %q", got)
	}
	// The EP can be used again.
	ok(t, ep.Reset())
	ok(t, p.a.ep.Reset())
	ok(t, p.call())
	ok(t, p.b.request1(t).Accept(ep, nil))
	next(t, small, dat.ConnectionEstablished)
}

// The asynchronous EVD's own overflow has nowhere to go; the events that were queued stay.
func TestOverflowOfTheAsyncEVDLosesOnlyWhatFindsNoRoom(t *testing.T) {
	ia := openIA(t, newLoop(), dat.Config{AsyncEVDMinLen: 2})
	pz := must[*dat.PZ](t)(ia.NewPZ())
	srq := must[*dat.SRQ](t)(pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1}))
	for range 5 {
		ok(t, srq.SetLowWatermark(1))
	}
	eventually(t, "refused events", func() bool {
		return must[dat.EVDParam](t)(ia.AsyncEVD().Query()).Counters.Refused == 3
	})
	for range 2 {
		next(t, ia.AsyncEVD(), dat.AsyncWatermark)
	}
	empty(t, ia.AsyncEVD())
}

// Room for an EP's completions is reserved: they find it whatever else fills the EVD, and nothing else uses it.
func TestDTOEventsCannotOverflow(t *testing.T) {
	const dtos = 50
	p := newPair(t, pairConfig{evd: dat.EVDConfig{MinLen: 3}, attr: func(a *dat.EPAttr) { a.MaxRecvDTOs, a.MaxRequestDTOs = dtos, dtos }})
	if q := must[dat.EVDParam](t)(p.a.evd.Query()); q.QLen != 3+2*dtos {
		t.Fatalf("room for %d events", q.QLen)
	}
	p.connect(t)
	var want []string
	for i := range dtos {
		ok(t, p.a.ep.PostRecv(uint64(i), 0, p.a.lmr.Triplet(0, 8)))
		ok(t, p.a.ep.PostRDMAWrite(uint64(i), 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
		want = append(want, fmt.Sprintf("RDMA_WRITE %d SUCCESS", i))
	}
	post(t, p.a.evd, 1, 2)
	ok(t, p.b.ep.Disconnect(dat.CloseAbrupt))
	p.b.next(t, dat.ConnectionDisconnected)
	want = append(want, "SE 1", "SE 2")
	for i := range dtos {
		want = append(want, fmt.Sprintf("RECEIVE %d FLUSHED", i))
	}
	want = append(want, dat.ConnectionDisconnected.String())
	eventually(t, "the end", func() bool { return queued(t, p.a.evd) == len(want) })
	if err := p.a.evd.PostSE(3); err != dat.ErrQueueFull {
		t.Fatalf("software events use reserved room: %v", err)
	}
	if got := drainNumbers(p.a.evd); !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
	empty(t, p.a.ia.AsyncEVD())
}

// The queue grows with what is attached, keeps what is in it, and is bounded by the IA's limit only.
func TestTheQueueGrowsUpToTheIAsLimit(t *testing.T) {
	ia := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.MaxCQE = 256 }}), dat.Config{})
	pz := must[*dat.PZ](t)(ia.NewPZ())
	e := newEVD(t, ia, dat.EVDConfig{MinLen: 8, Streams: dat.StreamDTO | dat.StreamSoftware})
	post(t, e, 1, 2, 3)
	attr := dat.DefaultEPAttr(must[dat.IAParam](t)(ia.Query()).Attr)
	attr.MaxRecvDTOs, attr.MaxRequestDTOs = 20, 30
	var eps []*dat.EP
	for {
		ep, err := pz.NewEP(dat.EPConfig{Recv: e, Request: e, Attr: &attr})
		if err != nil {
			refused(t, err, dat.InsufficientResources, dat.ResourceTEVD)
			break
		}
		eps = append(eps, ep)
		if q := must[dat.EVDParam](t)(e.Query()); q.QLen != 8+50*len(eps) || q.Queued != 3 {
			t.Fatal(q)
		}
	}
	if len(eps) != 4 {
		t.Fatalf("%d EPs of 50 completions share 256", len(eps))
	}
	refused(t, e.Resize(200), dat.InsufficientResources, dat.ResourceTEVD)
	ok(t, eps[0].Free())
	ok(t, e.Resize(50))
	refused(t, e.Resize(1), dat.InvalidState, dat.NoSubtype)
	if got := drainNumbers(e); !slices.Equal(got, []string{"SE 1", "SE 2", "SE 3"}) {
		t.Fatalf("%q", got)
	}
	refused(t, e.Free(), dat.InvalidState, dat.InvalidStateEVDInUse)
	for _, ep := range eps[1:] {
		ok(t, ep.Free())
	}
	ok(t, e.Free())
}

func TestResizeKeepsTheEventsAndTheirOrder(t *testing.T) {
	for _, streams := range []dat.Stream{dat.StreamSoftware, dat.StreamSoftware | dat.StreamDTO} {
		e := newEVD(t, newIA(t), dat.EVDConfig{MinLen: 4, Streams: streams})
		next, want := uint64(0), uint64(0)
		for _, n := range []int{1000, 7, 7, 8, 9, 1, 64, 3, 1 << 12, 2} {
			for queued(t, e) > n {
				ev := must[dat.Event](t)(e.Dequeue())
				if ev.Software() != want {
					t.Fatalf("%v, want %d", ev, want)
				}
				want++
			}
			if n > 1 && queued(t, e) == n { // full; one less is refused
				refused(t, e.Resize(n-1), dat.InvalidState, dat.NoSubtype)
			}
			ok(t, e.Resize(n))
			if q := must[dat.EVDParam](t)(e.Query()); q.QLen != n {
				t.Fatalf("length %d, want %d", q.QLen, n)
			}
			for e.PostSE(next) == nil {
				next++
			}
			if queued(t, e) != n {
				t.Fatalf("%d of %d events fit", queued(t, e), n)
			}
		}
		for ev := range e.Drain() {
			if ev.Software() != want {
				t.Fatalf("%v, want %d", ev, want)
			}
			want++
		}
		if want != next {
			t.Fatalf("%d of %d events came", want, next)
		}
	}
}

func TestResizeChecksItsArgument(t *testing.T) {
	e := newEVD(t, newIA(t), dat.EVDConfig{})
	for _, n := range []int{0, -1, math.MinInt, 1<<22 + 1, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32 + 1, math.MaxInt} {
		refused(t, e.Resize(n), dat.InvalidParameter, dat.InvalidArg2)
	}
	if q := must[dat.EVDParam](t)(e.Query()); q.QLen != 16 {
		t.Fatal(q)
	}
}

// Resizing goes on under posters, dequeuers and upcalls; nothing is lost, doubled or reordered.
func TestResizeUnderLoad(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 500
	}
	for _, streams := range []dat.Stream{dat.StreamSoftware, dat.StreamSoftware | dat.StreamDTO} {
		for _, policy := range []dat.UpcallPolicy{dat.UpcallDisable, dat.UpcallSingleInstance} {
			got := make(chan uint64, n)
			e := newEVD(t, newIA(t), dat.EVDConfig{Streams: streams, Policy: policy, Upcall: func(ev dat.Event, _ bool) { got <- ev.Software() }})
			stop := make(chan struct{})
			resized := make(chan int)
			go func() {
				count := 0
				for i := 0; ; i++ {
					select {
					case <-stop:
						resized <- count
						return
					default:
						if e.Resize(1+i%100) == nil {
							count++
						}
					}
				}
			}()
			go func() {
				for i := range n {
					for e.PostSE(uint64(i)) != nil {
					}
				}
			}()
			for i := 0; i < n; {
				var v uint64
				if policy.Live() {
					v = receive(t, "an upcall", got)
				} else if ev, err := e.Dequeue(); err == nil {
					v = ev.Software()
				} else {
					continue
				}
				if v != uint64(i) {
					t.Fatalf("event %d, want %d", v, i)
				}
				i++
			}
			close(stop)
			if c := receive(t, "the resizer's end", resized); c == 0 {
				t.Fatal("was never resized")
			}
		}
	}
}

// memorySource supplies the memory of an EVD's queue and checks that what it gave comes back.
type memorySource struct {
	gave, back int
	sizes      []int
}

func (m *memorySource) memory(size int) ([]byte, func()) {
	m.gave++
	m.sizes = append(m.sizes, size)
	words := make([]uint64, size/8+8)
	off := 8 - uintptr(unsafe.Pointer(&words[0]))%64/8
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[off%8])), size)
	return mem, func() { m.back++ }
}

func TestTheConsumerSuppliesTheMemoryOfTheQueue(t *testing.T) {
	ia := newIA(t)
	m := &memorySource{}
	e := newEVD(t, ia, dat.EVDConfig{MinLen: 4, Streams: dat.StreamSoftware | dat.StreamDTO, Memory: m.memory})
	if m.gave != 1 {
		t.Fatalf("called %d times", m.gave)
	}
	post(t, e, 1, 2, 3)
	ok(t, e.Resize(100))
	if m.gave != 2 || m.sizes[1] <= m.sizes[0] {
		t.Fatalf("sizes %v", m.sizes)
	}
	// An attached EP makes it grow as well.
	pz := must[*dat.PZ](t)(ia.NewPZ())
	attr := dat.DefaultEPAttr(must[dat.IAParam](t)(ia.Query()).Attr)
	attr.MaxRecvDTOs = 300
	ep := must[*dat.EP](t)(pz.NewEP(dat.EPConfig{Recv: e, Request: e, Attr: &attr}))
	if m.gave != 3 {
		t.Fatalf("sizes %v", m.sizes)
	}
	if got := drainNumbers(e); !slices.Equal(got, []string{"SE 1", "SE 2", "SE 3"}) {
		t.Fatalf("%q", got)
	}
	ok(t, ep.Free())
	if m.back != 0 {
		t.Fatal("memory came back early")
	}
	ok(t, e.Free())
	if m.back != m.gave {
		t.Fatalf("%d of %d came back", m.back, m.gave)
	}
}

// Memory that cannot be used is refused, and given back.
func TestUnusableMemoryIsRefused(t *testing.T) {
	ia := newIA(t)
	var bad int
	for _, c := range []struct {
		name string
		mem  func(size int) []byte
	}{
		{"too small", func(size int) []byte { return make([]byte, size-1) }},
		{"empty", func(int) []byte { return []byte{} }},
		{"misaligned", func(size int) []byte {
			return (*(*[1 << 20]byte)(unsafe.Pointer(&make([]uint64, 1<<17)[0])))[1 : size+1]
		}},
	} {
		back := 0
		broken := true
		source := func(size int) ([]byte, func()) {
			if !broken {
				return nil, nil // the heap
			}
			bad++
			return c.mem(size), func() { back++ }
		}
		_, err := ia.NewEVD(dat.EVDConfig{MinLen: 4, Streams: dat.StreamSoftware, Memory: source})
		if refused(t, err, dat.InvalidParameter, dat.InvalidArg2); back != 1 {
			t.Fatalf("%s: came back %d times", c.name, back)
		}
		// Later, the EVD stays as it is.
		broken = false
		e := newEVD(t, ia, dat.EVDConfig{MinLen: 4, Memory: source})
		post(t, e, 1, 2)
		broken = true
		refused(t, e.Resize(100), dat.InsufficientResources, dat.ResourceMemory)
		if q := must[dat.EVDParam](t)(e.Query()); q.QLen != 4 || q.Queued != 2 || back != 2 {
			t.Fatalf("%s: %v, %d", c.name, q, back)
		}
		post(t, e, 3)
		if got := drainNumbers(e); !slices.Equal(got, []string{"SE 1", "SE 2", "SE 3"}) {
			t.Fatalf("%q", got)
		}
		ok(t, e.Free())
	}
}

func TestEnableAndDisableAreAboutTheCNOOnly(t *testing.T) {
	bubble(t, dat.UpcallSingleInstance, func(t *testing.T, e *dat.EVD, l *upcallLog) {
		state := func() dat.EVDState {
			return must[dat.EVDParam](t)(e.Query()).State & (dat.EVDStateEnabled | dat.EVDStateDisabled)
		}
		if state() != dat.EVDStateEnabled {
			t.Fatal(state())
		}
		for range 2 {
			ok(t, e.Disable())
			if state() != dat.EVDStateDisabled {
				t.Fatal(state())
			}
		}
		post(t, e, 1)
		l.want(t, "SE 1")
		modify(t, e, dat.UpcallDisable, dat.InvocNew)
		post(t, e, 2)
		if w := <-wait(background, e, 1, 0); w.err != nil {
			t.Fatal(w)
		}
		for range 2 {
			ok(t, e.Enable())
			if state() != dat.EVDStateEnabled {
				t.Fatal(state())
			}
		}
		synctest.Wait()
		l.want(t, "SE 1")
	})
}

// Freeing drops what is queued; the EVD's name stays in its errors.
func TestFreeDropsWhatIsQueued(t *testing.T) {
	ia := newIA(t)
	before := must[dat.IAParam](t)(ia.Query()).Counters.EVDs
	e := newEVD(t, ia, dat.EVDConfig{})
	post(t, e, 1, 2)
	ok(t, e.Free())
	if _, err := e.Dequeue(); err == nil || e.DequeueInto(make([]dat.Event, 1)) != 0 {
		t.Fatal("a freed EVD has events")
	}
	refused(t, e.Free(), dat.InvalidHandle, dat.InvalidHandle1)
	if n := must[dat.IAParam](t)(ia.Query()).Counters.EVDs; n != before {
		t.Fatalf("%d EVDs are counted, want %d", n, before)
	}
}

func TestEVDsAreLimited(t *testing.T) {
	ia := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.MaxCQ = 3 }}), dat.Config{})
	var evds []*dat.EVD
	for range 2 { // and the asynchronous one
		evds = append(evds, newEVD(t, ia, dat.EVDConfig{}))
	}
	_, err := ia.NewEVD(dat.EVDConfig{MinLen: 1, Streams: dat.StreamSoftware})
	refused(t, err, dat.InsufficientResources, dat.ResourceTEVD)
	ok(t, evds[0].Free())
	newEVD(t, ia, dat.EVDConfig{Streams: dat.StreamDTO})
}

// A queue on the heap begins with memory for a few events, and grows to as many as are queued: none is lost, none refused
// that there is to be room for, and their order stays.
func TestTheQueueGrowsToWhatIsQueued(t *testing.T) {
	const length = 5000
	e := newEVD(t, newIA(t), dat.EVDConfig{MinLen: length})
	for round := range 3 {
		for i := range length {
			if err := e.PostSE(uint64(i)); err != nil {
				t.Fatalf("round %d: event %d of %d: %v", round, i, length, err)
			}
		}
		if err := e.PostSE(0); err != dat.ErrQueueFull {
			t.Fatalf("round %d: %v with a full queue", round, err)
		}
		if _, more, err := e.Wait(background, length, 0); err != nil || more != length-1 {
			t.Fatalf("round %d: %d left: %v", round, more, err)
		}
		for i := 1; i < length; i++ {
			if ev, err := e.Dequeue(); err != nil || ev.Software() != uint64(i) {
				t.Fatalf("round %d: %v instead of event %d: %v", round, ev, i, err)
			}
		}
	}
}

// The memory of a queue follows what was queued, not what could be.
func TestTheQueueTakesMemoryForWhatIsQueued(t *testing.T) {
	ia := newIA(t)
	bytes := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := bytes()
	var evds []*dat.EVD
	for range 8 {
		e := newEVD(t, ia, dat.EVDConfig{MinLen: 1 << 16})
		post(t, e, 1, 2, 3)
		evds = append(evds, e)
	}
	if used := int64(bytes()-before) / int64(len(evds)); used > 64<<10 {
		t.Errorf("%d bytes for an EVD that holds 3 of %d events", used, 1<<16)
	}
	runtime.KeepAlive(evds)
}
