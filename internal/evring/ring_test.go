package evring

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func newRing(t testing.TB, capacity int, base uint64) *Ring {
	t.Helper()
	r, err := New(Alloc(capacity), capacity, base)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func push(r *Ring, v uint64) bool {
	r.Lock()
	if r.Frozen() || r.Free() == 0 {
		r.Unlock(0)
		return false
	}
	Store(r.Slot(0), v, 0, 0, 0, ^v)
	r.Unlock(1)
	return true
}

func pop(r *Ring) (uint64, bool) {
	for {
		w, n := r.Ready(1)
		if n == 0 {
			return 0, false
		}
		v, _, _, _, inverse := Load(r.At(w, 0))
		if r.Claim(w, 1) {
			if inverse != ^v {
				panic("torn payload")
			}
			return v, true
		}
	}
}

func move(t testing.TB, r *Ring, capacity int) *Ring {
	r.Lock()
	r.Freeze()
	to := newRing(t, capacity, r.Head())
	to.Lock()
	n, ok := r.MoveTo(to)
	if !ok {
		t.Fatal("no room")
	}
	to.Unlock(n)
	r.Unlock(0)
	return to
}

func TestLayoutIsThatOfTheDocument(t *testing.T) {
	var h header
	if unsafe.Sizeof(h) != headerSize || unsafe.Offsetof(h.tail) != 64 || unsafe.Offsetof(h.base) != 128 || unsafe.Sizeof(Payload{}) != SlotSize {
		t.Fatal("layout changed: foreign consumers and the package document must change too")
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(Alloc(4))))%Align != 0 {
		t.Fatal("Alloc is not aligned")
	}
}

func TestNewRefusesBadMemory(t *testing.T) {
	mem := Alloc(8)
	for name, f := range map[string]func() (*Ring, error){
		"small":       func() (*Ring, error) { return New(mem[:Size(8)-1], 8, 0) },
		"misaligned":  func() (*Ring, error) { return New(mem[1:], 4, 0) },
		"not a power": func() (*Ring, error) { return New(mem, 7, 0) },
		"zero":        func() (*Ring, error) { return New(mem, 0, 0) },
	} {
		if r, err := f(); err == nil || r != nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The ring behaves as a bounded FIFO with absolute positions, through any number of moves
// and generations.
func TestRingIsABoundedFIFO(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		base := rapid.Uint64Range(0, 1<<40).Draw(rt, "base")
		r := newRing(t, Capacity(rapid.IntRange(1, 20).Draw(rt, "capacity")), base)
		var want []uint64
		next, head := uint64(1), base
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				if ok := push(r, next); ok != (len(want) < r.Cap()) {
					rt.Fatalf("push = %v with %d of %d", ok, len(want), r.Cap())
				} else if ok {
					want = append(want, next)
					next++
				}
			},
			"pop": func(rt *rapid.T) {
				w, k := r.Ready(rapid.IntRange(1, 4).Draw(rt, "n"))
				for i := range k {
					if v := r.At(w, i)[0]; v != want[i] {
						rt.Fatalf("got %d, want %d", v, want[i])
					}
				}
				if k == 0 && len(want) != 0 {
					rt.Fatalf("nothing ready of %d", len(want))
				}
				if k > 0 && !r.Claim(w, k) {
					rt.Fatal("claim failed without a rival")
				}
				want, head = want[k:], head+uint64(k)
			},
			"turn": func(rt *rapid.T) {
				w, k := r.Ready(1)
				r.Lock()
				gen := r.Turn()
				r.Unlock(0)
				if k > 0 && r.Claim(w, 1) {
					rt.Fatal("a claim of an earlier generation succeeded")
				}
				if w2, _ := r.Ready(1); Generation(w2) != gen || gen == Generation(w) {
					rt.Fatal("generation did not change")
				}
			},
			"move": func(rt *rapid.T) {
				gen := Generation(r.h.head.Load())
				old := r
				r = move(t, r, Capacity(rapid.IntRange(max(1, len(want)), 40).Draw(rt, "to")))
				if _, ok := pop(old); ok || !old.Frozen() {
					rt.Fatal("a frozen ring gave an event")
				}
				if w, _ := r.Ready(1); Generation(w) != gen {
					rt.Fatal("generation lost")
				}
			},
			"": func(rt *rapid.T) {
				if r.Len() != len(want) || r.Head() != head || r.Tail() != head+uint64(len(want)) || r.Free() != r.Cap()-len(want) {
					rt.Fatalf("len %d head %d tail %d, want %d at %d", r.Len(), r.Head(), r.Tail(), len(want), head)
				}
			},
		})
	})
}

func TestMoveToRefusesTooSmall(t *testing.T) {
	r := newRing(t, 4, 0)
	for v := range uint64(3) {
		push(r, v)
	}
	r.Freeze()
	to := newRing(t, 2, r.Head())
	if _, ok := r.MoveTo(to); ok {
		t.Fatal("moved 3 events into 2 slots")
	}
}

// Concurrent producers, consumers, moves and generations: each event is delivered exactly
// once and each consumer sees the events of a producer in order.
func TestConcurrentConsumersGetEachEventOnce(t *testing.T) {
	const perProducer, producers, consumers = 20_000, 3, 3
	var cur atomic.Pointer[Ring]
	cur.Store(newRing(t, 16, 0))
	var seen [producers * perProducer]atomic.Uint32
	var got atomic.Int64
	var wg sync.WaitGroup
	for range consumers {
		wg.Go(func() {
			last := [producers]int64{-1, -1, -1}
			for got.Load() < producers*perProducer {
				v, ok := pop(cur.Load())
				if !ok {
					runtime.Gosched()
					continue
				}
				p := v / perProducer
				if seen[v].Add(1) != 1 || int64(v) <= last[p] {
					t.Errorf("event %d twice or after %d", v, last[p])
				}
				last[p] = int64(v)
				got.Add(1)
			}
		})
	}
	for p := range uint64(producers) {
		wg.Go(func() {
			for v := p * perProducer; v < (p+1)*perProducer; {
				r := cur.Load()
				if p == 0 && v%500 == 499 {
					r.Lock()
					r.Turn()
					r.Freeze()
					to := newRing(t, max(16<<(v/500%3), Capacity(r.Len())), r.Head())
					to.Lock()
					n, _ := r.MoveTo(to)
					to.Unlock(n)
					cur.Store(to)
					r.Unlock(0)
					r = to
				}
				if push(r, v) {
					v++
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkPushPop(b *testing.B) {
	r := newRing(b, 1024, 0)
	b.ReportAllocs()
	for b.Loop() {
		r.Lock()
		Store(r.Slot(0), 1, 2, 3, 4, 5)
		r.Unlock(1)
		w, _ := r.Ready(1)
		v, _, _, _, _ := Load(r.At(w, 0))
		if !r.Claim(w, 1) || v != 1 {
			b.Fatal("claim failed")
		}
	}
}

// The yardstick: a channel that carries as much.
func BenchmarkChannel(b *testing.B) {
	c := make(chan [6]uint64, 1024)
	var p [6]uint64
	for b.Loop() {
		c <- p
		p = <-c
	}
}
