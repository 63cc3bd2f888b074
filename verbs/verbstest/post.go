package verbstest

import (
	"fmt"

	"kdapl/verbs"
)

var postRules = []rule{
	{"an empty list is taken", 0, postNothing},
	{"a list leaves with one call, in order", 0, postList},
	{"a list is taken up to its first bad request", 0, postPartial},
	{"a list of receives is taken up to its first bad request", 0, recvPartial},
	{"the list stays the caller's", 0, postListIsCallers},
	{"a full receive queue refuses and takes nothing", 0, recvFull},
	{"a full send queue refuses and takes nothing", 0, sendFull},
	{"a post that found the queue full works after a completion", 0, sendFullRetry},
	{"a request that is not signalled completes silently", 0, postUnsignaled},
	{"requests that are not signalled give their room back", 0, unsignaledReclaim},
	{"an unknown operation is refused", 0, postUnknown},
	{"more segments than the device has are refused", 0, postManySGE},
	{"more receive segments than the device has are refused", 0, recvManySGE},
	{"more read segments than the device has are refused", 0, readManySGE},
	{"a message longer than MaxMessage is refused", 0, postTooLong},
	{"segments whose sum wraps are refused", 0, postSumWraps},
	{"inline copies the payload before the post returns", verbs.CapInline, inlineCopies},
	{"inline takes up to the QP's room", verbs.CapInline, inlineLimit},
	{"inline gathers segments", verbs.CapInline, inlineGathers},
	{"inline writes", verbs.CapInline, inlineWrite},
	{"a queue of depth 0 takes nothing", 0, depthZero},
	{"a completion names its operation, QP and length", 0, completionFields},
	{"IDs come back unchanged", 0, idsUnchanged},
}

func postNothing(e *env) {
	a, _ := e.couple()
	for _, wrs := range [][]verbs.SendWR{nil, {}} {
		if n, err := a.v.PostSend(wrs); n != 0 || err != nil {
			e.Errorf("PostSend of nothing: %d, %v", n, err)
		}
	}
	for _, wrs := range [][]verbs.RecvWR{nil, {}} {
		if n, err := a.v.PostRecv(wrs); n != 0 || err != nil {
			e.Errorf("PostRecv of nothing: %d, %v", n, err)
		}
	}
}

func postList(e *env) {
	a, b := e.couple()
	n := min(e.a.depth(), e.b.depth())
	src, dst := e.a.source(8*n), e.b.mem(8*n, localWrite)
	var sends []verbs.SendWR
	var recvs []verbs.RecvWR
	for i := range n {
		sends = append(sends, e.send(src.sge(8*i, 8)))
		recvs = append(recvs, e.recv(dst.sge(8*i, 8)))
	}
	b.recv(recvs...)
	a.post(sends...)
	for i, c := range b.rcq.ok(n, "receives of a list") {
		if c.ID != recvs[i].ID {
			e.Fatalf("receive %d completed as %v", i, c)
		}
	}
	a.scq.ok(n, "sends of a list")
	dst.same(0, src.buf, "messages of a list")
}

func postPartial(e *env) {
	a, b := e.couple()
	b.recv(e.recv(), e.recv(), e.recv())
	bad := e.send()
	bad.Op = verbs.OpRecv
	for _, at := range []int{0, 1, 2} {
		wrs := []verbs.SendWR{e.send(), e.send(), e.send()}
		wrs[at] = bad
		wrs[at].ID = e.id()
		n, err := a.tryPost(wrs...)
		if n != at {
			e.Fatalf("a list with a bad request at %d: %d taken", at, n)
		}
		e.refused(err, "a list with a bad request", verbs.ErrInvalid, verbs.ErrNotSupported)
		a.scq.ok(n, "requests before a bad one")
	}
	b.rcq.ok(3, "requests before bad ones")
	e.ping(a, b)
}

