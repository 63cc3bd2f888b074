package rdmap

import (
	"encoding/binary"

	"kdapl/device/iwarp/internal/ddp"
)

// ReadRequestLen is the length of the RDMA Read Request header.
const ReadRequestLen = 28

// ReadRequest is an RDMA Read Request header (RFC 5040 section 4.4).
type ReadRequest struct {
	SinkSTag uint32 // the requester's buffer, echoed in the Response
	SinkTO   uint64
	Size     uint32 // bytes; 0 is a Read whose source is not looked at
	SrcSTag  uint32 // the responder's buffer
	SrcTO    uint64
}

// AppendReadRequest appends the whole ULPDU of a Read Request.
func AppendReadRequest(b []byte, msn uint32, r ReadRequest) []byte {
	b = ddp.AppendUntagged(b, true, uint8(MakeControl(OpReadRequest)), 0, QueueReadRequest, msn, 0)
	return r.Append(b)
}

// Append appends the header alone.
func (r ReadRequest) Append(b []byte) []byte {
	var h [ReadRequestLen]byte
	binary.BigEndian.PutUint32(h[0:], r.SinkSTag)
	binary.BigEndian.PutUint64(h[4:], r.SinkTO)
	binary.BigEndian.PutUint32(h[12:], r.Size)
	binary.BigEndian.PutUint32(h[16:], r.SrcSTag)
	binary.BigEndian.PutUint64(h[20:], r.SrcTO)
	return append(b, h[:]...)
}

// ParseReadRequest reads the header, which is everything behind the DDP header.
// [ErrLength] for any other length.
func ParseReadRequest(b []byte) (ReadRequest, error) {
	if len(b) != ReadRequestLen {
		return ReadRequest{}, ErrLength
	}
	return ReadRequest{
		SinkSTag: binary.BigEndian.Uint32(b[0:]),
		SinkTO:   binary.BigEndian.Uint64(b[4:]),
		Size:     binary.BigEndian.Uint32(b[12:]),
		SrcSTag:  binary.BigEndian.Uint32(b[16:]),
		SrcTO:    binary.BigEndian.Uint64(b[20:]),
	}, nil
}

// Advance is the request after n of its bytes have been sent: what a Terminate
// shows of a Read that failed on its way (RFC 5040 section 4.8, Terminated RDMA
// Header). n above Size counts as Size.
func (r ReadRequest) Advance(n uint32) ReadRequest {
	n = min(n, r.Size)
	r.SinkTO += uint64(n)
	r.SrcTO += uint64(n)
	r.Size -= n
	return r
}

// CheckSource verifies the source of a Read of size bytes from tagged offset to
// (RFC 5040 section 7.2, rules 4c to 4e), and gives its place in the region. STag
// and rights are the caller's to check: [ErrSTag], [ErrSTagStream], [ErrAccess]. A
// Read of size 0 is always right; its STag must not be looked at (section 5.2.1).
func CheckSource(r ddp.Region, to uint64, size uint32) (offset uint64, err error) {
	if size == 0 {
		return 0, nil
	}
	return locate(r, to, uint64(size))
}

func locate(r ddp.Region, to, n uint64) (uint64, error) {
	offset, f := r.Locate(to, n)
	switch f {
	case ddp.FaultWrap:
		return 0, ErrTOWrap
	case ddp.FaultBounds:
		return 0, ErrBounds
	}
	return offset, nil
}
