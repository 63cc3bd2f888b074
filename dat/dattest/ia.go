package dattest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"kdapl/dat"
)

// Interface adapters as a whole (dat_ia_open, dat_ia_close), and what becomes of their objects.
var iaRules = []rule{
	{"a graceful close needs an IA without objects", 0, iaGraceful},
	{"an abrupt close takes everything, and the peers are told", 0, iaAbrupt},
	{"close waits for upcalls as its context allows", 0, iaUpcalls},
	{"one of several closers closes, the others are told", 0, iaTwice},
	{"an IA is closed under load, and its peer accounts for everything", 0, iaLoad},
	{"IAs of one adapter do not know each other", 0, iaForeign},
	{"an asynchronous EVD serves a second IA, and stays", 0, iaGuest},
	{"an adapter is opened again and again", 0, iaAgain},
	{"arguments of open and close are checked", 0, iaArgs},
	{"what is not an object is refused", 0, iaNil},
}

func iaGraceful(e *env) {
	s := e.a
	psp, err := s.ia.NewPSP(dat.PSPConfig{EVD: s.cr})
	e.must(err, "NewPSP")
	ep, err := s.pz.NewEP(dat.EPConfig{Connect: s.connect})
	e.must(err, "NewEP")
	for _, free := range []func() error{
		psp.Free, ep.Free, s.lmr.Free, s.pz.Free, s.recv.Free, s.request.Free, s.connect.Free, s.cr.Free,
	} {
		e.refused(s.ia.Close(context.Background(), dat.CloseGraceful), "Close", dat.InvalidState, dat.InvalidStateIAInUse)
		_, err := s.ia.Query()
		e.must(err, "a query after a refused close")
		e.must(free(), "Free")
	}
	e.must(s.ia.Close(context.Background(), dat.CloseGraceful), "Close")
	_, err = s.ia.Query()
	e.refused(err, "a query after the close", dat.InvalidHandle, dat.InvalidHandleIA)
	e.refused(s.ia.Close(context.Background(), dat.CloseGraceful), "a second Close", dat.InvalidHandle, dat.InvalidHandleIA)
}

func iaAbrupt(e *env) {
	a, b := e.link()
	waiting, peer := e.a.ep(), e.b.ep()
	e.must(a.PostRecv(1, 0), "PostRecv")
	psp := e.b.listen()
	e.call(waiting, psp.ConnQual())
	cr := e.b.request1()
	e.must(a.PostSend(2, 0), "PostSend") // whose outcome nobody will know
	e.must(e.within("Close", func() error { return e.b.ia.Close(context.Background(), dat.CloseAbrupt) }), "Close")
	ends := map[*dat.EP]dat.EventNumber{}
	for range 2 {
		ev := e.event(e.a.connect, dat.ConnectionDisconnected, dat.ConnectionBroken, dat.ConnectionPeerRejected, dat.ConnectionNonPeerRejected)
		ends[ev.Connection().EP] = ev.Number
	}
	if n := ends[a]; n != dat.ConnectionDisconnected && n != dat.ConnectionBroken {
		e.Errorf("the connection ended with %v", n)
	}
	if n := ends[waiting]; n == 0 || n == dat.ConnectionDisconnected {
		e.Errorf("the set-up ended with %v", n)
	}
	e.done(e.a.recv, 1, dat.StatusFlushed)
	for _, c := range []struct {
		what string
		err  error
		sub  dat.Subtype
	}{
		{"an EP", b.Free(), dat.InvalidHandleEP},
		{"another EP", peer.Free(), dat.InvalidHandleEP},
		{"a zone", e.b.pz.Free(), dat.InvalidHandlePZ},
		{"a region", e.b.lmr.Free(), dat.InvalidHandleLMR},
		{"a service point", psp.Free(), dat.InvalidHandlePSP},
		{"a request", cr.Reject(nil), dat.InvalidHandleCR},
		{"an EVD", e.b.recv.Free(), dat.InvalidHandle1},
	} {
		e.refused(c.err, c.what, dat.InvalidHandle, c.sub)
	}
	_, err := e.b.recv.Dequeue()
	e.refused(err, "Dequeue", dat.InvalidHandle)
	_, err = e.b.ia.NewPZ()
	e.refused(err, "NewPZ", dat.InvalidHandle, dat.InvalidHandleIA)
}

