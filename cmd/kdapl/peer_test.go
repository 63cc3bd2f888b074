package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
)

// server runs a command line that listens, and tells where.
func server(t *testing.T, args ...string) (addr, port string, ended <-chan int, out *strings.Builder) {
	t.Helper()
	r, w := io.Pipe()
	out = &strings.Builder{}
	code := make(chan int, 1)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		code <- run(args, env{ctx: ctx, stdout: out, stderr: w})
		w.Close()
	}()
	lines := bufio.NewReader(r)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%q, %v", first, err)
	}
	go io.Copy(io.Discard, lines)
	at, _ := strings.CutPrefix(strings.TrimSpace(first), "listening on ")
	addr, port, err = net.SplitHostPort(at)
	if err != nil {
		t.Fatalf("%q: %v", first, err)
	}
	return addr, port, code, out
}

func TestRPingAndUCMatoseTalkToThemselves(t *testing.T) {
	withoutConf(t)
	for _, c := range []struct {
		name, server, client, sout, cout string
	}{
		{"rping", "rping -s -p 0 -C 2 -v", "rping -c -a ADDR -C 2 -S 23 -vV",
			"server ping data: rdma-ping-0: ABCDEFGHI\nserver ping data: rdma-ping-1: BCDEFGHIJ\n",
			"ping data: rdma-ping-0: ABCDEFGHI\nping data: rdma-ping-1: BCDEFGHIJ\n"},
		{"rping of IPv6 without CRC", "rping -s -p 0 -a ::1 -C 2 --adapter iwarp_crc=off", "rping -c -a ADDR -C 2 --adapter iwarp_crc=off", "", ""},
		{"rping by the names of adapters", "rping -s -p 0 -C 1 --adapter iwarp0", "rping -c -a ADDR -C 1 --adapter iwarp0", "", ""},
		{"ucmatose", "ucmatose -p 0 -c 2 -C 3 -S 7", "ucmatose -s ADDR -c 2 -C 3 -S 7",
			"test complete: 2 connections, 3 messages of 7 bytes each way\n", "test complete: 2 connections, 3 messages of 7 bytes each way\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := func(line string) []string {
				f := strings.Fields(line)
				for i := range f {
					f[i] = strings.ReplaceAll(f[i], "_", " ")
				}
				return f
			}
			addr, port, ended, sout := server(t, args(c.server)...)
			client := append(args(strings.ReplaceAll(c.client, "ADDR", addr)), "-p", port)
			code, cout, cerr := kdapl(context.Background(), client...)
			if code != exitOK || cout != c.cout {
				t.Errorf("client: exit code %d\n%s\n%s", code, cout, cerr)
			}
			if code := <-ended; code != exitOK || sout.String() != c.sout {
				t.Errorf("server: exit code %d\n%s", code, sout)
			}
		})
	}
}

func TestRPingAndUCMatoseRefuseSenselessLines(t *testing.T) {
	withoutConf(t)
	for line, want := range map[string]string{
		"rping":                                            "missing flags",
		"rping -s -c":                                      "can't be used together",
		"rping -c":                                         "a client needs the server's address",
		"rping -c -a 127.0.0.1 -S 65536":                   "-S must be 1 to 65535",
		"rping -c -a 127.0.0.1 -S-1":                       "-S must be 1 to 65535",
		"rping -c -a 127.0.0.1 -C-1":                       "-C must not be negative",
		"rping -c -a 127.0.0.1 -I here":                    "ParseAddr",
		"rping -s --timeout=-1s":                           "--timeout must not be negative",
		"rping -s --adapter nothing":                       "known adapters",
		"rping -s --adapter iwarp_crc=perhaps":             "crc=perhaps",
		"rping -c -a 127.0.0.1 -p 70000":                   "70000",
		"ucmatose -c 0":                                    "0 connections",
		"ucmatose -s 127.0.0.1 -C 10000000":                "10000000 messages",
		"ucmatose -S-5":                                    "messages of -5 bytes",
		"ucmatose --adapter iwarp_addr=0.0.0.0":            "not the address of an adapter",
		"ucmatose -p 0 --adapter tokenring_speed=16 -c 10": "no kind of adapter",
	} {
		args := strings.Fields(line)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ")
		}
		if slices.Contains(args, "-p") || args[0] != "rping" || slices.Contains(args, "-s") && !slices.Contains(args, "-a") {
			if !slices.Contains(args, "-p") {
				args = append(args, "-p", "0")
			}
		}
		code, _, errs := kdapl(context.Background(), args...)
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %s", line, code, errs)
		}
	}
}

func TestRPingTellsThatNobodyListens(t *testing.T) {
	withoutConf(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	code, _, errs := kdapl(context.Background(), "rping", "-c", "-a", "127.0.0.1", "-p", fmt.Sprint(port))
	if code != exitFailure || !strings.Contains(errs, "NON_PEER_REJECTED") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
