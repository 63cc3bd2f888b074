package dat_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/dat/internal/altered"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Tests of the end of connections (5.4, 5.7 of the reference; acceptance AC-18, AC-20, AC-41, AC-43).

// collectEnd takes the events of an EVD up to the end of a connection, and makes sure that nothing follows. It
// returns the completions before the end, by cookie, and the end.
func collectEnd(t *testing.T, e *dat.EVD) (done map[uint64]dat.Status, end dat.EventNumber) {
	t.Helper()
	done = map[uint64]dat.Status{}
	for {
		ev, _, err := e.Wait(background, 1, patience)
		if err != nil {
			t.Fatalf("no end after %d completions: %v", len(done), err)
		}
		switch ev.Number {
		case dat.DTOCompletion:
			d := ev.DTO()
			if _, twice := done[d.Cookie]; twice {
				t.Fatalf("%v came twice", ev)
			}
			done[d.Cookie] = d.Status
		case dat.ConnectionDisconnected, dat.ConnectionBroken:
			for late := range e.Drain() {
				if short(late) != lateRead {
					t.Fatalf("%v after the end", late)
				}
			}
			return done, ev.Number
		default:
			t.Fatal(ev)
		}
	}
}

// lateRead is the completion of a read that was posted when the end was there already.
const lateRead = "RDMA_READ 900 FLUSHED"

// wayToEnd is something that ends a connection.
type wayToEnd struct {
	name string
	do   func(t *testing.T, p *pair, s *side)
	// own is the event that the side gets, 0 if it is gone or does not know which.
	own, peer dat.EventNumber
	gone      bool // the side has no events any more
}

var waysToEnd = []wayToEnd{
	{name: "nothing"},
	{name: "abrupt", own: dat.ConnectionDisconnected, peer: dat.ConnectionDisconnected,
		do: func(t *testing.T, p *pair, s *side) { ok(t, s.ep.Disconnect(dat.CloseAbrupt)) }},
	{name: "graceful", own: dat.ConnectionDisconnected, peer: dat.ConnectionDisconnected,
		do: func(t *testing.T, p *pair, s *side) { ok(t, s.ep.Disconnect(dat.CloseGraceful)) }},
	{name: "graceful, then abrupt", own: dat.ConnectionDisconnected, peer: dat.ConnectionDisconnected,
		do: func(t *testing.T, p *pair, s *side) {
			ok(t, s.ep.Disconnect(dat.CloseGraceful))
			ok(t, s.ep.Disconnect(dat.CloseAbrupt))
		}},
	{name: "twice", own: dat.ConnectionDisconnected, peer: dat.ConnectionDisconnected,
		do: func(t *testing.T, p *pair, s *side) {
			ok(t, s.ep.Disconnect(dat.CloseAbrupt))
			ok(t, s.ep.Disconnect(dat.CloseGraceful))
			ok(t, s.ep.Disconnect(dat.CloseAbrupt))
		}},
	{name: "reset", own: dat.ConnectionDisconnected, peer: dat.ConnectionDisconnected,
		do: func(t *testing.T, p *pair, s *side) {
			ok(t, s.ep.Disconnect(dat.CloseAbrupt))
			ok(t, s.ep.Reset())
		}},
	{name: "free", peer: dat.ConnectionDisconnected, gone: true,
		do: func(t *testing.T, p *pair, s *side) { ok(t, s.ep.Free()) }},
	{name: "close", peer: dat.ConnectionDisconnected, gone: true,
		do: func(t *testing.T, p *pair, s *side) { ok(t, s.ia.Close(background, dat.CloseAbrupt)) }},
	{name: "bad access", own: dat.ConnectionBroken, peer: dat.ConnectionBroken,
		do: func(t *testing.T, p *pair, s *side) {
			other := &p.a
			if s == other {
				other = &p.b
			}
			bad := other.lmr.RMRTriplet(0, 8)
			bad.RMRContext ^= 0x55
			s.ep.PostRDMARead(900, 0, bad, s.lmr.Triplet(0, 8)) // refused if the end is there already
		}},
}

// Who ends × how × both at once: each side that is left gets exactly one end, and before it each of its posts
// completes exactly once.
func TestEveryWayToEndAConnection(t *testing.T) {
	for _, meaning := range []verbs.CompletionMeaning{verbs.RemoteAcked, verbs.SourceReusable} {
		for _, a := range waysToEnd {
			for _, b := range waysToEnd {
				if a.do == nil && b.do == nil {
					continue
				}
				t.Run(fmt.Sprintf("%v/a %s, b %s", meaning, a.name, b.name), func(t *testing.T) {
					rounds := 10
					if testing.Short() {
						rounds = 2
					}
					for range rounds {
						endOnce(t, meaning, a, b)
					}
				})
			}
		}
	}
}

