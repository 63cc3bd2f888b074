package dat

import "fmt"

// MemHint is what MemTypeHint advises.
type MemHint struct {
	// Length is the preferred length of a region, in bytes, at least the one asked about.
	Length uint64
	// Alignment is the preferred alignment of its start, in bytes.
	Alignment uint32
}

// MemTypeHint advises how to carve regions out of memory of a type (dat_ia_memtype_hint): a length of whole
// alignments, or exactly the one asked about with MemOptimizeExactExposure or MemOptimizeMinExposure. It does
// not block.
//
// INVALID_PARAMETER: an unknown type (ARG2), a length of 0 or above IAAttr.MaxLMRBlockSize (ARG3), unknown advice
// (ARG4). MODEL_NOT_SUPPORTED: a memory type that the provider does not register.
func (ia *IA) MemTypeHint(mem MemType, length uint64, opt MemOptimize) (MemHint, error) {
	const op = "ia_memtype_hint"
	const known = MemLMR | MemSharedVirtual | MemPhysical | MemPlatform | MemIA | MemBypass | MemPhysicalVarPages
	if err := ia.check(op); err != nil {
		return MemHint{}, err
	}
	switch {
	case mem&^known != 0:
		return MemHint{}, ia.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("unknown memory type %v", mem))
	case length == 0 || length > ia.attr.MaxLMRBlockSize:
		return MemHint{}, ia.fail(op, InvalidParameter, InvalidArg3, nil, fmt.Sprintf("length %d, allowed are 1 to %d", length, ia.attr.MaxLMRBlockSize))
	case opt > MemOptimizeMinExposure && opt != MemOptimizeExactExposure:
		return MemHint{}, ia.fail(op, InvalidParameter, InvalidArg4, nil, fmt.Sprintf("unknown advice %v", opt))
	case mem&^ia.provider.LMRMemTypesSupported != 0:
		return MemHint{}, ia.fail(op, ModelNotSupported, NoSubtype, nil, fmt.Sprintf("memory type %v does not exist in user space", mem))
	}
	align := uint64(ia.provider.OptimalBufferAlignment)
	if opt == MemOptimizeDontCare || opt == MemOptimizeIA {
		if whole := (length + align - 1) / align * align; whole >= length && whole <= ia.attr.MaxLMRBlockSize {
			length = whole
		}
	}
	return MemHint{Length: length, Alignment: uint32(align)}, nil
}

// ReservedLMR would return the IA's region of all memory, for local use without registration
// (dat_ia_reserved_lmr). That is the kernel's: no adapter here has one, as IAAttr.ReservedLMRSupported says. It
// does not block.
//
// MODEL_NOT_SUPPORTED, always.
func (ia *IA) ReservedLMR() (*LMR, error) {
	const op = "ia_reserved_lmr"
	if err := ia.check(op); err != nil {
		return nil, err
	}
	return nil, ia.fail(op, ModelNotSupported, NoSubtype, nil, "the reserved LMR is the kernel's; register memory instead")
}

// SyncRDMARead makes what the process wrote to its regions visible to RDMA reads of peers
// (dat_lmr_sync_rdma_read). It is needed where ProviderAttr.LMRSyncReq says so; memory is coherent for all adapters
// of this module, so it only checks the triplets. It does not block and allocates nothing.
//
// INVALID_PARAMETER (ARG2): a triplet's context is unknown, or the triplet outside of its region.
func (ia *IA) SyncRDMARead(local ...LMRTriplet) error { return ia.sync("lmr_sync_rdma_read", local) }

// SyncRDMAWrite makes what peers wrote by RDMA to the process's regions visible to it
// (dat_lmr_sync_rdma_write). For the rest see SyncRDMARead.
func (ia *IA) SyncRDMAWrite(local ...LMRTriplet) error { return ia.sync("lmr_sync_rdma_write", local) }

func (ia *IA) sync(op string, local []LMRTriplet) error {
	if err := ia.check(op); err != nil {
		return err
	}
	for i, t := range local {
		if t.SegmentLength == 0 {
			continue
		}
		if b := ia.objects.lookup(ia.locals.find(t.LMRContext)); b == nil || !b.self.(*LMR).contains(t) {
			return ia.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("triplet %d is not within a region of the IA", i))
		}
	}
	return nil
}

// HARelated tells whether the provider of a name can stand in for this one when an adapter or path fails
// (ia_ha_related of the provider vector). No provider of this module can. It does not block.
//
// INVALID_PARAMETER (ARG2): no name, or one of more than 255 bytes.
func (ia *IA) HARelated(provider string) (bool, error) {
	const op = "ia_ha_related"
	if err := ia.check(op); err != nil {
		return false, err
	}
	if provider == "" || len(provider) >= NameMaxLength {
		return false, ia.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("the name has %d bytes, allowed are 1 to %d", len(provider), NameMaxLength-1))
	}
	return false, nil
}
