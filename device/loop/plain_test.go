package loop

import (
	"bytes"
	"fmt"
	"testing"

	"kdapl/verbs"
)

// What a request may do is judged alike whether the keys that it names are remembered from requests before or not.
func TestRememberedMemoryIsChecked(t *testing.T) {
	const base, size = 0x20000, 256
	type request struct {
		wr   verbs.SendWR
		recv verbs.SGE
		late func() // between the receive and the request
		sink []byte // to be looked at afterwards
	}
	// trial says what becomes of one request that spoil has made from a good one.
	trial := func(t *testing.T, op verbs.Opcode, remembered bool, spoil func(a, b *end, mine, theirs verbs.MR, r *request)) string {
		a, b := newPair(t, Config{}, 16, 4096)
		mine, err := a.pd.RegMR(bytes.Repeat([]byte{1}, size), base, allAccess)
		must(t, err)
		theirs, err := b.pd.RegMR(make([]byte, size), base, allAccess)
		must(t, err)
		good := request{
			wr: verbs.SendWR{Op: op, Flags: verbs.SendSignaled, NumSGE: 1, RemoteKey: theirs.RKey(), RemoteAddr: base,
				SGE: [8]verbs.SGE{{Addr: base, Length: 64, LKey: mine.LKey()}}},
			recv: verbs.SGE{Addr: base, Length: 64, LKey: theirs.LKey()},
		}
		cs := make([]verbs.Completion, 4)
		run := func(r *request) string {
			var recvErr error
			if op == verbs.OpSend {
				_, recvErr = b.qp.PostRecv([]verbs.RecvWR{{NumSGE: 1, SGE: [8]verbs.SGE{r.recv}}})
			}
			if r.late != nil {
				r.late()
			}
			_, err := a.qp.PostSend([]verbs.SendWR{r.wr})
			s := fmt.Sprint(recvErr, ", ", err)
			for i, cq := range []verbs.CQ{a.sendCQ, b.recv} {
				for _, c := range cs[:cq.Poll(cs)] {
					s += fmt.Sprintf(", %d: %v %v %#x %d", i, c.Op, c.Status, c.Flags, c.Length)
				}
			}
			return s + fmt.Sprint(" ", bytes.Count(r.sink, []byte{1}))
		}
		if remembered {
			for range 2 { // the second finds the keys
				run(&good)
			}
		}
		spoil(a, b, mine, theirs, &good)
		return run(&good)
	}
	fault := map[string]func(a, b *end, mine, theirs verbs.MR, r *request){
		"nothing":         func(a, b *end, mine, theirs verbs.MR, r *request) {},
		"empty":           func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.SGE[0].Length = 0 },
		"below own":       func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.SGE[0].Addr-- },
		"beyond own":      func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.SGE[0].Addr += size - 63 },
		"at the end":      func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.SGE[0].Addr += size - 64 },
		"too long":        func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.SGE[0].Length++ },
		"longer than own": func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.SGE[0].Length = size + 1 },
		"below theirs":    func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.RemoteAddr-- },
		"beyond theirs":   func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.RemoteAddr += size - 63 },
		"around":          func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.RemoteAddr = 1<<64 - 8 },
		"no key":          func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.SGE[0].LKey = 0 },
		"no remote key":   func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.RemoteKey = 0 },
		"own key gone":    func(a, b *end, mine, theirs verbs.MR, r *request) { must(t, mine.Dereg()) },
		"their key gone":  func(a, b *end, mine, theirs verbs.MR, r *request) { must(t, theirs.Dereg()) },
		"a short receive": func(a, b *end, mine, theirs verbs.MR, r *request) { r.recv.Length = 63 },
		"receive is gone": func(a, b *end, mine, theirs verbs.MR, r *request) { r.late = func() { must(t, theirs.Dereg()) } },
		"another sink": func(a, b *end, mine, theirs verbs.MR, r *request) {
			r.sink = make([]byte, size)
			other, err := b.pd.RegMR(r.sink, base, allAccess)
			must(t, err)
			sge := r.recv
			r.recv.LKey, r.wr.RemoteKey = other.LKey(), other.RKey()
			r.late = func() { // the key that is remembered is the one of the last receive
				_, err := b.qp.PostRecv([]verbs.RecvWR{{NumSGE: 1, SGE: [8]verbs.SGE{sge}}})
				must(t, err)
			}
		},
		"solicited":        func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.Flags |= verbs.SendSolicited },
		"inline":           func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.Flags |= verbs.SendInline },
		"unsignalled":      func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.Flags = 0 },
		"no such op":       func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.Op |= 16 },
		"no segment":       func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.NumSGE = 0 },
		"an unknown flag":  func(a, b *end, mine, theirs verbs.MR, r *request) { r.wr.Flags |= 1 << 7 },
		"the peer is gone": func(a, b *end, mine, theirs verbs.MR, r *request) { must(t, b.qp.Destroy()) },
		"other rights": func(a, b *end, mine, theirs verbs.MR, r *request) {
			weak, err := a.pd.RegMR(make([]byte, size), base, verbs.AccessNoLocalRead)
			must(t, err)
			r.wr.SGE[0].LKey = weak.LKey()
		},
		"no remote right": func(a, b *end, mine, theirs verbs.MR, r *request) {
			weak, err := b.pd.RegMR(make([]byte, size), base, verbs.AccessLocalWrite)
			must(t, err)
			r.wr.RemoteKey = weak.RKey()
		},
	}
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMARead} {
		for name, spoil := range fault {
			t.Run(fmt.Sprintf("%v/%s", op, name), func(t *testing.T) {
				first, again := trial(t, op, false, spoil), trial(t, op, true, spoil)
				t.Log(first)
				if first != again {
					t.Errorf("at first %s; with keys that are remembered %s", first, again)
				}
			})
		}
	}
}

