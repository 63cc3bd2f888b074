//go:build unix

package ends

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cpu is the processor time of the process in seconds.
func cpu() float64 {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}

// resident is the process's resident memory in KiB; 0 where the system does not tell.
func resident() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.Atoi(strings.Fields(string(b))[1])
	return float64(pages*os.Getpagesize()) / 1024
}
