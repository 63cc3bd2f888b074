package softnic

import (
	"runtime"

	"kdapl/verbs"
)

// remoteRights are those that make a key worth telling to a peer.
const remoteRights = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// allRights is every right that a region can be asked for.
const allRights = remoteRights | verbs.AccessLocalWrite | verbs.AccessMWBind | verbs.AccessZeroBased | verbs.AccessNoLocalRead

// localRead stands in an entry for the right that AccessNoLocalRead withholds.
const localRead verbs.Access = 1 << 7

// rights are the ones that an entry has, for the access that was asked for.
func rights(a verbs.Access) verbs.Access {
	if a&verbs.AccessNoLocalRead == 0 {
		a |= localRead
	}
	return a
}

// checkAccess checks rights for a region. Remote write and atomic need local write, as IBTA wants.
func (c *Context) checkAccess(a verbs.Access) error {
	switch {
	case a&^allRights != 0:
		return verbs.ErrInvalid
	case a&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && a&verbs.AccessLocalWrite == 0:
		return verbs.ErrInvalid
	case a&verbs.AccessZeroBased != 0 && !c.attr.Can(verbs.CapZeroBased),
		a&verbs.AccessRemoteAtomic != 0 && !c.attr.Can(verbs.CapAtomics),
		a&verbs.AccessMWBind != 0 && !c.attr.Can(verbs.CapMW1) && !c.attr.Can(verbs.CapMW2):
		return verbs.ErrNotSupported
	}
	return nil
}

// hold makes the caller the only one who changes what e stands for, until let. Its lane,
// if it holds one, counts as idle while it waits.
func (c *Context) hold(l *Lane, e *entry) {
	c.mem.Lock()
	if !e.busy {
		e.busy = true
		c.mem.Unlock()
		return
	}
	if l != nil {
		l.paused.Store(true)
		defer l.paused.Store(false)
	}
	for e.busy {
		c.mem.Unlock()
		runtime.Gosched()
		c.mem.Lock()
	}
	e.busy = true
	c.mem.Unlock()
}

func (c *Context) let(e *entry) {
	c.mem.Lock()
	e.busy = false
	c.mem.Unlock()
}

// MR is a memory region.
type MR struct {
	pd *PD
	e  *entry

	// Under the context's memory lock.
	gone   bool
	access verbs.Access // of RegMR, or of the OpRegMR that ran
	fast   bool
	room   int    // ranges of a fast-registration region
	key    uint32 // drawn by Map, until an OpRegMR has run; 0 if none
	last   uint32 // the newest key of Map
	iova   uint64
	pieces [][]byte
	queued int // OpRegMR requests in send queues
}

// RegMR implements [verbs.PD].
func (pd *PD) RegMR(buf []byte, iova uint64, access verbs.Access) (verbs.MR, error) {
	c := pd.ctx
	if err := c.checkAccess(access); err != nil {
		return nil, err
	}
	if access&verbs.AccessZeroBased != 0 {
		iova = 0
	}
	if len(buf) == 0 || uint64(len(buf)) > c.attr.MaxMRSize || iova+uint64(len(buf))-1 < iova {
		return nil, verbs.ErrInvalid
	}
	m := &MR{pd: pd, access: access}
	if err := c.addMR(m, func(e *entry) {
		e.kind, e.pd, e.access, e.base, e.size, e.buf = kindMR, pd, rights(access), iova, uint64(len(buf)), buf
	}, true); err != nil {
		return nil, err
	}
	return m, nil
}

// AllocFastMR implements [verbs.PD].
func (pd *PD) AllocFastMR(maxPages int) (verbs.MR, error) {
	c := pd.ctx
	if !c.attr.Can(verbs.CapFastReg) {
		return nil, verbs.ErrNotSupported
	}
	if maxPages < 1 || maxPages > c.attr.MaxFastRegPages {
		return nil, verbs.ErrInvalid
	}
	m := &MR{pd: pd, fast: true, room: maxPages}
	if err := c.addMR(m, func(e *entry) { e.kind, e.pd = kindFast, pd }, false); err != nil {
		return nil, err
	}
	return m, nil
}

// LKey implements [verbs.MR].
func (m *MR) LKey() uint32 {
	m.pd.ctx.mem.Lock()
	defer m.pd.ctx.mem.Unlock()
	switch {
	case m.gone:
		return 0
	case m.key != 0:
		return m.key
	}
	return m.e.key.Load()
}

// RKey implements [verbs.MR].
func (m *MR) RKey() uint32 {
	m.pd.ctx.mem.Lock()
	defer m.pd.ctx.mem.Unlock()
	if m.key != 0 {
		return m.key
	}
	if m.gone || m.access&remoteRights == 0 {
		return 0
	}
	return m.e.key.Load()
}

// Map implements [verbs.MR].
func (m *MR) Map(ranges [][]byte, iova uint64) (uint32, error) {
	c := m.pd.ctx
	if !m.fast {
		return 0, verbs.ErrNotSupported
	}
	if len(ranges) == 0 || len(ranges) > m.room {
		return 0, verbs.ErrInvalid
	}
	size := uint64(0)
	for i, r := range ranges {
		if len(r) == 0 || i < len(ranges)-1 && len(r)%c.attr.PageSize != 0 {
			return 0, verbs.ErrInvalid
		}
		size += uint64(len(r))
	}
	if size > c.attr.MaxMRSize || iova+size-1 < iova {
		return 0, verbs.ErrInvalid
	}
	c.hold(nil, m.e)
	defer c.let(m.e)
	c.mem.Lock()
	defer c.mem.Unlock()
	switch {
	case m.gone:
		return 0, verbs.ErrClosed
	case m.e.key.Load() != 0 || m.queued > 0:
		return 0, verbs.ErrBusy
	}
	m.pieces, m.iova = append(m.pieces[:0:0], ranges...), iova
	m.key = c.keys.draw(m.e)
	m.last = m.key
	return m.key, nil
}

// Dereg implements [verbs.MR].
func (m *MR) Dereg() error { return m.pd.ctx.deregMR(m, false) }

// fastMR finds the region that a key of an OpRegMR was drawn for. The caller holds mem.
func (c *Context) fastMR(key uint32) *MR {
	e := c.keys.at(key)
	if e == nil || key == 0 || e.mr == nil || e.mr.key != key {
		return nil
	}
	return e.mr
}

// regQueued and regDone count the OpRegMR requests that wait in queues.
func (c *Context) regQueued(key uint32) { c.regCount(key, 1) }

func (c *Context) regDone(key uint32) { c.regCount(key, -1) }

func (c *Context) regCount(key uint32, by int) {
	c.mem.Lock()
	defer c.mem.Unlock()
	if e := c.keys.at(key); key != 0 && e != nil && e.mr != nil && e.mr.last == key {
		e.mr.queued += by
	}
}
