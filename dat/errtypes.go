package dat

// Type is the type of a DAT return code (DAT_RETURN_TYPE, bits 16 to 29): what
// kind of thing went wrong. It is an error, so that it can be the target of
// errors.Is:
//
//	if errors.Is(err, dat.InvalidState) { … }
type Type uint32

// The types (dat_error.h).
const (
	// Success is the type of a call that succeeded; no [Error] has it.
	Success Type = iota << 16
	// Abort: the IA was closed, or the EVD destroyed, under a blocked call.
	Abort
	// ConnQualInUse: somebody listens on the connection qualifier already.
	ConnQualInUse
	// InsufficientResources: a limit of the IA or memory is exhausted.
	InsufficientResources
	// InternalError: a fault of the provider; it never hides a consumer's error.
	InternalError
	// InvalidHandle: an object is freed, null, or not what the call needs.
	InvalidHandle
	// InvalidParameter: an argument is out of range; the subtype counts arguments
	// from 1, in the order of the DAT function.
	InvalidParameter
	// InvalidState: the state of an object, or what still uses it, forbids the call.
	InvalidState
	// LengthError: the sizes of a transfer do not fit each other.
	LengthError
	// ModelNotSupported: the adapter lacks an optional feature.
	ModelNotSupported
	// ProviderNotFound: no adapter has that name, version and thread safety.
	ProviderNotFound
	// PrivilegesViolation: a memory segment lacks an access right.
	PrivilegesViolation
	// ProtectionViolation: a memory segment belongs to another protection zone.
	ProtectionViolation
	// QueueEmpty: there is nothing to dequeue.
	QueueEmpty
	// QueueFull: a software event found the EVD full and was not queued.
	QueueFull
	// TimeoutExpired: a wait took longer than allowed; nothing was dequeued.
	TimeoutExpired
	// ProviderAlreadyRegistered: the registry has that provider.
	ProviderAlreadyRegistered
	// ProviderInUse: an IA of the provider is open.
	ProviderInUse
	// InvalidAddress: the address is malformed, of the wrong kind or unreachable.
	InvalidAddress
	// InterruptedCall: a signal ended a wait (uDAPL).
	InterruptedCall
	// ConnQualUnavailable: the connection qualifier cannot be listened on.
	ConnQualUnavailable
	// ReservedLMR: the call is not for the reserved LMR (kDAPL).
	ReservedLMR
	// PortInUse: somebody listens on the port of a common service point.
	PortInUse
	// CommNotSupported: the communicator of a common service point is not one of
	// the adapter's.
	CommNotSupported

	// TypeExtensionBase is the first type of the extensions' range.
	TypeExtensionBase Type = 0x1000_0000
	// IBError: an operation of the InfiniBand extension failed.
	IBError = TypeExtensionBase
	// IBCollectiveError: a collective operation of the InfiniBand extension
	// failed. The header numbers it behind IBError in the bits of the subtype, so
	// it has no subtype.
	IBCollectiveError Type = 0x1000_0001
	// NotImplemented: the provider does not have the call.
	NotImplemented Type = 0x3FFF_0000
)

// typeNames has the names of the dense part of the types, by value >> 16.
var typeNames = [...]string{
	"SUCCESS",
	"ABORT",
	"CONN_QUAL_IN_USE",
	"INSUFFICIENT_RESOURCES",
	"INTERNAL_ERROR",
	"INVALID_HANDLE",
	"INVALID_PARAMETER",
	"INVALID_STATE",
	"LENGTH_ERROR",
	"MODEL_NOT_SUPPORTED",
	"PROVIDER_NOT_FOUND",
	"PRIVILEGES_VIOLATION",
	"PROTECTION_VIOLATION",
	"QUEUE_EMPTY",
	"QUEUE_FULL",
	"TIMEOUT_EXPIRED",
	"PROVIDER_ALREADY_REGISTERED",
	"PROVIDER_IN_USE",
	"INVALID_ADDRESS",
	"INTERRUPTED_CALL",
	"CONN_QUAL_UNAVAILABLE",
	"RESERVED_LMR",
	"PORT_IN_USE",
	"COMM_NOT_SUPPORTED",
}

// name returns the name and whether the type is one of DAT's.
func (t Type) name() (string, bool) {
	switch t {
	case IBError:
		return "IB_ERR", true
	case IBCollectiveError:
		return "IB_COLLECTIVE_ERR", true
	case NotImplemented:
		return "NOT_IMPLEMENTED", true
	}
	if i := t >> 16; t&subtypeMask == 0 && int(i) < len(typeNames) {
		return typeNames[i], true
	}
	return unknownName("Type", uint64(t)), false
}

