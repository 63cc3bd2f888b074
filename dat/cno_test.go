package dat_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// CNOs: dat_cno_*, and dat_evd_enable, dat_evd_disable, dat_evd_modify_cno.

// cnoEVDs makes a CNO with n EVDs of software events.
func cnoEVDs(t testing.TB, ia *dat.IA, n int) (*dat.CNO, []*dat.EVD) {
	t.Helper()
	c := must[*dat.CNO](t)(ia.NewCNO(nil))
	evds := make([]*dat.EVD, n)
	for i := range evds {
		evds[i] = newEVD(t, ia, dat.EVDConfig{CNO: c})
	}
	return c, evds
}

// triggeredBy waits for the next trigger.
func triggeredBy(t testing.TB, c *dat.CNO, want *dat.EVD) {
	t.Helper()
	got, err := c.Wait(t.Context(), patience)
	if err != nil || got != want {
		t.Fatalf("got %v, %v; want %v", got, err, want)
	}
}

// untriggered checks that there is no trigger.
func untriggered(t testing.TB, c *dat.CNO) {
	t.Helper()
	if e, err := c.Trigger(); err != dat.ErrQueueEmpty {
		t.Fatalf("triggered by %v, %v", e, err)
	}
	if e, err := c.Wait(t.Context(), 0); err != dat.ErrQueueEmpty {
		t.Fatalf("a look finds %v, %v", e, err)
	}
}

func TestTriggerStaysUntilItIsTaken(t *testing.T) {
	c, e := cnoEVDs(t, newIA(t), 3)
	untriggered(t, c)
	ok(t, e[1].PostSE(1))
	ok(t, e[1].PostSE(2)) // triggered already
	ok(t, e[0].PostSE(3))
	triggeredBy(t, c, e[1])
	triggeredBy(t, c, e[0])
	untriggered(t, c) // though the events are still queued
	ok(t, e[1].PostSE(4))
	if got := must[*dat.EVD](t)(c.Trigger()); got != e[1] {
		t.Fatal(got)
	}
	untriggered(t, c)
	if n := queued(t, e[1]); n != 3 {
		t.Fatalf("%d events", n) // a trigger takes none
	}
}

func TestCNOWaitEndsWithATriggerOrItsTime(t *testing.T) {
	ia := newIA(t)
	c, e := cnoEVDs(t, ia, 1)
	got := make(chan *dat.EVD)
	go func() {
		e, _ := c.Wait(context.Background(), dat.Infinite)
		got <- e
	}()
	refusedEventually(t, c.Free, dat.InvalidState, dat.InvalidStateCNOInUse)
	ok(t, e[0].PostSE(1))
	if g := receive(t, "trigger", got); g != e[0] {
		t.Fatal(g)
	}
	if e, err := c.Wait(t.Context(), time.Millisecond); err != dat.ErrQueueEmpty || e != nil {
		t.Fatalf("%v, %v", e, err)
	}
	_, err := c.Wait(t.Context(), -2)
	refused(t, err, dat.InvalidParameter, dat.InvalidArg2)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	_, err = c.Wait(ctx, dat.Infinite)
	refused(t, err, dat.InterruptedCall, dat.NoSubtype)
	if !errors.Is(err, why) {
		t.Error(err)
	}
}

// refusedEventually calls until the call is refused as wanted.
func refusedEventually(t testing.TB, call func() error, typ dat.Type, sub dat.Subtype) {
	t.Helper()
	eventually(t, "a refusal", func() bool {
		err := call()
		if errors.Is(err, typ) && errors.Is(err, sub) {
			return true
		}
		if err == nil {
			t.Fatal("not refused")
		}
		return false
	})
}

