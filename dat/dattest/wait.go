package dattest

import (
	"context"
	"errors"
	"time"

	"kdapl/dat"
)

// Waits (dat_evd_wait, dat_evd_set_unwaitable, uDAPL).
var waitRules = []rule{
	{"a wait returns the oldest event and how many are left", 0, waitOldest},
	{"a wait returns when its threshold is reached", 0, waitThreshold},
	{"a wait ends with its time, and takes nothing", 0, waitTimeout},
	{"a wait ends with its context", 0, waitContext},
	{"thresholds and times out of range are refused", 0, waitRange},
	{"while somebody waits nobody else waits, dequeues or changes the EVD", 0, waitOwner},
	{"a wait and a live upcall policy exclude each other", 0, waitPolicy},
	{"an unwaitable EVD ends the wait and refuses others", 0, waitUnwaitable},
	{"the end of the IA aborts the wait", 0, waitAbort},
	{"a wait is ended by what notifies", 0, waitQuiet},
	{"a threshold above 1 needs streams whose completions all notify", 0, waitDiscipline},
	{"no wake-up is lost between posters and a waiter", 0, waitLoad},
}

// waiting is a wait in a goroutine.
type waiting struct {
	ev   dat.Event
	more int
	err  error
}

func (e *env) waiting(evd *dat.EVD, ctx context.Context, threshold int, timeout time.Duration) <-chan waiting {
	c := make(chan waiting, 1)
	go func() {
		ev, more, err := evd.Wait(ctx, threshold, timeout)
		c <- waiting{ev, more, err}
	}()
	return c
}

// owned waits until a wait has begun. It asks with a call that would take nothing and would be in no waiter's way.
func (e *env) owned(evd *dat.EVD) {
	e.Helper()
	q, err := evd.Query()
	e.must(err, "Query")
	e.eventually("a wait", func() bool { return errors.Is(evd.Resize(q.QLen), dat.InvalidStateEVDWaiter) })
}

func (e *env) returned(c <-chan waiting) waiting {
	e.Helper()
	select {
	case w := <-c:
		return w
	case <-time.After(e.deadline):
		e.Fatalf("the wait does not return")
		return waiting{}
	}
}

func waitOldest(e *env) {
	evd := e.a.evd()
	e.post(evd, 1, 2, 3)
	for i, want := range []string{"SE 1", "SE 2", "SE 3"} {
		ev, more, err := evd.Wait(context.Background(), 1, dat.Infinite)
		if err != nil || short(ev) != want || more != 2-i {
			e.Fatalf("got %v, %d more, %v", ev, more, err)
		}
	}
}

func waitThreshold(e *env) {
	evd := e.a.evd()
	e.post(evd, 1)
	c := e.waiting(evd, context.Background(), 3, dat.Infinite)
	e.owned(evd)
	e.post(evd, 2)
	e.idle(100)
	if len(c) > 0 {
		e.Fatalf("returned with two of three events")
	}
	e.post(evd, 3)
	if w := e.returned(c); w.err != nil || short(w.ev) != "SE 1" || w.more != 2 {
		e.Fatalf("%+v", w)
	}
	// Completions count as well.
	evd = e.a.evd()
	a, _ := e.linkOn(evd, e.b.evd())
	c = e.waiting(evd, context.Background(), 2, dat.Infinite)
	e.owned(evd)
	e.write8(a, 1, 0)
	e.write8(a, 2, 0)
	if w := e.returned(c); w.err != nil || short(w.ev) != "RDMA_WRITE 1 SUCCESS" || w.more != 1 {
		e.Fatalf("%+v", w)
	}
}

func waitTimeout(e *env) {
	evd := e.a.evd()
	e.post(evd, 1)
	for _, d := range []time.Duration{0, time.Nanosecond, soon} {
		start := time.Now()
		ev, more, err := evd.Wait(context.Background(), 2, d)
		if err != dat.ErrTimeout || more != 1 || ev.Number != 0 {
			e.Fatalf("got %v, %d more, %v", ev, more, err)
		}
		if took := time.Since(start); took < d {
			e.Errorf("took %v of %v", took, d)
		}
	}
	e.same("what is queued", all(evd), "SE 1")
}

func waitContext(e *env) {
	evd := e.a.evd()
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	c := e.waiting(evd, ctx, 1, dat.Infinite)
	e.owned(evd)
	cancel(cause)
	w := e.returned(c)
	if e.refused(w.err, "a wait whose context ended", dat.InterruptedCall); !errors.Is(w.err, cause) {
		e.Errorf("%v does not tell the cause", w.err)
	}
	e.post(evd, 1)
	if ev, _, err := evd.Wait(context.Background(), 1, dat.Infinite); err != nil || short(ev) != "SE 1" {
		e.Errorf("afterwards: %v, %v", ev, err)
	}
}

