package iwarp

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rddp"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/internal/faultnet"
	"kdapl/verbs"
)

// Each violation ends the connection with the Terminate that RFC 6580 has for it, and with an event that
// says the same; nothing of the device's memory changes.
func TestViolationsAreTerminated(t *testing.T) {
	type keys struct{ all, other, readOnly, writeOnly uint32 }
	const base = 0x10000
	cases := []struct {
		name   string
		ulpdus func(k keys) [][]byte
		want   rddp.Code
	}{
		{"send with DDP version 0", func(keys) [][]byte { return [][]byte{patched(sendU(rdmap.OpSend, true, 1, 0, "x"), 0, 0x40)} }, rddp.DDPUntaggedVersion},
		{"write with DDP version 2", func(k keys) [][]byte { return [][]byte{patched(writeU(k.all, base, "x"), 0, 0xC2)} }, rddp.DDPTaggedVersion},
		{"RDMAP version 0", func(keys) [][]byte { return [][]byte{patched(sendU(rdmap.OpSend, true, 1, 0, "x"), 1, 0x03)} }, rddp.RDMAPVersion},
		{"opcode C", func(keys) [][]byte { return [][]byte{patched(sendU(rdmap.OpSend, true, 1, 0, "x"), 1, 0x4C)} }, rddp.RDMAPOpcode},
		{"tagged send", func(k keys) [][]byte { return [][]byte{patched(writeU(k.all, base, "x"), 1, 0x43)} }, rddp.RDMAPOpcode},
		{"untagged write", func(keys) [][]byte { return [][]byte{patched(sendU(rdmap.OpSend, true, 1, 0, "x"), 1, 0x40)} }, rddp.RDMAPOpcode},
		{"queue 4", func(keys) [][]byte { return [][]byte{patched(sendU(rdmap.OpSend, true, 1, 0, "x"), 9, 4)} }, rddp.DDPInvalidQN},
		{"send on queue 1", func(keys) [][]byte { return [][]byte{patched(sendU(rdmap.OpSend, true, 1, 0, "x"), 9, 1)} }, rddp.DDPInvalidQN},
		{"send with MSN 0", func(keys) [][]byte { return [][]byte{sendU(rdmap.OpSend, true, 0, 0, "x")} }, rddp.DDPMSNRange},
		{"send with MSN 2", func(keys) [][]byte { return [][]byte{sendU(rdmap.OpSend, true, 2, 0, "x")} }, rddp.DDPMSNRange},
		{"send repeated", func(keys) [][]byte {
			return [][]byte{sendU(rdmap.OpSend, true, 1, 0, ""), sendU(rdmap.OpSend, true, 1, 0, "")}
		}, rddp.DDPMSNRange},
		{"send with an offset", func(keys) [][]byte { return [][]byte{sendU(rdmap.OpSend, true, 1, 4, "x")} }, rddp.DDPInvalidMO},
		{"gap in a send", func(keys) [][]byte {
			return [][]byte{sendU(rdmap.OpSend, false, 1, 0, ""), sendU(rdmap.OpSend, true, 1, 5, "efgh")}
		}, rddp.DDPInvalidMO},
		{"send inside a send", func(keys) [][]byte {
			return [][]byte{sendU(rdmap.OpSend, false, 1, 0, ""), sendU(rdmap.OpSend, true, 2, 0, "efgh")}
		}, rddp.DDPMSNRange},
		{"send that changes its opcode", func(keys) [][]byte {
			return [][]byte{sendU(rdmap.OpSend, false, 1, 0, ""), sendU(rdmap.OpSendSE, true, 1, 0, "")}
		}, rddp.RDMAPOpcode},
		{"immediate data inside a send", func(keys) [][]byte {
			return [][]byte{sendU(rdmap.OpSend, false, 1, 0, ""), rdmap.AppendImmediate(nil, rdmap.OpImmediate, 1, [8]byte{})}
		}, rddp.RDMAPOpcode},
		{"send one byte too long", func(keys) [][]byte { return [][]byte{sendU(rdmap.OpSend, true, 1, 0, strings.Repeat("x", 17))} }, rddp.DDPTooLong},
		{"send too long in its second segment", func(keys) [][]byte {
			return [][]byte{sendU(rdmap.OpSend, false, 1, 0, ""), sendU(rdmap.OpSend, true, 1, 0, strings.Repeat("x", 17))}
		}, rddp.DDPTooLong},
		{"no receive", func(keys) [][]byte {
			return [][]byte{sendU(rdmap.OpSend, true, 1, 0, ""), sendU(rdmap.OpSend, true, 2, 0, "")}
		}, rddp.DDPNoBuffer},
		{"no receive for the first of two segments", func(keys) [][]byte {
			return [][]byte{sendU(rdmap.OpSend, true, 1, 0, ""), sendU(rdmap.OpSend, false, 2, 0, "x")}
		}, rddp.DDPNoBuffer},
		{"no receive for immediate data", func(keys) [][]byte {
			return [][]byte{sendU(rdmap.OpSend, true, 1, 0, ""), rdmap.AppendImmediate(nil, rdmap.OpImmediate, 2, [8]byte{})}
		}, rddp.DDPNoBuffer},
		{"write to an unknown STag", func(k keys) [][]byte { return [][]byte{writeU(k.all^1, base, "x")} }, rddp.DDPInvalidSTag},
		{"write to STag 0", func(keys) [][]byte { return [][]byte{writeU(0, base, "x")} }, rddp.DDPInvalidSTag},
		{"write without the right", func(k keys) [][]byte { return [][]byte{writeU(k.readOnly, base, "x")} }, rddp.DDPInvalidSTag},
		{"write of another protection domain", func(k keys) [][]byte { return [][]byte{writeU(k.other, base, "x")} }, rddp.DDPSTagStream},
		{"write before the region", func(k keys) [][]byte { return [][]byte{writeU(k.all, base-1, "xy")} }, rddp.DDPBounds},
		{"write across the end of the region", func(k keys) [][]byte { return [][]byte{writeU(k.all, base+4095, "xy")} }, rddp.DDPBounds},
		{"write across the end of the address space", func(k keys) [][]byte { return [][]byte{writeU(k.all, ^uint64(0), "xy")} }, rddp.DDPTOWrap},
		{"read of an unknown STag", func(k keys) [][]byte {
			return [][]byte{readU(1, rdmap.ReadRequest{SrcSTag: k.all ^ 1, SrcTO: base, Size: 1})}
		}, rddp.RDMAPInvalidSTag},
		{"read without the right", func(k keys) [][]byte {
			return [][]byte{readU(1, rdmap.ReadRequest{SrcSTag: k.writeOnly, SrcTO: base, Size: 1})}
		}, rddp.RDMAPAccess},
		{"read of another protection domain", func(k keys) [][]byte {
			return [][]byte{readU(1, rdmap.ReadRequest{SrcSTag: k.other, SrcTO: base, Size: 1})}
		}, rddp.RDMAPSTagStream},
		{"read out of bounds", func(k keys) [][]byte {
			return [][]byte{readU(1, rdmap.ReadRequest{SrcSTag: k.all, SrcTO: base, Size: 4097})}
		}, rddp.RDMAPBounds},
		{"read of 4 GiB", func(k keys) [][]byte {
			return [][]byte{readU(1, rdmap.ReadRequest{SrcSTag: k.all, SrcTO: base, Size: 1<<32 - 1})}
		}, rddp.RDMAPBounds},
		{"read across the end of the address space", func(k keys) [][]byte {
			return [][]byte{readU(1, rdmap.ReadRequest{SrcSTag: k.all, SrcTO: ^uint64(0), Size: 2})}
		}, rddp.RDMAPTOWrap},
		{"read with MSN 5", func(k keys) [][]byte { return [][]byte{readU(5, rdmap.ReadRequest{})} }, rddp.DDPMSNRange},
		{"read request with payload", func(keys) [][]byte { return [][]byte{append(readU(1, rdmap.ReadRequest{}), "more"...)} }, rddp.DDPTooLong},
		{"read request cut short", func(keys) [][]byte { return [][]byte{readU(1, rdmap.ReadRequest{})[:40]} }, rddp.RDMAPOperationUnspecified},
		{"invalidation of an unknown STag", func(keys) [][]byte { return [][]byte{sendU(rdmap.OpSendInv, true, 1, 0, "x")} }, rddp.RDMAPProtectInvalidate},
		{"read response that nobody asked for", func(k keys) [][]byte {
			return [][]byte{append(rdmap.AppendReadResponse(nil, true, k.all, base), 'x')}
		}, rddp.RDMAPOpcode},
		{"atomic response that nobody asked for", func(keys) [][]byte {
			return [][]byte{rdmap.AppendAtomicResponse(nil, 1, rdmap.AtomicResponse{})}
		}, rddp.RDMAPOpcode},
		{"misaligned atomic", func(k keys) [][]byte {
			return [][]byte{rdmap.AppendAtomicRequest(nil, 1, rdmap.AtomicRequest{STag: k.all, TO: base + 4, Data: 1})}
		}, rddp.RDMAPStreamCatastrophic},
		{"atomic without the right", func(k keys) [][]byte {
			return [][]byte{rdmap.AppendAtomicRequest(nil, 1, rdmap.AtomicRequest{STag: k.readOnly, TO: base, Data: 1})}
		}, rddp.RDMAPAccess},
		{"unknown atomic", func(k keys) [][]byte {
			return [][]byte{patched(rdmap.AppendAtomicRequest(nil, 1, rdmap.AtomicRequest{STag: k.all, TO: base}), 21, 1)}
		}, rddp.RDMAPOpcode},
		{"ULPDU of no bytes", func(keys) [][]byte { return [][]byte{{}} }, rddp.MPAMarker},
		{"ULPDU shorter than its header", func(keys) [][]byte { return [][]byte{sendU(rdmap.OpSend, true, 1, 0, "")[:17]} }, rddp.MPAMarker},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
				reg := func(pd verbs.PD, a verbs.Access) uint32 {
					mr, err := pd.RegMR(s.e.buf, base, a)
					must(t, err)
					return mr.RKey()
				}
				pd, err := s.e.ctx.AllocPD()
				must(t, err)
				k := keys{s.e.mr.RKey(), reg(pd, allAccess), reg(s.e.pd, verbs.AccessRemoteRead), reg(s.e.pd, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)}
				s.recv(0, 16)
				p := s.connected()
				ulpdus := c.ulpdus(k)
				p.send(ulpdus...)
				m, ok := p.end()
				if !ok || m.Code != c.want {
					t.Errorf("the device sent a Terminate %v with %v, want %v", ok, m.Code, c.want)
				}
				if m.Code.Layer() != rddp.LayerLLP && m.DDP == nil {
					t.Error("the Terminate quotes no header")
				}
				if f := s.broken(); f.ByPeer || f.code() != c.want {
					t.Errorf("the event says %v", f)
				}
				if !bytes.Equal(s.e.buf, make([]byte, len(s.e.buf))) {
					t.Error("memory has changed")
				}
			})
		})
	}
}

