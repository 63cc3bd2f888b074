package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"kdapl/dat"
)

// stallLimit is how long nothing may complete before a measurement is given up.
var stallLimit = 10 * time.Second

// pollBatch is how many events are dequeued at a time.
const pollBatch = 16

// Measure runs a measurement between a new requester on from and a new responder at the
// listener, which both live in this process. The end of the context ends it early: what was
// measured until then is the result, with Interrupted set.
func Measure(ctx context.Context, from *Host, to *Listener, spec Spec, completion Completion) (_ Result, err error) {
	accepted := make(chan struct{})
	setUp, cancel := context.WithCancel(ctx)
	defer cancel()
	var resp *End
	var respErr error
	go func() {
		defer close(accepted)
		if resp, respErr = to.Accept(setUp); respErr != nil {
			cancel()
		}
	}()
	addr, qual := to.Addr()
	req, err := from.Connect(setUp, addr, qual, spec, completion)
	if err != nil {
		cancel()
	}
	<-accepted
	switch {
	case ctx.Err() != nil:
		err = nil
	case respErr != nil && (err == nil || errors.Is(err, context.Canceled)):
		err = respErr
	}
	for _, e := range []*End{req, resp} {
		if e != nil {
			defer func() { err = errors.Join(err, e.Close()) }()
		}
	}
	if err != nil {
		return Result{}, err
	}
	if req == nil || resp == nil {
		return Result{Spec: spec, Interrupted: true}, nil
	}
	return Run(ctx, req, resp)
}

// Request runs a measurement between a new requester on from and a [Server] of another process. The end of the
// context ends it early, as for [Measure].
func Request(ctx context.Context, from *Host, addr netip.Addr, qual uint64, spec Spec, completion Completion) (_ Result, err error) {
	req, err := from.Connect(ctx, addr, qual, spec, completion)
	if err != nil {
		if ctx.Err() != nil {
			return Result{Spec: spec, Interrupted: true}, nil
		}
		return Result{}, err
	}
	defer func() { err = errors.Join(err, req.Close()) }()
	return Run(ctx, req, nil)
}

// Run runs the measurement of a requester; resp is its responder if that is in this process too, or nil. It
// blocks until the result is there, the context ends, or nothing completes any more.
func Run(ctx context.Context, req, resp *End) (Result, error) {
	ends := []*End{req}
	if resp != nil {
		ends = append(ends, resp)
	}
	stop := drive(ends)
	if ctx.Err() != nil {
		req.interrupt()
	}
	release := context.AfterFunc(ctx, req.interrupt)
	err := req.evd.PostSE(0)
	if err == nil {
		err = watch(req, resp)
	}
	release()
	stop()
	if err != nil {
		return Result{}, err
	}
	return req.role.(interface{ outcome() Result }).outcome(), nil
}

// drive drives ends, which learn of completions in the same way, until they are through or stop is called.
func drive(ends []*End) (stop func()) {
	live, giveUp := context.WithCancel(context.Background())
	var drivers sync.WaitGroup
	if ends[0].completion == Dequeue {
		drivers.Go(func() { poll(live, ends) })
	} else {
		for _, e := range ends {
			if e.completion == Wait {
				drivers.Go(func() { e.wait(live) })
			}
		}
	}
	return func() {
		giveUp()
		drivers.Wait()
	}
}

// watch waits until the requester is through, or an end has failed, or nothing happens.
func watch(req, resp *End) error {
	var respDone <-chan struct{}
	if resp != nil {
		respDone = resp.done
	}
	ticks := time.NewTicker(stallLimit / 4)
	defer ticks.Stop()
	still := stillness{evd: req.evd}
	for {
		select {
		case <-req.done:
			return req.explain()
		case <-respDone:
			respDone = nil
			// A responder whose connection ended knows no more than the requester.
			if c := new(CompletionError); resp.err != nil && !(errors.As(resp.err, &c) && c.Status == dat.StatusFlushed) {
				return fmt.Errorf("responder: %w", resp.explain())
			}
		case <-ticks.C:
			if stalled, err := still.look(); err != nil {
				return err
			} else if stalled {
				return &StallError{After: stallLimit}
			}
		}
	}
}

// explain is why the role failed; if its connection has ended, with what is known of that.
func (e *End) explain() error {
	c := new(CompletionError)
	if e.err == nil || !errors.As(e.err, &c) {
		return e.err
	}
	ev, _, err := e.conn.Wait(context.Background(), 1, time.Second)
	if err != nil {
		return e.err
	}
	return fmt.Errorf("%w: %w", e.err, &ConnectionError{Event: ev.Number, Cause: ev.Connection().Cause})
}

// wait drives an end by waiting.
func (e *End) wait(ctx context.Context) {
	var evs [pollBatch]dat.Event
	for !e.finished {
		ev, more, err := e.evd.Wait(ctx, 1, dat.Infinite)
		if err != nil {
			e.finish(err)
			return
		}
		evs[0] = ev
		for n := 1; n > 0; {
			for i := range evs[:n] {
				e.role.handle(&evs[i])
			}
			if n = min(more, pollBatch); n > 0 {
				n = e.evd.DequeueInto(evs[:n])
				more -= n
			}
		}
	}
}

// poll drives ends by dequeuing: the second one whenever the first has nothing.
func poll(ctx context.Context, ends []*End) {
	var evs [pollBatch]dat.Event
	for idle := 0; !ends[0].finished; idle++ {
		for _, e := range ends {
			n := e.evd.DequeueInto(evs[:])
			for i := range evs[:n] {
				e.role.handle(&evs[i])
			}
			if n > 0 {
				idle = -1
				break
			}
		}
		// A poller with nothing to do lets others run, and looks up at times.
		if idle > 0 && idle%64 == 0 {
			runtime.Gosched()
			if idle%4096 == 0 && ctx.Err() != nil {
				return
			}
		}
	}
}
