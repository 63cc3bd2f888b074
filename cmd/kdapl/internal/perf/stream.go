package perf

import (
	"encoding/binary"
	"math"

	"kdapl/dat"
)

// streamer is the requester that keeps messages under way, up to the depth: every throughput, and
// the latency of RDMA writes and reads, with a depth of one.
//
// Sends need credits: the responder has a receive for each message of the depth, and tells
// when it has posted them again. So no message finds the responder without a receive,
// which on some transports ends the connection.
type streamer struct {
	requester
	sampling bool
	credits  int
	finDue   bool
	local    []dat.LMRTriplet // of each buffer
	remote   []dat.RMRTriplet
	list     []dat.Request
}

func (s *streamer) prepare() error {
	s.init()
	s.sampling = s.spec.Kind == Latency
	s.credits = math.MaxInt
	receives := 2 // ack and report
	if s.spec.Op == Send {
		s.credits = s.spec.slots()
		receives += s.spec.slots()/s.spec.creditBatch() + 1
	}
	s.local = make([]dat.LMRTriplet, s.spec.slots())
	for i := range s.local {
		off := s.spec.out(i)
		if s.spec.Op == Read {
			off = s.spec.in(i)
		}
		s.local[i] = s.host.local(off, s.spec.Size)
	}
	s.list = make([]dat.Request, s.spec.List)
	for i := range receives {
		if err := s.receive(i); err != nil {
			return err
		}
	}
	return nil
}

// connected tells where the responder's memory is.
func (s *streamer) connected(peer dat.RMRTriplet) {
	if s.spec.Op == Send {
		return
	}
	s.remote = make([]dat.RMRTriplet, s.spec.slots())
	for i := range s.remote {
		off := s.spec.in(i)
		if s.spec.Op == Read {
			off = s.spec.out(i)
		}
		s.remote[i] = dat.RMRTriplet{VirtualAddress: peer.VirtualAddress + uint64(off), RMRContext: peer.RMRContext, SegmentLength: uint32(s.spec.Size)}
	}
}

// receive posts the i-th buffer for control messages.
func (s *streamer) receive(i int) error {
	return s.ep.PostRecv(uint64(i), dat.CompletionDefault, s.host.local((bufRecv+i)*controlSize, controlLen))
}

func (s *streamer) handle(ev *dat.Event) {
	if s.finished {
		return
	}
	if ev.Number == dat.SoftwareEvent {
		s.advance()
		return
	}
	d := ev.DTO()
	switch {
	case s.failed(&d):
	case d.Operation == dat.OpReceive:
		s.control(&d)
	case d.Cookie < beginCookie:
		s.completed(&d)
	}
}

// completed takes the completion of a message.
func (s *streamer) completed(d *dat.DTO) {
	if s.part == timing && s.sampling {
		s.sample(now())
	}
	if !s.due(d, uint64(s.done), s.spec.Size) {
		return
	}
	if s.part == warming && s.spec.Op == Read && s.spec.Verify {
		s.tally.warm(s.End, s.done%s.spec.slots(), true)
	}
	s.done++
	s.advance()
}

// advance posts what may be posted, and goes to the next part when that is all.
func (s *streamer) advance() {
	for {
		if err := s.post(); err != nil {
			s.finish(err)
			return
		}
		if s.done < s.posted || s.more() {
			return
		}
		if s.next() {
			break
		}
	}
	if !s.finished {
		s.end()
	}
}

// end tells the responder, which takes a credit.
func (s *streamer) end() {
	if s.finDue = s.credits == 0; !s.finDue {
		s.fin()
	}
}

// post posts as many messages as may be under way.
func (s *streamer) post() error {
	for s.more() {
		left := s.limit - s.posted
		n := min(s.spec.Depth-(s.posted-s.done), s.credits, left)
		switch {
		case n <= 0:
			return nil
		case s.spec.List > 1:
			if n < min(s.spec.List, left) && s.done < s.posted {
				return nil // a full list is possible soon
			}
			n = min(n, s.spec.List)
			if err := s.postList(n); err != nil {
				return err
			}
		default:
			n = 1
			if err := s.postOne(); err != nil {
				return err
			}
		}
		s.posted += n
		if s.spec.Op == Send {
			s.credits -= n
		}
	}
	return nil
}

func (s *streamer) postOne() error {
	slot := s.posted % s.spec.slots()
	if s.sampling {
		s.at = now()
	}
	switch s.spec.Op {
	case Write:
		return s.ep.PostRDMAWrite(uint64(s.posted), dat.CompletionDefault, s.remote[slot], s.local[slot])
	case Read:
		return s.ep.PostRDMARead(uint64(s.posted), dat.CompletionDefault, s.remote[slot], s.local[slot])
	}
	return s.ep.PostSend(uint64(s.posted), dat.CompletionDefault, s.local[slot])
}

func (s *streamer) postList(n int) error {
	for i := range s.list[:n] {
		slot := (s.posted + i) % s.spec.slots()
		r := &s.list[i]
		r.Op, r.Cookie, r.Local = s.spec.Op.dto(), uint64(s.posted+i), s.local[slot:slot+1]
		if s.remote != nil {
			r.Remote = s.remote[slot]
		}
	}
	_, err := s.ep.Post(s.list[:n])
	return err
}

// control takes a control message of the responder.
func (s *streamer) control(d *dat.DTO) {
	i := int(d.Cookie)
	if !s.due(d, d.Cookie, controlLen) {
		return
	}
	b := s.host.control(bufRecv + i)
	if binary.BigEndian.Uint32(b) != msgCredit {
		s.told(b)
		return
	}
	s.credits += int(binary.BigEndian.Uint32(b[4:]))
	if err := s.receive(i); err != nil {
		s.finish(err)
		return
	}
	switch {
	case s.finDue:
		s.end()
	case s.part <= timing:
		s.advance()
	}
}
