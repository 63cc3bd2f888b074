package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"kdapl/cmd/kdapl/internal/perf"
	"kdapl/dat"
	"kdapl/stat"

	"github.com/alecthomas/kong"
)

// The adapters that are measured if none is named: of a pair in one process, and of two processes.
const (
	pairAdapter = "loop0"
	wireAdapter = "iwarp0"
)

// place is an address, a port or both, and never nothing: an empty variable of a script must not make another command of it.
type place string

func (p *place) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("no address and no port")
	}
	*p = place(text)
	return nil
}

type perfCmd struct {
	Server  bool   `xor:"role" help:"Be the server of clients in other processes, one after another and at once, until Ctrl-C."`
	Listen  place  `xor:"role2" placeholder:"ADDR:PORT" help:"Where the server listens: an address, :PORT or both (default: the adapter's address, port ${port}). Means --server too."`
	Connect place  `xor:"role,role2" placeholder:"HOST:PORT" help:"Be a client: measure with the server there (port ${port} if none is given)."`
	Memory  volume `default:"2GiB" placeholder:"SIZE" help:"Memory that a server gives to all of its clients (default: ${default})."`

	Stat string `placeholder:"ADDRESS" help:"Export the counters, for kdapl stat: the path of a socket to make, or HOST:PORT."`

	adapterFlags

	Op         []perf.Op       `default:"send,write,read" placeholder:"OP" help:"Operations: send, write, read (default: all)."`
	Size       sizes           `default:"${sizes}" placeholder:"SIZE,…" help:"Message sizes: 64, 4KiB, ranges 8-1MiB (doubling) or 8-1MiB/8 (times 8), or a list of them (default: ${sizes})."`
	Completion perf.Completion `default:"upcall" placeholder:"HOW" help:"How both ends learn of completions: upcall, dequeue (polling) or wait (default: ${default})."`
	Post       posting         `default:"single" placeholder:"HOW" help:"How throughput is posted: single, list or list=N (default: ${default}; list is list=${list}; N is ${depth} at most)."`
	Depth      depth           `placeholder:"N" help:"Messages under way for throughput, 1 to ${depth} (default: 64, less when that is more than 4 MiB)."`
	Duration   span            `xor:"length" placeholder:"TIME" help:"Length of each measurement, as in 500ms or 2s (default: all together about 7 s, each 1 s at most)."`
	Iters      iterations      `xor:"length" placeholder:"N" help:"Messages of each measurement, instead of a duration."`
	Verify     bool            `default:"true" negatable:"" help:"Check the data (default: yes)."`
	Histogram  bool            `help:"Show the distribution of latencies too."`
	JSON       bool            `help:"Write JSON; a server writes an object a line."`
}

// Help is the long text of --help.
func (perfCmd) Help() string {
	return `Two end points exchange messages, and for each operation and size kdapl measures latency and throughput.
Without --server and --connect both are in this process, each of an adapter of its own. For two
processes, or two hosts, start

    kdapl perf --server                      (or --listen 192.0.2.1:${port})
    kdapl perf --connect HOST [options]

The client says what is measured, and shows the results; the server follows, and says why if it refuses.

Latency. send: half of the time from posting a message until an answer of the same size has
arrived. write, read: from posting to the completion. One is under way at a time. What it costs to
read the clock is measured first and subtracted.

Throughput. As many messages are under way as --depth says. Messages and bytes are counted in one
direction, from the first post to the last completion, or to the peer's word that all is there, where
completions don't say so. CPU is the processor time of the whole process in that time, for each
megabyte (1,000,000 bytes).

Verification. The payload depends on the place in memory and on a number drawn for each measurement.
Before the measured time, every send and read is checked, byte by byte, when it completes; after
it, what is in every buffer that was sent, written or read to, by the end that has the buffer. In the
measured time the status, the length and the order of every completion are checked, and nothing more.

Ctrl-C ends the run, shows what was measured, and exits with 1; it ends a server with 0.`
}

// budget is how long the measurements of a run without --duration and --iters take together.
const budget = 7 * time.Second

// window is how many bytes are under way by default.
const (
	defaultDepth  = 64
	defaultWindow = 4 << 20
)

// maxMemory limits the memory of an end.
const maxMemory = 2 << 30

