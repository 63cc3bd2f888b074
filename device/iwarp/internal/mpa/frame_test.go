package mpa_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rddp"
	"kdapl/device/iwarp/internal/wiretest"

	"pgregory.net/rapid"
)

// bitCRC is CRC32c by its definition, bit by bit.
func bitCRC(p []byte) uint32 {
	crc := ^uint32(0)
	for _, c := range p {
		crc ^= uint32(c)
		for range 8 {
			crc = crc>>1 ^ 0x82F63B78&-(crc&1)
		}
	}
	return ^crc
}

// model is a stream by the letter of RFC 5044 sections 4.1 to 4.4: byte by byte,
// with no thought of speed, and written apart from the package's code.
type model struct {
	crc, markers bool
	out          []byte
}

func (m *model) fpdu(ulpdu []byte) {
	first := len(m.out) // what the CRC covers begins here
	begin := -1         // of the ULPDU_Length
	put := func(p ...byte) {
		for _, c := range p {
			if m.markers && len(m.out)%512 == 0 {
				ptr := 0
				if begin >= 0 {
					ptr = len(m.out) - begin
				}
				m.out = append(m.out, 0, 0, byte(ptr>>8), byte(ptr))
			}
			if begin < 0 {
				begin = len(m.out)
			}
			m.out = append(m.out, c)
		}
	}
	put(byte(len(ulpdu)>>8), byte(len(ulpdu)))
	put(ulpdu...)
	for n := 2 + len(ulpdu); n%4 != 0; n++ {
		put(0)
	}
	if m.markers && len(m.out)%512 == 0 { // between PAD and CRC: covered by this CRC
		ptr := len(m.out) - begin
		m.out = append(m.out, 0, 0, byte(ptr>>8), byte(ptr))
	}
	var crc uint32
	if m.crc {
		crc = bitCRC(m.out[first:])
	}
	put(byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24))
}

func TestCRC32cCheckValue(t *testing.T) {
	if c := mpa.UpdateCRC(0, []byte("123456789")); c != 0xE3069283 {
		t.Errorf("%08x", c)
	}
	if c := mpa.UpdateCRC(mpa.UpdateCRC(0, []byte("1234")), []byte("56789")); c != 0xE3069283 {
		t.Errorf("in two pieces: %08x", c)
	}
	if b := mpa.AppendCRC(nil, 0x83992352); !bytes.Equal(b, []byte{0x52, 0x23, 0x99, 0x83}) || mpa.ReadCRC([4]byte(b)) != 0x83992352 {
		t.Errorf("on the wire: % x", b)
	}
}

// The two annotated dumps of RFC 5044 section 4.4 (figures 5 and 6): an FPDU behind
// the first marker of the stream, and the second FPDU of a stream at position 492,
// with a marker inside.
func TestRFC5044Examples(t *testing.T) {
	segment := func(msn byte) []byte {
		return append(unhex("4143 00000000 00000000 000000"), append([]byte{msn}, make([]byte, 4+24)...)...)
	}
	first := append(unhex("00000000 002a"), append(segment(1), unhex("52239983")...)...)
	second := append(unhex("002a"), segment(2)[:18]...)
	second = append(second, unhex("00000014")...)
	second = append(second, make([]byte, 24)...)
	second = append(second, unhex("84925898")...)

	for name, finish := range map[string]func(e *mpa.Encoder, ulpdu []byte) []byte{"Finish": finishCopy, "FinishVec": finishVec(18, 7)} {
		e := mpa.Encoder{CRC: true, Markers: true}
		if b := finish(&e, segment(1)); !bytes.Equal(b, first) {
			t.Errorf("%s, figure 5: % x", name, b)
		}
		e = mpa.Encoder{CRC: true, Markers: true}
		before := finish(&e, append(segment(1), make([]byte, 482-42)...))
		if len(before) != 492 {
			t.Fatalf("%s: the FPDU before figure 6 has %d bytes", name, len(before))
		}
		if b := finish(&e, segment(2)); !bytes.Equal(b, second) {
			t.Errorf("%s, figure 6: % x", name, b)
		}
		got, err := deframe(&mpa.Deframer{CRC: true, Markers: true}, append(before, second...), []int{1 << 20})
		if err != nil || len(got) != 2 || !bytes.Equal(got[1], segment(2)) {
			t.Errorf("%s: taken apart: %x, %v", name, got, err)
		}
	}
}

