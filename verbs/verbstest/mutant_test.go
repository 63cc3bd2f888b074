package verbstest_test

import (
	"errors"
	"fmt"
	"slices"

	"kdapl/verbs"
)

// mutant is a device with one fault and the rules that must find it, as group/rule.
type mutant struct {
	name  string
	rules []string
	m     mutation
}

// each lets f change the completions of a poll; f returns false to lose one.
func each(f func(c *wcq, comp *verbs.Completion) bool) func(*wcq, []verbs.Completion) int {
	return func(c *wcq, dst []verbs.Completion) int {
		got := dst[:c.inner.Poll(dst)]
		kept := got[:0]
		for _, comp := range got {
			if f(c, &comp) {
				kept = append(kept, comp)
			}
		}
		return len(kept)
	}
}

// rewrite posts each request as f makes it.
func rewrite(f func(q *wqp, wr *verbs.SendWR)) func(*wqp, []verbs.SendWR) (int, error) {
	return func(q *wqp, wrs []verbs.SendWR) (int, error) {
		changed := slices.Clone(wrs)
		for i := range changed {
			f(q, &changed[i])
		}
		return q.inner.PostSend(changed)
	}
}

// instead returns to in place of from.
func instead(err, from, to error) error {
	if errors.Is(err, from) {
		return to
	}
	return err
}

// mutants are all of them.
var mutants = slices.Concat(dataMutants, controlMutants)

