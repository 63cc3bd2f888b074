// Command guard compares the benchmarks of package bench with those of an earlier commit, in one run:
//
//	go run ./bench/guard             against the commit before
//	go run ./bench/guard -base main
//
// Both are built and run in turn. A data path that allocates is an error. A median that has become slower by more than a
// quarter is a warning and no more, since other work on the machine can do that too. Without the earlier commit, as in
// a shallow clone, only allocations are looked at.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// rounds is how often each side runs.
	rounds = 3
	// slower is the ratio from which there is a warning.
	slower = 1.25
)

// free are the benchmarks that must not allocate.
const free = "PostSEDequeueInto|SendRecv64|Write8|Write1Mi|DequeueBurst|Writes64"

func main() {
	base := flag.String("base", "HEAD~1", "commit to compare with")
	pattern := flag.String("bench", free+"|UpcallBurst|FirstUpcall", "benchmarks, a regular expression")
	each := flag.String("time", "50ms", "time of one benchmark")
	flag.Parse()
	dir, err := os.MkdirTemp("", "guard")
	fatal(err)
	defer os.RemoveAll(dir)
	now := filepath.Join(dir, "now")
	fatal(run(".", "go", "test", "-c", "-o", now, "./bench"))
	before, err := buildBase(dir, *base)
	if err != nil {
		fmt.Printf("no comparison with %s: %v\n", *base, err)
	}
	old, recent := map[string][]float64{}, map[string][]float64{}
	bad := false
	for range rounds {
		bad = measure(now, *pattern, *each, recent) || bad
		if before != "" {
			measure(before, *pattern, *each, old)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(recent)) {
		line := fmt.Sprintf("%-24s %10.1f ns", name, median(recent[name]))
		if len(old[name]) > 0 {
			ratio := median(recent[name]) / median(old[name])
			line += fmt.Sprintf("  before %10.1f ns  ratio %.2f", median(old[name]), ratio)
			if ratio > slower {
				line += "  WARNING: slower"
			}
		}
		fmt.Println(line)
	}
	if bad {
		fmt.Println("a data path allocates")
		os.RemoveAll(dir)
		os.Exit(1)
	}
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(1)
	}
}

func run(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	return cmd.Run()
}

// buildBase builds the benchmarks of an earlier commit.
func buildBase(dir, base string) (string, error) {
	if err := exec.Command("git", "rev-parse", "--verify", "--quiet", base+"^{commit}").Run(); err != nil {
		return "", fmt.Errorf("there is no such commit here")
	}
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o700); err != nil {
		return "", err
	}
	// An archive, not a work tree: nothing is left in the repository if this is stopped.
	archive := filepath.Join(dir, "base.tar")
	if err := run(".", "git", "archive", "-o", archive, base); err != nil {
		return "", err
	}
	if err := run(tree, "tar", "-xf", archive); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "before")
	return binary, run(tree, "go", "test", "-c", "-o", binary, "./bench")
}

var (
	line   = regexp.MustCompile(`^Benchmark(\w+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op.*?\s(\d+) allocs/op`)
	mayNot = regexp.MustCompile("^(" + free + ")$")
)

// measure runs the benchmarks once, and reports whether one allocates that must not.
func measure(binary, pattern, each string, to map[string][]float64) (bad bool) {
	out, err := exec.Command(binary, "-test.run", "^$", "-test.bench", "^Benchmark("+pattern+")$", "-test.benchtime", each, "-test.benchmem").Output()
	fatal(err)
	some := false
	for l := range strings.Lines(string(out)) {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		some = true
		ns, _ := strconv.ParseFloat(m[2], 64)
		to[m[1]] = append(to[m[1]], ns)
		if m[3] != "0" && mayNot.MatchString(m[1]) {
			fmt.Printf("%s: %s allocations a round\n", m[1], m[3])
			bad = true
		}
	}
	if !some {
		fatal(fmt.Errorf("no benchmark in %q", out))
	}
	return bad
}

func median(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }
