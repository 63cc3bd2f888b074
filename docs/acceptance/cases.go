package main

// acceptanceCase is something that users of RDMA libraries have run into, and that must not happen here.
type acceptanceCase struct {
	id, words string
	// why says, of a case without a test, why there is none.
	why string
}

const (
	noRXE    = "there is no RoCE device"
	noKernel = "there is no device over the kernel's verbs"
	byCI     = "a step of `.ci/run`"
)

var cases = []acceptanceCase{
	{"AC-01", "an event that comes between the poll and the arming strands nobody", ""},
	{"AC-02", "a wait for several queues looks at all of them again", ""},
	{"AC-03", "the first notification is not lost", ""},
	{"AC-04", "each wake-up of a channel takes all that is in it", noKernel + ", and so no channels"},
	{"AC-05", "more completions than are polled at a time", ""},
	{"AC-06", "each completion comes once, to its owner", ""},
	{"AC-09", "a consumer never overtakes its producer", ""},
	{"AC-10", "nothing that was not acknowledged keeps an object from being freed", ""},
	{"AC-13", "completion queues do not overflow; if one does, everybody is told", ""},
	{"AC-14", "calls in callbacks are defined", ""},
	{"AC-15", "suppressed completions use up no room", ""},
	{"AC-16", "a full queue is an error of its own, without effect", ""},
	{"AC-17", "posts behind a failure leak nothing", ""},
	{"AC-18", "what is outstanding at an end completes once", ""},
	{"AC-19", "no marker is needed to know when a queue is empty", ""},
	{"AC-20", "flushed operations are always told", ""},
	{"AC-22", "an end looks the same on each device", ""},
	{"AC-23", "a send that finds no receive has a defined end", ""},
	{"AC-24", "both sides full in both directions go on", ""},
	{"AC-26", "what may be read of an RDMA write, and when", ""},
	{"AC-27", "immediate data over iWARP", ""},
	{"AC-28", "read depths are agreed in both directions", ""},
	{"AC-29", "MPA of both revisions, with each form of the ready-to-receive message", ""},
	{"AC-33", "either side may send first", ""},
	{"AC-34", "slow and half-open set-ups end in time", ""},
	{"AC-35", "errors of set-ups name addresses, stage and cause", ""},
	{"AC-36", "private data that is too long is refused at once", ""},
	{"AC-38", "no call waits for its own callback", ""},
	{"AC-39", "objects that are freed while they are used", ""},
	{"AC-40", "a connection's events go to its own dispatcher from the first on", ""},
	{"AC-41", "each connection has one end, whoever ends it", ""},
	{"AC-43", "completions come between the begin and the end of a connection", ""},
	{"AC-44", "every wait can be ended", ""},
	{"AC-46", "connecting again after a failure", ""},
	{"AC-47", "a listener at port 0 tells its real port", ""},
	{"AC-48", "listening on the loopback address", ""},
	{"AC-49", "wrong invariant CRCs are counted and dropped", noRXE},
	{"AC-50", "time-outs are those that were asked for", noRXE},
	{"AC-51", "an error of the retry counter names the peer", noRXE},
	{"AC-52", "the right GID is chosen", noRXE},
	{"AC-53", "a device under loss goes on", noRXE},
	{"AC-54", "a network that loses, delays and cuts, without privilege", ""},
	{"AC-55", "memory is not freed while operations use it", ""},
	{"AC-56", "the collector leaves registered memory alone", ""},
	{"AC-58", "registered memory and fork", noKernel + "; the others pin nothing"},
	{"AC-59", "memory windows: contexts, invalidation, what is bound", ""},
	{"AC-60", "nothing leaks, also when a set-up fails", ""},
	{"AC-62", "it builds without RDMA headers, everywhere", byCI + ", *builds without cgo*"},
	{"AC-63", "the tests need no module and no privilege", byCI + ", *the README's test command*"},
	{"AC-64", "network namespaces and missing device nodes", noKernel + "; the others need sockets at most"},
	{"AC-67", "an adapter that is taken away", ""},
	{"AC-68", "no state of a thread", ""},
}
