package main

import (
	"time"

	"kdapl/cmd/kdapl/internal/perf"
)

// The JSON document. Latencies are in nanoseconds.
type perfDoc struct {
	Program     versionInfo       `json:"program"`
	CPUs        int               `json:"cpus"`
	ClockNS     int64             `json:"clock_ns"`
	Adapter     string            `json:"adapter"`
	Address     string            `json:"address"`
	Settings    map[string]string `json:"settings,omitempty"`
	Server      string            `json:"server,omitempty"`
	Meaning     string            `json:"completion_meaning"`
	Completion  perf.Completion   `json:"completion"`
	Verify      bool              `json:"verify"`
	Interrupted bool              `json:"interrupted"`
	Results     []perfDocRow      `json:"results"`
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
	CPU               cpuDoc  `json:"cpu"`
}

// cpuDoc is processor time of the measured time: of the process with both ends, or of client and server.
type cpuDoc struct {
	Both   *cpuOf `json:"both,omitempty"`
	Client *cpuOf `json:"client,omitempty"`
	Server *cpuOf `json:"server,omitempty"`
}

type cpuOf struct {
	Seconds float64 `json:"seconds"`
	PerMB   float64 `json:"us_per_mb"`
}

func newCPUDoc(t *perf.Result, remote bool) cpuDoc {
	of := func(d time.Duration) *cpuOf { return &cpuOf{d.Seconds(), perMB(d, t)} }
	if !remote {
		return cpuDoc{Both: of(t.CPU.Requester)}
	}
	return cpuDoc{Client: of(t.CPU.Requester), Server: of(t.CPU.Responder)}
}

// json writes the report as JSON.
func (r *perfReport) json(e env) error {
	d := perfDoc{
		Program: r.Program, CPUs: r.CPUs, ClockNS: r.Clock.Nanoseconds(),
		Adapter: r.Adapter, Address: r.Address.String(), Settings: r.Settings, Meaning: r.Meaning,
		Completion: r.Completion, Verify: r.Verify, Interrupted: r.Interrupted, Results: []perfDocRow{},
	}
	if r.Server != nil {
		d.Server = r.Server.Address.String()
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
				CPU: newCPUDoc(t, r.Server != nil),
			}
		}
		d.Results = append(d.Results, out)
	}
	return writeJSON(e.stdout, d)
}
