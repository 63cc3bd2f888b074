//go:build kdapl_capi && cgo && linux

package main

// #include "kdapl.h"
import "C"

import (
	"math"
	"unsafe"

	"kdapl/dat"
)

//export kdPZCreate
func kdPZCreate(h C.uintptr_t, out *C.DAT_PZ_HANDLE) C.DAT_RETURN {
	ia, o, ok := find[*dat.IA](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleIA)
	case out == nil:
		return badArg(2)
	}
	pz, err := ia.NewPZ()
	if err != nil {
		return result(err)
	}
	return give(pz, o, (*C.DAT_HANDLE)(out), pz.Free)
}

//export kdPZQuery
func kdPZQuery(h C.uintptr_t, mask C.DAT_PZ_PARAM_MASK, to *C.DAT_PZ_PARAM) C.DAT_RETURN {
	_, o, ok := find[*dat.PZ](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandlePZ)
	case mask&^C.DAT_PZ_FIELD_ALL != 0:
		return badArg(2)
	case to == nil:
		return badArg(3)
	}
	o.putIA(&to.ia_handle)
	return C.DAT_SUCCESS
}

//export kdPZFree
func kdPZFree(h C.uintptr_t) C.DAT_RETURN {
	pz, o, ok := find[*dat.PZ](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandlePZ)
	}
	return o.gone(pz.Free())
}

//export kdLMRCreate
func kdLMRCreate(h C.uintptr_t, memType C.DAT_MEM_TYPE, region C.uintptr_t, n C.DAT_VLEN, pzh C.uintptr_t, priv C.DAT_MEM_PRIV_FLAGS, va C.DAT_VA_TYPE,
	out *C.DAT_LMR_HANDLE, lmrContext *C.DAT_LMR_CONTEXT, rmrContext *C.DAT_RMR_CONTEXT, registered *C.DAT_VLEN, address *C.DAT_VADDR) C.DAT_RETURN {
	_, o, ok := find[*dat.IA](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleIA)
	}
	pz, pzo, ok := find[*dat.PZ](uintptr(pzh))
	switch {
	case !ok || pzo.ia != o:
		return badHandle(dat.InvalidHandlePZ)
	case out == nil:
		return badArg(8)
	}
	// C programs send from regions without local read: the adapters that they know do not check it.
	cfg := dat.LMRConfig{MemType: dat.MemType(memType), Priv: dat.Priv(priv) | dat.PrivLocalRead, VAType: dat.VAType(va)}
	switch memType {
	case C.DAT_MEM_TYPE_VIRTUAL, C.DAT_MEM_TYPE_SHARED_VIRTUAL:
		switch {
		case n == 0:
			return fault(dat.LengthError, dat.NoSubtype)
		case region == 0:
			return badArg(3)
		case n > math.MaxInt64-4096 || uint64(region)+uint64(n) < uint64(n):
			return fault(dat.LengthError, dat.NoSubtype)
		}
		cfg.Memory = unsafe.Slice((*byte)(pointer(region)), int(n))
	case C.DAT_MEM_TYPE_LMR:
		if cfg.Source, _, ok = find[*dat.LMR](uintptr(region)); !ok {
			return badHandle(dat.InvalidHandleLMR)
		}
	default:
		return badArg(2)
	}
	lmr, err := pz.NewLMR(cfg)
	if err != nil {
		return result(err)
	}
	r := give(lmr, o, (*C.DAT_HANDLE)(out), lmr.Free)
	if r != C.DAT_SUCCESS {
		return r
	}
	if lo, ok := lmr.Context().(*object); ok {
		lo.mu.Lock()
		if lo.priv = priv; memType == C.DAT_MEM_TYPE_LMR {
			lo.source = region
		}
		lo.mu.Unlock()
	}
	p, _ := lmr.Query()
	if lmrContext != nil {
		*lmrContext = C.DAT_LMR_CONTEXT(p.LMRContext)
	}
	if rmrContext != nil {
		*rmrContext = C.DAT_RMR_CONTEXT(p.RMRContext)
	}
	if registered != nil {
		*registered = C.DAT_VLEN(p.RegisteredLength)
	}
	if address != nil {
		*address = C.DAT_VADDR(p.RegisteredAddress)
	}
	return C.DAT_SUCCESS
}

