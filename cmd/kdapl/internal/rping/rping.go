// Package rping speaks the protocol of rdma-core's rping, in both roles.
//
// The client names a buffer in a message, the server reads it with an RDMA read and says so; the client names a
// second buffer, the server writes to it what it has read, up to the first zero byte, and says so. That is
// a round. Messages have 16 bytes, of which those of the server are without meaning.
package rping

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"sync"

	"kdapl/cmd/kdapl/internal/link"
	"kdapl/dat"
)

const (
	// Port is where servers listen.
	Port = 7174
	// MaxSize is the largest size of a buffer, and DefaultSize what rping takes.
	MaxSize     = 64<<10 - 1
	DefaultSize = 64

	messageLen = 16
	messages   = 4 // places for messages: two to receive, one to send
	recvs      = 2
	sendPlace  = recvs
)

// Config says what to do.
type Config struct {
	// Size is the length of the client's buffers in bytes, 1 to MaxSize. A server takes clients with up
	// to this size.
	Size int
	// Count is the number of rounds: a client makes so many, 0 is without end. A server fails if a client
	// has made others, unless it is 0.
	Count int
	// Validate checks that what the server has written is what it was to read.
	Validate bool
	// Verbose prints the data.
	Verbose bool
	// Out is printed to; it is used by one goroutine at a time.
	Out io.Writer
}

// advert is what a client's message says.
type advert dat.RMRTriplet

func (a advert) encode(b []byte) {
	binary.BigEndian.PutUint64(b, a.VirtualAddress)
	binary.BigEndian.PutUint32(b[8:], a.RMRContext)
	binary.BigEndian.PutUint32(b[12:], a.SegmentLength)
}

func decode(b []byte) advert {
	return advert{
		VirtualAddress: binary.BigEndian.Uint64(b),
		RMRContext:     binary.BigEndian.Uint32(b[8:]),
		SegmentLength:  binary.BigEndian.Uint32(b[12:]),
	}
}

// end is what both roles have: a link and the memory of its messages.
type end struct {
	*link.Link
	lmr *dat.LMR
}

// newEnd makes an end that is ready to be connected.
func newEnd(h *link.Host) (_ *end, err error) {
	l, err := h.New(messages)
	if err != nil {
		return nil, err
	}
	e := &end{Link: l}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if e.lmr, err = h.Memory(messages*messageLen, dat.PrivLocalRead|dat.PrivLocalWrite); err != nil {
		return nil, err
	}
	for i := range recvs {
		if err = e.post(uint64(i)); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *end) close() error {
	err := e.Close()
	if e.lmr != nil {
		err = errors.Join(err, e.lmr.Free())
	}
	return err
}

func (e *end) place(i uint64) []byte { return e.lmr.Bytes()[i*messageLen:][:messageLen] }

func (e *end) post(i uint64) error {
	return e.EP.PostRecv(i, 0, e.lmr.Triplet(int(i)*messageLen, messageLen))
}

// receive waits for a message of the peer's.
func (e *end) receive(ctx context.Context) (advert, error) {
	d, err := e.Received(ctx, messageLen)
	if err != nil {
		return advert{}, err
	}
	a := decode(e.place(d.Cookie))
	return a, e.post(d.Cookie)
}

// send sends a message, and waits until its memory is free again.
func (e *end) send(ctx context.Context, a advert) error {
	a.encode(e.place(sendPlace))
	if err := e.EP.PostSend(0, 0, e.lmr.Triplet(sendPlace*messageLen, messageLen)); err != nil {
		return err
	}
	return e.Completed(ctx)
}

// payload fills b with the data of a round: its number, letters from another one each round, and a zero byte.
func payload(b []byte, round int) {
	const first, last = 'A', 'z'
	n := copy(b, "rdma-ping-"+strconv.Itoa(round)+": ")
	for i := range b[n:] {
		b[n+i] = byte(first + (round+i)%(last-first+1))
	}
	b[len(b)-1] = 0
}

// text is the data up to the first zero byte.
func text(b []byte) []byte {
	s, _, _ := bytes.Cut(b, []byte{0})
	return s
}

// Client connects to a server and makes the rounds. The result is their number. The end of the context is an
// error.
func Client(ctx context.Context, h *link.Host, to netip.Addr, port uint64, cfg Config) (rounds int, err error) {
	e, err := newEnd(h)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	source, err := h.Memory(cfg.Size, dat.PrivLocalRead|dat.PrivLocalWrite|dat.PrivRemoteRead)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, source.Free()) }()
	sink, err := h.Memory(cfg.Size, dat.PrivLocalRead|dat.PrivLocalWrite|dat.PrivRemoteWrite)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, sink.Free()) }()
	if err := e.Connect(ctx, to, port); err != nil {
		return 0, err
	}
	for ; cfg.Count == 0 || rounds < cfg.Count; rounds++ {
		payload(source.Bytes()[:cfg.Size], rounds)
		for _, lmr := range []*dat.LMR{source, sink} {
			if err := e.send(ctx, advert(lmr.RMRTriplet(0, cfg.Size))); err != nil {
				return rounds, err
			}
			if _, err := e.receive(ctx); err != nil {
				return rounds, err
			}
		}
		want, got := text(source.Bytes()[:cfg.Size]), text(sink.Bytes()[:cfg.Size])
		if cfg.Validate && !bytes.Equal(want, got) {
			return rounds, fmt.Errorf("round %d: the server wrote back other data than it was to read: %.40q… instead of %.40q…", rounds, got, want)
		}
		if cfg.Verbose {
			fmt.Fprintf(cfg.Out, "ping data: %s\n", got)
		}
		clear(sink.Bytes())
	}
	return rounds, e.Disconnect(ctx)
}

