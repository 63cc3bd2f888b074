// Command bench measures kdapl beside its yardsticks, in one run:
//
//	go run ./bench              every cell, 5 rounds
//	go run ./bench -rounds 9 -cells 'event|loop' -json out.json
//
// A cell is a pair: something of ours, and what a user would take instead. The two are run in turn,
// round by round, and the ratio is taken within a round, so that a machine whose speed drifts does
// not decide. The table shows medians, the ratio's spread and the goal. Cells against libfabric need a C
// compiler and its headers (Debian: gcc, libfabric-dev); without, they are left out and the table says so.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// cell is one comparison. Each side runs n rounds of its work and tells how long one took.
type cell struct {
	name string
	// what each side does, in a few words
	ours, peer string
	// goal is the ratio ours/peer that is aimed at; 0 is none.
	goal  float64
	n     int
	run   func(n int) time.Duration
	other func(n int) (time.Duration, error)
	unit  string // of the times shown; ns if empty
	scale float64
}

// result is a cell's outcome, for JSON.
type result struct {
	Name   string    `json:"name"`
	Ours   string    `json:"ours"`
	Peer   string    `json:"peer"`
	Unit   string    `json:"unit"`
	Times  []float64 `json:"times"`
	Others []float64 `json:"peer_times"`
	Ratio  float64   `json:"ratio_median"`
	Low    float64   `json:"ratio_min"`
	High   float64   `json:"ratio_max"`
	Goal   float64   `json:"goal,omitempty"`
	Note   string    `json:"note,omitempty"`
}

func main() {
	rounds := flag.Int("rounds", 5, "pairs for each cell")
	filter := flag.String("cells", "", "regular expression of the cells' names")
	out := flag.String("json", "", "file for the results as JSON")
	eps := flag.Int("eps", 0, "measure set-up, memory and tear-down of this many connected pairs, and nothing else")
	flag.Parse()
	if *eps > 0 {
		endPoints(*eps)
		return
	}
	match, err := regexp.Compile(*filter)
	if err != nil || *rounds < 1 {
		fmt.Fprintln(os.Stderr, "bench: -cells takes a regular expression, -rounds a number above 0:", err)
		os.Exit(2)
	}
	peers := buildPeers()
	defer peers.remove()
	var results []result
	for _, c := range cells(peers) {
		if match.MatchString(c.name) {
			fmt.Fprintf(os.Stderr, "%s …\n", c.name)
			results = append(results, c.measure(*rounds))
		}
	}
	table(results)
	fmt.Printf("\n%s, %s/%s, %d processors, load %.1f; medians of %d pairs\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), load(), *rounds)
	if *out != "" {
		b, _ := json.MarshalIndent(results, "", "  ")
		if err := os.WriteFile(*out, append(b, '\n'), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
	}
}

// measure runs the pairs of a cell.
func (c cell) measure(rounds int) result {
	r := result{Name: c.name, Ours: c.ours, Peer: c.peer, Unit: c.unit, Goal: c.goal}
	scale := c.scale
	if scale == 0 {
		scale, r.Unit = 1, "ns"
	}
	var ratios []float64
	c.run(c.n/10 + 1)
	for range rounds {
		a := float64(c.run(c.n).Nanoseconds()) / float64(c.n) / scale
		d, err := c.other(c.n)
		if err != nil {
			r.Note = err.Error()
			return r
		}
		b := float64(d.Nanoseconds()) / float64(c.n) / scale
		r.Times, r.Others = append(r.Times, a), append(r.Others, b)
		ratios = append(ratios, a/b)
	}
	r.Ratio, r.Low, r.High = median(ratios), slices.Min(ratios), slices.Max(ratios)
	return r
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func table(results []result) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "cell\tours\tpeer\tunit\tratio\tmin–max\tgoal\t")
	for _, r := range results {
		if r.Note != "" {
			fmt.Fprintf(w, "%s\t\t\t\t\t\t\t%s\n", r.Name, r.Note)
			continue
		}
		goal, verdict := "", ""
		if r.Goal > 0 {
			goal = fmt.Sprintf("≤ %.3g", r.Goal)
			if r.Ratio > r.Goal {
				verdict = "missed"
			}
		}
		fmt.Fprintf(w, "%s: %s / %s\t%.4g\t%.4g\t%s\t%.3g\t%.3g–%.3g\t%s\t%s\n",
			r.Name, r.Ours, r.Peer, median(r.Times), median(r.Others), r.Unit, r.Ratio, r.Low, r.High, goal, verdict)
	}
	w.Flush()
}
