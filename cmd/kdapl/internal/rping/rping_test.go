package rping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kdapl/cmd/kdapl/internal/link"
	"kdapl/cmd/kdapl/internal/perf"
	"kdapl/dat"
	"kdapl/registry"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host makes a host on an adapter: a name, or settings.
func host(t *testing.T, adapter string) *link.Host {
	t.Helper()
	open := func() (*dat.IA, error) { return registry.Open(adapter) }
	if strings.HasPrefix(adapter, "iwarp ") {
		open = func() (*dat.IA, error) { return registry.OpenParams(adapter, dat.Config{}) }
	}
	ia, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n, err := ia.Query(); err != nil || n.Counters.EPs != 0 {
			t.Errorf("%d EPs are left, %v", n.Counters.EPs, err)
		}
		if err := ia.Close(context.Background(), dat.CloseAbrupt); err != nil {
			t.Error(err)
		}
	})
	h, err := link.NewHost(ia, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func listen(t *testing.T, h *link.Host) *link.Listener {
	t.Helper()
	ln, err := h.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
	})
	return ln
}

const iwarp = "iwarp addr=127.0.0.1"

// served is the outcome of a server.
type served struct {
	rounds int
	err    error
}

// serve runs a server beside the test.
func serve(h *link.Host, ln *link.Listener, cfg Config) <-chan served {
	c := make(chan served, 1)
	go func() {
		rounds, err := Serve(context.Background(), h, ln, cfg)
		c <- served{rounds, err}
	}()
	return c
}

func TestRoundsCarryTheClientsDataThereAndBack(t *testing.T) {
	for _, adapter := range []string{"loop0", iwarp, iwarp + " crc=off", iwarp + " peer2peer=off", iwarp + " rev=1", iwarp + " markers=on"} {
		for _, size := range []int{1, 13, 23, 64, 4096, MaxSize} {
			t.Run(fmt.Sprintf("%s/%d", adapter, size), func(t *testing.T) {
				h := host(t, adapter)
				ln := listen(t, h)
				const rounds = 60 // more than letters
				var sout, cout bytes.Buffer
				done := serve(h, ln, Config{Size: MaxSize, Count: rounds, Verbose: true, Out: &sout})
				n, err := Client(context.Background(), host(t, adapter), h.IA.Address(), ln.Port(),
					Config{Size: size, Count: rounds, Validate: true, Verbose: true, Out: &cout})
				if err != nil || n != rounds {
					t.Errorf("client: %d rounds, %v", n, err)
				}
				if s := <-done; s.err != nil || s.rounds != rounds {
					t.Errorf("server: %d rounds, %v", s.rounds, s.err)
				}
				if want := strings.ReplaceAll(sout.String(), "server ping", "ping"); cout.String() != want {
					t.Errorf("the client printed\n%s\nthe server\n%s", cout.String(), sout.String())
				}
				if got := strings.Count(cout.String(), "\n"); got != rounds {
					t.Errorf("%d lines", got)
				}
			})
		}
	}
}

func TestDataIsThatOfRping(t *testing.T) {
	for _, c := range []struct {
		round, size int
		want        string
	}{
		{0, 23, "rdma-ping-0: ABCDEFGHI\x00"},
		{57, 23, "rdma-ping-57: zABCDEFG\x00"},
		{58, 23, "rdma-ping-58: ABCDEFGH\x00"},
		{7, 5, "rdma\x00"},
		{7, 1, "\x00"},
	} {
		b := bytes.Repeat([]byte{'#'}, c.size)
		if payload(b, c.round); string(b) != c.want {
			t.Errorf("round %d: %q, expected %q", c.round, b, c.want)
		}
	}
}

// peer is the far side of a test, played by hand.
type peer struct {
	*end
	host *link.Host
}

// connect makes a client by hand.
func connect(t *testing.T, to *link.Host, ln *link.Listener) peer {
	t.Helper()
	h := host(t, iwarp)
	e, err := newEnd(h)
	if err == nil {
		err = e.Connect(context.Background(), to.IA.Address(), ln.Port())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	})
	return peer{e, h}
}

