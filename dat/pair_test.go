package dat_test

import (
	"context"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/device/loop"
)

// pair is two connected EPs of two IAs on a loop device.
type pair struct {
	a, b side
}

type side struct {
	ia  *dat.IA
	pz  *dat.PZ
	evd *dat.EVD
	ep  *dat.EP
	lmr *dat.LMR
	mem []byte
}

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

func newSide(t testing.TB, dev func() *dat.IA, size int) side {
	t.Helper()
	var s side
	s.ia = dev()
	t.Cleanup(func() { s.ia.Close(context.Background(), dat.CloseAbrupt) })
	s.pz = must[*dat.PZ](t)(s.ia.NewPZ())
	s.mem = make([]byte, size)
	s.lmr = must[*dat.LMR](t)(s.pz.Register(s.mem, dat.PrivAll))
	s.evd = must[*dat.EVD](t)(s.ia.NewEVD(dat.EVDConfig{MinLen: 16, Streams: dat.StreamDTO | dat.StreamConnection | dat.StreamConnectionRequest | dat.StreamSoftware}))
	s.ep = must[*dat.EP](t)(s.pz.NewEP(dat.EPConfig{Recv: s.evd, Request: s.evd, Connect: s.evd}))
	return s
}

func connectPair(t testing.TB, size int) *pair {
	t.Helper()
	dev := loop.New(loop.Config{})
	open := func() *dat.IA { return must[*dat.IA](t)(dat.Open(dev, dat.Config{})) }
	p := &pair{a: newSide(t, open, size), b: newSide(t, open, size)}
	psp := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.evd}))
	ok(t, p.a.ep.Connect(p.b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: time.Second}))
	ev := p.b.next(t, dat.ConnectionRequest)
	ok(t, ev.Request().CR.Accept(p.b.ep, nil))
	p.a.next(t, dat.ConnectionEstablished)
	p.b.next(t, dat.ConnectionEstablished)
	return p
}

func (s *side) next(t testing.TB, want dat.EventNumber) dat.Event {
	t.Helper()
	ev, _, err := s.evd.Wait(context.Background(), 1, 5*time.Second)
	if err != nil || ev.Number != want {
		t.Fatalf("got %v, %v; want %v", ev, err, want)
	}
	return ev
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

func BenchmarkPostSEDequeue(b *testing.B) {
	ia := must[*dat.IA](b)(dat.Open(loop.New(loop.Config{}), dat.Config{}))
	defer ia.Close(context.Background(), dat.CloseAbrupt)
	evd := must[*dat.EVD](b)(ia.NewEVD(dat.EVDConfig{MinLen: 16, Streams: dat.StreamSoftware}))
	var ev [1]dat.Event
	b.ReportAllocs()
	for b.Loop() {
		evd.PostSE(1)
		if evd.DequeueInto(ev[:]) != 1 {
			b.Fatal()
		}
	}
}

func BenchmarkChannel(b *testing.B) {
	c := make(chan dat.Event, 16)
	var ev dat.Event
	for b.Loop() {
		c <- ev
		ev = <-c
	}
}

func BenchmarkSendRecv64(b *testing.B) {
	p := connectPair(b, 4096)
	var ev [1]dat.Event
	b.ReportAllocs()
	for b.Loop() {
		if p.b.ep.PostRecv(7, 0, p.b.lmr.Triplet(100, 64)) != nil || p.a.ep.PostSend(8, 0, p.a.lmr.Triplet(0, 64)) != nil {
			b.Fatal("post")
		}
		if p.a.evd.DequeueInto(ev[:]) != 1 || p.b.evd.DequeueInto(ev[:]) != 1 {
			b.Fatal()
		}
	}
}

func BenchmarkWrite8(b *testing.B) {
	p := connectPair(b, 4096)
	var ev [1]dat.Event
	b.ReportAllocs()
	r := p.b.lmr.RMRTriplet(8, 8)
	l := p.a.lmr.Triplet(0, 8)
	for b.Loop() {
		if p.a.ep.PostRDMAWrite(8, 0, r, l) != nil {
			b.Fatal("post")
		}
		if p.a.evd.DequeueInto(ev[:]) != 1 {
			b.Fatal()
		}
	}
}
