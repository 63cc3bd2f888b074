package iwarp_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/device/iwarp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/internal/faultnet"
	"kdapl/internal/netio"
)

// theatre is two machines of a simulated network with an IA each, in a bubble: what the tables of faults
// are made of.
type theatre struct {
	t     testing.TB
	net   *faultnet.Network
	plan  faultnet.Plan
	a, b  *player // a connects
	up    tape    // what a sends
	down  tape    // what it has received
	start time.Time
}

// player is one side. A goroutine of its own waits for its events and writes them down.
type player struct {
	th   *theatre
	host *faultnet.Host
	ia   *dat.IA
	pz   *dat.PZ
	evd  *dat.EVD
	ep   *dat.EP
	lmr  *dat.LMR
	// answer answers a connection request.
	answer func(*dat.CR) error

	mu     sync.Mutex
	names  map[uint64]string // of the posts, by cookie
	script []string          // the events
	last   time.Time
	posted []string
	done   []string
	closed bool
	gone   chan struct{} // closed when the writer has ended
}

// The network: 20 ms each way, segments of Ethernet.
const (
	latency     = 20 * time.Millisecond
	userTimeout = time.Minute
	linger      = 5 * time.Second
	memory      = 1 << 20
)

func plainPlan() faultnet.Plan {
	s := faultnet.Stream{Latency: latency, MSS: 1460}
	return faultnet.Plan{Up: s, Down: s}
}

func newTheatre(t testing.TB, plan faultnet.Plan) *theatre {
	t.Helper()
	th := &theatre{t: t, net: faultnet.New(), plan: plan}
	th.net.Plan = func(a faultnet.Attempt) faultnet.Plan {
		if a.Index > 0 {
			return plainPlan() // the second attempt, after a reset, with revision 1
		}
		return th.plan
	}
	th.a, th.b = th.enter("10.0.0.1", true), th.enter("10.0.0.2", false)
	return th
}

func (th *theatre) enter(addr string, taped bool) *player {
	p := &player{th: th, host: th.net.Host(netip.MustParseAddr(addr)), names: map[uint64]string{}, gone: make(chan struct{})}
	p.host.UserTimeout, p.host.KeepAlive = userTimeout, userTimeout
	cfg := iwarp.Config{Addr: netip.MustParseAddr(addr), Network: p.host, UserTimeout: userTimeout, Linger: linger}
	if taped {
		cfg.Network = taping{p.host, th}
	}
	t := th.t
	p.ia = must[*dat.IA](t)(dat.Open(iwarp.New(cfg), dat.Config{}))
	p.pz = must[*dat.PZ](t)(p.ia.NewPZ())
	p.lmr = must[*dat.LMR](t)(p.pz.Register(make([]byte, memory), dat.PrivAll|dat.PrivRemoteAtomic))
	p.evd = must[*dat.EVD](t)(p.ia.NewEVD(dat.EVDConfig{MinLen: 64, Streams: dat.StreamConnectionRequest | dat.StreamDTO | dat.StreamConnection | dat.StreamRMRBind}))
	p.ep = must[*dat.EP](t)(p.pz.NewEP(dat.EPConfig{Recv: p.evd, Request: p.evd, Connect: p.evd}))
	return p
}

// watch writes down what happens from now on.
func (p *player) watch() {
	go func() {
		defer close(p.gone)
		for {
			ev, _, err := p.evd.Wait(context.Background(), 1, dat.Infinite)
			if err != nil {
				return // the IA is closed
			}
			p.note(ev)
			if ev.Number == dat.ConnectionRequest {
				p.respond(ev.Request().CR)
			}
		}
	}()
}

// respond answers a connection request, and rejects it if it cannot.
func (p *player) respond(cr *dat.CR) {
	if err := p.answer(cr); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if err := cr.Reject(nil); err == nil {
			p.script = append(p.script, "rejected")
		}
	}
}

func (p *player) note(ev dat.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
	completed := func(cookie uint64, status dat.Status) {
		name := p.names[cookie]
		p.done = append(p.done, name)
		p.script = append(p.script, name+" "+strings.TrimPrefix(status.String(), "DTO_ERR_"))
	}
	switch ev.Stream() {
	case dat.StreamDTO:
		d := ev.DTO()
		completed(d.Cookie, d.Status)
		return
	case dat.StreamRMRBind:
		b := ev.RMRBind()
		completed(b.Cookie, b.Status)
		return
	}
	s := ev.Number.String()
	s = strings.TrimPrefix(strings.TrimPrefix(s, "CONNECTION_EVENT_"), "CONNECTION_")
	if f, ok := errors.AsType[*iwarp.Fault](ev.Connection().Cause); ok {
		by := ""
		if f.ByPeer {
			by = "peer: "
		}
		s += fmt.Sprintf(" (%s%d/%d/%02x)", by, f.Layer, f.Type, f.Code)
	}
	p.script = append(p.script, s)
}

