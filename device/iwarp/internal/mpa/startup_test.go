package mpa_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rddp"
	"kdapl/device/iwarp/internal/wiretest"

	"pgregory.net/rapid"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(s), []byte(" "), nil)))
	if err != nil {
		panic(err)
	}
	return b
}

func TestKernelStartupFramesReencodeIdentically(t *testing.T) {
	seen := map[string]int{}
	for _, s := range wiretest.MPA(t) {
		for kind, stream := range map[mpa.Kind][]byte{mpa.Request: s.ToServer.Bytes, mpa.Reply: s.ToClient.Bytes} {
			f, n, err := mpa.ParseStartup(stream, kind)
			if err != nil || f == nil {
				t.Fatalf("%s %v: %v", s.Capture, kind, err)
			}
			b, err := mpa.AppendStartup(nil, kind, f.Header(), f.ULPData())
			if err != nil || !bytes.Equal(b, stream[:n]) {
				t.Errorf("%s %v: % x, want % x (%v)", s.Capture, kind, b, stream[:n], err)
			}
			seen[hex.EncodeToString(stream[16:20])]++
			if f.Flags()&mpa.FlagsReserved != 0 {
				t.Errorf("%s %v: reserved bits in %02x", s.Capture, kind, f.Flags())
			}
		}
	}
	// Flags, revision and PD_Length as the recordings' fact sheet lists them.
	for _, want := range []string{"10020004", "50020004", "00010000", "10020034"} {
		if seen[want] == 0 {
			t.Errorf("no frame with %s among %v", want, seen)
		}
		delete(seen, want)
	}
	if len(seen) != 1 || seen["10020022"] == 0 { // dapltest: the block and 30 bytes
		t.Errorf("frames not expected: %v", seen)
	}
}

// RFC 5044 figure 8 and RFC 6581 sections 6 and 9, bit by bit.
func TestStartupFrameLayout(t *testing.T) {
	b, err := mpa.AppendStartup([]byte("before"), mpa.Reply, mpa.Header{
		Flags: mpa.FlagMarkers | mpa.FlagReject | mpa.FlagEnhanced | mpa.FlagGSO,
		Rev:   2,
		Enhanced: mpa.Enhanced{
			PeerToPeer: true, RTR: mpa.RTRSend | mpa.RTRRead, IRD: 0x1234, ORD: 0x0567,
		},
	}, []byte("ulp"))
	want := append([]byte("beforeMPA ID Rep Frame"), unhex("b8 02 0007 d234 4567 756c70")...)
	if err != nil || !bytes.Equal(b, want) {
		t.Fatalf("% x (%v), want % x", b, err, want)
	}
	for word, want := range map[uint32]mpa.Enhanced{
		0x80000000: {PeerToPeer: true},
		0x40000000: {RTR: mpa.RTRSend},
		0x00008000: {RTR: mpa.RTRWrite},
		0x00004000: {RTR: mpa.RTRRead},
		0x3FFF0000: {IRD: mpa.NotNegotiated},
		0x00003FFF: {ORD: mpa.NotNegotiated},
		0x00010000: {IRD: 1},
		0x00000001: {ORD: 1},
	} {
		if want.Word() != word {
			t.Errorf("%+v: word %08x, want %08x", want, want.Word(), word)
		}
	}
	if w := (mpa.Enhanced{IRD: 0x4000, ORD: 0xFFFF}).Word(); w != 0x3FFE3FFE {
		t.Errorf("depths over 14 bits: %08x", w)
	}
}

func TestRevisionsBefore2HaveNoEnhancedBlock(t *testing.T) {
	for rev := range uint8(2) {
		b := append([]byte("MPA ID Req Frame"), 0x10, rev, 0, 2, 'h', 'i')
		f, n, err := mpa.ParseStartup(b, mpa.Request)
		if err != nil || n != len(b) || f.Header().HasEnhanced() || string(f.ULPData()) != "hi" {
			t.Errorf("revision %d: %q, %d, %v", rev, f, n, err)
		}
	}
}

func TestStartupErrorsAreFoundAtTheirFirstByte(t *testing.T) {
	req := "MPA ID Req Frame"
	for _, c := range []struct {
		name string
		in   string
		kind mpa.Kind
		at   int // bytes that must have come
		want error
	}{
		{"http", "GET / HTTP/1.1\r\n\r\n", mpa.Request, 1, mpa.ErrKey},
		{"last key byte", "MPA ID Req Framf....", mpa.Request, 16, mpa.ErrKey},
		{"both initiators", req + "\x10\x02\x00\x00", mpa.Reply, 10, mpa.ErrSameRole},
		{"both responders", "MPA ID Rep Frame\x10\x02\x00\x00", mpa.Request, 10, mpa.ErrSameRole},
		{"PD_Length 513", req + "\x00\x01\x02\x01", mpa.Request, 20, mpa.ErrPDLength},
		{"PD_Length 65535", req + "\x00\x01\xff\xff", mpa.Request, 20, mpa.ErrPDLength},
		{"enhanced block of 3", req + "\x10\x02\x00\x03abc", mpa.Request, 20, mpa.ErrEnhancedLength},
		{"no enhanced block", req + "\x10\x02\x00\x00", mpa.Request, 20, mpa.ErrEnhancedLength},
	} {
		for n := range len(c.in) + 1 {
			f, _, err := mpa.ParseStartup([]byte(c.in[:n]), c.kind)
			want := c.want
			if n < c.at {
				want = nil
			}
			if err != want || f != nil {
				t.Errorf("%s: after %d bytes: %v, %v, want %v", c.name, n, f, err, want)
			}
		}
		if code, ok := rddp.CodeOf(c.want); !ok || code != rddp.MPAStartup || code.Sendable() {
			t.Errorf("%s: code %v", c.name, code)
		}
	}
}

