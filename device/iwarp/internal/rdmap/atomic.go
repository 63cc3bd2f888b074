package rdmap

import (
	"encoding/binary"

	"kdapl/device/iwarp/internal/ddp"
)

// AtomicOp is the AOpCode of an Atomic Request (RFC 7306 figure 5).
type AtomicOp uint8

// The atomic operations. 1 is reserved.
const (
	FetchAdd AtomicOp = 0
	CmpSwap  AtomicOp = 2
)

// Lengths of the atomic headers. RFC 7306 calls the response's 32 bytes long in one
// place, but its figures 6 and A.2 show these 12.
const (
	AtomicRequestLen  = 52
	AtomicResponseLen = 12
	// AtomicLen is the size, and the alignment, of the memory operated on.
	AtomicLen = 8
)

// AtomicRequest is an Atomic Operation Request header (RFC 7306 section 5.2.1).
type AtomicRequest struct {
	Op          AtomicOp
	ID          uint32 // the requester's choice, echoed in the response
	STag        uint32
	TO          uint64 // of a 64-bit aligned address
	Data        uint64 // what to add, or to swap in
	Mask        uint64 // field boundaries of the addition, or the bits to swap
	Compare     uint64 // of CmpSwap
	CompareMask uint64 // of CmpSwap
}

// AppendAtomicRequest appends the whole ULPDU of an Atomic Request. For a FetchAdd
// the two compare fields are sent as the RFC wants them, 0 and all ones.
func AppendAtomicRequest(b []byte, msn uint32, r AtomicRequest) []byte {
	b = ddp.AppendUntagged(b, true, uint8(MakeControl(OpAtomicRequest)), 0, QueueReadRequest, msn, 0)
	if r.Op == FetchAdd {
		r.Compare, r.CompareMask = 0, ^uint64(0)
	}
	var h [AtomicRequestLen]byte
	h[3] = byte(r.Op & 0xF)
	binary.BigEndian.PutUint32(h[4:], r.ID)
	binary.BigEndian.PutUint32(h[8:], r.STag)
	binary.BigEndian.PutUint64(h[12:], r.TO)
	binary.BigEndian.PutUint64(h[20:], r.Data)
	binary.BigEndian.PutUint64(h[28:], r.Mask)
	binary.BigEndian.PutUint64(h[36:], r.Compare)
	binary.BigEndian.PutUint64(h[44:], r.CompareMask)
	return append(b, h[:]...)
}

// ParseAtomicRequest reads the header, which is everything behind the DDP header.
// [ErrLength] for any other length. The operation may be one that is not supported:
// see [AtomicRequest.Apply].
func ParseAtomicRequest(b []byte) (AtomicRequest, error) {
	if len(b) != AtomicRequestLen {
		return AtomicRequest{}, ErrLength
	}
	return AtomicRequest{
		Op:          AtomicOp(b[3] & 0xF),
		ID:          binary.BigEndian.Uint32(b[4:]),
		STag:        binary.BigEndian.Uint32(b[8:]),
		TO:          binary.BigEndian.Uint64(b[12:]),
		Data:        binary.BigEndian.Uint64(b[20:]),
		Mask:        binary.BigEndian.Uint64(b[28:]),
		Compare:     binary.BigEndian.Uint64(b[36:]),
		CompareMask: binary.BigEndian.Uint64(b[44:]),
	}, nil
}

// Check verifies the operation and its place in the region, and gives that place.
// STag and rights are the caller's to check: [ErrSTag], [ErrSTagStream],
// [ErrAccess]. The tagged offset is taken for the address that must be aligned
// (section 8.2); where a region's offsets are not its addresses, Base must be
// congruent to the address modulo 8.
func (r AtomicRequest) Check(region ddp.Region) (offset uint64, err error) {
	if r.Op != FetchAdd && r.Op != CmpSwap {
		return 0, ErrAtomicOp
	}
	if r.TO%AtomicLen != 0 {
		return 0, ErrMisaligned
	}
	return locate(region, r.TO, AtomicLen)
}

// Apply is the value that replaces old, numbers in native order both. The response
// carries old. An operation that Check refuses leaves old.
func (r AtomicRequest) Apply(old uint64) uint64 {
	switch r.Op {
	case FetchAdd:
		return AddFields(old, r.Data, r.Mask)
	case CmpSwap:
		return CompareSwap(old, r.Data, r.Mask, r.Compare, r.CompareMask)
	}
	return old
}

// AddFields adds in separate fields of the 64 bits (RFC 7306 section 5.1.1): each
// set bit of mask is the highest bit of a field, and the carry out of it is dropped.
// The bits above the highest one set are a field, too; mask 0 is a plain addition.
func AddFields(old, add, mask uint64) uint64 {
	// Without their highest bits the fields cannot carry into each other; the
	// highest bit of a field is the sum of its own two bits and the carry that the
	// lower ones have left in its place.
	return ((old &^ mask) + (add &^ mask)) ^ ((old ^ add) & mask)
}

// CompareSwap replaces the bits of mask by those of swap if old and compare agree in
// the bits of cmpMask; otherwise old stays (RFC 7306 section 5.1.2).
func CompareSwap(old, swap, mask, compare, cmpMask uint64) uint64 {
	if (compare^old)&cmpMask != 0 {
		return old
	}
	return old&^mask | swap&mask
}

// AtomicResponse is an Atomic Operation Response header (RFC 7306 section 5.2.2).
type AtomicResponse struct {
	ID       uint32 // of the request
	Original uint64 // what the memory held before
}

// AppendAtomicResponse appends the whole ULPDU of an Atomic Response.
func AppendAtomicResponse(b []byte, msn uint32, r AtomicResponse) []byte {
	b = ddp.AppendUntagged(b, true, uint8(MakeControl(OpAtomicResponse)), 0, QueueAtomicResponse, msn, 0)
	b = binary.BigEndian.AppendUint32(b, r.ID)
	return binary.BigEndian.AppendUint64(b, r.Original)
}

// ParseAtomicResponse reads the header, which is everything behind the DDP header.
// [ErrLength] for any other length.
func ParseAtomicResponse(b []byte) (AtomicResponse, error) {
	if len(b) != AtomicResponseLen {
		return AtomicResponse{}, ErrLength
	}
	return AtomicResponse{binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:])}, nil
}