func endOnce(t *testing.T, meaning verbs.CompletionMeaning, a, b wayToEnd) {
	p := newPair(t, pairConfig{loop: loop.Config{Completion: meaning}}).connect(t)
	sides := []*side{&p.a, &p.b}
	ways := []wayToEnd{a, b}
	const recvs, writes = 8, 5
	for _, s := range sides {
		for i := range recvs {
			ok(t, s.ep.PostRecv(uint64(i), 0, s.lmr.Triplet(0, 8)))
		}
	}
	for i := range writes {
		ok(t, p.a.ep.PostRDMAWrite(uint64(100+i), 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
		ok(t, p.b.ep.PostSend(uint64(200+i), 0, p.b.lmr.Triplet(0, 8)))
	}
	done := make(chan bool, 2)
	for i, w := range ways {
		go func() {
			defer func() { done <- true }()
			if w.do != nil {
				w.do(t, p, sides[i])
			}
		}()
	}
	for range 2 {
		receive(t, "the return of what ends the connection", done)
	}
	for i, s := range sides {
		if ways[i].gone {
			continue
		}
		got, end := collectEnd(t, s.evd)
		want := map[uint64]bool{}
		for c := range recvs {
			want[uint64(c)] = true
		}
		for c := range writes {
			want[uint64([]int{100, 200}[i]+c)] = true
		}
		for c, status := range got {
			if c == 900 {
				delete(want, c)
				continue
			}
			if !want[c] {
				t.Fatalf("a completion of %d that was not posted", c)
			}
			delete(want, c)
			// All writes and sends had run; so had the receives of the sends.
			switch {
			case c >= 100 && status != dat.StatusSuccess, i == 0 && c < writes && status != dat.StatusSuccess, i == 1 && c < 100 && status != dat.StatusFlushed:
				t.Fatalf("side %d: %d completed with %v", i, c, status)
			}
		}
		if len(want) > 0 {
			t.Fatalf("side %d: no completion of %v", i, want)
		}
		// Which end it is.
		own, peer := ways[i], ways[1-i]
		if own.do == nil && end != peer.peer || peer.do == nil && own.own != 0 && end != own.own {
			t.Fatalf("side %d: the end is %v", i, end)
		}
		wantState := dat.StateDisconnected
		if own.name == "reset" {
			wantState = dat.StateUnconnected
		}
		if s := state(t, s.ep); s != wantState {
			t.Fatalf("side %d is %v", i, s)
		}
	}
}

// Gracefully, what is posted runs, nothing new is taken, and then the connection ends.
func TestGracefulDisconnectRunsWhatIsPosted(t *testing.T) {
	p := newPair(t, pairConfig{loop: loop.Config{Completion: verbs.RemoteAcked}}).connect(t)
	// Two sends wait for receives of the peer.
	for i := range 2 {
		ok(t, p.a.ep.PostSend(uint64(i), 0, p.a.lmr.Triplet(0, 8)))
	}
	ok(t, p.a.ep.PostRecv(9, 0, p.a.lmr.Triplet(0, 8)))
	ok(t, p.a.ep.Disconnect(dat.CloseGraceful))
	if s := state(t, p.a.ep); s != dat.StateDisconnectPending {
		t.Fatal(s)
	}
	refused(t, p.a.ep.PostSend(2, 0, p.a.lmr.Triplet(0, 8)), dat.InvalidState, dat.InvalidStateEPDiscPending)
	if n, err := p.a.ep.Post([]dat.Request{{Op: dat.OpSend}}); n != 0 {
		t.Fatal(n, err)
	} else {
		refused(t, err, dat.InvalidState, dat.InvalidStateEPDiscPending)
	}
	ok(t, p.a.ep.PostRecv(10, 0, p.a.lmr.Triplet(0, 8))) // receives are taken in every state
	ok(t, p.a.ep.Disconnect(dat.CloseGraceful))          // no effect
	refused(t, p.a.ep.Reset(), dat.InvalidState, dat.InvalidStateEPDiscPending)
	empty(t, p.a.evd)
	for i := range 2 {
		ok(t, p.b.ep.PostRecv(uint64(i), 0, p.b.lmr.Triplet(0, 8)))
		nextDTO(t, p.b.evd, uint64(i), dat.StatusSuccess)
	}
	done, end := collectEnd(t, p.a.evd)
	if fmt.Sprint(done) != fmt.Sprint(map[uint64]dat.Status{0: 0, 1: 0, 9: dat.StatusFlushed, 10: dat.StatusFlushed}) || end != dat.ConnectionDisconnected {
		t.Fatal(done, end)
	}
	outcome(t, p.b.evd, p.b.ep, dat.ConnectionDisconnected)
}

// Gracefully, with a peer that ends abruptly meanwhile.
func TestGracefulDisconnectWhenThePeerGoes(t *testing.T) {
	p := connectPair(t, 64)
	ok(t, p.a.ep.PostSend(1, 0, p.a.lmr.Triplet(0, 8))) // waits for a receive that never comes
	ok(t, p.a.ep.Disconnect(dat.CloseGraceful))
	ok(t, p.b.ep.Disconnect(dat.CloseAbrupt))
	nextDTO(t, p.a.evd, 1, dat.StatusFlushed)
	outcome(t, p.a.evd, p.a.ep, dat.ConnectionDisconnected)
	outcome(t, p.b.evd, p.b.ep, dat.ConnectionDisconnected)
}

func TestDisconnectNeedsAConnection(t *testing.T) {
	p := newPair(t, pairConfig{})
	for _, f := range []dat.CloseFlags{dat.CloseAbrupt, dat.CloseGraceful} {
		refused(t, p.a.ep.Disconnect(f), dat.InvalidState, dat.InvalidStateEPUnconnected)
	}
	p.connect(t)
	for _, f := range []dat.CloseFlags{2, 3, 1 << 31, 1<<32 - 1} {
		refused(t, p.a.ep.Disconnect(f), dat.InvalidParameter, dat.InvalidArg2)
	}
	if s := state(t, p.a.ep); s != dat.StateConnected {
		t.Fatal(s)
	}
}

// In StateDisconnected posts are accepted and complete flushed; so do receives. After a reset the EP is as new.
func TestPostsOnADisconnectedEPAreFlushed(t *testing.T) {
	p := connectPair(t, 64)
	ok(t, p.b.ep.Disconnect(dat.CloseAbrupt))
	outcome(t, p.a.evd, p.a.ep, dat.ConnectionDisconnected)
	outcome(t, p.b.evd, p.b.ep, dat.ConnectionDisconnected)
	for i := range 3 {
		c := uint64(3 * i)
		ok(t, p.a.ep.PostSend(c, dat.CompletionSuppress, p.a.lmr.Triplet(0, 8))) // only success is suppressed
		ok(t, p.a.ep.PostRDMARead(c+1, 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
		ok(t, p.a.ep.PostRecv(c+2, 0, p.a.lmr.Triplet(0, 8)))
		for j := range 3 {
			nextDTO(t, p.a.evd, c+uint64(j), dat.StatusFlushed)
		}
	}
	ok(t, p.a.ep.Reset())
	refused(t, p.a.ep.PostSend(1, 0, p.a.lmr.Triplet(0, 8)), dat.InvalidState, dat.InvalidStateEPUnconnected)
	empty(t, p.a.evd)
	ok(t, p.b.ep.Reset())
	p.connect(t)
}

func TestResetNeedsADisconnectedEP(t *testing.T) {
	p := newPair(t, pairConfig{})
	// In StateUnconnected it does nothing: receives stay posted.
	ok(t, p.a.ep.PostRecv(1, 0, p.a.lmr.Triplet(0, 8)))
	ok(t, p.a.ep.Reset())
	if s := must[dat.EPStatus](t)(p.a.ep.Status()); s.RecvIdle || s.State != dat.StateUnconnected {
		t.Fatal(s)
	}
	ok(t, p.call())
	refused(t, p.a.ep.Reset(), dat.InvalidState, dat.InvalidStateEPActConnPending)
	ok(t, p.b.request1(t).Accept(p.b.ep, nil))
	p.a.next(t, dat.ConnectionEstablished)
	p.b.next(t, dat.ConnectionEstablished)
	refused(t, p.a.ep.Reset(), dat.InvalidState, dat.InvalidStateEPConnected)
	ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
	// At once: what was flushed and the end are queued before the EP is as new.
	ok(t, p.a.ep.Reset())
	nextDTO(t, p.a.evd, 1, dat.StatusFlushed)
	p.a.next(t, dat.ConnectionDisconnected)
	empty(t, p.a.evd)
	q := must[dat.EPParam](t)(p.a.ep.Query())
	if q.State != dat.StateUnconnected || q.RemoteAddress.IsValid() || q.RemotePortQual != 0 {
		t.Fatalf("%+v", q)
	}
}

// Connect, use, end, reset, again and again, on the same EPs.
func TestEPsAreUsedAgain(t *testing.T) {
	p := newPair(t, pairConfig{})
	for i := range 20 {
		ok(t, p.b.ep.PostRecv(1, 0, p.b.lmr.Triplet(0, 8)))
		p.connect(t)
		ok(t, p.a.ep.PostSend(2, 0, p.a.lmr.Triplet(0, 8)))
		nextDTO(t, p.a.evd, 2, dat.StatusSuccess)
		nextDTO(t, p.b.evd, 1, dat.StatusSuccess)
		x, y := &p.a, &p.b
		if i%2 != 0 {
			x, y = y, x
		}
		ok(t, x.ep.Disconnect(dat.CloseFlags(i/2%2)))
		outcome(t, x.evd, x.ep, dat.ConnectionDisconnected)
		outcome(t, y.evd, y.ep, dat.ConnectionDisconnected)
		ok(t, x.ep.Reset())
		ok(t, y.ep.Reset())
		if _, n := drainNumbers(p.a.evd), queued(t, p.b.evd); n != 0 {
			t.Fatal("something is left")
		}
	}
	q := must[dat.EPParam](t)(p.a.ep.Query())
	if q.RequestCounters.Posted != 20 || q.RequestCounters.Succeeded != 20 || q.RequestCounters.Bytes != 160 || q.RequestCounters.Flushed+q.RequestCounters.Failed != 0 {
		t.Fatalf("%+v", q.RequestCounters)
	}
}

// The events of an EP that was freed still name it, for as long as they are queued.
func TestEventsOfAFreedEPStillNameIt(t *testing.T) {
	p := newPair(t, pairConfig{})
	for range 300 { // more than there are places that are looked at
		ep := p.a.newEP(t, nil)
		ok(t, ep.PostRecv(1, 0, p.a.lmr.Triplet(0, 8)))
		ok(t, ep.Free())
		other := p.a.newEP(t, nil)
		ok(t, other.Free())
		if d := nextDTO(t, p.a.evd, 1, dat.StatusFlushed); d.EP != ep {
			t.Fatalf("names %v, want %v", d.EP, ep)
		}
	}
	// With many of them queued at once.
	var eps []*dat.EP
	for range 100 {
		ep := p.a.newEP(t, nil)
		ok(t, ep.PostRecv(2, 0, p.a.lmr.Triplet(0, 8)))
		ok(t, ep.Free())
		eps = append(eps, ep)
	}
	for _, ep := range eps {
		if d := nextDTO(t, p.a.evd, 2, dat.StatusFlushed); d.EP != ep {
			t.Fatalf("names %v, want %v", d.EP, ep)
		}
		refused(t, ep.Free(), dat.InvalidHandle, dat.InvalidHandleEP)
	}
	if n := must[dat.IAParam](t)(p.a.ia.Query()).Counters.EPs; n != 1 {
		t.Fatalf("%d EPs are counted", n)
	}
}

// The events of a connection show its data as long as the EP is not reset.
func TestConnectionDataLastsUntilReset(t *testing.T) {
	p := newPair(t, pairConfig{})
	ok(t, p.call())
	ok(t, p.b.request1(t).Accept(p.b.ep, []byte("welcome")))
	est := p.a.next(t, dat.ConnectionEstablished)
	ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
	end := p.a.next(t, dat.ConnectionDisconnected)
	if string(est.Connection().PrivateData) != "welcome" || end.Connection().PrivateData != nil {
		t.Fatalf("%q, %q", est.Connection().PrivateData, end.Connection().PrivateData)
	}
	ok(t, p.a.ep.Reset())
	if est.Connection().PrivateData != nil || est.Connection().EP != p.a.ep {
		t.Fatal("the old connection's data outlive the reset")
	}
}

// A connection that breaks says why.
func TestABrokenConnectionSaysWhy(t *testing.T) {
	for _, meaning := range []verbs.CompletionMeaning{verbs.RemoteAcked, verbs.SourceReusable} {
		p := newPair(t, pairConfig{loop: loop.Config{Completion: meaning}}).connect(t)
		bad := p.b.lmr.RMRTriplet(0, 8)
		bad.RMRContext++
		ok(t, p.a.ep.PostRDMARead(1, 0, bad, p.a.lmr.Triplet(0, 8)))
		nextDTO(t, p.a.evd, 1, dat.StatusRemoteAccess)
		for _, s := range []*side{&p.a, &p.b} {
			c := outcome(t, s.evd, s.ep, dat.ConnectionBroken)
			if !strings.Contains(c.Cause.Error(), "terminate") {
				t.Fatalf("cause %v", c.Cause)
			}
		}
	}
}

// When the adapter is taken away, everything ends in events, and Close works.
func TestWhenTheAdapterIsTakenAway(t *testing.T) {
	p := newPair(t, pairConfig{}).connect(t)
	waiting := p.a.newEP(t, nil)
	ok(t, waiting.PostRecv(50, 0, p.a.lmr.Triplet(0, 8)))
	ok(t, waiting.Connect(p.b.ia.Address(), p.psp.ConnQual(), dat.ConnectConfig{Timeout: time.Hour}))
	p.b.request1(t)
	for _, s := range []*side{&p.a, &p.b} {
		for i := range 4 {
			ok(t, s.ep.PostRecv(uint64(i), 0, s.lmr.Triplet(0, 8)))
		}
	}
	p.dev.Remove()
	for _, s := range []*side{&p.a, &p.b} {
		ev := next(t, s.ia.AsyncEVD(), dat.AsyncErrorIACatastrophic)
		if ev.Async().Object != dat.Object(s.ia) || ev.Async().Reason != dat.ReasonIACatastrophic {
			t.Fatal(ev)
		}
		var got []string
		n := 5
		if s == &p.a {
			n = 7 // and those of the EP that was connecting
		}
		for range n {
			ev, _, err := s.evd.Wait(background, 1, patience)
			if err != nil {
				t.Fatalf("after %q: %v", got, err)
			}
			got = append(got, short(ev))
		}
		if !slices.Contains(got, dat.ConnectionBroken.String()) || s == &p.a && !slices.Contains(got, "RECEIVE 50 FLUSHED") {
			t.Fatalf("%q", got)
		}
		empty(t, s.evd)
		_, err := s.ia.NewPZ()
		refused(t, err, dat.ProviderNotFound, dat.NameNotRegistered)
		ok(t, s.ia.Close(context.Background(), dat.CloseAbrupt))
	}
	_, err := dat.Open(p.dev, dat.Config{})
	refused(t, err, dat.ProviderNotFound, dat.NameNotRegistered)
}

// The one who sees the marks of the end may be anybody who looks at the queue: the end comes although nobody dequeues, and
// with each way in which an adapter may order its news.
func TestTheEndComesHoweverTheAdapterOrdersItsNews(t *testing.T) {
	for name, hooks := range map[string]func(late <-chan struct{}) altered.Hooks{
		"notifying late": func(<-chan struct{}) altered.Hooks {
			return altered.Hooks{Notify: func(notify func()) { go notify() }}
		},
		"events after marks": func(late <-chan struct{}) altered.Hooks {
			return altered.Hooks{Conn: func(ev verbs.ConnEvent, deliver func(verbs.ConnEvent)) {
				if ev.Kind.Terminal() {
					<-late
				}
				deliver(ev)
			}}
		},
		"notifying too often": func(<-chan struct{}) altered.Hooks {
			return altered.Hooks{
				Arm:    func(_ verbs.ArmKind, arm func(verbs.ArmKind) bool) bool { return arm(verbs.ArmNext) },
				Notify: func(notify func()) { notify(); notify() },
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			late := make(chan struct{})
			p := newPair(t, pairConfig{split: true, wrap: func(d *loop.Device) verbs.Device {
				return &altered.Device{Device: d, Hooks: hooks(late)}
			}}).connect(t)
			for i := range 4 {
				ok(t, p.b.ep.PostRecv(uint64(i), 0, p.b.lmr.Triplet(0, 8)))
			}
			ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
			// Nobody dequeues the receives.
			next(t, p.a.connect, dat.ConnectionDisconnected)
			eventually(t, "the completions", func() bool { return queued(t, p.b.recv) == 4 })
			close(late)
			next(t, p.b.connect, dat.ConnectionDisconnected)
			if queued(t, p.b.recv) != 4 {
				t.Fatal("the end came before the completions")
			}
		})
	}
}
