package iwarp

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"kdapl/internal/netio"
	"kdapl/verbs"
)

// poll looks once and, if there is nothing, helps the device along.
func poll(cq verbs.CQ, cs []verbs.Completion) int {
	n := cq.Poll(cs)
	if n == 0 {
		cq.(verbs.Progresser).Progress()
	}
	return n
}

func benchCRC(b *testing.B, f func(b *testing.B, cfg Config)) {
	b.Run("crc", func(b *testing.B) { f(b, Config{}) })
	b.Run("nocrc", func(b *testing.B) { f(b, Config{NoCRC: true}) })
}

// BenchmarkPingPong is a round trip of polled sends; half of it is the latency.
func BenchmarkPingPong(b *testing.B) {
	for _, size := range []int{8, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.Run("net", func(b *testing.B) { rawPingPong(b, size) })
			benchCRC(b, func(b *testing.B, cfg Config) { pingPong(b, cfg, size) })
		})
	}
}

func pingPong(b *testing.B, cfg Config, size int) {
	x, y := newPair(b, cfg, 16, size)
	echo := func(e *end, first bool, n int) {
		recv := []verbs.RecvWR{{NumSGE: 1, SGE: [8]verbs.SGE{e.sge(0, size)}}}
		send := []verbs.SendWR{{Op: verbs.OpSend, NumSGE: 1, SGE: [8]verbs.SGE{e.sge(0, size)}}}
		cs := make([]verbs.Completion, 4)
		for range n {
			if first {
				e.qp.PostSend(send)
			}
			for poll(e.recv, cs) == 0 {
			}
			e.qp.PostRecv(recv)
			if !first {
				e.qp.PostSend(send)
			}
		}
	}
	for _, e := range []*end{x, y} {
		_, err := e.qp.PostRecv([]verbs.RecvWR{{NumSGE: 1, SGE: [8]verbs.SGE{e.sge(0, size)}}})
		must(b, err)
	}
	n := b.N
	b.ReportAllocs()
	b.SetBytes(int64(2 * size))
	b.ResetTimer()
	done := make(chan bool)
	go func() { echo(y, false, n); close(done) }()
	echo(x, true, n)
	<-done
}

