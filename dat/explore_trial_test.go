//go:build kdapl_explore

package dat_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"

	"kdapl/dat"
	"kdapl/internal/explore"
)

// Exploration of schedules: real goroutines at a real EVD over the loop adapter, of which one runs at a time, by a seed. What
// each scenario draws and who runs at which point follows from the seed alone.

var (
	onlySeed = flag.Int64("seed", -1, "explore this seed only, and print its schedule")
	numSeeds = flag.Int("seeds", 0, "how many seeds a scenario explores; 0 is its usual number")
)

// exploreSeeds explores seeds until one fails.
func exploreSeeds(t *testing.T, usual int, one func(t testing.TB, seed uint64) (*explore.Explorer, error)) {
	t.Helper()
	first, n := uint64(0), usual
	switch {
	case *onlySeed >= 0:
		first, n = uint64(*onlySeed), 1
	case *numSeeds > 0:
		n = *numSeeds
	case !testing.Short():
		n *= 10
	}
	steps := 0
	for seed := first; seed < first+uint64(n); seed++ {
		x, err := one(t, seed)
		steps += x.Steps()
		if err != nil {
			t.Fatalf("seed %d: %v\nagain: go test -tags kdapl_explore ./dat -run '%s' -seed %d\n%s", seed, err, t.Name(), seed, x)
		}
		if *onlySeed >= 0 {
			t.Logf("%s", x)
		}
	}
	t.Logf("%d seeds, %d steps", n, steps)
}

// trial is one exploration of an EVD.
type trial struct {
	*explore.Explorer
	t      testing.TB
	draw   *rand.Rand
	p      *pair // nil for an EVD of software events only
	ia     *dat.IA
	e      *dat.EVD
	room   int
	cancel context.CancelFunc
	ctx    context.Context

	ops      []porcupine.Operation
	clients  int
	posted   map[uint64]posting
	taken    map[uint64]bool
	modifies []*modify1
	upcalls  []upcall1
	teardown []span
	frees    []span
	waits    map[int]span // of waits that are under way
	waiters  bool
	nested   func(w *trial) // what an upcall does
	loud     bool           // every event notifies
	atRest   func()         // is called when nobody can go on for the first time
	wrong    error
}

type span struct{ begin, end int64 }

type posting struct {
	span
	quiet bool
}

// modify1 is a change of the policy that has succeeded, or is under way: then it ends at the end of all time.
type modify1 struct {
	span
	policy dat.UpcallPolicy
	flag   dat.UpcallFlag
}

// upcall1 is an upcall: when its event was about to be taken, and when it ran.
type upcall1 struct {
	take, begin, end int64
	notify           bool
}

const (
	exploreDepth = 4 // requests of the EP
	exploreMany  = 2 // upcalls under MANY
)

// newTrial makes an EVD with a policy.
func newTrial(t testing.TB, seed uint64, completions bool, policy dat.UpcallPolicy) *trial {
	t.Helper()
	w := &trial{
		Explorer: explore.New(seed), t: t, draw: rand.New(rand.NewPCG(seed, 1)),
		posted: map[uint64]posting{}, taken: map[uint64]bool{}, waits: map[int]span{},
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.room = 1 + w.draw.IntN(4)
	cfg := dat.EVDConfig{MinLen: w.room, Policy: policy, Upcall: w.upcall}
	w.as("set-up", func(int) { w.setUp(completions, cfg) })
	if err := w.Run(); err != nil || !w.Ended() || t.Failed() {
		t.Fatal(err, w.Blocked())
	}
	w.Begin()
	w.modifies = []*modify1{{policy: policy, flag: dat.InvocAny}} // as if: nothing was there to be left out
	return w
}

// setUp makes the objects.
func (w *trial) setUp(completions bool, cfg dat.EVDConfig) {
	t, policy := w.t, cfg.Policy
	inert := dat.Config{MaxUpcalls: exploreMany, Spin: -1}
	if completions {
		// The connection is made while upcalls are off, on the EVD that is then explored.
		w.p = quickPair(t, inert, cfg)
		w.ia, w.e = w.p.a.ia, w.p.a.evd
		if policy.Live() {
			ok(t, w.e.ModifyUpcall(policy, w.upcall, dat.InvocNew))
		}
	} else {
		w.ia = must[*dat.IA](t)(dat.Open(newLoop(), inert))
		cfg.Streams = dat.StreamSoftware
		w.e = must[*dat.EVD](t)(w.ia.NewEVD(cfg))
	}
}

// close gives back what the trial has. It does so as a participant, so that nobody is left behind who would run beside
// the next trial.
func (w *trial) close() error {
	w.as("close", func(int) {
		w.ia.Close(context.Background(), dat.CloseAbrupt)
		if w.p != nil {
			w.p.b.ia.Close(context.Background(), dat.CloseAbrupt)
		}
	})
	if err := w.Run(); err != nil {
		return err
	}
	if !w.Ended() {
		return fmt.Errorf("after the close there still are %v", w.Blocked())
	}
	return nil
}

// quickPair is a connected pair that is closed by its user, with a's EVD as cfg says but without upcalls yet.
func quickPair(t testing.TB, config dat.Config, cfg dat.EVDConfig) *pair {
	t.Helper()
	p := quickApart(t, config, cfg)
	ok(t, p.a.ep.Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: dat.Infinite}))
	request := must[dat.Event](t)(await(p.b.evd))
	ok(t, request.Request().CR.Accept(p.b.ep, nil))
	for _, s := range []side{p.a, p.b} {
		if ev := must[dat.Event](t)(await(s.evd)); ev.Number != dat.ConnectionEstablished {
			t.Fatal(ev)
		}
	}
	return p
}

