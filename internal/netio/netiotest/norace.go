//go:build !race

package netiotest

const raceEnabled = false
