//go:build race

package netio

import (
	"runtime"
	"unsafe"
)

// The race detector sees neither what the kernel reads and writes in a raw system call, nor that a
// byte that is received was sent before. These tell it, in the way package syscall does for its own
// calls: one synchronisation object stands for the network.

const raceEnabled = true

var raceNetwork int64

func raceReceived(bufs [][]byte, n int) {
	raceEach(bufs, n, runtime.RaceWriteRange)
	runtime.RaceAcquire(unsafe.Pointer(&raceNetwork))
}

func raceSending() {
	runtime.RaceReleaseMerge(unsafe.Pointer(&raceNetwork))
}

func raceSent(bufs [][]byte, n int) { raceEach(bufs, n, runtime.RaceReadRange) }

// raceEach tells of the first n bytes of bufs.
func raceEach(bufs [][]byte, n int, tell func(unsafe.Pointer, int)) {
	for _, b := range bufs {
		if len(b) > n {
			b = b[:n]
		}
		if len(b) > 0 {
			tell(unsafe.Pointer(unsafe.SliceData(b)), len(b))
		}
		n -= len(b)
	}
}