// A key that is remembered from one kind of request is no key to another kind.
func TestRememberedMemoryHasItsRights(t *testing.T) {
	for _, c := range []struct {
		mine, theirs verbs.Access
		good, bad    verbs.Opcode
		err          error
		status       verbs.Status
	}{
		{allAccess, verbs.AccessRemoteRead, verbs.OpRDMARead, verbs.OpRDMAWrite, nil, verbs.StatusRemoteAccess},
		{allAccess, verbs.AccessLocalWrite | verbs.AccessRemoteWrite, verbs.OpRDMAWrite, verbs.OpRDMARead, nil, verbs.StatusRemoteAccess},
		{0, allAccess, verbs.OpRDMAWrite, verbs.OpRDMARead, verbs.ErrAccess, 0},
		{verbs.AccessLocalWrite | verbs.AccessNoLocalRead, allAccess, verbs.OpRDMARead, verbs.OpRDMAWrite, verbs.ErrAccess, 0},
	} {
		a, b := newPair(t, Config{}, 16, 4096)
		mine, err := a.pd.RegMR(make([]byte, 64), 0, c.mine)
		must(t, err)
		theirs, err := b.pd.RegMR(make([]byte, 64), 0, c.theirs)
		must(t, err)
		cs := make([]verbs.Completion, 1)
		wr := []verbs.SendWR{{Op: c.good, Flags: verbs.SendSignaled, NumSGE: 1, RemoteKey: theirs.RKey(), SGE: [8]verbs.SGE{{Length: 64, LKey: mine.LKey()}}}}
		for range 2 {
			if _, err := a.qp.PostSend(wr); err != nil || a.sendCQ.Poll(cs) != 1 || cs[0].Status != verbs.StatusSuccess {
				t.Fatal(c.good, err, cs)
			}
		}
		wr[0].Op = c.bad
		if _, err := a.qp.PostSend(wr); err != c.err {
			t.Errorf("%v after %v: %v, want %v", c.bad, c.good, err, c.err)
		} else if err == nil && (a.sendCQ.Poll(cs) != 1 || cs[0].Status != c.status) {
			t.Errorf("%v after %v: %v, want %v", c.bad, c.good, cs, c.status)
		}
	}
}
