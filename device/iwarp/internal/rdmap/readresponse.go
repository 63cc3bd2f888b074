package rdmap

import "kdapl/device/iwarp/internal/ddp"

// AppendReadResponse appends the header of one segment of an RDMA Read Response
// (RFC 5040 section 4.5). STag and tagged offset are the sink's of the Read Request,
// the offset advanced to this segment.
func AppendReadResponse(b []byte, last bool, stag uint32, to uint64) []byte {
	return ddp.AppendTagged(b, last, uint8(MakeControl(OpReadResponse)), stag, to)
}

// ReadSink is the requester's side of one RDMA Read: it checks that the Response is
// the one that was asked for, which RFC 5040 section 5.2.2 leaves to the
// implementation. Without that, a peer could write elsewhere in the sink's region.
type ReadSink struct {
	STag uint32
	TO   uint64 // where the next segment goes
	Left uint32 // bytes still to come
}

// NewReadSink expects the Response to r.
func NewReadSink(r ReadRequest) ReadSink { return ReadSink{r.SinkSTag, r.SinkTO, r.Size} }

// Accept verifies a segment of the Response with n bytes of payload and goes on to
// the next one. STag and offset of an empty segment mean nothing (RFC 5041 section
// 5.2). Errors are those of DDP's tagged checks: [ddp.ErrSTag] for another buffer,
// [ddp.ErrBounds] for another place in it, for too much, and for too little at the
// last segment. Then the sink is unchanged.
func (s *ReadSink) Accept(last bool, stag uint32, to uint64, n int) error {
	switch {
	case n > 0 && stag != s.STag:
		return ddp.ErrSTag
	case n > 0 && to != s.TO, uint64(max(n, 0)) > uint64(s.Left), last && uint32(n) != s.Left:
		return ddp.ErrBounds
	}
	s.TO += uint64(n)
	s.Left -= uint32(n)
	return nil
}
