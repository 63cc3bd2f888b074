package netio

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// option reads a socket option of c.
func option(t *testing.T, c Conn, level, name int) int {
	t.Helper()
	var n int
	var err error
	if cerr := c.(*sockConn).raw.Control(func(fd uintptr) { n, err = unix.GetsockoptInt(int(fd), level, name) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return n
}

func TestBothEndsHaveTheNetworksOptions(t *testing.T) {
	type want struct{ keepalive, idle, interval, count, userTimeoutMs int }
	for _, c := range []struct {
		name string
		n    TCP
		want want
	}{
		{"defaults", TCP{}, want{1, 15, 3, 5, 30000}},
		{"own", TCP{KeepAlive: 100 * time.Second, UserTimeout: 1500 * time.Millisecond}, want{1, 50, 10, 5, 1500}},
		{"short", TCP{KeepAlive: 10 * time.Millisecond, UserTimeout: time.Microsecond}, want{1, 1, 1, 5, 1}},
		{"off", TCP{KeepAlive: -1, UserTimeout: -1}, want{keepalive: 0, userTimeoutMs: 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := tcpPair(t, &c.n, loopback[0])
			for _, end := range []Conn{a, b} {
				got := want{keepalive: option(t, end, unix.SOL_SOCKET, unix.SO_KEEPALIVE), userTimeoutMs: option(t, end, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)}
				if got.keepalive == 1 {
					got.idle = option(t, end, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
					got.interval = option(t, end, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL)
					got.count = option(t, end, unix.IPPROTO_TCP, unix.TCP_KEEPCNT)
				}
				if got != c.want {
					t.Errorf("%+v, want %+v", got, c.want)
				}
				if option(t, end, unix.IPPROTO_TCP, unix.TCP_NODELAY) != 1 {
					t.Error("TCP_NODELAY is off")
				}
				if proto := option(t, end, unix.SOL_SOCKET, unix.SO_PROTOCOL); proto != unix.IPPROTO_TCP {
					t.Errorf("protocol %d, want plain TCP", proto)
				}
			}
		})
	}
}

func TestBufferSizes(t *testing.T) {
	a, b := tcpPair(t, &TCP{SendBuffer: 20000, RecvBuffer: 30000}, loopback[0])
	for _, end := range []Conn{a, b} {
		// The kernel doubles what it is given, for its own records.
		if s, r := option(t, end, unix.SOL_SOCKET, unix.SO_SNDBUF), option(t, end, unix.SOL_SOCKET, unix.SO_RCVBUF); s != 40000 || r != 60000 {
			t.Errorf("buffers %d and %d", s, r)
		}
	}
}

// A peer that takes nothing for the user time-out loses the connection: data stays unsent before a
// closed window (RFC 5482 counts that too).
func TestUserTimeoutEndsAStalledConnection(t *testing.T) {
	a, _ := tcpPair(t, &TCP{UserTimeout: 50 * time.Millisecond, SendBuffer: 16 << 10, RecvBuffer: 16 << 10}, loopback[0])
	deadline := time.Now().Add(30 * time.Second)
	a.SetWriteDeadline(deadline)
	var err error
	for chunk := make([]byte, 64<<10); err == nil; {
		if _, err = a.TryWritev([][]byte{chunk}); err == ErrWouldBlock {
			err = a.WaitWritable()
		}
	}
	var e *Error
	if !errors.As(err, &e) || e.Err != unix.ETIMEDOUT || !errors.Is(err, ErrTimedOut) || !e.Timeout() || e.Remote != a.RemoteAddr() {
		t.Fatalf("write: %v, want a time-out", err)
	}
	for range 2 {
		if _, err := a.TryReadv([][]byte{make([]byte, 1)}); err != error(e) {
			t.Fatalf("read: %v, want the same error", err)
		}
		if _, err := a.TryWritev([][]byte{{1}}); err != error(e) {
			t.Fatalf("write: %v, want the same error", err)
		}
	}
}

// Between the moment a writer is told of a reset and the moment it notes it, a reader sees an end of
// stream that is none. Here nobody notes it.
func TestConsumedErrorIsNotReadAsAnEnd(t *testing.T) {
	a, b := tcpPair(t, &TCP{}, loopback[0])
	if err := a.Abort(); err != nil {
		t.Fatal(err)
	}
	if err := b.WaitReadable(); err != nil {
		t.Fatal(err)
	}
	if errno := option(t, b, unix.SOL_SOCKET, unix.SO_ERROR); syscall.Errno(errno) != unix.ECONNRESET {
		t.Fatalf("errno %d", errno)
	}
	for range 2 {
		if _, err := b.TryReadv([][]byte{make([]byte, 1)}); !errors.Is(err, ErrReset) {
			t.Fatalf("%v, want a reset", err)
		}
	}
}

// Both sides have shut down and the socket is gone from TCP's view: still an orderly end.
func TestEndAfterBothSidesClosedIsAnEnd(t *testing.T) {
	a, b := tcpPair(t, &TCP{}, loopback[0])
	for _, c := range []Conn{a, b} {
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		for _, c := range []Conn{a, b} {
			if err := c.WaitReadable(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.TryReadv([][]byte{make([]byte, 1)}); err != io.EOF {
				t.Fatalf("%v, want io.EOF", err)
			}
			if err := c.CloseWrite(); err != nil {
				t.Fatalf("CloseWrite again: %v", err)
			}
		}
	}
}

// Buffers of memory that is gone are the caller's mistake, and the connection lives on.
func TestBadMemoryDoesNotEndTheConnection(t *testing.T) {
	a, b := tcpPair(t, &TCP{}, loopback[0])
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	var e *Error
	if _, err := a.TryWritev([][]byte{page}); !errors.As(err, &e) || e.Err != unix.EFAULT {
		t.Fatalf("write: %v", err)
	}
	if _, err := a.TryWritev([][]byte{{7}}); err != nil {
		t.Fatal(err)
	}
	if err := b.WaitReadable(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryReadv([][]byte{page}); !errors.As(err, &e) || e.Err != unix.EFAULT {
		t.Fatalf("read: %v", err)
	}
	p := make([]byte, 1)
	if n, err := b.TryReadv([][]byte{p}); n != 1 || err != nil || p[0] != 7 {
		t.Fatalf("%d, %v, %d", n, err, p[0])
	}
}

// A connection forgets the caller's memory with the end of the call.
func TestCallsDoNotKeepTheCallersMemory(t *testing.T) {
	a, _ := tcpPair(t, &TCP{}, loopback[0])
	if _, err := a.TryWritev([][]byte{make([]byte, 100), make([]byte, 100)}); err != nil {
		t.Fatal(err)
	}
	w := &a.(*sockConn).wr
	for _, e := range w.iov[:cap(w.iov)] {
		if e.Base != nil {
			t.Fatal("a buffer is still referenced")
		}
	}
}

// The attempt ends with its context, not with the system's patience.
func TestDialEndsWithItsContext(t *testing.T) {
	// A listener with a full backlog drops further attempts, so that they hang.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	remote := netip.AddrPortFrom(loopback[0], uint16(sa.(*unix.SockaddrInet4).Port))
	cause := errors.New("changed my mind")
	for range 10 {
		ctx, cancel := context.WithCancelCause(context.Background())
		stop := time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
		c, err := (&TCP{}).Dial(ctx, netip.AddrPort{}, remote)
		stop.Stop()
		cancel(nil)
		if err == nil {
			defer c.Close()
			continue // the backlog has room yet
		}
		var e *Error
		if !errors.As(err, &e) || e.Stage != StageConnect || e.Remote != remote || !errors.Is(err, cause) {
			t.Fatalf("%v", err)
		}
		return
	}
	t.Fatal("no attempt hung")
}

// A port that the system has picked for a connection may be listened at, while the connection is there and afterwards.
func TestThePortOfAConnectionMayBeListenedAt(t *testing.T) {
	var n TCP
	a, b := tcpPair(t, &n, loopback[0])
	port := netip.AddrPortFrom(loopback[0], a.LocalAddr().Port())
	listen := func(when string) {
		t.Helper()
		ln, err := n.Listen(context.Background(), port)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		ln.Close()
	}
	listen("while it is there")
	a.Close()
	b.Close()
	listen("when it has ended")
}
