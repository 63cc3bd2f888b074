package dat

import (
	"fmt"
	"sync"

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
}

// RMRParam is what Query tells (DAT_RMR_PARAM).
type RMRParam struct {
	PZ    *PZ
	Scope RMRScope
	// Triplet, Priv, VAType and RMRContext are those of the last bind that was posted; zero
	// when unbound.
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
		return nil, pz.ia.deviceError(op, &pz.base, err)
	}
	r := &RMR{pz: pz, mw: mw, param: RMRParam{PZ: pz, Scope: scope}}
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
// neither connected nor StateDisconnected, where the bind is flushed. INVALID_PARAMETER (ARG2): the
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
	bound := r.param.RMRContext
	typ2 := r.param.Scope == RMRScopeEP
	req := Request{Op: OpBindMW, Cookie: cookie, Flags: flags}
	var wrs [2]verbs.SendWR
	n := 0
	if typ2 && bound != 0 && bound == r.mw.RKey() {
		// A window of this kind must be free before it is bound again.
		wrs[n] = verbs.SendWR{Op: verbs.OpLocalInval, InvKey: bound}
		n++
	}
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
			rmrContext = key
		}
		n++
	}
	if n == 0 {
		return 0, r.fail(op, InvalidState, NoSubtype, nil, "the RMR is not bound")
	}
	if err := ep.postBind(op, wrs[:n], &req, r.ref); err != nil {
		return 0, err
	}
	r.ia.contexts.move(bound, rmrContext, r.ref)
	r.param.RMRContext = rmrContext
	r.param.Triplet, r.param.Priv, r.param.VAType = triplet, priv, va
	if unbind {
		r.param.Triplet, r.param.Priv, r.param.VAType = LMRTriplet{}, PrivNone, VATypeVA
	}
	return rmrContext, nil
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
	off := t.VirtualAddress - l.address
	return t.VirtualAddress >= l.address && off <= l.length() && uint64(t.SegmentLength) <= l.length()-off
}

// postBind posts a bind, with what must run before it: the last element has the event, the others are
// told of only if they fail.
func (ep *EP) postBind(op string, wrs []verbs.SendWR, r *Request, object ref) error {
	if err := ep.checkPost(op, StateConnected); err != nil {
		return err
	}
	q := &ep.request
	q.mu.Lock()
	defer q.mu.Unlock()
	if ep.qp == nil {
		return ep.errGone(op)
	}
	if !q.discard && q.evd.streams&StreamRMRBind == 0 {
		return ep.fail(op, InvalidHandle, InvalidHandleEVDRequest, nil, "the Request EVD lacks StreamRMRBind")
	}
	if b := ep.ia.objects.lookup(object); b != nil {
		if o, ok := b.self.(*RMR); ok && o.pz != ep.pz {
			return ep.fail(op, ProtectionViolation, NoSubtype, nil, "RMR and EP are of different protection zones")
		}
	}
	return ep.postLocal(op, wrs, r, object)
}

// postLocal posts requests that work on the own adapter. q.mu is held.
func (ep *EP) postLocal(op string, wrs []verbs.SendWR, r *Request, object ref) error {
	q := &ep.request
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
			rec.op, rec.flags = OpLMRInvalidate, CompletionSuppress
		}
	}
	if cap(ep.sendWR) < len(wrs) {
		ep.sendWR = make([]verbs.SendWR, len(wrs))
	}
	copy(ep.sendWR[:len(wrs)], wrs)
	_, err := ep.submit(op, ep.sendWR[:len(wrs)])
	return err
}

// Query tells the RMR's parameters (dat_rmr_query). It does not block.
func (r *RMR) Query() (RMRParam, error) {
	if r.gone() {
		return RMRParam{}, r.errGone("rmr_query")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
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

func (r *RMR) gone() bool { return r == nil || r.ia == nil || r.freed.Load() }

func (r *RMR) errGone(op string) error {
	if r == nil || r.ia == nil {
		return (&base{kind: HandleRMR}).errFreed(op)
	}
	return r.errFreed(op)
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

// contextTable finds own memory by its remote context, for operations that name it so.
type contextTable struct {
	mu sync.RWMutex
	m  map[uint32]ref
}

// move takes one context out and puts another in; 0 is none.
func (t *contextTable) move(from, to uint32, object ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if from != 0 {
		delete(t.m, from)
	}
	if to != 0 {
		if t.m == nil {
			t.m = map[uint32]ref{}
		}
		t.m[to] = object
	}
}

func (t *contextTable) find(context uint32) ref {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.m[context]
}

// PostRDMAReadToRMR posts an RDMA read whose sink is named by the remote context of an own LMR or RMR
// (dat_ep_post_rdma_read_to_rmr), which must give remote write. It completes as an RDMA read. For
// the rest see PostRDMARead.
//
// PROTECTION_VIOLATION: the context is unknown, or the triplet outside of it.
// PRIVILEGES_VIOLATION: it does not give remote write.
func (ep *EP) PostRDMAReadToRMR(cookie uint64, flags CompletionFlags, local, remote RMRTriplet) error {
	const op = "ep_post_rdma_read_to_rmr"
	if ep.gone() {
		return ep.errGone(op)
	}
	sink, err := ep.sinkOf(op, local)
	if err != nil {
		return err
	}
	r := Request{Op: OpRDMARead, Cookie: cookie, Flags: flags, Remote: remote}
	return ep.postOne(op, &r, []LMRTriplet{sink})
}

// sinkOf translates own memory that is named by its remote context.
func (ep *EP) sinkOf(op string, t RMRTriplet) (LMRTriplet, error) {
	if t.SegmentLength == 0 {
		return LMRTriplet{}, nil
	}
	b := ep.ia.objects.lookup(ep.ia.contexts.find(t.RMRContext))
	unknown := func() error {
		return ep.fail(op, ProtectionViolation, ProtectionRDMAWrite, nil, "the local context is unknown, or the triplet outside of it")
	}
	if b == nil {
		return LMRTriplet{}, unknown()
	}
	out := LMRTriplet{VirtualAddress: t.VirtualAddress, SegmentLength: t.SegmentLength}
	var priv Priv
	switch o := b.self.(type) {
	case *LMR:
		priv, out.LMRContext = o.privileges(), o.LMRContext()
	case *RMR:
		p, err := o.Query()
		if err != nil || p.RMRContext != t.RMRContext {
			return LMRTriplet{}, unknown()
		}
		priv, out.LMRContext = p.Priv, p.Triplet.LMRContext
		start := p.Triplet.VirtualAddress
		if p.VAType == VATypeZB {
			start = 0
			out.VirtualAddress += p.Triplet.VirtualAddress
		}
		off := t.VirtualAddress - start
		if length := uint64(p.Triplet.SegmentLength); t.VirtualAddress < start || off > length || uint64(t.SegmentLength) > length-off {
			return LMRTriplet{}, unknown()
		}
	}
	if priv&PrivRemoteWrite == 0 {
		return LMRTriplet{}, ep.fail(op, PrivilegesViolation, PrivilegesRDMAWrite, nil, "the local context does not give remote write")
	}
	return out, nil
}