func recvPartial(e *env) {
	a, b := e.couple()
	bad := e.recv()
	bad.NumSGE = 200
	n, err := b.tryRecv(e.recv(), e.recv(), bad, e.recv())
	if n != 2 {
		e.Fatalf("a list of receives with a bad one at 2: %d taken", n)
	}
	e.refused(err, "a list of receives with a bad one", verbs.ErrInvalid)
	a.post(e.send(), e.send())
	b.rcq.ok(2, "receives before a bad one")
	e.ping(a, b)
}

func postListIsCallers(e *env) {
	a, b := e.couple()
	src, dst := e.a.source(32), e.b.mem(32, localWrite)
	recvs := []verbs.RecvWR{e.recv(dst.sge(0, 16)), e.recv(dst.sge(16, 16))}
	b.recv(recvs...)
	clear(recvs)
	sends := []verbs.SendWR{e.send(src.sge(0, 16)), e.send(src.sge(16, 16))}
	a.post(sends...)
	clear(sends)
	b.rcq.ok(2, "receives whose list was cleared")
	a.scq.ok(2, "sends whose list was cleared")
	dst.same(0, src.buf, "messages")
}

// full posts with try until the queue is full and checks that it takes at least depth, and
// not without end. It returns the number taken.
func (e *env) full(what string, depth, most int, try func() error) int {
	e.Helper()
	for n := range most {
		if err := try(); err != nil {
			e.refused(err, fmt.Sprintf("%s number %d", what, n+1), verbs.ErrQueueFull)
			if n < depth {
				e.Errorf("%s: full after %d, the depth is %d", what, n, depth)
			}
			return n
		}
	}
	e.Fatalf("%s: %d taken by a queue of depth %d", what, most, depth)
	return 0
}

func recvFull(e *env) {
	q := e.a.ready(conf{recv: 4, rcq: e.a.cq(min(100, e.a.attr.MaxCQE))})
	n := e.full("receive", 4, 4+e.a.attr.MaxQPWR, func() error { return accept2(q.tryRecv(e.recv())) })
	// The list form takes nothing either.
	if m, err := q.tryRecv(e.recv(), e.recv()); m != 0 {
		e.Errorf("a full queue took %d: %v", m, err)
	}
	q.rcq.none("a full receive queue")
	q.modify(verbs.QPError)
	if m := len(q.rcq.untilMark(q, true, "Modify to Error")); m != n {
		e.Errorf("%d receives flushed, want %d", m, n)
	}
}

func sendFull(e *env) {
	if !e.a.stalls() {
		e.Skip("nothing keeps a send of this device outstanding")
	}
	a, b := e.link(conf{send: 4, scq: e.a.cq(min(100, e.a.attr.MaxCQE))}, conf{})
	n := e.full("send", 4, 4+e.a.attr.MaxQPWR, func() error { return accept2(a.tryPost(e.send())) })
	if m, err := a.tryPost(e.send(), e.send()); m != 0 {
		e.Errorf("a full queue took %d: %v", m, err)
	}
	a.scq.none("a full send queue")
	for range n {
		b.recv(e.recv())
		b.rcq.ok(1, "receive")
	}
	a.scq.ok(n, "sends of a full queue")
	b.rcq.none("requests that were refused")
}

// sendFullRetry posts lists longer than the queue is deep, going on where a post stopped.
func sendFullRetry(e *env) {
	a, b := e.link(conf{send: 3}, conf{})
	src, dst := e.a.source(64), e.b.mem(64, localWrite)
	var wrs []verbs.SendWR
	for range e.rounds(200) {
		wrs = append(wrs, e.send(src.all()))
	}
	posted := 0 // receives without a message yet
	for left := wrs; len(left) > 0; {
		list := left[:min(5, len(left))]
		for !e.a.stalls() && posted < len(list) {
			b.recv(e.recv(dst.all()))
			posted++
		}
		n, err := a.tryPost(list...)
		if err != nil {
			e.refused(err, "PostSend on a full queue", verbs.ErrQueueFull)
			if n == 0 {
				e.Fatal("an empty send queue is full")
			}
		}
		for ; posted < n; posted++ {
			b.recv(e.recv(dst.all()))
		}
		b.rcq.ok(n, "receives of what was taken")
		a.scq.ok(n, "sends that were taken")
		posted -= n
		left = left[n:]
	}
	b.rcq.none("requests that were refused")
}

