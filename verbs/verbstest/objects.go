package verbstest

import (
	"fmt"
	"reflect"

	"kdapl/verbs"
)

var objectRules = append([]rule{
	{"the attributes are plausible and do not change", 0, attrsPlausible},
	{"a PD is busy while an object uses it", 0, pdBusy},
	{"a CQ is busy while a QP uses it", 0, cqBusy},
	{"an SRQ is busy while a QP uses it", verbs.CapSRQ, srqBusy},
	{"QPs have different numbers", 0, qpNumbers},
	{"a new QP is in Reset and owes nothing", 0, qpNew},
	{"a QP beyond the limits is refused", 0, qpLimits},
	{"a CQ beyond the limits is refused", 0, cqLimits},
	{"an SRQ beyond the limits is refused", verbs.CapSRQ, srqLimits},
	{"a QP takes no CQ of another context", 0, qpForeignCQ},
	{"a QP takes no SRQ of another PD", verbs.CapSRQ, qpForeignSRQ},
	{"a queue without a CQ owes no mark", 0, queueWithoutCQ},
	{"closing one context leaves another of the same device alone", 0, contextsIndependent},
	{"a refused call leaves nothing behind", 0, refusedLeavesNothing},
	{"what is freed can be made again", 0, makeAndFree},
}, limitRules()...)

func attrsPlausible(e *env) {
	for _, s := range e.sides() {
		at := s.attr
		for what, n := range map[string]int{
			"MaxQP": at.MaxQP, "MaxCQ": at.MaxCQ, "MaxPD": at.MaxPD, "MaxMR": at.MaxMR, "MaxQPWR": at.MaxQPWR,
			"MaxCQE": at.MaxCQE, "MaxSendSGE": at.MaxSendSGE, "MaxRecvSGE": at.MaxRecvSGE, "MaxReadSGE": at.MaxReadSGE,
			"MaxReadsIn": at.MaxReadsIn, "MaxReadsOut": at.MaxReadsOut,
		} {
			if n <= 0 {
				e.Errorf("%s is %d", what, n)
			}
		}
		for what, n := range map[string]int{
			"MaxSendSGE": at.MaxSendSGE, "MaxRecvSGE": at.MaxRecvSGE, "MaxReadSGE": at.MaxReadSGE, "MaxSRQSGE": at.MaxSRQSGE,
		} {
			if n > verbs.MaxSGE {
				e.Errorf("%s is %d, more than a request has room for", what, n)
			}
		}
		for c, n := range map[verbs.Caps]int{
			verbs.CapSRQ:     min(at.MaxSRQ, at.MaxSRQWR, at.MaxSRQSGE),
			verbs.CapMW1:     at.MaxMW,
			verbs.CapMW2:     at.MaxMW,
			verbs.CapUD:      at.MaxAH,
			verbs.CapInline:  at.MaxInline,
			verbs.CapFastReg: min(at.MaxFastRegPages, at.PageSize),
		} {
			if at.Can(c) && n <= 0 {
				e.Errorf("a limit of what %v needs is %d", c, n)
			}
		}
		if at.Name == "" || s.dev.Name() == "" {
			e.Errorf("names %q and %q", at.Name, s.dev.Name())
		}
		if !at.Addr.IsValid() || at.Addr.IsUnspecified() {
			e.Errorf("address %v", at.Addr)
		}
		if at.MaxMessage == 0 || at.MaxMRSize == 0 || at.MaxPort == 0 || at.MaxPrivateData < 0 {
			e.Errorf("MaxMessage %d, MaxMRSize %d, MaxPort %d, MaxPrivateData %d",
				at.MaxMessage, at.MaxMRSize, at.MaxPort, at.MaxPrivateData)
		}
		if at.Completion > verbs.SourceReusable {
			e.Errorf("completion meaning %v", at.Completion)
		}
		before := *at
		s.qp(conf{})
		if again := s.ctx.Attr(); !reflect.DeepEqual(before, *again) {
			e.Errorf("the attributes changed from %+v to %+v", before, *again)
		}
	}
}

