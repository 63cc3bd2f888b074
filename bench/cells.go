package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"kdapl/dat"
)

// cells are the comparisons. The peers from C are nil where they cannot be built.
func cells(p *peers) []cell {
	own := func(f func(n int)) func(int) time.Duration {
		return func(n int) time.Duration { return timed(n, f) }
	}
	other := func(f func(n int)) func(int) (time.Duration, error) {
		return func(n int) (time.Duration, error) { return timed(n, f), nil }
	}
	small := newPair(4096)
	big := newPair(2 << 20)
	return []cell{
		{name: "event/channel", ours: "PostSE + DequeueInto", peer: "the same event through a buffered channel", goal: 0.7,
			n: 2_000_000, run: own(postDequeue), other: other(channelRound)},
		{name: "event/libfabric", ours: "PostSE + DequeueInto", peer: "fi_eq_write + fi_eq_read", goal: 0.7,
			n: 2_000_000, run: own(postDequeue), other: p.fabric("eq")},
		{name: "event/producers-8", ours: "8 goroutines PostSE, one dequeues", peer: "the same over a channel", goal: 0.7,
			n: 500_000, run: own(func(n int) { producers(n, 8) }), other: other(func(n int) { channelProducers(n, 8) })},
		{name: "loop/send-64", ours: "64 B send + receive + both completions", peer: "libfabric shm to itself", goal: 0.7,
			n: 300_000, run: own(small.sendRecv(64)), other: p.fabric("send", "64")},
		{name: "loop/send-64Ki", ours: "64 KiB send + receive + both completions", peer: "libfabric shm to itself", goal: 0.7,
			n: 20_000, run: own(big.sendRecv(64 << 10)), other: p.fabric("send", "65536")},
		{name: "loop/write-8", ours: "8 B RDMA write + completion", peer: "libfabric shm write", goal: 0.1,
			n: 500_000, run: own(small.write(8)), other: p.fabric("write", "8")},
		{name: "loop/write-1Mi", ours: "1 MiB RDMA write + completion", peer: "copy", goal: 1 / 0.9,
			n: 1000, run: own(big.write(1 << 20)), other: other(copies(1 << 20)), unit: "us", scale: 1000},
		{name: "upcall/burst", ours: "an upcall, 4096 in a row", peer: "a dequeue, 4096 in a row",
			n: 2_000_000, run: own(upcallBurst), other: other(dequeueBurst)},
		{name: "upcall/first", ours: "event to upcall, the poster yields", peer: "start of a goroutine, likewise", goal: 2,
			n: 200_000, run: own(firstUpcall), other: other(goroutineStart)},
	}
}

// timed tells how long f took, after a collection that is not its fault.
func timed(n int, f func(n int)) time.Duration {
	runtime.GC()
	begin := time.Now()
	f(n)
	return time.Since(begin)
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

var errNoPeer = errors.New("left out: needs a C compiler and libfabric's headers (Debian: gcc, libfabric-dev)")
