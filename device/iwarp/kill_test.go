package iwarp_test

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/device/iwarp"
)

// peerVar makes this test program the other process of a load: "serve", or the port of a server.
const peerVar = "KDAPL_IWARP_PEER"

// A load: messages go to and fro, each answered by another, while each side writes to the other's memory and reads
// it all the time.
const (
	killDepth    = 8
	killLen      = 64 << 10
	killPatience = 30 * time.Second
)

// The kinds of posts, by cookie.
const (
	aReceive uint64 = iota
	aSend
	aWrite
	aRead
)

// loader is one side of the load.
type loader struct {
	*side
	t            *testing.T
	posted, done int
	connected    int // of the posts, those behind which the connection still stood
	remote       dat.RMRTriplet
}

func newLoader(t *testing.T) *loader { return &loader{side: newSide(t, iwarp.Config{}), t: t} }

// post posts one more of a kind; the connection may have ended.
func (l *loader) post(kind uint64) {
	var err error
	switch kind {
	case aReceive:
		err = l.ep.PostRecv(kind, 0, l.lmr.Triplet(0, 1024))
	case aSend:
		err = l.ep.PostSend(kind, 0, l.lmr.Triplet(1024, 1024))
	case aWrite:
		err = l.ep.PostRDMAWrite(kind, 0, l.remote, l.lmr.Triplet(256<<10, killLen))
	case aRead:
		err = l.ep.PostRDMARead(kind, 0, l.remote, l.lmr.Triplet(512<<10, killLen))
	}
	if err == nil {
		l.posted++
		if s, err := l.ep.Status(); err == nil && (s.State == dat.StateConnected || s.State == dat.StateUnconnected) {
			l.connected = l.posted
		}
	}
}

// receives posts what the peer's messages need, before there is a peer.
func (l *loader) receives() {
	for range 2 * killDepth {
		l.post(aReceive)
	}
}

// run keeps the load up until the connection ends, and returns its end. turn is called now and then.
func (l *loader) run(turn func(n int)) dat.EventNumber {
	l.t.Helper()
	l.post(aWrite)
	l.post(aRead)
	for n := 1; ; n++ {
		ev, _, err := l.evd.Wait(context.Background(), 1, killPatience)
		if err != nil {
			l.t.Fatalf("%v, with %d posts and %d completions", err, l.posted, l.done)
		}
		if ev.Stream() != dat.StreamDTO {
			return ev.Number
		}
		l.done++
		if d := ev.DTO(); d.Status == dat.StatusSuccess && d.Cookie != aSend {
			l.post(d.Cookie)
			if d.Cookie == aReceive {
				l.post(aSend)
			}
		}
		turn(n)
	}
}

// here tells the peer in private data where it may write and read.
func (l *loader) here() []byte {
	r := l.lmr.RMRTriplet(768<<10, killLen)
	return fmt.Appendf(nil, "%d %d", r.RMRContext, r.VirtualAddress)
}

func (l *loader) learn(private []byte) {
	l.t.Helper()
	l.remote.SegmentLength = killLen
	if _, err := fmt.Sscanf(string(private), "%d %d", &l.remote.RMRContext, &l.remote.VirtualAddress); err != nil {
		l.t.Fatalf("private data %q: %v", private, err)
	}
}

// listen and accept are the passive side.
func (l *loader) listen() *dat.PSP {
	return must[*dat.PSP](l.t)(l.ia.NewPSP(dat.PSPConfig{EVD: l.evd}))
}

func (l *loader) accept() {
	l.t.Helper()
	l.receives()
	ev := l.next(l.t, dat.ConnectionRequest)
	cr := ev.Request().CR
	q := must[dat.CRParam](l.t)(cr.Query())
	l.learn(q.PrivateData)
	ok(l.t, cr.Accept(l.ep, l.here()))
	l.next(l.t, dat.ConnectionEstablished)
}

// dial is the active side, which sends first.
func (l *loader) dial(port uint64) {
	l.t.Helper()
	l.receives()
	ok(l.t, l.ep.Connect(netip.MustParseAddr("127.0.0.1"), port, dat.ConnectConfig{Timeout: killPatience, PrivateData: l.here()}))
	ev := l.next(l.t, dat.ConnectionEstablished)
	l.learn(ev.Connection().PrivateData)
	for range killDepth {
		l.post(aSend)
	}
}

// TestPeerProcess is the other process.
func TestPeerProcess(t *testing.T) {
	role := os.Getenv(peerVar)
	if role == "" {
		t.Skip("this is the other process of TestProcessKilledUnderLoad")
	}
	l := newLoader(t)
	if role == "serve" {
		fmt.Printf("port %d\n", l.listen().ConnQual())
		l.accept()
	} else {
		port, err := strconv.ParseUint(role, 10, 64)
		ok(t, err)
		l.dial(port)
	}
	l.run(func(int) {})
}

// startPeer starts the other process and returns the line that it begins with, if it serves.
func startPeer(t *testing.T, role string) (cmd *exec.Cmd, line string) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^TestPeerProcess$")
	cmd.Env = append(os.Environ(), peerVar+"="+role)
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // where the test has failed before it did
		_ = cmd.Wait()
	})
	if role == "serve" {
		for r := bufio.NewScanner(out); !strings.HasPrefix(line, "port "); line = r.Text() {
			if !r.Scan() {
				t.Fatalf("the other process says nothing: %v", r.Err())
			}
		}
	}
	return cmd, line
}

// A process that is killed under load, as the active and as the passive side: the other one sees its one end, and
// each of its posts on the connection has one outcome before that. It can go on at once with another peer.
func TestProcessKilledUnderLoad(t *testing.T) {
	for _, c := range []struct{ name, role string }{{"the passive side", "serve"}, {"the active side", ""}} {
		t.Run(c.name, func(t *testing.T) {
			rounds := 5
			if testing.Short() {
				rounds = 2
			}
			for round := range rounds {
				l := newLoader(t)
				role := c.role
				if role == "" {
					role = strconv.FormatUint(l.listen().ConnQual(), 10)
				}
				cmd, line := startPeer(t, role)
				if c.role == "serve" {
					port, err := strconv.ParseUint(strings.TrimPrefix(line, "port "), 10, 64)
					ok(t, err)
					l.dial(port)
				} else {
					l.accept()
				}
				end := l.run(func(n int) {
					if n == 2000+137*round {
						ok(t, cmd.Process.Kill()) // SIGKILL
					}
				})
				if end != dat.ConnectionBroken && end != dat.ConnectionDisconnected {
					t.Errorf("the end is %v", end)
				}
				if l.done < l.connected {
					t.Errorf("%d posts on the connection, %d completions before %v", l.connected, l.done, end)
				}
				// What was posted when the connection had ended, and before that was known here, is flushed behind its end.
				for l.done < l.posted {
					ev, _, err := l.evd.Wait(context.Background(), 1, killPatience)
					if err != nil || ev.Stream() != dat.StreamDTO || ev.DTO().Status != dat.StatusFlushed {
						t.Fatalf("behind the end, with %d posts and %d completions: %v, %v", l.posted, l.done, ev, err)
					}
					l.done++
				}
				if ev, err := l.evd.Dequeue(); err != dat.ErrQueueEmpty {
					t.Errorf("behind all: %v, %v", ev, err)
				}
				ok(t, l.ep.Free())
			}
		})
	}
}
