package dat_test

import (
	"testing"
	"time"
	"unsafe"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Posts, completions, dequeues, waits and upcalls allocate nothing, and an event is small enough to be passed by value.

func TestAnEventIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(dat.Event{}); n > 80 {
		t.Fatalf("%d bytes", n)
	}
}

func TestDataPathsAllocateNothing(t *testing.T) {
	const depth = 64
	deep := func(a *dat.EPAttr) {
		a.MaxRecvDTOs, a.MaxRequestDTOs = depth, depth
		a.RequestCompletionFlags = dat.CompletionUnsignalled
	}
	p := newPair(t, pairConfig{loop: loop.Config{Completion: verbs.RemoteAcked}, attr: deep, evd: dat.EVDConfig{MinLen: 16}}).connect(t)
	soft := newEVD(t, p.a.ia, dat.EVDConfig{})
	remote, local := p.b.lmr.RMRTriplet(0, 64), p.a.lmr.Triplet(0, 64)
	two := []dat.LMRTriplet{p.a.lmr.Triplet(0, 8), p.a.lmr.Triplet(64, 8)}
	list := make([]dat.Request, 40)
	for i := range list {
		list[i] = dat.Request{Op: dat.OpRDMAWrite, Cookie: uint64(i), Remote: remote, Local: two}
	}
	recvs := make([]dat.Receive, 40)
	for i := range recvs {
		recvs[i] = dat.Receive{Local: []dat.LMRTriplet{p.b.lmr.Triplet(8*i, 8)}}
	}
	buf := make([]dat.Event, depth)
	var ev [1]dat.Event
	called := make(chan bool, 1)
	upcall := func(dat.Event, bool) { called <- true }
	wake := func(t *testing.T, e *dat.EVD, p dat.UpcallPolicy) {
		ok(t, e.ModifyUpcall(p, upcall, dat.InvocNew))
	}
	take := func(t *testing.T, e *dat.EVD, n int) {
		for n > 0 {
			got := e.DequeueInto(buf)
			if n -= got; got == 0 {
				t.Fatalf("%d events are missing", n)
			}
		}
	}
	for _, c := range []struct {
		name string
		run  func(t *testing.T)
		prep func(t *testing.T)
	}{
		{"PostSE and Dequeue", func(t *testing.T) {
			soft.PostSE(1)
			if _, err := soft.Dequeue(); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"PostSE and DequeueInto where completions come too", func(t *testing.T) {
			p.a.evd.PostSE(1)
			if p.a.evd.DequeueInto(ev[:]) != 1 {
				t.Fatal("nothing")
			}
		}, nil},
		{"an empty Dequeue", func(t *testing.T) {
			if _, err := p.a.evd.Dequeue(); err != dat.ErrQueueEmpty {
				t.Fatal(err)
			}
		}, nil},
		{"PostSE on a full EVD", func(t *testing.T) {
			for soft.PostSE(1) == nil {
			}
		}, nil},
		{"send, receive and their events", func(t *testing.T) {
			ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 64)))
			ok(t, p.a.ep.PostSend(2, 0, local))
			take(t, p.a.evd, 1)
			take(t, p.b.evd, 1)
		}, nil},
		{"a send that waits for its receive", func(t *testing.T) {
			ok(t, p.a.ep.PostSend(2, 0, two...))
			ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 8), p.b.lmr.Triplet(16, 64)))
			take(t, p.a.evd, 1)
			take(t, p.b.evd, 1)
		}, nil},
		{"RDMA write and read", func(t *testing.T) {
			ok(t, p.a.ep.PostRDMAWrite(1, 0, remote, local))
			ok(t, p.a.ep.PostRDMARead(2, 0, remote, local))
			take(t, p.a.evd, 2)
		}, nil},
		{"suppressed and unsignalled writes", func(t *testing.T) {
			for range depth {
				ok(t, p.a.ep.PostRDMAWrite(1, dat.CompletionSuppress, remote, local))
			}
			ok(t, p.a.ep.PostRDMAWrite(1, dat.CompletionUnsignalled, remote, local))
			take(t, p.a.evd, 1)
		}, nil},
		{"a full queue", func(t *testing.T) {
			for p.a.ep.PostRDMAWrite(1, 0, remote, local) == nil {
			}
			take(t, p.a.evd, depth)
		}, nil},
		{"lists", func(t *testing.T) {
			if n, err := p.b.ep.PostRecvs(recvs); n != len(recvs) {
				t.Fatal(n, err)
			}
			if n, err := p.a.ep.Post(list); n != len(list) {
				t.Fatal(n, err)
			}
			take(t, p.a.evd, len(list))
			for range recvs {
				ok(t, p.a.ep.PostSend(2, dat.CompletionSuppress, p.a.lmr.Triplet(0, 8)))
			}
			take(t, p.b.evd, len(recvs))
		}, nil},
		{"Wait for what is there", func(t *testing.T) {
			ok(t, p.a.ep.PostRDMAWrite(1, 0, remote, local))
			if _, _, err := p.a.evd.Wait(background, 1, time.Second); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"Wait that times out", func(t *testing.T) {
			if _, _, err := p.a.evd.Wait(background, 1, time.Microsecond); err != dat.ErrTimeout {
				t.Fatal(err)
			}
			if _, _, err := p.a.evd.Wait(background, 1, 0); err != dat.ErrTimeout {
				t.Fatal(err)
			}
		}, nil},
		{"an upcall of SINGLE_INSTANCE", func(t *testing.T) { soft.PostSE(1); <-called }, func(t *testing.T) { wake(t, soft, dat.UpcallSingleInstance) }},
		{"an upcall of MANY", func(t *testing.T) { soft.PostSE(1); <-called }, func(t *testing.T) { wake(t, soft, dat.UpcallMany) }},
		{"an upcall of NOTIFY, armed again", func(t *testing.T) {
			soft.PostSE(1)
			<-called
			soft.DequeueInto(ev[:])
			soft.ModifyUpcall(dat.UpcallNotify, nil, dat.InvocNew)
		}, func(t *testing.T) { wake(t, soft, dat.UpcallNotify) }},
		{"an upcall of a completion", func(t *testing.T) {
			ok(t, p.a.ep.PostRDMAWrite(1, 0, remote, local))
			<-called
		}, func(t *testing.T) { wake(t, p.a.evd, dat.UpcallSingleInstance) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range soft.Drain() {
			}
			if c.prep != nil {
				c.prep(t)
			}
			if n := testing.AllocsPerRun(200, func() { c.run(t) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
			ok(t, soft.Teardown(background))
			ok(t, p.a.evd.Teardown(background))
		})
	}
}

// A wait that sleeps, and is woken by a post, allocates nothing either.
func TestAWaitThatSleepsAllocatesNothing(t *testing.T) {
	ia := openIA(t, newLoop(), dat.Config{Spin: -1})
	a, b := newEVD(t, ia, dat.EVDConfig{}), newEVD(t, ia, dat.EVDConfig{})
	go func() {
		for {
			ev, _, err := a.Wait(background, 1, dat.Infinite)
			if err != nil || ev.Software() == 0 {
				return
			}
			b.PostSE(ev.Software())
		}
	}()
	n := testing.AllocsPerRun(200, func() {
		ok(t, a.PostSE(1))
		if _, _, err := b.Wait(background, 1, time.Minute); err != nil {
			t.Fatal(err)
		}
	})
	ok(t, a.PostSE(0))
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
