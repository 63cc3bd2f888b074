package verbstest

import (
	"fmt"
	"runtime"

	"kdapl/verbs"
)

var memoryRules = []rule{
	{"an empty buffer cannot be registered", 0, regEmpty},
	{"a region does not wrap around the address space", 0, regWraps},
	{"a region beyond MaxMRSize is refused", 0, regTooBig},
	{"keys are not 0 and differ", 0, keysDiffer},
	{"there is no remote key without a remote right", 0, remoteKeyOnDemand},
	{"a segment may lie at both ends of its region", 0, localEnds},
	{"a segment outside its region is refused", 0, localBounds},
	{"a segment that wraps around the address space is refused", 0, localWrap},
	{"an unknown local key is refused", 0, localUnknownKey},
	{"local key 0 names nothing", 0, localKeyZero},
	{"a key dies with its region", 0, localStaleKey},
	{"a new region does not revive an old key", 0, keysNotReused},
	{"a region of another PD is refused", 0, localForeignPD},
	{"a region of another context is refused", 0, localForeignContext},
	{"a segment of length 0 has its other fields ignored", 0, zeroSegmentIgnored},
	{"a receive needs local write", 0, recvNeedsLocalWrite},
	{"the sink of a read needs local write", 0, readNeedsLocalWrite},
	{"the sink of a read needs remote write where the device says so", verbs.CapReadSinkRemoteWrite, readNeedsRemoteWrite},
	{"the result of an atomic needs local write", verbs.CapAtomics, atomicNeedsLocalWrite},
	{"a region without any right can be sent from", 0, sendNeedsNoRight},
	{"a region without local read is no source where the device can withhold it", 0, noLocalRead},
	{"a zero-based region is addressed from 0", verbs.CapZeroBased, zeroBasedLocal},
	{"a region that is deregistered under a posted receive is not touched", 0, deregUnderRecv},
	{"a region keeps its buffer alive", 0, regionKeepsBuffer},
	{"Dereg does not wait for the network", 0, deregDoesNotWait},
	{"a refused segment takes nothing from the list behind it", verbs.CapPostChecks, localFaultInList},
}

func regEmpty(e *env) {
	for _, buf := range [][]byte{nil, {}} {
		_, err := e.a.pd.RegMR(buf, 4096, localWrite)
		e.refused(err, "RegMR of nothing", verbs.ErrInvalid)
	}
}

func regWraps(e *env) {
	for _, iova := range []uint64{^uint64(0), ^uint64(0) - 62, ^uint64(0) - 10} {
		_, err := e.a.pd.RegMR(make([]byte, 64), iova, localWrite)
		e.refused(err, fmt.Sprintf("RegMR of 64 bytes at %#x", iova), verbs.ErrInvalid)
	}
	// The last byte may have the last address but one.
	a, b := e.couple()
	buf := pattern(64, 1)
	mr, err := e.a.pd.RegMR(buf, ^uint64(0)-64, localWrite)
	e.must(err, "RegMR below the end of the address space")
	dst := e.b.mem(64, localWrite)
	b.recv(e.recv(dst.all()))
	a.post(e.send(verbs.SGE{Addr: ^uint64(0) - 64, Length: 64, LKey: mr.LKey()}))
	b.rcq.ok(1, "receive")
	a.scq.ok(1, "send")
	dst.same(0, buf, "message from the end of the address space")
	a.local(e.send(verbs.SGE{Addr: ^uint64(0) - 8, Length: 16, LKey: mr.LKey()}), "a segment that wraps to address 7", verbs.ErrBounds)
}

func regTooBig(e *env) {
	const most = 1 << 26
	if e.a.attr.MaxMRSize > most {
		e.Skipf("MaxMRSize is %d, more than this rule allocates", e.a.attr.MaxMRSize)
	}
	_, err := e.a.pd.RegMR(make([]byte, e.a.attr.MaxMRSize+1), 4096, localWrite)
	e.refused(err, "RegMR beyond MaxMRSize", tooMuch...)
}

func keysDiffer(e *env) {
	seen := map[uint32]bool{}
	for range min(e.rounds(500), e.a.attr.MaxMR) {
		m := e.a.mem(64, remoteBoth)
		if m.mr.LKey() == 0 || m.mr.RKey() == 0 {
			e.Fatalf("keys %#x and %#x", m.mr.LKey(), m.mr.RKey())
		}
		if seen[m.mr.LKey()] {
			e.Fatalf("two regions have the local key %#x", m.mr.LKey())
		}
		seen[m.mr.LKey()] = true
	}
}

