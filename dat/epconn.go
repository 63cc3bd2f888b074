package dat

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"kdapl/verbs"
)

// ConnectConfig are the further arguments of Connect.
type ConnectConfig struct {
	// Timeout bounds the set-up; Infinite is no limit. It must be set.
	Timeout time.Duration
	// PrivateData goes to the peer with the request: at most ProviderAttr.MaxPrivateDataSize bytes.
	PrivateData []byte
	// QoS is the quality of service; the zero value is best effort.
	QoS QoS
	// Flags ask for several paths.
	Flags ConnectFlags
}

// Connect starts an active connection to a connection qualifier of an adapter (dat_ep_connect).
// The EP goes to StateActiveConnectionPending; the outcome is an event on the Connect EVD:
// ConnectionEstablished, PeerRejected, NonPeerRejected, TimedOut or Unreachable. It does not block.
//
// INVALID_STATE: not StateUnconnected (the EP's state), or no PZ or Connect EVD yet
// (EP_NOTREADY). INVALID_PARAMETER: no address (ARG2), a Timeout of 0 or below Infinite (ARG4),
// too much private data (ARG5), unknown flags (ARG8). MODEL_NOT_SUPPORTED: QoS or multipath that
// the adapter lacks. INVALID_ADDRESS: an address or qualifier that the adapter cannot reach by its kind.
func (ep *EP) Connect(remote netip.Addr, qual uint64, cfg ConnectConfig) error {
	return ep.connectTo("ep_connect", InvalidArg4, verbs.Address{IP: remote, Port: qual}, cfg)
}

// DupConnect starts a connection to where another EP is connected to (dat_ep_dup_connect). dup is not
// affected. For the rest see Connect.
//
// INVALID_HANDLE: dup was freed. INVALID_STATE: dup is not connected (its state).
// INVALID_PARAMETER (ARG3): Timeout.
func (ep *EP) DupConnect(dup *EP, cfg ConnectConfig) error {
	const op = "ep_dup_connect"
	if ep.gone() {
		return ep.errGone(op)
	}
	if dup.gone() {
		return ep.fail(op, InvalidHandle, InvalidHandle2, nil, "the EP to duplicate was freed")
	}
	dup.mu.Lock()
	remote, s := dup.conn.remote, dup.loadState()
	dup.mu.Unlock()
	if !s.connected() {
		return ep.fail(op, InvalidState, s.Subtype(), nil, dup.String()+" is not connected")
	}
	return ep.connectTo(op, InvalidArg3, remote, cfg)
}

// CommonConnect starts a connection to a socket address, where a CSP listens (dat_ep_common_connect). For the
// rest see Connect. INVALID_PARAMETER (ARG3): Timeout.
func (ep *EP) CommonConnect(remote netip.AddrPort, cfg ConnectConfig) error {
	return ep.connectTo("ep_common_connect", InvalidArg3, verbs.Address{IP: remote.Addr(), Port: uint64(remote.Port())}, cfg)
}

// connectTo is the one connect. timeoutArg is the subtype for a bad timeout; private data follow it.
func (ep *EP) connectTo(op string, timeoutArg Subtype, peer verbs.Address, cfg ConnectConfig) error {
	if ep.gone() {
		return ep.errGone(op)
	}
	fail := func(t Type, sub Subtype, hint string) error {
		e := ep.fail(op, t, sub, nil, hint)
		e.Peer = peer.String()
		return e
	}
	switch {
	case !peer.IP.IsValid():
		return fail(InvalidParameter, InvalidArg2, "no address")
	case cfg.Timeout == 0 || cfg.Timeout < Infinite:
		return fail(InvalidParameter, timeoutArg, "a Timeout above 0, or Infinite, is needed")
	case len(cfg.PrivateData) > ep.ia.provider.MaxPrivateDataSize:
		return fail(InvalidParameter, timeoutArg+1, fmt.Sprintf("%d bytes of private data, at most %d are possible", len(cfg.PrivateData), ep.ia.provider.MaxPrivateDataSize))
	case cfg.QoS&^ep.ia.provider.QoSSupported != 0:
		return fail(ModelNotSupported, NoSubtype, fmt.Sprintf("quality of service %v is not offered", cfg.QoS))
	case cfg.Flags == ConnectMultipathRequired && !ep.ia.provider.SupportsMultipath:
		return fail(ModelNotSupported, NoSubtype, "the adapter has no multipath")
	case cfg.Flags > ConnectMultipathRequired:
		return fail(InvalidParameter, InvalidArg8, fmt.Sprintf("unknown flags %v", cfg.Flags))
	}
	ep.ctl.Lock()
	defer ep.ctl.Unlock()
	if ep.gone() {
		return ep.errGone(op)
	}
	if ep.attr.ServiceType == ServiceUD {
		return ep.ask(op, peer, cfg)
	}
	if err := ep.leaveUnconnected(op, causeConnect); err != nil {
		return err
	}
	ep.mu.Lock()
	ep.conn.remote = peer
	ep.mu.Unlock()
	err := ep.qp.Connect(verbs.ConnParams{
		Remote: peer, PrivateData: cfg.PrivateData, Timeout: max(cfg.Timeout, 0), // 0 is no limit there
		ReadsIn: ep.attr.MaxRDMAReadIn, ReadsOut: ep.attr.MaxRDMAReadOut,
	})
	if err == nil {
		return nil
	}
	ep.returnTo(StateUnconnected)
	e := ep.ia.deviceError(op, &ep.base, err).(*Error)
	e.Peer = peer.String()
	return e
}