func iaUpcalls(e *env) {
	for _, s := range []*side{e.a, e.b} {
		evd := s.evd()
		c := &calls{}
		release := c.hold(e)
		e.must(evd.ModifyUpcall(dat.UpcallSingleInstance, c.upcall, dat.InvocNew), "ModifyUpcall")
		e.post(evd, 1)
		c.reach(e, "SE 1")
		ctx, cancel := context.WithCancelCause(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.ia.Close(ctx, dat.CloseAbrupt) }()
		e.idle(300) // let it go on
		select {
		case err := <-done:
			e.Fatalf("Close returned %v with an upcall running", err)
		default:
		}
		if s == e.a {
			release()
			e.must(e.within("Close", func() error { return <-done }), "Close")
			cancel(nil)
			continue
		}
		cause := errors.New("enough")
		cancel(cause)
		err := e.within("Close", func() error { return <-done })
		if e.refused(err, "an impatient Close", dat.InterruptedCall); !errors.Is(err, cause) {
			e.Errorf("%v does not tell the cause", err)
		}
		_, err = s.ia.Query()
		e.refused(err, "a query after an impatient Close", dat.InvalidHandle, dat.InvalidHandleIA)
		release()
	}
}

func iaTwice(e *env) {
	const n = 4
	errs := make(chan error, n)
	for range n {
		go func() { errs <- e.b.ia.Close(context.Background(), dat.CloseAbrupt) }()
	}
	closed := 0
	for range n {
		err := e.within("Close", func() error { return <-errs })
		if err == nil {
			closed++
			continue
		}
		e.refused(err, "a further Close", dat.InvalidHandle, dat.InvalidHandleIA)
	}
	if closed != 1 {
		e.Errorf("%d of %d closed the IA", closed, n)
	}
}

// iaLoad closes one IA while its EPs receive and send, its upcalls run and others connect, and has the other account
// for its operations.
func iaLoad(e *env) {
	for _, policy := range []dat.UpcallPolicy{dat.UpcallSingleInstance, dat.UpcallMany} {
		for range e.rounds(10) {
			ia, err := e.ad.Passive(dat.Config{})
			e.must(err, "open")
			other := &side{e: e, name: "closed", ia: ia, attr: e.b.attr, prov: e.b.prov}
			e.Cleanup(func() { ia.Close(context.Background(), dat.CloseAbrupt) })
			other.pz, err = ia.NewPZ()
			e.must(err, "NewPZ")
			other.mem = make([]byte, memSize)
			other.lmr = other.register(other.mem, dat.PrivAll)
			e.closeUnderLoad(other, policy)
		}
	}
}

// closeUnderLoad connects EPs of a and s and closes the IA of s.
func (e *env) closeUnderLoad(s *side, policy dat.UpcallPolicy) {
	e.Helper()
	const eps = 3
	busy := s.evdOf(dat.EVDConfig{MinLen: 256, Policy: policy, Upcall: func(ev dat.Event, _ bool) {
		switch {
		case ev.Number == dat.ConnectionRequest:
			ev.Request().CR.Reject(nil)
		case ev.Number == dat.DTOCompletion && ev.DTO().Status == dat.StatusSuccess && ev.DTO().Operation == dat.OpReceive:
			i := ev.DTO().Cookie // of the EP: each has memory of its own
			ev.DTO().EP.PostRecv(i, 0, s.lmr.Triplet(64*int(i), 64))
			ev.DTO().EP.PostSend(i, dat.CompletionSuppress, s.lmr.Triplet(4096, 8))
		}
	}})
	late, err := s.ia.NewPSP(dat.PSPConfig{EVD: busy})
	e.must(err, "NewPSP")
	first := s.evd()
	psp, err := s.ia.NewPSP(dat.PSPConfig{EVD: first})
	e.must(err, "NewPSP")
	evd := e.a.evdOf(dat.EVDConfig{MinLen: 256})
	var mine []*dat.EP
	for i := range eps {
		a := e.a.ep(on(evd))
		mine = append(mine, a)
		b, err := s.pz.NewEP(dat.EPConfig{Recv: busy, Request: busy, Connect: first})
		e.must(err, "NewEP")
		for range 8 {
			e.must(b.PostRecv(uint64(i), 0, s.lmr.Triplet(64*i, 64)), "PostRecv")
		}
		e.must(a.Connect(s.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: e.deadline}), "Connect")
		ev := e.event(first, dat.ConnectionRequest)
		e.must(ev.Request().CR.Accept(b, nil), "Accept")
		e.event(evd, dat.ConnectionEstablished)
		e.event(first, dat.ConnectionEstablished)
	}
	var wg sync.WaitGroup
	var stop atomic.Bool
	posted := make([]atomic.Int64, eps)
	for i, a := range mine {
		wg.Go(func() {
			for n := uint64(0); !stop.Load(); n++ {
				if a.PostSend(n, 0, e.a.lmr.Triplet(0, 8)) == nil {
					posted[i].Add(1)
				}
				if a.PostRecv(n, 0, e.a.lmr.Triplet(4096+64*i, 64)) == nil {
					posted[i].Add(1)
				}
				e.yield()
			}
		})
	}
	wg.Go(func() {
		for !stop.Load() {
			c, err := e.a.pz.NewEP(dat.EPConfig{Connect: e.a.connect})
			if err != nil {
				return
			}
			if c.Connect(s.ia.Address(), late.ConnQual(), dat.ConnectConfig{Timeout: e.deadline}) == nil {
				for !stop.Load() {
					if _, err := e.a.connect.Dequeue(); err == nil {
						break
					}
					e.yield()
				}
			}
			c.Free()
		}
	})
	ends := map[*dat.EP]int{}
	taken := map[*dat.EP]int64{}
	take := func() {
		for ev := range evd.Drain() {
			if ev.Number == dat.DTOCompletion {
				taken[ev.DTO().EP]++
				continue
			}
			ends[ev.Connection().EP]++
		}
	}
	e.eventually("traffic", func() bool {
		take()
		return len(taken) == eps || len(ends) > 0
	})
	closed := make(chan error, 1)
	go func() { closed <- s.ia.Close(context.Background(), dat.CloseAbrupt) }()
	e.eventually("the end of every connection", func() bool {
		take()
		return len(ends) == eps
	})
	e.must(e.within("Close under load", func() error { return <-closed }), "Close")
	stop.Store(true)
	wg.Wait()
	for i, a := range mine {
		e.eventually("the outcome of everything that was posted", func() bool {
			take()
			return taken[a] >= posted[i].Load()
		})
	}
	e.none(evd, "when everything has completed")
	for i, a := range mine {
		if ends[a] != 1 || taken[a] != posted[i].Load() {
			e.Errorf("%v: %d ends, %d completions of %d operations", a, ends[a], taken[a], posted[i].Load())
		}
		e.must(a.Free(), "Free")
	}
	e.must(evd.Free(), "EVD.Free")
	all(e.a.connect)
}

