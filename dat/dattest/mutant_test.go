package dattest_test

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"kdapl/internal/mutation"
)

// mutant is a copy of package dat with one fault, and the rules, as group/rule, that must find it.
type mutant struct {
	file, old, new string // old occurs once in the file
	rules          []string
}

// Each mutant is found by every rule that is named for it, and each group of the suite finds some. Every
// mutant is a build of its own, so this is of the long form: KDAPL_LONG=1.
func TestMutants(t *testing.T) {
	if os.Getenv("KDAPL_LONG") == "" {
		t.Skip("KDAPL_LONG is not set")
	}
	found := map[string]int{}
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, m := range mutants {
		for _, r := range m.rules {
			group, _, _ := strings.Cut(r, "/")
			found[group]++
		}
		t.Run(m.rules[0], func(t *testing.T) {
			t.Parallel()
			places <- struct{}{}
			defer func() { <-places }()
			m.test(t)
		})
	}
	for group, n := range found {
		t.Logf("%s: %d rules", group, n)
		if n < 4 {
			t.Errorf("%d rules of the group %s have a mutant", n, group)
		}
	}
}

func (m mutant) test(t *testing.T) {
	root, err := mutation.Root()
	if err != nil {
		t.Fatal(err)
	}
	program, err := mutation.Change{File: "dat/" + m.file, Old: m.old, New: m.new}.Build(root, "dat/dattest", "", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range m.rules {
		group, name, _ := strings.Cut(rule, "/")
		quote := func(s string) string { return "^" + regexp.QuoteMeta(s) + "$" }
		run := exec.Command(program, "-test.short", "-test.timeout=20s", "-deadline=500ms",
			"-test.run=^Test(Loop|Small|Lesser)/"+quote(group)+"/"+quote(name))
		run.Env = append(os.Environ(), "KDAPL_LONG=")
		out, err := run.CombinedOutput()
		switch v, first, err := mutation.Judge(out, err); {
		case err != nil:
			t.Errorf("%q: %v", rule, err)
		case v == mutation.NoTests:
			t.Errorf("there is no rule %q", rule)
		case v == mutation.Passed:
			t.Errorf("not found by %q", rule)
		default:
			t.Logf("%q:\n%s", rule, first)
		}
	}
}
