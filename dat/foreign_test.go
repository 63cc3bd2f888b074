package dat_test

import (
	"sync/atomic"
	"testing"
	"unsafe"

	"kdapl/dat"
	"kdapl/internal/foreign"
)

// newForeign is a consumer whose wake-ups are counted.
func newForeign() (*foreign.Consumer, *atomic.Int32) {
	n := new(atomic.Int32)
	return &foreign.Consumer{Control: new(foreign.Control), Notify: func() { n.Add(1) }}, n
}

// settled reports what such a consumer sees of an empty ring: nothing has come to the CQ either.
func settled(c *foreign.Control) bool {
	serial := (*atomic.Uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&c.Serial)))
	return c.Flags.Load()&foreign.FlagCQ == 0 || serial != nil && serial.Load() == c.Seen.Load()
}

func TestAForeignConsumerSeesWhetherTheCQHasSomething(t *testing.T) {
	f, _ := newForeign()
	control, first := f.Control, true
	p := newPair(t, pairConfig{split: true, prep: func(t testing.TB, s *side) {
		if first {
			s.request = newEVD(t, s.ia, dat.EVDConfig{Streams: dat.StreamDTO, Foreign: f})
		}
		first = false
	}}).connect(t)
	c := p.a.request
	if !settled(control) {
		t.Fatal("nothing has come, and the consumer would call")
	}
	for i := range uint64(3) {
		ok(t, p.a.ep.PostRDMAWrite(i, 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
		if settled(control) {
			t.Fatal("the consumer would not see that a request has completed")
		}
		nextDTO(t, c, i, dat.StatusSuccess)
	}
	empty(t, c)
	if !settled(control) {
		t.Fatal("all is taken, and the consumer would call")
	}
}

func TestAForeignConsumerPostsWhileNobodyIsToBeNotified(t *testing.T) {
	ia := newIA(t)
	f, _ := newForeign()
	c := f.Control
	e := newEVD(t, ia, dat.EVDConfig{MinLen: 4, Foreign: f})
	limit := func(what string, want uint32) {
		t.Helper()
		if got := c.Limit.Load(); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	limit("a new EVD", 4)
	if c.Ring.Load() == 0 || !settled(c) {
		t.Error("there is no ring, or a CQ")
	}
	ok(t, e.Resize(9))
	limit("resized", 9)
	cno := must[*dat.CNO](t)(ia.NewCNO(nil))
	ok(t, e.ModifyCNO(cno))
	limit("with a CNO", 0)
	ok(t, e.ModifyCNO(nil))
	limit("without again", 9)
	w := foreign.Wait{Threshold: 1}
	if _, _, err := dat.ForeignWait(e, &w); err != nil || !w.Sleep {
		t.Fatalf("%v, sleep %v", err, w.Sleep)
	}
	limit("with a waiter", 0)
	ok(t, e.SetUnwaitable())
	if c.Status.Load() != foreign.StatusWaited|foreign.StatusUnwaitable {
		t.Errorf("status %b", c.Status.Load())
	}
	_, _, err := dat.ForeignWait(e, &w)
	refused(t, err, dat.InvalidState, dat.InvalidStateEVDUnwaitable)
	ok(t, e.ClearUnwaitable())
	limit("after the wait", 9)
	if c.Status.Load() != 0 {
		t.Errorf("status %b", c.Status.Load())
	}
	ok(t, e.Free())
	limit("freed", 0)
	if c.Status.Load() != foreign.StatusFreed || c.Ring.Load() != 0 {
		t.Errorf("status %b, ring %#x", c.Status.Load(), c.Ring.Load())
	}
}

func TestAForeignConsumerWaitsInSteps(t *testing.T) {
	ia := newIA(t)
	f, woken := newForeign()
	e := newEVD(t, ia, dat.EVDConfig{Foreign: f})
	w := foreign.Wait{Threshold: 2}
	step := func(sleep bool) (dat.Event, int, error) {
		t.Helper()
		ev, more, err := dat.ForeignWait(e, &w)
		if w.Sleep != sleep || sleep && f.Control.Wake.Load() != w.Word {
			t.Fatalf("sleep %v, word %d of %d", w.Sleep, w.Word, f.Control.Wake.Load())
		}
		return ev, more, err
	}
	step(true)
	post(t, e, 1)
	if woken.Load() != 0 {
		t.Fatal("woken below the threshold")
	}
	post(t, e, 2)
	if woken.Load() != 1 || f.Control.Wake.Load() == w.Word {
		t.Fatal("not woken")
	}
	if ev, more, err := step(false); err != nil || ev.Software() != 1 || more != 1 {
		t.Fatalf("%v, %d, %v", ev, more, err)
	}
	w = foreign.Wait{Threshold: 2, Expired: true}
	if _, more, err := step(false); err != dat.ErrTimeout || more != 1 {
		t.Fatalf("%d, %v", more, err)
	}
	w = foreign.Wait{Threshold: 99}
	_, _, err := step(false)
	refused(t, err, dat.InvalidParameter, dat.InvalidArg3)
	_, _, err = dat.ForeignWait(newEVD(t, ia, dat.EVDConfig{}), &w)
	refused(t, err, dat.InvalidHandle, dat.InvalidHandle1)
}

func TestAForeignConsumerWaitsAtACNO(t *testing.T) {
	ia := newIA(t)
	cno, evds := cnoEVDs(t, ia, 1)
	var w foreign.Wait
	_, err := dat.ForeignCNOWait(cno, &w)
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleCNO)
	f, woken := newForeign()
	dat.ForeignCNO(cno, f)
	if e, err := dat.ForeignCNOWait(cno, &w); e != nil || err != nil || !w.Sleep {
		t.Fatalf("%v, %v, sleep %v", e, err, w.Sleep)
	}
	refused(t, cno.Free(), dat.InvalidState, dat.InvalidStateCNOInUse)
	post(t, evds[0], 1)
	if woken.Load() != 1 || f.Control.Wake.Load() == w.Word {
		t.Fatal("not woken")
	}
	if e, err := dat.ForeignCNOWait(cno, &w); e != evds[0] || err != nil || w.Sleep {
		t.Fatalf("%v, %v, sleep %v", e, err, w.Sleep)
	}
	w = foreign.Wait{Expired: true}
	if e, err := dat.ForeignCNOWait(cno, &w); e != nil || err != dat.ErrQueueEmpty {
		t.Fatalf("%v, %v", e, err)
	}
}