// dataMutants have a fault in objects, memory, completion queues, posts or data.
var dataMutants = []mutant{
	// Objects.
	{"a CQ in use can be destroyed", []string{"objects/a CQ is busy while a QP uses it"},
		mutation{errCQ: func(err error) error { return instead(err, verbs.ErrBusy, nil) }}},
	{"a PD in use can be freed", []string{"objects/a PD is busy while an object uses it"},
		mutation{pdFree: func(p *wpd) error { return instead(p.inner.Dealloc(), verbs.ErrBusy, nil) }}},
	{"the attributes change", []string{"objects/the attributes are plausible and do not change"},
		mutation{createQP: func(p *wpd, in verbs.QPInit) (verbs.QP, error) {
			p.ctx.attr.MaxQP--
			return p.createQP(in)
		}}},
	{"limits are not checked", []string{"objects/a QP beyond the limits is refused"},
		mutation{createQP: func(p *wpd, in verbs.QPInit) (verbs.QP, error) {
			in.MaxSend, in.MaxRecv = min(in.MaxSend, p.ctx.attr.MaxQPWR), min(in.MaxRecv, p.ctx.attr.MaxQPWR)
			return p.createQP(in)
		}}},
	{"destroyed is not told from invalid", []string{"closed/a destroyed QP refuses every call"},
		mutation{destroy: func(q *wqp) error { return instead(q.inner.Destroy(), verbs.ErrClosed, verbs.ErrInvalid) }}},
	{"a closed context lives on", []string{"closed/a closed context refuses every call", "closed/a closed context has destroyed all its objects"},
		mutation{close: func(*wctx) error { return nil }}},
	{"a missing operation is done", []string{"missing/a device without atomics refuses it"},
		mutation{attr: func(a *verbs.Attr) { a.Caps &^= verbs.CapAtomics }}},
	{"a missing object is made", []string{"missing/a device without windows of type 1 refuses it"},
		mutation{attr: func(a *verbs.Attr) { a.Caps &^= verbs.CapMW1 }}},

	// Memory.
	{"Dereg does nothing", []string{"memory/a key dies with its region", "remote/a remote key dies with its region",
		"memory/a region that is deregistered under a posted receive is not touched"},
		mutation{dereg: func(*wmr) error { return nil }}},
	{"every region has every right", []string{"memory/a receive needs local write", "remote/a write needs remote write",
		"remote/a read needs remote read", "memory/there is no remote key without a remote right"},
		mutation{regMR: func(p *wpd, buf []byte, iova uint64, access verbs.Access) (verbs.MR, error) {
			return p.wrapMR(p.inner.RegMR(buf, iova, access|verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite))
		}}},
	{"all PDs are one", []string{"memory/a region of another PD is refused", "remote/a remote key of another PD is refused",
		"window/a window is bound to a region of its PD"},
		mutation{allocPD: func() func(*wctx) (verbs.PD, error) {
			first := map[*wctx]verbs.PD{}
			return func(c *wctx) (pd verbs.PD, err error) {
				if first[c] == nil {
					first[c], err = c.allocPD()
				}
				return first[c], err
			}
		}()}},
	{"an empty region is made", []string{"memory/an empty buffer cannot be registered"},
		mutation{regMR: func(p *wpd, buf []byte, iova uint64, access verbs.Access) (verbs.MR, error) {
			if len(buf) == 0 {
				buf = make([]byte, 1)
			}
			return p.wrapMR(p.inner.RegMR(buf, iova, access))
		}}},
	{"zero-based is ignored", []string{"memory/a zero-based region is addressed from 0"},
		mutation{regMR: func(p *wpd, buf []byte, iova uint64, access verbs.Access) (verbs.MR, error) {
			return p.wrapMR(p.inner.RegMR(buf, iova, access&^verbs.AccessZeroBased))
		}}},
	{"remote key 0 is a wild card", []string{"remote/remote key 0 names nothing"},
		mutation{postSend: rewrite(func(_ *wqp, wr *verbs.SendWR) {
			if wr.RemoteKey == 0 {
				wr.SGE, wr.NumSGE = [verbs.MaxSGE]verbs.SGE{}, 0 // and so not checked
			}
		})}},

	// Fast registration and windows.
	{"Map of a valid region says yes", []string{"fastreg/Map of a valid region is busy"},
		mutation{mapMR: func(m *wmr, ranges [][]byte, iova uint64) (uint32, error) {
			key, err := m.MR.Map(ranges, iova)
			return key, instead(err, verbs.ErrBusy, nil)
		}}},
	{"local invalidate does nothing", []string{"fastreg/a key is invalid behind OpLocalInval"},
		mutation{
			postSend: rewrite(func(_ *wqp, wr *verbs.SendWR) {
				if wr.Op == verbs.OpLocalInval {
					wr.Op = verbs.OpRDMAWrite
				}
			}),
			poll: each(func(_ *wcq, c *verbs.Completion) bool {
				if c.Op == verbs.OpRDMAWrite && c.Length == 0 {
					c.Op = verbs.OpLocalInval
				}
				return true
			}),
		}},
	{"an invalidate is not reported", []string{"fastreg/a peer's send invalidates a fast registration"},
		mutation{poll: each(func(_ *wcq, c *verbs.Completion) bool {
			c.Flags &^= verbs.CompletionInval
			return true
		})}},
	{"a fast registration has more rights than were asked for", []string{"fastreg/a peer may use the key with the rights of OpRegMR"},
		mutation{postSend: rewrite(func(_ *wqp, wr *verbs.SendWR) {
			if wr.Op == verbs.OpRegMR {
				wr.Access |= verbs.AccessRemoteWrite | verbs.AccessLocalWrite
			}
		})}},
	{"a window keeps its key", []string{"window/a window is of the type that was asked for", "window1/a type 1 window is unbound by length 0"},
		mutation{mwKey: func(w *wmw) uint32 { return w.MW.RKey() | 1<<31 }}},
	{"a window that is freed stays bound", []string{"window/Dealloc unbinds a window", "window/a region is busy while a window is bound to it"},
		mutation{mwFree: func(*wmw) error { return nil }}},
	{"a region with a window can be deregistered", []string{"window/a region is busy while a window is bound to it"},
		mutation{dereg: func(m *wmr) error { return instead(m.MR.Dereg(), verbs.ErrBusy, nil) }}},
	{"type 2 windows behave like type 1", []string{"window2/a type 2 window is not bound again while it is bound",
		"window2/a type 2 window serves only the QP that bound it", "window2/a type 2 window is free after a local invalidate"},
		mutation{allocMW: func(p *wpd, typ verbs.MWType) (verbs.MW, error) {
			if typ == verbs.MWType2 {
				typ = verbs.MWType1
			}
			return p.wrapMW(p.inner.AllocMW(typ))
		}}},
	{"type 1 windows behave like type 2", []string{"window1/a type 1 window is bound again and again",
		"window1/a type 1 window serves every QP of its PD", "window1/a type 1 window is not invalidated by a peer"},
		mutation{allocMW: func(p *wpd, typ verbs.MWType) (verbs.MW, error) {
			if typ == verbs.MWType1 {
				typ = verbs.MWType2
			}
			return p.wrapMW(p.inner.AllocMW(typ))
		}}},

	// Completion queues.
	{"Poll takes the newest first", []string{"cq/Poll returns the oldest first and no more than there is room for", "order/messages arrive in the order of posting"},
		mutation{poll: func(c *wcq, dst []verbs.Completion) int {
			n := c.inner.Poll(dst)
			slices.Reverse(dst[:n])
			return n
		}}},
	{"a completion in seven is lost", []string{"post/a list leaves with one call, in order", "stress/several goroutines post to one QP and poll one CQ"},
		mutation{poll: each(func(c *wcq, _ *verbs.Completion) bool { return c.n.Add(1)%7 != 0 })}},
	{"a completion in seven comes twice", []string{"post/a list leaves with one call, in order", "stress/several goroutines post to one QP and poll one CQ"},
		mutation{poll: func(c *wcq, dst []verbs.Completion) int {
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(dst) > 0 && len(c.keep) > 0 {
				dst[0], c.keep = c.keep[0], c.keep[1:]
				return 1
			}
			n := c.inner.Poll(dst)
			for _, comp := range dst[:n] {
				if c.n.Add(1)%7 == 0 {
					c.keep = append(c.keep, comp)
				}
			}
			return n
		}}},
	{"Peek takes", []string{"cq/Peek counts and takes nothing"},
		mutation{peek: func(c *wcq, max int) int { return c.inner.Poll(make([]verbs.Completion, min(max, 100))) }}},
	{"Resize empties the CQ", []string{"cq/Resize keeps contents and order"},
		mutation{resize: func(c *wcq, cqe int) error {
			for c.inner.Poll(make([]verbs.Completion, 16)) > 0 {
			}
			return c.inner.Resize(cqe)
		}}},
	{"an overflow is not reported", []string{"cq/an overflow is reported once and ends the QPs of the CQ"},
		mutation{async: func(c *wctx, ev verbs.AsyncEvent) {
			if ev.Kind != verbs.AsyncCQError {
				c.async(ev)
			}
		}}},
	{"an overflow is reported twice", []string{"cq/an overflow is reported once and ends the QPs of the CQ"},
		mutation{async: func(c *wctx, ev verbs.AsyncEvent) {
			c.async(ev)
			c.async(ev)
		}}},
	{"Arm says no and never notifies", []string{"arm/Arm reports completions that are there", "arm/an armed CQ notifies of the next completion",
		"arm/a completion between an empty poll and Arm is not lost", "arm/polling, arming and waiting loses nothing under load"},
		mutation{arm: func(*wcq, verbs.ArmKind) bool { return false }, notify: func(*wcq) {}}},
	{"Arm does not look at what is there", []string{"arm/Arm reports completions that are there", "arm/a completion between an empty poll and Arm is not lost"},
		mutation{arm: func(c *wcq, k verbs.ArmKind) bool {
			c.inner.Arm(k)
			return false
		}}},
	{"Arm always says yes", []string{"arm/Arm reports completions that are there"},
		mutation{arm: func(*wcq, verbs.ArmKind) bool { return true }}},
	{"ArmSolicited is never served", []string{"arm/ArmSolicited notifies of a solicited receive", "arm/ArmSolicited notifies of a mark",
		"arm/ArmSolicited notifies of failed completions"},
		mutation{arm: func(c *wcq, k verbs.ArmKind) bool { return k == verbs.ArmNext && c.inner.Arm(k) }}},
	{"ArmSolicited is ArmNext", []string{"arm/ArmSolicited reports no receive that is not solicited"},
		mutation{arm: func(c *wcq, _ verbs.ArmKind) bool { return c.inner.Arm(verbs.ArmNext) }}},
	{"a later ArmSolicited narrows", []string{"arm/ArmNext is not narrowed by a later ArmSolicited"},
		mutation{
			arm: func(c *wcq, k verbs.ArmKind) bool {
				c.n.Store(int64(k))
				return c.inner.Arm(k)
			},
			notify: func(c *wcq) {
				if c.n.Load() == int64(verbs.ArmNext) {
					c.notify()
				}
			},
		}},
	{"Arm notifies in its stack", []string{"arm/a CQ is not notified in the stack of Arm"},
		mutation{arm: func(c *wcq, k verbs.ArmKind) bool {
			if c.inner.Arm(k) {
				c.notify()
			}
			return false
		}}},
	{"Poll notifies in its stack", []string{"callback/Poll does not call back"},
		mutation{
			notify: func(c *wcq) { c.n.Store(1) },
			poll: func(c *wcq, dst []verbs.Completion) int {
				if c.n.Swap(0) == 1 {
					c.notify()
				}
				return c.inner.Poll(dst)
			},
		}},

	// Posts and data.
	{"every request is signalled", []string{"post/a request that is not signalled completes silently"},
		mutation{postSend: rewrite(func(_ *wqp, wr *verbs.SendWR) { wr.Flags |= verbs.SendSignaled })}},
	{"a refused request is counted as taken", []string{"post/a list is taken up to its first bad request", "post/a full send queue refuses and takes nothing"},
		mutation{postSend: func(q *wqp, wrs []verbs.SendWR) (int, error) {
			n, err := q.inner.PostSend(wrs)
			if err != nil {
				n++
			}
			return n, err
		}}},
	{"a list is not cut at a bad request", []string{"post/a list is taken up to its first bad request"},
		mutation{postSend: func(q *wqp, wrs []verbs.SendWR) (int, error) {
			n, err := q.inner.PostSend(wrs)
			if err != nil && n+1 < len(wrs) {
				m, _ := q.inner.PostSend(wrs[n+1:])
				n += m
			}
			return n, err
		}}},
	{"a full queue is out of memory", []string{"post/a full send queue refuses and takes nothing", "post/a full receive queue refuses and takes nothing"},
		mutation{
			postSend: func(q *wqp, wrs []verbs.SendWR) (int, error) {
				n, err := q.inner.PostSend(wrs)
				return n, instead(err, verbs.ErrQueueFull, verbs.ErrLimit)
			},
			postRecv: func(q *wqp, wrs []verbs.RecvWR) (int, error) {
				n, err := q.inner.PostRecv(wrs)
				return n, instead(err, verbs.ErrQueueFull, verbs.ErrLimit)
			},
		}},
	{"a post wraps its error", []string{"post/a list is taken up to its first bad request"},
		mutation{postSend: func(q *wqp, wrs []verbs.SendWR) (int, error) {
			n, err := q.inner.PostSend(wrs)
			if err != nil {
				err = fmt.Errorf("send queue: %w", err)
			}
			return n, err
		}}},
	{"inline is not copied", []string{"post/inline copies the payload before the post returns"},
		mutation{postSend: rewrite(func(_ *wqp, wr *verbs.SendWR) { wr.Flags &^= verbs.SendInline })}},
	{"immediate data is swapped", []string{"data/a send with immediate brings it", "data/a write with immediate uses up a receive and leaves its buffer"},
		mutation{poll: each(func(_ *wcq, c *verbs.Completion) bool {
			c.Imm = c.Imm>>24 | c.Imm>>8&0xff00 | c.Imm<<8&0xff0000 | c.Imm<<24
			return true
		})}},
	{"solicited is lost", []string{"data/a receive is solicited if the send said so"},
		mutation{postSend: rewrite(func(_ *wqp, wr *verbs.SendWR) { wr.Flags &^= verbs.SendSolicited })}},
	{"the length is short by one", []string{"data/messages of every size arrive", "rdma/reads of every size arrive"},
		mutation{poll: each(func(_ *wcq, c *verbs.Completion) bool {
			c.Length -= min(c.Length, 1)
			return true
		})}},
	{"a write that is not signalled is forgotten", []string{"order/a write is visible when the receive of a later send completes", "rdma/a read behind a write sees it"},
		mutation{postSend: rewrite(func(_ *wqp, wr *verbs.SendWR) {
			if wr.Op == verbs.OpRDMAWrite && wr.Flags&verbs.SendSignaled == 0 {
				wr.NumSGE = 0
			}
		})}},
	{"a misaligned atomic is rounded", []string{"atomic/a misaligned atomic is refused"},
		mutation{postSend: rewrite(func(_ *wqp, wr *verbs.SendWR) {
			if wr.Op == verbs.OpFetchAdd || wr.Op == verbs.OpCompareSwap {
				wr.RemoteAddr &^= 7
			}
		})}},
	{"compare and swap are exchanged", []string{"atomic/compare-and-swap stores if equal and returns what was there"},
		mutation{postSend: rewrite(func(_ *wqp, wr *verbs.SendWR) { wr.Compare, wr.Swap = wr.Swap, wr.Compare })}},
	{"the peer's verdict is lost", []string{"remote/a read needs remote read", "fault/a message that does not fit its receive ends the connection"},
		mutation{poll: each(func(_ *wcq, c *verbs.Completion) bool {
			if c.Status != verbs.StatusSuccess && c.Status != verbs.StatusFlushed {
				c.Status = verbs.StatusFatal
			}
			return true
		})}},
	{"a fault leaves the connection up", []string{"fault/a message that does not fit its receive ends the connection", "remote/a write needs remote write"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			if ev.Kind != verbs.ConnBroken {
				q.in.Conn(ev)
			}
		}}},
}
