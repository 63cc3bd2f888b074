// Package netiotest is the test suite that every implementation of netio.Conn passes.
package netiotest

import (
	"errors"
	"net"
	"testing"
	"time"

	"kdapl/internal/netio"
)

// Suite says what is tested.
type Suite struct {
	// Pair makes two connected ends. The suite closes them.
	Pair func(t *testing.T) (a, b netio.Conn)

	// In runs one case, in a testing/synctest bubble for one that has fake time; nil runs it as it is.
	In func(t *testing.T, f func(t *testing.T))

	// What a connection made of some other net.Conn may lack.
	NoHalfClose bool // CloseWrite is not supported
	NoReset     bool // Abort cannot be told from Close by the peer
	NoAddresses bool
	Allocates   bool // the net.Conn does, by itself
}

// patience bounds every wait of the suite; nothing comes near it unless it is stuck.
const patience = 20 * time.Second

type testCase struct {
	name string
	run  func(t *testing.T, s *Suite, a, b netio.Conn)
	skip func(s *Suite) string
}

// Run runs the suite.
func (s Suite) Run(t *testing.T) {
	in := s.In
	if in == nil {
		in = func(t *testing.T, f func(*testing.T)) { f(t) }
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.skip != nil {
				if why := c.skip(&s); why != "" {
					t.Skip(why)
				}
			}
			in(t, func(t *testing.T) {
				a, b := s.Pair(t)
				defer a.Close()
				defer b.Close()
				until := time.Now().Add(patience)
				for _, end := range []netio.Conn{a, b} {
					if err := errors.Join(end.SetReadDeadline(until), end.SetWriteDeadline(until)); err != nil {
						t.Fatal(err)
					}
				}
				c.run(t, &s, a, b)
			})
		})
	}
}

var cases = []testCase{
	{name: "empty read would block", run: emptyRead},
	{name: "no room and no bytes move nothing", run: nothingToMove},
	{name: "bytes arrive in order", run: order},
	{name: "unread peer makes writes partial, then would-block", run: backpressure},
	{name: "wait reports the state, not the change", run: waitIsLevel},
	{name: "wait wakes for input", run: waitWakes},
	{name: "a reader may overtake the waiter", run: overtake},
	{name: "close ends waits", run: func(t *testing.T, s *Suite, a, b netio.Conn) { endWaits(t, a, a.Close) }},
	{name: "abort ends waits", run: func(t *testing.T, s *Suite, a, b netio.Conn) { endWaits(t, a, a.Abort) }},
	{name: "after close everything reports closed", run: afterClose},
	{name: "close delivers what was taken", run: closeDelivers},
	{name: "close write ends one direction", run: halfClose, skip: needHalfClose},
	{name: "abort resets the peer", run: abort, skip: needReset},
	{name: "a reset is never read as an end, whoever saw it first", run: resetSeenByWriter, skip: needReset},
	{name: "deadline bounds the wait", run: deadline},
	{name: "deadline in the past calls the waiter back", run: deadlineMoves},
	{name: "the two ends agree on addresses", run: addresses, skip: needAddresses},
	{name: "mss is known at any time", run: mss},
	{name: "both directions at once", run: duplex},
	{name: "steady state allocates nothing", run: allocations, skip: needThrift},
}

func needHalfClose(s *Suite) string {
	if s.NoHalfClose {
		return "this connection cannot close one direction"
	}
	return ""
}

func needReset(s *Suite) string {
	if s.NoReset {
		return "this connection has no reset"
	}
	return ""
}

func needAddresses(s *Suite) string {
	if s.NoAddresses {
		return "this connection has no addresses"
	}
	return ""
}

func needThrift(s *Suite) string {
	switch {
	case s.Allocates:
		return "the net.Conn below allocates"
	case raceEnabled:
		return "the race detector allocates"
	}
	return ""
}

// write writes all of p, waiting as needed.
func write(t *testing.T, c netio.Conn, p []byte) {
	t.Helper()
	for len(p) > 0 {
		n, err := c.TryWritev([][]byte{p})
		if err == netio.ErrWouldBlock {
			err = c.WaitWritable()
		}
		if err != nil {
			t.Fatalf("write with %d bytes left: %v", len(p), err)
		}
		p = p[n:]
	}
}

// read reads exactly n bytes, waiting as needed.
func read(t *testing.T, c netio.Conn, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	for rest := p; len(rest) > 0; {
		n, err := c.TryReadv([][]byte{rest})
		if err == netio.ErrWouldBlock {
			err = c.WaitReadable()
		}
		if err != nil {
			t.Fatalf("read with %d bytes left: %v", len(rest), err)
		}
		rest = rest[n:]
	}
	return p
}

// readEnd waits for what follows the last byte: fails if there is one more.
func readEnd(t *testing.T, c netio.Conn) error {
	t.Helper()
	for {
		n, err := c.TryReadv([][]byte{make([]byte, 16)})
		if n > 0 {
			t.Fatalf("%d bytes where the stream ends", n)
		}
		if err != netio.ErrWouldBlock {
			return err
		}
		if err := c.WaitReadable(); err != nil {
			t.Fatalf("waiting for the end: %v", err)
		}
	}
}

// writeUntil writes without end, waiting as needed, until there is an error. Where the peer does not
// read, this is a goroutine that sleeps in WaitWritable, except for a moment now and then when the
// system finds room for a little more.
func writeUntil(c netio.Conn) error {
	chunk := make([]byte, 64<<10)
	for {
		_, err := c.TryWritev([][]byte{chunk})
		if err == netio.ErrWouldBlock {
			err = c.WaitWritable()
		}
		if err != nil {
			return err
		}
	}
}

func wantClosed(t *testing.T, what string, err error) {
	t.Helper()
	if err != net.ErrClosed {
		t.Errorf("%s: %v, want net.ErrClosed itself", what, err)
	}
}
