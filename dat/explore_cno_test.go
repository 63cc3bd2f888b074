//go:build kdapl_explore

package dat_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"kdapl/dat"
	"kdapl/internal/explore"
)

// Schedules of a CNO with EVDs of software events and, perhaps, one that takes completions too.

// cnoTrial is one exploration of a CNO.
type cnoTrial struct {
	*explore.Explorer
	t       testing.TB
	draw    *rand.Rand
	p       *pair // nil without completions
	ia      *dat.IA
	c       *dat.CNO
	evds    []*dat.EVD
	ctx     context.Context
	cancel  context.CancelFunc
	ops     []porcupine.Operation
	posted  []map[uint64]bool // of each EVD: notifies
	waiting int               // participants in Wait
	agents  int               // calls of the agent
	posts   int
	changes bool // EVDs are enabled, disabled and associated anew
	wrong   error
}

func newCNOTrial(t testing.TB, seed uint64, completions, agent, changes bool) *cnoTrial {
	t.Helper()
	w := &cnoTrial{Explorer: explore.New(seed), t: t, draw: rand.New(rand.NewPCG(seed, 2)), changes: changes}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.Go("set-up", func() {
		inert := dat.Config{Spin: -1}
		if completions {
			w.p = quickPair(t, inert, dat.EVDConfig{MinLen: 8})
			w.ia = w.p.a.ia
		} else {
			w.ia = must[*dat.IA](t)(dat.Open(newLoop(), inert))
		}
		var f func(*dat.EVD)
		if agent {
			f = func(e *dat.EVD) {
				w.agents++
				w.drain(e)
			}
		}
		w.c = must[*dat.CNO](t)(w.ia.NewCNO(f))
		for range 2 {
			w.evds = append(w.evds, must[*dat.EVD](t)(w.ia.NewEVD(dat.EVDConfig{MinLen: 8, Streams: dat.StreamSoftware, CNO: w.c})))
		}
		if completions {
			ok(t, w.p.a.evd.ModifyCNO(w.c))
			w.evds = append(w.evds, w.p.a.evd)
		}
		w.posted = make([]map[uint64]bool, len(w.evds))
		for i := range w.posted {
			w.posted[i] = map[uint64]bool{}
		}
	})
	if err := w.Run(); err != nil || !w.Ended() || t.Failed() {
		t.Fatal(err, w.Blocked())
	}
	w.Begin()
	return w
}

func (w *cnoTrial) fail(format string, args ...any) {
	if w.wrong == nil {
		w.wrong = fmt.Errorf(format, args...)
	}
}

func (w *cnoTrial) pick(n int) int { return w.draw.IntN(n) }

// note notes something that happens to the CNO.
func (w *cnoTrial) note(in, out cnoCall, begin, end int64) {
	w.ops = append(w.ops, porcupine.Operation{ClientId: 0, Input: in, Output: out, Call: begin, Return: end})
}

// post posts an event, and notes the trigger that comes with it. A completion's may be made by whoever moves it to the
// queue, together with others', and later.
func (w *cnoTrial) post() {
	i := w.pick(len(w.evds))
	w.posts++
	v, begin := uint64(w.posts), w.Now()
	kind, end, loud := "triggered", int64(0), true
	var err error
	if w.p != nil && i == len(w.evds)-1 && w.pick(2) == 0 {
		v |= writeBit
		flags := dat.CompletionDefault
		if loud = w.pick(4) != 0; !loud {
			flags = dat.CompletionUnsignalled
		}
		kind, end = "perhaps", math.MaxInt64
		w.posted[i][v] = loud
		err = w.p.a.ep.PostRDMAWrite(v, flags, w.p.b.lmr.RMRTriplet(0, 8), w.p.a.lmr.Triplet(0, 8))
	} else {
		w.posted[i][v] = true
		err = w.evds[i].PostSE(v)
	}
	if err != nil {
		delete(w.posted[i], v)
		return
	}
	if w.changes {
		kind = "perhaps"
	}
	if end == 0 {
		end = w.Now()
	}
	if loud {
		w.note(cnoCall{kind: kind, evd: i}, cnoCall{}, begin, end)
	}
	w.Step()
}

// drain takes all events of an EVD.
func (w *cnoTrial) drain(e *dat.EVD) {
	i := slices.Index(w.evds, e)
	for ev := range e.Drain() {
		if _, queued := w.posted[i][valueOf(ev)]; !queued {
			w.fail("EVD %d had no event %#x", i, valueOf(ev))
		}
		delete(w.posted[i], valueOf(ev))
		w.Step()
	}
}

// take takes a trigger in one of the ways there are, and drains the EVD. It returns whether to go on.
func (w *cnoTrial) take() bool {
	begin := w.Now()
	var e *dat.EVD
	var err error
	switch w.pick(4) {
	case 0:
		e, err = w.c.Trigger()
	case 1:
		e, err = w.c.Wait(w.ctx, 0)
	case 2:
		e, err = w.c.Wait(w.ctx, time.Hour) // the time may be up at any moment
	default:
		w.waiting++
		e, err = w.c.Wait(w.ctx, dat.Infinite)
		w.waiting--
	}
	switch {
	case err == nil:
		w.note(cnoCall{kind: "take"}, cnoCall{evd: slices.Index(w.evds, e)}, begin, w.Now())
		w.drain(e)
	case err == dat.ErrQueueEmpty:
		w.note(cnoCall{kind: "take"}, cnoCall{evd: -1}, begin, w.Now())
	default:
		return false
	}
	w.Step()
	return true
}

