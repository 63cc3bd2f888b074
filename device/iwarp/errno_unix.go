//go:build !windows

package iwarp

import (
	"errors"
	"syscall"
)

// inUse reports that somebody listens at an address.
func inUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
