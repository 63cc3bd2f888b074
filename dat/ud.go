package dat

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"kdapl/verbs"
)

// Datagrams: an EP of ServiceUD (DAT_IB_SERVICE_TYPE_UD of the InfiniBand extension). It has no connection:
// Connect asks a service point where a peer takes datagrams, and the peer's Accept tells; both learn where the
// other one is, as an AddressHandle in an event. One EP may ask, and be named in answers, as often as it
// likes. It goes to StateConnected with the first Connect or Accept, so that it can send, and leaves it by
// Disconnect only.

// AddressHandle is where a datagram peer is (DAT_IB_ADDR_HANDLE). It comes with IBUDConnectionEstablished, works
// for every EP of ServiceUD in its PZ, and ends with Free or with the PZ.
type AddressHandle struct {
	base
	pz    *PZ
	ah    verbs.AH // nil in the events of failures
	param AddressHandleParam

	// What the event shows.
	ep      *EP
	passive bool
	private []byte
	cause   error
}

// AddressHandleParam is what Query tells.
type AddressHandleParam struct {
	PZ *PZ
	// Address is the peer's; PortQual the qualifier that was asked, or that it asked from.
	Address  netip.Addr
	PortQual uint64
	// QPN and QKey are the number and key of the peer's queue pair.
	QPN, QKey uint32
}

// HandleType implements [Object].
func (h *AddressHandle) HandleType() HandleType { return HandleExtensionBase }

// Context implements [Object].
func (h *AddressHandle) Context() any { return h.common().loadContext() }

// SetContext implements [Object].
func (h *AddressHandle) SetContext(value any) { h.common().storeContext(value) }

// String implements [Object].
func (h *AddressHandle) String() string {
	if h == nil || h.ia == nil {
		return "no address handle"
	}
	return fmt.Sprintf("address handle %d of %s", h.ref.index(), h.ia.name)
}

func (h *AddressHandle) gone() bool { return h == nil || h.ia == nil || h.freed.Load() }

func (h *AddressHandle) errGone(op string) error { return h.common().errFreed(op) }

func (h *AddressHandle) common() *base {
	if h == nil || h.ia == nil {
		return &base{kind: HandleExtensionBase}
	}
	return &h.base
}

// Query tells where the peer is. It does not block.
func (h *AddressHandle) Query() (AddressHandleParam, error) {
	if h.gone() {
		return AddressHandleParam{}, h.errGone("ib_ud_ah_query")
	}
	return h.param, nil
}

// Free frees the handle (dat_ib_ud_ah_free). Datagrams that were posted are not affected. It does not block.
func (h *AddressHandle) Free() error {
	if h.gone() || !h.destroy() {
		return h.errGone("ib_ud_ah_free")
	}
	return nil
}

func (h *AddressHandle) destroy() bool {
	if !h.freed.CompareAndSwap(false, true) {
		return false
	}
	h.pz.mu.Lock()
	delete(h.pz.handles, h)
	h.pz.mu.Unlock()
	h.ah.Destroy()
	h.ia.unregister(&h.base)
	return true
}

// freeHandles frees the address handles of a PZ that ends.
func (pz *PZ) freeHandles() {
	pz.mu.Lock()
	all := slices.Collect(maps.Keys(pz.handles))
	pz.mu.Unlock()
	for _, h := range all {
		h.destroy()
	}
}

// newHandle makes the handle of a peer that is known now.
func (pz *PZ) newHandle(h *AddressHandle, peer verbs.Address) (err error) {
	if h.ah, err = pz.pd.CreateAH(peer); err != nil {
		return err
	}
	if !pz.ia.register(&h.base, pz.ia.device.Attr().MaxAH) {
		h.ah.Destroy()
		return verbs.ErrLimit
	}
	pz.mu.Lock()
	defer pz.mu.Unlock()
	if pz.handles == nil {
		pz.handles = map[*AddressHandle]struct{}{}
	}
	pz.handles[h] = struct{}{}
	return nil
}

// datagrams reports whether the EP is of ServiceUD.
func (ep *EP) datagrams() bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.attr.ServiceType == ServiceUD
}

// datagramKey draws a key for an EP. The high bit is that of privileged keys (IBTA 10.2.5).
func datagramKey() uint32 { return rand.Uint32() >> 1 }

