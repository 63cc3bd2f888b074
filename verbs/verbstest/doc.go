// Package verbstest is the conformance suite of package verbs: one named subtest for each
// rule that a device must keep. A device is done when it passes.
//
// # Use
//
// A device's own tests call [Run] with a function that names the devices of the two ends:
//
//	func TestConformance(t *testing.T) {
//		d := mydevice.New(mydevice.Config{})
//		verbstest.Run(t, func(t testing.TB) verbstest.Pair {
//			return verbstest.Pair{Active: d, Passive: d}
//		})
//	}
//
// The function is called once for each rule. It may return the same devices every time: a
// rule opens its own instances, and closes them. It may as well make new ones and take
// them down in t.Cleanup, for example two adapters at different addresses of the loopback
// network. The active end connects to the address in the passive end's Attr, at a port that
// the passive end has listened on; nothing else is assumed of how they find each other.
// Fields of [Pair] give the suite what it cannot make itself: an address that is nobody's,
// a way to pull the adapter out. Without them the rules that need them are skipped and say so.
//
// One rule at a time: go test -run 'TestConformance/flush/an_idle_QP'. With -short the
// repetitions are a tenth, the rules are the same. The groups of the races (stress, close,
// disconnect, callback) mean most with -race.
//
// # What is checked
//
// The suite branches on [verbs.Attr] and on nothing else. A capability that is missing is
// checked to be refused with [verbs.ErrNotSupported] (group missing) and its rules are
// skipped; where a device may differ without a capability, as in what a successful
// completion means ([verbs.CompletionMeaning]), where faults of local segments show
// ([verbs.CapPostChecks]), or what a send without a receive does ([verbs.CapRNR]), each
// branch has its own expectations. Numbers that a device may round up, as the depth of a
// queue or the length of a CQ, are taken as minima.
//
// Under every rule runs an account of each QP. It knows what was posted, and settles every
// completion against it: exactly once, in the order of posting, with the right operation and
// QP, in the right CQ, nothing successful behind a failure, everything flushed that did not
// run, one drained mark for each queue behind the rest. The account is closed when the QP
// is reset or destroyed, at the moment when that call returns. In the same way the events
// of each connection are counted: one outcome of each set-up, one end of each connection,
// never two calls at a time, all of them told when the QP is in QPError.
// So a rule about, say, windows may well fail because a mark came twice.
//
// What the contract leaves open is not checked. In particular the events that a Destroy
// or Close itself causes may be delivered or dropped, and the order between a connection's
// end and the marks is free.
//
// # Time
//
// A device may do its work whenever it likes: every wait is a poll with a deadline
// ([Pair.Deadline]) that a working device never reaches. Every other fruitless look at a CQ
// calls Progress, if the CQ has it; the looks between leave the device to itself, and rules
// about notification never help. Where a rule says that something must not happen it looks
// a few hundred times. No rule sleeps, but for the set-up that must time out.
package verbstest
