package dat

import "fmt"

// watermark watches how many receives of its SRQ an EP holds: taken by a message and not yet
// taken by the consumer as an event. Under the lock of the EP's Recv EVD.
type watermark struct {
	ep         *EP
	soft, hard int // below 1: none
	armed      bool
	held       positions
}

// newWatermark returns nil if there is nothing to watch.
func newWatermark(ep *EP, soft, hard int) *watermark {
	if ep.srq == nil || soft < 1 && hard < 1 {
		return nil
	}
	return &watermark{ep: ep, soft: soft, hard: hard, armed: soft > 0}
}

// waits reports whether there is something left to tell.
func (w *watermark) waits() bool { return w != nil && (w.armed || w.hard > 0) }

// watch replaces the watermarks of the queue. Those of an EP that holds more already are passed at once.
func (q *dtoQueue) watch(w *watermark) {
	e := q.evd
	var a after
	e.begin(&a)
	defer e.end(&a)
	if q.mark.waits() {
		e.watching--
	}
	if w != nil {
		if q.mark != nil {
			w.held = q.mark.held
		} else {
			e.recount(&a, w)
		}
	}
	q.mark = w
	if w.waits() {
		e.watching++
		if w.ep.loadState().connected() {
			e.judge(&a, w, w.held.count(a.ring.Head()))
		}
	}
}

// watch counts an event of a receive from an SRQ, which was put at a position.
func (e *EVD) watch(a *after, w *watermark, pos uint64) {
	n := w.held.count(a.ring.Head()) + 1
	w.held.add(pos)
	if w.waits() {
		e.judge(a, w, n)
	}
}

// judge compares how many receives the EP holds with what it may hold.
func (e *EVD) judge(a *after, w *watermark, n int) {
	if w.armed && n > w.soft {
		w.armed = false
		a.addMark(mark{w.ep, w.ep.epoch.Load(), markSoftHigh})
	}
	if w.hard > 0 && n > w.hard {
		w.hard = 0
		a.addMark(mark{w.ep, w.ep.epoch.Load(), markHardHigh})
	}
	if !w.waits() {
		e.watching--
	}
}

// recount finds what the EP holds among the events that are queued, for one that was not watched before.
func (e *EVD) recount(a *after, w *watermark) {
	e.publish(a)
	word, n := a.ring.Ready(a.ring.Cap())
	for i := range n {
		var ev Event
		ev.fetch(e, a.ring.At(word, i))
		if ev.ref == w.ep.ref && ev.Stream() == StreamDTO && ev.op.receive() {
			w.held.add(a.ring.Tail() - uint64(n-i))
		}
	}
}

// SetWatermark sets how many receives of its SRQ the EP may hold, from a message's arrival until its event
// is taken (dat_ep_set_watermark). When it holds more than softHigh, one AsyncWatermark event
// (ReasonEPSoftHighWatermark) is raised; a further call arms it again. When it holds more than
// hardHigh the connection is broken. Either happens at once if the EP is connected and holds more already.
// WatermarkInfinite disables either. It does not block.
//
// INVALID_STATE: the EP has no SRQ. INVALID_PARAMETER: below 1 and not WatermarkInfinite (ARG2, ARG3).
// MODEL_NOT_SUPPORTED: the adapter has no watermarks.
func (ep *EP) SetWatermark(softHigh, hardHigh int) error {
	const op = "ep_set_watermark"
	if ep.gone() {
		return ep.errGone(op)
	}
	switch {
	case ep.ia.provider.SRQWatermarksSupported == 0:
		return ep.fail(op, ModelNotSupported, NoSubtype, nil, "the adapter has no watermarks")
	case ep.srq == nil:
		return ep.fail(op, InvalidState, NoSubtype, nil, "the EP has no SRQ")
	case softHigh < 1 && softHigh != WatermarkInfinite:
		return ep.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("soft high watermark %d", softHigh))
	case hardHigh < 1 && hardHigh != WatermarkInfinite:
		return ep.fail(op, InvalidParameter, InvalidArg3, nil, fmt.Sprintf("hard high watermark %d", hardHigh))
	}
	ep.ctl.Lock()
	defer ep.ctl.Unlock()
	if ep.gone() {
		return ep.errGone(op)
	}
	ep.recv.watch(newWatermark(ep, softHigh, hardHigh))
	return nil
}

// exceeded breaks the connection of an EP that holds too many receives, if it is still that of the epoch.
func (ep *EP) exceeded(epoch uint32) {
	ep.mu.Lock()
	if epoch != ep.epoch.Load() {
		ep.mu.Unlock()
		return
	}
	if _, ok := ep.advanceLocked(causeBroken, &connHardHigh); ok {
		ep.disconnectQP(false)
	}
}

// RecvInfo is what RecvQuery tells.
type RecvInfo struct {
	// Allocated counts receives allocated to the EP whose completion was not generated
	// (nbufs_allocated): all that are posted or, of an SRQ, those that messages are arriving in.
	Allocated int
	// Span is the distance from the newest of them to the newest that has completed
	// (bufs_alloc_span).
	Span int
}

// RecvQuery counts the receives that the EP holds in the adapter (dat_ep_recv_query). It does not
// block.
//
// MODEL_NOT_SUPPORTED: the EP has an SRQ and the adapter does not tell.
func (ep *EP) RecvQuery() (RecvInfo, error) {
	const op = "ep_recv_query"
	if ep.gone() {
		return RecvInfo{}, ep.errGone(op)
	}
	ep.recv.lock()
	defer ep.recv.unlock()
	if ep.srq != nil {
		// A software adapter places a message as a whole, or keeps what has arrived out of the receive.
		return RecvInfo{}, nil
	}
	n := ep.recv.outstanding()
	return RecvInfo{Allocated: n, Span: n}, nil
}
