package dat

import (
	"fmt"
	"math"
	"sync/atomic"

	"kdapl/internal/evring"
	"kdapl/internal/explore"
	"kdapl/internal/foreign"
	"kdapl/verbs"
)

// UpcallFunc is the consumer's function that an EVD calls up (DAT_UPCALL_FUNC; the instance data
// of C is what the function closes over). more reports whether events were queued behind ev
// when ev was taken; it is a snapshot, not a promise. Under UpcallNotify ev is the zero Event.
// See the package document for what it may do.
type UpcallFunc func(ev Event, more bool)

// EVDConfig describes an EVD (the arguments of dat_evd_kcreate).
type EVDConfig struct {
	// MinLen is the least number of events that fit, beside those of the EPs' data
	// transfer operations, for which room is added when an EP is attached. 1 to
	// IAAttr.MaxEVDQLen.
	MinLen int
	// Streams are the kinds of events that may ever be attached (evd_flags). At least one.
	Streams Stream
	// Policy says whether and how Upcall is called. UpcallTeardown is the same as UpcallDisable.
	Policy UpcallPolicy
	// Upcall is the function; it is required if Policy makes upcalls.
	Upcall UpcallFunc
	// CNO is triggered by events that notify (dat_evd_create); nil is none.
	CNO *CNO
	// Memory supplies zeroed memory for the queue, of at least size bytes, aligned to 8 or
	// better to 64; nil is the Go heap. It is called at creation and each time that the queue is
	// moved; memory that was given earlier must stay readable until the EVD is freed, and is
	// passed to release then, if that is not nil.
	Memory func(size int) (mem []byte, release func())
	// Foreign, if not nil, is a consumer in another language that shares Memory: package capi's.
	Foreign *foreign.Consumer
}

// EVD is an event dispatcher: a queue of events that calls the consumer up, or is
// dequeued from, or waited on. All methods may be called concurrently, and all but Wait
// from upcalls.
type EVD struct {
	base
	ring atomic.Pointer[evring.Ring]
	// status is read without the lock by consumers: who may dequeue.
	status atomic.Uint32

	streams Stream
	cq      verbs.CQ           // nil if the EVD takes no completions
	poller  verbs.SinglePoller // cq, polled under the EVD's lock only
	helper  verbs.Progresser
	memory  func(size int) ([]byte, func())
	foreign *foreign.Consumer // nil if there is none
	// run is an activation, runLaunched one that begins with e.launch; stored so that starting them allocates nothing.
	run, runLaunched func()
	// guests are other IAs whose asynchronous events the EVD takes; their events name them by number.
	guests atomic.Pointer[[]*IA]

	// The rest is under the ring's lock. What an arrival and an activation look at is kept together: they are often on
	// different processors.

	up    upcalls
	quiet bool // nobody is notified of events: no live policy, waiter or CNO
	// armed: the CQ will call pump for the next completion, or with armedNext unset for the next
	// solicited one.
	armed, armedNext bool
	overflow         bool // an overflow was reported since the last event found room
	disabled         bool // does not trigger the CNO
	draining         int  // queues of EPs whose drained marks are awaited
	watching         int  // EPs whose high watermarks are armed
	fn               UpcallFunc
	launch           launch
	cno              *CNO
	torn             chan struct{} // closed when no old activation runs; nil if nobody waits for that
	// oldBelow: activations with a lower number, in order of their beginning, are older than the
	// last teardown.
	oldBelow uint64
	counters evdCounters

	qlen     int // room for events that are not reserved
	reserved int // room for DTO completions
	others   positions
	users    int // EPs, service points and IAs that feed the EVD
	discs    disciplines
	scratch  []verbs.Completion
	releases []func()

	waiter waiter
}

// evdCounters are the EVD's own counts, for Query.
type evdCounters struct {
	direct           uint64 // events that went from the CQ to a dequeuer without a slot
	upcalls, refused uint64
	starts, ends     uint64 // activations that have begun or were launched, and that have ended
}

