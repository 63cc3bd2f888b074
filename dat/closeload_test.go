package dat_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// An IA is closed while everything is going on: it returns in bounded time, whoever is blocked returns, every operation
// of the peer completes exactly once, and nothing is left (TestMain looks for goroutines).

// ledger holds the operations of one side to account: each completes exactly once.
type ledger struct {
	mu     sync.Mutex
	open   map[uint64]bool
	ends   map[*dat.EP]int
	next   uint64
	faults []string
}

func newLedger() *ledger { return &ledger{open: map[uint64]bool{}, ends: map[*dat.EP]int{}} }

// post posts one operation under a new cookie.
func (l *ledger) post(f func(cookie uint64) error) error {
	l.mu.Lock()
	l.next++
	c := l.next
	l.open[c] = true
	l.mu.Unlock()
	err := f(c)
	if err != nil {
		l.mu.Lock()
		delete(l.open, c)
		l.mu.Unlock()
	}
	return err
}

// event notes an event.
func (l *ledger) event(ev dat.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch ev.Number {
	case dat.DTOCompletion:
		d := ev.DTO()
		if !l.open[d.Cookie] {
			l.faults = append(l.faults, fmt.Sprintf("%v completes what is not outstanding", ev))
		}
		delete(l.open, d.Cookie)
	case dat.ConnectionDisconnected, dat.ConnectionBroken:
		l.ends[ev.Connection().EP]++
		if n := l.ends[ev.Connection().EP]; n > 1 {
			l.faults = append(l.faults, fmt.Sprintf("%v is the end number %d", ev, n))
		}
	}
}

func (l *ledger) check(t testing.TB, open bool) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		t.Error(f)
	}
	if open && len(l.open) > 0 {
		t.Errorf("%d operations have not completed", len(l.open))
	}
}

// loaded is one side under load.
type loaded struct {
	*ledger
	ia      *dat.IA
	pz      *dat.PZ
	evd     *dat.EVD
	lmr     *dat.LMR
	psp     *dat.PSP
	soft    *dat.EVD // of software events, so that they take no room of others
	mu      sync.Mutex
	eps     []*dat.EP // connected at some time
	made    []*dat.EP
	stopped atomic.Bool
	wg      sync.WaitGroup
}

func newLoaded(t *testing.T, dev verbs.Device, policy dat.UpcallPolicy) *loaded {
	l := &loaded{ledger: newLedger()}
	l.ia = must[*dat.IA](t)(dat.Open(dev, dat.Config{}))
	l.pz = must[*dat.PZ](t)(l.ia.NewPZ())
	l.lmr = must[*dat.LMR](t)(l.pz.Register(make([]byte, 4096), dat.PrivAll))
	l.evd = newEVD(t, l.ia, dat.EVDConfig{MinLen: 4096, Streams: allStreams &^ dat.StreamAsync, Policy: policy, Upcall: l.upcall})
	l.soft = newEVD(t, l.ia, dat.EVDConfig{Policy: policy, Upcall: func(dat.Event, bool) {}})
	l.psp = must[*dat.PSP](t)(l.ia.NewPSP(dat.PSPConfig{EVD: l.evd}))
	if !policy.Live() {
		l.wg.Go(l.wait)
	}
	return l
}

func (l *loaded) upcall(ev dat.Event, _ bool) { l.handle(ev) }

// wait is the consumer that waits.
func (l *loaded) wait() {
	for {
		ev, _, err := l.evd.Wait(background, 1, 10*time.Millisecond)
		switch {
		case err == nil:
			l.handle(ev)
		case err != dat.ErrTimeout:
			return
		case l.stopped.Load():
			return
		}
	}
}

func (l *loaded) handle(ev dat.Event) {
	l.event(ev)
	switch ev.Number {
	case dat.ConnectionRequest:
		ep, err := l.newEP()
		if err != nil || ev.Request().CR.Accept(ep, nil) != nil {
			ev.Request().CR.Reject(nil)
		}
	case dat.ConnectionEstablished:
		l.mu.Lock()
		l.eps = append(l.eps, ev.Connection().EP)
		l.mu.Unlock()
	case dat.DTOCompletion:
		if d := ev.DTO(); d.Operation == dat.OpReceive && d.Status == dat.StatusSuccess {
			l.post(func(c uint64) error { return d.EP.PostRecv(c, 0) })
		}
	}
}

