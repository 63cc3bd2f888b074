package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tests need neither spin nor gcc: they check what the command does with what those print, and
// that the table, the model's switches and the kept diagrams belong together.

const trail = `starting claim 5
  1:	proc  0 (:init::1) x.pml:9 (state 1)	[make()]
@2 evd PostSE: event 1
  2:	proc  2 (Producer:1) x.pml:10 (state 1)	[printf()]
  3:	proc  3 (Activation:1) x.pml:11 (state 1)	[x]
@3 me upcall(event 1)
  4:	proc  4 (Activation:1) x.pml:11 (state 1)	[x]
@4 note the upcall returns
spin: trail ends after 4 steps
`

func TestTrailBecomesDiagram(t *testing.T) {
	events, err := parseTrail(trail)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		" Producer    EVD    Activation1  Activation2",
		"     |------->|          |            |        PostSE: event 1",
		"     |        |--------->|            |        upcall(event 1)",
		"     |        |          |            *        the upcall returns",
		"",
	}, "\n")
	if got := draw(events); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTrailWithoutEventsIsAnError(t *testing.T) {
	for _, out := range []string{"", "spin: cannot find trail file", "@7 evd nobody's\n"} {
		if _, err := parseTrail(out); err == nil {
			t.Errorf("%q: no error", out)
		}
	}
}

func TestEndlessExecutionIsShownForOneRound(t *testing.T) {
	lead, a, b, mark := event{from: "P", text: "lead"}, event{from: "P", text: "a"}, event{from: "P", text: "b"}, event{cycle: true}
	got := oneRound([]event{lead, a, b, a, b, mark, a, b, a, b, a, b})
	if want := []event{lead, mark, a, b}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := oneRound([]event{a, b, a, b}); len(got) != 4 {
		t.Errorf("an execution that ends was shortened to %v", got)
	}
}

func TestReportIsJudged(t *testing.T) {
	const report = "pan:1: assertion violated (calls<= 1) (at depth 7)\nState-vector 1 byte, depth reached 9, errors: 1\n   12 states, stored\n"
	clean := strings.Replace(strings.SplitAfterN(report, "\n", 2)[1], "errors: 1", "errors: 0", 1)
	for _, c := range []struct {
		name, out, want string
		fails           bool
	}{
		{"holds", clean, "", false},
		{"violated", report, "", true},
		{"found", report, "calls<=", false},
		{"found otherwise", report, "claimed", true},
		{"not found", clean, "calls<=", true},
		{"incomplete", "error: max search depth too small\n" + clean, "", true},
		{"out of memory", "Search not completed\n" + clean, "", true},
		{"no report", "Segmentation fault", "", true},
	} {
		var r result
		if err := r.read(c.out, check{want: c.want}); (err != nil) != c.fails {
			t.Errorf("%s: error %v", c.name, err)
		} else if err == nil && (r.states != 12 || r.depth != 9) {
			t.Errorf("%s: %d states, depth %d", c.name, r.states, r.depth)
		}
	}
}

func TestPageShowsDrawnDiagrams(t *testing.T) {
	page := "a\n<!-- trace: one -->\n```text\nold\n```\nb\n<!-- trace: two -->\n```text\nkept\n```\n"
	got, err := embed(page, map[string]string{"one": "new\n"})
	if want := strings.Replace(page, "old", "new", 1); err != nil || got != want {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := embed("<!-- trace: one -->\nno block\n", nil); err == nil {
		t.Error("a marker without a block: no error")
	}
}

// Every switch that breaks a rule is used, every switch that is used exists, and every
// counter-example has its diagram and nothing else does.
func TestTableModelAndDiagramsBelongTogether(t *testing.T) {
	word := regexp.MustCompile(`\w+`)
	words := map[string]bool{}
	sources, err := filepath.Glob("*.pml")
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	for _, f := range sources {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range word.FindAllString(string(b), -1) {
			words[w] = true
		}
	}
	used, names := map[string]bool{}, map[string]bool{}
	for _, c := range checks {
		if names[c.name] {
			t.Errorf("%s: two of that name", c.name)
		}
		names[c.name] = true
		if !slices.Contains(sources, c.file) {
			t.Errorf("%s: no file %s", c.name, c.file)
		}
		for _, d := range c.defs {
			name, _, _ := strings.Cut(d, "=")
			used[name] = true
			if !words[name] {
				t.Errorf("%s: the model has no %s", c.name, name)
			}
		}
		_, err := os.Stat(filepath.Join("traces", c.name+".txt"))
		if (c.want != "") != (err == nil) {
			t.Errorf("%s: diagram: %v", c.name, err)
		}
		if (c.want != "") != (c.ends != "") {
			t.Errorf("%s: a counter-example needs words for its end, and only that", c.name)
		}
	}
	for w := range words {
		if strings.HasPrefix(w, "MUT_") && w != "MUT_" && !used[w] {
			t.Errorf("no configuration uses %s", w)
		}
	}
	kept, err := filepath.Glob("traces/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range kept {
		if name := strings.TrimSuffix(filepath.Base(f), ".txt"); !names[name] {
			t.Errorf("traces/%s.txt belongs to no configuration", name)
		}
	}
}
