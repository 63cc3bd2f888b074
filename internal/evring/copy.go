//go:build !race

package evring

// Load copies a payload that may be overwritten meanwhile: see Claim. It goes word by word, as
// the words were stored: wider loads would wait for the stores to leave the core.
func Load(dst, src *Payload) {
	dst[0], dst[1], dst[2], dst[3] = src[0], src[1], src[2], src[3]
	dst[4], dst[5], dst[6], dst[7] = src[4], src[5], src[6], src[7]
}

// Store fills a slot.
func Store(dst, src *Payload) {
	dst[0], dst[1], dst[2], dst[3] = src[0], src[1], src[2], src[3]
	dst[4], dst[5], dst[6], dst[7] = src[4], src[5], src[6], src[7]
}