func TestBadCRCIsTerminated(t *testing.T) {
	onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
		s.recv(0, 16)
		p := s.connected()
		p.send(writeU(0, 0, ""))
		f := p.fpdu(sendU(rdmap.OpSend, true, 1, 0, "hello"))
		f[24] ^= 1
		p.bytes(f)
		if m, ok := p.end(); !ok || m.Code != rddp.MPACRC {
			t.Errorf("Terminate %v %v", ok, m.Code)
		}
		if f := s.broken(); f.code() != rddp.MPACRC {
			t.Error(f)
		}
		if s.e.buf[0] != 0 {
			t.Error("what came with a bad CRC was placed")
		}
	})
}

// The passive side may not send before the first valid FPDU, not even a Terminate (RFC 5044 section 7.1.2).
func TestBadFirstCRCIsNotAnswered(t *testing.T) {
	onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
		p := s.connected()
		f := p.fpdu(sendU(rdmap.OpSend, true, 1, 0, "hello"))
		f[24] ^= 1
		p.bytes(f)
		if m, ok := p.end(); ok {
			t.Errorf("Terminate %v", m.Code)
		}
		if f := s.broken(); f.code() != rddp.MPACRC {
			t.Error(f)
		}
	})
}

// With CRCs off the field may hold anything, and the pad always.
func TestPadAndUnusedCRCAreNotChecked(t *testing.T) {
	onStage(t, Config{NoCRC: true}, faultnet.Plan{}, func(s *scene) {
		s.recv(0, 16)
		s.listen(verbs.ConnParams{})
		p := s.dial()
		if res := p.request(mpa.Local{Rev: 2}, nil); res.CRC {
			t.Fatal("CRC is on though nobody wants it")
		}
		s.e.event(t)
		f := p.fpdu(sendU(rdmap.OpSend, true, 1, 0, "x"))
		copy(f[len(f)-7:], "garbage")
		p.bytes(f)
		cs := make([]verbs.Completion, 1)
		if take(t, s.e.recv, cs); cs[0].Status != verbs.StatusSuccess || s.e.buf[0] != 'x' {
			t.Error(cs, s.e.buf[:4])
		}
	})
}

