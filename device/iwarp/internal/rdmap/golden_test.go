package rdmap_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/device/iwarp/internal/wiretest"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		panic(err)
	}
	return b
}

// reencode decodes a ULPDU into the values of its message and encodes them again.
func reencode(u []byte) ([]byte, rdmap.Opcode, error) {
	op, err := rdmap.CheckHeader(u, len(u))
	if err != nil {
		return nil, op, err
	}
	last := ddp.Control(u[0]).Last()
	if op.Tagged() {
		h, payload, err := ddp.ParseTagged(u)
		if err != nil {
			return nil, op, err
		}
		appendHeader := rdmap.AppendWrite
		if op == rdmap.OpReadResponse {
			appendHeader = rdmap.AppendReadResponse
		}
		return append(appendHeader(nil, last, h.STag(), h.TO()), payload...), op, nil
	}
	h, payload, err := ddp.ParseUntagged(u)
	if err != nil {
		return nil, op, err
	}
	switch {
	case op.Send():
		return append(rdmap.AppendSend(nil, op, last, h.ULP32(), h.MSN(), h.MO()), payload...), op, nil
	case op == rdmap.OpReadRequest:
		r, err := rdmap.ParseReadRequest(payload)
		return rdmap.AppendReadRequest(nil, h.MSN(), r), op, err
	case op == rdmap.OpTerminate:
		m, err := rdmap.ParseTerminate(payload, false)
		return rdmap.AppendTerminate(nil, m), op, err
	case op == rdmap.OpImmediate || op == rdmap.OpImmediateSE:
		d, err := rdmap.ParseImmediate(payload)
		return rdmap.AppendImmediate(nil, op, h.MSN(), d), op, err
	case op == rdmap.OpAtomicRequest:
		r, err := rdmap.ParseAtomicRequest(payload)
		return rdmap.AppendAtomicRequest(nil, h.MSN(), r), op, err
	}
	r, err := rdmap.ParseAtomicResponse(payload)
	return rdmap.AppendAtomicResponse(nil, h.MSN(), r), op, err
}

// stream is one direction of a kernel's session, taken apart.
type stream struct {
	name   string
	ulpdus [][]byte
	fpdus  []byte // the bytes behind the start-up frame
	crc    bool
	other  *stream
}

func kernelStreams(tb testing.TB) (all []*stream) {
	for _, s := range wiretest.MPA(tb) {
		pair := [2]*stream{}
		for i, b := range [][]byte{s.ToServer.Bytes, s.ToClient.Bytes} {
			_, n, err := mpa.ParseStartup(b, mpa.Kind(i))
			if err != nil {
				tb.Fatal(err)
			}
			st := &stream{name: s.Capture + [2]string{" to server", " to client"}[i], fpdus: b[n:], crc: s.CRC}
			for rest := st.fpdus; len(rest) > 0; rest = rest[n:] {
				var u []byte
				if u, n, err = mpa.Parse(rest, s.CRC); err != nil || u == nil {
					tb.Fatalf("%s: %d bytes left: %v", st.name, len(rest), err)
				}
				st.ulpdus = append(st.ulpdus, u)
			}
			pair[i] = st
		}
		pair[0].other, pair[1].other = pair[1], pair[0]
		all = append(all, pair[:]...)
	}
	return all
}

