package main

import (
	"encoding/json"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	width  = 16 * vg.Centimeter
	height = 9 * vg.Centimeter
)

// cells are the results by name.
type cells map[string]result

// figures are what is drawn.
var figures = []struct {
	name string
	draw func(cells) (*plot.Plot, error)
}{
	{"latency", latency},
	{"bandwidth", bandwidth},
	{"rate", rates},
	{"cpu", processor},
	{"distribution", distribution},
	{"consumers", consumers},
	{"memory", memory},
	{"growth", growth},
	{"producers", producers},
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// peer is the median of a yardstick of a cell; 0 if there is none.
func (r result) peer(name string) float64 {
	for _, p := range r.Peers {
		if p.Name == name {
			return median(p.Values)
		}
	}
	return 0
}

// series is a line of a figure.
type series struct {
	name   string
	points plotter.XYs
}

func (s *series) add(x, y float64) {
	if y > 0 {
		s.points = append(s.points, plotter.XY{X: x, Y: y})
	}
}

// lines draws series over logarithmic axes.
func lines(title, x, y string, logY bool, ticks plot.Ticker, all ...*series) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks
	if logY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	} else {
		p.Y.Min = 0
	}
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left = true, true
	some := false
	for i, s := range all {
		if len(s.points) == 0 {
			continue
		}
		some = true
		slices.SortFunc(s.points, func(a, b plotter.XY) int { return int(a.X - b.X) })
		l, dots, err := plotter.NewLinePoints(s.points)
		if err != nil {
			return nil, err
		}
		l.Color, dots.Color = plotutil.Color(i), plotutil.Color(i)
		l.Width = vg.Points(1.5)
		dots.Shape = draw.CircleGlyph{}
		p.Add(l, dots)
		p.Legend.Add(s.name, l, dots)
	}
	if !some {
		return nil, nil
	}
	return p, nil
}

// bars draws groups of bars: values[i][k] is that of series i and group k.
func bars(title, y string, groups, names []string, values [][]float64) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, y
	p.Y.Min = 0
	p.Legend.Top = true
	w := vg.Points(300 / float64(len(groups)*(len(names)+1)))
	most := 0.0
	for i, name := range names {
		b, err := plotter.NewBarChart(plotter.Values(values[i]), w)
		if err != nil {
			return nil, err
		}
		b.LineStyle.Width = 0
		b.Color = plotutil.Color(i)
		b.Offset = w * vg.Length(float64(i)-float64(len(names)-1)/2)
		p.Add(b)
		p.Legend.Add(name, b)
		most = max(most, slices.Max(values[i]))
	}
	if most == 0 {
		return nil, nil
	}
	p.Y.Max = 1.6 * most
	grid := plotter.NewGrid()
	grid.Vertical.Color = color.Transparent
	p.Add(grid)
	p.NominalX(groups...)
	return p, nil
}

// sizeTicks are the sizes that are measured.
type sizeTicks struct{}

func (sizeTicks) Ticks(lo, hi float64) (t []plot.Tick) {
	for v := 8.0; v <= hi; v *= 8 {
		if v >= lo {
			t = append(t, plot.Tick{Value: v, Label: sizeName(v)})
		}
	}
	return t
}

func sizeName(v float64) string {
	switch {
	case v >= 1<<20:
		return fmt.Sprintf("%.0f MiB", v/(1<<20))
	case v >= 1<<10:
		return fmt.Sprintf("%.0f KiB", v/(1<<10))
	}
	return fmt.Sprintf("%.0f B", v)
}

const (
	fabric = "libfabric tcp"
	ucx    = "UCX tcp"
)

func latency(c cells) (*plot.Plot, error) {
	crc, plain := &series{name: "kdapl, CRC"}, &series{name: "kdapl, no CRC"}
	fi, ux := &series{name: fabric}, &series{name: ucx}
	for name, r := range c {
		x := float64(r.Size)
		switch {
		case strings.HasPrefix(name, "tcp/ping/crc/"):
			crc.add(x, median(r.Values))
			fi.add(x, r.peer(fabric))
			ux.add(x, r.peer(ucx))
		case strings.HasPrefix(name, "tcp/ping/nocrc/"):
			plain.add(x, median(r.Values))
		}
	}
	return lines("Half of a round trip, polled, two processes", "size", "µs", true, sizeTicks{}, crc, plain, fi, ux)
}

func bandwidth(c cells) (*plot.Plot, error) {
	crc, plain := &series{name: "kdapl, CRC"}, &series{name: "kdapl, no CRC"}
	fi, ux := &series{name: fabric}, &series{name: ucx}
	for name, r := range c {
		x := float64(r.Size)
		scale := 1.0 // to MB/s
		if r.Unit == "/s" {
			scale = x / 1e6
		}
		switch {
		case strings.HasPrefix(name, "tcp/list/send/"), strings.HasPrefix(name, "tcp/stream/send/crc/"):
			crc.add(x, scale*median(r.Values))
			fi.add(x, scale*r.peer(fabric))
			ux.add(x, scale*r.peer(ucx))
		case strings.HasPrefix(name, "tcp/stream/send/nocrc/"):
			plain.add(x, median(r.Values))
		}
	}
	return lines("Sends one way, two processes (kdapl: lists of 64 up to 4 KiB)", "size", "MB/s", true, sizeTicks{}, crc, plain, fi, ux)
}

