package faultnet

import (
	"context"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kdapl/internal/netio"
)

// Wrap puts a plan between a user and a real connection, which it owns from then on. Up is what the
// user sends (see Plan.Swap for the accepting side). What comes out is one end of a connection in
// memory with the plan, the addresses of c and its MSS; two goroutines carry bytes, ends and resets
// between its other end and c, until the user closes. In the dark the real peer hears nothing either;
// when the user closes then, it is reset.
func Wrap(c netio.Conn, plan Plan) *Conn {
	return wrap(c, plan, endConfig{addr: c.LocalAddr()})
}

func wrap(c netio.Conn, plan Plan, user endConfig) *Conn {
	p := newPair(plan, user, endConfig{addr: c.RemoteAddr()})
	p.userGone = make(chan struct{})
	if plan.Up.MSS == 0 {
		p.ends[0].mss = c.MSS
	}
	inner := p.ends[1]
	abort := func() {
		inner.Abort()
		c.Abort()
	}
	go func() {
		if forward(inner, c) != nil {
			abort()
			return
		}
		if <-p.userGone; p.userAborted() {
			abort()
			return
		}
		c.Close()
		inner.Close()
	}()
	go func() {
		if forward(c, inner) != nil {
			abort()
		}
	}()
	return p.ends[0]
}

// userAborted tells how the user's end went.
func (p *pair) userAborted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rude
}

// forward carries bytes until their end, which it passes on, or an error.
func forward(from, to netio.Conn) error {
	buf := make([]byte, 64<<10)
	in, out := [][]byte{buf}, make([][]byte, 1)
	for {
		n, err := from.TryReadv(in)
		switch {
		case err == netio.ErrWouldBlock:
			err = from.WaitReadable()
		case err == io.EOF:
			return to.CloseWrite()
		}
		if err != nil {
			return err
		}
		for rest := buf[:n]; len(rest) > 0; {
			out[0] = rest
			n, err := to.TryWritev(out)
			if err == netio.ErrWouldBlock {
				err = to.WaitWritable()
			}
			if err != nil {
				return err
			}
			rest = rest[n:]
		}
	}
}

// WrappedNetwork is a real network (netio.TCP, say) all of whose connections have plans. Refuse and
// Hang concern dialling; AcceptDelay holds Accept up, since the order of real connections is given.
type WrappedNetwork struct {
	Under netio.Network

	// Plan says what befalls a connection. Accepted ones are attempts too; there Remote is the
	// dialling end, and Plan.Up is what it sends, as on a Network.
	Plan func(Attempt) Plan

	// UserTimeout and KeepAlive are those of the ends given out, as for a Host: the sockets below
	// never see the dark.
	UserTimeout, KeepAlive time.Duration

	attempts atomic.Int64
}

var _ netio.Network = (*WrappedNetwork)(nil)

func (w *WrappedNetwork) plan(local, remote netip.AddrPort) Plan {
	if w.Plan == nil {
		return Plan{}
	}
	return w.Plan(Attempt{int(w.attempts.Add(1) - 1), local, remote})
}

// Dial implements netio.Network.
func (w *WrappedNetwork) Dial(ctx context.Context, local, remote netip.AddrPort) (netio.Conn, error) {
	plan := w.plan(local, remote)
	if plan.Refuse || plan.Hang || !sleep(plan.DialDelay, ctx.Done()) {
		return nil, w.noAnswer(ctx, plan, local, remote)
	}
	c, err := w.Under.Dial(ctx, local, remote)
	if err != nil {
		return nil, err
	}
	return wrap(c, plan, endConfig{c.LocalAddr(), w.UserTimeout, w.KeepAlive}), nil
}

// noAnswer is the outcome of an attempt that does not get through.
func (w *WrappedNetwork) noAnswer(ctx context.Context, plan Plan, local, remote netip.AddrPort) error {
	var err error = syscall.ECONNREFUSED
	if !plan.Refuse {
		if w.UserTimeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, w.UserTimeout, syscall.ETIMEDOUT)
			defer cancel()
		}
		<-ctx.Done()
		err = context.Cause(ctx)
	}
	return &netio.Error{Stage: netio.StageConnect, Local: local, Remote: remote, Err: err}
}

// Listen implements netio.Network.
func (w *WrappedNetwork) Listen(ctx context.Context, local netip.AddrPort) (netio.Listener, error) {
	ln, err := w.Under.Listen(ctx, local)
	if err != nil {
		return nil, err
	}
	return &wrappedListener{Listener: ln, w: w, done: make(chan struct{})}, nil
}

type wrappedListener struct {
	netio.Listener
	w    *WrappedNetwork
	once sync.Once
	done chan struct{} // closed by Close
}

// Accept implements netio.Listener.
func (l *wrappedListener) Accept() (netio.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	plan := l.w.plan(c.LocalAddr(), c.RemoteAddr())
	sleep(plan.AcceptDelay, l.done)
	return wrap(c, plan.Swap(), endConfig{c.LocalAddr(), l.w.UserTimeout, l.w.KeepAlive}), nil
}

// Close implements netio.Listener.
func (l *wrappedListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}
