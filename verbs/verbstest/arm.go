package verbstest

import (
	"sync"
	"sync/atomic"

	"kdapl/verbs"
)

var armRules = []rule{
	{"Arm reports completions that are there", 0, armReady},
	{"an armed CQ notifies of the next completion", 0, armNotifies},
	{"a CQ that was never used can be armed", 0, armFresh},
	{"a completion between an empty poll and Arm is not lost", 0, armWindow},
	{"a completion that follows Arm at once is not lost", 0, armThenComplete},
	{"ArmSolicited notifies of a solicited receive", verbs.CapSolicited, armSolicited},
	{"ArmSolicited notifies of a solicited receive behind others", verbs.CapSolicited, armSolicitedBehind},
	{"ArmSolicited reports no receive that is not solicited", verbs.CapSolicited, armSolicitedOnly},
	{"ArmSolicited reports a solicited receive behind others", verbs.CapSolicited, armSolicitedReady},
	{"ArmSolicited notifies of failed completions", 0, armSolicitedFailed},
	{"ArmSolicited notifies of a mark", 0, armSolicitedMark},
	{"ArmNext is not narrowed by a later ArmSolicited", 0, armNotNarrowed},
	{"ArmSolicited is widened by a later ArmNext", 0, armWidened},
	{"an armed CQ notifies of flushed requests", 0, armFlush},
	{"an armed CQ notifies for each of its QPs", 0, armManyQPs},
	{"a CQ is not notified in the stack of Arm", 0, armStack},
	{"two goroutines that arm one CQ are both served", 0, armTwice},
	{"polling, arming and waiting loses nothing under load", 0, armLoad},
}

func armReady(e *env) {
	c := e.a.cq(16)
	if c.v.Arm(verbs.ArmNext) {
		e.Error("Arm of an empty CQ reports completions")
	}
	ids := c.load(3)
	if !c.v.Arm(verbs.ArmNext) {
		e.Error("Arm of a CQ with completions does not report them")
	}
	var one [1]verbs.Completion
	c.v.Poll(one[:])
	if !c.v.Arm(verbs.ArmNext) {
		e.Error("Arm of a CQ with some completions left does not report them")
	}
	e.loaded(append(one[:], c.now()...), ids)
	if c.v.Arm(verbs.ArmNext) {
		e.Error("Arm of a drained CQ reports completions")
	}
}

func armNotifies(e *env) {
	a, b := e.couple()
	for i := range e.rounds(100) {
		b.recv(e.recv())
		if b.rcq.v.Arm(verbs.ArmNext) {
			e.Fatalf("round %d: Arm of a drained CQ reports completions", i)
		}
		before := b.rcq.notes.Load()
		a.post(e.send())
		b.rcq.awaitNotes(before, "a receive")
		b.rcq.ok(1, "receive")
		a.scq.ok(1, "send")
	}
}

func armFresh(e *env) {
	c := e.b.cq(16)
	if c.v.Arm(verbs.ArmNext) {
		e.Error("Arm of a new CQ reports completions")
	}
	a, b := e.link(conf{}, conf{rcq: c})
	before := c.notes.Load()
	b.recv(e.recv())
	a.post(e.send())
	c.awaitNotes(before, "the first completion of a CQ")
	c.ok(1, "receive")
}

// armWindow lets a completion come while the consumer is between its last poll and Arm.
func armWindow(e *env) {
	a, b := e.couple()
	for i := range e.rounds(300) {
		b.recv(e.recv())
		b.rcq.poll() // empty
		before := b.rcq.notes.Load()
		a.post(e.send())
		for range i % 7 {
			e.yield()
		}
		if !b.rcq.v.Arm(verbs.ArmNext) {
			b.rcq.awaitNotes(before, "a completion after Arm said that none is there")
		}
		b.rcq.ok(1, "receive")
		a.scq.ok(1, "send")
	}
}

func armThenComplete(e *env) {
	c := e.a.cq(16)
	for range e.rounds(200) {
		if c.v.Arm(verbs.ArmNext) {
			e.Fatal("Arm of a drained CQ reports completions")
		}
		before := c.notes.Load()
		ids := c.load(1)
		c.awaitNotes(before, "completions that a Destroy delivered")
		e.loaded(c.now(), ids)
	}
}

// solicited sends one message each way that a flag says and returns when the
// receiver's CQ can have it.
func solicited(e *env, a, b *qp) {
	e.Helper()
	b.recv(e.recv())
	a.post(flagged(e.send(), verbs.SendSolicited))
}

