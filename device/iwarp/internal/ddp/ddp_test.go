package ddp_test

import (
	"bytes"
	"encoding/hex"
	"math"
	"math/big"
	"strings"
	"testing"

	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rddp"
	"kdapl/device/iwarp/internal/wiretest"

	"pgregory.net/rapid"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// RFC 5041 figures 3 to 5.
func TestHeaderLayout(t *testing.T) {
	b := ddp.AppendTagged([]byte{0xEE}, true, 0x40, 0x11223344, 0x5566778899AABBCC)
	if want := unhex("ee c1 40 11223344 5566778899aabbcc"); !bytes.Equal(b, want) {
		t.Errorf("tagged: % x, want % x", b, want)
	}
	if b := ddp.AppendTagged(nil, false, 0, 0, 0); b[0] != 0x81 {
		t.Errorf("tagged, not last: %02x", b[0])
	}
	b = ddp.AppendUntagged([]byte{0xEE}, true, 0x44, 0x11223344, 0x55667788, 0x99AABBCC, 0xDDEEFF00)
	if want := unhex("ee 41 44 11223344 55667788 99aabbcc ddeeff00"); !bytes.Equal(b, want) {
		t.Errorf("untagged: % x, want % x", b, want)
	}
	if b := ddp.AppendUntagged(nil, false, 0, 0, 0, 0, 0); b[0] != 0x01 {
		t.Errorf("untagged, not last: %02x", b[0])
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last, ulp := rapid.Bool().Draw(t, "last"), rapid.Byte().Draw(t, "ulp")
		u := [5]uint32{}
		for i := range u {
			u[i] = rapid.Uint32().Draw(t, "word")
		}
		to := rapid.Uint64().Draw(t, "TO")
		h, rest, err := ddp.ParseTagged(append(ddp.AppendTagged(nil, last, ulp, u[0], to), 7))
		if err != nil || h.Control() != ddp.MakeControl(true, last) || h.ULP() != ulp || h.STag() != u[0] || h.TO() != to || len(rest) != 1 {
			t.Fatalf("tagged: %v, %v", h, err)
		}
		v, rest, err := ddp.ParseUntagged(append(ddp.AppendUntagged(nil, last, ulp, u[1], u[2], u[3], u[4]), 7))
		if err != nil || v.Control() != ddp.MakeControl(false, last) || v.ULP() != ulp || v.ULP32() != u[1] || v.QN() != u[2] || v.MSN() != u[3] || v.MO() != u[4] || len(rest) != 1 {
			t.Fatalf("untagged: %v, %v", v, err)
		}
	})
}

// Section 4.1: DV must be 1, reserved bits are not checked.
func TestControlByte(t *testing.T) {
	for i := range 256 {
		c := ddp.Control(i)
		var want error
		if i&3 != 1 {
			want = ddp.ErrUntaggedVersion
			if i&0x80 != 0 {
				want = ddp.ErrTaggedVersion
			}
		}
		if err := c.CheckVersion(); err != want {
			t.Errorf("%02x: %v, want %v", i, err, want)
		}
		size := 18
		if i&0x80 != 0 {
			size = 14
		}
		if c.Tagged() != (size == 14) || c.Last() != (i&0x40 != 0) || int(c.Version()) != i&3 || c.HeaderLen() != size {
			t.Errorf("%02x: %v %v %v %v", i, c.Tagged(), c.Last(), c.Version(), c.HeaderLen())
		}
		for n := range 20 {
			got, err := ddp.ParseControl([]byte{byte(i)}, n)
			if wantErr := n < size; (err != nil) != wantErr || err == nil && got != c {
				t.Errorf("%02x in a ULPDU of %d: %v", i, n, err)
			}
		}
	}
	if _, err := ddp.ParseControl(nil, 20); err != ddp.ErrShort {
		t.Errorf("no byte: %v", err)
	}
	for n := range 18 {
		if _, _, err := ddp.ParseUntagged(make([]byte, n)); err != ddp.ErrShort {
			t.Errorf("untagged header in %d bytes: %v", n, err)
		}
		if _, _, err := ddp.ParseTagged(make([]byte, n)); (err == ddp.ErrShort) != (n < 14) {
			t.Errorf("tagged header in %d bytes: %v", n, err)
		}
	}
}

