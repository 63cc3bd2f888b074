package softnic

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// split cuts b into a Vec of random pieces, some of them empty.
func split(r *rand.Rand, b []byte) Vec {
	if r.IntN(3) == 0 {
		return VecOf(b)
	}
	var ps [][]byte
	for len(b) > 0 {
		n := min(len(b), r.IntN(9))
		ps = append(ps, b[:n])
		b = b[n:]
	}
	return Vec{more: &ps}
}

func TestCopyBetweenAnyPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		n := r.IntN(50)
		src, dst := make([]byte, n), make([]byte, n+20)
		for i := range src {
			src[i] = byte(r.IntN(255) + 1)
		}
		off := r.IntN(20)
		s, d := split(r, src), split(r, dst[:n+off])
		if s.Len() != n || d.Len() != n+off {
			t.Fatalf("lengths %d and %d", s.Len(), d.Len())
		}
		copyAt(d, off, s)
		want := make([]byte, n+20)
		copy(want[off:], src)
		if !bytes.Equal(dst, want) {
			t.Fatalf("%d bytes to offset %d: got %x, want %x", n, off, dst, want)
		}
	}
}

// cut finds the pieces of any range of a region of pieces.
func TestCutFindsEveryRange(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var whole []byte
		e := new(entry)
		for range rapid.IntRange(1, 6).Draw(rt, "pieces") {
			p := make([]byte, rapid.IntRange(1, 10).Draw(rt, "len"))
			for i := range p {
				p[i] = byte(len(whole) + i)
			}
			whole = append(whole, p...)
			e.pieces = append(e.pieces, p)
			e.ends = append(e.ends, uint64(len(whole)))
		}
		e.skip = uint64(rapid.IntRange(0, len(whole)-1).Draw(rt, "skip"))
		e.size = uint64(len(whole)) - e.skip
		whole = whole[e.skip:]
		for off := range len(whole) {
			for n := 1; off+n <= len(whole); n++ {
				var got []byte
				for _, p := range e.cut(nil, uint64(off), uint64(n)) {
					if len(p) == 0 {
						rt.Fatal("an empty piece")
					}
					got = append(got, p...)
				}
				if !bytes.Equal(got, whole[off:off+n]) {
					rt.Fatalf("%d bytes at %d: %x", n, off, got)
				}
			}
		}
	})
}

// locate against a model with numbers that cannot wrap, at every border.
func TestLocateAtTheBorders(t *testing.T) {
	edge := []uint64{0, 1, 7, 8, 9, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 63, 1<<64 - 9, 1<<64 - 8, 1<<64 - 1}
	for _, base := range edge {
		for _, size := range []uint64{1, 8, 1 << 20} {
			if base+size-1 < base {
				continue
			}
			e := entry{base: base, size: size}
			for _, addr := range append([]uint64{base - 1, base, base + 1, base + size - 1, base + size, base + size + 1}, edge...) {
				for _, n := range []uint64{0, 1, size - 1, size, size + 1, 1<<32 - 1, 1 << 63, 1<<64 - 1} {
					off, ok := e.locate(addr, n)
					// The first byte inside or just behind, and the rest inside.
					in := addr-base <= size
					want := in && n <= size-(addr-base)
					if addr < base {
						want = want && base+size < base // only the end of the address space comes around
					}
					if ok != want || ok && off != addr-base {
						t.Errorf("base %#x size %#x: %#x bytes at %#x: %v at %#x, want %v", base, size, n, addr, ok, off, want)
					}
				}
			}
		}
	}
}