func TestServerSaysWhatIsWrongWithAClient(t *testing.T) {
	for name, c := range map[string]struct {
		client func(p peer, mem *dat.LMR) error
		want   string
	}{
		"buffer larger than the server's": {func(p peer, mem *dat.LMR) error {
			return p.send(context.Background(), advert(mem.RMRTriplet(0, 65)))
		}, "round 0: the client's buffer has 65 bytes, more than the 64 that this server takes"},
		"short message": {func(p peer, mem *dat.LMR) error {
			if err := p.EP.PostSend(0, 0, p.lmr.Triplet(0, messageLen-1)); err != nil {
				return err
			}
			return p.Completed(context.Background())
		}, "round 0: the peer sent a message of 15 bytes instead of 16"},
		"long message": {func(p peer, mem *dat.LMR) error {
			if err := p.EP.PostSend(0, 0, p.lmr.Triplet(0, messageLen+1)); err != nil {
				return err
			}
			return p.Completed(context.Background())
		}, "round 0: "},
		"second buffer too small": {func(p peer, mem *dat.LMR) error {
			copy(mem.Bytes(), "four\x00")
			if err := p.send(context.Background(), advert(mem.RMRTriplet(0, 64))); err != nil {
				return err
			}
			if _, err := p.receive(context.Background()); err != nil {
				return err
			}
			return p.send(context.Background(), advert(mem.RMRTriplet(0, 4)))
		}, "round 0: the client wants 5 bytes in a buffer of 4"},
		"unknown key": {func(p peer, mem *dat.LMR) error {
			a := advert(mem.RMRTriplet(0, 64))
			a.RMRContext ^= 1 << 31
			return p.send(context.Background(), a)
		}, "round 0: "},
		"gone in the middle of a round": {func(p peer, mem *dat.LMR) error {
			if err := p.send(context.Background(), advert(mem.RMRTriplet(0, 64))); err != nil {
				return err
			}
			if _, err := p.receive(context.Background()); err != nil {
				return err
			}
			return p.Disconnect(context.Background())
		}, "round 0: CONNECTION_EVENT_DISCONNECTED"},
		"gone too early": {func(p peer, mem *dat.LMR) error {
			return p.Disconnect(context.Background())
		}, "the client made 0 rounds, expected were 2"},
	} {
		t.Run(name, func(t *testing.T) {
			h := host(t, iwarp)
			ln := listen(t, h)
			done := serve(h, ln, Config{Size: 64, Count: 2})
			p := connect(t, h, ln)
			mem, err := p.host.Memory(128, dat.PrivLocalRead|dat.PrivLocalWrite|dat.PrivRemoteRead|dat.PrivRemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := mem.Free(); err != nil {
					t.Error(err)
				}
			})
			if err := c.client(p, mem); err != nil {
				t.Fatal(err)
			}
			s := <-done
			if s.err == nil || !strings.HasPrefix(s.err.Error(), c.want) || s.rounds != 0 {
				t.Errorf("server: %d rounds, %v", s.rounds, s.err)
			}
		})
	}
}

