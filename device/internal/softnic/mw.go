package softnic

import "kdapl/verbs"

// MW is a memory window.
type MW struct {
	pd  *PD
	typ verbs.MWType
	e   *entry

	// Under the context's memory lock.
	gone bool
	last uint16 // generation of the newest key that was used up by a bind
}

// AllocMW implements [verbs.PD].
func (pd *PD) AllocMW(typ verbs.MWType) (verbs.MW, error) {
	c := pd.ctx
	kind, want := kindMW1, verbs.CapMW1
	switch typ {
	case verbs.MWType1:
	case verbs.MWType2:
		kind, want = kindMW2, verbs.CapMW2
	default:
		return nil, verbs.ErrInvalid
	}
	if !c.attr.Can(want) {
		return nil, verbs.ErrNotSupported
	}
	m := &MW{pd: pd, typ: typ}
	if err := c.addMW(m, func(e *entry) { e.kind, e.pd = kind, pd }); err != nil {
		return nil, err
	}
	return m, nil
}

// Type implements [verbs.MW].
func (m *MW) Type() verbs.MWType { return m.typ }

// NextKey implements [verbs.MW].
func (m *MW) NextKey() (uint32, error) {
	c := m.pd.ctx
	c.mem.Lock()
	defer c.mem.Unlock()
	if m.gone {
		return 0, verbs.ErrClosed
	}
	if (m.e.drawn+1-m.last)&genMask == 0 {
		m.last++ // so many keys drawn and never bound: the oldest is forgotten
	}
	return c.keys.draw(m.e), nil
}

// RKey implements [verbs.MW].
func (m *MW) RKey() uint32 {
	c := m.pd.ctx
	c.mem.Lock()
	defer c.mem.Unlock()
	if m.gone {
		return 0
	}
	return m.e.key.Load()
}

// Dealloc implements [verbs.MW].
func (m *MW) Dealloc() error { return m.pd.ctx.deallocMW(m) }

// window finds the window for which a key was drawn that no bind has used. The caller holds
// mem.
func (c *Context) window(key uint32) *MW {
	e := c.keys.at(key)
	if e == nil || key == 0 || e.mw == nil {
		return nil
	}
	m := e.mw
	if age := (c.keys.generation(key) - m.last) & genMask; age == 0 || age > (e.drawn-m.last)&genMask {
		return nil
	}
	return m
}

// release makes a bound window unbound. The caller holds mem and has the entry; it
// waits for accesses afterwards.
func (m *MW) release() {
	m.e.key.Store(0)
	if r := m.e.under; r != nil {
		r.windows--
	}
	if q := m.e.qp; q != nil {
		q.boundWindows.Add(-1)
	}
}

// unbindAll ends the type 2 windows of a QP that is reset or destroyed. No lock is held.
func (c *Context) unbindAll(q *QP) {
	if q.boundWindows.Load() == 0 {
		return
	}
	c.obj.Lock()
	var all []*MW
	for m := range c.mws {
		if m.typ == verbs.MWType2 && m.pd == q.pd {
			all = append(all, m)
		}
	}
	c.obj.Unlock()
	for _, m := range all {
		c.hold(nil, m.e)
		c.mem.Lock()
		ours := m.e.key.Load() != 0 && m.e.qp == q
		if ours {
			m.release()
		}
		c.mem.Unlock()
		if ours {
			m.e.quiesce(nil)
			m.e.forget()
		}
		c.let(m.e)
	}
}
