package netio

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// ErrWouldBlock is what TryReadv and TryWritev report when nothing can be moved now. It is returned
// by identity and costs nothing.
var ErrWouldBlock = errors.New("netio: would block")

const (
	// MaxBytes is the most that one Try call should be given, in bytes: enough for the kernel to
	// work in large pieces, and a bound on how long the call keeps its processor.
	MaxBytes = 256 << 10

	// DefaultMSS is what MSS reports for a connection that does not know: TCP over Ethernet with
	// time stamps, in bytes.
	DefaultMSS = 1448
)

// Conn is one connection: a stream of bytes in each direction, as TCP gives it.
type Conn interface {
	// TryReadv reads what is there into bufs, in order, and does not block. It reports either a
	// positive number of bytes and nil, or 0 and an error: ErrWouldBlock if there is nothing now,
	// io.EOF behind the peer's last byte (again at every later call), an *Error if the connection is
	// broken (likewise), net.ErrClosed after Close. With no room in bufs it reports 0 and nil. bufs
	// and what it points to are the caller's again when it returns. It may move fewer bytes than
	// are there; only ErrWouldBlock says that it has seen the end of them.
	TryReadv(bufs [][]byte) (n int, err error)

	// TryWritev hands the bytes of bufs to the network, in order, as many as it takes, and does
	// not block. It reports either a positive number of bytes and nil, or 0 and an error:
	// ErrWouldBlock if nothing is taken now, an *Error if the connection is broken or CloseWrite was
	// called, net.ErrClosed after Close. With no bytes in bufs it reports 0 and nil. Taken does not
	// mean sent, acknowledged or read by the peer.
	TryWritev(bufs [][]byte) (n int, err error)

	// WaitReadable blocks until TryReadv may report something other than ErrWouldBlock, and returns
	// nil; the read may still find nothing. It looks at the state and not at changes: if there is
	// unread input, an end or an error it returns at once, however often it is called. It reports
	// os.ErrDeadlineExceeded if the read deadline has passed, readable or not, and net.ErrClosed if
	// the connection is closed, before or meanwhile.
	WaitReadable() error

	// WaitWritable does for TryWritev what WaitReadable does for TryReadv.
	WaitWritable() error

	// SetReadDeadline bounds WaitReadable, also a call in progress; the zero time removes the bound.
	// A time in the past is the way to call a waiter back. TryReadv does not look at it.
	SetReadDeadline(t time.Time) error

	// SetWriteDeadline does for WaitWritable what SetReadDeadline does for WaitReadable.
	SetWriteDeadline(t time.Time) error

	// CloseWrite ends the outgoing stream behind the bytes taken so far (FIN). Reading goes on.
	CloseWrite() error

	// Close ends both directions. Bytes taken by TryWritev are still delivered, in the background
	// and for a bounded time; but input that the caller has not read, or that comes later, makes
	// TCP send RST, upon which the peer may lose what it has not yet read. Who wants an orderly
	// end calls CloseWrite, reads until io.EOF and then Close.
	Close() error

	// Abort ends both directions at once and tells the peer so (RST). What is under way in either
	// direction is lost. Where the connection has no RST (a net.Conn other than TCP) it is Close
	// without delivery.
	Abort() error

	// LocalAddr is the address of this end, with the real port; invalid if the connection has none.
	LocalAddr() netip.AddrPort

	// RemoteAddr is the address of the peer; invalid if the connection has none.
	RemoteAddr() netip.AddrPort

	// MSS is the most payload that one TCP segment to the peer carries now, in bytes: what an MPA
	// sender fits its FPDUs to (RFC 5044, section 4.4). It changes with the path. DefaultMSS if the
	// connection does not know or is closed.
	MSS() int
}

// Listener takes incoming connections.
type Listener interface {
	// Accept blocks until there is a connection or Close, and then reports net.ErrClosed. Any other
	// error is about one attempt (no descriptors left, for one): the caller pauses and goes on.
	Accept() (Conn, error)

	// Addr is the listening address with the real port.
	Addr() netip.AddrPort

	// Close ends listening. Connections that are set up and not accepted are reset.
	Close() error
}

// Network is where connections come from: TCP of this host, or a host of faultnet. A device takes
// one from its configuration, so tests run the code that ships.
type Network interface {
	// Dial connects to remote. An invalid local lets the system choose; its port may be 0. It
	// blocks until there is a connection, an error, or the end of ctx. Every error is an *Error
	// with both addresses, the stage and the cause.
	Dial(ctx context.Context, local, remote netip.AddrPort) (Conn, error)

	// Listen takes connections at local. Port 0 is replaced by a free one. The unspecified address
	// of a family stands for all of that family, an invalid address for all addresses. ctx bounds
	// the set-up, not the listener. Every error is an *Error.
	Listen(ctx context.Context, local netip.AddrPort) (Listener, error)
}