// EVDCounters tell what happened at an EVD since it was created.
type EVDCounters struct {
	// Events counts the events that were queued.
	Events uint64
	// Upcalls counts calls of the consumer's function, up to the last look of an
	// activation at its queue; Activations the goroutines started for them.
	Upcalls, Activations uint64
	// Refused counts events that found no room.
	Refused uint64
}

// EVDParam is what Query tells (DAT_EVD_PARAM).
type EVDParam struct {
	// IA is the adapter.
	IA *IA
	// QLen is the number of events that fit: the room asked for and that of the attached
	// EPs' operations.
	QLen int
	// Queued is the number of events that wait now, those in the CQ included.
	Queued int
	// Policy is the upcall policy last set; after Teardown, UpcallTeardown.
	Policy UpcallPolicy
	// Upcall is the function last set.
	Upcall UpcallFunc
	// Streams are the streams of its creation.
	Streams Stream
	// CNO is the one that the EVD triggers.
	CNO *CNO
	// State is uDAPL's view: enabled, waitable, kind of notification.
	State EVDState
	// Counters are the EVD's counts.
	Counters EVDCounters
}

// NewEVD creates an EVD (dat_evd_kcreate, dat_evd_create). It does not block.
//
// INVALID_PARAMETER: MinLen (ARG2), an unknown policy (ARG3), a live policy without function
// (ARG4), no or unknown streams or a set that the provider cannot merge (ARG5).
// INSUFFICIENT_RESOURCES (RESOURCE_TEVD): more EVDs, or a longer queue, than the IA has.
func (ia *IA) NewEVD(cfg EVDConfig) (*EVD, error) {
	const op = "evd_kcreate"
	if err := ia.check(op); err != nil {
		return nil, err
	}
	switch {
	case cfg.MinLen <= 0:
		return nil, ia.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("MinLen is %d; at least 1 is needed", cfg.MinLen))
	case cfg.MinLen > ia.attr.MaxEVDQLen:
		return nil, ia.fail(op, InsufficientResources, ResourceTEVD, nil, fmt.Sprintf("MinLen is %d, the IA's limit %d", cfg.MinLen, ia.attr.MaxEVDQLen))
	case !cfg.Policy.Live() && cfg.Policy != UpcallDisable && cfg.Policy != UpcallTeardown:
		return nil, ia.fail(op, InvalidParameter, InvalidArg3, nil, fmt.Sprintf("unknown policy %v", cfg.Policy))
	case cfg.Policy.Live() && cfg.Upcall == nil:
		return nil, ia.fail(op, InvalidParameter, InvalidArg4, nil, fmt.Sprintf("policy %v needs an Upcall", cfg.Policy))
	case cfg.CNO != nil && (cfg.CNO.gone() || cfg.CNO.ia != ia):
		return nil, ia.fail(op, InvalidHandle, InvalidHandleCNO, nil, "the CNO was freed, or is of another IA")
	case cfg.Streams == 0 || !ia.provider.EVDStreamMergingSupported.Allows(cfg.Streams):
		return nil, ia.fail(op, InvalidParameter, InvalidArg5, nil, fmt.Sprintf("streams %v cannot be merged", cfg.Streams))
	}
	e := &EVD{streams: cfg.Streams, memory: cfg.Memory, foreign: cfg.Foreign, fn: cfg.Upcall, qlen: cfg.MinLen}
	e.base = base{self: e, ia: ia, kind: HandleEVD}
	e.up = upcalls{policy: cfg.Policy, armed: cfg.Policy == UpcallNotify, many: int32(ia.maxUpcalls)}
	if cfg.Policy == UpcallTeardown {
		e.up.policy = UpcallDisable
	}
	e.discs.exact = ia.device.Attr().Can(verbs.CapSolicited)
	e.setRun()
	e.waiter.wake = make(chan struct{}, 1)
	ring, release, err := e.newRing(e.firstRoom(cfg.MinLen), 0)
	if err != nil {
		return nil, ia.fail(op, InvalidParameter, InvalidArg2, err, "the memory supplied for the queue cannot be used")
	}
	e.setRing(ring)
	e.keep(release)
	if cfg.Streams&(StreamDTO|StreamRMRBind) != 0 {
		if e.cq, err = ia.device.CreateCQ(1, e.pump); err != nil {
			e.giveUp()
			return nil, ia.creationError(op, &ia.base, err, ResourceTEVD)
		}
		e.preparePolls()
		e.helper, _ = e.cq.(verbs.Progresser)
		if e.foreign != nil {
			e.foreign.Watch(e.cq, e.helper != nil)
		}
	}
	if !ia.register(&e.base, ia.attr.MaxEVDs) {
		e.giveUp()
		if e.cq != nil {
			e.cq.Destroy()
		}
		return nil, ia.full(op, ResourceTEVD)
	}
	if cfg.CNO != nil {
		if err := e.setCNO(op, cfg.CNO); err != nil {
			e.Free()
			return nil, err
		}
	}
	if cfg.Policy.Live() || e.foreign != nil {
		e.pump() // primes the CQ's notification, and what is shared
	}
	return e, nil
}

