package dattest

import "kdapl/dat"

// Sends that invalidate (dat_ep_post_send_with_invalidate) and reads to an RMR (dat_ep_post_rdma_read_to_rmr).
var invalidateRules = []rule{
	{"a send ends the binding of an RMR for an EP, and tells the context", needInvalidate | needRMRForEP, invalidateRMR},
	{"a send ends a fast registration, and tells the context", needInvalidate | needFMR, invalidateFMR},
	{"a send that invalidates nothing is a plain send", 0, invalidateNot},
	{"a send that invalidates what it may not ends the connection", needInvalidate, invalidateForbidden},
	{"a read reaches memory that is named by its remote context", 0, readToLMR},
	{"a read reaches a bound RMR", needRMR, readToRMR},
	{"a read to an RMR stays within it and its privileges", needRMR, readToRMRRefused},
}

// invalidating sends from a to b with the context, and takes both events.
func (e *env) invalidating(a, b *dat.EP, context uint32) {
	e.Helper()
	e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(2048, 64)), "PostRecv")
	e.must(a.PostSendWithInvalidate(2, 0, true, context, e.a.lmr.Triplet(0, 8)), "PostSendWithInvalidate")
	if d := e.done(e.a.request, 2, dat.StatusSuccess); d.Operation != dat.OpSend {
		e.Errorf("the sender's event: %+v", d)
	}
	d := e.done(e.b.recv, 1, dat.StatusSuccess)
	if d.Operation != dat.OpReceiveWithInvalidate || d.RMRContext != context || d.Length != 8 {
		e.Errorf("the receiver's event: %+v, want the context %#x", d, context)
	}
}

func invalidateRMR(e *env) {
	a, b := e.link()
	r := e.b.rmrForEP()
	for range 3 {
		w := e.b.bind(r, b, 0, 64, readWrite)
		e.invalidating(a, b, w.RMRContext)
		if q, err := r.Query(); err != nil || q.RMRContext != 0 {
			e.Errorf("bound still: %+v, %v", q, err)
		}
	}
	w := e.b.bind(r, b, 0, 64, readWrite)
	e.invalidating(a, b, w.RMRContext)
	e.forbidden(a, w)
}

func invalidateFMR(e *env) {
	a, b := e.link()
	l := e.b.allocate(1)
	for range 3 {
		e.b.fmr(l, b, make([]byte, 64))
		e.invalidating(a, b, l.RMRContext())
		if q, err := l.Query(); err != nil || q.Bound {
			e.Errorf("mapped still: %+v, %v", q, err)
		}
	}
	e.refused(l.Invalidate(b, 3, 0), "Invalidate behind a peer's", dat.InvalidState, dat.InvalidStateLMRFree)
}

func invalidateNot(e *env) {
	a, b := e.link()
	e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(0, 8)), "PostRecv")
	e.must(a.PostSendWithInvalidate(2, 0, false, 0xABCD, e.a.lmr.Triplet(0, 8)), "PostSendWithInvalidate")
	e.done(e.a.request, 2, dat.StatusSuccess)
	if d := e.done(e.b.recv, 1, dat.StatusSuccess); d.Operation != dat.OpReceive || d.RMRContext != 0 {
		e.Errorf("%+v", d)
	}
}

func invalidateForbidden(e *env) {
	for what, context := range map[string]func(b *dat.EP) uint32{
		"an LMR":  func(*dat.EP) uint32 { return e.b.lmr.RMRContext() },
		"nothing": func(*dat.EP) uint32 { return 0x1234 },
	} {
		a, b := e.link()
		e.must(b.PostRecv(1, 0, e.b.lmr.Triplet(0, 8)), "PostRecv")
		e.must(a.PostSendWithInvalidate(2, 0, true, context(b), e.a.lmr.Triplet(0, 8)), "PostSendWithInvalidate of %s", what)
		e.violation(2, false)
		e.done(e.b.recv, 1, dat.StatusFlushed, dat.StatusSuccess) // an adapter may have told of the message before
	}
}

