package dat

import (
	"fmt"
	"iter"

	"kdapl/internal/evring"
	"kdapl/internal/explore"
	"kdapl/internal/foreign"
	"kdapl/verbs"
)

// refillBatch is how many completions are polled at a time.
const refillBatch = 16

// after is what a section under an EVD's lock has done and leaves to be done: slots that are
// filled and not yet published, and calls that must be made without the lock.
type after struct {
	ring *evring.Ring
	n    int // slots filled behind the published ones
	room int // slots known to be free behind them
	// got counts completions that went to a dequeuer who found the ring empty, in place of slots.
	got int

	appended, wasEmpty, notifying bool

	start     int  // activations to start
	launched  bool // the one to start begins with EVD.launch
	wake      bool
	trigger   *CNO
	torn      chan struct{} // to be closed
	overflow  bool          // to be reported to the IA
	nmarks    int
	marks     [2]mark
	moreMarks []mark
}

// mark is something that a completion means for its EP, to be dealt with without the EVD's lock.
type mark struct {
	ep    *EP
	epoch uint32
	kind  markKind
}

type markKind uint8

const (
	markSendDrained markKind = iota // the request queue has delivered its last completion
	markRecvDrained                 // the receive queue has
	markSoftHigh                    // the EP holds more receives than its soft high watermark
	markHardHigh                    // … than its hard one
)

func (m mark) settle() {
	switch m.kind {
	case markSoftHigh:
		m.ep.ia.raise(AsyncWatermark, &m.ep.base, ReasonEPSoftHighWatermark)
	case markHardHigh:
		m.ep.exceeded(m.epoch)
	default:
		m.ep.drained(m.kind == markRecvDrained, m.epoch)
	}
}

// begin locks the EVD and moves what is in the CQ into the ring.
func (e *EVD) begin(a *after) {
	*a = after{ring: e.lock()}
	if e.cq != nil {
		e.refill(a, nil)
	}
}

// beginForOther is begin for a section that appends an event without reserved room, and tells whether there is
// some. It looks before the refill: were it after, a completion could come in between of which a consumer knows that it
// is older than the room that another consumer made, and so than the event.
func (e *EVD) beginForOther(a *after) (room bool) {
	*a = after{ring: e.lock()}
	room = e.roomForOther(a)
	if e.cq != nil {
		e.refill(a, nil)
	}
	return room
}

// end arms the CQ if somebody is to be notified, publishes what was appended, unlocks, and
// then starts upcalls, wakes the waiter and goes on with EPs whose queues have drained.
func (e *EVD) end(a *after) {
	for {
		if a.appended {
			e.arrived(a)
		}
		if !e.mustArm() {
			break
		}
		kind := e.discs.arm()
		if e.needsEach() {
			kind = verbs.ArmNext
		}
		if explore.On {
			explore.At(explore.Arm)
		}
		if e.cq.Arm(kind) {
			// Completions came between the poll and the arming: they are taken, and armed again.
			e.refill(a, nil)
			continue
		}
		if explore.On {
			explore.At(explore.Armed)
		}
		e.armed = true
		e.armedNext = kind == verbs.ArmNext
		break
	}
	e.counters.direct += uint64(a.got)
	e.quiet = !e.up.policy.Live() && !e.waiter.parked && e.cno == nil
	if e.foreign != nil {
		e.share()
	}
	if a.start == 1 {
		e.prepareLaunch(a)
	}
	a.ring.Unlock(a.n)
	if explore.On {
		explore.At(explore.Settle)
	}
	e.settle(a)
}

// mustArm reports whether the CQ is to be armed and is not. A waiter that is about to wake looks itself.
func (e *EVD) mustArm() bool {
	if e.cq == nil || !(e.up.policy.Live() || e.waiter.parked && !e.waiter.ready || e.needsEach() || e.cno != nil && !e.disabled) {
		return false
	}
	return !e.armed || !e.armedNext && (e.needsEach() || e.discs.arm() == verbs.ArmNext)
}

// needsEach reports whether dat itself must see each completion when it comes, whoever is notified.
func (e *EVD) needsEach() bool { return e.draining > 0 || e.watching > 0 }

