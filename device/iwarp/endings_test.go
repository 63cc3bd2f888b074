package iwarp_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/dat"
	"kdapl/internal/faultnet"
)

// endWays are the ways in which a side ends its connection.
var endWays = []struct {
	name string
	do   func(p, peer *player)
	// what its own consumer sees: an end, or nothing because its objects are gone.
	own []string
}{
	{"does nothing", func(_, _ *player) {}, []string{graceful, broken, nothing}},
	{"graceful disconnect", func(p, _ *player) { p.ep.Disconnect(dat.CloseGraceful) }, []string{graceful, broken}},
	{"abrupt disconnect", func(p, _ *player) { p.ep.Disconnect(dat.CloseAbrupt) }, []string{graceful, broken}},
	{"process dies", func(p, _ *player) { p.host.Crash() }, nil},
	{"IA closed", func(p, _ *player) { p.close() }, nil},
	{"sends what is not allowed", func(p, peer *player) {
		beyond := peer.lmr.RMRTriplet(0, 8)
		beyond.VirtualAddress += memory
		if p.ep.PostRDMAWrite(uint64(len(p.names)+1), 0, beyond, p.lmr.Triplet(0, 8)) == nil {
			p.names[uint64(len(p.names)+1)] = "bad write"
			p.mu.Lock()
			p.posted = append(p.posted, "bad write")
			p.mu.Unlock()
		}
	}, []string{graceful, broken}},
	{"falls silent", func(p, _ *player) { p.host.Vanish() }, []string{broken}},
}

// Each way of one side to end with each of the other, at the same moment, with a message under way in each
// direction and a receive that is not used.
func TestEndings(t *testing.T) {
	var doc strings.Builder
	for _, wa := range endWays {
		fmt.Fprintf(&doc, "\n### One side: %s\n\n| the other side | the one sees | the other sees | last event |\n|---|---|---|---|\n", wa.name)
		for _, wb := range endWays {
			t.Run(wa.name+"/"+wb.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					th := newTheatre(t, plainPlan())
					th.connect()
					for _, p := range []*player{th.a, th.b} {
						p.recv(bulk)
						p.recv(8)
						p.post("send", func(c uint64) error { return p.ep.PostSend(c, 0, p.lmr.Triplet(0, bulk)) })
					}
					time.Sleep(30 * time.Millisecond)
					th.start = time.Now()
					wa.do(th.a, th.b)
					wb.do(th.b, th.a)
					time.Sleep(10 * time.Minute)
					a, ta := th.a.told()
					b, tb := th.b.told()
					took := max(ta, tb)
					cells := []string{sees(t, th.a, wa.own, a), sees(t, th.b, wb.own, b)}
					// With one side silent the other finds out by its time-out, and waits for the last bytes to go.
					if limit := userTimeout + linger + time.Second; took > limit {
						t.Errorf("after %v: %q %q", took, a, b)
					}
					fmt.Fprintf(&doc, "| %s | %s | %s | %s |\n", wb.name, cells[0], cells[1], around(took))
					th.end()
				})
			})
		}
	}
	document(t, "endings", doc.String())
}

// sees checks a side's events, and says what they are.
func sees(t *testing.T, p *player, may []string, events []string) string {
	t.Helper()
	if may == nil {
		return "it is gone"
	}
	p.account()
	for _, kind := range may {
		if ending(events) == kind {
			return told(events)
		}
	}
	t.Errorf("the end is %q, want one of %q: %q", ending(events), may, events)
	return ""
}

