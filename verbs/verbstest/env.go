package verbstest

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kdapl/verbs"
)

// defaultDeadline bounds a wait when Pair.Deadline does not.
const defaultDeadline = 20 * time.Second

// env is the surroundings of one rule: two open instances and everything made in them.
// When the rule ends, every QP is destroyed and its account is closed (see ledger), then
// both instances are closed.
type env struct {
	testing.TB
	pair Pair
	// a and b are the active and the passive end.
	a, b *side
	// opened lists all instances, in order.
	opened   []*side
	deadline time.Duration
	// fake: the clock moves only when every goroutine waits (see RunIn).
	fake bool

	nextID   atomic.Uint64
	nextBase atomic.Uint64

	end  sync.RWMutex
	over bool

	mu  sync.Mutex
	qps map[uint64]*qp // by UserData
	all []*qp          // in order of creation
}

// side is one end: an open instance with a protection domain.
type side struct {
	e    *env
	name string
	dev  verbs.Device
	ctx  verbs.Context
	attr *verbs.Attr
	pd   verbs.PD
	// async collects the events of the instance.
	async  *asyncLog
	closed bool
}

func newEnv(t testing.TB, p Pair, fake bool) *env {
	t.Helper()
	e := &env{TB: t, pair: p, fake: fake, deadline: p.Deadline, qps: map[uint64]*qp{}}
	if e.deadline == 0 {
		e.deadline = defaultDeadline
	}
	e.nextBase.Store(1 << 32)
	t.Cleanup(e.finish)
	e.a = e.open("active", p.Active)
	e.b = e.open("passive", p.Passive)
	return e
}

// open makes an instance of a device with its PD.
func (e *env) open(name string, dev verbs.Device) *side {
	e.Helper()
	s := &side{e: e, name: name, dev: dev, async: newAsyncLog()}
	ctx, err := dev.Open(verbs.OpenConfig{Async: s.async.add})
	if err != nil {
		e.Fatalf("Open of the %s device: %v", name, err)
	}
	s.ctx, s.attr = ctx, ctx.Attr()
	e.opened = append(e.opened, s)
	if s.pd, err = ctx.AllocPD(); err != nil {
		e.Fatalf("AllocPD on the %s side: %v", name, err)
	}
	return s
}

// close closes the instance; it must succeed, within the deadline.
func (s *side) close() {
	s.e.Helper()
	s.closed = true
	for _, q := range s.e.all {
		if q.s == s {
			q.lost = true
		}
	}
	s.e.bounded("Context.Close on the "+s.name+" side", func() {
		if err := s.ctx.Close(); err != nil {
			s.e.Errorf("Context.Close on the %s side: %v", s.name, err)
		}
	})
}

// sides lists both ends.
func (e *env) sides() []*side { return []*side{e.a, e.b} }

// peer is the other end.
func (s *side) peer() *side {
	if s == s.e.a {
		return s.e.b
	}
	return s.e.a
}

// need skips the rule unless both ends have the capabilities.
func (e *env) need(c verbs.Caps) {
	e.Helper()
	for _, s := range e.sides() {
		if missing := c &^ s.attr.Caps; missing != 0 {
			e.Skipf("the %s device does without %v", s.name, missing)
		}
	}
}

// can reports whether both ends have the capabilities.
func (e *env) can(c verbs.Caps) bool { return e.a.attr.Can(c) && e.b.attr.Can(c) }

// acked is whether a successful send or write of the side says that the peer took it.
func (s *side) acked() bool { return s.attr.Completion == verbs.RemoteAcked }

// stalls is whether a send of the side to a peer without receives stays outstanding, so
// that a rule can keep work in the send queue for as long as it likes.
func (s *side) stalls() bool {
	return s.acked() && s.attr.Can(verbs.CapRNR) && s.peer().attr.Can(verbs.CapRNR)
}

// id draws the ID of a work request, or the UserData of an object; never 0.
func (e *env) id() uint64 { return e.nextID.Add(1) }

// rounds scales a number of repetitions.
func (e *env) rounds(n int) int {
	if testing.Short() {
		return max(1, n/10)
	}
	return n
}

// spins is how many fruitless looks mean "nothing comes": rules that check for absence
// look that often instead of waiting for a time.
const spins = 300

// eventually polls cond until it holds; past the deadline the rule fails. It must be
// called by the rule's goroutine.
func (e *env) eventually(cond func() bool, format string, args ...any) {
	e.Helper()
	if !e.within(cond) {
		e.Fatalf("not within %v: %s", e.deadline, fmt.Sprintf(format, args...))
	}
}

// within is eventually for any goroutine: it reports instead of failing.
func (e *env) within(cond func() bool) bool {
	end := time.Now().Add(e.deadline)
	for i := 1; !cond(); i++ {
		if i%64 == 0 && time.Now().After(end) {
			return cond()
		}
		e.pause(i)
	}
	return true
}

