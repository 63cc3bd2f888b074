package gate

import (
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func never(time.Time) (bool, time.Time) { return false, time.Time{} }

func TestWaitEndsWhenConditionBecomesTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		g := New()
		set := false
		done := make(chan error, 1)
		go func() {
			mu.Lock()
			defer mu.Unlock()
			done <- g.Wait(&mu, func(time.Time) (bool, time.Time) { return set, time.Time{} })
		}()
		synctest.Wait()
		g.Open() // a wake-up without the condition does not end the wait
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Wait returned %v before its condition was true", err)
		default:
		}
		mu.Lock()
		set = true
		mu.Unlock()
		g.Open()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestOpenBeforeWaitIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		g := New()
		calls := 0
		mu.Lock()
		defer mu.Unlock()
		err := g.Wait(&mu, func(time.Time) (bool, time.Time) {
			calls++
			if calls == 1 {
				g.Open() // between the check and the sleep
			}
			return calls == 2, time.Time{}
		})
		if err != nil || calls != 2 {
			t.Fatalf("err %v after %d checks", err, calls)
		}
	})
}

func TestDeadlineEndsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		g := New()
		start := time.Now()
		mu.Lock()
		defer mu.Unlock()
		g.SetDeadline(start.Add(time.Second))
		if err := g.Wait(&mu, never); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("err %v", err)
		}
		if d := time.Since(start); d != time.Second {
			t.Fatalf("waited %v", d)
		}
		// An expired deadline wins over a true condition.
		if err := g.Wait(&mu, func(time.Time) (bool, time.Time) { return true, time.Time{} }); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("err %v", err)
		}
	})
}

func TestDeadlineMovesUnderTheWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		g := New()
		start := time.Now()
		done := make(chan error, 1)
		mu.Lock()
		g.SetDeadline(start.Add(time.Hour))
		mu.Unlock()
		go func() {
			mu.Lock()
			defer mu.Unlock()
			done <- g.Wait(&mu, never)
		}()
		synctest.Wait()
		mu.Lock()
		g.SetDeadline(start.Add(time.Minute))
		mu.Unlock()
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("err %v", err)
		}
		if d := time.Since(start); d != time.Minute {
			t.Fatalf("waited %v", d)
		}
	})
}

func TestConditionTrueAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		g := New()
		start := time.Now()
		at := start.Add(3 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		g.SetDeadline(start.Add(time.Minute))
		for range 2 { // the second time the condition holds at once
			if err := g.Wait(&mu, func(now time.Time) (bool, time.Time) { return !now.Before(at), at }); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d != 3*time.Second {
				t.Fatalf("waited %v", d)
			}
		}
	})
}

func TestWaitDoesNotAllocate(t *testing.T) {
	var mu sync.Mutex
	g := New()
	mu.Lock()
	defer mu.Unlock()
	g.SetDeadline(time.Now().Add(time.Hour))
	n := 0
	ready := func(time.Time) (bool, time.Time) { n++; return n%2 == 0, time.Time{} }
	if a := testing.AllocsPerRun(100, func() {
		g.Open()
		if err := g.Wait(&mu, ready); err != nil {
			t.Fatal(err)
		}
	}); a != 0 {
		t.Fatalf("%v allocations a wait", a)
	}
}