// preparePolls makes what polling the CQ needs.
func (e *EVD) preparePolls() {
	var ok bool
	if e.poller, ok = e.cq.(verbs.SinglePoller); !ok {
		e.poller = anyPoller{e.cq}
	}
	e.scratch = make([]verbs.Completion, refillBatch)
}

// anyPoller is the SinglePoller of a CQ that has no way of its own.
type anyPoller struct{ verbs.CQ }

func (p anyPoller) PollAlone(dst []verbs.Completion) int { return p.Poll(dst) }

// firstEvents is the room that a queue of the heap's memory begins with.
const firstEvents = 16

// firstRoom is the room that a queue for n events begins with. On the heap it grows to what is ever queued (see append), since
// what many connections may complete at a time is far more than what they do.
func (e *EVD) firstRoom(n int) int {
	if e.memory == nil {
		return min(n, firstEvents)
	}
	return n
}

// newRing makes a ring with room for n events, from the creator's memory or the heap.
func (e *EVD) newRing(n int, base uint64) (*evring.Ring, func(), error) {
	capacity := evring.Capacity(n)
	var mem []byte
	var release func()
	if e.memory != nil {
		mem, release = e.memory(evring.Size(capacity))
	}
	if mem == nil {
		mem = evring.Alloc(capacity)
	}
	ring, err := evring.New(mem, capacity, base)
	if err != nil && release != nil {
		release()
	}
	return ring, release, err
}

// keep notes how memory of the creator's is given back.
func (e *EVD) keep(release func()) {
	if release != nil {
		e.releases = append(e.releases, release)
	}
}

// giveUp ends an EVD that could not be made.
func (e *EVD) giveUp() {
	e.foreign.End()
	e.releaseMemory()
}

func (e *EVD) releaseMemory() {
	for _, release := range e.releases {
		release()
	}
	e.releases = nil
}

// setRing makes a ring the EVD's.
func (e *EVD) setRing(r *evring.Ring) {
	e.ring.Store(r)
	if e.foreign != nil {
		e.foreign.Control.Ring.Store(r.Address())
	}
}

// setStatus and clearStatus change bits of the status.
func (e *EVD) setStatus(bits uint32) {
	e.status.Or(bits)
	e.foreign.Mark(bits, true)
}

func (e *EVD) clearStatus(bits uint32) {
	e.status.And(^bits)
	e.foreign.Mark(bits, false)
}

// share tells a foreign consumer what it may do without a call. The EVD is locked.
func (e *EVD) share() {
	limit := 0
	if e.quiet && e.cq == nil && !e.overflow && e.streams&StreamSoftware != 0 {
		limit = e.qlen
	}
	e.foreign.Control.Limit.Store(uint32(limit))
	e.foreign.Settled()
}

