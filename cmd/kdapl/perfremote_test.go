package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"kdapl/cmd/kdapl/internal/perf"
)

// serving is a server in this process.
type serving struct {
	address string
	lines   chan []byte // what it says, until it ends
	// end ends it and returns what run returns.
	end func() (code int, stderr string)
}

// serve starts "kdapl perf --server", in JSON.
func serve(t *testing.T, args ...string) *serving {
	t.Helper()
	withoutConf(t)
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	var errs strings.Builder
	ended := make(chan int, 1)
	go func() {
		code := run(append([]string{"perf", "--json", "--listen", ":0"}, args...), env{ctx: ctx, stdout: w, stderr: &errs})
		w.Close()
		ended <- code
	}()
	s := &serving{lines: make(chan []byte, 1<<16)} // nobody has to read it
	go func() {
		defer close(s.lines)
		for in := bufio.NewScanner(r); in.Scan(); {
			s.lines <- bytes.Clone(in.Bytes())
		}
	}()
	s.end = sync.OnceValues(func() (int, string) {
		cancel()
		return <-ended, errs.String()
	})
	t.Cleanup(func() {
		if code, errs := s.end(); code != exitOK || errs != "" {
			t.Errorf("the server ends with %d, %s", code, errs)
		}
	})
	line, says := <-s.lines
	if !says {
		t.Fatal("the server says nothing")
	}
	var l listeningDoc
	if err := json.Unmarshal(line, &l); err != nil || l.Adapter != "iwarp0" {
		t.Fatalf("%v: %s", err, line)
	}
	s.address = l.Listening.String()
	return s
}

// next is what the server says next.
func (s *serving) next(t *testing.T) (d servedDoc) {
	t.Helper()
	line, says := <-s.lines
	if !says {
		t.Fatal("the server says nothing more")
	}
	if err := json.Unmarshal(line, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestClientMeasuresWithServer(t *testing.T) {
	s := serve(t)
	for _, completion := range []string{"upcall", "dequeue", "wait"} {
		for post, list := range map[string]int{"single": 1, "list=5": 5} {
			if testing.Short() && (completion == "wait") != (list == 5) {
				continue // each completion and each post once
			}
			code, out, errs := kdapl(context.Background(), "perf", "--connect", s.address, "--json", "--histogram",
				"--completion", completion, "--post", post, "--size", "8,4KiB", "--iters", "100")
			if code != exitOK || errs != "" {
				t.Fatalf("exit code %d, %s", code, errs)
			}
			var doc perfDoc
			if err := json.Unmarshal([]byte(out), &doc); err != nil {
				t.Fatal(err)
			}
			if doc.Adapter != "iwarp0" || doc.Server != s.address || doc.Meaning != "SOURCE_REUSABLE" || len(doc.Results) != 6 {
				t.Fatalf("%+v", doc)
			}
			for i, row := range doc.Results {
				checkRow(t, row, perf.Ops[i/2], []int{8, 4096}[i%2], 64, list)
				if c := row.Throughput.CPU; c.Both != nil || c.Client.Seconds <= 0 || c.Server.Seconds <= 0 || c.Client.PerMB <= 0 {
					t.Errorf("processor time %+v", c)
				}
			}
		}
	}
}

func TestServerServesSeveralAtOnce(t *testing.T) {
	s := serve(t)
	const clients = 4
	var g sync.WaitGroup
	for range clients {
		g.Go(func() {
			code, _, errs := kdapl(context.Background(), "perf", "--connect", s.address, "--op", "send", "--size", "64", "--iters", "300", "--completion", "wait")
			if code != exitOK {
				t.Errorf("exit code %d, %s", code, errs)
			}
		})
	}
	seen := map[string]int{}
	for range 2 * clients {
		d := s.next(t)
		if d.Error != "" || d.Size != 64 || *d.Op != perf.Send || d.Messages < 300 {
			t.Errorf("%+v", d)
		}
		seen[d.Kind]++
	}
	if seen["latency"] != clients || seen["throughput"] != clients {
		t.Error(seen)
	}
	g.Wait()
}

func TestServerSaysWhyItRefuses(t *testing.T) {
	s := serve(t, "--memory", "1MiB")
	code, _, errs := kdapl(context.Background(), "perf", "--connect", s.address, "--size", "1MiB", "--iters", "1")
	if code != exitFailure || !strings.Contains(errs, "the peer says: this takes 4196352 bytes of the server's memory, and of its 1048576 there are 1048576 left") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if d := s.next(t); !d.Refused || d.Size != 1<<20 || !strings.Contains(d.Error, "4196352") {
		t.Errorf("%+v", d)
	}
	// It still serves what fits, and all of the memory is there again each time.
	for range 3 {
		code, _, errs = kdapl(context.Background(), "perf", "--connect", s.address, "--op", "write", "--size", "400KiB", "--depth", "1", "--iters", "1")
		if code != exitOK {
			t.Errorf("exit code %d, %s", code, errs)
		}
		for range 2 {
			if d := s.next(t); d.Refused || d.Error != "" {
				t.Errorf("%+v", d)
			}
		}
	}
}

func TestNoServerIsTold(t *testing.T) {
	withoutConf(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	code, out, errs := kdapl(context.Background(), "perf", "--connect", address)
	if code != exitFailure || out != "" || !strings.Contains(errs, "is kdapl perf --server running?") || !strings.Contains(errs, "refused") {
		t.Errorf("exit code %d, %s, %s", code, out, errs)
	}
}
