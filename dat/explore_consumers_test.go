//go:build kdapl_explore

package dat_test

import (
	"testing"

	"kdapl/dat"
	"kdapl/internal/explore"
)

// The consumers of docs/upcalls.md, by the names that they have there, with the real EVD under explored schedules: those that
// are safe get every event, and those that are not leave one behind.

// consumer is a way to use upcalls.
type consumer struct {
	name   string
	policy dat.UpcallPolicy // at the beginning
	strand bool             // it can leave events behind
	prep   func(w *trial)
}

// woken is a consumer whose upcalls wake a goroutine.
func woken(upcall func(w *trial), round func(w *trial, client int)) func(w *trial) {
	return func(w *trial) {
		wake := false
		w.nested = func(w *trial) {
			upcall(w)
			wake = true
		}
		w.as("consumer", func(client int) {
			for {
				w.Block(func() bool { return wake || w.ctx.Err() != nil })
				if w.ctx.Err() != nil {
					return
				}
				wake = false
				round(w, client)
			}
		})
	}
}

func disable(w *trial) { w.modify(0, dat.UpcallDisable, dat.InvocNew) }

// drainThen drains, and then makes a policy live.
func drainThen(policy dat.UpcallPolicy, flag dat.UpcallFlag) func(w *trial, client int) {
	return func(w *trial, client int) {
		w.drain(client)
		w.modify(client, policy, flag)
	}
}

// thenDrain makes a policy live, and then drains.
func thenDrain(policy dat.UpcallPolicy, flag dat.UpcallFlag) func(w *trial, client int) {
	return func(w *trial, client int) {
		w.modify(client, policy, flag)
		w.drain(client)
	}
}

// enables turns upcalls on some time, once or several times.
func enables(times int, on func(w *trial, client int)) func(w *trial) {
	return func(w *trial) {
		w.as("consumer", func(client int) {
			for n := w.pick(times); n > 0; n-- {
				on(w, client)
				w.modify(client, dat.UpcallDisable, dat.InvocNew)
			}
			on(w, client)
		})
	}
}

func nothingElse(*trial) {}

var consumers = []consumer{
	{"single", dat.UpcallSingleInstance, false, nothingElse},
	{"many", dat.UpcallMany, false, nothingElse},
	{"drain-then-any", dat.UpcallSingleInstance, false, woken(disable, drainThen(dat.UpcallSingleInstance, dat.InvocAny))},
	{"drain-then-any-many", dat.UpcallMany, false, woken(disable, drainThen(dat.UpcallMany, dat.InvocAny))},
	{"new-then-poll", dat.UpcallDisable, false, enables(1, thenDrain(dat.UpcallSingleInstance, dat.InvocNew))},
	{"new-then-poll-many", dat.UpcallDisable, false, enables(1, thenDrain(dat.UpcallMany, dat.InvocNew))},
	{"new-then-poll-loop", dat.UpcallDisable, false, enables(4, thenDrain(dat.UpcallSingleInstance, dat.InvocNew))},
	{"rearm-then-poll", dat.UpcallNotify, false, woken(nothingElse, thenDrain(dat.UpcallNotify, dat.InvocNew))},
	{"poll-then-rearm", dat.UpcallNotify, false, woken(nothingElse, drainThen(dat.UpcallNotify, dat.InvocNew))},
	{"empty-or-again", dat.UpcallSingleInstance, false, woken(disable, func(w *trial, client int) {
		for {
			w.drain(client)
			if w.modify(client, dat.UpcallSingleInstance, dat.InvocEmpty) == good {
				return
			}
		}
	})},
	{"wait", dat.UpcallDisable, false, func(w *trial) {
		w.waiters = true
		w.as("consumer", func(client int) {
			for w.wait(client, 1, false).err == good {
			}
		})
	}},
	{"new-without-poll", dat.UpcallDisable, true, enables(1, func(w *trial, client int) {
		w.modify(client, dat.UpcallSingleInstance, dat.InvocNew)
	})},
	{"poll-then-new", dat.UpcallSingleInstance, true, woken(disable, drainThen(dat.UpcallSingleInstance, dat.InvocNew))},
}

// try runs the trial of a seed, and returns how many events were left behind when nobody could go on.
func (c consumer) try(t testing.TB, seed uint64) (x *explore.Explorer, stranded int, err error) {
	w := newTrial(t, seed, seed&1 == 0, c.policy)
	w.loud = true
	c.prep(w)
	for range 1 + w.pick(2) {
		w.as("poster", func(client int) {
			for range 1 + w.pick(4) {
				w.post(client)
			}
		})
	}
	w.atRest = func() { stranded = len(w.left()) }
	if err := w.finish(); err != nil {
		return w.Explorer, stranded, err
	}
	return w.Explorer, stranded, w.close()
}

func TestExploreConsumers(t *testing.T) {
	for _, c := range consumers {
		t.Run(c.name, func(t *testing.T) {
			if !c.strand {
				exploreSeeds(t, 400, func(t testing.TB, seed uint64) (*explore.Explorer, error) {
					x, left, err := c.try(t, seed)
					if err == nil && left > 0 {
						t.Errorf("%d events are left behind", left)
					}
					return x, err
				})
				return
			}
			for seed := range uint64(1000) {
				x, left, err := c.try(t, seed)
				ok(t, err)
				if left > 0 {
					t.Logf("seed %d leaves %d events behind:\n%s", seed, left, x)
					return
				}
			}
			t.Error("no schedule leaves an event behind")
		})
	}
}
