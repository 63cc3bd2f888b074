package faultnet

import (
	"slices"
	"time"
)

// Plan says what befalls one connection. The zero Plan is a perfect network: every byte arrives at
// once. Its text form (String, Parse) holds all of it.
type Plan struct {
	// Seed is what the sizes of split reads and writes and the jitter are drawn from. They depend
	// on positions in the stream, not on when or how often anybody asks.
	Seed uint64

	Refuse bool // the attempt is answered with a reset: connection refused
	Hang   bool // the attempt is not answered

	// DialDelay is by how much later than needed the dialling end is connected. AcceptDelay is by
	// how much later the listener has the connection; since it differs between connections, they may
	// be accepted in another order than dialled, and after the first bytes or the end has come.
	DialDelay, AcceptDelay time.Duration

	Up   Stream // from the dialling end
	Down Stream // from the accepting end
}

// Stream says what befalls one direction of a connection.
type Stream struct {
	Latency time.Duration // on every byte
	Jitter  time.Duration // on every MSS bytes, drawn from [0, Jitter); order is kept
	Rate    int           // bytes per second; 0 is unlimited
	Window  int           // bytes that are taken and not read yet, at most; 0 is DefaultWindow
	MSS     int           // what the sender is told, in bytes; 0 is netio.DefaultMSS

	// ReadMax and WriteMax split the stream in pieces of 1 to that many bytes, which no single read
	// or write crosses; 0 does not split. A Split event does so in one place.
	ReadMax, WriteMax int

	// KeepOnReset leaves what has arrived readable after a reset, as Linux does.
	KeepOnReset bool

	// Events happen at their positions; those with the same position in the order given.
	Events []Event
}

// DefaultWindow is the window of a stream that says nothing else, in bytes.
const DefaultWindow = 64 << 10

// Event is something that happens when At bytes of the stream have been sent, so before the byte
// with that index: 0 is as soon as the connection is set up.
type Event struct {
	At   int64
	Kind Kind
	Mask byte          // for Flip: what the byte is xored with
	For  time.Duration // for Stall
}

// Kind is a kind of Event.
type Kind uint8

const (
	// Split ends a read and a write here.
	Split Kind = iota
	// Flip xors the next byte with Mask.
	Flip
	// Stall holds back everything from here on for the time For, counted from when the sender gets
	// here. It goes on sending until the window is full.
	Stall
	// Fin ends the stream here, as if the sender had closed it; what it sends later disappears.
	Fin
	// Reset breaks the connection here: the receiver finds out after the bytes before, the sender
	// after its latency.
	Reset
	// Dark makes the connection deliver nothing any more in either direction, also of what is under
	// way (a peer that vanished, a cable that was pulled), until Conn.Heal.
	Dark
	kinds
)

// prepared returns the stream with its events in order, and nothing that has no meaning.
func (s Stream) prepared() Stream {
	s.Events = slices.Clone(s.Events)
	s.Events = slices.DeleteFunc(s.Events, func(e Event) bool { return e.Kind >= kinds })
	for i := range s.Events {
		s.Events[i].At = max(s.Events[i].At, 0)
	}
	slices.SortStableFunc(s.Events, func(a, b Event) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	s.Latency, s.Jitter = max(s.Latency, 0), max(s.Jitter, 0)
	if s.Window <= 0 {
		s.Window = DefaultWindow
	}
	return s
}

// Swap returns the plan with the two directions exchanged.
func (p Plan) Swap() Plan {
	p.Up, p.Down = p.Down, p.Up
	return p
}
