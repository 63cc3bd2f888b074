package dat

import (
	"fmt"
	"sync"
	"sync/atomic"

	"kdapl/verbs"
)

// RMR is a remote memory region: a window that is bound to a part of an LMR and then gives peers
// access to it under a context of its own.
type RMR struct {
	base
	pz *PZ
	mw verbs.MW

	mu    sync.Mutex // serializes binds; order: before EP.request.mu
	param RMRParam
	// ep is the one that the last bind was posted on.
	ep *EP
	// earlier are the parameters before the binds that have not run: one of them holds again if a bind
	// fails or is flushed.
	earlier []RMRParam
	// inFlight counts binds whose completion has not been seen.
	inFlight atomic.Int32
}

// RMRParam is what Query tells (DAT_RMR_PARAM).
type RMRParam struct {
	// IA is the adapter.
	IA    *IA
	PZ    *PZ
	Scope RMRScope
	// Triplet, Priv, VAType and RMRContext are those of the last bind that was posted, or, if that failed or
	// was flushed, of the one before; zero when unbound, by whomever.
	Triplet    LMRTriplet
	Priv       Priv
	VAType     VAType
	RMRContext uint32
}

// NewRMR creates an unbound RMR that any EP of the PZ can bind, again and again, and through whose
// contexts all of them can be accessed (dat_rmr_create). It does not block.
//
// MODEL_NOT_SUPPORTED: the adapter has no such windows. INSUFFICIENT_RESOURCES.
func (pz *PZ) NewRMR() (*RMR, error) { return pz.newRMR("rmr_create", verbs.MWType1, RMRScopePZ) }

// NewRMRForEP creates an unbound RMR whose contexts give access through the EP only that bound them
// (dat_rmr_create_for_ep). A peer's PostSendWithInvalidate can end a binding. It does not block.
//
// MODEL_NOT_SUPPORTED: the adapter has no such windows. INSUFFICIENT_RESOURCES.
func (pz *PZ) NewRMRForEP() (*RMR, error) {
	return pz.newRMR("rmr_create_for_ep", verbs.MWType2, RMRScopeEP)
}

func (pz *PZ) newRMR(op string, typ verbs.MWType, scope RMRScope) (*RMR, error) {
	if pz.gone() {
		return nil, pz.errGone(op)
	}
	if !pz.use() {
		return nil, pz.errGone(op)
	}
	mw, err := pz.pd.AllocMW(typ)
	if err != nil {
		pz.unuse()
		return nil, pz.ia.creationError(op, &pz.base, err, ResourceMemoryRegion)
	}
	r := &RMR{pz: pz, mw: mw, param: RMRParam{IA: pz.ia, PZ: pz, Scope: scope}}
	r.base = base{self: r, ia: pz.ia, kind: HandleRMR}
	if !pz.ia.register(&r.base, pz.ia.attr.MaxRMRs) {
		mw.Dealloc()
		pz.unuse()
		return nil, pz.ia.full(op, ResourceMemoryRegion)
	}
	return r, nil
}

