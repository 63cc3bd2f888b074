package main

import "strings"

// check is one configuration of the model: a scenario with its bounds, the property that is asked
// for, and, if it must be found wanting, how.
type check struct {
	group    string
	name     string   // also the name of the kept diagram
	property string   // in words
	file     string   // the scenario
	defs     []string // its bounds and switches
	big      bool     // millions of states: worth an optimizing compiler
	cycles   bool     // look for endless executions instead of wrong states
	want     string   // the assertion that must be violated; "" if everything must hold
	ends     string   // what the end of the counter-example means
}

const (
	rules     = "rules: all interleavings of everything at once"
	consumers = "consumers: what is safe"
	negative  = "negative results: what is not safe"
	mutations = "mutations: the model with one rule broken"
)

// The assertions that must find what is wrong, as the verifier words them, without brackets and blanks.
const (
	stranded    = "arrivals==claimed"               // something lies in the queue at the end
	idle        = "due&~got"                        // an event is owed an upcall, and nobody will make it
	unarmed     = "cqArmed&&q_lencq==0"             // a completion lies in the CQ, and nobody will be told
	twice       = "!got&1<<e&7"                     // an event is delivered again
	atOnce      = "calls<="                         // too many upcalls run
	outOfOrder  = "claimed=="                       // an event was taken that was not the next
	noCause     = "cause"                           // an upcall for backlog, or for an event that does not notify
	afterEnd    = "!torn&&!freed"                   // an upcall runs after Teardown or free
	tooEarly    = "oldCalls==0"                     // Teardown returns while an upcall runs that is older
	notLive     = "policy==7||policy==6||policy==5" // an upcall starts under DISABLE
	notArmed    = "mayNotify"                       // an upcall under NOTIFY without an arming
	overflow    = "q_lenring[cur]<length[cur]"      // a DTO's event has no room
	notEmpty    = "before==255||emptied!=before"    // QUEUE_EMPTY of a queue that was never empty
	inCQ        = "q_lencq==0"                      // the consumer sleeps, a completion lies in the CQ
	afterLast   = "!sawTerminal&&before"            // an event follows DISCONNECTED
	beforeFirst = "sawEstablished"                  // a completion precedes ESTABLISHED
	dtoTwice    = "!got&1<<n"                       // a DTO completes again
	unknown     = "dead"                            // a completion for a DTO that has no record
	deadlock    = "invalid end state"               // somebody waits for ever
	cycle       = "acceptance cycle"                // refused again and again without end
)

func d(defs string) []string { return strings.Fields(defs) }

const (
	exactlyOnce = "each event once, in order, none idle, upcalls within the cap"
	nothingLeft = "nothing is stranded"
)

