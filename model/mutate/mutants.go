package main

import "kdapl/internal/mutation"

// mutant is a fault of the code, and the tests of package dat, built with the tag kdapl_explore, that find it: each of them.
type mutant struct {
	name   string
	change mutation.Change
	found  []string
}

// mutants are those of the proof's definition, in its order, and then others.
var mutants = []mutant{
	{"skip the re-check after arming",
		mutation.Change{File: "dat/evdqueue.go", Old: "if e.cq.Arm(kind) {\n\t\t\t// Completions", New: "if e.cq.Arm(kind) && false {\n\t\t\t// Completions"},
		[]string{"TestExplore/waiters", "TestExploreConsumers/wait"}},
	{"run two activations",
		mutation.Change{File: "dat/upcall.go", Old: "case UpcallSingleInstance, UpcallNotify:\n\t\treturn 1", New: "case UpcallSingleInstance, UpcallNotify:\n\t\treturn 2"},
		[]string{"TestExplore/upcalls", "TestUpcallMachineKeepsTheRulesInEveryReachableState", "TestSingleInstanceCallsUpOneAtATimeInOrder"}},
	{"lose an event in resize",
		mutation.Change{File: "dat/evd.go", Old: "to.Publish(moved)", New: "to.Publish(max(moved-1, 0))"},
		[]string{"TestExplore/every_policy_and_flag", "TestResizeKeepsTheEventsAndTheirOrder"}},
	{"deliver before taking",
		mutation.Change{File: "dat/evdupcall.go", Old: "\t\tif !ring.Claim(w, 1) {\n\t\t\tcontinue\n\t\t}\n\t\t*calls++\n",
			New: "\t\tfn(ev, ring.Len() > 0)\n\t\tif !ring.Claim(w, 1) {\n\t\t\tcontinue\n\t\t}\n\t\tif *calls++; policy != UpcallMany {\n\t\t\tcontinue\n\t\t}\n\t\tfn = func(Event, bool) {}\n"},
		[]string{"TestExplore/upcalls", "TestAnEVDIsLinearizable/upcalls_take_too"}},
	{"forget pending on modify",
		mutation.Change{File: "dat/upcall.go", Old: "if !queued || flag == InvocNew && policy.Live() && !u.policy.Live() {", New: "if true {"},
		[]string{"TestExploreConsumers/poll-then-rearm", "TestUpcallMachineKeepsTheRulesInEveryReachableState", "TestNotifyCallsUpOncePerArmingAndTakesNothing"}},
	{"flush after the disconnect event",
		mutation.Change{File: "dat/epconn.go", Old: "if ep.ending.awaited && ep.ending.send && ep.ending.recv {", New: "if ep.ending.awaited {"},
		[]string{"TestExploreEnds"}},
	{"complete twice",
		mutation.Change{File: "dat/evdqueue.go", Old: "\tpos := e.append(a, ev, notifying)\n", New: "\te.append(a, ev, notifying)\n\tpos := e.append(a, ev, notifying)\n"},
		[]string{"TestExploreEnds", "TestAnEVDIsLinearizable/software_events_and_completions"}},
	{"free while running",
		mutation.Change{File: "dat/evd.go", Old: "case e.up.running > 0:\n", New: "case false:\n"},
		[]string{"TestExplore/free", "TestFreeWithAnUpcallRunningIsRefused"}},

	{"show a new ring before its events",
		mutation.Change{File: "dat/evd.go", Old: "\tto.Publish(moved)\n", New: "\tdefer to.Publish(moved)\n"},
		[]string{"TestExplore/every_policy_and_flag"}},
	{"take a frozen ring for an empty one",
		mutation.Change{File: "dat/evdqueue.go", Old: "if e.ring.Load() == r && !r.Frozen() {", New: "if r != nil && !e.ring.Load().Frozen() {"},
		[]string{"TestExplore/every_policy_and_flag"}},
	{"a change of policy turns no generation",
		mutation.Change{File: "dat/evdupcall.go", Old: "\t\ta.ring.Turn() // activations that are", New: "\t\t// activations that are"},
		[]string{"TestExplore/every_policy_and_flag"}},
	{"a trigger is forgotten",
		mutation.Change{File: "dat/cno.go", Old: "\t\tc.triggered = append(c.triggered, e)\n", New: "\t\tif len(c.triggered) == 0 {\n\t\t\tc.triggered = append(c.triggered, e)\n\t\t}\n"},
		[]string{"TestExploreCNO/software_events"}},
	{"a CNO's waiter does not pass a trigger on",
		mutation.Change{File: "dat/cno.go", Old: "\t\t\tc.signal() // for another waiter\n", New: ""},
		[]string{"TestExploreCNO/software_events"}},
}