// change changes what an EVD has to do with the CNO. Each change ends with the EVD enabled and associated.
func (w *cnoTrial) change() {
	i := w.pick(len(w.evds))
	e, begin := w.evds[i], w.Now()
	again := e.Enable
	if w.pick(2) == 0 {
		ok(w.t, e.Disable())
	} else {
		ok(w.t, e.ModifyCNO(nil))
		w.note(cnoCall{kind: "forgotten", evd: i}, cnoCall{}, begin, w.Now())
		again = func() error { return e.ModifyCNO(w.c) }
	}
	w.Step()
	begin = w.Now()
	ok(w.t, again())
	w.note(cnoCall{kind: "perhaps", evd: i}, cnoCall{}, begin, w.Now())
	w.Step()
}

// finish explores and checks.
func (w *cnoTrial) finish() error {
	if err := w.Run(); err != nil {
		return err
	}
	for i, queued := range w.posted {
		for v, loud := range queued {
			if loud && w.waiting > 0 {
				w.fail("nobody can go on, %d wait for the CNO, and EVD %d has event %#x", w.waiting, i, v)
			}
		}
	}
	w.Go("end", w.cancel)
	if err := w.Run(); err != nil {
		return err
	}
	if !w.Ended() {
		w.fail("at the end there still are %v", w.Blocked())
	}
	if w.wrong == nil {
		if r := porcupine.CheckOperationsTimeout(cnoSpec(), w.ops, 20*time.Second); r != porcupine.Ok {
			w.fail("this is not the history of a CNO (%v)", r)
		}
	}
	if w.wrong != nil {
		return fmt.Errorf("%w\n%s", w.wrong, w.history())
	}
	w.Go("close", func() {
		w.ia.Close(context.Background(), dat.CloseAbrupt)
		if w.p != nil {
			w.p.b.ia.Close(context.Background(), dat.CloseAbrupt)
		}
	})
	if err := w.Run(); err != nil {
		return err
	}
	if !w.Ended() {
		return fmt.Errorf("after the close there still are %v", w.Blocked())
	}
	return nil
}

func (w *cnoTrial) history() string {
	var s strings.Builder
	slices.SortStableFunc(w.ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, o := range w.ops {
		fmt.Fprintf(&s, "%4d-%4d %+v: %+v\n", o.Call, o.Return, o.Input, o.Output)
	}
	return s.String()
}

func TestExploreCNO(t *testing.T) {
	for _, s := range []struct {
		name                        string
		completions, agent, changes bool
	}{
		{"software events", false, false, false},
		{"completions", true, false, false},
		{"an agent", false, true, false},
		{"changes", false, false, true},
		{"everything", true, true, true},
	} {
		t.Run(s.name, func(t *testing.T) {
			exploreSeeds(t, 500, func(t testing.TB, seed uint64) (*explore.Explorer, error) {
				w := newCNOTrial(t, seed, s.completions, s.agent, s.changes)
				for range 1 + w.pick(2) {
					w.Go("poster", func() {
						for range 1 + w.pick(4) {
							w.post()
						}
					})
				}
				for range 1 + w.pick(3) {
					w.Go("taker", func() {
						for range 1 + w.pick(5) {
							if !w.take() {
								return
							}
						}
					})
				}
				if s.changes {
					w.Go("controller", func() {
						for range 1 + w.pick(3) {
							w.change()
						}
					})
				}
				err := w.finish()
				if err == nil && s.agent && !s.changes && !s.completions && w.agents != w.posts {
					err = fmt.Errorf("%d events, and the agent was called %d times", w.posts, w.agents)
				}
				return w.Explorer, err
			})
		})
	}
}

// The specification of a CNO finds what is none.
func TestTheSpecificationOfACNOFindsFaults(t *testing.T) {
	op := func(kind string, evd, got int, call, ret int64) porcupine.Operation {
		return porcupine.Operation{Input: cnoCall{kind, evd}, Output: cnoCall{evd: got}, Call: call, Return: ret}
	}
	for name, ops := range map[string][]porcupine.Operation{
		"lost":      {op("triggered", 0, 0, 1, 2), op("take", 0, -1, 3, 4)},
		"twice":     {op("triggered", 0, 0, 1, 2), op("take", 0, 0, 3, 4), op("take", 0, 0, 5, 6)},
		"kept each": {op("triggered", 0, 0, 1, 2), op("triggered", 0, 0, 3, 4), op("take", 0, 0, 5, 6), op("take", 0, 0, 7, 8)},
		"swapped":   {op("triggered", 0, 0, 1, 2), op("triggered", 1, 0, 3, 4), op("take", 0, 1, 5, 6)},
		"early":     {op("take", 0, 0, 1, 2), op("triggered", 0, 0, 3, 4)},
		"forgotten": {op("triggered", 0, 0, 1, 2), op("forgotten", 0, 0, 3, 4), op("take", 0, 0, 5, 6)},
	} {
		if porcupine.CheckOperations(cnoSpec(), ops) {
			t.Errorf("not found: %s", name)
		}
	}
}
