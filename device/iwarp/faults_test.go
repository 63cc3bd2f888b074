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

// bulk is a message that takes several round trips, so that faults meet it half way.
const bulk = 600_000

// inFlight are the operations that a has under way when the fault comes.
var inFlight = []struct {
	name  string
	start func(th *theatre)
}{
	{"nothing but receives", func(th *theatre) { th.a.recv(8); th.b.recv(8) }},
	{"send", func(th *theatre) {
		th.b.recv(bulk)
		th.b.recv(8)
		th.a.post("send", func(c uint64) error { return th.a.ep.PostSend(c, 0, th.a.lmr.Triplet(0, bulk)) })
		th.a.post("second send", func(c uint64) error { return th.a.ep.PostSend(c, 0, th.a.lmr.Triplet(0, 8)) })
	}},
	{"send with invalidate", func(th *theatre) {
		th.b.recv(bulk)
		rmr := must[*dat.RMR](th.t)(th.b.pz.NewRMRForEP())
		var context uint32
		th.b.post("bind", func(c uint64) (err error) {
			context, err = rmr.Bind(th.b.lmr, th.b.lmr.Triplet(0, 8), dat.PrivRemoteRead, dat.VATypeVA, th.b.ep, c, 0)
			return err
		})
		th.a.post("send", func(c uint64) error {
			return th.a.ep.PostSendWithInvalidate(c, 0, true, context, th.a.lmr.Triplet(0, bulk))
		})
	}},
	{"RDMA write", func(th *theatre) {
		th.a.post("write", func(c uint64) error {
			return th.a.ep.PostRDMAWrite(c, 0, th.b.lmr.RMRTriplet(0, bulk), th.a.lmr.Triplet(0, bulk))
		})
	}},
	{"RDMA write with immediate", func(th *theatre) {
		th.b.recv(8)
		th.a.post("write", func(c uint64) error {
			return th.a.ep.PostRDMAWriteImmediate(c, 0, 7, th.b.lmr.RMRTriplet(0, bulk), th.a.lmr.Triplet(0, bulk))
		})
	}},
	{"RDMA read", func(th *theatre) {
		th.a.post("read", func(c uint64) error {
			return th.a.ep.PostRDMARead(c, 0, th.b.lmr.RMRTriplet(0, bulk), th.a.lmr.Triplet(0, bulk))
		})
		th.a.post("write", func(c uint64) error {
			return th.a.ep.PostRDMAWrite(c, 0, th.b.lmr.RMRTriplet(bulk, 8), th.a.lmr.Triplet(bulk, 8))
		})
	}},
	{"fetch-and-add", func(th *theatre) {
		th.a.post("atomic", func(c uint64) error {
			return th.a.ep.PostFetchAdd(c, 0, 1, th.b.lmr.RMRTriplet(8, 8), th.a.lmr.Triplet(0, 8))
		})
	}},
	{"graceful disconnect behind a send", func(th *theatre) {
		th.b.recv(bulk)
		th.a.post("send", func(c uint64) error { return th.a.ep.PostSend(c, 0, th.a.lmr.Triplet(0, bulk)) })
		ok(th.t, th.a.ep.Disconnect(dat.CloseGraceful))
	}},
}

// shape is where the FPDUs of an operation lie in both streams, from a run without a fault.
type shape struct{ up, down []int }

// aFault is one fault, and the ends that it promises: "" is none, "*" any or none.
type aFault struct {
	name string
	// plan puts the fault into the streams; false if the operation sends nothing there.
	plan func(p *faultnet.Plan, s shape) bool
	// act makes it happen 30 ms after the post, when requests have arrived and answers have not.
	act func(th *theatre)
	// a and b are the ends of the two sides, within a time.
	a, b   string
	within time.Duration
	// gone: the responder's process does not see its end.
	gone bool
}

// atUp and atDown put an event into a's stream, and into b's: at the first FPDU boundary behind the begin of
// the operation, or off bytes into its first FPDU.
func atUp(e faultnet.Event, off int) func(*faultnet.Plan, shape) bool {
	return func(p *faultnet.Plan, s shape) bool { return at(&p.Up, s.up, e, off) }
}

func atDown(e faultnet.Event, off int) func(*faultnet.Plan, shape) bool {
	return func(p *faultnet.Plan, s shape) bool { return at(&p.Down, s.down, e, off) }
}

func at(s *faultnet.Stream, frames []int, e faultnet.Event, off int) bool {
	if len(frames) < 2 {
		return false
	}
	e.At = int64(frames[1])
	if off > 0 {
		e.At = int64(frames[0] + off)
	}
	s.Events = append(s.Events, e)
	return true
}

const (
	graceful = "DISCONNECTED"
	broken   = "BROKEN"
	nothing  = ""
	whatever = "*"
)

var (
	fin   = faultnet.Event{Kind: faultnet.Fin}
	flip  = faultnet.Event{Kind: faultnet.Flip, Mask: 0x10}
	short = faultnet.Event{Kind: faultnet.Stall, For: 10 * time.Second}
	long  = faultnet.Event{Kind: faultnet.Stall, For: time.Hour}
)

