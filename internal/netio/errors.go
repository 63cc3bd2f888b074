package netio

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// Stage says what was being done when an Error came up.
type Stage string

// The stages of a connection's life.
const (
	StageOption  Stage = "set option"
	StageBind    Stage = "bind"
	StageListen  Stage = "listen"
	StageConnect Stage = "connect"
	StageAccept  Stage = "accept"
	StageRead    Stage = "read"
	StageWrite   Stage = "write"
)

// What happened, across operating systems: an Error matches one of these with errors.Is, and its
// cause, usually a syscall.Errno, besides.
var (
	// ErrReset: the peer, or something between, broke the connection off (RST), or it is written to
	// after it ended.
	ErrReset = errors.New("connection reset")
	// ErrRefused: nobody listens there.
	ErrRefused = errors.New("connection refused")
	// ErrTimedOut: the peer has not answered TCP for the user time-out or the keepalive time, or
	// cannot be reached any more.
	ErrTimedOut = errors.New("connection timed out")
)

// Error is what went wrong with a connection or an attempt at one.
type Error struct {
	Stage         Stage
	Local, Remote netip.AddrPort // invalid where there is none, or the system was to choose
	Err           error          // the cause: a syscall.Errno, or that of a context
}

// Error names the stage, both addresses and the cause.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("netio: ")
	b.WriteString(string(e.Stage))
	if e.Local.IsValid() {
		b.WriteString(" from ")
		b.WriteString(e.Local.String())
	}
	if e.Remote.IsValid() {
		b.WriteString(" to ")
		b.WriteString(e.Remote.String())
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes an Error match ErrReset, ErrRefused and ErrTimedOut by its cause.
func (e *Error) Is(target error) bool {
	return target != nil && target == classify(e.Err)
}

// Timeout tells, as net.Error does, whether the cause is a time-out of any kind.
func (e *Error) Timeout() bool {
	var t interface{ Timeout() bool }
	return e.Is(ErrTimedOut) || errors.As(e.Err, &t) && t.Timeout()
}

// Temporary completes net.Error. A connection with an Error does not recover.
func (e *Error) Temporary() bool { return false }

// classify sorts the cause of an end into ErrReset, ErrRefused, ErrTimedOut or nil.
func classify(err error) error {
	if errors.Is(err, io.ErrClosedPipe) { // the RST of net.Pipe
		return ErrReset
	}
	var e syscall.Errno
	if errors.As(err, &e) {
		return classifyErrno(e)
	}
	return nil
}

// cause strips what net wraps around an error, which repeats the addresses.
func cause(err error) error {
	var sys *os.SyscallError
	var op *net.OpError
	switch {
	case errors.As(err, &sys):
		return sys.Err
	case errors.As(err, &op):
		return op.Err
	}
	return err
}

// setupError makes an Error of what net reports for a dial or a listen. The system call that net
// names is the stage, if it names one that has a stage.
func setupError(ctx context.Context, stage Stage, local, remote netip.AddrPort, err error) *Error {
	if ctx.Err() != nil {
		return &Error{stage, local, remote, context.Cause(ctx)}
	}
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		switch sys.Syscall {
		case "bind":
			stage = StageBind
		case "setsockopt":
			stage = StageOption
		}
	}
	return &Error{stage, local, remote, cause(err)}
}
