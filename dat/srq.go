package dat

import (
	"fmt"
	"sync/atomic"

	"kdapl/internal/fastlock"
	"kdapl/verbs"
)

// SRQAttr describes a shared receive queue (DAT_SRQ_ATTR).
type SRQAttr struct {
	// MaxRecvDTOs is the least number of receives that can be outstanding; 1 to IAAttr.MaxRecvPerSRQ.
	MaxRecvDTOs int
	// MaxRecvIOV is the most segments of one; 1 to IAAttr.MaxIOVSegmentsPerDTO.
	MaxRecvIOV int
}

// SRQ is a shared receive queue: receives that the EPs attached to it take as messages arrive.
type SRQ struct {
	base
	pz  *PZ
	srq verbs.SRQ

	// mu serializes posts; held across the device's post as dtoQueue.mu is.
	mu   fastlock.Mutex
	free []uint32 // records that nothing uses
	wr   [1]verbs.RecvWR
	attr SRQAttr
	low  int

	failed atomic.Bool // the device's queue is in error

	// rec has the records. The slice is replaced when it grows; the records stay where they are.
	rec atomic.Pointer[[]*record]

	// taken are the records whose events wait to be taken, with the place of the event. Its lock is a
	// leaf, taken under EVD locks.
	takenMu fastlock.Mutex
	taken   []takenRecord

	// Under IA.srqMu:
	users int // EPs; -1 when it is being freed
	uses  map[*EVD]*srqUse
}

// srqUse says that EPs of an SRQ feed an EVD, which has room for all of its receives.
type srqUse struct{ users, room int }

// takenRecord is a receive that has completed: its record is free again when the event was taken.
type takenRecord struct {
	index uint32
	at    evdPosition
}

// NewSRQ creates a shared receive queue (dat_srq_create). Its low watermark is off. It does not block.
//
// MODEL_NOT_SUPPORTED: the adapter has none. INVALID_PARAMETER (ARG3): an attribute out of range.
// INSUFFICIENT_RESOURCES (RESOURCE_SRQ).
func (pz *PZ) NewSRQ(attr SRQAttr) (*SRQ, error) {
	const op = "srq_create"
	if pz.gone() {
		return nil, pz.errGone(op)
	}
	ia := pz.ia
	switch {
	case !ia.provider.SRQSupported:
		return nil, pz.fail(op, ModelNotSupported, NoSubtype, nil, "the adapter has no shared receive queues")
	case attr.MaxRecvDTOs < 1 || attr.MaxRecvDTOs > ia.attr.MaxRecvPerSRQ:
		return nil, pz.fail(op, InvalidParameter, InvalidArg3, nil, fmt.Sprintf("MaxRecvDTOs is %d, allowed are 1 to %d", attr.MaxRecvDTOs, ia.attr.MaxRecvPerSRQ))
	case attr.MaxRecvIOV < 1 || attr.MaxRecvIOV > min(ia.attr.MaxIOVSegmentsPerDTO, ia.device.Attr().MaxSRQSGE):
		return nil, pz.fail(op, InvalidParameter, InvalidArg3, nil, fmt.Sprintf("MaxRecvIOV is %d, allowed are 1 to %d", attr.MaxRecvIOV, ia.attr.MaxIOVSegmentsPerDTO))
	case !pz.use():
		return nil, pz.errGone(op)
	}
	s := &SRQ{pz: pz, attr: attr, uses: map[*EVD]*srqUse{}}
	s.base = base{self: s, ia: ia, kind: HandleSRQ}
	if !ia.register(&s.base, ia.attr.MaxSRQs) {
		pz.unuse()
		return nil, ia.full(op, ResourceSRQ)
	}
	var err error
	if s.srq, err = pz.pd.CreateSRQ(verbs.SRQInit{MaxWR: attr.MaxRecvDTOs, MaxSGE: attr.MaxRecvIOV, UserData: uint64(s.ref)}); err != nil {
		s.freed.Store(true)
		ia.unregister(&s.base)
		pz.unuse()
		return nil, ia.deviceError(op, &pz.base, err)
	}
	s.grow(attr.MaxRecvDTOs)
	return s, nil
}

// grow makes sure that there are depth records. mu is held, or nobody knows of the SRQ.
func (s *SRQ) grow(depth int) {
	have := s.records()
	if depth <= len(have) {
		return
	}
	all := append(make([]*record, 0, depth), have...)
	block := make([]record, depth-len(have))
	for i := range block {
		block[i].done, block[i].object = doneWithoutEvent, ref(len(all))
		s.free = append(s.free, uint32(len(all)))
		all = append(all, &block[i])
	}
	s.rec.Store(&all)
}