func pdBusy(e *env) {
	s := e.a
	pd, err := s.ctx.AllocPD()
	e.must(err, "AllocPD")
	busy := func(what string, free func() error) {
		e.Helper()
		e.refused(pd.Dealloc(), "Dealloc of a PD with "+what, verbs.ErrBusy)
		e.must(free(), "freeing %s", what)
	}
	busy("a region", s.memIn(pd, 64, localWrite).mr.Dereg)
	q := s.qp(conf{pd: pd})
	busy("a QP", func() error { q.destroy(); return nil })
	if s.attr.Can(verbs.CapFastReg) {
		mr, err := pd.AllocFastMR(1)
		e.must(err, "AllocFastMR")
		busy("a fast-registration region", mr.Dereg)
	}
	for c, typ := range map[verbs.Caps]verbs.MWType{verbs.CapMW1: verbs.MWType1, verbs.CapMW2: verbs.MWType2} {
		if s.attr.Can(c) {
			mw, err := pd.AllocMW(typ)
			e.must(err, "AllocMW(%v)", typ)
			busy("a window", mw.Dealloc)
		}
	}
	if s.attr.Can(verbs.CapSRQ) {
		srq, err := pd.CreateSRQ(verbs.SRQInit{MaxWR: 1, MaxSGE: 1})
		e.must(err, "CreateSRQ")
		busy("an SRQ", srq.Destroy)
	}
	if s.attr.Can(verbs.CapUD) {
		ah, err := pd.CreateAH(verbs.Address{IP: e.b.attr.Addr, Port: 1})
		e.must(err, "CreateAH")
		busy("an address handle", ah.Destroy)
	}
	e.must(pd.Dealloc(), "Dealloc of a PD that nothing uses any more")
}

func cqBusy(e *env) {
	for _, side := range []string{"send", "receive"} {
		used, other := e.a.cq(8), e.a.cq(8)
		c := conf{scq: used, rcq: other}
		if side == "receive" {
			c = conf{scq: other, rcq: used}
		}
		q := e.a.qp(c)
		e.refused(used.v.Destroy(), "Destroy of a "+side+" CQ in use", verbs.ErrBusy)
		q.destroy()
		e.must(used.v.Destroy(), "Destroy of a %s CQ that is no longer in use", side)
	}
	shared := e.a.cq(8)
	q1, q2 := e.a.qp(conf{scq: shared, rcq: shared}), e.a.qp(conf{scq: shared, rcq: shared})
	q1.destroy()
	e.refused(shared.v.Destroy(), "Destroy of a CQ that one of two QPs still uses", verbs.ErrBusy)
	q2.destroy()
	e.must(shared.v.Destroy(), "Destroy of a CQ that both QPs have left")
}

func srqBusy(e *env) {
	srq := e.a.srq(4)
	q := e.a.qp(conf{srq: srq})
	e.refused(srq.v.Destroy(), "Destroy of an SRQ in use", verbs.ErrBusy)
	q.destroy()
	e.must(srq.v.Destroy(), "Destroy of an SRQ that is no longer in use")
}

func qpNumbers(e *env) {
	seen := map[uint32]bool{}
	for range min(e.rounds(100), e.a.attr.MaxQP/2, e.a.attr.MaxCQ/4) {
		q := e.a.qp(conf{})
		if seen[q.v.Num()] {
			e.Fatalf("two QPs have the number %#x", q.v.Num())
		}
		seen[q.v.Num()] = true
	}
}

func qpNew(e *env) {
	q := e.a.qp(conf{})
	if s := q.v.State(); s != verbs.QPReset {
		e.Errorf("a new QP is in %v", s)
	}
	q.destroy() // checks that there is no mark
}

