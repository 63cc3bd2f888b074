package faultnet

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func anyStream(t *rapid.T, name string) Stream {
	d := rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64().Draw(t, "d")) })
	n := rapid.IntRange(0, 1<<30)
	return Stream{
		Latency: d.Draw(t, name+" latency"), Jitter: d.Draw(t, name+" jitter"),
		Rate: n.Draw(t, name+" rate"), Window: n.Draw(t, name+" window"), MSS: n.Draw(t, name+" mss"),
		ReadMax: n.Draw(t, name+" read"), WriteMax: n.Draw(t, name+" write"),
		KeepOnReset: rapid.Bool().Draw(t, name+" keep"),
		Events: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Event {
			e := Event{At: rapid.Int64().Draw(t, "at"), Kind: Kind(rapid.IntRange(0, int(kinds)-1).Draw(t, "kind"))}
			switch e.Kind {
			case Flip:
				e.Mask = rapid.Byte().Draw(t, "mask")
			case Stall:
				e.For = d.Draw(t, "for")
			}
			return e
		}), 0, 5).Draw(t, name+" events"),
	}
}

// samePlan compares plans as values; an empty list of events is none.
func samePlan(a, b Plan) bool {
	for _, s := range []*Stream{&a.Up, &a.Down, &b.Up, &b.Down} {
		if len(s.Events) == 0 {
			s.Events = nil
		}
	}
	return reflect.DeepEqual(a, b)
}

func TestPlanTextMakesThePlanAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Plan{
			Seed:   rapid.Uint64().Draw(t, "seed"),
			Refuse: rapid.Bool().Draw(t, "refuse"), Hang: rapid.Bool().Draw(t, "hang"),
			DialDelay:   time.Duration(rapid.Int64().Draw(t, "dial")),
			AcceptDelay: time.Duration(rapid.Int64().Draw(t, "accept")),
			Up:          anyStream(t, "up"), Down: anyStream(t, "down"),
		}
		q, err := Parse(p.String())
		if err != nil {
			t.Fatal(err)
		}
		if !samePlan(p, q) {
			t.Fatalf("%v\nbecame\n%v", p, q)
		}
	})
}

func TestPlanText(t *testing.T) {
	p := Plan{
		Seed: 7, AcceptDelay: time.Millisecond,
		Up:   Stream{Latency: 20 * time.Microsecond, ReadMax: 7, Events: []Event{{At: 120, Kind: Flip, Mask: 0x40}, {At: 300, Kind: Stall, For: time.Second}}},
		Down: Stream{KeepOnReset: true, Events: []Event{{At: 88, Kind: Reset}}},
	}
	const text = "seed=7 accept=1ms up(latency=20µs read=7 120:flip=40 300:stall=1s) down(keep 88:reset)"
	if p.String() != text {
		t.Errorf("%q", p.String())
	}
	if got := (Plan{}).String(); got != "seed=0" {
		t.Errorf("%q", got)
	}
	for _, wrong := range []string{
		"sed=7", "seed=-1", "seed", "refuse=1", "up", "up(", "up(latency=1)", "down()x", "up(1:flip)", "up(1:flip=100)",
		"up(1:none)", "up(x:fin)", "up(1:fin=2)", "up(1:stall)", "up(up(1:fin))", "up(read=1", ")", "1:fin", "read=1",
	} {
		if p, err := Parse(wrong); err == nil {
			t.Errorf("%q is %v", wrong, p)
		}
	}
	for text, want := range map[string]Plan{
		"":                          {},
		"  seed=1\n up ( 1:dark ) ": {Seed: 1, Up: Stream{Events: []Event{{At: 1, Kind: Dark}}}},
		"up(1:fin) up(0:split)":     {Up: Stream{Events: []Event{{At: 1, Kind: Fin}, {At: 0, Kind: Split}}}},
		"refuse hang":               {Refuse: true, Hang: true},
	} {
		if p, err := Parse(text); err != nil || !samePlan(p, want) {
			t.Errorf("%q is %v, %v", text, p, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(Faulty(seed, 1000).String())
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		q, err := Parse(p.String())
		if err != nil || !samePlan(p, q) {
			t.Fatalf("%q: %v, then %v, %v", text, p, q, err)
		}
	})
}

// A seed is all that a failing test has to name.
func TestDrawnPlansDependOnTheSeedAlone(t *testing.T) {
	for _, draw := range []func(uint64, int64) Plan{Lossless, Faulty} {
		distinct := make(map[string]bool)
		for seed := range uint64(200) {
			p := draw(seed, 5000)
			if !samePlan(p, draw(seed, 5000)) {
				t.Fatalf("seed %d has two plans", seed)
			}
			if q, err := Parse(p.String()); err != nil || !samePlan(p, q) {
				t.Fatalf("%v became %v, %v", p, q, err)
			}
			distinct[p.String()] = true
		}
		if len(distinct) != 200 {
			t.Errorf("%d plans from 200 seeds", len(distinct))
		}
	}
	one, two := Each(1, 100, Lossless), Each(1, 100, Lossless)
	for i := range 10 {
		a := Attempt{Index: i}
		if !samePlan(one(a), two(a)) || samePlan(one(a), one(Attempt{Index: i + 1})) {
			t.Fatal("plans of a network are not drawn by index")
		}
	}
}

func TestFaultyPlanHasOneFault(t *testing.T) {
	seen := make(map[string]int)
	for seed := range uint64(500) {
		p := Faulty(seed, 100)
		faults := 0
		note := func(name string) { faults++; seen[name]++ }
		if p.Refuse {
			note("refuse")
		}
		if p.Hang {
			note("hang")
		}
		for _, s := range []Stream{p.Up, p.Down} {
			for _, e := range s.Events {
				if e.At < 0 || e.At > 100 {
					t.Fatalf("%v: out of span", p)
				}
				if e.Kind != Split && e.Kind != Stall {
					note(e.Kind.String())
				}
				if e.Kind == Flip && e.Mask == 0 {
					t.Fatalf("%v: changes nothing", p)
				}
			}
		}
		if faults != 1 {
			t.Fatalf("%v: %d faults", p, faults)
		}
	}
	for _, kind := range []string{"refuse", "hang", "flip", "fin", "reset", "dark"} {
		if seen[kind] == 0 {
			t.Errorf("never drawn: %s", kind)
		}
	}
}