func iaForeign(e *env) {
	other, err := e.ad.Active(dat.Config{})
	e.must(err, "open")
	e.Cleanup(func() { other.Close(context.Background(), dat.CloseAbrupt) })
	pz, err := other.NewPZ()
	e.must(err, "NewPZ")
	evd, err := other.NewEVD(dat.EVDConfig{Streams: streams, MinLen: 8})
	e.must(err, "NewEVD")
	lmr, err := pz.Register(make([]byte, 8), dat.PrivAll)
	e.must(err, "Register")
	for what, cfg := range map[string]dat.EPConfig{"for receives": {Recv: evd}, "for requests": {Request: evd}, "for connections": {Connect: evd}} {
		_, err := e.a.pz.NewEP(cfg)
		e.refused(err, "an EVD of another IA "+what, dat.InvalidHandle)
	}
	_, err = e.a.ia.NewPSP(dat.PSPConfig{EVD: evd})
	e.refused(err, "a service point with an EVD of another IA", dat.InvalidHandle, dat.InvalidHandleEVDCR)
	foreign, err := pz.NewEP(dat.EPConfig{Recv: evd, Request: evd, Connect: evd})
	e.must(err, "NewEP")
	a := e.a.ep()
	psp := e.b.listen()
	e.call(a, psp.ConnQual())
	cr := e.b.request1()
	e.refused(cr.Accept(foreign, nil), "an accept with an EP of another IA", dat.InvalidHandle, dat.InvalidHandleEP)
	b := e.b.ep()
	e.must(cr.Accept(b, nil), "an accept after a refused one")
	e.established()
	e.refused(a.PostRecv(1, 0, lmr.Triplet(0, 8)), "a receive into memory of another IA", dat.ProtectionViolation)
	e.must(other.Close(context.Background(), dat.CloseAbrupt), "Close")
	e.write(a, e.b.lmr.RMRTriplet(0, 8), 0, 8)
}

func iaGuest(e *env) {
	host := e.a.ia.AsyncEVD()
	guest, err := e.ad.Active(dat.Config{AsyncEVD: host})
	e.must(err, "open")
	if guest.AsyncEVD() != host {
		e.Errorf("%v", guest.AsyncEVD())
	}
	e.refused(e.a.ia.Close(context.Background(), dat.CloseGraceful), "Close of the host", dat.InvalidState, dat.InvalidStateIAInUse)
	// Its overflow is told there, and names its own EVD.
	full, err := guest.NewEVD(dat.EVDConfig{MinLen: 1, Streams: streams})
	e.must(err, "NewEVD")
	psp, err := guest.NewPSP(dat.PSPConfig{EVD: full})
	e.must(err, "NewPSP")
	q, err := full.Query()
	e.must(err, "EVD.Query")
	for i := range q.QLen {
		e.must(full.PostSE(uint64(i)), "PostSE")
	}
	ep := e.a.ep()
	e.must(ep.Connect(guest.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: e.deadline}), "Connect")
	ev := e.event(host, dat.AsyncErrorEVDOverflow)
	if ev.Async().Object != dat.Object(full) {
		e.Errorf("%+v", ev.Async())
	}
	e.event(e.a.connect, dat.ConnectionNonPeerRejected, dat.ConnectionPeerRejected)
	e.must(guest.Close(context.Background(), dat.CloseAbrupt), "Close of the guest")
	if _, err := host.Query(); err != nil {
		e.Errorf("the close of a guest took the host's EVD: %v", err)
	}
}

