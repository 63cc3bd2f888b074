package main

import (
	"fmt"
	"time"

	"kdapl/bench/internal/ends"
)

// The quantities that cells compare.
func us(c, _ *ends.Result) float64   { return c.US }
func rate(c, _ *ends.Result) float64 { return c.Rate }
func mbps(c, _ *ends.Result) float64 { return c.MBPS }

func yUS(y *yardstick) float64   { return y.US }
func yRate(y *yardstick) float64 { return y.Rate }
func yMBPS(y *yardstick) float64 { return y.MBPS }

func uUS(us, _, _ float64) float64   { return us }
func uRate(_, r, _ float64) float64  { return r }
func uMBPS(_, _, mb float64) float64 { return mb }

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dMi", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dKi", n>>10)
	}
	return fmt.Sprint(n)
}

// onOff names a cell by whether it has CRCs.
func onOff(crc bool) string {
	if crc {
		return "crc"
	}
	return "nocrc"
}

// rounds is how many messages a run of ucx_perftest has: as many as take the time of the others.
func perftestRounds(size int, stream bool) int {
	switch {
	case size >= 1<<20 && stream:
		return 1500
	case size >= 1<<20:
		return 600
	case size >= 64<<10 && stream:
		return 12000
	case size >= 64<<10:
		return 5000
	case stream:
		return 80000
	}
	return 25000
}

// pairCells are the comparisons between two processes.
func pairCells(set *settings) (cells []func(*peers) cell) {
	add := func(f func(*peers) cell) { cells = append(cells, f) }
	for _, size := range []int{8, 64, 1 << 10, 4 << 10, 64 << 10, 1 << 20} {
		for _, crc := range []bool{true, false} {
			add(func(p *peers) cell { return pingCell(set, p, size, crc) })
		}
	}
	add(func(p *peers) cell { return distributionCell(set, p) })
	for _, style := range []string{"upcall", "wait"} {
		for _, size := range []int{8, 4 << 10} {
			add(func(p *peers) cell { return styleCell(set, p, style, size) })
		}
	}
	lists := []struct {
		size        int
		write, send float64
	}{{8, 40, 25}, {64, 30, 20}, {1 << 10, 9, 7}, {4 << 10, 4, 3}}
	for _, l := range lists {
		add(func(p *peers) cell { return listCell(set, p, "write", "ucp_put_bw", l.size, l.write) })
		add(func(p *peers) cell { return listCell(set, p, "send", "tag_bw", l.size, l.send) })
	}
	singles := []struct {
		size int
		goal float64
	}{{8, 15}, {64, 12}, {1 << 10, 5}, {4 << 10, 1.8}}
	for _, s := range singles {
		add(func(p *peers) cell { return singleCell(set, p, s.size, s.goal) })
	}
	for _, op := range []string{"send", "write"} {
		for _, size := range []int{64 << 10, 1 << 20} {
			for _, crc := range []bool{true, false} {
				add(func(p *peers) cell { return streamCell(set, p, op, size, crc) })
			}
		}
	}
	for _, crc := range []bool{true, false} {
		add(func(p *peers) cell { return readCell(set, p, crc) })
	}
	add(func(p *peers) cell { return connectCell(set, p) })
	for _, n := range []int{100, 1000, 10000} {
		add(func(*peers) cell { return idleCell(set, n) })
	}
	for _, n := range []int{1, 16, 100, 1000, 10000} {
		add(func(*peers) cell { return growCell(set, n) })
	}
	return cells
}

func pingCell(set *settings, p *peers, size int, crc bool) cell {
	fabric, ucx := atMost(0.85), limit{}
	if size <= 4<<10 {
		ucx = atMost(0.9)
	}
	if !crc {
		fabric, ucx = limit{}, limit{}
	}
	return cell{
		name: fmt.Sprintf("tcp/ping/%s/%s", onOff(crc), sizeName(size)), ours: "polled ping-pong", unit: "us", size: size,
		run: set.both(ends.Spec{Mode: "lat", Style: "poll", Size: size, Depth: 4, CRC: crc}, perMessage, us),
		peers: []peer{
			{"libfabric tcp", fabric, p.libfabric(set, perMessage, yUS, "lat", size, 1)},
			{"UCX tcp", ucx, p.perftest(set, perMessage, "tag_lat", size, perftestRounds(size, false), uUS)},
		},
	}
}

func distributionCell(set *settings, p *peers) cell {
	spec := ends.Spec{Mode: "lat", Style: "poll", Size: 64, Depth: 4, CRC: true, Histogram: true}
	return cell{name: "tcp/distribution/64", ours: "polled ping-pong, with percentiles", unit: "us", size: 64,
		run: set.both(spec, perMessage, us)}
}

func styleCell(set *settings, p *peers, style string, size int) cell {
	names := map[string]string{"upcall": "ping-pong in upcalls", "wait": "ping-pong with waits"}
	return cell{
		name: fmt.Sprintf("tcp/%s/%s", style, sizeName(size)), ours: names[style], unit: "us", size: size,
		run: set.both(ends.Spec{Mode: "lat", Style: style, Size: size, Depth: 4, CRC: true}, perMessage, us),
		peers: []peer{
			{"libfabric tcp, polled", atMost(1.1), p.libfabric(set, perMessage, yUS, "lat", size, 1)},
			{"libfabric tcp, fi_cq_sread", atMost(0.3), p.libfabric(set, perMessage, yUS, "block", size, 1)},
		},
	}
}

