package dattest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/dat"
	"kdapl/device/iwarp"
	"kdapl/device/loop"
	"kdapl/internal/faultnet"
	"kdapl/internal/netio"
	"kdapl/verbs"
)

var (
	soakFor   = flag.Duration("for", 2*time.Second, "how long TestSoak and TestSoakInFakeTime run, each")
	soakSeed  = flag.Uint64("soakseed", 0, "their seed; 0 draws one")
	soakFirst = flag.Uint64("soaklife", 0, "the first life of TestSoakInFakeTime")
)

// TestSoak lets random consumers, with random and changing upcall policies, run a full load between two IAs until the
// connection ends in a random way, again and again, over loop and over iWARP with and without faults on the
// way. Then the books must agree: each operation that was posted has come back as one event, done or flushed, each
// software event that was taken has been delivered, and each side has seen one end, as its last event.
func TestSoak(t *testing.T) {
	s := newSoak(t, time.Minute, 20*time.Microsecond)
	adapters := soakAdapters()
	end := time.Now().Add(*soakFor)
	var wg sync.WaitGroup
	for w := range uint64(4) {
		wg.Go(func() {
			for round := uint64(0); time.Now().Before(end) && !t.Failed(); round++ {
				rng := rand.New(rand.NewPCG(s.seed, w<<32|round))
				ad := adapters[rng.IntN(len(adapters))]
				active, passive, plan := ad.devices(rng)
				s.life(t, rng, active, passive, fmt.Sprintf("-soakseed %d, worker %d, life %d (%s %s)", s.seed, w, round, ad.name, plan))
			}
		})
	}
	wg.Wait()
	s.report(t)
}

// TestSoakInFakeTime is TestSoak over simulated networks with faults, each life in a bubble: however slow the
// line is, there is an end, and nothing is left behind.
func TestSoakInFakeTime(t *testing.T) {
	s := newSoak(t, 12*time.Hour, time.Millisecond)
	for end, life := time.Now().Add(*soakFor), *soakFirst; time.Now().Before(end) && !t.Failed(); life++ {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(s.seed, life))
			active, passive, plan := simulated(rng)
			s.life(t, rng, active, passive, fmt.Sprintf("-soakseed %d -soaklife %d (%s)", s.seed, life, plan))
			time.Sleep(time.Hour) // the last connections end
		})
	}
	s.report(t)
}

// soak is a run of many lives.
type soak struct {
	seed     uint64
	patience time.Duration // how long something may take
	nap      time.Duration // of those who poll
	total    soakBooks

	// What the totals leave out: sides whose IA was closed under load, and what they had posted. What has not been
	// delivered then is lost with the EVD.
	closed, lost atomic.Int64
}

func newSoak(t *testing.T, patience, nap time.Duration) *soak {
	s := &soak{seed: *soakSeed, patience: patience, nap: nap}
	if s.seed == 0 {
		s.seed = rand.Uint64()
	}
	t.Logf("-soakseed %d", s.seed)
	return s
}

// report tells the totals and checks that they agree.
func (s *soak) report(t *testing.T) {
	b := &s.total
	t.Logf("%d lives: %d operations posted, %d done, %d flushed, %d failed, %d receives kept by EPs that were never connected; %d software events posted, %d delivered; %d connections, %d ends",
		b.lives.Load(), b.posted.Load(), b.done.Load(), b.flushed.Load(), b.failed.Load(), b.kept.Load(),
		b.sePosted.Load(), b.seDelivered.Load(), b.established.Load(), b.ends.Load())
	t.Logf("not among these: %d sides whose IA was closed under load, with %d operations", s.closed.Load(), s.lost.Load())
	if !t.Failed() && (b.posted.Load() != b.over()+b.kept.Load() || b.sePosted.Load() != b.seDelivered.Load()) {
		t.Error("the totals do not agree")
	}
}

// soakBooks are what is counted.
type soakBooks struct {
	lives, posted, done, flushed, failed, kept, sePosted, seDelivered, established, ends atomic.Int64
}

func (b *soakBooks) add(o *soakBooks) {
	for _, p := range [][2]*atomic.Int64{
		{&b.posted, &o.posted}, {&b.done, &o.done}, {&b.flushed, &o.flushed}, {&b.failed, &o.failed}, {&b.kept, &o.kept},
		{&b.sePosted, &o.sePosted}, {&b.seDelivered, &o.seDelivered}, {&b.established, &o.established}, {&b.ends, &o.ends},
	} {
		p[0].Add(p[1].Load())
	}
}

// over is what has come back.
func (b *soakBooks) over() int64 { return b.done.Load() + b.flushed.Load() + b.failed.Load() }

type soakAdapter struct {
	name string
	// devices makes the two sides' devices, and says what is particular about them.
	devices func(rng *rand.Rand) (active, passive verbs.Device, plan string)
}