// qpLimits goes one beyond each limit, and below zero.
func qpLimits(e *env) {
	s := e.a
	try := func(what string, change func(*verbs.QPInit)) {
		e.Helper()
		q := &qp{e: e, s: s, user: e.id()}
		q.conn = &connLog{q: q}
		in := s.init(q, conf{})
		change(&in)
		if v, err := s.pd.CreateQP(in); err == nil {
			e.Errorf("CreateQP with %s succeeded", what)
			_ = v.Destroy()
		} else {
			e.refused(err, "CreateQP with "+what, tooMuch...)
		}
	}
	at := s.attr
	try("MaxSend beyond MaxQPWR", func(in *verbs.QPInit) { in.MaxSend = at.MaxQPWR + 1 })
	try("MaxRecv beyond MaxQPWR", func(in *verbs.QPInit) { in.MaxRecv = at.MaxQPWR + 1 })
	try("MaxSendSGE beyond its limit", func(in *verbs.QPInit) { in.MaxSendSGE = at.MaxSendSGE + 1 })
	try("MaxRecvSGE beyond its limit", func(in *verbs.QPInit) { in.MaxRecvSGE = at.MaxRecvSGE + 1 })
	try("negative MaxSend", func(in *verbs.QPInit) { in.MaxSend = -1 })
	try("negative MaxRecv", func(in *verbs.QPInit) { in.MaxRecv = -1 })
	try("negative MaxSendSGE", func(in *verbs.QPInit) { in.MaxSendSGE = -1 })
	try("negative MaxRecvSGE", func(in *verbs.QPInit) { in.MaxRecvSGE = -1 })
	if at.Can(verbs.CapInline) {
		try("MaxInline beyond its limit", func(in *verbs.QPInit) { in.MaxInline = at.MaxInline + 1 })
		try("negative MaxInline", func(in *verbs.QPInit) { in.MaxInline = -1 })
	}
	q := &qp{e: e, s: s, user: e.id()}
	q.conn = &connLog{q: q}
	in := s.init(q, conf{})
	in.Type = verbs.QPType(77)
	_, err := s.pd.CreateQP(in)
	e.refused(err, "CreateQP of an unknown type", verbs.ErrInvalid, verbs.ErrNotSupported)
}

func cqLimits(e *env) {
	for _, cqe := range []int{-1, -1 << 31, e.a.attr.MaxCQE + 1} {
		_, err := e.a.ctx.CreateCQ(cqe, func() {})
		e.refused(err, fmt.Sprintf("CreateCQ(%d)", cqe), tooMuch...)
	}
	for _, cqe := range []int{1, 7, min(1000, e.a.attr.MaxCQE)} {
		if c := e.a.cq(cqe); c.v.Cap() < cqe {
			e.Errorf("CreateCQ(%d) has room for %d", cqe, c.v.Cap())
		}
	}
}

func srqLimits(e *env) {
	at := e.a.attr
	for _, in := range []verbs.SRQInit{
		{MaxWR: at.MaxSRQWR + 1, MaxSGE: 1}, {MaxWR: -1, MaxSGE: 1},
		{MaxWR: 1, MaxSGE: at.MaxSRQSGE + 1}, {MaxWR: 1, MaxSGE: -1},
	} {
		_, err := e.a.pd.CreateSRQ(in)
		e.refused(err, fmt.Sprintf("CreateSRQ(%+v)", in), tooMuch...)
	}
}

func qpForeignCQ(e *env) {
	for _, side := range []string{"send", "receive"} {
		q := &qp{e: e, s: e.a, user: e.id()}
		q.conn = &connLog{q: q}
		c := conf{scq: e.a.cq(8), rcq: e.b.cq(8)}
		if side == "send" {
			c.scq, c.rcq = c.rcq, c.scq
		}
		_, err := e.a.pd.CreateQP(e.a.init(q, c))
		e.refused(err, "CreateQP with a "+side+" CQ of another context", verbs.ErrInvalid, verbs.ErrProtection)
	}
}