func remoteKeyOnDemand(e *env) {
	for access, want := range map[verbs.Access]bool{
		localOnly: false, localWrite: false, remoteRead: true, remoteWrite: true, remoteBoth: true,
	} {
		if m := e.a.mem(64, access); (m.mr.RKey() != 0) != want {
			e.Errorf("a region with %v has the remote key %#x", access, m.mr.RKey())
		}
	}
}

func localEnds(e *env) {
	a, b := e.couple()
	src, dst := e.a.source(64), e.b.mem(64, localWrite)
	for _, part := range [][2]int{{0, 1}, {63, 1}, {1, 62}, {0, 63}, {1, 63}, {0, 64}} {
		dst.clear()
		b.recv(e.recv(dst.sge(part[0], part[1])))
		a.post(e.send(src.sge(part[0], part[1])))
		b.rcq.ok(1, "receive")
		a.scq.ok(1, "send")
		dst.same(part[0], src.buf[part[0]:part[0]+part[1]], "message at an end of a region")
	}
}

// localFaults makes one request after the other, each with a fault in its local segment,
// and connects again where a fault ended the connection.
func (e *env) localFaults(want error, requests map[string]func(a *qp) verbs.SendWR) {
	e.Helper()
	a, b := e.couple()
	for what, request := range requests {
		a.local(request(a), what, want)
		e.again(a, b, a.s.attr.Can(verbs.CapPostChecks))
	}
}

// again goes on after a fault of a: a fault that the post call found must have left the
// connection alone, any other has ended it, and the QPs are connected again.
func (e *env) again(a, b *qp, atPost bool) {
	e.Helper()
	if atPost {
		e.ping(a, b)
		return
	}
	a.conn.next("a local fault", verbs.ConnBroken)
	b.conn.next("the peer's fault", verbs.ConnBroken, verbs.ConnDisconnected)
	for _, q := range []*qp{a, b} {
		q.scq.untilMark(q, false, "end of the connection")
		q.rcq.untilMark(q, true, "end of the connection")
	}
	e.renew(a, b)
}

func localBounds(e *env) {
	src := e.a.source(64)
	shift := func(off, n int) func(*qp) verbs.SendWR {
		return func(*qp) verbs.SendWR { return e.send(src.sge(off, n)) }
	}
	second := func(*qp) verbs.SendWR { return e.send(src.sge(0, 8), src.sge(60, 8)) }
	if e.a.attr.MaxSendSGE < 2 {
		second = shift(60, 8)
	}
	e.localFaults(verbs.ErrBounds, map[string]func(*qp) verbs.SendWR{
		"one byte before the region":            shift(-1, 1),
		"a segment that begins before":          shift(-1, 64),
		"one byte behind the region":            shift(64, 1),
		"a segment that ends behind":            shift(1, 64),
		"a segment longer than the region":      shift(0, 65),
		"a segment of the greatest length":      shift(0, int(min(1<<31-1, e.a.attr.MaxMessage))),
		"a segment far before":                  shift(-1<<20, 8),
		"a segment far behind":                  shift(1<<20, 8),
		"a second segment that lies behind":     second,
		"the virtual address as an offset from": func(*qp) verbs.SendWR { return e.send(verbs.SGE{Addr: 0, Length: 8, LKey: src.mr.LKey()}) },
	})
}

func localWrap(e *env) {
	src := e.a.source(64)
	at := func(addr uint64, n uint32) func(*qp) verbs.SendWR {
		return func(*qp) verbs.SendWR { return e.send(verbs.SGE{Addr: addr, Length: n, LKey: src.mr.LKey()}) }
	}
	e.localFaults(verbs.ErrBounds, map[string]func(*qp) verbs.SendWR{
		"the last address":             at(^uint64(0), 1),
		"across the end":               at(^uint64(0)-3, 8),
		"across the end to the region": at(^uint64(0)-3, min(1<<31, e.a.attr.MaxMessage)),
	})
}

