// Package rddp is the error registry that RDMAP, DDP and MPA share (RFC 6580
// sections 3.1 to 3.3, with the codes that RFC 6581 section 8 adds).
//
// A Terminate message names an error by layer, error type and error code. The
// three layers of the stack detect errors on their own, and RDMAP reports them
// all; so the numbers stand here, below the three of them.
package rddp

import "fmt"

// Layer is the 4-bit Layer of an error (RFC 5040 figure 9).
type Layer uint8

// The layers of an iWARP stack.
const (
	LayerRDMAP Layer = 0
	LayerDDP   Layer = 1
	LayerLLP   Layer = 2 // MPA, where the stack runs over TCP
)

// String names the layer.
func (l Layer) String() string {
	switch l {
	case LayerRDMAP:
		return "RDMAP"
	case LayerDDP:
		return "DDP"
	case LayerLLP:
		return "MPA"
	}
	return fmt.Sprintf("layer %d", uint8(l))
}

// Error types (4 bits); what a value means depends on the layer.
const (
	TypeLocalCatastrophic = 0 // layers 0 and 1
	TypeRemoteProtection  = 1 // layer 0
	TypeRemoteOperation   = 2 // layer 0
	TypeTaggedBuffer      = 1 // layer 1
	TypeUntaggedBuffer    = 2 // layer 1
	TypeLLP               = 3 // layer 1: set aside for the layer below
	TypeMPA               = 0 // layer 2
)

// Code is an error as it stands in the first 16 bits of a Terminate header
// (RFC 5040 figure 8): layer in bits 15-12, error type in bits 11-8, error code
// in bits 7-0.
type Code uint16

// MakeCode joins the three parts. Only the low 4 bits of layer and etype count.
func MakeCode(layer Layer, etype, value uint8) Code {
	return Code(layer&0xF)<<12 | Code(etype&0xF)<<8 | Code(value)
}

// Layer is the layer that found the error.
func (c Code) Layer() Layer { return Layer(c >> 12) }

// Type is the 4-bit error type.
func (c Code) Type() uint8 { return uint8(c>>8) & 0xF }

// Value is the 8-bit error code.
func (c Code) Value() uint8 { return uint8(c) }

// RDMAP errors (RFC 5040 figure 9, RFC 6580 section 3.1).
const (
	// RDMAPLocalCatastrophic has no error code: any value of the low byte means it.
	RDMAPLocalCatastrophic Code = 0x0000

	RDMAPInvalidSTag           Code = 0x0100
	RDMAPBounds                Code = 0x0101
	RDMAPAccess                Code = 0x0102
	RDMAPSTagStream            Code = 0x0103 // STag not associated with the stream
	RDMAPTOWrap                Code = 0x0104
	RDMAPProtectInvalidate     Code = 0x0109 // STag cannot be invalidated
	RDMAPProtectionUnspecified Code = 0x01FF

	RDMAPVersion              Code = 0x0205
	RDMAPOpcode               Code = 0x0206
	RDMAPStreamCatastrophic   Code = 0x0207
	RDMAPGlobalCatastrophic   Code = 0x0208
	RDMAPOperationInvalidate  Code = 0x0209 // STag cannot be invalidated; the RFC lists it under both types
	RDMAPOperationUnspecified Code = 0x02FF
)

// DDP errors (RFC 5041 section 7.2, RFC 6580 section 3.2).
const (
	DDPLocalCatastrophic Code = 0x1000

	DDPInvalidSTag   Code = 0x1100
	DDPBounds        Code = 0x1101
	DDPSTagStream    Code = 0x1102 // STag not associated with the stream
	DDPTOWrap        Code = 0x1103
	DDPTaggedVersion Code = 0x1104

	DDPInvalidQN       Code = 0x1201
	DDPNoBuffer        Code = 0x1202 // MSN: no buffer available
	DDPMSNRange        Code = 0x1203 // MSN: out of the legal range
	DDPInvalidMO       Code = 0x1204
	DDPTooLong         Code = 0x1205
	DDPUntaggedVersion Code = 0x1206
)

