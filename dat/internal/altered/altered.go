// Package altered wraps a device so that a test can change what it says and does: how a
// misbehaving or unusual adapter looks to package dat.
package altered

import (
	"slices"
	"sync"

	"kdapl/verbs"
)

// Hooks are the places where a device can be altered. A nil hook changes nothing. Hooks are called as the
// device's own functions are, concurrently and with no lock of theirs held; those with a function
// as last argument call it for what the device would have done, or deliver it later.
type Hooks struct {
	// Attr changes the attributes of each context.
	Attr func(*verbs.Attr)
	// Async stands between the device's asynchronous events and dat.
	Async func(ev verbs.AsyncEvent, deliver func(verbs.AsyncEvent))
	// CreateCQ changes the length of CQs, Resize that of later wishes.
	CreateCQ, Resize func(cqe int) int
	// Poll changes what a CQ says; it returns how many of the completions are left.
	Poll func(cs []verbs.Completion) int
	// Arm stands before CQ.Arm, Notify before dat's notify function.
	Arm    func(kind verbs.ArmKind, arm func(verbs.ArmKind) bool) bool
	Notify func(notify func())
	// CreateQP may refuse a QP.
	CreateQP func(*verbs.QPInit) error
	// PostSend and PostRecv stand before the QP's.
	PostSend func(wrs []verbs.SendWR, post func([]verbs.SendWR) (int, error)) (int, error)
	PostRecv func(wrs []verbs.RecvWR, post func([]verbs.RecvWR) (int, error)) (int, error)
	// Modify, Connect, Disconnect and Destroy stand before the QP's.
	Modify     func(to verbs.QPState, modify func(verbs.QPState) error) error
	Connect    func(p verbs.ConnParams, connect func(verbs.ConnParams) error) error
	Disconnect func(graceful bool, disconnect func(bool) error) error
	Destroy    func(destroy func() error) error
	// Conn stands between a QP's connection events and dat.
	Conn func(ev verbs.ConnEvent, deliver func(verbs.ConnEvent))
	// Listen stands before the context's, Request between requests and dat, Accept before a request's.
	Listen  func(cfg verbs.ListenConfig, listen func(verbs.ListenConfig) (verbs.Listener, error)) (verbs.Listener, error)
	Request func(r verbs.ConnRequest, deliver func(verbs.ConnRequest))
	Accept  func(p verbs.ConnParams, accept func(verbs.ConnParams) error) error
	Reject  func(privateData []byte, reject func([]byte) error) error
	// Close stands before the context's.
	Close func(close func() error) error
	// AllocPD stands before the context's, which has made the earlier ones.
	AllocPD func(earlier []verbs.PD, alloc func() (verbs.PD, error)) (verbs.PD, error)
	// RegMR, AllocMW and CreateSRQ stand before the PD's.
	AllocMW   func(typ verbs.MWType, alloc func(verbs.MWType) (verbs.MW, error)) (verbs.MW, error)
	CreateSRQ func(in verbs.SRQInit, create func(verbs.SRQInit) (verbs.SRQ, error)) (verbs.SRQ, error)
	RegMR     func(buf []byte, iova uint64, access verbs.Access, reg func([]byte, uint64, verbs.Access) (verbs.MR, error)) (verbs.MR, error)
}

// Device is a device with hooks. The hooks must not be changed while it is open.
type Device struct {
	verbs.Device
	Hooks
}

// Open implements [verbs.Device].
func (d *Device) Open(cfg verbs.OpenConfig) (verbs.Context, error) {
	c := &context{d: d, cqs: map[verbs.CQ]*cq{}}
	async := cfg.Async
	if async != nil {
		cfg.Async = func(ev verbs.AsyncEvent) {
			if ev.CQ != nil {
				ev.CQ = c.known(ev.CQ)
			}
			if d.Async != nil {
				d.Async(ev, async)
				return
			}
			async(ev)
		}
	}
	inner, err := d.Device.Open(cfg)
	if err != nil {
		return nil, err
	}
	c.Context, c.attr = inner, *inner.Attr()
	if d.Attr != nil {
		d.Attr(&c.attr)
	}
	return c, nil
}

type context struct {
	verbs.Context
	d    *Device
	attr verbs.Attr

	mu  sync.Mutex
	cqs map[verbs.CQ]*cq // by what they wrap
	pds []verbs.PD
}

func (c *context) Attr() *verbs.Attr { return &c.attr }

func (c *context) known(inner verbs.CQ) verbs.CQ {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.cqs[inner]; w != nil {
		return w
	}
	return inner
}

func (c *context) CreateCQ(cqe int, notify func()) (verbs.CQ, error) {
	if c.d.CreateCQ != nil {
		cqe = c.d.CreateCQ(cqe)
	}
	if c.d.Notify != nil {
		inner := notify
		notify = func() { c.d.Notify(inner) }
	}
	inner, err := c.Context.CreateCQ(cqe, notify)
	if err != nil {
		return nil, err
	}
	w := &cq{CQ: inner, d: c.d}
	c.mu.Lock()
	c.cqs[inner] = w
	c.mu.Unlock()
	return w, nil
}

