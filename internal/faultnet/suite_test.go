package faultnet

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"golang.org/x/net/nettest"

	"kdapl/internal/netio"
	"kdapl/internal/netio/netiotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
)

// twoHosts makes a network whose connections have plan.
func twoHosts(plan Plan) (n *Network, a, b *Host) {
	n = New()
	n.Plan = func(Attempt) Plan { return plan }
	return n, n.Host(addrA), n.Host(addrB)
}

// connect connects two hosts, or a real network with itself.
func connect(t testing.TB, from, to netio.Network, addr netip.Addr) (a, b netio.Conn) {
	t.Helper()
	ln, err := to.Listen(context.Background(), netip.AddrPortFrom(addr, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan netio.Conn, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if a, err = from.Dial(context.Background(), netip.AddrPort{}, ln.Addr()); err != nil {
		t.Fatal(err)
	}
	if b = <-accepted; b == nil {
		t.FailNow()
	}
	return a, b
}

// pairOf connects two hosts under plan.
func pairOf(t testing.TB, plan Plan) (a, b *Conn) {
	_, x, y := twoHosts(plan)
	c, d := connect(t, x, y, addrB)
	return c.(*Conn), d.(*Conn)
}

func TestConformance(t *testing.T) {
	slow := Stream{Latency: 3e6, Jitter: 1e6, Rate: 50 << 20, Window: 30 << 10}
	chopped := Stream{ReadMax: 700, WriteMax: 900}
	for _, c := range []struct {
		name string
		plan Plan
	}{
		{"perfect", Plan{}},
		{"slow", Plan{Up: slow, Down: slow}},
		{"chopped", Plan{Up: chopped, Down: chopped}},
		{"kept on reset", Plan{Up: Stream{KeepOnReset: true}, Down: Stream{KeepOnReset: true}}},
		{"drawn", Lossless(17, 1<<20)},
	} {
		t.Run(c.name, func(t *testing.T) {
			pair := func(t *testing.T) (a, b netio.Conn) { return pairOf(t, c.plan) }
			t.Run("fake time", func(t *testing.T) { netiotest.Suite{Pair: pair, In: synctest.Test}.Run(t) })
			if c.name == "perfect" {
				t.Run("real time", func(t *testing.T) { netiotest.Suite{Pair: pair}.Run(t) })
			}
		})
	}
}

// Sockets under a plan still are connections in every respect.
func TestWrappedSocketConformance(t *testing.T) {
	w := &WrappedNetwork{Under: &netio.TCP{}, Plan: func(Attempt) Plan {
		return Plan{Up: Stream{ReadMax: 3000, WriteMax: 2000}, Down: Stream{ReadMax: 1000}}
	}}
	netiotest.Suite{Pair: func(t *testing.T) (a, b netio.Conn) {
		return connect(t, w, w, netip.MustParseAddr("127.0.0.1"))
	}}.Run(t)
}

func TestNetConn(t *testing.T) {
	for _, plan := range []Plan{{}, {Up: Stream{ReadMax: 5000, WriteMax: 100, Window: 5000}, Down: Stream{Jitter: 1e5}}} {
		t.Run(plan.String(), func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				a, b := pairOf(t, plan)
				return netio.ToNet(a), netio.ToNet(b), func() { a.Close(); b.Close() }, nil
			})
		})
	}
}
