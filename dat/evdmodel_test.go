package dat_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"kdapl/dat"
)

// Random sequences of legal and illegal calls on an EVD, against a small reference model. Everything runs in one
// bubble, so that after each call it is known what has come of it.

// modelEvent is an event of the model.
type modelEvent struct {
	name   string
	quiet  bool // does not notify
	record *modelRecord
}

// modelRecord is an operation of the EP; its place is free when it and all before it are done with.
type modelRecord struct{ free bool }

// evdModel is what an EVD is, by its rules.
type evdModel struct {
	queue   []modelEvent
	qlen    int // room for software events
	records []*modelRecord
	policy  dat.UpcallPolicy
	fn      bool
	pending bool
	armed   bool
	block   bool // upcalls stay inside until they are let go
	calls   int  // upcalls inside
	many    int
	log     []string // what upcalls were called with, in order of the model
}

const modelDepth = 6 // of the EP's requests

func (m *evdModel) limit() int {
	switch m.policy {
	case dat.UpcallSingleInstance, dat.UpcallNotify:
		return 1
	case dat.UpcallMany:
		return m.many
	}
	return 0
}

func (m *evdModel) take() modelEvent {
	ev := m.queue[0]
	if m.queue = m.queue[1:]; len(m.queue) == 0 {
		m.pending = false
	}
	if ev.record != nil {
		ev.record.free = true
	}
	return ev
}

// settle makes every upcall that is pending and entitled.
func (m *evdModel) settle() {
	for m.pending && m.calls < m.limit() && (m.policy != dat.UpcallNotify || m.armed) {
		if m.policy == dat.UpcallNotify {
			m.armed = false
			m.log = append(m.log, "notified")
		} else {
			m.log = append(m.log, m.take().name)
		}
		if m.block {
			m.calls++
		}
	}
}

func (m *evdModel) arrive(ev modelEvent) {
	m.queue = append(m.queue, ev)
	m.pending = m.pending || !ev.quiet
	m.settle()
}

func (m *evdModel) software() (n int) {
	for _, ev := range m.queue {
		if strings.HasPrefix(ev.name, "SE") {
			n++
		}
	}
	return n
}

// room is the number of requests that can still be posted.
func (m *evdModel) room() int {
	for len(m.records) > 0 && m.records[0].free {
		m.records = m.records[1:]
	}
	return modelDepth - len(m.records)
}

// evdUnderTest is an EVD beside its model.
type evdUnderTest struct {
	evdModel
	t    *rapid.T
	p    *pair
	evd  *dat.EVD
	next uint64
	l    *upcallLog
	gate chan struct{}
	seen int // entries of the logs that were compared
}

// noDeadline hides the deadline of the test from rapid: it cannot be asked for in a bubble.
type noDeadline struct{ testing.TB }

func TestEVDIsItsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(noDeadline{t}, func(rt *rapid.T) {
			u := &evdUnderTest{t: rt, l: &upcallLog{}}
			u.many = rapid.IntRange(1, 3).Draw(rt, "most upcalls")
			u.qlen = rapid.IntRange(1, 5).Draw(rt, "length")
			u.fn = true
			u.p = newPair(t, pairConfig{
				dat: dat.Config{MaxUpcalls: u.many, Spin: -1},
				evd: dat.EVDConfig{MinLen: u.qlen, Streams: allStreams &^ dat.StreamAsync, Upcall: u.l.upcall},
				attr: func(a *dat.EPAttr) {
					a.MaxRequestDTOs, a.MaxRecvDTOs, a.RequestCompletionFlags = modelDepth, 2, dat.CompletionUnsignalled
				},
			}).connect(t)
			u.evd = u.p.a.evd
			defer func() {
				u.release()
				u.p.a.ia.Close(background, dat.CloseAbrupt)
				u.p.b.ia.Close(background, dat.CloseAbrupt)
			}()
			rt.Repeat(map[string]func(*rapid.T){
				"PostSE":       func(*rapid.T) { u.postSE() },
				"PostSE again": func(*rapid.T) { u.postSE() },
				"write":        func(*rapid.T) { u.write() },
				"write again":  func(*rapid.T) { u.write() },
				"Dequeue":      func(*rapid.T) { u.dequeue() },
				"DequeueInto":  func(*rapid.T) { u.dequeueInto() },
				"ModifyUpcall": func(*rapid.T) { u.modify() },
				"modify again": func(*rapid.T) { u.modify() },
				"Teardown":     func(*rapid.T) { u.teardown() },
				"Resize":       func(*rapid.T) { u.resize() },
				"Wait":         func(*rapid.T) { u.wait() },
				"Free":         func(*rapid.T) { u.want(u.evd.Free(), dat.InvalidState, dat.InvalidStateEVDInUse) },
				"block":        func(*rapid.T) { u.blockUpcalls() },
				"release":      func(*rapid.T) { u.release() },
				"":             func(*rapid.T) { u.check() },
			})
		})
	})
}

