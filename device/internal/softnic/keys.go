package softnic

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
)

// A memory key is a sealed pair of an index into the key table and a generation. The
// index takes the low indexBits of the unsealed number, the generation the rest.
const (
	indexBits = 20
	indexMask = 1<<indexBits - 1
	genMask   = 1<<(32-indexBits) - 1

	// MaxKeys is the most regions and windows that one context can hold together.
	MaxKeys = 1 << indexBits

	chunkBits = 7
	chunkLen  = 1 << chunkBits

	// quarantine is the number of freed indices that rest while a fresh index can be
	// had instead.
	quarantine = 64
)

// seal is a secret bijection of the 32-bit numbers. It spreads keys over the whole
// range, so that neighbours of a known key are not keys (RFC 5042, section 6.2.1); what
// protects memory is the check of domain, right and bounds at each access.
type seal struct {
	x0, m0, m1, x1 uint32
	i0, i1         uint32 // inverses of m0 and m1
}

func newSeal() seal {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return makeSeal(binary.NativeEndian.Uint32(b[0:]), binary.NativeEndian.Uint32(b[4:]),
		binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:]))
}

func makeSeal(x0, m0, m1, x1 uint32) seal {
	m0 |= 1
	m1 |= 1
	return seal{x0: x0, m0: m0, m1: m1, x1: x1, i0: inverse(m0), i1: inverse(m1)}
}

// inverse is the multiplicative inverse of an odd number modulo 2^32 (Newton's iteration: each
// step doubles the number of right bits, and m itself is right in three).
func inverse(m uint32) uint32 {
	i := m
	for range 4 {
		i *= 2 - m*i
	}
	return i
}

func (s *seal) close(n uint32) uint32 {
	n = (n ^ s.x0) * s.m0
	n = (n ^ n>>16) * s.m1
	return n ^ n>>16 ^ s.x1
}

func (s *seal) open(key uint32) uint32 {
	n := key ^ s.x1
	n = (n ^ n>>16) * s.i1
	n = (n ^ n>>16) * s.i0
	return n ^ s.x0
}

// keyTable maps keys to entries. Look-ups take no lock and are safe for any number; the
// rest is under the context's memory lock.
type keyTable struct {
	seal   seal
	chunks atomic.Pointer[[]*[chunkLen]entry]

	limit  int      // indices that may be in use
	next   uint32   // the lowest index that was never used
	rest   []uint32 // freed indices, oldest first from restAt
	restAt int
	used   int
}

func newKeyTable(limit int) *keyTable {
	t := &keyTable{seal: newSeal(), limit: min(limit, MaxKeys)}
	t.chunks.Store(new([]*[chunkLen]entry))
	return t
}

// at returns the entry that the key would belong to, or nil. The caller compares
// the entry's key.
func (t *keyTable) at(key uint32) *entry {
	i := t.seal.open(key) & indexMask
	c := *t.chunks.Load()
	if int(i>>chunkBits) >= len(c) {
		return nil
	}
	return &c[i>>chunkBits][i&(chunkLen-1)]
}

// alloc takes a free index, or nil at the limit. The oldest freed index is used again only after
// others have been, and then with the next generation.
func (t *keyTable) alloc() *entry {
	resting := len(t.rest) - t.restAt
	var i uint32
	switch {
	case t.used >= t.limit:
		return nil
	case t.next < MaxKeys && resting < quarantine:
		i = t.next
		t.next++
		c := *t.chunks.Load()
		if int(i>>chunkBits) == len(c) {
			grown := append(c[:len(c):len(c)], new([chunkLen]entry))
			t.chunks.Store(&grown)
			c = grown
		}
		e := &c[i>>chunkBits][i&(chunkLen-1)]
		var b [2]byte
		rand.Read(b[:])
		e.index, e.drawn = i, binary.NativeEndian.Uint16(b[:])&genMask
		t.used++
		return e
	default:
		i = t.rest[t.restAt]
		t.restAt++
		if t.restAt > len(t.rest)/2 {
			t.rest = append(t.rest[:0], t.rest[t.restAt:]...)
			t.restAt = 0
		}
		t.used++
		c := *t.chunks.Load()
		return &c[i>>chunkBits][i&(chunkLen-1)]
	}
}

// free gives the index of an entry back; its key must be 0.
func (t *keyTable) free(e *entry) {
	t.rest = append(t.rest, e.index)
	t.used--
}

// draw makes the next key of an entry. It differs from the last 4094 of the same index
// and is never 0.
func (t *keyTable) draw(e *entry) uint32 {
	for {
		e.drawn = (e.drawn + 1) & genMask
		if k := t.seal.close(e.index | uint32(e.drawn)<<indexBits); k != 0 {
			return k
		}
	}
}

// generation is the generation part of a key.
func (t *keyTable) generation(key uint32) uint16 { return uint16(t.seal.open(key) >> indexBits) }
