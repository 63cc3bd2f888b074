package faultnet

import (
	"bytes"
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/internal/netio"
)

// endCase is a connection whose hosts give up after these times.
func endCase(t *testing.T, plan Plan, userTimeout, keepAlive time.Duration) (a, b *Conn) {
	t.Helper()
	_, x, y := twoHosts(plan)
	for _, h := range []*Host{x, y} {
		h.UserTimeout, h.KeepAlive = userTimeout, keepAlive
	}
	c, d := connect(t, x, y, addrB)
	return c.(*Conn), d.(*Conn)
}

// readErr waits for the end of c's input and what it is.
func readErr(t *testing.T, c *Conn) error {
	t.Helper()
	got, err := receive(c)
	if len(got) > 0 {
		t.Fatalf("unexpected bytes %q", got)
	}
	return err
}

func mustSend(t *testing.T, c *Conn, p string) {
	t.Helper()
	if err := send(c, []byte(p)); err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func wantAfter(t *testing.T, start time.Time, d time.Duration) {
	t.Helper()
	if got := time.Since(start); got != d {
		t.Errorf("after %v, want %v", got, d)
	}
}

func TestResetDestroysWhatIsNotRead(t *testing.T) {
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := endCase(t, Plan{Up: Stream{KeepOnReset: keep, Latency: time.Second}}, 0, 0)
			mustSend(t, a, "arrived")
			time.Sleep(time.Minute)
			mustSend(t, a, "under way")
			a.Abort()
			time.Sleep(time.Minute)
			want := ""
			if keep {
				want = "arrived"
			}
			got, err := receive(b)
			wantErr(t, "read", err, netio.ErrReset)
			if string(got) != want {
				t.Errorf("keep %v: %q", keep, got)
			}
			var e *netio.Error
			if !errors.As(err, &e) || e.Local != b.LocalAddr() || e.Remote != a.LocalAddr() || e.Err != syscall.ECONNRESET {
				t.Errorf("%#v", err)
			}
		})
	}
}

// RFC 9293, section 3.6: data that nobody will read is answered with a reset.
func TestClosingWithUnreadInputResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := endCase(t, Plan{}, 0, 0)
		mustSend(t, a, "unread")
		mustSend(t, b, "last words")
		b.Close()
		_, err := receive(a)
		wantErr(t, "read", err, netio.ErrReset)
	})
}

func TestInputAfterCloseResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := endCase(t, Plan{Up: Stream{Latency: time.Second}, Down: Stream{Latency: 2 * time.Second}}, 0, 0)
		b.Close()
		wantErr(t, "read", readErr(t, a), io.EOF)
		start := time.Now()
		mustSend(t, a, "too late") // taken: this end does not know that b is gone and not only silent
		for {
			if _, err := a.TryWritev([][]byte{{1}}); err != nil {
				wantErr(t, "write", err, netio.ErrReset)
				break
			}
			time.Sleep(time.Millisecond)
		}
		wantAfter(t, start, 3*time.Second) // there and back
		wantErr(t, "read", readErr(t, a), netio.ErrReset)
	})
}

// In-flight input at the time of Close is found out about when it arrives.
func TestInputUnderWayAtCloseResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := endCase(t, Plan{Up: Stream{Latency: time.Second}}, 0, 0)
		mustSend(t, a, "under way")
		b.Close()
		wantErr(t, "read before", readErr(t, a), io.EOF)
		time.Sleep(time.Second)
		wantErr(t, "read after", readErr(t, a), netio.ErrReset)
	})
}

func TestOrderlyEndOnBothSidesResetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := endCase(t, Plan{Up: Stream{Latency: time.Second}}, 0, 0)
		mustSend(t, a, "bye")
		a.CloseWrite()
		got, err := receive(b)
		if err != io.EOF || string(got) != "bye" {
			t.Fatalf("%q, %v", got, err)
		}
		b.Close()
		wantErr(t, "read", readErr(t, a), io.EOF)
		a.Close()
	})
}

