package dat

// EventNumber says what an event is (DAT_EVENT_NUMBER). 0 is no event. The number
// decides which stream the event belongs to and which view of it is meaningful.
type EventNumber uint32

// The event numbers (dat.h, dat_ib_extensions.h).
const (
	// DTOCompletion: a data transfer operation ended, well or not.
	DTOCompletion EventNumber = 0x00001
	// RMRBindCompletion: a bind of an RMR ended, well or not.
	RMRBindCompletion EventNumber = 0x01001
	// ConnectionRequest: a peer asks a service point for a connection.
	ConnectionRequest EventNumber = 0x02001
	// ConnectionEstablished: the EP is connected. On the active side the event
	// carries the private data of the peer's accept.
	ConnectionEstablished EventNumber = 0x04001
	// ConnectionPeerRejected: the peer's consumer rejected the request; its private
	// data may say why.
	ConnectionPeerRejected EventNumber = 0x04002
	// ConnectionNonPeerRejected: nobody listens, there is no room, or a transport
	// between refused.
	ConnectionNonPeerRejected EventNumber = 0x04003
	// ConnectionAcceptCompletionError: the set-up failed after the consumer accepted.
	ConnectionAcceptCompletionError EventNumber = 0x04004
	// ConnectionDisconnected: the connection ended as one of the consumers wished.
	ConnectionDisconnected EventNumber = 0x04005
	// ConnectionBroken: the connection ended by a fault.
	ConnectionBroken EventNumber = 0x04006
	// ConnectionTimedOut: the timeout of the connect passed.
	ConnectionTimedOut EventNumber = 0x04007
	// ConnectionUnreachable: there is no route to the address, or no such host.
	ConnectionUnreachable EventNumber = 0x04008
	// AsyncErrorEVDOverflow: an EVD had no room for an event.
	AsyncErrorEVDOverflow EventNumber = 0x08001
	// AsyncErrorIACatastrophic: the IA is unusable, only Close works.
	AsyncErrorIACatastrophic EventNumber = 0x08002
	// AsyncErrorEPBroken: an EP failed outside of connection events.
	AsyncErrorEPBroken EventNumber = 0x08003
	// AsyncErrorTimedOut: a timeout inside the provider.
	AsyncErrorTimedOut EventNumber = 0x08004
	// AsyncErrorProviderInternal: a fault of the provider
	// (DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR).
	AsyncErrorProviderInternal EventNumber = 0x08005
	// HADownTo1: a connection of several paths has one left.
	HADownTo1 EventNumber = 0x08101
	// HAUpToMultiPath: a connection has several paths again.
	HAUpToMultiPath EventNumber = 0x08102
	// AsyncWatermark: an SRQ's low or an EP's soft high watermark was passed; object
	// and reason say which. DAT has reasons for these events but no number; this one,
	// of the asynchronous range, is ours.
	AsyncWatermark EventNumber = 0x08201
	// SoftwareEvent: an event that the consumer posted.
	SoftwareEvent EventNumber = 0x10001
	// ExtensionEvent: an event of an extension that has no number of its own.
	ExtensionEvent EventNumber = 0x20000

	// IBExtensionRangeBase is the first number of the InfiniBand extension.
	IBExtensionRangeBase EventNumber = 0x40000
	// IBDTOEvent: an operation of the InfiniBand extension ended, on the EVD of the
	// EP's requests or receives.
	IBDTOEvent EventNumber = 0x40000
	// IBUDConnectionRequest: a peer asks for a datagram address handle.
	IBUDConnectionRequest EventNumber = 0x40001
	// IBUDConnectionEstablished: the address handle of a datagram peer is known.
	IBUDConnectionEstablished EventNumber = 0x40002
	// IBUDConnectionReject: the datagram peer rejected.
	IBUDConnectionReject EventNumber = 0x40003
	// IBUDConnectionError: the datagram peer's address could not be resolved.
	IBUDConnectionError EventNumber = 0x40004
	// IBCollectiveEvent: a collective operation ended.
	IBCollectiveEvent EventNumber = 0x40005
	// IWExtensionRangeBase is the first number of the iWARP extension.
	IWExtensionRangeBase EventNumber = 0x80000
)

