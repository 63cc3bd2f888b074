package faultnet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"kdapl/internal/netio"
)

// send writes all of p, waiting as needed.
func send(c netio.Conn, p []byte) error {
	for len(p) > 0 {
		n, err := c.TryWritev([][]byte{p})
		if err == netio.ErrWouldBlock {
			err = c.WaitWritable()
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// receive reads until there is an error, which may be io.EOF, or a deadline.
func receive(c netio.Conn) ([]byte, error) {
	var got []byte
	p := make([]byte, 4096)
	for {
		n, err := c.TryReadv([][]byte{p})
		got = append(got, p[:n]...)
		if err == netio.ErrWouldBlock {
			err = c.WaitReadable()
		}
		if err != nil {
			return got, err
		}
	}
}

var message = []byte("the quick brown fox jumps over the lazy dog")

// Cut a stream at every position, in every way: what is before gets through, what is behind does not,
// and each end learns what it should. The sender writes in pieces of each small size, and with the
// position at a piece's edge or inside.
func TestEventsHappenAtEveryPosition(t *testing.T) {
	for _, kind := range []Kind{Split, Flip, Stall, Fin, Reset, Dark} {
		for at := 0; at <= len(message); at++ {
			for _, piece := range []int{1, 7, len(message)} {
				synctest.Test(t, func(t *testing.T) {
					e := Event{At: int64(at), Kind: kind, Mask: 0x81, For: time.Minute}
					a, b := pairOf(t, Plan{Up: Stream{KeepOnReset: true, Events: []Event{e}}})
					defer a.Close()
					defer b.Close()
					name := fmt.Sprintf("%v at %d, pieces of %d", kind, at, piece)
					sent := make(chan error, 1)
					go func() {
						var err error
						for p := range slices.Chunk(message, piece) {
							if err = send(a, p); err != nil {
								break
							}
						}
						if err == nil && kind != Fin {
							err = a.CloseWrite()
						}
						sent <- err
					}()
					start := time.Now()
					b.SetReadDeadline(start.Add(time.Hour))
					got, err := receive(b)
					took := time.Since(start)
					sendErr := <-sent

					want, wantErr, wantTook := bytes.Clone(message), io.EOF, time.Duration(0)
					switch kind {
					case Flip:
						if at < len(want) {
							want[at] ^= 0x81
						}
					case Stall:
						wantTook = time.Minute // of the end, if of nothing else
					case Fin:
						want = want[:at]
					case Reset:
						want, wantErr = want[:at], netio.ErrReset
					case Dark:
						want, wantErr, wantTook = want[:at], os.ErrDeadlineExceeded, time.Hour
					}
					if !bytes.Equal(got, want) || !errors.Is(err, wantErr) || took != wantTook {
						t.Errorf("%s: %q, %v after %v; want %q, %v after %v", name, got, err, took, want, wantErr, wantTook)
					}
					if kind == Reset {
						// The sender finds out, while it writes or afterwards.
						if _, err := a.TryWritev([][]byte{{1}}); !errors.Is(err, netio.ErrReset) {
							t.Errorf("%s: then a write reports %v", name, err)
						}
					} else if sendErr != nil {
						t.Errorf("%s: sender: %v", name, sendErr)
					}
				})
			}
		}
	}
}

// Both directions have plans of their own, and every byte can be changed.
func TestEveryByteCanBeChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up, down Stream
		for i := range message {
			up.Events = append(up.Events, Event{At: int64(i), Kind: Flip, Mask: byte(i + 1)})
		}
		down.Events = []Event{{At: 3, Kind: Flip, Mask: 0xff}, {At: 3, Kind: Flip, Mask: 0x0f}} // adds up
		a, b := pairOf(t, Plan{Up: up, Down: down})
		for _, x := range []struct{ from, to *Conn }{{a, b}, {b, a}} {
			if err := send(x.from, message); err != nil {
				t.Fatal(err)
			}
			x.from.CloseWrite()
		}
		got, _ := receive(b)
		for i := range got {
			if got[i] != message[i]^byte(i+1) {
				t.Fatalf("byte %d is %x", i, got[i])
			}
		}
		got, _ = receive(a)
		want := bytes.Clone(message)
		want[3] ^= 0xf0
		if len(got) != len(want) || !bytes.Equal(got, want) {
			t.Fatalf("%q", got)
		}
	})
}

