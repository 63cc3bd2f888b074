package dat_test

import (
	"context"
	"testing"

	"kdapl/dat"
)

// An activation that was started and has not begun to run when Teardown is called is awaited too.
func TestTeardownAwaitsAnActivationThatHasNotBegun(t *testing.T) {
	ia := newIA(t)
	for range 200 {
		e := newEVD(t, ia, dat.EVDConfig{Policy: dat.UpcallSingleInstance, Upcall: func(dat.Event, bool) {}})
		ok(t, e.PostSE(1))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		ok(t, e.Teardown(ctx))
		cancel()
		ok(t, e.Free())
	}
}

// A late event of the device about the previous connection does not touch the next one.
func TestReconnectAtOnceIsNotDisturbedByTheOldConnection(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	for i := range 300 {
		ok(t, p.call())
		ep := p.b.newEP(t, nil)
		ok(t, p.b.request1(t).Accept(ep, nil))
		next(t, p.a.connect, dat.ConnectionEstablished)
		next(t, p.b.connect, dat.ConnectionEstablished)
		ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
		if i%2 == 0 {
			next(t, p.a.connect, dat.ConnectionDisconnected)
			ok(t, p.a.ep.Reset())
		} else {
			ok(t, p.a.ep.Reset())
			next(t, p.a.connect, dat.ConnectionDisconnected)
		}
		next(t, p.b.connect, dat.ConnectionDisconnected)
		ok(t, ep.Free())
	}
}

// The set-up that is cancelled here ends for the device some time later.
func TestConnectAfterACancelledSetUpIsNotDisturbedByIt(t *testing.T) {
	p := newPair(t, pairConfig{split: true})
	for range 300 {
		ok(t, p.call())
		ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
		ok(t, p.a.ep.Reset())
		next(t, p.a.connect, dat.ConnectionDisconnected)
		ok(t, p.call())
		var est bool
		for !est {
			ev, err := p.b.cr.Dequeue()
			if err == nil {
				if err := ev.Request().CR.Accept(p.b.ep, nil); err == nil {
					ev, _, err := p.b.connect.Wait(context.Background(), 1, patience)
					ok(t, err)
					if est = ev.Number == dat.ConnectionEstablished; !est {
						ok(t, p.b.ep.Reset())
					}
				}
			}
		}
		next(t, p.a.connect, dat.ConnectionEstablished)
		ok(t, p.a.ep.Disconnect(dat.CloseAbrupt))
		next(t, p.a.connect, dat.ConnectionDisconnected)
		next(t, p.b.connect, dat.ConnectionDisconnected)
		ok(t, p.a.ep.Reset())
		ok(t, p.b.ep.Reset())
	}
}

