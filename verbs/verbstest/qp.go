package verbstest

import (
	"kdapl/verbs"
)

// conf says how a QP differs from the usual one: RC, 32 requests deep in both queues, up
// to 4 segments, each queue with a CQ of its own.
type conf struct {
	pd               verbs.PD
	typ              verbs.QPType
	scq, rcq         *cq // shared with other QPs
	noSCQ, noRCQ     bool
	srq              *srq
	send, recv       int
	sendSGE, recvSGE int
	inline           int
	qkey             uint32
	// conn is called with each connection event, after it was logged, in the device's call.
	conn func(*qp, verbs.ConnEvent)
	// raw leaves completions and events to the rule: nothing is accounted, and the
	// rule destroys the QP.
	raw bool
}

// qp is a queue pair with its account.
type qp struct {
	e        *env
	s        *side
	v        verbs.QP
	user     uint64
	scq, rcq *cq
	srq      *srq
	raw, ud  bool
	acct     account
	borrow   bool // the last post was made with the lock that the device lends
	conn     *connLog
	// gone is whether it was destroyed, lost whether its end cannot be accounted for: its
	// instance was closed, or its CQ overflowed.
	gone, lost bool
}

// depth is the usual depth of a work queue.
func (s *side) depth() int { return min(32, s.attr.MaxQPWR) }

// srqDepth is the usual depth of an SRQ.
func (s *side) srqDepth() int { return min(32, s.attr.MaxSRQWR) }

// init makes the verbs arguments, and the CQs that are missing.
func (s *side) init(q *qp, c conf) verbs.QPInit {
	s.e.Helper()
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.send, s.depth())
	def(&c.recv, s.depth())
	def(&c.sendSGE, min(4, s.attr.MaxSendSGE))
	def(&c.recvSGE, min(4, s.attr.MaxRecvSGE))
	if s.attr.Can(verbs.CapInline) {
		def(&c.inline, min(64, s.attr.MaxInline))
	}
	in := verbs.QPInit{
		Type: c.typ, MaxSend: max(c.send, 0), MaxRecv: max(c.recv, 0), MaxSendSGE: c.sendSGE, MaxRecvSGE: c.recvSGE,
		MaxInline: c.inline, UserData: q.user, QKey: c.qkey, Conn: q.conn.add,
	}
	q.ud = c.typ == verbs.UD
	if q.scq = c.scq; q.scq == nil && !c.noSCQ {
		q.scq = s.cq(c.send + 8)
	}
	if q.rcq = c.rcq; q.rcq == nil && !c.noRCQ {
		n := c.recv
		if c.srq != nil {
			n = s.srqDepth()
		}
		q.rcq = s.cq(n + 8)
	}
	if q.scq != nil {
		in.SendCQ = q.scq.v
	}
	if q.rcq != nil {
		in.RecvCQ = q.rcq.v
	}
	if q.srq = c.srq; q.srq != nil {
		in.SRQ = q.srq.v
	}
	return in
}

// qp makes a QP in QPReset.
func (s *side) qp(c conf) *qp {
	s.e.Helper()
	q := &qp{e: s.e, s: s, user: s.e.id() | 0x5a00000000000000, raw: c.raw}
	q.conn = &connLog{q: q, hook: c.conn}
	pd := c.pd
	if pd == nil {
		pd = s.pd
	}
	in := s.init(q, c)
	s.e.mu.Lock()
	s.e.qps[q.user] = q
	s.e.mu.Unlock()
	v, err := pd.CreateQP(in)
	s.e.must(err, "CreateQP on the %s side", s.name)
	q.v = v
	s.e.mu.Lock()
	s.e.all = append(s.e.all, q)
	s.e.mu.Unlock()
	return q
}

// ready makes a QP in QPInitialized.
func (s *side) ready(c conf) *qp {
	s.e.Helper()
	q := s.qp(c)
	q.modify(verbs.QPInitialized)
	return q
}

// modify changes the state, which must succeed.
func (q *qp) modify(to verbs.QPState) {
	q.e.Helper()
	q.e.must(q.tryModify(to), "Modify from %v to %v", q.v.State(), to)
}

