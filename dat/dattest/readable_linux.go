package dattest

import "golang.org/x/sys/unix"

// readable looks whether a descriptor is.
func readable(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, 0)
		if err != unix.EINTR {
			return n == 1 && p[0].Revents&unix.POLLIN != 0
		}
	}
}
