package rdmap

import (
	"encoding/binary"

	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/rddp"
)

// Lengths of Terminate messages: the control word alone, and the whole ULPDU with
// everything that can be quoted.
const (
	TerminateLen         = 4
	MaxTerminateULPDULen = ddp.UntaggedLen + TerminateLen + 2 + ddp.UntaggedLen + ReadRequestLen
)

// Terminate is a Terminate header (RFC 5040 section 4.8).
type Terminate struct {
	Code rddp.Code
	// LengthValid (M) says that SegmentLen is meant. The RFC has it as the length
	// that DDP handed up; this package sends the ULPDU_Length, as most do, while
	// Linux siw sends the payload's length alone.
	LengthValid bool
	SegmentLen  uint16
	// DDP (D) is the header of the offending segment, 14 or 18 bytes; nil if none
	// is quoted. A longer slice, such as the ULPDU itself, is cut when it is sent.
	DDP []byte
	// RDMA (R) is the header of the offending Read Request, 28 bytes; nil if none
	// is quoted.
	RDMA []byte
	// LittleEndian reports, in a received message, that layer, type and flags stood
	// in the order of Linux siw on little-endian machines, not the RFC's.
	LittleEndian bool
}

// HdrCt: which parts follow the control word, in the third byte of a Terminate.
const (
	termM = 0x80
	termD = 0x40
	termR = 0x20
	// The same as siw's C bit-fields lay them out on a little-endian machine.
	termLittleM = 0x01
	termLittleD = 0x02
	termLittleR = 0x04
)

// AppendTerminate appends the whole ULPDU of a Terminate, in the RFC's order: the
// one message of its queue (RFC 5040 section 5.4).
func AppendTerminate(b []byte, t Terminate) []byte {
	b = ddp.AppendUntagged(b, true, uint8(MakeControl(OpTerminate)), 0, QueueTerminate, ddp.FirstMSN, 0)
	quoted, request := t.quoted()
	var flags byte
	if t.LengthValid {
		flags |= termM
	}
	if quoted != nil {
		flags |= termD
	}
	if request != nil {
		flags |= termR
	}
	b = binary.BigEndian.AppendUint16(b, uint16(t.Code))
	b = append(b, flags, 0)
	if flags&(termM|termD) != 0 {
		b = binary.BigEndian.AppendUint16(b, t.SegmentLen)
	}
	b = append(b, quoted...)
	return append(b, request...)
}

// quoted cuts the headers to their lengths; what is too short is left out.
func (t Terminate) quoted() (header, request []byte) {
	if len(t.DDP) > 0 {
		if n := ddp.Control(t.DDP[0]).HeaderLen(); len(t.DDP) >= n {
			header = t.DDP[:n]
		}
	}
	if len(t.RDMA) >= ReadRequestLen {
		request = t.RDMA[:ReadRequestLen]
	}
	return header, request
}

// ParseTerminate reads a Terminate header, which is everything behind the DDP
// header; quoted headers are views of b. setUp says that the connection is still
// in its set-up phase (no FPDU of the peer but this one has come).
//
// Both bit orders are understood. The flag bits tell them apart; without flags, the
// order that makes an assigned code of the message is taken. What both orders could
// mean is either an error of MPA's set-up or one of RDMAP: then setUp decides, and
// for all others the RFC's order.
//
// The code is worth having even if the rest is damaged: a quoted header that is cut
// short is left out and [ErrLength] returned along with what could be read. Of
// less than 4 bytes nothing can be read.
func ParseTerminate(b []byte, setUp bool) (Terminate, error) {
	if len(b) < TerminateLen {
		return Terminate{}, ErrLength
	}
	t := Terminate{Code: rddp.Code(binary.BigEndian.Uint16(b))}
	flags := b[2] & (termM | termD | termR)
	if flags == 0 {
		swapped := rddp.MakeCode(rddp.Layer(t.Code.Type()), uint8(t.Code.Layer()), t.Code.Value())
		little := b[2] & (termLittleM | termLittleD | termLittleR)
		if little != 0 || t.Code != swapped && meansSwapped(t.Code, swapped, setUp) {
			t.Code, t.LittleEndian = swapped, true
			flags = little<<7&termM | little<<5&termD | little<<3&termR
		}
	}
	t.LengthValid = flags&termM != 0
	b = b[TerminateLen:]
	if flags&(termM|termD) != 0 {
		if len(b) < 2 {
			t.LengthValid = false
			return t, ErrLength
		}
		t.SegmentLen = binary.BigEndian.Uint16(b)
		b = b[2:]
	}
	if flags&termD != 0 {
		if len(b) == 0 || len(b) < ddp.Control(b[0]).HeaderLen() {
			return t, ErrLength
		}
		n := ddp.Control(b[0]).HeaderLen()
		t.DDP, b = b[:n:n], b[n:]
	}
	if flags&termR != 0 {
		if len(b) < ReadRequestLen {
			return t, ErrLength
		}
		t.RDMA = b[:ReadRequestLen:ReadRequestLen]
	}
	return t, nil
}

// meansSwapped decides between the two readings of a Terminate without flags.
func meansSwapped(code, swapped rddp.Code, setUp bool) bool {
	if code.Registered() != swapped.Registered() {
		return swapped.Registered()
	}
	if setUp {
		return swapped.Layer() == rddp.LayerLLP && code.Layer() == rddp.LayerRDMAP
	}
	return swapped.Layer() == rddp.LayerRDMAP && code.Layer() == rddp.LayerLLP
}

// TerminateFor is the Terminate for an error. ulpdu is the offending ULPDU as far
// as it is known, ulpduLen its ULPDU_Length; nil and 0 for an error that no message
// caused. An err without an [rddp.Error] in it counts as [ErrLocal]. ok is false if
// nothing may be sent for it: see [rddp.Code.Sendable].
//
// What is quoted follows RFC 5040 figure 10 and section 7.1, and RFC 7306 section
// 8.1: the DDP header for errors of RDMAP and DDP that a message caused, and the
// Read Request behind it for protection errors. Errors of the set-up, of framing,
// and local catastrophic ones of RDMAP quote nothing.
func TerminateFor(err error, ulpdu []byte, ulpduLen int) (t Terminate, ok bool) {
	if t.Code, ok = rddp.CodeOf(err); !ok {
		t.Code = rddp.RDMAPLocalCatastrophic
	}
	if !t.Code.Sendable() {
		return t, false
	}
	local := t.Code.Layer() == rddp.LayerRDMAP && t.Code.Type() == rddp.TypeLocalCatastrophic
	if local || t.Code.Layer() == rddp.LayerLLP {
		return t, true
	}
	t.DDP = ulpdu
	header, _ := t.quoted()
	if t.DDP = header; header == nil {
		return t, true
	}
	t.LengthValid, t.SegmentLen = true, uint16(min(max(ulpduLen, 0), 0xFFFF))
	protection := t.Code.Layer() == rddp.LayerRDMAP && t.Code.Type() == rddp.TypeRemoteProtection
	if protection && Control(header[1]).Opcode() == OpReadRequest && len(ulpdu) >= len(header)+ReadRequestLen {
		t.RDMA = ulpdu[len(header):][:ReadRequestLen]
	}
	return t, true
}
