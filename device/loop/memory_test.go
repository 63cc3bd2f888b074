package loop

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"kdapl/verbs"
)

// A consumer may watch an aligned word that a peer writes, and then read what was written
// before it. Under -race this shows that both sides agree on how.
func TestAWordMayBeWatched(t *testing.T) {
	a, b := newPair(t, Config{}, 16, 4096)
	word := (*atomic.Uint64)(unsafe.Pointer(&b.buf[1024]))
	go func() {
		cs := make([]verbs.Completion, 4)
		for i := range uint64(2000) {
			for word.Load() != 2*i { // the reader is done with the round before
				runtime.Gosched()
			}
			for k := range 100 {
				a.buf[k] = byte(i)
			}
			binary.NativeEndian.PutUint64(a.buf[104:], 2*i+1)
			a.qp.PostSend([]verbs.SendWR{
				{Op: verbs.OpRDMAWrite, NumSGE: 1, SGE: [8]verbs.SGE{a.sge(0, 100)}, RemoteKey: b.mr.RKey(), RemoteAddr: 0x10000},
				{Op: verbs.OpRDMAWrite, NumSGE: 1, SGE: [8]verbs.SGE{a.sge(104, 8)}, RemoteKey: b.mr.RKey(), RemoteAddr: 0x10000 + 1024, Flags: verbs.SendSignaled},
			})
			a.sendCQ.Poll(cs)
		}
	}()
	for i := range uint64(2000) {
		for word.Load() != 2*i+1 {
			runtime.Gosched()
		}
		for k, x := range b.buf[:100] {
			if x != byte(i) {
				t.Fatalf("round %d: byte %d is %d", i, k, x)
			}
		}
		word.Store(2*i + 2)
	}
}

// Atomics of several QPs and of the consumer itself add up, on aligned memory and on other.
func TestAtomicsAddUp(t *testing.T) {
	d := New(Config{})
	for _, shift := range []int{0, 3} {
		const workers, rounds = 3, 3000
		b := newEnd(t, d, 16, 64)
		mr, err := b.pd.RegMR(b.buf[shift:shift+16], 0x8000, allAccess)
		must(t, err)
		var wg sync.WaitGroup
		for range workers {
			a, peer := newEnd(t, d, 16, 64), newEnd(t, d, 16, 8)
			peer.qp.Destroy()
			peer.qp, err = b.pd.CreateQP(verbs.QPInit{SendCQ: b.sendCQ, RecvCQ: b.recv, Conn: func(ev verbs.ConnEvent) { peer.events <- ev }})
			must(t, err)
			must(t, peer.qp.Modify(verbs.QPInitialized))
			peer.ctx = b.ctx
			connect(t, a, peer)
			wg.Go(func() {
				cs := make([]verbs.Completion, 1)
				wr := verbs.SendWR{Op: verbs.OpFetchAdd, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{a.sge(0, 8)}, RemoteKey: mr.RKey(), RemoteAddr: 0x8000}
				add := func(op verbs.Opcode, compare, swap uint64) uint64 {
					wr.Op, wr.Compare, wr.Swap = op, compare, swap
					if _, err := a.qp.PostSend([]verbs.SendWR{wr}); err != nil || a.sendCQ.Poll(cs) != 1 || cs[0].Status != 0 {
						t.Error(err, cs)
					}
					return binary.NativeEndian.Uint64(a.buf)
				}
				for i := range rounds {
					before := add(verbs.OpFetchAdd, 0, 1)
					for i%2 == 0 { // once more, by compare and swap
						now := add(verbs.OpCompareSwap, before, before+1)
						if now == before {
							break
						}
						before = now
					}
				}
			})
		}
		own := 0
		if shift == 0 {
			for range rounds {
				(*atomic.Uint64)(unsafe.Pointer(&b.buf[0])).Add(1)
				own++
			}
		}
		wg.Wait()
		if got := binary.NativeEndian.Uint64(b.buf[shift:]); got != uint64(workers*rounds*3/2+own) {
			t.Errorf("shift %d: %d, want %d", shift, got, workers*rounds*3/2+own)
		}
	}
}