// One request more than the agreed depth, while the answers to the others cannot leave.
func TestMoreReadsThanAgreedAreTerminated(t *testing.T) {
	plan := faultnet.Plan{}
	plan.Down.Window = 1000
	onStage(t, Config{}, plan, func(s *scene) {
		p := s.connected() // 2 may be outstanding
		for msn := range uint32(400) {
			p.send(readU(msn+1, rdmap.ReadRequest{SrcSTag: s.e.mr.RKey(), SrcTO: 0x10000, Size: 4096}))
		}
		m, ok := p.end()
		if !ok || m.Code != rddp.DDPNoBuffer {
			t.Errorf("Terminate %v %v", ok, m.Code)
		}
		s.broken()
	})
}

// What a peer answers to a read that it should answer.
func TestWrongReadResponsesAreTerminated(t *testing.T) {
	response := func(r rdmap.ReadRequest, last bool, key uint32, to uint64, n int) []byte {
		return append(rdmap.AppendReadResponse(nil, last, r.SinkSTag+key, r.SinkTO+to), make([]byte, n)...)
	}
	for _, c := range []struct {
		name string
		resp func(r rdmap.ReadRequest) [][]byte
		want rddp.Code
	}{
		{"another STag", func(r rdmap.ReadRequest) [][]byte { return [][]byte{response(r, true, 1, 0, 64)} }, rddp.DDPInvalidSTag},
		{"another offset", func(r rdmap.ReadRequest) [][]byte { return [][]byte{response(r, true, 0, 8, 64)} }, rddp.DDPBounds},
		{"too short", func(r rdmap.ReadRequest) [][]byte { return [][]byte{response(r, true, 0, 0, 63)} }, rddp.DDPBounds},
		{"too long", func(r rdmap.ReadRequest) [][]byte { return [][]byte{response(r, true, 0, 0, 65)} }, rddp.DDPBounds},
		{"a gap", func(r rdmap.ReadRequest) [][]byte {
			return [][]byte{response(r, false, 0, 0, 8), response(r, true, 0, 16, 48)}
		}, rddp.DDPBounds},
		{"twice", func(r rdmap.ReadRequest) [][]byte {
			return [][]byte{response(r, true, 0, 0, 64), response(r, true, 0, 0, 64)}
		}, rddp.RDMAPOpcode},
	} {
		t.Run(c.name, func(t *testing.T) {
			onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
				p := s.accepted(responder)
				if ev := s.e.event(t); ev.Kind != verbs.ConnEstablished {
					t.Fatal(ev)
				}
				_, err := s.e.qp.PostSend([]verbs.SendWR{{ID: 9, Op: verbs.OpRDMARead, NumSGE: 1, SGE: [8]verbs.SGE{s.e.sge(0, 64)}, RemoteKey: 5, RemoteAddr: 6}})
				must(t, err)
				for p.more() && len(p.in) < 20+52 {
					time.Sleep(time.Millisecond)
				}
				rtr, u := p.ulpdu(), p.ulpdu()
				if !bytes.Equal(rtr, writeU(sinkKey, 0, "")) {
					t.Errorf("the RTR message is %x", rtr)
				}
				r, err := rdmap.ParseReadRequest(u[18:])
				if err != nil || r.SrcSTag != 5 || r.SrcTO != 6 || r.Size != 64 {
					t.Fatal(r, err)
				}
				p.send(c.resp(r)...)
				if m, ok := p.end(); !ok || m.Code != c.want {
					t.Errorf("Terminate %v %v, want %v", ok, m.Code, c.want)
				}
				if f := s.broken(); f.code() != c.want {
					t.Error(f)
				}
			})
		})
	}
}

