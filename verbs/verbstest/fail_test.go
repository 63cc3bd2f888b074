package verbstest_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kdapl/device/loop"
	"kdapl/verbs/verbstest"
)

// mutantEnv names the mutant that a child process is to check.
const mutantEnv = "VERBSTEST_MUTANT"

// behind makes pairs of a loop adapter behind a mutation.
func behind(m *mutation, cfg loop.Config, deadline time.Duration) func(testing.TB) verbstest.Pair {
	d := &wdev{inner: loop.New(cfg), m: m}
	return func(testing.TB) verbstest.Pair {
		return verbstest.Pair{Active: d, Passive: d, Unreachable: nowhere, Deadline: deadline}
	}
}

// The suite passes on a device behind a mutation that changes nothing: what fails on a
// mutant fails by the mutation.
func TestSuitePassesBehindAnEmptyMutation(t *testing.T) {
	verbstest.Run(t, behind(&mutation{}, loop.Config{}, 0))
}

// TestMutant is the suite on one mutant, for a child process of TestSuiteCanFail.
func TestMutant(t *testing.T) {
	name := os.Getenv(mutantEnv)
	if name == "" {
		t.Skip("run by TestSuiteCanFail, in a child process")
	}
	i := slices.IndexFunc(mutants, func(m mutant) bool { return m.name == name })
	if i < 0 {
		t.Fatalf("no mutant %q", name)
	}
	first := &wdev{inner: loop.New(loop.Config{}), m: &mutants[i].m}
	verbstest.Run(t, func(t testing.TB) verbstest.Pair {
		second := loop.New(loop.Config{})
		return verbstest.Pair{
			Active: first, Passive: &wdev{inner: second, m: first.m}, Remove: second.Remove,
			Unreachable: nowhere, Deadline: 300 * time.Millisecond,
		}
	})
}

// Every rule that a mutant names must fail on it; a suite that cannot fail says nothing.
func TestSuiteCanFail(t *testing.T) {
	if os.Getenv(mutantEnv) != "" {
		t.Skip("this is the child process")
	}
	type result struct {
		out []byte
		err error
	}
	results := make([]chan result, len(mutants))
	busy := make(chan struct{}, 8) // the children wait, most of the time
	for i := range mutants {
		if testing.Short() && i%4 != 0 {
			continue
		}
		results[i] = make(chan result, 1)
		go func() {
			busy <- struct{}{}
			defer func() { <-busy }()
			out, err := child(&mutants[i])
			results[i] <- result{out, err}
		}()
	}
	for i, m := range mutants {
		if results[i] == nil {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			r := <-results[i]
			if r.err == nil {
				t.Errorf("the suite passes:\n%s", r.out)
				return
			}
			for _, rule := range m.rules {
				if !strings.Contains(string(r.out), "--- FAIL: TestMutant/"+strings.ReplaceAll(rule, " ", "_")+" (") {
					t.Errorf("%s does not fail:\n%s", rule, r.out)
				}
			}
			if strings.Contains(string(r.out), "panic: ") {
				t.Errorf("the suite panics:\n%s", r.out)
			}
		})
	}
}

// child runs the rules of a mutant in another process.
func child(m *mutant) ([]byte, error) {
	var groups, rules []string
	for _, r := range m.rules {
		g, rule, _ := strings.Cut(r, "/")
		groups = append(groups, regexp.QuoteMeta(g))
		rules = append(rules, regexp.QuoteMeta(strings.ReplaceAll(rule, " ", "_")))
	}
	run := "^TestMutant$/^(" + strings.Join(groups, "|") + ")$/^(" + strings.Join(rules, "|") + ")$"
	cmd := exec.Command(os.Args[0], "-test.timeout=120s", "-test.run="+run)
	cmd.Env = append(os.Environ(), mutantEnv+"="+m.name)
	return cmd.CombinedOutput()
}

func TestEveryGroupHasAMutant(t *testing.T) {
	groups, rules := verbstest.Groups()
	for _, g := range groups {
		if !slices.ContainsFunc(mutants, func(m mutant) bool {
			return slices.ContainsFunc(m.rules, func(r string) bool { return strings.HasPrefix(r, g+"/") })
		}) {
			t.Errorf("no mutant for a rule of group %s", g)
		}
	}
	for _, m := range mutants {
		for _, r := range m.rules {
			if !slices.Contains(rules, r) {
				t.Errorf("mutant %q names the unknown rule %q", m.name, r)
			}
		}
	}
}

func TestRuleNamesAreUnique(t *testing.T) {
	_, rules := verbstest.Groups()
	seen := map[string]bool{}
	for _, r := range rules {
		if seen[r] {
			t.Errorf("two rules are called %q", r)
		}
		seen[r] = true
	}
}
