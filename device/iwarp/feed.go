package iwarp

import (
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kdapl/device/internal/softnic"
)

const (
	// maxListed is how many connections the polling of one CQ drives; the others have a waiter each.
	maxListed = 16
	// thinning is after how many rounds of a full list those leave it that had nothing meanwhile.
	thinning = 1024
	// emptyYield is after how many fruitless rounds a poller lets others run.
	emptyYield = 16
	// emptyCall is after how many it makes a system call; see wakeSystem.
	emptyCall = 1024
)

// feed is what a CQ knows of the connections that complete to it: a few that its consumer drives by
// polling.
//
// A connection that is listed needs no goroutine that waits for its input: as long as somebody polls,
// the netpoller need not be asked, and would only wake threads for input that has been
// read already. When polling ends, because the CQ is armed or because it simply stops, the connections
// get their waiters back.
type feed struct {
	cq    *softnic.CQ
	busy  atomic.Bool   // a Progress is at work
	polls atomic.Uint64 // calls of Progress
	// armings counts calls of Armed.
	armings atomic.Uint64
	idle    atomic.Bool // it was not polled between the last two ticks
	listed  atomic.Pointer[[]*conn]
	empty   uint // fruitless rounds; under busy

	mu     sync.Mutex // to change listed
	seen   uint64     // polls at the last tick; under the ticker's lock
	ticked bool       // known to the ticker; under its lock
}

func (d *driver) newFeed(cq *softnic.CQ) softnic.Feed {
	f := &feed{cq: cq}
	f.listed.Store(new([]*conn))
	return f
}

// Progress implements [softnic.Feed].
func (f *feed) Progress() bool {
	if !f.busy.CompareAndSwap(false, true) {
		return false
	}
	f.polls.Store(f.polls.Load() + 1)
	moved := false
	listed := *f.listed.Load()
	for _, c := range listed {
		if c.progress() {
			moved = true
			if !c.lively.Load() {
				c.lively.Store(true)
			}
		}
	}
	if len(listed) == maxListed && f.polls.Load()%thinning == 0 {
		f.thin(listed)
	}
	if moved {
		f.empty = 0
	} else if f.empty++; f.empty%emptyYield == 0 {
		runtime.Gosched()
		if f.empty%emptyCall == 0 {
			wakeSystem()
		}
	}
	f.busy.Store(false)
	return moved
}

// wakeSystem wakes the runtime's system monitor. With one processor, a poller that only yields keeps the scheduler from
// ever asking the network poller, since there is always a goroutine to run; so connections that are not listed depend on
// the monitor, which asks it every 10 ms. But that sleeps since the process was last idle, up to the next timer. A system call
// that the runtime knows of wakes it, unlike those of package netio; this one changes nothing.
func wakeSystem() { _, _ = syscall.Seek(syscall.Stdin, 0, io.SeekCurrent) }

// thin makes room on a full list for connections that have more to do.
func (f *feed) thin(listed []*conn) {
	for _, c := range listed {
		if !c.lively.Swap(false) {
			c.watch()
		}
	}
}

// Armed implements [softnic.Feed].
func (f *feed) Armed() {
	f.armings.Add(1) // first: see conn.list
	for _, c := range *f.listed.Load() {
		c.watch()
	}
}

// list adds a connection, if there is room.
func (f *feed) list(c *conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := *f.listed.Load()
	if slices.Contains(old, c) {
		return true
	}
	if len(old) >= maxListed {
		return false
	}
	f.listed.Store(new(append(slices.Clip(slices.Clone(old)), c)))
	return true
}

// unlist removes a connection.
func (f *feed) unlist(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := *f.listed.Load()
	if i := slices.Index(old, c); i >= 0 {
		f.listed.Store(new(slices.Delete(slices.Clone(old), i, i+1)))
	}
}

// ticker looks from time to time which feeds are still polled. It runs only while connections are
// listed.
type ticker struct {
	every   time.Duration
	mu      sync.Mutex
	feeds   []*feed
	timer   *time.Timer
	running bool
	stopped bool
}

// follow makes the ticker look after a feed.
func (t *ticker) follow(f *feed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.ticked || t.stopped {
		return
	}
	f.ticked, f.seen = true, f.polls.Load()
	f.idle.Store(false)
	t.feeds = append(t.feeds, f)
	if t.running {
		return
	}
	t.running = true
	if t.timer == nil {
		t.timer = time.AfterFunc(t.every, t.tick)
	} else {
		t.timer.Reset(t.every)
	}
}

func (t *ticker) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

func (t *ticker) tick() {
	var idle []*feed
	t.mu.Lock()
	kept := t.feeds[:0]
	for _, f := range t.feeds {
		if len(*f.listed.Load()) == 0 {
			f.ticked = false
			continue
		}
		n := f.polls.Load()
		f.idle.Store(n == f.seen)
		if f.seen = n; f.idle.Load() {
			idle = append(idle, f)
		}
		kept = append(kept, f)
	}
	clear(t.feeds[len(kept):])
	t.feeds = kept
	if t.running = len(kept) > 0 && !t.stopped; t.running {
		t.timer.Reset(t.every)
	}
	t.mu.Unlock()
	for _, f := range idle {
		for _, c := range *f.listed.Load() {
			c.release()
		}
	}
}
