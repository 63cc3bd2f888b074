package dat_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"kdapl/dat"
)

// Bad arguments of every method: the error of DAT, and no side effect. Values at the borders of 31, 32, 63 and 64 bits,
// objects that are nil, zero, freed or of another IA, private data that is too long.

// world is what bad calls are made in: a connected pair, and one of everything on side a.
type world struct {
	*pair
	idle  *dat.EP // of a, unconnected
	cr    *dat.CR // at a
	srq   *dat.SRQ
	rmr   *dat.RMR
	fast  *dat.LMR
	cno   *dat.CNO
	rsp   *dat.RSP
	csp   *dat.CSP
	deaf  *dat.EVD // of software events only
	freed struct {
		pz  *dat.PZ
		evd *dat.EVD
		ep  *dat.EP
		lmr *dat.LMR
		srq *dat.SRQ
		cno *dat.CNO
	}
	foreign struct {
		cno *dat.CNO
		srq *dat.SRQ
	}
	good, far dat.LMRTriplet
	remote    dat.RMRTriplet
	long      []byte // private data
	caller    *dat.EP
}

func newWorld(t *testing.T) *world {
	w := &world{pair: newPair(t, pairConfig{}).connect(t)}
	a, b := &w.a, &w.b
	w.idle = a.newEP(t, nil)
	psp := must[*dat.PSP](t)(a.ia.NewPSP(dat.PSPConfig{EVD: a.evd}))
	w.caller = b.newEP(t, nil)
	ok(t, w.caller.Connect(a.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: dat.Infinite}))
	w.cr = a.request1(t)
	w.srq = must[*dat.SRQ](t)(a.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 8, MaxRecvIOV: 2}))
	w.rmr = must[*dat.RMR](t)(a.pz.NewRMR())
	w.fast = must[*dat.LMR](t)(a.pz.AllocateLMR(4, dat.RMRScopePZ))
	w.cno = must[*dat.CNO](t)(a.ia.NewCNO(nil))
	w.rsp = must[*dat.RSP](t)(a.ia.NewRSP(dat.RSPConfig{EP: a.newEP(t, nil), EVD: a.evd}))
	w.csp = must[*dat.CSP](t)(a.ia.NewCSP(dat.CSPConfig{EVD: a.evd}))
	w.deaf = newEVD(t, a.ia, dat.EVDConfig{})
	post(t, w.deaf, 1, 2, 3)
	f := &w.freed
	f.pz = must[*dat.PZ](t)(a.ia.NewPZ())
	f.evd = newEVD(t, a.ia, dat.EVDConfig{Streams: allStreams})
	f.ep = a.newEP(t, nil)
	f.lmr = must[*dat.LMR](t)(a.pz.Register(make([]byte, 8), dat.PrivAll))
	f.srq = must[*dat.SRQ](t)(a.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 8, MaxRecvIOV: 2}))
	f.cno = must[*dat.CNO](t)(a.ia.NewCNO(nil))
	for _, o := range []interface{ Free() error }{f.pz, f.evd, f.ep, f.lmr, f.srq, f.cno} {
		ok(t, o.Free())
	}
	w.foreign.cno = must[*dat.CNO](t)(b.ia.NewCNO(nil))
	w.foreign.srq = must[*dat.SRQ](t)(b.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 8, MaxRecvIOV: 2}))
	w.good, w.remote = a.lmr.Triplet(0, 8), b.lmr.RMRTriplet(0, 8)
	w.far = w.good
	w.far.VirtualAddress = 1 << 63
	w.long = make([]byte, must[dat.IAParam](t)(a.ia.Query()).Provider.MaxPrivateDataSize+1)
	return w
}

// snapshot is everything that a call without effect leaves alone.
func (w *world) snapshot(t testing.TB) string {
	t.Helper()
	var all []any
	for _, q := range []func() (any, error){
		func() (any, error) { q, err := w.a.ia.Query(); return q.Counters, err },
		func() (any, error) { q, err := w.b.ia.Query(); return q.Counters, err },
		func() (any, error) { return w.a.ep.Query() }, func() (any, error) { return w.a.ep.Status() },
		func() (any, error) { return w.b.ep.Query() }, func() (any, error) { return w.idle.Query() },
		func() (any, error) { return w.cr.Query() }, func() (any, error) { return w.srq.Query() },
		func() (any, error) { return w.rmr.Query() }, func() (any, error) { return w.fast.Query() },
		func() (any, error) { return w.a.lmr.Query() }, func() (any, error) { q, err := w.cno.Query(); q.Agent = nil; return q, err },
		func() (any, error) { return w.psp.Query() }, func() (any, error) { return w.rsp.Query() }, func() (any, error) { return w.csp.Query() },
		func() (any, error) { return w.caller.Status() },
		func() (any, error) { q, err := w.a.evd.Query(); q.Upcall = nil; return q, err },
		func() (any, error) { q, err := w.b.evd.Query(); q.Upcall = nil; return q, err },
		func() (any, error) { q, err := w.deaf.Query(); q.Upcall = nil; return q, err },
		func() (any, error) { q, err := w.a.ia.AsyncEVD().Query(); q.Upcall = nil; return q, err },
	} {
		v, err := q()
		ok(t, err)
		all = append(all, v)
	}
	return fmt.Sprintf("%+v", all)
}

