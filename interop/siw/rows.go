//go:build linux

package main

import (
	"fmt"
	"regexp"
	"strings"

	"kdapl/interop/internal/judge"
)

// place is where a program runs.
type place int

const (
	host   place = iota // kdapl, on the host
	guest1              // kernel siw
	guest2
)

// program is one side of a row.
type program struct {
	at      place
	command string // HOST and GUEST stand for the addresses of the host and of the first guest
	judge   func(out string) string
}

// row is a pair of programs under settings.
type row struct {
	name           string
	short          bool   // part of the short form
	siw            string // the settings of the guests' siw that differ from its defaults
	server, client program
	ready          string // what the server prints when it is ready,
	port           int    // or the port that it listens on then
	exchange       bool   // dtest: sides tell addresses on a connection of their own
	quit           string // what ends the server, run where the client is
	ports          []int  // of iWARP; none: there is no other TCP
	limit          int    // seconds
	own            bool   // kernel with kernel: a rate, no verdict
}

func (r *row) guests() int {
	return max(int(r.server.at), int(r.client.at), 1)
}

// lines judges that there are so many lines with a prefix, and the texts, and nothing bad.
func lines(n int, prefix string, texts ...string) func(string) string {
	return func(out string) string {
		got := 0
		for l := range strings.Lines(out) {
			if strings.HasPrefix(l, prefix) {
				got++
			}
		}
		if got != n {
			return fmt.Sprintf("%d lines %q instead of %d", got, prefix, n)
		}
		return has(texts...)(out)
	}
}

// bad is what none of these programs prints when all is well.
var bad = regexp.MustCompile(`(?i)mismatch|\berror\b|failed|failure|invalid|cq completion|kdapl rping:|kdapl ucmatose:`)

func has(texts ...string) func(string) string {
	return func(out string) string {
		return judge.Rule{Must: texts, Never: bad}.Judge("output", out)
	}
}

const (
	rpingPort    = 7174
	ucmatosePort = 7471
	dtestPort    = 45248
	exchangePort = 15828
	rounds       = 100
)

// adapter is a --adapter of the host, with further settings.
func adapter(settings string) string {
	return strings.TrimSpace("iwarp addr=HOST " + settings)
}

// rping is a pair of rpings; the client's buffers have so many bytes.
func rping(name, siw, settings string, server, client place, size int) *row {
	r := &row{name: name, siw: siw, port: rpingPort, ports: []int{rpingPort}, limit: 60}
	at := map[place]string{host: "HOST", guest1: "GUEST"}[server]
	side := func(p place, role string, size int, prefix string) program {
		if p == host {
			return program{p, fmt.Sprintf("kdapl rping %s -a %s -v -C %d -S %d --timeout 10s --adapter '%s'", role, at, rounds, size, adapter(settings)),
				lines(rounds, prefix, fmt.Sprintf("%d rounds", rounds))}
		}
		return program{p, fmt.Sprintf("rping %s -a %s -v -C %d -S %d", role, at, rounds, size), lines(rounds, prefix)}
	}
	r.client = side(client, "-c", size, "ping data: ")
	if client == host {
		r.client.command += " -V"
	}
	r.server = side(server, "-s", max(size, 64), "server ping data: ")
	return r
}

// ucmatose is a pair of ucmatoses.
func ucmatose(name, siw, settings string, server, client place, connections int) *row {
	r := &row{name: name, siw: siw, port: ucmatosePort, ports: []int{ucmatosePort}, limit: 60}
	at := map[place]string{host: "HOST", guest1: "GUEST"}[server]
	side := func(p place, role string) program {
		if p == host {
			return program{p, fmt.Sprintf("kdapl ucmatose %s %s -c %d --timeout 10s --adapter '%s'", role, at, connections, adapter(settings)), has("test complete")}
		}
		return program{p, fmt.Sprintf("ucmatose %s %s -c %d", role, at, connections), has("data transfers complete", "test complete", "return status 0")}
	}
	r.server, r.client = side(server, "-b"), side(client, "-s")
	return r
}

// dtest is a pair of dtests.
func dtest(name, siw, options string, server, client place) *row {
	at := map[place]string{host: "HOST", guest1: "GUEST"}[server]
	pass := func(out string) string { return judge.Dtest.Judge("output", out) }
	if server == guest1 {
		at = "HOST" // by way of the runner, which tells the client of the server when that listens
	}
	return &row{
		name: name, siw: siw, port: exchangePort, ports: []int{dtestPort}, limit: 60, exchange: server == guest1,
		server: program{server, "dtest -s -P siw " + options, pass},
		client: program{client, "dtest -P siw -h " + at + " " + options, pass},
	}
}