// Every recorded session decodes to its last byte, message by message, and what was
// decoded encodes to the same bytes. Pads are zero in the recordings, and where CRCs
// are off siw sends zero in their field, as this package's encoder does; so nothing
// needs to be left out of the comparison.
func TestKernelSessionsDecodeAndReencodeIdentically(t *testing.T) {
	count := map[rdmap.Opcode]int{}
	for _, s := range kernelStreams(t) {
		enc := mpa.Encoder{CRC: s.crc}
		var again []byte
		for i, u := range s.ulpdus {
			v, op, err := reencode(u)
			if err != nil || !bytes.Equal(u, v) {
				t.Fatalf("%s, FPDU %d (%v): % x became % x (%v)", s.name, i, op, u, v, err)
			}
			count[op]++
			from := len(again)
			again = enc.Finish(append(mpa.Begin(again), v...), from)
		}
		if !bytes.Equal(again, s.fpdus) {
			t.Errorf("%s: the stream is not the same", s.name)
		}
	}
	want := map[rdmap.Opcode]int{rdmap.OpSend: 284, rdmap.OpWrite: 16, rdmap.OpReadRequest: 15, rdmap.OpReadResponse: 15}
	for op := range rdmap.Opcode(16) {
		if count[op] != want[op] {
			t.Errorf("%d segments of %v, want %d", count[op], op, want[op])
		}
	}
}

// The messages of each session, put together and cut again at the kernel's segment
// size (MSS 1448), give the kernel's own segments; each Read Response is the one
// that its Request asked for.
func TestKernelMessagesAreCutAsByTheKernel(t *testing.T) {
	const mulpdu = 1442
	for _, s := range kernelStreams(t) {
		var again [][]byte
		var queues [rdmap.Queues]ddp.SendQueue
		var sinks []rdmap.ReadSink
		for _, u := range s.other.ulpdus {
			if op, err := rdmap.CheckHeader(u, len(u)); err == nil && op == rdmap.OpReadRequest {
				r, err := rdmap.ParseReadRequest(u[ddp.UntaggedLen:])
				if err != nil {
					t.Fatal(err)
				}
				sinks = append(sinks, rdmap.NewReadSink(r))
			}
		}
		for i := 0; i < len(s.ulpdus); {
			first := s.ulpdus[i]
			op, err := rdmap.CheckHeader(first, len(first))
			if err != nil {
				t.Fatal(err)
			}
			head := ddp.Control(first[0]).HeaderLen()
			var message []byte
			for last := false; !last; i++ {
				u := s.ulpdus[i]
				last = ddp.Control(u[0]).Last()
				message = append(message, u[head:]...)
				if op == rdmap.OpReadResponse {
					h, payload, _ := ddp.ParseTagged(u)
					if len(sinks) == 0 {
						t.Fatalf("%s: a Response too many", s.name)
					}
					if err := sinks[0].Accept(last, h.STag(), h.TO(), len(payload)); err != nil {
						t.Fatalf("%s: % x: %v", s.name, u, err)
					}
					if last {
						sinks = sinks[1:]
					}
				}
			}
			cut := ddp.NewSegments(uint32(len(message)), head, mulpdu)
			var msn uint32
			if !op.Tagged() {
				msn = queues[op.Queue()].Next()
			}
			for off, n, last, ok := cut.Next(); ok; off, n, last, ok = cut.Next() {
				var b []byte
				switch {
				case op.Send():
					b = rdmap.AppendSend(nil, op, last, 0, msn, off)
				case op == rdmap.OpReadRequest:
					r, _ := rdmap.ParseReadRequest(message)
					again = append(again, rdmap.AppendReadRequest(nil, msn, r))
					continue
				default:
					h, _, _ := ddp.ParseTagged(first)
					appendHeader := rdmap.AppendWrite
					if op == rdmap.OpReadResponse {
						appendHeader = rdmap.AppendReadResponse
					}
					b = appendHeader(nil, last, h.STag(), h.TO()+uint64(off))
				}
				again = append(again, append(b, message[off:off+n]...))
			}
		}
		if len(sinks) != 0 {
			t.Errorf("%s: %d Reads not answered", s.name, len(sinks))
		}
		if len(again) != len(s.ulpdus) {
			t.Fatalf("%s: %d segments, want %d", s.name, len(again), len(s.ulpdus))
		}
		for i := range again {
			if !bytes.Equal(again[i], s.ulpdus[i]) {
				t.Fatalf("%s, segment %d: % x, want % x", s.name, i, again[i], s.ulpdus[i])
			}
		}
	}
}