// Bind posts a bind of the RMR to a part of an LMR on an EP's request queue (dat_rmr_bind), and
// returns the context that peers use. The context works after the bind has run, which is
// before any later request of the EP: it can be sent at once. Each bind makes a new context, and
// the old one ends with it. A triplet of length 0 unbinds; lmr is then ignored and the context
// returned is 0. The event is RMRBindCompletion on the Request EVD.
//
// A bind counts as a request against MaxRequestDTOs; a second bind of an RMR made for an EP
// as two. It does not block.
//
// INVALID_HANDLE: a freed object; (EVD_REQUEST): the EVD lacks StreamRMRBind. INVALID_STATE: the EP is
// neither connected nor StateDisconnected, where the bind is flushed; an RMR made for an EP is bound
// through another one, or is to be unbound and is not bound. INVALID_PARAMETER (ARG2): the
// triplet is outside of the LMR or names another; (ARG4): unknown privileges; (ARG8): flags.
// PROTECTION_VIOLATION: RMR, LMR and EP are not of one PZ. PRIVILEGES_VIOLATION: the LMR lacks the local
// privilege beneath a remote one. MODEL_NOT_SUPPORTED: VATypeZB. ErrPostFull.
func (r *RMR) Bind(lmr *LMR, triplet LMRTriplet, priv Priv, va VAType, ep *EP, cookie uint64, flags CompletionFlags) (rmrContext uint32, err error) {
	const op = "rmr_bind"
	if r.gone() {
		return 0, r.errGone(op)
	}
	unbind := triplet.SegmentLength == 0
	if err := r.checkBind(op, lmr, triplet, priv, va, ep, flags, unbind); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle(true)
	typ2 := r.param.Scope == RMRScopeEP
	bound := r.param.RMRContext
	if typ2 && bound != 0 && r.ep != ep {
		return 0, r.fail(op, InvalidState, NoSubtype, nil, fmt.Sprintf("it is bound through %v; unbind it there first", r.ep))
	}
	var wrs [2]verbs.SendWR
	n := 0
	if typ2 && bound != 0 {
		// A window of this kind must be free before it is bound again.
		wrs[n] = verbs.SendWR{Op: verbs.OpLocalInval, InvKey: bound}
		n++
	}
	next := RMRParam{IA: r.pz.ia, PZ: r.pz, Scope: r.param.Scope}
	if !(typ2 && unbind) {
		key, err := r.mw.NextKey()
		if err != nil {
			return 0, r.ia.deviceError(op, &r.base, err)
		}
		access := accessOf(priv) &^ (verbs.AccessLocalWrite | verbs.AccessNoLocalRead)
		if va == VATypeZB {
			access |= verbs.AccessZeroBased
		}
		wrs[n] = verbs.SendWR{Op: verbs.OpBindMW, Key: key, Access: access, NumSGE: 1}
		if !unbind {
			wrs[n].SGE[0] = verbs.SGE{Addr: triplet.VirtualAddress, Length: triplet.SegmentLength, LKey: triplet.LMRContext}
			next.Triplet, next.Priv, next.VAType, next.RMRContext = triplet, priv, va, key
		}
		n++
	}
	if n == 0 {
		return 0, r.fail(op, InvalidState, NoSubtype, nil, "the RMR is not bound")
	}
	if err := ep.postBind(op, wrs[:n], &Request{Op: OpBindMW, Cookie: cookie, Flags: flags}, r); err != nil {
		return 0, err
	}
	r.ia.contexts.move(bound, next.RMRContext, r.ref)
	r.earlier = append(r.earlier, r.param)
	r.param, r.ep = next, ep
	return next.RMRContext, nil
}

// settle finds out what holds now, if no bind is under way: the adapter knows whether the binds ran, and whether
// a peer has ended the last one since. look makes it take the completions that the adapter has. mu is
// held.
func (r *RMR) settle(look bool) {
	if look && r.inFlight.Load() > 0 && r.ep != nil {
		r.ep.pumpBoth()
	}
	if r.inFlight.Load() > 0 {
		return
	}
	key := r.mw.RKey()
	holds := RMRParam{IA: r.pz.ia, PZ: r.pz, Scope: r.param.Scope}
	for _, p := range append(r.earlier, r.param) {
		if key != 0 && p.RMRContext == key {
			holds = p
		}
	}
	r.ia.contexts.move(r.param.RMRContext, holds.RMRContext, r.ref)
	r.param, r.earlier = holds, r.earlier[:0]
}

// checkBind checks the arguments of Bind.
func (r *RMR) checkBind(op string, lmr *LMR, t LMRTriplet, priv Priv, va VAType, ep *EP, flags CompletionFlags, unbind bool) error {
	const remote = PrivRemoteRead | PrivRemoteWrite | PrivRemoteAtomic
	switch {
	case ep.gone() || ep.ia != r.ia:
		return r.fail(op, InvalidHandle, InvalidHandleEP, nil, "the EP was freed, or is of another IA")
	case priv&^(PrivAll|PrivRemoteAtomic) != 0:
		return r.fail(op, InvalidParameter, InvalidArg4, nil, fmt.Sprintf("unknown privileges %v", priv))
	case va != VATypeVA && va != VATypeZB:
		return r.fail(op, InvalidParameter, InvalidArg5, nil, fmt.Sprintf("unknown VA type %v", va))
	case va == VATypeZB && !r.ia.attr.ZBSupported:
		return r.fail(op, ModelNotSupported, NoSubtype, nil, "the adapter has no zero-based regions")
	case unbind:
		return nil
	case lmr.gone() || lmr.ia != r.ia:
		return r.fail(op, InvalidHandle, InvalidHandleLMR, nil, "the LMR was freed, or is of another IA")
	case lmr.pz != r.pz:
		return r.fail(op, ProtectionViolation, NoSubtype, nil, "RMR and LMR are of different protection zones")
	case t.LMRContext != lmr.LMRContext() || !lmr.contains(t):
		return r.fail(op, InvalidParameter, InvalidArg2, nil, "the triplet is not within the LMR")
	case priv&PrivRemoteRead != 0 && lmr.privileges()&PrivLocalRead == 0:
		return r.fail(op, PrivilegesViolation, PrivilegesRead, nil, "remote read needs local read of the LMR")
	case priv&(remote&^PrivRemoteRead) != 0 && lmr.privileges()&PrivLocalWrite == 0:
		return r.fail(op, PrivilegesViolation, PrivilegesWrite, nil, "remote write needs local write of the LMR")
	}
	return nil
}

