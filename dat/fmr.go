package dat

import (
	"fmt"
	"sync"
	"sync/atomic"

	"kdapl/verbs"
)

// fastLMR is the part of an LMR that is mapped by posted requests (dat_lmr_allocate).
type fastLMR struct {
	maxPages int

	mu sync.Mutex // serializes FMR and Invalidate; order: before EP.request.mu
	// now is the mapping after all requests that were posted, before the one that the last
	// invalidation ends: it holds again if that is flushed.
	now, before fastMap
	ep          *EP // that the last request was posted on

	// inFlight counts requests whose completion has not been seen, failed says which kinds of those
	// that were have failed.
	inFlight atomic.Int32
	failed   atomic.Uint32
}

// fastMap is a mapping; the zero value is none.
type fastMap struct {
	lkey, rkey      uint32
	address, length uint64
	priv            Priv
	vaType          VAType
}

// The bits of fastLMR.failed.
const (
	failedRegistration = 1 << iota
	failedInvalidation
)

// AllocateLMR creates an LMR without memory, for fast registration (dat_lmr_allocate): FMR maps memory
// to it by a request in an EP's queue, Invalidate takes it back. maxPages is the most ranges of a
// mapping. It does not block.
//
// MODEL_NOT_SUPPORTED: the adapter has no fast registration (fmr_supported), or not this scope.
// INVALID_PARAMETER: maxPages (ARG3), an unknown scope (ARG4). INSUFFICIENT_RESOURCES
// (RESOURCE_MEMORY_REGION).
func (pz *PZ) AllocateLMR(maxPages int, scope RMRScope) (*LMR, error) {
	const op = "lmr_allocate"
	if pz.gone() {
		return nil, pz.errGone(op)
	}
	d := pz.ia.device.Attr()
	switch {
	case !d.Can(verbs.CapFastReg):
		return nil, pz.fail(op, ModelNotSupported, NoSubtype, nil, "the adapter has no fast registration")
	case scope > RMRScopeAny:
		return nil, pz.fail(op, InvalidParameter, InvalidArg4, nil, fmt.Sprintf("unknown scope %v", scope))
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
		return nil, pz.ia.creationError(op, &pz.base, err, ResourceMemoryRegion)
	}
	l := &LMR{pz: pz, mr: mr, fast: &fastLMR{maxPages: maxPages}}
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
// DTOCompletion of OpLMRFMR on the Request EVD. The LMR keeps the memory alive. If the registration fails or is
// flushed, nothing is mapped. It does not block.
//
// INVALID_STATE (LMR_IN_USE): mapped, and nobody has invalidated it, or an invalidation is under way; or the EP's
// state. INVALID_PARAMETER: the LMR was not made by AllocateLMR (ARG1), ranges (ARG3), privileges (ARG5), VA
// type (ARG6), flags (ARG9). PROTECTION_VIOLATION: LMR and EP are of different PZs. MODEL_NOT_SUPPORTED: VATypeZB, remote atomics.
// ErrPostFull; further as EP.PostSend. The memory types of the kernel do not exist here.
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
	case priv&PrivRemoteAtomic != 0 && !l.ia.device.Attr().Can(verbs.CapAtomics):
		return 0, 0, l.fail(op, ModelNotSupported, NoSubtype, nil, "the adapter has no atomics")
	case va != VATypeVA && va != VATypeZB:
		return 0, 0, l.fail(op, InvalidParameter, InvalidArg6, nil, fmt.Sprintf("unknown VA type %v", va))
	case va == VATypeZB && !l.ia.attr.ZBSupported:
		return 0, 0, l.fail(op, ModelNotSupported, NoSubtype, nil, "the adapter has no zero-based regions")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.settle(true); f.now.lkey != 0 {
		return 0, 0, l.fail(op, InvalidState, InvalidStateLMRInUse, nil, "it is mapped; invalidate it first")
	}
	m := fastMap{address: addressOf(ranges[0]), priv: priv, vaType: va}
	access := accessOf(priv)
	if va == VATypeZB {
		access |= verbs.AccessZeroBased
		m.address = 0
	}
	if l.ia.attr.MaxRMRs > 0 {
		access |= verbs.AccessMWBind
	}
	for _, r := range ranges {
		m.length += uint64(len(r))
	}
	if m.lkey, err = l.mr.Map(ranges, m.address); err != nil {
		e := l.ia.deviceError(op, &l.base, err).(*Error)
		switch e.Type {
		case InvalidParameter:
			e.Sub = InvalidArg3
		case InvalidState:
			e.Sub = InvalidStateLMRInUse
		}
		return 0, 0, e
	}
	if priv&(PrivRemoteRead|PrivRemoteWrite|PrivRemoteAtomic) != 0 {
		m.rkey = m.lkey
	}
	wr := [1]verbs.SendWR{{Op: verbs.OpRegMR, Key: m.lkey, Access: access}}
	if err := ep.postFast(op, wr[:], &Request{Op: OpLMRFMR, Cookie: cookie, Flags: flags}, l); err != nil {
		return 0, 0, err
	}
	l.remap(m)
	f.ep = ep
	return m.lkey, m.rkey, nil
}