func TestClientSaysWhatIsWrongWithAServer(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		server func(s *server, source advert) error
		want   string
	}{
		"other data comes back": {func(s *server, source advert) error {
			if err := s.send(ctx, advert{}); err != nil {
				return err
			}
			sink, err := s.receive(ctx)
			if err != nil {
				return err
			}
			copy(s.data.Bytes(), "something\x00")
			if err := s.EP.PostRDMAWrite(0, 0, dat.RMRTriplet(sink), s.data.Triplet(0, 10)); err != nil {
				return err
			}
			return s.send(ctx, advert{})
		}, `round 0: the server wrote back other data than it was to read: "something"… instead of "rdma-ping-0: ABC`},
		"short answer": {func(s *server, source advert) error {
			return s.EP.PostSend(0, 0, s.lmr.Triplet(0, 3))
		}, "the peer sent a message of 3 bytes instead of 16"},
		"gone": {func(s *server, source advert) error {
			return s.Disconnect(ctx)
		}, "CONNECTION_EVENT_DISCONNECTED"},
		"write beyond the buffer": {func(s *server, source advert) error {
			source.SegmentLength += 64
			if err := s.EP.PostRDMAWrite(0, 0, dat.RMRTriplet(source), s.data.Triplet(0, 128)); err != nil {
				return err
			}
			return s.Completed(ctx)
		}, "CONNECTION_EVENT_BROKEN"},
		"silent": {func(s *server, source advert) error { return nil }, "waited in vain for a message of the peer"},
	} {
		t.Run(name, func(t *testing.T) {
			h := host(t, iwarp)
			ln := listen(t, h)
			failed := make(chan error, 1)
			var release atomic.Pointer[server]
			go func() {
				s, err := accept(ctx, h, ln, Config{Size: 128})
				if err != nil {
					failed <- err
					return
				}
				release.Store(s)
				source, err := s.receive(ctx)
				if err == nil {
					err = c.server(s, source)
				}
				failed <- err
			}()
			ch := host(t, iwarp)
			if name == "silent" {
				ch.Quiet = 50 * time.Millisecond
			}
			n, err := Client(ctx, ch, h.IA.Address(), ln.Port(), Config{Size: 64, Count: 2, Validate: true})
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || n != 0 {
				t.Errorf("client: %d rounds, %v", n, err)
			}
			if name == "silent" && !errors.As(err, new(*perf.StallError)) {
				t.Errorf("%v is no StallError", err)
			}
			if err := <-failed; err != nil {
				t.Error(err)
			}
			if err := release.Load().close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	h := host(t, iwarp)
	ln := listen(t, h)
	port := ln.Port()
	gone := host(t, iwarp)
	free, err := gone.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	unused := free.Port()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Client(context.Background(), h, h.IA.Address(), unused, Config{Size: 64, Count: 1})
	c := new(perf.ConnectionError)
	if !errors.As(err, &c) || c.Event != dat.ConnectionNonPeerRejected {
		t.Errorf("port %d, beside %d: %v", unused, port, err)
	}
}

func TestPersistentServerServesManyAtATime(t *testing.T) {
	h := host(t, iwarp)
	ln := listen(t, h)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var out bytes.Buffer
	total, failures := 0, 0
	go func() {
		ended <- ServeAll(ctx, h, ln, Config{Size: 64, Count: 5, Verbose: true, Out: &out}, func(rounds int, err error) {
			if total += rounds; err != nil {
				failures++
			}
		})
	}()
	clients := make(chan error, 4)
	for i := range cap(clients) {
		ch := host(t, iwarp)
		go func() {
			_, err := Client(context.Background(), ch, h.IA.Address(), ln.Port(), Config{Size: 64, Count: 5 - i%2, Validate: true})
			clients <- err
		}()
	}
	for range cap(clients) {
		if err := <-clients; err != nil {
			t.Error(err)
		}
	}
	// A server that has read a client's end reports it; the end of the context waits for that.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if n, err := h.IA.Query(); err == nil && n.Counters.EPs == 1 || time.Now().After(deadline) {
			break
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if total != 18 || failures != 2 || strings.Count(out.String(), "\n") != 18 {
		t.Errorf("%d rounds, %d failures, printed:\n%s", total, failures, out.String())
	}
}

func TestTheContextEndsBothRoles(t *testing.T) {
	h := host(t, iwarp)
	ln := listen(t, h)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() {
		_, err := Serve(ctx, h, ln, Config{Size: 64})
		done <- err
	}()
	ch := host(t, iwarp)
	go func() {
		_, err := Client(ctx, ch, h.IA.Address(), ln.Port(), Config{Size: 64})
		done <- err
	}()
	cancel()
	for range cap(done) {
		if err := <-done; err == nil {
			t.Error("no error")
		}
	}
}
