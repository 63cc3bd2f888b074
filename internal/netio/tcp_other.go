//go:build !linux

package netio

import (
	"context"
	"errors"
	"net"
	"net/netip"
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

func (n *TCP) dial(ctx context.Context, local, remote netip.AddrPort) (Conn, error) {
	return nil, errors.ErrUnsupported
}

// FromNet makes a Conn of any net.Conn and owns it from then on. It gets a pump, as the package
// comment says.
func FromNet(c net.Conn) (Conn, error) {
	return newPumpConn(c), nil
}
