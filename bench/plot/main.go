// Command plot draws the figures of docs/performance.md from what the bench command writes with -json. It is a module of its
// own, so that drawing adds nothing to what kdapl depends on:
//
//	cd bench/plot && go run . -out ../../docs/performance ../../docs/performance/*.json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// result is a cell of the report, as far as figures need it.
type result struct {
	Name    string
	Size    int
	Ours    string
	Unit    string
	Values  []float64
	CPU     []float64
	Foreign []float64
	Peers   []struct {
		Name   string
		Values []float64
		CPU    []float64
	}
	Extra map[string]json.RawMessage
	Note  string
}

type report struct{ Results []result }

func main() {
	out := flag.String("out", ".", "folder for the figures")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: plot [-out DIR] REPORT.json…")
		os.Exit(2)
	}
	cells := cells{}
	for _, name := range flag.Args() {
		b, err := os.ReadFile(name)
		check(err)
		var r report
		check(json.Unmarshal(b, &r))
		for _, c := range r.Results {
			if c.Note == "" {
				cells[c.Name] = c
			}
		}
	}
	for _, f := range figures {
		p, err := f.draw(cells)
		check(err)
		if p == nil {
			fmt.Fprintf(os.Stderr, "plot: %s: no results\n", f.name)
			continue
		}
		check(p.Save(width, height, filepath.Join(*out, f.name+".svg")))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}
