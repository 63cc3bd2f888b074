// Command model checks the Promela model of the event dispatcher with spin and prints, for each
// configuration, the property, the states explored, the depth, the seconds and the verdict.
//
// Configurations that must hold are searched completely. Negative results and mutations must be
// found, by the assertion that is named for them; the shortest counter-example of each is kept as a
// sequence diagram in traces, and those that docs/upcalls.md shows are kept up to date there. The
// command fails if a verdict is not the expected one, or if a kept diagram is not what the model
// produces now; -write writes them.
//
// It needs spin and gcc (Debian: apt-get install spin gcc).
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

func main() {
	only := flag.String("run", "", "check only the configurations whose name matches this `pattern`")
	write := flag.Bool("write", false, "write the diagrams instead of comparing them")
	jobs := flag.Int("j", min(2, runtime.NumCPU()), "configurations that are checked at once")
	verbose := flag.Bool("v", false, "print the definitions of each configuration")
	flag.Parse()
	if err := run(*only, *write, *jobs, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "model:", err)
		os.Exit(1)
	}
}

func run(only string, write bool, jobs int, verbose bool) error {
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not installed (Debian: apt-get install spin gcc)", tool)
		}
	}
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	dir, err := modelDir()
	if err != nil {
		return err
	}
	var chosen []check
	for _, c := range checks {
		if pattern.MatchString(c.name) {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no configuration matches %q", only)
	}
	scratch, err := os.MkdirTemp("", "model")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)

	begin := time.Now()
	results := make([]chan result, len(chosen))
	for i := range results {
		results[i] = make(chan result, 1)
	}
	slots := make(chan struct{}, max(1, jobs))
	go func() {
		for i, c := range chosen {
			slots <- struct{}{}
			go func() {
				results[i] <- verify(c, dir, filepath.Join(scratch, c.name))
				<-slots
			}()
		}
	}()

	kept := diagrams{dir: dir, write: write}
	var states, failed int
	var group string
	fmt.Printf(rowFormat, "configuration", "property", "states", "depth", "seconds", "verdict")
	for i, c := range chosen {
		r := <-results[i]
		if c.group != group {
			group = c.group
			fmt.Printf("-- %s\n", group)
		}
		verdict := "holds"
		if c.want != "" {
			verdict = "found, as expected"
		}
		if r.err == nil && c.want != "" {
			r.err = kept.keep(c, r)
		}
		if r.err != nil {
			failed++
			verdict = "FAILED: " + r.err.Error()
		}
		fmt.Printf(rowFormat, c.name, c.property, fmt.Sprint(r.states), fmt.Sprint(r.depth),
			fmt.Sprintf("%.1f", r.took.Seconds()), verdict)
		if verbose {
			fmt.Printf("   %s %s\n", c.file, strings.Join(c.defs, " "))
		}
		states += r.states
	}
	if err := kept.finish(); err != nil {
		failed++
		fmt.Println("FAILED:", err)
	}
	fmt.Printf("%d configurations, %d states, %.0f s\n", len(chosen), states, time.Since(begin).Seconds())
	if failed > 0 {
		return fmt.Errorf("%d not as expected", failed)
	}
	return nil
}

const rowFormat = "%-27s  %-76s  %9s  %5s  %7s  %s\n"

// modelDir finds the folder of the model from the root of the repository and from itself.
func modelDir() (string, error) {
	for _, dir := range []string{".", "model"} {
		if _, err := os.Stat(filepath.Join(dir, "evd.pml")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("evd.pml is neither here nor in model; run from the root of the repository")
}