// quickApart is quickPair without the connection.
func quickApart(t testing.TB, config dat.Config, cfg dat.EVDConfig) *pair {
	t.Helper()
	p := &pair{dev: newLoop()}
	for _, s := range []*side{&p.a, &p.b} {
		s.ia = must[*dat.IA](t)(dat.Open(p.dev, config))
		s.pz = must[*dat.PZ](t)(s.ia.NewPZ())
		s.mem = make([]byte, 64)
		s.lmr = must[*dat.LMR](t)(s.pz.Register(s.mem, dat.PrivAll))
		c := dat.EVDConfig{MinLen: 4, Streams: allStreams &^ dat.StreamAsync}
		if s == &p.a {
			c.MinLen, c.Upcall = cfg.MinLen, cfg.Upcall
		}
		s.evd = must[*dat.EVD](t)(s.ia.NewEVD(c))
		s.recv, s.request, s.connect, s.cr = s.evd, s.evd, s.evd, s.evd
		s.ep = s.newEP(t, func(a *dat.EPAttr) {
			a.MaxRequestDTOs, a.MaxRecvDTOs = exploreDepth, exploreDepth
			a.RequestCompletionFlags = dat.CompletionUnsignalled
		})
	}
	p.psp = must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.cr}))
	return p
}

// await waits for the next event, for ever: a time-out could come at any time.
func await(e *dat.EVD) (dat.Event, error) {
	ev, _, err := e.Wait(background, 1, dat.Infinite)
	return ev, err
}

// as adds a participant.
func (w *trial) as(name string, f func(client int)) {
	w.clients++
	client := w.clients
	w.Go(name, func() { f(client) })
}

// call makes a call, and notes it.
func (w *trial) call(client int, in evdCall, f func() evdResult) evdResult {
	begin := w.Now()
	out := f()
	w.note(client, in, out, begin, w.Now())
	w.Step()
	return out
}

func (w *trial) note(client int, in evdCall, out evdResult, begin, end int64) {
	w.ops = append(w.ops, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: begin, Return: end})
	for _, v := range out.got {
		if w.taken[v] {
			w.fail("event %#x was had twice", v)
		}
		w.taken[v] = true
	}
}

// fail keeps the first failure.
func (w *trial) fail(format string, args ...any) {
	if w.wrong == nil {
		w.wrong = fmt.Errorf(format, args...)
	}
}

func (w *trial) pick(n int) int { return w.draw.IntN(n) }

// post posts a software event or a write.
func (w *trial) post(client int) {
	v := uint64(len(w.posted) + 1)
	in, quiet := evdCall{kind: "post", value: v}, false
	if w.p != nil && w.pick(2) == 0 {
		v |= writeBit
		in, quiet = evdCall{kind: "write", value: v}, !w.loud && w.pick(4) == 0
	}
	w.posted[v] = posting{} // takes the number
	var flags dat.CompletionFlags
	if quiet {
		flags = dat.CompletionUnsignalled
	}
	begin := w.Now()
	out := w.call(client, in, func() evdResult {
		if in.kind == "post" {
			return evdResult{err: verdictOf(w.e.PostSE(v))}
		}
		return evdResult{err: verdictOf(w.p.a.ep.PostRDMAWrite(v, flags, w.p.b.lmr.RMRTriplet(0, 8), w.p.a.lmr.Triplet(0, 8)))}
	})
	if out.err != good {
		w.posted[v] = posting{span: span{begin: -1}}
		return
	}
	w.posted[v] = posting{span{begin, w.Now()}, quiet}
}

// take dequeues in one of the ways there are.
func (w *trial) take(client int) evdResult {
	if w.pick(3) == 0 {
		return w.call(client, evdCall{kind: "take", n: 3}, func() (out evdResult) {
			var buf [3]dat.Event
			for _, ev := range buf[:w.e.DequeueInto(buf[:])] {
				out.got = append(out.got, valueOf(ev))
			}
			return out
		})
	}
	return w.call(client, evdCall{kind: "take", n: 1}, func() evdResult {
		ev, err := w.e.Dequeue()
		if err != nil {
			return evdResult{err: verdictOf(err)}
		}
		return evdResult{got: []uint64{valueOf(ev)}}
	})
}