func armSolicited(e *env) {
	a, b := e.couple()
	for range e.rounds(50) {
		if b.rcq.v.Arm(verbs.ArmSolicited) {
			e.Fatal("ArmSolicited of a drained CQ reports completions")
		}
		before := b.rcq.notes.Load()
		solicited(e, a, b)
		b.rcq.awaitNotes(before, "a solicited receive")
		if c := b.rcq.ok(1, "receive")[0]; c.Flags&verbs.CompletionSolicited == 0 {
			e.Errorf("a solicited receive: %v", c)
		}
		a.scq.ok(1, "send")
	}
}

func armSolicitedBehind(e *env) {
	a, b := e.couple()
	b.recv(e.recv(), e.recv())
	b.rcq.v.Arm(verbs.ArmSolicited)
	before := b.rcq.notes.Load()
	a.post(e.send(), e.send())
	a.scq.ok(2, "sends")
	// Whether or not the device over-notified for these: armed again, it must notify now.
	b.rcq.v.Arm(verbs.ArmSolicited)
	before = max(before, b.rcq.notes.Load())
	solicited(e, a, b)
	b.rcq.awaitNotes(before, "a solicited receive behind others")
	b.rcq.ok(3, "receives")
}

// queued waits until the CQ holds n completions of receives, without taking them, and so
// needs another CQ to tell: the receives of a second QP are the last in the CQ.
func queued(e *env, c *cq, n int) {
	e.Helper()
	if p, ok := c.v.(verbs.Peeker); ok {
		e.eventually(func() bool { return p.Peek(n) == n }, "%d completions queued", n)
		return
	}
	e.eventually(func() bool { return c.v.Arm(verbs.ArmNext) }, "a completion queued")
}

func armSolicitedOnly(e *env) {
	a, b := e.couple()
	b.recv(e.recv())
	a.post(e.send())
	queued(e, b.rcq, 1)
	if b.rcq.v.Arm(verbs.ArmSolicited) {
		e.Error("ArmSolicited reports a receive that is not solicited")
	}
	b.rcq.ok(1, "receive")
	// A successful send is not of the kind either.
	a.scq.ok(1, "send")
	b.recv(e.recv())
	a.post(e.send())
	b.rcq.ok(1, "receive")
	queued(e, a.scq, 1)
	if a.scq.v.Arm(verbs.ArmSolicited) {
		e.Error("ArmSolicited reports a successful send")
	}
}

func armSolicitedReady(e *env) {
	a, b := e.couple()
	b.recv(e.recv(), e.recv(), e.recv())
	a.post(e.send(), flagged(e.send(), verbs.SendSolicited), e.send())
	e.eventually(func() bool { return b.rcq.v.Arm(verbs.ArmSolicited) }, "ArmSolicited reports a solicited receive")
	b.rcq.ok(3, "receives")
	if b.rcq.v.Arm(verbs.ArmSolicited) {
		e.Error("ArmSolicited of a drained CQ reports completions")
	}
}

func armSolicitedFailed(e *env) {
	a, b := e.couple()
	b.recv(e.recv(e.b.mem(4, localWrite).all()))
	b.rcq.v.Arm(verbs.ArmSolicited)
	before := b.rcq.notes.Load()
	a.post(e.send(e.a.source(8).all())) // does not fit
	b.rcq.awaitNotes(before, "a receive that failed")
	b.failed(b.rcq.one("receive"), "a message that does not fit", verbs.StatusLocalLength)
}

func armSolicitedMark(e *env) {
	c := e.a.cq(8)
	if c.v.Arm(verbs.ArmSolicited) {
		e.Error("ArmSolicited of an empty CQ reports completions")
	}
	before := c.notes.Load()
	ids := c.load(0)
	c.awaitNotes(before, "a mark")
	if !c.v.Arm(verbs.ArmSolicited) {
		e.Error("ArmSolicited does not report a mark")
	}
	e.loaded(c.now(), ids)
}

func armNotNarrowed(e *env) {
	a, b := e.couple()
	for range e.rounds(20) {
		if b.rcq.v.Arm(verbs.ArmNext) || b.rcq.v.Arm(verbs.ArmSolicited) {
			e.Fatal("Arm of a drained CQ reports completions")
		}
		before := b.rcq.notes.Load()
		b.recv(e.recv())
		a.post(e.send())
		b.rcq.awaitNotes(before, "a receive after ArmNext and ArmSolicited")
		b.rcq.ok(1, "receive")
		a.scq.ok(1, "send")
	}
}

