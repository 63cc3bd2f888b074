// Package mpa is the wire format of MPA, the framing of DDP segments on a TCP
// stream (RFC 5044, with the enhanced set-up of RFC 6581): start-up frames and
// their negotiation, FPDUs with length, pad and CRC32c, markers, and the sizes that
// follow from TCP's segment size.
//
// The package does no I/O, reads no clock, starts no goroutine and keeps nothing
// that a caller passes in. Views and parse functions return slices of the caller's
// buffer. Errors are [rddp.Error] variables, or one of the plain errors that end a
// set-up without any.
//
// Three ways to use FPDUs:
//
//   - many small ones into one buffer: [Begin], append the DDP header and payload,
//     [Encoder.Finish];
//   - a large one by reference: header in scratch memory, [Encoder.FinishVec] gives
//     the list of slices for one vectored write;
//   - receiving: [Parse] for a whole FPDU that lies in a buffer, [Deframer] for any
//     split of the stream, with markers, or with payload that is read straight into
//     place.
//
// Not offered: the RDMA Consortium's revision 0 (its frames parse; the negotiation
// functions refuse it, as RFC 5044 appendix C expects of a non-permissive RNIC), and
// finding FPDUs out of order by their markers, which needs TCP's own segments.
package mpa

import "kdapl/device/iwarp/internal/rddp"

// Errors in received start-up frames. The connection is to be closed without an
// answer (RFC 5044 sections 7.1.2 and 8).
var (
	// ErrKey: the peer does not speak MPA.
	ErrKey = &rddp.Error{Code: rddp.MPAStartup, Reason: "the key is not that of an MPA start-up frame"}
	// ErrSameRole: both sides took the same role (section 7.1.2 rule 8).
	ErrSameRole = &rddp.Error{Code: rddp.MPAStartup, Reason: "the peer took the same MPA role as this side"}
	// ErrPDLength: more than MaxPrivateData bytes (section 7.1.2 rule 9).
	ErrPDLength = &rddp.Error{Code: rddp.MPAStartup, Reason: "PD_Length is over 512"}
	// ErrEnhancedLength: the S bit is set, but the private data is too short for
	// the enhanced block (RFC 6581 section 6).
	ErrEnhancedLength = &rddp.Error{Code: rddp.MPAStartup, Reason: "private data shorter than the enhanced set-up block"}
	// ErrRevision: a revision this side cannot work with (section 7.1.1, Rev).
	ErrRevision = &rddp.Error{Code: rddp.MPAStartup, Reason: "MPA revision not supported"}
	// ErrEnhancedReply: an enhanced Request was answered by a plain Reply, or the
	// reverse (RFC 6581 section 10).
	ErrEnhancedReply = &rddp.Error{Code: rddp.MPAStartup, Reason: "Request and Reply disagree about enhanced set-up"}
)

// Errors in enhanced negotiation, which an initiator answers with a Terminate
// (RFC 6581 sections 8, 9.1 and 9.2) and a responder with a rejecting Reply.
var (
	// ErrInsufficientIRD: the peer wants more inbound Reads than can be served.
	ErrInsufficientIRD = &rddp.Error{Code: rddp.MPAInsufficientIRD, Reason: "not enough inbound RDMA Read resources"}
	// ErrNoRTR: no ready-to-receive message that both sides can use.
	ErrNoRTR = &rddp.Error{Code: rddp.MPANoRTR, Reason: "no RTR message that both sides support"}
)

// Errors in received FPDUs. Nothing more of that direction may be delivered;
// DDP's user closes the connection after its Terminate (RFC 5044 section 8).
var (
	// ErrCRC: the CRC does not match (code 2).
	ErrCRC = &rddp.Error{Code: rddp.MPACRC, Reason: "FPDU with a wrong CRC32c"}
	// ErrMarker: a marker does not point at the FPDU's start (code 3).
	ErrMarker = &rddp.Error{Code: rddp.MPAMarker, Reason: "marker does not point at the start of its FPDU"}
)
