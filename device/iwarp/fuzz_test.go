package iwarp

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/device/iwarp/internal/wiretest"
	"kdapl/internal/faultnet"
	"kdapl/internal/netio"
	"kdapl/verbs"
)

// The ways in which FuzzConnection uses its input.
const (
	fuzzPassive = 1 << iota // the device listens; otherwise it connects
	fuzzRaw                 // the input begins with the start-up frame; otherwise that is a good one
	fuzzCRC                 // FPDUs of the input get right lengths and CRCs
	fuzzBusy                // the device has reads, atomics and sends under way
	fuzzClosing             // the device disconnects meanwhile
	fuzzPieces              // the input comes in pieces
	fuzzNoCRC               // without CRCs, payloads go straight to their places
	fuzzMarkers             // with markers
)

// FuzzConnection feeds a whole device with what a peer may send, in every phase: instead of a request or a reply,
// of the RTR message, on an established connection, and while it ends. Whatever comes: no panic, an end within
// a bounded time after the peer's, one outcome and one end and every request completed once, no memory touched
// but where receives and remote rights allow it, and nothing left behind (the bubble fails if a
// goroutine is).
func FuzzConnection(f *testing.F) {
	for _, s := range wiretest.MPA(f) {
		for i, b := range [][]byte{s.ToServer.Bytes, s.ToClient.Bytes} {
			mode := uint16(fuzzRaw | fuzzNoCRC)
			if i == 0 {
				mode |= fuzzPassive
			}
			if s.CRC {
				mode &^= fuzzNoCRC
			}
			b = b[:min(len(b), 700)]
			f.Add(b, mode)
			n := 20 + int(binary.BigEndian.Uint16(b[18:]))
			f.Add(b[min(n, len(b)):], mode&^fuzzRaw|fuzzCRC|fuzzBusy)
		}
	}
	for _, u := range [][]byte{
		writeU(0x1000, 0x10000, "hello"), sendU(rdmap.OpSend, true, 1, 0, "hello"), sendU(rdmap.OpSendInv, false, 1, 0, "hello"),
		readU(1, rdmap.ReadRequest{SinkSTag: 1, Size: 64, SrcSTag: 0x1000, SrcTO: 0x10000}),
		rdmap.AppendAtomicRequest(nil, 1, rdmap.AtomicRequest{STag: 0x1000, TO: 0x10000}),
		rdmap.AppendImmediate(nil, rdmap.OpImmediate, 1, [8]byte{1}),
		rdmap.AppendReadResponse(nil, true, 0, 0),
		rdmap.AppendTerminate(nil, rdmap.Terminate{Code: 0x1105}),
	} {
		for _, mode := range []uint16{fuzzPassive | fuzzCRC, fuzzCRC | fuzzBusy, fuzzPassive | fuzzCRC | fuzzMarkers, fuzzCRC | fuzzNoCRC | fuzzPieces | fuzzClosing} {
			enc := mpa.Encoder{}
			f.Add(enc.Finish(append(mpa.Begin(nil), u...), 0), mode)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, mode uint16) {
		synctest.Test(t, func(t *testing.T) {
			fuzzConnection(t, b[:min(len(b), 1<<16)], mode)
			time.Sleep(time.Hour)
		})
	})
}

