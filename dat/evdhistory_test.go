package dat_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"kdapl/dat"
)

// Several goroutines at one EVD: every event is had exactly once, in order, and short histories are those of a queue.

// queueInput and queueOutput are a call on an EVD and its result.
type queueInput struct {
	kind string // "post", "write", "take", "take many"
	arg  uint64 // the value, or how many
}

type queueOutput struct {
	full bool
	got  []uint64
}

const writeBit = 1 << 40 // of the values of completions

// queueModel is an EVD as a sequential object: a queue with room for qlen software events and depth completions.
func queueModel(qlen, depth int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return []uint64(nil) },
		Step: func(state, input, output any) (bool, any) {
			q, in, out := state.([]uint64), input.(queueInput), output.(queueOutput)
			switch in.kind {
			case "post", "write":
				n, most := 0, qlen
				if in.kind == "write" {
					most = depth
				}
				for _, v := range q {
					if (v&writeBit != 0) == (in.kind == "write") {
						n++
					}
				}
				if out.full {
					return n >= most, q
				}
				return n < most, append(slices.Clone(q), in.arg)
			}
			// A taker of many takes some of the oldest, at least one if there is one.
			if len(out.got) == 0 {
				return len(q) == 0, q
			}
			n := len(out.got)
			if n > int(in.arg) || n > len(q) || !slices.Equal(q[:n], out.got) {
				return false, q
			}
			return true, q[n:]
		},
		Equal:             func(a, b any) bool { return slices.Equal(a.([]uint64), b.([]uint64)) },
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
}

// history records calls with a clock that only counts.
type history struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *history) record(client int, in queueInput, call func() queueOutput) {
	start := h.clock.Add(1)
	out := call()
	h.note(client, in, out, start, h.clock.Add(1))
}

func (h *history) note(client int, in queueInput, out queueOutput, start, end int64) {
	h.mu.Lock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: start, Return: end})
	h.mu.Unlock()
}

// String lists the calls in the order of their beginning.
func (h *history) String() string {
	ops := slices.Clone(h.ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var s strings.Builder
	for _, o := range ops {
		in, out := o.Input.(queueInput), o.Output.(queueOutput)
		fmt.Fprintf(&s, "%3d-%3d client %d: %s %#x: full %v, got %#x\n", o.Call, o.Return, o.ClientId, in.kind, in.arg, out.full, out.got)
	}
	return s.String()
}

// valueOf is the value of an event.
func valueOf(ev dat.Event) uint64 {
	if ev.Number == dat.SoftwareEvent {
		return ev.Software()
	}
	return ev.DTO().Cookie
}

func TestAnEVDIsLinearizable(t *testing.T) {
	rounds := 1500
	if testing.Short() {
		rounds = 300
	}
	const qlen, depth, clients, calls = 3, 4, 4, 7
	for _, c := range []struct {
		name   string
		writes bool
		policy dat.UpcallPolicy
		resize bool
	}{
		{"software events", false, dat.UpcallDisable, false},
		{"software events and completions", true, dat.UpcallDisable, false},
		{"upcalls take too", true, dat.UpcallSingleInstance, false},
		{"many upcalls take too", true, dat.UpcallMany, false},
		{"the queue moves", true, dat.UpcallSingleInstance, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, pairConfig{evd: dat.EVDConfig{MinLen: qlen}, attr: func(a *dat.EPAttr) { a.MaxRequestDTOs = depth }}).connect(t)
			soft := newEVD(t, p.a.ia, dat.EVDConfig{MinLen: qlen})
			e := soft
			if c.writes {
				e = p.a.evd
			}
			for round := range rounds {
				h := &history{}
				upcall := func(ev dat.Event, _ bool) {
					// It was taken at some time before now.
					h.note(clients, queueInput{"take", 1}, queueOutput{got: []uint64{valueOf(ev)}}, 0, h.clock.Add(1))
				}
				ok(t, e.ModifyUpcall(c.policy, upcall, dat.InvocAny))
				var wg sync.WaitGroup
				for client := range clients {
					wg.Go(func() {
						for i := range calls {
							v := uint64(client*calls + i)
							switch n := rand.IntN(8); {
							case n < 3:
								h.record(client, queueInput{"post", v}, func() queueOutput { return queueOutput{full: e.PostSE(v) != nil} })
							case n < 5 && c.writes:
								v |= writeBit
								h.record(client, queueInput{"write", v}, func() queueOutput {
									return queueOutput{full: p.a.ep.PostRDMAWrite(v, 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)) != nil}
								})
							case n == 5:
								h.record(client, queueInput{"take many", 3}, func() queueOutput {
									var buf [3]dat.Event
									var out queueOutput
									for _, ev := range buf[:e.DequeueInto(buf[:])] {
										out.got = append(out.got, valueOf(ev))
									}
									return out
								})
							case n == 6 && c.resize:
								e.Resize(qlen + rand.IntN(2)*40)
								e.Resize(qlen)
							default:
								h.record(client, queueInput{"take", 1}, func() queueOutput {
									if ev, err := e.Dequeue(); err == nil {
										return queueOutput{got: []uint64{valueOf(ev)}}
									}
									return queueOutput{}
								})
							}
							if rand.IntN(3) == 0 {
								runtime.Gosched()
							}
						}
					})
				}
				wg.Wait()
				ok(t, e.Teardown(background))
				for range e.Drain() {
				}
				if c.resize {
					ok(t, e.Resize(qlen))
				}
				model := queueModel(qlen, depth)
				if c.resize {
					model = queueModel(1000, depth) // while it is longer it takes more
					h.ops = slices.DeleteFunc(h.ops, func(o porcupine.Operation) bool { return o.Output.(queueOutput).full })
				}
				if !porcupine.CheckOperations(model, h.ops) {
					t.Fatalf("round %d is not the history of a queue:\n%s", round, h)
				}
			}
		})
	}
}

