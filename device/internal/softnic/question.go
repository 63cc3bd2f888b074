package softnic

import (
	"slices"

	"kdapl/verbs"
)

// A UD QP has no connection. Connect is a question instead: for the number and key of the QP behind
// a port. Questions leave the QP's state alone, and several may be under way.

// Ask notes a question of a UD QP in QPRTS; link is its identity.
func (q *QP) Ask(link Link) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	switch {
	case q.dead:
		return verbs.ErrClosed
	case q.typ != verbs.UD || q.State() != verbs.QPRTS:
		return verbs.ErrState
	}
	q.asks = append(q.asks, link)
	return nil
}

// Answer ends a question and delivers ev; false if it has ended before. The link is not told.
func (q *QP) Answer(link Link, ev verbs.ConnEvent) bool {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	i := slices.Index(q.asks, link)
	if i < 0 {
		return false
	}
	q.asks = slices.Delete(q.asks, i, i+1)
	q.events.Post(ev)
	return true
}

// Introduce delivers the event of a question that was answered with the QP.
func (q *QP) Introduce(ev verbs.ConnEvent) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	switch {
	case q.dead:
		return verbs.ErrClosed
	case q.typ != verbs.UD || q.State() != verbs.QPRTS:
		return verbs.ErrState
	}
	q.events.Post(ev)
	return nil
}

// dropAsks ends the questions of a QP that leaves QPRTS. The caller holds ctl.
func (q *QP) dropAsks(b *batch) {
	for _, link := range q.asks {
		ev := verbs.ConnEvent{Kind: verbs.ConnAborted}
		ev.Local, ev.Remote = link.Ends(q)
		q.events.Post(ev)
		b.deeds = append(b.deeds, deed{kind: deedAskDropped, qp: q, link: link})
	}
	q.asks = nil
}

// askDropped tells the transport of a question that dropAsks has ended. No lock is held.
func (q *QP) askDropped(link Link) { link.Ended(q, verbs.ConnAborted, nil) }

// QKey is the key that UD senders must name.
func (q *QP) QKey() uint32 { return q.qkey }
