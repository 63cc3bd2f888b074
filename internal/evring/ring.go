// Package evring is the bounded ring of pointer-free event slots that every EVD has
// as its only queue.
//
// Producers serialize on a lock that is a bit of the tail word, so that the store
// that publishes an event also unlocks. Consumers take events from
// the head without that lock: they copy the payload and then claim what they copied with
// one compare-and-swap of the head word. A copy whose claim fails is thrown away; it may be
// torn, because the producer can be overwriting the slot once somebody else has claimed
// it. A claim that succeeds proves that nobody did, so its copy is whole.
//
// The head word carries a generation beside the position. The owner changes it to make
// claims fail that were prepared under an older one: that is how a policy change stops an
// activation between its decision and its claim without a lock on every event.
//
// Positions are absolute and never go back: the first event of a ring made with base
// b has position b. So the owner of an event tells whether it was taken by comparing its
// position with [Ring.Head], across any number of moves to another ring.
//
// # Memory layout
//
// The ring lives in memory that its owner provides, laid out so that a consumer written
// in another language can share it.
//
//	offset 0    head      bits 0-47 next local position to claim, 48-62 generation,
//	                      bit 63 frozen
//	offset 64   tail      bit 0 the producers' lock, bits 1-63 local positions below
//	                      this are published
//	offset 128  base, capacity   constant
//	offset 192  slots of 64 bytes; local position p is in slot p mod capacity
//
// A foreign consumer loads head (stop if frozen), then tail (stop if equal), copies
// the payload, and claims by compare-and-swap of head+1 with acquire-release order. Zeroed
// memory is an empty ring.
package evring

import (
	"errors"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"kdapl/internal/explore"
	"kdapl/internal/fastlock"
)

// Layout constants, in bytes.
const (
	// SlotSize is the size of a slot.
	SlotSize   = 64
	headerSize = 192
	// Align is the alignment of the memory for best speed; 8 is required.
	Align = 64
	// MaxCapacity is the most slots of a ring.
	MaxCapacity = 1 << 30
)

// The head word. A ring whose local position reaches NearEnd should be replaced; that
// takes months at the highest rates.
const (
	posBits  = 48
	posMask  = 1<<posBits - 1
	frozen   = 1 << 63
	genMask  = frozen - 1 - posMask
	genStep  = 1 << posBits
	lockBit  = 1
	NearEnd  = 1 << (posBits - 1)
	spinTurn = 64
)

// Payload is what a slot carries.
type Payload [SlotSize / 8]uint64

type header struct {
	head atomic.Uint64
	_    [56]byte
	tail atomic.Uint64
	_    [56]byte
	base uint64
	cap  uint64
	_    [48]byte
}