func finishCopy(e *mpa.Encoder, ulpdu []byte) []byte {
	return e.Finish(append(mpa.Begin([]byte("in front")), ulpdu...), 8)[8:]
}

// finishVec cuts the ULPDU after head bytes and then in pieces, and joins the list.
func finishVec(head, piece int) func(e *mpa.Encoder, ulpdu []byte) []byte {
	return func(e *mpa.Encoder, ulpdu []byte) []byte {
		h := append(mpa.Begin(nil), ulpdu[:min(head, len(ulpdu))]...)
		var pieces [][]byte
		for p := ulpdu[min(head, len(ulpdu)):]; len(p) > 0; p = p[min(piece, len(p)):] {
			pieces = append(pieces, p[:min(piece, len(p))], nil)
		}
		room := mpa.ScratchLen(len(ulpdu), e.Markers)
		vec, scratch := e.FinishVec(nil, make([]byte, 0, room), h, pieces...)
		if len(scratch) > room {
			panic(fmt.Sprintf("%d bytes of scratch for %d, %d promised", len(scratch), len(ulpdu), room))
		}
		for _, v := range vec {
			if len(v) == 0 {
				panic("an empty slice in the list")
			}
		}
		return bytes.Join(vec, nil)
	}
}

// deframe takes a stream apart in chunks of the given sizes, repeated, and checks
// that events come in order.
func deframe(d *mpa.Deframer, stream []byte, sizes []int) (ulpdus [][]byte, err error) {
	var cur []byte
	open := false
	for i := 0; len(stream) > 0; i++ {
		p := stream[:min(max(sizes[i%len(sizes)], 1), len(stream))]
		stream = stream[len(p):]
		for {
			run := min(d.Run(), len(p))
			s, err := d.Next(p)
			if err != nil {
				return ulpdus, err
			}
			if run > 0 && (s.Event != mpa.Data || len(s.Data) != run || s.N != run || &s.Data[0] != &p[0]) {
				return nil, fmt.Errorf("%d bytes of data, though a run of %d was announced", len(s.Data), run)
			}
			p = p[s.N:]
			switch s.Event {
			case mpa.Start:
				if open {
					return nil, fmt.Errorf("a start inside an FPDU")
				}
				open, cur = true, make([]byte, 0, d.ULPDULen())
			case mpa.Data:
				if cur = append(cur, s.Data...); !open || d.Offset() != len(cur) || len(s.Data) == 0 {
					return nil, fmt.Errorf("data at %d, offset %d", len(cur), d.Offset())
				}
			case mpa.End:
				if !open || len(cur) != d.ULPDULen() {
					return nil, fmt.Errorf("%d of %d bytes at the end", len(cur), d.ULPDULen())
				}
				open = false
				ulpdus = append(ulpdus, cur)
			case mpa.More:
				if len(p) != 0 {
					return nil, fmt.Errorf("more wanted, %d bytes left", len(p))
				}
			}
			if s.Event == mpa.More {
				break
			}
		}
	}
	return ulpdus, nil
}

func drawULPDUs(t *rapid.T) [][]byte {
	size := rapid.OneOf(rapid.IntRange(1, 64), rapid.IntRange(1, 1600), rapid.SampledFrom([]int{498, 500, 502, 504, 506, 508, 510, 4096, 64768}))
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []byte {
		b := make([]byte, size.Draw(t, "size"))
		seed := rapid.Uint32().Draw(t, "content")
		for i := range b {
			seed = seed*1664525 + 1013904223
			b[i] = byte(seed >> 24)
		}
		return b
	}), 1, 8).Draw(t, "ULPDUs")
}

