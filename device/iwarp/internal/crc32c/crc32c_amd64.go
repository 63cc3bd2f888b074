package crc32c

import (
	"hash/crc32"
	"unsafe"

	"golang.org/x/sys/cpu"
)

var (
	// fast: the processor has the CRC32 instruction.
	fast = cpu.X86.HasSSE42
	// wide: it multiplies vectors of 512 bits, and the system saves them.
	wide = fast && cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasAVX && cpu.X86.HasSSE41
)

const (
	// stride is what fold does at a time, and the length from which it is worth it.
	stride = 256
	// shortLen is the length up to which one instruction after the other is as fast as three of them side by side, which
	// is what the standard library does.
	shortLen = 128
)

// fold does n bytes, a multiple of stride above 0. The state is the complement of the checksum.
//
//go:noescape
func fold(state uint32, p *byte, n int) uint32

// words does n bytes, one instruction after the other.
//
//go:noescape
func words(state uint32, p *byte, n int) uint32

func update(crc uint32, p []byte) uint32 {
	if k := len(p) &^ (stride - 1); wide && k > 0 {
		crc = ^fold(^crc, unsafe.SliceData(p), k)
		p = p[k:]
	}
	switch n := len(p); {
	case n == 0:
		return crc
	case n > shortLen:
		return crc32.Update(crc, table, p)
	}
	return ^words(^crc, unsafe.SliceData(p), len(p))
}