// RFC 5041 section 7.2's table.
func TestErrorsHaveTheNumbersOfTheRFC(t *testing.T) {
	for err, want := range map[error]rddp.Code{
		ddp.ErrSTag: 0x1100, ddp.ErrBounds: 0x1101, ddp.ErrSTagStream: 0x1102, ddp.ErrTOWrap: 0x1103,
		ddp.ErrTaggedVersion: 0x1104, ddp.ErrQN: 0x1201, ddp.ErrNoBuffer: 0x1202, ddp.ErrMSN: 0x1203,
		ddp.ErrMO: 0x1204, ddp.ErrTooLong: 0x1205, ddp.ErrUntaggedVersion: 0x1206, ddp.ErrLocal: 0x1000,
		ddp.ErrShort: 0x2003,
	} {
		if code, ok := rddp.CodeOf(err); !ok || code != want || !code.Sendable() || !code.Registered() {
			t.Errorf("%v: %v, want %#04x", err, code, uint16(want))
		}
	}
}

type cut struct{ offset, n uint32 }

func cuts(s ddp.Segments) (all []cut) {
	for {
		offset, n, last, ok := s.Next()
		if !ok {
			return all
		}
		all = append(all, cut{offset, n})
		if last != s.Done() {
			panic("last and Done disagree")
		}
	}
}

// The examples of section 5.2, and siw's own cut of dapltest's 8192-byte Sends at
// an MSS of 1448.
func TestSegmentExamples(t *testing.T) {
	for _, c := range []struct {
		s    ddp.Segments
		want []cut
	}{
		{ddp.NewSegments(2048, ddp.UntaggedLen, 1500), []cut{{0, 1482}, {1482, 566}}},
		{ddp.NewSegments(2048, ddp.TaggedLen, 1500), []cut{{0, 1486}, {17870 - 16384, 562}}},
		{ddp.NewSegments(8192, ddp.UntaggedLen, mpa.MULPDU(1448, false)), []cut{{0, 1424}, {1424, 1424}, {2848, 1424}, {4272, 1424}, {5696, 1424}, {7120, 1072}}},
		{ddp.NewSegments(0, ddp.UntaggedLen, 1500), []cut{{0, 0}}},
		{ddp.NewSegments(1482, ddp.UntaggedLen, 1500), []cut{{0, 1482}}},
		{ddp.NewSegments(2, ddp.UntaggedLen, -7), []cut{{0, 1}, {1, 1}}},
		{ddp.NewSegments(math.MaxUint32, ddp.TaggedLen, math.MaxInt32), []cut{{0, math.MaxInt32 - 14}, {math.MaxInt32 - 14, math.MaxInt32 - 14}, {2 * (math.MaxInt32 - 14), 29}}},
	} {
		got := cuts(c.s)
		if len(got) != len(c.want) {
			t.Errorf("%v, want %v", got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%v, want %v", got, c.want)
			}
		}
	}
}

func TestSegmentsCoverTheMessageOnceInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.Uint32Range(0, 300_000).Draw(t, "length")
		header := rapid.SampledFrom([]int{ddp.TaggedLen, ddp.UntaggedLen}).Draw(t, "header")
		mulpdu := rapid.IntRange(mpa.MinMULPDU, mpa.MaxULPDU).Draw(t, "MULPDU")
		s := ddp.NewSegments(length, header, mulpdu)
		var sum uint32
		for i := 0; ; i++ {
			offset, n, last, ok := s.Next()
			if !ok {
				t.Fatal("no last segment")
			}
			if offset != sum || int(n)+header > mulpdu || n == 0 && length != 0 {
				t.Fatalf("segment %d: %d bytes at %d of %d", i, n, offset, length)
			}
			sum += n
			if s.Remaining() != length-sum || last != (sum == length) {
				t.Fatalf("segment %d: last %v, %d remain", i, last, s.Remaining())
			}
			if last {
				break
			}
			if int(n)+header != mulpdu {
				t.Fatalf("segment %d is smaller than it could be: %d", i, n)
			}
			mulpdu = rapid.IntRange(mpa.MinMULPDU, mpa.MaxULPDU).Draw(t, "MULPDU")
			s.Resize(mulpdu)
		}
		if _, _, _, ok := s.Next(); ok {
			t.Fatal("a segment behind the last")
		}
	})
}

// Section 7.1 for tagged segments, against arithmetic that cannot wrap.
func TestTaggedChecksAgainstExactArithmetic(t *testing.T) {
	edge := rapid.OneOf(rapid.Uint64Range(0, 40), rapid.Uint64Range(math.MaxUint64-40, math.MaxUint64), rapid.Uint64())
	limit := new(big.Int).Lsh(big.NewInt(1), 64)
	rapid.Check(t, func(t *rapid.T) {
		r := ddp.Region{Base: edge.Draw(t, "base"), Len: edge.Draw(t, "len")}
		to, n := edge.Draw(t, "TO"), rapid.IntRange(1, 60).Draw(t, "n")
		if rapid.Bool().Draw(t, "near") {
			to = r.Base + edge.Draw(t, "offset")
		}
		x := func(v uint64) *big.Int { return new(big.Int).SetUint64(v) }
		end := new(big.Int).Add(x(to), big.NewInt(int64(n)))
		bound := new(big.Int).Add(x(r.Base), x(r.Len))
		var want error
		switch {
		case end.Cmp(limit) >= 0:
			want = ddp.ErrTOWrap
		case to < r.Base || end.Cmp(bound) > 0:
			want = ddp.ErrBounds
		}
		offset, err := ddp.CheckTagged(r, to, n)
		if err != want || err == nil && offset != to-r.Base {
			t.Fatalf("%d bytes at %#x in %#x+%#x: %d, %v, want %v", n, to, r.Base, r.Len, offset, err, want)
		}
	})
}

func TestTaggedRangesAtTheirEdges(t *testing.T) {
	const top = math.MaxUint64
	for _, c := range []struct {
		r    ddp.Region
		to   uint64
		n    int
		want error
	}{
		{ddp.Region{Base: 100, Len: 10}, 100, 10, nil},
		{ddp.Region{Base: 100, Len: 10}, 109, 1, nil},
		{ddp.Region{Base: 100, Len: 10}, 110, 1, ddp.ErrBounds},
		{ddp.Region{Base: 100, Len: 10}, 99, 1, ddp.ErrBounds},
		{ddp.Region{Base: 100, Len: 10}, 100, 11, ddp.ErrBounds},
		{ddp.Region{Base: top - 9, Len: 9}, top - 9, 9, nil}, // ends at 2^64-1
		{ddp.Region{Base: top - 9, Len: 10}, top - 9, 10, ddp.ErrTOWrap},
		{ddp.Region{Base: top - 9, Len: 10}, top, 1, ddp.ErrTOWrap},
		{ddp.Region{Base: 0, Len: top}, 0, 1 << 30, nil},
		{ddp.Region{Base: 5, Len: 0}, 5, 1, ddp.ErrBounds},
	} {
		off, err := ddp.CheckTagged(c.r, c.to, c.n)
		if err != c.want || err == nil && off != c.to-c.r.Base {
			t.Errorf("%d bytes at %#x in %+v: %d, %v, want %v", c.n, c.to, c.r, off, err, c.want)
		}
	}
}

