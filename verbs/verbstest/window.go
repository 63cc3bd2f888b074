package verbstest

import (
	"fmt"

	"kdapl/verbs"
)

// windowRules hold for windows of both types; each is checked with those the device has.
var windowRules = []rule{
	{"a window is of the type that was asked for", 0, eachWindow(windowType)},
	{"a peer may use a window with its rights and in its bounds", 0, eachWindow(windowRemote)},
	{"a request behind a bind may rely on it", 0, eachWindow(windowOrder)},
	{"drawing keys costs nothing", 0, eachWindow(windowKeys)},
	{"a window needs a region with the bind right", 0, eachWindow(windowNeedsBind)},
	{"a window for writing needs a region with local write", 0, eachWindow(windowNeedsWrite)},
	{"a window lies within its region", 0, eachWindow(windowInRegion)},
	{"a window is bound under a key that it gave", 0, eachWindow(windowWrongKey)},
	{"a window is bound to a region of its PD", 0, eachWindow(windowForeignPD)},
	{"a window of another PD cannot be bound", 0, eachWindow(windowOfForeignPD)},
	{"a region is busy while a window is bound to it", 0, eachWindow(windowDeregBusy)},
	{"Dealloc unbinds a window", 0, eachWindow(windowDealloc)},
	{"a zero-based window is addressed from 0", verbs.CapZeroBased, eachWindow(windowZeroBased)},
	{"several windows share a region", 0, eachWindow(windowsOverlap)},
	{"a bind flushes in error", 0, eachWindow(windowFlush)},
	{"a window of no known type is refused", 0, windowUnknownType},
}

var window1Rules = []rule{
	{"a type 1 window is bound again and again", verbs.CapMW1, window1Rebind},
	{"a type 1 window is unbound by length 0", verbs.CapMW1, window1Unbind},
	{"a type 1 window serves every QP of its PD", verbs.CapMW1, window1AnyQP},
	{"a type 1 window is not invalidated by a peer", verbs.CapMW1 | verbs.CapSendInval, window1RemoteInval},
	{"a type 1 window is not invalidated locally", verbs.CapMW1, window1LocalInval},
}

var window2Rules = []rule{
	{"a type 2 window is not bound again while it is bound", verbs.CapMW2, window2Rebind},
	{"a type 2 window is not unbound by length 0", verbs.CapMW2, window2Unbind},
	{"a type 2 window serves only the QP that bound it", verbs.CapMW2, window2OwnQP},
	{"a type 2 window is free after a local invalidate", verbs.CapMW2, window2LocalInval},
	{"a type 2 window is free after a peer's invalidate", verbs.CapMW2 | verbs.CapSendInval, window2RemoteInval},
	{"a type 2 window is not invalidated through another QP", verbs.CapMW2 | verbs.CapSendInval, window2ForeignInval},
}

// window is a memory window with its region, on side b of a pair.
type window struct {
	e   *env
	v   verbs.MW
	typ verbs.MWType
	m   *mem
}

// bindRights are the rights of a region for windows with all remote rights.
const bindRights = localWrite | verbs.AccessMWBind

// window makes an unbound window and a region for it.
func (s *side) window(typ verbs.MWType) *window {
	s.e.Helper()
	v, err := s.pd.AllocMW(typ)
	s.e.must(err, "AllocMW(%v)", typ)
	return &window{e: s.e, v: v, typ: typ, m: s.mem(64, bindRights)}
}

// bind makes the request that binds the window to a part of its region.
func (w *window) bind(off, n int, access verbs.Access) verbs.SendWR {
	w.e.Helper()
	key, err := w.v.NextKey()
	w.e.must(err, "NextKey")
	if key == 0 {
		w.e.Error("NextKey returned 0")
	}
	wr := w.e.send(w.m.sge(off, n))
	wr.Op, wr.Key, wr.Access = verbs.OpBindMW, key, access
	return wr
}

// bound binds the window through a QP.
func (q *qp) bound(w *window, off, n int, access verbs.Access) {
	q.e.Helper()
	wr := w.bind(off, n, access)
	q.post(wr)
	q.scq.ok(1, "bind")
	if w.v.RKey() != wr.Key {
		q.e.Errorf("a window bound under %#x has the key %#x", wr.Key, w.v.RKey())
	}
}

