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

// watch counts an event of a receive from an SRQ, which was put at a position.
func (e *EVD) watch(a *after, w *watermark, pos uint64) {
	n := w.held.count(a.ring.Head()) + 1
	w.held.add(pos)
	if w.armed && n > w.soft {
		w.armed = false
		e.addMark(a, mark{w.ep, 0, markSoftHigh})
	}
	if w.hard > 0 && n > w.hard {
		w.hard = 0
		e.addMark(a, mark{w.ep, 0, markHardHigh})
	}
}

// SetWatermark sets how many receives of its SRQ the EP may hold, from a message's arrival until its event
// is taken (dat_ep_set_watermark). When it holds more than softHigh, one AsyncWatermark event
// (ReasonEPSoftHighWatermark) is raised; a further call arms it again. When it holds more than
// hardHigh the connection is broken. WatermarkInfinite disables either. It does not block.
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
	w := newWatermark(ep, softHigh, hardHigh)
	ep.recv.mu.Lock()
	defer ep.recv.mu.Unlock()
	var a after
	e := ep.recv.evd
	e.begin(&a)
	if old := ep.recv.mark; old != nil && w != nil {
		w.held = old.held
	}
	ep.recv.mark = w
	e.end(&a)
	return nil
}

// exceeded breaks the connection of an EP that holds too many receives.
func (ep *EP) exceeded() {
	if _, ok := ep.advance(causeBroken, &connHardHigh); ok {
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
	ep.recv.mu.Lock()
	defer ep.recv.mu.Unlock()
	if ep.srq != nil {
		// A software adapter places a message as a whole, or keeps what has arrived out of the receive.
		return RecvInfo{}, nil
	}
	n := ep.recv.outstanding()
	return RecvInfo{Allocated: n, Span: n}, nil
}