// Invalidate posts an invalidation of a fast registration on an EP's request queue (dat_lmr_invalidate).
// When its event, a DTOCompletion of OpLMRInvalidate, comes, the contexts are dead and the LMR
// can be mapped again. If the invalidation is flushed, the mapping stays. It does not block.
//
// INVALID_STATE (LMR_FREE): it is not mapped, or a peer has invalidated it. INVALID_PARAMETER (ARG4): flags. For the
// rest see FMR.
func (l *LMR) Invalidate(ep *EP, cookie uint64, flags CompletionFlags) error {
	const op = "lmr_invalidate"
	f, err := l.fastFor(op, ep)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.settle(true); f.now.lkey == 0 {
		return l.fail(op, InvalidState, InvalidStateLMRFree, nil, "it is not mapped")
	}
	wr := [1]verbs.SendWR{{Op: verbs.OpLocalInval, InvKey: f.now.lkey}}
	if err := ep.postFast(op, wr[:], &Request{Op: OpLMRInvalidate, Cookie: cookie, Flags: flags}, l); err != nil {
		return err
	}
	f.before, f.ep = f.now, ep
	l.remap(fastMap{})
	return nil
}

// remap changes the mapping. fast.mu is held.
func (l *LMR) remap(m fastMap) {
	l.ia.contexts.move(l.fast.now.rkey, m.rkey, l.ref)
	l.ia.locals.move(l.fast.now.lkey, m.lkey, l.ref)
	l.fast.now = m
}

// ran notes that a request has run. The EVD of the request is locked.
func (f *fastLMR) ran(op Operation, s Status) {
	if s != StatusSuccess {
		bit := uint32(failedRegistration)
		if op == OpLMRInvalidate {
			bit = failedInvalidation
		}
		f.failed.Or(bit)
	}
	f.inFlight.Add(-1)
}

// settle finds out what is mapped, if no request is under way. look makes it take the completions that the adapter
// has. fast.mu is held.
func (l *LMR) settle(look bool) {
	f := l.fast
	if look && f.inFlight.Load() > 0 && f.ep != nil {
		f.ep.pumpBoth()
	}
	if f.inFlight.Load() > 0 {
		return
	}
	m := f.now
	switch failed := f.failed.Swap(0); {
	case failed&failedRegistration != 0:
		m = fastMap{}
	case failed&failedInvalidation != 0:
		m = f.before
	}
	if m.lkey != 0 && l.mr.LKey() != m.lkey {
		m = fastMap{} // a peer has invalidated it
	}
	f.before = fastMap{}
	if m != f.now {
		l.remap(m)
	}
}

// mapping is what is mapped now.
func (l *LMR) mapping() fastMap {
	l.fast.mu.Lock()
	defer l.fast.mu.Unlock()
	if !l.freed.Load() {
		l.settle(false)
	}
	return l.fast.now
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
func (ep *EP) postFast(op string, wrs []verbs.SendWR, r *Request, l *LMR) error {
	if err := ep.checkPost(op, StateConnected); err != nil {
		return err
	}
	ep.request.lock()
	defer ep.request.unlock()
	switch {
	case ep.qp == nil:
		return ep.errGone(op)
	case l.pz != ep.pz:
		return ep.fail(op, ProtectionViolation, NoSubtype, nil, "LMR and EP are of different protection zones")
	}
	return ep.postLocal(op, wrs, r, l.ref, &l.fast.inFlight)
}
