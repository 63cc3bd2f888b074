package dattest

import "unsafe"

// wordBytes is the memory of words as bytes, which are aligned to 8 therefore.
func wordBytes(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}
