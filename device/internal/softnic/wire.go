package softnic

import "kdapl/verbs"

// Driver is what a device supplies for a context.
type Driver interface {
	// NewWire makes the transport's part of a new QP.
	NewWire(q *QP) Wire
	// Listen implements verbs.Context.
	Listen(c *Context, cfg verbs.ListenConfig) (verbs.Listener, error)
	// Resolve checks the address of an address handle.
	Resolve(a verbs.Address) error
	// Closing tells that the context is being closed: listeners end, requests that nobody
	// answered are refused. Called with no lock held.
	Closing(c *Context)
}

// Outcome is what became of a request that was started.
type Outcome uint8

const (
	// Stalled: it cannot start now. It stays first in the queue until [QP.Pump].
	Stalled Outcome = iota
	// Running: it was started and ends with [QP.Finish].
	Running
	// Done: it is over, with the status.
	Done
)

// Wire is the transport's part of one QP. Methods with a lane are called with it held, and must
// not block or call up.
type Wire interface {
	// Start runs a request of the send queue. h and v are the wire's until it
	// returns; a wire that returns Running remembers [QP.Starting] instead and looks
	// the memory up again with [QP.Source].
	Start(l *Lane, h *Head, v Vec) (Outcome, verbs.Status)
	// Posted tells that requests were appended to the queue, once for each list. It is for
	// wires that are not direct; it leads to a Pump, now or later.
	Posted(l *Lane)
	// RecvReady tells that there are receives again after a Target call found none. The lane is
	// that of the receive side.
	RecvReady(l *Lane)
	// SendStopped tells that the send side is about to be flushed, RecvStopped that the receive
	// side was: they are out of use, for good or until the next connection.
	SendStopped(l *Lane)
	RecvStopped(l *Lane)
	// Connect implements verbs.QP. The parameters were checked; Begin, for a UD QP Ask, tells whether
	// the QP's state allows it.
	Connect(p *verbs.ConnParams) error
	// Ready tells that a UD QP may send and receive from now on. Close tells that the QP is
	// gone. No lock is held.
	Ready()
	Close()
}

// Link is one connection or attempt of a QP: its identity, so that late news of an old one are
// told from those of a new one, and what the transport does when its state changes.
// Methods are called with no lock held.
type Link interface {
	// Ends are the addresses of the two ends, as q sees them.
	Ends(q *QP) (local, remote verbs.Address)
	// Drained tells that the send queue of q ran empty in QPSQD.
	Drained(q *QP)
	// Ended tells that the connection or attempt has ended for q. The transport takes the
	// news to the other end.
	Ended(q *QP, kind verbs.ConnEventKind, err error)
}