var checks = []check{
	// ---- rules ----
	{group: rules, name: "single", property: exactlyOnce, file: "any.pml", big: true,
		defs: d("ONLY_SINGLE IN_ORDER SOME_SILENT SOFT=1 COMPLETIONS=2 TAKES=1 CHANGES=1")},
	{group: rules, name: "single-two-changes", property: exactlyOnce + "; device over-notifies", file: "any.pml", big: true,
		defs: d("ONLY_SINGLE IN_ORDER SOME_SILENT OVERNOTIFY SOFT=1 COMPLETIONS=1 TAKES=1 CHANGES=2")},
	{group: rules, name: "single-two-threads", property: exactlyOnce + "; QUEUE_EMPTY is true", file: "any.pml", big: true,
		defs: d("ONLY_SINGLE IN_ORDER TWO_THREADS SOFT=0 COMPLETIONS=2 TAKES=1 CHANGES=1")},
	{group: rules, name: "single-two-devices", property: exactlyOnce, file: "any.pml", big: true,
		defs: d("ONLY_SINGLE IN_ORDER TWO_DEVICES SOFT=0 COMPLETIONS=3 TAKES=1 CHANGES=1")},
	{group: rules, name: "single-little-room", property: exactlyOnce + "; QUEUE_FULL", file: "any.pml", big: true,
		defs: d("ONLY_SINGLE IN_ORDER SOFT=2 SOFTROOM=1 COMPLETIONS=1 TAKES=1 CHANGES=1")},
	{group: rules, name: "single-solicited", property: exactlyOnce + "; armed for solicited", file: "any.pml", big: true,
		defs: d("ONLY_SINGLE IN_ORDER SOLICITED SOME_SILENT SOFT=1 COMPLETIONS=2 TAKES=1 CHANGES=1")},
	{group: rules, name: "many", property: exactlyOnce, file: "any.pml", big: true,
		defs: d("ONLY_MANY ACTIVATIONS=2 SOFT=1 COMPLETIONS=1 TAKES=1 CHANGES=1")},
	{group: rules, name: "many-burst", property: exactlyOnce, file: "any.pml",
		defs: d("ONLY_MANY ACTIVATIONS=2 SOFT=2 COMPLETIONS=2 CHANGES=0")},
	{group: rules, name: "many-waits", property: "an upcall may wait for the upcall of the next event", file: "reenter.pml",
		defs: d("WAITS LIVE=Many ACTIVATIONS=2 SOFT=2 COMPLETIONS=1")},
	{group: rules, name: "notify", property: "one upcall per arming, none idle; device over-notifies", file: "any.pml", big: true,
		defs: d("ONLY_NOTIFY SOME_SILENT OVERNOTIFY SOFT=1 COMPLETIONS=1 TAKES=1 CHANGES=2")},
	{group: rules, name: "mixed", property: exactlyOnce, file: "any.pml", big: true,
		defs: d("ACTIVATIONS=2 SOFT=1 COMPLETIONS=1 TAKES=1 CHANGES=1")},
	{group: rules, name: "mixed-two-changes", property: exactlyOnce, file: "any.pml", big: true,
		defs: d("ACTIVATIONS=2 SOFT=1 COMPLETIONS=1 CHANGES=2")},
	{group: rules, name: "goexit", property: exactlyOnce + "; upcalls end goroutines", file: "any.pml",
		defs: d("GOEXIT ONLY_SINGLE IN_ORDER SOFT=1 COMPLETIONS=1 TAKES=1 CHANGES=1")},
	{group: rules, name: "reenter", property: exactlyOnce + "; calls in upcalls", file: "reenter.pml",
		defs: d("IN_ORDER SOFT=1 COMPLETIONS=2 TAKES=1 REENTRIES=2")},
	{group: rules, name: "reenter-many", property: exactlyOnce + "; calls in upcalls", file: "reenter.pml",
		defs: d("WITH_MANY ACTIVATIONS=2 SOFT=1 COMPLETIONS=1 REENTRIES=2")},
	{group: rules, name: "resize", property: exactlyOnce + "; DTOs keep their room", file: "life.pml",
		defs: d("RESIZES IN_ORDER SOFT=2 COMPLETIONS=1 TAKES=1")},
	{group: rules, name: "teardown", property: "no upcall after Teardown, free then succeeds", file: "life.pml",
		defs: d("TEARS_DOWN OVERNOTIFY SOFT=1 COMPLETIONS=2 TAKES=1")},
	{group: rules, name: "teardown-many", property: "no upcall after Teardown, free then succeeds", file: "life.pml",
		defs: d("TEARS_DOWN LIVE=Many ACTIVATIONS=2 SOFT=1 COMPLETIONS=1 TAKES=1")},
	{group: rules, name: "teardown-twice", property: "both return although the policy is made live again; none older runs then", file: "life.pml",
		defs: d("TEARS_DOWN_TWICE SOFT=1 COMPLETIONS=1")},
	{group: rules, name: "free", property: "free is refused while fed or in an upcall, else final", file: "life.pml",
		defs: d("FREES SOFT=1 COMPLETIONS=2 TAKES=1")},
	{group: rules, name: "under-lock", property: exactlyOnce + "; claims under the lock", file: "any.pml", big: true,
		defs: d("UNDER_LOCK ONLY_SINGLE IN_ORDER SOME_SILENT SOFT=1 COMPLETIONS=1 TAKES=1 CHANGES=2")},
	{group: rules, name: "under-lock-mixed", property: exactlyOnce + "; claims under the lock", file: "any.pml", big: true,
		defs: d("UNDER_LOCK ACTIVATIONS=2 SOFT=1 COMPLETIONS=1 TAKES=1 CHANGES=1")},
	{group: rules, name: "drain", property: "ESTABLISHED, each DTO once, then one DISCONNECTED", file: "drain.pml", big: true,
		defs: d("BOTH_END POSTS=2")},
	{group: rules, name: "drain-device-dies", property: "ESTABLISHED, each DTO once, then one BROKEN", file: "drain.pml", big: true,
		defs: d("DEVICE_DIES POSTS=1")},

	// ---- consumers ----
	{group: consumers, name: "drain-then-any", property: nothingLeft + " (2005: disable in the upcall, drain, enable)", file: "recipe.pml",
		defs: d("DRAIN_THEN_ANY SOFT=2 COMPLETIONS=2")},
	{group: consumers, name: "drain-then-any-many", property: nothingLeft + ", also under MANY", file: "recipe.pml",
		defs: d("DRAIN_THEN_ANY LIVE=Many ACTIVATIONS=2 SOFT=1 COMPLETIONS=1")},
	{group: consumers, name: "new-then-poll", property: nothingLeft + " (2005: enable, poll a final time)", file: "recipe.pml",
		defs: d("NEW_THEN_POLL SOFT=2 COMPLETIONS=2")},
	{group: consumers, name: "new-then-poll-many", property: nothingLeft + ", also under MANY", file: "recipe.pml",
		defs: d("NEW_THEN_POLL LIVE=Many ACTIVATIONS=2 SOFT=1 COMPLETIONS=1")},
	{group: consumers, name: "new-then-poll-loop", property: nothingLeft + ", also again and again", file: "recipe.pml",
		defs: d("NEW_THEN_POLL_LOOP SOFT=2 COMPLETIONS=2")},
	{group: consumers, name: "empty-or-again", property: nothingLeft + " when arrivals pause; refused until then", file: "recipe.pml",
		defs: d("EMPTY_OR_AGAIN SOFT=2 COMPLETIONS=2")},
	{group: consumers, name: "rearm-then-poll", property: nothingLeft + " (NOTIFY)", file: "recipe.pml",
		defs: d("REARM_THEN_POLL SOFT=2 COMPLETIONS=2")},
	{group: consumers, name: "poll-then-rearm", property: nothingLeft + " (NOTIFY stays live, pending remembers)", file: "recipe.pml",
		defs: d("POLL_THEN_REARM SOFT=2 COMPLETIONS=2")},
	{group: consumers, name: "under-lock-drain-then-any", property: nothingLeft + "; claims under the lock", file: "recipe.pml",
		defs: d("UNDER_LOCK DRAIN_THEN_ANY SOFT=2 COMPLETIONS=2")},
	{group: consumers, name: "poll-arm-check", property: "a bare CQ: nobody sleeps over a completion", file: "arm.pml",
		defs: d("POLL_ARM_CHECK COMPLETIONS=3")},
	{group: consumers, name: "any-under-load", property: "INVOC_ANY is not refused under endless load", file: "load.pml", cycles: true,
		defs: d("FLAG=Any SOFTROOM=1 COMPLETIONS=1")},
	{group: consumers, name: "new-under-load", property: "INVOC_NEW is never refused under endless load", file: "load.pml", cycles: true,
		defs: d("FLAG=New SOFTROOM=1 COMPLETIONS=1")},

	// ---- negative results ----
	{group: negative, name: "new-without-poll", property: "INVOC_NEW without the final poll strands an event", file: "recipe.pml",
		defs: d("NEW_WITHOUT_POLL SOFT=1 COMPLETIONS=1"), want: stranded,
		ends: "Nothing moves any more. The event that was there before the policy became live lies in the queue, and no upcall is owed for it."},
	{group: negative, name: "poll-then-new", property: "arming after polling strands an event: poll, then INVOC_NEW", file: "recipe.pml",
		defs: d("POLL_THEN_NEW SOFT=2 COMPLETIONS=1"), want: stranded,
		ends: "Nothing moves any more. An event arrived after the poll and before the policy became live; INVOC_NEW counts it as backlog."},
	{group: negative, name: "poll-then-arm", property: "arming after polling strands a completion: a bare CQ", file: "arm.pml",
		defs: d("POLL_THEN_ARM COMPLETIONS=1"), want: inCQ,
		ends: "The consumer sleeps. The completion came between its poll and Arm, and Arm's report was ignored."},
	{group: negative, name: "arm-ignored", property: "Arm, then poll, but Arm's report is ignored: the arming may be void", file: "arm.pml",
		defs: d("ARM_THEN_POLL COMPLETIONS=2"), want: inCQ,
		ends: "The consumer sleeps. Arm reported a completion and, as the contract of package verbs permits, did not arm."},
	{group: negative, name: "not-primed", property: "a consumer that sleeps before anybody has armed the CQ sleeps for ever", file: "arm.pml",
		defs: d("NOT_PRIMED COMPLETIONS=1"), want: inCQ,
		ends: "The consumer sleeps. Nobody armed the CQ, so nobody is told of the completion."},
	{group: negative, name: "refused-for-ever", property: "INVOC_EMPTY can be refused for ever under load", file: "load.pml", cycles: true,
		defs: d("FLAG=Empty SOFTROOM=1 COMPLETIONS=1"), want: cycle,
		ends: "Each round drains the queue, and each time an event arrives before modify looks. No process is kept from running."},

	// ---- mutations ----
	{group: mutations, name: "mut-skip-recheck", property: "what Arm reports is ignored", file: "any.pml",
		defs: d("MUT_SKIP_RECHECK ONLY_SINGLE SOFT=0 COMPLETIONS=1 CHANGES=1"), want: unarmed,
		ends: "The policy is live, a completion lies in the CQ, and the CQ is not armed: nobody will ever be told."},
	{group: mutations, name: "mut-two-activations", property: "two activations run under SINGLE", file: "any.pml",
		defs: d("MUT_TWO_ACTIVATIONS ONLY_SINGLE ACTIVATIONS=2 SOFT=1 COMPLETIONS=1 CHANGES=0"), want: atOnce,
		ends: "Two upcalls run at once."},
	{group: mutations, name: "mut-resize-loses", property: "resize loses an event", file: "life.pml",
		defs: d("MUT_RESIZE_LOSES RESIZES SOFT=1 COMPLETIONS=1"), want: outOfOrder,
		ends: "The new ring lacks an event that nobody has taken."},
	{group: mutations, name: "mut-no-freeze", property: "resize does not freeze the old ring", file: "life.pml",
		defs: d("MUT_NO_FREEZE RESIZES LIVE=Disable SOFT=1 COMPLETIONS=1 TAKES=2"), want: outOfOrder,
		ends: "The event was copied, then taken from the old ring, and once more from the new one."},
	{group: mutations, name: "mut-resize-reserved", property: "resize gives away the room that is kept for DTOs", file: "life.pml",
		defs: d("MUT_RESIZE_RESERVED RESIZES SOFT=2 COMPLETIONS=1"), want: overflow,
		ends: "The ring is full of software events; the completion of a DTO that was promised room has none."},
	{group: mutations, name: "mut-peek", property: "an upcall's event is delivered before it is taken", file: "any.pml",
		defs: d("MUT_PEEK ONLY_SINGLE SOFT=1 COMPLETIONS=1 TAKES=1 CHANGES=0"), want: twice,
		ends: "The upcall and the thread were both given the event."},
	{group: mutations, name: "mut-forget-pending", property: "modify forgets pending", file: "recipe.pml",
		defs: d("MUT_FORGET_PENDING DRAIN_THEN_ANY SOFT=2 COMPLETIONS=1"), want: idle,
		ends: "The policy is live and a notifying event is queued, but no upcall will be made for it."},
	{group: mutations, name: "mut-stale-pending", property: "pending outlives an emptied queue", file: "any.pml",
		defs: d("MUT_STALE_PENDING ONLY_NOTIFY SOME_SILENT SOFT=1 COMPLETIONS=1 TAKES=1 CHANGES=1"), want: noCause,
		ends: "Pending is a remnant of an event that was taken; what is queued now does not notify, and yet an upcall is due."},
	{group: mutations, name: "mut-no-turn-when-empty", property: "an activation that runs is not told that pending has ended", file: "any.pml",
		defs: d("MUT_NO_TURN_WHEN_EMPTY ONLY_SINGLE SOME_SILENT SOFT=1 COMPLETIONS=1 TAKES=1 CHANGES=0"), want: noCause,
		ends: "The event that set pending is gone, and the upcall would be made for one that does not notify."},
	{group: mutations, name: "mut-stays-armed", property: "an upcall under NOTIFY does not use up the arming", file: "any.pml",
		defs: d("MUT_STAYS_ARMED ONLY_NOTIFY SOFT=1 COMPLETIONS=1 CHANGES=0"), want: notArmed,
		ends: "The same arming would give a second upcall."},
	{group: mutations, name: "mut-no-refill", property: "PostSE overtakes completions that are in the CQ", file: "any.pml",
		defs: d("MUT_NO_REFILL ONLY_SINGLE SOFT=1 COMPLETIONS=1 CHANGES=1"), want: outOfOrder,
		ends: "The completion arrived first and is taken second."},
	{group: mutations, name: "mut-empty-at-two-times", property: "QUEUE_EMPTY: ring and CQ are seen empty at different times", file: "any.pml",
		defs: d("MUT_EMPTY_AT_TWO_TIMES ONLY_SINGLE TWO_THREADS SOFT=0 COMPLETIONS=2 TAKES=1 CHANGES=0"), want: notEmpty,
		ends: "QUEUE_EMPTY is about to be returned, but at no instant of the call was the queue empty."},
	{group: mutations, name: "mut-direct-overtakes", property: "a dequeuer takes from the CQ although the ring is not empty", file: "any.pml",
		defs: d("MUT_DIRECT_OVERTAKES ONLY_SINGLE SOFT=1 COMPLETIONS=1 TAKES=1 CHANGES=1"), want: outOfOrder,
		ends: "The completion is taken before the event that arrived earlier."},
	{group: mutations, name: "mut-not-primed", property: "an EVD made with a live policy does not arm its CQ", file: "any.pml",
		defs: d("MUT_NOT_PRIMED ONLY_SINGLE SOFT=0 COMPLETIONS=1 CHANGES=0"), want: unarmed,
		ends: "The policy is live, a completion lies in the CQ, and the CQ was never armed."},
	{group: mutations, name: "mut-no-rearm", property: "a notification does not arm again", file: "any.pml",
		defs: d("MUT_NO_REARM ONLY_SINGLE SOME_SILENT SOFT=0 COMPLETIONS=2 CHANGES=0"), want: unarmed,
		ends: "The policy is live, a completion lies in the CQ, and the CQ is not armed any more."},
	{group: mutations, name: "mut-no-turn", property: "DISABLE does not turn the generation of claims", file: "life.pml",
		defs: d("MUT_NO_TURN TEARS_DOWN SOFT=1 COMPLETIONS=1"), want: notLive,
		ends: "The activation claims the next event without the lock and starts an upcall although the policy forbids it."},
	{group: mutations, name: "mut-teardown-no-wait", property: "Teardown does not wait for upcalls", file: "life.pml",
		defs: d("MUT_TEARDOWN_NO_WAIT TEARS_DOWN_TWICE SOFT=1 COMPLETIONS=1"), want: tooEarly,
		ends: "Teardown has returned and an upcall runs."},
	{group: mutations, name: "mut-old-unseen", property: "Teardown misses activations that have not begun to run", file: "life.pml",
		defs: d("MUT_OLD_UNSEEN TEARS_DOWN SOFT=1 COMPLETIONS=1"), want: deadlock,
		ends: "The activation has ended without being counted, and Teardown waits for ever."},
	{group: mutations, name: "mut-free-running", property: "free succeeds while an upcall runs", file: "life.pml",
		defs: d("MUT_FREE_RUNNING FREES SOFT=1 COMPLETIONS=1"), want: afterEnd,
		ends: "The EVD is gone and its upcall runs."},
	{group: mutations, name: "mut-flush-after-disconnect", property: "DISCONNECTED does not wait for the flush", file: "drain.pml",
		defs: d("MUT_FLUSH_AFTER_DISCONNECT POSTS=0"), want: afterLast,
		ends: "A flushed completion follows DISCONNECTED."},
	{group: mutations, name: "mut-one-mark", property: "DISCONNECTED waits for one queue's mark only", file: "drain.pml",
		defs: d("MUT_ONE_MARK POSTS=0"), want: afterLast,
		ends: "A flushed completion of the other queue follows DISCONNECTED."},
	{group: mutations, name: "mut-no-last-refill", property: "DISCONNECTED overtakes what was posted behind a mark", file: "drain.pml",
		defs: d("MUT_NO_LAST_REFILL POSTS=1"), want: afterLast,
		ends: "A request that was accepted behind the mark completes after DISCONNECTED."},
	{group: mutations, name: "mut-no-hold", property: "completions are not held back until ESTABLISHED", file: "drain.pml",
		defs: d("MUT_NO_HOLD POSTS=0"), want: beforeFirst,
		ends: "A completion precedes ESTABLISHED."},
	{group: mutations, name: "mut-complete-twice", property: "dat completes a DTO twice when the device dies", file: "drain.pml",
		defs: d("MUT_COMPLETE_TWICE DEVICE_DIES POSTS=0"), want: dtoTwice,
		ends: "The DTO completed, and is flushed once more."},
	{group: mutations, name: "mut-device-twice", property: "a device completes a DTO twice", file: "drain.pml",
		defs: d("MUT_DEVICE_TWICE POSTS=0"), want: unknown,
		ends: "The device completes a DTO for which dat has no record any more."},
}
