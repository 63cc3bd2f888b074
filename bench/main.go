// Command bench measures kdapl beside its yardsticks, in one run:
//
//	go run ./bench                      every cell, 5 rounds
//	go run ./bench -run 'event|loop'    some, by a regular expression of their names
//	go run ./bench -short               shorter runs, 3 rounds: for every change
//	go run ./bench -json out.json       the numbers too
//	go run ./bench -list                the cells' names
//
// A cell is something of ours, and what a user would take instead. They are run in turn,
// round by round, and the ratio is taken within a round, so that a machine whose speed drifts does
// not decide. The table shows medians, the ratio's spread and the goal.
//
// Cells named tcp/… have two processes, the ends of iWARP connections over loopback, on processors 0 and
// 1; so have their peers. While one runs it is watched how much of the machine others use: a run with
// more than 5 % is repeated, and if that does not help its pair is left out of the medians as long as
// there are others.
//
// The peers are libfabric and UCX. Their Debian packages are installed if they are missing and this is root
// on a Debian; otherwise the cells that need them are left out, and the table says so.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"kdapl/bench/internal/ends"
)

// sample is one run of one side.
type sample struct {
	value   float64 // in the cell's unit
	cpu     float64 // microseconds per 10⁶ bytes, or per operation; 0 if unknown
	foreign float64
	extra   map[string]any
}

// runner measures once.
type runner func() (sample, error)

// peer is a yardstick.
type peer struct {
	name string
	// goal is for the ratio ours/peer.
	goal limit
	run  runner
}

// cell is one comparison.
type cell struct {
	name, ours, unit string
	size             int
	run              runner
	peers            []peer
}

// report is the JSON file.
type report struct {
	Go, OS, CPU string
	Processors  int
	Time        time.Time
	Rounds      int
	Results     []result
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "end" {
		fatal(ends.Main(os.Args[2:], os.Stdout))
		return
	}
	rounds := flag.Int("rounds", 5, "pairs for each cell")
	filter := flag.String("run", "", "regular expression of the cells' names")
	short := flag.Bool("short", false, "short runs, 3 rounds unless -rounds says otherwise")
	out := flag.String("json", "", "file for the results as JSON")
	list := flag.Bool("list", false, "list the cells")
	install := flag.Bool("install", true, "install the peers' Debian packages if they are missing")
	first := flag.Bool("first", false, "give the measured processes precedence over all others (needs root)")
	retries := flag.Int("retries", 2, "how often a run is repeated that others disturbed")
	profile := flag.String("profile", "", "folder for processor profiles of both ends of cells with two processes")
	md := flag.Bool("markdown", false, "write the table of the reports that are named as arguments, and measure nothing")
	eps := flag.Int("eps", 0, "measure set-up, memory and tear-down of this many connected pairs, and nothing else")
	flag.Parse()
	if *eps > 0 {
		endPoints(*eps)
		return
	}
	if *md {
		fatal(markdown(os.Stdout, flag.Args()))
		return
	}
	if *first && os.Getenv(inFront) == "" {
		goFirst()
		return
	}
	match, err := regexp.Compile(*filter)
	if err != nil || *rounds < 1 {
		fmt.Fprintln(os.Stderr, "bench: -run takes a regular expression, -rounds a number above 0:", err)
		os.Exit(2)
	}
	set := settings{time: 300 * time.Millisecond, part: 1, first: *first, retries: *retries, profile: *profile}
	if *short {
		set.time, set.part = 100*time.Millisecond, 5
		given := false
		flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rounds" })
		if !given {
			*rounds = 3
		}
	}
	var chosen []func(*peers) cell
	for _, c := range append(singleCells(&set), pairCells(&set)...) {
		name := c(&peers{}).name
		if !match.MatchString(name) {
			continue
		}
		if *list {
			fmt.Println(name)
			continue
		}
		chosen = append(chosen, c)
	}
	if *list {
		return
	}
	p := buildPeers(*install)
	defer p.remove()
	rep := report{Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, CPU: processor(),
		Processors: runtime.NumCPU(), Time: time.Now().UTC().Truncate(time.Second), Rounds: *rounds}
	for _, make := range chosen {
		c := make(p)
		fmt.Fprintf(os.Stderr, "%s …\n", c.name)
		rep.Results = append(rep.Results, c.measure(*rounds))
	}
	table(os.Stdout, rep.Results)
	fmt.Printf("\n%s, %s, %d × %s; medians of the quiet ones of %d pairs; ~ marks a cell that had none\n", rep.Go, rep.OS, rep.Processors, rep.CPU, *rounds)
	if *out != "" {
		b, _ := json.MarshalIndent(rep, "", " ")
		if err := os.WriteFile(*out, append(b, '\n'), 0o644); err != nil {
			fatal(err)
		}
	}
}

// inFront is set in the environment of the process that goes before others.
const inFront = "KDAPL_BENCH_FIRST"

// goFirst runs the command again with precedence, as the cells within one process need it.
func goFirst() {
	self, err := os.Executable()
	fatal(err)
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inFront+"=1")
	fatal(startFirst(true, cmd))
	fatal(cmd.Wait())
}

// measure runs the pairs of a cell.
func (c cell) measure(rounds int) result {
	r := result{Name: c.name, Size: c.size, Ours: c.ours, Unit: c.unit, Peers: make([]peerResult, len(c.peers))}
	for i, p := range c.peers {
		r.Peers[i] = peerResult{Name: p.name, Goal: p.goal}
	}
	for range rounds {
		s, err := c.run()
		if err != nil {
			r.Note = err.Error()
			return r
		}
		foreign := s.foreign
		r.Values = append(r.Values, s.value)
		if s.cpu > 0 {
			r.CPU = append(r.CPU, s.cpu)
		}
		if s.extra != nil {
			r.Extra = s.extra
		}
		for i, p := range c.peers {
			if r.Peers[i].Note != "" {
				continue
			}
			o, err := p.run()
			if err != nil {
				r.Peers[i].Note = err.Error()
				continue
			}
			foreign = max(foreign, o.foreign)
			r.Peers[i].Values = append(r.Peers[i].Values, o.value)
			if o.cpu > 0 {
				r.Peers[i].CPU = append(r.Peers[i].CPU, o.cpu)
			}
		}
		r.Foreign = append(r.Foreign, foreign)
	}
	r.settle()
	return r
}

// processor names the machine's processor, as far as the system tells.
func processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return runtime.GOARCH
}
