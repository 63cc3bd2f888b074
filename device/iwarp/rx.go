package iwarp

import (
	"encoding/binary"
	"io"
	"math"
	"sync/atomic"
	"time"

	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/internal/netio"
	"kdapl/verbs"
)

// rx is the receiving side of a connection. It belongs to whoever has the token.
//
// Input is read into a buffer that holds several FPDUs of any size, so every FPDU is whole, and its CRC
// found right, before anything of it is placed or acted upon.
type rx struct {
	token atomic.Uint32

	buf     *largeBuf
	r, w    int // what of buf is not processed
	vec     [1][]byte
	crc     bool
	markers bool
	deframe mpa.Deframer
	ulpdu   []byte // collected, with markers
	direct  direct
	pieces  [][]byte // of a direct read

	since  time.Time   // when the last of an incomplete FPDU came
	timer  *time.Timer // looks after it, whoever reads
	timing bool        // it is running

	live  bool // an FPDU has come, or this is the active side
	over  bool // nothing more is to be read
	lucky int8 // whether spinning has paid off lately
	here  bool // who reads is a receiver, which can deliver an event itself
	due   bool // it is to do so

	sends    ddp.RecvQueue
	requests ddp.RecvQueue
	atomics  ddp.RecvQueue
	sendOp   uint8  // opcode of the send in progress
	size     uint32 // of its receive
	writing  uint32 // bytes of the write in progress
	written  uint32 // of the last whole write, if no send came behind it

	lane *softnic.Lane // held, while processing
	ask  bool          // the send side has got something to do
	head softnic.Head  // scratch
	word [8]byte
}

func (r *rx) init(res mpa.Result) {
	r.crc, r.markers = res.CRC, res.ReceiveMarkers
	r.deframe = mpa.Deframer{CRC: res.CRC, Markers: res.ReceiveMarkers}
	r.lucky = -luck // set-ups follow each other faster if nobody spins for first messages
}

// take gets the token, if nobody has it.
func (r *rx) take() bool { return r.token.Load() == 0 && r.token.CompareAndSwap(0, 1) }

func (r *rx) give() { r.token.Store(0) }

// trim gives the buffer back if there is nothing in it.
func (r *rx) trim() {
	if r.buf != nil && r.r == r.w {
		largePool.Put(r.buf)
		r.buf, r.r, r.w = nil, 0, 0
	}
}

// drop gives the buffer back.
func (r *rx) drop() {
	r.r, r.w = 0, 0
	r.trim()
	r.ulpdu = nil
}

// luck bounds the memory of whether spinning pays.
const luck = 8

// spinBudget is how often the receiver may look in vain. Where that has not paid off, it tries again
// now and then.
func (r *rx) spinBudget(most int) int {
	if r.lucky > -luck {
		return most
	}
	r.lucky++
	return 0
}

// spun notes whether spinning found something.
func (r *rx) spun(found bool) {
	if found {
		r.lucky = luck
	} else {
		r.lucky = max(r.lucky-1, -luck-luck)
	}
}

// receive makes one read and processes what it brings. It reports whether anything happened.
func (c *conn) receive() bool {
	r := &c.rx
	if r.buf == nil {
		r.buf = largePool.Get().(*largeBuf)
	}
	if c.closing.Load() {
		return c.discard()
	}
	var err error
	if r.direct.active {
		err = c.receiveDirect()
	} else {
		var n int
		r.compact()
		r.vec[0] = r.buf[r.w:]
		n, err = c.nc.TryReadv(r.vec[:])
		r.vec[0] = nil
		r.w += n
	}
	if err != nil {
		if err == netio.ErrWouldBlock {
			return !r.since.IsZero() && c.stalled()
		}
		c.inputEnded(err)
		return true
	}
	c.consume()
	c.begun()
	return true
}

// partial reports that an FPDU has begun and is not complete.
func (r *rx) partial() bool {
	return r.r != r.w || r.direct.active || r.direct.skip > 0 || r.markers && !r.deframe.AtBoundary()
}

// begun notes whether the input ends inside an FPDU, whose rest has to come in time. Who reads now may never look again,
// so a timer does; it is not set anew for each FPDU.
func (c *conn) begun() {
	r := &c.rx
	limit := c.drv.cfg.stall()
	if limit <= 0 || !r.partial() || c.closing.Load() {
		r.since = time.Time{}
		return
	}
	r.since = time.Now()
	if r.timing {
		return
	}
	r.timing = true
	if r.timer == nil { // there before it can end
		r.timer = time.AfterFunc(math.MaxInt64, c.overdue)
	}
	r.timer.Reset(limit)
}

// stalled ends a connection whose peer does not complete an FPDU: its length may have been
// falsified on the way, so that its end never comes.
func (c *conn) stalled() bool {
	if time.Since(c.rx.since) < c.drv.cfg.stall() {
		return false
	}
	c.rx.since = time.Time{}
	c.violated(errStalled, nil)
	return true
}

// overdueRetry is when the timer looks again that has met a reader.
const overdueRetry = 10 * time.Millisecond

