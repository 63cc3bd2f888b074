package perf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/registry"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		child(role)
	}
	goleak.VerifyTestMain(m)
}

// rig is two hosts, and a listener on the second.
type rig struct {
	hosts [2]*Host
	to    *Listener
}

func newRig(t testing.TB, name string, memory ...int64) rig {
	t.Helper()
	var r rig
	for i := range r.hosts {
		ia, err := registry.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := ia.Close(context.Background(), dat.CloseAbrupt); err != nil {
				t.Error(err)
			}
		})
		if r.hosts[i], err = NewHost(ia, memory[min(i, len(memory)-1)]); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if r.to, err = r.hosts[1].Listen(0); err != nil {
		t.Fatal(err)
	}
	return r
}

// pair connects the two ends of a measurement. The test closes them.
func (r rig) pair(t testing.TB, spec Spec, completion Completion) (req, resp *End) {
	t.Helper()
	accepted := make(chan error, 1)
	go func() {
		var err error
		resp, err = r.to.Accept(context.Background())
		accepted <- err
	}()
	addr, qual := r.to.Addr()
	req, err := r.hosts[0].Connect(context.Background(), addr, qual, spec, completion)
	if err := errors.Join(err, <-accepted); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*End{req, resp} {
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return req, resp
}

// everyWay runs a test for each operation, kind and completion.
func everyWay(t *testing.T, f func(*testing.T, Spec, Completion)) {
	for _, op := range Ops {
		for _, kind := range []Kind{Latency, Throughput} {
			for _, c := range []Completion{Upcall, Dequeue, Wait} {
				t.Run(fmt.Sprintf("%v/%v/%v", op, kind, c), func(t *testing.T) {
					f(t, Spec{Op: op, Kind: kind, Size: 100, Depth: 8, Messages: 50, Verify: true}, c)
				})
			}
		}
	}
}

func TestMessagesAreCountedAndChecked(t *testing.T) {
	sizes, shapes, counts := []int{1, 7, 8, 64, 4099}, [][2]int{{1, 1}, {3, 1}, {8, 1}, {8, 3}, {8, 8}, {64, 16}}, []int{1, 5, 200}
	if testing.Short() {
		sizes, shapes, counts = []int{7, 4099}, [][2]int{{1, 1}, {8, 3}, {64, 1}}, []int{5, 200}
	}
	everyWay(t, func(t *testing.T, spec Spec, c Completion) {
		for _, size := range sizes {
			for _, shape := range shapes {
				for _, messages := range counts {
					spec.Size, spec.Depth, spec.List, spec.Messages = size, shape[0], shape[1], messages
					r := newRig(t, "loop0", spec.Memory())
					res, err := Measure(context.Background(), r.hosts[0], r.to, spec, c)
					if err != nil {
						t.Fatalf("%+v: %v", spec, err)
					}
					if res.Messages != messages || res.Interrupted || res.Elapsed <= 0 {
						t.Fatalf("%+v: %d messages in %v, interrupted: %v", spec, res.Messages, res.Elapsed, res.Interrupted)
					}
					if want := checks(res.Spec); res.Checked != want {
						t.Fatalf("%+v: %d messages were checked, want %d", res.Spec, res.Checked, want)
					}
					if res.Histogram != nil != (spec.Kind == Latency) {
						t.Fatalf("%+v: histogram %v", spec, res.Histogram)
					}
					if res.Histogram != nil && res.Histogram.TotalCount() != int64(messages) {
						t.Fatalf("%+v: %d samples", spec, res.Histogram.TotalCount())
					}
				}
			}
		}
	})
}

// checks is how many messages both ends check: the warm-up, and the last of each buffer.
func checks(s Spec) uint64 {
	last := min(s.slots(), s.Messages)
	switch {
	case s.Op == Write:
		return uint64(s.slots()) // whenever it was written
	case s.pingPong():
		return uint64(2 * (s.WarmUp + last))
	}
	return uint64(s.WarmUp + last)
}

func TestDurationEndsAMeasurement(t *testing.T) {
	everyWay(t, func(t *testing.T, spec Spec, c Completion) {
		spec.Messages, spec.Duration = 0, 2*time.Millisecond
		r := newRig(t, "loop0", spec.Memory())
		res, err := Measure(context.Background(), r.hosts[0], r.to, spec, c)
		if err != nil || res.Messages == 0 || res.Interrupted || res.Elapsed < spec.Duration {
			t.Fatalf("%+v, %v", res, err)
		}
	})
}

func TestUnverifiedIsNotChecked(t *testing.T) {
	everyWay(t, func(t *testing.T, spec Spec, c Completion) {
		spec.Verify = false
		r := newRig(t, "loop0", spec.Memory())
		res, err := Measure(context.Background(), r.hosts[0], r.to, spec, c)
		if err != nil || res.Checked != 0 || res.Messages != spec.Messages {
			t.Fatalf("%+v, %v", res, err)
		}
	})
}

// On adapters whose completions do not mean that the peer has the data, the peer's ack ends the time.
func TestCompletionThatMeansLessIsEnough(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "dat.conf")
	if err := os.WriteFile(conf, []byte(`reusable k2.0 threadsafe default kdapl kdapl.1.0 "loop completion=source-reusable" ""`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DAT_OVERRIDE", conf)
	everyWay(t, func(t *testing.T, spec Spec, c Completion) {
		r := newRig(t, "reusable", spec.Memory())
		if r.hosts[0].acked {
			t.Fatal("the adapter has another meaning")
		}
		res, err := Measure(context.Background(), r.hosts[0], r.to, spec, c)
		if err != nil || res.Messages != spec.Messages || res.Checked != checks(res.Spec) {
			t.Fatalf("%+v, %v", res, err)
		}
	})
}

// A remote pair has an end in each of two processes; here each end is driven on its own.
func TestEndsAreIndependent(t *testing.T) {
	everyWay(t, func(t *testing.T, spec Spec, c Completion) {
		r := newRig(t, "loop0", spec.Memory())
		req, resp := r.pair(t, spec, c)
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan struct{})
		go func() {
			defer close(served)
			switch c {
			case Dequeue:
				poll(ctx, []*End{resp})
			case Wait:
				resp.wait(ctx)
			case Upcall:
				<-resp.done
			}
		}()
		res, err := Run(context.Background(), req, nil)
		if err != nil || res.Messages != spec.Messages {
			t.Errorf("%+v, %v", res, err)
		}
		<-served
		cancel()
		if resp.err != nil {
			t.Error(resp.err)
		}
	})
}

func TestBadDataIsFound(t *testing.T) {
	everyWay(t, func(t *testing.T, spec Spec, c Completion) {
		spec.Messages = 3 // so that one buffer of a write has what was written in the warm-up
		r := newRig(t, "loop0", spec.Memory())
		req, resp := r.pair(t, spec, c)
		spec = req.spec
		source, by := req, "responder"
		if spec.Op == Read {
			source, by = resp, "requester"
		}
		slot := spec.slots() - 1
		if spec.Op == Write && spec.Kind == Latency {
			t.Skip("nothing to find: the only buffer of such a run is filled anew before the measured time; the other runs cover writes")
		}
		source.host.mem[spec.out(slot)+77] ^= 4
		_, err := Run(context.Background(), req, resp)
		var bad *DataError
		if !errors.As(err, &bad) || bad.By != by || bad.Bad == 0 || bad.Bad >= bad.Checked || bad.Buffer != uint32(slot) || bad.Offset != 77 {
			if !(spec.slots() == 1 && errors.As(err, &bad)) { // then all are bad
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestBadAnswerIsFound(t *testing.T) {
	spec := Spec{Op: Send, Kind: Latency, Size: 100, Messages: 10, Verify: true}
	r := newRig(t, "loop0", 1<<16)
	req, resp := r.pair(t, spec, Dequeue)
	resp.host.mem[resp.spec.out(1)+9] ^= 1
	_, err := Run(context.Background(), req, resp)
	var bad *DataError
	if !errors.As(err, &bad) || bad.By != "requester" || bad.Buffer != 1 || bad.Offset != 9 {
		t.Errorf("got %v", err)
	}
}

// shortAnswers is a responder that answers with a byte less.
type shortAnswers struct{ *responder }

func (s shortAnswers) handle(ev *dat.Event) {
	if d := ev.DTO(); d.Operation == dat.OpReceive {
		if err := s.ep.PostSend(cookieAnswer, dat.CompletionDefault, s.host.local(s.spec.out(0), s.spec.Size-1)); err != nil {
			s.finish(err)
		}
	}
}

func TestWrongLengthIsFound(t *testing.T) {
	for _, c := range []Completion{Upcall, Dequeue, Wait} {
		r := newRig(t, "loop0", 1<<16)
		req, resp := r.pair(t, Spec{Op: Send, Kind: Latency, Size: 100, Messages: 10}, c)
		resp.role = shortAnswers{resp.role.(*responder)}
		_, err := Run(context.Background(), req, resp)
		var order *OrderError
		if !errors.As(err, &order) || order.Length != 99 || order.WantLength != 100 {
			t.Errorf("%v: got %v", c, err)
		}
	}
}

// events is how many events an end's EVD has had.
func events(t testing.TB, e *End) uint64 {
	t.Helper()
	p, err := e.evd.Query()
	if err != nil {
		t.Fatal(err)
	}
	return p.Counters.Events
}

// until polls a condition that must come true.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func TestBrokenConnectionIsTold(t *testing.T) {
	everyWay(t, func(t *testing.T, spec Spec, c Completion) {
		spec.Messages, spec.Duration = 0, time.Hour
		r := newRig(t, "loop0", spec.Memory())
		req, resp := r.pair(t, spec, c)
		failed := make(chan error, 1)
		go func() {
			_, err := Run(context.Background(), req, resp)
			failed <- err
		}()
		before := events(t, req)
		until(t, "a message", func() bool { return events(t, req) > before+20 })
		if err := resp.ep.Disconnect(dat.CloseAbrupt); err != nil {
			t.Fatal(err)
		}
		err := <-failed
		if err == nil {
			t.Fatal("no error")
		}
		if ce := new(ConnectionError); errors.As(err, &ce) && ce.Event != dat.ConnectionDisconnected && ce.Event != dat.ConnectionBroken {
			t.Errorf("got %v", err)
		}
	})
}

func TestStalledPeerIsTold(t *testing.T) {
	defer func(d time.Duration) { stallLimit = d }(stallLimit)
	stallLimit = 40 * time.Millisecond
	for _, c := range []Completion{Upcall, Dequeue, Wait} {
		spec := Spec{Op: Send, Kind: Latency, Size: 8, Messages: 10}
		r := newRig(t, "loop0", 1<<16)
		req, resp := r.pair(t, spec, c)
		if err := resp.evd.ModifyUpcall(dat.UpcallDisable, nil, dat.InvocNew); err != nil { // nobody drives the responder
			t.Fatal(err)
		}
		_, err := Run(context.Background(), req, nil)
		if s := new(StallError); !errors.As(err, &s) {
			t.Errorf("%v: got %v", c, err)
		}
	}
}

func TestInterruptedRunHasResults(t *testing.T) {
	everyWay(t, func(t *testing.T, spec Spec, c Completion) {
		spec.Messages, spec.Duration = 0, time.Hour
		r := newRig(t, "loop0", spec.Memory())
		req, resp := r.pair(t, spec, c)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		type outcome struct {
			Result
			error
		}
		ended := make(chan outcome, 1)
		go func() {
			res, err := Run(ctx, req, resp)
			ended <- outcome{res, err}
		}()
		until(t, "a message", func() bool { return events(t, req) > 200 })
		cancel()
		o := <-ended
		if o.error != nil || !o.Interrupted || o.Messages == 0 || o.Checked == 0 {
			t.Errorf("%+v", o)
		}
	})
}

func TestRunThatIsInterruptedBeforeItBegins(t *testing.T) {
	everyWay(t, func(t *testing.T, spec Spec, c Completion) {
		r := newRig(t, "loop0", spec.Memory())
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		res, err := Measure(ctx, r.hosts[0], r.to, spec, c)
		if err != nil || !res.Interrupted || res.Messages != 0 {
			t.Errorf("Measure: %+v, %v", res, err)
		}
		req, resp := newRig(t, "loop0", spec.Memory()).pair(t, spec, c)
		req.interrupt()
		if res, err = Run(context.Background(), req, resp); err != nil || !res.Interrupted || res.Messages != 0 {
			t.Errorf("Run: %+v, %v", res, err)
		}
	})
}

func TestMeasuredPathAllocatesNothing(t *testing.T) {
	everyWay(t, func(t *testing.T, spec Spec, c Completion) {
		spec.List, spec.Verify = 1, false
		for _, spec.List = range []int{1, 4} {
			r := newRig(t, "loop0", spec.Memory())
			mallocs := func(messages int) float64 {
				spec.Messages = messages
				req, resp := r.pair(t, spec, c)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if _, err := Run(context.Background(), req, resp); err != nil {
					t.Fatal(err)
				}
				runtime.ReadMemStats(&after)
				return float64(after.Mallocs - before.Mallocs)
			}
			mallocs(100)
			many := 20000
			if testing.Short() {
				many = 2000
			}
			limit := 0.02
			if testing.Short() {
				limit = 0.2 // few messages, so that what the runtime allocates shows; one for each list would be 0.25 or more
			}
			if each := (mallocs(100+many) - mallocs(100)) / float64(many); each > limit {
				t.Errorf("list of %d: %.3f allocations a message", spec.List, each)
			}
		}
	})
}

func TestSpecThatMakesNoSenseIsRefused(t *testing.T) {
	good := Spec{Op: Send, Kind: Throughput, Size: 8, Depth: 4, Messages: 1}
	if _, err := good.plan(); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(*Spec){
		func(s *Spec) { s.Size = 0 },
		func(s *Spec) { s.Size = MaxSize + 1 },
		func(s *Spec) { s.Depth = 0 },
		func(s *Spec) { s.Depth = MaxDepth + 1 },
		func(s *Spec) { s.List = 5 },
		func(s *Spec) { s.WarmUp = -1 },
		func(s *Spec) { s.WarmUp = maxWarmUp + 1 },
		func(s *Spec) { s.Messages = 0 },
		func(s *Spec) { s.Messages = -1 },
		func(s *Spec) { s.Duration = -1 },
	} {
		s := good
		change(&s)
		if _, err := s.plan(); err == nil {
			t.Errorf("%d: %+v passes", i, s)
		}
		r := newRig(t, "loop0", 1<<16)
		if _, err := Measure(context.Background(), r.hosts[0], r.to, s, Wait); err == nil {
			t.Errorf("%d: %+v is measured", i, s)
		}
	}
}

func TestMemoryThatDoesNotSufficeIsTold(t *testing.T) {
	spec := Spec{Op: Send, Kind: Throughput, Size: 4096, Depth: 16, Messages: 1}
	for _, memory := range [][]int64{{4096, 1 << 20}, {1 << 20, 4096}} {
		r := newRig(t, "loop0", memory...)
		if _, err := Measure(context.Background(), r.hosts[0], r.to, spec, Wait); err == nil || !strings.Contains(err.Error(), "bytes of memory") {
			t.Errorf("got %v", err)
		}
	}
}

func TestStrangerIsRejectedWithAReason(t *testing.T) {
	r := newRig(t, "loop0", 1<<16)
	spec, err := (Spec{Op: Send, Size: 8, Messages: 1}).plan()
	if err != nil {
		t.Fatal(err)
	}
	wrongOp, wrongSize := spec, spec
	wrongOp.Op, wrongSize.Size = 9, 0
	otherVersion := (&request{Spec: spec}).encode()
	otherVersion[4]++
	for _, private := range [][]byte{nil, []byte("hello"), make([]byte, 40), (&request{Spec: wrongOp}).encode(), (&request{Spec: wrongSize}).encode(), otherVersion} {
		e, err := r.hosts[0].newEnd(spec, Wait)
		if err != nil {
			t.Fatal(err)
		}
		addr, qual := r.to.Addr()
		if err := e.ep.Connect(addr, qual, dat.ConnectConfig{Timeout: setUpTimeout, PrivateData: private}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.to.Accept(context.Background()); err == nil {
			t.Errorf("%x: accepted", private)
		}
		_, err = e.established(context.Background())
		var c *ConnectionError
		if !errors.As(err, &c) || c.Event != dat.ConnectionPeerRejected || c.Reason == "" || !strings.Contains(err.Error(), "the peer says: ") {
			t.Errorf("%x: got %v", private, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNobodyListensIsTold(t *testing.T) {
	r := newRig(t, "loop0", 1<<16)
	addr, qual := r.to.Addr()
	if err := r.to.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := r.hosts[0].Connect(context.Background(), addr, qual, Spec{Op: Send, Size: 8, Messages: 1}, Wait)
	var c *ConnectionError
	if !errors.As(err, &c) || c.Event != dat.ConnectionNonPeerRejected {
		t.Errorf("got %v", err)
	}
}
