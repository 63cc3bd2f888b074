package mpa

import (
	"encoding/binary"
	"errors"
)

// Kind tells the two start-up frames apart.
type Kind uint8

// The start-up frames: the initiator sends the Request, the responder the Reply.
const (
	Request Kind = iota
	Reply
)

// Sizes and keys of start-up frames (RFC 5044 section 7.1.1).
const (
	StartupHeaderLen = 20
	MaxPrivateData   = 512 // the enhanced block included
	MaxStartupLen    = StartupHeaderLen + MaxPrivateData
	MaxULPData       = MaxPrivateData - EnhancedLen // left for the ULP in an enhanced frame

	keyLen   = 16
	keyWords = "MPA ID Req FrameMPA ID Rep Frame"
)

func (k Kind) key() string { return keyWords[int(k&1)*keyLen:][:keyLen] }

// String names the frame.
func (k Kind) String() string {
	if k == Reply {
		return "MPA Reply"
	}
	return "MPA Request"
}

// Flags is the flag byte of a start-up frame.
type Flags uint8

// The flags (RFC 5044 section 7.1.1; S is RFC 6581 section 6).
const (
	FlagMarkers  Flags = 0x80 // M: the sender of the frame wants markers in what it receives
	FlagCRC      Flags = 0x40 // C: the sender of the frame wants CRCs
	FlagReject   Flags = 0x20 // R: in a Reply, the connection is rejected; 0 in a Request
	FlagEnhanced Flags = 0x10 // S: the private data begins with the enhanced block
	// FlagGSO is not of the RFCs, which reserve the bit (sent 0, not checked): the
	// Linux siw driver's experimental offer of FPDUs larger than a TCP segment.
	FlagGSO       Flags = 0x08
	FlagsReserved Flags = 0x0F // FlagGSO is one of them
)

// Header is what a start-up frame says besides the ULP's private data.
type Header struct {
	Flags    Flags
	Rev      uint8
	Enhanced Enhanced // meaningful only if HasEnhanced
}

// HasEnhanced reports whether the frame carries the enhanced block: S is set and
// the revision knows it. Before revision 2 the bit is one of the reserved ones.
func (h Header) HasEnhanced() bool { return h.Flags&FlagEnhanced != 0 && h.Rev >= 2 }

// ErrPrivateData is returned for private data that does not fit into a frame. It
// is an error of this side's ULP and never one of the peer.
var ErrPrivateData = errors.New("mpa: private data too long for a start-up frame")

// AppendStartup appends a Request or Reply frame. The private data is the ULP's
// own, at most 512 bytes, or [MaxULPData] in an enhanced frame; else
// [ErrPrivateData] and b unchanged.
func AppendStartup(b []byte, k Kind, h Header, ulp []byte) ([]byte, error) {
	n := len(ulp)
	if h.HasEnhanced() {
		n += EnhancedLen
	}
	if n > MaxPrivateData {
		return b, ErrPrivateData
	}
	b = append(b, k.key()...)
	b = append(b, byte(h.Flags), h.Rev)
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	if h.HasEnhanced() {
		b = h.Enhanced.Append(b)
	}
	return append(b, ulp...), nil
}

// Startup is a view of one whole start-up frame. [ParseStartup] makes it.
type Startup []byte

// StartupLen tells from the first bytes of a stream how long the start-up frame
// is, so that not one byte more need be read. As long as b is too short to say, it
// returns what is certainly needed: 20 bytes. What is already wrong is refused at
// once: [ErrKey], [ErrSameRole], [ErrPDLength], [ErrEnhancedLength].
func StartupLen(b []byte, k Kind) (int, error) {
	have := min(len(b), keyLen)
	if string(b[:have]) != k.key()[:have] {
		// The keys differ in their tenth byte only, so this is known before the
		// rest has come.
		if string(b[:have]) == (Request + Reply - k).key()[:have] {
			return 0, ErrSameRole
		}
		return 0, ErrKey
	}
	if len(b) < StartupHeaderLen {
		return StartupHeaderLen, nil
	}
	f := Startup(b)
	n := f.PDLength()
	if n > MaxPrivateData {
		return 0, ErrPDLength
	}
	if f.hasEnhanced() && n < EnhancedLen {
		return 0, ErrEnhancedLength
	}
	return StartupHeaderLen + n, nil
}

// ParseStartup returns the start-up frame at the beginning of b, a view of b
// without what follows, and the frame's length. While b holds less than the whole
// frame the view is nil and the length is what [StartupLen] knows so far. Errors
// are those of StartupLen.
func ParseStartup(b []byte, k Kind) (Startup, int, error) {
	n, err := StartupLen(b, k)
	if err != nil || len(b) < n {
		return nil, n, err
	}
	return Startup(b[:n:n]), n, nil
}

// Flags is the frame's flag byte, reserved bits included.
func (f Startup) Flags() Flags { return Flags(f[16]) }

// Rev is the frame's MPA revision.
func (f Startup) Rev() uint8 { return f[17] }

// PDLength is the length of all private data, the enhanced block included.
func (f Startup) PDLength() int { return int(binary.BigEndian.Uint16(f[18:])) }

func (f Startup) hasEnhanced() bool { return f.Flags()&FlagEnhanced != 0 && f.Rev() >= 2 }

// Header returns flags, revision and enhanced block.
func (f Startup) Header() Header {
	h := Header{Flags: f.Flags(), Rev: f.Rev()}
	if h.HasEnhanced() {
		h.Enhanced = ParseEnhanced([EnhancedLen]byte(f[StartupHeaderLen:]))
	}
	return h
}

// ULPData is the private data that belongs to the ULP: without the enhanced block.
func (f Startup) ULPData() []byte {
	if f.hasEnhanced() {
		return f[StartupHeaderLen+EnhancedLen:]
	}
	return f[StartupHeaderLen:]
}
