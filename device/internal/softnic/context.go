package softnic

import (
	"encoding/binary"
	"sync"

	"kdapl/verbs"
)

// Config is what a device gives for a new context.
type Config struct {
	Attr   verbs.Attr
	Driver Driver
	// Direct says that a request may be started without being queued first, because the wire
	// never answers Running.
	Direct bool
	// Feed, if not nil, makes the driver's part of a new CQ.
	Feed func(*CQ) Feed
	// QPN draws a QP number.
	QPN func() uint32
	// Async is the consumer's.
	Async func(verbs.AsyncEvent)
}

// Context is an open device.
type Context struct {
	attr   verbs.Attr
	driver Driver
	direct bool
	feed   func(*CQ) Feed
	qpn    func() uint32
	async  Events[verbs.AsyncEvent]
	words  sync.Mutex // atomics on memory that is not aligned in this process

	// mem guards what keys stand for.
	mem  sync.Mutex
	keys *keyTable

	// obj guards the objects and their use counts. No other lock is taken inside.
	obj    sync.Mutex
	closed bool
	lost   bool // the device is gone
	cqs    map[*CQ]struct{}
	pds    map[*PD]struct{}
	qps    map[*QP]struct{}
	srqs   map[*SRQ]struct{}
	mrs    map[*MR]struct{}
	mws    map[*MW]struct{}
	ahs    ahTable
}

// New opens a context.
func New(cfg Config) *Context {
	c := &Context{
		attr: cfg.Attr, driver: cfg.Driver, direct: cfg.Direct, feed: cfg.Feed, qpn: cfg.QPN,
		keys: newKeyTable(cfg.Attr.MaxMR + cfg.Attr.MaxMW),
		cqs:  map[*CQ]struct{}{}, pds: map[*PD]struct{}{}, qps: map[*QP]struct{}{},
		srqs: map[*SRQ]struct{}{}, mrs: map[*MR]struct{}{}, mws: map[*MW]struct{}{},
	}
	c.async.Do = cfg.Async
	return c
}

// Attr implements [verbs.Context].
func (c *Context) Attr() *verbs.Attr { return &c.attr }

// Driver is the device's part.
func (c *Context) Driver() Driver { return c.driver }

// usable returns why nothing can be made. The caller holds obj.
func (c *Context) usable() error {
	switch {
	case c.closed:
		return verbs.ErrClosed
	case c.lost:
		return verbs.ErrNoDevice
	}
	return nil
}

// Usable is ErrClosed after Close, ErrNoDevice after Lose, nil otherwise.
func (c *Context) Usable() error {
	c.obj.Lock()
	defer c.obj.Unlock()
	return c.usable()
}

// Listen implements [verbs.Context].
func (c *Context) Listen(cfg verbs.ListenConfig) (verbs.Listener, error) {
	if err := c.Usable(); err != nil {
		return nil, err
	}
	if cfg.Request == nil || cfg.Backlog < 0 {
		return nil, verbs.ErrInvalid
	}
	return c.driver.Listen(c, cfg)
}

// AllocPD implements [verbs.Context].
func (c *Context) AllocPD() (verbs.PD, error) {
	c.obj.Lock()
	defer c.obj.Unlock()
	if err := c.usable(); err != nil {
		return nil, err
	}
	if len(c.pds) >= c.attr.MaxPD {
		return nil, verbs.ErrLimit
	}
	pd := &PD{ctx: c}
	c.pds[pd] = struct{}{}
	return pd, nil
}

// CreateCQ implements [verbs.Context].
func (c *Context) CreateCQ(cqe int, notify func()) (verbs.CQ, error) {
	if cqe < 1 || cqe > c.attr.MaxCQE {
		return nil, verbs.ErrInvalid
	}
	c.obj.Lock()
	defer c.obj.Unlock()
	if err := c.usable(); err != nil {
		return nil, err
	}
	if len(c.cqs) >= c.attr.MaxCQ {
		return nil, verbs.ErrLimit
	}
	cq := newCQ(c, cqe, notify)
	c.cqs[cq] = struct{}{}
	if c.feed != nil {
		cq.fed = &fedCQ{cq, c.feed(cq)}
	}
	return cq.face(), nil
}

