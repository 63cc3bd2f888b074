// Command kdapl shows what the adapters of this machine are and can do.
//
//	kdapl info      adapters with all their attributes
//	kdapl perf      latency and throughput of sends, RDMA writes and RDMA reads
//	kdapl rping     the protocol of rdma-core's rping, as client or server
//	kdapl ucmatose  the protocol of rdma-core's ucmatose, as client or server
//	kdapl stat      the counters of a running process
//	kdapl dat-conf  the lines of a dat.conf for C programs
//	kdapl version   versions
//
// kdapl COMMAND --help tells more. The exit code is 0 if all went well, 1 if something failed
// (bad data, a broken connection, an interrupted run), and 2 if the command line was wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"kdapl/cmd/kdapl/internal/perf"
	"kdapl/cmd/kdapl/internal/ucmatose"

	"github.com/alecthomas/kong"
	"golang.org/x/term"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// env is what a command works with.
type env struct {
	ctx            context.Context
	stdout, stderr io.Writer
	// color: stdout is a terminal that shows colors. progress: stderr is a terminal.
	color, progress bool
}

// commands is the command line.
type commands struct {
	Info     infoCmd     `cmd:"" help:"Show adapters with all attributes."`
	Perf     perfCmd     `cmd:"" help:"Measure latency and throughput."`
	RPing    rpingCmd    `cmd:"" name:"rping" help:"Read and write a buffer of the peer's, as rdma-core's rping."`
	UCMatose ucmatoseCmd `cmd:"" name:"ucmatose" help:"Connect and exchange messages, as rdma-core's ucmatose."`
	Stat     statCmd     `cmd:"" help:"Show the counters of a running process."`
	DatConf  datConfCmd  `cmd:"" name:"dat-conf" help:"Print the lines of a dat.conf for C programs."`
	Version  versionCmd  `cmd:"" help:"Show versions."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	terminal := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	os.Exit(run(os.Args[1:], env{
		ctx: ctx, stdout: os.Stdout, stderr: os.Stderr,
		color:    terminal(os.Stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		progress: terminal(os.Stderr),
	}))
}

// usageError is a command line that asks for something impossible.
type usageError struct{ error }

// Unwrap returns the cause.
func (e usageError) Unwrap() error { return e.error }

// run runs a command line and returns the exit code.
func run(args []string, e env) (code int) {
	type exited int
	defer func() {
		if v := recover(); v != nil {
			c, ok := v.(exited)
			if !ok {
				panic(v)
			}
			if code = int(c); len(args) == 0 { // help was shown, unasked
				code = exitUsage
			}
		}
	}()
	var cmds commands
	parser := kong.Must(&cmds,
		kong.Name("kdapl"),
		kong.Description("RDMA through the Direct Access Transport API: what the adapters are, and how fast."),
		kong.Vars{
			"sizes": defaultSizes, "list": strconv.Itoa(defaultList), "depth": strconv.Itoa(perf.MaxDepth), "port": strconv.Itoa(perfPort),
			"connections": strconv.Itoa(ucmatose.DefaultConnections), "messages": strconv.Itoa(ucmatose.DefaultCount),
			"messagesize": strconv.Itoa(ucmatose.DefaultSize),
		},
		kong.WithHyphenPrefixedParameters(true), // so that --iters -3 is told what is wrong with it
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(e.stdout, e.stderr),
		kong.Exit(func(code int) { panic(exited(code)) }),
	)
	line := args
	if len(args) == 0 {
		line = []string{"--help"}
		parser.Stdout = e.stderr
	}
	ctx, err := parser.Parse(line)
	if err != nil {
		fmt.Fprintf(e.stderr, "kdapl: %v\nTry kdapl --help, or kdapl COMMAND --help.\n", err)
		return exitUsage
	}
	switch err := ctx.Run(e); {
	case err == nil:
		return exitOK
	case errors.As(err, &usageError{}):
		fmt.Fprintf(e.stderr, "kdapl %s: %v\nTry kdapl %[1]s --help.\n", ctx.Selected().Name, err)
		return exitUsage
	default:
		fmt.Fprintf(e.stderr, "kdapl %s: %v\n", ctx.Selected().Name, err)
		return exitFailure
	}
}
