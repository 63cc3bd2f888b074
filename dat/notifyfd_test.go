//go:build linux

package dat_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"kdapl/dat"
)

// readable polls a descriptor.
func readable(t testing.TB, fd int, timeout int) bool {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, timeout)
		if err == unix.EINTR {
			continue
		}
		ok(t, err)
		return n == 1 && p[0].Revents&unix.POLLIN != 0
	}
}

func TestCNOWithDescriptorIsReadableWhileTriggered(t *testing.T) {
	ia := newIA(t)
	c := must[*dat.CNO](t)(ia.NewCNOFD())
	fd := c.FD()
	if q := must[dat.CNOParam](t)(c.Query()); fd < 0 || q.FD != fd {
		t.Fatalf("FD %d, %+v", fd, q)
	}
	a, b := newEVD(t, ia, dat.EVDConfig{CNO: c}), newEVD(t, ia, dat.EVDConfig{CNO: c})
	if readable(t, fd, 0) {
		t.Fatal("readable without a trigger")
	}
	ok(t, a.PostSE(1))
	ok(t, b.PostSE(1))
	ok(t, b.PostSE(2))
	if !readable(t, fd, 10000) {
		t.Fatal("not readable")
	}
	if e := must[*dat.EVD](t)(c.Trigger()); e != a {
		t.Fatal(e)
	}
	if !readable(t, fd, 0) {
		t.Fatal("one of two triggers is left, and it is not readable")
	}
	if e := must[*dat.EVD](t)(c.Trigger()); e != b {
		t.Fatal(e)
	}
	if readable(t, fd, 0) {
		t.Fatal("readable after the last trigger was taken")
	}
	// A trigger that goes with its EVD leaves nothing to be read.
	ok(t, a.PostSE(3))
	ok(t, a.Free())
	if readable(t, fd, 0) {
		t.Fatal("readable for an EVD that is gone")
	}
	// Whoever waits in poll is woken.
	woken := make(chan bool)
	go func() { woken <- readable(t, fd, int(patience.Milliseconds())) }()
	ok(t, b.PostSE(4))
	if !receive(t, "poll", woken) {
		t.Fatal("not woken")
	}
	ok(t, b.Free())
	ok(t, c.Free())
	if c.FD() != -1 {
		t.Fatal("a freed CNO has a descriptor")
	}
	if err := unix.SetNonblock(fd, true); err != unix.EBADF {
		t.Fatalf("the descriptor is open still: %v", err)
	}
}

func TestCloseOfTheIAClosesItsDescriptors(t *testing.T) {
	ia := newIA(t)
	fd := must[*dat.CNO](t)(ia.NewCNOFD()).FD()
	ok(t, ia.Close(t.Context(), dat.CloseAbrupt))
	if err := unix.SetNonblock(fd, true); err != unix.EBADF {
		t.Fatalf("the descriptor is open still: %v", err)
	}
}
