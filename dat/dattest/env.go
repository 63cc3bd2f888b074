package dattest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"kdapl/dat"
)

// defaultDeadline bounds a wait when Adapters.Deadline does not.
const defaultDeadline = 20 * time.Second

// env is the surroundings of one rule: two open IAs and everything made in them.
type env struct {
	testing.TB
	ad       Adapters
	a, b     *side // the active and the passive end
	deadline time.Duration
	fake     bool      // the clock moves only when every goroutine waits (see RunIn)
	eps      []*dat.EP // that the rule made, for the account
}

// side is one end: an IA with a zone, memory and EVDs.
type side struct {
	e    *env
	name string
	ia   *dat.IA
	attr dat.IAAttr
	prov dat.ProviderAttr
	pz   *dat.PZ
	// recv, request and connect are for EPs, cr for service points.
	recv, request, connect, cr *dat.EVD
	mem                        []byte
	lmr                        *dat.LMR // of mem, with all privileges
}

// memSize is the memory of a side.
const memSize = 16384

func newEnv(t testing.TB, ad Adapters, fake bool) *env {
	t.Helper()
	e := &env{TB: t, ad: ad, deadline: ad.Deadline, fake: fake}
	if e.deadline == 0 {
		e.deadline = defaultDeadline
	}
	e.a = e.open("active", ad.Active)
	e.b = e.open("passive", ad.Passive)
	t.Cleanup(e.settle) // before the IAs close
	return e
}

// open makes one end.
func (e *env) open(name string, open func(dat.Config) (*dat.IA, error)) *side {
	e.Helper()
	s := &side{e: e, name: name}
	ia, err := open(dat.Config{AsyncEVDMinLen: 32})
	e.must(err, "open the %s IA", name)
	s.ia = ia
	e.Cleanup(func() {
		err := e.within("close of the "+name+" IA", func() error { return ia.Close(context.Background(), dat.CloseAbrupt) })
		if err != nil && !errors.Is(err, dat.InvalidHandle) {
			e.Errorf("close the %s IA: %v", name, err)
		}
	})
	q, err := ia.Query()
	e.must(err, "query the %s IA", name)
	s.attr, s.prov = q.Attr, q.Provider
	s.pz, err = ia.NewPZ()
	e.must(err, "NewPZ")
	s.recv, s.request, s.connect, s.cr = s.evd(), s.evd(), s.evd(), s.evd()
	s.mem = make([]byte, memSize)
	s.lmr = s.register(s.mem, dat.PrivAll)
	return s
}

// streams are all but the asynchronous one.
const streams = dat.StreamSoftware | dat.StreamConnectionRequest | dat.StreamDTO | dat.StreamConnection | dat.StreamRMRBind

func (s *side) evd() *dat.EVD {
	s.e.Helper()
	return s.evdOf(dat.EVDConfig{})
}

// evdOf makes an EVD, by default for 64 events of every stream.
func (s *side) evdOf(cfg dat.EVDConfig) *dat.EVD {
	s.e.Helper()
	if cfg.MinLen == 0 {
		cfg.MinLen = 64
	}
	if cfg.Streams == 0 {
		cfg.Streams = streams
	}
	evd, err := s.ia.NewEVD(cfg)
	s.e.must(err, "NewEVD")
	return evd
}

func (s *side) register(mem []byte, priv dat.Priv) *dat.LMR {
	s.e.Helper()
	lmr, err := s.pz.Register(mem, priv)
	s.e.must(err, "Register %d bytes with %v", len(mem), priv)
	return lmr
}

// ep makes an EP with the side's EVDs.
func (s *side) ep(change ...func(*dat.EPConfig, *dat.EPAttr)) *dat.EP {
	s.e.Helper()
	attr := dat.DefaultEPAttr(s.attr)
	cfg := dat.EPConfig{Recv: s.recv, Request: s.request, Connect: s.connect, Attr: &attr}
	for _, c := range change {
		c(&cfg, &attr)
	}
	ep, err := s.pz.NewEP(cfg)
	s.e.must(err, "NewEP")
	return s.note(ep)
}

