//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// tries is how often a repetition may be made again whose missing step is the kernel's.
const tries = 3

// result is what became of a row.
type result struct {
	n, passed int    // repetitions
	lost      int    // tries in which the kernel lost a step, so that they were made again
	wrongCRCs int    // tries that the kernel spoiled with a wrong CRC, likewise
	why       string // of the first that failed
	took      time.Duration
	found     found
	unread    bool // tshark could not read a capture
	own       bool
}

// ok reports whether all repetitions passed, unless the row is one of the kernel alone, and the wire was clean.
func (r result) ok() bool {
	return r.n > 0 && (r.own || r.passed == r.n) && !r.unread && r.found.clean()
}

// batch is how many bytes of captures are dissected at once: tshark takes longer to begin than for a small capture.
const batch = 64 << 20

// run makes all repetitions of a row.
func (l *lab) run(ctx context.Context, r *row) (res result) {
	begin := time.Now()
	res.own = r.own
	var files []string
	size := int64(0)
	dissect := func() {
		f, err := check(filepath.Join(l.o.keep, name(r)+".pcap"), files, r.ports)
		if err != nil && res.why == "" {
			res.why = err.Error()
		}
		res.unread = res.unread || err != nil
		res.found.add(f)
		files, size = nil, 0
	}
	for n := range l.o.n {
		res.n++
		for try := 1; ; try++ {
			var err error
			o := l.once(ctx, r, fmt.Sprintf("%s-%d-%d", name(r), n+1, try))
			if ctx.Err() != nil { // it was ended, and says nothing
				res.n--
				break
			}
			if o.file != "" && !o.wrongCRC { // what is wrong in that capture is known
				files = append(files, o.file)
				if size += o.size; size > batch {
					dissect()
				}
			}
			if o.why == "" {
				res.passed++
				break
			}
			if l.o.verbose {
				fmt.Fprintf(os.Stderr, "--- %s: %s; lost by the kernel: %v; spoiled by its CRC: %v\n--- server:\n%s\n--- client:\n%s\n", r.name, o.why, o.lost, o.wrongCRC, tail(o.server), tail(o.client))
			}
			if r.own {
				res.lost++
			}
			if o.crashed, err = l.revive(ctx, r); err != nil {
				res.why = err.Error()
				return res
			}
			if r.own {
				break
			}
			if o.lost = o.lost || o.crashed; o.lost {
				res.lost++
			}
			if o.wrongCRC {
				res.wrongCRCs++
			}
			if (o.lost || o.wrongCRC) && try < tries {
				continue
			}
			if res.why == "" {
				res.why = o.why
			}
			break
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(files) > 0 {
		dissect()
	}
	if f := res.found; res.why == "" && !f.clean() {
		res.why = fmt.Sprintf("%d malformed frames, %d bad CRCs, %d segments not iWARP", f.malformed, f.crcBad, f.loose)
	}
	res.took = time.Since(begin)
	return res
}

// outcome is that of one try.
type outcome struct {
	why            string // it failed; "" if not
	lost           bool   // … at a step that the kernel owes
	crashed        bool   // … for the kernel did, which says so on the console
	hostPassed     bool   // the program on the host has passed
	wrongCRC       bool   // … for the kernel sent an FPDU with a wrong CRC
	server, client string
	file           string // the capture, if there is one
	size           int64
}

var unsafeName = regexp.MustCompile(`[^A-Za-z0-9]+`)

// name is the row's, for files.
func name(r *row) string { return strings.Trim(unsafeName.ReplaceAllString(r.name, "-"), "-") }

// once makes one try, whose capture has a name.
func (l *lab) once(parent context.Context, r *row, name string) (o outcome) {
	for _, g := range l.guests[:r.guests()] {
		if err := g.set(parent, r.siw); err != nil {
			return outcome{why: "settings of siw: " + err.Error()}
		}
	}
	file := filepath.Join(l.o.keep, name+".pcap")
	c, err := record(l.guests[0].tap, file)
	if err != nil {
		return outcome{why: err.Error()}
	}
	ctx, cancel := context.WithTimeout(parent, time.Duration(r.limit)*time.Second)
	o = l.pair(ctx, r)
	cancel()
	if err := c.end(); err != nil && o.why == "" {
		o.why = err.Error()
	}
	o.file = file
	if s, err := os.Stat(file); err == nil {
		o.size = s.Size()
	}
	if o.why != "" {
		if o.lost, err = owes(file, l.guests[0].ip, r, &o); err != nil {
			o.why += "; " + err.Error()
		}
		if o.wrongCRC, err = wrongCRC(file, l.guests[0].ip, r.ports); err != nil {
			o.why += "; " + err.Error()
		}
		o.file = strings.TrimSuffix(file, ".pcap") + "-failed.pcap"
		if err := os.Rename(file, o.file); err != nil {
			o.why += "; " + err.Error()
		}
	}
	return o
}

// place is the guest of a place, nil for the host.
func (l *lab) place(p place) *guest {
	if p == host {
		return nil
	}
	return l.guests[p-guest1]
}

// pair runs both programs and judges them.
func (l *lab) pair(ctx context.Context, r *row) (o outcome) {
	fill := strings.NewReplacer("HOST", hostIP, "GUEST", l.guests[0].ip)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	at := l.place(r.server.at)
	server := l.spawn(serving, at, fill.Replace(r.server.command))
	defer func() { // a program that is left over would be in the way of the next
		stop()
		<-server.done
	}()
	begin, end := context.WithTimeout(ctx, 30*time.Second)
	err := l.ready(begin, server, at, r.ready, r.port)
	end()
	if err != nil {
		return outcome{why: "server: " + err.Error(), server: server.out.String()}
	}
	if r.exchange {
		ln, err := relay(ctx, at)
		if err != nil {
			return outcome{why: err.Error()}
		}
		defer ln.Close()
	}
	client := l.spawn(ctx, l.place(r.client.at), fill.Replace(r.client.command))
	o.client = client.wait(ctx)
	why := r.client.judge(o.client)
	if why != "" {
		o.why = "client: " + why
	}
	o.hostPassed = r.client.at == host && why == ""
	if ctx.Err() != nil && o.why == "" {
		o.why = "client: it does not end"
	}
	if r.quit != "" {
		l.spawn(ctx, l.place(r.client.at), fill.Replace(r.quit)).wait(ctx)
	}
	grace := 8 * time.Second
	if o.why != "" {
		grace = 500 * time.Millisecond
	}
	end2, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	o.server = server.wait(end2)
	why = r.server.judge(o.server)
	if why != "" && o.why == "" {
		o.why = "server: " + why
	}
	o.hostPassed = o.hostPassed || r.server.at == host && why == ""
	return o
}

// relay stands between dtest's client and the connection on which the server tells its address: the server does so before
// it listens, so the address is handed on when it does.
func relay(ctx context.Context, at *guest) (net.Listener, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(hostIP, fmt.Sprint(exchangePort)))
	if err != nil {
		return nil, err
	}
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		s, err := net.Dial("tcp", net.JoinHostPort(at.ip, fmt.Sprint(exchangePort)))
		if err != nil {
			return
		}
		defer s.Close()
		address := make([]byte, 128)
		if _, err := io.ReadFull(s, address); err != nil {
			return
		}
		for ctx.Err() == nil && !listens(ctx, at, dtestPort) {
			time.Sleep(20 * time.Millisecond)
		}
		c.Write(address)
		io.Copy(s, c)
	}()
	return ln, nil
}

// tail is the end of an output.
func tail(s string) string { return s[max(0, len(s)-1500):] }
