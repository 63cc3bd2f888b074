// Package ends is one end of a two-process measurement over iWARP, through the DAT API: what a program
// would do that has nothing else to do. The bench command runs itself twice with it.
package ends

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime/pprof"
	"time"

	"kdapl/dat"
	"kdapl/device/iwarp"
)

// Spec is what is measured; both ends get the same.
type Spec struct {
	// Mode is lat, send, write, read, conn or grow.
	Mode string
	// Style is how completions are taken: poll, wait or upcall.
	Style string
	// Size is the length of a message in bytes; for conn the number of connections.
	Size int
	// Depth is how many messages are outstanding, List how many are posted at a time.
	Depth, List int
	// Conns is how many connections there are for grow, of which Active carry messages.
	Conns, Active int
	// CRC says whether the adapters insist on CRCs.
	CRC bool
	// Time is how long is measured.
	Time time.Duration
	// Histogram asks for the distribution of latencies.
	Histogram bool
}

// Peer is what the client must know of the server.
type Peer struct {
	Addr   netip.Addr
	Qual   uint64
	Memory dat.RMRTriplet
}

// Result is what an end found out. Each end tells its own processor time, and memory.
type Result struct {
	// US is the time of one message, or half of a round trip, in microseconds.
	US float64 `json:"us,omitempty"`
	// Rate is messages, or connections, per second, MBPS their payload in 10⁶ bytes per second.
	Rate float64 `json:"rate,omitempty"`
	MBPS float64 `json:"mbps,omitempty"`
	// Messages is how many messages, or round trips, there were from the set-up of the connection on, and CPU the
	// seconds of processor time meanwhile.
	Messages int     `json:"messages,omitempty"`
	CPU      float64 `json:"cpu"`
	// KiB is the resident memory for each connection, Heap what of it is reachable Go memory.
	KiB  float64 `json:"kib,omitempty"`
	Heap float64 `json:"heap_kib,omitempty"`
	// Distribution are percentiles and their latencies in microseconds.
	Distribution [][2]float64 `json:"distribution,omitempty"`
}

