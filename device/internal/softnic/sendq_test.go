package softnic

import (
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"kdapl/verbs"
)

const signaled = verbs.SendSignaled

// Head is laid over the start of a SendWR.
func TestHeadIsTheStartOfASendWR(t *testing.T) {
	var h Head
	var w verbs.SendWR
	for name, o := range map[string][2]uintptr{
		"ID": {unsafe.Offsetof(h.ID), unsafe.Offsetof(w.ID)}, "Op": {unsafe.Offsetof(h.Op), unsafe.Offsetof(w.Op)},
		"Flags": {unsafe.Offsetof(h.Flags), unsafe.Offsetof(w.Flags)}, "Access": {unsafe.Offsetof(h.Access), unsafe.Offsetof(w.Access)},
		"NumSGE": {unsafe.Offsetof(h.NumSGE), unsafe.Offsetof(w.NumSGE)}, "Imm": {unsafe.Offsetof(h.Imm), unsafe.Offsetof(w.Imm)},
		"InvKey": {unsafe.Offsetof(h.InvKey), unsafe.Offsetof(w.InvKey)}, "Key": {unsafe.Offsetof(h.Key), unsafe.Offsetof(w.Key)},
		"RemoteKey": {unsafe.Offsetof(h.RemoteKey), unsafe.Offsetof(w.RemoteKey)}, "AH": {unsafe.Offsetof(h.AH), unsafe.Offsetof(w.AH)},
		"RemoteAddr": {unsafe.Offsetof(h.RemoteAddr), unsafe.Offsetof(w.RemoteAddr)}, "Swap": {unsafe.Offsetof(h.Swap), unsafe.Offsetof(w.Swap)},
		"Compare": {unsafe.Offsetof(h.Compare), unsafe.Offsetof(w.Compare)}, "RemoteQPN": {unsafe.Offsetof(h.RemoteQPN), unsafe.Offsetof(w.RemoteQPN)},
		"QKey": {unsafe.Offsetof(h.QKey), unsafe.Offsetof(w.QKey)}, "end": {unsafe.Sizeof(h), unsafe.Offsetof(w.SGE)},
	} {
		if o[0] != o[1] {
			t.Errorf("%s is at %d in Head, at %d in SendWR", name, o[0], o[1])
		}
	}
}

func TestRequestsThatEndOutOfOrderCompleteInOrder(t *testing.T) {
	b := newBench(t, 4)
	for id := uint64(1); id <= 4; id++ {
		b.post(id, verbs.OpSend, signaled)
	}
	b.wire.finish(2, 0)
	b.wire.finish(1, 0)
	b.wantIDs()
	b.wire.finish(0, 0)
	b.wantIDs(1, 2, 3)
	b.wire.finish(3, 0)
	b.wantIDs(4)
	b.wire.finish(3, 0) // late news
	b.wantIDs()
}

func TestReadsWaitForTheAgreedDepthAndFencesForReads(t *testing.T) {
	b := newBench(t, 2)
	for id := uint64(1); id <= 3; id++ {
		b.post(id, verbs.OpRDMARead, signaled)
	}
	b.post(4, verbs.OpSend, signaled|verbs.SendFence)
	b.post(5, verbs.OpSend, signaled)
	if len(b.wire.started) != 2 {
		t.Fatalf("%d requests started, want the two reads of the depth", len(b.wire.started))
	}
	b.wire.finish(0, 0)
	if len(b.wire.started) != 3 {
		t.Fatalf("%d requests started, want the third read", len(b.wire.started))
	}
	b.wire.finish(1, 0)
	if len(b.wire.started) != 3 {
		t.Fatal("a fenced request has passed a read")
	}
	b.wire.finish(2, 0)
	if len(b.wire.started) != 5 {
		t.Fatalf("%d requests started, want all", len(b.wire.started))
	}
	b.wire.finish(4, 0)
	b.wire.finish(3, 0)
	b.wantIDs(1, 2, 3, 4, 5)
}

func TestReadsWithoutDepthAreRefused(t *testing.T) {
	b := newBench(t, 0)
	wr := verbs.SendWR{Op: verbs.OpRDMARead, NumSGE: 1}
	wr.SGE[0] = b.sge(0, 8)
	if n, err := b.qp.PostSend([]verbs.SendWR{wr}); n != 0 || err != verbs.ErrInvalid {
		t.Errorf("%d, %v", n, err)
	}
}

func TestASendQueueIsFullOfRequestsAndCompletionsTogether(t *testing.T) {
	b := newBench(t, 1)
	for id := uint64(1); id <= 32; id++ {
		b.post(id, verbs.OpSend, signaled)
	}
	wr := []verbs.SendWR{{Op: verbs.OpSend}}
	for i := range 32 {
		b.wire.finish(i, 0)
		if n, err := b.qp.PostSend(wr); n != 0 || err != verbs.ErrQueueFull {
			t.Fatalf("with %d completions queued: %d, %v", i+1, n, err)
		}
	}
	var one [1]verbs.Completion
	b.cq.Poll(one[:])
	if n, err := b.qp.PostSend(wr); n != 1 || err != nil {
		t.Fatalf("after a poll: %d, %v", n, err)
	}
	if n, err := b.qp.PostSend(wr); n != 0 || err != verbs.ErrQueueFull {
		t.Fatalf("after a poll and a post: %d, %v", n, err)
	}
}