func soakAdapters() []soakAdapter {
	same := func(d verbs.Device) func(*rand.Rand) (active, passive verbs.Device, plan string) {
		return func(*rand.Rand) (verbs.Device, verbs.Device, string) { return d, d, "" }
	}
	return []soakAdapter{
		{"loop", same(loop.New(loop.Config{Completion: verbs.RemoteAcked}))},
		{"loop, source reusable", same(loop.New(loop.Config{Completion: verbs.SourceReusable}))},
		{"iwarp", same(iwarp.New(iwarp.Config{}))},
		{"iwarp, no CRC", same(iwarp.New(iwarp.Config{NoCRC: true}))},
		{"iwarp with faults", faultySockets},
	}
}

// faultySockets is iWARP over TCP, with a plan of faults.
func faultySockets(rng *rand.Rand) (active, passive verbs.Device, plan string) {
	p := passable(faultnet.Faulty(rng.Uint64(), 200000))
	// A fault may cut a set-up, or a stream that has stood still for ever: short time-outs end both.
	cfg := iwarp.Config{UserTimeout: 500 * time.Millisecond, StartTimeout: time.Second, Linger: 100 * time.Millisecond}
	passive = iwarp.New(cfg)
	cfg.Network = &faultnet.WrappedNetwork{
		Under: &netio.TCP{}, UserTimeout: cfg.UserTimeout, KeepAlive: cfg.UserTimeout,
		Plan: func(faultnet.Attempt) faultnet.Plan { return p },
	}
	return iwarp.New(cfg), passive, p.String()
}

// passable is a plan with lines that carry what a side has under way within seconds of real time: an end comes
// behind it.
func passable(p faultnet.Plan) faultnet.Plan {
	const least = 32000 // bytes per second
	for _, s := range []*faultnet.Stream{&p.Up, &p.Down} {
		if s.Rate > 0 {
			s.Rate = max(s.Rate, least)
		}
		if s.Window > 0 {
			s.Window = max(s.Window, 64, int((s.Latency+s.Jitter).Seconds()*least))
		}
	}
	return p
}

// simulated is iWARP on two hosts of a simulated network with a plan of faults, which is either the network's or
// put over the dialling side's connection.
func simulated(rng *rand.Rand) (active, passive verbs.Device, plan string) {
	p := faultnet.Faulty(rng.Uint64(), 200000)
	n := faultnet.New()
	cfg := iwarp.Config{UserTimeout: 500 * time.Millisecond, StartTimeout: time.Second, Linger: 100 * time.Millisecond}
	host := func(addr string) (*faultnet.Host, iwarp.Config) {
		c := cfg
		c.Addr = netip.MustParseAddr(addr)
		h := n.Host(c.Addr)
		h.UserTimeout, h.KeepAlive = cfg.UserTimeout, cfg.UserTimeout
		c.Network = h
		return h, c
	}
	x, a := host("10.0.0.1")
	_, b := host("10.0.0.2")
	plans := func(faultnet.Attempt) faultnet.Plan { return p }
	where := "network"
	if rng.IntN(2) == 0 {
		n.Plan = plans
	} else {
		where = "wrapped"
		a.Network = &faultnet.WrappedNetwork{Under: x, UserTimeout: cfg.UserTimeout, KeepAlive: cfg.UserTimeout, Plan: plans}
	}
	return iwarp.New(a), iwarp.New(b), where + " " + p.String()
}

// soaker is one side of a life.
type soaker struct {
	t     *testing.T
	soak  *soak
	what  string
	ia    *dat.IA
	evd   *dat.EVD
	ep    *dat.EP
	lmr   *dat.LMR
	there dat.RMRTriplet
	books soakBooks
	wild  atomic.Bool // writes go where they may not
	stop  atomic.Bool // no more software events, no more changes
	gone  atomic.Bool // its IA is being closed: nothing is to be delivered any more
	reqs  chan *dat.CR
	wg    sync.WaitGroup
	clock sync.WaitGroup // who posts software events
}

const soakDepth = 4

