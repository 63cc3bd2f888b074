package dat

import "sync"

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
		if priv, out.LMRContext = o.privileges(), o.LMRContext(); !o.contains(out) {
			return LMRTriplet{}, unknown()
		}
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
