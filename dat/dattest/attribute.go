package dattest

import (
	"context"
	"fmt"

	"kdapl/dat"
)

// What IAs and providers say of themselves, and what all objects have in common.
var attributeRules = []rule{
	{"the attributes are those of DAT 2.0", 0, attrVersion},
	{"the merge matrix says which streams an EVD carries together", 0, attrMerging},
	{"private data of the longest size arrives, and no longer one is taken", 0, attrPrivateData},
	{"the limits of an EP are those of the IA", 0, attrEPLimits},
	{"completion flags that are not supported are refused", 0, attrFlags},
	{"a message longer than the EP's limit is refused", 0, attrMessageSize},
	{"features that the attributes lack are refused", 0, attrMissing},
	{"memory types are those of the attribute", 0, attrMemTypes},
	{"a hint for memory is at least what was asked about", 0, attrHint},
	{"sync calls check their triplets", 0, attrSync},
	{"there is a reserved LMR if the attribute says so", 0, attrReserved},
	{"every object has a kind, and keeps the consumer's context", 0, attrObjects},
	{"a query counts the objects", 0, attrCounters},
	{"a query of an object names its IA", 0, attrIA},
}

func attrVersion(e *env) {
	for _, s := range []*side{e.a, e.b} {
		p, a := s.prov, s.attr
		if p.DAPLVersionMajor != 2 || p.DAPLVersionMinor != 0 || p.Name == "" || a.AdapterName == "" || !a.Address.IsValid() {
			e.Errorf("%+v, %+v", p, a)
		}
		if p.OptimalBufferAlignment == 0 || dat.OptimalAlignment%p.OptimalBufferAlignment != 0 {
			e.Errorf("optimal alignment %d", p.OptimalBufferAlignment)
		}
		for what, n := range map[string]int{
			"EPs": a.MaxEPs, "EVDs": a.MaxEVDs, "PZs": a.MaxPZs, "LMRs": a.MaxLMRs, "operations of an EP": a.MaxDTOPerEP,
			"events of an EVD": a.MaxEVDQLen, "segments": a.MaxIOVSegmentsPerDTO, "segments of a read": a.MaxIOVSegmentsPerRDMARead,
			"segments of a write": a.MaxIOVSegmentsPerRDMAWrite, "bytes of a message": int(a.MaxMessageSize), "private data": p.MaxPrivateDataSize,
		} {
			if n < 1 {
				e.Errorf("%d %s", n, what)
			}
		}
	}
}

func attrMerging(e *env) {
	m := e.a.prov.EVDStreamMergingSupported
	all := []dat.Stream{dat.StreamSoftware, dat.StreamConnectionRequest, dat.StreamDTO, dat.StreamConnection, dat.StreamRMRBind, dat.StreamAsync}
	for i, x := range all {
		for j, y := range all {
			if m[i][j] != m[j][i] || i == j && !m[i][j] {
				e.Errorf("%v with %v: %v, the other way around %v", x, y, m[i][j], m[j][i])
			}
			evd, err := e.a.ia.NewEVD(dat.EVDConfig{MinLen: 1, Streams: x | y})
			if !m[i][j] {
				e.refused(err, fmt.Sprintf("an EVD of %v", x|y), dat.InvalidParameter, dat.InvalidArg5)
				continue
			}
			e.must(err, "an EVD of %v", x|y)
			e.must(evd.Free(), "EVD.Free")
		}
	}
}

func attrPrivateData(e *env) {
	data := make([]byte, e.a.prov.MaxPrivateDataSize+1)
	for i := range data {
		data[i] = byte(i) | 1
	}
	max := data[:e.a.prov.MaxPrivateDataSize]
	a, psp := e.a.ep(), e.b.listen()
	cfg := dat.ConnectConfig{Timeout: e.deadline, PrivateData: data}
	e.refused(a.Connect(e.b.ia.Address(), psp.ConnQual(), cfg), "Connect with too much data", dat.InvalidParameter)
	e.call(a, psp.ConnQual(), max...)
	cr := e.b.request1()
	if q, err := cr.Query(); err != nil || string(q.PrivateData) != string(max) {
		e.Errorf("%d bytes arrive as %d, %v", len(max), len(q.PrivateData), err)
	}
	back := make([]byte, e.b.prov.MaxPrivateDataSize+1)
	e.refused(cr.Accept(e.b.ep(), back), "Accept with too much data", dat.InvalidParameter)
	e.refused(cr.Reject(back), "Reject with too much data", dat.InvalidParameter)
	e.must(cr.Accept(e.b.ep(), max[:min(len(max), len(back)-1)]), "Accept")
	ev := e.event(e.a.connect, dat.ConnectionEstablished)
	if c := ev.Connection(); string(c.PrivateData) != string(max[:min(len(max), len(back)-1)]) {
		e.Errorf("%d bytes arrive", len(c.PrivateData))
	}
	e.event(e.b.connect, dat.ConnectionEstablished)
}

