package ddp

// Segments cuts one message into segments (RFC 5041 section 5.2). It is an iterator
// in plain form, so that a sender can stop in the middle of a message and go on
// later, with another segment size if TCP's has changed: see [Segments.Resize].
type Segments struct {
	length uint32
	offset uint32
	room   uint32 // payload of one segment
	header uint32
	done   bool
}

// NewSegments cuts a message of length bytes into segments of at most mulpdu bytes,
// header included, which has headerLen bytes. A mulpdu that leaves no room for
// payload counts as one that leaves room for one byte; MPA's is never below 128.
func NewSegments(length uint32, headerLen, mulpdu int) Segments {
	s := Segments{length: length, header: uint32(headerLen)}
	s.Resize(mulpdu)
	return s
}

// Resize changes the size of the segments still to come.
func (s *Segments) Resize(mulpdu int) { s.room = uint32(max(mulpdu-int(s.header), 1)) }

// Next gives the next segment: offset and size of its payload in the message, and
// whether it is the last one. ok is false behind the last one. An empty message is
// one empty segment.
func (s *Segments) Next() (offset, n uint32, last, ok bool) {
	if s.done {
		return 0, 0, false, false
	}
	offset = s.offset
	n = min(s.length-offset, s.room)
	s.offset += n
	s.done = s.offset == s.length
	return offset, n, s.done, true
}

// Remaining is how many payload bytes are still to come.
func (s *Segments) Remaining() uint32 { return s.length - s.offset }

// Done reports whether the last segment has been given.
func (s *Segments) Done() bool { return s.done }