// tryModify changes the state. After a reset nothing may be owed any more.
func (q *qp) tryModify(to verbs.QPState) error {
	q.e.Helper()
	err := q.v.Modify(to)
	if err != nil {
		return err
	}
	switch to {
	case verbs.QPInitialized:
		q.acct.mu.Lock()
		q.acct.left = true
		q.acct.mu.Unlock()
	case verbs.QPReset:
		q.closeAccount("Modify to Reset")
		q.acct.mu.Lock()
		q.acct.left, q.acct.send, q.acct.recv = false, ledger{}, ledger{}
		q.acct.mu.Unlock()
		for _, c := range []*cq{q.scq, q.rcq} {
			if c != nil {
				c.forget(q)
			}
		}
	}
	return nil
}

// closeAccount takes what is in the QP's CQs at this moment and checks that nothing more
// is owed.
func (q *qp) closeAccount(after string) {
	q.e.Helper()
	if q.raw || q.lost {
		return
	}
	for _, c := range []*cq{q.scq, q.rcq} {
		if c != nil {
			c.mu.Lock()
			c.drain()
			c.mu.Unlock()
		}
	}
	if err := q.settled(); err != nil {
		q.e.Errorf("%s of a QP on the %s side: %v", after, q.s.name, err)
	}
}

// destroy destroys the QP and closes its account. A QP in QPError must first have had all
// events of its connection; those that a Destroy itself causes may be dropped.
func (q *qp) destroy() {
	q.e.Helper()
	if q.v.State() == verbs.QPError {
		q.conn.settled("in Error")
	}
	q.gone = true
	q.e.bounded("QP.Destroy", func() {
		if err := q.v.Destroy(); err != nil {
			q.e.Errorf("QP.Destroy on the %s side: %v", q.s.name, err)
		}
	})
	q.closeAccount("Destroy")
}

// ping sends a small message from a to b and checks that it arrives.
func (e *env) ping(a, b *qp) {
	e.Helper()
	src, dst := a.s.source(48), b.s.mem(48, localWrite)
	b.recv(e.recv(dst.all()))
	a.post(e.send(src.all()))
	c := b.rcq.ok(1, "receive of a small message")[0]
	if c.Length != 48 || c.Op != verbs.OpRecv {
		e.Fatalf("receive of 48 bytes: %v", c)
	}
	a.scq.ok(1, "send of a small message")
	dst.same(0, src.buf, "small message")
	src.free()
	dst.free()
}

// state waits until the QP is in the state.
func (q *qp) state(want verbs.QPState) {
	q.e.Helper()
	q.e.eventually(func() bool { return q.v.State() == want }, "QP in %v, is in %v", want, q.v.State())
}

// tryPost posts requests as one list and enters what was taken.
func (q *qp) tryPost(wrs ...verbs.SendWR) (int, error) {
	q.e.Helper()
	q.acct.mu.Lock()
	defer q.acct.mu.Unlock()
	l := &q.acct.send
	for _, wr := range wrs {
		l.pending = append(l.pending, entry{id: wr.ID, op: wr.Op, signaled: wr.Flags&verbs.SendSignaled != 0})
	}
	n, err := q.postSend(wrs)
	return q.enter("PostSend", l, len(wrs), n, err)
}

// tryRecv posts receives as one list and enters what was taken.
func (q *qp) tryRecv(wrs ...verbs.RecvWR) (int, error) {
	q.e.Helper()
	q.acct.mu.Lock()
	defer q.acct.mu.Unlock()
	l := &q.acct.recv
	for _, wr := range wrs {
		l.pending = append(l.pending, entry{id: wr.ID, op: verbs.OpRecv, signaled: true})
	}
	n, err := q.postRecv(wrs)
	return q.enter("PostRecv", l, len(wrs), n, err)
}