func attrEPLimits(e *env) {
	ia := e.a.attr
	for what, over := range map[string]func(*dat.EPAttr){
		"requests":            func(a *dat.EPAttr) { a.MaxRequestDTOs = ia.MaxDTOPerEP + 1 },
		"receives":            func(a *dat.EPAttr) { a.MaxRecvDTOs = ia.MaxDTOPerEP + 1 },
		"request segments":    func(a *dat.EPAttr) { a.MaxRequestIOV = ia.MaxIOVSegmentsPerDTO + 1 },
		"receive segments":    func(a *dat.EPAttr) { a.MaxRecvIOV = ia.MaxIOVSegmentsPerDTO + 1 },
		"segments of reads":   func(a *dat.EPAttr) { a.MaxRDMAReadIOV = ia.MaxIOVSegmentsPerRDMARead + 1 },
		"segments of writes":  func(a *dat.EPAttr) { a.MaxRDMAWriteIOV = ia.MaxIOVSegmentsPerRDMAWrite + 1 },
		"inbound reads":       func(a *dat.EPAttr) { a.MaxRDMAReadIn = ia.MaxRDMAReadPerEPIn + 1 },
		"outbound reads":      func(a *dat.EPAttr) { a.MaxRDMAReadOut = ia.MaxRDMAReadPerEPOut + 1 },
		"a negative limit":    func(a *dat.EPAttr) { a.MaxRecvDTOs = -1 },
		"an unknown service":  func(a *dat.EPAttr) { a.ServiceType = 9 },
		"flags for receives":  func(a *dat.EPAttr) { a.RequestCompletionFlags = dat.CompletionSolicitedWait },
		"flags for a request": func(a *dat.EPAttr) { a.RecvCompletionFlags = dat.CompletionSuppress },
	} {
		attr := dat.DefaultEPAttr(ia)
		over(&attr)
		_, err := e.a.pz.NewEP(dat.EPConfig{Recv: e.a.recv, Request: e.a.request, Connect: e.a.connect, Attr: &attr})
		e.refused(err, "NewEP with too many "+what, dat.InvalidParameter, dat.InvalidArg6)
	}
	attr := dat.DefaultEPAttr(ia)
	attr.MaxRequestIOV, attr.MaxRecvIOV = ia.MaxIOVSegmentsPerDTO, ia.MaxIOVSegmentsPerDTO
	attr.MaxRDMAReadIOV, attr.MaxRDMAWriteIOV = ia.MaxIOVSegmentsPerRDMARead, ia.MaxIOVSegmentsPerRDMAWrite
	attr.MaxRDMAReadIn, attr.MaxRDMAReadOut = ia.MaxRDMAReadPerEPIn, ia.MaxRDMAReadPerEPOut
	ep, err := e.a.pz.NewEP(dat.EPConfig{Recv: e.a.recv, Request: e.a.request, Connect: e.a.connect, Attr: &attr})
	e.must(err, "NewEP with the most that the IA allows")
	if q, err := ep.Query(); err != nil || q.Attr.MaxRequestIOV != attr.MaxRequestIOV || q.Attr.MaxRDMAReadOut != attr.MaxRDMAReadOut {
		e.Errorf("%+v, %v", q.Attr, err)
	}
	e.must(ep.Free(), "Free")
}

