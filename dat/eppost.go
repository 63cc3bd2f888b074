package dat

import (
	"errors"
	"fmt"
	"math"

	"kdapl/verbs"
)

// ErrPostFull is returned by posts when as many operations are outstanding as the EP allows
// (INSUFFICIENT_RESOURCES, RESOURCE_TEP). Nothing was posted. An operation is outstanding
// until its event is taken from the EVD. Dequeue and post again, or create the EP with a larger
// MaxRequestDTOs or MaxRecvDTOs.
var ErrPostFull error = &Error{Type: InsufficientResources, Sub: ResourceTEP, Op: "ep_post",
	Hint: "as many operations are outstanding as the EP allows; take events first"}

// Request is an element of a list for EP.Post. The functions PostSend, PostRDMAWrite and so on say
// what the fields mean for each operation.
type Request struct {
	// Op is OpSend, OpRDMAWrite, OpRDMARead, OpRDMAWriteImmediate, OpFetchAdd, OpCompareSwap or
	// OpSendUD.
	Op Operation
	// Invalidate makes a send invalidate RMRContext at the peer.
	Invalidate bool
	// Flags are the completion flags.
	Flags CompletionFlags
	// Cookie comes back in the event.
	Cookie uint64
	// Remote is the peer's memory, for RDMA and atomics.
	Remote RMRTriplet
	// RMRContext is what Invalidate invalidates.
	RMRContext uint32
	// Immediate is the immediate data of OpRDMAWriteImmediate.
	Immediate uint32
	// Operand is what OpFetchAdd adds, or OpCompareSwap stores if the peer's memory has the value
	// Compare.
	Operand, Compare uint64
	// To is where OpSendUD goes.
	To *AddressHandle
	// Local are the own segments, in order. The slice stays the consumer's.
	Local []LMRTriplet
}

// Receive is an element of a list for EP.PostRecvs.
type Receive struct {
	// Flags are the completion flags.
	Flags CompletionFlags
	// Cookie comes back in the event.
	Cookie uint64
	// Local are the segments, in order. The slice stays the consumer's.
	Local []LMRTriplet
}

const (
	requestFlags = CompletionSuppress | CompletionSolicitedWait | CompletionUnsignalled | CompletionBarrierFence | CompletionLMRInvalidateFence
	recvFlags    = CompletionUnsignalled
	postBatch    = 32
)

// PostSend posts a send (dat_ep_post_send): the segments, up to MaxRequestIOV of them, go
// as one message of up to MaxMessageSize bytes to the receive that the peer posted
// next. No segments make an empty message. The memory is the provider's until the event is taken
// or, with CompletionSuppress, until a later request completes.
//
// It does not block and allocates nothing. In StateDisconnected the request is accepted and
// completes with StatusFlushed.
//
// ErrPostFull. INVALID_STATE with the EP's state: not connected. INVALID_PARAMETER: too many
// segments (ARG2), flags that the EP does not allow (ARG5). LENGTH_ERROR: the message is too
// long. PROTECTION_VIOLATION: a segment's context is unknown, of another PZ, or the segment is
// outside of its region. PRIVILEGES_VIOLATION: the region lacks local read. An adapter may tell
// the last two with the completion. INVALID_HANDLE: the EP was freed. Nothing is posted then.
func (ep *EP) PostSend(cookie uint64, flags CompletionFlags, local ...LMRTriplet) error {
	if flags == 0 && len(local) == 1 {
		if done, err := ep.postPlain(OpSend, verbs.OpSend, cookie, RMRTriplet{}, &local[0]); done {
			return err
		}
	}
	r := Request{Op: OpSend, Cookie: cookie, Flags: flags}
	return ep.postOne("ep_post_send", &r, local)
}

