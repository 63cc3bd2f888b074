//go:build kdapl_explore

package explore

import "sync/atomic"

// On reports whether the points do anything. It is a constant, so that what it guards is not compiled.
const On = true

// running is the explorer whose participants run now.
var running atomic.Pointer[Explorer]

// At is a point: the schedule may change here. Outside of an exploration it is nothing.
func At(p Point) {
	if x := running.Load(); x != nil {
		x.at(p)
	}
}

// Go starts a goroutine, as a participant if the caller is one.
func Go(f func()) {
	if x := running.Load(); x != nil {
		x.Go("", f)
		return
	}
	go f()
}

// Block waits until a condition holds, which another participant brings about. The condition is asked
// for when nobody else runs, and must change nothing. If timed, the wait may also end
// for no reason, at any time: true is returned then. Outside of an exploration it returns false at once.
func Block(ready func() bool, timed bool) (timedOut bool) {
	if x := running.Load(); x != nil {
		return x.block(ready, timed)
	}
	return false
}
