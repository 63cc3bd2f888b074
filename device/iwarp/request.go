package iwarp

import (
	"io"
	"sync"
	"time"

	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/internal/netio"
	"kdapl/verbs"
)

// request is a peer's wish to connect. It implements [verbs.ConnRequest].
type request struct {
	lis     *listener
	c       *conn
	frame   mpa.Startup
	in, out int

	// mu serializes the answers.
	mu       sync.Mutex
	answered bool
	accepted bool // the connection is a QP's
	gone     bool // the peer gave up, or broke the rules
	reply    []byte
}

// PrivateData implements [verbs.ConnRequest].
func (r *request) PrivateData() []byte { return r.frame.ULPData() }

// Local implements [verbs.ConnRequest].
func (r *request) Local() verbs.Address { return r.c.local }

// Remote implements [verbs.ConnRequest].
func (r *request) Remote() verbs.Address { return r.c.remote }

// ReadsIn implements [verbs.ConnRequest].
func (r *request) ReadsIn() int { return r.in }

// ReadsOut implements [verbs.ConnRequest].
func (r *request) ReadsOut() int { return r.out }

// RemoteQP implements [verbs.ConnRequest]; there are no UD QPs.
func (r *request) RemoteQP() (qpn, qkey uint32, ud bool) { return 0, 0, false }

func (r *request) isGone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone
}

// answerable says why the request cannot be answered any more. The caller holds mu.
func (r *request) answerable() error {
	switch {
	case r.answered:
		return verbs.ErrState
	case r.gone:
		return verbs.ErrPeerGone
	}
	return nil
}

// guard watches the connection until the request is answered: nothing may come before the answer but
// the peer's end. Afterwards it becomes the waiter of an accepted connection, or awaits the peer's
// end of a declined one.
func (r *request) guard() {
	c := r.c
	for {
		c.nc.WaitReadable()
		r.mu.Lock()
		switch {
		case r.accepted:
			r.mu.Unlock()
			if c.rx.take() { // input, which is processed here: what waits for more is a goroutine of its own
				c.receiver()
			} else {
				c.waiter()
			}
			return
		case r.answered:
			r.mu.Unlock()
			r.linger()
			return
		}
		var b [1]byte
		_, err := c.nc.TryReadv([][]byte{b[:]})
		if err == netio.ErrWouldBlock {
			r.mu.Unlock()
			continue
		}
		// The end, or stray bytes (RFC 5044 section 7.1.2: no FPDU before the reply).
		r.gone = true
		r.mu.Unlock()
		r.lis.settle(r)
		c.nc.Close()
		return
	}
}

// linger sends the answer to a declined request and waits for the peer's end, so that the answer gets
// there.
func (r *request) linger() {
	nc := r.c.nc
	end := time.Now().Add(r.lis.drv.cfg.Linger)
	nc.SetReadDeadline(end)
	nc.SetWriteDeadline(end)
	err := writeAll(nc, r.reply)
	if err == nil {
		err = nc.CloseWrite()
	}
	var b [512]byte
	for err == nil {
		if _, err = nc.TryReadv([][]byte{b[:]}); err == netio.ErrWouldBlock {
			err = nc.WaitReadable()
		}
	}
	if err == io.EOF {
		nc.Close()
	} else {
		nc.Abort()
	}
}

// Accept implements [verbs.ConnRequest].
func (r *request) Accept(vq verbs.QP, p verbs.ConnParams) error {
	q, ok := vq.(*softnic.QP)
	if !ok || q.Context() != r.lis.ctx {
		return verbs.ErrInvalid
	}
	if err := q.Context().CheckParams(&p); err != nil {
		return err
	}
	c := r.c
	r.mu.Lock()
	if err := r.answerable(); err != nil {
		r.mu.Unlock()
		return err
	}
	local := r.lis.drv.responder(&p)
	header, res, err := local.Answer(r.frame.Header())
	if err != nil {
		r.mu.Unlock()
		return verbs.ErrInvalid
	}
	reply, err := mpa.AppendStartup(nil, mpa.Reply, header, p.PrivateData)
	if err != nil {
		r.mu.Unlock()
		return verbs.ErrLength
	}
	err = q.Begin(c, func() {
		c.bind(q.Wire().(*wire))
		c.agree(res)
		c.tx.held = res.RTR == 0
		c.attach()
		l := q.Lane()
		l.Lock()
		c.tx.out.room(len(reply))
		c.tx.out.b = append(c.tx.out.b, reply...)
		l.Unlock()
		if res.RTR != 0 {
			c.drv.starting.add(c)
		}
	})
	if err != nil {
		r.mu.Unlock()
		return err
	}
	r.answered, r.accepted = true, true
	c.wmu.Lock()
	c.watched = true // the guard
	c.wmu.Unlock()
	r.mu.Unlock()
	r.lis.settle(r)
	if res.RTR == 0 {
		q.Establish(c, c.established(nil), nil)
	}
	c.push()
	return nil
}

// Reject implements [verbs.ConnRequest].
func (r *request) Reject(privateData []byte) error {
	if len(privateData) > r.lis.ctx.Attr().MaxPrivateData {
		return verbs.ErrLength
	}
	local := r.lis.drv.responder(&verbs.ConnParams{ReadsIn: r.in, ReadsOut: r.out})
	header, _ := local.Reject(r.frame.Header())
	reply, err := mpa.AppendStartup(nil, mpa.Reply, header, privateData)
	if err != nil {
		return verbs.ErrLength
	}
	return r.decline(reply)
}

// Refuse implements [verbs.ConnRequest]: the connection is closed without a reply.
func (r *request) Refuse() error { return r.decline(nil) }

func (r *request) decline(reply []byte) error {
	r.mu.Lock()
	if err := r.answerable(); err != nil {
		r.mu.Unlock()
		return err
	}
	r.answered, r.reply = true, reply
	r.c.nc.SetReadDeadline(time.Unix(1, 0)) // calls the guard back
	r.mu.Unlock()
	r.lis.settle(r)
	return nil
}
