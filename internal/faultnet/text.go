package faultnet

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// kindNames are the kinds of events in a plan's text.
var kindNames = [kinds]string{Split: "split", Flip: "flip", Stall: "stall", Fin: "fin", Reset: "reset", Dark: "dark"}

// String names a kind as a plan's text does.
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// String writes the plan as a text from which Parse makes an equal one, for example
//
//	seed=7 accept=1ms up(latency=20µs read=7 120:flip=40 300:stall=1s) down(88:reset)
//
// Values that are 0 are left out, except for the seed.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed=%d", p.Seed)
	word(&b, "refuse", p.Refuse)
	word(&b, "hang", p.Hang)
	value(&b, "dial", p.DialDelay)
	value(&b, "accept", p.AcceptDelay)
	p.Up.text(&b, " up")
	p.Down.text(&b, " down")
	return b.String()
}

func word(b *strings.Builder, name string, set bool) {
	if set {
		b.WriteString(" " + name)
	}
}

func value[T comparable](b *strings.Builder, name string, v T) {
	var zero T
	if v != zero {
		fmt.Fprintf(b, " %s=%v", name, v)
	}
}

func (s Stream) text(out *strings.Builder, name string) {
	var b strings.Builder
	value(&b, "latency", s.Latency)
	value(&b, "jitter", s.Jitter)
	value(&b, "rate", s.Rate)
	value(&b, "window", s.Window)
	value(&b, "mss", s.MSS)
	value(&b, "read", s.ReadMax)
	value(&b, "write", s.WriteMax)
	word(&b, "keep", s.KeepOnReset)
	for _, e := range s.Events {
		fmt.Fprintf(&b, " %d:%v", e.At, e.Kind)
		switch e.Kind {
		case Flip:
			fmt.Fprintf(&b, "=%02x", e.Mask)
		case Stall:
			fmt.Fprintf(&b, "=%v", e.For)
		}
	}
	if b.Len() > 0 {
		out.WriteString(name + "(" + strings.TrimPrefix(b.String(), " ") + ")")
	}
}

// Parse makes a plan of its text.
func Parse(text string) (Plan, error) {
	var p Plan
	spaced := strings.NewReplacer("(", " ( ", ")", " ) ").Replace(text)
	var in *Stream // the direction whose parentheses are open
	words := strings.Fields(spaced)
	for i := 0; i < len(words); i++ {
		w := words[i]
		var err error
		switch {
		case in != nil && w == ")":
			in = nil
		case in != nil:
			err = in.parse(w)
		case (w == "up" || w == "down") && i+1 < len(words) && words[i+1] == "(":
			in = &p.Up
			if w == "down" {
				in = &p.Down
			}
			i++
		default:
			err = p.parse(w)
		}
		if err != nil {
			return Plan{}, fmt.Errorf("faultnet: plan %q: %q: %w", text, w, err)
		}
	}
	if in != nil {
		return Plan{}, fmt.Errorf("faultnet: plan %q: no closing parenthesis", text)
	}
	return p, nil
}

func (p *Plan) parse(w string) (err error) {
	name, v, _ := strings.Cut(w, "=")
	switch name {
	case "seed":
		p.Seed, err = strconv.ParseUint(v, 10, 64)
	case "refuse":
		p.Refuse, err = true, none(v)
	case "hang":
		p.Hang, err = true, none(v)
	case "dial":
		p.DialDelay, err = time.ParseDuration(v)
	case "accept":
		p.AcceptDelay, err = time.ParseDuration(v)
	default:
		err = errUnknown
	}
	return err
}

func (s *Stream) parse(w string) (err error) {
	name, v, _ := strings.Cut(w, "=")
	switch name {
	case "latency":
		s.Latency, err = time.ParseDuration(v)
	case "jitter":
		s.Jitter, err = time.ParseDuration(v)
	case "rate":
		s.Rate, err = strconv.Atoi(v)
	case "window":
		s.Window, err = strconv.Atoi(v)
	case "mss":
		s.MSS, err = strconv.Atoi(v)
	case "read":
		s.ReadMax, err = strconv.Atoi(v)
	case "write":
		s.WriteMax, err = strconv.Atoi(v)
	case "keep":
		s.KeepOnReset, err = true, none(v)
	default:
		return s.parseEvent(name, v)
	}
	return err
}

func (s *Stream) parseEvent(name, v string) (err error) {
	at, kind, ok := strings.Cut(name, ":")
	if !ok {
		return errUnknown
	}
	var e Event
	if e.At, err = strconv.ParseInt(at, 10, 64); err != nil {
		return err
	}
	for e.Kind = 0; e.Kind < kinds && kindNames[e.Kind] != kind; e.Kind++ {
	}
	switch e.Kind {
	case kinds:
		return errUnknown
	case Flip:
		var mask uint64
		mask, err = strconv.ParseUint(v, 16, 8)
		e.Mask = byte(mask)
	case Stall:
		e.For, err = time.ParseDuration(v)
	default:
		err = none(v)
	}
	s.Events = append(s.Events, e)
	return err
}

var (
	errUnknown = errors.New("unknown word")
	errValue   = errors.New("takes no value")
)

// none reports a value where none belongs.
func none(v string) error {
	if v != "" {
		return errValue
	}
	return nil
}
