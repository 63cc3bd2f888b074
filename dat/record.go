package dat

import (
	"sync/atomic"

	"kdapl/internal/evring"
	"kdapl/internal/fastlock"
	"kdapl/verbs"
)

// record is what dat keeps of an outstanding request: what its event needs. The ID of the work request
// counts the records of its queue, of which the present one are in a ring.
type record struct {
	cookie uint64
	// done is 0 while the request is outstanding; doneWithoutEvent, or doneAt plus the position
	// of its event in its EVD, when it has completed. Under the EVD's lock.
	done uint64
	// object is the RMR or LMR that a bind, fast registration or invalidation works on. Of a receive from an SRQ
	// it is the record's index.
	object ref
	flags  CompletionFlags
	op     Operation
}

const (
	doneWithoutEvent = 1
	doneAt           = 2
)

// partOfNext is a flag of records beside those that the consumer gives: the request is part of the one behind it
// and has no event of its own.
const partOfNext CompletionFlags = 1 << 31

// taken marks the request as completed, without an event that is still to be taken. The EVD is locked.
func (rec *record) taken(q *dtoQueue) {
	rec.done = doneWithoutEvent
	if q.srq != nil {
		q.srq.completed(uint32(rec.object), evdPosition{})
	}
}

// heldEvent is an event that waits for ESTABLISHED to be queued before it.
type heldEvent struct {
	ev        Event
	rec       *record
	notifying bool
}

// dtoQueue is one side of an EP: its requests or its receives.
type dtoQueue struct {
	// mu serializes all but common posts, and with gate all of them: see gate.go. It is held across the device's post, whose
	// notifications may take EP.mu and EVD locks; nothing that is reached from a notification takes a dtoQueue.mu.
	mu         fastlock.Mutex
	gate       atomic.Pointer[gate]
	shut       bool     // the gate is shut: mu is held. Under the gate's lock
	rec        []record // a power of two, of at least depth entries, made at the first post
	posted     uint64
	head, tail uint64 // records in use: [head, tail)
	// passed is an ID up to which the consumer has taken all events, as far as that was seen while the EVD was
	// locked anyway. Written under the EVD's lock, read under mu.
	passed atomic.Uint64
	depth  int

	// evd is where completions go. It changes under mu, EP.mu and the EVD's lock, while
	// nothing is outstanding.
	evd *EVD
	// srq, if not nil, has the records of receives; then rec is unused.
	srq *SRQ
	// discard: the consumer named no EVD; evd is the IA's sink.
	discard bool
	disc    discipline
	ud      bool // the EP is of ServiceUD
	// dead: the CQ has failed; dat completes what is posted, as flushed. It changes under mu and EP.mu.
	dead bool

	// Under the EVD's lock:

	// holding: the connection is being set up, so completions are held.
	holding bool
	held    []heldEvent
	// draining: the drained mark of the EP's epoch is awaited.
	draining bool
	// partFailed: a part of the request that completes next has failed, so that the rest is flushed.
	partFailed bool
	// mark watches how many receives of an SRQ the EP holds; nil if nobody asked.
	mark     *watermark
	counters DTOCounters
}

// DTOCounters count the operations of one side of an EP since it was created.
type DTOCounters struct {
	// Posted counts accepted posts, but for receives of an SRQ, which are the SRQ's.
	Posted uint64
	// Succeeded, Flushed and Failed count completions by outcome, suppressed ones included.
	Succeeded, Flushed, Failed uint64
	// Bytes counts the payload of successful operations.
	Bytes uint64
}

func (c *DTOCounters) count(s Status, length uint32) {
	switch s {
	case StatusSuccess:
		c.Succeeded++
		c.Bytes += uint64(length)
	case StatusFlushed:
		c.Flushed++
	default:
		c.Failed++
	}
}

// reserve makes room for n records at the tail, if need be by looking which events of the
// oldest were taken, and returns how many of n there is room for. the queue is locked.
func (q *dtoQueue) reserve(n int) int {
	if q.rec == nil && q.depth > 0 {
		q.rec = make([]record, evring.Capacity(q.depth))
	}
	if room := q.room(); room >= n {
		return n
	}
	q.reclaim()
	return min(n, q.depth-int(q.tail-q.head))
}

// room counts the records that are free, as far as that is known without the EVD's lock. the queue is locked.
func (q *dtoQueue) room() int {
	if int(q.tail-q.head) >= q.depth {
		q.head = max(q.head, q.passed.Load())
	}
	return q.depth - int(q.tail-q.head)
}