// pause is what a loop does in its fruitless turn i: it yields, and now and then lets the
// device's goroutines have a processor for one timer period. Where the clock is fake it waits
// longer the longer nothing has come, since what it waits for may be far away.
func (e *env) pause(i int) {
	switch {
	case e.fake:
		time.Sleep(time.Microsecond << min(i/16, 12))
	case i%64 != 0:
		runtime.Gosched()
	default:
		<-time.NewTimer(20 * time.Microsecond).C
	}
}

// yield lets others go first, in a loop that does something in every turn. A goroutine that only
// yielded would stop a fake clock, and the network with it.
func (e *env) yield() {
	if e.fake {
		time.Sleep(time.Duration(1+e.nextID.Add(1)%16) * time.Microsecond)
	} else {
		runtime.Gosched()
	}
}

// look looks around a number of times, for rules that check for absence.
func (e *env) look(f func()) {
	for i := range spins {
		f()
		e.pause(i + 1)
	}
}

// Errorf reports from any goroutine. What a device does when the rule is over is not
// reported any more: it cannot be.
func (e *env) Errorf(format string, args ...any) {
	e.TB.Helper()
	e.end.RLock()
	defer e.end.RUnlock()
	if !e.over {
		e.TB.Errorf(format, args...)
	}
}

// Error is Errorf without a format.
func (e *env) Error(args ...any) {
	e.TB.Helper()
	e.Errorf("%s", fmt.Sprint(args...))
}

// bounded runs f and fails the rule, with all stacks, if f has not returned at the
// deadline. f runs on another goroutine and must not call Fatal.
func (e *env) bounded(what string, f func()) {
	e.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(e.deadline)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		buf := make([]byte, 1<<18)
		e.Fatalf("%s did not return within %v\n%s", what, e.deadline, buf[:runtime.Stack(buf, true)])
	}
}

// must fails the rule on an error.
func (e *env) must(err error, format string, args ...any) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// refused checks that a call failed with one of the errors.
func (e *env) refused(err error, what string, want ...error) {
	e.Helper()
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	e.Errorf("%s: error %v, want %v", what, err, want)
}

// bare checks that a post returned an error of package verbs as it is, which costs nothing.
func (e *env) bare(call string, err error) {
	e.Helper()
	switch err {
	case nil, verbs.ErrQueueFull, verbs.ErrState, verbs.ErrInvalid, verbs.ErrNotSupported, verbs.ErrProtection,
		verbs.ErrAccess, verbs.ErrBounds, verbs.ErrLength, verbs.ErrClosed:
	default:
		e.Errorf("%s returned %#v (%v), want an error of package verbs itself", call, err, err)
	}
}

// accept2 calls a function with two results for its error alone.
func accept2[T any](_ T, err error) error { return err }

// tooMuch are the errors for a number beyond a limit that Attr names: the contract
// leaves open whether it is the argument or the device that is at fault.
var tooMuch = []error{verbs.ErrInvalid, verbs.ErrLimit, verbs.ErrLength}

// asyncLog collects asynchronous events.
type asyncLog struct {
	mu     sync.Mutex
	events []verbs.AsyncEvent
	hook   func(verbs.AsyncEvent)
}

func newAsyncLog() *asyncLog { return &asyncLog{} }

func (l *asyncLog) add(ev verbs.AsyncEvent) {
	l.mu.Lock()
	l.events = append(l.events, ev)
	hook := l.hook
	l.mu.Unlock()
	if hook != nil {
		hook(ev)
	}
}

// onEvent sets a function to be called, like the device's Async itself, for each event.
func (l *asyncLog) onEvent(f func(verbs.AsyncEvent)) {
	l.mu.Lock()
	l.hook = f
	l.mu.Unlock()
}

// count counts the events that match.
func (l *asyncLog) count(match func(verbs.AsyncEvent) bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, ev := range l.events {
		if match(ev) {
			n++
		}
	}
	return n
}

// of counts the events of a kind with the UserData.
func (l *asyncLog) of(kind verbs.AsyncEventKind, user uint64) int {
	return l.count(func(ev verbs.AsyncEvent) bool { return ev.Kind == kind && ev.UserData == user })
}

// woken waits for a channel until the deadline.
func (e *env) woken(ch <-chan struct{}) bool {
	timer := time.NewTimer(e.deadline)
	defer timer.Stop()
	select {
	case <-ch:
		return true
	case <-timer.C:
		return false
	}
}

// together runs f(0) to f(n-1) at once and waits for all, at most until the deadline has
// passed several times. A Fatal in f ends only its goroutine.
func (e *env) together(n int, f func(i int)) {
	e.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(5 * e.deadline)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		buf := make([]byte, 1<<18)
		e.Fatalf("%d goroutines did not end within %v\n%s", n, 5*e.deadline, buf[:runtime.Stack(buf, true)])
	}
}
