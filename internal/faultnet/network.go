package faultnet

import (
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Network is a set of hosts that reach each other. Make one with New.
type Network struct {
	// Plan, if not nil, says what befalls a connection. It is asked once per attempt, with the
	// network locked. Set it before the first attempt.
	Plan func(Attempt) Plan

	// PacketFate, if not nil, says what befalls a datagram. It is asked once for each, with the
	// network locked. Set it before the first.
	PacketFate func(Packet) Fate

	mu       sync.Mutex
	hosts    map[netip.Addr]*Host
	cuts     map[[2]*Host]bool
	pairs    map[*pair][2]*Host
	changed  chan struct{} // closed and replaced when an attempt that hangs may go on
	attempts int
	packets  map[netip.AddrPort]*PacketConn
	flows    map[flow]int
}

// Attempt is an attempt to connect.
type Attempt struct {
	Index         int // of all attempts on this network, from 0
	Local, Remote netip.AddrPort
}

// New returns a network without hosts. Under testing/synctest it belongs to the caller's bubble.
func New() *Network {
	return &Network{
		hosts:   make(map[netip.Addr]*Host),
		cuts:    make(map[[2]*Host]bool),
		pairs:   make(map[*pair][2]*Host),
		changed: make(chan struct{}),
		packets: make(map[netip.AddrPort]*PacketConn),
		flows:   make(map[flow]int),
	}
}

// Host returns a new host with these addresses. It panics if there are none, or one is taken: that is
// a mistake in the test.
func (n *Network) Host(addrs ...netip.Addr) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(addrs) == 0 {
		panic("faultnet: a host needs an address")
	}
	h := &Host{n: n, addrs: addrs, listeners: make(map[netip.AddrPort]*listener), ports: make(map[uint16]int)}
	for _, a := range addrs {
		if !a.IsValid() || a.IsUnspecified() || n.hosts[a] != nil {
			panic(fmt.Sprintf("faultnet: address %v is taken or none", a))
		}
		n.hosts[a] = h
	}
	return h
}

// Cut stops everything between two hosts: connections go dark, attempts and packets get no answer.
func (n *Network) Cut(a, b *Host) {
	n.mu.Lock()
	n.cuts[[2]*Host{a, b}], n.cuts[[2]*Host{b, a}] = true, true
	n.mu.Unlock()
	n.sweep()
}

// Mend undoes Cut.
func (n *Network) Mend(a, b *Host) {
	n.mu.Lock()
	delete(n.cuts, [2]*Host{a, b})
	delete(n.cuts, [2]*Host{b, a})
	n.mu.Unlock()
	n.sweep()
}

// reach tells whether packets get from a to b. The caller holds mu.
func (n *Network) reach(a, b *Host) bool {
	return !a.vanished && !b.vanished && !n.cuts[[2]*Host{a, b}]
}

// sweep makes connections dark or light as their hosts are, and wakes attempts that hang.
func (n *Network) sweep() {
	n.mu.Lock()
	reach := make(map[*pair]bool, len(n.pairs))
	for p, hosts := range n.pairs {
		reach[p] = n.reach(hosts[0], hosts[1])
	}
	n.wake()
	n.mu.Unlock()
	for p, ok := range reach {
		if ok {
			p.ends[0].Heal()
		} else {
			p.ends[0].GoDark()
		}
	}
}

// wake lets attempts that hang look again. The caller holds mu.
func (n *Network) wake() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// Conns are the dialling ends of the connections that have some life left, in no order.
func (n *Network) Conns() []*Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	var conns []*Conn
	for p := range n.pairs {
		conns = append(conns, p.ends[0])
	}
	return conns
}

// connect makes a connection and registers it. The caller holds mu, and has the dialler's port.
func (n *Network) connect(plan Plan, from, to *Host, local, remote netip.AddrPort) *pair {
	p := newPair(plan,
		endConfig{local, from.UserTimeout, from.KeepAlive},
		endConfig{remote, to.UserTimeout, to.KeepAlive})
	p.gone = func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.pairs, p)
		from.release(local.Port())
	}
	n.pairs[p] = [2]*Host{from, to}
	return p
}

// sleep waits for d, and less if done is closed. It reports whether it waited to the end.
func sleep(d time.Duration, done <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}
