package dat_test

import (
	"fmt"
	"testing"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Shared receive queues: dat_srq_*, and end points that use them.

// shared is an SRQ on side b with connected EPs, each of which has a peer on side a.
type shared struct {
	*pair
	srq  *dat.SRQ
	from []*dat.EP // on a
	to   []*dat.EP // on b, with the SRQ
}

type sharedConfig struct {
	pair pairConfig
	srq  dat.SRQAttr // 16 receives of 2 segments if zero
	eps  int         // 1 if 0
	attr func(*dat.EPAttr)
}

// newShared makes an SRQ whose EPs have events on b.recv, b.request and b.connect.
func newShared(t testing.TB, cfg sharedConfig) *shared {
	t.Helper()
	cfg.pair.split = true
	p := newPair(t, cfg.pair)
	ok(t, p.a.ep.Free())
	ok(t, p.b.ep.Free())
	if cfg.srq == (dat.SRQAttr{}) {
		cfg.srq = dat.SRQAttr{MaxRecvDTOs: 16, MaxRecvIOV: 2}
	}
	s := &shared{pair: p, srq: must[*dat.SRQ](t)(p.b.pz.NewSRQ(cfg.srq))}
	for range max(cfg.eps, 1) {
		from, to := p.a.newEP(t, nil), p.b.srqEP(t, s.srq, cfg.attr)
		q := *p
		q.a.ep, q.b.ep = from, to
		q.connect(t)
		s.from, s.to = append(s.from, from), append(s.to, to)
	}
	return s
}

// srqEP makes an EP that takes its receives from an SRQ.
func (s *side) srqEP(t testing.TB, srq *dat.SRQ, change func(*dat.EPAttr)) *dat.EP {
	t.Helper()
	attr := s.attr(t)
	if change != nil {
		change(&attr)
	}
	return must[*dat.EP](t)(s.pz.NewEP(dat.EPConfig{Recv: s.recv, Request: s.request, Connect: s.connect, SRQ: srq, Attr: &attr}))
}

// post posts receives with the cookies, of 64 bytes each.
func (s *shared) post(t testing.TB, cookies ...uint64) {
	t.Helper()
	for _, c := range cookies {
		ok(t, s.srq.PostRecv(c, s.b.lmr.Triplet(int(c)*64%1024, 64)))
	}
}

// send sends n messages from an EP of a, and takes their events.
func (s *shared) send(t testing.TB, i, n int) {
	t.Helper()
	for range n {
		ok(t, s.from[i].PostSend(9000, 0, s.a.lmr.Triplet(0, 8)))
		nextDTO(t, s.a.request, 9000, dat.StatusSuccess)
	}
}

// counts are the limit, what is available and what is outstanding.
func (s *shared) counts(t testing.TB) string {
	t.Helper()
	q := must[dat.SRQParam](t)(s.srq.Query())
	return fmt.Sprintf("%d/%d/%d", q.MaxRecvDTOs, q.Available, q.Outstanding)
}

func TestSRQServesItsEPsInOrderOfArrival(t *testing.T) {
	s := newShared(t, sharedConfig{eps: 3})
	s.post(t, 1, 2, 3, 4)
	for i, cookie := range []uint64{1, 2, 3, 4} {
		ep := []int{2, 0, 1, 2}[i]
		s.send(t, ep, 1)
		if d := nextDTO(t, s.b.recv, cookie, dat.StatusSuccess); d.EP != s.to[ep] || d.Operation != dat.OpReceive || d.Length != 8 {
			t.Fatalf("message %d: %+v", i, d)
		}
	}
}

// The figures are those of the specification's example.
func TestSRQCountsAvailableAndOutstandingReceives(t *testing.T) {
	s := newShared(t, sharedConfig{srq: dat.SRQAttr{MaxRecvDTOs: 10, MaxRecvIOV: 1}})
	check := func(when, want string) {
		t.Helper()
		if got := s.counts(t); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	check("empty", "10/0/0")
	s.post(t, 1, 2, 3)
	check("three posted", "10/3/3")
	s.send(t, 0, 1)
	check("one taken by a message", "10/2/3")
	nextDTO(t, s.b.recv, 1, dat.StatusSuccess)
	check("its event taken", "10/2/2")
	q := must[dat.SRQParam](t)(s.srq.Query())
	if q.PZ != s.b.pz || q.State != dat.SRQStateOperational || q.MaxRecvIOV != 1 || q.LowWatermark != 0 {
		t.Errorf("%+v", q)
	}
	if got := must[dat.EPParam](t)(s.to[0].Query()); got.SRQ != s.srq {
		t.Errorf("the EP's SRQ is %v", got.SRQ)
	}
}

func TestSRQIsFullUntilEventsAreTaken(t *testing.T) {
	s := newShared(t, sharedConfig{srq: dat.SRQAttr{MaxRecvDTOs: 2, MaxRecvIOV: 1}})
	s.post(t, 1, 2)
	full := func() {
		t.Helper()
		if err := s.srq.PostRecv(3, s.b.lmr.Triplet(0, 8)); err != dat.ErrPostFull {
			t.Fatalf("got %v, want ErrPostFull", err)
		}
	}
	full()
	s.send(t, 0, 2)
	full() // both have completed, and their events are queued
	nextDTO(t, s.b.recv, 1, dat.StatusSuccess)
	s.post(t, 3)
	full()
	nextDTO(t, s.b.recv, 2, dat.StatusSuccess)
	s.send(t, 0, 1)
	nextDTO(t, s.b.recv, 3, dat.StatusSuccess)
}

func TestSRQPostRefusesWhatDoesNotFit(t *testing.T) {
	s := newShared(t, sharedConfig{})
	readOnly := must[*dat.LMR](t)(s.b.pz.Register(make([]byte, 8), dat.PrivLocalRead))
	foreign := must[*dat.LMR](t)(must[*dat.PZ](t)(s.b.ia.NewPZ()).Register(make([]byte, 8), dat.PrivAll))
	tr := s.b.lmr.Triplet(0, 8)
	refused(t, s.srq.PostRecv(1, tr, tr, tr), dat.InvalidParameter, dat.InvalidArg2)
	refused(t, s.srq.PostRecv(1, readOnly.Triplet(0, 8)), dat.PrivilegesViolation, dat.NoSubtype)
	refused(t, s.srq.PostRecv(1, foreign.Triplet(0, 8)), dat.ProtectionViolation, dat.NoSubtype)
	refused(t, s.srq.PostRecv(1, s.b.lmr.Triplet(4090, 8)), dat.ProtectionViolation, dat.NoSubtype)
	if got := s.counts(t); got != "16/0/0" {
		t.Errorf("refused posts left %s", got)
	}
	s.post(t, 1)
	if n := testing.AllocsPerRun(10, func() {
		if err := s.srq.PostRecv(2, tr, tr); err != nil && err != dat.ErrPostFull {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a post allocates %v times", n)
	}
}

func TestEPWithSRQHasNoReceivesOfItsOwn(t *testing.T) {
	s := newShared(t, sharedConfig{attr: func(a *dat.EPAttr) { a.MaxRecvIOV = 1 << 30 }}) // is ignored
	refused(t, s.to[0].PostRecv(1, 0, s.b.lmr.Triplet(0, 8)), dat.InvalidState, dat.NoSubtype)
	_, err := s.to[0].PostRecvs([]dat.Receive{{}})
	refused(t, err, dat.InvalidState, dat.NoSubtype)
	other := must[*dat.SRQ](t)(s.b.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1}))
	unconnected := s.b.srqEP(t, s.srq, nil)
	refused(t, unconnected.Modify(dat.EPFieldSRQ, dat.EPParam{SRQ: other}), dat.InvalidParameter, dat.InvalidArg2)
}

func TestEPRefusesAnSRQThatDoesNotFit(t *testing.T) {
	s := newShared(t, sharedConfig{})
	freed := must[*dat.SRQ](t)(s.b.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1}))
	ok(t, freed.Free())
	for _, srq := range []*dat.SRQ{freed, must[*dat.SRQ](t)(s.a.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1}))} {
		_, err := s.b.pz.NewEP(dat.EPConfig{Recv: s.b.recv, Request: s.b.request, Connect: s.b.connect, SRQ: srq})
		refused(t, err, dat.InvalidHandle, dat.InvalidHandleSRQ)
	}
}