func localUnknownKey(e *env) {
	src := e.a.source(64)
	requests := map[string]func(*qp) verbs.SendWR{}
	for _, flip := range []uint32{1, 1 << 7, 1 << 8, 1 << 16, 1 << 31, ^uint32(0)} {
		if src.mr.LKey() == flip {
			continue
		}
		requests[fmt.Sprintf("the key of a region with bits %#x changed", flip)] = func(*qp) verbs.SendWR {
			sge := src.sge(0, 8)
			sge.LKey ^= flip
			return e.send(sge)
		}
	}
	e.localFaults(verbs.ErrProtection, requests)
}

func localKeyZero(e *env) {
	src := e.a.source(64)
	e.localFaults(verbs.ErrProtection, map[string]func(*qp) verbs.SendWR{
		"key 0":              func(*qp) verbs.SendWR { return e.send(verbs.SGE{Addr: src.at(0), Length: 8}) },
		"key 0 at address 0": func(*qp) verbs.SendWR { return e.send(verbs.SGE{Length: 8}) },
	})
}

func localStaleKey(e *env) {
	e.localFaults(verbs.ErrProtection, map[string]func(*qp) verbs.SendWR{
		"the key of a deregistered region": func(*qp) verbs.SendWR {
			src := e.a.source(64)
			src.free()
			return e.send(src.all())
		},
	})
}

func keysNotReused(e *env) {
	old := e.a.source(64)
	old.free()
	seen := map[uint32]bool{old.mr.LKey(): true}
	for i := range e.rounds(100) {
		m := e.a.mem(64, remoteBoth)
		if seen[m.mr.LKey()] {
			e.Fatalf("region %d has the key %#x of an earlier one", i, m.mr.LKey())
		}
		seen[m.mr.LKey()] = true
		m.free()
	}
	live := e.a.source(64)
	e.localFaults(verbs.ErrProtection, map[string]func(*qp) verbs.SendWR{
		"an old key with the addresses of a new region": func(*qp) verbs.SendWR {
			return e.send(verbs.SGE{Addr: live.at(0), Length: 8, LKey: old.mr.LKey()})
		},
		"an old key with its own addresses": func(*qp) verbs.SendWR { return e.send(old.sge(0, 8)) },
	})
}

func localForeignPD(e *env) {
	pd, err := e.a.ctx.AllocPD()
	e.must(err, "AllocPD")
	foreign := e.a.memIn(pd, 64, remoteBoth)
	second := func(*qp) verbs.SendWR { return e.send(e.a.source(8).all(), foreign.sge(0, 8)) }
	if e.a.attr.MaxSendSGE < 2 {
		second = func(*qp) verbs.SendWR { return e.send(foreign.sge(8, 8)) }
	}
	e.localFaults(verbs.ErrProtection, map[string]func(*qp) verbs.SendWR{
		"send from a region of another PD":  func(*qp) verbs.SendWR { return e.send(foreign.sge(0, 8)) },
		"second segment from another PD":    second,
		"read into a region of another PD":  func(*qp) verbs.SendWR { return e.read(e.b.mem(64, remoteBoth), 0, foreign.sge(0, 8)) },
		"write from a region of another PD": func(*qp) verbs.SendWR { return e.write(e.b.mem(64, remoteBoth), 0, foreign.sge(0, 8)) },
	})
	e.recvFault(foreign.sge(0, 8), verbs.ErrProtection, "receive into a region of another PD")
}

func localForeignContext(e *env) {
	other := e.open("spare", e.pair.Active).mem(64, localWrite)
	e.localFaults(verbs.ErrProtection, map[string]func(*qp) verbs.SendWR{
		"send from a region of another context": func(*qp) verbs.SendWR { return e.send(other.sge(0, 8)) },
	})
}

func zeroSegmentIgnored(e *env) {
	a, b := e.couple()
	wild := verbs.SGE{Addr: ^uint64(0), LKey: 0xffffffff}
	b.recv(e.recv(wild))
	a.post(e.send(wild))
	if c := b.rcq.ok(1, "receive")[0]; c.Length != 0 {
		e.Errorf("received %d bytes, want 0", c.Length)
	}
	a.scq.ok(1, "send")
	if min(e.a.attr.MaxSendSGE, e.b.attr.MaxRecvSGE) < 4 {
		return
	}
	src, dst := e.a.source(32), e.b.mem(32, localWrite)
	b.recv(e.recv(wild, dst.sge(0, 16), wild, dst.sge(16, 16)))
	a.post(e.send(wild, src.sge(0, 10), wild, src.sge(10, 22)))
	if c := b.rcq.ok(1, "receive")[0]; c.Length != 32 {
		e.Errorf("received %d bytes, want 32", c.Length)
	}
	a.scq.ok(1, "send")
	dst.same(0, src.buf, "message with empty segments")
}

