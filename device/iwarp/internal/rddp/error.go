package rddp

import "errors"

// Error is a violation that a layer found, with the code that a Terminate for it
// carries. The wire packages declare their errors as variables of this type; they
// are compared by identity (errors.Is), returned without allocation, and never
// changed.
type Error struct {
	Code   Code
	Reason string // what is wrong, narrower than the code's name
}

// Error gives the reason and the code.
func (e *Error) Error() string { return e.Reason + " (" + e.Code.String() + ")" }

// CodeOf finds the code of the first *Error in err's tree; false if there is none.
func CodeOf(err error) (Code, bool) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code, true
	}
	return 0, false
}
