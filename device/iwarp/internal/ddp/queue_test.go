package ddp

import "testing"

// RFC 5041 section 4.3: MSN starts at 1, and 0 follows 2^32-1.
func TestMSNStartsAt1AndWrapsTo0(t *testing.T) {
	var q RecvQueue
	var s SendQueue
	for start, want := range map[uint32][]uint32{
		0:         {1, 2, 3},
		1<<32 - 3: {1<<32 - 2, 1<<32 - 1, 0, 1},
	} {
		q.done, s.sent = start, start
		for _, msn := range want {
			if err := q.Check(msn, 0, 0, true, 0); err != nil || q.MSN() != msn {
				t.Errorf("message %d is due, not %d", q.MSN(), msn)
			}
			q.Accept(0, true)
			if got := s.Next(); got != msn {
				t.Errorf("sent with MSN %d, want %d", got, msn)
			}
		}
	}
}
