package iwarp

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"kdapl/device/internal/softnic"
	"kdapl/internal/pcap"
	"kdapl/verbs"
)

// Posting and polling, of either side, allocate nothing.
func TestDataPathsDoNotAllocate(t *testing.T) {
	a, b := newPair(t, Config{}, 64, 4096)
	for _, e := range []*end{a, b} {
		clear(e.buf)
	}
	sge := [8]verbs.SGE{a.sge(0, 64)}
	remote := func(op verbs.Opcode, n int) verbs.SendWR {
		return verbs.SendWR{Op: op, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{a.sge(1024, n)}, RemoteKey: b.mr.RKey(), RemoteAddr: 0x10000 + 2048}
	}
	recvs := []verbs.RecvWR{{NumSGE: 1, SGE: [8]verbs.SGE{b.sge(0, 64)}}, {}, {}}
	imm := remote(verbs.OpRDMAWriteImm, 8)
	sends := []verbs.SendWR{
		{Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSGE: 1, SGE: sge}, remote(verbs.OpRDMAWrite, 512), imm, remote(verbs.OpRDMARead, 512),
		remote(verbs.OpFetchAdd, 8), {Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendSolicited},
	}
	cs := make([]verbs.Completion, 16)
	round := func() {
		if n, err := b.qp.PostRecv(recvs); n != len(recvs) {
			t.Fatal(err)
		}
		if n, err := a.qp.PostSend(sends); n != len(sends) {
			t.Fatal(err)
		}
		take(t, a.sendCQ, cs[:len(sends)])
		take(t, b.recv, cs[:len(recvs)])
		for _, c := range cs[:len(recvs)] {
			if c.Status != verbs.StatusSuccess {
				t.Fatal(c)
			}
		}
	}
	// Pools and the goroutines of a consumer that does not poll yet come first; a collection may empty
	// a pool, so one round in a hundred may allocate.
	for range 200 {
		round()
	}
	if n := testing.AllocsPerRun(500, round); n >= 1 {
		t.Errorf("%v allocations for a list of all operations", n)
	}
}

// An idle connection has one goroutine at each end, and no buffer.
func TestIdleConnection(t *testing.T) {
	before := runtime.NumGoroutine()
	const pairs = 50
	var ends []*end
	d := New(Config{})
	for range pairs {
		a, b := newEnd(t, d, 4, 64), newEnd(t, d, 4, 64)
		connect(t, a, b)
		ends = append(ends, a, b)
	}
	settled := func() bool {
		if n := runtime.NumGoroutine() - before; n > 2*pairs {
			return false
		}
		for _, e := range ends {
			c := e.conn()
			if !c.rx.take() {
				return false
			}
			idle := c.rx.buf == nil
			c.rx.give()
			if !idle {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(10 * time.Second); !settled(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines for %d connections, or buffers in idle ones", runtime.NumGoroutine()-before, pairs)
		}
	}
}

// A capture file holds what went over the wire, in both directions, to the FINs.
func TestCapture(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.pcapng")
	a := newEnd(t, New(Config{CaptureFile: name}), 16, 4096)
	b := newEnd(t, New(Config{}), 16, 4096)
	connect(t, a, b)
	_, err := b.qp.PostRecv([]verbs.RecvWR{{NumSGE: 1, SGE: [8]verbs.SGE{b.sge(0, 100)}}})
	must(t, err)
	copy(a.buf, "what a capture shows")
	_, err = a.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, NumSGE: 1, SGE: [8]verbs.SGE{a.sge(0, 20)}}})
	must(t, err)
	cs := make([]verbs.Completion, 1)
	take(t, b.recv, cs)
	must(t, a.qp.Disconnect(true))
	a.event(t)
	b.event(t)
	var conns []*pcap.Connection
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		raw, err := os.ReadFile(name)
		must(t, err)
		if r, err := pcap.NewReader(bytes.NewReader(raw)); err == nil {
			if conns, err = pcap.Assemble(r); err == nil && len(conns) == 1 && conns[0].ToServer.FIN && conns[0].ToClient.FIN {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("no whole connection in the capture")
		}
	}
	if c := conns[0]; !bytes.HasPrefix(c.ToServer.Bytes, []byte("MPA ID Req Frame")) || !bytes.Contains(c.ToServer.Bytes, []byte("what a capture shows")) ||
		!bytes.HasPrefix(c.ToClient.Bytes, []byte("MPA ID Rep Frame")) {
		t.Errorf("%q\n%q", c.ToServer.Bytes, c.ToClient.Bytes)
	}
}

// conn is the TCP connection of an end.
func (e *end) conn() *conn {
	w := e.qp.(*softnic.QP).Wire().(*wire)
	l := w.qp.Lane()
	l.Lock()
	defer l.Unlock()
	return w.c
}