// dapltest is a pair of dapltests, of a transaction test.
func dapltest(name, siw, ia, options string, server, client place) *row {
	at := map[place]string{host: "HOST", guest1: "GUEST"}[server]
	on := func(p place) string {
		if p == host {
			return ia
		}
		return "siw"
	}
	return &row{
		name: name, siw: siw, ready: "Service Point Ready", limit: 60,
		server: program{server, "dapltest -T S -D " + on(server), func(out string) string {
			return judge.DapltestServer.Judge("output", judge.Trim(out))
		}},
		client: program{client, "dapltest -T T -s " + at + " -D " + on(client) + " " + options, func(out string) string {
			return judge.DapltestStats.Judge("output", judge.Trim(out))
		}},
		quit: "dapltest -T Q -s " + at + " -D " + on(client),
	}
}

// rows are all rows.
func rows() (all []*row) {
	add := func(r *row, short bool) *row {
		r.short = short
		all = append(all, r)
		return r
	}
	// kdapl asks for CRC and for the peer-to-peer mode by default, and siw's server agrees.
	for _, size := range []int{1, 64, 4096, 65535} {
		add(rping(fmt.Sprintf("kdapl -> siw: rping %d", size), "", "", guest1, host, size), size == 64 || size == 65535)
	}
	// The client of rdma-core takes no less than 23 bytes.
	for _, size := range []int{23, 64, 4096, 65535} {
		add(rping(fmt.Sprintf("siw -> kdapl: rping %d", size), "", "", host, guest1, size), size == 64 || size == 65535)
	}
	for _, n := range []int{1, 10} {
		add(ucmatose(fmt.Sprintf("kdapl -> siw: ucmatose %d", n), "", "", guest1, host, n), n == 10)
	}
	// Without peer-to-peer mode a server that keeps to RFC 5044 cannot be the first to send.
	for _, n := range []int{1, 10} {
		add(ucmatose(fmt.Sprintf("siw -> kdapl: ucmatose %d, peer-to-peer", n), "peer_to_peer=1", "", host, guest1, n), n == 10)
	}
	const plain = "crc=off peer2peer=off"
	add(rping("kdapl -> siw: rping 4096, no CRC, no peer-to-peer", "", plain, guest1, host, 4096), false)
	add(rping("siw -> kdapl: rping 4096, no CRC, no peer-to-peer", "", plain, host, guest1, 4096), false)
	add(ucmatose("kdapl -> siw: ucmatose, no CRC, no peer-to-peer", "", plain, guest1, host, 1), false)
	const crc = "mpa_crc_required=1"
	add(rping("kdapl -> siw: rping 4096, siw requires CRC", crc, "", guest1, host, 4096), false)
	add(rping("siw -> kdapl: rping 4096, siw requires CRC", crc, "crc=off", host, guest1, 4096), true)
	const p2p = "peer_to_peer=1"
	add(rping("kdapl -> siw: rping 4096, peer-to-peer", p2p, "crc=off", guest1, host, 4096), false)
	add(rping("siw -> kdapl: rping 4096, peer-to-peer", p2p, "crc=off", host, guest1, 4096), false)
	// siw itself cannot read in revision 1, so sends only.
	add(ucmatose("kdapl -> siw: ucmatose, revision 1", "", "rev=1", guest1, host, 1), false)
	const sends = "-i 20 -t 1 -w 1 client SR 256 1 server SR 256 1"
	const mixed = "-i 20 -t 2 -w 2 -R BE client SR 1024 2 server SR 1024 2 client RW 4096 1 server RR 4096 1"
	add(dapltest("siw -> kdapl: dapltest T of sends, revision 1", "mpa_version=1", "siw", sends, host, guest1), false)
	for _, o := range []string{"-b 256 -B 2", "-W -t -b 64 -B 2"} {
		add(dtest("kdapl -> siw: dtest "+o, "", o, guest1, host), o[1] == 'b')
		add(dtest("siw -> kdapl: dtest "+o, "peer_to_peer=1", o, host, guest1), o[1] == 'b')
	}
	add(dapltest("kdapl -> siw: dapltest T", "", "siw", mixed, guest1, host), true)
	add(dapltest("siw -> kdapl: dapltest T", "", "siw", mixed, host, guest1), true)
	add(rping("kdapl -> siw: rping 64, unpatched siw", unpatched, "", guest1, host, 64), false)
	add(rping("siw -> kdapl: rping 64, unpatched siw", unpatched, "", host, guest1, 64), false)
	for _, r := range []*row{
		rping("siw -> siw: rping 64", "", "", guest1, guest2, 64),
		rping("siw -> siw: rping 64, unpatched siw", unpatched, "", guest1, guest2, 64),
		ucmatose("siw -> siw: ucmatose 10", "", "", guest1, guest2, 10),
		dapltest("siw -> siw: dapltest T of sends, revision 1", "mpa_version=1", "siw", sends, guest1, guest2),
	} {
		add(r, false).own = true
	}
	return all
}
