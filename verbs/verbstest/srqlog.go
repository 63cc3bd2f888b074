package verbstest

import (
	"sync"

	"kdapl/verbs"
)

// srq is a shared receive queue with its account: the receives that no completion
// has been seen for.
type srq struct {
	e    *env
	s    *side
	v    verbs.SRQ
	user uint64

	mu      sync.Mutex
	pending map[uint64]bool
}

// srq makes a shared receive queue.
func (s *side) srq(depth int) *srq {
	s.e.Helper()
	q := &srq{e: s.e, s: s, user: s.e.id() | 0x5b00000000000000, pending: map[uint64]bool{}}
	v, err := s.pd.CreateSRQ(verbs.SRQInit{MaxWR: depth, MaxSGE: min(4, s.attr.MaxSRQSGE), UserData: q.user})
	s.e.must(err, "CreateSRQ on the %s side", s.name)
	q.v = v
	return q
}

// tryRecv posts receives and enters what was taken.
func (q *srq) tryRecv(wrs ...verbs.RecvWR) (int, error) {
	q.e.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	n, err := q.v.PostRecv(wrs)
	q.e.bare("SRQ.PostRecv", err)
	if n < 0 || n > len(wrs) || (err == nil) != (n == len(wrs)) {
		q.e.Fatalf("SRQ.PostRecv of %d receives returned %d, %v", len(wrs), n, err)
	}
	for _, wr := range wrs[:n] {
		q.pending[wr.ID] = true
	}
	return n, err
}

// recv posts receives, all of which must be taken.
func (q *srq) recv(wrs ...verbs.RecvWR) {
	q.e.Helper()
	if n, err := q.tryRecv(wrs...); err != nil {
		q.e.Fatalf("SRQ.PostRecv took %d of %d: %v", n, len(wrs), err)
	}
}

// take settles a completion: the receive must be outstanding.
func (q *srq) take(id uint64) (verbs.Opcode, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ok := q.pending[id]
	delete(q.pending, id)
	return verbs.OpRecv, ok
}

// available checks the number of receives that no QP has taken.
func (q *srq) available(want int, what string) {
	q.e.Helper()
	if got := q.v.Available(); got != want {
		q.e.Errorf("%s: %d receives available, want %d", what, got, want)
	}
}
