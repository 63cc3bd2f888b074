package netiotest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"kdapl/internal/netio"
)

func emptyRead(t *testing.T, _ *Suite, a, _ netio.Conn) {
	if n, err := a.TryReadv([][]byte{make([]byte, 8)}); n != 0 || err != netio.ErrWouldBlock {
		t.Fatalf("%d, %v; want ErrWouldBlock itself", n, err)
	}
}

func nothingToMove(t *testing.T, _ *Suite, a, b netio.Conn) {
	write(t, a, []byte("x"))
	for _, bufs := range [][][]byte{nil, {}, {nil}, {{}, nil, {}}} {
		if n, err := b.TryReadv(bufs); n != 0 || err != nil {
			t.Errorf("TryReadv(%v): %d, %v", bufs, n, err)
		}
		if n, err := b.TryWritev(bufs); n != 0 || err != nil {
			t.Errorf("TryWritev(%v): %d, %v", bufs, n, err)
		}
	}
	if got := read(t, b, 1); string(got) != "x" {
		t.Fatalf("read %q", got)
	}
}

func order(t *testing.T, _ *Suite, a, b netio.Conn) {
	rng := rand.New(rand.NewPCG(1, 2))
	var want []byte
	for round := range 200 {
		var bufs [][]byte
		for range rng.IntN(5) {
			p := make([]byte, rng.IntN(100))
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			bufs = append(bufs, p)
		}
		if round == 100 { // more buffers than any system call takes
			for range 3000 {
				bufs = append(bufs, []byte{byte(rng.Uint32())})
			}
		}
		for total(bufs) > 0 {
			n, err := a.TryWritev(bufs)
			if err != nil {
				t.Fatal(err)
			}
			if n <= 0 || n > total(bufs) {
				t.Fatalf("wrote %d of %d", n, total(bufs))
			}
			for n > 0 {
				k := min(n, len(bufs[0]))
				want = append(want, bufs[0][:k]...)
				bufs[0] = bufs[0][k:]
				n -= k
				if len(bufs[0]) == 0 {
					bufs = bufs[1:]
				}
			}
			for len(bufs) > 0 && len(bufs[0]) == 0 {
				bufs = bufs[1:]
			}
		}
		for len(want) > 0 {
			x, y := make([]byte, rng.IntN(50)), make([]byte, 1+rng.IntN(50))
			n, err := b.TryReadv([][]byte{x, nil, y})
			if err == netio.ErrWouldBlock {
				if err := b.WaitReadable(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if n <= 0 || n > len(x)+len(y) || n > len(want) {
				t.Fatalf("read %d into %d+%d with %d under way", n, len(x), len(y), len(want))
			}
			k := min(n, len(x))
			if !bytes.Equal(x[:k], want[:k]) || !bytes.Equal(y[:n-k], want[k:n]) {
				t.Fatal("wrong bytes")
			}
			want = want[n:]
		}
	}
}

func total(bufs [][]byte) (n int) {
	for _, b := range bufs {
		n += len(b)
	}
	return n
}

func backpressure(t *testing.T, _ *Suite, a, b netio.Conn) {
	const bound = 256 << 20
	chunk := make([]byte, 1<<20)
	taken, partial := 0, false
	for {
		n, err := a.TryWritev([][]byte{chunk[:len(chunk)/2], chunk[len(chunk)/2:]})
		if err == netio.ErrWouldBlock {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		partial = partial || n < len(chunk)
		if taken += n; taken > bound {
			t.Fatal("takes bytes without bound")
		}
	}
	if taken == 0 || !partial {
		t.Fatalf("%d bytes taken, partial %v", taken, partial)
	}
	read(t, b, taken) // all of it arrives, and makes room again
	if err := a.WaitWritable(); err != nil {
		t.Fatal(err)
	}
	write(t, a, []byte("more"))
	if got := read(t, b, 4); string(got) != "more" {
		t.Fatalf("read %q", got)
	}
}

func waitIsLevel(t *testing.T, _ *Suite, a, b netio.Conn) {
	write(t, a, []byte("xy"))
	for range 3 {
		if err := b.WaitReadable(); err != nil {
			t.Fatal(err)
		}
	}
	read(t, b, 1)
	if err := b.WaitReadable(); err != nil { // for the other byte
		t.Fatal(err)
	}
	for range 3 {
		if err := a.WaitWritable(); err != nil {
			t.Fatal(err)
		}
	}
}

func waitWakes(t *testing.T, _ *Suite, a, b netio.Conn) {
	for range 100 {
		woken := make(chan error, 1)
		go func() { woken <- b.WaitReadable() }()
		write(t, a, []byte("x"))
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		read(t, b, 1)
	}
}

// overtake is a polling consumer: it reads while another goroutine sleeps in WaitReadable.
func overtake(t *testing.T, _ *Suite, a, b netio.Conn) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer b.Close()
	wg.Go(func() {
		for b.WaitReadable() == nil {
			time.Sleep(time.Microsecond) // fake time stands still while anybody runs
		}
	})
	for i := range 100 {
		write(t, a, []byte{byte(i)})
		got := make([]byte, 1)
		for start := time.Now(); ; {
			n, err := b.TryReadv([][]byte{got})
			if n == 1 {
				break
			}
			if err != netio.ErrWouldBlock {
				t.Fatal(err)
			}
			if time.Since(start) > patience {
				t.Fatal("the byte never came")
			}
			time.Sleep(time.Microsecond)
		}
		if got[0] != byte(i) {
			t.Fatalf("read %d, want %d", got[0], i)
		}
	}
}

func endWaits(t *testing.T, a netio.Conn, end func() error) {
	errs := make(chan error, 2)
	go func() { errs <- a.WaitReadable() }()
	go func() { errs <- writeUntil(a) }()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, "a wait", <-errs)
	wantClosed(t, "a wait", <-errs)
}

func afterClose(t *testing.T, s *Suite, a, _ netio.Conn) {
	local, remote := a.LocalAddr(), a.RemoteAddr()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := a.TryReadv([][]byte{make([]byte, 1)})
	wantClosed(t, "TryReadv", err)
	_, err = a.TryWritev([][]byte{{1}})
	wantClosed(t, "TryWritev", err)
	wantClosed(t, "WaitReadable", a.WaitReadable())
	wantClosed(t, "WaitWritable", a.WaitWritable())
	wantClosed(t, "SetReadDeadline", a.SetReadDeadline(time.Time{}))
	wantClosed(t, "SetWriteDeadline", a.SetWriteDeadline(time.Time{}))
	if !s.NoHalfClose {
		wantClosed(t, "CloseWrite", a.CloseWrite())
	}
	if err := a.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := a.Abort(); err != nil {
		t.Errorf("Abort after Close: %v", err)
	}
	if a.LocalAddr() != local || a.RemoteAddr() != remote {
		t.Error("addresses are gone")
	}
	if a.MSS() != netio.DefaultMSS {
		t.Errorf("MSS %d", a.MSS())
	}
}

func closeDelivers(t *testing.T, _ *Suite, a, b netio.Conn) {
	msg := bytes.Repeat([]byte("last words "), 300)
	write(t, a, msg)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, b, len(msg)); !bytes.Equal(got, msg) {
		t.Fatal("wrong bytes")
	}
	for range 2 {
		if err := readEnd(t, b); err != io.EOF {
			t.Fatalf("%v, want io.EOF", err)
		}
	}
}

