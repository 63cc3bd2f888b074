package faultnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/internal/netio"
)

func packetPair(t *testing.T, fate func(Packet) Fate) (n *Network, a, b *PacketConn) {
	t.Helper()
	n, x, y := twoHosts(Plan{})
	n.PacketFate = fate
	var err [2]error
	a, err[0] = x.ListenPacket(netip.AddrPortFrom(addrA, 0))
	b, err[1] = y.ListenPacket(netip.AddrPortFrom(addrB, 4791))
	if err := errors.Join(err[:]...); err != nil {
		t.Fatal(err)
	}
	return n, a, b
}

// packets reads what comes within an hour, with its time.
func packets(t *testing.T, c *PacketConn) (got []string) {
	t.Helper()
	start := time.Now()
	c.SetReadDeadline(start.Add(time.Hour))
	p := make([]byte, 100)
	for {
		n, from, err := c.TryReadFrom(p)
		if err == netio.ErrWouldBlock {
			if err = c.WaitReadable(); err == os.ErrDeadlineExceeded {
				return got
			}
		} else if err == nil {
			if from.Addr() != addrA {
				t.Errorf("from %v", from)
			}
			got = append(got, fmt.Sprintf("%s@%v", p[:n], time.Since(start)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestPacketsMeetTheirFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := packetPair(t, func(p Packet) Fate {
			return []Fate{
				{},
				{Drop: true},
				{Copies: 1, Delay: time.Second},
				{Delay: 3 * time.Second},
				{Flip: 1, Mask: 1},
				{Flip: 9, Mask: 1}, // there is no such byte
			}[p.Index]
		})
		for i := range 6 {
			if err := a.TryWriteTo(fmt.Appendf(nil, "p%d", i), b.LocalAddr()); err != nil {
				t.Fatal(err)
			}
		}
		// The second is "p4" with a bit changed.
		want := []string{"p0@0s", "p5@0s", "p5@0s", "p2@1s", "p2@1s", "p3@3s"}
		if got := packets(t, b); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

func TestPacketFatesDependOnSeedAndIndexAlone(t *testing.T) {
	rates := PacketRates{Seed: 5, Loss: 0.1, Duplication: 0.1, Corruption: 0.1, Reordering: 0.1, Latency: time.Millisecond}
	run := func(rates PacketRates) (out string) {
		synctest.Test(t, func(t *testing.T) {
			_, a, b := packetPair(t, rates.Fate)
			var got []string
			for i := range 2000 {
				if err := a.TryWriteTo(fmt.Appendf(nil, "packet %04d", i), b.LocalAddr()); err != nil {
					t.Fatal(err)
				}
				if i%500 == 499 {
					got = append(got, packets(t, b)...)
				}
			}
			out = strings.Join(got, "\n")
		})
		return out
	}
	first := run(rates)
	if first != run(rates) {
		t.Error("the same seed does two things")
	}
	rates.Seed++
	if first == run(rates) {
		t.Error("two seeds do the same")
	}
	count := make(map[Fate]int)
	for i := range 10000 {
		f := rates.Fate(Packet{Index: i, Len: 100})
		f.Flip, f.Mask, f.Delay = 0, min(f.Mask, 1), f.Delay/(time.Millisecond+1) // into few classes
		count[f]++
	}
	for f, n := range map[string]int{
		"lost": sum(count, func(f Fate) bool { return f.Drop }), "doubled": sum(count, func(f Fate) bool { return f.Copies > 0 }),
		"changed": sum(count, func(f Fate) bool { return f.Mask > 0 }), "held back": sum(count, func(f Fate) bool { return f.Delay > 0 }),
	} {
		if n < 800 || n > 1200 {
			t.Errorf("%s: %d of 10000, want about 1000", f, n)
		}
	}
}

func sum(count map[Fate]int, in func(Fate) bool) (n int) {
	for f, k := range count {
		if in(f) {
			n += k
		}
	}
	return n
}

func TestPacketsAreLostWhereNobodyIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := packetPair(t, nil)
		if err := a.TryWriteTo([]byte("x"), netip.MustParseAddrPort("10.9.9.9:1")); err != nil {
			t.Fatal(err)
		}
		n.Cut(a.h, b.h)
		a.TryWriteTo([]byte("cut"), b.LocalAddr())
		n.Mend(a.h, b.h)
		b.h.Vanish()
		a.TryWriteTo([]byte("vanished"), b.LocalAddr())
		b.h.Return()
		for range PacketQueue + 10 {
			a.TryWriteTo([]byte("q"), b.LocalAddr())
		}
		if got := packets(t, b); len(got) != PacketQueue || got[0] != "q@0s" {
			t.Errorf("%d packets, first %v", len(got), got[0])
		}
	})
}

func TestPacketConnCloseAndAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := packetPair(t, nil)
		if a.LocalAddr().Port() == 0 {
			t.Error("no port")
		}
		if c, err := a.h.ListenPacket(netip.AddrPortFrom(addrA, 0)); err != nil || c.LocalAddr() == a.LocalAddr() {
			t.Errorf("%v, %v", c.LocalAddr(), err)
		}
		if _, err := b.h.ListenPacket(b.LocalAddr()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Error(err)
		}
		if _, err := b.h.ListenPacket(a.LocalAddr()); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Error(err)
		}
		waited := make(chan error, 1)
		go func() { waited <- b.WaitReadable() }()
		synctest.Wait()
		for range 2 {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-waited; err != net.ErrClosed {
			t.Error(err)
		}
		_, _, err := b.TryReadFrom(make([]byte, 1))
		if err != net.ErrClosed || b.TryWriteTo(nil, a.LocalAddr()) != net.ErrClosed || b.WaitReadable() != net.ErrClosed || b.SetReadDeadline(time.Time{}) != net.ErrClosed {
			t.Error("a closed socket works")
		}
		c, err := b.h.ListenPacket(b.LocalAddr())
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil { // again, and not the new socket with its address
			t.Fatal(err)
		}
		if err := a.TryWriteTo([]byte("x"), c.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if got := packets(t, c); len(got) != 1 {
			t.Errorf("%v", got)
		}
	})
}