// arrived tells the upcall machine and the waiter of the events that were appended.
func (e *EVD) arrived(a *after) {
	if !e.up.policy.Live() && e.up.running == 0 && !e.waiter.parked && e.cno == nil {
		// What the machine and the waiter would come to.
		e.up.pending = e.up.pending && !a.wasEmpty || a.notifying
		a.appended, a.notifying = false, false
		return
	}
	var start bool
	if a.wasEmpty && !a.notifying && e.up.running > 0 {
		// Pending ends here although an activation runs: it must ask before it takes more.
		a.ring.Turn()
	}
	if e.up, start = e.up.arrive(a.wasEmpty, a.notifying); start {
		a.start++
	}
	if e.waiter.parked && a.notifying && a.ring.Len()+a.n >= e.waiter.threshold {
		a.wake, e.waiter.ready = true, true
	}
	if e.cno != nil && !e.disabled && a.notifying {
		a.trigger = e.cno
	}
	a.appended, a.notifying = false, false
}

// settle does what had to wait for the lock to be given up.
func (e *EVD) settle(a *after) {
	for run := e.run; a.start > 0; a.start-- {
		if a.launched {
			run = e.runLaunched
		}
		if explore.On {
			explore.Go(run)
			continue
		}
		go run()
	}
	if a.wake {
		e.waiter.signal()
		e.foreign.Signal()
	}
	if a.trigger != nil {
		a.trigger.trigger(e)
	}
	if a.torn != nil {
		close(a.torn)
	}
	for _, m := range a.marks[:a.nmarks] {
		m.settle()
	}
	for _, m := range a.moreMarks {
		m.settle()
	}
	if a.overflow {
		e.ia.raise(AsyncErrorEVDOverflow, &e.base, ReasonEVDOverflow)
	}
}

// publish makes what was appended visible without giving up the lock.
func (e *EVD) publish(a *after) {
	if a.n > 0 {
		a.ring.Publish(a.n)
		a.room -= a.n
		a.n = 0
	}
}

// pump moves what is in the CQ into the ring and notifies. The CQ calls it when an arming fires.
func (e *EVD) pump() {
	var a after
	a.ring = e.lock()
	e.armed = false
	if e.cq != nil && !e.freed.Load() {
		e.refill(&a, nil)
	}
	e.end(&a)
}

// refill moves completions from the CQ into the ring; the first ones to dst, which is a dequeuer's who
// found the ring empty, or nil.
func (e *EVD) refill(a *after, dst []Event) {
	for {
		if explore.On {
			explore.At(explore.Refill)
		}
		n := e.poller.PollAlone(e.scratch)
		for i := range n {
			e.complete(a, dst, &e.scratch[i])
		}
		if n < len(e.scratch) {
			return
		}
	}
}

// complete makes an event of a completion, unless nobody wants it.
func (e *EVD) complete(a *after, dst []Event, c *verbs.Completion) {
	b := e.ia.objects.lookup(ref(c.UserData))
	if b == nil {
		return // the EP was freed; it has flushed its requests itself
	}
	ep := b.self.(*EP)
	if c.Op == verbs.OpDrained {
		kind := markSendDrained
		if c.Flags&verbs.CompletionRecvQueue != 0 {
			kind = markRecvDrained
		}
		a.addMark(mark{ep, ep.epoch.Load(), kind})
		return
	}
	var local Event
	ev, direct := &local, a.got < len(dst)
	if direct {
		ev = &dst[a.got]
		*ev = Event{}
	}
	q, rec, notifying := ep.completion(ev, c)
	switch {
	case rec == nil:
	case q.discard || rec.flags&CompletionSuppress != 0 && ev.status == StatusSuccess:
		rec.taken(q)
	case q.holding:
		q.held = append(q.held, heldEvent{*ev, rec, notifying})
	case direct:
		if ev.evd, ev.obj = e, b.self; ev.ref != b.ref {
			ev.resolve(e)
		}
		a.got++
		rec.taken(q)
	default:
		e.deliver(a, q, ev, rec, notifying)
	}
}

// addMark notes a mark, for settle.
func (a *after) addMark(m mark) {
	if a.nmarks < len(a.marks) {
		a.marks[a.nmarks] = m
		a.nmarks++
		return
	}
	a.moreMarks = append(a.moreMarks, m)
}

// deliver appends the event of a completed request.
func (e *EVD) deliver(a *after, q *dtoQueue, ev *Event, rec *record, notifying bool) {
	pos := e.append(a, ev, notifying)
	rec.done = pos + doneAt
	if q.srq != nil {
		rec.done = doneWithoutEvent // the place is kept elsewhere: the record may be another EVD's next
		q.srq.completed(uint32(rec.object), evdPosition{e, pos + 1})
		if q.mark != nil {
			e.watch(a, q.mark, pos)
		}
	}
}

