package netio

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	// DefaultKeepAlive is the time after which an idle connection to a peer that vanished is broken.
	DefaultKeepAlive = 30 * time.Second
	// DefaultUserTimeout is the time that outstanding data may stay without acknowledgement.
	DefaultUserTimeout = 30 * time.Second
)

// TCP is the host's TCP as a Network. The zero value is ready to use, and finds a peer that vanished
// within half a minute. Connections have TCP_NODELAY set and are plain TCP, never multipath.
type TCP struct {
	// KeepAlive is the silence after which an idle connection whose peer does not answer probes
	// is broken; the first probe goes out at half of it. The systems count whole seconds. 0 means
	// DefaultKeepAlive, less than 0 no probes.
	KeepAlive time.Duration

	// UserTimeout is how long sent data may stay unacknowledged, or unsent because the peer takes
	// nothing (a zero window), before the connection is broken (RFC 5482; Linux only); also how long
	// a connection attempt goes on. 0 means DefaultUserTimeout, less than 0 the system's own
	// limit, which is many minutes. So a peer that stalls this long loses the connection.
	UserTimeout time.Duration

	// SendBuffer and RecvBuffer fix the socket buffers, in bytes; 0 leaves them to the system.
	SendBuffer, RecvBuffer int
}

var _ Network = (*TCP)(nil)

// keepAliveProbes is how many probes must go unanswered.
const keepAliveProbes = 5

// keepAlive divides KeepAlive into the time to the first probe and those between the probes.
func (n *TCP) keepAlive() net.KeepAliveConfig {
	total := n.KeepAlive
	if total < 0 {
		return net.KeepAliveConfig{}
	}
	if total == 0 {
		total = DefaultKeepAlive
	}
	return net.KeepAliveConfig{
		Enable:   true,
		Idle:     max(total/2, time.Second),
		Interval: max(total/2/keepAliveProbes, time.Second),
		Count:    keepAliveProbes,
	}
}

func (n *TCP) userTimeout() time.Duration {
	switch {
	case n.UserTimeout < 0:
		return 0
	case n.UserTimeout == 0:
		return DefaultUserTimeout
	}
	return n.UserTimeout
}

// control sets what has to be set before a socket connects or listens; the connections that a
// listener accepts inherit it.
func (n *TCP) control(_, _ string, raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = setUserTimeout(fd, n.userTimeout()) }); cerr != nil {
		return cerr
	}
	return err
}

// dialControl is control for a socket that connects. Its port, which the system picks, may be listened at while the connection is
// there, and while TCP remembers it: otherwise a service point could not be made at a qualifier that happens to be the
// port of a connection.
func (n *TCP) dialControl(network, address string, raw syscall.RawConn) error {
	if err := n.control(network, address, raw); err != nil {
		return err
	}
	var err error
	cerr := raw.Control(func(fd uintptr) {
		bindLate(fd)
		err = setReuseAddr(fd)
	})
	if cerr != nil {
		return cerr
	}
	return err
}

// family is net's name for the addresses that a listens or connects to.
func family(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "tcp"
	case a.Unmap().Is4():
		return "tcp4"
	}
	return "tcp6"
}

// Dial implements Network.
func (n *TCP) Dial(ctx context.Context, local, remote netip.AddrPort) (Conn, error) {
	local, remote = unmap(local), unmap(remote)
	if direct(ctx, local, remote) {
		return n.dial(ctx, local, remote)
	}
	d := net.Dialer{KeepAlive: -1, KeepAliveConfig: n.keepAlive(), Control: n.dialControl}
	d.SetMultipathTCP(false)
	if local.Addr().IsValid() || local.Port() != 0 {
		d.LocalAddr = net.TCPAddrFromAddrPort(local)
	}
	nc, err := d.DialContext(ctx, family(remote.Addr()), remote.String())
	if err != nil {
		return nil, setupError(ctx, StageConnect, local, remote, err)
	}
	return n.adopt(nc.(*net.TCPConn), StageConnect)
}

// adopt makes a Conn of a socket that net has connected.
func (n *TCP) adopt(tc *net.TCPConn, stage Stage) (Conn, error) {
	var errs [2]error
	if n.SendBuffer > 0 {
		errs[0] = tc.SetWriteBuffer(n.SendBuffer)
	}
	if n.RecvBuffer > 0 {
		errs[1] = tc.SetReadBuffer(n.RecvBuffer)
	}
	c, err := FromNet(tc)
	if err = errors.Join(errs[0], errs[1], err); err != nil {
		local, remote := addrPort(tc.LocalAddr()), addrPort(tc.RemoteAddr())
		tc.Close()
		return nil, setupError(context.Background(), stage, local, remote, err)
	}
	return c, nil
}

// Listen implements Network.
func (n *TCP) Listen(ctx context.Context, local netip.AddrPort) (Listener, error) {
	local = unmap(local)
	lc := net.ListenConfig{KeepAlive: -1, KeepAliveConfig: n.keepAlive(), Control: n.listenControl}
	lc.SetMultipathTCP(false)
	address := local.String()
	if !local.Addr().IsValid() {
		address = ":" + strconv.Itoa(int(local.Port()))
	}
	ln, err := lc.Listen(ctx, family(local.Addr()), address)
	if err != nil {
		return nil, setupError(ctx, StageListen, local, netip.AddrPort{}, err)
	}
	tl := &tcpListener{n, ln.(*net.TCPListener), addrPort(ln.Addr())}
	l, err := n.listener(tl)
	if err != nil {
		return nil, setupError(ctx, StageListen, local, netip.AddrPort{}, err)
	}
	return l, nil
}

type tcpListener struct {
	n     *TCP
	ln    *net.TCPListener
	local netip.AddrPort
}

func (l *tcpListener) Accept() (Conn, error) {
	tc, err := l.ln.AcceptTCP()
	if err != nil {
		if errors.Is(err, net.ErrClosed) {
			return nil, net.ErrClosed
		}
		return nil, setupError(context.Background(), StageAccept, l.local, netip.AddrPort{}, err)
	}
	return l.n.adopt(tc, StageAccept)
}

func (l *tcpListener) Addr() netip.AddrPort { return l.local }
func (l *tcpListener) Close() error         { return closeOnce(l.ln.Close()) }

// addrPort is the address of a TCP end point, with IPv4 as IPv4; invalid for others.
func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		return unmap(t.AddrPort())
	}
	return netip.AddrPort{}
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// closedErr reports a call on a closed connection as net.ErrClosed itself, as Conn promises.
func closedErr(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
		return net.ErrClosed
	}
	return err
}

// closeOnce makes a second Close harmless.
func closeOnce(err error) error {
	if closedErr(err) == net.ErrClosed {
		return nil
	}
	return err
}