// badCall is a call that must be refused.
type badCall struct {
	method string // "EP.Connect"
	why    string
	do     func(w *world) error
	typ    dat.Type
	sub    dat.Subtype
}

// second and third drop the results before the error.
func second[A any](_ A, err error) error        { return err }
func third[A, B any](_ A, _ B, err error) error { return err }

var (
	nowhere = netip.MustParseAddr("192.0.2.1")
	soon    = dat.ConnectConfig{Timeout: time.Second}
)

// borders are numbers of which no count in this library can be one.
var borders = []int{math.MinInt, math.MinInt32, -2, 1 << 31, 1<<32 - 1, 1 << 32, math.MaxInt}

func badCalls() (all []badCall) {
	add := func(method, why string, typ dat.Type, sub dat.Subtype, do func(w *world) error) {
		all = append(all, badCall{method, why, do, typ, sub})
	}
	const (
		ip  = dat.InvalidParameter
		ih  = dat.InvalidHandle
		is  = dat.InvalidState
		mns = dat.ModelNotSupported
		no  = dat.NoSubtype
	)
	upcall := func(dat.Event, bool) {}

	// IA
	add("IA.Close", "unknown flags", ip, dat.InvalidArg2, func(w *world) error { return w.a.ia.Close(background, 2) })
	add("IA.Close", "objects are left", is, dat.InvalidStateIAInUse, func(w *world) error { return w.a.ia.Close(background, dat.CloseGraceful) })
	add("IA.NewEVD", "no length", ip, dat.InvalidArg2, func(w *world) error { return second(w.a.ia.NewEVD(dat.EVDConfig{Streams: 1})) })
	add("IA.NewEVD", "unknown policy", ip, dat.InvalidArg3, func(w *world) error {
		return second(w.a.ia.NewEVD(dat.EVDConfig{MinLen: 1, Streams: 1, Policy: 7, Upcall: upcall}))
	})
	add("IA.NewEVD", "no function", ip, dat.InvalidArg4, func(w *world) error {
		return second(w.a.ia.NewEVD(dat.EVDConfig{MinLen: 1, Streams: 1, Policy: dat.UpcallNotify}))
	})
	add("IA.NewEVD", "no streams", ip, dat.InvalidArg5, func(w *world) error { return second(w.a.ia.NewEVD(dat.EVDConfig{MinLen: 1})) })
	for _, c := range []func(w *world) *dat.CNO{
		func(w *world) *dat.CNO { return w.freed.cno }, func(w *world) *dat.CNO { return w.foreign.cno }, func(w *world) *dat.CNO { return new(dat.CNO) },
	} {
		add("IA.NewEVD", "bad CNO", ih, dat.InvalidHandleCNO, func(w *world) error {
			return second(w.a.ia.NewEVD(dat.EVDConfig{MinLen: 1, Streams: 1, CNO: c(w)}))
		})
		add("EVD.ModifyCNO", "bad CNO", ih, dat.InvalidHandleCNO, func(w *world) error { return w.deaf.ModifyCNO(c(w)) })
	}
	for _, n := range borders {
		typ, sub := dat.InsufficientResources, dat.ResourceTEVD
		if n <= 0 {
			typ, sub = ip, dat.InvalidArg2
		}
		add("IA.NewEVD", fmt.Sprint("length ", n), typ, sub, func(w *world) error { return second(w.a.ia.NewEVD(dat.EVDConfig{MinLen: n, Streams: 1})) })
	}
	add("IA.MemTypeHint", "no length", ip, dat.InvalidArg3, func(w *world) error { return second(w.a.ia.MemTypeHint(dat.MemVirtual, 0, 0)) })
	add("IA.MemTypeHint", "all of 64 bits", ip, dat.InvalidArg3, func(w *world) error { return second(w.a.ia.MemTypeHint(dat.MemVirtual, math.MaxUint64, 0)) })
	add("IA.MemTypeHint", "unknown type", ip, dat.InvalidArg2, func(w *world) error { return second(w.a.ia.MemTypeHint(1<<31, 1, 0)) })
	add("IA.MemTypeHint", "unknown advice", ip, dat.InvalidArg4, func(w *world) error { return second(w.a.ia.MemTypeHint(dat.MemVirtual, 1, 1<<31)) })
	add("IA.HARelated", "no name", ip, dat.InvalidArg2, func(w *world) error { return second(w.a.ia.HARelated("")) })
	add("IA.HARelated", "long name", ip, dat.InvalidArg2, func(w *world) error { return second(w.a.ia.HARelated(strings.Repeat("x", 256))) })
	for name, sync := range map[string]func(w *world, t dat.LMRTriplet) error{
		"IA.SyncRDMARead":  func(w *world, t dat.LMRTriplet) error { return w.a.ia.SyncRDMARead(w.good, t) },
		"IA.SyncRDMAWrite": func(w *world, t dat.LMRTriplet) error { return w.a.ia.SyncRDMAWrite(w.good, t) },
	} {
		add(name, "unknown context", ip, dat.InvalidArg2, func(w *world) error { return sync(w, dat.LMRTriplet{SegmentLength: 1}) })
		add(name, "outside", ip, dat.InvalidArg2, func(w *world) error { return sync(w, w.far) })
		add(name, "of another IA", ip, dat.InvalidArg2, func(w *world) error { return sync(w, w.b.lmr.Triplet(0, 1)) })
	}

	// EPs' creation.
	for name, newEP := range map[string]func(w *world, c dat.EPConfig) error{
		"IA.NewEP": func(w *world, c dat.EPConfig) error {
			if c.PZ == nil {
				c.PZ = w.a.pz
			}
			return second(w.a.ia.NewEP(c))
		},
		"PZ.NewEP": func(w *world, c dat.EPConfig) error {
			if c.PZ != nil {
				return second(c.PZ.NewEP(c))
			}
			return second(w.a.pz.NewEP(c))
		},
	} {
		add(name, "freed zone", ih, dat.InvalidHandlePZ, func(w *world) error { return newEP(w, dat.EPConfig{PZ: w.freed.pz}) })
		for _, e := range []func(w *world) *dat.EVD{
			func(w *world) *dat.EVD { return w.freed.evd }, func(w *world) *dat.EVD { return w.b.evd },
			func(w *world) *dat.EVD { return w.deaf }, func(w *world) *dat.EVD { return new(dat.EVD) },
		} {
			add(name, "bad recv EVD", ih, dat.InvalidHandleEVDRecv, func(w *world) error { return newEP(w, dat.EPConfig{Recv: e(w)}) })
			add(name, "bad request EVD", ih, dat.InvalidHandleEVDRequest, func(w *world) error { return newEP(w, dat.EPConfig{Request: e(w)}) })
			add(name, "bad connect EVD", ih, dat.InvalidHandleEVDConn, func(w *world) error { return newEP(w, dat.EPConfig{Connect: e(w)}) })
		}
		for _, s := range []func(w *world) *dat.SRQ{
			func(w *world) *dat.SRQ { return w.freed.srq }, func(w *world) *dat.SRQ { return w.foreign.srq }, func(w *world) *dat.SRQ { return new(dat.SRQ) },
		} {
			add(name, "bad SRQ", ih, dat.InvalidHandleSRQ, func(w *world) error { return newEP(w, dat.EPConfig{SRQ: s(w)}) })
		}
		for _, n := range borders {
			for field, set := range map[string]func(*dat.EPAttr){
				"max_recv_dtos": func(a *dat.EPAttr) { a.MaxRecvDTOs = n }, "max_request_dtos": func(a *dat.EPAttr) { a.MaxRequestDTOs = n },
				"max_recv_iov": func(a *dat.EPAttr) { a.MaxRecvIOV = n }, "max_request_iov": func(a *dat.EPAttr) { a.MaxRequestIOV = n },
				"read_in": func(a *dat.EPAttr) { a.MaxRDMAReadIn = n }, "read_out": func(a *dat.EPAttr) { a.MaxRDMAReadOut = n },
				"read_iov": func(a *dat.EPAttr) { a.MaxRDMAReadIOV = n }, "write_iov": func(a *dat.EPAttr) { a.MaxRDMAWriteIOV = n },
				"soft_hw": func(a *dat.EPAttr) { a.SRQSoftHW = n },
			} {
				add(name, fmt.Sprint(field, " ", n), ip, dat.InvalidArg6, func(w *world) error {
					q, err := w.idle.Query()
					if err != nil {
						return err
					}
					set(&q.Attr)
					return newEP(w, dat.EPConfig{Attr: &q.Attr})
				})
			}
		}
	}

	// Service points.
	for _, e := range []func(w *world) *dat.EVD{
		func(w *world) *dat.EVD { return nil }, func(w *world) *dat.EVD { return w.freed.evd }, func(w *world) *dat.EVD { return w.b.evd },
		func(w *world) *dat.EVD { return w.deaf }, func(w *world) *dat.EVD { return new(dat.EVD) },
	} {
		add("IA.NewPSP", "bad EVD", ih, dat.InvalidHandleEVDCR, func(w *world) error { return second(w.a.ia.NewPSP(dat.PSPConfig{EVD: e(w)})) })
		add("IA.NewRSP", "bad EVD", ih, dat.InvalidHandleEVDCR, func(w *world) error {
			return second(w.a.ia.NewRSP(dat.RSPConfig{EP: w.idle, EVD: e(w)}))
		})
		add("IA.NewCSP", "bad EVD", ih, dat.InvalidHandleEVDCR, func(w *world) error { return second(w.a.ia.NewCSP(dat.CSPConfig{EVD: e(w)})) })
	}
	add("IA.NewPSP", "unknown flags", ip, dat.InvalidArg4, func(w *world) error { return second(w.a.ia.NewPSP(dat.PSPConfig{EVD: w.a.evd, Flags: 2})) })
	add("IA.NewPSP", "taken", dat.ConnQualInUse, no, func(w *world) error {
		return second(w.b.ia.NewPSP(dat.PSPConfig{EVD: w.b.evd, ConnQual: w.psp.ConnQual()}))
	})
	for _, ep := range []func(w *world) *dat.EP{
		func(w *world) *dat.EP { return w.freed.ep }, func(w *world) *dat.EP { return w.b.ep }, func(w *world) *dat.EP { return new(dat.EP) },
	} {
		add("IA.NewRSP", "bad EP", ih, dat.InvalidHandleEP, func(w *world) error { return second(w.a.ia.NewRSP(dat.RSPConfig{EP: ep(w), EVD: w.a.evd})) })
		add("CR.Accept", "bad EP", ih, dat.InvalidHandleEP, func(w *world) error { return w.cr.Accept(ep(w), nil) })
		add("RMR.Bind", "bad EP", ih, dat.InvalidHandleEP, func(w *world) error {
			return second(w.rmr.Bind(w.a.lmr, w.good, dat.PrivRemoteRead, 0, ep(w), 0, 0))
		})
		add("LMR.FMR", "bad EP", ih, dat.InvalidHandleEP, func(w *world) error {
			return third(w.fast.FMR([][]byte{make([]byte, 8)}, dat.PrivAll, 0, ep(w), 0, 0))
		})
		add("LMR.Invalidate", "bad EP", ih, dat.InvalidHandleEP, func(w *world) error { return w.fast.Invalidate(ep(w), 0, 0) })
	}
	add("IA.NewRSP", "connected EP", is, dat.InvalidStateEPConnected, func(w *world) error {
		return second(w.a.ia.NewRSP(dat.RSPConfig{EP: w.a.ep, EVD: w.a.evd}))
	})
	add("IA.NewCSP", "address elsewhere", dat.InvalidAddress, dat.InvalidAddressUnsupported, func(w *world) error {
		return second(w.a.ia.NewCSP(dat.CSPConfig{EVD: w.a.evd, Address: netip.AddrPortFrom(nowhere, 1)}))
	})
	add("IA.NewCSP", "taken", dat.PortInUse, no, func(w *world) error {
		return second(w.a.ia.NewCSP(dat.CSPConfig{EVD: w.a.evd, Address: w.csp.Address()}))
	})

	// CR
	add("CR.Accept", "no EP", ih, dat.InvalidHandleEP, func(w *world) error { return w.cr.Accept(nil, nil) })
	add("CR.Accept", "connected EP", is, dat.InvalidStateEPConnected, func(w *world) error { return w.cr.Accept(w.a.ep, nil) })
	add("CR.Accept", "long private data", ip, dat.InvalidArg3, func(w *world) error { return w.cr.Accept(w.idle, w.long) })
	add("CR.Reject", "long private data", ip, dat.InvalidArg2, func(w *world) error { return w.cr.Reject(w.long) })
	for _, q := range []uint64{0, 1, 1 << 31, 1 << 32, 1 << 63, math.MaxUint64} {
		add("CR.Handoff", fmt.Sprint("to ", q), ip, dat.InvalidArg2, func(w *world) error { return w.cr.Handoff(q) })
	}

	// EP: connections
	add("EP.Connect", "no address", ip, dat.InvalidArg2, func(w *world) error { return w.idle.Connect(netip.Addr{}, 1, soon) })
	add("EP.Connect", "qualifier 0", dat.InvalidAddress, dat.InvalidAddressUnsupported, func(w *world) error { return w.idle.Connect(nowhere, 0, soon) })
	add("EP.Connect", "connected", is, dat.InvalidStateEPConnected, func(w *world) error { return w.a.ep.Connect(nowhere, 1, soon) })
	add("EP.CommonConnect", "no address", ip, dat.InvalidArg2, func(w *world) error { return w.idle.CommonConnect(netip.AddrPort{}, soon) })
	for name, connect := range map[string]func(w *world, c dat.ConnectConfig) error{
		"EP.Connect": func(w *world, c dat.ConnectConfig) error { return w.idle.Connect(nowhere, 1, c) },
		"EP.CommonConnect": func(w *world, c dat.ConnectConfig) error {
			return w.idle.CommonConnect(netip.AddrPortFrom(nowhere, 1), c)
		},
		"EP.DupConnect": func(w *world, c dat.ConnectConfig) error { return w.idle.DupConnect(w.a.ep, c) },
	} {
		timeout := dat.InvalidArg4
		if name != "EP.Connect" {
			timeout = dat.InvalidArg3
		}
		for _, d := range []time.Duration{0, -2, math.MinInt64} {
			add(name, fmt.Sprint("timeout ", d), ip, timeout, func(w *world) error { return connect(w, dat.ConnectConfig{Timeout: d}) })
		}
		data := dat.InvalidArg5
		if name != "EP.Connect" {
			data = dat.InvalidArg4
		}
		add(name, "long private data", ip, data, func(w *world) error { return connect(w, dat.ConnectConfig{Timeout: 1, PrivateData: w.long}) })
		add(name, "quality of service", mns, no, func(w *world) error { return connect(w, dat.ConnectConfig{Timeout: 1, QoS: 1 << 31}) })
		add(name, "several paths", mns, no, func(w *world) error {
			return connect(w, dat.ConnectConfig{Timeout: 1, Flags: dat.ConnectMultipathRequired})
		})
	}
	add("EP.Connect", "unknown flags", ip, dat.InvalidArg8, func(w *world) error { return w.idle.Connect(nowhere, 1, dat.ConnectConfig{Timeout: 1, Flags: 4}) })
	add("EP.DupConnect", "no EP", ih, dat.InvalidHandle2, func(w *world) error { return w.idle.DupConnect(nil, soon) })
	add("EP.DupConnect", "freed EP", ih, dat.InvalidHandle2, func(w *world) error { return w.idle.DupConnect(w.freed.ep, soon) })
	add("EP.DupConnect", "unconnected EP", is, dat.InvalidStateEPUnconnected, func(w *world) error { return w.idle.DupConnect(w.idle, soon) })
	add("EP.Disconnect", "unknown flags", ip, dat.InvalidArg2, func(w *world) error { return w.a.ep.Disconnect(2) })
	add("EP.Disconnect", "all flags", ip, dat.InvalidArg2, func(w *world) error { return w.a.ep.Disconnect(math.MaxUint32) })
	add("EP.Reset", "connected", is, dat.InvalidStateEPConnected, func(w *world) error { return w.a.ep.Reset() })
	for _, m := range []dat.EPMask{dat.EPFieldIA, dat.EPFieldState, dat.EPFieldSRQ, 1 << 31, 1 << 32, 1 << 63, math.MaxUint64} {
		add("EP.Modify", fmt.Sprint("fields ", m), ip, dat.InvalidArg2, func(w *world) error { return w.idle.Modify(m, dat.EPParam{}) })
	}
	add("EP.Modify", "zone of another IA", ih, dat.InvalidHandlePZ, func(w *world) error { return w.idle.Modify(dat.EPFieldPZ, dat.EPParam{PZ: w.b.pz}) })
	add("EP.Modify", "connected", is, dat.InvalidStateEPConnected, func(w *world) error { return w.a.ep.Modify(dat.EPFieldPZ, dat.EPParam{PZ: w.a.pz}) })
	for _, n := range borders {
		add("EP.Modify", fmt.Sprint("depth ", n), ip, dat.InvalidArg3, func(w *world) error {
			return w.idle.Modify(dat.EPFieldMaxRecvDTOs, dat.EPParam{Attr: dat.EPAttr{MaxRecvDTOs: n}})
		})
		add("EP.SetWatermark", fmt.Sprint("no SRQ, ", n), is, no, func(w *world) error { return w.a.ep.SetWatermark(n, 1) })
	}

	// EP: posts. Each with flags, segments and the peer's memory that are wrong.
	type poster func(ep *dat.EP, f dat.CompletionFlags, remote dat.RMRTriplet, local ...dat.LMRTriplet) error
	posters := map[string]poster{
		"EP.PostSend": func(ep *dat.EP, f dat.CompletionFlags, _ dat.RMRTriplet, l ...dat.LMRTriplet) error {
			return ep.PostSend(1, f, l...)
		},
		"EP.PostSendWithInvalidate": func(ep *dat.EP, f dat.CompletionFlags, _ dat.RMRTriplet, l ...dat.LMRTriplet) error {
			return ep.PostSendWithInvalidate(1, f, false, 0, l...)
		},
		"EP.PostRDMAWrite": func(ep *dat.EP, f dat.CompletionFlags, r dat.RMRTriplet, l ...dat.LMRTriplet) error {
			return ep.PostRDMAWrite(1, f, r, l...)
		},
		"EP.PostRDMAWriteImmediate": func(ep *dat.EP, f dat.CompletionFlags, r dat.RMRTriplet, l ...dat.LMRTriplet) error {
			return ep.PostRDMAWriteImmediate(1, f, 2, r, l...)
		},
		"EP.PostRDMARead": func(ep *dat.EP, f dat.CompletionFlags, r dat.RMRTriplet, l ...dat.LMRTriplet) error {
			return ep.PostRDMARead(1, f, r, l...)
		},
		"EP.PostFetchAdd": func(ep *dat.EP, f dat.CompletionFlags, r dat.RMRTriplet, l ...dat.LMRTriplet) error {
			return ep.PostFetchAdd(1, f, 2, r, l[0])
		},
		"EP.PostCompareSwap": func(ep *dat.EP, f dat.CompletionFlags, r dat.RMRTriplet, l ...dat.LMRTriplet) error {
			return ep.PostCompareSwap(1, f, 2, 3, r, l[0])
		},
		"EP.Post": func(ep *dat.EP, f dat.CompletionFlags, r dat.RMRTriplet, l ...dat.LMRTriplet) error {
			return second(ep.Post([]dat.Request{{Op: dat.OpRDMAWrite, Flags: f, Remote: r, Local: l}}))
		},
		"EP.PostRecv": func(ep *dat.EP, f dat.CompletionFlags, _ dat.RMRTriplet, l ...dat.LMRTriplet) error {
			return ep.PostRecv(1, f, l...)
		},
		"EP.PostRecvs": func(ep *dat.EP, f dat.CompletionFlags, _ dat.RMRTriplet, l ...dat.LMRTriplet) error {
			return second(ep.PostRecvs([]dat.Receive{{Flags: f, Local: l}}))
		},
	}
	for name, p := range posters {
		atomic := name == "EP.PostFetchAdd" || name == "EP.PostCompareSwap"
		recv := strings.HasPrefix(name, "EP.PostRecv")
		if !recv {
			add(name, "unconnected", is, dat.InvalidStateEPUnconnected, func(w *world) error { return p(w.idle, 0, w.remote, w.good) })
		}
		for _, f := range []dat.CompletionFlags{dat.CompletionUnsignalled, dat.CompletionEVDThreshold, 0x40, 1 << 31} {
			add(name, fmt.Sprint("flags ", f), ip, dat.InvalidArg5, func(w *world) error { return p(w.a.ep, f, w.remote, w.good) })
		}
		add(name, "segment outside", dat.ProtectionViolation, no, func(w *world) error { return p(w.a.ep, 0, w.remote, w.far) })
		add(name, "unknown context", dat.ProtectionViolation, no, func(w *world) error {
			return p(w.a.ep, 0, w.remote, dat.LMRTriplet{VirtualAddress: math.MaxUint64, SegmentLength: 8, LMRContext: math.MaxUint32})
		})
		add(name, "segment of another IA", dat.ProtectionViolation, no, func(w *world) error { return p(w.a.ep, 0, w.remote, w.b.lmr.Triplet(0, 8)) })
		if !atomic {
			add(name, "too many segments", ip, dat.InvalidArg2, func(w *world) error { return p(w.a.ep, 0, w.remote, slices.Repeat([]dat.LMRTriplet{w.good}, 9)...) })
		} else {
			add(name, "local of 9 bytes", ip, dat.InvalidArg2, func(w *world) error { return p(w.a.ep, 0, w.remote, w.a.lmr.Triplet(0, 9)) })
			add(name, "remote of 4 bytes", ip, dat.InvalidArg4, func(w *world) error { return p(w.a.ep, 0, w.b.lmr.RMRTriplet(0, 4), w.good) })
			add(name, "remote not aligned", ip, dat.InvalidArg4, func(w *world) error { return p(w.a.ep, 0, w.b.lmr.RMRTriplet(4, 8), w.good) })
		}
		if !recv && !atomic {
			add(name, "4 GiB", dat.LengthError, no, func(w *world) error {
				l := w.good
				l.SegmentLength = math.MaxUint32
				r := w.remote
				r.SegmentLength = math.MaxUint32
				return p(w.a.ep, 0, r, l)
			})
		}
	}
	for name, p := range map[string]poster{"EP.PostRDMAWrite": posters["EP.PostRDMAWrite"], "EP.Post": posters["EP.Post"], "EP.PostRDMAWriteImmediate": posters["EP.PostRDMAWriteImmediate"]} {
		add(name, "longer than remote", dat.LengthError, no, func(w *world) error { return p(w.a.ep, 0, w.b.lmr.RMRTriplet(0, 7), w.good) })
	}
	add("EP.PostRDMARead", "shorter than remote", dat.LengthError, no, func(w *world) error { return w.a.ep.PostRDMARead(1, 0, w.b.lmr.RMRTriplet(0, 9), w.good) })
	for _, op := range []dat.Operation{dat.OpReceive, dat.OpBindMW, dat.OpLMRFMR, dat.OpCollective, 200, 255} {
		add("EP.Post", fmt.Sprint("operation ", op), ip, dat.InvalidArg1, func(w *world) error { return second(w.a.ep.Post([]dat.Request{{Op: op}})) })
	}
	add("EP.PostRDMAReadToRMR", "unknown sink", dat.ProtectionViolation, dat.ProtectionRDMAWrite, func(w *world) error {
		return w.a.ep.PostRDMAReadToRMR(1, 0, dat.RMRTriplet{SegmentLength: 8, RMRContext: 1}, w.remote)
	})
	add("EP.PostRDMAReadToRMR", "sink outside", dat.ProtectionViolation, dat.ProtectionRDMAWrite, func(w *world) error {
		return w.a.ep.PostRDMAReadToRMR(1, 0, w.a.lmr.RMRTriplet(1<<31, 8), w.remote)
	})

	// SRQ
	add("SRQ.PostRecv", "too many segments", ip, dat.InvalidArg2, func(w *world) error { return w.srq.PostRecv(1, w.good, w.good, w.good) })
	add("SRQ.PostRecv", "segment outside", dat.ProtectionViolation, no, func(w *world) error { return w.srq.PostRecv(1, w.far) })
	add("SRQ.PostRecv", "segment of another IA", dat.ProtectionViolation, no, func(w *world) error { return w.srq.PostRecv(1, w.b.lmr.Triplet(0, 8)) })
	for _, n := range borders {
		add("PZ.NewSRQ", fmt.Sprint(n, " receives"), ip, dat.InvalidArg3, func(w *world) error {
			return second(w.a.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: n, MaxRecvIOV: 1}))
		})
		add("PZ.NewSRQ", fmt.Sprint(n, " segments"), ip, dat.InvalidArg3, func(w *world) error {
			return second(w.a.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: n}))
		})
		add("SRQ.Resize", fmt.Sprint("to ", n), ip, dat.InvalidArg2, func(w *world) error { return w.srq.Resize(n) })
		add("SRQ.SetLowWatermark", fmt.Sprint("of ", n), ip, dat.InvalidArg2, func(w *world) error { return w.srq.SetLowWatermark(n) })
		add("PZ.AllocateLMR", fmt.Sprint(n, " pages"), ip, dat.InvalidArg3, func(w *world) error { return second(w.a.pz.AllocateLMR(n, dat.RMRScopePZ)) })
		add("EVD.Resize", fmt.Sprint("to ", n), ip, dat.InvalidArg2, func(w *world) error { return w.deaf.Resize(n) })
		add("EVD.Wait", fmt.Sprint("threshold ", n), ip, dat.InvalidArg3, func(w *world) error { return third(w.deaf.Wait(background, n, 0)) })
	}
	add("PZ.AllocateLMR", "unknown scope", ip, dat.InvalidArg4, func(w *world) error { return second(w.a.pz.AllocateLMR(1, 200)) })

	// Memory
	for name, register := range map[string]func(w *world, m []byte, p dat.Priv) error{
		"PZ.Register": func(w *world, m []byte, p dat.Priv) error { return second(w.a.pz.Register(m, p)) },
		"PZ.NewLMR": func(w *world, m []byte, p dat.Priv) error {
			return second(w.a.pz.NewLMR(dat.LMRConfig{Memory: m, Priv: p}))
		},
	} {
		add(name, "no memory", dat.LengthError, no, func(w *world) error { return register(w, nil, 0) })
		add(name, "empty memory", dat.LengthError, no, func(w *world) error { return register(w, []byte{}, 0) })
		add(name, "unknown privileges", ip, dat.InvalidArg6, func(w *world) error { return register(w, make([]byte, 1), 1<<31) })
	}
	for _, n := range []int{math.MinInt, -1, 1 << 47, math.MaxInt} {
		add("PZ.NewLMR", fmt.Sprint("length ", n), dat.LengthError, no, func(w *world) error { return second(w.a.pz.NewLMR(dat.LMRConfig{Length: n})) })
	}
	add("PZ.Free", "in use", is, dat.InvalidStatePZInUse, func(w *world) error { return w.a.pz.Free() })
	add("LMR.FMR", "not made for it", ip, dat.InvalidArg1, func(w *world) error {
		return third(w.a.lmr.FMR([][]byte{make([]byte, 8)}, 0, 0, w.a.ep, 0, 0))
	})
	add("LMR.FMR", "no ranges", ip, dat.InvalidArg3, func(w *world) error { return third(w.fast.FMR(nil, 0, 0, w.a.ep, 0, 0)) })
	add("LMR.FMR", "too many ranges", ip, dat.InvalidArg3, func(w *world) error { return third(w.fast.FMR(make([][]byte, 5), 0, 0, w.a.ep, 0, 0)) })
	add("LMR.FMR", "unknown privileges", ip, dat.InvalidArg5, func(w *world) error {
		return third(w.fast.FMR([][]byte{make([]byte, 8)}, 1<<31, 0, w.a.ep, 0, 0))
	})
	add("LMR.FMR", "unknown VA type", ip, dat.InvalidArg6, func(w *world) error { return third(w.fast.FMR([][]byte{make([]byte, 8)}, 0, 9, w.a.ep, 0, 0)) })
	add("LMR.Invalidate", "not mapped", is, dat.InvalidStateLMRFree, func(w *world) error { return w.fast.Invalidate(w.a.ep, 0, 0) })
	add("LMR.Invalidate", "not made for it", ip, dat.InvalidArg1, func(w *world) error { return w.a.lmr.Invalidate(w.a.ep, 0, 0) })
	bind := func(w *world, l *dat.LMR, tr dat.LMRTriplet, p dat.Priv, va dat.VAType) error {
		return second(w.rmr.Bind(l, tr, p, va, w.a.ep, 0, 0))
	}
	for _, l := range []func(w *world) *dat.LMR{
		func(w *world) *dat.LMR { return nil }, func(w *world) *dat.LMR { return w.freed.lmr }, func(w *world) *dat.LMR { return w.b.lmr }, func(w *world) *dat.LMR { return new(dat.LMR) },
	} {
		add("RMR.Bind", "bad LMR", ih, dat.InvalidHandleLMR, func(w *world) error { return bind(w, l(w), w.good, dat.PrivRemoteRead, 0) })
		if l != nil {
			add("PZ.NewLMR", "bad source", ih, dat.InvalidHandleLMR, func(w *world) error {
				return second(w.a.pz.NewLMR(dat.LMRConfig{MemType: dat.MemLMR, Source: l(w)}))
			})
		}
	}
	add("RMR.Bind", "outside", ip, dat.InvalidArg2, func(w *world) error { return bind(w, w.a.lmr, w.far, dat.PrivRemoteRead, 0) })
	add("RMR.Bind", "unknown privileges", ip, dat.InvalidArg4, func(w *world) error { return bind(w, w.a.lmr, w.good, 1<<31, 0) })
	add("RMR.Bind", "unknown VA type", ip, dat.InvalidArg5, func(w *world) error { return bind(w, w.a.lmr, w.good, dat.PrivRemoteRead, 9) })

	// EVD and CNO
	add("EVD.ModifyUpcall", "unknown policy", ip, dat.InvalidArg2, func(w *world) error { return w.deaf.ModifyUpcall(7, nil, 0) })
	add("EVD.ModifyUpcall", "no function", ip, dat.InvalidArg3, func(w *world) error { return w.deaf.ModifyUpcall(dat.UpcallMany, nil, 0) })
	add("EVD.ModifyUpcall", "unknown flag", ip, dat.InvalidArg4, func(w *world) error { return w.deaf.ModifyUpcall(dat.UpcallMany, upcall, 1<<31) })
	add("EVD.ModifyUpcall", "not empty", is, no, func(w *world) error { return w.deaf.ModifyUpcall(dat.UpcallMany, upcall, dat.InvocEmpty) })
	add("EVD.Free", "in use", is, dat.InvalidStateEVDInUse, func(w *world) error { return w.a.evd.Free() })
	add("EVD.Resize", "below what is queued", is, no, func(w *world) error { return w.deaf.Resize(2) })
	for _, d := range []time.Duration{-2, math.MinInt64} {
		add("EVD.Wait", fmt.Sprint("timeout ", d), ip, dat.InvalidArg2, func(w *world) error { return third(w.deaf.Wait(background, 1, d)) })
		add("CNO.Wait", fmt.Sprint("timeout ", d), ip, dat.InvalidArg2, func(w *world) error { return second(w.cno.Wait(background, d)) })
	}
	add("EVD.PostSE", "no software events", ip, dat.InvalidArg1, func(w *world) error { return w.a.ia.AsyncEVD().PostSE(math.MaxUint64) })
	return all
}

