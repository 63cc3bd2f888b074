package verbstest

import (
	"slices"
	"sync"
	"sync/atomic"

	"kdapl/verbs"
)

// cq is a completion queue with its account.
type cq struct {
	e *env
	s *side
	v verbs.CQ
	// notes counts the calls of notify.
	notes atomic.Int64
	// hook, if set, is called by notify.
	hook atomic.Pointer[func()]
	// raw leaves the completions to the rule: nothing is accounted.
	raw bool

	mu    sync.Mutex
	buf   [16]verbs.Completion
	seen  []verbs.Completion
	alone bool // the last poll was PollAlone
	// looks counts the polls that found nothing.
	looks int
}

// cq makes a completion queue.
func (s *side) cq(cqe int) *cq {
	s.e.Helper()
	c := &cq{e: s.e, s: s}
	v, err := s.ctx.CreateCQ(cqe, c.notify)
	s.e.must(err, "CreateCQ(%d) on the %s side", cqe, s.name)
	c.v = v
	return c
}

func (c *cq) notify() {
	c.notes.Add(1)
	if f := c.hook.Load(); f != nil {
		(*f)()
	}
}

// onNotify sets the function that notify calls.
func (c *cq) onNotify(f func()) { c.hook.Store(&f) }

// poll moves what is in the CQ to the account and to seen. Every other fruitless look
// helps a device along that takes help; the ones between leave it to itself.
func (c *cq) poll() {
	c.mu.Lock()
	n := c.drain()
	if n == 0 {
		c.looks++
	}
	help := n == 0 && c.looks%2 == 0
	c.mu.Unlock()
	if p, ok := c.v.(verbs.Progresser); ok && help {
		p.Progress()
	}
}

// drain polls until nothing is left.
func (c *cq) drain() (moved int) {
	for {
		poll := c.v.Poll
		if p, ok := c.v.(verbs.SinglePoller); ok {
			if c.alone = !c.alone; c.alone {
				poll = p.PollAlone // no rule polls while another goroutine does
			}
		}
		n := poll(c.buf[:])
		if n < 0 || n > len(c.buf) {
			c.e.Errorf("Poll of %d completions returned %d", len(c.buf), n)
			return moved
		}
		if n == 0 {
			return moved
		}
		moved += n
		for _, comp := range c.buf[:n] {
			c.account(comp)
		}
	}
}

// account settles one completion.
func (c *cq) account(comp verbs.Completion) {
	if !c.raw {
		c.e.mu.Lock()
		q := c.e.qps[comp.UserData]
		c.e.mu.Unlock()
		if q == nil {
			c.e.Errorf("completion with unknown UserData: %v", comp)
		} else if q.raw {
			// The rule keeps its own account.
		} else if err := q.settle(c, comp); err != nil {
			c.e.Errorf("%v", err)
		}
	}
	c.seen = append(c.seen, comp)
}

// size is the number of completions that were polled and not taken.
func (c *cq) size() int {
	c.poll()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// take waits for n completions and returns them.
func (c *cq) take(n int, what string) []verbs.Completion {
	c.e.Helper()
	have := 0
	ok := c.e.within(func() bool {
		have = c.size()
		return have >= n
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok {
		c.e.Fatalf("%d of %d completions within %v: %s\nthere: %v", have, n, c.e.deadline, what, c.seen)
	}
	out := append([]verbs.Completion(nil), c.seen[:n]...)
	c.seen = c.seen[n:]
	return out
}

// one waits for the next completion.
func (c *cq) one(what string) verbs.Completion {
	c.e.Helper()
	return c.take(1, what)[0]
}

// ok waits for the next n completions, which must be successful.
func (c *cq) ok(n int, what string) []verbs.Completion {
	c.e.Helper()
	comps := c.take(n, what)
	for _, comp := range comps {
		if comp.Status != verbs.StatusSuccess || comp.Op == verbs.OpDrained {
			c.e.Fatalf("%s: completion %v, want success", what, comp)
		}
	}
	return comps
}

// untilMark waits for the mark of the send or receive queue of q and returns the
// completions of that queue before it. Those of other queues stay.
func (c *cq) untilMark(q *qp, recv bool, what string) []verbs.Completion {
	c.e.Helper()
	is := func(comp verbs.Completion) bool {
		return comp.UserData == q.user && (comp.Flags&verbs.CompletionRecvQueue != 0) == recv
	}
	var out []verbs.Completion
	ok := c.e.within(func() bool {
		c.poll()
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, comp := range c.seen {
			if comp.Op != verbs.OpDrained || !is(comp) {
				continue
			}
			var rest []verbs.Completion
			for j, comp := range c.seen {
				switch {
				case j == i:
				case j < i && is(comp):
					out = append(out, comp)
				default:
					rest = append(rest, comp)
				}
			}
			c.seen = rest
			return true
		}
		return false
	})
	if !ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.e.Fatalf("no drained mark within %v: %s\nthere: %v", c.e.deadline, what, c.seen)
	}
	return out
}

// forget drops what the rule has not taken of an earlier life of the QP.
func (c *cq) forget(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = slices.DeleteFunc(c.seen, func(comp verbs.Completion) bool { return comp.UserData == q.user })
}

// none checks that nothing arrives during a number of looks.
func (c *cq) none(what string) {
	c.e.Helper()
	c.e.look(func() {
		c.e.Helper()
		if c.size() != 0 {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.e.Fatalf("unexpected completion, %s: %v", what, c.seen[0])
		}
	})
}

// now returns what is in the CQ at this moment, without waiting.
func (c *cq) now() []verbs.Completion {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	out := c.seen
	c.seen = nil
	return out
}

// awaitNotes waits until notify was called more than before times.
func (c *cq) awaitNotes(before int64, what string) {
	c.e.Helper()
	c.e.eventually(func() bool { return c.notes.Load() > before }, "no call of notify: %s", what)
}
