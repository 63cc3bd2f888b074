package faultnet

import (
	"sync"
	"syscall"
	"time"

	"kdapl/internal/netio"
)

// pair is one connection. Its end 0 dialled, and dirs[i] is what end i sends.
//
// What happens by itself (bytes, an end or a reset arrive, an end gives up) is not done by timers:
// every call begins with advance, which does what is due, in the order of time.
type pair struct {
	gone func() // unregisters the pair; called once, without mu

	// userGone is nil, except where end 1 stands for a real connection (see Wrap): there it is closed
	// when end 0 is.
	userGone chan struct{}

	mu     sync.Mutex
	dirs   [2]stream
	ends   [2]*Conn
	dark   bool
	darkAt time.Time
	rude   bool // end 0 was closed with a reset
	over   bool // gone was called
}

// transition is something that happens by itself.
type transition uint8

const (
	nothing transition = iota
	arrives            // the first segment of dirs[side]
	ends               // the end of dirs[side]
	resets             // the reset of ends[side]
	givesUp            // ends[side], by its user time-out or keepalive
)

// due finds what happens first, to which side, and when.
func (p *pair) due() (what transition, side int, at time.Time) {
	consider := func(w transition, s int, t time.Time) {
		if what == nothing || t.Before(at) {
			what, side, at = w, s, t
		}
	}
	for i := range p.ends {
		if s := &p.dirs[i]; p.dark {
			// Nothing gets through.
		} else if !s.segs.empty() {
			consider(arrives, i, s.segs.first().at)
		} else if s.fin && !s.finArrived {
			consider(ends, i, s.finAt)
		}
	}
	for i, e := range p.ends {
		if e.dead() {
			continue
		}
		if e.resetDue && !p.dark {
			consider(resets, i, e.resetAt)
		}
		if !e.probeAt.IsZero() && !p.dark {
			consider(resets, i, e.probeAt)
		}
		if t := p.patience(i); !t.IsZero() {
			consider(givesUp, i, t)
		}
	}
	return what, side, at
}

// patience is when end i gives up if nothing changes, or the zero time. The user time-out counts
// from the last progress of what is under way (or from when it was sent), or from when the window
// became full; the keepalive time from when the peer fell silent.
func (p *pair) patience(i int) (t time.Time) {
	e, s := p.ends[i], &p.dirs[i]
	if e.userTimeout > 0 {
		switch {
		case !s.segs.empty():
			t = later(s.segs.first().taken, s.progress)
		case s.fin && !s.finArrived:
			t = later(s.finTaken, s.progress)
		case e.blocked:
			t = e.blockedAt
		}
		if !t.IsZero() {
			t = t.Add(e.userTimeout)
		}
	}
	if p.dark && e.keepAlive > 0 {
		if k := p.darkAt.Add(e.keepAlive); t.IsZero() || k.Before(t) {
			t = k
		}
	}
	return t
}

// advance does everything that is due.
func (p *pair) advance(now time.Time) {
	for {
		what, side, at := p.due()
		if what == nothing || at.After(now) {
			return
		}
		s, sender := &p.dirs[side], p.ends[side]
		receiver := p.ends[1-side]
		switch what {
		case arrives:
			if receiver.dead() {
				s.waste()
				p.answerReset(side, at)
				break
			}
			s.arrive()
			receiver.rd.Open()
		case ends:
			s.finArrived, s.progress = true, at
			if receiver.err != nil || receiver.forgotten {
				p.answerReset(side, at)
			}
			receiver.rd.Open()
		case resets:
			sender.fail(syscall.ECONNRESET, !p.dirs[1-side].plan.KeepOnReset)
		case givesUp:
			sender.fail(syscall.ETIMEDOUT, false)
			receiver.expectProbe(at)
		}
	}
}

// answerReset sends a reset to end side, from the other end or something on the way.
func (p *pair) answerReset(side int, now time.Time) {
	if e := p.ends[side]; !e.resetDue && !e.dead() {
		e.resetDue, e.resetAt = true, now.Add(p.dirs[1-side].plan.Latency)
		e.rd.Open()
		e.wr.Open()
	}
}

// write takes bytes of bufs into the stream of end i, as many as go, and does what is due at their
// positions.
func (p *pair) write(i int, bufs [][]byte, now time.Time) int {
	s := &p.dirs[i]
	room := s.room()
	left := room
	for _, b := range bufs {
		for len(b) > 0 && left > 0 {
			n := s.push(b[:min(len(b), left)], now)
			b = b[n:]
			left -= n
			p.happen(i, now)
		}
	}
	if room > left {
		p.ends[1-i].rd.Open() // to look at the new time of arrival
	}
	return room - left
}

// happen does the events at the position that the stream of end i has reached.
func (p *pair) happen(i int, now time.Time) {
	s := &p.dirs[i]
	for {
		e, ok := s.next()
		if !ok {
			return
		}
		switch e.Kind {
		case Flip:
			s.mask ^= e.Mask
		case Stall:
			s.hold = later(s.hold, now.Add(e.For))
		case Fin:
			s.end(now)
			s.vanish = true
		case Reset:
			s.vanish = true
			p.ends[1-i].resetDue, p.ends[1-i].resetAt = true, s.arrival(0, now)
			p.ends[i].resetDue, p.ends[i].resetAt = true, now.Add(p.dirs[1-i].plan.Latency)
			p.openAll()
		case Dark:
			p.advance(now) // what arrives at once has arrived
			p.goDark(now)
		}
	}
}

func (p *pair) goDark(now time.Time) {
	if !p.dark {
		p.dark, p.darkAt = true, now
		p.openAll()
	}
}

// heal ends the dark: what is under way is sent again.
func (p *pair) heal(now time.Time) {
	if !p.dark {
		return
	}
	p.dark = false
	for i := range p.dirs {
		t := now.Add(p.dirs[i].plan.Latency)
		p.dirs[i].delay(t)
		p.ends[1-i].resetAt = later(p.ends[1-i].resetAt, t)
	}
	p.openAll()
}

// openAll makes every waiter look again, after something that changes what is due.
func (p *pair) openAll() {
	for _, e := range p.ends {
		e.rd.Open()
		e.wr.Open()
	}
}

// expectProbe notes that the other end has gone without a word: this one finds out by its next keepalive
// probe, unless it sends something before.
func (e *Conn) expectProbe(now time.Time) {
	if e.keepAlive > 0 && !e.dead() {
		e.probeAt = now.Add(e.keepAlive)
		e.rd.Open()
		e.wr.Open()
	}
}

// unlock ends a call. It lets the network forget a connection that has no life left.
func (p *pair) unlock() {
	forget := !p.over && p.ends[0].dead() && p.ends[1].dead()
	p.over = p.over || forget
	p.mu.Unlock()
	if forget {
		p.gone()
	}
}

// fail ends the life of one end with errno. If purge, what it has not read is lost. What is under way
// to it arrives and is answered with a reset.
func (e *Conn) fail(errno syscall.Errno, purge bool) {
	e.err = &netio.Error{Stage: netio.StageRead, Local: e.local, Remote: e.remote, Err: errno}
	e.p.dirs[e.side].drop()
	if purge {
		e.p.dirs[1-e.side].purge()
	}
	e.rd.Open()
	e.wr.Open()
}