// String returns DAT's name without DAT_.
func (t Type) String() string {
	s, _ := t.name()
	return s
}

// MarshalText returns String, so that JSON shows the name.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Error makes a Type a target of errors.Is.
func (t Type) Error() string { return "dat: " + t.String() }

// Subtype is the subtype of a DAT return code (DAT_RETURN_SUBTYPE, bits 0 to 15):
// which argument, object or state it was. The numbers are those of release 2.1.10;
// older headers lack InvalidStateSRQShutdown and count one lower from there on. Like
// [Type] it is a target of errors.Is.
type Subtype uint16

// General subtypes, and those of InsufficientResources.
const (
	NoSubtype                Subtype = iota // the type says it all
	SubInterrupted                          // a wait was interrupted
	ResourceMemory                          // memory, or entries of a queue
	ResourceDevice                          // the adapter
	ResourceTEP                             // end points
	ResourceTEVD                            // event dispatchers or their length
	ResourceProtectionDomain                // protection zones
	ResourceMemoryRegion                    // memory regions or windows
	ResourceErrorHandler                    // an error handler
	ResourceCredits                         // credits of a connection
	ResourceSRQ                             // shared receive queues
)

// Subtypes of InvalidHandle: the kind of object, for an EVD its role, or else the
// position of the argument.
const (
	InvalidHandleIA         Subtype = iota + 11 // interface adapter
	InvalidHandleEP                             // end point
	InvalidHandleLMR                            // local memory region
	InvalidHandleRMR                            // remote memory region
	InvalidHandlePZ                             // protection zone
	InvalidHandlePSP                            // public service point
	InvalidHandleRSP                            // reserved service point
	InvalidHandleCR                             // connection request
	InvalidHandleCNO                            // consumer notification object
	InvalidHandleEVDCR                          // EVD for connection requests
	InvalidHandleEVDRequest                     // EVD of an EP's requests
	InvalidHandleEVDRecv                        // EVD of an EP's receives
	InvalidHandleEVDConn                        // EVD of an EP's connection
	InvalidHandleEVDAsync                       // EVD for asynchronous errors
	InvalidHandleSRQ                            // shared receive queue
	InvalidHandleCSP                            // common service point
	InvalidHandle1                              // first argument
	InvalidHandle2                              // second argument
	InvalidHandle3                              // third argument
	InvalidHandle4                              // fourth argument
	InvalidHandle5                              // fifth argument
	InvalidHandle6                              // sixth argument
	InvalidHandle7                              // seventh argument
	InvalidHandle8                              // eighth argument
	InvalidHandle9                              // ninth argument
	InvalidHandle10                             // tenth argument
)

// Subtypes of InvalidParameter: the argument of the DAT function, counted from 1.
const (
	InvalidArg1  Subtype = iota + 37 // first argument
	InvalidArg2                      // second argument
	InvalidArg3                      // third argument
	InvalidArg4                      // fourth argument
	InvalidArg5                      // fifth argument
	InvalidArg6                      // sixth argument
	InvalidArg7                      // seventh argument
	InvalidArg8                      // eighth argument
	InvalidArg9                      // ninth argument
	InvalidArg10                     // tenth argument
)

// Subtypes of InvalidState for an end point: the state that it is in (see
// [EPState.Subtype]), or what it lacks.
const (
	InvalidStateEPUnconnected     Subtype = iota + 47 // is UNCONNECTED
	InvalidStateEPActConnPending                      // is ACTIVE_CONNECTION_PENDING
	InvalidStateEPPassConnPending                     // is PASSIVE_CONNECTION_PENDING
	InvalidStateEPTentConnPending                     // is TENTATIVE_CONNECTION_PENDING
	InvalidStateEPConnected                           // is CONNECTED
	InvalidStateEPDisconnected                        // is DISCONNECTED
	InvalidStateEPReserved                            // is RESERVED
	InvalidStateEPComplPending                        // is COMPLETION_PENDING
	InvalidStateEPDiscPending                         // is DISCONNECT_PENDING
	InvalidStateEPProviderControl                     // belongs to the provider just now
	InvalidStateEPNotReady                            // lacks a PZ or an EVD
	InvalidStateEPRecvWatermark                       // receive watermark out of reach
	InvalidStateEPPZ                                  // lacks a PZ
	InvalidStateEPEVDRequest                          // lacks the request EVD
	InvalidStateEPEVDRecv                             // lacks the receive EVD
	InvalidStateEPEVDConnect                          // lacks the connect EVD
	InvalidStateEPUnconfigured                        // is UNCONFIGURED_UNCONNECTED
	InvalidStateEPUnconfReserved                      // is UNCONFIGURED_RESERVED
	InvalidStateEPUnconfPassive                       // is UNCONFIGURED_PASSIVE
	InvalidStateEPUnconfTentative                     // is UNCONFIGURED_TENTATIVE
)