// The check finds what is no queue.
func TestTheLinearizabilityCheckFindsFaults(t *testing.T) {
	op := func(kind string, arg uint64, out queueOutput, call, ret int64) porcupine.Operation {
		return porcupine.Operation{Input: queueInput{kind, arg}, Output: out, Call: call, Return: ret}
	}
	got := func(v ...uint64) queueOutput { return queueOutput{got: v} }
	for name, ops := range map[string][]porcupine.Operation{
		"lost":       {op("post", 1, queueOutput{}, 1, 2), op("take", 1, got(), 3, 4)},
		"twice":      {op("post", 1, queueOutput{}, 1, 2), op("take", 1, got(1), 3, 4), op("take", 1, got(1), 5, 6)},
		"swapped":    {op("post", 1, queueOutput{}, 1, 2), op("post", 2, queueOutput{}, 3, 4), op("take", 1, got(2), 5, 6)},
		"early":      {op("take", 1, got(1), 1, 2), op("post", 1, queueOutput{}, 3, 4)},
		"full early": {op("post", 1, queueOutput{}, 1, 2), op("post", 2, queueOutput{full: true}, 3, 4)},
		"over-full":  {op("post", 1, queueOutput{}, 1, 2), op("post", 2, queueOutput{}, 3, 4), op("post", 3, queueOutput{}, 5, 6)},
		"a gap":      {op("post", 1, queueOutput{}, 1, 2), op("post", 2, queueOutput{}, 3, 4), op("take many", 3, got(2), 5, 6)},
	} {
		if porcupine.CheckOperations(queueModel(2, 2), ops) {
			t.Errorf("not found: %s", name)
		}
	}
}

// Posters, takers of every kind and somebody who changes everything about the EVD, all at once: each event is had exactly once; what
// one poster posts is had in order by whoever has it.
func TestEveryEventIsHadExactlyOnce(t *testing.T) {
	n := 20000
	if testing.Short() {
		n = 3000
	}
	const posters = 3
	p := newPair(t, pairConfig{evd: dat.EVDConfig{MinLen: 8}}).connect(t)
	e := p.a.evd
	var mu sync.Mutex
	had := map[uint64]bool{}
	total := atomic.Int64{}
	// have notes an event; last are the newest that this taker has had of each poster.
	have := func(ev dat.Event, last []uint64) {
		v := valueOf(ev)
		poster, i := v>>32&0xFF, v&0xFFFFFFFF
		if last != nil {
			if i < last[poster] {
				t.Errorf("event %d of poster %d after %d", i, poster, last[poster])
			}
			last[poster] = i
		}
		mu.Lock()
		if had[v] {
			t.Errorf("event %#x came twice", v)
		}
		had[v] = true
		mu.Unlock()
		total.Add(1)
	}
	upcall := func(ev dat.Event, _ bool) {
		if ev.Number == 0 {
			return // NOTIFY
		}
		have(ev, nil)
	}
	var wg sync.WaitGroup
	for poster := range posters {
		wg.Go(func() {
			for i := range n {
				v := uint64(poster)<<32 | uint64(i)
				for {
					var err error
					if i%2 == 0 {
						err = e.PostSE(v)
					} else {
						err = p.a.ep.PostRDMAWrite(v, 0, p.b.lmr.RMRTriplet(8*poster, 8), p.a.lmr.Triplet(8*poster, 8))
					}
					if err == nil {
						break
					}
					runtime.Gosched()
				}
			}
		})
	}
	done := make(chan struct{})
	var takers sync.WaitGroup
	taker := func(take func(last []uint64)) {
		takers.Go(func() {
			last := make([]uint64, posters)
			for {
				select {
				case <-done:
					return
				default:
					take(last)
					runtime.Gosched()
				}
			}
		})
	}
	taker(func(last []uint64) {
		if ev, err := e.Dequeue(); err == nil {
			have(ev, last)
		}
	})
	taker(func(last []uint64) {
		var buf [5]dat.Event
		for _, ev := range buf[:e.DequeueInto(buf[:])] {
			have(ev, last)
		}
	})
	taker(func(last []uint64) {
		if ev, _, err := e.Wait(background, 1, time.Millisecond); err == nil {
			have(ev, last)
		}
	})
	taker(func([]uint64) {
		next := []dat.UpcallPolicy{dat.UpcallDisable, dat.UpcallSingleInstance, dat.UpcallMany, dat.UpcallNotify, dat.UpcallTeardown}[rand.IntN(5)]
		e.ModifyUpcall(next, upcall, dat.UpcallFlag(rand.IntN(3)))
		e.Resize(4 + rand.IntN(60))
	})
	wg.Wait()
	eventually(t, "every event", func() bool { return total.Load() == int64(posters*n) })
	close(done)
	takers.Wait()
	ok(t, e.Teardown(background))
	empty(t, e)
	if len(had) != posters*n {
		t.Fatalf("%d of %d events", len(had), posters*n)
	}
}