// rawConns is a pair of connections of package netio.
func rawConns(b *testing.B) (x, y netio.Conn) {
	n := &netio.TCP{}
	ln, err := n.Listen(context.Background(), netip.MustParseAddrPort("127.0.0.1:0"))
	must(b, err)
	defer ln.Close()
	x, err = n.Dial(context.Background(), netip.AddrPort{}, ln.Addr())
	must(b, err)
	y, err = ln.Accept()
	must(b, err)
	b.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

func move(try func([][]byte) (int, error), p []byte) {
	v := make([][]byte, 1)
	for i := 1; len(p) > 0; i++ {
		v[0] = p[:min(len(p), netio.MaxBytes)]
		n, err := try(v)
		if p = p[n:]; err != nil && i%16 == 0 {
			runtime.Gosched()
		}
	}
}

// rawPingPong is the same on netio alone.
func rawPingPong(b *testing.B, size int) {
	x, y := rawConns(b)
	n := b.N
	b.SetBytes(int64(2 * size))
	done := make(chan bool)
	go func() {
		buf := make([]byte, size)
		for range n {
			move(y.TryReadv, buf)
			move(y.TryWritev, buf)
		}
		close(done)
	}()
	buf := make([]byte, size)
	for range n {
		move(x.TryWritev, buf)
		move(x.TryReadv, buf)
	}
	<-done
}

// BenchmarkStream is one way: lists of messages, as fast as they are taken.
func BenchmarkStream(b *testing.B) {
	for _, c := range []struct{ size, list int }{{8, 64}, {64, 64}, {1 << 10, 64}, {4 << 10, 16}, {64 << 10, 4}, {1 << 20, 2}} {
		b.Run(fmt.Sprintf("send%dx%d", c.list, c.size), func(b *testing.B) {
			benchCRC(b, func(b *testing.B, cfg Config) { stream(b, cfg, verbs.OpSend, c.size, c.list) })
		})
	}
	for _, c := range []struct{ size, list int }{{8, 64}, {8, 1}, {1 << 20, 2}} {
		b.Run(fmt.Sprintf("write%dx%d", c.list, c.size), func(b *testing.B) {
			benchCRC(b, func(b *testing.B, cfg Config) { stream(b, cfg, verbs.OpRDMAWrite, c.size, c.list) })
		})
	}
	for _, size := range []int{64 << 10} {
		b.Run(fmt.Sprintf("read%d", size), func(b *testing.B) {
			benchCRC(b, func(b *testing.B, cfg Config) { stream(b, cfg, verbs.OpRDMARead, size, 4) })
		})
	}
	b.Run("net", rawStream)
}

// stream posts lists of messages and keeps a bounded number outstanding; b.N counts messages.
func stream(b *testing.B, cfg Config, op verbs.Opcode, size, list int) {
	const depth = 512
	x, y := newPair(b, cfg, depth, max(size, 4096))
	wrs := make([]verbs.SendWR, list)
	for i := range wrs {
		wrs[i] = verbs.SendWR{Op: op, NumSGE: 1, SGE: [8]verbs.SGE{x.sge(0, size)}, RemoteKey: y.mr.RKey(), RemoteAddr: 0x10000, Flags: verbs.SendSignaled}
	}
	recvs := make([]verbs.RecvWR, depth/2)
	for i := range recvs {
		recvs[i] = verbs.RecvWR{NumSGE: 1, SGE: [8]verbs.SGE{y.sge(0, size)}}
	}
	lists := (b.N + list - 1) / list
	b.ReportAllocs()
	b.SetBytes(int64(size))
	b.ResetTimer()
	// The receiver returns a credit for each half of its queue.
	credit := make(chan int, 64)
	done := make(chan bool)
	if op == verbs.OpSend {
		y.qp.PostRecv(recvs)
		y.qp.PostRecv(recvs)
		credit <- depth
		go func() {
			cs := make([]verbs.Completion, 64)
			got, back := 0, 0
			for got < lists*list {
				n := poll(y.recv, cs)
				got += n
				if back += n; back >= depth/2 {
					y.qp.PostRecv(recvs)
					back -= depth / 2
					credit <- depth / 2
				}
			}
			close(done)
		}()
	} else {
		stop := make(chan bool)
		defer close(stop)
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					y.recv.(verbs.Progresser).Progress()
				}
			}
		}()
		close(done)
	}
	cs := make([]verbs.Completion, 128)
	have, out := 0, 0
	for range lists {
		for op == verbs.OpSend && have < list {
			select {
			case n := <-credit:
				have += n
			default:
				out -= poll(x.sendCQ, cs)
			}
		}
		have -= list
		for out > depth-list {
			out -= poll(x.sendCQ, cs)
		}
		n, err := x.qp.PostSend(wrs)
		if n != list {
			b.Fatal(n, err)
		}
		out += n
	}
	for out > 0 {
		out -= poll(x.sendCQ, cs)
	}
	for {
		select {
		case <-done:
			return
		default:
			x.sendCQ.(verbs.Progresser).Progress()
		}
	}
}

// rawStream is 64 KiB a message on netio alone.
func rawStream(b *testing.B) {
	x, y := rawConns(b)
	n := b.N
	b.SetBytes(64 << 10)
	done := make(chan bool)
	go func() {
		buf := make([]byte, 256<<10)
		for left := n * 64 << 10; left > 0; {
			k := min(left, len(buf))
			move(y.TryReadv, buf[:k])
			left -= k
		}
		close(done)
	}()
	buf := make([]byte, 256<<10)
	for left := n * 64 << 10; left > 0; {
		k := min(left, len(buf))
		move(x.TryWritev, buf[:k])
		left -= k
	}
	<-done
}
