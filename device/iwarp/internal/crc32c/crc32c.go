// Package crc32c computes the checksum of MPA (RFC 5044 section 4.4 and its reference to iSCSI): CRC-32 with
// Castagnoli's polynomial. It is what hash/crc32 computes, in less time where that matters: short FPDUs without the
// standard library's way to the instruction, long ones by carry-less multiplication of 64 bytes at a time, if the
// processor has it.
package crc32c

import "hash/crc32"

var table = crc32.MakeTable(crc32.Castagnoli)

// Update returns the checksum of what crc is that of, followed by p. That of nothing is 0.
func Update(crc uint32, p []byte) uint32 {
	if !fast {
		return crc32.Update(crc, table, p)
	}
	return update(crc, p)
}