func TestEncodersFollowTheModelAndDeframerUndoesThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := model{crc: rapid.Bool().Draw(t, "crc"), markers: rapid.Bool().Draw(t, "markers")}
		copied := mpa.Encoder{CRC: m.crc, Markers: m.markers}
		woven := copied
		head, piece := rapid.IntRange(1, 40).Draw(t, "head"), rapid.IntRange(1, 700).Draw(t, "piece")
		ulpdus := drawULPDUs(t)
		for _, u := range ulpdus {
			from := len(m.out)
			m.fpdu(u)
			want := m.out[from:]
			if got := finishCopy(&copied, u); !bytes.Equal(got, want) {
				t.Fatalf("Finish of %d bytes at %d:\n% x\nwant\n% x", len(u), from, got, want)
			}
			if got := finishVec(head, piece)(&woven, u); !bytes.Equal(got, want) {
				t.Fatalf("FinishVec of %d bytes at %d:\n% x\nwant\n% x", len(u), from, got, want)
			}
			marks := len(want) - mpa.FPDULen(len(u))
			if !m.markers && marks != 0 || m.markers && marks != mpa.MarkerLen*mpa.MarkerCount(uint32(from), mpa.FPDULen(len(u))) {
				t.Fatalf("%d marker bytes at %d in an FPDU of %d", marks, from, mpa.FPDULen(len(u)))
			}
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 2000), 1, 20).Draw(t, "splits")
		d := mpa.Deframer{CRC: m.crc, Markers: m.markers}
		got, err := deframe(&d, m.out, sizes)
		if err != nil || !equalULPDUs(got, ulpdus) || !d.AtBoundary() {
			t.Fatalf("%d of %d ULPDUs, boundary %v, %v", len(got), len(ulpdus), d.AtBoundary(), err)
		}
		if !m.markers {
			for rest := m.out; len(rest) > 0; ulpdus = ulpdus[1:] {
				u, n, err := mpa.Parse(rest, m.crc)
				if err != nil || !bytes.Equal(u, ulpdus[0]) || cap(u) != len(u) {
					t.Fatalf("Parse: %d bytes, %v", len(u), err)
				}
				rest = rest[n:]
			}
		}
	})
}

