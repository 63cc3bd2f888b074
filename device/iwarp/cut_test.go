package iwarp

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/device/iwarp/internal/wiretest"
	"kdapl/internal/faultnet"
	"kdapl/verbs"
)

// session is a connection between two devices that exchanges one message of each kind. It ends by
// itself, and with a disconnect if nothing has happened to it; the events of both ends, and a's outcomes,
// come back. target is where the peer writes and what it may read.
func session(t *testing.T, plan faultnet.Plan) (evs [2][]verbs.ConnEvent, target, outside []byte) {
	t.Helper()
	ca, cb := hosts(func(faultnet.Attempt) faultnet.Plan { return plan })
	a, b := newEnd(t, New(ca), 16, 4096), newEnd(t, New(cb), 16, 4096)
	for i := range b.buf {
		b.buf[i] = byte(i)
		a.buf[i] = ^byte(i)
	}
	_, err := b.qp.PostRecv([]verbs.RecvWR{{ID: 1, NumSGE: 1, SGE: [8]verbs.SGE{b.sge(0, 100)}}, {ID: 2, NumSGE: 1, SGE: [8]verbs.SGE{b.sge(0, 100)}}})
	must(t, err)
	l, err := b.ctx.Listen(verbs.ListenConfig{Request: func(r verbs.ConnRequest) {
		r.Accept(b.qp, verbs.ConnParams{ReadsIn: 4, ReadsOut: 4}) // the peer may be gone
	}})
	must(t, err)
	defer l.Close()
	must(t, a.qp.Connect(verbs.ConnParams{Remote: l.Addr(), ReadsIn: 4, ReadsOut: 4, PrivateData: []byte("hello"), Timeout: time.Minute}))
	time.Sleep(time.Second)
	if a.qp.State() == verbs.QPRTS {
		remote := func(op verbs.Opcode, off, n int) verbs.SendWR {
			return verbs.SendWR{Op: op, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{a.sge(off, n)}, RemoteKey: b.mr.RKey(), RemoteAddr: 0x10000 + 1000}
		}
		a.qp.PostSend([]verbs.SendWR{
			remote(verbs.OpSend, 0, 50), remote(verbs.OpRDMAWrite, 0, 60), remote(verbs.OpRDMARead, 2000, 60), remote(verbs.OpFetchAdd, 3000, 8),
			remote(verbs.OpSend, 0, 0),
		})
		time.Sleep(time.Second)
		a.qp.Disconnect(true) // it may have ended
	}
	time.Sleep(10 * time.Minute)
	for i, e := range []*end{a, b} {
		for len(e.events) > 0 {
			evs[i] = append(evs[i], <-e.events)
		}
		if st := e.qp.State(); st != verbs.QPError && st != verbs.QPInitialized {
			t.Errorf("end %d is in %v", i, st)
		}
	}
	target = append([]byte(nil), b.buf[1000:1060]...)
	outside = append(append([]byte(nil), b.buf[100:1000]...), b.buf[1060:]...)
	return evs, target, outside
}

// span is how many bytes the session sends in each direction, about.
const span = 600

// atEveryOffset runs the session with one fault at each offset of each direction. Each run must end: with
// one outcome and one end for each side, and with nothing changed but what the session may
// change.
func atEveryOffset(t *testing.T, kind faultnet.Kind, mask byte) {
	step := 1
	if testing.Short() {
		step = 13
	}
	for at := 0; at < span; at += step {
		for _, up := range []bool{true, false} {
			var plan faultnet.Plan
			e := []faultnet.Event{{At: int64(at), Kind: kind, Mask: mask}}
			if up {
				plan.Up.Events = e
			} else {
				plan.Down.Events = e
			}
			synctest.Test(t, func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Logf("plan %v", plan)
					}
				}()
				t.Cleanup(func() { time.Sleep(time.Hour) })
				evs, target, outside := session(t, plan)
				for i, list := range evs {
					grammar(t, i, list)
				}
				want := make([]byte, 4096)
				for i := range want {
					want[i] = byte(i)
				}
				if !bytes.Equal(outside, append(append([]byte(nil), want[100:1000]...), want[1060:]...)) {
					t.Error("memory that the session does not touch has changed")
				}
				wrote := make([]byte, 60)
				for i := range wrote {
					wrote[i] = ^byte(i)
				}
				added := bytes.Clone(wrote)
				copy(added, target[:8]) // the sum of the atomic
				if !bytes.Equal(target, want[1000:1060]) && !bytes.Equal(target, wrote) && !bytes.Equal(target, added) {
					t.Errorf("the target holds what nobody wrote: %x", target)
				}
			})
			if t.Failed() {
				return
			}
		}
	}
}

// grammar: one outcome of a set-up, then one end if it succeeded.
func grammar(t *testing.T, who int, evs []verbs.ConnEvent) {
	t.Helper()
	bad := len(evs) > 2 || who == 0 && len(evs) == 0
	for i, ev := range evs {
		bad = bad || ev.Kind.SetUp() != (i == 0) || i == 0 && (ev.Kind == verbs.ConnEstablished) != (len(evs) == 2)
	}
	if bad {
		t.Errorf("events of end %d: %v", who, evs)
	}
}

func TestStreamCutAtEveryOffset(t *testing.T) {
	t.Run("FIN", func(t *testing.T) { atEveryOffset(t, faultnet.Fin, 0) })
	t.Run("RST", func(t *testing.T) { atEveryOffset(t, faultnet.Reset, 0) })
	t.Run("silence", func(t *testing.T) { atEveryOffset(t, faultnet.Dark, 0) })
}

