package verbstest

import (
	"kdapl/verbs"
)

// missingRules hold for devices that lack something: what is missing is refused with
// ErrNotSupported, and nothing else happens.
var missingRules = []rule{
	lacking("UD QPs and address handles", verbs.CapUD, func(e *env, s *side) {
		q := &qp{e: e, s: s, user: e.id()}
		_, err := s.pd.CreateQP(s.init(q, conf{typ: verbs.UD}))
		e.refused(err, "CreateQP of a UD QP", verbs.ErrNotSupported)
		_, err = s.pd.CreateAH(verbs.Address{IP: s.attr.Addr, Port: 1})
		e.refused(err, "CreateAH", verbs.ErrNotSupported)
	}),
	lacking("shared receive queues", verbs.CapSRQ, func(e *env, s *side) {
		_, err := s.pd.CreateSRQ(verbs.SRQInit{MaxWR: 1, MaxSGE: 1})
		e.refused(err, "CreateSRQ", verbs.ErrNotSupported)
	}),
	lacking("limits of an SRQ", verbs.CapSRQLimit, func(e *env, s *side) {
		if !s.attr.Can(verbs.CapSRQ) {
			e.Skip("the device has no SRQs")
		}
		e.refused(s.srq(4).v.SetLimit(1), "SetLimit", verbs.ErrNotSupported)
	}),
	lacking("resizing an SRQ", verbs.CapSRQResize, func(e *env, s *side) {
		if !s.attr.Can(verbs.CapSRQ) {
			e.Skip("the device has no SRQs")
		}
		e.refused(s.srq(4).v.Resize(8), "Resize", verbs.ErrNotSupported)
	}),
	lacking("windows of type 1", verbs.CapMW1, func(e *env, s *side) {
		_, err := s.pd.AllocMW(verbs.MWType1)
		e.refused(err, "AllocMW", verbs.ErrNotSupported)
	}),
	lacking("windows of type 2", verbs.CapMW2, func(e *env, s *side) {
		_, err := s.pd.AllocMW(verbs.MWType2)
		e.refused(err, "AllocMW", verbs.ErrNotSupported)
	}),
	lacking("fast registration", verbs.CapFastReg, func(e *env, s *side) {
		_, err := s.pd.AllocFastMR(1)
		e.refused(err, "AllocFastMR", verbs.ErrNotSupported)
		e.postMissing(s, verbs.OpRegMR)
	}),
	{"binding without any windows is refused", 0, func(e *env) {
		s := e.without(verbs.CapMW1 | verbs.CapMW2)
		e.postMissing(s, verbs.OpBindMW)
	}},
	{"local invalidate without anything to invalidate is refused", 0, func(e *env) {
		s := e.without(verbs.CapFastReg | verbs.CapMW2)
		e.postMissing(s, verbs.OpLocalInval)
	}},
	lacking("zero-based regions", verbs.CapZeroBased, func(e *env, s *side) {
		_, err := s.pd.RegMR(make([]byte, 64), 0, localWrite|verbs.AccessZeroBased)
		e.refused(err, "RegMR", verbs.ErrNotSupported)
	}),
	lacking("atomics", verbs.CapAtomics, func(e *env, s *side) {
		e.postMissing(s, verbs.OpFetchAdd)
		e.postMissing(s, verbs.OpCompareSwap)
	}),
	lacking("send with immediate", verbs.CapSendImm, func(e *env, s *side) { e.postMissing(s, verbs.OpSendImm) }),
	lacking("write with immediate", verbs.CapWriteImm, func(e *env, s *side) { e.postMissing(s, verbs.OpRDMAWriteImm) }),
	lacking("send with invalidate", verbs.CapSendInval, func(e *env, s *side) { e.postMissing(s, verbs.OpSendInval) }),
	lacking("read with invalidate", verbs.CapReadInval, func(e *env, s *side) { e.postMissing(s, verbs.OpRDMAReadInval) }),
	lacking("inline", verbs.CapInline, func(e *env, s *side) {
		a, b := e.coupleFrom(s)
		src, dst := s.source(8), b.s.mem(8, localWrite)
		b.recv(e.recv(dst.all()))
		a.rejected(flagged(e.send(src.all()), verbs.SendInline), "inline send", verbs.ErrNotSupported)
		a.post(e.send(src.all()))
		b.rcq.ok(1, "the send after it")
		a.scq.ok(1, "the send after it")
	}),
	{"without solicited events ArmSolicited is ArmNext", 0, func(e *env) {
		s := e.without(verbs.CapSolicited)
		a, b := e.coupleFrom(s)
		a.recv(e.recv(), e.recv())
		a.rcq.v.Arm(verbs.ArmSolicited)
		before := a.rcq.notes.Load()
		b.post(e.send())
		a.rcq.awaitNotes(before, "a receive that is not solicited, on a device that cannot tell")
		a.rcq.ok(1, "receive")
		b.post(e.send())
		b.scq.ok(2, "sends")
		e.eventually(func() bool { return a.rcq.v.Arm(verbs.ArmSolicited) }, "ArmSolicited reports a queued receive")
		c := a.rcq.ok(1, "receive")[0]
		if c.Flags&verbs.CompletionSolicited != 0 {
			e.Errorf("a device without CapSolicited says solicited: %v", c)
		}
	}},
}

// lacking makes the rule for a capability that a device may lack.
func lacking(what string, c verbs.Caps, check func(*env, *side)) rule {
	return rule{"a device without " + what + " refuses it", 0, func(e *env) { check(e, e.without(c)) }}
}

// without is a side that has none of the capabilities; if there is none the rule is skipped.
func (e *env) without(c verbs.Caps) *side {
	e.Helper()
	for _, s := range e.sides() {
		if s.attr.Caps&c == 0 {
			return s
		}
	}
	e.Skipf("both devices have %v", c)
	return nil
}

// coupleFrom is couple with the given side as the first.
func (e *env) coupleFrom(s *side) (a, b *qp) {
	e.Helper()
	a, b = e.couple()
	if s == e.b {
		a, b = b, a
	}
	return a, b
}

// postMissing posts an operation that the side lacks: it is refused as not supported,
// takes no room and leaves the QP working, also from the middle of a list.
func (e *env) postMissing(s *side, op verbs.Opcode) {
	e.Helper()
	a, b := e.coupleFrom(s)
	target := b.s.mem(64, remoteBoth)
	sink := a.s.sink(64)
	wr := e.rdma(op, target, 0, sink.sge(0, 8))
	wr.Key, wr.InvKey = target.mr.RKey(), target.mr.RKey()
	a.rejected(wr, op.String(), verbs.ErrNotSupported)
	b.recv(e.recv(), e.recv())
	n, err := a.tryPost(e.send(), wr, e.send())
	if n != 1 {
		e.Errorf("a list with %v in second place: %d taken", op, n)
	}
	e.refused(err, op.String()+" in a list", verbs.ErrNotSupported)
	a.scq.ok(n, "the request before it")
	b.rcq.ok(n, "the request before it")
	b.recv(e.recv())
	a.post(e.send())
	a.scq.ok(1, "the request after it")
	b.rcq.ok(1, "the request after it")
}