func TestEachTriggerWakesAWaiter(t *testing.T) {
	const n = 8
	c, e := cnoEVDs(t, newIA(t), n)
	got := make(chan *dat.EVD, n)
	for range n {
		go func() {
			e, err := c.Wait(context.Background(), patience)
			if err != nil {
				t.Error(err)
			}
			got <- e
		}()
	}
	for _, evd := range e {
		ok(t, evd.PostSE(1))
	}
	seen := map[*dat.EVD]bool{}
	for range n {
		seen[receive(t, "waiters", got)] = true
	}
	if len(seen) != n {
		t.Fatalf("%d of %d EVDs", len(seen), n)
	}
}

func TestCNOIsTriggeredByWhatNotifies(t *testing.T) {
	p := newPair(t, pairConfig{split: true, attr: func(a *dat.EPAttr) {
		a.RecvCompletionFlags, a.RequestCompletionFlags = dat.CompletionSolicitedWait, dat.CompletionUnsignalled
	}}).connect(t)
	c := must[*dat.CNO](t)(p.b.ia.NewCNO(nil))
	ok(t, p.b.recv.ModifyCNO(c))
	ok(t, p.b.request.ModifyCNO(c))
	for i := range 4 {
		ok(t, p.b.ep.PostRecv(uint64(i), 0, p.b.lmr.Triplet(0, 8)))
	}
	ok(t, p.a.ep.PostSend(1, 0))
	untriggered(t, c) // not solicited
	ok(t, p.a.ep.PostSend(2, dat.CompletionSolicitedWait))
	triggeredBy(t, c, p.b.recv)
	ok(t, p.b.ep.PostRDMAWrite(3, dat.CompletionUnsignalled, p.a.lmr.RMRTriplet(0, 8), p.b.lmr.Triplet(0, 8)))
	untriggered(t, c)
	ok(t, p.b.ep.PostRDMAWrite(4, 0, p.a.lmr.RMRTriplet(0, 8), p.b.lmr.Triplet(0, 8)))
	triggeredBy(t, c, p.b.request)
	ok(t, p.b.ep.Disconnect(dat.CloseAbrupt)) // failures notify
	triggeredBy(t, c, p.b.recv)
}

// AC-02: a wait for several looks at each of them again, not at the last one only.
func TestGroupWaitPollsEveryArmedMember(t *testing.T) {
	const n = 6
	p := newPair(t, pairConfig{split: true})
	c := must[*dat.CNO](t)(p.b.ia.NewCNO(nil))
	var from, to []*dat.EP
	var recv []*dat.EVD
	for range n {
		e := newEVD(t, p.b.ia, dat.EVDConfig{Streams: dat.StreamDTO, CNO: c})
		q := *p
		q.a.ep, q.b.recv = p.a.newEP(t, nil), e
		q.b.ep = q.b.newEP(t, nil)
		q.connect(t)
		from, to, recv = append(from, q.a.ep), append(to, q.b.ep), append(recv, e)
	}
	for round := range 200 {
		pick := []int{round % n, (round*5 + 1) % n}
		if pick[0] == pick[1] {
			pick = pick[:1]
		}
		for _, i := range pick {
			ok(t, to[i].PostRecv(uint64(i), 0, p.b.lmr.Triplet(0, 8)))
		}
		done := make(chan error, len(pick))
		for _, i := range pick {
			go func() { done <- from[i].PostSend(1, dat.CompletionSuppress) }()
		}
		for left := len(pick); left > 0; {
			e, err := c.Wait(t.Context(), patience)
			ok(t, err)
			for range e.Drain() {
				left--
			}
		}
		for range pick {
			ok(t, receive(t, "sends", done))
		}
	}
	for i, e := range recv {
		if q := queued(t, e); q != 0 {
			t.Errorf("EVD %d keeps %d events", i, q)
		}
	}
}

