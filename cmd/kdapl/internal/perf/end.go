package perf

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"kdapl/dat"
)

// setUpTimeout bounds the set-up of a connection.
const setUpTimeout = 10 * time.Second

// Host is the place of ends on an adapter: a protection zone, and memory that one end at a
// time uses.
type Host struct {
	ia   *dat.IA
	attr dat.IAAttr
	// acked: a completion of a send or write means that the peer has the data.
	acked bool
	// maxPrivate is the most private data.
	maxPrivate int
	pz         *dat.PZ
	lmr        *dat.LMR
	mem        []byte
}

// NewHost makes a host on an IA with memory for measurements of up to so many bytes (see
// Spec.Memory). The memory is the IA's, outside of the Go heap; closing the IA frees it.
func NewHost(ia *dat.IA, memory int64) (*Host, error) {
	p, err := ia.Query()
	if err != nil {
		return nil, err
	}
	h := &Host{ia: ia, attr: p.Attr, maxPrivate: p.Provider.MaxPrivateDataSize}
	for _, a := range p.Provider.ProviderSpecificAttrs {
		if a.Name == dat.AttrCompletionMeaning {
			h.acked = a.Value == "REMOTE_ACKED"
		}
	}
	if h.pz, err = ia.NewPZ(); err != nil {
		return nil, err
	}
	if h.lmr, err = h.pz.NewLMR(dat.LMRConfig{Length: int(memory), Priv: dat.PrivAll}); err != nil {
		return nil, errors.Join(err, h.pz.Free())
	}
	h.mem = h.lmr.Bytes()
	return h, nil
}

// Close frees the memory. There must be no ends any more.
func (h *Host) Close() error { return errors.Join(h.lmr.Free(), h.pz.Free()) }

// local names n bytes of the host's memory.
func (h *Host) local(off, n int) dat.LMRTriplet { return h.lmr.Triplet(off, n) }

// control is the i-th control buffer.
func (h *Host) control(i int) []byte { return h.mem[i*controlSize:][:controlLen] }

// End is one end of a connection that is measured.
type End struct {
	host       *Host
	spec       Spec
	completion Completion
	ep         *dat.EP
	evd        *dat.EVD // completions, and the software event that starts the requester
	conn       *dat.EVD // what happens to the connection
	role       role

	finished bool          // the role is through
	err      error         // why, if it failed
	done     chan struct{} // closed when finished
	stop     atomic.Bool   // post no more messages
	cut      atomic.Bool   // … because the run is interrupted

	ev dat.Event // of the upcall that runs, here so that it does not escape
}

// role is what an end does.
type role interface {
	// prepare fills memory and posts the receives that must be there before the connection.
	prepare() error
	// handle takes an event of the end's EVD. Calls do not overlap.
	handle(*dat.Event)
}

// newEnd makes an end that is not connected.
func (h *Host) newEnd(spec Spec, completion Completion) (_ *End, err error) {
	if spec.Memory() > int64(len(h.mem)) {
		return nil, fmt.Errorf("the measurement needs %d bytes of memory, there are %d", spec.Memory(), len(h.mem))
	}
	e := &End{host: h, spec: spec, completion: completion, done: make(chan struct{})}
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	cfg := dat.EVDConfig{MinLen: 8, Streams: dat.StreamDTO | dat.StreamSoftware}
	if completion == Upcall {
		cfg.Policy = dat.UpcallDisable // until the connection is there: an answer could not be posted before
		cfg.Upcall = func(ev dat.Event, _ bool) {
			e.ev = ev
			e.role.handle(&e.ev)
		}
	}
	if e.evd, err = h.ia.NewEVD(cfg); err != nil {
		return nil, err
	}
	if e.conn, err = h.ia.NewEVD(dat.EVDConfig{MinLen: 8, Streams: dat.StreamConnection}); err != nil {
		return nil, err
	}
	attr := dat.DefaultEPAttr(h.attr)
	attr.MaxRequestDTOs = spec.slots() + controlSlots
	attr.MaxRecvDTOs = attr.MaxRequestDTOs
	attr.MaxRequestIOV, attr.MaxRecvIOV, attr.MaxRDMAReadIOV, attr.MaxRDMAWriteIOV = 1, 1, 1, 1
	if spec.Op == Read {
		attr.MaxRDMAReadIn = min(spec.Depth, h.attr.MaxRDMAReadPerEPIn)
		attr.MaxRDMAReadOut = min(spec.Depth, h.attr.MaxRDMAReadPerEPOut)
	}
	e.ep, err = h.pz.NewEP(dat.EPConfig{Recv: e.evd, Request: e.evd, Connect: e.conn, Attr: &attr})
	return e, err
}

// Close ends the connection and frees what the end has. An upcall that runs is awaited.
func (e *End) Close() error {
	var errs []error
	if e.ep != nil {
		errs = append(errs, e.ep.Free())
	}
	if e.evd != nil {
		errs = append(errs, e.evd.Teardown(context.Background()), e.evd.Free())
	}
	if e.conn != nil {
		errs = append(errs, e.conn.Free())
	}
	return errors.Join(errs...)
}

// finish ends the role, once. Only what drives the end calls it.
func (e *End) finish(err error) {
	if !e.finished {
		e.finished, e.err = true, err
		close(e.done)
	}
}

// interrupt makes a requester come to its end.
func (e *End) interrupt() {
	e.cut.Store(true)
	e.stop.Store(true)
}

// established waits for the outcome of a set-up.
func (e *End) established(ctx context.Context) (dat.ConnectionData, error) {
	ev, _, err := e.conn.Wait(ctx, 1, setUpTimeout)
	if err != nil {
		return dat.ConnectionData{}, err
	}
	c := ev.Connection()
	if ev.Number != dat.ConnectionEstablished {
		return c, &ConnectionError{Event: ev.Number, Reason: reason(ev.Number, c.PrivateData), Cause: c.Cause}
	}
	return c, nil
}

// start begins upcalls, if the end has them.
func (e *End) start() error {
	if e.completion != Upcall {
		return nil
	}
	return e.evd.ModifyUpcall(dat.UpcallSingleInstance, nil, dat.InvocAny)
}

// reason is what the private data of a rejection says.
func reason(n dat.EventNumber, private []byte) string {
	if n != dat.ConnectionPeerRejected {
		return ""
	}
	text, _, _ := strings.Cut(string(private), "\x00") // transports pad with zeros
	return text
}

// Connect connects a requester to the listener at an address and connection qualifier.
func (h *Host) Connect(ctx context.Context, addr netip.Addr, qual uint64, spec Spec, completion Completion) (_ *End, err error) {
	if spec, err = spec.plan(); err != nil {
		return nil, err
	}
	spec.salt = rand.Uint64()
	e, err := h.newEnd(spec, completion)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	var r interface {
		role
		connected(dat.RMRTriplet)
	} = &streamer{requester: requester{End: e}}
	if spec.pingPong() {
		r = &pinger{requester: requester{End: e}}
	}
	e.role = r
	if err := r.prepare(); err != nil {
		return nil, err
	}
	if err := e.ep.Connect(addr, qual, dat.ConnectConfig{Timeout: setUpTimeout, PrivateData: (&request{spec, completion}).encode()}); err != nil {
		return nil, err
	}
	c, err := e.established(ctx)
	if err != nil {
		return nil, err
	}
	peer, err := decodeAccept(c.PrivateData)
	if err != nil {
		return nil, err
	}
	r.connected(peer)
	if err := e.start(); err != nil {
		return nil, err
	}
	return e, nil
}