// drain dequeues until the queue is empty.
func (w *trial) drain(client int) {
	for len(w.take(client).got) > 0 {
	}
}

// modify changes the policy.
func (w *trial) modify(client int, policy dat.UpcallPolicy, flag dat.UpcallFlag) verdict {
	kind := "modify"
	if flag == dat.InvocEmpty && policy != dat.UpcallTeardown {
		kind = "modify if empty"
	}
	begin := w.Now()
	m := &modify1{span{begin, math.MaxInt64}, policy, flag}
	w.modifies = append(w.modifies, m)
	err := verdictOf(w.e.ModifyUpcall(policy, nil, flag))
	end := w.Now()
	m.end = end
	if kind == "modify if empty" || err == gone {
		w.note(client, evdCall{kind: "modify if empty"}, evdResult{err: err}, begin, end)
	}
	if err != good {
		w.modifies = slices.DeleteFunc(w.modifies, func(o *modify1) bool { return o == m })
	} else if policy == dat.UpcallTeardown {
		w.teardown = append(w.teardown, span{begin, end})
	}
	w.Step()
	return err
}

func (w *trial) tearDown(client int) verdict {
	return w.modify(client, dat.UpcallTeardown, dat.InvocNew)
}

func (w *trial) resize(client, n int) {
	w.call(client, evdCall{kind: "resize", n: n}, func() evdResult { return evdResult{err: verdictOf(w.e.Resize(n))} })
}

func (w *trial) free(client int) verdict {
	begin := w.Now()
	out := w.call(client, evdCall{kind: "free"}, func() evdResult { return evdResult{err: verdictOf(w.e.Free())} })
	if out.err == good {
		w.frees = append(w.frees, span{begin, w.Now()})
	}
	return out.err
}

// wait waits for an event; a look does not sleep.
func (w *trial) wait(client, threshold int, look bool) evdResult {
	kind, timeout := "wait", dat.Infinite
	if look {
		kind, timeout = "look", 0
	}
	w.waits[client] = span{begin: w.Now()}
	defer delete(w.waits, client)
	return w.call(client, evdCall{kind: kind, n: threshold}, func() evdResult {
		ev, _, err := w.e.Wait(w.ctx, threshold, timeout)
		if err != nil {
			return evdResult{err: verdictOf(err)}
		}
		return evdResult{got: []uint64{valueOf(ev)}}
	})
}

// upcall is the consumer's function.
func (w *trial) upcall(ev dat.Event, _ bool) {
	u := len(w.upcalls)
	w.upcalls = append(w.upcalls, upcall1{take: w.Since(explore.Take), begin: w.Now(), notify: ev.Number == 0})
	defer func() { w.upcalls[u].end = w.Now() }()
	w.checkUpcall(w.upcalls[u])
	if ev.Number != 0 {
		w.note(0, evdCall{kind: "take", n: 1}, evdResult{got: []uint64{valueOf(ev)}}, w.upcalls[u].take, w.upcalls[u].begin)
	}
	w.Step()
	if w.nested != nil {
		w.nested(w)
	}
}

// misbehave does what an upcall may do.
func (w *trial) misbehave() {
	switch w.pick(9) {
	case 0:
		w.take(0)
	case 1:
		if len(w.posted) < 10 {
			w.post(0)
		}
	case 2:
		w.modify(0, w.anyPolicy(), w.anyFlag())
	case 3:
		runtime.Goexit()
	case 4:
		if err := w.tearDown(0); err != denied && err != gone {
			w.fail("a teardown in an upcall: %q", err)
		}
	case 5, 6:
		w.Step()
	}
}

func (w *trial) anyPolicy() dat.UpcallPolicy {
	return []dat.UpcallPolicy{dat.UpcallDisable, dat.UpcallSingleInstance, dat.UpcallMany, dat.UpcallNotify}[w.pick(4)]
}

func (w *trial) anyFlag() dat.UpcallFlag {
	return []dat.UpcallFlag{dat.InvocNew, dat.InvocAny, dat.InvocEmpty}[w.pick(3)]
}

// history is what happened, for an error.
func (w *trial) history() string {
	ops := slices.Clone(w.ops)
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var s strings.Builder
	fmt.Fprintf(&s, "room for %d\n", w.room)
	for _, o := range ops {
		fmt.Fprintf(&s, "%4d-%4d %2d: %+v: %+v\n", o.Call, o.Return, o.ClientId, o.Input, o.Output)
	}
	for _, m := range w.modifies {
		fmt.Fprintf(&s, "%4d-%4d modify(%v, %v)\n", m.begin, m.end, m.policy, m.flag)
	}
	for _, u := range w.upcalls {
		fmt.Fprintf(&s, "%4d-%4d upcall, taken after %d, without an event: %v\n", u.begin, u.end, u.take, u.notify)
	}
	return s.String()
}