func TestDisabledEVDDoesNotTrigger(t *testing.T) {
	c, e := cnoEVDs(t, newIA(t), 1)
	ok(t, e[0].Disable())
	ok(t, e[0].Disable()) // once is enough
	if s := must[dat.EVDParam](t)(e[0].Query()).State; s&dat.EVDStateDisabled == 0 || s&dat.EVDStateEnabled != 0 {
		t.Fatal(s)
	}
	ok(t, e[0].PostSE(1))
	untriggered(t, c)
	ev, _, err := e[0].Wait(t.Context(), 1, 0) // a wait on the EVD itself is not affected
	if err != nil || ev.Software() != 1 {
		t.Fatal(ev, err)
	}
	ok(t, e[0].PostSE(2))
	ok(t, e[0].Enable()) // what is queued triggers
	triggeredBy(t, c, e[0])
	ok(t, e[0].Enable())
	untriggered(t, c)
	ok(t, e[0].PostSE(3))
	triggeredBy(t, c, e[0])
}

func TestModifyCNO(t *testing.T) {
	ia := newIA(t)
	first, e := cnoEVDs(t, ia, 1)
	second := must[*dat.CNO](t)(ia.NewCNO(nil))
	ok(t, e[0].PostSE(1))
	ok(t, e[0].ModifyCNO(second)) // the trigger goes with the EVD
	untriggered(t, first)
	triggeredBy(t, second, e[0])
	ok(t, first.Free())
	if q := must[dat.EVDParam](t)(e[0].Query()); q.CNO != second {
		t.Fatal(q.CNO)
	}
	if q := must[dat.CNOParam](t)(second.Query()); q.EVDs != 1 || q.FD != -1 || q.Agent != nil {
		t.Fatalf("%+v", q)
	}
	ok(t, e[0].ModifyCNO(second))
	triggeredBy(t, second, e[0])
	refused(t, second.Free(), dat.InvalidState, dat.InvalidStateCNOInUse)
	ok(t, e[0].ModifyCNO(nil))
	ok(t, e[0].PostSE(2))
	untriggered(t, second)
	ok(t, second.Free())

	refused(t, e[0].ModifyCNO(second), dat.InvalidHandle, dat.InvalidHandleCNO)
	foreign := must[*dat.CNO](t)(newIA(t).NewCNO(nil))
	refused(t, e[0].ModifyCNO(foreign), dat.InvalidHandle, dat.InvalidHandleCNO)
	for _, c := range []*dat.CNO{second, foreign} {
		_, err := ia.NewEVD(dat.EVDConfig{MinLen: 1, Streams: dat.StreamSoftware, CNO: c})
		refused(t, err, dat.InvalidHandle, dat.InvalidHandleCNO)
	}
}

func TestFreeOfAnEVDTakesItsTrigger(t *testing.T) {
	c, e := cnoEVDs(t, newIA(t), 2)
	ok(t, e[0].PostSE(1))
	ok(t, e[1].PostSE(1))
	ok(t, e[0].Free())
	triggeredBy(t, c, e[1])
	untriggered(t, c)
	ok(t, e[1].Free())
	ok(t, c.Free())
}

func TestFreedCNO(t *testing.T) {
	c := must[*dat.CNO](t)(newIA(t).NewCNO(nil))
	ok(t, c.Free())
	gone := func(err error) { t.Helper(); refused(t, err, dat.InvalidHandle, dat.InvalidHandleCNO) }
	gone(c.Free())
	gone(c.ModifyAgent(nil))
	_, err := c.Wait(t.Context(), 0)
	gone(err)
	_, err = c.Trigger()
	gone(err)
	_, err = c.Query()
	gone(err)
	if c.FD() != -1 {
		t.Error("FD")
	}
}

