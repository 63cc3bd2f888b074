package dat

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"kdapl/verbs"
)

// EPConfig describes an EP (the arguments of dat_ep_create).
type EPConfig struct {
	// PZ is the protection zone; it may be nil until it is needed, and set by Modify. PZ.NewEP
	// fills it in.
	PZ *PZ
	// Recv, Request and Connect receive the events of receives, of requests, and of the
	// connection. Recv needs StreamDTO, Request StreamDTO, Connect StreamConnection; they may
	// be one EVD. A nil one means that these events are not wanted; Connect is needed before a
	// connection.
	Recv, Request, Connect *EVD
	// SRQ supplies the receives; nil is a receive queue of the EP's own. It cannot be
	// changed later (dat_ep_create_with_srq). It must be of the EP's PZ, see
	// ProviderAttr.SRQEPPZDifferenceSupported.
	SRQ *SRQ
	// Attr are the attributes; nil are those of DefaultEPAttr.
	Attr *EPAttr
}

// EP is an end point of one connection. All methods may be called concurrently and from
// upcalls.
type EP struct {
	base

	// ctl serializes the calls that change the EP: connect, accept, disconnect, reset, modify,
	// free. It is held across device calls, so nothing that a device calls up takes it.
	ctl sync.Mutex

	// What ctl and both queues' mu protect together: reading needs one of them.
	qp   verbs.QP // nil without PZ
	srq  *SRQ     // never changes
	pz   *PZ
	attr EPAttr

	recv, request dtoQueue
	sendWR        []verbs.SendWR // scratch of posts, under request.mu
	recvWR        []verbs.RecvWR // under recv.mu

	state atomic.Uint32 // an EPState; changes under mu

	// mu protects the state machine. It is a leaf but for EVD locks.
	mu      sync.Mutex
	connect *EVD
	ending  epEnd
	outbox  []outEvent
	posting bool
	conn    connection
	// qps counts the QPs that the EP has had. begun counts the connections and set-ups of the present
	// one, over those whose end the device has told: it tells of one after the other, perhaps later
	// than dat knows, so that a difference means that it speaks of an earlier one.
	qps, begun, over uint32
	// Of an EP of ServiceUD: asked counts the questions that are under way, by address; begun and over count
	// questions and answers, of which the first stale are of before the last reset.
	asked map[verbs.Address]int
	stale uint32

	// epoch counts the QPs and their resets: what belongs to an earlier one and comes late is
	// ignored. It changes under mu.
	epoch atomic.Uint32
}

// epEnd is the end of a connection, or of its set-up, whose event waits for the queues to
// drain.
type epEnd struct {
	awaited    bool
	event      EventNumber
	send, recv bool // marks that have come
}

// outEvent is a connection event that is due.
type outEvent struct {
	number EventNumber
	gen    uint32
}

// connection is what is known of the present connection.
type connection struct {
	gen           uint32 // counts connections, so that old events find no new data
	private       []byte
	cause         error
	local, remote verbs.Address
	readsIn       int
	readsOut      int
}

// NewEP creates an EP of the PZ: ia.NewEP with cfg.PZ set.
func (pz *PZ) NewEP(cfg EPConfig) (*EP, error) {
	if pz.gone() {
		return nil, pz.errGone("ep_create")
	}
	cfg.PZ = pz
	return pz.ia.NewEP(cfg)
}

