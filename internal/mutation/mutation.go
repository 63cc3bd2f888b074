// Package mutation builds test programs of packages in whose source one place is changed, to show that the tests find the
// fault. It needs the go command. Nothing on disk changes but what it writes to a folder that it is given.
package mutation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Change is a fault that is put into a file.
type Change struct {
	// File is the file, relative to the folder of the module.
	File string
	// Old is the text that is replaced by New. It occurs once in the file.
	Old, New string
}

// Root finds the folder of the module around the present one.
func Root() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	if mod := strings.TrimSpace(string(out)); filepath.Base(mod) == "go.mod" {
		return filepath.Dir(mod), nil
	}
	return "", errors.New("mutation: not in a module")
}

// Apply returns the changed text of the file. It is an error if Old does not occur, or more than once.
func (c Change) Apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, c.File))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(c.Old)); n != 1 {
		return nil, fmt.Errorf("%d places in %s have %q", n, c.File, c.Old)
	}
	return bytes.Replace(text, []byte(c.Old), []byte(c.New), 1), nil
}

// Build compiles the tests of a package, relative to root, with the change and build tags into dir, and returns the program,
// which must run in the package's folder.
func (c Change) Build(root, pkg, tags, dir string) (program string, err error) {
	text, err := c.Apply(root)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, c.File): changed}})
	if err != nil {
		return "", err
	}
	for name, data := range map[string][]byte{changed: text, overlay: replace} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return "", err
		}
	}
	return build(root, pkg, dir, "-tags", tags, "-overlay", overlay)
}

// BuildUnchanged is Build without a change.
func BuildUnchanged(root, pkg, tags, dir string) (program string, err error) {
	return build(root, pkg, dir, "-tags", tags)
}

func build(root, pkg, dir string, flags ...string) (program string, err error) {
	program = filepath.Join(dir, "test.exe")
	cmd := exec.Command("go", append(append([]string{"test", "-c", "-ldflags=-s -w", "-o", program}, flags...), "./"+pkg)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile: %w\n%s", err, out)
	}
	return program, nil
}

// Verdict is what a run of tests says.
type Verdict int

// The verdicts.
const (
	Passed  Verdict = iota // the tests that ran have passed
	Found                  // a test has failed, or the program has crashed or hung
	NoTests                // no test ran
)

var (
	failed     = regexp.MustCompile(`(?m)^\s*--- FAIL|^panic|^fatal error`)
	firstWords = regexp.MustCompile(`_?[a-z0-9]+\.go:[0-9]+: |^panic|^fatal error`)
)

// Judge reads the output of a test program and how it ended. First is what a failure says first. An end that is neither that of tests
// nor a crash is an error.
func Judge(out []byte, end error) (v Verdict, first string, err error) {
	switch {
	case bytes.Contains(out, []byte("no tests to run")):
		return NoTests, "", nil
	case end == nil:
		return Passed, "", nil
	case !failed.Match(out):
		return Passed, "", fmt.Errorf("%w\n%s", end, out)
	}
	for line := range strings.Lines(string(out)) {
		if firstWords.MatchString(line) {
			return Found, strings.TrimSpace(line), nil
		}
	}
	return Found, string(out), nil
}
