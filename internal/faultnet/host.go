package faultnet

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"kdapl/internal/netio"
)

const (
	// Backlog is how many connections wait for Accept. Attempts beyond it hang until there is room.
	Backlog = 128

	firstPort = 49152 // of those that the host chooses (RFC 6335)
)

// Host is a machine on the network. It implements netio.Network.
type Host struct {
	// UserTimeout and KeepAlive are those of netio.TCP, but 0 is off. UserTimeout also bounds an
	// attempt that gets no answer. Set them before the first connection.
	UserTimeout, KeepAlive time.Duration

	n         *Network
	addrs     []netip.Addr
	listeners map[netip.AddrPort]*listener
	ports     map[uint16]int // users of a port, by connections dialled and listeners
	lastPort  uint16
	vanished  bool
}

var _ netio.Network = (*Host)(nil)

// Vanish makes the host fall silent: a machine without power, a pulled cable. Connections go dark.
func (h *Host) Vanish() { h.setVanished(true) }

// Return undoes Vanish. Connections whose ends have not given up go on.
func (h *Host) Return() { h.setVanished(false) }

func (h *Host) setVanished(v bool) {
	h.n.mu.Lock()
	h.vanished = v
	h.n.mu.Unlock()
	h.n.sweep()
}

// Crash is the end of the host's processes: its system closes every listener and connection, which
// sends a reset where there was unread input and an end elsewhere.
func (h *Host) Crash() {
	listeners, ends := h.all()
	for _, l := range listeners {
		l.Close()
	}
	for _, e := range ends {
		e.Close()
	}
}

// Reboot makes the host forget every listener and connection without a word. The other ends are
// half open: they find out when they send, or by a keepalive probe, and are answered with a reset.
func (h *Host) Reboot() {
	listeners, ends := h.all()
	for _, e := range ends {
		e.forget()
	}
	for _, l := range listeners {
		l.Close()
	}
}

// all collects the host's listeners and its ends of connections.
func (h *Host) all() (ls []*listener, ends []*Conn) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	for _, l := range h.listeners {
		ls = append(ls, l)
	}
	for p, hosts := range h.n.pairs {
		for i, owner := range hosts {
			if owner == h {
				ends = append(ends, p.ends[i])
			}
		}
	}
	return ls, ends
}

// bind checks an address that a caller wants, chooses what it leaves open, and takes the port. The
// family of like decides which address is chosen. The caller holds the network's lock.
func (h *Host) bind(want netip.AddrPort, like netip.Addr) (netip.AddrPort, error) {
	addr := want.Addr().Unmap()
	if !addr.IsValid() || addr.IsUnspecified() {
		i := slices.IndexFunc(h.addrs, func(a netip.Addr) bool { return a.Is4() == like.Is4() })
		if i < 0 {
			return want, syscall.EADDRNOTAVAIL
		}
		addr = h.addrs[i]
	} else if !slices.Contains(h.addrs, addr) {
		return want, syscall.EADDRNOTAVAIL
	}
	port, err := h.takePort(want.Port())
	return netip.AddrPortFrom(addr, port), err
}

// takePort takes a port that nobody uses; 0 lets the host choose. The caller holds the lock.
func (h *Host) takePort(want uint16) (uint16, error) {
	if want != 0 {
		if h.ports[want] > 0 {
			return want, syscall.EADDRINUSE
		}
		h.ports[want]++
		return want, nil
	}
	for range 1<<16 - firstPort {
		h.lastPort = max(h.lastPort+1, firstPort) // 0 follows 65535
		if h.ports[h.lastPort] == 0 {
			h.ports[h.lastPort]++
			return h.lastPort, nil
		}
	}
	return 0, syscall.EADDRNOTAVAIL
}

// release gives a port back. The caller holds the lock.
func (h *Host) release(port uint16) {
	if h.ports[port]--; h.ports[port] <= 0 {
		delete(h.ports, port)
	}
}

// Dial implements netio.Network.
func (h *Host) Dial(ctx context.Context, local, remote netip.AddrPort) (netio.Conn, error) {
	n := h.n
	fail := func(stage netio.Stage, err error) (netio.Conn, error) {
		return nil, &netio.Error{Stage: stage, Local: local, Remote: remote, Err: err}
	}
	if ctx.Err() != nil {
		return fail(netio.StageConnect, context.Cause(ctx))
	}
	remote = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())
	if h.UserTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, h.UserTimeout, syscall.ETIMEDOUT)
		defer cancel()
	}

	n.mu.Lock()
	from, err := h.bind(local, remote.Addr())
	if err != nil {
		n.mu.Unlock()
		return fail(netio.StageBind, err)
	}
	local = from
	var plan Plan
	if n.Plan != nil {
		plan = n.Plan(Attempt{n.attempts, local, remote})
	}
	n.attempts++
	n.mu.Unlock()

	p, err := h.attempt(ctx, plan, local, remote)
	if err != nil {
		n.mu.Lock()
		h.release(local.Port())
		n.mu.Unlock()
		return fail(netio.StageConnect, err)
	}
	if err := h.answer(ctx, plan, remote); err != nil {
		p.ends[0].Abort()
		return fail(netio.StageConnect, err)
	}
	return p.ends[0], nil
}

