//go:build !windows

package netio

import (
	"syscall"
)

// classifyErrno sorts the number of an ended connection.
func classifyErrno(e syscall.Errno) error {
	switch e {
	case syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED:
		return ErrReset
	case syscall.ECONNREFUSED:
		return ErrRefused
	case syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN:
		return ErrTimedOut
	}
	return nil
}