func TestSRQCreationRefusesWhatDoesNotFit(t *testing.T) {
	ia := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.MaxSRQ, a.MaxSRQWR, a.MaxSRQSGE = 1, 100, 2 }}), dat.Config{})
	pz := must[*dat.PZ](t)(ia.NewPZ())
	for _, a := range []dat.SRQAttr{
		{MaxRecvDTOs: 0, MaxRecvIOV: 1}, {MaxRecvDTOs: 101, MaxRecvIOV: 1}, {MaxRecvDTOs: 1, MaxRecvIOV: 0}, {MaxRecvDTOs: 1, MaxRecvIOV: 3},
	} {
		_, err := pz.NewSRQ(a)
		refused(t, err, dat.InvalidParameter, dat.InvalidArg3)
	}
	srq := must[*dat.SRQ](t)(pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 100, MaxRecvIOV: 2}))
	_, err := pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1})
	refused(t, err, dat.InsufficientResources, dat.ResourceSRQ)
	refused(t, pz.Free(), dat.InvalidState, dat.InvalidStatePZInUse)
	ok(t, srq.Free())
	ok(t, pz.Free())
	_, err = pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1})
	refused(t, err, dat.InvalidHandle, dat.InvalidHandlePZ)

	ia = openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.Caps &^= verbs.CapSRQ }}), dat.Config{})
	_, err = must[*dat.PZ](t)(ia.NewPZ()).NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1})
	refused(t, err, dat.ModelNotSupported, dat.NoSubtype)
	if q := must[dat.IAParam](t)(ia.Query()).Provider; q.SRQSupported || q.SRQInfoSupported != 0 || q.SRQWatermarksSupported != 0 || q.SRQEPPZDifferenceSupported {
		t.Errorf("attributes of an adapter without SRQs: %+v", q)
	}
}