// PostRDMAWrite posts an RDMA write (dat_ep_post_rdma_write): the segments, up to MaxRDMAWriteIOV of
// them and MaxRDMASize bytes, are written to the peer's memory from remote's address on. The peer
// is not told. LENGTH_ERROR: they are longer than remote. For the rest see PostSend.
func (ep *EP) PostRDMAWrite(cookie uint64, flags CompletionFlags, remote RMRTriplet, local ...LMRTriplet) error {
	if flags == 0 && len(local) == 1 {
		if done, err := ep.postPlain(OpRDMAWrite, verbs.OpRDMAWrite, cookie, remote, &local[0]); done {
			return err
		}
	}
	r := Request{Op: OpRDMAWrite, Cookie: cookie, Flags: flags, Remote: remote}
	return ep.postOne("ep_post_rdma_write", &r, local)
}

// PostRDMARead posts an RDMA read (dat_ep_post_rdma_read): all of remote is read into the
// segments, up to MaxRDMAReadIOV of them, in order; the last may stay partly unused.
// LENGTH_ERROR: they are shorter than remote. PRIVILEGES_VIOLATION: a region lacks local write. Reads
// beyond MaxRDMAReadOut wait in the queue. For the rest see PostSend.
func (ep *EP) PostRDMARead(cookie uint64, flags CompletionFlags, remote RMRTriplet, local ...LMRTriplet) error {
	if flags == 0 && len(local) == 1 && local[0].SegmentLength == remote.SegmentLength {
		if done, err := ep.postPlain(OpRDMARead, verbs.OpRDMARead, cookie, remote, &local[0]); done {
			return err
		}
	}
	r := Request{Op: OpRDMARead, Cookie: cookie, Flags: flags, Remote: remote}
	return ep.postOne("ep_post_rdma_read", &r, local)
}

// Post posts requests with one doorbell, in order, and returns how many were accepted and why the
// next was not. It is the fast way to post many, and otherwise the same as posting them one by
// one. It does not block and allocates nothing after its first use.
func (ep *EP) Post(requests []Request) (n int, err error) {
	const op = "ep_post"
	if err := ep.checkPost(op, StateConnected); err != nil {
		return 0, err
	}
	q := &ep.request
	q.lock()
	defer q.unlock()
	if ep.qp == nil {
		return 0, ep.errGone(op)
	}
	if cap(ep.sendWR) < postBatch {
		ep.sendWR = make([]verbs.SendWR, postBatch)
	}
	for n < len(requests) {
		room := q.reserve(min(postBatch, len(requests)-n))
		if room == 0 {
			return n, ErrPostFull
		}
		good := 0
		for ; good < room; good++ {
			r := &requests[n+good]
			if err = ep.request1(op, &ep.sendWR[good], good, r, r.Local); err != nil {
				break
			}
		}
		done, postErr := ep.submit(op, ep.qp.PostSend, ep.sendWR[:good])
		n += done
		switch {
		case postErr != nil:
			return n, postErr
		case err != nil:
			return n, err
		}
	}
	return n, nil
}

