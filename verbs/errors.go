package verbs

import "errors"

// The errors of the contract. A device wraps them with what it knows; callers use
// errors.Is. Posts return them as they are, without allocating.
var (
	// ErrQueueFull: the work queue has no free entry.
	ErrQueueFull = errors.New("verbs: work queue full")
	// ErrState: the object's state forbids the call.
	ErrState = errors.New("verbs: not allowed in this state")
	// ErrInvalid: an argument is out of range.
	ErrInvalid = errors.New("verbs: invalid argument")
	// ErrNotSupported: the device lacks the capability.
	ErrNotSupported = errors.New("verbs: not supported by this device")
	// ErrProtection: a key is unknown or belongs to another protection domain.
	ErrProtection = errors.New("verbs: unknown key or other protection domain")
	// ErrAccess: the region lacks the right.
	ErrAccess = errors.New("verbs: access right missing")
	// ErrBounds: a segment lies outside its region.
	ErrBounds = errors.New("verbs: segment outside its region")
	// ErrLength: the segments or the message exceed a limit.
	ErrLength = errors.New("verbs: message too long")
	// ErrBusy: another object still uses this one.
	ErrBusy = errors.New("verbs: in use")
	// ErrLimit: the device has no more of it.
	ErrLimit = errors.New("verbs: device limit reached")
	// ErrClosed: the object was destroyed.
	ErrClosed = errors.New("verbs: destroyed")
	// ErrAddrInUse: somebody listens there.
	ErrAddrInUse = errors.New("verbs: address in use")
	// ErrAddr: the address is not one that this device can use.
	ErrAddr = errors.New("verbs: address not usable")
	// ErrPeerGone: the peer gave up before the request was answered.
	ErrPeerGone = errors.New("verbs: peer is gone")
	// ErrNoDevice: the adapter is not there.
	ErrNoDevice = errors.New("verbs: no such device")
)
