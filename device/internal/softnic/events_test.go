package softnic

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestEventsComeInOrderAndOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		var busy atomic.Int32
		e := Events[int]{}
		e.Do = func(n int) {
			if busy.Add(1) != 1 {
				t.Error("two at once")
			}
			got = append(got, n)
			if n == 3 {
				e.Post(100) // from the callback
			}
			busy.Add(-1)
		}
		var want []int
		for i := range 50 {
			e.Post(i)
			want = append(want, i)
			if i%7 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if i := slices.Index(got, 100); i < 0 {
			t.Error("an event from the callback is lost")
		} else {
			got = slices.Delete(got, i, i+1)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
	})
}

func TestEventsGoOnWhenACallbackExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		e := Events[int]{Do: func(int) {
			n++
			runtime.Goexit()
		}}
		for i := range 5 {
			e.Post(i)
		}
		synctest.Wait()
		e.Post(5)
		synctest.Wait()
		if n != 6 {
			t.Errorf("%d of 6 events", n)
		}
	})
}

func TestFinishDeliversTheRestBeforeItReturns(t *testing.T) {
	for range 200 {
		var got []int
		var mu sync.Mutex
		started := make(chan bool, 10)
		e := Events[int]{Do: func(n int) {
			started <- true
			mu.Lock()
			got = append(got, n)
			mu.Unlock()
		}}
		e.Post(1)
		e.Finish()
		<-started // at the latest now it is in progress
		if e.Post(2) {
			t.Fatal("an event after the end")
		}
		mu.Lock()
		if len(got) > 1 {
			t.Fatal(got)
		}
		mu.Unlock()
	}
}

func TestFinishDoesNotWaitForACallInProgress(t *testing.T) {
	started, release := make(chan bool), make(chan bool)
	var got []int
	e := Events[int]{Do: func(n int) {
		if n == 1 {
			started <- true
			<-release
		}
		got = append(got, n)
		if n == 2 {
			close(started)
		}
	}}
	e.Post(1)
	<-started
	e.Post(2)
	e.Finish() // must return
	close(release)
	<-started // the call in progress goes on to the rest
	if !slices.Equal(got, []int{1, 2}) {
		t.Error(got)
	}
}

func TestFinishInTheOwnCallbackIsTheLastWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		e := new(Events[int])
		e.Do = func(n int) {
			got = append(got, n)
			e.Post(n + 1)
			if n == 3 {
				deep(100, e.Finish)
			}
		}
		e.Post(1)
		synctest.Wait()
		if !slices.Equal(got, []int{1, 2, 3}) {
			t.Error(got)
		}
	})
}

// deep calls f further down the stack than one look at it reaches.
func deep(n int, f func()) {
	if n == 0 {
		f()
		return
	}
	deep(n-1, f)
	runtime.KeepAlive(n)
}

func TestCloseReturnsWhatWasNotDelivered(t *testing.T) {
	block, started := make(chan bool), make(chan bool)
	e := Events[int]{Do: func(int) { started <- true; <-block }}
	e.Post(1)
	<-started
	e.Post(2)
	e.Post(3)
	if rest := e.Close(); !slices.Equal(rest, []int{2, 3}) {
		t.Error(rest)
	}
	close(block)
	if e.Post(4) {
		t.Error("an event after the end")
	}
}

// Who holds an event delivers it in its own stack, and those that are posted meanwhile behind it.
func TestAHeldEventIsDeliveredByItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		e := Events[int]{Do: func(n int) { got = append(got, n) }}
		mine, ok := e.Hold(1)
		if !mine || !ok {
			t.Fatal("nobody delivers, and it is not the caller's", mine, ok)
		}
		if mine, ok := e.Hold(2); mine || !ok {
			t.Fatal("two deliver", mine, ok)
		}
		e.Post(3)
		synctest.Wait()
		if got != nil {
			t.Fatal("delivered before the holder came to it", got)
		}
		e.Deliver()
		if !slices.Equal(got, []int{1, 2, 3}) {
			t.Error(got)
		}
		e.Post(4)
		synctest.Wait()
		if !slices.Equal(got, []int{1, 2, 3, 4}) {
			t.Error("after the holder:", got)
		}
	})
}

// A callback that leaves by runtime.Goexit takes the holder along, and the rest is delivered all the same.
func TestEventsGoOnWhenACallbackEndsItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		e := Events[int]{Do: func(n int) {
			got = append(got, n)
			runtime.Goexit()
		}}
		go func() {
			e.Hold(1)
			e.Hold(2)
			e.Deliver()
		}()
		synctest.Wait()
		if !slices.Equal(got, []int{1, 2}) {
			t.Error(got)
		}
	})
}

// Between an event and its delivery the object may end: then its end has delivered, or dropped, it.
func TestTheEndComesBeforeTheHolder(t *testing.T) {
	var got []int
	e := Events[int]{Do: func(n int) { got = append(got, n) }}
	e.Hold(1)
	e.Finish()
	e.Deliver()
	if !slices.Equal(got, []int{1}) {
		t.Error(got)
	}
	if mine, ok := e.Hold(2); mine || ok {
		t.Error("an event after the end")
	}
	f := Events[int]{Do: func(int) { t.Error("a dropped event was delivered") }}
	f.Hold(1)
	if rest := f.Close(); !slices.Equal(rest, []int{1}) {
		t.Error(rest)
	}
	f.Deliver()
}
