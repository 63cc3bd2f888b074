package dat

// The end point machine: what each cause does to an EP in each of its 15 states. It is pure and
// a table: state × cause → state, event and what is to be done with the queues. Causes
// that a state does not name are refused or, for those that come from the network, ignored.
//
//	                    rsp_create            request              accept
//	 ┌───────────────┐ ─────────► RESERVED ─────────► PASSIVE ───────────┐
//	 │  UNCONNECTED  │ ◄───────── (rsp_free)  ◄────── (reject)            ▼
//	 │               │ ───────────────────── accept ─────────► COMPLETION_PENDING
//	 │               │ ─ connect ─► ACTIVE ─ established ─┐         │ established
//	 └───────────────┘                │                   ▼         ▼
//	         ▲                        │ failed         CONNECTED ◄──┘ ─ graceful ─► DISCONNECT_PENDING
//	   reset │                        ▼                   │ ended                      │ ended
//	         └─────────────────  DISCONNECTED ◄───────────┴────────────────────────────┘
//
// TENTATIVE is PASSIVE for an EP that the provider made. The UNCONFIGURED states are their
// twins for EPs that still lack what a connection needs; configure leads from one to the
// other. CONNECTED_SINGLE_PATH and CONNECTED_MULTI_PATH behave as CONNECTED.

// epCause is an input of the machine.
type epCause uint8

const (
	// What the consumer does.
	causeReserve   epCause = iota // rsp_create
	causeUnreserve                // rsp_free
	causeAccept                   // cr_accept
	causeReject                   // cr_reject, of a request that holds the EP
	causeConnect                  // ep_connect and its kin
	causeGraceful                 // ep_disconnect, graceful
	causeAbrupt                   // ep_disconnect, abrupt
	causeReset                    // ep_reset
	causeFree                     // ep_free
	causeConfigure                // ep_modify supplied what was missing
	causeIntroduce                // ep_connect or cr_accept of an EP of ServiceUD
	// What the network does.
	causeRequest       // a request for the EP's RSP
	causeEstablished   // the connection stands
	causePeerRejected  // the peer's consumer declined
	causeNonPeerReject // nobody there, no room, or a transport declined
	causeUnreachable   // no way to the peer
	causeTimedOut      // the connect took too long
	causeAcceptFailed  // the set-up failed after the accept
	causeAborted       // the set-up was ended from this side
	causeDisconnected  // the connection ended as one side wished
	causeBroken        // the connection ended by a fault
	causePathDown      // one of several paths is left
	causePathUp        // several paths are there again
	numEPCauses
)

// epCauseNames name the causes in diagnostics.
var epCauseNames = [numEPCauses]string{
	causeReserve: "reserve", causeUnreserve: "unreserve", causeAccept: "accept", causeReject: "reject", causeConnect: "connect",
	causeGraceful: "graceful", causeAbrupt: "abrupt", causeReset: "reset", causeFree: "free", causeConfigure: "configure", causeIntroduce: "introduce",
	causeRequest: "request", causeEstablished: "established", causePeerRejected: "peer-rejected", causeNonPeerReject: "refused",
	causeUnreachable: "unreachable", causeTimedOut: "timed-out", causeAcceptFailed: "accept-failed", causeAborted: "aborted",
	causeDisconnected: "disconnected", causeBroken: "broken", causePathDown: "path-down", causePathUp: "path-up",
}

func (c epCause) String() string { return epCauseNames[c] }

// epMove is what a cause does.
type epMove struct {
	next EPState
	// event is the one that tells the consumer; 0 is none. It is raised when the queues have
	// drained if ends is set, at once otherwise.
	event EventNumber
	// ends: the connection or its set-up is over; everything posted is flushed.
	ends bool
	// free: the EP goes away.
	free bool
}

// next is the machine. ok is false if the state refuses the cause.
func (s EPState) next(c epCause) (m epMove, ok bool) {
	m, ok = epMoves[epKey{s, c}]
	return m, ok
}

type epKey struct {
	state EPState
	cause epCause
}