// through is an RDMA operation on offset off of the region through the window.
func (w *window) through(op verbs.Opcode, off int, sges ...verbs.SGE) verbs.SendWR {
	wr := w.e.rdma(op, w.m, off, sges...)
	wr.RemoteKey = w.v.RKey()
	return wr
}

// eachWindow checks a rule with each type of window that both devices have.
func eachWindow(check func(*env, verbs.MWType)) func(*env) {
	return func(e *env) {
		found := false
		for _, t := range []struct {
			c   verbs.Caps
			typ verbs.MWType
		}{{verbs.CapMW1, verbs.MWType1}, {verbs.CapMW2, verbs.MWType2}} {
			if e.can(t.c) {
				found = true
				check(e, t.typ)
			}
		}
		if !found {
			e.Skip("the devices have no windows")
		}
	}
}

// bindFault checks that a bind is refused at the post or fails when it runs, and
// connects again if that ended the connection. q is the QP that binds.
func (e *env) bindFault(q, peer *qp, wr verbs.SendWR, what string) {
	e.Helper()
	atPost := q.fails(wr, what,
		[]error{verbs.ErrInvalid, verbs.ErrProtection, verbs.ErrState, verbs.ErrBusy, verbs.ErrAccess, verbs.ErrBounds},
		verbs.StatusMWBind, verbs.StatusLocalProtection)
	e.again(q, peer, atPost)
}

func windowType(e *env, typ verbs.MWType) {
	w := e.b.window(typ)
	if w.v.Type() != typ {
		e.Errorf("a window of %v is of %v", typ, w.v.Type())
	}
	if key := w.v.RKey(); key != 0 {
		e.Errorf("an unbound window has the key %#x", key)
	}
}

func windowRemote(e *env, typ verbs.MWType) {
	a, b := e.couple()
	w := e.b.window(typ)
	b.bound(w, 16, 32, remoteBoth&^localWrite)
	src, sink := e.a.source(32), e.a.sink(32)
	a.post(w.through(verbs.OpRDMAWrite, 16, src.all()), w.through(verbs.OpRDMARead, 16, sink.all()))
	a.scq.ok(2, "write and read through a window")
	sink.same(0, src.buf, "read through a window")
	e.ping(a, b)
	w.m.same(16, src.buf, "write through a window")
	for _, off := range []int{15, 17, 0, 48} {
		e.denied(a, b, w.through(verbs.OpRDMAWrite, off, src.all()), fmt.Sprintf("32 bytes at %d through a window over 16 to 48", off))
		w = e.b.window(typ) // the connection is another one
		b.bound(w, 16, 32, remoteBoth&^localWrite)
		w.m.fill(1)
		kept := append([]byte(nil), w.m.buf...)
		e.denied(a, b, w.through(verbs.OpRDMARead, off, sink.all()), fmt.Sprintf("32 bytes at %d through a window over 16 to 48", off))
		w.m.same(0, kept, "region of a window")
		w = e.b.window(typ)
		b.bound(w, 16, 32, remoteBoth&^localWrite)
	}
	onlyRead := e.b.window(typ)
	b.bound(onlyRead, 0, 64, verbs.AccessRemoteRead)
	e.denied(a, b, onlyRead.through(verbs.OpRDMAWrite, 0, src.all()), "a window for reading")
	onlyWrite := e.b.window(typ)
	b.bound(onlyWrite, 0, 64, verbs.AccessRemoteWrite)
	e.denied(a, b, onlyWrite.through(verbs.OpRDMARead, 0, sink.all()), "a window for writing")
}

// windowOrder binds and tells the peer in one list; the peer uses the window at once.
func windowOrder(e *env, typ verbs.MWType) {
	a, b := e.couple()
	for range e.rounds(50) {
		w := e.b.window(typ)
		wr := w.bind(0, 64, verbs.AccessRemoteWrite)
		a.recv(e.recv())
		b.post(unsignaled(wr), e.send())
		a.rcq.ok(1, "message behind a bind")
		use := w.through(verbs.OpRDMAWrite, 0, e.a.source(64).all())
		use.RemoteKey = wr.Key
		a.post(use)
		a.scq.ok(1, "write through a window that was just bound")
		b.scq.ok(1, "send behind a bind")
	}
}