// NewEP creates an EP in StateUnconnected (dat_ep_create). Room for its operations is reserved
// in the EVDs, which may grow. It does not block.
//
// INVALID_HANDLE (PZ, EVD_RECV, EVD_REQUEST, EVD_CONN): freed, of another IA, or without the
// stream; (SRQ): freed, or of another IA. INVALID_STATE (SRQ_ERROR): the SRQ has failed.
// INVALID_PARAMETER (ARG6): an attribute is out of range, or the SRQ is of another PZ; (ARG8):
// receives or requests without EVD and without room, or completion flags that do not fit the EVD's
// other streams. MODEL_NOT_SUPPORTED: an attribute that the adapter lacks.
// INSUFFICIENT_RESOURCES (RESOURCE_TEP, RESOURCE_TEVD): more than the IA has.
func (ia *IA) NewEP(cfg EPConfig) (*EP, error) {
	const op = "ep_create"
	if err := ia.check(op); err != nil {
		return nil, err
	}
	attr := DefaultEPAttr(ia.attr)
	if cfg.Attr != nil {
		attr = *cfg.Attr
	}
	if cfg.SRQ != nil {
		attr.MaxRecvIOV = 0 // is the SRQ's
	}
	if err := ia.checkEPAttr(op, attr); err != nil {
		return nil, err
	}
	if cfg.SRQ != nil && (cfg.SRQ.gone() || cfg.SRQ.ia != ia) {
		return nil, ia.fail(op, InvalidHandle, InvalidHandleSRQ, nil, "the SRQ was freed, or is of another IA")
	}
	if cfg.SRQ != nil && cfg.SRQ.failed.Load() {
		return nil, ia.fail(op, InvalidState, InvalidStateSRQError, nil, "the SRQ has failed")
	}
	ep := &EP{attr: attr, srq: cfg.SRQ}
	ep.recv.srq = cfg.SRQ
	ep.base = base{self: ep, ia: ia, kind: HandleEP}
	ep.ctl.Lock() // once it is registered, the IA's end may find it
	defer ep.ctl.Unlock()
	if !ia.register(&ep.base, ia.attr.MaxEPs) {
		return nil, ia.full(op, ResourceTEP)
	}
	if err := ep.configure(op, cfg.PZ, cfg.Recv, cfg.Request, cfg.Connect, attr); err != nil {
		ep.freed.Store(true)
		ia.unregister(&ep.base)
		return nil, err
	}
	return ep, nil
}

// checkEPAttr makes a DAT error of what is wrong with attributes.
func (ia *IA) checkEPAttr(op string, attr EPAttr) error {
	fault := attr.Check(ia.attr, ia.provider)
	if fault == nil {
		return nil
	}
	sub := NoSubtype
	if fault.Type == InvalidParameter {
		sub = argOf(op, InvalidArg6)
	}
	return ia.fail(op, fault.Type, sub, nil, fault.Hint)
}

// argOf is the subtype for an argument of ep_create, which ep_modify has among its parameters, the third argument.
func argOf(op string, atCreation Subtype) Subtype {
	if op == opModify {
		return InvalidArg3
	}
	return atCreation
}

// opModify is the operation of EP.Modify.
const opModify = "ep_modify"

