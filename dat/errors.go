package dat

import (
	"fmt"
	"strings"
)

// Error is the error of every call of this package. It carries what DAT_RETURN
// carries, a type and a subtype, and what a reader of a log wants to know.
//
// Ask for it with errors.Is: a [Type], a [Subtype] and another *Error are all targets:
//
//	errors.Is(err, dat.InvalidState)
//	errors.Is(err, dat.InvalidStateEVDInUse)
//	errors.Is(err, dat.ErrQueueEmpty)
//
// An Error is not changed after it was returned; fields that are not known are empty.
type Error struct {
	// Type and Sub are DAT's type and subtype.
	Type Type
	Sub  Subtype
	// Op is the DAT function, without dat_, as in "ep_connect".
	Op string
	// Object is the object that the call was made on, as in "EP 3 of loop0".
	Object string
	// Peer is the other end of the connection, as in "127.0.0.1 port 5000".
	Peer string
	// Err is the cause, for example what the operating system said.
	Err error
	// Hint says what the consumer can do.
	Hint string
}

// The errors that are part of normal work. They are returned as they are, without
// allocation, so that they may also be compared with ==.
var (
	// ErrQueueEmpty: there is nothing to dequeue (DAT_QUEUE_EMPTY).
	ErrQueueEmpty error = &Error{Type: QueueEmpty}
	// ErrQueueFull: the EVD has no room for the software event (DAT_QUEUE_FULL).
	ErrQueueFull error = &Error{Type: QueueFull}
	// ErrTimeout: the wait took longer than allowed (DAT_TIMEOUT_EXPIRED).
	ErrTimeout error = &Error{Type: TimeoutExpired}
)

// Error returns one line, with the parts that are known:
//
//	dat: ep_connect: EP 3 of loop0 → 127.0.0.1 port 5000: INVALID_STATE (EP_CONNECTED): cause; hint
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("dat: ")
	if e.Op != "" {
		b.WriteString(e.Op)
		b.WriteString(": ")
	}
	switch {
	case e.Object != "" && e.Peer != "":
		b.WriteString(e.Object + " → " + e.Peer + ": ")
	case e.Object != "":
		b.WriteString(e.Object + ": ")
	case e.Peer != "":
		b.WriteString("→ " + e.Peer + ": ")
	}
	b.WriteString(e.Type.String())
	if e.Sub != NoSubtype {
		b.WriteString(" (" + e.shortSub() + ")")
	}
	sep := ": "
	if e.Err != nil {
		b.WriteString(sep + e.Err.Error())
		sep = "; "
	}
	if e.Hint != "" {
		b.WriteString(sep + e.Hint)
	}
	return b.String()
}

// shortSub is the subtype's name without the words that its type says already.
func (e *Error) shortSub() string {
	name := e.Sub.String()
	if e.Sub.Type() != e.Type {
		return name
	}
	for _, prefix := range [...]string{
		"INVALID_STATE_", "INVALID_HANDLE_", "INVALID_ADDRESS_", "INVALID_",
		"PRIVILEGES_", "PROTECTION_",
	} {
		if short, ok := strings.CutPrefix(name, prefix); ok {
			return short
		}
	}
	return name
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error's Type, its Subtype, or an *Error with the
// same type and subtype; a target *Error without subtype matches every subtype.
func (e *Error) Is(target error) bool {
	switch t := target.(type) {
	case Type:
		return e.Type == t
	case Subtype:
		return e.Sub == t
	case *Error:
		return t != nil && e.Type == t.Type && (t.Sub == NoSubtype || e.Sub == t.Sub)
	}
	return false
}

// The layout of DAT_RETURN (dat_error.h).
const (
	classError   = 0x8000_0000
	classWarning = 0x4000_0000
	classMask    = classError | classWarning
	typeMask     = 0x3FFF_0000
	subtypeMask  = 0x0000_FFFF
)

// Return is the DAT_RETURN of the error: class ERROR, type and subtype. An Error
// without type returns INTERNAL_ERROR.
func (e *Error) Return() uint32 {
	t := e.Type &^ classMask
	if t == Success {
		t = InternalError
	}
	return classError | uint32(t) | uint32(e.Sub)
}

// ErrFromReturn turns a DAT_RETURN into an error: nil for DAT_SUCCESS, [ErrQueueEmpty],
// [ErrQueueFull] and [ErrTimeout] by identity, and an *[Error] otherwise. A type
// without class bit, as reference code returns it at times, is an error too. Types and
// subtypes that DAT does not have are kept as they are; a warning, and an error of
// type SUCCESS, mean nothing in DAT and give INTERNAL_ERROR.
func ErrFromReturn(ret uint32) error {
	if ret == 0 {
		return nil
	}
	t, s := splitReturn(ret)
	if ret&classWarning != 0 || t == Success {
		return &Error{Type: InternalError, Err: fmt.Errorf("return code %#08x is no DAT error", ret)}
	}
	if s == NoSubtype {
		switch t {
		case QueueEmpty:
			return ErrQueueEmpty
		case QueueFull:
			return ErrQueueFull
		case TimeoutExpired:
			return ErrTimeout
		}
	}
	return &Error{Type: t, Sub: s}
}

// Strerror is dat_strerror: the C names of the type and subtype of a DAT_RETURN, as in
// "DAT_INVALID_STATE" and "DAT_INVALID_STATE_EP_CONNECTED". The second is empty where
// there is no subtype. A code that DAT does not have is INVALID_PARAMETER.
func Strerror(ret uint32) (major, minor string, err error) {
	t, s := splitReturn(ret)
	name, ok := t.name()
	if !ok || int(s) >= len(subtypeNames) {
		return "", "", &Error{Type: InvalidParameter, Sub: InvalidArg1, Op: "strerror",
			Hint: fmt.Sprintf("%#08x is not a DAT return code", ret)}
	}
	if s != NoSubtype {
		minor = "DAT_" + s.String()
	}
	return "DAT_" + name, minor, nil
}

// splitReturn takes a DAT_RETURN apart, whatever its class.
func splitReturn(ret uint32) (Type, Subtype) {
	code := ret &^ classMask
	if Type(code) == IBCollectiveError {
		return IBCollectiveError, NoSubtype
	}
	return Type(code & typeMask), Subtype(code & subtypeMask)
}