// append puts an event behind the others, and returns its position. The caller has seen that
// there is room for it.
func (e *EVD) append(a *after, ev *Event, notifying bool) uint64 {
	if a.n >= a.room {
		if a.room = a.ring.Free(); a.n >= a.room || a.ring.Old() {
			// The ring is on the heap and was never as full, it holds what no longer counts (an EP was freed with events
			// undelivered), or its positions run out.
			e.publish(a)
			room := e.qlen + e.reserved
			if e.memory == nil {
				room = min(room, 2*a.ring.Cap())
			}
			if r, err := e.replace(a.ring, max(room, a.ring.Len()+1)); err == nil {
				a.ring, a.room = r, r.Free()
			}
		}
	}
	if !a.appended {
		a.appended, a.wasEmpty = true, a.n == 0 && a.ring.Len() == 0
	}
	a.notifying = a.notifying || notifying
	if explore.On {
		explore.At(explore.Append)
	}
	ev.store(a.ring.Slot(a.n))
	pos := a.ring.Tail() + uint64(a.n)
	a.n++
	return pos
}

// roomForOther reports whether an event may be appended that has no reserved room.
func (e *EVD) roomForOther(a *after) bool {
	return e.queuedOthers(a) < e.qlen
}

// queuedOthers counts the queued events that use room that is not reserved.
func (e *EVD) queuedOthers(a *after) int {
	if e.reserved == 0 && len(e.others.pos) == 0 {
		return a.ring.Len() + a.n
	}
	return e.others.count(a.ring.Head())
}

// post appends an event of another stream than data transfer. false means that there
// is no room: the IA's asynchronous EVD is told once, and nothing else happens here.
func (e *EVD) post(ev *Event) bool { return e.postFor(ev, nil) }

// postFor is post, of an event of an EP's connection: the completions of the EP that were held back go
// behind ESTABLISHED and before every other event, in the same step.
func (e *EVD) postFor(ev *Event, ep *EP) bool {
	var a after
	ok := e.beginForOther(&a)
	if e.freed.Load() {
		e.end(&a)
		return false
	}
	if ev.Number != ConnectionEstablished {
		ep.releaseHeld(e, &a)
	}
	if ok {
		e.appendOther(&a, ev)
		e.overflow = false
	} else {
		e.counters.refused++
		a.overflow = !e.overflow && e.kindOfOverflow()
		e.overflow = true
	}
	if ev.Number == ConnectionEstablished {
		ep.releaseHeld(e, &a)
	}
	e.end(&a)
	return ok
}

// kindOfOverflow reports whether an overflow of this EVD can be reported: that of the
// asynchronous EVD itself has nowhere to go.
func (e *EVD) kindOfOverflow() bool { return e != e.ia.async.Load() }

func (e *EVD) appendOther(a *after, ev *Event) {
	pos := e.append(a, ev, true)
	if e.cq != nil || e.reserved > 0 {
		if len(e.others.pos) == 0 {
			// From now on positions are counted: what is queued already used unreserved room.
			for p := a.ring.Head(); p < pos; p++ {
				if e.reserved == 0 {
					e.others.add(p)
				}
			}
		}
		e.others.add(pos)
	}
}

// PostSE queues a software event that carries a value of the consumer's (dat_evd_post_se). It
// does not block, and allocates nothing.
//
// ErrQueueFull: no room; nothing is queued, and no asynchronous event is raised.
// INVALID_PARAMETER (ARG1): the EVD lacks StreamSoftware. INVALID_HANDLE: it was freed.
func (e *EVD) PostSE(value uint64) error {
	if e.gone() || e.streams&StreamSoftware == 0 {
		return e.refusePost()
	}
	if e.cq == nil {
		r := e.ring.Load()
		tail, ok := r.TryLock()
		if !ok {
			tail = r.LockSlow()
		}
		if n, ok := r.Queued(tail); ok && e.quiet && n < min(e.qlen, r.Cap()) {
			if explore.On {
				explore.At(explore.Append)
			}
			// The lock is the EVD's, and there is nobody to notify: what end would do comes down to this.
			evring.Store(r.Place(tail), uint64(SoftwareEvent), 0, value, 0, 0)
			if !e.up.pending || e.overflow { // a look costs less than a store
				e.up.pending, e.overflow = true, false
			}
			r.Release(tail + 1)
			return nil
		}
		r.Release(tail)
	}
	return e.postSE(value)
}

// postSE is PostSE where there is more to do.
func (e *EVD) postSE(value uint64) error {
	ev := Event{Number: SoftwareEvent, cookie: value}
	var a after
	room := e.beginForOther(&a)
	defer e.end(&a)
	if e.freed.Load() {
		return e.errGone("evd_post_se")
	}
	if !room {
		e.counters.refused++
		return ErrQueueFull
	}
	e.appendOther(&a, &ev)
	e.overflow = false
	return nil
}

