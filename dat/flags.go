package dat

import (
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Values that stand for something else in counts and times.
const (
	// Infinite as a timeout is no limit (DAT_TIMEOUT_INFINITE). DAT counts timeouts
	// in 32 bits of microseconds; here they are durations.
	Infinite time.Duration = -1
	// ValueUnknown as a count is one that is too costly to find out (DAT_VALUE_UNKNOWN).
	ValueUnknown = -2
	// WatermarkInfinite disables a high watermark (DAT_WATERMARK_INFINITE, DAT_HW_DEFAULT).
	WatermarkInfinite = -1
	// SRQLowWatermarkDefault disables a low watermark (DAT_SRQ_LW_DEFAULT).
	SRQLowWatermarkDefault = 0
	// NameMaxLength is the length of the longest name of an adapter, provider or
	// vendor in C, with its terminator: a name has at most 255 bytes
	// (DAT_NAME_MAX_LENGTH).
	NameMaxLength = 256
)

// HandleType is the kind of a DAT object (DAT_HANDLE_TYPE). The values are kDAPL's;
// the one kind that kDAPL does not have, the CNO, lies outside of its range.
// [HandleType.UDAPL] gives uDAPL's values.
type HandleType uint8

// The kinds of objects.
const (
	HandleCR  HandleType = iota // connection request
	HandleEP                    // end point
	HandleEVD                   // event dispatcher
	HandleIA                    // interface adapter
	HandleLMR                   // local memory region
	HandlePSP                   // public service point
	HandlePZ                    // protection zone
	HandleRMR                   // remote memory region
	HandleRSP                   // reserved service point
	HandleSRQ                   // shared receive queue
	HandleCSP                   // common service point

	// HandleExtensionBase is the first value for objects of extensions.
	HandleExtensionBase

	// HandleCNO: consumer notification object (uDAPL).
	HandleCNO HandleType = 0xFF
)

var handleNames = []string{
	"CR", "EP", "EVD", "IA", "LMR", "PSP", "PZ", "RMR", "RSP", "SRQ", "CSP",
	"EXTENSION_BASE",
}

// String returns the object's abbreviation, as in "EVD".
func (h HandleType) String() string {
	if h == HandleCNO {
		return "CNO"
	}
	return enumName("HandleType", handleNames, h)
}

// MarshalText returns String, so that JSON shows the name.
func (h HandleType) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UDAPL returns the value that uDAPL gives the kind: there the CNO is 9, and SRQ, CSP
// and extensions come one later.
func (h HandleType) UDAPL() int {
	switch {
	case h == HandleCNO:
		return 9
	case h >= HandleSRQ:
		return int(h) + 1
	}
	return int(h)
}

// Priv is a set of memory privileges (DAT_MEM_PRIV_FLAGS).
type Priv uint32

// The privileges. A send or RDMA write needs local read of its source, a receive or RDMA
// read local write of its sink; what a peer may do needs the remote privileges.
const (
	PrivNone        Priv = 0x00 // no access
	PrivLocalRead   Priv = 0x01 // source of sends and RDMA writes
	PrivRemoteRead  Priv = 0x02 // source of a peer's RDMA reads
	PrivLocalWrite  Priv = 0x10 // sink of receives and RDMA reads
	PrivRemoteWrite Priv = 0x20 // sink of a peer's RDMA writes
	PrivAll         Priv = 0x33 // the four above

	// PrivRemoteAtomic: target of a peer's atomic operations
	// (DAT_MEM_PRIV_EXTENSION_BASE, InfiniBand extension). It is not part of PrivAll.
	PrivRemoteAtomic Priv = 0x40
)

var privNames = []string{
	0: "LOCAL_READ", 1: "REMOTE_READ", 4: "LOCAL_WRITE", 5: "REMOTE_WRITE", 6: "REMOTE_ATOMIC",
}

// String returns DAT's names without DAT_MEM_PRIV_ and _FLAG, as in
// "LOCAL_READ|REMOTE_READ".
func (p Priv) String() string { return bitString("Priv", "NONE", privNames, uint64(p)) }

// MarshalText returns String, so that JSON shows the names.
func (p Priv) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// VAType says how a region is addressed (DAT_VA_TYPE).
type VAType uint8

// The kinds of addresses.
const (
	// VATypeVA: by virtual address.
	VATypeVA VAType = iota
	// VATypeZB: by offset from the start of the region. Needs IAAttr.ZBSupported.
	VATypeZB
)

var vaTypeNames = []string{"VA", "ZB"}

// String returns DAT's name without DAT_VA_TYPE_.
func (v VAType) String() string { return enumName("VAType", vaTypeNames, v) }

// MarshalText returns String, so that JSON shows the name.
func (v VAType) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// MemType is the kind of memory of a region, and in provider attributes a set of kinds
// (DAT_MEM_TYPE). It is the union of kDAPL's and uDAPL's kinds: both have VIRTUAL and
// LMR with the same values, 2 is uDAPL's alone, and kDAPL's own kinds start at 0x10.
type MemType uint32

// The kinds of memory.
const (
	MemVirtual          MemType = 0x000 // memory of the process; in a set it is implied
	MemLMR              MemType = 0x001 // the memory of another LMR
	MemSharedVirtual    MemType = 0x002 // memory that processes share (uDAPL)
	MemPhysical         MemType = 0x010 // pages of one size (kDAPL)
	MemPlatform         MemType = 0x020 // as the platform describes it (kDAPL)
	MemIA               MemType = 0x040 // memory of the adapter (kDAPL)
	MemBypass           MemType = 0x080 // addresses that the adapter does not translate (kDAPL)
	MemPhysicalVarPages MemType = 0x100 // pages of several sizes (kDAPL)
)

var memTypeNames = []string{
	0: "LMR", 1: "SHARED_VIRTUAL", 4: "PHYSICAL", 5: "PLATFORM", 6: "IA", 7: "BYPASS",
	8: "PHYSICAL_VAR_PAGES",
}

// String returns DAT's name without DAT_MEM_TYPE_, or several, as in "LMR|PHYSICAL".
func (m MemType) String() string { return bitString("MemType", "VIRTUAL", memTypeNames, uint64(m)) }

// MarshalText returns String, so that JSON shows the names.
func (m MemType) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// MemOptimize is advice for a registration (DAT_MEM_OPTIMIZE_FLAGS, kDAPL).
type MemOptimize uint32

// The advice.
const (
	MemOptimizeDontCare      MemOptimize = 0 // as the provider likes
	MemOptimizeIA            MemOptimize = 1 // what is best for the adapter
	MemOptimizeMinExposure   MemOptimize = 2 // expose little more than was asked
	MemOptimizeExactExposure MemOptimize = 4 // expose exactly what was asked
)

var memOptimizeNames = []string{"IA", "MIN_EXPOSURE", "EXACT_EXPOSURE"}

// String returns DAT's names without DAT_MEM_OPTIMIZE_.
func (m MemOptimize) String() string {
	return bitString("MemOptimize", "DONT_CARE", memOptimizeNames, uint64(m))
}

// MarshalText returns String, so that JSON shows the names.
func (m MemOptimize) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// CompletionFlags qualify a posted operation, and as attributes of an EP say which
// completions of a side notify (DAT_COMPLETION_FLAGS).
type CompletionFlags uint32

// The completion flags.
const (
	// CompletionDefault: the operation completes and notifies.
	CompletionDefault CompletionFlags = 0x00
	// CompletionSuppress: no completion on success. Requests only.
	CompletionSuppress CompletionFlags = 0x01
	// CompletionSolicitedWait: of a send, the peer's receive is solicited. As receive
	// attribute, only solicited and failed receives notify.
	CompletionSolicitedWait CompletionFlags = 0x02
	// CompletionUnsignalled: the completion is queued and does not notify, unless it is a
	// failure. Needs the same flag as the attribute of the EP's side.
	CompletionUnsignalled CompletionFlags = 0x04
	// CompletionBarrierFence: the request starts when earlier RDMA reads are done.
	CompletionBarrierFence CompletionFlags = 0x08
	// CompletionEVDThreshold: as attribute, the waiter's threshold decides (uDAPL); the
	// same as CompletionDefault where nobody waits.
	CompletionEVDThreshold CompletionFlags = 0x10
	// CompletionLMRInvalidateFence: the request starts when earlier LMR invalidates are
	// done (kDAPL).
	CompletionLMRInvalidateFence CompletionFlags = 0x20
)

var completionNames = []string{
	"SUPPRESS", "SOLICITED_WAIT", "UNSIGNALLED", "BARRIER_FENCE", "EVD_THRESHOLD",
	"LMR_INVALIDATE_FENCE",
}

// String returns DAT's names without DAT_COMPLETION_ and _FLAG, as in
// "SUPPRESS|BARRIER_FENCE".
func (f CompletionFlags) String() string {
	return bitString("CompletionFlags", "DEFAULT", completionNames, uint64(f))
}

// MarshalText returns String, so that JSON shows the names.
func (f CompletionFlags) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UpcallPolicy says when an EVD calls its consumer up (DAT_UPCALL_POLICY, kDAPL).
type UpcallPolicy int32

// The upcall policies.
const (
	// UpcallDisable: no upcall starts; events queue.
	UpcallDisable UpcallPolicy = 0
	// UpcallSingleInstance: one upcall at a time, each with an event.
	UpcallSingleInstance UpcallPolicy = 1
	// UpcallNotify: one upcall without an event, then none until the policy is set again
	// (DAT_UPCALL_NORIFY in the header).
	UpcallNotify UpcallPolicy = 2
	// UpcallMany: several upcalls at a time, each with its own event.
	UpcallMany UpcallPolicy = 100
	// UpcallTeardown: as UpcallDisable, and the call returns when no upcall runs any more.
	UpcallTeardown UpcallPolicy = -1
)

// Live reports whether upcalls start under the policy: SINGLE_INSTANCE, NOTIFY and MANY.
func (p UpcallPolicy) Live() bool {
	return p == UpcallSingleInstance || p == UpcallNotify || p == UpcallMany
}

// String returns DAT's name without DAT_UPCALL_.
func (p UpcallPolicy) String() string {
	switch p {
	case UpcallDisable:
		return "DISABLE"
	case UpcallSingleInstance:
		return "SINGLE_INSTANCE"
	case UpcallNotify:
		return "NOTIFY"
	case UpcallMany:
		return "MANY"
	case UpcallTeardown:
		return "TEARDOWN"
	}
	return "UpcallPolicy(" + strconv.Itoa(int(p)) + ")"
}

// MarshalText returns String, so that JSON shows the name.
func (p UpcallPolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UpcallFlag says what a change of the upcall policy means for events that are queued
// already (DAT_UPCALL_FLAG, kDAPL 2.0).
type UpcallFlag uint32

// The upcall flags.
const (
	// InvocNew: only an event that arrives after the call starts an upcall, if upcalls were disabled before.
	InvocNew UpcallFlag = iota
	// InvocAny: a queued event starts an upcall right away.
	InvocAny
	// InvocEmpty: queued events are an error, INVALID_STATE, and nothing changes. Ours;
	// DAT does not have it.
	InvocEmpty
)

var upcallFlagNames = []string{"INVOC_NEW", "INVOC_ANY", "INVOC_EMPTY"}

// String returns DAT's name without DAT_UPCALL_.
func (f UpcallFlag) String() string { return enumName("UpcallFlag", upcallFlagNames, f) }

// MarshalText returns String, so that JSON shows the name.
func (f UpcallFlag) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// CloseFlags say how an IA is closed or an EP disconnected (DAT_CLOSE_FLAGS).
type CloseFlags uint32

// The close flags.
const (
	// CloseAbrupt: at once. An IA takes all of its objects with it; an EP flushes what is
	// outstanding (DAT_CLOSE_ABRUPT_FLAG, DAT_CLOSE_DEFAULT).
	CloseAbrupt CloseFlags = iota
	// CloseGraceful: an IA must be empty; an EP completes its requests first.
	CloseGraceful
)

var closeNames = []string{"ABRUPT", "GRACEFUL"}

// String returns DAT's name without DAT_CLOSE_ and _FLAG.
func (f CloseFlags) String() string { return enumName("CloseFlags", closeNames, f) }

// MarshalText returns String, so that JSON shows the name.
func (f CloseFlags) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// ConnectFlags qualify a connect (DAT_CONNECT_FLAGS).
type ConnectFlags uint32

// The connect flags.
const (
	ConnectDefault            ConnectFlags = 0 // one path
	ConnectMultipathRequested ConnectFlags = 1 // several paths if possible
	ConnectMultipathRequired  ConnectFlags = 2 // several paths or failure
)

var connectNames = []string{"MULTIPATH_REQUESTED", "MULTIPATH_REQUIRED"}

// String returns DAT's names without DAT_CONNECT_ and _FLAG.
func (f ConnectFlags) String() string {
	return bitString("ConnectFlags", "DEFAULT", connectNames, uint64(f))
}

// MarshalText returns String, so that JSON shows the names.
func (f ConnectFlags) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// QoS is the wished quality of service of a connection, and in provider attributes a
// set of what is offered (DAT_QOS).
type QoS uint32

// The qualities of service.
const (
	QoSBestEffort     QoS = 0 // in a set it is implied
	QoSHighThroughput QoS = 1
	QoSLowLatency     QoS = 2
	QoSEconomy        QoS = 4
	QoSPremium        QoS = 8
)

var qosNames = []string{"HIGH_THROUGHPUT", "LOW_LATENCY", "ECONOMY", "PREMIUM"}

// String returns DAT's names without DAT_QOS_.
func (q QoS) String() string { return bitString("QoS", "BEST_EFFORT", qosNames, uint64(q)) }

// MarshalText returns String, so that JSON shows the names.
func (q QoS) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// PSPFlags say who makes the EP for a request at a public service point (DAT_PSP_FLAGS).
type PSPFlags uint32

// The PSP flags.
const (
	// PSPConsumer: the consumer names an EP when it accepts.
	PSPConsumer PSPFlags = iota
	// PSPProvider: the request comes with an EP, made by the provider.
	PSPProvider
)

var pspNames = []string{"CONSUMER", "PROVIDER"}

// String returns DAT's name without DAT_PSP_ and _FLAG.
func (f PSPFlags) String() string { return enumName("PSPFlags", pspNames, f) }

// MarshalText returns String, so that JSON shows the name.
func (f PSPFlags) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// EPState is the state of an end point (DAT_EP_STATE).
type EPState uint8

// The states of an end point. The UNCONFIGURED ones lack a PZ or EVDs, and become their
// configured twins when they get them.
const (
	StateUnconnected                EPState = iota // quiescent
	StateUnconfiguredUnconnected                   // quiescent, unconfigured
	StateReserved                                  // held by an RSP
	StateUnconfiguredReserved                      // held by an RSP, unconfigured
	StatePassiveConnectionPending                  // the RSP's request arrived
	StateUnconfiguredPassive                       // the RSP's request arrived, unconfigured
	StateActiveConnectionPending                   // connect was called
	StateTentativeConnectionPending                // made by the provider for a request
	StateUnconfiguredTentative                     // the same, unconfigured
	StateConnected                                 // connected
	StateDisconnectPending                         // a graceful disconnect runs
	StateDisconnected                              // over, until reset (DAT_EP_STATE_ERROR too)
	StateCompletionPending                         // accepted, not established yet
	StateConnectedSinglePath                       // connected, one path left of several
	StateConnectedMultiPath                        // connected over several paths
)

var epStateNames = []string{
	"UNCONNECTED", "UNCONFIGURED_UNCONNECTED", "RESERVED", "UNCONFIGURED_RESERVED",
	"PASSIVE_CONNECTION_PENDING", "UNCONFIGURED_PASSIVE", "ACTIVE_CONNECTION_PENDING",
	"TENTATIVE_CONNECTION_PENDING", "UNCONFIGURED_TENTATIVE", "CONNECTED",
	"DISCONNECT_PENDING", "DISCONNECTED", "COMPLETION_PENDING", "CONNECTED_SINGLE_PATH",
	"CONNECTED_MULTI_PATH",
}

// String returns DAT's name without DAT_EP_STATE_.
func (s EPState) String() string { return enumName("EPState", epStateNames, s) }

// MarshalText returns String, so that JSON shows the name.
func (s EPState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Subtype returns the subtype of the InvalidState that refuses a call because the EP is
// in this state, and NoSubtype for a number that is no state.
func (s EPState) Subtype() Subtype {
	switch s {
	case StateUnconnected:
		return InvalidStateEPUnconnected
	case StateUnconfiguredUnconnected:
		return InvalidStateEPUnconfigured
	case StateReserved:
		return InvalidStateEPReserved
	case StateUnconfiguredReserved:
		return InvalidStateEPUnconfReserved
	case StatePassiveConnectionPending:
		return InvalidStateEPPassConnPending
	case StateUnconfiguredPassive:
		return InvalidStateEPUnconfPassive
	case StateActiveConnectionPending:
		return InvalidStateEPActConnPending
	case StateTentativeConnectionPending:
		return InvalidStateEPTentConnPending
	case StateUnconfiguredTentative:
		return InvalidStateEPUnconfTentative
	case StateConnected, StateConnectedSinglePath, StateConnectedMultiPath:
		return InvalidStateEPConnected
	case StateDisconnectPending:
		return InvalidStateEPDiscPending
	case StateDisconnected:
		return InvalidStateEPDisconnected
	case StateCompletionPending:
		return InvalidStateEPComplPending
	}
	return NoSubtype
}

// SRQState is the state of a shared receive queue (DAT_SRQ_STATE).
type SRQState uint8

// The states of a shared receive queue. Older headers number them otherwise.
const (
	SRQStateError       SRQState = iota // failed; its EPs are broken
	SRQStateOperational                 // works
	SRQStateShutdown                    // takes no more receives
)

var srqStateNames = []string{"ERROR", "OPERATIONAL", "SHUTDOWN"}

// String returns DAT's name without DAT_SRQ_STATE_.
func (s SRQState) String() string { return enumName("SRQState", srqStateNames, s) }

// MarshalText returns String, so that JSON shows the name.
func (s SRQState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// EVDState is the state of an event dispatcher in uDAPL (DAT_EVD_STATE): enabled or
// disabled, waitable or unwaitable, and in the bits of EVDStateConfigThreshold one of
// three ways to notify.
type EVDState uint32

// The parts of an event dispatcher's state.
const (
	EVDStateEnabled         EVDState = 0x01 // triggers its CNO
	EVDStateDisabled        EVDState = 0x02 // does not trigger its CNO
	EVDStateWaitable        EVDState = 0x04 // may be waited on
	EVDStateUnwaitable      EVDState = 0x08 // may not be waited on
	EVDStateConfigNotify    EVDState = 0x10 // notifies as each completion says
	EVDStateConfigSolicited EVDState = 0x20 // notifies for solicited receives
	EVDStateConfigThreshold EVDState = 0x30 // notifies at the waiter's threshold
)

var evdStateNames = []string{
	"ENABLED", "DISABLED", "WAITABLE", "UNWAITABLE", "CONFIG_NOTIFY", "CONFIG_SOLICITED",
}

// String returns DAT's names without DAT_EVD_STATE_, as in
// "ENABLED|WAITABLE|CONFIG_THRESHOLD".
func (s EVDState) String() string {
	if s&EVDStateConfigThreshold != EVDStateConfigThreshold {
		return bitString("EVDState", "NONE", evdStateNames, uint64(s))
	}
	if s &^= EVDStateConfigThreshold; s == 0 {
		return "CONFIG_THRESHOLD"
	}
	return bitString("EVDState", "NONE", evdStateNames, uint64(s)) + "|CONFIG_THRESHOLD"
}

// MarshalText returns String, so that JSON shows the names.
func (s EVDState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// enumName returns names[v], or typ with the number in parentheses if there is none.
func enumName[T ~uint8 | ~uint16 | ~uint32](typ string, names []string, v T) string {
	if uint64(v) < uint64(len(names)) && names[v] != "" {
		return names[v]
	}
	return unknownName(typ, uint64(v))
}

// unknownName is the text of a value that has no name, as in "EventNumber(0x1234)".
func unknownName(typ string, v uint64) string {
	return typ + "(0x" + strconv.FormatUint(v, 16) + ")"
}

// bitString returns the names of the bits of v, joined by |; names are indexed by the
// bit's position. Bits without a name follow as one number. No bit at all is zero.
func bitString(typ, zero string, names []string, v uint64) string {
	if v == 0 {
		return zero
	}
	var known []string
	var unknown uint64
	for rest := v; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		if i < len(names) && names[i] != "" {
			known = append(known, names[i])
		} else {
			unknown |= 1 << i
		}
	}
	if len(known) == 0 {
		return unknownName(typ, v)
	}
	if unknown != 0 {
		known = append(known, "0x"+strconv.FormatUint(unknown, 16))
	}
	return strings.Join(known, "|")
}