// A Terminate of the peer, in the RFC's order of bits or in that of siw, ends the connection without an
// answer; the event says what it said, and the read that it is about gets a status.
func TestTerminateOfThePeer(t *testing.T) {
	for _, siw := range []bool{false, true} {
		onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
			p := s.accepted(responder)
			s.e.event(t)
			_, err := s.e.qp.PostSend([]verbs.SendWR{
				{ID: 9, Op: verbs.OpRDMARead, NumSGE: 1, SGE: [8]verbs.SGE{s.e.sge(0, 64)}, RemoteKey: 5, RemoteAddr: 6},
				{ID: 10, Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{s.e.sge(0, 64)}, RemoteKey: 5, RemoteAddr: 6},
			})
			must(t, err)
			u := rdmap.AppendTerminate(nil, rdmap.Terminate{Code: rddp.RDMAPAccess, LengthValid: true, DDP: readU(1, rdmap.ReadRequest{})})
			if siw {
				u[18], u[20] = u[18]<<4|u[18]>>4, 0x03
			}
			p.send(u)
			if f := s.broken(); !f.ByPeer || f.code() != rddp.RDMAPAccess {
				t.Error(f)
			}
			cs := make([]verbs.Completion, 3)
			take(t, s.e.sendCQ, cs)
			if cs[0].ID != 9 || cs[0].Status != verbs.StatusRemoteAccess || cs[1].ID != 10 || cs[1].Status != verbs.StatusFlushed || cs[2].Op != verbs.OpDrained {
				t.Error(cs)
			}
			if m, ok := p.end(); ok {
				t.Errorf("the device answers with a Terminate: %v", m.Code)
			}
		})
	}
}

