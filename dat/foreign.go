package dat

import (
	"kdapl/internal/foreign"
	"kdapl/verbs"
)

// What consumers in other languages need beside the API: package capi's, which shares the memory of EVDs with C. The
// other half is package internal/foreign.

// ForeignRef is the name that the slots of EVDs have for an object, for consumers in other languages: its index
// among the objects of its IA in the lower half, and a generation. 0: a kind that events do not name by it.
func ForeignRef(o Object) uint64 {
	switch o := o.(type) {
	case *EP:
		return uint64(o.common().ref)
	case *RMR:
		return uint64(o.common().ref)
	}
	return 0
}

// ForeignWait is a step of a Wait by the EVD's foreign consumer, who sleeps on its own between the steps.
func ForeignWait(e *EVD, w *foreign.Wait) (ev Event, more int, err error) {
	if e.gone() || e.foreign == nil {
		return Event{}, 0, e.errGone("evd_wait")
	}
	var a after
	e.begin(&a)
	if !w.Started {
		if err := e.startWait(&a, w.Threshold, 0); err != nil {
			return Event{}, 0, err
		}
		w.Started = true
	}
	for turns := helpRounds; ; turns-- {
		w.Word = e.foreign.Control.Wake.Load()
		ev, more, err, done := e.look(&a, w.Expired)
		if w.Sleep = !done; done {
			return ev, more, err
		}
		// To sleep is right at any time now; to be told of the time, the consumer has to.
		if e.helper == nil || turns == 0 || !e.helpTurns(w.Word) {
			return Event{}, 0, nil
		}
		e.begin(&a)
	}
}

// helpRounds is how often a step of a foreign wait goes on because something has moved.
const helpRounds = 16

// helpTurns helps the adapter along before the foreign consumer sleeps, and reports whether something may have come. It
// does not yield: a goroutine that C has called would hand its thread over for that.
func (e *EVD) helpTurns(word uint32) bool {
	for range e.ia.spin {
		if e.progress() || e.foreign.Control.Wake.Load() != word {
			return true
		}
		if p, ok := e.cq.(verbs.Peeker); ok && p.Peek(1) > 0 {
			return true
		}
	}
	return false
}

// ForeignCNO makes a consumer known who waits at the CNO with ForeignCNOWait.
func ForeignCNO(c *CNO, f *foreign.Consumer) {
	c.mu.Lock()
	c.foreign = f
	c.mu.Unlock()
}

// ForeignCNOWait is a step of a CNO's Wait by its foreign consumer, who sleeps on its own between the steps.
func ForeignCNOWait(c *CNO, w *foreign.Wait) (*EVD, error) {
	if c.gone() || c.foreign == nil {
		return nil, c.errGone("cno_wait")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.Started {
		c.waiters++
		if len(c.triggered) == 0 && !c.aborted {
			c.look()
		}
		w.Started = true
	}
	w.Word = c.foreign.Control.Wake.Load()
	e, err := c.take(), error(nil)
	switch {
	case e != nil:
	case c.aborted:
		err = c.fail("cno_wait", Abort, NoSubtype, nil, "the IA was closed")
	case w.Expired:
		err = ErrQueueEmpty
	default:
		w.Sleep = true
		return nil, nil
	}
	w.Sleep = false
	c.waiters--
	if len(c.triggered) > 0 {
		c.signal() // for another waiter
	}
	return e, err
}
