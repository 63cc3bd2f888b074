package softnic

import (
	"errors"

	"kdapl/verbs"
)

var errOverflow = errors.New("softnic: completion queue overflow")

// PD is a protection domain.
type PD struct {
	ctx  *Context
	uses int // objects in it, under the context's object lock
	gone bool
}

// usable returns why nothing can be made in the PD. The caller holds the object lock.
func (pd *PD) usable() error {
	if pd.gone {
		return verbs.ErrClosed
	}
	return pd.ctx.usable()
}

// Dealloc implements [verbs.PD].
func (pd *PD) Dealloc() error {
	c := pd.ctx
	c.obj.Lock()
	defer c.obj.Unlock()
	switch {
	case pd.gone || c.closed:
		return verbs.ErrClosed
	case pd.uses > 0:
		return verbs.ErrBusy
	}
	pd.gone = true
	delete(c.pds, pd)
	return nil
}

// CreateSRQ implements [verbs.PD].
func (pd *PD) CreateSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	c := pd.ctx
	if !c.attr.Can(verbs.CapSRQ) {
		return nil, verbs.ErrNotSupported
	}
	if in.MaxWR < 1 || in.MaxWR > c.attr.MaxSRQWR || in.MaxSGE < 0 || in.MaxSGE > c.attr.MaxSRQSGE {
		return nil, verbs.ErrInvalid
	}
	c.obj.Lock()
	defer c.obj.Unlock()
	if err := pd.usable(); err != nil {
		return nil, err
	}
	if len(c.srqs) >= c.attr.MaxSRQ {
		return nil, verbs.ErrLimit
	}
	s := &SRQ{ctx: c, pd: pd, userData: in.UserData}
	s.rq.depth, s.rq.maxSGE = uint32(in.MaxWR), uint8(in.MaxSGE)
	c.srqs[s] = struct{}{}
	pd.uses++
	return s, nil
}

// CreateQP implements [verbs.PD].
func (pd *PD) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	c := pd.ctx
	a := &c.attr
	if in.Type == verbs.UD && !a.Can(verbs.CapUD) || in.SRQ != nil && !a.Can(verbs.CapSRQ) || in.MaxInline > 0 && !a.Can(verbs.CapInline) {
		return nil, verbs.ErrNotSupported
	}
	if in.SRQ != nil {
		in.MaxRecv, in.MaxRecvSGE = 0, 0
	}
	within := func(n, limit int) bool { return n >= 0 && n <= limit }
	if in.Type > verbs.UD || !within(in.MaxSend, a.MaxQPWR) || !within(in.MaxRecv, a.MaxQPWR) ||
		!within(in.MaxSendSGE, a.MaxSendSGE) || !within(in.MaxRecvSGE, a.MaxRecvSGE) || !within(in.MaxInline, a.MaxInline) ||
		in.SendCQ == nil && in.MaxSend > 0 || in.RecvCQ == nil && (in.MaxRecv > 0 || in.SRQ != nil) {
		return nil, verbs.ErrInvalid
	}
	var ok bool
	q := newQP(pd, &in)
	if in.SendCQ != nil {
		if q.sendCQ = cqOf(in.SendCQ); q.sendCQ == nil || q.sendCQ.ctx != c {
			return nil, verbs.ErrInvalid
		}
	}
	if in.RecvCQ != nil {
		if q.recvCQ = cqOf(in.RecvCQ); q.recvCQ == nil || q.recvCQ.ctx != c {
			return nil, verbs.ErrInvalid
		}
	}
	if in.SRQ != nil {
		if q.srq, ok = in.SRQ.(*SRQ); !ok || q.srq.pd != pd {
			return nil, verbs.ErrInvalid
		}
	}
	q.num = c.qpn()
	q.wire = c.driver.NewWire(q)
	q.bell, _ = q.wire.(Doorbell)
	if err := c.addQP(q); err != nil {
		return nil, err
	}
	return q, nil
}

func (c *Context) addQP(q *QP) error {
	c.obj.Lock()
	defer c.obj.Unlock()
	if err := q.pd.usable(); err != nil {
		return err
	}
	if len(c.qps) >= c.attr.MaxQP {
		return verbs.ErrLimit
	}
	for _, cq := range []*CQ{q.sendCQ, q.recvCQ} {
		if _, there := c.cqs[cq]; cq != nil && !there {
			return verbs.ErrClosed
		}
	}
	if _, there := c.srqs[q.srq]; q.srq != nil && !there {
		return verbs.ErrClosed
	}
	if q.sendCQ != nil {
		q.sendCQ.queues++
		q.sowner, q.sknown = q.sendCQ.attach(q, nil)
	}
	var share *srqShare
	if q.srq != nil {
		q.srq.qps++
		share = q.srq.share(q.recvCQ)
		q.draw = &srqDraw{share: share}
	}
	if q.recvCQ != nil {
		q.recvCQ.queues++
		q.rowner, q.rknown = q.recvCQ.attach(q, share)
	}
	q.pd.uses++
	c.qps[q] = struct{}{}
	return nil
}
