// Command mutate breaks the code and the model in the same ways and shows that each fault is found, and by which test.
//
// Each mutation of the code is one changed place in a copy of the source that only the compiler sees; the tests that are named for it
// run in a program that is built with it, and each of them must fail. The same tests must pass without it. The mutations of
// the model are the configurations mut-… of the command model, whose counter-examples it finds.
//
// It needs what the command model needs; -model=false leaves the model out. -tests names other tests than those of the
// table, as a pattern for go test: then it tells which of them find each mutation.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"kdapl/internal/mutation"
)

func main() {
	only := flag.String("run", "", "only the mutations whose name matches this `pattern`")
	model := flag.Bool("model", true, "also the mutations of the model")
	jobs := flag.Int("j", 2, "mutations that are tried at once")
	tests := flag.String("tests", "", "run the tests that match this `pattern` in place of those of the table, and list those that fail")
	flag.Parse()
	if err := run(*only, *tests, *model, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

const rowFormat = "%-6s  %-34s  %-58s  %7s  %s\n"

func run(only, tests string, model bool, jobs int) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	root, err := mutation.Root()
	if err != nil {
		return err
	}
	fmt.Printf(rowFormat, "of", "mutation", "found by", "seconds", "how")
	failed := 0
	rows := make([]chan []row, len(mutants))
	slots := make(chan struct{}, max(1, jobs))
	for i, m := range mutants {
		if !pattern.MatchString(m.name) {
			continue
		}
		rows[i] = make(chan []row, 1)
		go func() {
			slots <- struct{}{}
			rows[i] <- m.try(root, tests)
			<-slots
		}()
	}
	for i, m := range mutants {
		if rows[i] == nil {
			continue
		}
		for _, r := range <-rows[i] {
			if r.err != nil {
				failed++
				r.how = "NOT FOUND: " + r.err.Error()
			}
			fmt.Printf(rowFormat, "code", m.name, r.test, fmt.Sprintf("%.1f", r.took.Seconds()), r.how)
		}
	}
	if model {
		n, err := modelRows(root, pattern)
		if failed += n; err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d not found", failed)
	}
	return nil
}

// row is a line of the table.
type row struct {
	test string
	took time.Duration
	how  string
	err  error
}

// unchanged is the test program of package dat without a mutation, built when it is needed first.
var unchanged = sync.OnceValues(func() (string, error) {
	root, err := mutation.Root()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", err
	}
	return mutation.BuildUnchanged(root, "dat", "kdapl_explore", dir)
})

// try builds the mutant and runs its tests, each on the code without the fault as well.
func (m mutant) try(root, tests string) []row {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return []row{{err: err}}
	}
	defer os.RemoveAll(dir)
	program, err := m.change.Build(root, "dat", "kdapl_explore", dir)
	if err != nil {
		return []row{{err: err}}
	}
	if tests != "" {
		out, took, end := runTests(root, program, tests)
		var names []string
		for _, f := range regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`).FindAllStringSubmatch(string(out), -1) {
			names = append(names, f[1])
		}
		_, first, _ := mutation.Judge(out, end)
		return []row{{test: strings.Join(names, " "), took: took, how: first}}
	}
	var rows []row
	for _, test := range m.found {
		r := row{test: test}
		before, err := unchanged()
		if err != nil {
			return append(rows, row{test: test, err: err})
		}
		if out, _, end := runTests(root, before, exactly(test)); end != nil {
			_, first, _ := mutation.Judge(out, end)
			r.err = fmt.Errorf("it fails without the mutation too: %s", first)
			rows = append(rows, r)
			continue
		}
		out, took, end := runTests(root, program, exactly(test))
		v, first, err := mutation.Judge(out, end)
		switch {
		case v == mutation.NoTests:
			err = errors.New("there is no such test")
		case v == mutation.Passed && err == nil:
			err = errors.New("it passes")
		}
		rows = append(rows, row{test, took, first, err})
	}
	return rows
}

// exactly is the pattern for one test or subtest.
func exactly(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

func runTests(root, program, pattern string) (out []byte, took time.Duration, end error) {
	begin := time.Now()
	cmd := exec.Command(program, "-test.short", "-test.timeout=120s", "-seeds=6000", "-test.run="+pattern)
	cmd.Dir = filepath.Join(root, "dat")
	out, end = cmd.CombinedOutput()
	return out, time.Since(begin), end
}

// modelRows runs the mutations of the model and prints them as rows. It returns how many were not found.
func modelRows(root string, only *regexp.Regexp) (failed int, err error) {
	cmd := exec.Command("go", "run", "./model", "-run", "^mut-")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		cells := regexp.MustCompile(`\s{2,}`).Split(strings.TrimSpace(lines.Text()), -1)
		if len(cells) != 6 || !strings.HasPrefix(cells[0], "mut-") || !only.MatchString(cells[0]) {
			continue
		}
		if cells[5] != "found, as expected" {
			failed++
		}
		fmt.Printf(rowFormat, "model", cells[0], "spin, "+cells[2]+" states", cells[4], cells[1])
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		return failed, err
	}
	return failed, cmd.Wait()
}
