package perf

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/registry"
)

// openIA opens iWARP on loopback.
func openIA(t testing.TB) *dat.IA {
	t.Helper()
	ia, err := registry.Open("iwarp0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ia.Close(context.Background(), dat.CloseAbrupt); err != nil {
			t.Error(err)
		}
	})
	return ia
}

// startServer serves until end, and tells what it served.
func startServer(t testing.TB, memory int64) (s *Server, told chan Served, end func()) {
	t.Helper()
	told = make(chan Served, 1000)
	s, err := NewServer(openIA(t), 0, memory, func(s Served) { told <- s })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if s.used != 0 {
			t.Errorf("%d bytes of memory are still taken", s.used)
		}
	})
	t.Cleanup(end)
	return s, told, end
}

// running is a requester whose measurement goes on for an hour.
func running(t testing.TB, addr netip.AddrPort, spec Spec, c Completion) (failed chan error) {
	t.Helper()
	h, err := NewHost(openIA(t), spec.Memory())
	if err != nil {
		t.Fatal(err)
	}
	req, err := h.Connect(context.Background(), addr.Addr(), uint64(addr.Port()), spec, c)
	if err != nil {
		t.Fatal(err)
	}
	failed = make(chan error, 1)
	go func() {
		_, err := Run(context.Background(), req, nil)
		failed <- errors.Join(err, req.Close())
	}()
	until(t, "a message", func() bool { return events(t, req) > 50 })
	return failed
}

func (s *Server) at() netip.AddrPort {
	addr, qual := s.Addr()
	return netip.AddrPortFrom(addr, uint16(qual))
}

// hour is a measurement that does not end by itself in a test.
func hour(op Op) Spec {
	return Spec{Op: op, Kind: Latency, Size: 100, Depth: 1, Duration: time.Hour, Verify: true}
}

func TestServerTellsWhatItServed(t *testing.T) {
	s, told, _ := startServer(t, 1<<20)
	everyWay(t, func(t *testing.T, spec Spec, c Completion) {
		h, err := NewHost(openIA(t), spec.Memory())
		if err != nil {
			t.Fatal(err)
		}
		res, err := Request(context.Background(), h, s.at().Addr(), uint64(s.at().Port()), spec, c)
		if err != nil || res.Messages != spec.Messages || res.Checked != checks(res.Spec) || res.Interrupted {
			t.Fatalf("%+v, %v", res, err)
		}
		if res.CPU.Requester <= 0 || res.CPU.Responder <= 0 {
			t.Errorf("processor time: %+v", res.CPU)
		}
		got := <-told
		if got.Err != nil || got.Refused || got.Completion != c || got.Spec.Op != spec.Op || got.Spec.Kind != spec.Kind ||
			got.Messages != spec.Messages+res.Spec.WarmUp || got.CPU != res.CPU.Responder || got.Client.Addr() != s.at().Addr() {
			t.Errorf("%+v", got)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestEndOfAServerIsToldToItsClients(t *testing.T) {
	for i, op := range Ops {
		s, told, end := startServer(t, 1<<20)
		failed := running(t, s.at(), hour(op), Completion(i))
		end()
		err := <-failed
		if ce := new(ConnectionError); !errors.As(err, &ce) || !strings.Contains(err.Error(), "the other side ended the connection") {
			t.Errorf("%v: the client says %v", op, err)
		}
		if got := <-told; got.Err == nil || got.Err.Error() != "the server was ended" {
			t.Errorf("%v: the server says %+v", op, got)
		}
	}
}

func TestServerRefusesWhatItHasNoMemoryFor(t *testing.T) {
	spec := hour(Send)
	s, told, end := startServer(t, 2*spec.Memory())
	first := running(t, s.at(), spec, Wait)
	large := spec
	large.Size = 64 << 10
	h, err := NewHost(openIA(t), large.Memory())
	if err != nil {
		t.Fatal(err)
	}
	_, err = Request(context.Background(), h, s.at().Addr(), uint64(s.at().Port()), large, Wait)
	ce := new(ConnectionError)
	if !errors.As(err, &ce) || !strings.Contains(ce.Reason, "bytes of the server's memory") {
		t.Errorf("got %v", err)
	}
	if got := <-told; !got.Refused || got.Spec.Size != large.Size {
		t.Errorf("%+v", got)
	}
	end()
	<-first
}

// childRole says in the environment that this process is the child of a test, and what it is to be.
const childRole, childPeer = "KDAPL_PERF_CHILD", "KDAPL_PERF_PEER"

// child is another process: a server, or a client that measures until it is killed.
func child(role string) {
	ia, err := registry.Open("iwarp0")
	check := func(err error) {
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
	}
	check(err)
	if role == "server" {
		s, err := NewServer(ia, 0, 1<<20, func(Served) {})
		check(err)
		fmt.Println(s.at())
		check(s.Serve(context.Background()))
	}
	peer, err := netip.ParseAddrPort(os.Getenv(childPeer))
	check(err)
	spec := hour(Send)
	h, err := NewHost(ia, spec.Memory())
	check(err)
	req, err := h.Connect(context.Background(), peer.Addr(), uint64(peer.Port()), spec, Upcall)
	check(err)
	go func() {
		_, err := Run(context.Background(), req, nil)
		check(err)
	}()
	for {
		if p, err := req.evd.Query(); err != nil || p.Counters.Events > 50 {
			check(err)
			fmt.Println("measures")
			select {}
		}
		time.Sleep(time.Millisecond)
	}
}

// spawn starts a child and returns the first line that it writes.
func spawn(t *testing.T, env ...string) (line string, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // says that it was killed
	})
	t.Cleanup(kill)
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the child says nothing")
	}
	return lines.Text(), kill
}

func TestKilledClientIsToldByTheServer(t *testing.T) {
	s, told, _ := startServer(t, 1<<20)
	line, kill := spawn(t, childRole+"=client", childPeer+"="+s.at().String())
	if line != "measures" {
		t.Fatal(line)
	}
	kill()
	got := <-told
	if ce := new(ConnectionError); !errors.As(got.Err, &ce) || ce.Event != dat.ConnectionBroken && ce.Event != dat.ConnectionDisconnected {
		t.Errorf("got %+v", got)
	}
}

func TestKilledServerIsToldByTheClient(t *testing.T) {
	for i, op := range Ops {
		line, kill := spawn(t, childRole+"=server")
		addr, err := netip.ParseAddrPort(line)
		if err != nil {
			t.Fatal(line)
		}
		failed := running(t, addr, hour(op), Completion(i))
		kill()
		err = <-failed
		if ce := new(ConnectionError); !errors.As(err, &ce) || ce.Event != dat.ConnectionBroken && ce.Event != dat.ConnectionDisconnected {
			t.Errorf("%v: got %v", op, err)
		}
	}
}