// note enters an EP into the account.
func (s *side) note(ep *dat.EP) *dat.EP {
	s.e.eps = append(s.e.eps, ep)
	return ep
}

// listen makes a service point.
func (s *side) listen() *dat.PSP {
	s.e.Helper()
	psp, err := s.ia.NewPSP(dat.PSPConfig{EVD: s.cr})
	s.e.must(err, "NewPSP")
	return psp
}

// call starts a connection.
func (e *env) call(ep *dat.EP, qual uint64, private ...byte) {
	e.Helper()
	e.must(ep.Connect(e.b.ia.Address(), qual, dat.ConnectConfig{Timeout: e.deadline, PrivateData: private}), "Connect to %d", qual)
}

// request takes the next connection request.
func (s *side) request1() *dat.CR {
	s.e.Helper()
	ev := s.e.event(s.cr, dat.ConnectionRequest)
	return ev.Request().CR
}

// join connects an EP of a with one of b.
func (e *env) join(from, to *dat.EP) {
	e.Helper()
	psp := e.b.listen()
	e.call(from, psp.ConnQual())
	e.must(e.b.request1().Accept(to, nil), "Accept")
	e.established()
	e.must(psp.Free(), "PSP.Free")
}

// established takes the event of both sides.
func (e *env) established() {
	e.Helper()
	e.event(e.a.connect, dat.ConnectionEstablished)
	e.event(e.b.connect, dat.ConnectionEstablished)
}

// link makes a connected pair of EPs.
func (e *env) link(change ...func(*dat.EPConfig, *dat.EPAttr)) (a, b *dat.EP) {
	e.Helper()
	a, b = e.a.ep(change...), e.b.ep(change...)
	e.join(a, b)
	return a, b
}

// must fails the rule if a call that has to work did not.
func (e *env) must(err error, format string, args ...any) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// refused checks that a call was refused, with the type, and with one of the subtypes if there are any.
func (e *env) refused(err error, what string, typ dat.Type, subs ...dat.Subtype) {
	e.Helper()
	if !errors.Is(err, typ) {
		e.Errorf("%s: got %v, want %v %v", what, err, typ, subs)
		return
	}
	for _, sub := range subs {
		if errors.Is(err, sub) {
			return
		}
	}
	if len(subs) > 0 {
		e.Errorf("%s: got %v, want %v %v", what, err, typ, subs)
	}
}

// event waits for the next event of an EVD, which must have one of the numbers.
func (e *env) event(evd *dat.EVD, want ...dat.EventNumber) dat.Event {
	e.Helper()
	ev, _, err := evd.Wait(context.Background(), 1, e.deadline)
	if err == nil {
		for _, n := range want {
			if ev.Number == n {
				return ev
			}
		}
	}
	if cause := ev.Connection().Cause; cause != nil {
		e.Logf("its cause: %v", cause)
	}
	e.Fatalf("got %v, %v; want %v", ev, err, want)
	return ev
}

// done waits for the next event, which must be the completion of a cookie with one of the statuses.
func (e *env) done(evd *dat.EVD, cookie uint64, want ...dat.Status) dat.DTO {
	e.Helper()
	ev := e.event(evd, dat.DTOCompletion, dat.IBDTOEvent)
	d := ev.DTO()
	for _, s := range want {
		if d.Status == s && d.Cookie == cookie {
			return d
		}
	}
	e.Fatalf("got %v; want the completion of %#x with %v", ev, cookie, want)
	return d
}

// none checks that an EVD stays empty during a number of looks.
func (e *env) none(evd *dat.EVD, when string) {
	e.Helper()
	for range 300 {
		if ev, err := evd.Dequeue(); err != dat.ErrQueueEmpty {
			e.Fatalf("%s: got %v, %v; want nothing", when, ev, err)
		}
		e.yield()
	}
}

