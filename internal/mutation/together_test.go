package mutation_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kdapl/internal/mutation"
)

// Each program has its own change only, be it within a function or not.
func TestChangesAreTogether(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example\n\ngo 1.26\n",
		"p/p.go": `package p

const one = 1

type N int

func (n *N) Add(by ...int) int {
	for _, b := range by {
		*n += N(b)
	}
	return int(*n)
}

func (N) unnamed() int { return 2 }

func last[T any](all ...T) T { return all[len(all)-1] }

func set(to *int) { *to = 3 }
`,
		"p/p_test.go": `package p

import "testing"

func TestOne(t *testing.T) { if one != 1 { t.Error(one) } }

func TestAdd(t *testing.T) {
	var n N
	if got := n.Add(1, 2); got != 3 { t.Error(got) }
}

func TestUnnamed(t *testing.T) { if got := N(0).unnamed(); got != 2 { t.Error(got) } }

func TestLast(t *testing.T) { if got := last(1, 2); got != 2 { t.Error(got) } }

func TestSet(t *testing.T) {
	n := 0
	if set(&n); n != 3 { t.Error(n) }
}
`,
	} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := []struct{ old, new, test string }{
		{"one = 1", "one = 2", "TestOne"},
		{"+= N(b)", "-= N(b)", "TestAdd"},
		{"return int(*n)\n}", "return 0\n}", "TestAdd"},
		{"return 2", "return 3", "TestUnnamed"},
		{"len(all)-1", "0", "TestLast"},
		{"func set(to *int) { *to = 3 }", "func set(to *int) {}", "TestSet"},
	}
	var changes []mutation.Change
	for _, c := range cases {
		changes = append(changes, mutation.Change{File: "p/p.go", Old: c.old, New: c.new})
	}
	programs, err := mutation.Together(root, "p", "", t.TempDir(), changes)
	if err != nil {
		t.Fatal(err)
	}
	fails := func(program, env, test string) bool {
		cmd := exec.Command(program, "-test.run=^"+test+"$")
		cmd.Env = append(os.Environ(), env)
		out, end := cmd.CombinedOutput()
		v, _, err := mutation.Judge(out, end)
		if err != nil || v == mutation.NoTests {
			t.Fatalf("%s: %v\n%s", test, err, out)
		}
		return v == mutation.Found
	}
	for i, c := range cases {
		if program, env := programs.Unchanged(); fails(program, env, c.test) {
			t.Errorf("%s fails without a change", c.test)
		}
		program, env := programs.Program(i)
		for _, other := range cases {
			if got := fails(program, env, other.test); got != (other.test == c.test) {
				t.Errorf("with %q, %s fails: %t", c.new, other.test, got)
			}
		}
	}
}

func TestChangesOfOnePackageOnly(t *testing.T) {
	root, err := mutation.Root()
	if err != nil {
		t.Fatal(err)
	}
	_, err = mutation.Together(root, "internal/mutation", "", t.TempDir(), []mutation.Change{
		{File: "internal/fastlock/lock.go", Old: "func (m *Mutex) Unlock() {", New: "func (m *Mutex) Unlock() { return;"},
		{File: "internal/mutation/mutation.go", Old: "return filepath.Dir(mod), nil", New: "return mod, nil"},
	})
	if err == nil {
		t.Error("no error")
	}
}
