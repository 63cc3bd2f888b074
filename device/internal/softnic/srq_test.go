package softnic

import (
	"testing"

	"kdapl/verbs"
)

// sharer is a QP of an SRQ; its wire counts the wake-ups.
func (b *bench) sharer(s *SRQ) *QP {
	b.t.Helper()
	q := must(b.pd.CreateQP(verbs.QPInit{RecvCQ: b.cq, SRQ: s}))(b.t).(*QP)
	if err := q.Modify(verbs.QPInitialized); err != nil {
		b.t.Fatal(err)
	}
	if err := q.Begin(b.link, nil); err != nil {
		b.t.Fatal(err)
	}
	if !q.Establish(b.link, verbs.ConnEvent{}, nil) {
		b.t.Fatal("not established")
	}
	return q
}

// arrive lets a message arrive.
func arrive(q *QP) Verdict {
	l := q.LockRecv()
	defer l.Unlock()
	return q.TargetSend(l, &Head{Op: verbs.OpSend}, Vec{})
}

func TestAnSRQIsFullOfReceivesAndCompletionsTogether(t *testing.T) {
	b := newBench(t, 1)
	b.cq = must(b.CreateCQ(64, nil))(t).(*CQ)
	other := must(b.CreateCQ(64, nil))(t).(*CQ)
	s := must(b.pd.CreateSRQ(verbs.SRQInit{MaxWR: 8, MaxSGE: 1}))(t).(*SRQ)
	q1 := b.sharer(s)
	b.cq, other = other, b.cq
	q2 := b.sharer(s)
	wrs := make([]verbs.RecvWR, 10)
	if n, err := s.PostRecv(wrs); n != 8 || err != verbs.ErrQueueFull {
		t.Fatal(n, err)
	}
	for i := range 3 {
		if v := arrive(q1); v != Accepted {
			t.Fatal(v)
		}
		if v := arrive(q2); v != Accepted {
			t.Fatal(v)
		}
		if n, err := s.PostRecv(wrs); n != 0 || err != verbs.ErrQueueFull {
			t.Fatalf("with %d completions queued: %d, %v", 2*i+2, n, err)
		}
	}
	var cs [3]verbs.Completion
	if n := b.cq.Poll(cs[:]) + other.Poll(cs[:1]); n != 4 {
		t.Fatal(n)
	}
	if n, err := s.PostRecv(wrs); n != 4 || err != verbs.ErrQueueFull {
		t.Fatalf("after 4 were polled: %d, %v", n, err)
	}
	// A CQ that is gone owes nothing.
	if err := q1.Destroy(); err != nil {
		t.Fatal(err)
	}
	if err := other.Destroy(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.PostRecv(wrs); n != 2 || err != verbs.ErrQueueFull {
		t.Fatalf("after a CQ with 2 was destroyed: %d, %v", n, err)
	}
}

// Receives wake as many waiters as they serve, those that wait longest first, and a QP that
// leaves is not waited for.
func TestReceivesOfAnSRQWakeWaiters(t *testing.T) {
	b := newBench(t, 1)
	s := must(b.pd.CreateSRQ(verbs.SRQInit{MaxWR: 8, MaxSGE: 1}))(t).(*SRQ)
	var qs []*QP
	for range 4 {
		q := b.sharer(s)
		qs = append(qs, q)
		for range 2 {
			if v := arrive(q); v != NotReady {
				t.Fatal(v)
			}
		}
	}
	if len(s.waiters) != 4 {
		t.Fatalf("%d waiters", len(s.waiters))
	}
	qs[1].Modify(verbs.QPError)
	if _, err := s.PostRecv(make([]verbs.RecvWR, 1)); err != nil {
		t.Fatal(err)
	}
	// The fake wire takes nothing, so one receive is offered to all.
	for i, q := range qs {
		if got, want := q.wire.(*fakeWire).ready, map[bool]int{true: 0, false: 1}[i == 1]; got != want {
			t.Errorf("QP %d was woken %d times, want %d", i, got, want)
		}
	}
	if len(s.waiters) != 0 {
		t.Errorf("%d waiters", len(s.waiters))
	}
}
