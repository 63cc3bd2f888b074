package rdmap_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rddp"
	"kdapl/device/iwarp/internal/rdmap"

	"pgregory.net/rapid"
)

var (
	taggedHeader   = rdmap.AppendWrite(nil, true, 0xAABBCCDD, 0x1000)
	untaggedHeader = rdmap.AppendSend(nil, rdmap.OpSend, true, 0, 5, 0)
	readULPDU      = rdmap.AppendReadRequest(nil, 5, rdmap.ReadRequest{1, 2, 3, 4, 5})
)

// RFC 5040 figure 7: all four lengths of a Terminate's ULPDU, bit by bit.
func TestTerminateLayout(t *testing.T) {
	const head = "4147 00000000 00000002 00000001 00000000"
	for _, c := range []struct {
		t    rdmap.Terminate
		n    int
		want string
	}{
		{rdmap.Terminate{Code: 0x2002}, 22, head + "2002 0000"},
		{rdmap.Terminate{Code: 0x1101, LengthValid: true, SegmentLen: 0x4E, DDP: taggedHeader}, 38,
			head + "1101 c000 004e c140 aabbccdd 0000000000001000"},
		{rdmap.Terminate{Code: 0x1203, LengthValid: true, SegmentLen: 0x1234, DDP: append(bytes.Clone(untaggedHeader), "payload"...)}, 42,
			head + "1203 c000 1234 4143 00000000 00000000 00000005 00000000"},
		{rdmap.Terminate{Code: 0x0102, LengthValid: true, SegmentLen: 46, DDP: readULPDU, RDMA: readULPDU[18:]}, 70,
			head + "0102 e000 002e 4141 00000000 00000001 00000005 00000000 00000001 0000000000000002 00000003 00000004 0000000000000005"},
		// The length must be there when the header is, valid or not.
		{rdmap.Terminate{Code: 0x1101, DDP: taggedHeader}, 38, head + "1101 4000 0000 c140 aabbccdd 0000000000001000"},
		{rdmap.Terminate{Code: 0x1101, LengthValid: true, SegmentLen: 7}, 24, head + "1101 8000 0007"},
		// Headers that are not whole are left out.
		{rdmap.Terminate{Code: 0x1101, DDP: taggedHeader[:13], RDMA: readULPDU[19:]}, 22, head + "1101 0000"},
	} {
		b := rdmap.AppendTerminate(nil, c.t)
		if !bytes.Equal(b, unhex(c.want)) || len(b) != c.n || len(b) > rdmap.MaxTerminateULPDULen {
			t.Errorf("%+v: % x, want % x", c.t, b, unhex(c.want))
		}
		if op, err := rdmap.CheckHeader(b, len(b)); op != rdmap.OpTerminate || err != nil {
			t.Errorf("% x: %v, %v", b, op, err)
		}
	}
}

