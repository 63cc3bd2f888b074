package dattest

import (
	"net/netip"
	"testing"
	"time"

	"kdapl/dat"
)

// Adapters is what one rule works with: how the two ends of a connection are opened, and what the suite cannot know
// about them.
type Adapters struct {
	// Active opens an IA that connects, Passive one that listens, at the address that its attributes name. They may be
	// of one adapter. Each is called at least once for each rule; the rule closes what it opens.
	Active, Passive func(dat.Config) (*dat.IA, error)
	// Unreachable, if valid, is an address that Active cannot reach. Without it the rules about that are skipped.
	Unreachable netip.Addr
	// Remove, if not nil, takes Passive's adapter away while it is open. It must then be another one than
	// Active's, and not be shared with other rules.
	Remove func()
	// Deadline bounds each wait; 0 means 20 seconds. It is no measure of speed: a good adapter never comes near.
	Deadline time.Duration
}

// A rule is one sentence of DAT and its check.
type rule struct {
	// name is the sentence.
	name string
	// needs are the features without which the rule says nothing.
	needs need
	check func(*env)
}

// A group holds the rules about one kind of object or call.
type group struct {
	name  string
	rules []rule
}

// groups lists all rules.
func groups() []group {
	return []group{
		{"attribute", attributeRules},
		{"evd", evdRules},
		{"upcall", upcallRules},
		{"wait", waitRules},
		{"connection", connectionRules},
		{"end", endRules},
		{"post", postRules},
		{"transfer", transferRules},
		{"memory", memoryRules},
		{"ia", iaRules},
		{"rmr", rmrRules},
		{"fmr", fmrRules},
		{"invalidate", invalidateRules},
		{"srq", srqRules},
		{"watermark", watermarkRules},
		{"cno", cnoRules},
		{"service", serviceRules},
		{"handoff", handoffRules},
		{"extension", extensionRules},
		{"datagram", datagramRules},
	}
}

// Run checks every rule against the adapters that open names. It calls open once for each rule, with that
// rule's test, and runs each rule as a subtest named group/rule.
func Run(t *testing.T, open func(t testing.TB) Adapters) {
	run(t, func(t *testing.T, rule func(*testing.T)) { rule(t) }, open, false)
}

// RunIn is Run in bubbles of testing/synctest: in is synctest.Test, or calls it once, and open, which is
// called inside, makes adapters over a simulated network. Rules wait by the clock there, where they
// would yield elsewhere, so that it goes on.
func RunIn(t *testing.T, in func(t *testing.T, rule func(*testing.T)), open func(t testing.TB) Adapters) {
	run(t, in, open, true)
}

func run(t *testing.T, in func(t *testing.T, rule func(*testing.T)), open func(t testing.TB) Adapters, fake bool) {
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			for _, r := range g.rules {
				t.Run(r.name, func(t *testing.T) {
					in(t, func(t *testing.T) {
						e := newEnv(t, open(t), fake)
						e.require(r.needs)
						r.check(e)
					})
				})
			}
		})
	}
}
