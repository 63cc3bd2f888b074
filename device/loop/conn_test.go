package loop

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/verbs"
)

// none checks that no event is there when everything has come to rest in a bubble.
func (e *end) none(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case ev := <-e.events:
		t.Fatalf("event %v", ev)
	default:
	}
}

// kind takes the next event and checks what it is.
func (e *end) kind(t *testing.T, want verbs.ConnEventKind) verbs.ConnEvent {
	t.Helper()
	ev := e.event(t)
	if ev.Kind != want {
		t.Fatalf("event %v, want %v", ev, want)
	}
	return ev
}

func TestASetUpTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{})
		a, b := newEnd(t, d, 4, 64), newEnd(t, d, 4, 64)
		var req verbs.ConnRequest
		l, err := b.ctx.Listen(verbs.ListenConfig{Request: func(r verbs.ConnRequest) { req = r }})
		must(t, err)
		start := time.Now()
		must(t, a.qp.Connect(verbs.ConnParams{Remote: l.Addr(), Timeout: 3 * time.Second}))
		ev := a.kind(t, verbs.ConnTimedOut)
		if took := time.Since(start); took != 3*time.Second || ev.Remote != l.Addr() {
			t.Errorf("after %v: %v", took, ev)
		}
		synctest.Wait()
		if err := req.Accept(b.qp, verbs.ConnParams{}); err != verbs.ErrPeerGone {
			t.Errorf("Accept: %v", err)
		}
		if s := b.qp.State(); s != verbs.QPInitialized {
			t.Errorf("the QP of a failed Accept is in %v", s)
		}
		b.none(t)
		// An answer in time stops the clock.
		must(t, a.qp.Modify(verbs.QPReset))
		must(t, a.qp.Modify(verbs.QPInitialized))
		must(t, a.qp.Connect(verbs.ConnParams{Remote: l.Addr(), Timeout: 3 * time.Second}))
		synctest.Wait()
		must(t, req.Accept(b.qp, verbs.ConnParams{}))
		a.kind(t, verbs.ConnEstablished)
		b.kind(t, verbs.ConnEstablished)
		time.Sleep(time.Minute)
		a.none(t)
	})
}

func TestASendGivesUpWhenNoReceiveIsPostedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, Config{RNRTimeout: time.Second}, 8, 64)
		send := func(id uint64) {
			_, err := a.qp.PostSend([]verbs.SendWR{{ID: id, Op: verbs.OpSend, Flags: verbs.SendSignaled}})
			must(t, err)
		}
		recv := func() {
			_, err := b.qp.PostRecv([]verbs.RecvWR{{}})
			must(t, err)
		}
		cs := make([]verbs.Completion, 8)
		// Each wait has the whole time.
		for id := range uint64(3) {
			send(2 * id)
			send(2*id + 1)
			time.Sleep(900 * time.Millisecond)
			recv()
			time.Sleep(900 * time.Millisecond)
			recv()
			if n := a.sendCQ.Poll(cs); n != 2 || cs[0].Status+cs[1].Status != verbs.StatusSuccess {
				t.Fatal(n, cs[:n])
			}
		}
		start := time.Now()
		send(7)
		send(8)
		ev := a.kind(t, verbs.ConnBroken)
		if took := time.Since(start); took != time.Second || !errors.Is(ev.Err, errRNR) {
			t.Errorf("after %v: %v", took, ev)
		}
		b.kind(t, verbs.ConnBroken)
		if n := a.sendCQ.Poll(cs); n != 3 || cs[0].Status != verbs.StatusRNRRetryExceeded || cs[1].Status != verbs.StatusFlushed || cs[2].Op != verbs.OpDrained {
			t.Fatal(n, cs[:n])
		}
	})
}

func TestASendWaitsWithoutLimitByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPair(t, Config{}, 8, 64)
		_, err := a.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Flags: verbs.SendSignaled}})
		must(t, err)
		time.Sleep(1000 * time.Hour)
		a.none(t)
		_, err = b.qp.PostRecv([]verbs.RecvWR{{}})
		must(t, err)
		cs := make([]verbs.Completion, 2)
		if n := a.sendCQ.Poll(cs); n != 1 || cs[0].Status != verbs.StatusSuccess {
			t.Fatal(n, cs)
		}
	})
}

// However many connections a process has had, a port that is drawn fits a socket address, as a CSP's must.
func TestPortsThatAreDrawnFitASocketAddress(t *testing.T) {
	e := newEnd(t, New(Config{}), 4, 64)
	attr := e.ctx.Attr()
	for range 1 << 17 {
		if p := fabric.ephemeral(attr.Addr, attr.MaxPort); p == 0 || p > 65535 {
			t.Fatalf("port %d of an active end", p)
		}
	}
	l, err := e.ctx.Listen(verbs.ListenConfig{Request: func(verbs.ConnRequest) {}})
	must(t, err)
	if p := l.Addr().Port; p == 0 || p > 65535 {
		t.Errorf("port %d of a listener", p)
	}
	must(t, l.Close())
}