// Serve serves one client, whose number of rounds is the result.
func Serve(ctx context.Context, h *link.Host, ln *link.Listener, cfg Config) (int, error) {
	s, err := accept(ctx, h, ln, cfg)
	if err != nil {
		return 0, err
	}
	return s.serve(ctx)
}

// ServeAll serves clients until the context ends, several at a time. done is told of each client's end; its calls don't
// overlap.
func ServeAll(ctx context.Context, h *link.Host, ln *link.Listener, cfg Config, done func(rounds int, err error)) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	out := &locked{w: cfg.Out}
	cfg.Out = out
	for {
		s, err := accept(ctx, h, ln, cfg)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			out.do(func() { done(0, err) })
			continue
		}
		clients.Go(func() {
			rounds, err := s.serve(ctx)
			out.do(func() { done(rounds, err) })
		})
	}
}

// locked is a writer for several goroutines.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *locked) Write(b []byte) (n int, err error) {
	l.do(func() { n, err = l.w.Write(b) })
	return n, err
}

// server serves one client.
type server struct {
	*end
	cfg  Config
	data *dat.LMR
}

// accept waits for a client.
func accept(ctx context.Context, h *link.Host, ln *link.Listener, cfg Config) (_ *server, err error) {
	e, err := newEnd(h)
	if err != nil {
		return nil, err
	}
	s := &server{end: e, cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.data, err = h.Memory(cfg.Size, dat.PrivLocalRead|dat.PrivLocalWrite); err != nil {
		return nil, err
	}
	return s, ln.Accept(ctx, e.Link)
}

func (s *server) close() error {
	err := s.end.close()
	if s.data != nil {
		err = errors.Join(err, s.data.Free())
	}
	return err
}

// serve makes rounds until the client disconnects.
func (s *server) serve(ctx context.Context) (rounds int, err error) {
	defer func() { err = errors.Join(err, s.close()) }()
	for ; ; rounds++ {
		source, err := s.receive(ctx)
		if link.Disconnected(err) { // between rounds: that is how it ends
			if s.cfg.Count > 0 && rounds != s.cfg.Count {
				return rounds, fmt.Errorf("the client made %d rounds, expected were %d", rounds, s.cfg.Count)
			}
			return rounds, nil
		}
		if err == nil {
			err = s.round(ctx, source)
		}
		if err != nil {
			return rounds, fmt.Errorf("round %d: %w", rounds, err)
		}
	}
}

// round makes a round from its first message on.
func (s *server) round(ctx context.Context, source advert) error {
	if source.SegmentLength > uint32(s.cfg.Size) {
		return fmt.Errorf("the client's buffer has %d bytes, more than the %d that this server takes", source.SegmentLength, s.cfg.Size)
	}
	data := s.data.Bytes()[:source.SegmentLength]
	if err := s.EP.PostRDMARead(0, 0, dat.RMRTriplet(source), s.data.Triplet(0, len(data))); err != nil {
		return err
	}
	if err := s.Completed(ctx); err != nil {
		return err
	}
	if s.cfg.Verbose {
		fmt.Fprintf(s.cfg.Out, "server ping data: %s\n", text(data))
	}
	if err := s.send(ctx, advert{}); err != nil {
		return err
	}
	sink, err := s.receive(ctx)
	if err != nil {
		return err
	}
	n := min(len(text(data))+1, len(data)) // with the zero byte, if there is one
	if sink.SegmentLength < uint32(n) {
		return fmt.Errorf("the client wants %d bytes in a buffer of %d", n, sink.SegmentLength)
	}
	if err := s.EP.PostRDMAWrite(0, 0, dat.RMRTriplet(sink), s.data.Triplet(0, n)); err != nil {
		return err
	}
	if err := s.Completed(ctx); err != nil {
		return err
	}
	return s.send(ctx, advert{})
}