// Main runs an end: arguments are "server" or "client", the Spec as JSON and, for a client, the Peer. The server
// writes the Peer to out, and both write their Result.
func Main(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("end", flag.ContinueOnError)
	profile := flags.String("profile", "", "file for a processor profile")
	if err := flags.Parse(args); err != nil {
		return err
	}
	args = flags.Args()
	if len(args) < 2 || (args[0] == "client") != (len(args) == 3) {
		return fmt.Errorf("an end needs its role, spec and, as client, its peer: %q", args)
	}
	var spec Spec
	if err := json.Unmarshal([]byte(args[1]), &spec); err != nil {
		return err
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	e, err := newEnd(spec)
	if err != nil {
		return err
	}
	run := e.serve
	if args[0] == "client" {
		var peer Peer
		if err := json.Unmarshal([]byte(args[2]), &peer); err != nil {
			return err
		}
		run = func(json *json.Encoder) (Result, error) { return e.drive(peer) }
	}
	enc := json.NewEncoder(out)
	r, err := run(enc)
	if err != nil {
		return err
	}
	return enc.Encode(r)
}

// end has an adapter and, but for many connections, one connection.
type end struct {
	spec Spec
	ia   *dat.IA
	pz   *dat.PZ
	evd  *dat.EVD // of receives and requests
	conn *dat.EVD // of connections
	lmr  *dat.LMR
	ep   *dat.EP

	ev [64]dat.Event
	// what has completed
	received, done int
	requests       []dat.Event // for connections, that are not looked at
	err            error
	ended          bool
}

// The two halves of the memory: what is sent, and what is received or written by the peer.
const half = 2 << 20

func newEnd(spec Spec) (*end, error) {
	e := &end{spec: spec}
	var err error
	if e.ia, err = dat.Open(iwarp.New(iwarp.Config{NoCRC: !spec.CRC}), dat.Config{}); err != nil {
		return nil, err
	}
	if e.pz, err = e.ia.NewPZ(); err != nil {
		return nil, err
	}
	if e.lmr, err = e.pz.NewLMR(dat.LMRConfig{Length: 2 * half, Priv: dat.PrivAll}); err != nil {
		return nil, err
	}
	b := e.lmr.Bytes()
	for i := range b {
		b[i] = 1 // touched, as the peers' memory is
	}
	if e.evd, err = e.ia.NewEVD(dat.EVDConfig{MinLen: 16, Streams: dat.StreamDTO}); err != nil {
		return nil, err
	}
	e.conn, err = e.ia.NewEVD(dat.EVDConfig{MinLen: 64, Streams: dat.StreamConnection | dat.StreamConnectionRequest})
	return e, err
}

// queue is how many receives an end posts for streams, credit how many make a message of the server.
func (e *end) queue() int  { return max(4*e.spec.Depth, 16) }
func (e *end) credit() int { return e.queue() / 4 }

// endPoint makes an EP for the spec.
func (e *end) endPoint() (*dat.EP, error) {
	p, err := e.ia.Query()
	if err != nil {
		return nil, err
	}
	a := dat.DefaultEPAttr(p.Attr)
	a.MaxMessageSize, a.MaxRDMASize = half, half
	if d := e.spec.Depth; d > 0 {
		a.MaxRequestDTOs, a.MaxRecvDTOs = max(d, a.MaxRequestDTOs), max(e.queue(), a.MaxRecvDTOs)
	}
	if e.spec.Mode == "read" {
		a.MaxRDMAReadIn, a.MaxRDMAReadOut = e.spec.Depth, e.spec.Depth
	}
	return e.pz.NewEP(dat.EPConfig{Recv: e.evd, Request: e.evd, Connect: e.conn, Attr: &a})
}

// connection waits for an event of a connection. The next request may come before this side knows that the
// last connection is established, which the peer's RTR message tells; it is kept.
func (e *end) connection(want dat.EventNumber) (dat.Event, error) {
	if want == dat.ConnectionRequest && len(e.requests) > 0 {
		ev := e.requests[0]
		e.requests = e.requests[1:]
		return ev, nil
	}
	for {
		ev, _, err := e.conn.Wait(context.Background(), 1, 30*time.Second)
		if err != nil || ev.Number == want {
			return ev, err
		}
		if ev.Number != dat.ConnectionRequest {
			return ev, fmt.Errorf("got %v instead of %v", ev, want)
		}
		e.requests = append(e.requests, ev)
	}
}

func (e *end) listen() (*dat.PSP, Peer, error) {
	psp, err := e.ia.NewPSP(dat.PSPConfig{EVD: e.conn})
	if err != nil {
		return nil, Peer{}, err
	}
	return psp, Peer{e.ia.Address(), psp.ConnQual(), e.lmr.RMRTriplet(half, half)}, nil
}

// accept takes the next request. Receives are posted before, by prepare, so that the peer may send at once.
func (e *end) accept(prepare func(*dat.EP) error) (*dat.EP, error) {
	ev, err := e.connection(dat.ConnectionRequest)
	if err != nil {
		return nil, err
	}
	ep, err := e.endPoint()
	if err != nil {
		return nil, err
	}
	if err := prepare(ep); err != nil {
		return nil, err
	}
	if err := ev.Request().CR.Accept(ep, nil); err != nil {
		return nil, err
	}
	_, err = e.connection(dat.ConnectionEstablished)
	return ep, err
}

func (e *end) connect(p Peer, recvs int) (*dat.EP, error) {
	ep, err := e.endPoint()
	if err != nil {
		return nil, err
	}
	if err := e.receives(ep, recvs); err != nil {
		return nil, err
	}
	if err := ep.Connect(p.Addr, p.Qual, dat.ConnectConfig{Timeout: 10 * time.Second}); err != nil {
		return nil, err
	}
	_, err = e.connection(dat.ConnectionEstablished)
	return ep, err
}

// receives posts n receives of the spec's size.
func (e *end) receives(ep *dat.EP, n int) error {
	for range n {
		if err := e.receive(ep); err != nil {
			return err
		}
	}
	return nil
}

func (e *end) receive(ep *dat.EP) error {
	return ep.PostRecv(recvCookie, 0, e.lmr.Triplet(half, e.size()))
}

func (e *end) size() int {
	if e.spec.Mode == "conn" {
		return 64
	}
	return e.spec.Size
}

// The cookies tell what has completed; a receive's has the number of its EP in the upper part.
const (
	sendCookie = 1
	recvCookie = 2
)

// progress takes what has completed.
func (e *end) progress() {
	n := e.evd.DequeueInto(e.ev[:])
	for i := range e.ev[:n] {
		d := e.ev[i].DTO()
		if d.Status != dat.StatusSuccess {
			if d.Status == dat.StatusFlushed {
				e.ended = true
			} else if e.err == nil {
				e.err = fmt.Errorf("an operation failed: %v", d.Status)
			}
			continue
		}
		if d.Cookie == recvCookie {
			e.received++
		} else {
			e.done++
		}
	}
}

// going reports that nothing has failed and the connection has not ended.
func (e *end) going() bool { return e.err == nil && !e.ended }

// serve runs the server's side.
func (e *end) serve(out *json.Encoder) (Result, error) {
	_, peer, err := e.listen()
	if err != nil {
		return Result{}, err
	}
	if err := out.Encode(peer); err != nil {
		return Result{}, err
	}
	switch e.spec.Mode {
	case "conn", "grow":
		return e.serveMany()
	}
	recvs := e.queue()
	if e.spec.Mode == "lat" {
		recvs = 2
	}
	if e.ep, err = e.accept(func(ep *dat.EP) error { return e.receives(ep, recvs) }); err != nil {
		return Result{}, err
	}
	before := cpu()
	switch {
	case e.spec.Mode == "lat" && e.spec.Style == "upcall":
		err = e.echoUpcall()
	case e.spec.Mode == "lat" && e.spec.Style == "wait":
		err = e.echoWait()
	case e.spec.Mode == "lat":
		err = e.echoPoll()
	case e.spec.Mode == "send":
		err = e.takeSends()
	default:
		for e.going() { // the target of RDMA only helps the adapter along
			e.progress()
		}
		err = e.err
	}
	return Result{CPU: cpu() - before}, err
}

// drive runs the client's side.
func (e *end) drive(p Peer) (r Result, err error) {
	switch e.spec.Mode {
	case "conn", "grow":
		return e.driveMany(p)
	}
	if e.ep, err = e.connect(p, 4); err != nil {
		return r, err
	}
	before := cpu()
	switch e.spec.Mode {
	case "lat":
		r, err = e.pingPong()
	default:
		r, err = e.stream(p)
	}
	r.CPU = cpu() - before
	if err != nil {
		return r, err
	}
	if err := e.ep.Disconnect(dat.CloseGraceful); err != nil {
		return r, err
	}
	_, err = e.connection(dat.ConnectionDisconnected)
	return r, err
}
