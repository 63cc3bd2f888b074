package mpa

import "encoding/binary"

// EnhancedLen is the size of the enhanced block at the start of the private data.
const EnhancedLen = 4

// Depths in the enhanced block are 14 bits wide (RFC 6581 section 9).
const (
	MaxDepth = 0x3FFE // the largest number of Reads that can be negotiated
	// NotNegotiated in IRD or ORD leaves that depth to the ULP (section 9.1).
	NotNegotiated = 0x3FFF
)

// RTR is a set of the messages that can tell a responder that the initiator is
// ready to receive (RFC 6581 section 9.2).
type RTR uint8

// The RTR messages, all without payload. A Send is a Send: it takes a receive
// buffer of the responder's ULP.
const (
	RTRSend  RTR = 1 << iota // control flag B
	RTRWrite                 // control flag C
	RTRRead                  // control flag D
)

// Enhanced is the enhanced set-up block (RFC 6581 section 9).
type Enhanced struct {
	PeerToPeer bool // control flag A: an RTR message is needed
	// RTR holds the control flags B, C and D as they stand in the block. With
	// PeerToPeer false a sender sets none and a receiver ignores them.
	RTR RTR
	IRD uint16 // inbound RDMA Reads the sender takes at a time, or NotNegotiated
	ORD uint16 // RDMA Reads the sender wants outstanding at a time, or NotNegotiated
}

const (
	bitA = 1 << 31
	bitB = 1 << 30
	bitC = 1 << 15
	bitD = 1 << 14
)

// Word is the block as one 32-bit number. Depths over 14 bits count as [MaxDepth].
func (e Enhanced) Word() uint32 {
	w := uint32(clampDepth(e.IRD))<<16 | uint32(clampDepth(e.ORD))
	if e.PeerToPeer {
		w |= bitA
	}
	if e.RTR&RTRSend != 0 {
		w |= bitB
	}
	if e.RTR&RTRWrite != 0 {
		w |= bitC
	}
	if e.RTR&RTRRead != 0 {
		w |= bitD
	}
	return w
}

func clampDepth(d uint16) uint16 {
	if d > NotNegotiated {
		return MaxDepth
	}
	return d
}

// Append appends the block in wire order.
func (e Enhanced) Append(b []byte) []byte { return binary.BigEndian.AppendUint32(b, e.Word()) }

// ParseEnhanced reads a block; every bit pattern is one.
func ParseEnhanced(b [EnhancedLen]byte) Enhanced {
	w := binary.BigEndian.Uint32(b[:])
	e := Enhanced{PeerToPeer: w&bitA != 0, IRD: uint16(w>>16) & NotNegotiated, ORD: uint16(w) & NotNegotiated}
	if w&bitB != 0 {
		e.RTR |= RTRSend
	}
	if w&bitC != 0 {
		e.RTR |= RTRWrite
	}
	if w&bitD != 0 {
		e.RTR |= RTRRead
	}
	return e
}
