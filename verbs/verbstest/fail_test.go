package verbstest_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"kdapl/device/loop"
	fault "kdapl/internal/mutation"
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
	fault.Children(t, "TestMutant", mutantEnv, children())
}

func TestEveryGroupHasAMutant(t *testing.T) {
	groups, rules := verbstest.Groups()
	fault.CheckChildren(t, children(), groups, rules)
}

func children() (list []fault.Child) {
	for _, m := range mutants {
		list = append(list, fault.Child{Name: m.name, Rules: m.rules})
	}
	return list
}
