package dat

// What every kind of object has in common. These are not methods of base, which every object
// embeds, because they work for nil and for zero values too: such an object is gone, has no
// context, keeps none, and is called "no EP".

// HandleType implements [Object].
func (ia *IA) HandleType() HandleType { return HandleIA }

// Context implements [Object].
func (ia *IA) Context() any { return ia.common().loadContext() }

// SetContext implements [Object].
func (ia *IA) SetContext(value any) { ia.common().storeContext(value) }

// String implements [Object].
func (ia *IA) String() string { return ia.common().title() }

func (ia *IA) gone() bool { return ia == nil || ia.ia == nil || ia.freed.Load() }

func (ia *IA) errGone(op string) error { return ia.common().errFreed(op) }

func (ia *IA) common() *base {
	if ia == nil || ia.ia == nil {
		return &base{kind: HandleIA}
	}
	return &ia.base
}

// HandleType implements [Object].
func (pz *PZ) HandleType() HandleType { return HandlePZ }

// Context implements [Object].
func (pz *PZ) Context() any { return pz.common().loadContext() }

// SetContext implements [Object].
func (pz *PZ) SetContext(value any) { pz.common().storeContext(value) }

// String implements [Object].
func (pz *PZ) String() string { return pz.common().title() }

func (pz *PZ) gone() bool { return pz == nil || pz.ia == nil || pz.freed.Load() }

func (pz *PZ) errGone(op string) error { return pz.common().errFreed(op) }

func (pz *PZ) common() *base {
	if pz == nil || pz.ia == nil {
		return &base{kind: HandlePZ}
	}
	return &pz.base
}

// HandleType implements [Object].
func (l *LMR) HandleType() HandleType { return HandleLMR }

// Context implements [Object].
func (l *LMR) Context() any { return l.common().loadContext() }

// SetContext implements [Object].
func (l *LMR) SetContext(value any) { l.common().storeContext(value) }

// String implements [Object].
func (l *LMR) String() string { return l.common().title() }

func (l *LMR) gone() bool { return l == nil || l.ia == nil || l.freed.Load() }

func (l *LMR) errGone(op string) error { return l.common().errFreed(op) }

func (l *LMR) common() *base {
	if l == nil || l.ia == nil {
		return &base{kind: HandleLMR}
	}
	return &l.base
}

// HandleType implements [Object].
func (r *RMR) HandleType() HandleType { return HandleRMR }

// Context implements [Object].
func (r *RMR) Context() any { return r.common().loadContext() }

// SetContext implements [Object].
func (r *RMR) SetContext(value any) { r.common().storeContext(value) }

// String implements [Object].
func (r *RMR) String() string { return r.common().title() }

func (r *RMR) gone() bool { return r == nil || r.ia == nil || r.freed.Load() }

func (r *RMR) errGone(op string) error { return r.common().errFreed(op) }

func (r *RMR) common() *base {
	if r == nil || r.ia == nil {
		return &base{kind: HandleRMR}
	}
	return &r.base
}

// HandleType implements [Object].
func (ep *EP) HandleType() HandleType { return HandleEP }

// Context implements [Object].
func (ep *EP) Context() any { return ep.common().loadContext() }

// SetContext implements [Object].
func (ep *EP) SetContext(value any) { ep.common().storeContext(value) }

// String implements [Object].
func (ep *EP) String() string { return ep.common().title() }

func (ep *EP) gone() bool { return ep == nil || ep.ia == nil || ep.freed.Load() }

func (ep *EP) errGone(op string) error { return ep.common().errFreed(op) }

func (ep *EP) common() *base {
	if ep == nil || ep.ia == nil {
		return &base{kind: HandleEP}
	}
	return &ep.base
}

// HandleType implements [Object].
func (s *SRQ) HandleType() HandleType { return HandleSRQ }

// Context implements [Object].
func (s *SRQ) Context() any { return s.common().loadContext() }

// SetContext implements [Object].
func (s *SRQ) SetContext(value any) { s.common().storeContext(value) }

// String implements [Object].
func (s *SRQ) String() string { return s.common().title() }

func (s *SRQ) gone() bool { return s == nil || s.ia == nil || s.freed.Load() }

func (s *SRQ) errGone(op string) error { return s.common().errFreed(op) }

