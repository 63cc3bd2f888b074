package dattest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kdapl/dat"
)

// Upcalls (dat_evd_modify_upcall, DAT_UPCALL_POLICY, DAT_UPCALL_FLAG).
var upcallRules = []rule{
	{"SINGLE_INSTANCE calls up with each event, in order, one at a time", 0, upcallSingle},
	{"MANY calls up with several events at once, up to the limit", 0, upcallMany},
	{"NOTIFY calls up once for each arming, and takes nothing", 0, upcallNotify},
	{"DISABLE starts no upcall, and a running one ends", 0, upcallDisable},
	{"INVOC_NEW leaves the backlog until an event comes, and begins with the oldest", 0, upcallNew},
	{"INVOC_ANY starts an upcall for what is queued", 0, upcallAny},
	{"INVOC_EMPTY refuses to change anything while events are queued", 0, upcallEmpty},
	{"the flags see completions that nobody has dequeued", 0, upcallFlagsSeeCQ},
	{"TEARDOWN returns when no upcall runs", 0, upcallTeardown},
	{"TEARDOWN gives up with its context, and upcalls stay off", 0, upcallTeardownContext},
	{"TEARDOWN, close and the free of the own EVD are refused in an upcall", 0, upcallInside},
	{"Goexit in an upcall counts as a return", 0, upcallGoexit},
	{"the function is kept unless another is given", 0, upcallSame},
	{"completions that do not notify start no upcall, and come in order with the next", 0, upcallQuiet},
	{"unsolicited receives start no upcall under SOLICITED_WAIT", 0, upcallSolicited},
	{"failures notify in any case", 0, upcallFailures},
	{"an upcall holds no lock: everything can be called in it", 0, upcallEverything},
	{"a consumer that drains from a goroutine misses nothing", 0, upcallDrainer},
	{"a consumer that enables and polls a last time misses nothing", 0, upcallPoller},
}

// calls logs upcalls; those that start while a gate is set stay inside until it is closed.
type calls struct {
	mu       sync.Mutex
	names    []string
	gate     chan struct{}
	in, most int
}

func (c *calls) upcall(ev dat.Event, _ bool) {
	c.mu.Lock()
	c.names = append(c.names, short(ev))
	c.in++
	c.most = max(c.most, c.in)
	gate := c.gate
	c.mu.Unlock()
	if gate != nil {
		<-gate
	}
	c.mu.Lock()
	c.in--
	c.mu.Unlock()
}

// hold makes upcalls stay inside until the function that it returns is called.
func (c *calls) hold(e *env) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gate := make(chan struct{})
	c.gate = gate
	release = sync.OnceFunc(func() {
		c.mu.Lock()
		c.gate = nil
		c.mu.Unlock()
		close(gate)
	})
	e.Cleanup(release)
	return release
}

func (c *calls) now() (names []string, in, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.names), c.in, c.most
}

// reach waits until the upcalls are these, and looks for a while that no more come.
func (c *calls) reach(e *env, names ...string) {
	e.Helper()
	e.eventually("upcalls: "+sprint(names), func() bool { got, _, _ := c.now(); return len(got) >= len(names) })
	e.idle(100)
	got, _, _ := c.now()
	e.same("the upcalls", got, names...)
}

func sprint(names []string) (s string) {
	for _, n := range names {
		s += n + ", "
	}
	return s
}

// calledUp makes an EVD that calls up.
func (s *side) calledUp(p dat.UpcallPolicy) (*dat.EVD, *calls) {
	s.e.Helper()
	c := &calls{}
	return s.evdOf(dat.EVDConfig{Policy: p, Upcall: c.upcall}), c
}

func (e *env) modify(evd *dat.EVD, p dat.UpcallPolicy, f dat.UpcallFlag) {
	e.Helper()
	e.must(evd.ModifyUpcall(p, nil, f), "ModifyUpcall %v %v", p, f)
}

// within runs a call that must return by the deadline.
func (e *env) within(what string, call func() error) error {
	e.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-time.After(e.deadline):
		e.Fatalf("%s does not return", what)
		return nil
	}
}