func attrFlags(e *env) {
	a, b := e.link()
	for _, flags := range []dat.CompletionFlags{1 << 14, dat.CompletionEVDThreshold, dat.CompletionUnsignalled} {
		e.refused(a.PostSend(1, flags), fmt.Sprintf("PostSend with %v", flags), dat.InvalidParameter)
		e.refused(b.PostRecv(1, flags), fmt.Sprintf("PostRecv with %v", flags), dat.InvalidParameter)
	}
	for _, flag := range []dat.CompletionFlags{dat.CompletionUnsignalled, dat.CompletionSolicitedWait} {
		attr := dat.DefaultEPAttr(e.a.attr)
		attr.RecvCompletionFlags = flag
		evd := e.a.evdOf(dat.EVDConfig{Streams: dat.StreamDTO})
		ep, err := e.a.pz.NewEP(dat.EPConfig{Recv: evd, Request: e.a.request, Connect: e.a.connect, Attr: &attr})
		if e.a.prov.CompletionFlagsSupported&flag == 0 {
			e.refused(err, fmt.Sprintf("an EP with %v", flag), dat.ModelNotSupported)
			continue
		}
		e.must(err, "an EP with %v", flag)
		e.must(ep.Free(), "Free")
	}
}

func attrMessageSize(e *env) {
	a, b := e.link(func(_ *dat.EPConfig, attr *dat.EPAttr) { attr.MaxMessageSize, attr.MaxRDMASize = 100, 200 })
	e.refused(a.PostSend(1, 0, e.a.lmr.Triplet(0, 101)), "a send of 101 bytes", dat.LengthError)
	e.refused(a.PostRDMAWrite(1, 0, e.b.lmr.RMRTriplet(0, 201), e.a.lmr.Triplet(0, 201)), "a write of 201 bytes", dat.LengthError)
	e.must(b.PostRecv(2, 0, e.b.lmr.Triplet(0, 100)), "PostRecv")
	e.must(a.PostSend(3, 0, e.a.lmr.Triplet(0, 100)), "a send of 100 bytes")
	e.done(e.b.recv, 2, dat.StatusSuccess)
	e.done(e.a.request, 3, dat.StatusSuccess)
}

// attrMissing: what is there is shown by the rules about it.
func attrMissing(e *env) {
	a, _ := e.link()
	has := e.a.has()
	tr, remote := e.a.lmr.Triplet(0, 8), e.b.lmr.RMRTriplet(0, 8)
	attr := dat.DefaultEPAttr(e.a.attr)
	attr.ServiceType = dat.ServiceUD
	for _, c := range []struct {
		feature need
		what    string
		call    func() error
	}{
		{needRMR, "NewRMR", func() error { _, err := e.a.pz.NewRMR(); return err }},
		{needRMRForEP, "NewRMRForEP", func() error { _, err := e.a.pz.NewRMRForEP(); return err }},
		{needFMR, "AllocateLMR", func() error { _, err := e.a.pz.AllocateLMR(1, dat.RMRScopePZ); return err }},
		{needSRQ, "NewSRQ", func() error { _, err := e.a.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1}); return err }},
		{needInvalidate, "PostSendWithInvalidate", func() error { return a.PostSendWithInvalidate(1, 0, true, 1, tr) }},
		{needImmediate, "PostRDMAWriteImmediate", func() error { return a.PostRDMAWriteImmediate(1, 0, 1, remote, tr) }},
		{needAtomics, "PostFetchAdd", func() error { return a.PostFetchAdd(1, 0, 1, remote, tr) }},
		{needUD, "an EP for datagrams", func() error { _, err := e.a.pz.NewEP(dat.EPConfig{Attr: &attr}); return err }},
		{needZB, "a zero-based LMR", func() error {
			_, err := e.a.pz.NewLMR(dat.LMRConfig{Memory: make([]byte, 8), Priv: dat.PrivAll, VAType: dat.VATypeZB})
			return err
		}},
	} {
		if has&c.feature == 0 {
			e.refused(c.call(), c.what, dat.ModelNotSupported)
		}
	}
	if extensions := e.a.attr.Extension != dat.ExtensionNone; extensions != (has&(needImmediate|needAtomics|needUD) != 0) {
		e.Errorf("extension %v, features %b", e.a.attr.Extension, has)
	}
	e.none(e.a.request, "after refusals")
}

