package main

import (
	"net/netip"
	"time"

	"kdapl/cmd/kdapl/internal/perf"
)

// perfReport is what perf has found.
type perfReport struct {
	Program    versionInfo
	CPUs       int
	Clock      time.Duration // the cost of reading the clock
	Adapter    string
	Address    netip.Addr
	Settings   map[string]string // of the adapter, that were asked for
	Server     *remote           // of a run of two processes
	Meaning    string            // what a completion means
	Completion perf.Completion
	List       int
	Verify     bool
	Rows       []perfRow
	// Interrupted: the run ended before its time.
	Interrupted bool

	histogram bool
}

// perfRow are the measurements of an operation and size; nil where there is none.
type perfRow struct {
	Op                  perf.Op
	Size                int
	Latency, Throughput *perf.Result
}

// add adds a result, to the last row if it belongs there.
func (r *perfReport) add(res perf.Result) {
	r.Interrupted = r.Interrupted || res.Interrupted
	if res.Messages == 0 {
		return
	}
	n := len(r.Rows)
	if n == 0 || r.Rows[n-1].Op != res.Spec.Op || r.Rows[n-1].Size != res.Spec.Size {
		r.Rows = append(r.Rows, perfRow{Op: res.Spec.Op, Size: res.Spec.Size})
		n++
	}
	if row := &r.Rows[n-1]; res.Spec.Kind == perf.Latency {
		row.Latency = &res
	} else {
		row.Throughput = &res
	}
}

// results are the results in order.
func (r *perfReport) results() []*perf.Result {
	var all []*perf.Result
	for _, row := range r.Rows {
		for _, res := range []*perf.Result{row.Latency, row.Throughput} {
			if res != nil {
				all = append(all, res)
			}
		}
	}
	return all
}

// percentiles are those that are shown; 100 is the longest sample.
var percentiles = []struct {
	name string
	p    float64
}{{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}, {"max", 100}}

// bucket is a part of a distribution: samples above the previous bucket's limit and up to its own.
type bucket struct {
	Limit float64 `json:"limit"` // in nanoseconds
	Count int64   `json:"count"`
}

// buckets sorts the samples of a latency into buckets whose limits are 1, 2 and 5 times powers of ten.
func buckets(res *perf.Result) []bucket {
	var all []bucket
	limit, step := 1.0, 0
	for _, b := range res.Samples() {
		for limit < b.Limit {
			limit *= [...]float64{2, 2.5, 2}[step%3]
			if step++; len(all) > 0 {
				all = append(all, bucket{Limit: limit})
			}
		}
		if len(all) == 0 {
			all = append(all, bucket{Limit: limit})
		}
		all[len(all)-1].Count += b.Count
	}
	return all
}

// remote is where a client measures.
type remote struct {
	Address netip.AddrPort
}

// perMB is a processor time for each megabyte that was moved, in microseconds.
func perMB(cpu time.Duration, res *perf.Result) float64 {
	bytes := float64(res.Messages) * float64(res.Spec.Size)
	if bytes == 0 {
		return 0
	}
	return float64(cpu.Microseconds()) / (bytes / 1e6)
}
