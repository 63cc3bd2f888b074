//go:build !unix && !windows

package perf

import "time"

// processCPU is not known on this system.
func processCPU() time.Duration { return 0 }
