package faultnet

import (
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"kdapl/internal/netio"
	"kdapl/internal/netio/gate"
)

// Conn is one end of a connection in memory. Beside what netio.Conn asks for, it can be made to fail
// at a moment, where a Plan does so at a position.
type Conn struct {
	p             *pair
	side          int
	local, remote netip.AddrPort
	mss           func() int // overrides the plan's, for Wrap

	userTimeout, keepAlive time.Duration

	rd, wr             *gate.Gate
	readable, writable func(time.Time) (bool, time.Time)

	// Under the pair's lock.
	closed    bool
	forgotten bool  // closed by a reboot: not even an end is acknowledged
	err       error // what ended this end, an *netio.Error
	resetDue  bool
	resetAt   time.Time
	probeAt   time.Time // when a keepalive probe to a peer that has given up, or forgotten the connection, is answered
	blocked   bool      // a write found the window full, and nothing has been read since
	blockedAt time.Time
}

var _ netio.Conn = (*Conn)(nil)

// endConfig is what the two ends of a pair differ in.
type endConfig struct {
	addr                   netip.AddrPort
	userTimeout, keepAlive time.Duration
}

// newPair makes a connection under plan and lets happen what happens at once.
func newPair(plan Plan, dialler, acceptor endConfig) *pair {
	p := &pair{gone: func() {}}
	p.dirs[0] = newStream(plan.Up, plan.Seed, 0)
	p.dirs[1] = newStream(plan.Down, plan.Seed, 1)
	configs := [2]endConfig{dialler, acceptor}
	for i, c := range configs {
		e := &Conn{
			p: p, side: i, local: c.addr, remote: configs[1-i].addr,
			userTimeout: c.userTimeout, keepAlive: c.keepAlive,
			rd: gate.New(), wr: gate.New(),
		}
		e.readable, e.writable = e.isReadable, e.isWritable
		p.ends[i] = e
	}
	now := time.Now()
	p.happen(0, now)
	p.happen(1, now)
	return p
}

// dead tells whether nothing can happen to this end any more. Bytes that arrive here are answered
// with a reset.
func (e *Conn) dead() bool { return e.closed || e.err != nil }

// begin locks the connection and brings it up to date.
func (e *Conn) begin() time.Time {
	e.p.mu.Lock()
	now := time.Now()
	e.p.advance(now)
	return now
}

// TryReadv implements netio.Conn.
func (e *Conn) TryReadv(bufs [][]byte) (int, error) {
	e.begin()
	defer e.p.unlock()
	in := &e.p.dirs[1-e.side]
	switch {
	case e.closed:
		return 0, net.ErrClosed
	case size(bufs) == 0:
		return 0, nil
	case in.arrived > in.read:
		full := in.ring.Free() == 0
		n := in.get(bufs)
		if w := e.p.ends[1-e.side]; full {
			w.blocked = false
			w.wr.Open()
		}
		return n, nil
	case e.err != nil:
		return 0, e.err
	case in.finArrived:
		return 0, io.EOF
	}
	return 0, netio.ErrWouldBlock
}

// TryWritev implements netio.Conn.
func (e *Conn) TryWritev(bufs [][]byte) (int, error) {
	now := e.begin()
	defer e.p.unlock()
	out := &e.p.dirs[e.side]
	switch {
	case e.closed:
		return 0, net.ErrClosed
	case e.err != nil:
		return 0, e.err
	case out.fin && !out.vanish:
		return 0, &netio.Error{Stage: netio.StageWrite, Local: e.local, Remote: e.remote, Err: syscall.EPIPE}
	case size(bufs) == 0:
		return 0, nil
	}
	n := e.p.write(e.side, bufs, now)
	e.p.advance(now)
	if n == 0 {
		if !e.blocked {
			e.blocked, e.blockedAt = true, now
		}
		return 0, netio.ErrWouldBlock
	}
	return n, nil
}

// size is the number of bytes in bufs.
func size(bufs [][]byte) (n int) {
	for _, b := range bufs {
		n += len(b)
	}
	return n
}

func (e *Conn) isReadable(now time.Time) (bool, time.Time) {
	e.p.advance(now)
	in := &e.p.dirs[1-e.side]
	_, _, next := e.p.due()
	return e.dead() || in.arrived > in.read || in.finArrived, next
}

func (e *Conn) isWritable(now time.Time) (bool, time.Time) {
	e.p.advance(now)
	out := &e.p.dirs[e.side]
	_, _, next := e.p.due()
	return e.dead() || out.fin || out.room() > 0, next
}

