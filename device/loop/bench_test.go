package loop

import (
	"sync"
	"testing"

	"kdapl/verbs"
)

func BenchmarkSend64(b *testing.B) {
	x, y := newPair(b, Config{}, 16, 4096)
	recv := []verbs.RecvWR{{ID: 1, NumSGE: 1, SGE: [8]verbs.SGE{y.sge(0, 64)}}}
	send := []verbs.SendWR{{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{x.sge(0, 64)}}}
	cs := make([]verbs.Completion, 4)
	b.ReportAllocs()
	for b.Loop() {
		y.qp.PostRecv(recv)
		x.qp.PostSend(send)
		if y.recv.Poll(cs)+x.sendCQ.Poll(cs) != 2 {
			b.Fatal("lost")
		}
	}
}

func BenchmarkWrite8(b *testing.B)  { benchWrite(b, 8) }
func BenchmarkWrite1M(b *testing.B) { benchWrite(b, 1<<20) }

func benchWrite(b *testing.B, size int) {
	x, y := newPair(b, Config{}, 16, size)
	send := []verbs.SendWR{{ID: 2, Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{x.sge(0, size)},
		RemoteKey: y.mr.RKey(), RemoteAddr: 0x10000}}
	cs := make([]verbs.Completion, 4)
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		x.qp.PostSend(send)
		if x.sendCQ.Poll(cs) != 1 {
			b.Fatal("lost")
		}
	}
}

func BenchmarkBaselineCopy1M(b *testing.B) {
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	for b.Loop() {
		copy(x, y)
	}
}

// BenchmarkBaselineMutexRing is what any queue under a mutex costs: one completion in and out.
func BenchmarkBaselineMutexRing(b *testing.B) {
	var mu sync.Mutex
	ring := make([]verbs.Completion, 64)
	var head, tail uint
	var c verbs.Completion
	b.ReportAllocs()
	for b.Loop() {
		mu.Lock()
		ring[tail&63] = c
		tail++
		mu.Unlock()
		mu.Lock()
		c = ring[head&63]
		head++
		mu.Unlock()
	}
}
