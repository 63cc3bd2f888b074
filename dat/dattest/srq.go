package dattest

import (
	"encoding/binary"

	"kdapl/dat"
)

// Shared receive queues (dat_srq_*) and their watermarks.
var srqRules = []rule{
	{"an SRQ serves its EPs in the order of their messages", needSRQ, srqOrder},
	{"an SRQ counts available and outstanding receives", needSRQ, srqCounts},
	{"an SRQ is full until events are taken", needSRQ, srqFull},
	{"an EP with an SRQ has no receives of its own", needSRQ, srqNoOwn},
	{"an SRQ in use is not freed", needSRQ, srqInUse},
	{"a freed SRQ gives its receives back without events", needSRQ, srqFree},
	{"a disconnect leaves the receives that no message has taken", needSRQ, srqDisconnect},
	{"an EP keeps its SRQ over a reset", needSRQ, srqReset},
	{"sends wait for an SRQ that is empty", needSRQ | needWait, srqEmpty},
	{"a message that does not fit ends its EP's connection only", needSRQ, srqTooLong},
	{"an SRQ counts once for each EVD", needSRQ, srqRoom},
	{"an SRQ is resized with what is posted", needSRQ, srqResize},
	{"a post to an SRQ is checked by the SRQ's zone and limits", needSRQ, srqBadPost},
	{"an SRQ has attributes within the adapter's", needSRQ, srqBadAttr},
	{"an SRQ and its EPs are of one IA and zone", needSRQ, srqZones},
	{"the end of an adapter leaves nothing of an SRQ outstanding", needSRQ | needRemove, srqRemoved},
	{"many EPs share an SRQ under load", needSRQ, srqLoad},
}

var watermarkRules = []rule{
	{"a low watermark tells once when fewer are available", needSRQ | needWatermark, lowOnce},
	{"a low watermark that is passed already tells at once", needSRQ | needWatermark, lowAtOnce},
	{"a low watermark of 0 is none", needSRQ | needWatermark, lowOff},
	{"a low watermark is within the SRQ's limit", needSRQ | needWatermark, lowRange},
	{"a soft high watermark tells once when an EP holds more", needSRQ | needWatermark, softOnce},
	{"a soft high watermark that is exceeded already tells at once", needSRQ | needWatermark, softAtOnce},
	{"a soft high watermark can be an attribute", needSRQ | needWatermark, softAttr},
	{"a hard high watermark breaks the connection", needSRQ | needWatermark, hardBreaks},
	{"receives whose events were taken are not held", needSRQ | needWatermark, heldNot},
	{"high watermarks are for EPs with an SRQ", needSRQ | needWatermark, highRange},
	{"a receive query counts what is posted", 0, recvQuery},
}

// shared is an SRQ of b whose EPs are connected with EPs of a.
type shared struct {
	*env
	srq      *dat.SRQ
	from, to []*dat.EP
}

func (e *env) shared(eps, depth int, change ...func(*dat.EPConfig, *dat.EPAttr)) *shared {
	e.Helper()
	srq, err := e.b.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: depth, MaxRecvIOV: 1})
	e.must(err, "NewSRQ")
	s := &shared{env: e, srq: srq}
	psp := e.b.listen()
	for range eps {
		from := e.a.ep()
		to := e.b.ep(append(change, func(c *dat.EPConfig, _ *dat.EPAttr) { c.SRQ = srq })...)
		e.call(from, psp.ConnQual())
		e.must(e.b.request1().Accept(to, nil), "Accept")
		e.established()
		s.from, s.to = append(s.from, from), append(s.to, to)
	}
	return s
}

// post posts receives of 64 bytes with the cookies.
func (s *shared) post(cookies ...uint64) {
	s.Helper()
	for _, c := range cookies {
		s.must(s.srq.PostRecv(c, s.b.lmr.Triplet(int(c%128)*64, 64)), "SRQ.PostRecv")
	}
}

