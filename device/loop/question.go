package loop

import (
	"fmt"
	"sync"
	"time"

	"kdapl/device/internal/softnic"
	"kdapl/verbs"
)

// question is a UD QP's request for the number and key of the QP behind a port. It is also what
// the passive side's consumer answers.
type question struct {
	from          *softnic.QP
	lis           *listener
	local, remote verbs.Address // as the asking side sees them
	data          []byte        // private data of the request
	timer         *time.Timer   // under mu

	// mu serializes the answers. No other lock of the loop's is held when it is taken.
	mu       sync.Mutex
	answered bool
	gone     bool // the asking side gave up
}

// ask is Connect for UD QPs.
func (w *wire) ask(p *verbs.ConnParams) error {
	attr := &w.dev.attr
	remote := verbs.Address{IP: p.Remote.IP.Unmap(), Port: p.Remote.Port}
	l, reachable := fabric.find(remote)
	c := &question{
		from: w.qp, lis: l, remote: remote, data: append([]byte(nil), p.PrivateData...),
		local: verbs.Address{IP: attr.Addr, Port: fabric.ephemeral(attr.Addr, attr.MaxPort)},
	}
	if err := w.qp.Ask(c); err != nil {
		return err
	}
	switch {
	case !reachable || p.Remote.Port > attr.MaxPort:
		c.fail(verbs.ConnUnreachable, errNoAdapter)
		return nil
	case l == nil:
		c.fail(verbs.ConnRefused, errNoListener)
		return nil
	}
	if p.Timeout > 0 {
		c.mu.Lock()
		c.timer = time.AfterFunc(p.Timeout, func() { c.fail(verbs.ConnTimedOut, errTimeout) })
		c.mu.Unlock()
	}
	if err := l.offer(c); err != nil {
		c.fail(verbs.ConnRefused, err)
	}
	return nil
}

// fail ends the question for the asking side.
func (c *question) fail(kind verbs.ConnEventKind, err error) bool {
	return c.tell(verbs.ConnEvent{Kind: kind, Err: fmt.Errorf("ask from %v to %v: %w", c.local, c.remote, err)})
}

// tell gives the asking side its answer; false if it has gone.
func (c *question) tell(ev verbs.ConnEvent) bool {
	ev.Local, ev.Remote = c.local, c.remote
	there := c.from.Answer(c, ev)
	c.over()
	return there
}

// over notes that there is nothing to answer any more.
func (c *question) over() {
	c.mu.Lock()
	c.gone = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	if c.lis != nil {
		c.lis.settle(c)
	}
}

// Ends implements [softnic.Link].
func (c *question) Ends(*softnic.QP) (local, remote verbs.Address) { return c.local, c.remote }

// Drained implements [softnic.Link]; a question has no requests.
func (c *question) Drained(*softnic.QP) {}

// Ended implements [softnic.Link]: the QP that asked is out of use.
func (c *question) Ended(*softnic.QP, verbs.ConnEventKind, error) { c.over() }

func (c *question) isGone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// PrivateData implements [verbs.ConnRequest].
func (c *question) PrivateData() []byte { return c.data }

// Local implements [verbs.ConnRequest].
func (c *question) Local() verbs.Address { return c.remote }

// Remote implements [verbs.ConnRequest].
func (c *question) Remote() verbs.Address { return c.local }

// ReadsIn implements [verbs.ConnRequest].
func (c *question) ReadsIn() int { return 0 }

// ReadsOut implements [verbs.ConnRequest].
func (c *question) ReadsOut() int { return 0 }

// RemoteQP implements [verbs.ConnRequest].
func (c *question) RemoteQP() (qpn, qkey uint32, ud bool) { return c.from.Num(), c.from.QKey(), true }

// claim makes the caller the one who answers.
func (c *question) claim() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.answered:
		return verbs.ErrState
	case c.gone:
		return verbs.ErrPeerGone
	}
	c.answered = true
	return nil
}

// Accept implements [verbs.ConnRequest].
func (c *question) Accept(vq verbs.QP, p verbs.ConnParams) error {
	q, ok := vq.(*softnic.QP)
	if !ok || q.Context() != c.lis.ctx || q.Type() != verbs.UD {
		return verbs.ErrInvalid
	}
	if err := q.Context().CheckParams(&p); err != nil {
		return err
	}
	if q.State() != verbs.QPRTS {
		return verbs.ErrState
	}
	if err := c.claim(); err != nil {
		return err
	}
	if !c.tell(verbs.ConnEvent{PrivateData: append([]byte(nil), p.PrivateData...), RemoteQPN: q.Num(), RemoteQKey: q.QKey()}) {
		return verbs.ErrPeerGone
	}
	// If the QP has been ended meanwhile, what the asking side knows leads nowhere, as it may at any time.
	q.Introduce(verbs.ConnEvent{RemoteQPN: c.from.Num(), RemoteQKey: c.from.QKey(), Local: c.remote, Remote: c.local})
	return nil
}

// Reject implements [verbs.ConnRequest].
func (c *question) Reject(privateData []byte) error {
	if len(privateData) > c.lis.ctx.Attr().MaxPrivateData {
		return verbs.ErrLength
	}
	return c.decline(verbs.ConnEvent{Kind: verbs.ConnRejected, PrivateData: append([]byte(nil), privateData...), Err: errRejected})
}

// Refuse implements [verbs.ConnRequest].
func (c *question) Refuse() error {
	return c.decline(verbs.ConnEvent{Kind: verbs.ConnRefused, Err: errRefused})
}

func (c *question) decline(ev verbs.ConnEvent) error {
	if err := c.claim(); err != nil {
		return err
	}
	if !c.tell(ev) {
		return verbs.ErrPeerGone
	}
	return nil
}