// configure gives the EP its zone, EVDs and attributes, and a QP if there is a zone. On failure
// nothing is changed. The caller holds ctl, or is alone with the EP.
func (ep *EP) configure(op string, pz *PZ, recv, request, connect *EVD, attr EPAttr) (err error) {
	var undo []func()
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()
	if pz != nil {
		if pz.gone() || pz.ia != ep.ia || !pz.use() {
			return ep.fail(op, InvalidHandle, InvalidHandlePZ, nil, "the PZ was freed, or is of another IA")
		}
		undo = append(undo, pz.unuse)
		if ep.srq != nil && ep.srq.pz != pz {
			return ep.fail(op, InvalidParameter, argOf(op, InvalidArg6), nil, "EP and SRQ are of different protection zones")
		}
	}
	attach := func(e *EVD, need Stream, sub Subtype, dtos int, d discipline) (*EVD, error) {
		if e == nil && need == StreamConnection {
			return nil, nil
		}
		if e == nil {
			var err error
			if e, err = ep.ia.discardEVD(); err != nil {
				return nil, err
			}
		} else if e.gone() || e.ia != ep.ia || e.streams&need == 0 {
			return nil, ep.fail(op, InvalidHandle, sub, nil, fmt.Sprintf("the EVD was freed, is of another IA, or lacks stream %v", need))
		}
		if sub == InvalidHandleEVDRecv && ep.srq != nil {
			if err := ep.srq.attach(op, e, d); err != nil {
				return nil, err
			}
			undo = append(undo, func() { ep.srq.detach(e, d) })
			return e, nil
		}
		if err := e.attach(op, dtos, d); err != nil {
			return nil, err
		}
		undo = append(undo, func() { e.detach(dtos, d) })
		return e, nil
	}
	recvDisc, requestDisc := disciplineOf(attr.RecvCompletionFlags), disciplineOf(attr.RequestCompletionFlags)
	recvEVD, err := attach(recv, StreamDTO, InvalidHandleEVDRecv, attr.MaxRecvDTOs, recvDisc)
	if err != nil {
		return err
	}
	requestEVD, err := attach(request, StreamDTO, InvalidHandleEVDRequest, attr.MaxRequestDTOs, requestDisc)
	if err != nil {
		return err
	}
	if _, err = attach(connect, StreamConnection, InvalidHandleEVDConn, 0, discNone); err != nil {
		return err
	}
	var qp verbs.QP
	if pz != nil {
		ours, ud := ep.qps+1, attr.ServiceType == ServiceUD
		init := verbs.QPInit{
			SendCQ: requestEVD.cq, RecvCQ: recvEVD.cq,
			MaxSend: attr.MaxRequestDTOs, MaxRecv: attr.MaxRecvDTOs,
			MaxSendSGE: max(attr.MaxRequestIOV, attr.MaxRDMAReadIOV, attr.MaxRDMAWriteIOV), MaxRecvSGE: attr.MaxRecvIOV,
			UserData: uint64(ep.ref), Conn: func(ev verbs.ConnEvent) { ep.onConn(ours, &ev) },
		}
		if ud {
			init.Type, init.QKey = verbs.UD, datagramKey()
			init.Conn = func(ev verbs.ConnEvent) { ep.onAnswer(ours, &ev) }
		}
		if ep.srq != nil {
			init.SRQ = ep.srq.srq
		}
		if qp, err = pz.pd.CreateQP(init); err == nil {
			err = initialize(qp, ud)
		}
		if err != nil {
			if qp != nil {
				qp.Destroy()
			}
			return ep.ia.deviceError(op, &ep.base, err)
		}
	}
	ep.unconfigure()
	ep.recv.lock()
	ep.request.lock()
	ep.mu.Lock()
	ep.qp, ep.pz, ep.attr, ep.connect = qp, pz, attr, connect
	ep.recv.setGate(qp, true)
	ep.request.setGate(qp, false)
	ep.qps++
	ep.epoch.Add(1)
	ep.begun, ep.over, ep.stale, ep.asked = 0, 0, 0, nil
	ep.recv.ud, ep.request.ud = attr.ServiceType == ServiceUD, attr.ServiceType == ServiceUD
	ep.recv.set(recvEVD, recv == nil, recvDisc, attr.MaxRecvDTOs)
	ep.request.set(requestEVD, request == nil, requestDisc, attr.MaxRequestDTOs)
	ep.mu.Unlock()
	ep.request.unlock()
	ep.recv.unlock()
	ep.recv.watch(newWatermark(ep, attr.SRQSoftHW, WatermarkInfinite))
	return nil
}

// initialize makes a QP fit for receives and, of datagrams, for sends.
func initialize(qp verbs.QP, ud bool) error {
	err := qp.Modify(verbs.QPInitialized)
	if err == nil && ud {
		err = qp.Modify(verbs.QPRTS)
	}
	return err
}

func (q *dtoQueue) set(e *EVD, discard bool, d discipline, depth int) {
	q.evd, q.discard, q.disc, q.depth = e, discard, d, depth
	q.rec, q.head, q.tail, q.dead = nil, 0, 0, false
	q.passed.Store(0)
}

