package iwarp

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rddp"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/internal/faultnet"
	"kdapl/internal/netio"
	"kdapl/verbs"
)

// peer is the scripted other end of a connection: it sends what the test says and
// collects what the device answers.
type peer struct {
	t   testing.TB
	nc  netio.Conn
	enc mpa.Encoder
	in  []byte
	crc bool
	// setUp: no FPDU of the device has come.
	setUp bool
}

// bytes sends as they are.
func (p *peer) bytes(b []byte) {
	p.t.Helper()
	if err := writeAll(p.nc, b); err != nil && !errors.Is(err, netio.ErrReset) {
		p.t.Fatal(err)
	}
}

// fpdu makes an FPDU.
func (p *peer) fpdu(ulpdu []byte) []byte { return p.enc.Finish(append(mpa.Begin(nil), ulpdu...), 0) }

// send sends ULPDUs.
func (p *peer) send(ulpdus ...[]byte) {
	p.t.Helper()
	for _, u := range ulpdus {
		p.bytes(p.fpdu(u))
	}
}

// more reads what is there, after everything has settled; false at the end of the stream.
func (p *peer) more() bool {
	buf := make([]byte, 1<<16)
	for {
		n, err := p.nc.TryReadv([][]byte{buf})
		p.in = append(p.in, buf[:n]...)
		switch {
		case err == netio.ErrWouldBlock:
			return true
		case err != nil:
			return false
		}
	}
}

// ulpdu takes the next FPDU out of what was read; nil if there is none.
func (p *peer) ulpdu() []byte {
	u, n, err := mpa.Parse(p.in, p.crc)
	if err != nil {
		p.t.Fatalf("the device sent a bad FPDU: %v", err)
	}
	if u == nil {
		return nil
	}
	p.in = p.in[n:]
	return u
}

// end reads to the end of the stream, which must come within the linger time, and returns the last FPDU
// if it is a Terminate.
func (p *peer) end() (m rdmap.Terminate, ok bool) {
	p.t.Helper()
	for start := time.Now(); p.more(); {
		if time.Since(start) > time.Minute {
			p.t.Fatal("the device does not end the connection")
		}
		time.Sleep(time.Millisecond)
	}
	for u := p.ulpdu(); u != nil; u = p.ulpdu() {
		if ok {
			p.t.Fatalf("an FPDU behind the Terminate: %x", u)
		}
		op, err := rdmap.CheckHeader(u, len(u))
		if err != nil {
			p.t.Fatalf("the device sent %x: %v", u, err)
		}
		if ok = op == rdmap.OpTerminate; ok {
			if m, err = rdmap.ParseTerminate(u[ddp.UntaggedLen:], p.setUp); err != nil {
				p.t.Fatalf("the device sent the Terminate %x: %v", u, err)
			}
		}
	}
	if len(p.in) > 0 {
		p.t.Fatalf("the stream ends inside an FPDU: %x", p.in)
	}
	return m, ok
}

// scene is a device at one end of a simulated network and a script at the other.
type scene struct {
	t    *testing.T
	e    *end // the device's
	host *faultnet.Host
	dev  netip.Addr
	lis  verbs.Listener
}

const (
	aliceAddr = "10.0.0.1" // the script's
	bobAddr   = "10.0.0.2" // the device's
)

// onStage runs a test in a bubble.
func onStage(t *testing.T, cfg Config, plan faultnet.Plan, f func(s *scene)) {
	t.Helper()
	onStageWith(t, cfg, plan, 16, 4096, f)
}

// onStageWith is onStage with the device's queues and memory.
func onStageWith(t *testing.T, cfg Config, plan faultnet.Plan, depth, size int, f func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := faultnet.New()
		n.Plan = func(faultnet.Attempt) faultnet.Plan { return plan }
		s := &scene{t: t, host: n.Host(netip.MustParseAddr(aliceAddr)), dev: netip.MustParseAddr(bobAddr)}
		h := n.Host(s.dev)
		h.UserTimeout, h.KeepAlive = time.Minute, time.Minute
		cfg.Addr, cfg.Network = s.dev, h
		t.Cleanup(func() { time.Sleep(time.Hour) })
		s.e = newEnd(t, New(cfg), depth, size)
		f(s)
	})
}

