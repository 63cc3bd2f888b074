package faultnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/internal/netio"
)

var localhost = netip.MustParseAddr("127.0.0.1")

// wrapped connects two real sockets and puts plan over the dialling one.
func wrapped(t *testing.T, plan Plan) (a *Conn, b netio.Conn) {
	t.Helper()
	c, d := connect(t, &netio.TCP{}, &netio.TCP{}, localhost)
	a = Wrap(c, plan)
	t.Cleanup(func() {
		a.Abort()
		d.Close()
	})
	until := time.Now().Add(20 * time.Second)
	for _, e := range []netio.Conn{a, d} {
		e.SetReadDeadline(until)
		e.SetWriteDeadline(until)
	}
	return a, d
}

func TestWrappedSocketShowsThePlan(t *testing.T) {
	at := int64(len(message) / 2)
	before := string(message[:at])
	flipped := []byte(string(message))
	flipped[at] ^= 0x20
	for _, c := range []struct {
		kind Kind
		want string
		err  error
	}{{Split, string(message), io.EOF}, {Flip, string(flipped), io.EOF}, {Stall, string(message), io.EOF}, {Fin, before, io.EOF}} {
		e := Event{At: at, Kind: c.kind, Mask: 0x20, For: 10 * time.Millisecond}
		for _, up := range []bool{true, false} {
			t.Run(fmt.Sprint(c.kind, up), func(t *testing.T) {
				plan := Plan{Up: Stream{Events: []Event{e}}}
				if !up {
					plan = plan.Swap()
				}
				a, b := wrapped(t, plan)
				var from, to netio.Conn = a, b
				if !up {
					from, to = b, a
				}
				if a.LocalAddr() != b.RemoteAddr() || a.RemoteAddr() != b.LocalAddr() || a.MSS() < 500 {
					t.Errorf("%v to %v, MSS %d", a.LocalAddr(), a.RemoteAddr(), a.MSS())
				}
				if err := errors.Join(send(from, message), from.CloseWrite()); err != nil {
					t.Fatal(err)
				}
				if got, err := receive(to); string(got) != c.want || err != c.err {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
	}
}

func TestWrappedResetReachesBothEnds(t *testing.T) {
	a, b := wrapped(t, Plan{Up: Stream{KeepOnReset: true, Events: []Event{{At: 3, Kind: Reset}}}})
	if err := send(a, message[:3]); err != nil {
		t.Fatal(err)
	}
	got, err := receive(b)
	if !errors.Is(err, netio.ErrReset) || len(got) > 3 {
		t.Errorf("peer: %q, %v", got, err)
	}
	if _, err := receive(a); !errors.Is(err, netio.ErrReset) {
		t.Errorf("user: %v", err)
	}
}

func TestWrappedDarkIsSilentUntilTheUserCloses(t *testing.T) {
	a, b := wrapped(t, Plan{Up: Stream{Events: []Event{{At: 3, Kind: Dark}}}})
	if err := send(a, message); err != nil {
		t.Fatal(err)
	}
	if err := send(b, message); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]netio.Conn{"user": a, "peer": b} {
		want := 0
		if c == b {
			want = 3
		}
		for got := 0; got < want; {
			if err := c.WaitReadable(); err != nil {
				t.Fatal(err)
			}
			n, err := c.TryReadv([][]byte{make([]byte, 100)})
			if got += n; err != nil && err != netio.ErrWouldBlock || got > want {
				t.Fatalf("%s: %d bytes, %v", name, got, err)
			}
		}
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if err := c.WaitReadable(); err != os.ErrDeadlineExceeded {
			t.Errorf("%s hears something: %v", name, err)
		}
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
	}
	a.Close()
	if _, err := receive(b); !errors.Is(err, netio.ErrReset) {
		t.Errorf("after Close: %v", err)
	}
}

// An end that gave up by itself says nothing when it is closed; the real connection ends all the same, and the
// goroutines between.
func TestWrappedCloseAfterGivingUpEndsTheRealConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := endCase(t, Plan{}, 0, 0)
		p := Plan{Up: Stream{Rate: 100, MSS: 1000}}
		a := wrap(c, p, endConfig{addr: c.LocalAddr(), userTimeout: time.Second})
		mustSend(t, a, string(make([]byte, 1000)))
		wantErr(t, "user", readErr(t, a), netio.ErrTimedOut)
		a.Close()
		wantErr(t, "peer", readErr(t, d), netio.ErrReset)
		d.Close()
	})
}

