package main

import (
	"errors"
	"fmt"

	"kdapl/cmd/kdapl/internal/ucmatose"
)

type ucmatoseCmd struct {
	Server      string `short:"s" placeholder:"HOST" help:"Be the client of this server (default: be the server)."`
	Bind        string `short:"b" placeholder:"HOST" help:"The own address (default: server 127.0.0.1, client the one that the server is reached from)."`
	Connections int    `short:"c" default:"${connections}" placeholder:"N" help:"The number of connections (default: ${default})."`
	Count       int    `short:"C" default:"${messages}" placeholder:"N" help:"The number of messages each way on each connection (default: ${default})."`
	Size        int    `short:"S" default:"${messagesize}" placeholder:"N" help:"Their size in bytes (default: ${default})."`
	peerFlags
}

// Help is the long text of --help.
func (ucmatoseCmd) Help() string {
	return `Talks to another kdapl ucmatose, or to rdma-core's ucmatose on any RDMA device that speaks iWARP, such
as Linux' siw. Both sides need the same -c, -C and -S. The server sends first, then the client.

    kdapl ucmatose -b 192.0.2.1
    kdapl ucmatose -s 192.0.2.1

iWARP forbids the passive side to send first, unless the active side asks for RFC 6581's peer-to-peer mode. kdapl does, and
obeys: as the server of a client that does not ask, as siw by default, it waits in vain.`
}

// Run is the server or the client.
func (c *ucmatoseCmd) Run(e env) error {
	cfg := ucmatose.Config{Connections: c.Connections, Count: c.Count, Size: c.Size}
	if c.Server == "" {
		return c.server(e, cfg)
	}
	h, to, err := c.dial(e.ctx, c.Server, c.Bind, ucmatose.Port)
	if err != nil {
		return err
	}
	if err = cfg.Check(h.Attr); err != nil {
		err = usageError{err}
	} else {
		err = ucmatose.Client(e.ctx, h, to.Addr(), uint64(to.Port()), cfg)
	}
	return errors.Join(c.outcome(e, err), closeIA(h.IA))
}

func (c *ucmatoseCmd) server(e env, cfg ucmatose.Config) error {
	host := c.Bind
	if host == "" {
		host = "127.0.0.1"
	}
	h, ln, err := c.serve(e.ctx, host, ucmatose.Port)
	if err != nil {
		return err
	}
	if err = cfg.Check(h.Attr); err != nil {
		err = usageError{err}
	} else {
		c.listening(e, h, ln)
		err = ucmatose.Server(e.ctx, h, ln, cfg)
	}
	return errors.Join(c.outcome(e, err), ln.Close(), closeIA(h.IA))
}

// outcome prints that all went well, if it did.
func (c *ucmatoseCmd) outcome(e env, err error) error {
	if err == nil {
		fmt.Fprintf(e.stdout, "test complete: %d connections, %d messages of %d bytes each way\n", c.Connections, c.Count, c.Size)
	}
	return err
}
