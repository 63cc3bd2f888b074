package rdmap_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/rddp"
	"kdapl/device/iwarp/internal/rdmap"

	"pgregory.net/rapid"
)

// RFC 5040 figures 3, 4 and 6, RFC 7306 figures 2, 4, 6 and 7: every message with
// every field set.
func TestMessageLayouts(t *testing.T) {
	const pattern = "0102030405060708"
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"Write":         {rdmap.AppendWrite(nil, true, 0x11223344, 0x0102030405060708), "c140 11223344" + pattern},
		"Write, more":   {rdmap.AppendWrite(nil, false, 0x11223344, 0x0102030405060708), "8140 11223344" + pattern},
		"Read Response": {rdmap.AppendReadResponse(nil, true, 0x11223344, 0x0102030405060708), "c142 11223344" + pattern},
		"Send":          {rdmap.AppendSend(nil, rdmap.OpSend, true, 0xAAAAAAAA, 7, 9), "4143 00000000 00000000 00000007 00000009"},
		"Send, more":    {rdmap.AppendSend(nil, rdmap.OpSend, false, 0, 7, 9), "0143 00000000 00000000 00000007 00000009"},
		"Send Inv":      {rdmap.AppendSend(nil, rdmap.OpSendInv, true, 0x11223344, 7, 9), "4144 11223344 00000000 00000007 00000009"},
		"Send SE":       {rdmap.AppendSend(nil, rdmap.OpSendSE, true, 0x11223344, 7, 9), "4145 00000000 00000000 00000007 00000009"},
		"Send SE Inv":   {rdmap.AppendSend(nil, rdmap.OpSendSEInv, true, 0x11223344, 7, 9), "4146 11223344 00000000 00000007 00000009"},
		"Immediate":     {rdmap.AppendImmediate(nil, rdmap.OpImmediate, 7, [8]byte([]byte("immedat8"))), "4148 00000000 00000000 00000007 00000000 696d6d6564617438"},
		"Immediate SE":  {rdmap.AppendImmediate(nil, rdmap.OpImmediateSE, 7, [8]byte{}), "4149 00000000 00000000 00000007 00000000 0000000000000000"},
		"Atomic Response": {rdmap.AppendAtomicResponse(nil, 7, rdmap.AtomicResponse{ID: 0x99, Original: 0x0102030405060708}),
			"414b 00000000 00000003 00000007 00000000 00000099" + pattern},
		"Read Request": {rdmap.AppendReadRequest(nil, 7, rdmap.ReadRequest{SinkSTag: 1, SinkTO: 2, Size: 3, SrcSTag: 4, SrcTO: 5}),
			"4141 00000000 00000001 00000007 00000000 00000001 0000000000000002 00000003 00000004 0000000000000005"},
		"CmpSwap": {rdmap.AppendAtomicRequest(nil, 7, rdmap.AtomicRequest{Op: rdmap.CmpSwap, ID: 1, STag: 2, TO: 3, Data: 4, Mask: 5, Compare: 6, CompareMask: 7}),
			"414a 00000000 00000001 00000007 00000000 00000002 00000001 00000002 0000000000000003 0000000000000004 0000000000000005 0000000000000006 0000000000000007"},
		"FetchAdd": {rdmap.AppendAtomicRequest(nil, 7, rdmap.AtomicRequest{Op: rdmap.FetchAdd, ID: 1, STag: 2, TO: 3, Data: 4, Mask: 5, Compare: 6, CompareMask: 7}),
			"414a 00000000 00000001 00000007 00000000 00000000 00000001 00000002 0000000000000003 0000000000000004 0000000000000005 0000000000000000 ffffffffffffffff"},
	} {
		if !bytes.Equal(c.got, unhex(c.want)) {
			t.Errorf("%s: % x, want % x", name, c.got, unhex(c.want))
		}
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	u32, u64 := rapid.Uint32(), rapid.Uint64()
	rapid.Check(t, func(t *rapid.T) {
		msn := u32.Draw(t, "MSN")
		r := rdmap.ReadRequest{u32.Draw(t, "a"), u64.Draw(t, "b"), u32.Draw(t, "c"), u32.Draw(t, "d"), u64.Draw(t, "e")}
		if got, err := rdmap.ParseReadRequest(r.Append(nil)); err != nil || got != r {
			t.Fatalf("%+v became %+v, %v", r, got, err)
		}
		a := rdmap.AtomicRequest{rdmap.CmpSwap, u32.Draw(t, "id"), u32.Draw(t, "stag"), u64.Draw(t, "to"),
			u64.Draw(t, "data"), u64.Draw(t, "mask"), u64.Draw(t, "compare"), u64.Draw(t, "cmask")}
		if rapid.Bool().Draw(t, "add") {
			a.Op, a.Compare, a.CompareMask = rdmap.FetchAdd, 0, math.MaxUint64
		}
		b := rdmap.AppendAtomicRequest(nil, msn, a)
		if got, err := rdmap.ParseAtomicRequest(b[ddp.UntaggedLen:]); err != nil || got != a {
			t.Fatalf("%+v became %+v, %v", a, got, err)
		}
		s := rdmap.AtomicResponse{u32.Draw(t, "id"), u64.Draw(t, "original")}
		if got, err := rdmap.ParseAtomicResponse(rdmap.AppendAtomicResponse(nil, msn, s)[ddp.UntaggedLen:]); err != nil || got != s {
			t.Fatalf("%+v became %+v, %v", s, got, err)
		}
		var d [8]byte
		binary.NativeEndian.PutUint64(d[:], u64.Draw(t, "immediate"))
		if got, err := rdmap.ParseImmediate(rdmap.AppendImmediate(nil, rdmap.OpImmediate, msn, d)[ddp.UntaggedLen:]); err != nil || got != d {
			t.Fatalf("%x became %x, %v", d, got, err)
		}
		n := rapid.IntRange(0, 80).Draw(t, "length")
		for size, parse := range map[int]func([]byte) error{
			28: func(b []byte) error { _, err := rdmap.ParseReadRequest(b); return err },
			52: func(b []byte) error { _, err := rdmap.ParseAtomicRequest(b); return err },
			12: func(b []byte) error { _, err := rdmap.ParseAtomicResponse(b); return err },
			8:  func(b []byte) error { _, err := rdmap.ParseImmediate(b); return err },
		} {
			if err := parse(make([]byte, n)); (err == nil) != (n == size) || err != nil && err != rdmap.ErrLength {
				t.Fatalf("a header of %d in %d bytes: %v", size, n, err)
			}
		}
	})
}