// lock locks the current ring and returns it.
func (e *EVD) lock() *evring.Ring {
	for {
		r := e.ring.Load()
		if explore.On {
			explore.At(explore.Lock)
		}
		r.Lock()
		if !r.Frozen() {
			return r
		}
		r.Unlock(0)
	}
}

// replace moves the events to a ring with room for n, under the lock of r, and returns the
// new ring, locked. r is frozen and unlocked. The events are published before consumers can see the new ring, which would
// look empty otherwise.
func (e *EVD) replace(r *evring.Ring, n int) (*evring.Ring, error) {
	r.Freeze()
	to, release, err := e.newRing(n, r.Head())
	if err != nil {
		r.Thaw()
		return r, err
	}
	to.Lock()
	if explore.On {
		explore.At(explore.Move)
	}
	moved, _ := r.MoveTo(to)
	to.Publish(moved)
	e.keep(release)
	e.setRing(to)
	if explore.On {
		explore.At(explore.Moved)
	}
	r.Unlock(0)
	return to, nil
}

// Query tells the EVD's parameters (dat_evd_query). It does not block.
func (e *EVD) Query() (EVDParam, error) {
	if e.gone() {
		return EVDParam{}, e.errGone("evd_query")
	}
	var a after
	e.begin(&a)
	p := EVDParam{
		IA:      e.ia,
		QLen:    e.qlen + e.reserved,
		Queued:  a.ring.Len() + a.n,
		Policy:  e.up.policy,
		Upcall:  e.fn,
		Streams: e.streams,
		CNO:     e.cno,
		State:   e.stateLocked(),
		Counters: EVDCounters{
			Events: a.ring.Tail() + uint64(a.n) + e.counters.direct, Upcalls: e.counters.upcalls,
			Activations: e.counters.starts, Refused: e.counters.refused,
		},
	}
	e.end(&a)
	return p, nil
}

func (e *EVD) stateLocked() EVDState {
	s := EVDStateEnabled | EVDStateWaitable
	if e.disabled {
		s = s&^EVDStateEnabled | EVDStateDisabled
	}
	if e.waiter.unwaitable {
		s = s&^EVDStateWaitable | EVDStateUnwaitable
	}
	return s | e.discs.config()
}

// Resize changes the room for events that are not reserved for data transfer operations to at
// least minLen (dat_evd_resize). Nothing is lost; upcalls and dequeues go on. It does not
// block.
//
// INVALID_PARAMETER (ARG2): minLen below 1 or above IAAttr.MaxEVDQLen. INVALID_STATE: more
// such events are queued, or a waiter owns the EVD (EVD_WAITER).
// INSUFFICIENT_RESOURCES: together with the reserved room more than the IA's limit.
func (e *EVD) Resize(minLen int) error {
	const op = "evd_resize"
	if e.gone() {
		return e.errGone(op)
	}
	if minLen < 1 || minLen > e.ia.attr.MaxEVDQLen {
		return e.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("length %d, allowed are 1 to %d", minLen, e.ia.attr.MaxEVDQLen))
	}
	var a after
	e.begin(&a)
	defer e.end(&a)
	switch {
	case e.freed.Load():
		return e.errGone(op)
	case e.waiter.owned:
		return e.fail(op, InvalidState, InvalidStateEVDWaiter, nil, "a waiter owns the events")
	case minLen+e.reserved > e.ia.attr.MaxEVDQLen:
		return e.fail(op, InsufficientResources, ResourceTEVD, nil, fmt.Sprintf("%d and %d reserved exceed the IA's limit %d", minLen, e.reserved, e.ia.attr.MaxEVDQLen))
	}
	if queued := e.queuedOthers(&a); queued > minLen {
		return e.fail(op, InvalidState, NoSubtype, nil, fmt.Sprintf("%d events are queued; dequeue some first", queued))
	}
	return e.setRoom(op, &a, minLen, e.reserved)
}