// answer waits until the listener's answer has come back.
func (h *Host) answer(ctx context.Context, plan Plan, remote netip.AddrPort) error {
	if !sleep(plan.Down.Latency+plan.DialDelay, ctx.Done()) {
		return context.Cause(ctx)
	}
	for {
		h.n.mu.Lock()
		ok, changed := h.n.reach(h, h.n.hosts[remote.Addr()]), h.n.changed
		h.n.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// attempt gets the connection into the queue of its listener.
func (h *Host) attempt(ctx context.Context, plan Plan, local, remote netip.AddrPort) (*pair, error) {
	n := h.n
	if !sleep(plan.Up.Latency, ctx.Done()) {
		return nil, context.Cause(ctx)
	}
	for {
		n.mu.Lock()
		to := n.hosts[remote.Addr()]
		if to != nil && n.reach(h, to) && !plan.Hang {
			l := to.listeners[remote]
			if l == nil || plan.Refuse {
				n.mu.Unlock()
				sleep(plan.Down.Latency, ctx.Done())
				return nil, syscall.ECONNREFUSED
			}
			if len(l.queue) < Backlog {
				p := n.connect(plan, h, to, local, remote)
				l.add(p.ends[1], time.Now().Add(plan.AcceptDelay))
				n.mu.Unlock()
				return p, nil
			}
		}
		changed := n.changed
		n.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Listen implements netio.Network.
func (h *Host) Listen(ctx context.Context, local netip.AddrPort) (netio.Listener, error) {
	fail := func(stage netio.Stage, err error) (netio.Listener, error) {
		return nil, &netio.Error{Stage: stage, Local: local, Err: err}
	}
	if ctx.Err() != nil {
		return fail(netio.StageListen, context.Cause(ctx))
	}
	n := h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	want := local.Addr().Unmap()
	var on []netip.Addr
	for _, a := range h.addrs {
		if !want.IsValid() || a == want || want.IsUnspecified() && a.Is4() == want.Is4() {
			on = append(on, a)
		}
	}
	if len(on) == 0 {
		return fail(netio.StageBind, syscall.EADDRNOTAVAIL)
	}
	port := local.Port()
	if port == 0 {
		var err error
		if port, err = h.takePort(0); err != nil {
			return fail(netio.StageBind, err)
		}
	} else {
		for _, a := range on {
			if h.listeners[netip.AddrPortFrom(a, port)] != nil {
				return fail(netio.StageBind, syscall.EADDRINUSE)
			}
		}
		h.ports[port]++
	}
	if !want.IsValid() {
		want = netip.IPv6Unspecified()
	}
	l := &listener{h: h, local: netip.AddrPortFrom(want, port), changed: make(chan struct{})}
	for _, a := range on {
		l.on = append(l.on, netip.AddrPortFrom(a, port))
		h.listeners[netip.AddrPortFrom(a, port)] = l
	}
	return l, nil
}

// listener is a listening address. Its state is under the network's lock.
type listener struct {
	h       *Host
	local   netip.AddrPort
	on      []netip.AddrPort
	queue   []waiting
	closed  bool
	changed chan struct{} // closed and replaced when Accept should look again
}

// waiting is a connection that can be accepted from the time ready on.
type waiting struct {
	c     *Conn
	ready time.Time
}

// add queues a connection behind those that are ready no later.
func (l *listener) add(c *Conn, ready time.Time) {
	i := slices.IndexFunc(l.queue, func(w waiting) bool { return w.ready.After(ready) })
	if i < 0 {
		i = len(l.queue)
	}
	l.queue = slices.Insert(l.queue, i, waiting{c, ready})
	l.wake()
}

func (l *listener) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Accept implements netio.Listener.
func (l *listener) Accept() (netio.Conn, error) {
	for {
		l.h.n.mu.Lock()
		if l.closed {
			l.h.n.mu.Unlock()
			return nil, net.ErrClosed
		}
		changed := l.changed
		wait := time.Duration(-1)
		if len(l.queue) > 0 {
			if wait = time.Until(l.queue[0].ready); wait <= 0 {
				c := l.queue[0].c
				l.queue = slices.Delete(l.queue, 0, 1)
				l.h.n.wake()
				l.h.n.mu.Unlock()
				return c, nil
			}
		}
		l.h.n.mu.Unlock()
		if wait < 0 {
			<-changed
		} else {
			sleep(wait, changed)
		}
	}
}

// Addr implements netio.Listener.
func (l *listener) Addr() netip.AddrPort { return l.local }

// Close implements netio.Listener.
func (l *listener) Close() error {
	l.h.n.mu.Lock()
	if l.closed {
		l.h.n.mu.Unlock()
		return nil
	}
	l.closed = true
	queue := l.queue
	l.queue = nil
	for _, a := range l.on {
		delete(l.h.listeners, a)
	}
	l.h.release(l.local.Port())
	l.wake()
	l.h.n.wake()
	l.h.n.mu.Unlock()
	for _, w := range queue {
		w.c.Abort()
	}
	return nil
}
