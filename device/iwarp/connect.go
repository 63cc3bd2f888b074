package iwarp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/internal/netio"
	"kdapl/verbs"
)

// Connect implements [softnic.Wire].
func (w *wire) Connect(p *verbs.ConnParams) error {
	attr := w.qp.Context().Attr()
	if !p.Remote.IP.IsValid() || p.Remote.Port == 0 || p.Remote.Port > attr.MaxPort {
		return verbs.ErrAddr
	}
	c := newConn(w.drv, true)
	c.bind(w)
	c.local = verbs.Address{IP: attr.Addr}
	c.remote = verbs.Address{IP: p.Remote.IP.Unmap(), Port: p.Remote.Port}
	params := *p
	params.PrivateData = append([]byte(nil), p.PrivateData...)
	var ctx context.Context
	var cancel context.CancelFunc
	if p.Timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(context.Background(), p.Timeout, errNoAnswer)
	} else {
		ctx, cancel = context.WithCancel(context.Background())
	}
	c.cancel = cancel
	if err := w.qp.Begin(c, nil); err != nil {
		cancel()
		return err
	}
	go c.dial(ctx, cancel, &params)
	return nil
}

// dial sets up an active connection.
func (c *conn) dial(ctx context.Context, cancel func(), p *verbs.ConnParams) {
	defer cancel()
	local := c.drv.local(p)
	local.MaxIRD = uint16(c.qp.Context().Attr().MaxReadsIn)
	for {
		kind, ev, err := c.attempt(ctx, local, p.PrivateData)
		if errors.Is(err, errOldPeer) && local.Rev > 1 {
			// RFC 6581 section 10: a peer that knows revision 1 only takes the request for
			// malformed.
			local.Rev = 1
			if len(p.PrivateData) <= mpa.MaxPrivateData {
				continue
			}
		}
		if kind == verbs.ConnEstablished {
			return
		}
		if ctx.Err() != nil {
			kind, err = verbs.ConnTimedOut, context.Cause(ctx)
		}
		ev.Kind, ev.Err = kind, fmt.Errorf("iwarp: connect from %v to %v: %w", c.local, c.remote, err)
		c.qp.EndWith(c, ev)
		return
	}
}

// errOldPeer: the connection was reset in answer to an enhanced request.
var errOldPeer = errors.New("iwarp: the peer reset the connection instead of answering")

// attempt makes one TCP connection and negotiates on it. It ends with ConnEstablished when the connection
// is the QP's and has a waiter, and the QP's consumer was told.
func (c *conn) attempt(ctx context.Context, local mpa.Local, private []byte) (verbs.ConnEventKind, verbs.ConnEvent, error) {
	var ev verbs.ConnEvent
	from := netip.AddrPort{}
	if c.local.IP.Is4() == c.remote.IP.Is4() {
		from = netip.AddrPortFrom(c.local.IP, 0)
	}
	nc, err := c.drv.cfg.Network.Dial(ctx, from, addrPort(c.remote))
	if err != nil {
		// A reset: the listener has closed with the connection in its queue.
		if errors.Is(err, netio.ErrRefused) || errors.Is(err, netio.ErrReset) {
			return verbs.ConnRefused, ev, err
		}
		return verbs.ConnUnreachable, ev, err
	}
	nc = c.drv.cap.wrap(nc, true)
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	c.mu.Lock()
	c.nc, c.local = nc, address(nc.LocalAddr())
	c.mu.Unlock()
	req := local.Request()
	frame, err := mpa.AppendStartup(nil, mpa.Request, req, private)
	if err == nil {
		err = writeAll(nc, frame)
	}
	if err != nil {
		nc.Close()
		return verbs.ConnRefused, ev, early(err, false)
	}
	s := startup{kind: mpa.Reply}
	if err := s.readFrom(nc); err != nil {
		nc.Close()
		return verbs.ConnRefused, ev, early(err, len(s.b) > 0)
	}
	ev.PrivateData = append([]byte(nil), s.frame.ULPData()...)
	res, err := local.Conclude(req, s.frame.Header())
	if err != nil {
		kind := verbs.ConnRefused
		if err == mpa.ErrRejected {
			kind, err = verbs.ConnRejected, errRejected
		} else {
			ev.PrivateData = nil
		}
		c.dismiss(nc, res, err)
		return kind, ev, err
	}
	if !stop() {
		nc.Close()
		return verbs.ConnRefused, ev, errClosed
	}
	c.agree(res)
	c.rx.live = true
	c.rx.token.Store(1)
	c.watched = true
	c.mu.Lock()
	ended := c.ended
	c.cancel = nil
	c.mu.Unlock()
	mine, ok := false, false
	if !ended {
		mine, ok = c.qp.EstablishHere(c, c.established(ev.PrivateData), c.begin)
	}
	if !ok {
		nc.Close()
		return verbs.ConnRefused, ev, errClosed
	}
	c.push()
	c.rx.give()
	go c.waitFn()
	if mine {
		c.qp.DeliverEvents()
	}
	return verbs.ConnEstablished, ev, nil
}

