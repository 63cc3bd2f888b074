package softnic

import "kdapl/verbs"

// windowRights are what a window can have.
const windowRights = remoteRights | verbs.AccessZeroBased

// checkLocal checks a local operation at the post.
func (q *QP) checkLocal(h *Head, sg []verbs.SGE) error {
	c := q.ctx
	switch h.Op {
	case verbs.OpBindMW:
		if len(sg) != 1 || h.Access&^windowRights != 0 {
			return verbs.ErrInvalid
		}
		if h.Access&verbs.AccessZeroBased != 0 && !c.attr.Can(verbs.CapZeroBased) {
			return verbs.ErrNotSupported
		}
		c.mem.Lock()
		defer c.mem.Unlock()
		m := c.window(h.Key)
		if m == nil || m.pd != q.pd {
			return verbs.ErrProtection
		}
		if sg[0].Length == 0 {
			if m.typ == verbs.MWType2 {
				return verbs.ErrInvalid
			}
			return nil
		}
		if _, v := c.bindable(q.pd, &sg[0], h.Access); v != Accepted && !(v == BadKey && q.awaits(sg[0].LKey)) {
			return v.postError()
		}
	case verbs.OpRegMR:
		if err := c.checkAccess(h.Access); err != nil {
			return err
		}
		c.mem.Lock()
		defer c.mem.Unlock()
		if m := c.fastMR(h.Key); m == nil || m.pd != q.pd {
			return verbs.ErrProtection
		}
	}
	return nil
}

// awaits reports that an OpRegMR for the key may be on its way in the send queue, so that a
// later request cannot be judged yet. The caller holds mem.
func (q *QP) awaits(key uint32) bool {
	if q.sq.empty() {
		return false
	}
	m := q.ctx.fastMR(key)
	return m != nil && m.queued > 0
}

// early reports that a segment list names a region whose registration is queued before it.
func (q *QP) early(sg []verbs.SGE) bool {
	if q.sq.empty() {
		return false
	}
	q.ctx.mem.Lock()
	defer q.ctx.mem.Unlock()
	for i := range sg {
		if sg[i].Length != 0 && q.awaits(sg[i].LKey) {
			return true
		}
	}
	return false
}

// bindable finds the region that a window is to be bound to. The caller holds mem.
func (c *Context) bindable(pd *PD, s *verbs.SGE, access verbs.Access) (*entry, Verdict) {
	e := c.keys.at(s.LKey)
	if e == nil || s.LKey == 0 || e.key.Load() != s.LKey {
		return nil, BadKey
	}
	need := verbs.AccessMWBind
	if access&verbs.AccessRemoteRead != 0 {
		need |= localRead
	}
	if access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 {
		need |= verbs.AccessLocalWrite
	}
	if _, v := pd.check(e, s, need); v != Accepted {
		return nil, v
	}
	return e, Accepted
}

// runLocal does a local operation. The caller holds l.
func (q *QP) runLocal(l *Lane, h *Head, sg []verbs.SGE) verbs.Status {
	switch h.Op {
	case verbs.OpBindMW:
		return q.ctx.bind(l, q, h, &sg[0])
	case verbs.OpRegMR:
		return q.ctx.register(l, q, h)
	default:
		if q.ctx.invalidate(l, q, h.InvKey, false) != Accepted {
			return verbs.StatusMemoryManagement
		}
		return verbs.StatusSuccess
	}
}