// The user's close, in every manner, ends the real connection and the goroutines between (TestMain
// looks for those), although the real peer does nothing.
func TestWrappedCloseEndsTheRealConnection(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(a *Conn) error
		want []error
	}{
		{"close", (*Conn).Close, []error{io.EOF}},
		{"close after close write", func(a *Conn) error { return errors.Join(a.CloseWrite(), a.Close()) }, []error{io.EOF}},
		{"abort", (*Conn).Abort, []error{netio.ErrReset}},
		{"abort after close write", func(a *Conn) error { return errors.Join(a.CloseWrite(), a.Abort()) }, []error{io.EOF, netio.ErrReset}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := wrapped(t, Plan{Up: Stream{Latency: time.Millisecond, KeepOnReset: true}})
			if err := send(a, []byte("last")); err != nil {
				t.Fatal(err)
			}
			if err := c.end(a); err != nil {
				t.Fatal(err)
			}
			got, err := receive(b)
			if !slices.ContainsFunc(c.want, func(w error) bool { return errors.Is(err, w) }) || err == io.EOF && string(got) != "last" {
				t.Errorf("%q, %v", got, err)
			}
			// A close ends both directions: sending to it is answered with a reset.
			for err = nil; err == nil; {
				if err = send(b, []byte("x")); err == nil {
					time.Sleep(time.Millisecond)
				}
			}
			if !errors.Is(err, netio.ErrReset) {
				t.Errorf("write: %v", err)
			}
		})
	}
}

func TestRealEndingsReachTheUser(t *testing.T) {
	a, b := wrapped(t, Plan{})
	if err := errors.Join(send(b, message), b.CloseWrite()); err != nil {
		t.Fatal(err)
	}
	if got, err := receive(a); string(got) != string(message) || err != io.EOF {
		t.Fatalf("%q, %v", got, err)
	}
	b.Abort()
	var err error
	for err == nil {
		if err = send(a, []byte("x")); err == nil {
			time.Sleep(time.Millisecond)
		}
	}
	if !errors.Is(err, netio.ErrReset) {
		t.Errorf("%v", err)
	}
}

func TestWrappedNetworkPlansEveryConnection(t *testing.T) {
	plans := []Plan{
		{Refuse: true},
		{Hang: true},
		{Up: Stream{Events: []Event{{At: 1, Kind: Flip, Mask: 'a' ^ 'b'}}}},       // the dialling side's,
		{Down: Stream{Events: []Event{{At: 2, Kind: Fin}}}, AcceptDelay: 1000000}, // and the accepting side's
	}
	w := &WrappedNetwork{Under: &netio.TCP{}, UserTimeout: 20 * time.Millisecond}
	w.Plan = func(a Attempt) Plan { return plans[a.Index] }
	ctx := context.Background()
	ln, err := w.Listen(ctx, netip.AddrPortFrom(localhost, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = w.Dial(ctx, netip.AddrPort{}, ln.Addr())
	wantSetup(t, "refused", err, netio.StageConnect, ln.Addr(), netio.ErrRefused)
	_, err = w.Dial(ctx, netip.AddrPort{}, ln.Addr())
	wantSetup(t, "hanging", err, netio.StageConnect, ln.Addr(), netio.ErrTimedOut)
	a, err := w.Dial(ctx, netip.AddrPort{}, ln.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := errors.Join(send(a, []byte("abc")), send(b, []byte("def")), a.CloseWrite()); err != nil {
		t.Fatal(err)
	}
	if got, err := receive(b); string(got) != "aac" || err != io.EOF {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := receive(a); string(got) != "de" || err != io.EOF {
		t.Errorf("%q, %v", got, err)
	}
}
