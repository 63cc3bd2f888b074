package verbstest_test

import (
	"sync"
	"sync/atomic"

	"kdapl/verbs"
)

// mutation changes what a device does. Each field that is set stands in for the call of
// its name; the wrapped object is reached through its inner field.
type mutation struct {
	attr   func(*verbs.Attr)
	poll   func(c *wcq, dst []verbs.Completion) int
	arm    func(c *wcq, kind verbs.ArmKind) bool
	notify func(c *wcq)
	peek   func(c *wcq, max int) int
	resize func(c *wcq, cqe int) error
	// errCQ changes the error of CQ.Destroy.
	errCQ func(error) error

	postSend   func(q *wqp, wrs []verbs.SendWR) (int, error)
	postRecv   func(q *wqp, wrs []verbs.RecvWR) (int, error)
	modify     func(q *wqp, to verbs.QPState) error
	connect    func(q *wqp, p verbs.ConnParams) error
	disconnect func(q *wqp, graceful bool) error
	destroy    func(q *wqp) error
	conn       func(q *wqp, ev verbs.ConnEvent)

	createQP func(p *wpd, in verbs.QPInit) (verbs.QP, error)
	regMR    func(p *wpd, buf []byte, iova uint64, access verbs.Access) (verbs.MR, error)
	dereg    func(m *wmr) error
	mapMR    func(m *wmr, ranges [][]byte, iova uint64) (uint32, error)
	allocMW  func(p *wpd, typ verbs.MWType) (verbs.MW, error)
	allocPD  func(c *wctx) (verbs.PD, error)
	mwKey    func(w *wmw) uint32
	mwFree   func(w *wmw) error
	pdFree   func(p *wpd) error

	srqRecv      func(s *wsrq, wrs []verbs.RecvWR) (int, error)
	srqAvailable func(s *wsrq) int
	setLimit     func(s *wsrq, limit int) error
	srqResize    func(s *wsrq, n int) error

	async   func(c *wctx, ev verbs.AsyncEvent)
	listen  func(c *wctx, l verbs.ListenConfig) (verbs.Listener, error)
	request func(r verbs.ConnRequest) verbs.ConnRequest
	close   func(c *wctx) error
}

// wdev is a device behind a mutation.
type wdev struct {
	inner verbs.Device
	m     *mutation
}

func (d *wdev) Name() string { return d.inner.Name() }

func (d *wdev) Open(cfg verbs.OpenConfig) (verbs.Context, error) {
	c := &wctx{m: d.m, async: cfg.Async}
	inner, err := d.inner.Open(verbs.OpenConfig{Async: c.onAsync})
	if err != nil {
		return nil, err
	}
	c.inner, c.attr = inner, *inner.Attr()
	if d.m.attr != nil {
		d.m.attr(&c.attr)
	}
	return c, nil
}

// wctx, wpd, … are the objects of a wdev.
type wctx struct {
	inner verbs.Context
	m     *mutation
	attr  verbs.Attr
	async func(verbs.AsyncEvent)
	cqs   sync.Map // inner CQ to *wcq
}

func (c *wctx) onAsync(ev verbs.AsyncEvent) {
	if w, ok := c.cqs.Load(ev.CQ); ok {
		ev.CQ = w.(*wcq)
	}
	switch {
	case c.async == nil:
	case c.m.async != nil:
		c.m.async(c, ev)
	default:
		c.async(ev)
	}
}

func (c *wctx) Attr() *verbs.Attr { return &c.attr }

func (c *wctx) AllocPD() (verbs.PD, error) {
	if c.m.allocPD != nil {
		return c.m.allocPD(c)
	}
	return c.allocPD()
}

func (c *wctx) allocPD() (verbs.PD, error) {
	pd, err := c.inner.AllocPD()
	if err != nil {
		return nil, err
	}
	return &wpd{inner: pd, ctx: c, m: c.m}, nil
}

func (c *wctx) CreateCQ(cqe int, notify func()) (verbs.CQ, error) {
	w := &wcq{ctx: c, m: c.m, notify: notify}
	if w.notify == nil {
		w.notify = func() {}
	}
	inner, err := c.inner.CreateCQ(cqe, w.onNotify)
	if err != nil {
		return nil, err
	}
	w.inner = inner
	c.cqs.Store(inner, w)
	return w, nil
}

