package dat

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"kdapl/internal/explore"
	"kdapl/internal/foreign"
)

// CNO is a consumer notification object: a place to wait for any of several EVDs (uDAPL).
// An enabled EVD triggers its CNO with each event that notifies; a trigger stays until a wait
// takes it.
type CNO struct {
	base

	mu        sync.Mutex
	agent     func(*EVD)
	members   map[*EVD]bool
	triggered []*EVD // each at most once, oldest first
	waiters   int
	aborted   bool
	wake      chan struct{}
	foreign   *foreign.Consumer // nil if there is none
	fd        *notifyFD         // of the fd type
}

// NewCNO creates a CNO (dat_cno_create). agent, if not nil, is called for each trigger with the EVD, in a goroutine of
// its own, beside the trigger that Wait takes (DAT_OS_WAIT_PROXY_AGENT). One that has been called may run on after
// it was replaced, and after Free. It does not block. INSUFFICIENT_RESOURCES.
func (ia *IA) NewCNO(agent func(*EVD)) (*CNO, error) {
	const op = "cno_create"
	if err := ia.check(op); err != nil {
		return nil, err
	}
	return ia.newCNO(op, agent, nil)
}

func (ia *IA) newCNO(op string, agent func(*EVD), fd *notifyFD) (*CNO, error) {
	c := &CNO{agent: agent, fd: fd, members: map[*EVD]bool{}, wake: make(chan struct{}, 1)}
	c.base = base{self: c, ia: ia, kind: HandleCNO}
	if !ia.register(&c.base, ia.attr.MaxEVDs) {
		return nil, ia.full(op, NoSubtype)
	}
	return c, nil
}

// NewCNOFD creates a CNO with a file descriptor that is readable while the CNO is triggered
// (dat_cno_fd_create); Trigger takes the trigger. It does not block.
//
// MODEL_NOT_SUPPORTED: the platform has no such descriptors; Linux has.
func (ia *IA) NewCNOFD() (*CNO, error) {
	const op = "cno_fd_create"
	if err := ia.check(op); err != nil {
		return nil, err
	}
	fd, err := newNotifyFD()
	if err != nil {
		return nil, ia.fail(op, ModelNotSupported, NoSubtype, err, "use NewCNO and Wait")
	}
	c, err := ia.newCNO(op, nil, fd)
	if err != nil {
		fd.close()
	}
	return c, err
}

// FD is the descriptor of a CNO made by NewCNOFD, -1 otherwise. It is valid until Free, and the
// CNO's to close.
func (c *CNO) FD() int {
	if c.gone() || c.fd == nil {
		return -1
	}
	return c.fd.number()
}

// CNOParam is what Query tells (DAT_CNO_PARAM).
type CNOParam struct {
	// IA is the adapter.
	IA *IA
	// Agent is the function last set; FD the descriptor, -1 if there is none.
	Agent func(*EVD)
	FD    int
	// EVDs counts the EVDs that are associated.
	EVDs int
}

// Query tells the CNO's parameters (dat_cno_query). It does not block.
func (c *CNO) Query() (CNOParam, error) {
	if c.gone() {
		return CNOParam{}, c.errGone("cno_query")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := CNOParam{IA: c.ia, Agent: c.agent, FD: -1, EVDs: len(c.members)}
	if c.fd != nil {
		p.FD = c.fd.number()
	}
	return p, nil
}

// ModifyAgent replaces the agent; nil removes it (dat_cno_modify_agent). It does not block.
func (c *CNO) ModifyAgent(agent func(*EVD)) error {
	if c.gone() {
		return c.errGone("cno_modify_agent")
	}
	c.mu.Lock()
	c.agent = agent
	c.mu.Unlock()
	return nil
}

// Wait blocks until the CNO is triggered, and returns an EVD that did (dat_cno_wait). It is a hint:
// others may have taken its events. Before it sleeps it looks at the adapter's queues of every
// enabled member. Several may wait; each trigger wakes one. timeout is as for EVD.Wait.
//
// ErrQueueEmpty: time is up. ABORT: the IA was closed. INTERRUPTED_CALL: the context ended.
func (c *CNO) Wait(ctx context.Context, timeout time.Duration) (*EVD, error) {
	const op = "cno_wait"
	if c.gone() {
		return nil, c.errGone(op)
	}
	if timeout < Infinite {
		return nil, c.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("timeout %v, allowed are 0 and more, and Infinite", timeout))
	}
	if ctx == nil {
		ctx = context.Background()
	}
	var expired <-chan time.Time
	c.mu.Lock()
	c.waiters++
	defer func() {
		c.waiters--
		if len(c.triggered) > 0 {
			c.signal() // for another waiter
		}
		c.mu.Unlock()
	}()
	for looked := false; ; {
		if e := c.take(); e != nil {
			return e, nil
		}
		if c.aborted {
			return nil, c.fail(op, Abort, NoSubtype, nil, "the IA was closed")
		}
		if !looked {
			looked = true
			c.look()
			continue
		}
		if timeout == 0 {
			return nil, ErrQueueEmpty
		}
		if timeout > 0 && expired == nil {
			t := time.NewTimer(timeout)
			defer t.Stop()
			expired = t.C
		}
		wake := c.wake
		c.mu.Unlock()
		if explore.On && explore.Block(func() bool { return len(wake) > 0 || explore.Closed(ctx.Done()) || c.aborted }, timeout > 0) {
			timeout = 0
			c.mu.Lock()
			continue
		}
		select {
		case <-wake:
		case <-expired:
			timeout = 0
		case <-ctx.Done():
			c.mu.Lock()
			return nil, c.fail(op, InterruptedCall, NoSubtype, context.Cause(ctx), "the context ended")
		}
		c.mu.Lock()
	}
}

