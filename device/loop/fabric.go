package loop

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"

	"kdapl/device/internal/softnic"
	"kdapl/verbs"
)

// fabric is what the adapters of the process share: addresses, ports and QP numbers.
var fabric = network{
	adapters:  map[netip.Addr]int{},
	listeners: map[verbs.Address]*listener{},
	datagrams: map[uint32]*softnic.QP{},
	port:      firstFreePort,
}

// firstFreePort is where free ports are looked for.
const firstFreePort = 49152

type network struct {
	nextQPN atomic.Uint32

	mu        sync.RWMutex
	adapters  map[netip.Addr]int
	listeners map[verbs.Address]*listener
	datagrams map[uint32]*softnic.QP
	port      uint64
}

// qpn draws a QP number. 0 and 1 are special in InfiniBand, and numbers have 24 bits.
func (n *network) qpn() uint32 {
	for {
		if q := n.nextQPN.Add(1) & 0xFFFFFF; q > 1 {
			return q
		}
	}
}

func (n *network) addAdapter(a netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.adapters[a]++
}

func (n *network) removeAdapter(a netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.adapters[a]--; n.adapters[a] == 0 {
		delete(n.adapters, a)
	}
}

// freePort draws a port that nobody listens on, up to limit, which fits a socket address. It goes round, so that a port that
// was freed rests. The caller holds mu.
func (n *network) freePort(a netip.Addr, limit uint64) (uint64, bool) {
	first := uint64(firstFreePort)
	limit = min(limit, math.MaxUint16)
	if limit < first {
		first = 1
	}
	for range uint64(len(n.listeners)) + 1 {
		if n.port < first || n.port > limit {
			n.port = first
		}
		p := n.port
		n.port++
		if n.listeners[verbs.Address{IP: a, Port: p}] == nil {
			return p, true
		}
	}
	return 0, false
}

// ephemeral draws the port of an active end.
func (n *network) ephemeral(a netip.Addr, limit uint64) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, _ := n.freePort(a, limit)
	return p
}

// bind makes l known at its address, with a free port for port 0.
func (n *network) bind(l *listener, limit uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.addr.Port == 0 {
		p, ok := n.freePort(l.addr.IP, limit)
		if !ok {
			return verbs.ErrLimit
		}
		l.addr.Port = p
	}
	if n.listeners[l.addr] != nil {
		return verbs.ErrAddrInUse
	}
	n.listeners[l.addr] = l
	return nil
}

func (n *network) unbind(l *listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[l.addr] == l {
		delete(n.listeners, l.addr)
	}
}

// find returns the listener at an address, and whether an adapter has the address.
func (n *network) find(a verbs.Address) (l *listener, reachable bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.listeners[a], n.adapters[a.IP] > 0
}

func (n *network) addUD(q *softnic.QP) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.datagrams[q.Num()] = q
}

func (n *network) removeUD(q *softnic.QP) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.datagrams[q.Num()] == q {
		delete(n.datagrams, q.Num())
	}
}

// findUD returns the UD QP with the number on an adapter with the address, or nil.
func (n *network) findUD(a netip.Addr, num uint32) *softnic.QP {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if q := n.datagrams[num]; q != nil && q.Context().Attr().Addr == a {
		return q
	}
	return nil
}