func (c *Context) destroyCQ(cq *CQ, force bool) error {
	c.obj.Lock()
	_, there := c.cqs[cq]
	switch {
	case !there:
		c.obj.Unlock()
		return verbs.ErrClosed
	case cq.queues > 0 && !force:
		c.obj.Unlock()
		return verbs.ErrBusy
	}
	delete(c.cqs, cq)
	c.obj.Unlock()
	cq.shut()
	return nil
}

func (c *Context) destroySRQ(s *SRQ, force bool) error {
	c.obj.Lock()
	_, there := c.srqs[s]
	switch {
	case !there:
		c.obj.Unlock()
		return verbs.ErrClosed
	case s.qps > 0 && !force:
		c.obj.Unlock()
		return verbs.ErrBusy
	}
	delete(c.srqs, s)
	s.pd.uses--
	c.obj.Unlock()
	s.lane.Lock()
	s.closed, s.rq.head = true, s.rq.tail
	s.lane.Unlock()
	return nil
}

// addMR and addMW give an object its entry, which set fills; the entry's key is published with
// it if there is one at once.
func (c *Context) addMR(m *MR, set func(e *entry), valid bool) error {
	c.obj.Lock()
	defer c.obj.Unlock()
	if err := m.pd.usable(); err != nil {
		return err
	}
	c.mem.Lock()
	defer c.mem.Unlock()
	if len(c.mrs) < c.attr.MaxMR {
		m.e = c.keys.alloc()
	}
	if m.e == nil {
		return verbs.ErrLimit
	}
	m.e.mr, m.e.mw = m, nil
	set(m.e)
	if valid {
		m.e.key.Store(c.keys.draw(m.e))
	}
	c.mrs[m] = struct{}{}
	m.pd.uses++
	return nil
}

func (c *Context) addMW(m *MW, set func(e *entry)) error {
	c.obj.Lock()
	defer c.obj.Unlock()
	if err := m.pd.usable(); err != nil {
		return err
	}
	c.mem.Lock()
	defer c.mem.Unlock()
	if len(c.mws) < c.attr.MaxMW {
		m.e = c.keys.alloc()
	}
	if m.e == nil {
		return verbs.ErrLimit
	}
	m.e.mr, m.e.mw = nil, m
	m.last = m.e.drawn
	set(m.e)
	c.mws[m] = struct{}{}
	m.pd.uses++
	return nil
}

func (c *Context) deregMR(m *MR, force bool) error {
	c.hold(nil, m.e)
	c.mem.Lock()
	switch {
	case m.gone:
		c.mem.Unlock()
		c.let(m.e)
		return verbs.ErrClosed
	case m.e.windows > 0 && !force:
		c.mem.Unlock()
		c.let(m.e)
		return verbs.ErrBusy
	}
	m.gone, m.key, m.last, m.pieces = true, 0, 0, nil
	m.e.key.Store(0)
	c.mem.Unlock()
	m.e.quiesce(nil)
	m.e.forget()
	c.obj.Lock()
	delete(c.mrs, m)
	m.pd.uses--
	c.mem.Lock()
	c.retire(m.e)
	c.mem.Unlock()
	c.obj.Unlock()
	return nil
}

func (c *Context) deallocMW(m *MW) error {
	c.hold(nil, m.e)
	c.mem.Lock()
	if m.gone {
		c.mem.Unlock()
		c.let(m.e)
		return verbs.ErrClosed
	}
	m.gone = true
	if m.e.key.Load() != 0 {
		m.release()
	}
	c.mem.Unlock()
	m.e.quiesce(nil)
	m.e.forget()
	c.obj.Lock()
	delete(c.mws, m)
	m.pd.uses--
	c.mem.Lock()
	c.retire(m.e)
	c.mem.Unlock()
	c.obj.Unlock()
	return nil
}

// retire gives an entry back. The caller holds mem and has the entry.
func (c *Context) retire(e *entry) {
	e.kind, e.pd, e.mr, e.mw, e.busy = kindNone, nil, nil, nil, false
	c.keys.free(e)
}

