package iwarp

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"kdapl/verbs"
)

func TestWhoStopsPollingIsTrustedLess(t *testing.T) {
	var tr trust
	now := uint64(100)
	for _, pause := range []uint64{16, 32, 64} {
		if !tr.granted(now) {
			t.Fatalf("not trusted at %d", now)
		}
		tr.left = now
		now += 3
		tr.deserted(now)
		if tr.granted(now + pause - 1) {
			t.Fatalf("trusted again before %d", pause)
		}
		now += pause
	}
	tr.left = now
	now += trustEarned
	if tr.deserted(now); !tr.granted(now) {
		t.Fatal("one that has found much is not trusted")
	}
	tr.left = now
	if tr.deserted(now); tr.granted(now+minPause-1) || !tr.granted(now+minPause) {
		t.Fatal("the pause does not start over")
	}
}

// Two consumers that look at memory, and poll only for what they have posted, do not wait for the ticker each time.
func TestConsumersMayPollMemory(t *testing.T) {
	const trips, tick = 400, 50 * time.Millisecond
	cfg := Config{tick: tick}
	a, b := newEnd(t, New(cfg), 16, 64), newEnd(t, New(cfg), 16, 64)
	connect(t, a, b)
	// Unless trusted less, a trip takes half a tick or more.
	deadline := time.Now().Add(trips * tick / 4)
	side := func(e, peer *end, first bool) {
		word := (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(e.buf)))
		write := func(i uint64) {
			(*atomic.Uint64)(unsafe.Pointer(&e.buf[8])).Store(i)
			_, err := e.qp.PostSend([]verbs.SendWR{{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, NumSGE: 1, SGE: [8]verbs.SGE{e.sge(8, 8)}, RemoteAddr: 0x10000, RemoteKey: peer.mr.RKey()}})
			if err != nil {
				t.Error(err)
			}
			var c [2]verbs.Completion
			e.sendCQ.Poll(c[:])
			e.sendCQ.(verbs.Progresser).Progress() // as one who polls until there is nothing
		}
		for i := uint64(1); i <= trips; i++ {
			if first {
				write(i)
			}
			for word.Load() != i {
				if time.Now().After(deadline) {
					t.Errorf("only %d of %d round trips", i, trips)
					return
				}
				time.Sleep(10 * time.Microsecond) // to spin would keep the runtime from asking for input
			}
			if !first {
				write(i)
			}
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		side(b, a, false)
	}()
	side(a, b, true)
	<-done
}
