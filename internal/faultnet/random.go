package faultnet

import (
	"math/rand/v2"
	"time"
)

// Lossless draws a plan that lets every byte through, in order and unchanged, though late and in odd
// pieces. span is about how many bytes each direction will carry; events fall within it.
func Lossless(seed uint64, span int64) Plan {
	rng := rand.New(rand.NewPCG(seed, 'l'))
	p := Plan{
		Seed:        seed,
		DialDelay:   someTime(rng, 4),
		AcceptDelay: someTime(rng, 4),
		Up:          losslessStream(rng, span),
		Down:        losslessStream(rng, span),
	}
	return p
}

// Faulty draws a plan like Lossless, with one fault that the ends must notice: a byte changed, the
// stream ended, the connection reset or dark, at a position from 0 to span, or no connection at all.
func Faulty(seed uint64, span int64) Plan {
	p := Lossless(seed, span)
	rng := rand.New(rand.NewPCG(seed, 'f'))
	s := &p.Up
	if rng.IntN(2) == 0 {
		s = &p.Down
	}
	e := Event{At: rng.Int64N(max(span, 0) + 1)}
	switch rng.IntN(16) {
	case 0:
		p.Refuse = true
		return p
	case 1:
		p.Hang = true
		return p
	case 2, 3, 4, 5, 6:
		e.Kind, e.Mask = Flip, byte(1+rng.IntN(255))
	case 7, 8, 9:
		e.Kind = Fin
	case 10, 11, 12:
		e.Kind = Reset
		p.Up.KeepOnReset, p.Down.KeepOnReset = rng.IntN(2) == 0, rng.IntN(2) == 0
	default:
		e.Kind = Dark
	}
	s.Events = append(s.Events, e)
	return p
}

// Each makes a Network's Plan of one of the above: every attempt gets a plan of its own, all of them
// drawn from seed.
func Each(seed uint64, span int64, draw func(seed uint64, span int64) Plan) func(Attempt) Plan {
	return func(a Attempt) Plan {
		return draw(rand.New(rand.NewPCG(seed, uint64(a.Index))).Uint64(), span)
	}
}

func losslessStream(rng *rand.Rand, span int64) Stream {
	s := Stream{
		Latency: someTime(rng, 2),
		Jitter:  someTime(rng, 3),
	}
	if rng.IntN(4) == 0 {
		s.Rate = 1000 << rng.IntN(20)
	}
	if rng.IntN(3) == 0 {
		s.Window = 1 + rng.IntN(1<<(4+rng.IntN(14)))
	}
	if rng.IntN(3) == 0 {
		s.MSS = 128 + rng.IntN(9000)
	}
	if rng.IntN(2) == 0 {
		s.ReadMax = 1 + rng.IntN(1<<rng.IntN(13))
	}
	if rng.IntN(2) == 0 {
		s.WriteMax = 1 + rng.IntN(1<<rng.IntN(13))
	}
	for range rng.IntN(4) {
		e := Event{At: rng.Int64N(max(span, 0) + 1)}
		if rng.IntN(2) == 0 {
			e.Kind, e.For = Stall, 1+someTime(rng, 1)
		}
		s.Events = append(s.Events, e)
	}
	return s
}

// someTime draws a time from microseconds to a tenth of a second, each magnitude as likely; 0 all but
// one time in oneIn.
func someTime(rng *rand.Rand, oneIn int) time.Duration {
	if rng.IntN(oneIn) != 0 {
		return 0
	}
	limit := time.Microsecond
	for range rng.IntN(6) {
		limit *= 10
	}
	return time.Duration(rng.Int64N(int64(limit)))
}
