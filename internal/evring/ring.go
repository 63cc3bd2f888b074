// Package evring is the bounded ring of pointer-free event slots that every EVD has
// as its only queue.
//
// One producer at a time (its caller holds a lock) fills slots and publishes them;
// any number of consumers claim slots from the head with one atomic operation and no
// lock. The ring lives in memory that its owner provides, laid out so that a consumer
// written in another language can share it: see the constants for the layout.
//
// Positions are absolute and never go back: the first event of a ring made with base
// b has position b. So the owner of an event tells whether it was taken by comparing its
// position with [Ring.Head], across any number of moves to a larger ring.
//
// # Memory layout
//
//	offset 0    head   uint64  next local position to claim; bit 63: frozen
//	offset 64   tail   uint64  local positions below it are published
//	offset 128  base, capacity uint64  constant
//	offset 192  slots, 64 bytes each: lap uint64, then the payload
//
// A slot at local position p has index p mod capacity and is free for the producer's lap
// p / capacity exactly when its lap word says so; zeroed memory is an empty ring. A
// consumer loads head (stop if frozen), then tail (stop if equal), claims by
// compare-and-swap of head, copies the payload, and then stores lap+1 to the slot.
package evring

import (
	"errors"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Layout constants, in bytes.
const (
	// SlotSize is the size of a slot, PayloadSize that of its part for the event.
	SlotSize    = 64
	PayloadSize = 56
	headerSize  = 192
	// Align is the alignment of the memory for best speed; 8 is required.
	Align = 64
	// MaxCapacity is the most slots of a ring.
	MaxCapacity = 1 << 30
)

const frozen = 1 << 63

// Payload is what a slot carries.
type Payload [PayloadSize / 8]uint64

type slot struct {
	lap atomic.Uint64
	p   Payload
}

type header struct {
	head atomic.Uint64
	_    [56]byte
	tail atomic.Uint64
	_    [56]byte
	base uint64
	cap  uint64
	_    [48]byte
}

// Ring is a view of the memory that holds the ring. The view is immutable; all state
// is in the memory.
type Ring struct {
	h     *header
	slots []slot
	mask  uint64
	shift uint8
	base  uint64
}

// Capacity rounds a wish up to what a ring can have: a power of two, at least 1.
func Capacity(want int) int {
	if want <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(want-1))
}

// Size is the number of bytes for a ring of the capacity.
func Size(capacity int) int { return headerSize + capacity*SlotSize }

// ErrMemory is returned by New for memory that is too small, misaligned or for a capacity
// that is no power of two.
var ErrMemory = errors.New("evring: memory too small or misaligned, or capacity no power of two")

// New makes an empty ring in mem, which must be zero, whose first event has position
// base. The memory stays the caller's; it must outlive every consumer.
func New(mem []byte, capacity int, base uint64) (*Ring, error) {
	if capacity < 1 || capacity > MaxCapacity || capacity&(capacity-1) != 0 || len(mem) < Size(capacity) ||
		uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%8 != 0 {
		return nil, ErrMemory
	}
	h := (*header)(unsafe.Pointer(unsafe.SliceData(mem)))
	h.base, h.cap = base, uint64(capacity)
	return &Ring{
		h:     h,
		slots: unsafe.Slice((*slot)(unsafe.Pointer(&mem[headerSize])), capacity),
		mask:  uint64(capacity - 1),
		shift: uint8(bits.TrailingZeros(uint(capacity))),
		base:  base,
	}, nil
}

// Alloc returns zeroed memory for a ring, from the Go heap.
func Alloc(capacity int) []byte {
	words := make([]uint64, (Size(capacity)+Align)/8)
	off := (Align - uintptr(unsafe.Pointer(&words[0]))%Align) % Align
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	return b[off : int(off)+Size(capacity)]
}

// Cap is the number of slots.
func (r *Ring) Cap() int { return len(r.slots) }

// Len is the number of published events that nobody has claimed; a snapshot.
func (r *Ring) Len() int {
	h := r.h.head.Load() &^ frozen
	return int(r.h.tail.Load() - h)
}

// Head is the position of the oldest event that nobody has claimed, Tail that of the next
// event to be published.
func (r *Ring) Head() uint64 { return r.base + r.h.head.Load()&^frozen }

// Tail is the position that the next published event gets.
func (r *Ring) Tail() uint64 { return r.base + r.h.tail.Load() }

// Slot returns the payload to fill for the event that is ahead places behind the last
// published one, or nil if that slot is not free: the ring is full, or a consumer is
// still copying the event that was there. Producer only.
func (r *Ring) Slot(ahead int) *Payload {
	t := r.h.tail.Load() + uint64(ahead)
	s := &r.slots[t&r.mask]
	if s.lap.Load() != t>>r.shift {
		return nil
	}
	return &s.p
}

// Publish makes the next n filled slots visible to consumers. Producer only.
func (r *Ring) Publish(n int) { r.h.tail.Add(uint64(n)) }

// Claim takes up to max events from the head. It returns the local position of the first
// and their number; each must be read with At and then given back with Release. n is 0 if the
// ring is empty or frozen.
func (r *Ring) Claim(max int) (pos uint64, n int) {
	for {
		h := r.h.head.Load()
		if h&frozen != 0 {
			return 0, 0
		}
		n := int(r.h.tail.Load() - h)
		if n > max {
			n = max
		}
		if n <= 0 {
			return 0, 0
		}
		if r.h.head.CompareAndSwap(h, h+uint64(n)) {
			return h, n
		}
	}
}

// At is the payload of a claimed event.
func (r *Ring) At(pos uint64) *Payload { return &r.slots[pos&r.mask].p }

// Release gives a claimed slot back to the producer. The payload must not be read after.
func (r *Ring) Release(pos uint64) { r.slots[pos&r.mask].lap.Store(pos>>r.shift + 1) }

// Freeze makes every later claim fail. Events that were claimed before may still be read and
// released. Producer only.
func (r *Ring) Freeze() { r.h.head.Or(frozen) }

// Frozen reports whether Freeze was called: an owner has moved on to another ring.
func (r *Ring) Frozen() bool { return r.h.head.Load()&frozen != 0 }

// MoveTo copies what a frozen ring still holds to an empty ring that was made with the frozen
// one's Head as base, and publishes it. It reports false, and moves nothing, if there
// is no room. Producer only.
func (r *Ring) MoveTo(to *Ring) bool {
	h := r.h.head.Load() &^ frozen
	n := int(r.h.tail.Load() - h)
	if n > to.Cap() {
		return false
	}
	for i := range n {
		*to.Slot(i) = *r.At(h + uint64(i))
	}
	to.Publish(n)
	return true
}

// Quiet reports whether every claimed event was released, so that the memory of a frozen
// ring can be given up.
func (r *Ring) Quiet() bool {
	h := r.h.head.Load() &^ frozen
	first := uint64(0)
	if h > uint64(len(r.slots)) {
		first = h - uint64(len(r.slots))
	}
	for p := first; p < h; p++ {
		if r.slots[p&r.mask].lap.Load() <= p>>r.shift {
			return false
		}
	}
	return true
}
