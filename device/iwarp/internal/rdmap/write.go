package rdmap

import "kdapl/device/iwarp/internal/ddp"

// AppendWrite appends the header of one segment of an RDMA Write (RFC 5040 section
// 4.3): STag and tagged offset of the peer's buffer, where this segment's payload
// begins. An empty Write, for which they mean nothing, has one segment.
func AppendWrite(b []byte, last bool, stag uint32, to uint64) []byte {
	return ddp.AppendTagged(b, last, uint8(MakeControl(OpWrite)), stag, to)
}
