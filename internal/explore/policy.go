//go:build kdapl_explore

package explore

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// policy is how the next participant is chosen.
type policy interface {
	// rank is that of a new participant.
	rank(x *Explorer) int
	// choose takes one of those that can go on.
	choose(x *Explorer, can []*participant) *participant
	String() string
}

// newPolicy draws one. No policy finds everything: a walk changes often or rarely, a focus whenever somebody is at one
// point, and ranks let one participant stand still for long while the others do whatever they can.
func newPolicy(random *rand.Rand) policy {
	switch random.IntN(7) {
	case 0:
		return &walk{stay: 1}
	case 1:
		return &walk{stay: 6}
	case 2, 3, 4:
		return &focus{windows[random.IntN(len(windows))]}
	}
	// The changes are spread over the steps of a small exploration.
	r := &ranks{}
	for range 1 + random.IntN(5) {
		r.changes = append(r.changes, random.IntN(100))
	}
	slices.Sort(r.changes)
	return r
}

// walk changes to anybody, after stay+1 steps on average.
type walk struct{ stay int }

func (w *walk) rank(*Explorer) int { return 0 }
func (w *walk) String() string     { return fmt.Sprintf("a walk that changes every %d steps", w.stay+1) }

func (w *walk) choose(x *Explorer, can []*participant) *participant {
	if slices.Contains(can, x.current) && x.random.IntN(w.stay+1) != 0 {
		return x.current
	}
	return can[x.random.IntN(len(can))]
}

// windows are the points of which it matters most who else runs while somebody is there.
var windows = []Point{Append, Refill, Arm, Arm, Armed, Settle, Empty, Take, Move, Moved}

// focus lets whoever comes to a point wait there, and others run; elsewhere it changes rarely.
type focus struct{ point Point }

func (f *focus) rank(*Explorer) int { return 0 }
func (f *focus) String() string     { return fmt.Sprintf("changes at the point %s", f.point) }

func (f *focus) choose(x *Explorer, can []*participant) *participant {
	i := slices.Index(can, x.current)
	if i < 0 {
		return can[x.random.IntN(len(can))]
	}
	if here := x.trace[len(x.trace)-1]; here.who != x.current || here.point != f.point {
		if x.random.IntN(12) != 0 {
			return x.current
		}
	} else if len(can) > 1 && x.random.IntN(8) != 0 {
		can = slices.Delete(can, i, i+1)
	}
	return can[x.random.IntN(len(can))]
}

// ranks lets the first in rank run, and at a few steps moves who runs then to the end (probabilistic
// concurrency testing: a fault that needs d changes is found with a probability that has a bound).
type ranks struct {
	changes []int
	lowest  int
	stays   int // steps of the one that runs
}

// patience is for how many steps one may run while others could.
const patience = 500

func (r *ranks) String() string            { return fmt.Sprintf("ranks that change at steps %v", r.changes) }
func (r *ranks) rank(x *Explorer) int      { return x.random.IntN(1 << 20) }
func (r *ranks) last(p *participant)       { r.lowest--; p.rank = r.lowest }
func (r *ranks) isDue(step int) (due bool) { _, due = slices.BinarySearch(r.changes, step); return due }

func (r *ranks) choose(x *Explorer, can []*participant) *participant {
	if x.current != nil && (r.isDue(len(x.trace)) || r.stays > patience) {
		r.last(x.current)
	}
	best := can[0]
	for _, p := range can[1:] {
		if p.rank > best.rank {
			best = p
		}
	}
	if r.stays++; best != x.current {
		r.stays = 0
	}
	return best
}
