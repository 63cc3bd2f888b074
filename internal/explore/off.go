//go:build !kdapl_explore

package explore

// On reports whether the points do anything. It is a constant, so that what it guards is not compiled.
const On = false

// At is a point: see the build with the tag.
func At(Point) {}

// Go starts a goroutine: see the build with the tag.
func Go(f func()) { go f() }

// Block waits for a condition: see the build with the tag.
func Block(ready func() bool, timed bool) (timedOut bool) { return false }