// What Linux siw sends on a little-endian machine: the rows of the probes, bytes 20
// to 23 of the FPDU and the ULPDU_Length.
func TestKernelTerminatesInItsOwnBitOrder(t *testing.T) {
	for _, c := range []struct {
		violation string
		word      string
		ulpduLen  int
		want      rddp.Code
		setUp     bool
	}{
		{"Send DV 0", "21060000", 22, 0x1206, false},
		{"Write DV 2", "11040000", 22, 0x1104, false},
		{"RV 0", "20050000", 22, 0x0205, false},
		{"opcode 8, 15", "20060000", 22, 0x0206, false},
		{"Send QN 1 or 3", "21010300", 42, 0x1201, false},
		{"Send MSN 0 or 2", "21030300", 42, 0x1203, false},
		{"Send MO 4", "21040300", 42, 0x1204, false},
		{"Send too long", "21020300", 42, 0x1202, false},
		{"Write unknown STag", "11000300", 38, 0x1100, false},
		{"Write out of bounds", "11010300", 38, 0x1101, false},
		{"Write TO wraps", "01000300", 38, 0x1000, false},
		{"Read Request unknown STag", "10000700", 70, 0x0100, false},
		{"Read Request out of bounds", "10010700", 70, 0x0101, false},
		{"Read Requests over IRD", "20070300", 42, 0x0207, false},
		{"Send-Inv unknown STag", "20090300", 42, 0x0209, false},
		{"ULPDU_Length too short", "02030000", 22, 0x2003, false},
		{"bad CRC", "02020000", 22, 0x2002, false},
		{"set-up: key", "02040000", 22, 0x2004, true},
		{"set-up: IRD", "02060000", 22, 0x2006, true},
		{"set-up: RTR", "02070000", 22, 0x2007, true},
		{"local send error", "00ff0000", 22, 0x00FF, false},
	} {
		payload := unhex(c.word)
		switch c.ulpduLen {
		case 38:
			payload = append(append(payload, 0, 4), taggedHeader...)
		case 42:
			payload = append(append(payload, 0, 4), untaggedHeader...)
		case 70:
			payload = append(append(payload, 0, 0), readULPDU...)
		}
		if len(payload)+ddp.UntaggedLen != c.ulpduLen {
			t.Fatal(c.violation)
		}
		got, err := rdmap.ParseTerminate(payload, c.setUp)
		if err != nil || got.Code != c.want {
			t.Errorf("%s: %v, %v, want %v", c.violation, got.Code, err, c.want)
		}
		if (got.DDP != nil) != (c.ulpduLen > 22) || got.LengthValid != (c.ulpduLen > 22) || (got.RDMA != nil) != (c.ulpduLen == 70) {
			t.Errorf("%s: %+v", c.violation, got)
		}
		// Encoded again it stands in the RFC's order, and says the same.
		again := rdmap.AppendTerminate(nil, got)
		back, err := rdmap.ParseTerminate(again[ddp.UntaggedLen:], c.setUp)
		if err != nil || back.Code != got.Code || back.LittleEndian || len(again) != c.ulpduLen || !bytes.Equal(back.DDP, got.DDP) || !bytes.Equal(back.RDMA, got.RDMA) {
			t.Errorf("%s: % x is read as %+v, %v", c.violation, again, back, err)
		}
	}
	// By the source siw sets the R bit for a Send with Invalidate of another PD, but
	// sends no Read Request header.
	payload := append(unhex("10090700 0000"), untaggedHeader...)
	if got, err := rdmap.ParseTerminate(payload, false); err != rdmap.ErrLength || got.Code != 0x0109 || got.DDP == nil || got.RDMA != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// A code in the RFC's order is read as what it is, whatever is quoted: only the
// three pairs that both orders share depend on the phase.
func TestEveryCodeInTheRFCsOrderIsReadAsItself(t *testing.T) {
	for v := range 1 << 16 {
		code := rddp.Code(v)
		if !code.Registered() {
			continue
		}
		for _, quoted := range []rdmap.Terminate{{}, {LengthValid: true, DDP: taggedHeader}, {LengthValid: true, DDP: untaggedHeader, RDMA: readULPDU[18:]}} {
			quoted.Code = code
			b := rdmap.AppendTerminate(nil, quoted)[ddp.UntaggedLen:]
			for _, setUp := range []bool{false, true} {
				shared := quoted.DDP == nil && code.Value() >= 5 && code.Value() <= 7 &&
					(code>>8 == 0x20 && !setUp || code>>8 == 0x02 && setUp)
				got, err := rdmap.ParseTerminate(b, setUp)
				if err != nil || got.LittleEndian != shared || (got.Code == code) == shared {
					t.Fatalf("%v, set-up %v: read as %v, %v", code, setUp, got.Code, err)
				}
			}
		}
	}
}

func drawTerminate(t *rapid.T) rdmap.Terminate {
	m := rdmap.Terminate{Code: rddp.Code(rapid.Uint16().Draw(t, "code")), LengthValid: rapid.Bool().Draw(t, "M"), SegmentLen: rapid.Uint16().Draw(t, "length")}
	if rapid.Bool().Draw(t, "D") {
		n := rapid.SampledFrom([]int{ddp.TaggedLen, ddp.UntaggedLen}).Draw(t, "header")
		m.DDP = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "DDP")
		m.DDP[0] &^= 0x80
		if n == ddp.TaggedLen {
			m.DDP[0] |= 0x80
		}
	} else if !m.LengthValid {
		m.SegmentLen = 0 // not sent
	}
	if rapid.Bool().Draw(t, "R") {
		m.RDMA = rapid.SliceOfN(rapid.Byte(), 28, 28).Draw(t, "RDMA")
	}
	return m
}

func TestTerminateRoundTripAndCutShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawTerminate(t)
		b := rdmap.AppendTerminate(nil, m)[ddp.UntaggedLen:]
		if !m.LengthValid && m.DDP == nil && m.RDMA == nil {
			return // without flags the order is a matter of the code: see above
		}
		got, err := rdmap.ParseTerminate(append(b, "trailing"...), false)
		if err != nil || got.Code != m.Code || got.LengthValid != m.LengthValid || got.SegmentLen != m.SegmentLen ||
			!bytes.Equal(got.DDP, m.DDP) || !bytes.Equal(got.RDMA, m.RDMA) || got.LittleEndian {
			t.Fatalf("%+v became %+v, %v", m, got, err)
		}
		for n := range b {
			got, err := rdmap.ParseTerminate(b[:n], false)
			if err != rdmap.ErrLength || n >= 4 && got.Code != m.Code || n < 4 && got.Code != 0 {
				t.Fatalf("%d of %d bytes: %+v, %v", n, len(b), got, err)
			}
			if got.DDP != nil && !bytes.Equal(got.DDP, m.DDP) || got.RDMA != nil {
				t.Fatalf("%d of %d bytes: %+v", n, len(b), got)
			}
		}
	})
}

// RFC 5040 figure 10 and section 7.1, RFC 7306 section 8.1, RFC 5044 section 8.
func TestWhatATerminateQuotes(t *testing.T) {
	atomic := rdmap.AppendAtomicRequest(nil, 1, rdmap.AtomicRequest{})
	send := append(bytes.Clone(untaggedHeader), "payload"...)
	write := append(bytes.Clone(taggedHeader), "payload"...)
	for _, c := range []struct {
		name  string
		err   error
		ulpdu []byte
		code  rddp.Code
		n     int // of the Terminate's ULPDU; 0: none may be sent
	}{
		{"local catastrophic", rdmap.ErrLocal, send, 0x0000, 22},
		{"some error of this side", io.ErrNoProgress, nil, 0x0000, 22},
		{"some error about a message", io.ErrNoProgress, send, 0x0000, 22},
		{"protection, Read Request", rdmap.ErrAccess, readULPDU, 0x0102, 70},
		{"protection, Read Request, header only", rdmap.ErrAccess, readULPDU[:18], 0x0102, 42},
		{"protection, Send with Invalidate", rdmap.ErrInvalidate, send, 0x0109, 42},
		{"protection, atomic", rdmap.ErrBounds, atomic, 0x0101, 42},
		{"operation, Read Request", rdmap.ErrVersion, readULPDU, 0x0205, 42},
		{"operation, atomic", rdmap.ErrMisaligned, atomic, 0x0207, 42},
		{"operation, nothing known", rdmap.ErrOpcode, nil, 0x0206, 22},
		{"DDP, tagged", ddp.ErrSTag, write, 0x1100, 38},
		{"DDP, untagged", ddp.ErrNoBuffer, send, 0x1202, 42},
		{"DDP, Read Request", ddp.ErrMSN, readULPDU, 0x1203, 42},
		{"DDP, local", ddp.ErrLocal, write, 0x1000, 38},
		{"header cut short", ddp.ErrShort, send[:9], 0x2003, 22},
		{"CRC", mpa.ErrCRC, send, 0x2002, 22},
		{"marker", mpa.ErrMarker, send, 0x2003, 22},
		{"no IRD", mpa.ErrInsufficientIRD, nil, 0x2006, 22},
		{"no RTR", mpa.ErrNoRTR, nil, 0x2007, 22},
		{"no MPA", mpa.ErrKey, nil, 0x2004, 0},
		{"wrapped", fmt.Errorf("while placing: %w", ddp.ErrBounds), write, 0x1101, 38},
	} {
		m, ok := rdmap.TerminateFor(c.err, c.ulpdu, len(c.ulpdu))
		if m.Code != c.code || ok != (c.n != 0) {
			t.Errorf("%s: %v, %v", c.name, m.Code, ok)
		}
		if !ok {
			continue
		}
		b := rdmap.AppendTerminate(nil, m)
		if len(b) != c.n {
			t.Errorf("%s: a ULPDU of %d, want %d", c.name, len(b), c.n)
		}
		if quoted := c.n > 22; quoted && (!m.LengthValid || int(m.SegmentLen) != len(c.ulpdu) || !bytes.HasPrefix(c.ulpdu, m.DDP)) {
			t.Errorf("%s: %+v", c.name, m)
		}
		if c.n == 70 && !bytes.Equal(m.RDMA, c.ulpdu[18:]) {
			t.Errorf("%s: % x", c.name, m.RDMA)
		}
	}
}
