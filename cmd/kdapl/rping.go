package main

import (
	"errors"
	"fmt"

	"kdapl/cmd/kdapl/internal/rping"
)

type rpingCmd struct {
	Server     bool   `short:"s" xor:"role" required:"" help:"Be the server."`
	Client     bool   `short:"c" xor:"role" required:"" help:"Be the client."`
	Address    string `short:"a" placeholder:"HOST" help:"Server: the own address (default: 127.0.0.1). Client: the server."`
	Source     string `short:"I" placeholder:"ADDR" help:"Client: the own address (default: the one that the server is reached from)."`
	Size       int    `short:"S" placeholder:"N" help:"Client: the size of the buffers in bytes (default: 64). Server: the largest size that is taken (default: 65535)."`
	Count      int    `short:"C" placeholder:"N" help:"The number of rounds (default: client without end, server any number)."`
	Verbose    bool   `short:"v" help:"Print the data."`
	Validate   bool   `short:"V" help:"Client: check the data."`
	Persistent bool   `short:"P" help:"Server: serve clients until interrupted, several at a time."`
	peerFlags
}

// Help is the long text of --help.
func (rpingCmd) Help() string {
	return `Talks to another kdapl rping, or to rdma-core's rping on any RDMA device that speaks iWARP, such
as Linux' siw. In each round the server reads a buffer of the client's by RDMA, and writes what it has read to
a second one, up to the first zero byte.

    kdapl rping -s -a 192.0.2.1
    kdapl rping -c -a 192.0.2.1 -v -C 10

The original's client needs buffers of at least 23 bytes, its server the option -S for those of more than 64.`
}

// Run is the server or the client.
func (c *rpingCmd) Run(e env) error {
	cfg := rping.Config{Size: c.Size, Count: c.Count, Validate: c.Validate, Verbose: c.Verbose, Out: e.stdout}
	if cfg.Size == 0 {
		cfg.Size = rping.DefaultSize
		if c.Server {
			cfg.Size = rping.MaxSize
		}
	}
	switch {
	case cfg.Size < 1 || cfg.Size > rping.MaxSize:
		return usageError{fmt.Errorf("-S must be 1 to %d", rping.MaxSize)}
	case c.Count < 0:
		return usageError{errors.New("-C must not be negative")}
	case c.Client && c.Address == "":
		return usageError{errors.New("a client needs the server's address, -a HOST")}
	}
	if c.Server {
		return c.server(e, cfg)
	}
	h, to, err := c.dial(e.ctx, c.Address, c.Source, rping.Port)
	if err != nil {
		return err
	}
	rounds, err := rping.Client(e.ctx, h, to.Addr(), uint64(to.Port()), cfg)
	fmt.Fprintf(e.stderr, "%d rounds\n", rounds)
	return errors.Join(err, closeIA(h.IA))
}

func (c *rpingCmd) server(e env, cfg rping.Config) error {
	host := c.Address
	if host == "" {
		host = "127.0.0.1"
	}
	h, ln, err := c.serve(e.ctx, host, rping.Port)
	if err != nil {
		return err
	}
	c.listening(e, h, ln)
	if c.Persistent {
		err = rping.ServeAll(e.ctx, h, ln, cfg, func(rounds int, err error) {
			if err != nil {
				fmt.Fprintf(e.stderr, "a client failed after %d rounds: %v\n", rounds, err)
				return
			}
			fmt.Fprintf(e.stderr, "%d rounds\n", rounds)
		})
	} else {
		var rounds int
		rounds, err = rping.Serve(e.ctx, h, ln, cfg)
		fmt.Fprintf(e.stderr, "%d rounds\n", rounds)
	}
	return errors.Join(err, ln.Close(), closeIA(h.IA))
}
