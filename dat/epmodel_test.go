package dat_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Random sequences of legal and illegal calls on the two ends of a connection, against a small reference model of an
// EP. Everything runs in one bubble, so that after each call it is known what has come of it on both sides.

const modelDTOs = 4 // depth of each queue

// modelOp is a posted request that has not run.
type modelOp struct {
	cookie   uint64
	send     bool
	suppress bool
	record   *modelRecord
}

// modelSide is an EP, by the rules.
type modelSide struct {
	name     string
	s        *side
	state    dat.EPState
	pending  []modelOp // requests that wait for the peer
	recvs    []modelOp
	requests []*modelRecord // in order of posting, for the room
	receives []*modelRecord
	call     *modelCall // the set-up or connection
	events   map[*dat.EVD][]modelEvent
}

// modelCall is a connection, from its request on.
type modelCall struct {
	active, passive *modelSide
	gone            bool // the active side has given up
}

type epModel struct {
	t     *rapid.T
	sides [2]*modelSide
	psps  [2]*dat.PSP
	crs   map[*dat.CR]*modelCall
	asked [2][]*modelCall // requests whose event was not taken, at a side
	next  uint64
}

func (m *epModel) other(s *modelSide) *modelSide {
	if s == m.sides[0] {
		return m.sides[1]
	}
	return m.sides[0]
}

func (s *modelSide) tell(e *dat.EVD, name string, r *modelRecord) {
	s.events[e] = append(s.events[e], modelEvent{name: name, record: r})
}

// complete is the end of a request.
func (s *modelSide) complete(o modelOp, status dat.Status) {
	if o.suppress && status == dat.StatusSuccess {
		o.record.free = true
		return
	}
	op := dat.OpRDMAWrite
	if o.send {
		op = dat.OpSend
	}
	s.tell(s.s.request, fmt.Sprintf("%v %d %v", op, o.cookie, status), o.record)
}

func (s *modelSide) received(o modelOp, status dat.Status) {
	s.tell(s.s.recv, fmt.Sprintf("%v %d %v", dat.OpReceive, o.cookie, status), o.record)
}

// end flushes everything and ends the set-up or connection of a side.
func (s *modelSide) end(n dat.EventNumber) {
	for _, o := range s.pending {
		s.complete(o, dat.StatusFlushed)
	}
	for _, o := range s.recvs {
		s.received(o, dat.StatusFlushed)
	}
	s.pending, s.recvs, s.call = nil, nil, nil
	s.state = dat.StateDisconnected
	s.tell(s.s.connect, n.String(), nil)
}

// pump runs what can run.
func (m *epModel) pump(s *modelSide) {
	peer := m.other(s)
	for len(s.pending) > 0 && s.call != nil {
		o := s.pending[0]
		if o.send {
			if len(peer.recvs) == 0 {
				return
			}
			peer.received(peer.recvs[0], dat.StatusSuccess)
			peer.recvs = peer.recvs[1:]
		}
		s.pending = s.pending[1:]
		s.complete(o, dat.StatusSuccess)
	}
	if s.state == dat.StateDisconnectPending {
		s.end(dat.ConnectionDisconnected)
		peer.end(dat.ConnectionDisconnected)
	}
}

func room(records *[]*modelRecord) int {
	for len(*records) > 0 && (*records)[0].free {
		*records = (*records)[1:]
	}
	return modelDTOs - len(*records)
}

func TestEPIsItsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(noDeadline{t}, func(rt *rapid.T) {
			p := newPair(t, pairConfig{loop: loop.Config{Completion: verbs.RemoteAcked}, dat: dat.Config{Spin: -1}, split: true,
				attr: func(a *dat.EPAttr) { a.MaxRequestDTOs, a.MaxRecvDTOs = modelDTOs, modelDTOs }})
			m := &epModel{t: rt, crs: map[*dat.CR]*modelCall{}}
			for i, s := range []*side{&p.a, &p.b} {
				m.sides[i] = &modelSide{name: string(rune('a' + i)), s: s, events: map[*dat.EVD][]modelEvent{}}
			}
			m.psps = [2]*dat.PSP{must[*dat.PSP](t)(p.a.ia.NewPSP(dat.PSPConfig{EVD: p.a.cr})), p.psp}
			defer func() {
				p.a.ia.Close(background, dat.CloseAbrupt)
				p.b.ia.Close(background, dat.CloseAbrupt)
			}()
			either := func(f func(*modelSide)) func(*rapid.T) {
				return func(*rapid.T) {
					s := rapid.SampledFrom(m.sides[:]).Draw(rt, "side")
					rt.Logf("%s is %v", s.name, s.state)
					f(s)
				}
			}
			rt.Repeat(map[string]func(*rapid.T){
				"Connect":       either(m.connect),
				"Accept":        either(m.accept),
				"Accept again":  either(m.accept),
				"Reject":        either(m.reject),
				"Disconnect":    either(m.disconnect),
				"Reset":         either(m.reset),
				"Reset again":   either(m.reset),
				"send":          either(func(s *modelSide) { m.post(s, true) }),
				"send again":    either(func(s *modelSide) { m.post(s, true) }),
				"write":         either(func(s *modelSide) { m.post(s, false) }),
				"receive":       either(m.receive),
				"receive again": either(m.receive),
				"take events":   either(m.takeEvents),
				"Free":          either(m.free),
				"":              func(*rapid.T) { m.check() },
			})
		})
	})
}