func listCell(set *settings, p *peers, op, test string, size int, goal float64) cell {
	return cell{
		name: fmt.Sprintf("tcp/list/%s/%s", op, sizeName(size)), ours: "lists of 64 " + op + "s", unit: "/s", size: size,
		run: set.both(ends.Spec{Mode: op, Style: "poll", Size: size, Depth: 512, List: 64, CRC: true}, perMB, rate),
		peers: []peer{
			{"libfabric tcp", atLeast(goal), p.libfabric(set, perMB, yRate, op, size, 64)},
			{"UCX tcp", atLeast(goal), p.perftest(set, perMB, test, size, perftestRounds(size, true), uRate)},
		},
	}
}

func singleCell(set *settings, p *peers, size int, goal float64) cell {
	return cell{
		name: fmt.Sprintf("tcp/single/%s", sizeName(size)), ours: "single sends, 128 outstanding", unit: "/s", size: size,
		run: set.both(ends.Spec{Mode: "send", Style: "poll", Size: size, Depth: 128, List: 1, CRC: true}, perMB, rate),
		peers: []peer{
			{"libfabric tcp", atLeast(goal), p.libfabric(set, perMB, yRate, "send", size, 128)},
			{"UCX tcp", atLeast(goal), p.perftest(set, perMB, "tag_bw", size, perftestRounds(size, true), uRate)},
		},
	}
}

func streamCell(set *settings, p *peers, op string, size int, crc bool) cell {
	depth := 64
	if size >= 1<<20 {
		depth = 16
	}
	fabric, ucx := atLeast(0.8), atLeast(1.3)
	switch {
	case crc && size >= 1<<20:
		ucx = atLeast(0.9)
	case !crc && size < 1<<20:
		fabric, ucx = atLeast(1.2), limit{}
	case !crc:
		fabric, ucx = atLeast(1.15), limit{}
	}
	c := cell{
		name: fmt.Sprintf("tcp/stream/%s/%s/%s", op, onOff(crc), sizeName(size)), ours: op + "s, one way", unit: "MB/s", size: size,
		run:   set.both(ends.Spec{Mode: op, Style: "poll", Size: size, Depth: depth, List: 1, CRC: crc}, perMB, mbps),
		peers: []peer{{"libfabric tcp", fabric, p.libfabric(set, perMB, yMBPS, op, size, depth)}},
	}
	if op == "send" { // UCX emulates writes over tcp, which is not a fair number for it
		c.peers = append(c.peers, peer{"UCX tcp", ucx, p.perftest(set, perMB, "tag_bw", size, perftestRounds(size, true), uMBPS)})
	}
	return c
}

func readCell(set *settings, p *peers, crc bool) cell {
	goal := atLeast(1)
	if crc {
		goal = limit{}
	}
	return cell{
		name: "tcp/read/" + onOff(crc) + "/64Ki", ours: "reads, 16 outstanding", unit: "MB/s", size: 64 << 10,
		run:   set.both(ends.Spec{Mode: "read", Style: "poll", Size: 64 << 10, Depth: 16, List: 1, CRC: crc}, perMB, mbps),
		peers: []peer{{"libfabric tcp", goal, p.libfabric(set, perMB, yMBPS, "read", 64<<10, 16)}},
	}
}

// connections is how many are set up to measure the rate.
const connections = 2000

// connectCell lets the scheduler place the ends: they take turns, and do nothing but wait for each other.
func connectCell(set *settings, p *peers) cell {
	free := *set
	free.free = true
	set = &free
	n := connections / set.part
	return cell{
		name: "tcp/connect", ours: "connections, with MPA and both events", unit: "/s",
		run: set.both(ends.Spec{Mode: "grow", Conns: n, Active: 1, Size: 64, CRC: true, Time: time.Millisecond}, perMessage, rate),
		peers: []peer{
			{"libfabric tcp", atLeast(1.5), p.libfabric(set, perMessage, yRate, "conn", n, 1)},
			{"C sockets", atLeast(0.7), p.sockets(set, n)},
		},
	}
}

// idleCell measures memory: resident KiB a connection and side, after each has carried 100 messages.
func idleCell(set *settings, n int) cell {
	return cell{
		name: fmt.Sprintf("tcp/idle/%d", n), ours: fmt.Sprintf("%d idle connections after 100 messages each", n), unit: "KiB",
		run: set.both(ends.Spec{Mode: "conn", Size: n, CRC: true}, perMessage, func(c, s *ends.Result) float64 { return max(c.KiB, s.KiB) }),
	}
}

// growCell measures a message when there are n connections, of which 16 are active.
func growCell(set *settings, n int) cell {
	return cell{
		name: fmt.Sprintf("tcp/grow/%d", n), ours: fmt.Sprintf("an 8-byte answer, %d connections, 16 active", n), unit: "us",
		run: set.both(ends.Spec{Mode: "grow", Conns: n, Active: 16, Size: 64, CRC: true}, perMessage, us),
	}
}