// setUpFaults are what can happen to a connection before it is one. pos is where: in a's request, behind it, in
// b's reply, or behind that.
var setUpFaults = []struct {
	name string
	plan func(p *faultnet.Plan)
	act  func(th *theatre) // when the request is at b
	// a is the one outcome of the connecting side, in a time.
	a      []string
	within time.Duration
	// line stands in the document, where the two sides race or one is gone.
	line string
}{
	{"none", nil, nil, []string{"ESTABLISHED"}, time.Second, ""},
	{"nobody listens", func(p *faultnet.Plan) { p.Refuse = true }, nil, []string{"NON_PEER_REJECTED"}, time.Second, ""},
	{"no answer from the network", func(p *faultnet.Plan) { p.Hang = true }, nil, []string{"TIMED_OUT"}, setUpTime + time.Second, ""},
	{"reset in the request", up(faultnet.Reset, 10), nil, []string{"ESTABLISHED"}, time.Second, ""},
	{"FIN in the request", up(faultnet.Fin, 10), nil, []string{"NON_PEER_REJECTED"}, time.Second, ""},
	{"silence in the request", up(faultnet.Dark, 10), nil, []string{"TIMED_OUT"}, setUpTime + time.Second, ""},
	{"the request's key corrupted", up(faultnet.Flip, 10), nil, []string{"ESTABLISHED"}, time.Second, ""},
	{"reset behind the request", up(faultnet.Reset, requestLen), nil, []string{"ESTABLISHED"}, time.Second, ""},
	{"FIN behind the request", up(faultnet.Fin, requestLen), nil, []string{"NON_PEER_REJECTED", "ESTABLISHED"}, time.Second, "NON_PEER_REJECTED, or ESTABLISHED and then DISCONNECTED | nothing, or ACCEPT_COMPLETION_ERROR"},
	{"silence behind the request", up(faultnet.Dark, requestLen), nil, []string{"TIMED_OUT"}, setUpTime + time.Second, ""},
	{"reset in the reply", down(faultnet.Reset, 10), nil, []string{"ESTABLISHED", "PEER_REJECTED"}, time.Second, ""},
	{"FIN in the reply", down(faultnet.Fin, 10), nil, []string{"NON_PEER_REJECTED"}, time.Second, ""},
	{"silence in the reply", down(faultnet.Dark, 10), nil, []string{"TIMED_OUT"}, setUpTime + time.Second, ""},
	{"the reply's key corrupted", down(faultnet.Flip, 10), nil, []string{"NON_PEER_REJECTED"}, time.Second, ""},
	{"reset behind the reply", down(faultnet.Reset, requestLen), nil, []string{"ESTABLISHED", "PEER_REJECTED"}, time.Second, ""},
	{"FIN behind the reply", down(faultnet.Fin, requestLen), nil, []string{"ESTABLISHED"}, time.Second, ""},
	{"silence behind the reply", down(faultnet.Dark, requestLen), nil, []string{"ESTABLISHED", "TIMED_OUT"}, userTimeout + time.Second, ""},
	{"reset in the first message", up(faultnet.Reset, requestLen+5), nil, []string{"ESTABLISHED"}, time.Second, ""},
	{"FIN in the first message", up(faultnet.Fin, requestLen+5), nil, []string{"ESTABLISHED"}, time.Second, ""},
	{"the first message corrupted", up(faultnet.Flip, requestLen+5), nil, []string{"ESTABLISHED"}, 11 * time.Second, ""},
	{"silence in the first message", up(faultnet.Dark, requestLen+5), nil, []string{"ESTABLISHED"}, userTimeout + time.Second, ""},
	{"the consumer rejects", nil, func(th *theatre) { th.b.answer = func(cr *dat.CR) error { return cr.Reject(nil) } }, []string{"PEER_REJECTED"}, time.Second, ""},
	{"the consumer does not answer", nil, func(th *theatre) { th.b.answer = func(*dat.CR) error { return nil } }, []string{"TIMED_OUT"}, setUpTime + time.Second, ""},
	{"the listening IA closes", nil, func(th *theatre) {
		th.b.answer = func(*dat.CR) error { go th.b.close(); return nil }
	}, []string{"NON_PEER_REJECTED"}, time.Second, "receive FLUSHED, NON_PEER_REJECTED | it is gone"},
	{"the listening process dies", nil, func(th *theatre) {
		th.b.answer = func(*dat.CR) error { th.b.host.Crash(); return nil }
	}, []string{"NON_PEER_REJECTED"}, time.Second, "receive FLUSHED, NON_PEER_REJECTED | it is gone"},
	{"the listening machine restarts", nil, func(th *theatre) {
		th.b.answer = func(*dat.CR) error { th.b.host.Reboot(); return nil }
	}, []string{"TIMED_OUT"}, setUpTime + time.Second, "receive FLUSHED, TIMED_OUT | it is gone"},
	{"the connecting side disconnects", nil, func(th *theatre) {
		th.b.answer = func(cr *dat.CR) error {
			ok(th.t, th.a.ep.Disconnect(dat.CloseAbrupt))
			time.Sleep(time.Second)
			return cr.Accept(th.b.ep, nil)
		}
	}, []string{"DISCONNECTED", "NON_PEER_REJECTED"}, 2 * time.Second, ""},
}