func (s *SRQ) records() []*record {
	if p := s.rec.Load(); p != nil {
		return *p
	}
	return nil
}

// outstanding counts receives whose events were not taken. mu is held.
func (s *SRQ) outstanding() int { return len(s.records()) - len(s.free) }

// PostRecv posts a receive for whichever EP of the SRQ needs one first (dat_srq_post_recv). Its event comes on
// the Recv EVD of that EP. The memory is the provider's until then. It does not block and
// allocates nothing.
//
// ErrPostFull: MaxRecvDTOs are outstanding. INVALID_PARAMETER (ARG2): too many segments.
// PROTECTION_VIOLATION, PRIVILEGES_VIOLATION: as EP.PostRecv, by the SRQ's PZ. INVALID_STATE
// (SRQ_ERROR): the queue has failed.
func (s *SRQ) PostRecv(cookie uint64, local ...LMRTriplet) error {
	const op = "srq_post_recv"
	if s.gone() {
		return s.errGone(op)
	}
	if s.failed.Load() {
		return s.fail(op, InvalidState, InvalidStateSRQError, nil, "the queue has failed")
	}
	if len(local) > s.attr.MaxRecvIOV {
		return s.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("%d segments, the SRQ allows %d", len(local), s.attr.MaxRecvIOV))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outstanding() >= s.attr.MaxRecvDTOs {
		s.reclaim()
	}
	n := len(s.free)
	if s.outstanding() >= s.attr.MaxRecvDTOs {
		return ErrPostFull
	}
	index := s.free[n-1]
	*s.records()[index] = record{cookie: cookie, op: OpReceive, object: ref(index)}
	wr := &s.wr[0]
	wr.ID, wr.NumSGE = uint64(index), uint8(len(local))
	setSegments(&wr.SGE, local)
	s.free = s.free[:n-1]
	if taken, err := s.srq.PostRecv(s.wr[:]); err != nil && taken == 0 {
		s.free = append(s.free, index)
		return s.ia.deviceError(op, &s.base, err)
	}
	return nil
}

// reclaim finds records whose events were taken. mu is held.
func (s *SRQ) reclaim() {
	s.takenMu.Lock()
	defer s.takenMu.Unlock()
	keep := s.taken[:0]
	for _, t := range s.taken {
		if t.at.passed() {
			s.free = append(s.free, t.index)
		} else {
			keep = append(keep, t)
		}
	}
	s.taken = keep
}

// completed notes that a receive's event is at a place in an EVD, or was delivered (evd nil). The EVD is
// locked.
func (s *SRQ) completed(index uint32, at evdPosition) {
	s.takenMu.Lock()
	s.taken = append(s.taken, takenRecord{index, at})
	s.takenMu.Unlock()
}

// SRQParam is what Query tells (DAT_SRQ_PARAM).
type SRQParam struct {
	// IA is the adapter.
	IA    *IA
	PZ    *PZ
	State SRQState
	// MaxRecvDTOs and MaxRecvIOV are the limits.
	MaxRecvDTOs, MaxRecvIOV int
	// LowWatermark is the one last set; 0 is off.
	LowWatermark int
	// Available counts receives that no EP has taken, Outstanding those whose events were not taken
	// from an EVD yet, the available ones included.
	Available, Outstanding int
}

// Query tells the SRQ's parameters (dat_srq_query). It does not block.
func (s *SRQ) Query() (SRQParam, error) {
	if s.gone() {
		return SRQParam{}, s.errGone("srq_query")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reclaim()
	state := SRQStateOperational
	if s.failed.Load() {
		state = SRQStateError
	}
	return SRQParam{
		IA: s.ia, PZ: s.pz, State: state, MaxRecvDTOs: s.attr.MaxRecvDTOs, MaxRecvIOV: s.attr.MaxRecvIOV, LowWatermark: s.low,
		Available: s.srq.Available(), Outstanding: s.outstanding(),
	}, nil
}

// Resize changes the number of receives that can be outstanding (dat_srq_resize); the EVDs of its EPs grow with
// it. It does not block.
//
// INVALID_PARAMETER (ARG2): out of range. INVALID_STATE: more are outstanding, or the low watermark is higher.
// INSUFFICIENT_RESOURCES (RESOURCE_TEVD): an EVD of its EPs cannot grow so far.
func (s *SRQ) Resize(maxRecvDTOs int) error {
	const op = "srq_resize"
	if s.gone() {
		return s.errGone(op)
	}
	if maxRecvDTOs < 1 || maxRecvDTOs > s.ia.attr.MaxRecvPerSRQ {
		return s.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("%d, allowed are 1 to %d", maxRecvDTOs, s.ia.attr.MaxRecvPerSRQ))
	}
	s.ia.srqMu.Lock()
	defer s.ia.srqMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reclaim()
	switch {
	case maxRecvDTOs < s.outstanding():
		return s.fail(op, InvalidState, NoSubtype, nil, fmt.Sprintf("%d receives are outstanding", s.outstanding()))
	case maxRecvDTOs < s.low:
		return s.fail(op, InvalidState, NoSubtype, nil, fmt.Sprintf("the low watermark is %d", s.low))
	}
	if err := s.reserve(op, maxRecvDTOs); err != nil {
		return err
	}
	if err := s.srq.Resize(maxRecvDTOs); err != nil {
		s.reserve(op, s.attr.MaxRecvDTOs) // gives room back, which cannot fail
		return s.ia.deviceError(op, &s.base, err)
	}
	s.grow(maxRecvDTOs)
	s.attr.MaxRecvDTOs = maxRecvDTOs
	return nil
}