// harmless are the methods whose arguments cannot be bad, and why.
var harmless = map[string]string{
	"IA.NewCNO":     "an agent may be nil",
	"IA.Objects":    "a kind that there is not has no objects",
	"IA.SetContext": "anything", "EVD.Events": "a context, which may be nil", "EVD.Teardown": "a context, which may be nil",
	"EVD.DequeueInto": "a slice, which may be nil", "CNO.ModifyAgent": "an agent may be nil",
	"LMR.Triplet": "makes what the post refuses", "LMR.RMRTriplet": "makes what the post refuses",
	"EP.PostSendUD": "ud_test.go",
}

func TestBadArgumentsAreRefusedWithoutEffect(t *testing.T) {
	w := newWorld(t)
	before := w.snapshot(t)
	for _, c := range badCalls() {
		t.Run(c.method+" "+c.why, func(t *testing.T) {
			refused(t, c.do(w), c.typ, c.sub)
			if after := w.snapshot(t); after != before {
				t.Fatalf("something has changed:\n%s\n%s", before, after)
			}
		})
	}
	// All of it still works.
	ok(t, w.cr.Accept(w.idle, nil))
	next(t, w.b.evd, dat.ConnectionEstablished)
	next(t, w.a.evd, dat.ConnectionEstablished)
	ok(t, w.b.ep.PostRecv(1, 0, w.b.lmr.Triplet(0, 8)))
	ok(t, w.a.ep.PostSend(2, 0, w.good))
	nextDTO(t, w.a.evd, 2, dat.StatusSuccess)
	nextDTO(t, w.b.evd, 1, dat.StatusSuccess)
}

