package dat

import (
	"fmt"

	"kdapl/internal/evring"
)

// Event is an event that was taken from an EVD (DAT_EVENT). It is a value; what its views
// return stays valid as their documents say. Number tells which view has the data:
//
//	DTOCompletion, IBDTOEvent        ev.DTO()
//	RMRBindCompletion                ev.RMRBind()
//	ConnectionRequest, …             ev.Request()
//	ConnectionEstablished …          ev.Connection()
//	IBUDConnectionEstablished …      ev.UD()
//	AsyncErrorEVDOverflow …          ev.Async()
//	SoftwareEvent                    ev.Software()
//
// A view of another kind returns zero values. The event of an upcall under UpcallNotify is
// the zero Event.
type Event struct {
	// Number is the event's number (event_number).
	Number EventNumber
	op     Operation
	status Status
	flags  uint16
	ref    ref
	cookie uint64
	length uint32
	key    uint32
	extra  uint64
	evd    *EVD
	obj    Object
}

// Event flags.
const (
	evTruncated uint16 = 1 << iota // the private data of a request was cut
	evKeyValid                     // key is an invalidated context or immediate data
)

// evGuestShift is where extra has, behind the reason of an asynchronous event, the number of the IA that
// it comes from if that is not the EVD's own.
const evGuestShift = 16

// store puts the event into a ring slot. Slot words: number, op, status and flags; ref;
// cookie; length and key; extra.
func (ev *Event) store(p *evring.Payload) {
	evring.Store(p, uint64(ev.Number)|uint64(ev.op)<<32|uint64(ev.status)<<40|uint64(ev.flags)<<48,
		uint64(ev.ref), ev.cookie, uint64(ev.length)|uint64(ev.key)<<32, ev.extra)
}

// fetch takes the event from a slot of the EVD's ring, object and all.
func (ev *Event) fetch(e *EVD, p *evring.Payload) {
	w0, w1, w2, w3, w4 := evring.Load(p)
	ev.fill(e, w0, w1, w2, w3, w4)
	if ev.named() {
		ev.resolve(e)
	}
}

// fill takes the event from the words of a slot, but for the object.
func (ev *Event) fill(e *EVD, w0, w1, w2, w3, w4 uint64) {
	ev.Number, ev.op, ev.status, ev.flags = EventNumber(w0), Operation(w0>>32), Status(w0>>40), uint16(w0>>48)
	ev.ref, ev.cookie, ev.length, ev.key, ev.extra = ref(w1), w2, uint32(w3), uint32(w3>>32), w4
	ev.evd, ev.obj = e, nil
}

// named reports whether the event has an object to be found with resolve.
func (ev *Event) named() bool { return ev.ref != 0 || ev.extra>>evGuestShift != 0 }

// resolve finds the object that the event names.
func (ev *Event) resolve(e *EVD) {
	ia := e.ia
	if n := ev.extra >> evGuestShift; n != 0 {
		ia = (*e.guests.Load())[n-1]
		ev.obj = ia // if it is about nothing else
	}
	if ev.ref != 0 {
		ev.obj = nil
		if b := ia.objects.lookup(ev.ref); b != nil {
			ev.obj = b.self
		}
	}
}

// EVD is the event dispatcher that the event came from (evd_handle).
func (ev *Event) EVD() *EVD { return ev.evd }

// Stream is the stream that the event belongs to.
func (ev *Event) Stream() Stream { return ev.Number.Stream() }

// String describes the event on one line.
func (ev Event) String() string {
	switch ev.Number {
	case 0:
		return "no event"
	case DTOCompletion, IBDTOEvent:
		d := ev.DTO()
		return fmt.Sprintf("%v: %v %v %v, %d bytes, cookie %#x", ev.Number, d.EP, d.Operation, d.Status, d.Length, d.Cookie)
	case SoftwareEvent:
		return fmt.Sprintf("%v: %#x", ev.Number, ev.cookie)
	}
	if ev.obj == nil {
		return ev.Number.String()
	}
	return fmt.Sprintf("%v: %v", ev.Number, ev.obj)
}

