package iwarp_test

import (
	"context"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/device/iwarp"
)

const patience = 20 * time.Second

// side is an IA with an EP, on an adapter of its own.
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

func newSide(t *testing.T, cfg iwarp.Config) *side {
	t.Helper()
	s := &side{mem: make([]byte, 1<<20)}
	s.ia = must[*dat.IA](t)(dat.Open(iwarp.New(cfg), dat.Config{}))
	t.Cleanup(func() { s.ia.Close(context.Background(), dat.CloseAbrupt) })
	s.pz = must[*dat.PZ](t)(s.ia.NewPZ())
	s.lmr = must[*dat.LMR](t)(s.pz.Register(s.mem, dat.PrivAll|dat.PrivRemoteAtomic))
	s.evd = must[*dat.EVD](t)(s.ia.NewEVD(dat.EVDConfig{MinLen: 16, Streams: dat.StreamConnectionRequest | dat.StreamDTO | dat.StreamConnection}))
	s.ep = must[*dat.EP](t)(s.pz.NewEP(dat.EPConfig{Recv: s.evd, Request: s.evd, Connect: s.evd}))
	return s
}

func (s *side) next(t *testing.T, want dat.EventNumber) dat.Event {
	t.Helper()
	ev, _, err := s.evd.Wait(context.Background(), 1, patience)
	if err != nil || ev.Number != want {
		t.Fatalf("got %v, %v; want %v", ev, err, want)
	}
	return ev
}

func (s *side) dto(t *testing.T) dat.DTO {
	t.Helper()
	ev := s.next(t, dat.DTOCompletion)
	return ev.DTO()
}

// The whole way through the DAT API: connect with private data, send, write, read, disconnect.
func TestDAT(t *testing.T) {
	a, b := newSide(t, iwarp.Config{Name: "iw0"}), newSide(t, iwarp.Config{Name: "iw1"})
	psp := must[*dat.PSP](t)(b.ia.NewPSP(dat.PSPConfig{EVD: b.evd}))
	ok(t, a.ep.Connect(b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: patience, PrivateData: []byte("hello")}))
	ev := b.next(t, dat.ConnectionRequest)
	cr := ev.Request().CR
	ok(t, cr.Accept(b.ep, []byte("welcome")))
	if ev := a.next(t, dat.ConnectionEstablished); string(ev.Connection().PrivateData) != "welcome" {
		t.Errorf("private data %q", ev.Connection().PrivateData)
	}
	b.next(t, dat.ConnectionEstablished)
	for i := range a.mem[:300000] {
		a.mem[i] = byte(i * 7)
	}
	for i, n := range []int{0, 5, 4096, 300000} {
		ok(t, b.ep.PostRecv(uint64(i), 0, b.lmr.Triplet(300000, 300000)))
		ok(t, a.ep.PostSend(uint64(i), 0, a.lmr.Triplet(0, n)))
		if d := a.dto(t); d.Status != dat.StatusSuccess {
			t.Fatal(d)
		}
		if d := b.dto(t); d.Status != dat.StatusSuccess || int(d.Length) != n || string(b.mem[300000:300000+n]) != string(a.mem[:n]) {
			t.Fatal(d)
		}
	}
	ok(t, a.ep.PostRDMAWrite(9, 0, b.lmr.RMRTriplet(0, 300000), a.lmr.Triplet(0, 300000)))
	a.next(t, dat.DTOCompletion)
	ok(t, a.ep.PostRDMARead(10, 0, b.lmr.RMRTriplet(0, 300000), a.lmr.Triplet(400000, 300000)))
	if d := a.dto(t); d.Status != dat.StatusSuccess || string(a.mem[400000:700000]) != string(a.mem[:300000]) {
		t.Fatal(d)
	}
	ok(t, b.ep.PostRecv(11, 0, b.lmr.Triplet(0, 8)))
	ok(t, a.ep.Disconnect(dat.CloseGraceful))
	a.next(t, dat.ConnectionDisconnected)
	if d := b.dto(t); d.Status != dat.StatusFlushed {
		t.Fatal(d)
	}
	b.next(t, dat.ConnectionDisconnected)
}

// Upcalls on both sides, with nobody polling.
func TestDATUpcalls(t *testing.T) {
	a, b := newSide(t, iwarp.Config{}), newSide(t, iwarp.Config{})
	psp := must[*dat.PSP](t)(b.ia.NewPSP(dat.PSPConfig{EVD: b.evd}))
	ok(t, a.ep.Connect(b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
	ev := b.next(t, dat.ConnectionRequest)
	ok(t, ev.Request().CR.Accept(b.ep, nil))
	a.next(t, dat.ConnectionEstablished)
	b.next(t, dat.ConnectionEstablished)
	const rounds = 200
	done := make(chan struct{})
	echo := func(s *side, first bool) func(dat.Event, bool) {
		n := 0
		return func(ev dat.Event, _ bool) {
			if ev.Number != dat.DTOCompletion || ev.DTO().Operation != dat.OpReceive {
				return
			}
			if n++; n == rounds && first {
				close(done)
			}
			if n < rounds {
				ok(t, s.ep.PostRecv(0, 0, s.lmr.Triplet(0, 64)))
			}
			if !first || n < rounds {
				ok(t, s.ep.PostSend(0, 0, s.lmr.Triplet(0, 64)))
			}
		}
	}
	for i, s := range []*side{a, b} {
		ok(t, s.ep.PostRecv(0, 0, s.lmr.Triplet(0, 64)))
		ok(t, s.evd.ModifyUpcall(dat.UpcallSingleInstance, echo(s, i == 0), dat.InvocAny))
	}
	ok(t, a.ep.PostSend(0, 0, a.lmr.Triplet(0, 64)))
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the upcalls do not come to an end")
	}
	for _, s := range []*side{a, b} {
		ok(t, s.evd.Teardown(context.Background()))
	}
}
