package dat

import (
	"fmt"
	"sync"

	"kdapl/verbs"
)

// fastLMR is the part of an LMR that is mapped by posted requests (dat_lmr_allocate).
type fastLMR struct {
	scope    RMRScope
	maxPages int

	mu      sync.Mutex // serializes FMR and Invalidate; order: before EP.request.mu
	mapped  bool
	lkey    uint32
	rkey    uint32
	address uint64
	length  uint64
	priv    Priv
	vaType  VAType
}

// AllocateLMR creates an LMR without memory, for fast registration (dat_lmr_allocate): FMR maps memory
// to it by a request in an EP's queue, Invalidate takes it back. maxPages is the most ranges of a
// mapping. It does not block.
//
// MODEL_NOT_SUPPORTED: the adapter has no fast registration (fmr_supported), or not this scope.
// INVALID_PARAMETER (ARG3): maxPages. INSUFFICIENT_RESOURCES (RESOURCE_MEMORY_REGION).
func (pz *PZ) AllocateLMR(maxPages int, scope RMRScope) (*LMR, error) {
	const op = "lmr_allocate"
	if pz.gone() {
		return nil, pz.errGone(op)
	}
	d := pz.ia.device.Attr()
	switch {
	case !d.Can(verbs.CapFastReg):
		return nil, pz.fail(op, ModelNotSupported, NoSubtype, nil, "the adapter has no fast registration")
	case scope != RMRScopePZ:
		return nil, pz.fail(op, ModelNotSupported, NoSubtype, nil, fmt.Sprintf("scope %v; only PZ is possible", scope))
	case maxPages < 1 || maxPages > d.MaxFastRegPages:
		return nil, pz.fail(op, InvalidParameter, InvalidArg3, nil, fmt.Sprintf("%d pages, allowed are 1 to %d", maxPages, d.MaxFastRegPages))
	case !pz.use():
		return nil, pz.errGone(op)
	}
	mr, err := pz.pd.AllocFastMR(maxPages)
	if err != nil {
		pz.unuse()
		return nil, pz.ia.deviceError(op, &pz.base, err)
	}
	l := &LMR{pz: pz, mr: mr, fast: &fastLMR{scope: scope, maxPages: maxPages}}
	l.base = base{self: l, ia: pz.ia, kind: HandleLMR}
	if !pz.ia.register(&l.base, pz.ia.attr.MaxLMRs) {
		mr.Dereg()
		pz.unuse()
		return nil, pz.ia.full(op, ResourceMemoryRegion)
	}
	return l, nil
}