func rates(c cells) (*plot.Plot, error) {
	writes, sends, single := &series{name: "kdapl, lists of 64 writes"}, &series{name: "kdapl, lists of 64 sends"}, &series{name: "kdapl, single sends"}
	fi, ux := &series{name: fabric + " sends"}, &series{name: ucx + " sends"}
	for name, r := range c {
		x, y := float64(r.Size), median(r.Values)/1e6
		switch {
		case strings.HasPrefix(name, "tcp/list/write/"):
			writes.add(x, y)
		case strings.HasPrefix(name, "tcp/list/send/"):
			sends.add(x, y)
			fi.add(x, r.peer(fabric)/1e6)
			ux.add(x, r.peer(ucx)/1e6)
		case strings.HasPrefix(name, "tcp/single/"):
			single.add(x, y)
		}
	}
	return lines("Messages one way, CRC on, two processes", "size", "million messages/s", true, sizeTicks{}, writes, sends, single, fi, ux)
}

func processor(c cells) (*plot.Plot, error) {
	groups := []string{"64 KiB sends", "1 MiB sends", "64 KiB writes", "1 MiB writes"}
	names := []string{"kdapl, CRC", "kdapl, no CRC", fabric}
	values := make([][]float64, len(names))
	for i := range values {
		values[i] = make([]float64, len(groups))
	}
	for k, at := range []string{"send/%s/64Ki", "send/%s/1Mi", "write/%s/64Ki", "write/%s/1Mi"} {
		on, off := c["tcp/stream/"+fmt.Sprintf(at, "crc")], c["tcp/stream/"+fmt.Sprintf(at, "nocrc")]
		values[0][k], values[1][k] = median(on.CPU), median(off.CPU)
		for _, p := range off.Peers {
			if p.Name == fabric {
				values[2][k] = median(p.CPU)
			}
		}
	}
	return bars("Processor time of both ends for 10⁶ bytes", "µs", groups, names, values)
}

func distribution(c cells) (*plot.Plot, error) {
	var d [][2]float64
	if raw := c["tcp/distribution/64"].Extra["distribution_us"]; raw == nil {
		return nil, nil
	} else if err := json.Unmarshal(raw, &d); err != nil {
		return nil, err
	}
	s := &series{name: "kdapl, 64 B, CRC"}
	var ticks plot.ConstantTicks
	for _, v := range d {
		// 1/(1-p): each step right is a tenth of the rest.
		x := 1 / (1 - v[0]/100)
		s.add(x, v[1])
		switch v[0] {
		case 50, 90, 99, 99.9, 99.99:
			ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprintf("%g %%", v[0])})
		}
	}
	return lines("Half of a round trip, polled: how many take at most", "share of messages", "µs", true, ticks, s)
}

func consumers(c cells) (*plot.Plot, error) {
	groups := []string{"8 B", "4 KiB"}
	names := []string{"polled", "waits", "upcalls", fabric + ", polled", fabric + ", fi_cq_sread"}
	values := make([][]float64, len(names))
	for i := range values {
		values[i] = make([]float64, len(groups))
	}
	for k, size := range []string{"8", "4Ki"} {
		up := c["tcp/upcall/"+size]
		values[0][k] = median(c["tcp/ping/crc/"+size].Values)
		values[1][k] = median(c["tcp/wait/"+size].Values)
		values[2][k] = median(up.Values)
		values[3][k] = up.peer(fabric + ", polled")
		values[4][k] = up.peer(fabric + ", fi_cq_sread")
	}
	return bars("Half of a round trip by consumer style, both ends alike", "µs", groups, names, values)
}

// countTicks are powers of ten.
type countTicks struct{}

func (countTicks) Ticks(lo, hi float64) (t []plot.Tick) {
	for v := 1.0; v <= hi*1.01; v *= 10 {
		if v >= lo*0.99 {
			t = append(t, plot.Tick{Value: v, Label: fmt.Sprintf("%.0f", v)})
		}
	}
	return t
}

// overCount makes a series of cells whose name ends in a number.
func overCount(c cells, prefix, name string, y func(result) float64) *series {
	s := &series{name: name}
	for cell, r := range c {
		var n float64
		if rest, ok := strings.CutPrefix(cell, prefix); ok {
			if _, err := fmt.Sscan(rest, &n); err == nil {
				s.add(n, y(r))
			}
		}
	}
	return s
}

func extra(key string) func(result) float64 {
	return func(r result) float64 {
		var v float64
		if raw := r.Extra[key]; raw == nil || json.Unmarshal(raw, &v) != nil {
			return math.NaN()
		}
		return v
	}
}

func memory(c cells) (*plot.Plot, error) {
	return lines("Memory of an idle connection after 100 messages", "connections", "KiB", true, countTicks{},
		overCount(c, "tcp/idle/", "resident, client", extra("client_kib")),
		overCount(c, "tcp/idle/", "resident, server", extra("server_kib")),
		overCount(c, "tcp/idle/", "Go heap and stacks, server", extra("server_heap_kib")))
}

func growth(c cells) (*plot.Plot, error) {
	return lines("An 8-byte message and its answer, 16 connections active", "connections", "µs a message", false, countTicks{},
		overCount(c, "tcp/grow/", "kdapl, CRC", func(r result) float64 { return median(r.Values) }))
}

func producers(c cells) (*plot.Plot, error) {
	p, err := lines("An event, by how many goroutines post to one consumer", "producers", "ns", false, countTicks{},
		overCount(c, "event/producers-", "EVD", func(r result) float64 { return median(r.Values) }),
		overCount(c, "event/producers-", "Go channel", func(r result) float64 { return r.peer("the same over a channel") }))
	return p, err
}