func upcallSingle(e *env) {
	evd, c := e.a.calledUp(dat.UpcallSingleInstance)
	release := c.hold(e)
	e.post(evd, 1, 2, 3)
	c.reach(e, "SE 1")
	release()
	c.reach(e, "SE 1", "SE 2", "SE 3")
	if _, _, most := c.now(); most != 1 {
		e.Errorf("%d upcalls at once", most)
	}
}

func upcallMany(e *env) {
	const limit = 3
	ia, err := e.ad.Active(dat.Config{MaxUpcalls: limit})
	e.must(err, "open an IA")
	e.Cleanup(func() { ia.Close(context.Background(), dat.CloseAbrupt) })
	c := &calls{}
	evd, err := ia.NewEVD(dat.EVDConfig{MinLen: 20, Streams: streams, Policy: dat.UpcallMany, Upcall: c.upcall})
	e.must(err, "NewEVD")
	release := c.hold(e)
	for i := range 20 {
		e.post(evd, uint64(i))
	}
	e.eventually("upcalls up to the limit", func() bool { _, in, _ := c.now(); return in == limit })
	e.idle(100)
	if q, err := evd.Query(); err != nil || q.Queued != 20-limit {
		e.Errorf("%v, %v", q, err)
	}
	release()
	e.eventually("all events", func() bool { got, in, _ := c.now(); return len(got) == 20 && in == 0 })
	if _, _, most := c.now(); most != limit {
		e.Errorf("%d upcalls at once, the limit is %d", most, limit)
	}
}

func upcallNotify(e *env) {
	evd, c := e.a.calledUp(dat.UpcallNotify)
	e.post(evd, 1, 2)
	c.reach(e, "notified")
	e.post(evd, 3)
	c.reach(e, "notified")
	e.same("what is queued", all(evd), "SE 1", "SE 2", "SE 3")
	e.modify(evd, dat.UpcallNotify, dat.InvocNew)
	c.reach(e, "notified")
	e.post(evd, 4)
	c.reach(e, "notified", "notified")
}

func upcallDisable(e *env) {
	evd, c := e.a.calledUp(dat.UpcallSingleInstance)
	release := c.hold(e)
	e.post(evd, 1, 2)
	c.reach(e, "SE 1")
	e.modify(evd, dat.UpcallDisable, dat.InvocNew)
	release()
	e.post(evd, 3)
	c.reach(e, "SE 1")
	e.same("what is queued", all(evd), "SE 2", "SE 3")
}

func upcallNew(e *env) {
	evd, c := e.a.calledUp(dat.UpcallDisable)
	e.post(evd, 1, 2)
	e.modify(evd, dat.UpcallSingleInstance, dat.InvocNew)
	c.reach(e)
	e.post(evd, 3)
	c.reach(e, "SE 1", "SE 2", "SE 3")
}

func upcallAny(e *env) {
	evd, c := e.a.calledUp(dat.UpcallDisable)
	e.modify(evd, dat.UpcallSingleInstance, dat.InvocAny)
	e.modify(evd, dat.UpcallDisable, dat.InvocAny)
	e.post(evd, 1, 2)
	c.reach(e)
	e.modify(evd, dat.UpcallSingleInstance, dat.InvocAny)
	c.reach(e, "SE 1", "SE 2")
}

func upcallEmpty(e *env) {
	evd, c := e.a.calledUp(dat.UpcallDisable)
	e.post(evd, 1)
	e.refused(evd.ModifyUpcall(dat.UpcallSingleInstance, nil, dat.InvocEmpty), "INVOC_EMPTY with an event", dat.InvalidState)
	e.post(evd, 2)
	c.reach(e)
	if q, err := evd.Query(); err != nil || q.Policy != dat.UpcallDisable {
		e.Errorf("%v, %v", q, err)
	}
	all(evd)
	e.modify(evd, dat.UpcallSingleInstance, dat.InvocEmpty)
	e.post(evd, 3)
	c.reach(e, "SE 3")
}

