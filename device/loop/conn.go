package loop

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"kdapl/device/internal/softnic"
	"kdapl/verbs"
)

// The causes of failed set-ups.
var (
	errNoListener = errors.New("loop: nobody listens there")
	errBacklog    = errors.New("loop: too many requests wait for an answer there")
	errNoAdapter  = errors.New("loop: no adapter of this process has the address")
	errRefused    = errors.New("loop: refused by the peer's provider")
	errTimeout    = errors.New("loop: no answer in time")
	errRejected   = errors.New("loop: rejected by the peer's consumer")
	errRNR        = errors.New("loop: the peer posted no receive in time")
	errEarly      = errors.New("loop: the other end went away during the set-up")
)

// conn is a connection, or the attempt at one, and the link of both of its QPs. It is also the
// request that the passive side's consumer answers.
type conn struct {
	active, passive *wire // passive is set by Accept, before the QP knows of the link
	lis             *listener
	local, remote   verbs.Address // as the active side sees them
	data            []byte        // private data of the request
	in, out         int           // read depths that the active side wishes
	timer           *time.Timer

	// mu serializes the answers. No other lock of the loop's is held when it is taken.
	mu       sync.Mutex
	answered bool
	gone     bool // the active side gave up

	// cutActive and cutPassive say that the receive side of the end is out of use. Each is
	// under that receive side's lane.
	cutActive, cutPassive bool
}

// Connect implements [softnic.Wire].
func (w *wire) Connect(p *verbs.ConnParams) error {
	if !p.Remote.IP.IsValid() || p.Remote.Port == 0 {
		return verbs.ErrAddr
	}
	if w.qp.Type() == verbs.UD {
		return w.ask(p)
	}
	attr := &w.dev.attr
	remote := verbs.Address{IP: p.Remote.IP.Unmap(), Port: p.Remote.Port}
	l, reachable := fabric.find(remote)
	c := &conn{
		active: w, lis: l, remote: remote, data: append([]byte(nil), p.PrivateData...), in: p.ReadsIn, out: p.ReadsOut,
		local: verbs.Address{IP: attr.Addr, Port: fabric.ephemeral(attr.Addr, attr.MaxPort)},
	}
	err := w.qp.Begin(c, func() {
		if p.Timeout > 0 {
			c.timer = time.AfterFunc(p.Timeout, func() { c.fail(verbs.ConnTimedOut, errTimeout) })
		}
	})
	switch {
	case err != nil:
		return err
	case !reachable || p.Remote.Port > attr.MaxPort:
		c.fail(verbs.ConnUnreachable, errNoAdapter)
	case l == nil:
		c.fail(verbs.ConnRefused, errNoListener)
	default:
		if err := l.offer(c); err != nil {
			c.fail(verbs.ConnRefused, err)
		}
	}
	return nil
}

// fail ends the set-up for the active side.
func (c *conn) fail(kind verbs.ConnEventKind, err error) {
	c.active.qp.EndWith(c, verbs.ConnEvent{
		Kind: kind,
		Err:  fmt.Errorf("connect from %v to %v: %w", c.local, c.remote, err),
	})
}

// Drained implements [softnic.Link].
func (c *conn) Drained(q *softnic.QP) { q.End(c, verbs.ConnDisconnected, nil) }

// Ends implements [softnic.Link].
func (c *conn) Ends(q *softnic.QP) (local, remote verbs.Address) {
	if q == c.active.qp {
		return c.local, c.remote
	}
	return c.remote, c.local
}

// Ended implements [softnic.Link]: the other end ends too.
func (c *conn) Ended(q *softnic.QP, kind verbs.ConnEventKind, err error) {
	if c.timer != nil {
		c.timer.Stop()
	}
	other, early := c.active.qp, verbs.ConnRefused
	if q == other {
		c.mu.Lock()
		c.gone = true
		p := c.passive
		c.mu.Unlock()
		if c.lis != nil {
			c.lis.settle(c)
		}
		if p == nil {
			return
		}
		other, early = p.qp, verbs.ConnAcceptFailed
	}
	if !other.EndSetUp(c, verbs.ConnEvent{Kind: early, Err: errEarly}) {
		other.End(c, otherKind(kind), err)
	}
}

// otherKind is how the end of one side shows at the other.
func otherKind(kind verbs.ConnEventKind) verbs.ConnEventKind {
	if kind == verbs.ConnBroken {
		return verbs.ConnBroken
	}
	return verbs.ConnDisconnected
}

