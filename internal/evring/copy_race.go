//go:build race

package evring

import "sync/atomic"

// A consumer may read a slot that is being overwritten; it then throws the copy away. The
// race detector cannot know that, so under it both sides use atomic words.

// Load copies a payload that may be overwritten meanwhile: see Claim.
func Load(dst, src *Payload) {
	for i := range src {
		dst[i] = atomic.LoadUint64(&src[i])
	}
}

// Store fills a slot.
func Store(dst, src *Payload) {
	for i := range src {
		atomic.StoreUint64(&dst[i], src[i])
	}
}
