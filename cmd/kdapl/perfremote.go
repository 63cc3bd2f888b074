package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"kdapl/cmd/kdapl/internal/perf"
	"kdapl/dat"

	"github.com/alecthomas/kong"
)

// perfPort is where a server listens if nothing else is said; perftest's servers do too.
const perfPort = 18515

// hostPort splits HOST, HOST:PORT, :PORT and addresses of IPv6 with and without brackets. Without a port it is
// the given one.
func hostPort(s string, port uint16) (host string, _ uint16, err error) {
	if _, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return strings.Trim(s, "[]"), port, nil
	}
	host, text, has := strings.Cut(s, ":")
	if strings.HasPrefix(s, "[") || strings.Contains(text, ":") {
		if host, text, err = net.SplitHostPort(s); err != nil {
			return "", 0, fmt.Errorf("%q is not HOST, HOST:PORT or :PORT; an address of IPv6 with a port is [ADDR]:PORT", s)
		}
		has = true
	}
	if has {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return "", 0, fmt.Errorf("%q: %q is not a port, 0 to 65535", s, text)
		}
		port = uint16(n)
	}
	return host, port, nil
}

// clientFlags are those that a server does not take.
var clientFlags = []string{"op", "size", "completion", "post", "depth", "duration", "iters", "verify", "histogram"}

// serve serves until the context ends.
func (c *perfCmd) serve(e env, k *kong.Context) (err error) {
	for _, p := range k.Path {
		if p.Flag != nil && slices.Contains(clientFlags, p.Flag.Name) {
			return usageError{fmt.Errorf("--%s is for the client to say, not for the server", p.Flag.Name)}
		}
	}
	host, port, err := hostPort(string(c.Listen), perfPort)
	if err != nil {
		return usageError{fmt.Errorf("--listen: %w", err)}
	}
	if host != "" {
		addr, err := netip.ParseAddr(host)
		switch {
		case err != nil:
			return usageError{fmt.Errorf("--listen: %q is not an address of this host", host)}
		case c.Addr.IsValid() && c.Addr != addr:
			return usageError{errors.New("--listen and --addr name two addresses; leave one away")}
		}
		c.Addr = addr
	}
	if err := c.wire(); err != nil {
		return err
	}
	ia, err := c.open(wireAdapter)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeIA(ia)) }()
	stop, err := c.export(ia)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	log := newServerLog(e.stdout, c.JSON)
	s, err := perf.NewServer(ia, uint64(port), int64(c.Memory), log.served)
	if err != nil {
		return err
	}
	addr, qual := s.Addr()
	log.listening(ia.Name(), netip.AddrPortFrom(addr, uint16(qual)))
	return errors.Join(s.Serve(e.ctx), log.err)
}

// serverLog writes what a server does, a line each.
type serverLog struct {
	out  io.Writer
	json bool
	err  error // the first of writing
}

func newServerLog(out io.Writer, json bool) *serverLog { return &serverLog{out: out, json: json} }

func (l *serverLog) line(doc any, text string) {
	line := []byte(text)
	if l.json {
		var err error
		if line, err = json.Marshal(doc); err != nil {
			l.err = errors.Join(l.err, err)
			return
		}
	}
	if _, err := l.out.Write(append(line, '\n')); err != nil && l.err == nil {
		l.err = err
	}
}

type listeningDoc struct {
	Listening netip.AddrPort `json:"listening"`
	Adapter   string         `json:"adapter"`
}

func (l *serverLog) listening(adapter string, at netip.AddrPort) {
	l.line(listeningDoc{at, adapter}, fmt.Sprintf("kdapl perf: serving at %s (%s); Ctrl-C ends it", at, adapter))
}

type servedDoc struct {
	Client     netip.AddrPort   `json:"client"`
	Op         *perf.Op         `json:"op,omitempty"`
	Kind       string           `json:"kind,omitempty"`
	Size       int              `json:"size,omitempty"`
	Depth      int              `json:"depth,omitempty"`
	Completion *perf.Completion `json:"completion,omitempty"`
	Messages   int              `json:"messages"`
	CPU        float64          `json:"cpu_seconds"`
	Refused    bool             `json:"refused,omitempty"`
	Error      string           `json:"error,omitempty"`
}

// served tells of a measurement.
func (l *serverLog) served(s perf.Served) {
	doc := servedDoc{Client: s.Client, Messages: s.Messages, CPU: s.CPU.Seconds(), Refused: s.Refused}
	what := "a request"
	if s.Spec.Size > 0 {
		doc.Op, doc.Kind, doc.Size, doc.Depth, doc.Completion = &s.Spec.Op, s.Spec.Kind.String(), s.Spec.Size, s.Spec.Depth, &s.Completion
		what = fmt.Sprintf("%-5v %-10v %8s, depth %d, %v", s.Spec.Op, s.Spec.Kind, formatBytes(uint64(s.Spec.Size)), s.Spec.Depth, s.Completion)
	}
	var text string
	if s.Err != nil {
		doc.Error = strings.ReplaceAll(s.Err.Error(), "\n", "; ")
	}
	switch {
	case s.Refused:
		text = fmt.Sprintf("%s  refused %s: %s", s.Client, what, doc.Error)
	case s.Err != nil:
		text = fmt.Sprintf("%s  %s: failed: %s", s.Client, what, doc.Error)
	default:
		text = fmt.Sprintf("%s  %s: %s messages", s.Client, what, grouped(s.Messages))
	}
	l.line(doc, text)
}

// connect measures with a server.
func (c *perfCmd) connect(e env) (err error) {
	host, port, err := hostPort(string(c.Connect), perfPort)
	if err == nil && (host == "" || port == 0) {
		err = fmt.Errorf("%q names no host and port", c.Connect)
	}
	if err != nil {
		return usageError{fmt.Errorf("--connect: %w", err)}
	}
	if err := c.wire(); err != nil {
		return err
	}
	addr, ia, err := c.reach(e.ctx, host)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeIA(ia)) }()
	stop, err := c.export(ia)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return c.show(e, ia, &remote{netip.AddrPortFrom(addr, port)}, func(memory int64) (measurement, error) {
		h, err := perf.NewHost(ia, memory)
		return func(ctx context.Context, s perf.Spec) (perf.Result, error) {
			return perf.Request(ctx, h, addr, uint64(port), s, c.Completion)
		}, err
	})
}

// reach finds the address of a host, and opens an adapter that reaches it: the one that is asked for, or
// the default one at the address from which the host is reached.
func (a *adapterFlags) reach(ctx context.Context, host string) (netip.Addr, *dat.IA, error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, nil, err
	}
	flags := *a
	if a.Adapter == "" && !a.Addr.IsValid() {
		if flags.Addr, err = sourceOf(ctx, netip.AddrPortFrom(addrs[0].Unmap(), perfPort)); err != nil {
			return netip.Addr{}, nil, err
		}
	}
	ia, err := flags.open(wireAdapter)
	if err != nil {
		return netip.Addr{}, nil, err
	}
	own := ia.Address()
	for _, addr := range addrs {
		if addr = addr.Unmap(); addr.Is4() == own.Is4() {
			return addr, ia, nil
		}
	}
	return netip.Addr{}, nil, errors.Join(fmt.Errorf("%s has no address of the kind of the adapter's, %v", host, own), closeIA(ia))
}