// lanes lists all lanes under which memory of a PD can be accessed.
func (c *Context) lanes(pd *PD) []*Lane {
	c.obj.Lock()
	defer c.obj.Unlock()
	var ls []*Lane
	for q := range c.qps {
		if q.pd == pd {
			ls = append(ls, q.lane)
			if r := q.rlane.Load(); r != q.lane {
				ls = append(ls, r)
			}
		}
	}
	for s := range c.srqs {
		if s.pd == pd {
			ls = append(ls, &s.lane)
		}
	}
	return ls
}

func (c *Context) removeQP(q *QP) {
	if q.sendCQ != nil {
		q.sendCQ.detach(q.sowner, q.sqPushed)
	}
	if q.recvCQ != nil {
		q.recvCQ.detach(q.rowner, q.rqPushed)
	}
	c.obj.Lock()
	defer c.obj.Unlock()
	delete(c.qps, q)
	q.pd.uses--
	if q.sendCQ != nil {
		q.sendCQ.queues--
	}
	if q.recvCQ != nil {
		q.recvCQ.queues--
	}
	if q.srq != nil {
		q.srq.qps--
	}
}

func (c *Context) allQPs(keep func(*QP) bool) []*QP {
	c.obj.Lock()
	defer c.obj.Unlock()
	var qs []*QP
	for q := range c.qps {
		if keep(q) {
			qs = append(qs, q)
		}
	}
	return qs
}

// cqFailed takes the consequences of an overflow.
func (c *Context) cqFailed(cq *CQ) {
	c.async.Post(verbs.AsyncEvent{Kind: verbs.AsyncCQError, CQ: cq.face(), Err: errOverflow})
	for _, q := range c.allQPs(func(q *QP) bool { return q.sendCQ == cq || q.recvCQ == cq }) {
		q.Fail(errOverflow)
	}
}

// Lose makes the device gone: every QP fails, and the consumer is told. Close still works.
func (c *Context) Lose(err error) {
	c.obj.Lock()
	if c.closed || c.lost {
		c.obj.Unlock()
		return
	}
	c.lost = true
	c.obj.Unlock()
	c.async.Post(verbs.AsyncEvent{Kind: verbs.AsyncDeviceFatal, Err: err})
	for _, q := range c.allQPs(func(*QP) bool { return true }) {
		q.Fail(err)
	}
}

// Close implements [verbs.Context].
func (c *Context) Close() error {
	c.obj.Lock()
	if c.closed {
		c.obj.Unlock()
		return verbs.ErrClosed
	}
	c.closed = true
	c.obj.Unlock()
	c.driver.Closing(c)
	for _, q := range c.allQPs(func(*QP) bool { return true }) {
		q.Destroy()
	}
	for _, s := range snapshot(c, c.srqs) {
		c.destroySRQ(s, true)
	}
	for _, m := range snapshot(c, c.mws) {
		c.deallocMW(m)
	}
	for _, m := range snapshot(c, c.mrs) {
		c.deregMR(m, true)
	}
	for _, cq := range snapshot(c, c.cqs) {
		c.destroyCQ(cq, true)
	}
	c.obj.Lock()
	clear(c.pds)
	c.ahs.clear()
	c.obj.Unlock()
	c.async.Close()
	return nil
}

func snapshot[T any](c *Context, m map[*T]struct{}) []*T {
	c.obj.Lock()
	defer c.obj.Unlock()
	all := make([]*T, 0, len(m))
	for o := range m {
		all = append(all, o)
	}
	return all
}

// slowAtomic does an atomic operation on memory that is not an aligned word in this process. It
// is atomic among its like.
func (c *Context) slowAtomic(h *Head, m Vec) uint64 {
	c.words.Lock()
	defer c.words.Unlock()
	var b [8]byte
	CopyVec(VecOf(b[:]), m)
	before := binary.NativeEndian.Uint64(b[:])
	switch {
	case h.Op == verbs.OpFetchAdd:
		binary.NativeEndian.PutUint64(b[:], before+h.Swap)
	case before == h.Compare:
		binary.NativeEndian.PutUint64(b[:], h.Swap)
	}
	CopyVec(m, VecOf(b[:]))
	return before
}