// yield lets others go first. A goroutine that only yielded would stop a fake clock, and the
// network with it.
func (e *env) yield() {
	if e.fake {
		time.Sleep(turn)
	} else {
		runtime.Gosched()
	}
}

// turn is how long a yield takes by a fake clock.
const turn = 50 * time.Microsecond

// idle lets others go first n times.
func (e *env) idle(n int) {
	for range n {
		e.yield()
	}
}

// eventually waits for a condition that becomes true by itself.
func (e *env) eventually(what string, cond func() bool) {
	e.Helper()
	for end := time.Now().Add(e.deadline); !cond(); e.yield() {
		if time.Now().After(end) {
			e.Fatalf("never happened: %s", what)
		}
	}
}

// queued waits until an EVD holds n events.
func (e *env) queued(evd *dat.EVD, n int) {
	e.Helper()
	e.eventually(fmt.Sprintf("%d events in %v", n, evd), func() bool {
		q, err := evd.Query()
		return err == nil && q.Queued >= n
	})
}

// state checks an EP's state.
func (e *env) state(ep *dat.EP, want dat.EPState) {
	e.Helper()
	if s, err := ep.Status(); err != nil || s.State != want {
		e.Fatalf("%v is %v, %v; want %v", ep, s.State, err, want)
	}
}

// broken waits for the end of a connection by a fault on both sides.
func (e *env) broken() {
	e.Helper()
	e.event(e.a.connect, dat.ConnectionBroken)
	e.event(e.b.connect, dat.ConnectionBroken)
}

// acked is whether a successful send or write of a side says that the peer took it.
func (s *side) acked() bool { return s.named(dat.AttrCompletionMeaning) != "SOURCE_REUSABLE" }

// waits is whether a send to a peer without receives waits for one.
func (e *env) waits() bool {
	return e.a.named(dat.AttrReceiverNotReady) == "TRUE" && e.b.named(dat.AttrReceiverNotReady) == "TRUE"
}

// named is a provider specific attribute; "" if there is none.
func (s *side) named(name string) string {
	for _, a := range s.prov.ProviderSpecificAttrs {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// violation is the outcome of an operation that the peer refuses. The connection ends on both sides.
func (e *env) violation(cookie uint64, answered bool) {
	e.Helper()
	if e.a.acked() || answered {
		e.done(e.a.request, cookie, dat.StatusRemoteAccess)
	} else {
		e.done(e.a.request, cookie, dat.StatusSuccess, dat.StatusFlushed)
	}
	e.broken()
}

// rounds scales a number of repetitions.
func (e *env) rounds(n int) int {
	if testing.Short() {
		return max(1, n/10)
	}
	return n
}

// settle ends what the rule has left, and closes the account: each posted operation has completed once.
func (e *env) settle() {
	e.Helper()
	if e.Failed() || e.Skipped() {
		return
	}
	for _, ep := range e.eps {
		ep.Disconnect(dat.CloseAbrupt) // where there is something to end
	}
	for _, ep := range e.eps {
		s, err := ep.Status()
		if err != nil {
			continue // freed, or its IA closed
		}
		if s.State == dat.StateDisconnected {
			e.eventually("the outcome of everything that was posted on "+ep.String(), func() bool {
				s, err := ep.Status()
				return err != nil || s.RecvIdle && s.RequestIdle
			})
		}
		q, err := ep.Query()
		if err != nil {
			continue
		}
		for name, c := range map[string]dat.DTOCounters{"requests": q.RequestCounters, "receives": q.RecvCounters} {
			over := c.Succeeded + c.Flushed + c.Failed
			if over > c.Posted && q.SRQ == nil || s.State == dat.StateDisconnected && over < c.Posted {
				e.Errorf("%v: %d %s were posted, %d have completed", ep, c.Posted, name, over)
			}
		}
	}
}
