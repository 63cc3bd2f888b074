//go:build kdapl_explore

package dat_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"kdapl/dat"
)

// The rules of upcalls and waits that are checked in each schedule, from what consumers see alone. Calls overlap, so a rule is
// applied where it holds in whatever order they took effect.

// limit is the most upcalls at once under a policy.
func exploreLimit(p dat.UpcallPolicy) int {
	switch p {
	case dat.UpcallSingleInstance, dat.UpcallNotify:
		return 1
	case dat.UpcallMany:
		return exploreMany
	}
	return 0
}

// liveAfter reports whether a live policy may have been set by a call that ended after a time.
func (w *trial) liveAfter(at int64) bool {
	return slices.ContainsFunc(w.modifies, func(m *modify1) bool { return m.policy.Live() && m.end > at })
}

// checkUpcall is called when an upcall begins.
func (w *trial) checkUpcall(u upcall1) {
	running, most, armings, notified := 0, 0, 0, 0
	for _, o := range w.upcalls {
		if o.end == 0 {
			running++
		}
		if o.notify {
			notified++
		}
	}
	for _, m := range w.modifies {
		most = max(most, exploreLimit(m.policy))
		if m.policy == dat.UpcallNotify {
			armings++
		}
	}
	if running > most {
		w.fail("%d upcalls run at once, at most %d may", running, most)
	}
	if notified > armings {
		w.fail("%d upcalls of NOTIFY with %d armings", notified, armings)
	}
	for _, m := range w.modifies {
		switch {
		case m.policy.Live() || w.liveAfter(m.begin):
		case m.policy == dat.UpcallTeardown && u.begin > m.end:
			w.fail("an upcall begins at %d, after Teardown returned at %d", u.begin, m.end)
		case !u.notify && u.take > m.end:
			w.fail("an upcall takes its event after %d, where DISABLE had returned at %d", u.take, m.end)
		}
	}
	for _, f := range w.frees {
		w.fail("an upcall begins at %d, after Free returned at %d", u.begin, f.end)
	}
}

// ends checks what must have ended when Teardown or Free returned.
func (w *trial) ends() {
	for _, u := range w.upcalls {
		for _, s := range w.teardown {
			if u.begin < s.begin && (u.end == 0 || u.end > s.end) {
				w.fail("an upcall that began at %d still runs when Teardown returns at %d", u.begin, s.end)
			}
		}
		for _, s := range w.frees {
			if u.begin < s.begin && (u.end == 0 || u.end > s.end) {
				w.fail("Free succeeds at %d while an upcall runs that began at %d", s.end, u.begin)
			}
		}
	}
}

// quiescent checks a state in which nobody can go on: then nothing may be left for which an upcall is due, or of which a
// waiter should know.
func (w *trial) quiescent() {
	if len(w.frees) > 0 {
		return
	}
	last := *slices.MaxFunc(w.modifies, func(a, b *modify1) int { return cmp.Compare(a.end, b.end) })
	if slices.ContainsFunc(w.modifies, func(m *modify1) bool { return *m != last && m.end > last.begin }) {
		last.policy = dat.UpcallDisable // which came last is not known
	}
	left := w.left()
	for _, v := range left {
		if !w.due(w.posted[v]) {
			continue
		}
		switch last.policy {
		case dat.UpcallSingleInstance, dat.UpcallMany:
			w.fail("nobody can go on, the policy is %v, and event %#x is queued, for which an upcall is due", last.policy, v)
		case dat.UpcallNotify:
			if !slices.ContainsFunc(w.upcalls, func(u upcall1) bool { return u.notify && u.end > last.begin }) {
				w.fail("nobody can go on, NOTIFY is armed, and event %#x is queued, for which an upcall is due", v)
			}
		}
	}
	for client, s := range w.waits {
		news := false
		for _, v := range left {
			news = news || w.posted[v].begin > s.begin && !w.posted[v].quiet
		}
		if len(left) > 0 && (news || !w.quietSince(s.begin)) {
			w.fail("client %d waits since %d, and events %#x are queued", client, s.begin, left)
		}
	}
}

// left are the events that nobody has had.
func (w *trial) left() (all []uint64) {
	for v, p := range w.posted {
		if p.begin >= 0 && !w.taken[v] {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return all
}

// quietSince reports whether a queued event may have arrived of which a wait from then on is not told.
func (w *trial) quietSince(at int64) bool {
	return slices.ContainsFunc(w.left(), func(v uint64) bool { return w.posted[v].quiet && w.posted[v].end > at })
}

// due reports whether an upcall is due for a queued event under a live policy, in whatever order calls took effect.
func (w *trial) due(p posting) bool {
	since := p.begin // no INVOC_NEW after this
	if p.quiet {
		since = -1
	}
	for _, m := range w.modifies {
		if m.flag == dat.InvocAny && m.policy != dat.UpcallTeardown && m.begin > p.end {
			since = max(since, m.begin)
		}
	}
	return since >= 0 && !slices.ContainsFunc(w.modifies, func(m *modify1) bool {
		return m.flag != dat.InvocAny && m.policy.Live() && m.end > since
	})
}

// finish explores, checks what holds when nobody can go on, ends everything and checks the history.
func (w *trial) finish() error {
	if err := w.Run(); err != nil {
		return err
	}
	w.quiescent()
	if w.atRest != nil {
		w.atRest()
	}
	w.as("end", func(client int) {
		w.cancel()
		w.Step()
		w.nested = nil
		w.modify(client, dat.UpcallDisable, dat.InvocNew)
		w.tearDown(client)
	})
	if err := w.Run(); err != nil {
		return err
	}
	w.as("drain", func(client int) { w.drain(client) })
	if err := w.Run(); err != nil {
		return err
	}
	if !w.Ended() {
		w.fail("at the end there still are %v", w.Blocked())
	}
	w.ends()
	if len(w.frees) == 0 {
		if lost := w.left(); len(lost) > 0 {
			w.fail("events %#x are lost", lost)
		}
	}
	if w.wrong != nil {
		return fmt.Errorf("%w\n%s", w.wrong, w.history())
	}
	spec := evdSpec(w.room, exploreDepth, w.waiters)
	if r := porcupine.CheckOperationsTimeout(spec, w.ops, 20*time.Second); r != porcupine.Ok {
		return fmt.Errorf("this is not the history of an EVD (%v):\n%s", r, w.history())
	}
	return nil
}