func equalULPDUs(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// small is a stream with every kind of place in it: markers before, inside and
// behind an FPDU and between pad and CRC, all pads, an empty ULPDU.
func small(crc, markers bool) (stream []byte, ulpdus [][]byte, ends map[int]bool) {
	m := model{crc: crc, markers: markers}
	ends = map[int]bool{0: true}
	for _, n := range []int{42, 1, 3, 438, 0, 490, 9, 16} {
		u := bytes.Repeat([]byte{byte(n)}, n)
		m.fpdu(u)
		ulpdus, ends[len(m.out)] = append(ulpdus, u), true
	}
	return m.out, ulpdus, ends
}

// The stream that small makes really has a marker between pad and CRC, and one
// between two FPDUs.
func TestSmallStreamHasItsSpecialMarkers(t *testing.T) {
	stream, ulpdus, ends := small(true, true)
	pos, special := 0, 0
	for _, u := range ulpdus {
		n := mpa.FPDULen(len(u))
		n += 4 * mpa.MarkerCount(uint32(pos), n)
		if (pos+n-8)%512 == 0 {
			special |= 1
		}
		if pos += n; pos%512 == 0 {
			special |= 2
		}
		if !ends[pos] {
			t.Fatalf("no FPDU ends at %d", pos)
		}
	}
	if special != 3 || pos != len(stream) {
		t.Errorf("special places %b", special)
	}
}

func TestEverySplitGivesTheSameULPDUs(t *testing.T) {
	for _, markers := range []bool{false, true} {
		stream, want, ends := small(true, markers)
		for cut := 1; cut < len(stream); cut++ {
			d := mpa.Deframer{CRC: true, Markers: markers}
			got, err := deframe(&d, stream, []int{cut, len(stream)})
			if err != nil || !equalULPDUs(got, want) {
				t.Fatalf("markers %v, cut at %d: %d ULPDUs, %v", markers, cut, len(got), err)
			}
			d = mpa.Deframer{CRC: true, Markers: markers}
			if _, err := deframe(&d, stream[:cut], []int{len(stream)}); err != nil || d.AtBoundary() != ends[cut] {
				t.Fatalf("markers %v, end at %d: boundary %v, want %v (%v)", markers, cut, d.AtBoundary(), ends[cut], err)
			}
		}
		if got, err := deframe(&mpa.Deframer{CRC: true, Markers: markers}, stream, []int{1}); err != nil || !equalULPDUs(got, want) {
			t.Errorf("markers %v, byte by byte: %d ULPDUs, %v", markers, len(got), err)
		}
	}
}

// With CRC on, one wrong byte anywhere never delivers a ULPDU that was not sent.
func TestNoWrongByteGetsPastTheCRC(t *testing.T) {
	for _, markers := range []bool{false, true} {
		stream, want, _ := small(true, markers)
		for i := range stream {
			for _, x := range []byte{0x01, 0x80, 0xFF} {
				bad := bytes.Clone(stream)
				bad[i] ^= x
				d := mpa.Deframer{CRC: true, Markers: markers}
				got, err := deframe(&d, bad, []int{97})
				if len(got) >= len(want) || !equalULPDUs(got, want[:len(got)]) {
					t.Fatalf("markers %v, byte %d ^ %02x: %d ULPDUs, %v", markers, i, x, len(got), err)
				}
				if err == nil && d.AtBoundary() {
					t.Fatalf("markers %v, byte %d ^ %02x: no error, and nothing missing", markers, i, x)
				}
				if err != nil {
					if d.AtBoundary() {
						t.Fatalf("after %v the stream may end", err)
					}
					if _, again := d.Next(stream); again != err {
						t.Fatalf("after %v: %v", err, again)
					}
				}
			}
		}
	}
}

// RFC 5044 section 8: code 2 for a wrong CRC; code 3 for a marker that points
// elsewhere while the CRC is right.
func TestMarkersAreJudgedByRFC5044Section8(t *testing.T) {
	for _, crc := range []bool{true, false} {
		m := model{crc: crc, markers: true}
		m.fpdu(make([]byte, 700))
		fix := func(b []byte) []byte {
			if crc {
				binary.LittleEndian.PutUint32(b[len(b)-4:], bitCRC(b[:len(b)-4]))
			}
			return b
		}
		for _, c := range []struct {
			name   string
			mutate func(b []byte)
			want   error
		}{
			{"as sent", func([]byte) {}, nil},
			{"reserved half", func(b []byte) { b[512] = 0xAB }, nil},
			{"two low bits", func(b []byte) { b[515] |= 3 }, nil},
			{"first marker not 0", func(b []byte) { b[3] = 4 }, mpa.ErrMarker},
			{"inner marker 0", func(b []byte) { b[514], b[515] = 0, 0 }, mpa.ErrMarker},
			{"inner marker 4 too many", func(b []byte) { b[515] += 4 }, mpa.ErrMarker},
		} {
			b := bytes.Clone(m.out)
			c.mutate(b)
			if _, err := deframe(&mpa.Deframer{CRC: crc, Markers: true}, fix(b), []int{100}); err != c.want {
				t.Errorf("%s, CRC %v: %v, want %v", c.name, crc, err, c.want)
			}
			if crc && c.want != nil {
				b[len(b)-1]++
				if _, err := deframe(&mpa.Deframer{CRC: true, Markers: true}, b, []int{100}); err != mpa.ErrCRC {
					t.Errorf("%s and a wrong CRC: %v", c.name, err)
				}
			}
		}
	}
	for err, code := range map[error]rddp.Code{mpa.ErrCRC: 0x2002, mpa.ErrMarker: 0x2003} {
		if got, ok := rddp.CodeOf(err); !ok || got != code || !got.Sendable() {
			t.Errorf("%v: code %v", err, got)
		}
	}
}

func TestPadIsIgnoredAndCRCFieldTooWhenOff(t *testing.T) {
	b := unhex("0002 aabb deadbeef 0003 aabbcc 778899 01020304")
	u, n, err := mpa.Parse(b, false)
	if err != nil || n != 8 || !bytes.Equal(u, []byte{0xaa, 0xbb}) {
		t.Errorf("% x %d %v", u, n, err)
	}
	u, n, err = mpa.Parse(b[8:], false)
	if err != nil || n != 12 || !bytes.Equal(u, []byte{0xaa, 0xbb, 0xcc}) {
		t.Errorf("dirty pad: % x %d %v", u, n, err)
	}
	if got, err := deframe(&mpa.Deframer{}, b, []int{5}); err != nil || len(got) != 2 {
		t.Errorf("%x %v", got, err)
	}
	if _, _, err := mpa.Parse(b[8:], true); err != mpa.ErrCRC {
		t.Errorf("CRC on: %v", err)
	}
	copy(b[16:], mpa.AppendCRC(nil, bitCRC(b[8:16])))
	if u, _, err := mpa.Parse(b[8:], true); err != nil || len(u) != 3 {
		t.Errorf("dirty pad under a right CRC: %x %v", u, err)
	}
}

func TestParseSaysHowMuchItNeeds(t *testing.T) {
	b := (&mpa.Encoder{CRC: true}).Finish(append(mpa.Begin(nil), "payload"...), 0)
	for n := range b {
		want := len(b)
		if n < 2 {
			want = 2
		}
		if u, need, err := mpa.Parse(b[:n], true); u != nil || need != want || err != nil {
			t.Errorf("%d bytes: %q, %d, %v", n, u, need, err)
		}
	}
	if u, n, err := mpa.Parse(append(b, "next"...), true); string(u) != "payload" || n != len(b) || err != nil {
		t.Errorf("%q, %d, %v", u, n, err)
	}
}

func TestSizes(t *testing.T) {
	for n := range 1 << 16 {
		pad := mpa.PadLen(n)
		if total := mpa.FPDULen(n); pad < 0 || pad > 3 || total != 2+n+pad+4 || total%4 != 0 {
			t.Fatalf("ULPDU of %d: pad %d, FPDU %d", n, pad, total)
		}
	}
	for _, c := range [][3]int{ // EMSS, MULPDU without and with markers
		{1448, 1442, 1430}, {1460, 1454, 1442}, {8948, 8942, 8870}, {536, 530, 522}, {1500, 1494, 1482},
		{128, 128, 128}, {134, 128, 128}, {140, 134, 130}, {0, 128, 128}, {-5, 128, 128},
		{65483, 64768, 64768}, {1 << 30, 64768, 64768},
	} {
		if a, b := mpa.MULPDU(c[0], false), mpa.MULPDU(c[0], true); a != c[1] || b != c[2] {
			t.Errorf("EMSS %d: MULPDU %d and %d, want %v", c[0], a, b, c[1:])
		}
	}
	// What MULPDU promises: the FPDU fits into the segment, wherever markers fall.
	for emss := 142; emss < 65536; emss += 7 {
		if n := mpa.MULPDU(emss, false); mpa.FPDULen(n) > emss || n < mpa.MaxULPDU && mpa.FPDULen(n+1) <= emss {
			t.Fatalf("EMSS %d: MULPDU %d makes an FPDU of %d", emss, n, mpa.FPDULen(n))
		}
		n := mpa.FPDULen(mpa.MULPDU(emss, true))
		for pos := uint32(0); pos < 512; pos += 4 {
			if n+4*mpa.MarkerCount(pos, n) > emss {
				t.Fatalf("EMSS %d: FPDU of %d with %d markers", emss, n, mpa.MarkerCount(pos, n))
			}
		}
	}
}

func TestMarkerCountAndPositionsWrap(t *testing.T) {
	for pos := uint32(0); pos < 1024; pos += 4 {
		for n := 0; n < 2600; n += 4 {
			want, at := 0, pos
			for i := 0; i < n; i, at = i+1, at+1 {
				if at%512 == 0 {
					want++
					at += 4
				}
			}
			if got := mpa.MarkerCount(pos, n); got != want {
				t.Fatalf("%d bytes at %d: %d markers, want %d", n, pos, got, want)
			}
			if got := mpa.MarkerCount(pos-1<<20, n); got != want {
				t.Fatalf("%d bytes at %d below 2^32: %d markers, want %d", n, 1<<20-pos, got, want)
			}
		}
	}
}

func TestKernelFPDUsReencodeIdentically(t *testing.T) {
	fpdus, checked := 0, 0
	for _, s := range wiretest.MPA(t) {
		for kind, stream := range map[mpa.Kind][]byte{mpa.Request: s.ToServer.Bytes, mpa.Reply: s.ToClient.Bytes} {
			_, n, err := mpa.ParseStartup(stream, kind)
			if err != nil {
				t.Fatal(err)
			}
			enc := mpa.Encoder{CRC: s.CRC}
			var again []byte
			for rest := stream[n:]; len(rest) > 0; fpdus++ {
				u, n, err := mpa.Parse(rest, s.CRC)
				if err != nil || u == nil {
					t.Fatalf("%s: FPDU %d: %v", s.Capture, fpdus, err)
				}
				if s.CRC {
					checked++
				}
				from := len(again)
				again = enc.Finish(append(mpa.Begin(again), u...), from)
				rest = rest[n:]
			}
			if !bytes.Equal(again, stream[n:]) {
				t.Errorf("%s: the stream behind the %v changed", s.Capture, kind)
			}
		}
	}
	if fpdus != 330 || checked != 14 {
		t.Errorf("%d FPDUs, %d with CRC, want 330 and 14", fpdus, checked)
	}
}

func TestFramingAllocatesNothing(t *testing.T) {
	payload := make([]byte, 4096)
	for _, markers := range []bool{false, true} {
		enc := mpa.Encoder{CRC: true, Markers: markers}
		buf := make([]byte, 0, 8192)
		vec := make([][]byte, 0, 64)
		scratch := make([]byte, 0, 256)
		head := make([]byte, 0, 64)
		var stream []byte
		if n := testing.AllocsPerRun(100, func() {
			enc := mpa.Encoder{CRC: true, Markers: markers}
			stream = enc.Finish(append(append(mpa.Begin(buf), "header"...), payload...), 0)
		}); n != 0 {
			t.Errorf("Finish, markers %v: %v allocations", markers, n)
		}
		if n := testing.AllocsPerRun(100, func() {
			enc.FinishVec(vec, scratch, append(mpa.Begin(head), "header"...), payload[:100], payload[100:])
		}); n != 0 {
			t.Errorf("FinishVec, markers %v: %v allocations", markers, n)
		}
		if n := testing.AllocsPerRun(100, func() {
			d := mpa.Deframer{CRC: true, Markers: markers}
			for p := stream; ; {
				s, err := d.Next(p)
				if err != nil {
					t.Fatal(err)
				}
				if p = p[s.N:]; s.Event == mpa.End {
					break
				}
			}
		}); n != 0 {
			t.Errorf("Deframer, markers %v: %v allocations", markers, n)
		}
		if n := testing.AllocsPerRun(100, func() { mpa.Parse(stream, !markers) }); n != 0 {
			t.Errorf("Parse: %v allocations", n)
		}
	}
}

func FuzzDeframer(f *testing.F) {
	for _, s := range wiretest.MPA(f) {
		for _, b := range [][]byte{s.ToServer.Bytes, s.ToClient.Bytes} {
			n := 20 + int(binary.BigEndian.Uint16(b[18:]))
			f.Add(b[n:min(len(b), n+1000)], s.CRC, false, uint16(100))
		}
	}
	for _, crc := range []bool{false, true} {
		for _, markers := range []bool{false, true} {
			stream, _, _ := small(crc, markers)
			f.Add(stream, crc, markers, uint16(11))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, crc, markers bool, chunk uint16) {
		whole := mpa.Deframer{CRC: crc, Markers: markers}
		a, errA := deframe(&whole, b, []int{len(b)})
		split := mpa.Deframer{CRC: crc, Markers: markers}
		c, errC := deframe(&split, b, []int{int(chunk), 1, 3})
		if errA != errC || !equalULPDUs(a, c) || whole.AtBoundary() != split.AtBoundary() {
			t.Fatalf("whole: %d, %v; split: %d, %v", len(a), errA, len(c), errC)
		}
		if errA != nil {
			if _, ok := rddp.CodeOf(errA); !ok {
				t.Fatal(errA)
			}
		}
		if markers {
			return
		}
		rest := b
		for i := 0; ; i++ {
			u, n, err := mpa.Parse(rest, crc)
			if err != nil {
				if err != errA || i != len(a) {
					t.Fatalf("Parse: %v at %d; Deframer: %v at %d", err, i, errA, len(a))
				}
				return
			}
			if u == nil {
				if i != len(a) || errA != nil || n <= len(rest) || whole.AtBoundary() != (len(rest) == 0) {
					t.Fatalf("Parse ends at %d with %d bytes left, Deframer at %d with %v", i, len(rest), len(a), errA)
				}
				return
			}
			if !bytes.Equal(u, a[i]) {
				t.Fatalf("ULPDU %d differs", i)
			}
			rest = rest[n:]
		}
	})
}
