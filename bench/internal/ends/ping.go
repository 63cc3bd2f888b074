package ends

import (
	"context"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"kdapl/dat"
)

// warmUp is how long goes by before what is measured.
const warmUp = 50 * time.Millisecond

func (e *end) send() error { return e.ep.PostSend(sendCookie, 0, e.lmr.Triplet(0, e.spec.Size)) }

// answer posts the next receive and sends.
func (e *end) answer() error {
	if err := e.receive(e.ep); err != nil {
		return err
	}
	return e.send()
}

// echoPoll answers messages until the connection ends.
func (e *end) echoPoll() error {
	for answered := 0; e.going(); {
		e.progress()
		for ; answered < e.received && e.going(); answered++ {
			if err := e.answer(); err != nil {
				return err
			}
		}
	}
	return e.err
}

// echoWait does so in a goroutine that waits for each event.
func (e *end) echoWait() error {
	for {
		ev, _, err := e.evd.Wait(context.Background(), 1, dat.Infinite)
		if err != nil {
			return err
		}
		switch d := ev.DTO(); {
		case d.Status != dat.StatusSuccess:
			return nil
		case d.Cookie == recvCookie:
			if err := e.answer(); err != nil {
				return err
			}
		}
	}
}

// echoUpcall does so in upcalls.
func (e *end) echoUpcall() error {
	over := make(chan error, 64)
	err := e.evd.ModifyUpcall(dat.UpcallSingleInstance, func(ev dat.Event, _ bool) {
		switch d := ev.DTO(); {
		case d.Status != dat.StatusSuccess:
			over <- nil
		case d.Cookie == recvCookie:
			if err := e.answer(); err != nil {
				over <- err
			}
		}
	}, dat.InvocAny)
	if err != nil {
		return err
	}
	return <-over
}

// clock ends a measurement and counts its rounds.
type clock struct {
	spec    *Spec
	begin   time.Time
	rounds  int
	all     int
	warm    bool
	last    time.Time
	hist    *hdrhistogram.Histogram
	elapsed time.Duration
	every   int
}

func newClock(spec *Spec) *clock {
	c := &clock{spec: spec, begin: time.Now(), every: 16}
	if spec.Size >= 64<<10 || spec.Style != "poll" {
		c.every = 1
	}
	if spec.Histogram {
		c.hist = hdrhistogram.New(1, int64(10*time.Second), 3)
		c.every = 1
	}
	c.last = c.begin
	return c
}

// tick counts a round and reports whether there is to be another.
func (c *clock) tick() bool {
	c.rounds++
	c.all++
	if c.rounds%c.every != 0 {
		return true
	}
	now := time.Now()
	if c.hist != nil && c.warm {
		_ = c.hist.RecordValue(int64(now.Sub(c.last)) / 2) // within its range
	}
	c.last = now
	c.elapsed = now.Sub(c.begin)
	switch {
	case !c.warm && c.elapsed >= warmUp:
		c.warm, c.rounds, c.begin = true, 0, now
	case c.warm && c.elapsed >= c.spec.Time:
		return false
	}
	return true
}

// result is that of round trips.
func (c *clock) result() Result {
	r := Result{US: float64(c.elapsed.Nanoseconds()) / float64(c.rounds) / 2e3, Messages: c.all}
	r.MBPS = float64(c.spec.Size) / r.US
	if c.hist != nil {
		for _, p := range []float64{1, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99} {
			r.Distribution = append(r.Distribution, [2]float64{p, float64(c.hist.ValueAtQuantile(p)) / 1e3})
		}
	}
	return r
}

// pingPong is the client's side.
func (e *end) pingPong() (Result, error) {
	c := newClock(&e.spec)
	var err error
	switch e.spec.Style {
	case "wait":
		err = e.pingWait(c)
	case "upcall":
		err = e.pingUpcall(c)
	default:
		err = e.pingPoll(c)
	}
	return c.result(), err
}

func (e *end) pingPoll(c *clock) error {
	for next := 1; ; next++ {
		if err := e.answer(); err != nil {
			return err
		}
		for e.received < next && e.going() {
			e.progress()
		}
		if !e.going() || !c.tick() {
			return e.err
		}
	}
}

func (e *end) pingWait(c *clock) error {
	for {
		if err := e.answer(); err != nil {
			return err
		}
		for {
			ev, _, err := e.evd.Wait(context.Background(), 1, dat.Infinite)
			if err != nil {
				return err
			}
			if ev.DTO().Cookie == recvCookie {
				break
			}
		}
		if !c.tick() {
			return nil
		}
	}
}

func (e *end) pingUpcall(c *clock) error {
	over := make(chan error, 64)
	stopped := false
	err := e.evd.ModifyUpcall(dat.UpcallSingleInstance, func(ev dat.Event, _ bool) {
		if ev.DTO().Cookie != recvCookie || stopped {
			return
		}
		if !c.tick() {
			stopped = true
			over <- nil
			return
		}
		if err := e.answer(); err != nil {
			over <- err
		}
	}, dat.InvocAny)
	if err != nil {
		return err
	}
	if err := e.answer(); err != nil {
		return err
	}
	return <-over
}