// A vanished peer: who has something under way gives up after the user time-out, who is idle after
// the keepalive time; an end that has neither waits for ever.
func TestDarkEndsByUserTimeoutOrKeepalive(t *testing.T) {
	for _, c := range []struct {
		name                   string
		userTimeout, keepAlive time.Duration
		sends                  bool
		after                  time.Duration
	}{
		{"sender", 30 * time.Second, 2 * time.Minute, true, 40 * time.Second},
		{"idle", 30 * time.Second, 2 * time.Minute, false, 2 * time.Minute},
		{"sender without user time-out", 0, 2 * time.Minute, true, 2 * time.Minute},
		{"sender, keepalive first", 5 * time.Minute, 2 * time.Minute, true, 2 * time.Minute},
		{"idle without keepalive", 30 * time.Second, 0, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := endCase(t, Plan{}, c.userTimeout, c.keepAlive)
				mustSend(t, a, "before")
				b.TryReadv([][]byte{make([]byte, 10)})
				start := time.Now()
				a.GoDark()
				time.Sleep(10 * time.Second)
				if c.sends {
					mustSend(t, a, "into the dark")
				}
				a.SetReadDeadline(start.Add(time.Hour))
				_, err := receive(a)
				if c.after == 0 {
					wantAfter(t, start, time.Hour)
					return
				}
				wantAfter(t, start, c.after)
				wantErr(t, "read", err, netio.ErrTimedOut)
				_, err = a.TryWritev([][]byte{{1}})
				wantErr(t, "write", err, netio.ErrTimedOut)
				if n, err := b.TryReadv([][]byte{make([]byte, 1)}); n != 0 || err != netio.ErrWouldBlock && !errors.Is(err, netio.ErrTimedOut) {
					t.Errorf("the other end reads %d, %v", n, err)
				}
			})
		})
	}
}

// An end whose last bytes, or whose FIN, are not acknowledged gives up too.
func TestUnacknowledgedEndTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := endCase(t, Plan{Up: Stream{Events: []Event{{At: 0, Kind: Dark}}}}, 30*time.Second, 0)
		start := time.Now()
		if err := a.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "read", readErr(t, a), netio.ErrTimedOut)
		wantAfter(t, start, 30*time.Second)
	})
}

// One end gives up, because a slow line makes no progress for its user time-out, and tells nobody, as TCP does not: the
// other one has nothing to send, and finds out by its keepalive.
func TestKeepAliveFindsAPeerThatGaveUp(t *testing.T) {
	for _, closes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, b := endCase(t, Plan{Up: Stream{Rate: 100, MSS: 1000}}, time.Second, time.Minute)
			start := time.Now()
			mustSend(t, a, string(make([]byte, 1000)))
			wantErr(t, "the sender", readErr(t, a), netio.ErrTimedOut)
			wantAfter(t, start, time.Second)
			if closes {
				a.Close()
			}
			wantErr(t, "the receiver", readErr(t, b), netio.ErrReset)
			wantAfter(t, start, time.Second+time.Minute)
		})
	}
}

func TestHealedConnectionGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := endCase(t, Plan{Up: Stream{Latency: time.Second}}, 30*time.Second, 0)
		mustSend(t, a, "under way, ")
		a.GoDark()
		a.GoDark()
		mustSend(t, a, "in the dark")
		a.CloseWrite()
		time.Sleep(20 * time.Second)
		if _, err := b.TryReadv([][]byte{make([]byte, 1)}); err != netio.ErrWouldBlock {
			t.Fatal(err)
		}
		start := time.Now()
		a.Heal()
		got, err := receive(b)
		if string(got) != "under way, in the dark" || err != io.EOF {
			t.Fatalf("%q, %v", got, err)
		}
		wantAfter(t, start, time.Second)
	})
}

// Half open: one end gave up in the dark, and the other finds out when it sends after the healing.
func TestHalfOpenConnectionIsResetWhenUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := endCase(t, Plan{}, 30*time.Second, 0)
		a.GoDark()
		mustSend(t, a, "lost")
		wantErr(t, "the one", readErr(t, a), netio.ErrTimedOut)
		a.Heal()
		b.SetReadDeadline(time.Now().Add(time.Hour))
		if err := b.WaitReadable(); err == nil {
			t.Fatal("the other end found out by itself")
		}
		b.SetReadDeadline(time.Time{})
		mustSend(t, b, "anybody there?")
		wantErr(t, "the other", readErr(t, b), netio.ErrReset)
	})
}