// postSend posts, every other time with the lock that the device lends if it lends it. acct.mu is held.
func (q *qp) postSend(wrs []verbs.SendWR) (int, error) {
	s, ok := q.v.(verbs.Serial)
	if q.borrow = !q.borrow; !ok || !q.borrow {
		return q.v.PostSend(wrs)
	}
	s.LockSendQueue()
	n, err := s.PostSendLocked(wrs)
	s.UnlockSendQueue()
	return n, err
}

// postRecv is postSend for receives.
func (q *qp) postRecv(wrs []verbs.RecvWR) (int, error) {
	s, ok := q.v.(verbs.Serial)
	if q.borrow = !q.borrow; !ok || !q.borrow {
		return q.v.PostRecv(wrs)
	}
	s.LockRecvQueue()
	n, err := s.PostRecvLocked(wrs)
	s.UnlockRecvQueue()
	return n, err
}

// enter keeps the entries that the device took.
func (q *qp) enter(call string, l *ledger, posted, n int, err error) (int, error) {
	q.e.Helper()
	q.e.bare(call, err)
	if n < 0 || n > posted || (err == nil) != (n == posted) {
		q.e.Errorf("%s of %d requests returned %d, %v", call, posted, n, err)
		n = min(max(n, 0), posted)
	}
	base := len(l.pending) - posted
	l.pending = l.pending[:base+n]
	if q.v.State() == verbs.QPError {
		for i := range n {
			l.pending[base+i].late = true
		}
	}
	return n, err
}

// post posts requests, all of which must be taken.
func (q *qp) post(wrs ...verbs.SendWR) {
	q.e.Helper()
	if n, err := q.tryPost(wrs...); err != nil {
		q.e.Fatalf("PostSend on the %s side took %d of %d (%v): %v", q.s.name, n, len(wrs), wrs[n].Op, err)
	}
}

// recv posts receives, all of which must be taken.
func (q *qp) recv(wrs ...verbs.RecvWR) {
	q.e.Helper()
	if n, err := q.tryRecv(wrs...); err != nil {
		q.e.Fatalf("PostRecv on the %s side took %d of %d: %v", q.s.name, n, len(wrs), err)
	}
}

// rejected checks that a request is refused by the post call with one of the errors and
// that nothing is taken.
func (q *qp) rejected(wr verbs.SendWR, what string, want ...error) {
	q.e.Helper()
	n, err := q.tryPost(wr)
	if n != 0 {
		q.e.Fatalf("%s: taken", what)
	}
	q.e.refused(err, what, want...)
}

// fails checks that a request does not succeed: the post refuses it with one of the
// errors, or it completes with one of the statuses. It reports which.
func (q *qp) fails(wr verbs.SendWR, what string, errs []error, statuses ...verbs.Status) (atPost bool) {
	q.e.Helper()
	n, err := q.tryPost(wr)
	if n == 0 {
		q.e.refused(err, what, errs...)
		return true
	}
	q.failed(q.scq.one(what), what, statuses...)
	return false
}

// failed checks that a completion has one of the statuses.
func (q *qp) failed(c verbs.Completion, what string, statuses ...verbs.Status) {
	q.e.Helper()
	for _, s := range statuses {
		if c.Status == s {
			return
		}
	}
	q.e.Fatalf("%s: completion %v, want %v", what, c, statuses)
}

// local checks that a fault in the local segments of a request is found: at the post with
// CapPostChecks, otherwise by the completion.
func (q *qp) local(wr verbs.SendWR, what string, want error) {
	q.e.Helper()
	if q.s.attr.Can(verbs.CapPostChecks) {
		q.rejected(wr, what, want)
		return
	}
	q.post(wr)
	q.failed(q.scq.one(what), what, verbs.StatusLocalProtection)
}

// finish ends a rule: every QP that is left is destroyed and its account is closed, then
// the instances are closed.
func (e *env) finish() {
	for _, q := range e.all {
		if !q.gone && !q.lost {
			if e.Failed() {
				q.lost = true // the accounts are open anyhow; only clean up
			}
			q.destroy()
		}
	}
	for i := len(e.opened) - 1; i >= 0; i-- {
		if s := e.opened[i]; !s.closed {
			s.close()
		}
	}
	e.end.Lock()
	e.over = true
	e.end.Unlock()
}