// contains reports whether a triplet lies within the region.
func (l *LMR) contains(t LMRTriplet) bool {
	address, length := l.address, uint64(0)
	if l.fast == nil {
		length = l.length()
	} else {
		m := l.mapping()
		address, length = m.address, m.length
	}
	off := t.VirtualAddress - address
	return t.VirtualAddress >= address && off <= length && uint64(t.SegmentLength) <= length-off
}

// postBind posts a bind, with the invalidation that must run before it.
func (ep *EP) postBind(op string, wrs []verbs.SendWR, req *Request, r *RMR) error {
	if err := ep.checkPost(op, StateConnected); err != nil {
		return err
	}
	q := &ep.request
	q.lock()
	defer q.unlock()
	switch {
	case ep.qp == nil:
		return ep.errGone(op)
	case !q.discard && q.evd.streams&StreamRMRBind == 0:
		return ep.fail(op, InvalidHandle, InvalidHandleEVDRequest, nil, "the Request EVD lacks StreamRMRBind")
	case r.pz != ep.pz:
		return ep.fail(op, ProtectionViolation, NoSubtype, nil, "RMR and EP are of different protection zones")
	}
	return ep.postLocal(op, wrs, req, r.ref, &r.inFlight)
}

// postLocal posts requests that work on the own adapter: the last has the event, those before it are part of
// it and have none. inFlight counts until the completion of the last. the queue is locked.
func (ep *EP) postLocal(op string, wrs []verbs.SendWR, r *Request, object ref, inFlight *atomic.Int32) error {
	q := &ep.request
	if q.ud {
		return ep.fail(op, InvalidParameter, NoSubtype, nil, "an EP of service UD has no remote memory")
	}
	if q.reserve(len(wrs)) < len(wrs) {
		return ErrPostFull
	}
	for i := range wrs {
		wr := &wrs[i]
		id, rec := q.next(i)
		wr.ID, wr.Flags = id, verbs.SendSignaled
		if r.Flags != 0 {
			if err := ep.requestFlags(op, wr, r); err != nil {
				return err
			}
		}
		*rec = record{cookie: r.Cookie, op: r.Op, flags: r.Flags, object: object}
		if i < len(wrs)-1 {
			rec.flags = partOfNext
		}
	}
	if cap(ep.sendWR) < len(wrs) {
		ep.sendWR = make([]verbs.SendWR, len(wrs))
	}
	copy(ep.sendWR[:len(wrs)], wrs)
	inFlight.Add(1)
	n, err := ep.submit(op, ep.qp.PostSend, ep.sendWR[:len(wrs)])
	q.posted -= uint64(min(n, len(wrs)-1)) // parts do not count for themselves
	if err != nil {
		inFlight.Add(-1)
	}
	return err
}

// Query tells the RMR's parameters (dat_rmr_query). It does not block.
func (r *RMR) Query() (RMRParam, error) {
	if r.gone() {
		return RMRParam{}, r.errGone("rmr_query")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle(false)
	return r.param, nil
}

// Free frees the RMR, bound or not (dat_rmr_free): peers lose their access. It waits for copies
// through the window that are in progress, never for the network.
func (r *RMR) Free() error {
	if r.gone() || !r.destroy() {
		return r.errGone("rmr_free")
	}
	return nil
}

func (r *RMR) abandon() { r.destroy() }

func (r *RMR) destroy() bool {
	if !r.freed.CompareAndSwap(false, true) {
		return false
	}
	r.mw.Dealloc()
	r.mu.Lock()
	r.ia.contexts.move(r.param.RMRContext, 0, 0)
	r.mu.Unlock()
	r.pz.unuse()
	r.ia.unregister(&r.base)
	return true
}

// RMRBindData is the data of a bind's completion (DAT_RMR_BIND_COMPLETION_EVENT_DATA).
type RMRBindData struct {
	// RMR is the region; nil if it has been freed since.
	RMR *RMR
	// Cookie is the one of the bind.
	Cookie uint64
	// Status is StatusSuccess (DAT_RMR_BIND_SUCCESS), or why the bind failed.
	Status Status
}

// RMRBind is the view of a bind's completion.
func (ev *Event) RMRBind() RMRBindData {
	if ev.Number != RMRBindCompletion {
		return RMRBindData{}
	}
	r, _ := ev.obj.(*RMR)
	return RMRBindData{RMR: r, Cookie: ev.cookie, Status: ev.status}
}