func windowKeys(e *env, typ verbs.MWType) {
	a, b := e.couple()
	w := e.b.window(typ)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	bound := w.v.RKey()
	for range 1000 {
		key, err := w.v.NextKey()
		e.must(err, "NextKey")
		if key == bound || key == 0 {
			e.Fatalf("NextKey returned %#x, the window is bound under %#x", key, bound)
		}
	}
	if w.v.RKey() != bound {
		e.Error("NextKey changed the key of a bound window")
	}
	a.post(w.through(verbs.OpRDMAWrite, 0, e.a.source(8).all()))
	a.scq.ok(1, "write through a window after its next keys were drawn")
}

func windowNeedsBind(e *env, typ verbs.MWType) {
	a, b := e.couple()
	w := e.b.window(typ)
	w.m = e.b.mem(64, remoteBoth)
	e.bindFault(b, a, w.bind(0, 64, verbs.AccessRemoteRead), "bind to a region without the bind right")
}

func windowNeedsWrite(e *env, typ verbs.MWType) {
	a, b := e.couple()
	w := e.b.window(typ)
	w.m = e.b.mem(64, verbs.AccessMWBind)
	e.bindFault(b, a, w.bind(0, 64, verbs.AccessRemoteWrite), "bind for writing to a region without local write")
	w = e.b.window(typ)
	w.m = e.b.mem(64, verbs.AccessMWBind)
	b.bound(w, 0, 64, verbs.AccessRemoteRead)
}

func windowInRegion(e *env, typ verbs.MWType) {
	a, b := e.couple()
	for _, r := range []struct{ off, n int }{{-1, 8}, {-8, 8}, {57, 8}, {64, 8}, {0, 65}, {1 << 20, 8}} {
		w := e.b.window(typ)
		e.bindFault(b, a, w.bind(r.off, r.n, verbs.AccessRemoteRead), fmt.Sprintf("bind of %d bytes at %d of 64", r.n, r.off))
	}
	w := e.b.window(typ)
	wr := w.bind(0, 16, verbs.AccessRemoteRead)
	wr.SGE[0].Addr = ^uint64(7)
	e.bindFault(b, a, wr, "bind of a range that wraps")
}

func windowWrongKey(e *env, typ verbs.MWType) {
	a, b := e.couple()
	for what, key := range map[string]func(*window, uint32) uint32{
		"a key with a bit changed": func(_ *window, k uint32) uint32 { return k ^ 1 },
		"key 0":                    func(*window, uint32) uint32 { return 0 },
		"the key of its region":    func(w *window, _ uint32) uint32 { return w.m.mr.LKey() },
	} {
		w := e.b.window(typ)
		wr := w.bind(0, 64, verbs.AccessRemoteRead)
		wr.Key = key(w, wr.Key)
		e.bindFault(b, a, wr, "bind under "+what)
	}
}

func windowForeignPD(e *env, typ verbs.MWType) {
	a, b := e.couple()
	pd, err := e.b.ctx.AllocPD()
	e.must(err, "AllocPD")
	w := e.b.window(typ)
	w.m = e.b.memIn(pd, 64, bindRights)
	e.bindFault(b, a, w.bind(0, 64, verbs.AccessRemoteRead), "bind to a region of another PD")
}

func windowOfForeignPD(e *env, typ verbs.MWType) {
	a, b := e.couple()
	pd, err := e.b.ctx.AllocPD()
	e.must(err, "AllocPD")
	w := e.b.window(typ)
	if w.v, err = pd.AllocMW(typ); err != nil {
		e.Fatalf("AllocMW: %v", err)
	}
	e.bindFault(b, a, w.bind(0, 64, verbs.AccessRemoteRead), "bind of a window of another PD")
}

func windowDeregBusy(e *env, typ verbs.MWType) {
	_, b := e.couple()
	w := e.b.window(typ)
	b.bound(w, 0, 64, verbs.AccessRemoteRead)
	e.refused(w.m.mr.Dereg(), "Dereg of a region with a window", verbs.ErrBusy)
	e.must(w.v.Dealloc(), "MW.Dealloc")
	w.m.free()
	never := e.b.window(typ)
	never.m.free()
}

func windowDealloc(e *env, typ verbs.MWType) {
	a, b := e.couple()
	w := e.b.window(typ)
	b.bound(w, 0, 64, remoteBoth&^localWrite)
	use := w.through(verbs.OpRDMAWrite, 0, e.a.source(8).all())
	e.must(w.v.Dealloc(), "MW.Dealloc")
	e.denied(a, b, use, "a window that is gone")
	w.m.zero(0, 64, "region of a window that is gone")
}