// postPlain posts the most common requests with less ado: one segment and no flags, on a connection, with room. done
// is false, and nothing has happened, if a request is not of that kind after all; postOne knows the rest, and what to say.
func (ep *EP) postPlain(op Operation, wrOp verbs.Opcode, cookie uint64, remote RMRTriplet, local *LMRTriplet) (done bool, err error) {
	if ep.gone() || ep.loadState() != StateConnected {
		return false, nil
	}
	q := &ep.request
	g := q.gate.Load() // enter, without calls; postOne looks twice
	if g == nil {
		return false, nil
	}
	g.qp.LockSendQueue()
	if !q.open(g) {
		g.qp.UnlockSendQueue()
		return false, nil
	}
	n := local.SegmentLength
	most, iov := ep.attr.MaxMessageSize, ep.attr.MaxRequestIOV
	switch op {
	case OpRDMAWrite:
		most, iov = min(ep.attr.MaxRDMASize, remote.SegmentLength), ep.attr.MaxRDMAWriteIOV
	case OpRDMARead:
		most, iov = ep.attr.MaxRDMASize, ep.attr.MaxRDMAReadIOV
	}
	i := q.tail & uint64(len(q.rec)-1)
	if q.room() <= 0 || i >= uint64(len(q.rec)) || len(ep.sendWR) == 0 || q.ud || n > most || iov < 1 {
		g.qp.UnlockSendQueue()
		return false, nil
	}
	wr := &ep.sendWR[0]
	wr.ID, wr.Op, wr.Flags, wr.NumSGE = q.tail, wrOp, verbs.SendSignaled, 1
	wr.RemoteAddr, wr.RemoteKey = remote.VirtualAddress, remote.RMRContext
	wr.SGE[0] = verbs.SGE{Addr: local.VirtualAddress, Length: n, LKey: local.LMRContext}
	q.rec[i] = record{cookie: cookie, op: op}
	if _, err = g.qp.PostSendLocked(ep.sendWR[:1]); err == nil {
		q.tail++
		q.posted++
	}
	g.qp.UnlockSendQueue()
	if err != nil {
		err = ep.postError(postName(op), err)
	}
	return true, err
}

// postName is the name that errors give a post.
func postName(op Operation) string {
	switch op {
	case OpRDMAWrite:
		return "ep_post_rdma_write"
	case OpRDMARead:
		return "ep_post_rdma_read"
	}
	return "ep_post_send"
}

// postOne posts one request.
func (ep *EP) postOne(op string, r *Request, local []LMRTriplet) error {
	if err := ep.checkPost(op, StateConnected); err != nil {
		return err
	}
	q := &ep.request
	if g := q.enter(); g != nil {
		if !q.ud && len(q.rec) > 0 && len(ep.sendWR) > 0 && q.room() > 0 {
			err := ep.request1(op, &ep.sendWR[0], 0, r, local)
			if err == nil {
				_, err = ep.submit(op, g.qp.PostSendLocked, ep.sendWR[:1])
			}
			g.unlock()
			return err
		}
		g.unlock()
	}
	q.lock()
	if cap(ep.sendWR) == 0 {
		ep.sendWR = make([]verbs.SendWR, 1)
	}
	var err error
	if ep.qp == nil {
		err = ep.errGone(op) // while the state was looked at
	} else if q.reserve(1) == 0 {
		err = ErrPostFull
	} else if err = ep.request1(op, &ep.sendWR[0], 0, r, local); err == nil {
		_, err = ep.submit(op, ep.qp.PostSend, ep.sendWR[:1])
	}
	q.unlock()
	return err
}

// checkPost refuses posts on EPs that are gone or, if a state is needed, in the wrong one.
func (ep *EP) checkPost(op string, need EPState) error {
	if ep.gone() {
		return ep.errGone(op)
	}
	if s := ep.loadState(); need == StateConnected && !s.connected() && s != StateDisconnected {
		return ep.fail(op, InvalidState, s.Subtype(), nil, "requests need a connection")
	}
	return nil
}

