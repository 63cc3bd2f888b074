package dat

// The upcall machine: who may be called up, and when. It is pure: a state, inputs, and what the
// EVD has to do; the EVD holds one under its lock, tests walk all of it, and the
// Promela model mirrors it.
//
// An activation is a goroutine that calls the consumer up until it is told to stop. The
// state counts activations; which events they deliver is the queue's business.
//
//	           arrive(notifying)                     arrive, modify(INVOC_ANY)
//	┌────────┐ ───────────────► ┌─────────┐ entitled ┌─────────┐ step: take  ┌────────┐
//	│ idle   │                  │ pending │ ───────► │ running │ ──────────► │ upcall │
//	│        │ ◄─────────────── │         │  start   │         │ ◄────────── │        │
//	└────────┘  queue empty,    └─────────┘          └─────────┘   returned  └────────┘
//	            INVOC_NEW going live     ▲  step: stop    │
//	                                     └────────────────┘
//	entitled: live (SINGLE, MANY, NOTIFY), pending, fewer activations than the policy
//	allows and, for NOTIFY, armed.
type upcalls struct {
	policy UpcallPolicy
	// pending: an event that notifies has arrived, or INVOC_ANY found events, and the queue
	// has not been empty since.
	pending bool
	// armed: NOTIFY has not yet used up its arming.
	armed bool
	// running counts activations, old those of them that began before the last teardown.
	running, old int32
	// many is the most activations under MANY.
	many int32
}

// limit is the most activations that the policy allows.
func (u upcalls) limit() int32 {
	switch u.policy {
	case UpcallSingleInstance, UpcallNotify:
		return 1
	case UpcallMany:
		return u.many
	}
	return 0
}

// begin starts an activation if one is entitled to run.
func (u upcalls) begin() (upcalls, bool) {
	if !u.pending || u.running >= u.limit() || u.policy == UpcallNotify && !u.armed {
		return u, false
	}
	u.running++
	return u, true
}

// arrive is the input that events were queued; wasEmpty says that the queue was empty
// before them, notifying that at least one of them notifies. start is a new activation.
func (u upcalls) arrive(wasEmpty, notifying bool) (next upcalls, start bool) {
	if wasEmpty {
		u.pending = false // consumers empty the queue without telling
	}
	u.pending = u.pending || notifying
	return u.begin()
}

// modify is the input of a policy change; queued says that the queue holds events. ok is
// false, and nothing changed, if INVOC_EMPTY found events.
func (u upcalls) modify(policy UpcallPolicy, flag UpcallFlag, queued bool) (next upcalls, start, ok bool) {
	if flag == InvocEmpty && queued {
		return u, false, false
	}
	if !queued || flag == InvocNew && policy.Live() && !u.policy.Live() {
		u.pending = false
	}
	if flag == InvocAny && queued {
		u.pending = true
	}
	u.policy = policy
	u.armed = policy == UpcallNotify
	u, start = u.begin()
	return u, start, true
}

// teardown is the input of a policy change to TEARDOWN: activations that run now are old.
func (u upcalls) teardown() upcalls {
	u.policy, u.armed, u.old = UpcallTeardown, false, u.running
	return u
}

// upcallAction is what an activation does next.
type upcallAction uint8

const (
	actStop   upcallAction = iota // end
	actTake                       // take the head of the queue and call up with it
	actNotify                     // call up without an event
)

// step is the input of an activation that asks what to do: when it begins and after
// each upcall. queued counts the events in the queue as far as it matters (0, 1, more);
// old says that the activation began before the last teardown. After actStop comes end. start
// is another activation, for the events behind the one taken.
func (u upcalls) step(queued int, old bool) (next upcalls, act upcallAction, start bool) {
	if queued == 0 {
		u.pending = false
	}
	if old || !u.pending || u.running > u.limit() || u.policy == UpcallNotify && !u.armed {
		return u, actStop, false
	}
	if u.policy == UpcallNotify {
		u.armed = false
		return u, actNotify, false
	}
	if queued > 1 {
		u, start = u.begin()
	}
	return u, actTake, start
}

// end is the input of an activation that ends, as step tells it or because the consumer's
// function ended the goroutine; queued as for step. start is another one in its place.
func (u upcalls) end(queued int, old bool) (next upcalls, start bool) {
	if queued == 0 {
		u.pending = false
	}
	u.running--
	if old {
		u.old--
	}
	return u.begin()
}