func iaAgain(e *env) {
	for range e.rounds(50) {
		ia, err := e.ad.Passive(dat.Config{})
		e.must(err, "open")
		if q, err := ia.Query(); err != nil || q.Counters != (dat.IACounters{EVDs: 1}) || q.Attr.AdapterName != ia.Name() || q.AsyncEVD != ia.AsyncEVD() {
			e.Fatalf("%+v, %v", q, err)
		}
		evd, err := ia.NewEVD(dat.EVDConfig{Streams: streams, MinLen: 8})
		e.must(err, "NewEVD")
		psp, err := ia.NewPSP(dat.PSPConfig{EVD: evd})
		e.must(err, "NewPSP")
		a := e.a.ep()
		e.must(a.Connect(ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: e.deadline}), "Connect")
		e.event(evd, dat.ConnectionRequest)
		e.must(ia.Close(context.Background(), dat.CloseAbrupt), "Close")
		e.event(e.a.connect, dat.ConnectionNonPeerRejected, dat.ConnectionPeerRejected)
		e.must(a.Free(), "Free")
	}
}

func iaArgs(e *env) {
	host := e.a.evd()
	for what, c := range map[string]struct {
		cfg dat.Config
		typ dat.Type
		sub dat.Subtype
	}{
		"a negative length":                {dat.Config{AsyncEVDMinLen: -1}, dat.InvalidParameter, dat.InvalidArg2},
		"an EVD without that stream":       {dat.Config{AsyncEVD: host}, dat.InvalidHandle, dat.InvalidHandleEVDAsync},
		"something that is no EVD":         {dat.Config{AsyncEVD: new(dat.EVD)}, dat.InvalidHandle, dat.InvalidHandleEVDAsync},
		"a negative number of upcalls":     {dat.Config{MaxUpcalls: -1}, dat.InvalidParameter, dat.NoSubtype},
		"a longer EVD than an adapter has": {dat.Config{AsyncEVDMinLen: 1 << 31}, dat.InsufficientResources, dat.NoSubtype},
	} {
		ia, err := e.ad.Active(c.cfg)
		if err == nil {
			ia.Close(context.Background(), dat.CloseAbrupt)
		}
		if c.sub != dat.NoSubtype {
			e.refused(err, "open with "+what, c.typ, c.sub)
		} else {
			e.refused(err, "open with "+what, c.typ)
		}
	}
	e.refused(e.a.ia.Close(context.Background(), 2), "an unknown way to close", dat.InvalidParameter, dat.InvalidArg2)
}

func iaNil(e *env) {
	ctx := context.Background()
	var noIA *dat.IA
	for what, err := range map[string]error{
		"IA":  noIA.Close(ctx, dat.CloseAbrupt),
		"IA0": new(dat.IA).Close(ctx, dat.CloseAbrupt),
		"PZ":  (*dat.PZ)(nil).Free(),
		"PZ0": new(dat.PZ).Free(),
		"LMR": (*dat.LMR)(nil).Free(),
		"EVD": (*dat.EVD)(nil).PostSE(1),
		"EP":  (*dat.EP)(nil).Disconnect(dat.CloseAbrupt),
		"EP0": new(dat.EP).PostSend(1, 0),
		"PSP": (*dat.PSP)(nil).Free(),
		"CR":  (*dat.CR)(nil).Accept(nil, nil),
		"CR0": new(dat.CR).Reject(nil),
		"RSP": (*dat.RSP)(nil).Free(),
		"CSP": (*dat.CSP)(nil).Free(),
		"RMR": (*dat.RMR)(nil).Free(),
		"SRQ": (*dat.SRQ)(nil).Free(),
		"CNO": (*dat.CNO)(nil).Free(),
	} {
		e.refused(err, what, dat.InvalidHandle)
	}
	_, err := e.a.ia.NewPSP(dat.PSPConfig{})
	e.refused(err, "a service point without an EVD", dat.InvalidHandle, dat.InvalidHandleEVDCR)
	a := e.a.ep()
	e.call(a, e.b.listen().ConnQual())
	e.refused(e.b.request1().Accept(nil, nil), "an accept without an EP", dat.InvalidHandle, dat.InvalidHandleEP)
}