// setUpEnds checks that the device ends a connection that never got as far as a request, within the
// start-up time, and tells nobody.
func setUpEnds(t *testing.T, send string, within time.Duration) {
	t.Helper()
	onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
		s.listen(verbs.ConnParams{})
		p := s.dial()
		p.bytes([]byte(send))
		start := time.Now()
		for p.more() {
			time.Sleep(time.Millisecond)
		}
		if d := time.Since(start); d > within+time.Second || len(p.in) > 0 {
			t.Errorf("after %v, with %q", d, p.in)
		}
	})
}

func TestHalfOpenSetUps(t *testing.T) {
	request, _ := mpa.AppendStartup(nil, mpa.Request, initiator.Request(), []byte("private"))
	reply, _ := mpa.AppendStartup(nil, mpa.Reply, initiator.Request(), nil)
	for _, n := range []int{0, 1, 15, 16, 19, 20, 23, len(request) - 1} {
		setUpEnds(t, string(request[:n]), defaultStart)
	}
	setUpEnds(t, "GET / HTTP/1.1\r\n\r\n", 0)
	setUpEnds(t, string(reply), 0)
	long := bytes.Clone(request)
	binary.BigEndian.PutUint16(long[18:], 513)
	setUpEnds(t, string(long), 0)
	rev := bytes.Clone(request)
	rev[17] = 3
	setUpEnds(t, string(rev), 0)
	short := bytes.Clone(request[:20])
	short[19] = 3
	setUpEnds(t, string(short)+"abc", 0)
}