// enterDatagrams is leaveUnconnected for an EP of ServiceUD. ctl is held.
func (ep *EP) enterDatagrams(op string) (before EPState, err error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	before = ep.loadState()
	m, ok := before.next(causeIntroduce)
	switch {
	case !ok:
		return before, ep.fail(op, InvalidState, before.Subtype(), nil, "the EP is in state "+before.String())
	case ep.qp == nil || ep.connect == nil:
		return before, ep.fail(op, InvalidState, InvalidStateEPNotReady, nil, "datagrams need a PZ and a Connect EVD")
	}
	if before != StateConnected {
		ep.ending = epEnd{}
	}
	ep.state.Store(uint32(m.next))
	ep.begun++
	return before, nil
}

// leaveDatagrams undoes enterDatagrams after the adapter refused.
func (ep *EP) leaveDatagrams(before EPState) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.begun--
	if ep.loadState() == StateConnected {
		ep.state.Store(uint32(before))
	}
}

// ask is Connect for an EP of ServiceUD. ctl is held.
func (ep *EP) ask(op string, peer verbs.Address, cfg ConnectConfig) error {
	before, err := ep.enterDatagrams(op)
	if err != nil {
		return err
	}
	peer.IP = peer.IP.Unmap()
	note := func(n int) {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		if ep.asked == nil {
			ep.asked = map[verbs.Address]int{}
		}
		if ep.asked[peer] += n; ep.asked[peer] == 0 {
			delete(ep.asked, peer)
		}
	}
	note(1)
	if err = ep.qp.Connect(verbs.ConnParams{Remote: peer, PrivateData: cfg.PrivateData, Timeout: max(cfg.Timeout, 0)}); err == nil {
		return nil
	}
	note(-1)
	ep.leaveDatagrams(before)
	e := ep.ia.deviceError(op, &ep.base, err).(*Error)
	e.Peer = peer.String()
	return e
}

// acceptDatagrams is Accept of a question, with an EP of ServiceUD. ep.ctl is held.
func (cr *CR) acceptDatagrams(op string, ep *EP, privateData []byte) error {
	if s := ep.loadState(); cr.ep == nil && s != StateUnconnected && s != StateConnected {
		return ep.fail(op, InvalidState, s.Subtype(), nil, "the EP is in state "+s.String())
	}
	before, err := ep.enterDatagrams(op)
	if err != nil {
		return err
	}
	if !cr.answer() {
		ep.leaveDatagrams(before)
		return cr.errGone(op)
	}
	switch err := cr.req.Accept(ep.qp, verbs.ConnParams{PrivateData: privateData}); {
	case errors.Is(err, verbs.ErrPeerGone):
		// Who asked does not want to know any more; the EP is ready for the next one.
		ep.mu.Lock()
		ep.begun--
		ep.mu.Unlock()
		gone := &verbs.ConnEvent{Kind: verbs.ConnAcceptFailed, Remote: cr.req.Remote(), Err: err}
		ep.tellDatagram(IBUDConnectionError, gone, true)
	case err != nil:
		ep.leaveDatagrams(before)
		cr.freed.Store(false)
		return cr.ia.deviceError(op, &cr.base, err)
	}
	cr.ia.unregister(&cr.base)
	return nil
}

// onAnswer receives what becomes of questions, from the EP's n-th QP.
func (ep *EP) onAnswer(n uint32, ev *verbs.ConnEvent) {
	ep.mu.Lock()
	ours, active := n == ep.qps, false
	if ours {
		ep.over++
		ours = ep.over > ep.stale
	}
	if ours && ep.asked[ev.Remote] > 0 {
		active = true
		if ep.asked[ev.Remote]--; ep.asked[ev.Remote] == 0 {
			delete(ep.asked, ev.Remote)
		}
	}
	ours = ours && ep.loadState() == StateConnected
	ep.mu.Unlock()
	ep.ia.log.Debug("datagram peer", "ep", ep.String(), "event", ev.Kind, "ignored", !ours, "local", ev.Local, "remote", ev.Remote, "err", ev.Err)
	if !ours {
		return // from before a reset, or too late
	}
	switch ev.Kind {
	case verbs.ConnEstablished:
		ep.tellDatagram(IBUDConnectionEstablished, ev, !active)
	case verbs.ConnRejected:
		ep.tellDatagram(IBUDConnectionReject, ev, false)
	case verbs.ConnAborted:
		// The EP was disconnected, reset or freed: that ends its questions.
	default:
		ep.tellDatagram(IBUDConnectionError, ev, false)
	}
}