//export kdLMRQuery
func kdLMRQuery(h C.uintptr_t, mask C.DAT_LMR_PARAM_MASK, to *C.DAT_LMR_PARAM) C.DAT_RETURN {
	lmr, o, ok := find[*dat.LMR](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleLMR)
	case mask&^C.DAT_LMR_FIELD_ALL != 0:
		return badArg(2)
	case to == nil:
		return badArg(3)
	}
	p, err := lmr.Query()
	if err != nil {
		return result(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	*to = C.DAT_LMR_PARAM{
		mem_type: C.DAT_MEM_TYPE(p.MemType), length: C.DAT_VLEN(p.RegisteredLength),
		pz_handle: C.DAT_PZ_HANDLE(handleIf(p.PZ, o)), mem_priv: o.priv, va_type: C.DAT_VA_TYPE(p.VAType),
		lmr_context: C.DAT_LMR_CONTEXT(p.LMRContext), rmr_context: C.DAT_RMR_CONTEXT(p.RMRContext),
		registered_size: C.DAT_VLEN(p.RegisteredLength), registered_address: C.DAT_VADDR(p.RegisteredAddress),
	}
	o.putIA(&to.ia_handle)
	if o.source != 0 {
		C.kd_region_lmr(to, o.source)
	} else if b := lmr.Bytes(); len(b) > 0 {
		C.kd_region_va(to, C.uint64_t(uintptr(unsafe.Pointer(unsafe.SliceData(b)))))
	}
	return C.DAT_SUCCESS
}

//export kdLMRFree
func kdLMRFree(h C.uintptr_t) C.DAT_RETURN {
	lmr, o, ok := find[*dat.LMR](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleLMR)
	}
	return o.gone(lmr.Free())
}

//export kdLMRSyncRDMARead
func kdLMRSyncRDMARead(h C.uintptr_t, p *C.DAT_LMR_TRIPLET, n C.DAT_VLEN) C.DAT_RETURN {
	return lmrSync(h, p, n, (*dat.IA).SyncRDMARead)
}

//export kdLMRSyncRDMAWrite
func kdLMRSyncRDMAWrite(h C.uintptr_t, p *C.DAT_LMR_TRIPLET, n C.DAT_VLEN) C.DAT_RETURN {
	return lmrSync(h, p, n, (*dat.IA).SyncRDMAWrite)
}

func lmrSync(h C.uintptr_t, p *C.DAT_LMR_TRIPLET, n C.DAT_VLEN, f func(*dat.IA, ...dat.LMRTriplet) error) C.DAT_RETURN {
	ia, _, ok := find[*dat.IA](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleIA)
	}
	if n > math.MaxInt32 {
		return badArg(3)
	}
	local, ok := segments(p, C.DAT_COUNT(n))
	if !ok {
		return badArg(2)
	}
	return result(f(ia, local...))
}

//export kdRMRCreate
func kdRMRCreate(h C.uintptr_t, out *C.DAT_RMR_HANDLE) C.DAT_RETURN {
	return rmrCreate(h, out, (*dat.PZ).NewRMR)
}

//export kdRMRCreateForEP
func kdRMRCreateForEP(h C.uintptr_t, out *C.DAT_RMR_HANDLE) C.DAT_RETURN {
	return rmrCreate(h, out, (*dat.PZ).NewRMRForEP)
}

func rmrCreate(h C.uintptr_t, out *C.DAT_RMR_HANDLE, create func(*dat.PZ) (*dat.RMR, error)) C.DAT_RETURN {
	pz, o, ok := find[*dat.PZ](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandlePZ)
	case out == nil:
		return badArg(2)
	}
	rmr, err := create(pz)
	if err != nil {
		return result(err)
	}
	return give(rmr, o.ia, (*C.DAT_HANDLE)(out), rmr.Free)
}

//export kdRMRQuery
func kdRMRQuery(h C.uintptr_t, mask C.DAT_RMR_PARAM_MASK, to *C.DAT_RMR_PARAM) C.DAT_RETURN {
	rmr, o, ok := find[*dat.RMR](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleRMR)
	case mask&^C.DAT_RMR_FIELD_ALL != 0:
		return badArg(2)
	case to == nil:
		return badArg(3)
	}
	p, err := rmr.Query()
	if err != nil {
		return result(err)
	}
	*to = C.DAT_RMR_PARAM{
		pz_handle: C.DAT_PZ_HANDLE(handleIf(p.PZ, o)),
		lmr_triplet: C.DAT_LMR_TRIPLET{
			virtual_address: C.DAT_VADDR(p.Triplet.VirtualAddress), segment_length: C.DAT_SEG_LENGTH(p.Triplet.SegmentLength),
			lmr_context: C.DAT_LMR_CONTEXT(p.Triplet.LMRContext),
		},
		mem_priv: C.DAT_MEM_PRIV_FLAGS(p.Priv), rmr_context: C.DAT_RMR_CONTEXT(p.RMRContext),
		rmr_scope: C.DAT_RMR_SCOPE(p.Scope), va_type: C.DAT_VA_TYPE(p.VAType),
	}
	o.putIA(&to.ia_handle)
	return C.DAT_SUCCESS
}