func drawHeader(t *rapid.T) mpa.Header {
	h := mpa.Header{Flags: mpa.Flags(rapid.Byte().Draw(t, "flags")), Rev: rapid.Uint8Range(0, 3).Draw(t, "rev")}
	if h.HasEnhanced() {
		h.Enhanced = drawEnhanced(t)
	}
	return h
}

func drawEnhanced(t *rapid.T) mpa.Enhanced {
	depth := rapid.OneOf(rapid.Uint16Range(0, 3), rapid.Uint16Range(0, 0x3FFF), rapid.Just(uint16(0x3FFF)))
	return mpa.Enhanced{
		PeerToPeer: rapid.Bool().Draw(t, "A"), RTR: mpa.RTR(rapid.IntRange(0, 7).Draw(t, "BCD")),
		IRD: depth.Draw(t, "IRD"), ORD: depth.Draw(t, "ORD"),
	}
}

func TestStartupRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHeader(t)
		kind := mpa.Kind(rapid.IntRange(0, 1).Draw(t, "kind"))
		ulp := rapid.SliceOfN(rapid.Byte(), 0, 516).Draw(t, "ulp")
		room := mpa.MaxPrivateData
		if h.HasEnhanced() {
			room = mpa.MaxULPData
		}
		b, err := mpa.AppendStartup(nil, kind, h, ulp)
		if len(ulp) > room {
			if !errors.Is(err, mpa.ErrPrivateData) || b != nil {
				t.Fatalf("%d bytes of private data: %v, %v", len(ulp), b, err)
			}
			return
		}
		if err != nil || len(b) > mpa.MaxStartupLen {
			t.Fatal(err)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if f, n, err := mpa.ParseStartup(b[:cut], kind); f != nil || n > len(b) || n <= cut && n != 0 || err != nil {
			t.Fatalf("%d of %d bytes: %v, %d, %v", cut, len(b), f, n, err)
		}
		f, n, err := mpa.ParseStartup(append(b, "FPDU"...), kind)
		if err != nil || n != len(b) || f.Header() != h || !bytes.Equal(f.ULPData(), ulp) || cap(f) != n {
			t.Fatalf("%v, %d, %v", f, n, err)
		}
	})
}

func FuzzStartup(f *testing.F) {
	for _, s := range wiretest.MPA(f) {
		f.Add(s.ToServer.Bytes[:min(80, len(s.ToServer.Bytes))], false)
		f.Add(s.ToClient.Bytes[:min(80, len(s.ToClient.Bytes))], true)
	}
	f.Fuzz(func(t *testing.T, b []byte, reply bool) {
		kind := mpa.Request
		if reply {
			kind = mpa.Reply
		}
		v, n, err := mpa.ParseStartup(b, kind)
		if err != nil {
			if _, ok := rddp.CodeOf(err); !ok || v != nil {
				t.Fatalf("%v, %v", v, err)
			}
			return
		}
		if n < mpa.StartupHeaderLen || n > mpa.MaxStartupLen || (v == nil) != (len(b) < n) {
			t.Fatalf("length %d of %d bytes, view %v", n, len(b), v)
		}
		if v == nil {
			return
		}
		again, err := mpa.AppendStartup(nil, kind, v.Header(), v.ULPData())
		if err != nil || !bytes.Equal(again, b[:n]) {
			t.Fatalf("% x became % x (%v)", b[:n], again, err)
		}
		// No Request or Reply can make the negotiation misbehave.
		l := mpa.Local{Rev: 2, CRC: true, PeerToPeer: true, RTR: mpa.RTRWrite | mpa.RTRRead, IRD: 4, ORD: 4, MaxIRD: 16}
		if rep, r, err := l.Answer(v.Header()); err == nil && (r.IRD > 16 || r.ORD > 4 || !r.CRC || rep.Flags&mpa.FlagReject != 0) {
			t.Fatalf("%+v %+v", rep, r)
		}
		if r, err := l.Conclude(l.Request(), v.Header()); err == nil && (r.IRD > 16 || r.ORD > 4 || !r.CRC || r.RTR == 0) {
			t.Fatalf("%+v", r)
		}
	})
}