func qpForeignSRQ(e *env) {
	pd, err := e.a.ctx.AllocPD()
	e.must(err, "AllocPD")
	for _, srq := range []*srq{e.a.srq(4), e.b.srq(4)} {
		q := &qp{e: e, s: e.a, user: e.id()}
		q.conn = &connLog{q: q}
		_, err = pd.CreateQP(e.a.init(q, conf{srq: srq}))
		e.refused(err, "CreateQP with an SRQ of another PD", verbs.ErrInvalid, verbs.ErrProtection)
	}
}

// queueWithoutCQ relies on the accounts: they want a mark from each queue that has a CQ
// and none from the others.
func queueWithoutCQ(e *env) {
	recvOnly := e.a.ready(conf{noSCQ: true, send: -1})
	recvOnly.recv(e.recv())
	recvOnly.modify(verbs.QPError)
	recvOnly.rcq.untilMark(recvOnly, true, "QP without a send CQ")
	recvOnly.destroy()
	sendOnly := e.a.ready(conf{noRCQ: true, recv: -1})
	sendOnly.modify(verbs.QPError)
	sendOnly.scq.untilMark(sendOnly, false, "QP without a receive CQ")
	sendOnly.destroy()
}

func contextsIndependent(e *env) {
	a, b := e.couple()
	other := e.open("spare", e.pair.Active)
	m := other.mem(64, remoteBoth)
	q := other.ready(conf{})
	q.recv(e.recv(m.all()))
	other.close()
	e.ping(a, b)
	e.ping(b, a)
}

// refusedLeavesNothing: an object that was not made uses none of the others.
func refusedLeavesNothing(e *env) {
	pd, err := e.a.ctx.AllocPD()
	e.must(err, "AllocPD")
	c := e.a.cq(8)
	q := &qp{e: e, s: e.a, user: e.id()}
	q.conn = &connLog{q: q}
	for _, change := range []func(*verbs.QPInit){
		func(in *verbs.QPInit) { in.MaxSend = e.a.attr.MaxQPWR + 1 },
		func(in *verbs.QPInit) { in.MaxRecvSGE = e.a.attr.MaxRecvSGE + 1 },
		func(in *verbs.QPInit) { in.Type = 99 },
		func(in *verbs.QPInit) { in.RecvCQ = e.b.cq(8).v },
	} {
		in := e.a.init(q, conf{scq: c, rcq: c})
		change(&in)
		if _, err := pd.CreateQP(in); err == nil {
			e.Errorf("CreateQP(%+v) succeeded", in)
		}
	}
	if _, err := pd.RegMR(nil, 0, localWrite); err == nil {
		e.Error("RegMR of nothing succeeded")
	}
	if _, err := pd.AllocMW(99); err == nil {
		e.Error("AllocMW of an unknown type succeeded")
	}
	if _, err := pd.AllocFastMR(-1); err == nil {
		e.Error("AllocFastMR(-1) succeeded")
	}
	if _, err := pd.CreateSRQ(verbs.SRQInit{MaxWR: -1}); err == nil {
		e.Error("CreateSRQ of a negative depth succeeded")
	}
	e.must(c.v.Destroy(), "Destroy of a CQ whose QPs were refused")
	e.must(pd.Dealloc(), "Dealloc of a PD whose objects were refused")
}

// makeAndFree makes and frees one of each, more often than any small table has room.
func makeAndFree(e *env) {
	for range e.rounds(500) {
		pd, err := e.a.ctx.AllocPD()
		e.must(err, "AllocPD")
		m := e.a.memIn(pd, 64, remoteBoth)
		cq, err := e.a.ctx.CreateCQ(4, func() {})
		e.must(err, "CreateCQ")
		qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1, MaxSendSGE: 1, MaxRecvSGE: 1,
			Conn: func(verbs.ConnEvent) {}})
		e.must(err, "CreateQP")
		e.must(qp.Modify(verbs.QPInitialized), "Modify to Initialized")
		e.must(qp.Destroy(), "QP.Destroy")
		e.must(cq.Destroy(), "CQ.Destroy")
		m.free()
		e.must(pd.Dealloc(), "PD.Dealloc")
	}
}

