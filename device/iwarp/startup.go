package iwarp

import (
	"container/list"
	"sync"
	"time"

	"kdapl/device/iwarp/internal/mpa"
	"kdapl/verbs"
)

// startup collects one start-up frame from a stream, as it comes. It does no I/O.
type startup struct {
	kind  mpa.Kind
	frame mpa.Startup // when it is whole
	b     []byte
}

// want is how many more bytes may be read without taking any that are behind the frame: none when
// the frame is whole, or is wrong.
func (s *startup) want() int {
	if s.frame != nil {
		return 0
	}
	n, err := mpa.StartupLen(s.b, s.kind)
	if err != nil {
		return 0
	}
	return n - len(s.b)
}

// feed takes bytes, at most as many as want says.
func (s *startup) feed(p []byte) error {
	s.b = append(s.b, p...)
	f, _, err := mpa.ParseStartup(s.b, s.kind)
	s.frame = f
	return err
}

// responder is the passive side's part of a negotiation.
func (d *driver) responder(p *verbs.ConnParams) mpa.Local {
	l := d.local(p)
	l.RTR = mpa.RTRWrite | mpa.RTRRead | mpa.RTRSend
	return l
}

// depths are what a request wishes, as the passive side sees it. Revision 1 says nothing of them.
func depths(h mpa.Header, attr *verbs.Attr) (in, out int) {
	in, out = attr.MaxReadsIn, attr.MaxReadsOut
	if h.HasEnhanced() {
		if h.Enhanced.ORD != mpa.NotNegotiated {
			in = int(h.Enhanced.ORD)
		}
		if h.Enhanced.IRD != mpa.NotNegotiated {
			out = int(h.Enhanced.IRD)
		}
	}
	return in, out
}

// starting are the accepted connections of an adapter whose first FPDU is awaited, oldest first. They all have the same
// time, so that one timer, for the oldest, serves all: one for each would be set and stopped with every connection, and the
// runtime wakes a thread for one that is nearer than the others.
type starting struct {
	limit time.Duration

	mu      sync.Mutex
	conns   list.List // of started
	timer   *time.Timer
	running bool // the timer
	stopped bool
}

type started struct {
	c  *conn
	by time.Time
}

// add begins the wait for a connection's first FPDU.
func (s *starting) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.start = s.conns.PushBack(started{c, time.Now().Add(s.limit)})
	if s.running || s.stopped {
		return
	}
	s.running = true
	if s.timer == nil {
		s.timer = time.AfterFunc(s.limit, s.expire)
	} else {
		s.timer.Reset(s.limit)
	}
}

// remove ends the wait, if there is one. The timer runs on, and is set for whoever is the oldest when it ends.
func (s *starting) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.start != nil {
		s.conns.Remove(c.start)
		c.start = nil
	}
}

// expire is the timer's: it ends the connections whose time is up.
func (s *starting) expire() {
	var late []*conn
	s.mu.Lock()
	s.running = false
	for e := s.conns.Front(); e != nil; e = s.conns.Front() {
		w := e.Value.(started)
		if rest := time.Until(w.by); rest > 0 {
			if !s.stopped {
				s.running = true
				s.timer.Reset(rest)
			}
			break
		}
		s.conns.Remove(e)
		w.c.start = nil
		late = append(late, w.c)
	}
	s.mu.Unlock()
	for _, c := range late {
		c.endSetUp(errNoFPDU)
	}
}

// stop ends the timer with the adapter's instance, whose QPs are gone.
func (s *starting) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
