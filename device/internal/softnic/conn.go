package softnic

import "kdapl/verbs"

// Connect implements [verbs.QP].
func (q *QP) Connect(p verbs.ConnParams) error {
	if err := q.ctx.CheckParams(&p); err != nil {
		return err
	}
	return q.wire.Connect(&p)
}

// CheckParams checks the limits of connection parameters and clamps the read depths.
func (c *Context) CheckParams(p *verbs.ConnParams) error {
	if len(p.PrivateData) > c.attr.MaxPrivateData {
		return verbs.ErrLength
	}
	if p.ReadsIn < 0 || p.ReadsOut < 0 || p.Timeout < 0 {
		return verbs.ErrInvalid
	}
	p.ReadsIn = min(p.ReadsIn, c.attr.MaxReadsIn)
	p.ReadsOut = min(p.ReadsOut, c.attr.MaxReadsOut)
	return nil
}

// Begin makes link the attempt of a QP in QPInitialized; prepare runs with the QP's control lock
// held, and may lock lanes.
func (q *QP) Begin(link Link, prepare func()) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.dead {
		return verbs.ErrClosed
	}
	if q.State() != verbs.QPInitialized || q.link != nil || q.typ != verbs.RC {
		return verbs.ErrState
	}
	q.link, q.up = link, false
	q.setState(verbs.QPRTR)
	if prepare != nil {
		prepare()
	}
	return nil
}

// Withdraw undoes Begin, if link is still the QP's and not established.
func (q *QP) Withdraw(link Link, undo func()) {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.link == link && !q.up {
		q.link = nil
		q.setState(verbs.QPInitialized)
		undo()
	}
}

// Establish moves the QP of an attempt to QPRTS and delivers ev. prepare runs before, with the
// QP's control lock held. It returns false if link is no longer the QP's attempt.
func (q *QP) Establish(link Link, ev verbs.ConnEvent, prepare func()) bool {
	_, ok := q.establish(link, ev, prepare, false)
	return ok
}

// EstablishHere is Establish for a goroutine of the device's own, which is to call DeliverEvents soon if mine is true, with no lock
// held, as the last that it does; see Events.Deliver.
func (q *QP) EstablishHere(link Link, ev verbs.ConnEvent, prepare func()) (mine, ok bool) {
	return q.establish(link, ev, prepare, true)
}

// DeliverEvents delivers the events of the QP's connection that EstablishHere has left to the caller.
func (q *QP) DeliverEvents() { q.events.Deliver() }

func (q *QP) establish(link Link, ev verbs.ConnEvent, prepare func(), here bool) (mine, ok bool) {
	q.ctl.Lock()
	if q.link != link || q.up {
		q.ctl.Unlock()
		return false, false
	}
	if prepare != nil {
		prepare()
	}
	q.up = true
	ev.Kind = verbs.ConnEstablished
	var b batch
	l := q.LockRecv()
	q.rmode = sideRun
	if q.starved {
		q.starved = false
		q.wire.RecvReady(l)
	}
	l.unlockTo(&b)
	q.lane.Lock()
	q.smode = sideRun
	q.slink, q.reads = link, ev.ReadsOut
	q.lane.unlockTo(&b)
	q.setState(verbs.QPRTS) // who sees it, or hears of it, may post
	if here {
		mine, _ = q.events.Hold(ev)
	} else {
		q.events.Post(ev)
	}
	q.ctl.Unlock()
	b.run()
	return mine, true
}

// End ends link, a connection or an attempt, if it is still the QP's: everything is flushed
// and an event of the given kind delivered. A set-up that ends like a connection is
// ConnAborted.
func (q *QP) End(link Link, kind verbs.ConnEventKind, err error) bool {
	return q.EndWith(link, verbs.ConnEvent{Kind: kind, Err: err})
}

// EndWith is End with the whole event; the addresses are filled in.
func (q *QP) EndWith(link Link, ev verbs.ConnEvent) bool {
	q.ctl.Lock()
	return q.endLocked(link, ev)
}

// EndSetUp is EndWith for an attempt only: it does nothing to a connection.
func (q *QP) EndSetUp(link Link, ev verbs.ConnEvent) bool {
	q.ctl.Lock()
	if q.up {
		q.ctl.Unlock()
		return false
	}
	return q.endLocked(link, ev)
}

// endLocked is EndWith with ctl held, which it releases.
func (q *QP) endLocked(link Link, ev verbs.ConnEvent) bool {
	if link == nil || q.link != link {
		q.ctl.Unlock()
		return false
	}
	if !q.up && (ev.Kind == verbs.ConnDisconnected || ev.Kind == verbs.ConnBroken) {
		ev.Kind = verbs.ConnAborted
	}
	ev.Local, ev.Remote = link.Ends(q)
	var b batch
	q.link, q.up = nil, false
	q.toError(&b)
	q.events.Post(ev)
	q.ctl.Unlock()
	b.run()
	link.Ended(q, ev.Kind, ev.Err)
	return true
}

// Disconnect implements [verbs.QP].
func (q *QP) Disconnect(graceful bool) error {
	q.ctl.Lock()
	link := q.link
	switch {
	case q.dead:
		q.ctl.Unlock()
		return verbs.ErrClosed
	case link == nil:
		q.ctl.Unlock()
		return verbs.ErrState
	case !graceful || !q.up:
		q.ctl.Unlock()
		q.End(link, verbs.ConnDisconnected, nil)
		return nil
	}
	if q.State() == verbs.QPRTS {
		q.setState(verbs.QPSQD)
		var b batch
		q.lane.Lock()
		if q.smode == sideRun {
			q.smode = sideDrain
			q.checkDrained(q.lane)
		}
		q.lane.unlockTo(&b)
		q.ctl.Unlock()
		b.run()
		return nil
	}
	q.ctl.Unlock()
	return nil
}

// drained goes on with a graceful disconnect.
func (q *QP) drained() {
	q.ctl.Lock()
	link := q.link
	q.lane.Lock()
	done := q.smode == sideDrain && q.sq.empty()
	q.lane.Unlock()
	q.ctl.Unlock()
	if done && link != nil {
		link.Drained(q)
	}
}
