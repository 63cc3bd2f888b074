package iwarp

import (
	"errors"
	"syscall"

	"golang.org/x/sys/windows"
)

// inUse reports that somebody listens at an address: Windows' own number, or that of package syscall,
// which the simulated network uses.
func inUse(err error) bool {
	return errors.Is(err, windows.WSAEADDRINUSE) || errors.Is(err, syscall.EADDRINUSE)
}
