package dat

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The upcall machine is walked exhaustively, breadth first, together with what the EVD does around it: a queue
// of up to three events that consumers take from without telling the machine, activations that decide,
// claim the head of the queue without the lock, are in an upcall, and end by return or Goexit,
// and every policy change at every moment. Beside the machine runs what the rules say (spec), written from the
// rules and not from the machine.

// upcallRules is the machine, and the two places where the EVD turns the ring's generation; mutants differ
// from it in one place.
type upcallRules struct {
	arrive   func(u upcalls, wasEmpty, notifying bool) (upcalls, bool)
	modify   func(u upcalls, p UpcallPolicy, f UpcallFlag, queued bool) (upcalls, bool, bool)
	teardown func(u upcalls) upcalls
	step     func(u upcalls, queued int, old bool) (upcalls, upcallAction, bool)
	end      func(u upcalls, queued int, old bool) (upcalls, bool)
	// quietTurns: an event that does not notify, onto an empty queue, turns the generation if an activation runs.
	// changeTurns: so does a change of the policy.
	quietTurns, changeTurns bool
}

func upcallMachine() upcallRules {
	return upcallRules{upcalls.arrive, upcalls.modify, upcalls.teardown, upcalls.step, upcalls.end, true, true}
}

// The phases of an activation.
const (
	deciding = 'd' // is about to ask the machine
	claiming = 'c' // may take the head of the queue, if nothing has turned the generation
	calling  = 'u' // in an upcall
)

// walkActivation is a goroutine of the walk.
type walkActivation struct {
	phase  byte
	old    bool // began before the last teardown
	turned bool // claiming or calling: the generation has changed since the decision
	again  bool // calling: claims again after the upcall (SINGLE_INSTANCE)
}

// upcallWorld is a state of the walk. It is comparable through key.
type upcallWorld struct {
	u     upcalls
	queue string // 'n' notifies, 'q' does not; the oldest first
	acts  []walkActivation
	// What the rules say:
	policy  UpcallPolicy
	pending bool
	armed   bool
}

