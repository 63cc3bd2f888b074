package dattest

import (
	"context"
	"errors"
	"time"

	"kdapl/dat"
)

// Consumer notification objects (dat_cno_*), and how EVDs trigger them.
var cnoRules = []rule{
	{"a trigger stays until it is taken, and takes no event", 0, cnoSticky},
	{"a wait ends with a trigger, with its time or with its context", 0, cnoWait},
	{"each trigger wakes a waiter", 0, cnoWakes},
	{"only what notifies triggers", 0, cnoNotifying},
	{"a wait looks at every member again", 0, cnoGroup},
	{"a disabled EVD does not trigger, and what is queued triggers when it is enabled", 0, cnoDisabled},
	{"an EVD moves to another CNO with its trigger", 0, cnoModify},
	{"a CNO in use is not freed", 0, cnoInUse},
	{"the end of an EVD takes its trigger", 0, cnoEVDEnds},
	{"an agent gets each trigger, beside those who wait", 0, cnoAgent},
	{"the end of the IA aborts who waits", 0, cnoAbort},
	{"a CNO with a descriptor is triggered like any other", 0, cnoFD},
}

// cno makes a CNO with n EVDs.
func (s *side) cno(n int) (*dat.CNO, []*dat.EVD) {
	s.e.Helper()
	c, err := s.ia.NewCNO(nil)
	s.e.must(err, "NewCNO")
	var evds []*dat.EVD
	for range n {
		evds = append(evds, s.evdOf(dat.EVDConfig{CNO: c}))
	}
	return c, evds
}

// triggered waits for a trigger, which must be that of an EVD.
func (e *env) triggered(c *dat.CNO, want *dat.EVD) {
	e.Helper()
	if got, err := c.Wait(context.Background(), e.deadline); err != nil || got != want {
		e.Fatalf("triggered by %v, %v; want %v", got, err, want)
	}
}

// untriggered checks that there is no trigger.
func (e *env) untriggered(c *dat.CNO, when string) {
	e.Helper()
	for range 50 {
		if got, err := c.Wait(context.Background(), 0); err != dat.ErrQueueEmpty {
			e.Fatalf("%s: triggered by %v, %v", when, got, err)
		}
	}
	if got, err := c.Trigger(); err != dat.ErrQueueEmpty {
		e.Fatalf("%s: triggered by %v, %v", when, got, err)
	}
}

func cnoSticky(e *env) {
	c, evd := e.a.cno(2)
	e.untriggered(c, "without an event")
	e.must(evd[1].PostSE(1), "PostSE")
	e.must(evd[1].PostSE(2), "PostSE")
	e.must(evd[0].PostSE(3), "PostSE")
	e.triggered(c, evd[1])
	e.triggered(c, evd[0])
	e.untriggered(c, "both triggers are taken")
	e.queued(evd[1], 2)
	e.must(evd[1].PostSE(4), "PostSE")
	if got, err := c.Trigger(); err != nil || got != evd[1] {
		e.Errorf("Trigger: %v, %v", got, err)
	}
}

