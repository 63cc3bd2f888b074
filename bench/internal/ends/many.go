package ends

import (
	"errors"
	"runtime"
	"runtime/debug"
	"time"

	"kdapl/dat"
)

// rounds is how many messages each of many connections carries before its memory is looked at.
const rounds = 100

// many is how many connections there are.
func (e *end) many() int {
	if e.spec.Mode == "grow" {
		return e.spec.Conns
	}
	return e.spec.Size
}

// serveMany accepts connections and echoes on all of them until the first ends. A message's cookie is the
// number of its EP.
func (e *end) serveMany() (Result, error) {
	var eps []*dat.EP
	before, heapBefore := memory()
	for range e.many() {
		ep, err := e.accept(func(ep *dat.EP) error {
			return ep.PostRecv(uint64(len(eps))<<8|recvCookie, 0, e.lmr.Triplet(half, 64))
		})
		if err != nil {
			return Result{}, err
		}
		eps = append(eps, ep)
	}
	var r Result
	for e.going() {
		n := e.evd.DequeueInto(e.ev[:])
		for i := range e.ev[:n] {
			d := e.ev[i].DTO()
			switch {
			case d.Status != dat.StatusSuccess:
				e.ended = true
			case d.Cookie&0xFF == recvCookie:
				ep := eps[d.Cookie>>8]
				if err := ep.PostRecv(d.Cookie, 0, e.lmr.Triplet(half, 64)); err != nil {
					return r, err
				}
				if err := ep.PostSend(sendCookie, 0, e.lmr.Triplet(0, 8)); err != nil {
					return r, err
				}
			}
		}
		if d := e.ev[0].DTO(); n > 0 && d.Length == 1 && r.KiB == 0 {
			// The client asks for the memory, by a message of one byte.
			r.KiB, r.Heap = perConnection(before, heapBefore, len(eps))
		}
	}
	runtime.KeepAlive(eps)
	return r, nil
}

// driveMany makes the connections, one after the other, and has each carry messages. Then it measures their
// memory or, with some of them, the time of a message.
func (e *end) driveMany(p Peer) (r Result, err error) {
	before, heapBefore := memory()
	begin := time.Now()
	eps := make([]*dat.EP, 0, e.many())
	for range e.many() {
		ep, err := e.connect(p, 0)
		if err != nil {
			return r, err
		}
		eps = append(eps, ep)
	}
	r.Rate = float64(len(eps)) / time.Since(begin).Seconds()
	if e.spec.Mode == "grow" {
		active := eps[:min(len(eps), e.spec.Active)]
		start, n, warm := time.Now(), 0, false
		for {
			if err := e.exchange(active, 8); err != nil {
				return r, err
			}
			n += len(active)
			now := time.Now()
			if !warm && now.Sub(start) > warmUp {
				start, n, warm = now, 0, true
			} else if warm && now.Sub(start) > e.spec.Time {
				r.US = now.Sub(start).Seconds() / float64(n) * 1e6
				break
			}
		}
	} else {
		for range rounds {
			for i := 0; i < len(eps); i += 64 {
				if err := e.exchange(eps[i:min(i+64, len(eps))], 64); err != nil {
					return r, err
				}
			}
		}
		if err := e.exchange(eps[:1], 1); err != nil { // the server looks at its memory now
			return r, err
		}
		r.KiB, r.Heap = perConnection(before, heapBefore, len(eps))
	}
	runtime.KeepAlive(eps)
	// The end of the process ends them all.
	return r, eps[0].Disconnect(dat.CloseAbrupt)
}

// exchange has each EP send a message and get its answer, all at a time.
func (e *end) exchange(eps []*dat.EP, size int) error {
	for _, ep := range eps {
		if err := ep.PostRecv(recvCookie, 0, e.lmr.Triplet(half, 64)); err != nil {
			return err
		}
		if err := ep.PostSend(sendCookie, 0, e.lmr.Triplet(0, size)); err != nil {
			return err
		}
	}
	for want := e.received + len(eps); e.received < want; {
		if !e.going() {
			return errors.Join(e.err, errEnded)
		}
		e.progress()
	}
	return nil
}

// perConnection is the memory that has come up since, per connection, in KiB.
func perConnection(before, heapBefore float64, n int) (kib, heap float64) {
	now, heapNow := memory()
	return (now - before) / float64(n), (heapNow - heapBefore) / float64(n)
}

// memory is the resident memory in KiB, after a collection, and what of the Go heap and stacks is in use.
func memory() (kib, heap float64) {
	runtime.GC() // what pools hold goes with the second
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return resident(), float64(m.HeapAlloc+m.StackInuse) / 1024
}
