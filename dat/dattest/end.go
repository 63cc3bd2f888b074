package dattest

import (
	"fmt"
	"strings"

	"kdapl/dat"
)

// Ends of connections (dat_ep_disconnect, dat_ep_reset, dat_ep_free), and what becomes of operations.
var endRules = []rule{
	{"whoever ends a connection, and however, each side has one end behind all of its completions", 0, endMatrix},
	{"a graceful end runs what is posted, and takes nothing more", needWait, endGraceful},
	{"a second graceful disconnect has no effect, an abrupt one ends at once", needWait, endTwice},
	{"a disconnected EP flushes what is posted, and does nothing at a further disconnect", 0, endPosts},
	{"a reset comes behind what was flushed", 0, endReset},
	{"a freed EP flushes what it had, and its events still name it", 0, endFree},
	{"a freed EP is gone for its peer", 0, endFreePeer},
	{"what a service point or request holds is not freed", 0, endHeld},
	{"a broken connection says why, on both sides", 0, endBroken},
	{"the private data of a connection last until the reset", 0, endPrivate},
	{"what is suppressed is flushed with an event", 0, endSuppressed},
	{"when the adapter is taken away, everything ends in events and close works", needRemove, endRemoved},
}

// finish takes the events of an EVD up to the end of a connection: completions by cookie, each once.
func (e *env) finish(evd *dat.EVD) (map[uint64]dat.Status, dat.EventNumber) {
	e.Helper()
	done := map[uint64]dat.Status{}
	for {
		ev := e.event(evd, dat.DTOCompletion, dat.ConnectionDisconnected, dat.ConnectionBroken)
		if ev.Number != dat.DTOCompletion {
			e.none(evd, "behind the end")
			return done, ev.Number
		}
		d := ev.DTO()
		if _, twice := done[d.Cookie]; twice {
			e.Fatalf("%v came twice", ev)
		}
		done[d.Cookie] = d.Status
	}
}

func endMatrix(e *env) {
	const recvs = 6
	ways := []string{"nothing", "abrupt", "graceful", "bad access", "free"}
	for _, wa := range ways {
		for _, wb := range ways {
			if wa == "nothing" && wb == "nothing" {
				continue
			}
			evds := []*dat.EVD{e.a.evd(), e.b.evd()}
			a, b := e.linkOn(evds[0], evds[1])
			eps := []*dat.EP{a, b}
			for _, ep := range eps {
				for i := range recvs {
					e.must(ep.PostRecv(uint64(i), 0), "PostRecv")
				}
			}
			returned := make(chan error, 2)
			for i, way := range []string{wa, wb} {
				go func() {
					ep := eps[i]
					switch way {
					case "abrupt":
						returned <- ep.Disconnect(dat.CloseAbrupt)
					case "graceful":
						returned <- ep.Disconnect(dat.CloseGraceful)
					case "free":
						returned <- ep.Free()
					case "bad access":
						mine, theirs := e.a, e.b
						if i == 1 {
							mine, theirs = e.b, e.a
						}
						bad := theirs.lmr.RMRTriplet(0, 8)
						bad.RMRContext ^= 0xFF00
						ep.PostRDMARead(900, dat.CompletionSuppress, bad, mine.lmr.Triplet(0, 8))
						returned <- nil
					default:
						returned <- nil
					}
				}()
			}
			for range 2 {
				e.must(e.within(wa+", "+wb, func() error { return <-returned }), "%s, %s", wa, wb)
			}
			for i, way := range []string{wa, wb} {
				if way == "free" {
					continue
				}
				// A bad access that is posted when the end is there already is flushed behind it.
				done := map[uint64]dat.Status{}
				ends := 0
				for ends == 0 || way == "bad access" && len(done) < recvs+1 {
					ev := e.event(evds[i], dat.DTOCompletion, dat.ConnectionDisconnected, dat.ConnectionBroken)
					if ev.Number != dat.DTOCompletion {
						ends++
						if len(done) < recvs {
							e.Fatalf("%s, %s: the end came before %d of %d receives", wa, wb, recvs-len(done), recvs)
						}
						if r := wa == "bad access" || wb == "bad access"; ev.Number == dat.ConnectionBroken && !r {
							e.Errorf("%s, %s: %v", wa, wb, ev)
						}
						continue
					}
					d := ev.DTO()
					if _, twice := done[d.Cookie]; twice || d.Cookie < recvs && d.Status != dat.StatusFlushed {
						e.Fatalf("%s, %s: %v", wa, wb, ev)
					}
					done[d.Cookie] = d.Status
				}
				e.none(evds[i], "behind the end")
				if ends != 1 {
					e.Fatalf("%s, %s: %d ends", wa, wb, ends)
				}
				e.state(eps[i], dat.StateDisconnected)
			}
			for _, ep := range eps {
				ep.Free()
			}
			for _, evd := range evds {
				all(evd)
				e.must(evd.Free(), "EVD.Free")
			}
		}
	}
}

