package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"kdapl/cmd/kdapl/internal/perf"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// paint colors a text if the terminal shows colors.
func (e env) paint(c text.Colors, s string) string {
	if !e.color {
		return s
	}
	return c.Sprint(s)
}

// noteWidth is the width of text beside tables.
const noteWidth = 78

var (
	strong = text.Colors{text.Bold}
	faint  = text.Colors{text.Faint}
)

// newTable is an empty table in the style of all tables.
func newTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleRounded
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	return t
}

// text writes the report as tables.
func (r *perfReport) text(e env) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n\n", e.paint(strong, r.title()), e.paint(faint, wrap(r.conditions())))
	if len(r.Rows) > 0 {
		fmt.Fprintf(&b, "%s\n\n", r.table(e))
		if r.histogram {
			r.histograms(&b, e)
		}
		for _, note := range r.notes() {
			fmt.Fprintf(&b, "%s\n", e.paint(faint, wrap(note)))
		}
	} else {
		b.WriteString("Nothing was measured.\n")
	}
	_, err := io.WriteString(e.stdout, b.String())
	return err
}

// wrap breaks a note into lines.
func wrap(note string) string {
	lines := strings.Split(text.WrapSoft(note, noteWidth), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func (r *perfReport) title() string {
	if r.Server != nil {
		return fmt.Sprintf("kdapl perf: %s (%s) with a server at %s", r.Adapter, r.Address, r.Server.Address)
	}
	return fmt.Sprintf("kdapl perf: %s (%s), two end points in one process", r.Adapter, r.Address)
}

func (r *perfReport) conditions() string {
	post := "single posts"
	if r.List > 1 {
		post = fmt.Sprintf("posts of lists of %d", r.List)
	}
	completion := map[perf.Completion]string{
		perf.Upcall:  "completions by upcall",
		perf.Dequeue: "completions by dequeuing, one goroutine for both ends",
		perf.Wait:    "completions by waiting",
	}[r.Completion]
	if r.Server != nil && r.Completion == perf.Dequeue {
		completion = "completions by dequeuing"
	}
	settings := ""
	for _, key := range slices.Sorted(maps.Keys(r.Settings)) {
		settings += fmt.Sprintf("%s=%s; ", key, r.Settings[key])
	}
	return fmt.Sprintf("%s; %s; %s%s, %s/%s, %s", completion, post, settings, r.Program.Go, r.Program.OS, r.Program.Arch, count(r.CPUs, "CPU"))
}

// table has a line for each row.
func (r *perfReport) table(e env) string {
	t := newTable()
	first := table.Row{"", ""}
	second := table.Row{"", "size"}
	configs := []table.ColumnConfig{{Number: 2, Align: text.AlignRight, AlignHeader: text.AlignRight}}
	column := func(group, name string) {
		first, second = append(first, group), append(second, name)
		configs = append(configs, table.ColumnConfig{Number: len(second), Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	for _, p := range percentiles {
		column("latency, µs", p.name)
	}
	column("throughput", "GB/s")
	column("throughput", "k msg/s")
	if r.Server != nil {
		column("CPU, µs/MB", "client")
		column("CPU, µs/MB", "server")
	} else {
		column("CPU, µs/MB", "both")
	}
	t.AppendHeader(first, table.RowConfig{AutoMerge: true})
	t.AppendHeader(second)
	t.SetColumnConfigs(configs)
	// The library draws a separator behind the first row between the lines of the header too.
	several := len(r.Rows) > 1 && r.Rows[0].Op == r.Rows[1].Op
	for i, row := range r.Rows {
		name := ""
		if i == 0 || r.Rows[i-1].Op != row.Op {
			name = e.paint(strong, row.Op.String())
			if several && i > 0 {
				t.AppendSeparator()
			}
		}
		line := table.Row{name, formatBytes(uint64(row.Size))}
		for _, p := range percentiles {
			cell := ""
			if row.Latency != nil {
				cell = significant(row.Latency.Percentile(p.p) / 1e3)
			}
			line = append(line, cell)
		}
		if row.Throughput != nil {
			t := row.Throughput
			line = append(line, significant(t.Bandwidth()/1e9), significant(t.MessageRate()/1e3), significant(perMB(t.CPU.Requester, t)))
			if r.Server != nil {
				line = append(line, significant(perMB(t.CPU.Responder, t)))
			}
		}
		t.AppendRow(line)
	}
	return t.Render()
}

// barWidth is the length of the longest bar of a histogram.
const barWidth = 40

// histograms draws the distribution of each latency: of each bucket the share, and that of all up to it.
func (r *perfReport) histograms(b *strings.Builder, e env) {
	for _, row := range r.Rows {
		if row.Latency == nil {
			continue
		}
		total := row.Latency.Histogram.TotalCount()
		fmt.Fprintf(b, "%s, %s samples\n",
			e.paint(strong, fmt.Sprintf("latency of %v, %s", row.Op, formatBytes(uint64(row.Size)))), grouped(uint64(total)))
		all := buckets(row.Latency)
		var most, sum int64
		for _, k := range all {
			most = max(most, k.Count)
		}
		for _, k := range all {
			sum += k.Count
			fmt.Fprintf(b, "  ≤ %8s µs  %-*s %6.2f %% %7.2f %%\n", significant(k.Limit/1e3), barWidth, bar(k.Count, most),
				100*float64(k.Count)/float64(total), 100*float64(sum)/float64(total))
		}
		b.WriteByte('\n')
	}
}

// bar is a bar in eighths of a character; what is not nothing is at least one of them.
func bar(n, most int64) string {
	if n == 0 {
		return ""
	}
	eighths := max(1, n*barWidth*8/most)
	s := strings.Repeat("█", int(eighths/8))
	if rest := eighths % 8; rest > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return s
}

// notes say what the numbers mean.
func (r *perfReport) notes() []string {
	notes := []string{
		"latency: send is half of a round trip, write and read are post to completion, one under way; " +
			fmt.Sprintf("%d ns for reading the clock are subtracted.", r.Clock.Nanoseconds()),
		"throughput: payload in one direction; " + r.depths() + ".",
	}
	if share := r.pauses(); share > 0.02 {
		notes = append(notes, fmt.Sprintf("noise: pauses of more than 1 ms took %.0f %% of the time of the latencies; "+
			"it seems that other programs wanted the processors, and all numbers suffer.", 100*share))
	}
	if !r.Verify {
		return append(notes, "data: not verified.")
	}
	var checked uint64
	var messages int
	for _, res := range r.results() {
		checked += res.Checked
		messages += res.Messages
	}
	return append(notes, fmt.Sprintf("data: verified. %s messages byte by byte, before and after the time that was measured; "+
		"of all %s in it status, length and order.", grouped(checked), grouped(messages)))
}

// depths says how many messages are under way.
func (r *perfReport) depths() string {
	var most, least, large int
	for _, row := range r.Rows {
		if row.Throughput == nil {
			continue
		}
		d := row.Throughput.Spec.Depth
		if least == 0 || d < least {
			least, large = d, row.Size
		}
		most = max(most, d)
	}
	switch {
	case most == 0:
		return "none was measured"
	case most == least:
		return count(most, "message") + " under way"
	}
	return fmt.Sprintf("%s under way, down to %d of %s", count(most, "message"), least, formatBytes(uint64(large)))
}

// pause is how long a sample must be to count as an interruption, if the median of its measurement is much
// shorter.
const pause = time.Millisecond

// pauses is the share of the measured time that pauses took.
func (r *perfReport) pauses() float64 {
	var lost, total float64
	for _, row := range r.Rows {
		if row.Latency == nil || row.Latency.Percentile(50) > float64(pause)/10 {
			continue
		}
		total += float64(row.Latency.Elapsed)
		for _, s := range row.Latency.Samples() {
			if s.Limit > float64(pause) {
				lost += s.Limit * float64(s.Count)
			}
		}
	}
	if total == 0 {
		return 0
	}
	return min(lost/total, 1)
}
