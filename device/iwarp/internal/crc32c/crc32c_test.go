package crc32c

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// Every length, alignment and start value gives what the standard library gives, also in parts.
func TestSameAsStandardLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 5000)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	check := func(start uint32, p []byte) {
		t.Helper()
		want := crc32.Update(start, table, p)
		if got := Update(start, p); got != want {
			t.Fatalf("%d bytes from %#x on: %#x, want %#x", len(p), start, got, want)
		}
		cut := 0
		if len(p) > 0 {
			cut = r.IntN(len(p))
		}
		if got := Update(Update(start, p[:cut]), p[cut:]); got != want {
			t.Fatalf("%d bytes from %#x on, cut at %d: %#x, want %#x", len(p), start, cut, got, want)
		}
	}
	for n := range 1500 {
		check(0, b[n%64:][:n])
		check(r.Uint32(), b[r.IntN(64):][:n])
	}
	for range 500 {
		n := r.IntN(len(b))
		off := r.IntN(len(b) - n)
		check(r.Uint32(), b[off:][:n])
	}
}

// The value of the catalogue of CRCs, and iSCSI's examples (RFC 3720 section B.4).
func TestKnownValues(t *testing.T) {
	zeros, ones := make([]byte, 32), make([]byte, 32)
	for i := range ones {
		ones[i] = 0xFF
	}
	for _, c := range []struct {
		p    []byte
		want uint32
	}{{[]byte("123456789"), 0xE3069283}, {zeros, 0x8A9136AA}, {ones, 0x62A8AB43}} {
		if got := Update(0, c.p); got != c.want {
			t.Errorf("%x: %#x, want %#x", c.p, got, c.want)
		}
	}
}

func TestNoBytesBeyond(t *testing.T) {
	b := make([]byte, 4096)
	for _, n := range []int{0, 1, 7, 8, 255, 256, 511, 512, 513, 1023, 2048} {
		clear(b)
		before := Update(0, b[:n])
		for i := n; i < len(b); i++ {
			b[i] = 0xFF
		}
		if got := Update(0, b[:n]); got != before {
			t.Errorf("%d bytes: what is behind them counts", n)
		}
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{28, 86, 256, 600, 1046, 4 << 10, 64 << 10} {
		p := make([]byte, n)
		for name, f := range map[string]func(uint32, []byte) uint32{
			"ours": Update, "std": func(c uint32, p []byte) uint32 { return crc32.Update(c, table, p) },
		} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					f(0, p)
				}
			})
		}
	}
}
