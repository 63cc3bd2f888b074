package dattest_test

import (
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/dat/dattest"
	"kdapl/dat/internal/altered"
	"kdapl/device/iwarp"
	"kdapl/device/loop"
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
	if os.Getenv(mutantEnv) != "" {
		t.Skip("this is the child process")
	}
	type result struct {
		out []byte
		err error
	}
	results := make([]chan result, len(deviceMutants))
	busy := make(chan struct{}, 8) // the children wait, most of the time
	for i := range deviceMutants {
		if testing.Short() && i%4 != 0 {
			continue
		}
		results[i] = make(chan result, 1)
		go func() {
			busy <- struct{}{}
			defer func() { <-busy }()
			out, err := child(&deviceMutants[i])
			results[i] <- result{out, err}
		}()
	}
	for i, m := range deviceMutants {
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
				if !strings.Contains(string(r.out), "--- FAIL: TestDeviceMutant/"+strings.ReplaceAll(rule, " ", "_")+" (") {
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
func child(m *deviceMutant) ([]byte, error) {
	var groups, rules []string
	for _, r := range m.rules {
		g, rule, _ := strings.Cut(r, "/")
		groups = append(groups, regexp.QuoteMeta(g))
		rules = append(rules, regexp.QuoteMeta(strings.ReplaceAll(rule, " ", "_")))
	}
	run := "^TestDeviceMutant$/^(" + strings.Join(groups, "|") + ")$/^(" + strings.Join(rules, "|") + ")$"
	cmd := exec.Command(os.Args[0], "-test.timeout=120s", "-test.run="+run)
	cmd.Env = append(os.Environ(), mutantEnv+"="+m.name)
	return cmd.CombinedOutput()
}

func TestEveryGroupHasAMutant(t *testing.T) {
	groups, rules := dattest.Groups()
	for _, g := range groups {
		if !slices.ContainsFunc(deviceMutants, func(m deviceMutant) bool {
			return slices.ContainsFunc(m.rules, func(r string) bool { return strings.HasPrefix(r, g+"/") })
		}) {
			t.Errorf("no mutant for a rule of group %s", g)
		}
	}
	for _, m := range deviceMutants {
		for _, r := range m.rules {
			if !slices.Contains(rules, r) {
				t.Errorf("mutant %q names the unknown rule %q", m.name, r)
			}
		}
	}
}

func TestRuleNamesAreUnique(t *testing.T) {
	_, rules := dattest.Groups()
	seen := map[string]bool{}
	for _, r := range rules {
		if seen[r] {
			t.Errorf("two rules are called %q", r)
		}
		seen[r] = true
	}
}
