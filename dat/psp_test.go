package dat_test

import (
	"testing"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// Tests of public service points (5.5 of the reference); sp_test.go has those of the other kinds.

// dial connects a new EP of a to a qualifier of b.
func (p *pair) dial(t testing.TB, qual uint64) *dat.EP {
	t.Helper()
	ep := p.a.newEP(t, nil)
	ok(t, ep.Connect(p.b.ia.Address(), qual, dat.ConnectConfig{Timeout: patience}))
	return ep
}

func TestPSPListensOnItsQualifier(t *testing.T) {
	p := newPair(t, pairConfig{})
	qual := p.psp.ConnQual()
	if q := must[dat.PSPParam](t)(p.psp.Query()); q.ConnQual != qual || q.EVD != p.b.cr || q.Flags != dat.PSPConsumer || qual == 0 {
		t.Fatalf("%+v", q)
	}
	_, err := p.b.ia.NewPSP(dat.PSPConfig{ConnQual: qual, EVD: p.b.cr})
	refused(t, err, dat.ConnQualInUse, dat.NoSubtype)
	_, err = p.b.ia.NewRSP(dat.RSPConfig{ConnQual: qual, EP: p.b.ep, EVD: p.b.cr})
	refused(t, err, dat.ConnQualInUse, dat.NoSubtype)
	if s := state(t, p.b.ep); s != dat.StateUnconnected {
		t.Fatal(s)
	}
	// It serves many.
	for range 3 {
		ep := p.dial(t, qual)
		ok(t, p.b.request1(t).Accept(p.b.newEP(t, nil), nil))
		outcome(t, p.a.evd, ep, dat.ConnectionEstablished)
		p.b.next(t, dat.ConnectionEstablished)
	}
	// Freed, it leaves the requests that it delivered, and the qualifier to others.
	waiting := p.dial(t, qual)
	cr := p.b.request1(t)
	ok(t, p.psp.Free())
	refused(t, p.psp.Free(), dat.InvalidHandle, dat.InvalidHandlePSP)
	late := p.dial(t, qual)
	outcome(t, p.a.evd, late, dat.ConnectionNonPeerRejected)
	ok(t, cr.Accept(p.b.ep, nil))
	outcome(t, p.a.evd, waiting, dat.ConnectionEstablished)
	p.b.next(t, dat.ConnectionEstablished)
	must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{ConnQual: qual, EVD: p.b.cr}))
}

func TestPSPChecksItsArguments(t *testing.T) {
	p := newPair(t, pairConfig{loop: loop.Config{Adjust: func(a *verbs.Attr) { a.MaxPort = 70000 }}})
	freed := newEVD(t, p.b.ia, dat.EVDConfig{Streams: allStreams})
	ok(t, freed.Free())
	deaf := newEVD(t, p.b.ia, dat.EVDConfig{})
	before := must[dat.IAParam](t)(p.b.ia.Query()).Counters
	for name, c := range map[string]struct {
		cfg dat.PSPConfig
		typ dat.Type
		sub dat.Subtype
	}{
		"no EVD":               {dat.PSPConfig{}, dat.InvalidHandle, dat.InvalidHandleEVDCR},
		"zero EVD":             {dat.PSPConfig{EVD: new(dat.EVD)}, dat.InvalidHandle, dat.InvalidHandleEVDCR},
		"freed EVD":            {dat.PSPConfig{EVD: freed}, dat.InvalidHandle, dat.InvalidHandleEVDCR},
		"EVD of another IA":    {dat.PSPConfig{EVD: p.a.evd}, dat.InvalidHandle, dat.InvalidHandleEVDCR},
		"EVD without CR":       {dat.PSPConfig{EVD: deaf}, dat.InvalidHandle, dat.InvalidHandleEVDCR},
		"unknown flags":        {dat.PSPConfig{EVD: p.b.evd, Flags: 2}, dat.InvalidParameter, dat.InvalidArg4},
		"all flags":            {dat.PSPConfig{EVD: p.b.evd, Flags: 1<<32 - 1}, dat.InvalidParameter, dat.InvalidArg4},
		"qualifier beyond":     {dat.PSPConfig{EVD: p.b.evd, ConnQual: 70001}, dat.ConnQualUnavailable, dat.NoSubtype},
		"qualifier of 2^32":    {dat.PSPConfig{EVD: p.b.evd, ConnQual: 1 << 32}, dat.ConnQualUnavailable, dat.NoSubtype},
		"qualifier of 2^63":    {dat.PSPConfig{EVD: p.b.evd, ConnQual: 1 << 63}, dat.ConnQualUnavailable, dat.NoSubtype},
		"qualifier of 2^64 -1": {dat.PSPConfig{EVD: p.b.evd, ConnQual: 1<<64 - 1}, dat.ConnQualUnavailable, dat.NoSubtype},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.b.ia.NewPSP(c.cfg)
			refused(t, err, c.typ, c.sub)
			if after := must[dat.IAParam](t)(p.b.ia.Query()).Counters; after != before {
				t.Fatalf("left behind: %+v, was %+v", after, before)
			}
		})
	}
	ok(t, must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: p.b.evd, ConnQual: 70000})).Free())
	// An EVD that a PSP feeds is in use.
	e := newEVD(t, p.b.ia, dat.EVDConfig{Streams: dat.StreamConnectionRequest})
	psp := must[*dat.PSP](t)(p.b.ia.NewPSP(dat.PSPConfig{EVD: e}))
	refused(t, e.Free(), dat.InvalidState, dat.InvalidStateEVDInUse)
	ok(t, psp.Free())
	ok(t, e.Free())
}

// Requests are refused while nobody can be told of them, and CRs are limited as EPs are.
func TestCRsAreCounted(t *testing.T) {
	p := newPair(t, pairConfig{evd: dat.EVDConfig{MinLen: 64}})
	for i := range 5 {
		p.dial(t, p.psp.ConnQual())
		eventually(t, "the request", func() bool { return must[dat.IAParam](t)(p.b.ia.Query()).Counters.CRs == i+1 })
	}
	refused(t, p.b.ia.Close(background, dat.CloseGraceful), dat.InvalidState, dat.InvalidStateIAInUse)
	for i := range 5 {
		ok(t, p.b.request1(t).Reject(nil))
		if n := must[dat.IAParam](t)(p.b.ia.Query()).Counters.CRs; n != 4-i {
			t.Fatalf("%d CRs are left", n)
		}
	}
}
