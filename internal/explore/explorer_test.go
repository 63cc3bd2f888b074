//go:build kdapl_explore

package explore_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kdapl/internal/explore"
)

// lostUpdate explores one seed of two participants that each read a counter and write it back, a point in between.
func lostUpdate(t *testing.T, seed uint64) (count int, schedule string) {
	t.Helper()
	x := explore.New(seed)
	for i := range 2 {
		x.Go(fmt.Sprint(i), func() {
			c := count
			explore.At(explore.Take)
			count = c + 1
		})
	}
	if err := x.Run(); err != nil {
		t.Fatal(err)
	}
	if !x.Ended() || x.Steps() != 6 {
		t.Fatalf("%d steps\n%s", x.Steps(), x)
	}
	return count, x.String()
}

func TestSeedsFindTheLostUpdateAndSayHow(t *testing.T) {
	found := map[int]uint64{}
	schedules := map[string]bool{}
	for seed := range uint64(200) {
		n, s := lostUpdate(t, seed)
		found[n] = seed
		schedules[s[strings.Index(s, "\n"):]] = true
		if again, s2 := lostUpdate(t, seed); again != n || s2 != s {
			t.Fatalf("seed %d: %d, then %d\n%s\n%s", seed, n, again, s, s2)
		}
	}
	if len(found) != 2 {
		t.Errorf("results %v, want 1 and 2", found)
	}
	// Each has three steps of which the last two are one move: three moves, six orders at the most.
	if len(schedules) < 6 {
		t.Errorf("%d schedules", len(schedules))
	}
}

func TestBlockedParticipantsEndTheRun(t *testing.T) {
	for seed := range uint64(50) {
		x := explore.New(seed)
		open, through := false, 0
		for range 3 {
			x.Go("waiter", func() {
				explore.Block(func() bool { return open }, false)
				through++
			})
		}
		if err := x.Run(); err != nil || through != 0 || x.Ended() {
			t.Fatal(err, through)
		}
		if names := x.Blocked(); !slices.Equal(names, []string{"waiter", "waiter", "waiter"}) {
			t.Fatal(names)
		}
		x.Go("opener", func() { open = true })
		if err := x.Run(); err != nil || through != 3 || !x.Ended() {
			t.Fatal(err, through)
		}
	}
}

func TestTimedWaitsEndBothWays(t *testing.T) {
	var ends [2]int
	for seed := range uint64(100) {
		x := explore.New(seed)
		come := false
		x.Go("waiter", func() {
			if explore.Block(func() bool { return come }, true) {
				ends[1]++
			} else {
				ends[0]++
			}
		})
		x.Go("other", func() { come = true })
		if err := x.Run(); err != nil {
			t.Fatal(err)
		}
	}
	if ends[0] == 0 || ends[1] == 0 {
		t.Error(ends)
	}
}

func TestFailuresOfParticipantsAreErrors(t *testing.T) {
	x := explore.New(1)
	x.Go("bad", func() { panic("no") })
	if err := x.Run(); err == nil || !strings.Contains(err.Error(), "bad panics: no") {
		t.Error(err)
	}
	x = explore.New(1)
	x.Go("endless", func() {
		for {
			explore.At(explore.Step)
		}
	})
	if err := x.Run(); err == nil || !strings.Contains(err.Error(), "no end") {
		t.Error(err)
	}
}

func TestGoexitIsAnEnd(t *testing.T) {
	x := explore.New(1)
	var order []string
	x.Go("a", func() {
		explore.Go(func() { order = append(order, "child") })
		order = append(order, "a")
		runtime.Goexit()
	})
	if err := x.Run(); err != nil || len(order) != 2 || !x.Ended() {
		t.Error(err, order)
	}
}
