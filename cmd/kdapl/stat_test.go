package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/stat"
)

func someSnapshot() stat.Snapshot {
	return stat.Snapshot{PID: 4711, Time: time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC), IAs: []stat.IA{{
		Name: "iwarp0", Address: "127.0.0.1", Objects: dat.IACounters{EPs: 1, EVDs: 2, LMRs: 3, PZs: 1},
		EPs: []stat.EP{{Name: "EP 5 of iwarp0", State: "CONNECTED", Local: "127.0.0.1:18515", Remote: "127.0.0.1:40000",
			Request: dat.DTOCounters{Posted: 12, Succeeded: 10, Flushed: 1, Bytes: 1 << 20},
			Recv:    dat.DTOCounters{Posted: 7, Succeeded: 2, Failed: 1, Bytes: 16}}},
		EVDs: []stat.EVD{{Name: "EVD 1 of iwarp0", Policy: "DISABLE", Length: 8},
			{Name: "EVD 4 of iwarp0", Policy: "SINGLE_INSTANCE", Length: 72, Queued: 3, Counters: dat.EVDCounters{Events: 15, Upcalls: 12, Activations: 4, Refused: 1}}},
	}}}
}

func TestStatTable(t *testing.T) {
	golden(t, "stat.txt", rendered(t, env{}, func(e env) error { return statText(e, someSnapshot()) }))
}

func TestStatJSON(t *testing.T) {
	golden(t, "stat.json", rendered(t, env{}, func(e env) error { return statJSON(e, someSnapshot()) }))
}

func TestStatOfAServer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, "--stat", socket)
	code, out, errs := kdapl(context.Background(), "stat", socket)
	if code != exitOK || errs != "" || !strings.Contains(out, "iwarp0 (127.0.0.1): 0 EPs") || !strings.Contains(out, "1 PSP") {
		t.Fatalf("exit code %d, %s\n%s", code, errs, out)
	}
	code, out, errs = kdapl(context.Background(), "stat", "--json", socket)
	var s stat.Snapshot
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != exitOK || errs != "" || s.IAs[0].Objects.PSPs != 1 {
		t.Errorf("exit code %d, %s, %v\n%s", code, errs, err, out)
	}
}

func TestStatAtIntervalsUntilTheProcessEnds(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := serve(t, "--stat", socket)
	first := make(chan struct{})
	ended := make(chan int, 1)
	go func() {
		ended <- run([]string{"stat", "--interval", "1ms", socket}, env{ctx: context.Background(), stdout: onWrite(first), stderr: onWrite(make(chan struct{}))})
	}()
	<-first
	if code, errs := s.end(); code != exitOK {
		t.Errorf("the server ends with %d, %s", code, errs)
	}
	if code := <-ended; code != exitFailure {
		t.Errorf("exit code %d", code)
	}
}

// onWrite is a writer that closes the channel when it is written to.
func onWrite(c chan struct{}) writerFunc {
	return func(b []byte) (int, error) {
		select {
		case <-c:
		default:
			close(c)
		}
		return len(b), nil
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestStatOfNobody(t *testing.T) {
	code, _, errs := kdapl(context.Background(), "stat", filepath.Join(t.TempDir(), "nobody"))
	if code != exitFailure || !strings.Contains(errs, "nobody") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	code, _, errs = kdapl(context.Background(), "perf", "--size", "8", "--iters", "1", "--stat", filepath.Join(t.TempDir(), "missing", "s"))
	if code != exitFailure || !strings.Contains(errs, "--stat: ") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	code, _, errs = kdapl(context.Background(), "stat", "x", "--interval", "0s")
	if code != exitUsage || !strings.Contains(errs, "--interval: 0s is not more than 0") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