func upcallFlagsSeeCQ(e *env) {
	ea := e.a.evd()
	a, _ := e.linkOn(ea, e.b.evd())
	c := &calls{}
	e.write8(a, 1, 0)
	e.queued(ea, 1)
	e.refused(ea.ModifyUpcall(dat.UpcallSingleInstance, c.upcall, dat.InvocEmpty), "INVOC_EMPTY with a completion", dat.InvalidState)
	e.must(ea.ModifyUpcall(dat.UpcallSingleInstance, c.upcall, dat.InvocNew), "ModifyUpcall")
	c.reach(e)
	e.write8(a, 2, 0)
	c.reach(e, "RDMA_WRITE 1 SUCCESS", "RDMA_WRITE 2 SUCCESS")
}

func upcallTeardown(e *env) {
	evd, c := e.a.calledUp(dat.UpcallMany)
	release := c.hold(e)
	e.post(evd, 1, 2, 3)
	e.eventually("three upcalls", func() bool { _, in, _ := c.now(); return in == 3 })
	done := make(chan error, 1)
	go func() { done <- evd.Teardown(context.Background()) }()
	e.idle(100)
	if len(done) > 0 {
		e.Fatalf("returned with three upcalls running: %v", <-done)
	}
	release()
	e.must(e.within("Teardown", func() error { return <-done }), "Teardown")
	if _, in, _ := c.now(); in != 0 {
		e.Errorf("%d upcalls run", in)
	}
	e.post(evd, 4)
	e.idle(100)
	if got, _, _ := c.now(); len(got) != 3 {
		e.Errorf("an upcall after Teardown: %q", got)
	}
	e.modify(evd, dat.UpcallSingleInstance, dat.InvocAny)
	e.eventually("the fourth event", func() bool { got, _, _ := c.now(); return len(got) == 4 })
	// Also when an activation has only just been started.
	for range e.rounds(100) {
		e.post(evd, 5)
		e.must(e.within("Teardown", func() error { return evd.Teardown(context.Background()) }), "Teardown")
		all(evd)
		e.modify(evd, dat.UpcallSingleInstance, dat.InvocAny)
	}
}

func upcallTeardownContext(e *env) {
	evd, c := e.a.calledUp(dat.UpcallSingleInstance)
	release := c.hold(e)
	e.post(evd, 1, 2)
	c.reach(e, "SE 1")
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	err := e.within("Teardown", func() error { return evd.Teardown(ctx) })
	if e.refused(err, "Teardown with an upcall running", dat.InterruptedCall); !errors.Is(err, cause) {
		e.Errorf("%v does not tell the cause", err)
	}
	release()
	c.reach(e, "SE 1")
}

func upcallInside(e *env) {
	other := e.a.evdOf(dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: func(dat.Event, bool) {}})
	type result struct {
		what string
		err  error
		typ  dat.Type
		sub  dat.Subtype
	}
	results := make(chan result, 8)
	var own *dat.EVD
	own = e.a.evdOf(dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: func(dat.Event, bool) {
		results <- result{"Teardown of the own EVD", own.Teardown(context.Background()), dat.InvalidState, dat.NoSubtype}
		results <- result{"Teardown of another EVD", other.Teardown(context.Background()), dat.InvalidState, dat.NoSubtype}
		results <- result{"Close", e.a.ia.Close(context.Background(), dat.CloseAbrupt), dat.InvalidState, dat.NoSubtype}
		results <- result{"Free of the own EVD", own.Free(), dat.InvalidState, dat.InvalidStateEVDInUse}
		close(results)
	}})
	e.post(own, 1)
	n := 0
	for r := range results {
		n++
		e.refused(r.err, r.what, r.typ, r.sub)
	}
	if n != 4 {
		e.Errorf("%d of 4 calls returned", n)
	}
}

func upcallGoexit(e *env) {
	var n atomic.Int32
	evd := e.a.evdOf(dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: func(dat.Event, bool) {
		n.Add(1)
		runtime.Goexit()
	}})
	e.post(evd, 1, 2, 3)
	e.eventually("three upcalls", func() bool { return n.Load() == 3 })
	e.must(e.within("Teardown", func() error { return evd.Teardown(context.Background()) }), "Teardown")
	e.must(evd.Free(), "Free")
}