func (c *wctx) Listen(cfg verbs.ListenConfig) (verbs.Listener, error) {
	if f := cfg.Request; f != nil {
		cfg.Request = func(r verbs.ConnRequest) {
			var w verbs.ConnRequest = &wreq{ConnRequest: r}
			if c.m.request != nil {
				w = c.m.request(w)
			}
			f(w)
		}
	}
	if c.m.listen != nil {
		return c.m.listen(c, cfg)
	}
	return c.inner.Listen(cfg)
}

func (c *wctx) Close() error {
	if c.m.close != nil {
		return c.m.close(c)
	}
	return c.inner.Close()
}

// wreq unwraps the QP of an Accept.
type wreq struct{ verbs.ConnRequest }

func (r *wreq) Accept(qp verbs.QP, p verbs.ConnParams) error {
	if w, ok := qp.(*wqp); ok {
		return r.ConnRequest.Accept(w.inner, p)
	}
	return r.ConnRequest.Accept(qp, p)
}

type wpd struct {
	inner verbs.PD
	ctx   *wctx
	m     *mutation
}

func (p *wpd) RegMR(buf []byte, iova uint64, access verbs.Access) (verbs.MR, error) {
	if p.m.regMR != nil {
		return p.m.regMR(p, buf, iova, access)
	}
	return p.wrapMR(p.inner.RegMR(buf, iova, access))
}

func (p *wpd) wrapMR(mr verbs.MR, err error) (verbs.MR, error) {
	if err != nil {
		return nil, err
	}
	return &wmr{MR: mr, m: p.m}, nil
}

func (p *wpd) AllocFastMR(n int) (verbs.MR, error) { return p.wrapMR(p.inner.AllocFastMR(n)) }

func (p *wpd) AllocMW(typ verbs.MWType) (verbs.MW, error) {
	if p.m.allocMW != nil {
		return p.m.allocMW(p, typ)
	}
	return p.wrapMW(p.inner.AllocMW(typ))
}

func (p *wpd) wrapMW(mw verbs.MW, err error) (verbs.MW, error) {
	if err != nil {
		return nil, err
	}
	return &wmw{MW: mw, m: p.m}, nil
}

func (p *wpd) CreateSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	s, err := p.inner.CreateSRQ(in)
	if err != nil {
		return nil, err
	}
	return &wsrq{SRQ: s, m: p.m}, nil
}

func (p *wpd) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	if p.m.createQP != nil {
		return p.m.createQP(p, in)
	}
	return p.createQP(in)
}

func (p *wpd) createQP(in verbs.QPInit) (verbs.QP, error) {
	q := &wqp{m: p.m, pd: p, in: in}
	inner := in
	if w, ok := in.SendCQ.(*wcq); ok {
		q.scq, inner.SendCQ = w, w.inner
	}
	if w, ok := in.RecvCQ.(*wcq); ok {
		q.rcq, inner.RecvCQ = w, w.inner
	}
	if w, ok := in.SRQ.(*wsrq); ok {
		inner.SRQ = w.SRQ
	}
	if in.Conn != nil {
		inner.Conn = q.onConn
	}
	qp, err := p.inner.CreateQP(inner)
	if err != nil {
		return nil, err
	}
	q.inner = qp
	return q, nil
}

func (p *wpd) CreateAH(a verbs.Address) (verbs.AH, error) { return p.inner.CreateAH(a) }

func (p *wpd) Dealloc() error {
	if p.m.pdFree != nil {
		return p.m.pdFree(p)
	}
	return p.inner.Dealloc()
}

type wmr struct {
	verbs.MR
	m *mutation
}

func (r *wmr) Dereg() error {
	if r.m.dereg != nil {
		return r.m.dereg(r)
	}
	return r.MR.Dereg()
}

func (r *wmr) Map(ranges [][]byte, iova uint64) (uint32, error) {
	if r.m.mapMR != nil {
		return r.m.mapMR(r, ranges, iova)
	}
	return r.MR.Map(ranges, iova)
}

type wmw struct {
	verbs.MW
	m *mutation
}