// send sends n messages from the i-th EP and awaits that they have arrived: that many more events are queued.
func (s *shared) send(i, n int) {
	s.Helper()
	before, err := s.b.recv.Query()
	s.must(err, "Query")
	for range n {
		s.must(s.from[i].PostSend(9000, 0, s.a.lmr.Triplet(0, 8)), "PostSend")
		s.done(s.a.request, 9000, dat.StatusSuccess)
	}
	s.queued(s.b.recv, before.Queued+n)
}

func (s *shared) query() dat.SRQParam {
	s.Helper()
	q, err := s.srq.Query()
	s.must(err, "SRQ.Query")
	return q
}

func srqOrder(e *env) {
	s := e.shared(3, 8)
	s.post(1, 2, 3, 4)
	for i, ep := range []int{2, 0, 1, 2} {
		s.send(ep, 1)
		if d := e.done(e.b.recv, uint64(i+1), dat.StatusSuccess); d.EP != s.to[ep] || d.Length != 8 || d.Operation != dat.OpReceive {
			e.Errorf("message %d: %+v", i, d)
		}
	}
}

func srqCounts(e *env) {
	s := e.shared(1, 10)
	check := func(when string, available, outstanding int) {
		e.Helper()
		if q := s.query(); q.MaxRecvDTOs != 10 || q.Available != available || q.Outstanding != outstanding || q.State != dat.SRQStateOperational || q.PZ != e.b.pz {
			e.Errorf("%s: %+v, want %d available, %d outstanding", when, q, available, outstanding)
		}
	}
	check("at first", 0, 0)
	s.post(1, 2, 3)
	check("posted", 3, 3)
	s.send(0, 1)
	check("one taken by a message", 2, 3)
	e.done(e.b.recv, 1, dat.StatusSuccess)
	check("its event taken", 2, 2)
}

func srqFull(e *env) {
	s := e.shared(1, 2)
	s.post(1, 2)
	full := func(when string) {
		e.Helper()
		if err := s.srq.PostRecv(3, e.b.lmr.Triplet(0, 8)); err != dat.ErrPostFull {
			e.Errorf("%s: %v, want ErrPostFull", when, err)
		}
	}
	full("two of two are posted")
	s.send(0, 2)
	full("their events are queued")
	e.done(e.b.recv, 1, dat.StatusSuccess)
	s.post(3)
	full("one event was taken, and one receive posted")
}

func srqNoOwn(e *env) {
	s := e.shared(1, 2)
	e.refused(s.to[0].PostRecv(1, 0, e.b.lmr.Triplet(0, 8)), "PostRecv on an EP with an SRQ", dat.InvalidState)
	if q, err := s.to[0].Query(); err != nil || q.SRQ != s.srq {
		e.Errorf("%+v, %v", q, err)
	}
	e.refused(s.to[0].Modify(dat.EPFieldSRQ, dat.EPParam{}), "Modify of the SRQ", dat.InvalidParameter)
}

func srqInUse(e *env) {
	s := e.shared(1, 2)
	e.refused(s.srq.Free(), "Free of an SRQ with an EP", dat.InvalidState, dat.InvalidStateSRQInUse)
	e.must(s.to[0].Free(), "EP.Free")
	e.must(s.srq.Free(), "Free of an SRQ without EPs")
	e.refused(s.srq.PostRecv(1), "a post to a freed SRQ", dat.InvalidHandle, dat.InvalidHandleSRQ)
	_, err := e.b.pz.NewEP(dat.EPConfig{SRQ: s.srq})
	e.refused(err, "NewEP with a freed SRQ", dat.InvalidHandle, dat.InvalidHandleSRQ)
}

func srqFree(e *env) {
	s := e.shared(1, 4)
	lmr := e.b.register(make([]byte, 64), dat.PrivAll)
	e.must(s.srq.PostRecv(1, lmr.Triplet(0, 64)), "SRQ.PostRecv")
	e.must(s.to[0].Free(), "EP.Free")
	e.must(s.srq.Free(), "SRQ.Free")
	e.none(e.b.recv, "after the end of an SRQ")
	e.must(lmr.Free(), "LMR.Free")
}

