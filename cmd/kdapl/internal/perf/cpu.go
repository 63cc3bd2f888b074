package perf

import "time"

// usage is the processor time that the process takes in a part of a measurement.
type usage struct {
	from  time.Duration
	began bool
	spent time.Duration
}

// begin begins the part.
func (u *usage) begin() { u.from, u.began = processCPU(), true }

// end ends the part; a later end counts.
func (u *usage) end() {
	if u.began {
		u.spent = processCPU() - u.from
	}
}