// reclaim takes records out whose events were taken from the EVD. the queue is locked.
func (q *dtoQueue) reclaim() {
	if q.head == q.tail {
		return
	}
	e := q.evd
	e.progress()
	var a after
	e.begin(&a)
	taken := a.ring.Head()
	for q.head < q.tail {
		rec := q.record(q.head)
		if rec.done == 0 || rec.done >= doneAt && rec.done-doneAt >= taken {
			break
		}
		q.head++
	}
	e.end(&a)
}

// record is the record of a request's ID.
func (q *dtoQueue) record(i uint64) *record { return &q.rec[i&uint64(len(q.rec)-1)] }

// next is the ID and record of the i-th request behind the tail.
func (q *dtoQueue) next(i int) (uint64, *record) {
	id := q.tail + uint64(i)
	return id, q.record(id)
}

// find returns the record of an ID, nil if there is none. The EVD is locked.
func (q *dtoQueue) find(id uint64) *record {
	if q.srq != nil {
		if all := q.srq.records(); id < uint64(len(all)) {
			return all[id]
		}
		return nil
	}
	if len(q.rec) == 0 {
		return nil
	}
	return q.record(id)
}

// outstanding counts the requests that have not completed. the queue is locked.
func (q *dtoQueue) outstanding() int {
	if q.head == q.tail {
		return 0
	}
	e := q.evd
	e.progress()
	var a after
	e.begin(&a)
	defer e.end(&a)
	n := 0
	for i := q.head; i < q.tail; i++ {
		if q.record(i).done == 0 {
			n++
		}
	}
	return n
}

// hold starts or ends the holding back of completions.
func (q *dtoQueue) hold(on bool) {
	e := q.evd
	var a after
	e.begin(&a)
	if on {
		q.holding = true
	} else {
		q.release(e, &a)
	}
	e.end(&a)
}

// release ends the holding back, and delivers what was held. The EVD is locked.
func (q *dtoQueue) release(e *EVD, a *after) {
	q.holding = false
	for i := range q.held {
		h := &q.held[i]
		e.deliver(a, q, &h.ev, h.rec, h.notifying)
	}
	q.held = nil
}

// awaitDrained makes sure that the drained mark of an epoch is seen although nobody may be dequeuing: the EVD, which is
// that of the epoch, arms its CQ until then. An epoch that is over meanwhile, and with it the EVD, is none of the queue's any more.
func (q *dtoQueue) awaitDrained(e *EVD, ep *EP, epoch uint32) {
	var a after
	e.begin(&a)
	if ep.epoch.Load() == epoch && !q.draining {
		q.draining = true
		e.draining++
	}
	e.end(&a)
}

// stopDraining ends what awaitDrained began. If ep is not nil, it does so only while the epoch lasts.
func (q *dtoQueue) stopDraining(e *EVD, ep *EP, epoch uint32) {
	var a after
	e.begin(&a)
	if (ep == nil || ep.epoch.Load() == epoch) && q.draining {
		q.draining = false
		e.draining--
	}
	e.end(&a)
}

// flushLeft completes as flushed what the device did not complete, behind what is held back: it is called when
// the device has nothing more to say, because the QP is gone or never was.
func (q *dtoQueue) flushLeft(ep *EP) {
	q.lock()
	defer q.unlock()
	q.flushLocked(ep)
}

// flushLocked is flushLeft with the queue locked.
func (q *dtoQueue) flushLocked(ep *EP) {
	e := q.evd
	if e == nil {
		return
	}
	var a after
	e.begin(&a)
	defer e.end(&a)
	q.release(e, &a)
	for i := q.head; i < q.tail; i++ {
		rec := q.record(i)
		if rec.done != 0 {
			continue
		}
		if rec.flags&partOfNext != 0 {
			rec.done = doneWithoutEvent
			continue
		}
		if rec.op.local() {
			ep.ranLocal(rec, StatusFlushed)
		}
		q.counters.count(StatusFlushed, 0)
		if q.discard {
			rec.done = doneWithoutEvent
			continue
		}
		ev := Event{Number: rec.op.event(), op: rec.op, status: StatusFlushed, ref: ep.ref, cookie: rec.cookie}
		if rec.op == OpBindMW {
			ev.ref = rec.object
		}
		e.deliver(&a, q, &ev, rec, true)
	}
}

// event is the number of an operation's completion event.
func (o Operation) event() EventNumber {
	switch {
	case o == OpBindMW:
		return RMRBindCompletion
	case o >= OpRDMAWriteImmediate:
		return IBDTOEvent
	}
	return DTOCompletion
}

// local reports whether the operation works on the own adapter's memory keys.
func (o Operation) local() bool { return o == OpBindMW || o == OpLMRFMR || o == OpLMRInvalidate }

