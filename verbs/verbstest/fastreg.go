package verbstest

import (
	"bytes"
	"fmt"

	"kdapl/verbs"
)

var fastRegRules = []rule{
	{"a fast-registration region has between one range and MaxFastRegPages", verbs.CapFastReg, fastLimits},
	{"Map takes ranges of whole pages but for the last", verbs.CapFastReg, mapRanges},
	{"Map takes no more ranges than there is room for", verbs.CapFastReg, mapTooMany},
	{"Map is not for regions that RegMR made", verbs.CapFastReg, mapOrdinary},
	{"a mapped region is invalid until OpRegMR runs", verbs.CapFastReg, mapIsNotValid},
	{"a request behind OpRegMR may use the key", verbs.CapFastReg, regOrdersRequests},
	{"several ranges are one region", verbs.CapFastReg, fastScatter},
	{"a peer may use the key with the rights of OpRegMR", verbs.CapFastReg, fastRemote},
	{"a peer may not go beyond the ranges", verbs.CapFastReg, fastBounds},
	{"a zero-based fast registration is addressed from 0", verbs.CapFastReg | verbs.CapZeroBased, fastZeroBased},
	{"Map of a valid region is busy", verbs.CapFastReg, mapBusy},
	{"OpRegMR under a key that Map did not give fails", verbs.CapFastReg, regWrongKey},
	{"OpRegMR of a region of another PD fails", verbs.CapFastReg, regForeignPD},
	{"OpRegMR of a valid region fails", verbs.CapFastReg, regTwice},
	{"a key is invalid behind OpLocalInval", verbs.CapFastReg, localInvalEnds},
	{"OpLocalInval of what is not valid fails", verbs.CapFastReg, localInvalTwice},
	{"OpLocalInval of an ordinary region fails", verbs.CapFastReg, localInvalOrdinary},
	{"a region is registered again under a new key", verbs.CapFastReg, regAgain},
	{"an invalidate behind a fence lets an earlier read use the key", verbs.CapFastReg, invalFence},
	{"a peer's send invalidates a fast registration", verbs.CapFastReg | verbs.CapSendInval, remoteInval},
	{"a peer's send cannot invalidate an ordinary region", verbs.CapSendInval, remoteInvalOrdinary},
	{"a peer's send cannot invalidate a region of another PD", verbs.CapFastReg | verbs.CapSendInval, remoteInvalForeign},
	{"a read invalidates its sink when the data is there", verbs.CapFastReg | verbs.CapReadInval, readInval},
	{"a valid fast-registration region can be deregistered", verbs.CapFastReg, fastDereg},
	{"registration and invalidation flush in error", verbs.CapFastReg, fastFlush},
}

// fast is a fast-registration region.
type fast struct {
	mem
	ranges [][]byte
}

// fast allocates a region with room for n ranges of one page each, in a buffer in
// which the ranges lie apart and in reverse order.
func (s *side) fast(n int) *fast {
	s.e.Helper()
	f := &fast{mem: mem{e: s.e, s: s, base: s.e.nextBase.Add(1 << 28)}}
	mr, err := s.pd.AllocFastMR(n)
	s.e.must(err, "AllocFastMR(%d)", n)
	f.mr = mr
	page := s.attr.PageSize
	all := make([]byte, 2*n*page)
	for i := range n {
		off := 2 * (n - 1 - i) * page
		f.ranges = append(f.ranges, all[off:off+page:off+page])
	}
	return f
}

// size is the length of the region.
func (f *fast) size() (n int) {
	for _, r := range f.ranges {
		n += len(r)
	}
	return n
}

// contents is what the ranges hold, in order.
func (f *fast) contents() []byte { return bytes.Join(f.ranges, nil) }

// put fills the ranges.
func (f *fast) put(data []byte) {
	for _, r := range f.ranges {
		data = data[copy(r, data):]
	}
}

// reg maps the region and makes the request that registers it.
func (f *fast) reg(access verbs.Access) verbs.SendWR {
	f.e.Helper()
	key, err := f.mr.Map(f.ranges, f.base)
	f.e.must(err, "Map of %d ranges", len(f.ranges))
	if key == 0 {
		f.e.Error("Map returned key 0")
	}
	if access&verbs.AccessZeroBased != 0 {
		f.base = 0
	}
	return verbs.SendWR{ID: f.e.id(), Op: verbs.OpRegMR, Flags: verbs.SendSignaled, Key: key, Access: access}
}

