package mpa

import "encoding/binary"

// Markers (RFC 5044 sections 4.2 and 4.3).
const (
	MarkerLen      = 4
	MarkerInterval = 512
)

// AppendMarker appends a marker that stands fpduPtr stream bytes behind the
// ULPDU_Length of its FPDU; 0 directly before it.
func AppendMarker(b []byte, fpduPtr uint16) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(fpduPtr&^3))
}

// FPDUPtr reads a marker. Its reserved half and the two low bits are ignored.
func FPDUPtr(m [MarkerLen]byte) uint16 { return binary.BigEndian.Uint16(m[2:]) &^ 3 }

// untilMarker is how many stream bytes lie between position pos and the place of
// the next marker; 0 if it is due at pos.
func untilMarker(pos uint32) int { return int(-pos & (MarkerInterval - 1)) }

// MarkerCount is the number of markers that fall into n bytes of FPDUs when the
// first of these bytes comes to stream position pos: a marker due at pos is counted,
// one due directly behind the last byte is not, for it belongs to the next FPDU.
// Positions count from the first byte of full operation and may wrap.
func MarkerCount(pos uint32, n int) int {
	first := untilMarker(pos)
	if n <= first {
		return 0
	}
	const between = MarkerInterval - MarkerLen
	return (n - first + between - 1) / between
}