func TestSRQIsNotFreedWhileAnEPUsesIt(t *testing.T) {
	s := newShared(t, sharedConfig{})
	s.post(t, 1, 2)
	refused(t, s.srq.Free(), dat.InvalidState, dat.InvalidStateSRQInUse)
	ok(t, s.to[0].Free())
	ok(t, s.srq.Free()) // what is posted is the consumer's again, without events
	empty(t, s.b.recv)
	refused(t, s.srq.Free(), dat.InvalidHandle, dat.InvalidHandleSRQ)
	refused(t, s.srq.PostRecv(1), dat.InvalidHandle, dat.InvalidHandleSRQ)
	refused(t, s.srq.Resize(5), dat.InvalidHandle, dat.InvalidHandleSRQ)
	refused(t, s.srq.SetLowWatermark(1), dat.InvalidHandle, dat.InvalidHandleSRQ)
	_, err := s.srq.Query()
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleSRQ)
	_, err = s.b.pz.NewEP(dat.EPConfig{SRQ: s.srq})
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleSRQ)
	ok(t, s.b.lmr.Free())
}

// A disconnect flushes nothing of an SRQ but what the EP has taken; then C programs are told that no more
// is taken.
func TestDisconnectLeavesTheSRQsReceives(t *testing.T) {
	s := newShared(t, sharedConfig{eps: 2})
	s.post(t, 1, 2, 3)
	ok(t, s.to[0].Disconnect(dat.CloseAbrupt))
	next(t, s.b.connect, dat.ConnectionDisconnected)
	empty(t, s.b.recv)
	ev := next(t, s.b.ia.AsyncEVD(), dat.AsyncErrorEPBroken)
	if a := ev.Async(); a.Object != dat.Object(s.to[0]) || a.Reason != dat.ReasonEPOther {
		t.Fatalf("%+v", a)
	}
	if got := s.counts(t); got != "16/3/3" {
		t.Fatalf("the SRQ has %s", got)
	}
	next(t, s.a.connect, dat.ConnectionDisconnected)
	s.send(t, 1, 3)
	for _, c := range []uint64{1, 2, 3} {
		if d := nextDTO(t, s.b.recv, c, dat.StatusSuccess); d.EP != s.to[1] {
			t.Fatalf("%+v", d)
		}
	}
	// The association stays over a reset.
	ok(t, s.to[0].Reset())
	ok(t, s.from[0].Reset())
	q := *s.pair
	q.a.ep, q.b.ep = s.from[0], s.to[0]
	q.connect(t)
	s.post(t, 4)
	s.send(t, 0, 1)
	nextDTO(t, s.b.recv, 4, dat.StatusSuccess)
	empty(t, s.b.ia.AsyncEVD())
}

