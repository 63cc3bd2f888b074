package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"kdapl/stat"

	"github.com/jedib0t/go-pretty/v6/table"
)

type statCmd struct {
	Address  string `arg:"" help:"Where the process exports its counters: the path of a socket, or HOST:PORT."`
	Interval span   `placeholder:"TIME" help:"Show them again and again, such a time apart, until Ctrl-C or the process ends."`
	JSON     bool   `help:"Write JSON, a line for each look."`
}

// Help is the long text of --help.
func (statCmd) Help() string {
	return `Shows the counters of another process: of its IAs, end points and event dispatchers. The process must
export them: kdapl perf does with --stat ADDRESS, and a Go program with one line, stat.Serve(ADDRESS, ia)
of package kdapl/stat. Counts are since the object was created.`
}

// Run shows the counters once or at intervals.
func (c *statCmd) Run(e env) error {
	for first := true; ; first = false {
		s, err := stat.Get(e.ctx, c.Address)
		switch {
		case e.ctx.Err() != nil && !first:
			return nil
		case err != nil:
			return err
		}
		show := statText
		if c.JSON {
			show = statJSON
		}
		if err := show(e, s); err != nil {
			return err
		}
		if c.Interval == 0 {
			return nil
		}
		select {
		case <-e.ctx.Done():
			return nil
		case <-time.After(time.Duration(c.Interval)):
		}
	}
}

func statJSON(e env, s stat.Snapshot) error { return json.NewEncoder(e.stdout).Encode(s) }

// statText shows a snapshot as tables.
func statText(e env, s stat.Snapshot) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", e.paint(strong, fmt.Sprintf("process %d at %s", s.PID, s.Time.Format("15:04:05.000"))))
	for _, ia := range s.IAs {
		o := ia.Objects
		fmt.Fprintf(&b, "%s (%s): %s, %s, %s, %s, %s, %s\n", e.paint(strong, ia.Name), ia.Address,
			count(o.EPs, "EP"), count(o.EVDs, "EVD"), count(o.LMRs, "LMR"), count(o.PZs, "PZ"), count(o.SRQs, "SRQ"), count(o.PSPs, "PSP"))
		if len(ia.EPs) > 0 {
			t := newTable()
			t.AppendHeader(table.Row{"EP", "state", "peer", "queue", "posted", "succeeded", "flushed", "failed", "bytes"})
			for _, ep := range ia.EPs {
				t.AppendRow(table.Row{ep.Name, ep.State, ep.Remote, "requests", ep.Request.Posted, ep.Request.Succeeded, ep.Request.Flushed, ep.Request.Failed, ep.Request.Bytes})
				t.AppendRow(table.Row{"", "", "", "receives", ep.Recv.Posted, ep.Recv.Succeeded, ep.Recv.Flushed, ep.Recv.Failed, ep.Recv.Bytes})
			}
			fmt.Fprintln(&b, t.Render())
		}
		t := newTable()
		t.AppendHeader(table.Row{"EVD", "policy", "room", "queued", "events", "upcalls", "activations", "refused"})
		for _, evd := range ia.EVDs {
			c := evd.Counters
			t.AppendRow(table.Row{evd.Name, evd.Policy, evd.Length, evd.Queued, c.Events, c.Upcalls, c.Activations, c.Refused})
		}
		fmt.Fprintln(&b, t.Render())
	}
	_, err := io.WriteString(e.stdout, b.String())
	return err
}