// unconfigure takes back what configure gave, and ends the QP. What was posted is flushed.
func (ep *EP) unconfigure() {
	ep.recv.lock()
	ep.request.lock()
	ep.mu.Lock()
	ep.epoch.Add(1) // nobody begins to wait for the end of the old connection from here on
	qp := ep.qp
	ep.qp = nil
	ep.recv.setGate(nil, true)
	ep.request.setGate(nil, false)
	ep.mu.Unlock()
	ep.request.unlock()
	ep.recv.unlock()
	if ep.recv.evd == nil {
		return // never configured
	}
	if qp != nil {
		qp.Destroy()
	}
	for _, q := range []*dtoQueue{&ep.request, &ep.recv} {
		// All that the device had to say is in the CQ now.
		q.evd.pump()
		q.flushLeft(ep)
		q.stopDraining(q.evd, nil, 0)
		q.watch(nil)
		if q.srq != nil {
			q.srq.detach(q.evd, q.disc)
		} else {
			q.evd.detach(q.depth, q.disc)
		}
	}
	if ep.connect != nil {
		ep.connect.detach(0, discNone)
	}
	ep.pz.unuse()
}

// Free frees the EP (dat_ep_free). A connection is broken abruptly, a set-up is cancelled. All that is
// outstanding completes with StatusFlushed first; those events stay queued. There is no event of the
// connection's end. It does not wait for the network.
//
// INVALID_STATE: RESERVED, PASSIVE_CONNECTION_PENDING or TENTATIVE_CONNECTION_PENDING.
func (ep *EP) Free() error {
	const op = "ep_free"
	if ep.gone() {
		return ep.errGone(op)
	}
	ep.ctl.Lock()
	defer ep.ctl.Unlock()
	if ep.freed.Load() {
		return ep.errGone(op)
	}
	if s := ep.loadState(); !s.allows(causeFree) {
		return ep.fail(op, InvalidState, s.Subtype(), nil, "a service point or request holds the EP")
	}
	ep.destroy()
	return nil
}

// abandon destroys the EP with its IA.
func (ep *EP) abandon() {
	ep.ctl.Lock()
	defer ep.ctl.Unlock()
	if !ep.freed.Load() {
		ep.destroy()
	}
}

// destroy ends the EP. ctl is held.
func (ep *EP) destroy() {
	ep.freed.Store(true)
	ep.mu.Lock()
	ep.state.Store(uint32(StateDisconnected))
	ep.ending.awaited = false
	connect := ep.connect
	ep.mu.Unlock()
	ep.unconfigure()
	until := func(e *EVD) evdPosition {
		if e == nil {
			return evdPosition{}
		}
		return evdPosition{e, e.ring.Load().Tail()}
	}
	ep.ia.unregister(&ep.base, until(ep.recv.evd), until(ep.request.evd), until(connect))
}

func (s EPState) allows(c epCause) bool {
	_, ok := s.next(c)
	return ok
}

func (ep *EP) loadState() EPState { return EPState(ep.state.Load()) }

// EPParam is what Query tells and Modify takes (DAT_EP_PARAM).
type EPParam struct {
	// IA is the adapter.
	IA    *IA
	State EPState
	// LocalAddress and RemoteAddress are the IA addresses of the two ends, LocalPortQual and
	// RemotePortQual their connection qualifiers, as far as they are known.
	LocalAddress, RemoteAddress   netip.Addr
	LocalPortQual, RemotePortQual uint64
	PZ                            *PZ
	Recv, Request, Connect        *EVD
	SRQ                           *SRQ
	// Attr are the attributes. While connected, MaxRDMAReadIn and MaxRDMAReadOut are the agreed depths.
	Attr EPAttr
	// RecvCounters and RequestCounters count operations since the EP was created.
	RecvCounters, RequestCounters DTOCounters
}

