package dat

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"kdapl/verbs"
)

// LMRTriplet names local memory (DAT_LMR_TRIPLET): SegmentLength bytes from VirtualAddress in the
// LMR with the context. With a length of 0 the other fields are ignored.
type LMRTriplet struct {
	VirtualAddress uint64
	SegmentLength  uint32
	LMRContext     uint32
}

// RMRTriplet names a peer's memory, or own memory by its remote context (DAT_RMR_TRIPLET).
type RMRTriplet struct {
	VirtualAddress uint64
	SegmentLength  uint32
	RMRContext     uint32
}

// LMRConfig describes an LMR (the arguments of dat_lmr_kcreate).
type LMRConfig struct {
	// MemType is MemVirtual, for memory of the process, or MemLMR, for that of Source.
	MemType MemType
	// Memory is the region for MemVirtual. It stays the consumer's; the LMR keeps it alive. It
	// must not be on a stack, which no slice that reaches here is.
	Memory []byte
	// Length, with Memory nil, makes the IA allocate zeroed memory outside of the Go heap,
	// which is given back when the LMR is freed: slices of it must not be used afterwards.
	Length int
	// Source is the LMR whose region a MemLMR one shares, with its own privileges, which may be in
	// another PZ. It can be freed independently.
	Source *LMR
	// Priv are the privileges.
	Priv Priv
	// VAType is how triplets address the region: by the address of the memory (VATypeVA), or
	// from 0 (VATypeZB).
	VAType VAType
}

// LMR is a registered region of local memory.
type LMR struct {
	base
	pz      *PZ
	mr      verbs.MR
	cfg     LMRConfig
	region  *region
	address uint64
	lkey    uint32
	rkey    uint32
	fast    *fastLMR // of an LMR made by AllocateLMR
}

// region is memory that one or several LMRs share.
type region struct {
	mem     []byte
	users   atomic.Int64
	release func()
}

