package dattest_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
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
	path, err := filepath.Abs(filepath.Join("..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		t.Fatalf("%d places in %s have %q", n, m.file, m.old)
	}
	dir := t.TempDir()
	changed, overlay, program := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "test.exe")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{changed: bytes.Replace(text, []byte(m.old), []byte(m.new), 1), overlay: replace} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-ldflags=-s -w", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile: %v\n%s", err, out)
	}
	for _, rule := range m.rules {
		group, name, _ := strings.Cut(rule, "/")
		quote := func(s string) string { return "^" + regexp.QuoteMeta(s) + "$" }
		run := exec.Command(program, "-test.short", "-test.timeout=20s", "-deadline=500ms",
			"-test.run=^Test(Loop|Small|Lesser)/"+quote(group)+"/"+quote(name))
		run.Env = append(os.Environ(), "KDAPL_LONG=")
		out, err := run.CombinedOutput()
		switch text := string(out); {
		case strings.Contains(text, "no tests to run"):
			t.Errorf("there is no rule %q", rule)
		case err == nil:
			t.Errorf("not found by %q", rule)
		case !strings.Contains(text, "--- FAIL") && !strings.Contains(text, "panic") && !strings.Contains(text, "fatal error"):
			t.Errorf("%q: %v\n%s", rule, err, text)
		default:
			t.Logf("%q:\n%s", rule, first(text))
		}
	}
}

// first is what a failure says first.
func first(out string) string {
	for line := range strings.Lines(out) {
		if regexp.MustCompile(`_?[a-z0-9]+\.go:[0-9]+: |^panic|^fatal error`).MatchString(line) {
			return line
		}
	}
	return out
}