func windowZeroBased(e *env, typ verbs.MWType) {
	a, b := e.couple()
	w := e.b.window(typ)
	b.bound(w, 16, 32, verbs.AccessRemoteWrite|verbs.AccessZeroBased)
	src := e.a.source(32)
	use := w.through(verbs.OpRDMAWrite, 0, src.all())
	use.RemoteAddr = 0
	a.post(use)
	a.scq.ok(1, "write to offset 0 of a window")
	e.ping(a, b)
	w.m.same(16, src.buf, "write to offset 0 of a window")
	use = w.through(verbs.OpRDMAWrite, 0, src.all())
	use.RemoteAddr = 1
	e.denied(a, b, use, "behind a zero-based window")
}

func windowsOverlap(e *env, typ verbs.MWType) {
	a, b := e.couple()
	w1, w2 := e.b.window(typ), e.b.window(typ)
	w2.m = w1.m
	b.bound(w1, 0, 40, verbs.AccessRemoteWrite)
	b.bound(w2, 24, 40, verbs.AccessRemoteRead)
	src, sink := e.a.source(40), e.a.sink(16)
	a.post(w1.through(verbs.OpRDMAWrite, 0, src.all()), w2.through(verbs.OpRDMARead, 24, sink.all()))
	a.scq.ok(2, "two windows over one region")
	sink.same(0, src.buf[24:40], "the part that both windows cover")
	e.must(w1.v.Dealloc(), "Dealloc of one window")
	a.post(w2.through(verbs.OpRDMARead, 24, sink.all()))
	a.scq.ok(1, "the other window")
	e.refused(w1.m.mr.Dereg(), "Dereg with the other window", verbs.ErrBusy)
}

func windowFlush(e *env, typ verbs.MWType) {
	a, b := e.couple()
	w := e.b.window(typ)
	wr := w.bind(0, 64, verbs.AccessRemoteRead)
	e.disconnect(b, a, false)
	b.scq.untilMark(b, false, "Disconnect")
	b.post(wr)
	b.failed(b.scq.one("bind in error"), "bind in error", verbs.StatusFlushed)
	if key := w.v.RKey(); key != 0 {
		e.Errorf("a flushed bind gave the window the key %#x", key)
	}
	w.m.free()
}

func windowUnknownType(e *env) {
	for _, typ := range []verbs.MWType{0, 3, 255} {
		_, err := e.b.pd.AllocMW(typ)
		e.refused(err, "AllocMW of "+typ.String(), verbs.ErrInvalid, verbs.ErrNotSupported)
	}
}

func window1Rebind(e *env) {
	a, b := e.couple()
	w := e.b.window(verbs.MWType1)
	other := e.b.mem(64, bindRights)
	src := e.a.source(8)
	var old verbs.SendWR
	for i := range e.rounds(20) {
		if i%2 == 1 {
			w.m, other = other, w.m
		}
		b.bound(w, 8, 40, verbs.AccessRemoteWrite)
		use := w.through(verbs.OpRDMAWrite, 8, src.all())
		a.post(use)
		a.scq.ok(1, "write through a window that was bound again")
		e.ping(a, b) // the write is there before the window changes
		old = use
	}
	b.bound(w, 8, 40, verbs.AccessRemoteWrite)
	old.ID = e.id()
	e.denied(a, b, old, "the key of an earlier bind")
	// Only the region of the last bind is in use.
	other2 := w.m
	w.m = other
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	e.must(other2.mr.Dereg(), "Dereg of a region whose window moved away")
	e.refused(other.mr.Dereg(), "Dereg of the region whose window it is now", verbs.ErrBusy)
}

func window1Unbind(e *env) {
	a, b := e.couple()
	w := e.b.window(verbs.MWType1)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	use := w.through(verbs.OpRDMAWrite, 0, e.a.source(8).all())
	b.post(w.bind(0, 0, 0))
	b.scq.ok(1, "unbind")
	if key := w.v.RKey(); key != 0 {
		e.Errorf("an unbound window has the key %#x", key)
	}
	w.m.free()
	e.denied(a, b, use, "a window that is unbound")
	w.m = e.b.mem(64, bindRights)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
}