// CheckHeader against the tables of RFC 5040 figure 4 and RFC 7306 figure 2, for
// every control byte and opcode byte, and queue numbers and lengths around the right
// ones.
func TestHeadersAreCheckedByTheOpcodeTables(t *testing.T) {
	queue := map[int]uint32{1: 1, 3: 0, 4: 0, 5: 0, 6: 0, 7: 2, 8: 0, 9: 0, 10: 1, 11: 3} // untagged ones
	fixed := map[int]int{1: 28, 8: 8, 9: 8, 10: 52, 11: 12}
	for control := range 256 {
		tagged, last := control&0x80 != 0, control&0x40 != 0
		head := 18
		if tagged {
			head = 14
		}
		for ulp := range 256 {
			for _, qn := range []uint32{0, 1, 2, 3, 4, math.MaxUint32} {
				for _, n := range []int{-1, 0, 3, 4, 7, 8, 9, 11, 12, 13, 27, 28, 29, 51, 52, 53, 1000} {
					op := ulp & 0xF
					q, untagged := queue[op]
					known := op <= 11
					size, isFixed := fixed[op]
					var want error
					switch {
					case n < 0:
						want = ddp.ErrShort
					case control&3 != 1 && tagged:
						want = ddp.ErrTaggedVersion
					case control&3 != 1:
						want = ddp.ErrUntaggedVersion
					case !tagged && qn > 3:
						want = ddp.ErrQN
					case ulp>>6 != 1:
						want = rdmap.ErrVersion
					case !known || tagged == untagged:
						want = rdmap.ErrOpcode
					case untagged && qn != q:
						want = ddp.ErrQN
					case isFixed && n > size:
						want = ddp.ErrTooLong
					case isFixed && (n < size || !last):
						want = rdmap.ErrLength
					case op == 7 && n < 4:
						want = rdmap.ErrLength
					}
					b := make([]byte, 18)
					if tagged {
						binary.BigEndian.PutUint32(b[2:], qn)
					} else {
						binary.BigEndian.PutUint32(b[6:], qn)
					}
					b[0], b[1] = byte(control), byte(ulp)
					got, err := rdmap.CheckHeader(b, head+n)
					if err != want || err == nil && int(got) != op {
						t.Fatalf("control %02x %02x, QN %d, %d bytes of payload: %v, %v, want %v", control, ulp, qn, n, got, err, want)
					}
				}
			}
		}
	}
	for n := range 18 {
		if _, err := rdmap.CheckHeader(make([]byte, n), 100); err != ddp.ErrShort {
			t.Errorf("%d bytes of a header: %v", n, err)
		}
	}
}

