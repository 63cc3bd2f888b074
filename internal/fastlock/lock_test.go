package fastlock

import (
	"runtime"
	"sync"
	"testing"
)

// What the lock protects is a plain counter: a lost update or a race report shows a fault. Long
// sections are among the short ones.
func TestMutexExcludes(t *testing.T) {
	var m Mutex
	var wg sync.WaitGroup
	n, inside := 0, 0
	const workers, rounds = 8, 5000
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				m.Lock()
				if inside++; inside != 1 {
					t.Errorf("%d holders", inside)
				}
				if long := w == 0 && i%100 == 0; long {
					m.Stay()
					runtime.Gosched()
					n++
					m.Move()
				} else {
					n++
				}
				inside--
				m.Unlock()
			}
		})
	}
	wg.Wait()
	if n != workers*rounds {
		t.Errorf("%d of %d updates", n, workers*rounds)
	}
}

func TestTryLock(t *testing.T) {
	var m Mutex
	if !m.TryLock() || m.TryLock() {
		t.Fatal("TryLock")
	}
	m.Unlock()
	if !m.TryLock() {
		t.Fatal("not released")
	}
}

func BenchmarkMutex(b *testing.B) {
	var m Mutex
	for b.Loop() {
		m.Lock()
		//lint:ignore SA2001 it is what is measured
		m.Unlock()
	}
}

// The yardstick.
func BenchmarkSyncMutex(b *testing.B) {
	var m sync.Mutex
	for b.Loop() {
		m.Lock()
		//lint:ignore SA2001 it is what is measured
		m.Unlock()
	}
}