// reserve changes the room in the EVDs that the SRQ's EPs feed; all of them, or none. IA.srqMu is held.
func (s *SRQ) reserve(op string, room int) error {
	var done []*EVD
	for e, use := range s.uses {
		if err := e.reserve(op, room-use.room); err != nil {
			for _, e := range done {
				e.reserve(op, s.uses[e].room-room)
			}
			return err
		}
		done = append(done, e)
	}
	for _, use := range s.uses {
		use.room = room
	}
	return nil
}

// attach makes an EVD the target of an EP that uses the SRQ.
func (s *SRQ) attach(op string, e *EVD, d discipline) error {
	s.ia.srqMu.Lock()
	defer s.ia.srqMu.Unlock()
	if s.gone() || s.users < 0 {
		return s.fail(op, InvalidHandle, InvalidHandleSRQ, nil, "the SRQ was freed")
	}
	use, room := s.uses[e], 0
	if use == nil {
		s.mu.Lock()
		room = s.attr.MaxRecvDTOs
		s.mu.Unlock()
	}
	if err := e.attach(op, room, d); err != nil {
		return err
	}
	if use == nil {
		use = &srqUse{room: room}
		s.uses[e] = use
	}
	use.users++
	s.users++
	return nil
}

// detach ends what attach began.
func (s *SRQ) detach(e *EVD, d discipline) {
	s.ia.srqMu.Lock()
	defer s.ia.srqMu.Unlock()
	use, room := s.uses[e], 0
	if use.users--; use.users == 0 {
		room = use.room
		delete(s.uses, e)
	}
	s.users--
	e.detach(room, d)
}

// SetLowWatermark arms one AsyncWatermark event (ReasonSRQLowWatermark) for when fewer receives are
// available; at once if that is so (dat_srq_set_lw). 0 disarms. It does not block.
//
// INVALID_PARAMETER (ARG2): below 0 or above MaxRecvDTOs. MODEL_NOT_SUPPORTED: the adapter cannot.
func (s *SRQ) SetLowWatermark(low int) error {
	const op = "srq_set_lw"
	if s.gone() {
		return s.errGone(op)
	}
	s.mu.Lock()
	max := s.attr.MaxRecvDTOs
	if low < 0 || low > max {
		s.mu.Unlock()
		return s.fail(op, InvalidParameter, InvalidArg2, nil, fmt.Sprintf("%d, allowed are 0 to %d", low, max))
	}
	before := s.low
	s.low = low
	s.mu.Unlock()
	if err := s.srq.SetLimit(low); err != nil {
		s.mu.Lock()
		s.low = before
		s.mu.Unlock()
		return s.ia.deviceError(op, &s.base, err)
	}
	return nil
}

// Free frees the SRQ (dat_srq_free). Receives that no EP has taken are the consumer's again, without
// events. It does not block.
//
// INVALID_STATE (SRQ_IN_USE): an EP uses it.
func (s *SRQ) Free() error {
	const op = "srq_free"
	if s.gone() {
		return s.errGone(op)
	}
	s.ia.srqMu.Lock()
	users := s.users
	if users == 0 {
		s.users = -1 // nobody starts to use it
	}
	s.ia.srqMu.Unlock()
	switch {
	case users > 0:
		return s.fail(op, InvalidState, InvalidStateSRQInUse, nil, fmt.Sprintf("%d EPs use it", users))
	case !s.destroy():
		return s.errGone(op)
	}
	return nil
}

func (s *SRQ) abandon() { s.destroy() }

func (s *SRQ) destroy() bool {
	if !s.freed.CompareAndSwap(false, true) {
		return false
	}
	s.srq.Destroy()
	s.pz.unuse()
	s.ia.unregister(&s.base)
	return true
}