func halfClose(t *testing.T, _ *Suite, a, b netio.Conn) {
	write(t, a, []byte("bye"))
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.TryWritev([][]byte{{1}}); !errors.Is(err, netio.ErrReset) {
		t.Errorf("write after CloseWrite: %v", err)
	}
	if err := a.WaitWritable(); err != nil { // there is an error to fetch
		t.Error(err)
	}
	if got := read(t, b, 3); string(got) != "bye" {
		t.Fatalf("read %q", got)
	}
	for range 2 {
		if err := readEnd(t, b); err != io.EOF {
			t.Fatalf("%v, want io.EOF", err)
		}
		if err := b.WaitReadable(); err != nil {
			t.Fatal(err)
		}
	}
	msg := bytes.Repeat([]byte("the other way "), 1000) // still open
	go func() {
		write(t, b, msg)
		if err := b.CloseWrite(); err != nil {
			t.Error(err)
		}
	}()
	if got := read(t, a, len(msg)); !bytes.Equal(got, msg) {
		t.Fatal("wrong bytes")
	}
	if err := readEnd(t, a); err != io.EOF {
		t.Fatalf("%v, want io.EOF", err)
	}
}

func abort(t *testing.T, s *Suite, a, b netio.Conn) {
	write(t, a, []byte("lost or not"))
	if err := a.Abort(); err != nil {
		t.Fatal(err)
	}
	// What came before the reset may be read or lost.
	err := drain(t, b)
	for range 2 {
		var e *netio.Error
		if !errors.As(err, &e) || !errors.Is(err, netio.ErrReset) || errors.Is(err, netio.ErrTimedOut) {
			t.Fatalf("%v, want a reset", err)
		}
		if !s.NoAddresses && (e.Local != b.LocalAddr() || e.Remote != b.RemoteAddr()) {
			t.Fatalf("%v lacks the addresses", e)
		}
		if err := b.WaitReadable(); err != nil {
			t.Fatal(err)
		}
		_, err = b.TryReadv([][]byte{make([]byte, 16)})
	}
	if _, err := b.TryWritev([][]byte{{1}}); !errors.Is(err, netio.ErrReset) {
		t.Fatalf("write: %v", err)
	}
}

