package iwarp

// trust decides whether input may be left to those who poll. A consumer that polls a CQ once for each of its own
// requests, and otherwise looks at memory that the peer writes to, would wait for the ticker with every message. So who
// stopped polling, and did not go to sleep, is not relied upon for a while, which doubles each time.
//
// Numbers count how often input came to the connection.
type trust struct {
	left  uint64 // when it was left to those who poll
	until uint64 // until when it is not
	pause uint64
}

const (
	// trustEarned is how often those who poll have to find input to be relied upon again at once.
	trustEarned = 64
	minPause    = 16
	maxPause    = 4096
)

// granted reports whether input may be left to them.
func (t *trust) granted(now uint64) bool { return now >= t.until }

// deserted notes that they have stopped without going to sleep.
func (t *trust) deserted(now uint64) {
	if now-t.left >= trustEarned {
		t.pause = 0
		return
	}
	t.pause = min(max(2*t.pause, minPause), maxPause)
	t.until = now + t.pause
}
