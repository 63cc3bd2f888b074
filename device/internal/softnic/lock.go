package softnic

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// lock is a mutex for short sections: one atomic exchange takes it, one store that is ordered behind
// the section releases it, where sync.Mutex needs an exchange for both. The price is that a
// release wakes nobody: of those who wait, one watches the word and yields in turn, the others sleep
// behind it. A section that takes long says so, and then the watcher sleeps as well.
type lock struct {
	word atomic.Uint32
	turn sync.Mutex // the right to watch the word
	long sync.Mutex // held during long sections
}

// The states of the word.
const (
	lockFree = iota
	lockHeld
	lockLong
)

// lockSpins is how often a watcher looks before it yields.
const lockSpins = 32

func (l *lock) Lock() {
	if !l.word.CompareAndSwap(lockFree, lockHeld) {
		l.lockSlow()
	}
}

func (l *lock) lockSlow() {
	l.turn.Lock()
	for i := 1; !l.word.CompareAndSwap(lockFree, lockHeld); i++ {
		if l.word.Load() == lockLong {
			l.long.Lock()
			l.long.Unlock()
		} else if i%lockSpins == 0 {
			runtime.Gosched()
		}
	}
	l.turn.Unlock()
}

// TryLock takes the lock if it is free.
func (l *lock) TryLock() bool { return l.word.CompareAndSwap(lockFree, lockHeld) }

// Unlock releases the lock.
func (l *lock) Unlock() { storeRelease(&l.word, lockFree) }

// stay announces that the holder keeps the lock for long, until it calls move or Unlock after it.
func (l *lock) stay() {
	l.long.Lock()
	l.word.Store(lockLong)
}

func (l *lock) move() {
	l.word.Store(lockHeld)
	l.long.Unlock()
}