func (so *soak) side(t *testing.T, what string, d verbs.Device) *soaker {
	s := &soaker{t: t, soak: so, what: what, reqs: make(chan *dat.CR, 8)}
	var err error
	fatal := func(err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.ia, err = dat.Open(d, dat.Config{})
	fatal(err)
	pz, err := s.ia.NewPZ()
	fatal(err)
	s.lmr, err = pz.Register(make([]byte, 64<<10), dat.PrivAll)
	fatal(err)
	s.evd, err = s.ia.NewEVD(dat.EVDConfig{MinLen: 64, Streams: dat.StreamConnectionRequest | dat.StreamDTO | dat.StreamConnection | dat.StreamSoftware})
	fatal(err)
	s.ep, err = pz.NewEP(dat.EPConfig{Recv: s.evd, Request: s.evd, Connect: s.evd})
	fatal(err)
	return s
}

// on is every consumer's way with an event.
func (s *soaker) on(ev dat.Event) {
	b := &s.books
	switch ev.Stream() {
	case dat.StreamSoftware:
		b.seDelivered.Add(1)
	case dat.StreamConnectionRequest:
		s.reqs <- ev.Request().CR
	case dat.StreamConnection:
		if ev.Number == dat.ConnectionEstablished {
			b.established.Add(1)
			s.run()
			return
		}
		b.ends.Add(1)
	case dat.StreamDTO:
		d := ev.DTO()
		switch d.Status {
		case dat.StatusSuccess:
			b.done.Add(1)
			if d.Cookie != aSoakSend {
				s.post(d.Cookie)
			}
			if d.Cookie == aSoakRecv {
				s.post(aSoakSend)
			}
		case dat.StatusFlushed:
			b.flushed.Add(1)
		default:
			b.failed.Add(1)
		}
	}
}

const (
	aSoakRecv uint64 = iota
	aSoakSend
	aSoakWrite
	aSoakRead
)

func (s *soaker) post(kind uint64) {
	s.books.posted.Add(1) // before the event can come
	var err error
	switch kind {
	case aSoakRecv:
		err = s.ep.PostRecv(kind, 0, s.lmr.Triplet(0, 64))
	case aSoakSend:
		err = s.ep.PostSend(kind, 0, s.lmr.Triplet(64, 64))
	case aSoakWrite:
		to := s.there
		if s.wild.Load() {
			to.VirtualAddress += 1 << 20
		}
		err = s.ep.PostRDMAWrite(kind, 0, to, s.lmr.Triplet(8<<10, 8<<10))
	case aSoakRead:
		err = s.ep.PostRDMARead(kind, 0, s.there, s.lmr.Triplet(16<<10, 8<<10))
	}
	if err != nil {
		s.books.posted.Add(-1)
		if !errors.Is(err, dat.InvalidState) && !errors.Is(err, dat.InvalidHandle) && !errors.Is(err, dat.InsufficientResources) && !errors.Is(err, dat.InternalError) {
			s.t.Errorf("%s: post %d: %v", s.what, kind, err)
		}
	}
}

// run begins the load.
func (s *soaker) run() {
	for range soakDepth {
		s.post(aSoakSend)
	}
	s.post(aSoakWrite)
	s.post(aSoakRead)
}

// consume starts consumers of a random kind, which change as they like.
func (s *soaker) consume(rng *rand.Rand) {
	upcall := func(ev dat.Event, _ bool) { s.on(ev) }
	style, pause := rng.IntN(5), time.Duration(rng.IntN(2000))*time.Microsecond
	mod := func(p dat.UpcallPolicy, f dat.UpcallFlag) {
		fn := upcall
		if p == dat.UpcallDisable {
			fn = nil
		}
		if err := s.evd.ModifyUpcall(p, fn, f); err != nil && !s.gone.Load() {
			s.t.Errorf("%s: ModifyUpcall: %v", s.what, err)
		}
	}
	switch style {
	case 0, 1: // upcalls
		mod([]dat.UpcallPolicy{dat.UpcallSingleInstance, dat.UpcallMany}[style], dat.InvocAny)
	case 2: // a waiter
		s.wg.Go(func() {
			for {
				ev, _, err := s.evd.Wait(context.Background(), 1, dat.Infinite)
				if err != nil {
					return
				}
				s.on(ev)
			}
		})
	case 3: // several pollers
		for range 2 {
			s.wg.Go(func() {
				buf := make([]dat.Event, 5)
				for !s.over() {
					n := s.evd.DequeueInto(buf)
					for _, ev := range buf[:n] {
						s.on(ev)
					}
					if n == 0 {
						time.Sleep(s.soak.nap)
					}
				}
			})
		}
	case 4: // upcalls that a controller takes away and gives back, as the consumers of 2005
		mod(dat.UpcallSingleInstance, dat.InvocAny)
		s.wg.Go(func() {
			for many := false; !s.over(); many = !many {
				time.Sleep(max(pause, s.soak.nap))
				mod(dat.UpcallDisable, dat.InvocNew)
				for ev := range s.evd.Drain() {
					s.on(ev)
				}
				policy := dat.UpcallSingleInstance
				if many {
					policy = dat.UpcallMany
				}
				mod(policy, dat.InvocAny)
			}
		})
	}
	s.clock.Go(func() { // software events among the others
		for i := uint64(0); !s.stop.Load(); i++ {
			// Not so many that an event of the connection finds no room: that is an overflow.
			if s.books.sePosted.Load()-s.books.seDelivered.Load() < 16 && s.evd.PostSE(i) == nil {
				s.books.sePosted.Add(1)
			}
			time.Sleep(max(pause/8, s.soak.nap))
		}
	})
}

// over: every consumer may stop.
func (s *soaker) over() bool { return s.gone.Load() }

// idle: the books agree, and there has been an end if there has to be one. An EP that was never to be connected keeps its
// receives.
func (s *soaker) idle(ended bool) bool {
	if ended {
		return s.books.ends.Load() == 1 && s.settled()
	}
	return s.books.over() == 0 && s.books.seDelivered.Load() == s.books.sePosted.Load()
}

// settled: the books agree.
func (s *soaker) settled() bool {
	b := &s.books
	return b.over() == b.posted.Load() && b.seDelivered.Load() == b.sePosted.Load()
}

// life is one connection from its set-up to its end, and the books behind it.
func (so *soak) life(t *testing.T, rng *rand.Rand, active, passive verbs.Device, what string) {
	a, b := so.side(t, what+" active", active), so.side(t, what+" passive", passive)
	if t.Failed() {
		return
	}
	a.there, b.there = b.lmr.RMRTriplet(32<<10, 8<<10), a.lmr.RMRTriplet(32<<10, 8<<10)
	psp, err := b.ia.NewPSP(dat.PSPConfig{EVD: b.evd})
	if err != nil {
		t.Errorf("%s: NewPSP: %v", what, err)
		return
	}
	for _, s := range []*soaker{a, b} {
		for range 2 * soakDepth {
			s.post(aSoakRecv)
		}
		s.consume(rng)
	}
	var accepted atomic.Bool
	serving := make(chan struct{})
	stopServing := make(chan struct{})
	go func() {
		defer close(serving)
		for {
			select {
			case cr := <-b.reqs:
				if cr.Accept(b.ep, nil) == nil {
					accepted.Store(true)
				} else {
					cr.Reject(nil) // the peer may be gone
				}
			case <-stopServing:
				return
			}
		}
	}()
	if err := a.ep.Connect(b.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: 2 * time.Second}); err != nil {
		t.Errorf("%s: Connect: %v", what, err)
	}
	until := func(name string, cond func() bool) bool {
		for end := time.Now().Add(so.patience); !cond(); time.Sleep(5 * so.nap) {
			if time.Now().After(end) {
				t.Errorf("%s: %s: active %v, passive %v", what, name, a, b)
				return false
			}
		}
		return true
	}
	until("no outcome", func() bool { return a.books.established.Load()+a.books.ends.Load() > 0 })
	time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
	way := rng.IntN(7)
	what += fmt.Sprintf(", way %d", way)
	switch way {
	case 0:
		a.ep.Disconnect(dat.CloseGraceful) // it may have ended
	case 1:
		a.ep.Disconnect(dat.CloseAbrupt)
	case 2:
		b.ep.Disconnect(dat.CloseAbrupt)
	case 3:
		go b.ep.Disconnect(dat.CloseGraceful)
		a.ep.Disconnect(dat.CloseAbrupt)
	case 4:
		a.close()
	case 5:
		b.close()
	case 6: // what is not allowed
		a.wild.Store(true)
		until("no end", func() bool { return a.books.ends.Load() > 0 })
	}
	for _, s := range []*soaker{a, b} {
		if s.gone.Load() {
			continue
		}
		s.stop.Store(true)
		s.clock.Wait()
		until("the books do not agree", func() bool {
			return s.idle(s == a || accepted.Load())
		})
	}
	close(stopServing)
	for _, s := range []*soaker{a, b} {
		if !s.gone.Load() {
			if s.books.ends.Load() > 1 || s.books.established.Load() > 1 || !s.idle(s == a || accepted.Load()) {
				t.Errorf("%s: %v", what, s)
			}
			if s.books.established.Load() == 0 && s.books.ends.Load() == 0 {
				s.books.kept.Store(s.books.posted.Load())
			}
			so.total.add(&s.books)
		} else {
			so.closed.Add(1)
			so.lost.Add(s.books.posted.Load())
		}
		s.close()
		s.wg.Wait()
	}
	<-serving
	so.total.lives.Add(1)
}

// close closes the side's IA; what is not delivered then is lost with it.
func (s *soaker) close() {
	s.stop.Store(true)
	s.clock.Wait()
	if s.gone.Swap(true) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.ia.Close(ctx, dat.CloseAbrupt); err != nil {
		s.t.Errorf("%s: Close: %v", s.what, err)
	}
}

func (s *soaker) String() string {
	b := &s.books
	return fmt.Sprintf("%d posted, %d done, %d flushed, %d failed, %d of %d software events, %d established, %d ends",
		b.posted.Load(), b.done.Load(), b.flushed.Load(), b.failed.Load(), b.seDelivered.Load(), b.sePosted.Load(), b.established.Load(), b.ends.Load())
}