func cnoWait(e *env) {
	c, evd := e.a.cno(1)
	got := make(chan *dat.EVD)
	go func() {
		e, _ := c.Wait(context.Background(), dat.Infinite)
		got <- e
	}()
	e.must(evd[0].PostSE(1), "PostSE")
	if g := <-got; g != evd[0] {
		e.Errorf("a wait returns %v", g)
	}
	if g, err := c.Wait(context.Background(), soon); err != dat.ErrQueueEmpty || g != nil {
		e.Errorf("after its time: %v, %v", g, err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	_, err := c.Wait(ctx, dat.Infinite)
	e.refused(err, "a wait whose context ended", dat.InterruptedCall)
	if !errors.Is(err, why) {
		e.Errorf("without its cause: %v", err)
	}
}

func cnoWakes(e *env) {
	const n = 6
	c, evds := e.a.cno(n)
	ctx, cancel := context.WithTimeout(context.Background(), e.deadline)
	defer cancel()
	got := make(chan *dat.EVD, n)
	for range e.rounds(50) {
		for range n {
			go func() {
				evd, _ := c.Wait(ctx, dat.Infinite)
				got <- evd
			}()
		}
		e.yield() // most of them sleep now
		for _, evd := range evds {
			e.must(evd.PostSE(1), "PostSE")
		}
		seen := map[*dat.EVD]bool{}
		for range n {
			seen[<-got] = true
		}
		if len(seen) != n || seen[nil] {
			e.Fatalf("%d EVDs have triggered, waiters have %v", n, seen)
		}
		for _, evd := range evds {
			for range evd.Drain() {
			}
		}
	}
}

func cnoNotifying(e *env) {
	c, err := e.a.ia.NewCNO(nil)
	e.must(err, "NewCNO")
	e.a.request = e.a.evdOf(dat.EVDConfig{Streams: dat.StreamDTO, CNO: c})
	a, b := e.a.ep(func(_ *dat.EPConfig, attr *dat.EPAttr) { attr.RequestCompletionFlags = dat.CompletionUnsignalled }), e.b.ep()
	e.join(a, b)
	for i := range uint64(2) {
		e.must(b.PostRecv(i, 0), "PostRecv")
	}
	e.must(a.PostSend(1, dat.CompletionUnsignalled), "PostSend")
	e.queued(e.a.request, 1)
	e.untriggered(c, "an unsignalled completion")
	e.must(a.PostSend(2, 0), "PostSend")
	e.triggered(c, e.a.request)
}

// cnoGroup has completions come to several EVDs at once; no more is done than to wait and to drain who triggered.
func cnoGroup(e *env) {
	const n = 4
	c, err := e.b.ia.NewCNO(nil)
	e.must(err, "NewCNO")
	var from, to []*dat.EP
	for range n {
		evd := e.b.evdOf(dat.EVDConfig{Streams: dat.StreamDTO, CNO: c})
		f, b := e.a.ep(), e.b.ep(func(cfg *dat.EPConfig, _ *dat.EPAttr) { cfg.Recv = evd })
		e.join(f, b)
		from, to = append(from, f), append(to, b)
	}
	for round := range e.rounds(100) {
		two := []int{round % n, (round + 1 + round/n) % n}
		for _, i := range two {
			e.must(to[i].PostRecv(1, 0, e.b.lmr.Triplet(0, 8)), "PostRecv")
		}
		for _, i := range two {
			e.must(from[i].PostSend(2, dat.CompletionSuppress), "PostSend")
		}
		for left := len(two); left > 0; {
			evd, err := c.Wait(context.Background(), e.deadline)
			e.must(err, "round %d: CNO.Wait with %d events to come", round, left)
			for range evd.Drain() {
				left--
			}
		}
	}
}

func cnoDisabled(e *env) {
	c, evd := e.a.cno(1)
	e.must(evd[0].Disable(), "Disable")
	e.must(evd[0].PostSE(1), "PostSE")
	e.untriggered(c, "disabled")
	e.must(evd[0].Enable(), "Enable")
	e.triggered(c, evd[0])
	e.must(evd[0].Enable(), "Enable")
	e.untriggered(c, "enabled twice")
	e.must(evd[0].PostSE(2), "PostSE")
	e.triggered(c, evd[0])
}

func cnoModify(e *env) {
	first, evd := e.a.cno(1)
	second, err := e.a.ia.NewCNO(nil)
	e.must(err, "NewCNO")
	e.must(evd[0].PostSE(1), "PostSE")
	e.must(evd[0].ModifyCNO(second), "ModifyCNO")
	e.untriggered(first, "its EVD has gone to another CNO")
	e.triggered(second, evd[0])
	if q, err := evd[0].Query(); err != nil || q.CNO != second {
		e.Errorf("%+v, %v", q, err)
	}
	e.must(evd[0].Disable(), "Disable")
	e.must(evd[0].ModifyCNO(first), "ModifyCNO of a disabled EVD")
	e.untriggered(first, "its EVD is disabled")
	e.must(evd[0].ModifyCNO(second), "ModifyCNO of a disabled EVD")
	e.must(evd[0].Enable(), "Enable")
	e.triggered(second, evd[0])
	e.must(evd[0].ModifyCNO(nil), "ModifyCNO")
	e.must(evd[0].PostSE(2), "PostSE")
	e.untriggered(second, "its EVD has no CNO")
	e.must(second.Free(), "CNO.Free")
	e.refused(evd[0].ModifyCNO(second), "ModifyCNO to a freed CNO", dat.InvalidHandle, dat.InvalidHandleCNO)
}

func cnoInUse(e *env) {
	c, evd := e.a.cno(1)
	e.refused(c.Free(), "Free of a CNO with an EVD", dat.InvalidState, dat.InvalidStateCNOInUse)
	e.must(evd[0].ModifyCNO(nil), "ModifyCNO")
	e.must(c.Free(), "Free")
	e.refused(c.Free(), "a second Free", dat.InvalidHandle, dat.InvalidHandleCNO)
}

func cnoEVDEnds(e *env) {
	c, evd := e.a.cno(2)
	e.must(evd[0].PostSE(1), "PostSE")
	e.must(evd[1].PostSE(1), "PostSE")
	e.must(evd[0].Free(), "EVD.Free")
	e.triggered(c, evd[1])
	e.untriggered(c, "the EVD that had triggered is gone")
}

func cnoAgent(e *env) {
	calls := make(chan *dat.EVD, 16)
	c, err := e.a.ia.NewCNO(func(evd *dat.EVD) { calls <- evd })
	e.must(err, "NewCNO")
	evd := e.a.evdOf(dat.EVDConfig{CNO: c})
	for range 3 {
		e.must(evd.PostSE(1), "PostSE")
		select {
		case got := <-calls:
			if got != evd {
				e.Errorf("the agent gets %v", got)
			}
		case <-time.After(e.deadline):
			e.Fatalf("the agent is not called")
		}
	}
	e.triggered(c, evd)
	e.must(c.ModifyAgent(nil), "ModifyAgent")
	e.must(evd.PostSE(2), "PostSE")
	e.triggered(c, evd)
	if len(calls) != 0 {
		e.Errorf("an agent that was removed was called")
	}
}

func cnoAbort(e *env) {
	e.eventually("a wait that the end of its IA aborts", func() bool {
		ia, err := e.ad.Active(dat.Config{})
		e.must(err, "open")
		c, err := ia.NewCNO(nil)
		e.must(err, "NewCNO")
		ended, begins := make(chan error), make(chan bool)
		go func() {
			close(begins)
			_, err := c.Wait(context.Background(), dat.Infinite)
			ended <- err
		}()
		<-begins
		e.yield()
		e.must(ia.Close(context.Background(), dat.CloseAbrupt), "Close")
		select {
		case err = <-ended:
		case <-time.After(e.deadline):
			e.Fatalf("the wait goes on")
		}
		if errors.Is(err, dat.InvalidHandleCNO) {
			return false // it had not begun
		}
		e.refused(err, "a wait whose IA was closed", dat.Abort)
		return true
	})
}

func cnoFD(e *env) {
	c, err := e.a.ia.NewCNOFD()
	if errors.Is(err, dat.ModelNotSupported) {
		e.Skip("dat has no descriptor of a CNO on this platform, Linux has; the refusal is MODEL_NOT_SUPPORTED, as it must be")
	}
	e.must(err, "NewCNOFD")
	if q, err := c.Query(); err != nil || c.FD() < 0 || q.FD != c.FD() {
		e.Errorf("FD %d, %+v, %v", c.FD(), q, err)
	}
	evd := e.a.evdOf(dat.EVDConfig{CNO: c})
	look := func(when string, want bool) {
		e.Helper()
		if readable(c.FD()) != want {
			e.Errorf("%s: readable is %v", when, !want)
		}
	}
	look("new", false)
	e.must(evd.PostSE(1), "PostSE")
	look("triggered", true)
	e.triggered(c, evd)
	look("taken", false)
	e.untriggered(c, "its trigger is taken")
}