func (c *context) Listen(cfg verbs.ListenConfig) (verbs.Listener, error) {
	deliver := cfg.Request
	cfg.Request = func(r verbs.ConnRequest) {
		w := &request{r, c.d}
		if c.d.Request != nil {
			c.d.Request(w, deliver)
			return
		}
		deliver(w)
	}
	if c.d.Listen != nil {
		return c.d.Listen(cfg, c.Context.Listen)
	}
	return c.Context.Listen(cfg)
}

func (c *context) AllocPD() (verbs.PD, error) {
	alloc := func() (verbs.PD, error) {
		inner, err := c.Context.AllocPD()
		if err != nil {
			return nil, err
		}
		p := &pd{inner, c.d}
		c.mu.Lock()
		c.pds = append(c.pds, p)
		c.mu.Unlock()
		return p, nil
	}
	if c.d.AllocPD != nil {
		c.mu.Lock()
		earlier := slices.Clone(c.pds)
		c.mu.Unlock()
		return c.d.AllocPD(earlier, alloc)
	}
	return alloc()
}

func (c *context) Close() error {
	if c.d.Close != nil {
		return c.d.Close(c.Context.Close)
	}
	return c.Context.Close()
}

type cq struct {
	verbs.CQ
	d *Device
}

func (c *cq) Poll(dst []verbs.Completion) int {
	n := c.CQ.Poll(dst)
	if n > 0 && c.d.Poll != nil {
		n = c.d.Poll(dst[:n])
	}
	return n
}

func (c *cq) Arm(kind verbs.ArmKind) bool {
	if c.d.Arm != nil {
		return c.d.Arm(kind, c.CQ.Arm)
	}
	return c.CQ.Arm(kind)
}

func (c *cq) Resize(cqe int) error {
	if c.d.Resize != nil {
		cqe = c.d.Resize(cqe)
	}
	return c.CQ.Resize(cqe)
}

// Peek implements [verbs.Peeker] for devices that have it.
func (c *cq) Peek(max int) int {
	if p, ok := c.CQ.(verbs.Peeker); ok {
		return p.Peek(max)
	}
	return 0
}

type pd struct {
	verbs.PD
	d *Device
}

func (p *pd) RegMR(buf []byte, iova uint64, access verbs.Access) (verbs.MR, error) {
	if p.d.RegMR != nil {
		return p.d.RegMR(buf, iova, access, p.PD.RegMR)
	}
	return p.PD.RegMR(buf, iova, access)
}

func (p *pd) AllocMW(typ verbs.MWType) (verbs.MW, error) {
	if p.d.AllocMW != nil {
		return p.d.AllocMW(typ, p.PD.AllocMW)
	}
	return p.PD.AllocMW(typ)
}

func (p *pd) CreateSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	if p.d.CreateSRQ != nil {
		return p.d.CreateSRQ(in, p.PD.CreateSRQ)
	}
	return p.PD.CreateSRQ(in)
}

func (p *pd) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	if p.d.CreateQP != nil {
		if err := p.d.CreateQP(&in); err != nil {
			return nil, err
		}
	}
	for _, q := range []*verbs.CQ{&in.SendCQ, &in.RecvCQ} {
		if w, ok := (*q).(*cq); ok {
			*q = w.CQ
		}
	}
	if deliver := in.Conn; deliver != nil && p.d.Conn != nil {
		in.Conn = func(ev verbs.ConnEvent) {
			ev.PrivateData = append([]byte(nil), ev.PrivateData...) // a hook may deliver later
			p.d.Conn(ev, deliver)
		}
	}
	inner, err := p.PD.CreateQP(in)
	if err != nil {
		return nil, err
	}
	return &qp{inner, p.d}, nil
}

type qp struct {
	verbs.QP
	d *Device
}

func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	if q.d.PostSend != nil {
		return q.d.PostSend(wrs, q.QP.PostSend)
	}
	return q.QP.PostSend(wrs)
}

func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if q.d.PostRecv != nil {
		return q.d.PostRecv(wrs, q.QP.PostRecv)
	}
	return q.QP.PostRecv(wrs)
}

func (q *qp) Modify(to verbs.QPState) error {
	if q.d.Modify != nil {
		return q.d.Modify(to, q.QP.Modify)
	}
	return q.QP.Modify(to)
}

func (q *qp) Connect(p verbs.ConnParams) error {
	if q.d.Connect != nil {
		return q.d.Connect(p, q.QP.Connect)
	}
	return q.QP.Connect(p)
}

func (q *qp) Disconnect(graceful bool) error {
	if q.d.Disconnect != nil {
		return q.d.Disconnect(graceful, q.QP.Disconnect)
	}
	return q.QP.Disconnect(graceful)
}

func (q *qp) Destroy() error {
	if q.d.Destroy != nil {
		return q.d.Destroy(q.QP.Destroy)
	}
	return q.QP.Destroy()
}

type request struct {
	verbs.ConnRequest
	d *Device
}

func (r *request) Accept(q verbs.QP, p verbs.ConnParams) error {
	accept := func(p verbs.ConnParams) error {
		if w, ok := q.(*qp); ok {
			return r.ConnRequest.Accept(w.QP, p)
		}
		return r.ConnRequest.Accept(q, p)
	}
	if r.d.Accept != nil {
		return r.d.Accept(p, accept)
	}
	return accept(p)
}

func (r *request) Reject(privateData []byte) error {
	if r.d.Reject != nil {
		return r.d.Reject(privateData, r.ConnRequest.Reject)
	}
	return r.ConnRequest.Reject(privateData)
}