// DTO is the data of a completed data transfer operation
// (DAT_DTO_COMPLETION_EVENT_DATA). Length, RMRContext and Immediate mean something only
// if Status is StatusSuccess.
type DTO struct {
	// EP is the end point; it may have been freed since.
	EP *EP
	// Cookie is the one of the post.
	Cookie uint64
	// Status is the outcome.
	Status Status
	// Operation is what was posted or, for receives, what arrived.
	Operation Operation
	// Length is the number of bytes transferred (transfered_length).
	Length uint32
	// RMRContext is what the peer's send invalidated, with OpReceiveWithInvalidate.
	RMRContext uint32
	// Immediate is the immediate data of OpReceiveImmediate, OpReceiveMessageImmediate and
	// OpReceiveUDImmediate.
	Immediate uint32
	// SourceQPN is the number of the sender's queue pair, with OpReceiveUD and OpReceiveUDImmediate. The
	// payload is behind 40 bytes, which count in Length: the global route header with the sender's address.
	SourceQPN uint32
}

// DTO is the view of a completed data transfer operation.
func (ev *Event) DTO() (d DTO) {
	if ev.Number != DTOCompletion && ev.Number != IBDTOEvent {
		return d
	}
	// Field by field into the result: made elsewhere it would be copied in pieces wider than what was just written, and the
	// processor does not forward such from the stores that are under way, but waits for them.
	d.EP, _ = ev.obj.(*EP)
	d.Cookie, d.Status, d.Operation, d.Length, d.SourceQPN = ev.cookie, ev.status, ev.op, ev.length, uint32(ev.extra)
	switch {
	case ev.flags&evKeyValid == 0:
	case ev.op == OpReceiveWithInvalidate:
		d.RMRContext = ev.key
	default:
		d.Immediate = ev.key
	}
	return d
}

// ConnectionData is the data of a connection event (DAT_CONNECTION_EVENT_DATA).
type ConnectionData struct {
	// EP is the end point; it may have been freed since.
	EP *EP
	// PrivateData is the peer's: of its accept on the active side of ConnectionEstablished, of its
	// reject with ConnectionPeerRejected. It is valid until the EP is freed or
	// back in StateUnconnected, and must not be changed.
	PrivateData []byte
	// Cause is what ended the connection or its set-up, for people; nil with
	// ConnectionEstablished and after a wished end. It is as long valid as PrivateData.
	Cause error
}

// Connection is the view of a connection event.
func (ev *Event) Connection() ConnectionData {
	ep, _ := ev.obj.(*EP)
	if ep == nil || ev.Stream() != StreamConnection {
		return ConnectionData{}
	}
	private, cause := ep.connectionData(ev.Number, uint32(ev.cookie))
	return ConnectionData{EP: ep, PrivateData: private, Cause: cause}
}

// RequestData is the data of an arrived connection request (DAT_CR_ARRIVAL_EVENT_DATA).
type RequestData struct {
	// CR is the request, to be accepted or rejected.
	CR *CR
	// ServicePoint is where it arrived: a *PSP or *CSP; nil for an RSP's, which is gone.
	ServicePoint Object
	// ConnQual is the connection qualifier that the peer named.
	ConnQual uint64
	// Truncated: the private data was longer than the IA can keep.
	Truncated bool
}

// Request is the view of a connection request.
func (ev *Event) Request() RequestData {
	cr, _ := ev.obj.(*CR)
	if cr == nil || ev.Stream() != StreamConnectionRequest {
		return RequestData{}
	}
	return RequestData{CR: cr, ServicePoint: cr.sp, ConnQual: cr.connQual, Truncated: ev.flags&evTruncated != 0}
}

// AsyncData is the data of an asynchronous event (DAT_ASYNCH_ERROR_EVENT_DATA).
type AsyncData struct {
	// Object is what the event is about: *IA, *EP, *EVD …; nil if it is gone.
	Object Object
	// Reason is the finer cause.
	Reason AsyncReason
}

// Async is the view of an asynchronous event.
func (ev *Event) Async() AsyncData {
	if ev.Stream() != StreamAsync {
		return AsyncData{}
	}
	obj := ev.obj
	if obj == nil && ev.ref == 0 && ev.evd != nil {
		obj = ev.evd.ia
	}
	return AsyncData{Object: obj, Reason: AsyncReason(ev.extra)}
}

// Software is the view of a software event: the value that was given to PostSE.
func (ev *Event) Software() uint64 {
	if ev.Number != SoftwareEvent {
		return 0
	}
	return ev.cookie
}