// Subtypes of InvalidState for a CNO or an EVD.
const (
	InvalidStateCNOInUse           Subtype = iota + 67 // an EVD or a waiter uses the CNO
	InvalidStateCNODead                                // the CNO failed
	InvalidStateEVDOpen                                // the EVD is open
	InvalidStateEVDEnabled                             // the EVD is enabled
	InvalidStateEVDDisabled                            // the EVD is disabled
	InvalidStateEVDWaitable                            // the EVD is waitable
	InvalidStateEVDUnwaitable                          // the EVD is unwaitable
	InvalidStateEVDInUse                               // a stream, waiter or upcall uses the EVD
	InvalidStateEVDConfigNotify                        // the EVD notifies for every completion
	InvalidStateEVDConfigSolicited                     // the EVD notifies for solicited ones
	InvalidStateEVDConfigThreshold                     // the EVD notifies at a threshold
	InvalidStateEVDWaiter                              // somebody waits on the EVD
	InvalidStateEVDAsync                               // the EVD is an IA's asynchronous one
)

// Subtypes of InvalidState for the other objects.
const (
	InvalidStateIAInUse        Subtype = iota + 80 // the IA still has objects
	InvalidStateLMRInUse                           // an RMR, duplicate or request uses the LMR
	InvalidStateLMRFree                            // the LMR maps nothing
	InvalidStatePZInUse                            // an EP, LMR, RMR or SRQ uses the PZ
	InvalidStatePZFree                             // nothing uses the PZ
	InvalidStateSRQOperational                     // the SRQ is operational
	InvalidStateSRQError                           // the SRQ is in error
	InvalidStateSRQInUse                           // an EP uses the SRQ
	InvalidStateSRQShutdown                        // the SRQ is shut down
)

// Subtypes of PrivilegesViolation (the right that is missing) and
// ProtectionViolation (the use that the protection zone forbids).
const (
	PrivilegesRead      Subtype = iota + 89 // local read
	PrivilegesWrite                         // local write
	PrivilegesRDMARead                      // remote read
	PrivilegesRDMAWrite                     // remote write
	ProtectionRead                          // local read
	ProtectionWrite                         // local write
	ProtectionRDMARead                      // remote read
	ProtectionRDMAWrite                     // remote write
)

// Subtypes of InvalidAddress and ProviderNotFound.
const (
	InvalidAddressUnsupported Subtype = iota + 97 // a kind of address that the adapter lacks
	InvalidAddressUnreachable                     // no route to the address
	InvalidAddressMalformed                       // not an address
	NameNotRegistered                             // no provider of that name
	MajorNotFound                                 // none of that major version
	MinorNotFound                                 // none of that minor version or a later one
	ThreadSafetyNotFound                          // none of that thread safety
)

