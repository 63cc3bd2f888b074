package dat_test

import (
	"runtime"
	"testing"
	"time"

	"kdapl/dat"
)

// The acceptance cases that this package answers, each a subtest whose name begins with its number. docs/acceptance.md is made
// from these names.
func TestAcceptance(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"AC-01 no waiter sleeps over an event that comes between its look and its sleep", TestWaitersMissNothing},
		{"AC-02 a wait for several EVDs looks at each of them again", TestGroupWaitPollsEveryArmedMember},
		{"AC-03 a wait that begins before the first post is woken by it", waitBeforeTheFirstPost},
		{"AC-05 more completions than are polled at a time all come", moreThanOnePoll},
		{"AC-06 every event is had once, whoever takes it", TestEveryEventIsHadExactlyOnce},
		{"AC-10 an upcall that ends its goroutine does not keep the EVD from being freed", freeAfterGoexit},
		{"AC-13 a completion queue that overflows all the same loses nothing silently", TestACompletionQueueThatOverflows},
		{"AC-13 queues grow up to the limit, then the set-up is refused", TestTheQueueGrowsUpToTheIAsLimit},
		{"AC-14 everything that is allowed can be done in an upcall", TestEverythingCanBeDoneInAnUpcall},
		{"AC-15 suppressed completions leave no request behind", TestSuppressedCompletions},
		{"AC-16 a full queue is an error of its own, and a post succeeds after a completion", TestPostsAreLimitedUntilTheirEventsAreTaken},
		{"AC-17 posts behind the end complete as flushed, and disturb nothing", TestPostsOnADisconnectedEPAreFlushed},
		{"AC-18 AC-20 AC-41 AC-43 every way to end a connection", TestEveryWayToEndAConnection},
		{"AC-19 the end is known by the device's marks, in whatever order its news come", TestTheEndComesHoweverTheAdapterOrdersItsNews},
		{"AC-23 a send that finds no receive", TestASendThatFindsNoReceive},
		{"AC-26 what a completion says of data that was written before it", TestOrderAndVisibility},
		{"AC-27 immediate data", TestRDMAWriteWithImmediateData},
		{"AC-28 read depths are agreed in both directions", TestReadDepthsAreAgreed},
		{"AC-36 private data has its limits on every way", TestPrivateDataHasItsLimitsOnEveryWay},
		{"AC-38 calls in an upcall that would wait for it are refused", TestTeardownAndCloseInAnUpcallAreRefused},
		{"AC-39 posts that race with free", TestPostsThatRaceWithFreeAreRefused},
		{"AC-39 methods of objects that are gone", TestMethodsOfObjectsThatAreNotThere},
		{"AC-40 an EP's events go to its own EVDs from the first on", TestConnectAndAcceptEstablish},
		{"AC-43 ESTABLISHED comes before completions", TestEstablishedComesBeforeTheCompletions},
		{"AC-44 a wait ends with its context", TestWaitEndsWithItsContext},
		{"AC-44 closing ends waits", TestClosingTheIAEndsWaitsWithAbort},
		{"AC-46 a new connection is not disturbed by the old one", TestReconnectAtOnceIsNotDisturbedByTheOldConnection},
		{"AC-55 memory that operations name is kept", TestFreeingAnLMRThatOperationsName},
		{"AC-56 the collector leaves registered memory alone", collectedMemory},
		{"AC-59 each bind makes a fresh context and ends the old one", TestEachBindMakesAFreshContextAndEndsTheOldOne},
		{"AC-59 a peer's invalidation ends a binding", TestSendWithInvalidateEndsTheBindingOfAnRMRForEP},
		{"AC-60 a creation that fails undoes what it did", TestNewEPUndoesWhatItDid},
		{"AC-67 an adapter that is taken away", TestWhenTheAdapterIsTakenAway},
	} {
		t.Run(c.name, c.test)
	}
}

// waitBeforeTheFirstPost: nobody has polled or armed anything when the waiter goes to sleep.
func waitBeforeTheFirstPost(t *testing.T) {
	for _, policy := range []dat.UpcallPolicy{dat.UpcallDisable, dat.UpcallSingleInstance} {
		called := make(chan dat.Event, 1)
		p := connectPair(t, 4096)
		if policy.Live() {
			ok(t, p.a.evd.ModifyUpcall(policy, func(ev dat.Event, _ bool) { called <- ev }, dat.InvocNew))
		} else {
			go func() {
				ev, _, _ := p.a.evd.Wait(background, 1, patience)
				called <- ev
			}()
			eventually(t, "the wait", func() bool {
				_, err := p.a.evd.Dequeue()
				return err != dat.ErrQueueEmpty // a waiter owns the events
			})
		}
		ok(t, p.a.ep.PostRDMAWrite(7, 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
		if ev := receive(t, "the first event", called); ev.DTO().Cookie != 7 {
			t.Fatal(ev)
		}
	}
}

// moreThanOnePoll: one notification for many completions.
func moreThanOnePoll(t *testing.T) {
	const n = 200
	p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) { a.MaxRequestDTOs = n }}).connect(t)
	for i := range n {
		ok(t, p.a.ep.PostRDMAWrite(uint64(i), 0, p.b.lmr.RMRTriplet(0, 8), p.a.lmr.Triplet(0, 8)))
	}
	got := make(chan uint64, n)
	ok(t, p.a.evd.ModifyUpcall(dat.UpcallSingleInstance, func(ev dat.Event, _ bool) { got <- ev.DTO().Cookie }, dat.InvocAny))
	for i := range uint64(n) {
		if v := receive(t, "an event", got); v != i {
			t.Fatalf("event %d, want %d", v, i)
		}
	}
	ok(t, p.a.evd.Teardown(background))
}

func freeAfterGoexit(t *testing.T) {
	called := make(chan bool)
	e := newEVD(t, newIA(t), dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: func(dat.Event, bool) {
		called <- true
		runtime.Goexit()
	}})
	ok(t, e.PostSE(1))
	ok(t, e.PostSE(2))
	receive(t, "the first upcall", called)
	receive(t, "the second upcall", called)
	ok(t, e.Teardown(background))
	done := make(chan error, 1)
	go func() { done <- e.Free() }()
	ok(t, receive(t, "the free", done))
}

// collectedMemory: nothing but the registration refers to the memory while the collector runs.
func collectedMemory(t *testing.T) {
	p := connectPair(t, 4096)
	register := func() *dat.LMR {
		mem := make([]byte, 1<<16)
		for i := range mem {
			mem[i] = byte(i)
		}
		return must[*dat.LMR](t)(p.a.pz.Register(mem, dat.PrivAll))
	}
	lmr := register()
	for deadline := time.Now().Add(100 * time.Millisecond); time.Now().Before(deadline); {
		runtime.GC()
		for i := range 8 {
			_ = make([]byte, 1<<16+i) // would be where the memory was
		}
	}
	ok(t, p.a.ep.PostRDMAWrite(1, 0, p.b.lmr.RMRTriplet(0, 4096), lmr.Triplet(4096, 4096)))
	nextDTO(t, p.a.evd, 1, dat.StatusSuccess)
	for i, b := range p.b.mem {
		if b != byte(4096+i) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
}