// Stray bytes behind the request end it, before an answer and in place of one.
func TestStrayBytesBehindTheRequest(t *testing.T) {
	onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
		reqs := make(chan verbs.ConnRequest, 1)
		l, err := s.e.ctx.Listen(verbs.ListenConfig{Request: func(r verbs.ConnRequest) { reqs <- r }})
		must(t, err)
		defer l.Close()
		s.lis = l
		p := s.dial()
		b, _ := mpa.AppendStartup(nil, mpa.Request, initiator.Request(), nil)
		p.bytes(b)
		r := <-reqs
		p.bytes(p.fpdu(sendU(rdmap.OpSend, true, 1, 0, "early")))
		if _, ok := p.end(); ok || len(p.in) > 0 {
			t.Errorf("an answer: %q", p.in)
		}
		if err := r.Accept(s.e.qp, verbs.ConnParams{}); err != verbs.ErrPeerGone {
			t.Error(err)
		}
	})
}

// A slow peer holds one place of a bounded number, and only for the start-up time.
func TestSlowPeersAreBounded(t *testing.T) {
	onStage(t, Config{MaxHalfOpen: 3}, faultnet.Plan{}, func(s *scene) {
		s.listen(verbs.ConnParams{ReadsIn: 1})
		var slow []*peer
		for range 3 {
			p := s.dial()
			p.bytes([]byte("MPA"))
			slow = append(slow, p)
		}
		time.Sleep(time.Second)
		p := s.dial()
		time.Sleep(time.Millisecond)
		if p.more() {
			t.Error("one connection too many is kept")
		}
		time.Sleep(defaultStart)
		for _, p := range slow {
			if p.more() {
				t.Error("a slow peer is kept")
			}
		}
		s.dial().request(initiator, nil)
		s.e.event(t)
	})
}

// In peer-to-peer mode the connection is established by the first message, of whatever kind.
func TestRTRMessages(t *testing.T) {
	l := initiator
	l.PeerToPeer, l.RTR = true, mpa.RTRSend|mpa.RTRWrite|mpa.RTRRead
	for name, u := range map[string][]byte{
		"write": writeU(1, 0, ""), "read": readU(1, rdmap.ReadRequest{SinkSTag: 1, SrcSTag: 1}), "send": sendU(rdmap.OpSend, true, 1, 0, ""),
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
				s.recv(0, 16)
				s.listen(verbs.ConnParams{})
				p := s.dial()
				p.request(l, nil)
				time.Sleep(time.Second)
				if len(s.e.events) > 0 || s.e.qp.State() != verbs.QPRTR {
					t.Fatal("established before the RTR message")
				}
				p.send(u)
				if ev := s.e.event(t); ev.Kind != verbs.ConnEstablished {
					t.Fatal(ev)
				}
				// The receive is still there, and the sequence goes on.
				msn := uint32(1)
				if name == "send" {
					msn = 2
				}
				p.send(sendU(rdmap.OpSend, true, msn, 0, "hello"))
				cs := make([]verbs.Completion, 1)
				if take(t, s.e.recv, cs); cs[0].Length != 5 || string(s.e.buf[:5]) != "hello" {
					t.Error(cs)
				}
				if name == "read" {
					p.more()
					if u := p.ulpdu(); !bytes.Equal(u, rdmap.AppendReadResponse(nil, true, 1, 0)) {
						t.Errorf("answered with %x", u)
					}
				}
			})
		})
	}
	t.Run("none", func(t *testing.T) {
		onStage(t, Config{StartTimeout: time.Second}, faultnet.Plan{}, func(s *scene) {
			s.listen(verbs.ConnParams{})
			p := s.dial()
			p.request(l, nil)
			if ev := s.e.event(t); ev.Kind != verbs.ConnAcceptFailed {
				t.Error(ev)
			}
			p.end()
		})
	})
}

