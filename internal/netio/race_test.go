//go:build race && linux

package netio

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The detector must see what raw system calls touch: a process that reads into (or writes from)
// memory which another goroutine uses at the same time is reported. The race is made in a child, as
// a race in this process fails it.
func TestRaceDetectorSeesRawCalls(t *testing.T) {
	const role = "NETIO_RACE_ROLE"
	if which := os.Getenv(role); which != "" {
		a, b := tcpPair(t, &TCP{}, loopback[0])
		shared := make([]byte, 8)
		started, done := make(chan bool), make(chan bool)
		go func() { // unordered with what follows: nothing is passed between the two until it is over
			close(started)
			switch which {
			case "read":
				_ = append([]byte(nil), shared...)
			case "write":
				copy(shared, "racing..")
			}
			close(done)
		}()
		<-started
		switch which {
		case "read": // the kernel writes to shared while it is read
			if _, err := a.TryWritev([][]byte{[]byte("incoming")}); err != nil {
				t.Fatal(err)
			}
			if err := b.WaitReadable(); err != nil {
				t.Fatal(err)
			}
			if _, err := b.TryReadv([][]byte{shared}); err != nil {
				t.Fatal(err)
			}
		case "write": // the kernel reads from shared while it is written
			if _, err := a.TryWritev([][]byte{shared}); err != nil {
				t.Fatal(err)
			}
		}
		<-done
		return
	}
	for _, which := range []string{"read", "write"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRaceDetectorSeesRawCalls$")
		cmd.Env = append(os.Environ(), role+"="+which)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "DATA RACE") {
			t.Errorf("%s: no race reported: %v\n%s", which, err, out)
		}
	}
}

// A received byte comes after its sending: what the sender did before is no race for the receiver.
func TestRaceDetectorSeesTheNetworkAsOrder(t *testing.T) {
	a, b := tcpPair(t, &TCP{}, loopback[0])
	shared := 0
	go func() {
		shared = 1
		if _, err := a.TryWritev([][]byte{{1}}); err != nil {
			t.Error(err)
		}
	}()
	if err := b.WaitReadable(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryReadv([][]byte{make([]byte, 1)}); err != nil {
		t.Fatal(err)
	}
	if shared != 1 {
		t.Fatal("the byte overtook its sender")
	}
}
