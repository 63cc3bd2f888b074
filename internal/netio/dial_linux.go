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

	"golang.org/x/sys/unix"
)

// dialAttempts bounds how often a connection to itself is tried again; see dial.
const dialAttempts = 3

// dial connects without package net, which for each connection starts a goroutine that waits for the context, sleeps in the
// poller, though over loopback a connection is there when connect returns, and asks the resolver.
//
// TCP connects a socket with itself if the port that the system picked is the one that it connects to, and nobody
// listens there (simultaneous open). That is nobody's wish, and tried again.
func (n *TCP) dial(ctx context.Context, local, remote netip.AddrPort) (Conn, error) {
	for attempt := 1; ; attempt++ {
		f, stage, err := n.connect(ctx, local, remote)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, &Error{stage, local, remote, err}
		}
		c, err := ofFile(f, netip.AddrPort{}, remote)
		switch {
		case err != nil:
			f.Close()
			return nil, &Error{StageConnect, local, remote, err}
		case c.local != c.remote || local.Port() != 0:
			return c, nil
		}
		c.Close()
		if attempt == dialAttempts {
			return nil, &Error{StageConnect, local, remote, unix.ECONNREFUSED}
		}
	}
}

// connect makes a connected socket of the poller, or says what failed.
func (n *TCP) connect(ctx context.Context, local, remote netip.AddrPort) (f *os.File, stage Stage, err error) {
	domain := unix.AF_INET
	if remote.Addr().Is6() {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return nil, StageConnect, err
	}
	defer func() {
		switch {
		case err == nil:
		case f != nil:
			f.Close()
			f = nil
		default:
			unix.Close(fd)
		}
	}()
	if err = n.prepare(fd); err != nil {
		return nil, StageOption, err
	}
	if local.IsValid() {
		if err = unix.Bind(fd, sockaddr(local)); err != nil {
			return nil, StageBind, err
		}
	}
	err = unix.Connect(fd, sockaddr(remote))
	if err != nil && err != unix.EINPROGRESS && err != unix.EINTR {
		return nil, StageConnect, err
	}
	if f = os.NewFile(uintptr(fd), "tcp"); f == nil {
		return nil, StageConnect, unix.EBADF
	}
	if err != nil {
		if err = connected(ctx, f); err != nil {
			return f, StageConnect, err
		}
	}
	return f, StageConnect, nil
}

// prepare sets the options of a socket that connects.
func (n *TCP) prepare(fd int) error {
	bindLate(uintptr(fd))
	if err := setReuseAddr(uintptr(fd)); err != nil {
		return err
	}
	return n.options(fd)
}

// options sets what every connection has, on a socket that connects, or on one that listens: those that it accepts inherit it.
func (n *TCP) options(fd int) error {
	set := func(level, name, value int) error {
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, name, value))
	}
	err := setUserTimeout(uintptr(fd), n.userTimeout())
	if err == nil {
		err = set(unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if k := n.keepAlive(); k.Enable {
		for _, o := range [...][3]int{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(k.Idle)},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(k.Interval)},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, k.Count},
		} {
			if err == nil {
				err = set(o[0], o[1], o[2])
			}
		}
	}
	if err == nil && n.SendBuffer > 0 {
		err = set(unix.SOL_SOCKET, unix.SO_SNDBUF, n.SendBuffer)
	}
	if err == nil && n.RecvBuffer > 0 {
		err = set(unix.SOL_SOCKET, unix.SO_RCVBUF, n.RecvBuffer)
	}
	return err
}

// seconds rounds up, as the system counts whole ones.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// connected waits for the end of a connect that is in progress.
func connected(ctx context.Context, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// It is looked before the context is watched: over loopback there is a connection already, which has a peer.
	over := false
	if err := raw.Control(func(fd uintptr) { _, e := syscall.Getpeername(int(fd)); over = e == nil }); err != nil {
		return err
	}
	if over {
		return nil
	}
	w := readiness{events: unix.POLLOUT}
	w.check = w.now
	stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
	err = raw.Write(w.check)
	if !stop() {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	var failed int
	cerr := raw.Control(func(fd uintptr) { failed, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) })
	switch {
	case cerr != nil:
		return cerr
	case err != nil:
		return err
	case failed != 0:
		return syscall.Errno(failed)
	}
	return nil
}

// direct reports that dial knows what to do with the addresses; package net has the rest: zones, and errors for what cannot
// be.
func direct(ctx context.Context, local, remote netip.AddrPort) bool {
	l, r := local.Addr(), remote.Addr()
	fits := local == netip.AddrPort{} || l.IsValid() && l.Is4() == r.Is4()
	return fits && r.IsValid() && l.Zone() == "" && r.Zone() == "" && ctx.Err() == nil
}

// ofFile makes a Conn of a connected socket of the poller, and asks for its local address if that is not known.
func ofFile(f *os.File, local, remote netip.AddrPort) (*sockConn, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	if !local.IsValid() {
		cerr := raw.Control(func(fd uintptr) {
			var l syscall.Sockaddr
			l, err = syscall.Getsockname(int(fd)) // that of x/sys/unix asks for the protocol besides
			local = addrOf(l)
		})
		if err := errors.Join(cerr, err); err != nil {
			return nil, err
		}
	}
	s := fileSocket{f}
	// If the poller did not take it, there are no deadlines.
	return makeSockConn(s, raw, local, remote), s.SetWriteDeadline(time.Time{})
}

// fileSocket is a socket of the poller that package net does not know.
type fileSocket struct{ *os.File }

func (s fileSocket) SetReadDeadline(t time.Time) error  { return deadline(s.File.SetReadDeadline(t)) }
func (s fileSocket) SetWriteDeadline(t time.Time) error { return deadline(s.File.SetWriteDeadline(t)) }

// deadline gives the error for a file that was closed the name of that for a socket; package os does not tell its own.
func deadline(err error) error {
	if err == nil || errors.Is(err, os.ErrNoDeadline) {
		return err
	}
	return net.ErrClosed
}

func addrOf(sa syscall.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *syscall.SockaddrInet6:
		a := netip.AddrFrom16(sa.Addr).Unmap()
		if sa.ZoneId != 0 {
			a = a.WithZone(zone(int(sa.ZoneId)))
		}
		return netip.AddrPortFrom(a, uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// zone is the name of an interface, or its number if that has gone.
func zone(index int) string {
	if i, err := net.InterfaceByIndex(index); err == nil {
		return i.Name
	}
	return strconv.Itoa(index)
}