// Two adapters with one address share its ports; another address has its own.
func TestPortsBelongToAddresses(t *testing.T) {
	elsewhere := netip.MustParseAddr("10.0.0.1")
	x, y, z := newEnd(t, New(Config{}), 4, 64), newEnd(t, New(Config{Name: "loop1"}), 4, 64), newEnd(t, New(Config{Addr: elsewhere}), 4, 64)
	request := func(verbs.ConnRequest) {}
	const port = 1<<64 - 1
	at := func(e *end, ip netip.Addr) (verbs.Listener, error) {
		return e.ctx.Listen(verbs.ListenConfig{Local: verbs.Address{IP: ip, Port: port}, Request: request})
	}
	l, err := at(x, netip.Addr{})
	must(t, err)
	if got := l.Addr(); got.Port != port || got.IP != netip.MustParseAddr("127.0.0.1") {
		t.Error(got)
	}
	if _, err := at(y, netip.Addr{}); err != verbs.ErrAddrInUse {
		t.Errorf("the port of another adapter with the address: %v", err)
	}
	if _, err := at(z, elsewhere); err != nil {
		t.Errorf("the same port at another address: %v", err)
	}
	if _, err := at(z, netip.MustParseAddr("127.0.0.1")); err != verbs.ErrAddr {
		t.Errorf("the address of another adapter: %v", err)
	}
	must(t, l.Close())
	if _, err := at(y, netip.MustParseAddr("::ffff:127.0.0.1")); err != nil {
		t.Errorf("a port that was freed: %v", err)
	}
}

func TestConnectFailsWithTheRightKind(t *testing.T) {
	d := New(Config{})
	for _, c := range []struct {
		remote verbs.Address
		want   verbs.ConnEventKind
	}{
		{verbs.Address{IP: netip.MustParseAddr("127.0.0.1"), Port: 1}, verbs.ConnRefused},
		{verbs.Address{IP: netip.MustParseAddr("192.0.2.9"), Port: 1}, verbs.ConnUnreachable},
	} {
		a := newEnd(t, d, 4, 64)
		must(t, a.qp.Connect(verbs.ConnParams{Remote: c.remote}))
		if ev := a.kind(t, c.want); ev.Remote != c.remote || ev.Err == nil {
			t.Error(ev)
		}
		if s := a.qp.State(); s != verbs.QPError {
			t.Errorf("state %v", s)
		}
	}
	a := newEnd(t, d, 4, 64)
	for _, bad := range []verbs.Address{{}, {IP: netip.MustParseAddr("127.0.0.1")}, {Port: 5}} {
		if err := a.qp.Connect(verbs.ConnParams{Remote: bad}); err != verbs.ErrAddr {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestAFullBacklogRefuses(t *testing.T) {
	d := New(Config{})
	b := newEnd(t, d, 4, 64)
	reqs := make(chan verbs.ConnRequest, 8)
	l, err := b.ctx.Listen(verbs.ListenConfig{Backlog: 2, Request: func(r verbs.ConnRequest) { reqs <- r }})
	must(t, err)
	var ends []*end
	try := func() *end {
		a := newEnd(t, d, 4, 64)
		ends = append(ends, a)
		must(t, a.qp.Connect(verbs.ConnParams{Remote: l.Addr()}))
		return a
	}
	first, second := try(), try()
	try().kind(t, verbs.ConnRefused)
	// Room comes from an answer, and from a peer that gives up.
	must(t, (<-reqs).Reject([]byte("no")))
	if ev := first.kind(t, verbs.ConnRejected); string(ev.PrivateData) != "no" {
		t.Error(ev)
	}
	try()
	try().kind(t, verbs.ConnRefused)
	must(t, second.qp.Disconnect(false))
	second.kind(t, verbs.ConnAborted)
	last := try()
	must(t, b.ctx.Close())
	last.kind(t, verbs.ConnRefused)
}

// A request whose listener is closed can still be answered, and is refused at the latest when the
// context closes.
func TestRequestsOutliveTheirListener(t *testing.T) {
	d := New(Config{})
	b := newEnd(t, d, 4, 64)
	reqs := make(chan verbs.ConnRequest, 2)
	l, err := b.ctx.Listen(verbs.ListenConfig{Request: func(r verbs.ConnRequest) { reqs <- r }})
	must(t, err)
	x, y := newEnd(t, d, 4, 64), newEnd(t, d, 4, 64)
	for _, e := range []*end{x, y} {
		must(t, e.qp.Connect(verbs.ConnParams{Remote: l.Addr()}))
	}
	r := <-reqs
	<-reqs
	must(t, l.Close())
	if err := l.Close(); err != verbs.ErrClosed {
		t.Errorf("second Close: %v", err)
	}
	must(t, r.Accept(b.qp, verbs.ConnParams{}))
	b.kind(t, verbs.ConnEstablished)
	must(t, b.ctx.Close())
	kinds := map[verbs.ConnEventKind]int{}
	for range 3 {
		select {
		case ev := <-x.events:
			kinds[ev.Kind]++
		case ev := <-y.events:
			kinds[ev.Kind]++
		case <-time.After(10 * time.Second):
			t.Fatal("no event")
		}
	}
	if kinds[verbs.ConnEstablished] != 1 || kinds[verbs.ConnDisconnected] != 1 || kinds[verbs.ConnRefused] != 1 {
		t.Error(kinds)
	}
}

// With SourceReusable the sender sees success, and then the end with the reason.
func TestARefusedMessageShowsAsTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		wr               verbs.SendWR
		recv             bool
		layer, typ, code uint8
		status           verbs.Status
	}{
		"no receive":       {verbs.SendWR{Op: verbs.OpSend}, false, 1, 2, 2, verbs.StatusSuccess},
		"unknown key":      {verbs.SendWR{Op: verbs.OpRDMAWrite, RemoteKey: 1}, true, 1, 1, 0, verbs.StatusSuccess},
		"invalidate":       {verbs.SendWR{Op: verbs.OpSendInval, InvKey: 1}, true, 0, 1, 9, verbs.StatusSuccess},
		"read unknown key": {verbs.SendWR{Op: verbs.OpRDMARead, RemoteKey: 1}, true, 0, 1, 0, verbs.StatusRemoteAccess},
		"too long":         {verbs.SendWR{Op: verbs.OpSend}, true, 1, 2, 5, verbs.StatusSuccess},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newPair(t, Config{Completion: verbs.SourceReusable}, 8, 64)
			if c.recv {
				_, err := b.qp.PostRecv([]verbs.RecvWR{{ID: 9}})
				must(t, err)
			}
			c.wr.ID, c.wr.Flags, c.wr.NumSGE = 5, verbs.SendSignaled, 1
			c.wr.SGE[0] = a.sge(0, 8)
			_, err := a.qp.PostSend([]verbs.SendWR{c.wr})
			must(t, err)
			cs := make([]verbs.Completion, 4)
			if n := a.sendCQ.Poll(cs); n < 1 || cs[0].Status != c.status {
				t.Errorf("%d: %v", n, cs[0])
			}
			for _, e := range []*end{a, b} {
				var f *Fault
				if ev := e.kind(t, verbs.ConnBroken); !errors.As(ev.Err, &f) {
					t.Errorf("cause %v", ev.Err)
				} else if f.Layer != c.layer || f.Type != c.typ || f.Code != c.code || f.WRID != 5 || f.Op != c.wr.Op || f.QPN != a.qp.Num() {
					t.Errorf("%+v, want %d/%d/%d", f, c.layer, c.typ, c.code)
				}
			}
		})
	}
}

func TestRemoveEndsEverythingOfTheAdapter(t *testing.T) {
	d, other := New(Config{}), New(Config{Name: "loop1"})
	async := make(chan verbs.AsyncEvent, 4)
	ctx, err := d.Open(verbs.OpenConfig{Async: func(ev verbs.AsyncEvent) { async <- ev }})
	must(t, err)
	a, b := newEnd(t, d, 8, 64), newEnd(t, other, 8, 64)
	connect(t, a, b)
	waiting := newEnd(t, other, 8, 64)
	l, err := a.ctx.Listen(verbs.ListenConfig{Request: func(verbs.ConnRequest) {}})
	must(t, err)
	must(t, waiting.qp.Connect(verbs.ConnParams{Remote: l.Addr()}))
	_, err = a.qp.PostRecv([]verbs.RecvWR{{ID: 4}})
	must(t, err)
	_, err = b.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend}, {Op: verbs.OpSend, Flags: verbs.SendSignaled}})
	must(t, err)
	cs := make([]verbs.Completion, 4)
	if n := a.recv.Poll(cs); n != 1 {
		t.Fatal(n)
	}
	_, err = a.qp.PostRecv([]verbs.RecvWR{{ID: 5}})
	must(t, err)
	d.Remove()
	d.Remove()
	if ev := <-async; ev.Kind != verbs.AsyncDeviceFatal || !errors.Is(ev.Err, ErrRemoved) {
		t.Error(ev)
	}
	for _, e := range []*end{a, b} {
		if ev := e.kind(t, verbs.ConnBroken); !errors.Is(ev.Err, ErrRemoved) {
			t.Error(ev)
		}
	}
	waiting.kind(t, verbs.ConnRefused)
	if n := a.recv.Poll(cs); n != 2 || cs[0].ID != 5 || cs[1].Op != verbs.OpDrained {
		t.Error(n, cs)
	}
	if _, err := d.Open(verbs.OpenConfig{}); err != verbs.ErrNoDevice {
		t.Errorf("Open: %v", err)
	}
	if _, err := ctx.AllocPD(); err != verbs.ErrNoDevice {
		t.Errorf("AllocPD: %v", err)
	}
	must(t, a.qp.Modify(verbs.QPReset))
	if err := a.qp.Modify(verbs.QPInitialized); err != verbs.ErrNoDevice {
		t.Errorf("Modify: %v", err)
	}
	must(t, ctx.Close())
	must(t, a.ctx.Close())
	// The address is still there: another adapter has it.
	c := newEnd(t, other, 8, 64)
	must(t, c.qp.Connect(verbs.ConnParams{Remote: l.Addr()}))
	c.kind(t, verbs.ConnRefused)
}
