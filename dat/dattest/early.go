package dattest

import (
	"sync"
	"time"

	"kdapl/dat"
)

// connAnswer: a message that arrives before the adapter tells of the connection waits for that, so that an upcall of the
// receive can answer at once, whichever EVDs the EP has and whichever side sends first.
func connAnswer(e *env) {
	for _, first := range []*side{e.a, e.b} {
		for _, share := range []early{apart, transfers, everything} {
			newAnswerer(e, first, share).run(e.rounds(170))
		}
	}
}

// early is what the EVD of the receives takes beside them.
type early int

const (
	apart      early = iota // nothing
	transfers               // the requests
	everything              // the requests and the connection
)

// answerer connects EPs of two sides, of which one sends as soon as its EP lets it, and the other answers in the upcall of the
// receive.
type answerer struct {
	*env
	first, other *side
	share        early
	recv         *dat.EVD // of the other side's receives, with upcalls
	established  bool     // the other side has been told of the present connection; of the upcall
	sent, ended  chan struct{}
}

func newAnswerer(e *env, first *side, share early) *answerer {
	x := &answerer{env: e, first: first, other: e.a, share: share, sent: make(chan struct{}, 1), ended: make(chan struct{}, 1)}
	if first == e.a {
		x.other = e.b
	}
	x.recv = x.other.evdOf(dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: x.upcall})
	return x
}

func (x *answerer) upcall(ev dat.Event, _ bool) {
	switch d := ev.DTO(); {
	case ev.Number == dat.ConnectionEstablished:
		x.established = true
	case ev.Number == dat.ConnectionDisconnected:
		x.ended <- struct{}{}
	case ev.Number != dat.DTOCompletion || d.Status != dat.StatusSuccess:
		x.Errorf("%v", ev)
	case d.Operation == dat.OpSend:
		x.sent <- struct{}{}
	default:
		x.answer(d)
	}
}

// answer answers a message.
func (x *answerer) answer(d dat.DTO) {
	if x.share != everything {
		ev, err := x.other.connect.Dequeue()
		x.established = err == nil && ev.Number == dat.ConnectionEstablished
	}
	if !x.established {
		x.Errorf("a message is told of before the connection")
	}
	x.established = false
	if err := d.EP.PostSend(d.Cookie, 0, x.other.lmr.Triplet(0, 8)); err != nil {
		x.Errorf("the answer: %v", err)
	}
}

// run makes n connections.
func (x *answerer) run(n int) {
	psp := x.b.listen()
	for i := range n {
		x.one(psp.ConnQual(), uint64(i))
		if x.Failed() {
			x.Fatalf("connection %d of %v, which begins with the %s side", i, x.share, x.first.name)
		}
	}
	x.must(psp.Free(), "PSP.Free")
}

func (x *answerer) one(qual, i uint64) {
	from := x.first.ep()
	to := x.other.ep(func(c *dat.EPConfig, _ *dat.EPAttr) {
		c.Recv = x.recv
		if x.share >= transfers {
			c.Request = x.recv
		}
		if x.share == everything {
			c.Connect = x.recv
		}
	})
	x.must(from.PostRecv(i, 0, x.first.lmr.Triplet(64, 64)), "PostRecv")
	x.must(to.PostRecv(i, 0, x.other.lmr.Triplet(64, 64)), "PostRecv")
	active, passive := from, to
	if x.first == x.b {
		active, passive = to, from
	}
	x.call(active, qual)
	cr := x.b.request1()
	var sender sync.WaitGroup
	sender.Go(func() {
		for end := time.Now().Add(x.deadline); ; x.yield() {
			err := from.PostSend(i, 0, x.first.lmr.Triplet(0, 8))
			if err == nil {
				return
			}
			if time.Now().After(end) {
				x.Errorf("PostSend: %v", err)
				return
			}
		}
	})
	err := cr.Accept(passive, nil)
	sender.Wait()
	x.must(err, "Accept")
	x.event(x.first.connect, dat.ConnectionEstablished)
	x.done(x.first.request, i, dat.StatusSuccess)
	x.done(x.first.recv, i, dat.StatusSuccess)
	if x.share == apart {
		x.done(x.other.request, i, dat.StatusSuccess)
	} else {
		x.signal(x.sent, "the completion of the answer")
	}
	x.must(from.Free(), "Free")
	if x.share == everything {
		x.signal(x.ended, "the end of the connection")
	} else {
		x.event(x.other.connect, dat.ConnectionDisconnected)
	}
	x.must(to.Free(), "Free")
}

// signal waits for what an upcall says.
func (x *answerer) signal(c chan struct{}, what string) {
	x.Helper()
	select {
	case <-c:
	case <-time.After(x.deadline):
		x.Fatalf("no upcall: %s", what)
	}
}

func (s early) String() string {
	return [...]string{"an EVD for receives alone", "an EVD for receives and requests", "an EVD for everything"}[s]
}