// cut notes that the receive side of an end is out of use. The caller holds its lane, which
// is the other end's send lane.
func (c *conn) cut(w *wire) {
	other := c.active
	if w == c.active {
		c.cutActive = true
		other = c.passive
	} else {
		c.cutPassive = true
	}
	if other != nil && other.conn == c {
		other.qp.SetPeer(nil)
	}
}

// PrivateData implements [verbs.ConnRequest].
func (c *conn) PrivateData() []byte { return c.data }

// Local implements [verbs.ConnRequest].
func (c *conn) Local() verbs.Address { return c.remote }

// Remote implements [verbs.ConnRequest].
func (c *conn) Remote() verbs.Address { return c.local }

// ReadsIn implements [verbs.ConnRequest].
func (c *conn) ReadsIn() int { return c.out }

// ReadsOut implements [verbs.ConnRequest].
func (c *conn) ReadsOut() int { return c.in }

// RemoteQP implements [verbs.ConnRequest].
func (c *conn) RemoteQP() (qpn, qkey uint32, ud bool) { return 0, 0, false }

func (c *conn) isGone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// answerable says why the request cannot be answered any more. The caller holds mu.
func (c *conn) answerable() error {
	switch {
	case c.answered:
		return verbs.ErrState
	case c.gone:
		return verbs.ErrPeerGone
	}
	return nil
}

// Accept implements [verbs.ConnRequest].
func (c *conn) Accept(vq verbs.QP, p verbs.ConnParams) error {
	q, ok := vq.(*softnic.QP)
	if !ok || q.Context() != c.lis.ctx {
		return verbs.ErrInvalid
	}
	if err := q.Context().CheckParams(&p); err != nil {
		return err
	}
	a, b := c.active, q.Wire().(*wire)
	c.mu.Lock()
	if err := c.answerable(); err != nil {
		c.mu.Unlock()
		return err
	}
	// Receives of the passive side become reachable, under the active side's lane.
	err := q.Begin(c, func() {
		c.passive = b
		b.attach(c, a)
	})
	if err != nil {
		c.mu.Unlock()
		return err
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	established := a.qp.Establish(c, verbs.ConnEvent{
		PrivateData: append([]byte(nil), p.PrivateData...),
		ReadsIn:     c.in, ReadsOut: min(c.out, p.ReadsIn),
		Local: c.local, Remote: c.remote,
	}, func() {
		a.attach(c, b)
		a.open(c, q)
	})
	if !established {
		c.passive = nil
		c.mu.Unlock()
		q.Withdraw(c, b.detach)
		return verbs.ErrPeerGone
	}
	c.answered = true
	c.mu.Unlock()
	c.lis.settle(c)
	q.Establish(c, verbs.ConnEvent{
		ReadsIn: p.ReadsIn, ReadsOut: min(p.ReadsOut, c.in),
		Local: c.remote, Remote: c.local,
	}, func() { b.open(c, a.qp) })
	return nil
}

// attach lets the receive side of w be reached by from.
func (w *wire) attach(c *conn, from *wire) {
	l := w.qp.LockRecv()
	w.from, w.side = from, c
	w.qp.SetRecvLane(from.qp.Lane())
	l.Unlock()
}

// detach undoes attach.
func (w *wire) detach() {
	l := w.qp.LockRecv()
	w.from, w.side = nil, nil
	w.qp.SetRecvLane(nil)
	l.Unlock()
}

// open lets w send to a peer whose receive side is attached.
func (w *wire) open(c *conn, to *softnic.QP) {
	l := w.qp.Lane()
	l.Lock()
	cut := c.cutPassive
	if w != c.active {
		cut = c.cutActive
	}
	if w.conn = c; !cut {
		w.qp.SetPeer(to)
	}
	l.Unlock()
}

// Reject implements [verbs.ConnRequest].
func (c *conn) Reject(privateData []byte) error {
	if len(privateData) > c.lis.ctx.Attr().MaxPrivateData {
		return verbs.ErrLength
	}
	return c.decline(verbs.ConnEvent{
		Kind: verbs.ConnRejected, PrivateData: append([]byte(nil), privateData...),
		Err: errRejected,
	})
}

// Refuse implements [verbs.ConnRequest].
func (c *conn) Refuse() error {
	return c.decline(verbs.ConnEvent{Kind: verbs.ConnRefused, Err: errRefused})
}

func (c *conn) decline(ev verbs.ConnEvent) error {
	c.mu.Lock()
	if err := c.answerable(); err != nil {
		c.mu.Unlock()
		return err
	}
	c.answered = true
	c.mu.Unlock()
	if !c.active.qp.EndWith(c, ev) {
		return verbs.ErrPeerGone
	}
	return nil
}