func (u *evdUnderTest) fatalf(format string, args ...any) {
	u.t.Helper()
	u.t.Fatalf(format, args...)
}

func (u *evdUnderTest) ok(err error) {
	u.t.Helper()
	if err != nil {
		u.fatalf("%v", err)
	}
}

func (u *evdUnderTest) want(err error, typ dat.Type, sub dat.Subtype) {
	u.t.Helper()
	var e *dat.Error
	if !errors.As(err, &e) || e.Type != typ || e.Sub != sub {
		u.fatalf("got %v, want %v (%v)", err, typ, sub)
	}
}

// check compares what can be seen: the queue's length, the policy and the upcalls.
func (u *evdUnderTest) check() {
	synctest.Wait()
	q, err := u.evd.Query()
	u.ok(err)
	if q.Queued != len(u.queue) || q.Policy != u.policy || q.QLen != u.qlen+modelDepth+2 {
		u.fatalf("%d events of %d, policy %v; want %d of %d, %v", q.Queued, q.QLen, q.Policy, len(u.queue), u.qlen+modelDepth+2, u.policy)
	}
	u.l.mu.Lock()
	got := slices.Clone(u.l.calls)
	u.l.mu.Unlock()
	for i := range got {
		got[i] = strings.TrimSuffix(got[i], "+")
	}
	want := slices.Clone(u.log)
	if u.policy == dat.UpcallMany || u.many > 1 {
		// The order in which concurrent upcalls come to note their events is nobody's.
		slices.Sort(got[min(u.seen, len(got)):])
		slices.Sort(want[min(u.seen, len(want)):])
	}
	if !slices.Equal(got, want) || int(u.l.in.Load()) != u.calls {
		u.fatalf("upcalls %q, %d inside; want %q, %d", got, u.l.in.Load(), want, u.calls)
	}
	u.seen = 0
}

func (u *evdUnderTest) postSE() {
	u.next++
	err := u.evd.PostSE(u.next)
	if u.software() >= u.qlen {
		if err != dat.ErrQueueFull {
			u.fatalf("got %v with %d of %d software events", err, u.software(), u.qlen)
		}
		return
	}
	u.ok(err)
	u.arrive(modelEvent{name: fmt.Sprintf("SE %d", u.next)})
}

func (u *evdUnderTest) write() {
	u.next++
	flags := rapid.SampledFrom([]dat.CompletionFlags{0, dat.CompletionUnsignalled, dat.CompletionSuppress, dat.CompletionEVDThreshold}).Draw(u.t, "flags")
	err := u.p.a.ep.PostRDMAWrite(u.next, flags, u.p.b.lmr.RMRTriplet(0, 8), u.p.a.lmr.Triplet(0, 8))
	switch {
	case u.room() == 0:
		if err != dat.ErrPostFull {
			u.fatalf("got %v with no room", err)
		}
		return
	case flags == dat.CompletionEVDThreshold:
		u.want(err, dat.InvalidParameter, dat.InvalidArg5)
		return
	}
	u.ok(err)
	r := &modelRecord{free: flags == dat.CompletionSuppress}
	u.records = append(u.records, r)
	if !r.free {
		u.arrive(modelEvent{fmt.Sprintf("RDMA_WRITE %d SUCCESS", u.next), flags == dat.CompletionUnsignalled, r})
	}
}

