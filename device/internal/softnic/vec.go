package softnic

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"kdapl/internal/fastlock"
)

// Vec is resolved memory: one piece, or a list of them in the lane. It is good only as long as
// the lane under which it was resolved is held. It is four words, so that it stays in registers.
type Vec struct {
	one  []byte
	more *[][]byte
}

// VecOf is the Vec of one piece.
func VecOf(b []byte) Vec { return Vec{one: b} }

// Len is the number of bytes.
func (v Vec) Len() int {
	if v.more == nil {
		return len(v.one)
	}
	n := 0
	for _, p := range *v.more {
		n += len(p)
	}
	return n
}

// release lets go of the memory.
func (v Vec) release() {
	if v.more != nil {
		clear(*v.more)
	}
}

// CopyVec copies src to dst, which have the same length.
func CopyVec(dst, src Vec) {
	if dst.more == nil && src.more == nil {
		copy(dst.one, src.one)
		return
	}
	copyAt(dst, 0, src)
}

// copyAt copies src into dst from the offset on.
func copyAt(dst Vec, off int, src Vec) {
	d, s := [][]byte{dst.one}, [][]byte{src.one}
	if dst.more != nil {
		d = *dst.more
	}
	if src.more != nil {
		s = *src.more
	}
	if len(d) == 0 || len(s) == 0 {
		return
	}
	for off > 0 && off >= len(d[0]) {
		off -= len(d[0])
		if d = d[1:]; len(d) == 0 {
			return
		}
	}
	db, sb := d[0][off:], s[0]
	for {
		n := copy(db, sb)
		db, sb = db[n:], sb[n:]
		for len(db) == 0 {
			if d = d[1:]; len(d) == 0 {
				return
			}
			db = d[0]
		}
		for len(sb) == 0 {
			if s = s[1:]; len(s) == 0 {
				return
			}
			sb = s[0]
		}
	}
}

// word returns b as an aligned 8-byte word, or nil if it is not one.
func word(b []byte) *atomic.Uint64 {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if len(b) != 8 || uintptr(p)&7 != 0 {
		return nil
	}
	return (*atomic.Uint64)(p)
}

// copyRDMA is copy for RDMA, where an aligned word is read and written
// at once, and after what was written before it: a consumer may watch it with sync/atomic.
func (l *Lane) copyRDMA(dst, src Vec, n uint32) {
	if !copyWord(dst.one, src.one) {
		l.copy(dst, src, n)
	}
}

// copyWord is copyRDMA of a word, and false if it is none.
func copyWord(dst, src []byte) bool {
	d := word(dst)
	if d == nil || len(src) != 8 {
		return false
	}
	if s := word(src); s != nil {
		fastlock.StoreRelease64(d, s.Load())
	} else {
		fastlock.StoreRelease64(d, binary.NativeEndian.Uint64(src))
	}
	return true
}
