package verbstest

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"

	"kdapl/verbs"
)

// connLog collects the connection events of a QP and checks their grammar: each set-up
// has one outcome, each established connection one end, and the callback never
// runs twice at a time.
type connLog struct {
	q    *qp
	hook func(*qp, verbs.ConnEvent)
	busy atomic.Int32

	mu     sync.Mutex
	events []verbs.ConnEvent
	taken  int
	// attempts, outcomes, established and ended count set-ups and events.
	attempts, outcomes, established, ended int
}

// add is the QP's Conn function.
func (l *connLog) add(ev verbs.ConnEvent) {
	if l.q.raw {
		l.note(ev)
	} else {
		if l.busy.Add(1) != 1 {
			l.q.e.Errorf("Conn was called while it ran: %v", ev)
		}
		defer l.busy.Add(-1)
		if bad := l.note(ev); bad != "" {
			l.q.e.Errorf("on the %s side: %s: %v", l.q.s.name, bad, ev)
		}
	}
	if l.hook != nil {
		l.hook(l.q, ev)
	}
}

// note enters an event and says what is wrong with it.
func (l *connLog) note(ev verbs.ConnEvent) (bad string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ev.PrivateData = bytes.Clone(ev.PrivateData)
	l.events = append(l.events, ev)
	switch {
	case ev.Kind.SetUp():
		l.outcomes++
		if l.outcomes > l.attempts {
			bad = "a second outcome of a set-up"
		}
		if ev.Kind == verbs.ConnEstablished && !l.q.ud {
			l.established++
		}
	case ev.Kind.Terminal():
		l.ended++
		if l.ended > l.established {
			bad = "an end without a connection, or a second one"
		}
	default:
		bad = "an unknown event"
	}
	return bad
}

// attempt counts a set-up.
func (l *connLog) attempt(n int) {
	l.mu.Lock()
	l.attempts += n
	l.mu.Unlock()
}

// count is the number of events so far.
func (l *connLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// next waits for the next event, which must be of one of the kinds.
func (l *connLog) next(what string, kinds ...verbs.ConnEventKind) verbs.ConnEvent {
	l.q.e.Helper()
	var ev verbs.ConnEvent
	l.q.e.eventually(func() bool {
		l.mu.Lock()
		if len(l.events) > l.taken {
			ev = l.events[l.taken]
			l.taken++
			l.mu.Unlock()
			return true
		}
		l.mu.Unlock()
		l.q.help()
		return false
	}, "no connection event on the %s side: %s", l.q.s.name, what)
	for _, k := range kinds {
		if ev.Kind == k {
			return ev
		}
	}
	l.q.e.Fatalf("connection event on the %s side, %s: %v, want %v", l.q.s.name, what, ev, kinds)
	return ev
}

// none checks that no event arrives during a number of looks.
func (l *connLog) none(what string) {
	l.q.e.Helper()
	l.q.e.look(func() {
		l.q.e.Helper()
		l.q.help()
		l.mu.Lock()
		n := len(l.events) - l.taken
		l.mu.Unlock()
		if n != 0 {
			l.q.e.Fatalf("%d unexpected connection events on the %s side, %s", n, l.q.s.name, what)
		}
	})
}

// settled checks that every set-up has had its outcome and every connection its end. A
// callback in progress is waited for.
func (l *connLog) settled(after string) {
	l.q.e.Helper()
	if l.q.raw || l.q.lost {
		return
	}
	var outcomes, attempts, ended, established int
	if !l.q.e.within(func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		outcomes, attempts, ended, established = l.outcomes, l.attempts, l.ended, l.established
		return outcomes == attempts && ended == established
	}) {
		l.q.e.Errorf("%s on the %s side: %d outcomes of %d set-ups, %d ends of %d connections",
			after, l.q.s.name, outcomes, attempts, ended, established)
	}
}

// help drives the progress of the QP's CQs.
func (q *qp) help() {
	for _, c := range []*cq{q.scq, q.rcq} {
		if c != nil && !q.gone {
			c.poll()
		}
	}
}

// connect starts a connection.
func (q *qp) connect(p verbs.ConnParams) error {
	q.conn.attempt(1)
	err := q.v.Connect(p)
	if err != nil {
		q.conn.attempt(-1)
	}
	return err
}

// listener collects connection requests.
type listener struct {
	s    *side
	v    verbs.Listener
	reqs chan verbs.ConnRequest
}