func TestOpcodeProperties(t *testing.T) {
	for op := range rdmap.Opcode(16) {
		is := func(set ...rdmap.Opcode) bool {
			for _, o := range set {
				if o == op {
					return true
				}
			}
			return false
		}
		if op.Known() != (op < 12) || op.Send() != is(3, 4, 5, 6) || op.Solicited() != is(5, 6, 9) || op.Invalidates() != is(4, 6) {
			t.Errorf("%v: %v %v %v %v", op, op.Known(), op.Send(), op.Solicited(), op.Invalidates())
		}
		if op.String() == "" || op.Known() == bytes.Contains([]byte(op.String()), []byte("opcode")) {
			t.Errorf("opcode %d is called %q", op, op)
		}
		c := rdmap.MakeControl(op)
		if c.Opcode() != op || c.Version() != 1 || byte(c) != 0x40|byte(op) {
			t.Errorf("%v: control %02x", op, c)
		}
	}
}

// The bit loop of RFC 7306 section 5.1.1, one bit at a time.
func addBitByBit(old, add, mask uint64) (sum uint64) {
	carry := uint64(0)
	for bit := range 64 {
		s := carry + old>>bit&1 + add>>bit&1
		sum |= s & 1 << bit
		carry = s >> 1
		if mask>>bit&1 == 1 {
			carry = 0
		}
	}
	return sum
}

func TestAddFieldsIsTheRFCsBitLoop(t *testing.T) {
	edges := []uint64{0, 1, math.MaxUint64, 1 << 63, 1<<63 - 1, 0x8000000080000000, 0x8080808080808080, 0x7F7F7F7F7F7F7F7F, 0x0123456789ABCDEF}
	v := rapid.OneOf(rapid.SampledFrom(edges), rapid.Uint64())
	rapid.Check(t, func(t *rapid.T) {
		old, add, mask := v.Draw(t, "old"), v.Draw(t, "add"), v.Draw(t, "mask")
		if got, want := rdmap.AddFields(old, add, mask), addBitByBit(old, add, mask); got != want {
			t.Fatalf("%#x + %#x in fields %#x: %#x, want %#x", old, add, mask, got, want)
		}
		if got := rdmap.AddFields(old, add, 0); got != old+add {
			t.Fatalf("mask 0: %#x", got)
		}
	})
	// Four 16-bit counters in one word, each one wrapping on its own.
	if got := rdmap.AddFields(0xFFFF_0001_FFFF_7FFF, 0x0001_0001_0002_0001, 0x8000_8000_8000_8000); got != 0x0000_0002_0001_8000 {
		t.Errorf("%#x", got)
	}
}

