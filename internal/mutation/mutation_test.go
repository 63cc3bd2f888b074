package mutation_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kdapl/internal/mutation"
)

func TestAChangeNeedsOnePlace(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.go"), []byte("one two two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := (mutation.Change{File: "a.go", Old: "one", New: "three"}).Apply(root); err != nil || string(text) != "three two two" {
		t.Errorf("%q, %v", text, err)
	}
	for _, old := range []string{"two", "four"} {
		if text, err := (mutation.Change{File: "a.go", Old: old}).Apply(root); err == nil {
			t.Errorf("%s: %q", old, text)
		}
	}
	if _, err := (mutation.Change{File: "b.go", Old: "one"}).Apply(root); err == nil {
		t.Error("no file, and no error")
	}
}

func TestOutputIsJudged(t *testing.T) {
	failure := errors.New("exit status 1")
	for _, c := range []struct {
		out   string
		end   error
		want  mutation.Verdict
		first string
		bad   bool
	}{
		{"ok\n", nil, mutation.Passed, "", false},
		{"testing: warning: no tests to run\nPASS\n", nil, mutation.NoTests, "", false},
		{"--- FAIL: TestX (0.1s)\n    x_test.go:7: lost\n    x_test.go:8: more\n", failure, mutation.Found, "x_test.go:7: lost", false},
		{"panic: test timed out\n", failure, mutation.Found, "panic: test timed out", false},
		{"cannot execute", failure, mutation.Passed, "", true},
	} {
		v, first, err := mutation.Judge([]byte(c.out), c.end)
		if v != c.want || first != c.first || (err != nil) != c.bad {
			t.Errorf("%q: %v, %q, %v", c.out, v, first, err)
		}
	}
}

// A fault in the package's own tests' way: the change is in the program, and not in the file.
func TestTheProgramHasTheChange(t *testing.T) {
	root, err := mutation.Root()
	if err != nil {
		t.Fatal(err)
	}
	c := mutation.Change{File: "internal/fastlock/lock.go", Old: "func (m *Mutex) Unlock() {", New: "func (m *Mutex) Unlock() { panic(\"mutant\");"}
	before, err := os.ReadFile(filepath.Join(root, c.File))
	if err != nil {
		t.Fatal(err)
	}
	program, err := c.Build(root, "internal/fastlock", "", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program)
	if err != nil || !strings.Contains(string(text), "mutant") {
		t.Error("the program does not have the change", err)
	}
	if after, err := os.ReadFile(filepath.Join(root, c.File)); err != nil || string(after) != string(before) {
		t.Error("the file has changed", err)
	}
}
