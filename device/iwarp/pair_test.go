package iwarp

import (
	"testing"
	"time"

	"kdapl/verbs"
)

// end is one end of a connected pair, with memory of its own.
type end struct {
	ctx          verbs.Context
	pd           verbs.PD
	sendCQ, recv verbs.CQ
	qp           verbs.QP
	buf          []byte
	mr           verbs.MR
	events       chan verbs.ConnEvent
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newEnd(t testing.TB, d verbs.Device, depth, size int) *end {
	t.Helper()
	e := &end{buf: make([]byte, size), events: make(chan verbs.ConnEvent, 16)}
	var err error
	e.ctx, err = d.Open(verbs.OpenConfig{})
	must(t, err)
	t.Cleanup(func() { e.ctx.Close() })
	e.pd, err = e.ctx.AllocPD()
	must(t, err)
	e.sendCQ, err = e.ctx.CreateCQ(depth, nil)
	must(t, err)
	e.recv, err = e.ctx.CreateCQ(depth, nil)
	must(t, err)
	e.mr, err = e.pd.RegMR(e.buf, 0x10000, allAccess)
	must(t, err)
	e.qp, err = e.pd.CreateQP(verbs.QPInit{
		SendCQ: e.sendCQ, RecvCQ: e.recv, MaxSend: depth, MaxRecv: depth, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64,
		UserData: 7, Conn: func(ev verbs.ConnEvent) { ev.PrivateData = append([]byte(nil), ev.PrivateData...); e.events <- ev },
	})
	must(t, err)
	must(t, e.qp.Modify(verbs.QPInitialized))
	return e
}

func (e *end) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: 0x10000 + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}
}

func (e *end) event(t testing.TB) verbs.ConnEvent {
	t.Helper()
	select {
	case ev := <-e.events:
		return ev
	case <-time.After(10 * time.Second):
		t.Fatal("no connection event")
	}
	panic("unreachable")
}

// connect connects two ends of devices.
func connect(t testing.TB, a, b *end) {
	t.Helper()
	l, err := b.ctx.Listen(verbs.ListenConfig{Request: func(r verbs.ConnRequest) {
		if err := r.Accept(b.qp, verbs.ConnParams{ReadsIn: 4, ReadsOut: 4}); err != nil {
			t.Error(err)
		}
	}})
	must(t, err)
	must(t, a.qp.Connect(verbs.ConnParams{Remote: l.Addr(), ReadsIn: 4, ReadsOut: 4}))
	for _, e := range []*end{a, b} {
		if ev := e.event(t); ev.Kind != verbs.ConnEstablished || ev.ReadsOut != 4 {
			t.Fatalf("event %+v", ev)
		}
	}
	must(t, l.Close())
}

func newPair(t testing.TB, cfg Config, depth, size int) (a, b *end) {
	a, b = newEnd(t, New(cfg), depth, size), newEnd(t, New(cfg), depth, size)
	connect(t, a, b)
	return a, b
}

// take polls until there are n completions, helping the device along.
func take(t testing.TB, cq verbs.CQ, cs []verbs.Completion) {
	t.Helper()
	for n, end := 0, time.Now().Add(10*time.Second); n < len(cs); {
		k := cq.Poll(cs[n:])
		if n += k; k == 0 {
			cq.(verbs.Progresser).Progress()
			if time.Now().After(end) {
				t.Fatalf("%d completions of %d", n, len(cs))
			}
		}
	}
}

func TestSendWriteReadDisconnect(t *testing.T) {
	a, b := newPair(t, Config{}, 16, 4096)
	copy(a.buf, "hello")
	_, err := b.qp.PostRecv([]verbs.RecvWR{{ID: 1, NumSGE: 1, SGE: [8]verbs.SGE{b.sge(0, 100)}}})
	must(t, err)
	_, err = a.qp.PostSend([]verbs.SendWR{
		{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{a.sge(0, 5)}},
		{ID: 3, Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{a.sge(0, 5)}, RemoteAddr: 0x10000 + 100, RemoteKey: b.mr.RKey()},
		{ID: 4, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{a.sge(50, 5)}, RemoteAddr: 0x10000 + 100, RemoteKey: b.mr.RKey()},
	})
	must(t, err)
	cs := make([]verbs.Completion, 3)
	if take(t, a.sendCQ, cs); cs[0].ID != 2 || cs[1].ID != 3 || cs[2].ID != 4 || cs[2].Status != 0 {
		t.Fatal(cs)
	}
	if take(t, b.recv, cs[:1]); cs[0].ID != 1 || cs[0].Length != 5 || cs[0].UserData != 7 || cs[0].QPN != b.qp.Num() {
		t.Fatal(cs)
	}
	if string(b.buf[:5]) != "hello" || string(b.buf[100:105]) != "hello" || string(a.buf[50:55]) != "hello" {
		t.Fatal("data")
	}
	must(t, a.qp.Disconnect(true))
	for _, e := range []*end{a, b} {
		if ev := e.event(t); ev.Kind != verbs.ConnDisconnected {
			t.Fatalf("event %v", ev)
		}
		if take(t, e.recv, cs[:1]); cs[0].Op != verbs.OpDrained {
			t.Fatal(cs)
		}
	}
}
