//go:build kdapl_explore

package dat_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"kdapl/dat"
)

// The sequential specifications that explored histories are held against.

// evdCall and evdResult are a call on an EVD and what came of it.
type evdCall struct {
	kind  string // "post", "write", "take", "wait", "look", "resize", "modify if empty", "free"
	n     int    // how many, the threshold or the length
	value uint64
}

type evdResult struct {
	err verdict
	got []uint64
}

// verdict is an error as far as the specifications tell one from another.
type verdict string

const (
	good        verdict = ""
	full        verdict = "full"
	nothing     verdict = "nothing"
	gone        verdict = "gone"
	owned       verdict = "a waiter owns it"
	interrupted verdict = "interrupted"
	denied      verdict = "refused"
)

func verdictOf(err error) verdict {
	switch {
	case err == nil:
		return good
	case err == dat.ErrQueueFull || err == dat.ErrPostFull:
		return full
	case err == dat.ErrQueueEmpty || err == dat.ErrTimeout:
		return nothing
	case errors.Is(err, dat.InvalidHandle):
		return gone
	case errors.Is(err, dat.InvalidStateEVDWaiter):
		return owned
	case errors.Is(err, dat.InterruptedCall):
		return interrupted
	}
	return denied
}

// evdState is an EVD as a sequential object.
type evdState struct {
	queue []uint64
	room  int // for software events
	freed bool
}

// software counts the events that use room that is not kept for completions.
func (s evdState) software() (n int) {
	for _, v := range s.queue {
		if v&writeBit == 0 {
			n++
		}
	}
	return n
}

func (s evdState) with(queue []uint64) evdState { s.queue = queue; return s }

// evdSpec is an EVD with room for so many software events and completions. maybeOwned: there are waiters, which keep
// others from the events; then a look that finds nothing says nothing.
func evdSpec(room, depth int, maybeOwned bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return evdState{room: room} },
		Step: func(state, input, output any) (bool, any) {
			s, in, out := state.(evdState), input.(evdCall), output.(evdResult)
			if s.freed || out.err == gone {
				return s.freed && (out.err == gone || in.kind == "take" && len(out.got) == 0), s
			}
			return s.step(in, out, depth, maybeOwned)
		},
		Equal: func(a, b any) bool {
			x, y := a.(evdState), b.(evdState)
			return x.room == y.room && x.freed == y.freed && slices.Equal(x.queue, y.queue)
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	}
}

func (s evdState) step(in evdCall, out evdResult, depth int, maybeOwned bool) (bool, evdState) {
	switch in.kind {
	case "post", "write":
		isFull := s.software() >= s.room
		if in.kind == "write" {
			isFull = len(s.queue)-s.software() >= depth
		}
		if out.err != good {
			return out.err == full && isFull, s
		}
		return !isFull, s.with(append(slices.Clone(s.queue), in.value))
	case "take":
		n := len(out.got)
		if n == 0 {
			return len(s.queue) == 0 || maybeOwned, s
		}
		if n > in.n || n > len(s.queue) || !slices.Equal(s.queue[:n], out.got) {
			return false, s
		}
		return true, s.with(s.queue[n:])
	case "wait", "look":
		if len(out.got) == 1 {
			if len(s.queue) < in.n || s.queue[0] != out.got[0] {
				return false, s
			}
			return true, s.with(s.queue[1:])
		}
		return out.err != nothing || in.kind == "wait" || len(s.queue) < in.n, s
	case "resize":
		fits := s.software() <= in.n
		if out.err == good {
			s.room = in.n
			return fits, s
		}
		return !fits || out.err == owned, s
	case "modify if empty":
		return (out.err == good) == (len(s.queue) == 0) || out.err == owned, s
	case "free":
		s.freed = out.err == good
		return true, s
	}
	return false, s
}

// cnoCall is something that happens to a CNO of some EVDs.
type cnoCall struct {
	// "triggered": an EVD surely triggered it. "perhaps": an EVD may have, or not. "forgotten": an EVD is no member any more.
	// "take": a trigger is taken, or there is none.
	kind string
	evd  int
}

// cnoSpec is a CNO: triggers, each EVD's at most once, in their order. Its states are strings of digits.
func cnoSpec() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{""} },
		Step: func(state, input, output any) []any {
			s, in, out := state.(string), input.(cnoCall), output.(cnoCall)
			triggered := s
			if digit := fmt.Sprint(in.evd); !strings.Contains(s, digit) {
				triggered += digit
			}
			switch in.kind {
			case "triggered":
				return []any{triggered}
			case "perhaps":
				return []any{s, triggered}
			case "forgotten":
				return []any{strings.ReplaceAll(s, fmt.Sprint(in.evd), "")}
			case "take":
				if out.evd < 0 {
					if s == "" {
						return []any{s}
					}
					return nil
				}
				if rest, isFirst := strings.CutPrefix(s, fmt.Sprint(out.evd)); isFirst {
					return []any{rest}
				}
			}
			return nil
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return m.ToModel()
}