func waitRange(e *env) {
	evd := e.a.evd()
	q, err := evd.Query()
	e.must(err, "Query")
	for _, n := range []int{0, -1, q.QLen + 1, 1 << 31, 1 << 32} {
		_, _, err := evd.Wait(context.Background(), n, 0)
		e.refused(err, "a threshold out of range", dat.InvalidParameter, dat.InvalidArg3)
	}
	_, _, err = evd.Wait(context.Background(), 1, -2)
	e.refused(err, "a negative time", dat.InvalidParameter, dat.InvalidArg2)
}

func waitOwner(e *env) {
	evd := e.a.evd()
	c := e.waiting(evd, context.Background(), 2, dat.Infinite)
	e.owned(evd)
	e.post(evd, 1)
	_, _, err := evd.Wait(context.Background(), 1, 0)
	e.refused(err, "another wait", dat.InvalidState, dat.InvalidStateEVDWaiter)
	_, err = evd.Dequeue()
	e.refused(err, "Dequeue", dat.InvalidState, dat.InvalidStateEVDWaiter)
	if n := evd.DequeueInto(make([]dat.Event, 1)); n != 0 {
		e.Errorf("%d events were dequeued", n)
	}
	e.refused(evd.Resize(100), "Resize", dat.InvalidState, dat.InvalidStateEVDWaiter)
	e.refused(evd.Free(), "Free", dat.InvalidState, dat.InvalidStateEVDInUse)
	e.post(evd, 2)
	if w := e.returned(c); w.err != nil || w.more != 1 {
		e.Errorf("%+v", w)
	}
}

func waitPolicy(e *env) {
	evd, _ := e.a.calledUp(dat.UpcallNotify)
	_, _, err := evd.Wait(context.Background(), 1, 0)
	e.refused(err, "a wait with a live policy", dat.InvalidState)
	e.modify(evd, dat.UpcallDisable, dat.InvocNew)
	c := e.waiting(evd, context.Background(), 1, dat.Infinite)
	e.owned(evd)
	e.refused(evd.ModifyUpcall(dat.UpcallSingleInstance, nil, dat.InvocNew), "a live policy with a waiter", dat.InvalidState, dat.InvalidStateEVDWaiter)
	e.post(evd, 1)
	if w := e.returned(c); w.err != nil {
		e.Errorf("%+v", w)
	}
}

func waitUnwaitable(e *env) {
	evd := e.a.evd()
	c := e.waiting(evd, context.Background(), 1, dat.Infinite)
	e.owned(evd)
	e.must(evd.SetUnwaitable(), "SetUnwaitable")
	e.refused(e.returned(c).err, "the wait", dat.InvalidState, dat.InvalidStateEVDUnwaitable)
	_, _, err := evd.Wait(context.Background(), 1, 0)
	e.refused(err, "another wait", dat.InvalidState, dat.InvalidStateEVDUnwaitable)
	e.must(evd.ClearUnwaitable(), "ClearUnwaitable")
	if _, _, err := evd.Wait(context.Background(), 1, 0); err != dat.ErrTimeout {
		e.Errorf("when it is waitable again: %v", err)
	}
}

func waitAbort(e *env) {
	evd := e.a.evd()
	c := e.waiting(evd, context.Background(), 1, dat.Infinite)
	e.owned(evd)
	e.must(e.a.ia.Close(context.Background(), dat.CloseAbrupt), "Close")
	e.refused(e.returned(c).err, "the wait", dat.Abort)
}

func waitQuiet(e *env) {
	a, _ := e.quietly()
	c := e.waiting(e.a.request, context.Background(), 1, dat.Infinite)
	e.owned(e.a.request)
	e.write8(a, 1, dat.CompletionUnsignalled)
	e.queued(e.a.request, 1)
	e.idle(100)
	if len(c) > 0 {
		e.Fatalf("ended by a completion that does not notify: %+v", <-c)
	}
	e.write8(a, 2, 0)
	if w := e.returned(c); w.err != nil || short(w.ev) != "RDMA_WRITE 1 SUCCESS" {
		e.Fatalf("%+v", w)
	}
	e.done(e.a.request, 2, dat.StatusSuccess)
}

func waitDiscipline(e *env) {
	ep, _ := e.quietly()
	_, _, err := e.a.request.Wait(context.Background(), 2, 0)
	e.refused(err, "a threshold above 1", dat.InvalidState, dat.InvalidStateEVDConfigNotify)
	e.must(ep.Free(), "Free")
	if _, _, err := e.a.request.Wait(context.Background(), 2, 0); err != dat.ErrTimeout {
		e.Errorf("without the EP: %v", err)
	}
}

func waitLoad(e *env) {
	evd := e.a.evd()
	a, _ := e.linkOn(evd, e.b.evd())
	for _, mixed := range []bool{true, false} {
		t := newTally(e.rounds(2000))
		e.stream(evd, a, t, mixed)
		for t.left.Load() > 0 {
			ev, _, err := evd.Wait(context.Background(), 1, e.deadline)
			e.must(err, "Wait with %d events to come", t.left.Load())
			t.have(ev)
		}
		t.check(e)
	}
}
