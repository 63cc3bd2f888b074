package perf

import (
	"time"

	"golang.org/x/sys/unix"
)

// processCPU is the processor time of this process.
func processCPU() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