// Query tells the EP's parameters (dat_ep_query). It does not block.
func (ep *EP) Query() (EPParam, error) {
	if ep.gone() {
		return EPParam{}, ep.errGone("ep_query")
	}
	ep.recv.lock()
	ep.request.lock()
	ep.mu.Lock()
	p := EPParam{
		IA: ep.ia, State: ep.loadState(),
		LocalAddress: ep.conn.local.IP, LocalPortQual: ep.conn.local.Port,
		RemoteAddress: ep.conn.remote.IP, RemotePortQual: ep.conn.remote.Port,
		PZ: ep.pz, Connect: ep.connect, SRQ: ep.srq, Attr: ep.attr,
	}
	if p.State.connected() || p.State == StateDisconnectPending {
		p.Attr.MaxRDMAReadIn, p.Attr.MaxRDMAReadOut = ep.conn.readsIn, ep.conn.readsOut
	}
	ep.mu.Unlock()
	if !p.LocalAddress.IsValid() {
		p.LocalAddress = ep.ia.attr.Address
	}
	for _, s := range []struct {
		q *dtoQueue
		e **EVD
		c *DTOCounters
	}{{&ep.recv, &p.Recv, &p.RecvCounters}, {&ep.request, &p.Request, &p.RequestCounters}} {
		if !s.q.discard {
			*s.e = s.q.evd
		}
		if s.q.evd != nil {
			var a after
			s.q.evd.begin(&a)
			*s.c = s.q.counters
			s.q.evd.end(&a)
			s.c.Posted = s.q.posted
		}
	}
	ep.request.unlock()
	ep.recv.unlock()
	return p, nil
}

// Modify changes the parameters that the mask names (dat_ep_modify): PZ, EVDs and attributes
// before a connection. All of them change, or none. It does not block.
//
// INVALID_PARAMETER: a field that never changes (ARG2), a value that is out of range or does not fit the others
// (ARG3). INVALID_STATE: the EP's state forbids it (the PZ changes before a request is awaited or under way, or for an
// EP of the provider's; transport- and provider-specific attributes without one only), or receives are posted, whose
// events have a place in the present EVDs and their memory in the present PZ. INVALID_HANDLE,
// INSUFFICIENT_RESOURCES: see NewEP.
func (ep *EP) Modify(mask EPMask, p EPParam) error {
	const op = opModify
	if ep.gone() {
		return ep.errGone(op)
	}
	const changeable = EPFieldPZ | EPFieldRecvEVD | EPFieldRequestEVD | EPFieldConnectEVD | EPFieldAttrAll
	if bad := mask &^ changeable; bad != 0 {
		return ep.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("%v cannot be changed", bad))
	}
	ep.ctl.Lock()
	defer ep.ctl.Unlock()
	if ep.gone() {
		return ep.errGone(op)
	}
	s := ep.loadState()
	switch s {
	case StateUnconnected, StateTentativeConnectionPending,
		StateUnconfiguredUnconnected, StateUnconfiguredTentative, StateUnconfiguredReserved, StateUnconfiguredPassive:
	case StateReserved, StatePassiveConnectionPending:
		if mask&EPFieldPZ != 0 {
			return ep.fail(op, InvalidState, s.Subtype(), nil, "the PZ cannot be changed in this state")
		}
	default:
		return ep.fail(op, InvalidState, s.Subtype(), nil, "only before a connection")
	}
	const specific = EPFieldNumTransportSpecific | EPFieldTransportSpecific | EPFieldNumProviderSpecific | EPFieldProviderSpecific
	if mask&specific != 0 && s != StateUnconnected && s != StateUnconfiguredUnconnected {
		return ep.fail(op, InvalidState, s.Subtype(), nil, "specific attributes can be changed without a request only")
	}
	pz, recv, request, connect := ep.pz, ep.recv.evd, ep.request.evd, ep.connect
	if ep.recv.discard {
		recv = nil
	}
	if ep.request.discard {
		request = nil
	}
	if mask&EPFieldPZ != 0 {
		pz = p.PZ
	}
	if mask&EPFieldRecvEVD != 0 {
		recv = p.Recv
	}
	if mask&EPFieldRequestEVD != 0 {
		request = p.Request
	}
	if mask&EPFieldConnectEVD != 0 {
		connect = p.Connect
	}
	attr := ep.attr.With(mask&EPFieldAttrAll, p.Attr)
	if err := ep.ia.checkEPAttr(op, attr); err != nil {
		return err
	}
	ep.recv.lock()
	idle := ep.recv.outstanding() == 0
	ep.recv.unlock()
	if !idle {
		return ep.fail(op, InvalidState, s.Subtype(), nil, "receives are posted; modify before posting them")
	}
	if err := ep.configure(op, pz, recv, request, connect, attr); err != nil {
		return err
	}
	if pz != nil && connect != nil {
		ep.advance(causeConfigure, nil) // leaves the UNCONFIGURED states
	}
	return nil
}

