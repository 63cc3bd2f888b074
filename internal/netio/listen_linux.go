package netio

import (
	"context"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// listenControl sets the options of the connections on the socket that listens for them.
func (n *TCP) listenControl(_, _ string, raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = n.options(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

// sockListener accepts without package net, which sets five options of each connection that it has inherited, and
// asks for addresses that are known.
type sockListener struct {
	file  *os.File
	raw   syscall.RawConn
	local netip.AddrPort
}

// listener takes a socket that listens from package net, whose raw connection does not wait for listeners.
func (n *TCP) listener(l *tcpListener) (Listener, error) {
	f, err := l.ln.File()
	l.ln.Close()
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &sockListener{f, raw, l.local}, nil
}

func (l *sockListener) Accept() (Conn, error) {
	fd, from, err := -1, syscall.Sockaddr(nil), error(nil)
	waited := l.raw.Read(func(s uintptr) bool {
		for {
			fd, from, err = syscall.Accept4(int(s), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
			switch err {
			case syscall.EINTR, syscall.ECONNABORTED: // ended before it was accepted
				continue
			case syscall.EAGAIN:
				return false
			}
			return true
		}
	})
	if waited != nil {
		return nil, net.ErrClosed
	}
	if err != nil {
		return nil, l.failed(err)
	}
	f := os.NewFile(uintptr(fd), "tcp")
	if f == nil {
		return nil, l.failed(syscall.EBADF)
	}
	local := l.local
	if local.Addr().IsUnspecified() {
		local = netip.AddrPort{} // each connection has its own
	}
	c, err := ofFile(f, local, addrOf(from))
	if err != nil {
		f.Close()
		return nil, l.failed(err)
	}
	return c, nil
}

func (l *sockListener) failed(err error) error {
	return setupError(context.Background(), StageAccept, l.local, netip.AddrPort{}, err)
}

func (l *sockListener) Addr() netip.AddrPort { return l.local }
func (l *sockListener) Close() error         { return closeOnce(l.file.Close()) }
