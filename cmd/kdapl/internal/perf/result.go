package perf

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a measurement has found.
type Result struct {
	Spec Spec
	// Messages were measured in Elapsed: round trips, for the latency of sends.
	Messages int
	Elapsed  time.Duration
	// Histogram has the samples of a Latency in nanoseconds; those of sends are round trips, which
	// Percentile halves.
	Histogram *hdrhistogram.Histogram
	// Checked is the number of messages that were checked byte by byte, by both ends together.
	Checked uint64
	// CPU is the processor time of the measured time.
	CPU CPU
	// Interrupted: the measurement ended early. There may be no messages.
	Interrupted bool
}

// CPU is processor time, user's and system's, of the process of each end; other work of the process counts too. If
// both ends are in one process, both have all of it. 0 is unknown.
type CPU struct {
	Requester, Responder time.Duration
}

func (r *requester) outcome() Result { return r.result }

// scale is what samples are multiplied by to be latencies.
func (r *Result) scale() float64 {
	if r.Spec.pingPong() {
		return 0.5
	}
	return 1
}

// Percentile is the latency that p percent of the samples do not exceed, in nanoseconds; 100 is the
// longest.
func (r *Result) Percentile(p float64) float64 {
	return float64(r.Histogram.ValueAtQuantile(p)) * r.scale()
}

// Mean is the mean latency in nanoseconds, Min the shortest.
func (r *Result) Mean() float64 { return r.Histogram.Mean() * r.scale() }

// Min is the shortest latency in nanoseconds.
func (r *Result) Min() float64 { return float64(r.Histogram.Min()) * r.scale() }

// MessageRate is in messages per second.
func (r *Result) MessageRate() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Messages) / r.Elapsed.Seconds()
}

// Bandwidth is in bytes per second, of payload in one direction.
func (r *Result) Bandwidth() float64 { return r.MessageRate() * float64(r.Spec.Size) }

// Bar is a group of samples that the histogram does not tell apart.
type Bar struct {
	// Limit is the longest latency of the group in nanoseconds.
	Limit float64
	// Count is the number of samples.
	Count int64
}

// Samples are the samples of a Latency, from the shortest to the longest.
func (r *Result) Samples() []Bar {
	var bars []Bar
	for _, b := range r.Histogram.Distribution() {
		if b.Count > 0 {
			bars = append(bars, Bar{Limit: float64(b.To) * r.scale(), Count: b.Count})
		}
	}
	return bars
}
