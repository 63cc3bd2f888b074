package faultnet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/internal/netio"
)

func mustListen(t *testing.T, h *Host, local netip.AddrPort) netio.Listener {
	t.Helper()
	ln, err := h.Listen(context.Background(), local)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func mustDial(t *testing.T, h *Host, remote netip.AddrPort) netio.Conn {
	t.Helper()
	c, err := h.Dial(context.Background(), netip.AddrPort{}, remote)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustAccept(t *testing.T, ln netio.Listener) netio.Conn {
	t.Helper()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var service = netip.AddrPortFrom(addrB, 7174)

// wantSetup checks the error of a set-up: stage, addresses and cause (AC-35).
func wantSetup(t *testing.T, what string, err error, stage netio.Stage, remote netip.AddrPort, cause error) {
	t.Helper()
	var e *netio.Error
	if !errors.As(err, &e) || e.Stage != stage || e.Remote != remote || !errors.Is(err, cause) {
		t.Errorf("%s: %v, want stage %q and %v", what, err, stage, cause)
	}
}

func TestAttemptsFailAsOnARealNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		var plan Plan
		n.Plan = func(Attempt) Plan { return plan }
		a, b := n.Host(addrA), n.Host(addrB)
		ctx := context.Background()
		any := netip.AddrPort{}
		//lint:ignore ST1008 the time is beside the point of most callers
		dial := func(ctx context.Context, local, remote netip.AddrPort) (error, time.Duration) {
			start := time.Now()
			_, err := a.Dial(ctx, local, remote)
			return err, time.Since(start)
		}

		plan = Plan{Up: Stream{Latency: time.Second}, Down: Stream{Latency: 2 * time.Second}}
		err, took := dial(ctx, any, service)
		wantSetup(t, "nobody listens", err, netio.StageConnect, service, netio.ErrRefused)
		if took != 3*time.Second {
			t.Errorf("refused after %v", took)
		}

		ln := mustListen(t, b, service)
		defer ln.Close()
		plan = Plan{Refuse: true}
		err, _ = dial(ctx, any, service)
		wantSetup(t, "refused", err, netio.StageConnect, service, netio.ErrRefused)

		plan = Plan{Hang: true}
		cause := errors.New("no patience")
		short, cancel := context.WithTimeoutCause(ctx, time.Minute, cause)
		defer cancel()
		err, took = dial(short, any, service)
		wantSetup(t, "hanging", err, netio.StageConnect, service, cause)
		if took != time.Minute {
			t.Errorf("hung for %v", took)
		}
		err, _ = dial(short, any, service)
		wantSetup(t, "no time left", err, netio.StageConnect, service, cause)

		a.UserTimeout = 20 * time.Second
		err, took = dial(ctx, any, service)
		wantSetup(t, "unanswered", err, netio.StageConnect, service, netio.ErrTimedOut)
		if took != 20*time.Second {
			t.Errorf("gave up after %v", took)
		}

		plan = Plan{}
		nobody := netip.MustParseAddrPort("10.9.9.9:1")
		err, _ = dial(ctx, any, nobody)
		wantSetup(t, "no such host", err, netio.StageConnect, nobody, netio.ErrTimedOut)
		err, _ = dial(ctx, service, service)
		wantSetup(t, "from another's address", err, netio.StageBind, service, syscall.EADDRNOTAVAIL)
		v6 := netip.MustParseAddrPort("[fd00::1]:1")
		err, _ = dial(ctx, any, v6)
		wantSetup(t, "no address of that family", err, netio.StageBind, v6, syscall.EADDRNOTAVAIL)

		local := netip.AddrPortFrom(addrA, 1000)
		c, err := a.Dial(ctx, local, service)
		if err != nil || c.LocalAddr() != local {
			t.Fatal(err)
		}
		err, _ = dial(ctx, local, service)
		wantSetup(t, "port in use", err, netio.StageBind, service, syscall.EADDRINUSE)
		c.Abort()
		mustAccept(t, ln).Close()
		if err, _ = dial(ctx, local, service); err != nil {
			t.Errorf("the port is not free again: %v", err)
		}
	})
}

func TestListenAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		v6 := netip.MustParseAddr("fd00::2")
		a, b := n.Host(addrA, netip.MustParseAddr("fd00::1")), n.Host(addrB, v6)
		for _, c := range []struct {
			local   netip.Addr
			reached []netip.Addr
			missed  []netip.Addr
		}{
			{netip.Addr{}, []netip.Addr{addrB, v6}, nil},
			{netip.IPv4Unspecified(), []netip.Addr{addrB}, []netip.Addr{v6}},
			{netip.IPv6Unspecified(), []netip.Addr{v6}, []netip.Addr{addrB}},
			{v6, []netip.Addr{v6}, []netip.Addr{addrB}},
		} {
			ln := mustListen(t, b, netip.AddrPortFrom(c.local, 0))
			port := ln.Addr().Port()
			if port == 0 || c.local.IsValid() && ln.Addr().Addr() != c.local {
				t.Errorf("%v: listening at %v", c.local, ln.Addr())
			}
			if _, err := b.Listen(context.Background(), netip.AddrPortFrom(c.local, port)); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("%v twice: %v", c.local, err)
			}
			for _, addr := range c.reached {
				x := mustDial(t, a, netip.AddrPortFrom(addr, port))
				y := mustAccept(t, ln)
				if y.LocalAddr() != netip.AddrPortFrom(addr, port) || x.LocalAddr() != y.RemoteAddr() || x.LocalAddr().Addr().Is4() != addr.Is4() {
					t.Errorf("%v: %v to %v, and %v to %v", c.local, x.LocalAddr(), x.RemoteAddr(), y.LocalAddr(), y.RemoteAddr())
				}
			}
			for _, addr := range c.missed {
				if _, err := a.Dial(context.Background(), netip.AddrPort{}, netip.AddrPortFrom(addr, port)); !errors.Is(err, netio.ErrRefused) {
					t.Errorf("%v at %v: %v", c.local, addr, err)
				}
			}
			ln.Close()
			mustListen(t, b, netip.AddrPortFrom(c.local, port)).Close() // free again
		}
		_, err := b.Listen(context.Background(), netip.AddrPortFrom(addrA, 0))
		if !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("another's address: %v", err)
		}
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := b.Listen(cancelled, service); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestListenerCloseEndsAcceptAndResetsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoHosts(Plan{AcceptDelay: time.Hour})
		ln := mustListen(t, b, service)
		accepted := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := ln.Accept()
				accepted <- err
			}()
		}
		c := mustDial(t, a, service)
		synctest.Wait()
		for range 2 {
			if err := ln.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-accepted; err != net.ErrClosed {
				t.Fatal(err)
			}
		}
		if _, err := receive(c); !errors.Is(err, netio.ErrReset) {
			t.Fatal(err)
		}
	})
}

// Whole connections overtake each other: accepted in another order than dialled, and one that is
// over when it is accepted.
func TestConnectionsOvertakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		n.Plan = func(a Attempt) Plan {
			return Plan{AcceptDelay: []time.Duration{3, 1, 2}[a.Index] * time.Second, DialDelay: time.Duration(a.Index) * time.Minute}
		}
		a, b := n.Host(addrA), n.Host(addrB)
		ln := mustListen(t, b, service)
		start := time.Now()
		dialled := make(chan bool, 3)
		for i := range 3 {
			go func() { // all at once, in a known order
				time.Sleep(time.Duration(i))
				c := mustDial(t, a, service)
				if i == 0 {
					mustSend(t, c.(*Conn), "gone already")
					c.Close()
				}
				dialled <- true
			}()
		}
		for _, second := range []int{1, 2, 3} {
			c := mustAccept(t, ln)
			if d := time.Since(start).Truncate(time.Second); d != time.Duration(second)*time.Second {
				t.Errorf("accepted after %v, want %d s", d, second)
			}
			if want := uint16(firstPort + []int{0, 1, 2, 0}[second]); c.RemoteAddr().Port() != want {
				t.Errorf("second %d: from %v, want port %d", second, c.RemoteAddr(), want)
			}
			if second == 3 {
				if got, err := receive(c); string(got) != "gone already" || err != io.EOF {
					t.Errorf("%q, %v", got, err)
				}
			}
		}
		for range 3 {
			<-dialled
		}
	})
}

func TestBacklogHoldsUpFurtherAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoHosts(Plan{})
		ln := mustListen(t, b, service)
		for range Backlog {
			mustDial(t, a, service)
		}
		connected := make(chan error, 1)
		go func() {
			_, err := a.Dial(context.Background(), netip.AddrPort{}, service)
			connected <- err
		}()
		synctest.Wait()
		select {
		case err := <-connected:
			t.Fatalf("connected beyond the backlog: %v", err)
		default:
		}
		mustAccept(t, ln)
		if err := <-connected; err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := a.Dial(context.Background(), netip.AddrPort{}, service)
			connected <- err
		}()
		synctest.Wait()
		ln.Close()
		if err := <-connected; !errors.Is(err, netio.ErrRefused) {
			t.Fatal(err)
		}
	})
}

func TestCutConnectionsAndAttemptsWaitForMending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := twoHosts(Plan{})
		other := n.Host(netip.MustParseAddr("10.0.0.3"))
		x, y := connect(t, a, b, addrB)
		ln := mustListen(t, b, service)
		defer ln.Close()
		n.Cut(a, b)
		mustSend(t, x.(*Conn), "through")
		dialled := make(chan error, 1)
		go func() {
			_, err := a.Dial(context.Background(), netip.AddrPort{}, service)
			dialled <- err
		}()
		mustDial(t, other, service) // is not concerned
		time.Sleep(time.Minute)
		if _, err := y.TryReadv([][]byte{make([]byte, 1)}); err != netio.ErrWouldBlock || len(dialled) != 0 {
			t.Fatal(err)
		}
		n.Mend(b, a)
		if err := <-dialled; err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 10)
		if err := y.WaitReadable(); err != nil {
			t.Fatal(err)
		}
		if n, err := y.TryReadv([][]byte{p}); string(p[:n]) != "through" || err != nil {
			t.Fatalf("%q, %v", p[:n], err)
		}
	})
}

func TestVanishedHostIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoHosts(Plan{Down: Stream{Latency: time.Second}})
		a.UserTimeout, a.KeepAlive = 30*time.Second, time.Minute
		ln := mustListen(t, b, service)
		defer ln.Close()
		sender, idle := mustDial(t, a, service), mustDial(t, a, service)
		start := time.Now()
		halfway := make(chan error, 1)
		go func() { // the answer to this one is lost
			_, err := a.Dial(context.Background(), netip.AddrPort{}, service)
			halfway <- err
		}()
		time.Sleep(time.Millisecond)
		b.Vanish()
		mustSend(t, sender.(*Conn), "anybody?")
		wantSetup(t, "half-way", <-halfway, netio.StageConnect, service, netio.ErrTimedOut)
		_, err := a.Dial(context.Background(), netip.AddrPort{}, service)
		wantSetup(t, "new", err, netio.StageConnect, service, netio.ErrTimedOut)
		wantErr(t, "sender", readErr(t, sender.(*Conn)), netio.ErrTimedOut)
		wantErr(t, "idle", readErr(t, idle.(*Conn)), netio.ErrTimedOut)
		wantAfter(t, start, time.Minute+time.Millisecond)
		b.Return()
		mustDial(t, a, service)
	})
}

func TestCrashEndsConnectionsAsTheSystemDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoHosts(Plan{})
		ln := mustListen(t, b, service)
		quiet, unread, queued := mustDial(t, a, service), mustDial(t, a, service), mustDial(t, a, service)
		x, y := mustAccept(t, ln), mustAccept(t, ln)
		mustSend(t, unread.(*Conn), "unread")
		waits := make(chan error, 2)
		go func() { waits <- x.WaitReadable() }()
		go func() {
			_, err := ln.Accept()
			if err == nil {
				_, err = ln.Accept()
			}
			waits <- err
		}()
		synctest.Wait()
		b.Crash()
		for range 2 {
			if err := <-waits; err != net.ErrClosed {
				t.Fatal(err)
			}
		}
		wantErr(t, "quiet", readErr(t, quiet.(*Conn)), io.EOF)
		wantErr(t, "unread", readErr(t, unread.(*Conn)), netio.ErrReset)
		if err := readErr(t, queued.(*Conn)); err != io.EOF && !errors.Is(err, netio.ErrReset) {
			t.Errorf("queued: %v", err)
		}
		if _, err := y.TryWritev([][]byte{{1}}); err != net.ErrClosed {
			t.Errorf("a connection of the dead: %v", err)
		}
		_, err := a.Dial(context.Background(), netip.AddrPort{}, service)
		wantSetup(t, "after", err, netio.StageConnect, service, netio.ErrRefused)
	})
}

func TestRebootLeavesHalfOpenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := twoHosts(Plan{})
		c, d := connect(t, a, b, addrB)
		e, _ := connect(t, a, b, addrB)
		b.Reboot()
		wantErr(t, "rebooted end", send(d, []byte("x")), net.ErrClosed)
		for _, half := range []netio.Conn{c, e} {
			half.SetReadDeadline(time.Now().Add(time.Hour))
			if err := half.WaitReadable(); err == nil {
				t.Fatal("found out by itself")
			}
			half.SetReadDeadline(time.Time{})
		}
		mustSend(t, c.(*Conn), "anybody there?")
		wantErr(t, "data", readErr(t, c.(*Conn)), netio.ErrReset)
		if err := e.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "end", readErr(t, e.(*Conn)), netio.ErrReset)
		if left := n.Conns(); len(left) != 0 {
			t.Errorf("%d connections left", len(left))
		}
	})
}

func TestKeepAliveFindsARebootedPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := twoHosts(Plan{})
		a.KeepAlive = time.Minute
		c, _ := connect(t, a, b, addrB)
		b.Reboot()
		start := time.Now()
		if err := c.WaitReadable(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != time.Minute {
			t.Errorf("after %v", d)
		}
		wantErr(t, "probed", readErr(t, c.(*Conn)), netio.ErrReset)
		if left := n.Conns(); len(left) != 0 {
			t.Errorf("%d connections left", len(left))
		}
	})
}

func TestNetworkForgetsWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := twoHosts(Plan{Up: Stream{Latency: time.Millisecond}})
		for range 1<<16 - firstPort + 10 { // more than there are ports
			c, d := connect(t, a, b, addrB)
			if len(n.Conns()) != 1 || n.Conns()[0] != c {
				t.Fatal("the connection is not known")
			}
			c.Close()
			d.Close()
			time.Sleep(time.Second)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.pairs)+len(a.ports)+len(b.ports)+len(b.listeners) != 0 {
			t.Errorf("left: %d connections, ports %v and %v, %d listeners", len(n.pairs), a.ports, b.ports, len(b.listeners))
		}
	})
}

func TestMSSIsThePlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pairOf(t, Plan{Up: Stream{MSS: 536}})
		if a.MSS() != 536 || b.MSS() != netio.DefaultMSS {
			t.Errorf("MSS %d and %d", a.MSS(), b.MSS())
		}
	})
}