// listen lets the device accept one connection with its QP.
func (s *scene) listen(p verbs.ConnParams) {
	s.t.Helper()
	l, err := s.e.ctx.Listen(verbs.ListenConfig{Request: func(r verbs.ConnRequest) {
		if err := r.Accept(s.e.qp, p); err != nil && !errors.Is(err, verbs.ErrPeerGone) && !errors.Is(err, verbs.ErrState) {
			s.t.Error(err)
		}
	}})
	must(s.t, err)
	s.lis = l
	s.t.Cleanup(func() { l.Close() })
}

// dial connects to the device.
func (s *scene) dial() *peer {
	s.t.Helper()
	nc, err := s.host.Dial(context.Background(), netip.AddrPort{}, addrPort(s.lis.Addr()))
	must(s.t, err)
	s.t.Cleanup(func() { nc.Close() })
	return &peer{t: s.t, nc: nc}
}

// request sends a request and takes the reply.
func (p *peer) request(l mpa.Local, private []byte) mpa.Result {
	p.t.Helper()
	req := l.Request()
	b, err := mpa.AppendStartup(nil, mpa.Request, req, private)
	must(p.t, err)
	p.bytes(b)
	r := startup{kind: mpa.Reply}
	must(p.t, r.readFrom(p.nc))
	res, err := l.Conclude(req, r.frame.Header())
	must(p.t, err)
	p.enc = mpa.Encoder{CRC: res.CRC, Markers: res.SendMarkers}
	p.crc = res.CRC
	return res
}

// initiator is a usual request.
var initiator = mpa.Local{Rev: 2, CRC: true, IRD: 4, ORD: 4, MaxIRD: 128}

// connected is a script that has connected to the device.
func (s *scene) connected() *peer {
	s.t.Helper()
	s.listen(verbs.ConnParams{ReadsIn: 2, ReadsOut: 2})
	p := s.dial()
	p.request(initiator, nil)
	if ev := s.e.event(s.t); ev.Kind != verbs.ConnEstablished {
		s.t.Fatal(ev)
	}
	return p
}

// accept is a script that the device has connected to.
func (s *scene) accepted(l mpa.Local) *peer {
	s.t.Helper()
	ln, err := s.host.Listen(context.Background(), netip.MustParseAddrPort(aliceAddr+":7000"))
	must(s.t, err)
	defer ln.Close()
	must(s.t, s.e.qp.Connect(verbs.ConnParams{Remote: address(ln.Addr()), ReadsIn: 4, ReadsOut: 4}))
	nc, err := ln.Accept()
	must(s.t, err)
	s.t.Cleanup(func() { nc.Close() })
	p := &peer{t: s.t, nc: nc}
	r := startup{kind: mpa.Request}
	must(s.t, r.readFrom(nc))
	rep, res, err := l.Answer(r.frame.Header())
	must(s.t, err)
	b, err := mpa.AppendStartup(nil, mpa.Reply, rep, nil)
	must(s.t, err)
	p.bytes(b)
	p.enc = mpa.Encoder{CRC: res.CRC}
	p.crc = res.CRC
	return p
}

var responder = mpa.Local{Rev: 2, CRC: true, RTR: mpa.RTRWrite, IRD: 4, ORD: 4}

// broken takes the event of a broken connection and its fault.
func (s *scene) broken() *Fault {
	s.t.Helper()
	ev := s.e.event(s.t)
	f, ok := errors.AsType[*Fault](ev.Err)
	if ev.Kind != verbs.ConnBroken || !ok {
		s.t.Fatalf("event %v, want one of a fault", ev)
	}
	return f
}

func (f *Fault) code() rddp.Code { return rddp.MakeCode(rddp.Layer(f.Layer), f.Type, f.Code) }

func (s *scene) recv(off, n int) {
	s.t.Helper()
	_, err := s.e.qp.PostRecv([]verbs.RecvWR{{ID: 1, NumSGE: 1, SGE: [8]verbs.SGE{s.e.sge(off, n)}}})
	must(s.t, err)
}

// sendU and so on make ULPDUs.
func sendU(op rdmap.Opcode, last bool, msn, mo uint32, payload string) []byte {
	return append(rdmap.AppendSend(nil, op, last, 0x1234, msn, mo), payload...)
}

func writeU(stag uint32, to uint64, payload string) []byte {
	return append(rdmap.AppendWrite(nil, true, stag, to), payload...)
}

func readU(msn uint32, r rdmap.ReadRequest) []byte { return rdmap.AppendReadRequest(nil, msn, r) }

func patched(u []byte, at int, v byte) []byte { u[at] = v; return u }
