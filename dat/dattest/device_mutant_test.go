package dattest_test

import (
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/dat/dattest"
	"kdapl/dat/internal/altered"
	"kdapl/device/iwarp"
	"kdapl/device/loop"
	"kdapl/internal/mutation"
	"kdapl/verbs"
)

// mutantEnv names the mutant that a child process is to check.
const mutantEnv = "DATTEST_MUTANT"

// behind makes adapters of devices behind hooks.
func behind(h altered.Hooks, first, second verbs.Device, remove func(), unreachable netip.Addr, deadline time.Duration) func(testing.TB) dattest.Adapters {
	opens := func(d verbs.Device) func(dat.Config) (*dat.IA, error) {
		w := &altered.Device{Device: d, Hooks: h}
		return func(cfg dat.Config) (*dat.IA, error) { return dat.Open(w, cfg) }
	}
	active, passive := opens(first), opens(second)
	return func(testing.TB) dattest.Adapters {
		return dattest.Adapters{Active: active, Passive: passive, Unreachable: unreachable, Remove: remove, Deadline: deadline}
	}
}

// The suite passes on devices behind hooks that change nothing: what fails on a mutant fails by the mutation.
func TestSuitePassesBehindEmptyHooks(t *testing.T) {
	d := loop.New(loop.Config{})
	dattest.Run(t, behind(altered.Hooks{}, d, d, nil, nowhere, 0))
}

// TestDeviceMutant is the suite on one mutant, for a child process of TestSuiteCanFail.
func TestDeviceMutant(t *testing.T) {
	name := os.Getenv(mutantEnv)
	if name == "" {
		t.Skip("TestSuiteCanFail runs it, in a child process for each mutant")
	}
	i := slices.IndexFunc(deviceMutants, func(m deviceMutant) bool { return m.name == name })
	if i < 0 {
		t.Fatalf("no mutant %q", name)
	}
	const soon = 500 * time.Millisecond
	hooks := deviceMutants[i].hooks()
	if deviceMutants[i].overTCP {
		dattest.Run(t, behind(hooks, iwarp.New(iwarp.Config{}), iwarp.New(iwarp.Config{}), nil, netip.Addr{}, soon))
		return
	}
	first := loop.New(loop.Config{Name: "first", Addr: netip.MustParseAddr("127.0.0.2")})
	dattest.Run(t, func(t testing.TB) dattest.Adapters {
		second := loop.New(loop.Config{Name: "second", Addr: netip.MustParseAddr("127.0.0.3")})
		t.Cleanup(second.Remove)
		return behind(hooks, first, second, second.Remove, nowhere, soon)(t)
	})
}

// Every rule that a mutant names must fail on it; a suite that cannot fail says nothing.
func TestSuiteCanFail(t *testing.T) {
	mutation.Children(t, "TestDeviceMutant", mutantEnv, children())
}

func TestEveryGroupHasAMutant(t *testing.T) {
	groups, rules := dattest.Groups()
	mutation.CheckChildren(t, children(), groups, rules)
}

func children() (list []mutation.Child) {
	for _, m := range deviceMutants {
		list = append(list, mutation.Child{Name: m.name, Rules: m.rules})
	}
	return list
}
