// Package link makes connections whose completions are waited for one after another, as small programs of the
// kind of rping need them.
package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"kdapl/cmd/kdapl/internal/perf"
	"kdapl/dat"
)

// setUp bounds the set-up of a connection, and farewell the time from an end to the event that tells it.
const (
	setUp    = 10 * time.Second
	farewell = 10 * time.Second
)

// Host is a protection zone of an adapter.
type Host struct {
	IA   *dat.IA
	PZ   *dat.PZ
	Attr dat.IAAttr
	// Quiet is how long an established link may be without a completion that is waited for; 0 is without limit.
	Quiet time.Duration
}

// NewHost makes a host. Closing the IA frees it.
func NewHost(ia *dat.IA, quiet time.Duration) (*Host, error) {
	p, err := ia.Query()
	if err != nil {
		return nil, err
	}
	pz, err := ia.NewPZ()
	if err != nil {
		return nil, err
	}
	return &Host{IA: ia, PZ: pz, Attr: p.Attr, Quiet: quiet}, nil
}

// Memory allocates n zeroed bytes outside of the Go heap, one at least.
func (h *Host) Memory(n int, priv dat.Priv) (*dat.LMR, error) {
	return h.PZ.NewLMR(dat.LMRConfig{Length: max(n, 1), Priv: priv})
}

// Link is one end of a connection, or of one that is to be. Each of its methods that waits may be
// called by one goroutine at a time.
type Link struct {
	EP              *dat.EP
	recv, req, conn *dat.EVD
	quiet           time.Duration
}

// New makes an end for up to so many outstanding messages in each direction, with one RDMA read at a time.
func (h *Host) New(depth int) (_ *Link, err error) {
	l := &Link{quiet: h.Quiet}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	for _, e := range []struct {
		evd    **dat.EVD
		stream dat.Stream
	}{{&l.recv, dat.StreamDTO}, {&l.req, dat.StreamDTO}, {&l.conn, dat.StreamConnection}} {
		if *e.evd, err = h.IA.NewEVD(dat.EVDConfig{MinLen: 8, Streams: e.stream}); err != nil {
			return nil, err
		}
	}
	attr := dat.DefaultEPAttr(h.Attr)
	attr.MaxRecvDTOs, attr.MaxRequestDTOs = max(depth, 1), max(depth, 1)
	attr.MaxRDMAReadIn, attr.MaxRDMAReadOut = 1, 1
	l.EP, err = h.PZ.NewEP(dat.EPConfig{Recv: l.recv, Request: l.req, Connect: l.conn, Attr: &attr})
	return l, err
}

// Connect connects the end to a listener.
func (l *Link) Connect(ctx context.Context, to netip.Addr, port uint64) error {
	if err := l.EP.Connect(to, port, dat.ConnectConfig{Timeout: setUp}); err != nil {
		return err
	}
	return l.established(ctx)
}

func (l *Link) established(ctx context.Context) error {
	ev, _, err := l.conn.Wait(ctx, 1, setUp+farewell)
	if err != nil {
		return err
	}
	if ev.Number != dat.ConnectionEstablished {
		return &perf.ConnectionError{Event: ev.Number, Cause: ev.Connection().Cause}
	}
	return nil
}

// Received waits for the next message, of exactly n bytes.
func (l *Link) Received(ctx context.Context, n int) (dat.DTO, error) {
	d, err := l.next(ctx, l.recv, "a message of the peer")
	if err == nil && d.Length != uint32(n) {
		err = fmt.Errorf("the peer sent a message of %d bytes instead of %d", d.Length, n)
	}
	return d, err
}

// Completed waits until the next request that was posted has completed.
func (l *Link) Completed(ctx context.Context) error {
	_, err := l.next(ctx, l.req, "a request")
	return err
}

// next takes the next completion.
func (l *Link) next(ctx context.Context, evd *dat.EVD, what string) (dat.DTO, error) {
	limit := dat.Infinite
	if l.quiet > 0 {
		limit = l.quiet
	}
	ev, _, err := evd.Wait(ctx, 1, limit)
	switch {
	case errors.Is(err, dat.ErrTimeout):
		return dat.DTO{}, fmt.Errorf("waited in vain for %s: %w", what, &perf.StallError{After: limit})
	case err != nil:
		return dat.DTO{}, err
	}
	d := ev.DTO()
	if d.Status == dat.StatusSuccess {
		return d, nil
	}
	end := l.end(ctx)
	if d.Status == dat.StatusFlushed {
		return d, end // that it was flushed says nothing that the end does not
	}
	return d, fmt.Errorf("%w: %w", &perf.CompletionError{Operation: d.Operation, Status: d.Status}, end)
}

// end waits for the event that tells the end of the connection.
func (l *Link) end(ctx context.Context) error {
	ev, _, err := l.conn.Wait(ctx, 1, farewell)
	if err != nil {
		return fmt.Errorf("the connection does not end: %w", err)
	}
	return &perf.ConnectionError{Event: ev.Number, Cause: ev.Connection().Cause}
}

// Disconnected reports whether an error is that a side has ended the connection as connections end.
func Disconnected(err error) bool {
	c := new(perf.ConnectionError)
	return errors.As(err, &c) && c.Event == dat.ConnectionDisconnected
}

// Disconnect ends the connection, after what was posted, and waits for the end.
func (l *Link) Disconnect(ctx context.Context) error {
	if err := l.EP.Disconnect(dat.CloseGraceful); err != nil {
		return err
	}
	return l.Ended(ctx)
}

// Ended waits until the connection has ended, in order.
func (l *Link) Ended(ctx context.Context) error {
	if err := l.end(ctx); !Disconnected(err) {
		return err
	}
	return nil
}

// Close ends the connection abruptly, if it has not ended, and frees the end.
func (l *Link) Close() error {
	var errs []error
	if l.EP != nil {
		errs = append(errs, l.EP.Free())
	}
	for _, evd := range []*dat.EVD{l.recv, l.req, l.conn} {
		if evd != nil {
			errs = append(errs, evd.Free())
		}
	}
	return errors.Join(errs...)
}

// Listener takes connections.
type Listener struct {
	evd *dat.EVD
	psp *dat.PSP
}

// Listen listens at a port of the host's address; 0 is a free one.
func (h *Host) Listen(port uint64) (*Listener, error) {
	evd, err := h.IA.NewEVD(dat.EVDConfig{MinLen: 64, Streams: dat.StreamConnectionRequest})
	if err != nil {
		return nil, err
	}
	psp, err := h.IA.NewPSP(dat.PSPConfig{EVD: evd, ConnQual: port})
	if err != nil {
		return nil, errors.Join(err, evd.Free())
	}
	return &Listener{evd: evd, psp: psp}, nil
}

// Port is where the listener listens.
func (ln *Listener) Port() uint64 { return ln.psp.ConnQual() }

// Accept waits for a request, without limit but the context's, and connects the end to its peer. The end must be prepared.
func (ln *Listener) Accept(ctx context.Context, l *Link) error {
	ev, _, err := ln.evd.Wait(ctx, 1, dat.Infinite)
	if err != nil {
		return err
	}
	cr := ev.Request().CR
	if err := cr.Accept(l.EP, nil); err != nil {
		return errors.Join(err, cr.Reject(nil))
	}
	return l.established(ctx)
}

// Close ends the listening.
func (ln *Listener) Close() error { return errors.Join(ln.psp.Free(), ln.evd.Free()) }
