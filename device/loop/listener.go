package loop

import (
	"sync"

	"kdapl/device/internal/softnic"
	"kdapl/verbs"
)

// defaultBacklog is the number of requests that may wait for an answer if the
// listener does not say.
const defaultBacklog = 128

// request is what arrives at a listener: a connection's or a UD QP's.
type request interface {
	verbs.ConnRequest
	// isGone reports that the active side has given up.
	isGone() bool
}

// listener takes connection requests at an address and port.
type listener struct {
	drv    *driver // which knows of it until it is closed and every request has an end
	ctx    *softnic.Context
	addr   verbs.Address
	events softnic.Events[request]

	mu      sync.Mutex
	closed  bool
	backlog int
	waiting map[request]struct{} // requests without an answer
}

// Listen implements [softnic.Driver].
func (d *driver) Listen(ctx *softnic.Context, cfg verbs.ListenConfig) (verbs.Listener, error) {
	attr := ctx.Attr()
	if !cfg.Local.IP.IsValid() || cfg.Local.IP.IsUnspecified() {
		cfg.Local.IP = attr.Addr
	}
	cfg.Local.IP = cfg.Local.IP.Unmap()
	if cfg.Local.IP != attr.Addr || cfg.Local.Port > attr.MaxPort {
		return nil, verbs.ErrAddr
	}
	if cfg.Backlog == 0 {
		cfg.Backlog = defaultBacklog
	}
	l := &listener{drv: d, ctx: ctx, addr: cfg.Local, backlog: cfg.Backlog, waiting: map[request]struct{}{}}
	l.events.Do = func(c request) {
		if !c.isGone() {
			cfg.Request(c)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, verbs.ErrClosed
	}
	if err := fabric.bind(l, attr.MaxPort); err != nil {
		return nil, err
	}
	d.listeners[l] = struct{}{}
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

// shut ends the listener. Requests that were not delivered are refused; with all, so are those
// that were delivered and not answered.
func (l *listener) shut(all bool) (first bool) {
	fabric.unbind(l)
	l.mu.Lock()
	first = !l.closed
	l.closed = true
	var rest []request
	if all {
		for c := range l.waiting {
			rest = append(rest, c)
		}
	}
	over := len(l.waiting) == 0
	l.mu.Unlock()
	for _, c := range append(rest, l.events.Close()...) {
		c.Refuse()
	}
	if over {
		l.drv.forget(l)
	}
	return first
}

// offer delivers a request, unless there is no room for it.
func (l *listener) offer(c request) error {
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return errNoListener
	case len(l.waiting) >= l.backlog:
		l.mu.Unlock()
		return errBacklog
	}
	l.waiting[c] = struct{}{}
	l.mu.Unlock()
	if !l.events.Post(c) {
		l.settle(c)
		return errNoListener
	}
	if c.isGone() {
		l.settle(c)
	}
	return nil
}

// settle takes a request out of the backlog: it is answered, or its peer gave up.
func (l *listener) settle(c request) {
	l.mu.Lock()
	delete(l.waiting, c)
	over := l.closed && len(l.waiting) == 0
	l.mu.Unlock()
	if over {
		l.drv.forget(l)
	}
}
