//go:build !linux

package dattest

// readable is for CNOs with a descriptor, which Linux alone has.
func readable(int) bool { return false }
