package perf

import (
	"errors"
	"fmt"
	"time"
)

// Limits of a Spec.
const (
	// MaxSize is the largest message: an EP's largest by default, less what alignment takes.
	MaxSize = 1 << 30
	// MaxDepth is the largest depth.
	MaxDepth  = 1 << 15
	maxWarmUp = 1 << 20
)

// Spec describes a measurement.
type Spec struct {
	Op   Op
	Kind Kind
	// Size is the size of a message in bytes, 1 to MaxSize.
	Size int
	// Depth is how many messages may be under way for Throughput, 1 to MaxDepth. Latency has one.
	Depth int
	// List is how many messages one post call takes for Throughput, 1 to Depth; 1 is
	// a call of PostSend and so on, more are calls of Post.
	List int
	// WarmUp is the number of messages before the measurement. It is at least enough to fill the
	// memory once.
	WarmUp int
	// Messages ends the measurement after so many, Duration after that time; 0 is no limit, and one
	// of them must limit it.
	Messages int
	Duration time.Duration
	// Verify checks the data.
	Verify bool

	// salt makes the payload of the measurement its own.
	salt uint64
}

// plan completes and checks a Spec.
func (s Spec) plan() (Spec, error) {
	if s.Kind == Latency {
		s.Depth, s.List = 1, 1
	}
	s.List = max(s.List, 1)
	switch {
	case s.Size < 1 || s.Size > MaxSize:
		return s, fmt.Errorf("size %d is not between 1 and %d", s.Size, MaxSize)
	case s.Depth < 1 || s.Depth > MaxDepth:
		return s, fmt.Errorf("depth %d is not between 1 and %d", s.Depth, MaxDepth)
	case s.List > s.Depth:
		return s, fmt.Errorf("a list of %d is longer than the depth of %d", s.List, s.Depth)
	case s.WarmUp < 0 || s.WarmUp > maxWarmUp:
		return s, fmt.Errorf("a warm-up of %d messages is not between 0 and %d", s.WarmUp, maxWarmUp)
	case s.Messages < 0 || s.Duration < 0 || s.Messages == 0 && s.Duration == 0:
		return s, errors.New("neither a number of messages nor a duration is given")
	}
	s.WarmUp = max(s.WarmUp, s.slots())
	return s, nil
}

// slots is the number of message buffers in each direction. A ping-pong has two, so that a buffer
// is never reused while it is under way.
func (s *Spec) slots() int {
	if s.pingPong() {
		return 2
	}
	return s.Depth
}

func (s *Spec) pingPong() bool { return s.Op == Send && s.Kind == Latency }

// creditBatch is how many messages a credit of a stream of sends is for.
func (s *Spec) creditBatch() int { return max(1, s.slots()/4) }

// stride is the distance of message buffers: a cache line at least, and enough for a report.
func (s *Spec) stride() int { return (s.Size + controlSize - 1) &^ (controlSize - 1) }

// The memory of an end: an area for control messages, message buffers that are sent, written
// or read from, and message buffers that are received, written or read into.
const (
	controlSize  = 64 // distance of control buffers
	controlLen   = 40 // length of a control message
	controlSlots = 32
	controlArea  = controlSize * controlSlots

	// Control buffers.
	bufCredit = 0
	bufAck    = 1
	bufReport = 2
	bufEnd    = 3
	bufBegin  = 4
	bufRecv   = 5 // and following
)

// Memory is what an end needs, in bytes.
func (s *Spec) Memory() int64 { return controlArea + 2*int64(s.slots())*int64(s.stride()) }

// out and in are the offsets of the i-th message buffer in each direction.
func (s *Spec) out(i int) int { return controlArea + i*s.stride() }
func (s *Spec) in(i int) int  { return controlArea + (s.slots()+i)*s.stride() }

// seed is the seed of the payload in the i-th buffer: of what the requester or the responder sends,
// in the warm-up or the measurement. Only RDMA writes, which the responder cannot check one by one,
// need to be different in the two.
func (s *Spec) seed(i int, responders, timed bool) uint64 {
	seed := word(s.salt, i)
	if responders {
		seed = ^seed
	}
	if timed && s.Op == Write {
		seed++
	}
	return seed
}
