package faultnet

import (
	"math"
	"math/rand/v2"
	"time"

	"kdapl/internal/netio"
	"kdapl/internal/netio/bytering"
)

// stream is one direction of a connection: the bytes between the sender's write and the receiver's
// read. It knows its plan; what concerns both directions or an end, it asks of the pair by a verdict.
type stream struct {
	plan   Stream
	events []Event // those to come
	mask   byte    // for the next byte

	readCuts, writeCuts cuts
	jitter              *rand.Rand
	jitterNow           time.Duration // of the MSS-sized block of the stream that is being sent
	jitterDrawn         int64         // blocks so far

	ring     bytering.Ring // sent and not read
	segs     segments      // sent and not arrived
	sent     int64         // bytes put into the ring
	taken    int64         // bytes the sender got rid of: sent, and what disappeared behind an end
	wasted   int64         // bytes that nobody takes: they fill the window until the sender finds out
	arrived  int64
	read     int64
	vanish   bool      // what is written disappears
	busy     time.Time // when the last byte has left a sender with a Rate
	last     time.Time // when the last byte arrives
	hold     time.Time // nothing arrives before
	progress time.Time // when something last arrived

	fin        bool // the stream has an end, behind sent
	finTaken   time.Time
	finAt      time.Time
	finArrived bool
}

// segment is a run of bytes that arrives as one, up to the position end.
type segment struct {
	end       int64
	taken, at time.Time
}

// segments is a queue that reuses its memory.
type segments struct {
	list []segment
	head int
}

func (q *segments) empty() bool     { return q.head == len(q.list) }
func (q *segments) first() *segment { return &q.list[q.head] }
func (q *segments) last() *segment  { return &q.list[len(q.list)-1] }
func (q *segments) clear()          { q.list, q.head = q.list[:0], 0 }

func (q *segments) pop() {
	if q.head++; q.head == len(q.list) {
		q.clear()
	}
}

func (q *segments) push(s segment) {
	if len(q.list) == cap(q.list) && q.head > len(q.list)/2 {
		q.list = q.list[:copy(q.list, q.list[q.head:])]
		q.head = 0
	}
	q.list = append(q.list, s)
}

// cuts are the positions that no single call crosses: a random walk, and those named.
type cuts struct {
	max    int
	rng    *rand.Rand
	random int64
	named  []int64
}

// after is how far a call at position pos may go.
func (c *cuts) after(pos int64) int64 {
	limit := int64(math.MaxInt64)
	if c.max > 0 {
		for c.random <= pos {
			c.random += 1 + c.rng.Int64N(int64(c.max))
		}
		limit = c.random
	}
	for len(c.named) > 0 && c.named[0] <= pos {
		c.named = c.named[1:]
	}
	if len(c.named) > 0 {
		limit = min(limit, c.named[0])
	}
	return limit - pos
}

// newStream makes direction dir (0 or 1) of a connection with that seed.
func newStream(plan Stream, seed uint64, dir uint64) stream {
	plan = plan.prepared()
	rng := func(what uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, dir<<8|what)) }
	s := stream{
		plan:      plan,
		events:    plan.Events,
		readCuts:  cuts{max: plan.ReadMax},
		writeCuts: cuts{max: plan.WriteMax},
		ring:      bytering.New(plan.Window),
	}
	if plan.ReadMax > 0 {
		s.readCuts.rng = rng(1)
	}
	if plan.WriteMax > 0 {
		s.writeCuts.rng = rng(2)
	}
	if plan.Jitter > 0 {
		s.jitter = rng(3)
	}
	for _, e := range plan.Events {
		if e.Kind == Split {
			s.readCuts.named = append(s.readCuts.named, e.At)
		}
	}
	s.writeCuts.named = s.readCuts.named // the list is only ever shortened from the front
	return s
}

// mss is what the sender is told.
func (s *stream) mss() int {
	if s.plan.MSS > 0 {
		return s.plan.MSS
	}
	return netio.DefaultMSS
}