// drain reads on until there is an error and reports it.
func drain(t *testing.T, c netio.Conn) error {
	t.Helper()
	p := make([]byte, 64<<10)
	for {
		_, err := c.TryReadv([][]byte{p})
		if err == netio.ErrWouldBlock {
			err = c.WaitReadable()
		}
		if err != nil {
			return err
		}
	}
}

func resetSeenByWriter(t *testing.T, _ *Suite, a, b netio.Conn) {
	if err := a.Abort(); err != nil {
		t.Fatal(err)
	}
	var err error
	for p := make([]byte, 1000); err == nil; {
		if _, err = b.TryWritev([][]byte{p}); err == netio.ErrWouldBlock {
			err = b.WaitWritable()
		}
	}
	if !errors.Is(err, netio.ErrReset) {
		t.Fatalf("write: %v", err)
	}
	for range 2 {
		if err := drain(t, b); !errors.Is(err, netio.ErrReset) {
			t.Fatalf("read: %v, want a reset", err)
		}
	}
}

func deadline(t *testing.T, _ *Suite, a, b netio.Conn) {
	start := time.Now()
	const wait = 10 * time.Millisecond
	if err := errors.Join(a.SetReadDeadline(start.Add(wait)), a.SetWriteDeadline(start.Add(wait))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.WaitReadable(); err != os.ErrDeadlineExceeded {
			t.Fatalf("WaitReadable: %v", err)
		}
		if err := writeUntil(a); err != os.ErrDeadlineExceeded {
			t.Fatalf("WaitWritable: %v", err)
		}
	}
	if d := time.Since(start); d < wait {
		t.Fatalf("over after %v", d)
	}
	// A deadline says nothing about calls that do not wait, and wins over readiness.
	write(t, b, []byte("x"))
	if err := a.WaitReadable(); err != os.ErrDeadlineExceeded {
		t.Fatalf("WaitReadable: %v", err)
	}
	for {
		if n, err := a.TryReadv([][]byte{make([]byte, 1)}); n == 1 {
			break
		} else if err != netio.ErrWouldBlock {
			t.Fatal(err)
		}
		if time.Since(start) > patience {
			t.Fatal("the byte never came")
		}
		time.Sleep(time.Millisecond)
	}
	if err := a.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	write(t, b, []byte("y"))
	if err := a.WaitReadable(); err != nil {
		t.Fatal(err)
	}
}