func upcallSame(e *env) {
	_, err := e.a.ia.NewEVD(dat.EVDConfig{MinLen: 1, Streams: streams, Policy: dat.UpcallSingleInstance})
	e.refused(err, "a live policy without function", dat.InvalidParameter, dat.InvalidArg4)
	evd := e.a.evd()
	e.refused(evd.ModifyUpcall(dat.UpcallMany, nil, dat.InvocNew), "a live policy without function", dat.InvalidParameter, dat.InvalidArg3)
	var first, second calls
	e.must(evd.ModifyUpcall(dat.UpcallSingleInstance, first.upcall, dat.InvocNew), "ModifyUpcall")
	e.modify(evd, dat.UpcallDisable, dat.InvocNew)
	e.modify(evd, dat.UpcallSingleInstance, dat.InvocNew)
	e.post(evd, 1)
	first.reach(e, "SE 1")
	e.must(evd.ModifyUpcall(dat.UpcallSingleInstance, second.upcall, dat.InvocNew), "ModifyUpcall")
	e.post(evd, 2)
	second.reach(e, "SE 2")
	first.reach(e, "SE 1")
}

// quietly connects EPs whose completions notify only where a post says so. They have EVDs of their own for them, as
// adapters need that notify for a whole queue only; those of a are e.a.request and e.a.recv from now on.
func (e *env) quietly() (a, b *dat.EP) {
	e.Helper()
	for _, s := range []*side{e.a, e.b} {
		s.recv, s.request = s.evdOf(dat.EVDConfig{Streams: dat.StreamDTO}), s.evdOf(dat.EVDConfig{Streams: dat.StreamDTO})
	}
	return e.link(func(_ *dat.EPConfig, a *dat.EPAttr) {
		a.RequestCompletionFlags, a.RecvCompletionFlags = dat.CompletionUnsignalled, dat.CompletionUnsignalled
	})
}

func upcallQuiet(e *env) {
	a, _ := e.quietly()
	c := &calls{}
	e.must(e.a.request.ModifyUpcall(dat.UpcallSingleInstance, c.upcall, dat.InvocNew), "ModifyUpcall")
	e.write8(a, 1, dat.CompletionUnsignalled)
	e.write8(a, 2, dat.CompletionUnsignalled)
	e.queued(e.a.request, 2)
	c.reach(e)
	e.write8(a, 3, 0)
	c.reach(e, "RDMA_WRITE 1 SUCCESS", "RDMA_WRITE 2 SUCCESS", "RDMA_WRITE 3 SUCCESS")
	e.write8(a, 4, dat.CompletionUnsignalled)
	e.queued(e.a.request, 1)
	c.reach(e, "RDMA_WRITE 1 SUCCESS", "RDMA_WRITE 2 SUCCESS", "RDMA_WRITE 3 SUCCESS")
	e.done(afterDisable(e, e.a.request), 4, dat.StatusSuccess)
}

// afterDisable switches upcalls off, so that events can be waited for.
func afterDisable(e *env, evd *dat.EVD) *dat.EVD {
	e.Helper()
	e.modify(evd, dat.UpcallDisable, dat.InvocNew)
	return evd
}

func upcallSolicited(e *env) {
	if e.b.named(dat.AttrSolicitedKnown) != "TRUE" {
		e.Skip("the adapter does not know solicited receives")
	}
	a, b := e.a.ep(), e.b.ep(func(_ *dat.EPConfig, a *dat.EPAttr) { a.RecvCompletionFlags = dat.CompletionSolicitedWait })
	for i := range 4 {
		e.must(b.PostRecv(uint64(i), 0, e.b.lmr.Triplet(64*i, 64)), "PostRecv")
	}
	e.join(a, b)
	c := &calls{}
	e.must(e.b.recv.ModifyUpcall(dat.UpcallSingleInstance, c.upcall, dat.InvocNew), "ModifyUpcall")
	send := func(f dat.CompletionFlags) {
		e.Helper()
		e.must(a.PostSend(9, f, e.a.lmr.Triplet(0, 8)), "PostSend")
		e.done(e.a.request, 9, dat.StatusSuccess)
	}
	send(0)
	e.queued(e.b.recv, 1)
	send(0)
	e.queued(e.b.recv, 2)
	c.reach(e)
	send(dat.CompletionSolicitedWait)
	c.reach(e, "RECEIVE 0 SUCCESS", "RECEIVE 1 SUCCESS", "RECEIVE 2 SUCCESS")
}