// room is how many bytes a write may take now.
func (s *stream) room() int {
	n := s.writeCuts.after(s.taken)
	if !s.vanish {
		n = min(n, int64(s.ring.Free())-s.wasted)
	}
	return int(max(0, min(n, math.MaxInt32)))
}

// next is the event that is due, if one is.
func (s *stream) next() (Event, bool) {
	if len(s.events) == 0 || s.events[0].At > s.taken || s.vanish {
		return Event{}, false
	}
	e := s.events[0]
	s.events = s.events[1:]
	return e, true
}

// push takes bytes of p, at least one and up to the next event, and reports how many. There is room.
func (s *stream) push(p []byte, now time.Time) int {
	if s.vanish {
		s.taken += int64(len(p))
		return len(p)
	}
	n := int64(len(p))
	if len(s.events) > 0 {
		n = min(n, s.events[0].At-s.taken)
	}
	if s.plan.Rate > 0 || s.plan.Jitter > 0 { // what arrives at different times
		mss := int64(s.mss())
		n = min(n, mss-s.taken%mss)
	}
	if s.mask != 0 {
		n = 1
	}
	space := s.ring.Space()
	n = int64(copy(space, p[:n]))
	if s.mask != 0 {
		space[0] ^= s.mask
		s.mask = 0
	}
	s.ring.Commit(int(n))
	at := s.arrival(n, now)
	s.taken += n
	s.sent += n
	if !s.segs.empty() && s.segs.last().at.Equal(at) && s.segs.last().taken.Equal(now) {
		s.segs.last().end = s.sent
	} else {
		s.segs.push(segment{s.sent, now, at})
	}
	return int(n)
}

// arrival works out when n bytes that are sent now, from the position taken on, arrive.
func (s *stream) arrival(n int64, now time.Time) time.Time {
	at := now
	if s.plan.Rate > 0 {
		s.busy = later(s.busy, now).Add(time.Duration(float64(n) / float64(s.plan.Rate) * float64(time.Second)))
		at = s.busy
	}
	at = at.Add(s.plan.Latency)
	if s.jitter != nil {
		for block := s.taken / int64(s.mss()); s.jitterDrawn <= block; s.jitterDrawn++ {
			s.jitterNow = time.Duration(s.jitter.Int64N(int64(s.plan.Jitter)))
		}
		at = at.Add(s.jitterNow)
	}
	s.last = later(later(at, s.last), s.hold)
	return s.last
}

// end puts an end behind the bytes sent so far.
func (s *stream) end(now time.Time) {
	if !s.fin {
		s.fin, s.finTaken, s.finAt = true, now, s.arrival(0, now)
	}
}

// arrive makes the first segment arrive, at its time.
func (s *stream) arrive() {
	s.arrived, s.progress = s.segs.first().end, s.segs.first().at
	s.segs.pop()
}

// get reads what has arrived, as far as one read goes.
func (s *stream) get(bufs [][]byte) int {
	n := s.ring.Get(bufs, int(min(s.arrived-s.read, s.readCuts.after(s.read))))
	s.read += int64(n)
	return n
}

// drop loses the bytes under way, and an end behind them.
func (s *stream) drop() {
	s.segs.clear()
	s.ring.Truncate(int(s.arrived - s.read))
	s.sent = s.arrived
	s.fin = s.finArrived
}

// waste drops the bytes under way because the receiver is dead.
func (s *stream) waste() {
	s.wasted += s.sent - s.arrived
	s.drop()
}

// purge loses the bytes that have arrived and are not read.
func (s *stream) purge() {
	s.ring.Discard(int(s.arrived - s.read))
	s.read = s.arrived
}

// delay makes sure that nothing under way arrives before t.
func (s *stream) delay(t time.Time) {
	for i := s.segs.head; i < len(s.segs.list); i++ {
		s.segs.list[i].at = later(s.segs.list[i].at, t)
	}
	s.finAt = later(s.finAt, t)
	s.last = later(s.last, t)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
