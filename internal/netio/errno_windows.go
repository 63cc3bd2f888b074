package netio

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// classifyErrno sorts the number of an ended connection: Windows' own numbers, and those of
// package syscall, which the simulated network uses.
func classifyErrno(e syscall.Errno) error {
	switch e {
	case windows.WSAECONNRESET, windows.WSAECONNABORTED, windows.WSAESHUTDOWN, windows.WSAENETRESET,
		windows.ERROR_NETNAME_DELETED, windows.ERROR_CONNECTION_ABORTED,
		syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED:
		return ErrReset
	case windows.WSAECONNREFUSED, windows.ERROR_CONNECTION_REFUSED, syscall.ECONNREFUSED:
		return ErrRefused
	case windows.WSAETIMEDOUT, windows.WSAEHOSTUNREACH, windows.WSAENETUNREACH, windows.WSAEHOSTDOWN, windows.WSAENETDOWN,
		windows.ERROR_SEM_TIMEOUT, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH:
		return ErrTimedOut
	}
	return nil
}