// MPA errors (RFC 5044 section 8, RFC 6580 section 3.3; 5 to 7 are RFC 6581 section 8).
const (
	MPAClosed            Code = 0x2001
	MPACRC               Code = 0x2002
	MPAMarker            Code = 0x2003 // marker and ULPDU_Length disagree on an FPDU's start
	MPAStartup           Code = 0x2004 // invalid Request or Reply frame
	MPALocalCatastrophic Code = 0x2005
	MPAInsufficientIRD   Code = 0x2006
	MPANoRTR             Code = 0x2007
)

var names = map[Code]string{
	RDMAPInvalidSTag:           "invalid STag",
	RDMAPBounds:                "base or bounds violation",
	RDMAPAccess:                "access rights violation",
	RDMAPSTagStream:            "STag not associated with the stream",
	RDMAPTOWrap:                "TO wrap",
	RDMAPProtectInvalidate:     "STag cannot be invalidated",
	RDMAPProtectionUnspecified: "unspecified protection error",
	RDMAPVersion:               "invalid RDMAP version",
	RDMAPOpcode:                "unexpected opcode",
	RDMAPStreamCatastrophic:    "catastrophic error of this stream",
	RDMAPGlobalCatastrophic:    "catastrophic error, global",
	RDMAPOperationInvalidate:   "STag cannot be invalidated",
	RDMAPOperationUnspecified:  "unspecified operation error",
	DDPLocalCatastrophic:       "local catastrophic error",
	DDPInvalidSTag:             "invalid STag",
	DDPBounds:                  "base or bounds violation",
	DDPSTagStream:              "STag not associated with the stream",
	DDPTOWrap:                  "TO wrap",
	DDPTaggedVersion:           "invalid DDP version in a tagged segment",
	DDPInvalidQN:               "invalid queue number",
	DDPNoBuffer:                "no buffer for this message sequence number",
	DDPMSNRange:                "message sequence number out of range",
	DDPInvalidMO:               "invalid message offset",
	DDPTooLong:                 "message too long for its buffer",
	DDPUntaggedVersion:         "invalid DDP version in an untagged segment",
	MPAClosed:                  "TCP connection closed, terminated or lost",
	MPACRC:                     "CRC error",
	MPAMarker:                  "marker and ULPDU_Length disagree",
	MPAStartup:                 "invalid Request or Reply frame",
	MPALocalCatastrophic:       "local catastrophic error",
	MPAInsufficientIRD:         "insufficient IRD",
	MPANoRTR:                   "no matching RTR option",
}

// name finds the registered name; the error types without error codes are
// registered as a whole (RFC 6580 sections 3.1 and 3.2, "ALL").
func (c Code) name() (string, bool) {
	switch {
	case c.Layer() == LayerRDMAP && c.Type() == TypeLocalCatastrophic:
		return "local catastrophic error", true
	case c.Layer() == LayerDDP && c.Type() == TypeLLP:
		return "error of the lower layer", true
	}
	s, ok := names[c]
	return s, ok
}

// Registered reports whether RFC 6580 or RFC 6581 assigns the code.
func (c Code) Registered() bool { _, ok := c.name(); return ok }

// Sendable reports whether a Terminate may carry the code to the peer. After a
// lost stream nothing can be sent, and after a malformed start-up frame RFC 5044
// section 8 wants TCP closed at once.
func (c Code) Sendable() bool { return c != MPAClosed && c != MPAStartup }

// String gives layer/type/code as the RFCs write them, and the name.
func (c Code) String() string {
	s, ok := c.name()
	if !ok {
		s = "unassigned"
	}
	return fmt.Sprintf("%d/%d/%02x %s: %s", c>>12, c.Type(), c.Value(), c.Layer(), s)
}