// listen listens on a free port.
func (s *side) listen() *listener {
	s.e.Helper()
	return s.listenTo(verbs.ListenConfig{})
}

// listenTo listens as configured; requests are collected.
func (s *side) listenTo(c verbs.ListenConfig) *listener {
	s.e.Helper()
	l := &listener{s: s, reqs: make(chan verbs.ConnRequest, 256)}
	c.Request = func(r verbs.ConnRequest) {
		select {
		case l.reqs <- r:
		default: // a callback must not block
			_ = r.Refuse()
		}
	}
	v, err := s.ctx.Listen(c)
	s.e.must(err, "Listen at %v on the %s side", c.Local, s.name)
	l.v = v
	return l
}

// next waits for a request.
func (l *listener) next(what string) verbs.ConnRequest {
	l.s.e.Helper()
	var r verbs.ConnRequest
	l.s.e.eventually(func() bool {
		select {
		case r = <-l.reqs:
			return true
		default:
			return false
		}
	}, "no connection request: %s", what)
	return r
}

// close closes the listener.
func (l *listener) close() {
	l.s.e.Helper()
	l.s.e.must(l.v.Close(), "Listener.Close")
}

// accept answers a request with the QP.
func (q *qp) accept(r verbs.ConnRequest, p verbs.ConnParams) error {
	q.conn.attempt(1)
	err := r.Accept(q.v, p)
	if err != nil {
		q.conn.attempt(-1)
	}
	return err
}

// reads is the usual wish for read depths.
func (s *side) reads() (in, out int) { return min(4, s.attr.MaxReadsIn), min(4, s.attr.MaxReadsOut) }

// params are the usual arguments of Connect and Accept.
func (s *side) params(remote verbs.Address, private []byte) verbs.ConnParams {
	in, out := s.reads()
	return verbs.ConnParams{Remote: remote, PrivateData: private, ReadsIn: in, ReadsOut: out}
}

// connect connects two QPs in QPInitialized, the first actively, and waits until both sides
// are established.
func (e *env) connect(a, b *qp) (ae, be verbs.ConnEvent) {
	e.Helper()
	l := b.s.listen()
	defer l.close()
	return e.connectAt(l, a, b, a.s.params(l.v.Addr(), nil), b.s.params(verbs.Address{}, nil))
}

// connectAt is connect with a listener and arguments.
func (e *env) connectAt(l *listener, a, b *qp, ap, bp verbs.ConnParams) (ae, be verbs.ConnEvent) {
	e.Helper()
	e.must(a.connect(ap), "Connect to %v", ap.Remote)
	e.must(b.accept(l.next("Connect to "+ap.Remote.String()), bp), "Accept")
	ae = a.conn.next("Connect", verbs.ConnEstablished)
	be = b.conn.next("Accept", verbs.ConnEstablished)
	a.state(verbs.QPRTS)
	b.state(verbs.QPRTS)
	return ae, be
}

// link makes a connected pair of QPs.
func (e *env) link(ca, cb conf) (a, b *qp) {
	e.Helper()
	a, b = e.a.ready(ca), e.b.ready(cb)
	e.connect(a, b)
	return a, b
}

// couple is link with the usual QPs.
func (e *env) couple() (a, b *qp) {
	e.Helper()
	return e.link(conf{}, conf{})
}

// broken waits for the end of a connection on both sides by a fault.
func (e *env) broken(what string, qs ...*qp) {
	e.Helper()
	for _, q := range qs {
		q.conn.next(what, verbs.ConnBroken)
		q.state(verbs.QPError)
	}
}

// disconnect ends a connection and waits for the end on both sides.
func (e *env) disconnect(a, b *qp, graceful bool) {
	e.Helper()
	e.must(a.v.Disconnect(graceful), "Disconnect(%v)", graceful)
	a.conn.next("Disconnect", verbs.ConnDisconnected)
	b.conn.next("the peer's Disconnect", verbs.ConnDisconnected)
}

// renew resets two QPs whose connection has ended and connects them again.
func (e *env) renew(a, b *qp) {
	e.Helper()
	for _, q := range []*qp{a, b} {
		q.modify(verbs.QPReset)
		q.modify(verbs.QPInitialized)
	}
	e.connect(a, b)
}

// eventBefore is a time-out long enough never to pass by itself in a rule that ends
// a set-up otherwise.
const eventBefore = 10 * time.Minute

// soon is a time-out that a rule lets pass.
const soon = 30 * time.Millisecond