// request1 checks a request and makes the work request and the record of it, the i-th behind the
// tail. the queue is locked.
func (ep *EP) request1(op string, wr *verbs.SendWR, i int, r *Request, local []LMRTriplet) error {
	maxIOV, maxSize := ep.attr.MaxRequestIOV, uint64(ep.attr.MaxMessageSize)
	wr.Flags = verbs.SendSignaled
	if ep.request.ud != (r.Op == OpSendUD) {
		return ep.fail(op, InvalidParameter, InvalidArg1, nil, fmt.Sprintf("%v is not for an EP of service %v", r.Op, ep.attr.ServiceType))
	}
	switch r.Op {
	case OpSend:
		wr.Op = verbs.OpSend
		if r.Invalidate {
			wr.Op, wr.InvKey = verbs.OpSendInval, r.RMRContext
		}
	case OpRDMAWrite:
		wr.Op = verbs.OpRDMAWrite
		maxIOV, maxSize = ep.attr.MaxRDMAWriteIOV, uint64(ep.attr.MaxRDMASize)
	case OpRDMAWriteImmediate:
		wr.Op, wr.Imm = verbs.OpRDMAWriteImm, r.Immediate
		maxIOV, maxSize = ep.attr.MaxRDMAWriteIOV, uint64(ep.attr.MaxRDMASize)
	case OpRDMARead:
		wr.Op = verbs.OpRDMARead
		maxIOV, maxSize = ep.attr.MaxRDMAReadIOV, uint64(ep.attr.MaxRDMASize)
	case OpFetchAdd, OpCompareSwap:
		wr.Op = verbs.OpFetchAdd
		if r.Op == OpCompareSwap {
			wr.Op = verbs.OpCompareSwap
		}
		wr.Swap, wr.Compare = r.Operand, r.Compare
		maxIOV, maxSize = 1, atomicSize
		if err := ep.checkAtomic(op, r, local); err != nil {
			return err
		}
	case OpSendUD:
		wr.Op = verbs.OpSend
		if err := ep.checkDatagram(op, wr, r.To); err != nil {
			return err
		}
	default:
		return ep.fail(op, InvalidParameter, InvalidArg1, nil, fmt.Sprintf("%v cannot be posted as a request", r.Op))
	}
	if len(local) > maxIOV {
		return ep.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("%d segments, the EP allows %d", len(local), maxIOV))
	}
	if r.Flags != 0 {
		if err := ep.requestFlags(op, wr, r); err != nil {
			return err
		}
	}
	total := setSegments(&wr.SGE, local)
	if r.Op != OpSend && r.Op != OpSendUD {
		limit := uint64(r.Remote.SegmentLength)
		if r.Op == OpRDMARead {
			if limit > total {
				return ep.fail(op, LengthError, NoSubtype, nil, fmt.Sprintf("%d bytes do not fit %d", limit, total))
			}
			trim(&wr.SGE, len(local), limit)
			total = limit
		} else if total > limit {
			return ep.fail(op, LengthError, NoSubtype, nil, fmt.Sprintf("%d bytes do not fit the remote %d", total, limit))
		}
		wr.RemoteAddr, wr.RemoteKey = r.Remote.VirtualAddress, r.Remote.RMRContext
	}
	if total > maxSize {
		return ep.fail(op, LengthError, NoSubtype, nil, fmt.Sprintf("%d bytes, the EP allows %d", total, maxSize))
	}
	wr.NumSGE = uint8(len(local))
	id, rec := ep.request.next(i)
	wr.ID = id
	*rec = record{cookie: r.Cookie, op: r.Op, flags: r.Flags}
	return nil
}

// requestFlags checks completion flags and sets what the device must know of them.
func (ep *EP) requestFlags(op string, wr *verbs.SendWR, r *Request) error {
	arg := InvalidArg5
	switch r.Op { // where the flags are among the arguments
	case OpBindMW:
		arg = InvalidArg8
	case OpLMRFMR:
		arg = InvalidArg9
	case OpLMRInvalidate:
		arg = InvalidArg4
	}
	if r.Flags&^requestFlags != 0 {
		return ep.fail(op, InvalidParameter, arg, nil, fmt.Sprintf("flags %v are not for requests", r.Flags&^requestFlags))
	}
	if r.Flags&CompletionUnsignalled != 0 && ep.attr.RequestCompletionFlags != CompletionUnsignalled {
		return ep.fail(op, InvalidParameter, arg, nil, "UNSIGNALLED needs the EP's request completion flags to be UNSIGNALLED")
	}
	if r.Flags&CompletionSolicitedWait != 0 {
		wr.Flags |= verbs.SendSolicited
	}
	if r.Flags&CompletionBarrierFence != 0 {
		wr.Flags |= verbs.SendFence
	}
	if r.Flags&CompletionLMRInvalidateFence != 0 {
		wr.Flags |= verbs.SendInvalFence
	}
	return nil
}

