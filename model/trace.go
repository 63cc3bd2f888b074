package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// event is one line that the model prints while spin replays a counter-example: who acts, on whom,
// and what happens. A cycle event only marks where the repeated part of an endless execution begins.
type event struct {
	from, to string
	text     string
	cycle    bool
}

var (
	// The model prints "@pid target text".
	printed = regexp.MustCompile(`^\s*@(\d+) (\w+) (.*)$`)
	// spin prints the process of each step.
	process = regexp.MustCompile(`^\s*\d+:\s+proc\s+(\d+) \((\w+):\d+\)`)
)

// What is no process but has a line of its own in a diagram.
var objects = map[string]string{"cq": "CQ", "qp": "QP", "evd": "EVD", "dat": "dat"}

// parseTrail reads the output of spin -T -t -p.
func parseTrail(out string) ([]event, error) {
	names := map[string]string{}
	for line := range strings.Lines(out) {
		if m := process.FindStringSubmatch(line); m != nil {
			names[m[1]] = m[2]
		}
	}
	number(names)
	var events []event
	for line := range strings.Lines(out) {
		if strings.Contains(line, "START OF CYCLE") {
			events = append(events, event{cycle: true})
			continue
		}
		m := printed.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		who, ok := names[m[1]]
		if !ok {
			return nil, fmt.Errorf("the trail names no process %s", m[1])
		}
		e := event{from: who, text: m[3]}
		switch to := m[2]; {
		case to == "note":
		case to == "me": // the EVD acts on the process
			e.from, e.to = objects["evd"], who
		case objects[to] != "":
			e.to = objects[to]
		default:
			e.to = to
		}
		events = append(events, e)
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("the trail prints nothing: %s", last(out))
	}
	return oneRound(events), nil
}

// number tells processes of the same name apart.
func number(names map[string]string) {
	var pids []int
	count := map[string]int{}
	for pid, name := range names {
		n, _ := strconv.Atoi(pid)
		pids = append(pids, n)
		count[name]++
	}
	slices.Sort(pids)
	next := map[string]int{}
	for _, n := range pids {
		pid := strconv.Itoa(n)
		if name := names[pid]; count[name] > 1 {
			next[name]++
			names[pid] = fmt.Sprintf("%s%d", name, next[name])
		}
	}
}

// oneRound shortens an endless execution. Weak fairness makes spin's cycle several rounds of the
// same events; one is kept, and what leads to it loses the rounds that are the same.
func oneRound(events []event) []event {
	start := slices.IndexFunc(events, func(e event) bool { return e.cycle })
	if start < 0 {
		return events
	}
	before, cycle := events[:start], events[start+1:]
	for n := 1; n <= len(cycle); n++ {
		if len(cycle)%n == 0 && slices.Equal(cycle[n:], cycle[:len(cycle)-n]) {
			cycle = cycle[:n]
			break
		}
	}
	for len(before) >= len(cycle) && slices.Equal(before[len(before)-len(cycle):], cycle) {
		before = before[:len(before)-len(cycle)]
	}
	return slices.Concat(before, []event{{cycle: true}}, cycle)
}

// The order of the lines of a diagram: sources, what they feed, consumers.
var order = []string{"Producer", "Poster", "Device", "Queue", "Link", "Connection", "QP", "CQ", "Notification", "dat", "EVD",
	"Thread", "Consumer", "Controller", "Enabler", "Death", "Activation"}

func rank(name string) int {
	return slices.Index(order, strings.TrimRight(name, "0123456789"))
}

// draw makes the sequence diagram: one line of text for each event, its words at the right.
func draw(events []event) string {
	var lines []string
	for _, e := range events {
		for _, name := range []string{e.from, e.to} {
			if name != "" && !slices.Contains(lines, name) {
				lines = append(lines, name)
			}
		}
	}
	slices.SortFunc(lines, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	column := map[string]int{}
	var head string
	for _, name := range lines {
		width := max(len(name)+2, 9)
		column[name] = len(head) + width/2
		head += strings.Repeat(" ", (width-len(name)+1)/2) + name
		head += strings.Repeat(" ", max(0, column[name]-width/2+width-len(head)))
	}
	width := len(head)
	var b strings.Builder
	fmt.Fprintln(&b, strings.TrimRight(head, " "))
	for _, e := range events {
		if e.cycle {
			fmt.Fprintln(&b, strings.Repeat("=", width), " from here on for ever")
			continue
		}
		row := []byte(strings.Repeat(" ", width))
		for _, c := range column {
			row[c] = '|'
		}
		from := column[e.from]
		if to, ok := column[e.to]; ok {
			for c := min(from, to) + 1; c < max(from, to); c++ {
				row[c] = '-'
			}
			if to > from {
				row[to-1] = '>'
			} else {
				row[to+1] = '<'
			}
		} else {
			row[from] = '*'
		}
		fmt.Fprintf(&b, "%s  %s\n", row, e.text)
	}
	return b.String()
}

// diagrams keeps the counter-examples in files: it writes them, or compares them with what is there.
type diagrams struct {
	dir   string // the model's folder
	write bool
	drawn map[string]string
}

// keep writes or compares the diagram of one counter-example.
func (d *diagrams) keep(c check, r result) error {
	text := draw(r.trace)
	if d.drawn == nil {
		d.drawn = map[string]string{}
	}
	d.drawn[c.name] = text
	file := fmt.Sprintf("%s\n%s %s\n\n%s\n%s\nspin: %s\n", c.property, c.file, strings.Join(c.defs, " "), text, c.ends, r.violated)
	return d.sync(filepath.Join("traces", c.name+".txt"), file)
}

// finish writes or compares the diagrams that docs/upcalls.md shows.
func (d *diagrams) finish() error {
	page := filepath.Join("..", "docs", "upcalls.md")
	old, err := os.ReadFile(filepath.Join(d.dir, page))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := embed(string(old), d.drawn)
	if err != nil {
		return err
	}
	return d.sync(page, text)
}

// shown is where a page shows a diagram: a marker with its name, and the block after it.
var shown = regexp.MustCompile("(?s)<!-- trace: ([\\w-]+) -->\n```text\n.*?```\n")

// embed puts the diagrams that were drawn into a page. Those that were not stay as they are.
func embed(page string, drawn map[string]string) (string, error) {
	if strings.Count(page, "<!-- trace:") != len(shown.FindAllString(page, -1)) {
		return "", fmt.Errorf("a trace marker has no block after it")
	}
	return shown.ReplaceAllStringFunc(page, func(block string) string {
		name := shown.FindStringSubmatch(block)[1]
		if text, ok := drawn[name]; ok {
			return fmt.Sprintf("<!-- trace: %s -->\n```text\n%s```\n", name, text)
		}
		return block
	}), nil
}

func (d *diagrams) sync(name, text string) error {
	path := filepath.Join(d.dir, name)
	old, err := os.ReadFile(path)
	switch {
	case err == nil && string(old) == text:
		return nil
	case err != nil && !os.IsNotExist(err):
		return err
	case !d.write:
		return fmt.Errorf("%s is not what the model gives now: run with -write", name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o666)
}