func (m *epModel) ok(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *epModel) want(err error, typ dat.Type, sub dat.Subtype) {
	m.t.Helper()
	var e *dat.Error
	if !errors.As(err, &e) || e.Type != typ || e.Sub != sub {
		m.t.Fatalf("got %v, want %v (%v)", err, typ, sub)
	}
}

// check compares states and what is queued.
func (m *epModel) check() {
	synctest.Wait()
	for _, s := range m.sides {
		st, err := s.s.ep.Status()
		m.ok(err)
		if st.State != s.state || st.RecvIdle != (len(s.recvs) == 0) || st.RequestIdle != (len(s.pending) == 0) {
			m.t.Fatalf("%s is %+v, want %v with %d receives and %d requests", s.name, st, s.state, len(s.recvs), len(s.pending))
		}
		for _, e := range []*dat.EVD{s.s.recv, s.s.request, s.s.connect} {
			q, err := e.Query()
			m.ok(err)
			if q.Queued != len(s.events[e]) {
				m.t.Fatalf("%s has %d events, want %v", s.name, q.Queued, s.events[e])
			}
		}
	}
	for i := range m.sides {
		q, err := m.sides[i].s.cr.Query()
		m.ok(err)
		if q.Queued != len(m.asked[i]) {
			m.t.Fatalf("%s has %d requests, want %d", m.sides[i].name, q.Queued, len(m.asked[i]))
		}
	}
}

// takeEvents takes some events and compares them.
func (m *epModel) takeEvents(s *modelSide) {
	for _, e := range []*dat.EVD{s.s.recv, s.s.request, s.s.connect} {
		for n := rapid.IntRange(0, 8).Draw(m.t, "events"); n > 0; n-- {
			ev, err := e.Dequeue()
			if len(s.events[e]) == 0 {
				if err != dat.ErrQueueEmpty {
					m.t.Fatalf("got %v, %v of nothing", ev, err)
				}
				break
			}
			m.ok(err)
			want := s.events[e][0]
			s.events[e] = s.events[e][1:]
			if short(ev) != want.name {
				m.t.Fatalf("%s got %v, want %s", s.name, ev, want.name)
			}
			if want.record != nil {
				want.record.free = true
			}
		}
	}
	i := slices.Index(m.sides[:], s)
	for len(m.asked[i]) > 0 {
		ev, err := s.s.cr.Dequeue()
		m.ok(err)
		m.crs[ev.Request().CR] = m.asked[i][0]
		m.asked[i] = m.asked[i][1:]
	}
}

func (m *epModel) connect(s *modelSide) {
	to := slices.Index(m.sides[:], m.other(s))
	err := s.s.ep.Connect(m.sides[to].s.ia.Address(), m.psps[to].ConnQual(), dat.ConnectConfig{Timeout: dat.Infinite})
	if s.state != dat.StateUnconnected {
		m.want(err, dat.InvalidState, s.state.Subtype())
		return
	}
	m.ok(err)
	s.state = dat.StateActiveConnectionPending
	s.call = &modelCall{active: s, passive: m.sides[to]}
	synctest.Wait()
	m.asked[to] = append(m.asked[to], s.call)
}

