// Package foreign is what an EVD or CNO shares with a consumer that is written in another language: a
// control block that lies, as the EVD's ring does, in memory which that consumer's side supplies.
//
// With it the consumer takes events, and posts software events, without a call into Go. How to take one from the
// ring is in the document of package evring; the rules that the block adds:
//
//   - A bit in Status that forbids what is wanted: call Go, which knows the error.
//   - The ring is empty. So is the EVD if it has no CQ (FlagCQ), or if the word at Serial is still
//     what Seen says. Otherwise completions may lie in the CQ, and only Go can move them.
//   - With FlagHelp the adapter is faster if its consumers help it along. So a consumer that polls calls Go
//     now and then although there is nothing.
//   - A software event may be posted while fewer than Limit events are queued, under the ring's lock, which the
//     poster takes as a producer in Go does. Limit changes under that lock only. 0: call Go.
//   - Whoever waits sleeps until Wake differs from what it was before Go said that there is nothing.
package foreign

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Control is the block. Consumers know its layout; zero is its first state.
type Control struct {
	// Ring is the address of the ring's memory, in the form of package evring; 0 if there is none.
	Ring atomic.Uintptr
	// Serial is the address of a word that changes with each completion that the CQ gets; 0 if there is none.
	Serial atomic.Uintptr
	// Seen is what that word was when the CQ was found empty.
	Seen atomic.Uint64
	// Status is the EVD's; Flags do not change.
	Status atomic.Uint32
	Flags  atomic.Uint32
	// Limit is below how many queued events software events may be posted.
	Limit atomic.Uint32
	// Wake changes when a waiter is to look again.
	Wake atomic.Uint32
}

// Size is that of a Control.
const Size = unsafe.Sizeof(Control{})

// Bits of Control.Status.
const (
	// StatusFreed: the EVD is gone.
	StatusFreed = 1 << iota
	// StatusWaited: a waiter owns the events.
	StatusWaited
	// StatusUnwaitable: waits fail; dequeues do not.
	StatusUnwaitable
)

// Bits of Control.Flags.
const (
	// FlagCQ: the EVD has a CQ.
	FlagCQ = 1 << iota
	// FlagHelp: the consumer's calls help the adapter along.
	FlagHelp
)

// CQ is what the CQ of a device can do whose consumers see without a call that nothing has come.
type CQ interface {
	// Serial is a word that changes with each completion that is queued, and does not get back a value that
	// it had before one within any time that matters. It may change at other times too.
	Serial() *atomic.Uint64
	// Peek counts the queued completions, up to max.
	Peek(max int) int
}

// Consumer is the consumer in another language. The methods do nothing if it is nil.
type Consumer struct {
	// Control is in its memory, and zero.
	Control *Control
	// Notify wakes whoever sleeps until Control.Wake changes. It is called after the change, may be called with locks
	// held, and must not block.
	Notify func()

	pin    runtime.Pinner
	cq     CQ
	serial *atomic.Uint64
}

// Signal makes a waiter look again.
func (c *Consumer) Signal() {
	if c != nil {
		c.Control.Wake.Add(1)
		c.Notify()
	}
}

// Mark sets or clears bits of the status.
func (c *Consumer) Mark(bits uint32, on bool) {
	switch {
	case c == nil:
	case on:
		c.Control.Status.Or(bits)
	default:
		c.Control.Status.And(^bits)
	}
}

// Watch tells the consumer of the EVD's CQ, and whether to poll it helps the adapter along.
func (c *Consumer) Watch(cq any, helps bool) {
	c.Control.Flags.Or(FlagCQ)
	if helps {
		c.Control.Flags.Or(FlagHelp)
	}
	var ok bool
	if c.cq, ok = cq.(CQ); !ok {
		return
	}
	c.serial = c.cq.Serial()
	c.pin.Pin(c.serial)
	c.Control.Seen.Store(c.serial.Load() + 1)
	c.Control.Serial.Store(uintptr(unsafe.Pointer(c.serial)))
}

// Settled tells the consumer that the CQ is empty, if it is. Completions leave it under the caller's lock only.
func (c *Consumer) Settled() {
	if c.serial == nil {
		return
	}
	// A completion that comes between the two looks makes the first one old.
	if w := c.serial.Load(); c.cq.Peek(1) == 0 {
		c.Control.Seen.Store(w)
	}
}

// End takes back what the block says of the EVD. The consumer may look at it later.
func (c *Consumer) End() {
	if c == nil {
		return
	}
	c.Control.Limit.Store(0)
	c.Control.Ring.Store(0)
	c.Control.Serial.Store(0)
	c.pin.Unpin()
}

// Wait is a wait of such a consumer in steps. Each step looks, and may tell to sleep.
type Wait struct {
	// Threshold is how many events are waited for; 1 at a CNO.
	Threshold int
	// Started: there was a step before.
	Started bool
	// Expired: the time is up, so this is the last step.
	Expired bool
	// Sleep is the answer: sleep until Control.Wake is not Word any more, then make another step.
	Sleep bool
	Word  uint32
}
