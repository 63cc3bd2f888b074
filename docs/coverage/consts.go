package main

// enumeration is a type of constants whose every value has a test, or a reason why it cannot.
type enumeration struct {
	title, typ string
	// note is said before the table.
	note string
	// onlyUsed: values that library code does not use have a reason, the others a test.
	onlyUsed bool
	why      map[string]string
}

const (
	noHA          = "for connections over several paths (ha_supported), which no software adapter has"
	noCollectives = "collectives are not offered"
	numberOnly    = "marks where a range of numbers begins; no value of its own"
	kernelMemory  = "for memory of the kernel, which does not exist in user space"
	byPosition    = "no call has so many arguments, or the kind of object says it better"
	unusedState   = "says of an object that it is as it should be; calls that find that succeed"
)

var enumerations = []enumeration{
	{title: "Event numbers", typ: "EventNumber", why: map[string]string{
		"AsyncErrorTimedOut":   "for time-outs inside a provider; here each ends in a connection event",
		"HADownTo1":            noHA,
		"HAUpToMultiPath":      noHA,
		"ExtensionEvent":       "for extensions without numbers of their own; the InfiniBand extension has some",
		"IBExtensionRangeBase": numberOnly,
		"IBCollectiveEvent":    noCollectives,
		"IWExtensionRangeBase": numberOnly,
	}},
	{title: "Completion statuses", typ: "Status",
		note: "Software adapters do not reach LOCAL_EP, BAD_RESPONSE and TRANSPORT, which hardware has; their tests have an adapter say so.",
		why:  map[string]string{"StatusPartialPacket": "adapters place messages as a whole, and no adapter reports it"}},
	{title: "Operations", typ: "Operation", why: map[string]string{
		"OpBindMW":     "binds have an event of their own, RMRBindCompletion, as the C library does it",
		"OpCollective": noCollectives,
	}},
	{title: "States of an end point", typ: "EPState",
		note: "No object reaches the two states of several paths: " + noHA + ". The machine knows them, and its test walks through them."},
	{title: "Reasons of asynchronous events", typ: "AsyncReason", why: map[string]string{
		"ReasonIAOther":       "an IA fails as a whole, which is ReasonIACatastrophic",
		"ReasonEVDOther":      "an EVD fails by overflow only",
		"ReasonSRQTransferTo": "a software adapter's SRQ does not fail",
		"ReasonLMROther":      "software regions do not fail",
		"ReasonRMROther":      "software windows do not fail",
		"ReasonPZOther":       "software zones do not fail",
	}},
	{title: "Upcall policies", typ: "UpcallPolicy"},
	{title: "Upcall flags", typ: "UpcallFlag"},
	{title: "Completion flags", typ: "CompletionFlags"},
	{title: "Kinds of objects", typ: "HandleType"},
	{title: "States of a shared receive queue", typ: "SRQState", why: map[string]string{
		"SRQStateShutdown": "nothing shuts an SRQ down but its end",
	}},
	{title: "Memory privileges", typ: "Priv"},
	{title: "Extension data", typ: "IBExtType"},
	{title: "Return types", typ: "Type", onlyUsed: true, why: map[string]string{
		"Success":           "no error",
		"ReservedLMR":       "there is no reserved LMR to misuse; ReservedLMR refuses with MODEL_NOT_SUPPORTED",
		"TypeExtensionBase": numberOnly,
		"IBError":           "the extension's calls return DAT's own types",
		"IBCollectiveError": noCollectives,
	}},
	{title: "Return subtypes", typ: "Subtype", onlyUsed: true, why: reasons(map[string][]string{
		"an interrupted wait has the context's cause instead": {"SubInterrupted"},
		"an adapter's, of which software has none":            {"ResourceErrorHandler", "ResourceCredits"},
		byPosition: {"InvalidHandle3", "InvalidHandle5", "InvalidHandle6", "InvalidHandle7", "InvalidHandle8", "InvalidHandle9", "InvalidHandle10", "InvalidArg10"},
		"the state that the EP is in, or EP_NOTREADY, is said instead, as in C": {"InvalidStateEPProviderControl", "InvalidStateEPPZ", "InvalidStateEPEVDRequest", "InvalidStateEPEVDRecv", "InvalidStateEPEVDConnect"},
		"a watermark that is exceeded already takes effect at once":             {"InvalidStateEPRecvWatermark"},
		"a CNO does not fail": {"InvalidStateCNODead"},
		unusedState:           {"InvalidStateEVDOpen", "InvalidStateEVDEnabled", "InvalidStateEVDDisabled", "InvalidStateEVDWaitable", "InvalidStateEVDConfigThreshold", "InvalidStatePZFree", "InvalidStateSRQOperational"},
		"an IA's asynchronous EVD is in use, which EVD_IN_USE says":              {"InvalidStateEVDAsync"},
		"nothing shuts an SRQ down but its end":                                  {"InvalidStateSRQShutdown"},
		"a missing remote privilege shows at the peer, as REMOTE_ACCESS":         {"PrivilegesRDMARead"},
		"adapters say that the zone does not fit, not for what":                  {"ProtectionRead", "ProtectionWrite", "ProtectionRDMARead"},
		"whether there is a way to an address shows in the event of the connect": {"InvalidAddressUnreachable"},
		"addresses are values of package netip, which no call can get malformed": {"InvalidAddressMalformed"},
	})},
}

// sameAs are the static errors by which a type is known.
var sameAs = map[string]string{
	"dat.QueueEmpty": "dat.ErrQueueEmpty", "dat.QueueFull": "dat.ErrQueueFull", "dat.TimeoutExpired": "dat.ErrTimeout",
}

// reasons turns reasons with their constants around.
func reasons(by map[string][]string) map[string]string {
	why := map[string]string{}
	for reason, names := range by {
		for _, name := range names {
			why[name] = reason
		}
	}
	return why
}
