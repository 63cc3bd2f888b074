package verbstest

import (
	"testing"
	"time"

	"kdapl/verbs"
)

// Pair is what one rule works with: the devices of the two ends of a connection, and what
// the suite cannot know about them.
type Pair struct {
	// Active is the device that connects, Passive the one that listens, at the address
	// that its Attr names. They may be one and the same, and may be shared by all
	// rules: each rule opens its own instances and closes them. Every rule is free to use
	// either end for anything else.
	Active, Passive verbs.Device
	// Unreachable, if its IP is valid, is an address that a Connect of Active cannot reach
	// (ConnUnreachable). Without it that one rule is skipped.
	Unreachable verbs.Address
	// Remove, if not nil, takes Passive away while it is open, as pulling out an adapter does.
	// Passive must then be another device than Active, and not be shared with other rules.
	// Without it the rules about removal are skipped.
	Remove func()
	// Deadline bounds each wait for a completion or an event; 0 means 20 seconds. It is no
	// measure of speed: a good device never comes near.
	Deadline time.Duration
}

// A rule is one sentence of the contract and its check.
type rule struct {
	// name is the sentence.
	name string
	// needs are the capabilities without which the rule says nothing. That a device
	// refuses what it lacks is checked by the group "missing".
	needs verbs.Caps
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
		{"objects", objectRules},
		{"closed", closedRules},
		{"missing", missingRules},
		{"memory", memoryRules},
		{"remote", remoteRules},
		{"fastreg", fastRegRules},
		{"window", windowRules},
		{"window1", window1Rules},
		{"window2", window2Rules},
		{"cq", cqRules},
		{"arm", armRules},
		{"post", postRules},
		{"data", dataRules},
		{"rdma", rdmaRules},
		{"atomic", atomicRules},
		{"order", orderRules},
		{"fault", faultRules},
		{"srq", srqRules},
		{"state", stateRules},
		{"flush", flushRules},
		{"ud", udRules},
		{"question", questionRules},
		{"listen", listenRules},
		{"connect", connectRules},
		{"disconnect", disconnectRules},
		{"callback", callbackRules},
		{"close", closeRules},
		{"removal", removalRules},
		{"stress", stressRules},
	}
}

// Run checks every rule of package verbs against the devices that open makes. It calls
// open once for each rule, with that rule's test, and runs each rule as a subtest named
// group/rule. testing.Short trims the number of rounds, not of rules.
func Run(t *testing.T, open func(t testing.TB) Pair) {
	run(t, func(t *testing.T, rule func(*testing.T)) { rule(t) }, open, false)
}

// RunIn is Run in bubbles of testing/synctest: in is synctest.Test, or calls it once, and open, which is
// called inside, makes devices over a simulated network. Rules wait by the clock there, where they
// would yield elsewhere, so that it goes on.
func RunIn(t *testing.T, in func(t *testing.T, rule func(*testing.T)), open func(t testing.TB) Pair) {
	run(t, in, open, true)
}

func run(t *testing.T, in func(t *testing.T, rule func(*testing.T)), open func(t testing.TB) Pair, fake bool) {
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			for _, r := range g.rules {
				t.Run(r.name, func(t *testing.T) {
					in(t, func(t *testing.T) {
						e := newEnv(t, open(t), fake)
						e.need(r.needs)
						r.check(e)
					})
				})
			}
		})
	}
}
