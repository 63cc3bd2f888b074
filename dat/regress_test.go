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