func (w *upcallWorld) key() string {
	slices.SortFunc(w.acts, func(a, b walkActivation) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return fmt.Sprint(*w)
}

func (w *upcallWorld) copy() *upcallWorld {
	c := *w
	c.acts = slices.Clone(w.acts)
	return &c
}

func (w *upcallWorld) calls() (n int) {
	for _, a := range w.acts {
		if a.phase == calling {
			n++
		}
	}
	return n
}

// most is the number of upcalls that a policy allows at once.
func (w *upcallWorld) most() int {
	switch w.policy {
	case UpcallSingleInstance, UpcallNotify:
		return 1
	case UpcallMany:
		return int(w.u.many)
	}
	return 0
}

// entitled: the rules want an upcall now.
func (w *upcallWorld) entitled() bool {
	return w.pending && w.calls() < w.most() && (w.policy != UpcallNotify || w.armed)
}

// begin adds an activation that the machine has started.
func (w *upcallWorld) begin(start bool) {
	if start {
		w.acts = append(w.acts, walkActivation{phase: deciding})
	}
}

func (w *upcallWorld) turn() {
	for i := range w.acts {
		if w.acts[i].phase != deciding {
			w.acts[i].turned = true
		}
	}
}

// take removes the head of the queue.
func (w *upcallWorld) take() {
	if w.queue = w.queue[1:]; w.queue == "" {
		w.pending = false // the rule: cleared when the queue becomes empty
	}
}

// enter puts an activation into an upcall, if the rules allow one.
func (w *upcallWorld) enter(i int, again bool) error {
	switch {
	case !w.entitled():
		return fmt.Errorf("an upcall starts that the rules do not allow (policy %v, pending %v, %d running)", w.policy, w.pending, w.calls())
	case w.acts[i].old:
		return fmt.Errorf("an activation from before a teardown starts an upcall")
	}
	w.acts[i].phase, w.acts[i].again = calling, again
	return nil
}

// check are the properties of every state.
func (w *upcallWorld) check() error {
	idle := !slices.ContainsFunc(w.acts, func(a walkActivation) bool { return a.phase != calling })
	old := 0
	for _, a := range w.acts {
		if a.old {
			old++
		}
	}
	switch {
	case int(w.u.running) != len(w.acts) || int(w.u.old) != old:
		return fmt.Errorf("the machine counts %d activations, %d of them old; there are %d and %d", w.u.running, w.u.old, len(w.acts), old)
	case w.u.policy != w.policy:
		return fmt.Errorf("the machine's policy is %v", w.u.policy)
	case w.entitled() && idle:
		return fmt.Errorf("everybody is idle while an upcall is pending and entitled")
	case w.queue != "" && w.u.pending != w.pending:
		return fmt.Errorf("the machine's pending is %v, the rules' %v", w.u.pending, w.pending)
	case w.u.armed != w.armed:
		return fmt.Errorf("the machine's armed is %v, the rules' %v", w.u.armed, w.armed)
	}
	return nil
}

// walkMove is an input of the walk.
type walkMove struct {
	name string
	do   func(w *upcallWorld) error // nil func: not possible
}

const walkQueue = 3

// moves are all inputs that are possible in a state.
func (r upcallRules) moves(w *upcallWorld) (all []walkMove) {
	add := func(name string, do func(w *upcallWorld) error) { all = append(all, walkMove{name, do}) }
	for _, batch := range []string{"n", "q", "nq", "qn"} {
		if len(w.queue)+len(batch) <= walkQueue {
			add("arrive "+batch, func(w *upcallWorld) error { r.doArrive(w, batch); return nil })
		}
	}
	if w.queue != "" {
		add("dequeue", func(w *upcallWorld) error { w.take(); return nil })
	}
	for _, p := range []UpcallPolicy{UpcallDisable, UpcallSingleInstance, UpcallNotify, UpcallMany} {
		for _, f := range []UpcallFlag{InvocNew, InvocAny, InvocEmpty} {
			add(fmt.Sprintf("modify %v %v", p, f), func(w *upcallWorld) error { return r.doModify(w, p, f) })
		}
	}
	add("teardown", func(w *upcallWorld) error {
		w.policy, w.armed = UpcallTeardown, false
		w.u = r.teardown(w.u)
		for i := range w.acts {
			w.acts[i].old = true
		}
		if r.changeTurns {
			w.turn()
		}
		return nil
	})
	for i, a := range w.acts {
		switch a.phase {
		case deciding:
			add("step", func(w *upcallWorld) error { return r.doStep(w, i) })
		case claiming:
			add("claim", func(w *upcallWorld) error {
				if w.acts[i].turned || w.queue == "" {
					w.acts[i] = walkActivation{phase: deciding, old: w.acts[i].old}
					return nil
				}
				err := w.enter(i, w.policy == UpcallSingleInstance)
				w.take()
				return err
			})
		case calling:
			add("return", func(w *upcallWorld) error {
				if w.acts[i].again {
					w.acts[i].phase, w.acts[i].again = claiming, false
				} else {
					w.acts[i] = walkActivation{phase: deciding, old: w.acts[i].old}
				}
				return nil
			})
			add("Goexit", func(w *upcallWorld) error { r.doEnd(w, i); return nil })
		}
	}
	return all
}

func (r upcallRules) doArrive(w *upcallWorld, batch string) {
	wasEmpty, notifying := w.queue == "", strings.Contains(batch, "n")
	if r.quietTurns && wasEmpty && !notifying && len(w.acts) > 0 {
		w.turn()
	}
	var start bool
	w.u, start = r.arrive(w.u, wasEmpty, notifying)
	w.begin(start)
	w.queue += batch
	w.pending = w.pending || notifying
}

func (r upcallRules) doModify(w *upcallWorld, p UpcallPolicy, f UpcallFlag) error {
	before, queued := *w, w.queue != ""
	u, start, ok := r.modify(w.u, p, f, queued)
	if ok != (f != InvocEmpty || !queued) {
		return fmt.Errorf("the result is %v", ok)
	}
	if !ok {
		if u != w.u || start {
			return fmt.Errorf("a refused change has changed something")
		}
		return nil
	}
	// The rules.
	switch {
	case f == InvocAny && queued:
		w.pending = true
	case f == InvocNew && p.Live() && !w.policy.Live():
		w.pending = false
	}
	w.policy, w.armed = p, p == UpcallNotify
	w.u = u
	if r.changeTurns && p != before.policy {
		w.turn()
	}
	if p == before.policy && f == InvocNew && queued && u.pending != before.u.pending {
		return fmt.Errorf("the same policy again has changed more than the arming")
	}
	w.begin(start)
	return nil
}

func (r upcallRules) doStep(w *upcallWorld, i int) error {
	u, act, start := r.step(w.u, len(w.queue), w.acts[i].old)
	switch act {
	case actStop:
		r.doEnd(w, i)
		return nil
	case actNotify:
		if w.policy != UpcallNotify {
			return fmt.Errorf("an upcall without an event under %v", w.policy)
		}
		w.u = u
		err := w.enter(i, false)
		w.armed = false
		w.begin(start)
		return err
	}
	if w.policy == UpcallNotify {
		return fmt.Errorf("an upcall with an event under NOTIFY")
	}
	w.u = u
	w.acts[i].phase = claiming
	w.begin(start)
	return nil
}

func (r upcallRules) doEnd(w *upcallWorld, i int) {
	var start bool
	w.u, start = r.end(w.u, len(w.queue), w.acts[i].old)
	w.acts = slices.Delete(w.acts, i, i+1)
	w.begin(start)
}

// walk visits every state that can be reached, and returns their number and the shortest way to the
// first violation.
func (r upcallRules) walk(policy UpcallPolicy, many int32) (states int, violation error) {
	first := &upcallWorld{
		u:      upcalls{policy: policy, armed: policy == UpcallNotify, many: many},
		policy: policy, armed: policy == UpcallNotify,
	}
	type node struct {
		w    *upcallWorld
		from int
		by   string
	}
	nodes := []node{{first, -1, "created"}}
	seen := map[string]bool{first.key(): true}
	way := func(i int) string {
		var names []string
		for ; i >= 0; i = nodes[i].from {
			names = append(names, nodes[i].by)
		}
		slices.Reverse(names)
		return strings.Join(names, ", ")
	}
	for i := 0; i < len(nodes); i++ {
		for _, m := range r.moves(nodes[i].w) {
			w := nodes[i].w.copy()
			err := m.do(w)
			if err == nil {
				err = w.check()
			}
			if err != nil {
				return len(nodes), fmt.Errorf("%s, %s: %w", way(i), m.name, err)
			}
			if k := w.key(); !seen[k] {
				seen[k] = true
				nodes = append(nodes, node{w, i, m.name})
			}
		}
	}
	return len(nodes), nil
}

func TestUpcallMachineKeepsTheRulesInEveryReachableState(t *testing.T) {
	policies := []UpcallPolicy{UpcallDisable, UpcallSingleInstance, UpcallNotify, UpcallMany}
	if testing.Short() {
		policies = policies[:1] // the others' states are reached from it
	}
	for _, p := range policies {
		states, err := upcallMachine().walk(p, 2)
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		t.Logf("%v: %d states", p, states)
		if states < 1000 {
			t.Errorf("%v: only %d states were reached", p, states)
		}
	}
}

// The walk finds every one of these faults.
func TestUpcallMachineWalkFindsFaults(t *testing.T) {
	for name, break_ := range map[string]func(*upcallRules){
		"pending survives an empty queue": func(r *upcallRules) {
			r.arrive = func(u upcalls, _, notifying bool) (upcalls, bool) { return u.arrive(false, notifying) }
		},
		"quiet events notify": func(r *upcallRules) {
			r.arrive = func(u upcalls, wasEmpty, _ bool) (upcalls, bool) { return u.arrive(wasEmpty, true) }
		},
		"events do not notify": func(r *upcallRules) {
			r.arrive = func(u upcalls, wasEmpty, _ bool) (upcalls, bool) { return u.arrive(wasEmpty, false) }
		},
		"an arrival starts nobody": func(r *upcallRules) {
			r.arrive = func(u upcalls, wasEmpty, notifying bool) (upcalls, bool) {
				n, start := u.arrive(wasEmpty, notifying)
				if start {
					n.running--
				}
				return n, false
			}
		},
		"INVOC_NEW is INVOC_ANY": func(r *upcallRules) {
			r.modify = func(u upcalls, p UpcallPolicy, f UpcallFlag, queued bool) (upcalls, bool, bool) {
				if f == InvocNew {
					f = InvocAny
				}
				return u.modify(p, f, queued)
			}
		},
		"INVOC_ANY is INVOC_NEW": func(r *upcallRules) {
			r.modify = func(u upcalls, p UpcallPolicy, f UpcallFlag, queued bool) (upcalls, bool, bool) {
				if f == InvocAny {
					f = InvocNew
				}
				return u.modify(p, f, queued)
			}
		},
		"INVOC_EMPTY refuses nothing": func(r *upcallRules) {
			r.modify = func(u upcalls, p UpcallPolicy, f UpcallFlag, queued bool) (upcalls, bool, bool) {
				if f == InvocEmpty {
					f = InvocNew
				}
				return u.modify(p, f, queued)
			}
		},
		"a policy change forgets what is pending": func(r *upcallRules) {
			r.modify = func(u upcalls, p UpcallPolicy, f UpcallFlag, queued bool) (upcalls, bool, bool) {
				u.pending = false
				return u.modify(p, f, queued)
			}
		},
		"NOTIFY is not armed again": func(r *upcallRules) {
			r.modify = func(u upcalls, p UpcallPolicy, f UpcallFlag, queued bool) (upcalls, bool, bool) {
				n, start, ok := u.modify(p, f, queued)
				n.armed = n.armed && (u.armed || u.policy != UpcallNotify)
				return n, start, ok
			}
		},
		"NOTIFY stays armed": func(r *upcallRules) {
			r.step = func(u upcalls, queued int, old bool) (upcalls, upcallAction, bool) {
				n, act, start := u.step(queued, old)
				n.armed = u.armed
				return n, act, start
			}
		},
		"NOTIFY takes an event": func(r *upcallRules) {
			r.step = func(u upcalls, queued int, old bool) (upcalls, upcallAction, bool) {
				n, act, start := u.step(queued, old)
				if act == actNotify {
					act = actTake
				}
				return n, act, start
			}
		},
		"an old activation goes on": func(r *upcallRules) {
			r.step = func(u upcalls, queued int, _ bool) (upcalls, upcallAction, bool) { return u.step(queued, false) }
		},
		"too many activations go on": func(r *upcallRules) {
			r.step = func(u upcalls, queued int, old bool) (upcalls, upcallAction, bool) {
				running := u.running
				u.running = min(u.running, u.limit())
				n, act, start := u.step(queued, old)
				n.running += running - u.running
				return n, act, start
			}
		},
		"MANY is one at a time": func(r *upcallRules) {
			r.step = func(u upcalls, queued int, old bool) (upcalls, upcallAction, bool) {
				return u.step(min(queued, 1), old)
			}
		},
		"the end starts nobody": func(r *upcallRules) {
			r.end = func(u upcalls, queued int, old bool) (upcalls, bool) {
				n, start := u.end(queued, old)
				if start {
					n.running--
				}
				return n, false
			}
		},
		"the end of an old activation is not counted": func(r *upcallRules) {
			r.end = func(u upcalls, queued int, _ bool) (upcalls, bool) { return u.end(queued, false) }
		},
		"teardown is DISABLE": func(r *upcallRules) {
			r.teardown = func(u upcalls) upcalls { n := u.teardown(); n.old = 0; return n }
		},
		"quiet events do not turn the generation":   func(r *upcallRules) { r.quietTurns = false },
		"policy changes do not turn the generation": func(r *upcallRules) { r.changeTurns = false },
	} {
		r := upcallMachine()
		break_(&r)
		if _, err := r.walk(UpcallDisable, 2); err == nil {
			t.Errorf("not found: %s", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}
