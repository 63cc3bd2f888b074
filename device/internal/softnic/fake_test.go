package softnic

import (
	"net/netip"
	"testing"

	"kdapl/verbs"
)

// fakeDriver is a transport that does what the test says.
type fakeDriver struct{}

func (fakeDriver) NewWire(q *QP) Wire { return &fakeWire{qp: q} }

func (fakeDriver) Listen(*Context, verbs.ListenConfig) (verbs.Listener, error) {
	return nil, verbs.ErrNotSupported
}

func (fakeDriver) Resolve(verbs.Address) error { return nil }

func (fakeDriver) Closing(*Context) {}

// fakeWire starts each request and lets the test finish it, in any order, as a network
// would.
type fakeWire struct {
	qp      *QP
	started []uint32
	ids     []uint64
	stall   bool
	posted  int
	ready   int
}

func (w *fakeWire) Start(_ *Lane, h *Head, _ Vec) (Outcome, verbs.Status) {
	if w.stall {
		return Stalled, 0
	}
	w.started = append(w.started, w.qp.Starting())
	w.ids = append(w.ids, h.ID)
	return Running, 0
}

func (w *fakeWire) Posted(l *Lane) {
	w.posted++
	w.qp.Pump(l)
}
func (w *fakeWire) RecvReady(*Lane)                 { w.ready++ }
func (w *fakeWire) SendStopped(*Lane)               {}
func (w *fakeWire) RecvStopped(*Lane)               {}
func (w *fakeWire) Connect(*verbs.ConnParams) error { return verbs.ErrNotSupported }
func (w *fakeWire) Ready()                          {}
func (w *fakeWire) Close()                          {}

// finish ends the i-th request that was started.
func (w *fakeWire) finish(i int, st verbs.Status) {
	l := w.qp.Lane()
	l.Lock()
	w.qp.Finish(l, w.started[i], st, 8)
	w.qp.Pump(l)
	l.Unlock()
}

// fakeLink is a connection that ends itself when it is drained.
type fakeLink struct{ drained, ended int }

func (k *fakeLink) Ends(*QP) (local, remote verbs.Address) { return }

func (k *fakeLink) Drained(q *QP) {
	k.drained++
	q.End(k, verbs.ConnDisconnected, nil)
}

func (k *fakeLink) Ended(*QP, verbs.ConnEventKind, error) { k.ended++ }

const everyCap = verbs.CapUD | verbs.CapSRQ | verbs.CapSRQLimit | verbs.CapSRQResize | verbs.CapMW1 | verbs.CapMW2 |
	verbs.CapFastReg | verbs.CapZeroBased | verbs.CapAtomics | verbs.CapSendImm | verbs.CapWriteImm |
	verbs.CapSendInval | verbs.CapReadInval | verbs.CapSolicited | verbs.CapPeek | verbs.CapPostChecks | verbs.CapInline

func newContext(t testing.TB) *Context {
	var qpn uint32
	c := New(Config{
		Driver: fakeDriver{},
		QPN:    func() uint32 { qpn++; return qpn },
		Attr: verbs.Attr{
			Name: "fake", Addr: netip.IPv6Loopback(), Caps: everyCap, MaxQP: 1000, MaxCQ: 1000, MaxPD: 100, MaxMR: 5000, MaxMW: 5000,
			MaxSRQ: 100, MaxAH: 100, MaxQPWR: 1000, MaxCQE: 1000, MaxSRQWR: 1000, MaxSRQSGE: 8, MaxSendSGE: 8, MaxRecvSGE: 8,
			MaxReadSGE: 8, MaxReadsIn: 16, MaxReadsOut: 16, MaxMessage: 1 << 20, MaxMRSize: 1 << 30, MaxInline: 64,
			MaxFastRegPages: 16, PageSize: 64, MaxPrivateData: 64, MaxPort: 1<<64 - 1,
		},
	})
	t.Cleanup(func() { c.Close() })
	return c
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// bench is a connected QP over a fake wire, with a region.
type bench struct {
	*Context
	t      testing.TB
	pd     *PD
	cq     *CQ
	qp     *QP
	wire   *fakeWire
	link   *fakeLink
	buf    []byte
	mr     *MR
	events chan verbs.ConnEvent
}

const everyRight = verbs.AccessLocalWrite | remoteRights | verbs.AccessMWBind

func newBench(t testing.TB, reads int) *bench {
	b := &bench{Context: newContext(t), t: t, link: new(fakeLink), buf: make([]byte, 4096), events: make(chan verbs.ConnEvent, 8)}
	b.pd = must(b.AllocPD())(t).(*PD)
	b.cq = must(b.CreateCQ(256, nil))(t).(*CQ)
	b.mr = must(b.pd.RegMR(b.buf, 0x1000, everyRight))(t).(*MR)
	b.qp = b.connected(reads)
	b.wire = b.qp.Wire().(*fakeWire)
	return b
}

func (b *bench) connected(reads int) *QP {
	q := must(b.pd.CreateQP(verbs.QPInit{
		SendCQ: b.cq, RecvCQ: b.cq, MaxSend: 32, MaxRecv: 32, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 16, UserData: 5,
		Conn: func(ev verbs.ConnEvent) {
			select {
			case b.events <- ev:
			default: // nobody looks any more
			}
		},
	}))(b.t).(*QP)
	if err := q.Modify(verbs.QPInitialized); err != nil {
		b.t.Fatal(err)
	}
	if err := q.Begin(b.link, nil); err != nil {
		b.t.Fatal(err)
	}
	if !q.Establish(b.link, verbs.ConnEvent{ReadsOut: reads}, nil) {
		b.t.Fatal("not established")
	}
	<-b.events
	return q
}

func (b *bench) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: 0x1000 + uint64(off), Length: uint32(n), LKey: b.mr.LKey()}
}

// post posts one request with 8 bytes of memory.
func (b *bench) post(id uint64, op verbs.Opcode, f verbs.SendFlags) {
	b.t.Helper()
	wr := verbs.SendWR{ID: id, Op: op, Flags: f, NumSGE: 1}
	wr.SGE[0] = b.sge(0, 8)
	if _, err := b.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		b.t.Fatalf("post of %d: %v", id, err)
	}
}

func (b *bench) poll() []verbs.Completion {
	cs := make([]verbs.Completion, 300)
	return cs[:b.cq.Poll(cs)]
}

// wantIDs polls and compares the IDs; 0 stands for a mark.
func (b *bench) wantIDs(ids ...uint64) []verbs.Completion {
	b.t.Helper()
	cs := b.poll()
	if len(cs) != len(ids) {
		b.t.Fatalf("%d completions, want %d: %v", len(cs), len(ids), cs)
	}
	for i, c := range cs {
		if c.ID != ids[i] || (c.Op == verbs.OpDrained) != (ids[i] == 0) {
			b.t.Fatalf("completion %d is %v, want ID %d", i, c, ids[i])
		}
	}
	return cs
}