// overdue is the timer's.
func (c *conn) overdue() {
	r := &c.rx
	if !r.take() {
		c.wmu.Lock()
		over := c.over
		c.wmu.Unlock()
		if !over {
			r.timer.Reset(overdueRetry)
		}
		return
	}
	r.timing = false
	if !r.since.IsZero() && !c.closing.Load() {
		if rest := c.drv.cfg.stall() - time.Since(r.since); rest > 0 {
			r.timing = true
			r.timer.Reset(rest)
		} else if c.receive() {
			c.inputs.Add(1)
			if r.over {
				c.stopReading()
				return
			}
		}
	}
	r.give()
}

// compact makes room for the rest of the FPDU that has begun, and more.
func (r *rx) compact() {
	switch {
	case r.r == r.w:
		r.r, r.w = 0, 0
	case largeLen-r.r < 2*(64<<10):
		r.w = copy(r.buf[:], r.buf[r.r:r.w])
		r.r = 0
	}
}

// discard reads without processing: the connection has ended for the QP, and only the peer's end
// is awaited.
func (c *conn) discard() bool {
	r := &c.rx
	r.r, r.w = 0, 0
	r.vec[0] = r.buf[:]
	n, err := c.nc.TryReadv(r.vec[:])
	r.vec[0] = nil
	if err == netio.ErrWouldBlock {
		return false
	}
	if err != nil || n == 0 {
		r.over = true
		if err != io.EOF {
			c.done(false, true)
		}
	}
	return true
}

// inputEnded ends the connection with its input. A FIN between two FPDUs is an orderly end.
func (c *conn) inputEnded(err error) {
	r := &c.rx
	r.over = true
	switch {
	case err != io.EOF:
		c.done(true, true)
		c.end(verbs.ConnBroken, asFault(errLost, err))
	case r.partial():
		c.done(true, false)
		c.end(verbs.ConnBroken, asFault(errTruncated, nil))
	default:
		c.done(true, false)
		c.end(verbs.ConnDisconnected, nil)
	}
	c.shut()
}

// consume processes the whole FPDUs of the buffer.
func (c *conn) consume() {
	r := &c.rx
	if r.markers {
		c.consumeMarked()
	} else if !r.direct.active || r.direct.off == r.direct.n && c.finish() {
		r.skipTrailer()
		for r.r < r.w && !c.closing.Load() {
			u, n, err := mpa.Parse(r.buf[r.r:r.w], r.crc)
			if err != nil {
				c.violated(err, nil)
				break
			}
			if n > r.w-r.r {
				if size := int(binary.BigEndian.Uint16(r.buf[r.r:])); r.w-r.r > mpa.LengthLen {
					c.beginDirect(size)
				}
				break
			}
			r.r += n
			if !c.segment(u) {
				break
			}
			if n >= longFrame {
				c.off() // let others at the queues, and completions be noticed
			}
		}
	}
	c.off()
	if r.ask {
		r.ask = false
		c.push()
	}
}

// skipTrailer drops what has come of the pad and CRC of an FPDU that was read to its place.
func (r *rx) skipTrailer() {
	if d := &r.direct; d.skip > 0 {
		n := min(d.skip, r.w-r.r)
		d.skip -= n
		r.r += n
	}
}

// longFrame is the length from which an FPDU is processed with the lane to itself.
const longFrame = 8 << 10

// consumeMarked is consume for a stream with markers.
func (c *conn) consumeMarked() {
	r := &c.rx
	for !c.closing.Load() {
		s, err := r.deframe.Next(r.buf[r.r:r.w])
		r.r += s.N
		if err != nil {
			c.violated(err, nil)
			return
		}
		switch s.Event {
		case mpa.More:
			return
		case mpa.Start:
			r.ulpdu = r.ulpdu[:0]
		case mpa.Data:
			r.ulpdu = append(r.ulpdu, s.Data...)
		case mpa.End:
			if !c.segment(r.ulpdu) {
				return
			}
		}
	}
}

// hold takes a lane for processing, and gives up the other one.
func (c *conn) hold(l *softnic.Lane) {
	r := &c.rx
	if r.lane == l {
		return
	}
	c.off()
	l.Lock()
	r.lane = l
}

// off gives up the lane.
func (c *conn) off() {
	r := &c.rx
	if l := r.lane; l != nil {
		r.lane = nil
		l.Unlock()
	}
}

// onRecv takes the lane of the receive side and reports whether the connection is still the QP's there.
func (c *conn) onRecv() (*softnic.Lane, bool) {
	c.hold(&c.wire.recv)
	return &c.wire.recv, c.wire.rc == c
}

// onSend is onRecv for the send side.
func (c *conn) onSend() (*softnic.Lane, bool) {
	l := c.qp.Lane()
	c.hold(l)
	return l, c.wire.c == c && !c.tx.stopped
}

// violated ends the connection because of what the peer has sent: with a Terminate that says why
// (RFC 5040 section 7.1). ulpdu is the offending one, if it is one.
func (c *conn) violated(err error, ulpdu []byte) {
	if l, ok := c.onSend(); ok {
		c.terminate(l, err, ulpdu, len(ulpdu))
	}
	c.off()
	c.end(verbs.ConnBroken, asFault(err, nil))
	c.shut()
}
