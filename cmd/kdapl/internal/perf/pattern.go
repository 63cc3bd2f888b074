package perf

import "encoding/binary"

// word is the i-th word of a payload with a seed: the output function of SplitMix64, in which
// every bit of seed and index decides about every bit of the word.
func word(seed uint64, i int) uint64 {
	z := seed + uint64(i+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// fill writes the payload.
func fill(b []byte, seed uint64) {
	i := 0
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, word(seed, i))
		i++
	}
	for w := word(seed, i); len(b) > 0; b = b[1:] {
		b[0] = byte(w)
		w >>= 8
	}
}

// check returns the offset of the first byte that is not the payload's, -1 if all are.
func check(b []byte, seed uint64) int {
	i := 0
	for ; len(b)-8*i >= 8; i++ {
		if d := binary.LittleEndian.Uint64(b[8*i:]) ^ word(seed, i); d != 0 {
			at := 8 * i
			for ; d&0xFF == 0; d >>= 8 {
				at++
			}
			return at
		}
	}
	w := word(seed, i)
	for at := 8 * i; at < len(b); at++ {
		if b[at] != byte(w) {
			return at
		}
		w >>= 8
	}
	return -1
}