// look turns what the adapter has for the members into events, and so into triggers. mu is given up
// meanwhile.
func (c *CNO) look() {
	members := make([]*EVD, 0, len(c.members))
	for e := range c.members {
		members = append(members, e)
	}
	c.mu.Unlock()
	if explore.On { // a schedule is to be the same again
		slices.SortFunc(members, func(a, b *EVD) int { return cmp.Compare(a.ref, b.ref) })
	}
	for _, e := range members {
		if explore.On {
			explore.At(explore.Look)
		}
		e.progress()
		e.pump()
	}
	c.mu.Lock()
}

// Trigger takes a trigger without waiting, and returns the EVD (dat_cno_trigger). ErrQueueEmpty: there is none.
func (c *CNO) Trigger() (*EVD, error) {
	if c.gone() {
		return nil, c.errGone("cno_trigger")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.take(); e != nil {
		return e, nil
	}
	return nil, ErrQueueEmpty
}

// take takes the oldest trigger. mu is held.
func (c *CNO) take() *EVD {
	if len(c.triggered) == 0 {
		return nil
	}
	e := c.triggered[0]
	c.drop(0)
	return e
}

// drop removes a trigger. mu is held.
func (c *CNO) drop(i int) {
	c.triggered = slices.Delete(c.triggered, i, i+1)
	if len(c.triggered) == 0 && c.fd != nil {
		c.fd.clear()
	}
}

// trigger is called when an event that notifies has been queued in a member. No EVD is locked.
func (c *CNO) trigger(e *EVD) {
	if explore.On {
		explore.At(explore.Trigger)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.members[e] {
		return // not any more
	}
	if c.agent != nil {
		if agent := c.agent; explore.On {
			explore.Go(func() { agent(e) })
		} else {
			go agent(e)
		}
	}
	if !slices.Contains(c.triggered, e) {
		c.triggered = append(c.triggered, e)
		if c.fd != nil {
			c.fd.set()
		}
		c.signal()
	}
}

func (c *CNO) signal() {
	c.foreign.Signal()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Free frees the CNO (dat_cno_free). It does not block.
//
// INVALID_STATE (CNO_IN_USE): an EVD is associated with it, or somebody waits.
func (c *CNO) Free() error {
	const op = "cno_free"
	if c.gone() {
		return c.errGone(op)
	}
	c.mu.Lock()
	inUse := len(c.members) > 0 || c.waiters > 0
	done := !inUse && c.freed.CompareAndSwap(false, true)
	c.mu.Unlock()
	switch {
	case inUse:
		return c.fail(op, InvalidState, InvalidStateCNOInUse, nil, "EVDs are associated with it, or somebody waits")
	case !done:
		return c.errGone(op)
	}
	c.end()
	return nil
}

// end gives back what the CNO has, after it was marked freed.
func (c *CNO) end() {
	if c.fd != nil {
		c.fd.close()
	}
	c.ia.unregister(&c.base)
}

// abort wakes the waiters when the IA closes.
func (c *CNO) abort() {
	c.mu.Lock()
	c.aborted = true
	c.foreign.Signal()
	close(c.wake)
	c.wake = make(chan struct{}, 1)
	c.mu.Unlock()
}

func (c *CNO) abandon() {
	if c.freed.CompareAndSwap(false, true) {
		c.end()
	}
}

// ModifyCNO associates the EVD with a CNO, or with none (dat_evd_modify_cno). Events that are queued trigger it
// at once. It does not block.
//
// INVALID_HANDLE (CNO): freed, or of another IA.
func (e *EVD) ModifyCNO(c *CNO) error {
	const op = "evd_modify_cno"
	if e.gone() {
		return e.errGone(op)
	}
	if c != nil && (c.gone() || c.ia != e.ia) {
		return e.fail(op, InvalidHandle, InvalidHandleCNO, nil, "the CNO was freed, or is of another IA")
	}
	return e.setCNO(op, c)
}

func (e *EVD) setCNO(op string, c *CNO) error {
	if c != nil {
		c.mu.Lock()
		if c.freed.Load() {
			c.mu.Unlock()
			return e.fail(op, InvalidHandle, InvalidHandleCNO, nil, "the CNO was freed")
		}
		c.members[e] = true
		c.mu.Unlock()
	}
	var a after
	e.begin(&a)
	if e.freed.Load() {
		e.end(&a)
		c.forget(e)
		return e.errGone(op)
	}
	before := e.cno
	e.cno = c
	if c != nil && !e.disabled && a.ring.Len()+a.n > 0 {
		a.trigger = c
	}
	e.end(&a)
	if before != c {
		before.forget(e)
	}
	return nil
}

// forget ends the association of an EVD.
func (c *CNO) forget(e *EVD) {
	if c == nil {
		return
	}
	c.mu.Lock()
	delete(c.members, e)
	if i := slices.Index(c.triggered, e); i >= 0 {
		c.drop(i)
	}
	c.mu.Unlock()
}