// setRoom gives the queue room for qlen events and reserved completions. On the heap it has memory for fewer as long as no more
// are queued.
func (e *EVD) setRoom(op string, a *after, qlen, reserved int) error {
	need := max(qlen+reserved, a.ring.Len()+a.n)
	if room := a.ring.Cap(); evring.Capacity(need) != room && (e.memory != nil || evring.Capacity(need) < room) {
		e.publish(a)
		r, err := e.replace(a.ring, need)
		if err != nil {
			return e.fail(op, InsufficientResources, ResourceMemory, err, "no memory for the queue")
		}
		a.ring, a.room = r, 0 // the room was that of the old ring
	}
	e.qlen, e.reserved = qlen, reserved
	return nil
}

// attach makes the EVD a target of a stream. dtos is the room for data transfer completions
// that comes with it, cqes that in its CQ.
func (e *EVD) attach(op string, dtos int, d discipline) error {
	var a after
	e.begin(&a)
	defer e.end(&a)
	if e.freed.Load() {
		return e.errGone(op)
	}
	if !e.discs.fits(d, e.streams) {
		return e.fail(op, InvalidParameter, argOf(op, InvalidArg8), nil, fmt.Sprintf("completion flags %v do not fit the other streams of the EVD, which this adapter cannot tell apart", d))
	}
	e.users++
	if err := e.reserveLocked(op, &a, dtos); err != nil {
		e.users--
		return err
	}
	e.discs.add(d)
	return nil
}

// addGuest gives another IA, whose asynchronous events the EVD is to take, a number above 0.
func (e *EVD) addGuest(ia *IA) uint64 {
	for {
		old := e.guests.Load()
		var all []*IA
		if old != nil {
			all = *old
		}
		all = append(all[:len(all):len(all)], ia)
		if e.guests.CompareAndSwap(old, &all) {
			return uint64(len(all))
		}
	}
}

// reserve changes the room for data transfer completions.
func (e *EVD) reserve(op string, delta int) error {
	var a after
	e.begin(&a)
	defer e.end(&a)
	return e.reserveLocked(op, &a, delta)
}

func (e *EVD) reserveLocked(op string, a *after, delta int) error {
	if delta == 0 && e.cq == nil {
		return nil
	}
	if delta <= 0 {
		e.reserved += delta // the ring keeps its size; it may hold events that used the room
	} else if e.qlen+e.reserved+delta > e.ia.attr.MaxEVDQLen {
		return e.fail(op, InsufficientResources, ResourceTEVD, nil, fmt.Sprintf("room for %d more completions exceeds the IA's limit %d", delta, e.ia.attr.MaxEVDQLen))
	} else if err := e.setRoom(op, a, e.qlen, e.reserved+delta); err != nil {
		return err
	}
	if e.cq == nil {
		return nil
	}
	// The CQ has room for the same, and for the drained marks of both queues of each EP.
	if need := e.reserved + 2*e.users; need > e.cq.Cap() {
		if err := e.cq.Resize(need); err != nil {
			e.reserved -= delta
			f := e.ia.deviceError(op, &e.base, err).(*Error)
			if f.Type == InvalidParameter { // the length is none of the consumer's
				f.Type, f.Sub = InsufficientResources, ResourceTEVD
			}
			return f
		}
	}
	return nil
}

// detach ends what attach began. Room that was reserved stays with the ring.
func (e *EVD) detach(dtos int, d discipline) {
	var a after
	e.begin(&a)
	e.users--
	e.reserved -= dtos
	e.discs.remove(d)
	e.end(&a)
}

