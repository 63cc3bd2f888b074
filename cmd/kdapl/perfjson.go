package main

import (
	"kdapl/cmd/kdapl/internal/perf"
)

// The JSON document. Latencies are in nanoseconds.
type perfDoc struct {
	Program     versionInfo     `json:"program"`
	CPUs        int             `json:"cpus"`
	ClockNS     int64           `json:"clock_ns"`
	Adapter     string          `json:"adapter"`
	Address     string          `json:"address"`
	Meaning     string          `json:"completion_meaning"`
	Completion  perf.Completion `json:"completion"`
	Verify      bool            `json:"verify"`
	Interrupted bool            `json:"interrupted"`
	Results     []perfDocRow    `json:"results"`
}

type perfDocRow struct {
	Op         perf.Op        `json:"op"`
	Size       int            `json:"size"`
	Latency    *latencyDoc    `json:"latency,omitempty"`
	Throughput *throughputDoc `json:"throughput,omitempty"`
}

type latencyDoc struct {
	Unit      string   `json:"unit"`
	Samples   int64    `json:"samples"`
	Seconds   float64  `json:"seconds"`
	Min       float64  `json:"min"`
	Mean      float64  `json:"mean"`
	P50       float64  `json:"p50"`
	P90       float64  `json:"p90"`
	P99       float64  `json:"p99"`
	P999      float64  `json:"p99.9"`
	Max       float64  `json:"max"`
	Checked   uint64   `json:"checked_messages"`
	Histogram []bucket `json:"histogram,omitempty"`
}

type throughputDoc struct {
	Depth             int     `json:"depth"`
	List              int     `json:"list"`
	Messages          int     `json:"messages"`
	Seconds           float64 `json:"seconds"`
	BytesPerSecond    float64 `json:"bytes_per_second"`
	MessagesPerSecond float64 `json:"messages_per_second"`
	Checked           uint64  `json:"checked_messages"`
}

// json writes the report as JSON.
func (r *perfReport) json(e env) error {
	d := perfDoc{
		Program: r.Program, CPUs: r.CPUs, ClockNS: r.Clock.Nanoseconds(),
		Adapter: r.Adapter, Address: r.Address.String(), Meaning: r.Meaning,
		Completion: r.Completion, Verify: r.Verify, Interrupted: r.Interrupted, Results: []perfDocRow{},
	}
	for _, row := range r.Rows {
		out := perfDocRow{Op: row.Op, Size: row.Size}
		if l := row.Latency; l != nil {
			out.Latency = &latencyDoc{
				Unit: "ns", Samples: l.Histogram.TotalCount(), Seconds: l.Elapsed.Seconds(),
				Min: l.Min(), Mean: l.Mean(), P50: l.Percentile(50), P90: l.Percentile(90), P99: l.Percentile(99),
				P999: l.Percentile(99.9), Max: l.Percentile(100), Checked: l.Checked,
			}
			if r.histogram {
				out.Latency.Histogram = buckets(l)
			}
		}
		if t := row.Throughput; t != nil {
			out.Throughput = &throughputDoc{
				Depth: t.Spec.Depth, List: t.Spec.List, Messages: t.Messages, Seconds: t.Elapsed.Seconds(),
				BytesPerSecond: t.Bandwidth(), MessagesPerSecond: t.MessageRate(), Checked: t.Checked,
			}
		}
		d.Results = append(d.Results, out)
	}
	return writeJSON(e.stdout, d)
}
