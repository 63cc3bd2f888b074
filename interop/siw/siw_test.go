//go:build linux

package main

import (
	"strings"
	"testing"
)

func TestWhoOwesTheMissingStep(t *testing.T) {
	const guest = "10.77.0.2"
	segment := func(stream, src, rest string) string { return stream + "\t" + src + "\t" + rest + "\n" }
	// length, next sequence number, acknowledged, FIN, RST
	request := segment("0", hostIP, "24\t25\t1\t0\t0")
	reply := segment("0", guest, "24\t25\t25\t0\t0")
	send := segment("0", hostIP, "40\t65\t25\t0\t0")
	acked := segment("0", guest, "0\t25\t65\t0\t0")
	answer := segment("0", guest, "40\t65\t65\t0\t0")
	hostFIN := segment("0", hostIP, "0\t66\t25\t1\t0")
	guestFIN := segment("0", guest, "0\t26\t65\t1\t0")
	hostRST := segment("0", hostIP, "0\t66\t25\t0\t1")
	other := func(segments string) string { return strings.ReplaceAll(segments, "0\t1", "1\t1") }
	for _, c := range []struct {
		name     string
		segments string
		want     bool
	}{
		{"the kernel has taken a message and does not go on", request + reply + send + acked, true},
		{"… and the host gave up", request + reply + send + acked + hostFIN, true},
		{"… and the host gave up with a reset", request + reply + send + acked + hostRST, true},
		{"… and the kernel's program was ended", request + reply + send + acked + hostFIN + guestFIN, true},
		{"the kernel has answered", request + reply + send + acked + answer, false},
		{"the kernel has ended the connection", request + reply + send + acked + guestFIN, false},
		{"the kernel's TCP has not got it", request + reply + send, false},
		{"nothing was sent behind the reply", request + reply, false},
		{"another stream is complete", other(request+reply+send+answer) + request + reply + send + acked, true},
		{"another stream is complete, and the host has not sent", other(request+reply+answer+send+acked) + request + reply, false},
		{"nothing", "", false},
	} {
		if got := stuck(streams(c.segments, guest)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestASendThatWasDelivered(t *testing.T) {
	const guest = "10.77.0.2"
	line := func(src, rest string) string { return "0\t" + src + "\t" + rest + "\n" }
	// length, next sequence number, acknowledged, FIN, RST
	send := line(guest, "40\t41\t1\t0\t0")
	acked := line(hostIP, "0\t1\t41\t0\t0")
	ackingFIN := line(hostIP, "0\t2\t41\t1\t0")
	guestFIN := line(guest, "0\t42\t1\t1\t0")
	for _, c := range []struct {
		name     string
		segments string
		want     bool
	}{
		{"the host has all and ends", send + ackingFIN, true},
		{"… in two steps", send + acked + ackingFIN + guestFIN, true},
		{"the host has not got it", send + line(hostIP, "0\t2\t1\t1\t0"), false},
		{"the host resets", send + acked + line(hostIP, "0\t2\t41\t0\t1"), false},
		{"the guest ends first", send + acked + guestFIN, false},
		{"nobody ends", send + acked, false},
	} {
		if got := delivered(streams(c.segments, guest)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestAGuestThatDoesNotGoOn(t *testing.T) {
	const guest = "10.77.0.2"
	line := func(src, rest string) string { return "0\t" + src + "\t" + rest + "\n" }
	send := line(guest, "40\t41\t1\t0\t0")
	answer := line(hostIP, "40\t41\t41\t0\t0")
	guestFIN := line(guest, "0\t42\t41\t1\t0")
	hostFIN := line(hostIP, "0\t42\t42\t1\t0")
	other := func(segments string) string { return strings.ReplaceAll(segments, "0\t1", "1\t1") }
	for _, c := range []struct {
		name     string
		segments string
		want     bool
	}{
		{"it has ended its stream", send + answer + guestFIN + hostFIN, true},
		{"… and another before", other(send+answer+guestFIN+hostFIN) + send + answer + guestFIN + hostFIN, true},
		{"another is open", other(send+answer) + send + answer + guestFIN + hostFIN, false},
		{"the host has ended first", send + answer + hostFIN + guestFIN, false},
		{"it has not got the answer", send + answer + line(guest, "0\t42\t1\t1\t0"), false},
		{"the host has not got its data", send + line(hostIP, "40\t41\t1\t0\t0") + guestFIN, false},
		{"a reset", send + answer + guestFIN + line(hostIP, "0\t42\t42\t0\t1"), false},
		{"nothing", "", false},
	} {
		if got := idle(streams(c.segments, guest)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestACrashIsSeen(t *testing.T) {
	for text, want := range map[string]bool{
		"[  751.806090] kernel BUG at drivers/infiniband/core/iwcm.c:969!":     true,
		"[   12.5] Oops: 0000 [#1] PREEMPT SMP NOPTI":                          true,
		"guest ready, uptime 5.14s\n[    9.1] siw: module verification failed": false,
	} {
		if crashes.MatchString(text) != want {
			t.Errorf("%q", text)
		}
	}
}

func TestOutputsAreJudged(t *testing.T) {
	three := lines(3, "ping data: ", "3 rounds")
	const good = "ping data: a\nping data: b\nping data: \n3 rounds\n"
	for out, pass := range map[string]bool{
		good:                                     true,
		"ping data: a\nping data: b\n2 rounds\n": false,
		strings.Replace(good, "3 rounds", "4 rounds", 1):                         false,
		good + "kdapl rping: CONNECTION_EVENT_BROKEN\n":                          false,
		good + "cma event RDMA_CM_EVENT_REJECTED, error 8\n":                     false,
		good + "server DISCONNECT EVENT...\nwait for RDMA_READ_ADV state 10\n":   true,
		good + "cq completion failed status 5\nwait for CONNECTED state 10\n":    false,
		good + "cq completion in ERROR state\n":                                  false,
		good + "data mismatch!\n":                                                false,
		strings.Replace(good, "ping data: b", "server ping data: b", 1):          false,
		strings.Replace(good, "3 rounds\n", "", 1) + "client DISCONNECT EVENT\n": false,
	} {
		if why := three(out); (why == "") != pass {
			t.Errorf("%q: judged %q", out, why)
		}
	}
}

func TestRowsAreWellFormed(t *testing.T) {
	names := map[string]bool{}
	short := 0
	for _, r := range rows() {
		if names[r.name] {
			t.Errorf("two rows %q", r.name)
		}
		names[r.name] = true
		if r.short {
			short++
			if r.guests() != 1 {
				t.Errorf("%s: the short form has one machine", r.name)
			}
		}
		if (r.server.at == host || r.client.at == host) == r.own {
			t.Errorf("%s: a row without verdict is one of the kernel alone", r.name)
		}
		if strings.Contains(r.server.command+r.client.command, "-a  ") || r.port == 0 && r.ready == "" {
			t.Errorf("%s: %+v", r.name, r)
		}
	}
	if short == 0 {
		t.Error("no row is short")
	}
}

// A machine without the programs, the right or the device is told apart from a failure.
func TestAMachineThatLacksSomethingIsSkipped(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := run(options{skip: true}); err != nil {
		t.Errorf("with -skip: %v", err)
	}
	if err := run(options{}); err == nil {
		t.Error("without -skip there is no error")
	}
}
