package verbstest_test

import (
	"errors"
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

// private passes a connection event on with other private data.
func private(f func([]byte) []byte) func(*wqp, verbs.ConnEvent) {
	return func(q *wqp, ev verbs.ConnEvent) {
		ev.PrivateData = f(ev.PrivateData)
		q.in.Conn(ev)
	}
}

// stubborn is a request that says yes to a second answer.
type stubborn struct{ verbs.ConnRequest }

func (r stubborn) Reject(d []byte) error {
	return instead(r.ConnRequest.Reject(d), verbs.ErrState, nil)
}

// wrongDepths is a request that mixes up the directions.
type wrongDepths struct{ verbs.ConnRequest }

func (r wrongDepths) ReadsIn() int  { return r.ConnRequest.ReadsOut() }
func (r wrongDepths) ReadsOut() int { return r.ConnRequest.ReadsIn() }

// wrongEnds is a request that mixes up its ends.
type wrongEnds struct{ verbs.ConnRequest }

func (r wrongEnds) Local() verbs.Address { return r.ConnRequest.Remote() }

var mutants = []mutant{
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

	// Shared receive queues.
	{"the limit event comes twice", []string{"srq/the limit event comes once, below the limit"},
		mutation{async: func(c *wctx, ev verbs.AsyncEvent) {
			c.async(ev)
			if ev.Kind == verbs.AsyncSRQLimit {
				c.async(ev)
			}
		}}},
	{"the limit event comes too early", []string{"srq/the limit event comes once, below the limit", "srq/the limit event comes at once if few are available"},
		mutation{setLimit: func(s *wsrq, n int) error {
			if n > 0 {
				n++
			}
			return s.SRQ.SetLimit(n)
		}}},
	{"the limit event does not come", []string{"srq/the limit event comes once, below the limit", "srq/the limit event comes at once if few are available"},
		mutation{setLimit: func(*wsrq, int) error { return nil }}},
	{"the last completion is not announced", []string{"srq/the last receive completion of a QP with an SRQ is announced once"},
		mutation{async: func(c *wctx, ev verbs.AsyncEvent) {
			if ev.Kind != verbs.AsyncLastWQE {
				c.async(ev)
			}
		}}},
	{"Available is what was posted", []string{"srq/Available counts what no QP has taken"},
		mutation{srqAvailable: func(s *wsrq) int { return s.SRQ.Available() + 1 }}},
	{"an SRQ is never busy", []string{"srq/Resize of an SRQ below its receives is busy"},
		mutation{srqResize: func(s *wsrq, n int) error { return instead(s.SRQ.Resize(n), verbs.ErrBusy, nil) }}},
	{"a QP with an SRQ takes receives", []string{"srq/a QP with an SRQ takes no receives of its own"},
		mutation{postRecv: func(q *wqp, wrs []verbs.RecvWR) (int, error) {
			if q.in.SRQ != nil {
				return len(wrs), nil
			}
			return q.inner.PostRecv(wrs)
		}}},

	// States and flushing.
	{"a wrong state is an invalid argument", []string{"state/calls on a QP in Reset", "state/calls on a QP in Initialized"},
		mutation{postSend: func(q *wqp, wrs []verbs.SendWR) (int, error) {
			n, err := q.inner.PostSend(wrs)
			return n, instead(err, verbs.ErrState, verbs.ErrInvalid)
		}}},
	{"Modify never objects", []string{"state/calls on a QP in Initialized", "state/calls on a QP in RTS", "ud/calls on a UD QP by state"},
		mutation{modify: func(q *wqp, to verbs.QPState) error { return instead(q.inner.Modify(to), verbs.ErrState, nil) }}},
	{"a QP in Error takes nothing", []string{"flush/requests posted in Error complete flushed, behind the mark, in order", "state/calls on a QP in Error that was connected"},
		mutation{postSend: func(q *wqp, wrs []verbs.SendWR) (int, error) {
			if q.State() == verbs.QPError {
				return 0, verbs.ErrState
			}
			return q.inner.PostSend(wrs)
		}}},
	{"the marks are dropped", []string{"flush/an idle QP delivers its marks and nothing else", "objects/a queue without a CQ owes no mark",
		"flush/receives of a QP that was never connected flush when it is reset or destroyed"},
		mutation{poll: each(func(_ *wcq, c *verbs.Completion) bool { return c.Op != verbs.OpDrained })}},
	{"the marks come twice", []string{"flush/an idle QP delivers its marks and nothing else", "flush/going to Error again delivers no second mark"},
		mutation{poll: func(c *wcq, dst []verbs.Completion) int {
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(dst) > 0 && len(c.keep) > 0 {
				dst[0], c.keep = c.keep[0], c.keep[1:]
				return 1
			}
			n := c.inner.Poll(dst)
			for _, comp := range dst[:n] {
				if comp.Op == verbs.OpDrained {
					c.keep = append(c.keep, comp)
				}
			}
			return n
		}}},
	{"the mark comes before what is flushed", []string{"flush/receives flush when a QP that was never connected goes to Error"},
		mutation{poll: func(c *wcq, dst []verbs.Completion) int {
			n := c.inner.Poll(dst)
			slices.SortStableFunc(dst[:n], func(a, b verbs.Completion) int {
				return int(b.Op/verbs.OpDrained) - int(a.Op/verbs.OpDrained)
			})
			return n
		}}},
	{"success where flush is due", []string{"flush/receives flush when a QP that was never connected goes to Error", "flush/everything outstanding flushes by an abrupt Disconnect"},
		mutation{poll: each(func(_ *wcq, c *verbs.Completion) bool {
			if c.Status == verbs.StatusFlushed {
				c.Status = verbs.StatusSuccess
			}
			return true
		})}},
	{"flushed requests vanish", []string{"flush/a full queue flushes", "stress/posts race with the end of the connection"},
		mutation{poll: each(func(_ *wcq, c *verbs.Completion) bool { return c.Status != verbs.StatusFlushed })}},
	{"requests that are not signalled flush silently", []string{"flush/requests that are not signalled flush with a completion"},
		mutation{
			postSend: func(q *wqp, wrs []verbs.SendWR) (int, error) {
				q.scq.mu.Lock()
				for _, wr := range wrs {
					if wr.Flags&verbs.SendSignaled == 0 {
						q.scq.keep = append(q.scq.keep, verbs.Completion{ID: wr.ID})
					}
				}
				q.scq.mu.Unlock()
				return q.inner.PostSend(wrs)
			},
			poll: each(func(c *wcq, comp *verbs.Completion) bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return !slices.ContainsFunc(c.keep, func(k verbs.Completion) bool { return k.ID == comp.ID })
			}),
		}},
	{"Reset returns before the flush", []string{"flush/receives of a QP that was never connected flush when it is reset or destroyed"},
		mutation{
			modify: func(q *wqp, to verbs.QPState) error {
				q.rcq.n.Store(3)
				return q.inner.Modify(to)
			},
			poll: func(c *wcq, dst []verbs.Completion) int {
				if c.n.Add(-1) >= 0 {
					return 0
				}
				return c.inner.Poll(dst)
			},
		}},

	// Datagrams.
	{"the QKey is not checked", []string{"ud/a datagram with another QKey is dropped"},
		mutation{postSend: rewrite(func(q *wqp, wr *verbs.SendWR) {
			if q.in.Type == verbs.UD {
				wr.QKey = q.in.QKey
			}
		})}},
	{"a datagram says it came from nowhere", []string{"ud/a datagram arrives with its source and payload", "ud/a UD QP is answered by its number"},
		mutation{poll: each(func(_ *wcq, c *verbs.Completion) bool {
			c.SrcQPN = 0
			return true
		})}},

	// Connections.
	{"a port can be listened on twice", []string{"listen/a port in use is refused"},
		mutation{listen: func(c *wctx, l verbs.ListenConfig) (verbs.Listener, error) {
			v, err := c.inner.Listen(l)
			if errors.Is(err, verbs.ErrAddrInUse) {
				l.Local.Port = 0
				return c.inner.Listen(l)
			}
			return v, err
		}}},
	{"the backlog is not limited", []string{"listen/a full backlog refuses"},
		mutation{listen: func(c *wctx, l verbs.ListenConfig) (verbs.Listener, error) {
			l.Backlog = 1000
			return c.inner.Listen(l)
		}}},
	{"a second answer succeeds", []string{"listen/a request is answered once", "listen/of several answers at once one takes effect"},
		mutation{request: func(r verbs.ConnRequest) verbs.ConnRequest { return stubborn{r} }}},
	{"a request mixes up its ends", []string{"listen/a request names both ends"},
		mutation{request: func(r verbs.ConnRequest) verbs.ConnRequest { return wrongEnds{r} }}},
	{"a request mixes up the depths", []string{"connect/read depths are agreed on"},
		mutation{request: func(r verbs.ConnRequest) verbs.ConnRequest { return wrongDepths{r} }}},
	{"private data loses its last byte", []string{"connect/private data of every size goes both ways", "connect/a rejection brings its private data"},
		mutation{conn: private(func(b []byte) []byte { return b[:max(0, len(b)-1)] })}},
	{"private data has rubbish behind it", []string{"connect/private data of every size goes both ways"},
		mutation{conn: private(func(b []byte) []byte { return append(slices.Clone(b), 1) })}},
	{"established comes twice", []string{"connect/a connection is established once on each side"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			q.in.Conn(ev)
			if ev.Kind == verbs.ConnEstablished {
				q.in.Conn(ev)
			}
		}}},
	{"a rejection is a refusal", []string{"connect/a rejection brings its private data"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			if ev.Kind == verbs.ConnRejected {
				ev.Kind = verbs.ConnRefused
			}
			q.in.Conn(ev)
		}}},
	{"a refusal is a rejection", []string{"connect/a refusal is told from a rejection", "connect/nobody listens"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			if ev.Kind == verbs.ConnRefused {
				ev.Kind = verbs.ConnRejected
			}
			q.in.Conn(ev)
		}}},
	{"a set-up never times out", []string{"connect/a set-up that is not answered times out"},
		mutation{connect: func(q *wqp, p verbs.ConnParams) error {
			p.Timeout = 0
			return q.inner.Connect(p)
		}}},
	{"a set-up times out at once", []string{"connect/a set-up that is not answered times out"},
		mutation{connect: func(q *wqp, p verbs.ConnParams) error {
			p.Timeout /= 1000
			return q.inner.Connect(p)
		}}},
	{"depths are what each side wished", []string{"connect/read depths are agreed on"},
		mutation{
			connect: func(q *wqp, p verbs.ConnParams) error {
				q.n.Store(int64(p.ReadsOut))
				return q.inner.Connect(p)
			},
			conn: func(q *wqp, ev verbs.ConnEvent) {
				if n := int(q.n.Load()); n > 0 {
					ev.ReadsOut = n
				}
				q.in.Conn(ev)
			},
		}},
	{"the end comes twice", []string{"disconnect/an abrupt Disconnect ends both sides", "disconnect/an abrupt Disconnect against an abrupt Disconnect ends a connection once"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			q.in.Conn(ev)
			if ev.Kind.Terminal() {
				q.in.Conn(ev)
			}
		}}},
	{"the end is not told", []string{"disconnect/an abrupt Disconnect ends both sides", "disconnect/a peer that vanishes ends the connection"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			if !ev.Kind.Terminal() {
				q.in.Conn(ev)
			}
		}}},
	{"graceful is abrupt", []string{"disconnect/a graceful Disconnect waits for requests that wait"},
		mutation{disconnect: func(q *wqp, _ bool) error { return q.inner.Disconnect(false) }}},
	{"abrupt is graceful", []string{"disconnect/a graceful Disconnect can be made abrupt", "flush/everything outstanding flushes by an abrupt Disconnect"},
		mutation{disconnect: func(q *wqp, _ bool) error { return q.inner.Disconnect(true) }}},

	// Removal.
	{"removal is not announced", []string{"removal/removal is announced once to each instance"},
		mutation{async: func(c *wctx, ev verbs.AsyncEvent) {
			if ev.Kind != verbs.AsyncDeviceFatal {
				c.async(ev)
			}
		}}},
	{"removal shows as a wish of the peer", []string{"removal/removal breaks connections and flushes on both sides"},
		mutation{conn: func(q *wqp, ev verbs.ConnEvent) {
			if ev.Kind == verbs.ConnBroken {
				ev.Kind = verbs.ConnDisconnected
			}
			q.in.Conn(ev)
		}}},

	// Callbacks and Close.
	{"Destroy waits for the callback", []string{"callback/Destroy does not wait for a callback in progress", "callback/Conn may destroy its QP when it is established"},
		mutation{
			conn: func(q *wqp, ev verbs.ConnEvent) {
				q.mu.Lock()
				defer q.mu.Unlock()
				q.in.Conn(ev)
			},
			destroy: func(q *wqp) error {
				q.mu.Lock()
				defer q.mu.Unlock()
				return q.inner.Destroy()
			},
		}},
	{"posts wait for notify", []string{"callback/notify may poll, arm and post"},
		mutation{
			notify: func(c *wcq) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.notify()
			},
			arm: func(c *wcq, k verbs.ArmKind) bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.inner.Arm(k)
			},
		}},
	{"Close leaves a goroutine", []string{"close/an instance leaves no goroutine behind"},
		mutation{close: func(c *wctx) error {
			go func() { select {} }()
			return c.inner.Close()
		}}},
	{"Close leaves the connections up", []string{"disconnect/a peer that vanishes ends the connection", "close/memory is not touched when Close has returned"},
		mutation{close: func(c *wctx) error { return nil }}},
	{"a completion in a thousand is lost", []string{"stress/several goroutines post to one QP and poll one CQ", "stress/several QPs drain one SRQ"},
		mutation{poll: each(func(c *wcq, _ *verbs.Completion) bool { return c.n.Add(1)%100 != 0 })}},
}