// leaveUnconnected is the first step of connect and accept: it checks that the EP has all that a
// connection needs, changes the state, and begins to hold completions back. ctl is held.
func (ep *EP) leaveUnconnected(op string, c epCause) error {
	if ep.gone() {
		return ep.errGone(op)
	}
	ep.mu.Lock()
	s := ep.loadState()
	m, ok := s.next(c)
	ready := ep.qp != nil && ep.connect != nil && !ep.recv.dead && !ep.request.dead
	if ok && ready {
		ep.state.Store(uint32(m.next))
		ep.ending = epEnd{}
		ep.conn = connection{gen: ep.conn.gen + 1}
		ep.begun++
	}
	ep.mu.Unlock()
	switch {
	case !ok:
		return ep.fail(op, InvalidState, s.Subtype(), nil, "the EP is in state "+s.String())
	case !ready:
		return ep.fail(op, InvalidState, InvalidStateEPNotReady, nil, "a connection needs a PZ, a Connect EVD, and EVDs that have not failed")
	}
	// A message of the peer's may be there before the adapter tells of the connection. Requests are posted on a connection only:
	// on an EVD of their own nobody could take them for earlier, and who has seen ESTABLISHED counts on their room.
	ep.recv.hold(true)
	if ep.request.evd == ep.connect {
		ep.request.hold(true)
	}
	if ep.loadState() != m.next { // it ended meanwhile, and nothing more would end the holding
		ep.recv.hold(false)
		ep.request.hold(false)
	}
	return nil
}

// returnTo undoes leaveUnconnected after the adapter refused.
func (ep *EP) returnTo(s EPState) {
	ep.mu.Lock()
	ep.begun--
	ep.conn = connection{gen: ep.conn.gen}
	ep.state.Store(uint32(s))
	ep.mu.Unlock()
	ep.recv.hold(false)
	ep.request.hold(false)
}

// Disconnect ends the connection, or its set-up (dat_ep_disconnect); the event
// ConnectionDisconnected follows the completions. Gracefully, requests that are posted run to
// completion and new ones are refused; abruptly, what is outstanding completes with
// StatusFlushed. In StateDisconnected it does nothing, as it does for a second graceful disconnect; a
// set-up always ends abruptly. It does not block.
//
// INVALID_STATE: there is no connection (the EP's state). INVALID_PARAMETER (ARG2): unknown flags.
func (ep *EP) Disconnect(flags CloseFlags) error {
	const op = "ep_disconnect"
	if ep.gone() {
		return ep.errGone(op)
	}
	if flags != CloseAbrupt && flags != CloseGraceful {
		return ep.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("unknown flags %v", flags))
	}
	ep.ctl.Lock()
	defer ep.ctl.Unlock()
	if ep.gone() {
		return ep.errGone(op)
	}
	if ep.attr.ServiceType == ServiceUD {
		flags = CloseAbrupt // there is nobody to agree with
	}
	cause := causeAbrupt
	if flags == CloseGraceful {
		cause = causeGraceful
	}
	before, ok := ep.advance(cause, nil)
	if !ok {
		return ep.fail(op, InvalidState, before.Subtype(), nil, "there is no connection to end")
	}
	if before != StateDisconnected && !(before == StateDisconnectPending && flags == CloseGraceful) {
		ep.disconnectQP(flags == CloseGraceful && before.connected())
	}
	return nil
}