func postUnsignaled(e *env) {
	a, b := e.couple()
	b.recv(e.recv(), e.recv(), e.recv())
	last := e.send()
	a.post(unsignaled(e.send()), unsignaled(e.send()), last)
	b.rcq.ok(3, "receives")
	if c := a.scq.ok(1, "the signalled request")[0]; c.ID != last.ID {
		e.Errorf("the completion is %v, want that of the last request", c)
	}
	a.scq.none("requests that are not signalled")
}

// unsignaledReclaim never signals: room must come back all the same.
func unsignaledReclaim(e *env) {
	a, b := e.link(conf{send: 4}, conf{})
	dst := e.b.mem(8, remoteWrite)
	src := e.a.source(8)
	for i := range e.rounds(200) {
		send := i%2 == 0
		wr := unsignaled(e.write(dst, 0, src.all()))
		if send {
			b.recv(e.recv())
			wr = unsignaled(e.send())
		}
		var err error
		e.eventually(func() bool {
			a.scq.poll()
			b.rcq.poll()
			_, err = a.tryPost(wr)
			return err == nil
		}, "request %d without a signal finds room", i)
		if send {
			b.rcq.ok(1, "receive")
		}
	}
	a.scq.none("requests that are not signalled")
	e.eventually(func() bool {
		a.scq.poll()
		_, err := a.tryPost(e.write(dst, 0, src.all()))
		return err == nil
	}, "a signalled request finds room")
	a.scq.ok(1, "a signalled request behind many that are not")
}

func postUnknown(e *env) {
	a, b := e.couple()
	for _, op := range []verbs.Opcode{verbs.OpRecv, verbs.OpRecvRDMAImm, verbs.OpDrained, verbs.OpDrained + 1, 200, 255} {
		wr := e.send()
		wr.Op = op
		a.rejected(wr, "PostSend of "+op.String(), verbs.ErrInvalid, verbs.ErrNotSupported)
	}
	e.ping(a, b)
}

func postManySGE(e *env) {
	for _, sges := range []int{1, 2, e.a.attr.MaxSendSGE} {
		if sges > e.a.attr.MaxSendSGE {
			continue
		}
		a, b := e.link(conf{sendSGE: sges}, conf{})
		src, dst := e.a.source(64), e.b.mem(64, localWrite)
		wr := e.send()
		for i := range sges {
			wr.SGE[i] = src.sge(i, 1)
		}
		wr.NumSGE = uint8(sges)
		b.recv(e.recv(dst.all()))
		a.post(wr)
		b.rcq.ok(1, "as many segments as the QP has")
		a.scq.ok(1, "as many segments as the QP has")
		dst.same(0, src.buf[:sges], "gathered bytes")
		for _, n := range []int{e.a.attr.MaxSendSGE + 1, verbs.MaxSGE + 1, 255} {
			wr := e.send(src.all())
			wr.NumSGE = uint8(n)
			a.rejected(wr, fmt.Sprintf("a send with %d segments", n), verbs.ErrInvalid, verbs.ErrLength)
		}
		e.ping(a, b)
	}
}

func recvManySGE(e *env) {
	_, b := e.couple()
	for _, n := range []int{e.b.attr.MaxRecvSGE + 1, verbs.MaxSGE + 1, 255} {
		wr := e.recv()
		wr.NumSGE = uint8(n)
		m, err := b.tryRecv(wr)
		if m != 0 {
			e.Errorf("a receive with %d segments was taken", n)
		}
		e.refused(err, fmt.Sprintf("a receive with %d segments", n), verbs.ErrInvalid, verbs.ErrLength)
	}
}

