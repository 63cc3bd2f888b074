//go:build race

package netiotest

const raceEnabled = true