func srqDisconnect(e *env) {
	s := e.shared(2, 4)
	s.post(1, 2, 3)
	e.must(s.to[0].Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(e.b.connect, dat.ConnectionDisconnected)
	e.event(e.a.connect, dat.ConnectionDisconnected)
	e.none(e.b.recv, "after a disconnect")
	// C programs wait for this to know that the EP takes no more.
	ev := e.event(e.b.ia.AsyncEVD(), dat.AsyncErrorEPBroken)
	if a := ev.Async(); a.Object != dat.Object(s.to[0]) {
		e.Errorf("%+v", a)
	}
	if q := s.query(); q.Available != 3 || q.Outstanding != 3 {
		e.Errorf("%+v", q)
	}
	s.send(1, 3)
	for c := uint64(1); c <= 3; c++ {
		if d := e.done(e.b.recv, c, dat.StatusSuccess); d.EP != s.to[1] {
			e.Errorf("%+v", d)
		}
	}
}

func srqReset(e *env) {
	s := e.shared(1, 4)
	e.must(s.to[0].Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(e.b.connect, dat.ConnectionDisconnected)
	e.event(e.a.connect, dat.ConnectionDisconnected)
	e.must(s.to[0].Reset(), "Reset")
	e.must(s.from[0].Reset(), "Reset")
	e.join(s.from[0], s.to[0])
	s.post(1)
	s.send(0, 1)
	e.done(e.b.recv, 1, dat.StatusSuccess)
}

func srqEmpty(e *env) {
	s := e.shared(2, 4)
	for i := range s.from {
		e.must(s.from[i].PostSend(uint64(i), 0), "PostSend")
	}
	e.none(e.a.request, "without a receive")
	s.post(1, 2)
	for range s.from {
		e.event(e.a.request, dat.DTOCompletion)
		e.event(e.b.recv, dat.DTOCompletion)
	}
}

func srqTooLong(e *env) {
	s := e.shared(2, 4)
	e.must(s.srq.PostRecv(1, e.b.lmr.Triplet(0, 4)), "SRQ.PostRecv")
	e.must(s.from[0].PostSend(2, 0, e.a.lmr.Triplet(0, 8)), "PostSend")
	e.done(e.b.recv, 1, dat.StatusLocalLength)
	if e.a.acked() {
		e.done(e.a.request, 2, dat.StatusRemoteResponder)
	} else {
		e.done(e.a.request, 2, dat.StatusSuccess, dat.StatusFlushed)
	}
	e.broken()
	s.post(3)
	s.send(1, 1)
	e.done(e.b.recv, 3, dat.StatusSuccess)
}

func srqRoom(e *env) {
	const depth = 50
	srq, err := e.b.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: depth, MaxRecvIOV: 1})
	e.must(err, "NewSRQ")
	evd := e.b.evdOf(dat.EVDConfig{Streams: dat.StreamDTO})
	qlen := func() int {
		q, err := evd.Query()
		e.must(err, "Query")
		return q.QLen
	}
	before := qlen()
	with := func(c *dat.EPConfig, _ *dat.EPAttr) { c.SRQ, c.Recv = srq, evd }
	one, two := e.b.ep(with), e.b.ep(with)
	if got := qlen(); got != before+depth {
		e.Errorf("two EPs of one SRQ have room for %d, want %d", got-before, depth)
	}
	e.must(srq.Resize(depth+10), "Resize")
	if got := qlen(); got != before+depth+10 {
		e.Errorf("after the resize there is room for %d", got-before)
	}
	e.must(one.Free(), "Free")
	e.must(two.Free(), "Free")
	if got := qlen(); got != before {
		e.Errorf("without EPs there is room for %d", got-before)
	}
}

