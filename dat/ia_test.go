package dat_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Tests of IAs: opening, querying, contexts, closing (1.5, 1.6, 8.1, 8.2 of the reference).

func TestOpenChecksItsArguments(t *testing.T) {
	dev := newLoop()
	host := openIA(t, dev, dat.Config{})
	deaf := newEVD(t, host, dat.EVDConfig{})
	freed := newEVD(t, host, dat.EVDConfig{Streams: dat.StreamAsync})
	ok(t, freed.Free())
	for name, c := range map[string]struct {
		dev verbs.Device
		cfg dat.Config
		typ dat.Type
		sub dat.Subtype
	}{
		"no device":        {nil, dat.Config{}, dat.InvalidParameter, dat.InvalidArg1},
		"long name":        {dev, dat.Config{Name: strings.Repeat("x", 256)}, dat.InvalidParameter, dat.InvalidArg1},
		"negative length":  {dev, dat.Config{AsyncEVDMinLen: -1}, dat.InvalidParameter, dat.InvalidArg2},
		"excessive length": {dev, dat.Config{AsyncEVDMinLen: 1 << 31}, dat.InsufficientResources, dat.ResourceTEVD},
		"negative upcalls": {dev, dat.Config{MaxUpcalls: -1}, dat.InvalidParameter, dat.NoSubtype},
		"deaf async EVD":   {dev, dat.Config{AsyncEVD: deaf}, dat.InvalidHandle, dat.InvalidHandleEVDAsync},
		"freed async EVD":  {dev, dat.Config{AsyncEVD: freed}, dat.InvalidHandle, dat.InvalidHandleEVDAsync},
		"zero async EVD":   {dev, dat.Config{AsyncEVD: new(dat.EVD)}, dat.InvalidHandle, dat.InvalidHandleEVDAsync},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dat.Open(c.dev, c.cfg)
			refused(t, err, c.typ, c.sub)
		})
	}
	// Limits beyond all reason are none.
	for _, n := range []int{1<<31 - 1, 1 << 31, 1 << 32, 1<<63 - 1} {
		calls := make(chan bool, 1)
		e := newEVD(t, openIA(t, dev, dat.Config{MaxUpcalls: n}), dat.EVDConfig{Policy: dat.UpcallMany, Upcall: func(dat.Event, bool) { calls <- true }})
		post(t, e, 1)
		receive(t, "an upcall", calls)
	}
	ia := openIA(t, dev, dat.Config{Name: strings.Repeat("x", 255)})
	if q := must[dat.IAParam](t)(ia.Query()); q.Attr.AdapterName != ia.Name() || len(ia.Name()) != 255 {
		t.Fatal(q.Attr.AdapterName)
	}
}

func TestAnIATellsWhatItIs(t *testing.T) {
	ia := openIA(t, loop.New(loop.Config{Name: "loop7"}), dat.Config{AsyncEVDMinLen: 3})
	q := must[dat.IAParam](t)(ia.Query())
	if ia.Name() != "loop7" || q.Attr.AdapterName != "loop7" || q.AsyncEVD != ia.AsyncEVD() || q.Attr.Address != ia.Address() || !ia.Address().IsValid() {
		t.Fatalf("%+v", q)
	}
	if n := must[dat.EVDParam](t)(ia.AsyncEVD().Query()); n.QLen != 3 || n.Streams != dat.StreamAsync {
		t.Fatal(n)
	}
	if q.Counters != (dat.IACounters{EVDs: 1}) {
		t.Fatalf("%+v", q.Counters)
	}
	p := q.Provider
	if !p.ThreadSafe || p.UpcallPolicy != dat.UpcallMany || p.DTOAsyncReturnGuaranteed || p.EVDStreamMergingSupported != dat.FullMergeMatrix() ||
		p.IOVOwnershipOnReturn != dat.IOVConsumer || dat.OptimalAlignment%p.OptimalBufferAlignment != 0 || p.MaxPrivateDataSize < 64 {
		t.Fatalf("%+v", p)
	}
	empty(t, ia.AsyncEVD())
}

