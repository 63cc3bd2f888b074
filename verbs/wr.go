package verbs

// Access is a set of rights to a memory region or window.
type Access uint8

// The rights. Local read comes with a region unless AccessNoLocalRead withholds it.
const (
	AccessLocalWrite Access = 1 << iota
	AccessRemoteRead
	AccessRemoteWrite
	AccessRemoteAtomic
	// AccessMWBind lets windows be bound to the region.
	AccessMWBind
	// AccessZeroBased: addresses are offsets from the start of the region or window.
	AccessZeroBased
	// AccessNoLocalRead: the region cannot be the source of sends and writes. A device that
	// cannot withhold that ignores it.
	AccessNoLocalRead
)

// SGE is one segment of local memory: Length bytes from Addr in the region with the
// given local key. A segment of length 0 has its other fields ignored.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// Opcode is the operation of a send-side work request or, with the further
// values, of a completion.
type Opcode uint8

// The operations.
const (
	OpSend Opcode = iota
	OpSendImm
	OpSendInval
	OpRDMAWrite
	OpRDMAWriteImm
	OpRDMARead
	// OpRDMAReadInval reads and, when the data has arrived, invalidates InvKey, the
	// local key of the sink.
	OpRDMAReadInval
	OpFetchAdd
	OpCompareSwap
	// OpBindMW binds a window: SGE[0] is the range, in the region with that LKey;
	// Key the new key from MW.NextKey; Access its rights. A length of 0 unbinds a
	// type 1 window and is refused for type 2.
	OpBindMW
	// OpRegMR makes a fast-registration region valid under Key (from MR.Map) with Access.
	OpRegMR
	// OpLocalInval makes InvKey (a fast-registered region or type 2 window) invalid.
	OpLocalInval

	// OpRecv is a completed receive of a send.
	OpRecv
	// OpRecvRDMAImm is a receive used up by an RDMA write with immediate data; its
	// length is that of the write.
	OpRecvRDMAImm
	// OpDrained is the mark behind the last completion of a send or receive queue
	// (see CompletionRecvQueue). It is no work request's.
	OpDrained
)

// SendFlags qualify a send-side work request.
type SendFlags uint8

const (
	// SendSignaled asks for a completion on success too.
	SendSignaled SendFlags = 1 << iota
	// SendSolicited marks the peer's receive completion as solicited.
	SendSolicited
	// SendFence starts the request only when earlier RDMA reads and atomics are done.
	SendFence
	// SendInvalFence starts the request only when earlier local invalidates are done.
	SendInvalFence
	// SendInline copies the payload before the post returns; the source need not be
	// writable and may be reused at once. At most Attr.MaxInline bytes.
	SendInline
)

// SendWR is a work request for a QP's send queue. Fields that the operation does not
// name are ignored. It is a value; the device keeps no reference to it.
type SendWR struct {
	// ID comes back in the completion.
	ID uint64
	// Op is the operation, Flags its qualifiers.
	Op    Opcode
	Flags SendFlags
	// Access is the rights of OpBindMW and OpRegMR.
	Access Access
	// NumSGE counts the used segments of SGE.
	NumSGE uint8
	// Imm is the immediate data of OpSendImm and OpRDMAWriteImm.
	Imm uint32
	// InvKey is the peer's key of OpSendInval, or the own key of OpRDMAReadInval,
	// OpLocalInval.
	InvKey uint32
	// Key is the new key of OpBindMW and OpRegMR.
	Key uint32
	// RemoteKey and RemoteAddr name the peer's memory for RDMA and atomics.
	RemoteKey  uint32
	AH         uint32 // address handle, UD only
	RemoteAddr uint64
	// Swap is the value that OpCompareSwap stores or OpFetchAdd adds; Compare what
	// OpCompareSwap compares with.
	Swap, Compare uint64
	// RemoteQPN and QKey address a UD send.
	RemoteQPN, QKey uint32
	// SGE are the local segments, in order; only the first NumSGE are used.
	SGE [MaxSGE]SGE
}

// RecvWR is a work request for a receive queue or an SRQ.
type RecvWR struct {
	// ID comes back in the completion.
	ID uint64
	// NumSGE counts the used segments of SGE.
	NumSGE uint8
	// SGE are the segments that the message fills, in order.
	SGE [MaxSGE]SGE
}

// Status is the outcome of a work request (IBTA completion status).
type Status uint8

// The outcomes.
const (
	StatusSuccess Status = iota
	// StatusFlushed: the QP left RTS before the request ran.
	StatusFlushed
	// StatusLocalLength: the message did not fit the receive, or exceeds a limit.
	StatusLocalLength
	// StatusLocalQPOp: an inconsistency of the QP.
	StatusLocalQPOp
	// StatusLocalProtection: a local key, right or bound was wrong at execution.
	StatusLocalProtection
	// StatusMWBind: a bind was refused at execution.
	StatusMWBind
	// StatusBadResponse: the peer answered what was not asked.
	StatusBadResponse
	// StatusRemoteInvalidRequest: the peer found the request unusable.
	StatusRemoteInvalidRequest
	// StatusRemoteAccess: the peer refused key, bounds or rights.
	StatusRemoteAccess
	// StatusRemoteOp: the peer could not complete the request through its own fault.
	StatusRemoteOp
	// StatusRetryExceeded: the transport gave up.
	StatusRetryExceeded
	// StatusRNRRetryExceeded: the peer had no receive posted for too long.
	StatusRNRRetryExceeded
	// StatusMemoryManagement: a fast registration or local invalidate failed.
	StatusMemoryManagement
	// StatusFatal: the device or CQ failed.
	StatusFatal
)

// CompletionFlags qualify a completion.
type CompletionFlags uint8

const (
	// CompletionSolicited: a receive of a message sent with SendSolicited.
	CompletionSolicited CompletionFlags = 1 << iota
	// CompletionImm: Imm is valid.
	CompletionImm
	// CompletionInval: InvKey was invalidated by the peer's message.
	CompletionInval
	// CompletionRecvQueue: the completion belongs to the receive side.
	CompletionRecvQueue
	// CompletionGRH: the first 40 bytes of a UD receive are the global route header.
	CompletionGRH
)

// Completion is one entry of a CQ. Length, Imm and InvKey are meaningful only on
// success.
type Completion struct {
	// ID is that of the work request; 0 for OpDrained.
	ID uint64
	// UserData is the QP's (QPInit.UserData).
	UserData uint64
	// Length counts the bytes transferred.
	Length uint32
	// QPN is the number of the QP.
	QPN    uint32
	Imm    uint32
	InvKey uint32
	// SrcQPN is the sender's QP number of a UD receive.
	SrcQPN uint32
	Op     Opcode
	Status Status
	Flags  CompletionFlags
}