func srqResize(e *env) {
	s := e.shared(1, 4)
	s.post(1, 2, 3, 4)
	e.refused(s.srq.Resize(0), "Resize to 0", dat.InvalidParameter, dat.InvalidArg2)
	e.refused(s.srq.Resize(e.b.attr.MaxRecvPerSRQ+1), "Resize past the limit", dat.InvalidParameter, dat.InvalidArg2)
	e.refused(s.srq.Resize(3), "Resize below what is posted", dat.InvalidState)
	e.must(s.srq.Resize(8), "Resize")
	s.post(5, 6, 7, 8)
	s.send(0, 8)
	for c := uint64(1); c <= 8; c++ {
		e.done(e.b.recv, c, dat.StatusSuccess)
	}
}

func srqBadPost(e *env) {
	s := e.shared(1, 4)
	readOnly := e.b.register(make([]byte, 8), dat.PrivLocalRead)
	pz, err := e.b.ia.NewPZ()
	e.must(err, "NewPZ")
	foreign, err := pz.Register(make([]byte, 8), dat.PrivAll)
	e.must(err, "Register")
	tr := e.b.lmr.Triplet(0, 8)
	e.refused(s.srq.PostRecv(1, tr, tr), "two segments for one", dat.InvalidParameter, dat.InvalidArg2)
	e.refused(s.srq.PostRecv(1, readOnly.Triplet(0, 8)), "without local write", dat.PrivilegesViolation)
	e.refused(s.srq.PostRecv(1, foreign.Triplet(0, 8)), "of another zone", dat.ProtectionViolation)
	e.refused(s.srq.PostRecv(1, e.b.lmr.Triplet(memSize-4, 8)), "past the end", dat.ProtectionViolation)
	if q := s.query(); q.Outstanding != 0 {
		e.Errorf("after refusals: %+v", q)
	}
}

func srqBadAttr(e *env) {
	for _, a := range []dat.SRQAttr{
		{MaxRecvDTOs: 0, MaxRecvIOV: 1}, {MaxRecvDTOs: e.b.attr.MaxRecvPerSRQ + 1, MaxRecvIOV: 1},
		{MaxRecvDTOs: 1, MaxRecvIOV: 0}, {MaxRecvDTOs: 1, MaxRecvIOV: e.b.attr.MaxIOVSegmentsPerDTO + 1},
	} {
		_, err := e.b.pz.NewSRQ(a)
		e.refused(err, "NewSRQ", dat.InvalidParameter, dat.InvalidArg3)
	}
}

func srqZones(e *env) {
	attr := dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1}
	elsewhere, err := e.a.pz.NewSRQ(attr)
	e.must(err, "NewSRQ")
	_, err = e.b.pz.NewEP(dat.EPConfig{SRQ: elsewhere})
	e.refused(err, "NewEP with an SRQ of another IA", dat.InvalidHandle, dat.InvalidHandleSRQ)
	pz, err := e.b.ia.NewPZ()
	e.must(err, "NewPZ")
	srq, err := pz.NewSRQ(attr)
	e.must(err, "NewSRQ")
	e.refused(pz.Free(), "Free of a PZ with an SRQ", dat.InvalidState, dat.InvalidStatePZInUse)
	ep, err := e.b.pz.NewEP(dat.EPConfig{SRQ: srq})
	if e.b.prov.SRQEPPZDifferenceSupported {
		e.must(err, "NewEP with an SRQ of another PZ")
		e.must(ep.Free(), "Free")
	} else {
		e.refused(err, "NewEP with an SRQ of another PZ", dat.InvalidParameter)
	}
	e.must(srq.Free(), "SRQ.Free")
	e.must(pz.Free(), "PZ.Free")
}

func srqRemoved(e *env) {
	s := e.shared(2, 4)
	s.post(1, 2)
	s.send(0, 1)
	e.ad.Remove()
	for range s.to {
		e.event(e.b.connect, dat.ConnectionBroken)
		e.event(e.a.connect, dat.ConnectionBroken, dat.ConnectionDisconnected)
	}
	e.done(e.b.recv, 1, dat.StatusSuccess)
	for {
		ev := e.event(e.b.ia.AsyncEVD(), dat.AsyncErrorIACatastrophic, dat.AsyncErrorEPBroken)
		if ev.Number == dat.AsyncErrorIACatastrophic {
			break
		}
	}
	for _, ep := range s.to {
		e.must(ep.Free(), "EP.Free")
	}
	e.must(s.srq.Free(), "SRQ.Free")
}