// draw picks a request of a side that was taken; nil if there is none.
func (m *epModel) draw(s *modelSide) (*dat.CR, *modelCall) {
	var all []*dat.CR
	for cr, c := range m.crs {
		if c.passive == s {
			all = append(all, cr)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	slices.SortFunc(all, func(a, b *dat.CR) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	cr := rapid.SampledFrom(all).Draw(m.t, "request")
	return cr, m.crs[cr]
}

func (m *epModel) accept(s *modelSide) {
	cr, c := m.draw(s)
	if cr == nil {
		return
	}
	err := cr.Accept(s.s.ep, nil)
	if s.state != dat.StateUnconnected {
		m.want(err, dat.InvalidState, s.state.Subtype())
		return
	}
	m.ok(err)
	delete(m.crs, cr)
	if c.gone {
		s.end(dat.ConnectionAcceptCompletionError)
		return
	}
	s.call = c
	for _, side := range []*modelSide{s, c.active} {
		side.state = dat.StateConnected
		side.tell(side.s.connect, dat.ConnectionEstablished.String(), nil)
	}
}

func (m *epModel) reject(s *modelSide) {
	cr, c := m.draw(s)
	if cr == nil {
		return
	}
	m.ok(cr.Reject(nil))
	delete(m.crs, cr)
	if !c.gone {
		c.gone = true
		c.active.end(dat.ConnectionPeerRejected)
	}
	m.want(cr.Reject(nil), dat.InvalidHandle, dat.InvalidHandleCR)
}

func (m *epModel) disconnect(s *modelSide) {
	how := rapid.SampledFrom([]dat.CloseFlags{dat.CloseAbrupt, dat.CloseGraceful, 5}).Draw(m.t, "how")
	err := s.s.ep.Disconnect(how)
	if how == 5 {
		m.want(err, dat.InvalidParameter, dat.InvalidArg2)
		return
	}
	switch s.state {
	case dat.StateUnconnected:
		m.want(err, dat.InvalidState, s.state.Subtype())
	case dat.StateDisconnected:
		m.ok(err)
	case dat.StateActiveConnectionPending:
		m.ok(err)
		s.call.gone = true
		s.end(dat.ConnectionDisconnected)
	default:
		m.ok(err)
		if how == dat.CloseGraceful {
			s.state = dat.StateDisconnectPending
			m.pump(s)
			return
		}
		s.end(dat.ConnectionDisconnected)
		m.other(s).end(dat.ConnectionDisconnected)
	}
}

func (m *epModel) reset(s *modelSide) {
	err := s.s.ep.Reset()
	if s.state != dat.StateUnconnected && s.state != dat.StateDisconnected {
		m.want(err, dat.InvalidState, s.state.Subtype())
		return
	}
	m.ok(err)
	s.state = dat.StateUnconnected
}

// free frees the EP and makes another; what had been posted is flushed.
func (m *epModel) free(s *modelSide) {
	if rapid.IntRange(0, 3).Draw(m.t, "really") > 0 {
		return // not too often
	}
	call := s.call
	m.ok(s.s.ep.Free())
	for _, o := range s.pending {
		s.complete(o, dat.StatusFlushed)
	}
	for _, o := range s.recvs {
		s.received(o, dat.StatusFlushed)
	}
	s.pending, s.recvs, s.call, s.requests, s.receives = nil, nil, nil, nil, nil
	if call != nil {
		call.gone = true
		if peer := m.other(s); peer.call == call {
			peer.end(dat.ConnectionDisconnected)
		}
	}
	attr := dat.DefaultEPAttr(func() dat.IAAttr { q, err := s.s.ia.Query(); m.ok(err); return q.Attr }())
	attr.MaxRequestDTOs, attr.MaxRecvDTOs = modelDTOs, modelDTOs
	ep, err := s.s.pz.NewEP(dat.EPConfig{Recv: s.s.recv, Request: s.s.request, Connect: s.s.connect, Attr: &attr})
	m.ok(err)
	s.s.ep, s.state = ep, dat.StateUnconnected
}

func (m *epModel) post(s *modelSide, send bool) {
	m.next++
	suppress := rapid.Bool().Draw(m.t, "suppress")
	var f dat.CompletionFlags
	if suppress {
		f = dat.CompletionSuppress
	}
	var err error
	if peer := m.other(s); send {
		err = s.s.ep.PostSend(m.next, f, s.s.lmr.Triplet(0, 8))
	} else {
		err = s.s.ep.PostRDMAWrite(m.next, f, peer.s.lmr.RMRTriplet(8, 8), s.s.lmr.Triplet(0, 8))
	}
	switch {
	case s.state != dat.StateConnected && s.state != dat.StateDisconnected:
		m.want(err, dat.InvalidState, s.state.Subtype())
		return
	case room(&s.requests) == 0:
		if err != dat.ErrPostFull {
			m.t.Fatalf("got %v with no room", err)
		}
		return
	}
	m.ok(err)
	o := modelOp{m.next, send, suppress, &modelRecord{}}
	s.requests = append(s.requests, o.record)
	if s.state == dat.StateDisconnected {
		s.complete(o, dat.StatusFlushed)
		return
	}
	s.pending = append(s.pending, o)
	m.pump(s)
}

func (m *epModel) receive(s *modelSide) {
	m.next++
	err := s.s.ep.PostRecv(m.next, 0, s.s.lmr.Triplet(16, 8))
	if room(&s.receives) == 0 {
		if err != dat.ErrPostFull {
			m.t.Fatalf("got %v with no room", err)
		}
		return
	}
	m.ok(err)
	o := modelOp{cookie: m.next, record: &modelRecord{}}
	s.receives = append(s.receives, o.record)
	if s.state == dat.StateDisconnected {
		s.received(o, dat.StatusFlushed)
		return
	}
	s.recvs = append(s.recvs, o)
	if peer := m.other(s); s.call != nil && peer.call == s.call {
		m.pump(peer)
	}
}