// submit hands work requests whose records are filled to the device, and returns how many it took.
func (ep *EP) submit(op string, post func([]verbs.SendWR) (int, error), wrs []verbs.SendWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	// The records count before the device knows of them: it may complete them at once.
	q := &ep.request
	q.tail += uint64(len(wrs))
	n, err := post(wrs)
	q.tail -= uint64(len(wrs) - n)
	q.posted += uint64(n)
	if q.dead {
		q.flushLocked(ep)
	}
	if err != nil && n < len(wrs) {
		return n, ep.postError(op, err)
	}
	return n, nil
}

// setSegments copies triplets to a work request and returns their total length.
func setSegments(sge *[verbs.MaxSGE]verbs.SGE, local []LMRTriplet) (total uint64) {
	for i := range local {
		if i == len(sge) {
			return math.MaxUint64
		}
		t := &local[i]
		sge[i] = verbs.SGE{Addr: t.VirtualAddress, Length: t.SegmentLength, LKey: t.LMRContext}
		total += uint64(t.SegmentLength)
	}
	return total
}

// trim shortens the first n segments to a total of length.
func trim(sge *[verbs.MaxSGE]verbs.SGE, n int, length uint64) {
	for i := range n {
		use := min(uint64(sge[i].Length), length)
		sge[i].Length = uint32(use)
		length -= use
	}
}

// PostRecv posts a receive (dat_ep_post_recv): the next message of the peer fills the
// segments in order. It is allowed in every state; in StateDisconnected it completes with
// StatusFlushed. The memory is the provider's until the event is taken.
//
// It does not block and allocates nothing. ErrPostFull. INVALID_PARAMETER: too many segments
// (ARG2), flags that the EP does not allow (ARG5). INVALID_STATE: the EP has no PZ yet
// (EP_NOTREADY), or receives from an SRQ. PROTECTION_VIOLATION, PRIVILEGES_VIOLATION (no local
// write): see PostSend.
func (ep *EP) PostRecv(cookie uint64, flags CompletionFlags, local ...LMRTriplet) error {
	const op = "ep_post_recv"
	if ep.gone() {
		return ep.errGone(op)
	}
	if flags == 0 && len(local) == 1 {
		if done, err := ep.recvPlain(cookie, &local[0]); done {
			return err
		}
	}
	q := &ep.recv
	q.lock()
	if cap(ep.recvWR) == 0 {
		ep.recvWR = make([]verbs.RecvWR, 1)
	}
	err := ep.recvReady(op)
	if err == nil && q.reserve(1) == 0 {
		err = ErrPostFull
	}
	if err == nil {
		err = ep.receive1(op, &ep.recvWR[0], 0, cookie, flags, local)
	}
	if err == nil {
		_, err = ep.submitRecvs(op, ep.recvWR[:1])
	}
	q.unlock()
	return err
}

// recvPlain is postPlain for receives.
func (ep *EP) recvPlain(cookie uint64, local *LMRTriplet) (done bool, err error) {
	q := &ep.recv
	g := q.gate.Load()
	if g == nil {
		return false, nil
	}
	g.qp.LockRecvQueue()
	if !q.open(g) {
		g.qp.UnlockRecvQueue()
		return false, nil
	}
	i := q.tail & uint64(len(q.rec)-1)
	if q.room() <= 0 || i >= uint64(len(q.rec)) || len(ep.recvWR) == 0 || q.ud || ep.attr.MaxRecvIOV < 1 {
		g.qp.UnlockRecvQueue()
		return false, nil // with an SRQ there are no records
	}
	wr := &ep.recvWR[0]
	wr.ID, wr.NumSGE = q.tail, 1
	wr.SGE[0] = verbs.SGE{Addr: local.VirtualAddress, Length: local.SegmentLength, LKey: local.LMRContext}
	q.rec[i] = record{cookie: cookie, op: OpReceive}
	if _, err = g.qp.PostRecvLocked(ep.recvWR[:1]); err == nil {
		q.tail++
		q.posted++
	}
	g.qp.UnlockRecvQueue()
	if err != nil {
		err = ep.postError("ep_post_recv", err)
	}
	return true, err
}