var epMoves = func() map[epKey]epMove {
	t := map[epKey]epMove{}
	to := func(from EPState, c epCause, next EPState) { t[epKey{from, c}] = epMove{next: next} }
	event := func(from EPState, c epCause, next EPState, ev EventNumber) {
		t[epKey{from, c}] = epMove{next: next, event: ev}
	}
	over := func(from EPState, c epCause, ev EventNumber) {
		t[epKey{from, c}] = epMove{next: StateDisconnected, event: ev, ends: true}
	}

	// Before a connection.
	to(StateUnconnected, causeReserve, StateReserved)
	to(StateReserved, causeUnreserve, StateUnconnected)
	to(StateReserved, causeRequest, StatePassiveConnectionPending)
	to(StateUnconnected, causeAccept, StateCompletionPending)
	to(StatePassiveConnectionPending, causeAccept, StateCompletionPending)
	to(StateTentativeConnectionPending, causeAccept, StateCompletionPending)
	to(StatePassiveConnectionPending, causeReject, StateUnconnected)
	t[epKey{StateTentativeConnectionPending, causeReject}] = epMove{next: StateUnconnected, free: true}
	t[epKey{StateUnconfiguredTentative, causeReject}] = epMove{next: StateUnconnected, free: true}
	to(StateUnconfiguredUnconnected, causeReserve, StateUnconfiguredReserved)
	to(StateUnconfiguredReserved, causeUnreserve, StateUnconfiguredUnconnected)
	to(StateUnconfiguredReserved, causeRequest, StateUnconfiguredPassive)
	to(StateUnconfiguredPassive, causeReject, StateUnconfiguredUnconnected)
	for unconfigured, configured := range map[EPState]EPState{
		StateUnconfiguredUnconnected: StateUnconnected,
		StateUnconfiguredReserved:    StateReserved,
		StateUnconfiguredPassive:     StatePassiveConnectionPending,
		StateUnconfiguredTentative:   StateTentativeConnectionPending,
	} {
		to(unconfigured, causeConfigure, configured)
	}

	// Datagrams know no connection: the first connect or accept makes the EP fit to send.
	for _, s := range []EPState{StateUnconnected, StatePassiveConnectionPending, StateTentativeConnectionPending, StateConnected} {
		to(s, causeIntroduce, StateConnected)
	}

	// Set-up.
	to(StateUnconnected, causeConnect, StateActiveConnectionPending)
	event(StateActiveConnectionPending, causeEstablished, StateConnected, ConnectionEstablished)
	event(StateCompletionPending, causeEstablished, StateConnected, ConnectionEstablished)
	over(StateActiveConnectionPending, causePeerRejected, ConnectionPeerRejected)
	over(StateActiveConnectionPending, causeNonPeerReject, ConnectionNonPeerRejected)
	over(StateActiveConnectionPending, causeUnreachable, ConnectionUnreachable)
	over(StateActiveConnectionPending, causeTimedOut, ConnectionTimedOut)
	over(StateCompletionPending, causeAcceptFailed, ConnectionAcceptCompletionError)
	for _, s := range []EPState{StateActiveConnectionPending, StateCompletionPending} {
		over(s, causeGraceful, ConnectionDisconnected)
		over(s, causeAbrupt, ConnectionDisconnected)
		over(s, causeAborted, ConnectionDisconnected)
		over(s, causeDisconnected, ConnectionDisconnected)
	}
	over(StateActiveConnectionPending, causeBroken, ConnectionNonPeerRejected)
	over(StateCompletionPending, causeBroken, ConnectionAcceptCompletionError)
	over(StateCompletionPending, causeTimedOut, ConnectionAcceptCompletionError)

	// A connection and its end.
	for _, s := range []EPState{StateConnected, StateConnectedSinglePath, StateConnectedMultiPath} {
		to(s, causeGraceful, StateDisconnectPending)
		over(s, causeAbrupt, ConnectionDisconnected)
		over(s, causeDisconnected, ConnectionDisconnected)
		over(s, causeBroken, ConnectionBroken)
	}
	event(StateConnectedMultiPath, causePathDown, StateConnectedSinglePath, HADownTo1)
	event(StateConnectedSinglePath, causePathUp, StateConnectedMultiPath, HAUpToMultiPath)
	to(StateDisconnectPending, causeGraceful, StateDisconnectPending)
	over(StateDisconnectPending, causeAbrupt, ConnectionDisconnected)
	over(StateDisconnectPending, causeDisconnected, ConnectionDisconnected)
	over(StateDisconnectPending, causeBroken, ConnectionBroken)
	to(StateDisconnected, causeGraceful, StateDisconnected)
	to(StateDisconnected, causeAbrupt, StateDisconnected)

	// Reset and free.
	to(StateUnconnected, causeReset, StateUnconnected)
	to(StateDisconnected, causeReset, StateUnconnected)
	for s := StateUnconnected; s <= StateConnectedMultiPath; s++ {
		switch s {
		case StateReserved, StatePassiveConnectionPending, StateTentativeConnectionPending,
			StateUnconfiguredReserved, StateUnconfiguredPassive, StateUnconfiguredTentative:
		default:
			t[epKey{s, causeFree}] = epMove{next: StateDisconnected, ends: true, free: true}
		}
	}
	return t
}()

// connected reports whether requests run in the state.
func (s EPState) connected() bool {
	return s == StateConnected || s == StateConnectedSinglePath || s == StateConnectedMultiPath
}