func (w *wmw) RKey() uint32 {
	if w.m.mwKey != nil {
		return w.m.mwKey(w)
	}
	return w.MW.RKey()
}

func (w *wmw) Dealloc() error {
	if w.m.mwFree != nil {
		return w.m.mwFree(w)
	}
	return w.MW.Dealloc()
}

type wsrq struct {
	verbs.SRQ
	m *mutation
}

func (s *wsrq) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if s.m.srqRecv != nil {
		return s.m.srqRecv(s, wrs)
	}
	return s.SRQ.PostRecv(wrs)
}

func (s *wsrq) Available() int {
	if s.m.srqAvailable != nil {
		return s.m.srqAvailable(s)
	}
	return s.SRQ.Available()
}

func (s *wsrq) SetLimit(n int) error {
	if s.m.setLimit != nil {
		return s.m.setLimit(s, n)
	}
	return s.SRQ.SetLimit(n)
}

func (s *wsrq) Resize(n int) error {
	if s.m.srqResize != nil {
		return s.m.srqResize(s, n)
	}
	return s.SRQ.Resize(n)
}

type wcq struct {
	inner  verbs.CQ
	ctx    *wctx
	m      *mutation
	notify func()

	// For mutations.
	mu     sync.Mutex
	keep   []verbs.Completion
	armed  bool
	kind   verbs.ArmKind
	moving bool
	n      atomic.Int64
}

func (c *wcq) onNotify() {
	if c.m.notify != nil {
		c.m.notify(c)
		return
	}
	c.notify()
}

func (c *wcq) Poll(dst []verbs.Completion) int {
	if c.m.poll != nil {
		return c.m.poll(c, dst)
	}
	return c.inner.Poll(dst)
}

func (c *wcq) Arm(kind verbs.ArmKind) bool {
	if c.m.arm != nil {
		return c.m.arm(c, kind)
	}
	return c.inner.Arm(kind)
}

func (c *wcq) Cap() int { return c.inner.Cap() }

func (c *wcq) Resize(cqe int) error {
	if c.m.resize != nil {
		return c.m.resize(c, cqe)
	}
	return c.inner.Resize(cqe)
}

func (c *wcq) Destroy() error {
	err := c.inner.Destroy()
	if c.m.errCQ != nil {
		err = c.m.errCQ(err)
	}
	return err
}

func (c *wcq) Peek(max int) int {
	if c.m.peek != nil {
		return c.m.peek(c, max)
	}
	return c.inner.(verbs.Peeker).Peek(max)
}

type wqp struct {
	inner    verbs.QP
	pd       *wpd
	m        *mutation
	in       verbs.QPInit
	scq, rcq *wcq

	mu sync.Mutex   // for mutations
	n  atomic.Int64 // for mutations
}

func (q *wqp) onConn(ev verbs.ConnEvent) {
	if q.m.conn != nil {
		q.m.conn(q, ev)
		return
	}
	q.in.Conn(ev)
}

func (q *wqp) Num() uint32          { return q.inner.Num() }
func (q *wqp) State() verbs.QPState { return q.inner.State() }

func (q *wqp) PostSend(wrs []verbs.SendWR) (int, error) {
	if q.m.postSend != nil {
		return q.m.postSend(q, wrs)
	}
	return q.inner.PostSend(wrs)
}

func (q *wqp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if q.m.postRecv != nil {
		return q.m.postRecv(q, wrs)
	}
	return q.inner.PostRecv(wrs)
}

func (q *wqp) Modify(to verbs.QPState) error {
	if q.m.modify != nil {
		return q.m.modify(q, to)
	}
	return q.inner.Modify(to)
}

func (q *wqp) Connect(p verbs.ConnParams) error {
	if q.m.connect != nil {
		return q.m.connect(q, p)
	}
	return q.inner.Connect(p)
}

func (q *wqp) Disconnect(graceful bool) error {
	if q.m.disconnect != nil {
		return q.m.disconnect(q, graceful)
	}
	return q.inner.Disconnect(graceful)
}

func (q *wqp) Destroy() error {
	if q.m.destroy != nil {
		return q.m.destroy(q)
	}
	return q.inner.Destroy()
}
