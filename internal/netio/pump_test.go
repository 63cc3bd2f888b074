package netio

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// What the pump holds is bounded: a consumer that does not read holds back the peer.
func TestPumpHoldsBackThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		c := newPumpConn(x)
		defer c.Close()
		defer y.Close()
		sent := make(chan int, 1)
		go func() {
			n, _ := y.Write(make([]byte, 10*pumpBuffer))
			sent <- n
		}()
		synctest.Wait()
		if c.in.Len() != pumpBuffer {
			t.Fatalf("holds %d bytes, want %d", c.in.Len(), pumpBuffer)
		}
		y.Close()
		if n := <-sent; n != pumpBuffer {
			t.Fatalf("peer got rid of %d bytes, want %d", n, pumpBuffer)
		}
	})
}

// Close goes on delivering, but only for pumpLinger if the peer takes nothing.
func TestPumpCloseLingersABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		c := newPumpConn(x)
		defer y.Close()
		if _, err := c.TryWritev([][]byte{make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 0 {
			t.Fatalf("Close blocked for %v", d)
		}
		// The bubble ends when every goroutine has: the first read comes too late for the bytes.
		time.Sleep(pumpLinger + 1)
		synctest.Wait()
		if n, err := y.Read(make([]byte, 10)); n != 0 || err != io.EOF {
			t.Fatalf("%d, %v", n, err)
		}
	})
}

// A pipe closed by the peer is an end for the reader and a reset for the writer.
func TestPumpReportsAClosedPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		c := newPumpConn(x)
		defer c.Close()
		y.Close()
		synctest.Wait()
		if _, err := c.TryReadv([][]byte{make([]byte, 1)}); err != io.EOF {
			t.Fatalf("read: %v", err)
		}
		if n, err := c.TryWritev([][]byte{{1}}); n != 1 || err != nil { // not known yet, as with a socket
			t.Fatalf("write: %d, %v", n, err)
		}
		synctest.Wait()
		if err := c.WaitWritable(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.TryWritev([][]byte{{1}}); !errors.Is(err, ErrReset) {
			t.Fatalf("write: %v", err)
		}
		if err := c.CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("CloseWrite: %v", err)
		}
	})
}

// Abort does not deliver what is queued, and leaves nothing behind, also in the middle of a write.
func TestPumpAbortDropsWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		c := newPumpConn(x)
		if _, err := c.TryWritev([][]byte{bytes.Repeat([]byte{1}, 1000)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := c.Abort(); err != nil {
			t.Fatal(err)
		}
		if n, err := y.Read(make([]byte, 10)); n != 0 || err != io.EOF {
			t.Fatalf("%d, %v", n, err)
		}
	})
}