func readManySGE(e *env) {
	most := e.a.attr.MaxReadSGE
	a, b := e.link(conf{sendSGE: e.a.attr.MaxSendSGE}, conf{})
	target, sink := e.b.mem(64, remoteRead), e.a.sink(64)
	target.fill(1)
	wr := e.read(target, 0)
	for i := range min(most, e.a.attr.MaxSendSGE) {
		wr.SGE[i] = sink.sge(i, 1)
		wr.NumSGE++
	}
	a.post(wr)
	a.scq.ok(1, "a read with as many segments as the device has")
	sink.same(0, target.buf[:wr.NumSGE], "scattered bytes")
	if most < verbs.MaxSGE {
		wr := e.read(target, 0, sink.sge(0, 1))
		wr.NumSGE = uint8(most + 1)
		a.rejected(wr, fmt.Sprintf("a read with %d segments", most+1), verbs.ErrInvalid, verbs.ErrLength)
	}
	e.ping(a, b)
}

// tooLong are the errors for a message beyond a limit: it is too long, and it lies
// outside of the small region that the rule names.
var tooLong = []error{verbs.ErrLength, verbs.ErrInvalid, verbs.ErrBounds}

func postTooLong(e *env) {
	if e.a.attr.MaxMessage == ^uint32(0) {
		e.Skip("MaxMessage is the greatest number")
	}
	a, b := e.couple()
	m := e.a.mem(64, remoteBoth)
	target := e.b.mem(64, remoteBoth)
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMARead} {
		wr := e.rdma(op, target, 0, m.all())
		wr.SGE[0].Length = e.a.attr.MaxMessage + 1
		atPost := a.fails(wr, fmt.Sprintf("%v of more than MaxMessage", op), tooLong, verbs.StatusLocalLength, verbs.StatusLocalProtection)
		e.again(a, b, atPost)
	}
}

func postSumWraps(e *env) {
	if min(e.a.attr.MaxSendSGE, 4) < 2 {
		e.Skip("the device has no second segment")
	}
	a, b := e.couple()
	m := e.a.mem(64, remoteBoth)
	target := e.b.mem(64, remoteBoth)
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpRDMAWrite} {
		wr := e.rdma(op, target, 0, m.all(), m.all())
		wr.SGE[0].Length, wr.SGE[1].Length = 1<<31, 1<<31
		atPost := a.fails(wr, fmt.Sprintf("%v of two segments with a sum of 2^32", op), tooLong, verbs.StatusLocalLength, verbs.StatusLocalProtection)
		e.again(a, b, atPost)
	}
	target.zero(0, 64, "the target of refused writes")
}

// inlineCopies changes the source right behind the post, before the receive is there.
func inlineCopies(e *env) {
	a, b := e.couple()
	n := min(64, e.a.attr.MaxInline)
	src, dst := e.a.source(n), e.b.mem(n, localWrite)
	want := append([]byte(nil), src.buf...)
	if !e.a.stalls() {
		b.recv(e.recv(dst.all()))
	}
	a.post(flagged(e.send(src.all()), verbs.SendInline))
	clear(src.buf)
	if e.a.stalls() {
		b.recv(e.recv(dst.all()))
	}
	b.rcq.ok(1, "receive")
	a.scq.ok(1, "inline send")
	dst.same(0, want, "inline message")
}

func inlineLimit(e *env) {
	for _, room := range []int{1, e.a.attr.MaxInline} {
		a, b := e.link(conf{inline: room}, conf{})
		src, dst := e.a.source(room), e.b.mem(room, localWrite)
		for _, n := range []int{0, 1, room} {
			b.recv(e.recv(dst.all()))
			a.post(flagged(e.send(src.sge(0, n)), verbs.SendInline))
			if c := b.rcq.ok(1, "receive")[0]; int(c.Length) != n {
				e.Errorf("an inline message of %d bytes: %v", n, c)
			}
			a.scq.ok(1, "inline send")
		}
		big := e.a.source(e.a.attr.MaxInline + 1)
		a.rejected(flagged(e.send(big.all()), verbs.SendInline), "an inline message beyond MaxInline", verbs.ErrLength, verbs.ErrInvalid)
		e.ping(a, b)
	}
}