// tellDatagram raises the event of a question's outcome. No lock is held.
func (ep *EP) tellDatagram(number EventNumber, ev *verbs.ConnEvent, passive bool) {
	ep.mu.Lock()
	pz, connect := ep.pz, ep.connect
	ep.mu.Unlock()
	if pz == nil || connect == nil {
		return // freed meanwhile
	}
	h := &AddressHandle{
		pz: pz, ep: ep, passive: passive, private: slices.Clone(ev.PrivateData), cause: ev.Err,
		param: AddressHandleParam{PZ: pz, Address: ev.Remote.IP, PortQual: ev.Remote.Port, QPN: ev.RemoteQPN, QKey: ev.RemoteQKey},
	}
	h.base = base{self: h, ia: ep.ia, kind: HandleExtensionBase}
	if number == IBUDConnectionEstablished {
		err := pz.newHandle(h, ev.Remote)
		if err == nil {
			if !connect.post(&Event{Number: number, ref: h.ref}) {
				h.destroy() // nobody will ever know of it
			}
			return
		}
		number, h.cause = IBUDConnectionError, fmt.Errorf("no address handle for %v: %w", ev.Remote, err)
	}
	// The event carries an address, and no handle that could be used.
	if !ep.ia.register(&h.base, maxNotes) {
		ep.ia.log.Warn("too many events of datagram peers; event lost", "ep", ep.String(), "event", number)
		return
	}
	h.freed.Store(true)
	connect.post(&Event{Number: number, ref: h.ref})
	ep.ia.unregister(&h.base, evdPosition{connect, connect.ring.Load().Tail()})
}

// maxNotes bounds the objects that stand for failures in queued events; the EVDs bound them too.
const maxNotes = 1 << 24

// UDData is the data of the events of datagram peers (DAT_IB_EXTENSION_EVENT_DATA).
type UDData struct {
	// EP is the one that asked, or that was named in the answer.
	EP *EP
	// Handle is where the peer is, with IBUDConnectionEstablished; nil otherwise.
	Handle *AddressHandle
	// Address and PortQual are the peer's.
	Address  netip.Addr
	PortQual uint64
	// Passive: the peer has asked, and this side has accepted.
	Passive bool
	// PrivateData is that of the peer's accept or reject.
	PrivateData []byte
	// Cause is why IBUDConnectionError, for people.
	Cause error
}

// UD is the view of the events IBUDConnectionEstablished, IBUDConnectionReject and IBUDConnectionError.
func (ev *Event) UD() UDData {
	h, _ := ev.obj.(*AddressHandle)
	if h == nil {
		return UDData{}
	}
	d := UDData{
		EP: h.ep, Address: h.param.Address, PortQual: h.param.PortQual, Passive: h.passive, PrivateData: h.private, Cause: h.cause,
	}
	if ev.Number == IBUDConnectionEstablished {
		d.Handle = h
	}
	return d
}

// PostSendUD posts a datagram to a peer (dat_ib_post_send_ud). It arrives in a receive of the peer's, behind 40
// bytes of room for the global route header, or is lost: if there is no receive, or it is too short. The events
// are IBDTOEvent, of OpSendUD here and OpReceiveUD there. For the rest see PostSend.
//
// INVALID_PARAMETER (ARG1): the EP is not of ServiceUD. INVALID_HANDLE (ARG4): the handle was freed.
// PROTECTION_VIOLATION: it is of another PZ.
func (ep *EP) PostSendUD(cookie uint64, flags CompletionFlags, to *AddressHandle, local ...LMRTriplet) error {
	r := Request{Op: OpSendUD, Cookie: cookie, Flags: flags, To: to}
	return ep.postOne("ib_post_send_ud", &r, local)
}

// checkDatagram checks what is special about datagrams, and addresses one. the queue is locked.
func (ep *EP) checkDatagram(op string, wr *verbs.SendWR, to *AddressHandle) error {
	switch {
	case to.gone() || to.ia != ep.ia:
		return ep.fail(op, InvalidHandle, InvalidHandle4, nil, "the address handle is nil, was freed, or is of another IA")
	case to.pz != ep.pz:
		return ep.fail(op, ProtectionViolation, NoSubtype, nil, "the address handle is of another protection zone")
	}
	wr.AH, wr.RemoteQPN, wr.QKey = to.ah.Handle(), to.param.QPN, to.param.QKey
	return nil
}