// receive reports whether the operation is a completed receive.
func (o Operation) receive() bool {
	switch o {
	case OpReceive, OpReceiveWithInvalidate, OpReceiveImmediate, OpReceiveMessageImmediate, OpReceiveUD, OpReceiveUDImmediate:
		return true
	}
	return false
}

// partRan notes the outcome of a request that is part of the one behind it. The EVD is locked.
func (q *dtoQueue) partRan(rec *record, c *verbs.Completion) {
	rec.done = doneWithoutEvent
	q.partFailed = c.Status != verbs.StatusSuccess && c.Status != verbs.StatusFlushed
}

// ranLocal tells the object that a request works on that it has run. The EVD is locked.
func (ep *EP) ranLocal(rec *record, s Status) {
	b := ep.ia.objects.lookup(rec.object)
	if b == nil {
		return
	}
	switch o := b.self.(type) {
	case *RMR:
		o.inFlight.Add(-1)
	case *LMR:
		o.fast.ran(rec.op, s)
	}
}

// statusOf maps the outcome of a work request to DAT's.
var statusOf = [...]Status{
	verbs.StatusSuccess:              StatusSuccess,
	verbs.StatusFlushed:              StatusFlushed,
	verbs.StatusLocalLength:          StatusLocalLength,
	verbs.StatusLocalQPOp:            StatusLocalEP,
	verbs.StatusLocalProtection:      StatusLocalProtection,
	verbs.StatusMWBind:               StatusRMROperationFailed,
	verbs.StatusBadResponse:          StatusBadResponse,
	verbs.StatusRemoteInvalidRequest: StatusRemoteResponder,
	verbs.StatusRemoteAccess:         StatusRemoteAccess,
	verbs.StatusRemoteOp:             StatusRemoteResponder,
	verbs.StatusRetryExceeded:        StatusTransport,
	verbs.StatusRNRRetryExceeded:     StatusReceiverNotReady,
	verbs.StatusMemoryManagement:     StatusLocalMMError,
	verbs.StatusFatal:                StatusTransport,
}

// completion makes the event of a completion of one of the EP's queues. rec is nil if the device
// named a request that is not outstanding. The EVD is locked.
func (ep *EP) completion(ev *Event, c *verbs.Completion) (q *dtoQueue, rec *record, notifying bool) {
	recv := c.Flags&verbs.CompletionRecvQueue != 0
	if q = &ep.request; recv {
		q = &ep.recv
	}
	if rec = q.find(c.ID); rec == nil || rec.done != 0 {
		return q, nil, false
	}
	ev.status, ev.ref, ev.cookie, ev.length, ev.op = statusOf[c.Status], ep.ref, rec.cookie, c.Length, rec.op
	if c.Status != verbs.StatusSuccess {
		ev.length = 0
	}
	if recv && q.ud {
		ev.op = OpReceiveUD // also if the receive is from an SRQ
	}
	if recv && c.Status == verbs.StatusSuccess {
		switch {
		case q.ud:
			ev.extra = uint64(c.SrcQPN)
			if c.Flags&verbs.CompletionImm != 0 {
				ev.op, ev.key, ev.flags = OpReceiveUDImmediate, c.Imm, evKeyValid
			}
		case c.Flags&verbs.CompletionInval != 0:
			ev.op, ev.key, ev.flags = OpReceiveWithInvalidate, c.InvKey, evKeyValid
		case c.Op == verbs.OpRecvRDMAImm:
			ev.op, ev.key, ev.flags = OpReceiveImmediate, c.Imm, evKeyValid
		case c.Flags&verbs.CompletionImm != 0:
			ev.op, ev.key, ev.flags = OpReceiveMessageImmediate, c.Imm, evKeyValid
		}
	}
	if rec.op.local() {
		if rec.flags&partOfNext != 0 {
			q.partRan(rec, c)
			return q, nil, false
		}
		if q.partFailed && ev.status == StatusFlushed {
			ev.status = StatusRMROperationFailed
		}
		q.partFailed = false
		ep.ranLocal(rec, ev.status)
	}
	if rec.op == OpBindMW {
		ev.ref = rec.object
	}
	ev.Number = ev.op.event()
	q.counters.count(ev.status, ev.length)
	switch {
	case c.Status != verbs.StatusSuccess:
		notifying = true
	case q.disc == discSolicited:
		notifying = c.Flags&verbs.CompletionSolicited != 0
	default:
		notifying = rec.flags&CompletionUnsignalled == 0
	}
	return q, rec, notifying
}