// A context of the consumer's hangs on every object.
func TestEveryObjectKeepsAContext(t *testing.T) {
	p := newPair(t, pairConfig{})
	ok(t, p.call())
	objects := []dat.Object{p.a.ia, p.a.pz, p.a.lmr, p.a.evd, p.a.ep, p.psp, p.b.request1(t),
		must[*dat.CNO](t)(p.a.ia.NewCNO(nil)), must[*dat.RMR](t)(p.a.pz.NewRMR()),
		must[*dat.SRQ](t)(p.a.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1})),
		must[*dat.RSP](t)(p.b.ia.NewRSP(dat.RSPConfig{EP: p.b.newEP(t, nil), EVD: p.b.cr})),
		must[*dat.CSP](t)(p.b.ia.NewCSP(dat.CSPConfig{EVD: p.b.cr}))}
	kinds := map[dat.HandleType]bool{}
	names := map[string]bool{}
	for i, o := range objects {
		if kinds[o.HandleType()] || names[o.String()] || !strings.Contains(o.String(), o.HandleType().String()) || !strings.Contains(o.String(), "loop0") {
			t.Fatalf("%v %q", o.HandleType(), o)
		}
		kinds[o.HandleType()], names[o.String()] = true, true
		if o.Context() != nil {
			t.Fatalf("%v has a context already", o)
		}
		o.SetContext(i)
		o.SetContext(&i)
		if o.Context() != any(&i) {
			t.Fatalf("%v: %v", o, o.Context())
		}
		o.SetContext(nil)
		if o.Context() != nil {
			t.Fatalf("%v: not cleared", o)
		}
		o.SetContext("stays")
	}
	ok(t, p.a.ia.Close(background, dat.CloseAbrupt))
	ok(t, p.b.ia.Close(background, dat.CloseAbrupt))
	for _, o := range objects {
		if o.Context() != "stays" || !kinds[o.HandleType()] {
			t.Fatalf("%v has lost its context with its life", o)
		}
	}
}

// Gracefully, an IA is closed only when the consumer has nothing of it any more.
func TestGracefulCloseNeedsAnEmptyIA(t *testing.T) {
	p := newPair(t, pairConfig{})
	ia := p.a.ia
	inUse := func() {
		t.Helper()
		refused(t, ia.Close(background, dat.CloseGraceful), dat.InvalidState, dat.InvalidStateIAInUse)
	}
	cno := must[*dat.CNO](t)(ia.NewCNO(nil))
	rmr := must[*dat.RMR](t)(p.a.pz.NewRMR())
	srq := must[*dat.SRQ](t)(p.a.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1}))
	psp := must[*dat.PSP](t)(ia.NewPSP(dat.PSPConfig{EVD: p.a.evd}))
	for _, free := range []func() error{psp.Free, p.a.ep.Free, srq.Free, rmr.Free, p.a.lmr.Free, p.a.pz.Free, p.a.evd.Free, cno.Free} {
		inUse()
		if _, err := ia.Query(); err != nil {
			t.Fatal("a refused close has closed")
		}
		ok(t, free())
	}
	for _, f := range []dat.CloseFlags{2, 1 << 31, 1<<32 - 1} {
		refused(t, ia.Close(background, f), dat.InvalidParameter, dat.InvalidArg2)
	}
	ok(t, ia.Close(background, dat.CloseGraceful))
	refused(t, ia.Close(background, dat.CloseGraceful), dat.InvalidHandle, dat.InvalidHandleIA)
	_, err := ia.Query()
	refused(t, err, dat.InvalidHandle, dat.InvalidHandleIA)
	refused(t, p.a.ia.AsyncEVD().Free(), dat.InvalidHandle, dat.InvalidHandle1)
}

