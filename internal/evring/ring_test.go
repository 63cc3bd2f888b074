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
	p := r.Slot(0)
	if p == nil {
		return false
	}
	p[0], p[6] = v, ^v
	r.Publish(1)
	return true
}

func pop(r *Ring) (uint64, bool) {
	pos, n := r.Claim(1)
	if n == 0 {
		return 0, false
	}
	p := r.At(pos)
	v, w := p[0], p[6]
	r.Release(pos)
	if w != ^v {
		panic("torn payload")
	}
	return v, true
}

func TestLayoutIsThatOfTheDocument(t *testing.T) {
	var h header
	if unsafe.Sizeof(h) != headerSize || unsafe.Offsetof(h.tail) != 64 || unsafe.Offsetof(h.base) != 128 || unsafe.Sizeof(slot{}) != SlotSize {
		t.Fatal("layout changed: the C consumer and the package document must change too")
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(Alloc(4))))%Align != 0 {
		t.Fatal("Alloc is not aligned")
	}
}

func TestNewRefusesBadMemory(t *testing.T) {
	mem := Alloc(8)
	for name, f := range map[string]func() (*Ring, error){
		"small":      func() (*Ring, error) { return New(mem[:Size(8)-1], 8, 0) },
		"misaligned": func() (*Ring, error) { return New(mem[1:], 4, 0) },
		"not a power": func() (*Ring, error) {
			return New(mem, 7, 0)
		},
		"zero": func() (*Ring, error) { return New(mem, 0, 0) },
	} {
		if r, err := f(); err == nil || r != nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The ring behaves as a bounded FIFO with absolute positions, through any number of moves.
func TestRingIsABoundedFIFO(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Uint64Range(0, 1<<40).Draw(t, "base")
		capacity := Capacity(rapid.IntRange(1, 20).Draw(t, "capacity"))
		r, _ := New(Alloc(capacity), capacity, base)
		var want []uint64
		next, head := uint64(1), base
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				if ok := push(r, next); ok != (len(want) < r.Cap()) {
					t.Fatalf("push = %v with %d of %d", ok, len(want), r.Cap())
				} else if ok {
					want = append(want, next)
					next++
				}
			},
			"pop": func(t *rapid.T) {
				n := rapid.IntRange(1, 4).Draw(t, "n")
				pos, k := r.Claim(n)
				if k != min(n, len(want)) {
					t.Fatalf("claimed %d of %d", k, len(want))
				}
				for i := range k {
					if v := r.At(pos + uint64(i))[0]; v != want[i] {
						t.Fatalf("got %d, want %d", v, want[i])
					}
					r.Release(pos + uint64(i))
				}
				want, head = want[k:], head+uint64(k)
			},
			"move": func(t *rapid.T) {
				capacity := Capacity(rapid.IntRange(max(1, len(want)), 40).Draw(t, "to"))
				r.Freeze()
				if _, n := r.Claim(1); n != 0 || !r.Frozen() || !r.Quiet() {
					t.Fatal("a frozen ring gave an event, or is not quiet")
				}
				to, _ := New(Alloc(capacity), capacity, r.Head())
				if !r.MoveTo(to) {
					t.Fatal("no room")
				}
				r = to
			},
			"": func(t *rapid.T) {
				if r.Len() != len(want) || r.Head() != head || r.Tail() != head+uint64(len(want)) {
					t.Fatalf("len %d head %d tail %d, want %d at %d", r.Len(), r.Head(), r.Tail(), len(want), head)
				}
			},
		})
	})
}

func TestSlotOfAClaimedEventIsBusyUntilReleased(t *testing.T) {
	r := newRing(t, 2, 0)
	push(r, 1)
	pos, _ := r.Claim(1)
	push(r, 2)
	if push(r, 3) {
		t.Fatal("the producer overwrote an event that a consumer still reads")
	}
	r.Freeze()
	if r.Quiet() {
		t.Fatal("quiet although an event is being read")
	}
	r.Release(pos)
	if !r.Quiet() {
		t.Fatal("not quiet after the release")
	}
}

func TestMoveToRefusesTooSmall(t *testing.T) {
	r := newRing(t, 4, 0)
	for v := range uint64(3) {
		push(r, v)
	}
	r.Freeze()
	to := newRing(t, 2, r.Head())
	if r.MoveTo(to) || to.Len() != 0 {
		t.Fatal("moved 3 events into 2 slots")
	}
}

// Concurrent consumers, a producer and moves: each event is delivered exactly once and each
// consumer sees ascending events.
func TestConcurrentConsumersGetEachEventOnce(t *testing.T) {
	const events, consumers = 50_000, 4
	var cur atomic.Pointer[Ring]
	cur.Store(newRing(t, 16, 0))
	var seen [events]atomic.Uint32
	var got atomic.Int64
	var wg sync.WaitGroup
	for range consumers {
		wg.Go(func() {
			last := int64(-1)
			for got.Load() < events {
				v, ok := pop(cur.Load())
				if !ok {
					runtime.Gosched()
					continue
				}
				if seen[v].Add(1) != 1 || int64(v) <= last {
					t.Errorf("event %d twice or after %d", v, last)
				}
				last = int64(v)
				got.Add(1)
			}
		})
	}
	for v := uint64(0); v < events; {
		r := cur.Load()
		if v%1000 == 999 {
			r.Freeze()
			to := newRing(t, max(16<<(v/1000%3), Capacity(r.Len())), r.Head())
			if !r.MoveTo(to) {
				t.Fatal("no room")
			}
			cur.Store(to)
			r = to
		}
		if push(r, v) {
			v++
		} else {
			runtime.Gosched()
		}
	}
	wg.Wait()
}

func BenchmarkPushPop(b *testing.B) {
	r := newRing(b, 1024, 0)
	b.ReportAllocs()
	for b.Loop() {
		push(r, 1)
		pop(r)
	}
}