func window1AnyQP(e *env) {
	_, b := e.couple()
	a2, b2 := e.couple()
	w := e.b.window(verbs.MWType1)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	a2.post(w.through(verbs.OpRDMAWrite, 0, e.a.source(8).all()))
	a2.scq.ok(1, "write through a window that another QP bound")
	b2.bound(w, 0, 64, verbs.AccessRemoteWrite)
}

func window1RemoteInval(e *env) {
	a, b := e.couple()
	w := e.b.window(verbs.MWType1)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	e.notInvalidated(a, b, w.v.RKey(), "invalidate of a type 1 window")
	a.post(w.through(verbs.OpRDMAWrite, 0, e.a.source(8).all()))
	a.scq.ok(1, "write through the window afterwards")
}

func window1LocalInval(e *env) {
	a, b := e.couple()
	w := e.b.window(verbs.MWType1)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	wr := e.inval(w.v.RKey())
	atPost := b.fails(wr, "local invalidate of a type 1 window",
		[]error{verbs.ErrInvalid, verbs.ErrProtection, verbs.ErrState, verbs.ErrNotSupported}, verbs.StatusMemoryManagement)
	e.again(b, a, atPost)
	a.post(w.through(verbs.OpRDMAWrite, 0, e.a.source(8).all()))
	a.scq.ok(1, "write through the window afterwards")
}

func window2Rebind(e *env) {
	a, b := e.couple()
	w := e.b.window(verbs.MWType2)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	e.bindFault(b, a, w.bind(0, 32, verbs.AccessRemoteWrite), "bind of a type 2 window that is bound")
}

func window2Unbind(e *env) {
	a, b := e.couple()
	w := e.b.window(verbs.MWType2)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	e.bindFault(b, a, w.bind(0, 0, 0), "unbind of a type 2 window")
	free := e.b.window(verbs.MWType2)
	e.bindFault(b, a, free.bind(0, 0, 0), "unbind of a type 2 window that is free")
}

func window2OwnQP(e *env) {
	a, b := e.couple()
	a2, b2 := e.couple()
	w := e.b.window(verbs.MWType2)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	src := e.a.source(8)
	e.denied(a2, b2, w.through(verbs.OpRDMAWrite, 0, src.all()), "a type 2 window of another QP")
	w.m.zero(0, 64, "region of a type 2 window of another QP")
	a.post(w.through(verbs.OpRDMAWrite, 0, src.all()))
	a.scq.ok(1, "write through the QP that bound")
}

func window2LocalInval(e *env) {
	a, b := e.couple()
	w := e.b.window(verbs.MWType2)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	old := w.through(verbs.OpRDMAWrite, 0, e.a.source(8).all())
	b.post(e.inval(w.v.RKey()))
	b.scq.ok(1, "local invalidate of a type 2 window")
	if key := w.v.RKey(); key != 0 {
		e.Errorf("an invalidated window has the key %#x", key)
	}
	w.m.free()
	w.m = e.b.mem(64, bindRights)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	a.post(w.through(verbs.OpRDMAWrite, 0, e.a.source(8).all()))
	a.scq.ok(1, "write through the window bound again")
	e.denied(a, b, old, "a window that was invalidated")
}

func window2RemoteInval(e *env) {
	a, b := e.couple()
	w := e.b.window(verbs.MWType2)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	old := w.through(verbs.OpRDMAWrite, 0, e.a.source(8).all())
	key := w.v.RKey()
	b.recv(e.recv())
	a.post(e.sendInval(key))
	e.invalidated(b.rcq.ok(1, "receive of a send that invalidates a window")[0], key)
	a.scq.ok(1, "send that invalidates a window")
	w.m.free()
	w.m = e.b.mem(64, bindRights)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	a.post(w.through(verbs.OpRDMAWrite, 0, e.a.source(8).all()))
	a.scq.ok(1, "write through the window bound again")
	e.denied(a, b, old, "a window that the peer invalidated")
}

func window2ForeignInval(e *env) {
	a, b := e.couple()
	a2, b2 := e.couple()
	w := e.b.window(verbs.MWType2)
	b.bound(w, 0, 64, verbs.AccessRemoteWrite)
	e.notInvalidated(a2, b2, w.v.RKey(), "invalidate of a type 2 window of another QP")
	a.post(w.through(verbs.OpRDMAWrite, 0, e.a.source(8).all()))
	a.scq.ok(1, "write through the window afterwards")
}