// The first round of siw-crc-rping, written down value by value and encoded from
// these: two rping peers with CRC on.
func TestRpingRoundFromItsValues(t *testing.T) {
	const srcKey, srcAddr = 0x317e3800, 0x00005559d5bf3370
	const sinkKey, sinkAddr = 0x9a1e2200, 0x00005559d5bf3550
	text := append([]byte("rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr"), 0)
	if len(text) != 64 {
		t.Fatal(len(text))
	}
	read := rdmap.ReadRequest{SinkSTag: 0xaaac0000, SinkTO: 0x000055fe0a4c9550, Size: 64, SrcSTag: srcKey, SrcTO: srcAddr}
	block := mpa.Enhanced{IRD: 1, ORD: 1}
	h := mpa.Header{Flags: mpa.FlagCRC | mpa.FlagEnhanced, Rev: 2, Enhanced: block}

	initiator, responder := mpa.Encoder{CRC: true}, mpa.Encoder{CRC: true}
	i, _ := mpa.AppendStartup(nil, mpa.Request, h, nil)
	r, _ := mpa.AppendStartup(nil, mpa.Reply, h, nil)
	add := func(e *mpa.Encoder, b, header, payload []byte) []byte {
		return e.Finish(append(append(mpa.Begin(b), header...), payload...), len(b))
	}
	i = add(&initiator, i, rdmap.AppendSend(nil, rdmap.OpSend, true, 0, 1, 0), unhex("00005559d5bf3370 317e3800 00000040"))
	r = add(&responder, r, rdmap.AppendReadRequest(nil, 1, read), nil)
	i = add(&initiator, i, rdmap.AppendReadResponse(nil, true, read.SinkSTag, read.SinkTO), text)
	r = add(&responder, r, rdmap.AppendSend(nil, rdmap.OpSend, true, 0, 1, 0), make([]byte, 16))
	i = add(&initiator, i, rdmap.AppendSend(nil, rdmap.OpSend, true, 0, 2, 0), unhex("00005559d5bf3550 9a1e2200 00000040"))
	r = add(&responder, r, rdmap.AppendWrite(nil, true, sinkKey, sinkAddr), text)
	r = add(&responder, r, rdmap.AppendSend(nil, rdmap.OpSend, true, 0, 2, 0), make([]byte, 16))

	for _, s := range wiretest.MPA(t) {
		if s.Capture != "siw-crc-rping" {
			continue
		}
		if !bytes.HasPrefix(s.ToServer.Bytes, i) || !bytes.HasPrefix(s.ToClient.Bytes, r) {
			t.Errorf("not the recorded bytes:\n% x\n% x", i, r)
		}
		for _, crc := range []string{"d8cb6376", "ae1704b8", "06e253a7"} {
			if !bytes.Contains(i, unhex(crc)) {
				t.Errorf("no CRC %s in what the initiator sent", crc)
			}
		}
		return
	}
	t.Error("no session of siw-crc-rping")
}

// The RTR of siw-p2p-rping is an empty Write to STag 1; an empty Read Request with
// the same source, siw's other RTR, is laid out as siw sends it.
func TestRTRMessagesAreThoseOfTheKernel(t *testing.T) {
	write := (&mpa.Encoder{}).Finish(append(mpa.Begin(nil), rdmap.AppendWrite(nil, true, 1, 0)...), 0)
	for _, s := range kernelStreams(t) {
		if strings.HasPrefix(s.name, "siw-p2p") && strings.HasSuffix(s.name, "server") && !bytes.HasPrefix(s.fpdus, write) {
			t.Errorf("% x, want % x", s.fpdus[:24], write)
		}
	}
	read := rdmap.AppendReadRequest(nil, 1, rdmap.ReadRequest{SrcSTag: 1})
	want := unhex("4141 00000000 00000001 00000001 00000000  00000000 0000000000000000 00000000 00000001 0000000000000000")
	if !bytes.Equal(read, want) {
		t.Errorf("% x, want % x", read, want)
	}
}