func TestEmptyTaggedSegmentIsNotChecked(t *testing.T) {
	if off, err := ddp.CheckTagged(ddp.Region{Base: 5, Len: 0}, math.MaxUint64, 0); off != 0 || err != nil {
		t.Errorf("%d, %v", off, err)
	}
}

func TestUntaggedChecksOfSection71(t *testing.T) {
	var q ddp.RecvQueue
	check := func(name string, want error, msn, mo uint32, n int, avail bool, size uint32) {
		t.Helper()
		if err := q.Check(msn, mo, n, avail, size); err != want {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	check("first message", nil, 1, 0, 10, true, 10)
	check("MSN 0", ddp.ErrMSN, 0, 0, 10, true, 10)
	check("MSN skipped", ddp.ErrMSN, 2, 0, 10, true, 10)
	check("no buffer", ddp.ErrNoBuffer, 1, 0, 10, false, 0)
	check("no buffer for an empty Send", ddp.ErrNoBuffer, 1, 0, 0, false, 0)
	check("MO not 0", ddp.ErrMO, 1, 4, 1, true, 10)
	check("one byte too long", ddp.ErrTooLong, 1, 0, 11, true, 10)
	check("empty into an empty buffer", nil, 1, 0, 0, true, 0)

	if n := q.Accept(6, false); n != 0 || q.MSN() != 1 || q.Offset() != 6 || !q.Open() {
		t.Errorf("after 6 bytes: %d, %+v", n, q)
	}
	check("continued", nil, 1, 6, 4, true, 10)
	check("repeated", ddp.ErrMO, 1, 0, 4, true, 10)
	check("gap", ddp.ErrMO, 1, 7, 1, true, 10)
	check("MO beyond the buffer", ddp.ErrMO, 1, 11, 0, true, 10)
	check("too long in all", ddp.ErrTooLong, 1, 6, 5, true, 10)
	check("next message before the end", ddp.ErrMSN, 2, 0, 1, true, 10)
	if n := q.Accept(4, true); n != 10 || q.MSN() != 2 || q.Offset() != 0 || q.Open() {
		t.Errorf("at the end: %d, %+v", n, q)
	}
	check("the finished message again", ddp.ErrMSN, 1, 0, 1, true, 10)
	check("next message", nil, 2, 0, 1, true, 10)
}

// Every stream of every capture passes the untagged checks to its end, given
// buffers that are exactly as long as the messages.
func TestKernelStreamsPassTheUntaggedChecks(t *testing.T) {
	segments, messages, more := 0, 0, 0
	for _, s := range wiretest.MPA(t) {
		for kind, stream := range map[mpa.Kind][]byte{mpa.Request: s.ToServer.Bytes, mpa.Reply: s.ToClient.Bytes} {
			_, n, err := mpa.ParseStartup(stream, kind)
			if err != nil {
				t.Fatal(err)
			}
			var queues [3]ddp.RecvQueue
			for rest := stream[n:]; len(rest) > 0; rest = rest[n:] {
				var u []byte
				if u, n, err = mpa.Parse(rest, s.CRC); err != nil || u == nil {
					t.Fatal(s.Capture, err)
				}
				c, err := ddp.ParseControl(u, len(u))
				if err != nil || c.CheckVersion() != nil || c&ddp.ControlReserved != 0 {
					t.Fatalf("%s: control %02x, %v", s.Capture, c, err)
				}
				segments++
				if !c.Last() {
					more++
				}
				if c.Tagged() {
					continue
				}
				h, payload, err := ddp.ParseUntagged(u)
				if err != nil || h.QN() > 2 {
					t.Fatal(s.Capture, err)
				}
				q := &queues[h.QN()]
				size := h.MO() + uint32(len(payload))
				if err := q.Check(h.MSN(), h.MO(), len(payload), true, size); err != nil {
					t.Fatalf("%s: % x: %v", s.Capture, h[:], err)
				}
				if got := q.Accept(len(payload), c.Last()); c.Last() {
					messages++
					if got != size {
						t.Fatalf("%s: message of %d bytes ends at %d", s.Capture, got, size)
					}
				}
			}
		}
	}
	if segments != 330 || more != 30 || messages != 284-30+15 {
		t.Errorf("%d segments, %d not last, %d untagged messages", segments, more, messages)
	}
}

func TestHeadersAndChecksAllocateNothing(t *testing.T) {
	buf := make([]byte, 0, 64)
	var q ddp.RecvQueue
	var sum uint64
	if n := testing.AllocsPerRun(100, func() {
		b := ddp.AppendUntagged(ddp.AppendTagged(buf, true, 1, 2, 3), true, 1, 2, 3, q.MSN(), 0)
		h, rest, _ := ddp.ParseTagged(b)
		v, _, _ := ddp.ParseUntagged(rest)
		off, _ := ddp.CheckTagged(ddp.Region{Len: 100}, h.TO(), 4)
		if err := q.Check(v.MSN(), v.MO(), 9, true, 8); err != ddp.ErrTooLong {
			t.Fatal(err)
		}
		q.Accept(8, true)
		s := ddp.NewSegments(10000, ddp.UntaggedLen, 1442)
		for _, n, _, ok := s.Next(); ok; _, n, _, ok = s.Next() {
			sum += uint64(n) + off
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzSegments feeds a whole stream of segments, each a ULPDU with a length byte in
// front, to the parse functions and one queue, as a receiver does.
func FuzzSegments(f *testing.F) {
	for _, s := range wiretest.MPA(f) {
		var seed []byte
		rest := s.ToServer.Bytes
		_, n, err := mpa.ParseStartup(rest, mpa.Request)
		for rest = rest[n:]; err == nil && len(rest) > 0 && len(seed) < 400; rest = rest[n:] {
			var u []byte
			if u, n, err = mpa.Parse(rest, false); err == nil && len(u) < 100 {
				seed = append(append(seed, byte(len(u))), u...)
			}
		}
		f.Add(seed, uint32(64))
	}
	f.Add([]byte{1, 0x41, 14, 0xC1}, uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, size uint32) {
		var q ddp.RecvQueue
		for len(b) > 0 {
			n := min(int(b[0]), len(b)-1)
			u := b[1 : 1+n]
			b = b[1+n:]
			c, err := ddp.ParseControl(u, len(u))
			if err != nil {
				if len(u) >= ddp.MaxHeaderLen {
					t.Fatalf("%d bytes: %v", len(u), err)
				}
				continue
			}
			if c.Tagged() {
				h, rest, err := ddp.ParseTagged(u)
				if err != nil {
					t.Fatal(err)
				}
				again := ddp.AppendTagged(nil, c.Last(), h.ULP(), h.STag(), h.TO())
				if again[0] != u[0]&0xC0|1 || !bytes.Equal(again[1:], u[1:14]) {
					t.Fatalf("% x became % x", u, again)
				}
				r := ddp.Region{Base: uint64(size), Len: uint64(size)}
				if off, err := ddp.CheckTagged(r, h.TO(), len(rest)); err == nil && off+uint64(len(rest)) > uint64(size) {
					t.Fatalf("%d bytes at %d of %d", len(rest), off, size)
				}
				continue
			}
			h, rest, err := ddp.ParseUntagged(u)
			if err != nil {
				t.Fatal(err)
			}
			again := ddp.AppendUntagged(nil, c.Last(), h.ULP(), h.ULP32(), h.QN(), h.MSN(), h.MO())
			if again[0] != u[0]&0xC0|1 || !bytes.Equal(again[1:], u[1:18]) {
				t.Fatalf("% x became % x", u, again)
			}
			if q.Check(h.MSN(), h.MO(), len(rest), true, size) == nil {
				before := q.Offset()
				if length := q.Accept(len(rest), c.Last()); length > size || q.Offset() > size || before > size {
					t.Fatalf("%d bytes accepted into %d", length, size)
				}
			}
		}
	})
}
