package dat_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"kdapl/dat"
	"kdapl/dat/internal/altered"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// What adapters say of themselves and their faults, in DAT's words; and what all objects have in common.

// alter makes a pair over an adapter with hooks.
func alter(hooks altered.Hooks) pairConfig {
	return pairConfig{split: true, wrap: func(d *loop.Device) verbs.Device { return &altered.Device{Device: d, Hooks: hooks} }}
}

func TestEveryStatusOfAnAdapterHasOneInDAT(t *testing.T) {
	for status, want := range map[verbs.Status]dat.Status{
		verbs.StatusSuccess:              dat.StatusSuccess,
		verbs.StatusFlushed:              dat.StatusFlushed,
		verbs.StatusLocalLength:          dat.StatusLocalLength,
		verbs.StatusLocalQPOp:            dat.StatusLocalEP,
		verbs.StatusLocalProtection:      dat.StatusLocalProtection,
		verbs.StatusMWBind:               dat.StatusRMROperationFailed,
		verbs.StatusBadResponse:          dat.StatusBadResponse,
		verbs.StatusRemoteInvalidRequest: dat.StatusRemoteResponder,
		verbs.StatusRemoteAccess:         dat.StatusRemoteAccess,
		verbs.StatusRemoteOp:             dat.StatusRemoteResponder,
		verbs.StatusRetryExceeded:        dat.StatusTransport,
		verbs.StatusRNRRetryExceeded:     dat.StatusReceiverNotReady,
		verbs.StatusMemoryManagement:     dat.StatusLocalMMError,
		verbs.StatusFatal:                dat.StatusTransport,
	} {
		t.Run(status.String(), func(t *testing.T) {
			var now atomic.Bool
			p := newPair(t, alter(altered.Hooks{Poll: func(cs []verbs.Completion) int {
				for i := range cs {
					if now.Load() && cs[i].Op == verbs.OpSend {
						cs[i].Status = status
					}
				}
				return len(cs)
			}})).connect(t)
			ok(t, p.b.ep.PostRecv(1, 0))
			now.Store(true)
			ok(t, p.a.ep.PostSend(2, dat.CompletionDefault))
			nextDTO(t, p.a.request, 2, want)
			q := must[dat.EPParam](t)(p.a.ep.Query()).RequestCounters
			if q.Posted != 1 || q.Succeeded+q.Flushed+q.Failed != 1 || (q.Succeeded == 1) != (want == dat.StatusSuccess) || (q.Flushed == 1) != (want == dat.StatusFlushed) {
				t.Errorf("%+v", q)
			}
		})
	}
}

func TestSRQThatFails(t *testing.T) {
	s := newShared(t, sharedConfig{pair: alter(altered.Hooks{Async: func(ev verbs.AsyncEvent, deliver func(verbs.AsyncEvent)) {
		if ev.Kind == verbs.AsyncSRQLimit { // the only news that a software adapter has of an SRQ
			ev.Kind = verbs.AsyncSRQError
		}
		deliver(ev)
	}})})
	if q := must[dat.SRQParam](t)(s.srq.Query()); q.State != dat.SRQStateOperational {
		t.Fatalf("%+v", q)
	}
	ok(t, s.srq.SetLowWatermark(1))
	ev := next(t, s.b.ia.AsyncEVD(), dat.AsyncErrorProviderInternal)
	if a := ev.Async(); a.Object != dat.Object(s.srq) || a.Reason != dat.ReasonSRQOther {
		t.Fatalf("%+v", a)
	}
	if q := must[dat.SRQParam](t)(s.srq.Query()); q.State != dat.SRQStateError {
		t.Fatalf("%+v", q)
	}
	refused(t, s.srq.PostRecv(1), dat.InvalidState, dat.InvalidStateSRQError)
	_, err := s.b.pz.NewEP(dat.EPConfig{Recv: s.b.recv, Request: s.b.request, Connect: s.b.connect, SRQ: s.srq})
	refused(t, err, dat.InvalidState, dat.InvalidStateSRQError)
	ok(t, s.to[0].Free())
	ok(t, s.srq.Free())
}

func TestEPsFaultIsToldOnTheAsyncEVD(t *testing.T) {
	p := udPair(t, pairConfig{split: true})
	p.introduce(t)
	p.dev.Remove()
	for {
		ev, _, err := p.a.ia.AsyncEVD().Wait(t.Context(), 1, patience)
		ok(t, err)
		if ev.Number == dat.AsyncErrorEPBroken {
			if a := ev.Async(); a.Object != dat.Object(p.a.ep) || a.Reason != dat.ReasonEPTransferTo {
				t.Fatalf("%+v", a)
			}
			return
		}
	}
}