// disconnectQP tells the device that the connection ends.
func (ep *EP) disconnectQP(graceful bool) {
	ep.mu.Lock()
	qp := ep.qp
	ep.mu.Unlock()
	if qp == nil {
		return // freed meanwhile
	}
	err := qp.Disconnect(graceful)
	if err != nil && !graceful {
		// The connection ended by itself at the same time, or never began; the queues must be flushed anyway.
		if err = qp.Modify(verbs.QPError); err != nil && !errors.Is(err, verbs.ErrState) {
			ep.ia.log.Warn("disconnect", "ep", ep.String(), "err", err)
		}
	}
	ep.pumpBoth()
}

// failed ends the connection of an EP whose queue pair has failed by itself.
func (ep *EP) failed(cause error) {
	if _, ok := ep.advance(causeBroken, &verbs.ConnEvent{Kind: verbs.ConnBroken, Err: cause}); ok {
		ep.pumpBoth()
	}
}

// pumpBoth moves what the device has said about the EP's queues, so that an end does not wait for
// the consumer to dequeue.
func (ep *EP) pumpBoth() {
	ep.mu.Lock()
	recv, request := ep.recv.evd, ep.request.evd // the consumer may give the EP others
	ep.mu.Unlock()
	recv.pump()
	request.pump()
}

// onConn receives the connection's events from the device, from the EP's n-th QP.
func (ep *EP) onConn(n uint32, ev *verbs.ConnEvent) {
	cause := [...]epCause{
		verbs.ConnEstablished:  causeEstablished,
		verbs.ConnRejected:     causePeerRejected,
		verbs.ConnRefused:      causeNonPeerReject,
		verbs.ConnUnreachable:  causeUnreachable,
		verbs.ConnTimedOut:     causeTimedOut,
		verbs.ConnAcceptFailed: causeAcceptFailed,
		verbs.ConnAborted:      causeAborted,
		verbs.ConnDisconnected: causeDisconnected,
		verbs.ConnBroken:       causeBroken,
	}[ev.Kind]
	ep.mu.Lock()
	about := ep.over + 1
	if n == ep.qps && ev.Kind != verbs.ConnEstablished {
		ep.over++
	}
	if n != ep.qps || about != ep.begun {
		ep.mu.Unlock()
		return // of an earlier connection, whose end was told
	}
	before, ok := ep.advanceLocked(cause, ev)
	ep.ia.log.Debug("connection", "ep", ep.String(), "event", cause, "before", before, "ignored", !ok,
		"local", ev.Local, "remote", ev.Remote, "err", ev.Err)
	if ok && cause != causeEstablished {
		ep.pumpBoth()
	}
}

// advance gives the machine a cause, and raises the event that follows. It returns the state
// before; ok is false if that state has no use for the cause.
func (ep *EP) advance(c epCause, ev *verbs.ConnEvent) (before EPState, ok bool) {
	ep.mu.Lock()
	return ep.advanceLocked(c, ev)
}

// advanceLocked is advance with mu held, which it gives up.
func (ep *EP) advanceLocked(c epCause, ev *verbs.ConnEvent) (before EPState, ok bool) {
	before = ep.loadState()
	m, ok := before.next(c)
	if !ok || ep.freed.Load() {
		ep.mu.Unlock()
		return before, false
	}
	ep.state.Store(uint32(m.next))
	if ev != nil {
		ep.learn(ev)
	}
	switch {
	case m.ends && !ep.ending.awaited:
		ep.ending.awaited, ep.ending.event = true, m.event
		ep.awaitDrained()
		ep.finish()
	case m.event != 0 && !m.ends:
		ep.outbox = append(ep.outbox, outEvent{m.event, ep.conn.gen})
	}
	ep.flushOutbox()
	ep.mu.Unlock()
	return before, true
}

// awaitDrained makes sure that the marks of both queues are seen although nobody may be dequeuing. mu is held, and given up
// meanwhile: the consumer may reset the EP then and give it other EVDs.
func (ep *EP) awaitDrained() {
	before, epoch, recv, request := ep.ending, ep.epoch.Load(), ep.recv.evd, ep.request.evd
	ep.mu.Unlock()
	if !before.recv {
		ep.recv.awaitDrained(recv, ep, epoch)
	}
	if !before.send {
		ep.request.awaitDrained(request, ep, epoch)
	}
	ep.mu.Lock()
	if now := ep.ending; now.recv != before.recv || now.send != before.send {
		// A mark was seen before it was awaited.
		ep.mu.Unlock()
		if now.recv {
			ep.recv.stopDraining(recv, ep, epoch)
		}
		if now.send {
			ep.request.stopDraining(request, ep, epoch)
		}
		ep.mu.Lock()
	}
}