func (e *EVD) refusePost() error {
	if e.gone() {
		return e.errGone("evd_post_se")
	}
	return e.fail("evd_post_se", InvalidParameter, InvalidArg1, nil, "the EVD was created without StreamSoftware")
}

// take1 is take for one event. It claims the event first and writes it then: what is written before an
// exchange has to leave the core before the exchange can be made.
func (e *EVD) take1(ev *Event) int {
	r := e.ring.Load()
	for {
		w, n := r.Ready(1)
		if n == 0 {
			return 0
		}
		w0, w1, w2, w3, w4 := evring.Load(r.At(w, 0))
		if explore.On {
			explore.At(explore.Take)
		}
		if r.Claim(w, 1) {
			ev.fill(e, w0, w1, w2, w3, w4)
			if ev.named() {
				ev.resolve(e)
			}
			return 1
		}
	}
}

// take claims up to len(dst) events from the ring.
func (e *EVD) take(dst []Event) int {
	r := e.ring.Load()
	for {
		w, n := r.Ready(len(dst))
		if n == 0 {
			return 0
		}
		for i := range n {
			dst[i].fetch(e, r.At(w, i))
		}
		if explore.On {
			explore.At(explore.Take)
		}
		if r.Claim(w, n) {
			return n
		}
	}
}

// Dequeue takes the oldest event (dat_evd_dequeue). It does not block; it may make one round of
// the adapter's progress.
//
// ErrQueueEmpty: there is none, in the queue and in the adapter. INVALID_STATE
// (EVD_WAITER): a waiter owns the events. INVALID_HANDLE: the EVD was freed.
func (e *EVD) Dequeue() (Event, error) {
	var ev [1]Event
	if e != nil && e.status.Load() == 0 && e.ia != nil && e.take1(&ev[0]) == 1 {
		return ev[0], nil
	}
	if n, err := e.dequeueSlow(ev[:]); err != nil {
		return Event{}, err
	} else if n == 0 {
		return Event{}, ErrQueueEmpty
	}
	return ev[0], nil
}

// DequeueInto takes up to len(dst) events, oldest first, and returns their number. It is Dequeue for
// speed: 0 is what Dequeue returns as an error. It does not block, and allocates nothing.
func (e *EVD) DequeueInto(dst []Event) int {
	if e != nil && e.status.Load() == 0 && e.ia != nil {
		r, n := e.ring.Load(), 0
		if len(dst) == 1 {
			n = e.take1(&dst[0])
		} else {
			n = e.take(dst)
		}
		switch {
		case n > 0 || len(dst) == 0:
			return n
		case e.cq == nil:
			// A ring that is frozen has been empty for nobody: the events are in the next one.
			if e.ring.Load() == r && !r.Frozen() {
				return 0
			}
		case e.helper == nil:
			if n, empty := e.pollInto(dst); n > 0 || empty {
				return n
			}
		}
	}
	n, _ := e.dequeueSlow(dst)
	return n
}

// dequeueSlow looks for events where the ring had none, and says why there are none.
func (e *EVD) dequeueSlow(dst []Event) (int, error) {
	for {
		switch {
		case e.gone():
			return 0, e.errGone("evd_dequeue")
		case e.status.Load()&foreign.StatusWaited != 0:
			return 0, e.fail("evd_dequeue", InvalidState, InvalidStateEVDWaiter, nil, "a waiter owns the events")
		}
		moved := e.progress()
		if explore.On {
			explore.At(explore.Empty)
		}
		var a after
		a.ring = e.lock()
		queued := a.ring.Len()
		if e.cq != nil && !e.freed.Load() {
			first := dst
			if queued > 0 || e.waiter.owned {
				first = nil // something is older than what the CQ has, or it is the waiter's
			}
			e.refill(&a, first)
			queued += a.n
		}
		e.end(&a)
		if a.got > 0 {
			return a.got, nil
		}
		if n := e.take(dst); n > 0 || queued == 0 && !moved {
			return n, nil
		}
	}
}

// progress helps the adapter along. No lock may be held.
func (e *EVD) progress() bool { return e.helper != nil && e.helper.Progress() }

// Drain returns an iterator that dequeues until the queue is empty:
//
//	for ev := range evd.Drain() { … }
//
// An event is taken when the loop asks for it; leaving the loop leaves the rest queued.
func (e *EVD) Drain() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for {
			ev, err := e.Dequeue()
			if err != nil || !yield(ev) {
				return
			}
		}
	}
}

func (p EVDParam) String() string {
	return fmt.Sprintf("%d of %d events queued, policy %v, streams %v", p.Queued, p.QLen, p.Policy, p.Streams)
}