// recvFault checks that a receive into a faulty segment is refused at the post, or fails
// when a message arrives.
func (e *env) recvFault(sge verbs.SGE, want error, what string) {
	e.Helper()
	b, a := e.couple() // the faulty segment is the active side's
	n, err := b.tryRecv(e.recv(sge))
	if b.s.attr.Can(verbs.CapPostChecks) {
		if n != 0 {
			e.Fatalf("%s: taken", what)
		}
		e.refused(err, what, want)
		e.ping(a, b)
		return
	}
	e.must(err, "PostRecv")
	a.post(e.send(a.s.source(8).all()))
	b.failed(b.rcq.one(what), what, verbs.StatusLocalProtection)
	e.broken(what, a, b)
}

func recvNeedsLocalWrite(e *env) {
	m := e.a.mem(64, remoteRead)
	e.recvFault(m.sge(0, 8), verbs.ErrAccess, "receive into a region without local write")
	m.zero(0, 64, "a region without local write")
}

func readNeedsLocalWrite(e *env) {
	sink, target := e.a.mem(64, remoteRead), e.b.mem(64, remoteRead)
	target.fill(1)
	e.localFaults(verbs.ErrAccess, map[string]func(*qp) verbs.SendWR{
		"read into a region without local write": func(*qp) verbs.SendWR { return e.read(target, 0, sink.sge(0, 8)) },
	})
	sink.zero(0, 64, "a region without local write")
}

func readNeedsRemoteWrite(e *env) {
	sink, target := e.a.mem(64, localWrite), e.b.mem(64, remoteRead)
	target.fill(1)
	e.localFaults(verbs.ErrAccess, map[string]func(*qp) verbs.SendWR{
		"read into a region without remote write": func(*qp) verbs.SendWR { return e.read(target, 0, sink.sge(0, 8)) },
	})
	sink.zero(0, 64, "a region without remote write")
}

func atomicNeedsLocalWrite(e *env) {
	sink, target := e.a.mem(64, remoteRead), e.b.mem(64, localWrite|verbs.AccessRemoteAtomic)
	e.localFaults(verbs.ErrAccess, map[string]func(*qp) verbs.SendWR{
		"fetch-and-add into a region without local write": func(*qp) verbs.SendWR {
			wr := e.rdma(verbs.OpFetchAdd, target, 0, sink.sge(0, 8))
			wr.Swap = 1
			return wr
		},
	})
	target.zero(0, 64, "the target of a refused fetch-and-add")
}

func sendNeedsNoRight(e *env) {
	a, b := e.couple()
	src, dst := e.a.source(64), e.b.mem(64, remoteWrite)
	b.recv(e.recv())
	a.post(e.write(dst, 0, src.all()), e.send())
	b.rcq.ok(1, "receive")
	a.scq.ok(2, "write and send")
	dst.same(0, src.buf, "write")
}

// noLocalRead: a device that cannot withhold local read ignores AccessNoLocalRead.
func noLocalRead(e *env) {
	a, b := e.couple()
	m := e.a.mem(64, localWrite|verbs.AccessNoLocalRead)
	dst := e.b.mem(64, remoteBoth)
	// It can be received into on every device.
	a.recv(e.recv(m.all()))
	src := e.b.source(64)
	b.post(e.send(src.all()))
	a.rcq.ok(1, "receive into a region without local read")
	b.scq.ok(1, "send")
	m.same(0, src.buf, "message in a region without local read")
	for _, wr := range []verbs.SendWR{e.send(m.sge(0, 8)), e.write(dst, 0, m.sge(0, 8))} {
		b.recv(e.recv(dst.sge(8, 8)))
		n, err := a.tryPost(wr)
		if n == 0 {
			e.refused(err, wr.Op.String()+" from a region without local read", verbs.ErrAccess)
			dst.zero(0, 64, "the target of a refused request")
			continue
		}
		if c := a.scq.one("a request from a region without local read"); c.Status != verbs.StatusSuccess {
			a.failed(c, wr.Op.String()+" from a region without local read", verbs.StatusLocalProtection)
			e.again(a, b, false)
		}
	}
}