// plan is what is to be measured, in order: latency and throughput of every size of every operation.
func (c *perfCmd) plan(maxMessage uint32) ([]perf.Spec, error) {
	var specs []perf.Spec
	if len(c.Op) == 0 {
		return nil, errors.New("--op names no operation: send, write, read, or several of them")
	}
	given := int(c.Depth)
	if given > 0 && c.Post.list > given {
		return nil, fmt.Errorf("a list of %d is longer than the --depth of %d", c.Post.list, given)
	}
	duration := time.Duration(c.Duration)
	if duration == 0 && c.Iters == 0 {
		duration = min(budget/time.Duration(2*len(c.Op)*len(c.Size)), time.Second)
	}
	for _, op := range c.Op {
		for _, size := range c.Size {
			if limit := min(int64(maxMessage), perf.MaxSize); int64(size) > limit {
				return nil, fmt.Errorf("--size %s is more than the %s of the largest message",
					formatBytes(uint64(size)), formatBytes(uint64(limit)))
			}
			s := perf.Spec{
				Op: op, Size: size, Depth: given, List: c.Post.list, Verify: c.Verify,
				Messages: int(c.Iters), Duration: duration,
				WarmUp: min(max(1<<20/size, 8), 1000),
			}
			if s.Depth == 0 {
				s.Depth = max(1, min(max(defaultDepth, s.List), defaultWindow/size))
				s.List = min(s.List, s.Depth)
			}
			if s.Memory() > maxMemory {
				return nil, fmt.Errorf("--depth %d of %s messages needs more than the %s of memory that an end gets; lower one of them",
					s.Depth, formatBytes(uint64(size)), formatBytes(maxMemory))
			}
			for _, s.Kind = range []perf.Kind{perf.Latency, perf.Throughput} {
				specs = append(specs, s)
			}
		}
	}
	return specs, nil
}

// Run measures and shows the results, or serves.
func (c *perfCmd) Run(e env, k *kong.Context) error {
	if c.Server || c.Listen != "" {
		return c.serve(e, k)
	}
	if c.Connect != "" {
		return c.connect(e)
	}
	return c.pair(e)
}

// pair measures two end points of this process.
func (c *perfCmd) pair(e env) (err error) {
	var ias [2]*dat.IA
	for i := range ias {
		flags := c.adapterFlags
		if i > 0 {
			flags.Pcap = "" // the other end sees the same
		}
		ia, err := flags.open(pairAdapter)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeIA(ia)) }()
		ias[i] = ia
	}
	stop, err := c.export(ias[:]...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return c.show(e, ias[0], nil, func(memory int64) (measurement, error) {
		var hosts [2]*perf.Host
		for i, ia := range ias {
			var err error
			if hosts[i], err = perf.NewHost(ia, memory); err != nil {
				return nil, err
			}
		}
		listener, err := hosts[1].Listen(0)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, s perf.Spec) (perf.Result, error) {
			return perf.Measure(ctx, hosts[0], listener, s, c.Completion)
		}, nil
	})
}

// export exports the counters of IAs, if that is asked for.
func (c *perfCmd) export(ias ...*dat.IA) (stop func() error, err error) {
	if c.Stat == "" {
		return func() error { return nil }, nil
	}
	x, err := stat.Serve(c.Stat, ias...)
	if err != nil {
		return nil, fmt.Errorf("--stat: %w", err)
	}
	return x.Close, nil
}

// measurement measures what a Spec says.
type measurement func(context.Context, perf.Spec) (perf.Result, error)

// show measures all that is planned and shows it. ready is called with the memory that the ends need.
func (c *perfCmd) show(e env, ia *dat.IA, to *remote, ready func(memory int64) (measurement, error)) error {
	p, err := ia.Query()
	if err != nil {
		return err
	}
	specs, err := c.plan(min(p.Attr.MaxMessageSize, p.Attr.MaxRDMASize))
	if err != nil {
		return usageError{err}
	}
	var memory int64
	for i := range specs {
		memory = max(memory, specs[i].Memory())
	}
	measure, err := ready(memory)
	if err != nil {
		return err
	}
	r := c.report(&p)
	r.Server = to
	failure := c.measure(e, measure, specs, r)
	if len(r.Rows) > 0 || failure == nil {
		show := r.text
		if c.JSON {
			show = r.json
		}
		if err := show(e); err != nil {
			return err
		}
	}
	if failure == nil && r.Interrupted {
		failure = errors.New("interrupted; these are the measurements until then")
	}
	return failure
}

// report is the report of a run, without rows.
func (c *perfCmd) report(p *dat.IAParam) *perfReport {
	r := &perfReport{
		Program: build(), CPUs: runtime.GOMAXPROCS(0), Clock: perf.ClockCost(),
		Adapter: p.Attr.AdapterName, Address: p.Attr.Address, Settings: c.settings(),
		Completion: c.Completion, List: c.Post.list, Verify: c.Verify, histogram: c.Histogram,
	}
	for _, a := range p.Provider.ProviderSpecificAttrs {
		if a.Name == dat.AttrCompletionMeaning {
			r.Meaning = a.Value
		}
	}
	return r
}

// measure measures what is planned, until something fails or the context ends, and adds rows to the
// report.
func (c *perfCmd) measure(e env, measure measurement, specs []perf.Spec, r *perfReport) error {
	bar := newProgress(e, len(specs))
	defer bar.end()
	for _, s := range specs {
		bar.next(s)
		res, err := measure(e.ctx, s)
		if err != nil {
			return fmt.Errorf("%v of %v of %s: %w", s.Kind, s.Op, formatBytes(uint64(s.Size)), err)
		}
		r.add(res)
		if r.Interrupted {
			break
		}
	}
	return nil
}
