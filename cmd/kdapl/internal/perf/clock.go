package perf

import (
	"slices"
	"sync"
	"time"
)

// epoch makes readings of the clock short: time.Since reads the monotonic clock only.
var epoch = time.Now()

func now() time.Duration { return time.Since(epoch) }

// ClockCost is what a reading of the clock takes on this machine: the median of many.
var ClockCost = sync.OnceValue(func() time.Duration {
	costs := make([]time.Duration, 10001)
	for i := range costs {
		start := now()
		costs[i] = now() - start
	}
	slices.Sort(costs)
	return costs[len(costs)/2]
})
