package mpa

import (
	"encoding/binary"

	"kdapl/device/iwarp/internal/crc32c"
)

// Sizes of an FPDU's parts (RFC 5044 section 4.1).
const (
	LengthLen = 2 // ULPDU_Length
	CRCLen    = 4
	MaxPad    = 3

	// MaxULPDU is the largest ULPDU that may be sent (section 3). What is received
	// can say up to 65,535.
	MaxULPDU = 64768
	// MinMULPDU is the least that MULPDU may be (section 3).
	MinMULPDU = 128
)

// PadLen is the number of pad bytes behind a ULPDU of n bytes.
func PadLen(n int) int { return -(LengthLen + n) & 3 }

// FPDULen is the length of an FPDU with a ULPDU of n bytes, without markers.
func FPDULen(n int) int { return (LengthLen+n+3)&^3 + CRCLen }

// MULPDU is the largest ULPDU whose FPDU fits into a TCP segment of emss bytes
// (section 4.5), within MinMULPDU and MaxULPDU.
func MULPDU(emss int, markers bool) int {
	n := emss - (LengthLen + CRCLen + emss&3)
	if markers {
		n -= MarkerLen * ((emss + MarkerInterval - 1) / MarkerInterval)
	}
	return min(max(n, MinMULPDU), MaxULPDU)
}

// UpdateCRC continues a CRC32c over p; the CRC of nothing is 0. It may be used
// piece by piece over an FPDU from ULPDU_Length (or the marker before it) to the
// last pad byte (section 4.4). The array under p must not be on the caller's stack:
// it would be moved to the heap.
func UpdateCRC(crc uint32, p []byte) uint32 { return crc32c.Update(crc, p) }

// AppendCRC appends a CRC as it stands on the wire: least significant byte first,
// unlike every other field, as in iSCSI's digests (section 4.4).
func AppendCRC(b []byte, crc uint32) []byte { return binary.LittleEndian.AppendUint32(b, crc) }

// ReadCRC reads a CRC from the wire.
func ReadCRC(b [CRCLen]byte) uint32 { return binary.LittleEndian.Uint32(b[:]) }

// ULPDULen reads the ULPDU_Length at the start of an FPDU.
func ULPDULen(b [LengthLen]byte) int { return int(binary.BigEndian.Uint16(b[:])) }

// Parse returns the ULPDU of the FPDU at the beginning of b, a view of b, and the
// FPDU's length. It is for streams without markers. While b holds less than a whole
// FPDU the ULPDU is nil and the length is what is known to be needed: that of the
// FPDU, or 2. With crc, an FPDU that fails the check gives [ErrCRC].
//
// Pad bytes are not looked at but by the CRC (section 4.1).
func Parse(b []byte, crc bool) (ulpdu []byte, n int, err error) {
	if len(b) < LengthLen {
		return nil, LengthLen, nil
	}
	size := ULPDULen([LengthLen]byte(b))
	n = FPDULen(size)
	if len(b) < n {
		return nil, n, nil
	}
	if crc && UpdateCRC(0, b[:n-CRCLen]) != ReadCRC([CRCLen]byte(b[n-CRCLen:])) {
		return nil, n, ErrCRC
	}
	return b[LengthLen : LengthLen+size : LengthLen+size], n, nil
}
