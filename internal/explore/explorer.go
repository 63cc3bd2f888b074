//go:build kdapl_explore

package explore

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Explorer runs participants one at a time, by a seed.
type Explorer struct {
	random  *rand.Rand
	policy  policy
	all     []*participant
	current *participant
	clock   int64
	trace   []moment
	quiet   chan struct{} // a token when nobody can go on
	failure error
}

// participant is a goroutine of the exploration.
type participant struct {
	name  string
	turn  chan struct{}
	ready func() bool // nil unless it is blocked
	timed bool
	over  bool
	rank  int // of the policy
	last  [numPoints]int64
}

// moment is a step of the schedule.
type moment struct {
	who   *participant
	point Point
}

// maxSteps bounds an exploration: what takes more goes round in circles.
const maxSteps = 20000

// New makes an explorer for a seed.
func New(seed uint64) *Explorer {
	x := &Explorer{random: rand.New(rand.NewPCG(seed, 0x6b6461706c)), quiet: make(chan struct{}, 1)}
	x.Begin()
	return x
}

// Go adds a participant. It may be called before Run, between two of them, and by participants.
func (x *Explorer) Go(name string, f func()) {
	p := &participant{name: name, turn: make(chan struct{}, 1)}
	if name == "" {
		p.name = fmt.Sprintf("activation %d", len(x.all))
	}
	p.rank = x.policy.rank(x)
	x.all = append(x.all, p)
	go func() {
		<-p.turn
		defer func() { // also if f ends the goroutine
			if v := recover(); v != nil {
				x.fail(fmt.Errorf("%s panics: %v\n%s", p.name, v, debug.Stack()))
			}
			p.over = true
			x.note(End)
			x.hand(x.next())
		}()
		x.note(Start)
		f()
	}()
}

// Run lets the participants go on until none can: each has ended or is blocked. It returns an error
// if one panicked, or if they went on without end.
func (x *Explorer) Run() error {
	if !running.CompareAndSwap(nil, x) {
		panic("explore: two explorations at once")
	}
	defer running.Store(nil)
	if x.hand(x.next()); x.failure != nil {
		return x.failure
	}
	select {
	case <-x.quiet:
		return x.failure
	case <-time.After(30 * time.Second):
		// Somebody who has the turn waits in a way that the explorer does not know of.
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return fmt.Errorf("%s does not go on\n%s\n%s", x.current.name, x, stacks)
	}
}

// Begin forgets the schedule so far, which was that of the set-up: the policy of the seed begins with what follows.
func (x *Explorer) Begin() {
	x.all, x.trace = nil, nil
	x.policy = newPolicy(x.random)
}

// Step is a point of the participant's own.
func (x *Explorer) Step() { x.at(Step) }

// Block is the function Block, for a participant's own conditions.
func (x *Explorer) Block(ready func() bool) { x.block(ready, false) }

// Now is the time: it only counts. Each call makes it later.
func (x *Explorer) Now() int64 {
	x.clock++
	return x.clock
}

// Since is when the participant that runs was last at a point; 0 if it never was.
func (x *Explorer) Since(p Point) int64 { return x.current.last[p] }

// Ended reports whether every participant has ended.
func (x *Explorer) Ended() bool {
	for _, p := range x.all {
		if !p.over {
			return false
		}
	}
	return true
}

// Blocked names the participants that have not ended.
func (x *Explorer) Blocked() (names []string) {
	for _, p := range x.all {
		if !p.over {
			names = append(names, p.name)
		}
	}
	return names
}

// Steps is the number of points that were passed.
func (x *Explorer) Steps() int { return len(x.trace) }

// String is the schedule: who was at which points, in order.
func (x *Explorer) String() string {
	var s strings.Builder
	s.WriteString(x.policy.String())
	var who *participant
	for _, m := range x.trace {
		if m.who != who {
			who = m.who
			fmt.Fprintf(&s, "\n  %s:", who.name)
		}
		fmt.Fprintf(&s, " %s", m.point)
	}
	return s.String()
}

func (x *Explorer) note(p Point) {
	x.current.last[p] = x.Now()
	x.trace = append(x.trace, moment{x.current, p})
}

func (x *Explorer) fail(err error) {
	if x.failure == nil {
		x.failure = err
	}
}

// at is a point of the participant that runs.
func (x *Explorer) at(p Point) {
	x.note(p)
	if len(x.trace) > maxSteps {
		x.fail(fmt.Errorf("%d steps, and no end", len(x.trace)))
		x.hand(nil)
		select {} // it is of no use any more
	}
	if next := x.next(); next != x.current {
		me := x.current
		x.hand(next)
		<-me.turn
	}
}

// block is a wait of the participant that runs.
func (x *Explorer) block(ready func() bool, timed bool) (timedOut bool) {
	me := x.current
	me.ready, me.timed = ready, timed
	x.note(Blocked)
	if next := x.next(); next != me {
		x.hand(next)
		<-me.turn
	}
	me.ready = nil
	return timed && !ready()
}

// next says who goes on, nil if nobody can.
func (x *Explorer) next() *participant {
	var can []*participant
	for _, p := range x.all {
		if !p.over && (p.ready == nil || p.timed || p.ready()) {
			can = append(can, p)
		}
	}
	if len(can) == 0 {
		return nil
	}
	return x.policy.choose(x, can)
}

// hand gives the turn to a participant, or back to Run.
func (x *Explorer) hand(p *participant) {
	x.current = p
	if p == nil {
		x.quiet <- struct{}{}
		return
	}
	p.turn <- struct{}{}
}
