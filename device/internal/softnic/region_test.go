package softnic

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"kdapl/verbs"
)

// until looks again and again, and gives up when a hang is certain.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("not within 20 s: " + what)
		}
	}
}

// accessAll enters the region as each lane would.
func (b *bench) accessAll(lanes ...*Lane) {
	b.t.Helper()
	for _, l := range lanes {
		l.Lock()
		if b.enter(l, b.mr.LKey()) == nil {
			b.t.Fatal("no access")
		}
		l.Unlock()
	}
}

// Dereg makes the key invalid at once and returns when the copies in progress are over, whoever
// the users are and however many.
func TestDeregWaitsForCopiesInProgress(t *testing.T) {
	for _, others := range []int{0, 1, 3, 4, 9} {
		b := newBench(t, 1)
		var lanes []*Lane
		for range others {
			lanes = append(lanes, b.connected(1).Lane())
		}
		b.accessAll(lanes...)
		l := b.qp.Lane()
		l.Lock()
		e := b.enter(l, b.mr.LKey())
		if e == nil {
			t.Fatal("no access")
		}
		if want := others >= 4; e.crowded.Load() != want {
			t.Errorf("with %d users: crowded is %v", others+1, !want)
		}
		var copied atomic.Bool
		done := make(chan bool)
		go func() {
			if err := b.mr.Dereg(); err != nil {
				t.Error(err)
			}
			done <- copied.Load()
		}()
		until(t, "the key is invalid", func() bool { return e.key.Load() == 0 })
		if b.enter(l, b.sge(0, 1).LKey) != nil {
			t.Error("a key that is no more")
		}
		for i := range e.buf { // the memory is still there
			e.buf[i] = 1
		}
		copied.Store(true)
		l.Unlock()
		if !<-done {
			t.Error("Dereg returned during a copy")
		}
	}
}

// Whoever waits for others' copies counts as idle to them: two lanes that invalidate what
// the other uses do not wait for each other.
func TestInvalidationsOfEachOthersRegionsEnd(t *testing.T) {
	b := newBench(t, 1)
	x, y := b.qp, b.connected(1)
	mrs := [2]*MR{b.fast(x), b.fast(x)}
	for _, m := range mrs {
		b.mr = m
		b.accessAll(x.lane, y.lane)
	}
	invalidate := func(q *QP, m *MR) verbs.Status {
		return q.runLocal(q.lane, &Head{Op: verbs.OpLocalInval, InvKey: m.LKey()}, nil)
	}
	doneX, doneY := make(chan verbs.Status, 1), make(chan verbs.Status, 1)
	y.lane.Lock()
	go func() {
		x.lane.Lock()
		defer x.lane.Unlock()
		doneX <- invalidate(x, mrs[0])
	}()
	until(t, "x waits for y", x.lane.paused.Load)
	go func() { doneY <- invalidate(y, mrs[1]) }() // for this goroutine, which holds y
	until(t, "y finds x idle", func() bool { return len(doneY) > 0 })
	y.lane.Unlock()
	if sx, sy := <-doneX, <-doneY; sx != verbs.StatusSuccess || sy != verbs.StatusSuccess {
		t.Error(sx, sy)
	}
	for _, m := range mrs {
		if m.e.key.Load() != 0 {
			t.Error("a key that was invalidated")
		}
	}
}

// fast makes a valid fast-registration region of the buffer.
func (b *bench) fast(q *QP) *MR {
	b.t.Helper()
	m := must(b.pd.AllocFastMR(4))(b.t).(*MR)
	key := must(m.Map([][]byte{b.buf[:64], b.buf[64:100]}, 0x1000))(b.t)
	q.lane.Lock()
	defer q.lane.Unlock()
	if st := q.runLocal(q.lane, &Head{Op: verbs.OpRegMR, Key: key, Access: everyRight}, nil); st != verbs.StatusSuccess {
		b.t.Fatal(st)
	}
	return m
}

func TestAFastRegionIsBusyWhileItsRegistrationIsQueued(t *testing.T) {
	b := newBench(t, 1)
	m := must(b.pd.AllocFastMR(1))(t).(*MR)
	key := must(m.Map([][]byte{b.buf}, 0))(t)
	b.wire.stall = true
	b.post(1, verbs.OpSend, 0)
	wrs := []verbs.SendWR{{ID: 2, Op: verbs.OpRegMR, Key: key, Access: verbs.AccessLocalWrite}}
	wrs = append(wrs, verbs.SendWR{ID: 3, Op: verbs.OpSend, Flags: signaled, NumSGE: 1})
	wrs[1].SGE[0] = verbs.SGE{LKey: key, Length: 8} // not valid yet, but when its turn comes
	if n, err := b.qp.PostSend(wrs); n != 2 {
		t.Fatal(n, err)
	}
	if _, err := m.Map([][]byte{b.buf}, 0); err != verbs.ErrBusy {
		t.Errorf("Map with a registration outstanding: %v", err)
	}
	b.wire.stall = false
	l := b.qp.Lane()
	l.Lock()
	b.qp.Pump(l)
	l.Unlock()
	if len(b.wire.ids) != 2 || m.LKey() != key {
		t.Fatalf("started %v, key %#x, want %#x", b.wire.ids, m.LKey(), key)
	}
	if _, err := m.Map([][]byte{b.buf}, 0); err != verbs.ErrBusy {
		t.Errorf("Map while valid: %v", err)
	}
}

func TestAFlushedRegistrationCanBeMappedAgain(t *testing.T) {
	b := newBench(t, 1)
	m := must(b.pd.AllocFastMR(1))(t).(*MR)
	key := must(m.Map([][]byte{b.buf}, 0))(t)
	b.wire.stall = true
	b.post(1, verbs.OpSend, 0)
	if n, err := b.qp.PostSend([]verbs.SendWR{{ID: 2, Op: verbs.OpRegMR, Key: key}}); n != 1 {
		t.Fatal(err)
	}
	b.qp.Modify(verbs.QPError)
	if again := must(m.Map([][]byte{b.buf}, 0))(t); again == key || b.enter(b.qp.Lane(), key) != nil {
		t.Error("the key of a flushed registration")
	}
}
