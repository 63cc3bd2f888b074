package dat_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Fixtures: adapters, and pairs of end points on them.

// patience bounds whatever a test waits for that should come at once.
const patience = 20 * time.Second

// allStreams is every stream that an EVD can carry.
const allStreams = dat.StreamSoftware | dat.StreamConnectionRequest | dat.StreamDTO | dat.StreamConnection | dat.StreamRMRBind | dat.StreamAsync

// must unwraps a result that a test cannot do without.
func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that an error is DAT's, with the type and the subtype.
func refused(t testing.TB, err error, typ dat.Type, sub dat.Subtype) {
	t.Helper()
	var e *dat.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want %v (%v)", err, typ, sub)
	}
	if e.Type != typ || e.Sub != sub {
		t.Fatalf("got %v (%v), want %v (%v): %v", e.Type, e.Sub, typ, sub, err)
	}
}

// eventually polls a condition that becomes true by itself.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// receive takes from a channel that will have something.
func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("never happened: %s", what)
		panic("unreachable")
	}
}

// openLoop opens an IA on a device, closed with the test.
func openIA(t testing.TB, dev verbs.Device, cfg dat.Config) *dat.IA {
	t.Helper()
	ia := must[*dat.IA](t)(dat.Open(dev, cfg))
	t.Cleanup(func() { ia.Close(context.Background(), dat.CloseAbrupt) })
	return ia
}

// newLoop makes a loop device.
func newLoop() *loop.Device { return loop.New(loop.Config{}) }

// newIA opens an IA on a loop device of its own.
func newIA(t testing.TB) *dat.IA {
	t.Helper()
	return openIA(t, newLoop(), dat.Config{})
}

// newEVD makes an EVD of software events, or of what cfg says.
func newEVD(t testing.TB, ia *dat.IA, cfg dat.EVDConfig) *dat.EVD {
	t.Helper()
	if cfg.MinLen == 0 {
		cfg.MinLen = 16
	}
	if cfg.Streams == 0 {
		cfg.Streams = dat.StreamSoftware
	}
	return must[*dat.EVD](t)(ia.NewEVD(cfg))
}

// pair is two IAs on one device with an EP each.
type pair struct {
	dev  *loop.Device
	a, b side
	psp  *dat.PSP
}

type side struct {
	ia  *dat.IA
	pz  *dat.PZ
	evd *dat.EVD // of everything, unless split
	// cr receives connection requests; it is evd or, if the pair is split, another.
	recv, request, connect, cr *dat.EVD
	ep                         *dat.EP
	lmr                        *dat.LMR
	mem                        []byte
}

// pairConfig says how a pair is made; the zero value is good.
type pairConfig struct {
	loop  loop.Config
	wrap  func(*loop.Device) verbs.Device // what is opened in place of the device
	dat   dat.Config
	size  int                         // bytes of memory of each side; 4096 if 0
	attr  func(*dat.EPAttr)           // changes the default attributes
	evd   dat.EVDConfig               // of evd
	split bool                        // an EVD for each role
	psp   dat.PSPConfig               // of b's service point
	prep  func(t testing.TB, s *side) // before the EP is made
}

func newPair(t testing.TB, cfg pairConfig) *pair {
	t.Helper()
	if cfg.size == 0 {
		cfg.size = 4096
	}
	p := &pair{dev: loop.New(cfg.loop)}
	var dev verbs.Device = p.dev
	if cfg.wrap != nil {
		dev = cfg.wrap(p.dev)
	}
	for _, s := range []*side{&p.a, &p.b} {
		s.open(t, dev, cfg)
	}
	if cfg.psp.EVD == nil {
		cfg.psp.EVD = p.b.cr
	}
	p.psp = must[*dat.PSP](t)(p.b.ia.NewPSP(cfg.psp))
	return p
}

// open makes the objects of a side.
func (s *side) open(t testing.TB, dev verbs.Device, cfg pairConfig) {
	t.Helper()
	s.ia = openIA(t, dev, cfg.dat)
	s.pz = must[*dat.PZ](t)(s.ia.NewPZ())
	s.mem = make([]byte, cfg.size)
	lmr, err := s.pz.Register(s.mem, dat.PrivAll|dat.PrivRemoteAtomic)
	if errors.Is(err, dat.ModelNotSupported) { // an adapter without atomics
		lmr, err = s.pz.Register(s.mem, dat.PrivAll)
	}
	s.lmr = must[*dat.LMR](t)(lmr, err)
	if cfg.evd.Streams == 0 {
		cfg.evd.Streams = allStreams &^ dat.StreamAsync
	}
	s.evd = newEVD(t, s.ia, cfg.evd)
	s.recv, s.request, s.connect, s.cr = s.evd, s.evd, s.evd, s.evd
	if cfg.split {
		for _, e := range []**dat.EVD{&s.recv, &s.request, &s.connect, &s.cr} {
			*e = newEVD(t, s.ia, cfg.evd)
		}
	}
	if cfg.prep != nil {
		cfg.prep(t, s)
	}
	s.ep = s.newEP(t, cfg.attr)
}

// newEP makes one more EP with the side's EVDs.
func (s *side) newEP(t testing.TB, change func(*dat.EPAttr)) *dat.EP {
	t.Helper()
	attr := s.attr(t)
	if change != nil {
		change(&attr)
	}
	return must[*dat.EP](t)(s.pz.NewEP(dat.EPConfig{Recv: s.recv, Request: s.request, Connect: s.connect, Attr: &attr}))
}

