package perf

import (
	"context"
	"errors"
	"net/netip"

	"kdapl/dat"
)

// Listener takes the connections of requesters.
type Listener struct {
	ia   *dat.IA
	host *Host // of what Accept accepts
	evd  *dat.EVD
	psp  *dat.PSP
}

// Listen makes a listener at a connection qualifier of the host's adapter; 0 is a free one.
func (h *Host) Listen(qual uint64) (*Listener, error) {
	l, err := listen(h.ia, qual)
	if l != nil {
		l.host = h
	}
	return l, err
}

func listen(ia *dat.IA, qual uint64) (*Listener, error) {
	evd, err := ia.NewEVD(dat.EVDConfig{MinLen: 64, Streams: dat.StreamConnectionRequest})
	if err != nil {
		return nil, err
	}
	psp, err := ia.NewPSP(dat.PSPConfig{EVD: evd, ConnQual: qual})
	if err != nil {
		return nil, errors.Join(err, evd.Free())
	}
	return &Listener{ia: ia, evd: evd, psp: psp}, nil
}

// Close ends the listening. Requests that nobody took are rejected.
func (l *Listener) Close() error {
	err := l.psp.Free()
	for ev := range l.evd.Drain() {
		err = errors.Join(err, ev.Request().CR.Reject([]byte("the server ends")))
	}
	return errors.Join(err, l.evd.Free())
}

// Addr is the address and connection qualifier.
func (l *Listener) Addr() (netip.Addr, uint64) { return l.ia.Address(), l.psp.ConnQual() }

// next waits for a request.
func (l *Listener) next(ctx context.Context) (*dat.CR, error) {
	ev, _, err := l.evd.Wait(ctx, 1, dat.Infinite)
	if err != nil {
		return nil, err
	}
	return ev.Request().CR, nil
}

// Accept waits for a requester and connects a responder to it, in the memory of the listener's host. A
// request that makes no sense is rejected, with the reason, and is an error.
func (l *Listener) Accept(ctx context.Context) (*End, error) {
	cr, err := l.next(ctx)
	if err != nil {
		return nil, err
	}
	req, err := asked(cr)
	if err != nil {
		return nil, errors.Join(err, refuse(cr, err, l.host.maxPrivate))
	}
	return l.host.accept(ctx, cr, req)
}

// asked is what a request asks for.
func asked(cr *dat.CR) (request, error) {
	p, err := cr.Query()
	if err != nil {
		return request{}, err
	}
	return decodeRequest(p.PrivateData)
}

// refuse rejects a request with a reason.
func refuse(cr *dat.CR, why error, maxPrivate int) error {
	text := []byte(why.Error())
	return cr.Reject(text[:min(len(text), maxPrivate)])
}

// accept connects a responder.
func (h *Host) accept(ctx context.Context, cr *dat.CR, req request) (*End, error) {
	e, err := h.newEnd(req.Spec, req.completion)
	if err == nil {
		e.role = &responder{End: e}
		if err = e.role.prepare(); err != nil {
			err = errors.Join(err, e.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(err, refuse(cr, err, h.maxPrivate))
	}
	if err := cr.Accept(e.ep, encodeAccept(h.lmr.RMRTriplet(0, len(h.mem)))); err != nil {
		return nil, errors.Join(err, cr.Reject(nil), e.Close())
	}
	_, err = e.established(ctx)
	if err == nil {
		err = e.start()
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}