// under is a segment of the region under a given key.
func (f *fast) under(key uint32, off, n int) verbs.SGE {
	return verbs.SGE{Addr: f.at(off), Length: uint32(n), LKey: key}
}

// inval is an OpLocalInval of the key.
func (e *env) inval(key uint32) verbs.SendWR {
	return verbs.SendWR{ID: e.id(), Op: verbs.OpLocalInval, Flags: verbs.SendSignaled, InvKey: key}
}

// registered makes a region that is registered through a QP.
func (q *qp) registered(n int, access verbs.Access) *fast {
	q.e.Helper()
	f := q.s.fast(n)
	wr := f.reg(access)
	q.post(wr)
	q.scq.ok(1, "OpRegMR")
	if f.mr.LKey() != wr.Key || (access&remoteBoth != localWrite && f.mr.RKey() != wr.Key) {
		q.e.Errorf("after OpRegMR under key %#x the keys are %#x and %#x", wr.Key, f.mr.LKey(), f.mr.RKey())
	}
	return f
}

// managementFault checks that a registration or invalidation is refused at the post or
// fails when it runs, and connects again if that ended the connection.
func (e *env) managementFault(a, b *qp, wr verbs.SendWR, what string) {
	e.Helper()
	atPost := a.fails(wr, what,
		[]error{verbs.ErrInvalid, verbs.ErrProtection, verbs.ErrState, verbs.ErrBusy, verbs.ErrAccess, verbs.ErrBounds},
		verbs.StatusMemoryManagement, verbs.StatusLocalProtection)
	e.again(a, b, atPost)
}

func fastLimits(e *env) {
	for _, n := range []int{0, -1, e.a.attr.MaxFastRegPages + 1} {
		_, err := e.a.pd.AllocFastMR(n)
		e.refused(err, fmt.Sprintf("AllocFastMR(%d)", n), tooMuch...)
	}
	for _, n := range []int{1, e.a.attr.MaxFastRegPages} {
		_, err := e.a.pd.AllocFastMR(n)
		e.must(err, "AllocFastMR(%d)", n)
	}
}

func mapRanges(e *env) {
	n := min(3, e.a.attr.MaxFastRegPages)
	if n < 3 {
		e.Skipf("the device maps %d ranges, the rule needs 3", n)
	}
	f, page := e.a.fast(3), e.a.attr.PageSize
	buf := make([]byte, 4*page)
	for what, ranges := range map[string][][]byte{
		"no range":                       {},
		"an empty range":                 {buf[:0]},
		"an empty first range":           {buf[:0], buf[:page]},
		"an empty last range":            {buf[:page], buf[:0]},
		"a first range of half a page":   {buf[:page/2], buf[page : 2*page]},
		"a first range of a page and 1":  {buf[:page+1], buf[2*page : 3*page]},
		"a middle range of half a page":  {buf[:page], buf[page : page+page/2], buf[2*page : 3*page]},
		"a middle range of a page and 1": {buf[:page], buf[page : 2*page+1], buf[3*page:]},
	} {
		_, err := f.mr.Map(ranges, f.base)
		e.refused(err, "Map of "+what, verbs.ErrInvalid)
	}
	for what, iova := range map[string]uint64{"the last page": ^uint64(0), "a wrap": ^uint64(0) - uint64(page)} {
		_, err := f.mr.Map([][]byte{buf[:2*page]}, iova)
		e.refused(err, "Map at "+what+" of the address space", verbs.ErrInvalid)
	}
	for what, ranges := range map[string][][]byte{
		"one byte":                     {buf[:1]},
		"a page":                       {buf[:page]},
		"a range of two pages":         {buf[:2*page]},
		"a page and a byte":            {buf[:page], buf[page : page+1]},
		"two pages and most of a page": {buf[:page], buf[2*page : 3*page], buf[page : 2*page-1]},
	} {
		_, err := f.mr.Map(ranges, f.base)
		e.must(err, "Map of %s", what)
	}
}

func mapTooMany(e *env) {
	f, page := e.a.fast(1), e.a.attr.PageSize
	buf := make([]byte, 2*page)
	_, err := f.mr.Map([][]byte{buf[:page], buf[page:]}, f.base)
	e.refused(err, "Map of two ranges in a region for one", verbs.ErrInvalid)
	_, err = f.mr.Map([][]byte{buf[:page]}, f.base)
	e.must(err, "Map of one range in a region for one")
}

