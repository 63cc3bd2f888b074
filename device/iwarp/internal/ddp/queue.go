package ddp

// FirstMSN is the sequence number of the first message of each queue (RFC 5041
// section 4.3). 0 follows 0xFFFFFFFF.
const FirstMSN = 1

// RecvQueue is the receiving end of one untagged queue: which message is due, and
// how much of it has come. The zero value waits for the first message.
//
// TCP delivers in order, and a sender gives one message after the other to its DDP,
// so on each queue there is never more than one message unfinished, and its
// segments come with ascending offsets.
type RecvQueue struct {
	done   uint32 // messages finished, modulo 2^32
	offset uint32 // of the current one, bytes accepted
	open   bool   // a segment of the current one has been accepted
}

// MSN is the sequence number of the message that is due or in progress.
func (q *RecvQueue) MSN() uint32 { return q.done + FirstMSN }

// Offset is how many bytes of the message in progress have been accepted.
func (q *RecvQueue) Offset() uint32 { return q.offset }

// Open reports whether a message is in progress: its buffer must not change before
// its last segment.
func (q *RecvQueue) Open() bool { return q.open }

// Check verifies a segment with n bytes of payload (RFC 5041 section 7.1, rules 2
// to 5; rule 1, the queue number, is settled once the queue has been found). avail
// says whether there is a buffer for the message, and size how long it is.
//
// The order of the checks decides which error a segment with several faults gets:
// [ErrMSN], [ErrNoBuffer], [ErrMO], [ErrTooLong]. An empty segment is checked as
// well: it takes a buffer, too (RFC 5040 section 5.3).
func (q *RecvQueue) Check(msn, mo uint32, n int, avail bool, size uint32) error {
	switch {
	case msn != q.MSN():
		return ErrMSN
	case !avail:
		return ErrNoBuffer
	case mo != q.offset:
		return ErrMO
	case uint64(mo)+uint64(max(n, 0)) > uint64(size):
		return ErrTooLong
	}
	return nil
}

// Accept takes a segment that [RecvQueue.Check] has found right: the next one
// follows it. If it is the last of its message, it returns the message's length,
// and the next message is due.
func (q *RecvQueue) Accept(n int, last bool) (length uint32) {
	q.offset += uint32(n)
	q.open = true
	if !last {
		return 0
	}
	length = q.offset
	q.done++
	q.offset, q.open = 0, false
	return length
}

// SendQueue counts the messages sent to one untagged queue. The zero value is a
// queue to which none has been sent.
type SendQueue struct{ sent uint32 }

// Next returns the sequence number for the next message and counts it as sent.
func (q *SendQueue) Next() uint32 {
	q.sent++
	return q.sent
}