// FMR posts a fast registration on an EP's request queue (dat_lmr_fmr): the ranges of memory, each but
// the last a multiple of the page size long, become one region. The contexts are returned at
// once and hold for requests that are posted on the EP after it; the event is a
// DTOCompletion of OpLMRFMR on the Request EVD. The LMR keeps the memory alive. It does not block.
//
// INVALID_STATE (LMR_IN_USE): mapped already, or freed memory in flight. INVALID_PARAMETER: the LMR was
// not made by AllocateLMR, ranges (ARG3), privileges (ARG5), VA type (ARG6), flags (ARG9).
// PROTECTION_VIOLATION: LMR and EP are of different PZs. ErrPostFull; further as EP.PostSend. The
// memory types of the kernel do not exist here (MODEL_NOT_SUPPORTED is for the C face).
func (l *LMR) FMR(ranges [][]byte, priv Priv, va VAType, ep *EP, cookie uint64, flags CompletionFlags) (lmrContext, rmrContext uint32, err error) {
	const op = "lmr_fmr"
	f, err := l.fastFor(op, ep)
	if err != nil {
		return 0, 0, err
	}
	switch {
	case len(ranges) == 0 || len(ranges) > f.maxPages:
		return 0, 0, l.fail(op, InvalidParameter, InvalidArg3, nil, fmt.Sprintf("%d ranges, allowed are 1 to %d", len(ranges), f.maxPages))
	case priv&^(PrivAll|PrivRemoteAtomic) != 0:
		return 0, 0, l.fail(op, InvalidParameter, InvalidArg5, nil, fmt.Sprintf("unknown privileges %v", priv))
	case va != VATypeVA && va != VATypeZB:
		return 0, 0, l.fail(op, InvalidParameter, InvalidArg6, nil, fmt.Sprintf("unknown VA type %v", va))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mapped {
		return 0, 0, l.fail(op, InvalidState, InvalidStateLMRInUse, nil, "it is mapped; invalidate it first")
	}
	access := accessOf(priv)
	address := addressOf(ranges[0])
	if va == VATypeZB {
		access |= verbs.AccessZeroBased
		address = 0
	}
	if l.ia.attr.MaxRMRs > 0 {
		access |= verbs.AccessMWBind
	}
	key, err := l.mr.Map(ranges, address)
	if err != nil {
		e := l.ia.deviceError(op, &l.base, err).(*Error)
		if e.Type == InvalidParameter {
			e.Sub = InvalidArg3
		} else if e.Type == InvalidState {
			e.Sub = InvalidStateLMRInUse
		}
		return 0, 0, e
	}
	wr := [1]verbs.SendWR{{Op: verbs.OpRegMR, Key: key, Access: access}}
	if err := ep.postFast(op, wr[:], &Request{Op: OpLMRFMR, Cookie: cookie, Flags: flags}); err != nil {
		return 0, 0, err
	}
	f.mapped, f.lkey, f.rkey, f.address, f.priv, f.vaType, f.length = true, key, 0, address, priv, va, 0
	for _, r := range ranges {
		f.length += uint64(len(r))
	}
	if priv&(PrivRemoteRead|PrivRemoteWrite|PrivRemoteAtomic) != 0 {
		f.rkey = key
		l.ia.contexts.move(0, key, l.ref)
	}
	return f.lkey, f.rkey, nil
}

// Invalidate posts an invalidation of a fast registration on an EP's request queue (dat_lmr_invalidate).
// When its event, a DTOCompletion of OpLMRInvalidate, comes, the contexts are dead and the LMR
// can be mapped again. It does not block.
//
// INVALID_STATE (LMR_FREE): it is not mapped. For the rest see FMR.
func (l *LMR) Invalidate(ep *EP, cookie uint64, flags CompletionFlags) error {
	const op = "lmr_invalidate"
	f, err := l.fastFor(op, ep)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mapped {
		return l.fail(op, InvalidState, InvalidStateLMRFree, nil, "it is not mapped")
	}
	wr := [1]verbs.SendWR{{Op: verbs.OpLocalInval, InvKey: f.lkey}}
	if err := ep.postFast(op, wr[:], &Request{Op: OpLMRInvalidate, Cookie: cookie, Flags: flags}); err != nil {
		return err
	}
	l.ia.contexts.move(f.rkey, 0, 0)
	f.mapped, f.lkey, f.rkey, f.length, f.priv = false, 0, 0, 0, PrivNone
	return nil
}

// fastFor checks the objects of FMR and Invalidate.
func (l *LMR) fastFor(op string, ep *EP) (*fastLMR, error) {
	switch {
	case l.gone():
		return nil, l.errGone(op)
	case l.fast == nil:
		return nil, l.fail(op, InvalidParameter, InvalidArg1, nil, "it has memory of its own; AllocateLMR makes one for this")
	case ep.gone() || ep.ia != l.ia:
		return nil, l.fail(op, InvalidHandle, InvalidHandleEP, nil, "the EP was freed, or is of another IA")
	}
	return l.fast, nil
}

// postFast posts a registration or an invalidation.
func (ep *EP) postFast(op string, wrs []verbs.SendWR, r *Request) error {
	if err := ep.checkPost(op, StateConnected); err != nil {
		return err
	}
	ep.request.mu.Lock()
	defer ep.request.mu.Unlock()
	if ep.qp == nil {
		return ep.errGone(op)
	}
	return ep.postLocal(op, wrs, r, 0)
}