func mapOrdinary(e *env) {
	m := e.a.mem(64, localWrite)
	_, err := m.mr.Map([][]byte{make([]byte, 64)}, 0)
	e.refused(err, "Map of an ordinary region", verbs.ErrNotSupported)
}

func mapIsNotValid(e *env) {
	f := e.a.fast(1)
	wr := f.reg(remoteBoth)
	e.localFaults(verbs.ErrProtection, map[string]func(*qp) verbs.SendWR{
		"a send under a key that is mapped only": func(*qp) verbs.SendWR { return e.send(f.under(wr.Key, 0, 8)) },
	})
	g := e.b.fast(1)
	wr = g.reg(remoteBoth)
	a, b := e.couple()
	op := e.send(e.a.source(8).all())
	op.Op, op.RemoteKey, op.RemoteAddr = verbs.OpRDMAWrite, wr.Key, g.at(0)
	e.denied(a, b, op, "a key that is mapped only")
}

// regOrdersRequests: the key that Map returns may be used by whatever is posted behind
// OpRegMR, in the same list or in the next post, on the same QP.
func regOrdersRequests(e *env) {
	for _, lists := range []bool{true, false} {
		a, b := e.couple()
		f := e.a.fast(1)
		want := pattern(64, 7)
		f.put(want)
		dst := e.b.mem(64, localWrite)
		b.recv(e.recv(dst.all()))
		reg := f.reg(localOnly)
		use := e.send(f.under(reg.Key, 0, 64))
		if lists {
			a.post(reg, use)
		} else {
			a.post(reg)
			a.post(use)
		}
		b.rcq.ok(1, "send from a region that was just registered")
		a.scq.ok(2, "OpRegMR and send")
		dst.same(0, want, "message from a region that was just registered")
	}
}

func fastScatter(e *env) {
	a, b := e.couple()
	n := min(4, e.a.attr.MaxFastRegPages)
	page := e.a.attr.PageSize
	f := a.s.fast(n)
	f.ranges[n-1] = f.ranges[n-1][:page-7] // the last range need not be whole
	size := f.size()
	want := pattern(size, 11)
	f.put(want)
	reg := f.reg(localWrite)
	a.post(reg)
	a.scq.ok(1, "OpRegMR")
	dst := e.b.mem(size, localWrite)
	b.recv(e.recv(dst.all()))
	a.post(e.send(f.under(reg.Key, 0, size)))
	b.rcq.ok(1, "receive")
	a.scq.ok(1, "send")
	dst.same(0, want, "message gathered from ranges")
	// The other way: a message from the peer is scattered, from an odd offset.
	src := e.b.source(size - 13)
	f.put(make([]byte, size))
	a.recv(e.recv(f.under(reg.Key, 13, size-13)))
	b.post(e.send(src.all()))
	a.rcq.ok(1, "receive")
	b.scq.ok(1, "send")
	if got := f.contents(); !bytes.Equal(got[13:], src.buf) || !bytes.Equal(got[:13], make([]byte, 13)) {
		e.Error("a message was not scattered as it should")
	}
	a.local(e.send(f.under(reg.Key, size-1, 2)), "a segment behind the last range", verbs.ErrBounds)
}

func fastRemote(e *env) {
	a, b := e.couple()
	f := b.registered(min(2, e.b.attr.MaxFastRegPages), remoteBoth)
	src := e.a.source(f.size())
	a.post(e.write(&f.mem, 0, src.all()))
	a.scq.ok(1, "write to a fast registration")
	sink := e.a.sink(f.size())
	a.post(e.read(&f.mem, 0, sink.all()))
	a.scq.ok(1, "read of a fast registration")
	sink.same(0, src.buf, "fast registration")
	e.ping(a, b)
	if !bytes.Equal(f.contents(), src.buf) {
		e.Error("the ranges do not hold what the peer wrote")
	}
	// Rights are those of the request.
	onlyRead := b.registered(1, remoteRead)
	e.denied(a, b, e.write(&onlyRead.mem, 0, src.sge(0, 8)), "a fast registration for reading")
	onlyWrite := b.registered(1, remoteWrite)
	e.denied(a, b, e.read(&onlyWrite.mem, 0, sink.sge(0, 8)), "a fast registration for writing")
}

