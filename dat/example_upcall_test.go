package dat_test

import (
	"context"
	"fmt"
	"sync"

	"kdapl/dat"
	"kdapl/device/loop"
)

// A consumer that pays for one upcall per burst: the first upcall turns upcalls off and wakes a goroutine, which drains the
// queue and turns them on again. With InvocAny whatever has come in between starts an upcall at once, so nothing is
// missed and no last look is needed.
func ExampleEVD_ModifyUpcall_drainFromAGoroutine() {
	ia, err := dat.Open(loop.New(loop.Config{}), dat.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ia.Close(context.Background(), dat.CloseAbrupt)

	var evd *dat.EVD
	work := make(chan dat.Event, 1)
	evd, err = ia.NewEVD(dat.EVDConfig{
		MinLen: 64, Streams: dat.StreamSoftware, Policy: dat.UpcallSingleInstance,
		Upcall: func(ev dat.Event, more bool) {
			evd.ModifyUpcall(dat.UpcallDisable, nil, dat.InvocNew)
			work <- ev
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	sum := make(chan uint64)
	go func() {
		var total, n uint64
		handle := func(ev dat.Event) { total += ev.Software(); n++ }
		for n < 10 {
			handle(<-work) // what the upcall was called with
			for ev := range evd.Drain() {
				handle(ev)
			}
			evd.ModifyUpcall(dat.UpcallSingleInstance, nil, dat.InvocAny)
		}
		sum <- total
	}()
	for i := range uint64(10) {
		if err := evd.PostSE(i); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(<-sum)
	// Output: 45
}

// A consumer in the manner of IBTA's completion notification: it turns upcalls on for new events only, and then polls one final
// time for those that were there before. Upcalls may already run while it polls: each event still goes to one of the two.
func ExampleEVD_ModifyUpcall_enableAndPoll() {
	ia, err := dat.Open(loop.New(loop.Config{}), dat.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ia.Close(context.Background(), dat.CloseAbrupt)

	var all sync.WaitGroup
	var mu sync.Mutex
	var total uint64
	handle := func(ev dat.Event) {
		mu.Lock()
		total += ev.Software()
		mu.Unlock()
		all.Done()
	}
	evd, err := ia.NewEVD(dat.EVDConfig{
		MinLen: 64, Streams: dat.StreamSoftware,
		Upcall: func(ev dat.Event, more bool) { handle(ev) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	all.Add(10)
	for i := range uint64(5) { // before upcalls are on
		evd.PostSE(i)
	}
	go func() {
		for i := range uint64(5) { // while they are turned on
			evd.PostSE(5 + i)
		}
	}()
	if err := evd.ModifyUpcall(dat.UpcallSingleInstance, nil, dat.InvocNew); err != nil {
		fmt.Println(err)
	}
	for ev := range evd.Drain() { // the final poll
		handle(ev)
	}
	all.Wait()
	fmt.Println(total)
	// Output: 45
}

// A consumer that is only notified, and takes the events itself: each upcall drains the queue and arms the next.
func ExampleEVD_ModifyUpcall_notify() {
	ia, err := dat.Open(loop.New(loop.Config{}), dat.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ia.Close(context.Background(), dat.CloseAbrupt)

	var evd *dat.EVD
	events := make(chan uint64, 10)
	evd, err = ia.NewEVD(dat.EVDConfig{
		MinLen: 64, Streams: dat.StreamSoftware, Policy: dat.UpcallNotify,
		Upcall: func(dat.Event, bool) {
			evd.ModifyUpcall(dat.UpcallNotify, nil, dat.InvocNew) // arm, then drain
			for ev := range evd.Drain() {
				events <- ev.Software()
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range uint64(3) {
		evd.PostSE(i)
	}
	fmt.Println(<-events, <-events, <-events)
	// Output: 0 1 2
}
