package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"kdapl/cmd/kdapl/internal/link"
	"kdapl/dat"
)

// peerFlags are common to the commands that talk to another process.
type peerFlags struct {
	Adapter string        `default:"iwarp" placeholder:"NAME" help:"The adapter: a name of kdapl info, or settings as in a dat.conf, such as \"iwarp crc=off peer2peer=off\" (default: ${default})."`
	Timeout time.Duration `default:"30s" placeholder:"TIME" help:"Give up after such a time of silence; 0 is never (default: ${default})."`
	settingFlags
	Port *uint16 `short:"p" placeholder:"N" help:"The port, for a server 0 is a free one (default: as the original)."`
}

// at is a host, by address or name, at the flags' port, or a default one.
func (f *peerFlags) at(ctx context.Context, host string, port uint16) (netip.AddrPort, error) {
	if f.Port != nil {
		port = *f.Port
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), port), nil
}

// open opens the adapter, at the address if settings name none.
func (f *peerFlags) open(addr netip.Addr) (*link.Host, error) {
	if f.Timeout < 0 {
		return nil, usageError{errors.New("--timeout must not be negative")}
	}
	_, set, err := parseAdapter(f.Adapter)
	if err != nil {
		return nil, err
	}
	settings := f.settings()
	if set != nil && set["addr"] == "" && settings["addr"] == "" {
		settings["addr"] = addr.String()
	}
	ia, err := openAdapter(f.Adapter, settings)
	if err != nil {
		return nil, err
	}
	h, err := link.NewHost(ia, f.Timeout)
	if err != nil {
		return nil, errors.Join(err, closeIA(ia))
	}
	return h, nil
}

func closeIA(ia *dat.IA) error { return ia.Close(context.Background(), dat.CloseAbrupt) }

// serve opens the adapter at a host's address, and listens.
func (f *peerFlags) serve(ctx context.Context, host string, port uint16) (*link.Host, *link.Listener, error) {
	at, err := f.at(ctx, host, port)
	if err != nil {
		return nil, nil, err
	}
	h, err := f.open(at.Addr())
	if err != nil {
		return nil, nil, err
	}
	ln, err := h.Listen(uint64(at.Port()))
	if err != nil {
		return nil, nil, errors.Join(err, closeIA(h.IA))
	}
	return h, ln, nil
}

// dial opens the adapter at an address that the server's host is reached from.
func (f *peerFlags) dial(ctx context.Context, server, from string, port uint16) (*link.Host, netip.AddrPort, error) {
	to, err := f.at(ctx, server, port)
	if err != nil {
		return nil, to, err
	}
	var local netip.Addr
	if from != "" {
		if local, err = netip.ParseAddr(from); err != nil {
			return nil, to, usageError{err}
		}
	} else if local, err = sourceOf(ctx, to); err != nil {
		return nil, to, err
	}
	h, err := f.open(local)
	return h, to, err
}

// sourceOf is the address that this machine reaches another from. Nothing is sent.
func sourceOf(ctx context.Context, to netip.AddrPort) (netip.Addr, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", to.String())
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone(""), nil
}

// listening says where a server listens.
func (f *peerFlags) listening(e env, h *link.Host, ln *link.Listener) {
	fmt.Fprintf(e.stderr, "listening on %s\n", net.JoinHostPort(h.IA.Address().String(), strconv.FormatUint(ln.Port(), 10)))
}