func fastBounds(e *env) {
	a, b := e.couple()
	src := e.a.source(16)
	for _, off := range []int{-1, -8} {
		f := b.registered(1, remoteBoth)
		e.denied(a, b, e.write(&f.mem, off, src.sge(0, 8)), "before a fast registration")
	}
	f := b.registered(1, remoteBoth)
	e.denied(a, b, e.write(&f.mem, f.size()-7, src.sge(0, 8)), "behind a fast registration")
}

func fastZeroBased(e *env) {
	a, b := e.couple()
	f := b.registered(1, remoteBoth|verbs.AccessZeroBased)
	src := e.a.source(64)
	a.post(e.write(&f.mem, 0, src.all()))
	a.scq.ok(1, "write to offset 0 of a fast registration")
	e.ping(a, b)
	if !bytes.Equal(f.contents()[:64], src.buf) {
		e.Error("the range does not hold what the peer wrote")
	}
}

func mapBusy(e *env) {
	a, _ := e.couple()
	f := e.a.fast(1)
	a.post(f.reg(localWrite))
	_, err := f.mr.Map(f.ranges, f.base)
	e.refused(err, "Map behind OpRegMR", verbs.ErrBusy)
	a.scq.ok(1, "OpRegMR")
	_, err = f.mr.Map(f.ranges, f.base)
	e.refused(err, "Map of a valid region", verbs.ErrBusy)
	a.post(e.inval(f.mr.LKey()))
	a.scq.ok(1, "OpLocalInval")
	_, err = f.mr.Map(f.ranges, f.base)
	e.must(err, "Map of a region that was invalidated")
}

func regWrongKey(e *env) {
	a, b := e.couple()
	f := e.a.fast(1)
	wr := f.reg(localWrite)
	wr.Key ^= 1
	e.managementFault(a, b, wr, "OpRegMR under a key with a bit changed")
	wr = e.a.fast(1).reg(localWrite)
	wr.Key = e.a.mem(64, localWrite).mr.LKey()
	e.managementFault(a, b, wr, "OpRegMR under the key of an ordinary region")
	wr.Key = 0
	wr.ID = e.id()
	e.managementFault(a, b, wr, "OpRegMR under key 0")
	// A second Map replaces the first.
	g := e.a.fast(1)
	first, second := g.reg(localWrite), g.reg(localWrite)
	if first.Key == second.Key {
		e.Error("two calls of Map return one key")
	}
	e.managementFault(a, b, first, "OpRegMR under the key of an earlier Map")
}

func regForeignPD(e *env) {
	a, b := e.couple()
	pd, err := e.a.ctx.AllocPD()
	e.must(err, "AllocPD")
	mr, err := pd.AllocFastMR(1)
	e.must(err, "AllocFastMR")
	f := e.a.fast(1)
	f.mr = mr
	e.managementFault(a, b, f.reg(localWrite), "OpRegMR of a region of another PD")
}

func regTwice(e *env) {
	a, b := e.couple()
	f := e.a.fast(1)
	wr := f.reg(localWrite)
	a.post(wr)
	a.scq.ok(1, "OpRegMR")
	wr.ID = e.id()
	e.managementFault(a, b, wr, "a second OpRegMR")
}

func localInvalEnds(e *env) {
	a, b := e.couple()
	f := a.registered(1, remoteBoth)
	key := f.mr.LKey()
	a.post(e.inval(key))
	a.scq.ok(1, "OpLocalInval")
	a.local(e.send(f.under(key, 0, 8)), "a send under a key that was invalidated", verbs.ErrProtection)
	e.again(a, b, a.s.attr.Can(verbs.CapPostChecks))

	g := b.registered(1, remoteBoth)
	wr := e.write(&g.mem, 0, e.a.source(8).all())
	b.post(e.inval(g.mr.RKey()))
	b.scq.ok(1, "OpLocalInval")
	e.denied(a, b, wr, "a key that its owner invalidated")
	if !bytes.Equal(g.contents(), make([]byte, g.size())) {
		e.Error("an invalid region was written")
	}
}

func localInvalTwice(e *env) {
	a, b := e.couple()
	f := a.registered(1, localWrite)
	key := f.mr.LKey()
	a.post(e.inval(key))
	a.scq.ok(1, "OpLocalInval")
	e.managementFault(a, b, e.inval(key), "a second OpLocalInval")
	e.managementFault(a, b, e.inval(0), "OpLocalInval of key 0")
	e.managementFault(a, b, e.inval(e.a.fast(1).reg(localWrite).Key), "OpLocalInval of a key that is mapped only")
}

