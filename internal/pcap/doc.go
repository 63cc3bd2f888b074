// Package pcap is the capture of what a device sends and receives: a [Writer] of
// pcapng files in which each connection is a well-formed TCP conversation, a
// [Reader] of pcapng and classic pcap files, and [Assemble], which puts the TCP
// byte streams of a capture together again.
//
// A user-space device sees a byte stream, not packets. [Conn] gives each piece of
// the stream synthetic Ethernet, IP and TCP headers with right lengths, sequence
// numbers and checksums, so that packet dissectors find every message; one call
// becomes one packet where it fits. Round-trip times, window sizes and packet
// sizes of such a file say nothing about the real network.
//
// The package reads no clock (times come from the caller) and starts no goroutine.
package pcap

import "errors"

// LinkType says what a packet's bytes begin with (the LINKTYPE_ registry).
type LinkType uint16

// LinkEthernet packets begin with an Ethernet header. The [Writer] writes only
// these, and [Assemble] understands only these.
const LinkEthernet LinkType = 1

// Errors of reading. They are wrapped with the place where they were found.
var (
	// ErrFormat: the file is neither pcap nor pcapng, or contradicts itself.
	ErrFormat = errors.New("pcap: malformed capture")
	// ErrLinkType: a packet is not Ethernet.
	ErrLinkType = errors.New("pcap: link type is not Ethernet")
	// ErrMissing: a byte stream has a gap, or its SYN is not in the capture.
	ErrMissing = errors.New("pcap: part of a TCP stream is missing")
)

// Layout of pcapng blocks (draft-ietf-opsawg-pcapng) and of pcap files
// (draft-ietf-opsawg-pcap).
const (
	blockSection    = 0x0A0D0D0A
	blockInterface  = 1
	blockSimple     = 3
	blockEnhanced   = 6
	byteOrderMagic  = 0x1A2B3C4D
	optionEnd       = 0
	optionTSResol   = 9  // of an interface block
	optionTSOffset  = 14 // of an interface block
	optionFlags     = 2  // of an enhanced packet block
	optionUserAppl  = 4  // of a section block
	magicMicro      = 0xA1B2C3D4
	magicNano       = 0xA1B23C4D
	maxBlock        = 16 << 20 // larger blocks are refused: a length is only a claim
	maxInterfaces   = 4096
	enhancedHeader  = 28 // block header and fixed fields before the packet
	interfaceHeader = 16
)