// subtypeNames has the subtypes' names, by value.
var subtypeNames = [...]string{
	"NO_SUBTYPE", "SUB_INTERRUPTED",
	"RESOURCE_MEMORY", "RESOURCE_DEVICE", "RESOURCE_TEP", "RESOURCE_TEVD",
	"RESOURCE_PROTECTION_DOMAIN", "RESOURCE_MEMORY_REGION", "RESOURCE_ERROR_HANDLER",
	"RESOURCE_CREDITS", "RESOURCE_SRQ",

	"INVALID_HANDLE_IA", "INVALID_HANDLE_EP", "INVALID_HANDLE_LMR", "INVALID_HANDLE_RMR",
	"INVALID_HANDLE_PZ", "INVALID_HANDLE_PSP", "INVALID_HANDLE_RSP", "INVALID_HANDLE_CR",
	"INVALID_HANDLE_CNO", "INVALID_HANDLE_EVD_CR", "INVALID_HANDLE_EVD_REQUEST",
	"INVALID_HANDLE_EVD_RECV", "INVALID_HANDLE_EVD_CONN", "INVALID_HANDLE_EVD_ASYNC",
	"INVALID_HANDLE_SRQ", "INVALID_HANDLE_CSP", "INVALID_HANDLE1", "INVALID_HANDLE2",
	"INVALID_HANDLE3", "INVALID_HANDLE4", "INVALID_HANDLE5", "INVALID_HANDLE6",
	"INVALID_HANDLE7", "INVALID_HANDLE8", "INVALID_HANDLE9", "INVALID_HANDLE10",

	"INVALID_ARG1", "INVALID_ARG2", "INVALID_ARG3", "INVALID_ARG4", "INVALID_ARG5",
	"INVALID_ARG6", "INVALID_ARG7", "INVALID_ARG8", "INVALID_ARG9", "INVALID_ARG10",

	"INVALID_STATE_EP_UNCONNECTED", "INVALID_STATE_EP_ACTCONNPENDING",
	"INVALID_STATE_EP_PASSCONNPENDING", "INVALID_STATE_EP_TENTCONNPENDING",
	"INVALID_STATE_EP_CONNECTED", "INVALID_STATE_EP_DISCONNECTED",
	"INVALID_STATE_EP_RESERVED", "INVALID_STATE_EP_COMPLPENDING",
	"INVALID_STATE_EP_DISCPENDING", "INVALID_STATE_EP_PROVIDERCONTROL",
	"INVALID_STATE_EP_NOTREADY", "INVALID_STATE_EP_RECV_WATERMARK", "INVALID_STATE_EP_PZ",
	"INVALID_STATE_EP_EVD_REQUEST", "INVALID_STATE_EP_EVD_RECV",
	"INVALID_STATE_EP_EVD_CONNECT", "INVALID_STATE_EP_UNCONFIGURED",
	"INVALID_STATE_EP_UNCONFRESERVED", "INVALID_STATE_EP_UNCONFPASSIVE",
	"INVALID_STATE_EP_UNCONFTENTATIVE",

	"INVALID_STATE_CNO_IN_USE", "INVALID_STATE_CNO_DEAD", "INVALID_STATE_EVD_OPEN",
	"INVALID_STATE_EVD_ENABLED", "INVALID_STATE_EVD_DISABLED", "INVALID_STATE_EVD_WAITABLE",
	"INVALID_STATE_EVD_UNWAITABLE", "INVALID_STATE_EVD_IN_USE",
	"INVALID_STATE_EVD_CONFIG_NOTIFY", "INVALID_STATE_EVD_CONFIG_SOLICITED",
	"INVALID_STATE_EVD_CONFIG_THRESHOLD", "INVALID_STATE_EVD_WAITER",
	"INVALID_STATE_EVD_ASYNC",

	"INVALID_STATE_IA_IN_USE", "INVALID_STATE_LMR_IN_USE", "INVALID_STATE_LMR_FREE",
	"INVALID_STATE_PZ_IN_USE", "INVALID_STATE_PZ_FREE", "INVALID_STATE_SRQ_OPERATIONAL",
	"INVALID_STATE_SRQ_ERROR", "INVALID_STATE_SRQ_IN_USE", "INVALID_STATE_SRQ_SHUTDOWN",

	"PRIVILEGES_READ", "PRIVILEGES_WRITE", "PRIVILEGES_RDMA_READ", "PRIVILEGES_RDMA_WRITE",
	"PROTECTION_READ", "PROTECTION_WRITE", "PROTECTION_RDMA_READ", "PROTECTION_RDMA_WRITE",

	"INVALID_ADDRESS_UNSUPPORTED", "INVALID_ADDRESS_UNREACHABLE",
	"INVALID_ADDRESS_MALFORMED", "NAME_NOT_REGISTERED", "MAJOR_NOT_FOUND",
	"MINOR_NOT_FOUND", "THREAD_SAFETY_NOT_FOUND",
}

// String returns DAT's name without DAT_.
func (s Subtype) String() string { return enumName("Subtype", subtypeNames[:], s) }

// MarshalText returns String, so that JSON shows the name.
func (s Subtype) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Error makes a Subtype a target of errors.Is.
func (s Subtype) Error() string { return "dat: " + s.String() }

// Type returns the type that DAT pairs the subtype with, and Success for NoSubtype
// and numbers that DAT does not have.
func (s Subtype) Type() Type {
	switch {
	case s == NoSubtype:
		return Success
	case s == SubInterrupted:
		return InterruptedCall
	case s <= ResourceSRQ:
		return InsufficientResources
	case s <= InvalidHandle10:
		return InvalidHandle
	case s <= InvalidArg10:
		return InvalidParameter
	case s <= InvalidStateSRQShutdown:
		return InvalidState
	case s <= PrivilegesRDMAWrite:
		return PrivilegesViolation
	case s <= ProtectionRDMAWrite:
		return ProtectionViolation
	case s <= InvalidAddressMalformed:
		return InvalidAddress
	case s <= ThreadSafetyNotFound:
		return ProviderNotFound
	}
	return Success
}
