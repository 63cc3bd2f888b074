// Package stat lets other processes see the counters of this one: what its IAs, EPs and EVDs have done. One
// line switches it on,
//
//	exporter, err := stat.Serve("/run/user/1000/mine.sock", ia)
//
// and kdapl stat /run/user/1000/mine.sock shows it. The exporter answers HTTP requests with a [Snapshot] in
// JSON, so that curl --unix-socket and other tools can ask too; [Handler] is for programs that have an HTTP
// server. Nothing is counted or kept that is not counted anyway: a request queries the objects, and without
// requests it costs nothing.
//
// Who can open the socket can read the counters and addresses, and nothing more. The socket is made for
// the user alone; an address of TCP is open to everyone who reaches it.
package stat

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"kdapl/dat"
)

// Snapshot is what a process tells.
type Snapshot struct {
	PID  int       `json:"pid"`
	Time time.Time `json:"time"`
	IAs  []IA      `json:"ias"`
}

// IA is an open IA.
type IA struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Objects counts the live objects by kind.
	Objects dat.IACounters `json:"objects"`
	EPs     []EP           `json:"eps"`
	EVDs    []EVD          `json:"evds"`
}

// EP is an end point. Its counts are since it was created.
type EP struct {
	Name    string          `json:"name"`
	State   string          `json:"state"`
	Local   string          `json:"local,omitempty"`
	Remote  string          `json:"remote,omitempty"`
	Request dat.DTOCounters `json:"request"`
	Recv    dat.DTOCounters `json:"recv"`
}

// EVD is an event dispatcher. Its counts are since it was created.
type EVD struct {
	Name     string          `json:"name"`
	Policy   string          `json:"policy"`
	Length   int             `json:"length"`
	Queued   int             `json:"queued"`
	Counters dat.EVDCounters `json:"counters"`
}

// Take queries the IAs and their objects. Closed IAs are left out. It does not block.
func Take(ias ...*dat.IA) Snapshot {
	s := Snapshot{PID: os.Getpid(), Time: time.Now(), IAs: []IA{}}
	for _, ia := range ias {
		p, err := ia.Query()
		if err != nil {
			continue
		}
		out := IA{Name: ia.Name(), Address: p.Attr.Address.String(), Objects: p.Counters, EPs: []EP{}, EVDs: []EVD{}}
		for _, o := range ia.Objects(dat.HandleEP) {
			q, err := o.(*dat.EP).Query()
			if err != nil {
				continue // freed meanwhile
			}
			ep := EP{Name: o.String(), State: q.State.String(), Request: q.RequestCounters, Recv: q.RecvCounters}
			if q.RemoteAddress.IsValid() {
				ep.Local, ep.Remote = hostPort(q.LocalAddress.String(), q.LocalPortQual), hostPort(q.RemoteAddress.String(), q.RemotePortQual)
			}
			out.EPs = append(out.EPs, ep)
		}
		for _, o := range ia.Objects(dat.HandleEVD) {
			q, err := o.(*dat.EVD).Query()
			if err != nil {
				continue
			}
			out.EVDs = append(out.EVDs, EVD{Name: o.String(), Policy: q.Policy.String(), Length: q.QLen, Queued: q.Queued, Counters: q.Counters})
		}
		s.IAs = append(s.IAs, out)
	}
	return s
}

// Handler answers every request with a snapshot of the IAs.
func Handler(ias ...*dat.IA) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Take(ias...)) // who asked may have gone
	})
}

// Exporter is a running exporter.
type Exporter struct {
	server   *http.Server
	listener net.Listener
	done     chan struct{}
}

// network tells an address of TCP, HOST:PORT, from the path of a socket, which has a slash or no colon.
func network(address string) string {
	if strings.ContainsAny(address, `/\`) || !strings.Contains(address, ":") {
		return "unix"
	}
	return "tcp"
}

// Serve exports the counters of the IAs at an address: the path of a unix socket, which is created and must
// not be there yet, or HOST:PORT of TCP. Close ends it; IAs that are closed before are shown no more. It does
// not block.
func Serve(address string, ias ...*dat.IA) (*Exporter, error) {
	if address == "" {
		return nil, errors.New("stat: no address")
	}
	l, err := net.Listen(network(address), address)
	if err != nil {
		return nil, err
	}
	if l.Addr().Network() == "unix" {
		if err := os.Chmod(address, 0o600); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	e := &Exporter{listener: l, done: make(chan struct{}),
		server: &http.Server{Handler: Handler(ias...), ReadHeaderTimeout: 10 * time.Second}}
	go func() {
		defer close(e.done)
		_ = e.server.Serve(l) // http.ErrServerClosed, after Close
	}()
	return e, nil
}

// Addr is the address, with the real port if 0 was asked for.
func (e *Exporter) Addr() string { return e.listener.Addr().String() }

// Close ends the exporter and its connections, and removes the socket.
func (e *Exporter) Close() error {
	err := e.server.Close()
	<-e.done
	return err
}

// Get asks the exporter at an address for a snapshot. It blocks until the answer is there or the context
// ends.
func Get(ctx context.Context, address string) (s Snapshot, err error) {
	var d net.Dialer
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, network(address), address)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://kdapl/", nil)
	if err != nil {
		return s, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, errors.New("stat: " + resp.Status)
	}
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

func hostPort(host string, port uint64) string {
	return net.JoinHostPort(host, strconv.FormatUint(port, 10))
}