// limitRules makes one rule for each limit of a number of objects.
func limitRules() []rule {
	kinds := []struct {
		name  string
		needs verbs.Caps
		limit func(*verbs.Attr) int
		// there is the number that the rule's surroundings have made.
		there int
		make  func(s *side) (free func() error, err error)
	}{
		{"PD", 0, func(a *verbs.Attr) int { return a.MaxPD }, 1, func(s *side) (func() error, error) {
			pd, err := s.ctx.AllocPD()
			if err != nil {
				return nil, err
			}
			return pd.Dealloc, nil
		}},
		{"CQ", 0, func(a *verbs.Attr) int { return a.MaxCQ }, 0, func(s *side) (func() error, error) {
			cq, err := s.ctx.CreateCQ(1, func() {})
			if err != nil {
				return nil, err
			}
			return cq.Destroy, nil
		}},
		{"MR", 0, func(a *verbs.Attr) int { return a.MaxMR }, 0, func(s *side) (func() error, error) {
			mr, err := s.pd.RegMR(make([]byte, 64), 0, localOnly)
			if err != nil {
				return nil, err
			}
			return mr.Dereg, nil
		}},
		{"MW", 0, func(a *verbs.Attr) int { return a.MaxMW }, 0, func(s *side) (func() error, error) {
			typ := verbs.MWType1
			if !s.attr.Can(verbs.CapMW1) {
				typ = verbs.MWType2
			}
			mw, err := s.pd.AllocMW(typ)
			if err != nil {
				return nil, err
			}
			return mw.Dealloc, nil
		}},
		{"SRQ", verbs.CapSRQ, func(a *verbs.Attr) int { return a.MaxSRQ }, 0, func(s *side) (func() error, error) {
			srq, err := s.pd.CreateSRQ(verbs.SRQInit{MaxWR: 1, MaxSGE: 1})
			if err != nil {
				return nil, err
			}
			return srq.Destroy, nil
		}},
		{"AH", verbs.CapUD, func(a *verbs.Attr) int { return a.MaxAH }, 0, func(s *side) (func() error, error) {
			ah, err := s.pd.CreateAH(verbs.Address{IP: s.attr.Addr, Port: 1})
			if err != nil {
				return nil, err
			}
			return ah.Destroy, nil
		}},
		{"QP", 0, func(a *verbs.Attr) int { return a.MaxQP }, 0, func(s *side) (func() error, error) {
			qp, err := s.pd.CreateQP(verbs.QPInit{Conn: func(verbs.ConnEvent) {}})
			if err != nil {
				return nil, err
			}
			return qp.Destroy, nil
		}},
	}
	var rules []rule
	for _, k := range kinds {
		rules = append(rules, rule{"the number of " + k.name + "s is limited to Max" + k.name, k.needs, func(e *env) {
			if k.name == "MW" && !e.a.attr.Can(verbs.CapMW1) && !e.a.attr.Can(verbs.CapMW2) {
				e.Skip("the device has no windows")
			}
			s := e.open("spare", e.pair.Active)
			limit := k.limit(s.attr)
			if most := e.rounds(20000); limit > most {
				e.Skipf("Max%s is %d, more than the %d that this rule is ready to make", k.name, limit, most)
			}
			var free func() error
			for i := k.there; i < limit; i++ {
				f, err := k.make(s)
				e.must(err, "making object %d of %d", i+1, limit)
				free = f
			}
			_, err := k.make(s)
			e.refused(err, fmt.Sprintf("making object %d of %d", limit+1, limit), verbs.ErrLimit)
			e.must(free(), "freeing one")
			_, err = k.make(s)
			e.must(err, "making one for the one that was freed")
		}})
	}
	return rules
}
