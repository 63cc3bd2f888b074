package verbs

import (
	"fmt"
	"net/netip"
	"time"
)

// Address is where a connection ends: an adapter's address and a port, which is a
// TCP or UDP port, an InfiniBand service ID or, in DAT, a connection qualifier.
type Address struct {
	IP   netip.Addr
	Port uint64
}

func (a Address) String() string { return fmt.Sprintf("%v port %d", a.IP, a.Port) }

// ConnParams are the arguments of Connect and Accept.
type ConnParams struct {
	// Remote is where to connect to; unused by Accept.
	Remote Address
	// PrivateData goes to the peer with the request or the reply. At most
	// Attr.MaxPrivateData bytes; copied.
	PrivateData []byte
	// ReadsIn and ReadsOut are the wished depths of inbound and outbound RDMA reads and
	// atomics (IRD, ORD). What was agreed is in the ConnEstablished event: each side's ReadsOut
	// never exceeds its peer's ReadsIn.
	ReadsIn, ReadsOut int
	// Timeout bounds the set-up; 0 is no limit.
	Timeout time.Duration
}

// ConnEventKind is what happened to a connection.
type ConnEventKind uint8

// The events. A set-up ends in exactly one of the first seven for each side.
const (
	// ConnEstablished: both sides agreed. It precedes or follows early completions of the QP.
	ConnEstablished ConnEventKind = iota
	// ConnRejected: the peer's consumer declined; PrivateData may hold its reason.
	ConnRejected
	// ConnRefused: nobody listens, no room, or the transports do not fit together.
	ConnRefused
	// ConnUnreachable: no route or no such host.
	ConnUnreachable
	// ConnTimedOut: Timeout passed.
	ConnTimedOut
	// ConnAcceptFailed: the passive side's set-up failed after Accept.
	ConnAcceptFailed
	// ConnAborted: the set-up was ended by Disconnect, Modify or Destroy on this side.
	ConnAborted
	// ConnDisconnected: the connection ended as one of the consumers wished.
	ConnDisconnected
	// ConnBroken: the connection ended by a fault; Err says which.
	ConnBroken
)

// ConnEvent is an event of a QP's connection, delivered by QPInit.Conn.
type ConnEvent struct {
	Kind ConnEventKind
	// PrivateData is the peer's, valid during the callback only.
	PrivateData []byte
	// ReadsIn and ReadsOut are the agreed depths, with ConnEstablished.
	ReadsIn, ReadsOut int
	// Local and Remote are the two ends, as far as they are known.
	Local, Remote Address
	// RemoteQPN and RemoteQKey are where a UD peer takes datagrams, with ConnEstablished of a UD QP.
	RemoteQPN, RemoteQKey uint32
	// Err is the cause of a failure, for people.
	Err error
}

// ListenConfig describes a listener.
type ListenConfig struct {
	// Local is the address and port; the zero IP means the device's own, port 0 a
	// free one.
	Local Address
	// Backlog limits requests that wait for their answer; 0 is the device's default.
	Backlog int
	// Request is called for each request. The request stays open until it is answered;
	// the callback may answer at once or later.
	Request func(ConnRequest)
}

// Listener accepts connection requests.
type Listener interface {
	// Addr is the real address and port.
	Addr() Address
	// Close stops new requests. Requests that were delivered stay valid.
	Close() error
}

// ConnRequest is a peer's wish to connect. Exactly one of Accept, Reject and Refuse
// takes effect; each returns ErrState afterwards, and ErrPeerGone if the peer gave up
// before (Accept then delivers no event).
type ConnRequest interface {
	// PrivateData is the peer's, valid until the request is answered.
	PrivateData() []byte
	// Local and Remote are the two ends.
	Local() Address
	Remote() Address
	// ReadsIn and ReadsOut are the depths the peer wishes, as seen by this side:
	// its outbound reads are our ReadsIn.
	ReadsIn() int
	ReadsOut() int
	// RemoteQP tells the question of a UD QP (see QP.Connect) from the request of an RC QP: ud, and then
	// the number and key of the QP that asks.
	RemoteQP() (qpn, qkey uint32, ud bool)
	// Accept connects a QP in QPInitialized of the same Context. The outcome is a ConnEvent of
	// that QP: ConnEstablished or ConnAcceptFailed. A UD QP's question is accepted with a UD QP in
	// QPRTS, which may be named in any number of accepts; each of the two QPs gets a ConnEstablished event
	// with the other's number and key. A QP of the other type is ErrInvalid or ErrState.
	Accept(qp QP, p ConnParams) error
	// Reject declines for the consumer, with private data.
	Reject(privateData []byte) error
	// Refuse declines for the provider: the peer sees ConnRefused.
	Refuse() error
}

// AsyncEventKind is what happened outside of connections.
type AsyncEventKind uint8

// The asynchronous events.
const (
	// AsyncCQError: a CQ overflowed or failed; its QPs are in error.
	AsyncCQError AsyncEventKind = iota
	// AsyncQPFatal: a QP failed without a connection event.
	AsyncQPFatal
	// AsyncLastWQE: a QP with an SRQ has delivered the last completion of its receives.
	AsyncLastWQE
	// AsyncSRQLimit: fewer receives than the armed limit are available.
	AsyncSRQLimit
	// AsyncSRQError: an SRQ failed; its QPs are in error.
	AsyncSRQError
	// AsyncDeviceFatal: the device is gone. Every QP is in error; Close still works.
	AsyncDeviceFatal
)

// AsyncEvent is an event outside of connections, delivered by OpenConfig.Async.
type AsyncEvent struct {
	Kind AsyncEventKind
	// CQ is the queue of AsyncCQError.
	CQ CQ
	// UserData is the QP's or SRQ's.
	UserData uint64
	// Err is the cause, for people.
	Err error
}