// srqLoad has the messages of many EPs arrive once, in their order.
func srqLoad(e *env) {
	const eps, depth = 8, 64
	messages := e.rounds(200)
	s := e.shared(eps, depth)
	for c := range uint64(depth) {
		s.post(c)
	}
	credits := make(chan bool, depth) // not every adapter waits for a receive
	for range depth {
		credits <- true
	}
	failed := make(chan error, 1)
	go func() {
		failed <- func() error {
			for m := range messages {
				for i, ep := range s.from {
					<-credits
					word := e.a.mem[8*i : 8*i+8]
					binary.NativeEndian.PutUint32(word, uint32(i))
					binary.NativeEndian.PutUint32(word[4:], uint32(m))
					if err := ep.PostSend(uint64(i), 0, e.a.lmr.Triplet(8*i, 8)); err != nil {
						return err
					}
				}
				for range s.from {
					if _, _, err := e.a.request.Wait(e.Context(), 1, e.deadline); err != nil {
						return err
					}
				}
			}
			return nil
		}()
	}()
	next := make([]uint32, eps)
	for range eps * messages {
		ev := e.event(e.b.recv, dat.DTOCompletion)
		d := ev.DTO()
		word := e.b.mem[(d.Cookie%128)*64:]
		i, m := binary.NativeEndian.Uint32(word), binary.NativeEndian.Uint32(word[4:])
		if d.Status != dat.StatusSuccess || int(i) >= eps || d.EP != s.to[i] || m != next[i] {
			e.Fatalf("%v: message %d of EP %d, want %d", ev, m, i, next[i])
		}
		next[i]++
		s.post(d.Cookie)
		credits <- true
	}
	e.must(<-failed, "the senders")
	if q := s.query(); q.Available != depth || q.Outstanding != depth {
		e.Errorf("%+v", q)
	}
}

// watermark takes an asynchronous event, which must be the watermark of an object.
func (e *env) watermark(about dat.Object, reason dat.AsyncReason) {
	e.Helper()
	ev := e.event(e.b.ia.AsyncEVD(), dat.AsyncWatermark)
	if a := ev.Async(); a.Object != about || a.Reason != reason {
		e.Fatalf("%+v, want %v of %v", a, reason, about)
	}
}

// quiet checks that there is no asynchronous event.
func (e *env) quiet(when string) {
	e.Helper()
	e.none(e.b.ia.AsyncEVD(), when)
}

func lowOnce(e *env) {
	s := e.shared(1, 8)
	s.post(1, 2, 3, 4)
	e.must(s.srq.SetLowWatermark(3), "SetLowWatermark")
	s.send(0, 1)
	e.quiet("as many are available as the watermark")
	s.send(0, 1)
	e.watermark(s.srq, dat.ReasonSRQLowWatermark)
	s.send(0, 2)
	e.quiet("not armed again")
	if q := s.query(); q.LowWatermark != 3 {
		e.Errorf("%+v", q)
	}
}

func lowAtOnce(e *env) {
	s := e.shared(1, 8)
	s.post(1)
	for range 2 {
		e.must(s.srq.SetLowWatermark(2), "SetLowWatermark")
		e.watermark(s.srq, dat.ReasonSRQLowWatermark)
	}
}

func lowOff(e *env) {
	s := e.shared(1, 8)
	s.post(1, 2)
	e.must(s.srq.SetLowWatermark(2), "SetLowWatermark")
	e.must(s.srq.SetLowWatermark(0), "SetLowWatermark(0)")
	s.send(0, 2)
	e.quiet("disarmed")
}

func lowRange(e *env) {
	s := e.shared(1, 8)
	for _, low := range []int{-1, 9} {
		e.refused(s.srq.SetLowWatermark(low), "SetLowWatermark", dat.InvalidParameter, dat.InvalidArg2)
	}
	s.post(1)
	e.must(s.srq.SetLowWatermark(8), "SetLowWatermark")
	e.watermark(s.srq, dat.ReasonSRQLowWatermark)
	e.refused(s.srq.Resize(7), "Resize below the low watermark", dat.InvalidState)
}