func armWidened(e *env) {
	a, b := e.couple()
	if b.rcq.v.Arm(verbs.ArmSolicited) || b.rcq.v.Arm(verbs.ArmNext) {
		e.Fatal("Arm of an empty CQ reports completions")
	}
	before := b.rcq.notes.Load()
	b.recv(e.recv())
	a.post(e.send())
	b.rcq.awaitNotes(before, "a receive after ArmSolicited and ArmNext")
	b.rcq.ok(1, "receive")
}

func armFlush(e *env) {
	a, b := e.couple()
	b.recv(e.recv(), e.recv())
	if b.rcq.v.Arm(verbs.ArmNext) || b.scq.v.Arm(verbs.ArmNext) {
		e.Fatal("Arm of an empty CQ reports completions")
	}
	recvs, sends := b.rcq.notes.Load(), b.scq.notes.Load()
	e.must(a.v.Disconnect(false), "Disconnect")
	b.rcq.awaitNotes(recvs, "flushed receives")
	b.scq.awaitNotes(sends, "the mark of an idle send queue")
	if n := len(b.rcq.untilMark(b, true, "the peer's Disconnect")); n != 2 {
		e.Errorf("%d flushed receives, want 2", n)
	}
}

func armManyQPs(e *env) {
	c := e.b.cq(100)
	for range 4 {
		a, b := e.link(conf{}, conf{rcq: c})
		for range e.rounds(20) {
			if c.v.Arm(verbs.ArmNext) {
				e.Fatal("Arm of a drained CQ reports completions")
			}
			before := c.notes.Load()
			b.recv(e.recv())
			a.post(e.send())
			c.awaitNotes(before, "a receive of one of several QPs")
			c.ok(1, "receive")
			a.scq.ok(1, "send")
		}
	}
}

// armStack holds a lock over Arm that notify takes.
func armStack(e *env) {
	a, b := e.couple()
	var mu sync.Mutex
	var inArm atomic.Bool
	b.rcq.onNotify(func() {
		mu.Lock()
		defer mu.Unlock()
		if inArm.Load() {
			e.Error("notify ran while the lock of Arm was held")
		}
	})
	for range e.rounds(100) {
		before := b.rcq.notes.Load()
		b.recv(e.recv())
		a.post(e.send())
		ready := false
		e.bounded("Arm with a lock held that notify takes", func() {
			mu.Lock()
			inArm.Store(true)
			ready = b.rcq.v.Arm(verbs.ArmNext)
			inArm.Store(false)
			mu.Unlock()
		})
		if !ready {
			b.rcq.awaitNotes(before, "a receive")
		}
		b.rcq.ok(1, "receive")
		a.scq.ok(1, "send")
	}
	b.rcq.onNotify(func() {})
}

func armTwice(e *env) {
	a, b := e.couple()
	before := b.rcq.notes.Load()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { b.rcq.v.Arm(verbs.ArmNext) })
	}
	wg.Wait()
	b.recv(e.recv())
	a.post(e.send())
	b.rcq.awaitNotes(before, "a receive of a CQ that was armed twice")
	b.rcq.ok(1, "receive")
}

// armLoad has a consumer that sleeps unless it is notified, and a producer that does not wait.
func armLoad(e *env) {
	a, b := e.couple()
	total := e.rounds(5000)
	wake := make(chan struct{}, 1)
	b.rcq.onNotify(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	depth := b.s.depth()
	for range depth {
		b.recv(e.recv())
	}
	credit := make(chan struct{}, depth)
	for range depth {
		credit <- struct{}{}
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range total {
			select {
			case <-credit:
			case <-stop:
				return
			}
			var err error
			if !e.within(func() bool {
				_, err = a.tryPost(unsignaled(e.send()))
				return err == nil
			}) {
				e.Errorf("PostSend: %v", err)
				return
			}
			a.scq.poll()
		}
	}()
	got := 0
	for got < total {
		b.rcq.mu.Lock()
		n := b.rcq.drain()
		b.rcq.seen = nil
		b.rcq.mu.Unlock()
		for range n {
			got++
			b.recv(e.recv())
			credit <- struct{}{}
		}
		if n > 0 || b.rcq.v.Arm(verbs.ArmNext) {
			continue
		}
		if !e.woken(wake) {
			close(stop)
			<-done
			e.Fatalf("asleep with %d of %d receives: an armed CQ did not notify", got, total)
		}
	}
	<-done
	b.rcq.onNotify(func() {})
}
