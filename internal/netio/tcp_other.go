//go:build !linux

package netio

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// setUserTimeout does nothing: the option has no name here.
func setUserTimeout(uintptr, time.Duration) error { return nil }

// setReuseAddr does nothing: the option means other things here.
func setReuseAddr(uintptr) error { return nil }

// bindLate does nothing: the option has no name here.
func bindLate(uintptr) {}

// direct: package net does it all.
func direct(context.Context, netip.AddrPort, netip.AddrPort) bool { return false }

// listenControl: package net sets the other options of each connection.
func (n *TCP) listenControl(network, address string, raw syscall.RawConn) error {
	return n.control(network, address, raw)
}

// listener: package net accepts.
func (n *TCP) listener(l *tcpListener) (Listener, error) { return l, nil }

func (n *TCP) dial(ctx context.Context, local, remote netip.AddrPort) (Conn, error) {
	return nil, errors.ErrUnsupported
}

// FromNet makes a Conn of any net.Conn and owns it from then on. It gets a pump, as the package
// comment says.
func FromNet(c net.Conn) (Conn, error) {
	return newPumpConn(c), nil
}
