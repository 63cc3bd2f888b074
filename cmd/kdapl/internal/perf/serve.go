package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"kdapl/dat"
)

// Server takes the measurements that requesters of other processes ask for, at once and one after another.
// Each has memory of its own.
type Server struct {
	listener   *Listener
	memory     int64
	maxPrivate int
	told       func(Served)

	mu    sync.Mutex
	used  int64
	freed chan struct{} // closed when there is more memory
}

// Served is a measurement that a server took part in.
type Served struct {
	// Client is the requester's address.
	Client     netip.AddrPort
	Spec       Spec
	Completion Completion
	// Messages are those that arrived, with the warm-up's; of RDMA, what the requester says.
	Messages int
	// CPU is the processor time of this process in the measured time.
	CPU time.Duration
	// Refused: there was no connection, and Err says why not.
	Refused bool
	// Err is why it failed; nil for a good end.
	Err error
}

// NewServer listens at a connection qualifier of an IA, 0 for a free one. All measurements that run at
// once may use so many bytes of memory together. After each measurement told is called, by one goroutine at a
// time.
func NewServer(ia *dat.IA, qual uint64, memory int64, told func(Served)) (*Server, error) {
	p, err := ia.Query()
	if err != nil {
		return nil, err
	}
	l, err := listen(ia, qual)
	if err != nil {
		return nil, err
	}
	var one sync.Mutex
	return &Server{listener: l, memory: memory, freed: make(chan struct{}), maxPrivate: p.Provider.MaxPrivateDataSize, told: func(s Served) {
		one.Lock()
		defer one.Unlock()
		told(s)
	}}, nil
}

// Addr is the address and connection qualifier.
func (s *Server) Addr() (netip.Addr, uint64) { return s.listener.Addr() }

// Serve serves until the context ends, and then ends what runs, and closes the listener.
func (s *Server) Serve(ctx context.Context) (err error) {
	var running sync.WaitGroup
	defer func() {
		err = errors.Join(err, s.listener.Close())
		running.Wait()
	}()
	for {
		cr, err := s.listener.next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		running.Go(func() { s.serve(ctx, cr) })
	}
}

// serve takes part in one measurement.
func (s *Server) serve(ctx context.Context, cr *dat.CR) {
	var done Served
	if p, err := cr.Query(); err == nil {
		done.Client = netip.AddrPortFrom(p.RemoteAddress, uint16(p.RemotePortQual))
	}
	req, err := asked(cr)
	done.Spec, done.Completion = req.Spec, req.completion
	if err == nil {
		err = s.reserve(ctx, req.Memory())
	}
	if err != nil {
		done.Refused = true
		done.Err = errors.Join(err, refuse(cr, err, s.maxPrivate))
		s.told(done)
		return
	}
	done.Err = s.respond(ctx, cr, req, &done)
	s.release(req.Memory())
	if errors.Is(done.Err, context.Canceled) {
		done.Err = errEnded
	}
	s.told(done)
}

// settle is how long a request waits for memory. What comes next from a client may be here before the last
// measurement, which for the client is over, is cleared away.
const settle = time.Second

// reserve takes memory.
func (s *Server) reserve(ctx context.Context, n int64) error {
	deadline := time.NewTimer(settle)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		left, freed := s.memory-s.used, s.freed
		if n <= left {
			s.used += n
		}
		s.mu.Unlock()
		if n <= left {
			return nil
		}
		full := fmt.Errorf("this takes %d bytes of the server's memory, and of its %d there are %d left", n, s.memory, left)
		if n > s.memory {
			return full
		}
		select {
		case <-freed:
		case <-deadline.C:
			return full
		case <-ctx.Done():
			return errEnded
		}
	}
}

func (s *Server) release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	close(s.freed)
	s.freed = make(chan struct{})
}

// errEnded is what happens to measurements when a server ends.
var errEnded = errors.New("the server was ended")

// respond makes the end and drives it.
func (s *Server) respond(ctx context.Context, cr *dat.CR, req request, done *Served) (err error) {
	h, err := NewHost(s.listener.ia, req.Memory())
	if err != nil {
		return errors.Join(err, refuse(cr, err, s.maxPrivate))
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	e, err := h.accept(ctx, cr, req)
	if err != nil {
		return err
	}
	stop := drive([]*End{e})
	err = attend(ctx, e)
	stop()
	err = errors.Join(err, e.Close())
	r := e.role.(*responder)
	done.Messages, done.CPU = r.received, r.cpu.spent
	return err
}

// patience is how long a measurement of RDMA may take beyond its duration: the responder sees no events of
// it.
const patience = time.Minute

// attend waits until a responder is through, or has waited too long.
func attend(ctx context.Context, e *End) error {
	var last <-chan time.Time
	if e.spec.Op != Send && e.spec.Duration > 0 {
		t := time.NewTimer(e.spec.Duration + patience)
		defer t.Stop()
		last = t.C
	}
	ticks := time.NewTicker(stallLimit / 4)
	defer ticks.Stop()
	still := stillness{evd: e.evd}
	for {
		select {
		case <-e.done:
			return e.explain()
		case <-ctx.Done():
			return ctx.Err()
		case <-last:
			return &StallError{After: e.spec.Duration + patience}
		case <-ticks.C:
			if stalled, err := still.look(); err != nil {
				return err
			} else if stalled && e.spec.Op == Send {
				return &StallError{After: stallLimit}
			}
		}
	}
}

// stillness finds that nothing happens at an EVD.
type stillness struct {
	evd  *dat.EVD
	seen uint64
	idle int
}

// look is called four times in stallLimit. It tells that there was no event for that long.
func (s *stillness) look() (stalled bool, err error) {
	p, err := s.evd.Query()
	if err != nil {
		return false, err
	}
	if p.Counters.Events != s.seen {
		s.seen, s.idle = p.Counters.Events, 0
		return false, nil
	}
	s.idle++
	return s.idle >= 4, nil
}