// learn keeps what an event tells of the connection. mu is held.
func (ep *EP) learn(ev *verbs.ConnEvent) {
	if ev.Local.IP.IsValid() {
		ep.conn.local = ev.Local
	}
	if ev.Remote.IP.IsValid() {
		ep.conn.remote = ev.Remote
	}
	switch ev.Kind {
	case verbs.ConnEstablished:
		ep.conn.private = slices.Clone(ev.PrivateData)
		ep.conn.readsIn, ep.conn.readsOut = ev.ReadsIn, ev.ReadsOut
	case verbs.ConnRejected:
		ep.conn.private = slices.Clone(ev.PrivateData)
		ep.conn.cause = ev.Err
	default:
		ep.conn.cause = ev.Err
	}
}

// connHardHigh is the end of a connection whose EP holds too many receives of its SRQ.
var connHardHigh = verbs.ConnEvent{Kind: verbs.ConnBroken, Err: errors.New("the EP holds more receives than its hard high watermark")}

// drained is told that a queue has delivered the last completion of an epoch.
func (ep *EP) drained(recv bool, epoch uint32) {
	q := &ep.request
	if recv {
		q = &ep.recv
	}
	ep.mu.Lock()
	if epoch != ep.epoch.Load() {
		ep.mu.Unlock()
		return
	}
	if recv {
		ep.ending.recv = true
	} else {
		ep.ending.send = true
	}
	e := q.evd
	ep.mu.Unlock()
	q.stopDraining(e, ep, epoch)
	ep.mu.Lock()
	if epoch == ep.epoch.Load() {
		ep.finish()
		ep.flushOutbox()
	}
	ep.mu.Unlock()
}

// finish makes the event of the end due when both queues have drained. mu is held.
func (ep *EP) finish() {
	if ep.ending.awaited && ep.ending.send && ep.ending.recv {
		ep.ending.awaited = false
		ep.outbox = append(ep.outbox, outEvent{ep.ending.event, ep.conn.gen})
		if ep.srq != nil {
			ep.outbox = append(ep.outbox, outEvent{AsyncErrorEPBroken, ep.conn.gen})
		}
	}
}

// flushOutbox posts the connection events that are due, in order, with mu given up for each. A
// caller that finds another at it leaves the rest to that one. mu is held.
func (ep *EP) flushOutbox() {
	if ep.posting {
		return
	}
	ep.posting = true
	for len(ep.outbox) > 0 && !ep.freed.Load() {
		out := ep.outbox[0]
		ep.outbox = ep.outbox[1:]
		connect := ep.connect
		ep.mu.Unlock()
		ep.post(connect, out)
		ep.mu.Lock()
	}
	if len(ep.outbox) == 0 {
		ep.outbox = nil
	}
	ep.posting = false
}

// post queues a connection event. ESTABLISHED comes before the completions that were held back, the end
// after them; receives on another EVD go out in a step of their own, so that a message that is received can be answered.
// posting is set, so the EVDs stay, and what is released is of this connection.
func (ep *EP) post(connect *EVD, out outEvent) {
	if out.number == AsyncErrorEPBroken {
		// C programs wait for this to know that an EP with an SRQ takes no more receives.
		ep.ia.raise(AsyncErrorEPBroken, &ep.base, ReasonEPOther)
		return
	}
	apart := ep.recv.evd != connect
	if apart && out.number != ConnectionEstablished {
		ep.recv.hold(false)
	}
	ok := connect == nil || connect.postFor(&Event{Number: out.number, ref: ep.ref, cookie: uint64(out.gen)}, ep)
	if apart && out.number == ConnectionEstablished {
		ep.recv.hold(false)
	}
	if !ok && out.number == ConnectionEstablished {
		// The consumer would never learn of the connection.
		if _, ok := ep.advance(causeAbrupt, nil); ok {
			ep.disconnectQP(false)
		}
	}
}

// releaseHeld delivers the completions that were held back on an EVD, which is locked.
func (ep *EP) releaseHeld(e *EVD, a *after) {
	if ep == nil {
		return
	}
	for _, q := range []*dtoQueue{&ep.recv, &ep.request} {
		if q.evd == e {
			q.release(e, a)
		}
	}
}

// connectionData is the private data and the cause that an event of the gen-th connection shows.
func (ep *EP) connectionData(n EventNumber, gen uint32) (private []byte, cause error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.conn.gen != gen {
		return nil, nil
	}
	if n == ConnectionEstablished {
		return ep.conn.private, nil
	}
	if n == ConnectionPeerRejected {
		private = ep.conn.private
	}
	return private, ep.conn.cause
}
