package netio

import (
	"context"
	"net/netip"
	"testing"
)

var loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}

// tcpPair connects two sockets of this process.
func tcpPair(t testing.TB, n *TCP, addr netip.Addr) (a, b Conn) {
	t.Helper()
	ln, err := n.Listen(context.Background(), netip.AddrPortFrom(addr, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err = n.Dial(context.Background(), netip.AddrPort{}, ln.Addr())
	if err != nil {
		t.Fatal(err)
	}
	b, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}