// A split is where no read and no write goes across, whatever they ask for; random ones are where
// the seed says, whatever the calls.
func TestSplitsBoundEveryReadAndWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := Plan{Seed: 3, Up: Stream{ReadMax: 9, WriteMax: 5, Events: []Event{{At: 20, Kind: Split}, {At: 21, Kind: Split}}}}
		var reads, writes [2][]int
		for run, chunk := range []int{len(message), 3} {
			a, b := pairOf(t, plan)
			total := 0
			for total < len(message) {
				n, err := a.TryWritev([][]byte{message[total:min(total+chunk, len(message))]})
				if err != nil {
					t.Fatal(err)
				}
				if n > 5 {
					t.Errorf("%d bytes written at once", n)
				}
				total += n
				writes[run] = append(writes[run], total)
			}
			total = 0
			for total < len(message) {
				n, err := b.TryReadv([][]byte{make([]byte, 100)})
				if err != nil {
					t.Fatal(err)
				}
				if n > 9 {
					t.Errorf("%d bytes read at once", n)
				}
				total += n
				reads[run] = append(reads[run], total)
			}
		}
		if !slices.Equal(reads[0], reads[1]) {
			t.Errorf("reads split at %v, and at %v if written otherwise", reads[0], reads[1])
		}
		for _, cut := range writes[0] {
			if !slices.Contains(writes[1], cut) {
				t.Errorf("a write ends at %d, but not if written otherwise", cut)
			}
		}
		for _, ends := range [][]int{reads[0], writes[0], writes[1]} {
			if !slices.Contains(ends, 20) || !slices.Contains(ends, 21) {
				t.Errorf("no split at 20 and 21 in %v", ends)
			}
		}
	})
}

func TestLatencyAndRateAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pairOf(t, Plan{Up: Stream{Latency: time.Second, Rate: 1000, MSS: 100}})
		start := time.Now()
		if err := send(a, make([]byte, 250)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			n  int
			at time.Duration
		}{{100, 1100 * time.Millisecond}, {100, 1200 * time.Millisecond}, {50, 1250 * time.Millisecond}} {
			if err := b.WaitReadable(); err != nil {
				t.Fatal(err)
			}
			n, err := b.TryReadv([][]byte{make([]byte, 1000)})
			if err != nil || n != want.n || time.Since(start) != want.at {
				t.Fatalf("%d bytes, %v after %v; want %d after %v", n, err, time.Since(start), want.n, want.at)
			}
		}
		// The line has been idle: nothing is owed.
		start = time.Now()
		if err := send(b, []byte("x")); err != nil { // the other way has no latency
			t.Fatal(err)
		}
		if n, err := a.TryReadv([][]byte{make([]byte, 10)}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if err := send(a, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if err := b.WaitReadable(); err != nil || time.Since(start) != 1010*time.Millisecond {
			t.Fatal(err, time.Since(start))
		}
	})
}

func TestJitterKeepsOrderAndDependsOnPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := Plan{Seed: 11, Up: Stream{Jitter: time.Second, MSS: 10}}
		arrivals := func(pieces int) (at []time.Duration) {
			a, b := pairOf(t, plan)
			start := time.Now()
			data := make([]byte, 100)
			for i := range data {
				data[i] = byte(i)
			}
			for p := range slices.Chunk(data, pieces) {
				if err := send(a, p); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 100 {
				if err := b.WaitReadable(); err != nil {
					t.Fatal(err)
				}
				p := make([]byte, 1)
				if n, err := b.TryReadv([][]byte{p}); n != 1 || err != nil || p[0] != byte(i) {
					t.Fatal(n, err, p)
				}
				at = append(at, time.Since(start))
			}
			return at
		}
		whole, pieces := arrivals(100), arrivals(7)
		if !slices.Equal(whole, pieces) {
			t.Errorf("arrival depends on the writes:\n%v\n%v", whole, pieces)
		}
		if !slices.IsSorted(whole) || whole[0] == whole[99] || whole[99] >= time.Second {
			t.Errorf("%v", whole)
		}
	})
}

func TestWindowBoundsWhatIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pairOf(t, Plan{Up: Stream{Window: 10}})
		if n, err := a.TryWritev([][]byte{make([]byte, 6), make([]byte, 6)}); n != 10 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := a.TryWritev([][]byte{{1}}); err != netio.ErrWouldBlock {
			t.Fatal(err)
		}
		woken := make(chan error, 1)
		go func() { woken <- a.WaitWritable() }()
		synctest.Wait()
		select {
		case err := <-woken:
			t.Fatalf("writable with a full window: %v", err)
		default:
		}
		if n, err := b.TryReadv([][]byte{make([]byte, 3)}); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		if n, err := a.TryWritev([][]byte{make([]byte, 6)}); n != 3 || err != nil {
			t.Fatal(n, err)
		}
	})
}

// script is a random walk of both ends in one goroutine; its trace tells every result and its time.
func script(t testing.TB, plan Plan, seed uint64) string {
	var trace strings.Builder
	rng := rand.New(rand.NewPCG(seed, 0))
	a, b := pairOf(t, plan)
	start := time.Now()
	for i := range 300 {
		end := []*Conn{a, b}[rng.IntN(2)]
		var n int
		var err error
		op := rng.IntN(8)
		switch op {
		case 0, 1, 2:
			p := make([]byte, 1+rng.IntN(200))
			for j := range p {
				p[j] = byte(i + j)
			}
			n, err = end.TryWritev([][]byte{p})
		case 3, 4, 5:
			p := make([]byte, 1+rng.IntN(200))
			n, err = end.TryReadv([][]byte{p})
			fmt.Fprintf(&trace, "%x ", p[:n])
		case 6:
			end.SetReadDeadline(time.Now().Add(time.Duration(rng.IntN(1e7))))
			err = end.WaitReadable()
		case 7:
			time.Sleep(time.Duration(rng.IntN(1e7)))
		}
		fmt.Fprintf(&trace, "%d %d %d %v %v\n", end.side, op, n, err, time.Since(start))
	}
	a.Close()
	b.Close()
	return trace.String()
}

// The same plan does the same things at the same times: made from the seed, or from its text.
func TestSeedAndTextReproduceTheRun(t *testing.T) {
	faults := 0
	for seed := range uint64(150) {
		plan := Faulty(seed, 3000)
		if plan.Refuse || plan.Hang {
			continue
		}
		var runs [3]string
		for i := range runs {
			p := plan
			switch i {
			case 1:
				p = Faulty(seed, 3000)
			case 2:
				var err error
				if p, err = Parse(plan.String()); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) { runs[i] = script(t, p, seed) })
		}
		if runs[0] != runs[1] || runs[0] != runs[2] {
			t.Fatalf("%v: runs differ:\n%s\n%s\n%s", plan, runs[0], runs[1], runs[2])
		}
		if strings.Contains(runs[0], "reset") || strings.Contains(runs[0], "EOF") {
			faults++
		}
	}
	if faults == 0 {
		t.Error("no run met its fault")
	}
}

// A lossless plan loses nothing, in either direction, whatever the calls.
func TestLosslessPlansDeliverEverything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		size := rapid.IntRange(0, 20000).Draw(rt, "size")
		synctest.Test(t, func(t *testing.T) {
			plan := Lossless(seed, int64(size))
			a, b := pairOf(t, plan)
			defer a.Close()
			defer b.Close()
			data := make([]byte, size)
			rng := rand.New(rand.NewPCG(seed, 9))
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			errs := make(chan error, 4)
			for _, x := range []struct{ from, to *Conn }{{a, b}, {b, a}} {
				go func() { errs <- errors.Join(send(x.from, data), x.from.CloseWrite()) }()
				go func() {
					got, err := receive(x.to)
					if err == io.EOF && bytes.Equal(got, data) {
						err = nil
					} else {
						err = fmt.Errorf("%d of %d bytes, %v", len(got), len(data), err)
					}
					errs <- err
				}()
			}
			for range cap(errs) {
				if err := <-errs; err != nil {
					t.Fatalf("%v: %v", plan, err)
				}
			}
		})
	})
}
