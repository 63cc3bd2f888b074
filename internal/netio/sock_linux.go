package netio

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sockConn is a TCP socket of Go's network poller, read and written by raw system calls. The socket
// is reached through RawConn.Control, which only counts a reference, so that the file descriptor
// cannot be closed and used anew under the call; RawConn.Read and Write, which wait, hold a lock of
// the direction while they do, and are used for waiting alone.
//
// sendmsg and recvmsg do the work of writev and readv here, for their flags: no SIGPIPE, and no
// blocking even if somebody made the socket a blocking one through a duplicate. A single piece goes
// by sendto and recvfrom, for which the kernel has less to copy in and to check.
type sockConn struct {
	sock          socket
	raw           syscall.RawConn
	local, remote netip.AddrPort

	rd, wr         vectored
	rdWait, wrWait readiness
	mss            mssQuery

	// wrClosed and fatal keep the end of the connection apart from its error; see eof.
	wrClosed atomic.Bool
	fatal    atomic.Pointer[Error]
}

// socket is what is needed of a *net.TCPConn, or of an *os.File with a socket of the poller.
type socket interface {
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	Close() error
}

func newSockConn(tc *net.TCPConn) (*sockConn, error) {
	raw, err := tc.SyscallConn()
	if err != nil {
		return nil, err
	}
	return makeSockConn(tc, raw, addrPort(tc.LocalAddr()), addrPort(tc.RemoteAddr())), nil
}

func makeSockConn(s socket, raw syscall.RawConn, local, remote netip.AddrPort) *sockConn {
	c := &sockConn{sock: s, raw: raw, local: local, remote: remote}
	c.rd.call = c.rd.recv
	c.wr.call = c.wr.send
	c.rdWait.check, c.rdWait.events = c.rdWait.now, unix.POLLIN|unix.POLLRDHUP
	c.wrWait.check, c.wrWait.events = c.wrWait.now, unix.POLLOUT
	c.mss.call = c.mss.ask
	return c
}

// vectored is the argument and the result of one direction's system call. It lives in the
// connection, with its func value, so that a call allocates nothing.
type vectored struct {
	one   unsafe.Pointer // the only piece of n bytes; nil if iov has them
	hdr   unix.Msghdr
	iov   []unix.Iovec // empty between calls; its capacity stays
	n     int
	errno syscall.Errno
	call  func(fd uintptr)
}

// maxIovecs is the kernel's limit, UIO_MAXIOV.
const maxIovecs = 1024

// load points the call at bufs, at most maxIovecs of them, and reports whether they hold a byte.
func (v *vectored) load(bufs [][]byte) bool {
	if len(bufs) == 1 {
		b := bufs[0]
		v.one, v.n = unsafe.Pointer(unsafe.SliceData(b)), len(b)
		return len(b) > 0
	}
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		if len(v.iov) == maxIovecs {
			break
		}
		e := unix.Iovec{Base: unsafe.SliceData(b)}
		e.SetLen(len(b))
		v.iov = append(v.iov, e)
	}
	if len(v.iov) == 0 {
		return false
	}
	v.hdr.Iov = &v.iov[0]
	v.hdr.SetIovlen(len(v.iov))
	return true
}

// unload forgets the caller's memory.
func (v *vectored) unload() {
	if v.one != nil {
		v.one = nil
		return
	}
	v.hdr.Iov = nil
	clear(v.iov)
	v.iov = v.iov[:0]
}

func (v *vectored) recv(fd uintptr) {
	v.move(unix.SYS_RECVFROM, unix.SYS_RECVMSG, fd, unix.MSG_DONTWAIT)
}