// bind binds, binds again or unbinds a window.
func (c *Context) bind(l *Lane, q *QP, h *Head, s *verbs.SGE) verbs.Status {
	c.mem.Lock()
	m := c.window(h.Key)
	c.mem.Unlock()
	if m == nil || m.pd != q.pd {
		return verbs.StatusMWBind
	}
	e := m.e
	c.hold(l, e)
	defer c.let(e)
	c.mem.Lock()
	if c.window(h.Key) != m {
		c.mem.Unlock()
		return verbs.StatusMWBind
	}
	bound := e.key.Load() != 0
	var r *entry
	if s.Length == 0 && m.typ == verbs.MWType2 || bound && m.typ == verbs.MWType2 {
		c.mem.Unlock()
		return verbs.StatusMWBind
	}
	if s.Length > 0 {
		var v Verdict
		if r, v = c.bindable(q.pd, s, h.Access); v != Accepted {
			c.mem.Unlock()
			return verbs.StatusMWBind
		}
		r.windows++
	}
	m.last = c.keys.generation(h.Key)
	if bound {
		m.release()
	}
	c.mem.Unlock()
	if bound {
		e.quiesce(l)
		e.forget()
	}
	if r == nil {
		return verbs.StatusSuccess
	}
	// The region cannot change while a window counts on it.
	e.access, e.base, e.size, e.under = h.Access, s.Addr, uint64(s.Length), r
	if h.Access&verbs.AccessZeroBased != 0 {
		e.base = 0
	}
	off, _ := r.locate(s.Addr, e.size)
	if r.pieces == nil {
		e.buf = r.buf[off:][:e.size]
	} else {
		e.pieces, e.ends, e.skip = r.pieces, r.ends, off
	}
	if m.typ == verbs.MWType2 {
		e.qp = q
		q.boundWindows.Add(1)
	}
	e.key.Store(h.Key)
	return verbs.StatusSuccess
}

// register makes a fast-registration region valid.
func (c *Context) register(l *Lane, q *QP, h *Head) verbs.Status {
	c.mem.Lock()
	m := c.fastMR(h.Key)
	c.mem.Unlock()
	if m == nil || m.pd != q.pd {
		return verbs.StatusMemoryManagement
	}
	c.hold(l, m.e)
	defer c.let(m.e)
	c.mem.Lock()
	defer c.mem.Unlock()
	e := m.e
	if m.gone || m.key != h.Key || e.key.Load() != 0 {
		return verbs.StatusMemoryManagement
	}
	base := m.iova
	if h.Access&verbs.AccessZeroBased != 0 {
		base = 0
	}
	e.access, e.base = rights(h.Access), base
	if len(m.pieces) == 1 {
		e.buf, e.size = m.pieces[0], uint64(len(m.pieces[0]))
	} else {
		e.pieces, e.size = m.pieces, 0
		e.ends = make([]uint64, len(m.pieces))
		for i, p := range m.pieces {
			e.size += uint64(len(p))
			e.ends[i] = e.size
		}
	}
	m.access, m.key, m.pieces = h.Access, 0, nil
	e.key.Store(h.Key)
	return verbs.StatusSuccess
}

// invalidatable finds the entry of a key that the owner's own request or, if remote, one of
// the peer of q may end: that of a fast-registered region or a type 2 window. The caller holds mem.
func (c *Context) invalidatable(q *QP, key uint32, remote bool) *entry {
	e := c.keys.at(key)
	if e == nil || key == 0 || e.key.Load() != key || e.pd != q.pd {
		return nil
	}
	if e.kind == kindMW2 && e.qp == q || e.kind == kindFast && e.windows == 0 && !(remote && e.access&remoteRights == 0) {
		return e
	}
	return nil
}

func (c *Context) canInvalidate(q *QP, key uint32, remote bool) Verdict {
	c.mem.Lock()
	defer c.mem.Unlock()
	if c.invalidatable(q, key, remote) == nil {
		return BadInvalidate
	}
	return Accepted
}

// invalidate ends a key and waits for the accesses under it. The caller holds l.
func (c *Context) invalidate(l *Lane, q *QP, key uint32, remote bool) Verdict {
	c.mem.Lock()
	e := c.invalidatable(q, key, remote)
	c.mem.Unlock()
	if e == nil {
		return BadInvalidate
	}
	c.hold(l, e)
	defer c.let(e)
	c.mem.Lock()
	if c.invalidatable(q, key, remote) != e {
		c.mem.Unlock()
		return BadInvalidate
	}
	if e.kind == kindMW2 {
		e.mw.release()
	} else {
		e.key.Store(0)
	}
	c.mem.Unlock()
	e.quiesce(l)
	e.forget()
	return Accepted
}

// InvalidateSink ends the key of the sink of a read, when its data has arrived, and reports
// whether that was allowed. The caller holds l, the lane of the send side.
func (q *QP) InvalidateSink(l *Lane, key uint32) bool {
	return q.ctx.invalidate(l, q, key, false) == Accepted
}
