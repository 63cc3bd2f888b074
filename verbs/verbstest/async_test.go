package verbstest_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"kdapl/device/loop"
	"kdapl/verbs"
	"kdapl/verbs/verbstest"
)

// A loop adapter completes most requests before the post returns and checks local segments
// at the post. The adapters here do neither, as many others, so that the suite is seen to
// wait where it must and to take the other branch.

// loud is whether ArmSolicited waits for a completion.
func loud(c verbs.Completion) bool {
	return c.Status != verbs.StatusSuccess || c.Op == verbs.OpDrained || c.Flags&verbs.CompletionSolicited != 0
}

// fetch moves completions of the inner queue to those that a Poll can see, up to most of
// them in all. The caller holds mu. It reports whether an arming is served by that.
func (c *wcq) fetch(most int) (served bool) {
	var buf [3]verbs.Completion
	for len(c.keep) < most {
		n := c.inner.Poll(buf[:min(len(buf), most-len(c.keep))])
		if n == 0 {
			break
		}
		for _, comp := range buf[:n] {
			c.keep = append(c.keep, comp)
			served = served || c.armed && (c.kind == verbs.ArmNext || loud(comp))
		}
	}
	if served {
		c.armed = false
	}
	return served
}

// move brings completions to light a while after they came.
func (c *wcq) move() {
	for {
		for range rand.IntN(20) {
			runtime.Gosched()
		}
		c.mu.Lock()
		served := c.fetch(min(len(c.keep)+1+rand.IntN(3), c.inner.Cap()))
		done := len(c.keep) < c.inner.Cap() && !c.inner.Arm(verbs.ArmNext)
		full := len(c.keep) >= c.inner.Cap()
		if done || full {
			c.moving = false
		}
		c.mu.Unlock()
		if served {
			c.notify()
		}
		if done || full {
			return
		}
	}
}

// kick starts move unless it runs. The caller holds mu.
func (c *wcq) kick() {
	if !c.moving {
		c.moving = true
		go c.move()
	}
}

// settle makes everything visible, as the end of a QP must.
func (q *wqp) settle() {
	for _, c := range []*wcq{q.scq, q.rcq} {
		if c != nil {
			c.mu.Lock()
			served := c.fetch(1 << 30)
			c.mu.Unlock()
			if served {
				c.notify()
			}
		}
	}
}

// lagging makes completions visible some time after they came.
func lagging() *mutation {
	return &mutation{
		notify: func(c *wcq) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.kick()
		},
		poll: func(c *wcq, dst []verbs.Completion) int {
			c.mu.Lock()
			defer c.mu.Unlock()
			n := copy(dst, c.keep)
			c.keep = c.keep[n:]
			if n < len(dst) {
				c.kick()
			}
			return n
		},
		peek: func(c *wcq, max int) int {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.kick()
			return min(max, len(c.keep))
		},
		arm: func(c *wcq, kind verbs.ArmKind) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, comp := range c.keep {
				if kind == verbs.ArmNext || loud(comp) {
					return true
				}
			}
			if !c.armed || kind == verbs.ArmNext {
				c.armed, c.kind = true, kind
			}
			c.kick()
			return false
		},
		resize: func(c *wcq, cqe int) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if cqe > 0 && len(c.keep) > cqe {
				return verbs.ErrBusy
			}
			return c.inner.Resize(cqe)
		},
		modify: func(q *wqp, to verbs.QPState) error {
			err := q.inner.Modify(to)
			if to == verbs.QPReset {
				q.settle()
			}
			return err
		},
		destroy: func(q *wqp) error {
			err := q.inner.Destroy()
			q.settle()
			return err
		},
		postSend: func(q *wqp, wrs []verbs.SendWR) (int, error) {
			if q.scq != nil {
				defer func() {
					q.scq.mu.Lock()
					q.scq.kick()
					q.scq.mu.Unlock()
				}()
			}
			return q.inner.PostSend(wrs)
		},
	}
}