// EPStatus is what Status tells.
type EPStatus struct {
	State EPState
	// RecvIdle and RequestIdle report that no receive, and no request, is outstanding in
	// the adapter.
	RecvIdle, RequestIdle bool
}

// Status tells the EP's state and whether operations are outstanding (dat_ep_get_status). It does
// not block.
func (ep *EP) Status() (EPStatus, error) {
	if ep.gone() {
		return EPStatus{}, ep.errGone("ep_get_status")
	}
	s := EPStatus{}
	ep.recv.lock()
	s.RecvIdle = ep.recv.outstanding() == 0
	ep.recv.unlock()
	ep.request.lock()
	s.RequestIdle = ep.request.outstanding() == 0
	ep.request.unlock()
	s.State = ep.loadState()
	return s, nil
}

// Reset brings an EP from StateDisconnected back to StateUnconnected (dat_ep_reset); in
// StateUnconnected it does nothing, and receives stay posted. What was outstanding has
// completed and its events stay queued. It does not block.
//
// INVALID_STATE: any other state.
func (ep *EP) Reset() error {
	const op = "ep_reset"
	if ep.gone() {
		return ep.errGone(op)
	}
	ep.ctl.Lock()
	defer ep.ctl.Unlock()
	if ep.gone() {
		return ep.errGone(op)
	}
	s := ep.loadState()
	if !s.allows(causeReset) {
		return ep.fail(op, InvalidState, s.Subtype(), nil, "disconnect first")
	}
	if s == StateUnconnected {
		return nil
	}
	// The device delivers what it owes before it returns.
	if err := ep.qp.Modify(verbs.QPReset); err != nil && !errors.Is(err, verbs.ErrClosed) {
		return ep.ia.deviceError(op, &ep.base, err)
	}
	ep.recv.evd.pump()
	ep.request.evd.pump()
	if err := initialize(ep.qp, ep.attr.ServiceType == ServiceUD); err != nil {
		return ep.ia.deviceError(op, &ep.base, err)
	}
	ep.mu.Lock()
	ep.epoch.Add(1)
	if ep.ending.awaited {
		// Somebody else has taken the marks out of the CQ and is about to tell of them: the completions
		// before them are queued.
		ep.ending.send, ep.ending.recv = true, true
		ep.finish()
		ep.flushOutbox()
	}
	for ep.posting {
		// Somebody is posting the end: nothing of the next connection may come before it.
		ep.mu.Unlock()
		runtime.Gosched()
		ep.mu.Lock()
	}
	ep.state.Store(uint32(StateUnconnected))
	ep.ending = epEnd{}
	ep.conn = connection{gen: ep.conn.gen + 1}
	ep.stale, ep.asked = ep.begun, nil
	ep.mu.Unlock()
	ep.recv.stopDraining(ep.recv.evd, nil, 0)
	ep.request.stopDraining(ep.request.evd, nil, 0)
	return nil
}
