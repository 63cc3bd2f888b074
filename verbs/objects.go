package verbs

// Device is an adapter that can be opened.
type Device interface {
	// Name is the adapter's name, for messages.
	Name() string
	// Open makes an independent instance. It may fail with ErrNoDevice when the
	// adapter is gone, ErrLimit when it is opened too often.
	Open(OpenConfig) (Context, error)
}

// OpenConfig is what a consumer gives to an instance.
type OpenConfig struct {
	// Async receives the events that belong to no connection; nil drops them.
	Async func(AsyncEvent)
}

// Context is an open device (IBTA Open HCA). All methods may be called
// concurrently; after Close they return ErrClosed.
type Context interface {
	// Attr describes the instance. The result does not change.
	Attr() *Attr
	// AllocPD makes a protection domain. ErrLimit.
	AllocPD() (PD, error)
	// CreateCQ makes a completion queue with room for at least cqe entries. notify is
	// called once for each arming that fires; see the package comment for what it may do.
	CreateCQ(cqe int, notify func()) (CQ, error)
	// Listen takes connection requests at an address and port until the listener is
	// closed. ErrAddrInUse, ErrAddr (not an address or port of this device).
	Listen(ListenConfig) (Listener, error)
	// Close destroys every object that is left, as if each were destroyed by its own
	// call, and ends their connections abruptly.
	Close() error
}

// PD is a protection domain: QPs, regions and windows work together only within one.
type PD interface {
	// RegMR registers buf. Its first byte has the address iova, or 0 with
	// AccessZeroBased. The region keeps buf alive. ErrLimit, ErrInvalid (empty, or
	// iova+len wraps), ErrNotSupported.
	RegMR(buf []byte, iova uint64, access Access) (MR, error)
	// AllocFastMR makes a region with room for maxPages ranges, invalid until an
	// OpRegMR runs.
	AllocFastMR(maxPages int) (MR, error)
	// AllocMW makes an unbound memory window.
	AllocMW(MWType) (MW, error)
	// CreateSRQ makes a shared receive queue.
	CreateSRQ(SRQInit) (SRQ, error)
	// CreateQP makes a queue pair in QPReset.
	CreateQP(QPInit) (QP, error)
	// CreateAH makes an address handle for UD sends.
	CreateAH(Address) (AH, error)
	// Dealloc frees the PD; ErrBusy while an object uses it.
	Dealloc() error
}

// MR is a memory region.
type MR interface {
	// LKey is the key for local segments.
	LKey() uint32
	// RKey is the key that a peer uses; 0 if no remote right was asked for.
	RKey() uint32
	// Map prepares a fast-registration region: the ranges, each but the last a
	// multiple of the page size long, form one range from iova (or 0 with
	// AccessZeroBased). It returns the key that the OpRegMR request names, which is at
	// once the next LKey and RKey. ErrBusy while the region is valid or an
	// OpRegMR is outstanding; ErrInvalid for ranges that break the rule or exceed maxPages;
	// ErrNotSupported for a region made by RegMR.
	Map(ranges [][]byte, iova uint64) (key uint32, err error)
	// Dereg makes the keys invalid, waits for copies in progress (never for the network)
	// and releases the memory. ErrBusy while a window is bound to it.
	Dereg() error
}

// MWType tells the two kinds of memory windows apart.
type MWType uint8

const (
	// MWType1 windows are bound by any QP of the PD, again and again, and are never
	// invalidated by a peer.
	MWType1 MWType = 1
	// MWType2 windows belong to the QP that binds them; they must be invalidated before
	// they are bound again, and a peer's send may invalidate them.
	MWType2 MWType = 2
)

// MW is a memory window.
type MW interface {
	// Type is the kind.
	Type() MWType
	// NextKey draws the key under which the next OpBindMW makes the window known. A key
	// that is drawn and never bound costs nothing.
	NextKey() (uint32, error)
	// RKey is the key of the last bind that ran; 0 if unbound.
	RKey() uint32
	// Dealloc unbinds and frees the window.
	Dealloc() error
}

// AH is an address handle.
type AH interface {
	// Handle is the value for SendWR.AH.
	Handle() uint32
	Destroy() error
}

// ArmKind says which completions an arming waits for.
type ArmKind uint8

const (
	// ArmNext: any completion.
	ArmNext ArmKind = iota
	// ArmSolicited: a solicited receive, a failed completion or a drained mark. A device
	// without CapSolicited treats it as ArmNext.
	ArmSolicited
)

// CQ is a completion queue. Methods may be called concurrently.
type CQ interface {
	// Poll moves up to len(dst) completions, oldest first, and returns their number. It
	// neither blocks nor calls back.
	Poll(dst []Completion) int
	// Arm asks for one call of notify, never made before Arm returns. It returns true,
	// and need not notify, if completions of the kind are there already: the caller polls and arms again. An
	// arming of ArmNext is not narrowed by a later ArmSolicited.
	Arm(kind ArmKind) (ready bool)
	// Cap is the number of completions that fit.
	Cap() int
	// Resize changes the room to at least cqe; ErrBusy if more are queued. Nothing is lost.
	Resize(cqe int) error
	// Destroy frees the CQ; ErrBusy while a QP uses it.
	Destroy() error
}

// SinglePoller is what the CQs of a device also do that can be polled without a lock of their own.
type SinglePoller interface {
	// PollAlone is Poll for a consumer that never makes two calls of PollAlone or Poll at a time. Calls
	// of the other methods may be concurrent with it.
	PollAlone(dst []Completion) int
}

// Progresser is what the CQs of a device do whose consumers can help it along: read from
// and write to the connections that feed the CQ.
type Progresser interface {
	// Progress makes one bounded, non-blocking round and reports whether anything
	// moved. It may call back, so no lock that a callback takes may be held; concurrent
	// calls are allowed, and one that finds another at work returns false at once.
	Progress() bool
}