func deadlineMoves(t *testing.T, _ *Suite, a, _ netio.Conn) {
	errs := make(chan error, 2)
	go func() { errs <- a.WaitReadable() }()
	go func() { errs <- writeUntil(a) }()
	past := time.Unix(1, 0)
	if err := errors.Join(a.SetReadDeadline(past), a.SetWriteDeadline(past)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-errs; err != os.ErrDeadlineExceeded {
			t.Fatal(err)
		}
	}
}

func addresses(t *testing.T, _ *Suite, a, b netio.Conn) {
	if !a.LocalAddr().IsValid() || a.LocalAddr().Port() == 0 || a.LocalAddr() != b.RemoteAddr() || a.RemoteAddr() != b.LocalAddr() {
		t.Fatalf("%v to %v, and %v to %v", a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr())
	}
}

func mss(t *testing.T, _ *Suite, a, b netio.Conn) {
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 100 {
				if n := a.MSS(); n < 500 || n > 65536 {
					t.Errorf("MSS %d", n)
				}
			}
		})
	}
	wg.Wait()
}

func duplex(t *testing.T, _ *Suite, a, b netio.Conn) {
	const size = 1 << 20
	var wg sync.WaitGroup
	defer wg.Wait()
	for dir, ends := range [][2]netio.Conn{{a, b}, {b, a}} {
		from, to, seed := ends[0], ends[1], uint64(dir)
		data := make([]byte, size)
		rng := rand.New(rand.NewPCG(seed, 0))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for rest := data; len(rest) > 0; {
				x := rest[:min(len(rest), rng.IntN(20000))]
				y := rest[len(x):][:min(len(rest)-len(x), 1+rng.IntN(20000))]
				n, err := from.TryWritev([][]byte{x, y})
				if err == netio.ErrWouldBlock {
					err = from.WaitWritable()
				}
				if err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
		})
		// Two readers share the receiving end as a device's do: who has the token reads.
		var token sync.Mutex
		got := make([]byte, 0, size)
		step := func(rng *rand.Rand) (done bool, err error) {
			token.Lock()
			defer token.Unlock()
			if len(got) == size {
				return true, nil
			}
			n, err := to.TryReadv([][]byte{got[len(got):][:min(size-len(got), 1+rng.IntN(30000))]})
			got = got[:len(got)+n]
			if len(got) == size && !bytes.Equal(got, data) {
				err = errors.New("wrong bytes")
			}
			return len(got) == size, err
		}
		for reader := range 2 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(2+reader)))
				for {
					done, err := step(rng)
					if done && reader == 1 {
						to.SetReadDeadline(time.Unix(1, 0)) // call the other back
					}
					if err == netio.ErrWouldBlock {
						if err = nil; reader == 0 {
							if err = to.WaitReadable(); err == os.ErrDeadlineExceeded {
								err = nil
							}
						} else {
							time.Sleep(time.Microsecond)
						}
					}
					if err != nil {
						t.Error(err)
					}
					if done || err != nil {
						return
					}
				}
			})
		}
	}
}

func allocations(t *testing.T, _ *Suite, a, b netio.Conn) {
	out := [][]byte{make([]byte, 16), make([]byte, 1000), make([]byte, 4)}
	in := [][]byte{make([]byte, 20), make([]byte, 2000)}
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	round := func() {
		check(a.WaitWritable())
		wrote, err := a.TryWritev(out)
		check(err)
		for got := 0; got < wrote; {
			check(b.WaitReadable())
			n, err := b.TryReadv(in)
			if err != netio.ErrWouldBlock {
				check(err)
			}
			got += n
		}
		if _, err := b.TryReadv(in); err != netio.ErrWouldBlock {
			t.Fatal(err)
		}
		a.MSS()
	}
	for range 300 { // what grows, grows to its size
		round()
	}
	if n := testing.AllocsPerRun(1000, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}
