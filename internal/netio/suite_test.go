package netio_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"kdapl/internal/netio"
	"kdapl/internal/netio/netiotest"
)

// socketPair connects two TCP sockets through n.
func socketPair(t *testing.T, n netio.Network, addr string) (a, b netio.Conn) {
	t.Helper()
	ln, err := n.Listen(context.Background(), netip.AddrPortFrom(netip.MustParseAddr(addr), 0))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = n.Dial(context.Background(), netip.AddrPort{}, ln.Addr()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func needIPv6(t *testing.T) {
	if !nettest.SupportsIPv6() {
		t.Skip("this host has no IPv6")
	}
}

func TestSocketConformance(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		t.Run(addr, func(t *testing.T) {
			if addr == "::1" {
				needIPv6(t)
			}
			netiotest.Suite{Pair: func(t *testing.T) (a, b netio.Conn) {
				return socketPair(t, &netio.TCP{SendBuffer: 64 << 10, RecvBuffer: 64 << 10}, addr)
			}}.Run(t)
		})
	}
}

// plain hides the concrete type of a net.Conn, but not what it can do.
type plain struct{ *net.TCPConn }

func TestPortableConformance(t *testing.T) {
	t.Run("tcp", func(t *testing.T) {
		netiotest.Suite{Pair: func(t *testing.T) (a, b netio.Conn) {
			nc, ns := tcpNetPair(t)
			return fromNet(t, plain{nc}), fromNet(t, plain{ns})
		}}.Run(t)
	})
	t.Run("tls", func(t *testing.T) {
		server, client := tlsConfigs(t)
		netiotest.Suite{Allocates: true, Pair: func(t *testing.T) (a, b netio.Conn) {
			nc, ns := tcpNetPair(t)
			return fromNet(t, tls.Client(nc, client)), fromNet(t, tls.Server(ns, server))
		}}.Run(t)
	})
	t.Run("pipe", func(t *testing.T) {
		netiotest.Suite{
			Pair:        func(t *testing.T) (a, b netio.Conn) { x, y := net.Pipe(); return fromNet(t, x), fromNet(t, y) },
			In:          synctest.Test,
			NoHalfClose: true, NoReset: true, NoAddresses: true,
		}.Run(t)
	})
}

// tcpNetPair connects two sockets by package net alone.
func tcpNetPair(t *testing.T) (c, s *net.TCPConn) {
	t.Helper()
	ln, err := nettest.NewLocalListener("tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ns, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return nc.(*net.TCPConn), ns.(*net.TCPConn)
}

// tlsConfigs makes a server with a certificate of its own and a client that trusts it.
func tlsConfigs(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"peer"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(nil, cert, cert, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	server = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return server, &tls.Config{RootCAs: roots, ServerName: "peer"}
}

func fromNet(t *testing.T, c net.Conn) netio.Conn {
	t.Helper()
	n, err := netio.FromNet(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNetConnOfASocket(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		a, b := socketPair(t, &netio.TCP{}, "127.0.0.1")
		return netio.ToNet(a), netio.ToNet(b), func() { a.Close(); b.Close() }, nil
	})
}

func TestNetConnOfAPipe(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		x, y := net.Pipe()
		a, b := fromNet(t, x), fromNet(t, y)
		return netio.ToNet(a), netio.ToNet(b), func() { a.Close(); b.Close() }, nil
	})
}