// attr are the default attributes.
func (s *side) attr(t testing.TB) dat.EPAttr {
	t.Helper()
	return dat.DefaultEPAttr(must[dat.IAParam](t)(s.ia.Query()).Attr)
}

// connect connects the two EPs.
func (p *pair) connect(t testing.TB) *pair {
	t.Helper()
	ok(t, p.call())
	ok(t, p.b.request1(t).Accept(p.b.ep, nil))
	next(t, p.a.connect, dat.ConnectionEstablished)
	next(t, p.b.connect, dat.ConnectionEstablished)
	return p
}

// call starts the connection from a to b.
func (p *pair) call() error {
	return p.a.ep.Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: patience})
}

// request1 takes the next connection request.
func (s *side) request1(t testing.TB) *dat.CR {
	t.Helper()
	ev := next(t, s.cr, dat.ConnectionRequest)
	return ev.Request().CR
}

// connectPair makes a connected pair.
func connectPair(t testing.TB, size int) *pair {
	t.Helper()
	return newPair(t, pairConfig{size: size}).connect(t)
}

// next waits for the next event of an EVD, which must have the number.
func next(t testing.TB, e *dat.EVD, want dat.EventNumber) dat.Event {
	t.Helper()
	ev, _, err := e.Wait(context.Background(), 1, patience)
	if err != nil || ev.Number != want {
		t.Fatalf("got %v, %v; want %v", ev, err, want)
	}
	return ev
}

func (s *side) next(t testing.TB, want dat.EventNumber) dat.Event {
	t.Helper()
	return next(t, s.evd, want)
}

// nextDTO waits for the next event, which must be the completion of a cookie with a status.
func nextDTO(t testing.TB, e *dat.EVD, cookie uint64, status dat.Status) dat.DTO {
	t.Helper()
	ev, _, err := e.Wait(context.Background(), 1, patience)
	d := ev.DTO()
	if err != nil || ev.Number != dat.DTOCompletion && ev.Number != dat.IBDTOEvent || d.Cookie != cookie || d.Status != status {
		t.Fatalf("got %v, %v; want a completion with %v and cookie %#x", ev, err, status, cookie)
	}
	return d
}

// empty checks that an EVD has no event.
func empty(t testing.TB, e *dat.EVD) {
	t.Helper()
	if ev, err := e.Dequeue(); err != dat.ErrQueueEmpty {
		t.Fatalf("got %v, %v; want ErrQueueEmpty", ev, err)
	}
}

// drainNumbers takes everything that is queued and returns it in short form.
func drainNumbers(e *dat.EVD) []string {
	var all []string
	for ev := range e.Drain() {
		all = append(all, short(ev))
	}
	return all
}

// short is an event in a few words: what a test compares.
func short(ev dat.Event) string {
	switch ev.Number {
	case dat.DTOCompletion, dat.IBDTOEvent:
		d := ev.DTO()
		return fmt.Sprintf("%v %d %v", d.Operation, d.Cookie, d.Status)
	case dat.SoftwareEvent:
		return fmt.Sprintf("SE %d", ev.Software())
	}
	return ev.Number.String()
}

// state is an EP's state.
func state(t testing.TB, ep *dat.EP) dat.EPState {
	t.Helper()
	return must[dat.EPStatus](t)(ep.Status()).State
}

// queued counts the events of an EVD.
func queued(t testing.TB, e *dat.EVD) int {
	t.Helper()
	return must[dat.EVDParam](t)(e.Query()).Queued
}

func TestSendWriteReadAndDisconnect(t *testing.T) {
	p := connectPair(t, 4096)
	copy(p.a.mem, "hello")
	ok(t, p.b.ep.PostRecv(7, 0, p.b.lmr.Triplet(100, 100)))
	ok(t, p.a.ep.PostSend(8, 0, p.a.lmr.Triplet(0, 5)))
	if ev := p.a.next(t, dat.DTOCompletion); ev.DTO().Cookie != 8 || ev.DTO().EP != p.a.ep || ev.DTO().Operation != dat.OpSend {
		t.Fatal(ev)
	}
	if ev := p.b.next(t, dat.DTOCompletion); ev.DTO().Cookie != 7 || ev.DTO().Length != 5 || string(p.b.mem[100:105]) != "hello" {
		t.Fatal(ev)
	}
	ok(t, p.a.ep.PostRDMAWrite(9, 0, p.b.lmr.RMRTriplet(200, 5), p.a.lmr.Triplet(0, 5)))
	p.a.next(t, dat.DTOCompletion)
	if string(p.b.mem[200:205]) != "hello" {
		t.Fatal("not written")
	}
	ok(t, p.a.ep.PostRDMARead(10, 0, p.b.lmr.RMRTriplet(100, 5), p.a.lmr.Triplet(300, 5)))
	p.a.next(t, dat.DTOCompletion)
	if string(p.a.mem[300:305]) != "hello" {
		t.Fatal("not read")
	}
	ok(t, p.b.ep.PostRecv(11, 0, p.b.lmr.Triplet(0, 8)))
	ok(t, p.a.ep.Disconnect(dat.CloseGraceful))
	p.a.next(t, dat.ConnectionDisconnected)
	if ev := p.b.next(t, dat.DTOCompletion); ev.DTO().Status != dat.StatusFlushed {
		t.Fatal(ev)
	}
	p.b.next(t, dat.ConnectionDisconnected)
}
