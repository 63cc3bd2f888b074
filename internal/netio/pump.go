package netio

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"kdapl/internal/netio/bytering"
	"kdapl/internal/netio/gate"
)

const (
	// pumpBuffer bounds the bytes that a pump holds in each direction.
	pumpBuffer = 256 << 10
	// pumpLinger bounds how long Close goes on delivering what TryWritev took.
	pumpLinger = 5 * time.Second
)

// pumpConn makes a Conn of a net.Conn that can only block. One goroutine reads as long as the
// connection lives; another writes as long as there is something to write. The package comment says
// why, and where it is used.
type pumpConn struct {
	nc            net.Conn
	local, remote netip.AddrPort

	readable, writable, inFree func(time.Time) (bool, time.Time) // what the gates wait for
	drainFunc                  func()

	mu       sync.Mutex
	closed   bool
	in, out  bytering.Ring
	inErr    error // io.EOF or an *Error: what follows the bytes of in
	outErr   error // an *Error
	finAsked bool  // CloseWrite was called
	finSent  bool
	draining bool       // the writing goroutine runs
	rd, wr   *gate.Gate // where WaitReadable and WaitWritable wait
	room     *gate.Gate // where the reading goroutine waits for room in in
}

func newPumpConn(nc net.Conn) *pumpConn {
	c := &pumpConn{
		nc: nc, local: addrPort(nc.LocalAddr()), remote: addrPort(nc.RemoteAddr()),
		in: bytering.New(pumpBuffer), out: bytering.New(pumpBuffer),
		rd: gate.New(), wr: gate.New(), room: gate.New(),
	}
	c.readable = func(time.Time) (bool, time.Time) {
		return c.closed || c.inErr != nil || c.in.Len() > 0, time.Time{}
	}
	c.writable = func(time.Time) (bool, time.Time) {
		return c.closed || c.outErr != nil || c.finAsked || c.out.Free() > 0, time.Time{}
	}
	c.inFree = func(time.Time) (bool, time.Time) { return c.closed || c.in.Free() > 0, time.Time{} }
	c.drainFunc = c.drain
	go c.fill()
	return c
}

// fill reads from the net.Conn until it ends. After Close it discards, so that two ends which close
// at the same time do not wait for each other's last bytes to be read.
func (c *pumpConn) fill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		c.room.Wait(&c.mu, c.inFree) // no deadline, so no error
		if c.closed {
			c.in.Discard(c.in.Len())
		}
		space := c.in.Space()
		c.mu.Unlock()
		n, err := c.nc.Read(space)
		c.mu.Lock()
		c.in.Commit(n)
		if err != nil {
			c.inErr = err
			if err != io.EOF {
				c.inErr = &Error{StageRead, c.local, c.remote, cause(err)}
				if c.outErr == nil { // it broke in both directions
					c.outErr = c.inErr
					c.wr.Open()
				}
			}
		}
		if n > 0 || err != nil {
			c.rd.Open()
		}
		if err != nil {
			return
		}
	}
}

// drain writes to the net.Conn until nothing is left, and then ends what was asked to end behind it.
func (c *pumpConn) drain() {
	c.mu.Lock()
	for c.out.Len() > 0 && c.outErr == nil {
		data := c.out.Data()
		c.mu.Unlock()
		n, err := c.nc.Write(data)
		c.mu.Lock()
		c.out.Discard(n)
		if err != nil {
			c.outErr = &Error{StageWrite, c.local, c.remote, cause(err)}
		}
		c.wr.Open()
	}
	fin := c.finAsked && !c.finSent && c.outErr == nil
	c.finSent = c.finSent || fin
	c.draining = false
	closed := c.closed
	c.mu.Unlock()
	if fin {
		c.nc.(closeWriter).CloseWrite() // what it reports, the reading side finds out
	}
	if closed {
		c.nc.Close()
	}
}

type closeWriter interface{ CloseWrite() error }

// startDrain makes sure that drain runs, or looks again. The caller holds mu.
func (c *pumpConn) startDrain() {
	if !c.draining {
		c.draining = true
		go c.drainFunc()
	}
}

func (c *pumpConn) TryReadv(bufs [][]byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch n := 0; {
	case c.closed:
		return 0, net.ErrClosed
	case total(bufs) == 0:
		return 0, nil
	case c.in.Len() > 0:
		full := c.in.Free() == 0
		n = c.in.Get(bufs, pumpBuffer)
		if full {
			c.room.Open()
		}
		return n, nil
	case c.inErr == nil:
		return 0, ErrWouldBlock
	case c.inErr == io.EOF && c.outErr != nil:
		return 0, c.outErr // the system told the writer of the break, and the reader of an end
	}
	return 0, c.inErr
}

func (c *pumpConn) TryWritev(bufs [][]byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.outErr != nil:
		return 0, c.outErr
	case c.finAsked:
		return 0, &Error{StageWrite, c.local, c.remote, syscall.EPIPE}
	case total(bufs) == 0:
		return 0, nil
	case c.out.Free() == 0:
		return 0, ErrWouldBlock
	}
	n := c.out.Put(bufs, pumpBuffer)
	c.startDrain()
	return n, nil
}

// total is the number of bytes in bufs.
func total(bufs [][]byte) (n int) {
	for _, b := range bufs {
		n += len(b)
	}
	return n
}

func (c *pumpConn) WaitReadable() error { return c.wait(c.rd, c.readable) }
func (c *pumpConn) WaitWritable() error { return c.wait(c.wr, c.writable) }

func (c *pumpConn) wait(g *gate.Gate, ready func(time.Time) (bool, time.Time)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := g.Wait(&c.mu, ready)
	if c.closed {
		return net.ErrClosed
	}
	return err
}

func (c *pumpConn) SetReadDeadline(t time.Time) error  { return c.setDeadline(c.rd, t) }
func (c *pumpConn) SetWriteDeadline(t time.Time) error { return c.setDeadline(c.wr, t) }

func (c *pumpConn) setDeadline(g *gate.Gate, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	g.SetDeadline(t)
	return nil
}

// CloseWrite is errors.ErrUnsupported for a net.Conn that cannot end one direction.
func (c *pumpConn) CloseWrite() error {
	if _, ok := c.nc.(closeWriter); !ok {
		return &Error{StageWrite, c.local, c.remote, errors.ErrUnsupported}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.finAsked = true
	c.wr.Open()
	c.startDrain()
	return nil
}

func (c *pumpConn) Close() error {
	if !c.shut() {
		return nil
	}
	// What is queued leaves in the background, within a bounded time; so does the closing itself,
	// since that of a TLS connection writes.
	c.nc.SetWriteDeadline(time.Now().Add(pumpLinger))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startDrain()
	return nil
}

func (c *pumpConn) Abort() error {
	if !c.shut() {
		return nil
	}
	nc := c.nc
	if w, ok := nc.(interface{ NetConn() net.Conn }); ok { // TLS: not its farewell, but the RST below
		nc = w.NetConn()
	}
	if l, ok := nc.(interface{ SetLinger(int) error }); ok {
		l.SetLinger(0)
	}
	return closeOnce(nc.Close())
}

// shut makes the connection closed for its callers, and reports false if it was before.
func (c *pumpConn) shut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.closed = true
	c.rd.Open()
	c.wr.Open()
	c.room.Open()
	return true
}

func (c *pumpConn) LocalAddr() netip.AddrPort  { return c.local }
func (c *pumpConn) RemoteAddr() netip.AddrPort { return c.remote }
func (c *pumpConn) MSS() int                   { return DefaultMSS }

var _ Conn = (*pumpConn)(nil)