func TestByteCorruptedAtEveryOffset(t *testing.T) {
	t.Run("low bit", func(t *testing.T) { atEveryOffset(t, faultnet.Flip, 1) })
	t.Run("high bit", func(t *testing.T) { atEveryOffset(t, faultnet.Flip, 0x80) })
}

// The other end of the session without a fault.
func TestSessionEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Hour) })
		evs, _, _ := session(t, faultnet.Plan{})
		for i, list := range evs {
			if len(list) != 2 || list[0].Kind != verbs.ConnEstablished || list[1].Kind != verbs.ConnDisconnected {
				t.Errorf("events of end %d: %v", i, list)
			}
		}
	})
}

// A FIN between two FPDUs is the end that the peer's consumer wished; one inside, a reset, or
// silence is a fault.
func TestWhatAnEndMeans(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(p *peer)
		want  verbs.ConnEventKind
		after time.Duration
	}{
		{"FIN", func(p *peer) { p.nc.CloseWrite() }, verbs.ConnDisconnected, 0},
		{"FIN in a length", func(p *peer) { p.bytes([]byte{0}); p.nc.CloseWrite() }, verbs.ConnBroken, 0},
		{"FIN in an FPDU", func(p *peer) { p.bytes(p.fpdu(writeU(0, 0, ""))[:19]); p.nc.CloseWrite() }, verbs.ConnBroken, 0},
		{"RST", func(p *peer) { p.nc.Abort() }, verbs.ConnBroken, 0},
		{"silence", func(p *peer) { p.nc.(*faultnet.Conn).GoDark() }, verbs.ConnBroken, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
				p := s.connected()
				p.send(writeU(0, 0, ""))
				c.do(p)
				time.Sleep(c.after)
				if ev := s.e.event(t); ev.Kind != c.want {
					t.Error(ev)
				}
			})
		})
	}
}

// A peer that does not end its side after this one has ended is reset when the linger time is over, and
// one that goes on sending is listened to until then.
func TestLinger(t *testing.T) {
	onStage(t, Config{}, faultnet.Plan{}, func(s *scene) {
		p := s.connected()
		p.send(writeU(0, 0, ""))
		time.Sleep(time.Millisecond)
		must(t, s.e.qp.Disconnect(false))
		start := time.Now()
		for p.more() { // FIN
			time.Sleep(time.Millisecond)
		}
		for err := error(nil); err == nil; time.Sleep(time.Millisecond) {
			_, err = p.nc.TryWritev([][]byte{p.fpdu(writeU(1, 2, "stray"))})
		}
		if d := time.Since(start); d < defaultLinger || d > defaultLinger+time.Second {
			t.Errorf("reset after %v", d)
		}
	})
}

// Kernel sessions in which the client only sends run again with this device as the server: each message
// arrives as it was recorded.
func TestRecordedSessions(t *testing.T) {
	ran := 0
	for _, rec := range wiretest.MPA(t) {
		sends, only := recordedSends(t, rec)
		if !only {
			continue
		}
		ran++
		t.Run(rec.Capture, func(t *testing.T) {
			onStageWith(t, Config{NoCRC: !rec.CRC}, faultnet.Plan{}, 512, 1<<20, func(s *scene) {
				off := 0
				for _, m := range sends {
					s.recv(off, len(m))
					off += len(m)
				}
				s.listen(verbs.ConnParams{ReadsIn: 4, ReadsOut: 4})
				p := s.dial()
				n := 20 + int(rec.ToServer.Bytes[18])<<8 + int(rec.ToServer.Bytes[19])
				p.bytes(rec.ToServer.Bytes[:n])
				time.Sleep(time.Second)
				p.more()
				p.bytes(rec.ToServer.Bytes[n:])
				cs := make([]verbs.Completion, len(sends))
				take(t, s.e.recv, cs)
				off = 0
				for i, m := range sends {
					if int(cs[i].Length) != len(m) || !bytes.Equal(s.e.buf[off:off+len(m)], m) {
						t.Fatalf("message %d of %d bytes came as %v", i, len(m), cs[i])
					}
					off += len(m)
				}
				p.nc.CloseWrite()
				s.e.event(t)
				if ev := s.e.event(t); ev.Kind != verbs.ConnDisconnected {
					t.Error(ev)
				}
			})
		})
	}
	if ran == 0 {
		t.Error("no recorded session could be run again")
	}
}

// recordedSends are the messages that the client of a recorded session sends, and whether it sends nothing
// else.
func recordedSends(t *testing.T, rec wiretest.Session) (msgs [][]byte, only bool) {
	t.Helper()
	b := rec.ToServer.Bytes
	_, n, err := mpa.ParseStartup(b, mpa.Request)
	must(t, err)
	fresh := true
	for b = b[n:]; len(b) > 0; b = b[n:] {
		var u []byte
		if u, n, err = mpa.Parse(b, rec.CRC); err != nil || u == nil {
			t.Fatalf("%s: %v", rec.Capture, err)
		}
		op, err := rdmap.CheckHeader(u, len(u))
		must(t, err)
		if op == rdmap.OpWrite && len(u) == ddp.TaggedLen {
			continue // an RTR message
		}
		if !op.Send() {
			return nil, false
		}
		if fresh {
			msgs = append(msgs, nil)
		}
		msgs[len(msgs)-1] = append(msgs[len(msgs)-1], u[ddp.UntaggedLen:]...)
		fresh = ddp.Control(u[0]).Last()
	}
	return msgs, true
}