func (s *SRQ) common() *base {
	if s == nil || s.ia == nil {
		return &base{kind: HandleSRQ}
	}
	return &s.base
}

// HandleType implements [Object].
func (e *EVD) HandleType() HandleType { return HandleEVD }

// Context implements [Object].
func (e *EVD) Context() any { return e.common().loadContext() }

// SetContext implements [Object].
func (e *EVD) SetContext(value any) { e.common().storeContext(value) }

// String implements [Object].
func (e *EVD) String() string { return e.common().title() }

func (e *EVD) gone() bool { return e == nil || e.ia == nil || e.freed.Load() }

func (e *EVD) errGone(op string) error { return e.common().errFreed(op) }

func (e *EVD) common() *base {
	if e == nil || e.ia == nil {
		return &base{kind: HandleEVD}
	}
	return &e.base
}

// HandleType implements [Object].
func (c *CNO) HandleType() HandleType { return HandleCNO }

// Context implements [Object].
func (c *CNO) Context() any { return c.common().loadContext() }

// SetContext implements [Object].
func (c *CNO) SetContext(value any) { c.common().storeContext(value) }

// String implements [Object].
func (c *CNO) String() string { return c.common().title() }

func (c *CNO) gone() bool { return c == nil || c.ia == nil || c.freed.Load() }

func (c *CNO) errGone(op string) error { return c.common().errFreed(op) }

func (c *CNO) common() *base {
	if c == nil || c.ia == nil {
		return &base{kind: HandleCNO}
	}
	return &c.base
}

// HandleType implements [Object].
func (p *PSP) HandleType() HandleType { return HandlePSP }

// Context implements [Object].
func (p *PSP) Context() any { return p.common().loadContext() }

// SetContext implements [Object].
func (p *PSP) SetContext(value any) { p.common().storeContext(value) }

// String implements [Object].
func (p *PSP) String() string { return p.common().title() }

func (p *PSP) gone() bool { return p == nil || p.ia == nil || p.freed.Load() }

func (p *PSP) errGone(op string) error { return p.common().errFreed(op) }

func (p *PSP) common() *base {
	if p == nil || p.ia == nil {
		return &base{kind: HandlePSP}
	}
	return &p.base
}

// HandleType implements [Object].
func (r *RSP) HandleType() HandleType { return HandleRSP }

// Context implements [Object].
func (r *RSP) Context() any { return r.common().loadContext() }

// SetContext implements [Object].
func (r *RSP) SetContext(value any) { r.common().storeContext(value) }

// String implements [Object].
func (r *RSP) String() string { return r.common().title() }

func (r *RSP) gone() bool { return r == nil || r.ia == nil || r.freed.Load() }

func (r *RSP) errGone(op string) error { return r.common().errFreed(op) }

func (r *RSP) common() *base {
	if r == nil || r.ia == nil {
		return &base{kind: HandleRSP}
	}
	return &r.base
}

// HandleType implements [Object].
func (c *CSP) HandleType() HandleType { return HandleCSP }

// Context implements [Object].
func (c *CSP) Context() any { return c.common().loadContext() }

// SetContext implements [Object].
func (c *CSP) SetContext(value any) { c.common().storeContext(value) }

// String implements [Object].
func (c *CSP) String() string { return c.common().title() }

func (c *CSP) gone() bool { return c == nil || c.ia == nil || c.freed.Load() }

func (c *CSP) errGone(op string) error { return c.common().errFreed(op) }

func (c *CSP) common() *base {
	if c == nil || c.ia == nil {
		return &base{kind: HandleCSP}
	}
	return &c.base
}

// HandleType implements [Object].
func (cr *CR) HandleType() HandleType { return HandleCR }

// Context implements [Object].
func (cr *CR) Context() any { return cr.common().loadContext() }

// SetContext implements [Object].
func (cr *CR) SetContext(value any) { cr.common().storeContext(value) }

// String implements [Object].
func (cr *CR) String() string { return cr.common().title() }

func (cr *CR) gone() bool { return cr == nil || cr.ia == nil || cr.freed.Load() }

func (cr *CR) errGone(op string) error { return cr.common().errFreed(op) }

func (cr *CR) common() *base {
	if cr == nil || cr.ia == nil {
		return &base{kind: HandleCR}
	}
	return &cr.base
}