func TestSuiteWaitsForLaggingCompletions(t *testing.T) {
	for _, meaning := range []verbs.CompletionMeaning{verbs.RemoteAcked, verbs.SourceReusable} {
		t.Run(meaning.String(), func(t *testing.T) {
			verbstest.Run(t, behind(lagging(), loop.Config{Completion: meaning}, 0))
		})
	}
}

// localFault is whether a post was refused because of a local segment.
func localFault(err error) bool {
	return errors.Is(err, verbs.ErrProtection) || errors.Is(err, verbs.ErrAccess) || errors.Is(err, verbs.ErrBounds)
}

// late takes requests with faulty local segments and fails them by their completion.
func late() *mutation {
	var bad sync.Map // IDs of receives
	// recv posts receives; one with a fault gets no segments, so that a message fails.
	recv := func(post func([]verbs.RecvWR) (int, error), wrs []verbs.RecvWR) (taken int, err error) {
		for {
			n, err := post(wrs[taken:])
			taken += n
			if !localFault(err) {
				return taken, err
			}
			bad.Store(wrs[taken].ID, true)
			if _, err := post([]verbs.RecvWR{{ID: wrs[taken].ID}}); err != nil {
				return taken, err
			}
			taken++
			if taken == len(wrs) {
				return taken, nil
			}
		}
	}
	return &mutation{
		attr: func(a *verbs.Attr) { a.Caps &^= verbs.CapPostChecks },
		postSend: func(q *wqp, wrs []verbs.SendWR) (taken int, err error) {
			for {
				n, err := q.inner.PostSend(wrs[taken:])
				taken += n
				if !localFault(err) || wrs[taken].Op == verbs.OpBindMW || wrs[taken].Op == verbs.OpRegMR {
					return taken, err
				}
				c, wr := q.scq, &wrs[taken]
				c.mu.Lock()
				c.fetch(1 << 30)
				c.keep = append(c.keep, verbs.Completion{
					ID: wr.ID, UserData: q.in.UserData, QPN: q.Num(), Op: wr.Op, Status: verbs.StatusLocalProtection,
				})
				c.mu.Unlock()
				q.n.Store(1)
				if err := q.inner.Modify(verbs.QPError); err != nil {
					return taken, err
				}
				c.notify()
				taken++
				if taken == len(wrs) {
					return taken, nil
				}
			}
		},
		postRecv: func(q *wqp, wrs []verbs.RecvWR) (int, error) { return recv(q.inner.PostRecv, wrs) },
		srqRecv:  func(s *wsrq, wrs []verbs.RecvWR) (int, error) { return recv(s.SRQ.PostRecv, wrs) },
		conn: func(q *wqp, ev verbs.ConnEvent) {
			if ev.Kind == verbs.ConnDisconnected && q.n.Swap(0) == 1 {
				ev.Kind = verbs.ConnBroken
			}
			q.in.Conn(ev)
		},
		poll: func(c *wcq, dst []verbs.Completion) int {
			c.mu.Lock()
			defer c.mu.Unlock()
			n := copy(dst, c.keep)
			c.keep = c.keep[n:]
			if n == 0 {
				n = c.inner.Poll(dst)
			}
			for i := range dst[:n] {
				if _, ok := bad.Load(dst[i].ID); ok && dst[i].Status == verbs.StatusLocalLength {
					dst[i].Status = verbs.StatusLocalProtection
				}
			}
			return n
		},
		peek: func(c *wcq, max int) int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return min(max, len(c.keep)+c.inner.(verbs.Peeker).Peek(max))
		},
		arm: func(c *wcq, kind verbs.ArmKind) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.inner.Arm(kind) || len(c.keep) > 0
		},
	}
}

func TestSuiteTakesLocalFaultsAtCompletion(t *testing.T) {
	verbstest.Run(t, func(t testing.TB) verbstest.Pair {
		return behind(late(), loop.Config{}, 0)(t) // IDs of requests are unique within a rule only
	})
}