// String returns DAT's name without DAT_.
func (n EventNumber) String() string {
	switch n {
	case DTOCompletion:
		return "DTO_COMPLETION_EVENT"
	case RMRBindCompletion:
		return "RMR_BIND_COMPLETION_EVENT"
	case ConnectionRequest:
		return "CONNECTION_REQUEST_EVENT"
	case ConnectionEstablished:
		return "CONNECTION_EVENT_ESTABLISHED"
	case ConnectionPeerRejected:
		return "CONNECTION_EVENT_PEER_REJECTED"
	case ConnectionNonPeerRejected:
		return "CONNECTION_EVENT_NON_PEER_REJECTED"
	case ConnectionAcceptCompletionError:
		return "CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR"
	case ConnectionDisconnected:
		return "CONNECTION_EVENT_DISCONNECTED"
	case ConnectionBroken:
		return "CONNECTION_EVENT_BROKEN"
	case ConnectionTimedOut:
		return "CONNECTION_EVENT_TIMED_OUT"
	case ConnectionUnreachable:
		return "CONNECTION_EVENT_UNREACHABLE"
	case AsyncErrorEVDOverflow:
		return "ASYNC_ERROR_EVD_OVERFLOW"
	case AsyncErrorIACatastrophic:
		return "ASYNC_ERROR_IA_CATASTROPHIC"
	case AsyncErrorEPBroken:
		return "ASYNC_ERROR_EP_BROKEN"
	case AsyncErrorTimedOut:
		return "ASYNC_ERROR_TIMED_OUT"
	case AsyncErrorProviderInternal:
		return "ASYNC_ERROR_PROVIDER_INTERNAL_ERROR"
	case HADownTo1:
		return "HA_DOWN_TO_1"
	case HAUpToMultiPath:
		return "HA_UP_TO_MULTI_PATH"
	case AsyncWatermark:
		return "ASYNC_WATERMARK"
	case SoftwareEvent:
		return "SOFTWARE_EVENT"
	case ExtensionEvent:
		return "EXTENSION_EVENT"
	case IBDTOEvent:
		return "IB_DTO_EVENT"
	case IBUDConnectionRequest:
		return "IB_UD_CONNECTION_REQUEST_EVENT"
	case IBUDConnectionEstablished:
		return "IB_UD_CONNECTION_EVENT_ESTABLISHED"
	case IBUDConnectionReject:
		return "IB_UD_CONNECTION_REJECT_EVENT"
	case IBUDConnectionError:
		return "IB_UD_CONNECTION_ERROR_EVENT"
	case IBCollectiveEvent:
		return "IB_COLLECTIVE_EVENT"
	case IWExtensionRangeBase:
		return "IW_EXTENSION_RANGE_BASE"
	}
	return unknownName("EventNumber", uint64(n))
}

// MarshalText returns String, so that JSON shows the name.
func (n EventNumber) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// Stream returns the stream that feeds events of this number into an EVD, and 0 for
// ExtensionEvent and numbers that DAT does not have.
func (n EventNumber) Stream() Stream {
	switch n {
	case DTOCompletion, IBDTOEvent:
		return StreamDTO
	case RMRBindCompletion:
		return StreamRMRBind
	case ConnectionRequest, IBUDConnectionRequest:
		return StreamConnectionRequest
	case ConnectionEstablished, ConnectionPeerRejected, ConnectionNonPeerRejected,
		ConnectionAcceptCompletionError, ConnectionDisconnected, ConnectionBroken,
		ConnectionTimedOut, ConnectionUnreachable,
		IBUDConnectionEstablished, IBUDConnectionReject, IBUDConnectionError:
		return StreamConnection
	case AsyncErrorEVDOverflow, AsyncErrorIACatastrophic, AsyncErrorEPBroken,
		AsyncErrorTimedOut, AsyncErrorProviderInternal, HADownTo1, HAUpToMultiPath,
		AsyncWatermark:
		return StreamAsync
	case SoftwareEvent:
		return StreamSoftware
	case IBCollectiveEvent:
		return StreamExtensionBase
	}
	return 0
}