// A word of the adapter's that DAT has none for is an INTERNAL_ERROR, with the word in it.
func TestUnknownFaultsOfAnAdapterAreInternalErrors(t *testing.T) {
	strange := errors.New("the moon is full")
	var now atomic.Bool
	p := newPair(t, alter(altered.Hooks{CreateQP: func(*verbs.QPInit) error {
		if now.Load() {
			return strange
		}
		return nil
	}}))
	now.Store(true)
	_, err := p.a.pz.NewEP(dat.EPConfig{Recv: p.a.recv, Request: p.a.request, Connect: p.a.connect})
	refused(t, err, dat.InternalError, dat.NoSubtype)
	if !errors.Is(err, strange) {
		t.Fatal(err)
	}
	if q := must[dat.IAParam](t)(p.a.ia.Query()).Counters; q.EPs != 1 {
		t.Fatalf("the EP that failed is there: %+v", q)
	}
}

func TestNothingCanBePostedOrChangedUntilAnAcceptIsThrough(t *testing.T) {
	release := make(chan struct{})
	p := newPair(t, alter(altered.Hooks{Conn: func(ev verbs.ConnEvent, deliver func(verbs.ConnEvent)) {
		<-release
		deliver(ev)
	}}))
	ok(t, p.call())
	ok(t, p.b.request1(t).Accept(p.b.ep, nil))
	ep := p.b.ep
	wantState(t, ep, dat.StateCompletionPending)
	r := must[*dat.RMR](t)(p.b.pz.NewRMR())
	_, bind := r.Bind(p.b.lmr, p.b.lmr.Triplet(0, 8), remoteBoth, dat.VATypeVA, ep, 1, 0)
	_, reserve := p.b.ia.NewRSP(dat.RSPConfig{EP: ep, EVD: p.b.cr})
	for name, err := range map[string]error{
		"send": ep.PostSend(1, 0), "bind": bind, "reserve": reserve, "reset": ep.Reset(),
		"modify":  ep.Modify(dat.EPFieldConnectEVD, dat.EPParam{Connect: p.b.connect}),
		"connect": ep.Connect(p.b.ia.Address(), 1, dat.ConnectConfig{Timeout: 1}),
	} {
		t.Run(name, func(t *testing.T) { refused(t, err, dat.InvalidState, dat.InvalidStateEPComplPending) })
	}
	close(release)
	p.established(t)
}

// dat_get_handle_type and the consumer's context, for one object of each kind, while it lives and after its end.
func TestEveryObjectHasAKindAndAContext(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	ia := p.b.ia
	ok(t, p.call())
	cr := p.b.request1(t)
	lmr := must[*dat.LMR](t)(p.b.pz.Register(make([]byte, 8), dat.PrivNone))
	objects := []struct {
		o     dat.Object
		kind  dat.HandleType
		udapl int
		free  func() error
	}{
		{cr, dat.HandleCR, 0, func() error { return cr.Reject(nil) }},
		{p.b.newEP(t, nil), dat.HandleEP, 1, nil},
		{newEVD(t, ia, dat.EVDConfig{}), dat.HandleEVD, 2, nil},
		{lmr, dat.HandleLMR, 4, nil},
		{must[*dat.PSP](t)(ia.NewPSP(dat.PSPConfig{EVD: p.b.cr})), dat.HandlePSP, 5, nil},
		{must[*dat.PZ](t)(ia.NewPZ()), dat.HandlePZ, 6, nil},
		{must[*dat.RMR](t)(p.b.pz.NewRMR()), dat.HandleRMR, 7, nil},
		{must[*dat.RSP](t)(ia.NewRSP(dat.RSPConfig{EVD: p.b.cr})), dat.HandleRSP, 8, nil},
		{must[*dat.CNO](t)(ia.NewCNO(nil)), dat.HandleCNO, 9, nil},
		{must[*dat.SRQ](t)(p.b.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1})), dat.HandleSRQ, 10, nil},
		{must[*dat.CSP](t)(ia.NewCSP(dat.CSPConfig{EVD: p.b.cr})), dat.HandleCSP, 11, nil},
		{ia, dat.HandleIA, 3, func() error { return ia.Close(t.Context(), dat.CloseAbrupt) }},
	}
	names := map[string]bool{}
	for _, c := range objects {
		if k := c.o.HandleType(); k != c.kind || k.UDAPL() != c.udapl {
			t.Errorf("%v is of kind %v, %d; want %v, %d", c.o, k, k.UDAPL(), c.kind, c.udapl)
		}
		if v := c.o.Context(); v != nil {
			t.Errorf("%v has the context %v before one was set", c.o, v)
		}
		c.o.SetContext(1)
		c.o.SetContext(c.kind)
		if v := c.o.Context(); v != c.kind {
			t.Errorf("%v has the context %v", c.o, v)
		}
		if s := fmt.Sprint(c.o); names[s] {
			t.Errorf("two objects are called %q", s)
		} else {
			names[s] = true
		}
	}
	for _, c := range objects {
		free := c.free
		if free == nil {
			free = c.o.(interface{ Free() error }).Free
		}
		ok(t, free())
		if c.o.HandleType() != c.kind || c.o.Context() != c.kind {
			t.Errorf("%v has lost its kind or context with its end", c.o)
		}
		c.o.SetContext(nil)
		if v := c.o.Context(); v != nil {
			t.Errorf("%v has the context %v after it was cleared", c.o, v)
		}
	}
}
