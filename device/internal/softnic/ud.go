package softnic

import (
	"net/netip"
	"sync/atomic"

	"kdapl/verbs"
)

// GRHLen is the length of the global route header in front of a datagram.
const GRHLen = 40

// AH is an address handle.
type AH struct {
	ctx    *Context
	pd     *PD
	addr   verbs.Address
	handle uint32
}

// ahTable finds address handles by number without a lock. Changes are under the
// context's object lock.
type ahTable struct {
	list atomic.Pointer[[]*AH] // a handle is an index plus 1
	free []uint32
	used int
}

func (t *ahTable) clear() {
	t.list.Store(nil)
	t.free, t.used = nil, 0
}

// CreateAH implements [verbs.PD].
func (pd *PD) CreateAH(a verbs.Address) (verbs.AH, error) {
	c := pd.ctx
	if !c.attr.Can(verbs.CapUD) {
		return nil, verbs.ErrNotSupported
	}
	if err := c.driver.Resolve(a); err != nil {
		return nil, err
	}
	c.obj.Lock()
	defer c.obj.Unlock()
	if err := pd.usable(); err != nil {
		return nil, err
	}
	t := &c.ahs
	if t.used >= c.attr.MaxAH {
		return nil, verbs.ErrLimit
	}
	var list []*AH
	if p := t.list.Load(); p != nil {
		list = *p
	}
	h := &AH{ctx: c, pd: pd, addr: a}
	list = append([]*AH(nil), list...)
	if n := len(t.free); n > 0 {
		h.handle = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		list = append(list, nil)
		h.handle = uint32(len(list))
	}
	list[h.handle-1] = h
	t.list.Store(&list)
	t.used++
	pd.uses++
	return h, nil
}

// Handle implements [verbs.AH].
func (h *AH) Handle() uint32 { return h.handle }

// Destroy implements [verbs.AH].
func (h *AH) Destroy() error {
	c := h.ctx
	c.obj.Lock()
	defer c.obj.Unlock()
	if c.LookupAH(h.handle) != h {
		return verbs.ErrClosed
	}
	t := &c.ahs
	list := append([]*AH(nil), *t.list.Load()...)
	list[h.handle-1] = nil
	t.list.Store(&list)
	t.free = append(t.free, h.handle)
	t.used--
	h.pd.uses--
	return nil
}

// Addr is the address that the handle stands for.
func (h *AH) Addr() verbs.Address { return h.addr }

// LookupAH finds an address handle, or nil.
func (c *Context) LookupAH(handle uint32) *AH {
	p := c.ahs.list.Load()
	if p == nil || handle == 0 || int(handle) > len(*p) {
		return nil
	}
	return (*p)[handle-1]
}

// Datagram is what a receiver learns of a datagram beside its payload.
type Datagram struct {
	From, To netip.Addr
	SrcQPN   uint32
	QKey     uint32
}

// TargetDatagram places a datagram into a receive of a UD QP, behind the global route
// header, or drops it: without a receive or the right key, or if it does not fit. The caller holds
// l, the lane under which src was resolved.
func (q *QP) TargetDatagram(l *Lane, d *Datagram, h *Head, src Vec) Verdict {
	rl := q.LockRecv()
	defer rl.mu.Unlock()
	if q.rmode != sideRun || q.typ != verbs.UD || q.qkey != d.QKey {
		return NotReady
	}
	n := uint32(src.Len())
	total := n + GRHLen
	r, ok := q.peekRecvFor(l, uint64(total))
	if !ok {
		return NotReady
	}
	q.takeRecv()
	dst, v := q.pd.gatherFirst(l, r.sg, verbs.AccessLocalWrite, uint64(total), peers)
	if v != Accepted {
		q.pushRecv(l, r.id, packWhat(verbs.OpRecv, verbs.StatusLocalProtection, verbs.CompletionRecvQueue), 0, 0)
		return RecvFault
	}
	head := routeHeader(d, n)
	copyAt(dst, 0, VecOf(head[:]))
	copyAt(dst, GRHLen, src)
	dst.release()
	tags, f := recvTags(h)
	q.pushRecv(l, r.id, packWhat(verbs.OpRecv, verbs.StatusSuccess, f|verbs.CompletionGRH)|uint64(d.SrcQPN)<<32, total, tags)
	return Accepted
}

// room is the number of bytes that a receive takes.
func room(sg []verbs.SGE) (n uint64) {
	for i := range sg {
		n += uint64(sg[i].Length)
	}
	return n
}

// routeHeader is the header that a router would have seen: IPv6, with IPv4 addresses mapped (IBTA
// 8.3, annex 17).
func routeHeader(d *Datagram, payload uint32) (h [GRHLen]byte) {
	h[0] = 6 << 4
	h[4], h[5] = byte(payload>>8), byte(payload)
	h[6] = 0x1B // next header: IBA transport
	h[7] = 64
	from, to := d.From.As16(), d.To.As16()
	copy(h[8:], from[:])
	copy(h[24:], to[:])
	return h
}