func zeroBasedLocal(e *env) {
	a, b := e.couple()
	src, dst := e.a.mem(64, verbs.AccessZeroBased), e.b.mem(64, remoteBoth|verbs.AccessZeroBased)
	src.fill(3)
	b.recv(e.recv(dst.sge(0, 32)))
	a.post(e.write(dst, 32, src.sge(32, 32)), e.send(src.sge(0, 32)))
	b.rcq.ok(1, "receive")
	a.scq.ok(2, "write and send")
	dst.same(0, src.buf, "zero-based region")
	a.local(e.send(src.sge(33, 32)), "a segment behind a zero-based region", verbs.ErrBounds)
}

// deregUnderRecv: a device looks the key up at each access.
func deregUnderRecv(e *env) {
	a, b := e.couple()
	dst := e.b.mem(64, localWrite)
	b.recv(e.recv(dst.all()))
	dst.free()
	a.post(e.send(e.a.source(64).all()))
	b.failed(b.rcq.one("receive"), "a message for a deregistered region", verbs.StatusLocalProtection)
	if c := a.scq.one("send"); a.s.acked() {
		a.failed(c, "send to a deregistered region", verbs.StatusRemoteOp, verbs.StatusRemoteInvalidRequest, verbs.StatusRemoteAccess)
	}
	e.broken("a message for a deregistered region", a, b)
	dst.zero(0, 64, "a deregistered region")
}

// regionKeepsBuffer leaves a buffer to the region alone while the garbage collector runs.
func regionKeepsBuffer(e *env) {
	a, _ := e.couple()
	const n = 64 << 10
	mr, err := e.b.pd.RegMR(make([]byte, n), 1<<30, remoteBoth)
	e.must(err, "RegMR")
	target := &mem{e: e, s: e.b, mr: mr, base: 1 << 30}
	src, sink := e.a.source(n), e.a.sink(n)
	a.post(e.write(target, 0, src.all()))
	a.scq.ok(1, "write")
	for range 3 {
		runtime.GC()
		var rubbish [][]byte // takes up what was freed
		for range 20 {
			rubbish = append(rubbish, pattern(n, 99))
		}
		runtime.KeepAlive(rubbish)
	}
	a.post(e.read(target, 0, sink.all()))
	a.scq.ok(1, "read")
	sink.same(0, src.buf, "a buffer that only the region holds")
}

func deregDoesNotWait(e *env) {
	a, b := e.couple()
	if !e.a.stalls() {
		e.Skip("nothing keeps a send of this device outstanding")
	}
	src := e.a.source(64)
	a.post(e.send(src.all()))
	a.scq.none("a send without a receive")
	e.bounded("Dereg under an outstanding send", func() {
		if err := src.mr.Dereg(); err != nil {
			e.Errorf("Dereg under an outstanding send: %v", err)
		}
	})
	clear(src.buf)
	// What the send does now depends on whether the device has the payload already.
	dst := e.b.mem(64, localWrite)
	b.recv(e.recv(dst.all()))
	if c := a.scq.one("send"); c.Status != verbs.StatusSuccess {
		a.failed(c, "send from a deregistered region", verbs.StatusLocalProtection)
		a.conn.next("a local fault", verbs.ConnBroken)
	}
}

func localFaultInList(e *env) {
	a, b := e.couple()
	src := e.a.source(8)
	bad := src.all()
	bad.LKey ^= 1
	dst := e.b.mem(64, localWrite)
	b.recv(e.recv(dst.sge(0, 8)), e.recv(dst.sge(8, 8)))
	n, err := a.tryPost(e.send(src.all()), e.send(bad), e.send(src.all()))
	if n != 1 {
		e.Fatalf("a list with a fault in second place: %d taken", n)
	}
	e.refused(err, "a list with a fault in second place", verbs.ErrProtection)
	b.rcq.ok(1, "the request before it")
	a.scq.ok(1, "the request before it")
	a.post(e.send(src.all()))
	b.rcq.ok(1, "a request after it")
	a.scq.ok(1, "a request after it")
	n, err = b.tryRecv(e.recv(dst.sge(0, 8)), e.recv(verbs.SGE{Addr: 1, Length: 1, LKey: 1}), e.recv(dst.sge(0, 8)))
	if n != 1 {
		e.Fatalf("a list of receives with a fault in second place: %d taken", n)
	}
	e.refused(err, "a list of receives with a fault in second place", verbs.ErrProtection)
}