func (l *loaded) newEP() (*dat.EP, error) {
	ep, err := l.pz.NewEP(dat.EPConfig{Recv: l.evd, Request: l.evd, Connect: l.evd})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.made = append(l.made, ep)
	l.mu.Unlock()
	for range 8 {
		if err := l.post(func(c uint64) error { return ep.PostRecv(c, 0) }); err != nil {
			return nil, err
		}
	}
	return ep, nil
}

// any returns some connected EP.
func (l *loaded) any() *dat.EP {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.eps) == 0 {
		return nil
	}
	return l.eps[rand.IntN(len(l.eps))]
}

// run starts the load (messages without bytes and aligned words, which may be shared without a race): posters, a connector and one who calls everything else, until the IA is closed or stopped.
func (l *loaded) run(peer *loaded) {
	for range 2 {
		l.wg.Go(func() {
			for !l.stopped.Load() {
				ep := l.any()
				if ep == nil {
					runtime.Gosched()
					continue
				}
				err := l.post(func(c uint64) error {
					switch c % 4 {
					case 0:
						return ep.PostSend(c, 0)
					case 1:
						return ep.PostRDMARead(c, 0, peer.lmr.RMRTriplet(0, 8), l.lmr.Triplet(8, 8))
					}
					return ep.PostRDMAWrite(c, 0, peer.lmr.RMRTriplet(16, 8), l.lmr.Triplet(16, 8))
				})
				if err == dat.ErrPostFull {
					runtime.Gosched()
				} else if errors.Is(err, dat.InvalidHandle) {
					return
				}
			}
		})
	}
	l.wg.Go(func() {
		for i := 0; !l.stopped.Load() && i < 100; i++ {
			ep, err := l.newEP()
			if err != nil {
				return
			}
			ep.Connect(peer.ia.Address(), peer.psp.ConnQual(), dat.ConnectConfig{Timeout: time.Minute})
			if i > 4 {
				if old := l.any(); old != nil && i%2 == 0 {
					old.Disconnect(dat.CloseFlags(i / 2 % 2))
				}
			}
			for range 50 {
				runtime.Gosched()
			}
		}
	})
	l.wg.Go(func() {
		for !l.stopped.Load() {
			if l.soft.PostSE(1) != nil {
				for range l.soft.Drain() {
				}
				runtime.Gosched()
			}
			if ep := l.any(); ep != nil {
				ep.Status()
				ep.Query()
			}
			if _, err := l.ia.Query(); err != nil {
				return
			}
		}
	})
}

func TestClosingUnderLoad(t *testing.T) {
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for _, policy := range []dat.UpcallPolicy{dat.UpcallDisable, dat.UpcallSingleInstance, dat.UpcallMany} {
		for _, meaning := range []verbs.CompletionMeaning{verbs.RemoteAcked, verbs.SourceReusable} {
			t.Run(fmt.Sprintf("%v/%v", policy, meaning), func(t *testing.T) {
				for range rounds {
					closeUnderLoad(t, policy, meaning)
				}
			})
		}
	}
}

func closeUnderLoad(t *testing.T, policy dat.UpcallPolicy, meaning verbs.CompletionMeaning) {
	dev := loop.New(loop.Config{Completion: meaning})
	a, b := newLoaded(t, dev, policy), newLoaded(t, dev, policy)
	a.run(b)
	b.run(a)
	eventually(t, "some traffic", func() bool {
		a.ledger.mu.Lock()
		defer a.ledger.mu.Unlock()
		return a.next > 2000
	})
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	ok(t, a.ia.Close(ctx, dat.CloseAbrupt))
	a.stopped.Store(true)
	b.stopped.Store(true)
	done := make(chan bool)
	go func() {
		a.wg.Wait()
		b.wg.Wait()
		close(done)
	}()
	receive(t, "the return of everybody", done)
	a.check(t, false) // no events are promised of a closed IA

	// The other side has all of its events: its connections have ended, and what is left is flushed when its EPs are
	// freed.
	if policy.Live() {
		ok(t, b.evd.Teardown(ctx))
	}
	eventually(t, "the end of every connection of the other side", func() bool {
		for ev := range b.evd.Drain() {
			b.event(ev)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ledger.mu.Lock()
		defer b.ledger.mu.Unlock()
		for _, ep := range b.eps {
			if b.ends[ep] == 0 {
				return false
			}
		}
		return true
	})
	for _, ep := range b.made {
		ok(t, ep.Free())
	}
	for ev := range b.evd.Drain() {
		b.event(ev)
	}
	b.check(t, true)
	ok(t, b.ia.Close(ctx, dat.CloseAbrupt))
}
