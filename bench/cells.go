package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"kdapl/dat"
)

// singleCells are the comparisons within one process. Their peers are Go itself, or programs in C.
func singleCells(set *settings) []func(*peers) cell {
	own := func(n int, f func(n int), scale float64) runner {
		return func() (sample, error) {
			n := max(n/set.part, burst)
			f(n/10 + 1)
			d, cpu := timed(n, f)
			return sample{value: float64(d.Nanoseconds()) / float64(n) / scale, cpu: cpu / float64(n) * 1e6}, nil
		}
	}
	small := sync.OnceValue(func() *pair { return newPair(4096) })
	big := sync.OnceValue(func() *pair { return newPair(2 << 20) })
	send := func(p func() *pair, size int) func(int) {
		return func(n int) { p().sendRecv(size)(n) }
	}
	write := func(p func() *pair, size int) func(int) {
		return func(n int) { p().write(size)(n) }
	}
	simple := func(name, ours string, n int, f func(n int), scale float64, unit string, yard func(*peers) []peer) func(*peers) cell {
		return func(p *peers) cell {
			return cell{name: name, ours: ours, unit: unit, run: own(n, f, scale), peers: yard(p)}
		}
	}
	other := func(what string, goal limit, n int, f func(n int), scale float64) func(*peers) []peer {
		return func(*peers) []peer { return []peer{{what, goal, own(n, f, scale)}} }
	}
	fabric := func(what string, goal limit, n int, args ...string) func(*peers) []peer {
		return func(p *peers) []peer { return []peer{{what, goal, p.fabric(n/set.part, args...)}} }
	}
	all := []func(*peers) cell{
		simple("event/channel", "PostSE + DequeueInto", 2_000_000, postDequeue, 1, "ns",
			other("the same event through a buffered channel", atMost(0.7), 2_000_000, channelRound, 1)),
		simple("event/libfabric", "PostSE + DequeueInto", 2_000_000, postDequeue, 1, "ns",
			fabric("fi_eq_write + fi_eq_read", atMost(0.45), 2_000_000, "eq")),
		simple("loop/send-8", "8 B send + receive + both completions", 300_000, send(small, 8), 1, "ns",
			fabric("libfabric shm to itself", atMost(0.7), 300_000, "send", "8")),
		simple("loop/send-64", "64 B send + receive + both completions", 300_000, send(small, 64), 1, "ns",
			fabric("libfabric shm to itself", atMost(0.7), 300_000, "send", "64")),
		simple("loop/send-64Ki", "64 KiB send + receive + both completions", 20_000, send(big, 64<<10), 1, "ns",
			fabric("libfabric shm to itself", atMost(0.7), 20_000, "send", "65536")),
		simple("loop/write-8", "8 B RDMA write + completion", 500_000, write(small, 8), 1, "ns",
			fabric("libfabric shm write", atMost(0.1), 500_000, "write", "8")),
		simple("loop/write-1Mi", "1 MiB RDMA write + completion", 1000, write(big, 1<<20), 1000, "us",
			other("copy", atMost(1/0.9), 1000, copies(1<<20), 1000)),
		simple("upcall/burst", "an upcall, 4096 in a row", 2_000_000, upcallBurst, 1, "ns",
			other("a dequeue, 4096 in a row", limit{}, 2_000_000, dequeueBurst, 1)),
		simple("upcall/first", "event to upcall, the poster yields", 200_000, firstUpcall, 1, "ns",
			other("start of a goroutine, likewise", atMost(2), 200_000, goroutineStart, 1)),
	}
	for _, k := range []int{1, 8, 64} {
		all = append(all, simple(fmt.Sprintf("event/producers-%d", k), fmt.Sprintf("%d goroutines PostSE, one dequeues", k), 500_000,
			func(n int) { producers(n, k) }, 1, "ns",
			other("the same over a channel", atMost(0.7), 500_000, func(n int) { channelProducers(n, k) }, 1)))
	}
	return all
}

// timed tells how long f took, after a collection that is not its fault, and the processor time in seconds.
func timed(n int, f func(n int)) (d time.Duration, cpu float64) {
	runtime.GC()
	begin, mine := time.Now(), own()
	f(n)
	return time.Since(begin), own() - mine
}

func postDequeue(n int) {
	evd := softwareEVD(16, dat.UpcallDisable, nil)
	defer evd.Free()
	var ev [1]dat.Event
	for range n {
		if evd.PostSE(1) != nil || evd.DequeueInto(ev[:]) != 1 {
			panic("lost an event")
		}
	}
}

func channelRound(n int) {
	c := make(chan dat.Event, 16)
	var ev dat.Event
	for range n {
		c <- ev
		ev = <-c
	}
}

// producers has p goroutines post n events in all, which one takes.
func producers(n, p int) {
	evd := softwareEVD(1<<16, dat.UpcallDisable, nil)
	defer evd.Free()
	var wg sync.WaitGroup
	for range p {
		wg.Go(func() {
			for i := 0; i < n/p; {
				if err := evd.PostSE(1); err == nil {
					i++
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	var ev [64]dat.Event
	for got := 0; got < n/p*p; {
		k := evd.DequeueInto(ev[:])
		if got += k; k == 0 {
			runtime.Gosched()
		}
	}
	wg.Wait()
}

func channelProducers(n, p int) {
	c := make(chan dat.Event, 1<<16)
	for range p {
		go func() {
			for range n / p {
				c <- dat.Event{}
			}
		}()
	}
	for range n / p * p {
		<-c
	}
}

const burst = 4096

// upcallBurst fills the queue and lets one activation deliver it, again and again.
func upcallBurst(n int) {
	var got atomic.Int64
	done := make(chan struct{})
	evd := softwareEVD(burst, dat.UpcallDisable, func(ev dat.Event, more bool) {
		if got.Add(1)%burst == 0 {
			done <- struct{}{}
		}
	})
	defer evd.Free()
	for range n / burst {
		for range burst {
			evd.PostSE(1)
		}
		evd.ModifyUpcall(dat.UpcallSingleInstance, nil, dat.InvocAny)
		<-done
		evd.Teardown(context.Background())
	}
}

// dequeueBurst is the same with a dequeue for each event.
func dequeueBurst(n int) {
	evd := softwareEVD(burst, dat.UpcallDisable, nil)
	defer evd.Free()
	var ev [1]dat.Event
	var got atomic.Int64
	for range n / burst {
		for range burst {
			evd.PostSE(1)
		}
		for evd.DequeueInto(ev[:]) == 1 {
			got.Add(1)
		}
	}
}

// firstUpcall posts an event to an idle EVD and yields until its upcall has run.
func firstUpcall(n int) {
	var got atomic.Int64
	evd := softwareEVD(16, dat.UpcallSingleInstance, func(dat.Event, bool) { got.Add(1) })
	defer evd.Free()
	for i := range int64(n) {
		evd.PostSE(1)
		for got.Load() <= i {
			runtime.Gosched()
		}
	}
	evd.Teardown(context.Background())
}

// goroutineStart is what that cannot be faster than.
func goroutineStart(n int) {
	var got atomic.Int64
	f := func() { got.Add(1) }
	for i := range int64(n) {
		go f()
		for got.Load() <= i {
			runtime.Gosched()
		}
	}
}

func copies(size int) func(n int) {
	from, to := make([]byte, size), make([]byte, size)
	return func(n int) {
		for range n {
			copy(to, from)
		}
	}
}
