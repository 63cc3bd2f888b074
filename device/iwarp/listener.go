package iwarp

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/internal/netio"
	"kdapl/verbs"
)

// listener takes connection requests at an address and port.
type listener struct {
	drv    *driver
	ctx    *softnic.Context
	ln     netio.Listener
	addr   verbs.Address
	events softnic.Events[*request]

	mu      sync.Mutex
	closed  bool
	backlog int
	half    map[netio.Conn]struct{} // connections in the start-up phase
	waiting map[*request]struct{}   // requests without an answer
}

// Listen implements [softnic.Driver]. The zero address is the adapter's own; the unspecified address of a
// family stands for all of that family.
func (d *driver) Listen(ctx *softnic.Context, cfg verbs.ListenConfig) (verbs.Listener, error) {
	attr := ctx.Attr()
	if !cfg.Local.IP.IsValid() {
		cfg.Local.IP = attr.Addr
	}
	cfg.Local.IP = cfg.Local.IP.Unmap()
	if cfg.Local.IP != attr.Addr && !cfg.Local.IP.IsUnspecified() || cfg.Local.Port > attr.MaxPort {
		return nil, verbs.ErrAddr
	}
	if cfg.Backlog == 0 {
		cfg.Backlog = defaultBacklog
	}
	ln, err := d.cfg.Network.Listen(context.Background(), addrPort(cfg.Local))
	switch {
	case inUse(err):
		return nil, errors.Join(verbs.ErrAddrInUse, err)
	case err != nil:
		return nil, errors.Join(verbs.ErrAddr, err)
	}
	l := &listener{
		drv: d, ctx: ctx, ln: ln, addr: verbs.Address{IP: cfg.Local.IP, Port: uint64(ln.Addr().Port())}, backlog: cfg.Backlog,
		half: map[netio.Conn]struct{}{}, waiting: map[*request]struct{}{},
	}
	l.events.Do = func(r *request) {
		if !r.isGone() {
			cfg.Request(r)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		ln.Close()
		return nil, verbs.ErrClosed
	}
	d.listeners[l] = struct{}{}
	go l.accept()
	return l, nil
}

// Addr implements [verbs.Listener].
func (l *listener) Addr() verbs.Address { return l.addr }

// Close implements [verbs.Listener].
func (l *listener) Close() error {
	if !l.shut(false) {
		return verbs.ErrClosed
	}
	return nil
}

// shut ends the listener. Connections in the start-up phase end, and requests that were not delivered are
// refused; with all, so are those that were delivered and not answered.
func (l *listener) shut(all bool) (first bool) {
	l.ln.Close()
	l.mu.Lock()
	first = !l.closed
	l.closed = true
	var rest []*request
	if all {
		for r := range l.waiting {
			rest = append(rest, r)
		}
	}
	for nc := range l.half {
		nc.Close()
	}
	over := len(l.waiting) == 0
	l.mu.Unlock()
	for _, r := range append(rest, l.events.Close()...) {
		r.Refuse()
	}
	if over {
		l.drv.forget(l)
	}
	return first
}

// acceptPause is how long the listener waits when the system has no room for a connection.
const acceptPause = 5 * time.Millisecond

func (l *listener) accept() {
	over := false
	defer func() {
		if !over { // the callback of a request left by runtime.Goexit
			go l.accept()
		}
	}()
	for {
		nc, err := l.ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			over = true
			return
		case err != nil:
			time.Sleep(acceptPause)
			continue
		}
		l.begin(nc)
	}
}

// begin takes the request of a new connection. It is there, as a rule: the peer sends it when TCP's handshake is over, which
// also wakes who accepts. Otherwise a goroutine waits for it, within the time for that.
func (l *listener) begin(raw netio.Conn) {
	l.mu.Lock()
	full := l.closed || len(l.half) >= l.drv.cfg.MaxHalfOpen
	if !full {
		l.half[raw] = struct{}{}
	}
	l.mu.Unlock()
	if full {
		raw.Close()
		return
	}
	nc := l.drv.cap.wrap(raw, false)
	s := &startup{kind: mpa.Request}
	if err := s.tryFrom(nc); err != netio.ErrWouldBlock {
		l.take(raw, nc, s, err)
		return
	}
	go func() {
		nc.SetReadDeadline(time.Now().Add(l.drv.cfg.StartTimeout))
		err := s.readFrom(nc)
		nc.SetReadDeadline(time.Time{})
		l.take(raw, nc, s, err)
	}()
}

// take ends the start-up phase of a connection, and offers its request.
func (l *listener) take(raw, nc netio.Conn, s *startup, err error) {
	l.mu.Lock()
	delete(l.half, raw)
	l.mu.Unlock()
	local := l.drv.responder(&verbs.ConnParams{})
	if err == nil {
		_, _, err = local.Answer(s.frame.Header())
		if err == mpa.ErrNoRTR || err == mpa.ErrInsufficientIRD {
			err = nil // cannot be: every kind is understood, and no depth demanded
		}
	}
	if err != nil {
		// RFC 5044 section 7.1.2: an improper frame gets no answer.
		nc.Close()
		return
	}
	c := newConn(l.drv, false)
	c.nc, c.local, c.remote = nc, address(nc.LocalAddr()), address(nc.RemoteAddr())
	r := &request{lis: l, c: c, frame: s.frame}
	r.in, r.out = depths(s.frame.Header(), l.ctx.Attr())
	mine, err := l.offer(r)
	if err != nil {
		r.Refuse()
	}
	go r.guard()
	if mine {
		l.events.Deliver()
	}
}

// offer queues a request for delivery, unless there is no room for it; mine says that the caller is to deliver.
func (l *listener) offer(r *request) (mine bool, err error) {
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return false, errClosed
	case len(l.waiting) >= l.backlog:
		l.mu.Unlock()
		return false, errBacklog
	}
	l.waiting[r] = struct{}{}
	l.mu.Unlock()
	mine, ok := l.events.Hold(r)
	if !ok {
		return false, errClosed
	}
	return mine, nil
}

// settle takes a request out of the backlog: it is answered, or its peer gave up.
func (l *listener) settle(r *request) {
	l.mu.Lock()
	delete(l.waiting, r)
	over := l.closed && len(l.waiting) == 0
	l.mu.Unlock()
	if over {
		l.drv.forget(l)
	}
}
