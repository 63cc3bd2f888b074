package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
)

// limit is a goal for the ratio ours/peer: at most, or at least, a number. The zero value is none.
type limit struct {
	Max float64 `json:"at_most,omitempty"`
	Min float64 `json:"at_least,omitempty"`
}

func atMost(v float64) limit  { return limit{Max: v} }
func atLeast(v float64) limit { return limit{Min: v} }

func (l limit) String() string {
	switch {
	case l.Max > 0:
		return fmt.Sprintf("≤ %.3g", l.Max)
	case l.Min > 0:
		return fmt.Sprintf("≥ %.3g", l.Min)
	}
	return ""
}

// missed reports that a ratio is not what is aimed at.
func (l limit) missed(ratio float64) bool {
	return l.Max > 0 && ratio > l.Max || l.Min > 0 && ratio < l.Min
}

// peerResult is what became of one yardstick of a cell.
type peerResult struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
	// CPU is the processor time of both ends in microseconds per 10⁶ bytes or, without a payload worth it, per
	// operation, where it is known.
	CPU   []float64 `json:"cpu,omitempty"`
	Ratio float64   `json:"ratio_median"`
	Low   float64   `json:"ratio_min"`
	High  float64   `json:"ratio_max"`
	Goal  limit     `json:"goal"`
	Note  string    `json:"note,omitempty"`
}

// result is a cell's outcome, for JSON.
type result struct {
	Name   string    `json:"name"`
	Size   int       `json:"size,omitempty"`
	Ours   string    `json:"ours"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
	CPU    []float64 `json:"cpu,omitempty"`
	// Foreign is the share of the machine that others used while each pair was measured, the largest of its runs.
	Foreign []float64    `json:"foreign,omitempty"`
	Peers   []peerResult `json:"peers"`
	// Extra is what a cell knows beside: percentiles of a latency, for one.
	Extra map[string]any `json:"extra,omitempty"`
	Note  string         `json:"note,omitempty"`
}

// quiet tells which pairs ran while nobody else used the machine; all of them, if none did.
func (r *result) quiet() (at []int, clean bool) {
	for i := range r.Values {
		if len(r.Foreign) <= i || r.Foreign[i] <= maxForeign {
			at = append(at, i)
		}
	}
	if len(at) > 0 {
		return at, true
	}
	for i := range r.Values {
		at = append(at, i)
	}
	return at, false
}

// settle makes the ratios.
func (r *result) settle() {
	at, _ := r.quiet()
	for k := range r.Peers {
		p := &r.Peers[k]
		var ratios []float64
		for _, i := range at {
			if i < len(p.Values) && p.Values[i] > 0 {
				ratios = append(ratios, r.Values[i]/p.Values[i])
			}
		}
		if len(ratios) > 0 {
			p.Ratio, p.Low, p.High = median(ratios), slices.Min(ratios), slices.Max(ratios)
		}
	}
}

// middle is the median of the values of the quiet pairs.
func (r *result) middle(v []float64) float64 {
	at, _ := r.quiet()
	var some []float64
	for _, i := range at {
		if i < len(v) {
			some = append(some, v[i])
		}
	}
	if len(some) == 0 {
		return 0
	}
	return median(some)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// table writes the results for people. A cell's pairs are those of a quiet machine; ~ marks one that had none.
func table(out io.Writer, results []result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "cell\tours\tpeer\tunit\tratio\tmin–max\tgoal\tpairs\tcpu ours/peer\t")
	for i := range results {
		r := &results[i]
		if r.Note != "" {
			fmt.Fprintf(w, "%s\t\t\t\t\t\t\t\t\t%s\n", r.Name, r.Note)
			continue
		}
		at, clean := r.quiet()
		pairs := fmt.Sprint(len(at))
		if !clean {
			pairs = "~" + pairs
		}
		if len(r.Peers) == 0 {
			fmt.Fprintf(w, "%s: %s\t%.4g\t\t%s\t\t\t\t%s\t\t\n", r.Name, r.Ours, r.middle(r.Values), r.Unit, pairs)
		}
		for k := range r.Peers {
			p := &r.Peers[k]
			if p.Note != "" {
				fmt.Fprintf(w, "%s: %s / %s\t%.4g\t\t%s\t\t\t\t\t\t%s\n", r.Name, r.Ours, p.Name, r.middle(r.Values), r.Unit, p.Note)
				continue
			}
			verdict, cpu := "", ""
			if p.Goal.missed(p.Ratio) {
				verdict = "missed"
			}
			if len(r.CPU) > 0 && len(p.CPU) > 0 {
				cpu = fmt.Sprintf("%.3g/%.3g", r.middle(r.CPU), r.middle(p.CPU))
			}
			fmt.Fprintf(w, "%s: %s / %s\t%.4g\t%.4g\t%s\t%.3g\t%.3g–%.3g\t%v\t%s\t%s\t%s\n",
				r.Name, r.Ours, p.Name, r.middle(r.Values), r.middle(p.Values), r.Unit, p.Ratio, p.Low, p.High, p.Goal, pairs, cpu, verdict)
		}
	}
	w.Flush()
}

// markdown writes the table of reports that were written with -json, for docs/performance.md.
func markdown(out io.Writer, files []string) error {
	fmt.Fprintln(out, "| cell | ours | peer | ours/peer | min–max | goal | | pairs | CPU ours/peer |\n|---|---|---|---|---|---|---|---|---|")
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var rep report
		if err := json.Unmarshal(b, &rep); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for i := range rep.Results {
			rep.Results[i].markdown(out)
		}
	}
	return nil
}

func (r *result) markdown(out io.Writer) {
	if r.Note != "" {
		return
	}
	at, clean := r.quiet()
	pairs := fmt.Sprint(len(at))
	if !clean {
		pairs = "~" + pairs
	}
	if len(r.Peers) == 0 {
		fmt.Fprintf(out, "| %s: %s | %.4g %s | | | | | | %s | |\n", r.Name, r.Ours, r.middle(r.Values), r.Unit, pairs)
	}
	for k := range r.Peers {
		p := &r.Peers[k]
		if p.Note != "" {
			continue
		}
		verdict, cpu := "", ""
		if p.Goal != (limit{}) {
			verdict = "met"
		}
		if p.Goal.missed(p.Ratio) {
			verdict = "missed"
		}
		if len(r.CPU) > 0 && len(p.CPU) > 0 {
			cpu = fmt.Sprintf("%.3g / %.3g", r.middle(r.CPU), r.middle(p.CPU))
		}
		fmt.Fprintf(out, "| %s: %s | %.4g %s | %s %.4g | %.3g | %.3g–%.3g | %v | %s | %s | %s |\n",
			r.Name, r.Ours, r.middle(r.Values), r.Unit, p.Name, r.middle(p.Values), p.Ratio, p.Low, p.High, p.Goal, verdict, pairs, cpu)
	}
}