func attrMemTypes(e *env) {
	for _, mem := range []dat.MemType{
		dat.MemVirtual, dat.MemLMR, dat.MemSharedVirtual, dat.MemPhysical, dat.MemPlatform, dat.MemIA, dat.MemBypass, dat.MemPhysicalVarPages,
	} {
		cfg := dat.LMRConfig{MemType: mem, Priv: dat.PrivLocalRead}
		switch mem {
		case dat.MemLMR:
			cfg.Source = e.a.lmr
		case dat.MemVirtual:
			cfg.Memory = make([]byte, 64)
		}
		lmr, err := e.a.pz.NewLMR(cfg)
		if mem&^e.a.prov.LMRMemTypesSupported != 0 {
			e.refused(err, fmt.Sprintf("an LMR of %v memory", mem), dat.ModelNotSupported)
			_, err = e.a.ia.MemTypeHint(mem, 64, dat.MemOptimizeDontCare)
			e.refused(err, fmt.Sprintf("a hint for %v memory", mem), dat.ModelNotSupported)
			continue
		}
		e.must(err, "an LMR of %v memory", mem)
		e.must(lmr.Free(), "Free")
	}
}

func attrHint(e *env) {
	for _, length := range []uint64{1, 255, 256, 4097, e.a.attr.MaxLMRBlockSize} {
		for _, opt := range []dat.MemOptimize{dat.MemOptimizeDontCare, dat.MemOptimizeIA, dat.MemOptimizeMinExposure, dat.MemOptimizeExactExposure} {
			h, err := e.a.ia.MemTypeHint(dat.MemVirtual, length, opt)
			exact := opt == dat.MemOptimizeExactExposure
			if err != nil || h.Length < length || exact && h.Length != length || h.Length > e.a.attr.MaxLMRBlockSize || h.Alignment == 0 {
				e.Errorf("%d bytes, %v: %+v, %v", length, opt, h, err)
			}
		}
	}
	_, err := e.a.ia.MemTypeHint(dat.MemVirtual, 0, dat.MemOptimizeDontCare)
	e.refused(err, "a hint for nothing", dat.InvalidParameter, dat.InvalidArg3)
	_, err = e.a.ia.MemTypeHint(0x8000, 1, dat.MemOptimizeDontCare)
	e.refused(err, "a hint for unknown memory", dat.InvalidParameter, dat.InvalidArg2)
	_, err = e.a.ia.MemTypeHint(dat.MemVirtual, 1, 3)
	e.refused(err, "unknown advice", dat.InvalidParameter, dat.InvalidArg4)
}

func attrSync(e *env) {
	for what, sync := range map[string]func(...dat.LMRTriplet) error{"read": e.a.ia.SyncRDMARead, "write": e.a.ia.SyncRDMAWrite} {
		e.must(sync(), "sync %s of nothing", what)
		e.must(sync(e.a.lmr.Triplet(0, memSize), dat.LMRTriplet{}), "sync %s", what)
		for _, bad := range []dat.LMRTriplet{e.a.lmr.Triplet(0, memSize+1), {SegmentLength: 1, LMRContext: 0x77}} {
			e.refused(sync(e.a.lmr.Triplet(0, 1), bad), "sync "+what, dat.InvalidParameter, dat.InvalidArg2)
		}
	}
}

func attrReserved(e *env) {
	lmr, err := e.a.ia.ReservedLMR()
	if !e.a.attr.ReservedLMRSupported {
		e.refused(err, "ReservedLMR", dat.ModelNotSupported)
		return
	}
	e.must(err, "ReservedLMR")
	e.refused(lmr.Free(), "Free of the reserved LMR", dat.ReservedLMR)
}

