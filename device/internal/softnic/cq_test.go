package softnic

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"kdapl/verbs"
)

// The CQ against a model: a list, an armed kind, and a count of notifications that are due.
func TestCQAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newContext(t)
		notes := 0
		wish := rapid.IntRange(1, 40).Draw(rt, "cqe")
		cq := must(c.CreateCQ(wish, func() { notes++ }))(t).(*CQ)
		pd := must(c.AllocPD())(t)
		q := must(pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1, UserData: 77}))(t).(*QP)
		l := new(Lane)
		type entry struct {
			id   uint64
			loud bool
			mark bool
		}
		var list []entry
		armed := armedNot
		due, failed := 0, false
		marks := func() (n int) {
			for _, e := range list {
				if e.mark {
					n++
				}
			}
			return n
		}
		arrive := func(e entry) {
			list = append(list, e)
			if armed == armedNext || armed == armedSolicited && e.loud {
				armed = armedNot
				due++
			}
		}
		id := uint64(0)
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				id++
				st := rapid.SampledFrom([]verbs.Status{0, 0, 0, verbs.StatusFlushed}).Draw(rt, "status")
				f := rapid.SampledFrom([]verbs.CompletionFlags{0, verbs.CompletionSolicited, verbs.CompletionRecvQueue}).Draw(rt, "flags")
				before := len(list) - marks()
				l.Lock()
				cq.push(l, q.sowner, id, packWhat(verbs.OpSend, st, f), uint32(id), id<<32|uint64(uint32(id)))
				l.Unlock()
				if cq.Peek(1000) > len(list) {
					if failed {
						rt.Fatal("a failed CQ grew")
					}
					arrive(entry{id, st != 0 || f&verbs.CompletionSolicited != 0, false})
				} else {
					if before < cq.Cap() && !failed {
						rt.Fatalf("overflow with %d of %d", before, cq.Cap())
					}
					failed = true
				}
			},
			"mark": func(rt *rapid.T) {
				l.Lock()
				cq.mark(l, q.rowner, verbs.CompletionRecvQueue)
				l.Unlock()
				if cq.Peek(1000) > len(list) {
					arrive(entry{0, true, true})
				} else if !failed {
					rt.Fatal("no room for a mark")
				}
			},
			"poll": func(rt *rapid.T) {
				dst := make([]verbs.Completion, rapid.IntRange(0, 20).Draw(rt, "n"))
				n := cq.Poll(dst)
				if n != min(len(dst), len(list)) {
					rt.Fatalf("Poll of %d with %d queued: %d", len(dst), len(list), n)
				}
				for i, comp := range dst[:n] {
					e := list[i]
					want := verbs.Completion{ID: e.id, UserData: 77, QPN: q.num, Length: uint32(e.id), Imm: uint32(e.id), InvKey: uint32(e.id),
						Op: verbs.OpSend, Status: comp.Status, Flags: comp.Flags}
					if e.mark {
						want.Op = verbs.OpDrained
					}
					if comp != want {
						rt.Fatalf("completion %+v, want %+v", comp, want)
					}
				}
				list = list[n:]
			},
			"arm": func(rt *rapid.T) {
				kind := rapid.SampledFrom([]verbs.ArmKind{verbs.ArmNext, verbs.ArmSolicited}).Draw(rt, "kind")
				ready := len(list) > 0
				if kind == verbs.ArmSolicited {
					ready = false
					for _, e := range list {
						ready = ready || e.loud
					}
				}
				if got := cq.Arm(kind); got != ready {
					rt.Fatalf("Arm: ready is %v, want %v", got, ready)
				}
				if !ready {
					if kind == verbs.ArmNext {
						armed = armedNext
					} else {
						armed = max(armed, armedSolicited)
					}
				}
			},
			"resize": func(rt *rapid.T) {
				n := rapid.IntRange(1, 64).Draw(rt, "n")
				err := cq.Resize(n)
				if busy := len(list)-marks() > ceilPow2(n); (err == verbs.ErrBusy) != busy || err != nil && !busy {
					rt.Fatalf("Resize to %d with %d: %v", n, len(list), err)
				}
			},
			"": func(rt *rapid.T) {
				if notes != due {
					rt.Fatalf("%d notifications, want %d", notes, due)
				}
				if n := cq.Peek(1000); n != len(list) {
					rt.Fatalf("Peek is %d, want %d", n, len(list))
				}
			},
		})
	})
}

// Several goroutines add and take; everything arrives once, what one adds in its order.
func TestCQUnderContention(t *testing.T) {
	c := newContext(t)
	const producers, each = 3, 20000
	cq := must(c.CreateCQ(1000, nil))(t).(*CQ)
	pd := must(c.AllocPD())(t)
	var wg sync.WaitGroup
	var room, taken atomic.Int64
	room.Store(1000)
	for p := range producers {
		q := must(pd.CreateQP(verbs.QPInit{SendCQ: cq, MaxSend: 1, UserData: uint64(p)}))(t).(*QP)
		wg.Go(func() {
			l := new(Lane)
			for id := range uint64(each) {
				for room.Add(-1) < 0 {
					room.Add(1)
					runtime.Gosched()
				}
				l.Lock()
				cq.push(l, q.sowner, id, packWhat(verbs.OpSend, 0, 0), 0, 0)
				l.Unlock()
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			var last [producers]uint64
			buf := make([]verbs.Completion, 7)
			for taken.Load() < producers*each {
				n := cq.Poll(buf)
				if n == 0 {
					runtime.Gosched()
				}
				for _, comp := range buf[:n] {
					if comp.ID < last[comp.UserData] {
						t.Errorf("%d of producer %d after %d", comp.ID, comp.UserData, last[comp.UserData])
					}
					last[comp.UserData] = comp.ID
				}
				taken.Add(int64(n))
				room.Add(int64(n))
			}
		})
	}
	wg.Wait()
	if n := cq.Peek(10); n != 0 || taken.Load() != producers*each {
		t.Errorf("%d taken, %d left", taken.Load(), n)
	}
}

// Notifications of more CQs than the lane has places for are all delivered, after the unlock.
func TestNotificationsComeAfterTheUnlock(t *testing.T) {
	c := newContext(t)
	pd := must(c.AllocPD())(t)
	l := new(Lane)
	notes := 0
	var cqs []*CQ
	var qs []*QP
	for range 7 {
		cq := must(c.CreateCQ(4, func() {
			if !l.mu.TryLock() {
				t.Error("the lane is held in a notification")
				return
			}
			l.mu.Unlock()
			notes++
		}))(t).(*CQ)
		cq.Arm(verbs.ArmNext)
		cqs = append(cqs, cq)
		qs = append(qs, must(pd.CreateQP(verbs.QPInit{SendCQ: cq, MaxSend: 1}))(t).(*QP))
	}
	l.Lock()
	for i, cq := range cqs {
		cq.push(l, qs[i].sowner, 1, packWhat(verbs.OpSend, 0, 0), 0, 0)
	}
	if notes != 0 {
		t.Error("notified with the lane held")
	}
	l.Unlock()
	if notes != len(cqs) {
		t.Errorf("%d notifications of %d", notes, len(cqs))
	}
}
