package iwarp

import "sync"

// Buffers are taken when there is something to put into them and given back when they are
// empty, so an idle connection has none.
const (
	smallLen = 8 << 10
	// largeLen is what one vectored call is given, and what one read takes: enough for the
	// kernel to work in large pieces, and four of the largest FPDUs.
	largeLen = 256 << 10
)

type (
	smallBuf [smallLen]byte
	largeBuf [largeLen]byte
)

var (
	smallPool = sync.Pool{New: func() any { return new(smallBuf) }}
	largePool = sync.Pool{New: func() any { return new(largeBuf) }}
)

// buffer is a pooled buffer that is filled by appending. Its zero value is an empty one without
// memory.
type buffer struct {
	b     []byte
	small *smallBuf
	large *largeBuf
}

func (b *buffer) empty() bool { return len(b.b) == 0 }

// room makes sure that n more bytes fit, if the limit allows. What is in the buffer moves.
func (b *buffer) room(n int) bool {
	if cap(b.b)-len(b.b) >= n {
		return true
	}
	switch {
	case len(b.b)+n > largeLen:
		return false
	case b.b == nil && n <= smallLen:
		b.small = smallPool.Get().(*smallBuf)
		b.b = b.small[:0]
		return true
	}
	large := largePool.Get().(*largeBuf)
	old := *b
	*b = buffer{b: append(large[:0], old.b...), large: large}
	old.release()
	return true
}

// release gives the memory back.
func (b *buffer) release() {
	if b.small != nil {
		smallPool.Put(b.small)
	}
	if b.large != nil {
		largePool.Put(b.large)
	}
	*b = buffer{}
}
