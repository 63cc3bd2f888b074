package verbstest

import (
	"encoding/binary"

	"kdapl/verbs"
)

var orderRules = []rule{
	{"a write is visible when the receive of a later send completes", 0, writeBeforeSend},
	{"a write is visible when the receive of a later write with immediate completes", verbs.CapWriteImm, writeBeforeWriteImm},
	{"a write with immediate is visible when its receive completes", verbs.CapWriteImm, writeImmVisible},
	{"messages arrive in the order of posting", 0, messagesInOrder},
	{"completions come in the order of posting, whatever takes longer", 0, completionsInOrder},
	{"a fenced send waits for earlier reads", 0, fenceWaits},
	{"a fenced send waits for earlier atomics", verbs.CapAtomics, fenceWaitsAtomic},
	{"requests before a fence and behind it keep their order", 0, fenceKeepsOrder},
	{"a read sees what it reads when it completes", 0, readVisible},
}

// writeBeforeSend writes and sends in one list or in two posts, with payloads that a device
// treats in different ways.
func writeBeforeSend(e *env) {
	a, b := e.couple()
	for i := range e.rounds(300) {
		n := []int{1, 64, 4096, 70000}[i%4]
		if uint64(n) > uint64(e.a.attr.MaxMessage) {
			continue
		}
		src, dst := e.a.source(n), e.b.mem(n, remoteWrite)
		b.recv(e.recv())
		if i%8 < 4 {
			a.post(unsignaled(e.write(dst, 0, src.all())), e.send())
		} else {
			a.post(unsignaled(e.write(dst, 0, src.all())))
			a.post(e.send())
		}
		b.rcq.ok(1, "receive behind a write")
		dst.same(0, src.buf, "a write before the send")
		a.scq.ok(1, "send behind a write")
		src.free()
		dst.free()
	}
}

func writeBeforeWriteImm(e *env) {
	a, b := e.couple()
	for range e.rounds(100) {
		src, dst := e.a.source(5000), e.b.mem(5000, remoteWrite)
		b.recv(e.recv())
		a.post(unsignaled(e.write(dst, 0, src.sge(0, 4999))), e.writeImm(1, dst, 4999, src.sge(4999, 1)))
		b.rcq.ok(1, "write with immediate")
		dst.same(0, src.buf, "writes before the receive")
		a.scq.ok(1, "write with immediate")
		src.free()
		dst.free()
	}
}

func writeImmVisible(e *env) {
	a, b := e.couple()
	for range e.rounds(100) {
		src, dst := e.a.source(9000), e.b.mem(9000, remoteWrite)
		b.recv(e.recv())
		a.post(e.writeImm(1, dst, 0, src.all()))
		b.rcq.ok(1, "write with immediate")
		dst.same(0, src.buf, "a write with immediate")
		a.scq.ok(1, "write with immediate")
		src.free()
		dst.free()
	}
}

func messagesInOrder(e *env) {
	a, b := e.couple()
	depth := min(e.a.depth(), e.b.depth())
	src, dst := e.a.source(16*depth), e.b.mem(16*depth, localWrite)
	next := uint32(0)
	for round := range e.rounds(50) {
		base := next
		var sends []verbs.SendWR
		for i := range depth {
			b.recv(e.recv(dst.sge(16*i, 16)))
			binary.BigEndian.PutUint32(src.buf[16*i:], next)
			sends = append(sends, unsignaled(e.send(src.sge(16*i, 4+i%12))))
			next++
		}
		sends[depth-1].Flags |= verbs.SendSignaled
		for len(sends) > 0 {
			n := min(1+round%5, len(sends))
			a.post(sends[:n]...)
			sends = sends[n:]
		}
		for i, c := range b.rcq.ok(depth, "messages") {
			if got := binary.BigEndian.Uint32(dst.buf[16*i:]); got != base+uint32(i) || int(c.Length) != 4+i%12 {
				e.Fatalf("message %d came as number %d: %v", base+uint32(i), got, c)
			}
		}
		a.scq.ok(1, "the last send")
	}
}

// completionsInOrder mixes reads, which take a turn to the peer, with the rest. The
// accounts check the order.
func completionsInOrder(e *env) {
	a, b := e.couple()
	target, src, sink := e.b.mem(8192, remoteBoth), e.a.source(8192), e.a.sink(8192)
	n := min(24, e.a.depth())
	for range e.rounds(50) {
		for i := range n {
			switch i % 4 {
			case 0:
				a.post(e.read(target, 0, sink.all()))
			case 1:
				a.post(e.write(target, 0, src.sge(0, 8)))
			case 2:
				b.recv(e.recv())
				a.post(e.send())
			case 3:
				a.post(unsignaled(e.read(target, 0, sink.sge(0, 8))))
			}
		}
		a.scq.ok(n-n/4, "a mixture")
		b.rcq.ok((n+1)/4, "sends of a mixture")
	}
}

// fenceWaits sends what a read brings; without the fence the send could overtake the read.
func fenceWaits(e *env) {
	a, b := e.couple()
	const n = 30000
	for range e.rounds(50) {
		target, via, dst := e.b.mem(n, remoteRead), e.a.sink(n), e.b.mem(n, localWrite)
		target.fill(e.id())
		b.recv(e.recv(dst.all()))
		a.post(unsignaled(e.read(target, 0, via.all())), flagged(e.send(via.all()), verbs.SendFence))
		b.rcq.ok(1, "receive")
		dst.same(0, target.buf, "what a fenced send took from a read")
		a.scq.ok(1, "fenced send")
		for _, m := range []*mem{target, via, dst} {
			m.free()
		}
	}
}

func fenceWaitsAtomic(e *env) {
	a, b := e.couple()
	target, via, dst := e.b.atomicTarget(), e.a.sink(8), e.b.mem(8, localWrite)
	for i := range e.rounds(100) {
		b.recv(e.recv(dst.all()))
		a.post(e.fetchAdd(target, 0, 3, via.all()), flagged(e.send(via.all()), verbs.SendFence))
		b.rcq.ok(1, "receive")
		if got := dst.word(0); got != uint64(3*i) {
			e.Fatalf("a fenced send took %d from a fetch-and-add of %d", got, 3*i)
		}
		a.scq.ok(2, "fetch-and-add and send")
	}
}

func fenceKeepsOrder(e *env) {
	a, b := e.couple()
	target, via := e.b.mem(64, remoteRead), e.a.sink(64)
	src, dst := e.a.source(4), e.b.mem(4, localWrite)
	b.recv(e.recv(dst.sge(0, 1)), e.recv(dst.sge(1, 1)), e.recv(dst.sge(2, 1)), e.recv(dst.sge(3, 1)))
	a.post(
		e.send(src.sge(0, 1)),
		e.read(target, 0, via.all()),
		e.send(src.sge(1, 1)),
		flagged(e.send(src.sge(2, 1)), verbs.SendFence),
		e.send(src.sge(3, 1)),
	)
	b.rcq.ok(4, "messages around a fence")
	a.scq.ok(5, "requests around a fence")
	dst.same(0, src.buf, "messages around a fence")
}

func readVisible(e *env) {
	a, _ := e.couple()
	for range e.rounds(100) {
		target, dst := e.b.mem(20000, remoteRead), e.a.sink(20000)
		target.fill(e.id())
		a.post(e.read(target, 0, dst.all()))
		a.scq.ok(1, "read")
		dst.same(0, target.buf, "what a read brought")
		target.free()
		dst.free()
	}
}
