// Package ucmatose speaks the protocol of rdma-core's ucmatose, in both roles.
//
// There are a number of connections. When all of them are established, the server sends a number of messages on
// each, the client awaits them and sends as many, and the server awaits those and disconnects. The content of messages has
// no meaning. Since the passive side of an iWARP connection must not send first, the active side has to
// ask for the peer-to-peer mode of RFC 6581, or to be as lenient as Linux' siw.
package ucmatose

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"kdapl/cmd/kdapl/internal/link"
	"kdapl/dat"
)

// What ucmatose takes for the port, the number of connections and of messages, and their size, if nothing
// else is said.
const (
	Port               = 7471
	DefaultConnections = 1
	DefaultCount       = 10
	DefaultSize        = 100
)

// Config says what to do. Both sides must agree on it.
type Config struct {
	// Connections is the number of connections, 1 or more.
	Connections int
	// Count is the number of messages each way on each connection, 0 or more.
	Count int
	// Size is the length of the messages in bytes, 0 or more.
	Size int
}

// Check says why an adapter cannot do what the configuration asks for.
func (c Config) Check(a dat.IAAttr) error {
	switch {
	case c.Connections < 1 || c.Connections > a.MaxEPs:
		return fmt.Errorf("%d connections; the adapter takes 1 to %d", c.Connections, a.MaxEPs)
	case c.Count < 0 || c.Count > a.MaxDTOPerEP:
		return fmt.Errorf("%d messages; the adapter takes 0 to %d", c.Count, a.MaxDTOPerEP)
	case c.Size < 0 || uint64(c.Size) > uint64(a.MaxMessageSize):
		return fmt.Errorf("messages of %d bytes; the adapter takes 0 to %d", c.Size, a.MaxMessageSize)
	}
	return nil
}

// test is the ends of a role.
type test struct {
	cfg   Config
	lmr   *dat.LMR // one buffer for all messages, as their content has no meaning
	links []*link.Link
}

// prepare makes the ends, with their receives posted.
func prepare(h *link.Host, cfg Config) (_ *test, err error) {
	t := &test{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if t.lmr, err = h.Memory(cfg.Size, dat.PrivLocalRead|dat.PrivLocalWrite); err != nil {
		return nil, err
	}
	for range cfg.Connections {
		l, err := h.New(cfg.Count)
		if err != nil {
			return nil, err
		}
		t.links = append(t.links, l)
		for range cfg.Count {
			if err := l.EP.PostRecv(0, 0, t.lmr.Triplet(0, cfg.Size)); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

func (t *test) close() error {
	var errs []error
	for _, l := range t.links {
		errs = append(errs, l.Close())
	}
	if t.lmr != nil {
		errs = append(errs, t.lmr.Free())
	}
	return errors.Join(errs...)
}

// each does something on each connection, and says on which it failed.
func (t *test) each(do func(l *link.Link) error) error {
	for i, l := range t.links {
		if err := do(l); err != nil {
			return fmt.Errorf("connection %d: %w", i+1, err)
		}
	}
	return nil
}

// send posts all messages on all connections, and waits for their completions.
func (t *test) send(ctx context.Context) error {
	err := t.each(func(l *link.Link) error {
		for range t.cfg.Count {
			if err := l.EP.PostSend(0, 0, t.lmr.Triplet(0, t.cfg.Size)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.each(func(l *link.Link) error {
		for range t.cfg.Count {
			if err := l.Completed(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// receive waits for all messages on all connections.
func (t *test) receive(ctx context.Context) error {
	return t.each(func(l *link.Link) error {
		for i := range t.cfg.Count {
			if _, err := l.Received(ctx, t.cfg.Size); err != nil {
				return fmt.Errorf("message %d of %d: %w", i+1, t.cfg.Count, err)
			}
		}
		return nil
	})
}

// Client connects to a server and does the client's part.
func Client(ctx context.Context, h *link.Host, to netip.Addr, port uint64, cfg Config) (err error) {
	t, err := prepare(h, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.each(func(l *link.Link) error { return l.Connect(ctx, to, port) }); err != nil {
		return err
	}
	if err := t.receive(ctx); err != nil {
		return err
	}
	if err := t.send(ctx); err != nil {
		return err
	}
	return t.each(func(l *link.Link) error { return l.Ended(ctx) })
}

// Server waits for a client and does the server's part.
func Server(ctx context.Context, h *link.Host, ln *link.Listener, cfg Config) (err error) {
	t, err := prepare(h, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.each(func(l *link.Link) error { return ln.Accept(ctx, l) }); err != nil {
		return err
	}
	if err := t.send(ctx); err != nil {
		return err
	}
	if err := t.receive(ctx); err != nil {
		return err
	}
	return t.each(func(l *link.Link) error { return l.Disconnect(ctx) })
}