// someFaults are the faults of the table. Where a side's process has died, nobody is left to see an event.
var someFaults = []aFault{
	{"none", nil, func(*theatre) {}, whatever, whatever, time.Second, false},
	{"reset on the way", nil, func(th *theatre) { th.net.Conns()[0].Break() }, broken, broken, time.Second, false},
	{"FIN between two FPDUs of the requester", atUp(fin, 0), nil, graceful, graceful, time.Second, false},
	{"FIN inside an FPDU of the requester", atUp(fin, 10), nil, whatever, broken, time.Second, false},
	{"FIN between two FPDUs of the responder", atDown(fin, 0), nil, graceful, graceful, time.Second, false},
	{"FIN inside an FPDU of the responder", atDown(fin, 10), nil, broken, whatever, time.Second, false},
	{"a bit of the requester flipped", atUp(flip, 19), nil, broken, broken, time.Second, false},
	{"a bit of the responder flipped", atDown(flip, 19), nil, broken, broken, time.Second, false},
	{"a length of the requester flipped", atUp(flip, 0+1), nil, broken, broken, userTimeout + time.Second, false},
	{"silence", nil, func(th *theatre) { th.net.Cut(th.a.host, th.b.host) }, broken, broken, userTimeout + time.Second, false},
	{"silence that ends in time", nil, func(th *theatre) {
		th.net.Cut(th.a.host, th.b.host)
		time.Sleep(10 * time.Second)
		th.net.Mend(th.a.host, th.b.host)
	}, whatever, whatever, 11 * time.Second, false},
	{"the requester's bytes stall for 10 s", atUp(short, 10), nil, whatever, whatever, 11 * time.Second, false},
	{"the requester's bytes stall for ever", atUp(long, 10), nil, broken, broken, userTimeout + time.Second, false},
	{"the responder's bytes stall for ever", atDown(long, 10), nil, broken, broken, userTimeout + linger + time.Second, false},
	{"the responder's process dies", nil, func(th *theatre) { th.b.host.Crash() }, whatever, whatever, time.Second, true},
	{"the responder's machine restarts", nil, func(th *theatre) { th.b.host.Reboot() }, broken, whatever, userTimeout + time.Second, true},
	{"the responder's memory is freed", nil, func(th *theatre) { th.b.lmr.Free() }, whatever, whatever, time.Second, false},
	{"the requester's memory is freed", nil, func(th *theatre) { th.a.lmr.Free() }, whatever, whatever, time.Second, false},
}

// runFault runs an operation with a fault, and returns the two sides' events.
func runFault(t *testing.T, start func(*theatre), f *aFault, s shape) (a, b []string, took time.Duration, got shape) {
	synctest.Test(t, func(t *testing.T) {
		plan := plainPlan()
		if f.plan != nil {
			f.plan(&plan, s)
		}
		th := newTheatre(t, plan)
		th.connect()
		up, down := th.up.len(), th.down.len()
		start(th)
		time.Sleep(30 * time.Millisecond)
		th.start = time.Now()
		if f.act != nil {
			f.act(th)
		}
		time.Sleep(10 * time.Minute)
		var ta, tb time.Duration
		a, ta = th.a.told()
		b, tb = th.b.told()
		took = max(ta, tb)
		got = shape{th.up.frames(up), th.down.frames(down)}
		th.a.account()
		th.b.account()
		th.end()
	})
	return a, b, took, got
}

// ending is the kind of end that a side has seen.
func ending(events []string) string {
	if n := len(events); n > 0 {
		for _, kind := range []string{graceful, broken} {
			if strings.HasPrefix(events[n-1], kind) {
				return kind
			}
		}
	}
	return nothing
}

// Each operation, with each fault: every post has its one outcome, the one end comes last, all
// within a bounded time, and nothing is left. What exactly each side sees is in docs/faults.md.
func TestFaultsInFlight(t *testing.T) {
	var doc strings.Builder
	for _, op := range inFlight {
		fmt.Fprintf(&doc, "\n### %s\n\n| fault | requester | responder | last event |\n|---|---|---|---|\n", upper(op.name))
		var s shape
		for i := range someFaults {
			f := &someFaults[i]
			if f.plan != nil && !f.plan(&faultnet.Plan{}, s) {
				continue // nothing flows there
			}
			t.Run(op.name+"/"+f.name, func(t *testing.T) {
				a, b, took, got := runFault(t, op.start, f, s)
				if f.name == "none" {
					s = got
				}
				wantA, wantB := f.a, f.b
				if op.name == "graceful disconnect behind a send" && wantA != whatever {
					wantA, wantB = whatever, whatever // a's own end may come first, and be over
				}
				for _, side := range []struct {
					who, want string
					events    []string
				}{{"requester", wantA, a}, {"responder", wantB, b}} {
					if got := ending(side.events); side.want != whatever && got != side.want {
						t.Errorf("the %s's end is %q, want %q: %q", side.who, got, side.want, side.events)
					}
				}
				if took > f.within {
					t.Errorf("after %v: %q %q", took, a, b)
				}
				responder := told(b)
				if f.gone {
					responder = "its process is gone"
				}
				fmt.Fprintf(&doc, "| %s | %s | %s | %s |\n", f.name, told(a), responder, around(took))
			})
		}
	}
	document(t, "operations", doc.String())
}

func told(events []string) string {
	if len(events) == 0 {
		return "–"
	}
	return strings.Join(events, ", ")
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