// Peeker is what the CQs of a device with CapPeek also do.
type Peeker interface {
	// Peek counts the queued completions, up to max.
	Peek(max int) int
}

// SRQInit describes an SRQ.
type SRQInit struct {
	// MaxWR is the depth, MaxSGE the segments per receive.
	MaxWR, MaxSGE int
	// UserData comes back in AsyncEvent.
	UserData uint64
}

// SRQ is a shared receive queue.
type SRQ interface {
	// PostRecv appends receives; it returns how many were taken and why not more
	// (ErrQueueFull, ErrInvalid, ErrProtection, ErrAccess, ErrBounds). Completions go to
	// the receive CQ of the QP that uses the receive.
	PostRecv(wrs []RecvWR) (n int, err error)
	// SetLimit arms one AsyncSRQLimit event for when fewer than limit receives are
	// available; at once if that is so already. 0 disarms.
	SetLimit(limit int) error
	// Resize changes the depth. ErrBusy below the number that is posted or in use.
	Resize(maxWR int) error
	// Available counts the receives that no QP has taken.
	Available() int
	// Destroy frees the SRQ; receives that were not taken are the caller's again without
	// a completion. ErrBusy while a QP uses it.
	Destroy() error
}

// QPType is a transport service.
type QPType uint8

const (
	// RC is a reliable connection.
	RC QPType = iota
	// UD is an unreliable datagram.
	UD
)

// QPState is the state of a QP (IBTA).
type QPState uint8

const (
	// QPReset: just made or reset; nothing may be posted.
	QPReset QPState = iota
	// QPInitialized (IBTA Init): receives may be posted and wait.
	QPInitialized
	// QPRTR: ready to receive; an RC QP that accepted or connects.
	QPRTR
	// QPRTS: ready to send.
	QPRTS
	// QPSQD: send queue draining; a graceful disconnect is under way.
	QPSQD
	// QPError: everything posted is flushed, and is at once when it is posted now.
	QPError
)

// QPInit describes a QP.
type QPInit struct {
	Type           QPType
	SendCQ, RecvCQ CQ
	// SRQ, if not nil, supplies the receives; then MaxRecv and MaxRecvSGE are ignored.
	SRQ SRQ
	// MaxSend and MaxRecv are the depths of the queues (0 means none can be posted),
	// MaxSendSGE and MaxRecvSGE the segments per request.
	MaxSend, MaxRecv, MaxSendSGE, MaxRecvSGE int
	// MaxInline is the room for SendInline payloads.
	MaxInline int
	// UserData comes back in OpDrained completions and AsyncEvents.
	UserData uint64
	// Conn receives the connection's events, those of a UD QP's questions included.
	Conn func(ConnEvent)
	// QKey is the key that UD senders must name.
	QKey uint32
}

// QP is a queue pair. Methods may be called concurrently.
type QP interface {
	// Num is the QP number.
	Num() uint32
	// State is a snapshot.
	State() QPState
	// PostSend appends requests to the send queue with one doorbell. It returns how many
	// were taken, in order, and why the next was not: ErrQueueFull, ErrState (not
	// RTS; or SQD), ErrInvalid, ErrNotSupported and, with CapPostChecks, ErrProtection,
	// ErrAccess, ErrBounds. In QPError requests are taken and complete flushed.
	PostSend(wrs []SendWR) (n int, err error)
	// PostRecv appends receives, in any state but QPReset; ErrState also for a QP with an SRQ.
	PostRecv(wrs []RecvWR) (n int, err error)
	// Modify moves to QPInitialized (from QPReset), QPRTS (UD, from QPInitialized), QPError (from
	// any but QPReset) or QPReset (from any). A move to QPError or QPReset ends a connection
	// abruptly; both flush, and QPReset returns when all marks are delivered. ErrState.
	Modify(QPState) error
	// Connect starts an active connection of a QP in QPInitialized; the outcome is a ConnEvent.
	//
	// A UD QP in QPRTS asks the peer for the number and key of the QP behind the port instead (IBTA service ID
	// resolution), as often as it likes and several at a time. Its state stays; the outcome of each
	// question is one event of a set-up, and nothing ends later. A question that is under way when the QP leaves
	// QPRTS ends with ConnAborted. Depths in the parameters mean nothing.
	Connect(ConnParams) error
	// Disconnect ends the connection, or its set-up. Gracefully, the requests that are
	// posted run first and new ones are refused; otherwise all is flushed. The end
	// is a ConnEvent. ErrState if there is neither, as for UD QPs always.
	Disconnect(graceful bool) error
	// Destroy ends the connection abruptly, flushes, delivers the drained marks, and frees the
	// QP. Later calls return ErrClosed.
	Destroy() error
}

// Serial is what the QPs of a device also do that lend the locks of their queues to the consumer, for what it keeps of
// its own about each post: one lock then does for both. Between lock and unlock is a short section that
// calls nothing of this contract but the Locked posts, and takes no lock that is held during other
// calls of it. The two queues may share a lock, also with queues of the peer, so that nobody holds two at a time.
type Serial interface {
	// LockSendQueue keeps other posts to the send queue out.
	LockSendQueue()
	// PostSendLocked is PostSend for the holder. It does not call back; UnlockSendQueue does.
	PostSendLocked(wrs []SendWR) (n int, err error)
	UnlockSendQueue()
	// LockRecvQueue, PostRecvLocked and UnlockRecvQueue are the same for receives.
	LockRecvQueue()
	PostRecvLocked(wrs []RecvWR) (n int, err error)
	UnlockRecvQueue()
}