func TestUnconnectedEPsDrawNoReceives(t *testing.T) {
	s := newShared(t, sharedConfig{})
	s.post(t, 1)
	idle := s.b.srqEP(t, s.srq, nil)
	rsp := must[*dat.RSP](t)(s.b.ia.NewRSP(dat.RSPConfig{EP: idle, EVD: s.b.cr}))
	from := s.a.newEP(t, nil)
	ok(t, from.Connect(s.b.ia.Address(), rsp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
	cr := s.b.request1(t)
	if got := s.counts(t); got != "16/1/1" {
		t.Fatalf("before the accept: %s", got)
	}
	ok(t, cr.Accept(nil, nil))
	next(t, s.a.connect, dat.ConnectionEstablished)
	next(t, s.b.connect, dat.ConnectionEstablished)
	ok(t, from.PostSend(2, 0))
	nextDTO(t, s.a.request, 2, dat.StatusSuccess)
	nextDTO(t, s.b.recv, 1, dat.StatusSuccess)
}

func TestSendsWaitForAnSRQThatIsEmpty(t *testing.T) {
	s := newShared(t, sharedConfig{eps: 2})
	for i := range s.from {
		ok(t, s.from[i].PostSend(uint64(i), 0, s.a.lmr.Triplet(0, 8)))
	}
	empty(t, s.a.request)
	s.post(t, 10)
	nextDTO(t, s.a.request, 0, dat.StatusSuccess) // the one that has waited longer
	empty(t, s.a.request)
	s.post(t, 11)
	nextDTO(t, s.a.request, 1, dat.StatusSuccess)
}

func TestMessageLongerThanTheSRQsReceive(t *testing.T) {
	s := newShared(t, sharedConfig{eps: 2})
	ok(t, s.srq.PostRecv(1, s.b.lmr.Triplet(0, 4)))
	ok(t, s.from[0].PostSend(2, 0, s.a.lmr.Triplet(0, 8)))
	nextDTO(t, s.b.recv, 1, dat.StatusLocalLength)
	next(t, s.b.connect, dat.ConnectionBroken)
	nextDTO(t, s.a.request, 2, dat.StatusRemoteResponder)
	next(t, s.a.connect, dat.ConnectionBroken)
	s.post(t, 3) // the other EP lives
	s.send(t, 1, 1)
	nextDTO(t, s.b.recv, 3, dat.StatusSuccess)
}

func TestSRQCountsOncePerEVD(t *testing.T) {
	s := newShared(t, sharedConfig{srq: dat.SRQAttr{MaxRecvDTOs: 50, MaxRecvIOV: 1}})
	qlen := func(e *dat.EVD) int { return must[dat.EVDParam](t)(e.Query()).QLen }
	if got := qlen(s.b.recv); got != 16+50 {
		t.Fatalf("one EP: %d", got)
	}
	more := s.b.srqEP(t, s.srq, nil)
	if got := qlen(s.b.recv); got != 16+50 {
		t.Fatalf("two EPs: %d", got)
	}
	other := newEVD(t, s.b.ia, dat.EVDConfig{Streams: dat.StreamDTO})
	elsewhere := must[*dat.EP](t)(s.b.pz.NewEP(dat.EPConfig{Recv: other, Request: s.b.request, Connect: s.b.connect, SRQ: s.srq}))
	if got := qlen(other); got != 16+50 {
		t.Fatalf("another EVD: %d", got)
	}
	ok(t, s.srq.Resize(80))
	if a, b := qlen(s.b.recv), qlen(other); a != 16+80 || b != 16+80 {
		t.Fatalf("after the resize: %d, %d", a, b)
	}
	ok(t, s.to[0].Free())
	if got := qlen(s.b.recv); got != 16+80 {
		t.Fatalf("one of two EPs gone: %d", got)
	}
	ok(t, more.Free())
	ok(t, elsewhere.Free())
	if a, b := qlen(s.b.recv), qlen(other); a != 16 || b != 16 {
		t.Fatalf("all EPs gone: %d, %d", a, b)
	}
}

func TestSRQResize(t *testing.T) {
	s := newShared(t, sharedConfig{srq: dat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1}})
	s.post(t, 1, 2, 3, 4)
	refused(t, s.srq.Resize(0), dat.InvalidParameter, dat.InvalidArg2)
	refused(t, s.srq.Resize(1<<17), dat.InvalidParameter, dat.InvalidArg2)
	refused(t, s.srq.Resize(3), dat.InvalidState, dat.NoSubtype)
	ok(t, s.srq.Resize(4))
	ok(t, s.srq.Resize(100))
	for c := uint64(5); c <= 100; c++ {
		s.post(t, c)
	}
	if err := s.srq.PostRecv(101); err != dat.ErrPostFull {
		t.Fatalf("got %v", err)
	}
	s.send(t, 0, 100)
	for c := uint64(1); c <= 100; c++ {
		nextDTO(t, s.b.recv, c, dat.StatusSuccess)
	}
	ok(t, s.srq.SetLowWatermark(10))
	next(t, s.b.ia.AsyncEVD(), dat.AsyncWatermark) // there is none
	refused(t, s.srq.Resize(9), dat.InvalidState, dat.NoSubtype)
	ok(t, s.srq.Resize(10))
	if got := s.counts(t); got != "10/0/0" {
		t.Fatalf("%s", got)
	}
	for c := uint64(1); c <= 10; c++ {
		s.post(t, c)
	}
	if err := s.srq.PostRecv(11); err != dat.ErrPostFull {
		t.Fatalf("got %v", err)
	}
}

func TestSRQResizeNeedsRoomInTheEVDs(t *testing.T) {
	s := newShared(t, sharedConfig{pair: pairConfig{loop: loop.Config{Adjust: func(a *verbs.Attr) { a.MaxCQE = 64 }}}})
	refused(t, s.srq.Resize(60), dat.InsufficientResources, dat.ResourceTEVD)
	if q := must[dat.SRQParam](t)(s.srq.Query()); q.MaxRecvDTOs != 16 {
		t.Fatalf("%+v", q)
	}
	ok(t, s.srq.Resize(30))
}

func TestSRQOfAnAdapterThatCannotResize(t *testing.T) {
	s := newShared(t, sharedConfig{pair: pairConfig{loop: loop.Config{Adjust: func(a *verbs.Attr) { a.Caps &^= verbs.CapSRQResize | verbs.CapSRQLimit }}}})
	refused(t, s.srq.Resize(30), dat.ModelNotSupported, dat.NoSubtype)
	refused(t, s.srq.SetLowWatermark(3), dat.ModelNotSupported, dat.NoSubtype)
	if q := must[dat.SRQParam](t)(s.srq.Query()); q.MaxRecvDTOs != 16 || q.LowWatermark != 0 {
		t.Fatalf("%+v", q)
	}
	if got := must[dat.EVDParam](t)(s.b.recv.Query()).QLen; got != 32 {
		t.Fatalf("the EVD has room for %d", got)
	}
}

func TestSRQAndEPAreOfOnePZ(t *testing.T) {
	s := newShared(t, sharedConfig{})
	if must[dat.IAParam](t)(s.b.ia.Query()).Provider.SRQEPPZDifferenceSupported {
		t.Fatal("the attribute says otherwise")
	}
	pz := must[*dat.PZ](t)(s.b.ia.NewPZ())
	_, err := pz.NewEP(dat.EPConfig{Recv: s.b.recv, Request: s.b.request, Connect: s.b.connect, SRQ: s.srq})
	refused(t, err, dat.InvalidParameter, dat.InvalidArg6)
	ep := must[*dat.EP](t)(s.b.ia.NewEP(dat.EPConfig{Recv: s.b.recv, Request: s.b.request, Connect: s.b.connect, SRQ: s.srq}))
	refused(t, ep.Modify(dat.EPFieldPZ, dat.EPParam{PZ: pz}), dat.InvalidParameter, dat.InvalidArg3)
	ok(t, ep.Modify(dat.EPFieldPZ, dat.EPParam{PZ: s.b.pz}))
	ok(t, pz.Free())
}

func TestRDMAWriteImmediateTakesAReceiveOfTheSRQ(t *testing.T) {
	s := newShared(t, sharedConfig{})
	s.post(t, 1)
	ok(t, s.from[0].PostRDMAWriteImmediate(2, 0, 0xABCD, s.b.lmr.RMRTriplet(2048, 8), s.a.lmr.Triplet(0, 8)))
	if d := nextDTO(t, s.b.recv, 1, dat.StatusSuccess); d.Operation != dat.OpReceiveImmediate || d.Immediate != 0xABCD || d.EP != s.to[0] {
		t.Fatalf("%+v", d)
	}
}

func TestReceivesOfAnSRQNotifyAsTheEPSays(t *testing.T) {
	upcalls := make(chan dat.Event, 16)
	s := newShared(t, sharedConfig{
		attr: func(a *dat.EPAttr) { a.RecvCompletionFlags = dat.CompletionSolicitedWait },
	})
	ok(t, s.b.recv.ModifyUpcall(dat.UpcallSingleInstance, func(ev dat.Event, _ bool) { upcalls <- ev }, dat.InvocNew))
	s.post(t, 1, 2, 3)
	s.send(t, 0, 2)
	if n := queued(t, s.b.recv); n != 2 {
		t.Fatalf("%d events are queued", n)
	}
	ok(t, s.from[0].PostSend(5, dat.CompletionSolicitedWait))
	for _, c := range []uint64{1, 2, 3} {
		if ev := receive(t, "upcall", upcalls); ev.DTO().Cookie != c {
			t.Fatal(ev)
		}
	}
}

func TestCloseTakesSRQsWithIt(t *testing.T) {
	s := newShared(t, sharedConfig{eps: 2})
	s.post(t, 1, 2)
	refused(t, s.b.ia.Close(t.Context(), dat.CloseGraceful), dat.InvalidState, dat.InvalidStateIAInUse)
	ok(t, s.b.ia.Close(t.Context(), dat.CloseAbrupt))
	refused(t, s.srq.PostRecv(3), dat.InvalidHandle, dat.InvalidHandleSRQ)
	next(t, s.a.connect, dat.ConnectionDisconnected)
	next(t, s.a.connect, dat.ConnectionDisconnected)
}
