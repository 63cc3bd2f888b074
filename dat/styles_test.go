package dat_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"kdapl/dat"
)

// style is a way to consume events; docs/upcalls.md names them.
type style struct {
	name string
	// run makes an EVD of which handle gets every event, in whatever goroutines, until stop is called.
	run func(b *testing.B, ia *dat.IA, handle func(dat.Event)) (e *dat.EVD, stop func())
}

// byUpcall makes an EVD whose upcalls are the consumer.
func byUpcall(policy dat.UpcallPolicy) func(*testing.B, *dat.IA, func(dat.Event)) (*dat.EVD, func()) {
	return func(b *testing.B, ia *dat.IA, handle func(dat.Event)) (*dat.EVD, func()) {
		e := newEVD(b, ia, dat.EVDConfig{MinLen: 256, Policy: policy, Upcall: func(ev dat.Event, _ bool) { handle(ev) }})
		return e, func() { e.Teardown(background) }
	}
}

// byWakeUp makes an EVD whose upcalls wake a goroutine: upcall is what they do before, round what it does then.
func byWakeUp(policy dat.UpcallPolicy, upcall func(e *dat.EVD, ev dat.Event, handle func(dat.Event)), round func(e *dat.EVD, handle func(dat.Event))) func(*testing.B, *dat.IA, func(dat.Event)) (*dat.EVD, func()) {
	return func(b *testing.B, ia *dat.IA, handle func(dat.Event)) (*dat.EVD, func()) {
		wake, ended := make(chan bool, 1), make(chan bool)
		var e *dat.EVD
		e = newEVD(b, ia, dat.EVDConfig{MinLen: 256, Policy: policy, Upcall: func(ev dat.Event, _ bool) {
			upcall(e, ev, handle)
			select {
			case wake <- true:
			default:
			}
		}})
		go func() {
			defer close(ended)
			for range wake {
				round(e, handle)
			}
		}()
		return e, func() {
			e.Teardown(background)
			close(wake)
			<-ended
		}
	}
}

// byGoroutine makes an EVD from which a goroutine takes events, until its context ends.
func byGoroutine(take func(ctx context.Context, e *dat.EVD, handle func(dat.Event))) func(*testing.B, *dat.IA, func(dat.Event)) (*dat.EVD, func()) {
	return func(b *testing.B, ia *dat.IA, handle func(dat.Event)) (*dat.EVD, func()) {
		e := newEVD(b, ia, dat.EVDConfig{MinLen: 256})
		ctx, cancel := context.WithCancel(background)
		ended := make(chan bool)
		go func() {
			defer close(ended)
			take(ctx, e, handle)
		}()
		return e, func() {
			cancel()
			<-ended
		}
	}
}

func drainInto(e *dat.EVD, handle func(dat.Event)) {
	var buf [32]dat.Event
	for n := e.DequeueInto(buf[:]); n > 0; n = e.DequeueInto(buf[:]) {
		for i := range n {
			handle(buf[i])
		}
	}
}

var styles = []style{
	{"disable, drain, enable", byWakeUp(dat.UpcallSingleInstance, func(e *dat.EVD, ev dat.Event, handle func(dat.Event)) {
		e.ModifyUpcall(dat.UpcallDisable, nil, dat.InvocNew)
		handle(ev)
	}, func(e *dat.EVD, handle func(dat.Event)) {
		drainInto(e, handle)
		e.ModifyUpcall(dat.UpcallSingleInstance, nil, dat.InvocAny)
	})},
	{"enable, then poll", byWakeUp(dat.UpcallSingleInstance, func(e *dat.EVD, ev dat.Event, handle func(dat.Event)) {
		e.ModifyUpcall(dat.UpcallDisable, nil, dat.InvocNew)
		handle(ev)
	}, func(e *dat.EVD, handle func(dat.Event)) {
		drainInto(e, handle)
		e.ModifyUpcall(dat.UpcallSingleInstance, nil, dat.InvocNew)
		drainInto(e, handle)
	})},
	{"upcalls alone, SINGLE", byUpcall(dat.UpcallSingleInstance)},
	{"upcalls alone, MANY", byUpcall(dat.UpcallMany)},
	{"arm, then poll (NOTIFY)", byWakeUp(dat.UpcallNotify, func(*dat.EVD, dat.Event, func(dat.Event)) {}, func(e *dat.EVD, handle func(dat.Event)) {
		e.ModifyUpcall(dat.UpcallNotify, nil, dat.InvocNew)
		drainInto(e, handle)
	})},
	{"wait", byGoroutine(func(ctx context.Context, e *dat.EVD, handle func(dat.Event)) {
		for {
			ev, _, err := e.Wait(ctx, 1, dat.Infinite)
			if err != nil {
				return
			}
			handle(ev)
		}
	})},
	{"wait, then drain", byGoroutine(func(ctx context.Context, e *dat.EVD, handle func(dat.Event)) {
		for {
			ev, _, err := e.Wait(ctx, 1, dat.Infinite)
			if err != nil {
				return
			}
			handle(ev)
			drainInto(e, handle)
		}
	})},
	{"poll", byGoroutine(func(ctx context.Context, e *dat.EVD, handle func(dat.Event)) {
		for ctx.Err() == nil {
			drainInto(e, handle)
			runtime.Gosched()
		}
	})},
}

// BenchmarkConsumerStyle is the table of docs/upcalls.md: the time of an event, from the post of a burst until its last event was
// handled, the wake-up of the poster included.
func BenchmarkConsumerStyle(b *testing.B) {
	for _, s := range styles {
		for _, burst := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", s.name, burst), func(b *testing.B) {
				ia := newIA(b)
				done := make(chan bool, 1)
				e, stop := s.run(b, ia, func(ev dat.Event) {
					if ev.Software() == 1 {
						done <- true
					}
				})
				defer stop()
				b.ReportAllocs()
				for b.Loop() {
					for i := range burst {
						v := uint64(0)
						if i == burst-1 {
							v = 1
						}
						if err := e.PostSE(v); err != nil {
							b.Fatal(err)
						}
					}
					<-done
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(burst), "ns/event")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