func upcallFailures(e *env) {
	a, b := e.quietly()
	c := &calls{}
	e.must(a.PostRecv(1, dat.CompletionUnsignalled), "PostRecv")
	e.must(e.a.recv.ModifyUpcall(dat.UpcallSingleInstance, c.upcall, dat.InvocNew), "ModifyUpcall")
	e.must(b.Disconnect(dat.CloseAbrupt), "Disconnect")
	c.reach(e, "RECEIVE 1 FLUSHED")
}

func upcallEverything(e *env) {
	ea, eb := e.a.evd(), e.b.evd()
	a, b := e.a.ep(on(ea)), e.b.ep(on(eb))
	psp, err := e.b.ia.NewPSP(dat.PSPConfig{EVD: eb})
	e.must(err, "NewPSP")
	failed := make(chan error, 64)
	check := func(err error) {
		if err != nil {
			failed <- err
		}
	}
	done := make(chan bool, 2)
	var mu sync.Mutex // that the caller holds while it causes upcalls
	up := func(f func(dat.Event)) dat.UpcallFunc {
		return func(ev dat.Event, _ bool) {
			mu.Lock()
			defer mu.Unlock()
			f(ev)
		}
	}
	got := 0
	check(eb.ModifyUpcall(dat.UpcallSingleInstance, up(func(ev dat.Event) {
		switch ev.Number {
		case dat.ConnectionRequest:
			for i := range 2 {
				check(b.PostRecv(uint64(i), 0, e.b.lmr.Triplet(64*i, 64)))
			}
			check(ev.Request().CR.Accept(b, nil))
		case dat.DTOCompletion:
			if got++; got == 2 {
				check(b.Disconnect(dat.CloseGraceful))
			}
		case dat.ConnectionDisconnected:
			check(b.Reset())
			check(eb.PostSE(1))
		case dat.SoftwareEvent:
			done <- true
		}
	}), dat.InvocNew))
	sent := 0
	check(ea.ModifyUpcall(dat.UpcallSingleInstance, up(func(ev dat.Event) {
		switch ev.Number {
		case dat.ConnectionEstablished:
			check(a.PostSend(0, 0, e.a.lmr.Triplet(0, 8)))
		case dat.DTOCompletion:
			if sent++; sent == 1 {
				check(a.PostSend(1, 0, e.a.lmr.Triplet(0, 8)))
			}
		case dat.ConnectionDisconnected:
			_, err := a.Query()
			check(err)
			check(ea.Resize(128))
			lmr, err := e.a.pz.Register(make([]byte, 8), dat.PrivAll)
			check(err)
			check(lmr.Free())
			done <- true
		}
	}), dat.InvocNew))
	mu.Lock()
	e.call(a, psp.ConnQual())
	mu.Unlock()
	e.must(e.within("both sides", func() error { <-done; <-done; return nil }), "both sides")
	for _, evd := range []*dat.EVD{ea, eb} {
		e.must(evd.Teardown(context.Background()), "Teardown")
	}
	select {
	case err := <-failed:
		e.Fatalf("in an upcall: %v", err)
	default:
	}
}