func inlineGathers(e *env) {
	a, b := e.couple()
	n := min(64, e.a.attr.MaxInline)
	src, dst := e.a.source(n), e.b.mem(n, localWrite)
	b.recv(e.recv(dst.all()))
	half := n / 2
	wr := e.send(src.sge(0, half), src.sge(half, n-half))
	if e.a.attr.MaxSendSGE < 2 {
		wr = e.send(src.all())
	}
	a.post(flagged(wr, verbs.SendInline))
	b.rcq.ok(1, "receive")
	a.scq.ok(1, "inline send")
	dst.same(0, src.buf, "inline message of two segments")
}

func inlineWrite(e *env) {
	a, b := e.couple()
	n := min(64, e.a.attr.MaxInline)
	src, dst := e.a.source(n), e.b.mem(n, remoteWrite)
	want := append([]byte(nil), src.buf...)
	b.recv(e.recv())
	a.post(flagged(e.write(dst, 0, src.all()), verbs.SendInline), e.send())
	clear(src.buf)
	a.scq.ok(2, "inline write")
	b.rcq.ok(1, "send behind it")
	dst.same(0, want, "inline write")
}

func depthZero(e *env) {
	a, b := e.link(conf{send: -1}, conf{recv: -1})
	n, err := a.tryPost(e.send())
	e.refused(err, "PostSend on a queue of depth 0", verbs.ErrQueueFull, verbs.ErrInvalid, verbs.ErrState)
	m, err := b.tryRecv(e.recv())
	e.refused(err, "PostRecv on a queue of depth 0", verbs.ErrQueueFull, verbs.ErrInvalid, verbs.ErrState)
	if n != 0 || m != 0 {
		e.Errorf("queues of depth 0 took %d and %d", n, m)
	}
	a.recv(e.recv())
	b.post(e.send())
	a.rcq.ok(1, "the other way")
	b.scq.ok(1, "the other way")
}

func completionFields(e *env) {
	a, b := e.couple()
	src, dst, sink := e.a.source(40), e.b.mem(64, remoteBoth), e.a.sink(40)
	b.recv(e.recv(dst.all()))
	a.post(e.send(src.all()), e.write(dst, 0, src.sge(0, 39)), e.read(dst, 0, sink.sge(0, 38)))
	for i, c := range a.scq.ok(3, "send, write, read") {
		wantOp := []verbs.Opcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMARead}[i]
		if c.Op != wantOp || int(c.Length) != 40-i || c.UserData != a.user || c.QPN != a.v.Num() || c.Flags != 0 {
			e.Errorf("completion of %v of %d bytes: %v", wantOp, 40-i, c)
		}
	}
	c := b.rcq.ok(1, "receive")[0]
	if c.Op != verbs.OpRecv || c.Length != 40 || c.UserData != b.user || c.QPN != b.v.Num() || c.Flags != verbs.CompletionRecvQueue {
		e.Errorf("completion of a receive of 40 bytes: %v", c)
	}
}

func idsUnchanged(e *env) {
	a, b := e.couple()
	for _, id := range []uint64{1 << 63, ^uint64(0), 1<<32 - 1, 1 << 32} {
		r, s := e.recv(), e.send()
		r.ID, s.ID = id, id-1
		b.recv(r)
		a.post(s)
		if c := b.rcq.ok(1, "receive")[0]; c.ID != id {
			e.Errorf("receive %#x completed as %#x", id, c.ID)
		}
		if c := a.scq.ok(1, "send")[0]; c.ID != id-1 {
			e.Errorf("send %#x completed as %#x", id-1, c.ID)
		}
	}
}