func softOnce(e *env) {
	s := e.shared(2, 16)
	s.post(1, 2, 3, 4, 5, 6, 7, 8)
	e.must(s.to[0].SetWatermark(2, dat.WatermarkInfinite), "SetWatermark")
	s.send(1, 3)
	s.send(0, 2)
	e.quiet("the EP holds as many as its watermark")
	s.send(0, 1)
	e.watermark(s.to[0], dat.ReasonEPSoftHighWatermark)
	s.send(0, 1)
	e.quiet("not armed again")
	e.state(s.to[0], dat.StateConnected)
}

func softAtOnce(e *env) {
	s := e.shared(1, 8)
	s.post(1, 2, 3)
	s.send(0, 3)
	for range 2 {
		e.must(s.to[0].SetWatermark(2, dat.WatermarkInfinite), "SetWatermark")
		e.watermark(s.to[0], dat.ReasonEPSoftHighWatermark)
	}
	e.must(s.to[0].SetWatermark(3, dat.WatermarkInfinite), "SetWatermark")
	e.quiet("the EP holds as many as its watermark")
}

func softAttr(e *env) {
	s := e.shared(1, 8, func(_ *dat.EPConfig, a *dat.EPAttr) { a.SRQSoftHW = 1 })
	s.post(1, 2)
	s.send(0, 2)
	e.watermark(s.to[0], dat.ReasonEPSoftHighWatermark)
}

func hardBreaks(e *env) {
	s := e.shared(2, 8)
	s.post(1, 2, 3, 4)
	e.must(s.to[0].SetWatermark(dat.WatermarkInfinite, 2), "SetWatermark")
	s.send(0, 2)
	e.none(e.b.connect, "the EP holds as many as its watermark")
	s.send(0, 1)
	ev := e.event(e.b.connect, dat.ConnectionBroken)
	if c := ev.Connection(); c.EP != s.to[0] || c.Cause == nil {
		e.Errorf("%+v", c)
	}
	e.event(e.a.connect, dat.ConnectionDisconnected, dat.ConnectionBroken)
	for c := uint64(1); c <= 3; c++ {
		e.done(e.b.recv, c, dat.StatusSuccess)
	}
	s.send(1, 1)
	e.state(s.to[1], dat.StateConnected)
}

func heldNot(e *env) {
	s := e.shared(1, 8)
	e.must(s.to[0].SetWatermark(2, 2), "SetWatermark")
	for c := range uint64(10) {
		s.post(c)
		s.send(0, 1)
		e.done(e.b.recv, c, dat.StatusSuccess)
	}
	e.quiet("no more than one was held at a time")
	e.state(s.to[0], dat.StateConnected)
}

func highRange(e *env) {
	s := e.shared(1, 8)
	e.refused(e.b.ep().SetWatermark(1, 1), "SetWatermark without SRQ", dat.InvalidState)
	for _, bad := range []int{0, -2} {
		e.refused(s.to[0].SetWatermark(bad, 1), "SetWatermark", dat.InvalidParameter, dat.InvalidArg2)
		e.refused(s.to[0].SetWatermark(1, bad), "SetWatermark", dat.InvalidParameter, dat.InvalidArg3)
	}
}

func recvQuery(e *env) {
	a, b := e.link()
	check := func(want int) {
		e.Helper()
		e.eventually("RecvQuery", func() bool {
			q, err := b.RecvQuery()
			return err == nil && (q.Allocated == want || q.Allocated == dat.ValueUnknown)
		})
	}
	check(0)
	for i := range uint64(3) {
		e.must(b.PostRecv(i, 0), "PostRecv")
	}
	check(3)
	e.must(a.PostSend(1, 0), "PostSend")
	e.done(e.a.request, 1, dat.StatusSuccess)
	e.queued(e.b.recv, 1)
	check(2)
}
