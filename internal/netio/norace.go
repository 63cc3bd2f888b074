//go:build !race

package netio

const raceEnabled = false

func raceReceived([][]byte, int) {}
func raceSending()               {}
func raceSent([][]byte, int)     {}
