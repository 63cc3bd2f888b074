package dat

import (
	"fmt"

	"kdapl/verbs"
)

// The operations of this file are the InfiniBand extension of DAT (dat_ib_extensions.h), which iWARP with
// RFC 7306 has too: the IA's attribute Extension says whether there is one. Each is
// a method of its own; ExtensionOp is the one call for all of them that C has.

// atomicSize is the size of the memory that an atomic works on.
const atomicSize = 8

// PostSendWithInvalidate posts a send that invalidates an RMR context at the peer before its receive
// completes there, with OpReceiveWithInvalidate (dat_ep_post_send_with_invalidate). The context must
// be that of an RMR made for the EP, or of a fast-registered LMR; otherwise the connection
// ends. invalidate false makes it a plain send. For the rest see PostSend.
//
// MODEL_NOT_SUPPORTED: the adapter cannot.
func (ep *EP) PostSendWithInvalidate(cookie uint64, flags CompletionFlags, invalidate bool, rmrContext uint32, local ...LMRTriplet) error {
	r := Request{Op: OpSend, Cookie: cookie, Flags: flags, Invalidate: invalidate, RMRContext: rmrContext}
	return ep.postOne("ep_post_send_with_invalidate", &r, local)
}

// PostRDMAWriteImmediate posts an RDMA write that uses up one receive of the peer, which completes with
// OpReceiveImmediate and the immediate data when the write is placed
// (dat_ib_post_rdma_write_immed). The event of the write itself is IBDTOEvent. For the rest
// see PostRDMAWrite.
//
// MODEL_NOT_SUPPORTED: the adapter cannot.
func (ep *EP) PostRDMAWriteImmediate(cookie uint64, flags CompletionFlags, immediate uint32, remote RMRTriplet, local ...LMRTriplet) error {
	r := Request{Op: OpRDMAWriteImmediate, Cookie: cookie, Flags: flags, Immediate: immediate, Remote: remote}
	return ep.postOne("ib_post_rdma_write_immed", &r, local)
}

// PostFetchAdd posts an atomic addition to an aligned 64-bit word of the peer's memory; the value before it
// arrives in local (dat_ib_post_fetch_and_add). Both are in the byte order of their hosts. The
// peer's region needs PrivRemoteAtomic, local eight bytes with local write. It
// counts as an RDMA read against MaxRDMAReadOut. The event is IBDTOEvent.
//
// INVALID_PARAMETER: local or remote not of eight bytes (ARG2, ARG4), or remote not aligned.
// MODEL_NOT_SUPPORTED: the adapter cannot. For the rest see PostSend.
func (ep *EP) PostFetchAdd(cookie uint64, flags CompletionFlags, add uint64, remote RMRTriplet, local LMRTriplet) error {
	r := Request{Op: OpFetchAdd, Cookie: cookie, Flags: flags, Operand: add, Remote: remote}
	return ep.postOne("ib_post_fetch_and_add", &r, []LMRTriplet{local})
}

// PostCompareSwap posts an atomic store of swap to an aligned 64-bit word of the peer's memory that happens
// if the word equals compare (dat_ib_post_cmp_and_swap). For the rest see PostFetchAdd.
func (ep *EP) PostCompareSwap(cookie uint64, flags CompletionFlags, compare, swap uint64, remote RMRTriplet, local LMRTriplet) error {
	r := Request{Op: OpCompareSwap, Cookie: cookie, Flags: flags, Operand: swap, Compare: compare, Remote: remote}
	return ep.postOne("ib_post_cmp_and_swap", &r, []LMRTriplet{local})
}

// checkAtomic checks what is special about atomics.
func (ep *EP) checkAtomic(op string, r *Request, local []LMRTriplet) error {
	switch {
	case !ep.ia.device.Attr().Can(verbs.CapAtomics):
		return ep.fail(op, ModelNotSupported, NoSubtype, nil, "the adapter has no atomics")
	case len(local) != 1 || local[0].SegmentLength != atomicSize:
		return ep.fail(op, InvalidParameter, InvalidArg2, nil, "an atomic needs one local segment of 8 bytes")
	case r.Remote.SegmentLength != atomicSize || r.Remote.VirtualAddress%atomicSize != 0:
		return ep.fail(op, InvalidParameter, InvalidArg4, nil, "an atomic needs 8 aligned bytes of the peer's")
	}
	return nil
}

// IBOp is the number of an operation of the InfiniBand extension, for ExtensionOp (DAT_IB_OP).
type IBOp uint32

// The operations that this provider has.
const (
	IBFetchAndAdd    IBOp = 0
	IBCompareAndSwap IBOp = 1
	IBRDMAWriteImmed IBOp = 2
	IBUDSend         IBOp = 3
	IBUDAHFree       IBOp = 29
)

// String returns DAT's name without DAT_IB_ and _OP.
func (o IBOp) String() string {
	return enumName("IBOp", []string{0: "FETCH_AND_ADD", 1: "CMP_AND_SWAP", 2: "RDMA_WRITE_IMMED", 3: "UD_SEND", 29: "UD_AH_FREE"}, o)
}

// IBArgs are the arguments of ExtensionOp. Fields that the operation does not use are ignored.
type IBArgs struct {
	Cookie uint64
	Flags  CompletionFlags
	// Local are the own segments, Remote the peer's memory.
	Local  []LMRTriplet
	Remote RMRTriplet
	// Immediate is that of IBRDMAWriteImmed; Operand is what IBFetchAndAdd adds or
	// IBCompareAndSwap stores, Compare what the latter compares with.
	Immediate        uint32
	Operand, Compare uint64
	// To is where IBUDSend goes, and what IBUDAHFree frees.
	To *AddressHandle
}

// ExtensionOp runs an operation of the extension (dat_extension_op): the one call behind PostFetchAdd,
// PostCompareSwap, PostRDMAWriteImmediate, PostSendUD and AddressHandle.Free, whose documents hold.
//
// INVALID_HANDLE (EP): h is no EP. NOT_IMPLEMENTED: another operation.
func ExtensionOp(h Object, op IBOp, args IBArgs) error {
	const name = "extension_op"
	ep, ok := h.(*EP)
	if !ok || ep.gone() {
		return &Error{Type: InvalidHandle, Sub: InvalidHandleEP, Op: name, Hint: "the extension's operations work on EPs"}
	}
	if op == IBUDAHFree {
		return args.To.Free()
	}
	r := Request{
		Cookie: args.Cookie, Flags: args.Flags, Remote: args.Remote, Immediate: args.Immediate,
		Operand: args.Operand, Compare: args.Compare, To: args.To,
	}
	switch op {
	case IBFetchAndAdd:
		r.Op = OpFetchAdd
	case IBCompareAndSwap:
		r.Op = OpCompareSwap
	case IBRDMAWriteImmed:
		r.Op = OpRDMAWriteImmediate
	case IBUDSend:
		r.Op = OpSendUD
	default:
		return ep.fail(name, NotImplemented, NoSubtype, nil, fmt.Sprintf("operation %v", op))
	}
	return ep.postOne(name, &r, args.Local)
}
