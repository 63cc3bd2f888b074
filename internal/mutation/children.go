package mutation

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Child is a mutant that a conformance suite is to find in a process of its own, since what fails there must not fail here.
type Child struct {
	Name string
	// Rules are those that must fail, each as group/rule.
	Rules []string
}

// Children runs the test of this program that has the suite's groups as subtests once for each child, with the child's name in
// the environment and no rules but its own. Each of these must fail, and nothing may panic. The short form takes one in four.
func Children(t *testing.T, test, env string, children []Child) {
	if os.Getenv(env) != "" {
		t.Skip("this is the child process")
	}
	type result struct {
		out []byte
		err error
	}
	results := make([]chan result, len(children))
	busy := make(chan struct{}, 8) // they wait, most of the time
	for i, c := range children {
		if testing.Short() && i%4 != 0 {
			continue
		}
		results[i] = make(chan result, 1)
		go func() {
			busy <- struct{}{}
			defer func() { <-busy }()
			out, err := c.run(test, env)
			results[i] <- result{out, err}
		}()
	}
	for i, c := range children {
		if results[i] == nil {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			r := <-results[i]
			if r.err == nil {
				t.Errorf("the suite passes:\n%s", r.out)
				return
			}
			for _, rule := range c.Rules {
				if !strings.Contains(string(r.out), "--- FAIL: "+test+"/"+strings.ReplaceAll(rule, " ", "_")+" (") {
					t.Errorf("%s does not fail:\n%s", rule, r.out)
				}
			}
			if strings.Contains(string(r.out), "panic: ") {
				t.Errorf("the suite panics:\n%s", r.out)
			}
		})
	}
}

// run runs the child's rules.
func (c Child) run(test, env string) ([]byte, error) {
	var groups, rules []string
	for _, r := range c.Rules {
		g, rule, _ := strings.Cut(r, "/")
		groups = append(groups, regexp.QuoteMeta(g))
		rules = append(rules, regexp.QuoteMeta(strings.ReplaceAll(rule, " ", "_")))
	}
	run := "^" + test + "$/^(" + strings.Join(groups, "|") + ")$/^(" + strings.Join(rules, "|") + ")$"
	cmd := exec.Command(os.Args[0], "-test.timeout=120s", "-test.run="+run)
	cmd.Env = append(os.Environ(), env+"="+c.Name)
	return cmd.CombinedOutput()
}

// CheckChildren checks that every group of the suite has a child, that the children's rules exist, and that no two rules
// have one name.
func CheckChildren(t *testing.T, children []Child, groups, rules []string) {
	for _, g := range groups {
		if !slices.ContainsFunc(children, func(c Child) bool {
			return slices.ContainsFunc(c.Rules, func(r string) bool { return strings.HasPrefix(r, g+"/") })
		}) {
			t.Errorf("no mutant for a rule of group %s", g)
		}
	}
	for _, c := range children {
		for _, r := range c.Rules {
			if !slices.Contains(rules, r) {
				t.Errorf("mutant %q names the unknown rule %q", c.Name, r)
			}
		}
	}
	seen := map[string]bool{}
	for _, r := range rules {
		if seen[r] {
			t.Errorf("two rules are called %q", r)
		}
		seen[r] = true
	}
}
