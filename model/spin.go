package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// limit is the time that one configuration may take. It is far above what any of them needs, so
// that a busy machine does not decide a verdict.
const limit = 5 * time.Minute

// result is what the search of one configuration gave.
type result struct {
	states, depth int
	took          time.Duration
	trace         []event // the counter-example, if one was to be found
	violated      string  // spin's words for it
	err           error
}

// verify searches one configuration in a folder of its own, which it creates.
func verify(c check, model, dir string) result {
	begin := time.Now()
	r := search(c, model, dir)
	r.took = time.Since(begin)
	return r
}

func search(c check, model, dir string) (r result) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if r.err = copyModel(model, dir); r.err != nil {
		return r
	}
	defs := make([]string, len(c.defs))
	for i, d := range c.defs {
		defs[i] = "-D" + d
	}
	if _, r.err = tool(ctx, dir, "spin", append(append([]string{"-a"}, defs...), c.file)...); r.err != nil {
		return r
	}
	build := []string{"-O0", "-w", "-DCOLLAPSE", "-o", "pan", "pan.c"}
	if c.big {
		build[0] = "-O2" // takes much longer to compile
	}
	flags := []string{"-m500000", "-w22"}
	switch {
	case c.cycles:
		flags = append(flags, "-a", "-f") // acceptance cycles, under weak fairness
	case c.want != "":
		build = append(build, "-DSAFETY", "-DBFS") // breadth first: the first counter-example is a shortest one
	default:
		build = append(build, "-DSAFETY")
	}
	if _, r.err = tool(ctx, dir, "gcc", build...); r.err != nil {
		return r
	}
	var out string
	if out, r.err = tool(ctx, dir, "./pan", flags...); r.err != nil {
		return r
	}
	if r.err = r.read(out, c); r.err != nil || c.want == "" {
		return r
	}
	out, r.err = tool(ctx, dir, "spin", append(append([]string{"-T", "-t", "-p"}, defs...), c.file)...)
	if r.err == nil {
		r.trace, r.err = parseTrail(out)
	}
	return r
}

var (
	statesLine   = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
	depthLine    = regexp.MustCompile(`depth reached (\d+), errors: (\d+)`)
	violatedLine = regexp.MustCompile(`(?m)^pan:\d+: (.*) \(at depth \d+\)`)
)

// read takes the figures from the verifier's report and judges it.
func (r *result) read(out string, c check) error {
	depth, states := depthLine.FindStringSubmatch(out), statesLine.FindStringSubmatch(out)
	if depth == nil || states == nil {
		return fmt.Errorf("no report: %q", last(out))
	}
	r.depth, _ = strconv.Atoi(depth[1])
	r.states, _ = strconv.Atoi(states[1])
	if v := violatedLine.FindStringSubmatch(out); v != nil {
		r.violated = v[1]
	}
	found := depth[2] != "0"
	switch {
	case strings.Contains(out, "search depth too small"), strings.Contains(out, "Search not completed") && !found:
		return errors.New("the search was not complete")
	case found && c.want == "":
		return fmt.Errorf("violated: %s", r.violated)
	case !found && c.want != "":
		return errors.New("not found")
	case found && !strings.Contains(squeeze(r.violated), squeeze(c.want)):
		return fmt.Errorf("found by another check than expected: %s", r.violated)
	}
	return nil
}

// squeeze drops what spin does differently when it prints an expression back: blanks and brackets.
func squeeze(s string) string {
	return strings.NewReplacer(" ", "", "(", "", ")", "").Replace(s)
}

func copyModel(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.pml"))
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o777); err != nil {
		return err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(f)), b, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// tool runs a program in dir and returns what it prints. The verifier's exit status says whether it
// found something; everybody else's must be 0.
func tool(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s did not end within %s", name, limit)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && name == "./pan" {
		err = nil
	}
	if err == nil && name == "spin" && strings.Contains(out.String(), ", Error: ") && args[0] == "-a" {
		err = errors.New("the model has errors")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, last(out.String()))
	}
	return out.String(), nil
}

// last returns the end of a program's output, for an error message.
func last(out string) string {
	out = strings.TrimSpace(out)
	if len(out) > 400 {
		out = "..." + out[len(out)-400:]
	}
	return out
}
