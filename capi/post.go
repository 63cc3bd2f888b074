//go:build kdapl_capi && cgo && linux

package main

// #include "kdapl.h"
import "C"

import (
	"unsafe"

	"kdapl/dat"
)

// segments is a list of triplets of C, which has the same form as package dat's.
func segments(p *C.DAT_LMR_TRIPLET, n C.DAT_COUNT) ([]dat.LMRTriplet, bool) {
	if n < 0 || n > 0 && p == nil {
		return nil, false
	}
	return unsafe.Slice((*dat.LMRTriplet)(unsafe.Pointer(p)), int(n)), true
}

// The form is the same: these do not compile otherwise.
var (
	_ [C.sizeof_DAT_LMR_TRIPLET]struct{} = [unsafe.Sizeof(dat.LMRTriplet{})]struct{}{}
	_ [C.sizeof_DAT_RMR_TRIPLET]struct{} = [unsafe.Sizeof(dat.RMRTriplet{})]struct{}{}
)

func triplet(p *C.DAT_RMR_TRIPLET) dat.RMRTriplet {
	return dat.RMRTriplet{VirtualAddress: uint64(p.virtual_address), SegmentLength: uint32(p.segment_length), RMRContext: uint32(p.rmr_context)}
}

//export kdEPPostSend
func kdEPPostSend(h C.uintptr_t, n C.DAT_COUNT, iov *C.DAT_LMR_TRIPLET, cookie C.uint64_t, flags C.DAT_COMPLETION_FLAGS) C.DAT_RETURN {
	ep, _, ok := find[*dat.EP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	local, ok := segments(iov, n)
	if !ok {
		return badArg(3)
	}
	return result(ep.PostSend(uint64(cookie), dat.CompletionFlags(flags), local...))
}

//export kdEPPostSendWithInvalidate
func kdEPPostSendWithInvalidate(h C.uintptr_t, n C.DAT_COUNT, iov *C.DAT_LMR_TRIPLET, cookie C.uint64_t, flags C.DAT_COMPLETION_FLAGS, invalidate C.DAT_BOOLEAN, context C.DAT_RMR_CONTEXT) C.DAT_RETURN {
	ep, _, ok := find[*dat.EP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	local, ok := segments(iov, n)
	if !ok {
		return badArg(3)
	}
	return result(ep.PostSendWithInvalidate(uint64(cookie), dat.CompletionFlags(flags), invalidate != C.DAT_FALSE, uint32(context), local...))
}

//export kdEPPostRecv
func kdEPPostRecv(h C.uintptr_t, n C.DAT_COUNT, iov *C.DAT_LMR_TRIPLET, cookie C.uint64_t, flags C.DAT_COMPLETION_FLAGS) C.DAT_RETURN {
	ep, _, ok := find[*dat.EP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	local, ok := segments(iov, n)
	if !ok {
		return badArg(3)
	}
	return result(ep.PostRecv(uint64(cookie), dat.CompletionFlags(flags), local...))
}

//export kdEPPostRDMARead
func kdEPPostRDMARead(h C.uintptr_t, n C.DAT_COUNT, iov *C.DAT_LMR_TRIPLET, cookie C.uint64_t, remote *C.DAT_RMR_TRIPLET, flags C.DAT_COMPLETION_FLAGS) C.DAT_RETURN {
	ep, _, ok := find[*dat.EP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	local, ok := segments(iov, n)
	switch {
	case !ok:
		return badArg(3)
	case remote == nil:
		return badArg(5)
	}
	return result(ep.PostRDMARead(uint64(cookie), dat.CompletionFlags(flags), triplet(remote), local...))
}

//export kdEPPostRDMAWrite
func kdEPPostRDMAWrite(h C.uintptr_t, n C.DAT_COUNT, iov *C.DAT_LMR_TRIPLET, cookie C.uint64_t, remote *C.DAT_RMR_TRIPLET, flags C.DAT_COMPLETION_FLAGS) C.DAT_RETURN {
	ep, _, ok := find[*dat.EP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	local, ok := segments(iov, n)
	switch {
	case !ok:
		return badArg(3)
	case remote == nil:
		return badArg(5)
	}
	return result(ep.PostRDMAWrite(uint64(cookie), dat.CompletionFlags(flags), triplet(remote), local...))
}

//export kdEPPostRDMAReadToRMR
func kdEPPostRDMAReadToRMR(h C.uintptr_t, local *C.DAT_RMR_TRIPLET, cookie C.uint64_t, remote *C.DAT_RMR_TRIPLET, flags C.DAT_COMPLETION_FLAGS) C.DAT_RETURN {
	ep, _, ok := find[*dat.EP](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleEP)
	case local == nil:
		return badArg(2)
	case remote == nil:
		return badArg(4)
	}
	return result(ep.PostRDMAReadToRMR(uint64(cookie), dat.CompletionFlags(flags), triplet(local), triplet(remote)))
}

//export kdSRQPostRecv
func kdSRQPostRecv(h C.uintptr_t, n C.DAT_COUNT, iov *C.DAT_LMR_TRIPLET, cookie C.uint64_t) C.DAT_RETURN {
	srq, _, ok := find[*dat.SRQ](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleSRQ)
	}
	local, ok := segments(iov, n)
	if !ok {
		return badArg(3)
	}
	return result(srq.PostRecv(uint64(cookie), local...))
}

//export kdExtensionOp
func kdExtensionOp(h C.uintptr_t, op C.DAT_EXTENDED_OP, x *C.kd_extension) C.DAT_RETURN {
	ep, _, ok := find[*dat.EP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	var local []dat.LMRTriplet
	if x.local != nil || op == C.DAT_IB_RDMA_WRITE_IMMED_OP || op == C.DAT_IB_UD_SEND_OP {
		if local, ok = segments(x.local, x.segments); !ok {
			return badArg(3)
		}
	}
	args := dat.IBArgs{
		Cookie: uint64(x.cookie), Flags: dat.CompletionFlags(x.flags), Local: local,
		Immediate: uint32(x.immediate), Operand: uint64(x.operand), Compare: uint64(x.compare),
	}
	if x.remote != nil {
		args.Remote = triplet(x.remote)
		// Programs name all of the peer's region here; an atomic works on its first eight bytes.
		if op == C.DAT_IB_FETCH_AND_ADD_OP || op == C.DAT_IB_CMP_AND_SWAP_OP {
			args.Remote.SegmentLength = min(args.Remote.SegmentLength, 8)
		}
	}
	var ah *object
	if x.ah != 0 {
		if args.To, ah, ok = find[*dat.AddressHandle](uintptr(x.ah)); !ok {
			return badHandle(dat.InvalidHandle4)
		}
	}
	err := dat.ExtensionOp(ep, dat.IBOp(op), args)
	if op == C.DAT_IB_UD_AH_FREE_OP && ah != nil {
		return ah.gone(err)
	}
	return result(err)
}
