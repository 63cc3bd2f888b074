package main

import "testing"

// The same bodies as Go benchmarks, for profiles and for CI to run once.

func each(b *testing.B, f func(n int)) {
	b.ReportAllocs()
	b.ResetTimer()
	f(b.N)
}

func BenchmarkPostSEDequeueInto(b *testing.B)  { each(b, postDequeue) }
func BenchmarkChannel(b *testing.B)            { each(b, channelRound) }
func BenchmarkEightProducers(b *testing.B)     { each(b, func(n int) { producers(n, 8) }) }
func BenchmarkEightProducersChan(b *testing.B) { each(b, func(n int) { channelProducers(n, 8) }) }
func BenchmarkSendRecv64(b *testing.B)         { each(b, newPair(4096).sendRecv(64)) }
func BenchmarkWrite8(b *testing.B)             { each(b, newPair(4096).write(8)) }
func BenchmarkWrite1Mi(b *testing.B)           { each(b, newPair(2<<20).write(1<<20)) }
func BenchmarkCopy1Mi(b *testing.B)            { each(b, copies(1<<20)) }
func BenchmarkUpcallBurst(b *testing.B)        { each(b, upcallBurst) }
func BenchmarkDequeueBurst(b *testing.B)       { each(b, dequeueBurst) }
func BenchmarkFirstUpcall(b *testing.B)        { each(b, firstUpcall) }
func BenchmarkGoroutineStart(b *testing.B)     { each(b, goroutineStart) }

// Over iWARP, both ends in this process.
func BenchmarkPingPong8(b *testing.B) {
	p := iwarpPair(4096)
	defer p.close()
	each(b, p.pingPong(8))
}

func BenchmarkWrites64(b *testing.B) {
	p := iwarpPair(4096)
	defer p.close()
	each(b, p.writes(64, 64))
}

func TestMedian(t *testing.T) {
	for want, v := range map[float64][]float64{2: {3, 1, 2}, 2.5: {4, 1, 2, 3}} {
		if got := median(v); got != want {
			t.Errorf("median of %v is %v", v, got)
		}
	}
}
