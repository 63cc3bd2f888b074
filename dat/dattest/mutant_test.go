package dattest_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kdapl/dat/dattest"
	"kdapl/internal/mutation"
)

// mutant is a copy of package dat with one fault, and the rules, as group/rule, that must find it.
type mutant struct {
	file, old, new string // old occurs once in the file
	rules          []string
}

func (m mutant) change() mutation.Change {
	return mutation.Change{File: "dat/" + m.file, Old: m.old, New: m.new}
}

// handful is how many mutants each group of the suite finds at least.
const handful = 5

// Each mutant still has its place in the source, its rules are of the suite, and no group is without mutants. Whether
// the rules find them is TestMutants.
func TestMutantsApply(t *testing.T) {
	root, err := mutation.Root()
	if err != nil {
		t.Fatal(err)
	}
	groups, rules := dattest.Groups()
	found := map[string]int{}
	seen := map[string]bool{}
	for _, m := range mutants() {
		if _, err := m.change().Apply(root); err != nil {
			t.Error(err)
		}
		if m.old == m.new {
			t.Errorf("nothing changes in %s: %q", m.file, m.old)
		}
		in := map[string]bool{}
		for _, r := range m.rules {
			if !slices.Contains(rules, r) {
				t.Errorf("there is no rule %q", r)
			}
			group, _, _ := strings.Cut(r, "/")
			in[group] = true
			if one := fmt.Sprintf("%s %q %q by %q", m.file, m.old, m.new, r); seen[one] {
				t.Errorf("twice: %s", one)
			} else {
				seen[one] = true
			}
		}
		if len(in) == 0 {
			t.Errorf("%s %q names no rule", m.file, m.old)
		}
		for group := range in {
			found[group]++
		}
	}
	for _, group := range groups {
		if found[group] < handful {
			t.Errorf("%d mutants for the group %s", found[group], group)
		}
	}
}

// Each mutant is found by every rule that is named for it, and these rules pass without it. KDAPL_LONG=1 asks for this. One
// group is -run 'TestMutants/^GROUP$'.
func TestMutants(t *testing.T) {
	if os.Getenv("KDAPL_LONG") == "" {
		t.Skip("takes minutes: KDAPL_LONG=1 runs it, as .ci/run full does")
	}
	root, err := mutation.Root()
	if err != nil {
		t.Fatal(err)
	}
	all := mutants()
	changes := make([]mutation.Change, len(all))
	for i, m := range all {
		changes[i] = m.change()
	}
	programs, err := mutation.Together(root, "dat/dattest", "", t.TempDir(), changes)
	if err != nil {
		t.Fatal(err)
	}
	places := make(chan struct{}, 2*runtime.GOMAXPROCS(0)) // they wait, most of the time
	for i, m := range all {
		t.Run(m.rules[0], func(t *testing.T) {
			t.Parallel()
			places <- struct{}{}
			defer func() { <-places }()
			for _, rule := range m.rules {
				program, env := programs.Unchanged()
				v, first, err := runRule(program, env, rule)
				for range 2 { // the time of a wait is short for a machine that is busy
					if v == mutation.Found {
						v, first, err = runRule(program, env, rule)
					}
				}
				if v != mutation.Passed || err != nil {
					t.Errorf("%q does not pass without a mutation: %v %s", rule, err, first)
				}
				program, env = programs.Program(i)
				v, first, err = runRule(program, env, rule)
				for range 4 { // what only a race brings to light may take several
					if v == mutation.Passed && err == nil {
						v, first, err = runRule(program, env, rule)
					}
				}
				switch {
				case err != nil:
					t.Errorf("%q: %v", rule, err)
				case v == mutation.Passed:
					t.Errorf("not found by %q: %s: %q -> %q", rule, m.file, m.old, m.new)
				default:
					t.Logf("%q: %s", rule, first)
				}
			}
		})
	}
}

// runRule runs one rule of a test program on each loop device.
func runRule(program, env, rule string) (v mutation.Verdict, first string, err error) {
	group, name, _ := strings.Cut(rule, "/")
	quote := func(s string) string { return "^" + regexp.QuoteMeta(s) + "$" }
	run := exec.Command(program, "-test.short", "-test.timeout=30s", "-test.failfast", "-deadline=1s",
		"-test.run=^Test(Loop|Small|Lesser)/"+quote(group)+"/"+quote(name))
	run.Env = append(os.Environ(), "KDAPL_LONG=", env)
	out, end := run.CombinedOutput()
	if v, first, err = mutation.Judge(out, end); v == mutation.NoTests {
		err = errors.New("no test ran")
	}
	return v, first, err
}