// post notes a request that is posted.
func (p *player) post(name string, f func(cookie uint64) error) {
	p.th.t.Helper()
	p.mu.Lock()
	cookie := uint64(len(p.names) + 1)
	p.names[cookie] = name
	p.posted = append(p.posted, name)
	p.mu.Unlock()
	if err := f(cookie); err != nil {
		p.th.t.Fatalf("%s: %v", name, err)
	}
}

// recv posts a receive of n bytes.
func (p *player) recv(n int) {
	p.th.t.Helper()
	p.post("receive", func(c uint64) error { return p.ep.PostRecv(c, 0, p.lmr.Triplet(0, n)) })
}

// connect connects the EPs, and lets the network come to rest.
func (th *theatre) connect() {
	t := th.t
	t.Helper()
	psp := must[*dat.PSP](t)(th.b.ia.NewPSP(dat.PSPConfig{EVD: th.b.evd}))
	ok(t, th.a.ep.Connect(th.b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: time.Hour}))
	next := func(p *player, want dat.EventNumber) dat.Event {
		ev, _, err := p.evd.Wait(context.Background(), 1, time.Hour)
		if err != nil || ev.Number != want {
			t.Fatalf("%v, %v; want %v", ev, err, want)
		}
		return ev
	}
	ev := next(th.b, dat.ConnectionRequest)
	ok(t, ev.Request().CR.Accept(th.b.ep, nil))
	next(th.a, dat.ConnectionEstablished)
	next(th.b, dat.ConnectionEstablished)
	ok(t, psp.Free())
	time.Sleep(time.Second)
	th.begin()
}

// begin marks the time from which events count.
func (th *theatre) begin() {
	th.a.watch()
	th.b.watch()
	th.start = time.Now()
}

// close closes the player's IA.
func (p *player) close() {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if !closed {
		if err := p.ia.Close(context.Background(), dat.CloseAbrupt); err != nil {
			p.th.t.Errorf("Close: %v", err)
		}
	}
}

// end closes both IAs and checks that nothing is left on the network.
func (th *theatre) end() {
	th.t.Helper()
	for _, p := range []*player{th.a, th.b} {
		p.close()
		<-p.gone
	}
	time.Sleep(time.Hour)
	if conns := th.net.Conns(); len(conns) != 0 {
		th.t.Errorf("%d connections are left", len(conns))
	}
}

// told is what a player has seen, and how long that took.
func (p *player) told() (events []string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.script) > 0 {
		took = p.last.Sub(p.th.start)
	}
	return slices.Clone(p.script), took
}

// account checks what holds of every side that sees its end: each post has one outcome, and the
// last event is the one end of the connection.
func (p *player) account() {
	p.th.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	ends := 0
	for i, e := range p.script {
		if strings.HasPrefix(e, "DISCONNECTED") || strings.HasPrefix(e, "BROKEN") {
			if ends++; i != len(p.script)-1 || ends > 1 {
				p.th.t.Errorf("the end is not the last event: %q", p.script)
			}
		}
	}
	posted, done := slices.Sorted(slices.Values(p.posted)), slices.Sorted(slices.Values(p.done))
	if ends == 1 && !slices.Equal(posted, done) {
		p.th.t.Errorf("posted %q, completed %q", posted, done)
	}
}

// tape records one direction of the connection.
type tape struct {
	mu sync.Mutex
	b  []byte
}

func (t *tape) add(bufs [][]byte, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range bufs {
		k := min(n, len(b))
		t.b = append(t.b, b[:k]...)
		n -= k
	}
}

func (t *tape) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.b)
}

// frames are the positions between the FPDUs behind pos, beginning with pos.
func (t *tape) frames(pos int) []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := []int{pos}
	for {
		u, n, err := mpa.Parse(t.b[pos:], true)
		if err != nil || u == nil {
			return list
		}
		pos += n
		list = append(list, pos)
	}
}

// taping is a network whose dialled connections are recorded.
type taping struct {
	netio.Network
	th *theatre
}

func (n taping) Dial(ctx context.Context, local, remote netip.AddrPort) (netio.Conn, error) {
	c, err := n.Network.Dial(ctx, local, remote)
	if err != nil {
		return nil, err
	}
	return tapedConn{c, n.th}, nil
}

type tapedConn struct {
	netio.Conn
	th *theatre
}

func (c tapedConn) TryReadv(bufs [][]byte) (int, error) {
	n, err := c.Conn.TryReadv(bufs)
	c.th.down.add(bufs, n)
	return n, err
}

func (c tapedConn) TryWritev(bufs [][]byte) (int, error) {
	n, err := c.Conn.TryWritev(bufs)
	c.th.up.add(bufs, n)
	return n, err
}

// around rounds a time for a table.
func around(d time.Duration) string {
	switch {
	case d < time.Second:
		return "at once"
	case d < 5*time.Second:
		return d.Round(time.Second).String()
	case d < time.Minute-2*time.Second:
		return d.Round(5 * time.Second).String()
	}
	return strings.TrimSuffix(d.Round(5*time.Second).String(), "0s")
}
