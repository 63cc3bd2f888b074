package netio

import (
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// exchange is one way to do a ping-pong: send all of p, then receive as much into it.
type exchange interface {
	send(p []byte) error
	recv(p []byte) error
	close()
}

// viaNet is what a program without this package does.
type viaNet struct{ c net.Conn }

func (x viaNet) send(p []byte) error { _, err := x.c.Write(p); return err }
func (x viaNet) recv(p []byte) error { _, err := io.ReadFull(x.c, p); return err }
func (x viaNet) close()              { x.c.Close() }

// viaWait parks in the network poller whenever there is nothing to do. It waits before it reads, as a
// device's receive goroutine does, which knows from a short read that nothing is left.
type viaWait struct {
	c   Conn
	vec [1][]byte
}

func (x *viaWait) send(p []byte) error { return x.move(p, x.c.TryWritev, x.c.WaitWritable) }
func (x *viaWait) close()              { x.c.Close() }

func (x *viaWait) recv(p []byte) error {
	for len(p) > 0 {
		if err := x.c.WaitReadable(); err != nil {
			return err
		}
		x.vec[0] = p
		n, err := x.c.TryReadv(x.vec[:])
		if err != nil && err != ErrWouldBlock {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (x *viaWait) move(p []byte, try func([][]byte) (int, error), wait func() error) error {
	for len(p) > 0 {
		x.vec[0] = p
		n, err := try(x.vec[:])
		if err == ErrWouldBlock {
			err = wait()
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// viaSpin asks again instead of parking, and yields between.
type viaSpin struct{ viaWait }

func (x *viaSpin) send(p []byte) error { return x.move(p, x.c.TryWritev, yield) }
func (x *viaSpin) recv(p []byte) error { return x.move(p, x.c.TryReadv, yield) }

func yield() error { runtime.Gosched(); return nil }

// viaRaw is the floor: read and write on the descriptor itself, spinning like viaSpin.
type viaRaw struct {
	fd    int
	alive net.Conn
}

func (x viaRaw) send(p []byte) error { return x.move(p, unix.SYS_WRITE) }
func (x viaRaw) recv(p []byte) error { return x.move(p, unix.SYS_READ) }
func (x viaRaw) close()              { x.alive.Close() }

func (x viaRaw) move(p []byte, trap uintptr) error {
	for len(p) > 0 {
		n, errno := rawIO(trap, x.fd, p)
		switch {
		case errno == unix.EAGAIN:
			runtime.Gosched()
		case errno != 0:
			return errno
		case n == 0:
			return io.EOF
		default:
			p = p[n:]
		}
	}
	return nil
}

// pair connects two ends over loopback and wraps each.
func pair(b *testing.B, wrap func(tc *net.TCPConn) exchange) (x, y exchange) {
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	c, err := net.DialTCP("tcp4", nil, ln.Addr().(*net.TCPAddr))
	if err != nil {
		b.Fatal(err)
	}
	s, err := ln.AcceptTCP()
	if err != nil {
		b.Fatal(err)
	}
	return wrap(c), wrap(s)
}

func mustFromNet(tc net.Conn) Conn {
	c, err := FromNet(tc)
	if err != nil {
		panic(err)
	}
	return c
}

func wrapNet(tc *net.TCPConn) exchange  { return viaNet{tc} }
func wrapWait(tc *net.TCPConn) exchange { return &viaWait{c: mustFromNet(tc)} }
func wrapSpin(tc *net.TCPConn) exchange { return &viaSpin{viaWait{c: mustFromNet(tc)}} }
func wrapPump(tc *net.TCPConn) exchange { return &viaWait{c: newPumpConn(tc)} }
func wrapRaw(tc *net.TCPConn) exchange {
	raw, err := tc.SyscallConn()
	if err != nil {
		panic(err)
	}
	var n int
	raw.Control(func(fd uintptr) { n = int(fd) })
	return viaRaw{n, tc}
}

// player is one ping-pong. Its echo lives for a run only, so that nothing spins beside another's.
type player struct {
	x, y     exchange
	buf, ech []byte
}

func newPlayer(b *testing.B, wrap func(*net.TCPConn) exchange, size int) *player {
	p := &player{buf: make([]byte, size), ech: make([]byte, size)}
	p.x, p.y = pair(b, wrap)
	b.Cleanup(func() { p.x.close(); p.y.close() })
	return p
}

func (p *player) run(b *testing.B, rounds int) time.Duration {
	done := make(chan error, 1)
	go func() {
		for range rounds {
			if err := errors.Join(p.y.recv(p.ech), p.y.send(p.ech)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	start := time.Now()
	for range rounds {
		if err := errors.Join(p.x.send(p.buf), p.x.recv(p.buf)); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(start)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return took
}

// BenchmarkPingPong compares round trips over loopback, both ends in this process. Each way runs in
// turns with its yardstick, since the machine's mood changes by the second, and reports the ratio of
// the two beside its own time: x/net for what parks, x/raw for what spins; below 1 is faster.
func BenchmarkPingPong(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
	}{{"8B", 8}, {"64KiB", 64 << 10}} {
		for _, way := range []struct {
			name      string
			wrap      func(*net.TCPConn) exchange
			yardstick func(*net.TCPConn) exchange
			ratio     string
		}{
			{"net", wrapNet, wrapNet, "x/net"},
			{"wait", wrapWait, wrapNet, "x/net"},
			{"pump", wrapPump, wrapNet, "x/net"},
			{"raw", wrapRaw, wrapRaw, "x/raw"},
			{"spin", wrapSpin, wrapRaw, "x/raw"},
		} {
			b.Run(size.name+"/"+way.name, func(b *testing.B) {
				p, base := newPlayer(b, way.wrap, size.n), newPlayer(b, way.yardstick, size.n)
				b.StopTimer()
				var own, other time.Duration
				for done := 0; done < b.N; {
					turn := min(200, b.N-done)
					other += base.run(b, turn)
					b.StartTimer()
					own += p.run(b, turn)
					b.StopTimer()
					done += turn
				}
				b.ReportMetric(float64(own)/float64(other), way.ratio)
			})
		}
	}
}

// BenchmarkCall is the cost of a call that moves nothing, beside that of the bare system call.
func BenchmarkCall(b *testing.B) {
	a, _ := tcpPair(b, &TCP{}, loopback[0])
	bufs := [][]byte{make([]byte, 64), make([]byte, 64)}
	b.Run("would-block", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.TryReadv(bufs); err != ErrWouldBlock {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare", func(b *testing.B) {
		var fd int
		a.(*sockConn).raw.Control(func(n uintptr) { fd = int(n) })
		for b.Loop() {
			if _, errno := rawIO(unix.SYS_READ, fd, bufs[0]); errno != unix.EAGAIN {
				b.Fatal(errno)
			}
		}
	})
	b.Run("wait-ready", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := a.WaitWritable(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("mss", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a.MSS()
		}
	})
}