func attrObjects(e *env) {
	psp := e.b.listen()
	e.call(e.a.ep(), psp.ConnQual())
	cr := e.b.request1()
	cno, err := e.b.ia.NewCNO(nil)
	e.must(err, "NewCNO")
	csp, err := e.b.ia.NewCSP(dat.CSPConfig{EVD: e.b.cr})
	e.must(err, "NewCSP")
	objects := map[dat.HandleType]dat.Object{
		dat.HandleIA: e.b.ia, dat.HandlePZ: e.b.pz, dat.HandleLMR: e.b.lmr, dat.HandleEVD: e.b.cr, dat.HandleEP: e.b.ep(),
		dat.HandlePSP: psp, dat.HandleRSP: e.b.reserve(nil), dat.HandleCSP: csp, dat.HandleCR: cr, dat.HandleCNO: cno,
	}
	if e.can(needRMR) {
		objects[dat.HandleRMR] = e.b.rmr()
	}
	if e.can(needSRQ) {
		srq, err := e.b.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1})
		e.must(err, "NewSRQ")
		objects[dat.HandleSRQ] = srq
	}
	for kind, o := range objects {
		if o.HandleType() != kind || o.Context() != nil || o.String() == "" {
			e.Errorf("%v is of kind %v with context %v, want %v", o, o.HandleType(), o.Context(), kind)
		}
		o.SetContext(1)
		o.SetContext(kind)
	}
	e.must(cr.Reject(nil), "Reject")
	e.event(e.a.connect, dat.ConnectionPeerRejected)
	for kind, o := range objects {
		if o.Context() != kind {
			e.Errorf("%v keeps %v, want %v", o, o.Context(), kind)
		}
		o.SetContext(nil)
		if o.Context() != nil {
			e.Errorf("%v keeps %v after it was cleared", o, o.Context())
		}
	}
}

func attrCounters(e *env) {
	count := func() dat.IACounters {
		q, err := e.a.ia.Query()
		e.must(err, "IA.Query")
		return q.Counters
	}
	before := count()
	pz, err := e.a.ia.NewPZ()
	e.must(err, "NewPZ")
	lmr, err := pz.Register(make([]byte, 8), dat.PrivAll)
	e.must(err, "Register")
	evd := e.a.evd()
	ep := e.a.ep()
	psp, err := e.a.ia.NewPSP(dat.PSPConfig{EVD: e.a.cr})
	e.must(err, "NewPSP")
	csp, err := e.a.ia.NewCSP(dat.CSPConfig{EVD: e.a.cr})
	e.must(err, "NewCSP")
	cno, err := e.a.ia.NewCNO(nil)
	e.must(err, "NewCNO")
	free := []func() error{ep.Free, evd.Free, lmr.Free, psp.Free, csp.Free, cno.Free}
	want := before
	want.PZs++
	want.LMRs++
	want.EVDs++
	want.EPs++
	want.PSPs++
	want.CSPs++
	want.CNOs++
	if e.can(needRMR) {
		rmr, err := pz.NewRMR()
		e.must(err, "NewRMR")
		free = append(free, rmr.Free)
		want.RMRs++
	}
	if e.can(needSRQ) {
		srq, err := pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1})
		e.must(err, "NewSRQ")
		free = append(free, srq.Free)
		want.SRQs++
	}
	if got := count(); got != want {
		e.Errorf("%+v, want %+v", got, want)
	}
	e.refused(e.a.ia.Close(context.Background(), dat.CloseGraceful), "graceful Close with objects", dat.InvalidState, dat.InvalidStateIAInUse)
	for _, f := range append(free, pz.Free) {
		e.must(f(), "Free")
	}
	if got := count(); got != before {
		e.Errorf("%+v, want %+v", got, before)
	}
}

func attrIA(e *env) {
	s := e.b
	named := func(ia *dat.IA, err error) {
		e.Helper()
		if err != nil || ia != s.ia {
			e.Errorf("%v, %v", ia, err)
		}
	}
	pz, err := s.pz.Query()
	named(pz.IA, err)
	evd, err := s.recv.Query()
	named(evd.IA, err)
	ep, err := s.ep().Query()
	named(ep.IA, err)
	lmr, err := s.lmr.Query()
	named(lmr.IA, err)
	psp, err := s.listen().Query()
	named(psp.IA, err)
	rsp, err := s.reserve(s.ep()).Query()
	named(rsp.IA, err)
	if c, err := s.ia.NewCSP(dat.CSPConfig{EVD: s.cr}); err == nil {
		csp, err := c.Query()
		named(csp.IA, err)
	}
	c, err := s.ia.NewCNO(nil)
	e.must(err, "NewCNO")
	cno, err := c.Query()
	named(cno.IA, err)
	if s.attr.MaxRMRs > 0 {
		r, err := s.pz.NewRMR()
		e.must(err, "NewRMR")
		rmr, err := r.Query()
		named(rmr.IA, err)
	}
	if s.prov.SRQSupported {
		q, err := s.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1})
		e.must(err, "NewSRQ")
		srq, err := q.Query()
		named(srq.IA, err)
	}
}
