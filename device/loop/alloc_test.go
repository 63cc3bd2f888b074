package loop

import (
	"testing"

	"kdapl/verbs"
)

// No data path allocates, whether the peer is ready or not.
func TestDataPathsDoNotAllocate(t *testing.T) {
	a, b := newPair(t, Config{}, 16, 4096)
	cs := make([]verbs.Completion, 4)
	list := func(op verbs.Opcode, flags verbs.SendFlags, sges ...verbs.SGE) []verbs.SendWR {
		wr := verbs.SendWR{Op: op, Flags: flags | verbs.SendSignaled, NumSGE: uint8(len(sges)), RemoteKey: b.mr.RKey(), RemoteAddr: 0x10000}
		copy(wr.SGE[:], sges)
		return []verbs.SendWR{wr}
	}
	one := []verbs.RecvWR{{NumSGE: 1, SGE: [8]verbs.SGE{b.sge(0, 64)}}}
	two := []verbs.RecvWR{{NumSGE: 2, SGE: [8]verbs.SGE{b.sge(0, 10), b.sge(100, 100)}}}
	post := func(wrs []verbs.SendWR) {
		if n, err := a.qp.PostSend(wrs); n != len(wrs) {
			t.Fatal(err)
		}
	}
	recv := func(wrs []verbs.RecvWR) {
		if _, err := b.qp.PostRecv(wrs); err != nil {
			t.Fatal(err)
		}
	}
	poll := func(cq verbs.CQ) {
		if n := cq.Poll(cs); n != 1 || cs[0].Status != verbs.StatusSuccess {
			t.Fatal(n, cs[:n])
		}
	}
	send, split, inline := list(verbs.OpSend, 0, a.sge(0, 64)), list(verbs.OpSend, 0, a.sge(0, 20), a.sge(50, 30)), list(verbs.OpSend, verbs.SendInline, a.sge(0, 8))
	write, word, read := list(verbs.OpRDMAWrite, 0, a.sge(0, 64)), list(verbs.OpRDMAWrite, 0, a.sge(0, 8)), list(verbs.OpRDMARead, 0, a.sge(0, 64))
	add, imm := list(verbs.OpFetchAdd, 0, a.sge(0, 8)), list(verbs.OpRDMAWriteImm, 0, a.sge(0, 64))

	shared, err := b.pd.CreateSRQ(verbs.SRQInit{MaxWR: 16, MaxSGE: 2})
	must(t, err)
	c, d := newEnd(t, New(Config{Name: "loop1"}), 16, 4096), b
	qp, err := b.pd.CreateQP(verbs.QPInit{SRQ: shared, RecvCQ: b.recv, Conn: func(ev verbs.ConnEvent) { d.events <- ev }})
	must(t, err)
	must(t, qp.Modify(verbs.QPInitialized))
	was := d.qp
	d.qp = qp
	connect(t, c, d)
	d.qp = was
	sharedSend := []verbs.SendWR{{Op: verbs.OpSend, NumSGE: 1, SGE: [8]verbs.SGE{c.sge(0, 64)}}}

	ud := func(e *end) verbs.QP {
		q, err := e.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: e.sendCQ, RecvCQ: e.recv, MaxSend: 16, MaxRecv: 16, MaxSendSGE: 1, MaxRecvSGE: 1, QKey: 5})
		must(t, err)
		must(t, q.Modify(verbs.QPInitialized))
		must(t, q.Modify(verbs.QPRTS))
		return q
	}
	from, to := ud(a), ud(b)
	ah, err := a.pd.CreateAH(verbs.Address{IP: b.ctx.Attr().Addr})
	must(t, err)
	datagram := list(verbs.OpSend, 0, a.sge(0, 20))
	datagram[0].AH, datagram[0].RemoteQPN, datagram[0].QKey = ah.Handle(), to.Num(), 5
	udRecv := []verbs.RecvWR{{NumSGE: 1, SGE: [8]verbs.SGE{b.sge(0, 64)}}}

	window, err := a.pd.AllocMW(verbs.MWType1)
	must(t, err)
	bind := list(verbs.OpBindMW, 0, a.sge(0, 64))
	bind[0].Access = verbs.AccessRemoteRead

	for name, round := range map[string]func(){
		"send":                        func() { recv(one); post(send); poll(b.recv); poll(a.sendCQ) },
		"send of two segments to two": func() { recv(two); post(split); poll(b.recv); poll(a.sendCQ) },
		"send that waits":             func() { post(send); recv(one); poll(b.recv); poll(a.sendCQ) },
		"inline send that waits":      func() { post(inline); recv(one); poll(b.recv); poll(a.sendCQ) },
		"write":                       func() { post(write); poll(a.sendCQ) },
		"write of a word":             func() { post(word); poll(a.sendCQ) },
		"write with immediate":        func() { recv(one); post(imm); poll(b.recv); poll(a.sendCQ) },
		"read":                        func() { post(read); poll(a.sendCQ) },
		"atomic":                      func() { post(add); poll(a.sendCQ) },
		"shared receive": func() {
			if _, err := shared.PostRecv(one); err != nil {
				t.Fatal(err)
			}
			if _, err := c.qp.PostSend(sharedSend); err != nil {
				t.Fatal(err)
			}
			poll(b.recv)
		},
		"datagram": func() {
			if _, err := to.PostRecv(udRecv); err != nil {
				t.Fatal(err)
			}
			if _, err := from.PostSend(datagram); err != nil {
				t.Fatal(err)
			}
			poll(b.recv)
			poll(a.sendCQ)
		},
		"bind": func() {
			bind[0].Key, err = window.NextKey()
			post(bind)
			poll(a.sendCQ)
		},
		"nothing": func() {
			if a.sendCQ.Poll(cs) != 0 || a.sendCQ.Arm(verbs.ArmNext) {
				t.Fatal("a completion from nowhere")
			}
		},
	} {
		round() // what is made once
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// An armed CQ costs no allocation either.
func TestNotificationsDoNotAllocate(t *testing.T) {
	a, b := newPair(t, Config{}, 16, 64)
	notes := 0
	cq, err := b.ctx.CreateCQ(16, func() { notes++ })
	must(t, err)
	must(t, b.qp.Destroy())
	<-a.events
	<-b.events
	b.qp, err = b.pd.CreateQP(verbs.QPInit{RecvCQ: cq, MaxRecv: 16, Conn: func(ev verbs.ConnEvent) { b.events <- ev }})
	must(t, err)
	must(t, b.qp.Modify(verbs.QPInitialized))
	must(t, a.qp.Modify(verbs.QPReset))
	must(t, a.qp.Modify(verbs.QPInitialized))
	connect(t, a, b)
	cs := make([]verbs.Completion, 4)
	recv, send := make([]verbs.RecvWR, 1), []verbs.SendWR{{Op: verbs.OpSend}}
	rounds := 0
	round := func() {
		rounds++
		cq.Arm(verbs.ArmNext)
		b.qp.PostRecv(recv)
		a.qp.PostSend(send)
		cq.Poll(cs)
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 || notes != rounds {
		t.Errorf("%v allocations, %d notifications in %d rounds", n, notes, rounds)
	}
}