func fuzzConnection(t *testing.T, b []byte, mode uint16) {
	is := func(m uint16) bool { return mode&m != 0 }
	n := faultnet.New()
	if is(fuzzPieces) {
		n.Plan = func(faultnet.Attempt) faultnet.Plan {
			s := faultnet.Stream{ReadMax: 7, WriteMax: 50, Latency: time.Millisecond}
			return faultnet.Plan{Seed: uint64(len(b)), Up: s, Down: s}
		}
	}
	host := n.Host(netip.MustParseAddr(aliceAddr))
	h := n.Host(netip.MustParseAddr(bobAddr))
	h.UserTimeout, h.KeepAlive = time.Minute, time.Minute
	e := newEnd(t, New(Config{
		Addr: netip.MustParseAddr(bobAddr), Network: h, NoCRC: is(fuzzNoCRC), Markers: is(fuzzMarkers), UserTimeout: time.Minute,
	}), 32, 4096)
	defer e.ctx.Close()
	closed, err := e.pd.RegMR(make([]byte, 64), 0x90000, verbs.AccessLocalWrite) // nothing may be written there
	must(t, err)
	rights, err := e.pd.RegMR(e.buf[1024:2048], 0x10000, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic)
	must(t, err)
	_ = closed
	// Keys are unpredictable: what the input calls 0x1000 is the region's.
	b = bytes.ReplaceAll(b, []byte{0, 0, 0x10, 0}, binary.BigEndian.AppendUint32(nil, rights.RKey()))
	must(t, e.mr.Dereg())
	local, err := e.pd.RegMR(e.buf[:1024], 0x20000, verbs.AccessLocalWrite)
	must(t, err)
	for i := range e.buf {
		e.buf[i] = byte(i)
	}
	sge := func(off, n int) [8]verbs.SGE {
		return [8]verbs.SGE{{Addr: 0x20000 + uint64(off), Length: uint32(n), LKey: local.LKey()}}
	}
	recvs := 0
	for i := range 4 {
		k, _ := e.qp.PostRecv([]verbs.RecvWR{{ID: uint64(i), NumSGE: 1, SGE: sge(128*i, 128)}})
		recvs += k
	}

	nc := meetFuzz(t, e, host, is(fuzzPassive), is(fuzzRaw))
	var ups int
	if nc != nil {
		if is(fuzzBusy) {
			remote := func(id uint64, op verbs.Opcode, off, n int) verbs.SendWR {
				return verbs.SendWR{ID: id, Op: op, Flags: verbs.SendSignaled, NumSGE: 1, SGE: sge(off, n), RemoteKey: 5, RemoteAddr: 0x1000}
			}
			ups, _ = e.qp.PostSend([]verbs.SendWR{
				remote(1, verbs.OpRDMARead, 512, 64), remote(2, verbs.OpFetchAdd, 576, 8), remote(3, verbs.OpSend, 600, 8), remote(4, verbs.OpRDMAWrite, 700, 30),
			})
		}
		enc := mpa.Encoder{CRC: !is(fuzzNoCRC)}
		if is(fuzzCRC) {
			b = refit(b, enc)
		}
		writeFuzz(nc, b)
		if is(fuzzClosing) {
			e.qp.Disconnect(len(b)%2 == 0) // it may have ended
			writeFuzz(nc, b)
		}
		time.Sleep(time.Second)
		nc.CloseWrite()
		for buf, end := make([]byte, 1<<16), time.Now().Add(2*time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
			for k, err := 1, error(nil); k > 0 && err == nil; {
				k, err = nc.TryReadv([][]byte{buf})
			}
		}
		nc.Abort()
	}
	time.Sleep(2 * time.Minute)

	var evs []verbs.ConnEvent
	for len(e.events) > 0 {
		evs = append(evs, <-e.events)
	}
	if len(evs) > 2 || len(evs) == 2 && (evs[0].Kind != verbs.ConnEstablished || evs[1].Kind.SetUp()) || len(evs) == 1 && evs[0].Kind == verbs.ConnEstablished {
		t.Errorf("events %v", evs)
	}
	if st := e.qp.State(); st != verbs.QPError && st != verbs.QPInitialized {
		t.Errorf("state %v, events %v", st, evs)
	}
	e.qp.Modify(verbs.QPError)
	cs := make([]verbs.Completion, 64)
	for _, q := range []struct {
		cq   verbs.CQ
		name string
		want int
	}{{e.sendCQ, "requests", ups}, {e.recv, "receives", recvs}} {
		got := 0
		for _, c := range cs[:q.cq.Poll(cs)] {
			if c.Op != verbs.OpDrained {
				got++
			}
		}
		if got != q.want {
			t.Errorf("%d of %d %s have completed", got, q.want, q.name)
		}
	}
	for i, v := range e.buf {
		// Receives and what is read are below 584, remote rights from 1024 to 2048.
		if v != byte(i) && (i >= 584 && i < 1024 || i >= 2048) {
			t.Fatalf("byte %d has changed", i)
		}
	}
}

// meetFuzz makes the connection; nil if the device does not come to it. Unless raw, both sides have shaken hands.
func meetFuzz(t *testing.T, e *end, host *faultnet.Host, passive, raw bool) netio.Conn {
	good := mpa.Local{Rev: 2, IRD: 4, ORD: 4, MaxIRD: 128, RTR: mpa.RTRWrite}
	if passive {
		l, err := e.ctx.Listen(verbs.ListenConfig{Request: func(r verbs.ConnRequest) {
			r.Accept(e.qp, verbs.ConnParams{ReadsIn: 4, ReadsOut: 4}) // the peer may be gone
		}})
		must(t, err)
		t.Cleanup(func() { l.Close() })
		nc, err := host.Dial(context.Background(), netip.AddrPort{}, addrPort(l.Addr()))
		must(t, err)
		if !raw {
			b, _ := mpa.AppendStartup(nil, mpa.Request, good.Request(), nil)
			writeFuzz(nc, b)
			time.Sleep(time.Second)
			r := startup{kind: mpa.Reply}
			must(t, r.readFrom(nc))
		}
		return nc
	}
	ln, err := host.Listen(context.Background(), netip.MustParseAddrPort(aliceAddr+":7000"))
	must(t, err)
	defer ln.Close()
	must(t, e.qp.Connect(verbs.ConnParams{Remote: address(ln.Addr()), ReadsIn: 4, ReadsOut: 4, Timeout: time.Minute}))
	nc, err := ln.Accept()
	must(t, err)
	r := startup{kind: mpa.Request}
	must(t, r.readFrom(nc))
	if !raw {
		rep, _, err := good.Answer(r.frame.Header())
		must(t, err)
		b, _ := mpa.AppendStartup(nil, mpa.Reply, rep, nil)
		writeFuzz(nc, b)
		time.Sleep(time.Second)
	}
	return nc
}

// refit cuts the input into FPDUs by the lengths that it says, and finishes each as the connection wants it.
func refit(b []byte, enc mpa.Encoder) (out []byte) {
	for len(b) > 2 {
		n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
		start := len(out)
		out = enc.Finish(append(mpa.Begin(out), b[2:2+n]...), start)
		b = b[min(len(b), mpa.FPDULen(n)):]
	}
	return append(out, b...)
}

// writeFuzz writes as long as the device takes it.
func writeFuzz(nc netio.Conn, b []byte) {
	nc.SetWriteDeadline(time.Now().Add(time.Minute))
	for len(b) > 0 {
		n, err := nc.TryWritev([][]byte{b})
		if err == netio.ErrWouldBlock {
			err = nc.WaitWritable()
		}
		if err != nil {
			return
		}
		b = b[n:]
	}
}
