//go:build kdapl_explore

package dat_test

import (
	"testing"

	"kdapl/dat"
	"kdapl/internal/explore"
)

// scenario is who takes part in a trial, and in what.
type scenario struct {
	name  string
	seeds int // in the short form; the long form has ten times as many
	prep  func(w *trial)
	of    func(seed uint64) (completions bool, policy dat.UpcallPolicy)
}

var scenarios = []scenario{
	{"software events and dequeuers", 1000, plain, func(uint64) (bool, dat.UpcallPolicy) { return false, dat.UpcallDisable }},
	{"completions and dequeuers", 1000, plain, func(uint64) (bool, dat.UpcallPolicy) { return true, dat.UpcallDisable }},
	{"upcalls", 2000, plain, func(seed uint64) (bool, dat.UpcallPolicy) { return seed&1 == 0, livePolicies[seed>>1%3] }},
	{"every policy and flag", 4000, controlled, func(seed uint64) (bool, dat.UpcallPolicy) { return seed&1 == 0, livePolicies[seed>>1%3] }},
	{"waiters", 1000, waiting, func(seed uint64) (bool, dat.UpcallPolicy) { return seed&1 == 0, dat.UpcallDisable }},
	{"free", 1000, freeing, func(seed uint64) (bool, dat.UpcallPolicy) { return false, livePolicies[seed%3] }},
}

// try runs the trial of a seed.
func (s scenario) try(t testing.TB, seed uint64) (*explore.Explorer, error) {
	completions, policy := s.of(seed)
	w := newTrial(t, seed, completions, policy)
	s.prep(w)
	if err := w.finish(); err != nil {
		return w.Explorer, err
	}
	return w.Explorer, w.close()
}

// TestExplore explores schedules of random calls on an EVD.
func TestExplore(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { exploreSeeds(t, s.seeds, s.try) })
	}
}

// A seed is enough to see a schedule again.
func TestASeedDeterminesItsSchedule(t *testing.T) {
	for _, s := range scenarios {
		for seed := range uint64(100) {
			first, err := s.try(t, seed)
			ok(t, err)
			again, err := s.try(t, seed)
			ok(t, err)
			if a, b := first.String(), again.String(); a != b {
				t.Fatalf("%s, seed %d: first\n%s\nthen\n%s", s.name, seed, a, b)
			}
		}
	}
}

var livePolicies = []dat.UpcallPolicy{dat.UpcallSingleInstance, dat.UpcallMany, dat.UpcallNotify}

// plain has posters and, unless upcalls alone are asked for, dequeuers.
func plain(w *trial) {
	for range 1 + w.pick(2) {
		w.as("poster", func(client int) {
			for range 1 + w.pick(4) {
				w.post(client)
			}
		})
	}
	for range 1 + w.pick(2) {
		w.as("dequeuer", func(client int) {
			for range 1 + w.pick(4) {
				w.take(client)
			}
		})
	}
}

// controlled has somebody who changes policies and lengths too, and upcalls that do whatever they may.
func controlled(w *trial) {
	w.nested = (*trial).misbehave
	plain(w)
	for range 1 + w.pick(2) {
		w.as("controller", func(client int) {
			for range 1 + w.pick(4) {
				switch w.pick(6) {
				case 0:
					w.resize(client, 1+w.pick(3))
				case 1:
					w.resize(client, 1+w.pick(12))
				case 2:
					w.tearDown(client)
				default:
					w.modify(client, w.anyPolicy(), w.anyFlag())
				}
			}
		})
	}
}

// waiting has waiters.
func waiting(w *trial) {
	w.waiters = true
	plain(w)
	for range 1 + w.pick(2) {
		w.as("waiter", func(client int) {
			for range 1 + w.pick(4) {
				w.wait(client, 1, w.pick(4) == 0)
			}
		})
	}
	if w.pick(2) == 0 {
		w.as("controller", func(client int) {
			for range 1 + w.pick(3) {
				if w.pick(2) == 0 {
					w.resize(client, 1+w.pick(12))
					continue
				}
				ok(w.t, w.e.SetUnwaitable())
				w.Step()
				ok(w.t, w.e.ClearUnwaitable())
			}
		})
	}
}

// freeing has somebody who frees the EVD as soon as that is possible.
func freeing(w *trial) {
	w.nested = (*trial).misbehave
	plain(w)
	w.as("freer", func(client int) {
		for range 1 + w.pick(6) {
			if w.free(client) == good {
				return
			}
			w.Step()
		}
	})
}