// WaitReadable implements netio.Conn.
func (e *Conn) WaitReadable() error { return e.wait(e.rd, e.readable) }

// WaitWritable implements netio.Conn.
func (e *Conn) WaitWritable() error { return e.wait(e.wr, e.writable) }

func (e *Conn) wait(g *gate.Gate, ready func(time.Time) (bool, time.Time)) error {
	e.begin()
	defer e.p.unlock()
	err := g.Wait(&e.p.mu, ready)
	if e.closed {
		return net.ErrClosed
	}
	return err
}

// SetReadDeadline implements netio.Conn.
func (e *Conn) SetReadDeadline(t time.Time) error { return e.setDeadline(e.rd, t) }

// SetWriteDeadline implements netio.Conn.
func (e *Conn) SetWriteDeadline(t time.Time) error { return e.setDeadline(e.wr, t) }

func (e *Conn) setDeadline(g *gate.Gate, t time.Time) error {
	e.begin()
	defer e.p.unlock()
	if e.closed {
		return net.ErrClosed
	}
	g.SetDeadline(t)
	return nil
}

// CloseWrite implements netio.Conn.
func (e *Conn) CloseWrite() error {
	now := e.begin()
	defer e.p.unlock()
	if e.closed {
		return net.ErrClosed
	}
	if e.err == nil {
		e.finish(now)
	}
	return nil
}

// finish ends the outgoing stream.
func (e *Conn) finish(now time.Time) {
	out := &e.p.dirs[e.side]
	out.vanish = false // from here on writing is this end's mistake
	out.end(now)
	e.p.advance(now)
	e.wr.Open()
	e.p.ends[1-e.side].rd.Open()
}

// Close implements netio.Conn.
func (e *Conn) Close() error {
	now := e.begin()
	defer e.p.unlock()
	in := &e.p.dirs[1-e.side]
	e.shut(now, in.arrived > in.read)
	return nil
}

// Abort implements netio.Conn.
func (e *Conn) Abort() error {
	now := e.begin()
	defer e.p.unlock()
	if !e.dead() {
		e.p.dirs[e.side].drop()
	}
	e.shut(now, true)
	return nil
}

// shut closes this end and sends an end or a reset.
func (e *Conn) shut(now time.Time, reset bool) {
	if e.closed {
		return
	}
	e.closed = true
	e.p.dirs[1-e.side].purge()
	if e.err == nil && reset {
		out := &e.p.dirs[e.side]
		e.p.answerReset(1-e.side, later(now, out.last.Add(-out.plan.Latency)))
	} else if e.err == nil {
		e.finish(now)
	}
	if e.p.userGone != nil && e.side == 0 {
		if inner := e.p.ends[1]; (e.p.dark || e.err != nil) && !inner.dead() {
			inner.fail(syscall.ECONNRESET, true) // it would hear nothing
		}
		e.p.rude = reset
		close(e.p.userGone)
	}
	e.p.advance(now)
	e.p.openAll()
}

// LocalAddr implements netio.Conn.
func (e *Conn) LocalAddr() netip.AddrPort { return e.local }

// RemoteAddr implements netio.Conn.
func (e *Conn) RemoteAddr() netip.AddrPort { return e.remote }

// MSS implements netio.Conn.
func (e *Conn) MSS() int {
	e.begin()
	defer e.p.unlock()
	switch {
	case e.closed:
		return netio.DefaultMSS
	case e.mss != nil:
		return e.mss()
	}
	return e.p.dirs[e.side].mss()
}

// forget closes this end without a word to the other, as a reboot does.
func (e *Conn) forget() {
	e.begin()
	defer e.p.unlock()
	if e.closed {
		return
	}
	e.closed, e.forgotten = true, true
	e.p.ends[1-e.side].expectProbe(time.Now())
	e.p.dirs[e.side].drop()
	e.p.dirs[1-e.side].purge()
	e.p.openAll()
}

// Break resets the connection now, for both ends, as something on the way may do.
func (e *Conn) Break() {
	e.begin()
	defer e.p.unlock()
	for i, end := range e.p.ends {
		if !end.dead() {
			end.fail(syscall.ECONNRESET, !e.p.dirs[1-i].plan.KeepOnReset)
		}
	}
}

// GoDark makes the connection deliver nothing from now on, as Dark does.
func (e *Conn) GoDark() {
	now := e.begin()
	defer e.p.unlock()
	e.p.goDark(now)
}

// Heal ends the dark. What was under way arrives.
func (e *Conn) Heal() {
	now := e.begin()
	defer e.p.unlock()
	e.p.heal(now)
	e.p.advance(now)
}
