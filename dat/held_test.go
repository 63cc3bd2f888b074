package dat_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"kdapl/dat"
)

// The completions that are held back until ESTABLISHED is queued come with it, not some time after: a
// consumer that has seen ESTABLISHED gets the completion of its send, however the goroutine that told
// of the connection is scheduled. With room for two requests, one that is held blocks the next but one.
func TestCompletionsAreNotHeldOnceEstablishedIsSeen(t *testing.T) {
	const rounds = 30
	runs := 200
	if testing.Short() {
		runs = 40
	}
	for range runs {
		p := newPair(t, pairConfig{attr: func(a *dat.EPAttr) { a.MaxRequestDTOs = 2 }})
		a, b := &p.a, &p.b
		for _, s := range []*side{a, b} {
			for range 8 {
				ok(t, s.ep.PostRecv(0, 0, s.lmr.Triplet(0, 1)))
			}
		}
		ok(t, p.call())
		ok(t, b.request1(t).Accept(b.ep, nil))
		var wg sync.WaitGroup
		for _, s := range []*side{a, b} {
			wg.Go(func() {
				s.next(t, dat.ConnectionEstablished)
				if s == a {
					ok(t, s.ep.PostSend(1, 0, s.lmr.Triplet(0, 1)))
				}
				for got := 0; got < rounds; {
					ev, _, err := s.evd.Wait(context.Background(), 1, 5*time.Second)
					if err != nil {
						t.Errorf("round %d: %v", got, err)
						return
					}
					if ev.DTO().Operation == dat.OpSend {
						continue
					}
					got++
					ok(t, s.ep.PostRecv(0, 0, s.lmr.Triplet(0, 1)))
					if s == a && got == rounds {
						return
					}
					if err := s.ep.PostSend(1, 0, s.lmr.Triplet(0, 1)); err != nil {
						t.Errorf("round %d: %v", got, err)
						return
					}
					runtime.Gosched()
				}
			})
		}
		wg.Wait()
		for _, s := range []*side{a, b} {
			ok(t, s.ia.Close(context.Background(), dat.CloseAbrupt))
		}
		if t.Failed() {
			return
		}
	}
}
