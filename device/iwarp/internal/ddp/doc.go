// Package ddp is the wire format of the Direct Data Placement protocol (RFC 5041):
// the headers of tagged and untagged segments, the cutting of messages into
// segments, and the checks that a segment must pass before it may be placed.
//
// The package does no I/O, allocates nothing and keeps nothing that a caller passes
// in. [Tagged] and [Untagged] are views: pointers to header arrays inside the
// caller's buffer, made by a bounds-checked parse, so that reading a field costs one
// load. The bytes that DDP reserves for its user (RsvdULP) are RDMAP's business.
//
// What a segment's STag or queue stands for is known elsewhere; the checks here take
// the numbers (a region's range, a receive buffer's length) and give the error that
// RFC 5041 section 7.2 names for each violation.
package ddp

import "kdapl/device/iwarp/internal/rddp"

// Errors of received segments. Placement stops with the first one, and what follows
// on the stream is dropped (RFC 5041 section 7.1).
var (
	// ErrShort: the RFCs have no code for a ULPDU that ends inside its own header.
	// The Linux siw driver reports it as MPA's, that the length is not that of an
	// FPDU; so does this package.
	ErrShort = &rddp.Error{Code: rddp.MPAMarker, Reason: "ULPDU shorter than its DDP header"}

	// ErrTaggedVersion and ErrUntaggedVersion: DV is not 1 (section 4.1).
	ErrTaggedVersion   = &rddp.Error{Code: rddp.DDPTaggedVersion, Reason: "DDP version is not 1"}
	ErrUntaggedVersion = &rddp.Error{Code: rddp.DDPUntaggedVersion, Reason: "DDP version is not 1"}

	// Tagged segments of non-zero length (section 7.1). ErrSTag is also for a
	// buffer that does not allow placement: DDP has no code of its own for it.
	ErrSTag       = &rddp.Error{Code: rddp.DDPInvalidSTag, Reason: "STag names no buffer that allows placement"}
	ErrSTagStream = &rddp.Error{Code: rddp.DDPSTagStream, Reason: "STag belongs to another protection domain or stream"}
	ErrBounds     = &rddp.Error{Code: rddp.DDPBounds, Reason: "TO or its end outside of the buffer"}
	ErrTOWrap     = &rddp.Error{Code: rddp.DDPTOWrap, Reason: "TO plus length wraps 64 bits"}

	// Untagged segments.
	ErrQN       = &rddp.Error{Code: rddp.DDPInvalidQN, Reason: "queue number not in use or not that of the message"}
	ErrNoBuffer = &rddp.Error{Code: rddp.DDPNoBuffer, Reason: "no buffer is available for the message"}
	ErrMSN      = &rddp.Error{Code: rddp.DDPMSNRange, Reason: "message sequence number is not the next one"}
	ErrMO       = &rddp.Error{Code: rddp.DDPInvalidMO, Reason: "message offset does not continue the message"}
	ErrTooLong  = &rddp.Error{Code: rddp.DDPTooLong, Reason: "message longer than its buffer"}

	// ErrLocal: placement failed for a reason of this side.
	ErrLocal = &rddp.Error{Code: rddp.DDPLocalCatastrophic, Reason: "placement failed locally"}
)