func localInvalOrdinary(e *env) {
	a, b := e.couple()
	m := e.a.source(8)
	e.managementFault(a, b, e.inval(m.mr.LKey()), "OpLocalInval of an ordinary region")
	dst := e.b.mem(8, localWrite)
	b.recv(e.recv(dst.all()))
	a.post(e.send(m.all()))
	b.rcq.ok(1, "send from the region afterwards")
	a.scq.ok(1, "send from the region afterwards")
	dst.same(0, m.buf, "message from the region afterwards")
}

func regAgain(e *env) {
	a, b := e.couple()
	f := b.s.fast(1)
	src := e.a.source(8)
	seen := map[uint32]bool{}
	var old uint32
	for i := range e.rounds(100) {
		reg := f.reg(remoteBoth)
		if seen[reg.Key] {
			e.Fatalf("registration %d has an earlier key %#x", i, reg.Key)
		}
		seen[reg.Key] = true
		b.post(reg)
		b.scq.ok(1, "OpRegMR")
		a.post(e.write(&f.mem, 8*i%(f.size()-8), src.all()))
		a.scq.ok(1, "write to a region registered again")
		e.ping(a, b)
		old = reg.Key
		b.post(e.inval(reg.Key))
		b.scq.ok(1, "OpLocalInval")
	}
	b.post(f.reg(remoteBoth))
	b.scq.ok(1, "OpRegMR")
	wr := e.write(&f.mem, 0, src.all())
	wr.RemoteKey = old
	e.denied(a, b, wr, "the key of an earlier registration")
}

// invalFence posts a read, the invalidation of its sink and a registration of something else
// in one list: with the fences the read must find its sink, and the send must find it gone.
func invalFence(e *env) {
	access := localWrite
	if e.a.attr.Can(verbs.CapReadSinkRemoteWrite) {
		access = remoteWrite
	}
	for range e.rounds(50) {
		a, b := e.couple()
		f := a.registered(1, access)
		target := e.b.mem(f.size(), remoteRead)
		target.fill(e.id())
		b.recv(e.recv())
		a.post(
			e.read(target, 0, f.under(f.mr.LKey(), 0, f.size())),
			flagged(e.inval(f.mr.LKey()), verbs.SendFence),
			flagged(e.send(), verbs.SendInvalFence),
		)
		b.rcq.ok(1, "message behind the fences")
		a.scq.ok(3, "read, invalidate, send")
		if !bytes.Equal(f.contents(), target.buf) {
			e.Fatal("a read whose sink is invalidated behind a fence brought something else")
		}
		if _, err := f.mr.Map(f.ranges, f.base); err != nil {
			e.Fatalf("Map behind an invalidate: %v", err)
		}
		a.destroy()
		b.destroy()
	}
}

// sendInval is a send that invalidates a key of the peer.
func (e *env) sendInval(key uint32, sges ...verbs.SGE) verbs.SendWR {
	wr := e.send(sges...)
	wr.Op, wr.InvKey = verbs.OpSendInval, key
	return wr
}

// invalidated checks a receive completion that reports an invalidated key.
func (e *env) invalidated(c verbs.Completion, key uint32) {
	e.Helper()
	if c.Flags&verbs.CompletionInval == 0 || c.InvKey != key || c.Op != verbs.OpRecv {
		e.Errorf("receive of a send that invalidates %#x: %v, key %#x", key, c, c.InvKey)
	}
}

func remoteInval(e *env) {
	a, b := e.couple()
	f := b.registered(1, remoteBoth)
	key := f.mr.RKey()
	src, dst := e.a.source(32), e.b.mem(32, localWrite)
	wr := e.write(&f.mem, 0, src.sge(0, 8))
	b.recv(e.recv(dst.all()))
	a.post(e.sendInval(key, src.all()))
	e.invalidated(b.rcq.ok(1, "receive of a send with invalidate")[0], key)
	a.scq.ok(1, "send with invalidate")
	dst.same(0, src.buf, "message of a send with invalidate")
	e.denied(a, b, wr, "a key that the peer's send invalidated")
	b.post(f.reg(remoteBoth))
	b.scq.ok(1, "OpRegMR after the peer's invalidate")
	// An ordinary send reports no key.
	b.recv(e.recv())
	a.post(e.send())
	if c := b.rcq.ok(1, "receive of an ordinary send")[0]; c.Flags&verbs.CompletionInval != 0 {
		e.Errorf("receive of an ordinary send: %v", c)
	}
	a.scq.ok(1, "ordinary send")
}