func endGraceful(e *env) {
	ea := e.a.evd()
	a, b := e.linkOn(ea, e.b.recv)
	e.must(a.PostRecv(9, 0), "PostRecv")
	for i := range 2 {
		e.must(a.PostSend(uint64(i), 0, e.a.lmr.Triplet(0, 8)), "PostSend")
	}
	e.must(a.Disconnect(dat.CloseGraceful), "Disconnect")
	e.state(a, dat.StateDisconnectPending)
	e.refused(a.PostSend(3, 0), "a send during the end", dat.InvalidState, dat.InvalidStateEPDiscPending)
	e.none(ea, "before the receives")
	for i := range 2 {
		e.must(b.PostRecv(uint64(i), 0, e.b.lmr.Triplet(64*i, 64)), "PostRecv")
		e.done(e.b.recv, uint64(i), dat.StatusSuccess)
	}
	done, end := e.finish(ea)
	if fmt.Sprint(done) != fmt.Sprint(map[uint64]dat.Status{0: dat.StatusSuccess, 1: dat.StatusSuccess, 9: dat.StatusFlushed}) || end != dat.ConnectionDisconnected {
		e.Errorf("%v, %v", done, end)
	}
	e.event(e.b.recv, dat.ConnectionDisconnected)
}

func endTwice(e *env) {
	a, _ := e.link()
	e.must(a.PostSend(1, 0), "PostSend")
	e.must(a.Disconnect(dat.CloseGraceful), "Disconnect")
	e.must(a.Disconnect(dat.CloseGraceful), "Disconnect")
	e.state(a, dat.StateDisconnectPending)
	e.refused(a.Reset(), "Reset", dat.InvalidState, dat.InvalidStateEPDiscPending)
	e.must(a.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.done(e.a.request, 1, dat.StatusFlushed)
	e.event(e.a.connect, dat.ConnectionDisconnected)
	e.event(e.b.connect, dat.ConnectionDisconnected)
}

func endPosts(e *env) {
	a, b := e.link()
	e.must(b.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(e.a.connect, dat.ConnectionDisconnected)
	for i := range 3 {
		e.must(a.PostSend(uint64(i), 0, e.a.lmr.Triplet(0, 8)), "PostSend")
		e.must(a.PostRDMARead(uint64(10+i), 0, e.b.lmr.RMRTriplet(0, 8), e.a.lmr.Triplet(0, 8)), "PostRDMARead")
		e.must(a.PostRecv(uint64(i), 0), "PostRecv")
		e.done(e.a.request, uint64(i), dat.StatusFlushed)
		e.done(e.a.request, uint64(10+i), dat.StatusFlushed)
		e.done(e.a.recv, uint64(i), dat.StatusFlushed)
	}
	for _, f := range []dat.CloseFlags{dat.CloseAbrupt, dat.CloseGraceful} {
		e.must(a.Disconnect(f), "Disconnect of a disconnected EP")
	}
	e.none(e.a.connect, "a further disconnect")
	e.must(a.Reset(), "Reset")
	e.refused(a.PostSend(1, 0), "a send of an unconnected EP", dat.InvalidState, dat.InvalidStateEPUnconnected)
}

func endReset(e *env) {
	ea := e.a.evd()
	a, _ := e.linkOn(ea, e.b.evd())
	e.must(a.PostRecv(1, 0), "PostRecv")
	e.must(a.PostRecv(2, 0), "PostRecv")
	e.must(a.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.must(a.Reset(), "Reset")
	e.state(a, dat.StateUnconnected)
	e.queued(ea, 3)
	e.same("what a reset leaves", all(ea), "RECEIVE 1 FLUSHED", "RECEIVE 2 FLUSHED", dat.ConnectionDisconnected.String())
	// In the state that it leads to it leaves receives alone.
	e.must(a.PostRecv(3, 0), "PostRecv")
	e.must(a.Reset(), "Reset")
	e.none(ea, "a reset of an unconnected EP")
	e.must(a.Free(), "Free")
	e.done(ea, 3, dat.StatusFlushed)
}

func endFree(e *env) {
	var eps []*dat.EP
	for i := range 20 {
		ep := e.a.ep()
		e.must(ep.PostRecv(uint64(i), 0), "PostRecv")
		e.must(ep.Free(), "Free")
		e.refused(ep.Free(), "a second free", dat.InvalidHandle, dat.InvalidHandleEP)
		eps = append(eps, ep)
	}
	for i, ep := range eps {
		if d := e.done(e.a.recv, uint64(i), dat.StatusFlushed); d.EP != ep {
			e.Errorf("names %v, want %v", d.EP, ep)
		}
	}
}

func endFreePeer(e *env) {
	a, b := e.link()
	e.must(b.PostRecv(1, 0), "PostRecv")
	e.must(a.Free(), "Free")
	e.done(e.b.recv, 1, dat.StatusFlushed)
	e.event(e.b.connect, dat.ConnectionDisconnected, dat.ConnectionBroken)
	e.state(b, dat.StateDisconnected)
	// Also during the set-up.
	a, b = e.a.ep(), e.b.ep()
	e.call(a, e.b.listen().ConnQual())
	cr := e.b.request1()
	e.must(a.Free(), "Free")
	e.must(cr.Accept(b, nil), "Accept")
	e.event(e.b.connect, dat.ConnectionAcceptCompletionError)
}

func endHeld(e *env) {
	b := e.b.ep()
	rsp := e.b.reserve(b)
	e.refused(b.Free(), "Free of a reserved EP", dat.InvalidState, dat.InvalidStateEPReserved)
	e.refused(b.Disconnect(dat.CloseAbrupt), "Disconnect of a reserved EP", dat.InvalidState, dat.InvalidStateEPReserved)
	a := e.a.ep()
	e.call(a, rsp.ConnQual())
	cr := e.b.request1()
	e.refused(b.Free(), "Free of an EP with a request", dat.InvalidState, dat.InvalidStateEPPassConnPending)
	e.must(cr.Reject(nil), "Reject")
	e.event(e.a.connect, dat.ConnectionPeerRejected)
	e.must(b.Free(), "Free")
}

func endBroken(e *env) {
	a, b := e.link()
	e.must(b.PostRecv(1, 0), "PostRecv")
	bad := e.b.lmr.RMRTriplet(0, 8)
	bad.RMRContext ^= 0xFF00
	e.must(a.PostRDMARead(2, 0, bad, e.a.lmr.Triplet(0, 8)), "PostRDMARead")
	e.done(e.a.request, 2, dat.StatusRemoteAccess)
	e.done(e.b.recv, 1, dat.StatusFlushed)
	for _, s := range []*side{e.a, e.b} {
		ev := e.event(s.connect, dat.ConnectionBroken)
		if c := ev.Connection(); c.Cause == nil || strings.TrimSpace(c.Cause.Error()) == "" {
			e.Errorf("%v tells no cause", ev)
		}
	}
	e.state(a, dat.StateDisconnected)
	e.state(b, dat.StateDisconnected)
}

func endPrivate(e *env) {
	a, b := e.a.ep(), e.b.ep()
	e.call(a, e.b.listen().ConnQual())
	e.must(e.b.request1().Accept(b, []byte("welcome")), "Accept")
	ev := e.event(e.a.connect, dat.ConnectionEstablished)
	e.must(a.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(e.a.connect, dat.ConnectionDisconnected)
	if got := ev.Connection().PrivateData; !strings.HasPrefix(string(got), "welcome") {
		e.Errorf("after the end: %q", got)
	}
	e.must(a.Reset(), "Reset")
	if got := ev.Connection().PrivateData; got != nil {
		e.Errorf("after the reset: %q", got)
	}
}

func endSuppressed(e *env) {
	a, b := e.link()
	e.must(b.Disconnect(dat.CloseAbrupt), "Disconnect")
	e.event(e.a.connect, dat.ConnectionDisconnected)
	e.must(a.PostSend(1, dat.CompletionSuppress), "PostSend")
	e.done(e.a.request, 1, dat.StatusFlushed)
}

func endRemoved(e *env) {
	a, b := e.link()
	for i := range 3 {
		e.must(a.PostRecv(uint64(i), 0), "PostRecv")
		e.must(b.PostRecv(uint64(i), 0), "PostRecv")
	}
	e.ad.Remove()
	ev := e.event(e.b.ia.AsyncEVD(), dat.AsyncErrorIACatastrophic)
	if d := ev.Async(); d.Object != dat.Object(e.b.ia) {
		e.Errorf("%v: %+v", ev, d)
	}
	for _, s := range []*side{e.a, e.b} {
		for i := range 3 {
			e.done(s.recv, uint64(i), dat.StatusFlushed)
		}
		e.event(s.connect, dat.ConnectionBroken)
	}
	_, err := e.b.ia.NewPZ()
	if err == nil {
		e.Errorf("a zone on an adapter that is gone")
	}
}
