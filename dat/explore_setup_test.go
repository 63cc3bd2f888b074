//go:build kdapl_explore

package dat_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"kdapl/dat"
	"kdapl/internal/explore"
)

// Schedules of the set-up of a connection: both sides send as soon as they may, and answer in the upcalls of their receives,
// which are on the connection's EVD or on one of their own. In some trials somebody ends the set-up or the connection.

const (
	helloLen, answerLen = 8, 4
	helloTries          = 100
)

// setUpSide is a side of the connection.
type setUpSide struct {
	*side
	name                  string
	apart                 bool // the receives have an EVD of their own
	begun                 bool // its Connect or Accept has returned
	told, over            bool
	hellos, answers       int // that were sent
	gotHello, gotAnswer   int
	completed, recvPosted int
}

type setUpTrial struct {
	*explore.Explorer
	t     testing.TB
	p     *pair
	sides [2]*setUpSide
	cut   bool // somebody ends it
	err   error
}

func (w *setUpTrial) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func newSetUpTrial(t testing.TB, seed uint64) *setUpTrial {
	t.Helper()
	draw := rand.New(rand.NewPCG(seed, 4))
	w := &setUpTrial{Explorer: explore.New(seed), t: t}
	w.Go("set-up", func() {
		w.p = quickApart(t, dat.Config{Spin: -1}, dat.EVDConfig{MinLen: 8})
		w.sides = [2]*setUpSide{{side: &w.p.a, name: "a"}, {side: &w.p.b, name: "b"}}
		for _, s := range w.sides {
			if s.apart = draw.IntN(3) > 0; s.apart {
				s.recv = newEVD(t, s.ia, dat.EVDConfig{MinLen: 4, Streams: dat.StreamDTO})
				s.ep = s.newEP(t, nil)
			}
			upcall := func(ev dat.Event, _ bool) { w.upcall(s, ev) }
			ok(t, s.evd.ModifyUpcall(dat.UpcallSingleInstance, upcall, dat.InvocNew))
			if s.apart {
				ok(t, s.recv.ModifyUpcall(dat.UpcallSingleInstance, upcall, dat.InvocNew))
			}
			for range 2 {
				ok(t, s.ep.PostRecv(0, 0, s.lmr.Triplet(0, 8)))
				s.recvPosted++
			}
		}
	})
	if err := w.Run(); err != nil || !w.Ended() || t.Failed() {
		t.Fatal(err, w.Blocked())
	}
	w.Begin()
	w.cut = draw.IntN(3) == 0
	w.Go("connect", func() {
		ok(t, w.p.a.ep.Connect(w.p.b.ia.Address(), w.p.psp.ConnQual(), dat.ConnectConfig{Timeout: dat.Infinite}))
		w.sides[0].begun = true
	})
	for _, s := range w.sides {
		w.Go("hello "+s.name, func() {
			for range helloTries {
				if s.ep.PostSend(1, 0, s.lmr.Triplet(8, helloLen)) == nil {
					s.hellos++
					return
				}
				w.Step()
			}
		})
	}
	if w.cut {
		s := w.sides[draw.IntN(2)]
		w.Go("cut "+s.name, func() {
			w.Block(func() bool { return s.begun || s.over || w.sides[0].over }) // before, it would wait for a mutex
			for range draw.IntN(20) {
				w.Step()
			}
			s.ep.Disconnect(dat.CloseAbrupt)
		})
	}
	return w
}

func (w *setUpTrial) upcall(s *setUpSide, ev dat.Event) {
	w.Step()
	d := ev.DTO()
	switch {
	case ev.Number == dat.ConnectionRequest:
		if err := ev.Request().CR.Accept(s.ep, nil); err != nil && !w.cut {
			w.fail(fmt.Errorf("%s: accept: %w", s.name, err))
		}
		s.begun = true
	case ev.Number == dat.ConnectionEstablished:
		s.told = true
	case ev.Number != dat.DTOCompletion:
		s.over = true
		if !w.cut {
			w.fail(fmt.Errorf("%s: %v", s.name, ev))
		}
	default:
		w.completion(s, d)
	}
}

func (w *setUpTrial) completion(s *setUpSide, d dat.DTO) {
	s.completed++
	if d.Status != dat.StatusSuccess {
		return
	}
	if !s.apart && !s.told && !w.cut {
		w.fail(fmt.Errorf("%s: %v before the connection", s.name, d.Operation))
	}
	switch {
	case d.Operation == dat.OpSend:
	case d.Length == answerLen:
		s.gotAnswer++
	default:
		s.gotHello++
		switch err := d.EP.PostSend(2, 0, s.lmr.Triplet(8, answerLen)); {
		case err == nil:
			s.answers++
		case !w.cut:
			w.fail(fmt.Errorf("%s: the answer: %w", s.name, err))
		}
	}
}

func (w *setUpTrial) finish() error {
	if err := w.Run(); err != nil {
		return err
	}
	a, b := w.sides[0], w.sides[1]
	switch {
	case w.err != nil:
		return w.err
	case !w.cut && (!a.told || !b.told):
		return fmt.Errorf("established: %v and %v", a.told, b.told)
	case !w.cut && (b.gotHello != a.hellos || a.gotHello != b.hellos || a.gotAnswer != a.hellos || b.gotAnswer != b.hellos):
		return fmt.Errorf("a %+v\nb %+v", *a, *b)
	}
	w.Go("end", func() {
		for _, s := range w.sides {
			s.ep.Disconnect(dat.CloseAbrupt)
		}
		w.cut = true
	})
	if err := w.Run(); err != nil {
		return err
	}
	for _, s := range w.sides {
		if st, err := s.ep.Status(); err == nil && st.State == dat.StateDisconnected && s.completed != s.recvPosted+s.hellos+s.answers {
			return fmt.Errorf("%s: %d completions of %d receives, %d hellos and %d answers", s.name, s.completed, s.recvPosted, s.hellos, s.answers)
		}
	}
	w.Go("close", func() {
		w.p.a.ia.Close(context.Background(), dat.CloseAbrupt)
		w.p.b.ia.Close(context.Background(), dat.CloseAbrupt)
	})
	if err := w.Run(); err != nil {
		return err
	}
	if !w.Ended() {
		return fmt.Errorf("after the close there still are %v", w.Blocked())
	}
	return nil
}

func TestExploreSetUps(t *testing.T) {
	exploreSeeds(t, 1500, func(t testing.TB, seed uint64) (*explore.Explorer, error) {
		w := newSetUpTrial(t, seed)
		return w.Explorer, w.finish()
	})
}
