package netio

import (
	"math"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout sets the time that data may stay unacknowledged; 0 leaves it to the system.
func setUserTimeout(fd uintptr, t time.Duration) error {
	if t <= 0 {
		return nil
	}
	ms := min(max(t.Milliseconds(), 1), math.MaxInt32)
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(ms)))
}

// setReuseAddr lets others listen at the port of a socket that connects.
func setReuseAddr(fd uintptr) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
}

// bindLate leaves the port of a socket that connects from an address to the connecting: the kernel then needs a port
// that is free for this peer, instead of one that nobody has, which it searches for longer the more
// connections there are. Kernels that don't know it go on as before.
func bindLate(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
}

// FromNet makes a Conn of any net.Conn and owns it from then on. A *net.TCPConn is driven by raw
// system calls; anything else (TLS, a pipe) gets a pump, as the package comment says.
func FromNet(c net.Conn) (Conn, error) {
	if tc, ok := c.(*net.TCPConn); ok {
		return newSockConn(tc)
	}
	return newPumpConn(c), nil
}
