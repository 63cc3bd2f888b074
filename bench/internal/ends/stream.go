package ends

import (
	"errors"
	"time"

	"kdapl/dat"
)

// takeSends receives until the connection ends. It gives the peer leave for more by a message for each
// part of its queue, so that there is always a receive for what comes.
func (e *end) takeSends() error {
	list := make([]dat.Receive, min(e.credit(), 64))
	seg := []dat.LMRTriplet{e.lmr.Triplet(half, e.spec.Size)}
	for i := range list {
		list[i] = dat.Receive{Cookie: recvCookie, Local: seg}
	}
	posted, told, out := e.queue(), 0, 0
	for e.going() {
		e.progress()
		for e.received+e.queue()-posted >= len(list) {
			n, err := e.ep.PostRecvs(list)
			if posted += n; err != nil {
				return err
			}
		}
		for posted-e.queue()-told >= e.credit() && out-e.done < 4 {
			if err := e.ep.PostSend(sendCookie, 0); err != nil {
				return err
			}
			told += e.credit()
			out++
		}
	}
	return e.err
}

// stream is the client's side of everything that goes one way.
func (e *end) stream(p Peer) (Result, error) {
	s := e.spec
	op := map[string]dat.Operation{"send": dat.OpSend, "write": dat.OpRDMAWrite, "read": dat.OpRDMARead}[s.Mode]
	remote := p.Memory
	remote.SegmentLength = uint32(s.Size)
	local := []dat.LMRTriplet{e.lmr.Triplet(0, s.Size)}
	list := make([]dat.Request, s.List)
	for i := range list {
		list[i] = dat.Request{Op: op, Cookie: sendCookie, Remote: remote, Local: local}
	}
	leave, out, credits := e.queue(), 0, 0
	begin, warm := time.Now(), false
	start, first := begin, 0
	for i := 0; ; i++ {
		for e.going() && (out-e.done+s.List > s.Depth || op == dat.OpSend && out+s.List > leave) {
			e.progress()
			for ; credits < e.received; credits++ {
				leave += e.credit()
				if err := e.receive(e.ep); err != nil {
					return Result{}, err
				}
			}
		}
		if !e.going() {
			return Result{}, errors.Join(e.err, errEnded)
		}
		if s.List == 1 {
			if err := e.post(op, remote, local); err != nil {
				return Result{}, err
			}
			out++
		} else {
			n, err := e.ep.Post(list)
			if out += n; err != nil {
				return Result{}, err
			}
		}
		if s.List*s.Size < 64<<10 && i%16 != 0 {
			continue
		}
		now := time.Now()
		if !warm && now.Sub(begin) >= warmUp {
			warm, begin, first = true, now, out
		} else if warm && now.Sub(begin) >= s.Time {
			break
		}
	}
	// The end is when the peer has everything: a read behind the rest says so.
	last := out
	if op != dat.OpRDMARead {
		for e.going() && e.done < out {
			e.progress()
		}
		remote.SegmentLength = 8
		if err := e.ep.PostRDMARead(sendCookie, 0, remote, e.lmr.Triplet(0, 8)); err != nil {
			return Result{}, err
		}
		last++
	}
	for e.going() && e.done < last {
		e.progress()
	}
	t := time.Since(begin).Seconds()
	n := float64(out - first)
	if !warm || time.Since(start) < s.Time {
		return Result{}, errEnded
	}
	return Result{US: t / n * 1e6, Rate: n / t, MBPS: n * float64(s.Size) / t / 1e6, Messages: out}, errors.Join(e.err)
}

var errEnded = errors.New("the connection ended before the measurement")

// post posts a single request.
func (e *end) post(op dat.Operation, remote dat.RMRTriplet, local []dat.LMRTriplet) error {
	switch op {
	case dat.OpRDMAWrite:
		return e.ep.PostRDMAWrite(sendCookie, 0, remote, local...)
	case dat.OpRDMARead:
		return e.ep.PostRDMARead(sendCookie, 0, remote, local...)
	}
	return e.ep.PostSend(sendCookie, 0, local...)
}