func (v *vectored) send(fd uintptr) {
	v.move(unix.SYS_SENDTO, unix.SYS_SENDMSG, fd, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// move makes the call for one piece, or that for several.
func (v *vectored) move(one, several, fd, flags uintptr) {
	for {
		var n uintptr
		var errno syscall.Errno
		if v.one != nil {
			n, _, errno = unix.RawSyscall6(one, fd, uintptr(v.one), uintptr(v.n), flags, 0, 0)
		} else {
			n, _, errno = unix.RawSyscall(several, fd, uintptr(unsafe.Pointer(&v.hdr)), flags)
		}
		if errno == unix.EINTR {
			continue
		}
		v.n, v.errno = int(n), errno
		return
	}
}

func (c *sockConn) TryReadv(bufs [][]byte) (int, error) {
	v := &c.rd
	if !v.load(bufs) {
		return 0, nil
	}
	err := c.raw.Control(v.call)
	v.unload()
	if err != nil {
		return 0, net.ErrClosed
	}
	switch {
	case v.errno == unix.EAGAIN:
		return 0, ErrWouldBlock
	case v.errno != 0:
		return 0, c.fail(StageRead, v.errno)
	case v.n == 0:
		return 0, c.eof()
	}
	if raceEnabled {
		raceReceived(bufs, v.n)
	}
	return v.n, nil
}

func (c *sockConn) TryWritev(bufs [][]byte) (int, error) {
	v := &c.wr
	if c.wrClosed.Load() {
		// Not the kernel's to say: it would hand out the socket's pending error here, and the reader
		// would see the end of the stream in its place.
		return 0, &Error{StageWrite, c.local, c.remote, unix.EPIPE}
	}
	if !v.load(bufs) {
		return 0, nil
	}
	if raceEnabled {
		raceSending()
	}
	err := c.raw.Control(v.call)
	v.unload()
	if err != nil {
		return 0, net.ErrClosed
	}
	switch {
	case v.errno == unix.EAGAIN:
		return 0, ErrWouldBlock
	case v.errno != 0:
		return 0, c.fail(StageWrite, v.errno)
	}
	if raceEnabled {
		raceSent(bufs, v.n)
	}
	return v.n, nil
}

// fail makes the error of a call that the kernel refused. What ended the connection is kept, and
// told again for EPIPE, which only says that the kernel has told its reason before.
func (c *sockConn) fail(stage Stage, errno syscall.Errno) error {
	e := &Error{stage, c.local, c.remote, errno}
	if errno == unix.EPIPE {
		if first := c.fatal.Load(); first != nil {
			return first
		}
	} else if classify(errno) != nil {
		c.fatal.CompareAndSwap(nil, e)
	}
	return e
}

// eof tells the end of the peer's stream from the end of a broken connection. The kernel reports a
// socket's error to one call only, reading or writing, and to later reads the same zero bytes as
// behind a FIN. So an error that a call has seen stands for all later reads; and since a writer may
// have been told a moment ago without having noted it yet, a socket that this side did not shut down
// and that is closed all the same was not ended by a FIN: it would be in CLOSE-WAIT.
func (c *sockConn) eof() error {
	shut := c.wrClosed.Load() // before fatal: a writer notes its error before it can shut down
	if e := c.fatal.Load(); e != nil {
		return e
	}
	if !shut {
		var state byte // the first of struct tcp_info
		err := c.raw.Control(func(fd uintptr) {
			size := uint32(1)
			unix.RawSyscall6(unix.SYS_GETSOCKOPT, fd, unix.IPPROTO_TCP, unix.TCP_INFO,
				uintptr(unsafe.Pointer(&state)), uintptr(unsafe.Pointer(&size)), 0)
		})
		if err != nil {
			return net.ErrClosed
		}
		if state == unix.BPF_TCP_CLOSE && !c.wrClosed.Load() {
			c.fatal.CompareAndSwap(nil, &Error{StageRead, c.local, c.remote, unix.ECONNRESET})
		}
		if e := c.fatal.Load(); e != nil {
			return e
		}
	}
	return io.EOF
}

// readiness is the state of one direction's wait.
type readiness struct {
	asked  bool
	events int16
	pfd    unix.PollFd
	check  func(fd uintptr) bool
}

// now is called by RawConn before it sleeps, and again when the poller wakes it. The poller reports
// changes and has forgotten those before the call, hence the question the first time.
func (r *readiness) now(fd uintptr) bool {
	if r.asked {
		return true
	}
	r.asked = true
	r.pfd = unix.PollFd{Fd: int32(fd), Events: r.events}
	var zero unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&r.pfd)), 1, uintptr(unsafe.Pointer(&zero)), 0, 0, 0)
	return n != 0 || errno != 0
}

func (c *sockConn) WaitReadable() error {
	c.rdWait.asked = false
	return waited(c.raw.Read(c.rdWait.check))
}

func (c *sockConn) WaitWritable() error {
	c.wrWait.asked = false
	return waited(c.raw.Write(c.wrWait.check))
}

// waited turns what RawConn reports into what Conn promises.
func waited(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		if err != nil {
			err = os.ErrDeadlineExceeded
		}
		return err
	}
	return net.ErrClosed
}

func (c *sockConn) SetReadDeadline(t time.Time) error  { return closedErr(c.sock.SetReadDeadline(t)) }
func (c *sockConn) SetWriteDeadline(t time.Time) error { return closedErr(c.sock.SetWriteDeadline(t)) }

func (c *sockConn) CloseWrite() error {
	c.wrClosed.Store(true)
	var err error
	if c.raw.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) }) != nil {
		return net.ErrClosed
	}
	if err == unix.ENOTCONN {
		return nil // ended from the other side already
	}
	return os.NewSyscallError("shutdown", err)
}

func (c *sockConn) Close() error { return closeOnce(c.sock.Close()) }

func (c *sockConn) Abort() error {
	// With a linger time of 0, closing sends RST (RFC 9293, ABORT).
	var err error
	cerr := c.raw.Control(func(fd uintptr) {
		err = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	if cerr != nil {
		return nil // closed already
	}
	return errors.Join(os.NewSyscallError("setsockopt", err), c.Close())
}

func (c *sockConn) LocalAddr() netip.AddrPort  { return c.local }
func (c *sockConn) RemoteAddr() netip.AddrPort { return c.remote }

// mssQuery is the argument and the result of asking for the MSS, which anyone may do.
type mssQuery struct {
	mu   sync.Mutex
	n    int
	call func(fd uintptr)
}

func (q *mssQuery) ask(fd uintptr) {
	n, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	if err == nil && n > 0 {
		q.n = n
	}
}

func (c *sockConn) MSS() int {
	c.mss.mu.Lock()
	defer c.mss.mu.Unlock()
	c.mss.n = DefaultMSS
	if c.raw.Control(c.mss.call) != nil {
		return DefaultMSS
	}
	return c.mss.n
}

var _ Conn = (*sockConn)(nil)