// A peer that takes nothing for the user time-out loses the connection (RFC 5482 counts a closed
// window); one that takes a little in time does not.
func TestStalledReaderTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := endCase(t, Plan{Up: Stream{Window: 100}}, 30*time.Second, 0)
		done := make(chan error, 1)
		start := time.Now()
		go func() { done <- send(a, make([]byte, 200)) }()
		for range 3 { // slowly, but not stalled
			time.Sleep(20 * time.Second)
			if n, err := b.TryReadv([][]byte{make([]byte, 10)}); n != 10 || err != nil {
				t.Fatal(n, err)
			}
		}
		wantErr(t, "write", <-done, netio.ErrTimedOut)
		wantAfter(t, start, 90*time.Second)
	})
}

// A full window that nobody wants to fill further is no stall.
func TestFullWindowAloneIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := endCase(t, Plan{Up: Stream{Window: 100}}, 30*time.Second, 0)
		mustSend(t, a, string(make([]byte, 100)))
		time.Sleep(time.Hour)
		if n, err := b.TryReadv([][]byte{make([]byte, 100)}); n != 100 || err != nil {
			t.Fatal(n, err)
		}
		mustSend(t, a, "more")
	})
}

func TestStallShorterThanUserTimeoutIsSurvived(t *testing.T) {
	for _, c := range []struct {
		stall time.Duration
		err   error
	}{
		{29 * time.Second, netio.ErrReset}, // lives to hear that b closed with unread input
		{31 * time.Second, netio.ErrTimedOut},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := endCase(t, Plan{Up: Stream{Events: []Event{{At: 2, Kind: Stall, For: c.stall}}}}, 30*time.Second, 0)
			mustSend(t, a, "slow")
			time.Sleep(time.Minute)
			b.Close()
			_, err := receive(a)
			wantErr(t, c.stall.String(), err, c.err)
		})
	}
}

// Break is a reset from outside, for both ends at once.
func TestBreakResetsBothEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := endCase(t, Plan{}, 0, 0)
		errs := make(chan error, 2)
		go func() { errs <- a.WaitReadable() }()
		go func() { errs <- b.WaitReadable() }()
		synctest.Wait()
		a.Break()
		for range 2 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []*Conn{a, b} {
			wantErr(t, "read", readErr(t, c), netio.ErrReset)
			wantErr(t, "write", send(c, []byte("x")), netio.ErrReset)
			if err := c.CloseWrite(); err != nil {
				t.Errorf("CloseWrite of a broken connection: %v", err)
			}
			c.Break() // again is harmless
		}
	})
}

// Two ends that abort at the same time, or close and abort, in every order and state.
func TestAnyTwoEndings(t *testing.T) {
	endings := map[string]func(*Conn) error{"close": (*Conn).Close, "abort": (*Conn).Abort, "close write": (*Conn).CloseWrite, "none": func(*Conn) error { return nil }}
	for na, ea := range endings {
		for nb, eb := range endings {
			for _, latency := range []time.Duration{0, time.Second} {
				for _, unread := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						s := Stream{Latency: latency}
						_, x, y := twoHosts(Plan{Up: s, Down: s})
						c, d := connect(t, x, y, addrB)
						a, b := c.(*Conn), d.(*Conn)
						if unread {
							mustSend(t, a, "up")
							mustSend(t, b, "down")
						}
						if err := errors.Join(ea(a), eb(b)); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Minute)
						for _, e := range []*Conn{a, b} {
							e.SetReadDeadline(time.Now())
							_, err := receive(e)
							if err == nil || err == netio.ErrWouldBlock {
								t.Errorf("%s and %s: %v", na, nb, err)
							}
							if err := e.Close(); err != nil {
								t.Errorf("%s and %s: %v", na, nb, err)
							}
						}
						time.Sleep(time.Minute)
						if left := x.n.Conns(); len(left) != 0 {
							t.Errorf("%s and %s: %d connections left", na, nb, len(left))
						}
					})
				}
			}
		}
	}
}

// Writing into a connection that the receiver has left fills the window and no more, until the reset.
func TestDeadReceiverDoesNotTakeForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := endCase(t, Plan{Up: Stream{Window: 1000}, Down: Stream{Latency: time.Second}}, 0, 0)
		b.Abort()
		taken := 0
		for {
			n, err := a.TryWritev([][]byte{bytes.Repeat([]byte{1}, 300)})
			taken += n
			if err == netio.ErrWouldBlock {
				break
			}
			if err != nil || taken > 1000 {
				t.Fatal(taken, err)
			}
		}
		start := time.Now()
		wantErr(t, "write", send(a, []byte("x")), netio.ErrReset)
		wantAfter(t, start, time.Second)
	})
}