// Regions come and go under the feet of writers: memory of a region that is gone is not touched
// any more.
func TestNoAccessAfterDereg(t *testing.T) {
	for _, pairs := range []int{1, 7} { // few users of a region, and many
		d := New(Config{})
		b := newEnd(t, d, 16, 64)
		var key atomic.Uint32
		var stop atomic.Bool
		var wg sync.WaitGroup
		for i := range pairs {
			part := 8192 / pairs // of the region: writers do not cross each other
			a := newEnd(t, d, 16, 8192)
			q, err := b.pd.CreateQP(verbs.QPInit{SendCQ: b.sendCQ, RecvCQ: b.recv, Conn: func(verbs.ConnEvent) {}})
			must(t, err)
			for k := range a.buf {
				a.buf[k] = 0xFF
			}
			l, err := b.ctx.Listen(verbs.ListenConfig{Request: func(r verbs.ConnRequest) {
				q.Modify(verbs.QPReset)
				q.Modify(verbs.QPInitialized)
				r.Accept(q, verbs.ConnParams{})
			}})
			must(t, err)
			wg.Go(func() {
				cs := make([]verbs.Completion, 16)
				connected := false
				for !stop.Load() {
					if !connected {
						a.qp.Modify(verbs.QPReset)
						a.qp.Modify(verbs.QPInitialized)
						if err := a.qp.Connect(verbs.ConnParams{Remote: l.Addr()}); err != nil {
							t.Error(err)
							return
						}
						for ev := range a.events {
							if ev.Kind == verbs.ConnEstablished {
								connected = true
								break
							}
							if ev.Kind == verbs.ConnRefused || ev.Kind == verbs.ConnTimedOut {
								t.Error(ev)
								return
							}
						}
						continue
					}
					a.qp.PostSend([]verbs.SendWR{{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{a.sge(0, part)},
						RemoteKey: key.Load(), RemoteAddr: 0x8000 + uint64(i*part)}})
					for _, c := range cs[:a.sendCQ.Poll(cs)] {
						connected = connected && c.Status == verbs.StatusSuccess
					}
					a.recv.Poll(cs)
				}
			})
		}
		cs := make([]verbs.Completion, 64)
		for range 300 {
			buf := make([]byte, 8192)
			mr, err := b.pd.RegMR(buf, 0x8000, allAccess)
			must(t, err)
			key.Store(mr.RKey())
			for range 3 {
				runtime.Gosched()
			}
			must(t, mr.Dereg())
			clear(buf)
			runtime.Gosched()
			for i, x := range buf {
				if x != 0 {
					t.Fatalf("byte %d was written after Dereg had returned", i)
				}
			}
			b.sendCQ.Poll(cs)
			b.recv.Poll(cs)
		}
		stop.Store(true)
		wg.Wait()
		b.ctx.Close()
	}
}

// An end that is connected and idle has little memory of its own: queues that were never used
// have none.
func TestAnIdleQPIsSmall(t *testing.T) {
	d := New(Config{})
	e := newEnd(t, d, 16, 64)
	const n = 2000
	conn := func(verbs.ConnEvent) {}
	var before, after runtime.MemStats
	qs := make([]verbs.QP, 0, 2*n)
	l, err := e.ctx.Listen(verbs.ListenConfig{Backlog: n, Request: func(r verbs.ConnRequest) {
		q, err := e.pd.CreateQP(verbs.QPInit{SendCQ: e.sendCQ, RecvCQ: e.recv, MaxSend: 16, MaxRecv: 16, MaxSendSGE: 4, MaxRecvSGE: 4, Conn: conn})
		if err != nil {
			t.Error(err)
			return
		}
		q.Modify(verbs.QPInitialized)
		if err := r.Accept(q, verbs.ConnParams{}); err != nil {
			t.Error(err)
		}
	}})
	must(t, err)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		q, err := e.pd.CreateQP(verbs.QPInit{SendCQ: e.sendCQ, RecvCQ: e.recv, MaxSend: 16, MaxRecv: 16, MaxSendSGE: 4, MaxRecvSGE: 4, Conn: conn})
		must(t, err)
		must(t, q.Modify(verbs.QPInitialized))
		must(t, q.Connect(verbs.ConnParams{Remote: l.Addr()}))
		qs = append(qs, q)
		// One after the other, so that no crowd of goroutines leaves its traces.
		for end := time.Now().Add(20 * time.Second); q.State() != verbs.QPRTS; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("a QP in %v", q.State())
			}
		}
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / (2 * n)
	t.Logf("%d bytes for each connected QP", each)
	if each > 1000 {
		t.Errorf("%d bytes for each connected QP", each)
	}
	runtime.KeepAlive(qs)
}
