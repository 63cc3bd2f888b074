// Command debian runs Debian's DAT test programs (package dapl2-utils: dtest, dtestcm, dtestsrq, dtestx, dapltest),
// unmodified, on libkdapl.so, as client and server on this host, and prints a table.
//
//	make capi
//	go run ./interop/debian [-short] [-repeat n] [-only regexp] [-install] [build/dat.conf]
//
// If the system allows, they run in a network of their own, in which nobody else has the ports that they need.
//
// The programs' exit codes say nothing, so their output is judged: what must be there and what must not, on
// both sides. The command fails if a case does.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	repeat := flag.Int("repeat", 1, "how often to run each case")
	short := flag.Bool("short", false, "run a few cases of each program only")
	only := flag.String("only", "", "run the cases whose name matches this expression")
	install := flag.Bool("install", false, "install dapl2-utils with apt-get if it is missing")
	verbose := flag.Bool("v", false, "print the output of what fails")
	flag.Parse()
	conf := "build/dat.conf"
	if flag.NArg() > 0 {
		conf = flag.Arg(0)
	}
	if err := run(conf, *only, *repeat, *short, *install, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "debian:", err)
		os.Exit(1)
	}
}

func run(conf, only string, repeat int, short, install, verbose bool) error {
	filter, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	conf, err = filepath.Abs(conf)
	if err != nil {
		return err
	}
	if _, err := os.Stat(conf); err != nil {
		return fmt.Errorf("%w; make capi writes it", err)
	}
	if err := programs(install); err != nil {
		return err
	}
	if code, done := isolate(); done {
		os.Exit(code)
	}
	if err := loopback(); err != nil {
		return err
	}
	// The programs' ports are fixed: without a network of its own, only one run at a time can have them.
	alone, err := lock()
	if err != nil {
		return err
	}
	defer alone.Close()
	const row = "%-52s %-6s %7s %8s  %s\n"
	fmt.Printf(row, "case", "result", "passed", "seconds", "why")
	ran, failed := 0, 0
	for _, c := range cases {
		if !filter.MatchString(c.name) || short && !slices.Contains(shortCases, c.name) {
			continue
		}
		ran++
		passed, lost, why := 0, 0, ""
		start := time.Now()
		for range repeat {
			o := c.run(conf)
			lost += o.lost
			if o.why == "" {
				passed++
				continue
			}
			if why == "" {
				why = o.why
			}
			if verbose {
				fmt.Fprintf(os.Stderr, "--- %s: %s\n--- server:\n%s\n--- client:\n%s\n", c.name, o.why, o.server, o.client)
			}
		}
		if why == "" && lost > 0 {
			why = fmt.Sprintf("%d more runs in which the program lost its own race", lost)
		}
		result := "pass"
		if passed < repeat {
			result = "FAIL"
			failed++
		}
		fmt.Printf(row, c.name, result, fmt.Sprintf("%d/%d", passed, repeat), fmt.Sprintf("%.1f", time.Since(start).Seconds()), why)
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d cases failed", failed, ran)
	case ran == 0:
		return fmt.Errorf("no case has a name that matches %q", only)
	}
	fmt.Printf("%d cases passed, each %d times\n", ran, repeat)
	return nil
}

// lock waits until no other run of this command is under way, and keeps others waiting until it is closed. A port is a
// lock that every system has and that ends with the process.
func lock() (net.Listener, error) {
	for deadline := time.Now().Add(time.Hour); ; time.Sleep(time.Second) {
		l, err := net.Listen("tcp", "127.0.0.1:15829")
		if err == nil || time.Now().After(deadline) {
			return l, err
		}
	}
}

// programs checks that the programs are there.
func programs(install bool) error {
	for _, p := range []string{"dtest", "dtestcm", "dtestsrq", "dtestx", "dapltest"} {
		if _, err := exec.LookPath(p); err == nil {
			continue
		}
		if !install {
			return fmt.Errorf("%s is missing: apt-get install dapl2-utils, or use -install", p)
		}
		for _, args := range [][]string{{"update", "-q"}, {"install", "-qy", "dapl2-utils"}} {
			if out, err := exec.Command("apt-get", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, out)
			}
		}
		install = false
	}
	return nil
}

// process is a program that runs, and what it has printed.
type process struct {
	cmd  *exec.Cmd
	out  syncBuffer
	done chan struct{}
}

func start(ctx context.Context, conf string, args []string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, args[0], args[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "DAT_OVERRIDE="+conf)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.cmd.Wait() // the exit code says nothing
		close(p.done)
	}()
	return p, nil
}

// end waits for the process, whose context bounds that.
func (p *process) end() string {
	<-p.done
	return p.out.String()
}

// listening waits until the process has printed a text or a TCP port is listened on.
func (p *process) listening(text string, port int) error {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if text != "" && strings.Contains(p.out.String(), text) || port != 0 && listens(port) {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("the server ended")
		default:
		}
	}
	return fmt.Errorf("the server is not ready")
}

// listens looks into the kernel's table: a connection would disturb the program.
func listens(port int) bool {
	for _, f := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(f)
		for line := range bytes.Lines(b) {
			w := bytes.Fields(line)
			if len(w) > 3 && bytes.HasSuffix(w[1], fmt.Appendf(nil, ":%04X", port)) && string(w[3]) == "0A" {
				return true
			}
		}
	}
	return false
}
