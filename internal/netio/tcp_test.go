package netio

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

func TestListenReportsTheRealPort(t *testing.T) {
	addrs := []netip.Addr{{}, loopback[0], netip.IPv4Unspecified(), netip.MustParseAddr("::ffff:127.0.0.1")}
	if nettest.SupportsIPv6() {
		addrs = append(addrs, loopback[1], netip.IPv6Unspecified())
	}
	for _, addr := range addrs {
		ln, err := (&TCP{}).Listen(context.Background(), netip.AddrPortFrom(addr, 0))
		if err != nil {
			t.Fatalf("%v: %v", addr, err)
		}
		got := ln.Addr()
		if got.Port() == 0 || !got.IsValid() || got.Addr().Is4In6() || addr.IsValid() && got.Addr() != addr.Unmap() {
			t.Errorf("listening at %v for %v", got, addr)
		}
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
		if err := ln.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if _, err := ln.Accept(); err != net.ErrClosed {
			t.Errorf("Accept after Close: %v", err)
		}
	}
}

// A wildcard listener's connections have the addresses that were really used.
func TestAcceptedConnectionHasItsRealAddresses(t *testing.T) {
	for _, any := range []netip.Addr{{}, netip.IPv4Unspecified()} {
		ln, err := (&TCP{}).Listen(context.Background(), netip.AddrPortFrom(any, 0))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		a, err := (&TCP{}).Dial(context.Background(), netip.AddrPort{}, netip.AddrPortFrom(loopback[0], ln.Addr().Port()))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		b, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if a.LocalAddr() != b.RemoteAddr() || a.RemoteAddr() != b.LocalAddr() || b.LocalAddr().Addr() != loopback[0] {
			t.Errorf("%v to %v, and %v to %v", a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr())
		}
	}
}

func TestCloseEndsAccept(t *testing.T) {
	ln, err := (&TCP{}).Listen(context.Background(), netip.AddrPortFrom(loopback[0], 0))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := ln.Accept()
		done <- err
	}()
	ln.Close()
	if err := <-done; err != net.ErrClosed {
		t.Fatal(err)
	}
}

func TestDialFromAChosenAddress(t *testing.T) {
	ln, err := (&TCP{}).Listen(context.Background(), netip.AddrPortFrom(loopback[0], 0))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	first, err := (&TCP{}).Dial(context.Background(), netip.AddrPortFrom(loopback[0], 0), ln.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if first.LocalAddr().Addr() != loopback[0] {
		t.Errorf("from %v", first.LocalAddr())
	}
	// The same address again is taken, and the error says so, at the stage where it came up.
	for _, local := range []netip.AddrPort{first.LocalAddr(), netip.AddrPortFrom(netip.Addr{}, first.LocalAddr().Port())} {
		_, err = (&TCP{}).Dial(context.Background(), local, ln.Addr())
		var e *Error
		if !errors.As(err, &e) || e.Local != local || e.Remote != ln.Addr() {
			t.Fatalf("%#v", err)
		}
	}
}

// AC-35: errors name both addresses, the stage and the system's reason.
func TestAC35ErrorsNameAddressesStageAndCause(t *testing.T) {
	ctx := context.Background()
	n := &TCP{}
	ln, err := n.Listen(ctx, netip.AddrPortFrom(loopback[0], 0))
	if err != nil {
		t.Fatal(err)
	}
	taken := ln.Addr()
	defer ln.Close()

	gone, err := n.Listen(ctx, netip.AddrPortFrom(loopback[0], 0))
	if err != nil {
		t.Fatal(err)
	}
	free := gone.Addr()
	gone.Close()
	local := netip.AddrPortFrom(loopback[0], 0)
	foreign := netip.MustParseAddrPort("192.0.2.1:7174") // TEST-NET-1: no host has it
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	late, cancel := context.WithDeadline(ctx, time.Unix(1, 0))
	defer cancel()

	_, refused := n.Dial(ctx, local, free)
	_, inUse := n.Listen(ctx, taken)
	_, notOurs := n.Listen(ctx, foreign)
	_, fromElsewhere := n.Dial(ctx, foreign, taken)
	_, nowhere := n.Dial(ctx, local, netip.AddrPort{})
	_, stopped := n.Dial(cancelled, local, taken)
	_, tooLate := n.Dial(late, local, taken)

	for _, c := range []struct {
		name          string
		err           error
		stage         Stage
		local, remote netip.AddrPort
		is            error
		timeout       bool
	}{
		{"refused", refused, StageConnect, local, free, ErrRefused, false},
		{"in use", inUse, StageBind, taken, netip.AddrPort{}, syscall.EADDRINUSE, false},
		{"not ours", notOurs, StageBind, foreign, netip.AddrPort{}, syscall.EADDRNOTAVAIL, false},
		{"from elsewhere", fromElsewhere, StageBind, foreign, taken, syscall.EADDRNOTAVAIL, false},
		{"nowhere", nowhere, StageConnect, local, netip.AddrPort{}, nil, false},
		{"stopped", stopped, StageConnect, local, taken, context.Canceled, false},
		{"too late", tooLate, StageConnect, local, taken, context.DeadlineExceeded, true},
	} {
		var e *Error
		if !errors.As(c.err, &e) {
			t.Errorf("%s: %#v is no *Error", c.name, c.err)
			continue
		}
		if e.Stage != c.stage || e.Local != c.local || e.Remote != c.remote || c.is != nil && !errors.Is(e, c.is) || e.Timeout() != c.timeout {
			t.Errorf("%s: %#v", c.name, e)
		}
		for _, a := range []netip.AddrPort{c.local, c.remote} {
			if a.IsValid() && strings.Count(e.Error(), a.String()) != 1 {
				t.Errorf("%s: %q does not name %v once", c.name, e, a)
			}
		}
	}
}

func TestErrorKindsAreDisjoint(t *testing.T) {
	kinds := []error{ErrReset, ErrRefused, ErrTimedOut}
	for errno, kind := range map[syscall.Errno]error{
		syscall.ECONNRESET: ErrReset, syscall.EPIPE: ErrReset, syscall.ECONNABORTED: ErrReset,
		syscall.ECONNREFUSED: ErrRefused,
		syscall.ETIMEDOUT:    ErrTimedOut, syscall.EHOSTUNREACH: ErrTimedOut,
		syscall.EINVAL: nil,
	} {
		e := &Error{Stage: StageRead, Err: errno}
		for _, k := range kinds {
			if errors.Is(e, k) != (k == kind) {
				t.Errorf("%v is %v: %v", e, k, errors.Is(e, k))
			}
		}
		if errors.Is(e, nil) || !errors.Is(e, errno) {
			t.Errorf("%v: wrong identity", e)
		}
	}
}
