package rdmap_test

import (
	"fmt"
	"testing"

	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rdmap"
)

var sizes = []int{8, 64, 1 << 10, 4 << 10, 64<<10 - 1024}

// sendCopied appends one whole Send to b: a small message's way.
func sendCopied(enc *mpa.Encoder, b []byte, msn uint32, payload []byte) []byte {
	start := len(b)
	b = rdmap.AppendSend(mpa.Begin(b), rdmap.OpSend, true, 0, msn, 0)
	return enc.Finish(append(b, payload...), start)
}

// receive takes one whole Send from b: its payload, and the FPDU's length.
func receive(b []byte, q *ddp.RecvQueue, crc bool) (payload []byte, n int, err error) {
	u, n, err := mpa.Parse(b, crc)
	if err != nil {
		return nil, 0, err
	}
	op, err := rdmap.CheckHeader(u, len(u))
	if err != nil || !op.Send() {
		return nil, 0, err
	}
	h, payload, err := ddp.ParseUntagged(u)
	if err != nil {
		return nil, 0, err
	}
	if err := q.Check(h.MSN(), h.MO(), len(payload), true, 1<<20); err != nil {
		return nil, 0, err
	}
	q.Accept(len(payload), h.Control().Last())
	return payload, n, nil
}

func BenchmarkSendCopied(b *testing.B) {
	for _, size := range sizes {
		for _, crc := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/crc=%v", size, crc), func(b *testing.B) {
				enc := mpa.Encoder{CRC: crc}
				payload, buf := make([]byte, size), make([]byte, 0, 1<<17)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := range b.N {
					buf = sendCopied(&enc, buf[:0], uint32(i), payload)
				}
			})
		}
	}
}

func BenchmarkSendReferenced(b *testing.B) {
	for _, size := range sizes {
		for _, crc := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/crc=%v", size, crc), func(b *testing.B) {
				enc := mpa.Encoder{CRC: crc}
				payload, head, scratch := make([]byte, size), make([]byte, 0, 64), make([]byte, 0, 64)
				vec := make([][]byte, 0, 8)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := range b.N {
					h := rdmap.AppendSend(mpa.Begin(head), rdmap.OpSend, true, 0, uint32(i), 0)
					enc.FinishVec(vec, scratch, h, payload)
				}
			})
		}
	}
}

func BenchmarkReceive(b *testing.B) {
	for _, size := range sizes {
		for _, crc := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/crc=%v", size, crc), func(b *testing.B) {
				f := sendCopied(&mpa.Encoder{CRC: crc}, nil, ddp.FirstMSN, make([]byte, size))
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for range b.N {
					var q ddp.RecvQueue
					if _, _, err := receive(f, &q, crc); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func TestSendsAndReceivesAllocateNothing(t *testing.T) {
	for _, size := range append(sizes, 0) {
		for _, crc := range []bool{false, true} {
			enc := mpa.Encoder{CRC: crc}
			payload, buf, vec := make([]byte, size), make([]byte, 0, 1<<17), make([][]byte, 0, 8)
			head, scratch := make([]byte, 0, 64), make([]byte, 0, 64)
			if n := testing.AllocsPerRun(50, func() {
				var q ddp.RecvQueue
				f := sendCopied(&enc, buf, q.MSN(), payload)
				if p, n, err := receive(f, &q, crc); err != nil || len(p) != size || n != len(f) {
					t.Fatal(len(p), n, err)
				}
				enc.FinishVec(vec, scratch, rdmap.AppendWrite(mpa.Begin(head), true, 1, 2), payload)
			}); n != 0 {
				t.Errorf("%d bytes, CRC %v: %v allocations", size, crc, n)
			}
		}
	}
}

func TestControlMessagesAllocateNothing(t *testing.T) {
	buf := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(50, func() {
		b := rdmap.AppendReadRequest(buf, 1, rdmap.ReadRequest{Size: 3})
		r, err := rdmap.ParseReadRequest(b[ddp.UntaggedLen:])
		if err != nil || r.Size != 3 {
			t.Fatal(err)
		}
		m, ok := rdmap.TerminateFor(rdmap.ErrBounds, b, len(b))
		if b = rdmap.AppendTerminate(b, m); !ok {
			t.Fatal("not sendable")
		}
		if _, err := rdmap.ParseTerminate(b[len(b)-52:], false); err != nil {
			t.Fatal(err)
		}
		b = rdmap.AppendAtomicRequest(buf, 1, rdmap.AtomicRequest{Op: rdmap.CmpSwap})
		a, err := rdmap.ParseAtomicRequest(b[ddp.UntaggedLen:])
		if err != nil {
			t.Fatal(err)
		}
		b = rdmap.AppendAtomicResponse(buf, 1, rdmap.AtomicResponse{Original: a.Apply(1)})
		if _, err := rdmap.ParseAtomicResponse(b[ddp.UntaggedLen:]); err != nil {
			t.Fatal(err)
		}
		b = rdmap.AppendImmediate(buf, rdmap.OpImmediate, 1, [8]byte{})
		if _, err := rdmap.CheckHeader(b, len(b)); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