// Every exported method with arguments has a bad call in the table, or a reason for none.
func TestEveryMethodHasItsBadArguments(t *testing.T) {
	tested := map[string]bool{}
	for _, c := range badCalls() {
		tested[c.method] = true
	}
	for name, k := range kinds {
		typ := reflect.TypeOf(k.null)
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			full := name + "." + m.Name
			if m.Type.NumIn() == 1 || m.Name == "SetContext" {
				continue
			}
			if _, is := harmless[full]; tested[full] == is {
				t.Errorf("%s: has bad calls: %v, has none to have: %v", full, tested[full], is)
			}
		}
	}
}

// A context that has ended already ends what blocks at once, with its cause.
func TestContextsThatHaveEnded(t *testing.T) {
	ia := newIA(t)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(background)
	cancel(cause)
	e := newEVD(t, ia, dat.EVDConfig{})
	for _, err := range []error{
		third(e.Wait(ctx, 1, dat.Infinite)),
		second(must[*dat.CNO](t)(ia.NewCNO(nil)).Wait(ctx, dat.Infinite)),
	} {
		if refused(t, err, dat.InterruptedCall, dat.NoSubtype); !errors.Is(err, cause) {
			t.Fatal(err)
		}
	}
	ok(t, e.Teardown(ctx)) // nothing to wait for
	ok(t, ia.Close(ctx, dat.CloseAbrupt))
}
