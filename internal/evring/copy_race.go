//go:build race

package evring

import "sync/atomic"

// A consumer may read a slot that is being overwritten; it then throws the copy away. The
// race detector cannot know that, so under it both sides use atomic words.

// Load copies the first words of a payload, which may be overwritten meanwhile: the copy counts only
// if Claim succeeds.
func Load(p *Payload) (w0, w1, w2, w3, w4 uint64) {
	return atomic.LoadUint64(&p[0]), atomic.LoadUint64(&p[1]), atomic.LoadUint64(&p[2]), atomic.LoadUint64(&p[3]), atomic.LoadUint64(&p[4])
}

// Store fills the first words of a slot.
func Store(p *Payload, w0, w1, w2, w3, w4 uint64) {
	atomic.StoreUint64(&p[0], w0)
	atomic.StoreUint64(&p[1], w1)
	atomic.StoreUint64(&p[2], w2)
	atomic.StoreUint64(&p[3], w3)
	atomic.StoreUint64(&p[4], w4)
}
