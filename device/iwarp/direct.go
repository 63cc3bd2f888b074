package iwarp

import (
	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/verbs"
)

// Without CRCs nothing is won by waiting for the whole of a large FPDU: its payload is read straight to
// where it goes, in ascending order, as it arrives. The memory is looked up again for each read.

// directLen is how much of an FPDU must be outstanding for that to be worth more system calls.
const directLen = 8 << 10

// direct is an FPDU that is being read to its place.
type direct struct {
	active bool
	last   bool
	op     rdmap.Opcode
	head   [ddp.MaxHeaderLen]byte
	n      int // of the payload
	off    int // what has been placed
	skip   int // bytes of pad and CRC that are still to come behind the payload
	pieces [][]byte
}

// beginDirect starts to place the FPDU at the beginning of the buffer, of which size bytes of ULPDU are due.
// It leaves alone what is to be processed as a whole.
func (c *conn) beginDirect(size int) {
	r := &c.rx
	d := &r.direct
	u := r.buf[r.r+mpa.LengthLen : r.w]
	if r.crc || r.markers || !r.live || size-len(u) < directLen || len(u) < ddp.MaxHeaderLen {
		return
	}
	op, err := rdmap.CheckHeader(u, size)
	if err != nil {
		c.violated(err, u[:ddp.MaxHeaderLen])
		return
	}
	head := ddp.Control(u[0]).HeaderLen()
	if op != rdmap.OpWrite && op != rdmap.OpReadResponse && !op.Send() {
		return
	}
	d.op, d.n, d.off = op, size-head, 0
	d.last = ddp.Control(u[0]).Last()
	d.skip = mpa.FPDULen(size) - mpa.LengthLen - size
	copy(d.head[:], u)
	if goes, err := c.open(); err != nil {
		c.violated(err, u[:head])
		return
	} else if !goes {
		c.off()
		return
	}
	// What is there already.
	d.active = true
	p := u[head:]
	if len(p) > 0 {
		l, v, goes := c.place(len(p))
		if !goes {
			return
		}
		l.Stay()
		v.Put(0, p)
		l.Move()
		v.Release()
	}
	d.off = len(p)
	r.r = r.w
	c.off()
}

// open checks the segment's place in its message.
func (c *conn) open() (bool, error) {
	r := &c.rx
	d := &r.direct
	switch {
	case d.op == rdmap.OpWrite:
		return true, nil
	case d.op == rdmap.OpReadResponse:
		_, ok := c.onSend()
		if !ok {
			return false, nil
		}
		e := c.tx.find(false, 0)
		if e == nil {
			return true, rdmap.ErrUnrequested
		}
		h := (*ddp.Tagged)(d.head[:])
		sink := e.sink
		return true, sink.Accept(d.last, h.STag(), h.TO(), d.n)
	}
	h := (*ddp.Untagged)(d.head[:])
	if h.MSN() != r.sends.MSN() {
		return true, ddp.ErrMSN
	}
	l, ok := c.onRecv()
	if !ok {
		return false, nil
	}
	r.written = 0
	r.describe(d.op, h)
	return c.openPart(l, d.op, h, d.n)
}

// place resolves the next n bytes of the payload. It ends the connection if that cannot be done. The lane
// that it returns is held.
func (c *conn) place(n int) (l *softnic.Lane, v softnic.Vec, ok bool) {
	d := &c.rx.direct
	var verdict softnic.Verdict
	var err error
	switch {
	case d.op == rdmap.OpWrite:
		h := (*ddp.Tagged)(d.head[:])
		if l, ok = c.onRecv(); !ok {
			break
		}
		to := h.TO() + uint64(d.off)
		if d.off == 0 {
			// The whole segment must be in bounds before any of it is placed.
			if v, verdict = c.qp.WriteAt(l, h.STag(), to, uint32(d.n)); verdict == softnic.Accepted {
				v.Release()
			}
		}
		if verdict == softnic.Accepted {
			v, verdict = c.qp.WriteAt(l, h.STag(), to, uint32(n))
		}
		if ok = verdict != softnic.NotReady; verdict != softnic.Accepted {
			err = tagged(verdict, h.TO(), d.n)
		}
	case d.op == rdmap.OpReadResponse:
		if l, ok = c.onSend(); !ok {
			break
		}
		e := c.tx.find(false, 0)
		if v, verdict = c.qp.Source(l, e.pos); verdict != softnic.Accepted {
			c.qp.Fault(l, asFault(ddp.ErrLocal, nil))
			c.qp.Finish(l, e.pos, verbs.StatusLocalProtection, 0)
			err = ddp.ErrLocal
			break
		}
		d.pieces = v.Slices(d.pieces[:0], int(e.length-e.sink.Left)+d.off, n)
		v.Release()
		v = softnic.VecOfPieces(&d.pieces)
	default:
		if l, ok = c.onRecv(); !ok {
			break
		}
		h := (*ddp.Untagged)(d.head[:])
		if v, verdict = c.qp.RecvAt(l, h.MO()+uint32(d.off), uint32(n)); verdict != softnic.Accepted {
			if ok = c.qp.Receiving(); ok {
				c.qp.FailRecv(l, softnic.RecvFault)
				err = ddp.ErrLocal
			}
		}
	}
	switch {
	case !ok:
		d.active = false
		c.off()
		return nil, softnic.Vec{}, false
	case err != nil:
		d.active = false
		c.violated(err, d.head[:ddp.Control(d.head[0]).HeaderLen()])
		return nil, softnic.Vec{}, false
	}
	return l, v, true
}

// nextHead is how much is read behind a payload: its pad and CRC, and the headers of the next FPDU.
const nextHead = mpa.MaxPad + mpa.CRCLen + mpa.LengthLen + ddp.MaxHeaderLen

// receiveDirect makes one read to the place of an FPDU's payload. The bytes behind it go to the buffer, which
// is empty.
func (c *conn) receiveDirect() error {
	r := &c.rx
	d := &r.direct
	left := d.n - d.off
	l, v, ok := c.place(left)
	if !ok {
		return nil
	}
	r.r, r.w = 0, 0
	r.pieces = append(v.Slices(r.pieces[:0], 0, left), r.buf[:nextHead])
	l.Stay()
	n, err := c.nc.TryReadv(r.pieces)
	l.Move()
	clear(r.pieces)
	v.Release()
	k := min(n, left)
	d.off += k
	r.w = n - k
	c.off()
	return err
}

// finish ends an FPDU whose payload has been placed.
func (c *conn) finish() bool {
	r := &c.rx
	d := &r.direct
	d.active = false
	goes, err := true, error(nil)
	switch {
	case d.op == rdmap.OpWrite:
		r.writing += uint32(d.n)
		if d.last {
			r.written, r.writing = r.writing, 0
		}
	case d.op == rdmap.OpReadResponse:
		var l *softnic.Lane
		if l, goes = c.onSend(); goes {
			r.ask = true
			err = c.advanced(l, (*ddp.Tagged)(d.head[:]), d.n)
		}
	default:
		var l *softnic.Lane
		if l, goes = c.onRecv(); goes {
			r.describe(d.op, (*ddp.Untagged)(d.head[:]))
			goes, err = c.endPart(l, d.last, d.n)
		}
	}
	if err != nil {
		c.violated(err, d.head[:ddp.Control(d.head[0]).HeaderLen()])
		return false
	}
	if !goes {
		c.off()
	}
	return goes
}