// notInvalidated checks that a peer's send cannot invalidate a key: it ends the
// connection, and the receive does not succeed.
func (e *env) notInvalidated(a, b *qp, key uint32, what string) {
	e.Helper()
	b.recv(e.recv())
	a.post(e.sendInval(key))
	c := a.scq.one(what)
	if a.s.acked() {
		a.failed(c, what, verbs.StatusRemoteAccess, verbs.StatusRemoteOp, verbs.StatusRemoteInvalidRequest)
	}
	if c := b.rcq.one(what); c.Status == verbs.StatusSuccess {
		e.Errorf("%s: receive %v", what, c)
	}
	e.broken(what, a, b)
	for _, q := range []*qp{a, b} {
		q.scq.untilMark(q, false, what)
		q.rcq.untilMark(q, true, what)
	}
	e.renew(a, b)
}

func remoteInvalOrdinary(e *env) {
	a, b := e.couple()
	m := e.b.mem(64, remoteBoth)
	e.notInvalidated(a, b, m.mr.RKey(), "invalidate of an ordinary region")
	src := e.a.source(8)
	a.post(e.write(m, 0, src.all()))
	a.scq.ok(1, "write to the region afterwards")
}

func remoteInvalForeign(e *env) {
	a, b := e.couple()
	pd, err := e.b.ctx.AllocPD()
	e.must(err, "AllocPD")
	a2, b2 := e.link(conf{}, conf{pd: pd})
	f := e.b.fast(1)
	if f.mr, err = pd.AllocFastMR(1); err != nil {
		e.Fatalf("AllocFastMR: %v", err)
	}
	b2.post(f.reg(remoteBoth))
	b2.scq.ok(1, "OpRegMR in another PD")
	e.notInvalidated(a, b, f.mr.RKey(), "invalidate of a region of another PD")
	a2.post(e.write(&f.mem, 0, e.a.source(8).all()))
	a2.scq.ok(1, "write to the region afterwards")
}

func readInval(e *env) {
	a, b := e.couple()
	access := localWrite
	if e.a.attr.Can(verbs.CapReadSinkRemoteWrite) {
		access = remoteWrite
	}
	f := a.registered(1, access)
	key := f.mr.LKey()
	target := e.b.mem(64, remoteRead)
	target.fill(3)
	wr := e.read(target, 0, f.under(key, 0, 64))
	wr.Op, wr.InvKey = verbs.OpRDMAReadInval, key
	a.post(wr)
	a.scq.ok(1, "read with invalidate")
	if !bytes.Equal(f.contents()[:64], target.buf) {
		e.Error("a read with invalidate brought something else")
	}
	a.local(e.send(f.under(key, 0, 8)), "a send under a key that a read invalidated", verbs.ErrProtection)
	e.again(a, b, e.a.attr.Can(verbs.CapPostChecks))
	a.post(f.reg(access))
	a.scq.ok(1, "OpRegMR after a read with invalidate")
}

func fastDereg(e *env) {
	a, b := e.couple()
	f := b.registered(1, remoteBoth)
	wr := e.write(&f.mem, 0, e.a.source(8).all())
	f.free()
	e.denied(a, b, wr, "a fast registration that was deregistered")
	if !bytes.Equal(f.contents(), make([]byte, f.size())) {
		e.Error("a deregistered region was written")
	}
}

func fastFlush(e *env) {
	a, b := e.couple()
	f := a.registered(1, localWrite)
	g := e.a.fast(1)
	reg := g.reg(localWrite)
	e.must(a.v.Disconnect(false), "Disconnect")
	a.conn.next("Disconnect", verbs.ConnDisconnected)
	b.conn.next("the peer's Disconnect", verbs.ConnDisconnected, verbs.ConnBroken)
	a.state(verbs.QPError)
	a.scq.untilMark(a, false, "Disconnect")
	a.post(reg, e.inval(f.mr.LKey()))
	for _, c := range a.scq.take(2, "registration and invalidation in error") {
		a.failed(c, "in error", verbs.StatusFlushed)
	}
	// What was flushed did not happen.
	if _, err := f.mr.Map(f.ranges, f.base); err == nil {
		e.Error("a flushed invalidate took effect")
	}
	if _, err := g.mr.Map(g.ranges, g.base); err != nil {
		e.Errorf("a flushed registration took effect: %v", err)
	}
}