// Each trigger goes to the agent too.
func TestAgentIsCalledForEachTrigger(t *testing.T) {
	ia := newIA(t)
	calls := make(chan *dat.EVD, 16)
	c := must[*dat.CNO](t)(ia.NewCNO(func(e *dat.EVD) { calls <- e }))
	e := newEVD(t, ia, dat.EVDConfig{CNO: c})
	for range 3 {
		ok(t, e.PostSE(1))
		if got := receive(t, "agent", calls); got != e {
			t.Fatal(got)
		}
	}
	triggeredBy(t, c, e) // in addition
	untriggered(t, c)
	others := make(chan *dat.EVD, 16)
	ok(t, c.ModifyAgent(func(e *dat.EVD) { others <- e }))
	ok(t, e.PostSE(2))
	receive(t, "new agent", others)
	ok(t, c.ModifyAgent(nil))
	triggeredBy(t, c, e)
	ok(t, e.PostSE(3))
	triggeredBy(t, c, e)
	if len(calls)+len(others) != 0 {
		t.Fatal("an agent that was replaced or removed was called")
	}
	if q := must[dat.CNOParam](t)(c.Query()); q.Agent != nil {
		t.Fatal("there is an agent still")
	}
}

// An agent may call whatever it likes, a wait on its CNO included.
func TestAgentMayUseTheCNO(t *testing.T) {
	ia := newIA(t)
	var c *dat.CNO
	done := make(chan error, 1)
	c = must[*dat.CNO](t)(ia.NewCNO(func(e *dat.EVD) {
		for range e.Drain() {
		}
		_, err := c.Wait(context.Background(), patience)
		done <- errors.Join(err, e.ModifyCNO(nil), c.Free())
	}))
	e := newEVD(t, ia, dat.EVDConfig{CNO: c})
	ok(t, e.PostSE(1))
	ok(t, receive(t, "agent", done))
}

func TestCloseAbortsCNOWaiters(t *testing.T) {
	ia := newIA(t)
	c, _ := cnoEVDs(t, ia, 2)
	const n = 5
	errs := make(chan error, n)
	for range n {
		go func() {
			_, err := c.Wait(context.Background(), dat.Infinite)
			errs <- err
		}()
	}
	refusedEventually(t, func() error {
		if err := ia.Close(t.Context(), dat.CloseGraceful); err != nil {
			return err
		}
		return nil
	}, dat.InvalidState, dat.InvalidStateIAInUse)
	refusedEventually(t, c.Free, dat.InvalidState, dat.InvalidStateCNOInUse)
	ok(t, ia.Close(t.Context(), dat.CloseAbrupt))
	for range n {
		err := receive(t, "waiters", errs)
		if !errors.Is(err, dat.Abort) && !errors.Is(err, dat.InvalidHandleCNO) { // one that had not begun finds the CNO gone
			t.Fatal(err)
		}
	}
}

func TestMoreCNOsThanTheAdapterHasEVDs(t *testing.T) {
	ia := openIA(t, loop.New(loop.Config{Adjust: func(a *verbs.Attr) { a.MaxCQ = 2 }}), dat.Config{})
	c := must[*dat.CNO](t)(ia.NewCNO(nil))
	must[*dat.CNO](t)(ia.NewCNO(nil))
	_, err := ia.NewCNO(nil)
	refused(t, err, dat.InsufficientResources, dat.NoSubtype)
	ok(t, c.Free())
	must[*dat.CNO](t)(ia.NewCNO(nil))
}

// Events come from several sides, waits from several others: none is lost.
func TestCNOUnderLoad(t *testing.T) {
	const evds, events, waiters = 5, 400, 3
	c, e := cnoEVDs(t, newIA(t), evds)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	taken := 0
	all := make(chan bool)
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			for {
				e, err := c.Wait(ctx, dat.Infinite)
				if err != nil {
					return
				}
				for range e.Drain() {
					mu.Lock()
					if taken++; taken == evds*events {
						close(all)
					}
					mu.Unlock()
				}
			}
		})
	}
	for _, e := range e {
		wg.Go(func() {
			for i := range uint64(events) {
				for e.PostSE(i) != nil {
					runtime.Gosched()
				}
			}
		})
	}
	receive(t, "all events", all)
	stop()
	wg.Wait()
}
