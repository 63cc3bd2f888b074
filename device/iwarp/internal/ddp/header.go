package ddp

import "encoding/binary"

// Control is the DDP control byte that begins each segment (RFC 5041 section 4.1).
type Control uint8

// The control byte's parts. Reserved bits are sent as 0 and not checked.
const (
	FlagTagged      Control = 0x80 // T
	FlagLast        Control = 0x40 // L: last segment of its message
	ControlReserved Control = 0x3C
	VersionMask     Control = 0x03 // DV
)

// Version is the value of DV for RFC 5041.
const Version = 1

// MakeControl is the control byte of a segment sent.
func MakeControl(tagged, last bool) Control {
	c := Control(Version)
	if tagged {
		c |= FlagTagged
	}
	if last {
		c |= FlagLast
	}
	return c
}

// Tagged reports the T bit.
func (c Control) Tagged() bool { return c&FlagTagged != 0 }

// Last reports the L bit.
func (c Control) Last() bool { return c&FlagLast != 0 }

// Version is the DV field.
func (c Control) Version() uint8 { return uint8(c & VersionMask) }

// HeaderLen is the length of the header that the control byte begins.
func (c Control) HeaderLen() int {
	if c.Tagged() {
		return TaggedLen
	}
	return UntaggedLen
}

// CheckVersion verifies DV.
func (c Control) CheckVersion() error {
	switch {
	case c.Version() == Version:
		return nil
	case c.Tagged():
		return ErrTaggedVersion
	}
	return ErrUntaggedVersion
}

// Header lengths (RFC 5041 sections 4.2 and 4.3).
const (
	TaggedLen    = 14
	UntaggedLen  = 18
	MaxHeaderLen = UntaggedLen
)

// Tagged is the header of a tagged segment (section 4.2), a view of 14 bytes.
type Tagged [TaggedLen]byte

// Control is the control byte.
func (h *Tagged) Control() Control { return Control(h[0]) }

// ULP is the byte reserved for DDP's user.
func (h *Tagged) ULP() uint8 { return h[1] }

// STag names the data sink's buffer.
func (h *Tagged) STag() uint32 { return binary.BigEndian.Uint32(h[2:6]) }

// TO is the tagged offset of the payload's first byte.
func (h *Tagged) TO() uint64 { return binary.BigEndian.Uint64(h[6:14]) }

// Put fills in the whole header.
func (h *Tagged) Put(last bool, ulp uint8, stag uint32, to uint64) {
	h[0] = byte(MakeControl(true, last))
	h[1] = ulp
	binary.BigEndian.PutUint32(h[2:6], stag)
	binary.BigEndian.PutUint64(h[6:14], to)
}

// AppendTagged appends a tagged header with version 1.
func AppendTagged(b []byte, last bool, ulp uint8, stag uint32, to uint64) []byte {
	var h Tagged
	h.Put(last, ulp, stag, to)
	return append(b, h[:]...)
}

// Untagged is the header of an untagged segment (section 4.3), a view of 18 bytes.
type Untagged [UntaggedLen]byte

// Control is the control byte.
func (h *Untagged) Control() Control { return Control(h[0]) }

// ULP is the first of the 5 bytes reserved for DDP's user.
func (h *Untagged) ULP() uint8 { return h[1] }

// ULP32 is the other 4 of them.
func (h *Untagged) ULP32() uint32 { return binary.BigEndian.Uint32(h[2:6]) }

// QN is the queue number.
func (h *Untagged) QN() uint32 { return binary.BigEndian.Uint32(h[6:10]) }

// MSN is the message sequence number.
func (h *Untagged) MSN() uint32 { return binary.BigEndian.Uint32(h[10:14]) }

// MO is the offset of the payload's first byte in its message.
func (h *Untagged) MO() uint32 { return binary.BigEndian.Uint32(h[14:18]) }

// Put fills in the whole header.
func (h *Untagged) Put(last bool, ulp uint8, ulp32, qn, msn, mo uint32) {
	h[0] = byte(MakeControl(false, last))
	h[1] = ulp
	binary.BigEndian.PutUint32(h[2:6], ulp32)
	binary.BigEndian.PutUint32(h[6:10], qn)
	binary.BigEndian.PutUint32(h[10:14], msn)
	binary.BigEndian.PutUint32(h[14:18], mo)
}

// AppendUntagged appends an untagged header with version 1.
func AppendUntagged(b []byte, last bool, ulp uint8, ulp32, qn, msn, mo uint32) []byte {
	var h Untagged
	h.Put(last, ulp, ulp32, qn, msn, mo)
	return append(b, h[:]...)
}

// ParseControl returns the control byte of a ULPDU of ulpduLen bytes. [ErrShort] if
// the ULPDU cannot hold the header that the byte announces; b itself may hold less
// than the header, but not nothing.
func ParseControl(b []byte, ulpduLen int) (Control, error) {
	if ulpduLen < 1 || len(b) < 1 {
		return 0, ErrShort
	}
	c := Control(b[0])
	if ulpduLen < c.HeaderLen() {
		return c, ErrShort
	}
	return c, nil
}

// ParseTagged returns the header at the beginning of b, which the control byte says
// is tagged, and what follows it. [ErrShort] if b does not hold it.
func ParseTagged(b []byte) (h *Tagged, rest []byte, err error) {
	if len(b) < TaggedLen {
		return nil, nil, ErrShort
	}
	return (*Tagged)(b), b[TaggedLen:], nil
}

// ParseUntagged is ParseTagged for an untagged segment.
func ParseUntagged(b []byte) (h *Untagged, rest []byte, err error) {
	if len(b) < UntaggedLen {
		return nil, nil, ErrShort
	}
	return (*Untagged)(b), b[UntaggedLen:], nil
}
