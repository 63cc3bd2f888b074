package iwarp

import "testing"

// The acceptance cases that this package answers, each a subtest whose name begins with its number. docs/acceptance.md is made
// from these names.
func TestAcceptance(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"AC-01 a consumer of two CQs may sleep at either", TestConsumerOfTwoCQsMaySleepAtEither},
		{"AC-29 the ready-to-receive message in its three forms", TestRTRMessages},
		{"AC-33 the passive side's posts are held until the first frame", TestPassiveSideHoldsItsPosts},
		{"AC-34 set-ups that stop half way end in time", TestHalfOpenSetUps},
	} {
		t.Run(c.name, c.test)
	}
}
