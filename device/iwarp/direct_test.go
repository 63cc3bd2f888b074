package iwarp

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rddp"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/internal/faultnet"
	"kdapl/verbs"
)

// plain is a request without CRC.
var plain = mpa.Local{Rev: 2, IRD: 4, ORD: 4, MaxIRD: 128}

// onPlainStage is a device without CRCs, connected to a script, with large buffers.
func onPlainStage(t *testing.T, plan faultnet.Plan, f func(s *scene, p *peer)) {
	t.Helper()
	onStageWith(t, Config{NoCRC: true}, plan, 16, 1<<18, func(s *scene) {
		s.recv(100000, 50000)
		s.listen(verbs.ConnParams{ReadsIn: 2, ReadsOut: 2})
		p := s.dial()
		if p.request(plain, nil).CRC {
			t.Fatal("CRC is on")
		}
		s.e.event(t)
		p.send(writeU(0, 0, ""))
		f(s, p)
	})
}

// slowly sends an FPDU in two parts, so that the device does not have it whole when it begins to place it.
func (p *peer) slowly(ulpdu []byte, first int) {
	p.t.Helper()
	b := p.fpdu(ulpdu)
	p.bytes(b[:first])
	time.Sleep(time.Millisecond)
	p.bytes(b[first:])
	time.Sleep(time.Millisecond)
}

func text(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteByte(byte(i*7 + i>>8))
	}
	return b.String()
}

// Wherever an FPDU is cut, it arrives whole, and what follows in the stream is found.
func TestLargeFPDUsAreReadToTheirPlace(t *testing.T) {
	payload := text(30001)
	for _, first := range []int{1, 2, 15, 20, 21, 22, 23, 500, 15000} {
		onPlainStage(t, faultnet.Plan{}, func(s *scene, p *peer) {
			p.slowly(writeU(s.e.mr.RKey(), 0x10000+3, payload), first)
			p.slowly(sendU(rdmap.OpSend, false, 1, 0, payload), first)
			p.slowly(sendU(rdmap.OpSend, true, 1, 30001, payload[:19000]), first)
			cs := make([]verbs.Completion, 1)
			if take(t, s.e.recv, cs); cs[0].Status != verbs.StatusSuccess || cs[0].Length != 49001 {
				t.Error(cs)
			}
			if string(s.e.buf[3:30004]) != payload || string(s.e.buf[100000:149001]) != payload+payload[:19000] {
				t.Errorf("cut at %d: wrong bytes", first)
			}
			if s.e.buf[2] != 0 || s.e.buf[30004] != 0 || s.e.buf[149001] != 0 {
				t.Errorf("cut at %d: bytes outside have changed", first)
			}
		})
	}
}

func TestLargeViolationsPlaceNothing(t *testing.T) {
	payload := text(30000)
	for _, c := range []struct {
		name  string
		ulpdu func(key uint32) []byte
		want  rddp.Code
	}{
		{"unknown STag", func(k uint32) []byte { return writeU(k^1, 0x10000, payload) }, rddp.DDPInvalidSTag},
		{"behind the region", func(uint32) []byte { return nil }, rddp.DDPBounds},
		{"across the end of the address space", func(k uint32) []byte { return writeU(k, ^uint64(9), payload) }, rddp.DDPTOWrap},
		{"too long", func(uint32) []byte { return sendU(rdmap.OpSend, true, 1, 0, text(50001)) }, rddp.DDPTooLong},
		{"MSN", func(uint32) []byte { return sendU(rdmap.OpSend, true, 2, 0, payload) }, rddp.DDPMSNRange},
		{"offset", func(uint32) []byte { return sendU(rdmap.OpSend, true, 1, 4, payload) }, rddp.DDPInvalidMO},
		{"opcode", func(k uint32) []byte { return patched(writeU(k, 0x10000, payload), 1, 0x4C) }, rddp.RDMAPOpcode},
		{"response that nobody asked for", func(k uint32) []byte {
			return append(rdmap.AppendReadResponse(nil, true, k, 0x10000), payload...)
		}, rddp.RDMAPOpcode},
		{"large read request", func(uint32) []byte { return append(readU(1, rdmap.ReadRequest{}), payload...) }, rddp.DDPTooLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			onPlainStage(t, faultnet.Plan{}, func(s *scene, p *peer) {
				u := c.ulpdu(s.e.mr.RKey())
				if u == nil {
					u = writeU(s.e.mr.RKey(), 0x10000+1<<18-29999, payload)
				}
				p.slowly(u, 1000)
				if m, ok := p.end(); !ok || m.Code != c.want {
					t.Errorf("Terminate %v %v, want %v", ok, m.Code, c.want)
				}
				if f := s.broken(); f.code() != c.want {
					t.Error(f)
				}
				if !bytes.Equal(s.e.buf, make([]byte, len(s.e.buf))) {
					t.Error("memory has changed")
				}
			})
		})
	}
}

