package netio

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// ToNet makes a net.Conn of a Conn and owns it from then on. Its Read and Write block, and may be
// called by any number of goroutines; deadlines work as net.Conn says.
func ToNet(c Conn) *NetConn { return &NetConn{c: c} }

// NetConn is what ToNet returns.
type NetConn struct {
	c      Conn
	rd, wr netSide
}

// netSide is one direction of a NetConn.
type netSide struct {
	calls sync.Mutex // one Read, or one Write, at a time, waits included
	vec   [1][]byte

	mu       sync.Mutex
	deadline time.Time
}

func (s *netSide) set(t time.Time) {
	s.mu.Lock()
	s.deadline = t
	s.mu.Unlock()
}

func (s *netSide) expired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.deadline.IsZero() && !time.Now().Before(s.deadline)
}

// Read implements net.Conn.
func (n *NetConn) Read(p []byte) (int, error) {
	n.rd.calls.Lock()
	defer n.rd.calls.Unlock()
	return n.rd.move(p, n.c.TryReadv, n.c.WaitReadable)
}

// Write implements net.Conn. The bytes of one call stay together.
func (n *NetConn) Write(p []byte) (int, error) {
	n.wr.calls.Lock()
	defer n.wr.calls.Unlock()
	done := 0
	for {
		k, err := n.wr.move(p[done:], n.c.TryWritev, n.c.WaitWritable)
		done += k
		if err != nil || done == len(p) {
			return done, err
		}
	}
}

// move calls try once it is possible. The caller holds calls.
func (s *netSide) move(p []byte, try func([][]byte) (int, error), wait func() error) (int, error) {
	s.vec[0] = p
	defer func() { s.vec[0] = nil }()
	for {
		if s.expired() {
			return 0, os.ErrDeadlineExceeded
		}
		n, err := try(s.vec[:])
		if err != ErrWouldBlock {
			return n, err
		}
		if err := wait(); err != nil {
			return 0, err
		}
	}
}

// CloseWrite ends the outgoing stream, as that of net.TCPConn does.
func (n *NetConn) CloseWrite() error { return n.c.CloseWrite() }

// Close implements net.Conn.
func (n *NetConn) Close() error { return n.c.Close() }

// LocalAddr implements net.Conn.
func (n *NetConn) LocalAddr() net.Addr { return netAddr(n.c.LocalAddr()) }

// RemoteAddr implements net.Conn.
func (n *NetConn) RemoteAddr() net.Addr { return netAddr(n.c.RemoteAddr()) }

func netAddr(a netip.AddrPort) net.Addr { return net.TCPAddrFromAddrPort(a) }

// SetDeadline implements net.Conn.
func (n *NetConn) SetDeadline(t time.Time) error {
	if err := n.SetReadDeadline(t); err != nil {
		return err
	}
	return n.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (n *NetConn) SetReadDeadline(t time.Time) error {
	n.rd.set(t)
	return n.c.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (n *NetConn) SetWriteDeadline(t time.Time) error {
	n.wr.set(t)
	return n.c.SetWriteDeadline(t)
}

var _ net.Conn = (*NetConn)(nil)
