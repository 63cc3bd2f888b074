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

// Schedules of the end of a connection: posters on both sides, and one or both sides that end it, or a device that is
// removed, at any moment. Each accepted request has one event; what was accepted before the end began comes before the event
// of the end, of which each side has one.

// endSide is a side of the connection: what was posted and what came, in order.
type endSide struct {
	name     string
	s        *side
	other    *side
	accepted map[uint64]span
	came     []dat.Event
	endBegan int64 // when the first call that ends the connection began; 0: not yet
}

type endTrial struct {
	*explore.Explorer
	t     testing.TB
	draw  *rand.Rand
	p     *pair
	sides [2]*endSide
	posts uint64
	// graceful: an end may wait for what is posted, so that sends, which may wait for a receive until a timer ends that,
	// are left out.
	graceful bool
}

func newEndTrial(t testing.TB, seed uint64) *endTrial {
	t.Helper()
	w := &endTrial{Explorer: explore.New(seed), t: t, draw: rand.New(rand.NewPCG(seed, 3))}
	w.Go("set-up", func() {
		w.p = quickPair(t, dat.Config{Spin: -1}, dat.EVDConfig{MinLen: 8})
		w.sides = [2]*endSide{{name: "a", s: &w.p.a, other: &w.p.b}, {name: "b", s: &w.p.b, other: &w.p.a}}
		for _, s := range w.sides {
			s.accepted = map[uint64]span{}
			ok(t, s.s.evd.ModifyUpcall(dat.UpcallSingleInstance, func(ev dat.Event, _ bool) {
				s.came = append(s.came, ev)
				w.Step()
			}, dat.InvocNew))
		}
	})
	if err := w.Run(); err != nil || !w.Ended() || t.Failed() {
		t.Fatal(err, w.Blocked())
	}
	w.Begin()
	w.graceful = w.draw.IntN(2) == 0
	return w
}

// post posts something on a side.
func (w *endTrial) post(s *endSide) {
	w.posts++
	v, begin := w.posts, w.Now()
	var err error
	switch w.draw.IntN(4) {
	case 0:
		if w.graceful {
			return
		}
		err = s.s.ep.PostSend(v, 0, s.s.lmr.Triplet(0, 8))
	case 1:
		err = s.s.ep.PostRDMARead(v, 0, s.other.lmr.RMRTriplet(0, 8), s.s.lmr.Triplet(0, 8))
	case 2:
		err = s.s.ep.PostRDMAWrite(v, 0, s.other.lmr.RMRTriplet(0, 8), s.s.lmr.Triplet(0, 8))
	default:
		err = s.s.ep.PostRecv(v, 0, s.s.lmr.Triplet(8, 8))
	}
	if err == nil {
		s.accepted[v] = span{begin, w.Now()}
	}
	w.Step()
}

// end ends the connection from a side.
func (w *endTrial) end(s *endSide) {
	for _, s := range w.sides {
		if s.endBegan == 0 {
			s.endBegan = w.Now()
		}
	}
	switch w.draw.IntN(5) {
	case 0:
		w.p.dev.Remove()
	case 1, 2:
		s.s.ep.Disconnect(dat.CloseAbrupt)
	default:
		flags := dat.CloseAbrupt
		if w.graceful {
			flags = dat.CloseGraceful
		}
		s.s.ep.Disconnect(flags)
	}
}

// check checks what a side has been told.
func (w *endTrial) check(s *endSide) error {
	seen := map[uint64]bool{}
	over := false
	for _, ev := range s.came {
		switch ev.Number {
		case dat.DTOCompletion:
			v := ev.DTO().Cookie
			call, accepted := s.accepted[v]
			switch {
			case !accepted:
				return fmt.Errorf("%s: %v for nothing that was posted", s.name, ev)
			case seen[v]:
				return fmt.Errorf("%s: %v comes twice", s.name, ev)
			case over && call.end < s.endBegan:
				return fmt.Errorf("%s: %v comes after the end of the connection", s.name, ev)
			}
			seen[v] = true
		case dat.ConnectionDisconnected, dat.ConnectionBroken:
			if over {
				return fmt.Errorf("%s: a second end, %v", s.name, ev)
			}
			over = true
		default:
			return fmt.Errorf("%s: %v", s.name, ev)
		}
	}
	for v := range s.accepted {
		if !seen[v] {
			return fmt.Errorf("%s: request %d has no event", s.name, v)
		}
	}
	if !over {
		return fmt.Errorf("%s: no end", s.name)
	}
	return nil
}

func (w *endTrial) finish() error {
	if err := w.Run(); err != nil {
		return err
	}
	for _, s := range w.sides {
		if err := w.check(s); err != nil {
			return fmt.Errorf("%w\nposted %v\ncame %v", err, s.accepted, s.came)
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

func TestExploreEnds(t *testing.T) {
	exploreSeeds(t, 1500, func(t testing.TB, seed uint64) (*explore.Explorer, error) {
		w := newEndTrial(t, seed)
		for _, s := range w.sides {
			for range 1 + w.draw.IntN(2) {
				w.Go("poster "+s.name, func() {
					for range w.draw.IntN(6) {
						w.post(s)
					}
				})
			}
		}
		which := w.draw.IntN(3)
		if which != 0 {
			w.Go("end a", func() { w.end(w.sides[0]) })
		}
		if which != 1 {
			w.Go("end b", func() { w.end(w.sides[1]) })
		}
		return w.Explorer, w.finish()
	})
}