func TestCompareSwapIsTheRFCsFormula(t *testing.T) {
	v := rapid.OneOf(rapid.SampledFrom([]uint64{0, 1, math.MaxUint64, 0xFF}), rapid.Uint64())
	rapid.Check(t, func(t *rapid.T) {
		old, swap, smask, cmp, cmask := v.Draw(t, "old"), v.Draw(t, "swap"), v.Draw(t, "smask"), v.Draw(t, "cmp"), v.Draw(t, "cmask")
		if rapid.Bool().Draw(t, "equal") {
			cmp = old ^ cmp&^cmask
		}
		want := old
		if !((cmp^old)&cmask != 0) {
			want = (old & ^smask) | (swap & smask)
		}
		if got := rdmap.CompareSwap(old, swap, smask, cmp, cmask); got != want {
			t.Fatalf("%#x, want %#x", got, want)
		}
	})
	all := uint64(math.MaxUint64)
	for _, c := range []struct{ old, swap, cmp, want uint64 }{{5, 9, 5, 9}, {5, 9, 6, 5}} {
		if got := rdmap.CompareSwap(c.old, c.swap, all, c.cmp, all); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestAtomicRequestIsCheckedAndApplied(t *testing.T) {
	region := ddp.Region{Base: 0x1000, Len: 20}
	for _, c := range []struct {
		name string
		op   rdmap.AtomicOp
		to   uint64
		off  uint64
		want error
	}{
		{"first word", rdmap.FetchAdd, 0x1000, 0, nil},
		{"second word", rdmap.CmpSwap, 0x1008, 8, nil},
		{"half a word left", rdmap.FetchAdd, 0x1010, 0, rdmap.ErrBounds},
		{"misaligned", rdmap.CmpSwap, 0x1004, 0, rdmap.ErrMisaligned},
		{"misaligned and outside", rdmap.CmpSwap, 1, 0, rdmap.ErrMisaligned},
		{"wrap", rdmap.FetchAdd, math.MaxUint64 - 7, 0, rdmap.ErrTOWrap},
		{"below", rdmap.FetchAdd, 0xFF8, 0, rdmap.ErrBounds},
		{"reserved operation", 1, 0x1000, 0, rdmap.ErrAtomicOp},
		{"unassigned operation", 15, 0x1001, 0, rdmap.ErrAtomicOp},
	} {
		r := rdmap.AtomicRequest{Op: c.op, TO: c.to, Data: 3, Mask: math.MaxUint64, Compare: 7, CompareMask: math.MaxUint64}
		off, err := r.Check(region)
		if err != c.want || off != c.off {
			t.Errorf("%s: %d, %v, want %v", c.name, off, err, c.want)
		}
		want := map[rdmap.AtomicOp]uint64{rdmap.FetchAdd: 7 ^ 3, rdmap.CmpSwap: 3}[c.op] // every bit is a field
		if want == 0 {
			want = 7
		}
		if got := r.Apply(7); got != want {
			t.Errorf("%s: 7 became %d, want %d", c.name, got, want)
		}
	}
	if code, _ := rddp.CodeOf(rdmap.ErrMisaligned); code != 0x0207 {
		t.Errorf("misaligned: %v", code)
	}
}

func TestReadSourceIsCheckedBySection72(t *testing.T) {
	r := ddp.Region{Base: 100, Len: 50}
	for _, c := range []struct {
		to   uint64
		size uint32
		off  uint64
		want error
	}{
		{100, 50, 0, nil}, {149, 1, 49, nil}, {150, 1, 0, rdmap.ErrBounds}, {99, 1, 0, rdmap.ErrBounds},
		{101, 50, 0, rdmap.ErrBounds}, {math.MaxUint64, 1, 0, rdmap.ErrTOWrap}, {math.MaxUint64 - 1, 1, 0, rdmap.ErrBounds},
		{0, 0, 0, nil}, {math.MaxUint64, 0, 0, nil}, // size 0: not validated
	} {
		if off, err := rdmap.CheckSource(r, c.to, c.size); off != c.off || err != c.want {
			t.Errorf("%d bytes at %d: %d, %v, want %v", c.size, c.to, off, err, c.want)
		}
	}
}

func TestReadResponseMustBeTheOneAskedFor(t *testing.T) {
	q := rdmap.ReadRequest{SinkSTag: 7, SinkTO: 1000, Size: 30}
	type seg struct {
		last bool
		stag uint32
		to   uint64
		n    int
	}
	for _, c := range []struct {
		name string
		size uint32
		segs []seg
		want error
	}{
		{"one segment", 30, []seg{{true, 7, 1000, 30}}, nil},
		{"three segments", 30, []seg{{false, 7, 1000, 10}, {false, 7, 1010, 19}, {true, 7, 1029, 1}}, nil},
		{"empty, nothing checked", 0, []seg{{true, 9, 5, 0}}, nil},
		{"empty last segment", 30, []seg{{false, 7, 1000, 30}, {true, 0, 0, 0}}, nil},
		{"other STag", 30, []seg{{true, 8, 1000, 30}}, ddp.ErrSTag},
		{"other STag later", 30, []seg{{false, 7, 1000, 10}, {true, 8, 1010, 20}}, ddp.ErrSTag},
		{"other TO", 30, []seg{{true, 7, 1001, 30}}, ddp.ErrBounds},
		{"gap", 30, []seg{{false, 7, 1000, 10}, {true, 7, 1011, 20}}, ddp.ErrBounds},
		{"too long", 30, []seg{{true, 7, 1000, 31}}, ddp.ErrBounds},
		{"too long in all", 30, []seg{{false, 7, 1000, 10}, {true, 7, 1010, 21}}, ddp.ErrBounds},
		{"too short", 30, []seg{{true, 7, 1000, 29}}, ddp.ErrBounds},
		{"too short, empty", 30, []seg{{true, 7, 1000, 0}}, ddp.ErrBounds},
	} {
		q.Size = c.size
		s := rdmap.NewReadSink(q)
		var err error
		for i, g := range c.segs {
			before := s
			if err = s.Accept(g.last, g.stag, g.to, g.n); err != nil {
				if s != before || i != len(c.segs)-1 {
					t.Errorf("%s: refused at segment %d: %+v", c.name, i, s)
				}
			}
		}
		if err != c.want || err == nil && s.Left != 0 {
			t.Errorf("%s: %v, %d left", c.name, err, s.Left)
		}
	}
}

func TestReadRequestAdvances(t *testing.T) {
	q := rdmap.ReadRequest{SinkSTag: 1, SinkTO: 1 << 40, Size: 5000, SrcSTag: 2, SrcTO: 1 << 50}
	if got, want := q.Advance(2048), (rdmap.ReadRequest{1, 1<<40 + 2048, 2952, 2, 1<<50 + 2048}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := q.Advance(1 << 31); got.Size != 0 || got.SrcTO != 1<<50+5000 {
		t.Errorf("%+v", got)
	}
}

// RFC 5040 figure 9.
func TestErrorsHaveTheNumbersOfTheRFC(t *testing.T) {
	for err, want := range map[error]rddp.Code{
		rdmap.ErrLocal: 0x0000, rdmap.ErrSTag: 0x0100, rdmap.ErrBounds: 0x0101, rdmap.ErrAccess: 0x0102, rdmap.ErrSTagStream: 0x0103,
		rdmap.ErrTOWrap: 0x0104, rdmap.ErrInvalidate: 0x0109, rdmap.ErrVersion: 0x0205, rdmap.ErrOpcode: 0x0206, rdmap.ErrUnrequested: 0x0206,
		rdmap.ErrAtomicOp: 0x0206, rdmap.ErrStream: 0x0207, rdmap.ErrMisaligned: 0x0207, rdmap.ErrLength: 0x02FF,
	} {
		if code, ok := rddp.CodeOf(err); !ok || code != want || !code.Registered() {
			t.Errorf("%v: %v, want %#04x", err, code, uint16(want))
		}
		if errors.Unwrap(err) != nil {
			t.Errorf("%v wraps something", err)
		}
	}
}
