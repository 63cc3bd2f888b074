package softnic

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func TestSealIsABijection(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		u := func(name string) uint32 { return rapid.Uint32().Draw(rt, name) }
		s := makeSeal(u("x0"), u("m0"), u("m1"), u("x1"))
		n := u("n")
		if got := s.open(s.close(n)); got != n {
			rt.Fatalf("open(close(%#x)) = %#x", n, got)
		}
		if got := s.close(s.open(n)); got != n {
			rt.Fatalf("close(open(%#x)) = %#x", n, got)
		}
	})
}

func TestAnyNumberCanBeLookedUp(t *testing.T) {
	kt := newKeyTable(1000)
	r := rand.New(rand.NewPCG(1, 2))
	look := func() {
		for range 10000 {
			if e := kt.at(r.Uint32()); e != nil && e.key.Load() != 0 {
				t.Fatal("an entry without a key has one")
			}
		}
		for _, k := range []uint32{0, 1, math.MaxInt32, 1 << 31, math.MaxUint32} {
			kt.at(k)
		}
	}
	look()
	for range 500 {
		kt.alloc()
	}
	look()
}

// A stranger who knows one key has nothing from its neighbours, and the keys are all over
// the range.
func TestKeysAreSparse(t *testing.T) {
	kt := newKeyTable(4096)
	var quarter [4]int
	for range 4096 {
		e := kt.alloc()
		k := kt.draw(e)
		e.key.Store(k)
		quarter[k>>30]++
	}
	neighbours := 0
	for i := range kt.next {
		c := *kt.chunks.Load()
		k := c[i>>chunkBits][i&(chunkLen-1)].key.Load()
		for _, d := range []uint32{1, ^uint32(0), 1 << 8, 1 << 16, 1 << 24} {
			if e := kt.at(k + d); e != nil && e.key.Load() == k+d {
				neighbours++
			}
		}
	}
	if neighbours > 5 {
		t.Errorf("%d of %d numbers near keys are keys", neighbours, 5*4096)
	}
	for q, n := range quarter {
		if n < 4096/8 {
			t.Errorf("%d of 4096 keys in quarter %d of the range", n, q)
		}
	}
}

// The table against a model: an index is in use once, its keys do not come again soon, and a
// freed index rests.
func TestKeyTableKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const limit = 200
		kt := newKeyTable(limit)
		var used []*entry
		live := map[uint32]bool{}
		lastKeys := map[uint32][]uint32{}
		freed := map[uint32]int{} // when an index was freed, in frees
		frees := 0
		rt.Repeat(map[string]func(*rapid.T){
			"alloc": func(rt *rapid.T) {
				for range rapid.IntRange(1, 60).Draw(rt, "n") {
					e := kt.alloc()
					if (e == nil) != (len(used) == limit) {
						rt.Fatalf("alloc with %d of %d in use: %v", len(used), limit, e)
					}
					if e == nil {
						return
					}
					if live[e.index] {
						rt.Fatalf("index %d is in use twice", e.index)
					}
					if at, ok := freed[e.index]; ok && frees-at < quarantine-1 {
						rt.Fatalf("index %d was used again after %d others were freed", e.index, frees-at)
					}
					live[e.index] = true
					used = append(used, e)
				}
			},
			"free": func(rt *rapid.T) {
				for range rapid.IntRange(1, 60).Draw(rt, "n") {
					if len(used) == 0 {
						return
					}
					i := rapid.IntRange(0, len(used)-1).Draw(rt, "i")
					e := used[i]
					used = append(used[:i], used[i+1:]...)
					delete(live, e.index)
					frees++
					freed[e.index] = frees
					e.key.Store(0)
					kt.free(e)
				}
			},
			"draw": func(rt *rapid.T) {
				if len(used) == 0 {
					return
				}
				e := used[rapid.IntRange(0, len(used)-1).Draw(rt, "i")]
				k := kt.draw(e)
				if k == 0 || kt.at(k) != e || kt.generation(k) != e.drawn {
					rt.Fatalf("key %#x of index %d", k, e.index)
				}
				for _, old := range lastKeys[e.index] {
					if old == k {
						rt.Fatalf("key %#x came again after %d draws", k, len(lastKeys[e.index]))
					}
				}
				lastKeys[e.index] = append(lastKeys[e.index], k)
			},
		})
	})
}

// Not even in a table that is almost full is a freed index the next to be used.
func TestAFreedIndexRests(t *testing.T) {
	kt := newKeyTable(2)
	kt.alloc()
	for range 3 * quarantine {
		e := kt.alloc()
		kt.free(e)
		if f := kt.alloc(); f == e {
			t.Fatal("used again at once")
		} else {
			kt.free(f)
		}
	}
	if kt.next > 2*quarantine {
		t.Errorf("%d indices for two entries", kt.next)
	}
}

func TestAKeyComesAgainAfterTheGenerationsAtTheEarliest(t *testing.T) {
	kt := newKeyTable(1)
	e := kt.alloc()
	first := kt.draw(e)
	for i := range genMask - 1 {
		if kt.draw(e) == first {
			t.Fatalf("the same key after %d draws", i+1)
		}
	}
}

func BenchmarkKeyLookup(b *testing.B) {
	kt := newKeyTable(1000)
	for range 500 {
		kt.alloc()
	}
	e := kt.alloc()
	k := kt.draw(e)
	e.key.Store(k)
	for b.Loop() {
		if f := kt.at(k); f.key.Load() != k {
			b.Fatal("not found")
		}
	}
}