// Free frees the EVD (dat_evd_free). Queued events are dropped; connection requests that nobody can learn of
// thereby are refused. It does not block.
//
// INVALID_STATE (EVD_IN_USE): an EP, service point or IA feeds it, an upcall runs, or a waiter
// waits.
func (e *EVD) Free() error {
	const op = "evd_free"
	if e.gone() {
		return e.errGone(op)
	}
	var a after
	e.begin(&a)
	hint := ""
	switch {
	case e.freed.Load():
		e.end(&a)
		return e.errGone(op)
	case e.users > 0:
		hint = fmt.Sprintf("%d objects feed it; free them first", e.users)
	case e.up.running > 0:
		hint = "an upcall runs; call Teardown first"
	case e.waiter.owned:
		hint = "a waiter waits"
	}
	if hint != "" {
		e.end(&a)
		return e.fail(op, InvalidState, InvalidStateEVDInUse, nil, hint)
	}
	e.destroy(&a)
	return nil
}

// destroy ends the EVD under the lock of a, which it gives up.
func (e *EVD) destroy(a *after) {
	e.freed.Store(true)
	e.setStatus(foreign.StatusFreed)
	e.foreign.End()
	if explore.On {
		explore.At(explore.Free)
	}
	e.up.policy = UpcallDisable
	cno := e.cno
	e.cno = nil
	e.publish(a)
	lost := e.takeRequests(a)
	a.ring.Freeze()
	// A wait that began after the IA's close had aborted the one before, by ClearUnwaitable.
	e.abortWait(a, e.errAborted())
	empty, _ := evring.New(evring.Alloc(1), 1, a.ring.Tail())
	e.ring.Store(empty) // from here on others can lock the EVD
	a.ring.Unlock(0)
	if a.wake {
		e.waiter.signal()
	}
	cno.forget(e)
	for _, cr := range lost {
		cr.abandon()
	}
	if e.cq != nil {
		e.cq.Destroy()
	}
	e.releaseMemory()
	e.ia.unregister(&e.base)
}

// takeRequests takes everything out of the queue, and returns the connection requests that were in it: their peers
// wait for an answer. The EVD is locked.
func (e *EVD) takeRequests(a *after) (lost []*CR) {
	if e.streams&StreamConnectionRequest == 0 {
		return nil
	}
	for {
		lost = lost[:0]
		w, n := a.ring.Ready(math.MaxInt)
		for i := range n {
			var ev Event
			ev.fetch(e, a.ring.At(w, i))
			if ev.Number != ConnectionRequest && ev.Number != IBUDConnectionRequest {
				continue
			}
			if b := e.ia.objects.lookup(ev.ref); b != nil {
				lost = append(lost, b.self.(*CR))
			}
		}
		if n == 0 || a.ring.Claim(w, n) {
			return lost
		}
	}
}

// Enable lets the EVD trigger its CNO (dat_evd_enable); events that are queued trigger it at once. It changes
// nothing else: events are queued and waited for as before. It does not block.
func (e *EVD) Enable() error { return e.setDisabled("evd_enable", false) }

// Disable stops the EVD from triggering its CNO (dat_evd_disable). It does not block.
func (e *EVD) Disable() error { return e.setDisabled("evd_disable", true) }

func (e *EVD) setDisabled(op string, v bool) error {
	if e.gone() {
		return e.errGone(op)
	}
	var a after
	e.begin(&a)
	if e.disabled && !v && e.cno != nil && a.ring.Len()+a.n > 0 {
		a.trigger = e.cno
	}
	e.disabled = v
	e.end(&a)
	return nil
}

// positions remembers where in the ring the events are that used unreserved room, so that
// those still queued can be counted although consumers take them without the lock.
type positions struct {
	pos         []uint64
	first, last int
}

func (p *positions) add(pos uint64) {
	if p.last-p.first == len(p.pos) {
		grown := make([]uint64, max(8, 2*len(p.pos)))
		for i := range p.last - p.first {
			grown[i] = p.pos[(p.first+i)%len(p.pos)]
		}
		p.first, p.last, p.pos = 0, p.last-p.first, grown
	}
	p.pos[p.last%len(p.pos)] = pos
	p.last++
}

// count returns how many of the events are at or behind the head.
func (p *positions) count(head uint64) int {
	for p.first < p.last && p.pos[p.first%len(p.pos)] < head {
		p.first++
	}
	return p.last - p.first
}
