package ddp

// Region is the range of tagged offsets that an STag stands for: Len bytes from
// Base on.
type Region struct {
	Base, Len uint64
}

// Fault is what is wrong with a range of tagged offsets.
type Fault uint8

// The faults.
const (
	FaultNone   Fault = iota
	FaultWrap         // the 64-bit sum of offset and length wraps
	FaultBounds       // not inside the region
)

// Locate finds n bytes at tagged offset to: their place in the region, counted from
// its start. n is not 0: nothing is checked for an empty access.
func (r Region) Locate(to, n uint64) (offset uint64, f Fault) {
	if to+n < to {
		return 0, FaultWrap
	}
	offset = to - r.Base
	if to < r.Base || offset > r.Len || n > r.Len-offset {
		return 0, FaultBounds
	}
	return offset, FaultNone
}

// CheckTagged verifies rules 3 to 5 of RFC 5041 section 7.1 for a tagged segment
// with n bytes of payload at tagged offset to, and gives its place in the region.
// STag and rights (rules 1 and 2) are the caller's to check: [ErrSTag],
// [ErrSTagStream].
//
// An empty segment is always right; not even its STag may be looked at
// (section 5.2), so callers look nothing up for it.
func CheckTagged(r Region, to uint64, n int) (offset uint64, err error) {
	if n <= 0 {
		return 0, nil
	}
	offset, f := r.Locate(to, uint64(n))
	switch f {
	case FaultWrap:
		return 0, ErrTOWrap
	case FaultBounds:
		return 0, ErrBounds
	}
	return offset, nil
}
