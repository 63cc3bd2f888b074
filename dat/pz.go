package dat

import (
	"fmt"
	"sync"
	"sync/atomic"

	"kdapl/verbs"
)

// PZ is a protection zone: EPs, memory regions and shared receive queues work together
// only within one.
type PZ struct {
	base
	pd    verbs.PD
	users atomic.Int64

	mu      sync.Mutex // a leaf
	handles map[*AddressHandle]struct{}
}

// NewPZ creates a protection zone (dat_pz_create). It does not block.
//
// INSUFFICIENT_RESOURCES (RESOURCE_PROTECTION_DOMAIN): the IA has no more.
func (ia *IA) NewPZ() (*PZ, error) {
	const op = "pz_create"
	if err := ia.check(op); err != nil {
		return nil, err
	}
	pd, err := ia.device.AllocPD()
	if err != nil {
		return nil, ia.creationError(op, &ia.base, err, ResourceProtectionDomain)
	}
	pz := &PZ{pd: pd}
	pz.base = base{self: pz, ia: ia, kind: HandlePZ}
	if !ia.register(&pz.base, ia.attr.MaxPZs) {
		pd.Dealloc()
		return nil, ia.full(op, ResourceProtectionDomain)
	}
	return pz, nil
}

// PZParam is what Query tells (DAT_PZ_PARAM).
type PZParam struct {
	// IA is the adapter.
	IA *IA
}

// Query tells the PZ's parameters (dat_pz_query). It does not block.
func (pz *PZ) Query() (PZParam, error) {
	if pz.gone() {
		return PZParam{}, pz.errGone("pz_query")
	}
	return PZParam{IA: pz.ia}, nil
}

// Free frees the PZ (dat_pz_free). It does not block.
//
// INVALID_STATE (PZ_IN_USE): an EP, LMR, RMR or SRQ uses it.
func (pz *PZ) Free() error {
	const op = "pz_free"
	if pz.gone() {
		return pz.errGone(op)
	}
	// A free PZ has the count -1, so that nobody starts to use it.
	if !pz.users.CompareAndSwap(0, -1) {
		if pz.users.Load() < 0 {
			return pz.errGone(op)
		}
		return pz.fail(op, InvalidState, InvalidStatePZInUse, nil, fmt.Sprintf("%d objects use it; free them first", pz.users.Load()))
	}
	pz.abandon()
	return nil
}

func (pz *PZ) abandon() {
	if pz.freed.CompareAndSwap(false, true) {
		pz.users.Store(-1)
		pz.freeHandles() // no EP is left that could learn of more
		pz.pd.Dealloc()
		pz.ia.unregister(&pz.base)
	}
}

// use counts a user in; false if the PZ is gone.
func (pz *PZ) use() bool {
	for {
		n := pz.users.Load()
		if n < 0 {
			return false
		}
		if pz.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (pz *PZ) unuse() {
	if pz != nil {
		pz.users.Add(-1)
	}
}
