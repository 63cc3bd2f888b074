// Package bytering is a bounded queue of bytes that takes no memory until it is used.
package bytering

// firstSize is what a ring takes when the first byte comes, in bytes.
const firstSize = 4 << 10

// Ring is a queue of at most a fixed number of bytes. It has no lock. Beside Put and Get there are
// two pairs for a caller that moves bytes without holding the owner's lock: Space and Commit for a
// producer, Data and Discard for a consumer. Between the two calls of a pair the other side may go
// on with its own calls; a second producer or consumer may not.
type Ring struct {
	buf        []byte
	head, size int
	limit      int
}

// New returns a ring for at most limit bytes; limit is positive.
func New(limit int) Ring { return Ring{limit: limit} }

// Len is the number of bytes queued.
func (r *Ring) Len() int { return r.size }

// Free is the number of bytes that fit.
func (r *Ring) Free() int { return r.limit - r.size }

// Put appends as many of the bytes of bufs as fit, but at most max, and reports how many.
func (r *Ring) Put(bufs [][]byte, max int) int {
	put := 0
	for _, b := range bufs {
		for len(b) > 0 && put < max {
			space := r.Space()
			if len(space) == 0 {
				return put
			}
			n := copy(space, b[:min(len(b), max-put)])
			r.Commit(n)
			b = b[n:]
			put += n
		}
	}
	return put
}

// Get moves bytes from the front into bufs, at most max, and reports how many.
func (r *Ring) Get(bufs [][]byte, max int) int {
	got := 0
	for _, b := range bufs {
		for len(b) > 0 && got < max && r.size > 0 {
			n := copy(b[:min(len(b), max-got)], r.Data())
			r.Discard(n)
			b = b[n:]
			got += n
		}
	}
	return got
}

// Space is free room at the end of the queue, of one piece; empty only if the ring is full.
func (r *Ring) Space() []byte {
	if r.size == len(r.buf) {
		if r.size == r.limit {
			return nil
		}
		r.grow()
	}
	tail := r.head + r.size
	if tail < len(r.buf) {
		return r.buf[tail:]
	}
	return r.buf[tail-len(r.buf) : r.head]
}

// Commit queues the first n bytes of the last Space.
func (r *Ring) Commit(n int) { r.size += n }

// Data is the front of the queue, as much as lies in one piece; empty only if the queue is.
func (r *Ring) Data() []byte {
	return r.buf[r.head:min(r.head+r.size, len(r.buf))]
}

// Discard drops the first n bytes of the queue.
func (r *Ring) Discard(n int) {
	r.size -= n
	r.head += n
	if r.head >= len(r.buf) {
		r.head -= len(r.buf)
	}
}

// Truncate drops all but the first n bytes, of at least n.
func (r *Ring) Truncate(n int) { r.size = n }

// grow doubles the memory. A producer's Space is from after the growth; a consumer's Data goes on
// to be a valid copy.
func (r *Ring) grow() {
	buf := make([]byte, min(max(firstSize, 2*len(r.buf)), r.limit))
	n := copy(buf, r.buf[r.head:])
	copy(buf[n:], r.buf[:r.head])
	r.buf, r.head = buf, 0
}