// Stream is a set of event streams that may feed an EVD (DAT_EVD_FLAGS), fixed when the
// EVD is created.
type Stream uint32

// The streams.
const (
	// StreamSoftware: events that the consumer posts.
	StreamSoftware Stream = 0x001
	// StreamConnectionRequest: requests that arrive at a PSP, RSP or CSP
	// (DAT_EVD_CR_FLAG).
	StreamConnectionRequest Stream = 0x010
	// StreamDTO: completions of an EP's requests or receives.
	StreamDTO Stream = 0x020
	// StreamConnection: what happens to an EP's connection.
	StreamConnection Stream = 0x040
	// StreamRMRBind: completions of RMR binds, from an EP's requests.
	StreamRMRBind Stream = 0x080
	// StreamAsync: asynchronous errors of an IA.
	StreamAsync Stream = 0x100
	// StreamDefault: all but software events.
	StreamDefault Stream = 0x1F0
	// StreamExtensionBase is the first bit for extensions. The InfiniBand extension
	// uses it for collective operations.
	StreamExtensionBase Stream = 0x200
)

var streamNames = []string{
	0: "SOFTWARE", 4: "CR", 5: "DTO", 6: "CONNECTION", 7: "RMR_BIND", 8: "ASYNC",
	9: "EXTENSION_BASE",
}

// String returns DAT's names without DAT_EVD_ and _FLAG, as in "DTO|CONNECTION".
func (s Stream) String() string { return bitString("Stream", "NONE", streamNames, uint64(s)) }

// MarshalText returns String, so that JSON shows the names.
func (s Stream) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// The indexes of a [MergeMatrix].
const (
	MergeSoftware          = iota // StreamSoftware
	MergeConnectionRequest        // StreamConnectionRequest
	MergeDTO                      // StreamDTO
	MergeConnection               // StreamConnection
	MergeRMRBind                  // StreamRMRBind
	MergeAsync                    // StreamAsync
	MergeCount                    // the number of indexes
)

// mergeStreams has the stream of each merge index.
var mergeStreams = [MergeCount]Stream{
	StreamSoftware, StreamConnectionRequest, StreamDTO, StreamConnection, StreamRMRBind, StreamAsync,
}

// MergeMatrix says which two streams may feed the same EVD (the provider attribute
// evd_stream_merging_supported). It is symmetric, and a stream always merges with itself.
type MergeMatrix [MergeCount][MergeCount]bool

// FullMergeMatrix returns the matrix of a provider that can merge every stream with
// every other.
func FullMergeMatrix() MergeMatrix {
	var m MergeMatrix
	for i := range m {
		for j := range m[i] {
			m[i][j] = true
		}
	}
	return m
}

// Allows reports whether an EVD may carry all of the streams: every two of them merge.
// A stream that has no merge index is not allowed.
func (m MergeMatrix) Allows(streams Stream) bool {
	for i, a := range mergeStreams {
		if streams&a == 0 {
			continue
		}
		streams &^= a
		for j, b := range mergeStreams[i+1:] {
			if streams&b != 0 && !m[i][i+1+j] {
				return false
			}
		}
	}
	return streams == 0
}

// Status is the outcome of a data transfer operation or RMR bind
// (DAT_DTO_COMPLETION_STATUS; a bind's DAT_RMR_BIND_COMPLETION_STATUS is the same set).
type Status uint8