func (u *evdUnderTest) dequeue() {
	ev, err := u.evd.Dequeue()
	if len(u.queue) == 0 {
		if err != dat.ErrQueueEmpty {
			u.fatalf("got %v, %v from an empty queue", ev, err)
		}
		return
	}
	u.ok(err)
	if want := u.take(); short(ev) != want.name {
		u.fatalf("got %v, want %s", ev, want.name)
	}
}

func (u *evdUnderTest) dequeueInto() {
	buf := make([]dat.Event, rapid.IntRange(0, 4).Draw(u.t, "many"))
	n := u.evd.DequeueInto(buf)
	// All that are queued, unless some of them are still in the adapter: then those that are not.
	if most := min(len(buf), len(u.queue)); n > most || n == 0 && most > 0 {
		u.fatalf("got %d of %d events", n, len(u.queue))
	}
	for i := range n {
		if want := u.take(); short(buf[i]) != want.name {
			u.fatalf("got %v, want %s", buf[i], want.name)
		}
	}
}

func (u *evdUnderTest) modify() {
	p := rapid.SampledFrom([]dat.UpcallPolicy{dat.UpcallDisable, dat.UpcallSingleInstance, dat.UpcallMany, dat.UpcallNotify, 55}).Draw(u.t, "policy")
	f := rapid.SampledFrom([]dat.UpcallFlag{dat.InvocNew, dat.InvocAny, dat.InvocEmpty, 9}).Draw(u.t, "flag")
	err := u.evd.ModifyUpcall(p, nil, f)
	switch {
	case p == 55:
		u.want(err, dat.InvalidParameter, dat.InvalidArg2)
		return
	case f == 9:
		u.want(err, dat.InvalidParameter, dat.InvalidArg4)
		return
	case f == dat.InvocEmpty && len(u.queue) > 0:
		u.want(err, dat.InvalidState, dat.NoSubtype)
		return
	}
	u.ok(err)
	switch {
	case f == dat.InvocAny && len(u.queue) > 0:
		u.pending = true
	case f == dat.InvocNew && p.Live() && !u.policy.Live():
		u.pending = false
	}
	u.policy, u.armed = p, p == dat.UpcallNotify
	u.settle()
}

func (u *evdUnderTest) teardown() {
	ctx, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	err := u.evd.Teardown(ctx)
	if u.calls > 0 {
		u.want(err, dat.InterruptedCall, dat.NoSubtype)
	} else {
		u.ok(err)
	}
	u.policy, u.armed = dat.UpcallTeardown, false
}

func (u *evdUnderTest) resize() {
	n := rapid.IntRange(-1, 6).Draw(u.t, "length")
	err := u.evd.Resize(n)
	switch {
	case n < 1:
		u.want(err, dat.InvalidParameter, dat.InvalidArg2)
	case u.software() > n:
		u.want(err, dat.InvalidState, dat.NoSubtype)
	default:
		u.ok(err)
		u.qlen = n
	}
}

func (u *evdUnderTest) wait() {
	threshold := rapid.IntRange(0, 2).Draw(u.t, "threshold")
	ev, more, err := u.evd.Wait(background, threshold, 0)
	switch {
	case threshold == 0:
		u.want(err, dat.InvalidParameter, dat.InvalidArg3)
	case u.policy.Live():
		u.want(err, dat.InvalidState, dat.NoSubtype)
	case threshold > 1: // the EP's requests are UNSIGNALLED
		u.want(err, dat.InvalidState, dat.InvalidStateEVDConfigNotify)
	case len(u.queue) == 0:
		if err != dat.ErrTimeout || more != 0 {
			u.fatalf("got %v, %v, %d more", ev, err, more)
		}
	default:
		u.ok(err)
		if want := u.take(); short(ev) != want.name || more != len(u.queue) {
			u.fatalf("got %v, %d more; want %s, %d", ev, more, want.name, len(u.queue))
		}
	}
}

// blockUpcalls makes those that start from now on stay inside.
func (u *evdUnderTest) blockUpcalls() {
	if !u.block {
		u.gate = u.l.block()
		u.block = true
	}
}

// release lets those inside go.
func (u *evdUnderTest) release() {
	if !u.block {
		return
	}
	u.l.mu.Lock()
	u.l.gate = nil
	u.l.mu.Unlock()
	close(u.gate)
	u.block, u.calls = false, 0
	u.settle()
}
