package verbstest

import (
	"fmt"
	"sync"

	"kdapl/verbs"
)

// ledger is the account of one work queue of one QP. Every request that a post accepted is
// entered, every completion is settled against the oldest entry, and what breaks the
// contract is told in the error: a completion too many, too few, out of order, for
// an operation or with a status that cannot be. It runs under all rules, so that each
// of them also checks order and exactly-once.
type ledger struct {
	// pending are the accepted requests whose completion has not been seen, oldest first.
	pending []entry
	// failed is whether a completion without success or the mark was seen: everything
	// behind it must be flushed.
	failed bool
	// marks counts OpDrained since the QP was last reset.
	marks int
}

// entry is one request.
type entry struct {
	id       uint64
	op       verbs.Opcode
	signaled bool
	// late is whether the QP may have been in QPError when the request was posted; only
	// then may its completion come behind the mark.
	late bool
}

// settle accounts for a completion.
func (l *ledger) settle(c verbs.Completion) error {
	if c.Op == verbs.OpDrained {
		return l.drained(c)
	}
	i := 0
	for ; i < len(l.pending) && l.pending[i].id != c.ID; i++ {
		switch p := l.pending[i]; {
		case l.find(c.ID) < 0:
			return fmt.Errorf("completion of a request that is not outstanding, or a second one: %v", c)
		case p.signaled:
			return fmt.Errorf("completion %v before that of the earlier request %#x", c, p.id)
		case l.failed:
			return fmt.Errorf("completion %v, but the earlier unsignalled request %#x was not flushed", c, p.id)
		}
	}
	if i == len(l.pending) {
		return fmt.Errorf("completion of a request that is not outstanding, or a second one: %v", c)
	}
	p := l.pending[i]
	l.pending = l.pending[i+1:]
	failed := l.failed
	if c.Status != verbs.StatusSuccess {
		l.failed = true
	}
	switch {
	case failed && c.Status != verbs.StatusFlushed:
		return fmt.Errorf("completion %v behind one that failed", c)
	case c.Status == verbs.StatusSuccess && !p.signaled:
		return fmt.Errorf("successful completion of the unsignalled request: %v", c)
	case c.Op != p.op && !(p.op == verbs.OpRecv && c.Op == verbs.OpRecvRDMAImm):
		return fmt.Errorf("completion %v of a request for %v", c, p.op)
	}
	return nil
}

// find is the index of the pending request with the ID, or -1.
func (l *ledger) find(id uint64) int {
	for i, p := range l.pending {
		if p.id == id {
			return i
		}
	}
	return -1
}

// drained accounts for the mark.
func (l *ledger) drained(c verbs.Completion) error {
	l.marks++
	if l.marks > 1 {
		return fmt.Errorf("drained mark number %d: %v", l.marks, c)
	}
	if c.ID != 0 {
		return fmt.Errorf("drained mark with an ID: %v", c)
	}
	var err error
	var late []entry
	for _, p := range l.pending {
		switch {
		case p.late:
			late = append(late, p)
		case p.signaled || l.failed:
			err = fmt.Errorf("drained mark before the completion of request %#x", p.id)
		}
	}
	l.pending, l.failed = late, true
	return err
}

// settled checks, when the QP is reset or gone, that nothing is owed any more.
func (l *ledger) settled(queue string, marks int) error {
	for _, p := range l.pending {
		if p.signaled || l.failed {
			return fmt.Errorf("%s request %#x (%v) never completed", queue, p.id, p.op)
		}
	}
	if l.marks != marks {
		return fmt.Errorf("%s queue delivered %d drained marks, want %d", queue, l.marks, marks)
	}
	return nil
}

// account is the ledgers of a QP.
type account struct {
	mu         sync.Mutex
	send, recv ledger
	// left is whether the QP has left QPReset, and so owes marks.
	left bool
}

// settle accounts for a completion that a CQ delivered.
func (q *qp) settle(c *cq, comp verbs.Completion) error {
	q.acct.mu.Lock()
	defer q.acct.mu.Unlock()
	recv := comp.Flags&verbs.CompletionRecvQueue != 0
	switch {
	case comp.QPN != q.v.Num():
		return fmt.Errorf("completion %v with the UserData of QP %#x", comp, q.v.Num())
	case recv && c != q.rcq:
		return fmt.Errorf("receive completion %v in a CQ that is not the QP's receive CQ", comp)
	case !recv && c != q.scq:
		return fmt.Errorf("send completion %v in a CQ that is not the QP's send CQ", comp)
	case recv && q.srq != nil && comp.Op != verbs.OpDrained:
		// The QP owns the receive from the moment when it took it.
		op, ok := q.srq.take(comp.ID)
		if !ok {
			return fmt.Errorf("completion of a shared receive that is not outstanding: %v", comp)
		}
		q.acct.recv.pending = append(q.acct.recv.pending, entry{id: comp.ID, op: op, signaled: true})
		return q.acct.recv.settle(comp)
	case recv:
		return q.acct.recv.settle(comp)
	}
	return q.acct.send.settle(comp)
}

// settled closes the account of a QP that was reset or destroyed.
func (q *qp) settled() error {
	q.acct.mu.Lock()
	defer q.acct.mu.Unlock()
	marks := func(has *cq) int {
		if q.acct.left && has != nil {
			return 1
		}
		return 0
	}
	if err := q.acct.send.settled("send", marks(q.scq)); err != nil {
		return err
	}
	return q.acct.recv.settled("receive", marks(q.rcq))
}