// PostRecvs posts receives with one doorbell; see Post and PostRecv.
func (ep *EP) PostRecvs(recvs []Receive) (n int, err error) {
	const op = "ep_post_recv"
	if ep.gone() {
		return 0, ep.errGone(op)
	}
	q := &ep.recv
	q.lock()
	defer q.unlock()
	if err := ep.recvReady(op); err != nil {
		return 0, err
	}
	if cap(ep.recvWR) < postBatch {
		ep.recvWR = make([]verbs.RecvWR, postBatch)
	}
	for n < len(recvs) {
		room := q.reserve(min(postBatch, len(recvs)-n))
		if room == 0 {
			return n, ErrPostFull
		}
		good := 0
		for ; good < room; good++ {
			r := &recvs[n+good]
			if err = ep.receive1(op, &ep.recvWR[good], good, r.Cookie, r.Flags, r.Local); err != nil {
				break
			}
		}
		done, postErr := ep.submitRecvs(op, ep.recvWR[:good])
		n += done
		switch {
		case postErr != nil:
			return n, postErr
		case err != nil:
			return n, err
		}
	}
	return n, nil
}

func (ep *EP) recvReady(op string) error {
	if ep.srq != nil {
		return ep.fail(op, InvalidState, NoSubtype, nil, "the EP takes its receives from an SRQ; post them there")
	}
	if ep.qp == nil {
		if ep.gone() {
			return ep.errGone(op)
		}
		return ep.fail(op, InvalidState, InvalidStateEPNotReady, nil, "the EP has no protection zone yet")
	}
	return nil
}

// receive1 checks a receive and makes the work request and the record of it.
func (ep *EP) receive1(op string, wr *verbs.RecvWR, i int, cookie uint64, flags CompletionFlags, local []LMRTriplet) error {
	if len(local) > ep.attr.MaxRecvIOV {
		return ep.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("%d segments, the EP allows %d", len(local), ep.attr.MaxRecvIOV))
	}
	if flags != 0 && (flags&^recvFlags != 0 || ep.attr.RecvCompletionFlags != CompletionUnsignalled) {
		return ep.fail(op, InvalidParameter, InvalidArg5, nil, fmt.Sprintf("flags %v do not fit a receive of an EP with recv completion flags %v", flags, ep.attr.RecvCompletionFlags))
	}
	setSegments(&wr.SGE, local)
	wr.NumSGE = uint8(len(local))
	id, rec := ep.recv.next(i)
	wr.ID = id
	*rec = record{cookie: cookie, op: OpReceive, flags: flags}
	if ep.recv.ud {
		rec.op = OpReceiveUD
	}
	return nil
}

// submitRecvs is submit for receives.
func (ep *EP) submitRecvs(op string, wrs []verbs.RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	q := &ep.recv
	q.tail += uint64(len(wrs))
	n, err := ep.qp.PostRecv(wrs)
	q.tail -= uint64(len(wrs) - n)
	q.posted += uint64(n)
	if q.dead {
		q.flushLocked(ep)
	}
	if err != nil && n < len(wrs) {
		return n, ep.postError(op, err)
	}
	return n, nil
}

// postError makes a DAT error of what the device said to a post.
func (ep *EP) postError(op string, err error) error {
	if errors.Is(err, verbs.ErrQueueFull) {
		return ErrPostFull
	}
	if errors.Is(err, verbs.ErrState) {
		s := ep.loadState()
		return ep.fail(op, InvalidState, s.Subtype(), err, "the EP is in state "+s.String())
	}
	return ep.ia.deviceError(op, &ep.base, err)
}
