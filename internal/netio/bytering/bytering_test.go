package bytering

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestRingIsABoundedQueue drives a ring and a plain slice with the same calls.
func TestRingIsABoundedQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 3*firstSize).Draw(t, "limit")
		r := New(limit)
		var want []byte
		next := byte(0)
		fresh := func(n int) []byte {
			b := make([]byte, n)
			for i := range b {
				b[i] = next
				next++
			}
			return b
		}
		size := rapid.IntRange(0, 2*limit)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				a, b := fresh(size.Draw(t, "a")), fresh(size.Draw(t, "b"))
				max := size.Draw(t, "max")
				all := append(bytes.Clone(a), b...)
				n := r.Put([][]byte{a, nil, b}, max)
				if n != min(len(all), max, limit-len(want)) {
					t.Fatalf("put %d", n)
				}
				want = append(want, all[:n]...)
			},
			"get": func(t *rapid.T) {
				a, b := make([]byte, size.Draw(t, "a")), make([]byte, size.Draw(t, "b"))
				max := size.Draw(t, "max")
				n := r.Get([][]byte{a, nil, b}, max)
				if n != min(len(a)+len(b), max, len(want)) {
					t.Fatalf("got %d", n)
				}
				k := min(n, len(a))
				if !bytes.Equal(a[:k], want[:k]) || !bytes.Equal(b[:n-k], want[k:n]) {
					t.Fatal("wrong bytes")
				}
				if !bytes.Equal(a[k:], make([]byte, len(a)-k)) || !bytes.Equal(b[n-k:], make([]byte, len(b)-(n-k))) {
					t.Fatal("bytes behind those that it reports")
				}
				want = want[n:]
			},
			"commit": func(t *rapid.T) {
				space := r.Space()
				if (len(space) == 0) != (len(want) == limit) {
					t.Fatalf("space %d with %d of %d queued", len(space), len(want), limit)
				}
				b := fresh(rapid.IntRange(0, len(space)).Draw(t, "n"))
				copy(space, b)
				r.Commit(len(b))
				want = append(want, b...)
			},
			"discard": func(t *rapid.T) {
				data := r.Data()
				if (len(data) == 0) != (len(want) == 0) || !bytes.Equal(data, want[:len(data)]) {
					t.Fatal("wrong data")
				}
				n := rapid.IntRange(0, len(data)).Draw(t, "n")
				r.Discard(n)
				want = want[n:]
			},
			"truncate": func(t *rapid.T) {
				n := rapid.IntRange(0, len(want)).Draw(t, "n")
				r.Truncate(n)
				want = want[:n]
			},
			"": func(t *rapid.T) {
				if r.Len() != len(want) || r.Free() != limit-len(want) {
					t.Fatalf("len %d, free %d, want %d of %d", r.Len(), r.Free(), len(want), limit)
				}
			},
		})
	})
}

// TestDataSurvivesGrowth is the pump's use: it writes out Data while another goroutine may Put.
func TestDataSurvivesGrowth(t *testing.T) {
	r := New(4 * firstSize)
	first := bytes.Repeat([]byte{1}, firstSize)
	r.Put([][]byte{first}, len(first))
	data := r.Data()
	r.Put([][]byte{bytes.Repeat([]byte{2}, 2*firstSize)}, 2*firstSize)
	if !bytes.Equal(data, first) {
		t.Fatal("growth changed the bytes given out")
	}
	r.Discard(len(data))
	if got := r.Data(); len(got) == 0 || got[0] != 2 {
		t.Fatal("wrong bytes after growth")
	}
}