// A failure completes in its turn, ends the connection, and what is behind it is flushed, even
// what had been done before.
func TestAFailureFlushesWhatIsBehindIt(t *testing.T) {
	b := newBench(t, 1)
	for id := uint64(1); id <= 4; id++ {
		b.post(id, verbs.OpSend, signaled)
	}
	b.wire.finish(2, verbs.StatusSuccess)
	b.wire.finish(1, verbs.StatusRemoteAccess)
	b.wantIDs()
	b.wire.finish(0, verbs.StatusSuccess)
	cs := b.wantIDs(1, 2, 3, 4, 0, 0)
	for i, st := range []verbs.Status{verbs.StatusSuccess, verbs.StatusRemoteAccess, verbs.StatusFlushed, verbs.StatusFlushed} {
		if cs[i].Status != st {
			t.Errorf("completion %v, want %v", cs[i], st)
		}
	}
	if ev := <-b.events; ev.Kind != verbs.ConnBroken || b.link.ended != 1 {
		t.Errorf("event %v, the link ended %d times", ev, b.link.ended)
	}
}

func TestAGracefulEndWaitsForRunningRequests(t *testing.T) {
	b := newBench(t, 1)
	b.post(1, verbs.OpRDMARead, signaled)
	b.post(2, verbs.OpSend, signaled)
	if err := b.qp.Disconnect(true); err != nil {
		t.Fatal(err)
	}
	if n, err := b.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend}}); n != 0 || err != verbs.ErrState {
		t.Errorf("a post while draining: %d, %v", n, err)
	}
	b.wire.finish(1, 0)
	if b.link.drained != 0 {
		t.Fatal("drained with a read under way")
	}
	b.wire.finish(0, 0)
	if b.link.drained != 1 {
		t.Fatalf("drained %d times", b.link.drained)
	}
	b.wantIDs(1, 2, 0, 0)
	if ev := <-b.events; ev.Kind != verbs.ConnDisconnected {
		t.Error(ev)
	}
}

func TestGiveUpFailsTheRequestThatCannotStart(t *testing.T) {
	b := newBench(t, 1)
	b.wire.stall = true
	b.post(1, verbs.OpSend, 0)
	b.post(2, verbs.OpSend, signaled)
	l := b.qp.Lane()
	l.Lock()
	b.qp.GiveUp(l, verbs.StatusRNRRetryExceeded, errOverflow)
	b.qp.GiveUp(l, verbs.StatusRNRRetryExceeded, errOverflow) // too late
	l.Unlock()
	cs := b.wantIDs(1, 2, 0, 0)
	if cs[0].Status != verbs.StatusRNRRetryExceeded || cs[1].Status != verbs.StatusFlushed {
		t.Error(cs)
	}
	if ev := <-b.events; ev.Err != errOverflow {
		t.Error(ev)
	}
}

// Any mix of requests, endings and ends of the connection completes each signalled or failed
// request once, in order, with the marks behind.
func TestAnyOrderOfEndingsKeepsTheAccount(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, 3)
		type request struct {
			id       uint64
			signaled bool
		}
		var posted []request
		var seen []verbs.Completion
		running := map[int]bool{}
		known := 0
		over := false
		note := func() {
			for ; known < len(b.wire.started); known++ {
				running[known] = true
			}
			seen = append(seen, b.poll()...)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"post": func(rt *rapid.T) {
				if len(posted)-len(seen) > 25 {
					return
				}
				r := request{uint64(len(posted) + 1), rapid.Bool().Draw(rt, "signaled")}
				f := verbs.SendFlags(0)
				if r.signaled {
					f = signaled
				}
				if rapid.IntRange(0, 9).Draw(rt, "fence") == 0 {
					f |= verbs.SendFence
				}
				op := rapid.SampledFrom([]verbs.Opcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMARead}).Draw(rt, "op")
				wr := verbs.SendWR{ID: r.id, Op: op, Flags: f, NumSGE: 1}
				wr.SGE[0] = b.sge(0, 8)
				if n, _ := b.qp.PostSend([]verbs.SendWR{wr}); n == 1 {
					posted = append(posted, r)
				}
				note()
			},
			"finish": func(rt *rapid.T) {
				for i := range len(b.wire.started) {
					if running[i] && rapid.IntRange(0, 2).Draw(rt, "pick") == 0 {
						delete(running, i)
						st := verbs.StatusSuccess
						if rapid.IntRange(0, 30).Draw(rt, "fail") == 0 {
							st, over = verbs.StatusRemoteOp, true
						}
						b.wire.finish(i, st)
						break
					}
				}
				note()
			},
			"end": func(rt *rapid.T) {
				if rapid.IntRange(0, 9).Draw(rt, "end") == 0 {
					over = true
					b.qp.Modify(verbs.QPError)
				}
				note()
			},
		})
		if !over {
			b.qp.Modify(verbs.QPError)
			note()
		}
		b.qp.Modify(verbs.QPError) // a failure that was in the middle of the queue
		note()
		marks, next := 0, 0
		for _, c := range seen {
			if c.Op == verbs.OpDrained {
				marks++
				continue
			}
			for next < len(posted) && posted[next].id != c.ID {
				if posted[next].signaled {
					rt.Fatalf("request %d has no completion before %v", posted[next].id, c)
				}
				next++
			}
			if next == len(posted) {
				rt.Fatalf("%v is out of order or a second one", c)
			}
			next++
		}
		for ; next < len(posted); next++ {
			if posted[next].signaled {
				rt.Fatalf("request %d has no completion", posted[next].id)
			}
		}
		if marks != 2 {
			rt.Fatalf("%d marks", marks)
		}
	})
}