// use counts a user in; false if the memory is gone.
func (r *region) use() bool {
	for n := r.users.Load(); n > 0; n = r.users.Load() {
		if r.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

func (r *region) unuse() {
	if r.users.Add(-1) == 0 && r.release != nil {
		r.release()
	}
}

// Register registers memory of the consumer's: NewLMR with MemVirtual and VATypeVA.
func (pz *PZ) Register(mem []byte, priv Priv) (*LMR, error) {
	return pz.NewLMR(LMRConfig{MemType: MemVirtual, Memory: mem, Priv: priv})
}

// NewLMR creates an LMR (dat_lmr_kcreate, dat_lmr_create). It does not block.
//
// INVALID_PARAMETER: unknown privileges or VA type, both Memory and Length, a Source that does
// not fit the type. LENGTH_ERROR: an empty region, or one larger than the IA's limit.
// INVALID_HANDLE: the PZ or Source was freed. MODEL_NOT_SUPPORTED: another memory type,
// VATypeZB without the IA's zb_supported, remote atomics without the extension.
// INSUFFICIENT_RESOURCES (RESOURCE_MEMORY_REGION, RESOURCE_MEMORY).
func (pz *PZ) NewLMR(cfg LMRConfig) (*LMR, error) {
	const op = "lmr_kcreate"
	if pz.gone() {
		return nil, pz.errGone(op)
	}
	if err := pz.checkLMR(op, cfg); err != nil {
		return nil, err
	}
	l := &LMR{pz: pz, cfg: cfg}
	l.base = base{self: l, ia: pz.ia, kind: HandleLMR}
	switch {
	case cfg.MemType == MemLMR:
		if l.region = cfg.Source.region; !l.region.use() {
			return nil, cfg.Source.errGone(op)
		}
	case cfg.Memory != nil:
		l.region = &region{mem: cfg.Memory[:len(cfg.Memory):len(cfg.Memory)]}
		l.region.users.Store(1)
	default:
		mem, release, err := allocate(cfg.Length)
		if err != nil {
			return nil, pz.fail(op, InsufficientResources, ResourceMemory, err, fmt.Sprintf("no %d bytes", cfg.Length))
		}
		l.region = &region{mem: mem, release: release}
		l.region.users.Store(1)
	}
	mem := l.region.mem
	l.address = addressOf(mem)
	access := accessOf(cfg.Priv)
	if cfg.VAType == VATypeZB {
		l.address = 0
		access |= verbs.AccessZeroBased
	}
	if pz.ia.attr.MaxRMRs > 0 {
		access |= verbs.AccessMWBind
	}
	if !pz.use() {
		l.region.unuse()
		return nil, pz.errGone(op)
	}
	var err error
	if l.mr, err = pz.pd.RegMR(mem, l.address, access); err != nil {
		pz.unuse()
		l.region.unuse()
		return nil, pz.ia.creationError(op, &pz.base, err, ResourceMemoryRegion)
	}
	l.lkey, l.rkey = l.mr.LKey(), l.mr.RKey()
	if !pz.ia.register(&l.base, pz.ia.attr.MaxLMRs) {
		l.mr.Dereg()
		pz.unuse()
		l.region.unuse()
		return nil, pz.ia.full(op, ResourceMemoryRegion)
	}
	pz.ia.contexts.move(0, l.rkey, l.ref)
	pz.ia.locals.move(0, l.lkey, l.ref)
	return l, nil
}

// addressOf is the address of a slice's first byte, as a number.
func addressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// checkLMR checks the arguments of NewLMR.
func (pz *PZ) checkLMR(op string, cfg LMRConfig) error {
	length := uint64(len(cfg.Memory))
	if cfg.Memory == nil {
		length = uint64(max(cfg.Length, 0))
	}
	switch cfg.MemType {
	case MemVirtual:
		if cfg.Source != nil || cfg.Memory != nil && cfg.Length != 0 {
			return pz.fail(op, InvalidParameter, InvalidArg3, nil, "MemVirtual takes either Memory or Length")
		}
	case MemLMR:
		if cfg.Memory != nil || cfg.Length != 0 {
			return pz.fail(op, InvalidParameter, InvalidArg3, nil, "MemLMR takes Source only")
		}
		if cfg.Source.gone() || cfg.Source.ia != pz.ia || cfg.Source.region == nil {
			return pz.fail(op, InvalidHandle, InvalidHandleLMR, nil, "Source was freed, is of another IA, or has no memory of its own")
		}
		length = uint64(len(cfg.Source.region.mem))
	default:
		return pz.fail(op, ModelNotSupported, NoSubtype, nil, fmt.Sprintf("memory type %v does not exist in user space", cfg.MemType))
	}
	switch {
	case length == 0 || length > pz.ia.attr.MaxLMRBlockSize:
		return pz.fail(op, LengthError, NoSubtype, nil, fmt.Sprintf("the region has %d bytes, allowed are 1 to %d", length, pz.ia.attr.MaxLMRBlockSize))
	case cfg.Priv&^(PrivAll|PrivRemoteAtomic) != 0:
		return pz.fail(op, InvalidParameter, InvalidArg6, nil, fmt.Sprintf("unknown privileges %v", cfg.Priv))
	case cfg.Priv&PrivRemoteAtomic != 0 && !pz.ia.device.Attr().Can(verbs.CapAtomics):
		return pz.fail(op, ModelNotSupported, NoSubtype, nil, "the adapter has no atomics")
	case cfg.VAType != VATypeVA && cfg.VAType != VATypeZB:
		return pz.fail(op, InvalidParameter, InvalidArg7, nil, fmt.Sprintf("unknown VA type %v", cfg.VAType))
	case cfg.VAType == VATypeZB && !pz.ia.attr.ZBSupported:
		return pz.fail(op, ModelNotSupported, NoSubtype, nil, "the adapter has no zero-based regions")
	}
	return nil
}

// accessOf maps privileges to the device's rights.
func accessOf(p Priv) verbs.Access {
	var a verbs.Access
	for _, m := range [...]struct {
		p Priv
		a verbs.Access
	}{
		{PrivLocalWrite, verbs.AccessLocalWrite},
		{PrivRemoteRead, verbs.AccessRemoteRead},
		{PrivRemoteWrite, verbs.AccessRemoteWrite},
		{PrivRemoteAtomic, verbs.AccessRemoteAtomic},
	} {
		if p&m.p != 0 {
			a |= m.a
		}
	}
	if p&PrivLocalRead == 0 {
		a |= verbs.AccessNoLocalRead
	}
	return a
}

// Bytes is the region's memory; nil after Free, and for an LMR made by AllocateLMR. For memory that
// the IA allocated it must not be used after Free.
func (l *LMR) Bytes() []byte {
	if l.gone() || l.region == nil {
		return nil
	}
	return l.region.mem
}

// LMRContext is the context for local triplets (lmr_context); 0 after Free, and while a fast LMR is not
// mapped.
func (l *LMR) LMRContext() uint32 {
	switch {
	case l.gone():
		return 0
	case l.fast == nil:
		return l.lkey
	}
	return l.mapping().lkey
}

// RMRContext is the context that peers use (rmr_context); 0 without a remote privilege,
// after Free, and while a fast LMR is not mapped.
func (l *LMR) RMRContext() uint32 {
	switch {
	case l.gone():
		return 0
	case l.fast == nil:
		return l.rkey
	}
	return l.mapping().rkey
}

// Address is what triplets count from: the address of the region's memory, or 0 with VATypeZB
// (registered_address).
func (l *LMR) Address() uint64 {
	switch {
	case l == nil:
		return 0
	case l.fast == nil:
		return l.address
	}
	return l.mapping().address
}

// length is the region's, in bytes.
func (l *LMR) length() uint64 {
	if l.fast == nil {
		return uint64(len(l.region.mem))
	}
	return l.mapping().length
}

// privileges are the region's.
func (l *LMR) privileges() Priv {
	if l.fast == nil {
		return l.cfg.Priv
	}
	return l.mapping().priv
}

// Triplet names n bytes from offset off, for local use. What lies outside of the region is
// refused by the post.
func (l *LMR) Triplet(off, n int) LMRTriplet {
	return LMRTriplet{l.Address() + uint64(off), segmentLength(n), l.LMRContext()}
}

// RMRTriplet names n bytes from offset off, for the peer.
func (l *LMR) RMRTriplet(off, n int) RMRTriplet {
	return RMRTriplet{l.Address() + uint64(off), segmentLength(n), l.RMRContext()}
}

// segmentLength keeps a length that no segment can have out of any region.
func segmentLength(n int) uint32 {
	if n < 0 || n > math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(n)
}

// LMRParam is what Query tells (DAT_LMR_PARAM).
type LMRParam struct {
	// IA is the adapter.
	IA      *IA
	MemType MemType
	PZ      *PZ
	Priv    Priv
	VAType  VAType
	// LMRContext and RMRContext are the contexts.
	LMRContext, RMRContext uint32
	// RegisteredLength and RegisteredAddress are the region's, which is exactly the one asked for.
	RegisteredLength  uint64
	RegisteredAddress uint64
	// FMRSupport says that the LMR was made by AllocateLMR, Bound that memory is mapped to it
	// (lmr_state).
	FMRSupport, Bound bool
}

// Query tells the LMR's parameters (dat_lmr_query). It does not block.
func (l *LMR) Query() (LMRParam, error) {
	if l.gone() {
		return LMRParam{}, l.errGone("lmr_query")
	}
	p := LMRParam{
		IA: l.ia, MemType: l.cfg.MemType, PZ: l.pz, Priv: l.privileges(), VAType: l.cfg.VAType,
		LMRContext: l.LMRContext(), RMRContext: l.RMRContext(),
		RegisteredLength: l.length(), RegisteredAddress: l.Address(), FMRSupport: l.fast != nil, Bound: true,
	}
	if l.fast != nil {
		m := l.mapping()
		p.Priv, p.VAType, p.Bound = m.priv, m.vaType, m.lkey != 0
		p.LMRContext, p.RMRContext, p.RegisteredAddress, p.RegisteredLength = m.lkey, m.rkey, m.address, m.length
	}
	return p, nil
}

// Free frees the LMR (dat_lmr_free). Its contexts become invalid; operations that still name them fail. It
// waits for copies into or out of the region that are in progress, never for the network.
//
// INVALID_STATE (LMR_IN_USE): an RMR is bound to it, or a fast registration is outstanding.
func (l *LMR) Free() error {
	const op = "lmr_free"
	if l.gone() {
		return l.errGone(op)
	}
	inUse := func() error {
		return l.fail(op, InvalidState, InvalidStateLMRInUse, nil, "an RMR is bound to it, or a registration or invalidation is outstanding")
	}
	if f := l.fast; f != nil {
		f.mu.Lock()
		defer f.mu.Unlock() // nobody posts one meanwhile
		if l.settle(true); f.inFlight.Load() > 0 {
			return inUse()
		}
	}
	if !l.freed.CompareAndSwap(false, true) {
		return l.errGone(op)
	}
	if err := l.mr.Dereg(); errors.Is(err, verbs.ErrBusy) {
		l.freed.Store(false)
		return inUse()
	}
	l.release()
	return nil
}

// abandon destroys the LMR with its IA.
func (l *LMR) abandon() {
	if l.fast != nil {
		l.fast.mu.Lock()
		defer l.fast.mu.Unlock()
	}
	if l.freed.CompareAndSwap(false, true) {
		l.mr.Dereg()
		l.release()
	}
}

// release gives back what the LMR used, after its end in the device. fast.mu is held.
func (l *LMR) release() {
	if l.fast != nil {
		l.remap(fastMap{})
	} else {
		l.ia.contexts.move(l.rkey, 0, 0)
		l.ia.locals.move(l.lkey, 0, 0)
	}
	if l.region != nil {
		l.region.unuse()
	}
	l.pz.unuse()
	l.ia.unregister(&l.base)
}