// Abruptly, everything goes, and each object says so.
func TestAbruptCloseTakesEverythingWithIt(t *testing.T) {
	p := newPair(t, pairConfig{}).connect(t)
	ia := p.a.ia
	cno := must[*dat.CNO](t)(ia.NewCNO(nil))
	rmr := must[*dat.RMR](t)(p.a.pz.NewRMR())
	srq := must[*dat.SRQ](t)(p.a.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1}))
	psp := must[*dat.PSP](t)(ia.NewPSP(dat.PSPConfig{EVD: p.a.evd}))
	rsp := must[*dat.RSP](t)(ia.NewRSP(dat.RSPConfig{EP: p.a.newEP(t, nil), EVD: p.a.evd}))
	peer := p.b.newEP(t, nil)
	ok(t, peer.Connect(ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
	cr := p.a.request1(t)
	//lint:ignore SA1012 bad input: no context is one without end
	ok(t, ia.Close(nil, dat.CloseAbrupt))
	got := map[*dat.EP]dat.EventNumber{}
	for range 2 {
		ev, _, err := p.b.evd.Wait(background, 1, patience)
		ok(t, err)
		got[ev.Connection().EP] = ev.Number
	}
	if got[peer] != dat.ConnectionNonPeerRejected || got[p.b.ep] != dat.ConnectionDisconnected {
		t.Fatal(got)
	}
	for name, c := range map[string]struct {
		err error
		sub dat.Subtype
	}{
		"EP":  {p.a.ep.Free(), dat.InvalidHandleEP},
		"PZ":  {p.a.pz.Free(), dat.InvalidHandlePZ},
		"LMR": {p.a.lmr.Free(), dat.InvalidHandleLMR},
		"EVD": {p.a.evd.Free(), dat.InvalidHandle1},
		"PSP": {psp.Free(), dat.InvalidHandlePSP},
		"RSP": {rsp.Free(), dat.InvalidHandleRSP},
		"CR":  {cr.Reject(nil), dat.InvalidHandleCR},
		"RMR": {rmr.Free(), dat.InvalidHandleRMR},
		"SRQ": {srq.Free(), dat.InvalidHandleSRQ},
		"CNO": {cno.Free(), dat.InvalidHandleCNO},
		"IA":  {ia.Close(background, dat.CloseAbrupt), dat.InvalidHandleIA},
	} {
		t.Run(name, func(t *testing.T) { refused(t, c.err, dat.InvalidHandle, c.sub) })
	}
	// The device and its other IAs are none the worse.
	openIA(t, p.dev, dat.Config{})
	if _, err := p.b.ia.Query(); err != nil {
		t.Fatal(err)
	}
}

// Close waits for running upcalls for as long as its context allows, and closes in any case.
func TestCloseWaitsForUpcallsAsItsContextAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, patient := range []bool{true, false} {
			ia := newIA(t)
			l := &upcallLog{}
			e := newEVD(t, ia, dat.EVDConfig{Policy: dat.UpcallMany, Upcall: l.upcall})
			gate := l.block()
			post(t, e, 1, 2, 3)
			synctest.Wait()
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(background)
			done := make(chan error, 1)
			go func() { done <- ia.Close(ctx, dat.CloseAbrupt) }()
			synctest.Wait()
			if len(done) > 0 {
				t.Fatal("closed with upcalls running")
			}
			if patient {
				close(gate)
				ok(t, <-done)
			} else {
				cancel(cause)
				err := <-done
				if refused(t, err, dat.InterruptedCall, dat.NoSubtype); !errors.Is(err, cause) {
					t.Fatal(err)
				}
				if l.in.Load() != 3 {
					t.Fatal("upcalls have gone away")
				}
				close(gate)
				synctest.Wait()
			}
			cancel(nil)
			_, err := e.Query()
			refused(t, err, dat.InvalidHandle, dat.InvalidHandle1)
			_, err = ia.Query()
			refused(t, err, dat.InvalidHandle, dat.InvalidHandleIA)
		}
	})
}

// One of several that close at once does it; the others are told.
func TestClosingTwiceAtOnce(t *testing.T) {
	for range 50 {
		ia := newIA(t)
		var closed, refusedCalls atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				switch err := ia.Close(background, dat.CloseAbrupt); {
				case err == nil:
					closed.Add(1)
				case errors.Is(err, dat.InvalidHandleIA):
					refusedCalls.Add(1)
				}
			})
		}
		wg.Wait()
		if closed.Load() != 1 || refusedCalls.Load() != 3 {
			t.Fatalf("%d closed, %d were refused", closed.Load(), refusedCalls.Load())
		}
	}
}

// An asynchronous EVD that was passed in stays when its IA closes; the one that the IA made goes.
func TestTheAsyncEVDOfAnotherIAStays(t *testing.T) {
	dev := newLoop()
	host := openIA(t, dev, dat.Config{})
	async := newEVD(t, host, dat.EVDConfig{Streams: dat.StreamAsync})
	guest := must[*dat.IA](t)(dat.Open(dev, dat.Config{AsyncEVD: async}))
	if guest.AsyncEVD() != async {
		t.Fatal(guest.AsyncEVD())
	}
	refused(t, async.Free(), dat.InvalidState, dat.InvalidStateEVDInUse)
	ok(t, guest.Close(background, dat.CloseGraceful))
	ok(t, async.Free())
}

func TestTheLoggerHearsOfWhatMatters(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(b)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	p := newPair(t, pairConfig{dat: dat.Config{Logger: log}}).connect(t)
	small := newEVD(t, p.b.ia, dat.EVDConfig{MinLen: 1, Streams: dat.StreamConnectionRequest | dat.StreamSoftware})
	post(t, small, 1)
	outcome(t, p.a.evd, p.dial(t, must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: small})).ConnQual()), dat.ConnectionNonPeerRejected)
	next(t, p.b.ia.AsyncEVD(), dat.AsyncErrorEVDOverflow)
	ok(t, p.a.ia.Close(background, dat.CloseAbrupt))
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"opened", "connection", "level=WARN", "EVD_OVERFLOW", "closed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("nothing of %q in\n%s", want, out.String())
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