// stream posts the events of a tally to an EVD of a from a goroutine. If they are to be mixed, every other one is a software
// event; otherwise all are completions, the next when the one before was taken: nothing but its notification helps
// whoever sleeps.
func (e *env) stream(evd *dat.EVD, a *dat.EP, t *tally, mixed bool) {
	n := len(t.counts)
	stop := time.Now().Add(e.deadline)
	go func() {
		for i := range n {
			for k := 0; !mixed && (t.left.Load() > int64(n-i) || k < 37*i%200); k++ {
				if time.Now().After(stop) {
					return
				}
				e.yield()
			}
			for {
				var err error
				if mixed && i%2 == 0 {
					err = evd.PostSE(uint64(i))
				} else {
					err = a.PostRDMAWrite(uint64(i), 0, e.b.lmr.RMRTriplet(8, 8), e.a.lmr.Triplet(0, 8))
				}
				if err == nil || errors.Is(err, dat.InvalidHandle) {
					break
				}
				e.yield()
			}
		}
	}()
}

// tally counts events by their number.
type tally struct {
	counts []atomic.Int32
	left   atomic.Int64
}

func newTally(n int) *tally {
	t := &tally{counts: make([]atomic.Int32, n)}
	t.left.Store(int64(n))
	return t
}

func (t *tally) have(ev dat.Event) {
	v := ev.Software()
	if ev.Number != dat.SoftwareEvent {
		v = ev.DTO().Cookie
	}
	t.counts[v].Add(1)
	t.left.Add(-1)
}

func (t *tally) check(e *env) {
	e.Helper()
	e.eventually("every event", func() bool { return t.left.Load() <= 0 })
	for i := range t.counts {
		if n := t.counts[i].Load(); n != 1 {
			e.Fatalf("event %d came %d times", i, n)
		}
	}
}

func upcallDrainer(e *env) {
	ea := e.a.evdOf(dat.EVDConfig{MinLen: 16})
	a, _ := e.linkOn(ea, e.b.evd())
	for _, mixed := range []bool{true, false} {
		e.drainer(ea, a, mixed)
	}
	e.must(ea.Teardown(context.Background()), "Teardown")
}

// drainer is a consumer that switches upcalls off in the first, has a goroutine drain the EVD, and
// switches them on again.
func (e *env) drainer(ea *dat.EVD, a *dat.EP, mixed bool) {
	e.Helper()
	t := newTally(e.rounds(4000))
	work := make(chan dat.Event, 1)
	e.must(ea.ModifyUpcall(dat.UpcallSingleInstance, func(ev dat.Event, _ bool) {
		ea.ModifyUpcall(dat.UpcallDisable, nil, dat.InvocNew)
		work <- ev
	}, dat.InvocAny), "ModifyUpcall")
	e.stream(ea, a, t, mixed)
	for t.left.Load() > 0 {
		select {
		case ev := <-work:
			t.have(ev)
		case <-time.After(e.deadline):
			e.Fatalf("no upcall, with %d events to come", t.left.Load())
		}
		for ev := range ea.Drain() {
			t.have(ev)
		}
		e.modify(ea, dat.UpcallSingleInstance, dat.InvocAny)
	}
	t.check(e)
}

func upcallPoller(e *env) {
	ea := e.a.evdOf(dat.EVDConfig{MinLen: 16})
	a, _ := e.linkOn(ea, e.b.evd())
	for _, mixed := range []bool{true, false} {
		e.poller(ea, a, mixed)
	}
	e.must(ea.Teardown(context.Background()), "Teardown")
}

// poller is a consumer that switches upcalls on, polls a last time, and leaves the rest to them.
func (e *env) poller(ea *dat.EVD, a *dat.EP, mixed bool) {
	e.Helper()
	t := newTally(e.rounds(4000))
	e.stream(ea, a, t, mixed)
	for t.left.Load() > 0 {
		e.must(ea.ModifyUpcall(dat.UpcallSingleInstance, func(ev dat.Event, _ bool) { t.have(ev) }, dat.InvocNew), "ModifyUpcall")
		for ev := range ea.Drain() {
			t.have(ev)
		}
		before := t.left.Load()
		e.eventually("another event", func() bool { return t.left.Load() < max(before, 1) })
		e.modify(ea, dat.UpcallDisable, dat.InvocNew)
	}
	t.check(e)
}