// Without an RTR message the passive side's posts wait for the first FPDU.
func TestPassiveSideHoldsItsPosts(t *testing.T) {
	onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
		p := s.connected()
		_, err := s.e.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, NumSGE: 1, SGE: [8]verbs.SGE{s.e.sge(0, 4)}}})
		must(t, err)
		time.Sleep(time.Second)
		if p.more(); len(p.in) > 0 {
			t.Fatalf("sent before the first FPDU: %x", p.in)
		}
		p.send(writeU(0, 0, ""))
		time.Sleep(time.Millisecond)
		p.more()
		if u := p.ulpdu(); !bytes.Equal(u, append(rdmap.AppendSend(nil, rdmap.OpSend, true, 0, 1, 0), 0, 0, 0, 0)) {
			t.Errorf("sent %x", u)
		}
	})
}

// As the active side the device sends the one RTR message that the reply names, or a Terminate if it has
// none of these.
func TestActiveSideChoosesRTR(t *testing.T) {
	for _, c := range []struct {
		rtr  mpa.RTR
		want []byte
	}{
		{mpa.RTRWrite | mpa.RTRRead, writeU(sinkKey, 0, "")},
		{mpa.RTRRead, readU(1, rdmap.ReadRequest{SrcSTag: sinkKey})},
	} {
		onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
			l := responder
			l.RTR = c.rtr
			p := s.accepted(l)
			s.e.event(t)
			time.Sleep(time.Millisecond)
			p.more()
			if u := p.ulpdu(); !bytes.Equal(u, c.want) {
				t.Errorf("sent %x, want %x", u, c.want)
			}
			if c.rtr == mpa.RTRRead {
				p.send(rdmap.AppendReadResponse(nil, true, 0, 0))
			}
			s.recv(0, 16)
			p.send(sendU(rdmap.OpSend, true, 1, 0, "hello"))
			cs := make([]verbs.Completion, 1)
			if take(t, s.e.recv, cs); cs[0].Length != 5 {
				t.Error(cs)
			}
		})
	}
	onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
		l := responder
		l.RTR = mpa.RTRSend
		p := s.accepted(l)
		if ev := s.e.event(t); ev.Kind != verbs.ConnRefused {
			t.Error(ev)
		}
		p.setUp = true
		if m, ok := p.end(); !ok || m.Code != rddp.MPANoRTR {
			t.Errorf("Terminate %v %v", ok, m.Code)
		}
	})
}

// A peer that resets the connection when it sees revision 2 is asked again with revision 1.
func TestFallbackToRevision1(t *testing.T) {
	onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
		ln, err := s.host.Listen(context.Background(), netip.MustParseAddrPort(aliceAddr+":7000"))
		must(t, err)
		defer ln.Close()
		must(t, s.e.qp.Connect(verbs.ConnParams{Remote: address(ln.Addr()), PrivateData: []byte("hello")}))
		for _, rev := range []uint8{2, 1} {
			nc, err := ln.Accept()
			must(t, err)
			r := startup{kind: mpa.Request}
			must(t, r.readFrom(nc))
			h := r.frame.Header()
			if h.Rev != rev || h.HasEnhanced() != (rev == 2) || string(r.frame.ULPData()) != "hello" {
				t.Fatalf("request %+v %q", h, r.frame.ULPData())
			}
			if rev == 2 {
				nc.Abort()
				continue
			}
			b, _ := mpa.AppendStartup(nil, mpa.Reply, mpa.Header{Rev: 1, Flags: mpa.FlagCRC}, nil)
			must(t, writeAll(nc, b))
			if ev := s.e.event(t); ev.Kind != verbs.ConnEstablished {
				t.Error(ev)
			}
			nc.Close()
		}
	})
}
