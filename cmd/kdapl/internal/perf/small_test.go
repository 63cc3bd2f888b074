package perf

import (
	"testing"
	"time"

	"kdapl/dat"

	"pgregory.net/rapid"
)

func TestPayloadIsFoundGoodOrItsFirstBadByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := make([]byte, rapid.IntRange(0, 100).Draw(t, "size"))
		seed := rapid.Uint64().Draw(t, "seed")
		fill(b, seed)
		if at := check(b, seed); at != -1 {
			t.Fatalf("good payload is bad at %d", at)
		}
		if len(b) == 0 {
			return
		}
		first := rapid.IntRange(0, len(b)-1).Draw(t, "bad")
		for i := first; i < len(b); i++ {
			if i == first || rapid.Bool().Draw(t, "more") {
				b[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
			}
		}
		if at := check(b, seed); at != first {
			t.Fatalf("bad at %d, found at %d", first, at)
		}
	})
}

func TestPayloadsDiffer(t *testing.T) {
	s := Spec{Op: Write, Kind: Throughput, Size: 1, Depth: 64, salt: 1}
	other := s
	other.salt = 2
	seen := map[uint64]bool{}
	for _, s := range []Spec{s, other} {
		for i := range s.slots() {
			for _, responders := range []bool{false, true} {
				for _, timed := range []bool{false, true} {
					w := word(s.seed(i, responders, timed), 0)
					if seen[w] {
						t.Fatalf("slot %d has the payload of another", i)
					}
					seen[w] = true
				}
			}
		}
	}
}

// Every buffer lies in the memory that is asked for, and no two overlap.
func TestBuffersDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{
			Op: Op(rapid.IntRange(0, 2).Draw(t, "op")), Kind: Kind(rapid.IntRange(0, 1).Draw(t, "kind")),
			Size: rapid.IntRange(1, 300).Draw(t, "size"), Depth: rapid.IntRange(1, 100).Draw(t, "depth"), Messages: 1,
		}
		s, err := s.plan()
		if err != nil {
			t.Fatal(err)
		}
		used := make([]bool, s.Memory())
		take := func(off, n int) {
			for i := range used[off:][:n] {
				if used[off+i] {
					t.Fatalf("byte %d is used twice", off+i)
				}
				used[off+i] = true
			}
		}
		for i := range s.slots() {
			take(s.out(i), s.Size)
			take(s.in(i), max(s.Size, controlLen))
		}
		for _, i := range []int{bufCredit, bufAck, bufReport, bufEnd, bufBegin} {
			take(i*controlSize, controlLen)
		}
		for i := range s.slots()/s.creditBatch() + 3 {
			take((bufRecv+i)*controlSize, controlLen)
		}
		for _, b := range used[:controlArea] { // and the control buffers stay in their area
			_ = b
		}
		if s.out(0) < controlArea || (bufRecv+s.slots()/s.creditBatch()+3)*controlSize > controlArea {
			t.Fatal("control buffers reach into message buffers")
		}
	})
}

func TestSpecTravels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{
			Op: Op(rapid.IntRange(0, 2).Draw(t, "op")), Kind: Kind(rapid.IntRange(0, 1).Draw(t, "kind")),
			Size: rapid.IntRange(1, MaxSize).Draw(t, "size"), Depth: rapid.IntRange(1, MaxDepth).Draw(t, "depth"),
			WarmUp: rapid.IntRange(0, maxWarmUp).Draw(t, "warm"), Verify: rapid.Bool().Draw(t, "verify"),
			Messages: 1, Duration: time.Duration(rapid.IntRange(0, 1<<30).Draw(t, "ms")) * time.Millisecond, salt: rapid.Uint64().Draw(t, "salt"),
		}
		s, err := s.plan()
		if err != nil {
			t.Fatal(err)
		}
		sent := request{s, Completion(rapid.IntRange(0, 2).Draw(t, "completion"))}
		b := sent.encode()
		if len(b) > 56 {
			t.Fatalf("%d bytes are more than InfiniBand has", len(b))
		}
		got, err := decodeRequest(append(b, make([]byte, rapid.IntRange(0, 3).Draw(t, "padding"))...))
		if err != nil {
			t.Fatal(err)
		}
		got.Messages = s.Messages
		if got != sent {
			t.Fatalf("sent %+v, got %+v", sent, got)
		}
	})
}

func FuzzDecode(f *testing.F) {
	s, err := (Spec{Op: Read, Kind: Throughput, Size: 4096, Depth: 16, Messages: 1, Verify: true, salt: 7}).plan()
	if err != nil {
		f.Fatal(err)
	}
	f.Add((&request{Spec: s}).encode())
	f.Add(encodeAccept(dat.RMRTriplet{VirtualAddress: 1 << 40, RMRContext: 7}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decodeRequest(b); err == nil {
			if again, err := s.plan(); err != nil || again != s.Spec || s.Memory() <= 0 {
				t.Fatalf("%+v is accepted, and makes no sense: %v", s, err)
			}
		}
		if r, err := decodeAccept(b); err == nil && string(encodeAccept(r)) != string(b[:acceptLen]) {
			t.Fatalf("%x becomes %+v", b, r)
		}
	})
}

func TestNamesTravel(t *testing.T) {
	for _, want := range Ops {
		var got Op
		text, err := want.MarshalText()
		if err != nil || got.UnmarshalText(text) != nil || got != want {
			t.Errorf("%v became %v", want, got)
		}
	}
	for _, want := range []Completion{Upcall, Dequeue, Wait} {
		var got Completion
		text, err := want.MarshalText()
		if err != nil || got.UnmarshalText(text) != nil || got != want {
			t.Errorf("%v became %v", want, got)
		}
	}
	var op Op
	if err := op.UnmarshalText([]byte("sending")); err == nil {
		t.Error("an unknown name passes")
	}
}

func TestSamplesAreWhatWasRecorded(t *testing.T) {
	for _, op := range Ops {
		r := requester{End: &End{}, cost: 30}
		r.result = Result{Spec: Spec{Op: op, Kind: Latency, Size: 1000}, Histogram: newHistogram(), Messages: 4, Elapsed: 2 * time.Second}
		r.at = 1000
		for _, d := range []time.Duration{100, 200, 2 * maxLatency, 10} { // the last is shorter than the clock's cost
			r.sample(r.at + d)
		}
		scale := 1.0
		if op == Send {
			scale = 0.5
		}
		res := &r.result
		if got := res.Percentile(75); got != 170*scale {
			t.Errorf("%v: third is %v", op, got)
		}
		if res.Min() != 0 || res.Percentile(25) != 0 || res.Percentile(50) != 70*scale {
			t.Errorf("%v: %v, %v, %v", op, res.Min(), res.Percentile(25), res.Percentile(50))
		}
		if most := res.Percentile(100); most < float64(maxLatency)*scale || most > 1.001*float64(maxLatency)*scale {
			t.Errorf("%v: most is %v", op, most)
		}
		if res.MessageRate() != 2 || res.Bandwidth() != 2000 {
			t.Errorf("%v: %v messages/s, %v bytes/s", op, res.MessageRate(), res.Bandwidth())
		}
		var n int64
		for _, b := range res.Samples() {
			n += b.Count
		}
		if n != 4 {
			t.Errorf("%v: %d samples", op, n)
		}
	}
}

func TestClockCostIsPositive(t *testing.T) {
	if c := ClockCost(); c <= 0 || c > time.Millisecond {
		t.Errorf("reading the clock costs %v", c)
	}
}
