package dat

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"kdapl/device/loop"
)

// busy is an adapter's part that always has something to do, for others.
type busy struct{ turns int }

func (b *busy) Progress() bool { b.turns++; return true }

// A wait ends with its time and its context, also with an adapter that is never done and after a wake-up for an
// event that somebody else took.
func TestWaitsEndWhateverTheAdapterDoes(t *testing.T) {
	ia, err := Open(loop.New(loop.Config{}), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer ia.Close(context.Background(), CloseAbrupt)
	for what, disturb := range map[string]func(*EVD){
		"an adapter that is never done": func(e *EVD) { e.helper = &busy{} },
		"a wake-up for nothing":         func(e *EVD) { e.waiter.signal() },
	} {
		for _, byContext := range []bool{false, true} {
			e, err := ia.NewEVD(EVDConfig{MinLen: 8, Streams: StreamSoftware})
			if err != nil {
				t.Fatal(err)
			}
			disturb(e)
			ctx, timeout, want := context.Background(), time.Millisecond, error(TimeoutExpired)
			if byContext {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
				timeout, want = Infinite, InterruptedCall
			}
			done := make(chan error, 1)
			go func() {
				_, _, err := e.Wait(ctx, 1, timeout)
				done <- err
			}()
			select {
			case err := <-done:
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", what, err, want)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s: the wait has no end", what)
			}
		}
	}
}

// A wait that begins while its IA closes is aborted too, although the EVD was made waitable again.
func TestAWaitThatBeginsDuringTheCloseIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ia, err := Open(loop.New(loop.Config{}), Config{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := ia.NewEVD(EVDConfig{MinLen: 8, Streams: StreamSoftware})
		if err != nil {
			t.Fatal(err)
		}
		e.abort() // the first step of the close
		if err := e.ClearUnwaitable(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, _, err := e.Wait(context.Background(), 1, Infinite)
			done <- err
		}()
		synctest.Wait()
		e.abandon() // the last one
		synctest.Wait()
		select {
		case err := <-done:
			if !errors.Is(err, Abort) {
				t.Error(err)
			}
		default:
			t.Fatal("the wait goes on")
		}
		if err := ia.Close(context.Background(), CloseAbrupt); err != nil {
			t.Error(err)
		}
	})
}