// early is the cause of a set-up that the peer ended before it had answered.
func early(err error, begun bool) error {
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return errNoReply
	case errors.Is(err, netio.ErrReset) && !begun:
		return fmt.Errorf("%w: %w", errOldPeer, err)
	}
	return err
}

// begin makes the connection the QP's, with the RTR message as the first one sent.
func (c *conn) begin() {
	c.attach()
	t := &c.tx
	l := c.qp.Lane()
	l.Lock()
	t.room(maxRequest)
	b := t.out.b
	start := len(b)
	switch c.res.RTR {
	case mpa.RTRWrite:
		b = rdmap.AppendWrite(mpa.Begin(b), true, sinkKey, 0)
	case mpa.RTRRead:
		e := t.asked.push()
		*e = asked{kind: askRTR, msn: t.askMSN.Next()}
		b = rdmap.AppendReadRequest(mpa.Begin(b), e.msn, rdmap.ReadRequest{SrcSTag: sinkKey})
	}
	if len(b) > start {
		t.out.b = t.enc.Finish(b, start)
	}
	l.Unlock()
}

// dismiss ends a connection whose negotiation has failed: with a Terminate, if the failure has a code
// (RFC 6581 sections 8 to 9.2).
func (c *conn) dismiss(nc netio.Conn, res mpa.Result, err error) {
	if err == mpa.ErrInsufficientIRD || err == mpa.ErrNoRTR {
		if m, ok := rdmap.TerminateFor(err, nil, 0); ok {
			enc := mpa.Encoder{CRC: res.CRC, Markers: res.SendMarkers}
			writeAll(nc, enc.Finish(rdmap.AppendTerminate(mpa.Begin(nil), m), 0))
		}
	}
	nc.CloseWrite()
	nc.Close()
}

// writeAll writes a start-up frame.
func writeAll(nc netio.Conn, b []byte) error {
	for len(b) > 0 {
		n, err := nc.TryWritev([][]byte{b})
		if err == netio.ErrWouldBlock {
			err = nc.WaitWritable()
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// readFrom reads a start-up frame, and no byte behind it.
func (s *startup) readFrom(nc netio.Conn) error {
	for {
		err := s.tryFrom(nc)
		if err == netio.ErrWouldBlock {
			err = nc.WaitReadable()
			if err == nil {
				continue
			}
		}
		return err
	}
}

// tryFrom reads what there is of a start-up frame; netio.ErrWouldBlock says that the rest has not come.
func (s *startup) tryFrom(nc netio.Conn) error {
	var buf [mpa.MaxStartupLen]byte
	for {
		want := s.want()
		if want == 0 {
			return nil
		}
		n, err := nc.TryReadv([][]byte{buf[:want]})
		if err == io.EOF && len(s.b) > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if err := s.feed(buf[:n]); err != nil {
			return err
		}
	}
}
