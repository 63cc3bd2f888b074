package softnic

import (
	"unsafe"

	"kdapl/verbs"
)

// Head is a send-side request without its segments: the leading fields of a verbs.SendWR, in
// the same places.
type Head struct {
	ID              uint64
	Op              verbs.Opcode
	Flags           verbs.SendFlags
	Access          verbs.Access
	NumSGE          uint8
	Imm             uint32
	InvKey          uint32
	Key             uint32
	RemoteKey       uint32
	AH              uint32
	RemoteAddr      uint64
	Swap, Compare   uint64
	RemoteQPN, QKey uint32
}

// headOf is the head of wr, in place. A test holds that the two types agree.
func headOf(wr *verbs.SendWR) *Head { return (*Head)(unsafe.Pointer(wr)) }

// sendSlot is a queued request.
type sendSlot struct {
	Head
	state  slotState
	status verbs.Status
	inline uint16 // bytes of an inline payload
	length uint32
}

type slotState uint8

const (
	slotWaits slotState = iota
	slotRuns
	slotDone
)

// sendStore is the memory of a send queue.
type sendStore struct {
	slots   []sendSlot
	sge     []verbs.SGE
	payload []byte
}

// sendQueue holds the requests that could not be done at once. Its memory is made when the
// first request has to wait, as large as the QP's own limits ask for.
//
// head is the oldest request that has not completed, next the first that has not been started, tail
// the place of the next post. Requests start in order and complete in order; in
// between they may be done in any order.
type sendQueue struct {
	store            *sendStore
	head, next, tail uint32
	depth            uint32
	maxSGE           uint8
	maxInline        uint16
	reads            uint16 // started reads and atomics that are not done
}

func (s *sendQueue) empty() bool { return s.head == s.tail }

func (s *sendQueue) count() uint32 { return s.tail - s.head }

func (s *sendQueue) index(pos uint32) uint32 {
	return pos & uint32(len(s.store.slots)-1)
}

// at is the slot of a request that was added.
func (s *sendQueue) at(pos uint32) *sendSlot { return &s.store.slots[s.index(pos)] }

// add appends a request; the caller has checked that there is room.
func (s *sendQueue) add(h *Head, sg []verbs.SGE) *sendSlot {
	if s.store == nil {
		n := ceilPow2(int(s.depth))
		s.store = &sendStore{slots: make([]sendSlot, n), sge: make([]verbs.SGE, n*int(s.maxSGE))}
		if s.maxInline > 0 {
			s.store.payload = make([]byte, n*int(s.maxInline))
		}
	}
	i := s.index(s.tail)
	slot := &s.store.slots[i]
	*slot = sendSlot{Head: *h}
	copy(s.store.sge[i*uint32(s.maxSGE):], sg)
	s.tail++
	return slot
}

func (s *sendQueue) segments(pos uint32) []verbs.SGE {
	i := s.index(pos)
	return s.store.sge[i*uint32(s.maxSGE):][:s.store.slots[i].NumSGE]
}

// inlineRoom is where the inline payload of a request is kept.
func (s *sendQueue) inlineRoom(pos uint32) []byte {
	return s.store.payload[s.index(pos)*uint32(s.maxInline):][:s.maxInline]
}
