package faultnet

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"kdapl/internal/netio"
	"kdapl/internal/netio/gate"
)

// PacketQueue is how many datagrams wait at a PacketConn; the network drops what comes beyond.
const PacketQueue = 1024

// Packet is a datagram under way.
type Packet struct {
	From, To netip.AddrPort
	Index    int // of those with the same From and To, from 0
	Len      int // bytes
}

// Fate is what befalls a datagram. The zero Fate is immediate delivery.
type Fate struct {
	Drop   bool
	Copies int           // beside the first
	Delay  time.Duration // later ones may overtake
	Flip   int           // which byte to xor with Mask
	Mask   byte
}

// PacketRates draws fates: a packet's depends on Seed, its addresses and its index alone. The rates
// are probabilities, from 0 to 1.
type PacketRates struct {
	Seed                          uint64
	Loss, Duplication, Corruption float64
	Latency                       time.Duration
	Reordering                    float64       // packets that are held back, for up to ReorderBy
	ReorderBy                     time.Duration // 0 is a millisecond
}

// Fate draws the fate of one packet. It is a Network's PacketFate.
func (r PacketRates) Fate(p Packet) Fate {
	mix := r.Seed
	for _, b := range fmt.Appendf(nil, "%v %v %d", p.From, p.To, p.Index) {
		mix = (mix ^ uint64(b)) * 0x100000001b3 // FNV
	}
	rng := rand.New(rand.NewPCG(r.Seed, mix))
	f := Fate{Delay: r.Latency, Drop: rng.Float64() < r.Loss}
	if rng.Float64() < r.Duplication {
		f.Copies = 1
	}
	if rng.Float64() < r.Corruption && p.Len > 0 {
		f.Flip, f.Mask = rng.IntN(p.Len), byte(1+rng.IntN(255))
	}
	if rng.Float64() < r.Reordering {
		by := r.ReorderBy
		if by <= 0 {
			by = time.Millisecond
		}
		f.Delay += 1 + time.Duration(rng.Int64N(int64(by)))
	}
	return f
}

// PacketConn is a datagram socket, as of UDP: what it sends arrives as its fate says, whole or not at
// all, and nobody is told what was lost.
type PacketConn struct {
	h     *Host
	local netip.AddrPort

	rd       *gate.Gate
	readable func(time.Time) (bool, time.Time)

	mu     sync.Mutex
	closed bool
	queue  []datagram // by time of arrival
}

type datagram struct {
	from    netip.AddrPort
	payload []byte
	at      time.Time
}

// flow counts the packets from one address to another.
type flow struct{ from, to netip.AddrPort }

// ListenPacket opens a datagram socket. Port 0 is replaced by a free one; the address must be one of
// the host's.
func (h *Host) ListenPacket(local netip.AddrPort) (*PacketConn, error) {
	n := h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	fail := func(err error) (*PacketConn, error) {
		return nil, &netio.Error{Stage: netio.StageBind, Local: local, Err: err}
	}
	if !slices.Contains(h.addrs, local.Addr()) {
		return fail(syscall.EADDRNOTAVAIL)
	}
	if local.Port() == 0 {
		port := uint16(firstPort)
		for n.packets[netip.AddrPortFrom(local.Addr(), port)] != nil {
			if port++; port == 0 {
				return fail(syscall.EADDRNOTAVAIL)
			}
		}
		local = netip.AddrPortFrom(local.Addr(), port)
	}
	if n.packets[local] != nil {
		return fail(syscall.EADDRINUSE)
	}
	c := &PacketConn{h: h, local: local, rd: gate.New()}
	c.readable = c.isReadable
	n.packets[local] = c
	return c, nil
}

// TryWriteTo sends one datagram. It never blocks; the network takes or loses what it is given.
func (c *PacketConn) TryWriteTo(p []byte, to netip.AddrPort) error {
	n := c.h.n
	n.mu.Lock()
	if n.packets[c.local] != c {
		n.mu.Unlock()
		return net.ErrClosed
	}
	k := flow{c.local, to}
	index := n.flows[k]
	n.flows[k]++
	var f Fate
	if n.PacketFate != nil {
		f = n.PacketFate(Packet{c.local, to, index, len(p)})
	}
	d := n.packets[to]
	if f.Drop || d == nil || !n.reach(c.h, d.h) {
		n.mu.Unlock()
		return nil
	}
	n.mu.Unlock()
	payload := slices.Clone(p)
	if f.Mask != 0 && f.Flip >= 0 && f.Flip < len(payload) {
		payload[f.Flip] ^= f.Mask
	}
	d.arrive(datagram{c.local, payload, time.Now().Add(f.Delay)}, 1+f.Copies)
	return nil
}

// arrive queues a datagram, copies times, behind those that arrive no later.
func (c *PacketConn) arrive(d datagram, copies int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range copies {
		if c.closed || len(c.queue) >= PacketQueue {
			return
		}
		i := slices.IndexFunc(c.queue, func(q datagram) bool { return q.at.After(d.at) })
		if i < 0 {
			i = len(c.queue)
		}
		c.queue = slices.Insert(c.queue, i, d)
	}
	c.rd.Open()
}

// TryReadFrom reads one datagram into p, and drops what does not fit. It does not block:
// netio.ErrWouldBlock if there is none now, net.ErrClosed after Close.
func (c *PacketConn) TryReadFrom(p []byte) (n int, from netip.AddrPort, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, from, net.ErrClosed
	}
	if len(c.queue) == 0 || c.queue[0].at.After(time.Now()) {
		return 0, from, netio.ErrWouldBlock
	}
	d := c.queue[0]
	c.queue = slices.Delete(c.queue, 0, 1)
	return copy(p, d.payload), d.from, nil
}

func (c *PacketConn) isReadable(now time.Time) (ok bool, next time.Time) {
	if c.closed {
		return true, next
	}
	if len(c.queue) > 0 {
		next = c.queue[0].at
		ok = !next.After(now)
	}
	return ok, next
}

// WaitReadable blocks until there is a datagram, the deadline (os.ErrDeadlineExceeded) or Close
// (net.ErrClosed). One goroutine waits at a time.
func (c *PacketConn) WaitReadable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.rd.Wait(&c.mu, c.readable)
	if c.closed {
		return net.ErrClosed
	}
	return err
}

// SetReadDeadline bounds WaitReadable, also a call in progress; the zero time removes the bound.
func (c *PacketConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.rd.SetDeadline(t)
	return nil
}

// LocalAddr is the socket's address with the real port.
func (c *PacketConn) LocalAddr() netip.AddrPort { return c.local }

// Close closes the socket. What is under way to it is lost.
func (c *PacketConn) Close() error {
	c.h.n.mu.Lock()
	if c.h.n.packets[c.local] == c {
		delete(c.h.n.packets, c.local)
	}
	c.h.n.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.queue = nil
	c.rd.Open()
	return nil
}