func readToLMR(e *env) {
	a, _ := e.link()
	copy(e.b.mem, "from b")
	e.must(a.PostRDMAReadToRMR(1, 0, e.a.lmr.RMRTriplet(300, 6), e.b.lmr.RMRTriplet(0, 6)), "PostRDMAReadToRMR")
	if d := e.done(e.a.request, 1, dat.StatusSuccess); d.Operation != dat.OpRDMARead || d.Length != 6 {
		e.Errorf("%+v", d)
	}
	if string(e.a.mem[300:306]) != "from b" {
		e.Errorf("arrived: %q", e.a.mem[300:306])
	}
	e.refused(a.PostRDMAReadToRMR(1, 0, dat.RMRTriplet{SegmentLength: 6, RMRContext: 0x777}, e.b.lmr.RMRTriplet(0, 6)),
		"a read to nowhere", dat.ProtectionViolation)
	e.refused(a.PostRDMAReadToRMR(1, 0, e.a.lmr.RMRTriplet(0, 5), e.b.lmr.RMRTriplet(0, 6)), "a read to too little", dat.LengthError)
	e.refused(a.PostRDMAReadToRMR(1, 0, e.a.lmr.RMRTriplet(memSize-5, 6), e.b.lmr.RMRTriplet(0, 6)), "a read past the LMR", dat.ProtectionViolation)
}

func readToRMR(e *env) {
	a, _ := e.link()
	copy(e.b.mem, "from b")
	w := e.a.bind(e.a.rmr(), a, 100, 50, dat.PrivRemoteWrite)
	w.VirtualAddress += 4
	w.SegmentLength = 6
	e.must(a.PostRDMAReadToRMR(1, 0, w, e.b.lmr.RMRTriplet(0, 6)), "PostRDMAReadToRMR")
	e.done(e.a.request, 1, dat.StatusSuccess)
	if string(e.a.mem[104:110]) != "from b" {
		e.Errorf("arrived: %q", e.a.mem[104:110])
	}
	if !e.can(needZB) {
		return
	}
	r := e.a.rmr()
	rmrContext, err := r.Bind(e.a.lmr, e.a.lmr.Triplet(200, 50), dat.PrivRemoteWrite, dat.VATypeZB, a, 2, dat.CompletionSuppress)
	e.must(err, "Bind")
	e.must(a.PostRDMAReadToRMR(3, 0, dat.RMRTriplet{VirtualAddress: 44, SegmentLength: 6, RMRContext: rmrContext}, e.b.lmr.RMRTriplet(0, 6)),
		"PostRDMAReadToRMR to a zero-based RMR")
	e.done(e.a.request, 3, dat.StatusSuccess)
	if string(e.a.mem[244:250]) != "from b" {
		e.Errorf("arrived: %q", e.a.mem[244:250])
	}
}

func readToRMRRefused(e *env) {
	a, _ := e.link()
	remote := e.b.lmr.RMRTriplet(0, 6)
	r := e.a.rmr()
	w := e.a.bind(r, a, 100, 50, dat.PrivRemoteWrite)
	past, before := w, w
	past.SegmentLength++
	before.VirtualAddress--
	e.refused(a.PostRDMAReadToRMR(1, 0, past, remote), "a read past the RMR", dat.ProtectionViolation)
	e.refused(a.PostRDMAReadToRMR(1, 0, before, remote), "a read before the RMR", dat.ProtectionViolation)
	readOnly := e.a.bind(r, a, 100, 50, dat.PrivRemoteRead)
	e.refused(a.PostRDMAReadToRMR(1, 0, readOnly, remote), "a read to an RMR that cannot be written", dat.PrivilegesViolation, dat.PrivilegesRDMAWrite)
	e.refused(a.PostRDMAReadToRMR(1, 0, w, remote), "a read to a context of before", dat.ProtectionViolation)
	e.must(r.Free(), "Free")
	e.refused(a.PostRDMAReadToRMR(1, 0, readOnly, remote), "a read to a freed RMR", dat.ProtectionViolation)
	e.none(e.a.request, "after refusals")
}
