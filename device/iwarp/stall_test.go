package iwarp

import (
	"testing"
	"time"

	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/internal/faultnet"
	"kdapl/verbs"
)

// The time for the rest of an FPDU also ends when the consumer who drove the connection goes away in the middle of
// it: to sleep, or without a word; and whether the connection was left to the consumer or not.
func TestIncompleteFPDUIsTimedThoughThePollerLeaves(t *testing.T) {
	const limit = time.Minute
	for _, c := range []struct {
		name           string
		before, behind int // rounds of polling around the arrival of the half
		sleeps         bool
	}{
		{"sleeps", 20, 20, true}, {"stops", 20, 20, false}, {"stops at once", 20, 1, false},
		{"was gone", 20, 0, false}, {"comes late", 0, 20, false}, {"comes late and sleeps", 0, 20, true}, {"never polls", 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			onStage(t, Config{UserTimeout: limit}, faultnet.Plan{}, func(s *scene) {
				p := s.connected()
				cqs := []verbs.CQ{s.e.recv, s.e.sendCQ}
				poll := func(rounds int) {
					for range rounds {
						for _, cq := range cqs {
							cq.(verbs.Progresser).Progress()
						}
						time.Sleep(100 * time.Microsecond)
					}
				}
				whole := p.fpdu(sendU(rdmap.OpSend, true, 1, 0, "hello"))
				s.recv(0, 16)
				p.bytes(whole)
				poll(c.before)
				p.bytes(whole[:10])
				start := time.Now()
				poll(c.behind)
				if c.sleeps {
					for _, cq := range cqs {
						cq.Arm(verbs.ArmNext)
					}
				}
				time.Sleep(limit - 10*time.Millisecond)
				if len(s.e.events) > 0 {
					t.Fatalf("%v, after %v", <-s.e.events, time.Since(start))
				}
				time.Sleep(time.Second)
				if len(s.e.events) == 0 {
					t.Fatal("the connection has not ended")
				}
				s.broken()
			})
		})
	}
}