// A region that goes away in the middle of an FPDU ends the connection, and is not touched any more.
func TestRegionGoesInTheMiddle(t *testing.T) {
	onPlainStage(t, faultnet.Plan{}, func(s *scene, p *peer) {
		b := p.fpdu(writeU(s.e.mr.RKey(), 0x10000, text(30000)))
		p.bytes(b[:10000])
		time.Sleep(time.Millisecond)
		must(t, s.e.mr.Dereg())
		if s.e.buf[5000] == 0 {
			t.Error("nothing is placed before the FPDU is whole")
		}
		clear(s.e.buf)
		p.bytes(b[10000:])
		if m, ok := p.end(); !ok || m.Code != rddp.DDPInvalidSTag {
			t.Errorf("Terminate %v %v", ok, m.Code)
		}
		s.broken()
		if !bytes.Equal(s.e.buf, make([]byte, len(s.e.buf))) {
			t.Error("memory has changed after Dereg")
		}
	})
}

// A message that is sent from where it lies ends between two FPDUs when its connection is cut, and what was
// sent is the message's beginning.
func TestLargeSendIsCutBetweenFPDUs(t *testing.T) {
	for _, window := range []int{1000, 1449, 10000, 65536} {
		plan := faultnet.Plan{}
		plan.Down.Window = window
		onPlainStage(t, plan, func(s *scene, p *peer) {
			copy(s.e.buf, text(200000))
			_, err := s.e.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, NumSGE: 2, SGE: [8]verbs.SGE{s.e.sge(0, 100), s.e.sge(100, 199900)}}})
			must(t, err)
			time.Sleep(time.Second)
			must(t, s.e.qp.Disconnect(false))
			clear(s.e.buf) // it is the consumer's again
			start, got := time.Now(), []byte(nil)
			for p.more() {
				if time.Since(start) > time.Minute {
					t.Fatal("no end")
				}
				time.Sleep(time.Millisecond)
			}
			for u := p.ulpdu(); u != nil; u = p.ulpdu() {
				got = append(got, u[18:]...)
			}
			if len(p.in) > 0 {
				t.Errorf("window %d: the stream ends with %d bytes of an FPDU", window, len(p.in))
			}
			if len(got) == 0 || string(got) != text(200000)[:len(got)] {
				t.Errorf("window %d: %d bytes came, and are not the message's", window, len(got))
			}
		})
	}
}

// The same without an end in the way.
func TestLargeSendFromWhereItLies(t *testing.T) {
	for _, window := range []int{1000, 1449, 65536} {
		plan := faultnet.Plan{}
		plan.Down.Window = window
		onPlainStage(t, plan, func(s *scene, p *peer) {
			copy(s.e.buf, text(200000))
			_, err := s.e.qp.PostSend([]verbs.SendWR{
				{ID: 1, Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSGE: 2, SGE: [8]verbs.SGE{s.e.sge(0, 100), s.e.sge(100, 199900)}},
				{ID: 2, Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{s.e.sge(5, 70000)}, RemoteKey: 77, RemoteAddr: 1 << 40},
				{ID: 3, Op: verbs.OpSend, Flags: verbs.SendSignaled},
			})
			must(t, err)
			var got, wrote []byte
			ends := 0
			for ends < 2 {
				if !p.more() {
					t.Fatal("the stream ends")
				}
				for u := p.ulpdu(); u != nil; u = p.ulpdu() {
					if u[0]&0x80 != 0 {
						wrote = append(wrote, u[14:]...)
						continue
					}
					got = append(got, u[18:]...)
					if u[0]&0x40 != 0 {
						ends++
					}
				}
				time.Sleep(time.Millisecond)
			}
			if string(got) != text(200000) || string(wrote) != text(200000)[5:70005] {
				t.Errorf("window %d: %d and %d bytes, not those that were sent", window, len(got), len(wrote))
			}
			cs := make([]verbs.Completion, 3)
			take(t, s.e.sendCQ, cs)
			for i, c := range cs {
				if c.ID != uint64(i+1) || c.Status != verbs.StatusSuccess {
					t.Error(c)
				}
			}
		})
	}
}
