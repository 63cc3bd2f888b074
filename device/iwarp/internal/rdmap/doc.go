// Package rdmap is the wire format of the Remote Direct Memory Access Protocol
// (RFC 5040) with immediate data and atomic operations (RFC 7306): the control
// byte, the headers of every message, the check of received headers, the Terminate
// message, and the arithmetic of atomics.
//
// The package does no I/O, allocates nothing and keeps nothing that a caller passes
// in. Its Append functions write a ULPDU from the DDP control byte on: the DDP
// header of package ddp with RDMAP's control byte and Invalidate STag in the bytes
// that DDP reserves, then the message's own header. Where a message carries payload
// (Write, Read Response, the Sends) the payload is not their business; it follows in
// the same buffer or is sent by reference.
//
// Everything sent has version 1 (RV, section 4.1). Version 0, the RDMA Consortium's,
// is refused on receipt.
package rdmap

import "kdapl/device/iwarp/internal/rddp"

// Errors of received messages (RFC 5040 sections 4.8 and 7.2).
var (
	// ErrVersion: RV is not 1.
	ErrVersion = &rddp.Error{Code: rddp.RDMAPVersion, Reason: "RDMAP version is not 1"}
	// ErrOpcode: the opcode is unassigned, or not one for this kind of segment.
	ErrOpcode = &rddp.Error{Code: rddp.RDMAPOpcode, Reason: "opcode not expected"}
	// ErrUnrequested: a Read Response or Atomic Response that nothing was asked for.
	ErrUnrequested = &rddp.Error{Code: rddp.RDMAPOpcode, Reason: "response without a request"}
	// ErrAtomicOp: an atomic operation code that RFC 7306 does not define.
	ErrAtomicOp = &rddp.Error{Code: rddp.RDMAPOpcode, Reason: "atomic operation code not supported"}
	// ErrLength: a message shorter than its own header, or one of fixed length in
	// more than one segment. No code is assigned for that.
	ErrLength = &rddp.Error{Code: rddp.RDMAPOperationUnspecified, Reason: "message does not have the length of its header"}

	// The source of a Read or the target of an atomic operation.
	ErrSTag       = &rddp.Error{Code: rddp.RDMAPInvalidSTag, Reason: "STag names no buffer"}
	ErrBounds     = &rddp.Error{Code: rddp.RDMAPBounds, Reason: "TO or its end outside of the buffer"}
	ErrAccess     = &rddp.Error{Code: rddp.RDMAPAccess, Reason: "buffer does not allow the access"}
	ErrSTagStream = &rddp.Error{Code: rddp.RDMAPSTagStream, Reason: "STag belongs to another protection domain or stream"}
	ErrTOWrap     = &rddp.Error{Code: rddp.RDMAPTOWrap, Reason: "TO plus size wraps 64 bits"}
	// ErrMisaligned: RFC 7306 section 8.2.
	ErrMisaligned = &rddp.Error{Code: rddp.RDMAPStreamCatastrophic, Reason: "atomic operation at an address that is not a multiple of 8"}

	// ErrInvalidate: a Send with Invalidate names an STag that this stream may not
	// invalidate (section 5.3). The RFC lists the code under two error types; as
	// figure 10 has it, Sends with Invalidate cause protection errors.
	ErrInvalidate = &rddp.Error{Code: rddp.RDMAPProtectInvalidate, Reason: "STag cannot be invalidated by this stream"}

	// ErrLocal: a failure of this side that no message of the peer caused.
	ErrLocal = &rddp.Error{Code: rddp.RDMAPLocalCatastrophic, Reason: "local catastrophic error"}
	// ErrStream: this side cannot go on with the stream because of a message.
	ErrStream = &rddp.Error{Code: rddp.RDMAPStreamCatastrophic, Reason: "catastrophic error of this stream"}
)
