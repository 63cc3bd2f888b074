//go:build !race

package evring

// Load copies the first words of a payload, which may be overwritten meanwhile: the copy counts only
// if Claim succeeds. It goes word by word, as the words were stored: wider loads would wait for the
// stores to leave the core.
func Load(p *Payload) (w0, w1, w2, w3, w4 uint64) {
	return p[0], p[1], p[2], p[3], p[4]
}

// Store fills the first words of a slot.
func Store(p *Payload, w0, w1, w2, w3, w4 uint64) {
	p[0] = w0
	p[1] = w1
	p[2] = w2
	p[3] = w3
	p[4] = w4
}