const (
	setUpTime  = 30 * time.Second
	requestLen = 24 // of a request or reply without private data: RFC 6581 section 5
)

func up(kind faultnet.Kind, at int64) func(*faultnet.Plan) {
	return func(p *faultnet.Plan) {
		p.Up.Events = []faultnet.Event{{At: at, Kind: kind, Mask: 0x10}}
	}
}

func down(kind faultnet.Kind, at int64) func(*faultnet.Plan) {
	return func(p *faultnet.Plan) {
		p.Down.Events = []faultnet.Event{{At: at, Kind: kind, Mask: 0x10}}
	}
}

// What can happen to a connection before it is one: the connecting side sees one outcome, and one end if that was
// ESTABLISHED; the accepting side sees one outcome of its accept, if it got that far.
func TestFaultsOfSetUp(t *testing.T) {
	var doc strings.Builder
	doc.WriteString("\n| fault | connecting side | accepting side | last event |\n|---|---|---|---|\n")
	for _, f := range setUpFaults {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plan := plainPlan()
				if f.plan != nil {
					f.plan(&plan)
				}
				th := newTheatre(t, plan)
				th.b.answer = func(cr *dat.CR) error { return cr.Accept(th.b.ep, nil) }
				if f.act != nil {
					f.act(th)
				}
				psp := must[*dat.PSP](t)(th.b.ia.NewPSP(dat.PSPConfig{EVD: th.b.evd}))
				th.a.recv(8)
				th.b.recv(8)
				th.begin()
				ok(t, th.a.ep.Connect(th.b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: setUpTime}))
				time.Sleep(10 * time.Minute)
				a, ta := th.a.told()
				b, tb := th.b.told()
				if took := max(ta, tb); took > f.within {
					t.Errorf("after %v: %q %q", took, a, b)
				}
				outcome := ""
				for _, e := range a {
					if !strings.HasPrefix(e, "receive ") {
						outcome, _, _ = strings.Cut(e, " ")
						break
					}
				}
				right := false
				for _, w := range f.a {
					right = right || w == outcome
				}
				if !right {
					t.Errorf("the outcome is %q, want one of %q: %q", outcome, f.a, a)
				}
				// Up to the end of what there was, once: outcome, receive, end.
				if n := count(a, "ESTABLISHED"); n > 1 || n == 1 && count(a, graceful)+count(a, broken) > 1 {
					t.Errorf("the connecting side sees %q", a)
				}
				if count(b, "ESTABLISHED")+count(b, "ACCEPT_COMPLETION_ERROR") > 1 {
					t.Errorf("the accepting side sees %q", b)
				}
				line := told(a) + " | " + told(b)
				if f.line != "" {
					line = f.line
				}
				fmt.Fprintf(&doc, "| %s | %s | %s |\n", f.name, line, around(max(ta, tb)))
				th.end()
			})
		})
	}
	document(t, "set-up", doc.String())
}

// count counts the events of a kind.
func count(events []string, kind string) (n int) {
	for _, e := range events {
		if e == kind || strings.HasPrefix(e, kind+" ") {
			n++
		}
	}
	return n
}