//export kdRMRBind
func kdRMRBind(h C.uintptr_t, lmrh C.uintptr_t, t *C.DAT_LMR_TRIPLET, priv C.DAT_MEM_PRIV_FLAGS, va C.DAT_VA_TYPE, eph C.uintptr_t,
	cookie C.uint64_t, flags C.DAT_COMPLETION_FLAGS, out *C.DAT_RMR_CONTEXT) C.DAT_RETURN {
	rmr, _, ok := find[*dat.RMR](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleRMR)
	}
	ep, _, ok := find[*dat.EP](uintptr(eph))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleEP)
	case t == nil:
		return badArg(3)
	}
	var lmr *dat.LMR
	if t.segment_length != 0 {
		if lmr, _, ok = find[*dat.LMR](uintptr(lmrh)); !ok {
			return badHandle(dat.InvalidHandleLMR)
		}
	}
	ctx, err := rmr.Bind(lmr, dat.LMRTriplet{VirtualAddress: uint64(t.virtual_address), SegmentLength: uint32(t.segment_length), LMRContext: uint32(t.lmr_context)},
		dat.Priv(priv), dat.VAType(va), ep, uint64(cookie), dat.CompletionFlags(flags))
	if err == nil && out != nil {
		*out = C.DAT_RMR_CONTEXT(ctx)
	}
	return result(err)
}

//export kdRMRFree
func kdRMRFree(h C.uintptr_t) C.DAT_RETURN {
	rmr, o, ok := find[*dat.RMR](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleRMR)
	}
	return o.gone(rmr.Free())
}

//export kdSRQCreate
func kdSRQCreate(h C.uintptr_t, pzh C.uintptr_t, attr *C.DAT_SRQ_ATTR, out *C.DAT_SRQ_HANDLE) C.DAT_RETURN {
	_, o, ok := find[*dat.IA](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleIA)
	}
	pz, pzo, ok := find[*dat.PZ](uintptr(pzh))
	switch {
	case !ok || pzo.ia != o:
		return badHandle(dat.InvalidHandlePZ)
	case attr == nil || attr.low_watermark != C.DAT_SRQ_LW_DEFAULT:
		return badArg(3)
	case out == nil:
		return badArg(4)
	}
	srq, err := pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: int(attr.max_recv_dtos), MaxRecvIOV: int(attr.max_recv_iov)})
	if err != nil {
		return result(err)
	}
	return give(srq, o, (*C.DAT_HANDLE)(out), srq.Free)
}

// onSRQ runs a call on an SRQ.
func onSRQ(h C.uintptr_t, f func(*dat.SRQ) error) C.DAT_RETURN {
	srq, _, ok := find[*dat.SRQ](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleSRQ)
	}
	return result(f(srq))
}

//export kdSRQResize
func kdSRQResize(h C.uintptr_t, n C.DAT_COUNT) C.DAT_RETURN {
	return onSRQ(h, func(s *dat.SRQ) error { return s.Resize(int(n)) })
}

//export kdSRQSetLW
func kdSRQSetLW(h C.uintptr_t, low C.DAT_COUNT) C.DAT_RETURN {
	return onSRQ(h, func(s *dat.SRQ) error { return s.SetLowWatermark(int(low)) })
}

//export kdSRQFree
func kdSRQFree(h C.uintptr_t) C.DAT_RETURN {
	srq, o, ok := find[*dat.SRQ](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleSRQ)
	}
	return o.gone(srq.Free())
}

//export kdSRQQuery
func kdSRQQuery(h C.uintptr_t, mask C.DAT_SRQ_PARAM_MASK, to *C.DAT_SRQ_PARAM) C.DAT_RETURN {
	srq, o, ok := find[*dat.SRQ](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleSRQ)
	case mask&^C.DAT_SRQ_FIELD_ALL != 0:
		return badArg(2)
	case to == nil:
		return badArg(3)
	}
	p, err := srq.Query()
	if err != nil {
		return result(err)
	}
	*to = C.DAT_SRQ_PARAM{
		srq_state: C.DAT_SRQ_STATE(p.State), pz_handle: C.DAT_PZ_HANDLE(handleIf(p.PZ, o)),
		max_recv_dtos: count(p.MaxRecvDTOs), max_recv_iov: count(p.MaxRecvIOV), low_watermark: count(p.LowWatermark),
		available_dto_count: count(p.Available), outstanding_dto_count: count(p.Outstanding),
	}
	o.putIA(&to.ia_handle)
	return C.DAT_SUCCESS
}