// Ring is a view of the memory that holds the ring. All state that consumers share is in
// the memory.
type Ring struct {
	h     *header
	slots []Payload
	mask  uint64
	base  uint64
	slow  sync.Mutex // producers that found the lock taken queue here
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
		slots: unsafe.Slice((*Payload)(unsafe.Pointer(&mem[headerSize])), capacity),
		mask:  uint64(capacity - 1),
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

// Address is that of the ring's memory, for consumers in other languages.
func (r *Ring) Address() uintptr { return uintptr(unsafe.Pointer(r.h)) }

// Cap is the number of slots.
func (r *Ring) Cap() int { return len(r.slots) }

// Len is the number of published events that nobody has claimed; a snapshot.
func (r *Ring) Len() int {
	h := r.h.head.Load() & posMask
	return int(r.h.tail.Load()>>1 - h)
}

// Head is the position of the oldest event that nobody has claimed.
func (r *Ring) Head() uint64 { return r.base + r.h.head.Load()&posMask }

// Tail is the position that the next published event gets.
func (r *Ring) Tail() uint64 { return r.base + r.h.tail.Load()>>1 }

// Old reports that the ring should be replaced because its positions run out.
func (r *Ring) Old() bool { return r.h.tail.Load()>>1 >= NearEnd }

// Lock makes the caller the only producer. Hold it shortly: those who wait yield in turn.
func (r *Ring) Lock() {
	if _, ok := r.TryLock(); !ok {
		r.LockSlow()
	}
}

// TryLock is Lock if that takes no waiting; otherwise LockSlow follows. Both return the tail, the local position of the
// next event, for Queued, Place and Release: what comes between the lock and its release is short, so that to load
// the tail again behind the exchange, and to wait for that, would be much of it.
func (r *Ring) TryLock() (tail uint64, ok bool) {
	t := r.h.tail.Load()
	return t >> 1, t&lockBit == 0 && r.h.tail.CompareAndSwap(t, t|lockBit)
}

// Release unlocks with the tail at a position: events are published up to it.
func (r *Ring) Release(tail uint64) { fastlock.StoreRelease64(&r.h.tail, tail<<1) }

// Place is the payload to fill for the event at the tail. Holder of the lock only.
func (r *Ring) Place(tail uint64) *Payload { return &r.slots[tail&r.mask] }

// LockSlow is for those whose TryLock failed.
func (r *Ring) LockSlow() (tail uint64) {
	if explore.On {
		explore.Block(func() bool { return r.h.tail.Load()&lockBit == 0 }, false)
	}
	// Sections are shorter than queueing up for them.
	for range spinTurn / 2 {
		if tail, ok := r.TryLock(); ok {
			return tail
		}
	}
	// One contender at a time watches the bit; the others sleep in the mutex.
	r.slow.Lock()
	defer r.slow.Unlock()
	for i := 1; ; i++ {
		if tail, ok := r.TryLock(); ok {
			return tail
		}
		if i%spinTurn == 0 {
			runtime.Gosched()
		}
	}
}

// Unlock publishes the first n slots that the holder of the lock filled, and unlocks.
func (r *Ring) Unlock(n int) {
	fastlock.StoreRelease64(&r.h.tail, (r.h.tail.Load()>>1+uint64(n))<<1)
}

// Publish makes the first n filled slots visible and keeps the lock.
func (r *Ring) Publish(n int) {
	fastlock.StoreRelease64(&r.h.tail, (r.h.tail.Load()>>1+uint64(n))<<1|lockBit)
}

// Generation is the current one.
func (r *Ring) Generation() uint64 { return r.h.head.Load() & genMask }

// Free is the number of slots that can be filled. Holder of the lock only.
func (r *Ring) Free() int { return len(r.slots) - r.Len() }

// Queued counts the events; ok is false if the ring is frozen, and so its lock nobody's any more, or has not years to go. Holder of
// the lock only.
func (r *Ring) Queued(tail uint64) (n int, ok bool) {
	w := r.h.head.Load()
	return int(tail - w&posMask), w&frozen == 0 && tail < NearEnd
}

// Empty reports that the ring is in use and holds nothing. Holder of the lock only.
func (r *Ring) Empty(tail uint64) bool {
	w := r.h.head.Load()
	return w&frozen == 0 && w&posMask == tail
}

// Slot is the payload to fill for the event that is ahead places behind the last published
// one; ahead must be below Free. Fill it with Store. Holder of the lock only.
func (r *Ring) Slot(ahead int) *Payload {
	return &r.slots[(r.h.tail.Load()>>1+uint64(ahead))&r.mask]
}

// Ready returns the head word and how many events, up to max, are there to be claimed with it: 0
// if the ring is empty or frozen.
func (r *Ring) Ready(max int) (word uint64, n int) {
	w := r.h.head.Load()
	if w&frozen != 0 {
		return w, 0
	}
	return w, min(max, int(r.h.tail.Load()>>1-w&posMask))
}

// At is the slot of the event that is i places behind the head word's. Copy it with Load; the
// copy counts only when Claim succeeds.
func (r *Ring) At(word uint64, i int) *Payload { return &r.slots[(word+uint64(i))&r.mask] }

// Claim takes the n events at the head word. It reports false if somebody else took
// some, the ring was frozen or the generation has changed.
func (r *Ring) Claim(word uint64, n int) bool {
	return r.h.head.CompareAndSwap(word, word+uint64(n))
}

// Generation is the one of a head word, for comparison.
func Generation(word uint64) uint64 { return word & genMask }

// Turn changes the generation, so that claims with an earlier head word fail, and returns
// the new one. Holder of the lock only.
func (r *Ring) Turn() uint64 {
	for {
		w := r.h.head.Load()
		n := w&^genMask | (w+genStep)&genMask
		if r.h.head.CompareAndSwap(w, n) {
			return n & genMask
		}
	}
}

// Freeze makes every later claim fail. Holder of the lock only.
func (r *Ring) Freeze() { r.h.head.Or(frozen) }

// Frozen reports whether Freeze was called: the owner has moved on to another ring.
func (r *Ring) Frozen() bool { return r.h.head.Load()&frozen != 0 }

// MoveTo copies what a frozen ring still holds to an empty, locked ring that was made with the
// frozen one's Head as base, and returns the number of events to publish there. It
// carries the generation over. ok is false, and nothing moved, if there is no room.
// Holder of both locks only.
func (r *Ring) MoveTo(to *Ring) (n int, ok bool) {
	w := r.h.head.Load()
	n = int(r.h.tail.Load()>>1 - w&posMask)
	if n > to.Cap() {
		return 0, false
	}
	for i := range n {
		*to.Slot(i) = *r.At(w, i)
	}
	to.h.head.Store(w & genMask)
	return n, true
}

// Thaw undoes Freeze, for an owner that could not move on. Holder of the lock only.
func (r *Ring) Thaw() { r.h.head.And(^uint64(frozen)) }