// The outcomes.
const (
	// StatusSuccess: it worked.
	StatusSuccess Status = iota
	// StatusFlushed: the EP left CONNECTED before the operation was done.
	StatusFlushed
	// StatusLocalLength: the message did not fit the receive, or exceeds a limit.
	StatusLocalLength
	// StatusLocalEP: an inconsistency of the EP.
	StatusLocalEP
	// StatusLocalProtection: a local LMR, protection zone or privilege was wrong when
	// the operation ran.
	StatusLocalProtection
	// StatusBadResponse: the peer answered what was not asked.
	StatusBadResponse
	// StatusRemoteAccess: the peer refused context, bounds or privilege.
	StatusRemoteAccess
	// StatusRemoteResponder: the peer could not complete the operation.
	StatusRemoteResponder
	// StatusTransport: the transport gave up.
	StatusTransport
	// StatusReceiverNotReady: the peer had no receive posted for too long.
	StatusReceiverNotReady
	// StatusPartialPacket: only a part of the message arrived.
	StatusPartialPacket
	// StatusRMROperationFailed: a bind was refused when it ran.
	StatusRMROperationFailed
	// StatusLocalMMError: a fast registration or an invalidate failed (kDAPL).
	StatusLocalMMError
)

var statusNames = []string{
	"SUCCESS", "FLUSHED", "LOCAL_LENGTH", "LOCAL_EP", "LOCAL_PROTECTION", "BAD_RESPONSE",
	"REMOTE_ACCESS", "REMOTE_RESPONDER", "TRANSPORT", "RECEIVER_NOT_READY",
	"PARTIAL_PACKET", "RMR_OPERATION_FAILED", "LOCAL_MM_ERROR",
}

// String returns DAT's name without DAT_, DTO_ and ERR_.
func (s Status) String() string { return enumName("Status", statusNames, s) }

// MarshalText returns String, so that JSON shows the name.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Operation is the kind of a completed operation (DAT_DTOS, and DAT_IB_DTOS from 8 on).
type Operation uint8

// The operations.
const (
	// OpSend: a send, with or without invalidate.
	OpSend Operation = iota
	// OpRDMAWrite: an RDMA write.
	OpRDMAWrite
	// OpRDMARead: an RDMA read, into an LMR or an RMR.
	OpRDMARead
	// OpReceive: a receive.
	OpReceive
	// OpReceiveWithInvalidate: a receive whose message invalidated an RMR context.
	OpReceiveWithInvalidate
	// OpBindMW: an RMR bind.
	OpBindMW
	// OpLMRFMR: a fast registration (kDAPL).
	OpLMRFMR
	// OpLMRInvalidate: an invalidate of a fast registration (kDAPL).
	OpLMRInvalidate
	// OpRDMAWriteImmediate: an RDMA write with immediate data. It is the first
	// operation of the extensions' range.
	OpRDMAWriteImmediate
	// OpReceiveImmediate: a receive that an RDMA write with immediate data used up.
	OpReceiveImmediate
	// OpFetchAdd: an atomic fetch and add.
	OpFetchAdd
	// OpCompareSwap: an atomic compare and swap.
	OpCompareSwap
	// OpReceiveMessageImmediate: a receive of a send with immediate data.
	OpReceiveMessageImmediate
	// OpSendUD: a datagram send.
	OpSendUD
	// OpReceiveUD: a datagram receive.
	OpReceiveUD
	// OpReceiveUDImmediate: a datagram receive with immediate data.
	OpReceiveUDImmediate
	// OpCollective: a collective operation.
	OpCollective
)

var operationNames = []string{
	"SEND", "RDMA_WRITE", "RDMA_READ", "RECEIVE", "RECEIVE_WITH_INVALIDATE", "BIND_MW",
	"LMR_FMR", "LMR_INVALIDATE",
	"RDMA_WRITE_IMMED", "RECV_IMMED", "FETCH_ADD", "CMP_SWAP", "RECV_MSG_IMMED",
	"SEND_UD", "RECV_UD", "RECV_UD_IMMED", "COLLECTIVES",
}

// String returns DAT's name without DAT_DTO_ or DAT_IB_DTO_.
func (o Operation) String() string { return enumName("Operation", operationNames, o) }

// MarshalText returns String, so that JSON shows the name.
func (o Operation) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// AsyncReason says why an asynchronous event happened. DAT numbers the reasons of
// each kind of object from 0 on, in one enumeration per kind
// (DAT_IA_ASYNC_ERROR_REASON and so on); here the kind is part of the value, so that
// no two reasons are equal. [AsyncReason.DAT] is DAT's number. 0 is no reason.
type AsyncReason uint16

