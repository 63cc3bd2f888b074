// Package fastlock is a mutex for short sections, and the ordered store that it is made of.
package fastlock

import (
	"runtime"
	"sync"
	"sync/atomic"

	"kdapl/internal/explore"
)

// Mutex is a lock for short sections: one atomic exchange takes it, one store that is ordered behind
// the section releases it, where sync.Mutex needs an exchange for both. The price is that a
// release wakes nobody: of those who wait, one watches the word and yields in turn, the
// others sleep behind it. A section that takes long says so with Stay, and then the watcher
// sleeps as well. The zero value is an unlocked Mutex.
type Mutex struct {
	word atomic.Uint32
	turn sync.Mutex // the right to watch the word
	long sync.Mutex // held during long sections
}

// The states of the word.
const (
	free = iota
	held
	heldLong
)

// spins is how often a watcher looks before it yields.
const spins = 32

// Lock takes the lock.
func (m *Mutex) Lock() {
	if !m.word.CompareAndSwap(free, held) {
		m.lockSlow()
	}
}

func (m *Mutex) lockSlow() {
	if explore.On {
		explore.Block(func() bool { return m.word.Load() == free }, false)
	}
	// Most sections are shorter than queueing up for them.
	for range spins {
		if m.word.Load() == free && m.word.CompareAndSwap(free, held) {
			return
		}
	}
	m.turn.Lock()
	for i := 1; !m.word.CompareAndSwap(free, held); i++ {
		if i%spins == 0 || m.word.Load() == heldLong {
			m.Yield()
		}
	}
	m.turn.Unlock()
}

// Yield lets others run, until a long section that is under way ends: it is for those who try
// again and again to take the lock, or to see it free.
func (m *Mutex) Yield() {
	if m.word.Load() == heldLong {
		m.long.Lock()
		//lint:ignore SA2001 to have waited is all
		m.long.Unlock()
		return
	}
	runtime.Gosched()
}

// TryLock takes the lock if it is free.
func (m *Mutex) TryLock() bool { return m.word.CompareAndSwap(free, held) }

// Unlock releases the lock.
func (m *Mutex) Unlock() { StoreRelease32(&m.word, free) }

// Stay announces that the holder keeps the lock for long, until it calls Move.
func (m *Mutex) Stay() {
	m.long.Lock()
	m.word.Store(heldLong)
}

// Move ends what Stay began; the lock is still held.
func (m *Mutex) Move() {
	m.word.Store(held)
	m.long.Unlock()
}
