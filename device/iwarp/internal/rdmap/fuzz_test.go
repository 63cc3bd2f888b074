package rdmap_test

import (
	"bytes"
	"testing"

	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/rddp"
	"kdapl/device/iwarp/internal/rdmap"
)

// canonical is a ULPDU as its sender ought to have written it: reserved bits zero,
// and fields zero that mean nothing in its message.
func canonical(u []byte, op rdmap.Opcode) []byte {
	c := bytes.Clone(u)
	c[0] &^= byte(ddp.ControlReserved)
	c[1] &^= 0x30
	if op.Tagged() {
		return c
	}
	if !op.Invalidates() {
		clear(c[2:6])
	}
	if !op.Send() {
		clear(c[14:18]) // MO: these are single segments, sent with 0
	}
	if op == rdmap.OpAtomicRequest {
		clear(c[18:21])
		if c[21] &= 0xF; rdmap.AtomicOp(c[21]) == rdmap.FetchAdd {
			clear(c[54:62])
			copy(c[62:], "\xff\xff\xff\xff\xff\xff\xff\xff")
		}
	}
	return c
}

func FuzzULPDU(f *testing.F) {
	for _, s := range kernelStreams(f) {
		for i, u := range s.ulpdus {
			if i < 12 {
				f.Add(u[:min(len(u), 200)])
			}
		}
	}
	for _, b := range [][]byte{
		rdmap.AppendSend(nil, rdmap.OpSendSEInv, false, 9, 1, 0),
		rdmap.AppendImmediate(nil, rdmap.OpImmediateSE, 1, [8]byte{1}),
		rdmap.AppendAtomicRequest(nil, 1, rdmap.AtomicRequest{Op: rdmap.CmpSwap, TO: 8}),
		rdmap.AppendAtomicRequest(nil, 1, rdmap.AtomicRequest{Op: rdmap.FetchAdd, TO: 8}),
		rdmap.AppendAtomicResponse(nil, 1, rdmap.AtomicResponse{ID: 1, Original: 2}),
		rdmap.AppendTerminate(nil, rdmap.Terminate{Code: 0x0102, LengthValid: true, DDP: readULPDU, RDMA: readULPDU[18:]}),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, u []byte) {
		op, err := rdmap.CheckHeader(u, len(u))
		// The verdict does not depend on what follows the header.
		if early, err2 := rdmap.CheckHeader(u[:min(len(u), ddp.MaxHeaderLen)], len(u)); early != op || err2 != err {
			t.Fatalf("%v, %v; from the header alone %v, %v", op, err, early, err2)
		}
		if err != nil {
			code, ok := rddp.CodeOf(err)
			if !ok || !code.Registered() {
				t.Fatal(err)
			}
			m, ok := rdmap.TerminateFor(err, u, len(u))
			if b := rdmap.AppendTerminate(nil, m); !ok || len(b) > rdmap.MaxTerminateULPDULen {
				t.Fatalf("%v, % x", ok, b)
			}
			return
		}
		if op == rdmap.OpTerminate {
			return // FuzzTerminate's
		}
		again, _, err := reencode(u)
		if err != nil || !bytes.Equal(again, canonical(u, op)) {
			t.Fatalf("%v % x became % x, %v", op, u, again, err)
		}
		if op == rdmap.OpAtomicRequest {
			r, _ := rdmap.ParseAtomicRequest(u[ddp.UntaggedLen:])
			if off, err := r.Check(ddp.Region{Base: 64, Len: 64}); err == nil && (off > 56 || off%8 != 0) {
				t.Fatalf("%+v at %d", r, off)
			}
			if r.Op == rdmap.FetchAdd && r.Apply(r.Compare) != addBitByBit(r.Compare, r.Data, r.Mask) {
				t.Fatalf("%+v", r)
			}
		}
	})
}

func FuzzTerminate(f *testing.F) {
	for _, word := range []string{"2106 0000", "2103 0300 0004", "1000 0700 0000", "0206 0000", "2006 0000", "0102 e000 002e", "1101 c000 004e"} {
		b := unhex(word)
		f.Add(append(bytes.Clone(b), readULPDU...), false)
		f.Add(append(bytes.Clone(b), taggedHeader...), true)
		f.Add(b, false)
	}
	f.Fuzz(func(t *testing.T, b []byte, setUp bool) {
		m, err := rdmap.ParseTerminate(b, setUp)
		if err != nil && err != rdmap.ErrLength || err == nil && len(b) < rdmap.TerminateLen {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		// What was read says the same when sent in the RFC's order: the same bytes
		// if it came in that order, but for the reserved ones and what trails.
		again := rdmap.AppendTerminate(nil, m)
		if len(again) > rdmap.MaxTerminateULPDULen {
			t.Fatalf("% x", again)
		}
		again = again[ddp.UntaggedLen:]
		if len(again) > len(b) {
			t.Fatalf("% x became % x", b, again)
		}
		want := bytes.Clone(b[:len(again)])
		want[2], want[3] = again[2], 0
		if m.LittleEndian {
			want[0] = want[0]<<4 | want[0]>>4
		} else if b[2]&0xE0 != again[2] {
			t.Fatalf("% x became % x", b, again)
		}
		if !bytes.Equal(want, again) {
			t.Fatalf("% x became % x", b, again)
		}
	})
}