// reasonBase is the first reason of a kind of object.
const (
	reasonIA  = AsyncReason(HandleIA) << 8
	reasonEP  = AsyncReason(HandleEP) << 8
	reasonEVD = AsyncReason(HandleEVD) << 8
	reasonSRQ = AsyncReason(HandleSRQ) << 8
	reasonLMR = AsyncReason(HandleLMR) << 8
	reasonRMR = AsyncReason(HandleRMR) << 8
	reasonPZ  = AsyncReason(HandlePZ) << 8
)

// The reasons.
const (
	// ReasonIACatastrophic: the IA is unusable.
	ReasonIACatastrophic AsyncReason = reasonIA + 0
	// ReasonIAOther: another fault of the IA.
	ReasonIAOther AsyncReason = reasonIA + 1
	// ReasonEPTransferTo: a transfer to the EP failed.
	ReasonEPTransferTo AsyncReason = reasonEP + 0
	// ReasonEPOther: another fault of the EP.
	ReasonEPOther AsyncReason = reasonEP + 1
	// ReasonEPSoftHighWatermark: the EP holds more of its SRQ's buffers than its soft high
	// watermark (DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT). No fault.
	ReasonEPSoftHighWatermark AsyncReason = reasonEP + 2
	// ReasonEVDOverflow: the EVD had no room.
	ReasonEVDOverflow AsyncReason = reasonEVD + 0
	// ReasonEVDOther: another fault of the EVD.
	ReasonEVDOther AsyncReason = reasonEVD + 1
	// ReasonSRQTransferTo: a transfer to the SRQ failed.
	ReasonSRQTransferTo AsyncReason = reasonSRQ + 0
	// ReasonSRQOther: another fault of the SRQ.
	ReasonSRQOther AsyncReason = reasonSRQ + 1
	// ReasonSRQLowWatermark: the SRQ has fewer buffers than its low watermark. No fault.
	ReasonSRQLowWatermark AsyncReason = reasonSRQ + 2
	// ReasonLMROther: a fault of the LMR.
	ReasonLMROther AsyncReason = reasonLMR + 0
	// ReasonRMROther: a fault of the RMR.
	ReasonRMROther AsyncReason = reasonRMR + 0
	// ReasonPZOther: a fault of the protection zone.
	ReasonPZOther AsyncReason = reasonPZ + 0
)

// DAT returns DAT's number of the reason, which has a meaning only together with
// the kind of object.
func (r AsyncReason) DAT() int { return int(r & 0xFF) }

// Handle returns the kind of object that the reason is about.
func (r AsyncReason) Handle() HandleType { return HandleType(r >> 8) }

// String returns DAT's name without DAT_.
func (r AsyncReason) String() string {
	switch r {
	case ReasonIACatastrophic:
		return "IA_CATASTROPHIC_ERROR"
	case ReasonIAOther:
		return "IA_OTHER_ERROR"
	case ReasonEPTransferTo:
		return "EP_TRANSFER_TO_ERROR"
	case ReasonEPOther:
		return "EP_OTHER_ERROR"
	case ReasonEPSoftHighWatermark:
		return "SRQ_SOFT_HIGH_WATERMARK_EVENT"
	case ReasonEVDOverflow:
		return "EVD_OVERFLOW_ERROR"
	case ReasonEVDOther:
		return "EVD_OTHER_ERROR"
	case ReasonSRQTransferTo:
		return "SRQ_TRANSFER_TO_ERROR"
	case ReasonSRQOther:
		return "SRQ_OTHER_ERROR"
	case ReasonSRQLowWatermark:
		return "SRQ_LOW_WATERMARK_EVENT"
	case ReasonLMROther:
		return "LMR_OTHER_ERROR"
	case ReasonRMROther:
		return "RMR_OTHER_ERROR"
	case ReasonPZOther:
		return "PZ_OTHER_ERROR"
	}
	return unknownName("AsyncReason", uint64(r))
}

// MarshalText returns String, so that JSON shows the name.
func (r AsyncReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
