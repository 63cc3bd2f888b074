package iwarp

import (
	"container/list"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/internal/netio"
	"kdapl/verbs"
)

// conn is one TCP connection, from the moment there is one (or the wish for one) until both
// directions have ended. It is the link of a QP for a part of that time.
//
// Three parties work on it, and none waits for another: whoever has the right to write (see tx), whoever
// has the receive token (see rx), and the QP's consumer, through the wire.
type conn struct {
	drv           *driver
	wire          *wire
	qp            *softnic.QP
	active        bool
	nc            netio.Conn
	local, remote verbs.Address
	res           mpa.Result
	reads         verbs.ConnEvent // what ConnEstablished will say of the depths

	tx tx
	rx rx

	// closing: the connection has ended for the QP. What is encoded is sent, then FIN; what comes in is
	// discarded up to the peer's FIN.
	closing atomic.Bool

	// How input is waited for.
	wmu     sync.Mutex
	watched bool // there is a waiter, or a receiver that will become one
	over    bool // nothing more is to be read
	trust   trust
	inputs  atomic.Uint64 // how often input came
	on      [2]bool
	driven  atomic.Bool // it is on a list
	lively  atomic.Bool // a poller has found something to do, lately
	feeds   [2]*feed
	polled  [2]uint64 // the feeds' polls when last looked at
	armings [2]uint64 // the feeds' armings when last looked at

	waitFn, recvFn, flushFn func()

	// The beginning and the end.
	mu              sync.Mutex
	cancel          func() // ends a set-up
	ended           bool
	inDone, outDone bool
	timer           *time.Timer   // of the end
	start           *list.Element // among those that start; under their lock
}

func newConn(d *driver, active bool) *conn {
	c := &conn{drv: d, active: active}
	c.waitFn, c.recvFn, c.flushFn = c.waiter, c.receiver, c.flusher
	return c
}

// bind makes the connection that of a QP's wire.
func (c *conn) bind(w *wire) {
	c.wire, c.qp = w, w.qp
	send, recv := w.qp.Feeds()
	if f, ok := recv.(*feed); ok {
		c.feeds[0] = f
	}
	if f, ok := send.(*feed); ok && f != c.feeds[0] {
		c.feeds[1] = f
	}
}

// agree sets the connection up as MPA's negotiation came out.
func (c *conn) agree(r mpa.Result) {
	c.res = r
	c.tx.enc = mpa.Encoder{CRC: r.CRC, Markers: r.SendMarkers}
	c.rx.init(r)
	c.tx.ird, c.tx.ord = int(r.IRD), int(r.ORD)
	c.reads.ReadsIn, c.reads.ReadsOut = int(r.IRD), int(r.ORD)
	c.resize()
}

// resize fits FPDUs to TCP's segments (RFC 5044 section 4.5).
func (c *conn) resize() {
	mss := c.nc.MSS()
	if c.res.GSO {
		mss = 1 << 20
	}
	c.tx.mulpdu = mpa.MULPDU(mss, c.tx.enc.Markers)
}

// attach lets the QP's two sides use the connection. It is called from Begin or Establish, with
// the QP's control lock held.
func (c *conn) attach() {
	l := c.qp.Lane()
	l.Lock()
	c.wire.c = c
	l.Unlock()
	l = c.qp.LockRecv()
	c.wire.rc = c
	l.Unlock()
}

// Ends implements [softnic.Link].
func (c *conn) Ends(*softnic.QP) (local, remote verbs.Address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local, c.remote
}

// Drained implements [softnic.Link]: the requests before a graceful Disconnect are encoded, and
// the connection ends when TCP has taken them.
func (c *conn) Drained(q *softnic.QP) {
	l := q.Lane()
	l.Lock()
	c.tx.drain = true
	done := c.tx.idle()
	l.Unlock()
	if done {
		q.End(c, verbs.ConnDisconnected, nil)
		return
	}
	c.push()
}

// Ended implements [softnic.Link].
func (c *conn) Ended(_ *softnic.QP, kind verbs.ConnEventKind, _ error) {
	c.mu.Lock()
	c.ended = true
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel()
		return
	}
	c.shut()
}

// end tells the QP that its connection has ended, or the passive side's set-up.
func (c *conn) end(kind verbs.ConnEventKind, err error) {
	if !c.active && c.endSetUp(err) {
		return
	}
	c.qp.End(c, kind, c.named(err))
}

// endSetUp tells the QP that the passive side's set-up has failed; false if it is over.
func (c *conn) endSetUp(err error) bool {
	return c.qp.EndSetUp(c, verbs.ConnEvent{Kind: verbs.ConnAcceptFailed, Err: c.named(err)})
}

// named says in a cause which connection it was.
func (c *conn) named(err error) error {
	if err != nil {
		err = fmt.Errorf("connection from %v to %v: %w", c.local, c.remote, err)
	}
	return err
}

// shut ends the TCP connection in an orderly way, in the background (RFC 5044 section 6, RFC 5040
// section 5.4).
func (c *conn) shut() {
	if c.closing.Swap(true) {
		return
	}
	c.drv.starting.remove(c)
	c.mu.Lock()
	if !c.inDone || !c.outDone {
		if c.timer != nil {
			c.timer.Stop()
		}
		c.timer = time.AfterFunc(c.drv.cfg.Linger, c.abort)
	}
	c.mu.Unlock()
	c.push()
	c.watch()
}

// abort resets the TCP connection.
func (c *conn) abort() {
	c.nc.Abort()
	c.done(true, true)
}

// done notes that a direction has ended, and closes the connection behind the last.
func (c *conn) done(in, out bool) {
	c.mu.Lock()
	c.inDone = c.inDone || in
	c.outDone = c.outDone || out
	both := c.inDone && c.outDone
	if both && c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	if both {
		c.nc.Close()
	}
}

// watch gives the connection a waiter for its input.
func (c *conn) watch() {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.unlist()
	if c.rx.take() { // pollers leave their buffer
		c.rx.trim()
		c.rx.give()
	}
	if !c.watched && !c.over {
		c.watched = true
		go c.waitFn()
	}
	if c.tx.pending.Load() {
		go c.resume()
	}
}

// unlist takes the connection from its feeds. The caller holds wmu.
func (c *conn) unlist() {
	c.driven.Store(false)
	for i, f := range c.feeds {
		if c.on[i] {
			c.on[i] = false
			f.unlist(c)
		}
	}
}

// release gives the connection its waiter back if none of its feeds is polled any more.
func (c *conn) release() {
	for i, f := range c.feeds {
		if f != nil && c.isOn(i) && !f.idle.Load() {
			return
		}
	}
	c.wmu.Lock()
	c.trust.deserted(c.inputs.Load())
	c.wmu.Unlock()
	c.watch()
}

func (c *conn) isOn(i int) bool {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.on[i]
}

// bench leaves the input to those who poll, and gives up the waiter. It reports false if nobody polls.
func (c *conn) bench() bool {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	n := c.inputs.Load()
	if !c.trust.granted(n) || !c.list() {
		return false
	}
	c.trust.left = n
	c.watched = false
	return true
}

// help lists the connection with those who poll, because TCP does not take at once what there is to
// send. It reports false if nobody polls.
func (c *conn) help() bool {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.list()
}

// list lists the connection with its feeds, if one of them has been polled since they were last looked at and is
// not armed: with all of them, so that a consumer that goes on to another CQ finds the connection there, be it to
// poll or to sleep. One that has gone to sleep since then counts more than one that was polled: if it is the same
// consumer, nobody polls now. The caller holds wmu.
func (c *conn) list() bool {
	polled, slept := false, c.closing.Load()
	for i, f := range c.feeds {
		if f == nil {
			continue
		}
		armings, n, armed := f.armings.Load(), f.polls.Load(), f.cq.Armed()
		slept = slept || armed && armings != c.armings[i]
		polled = polled || !armed && (c.on[i] || n != c.polled[i])
		c.armings[i], c.polled[i] = armings, n
	}
	if slept || !polled {
		c.unlist()
		return false
	}
	for i, f := range c.feeds {
		if f == nil || c.on[i] {
			continue
		}
		if !f.list(c) {
			c.unlist()
			return false
		}
		c.on[i] = true
		c.drv.ticker.follow(f)
	}
	// Who went to sleep before it was listed did not find it.
	for i, f := range c.feeds {
		slept = slept || f != nil && f.armings.Load() != c.armings[i]
	}
	if slept || c.closing.Load() {
		c.unlist()
		return false
	}
	c.driven.Store(true)
	return true
}

// waiter waits for input on a small stack and hands over to a receiver.
func (c *conn) waiter() {
	for {
		c.nc.WaitReadable() // its error is found again by the read
		if c.rx.take() {
			go c.recvFn()
			return
		}
		c.wmu.Lock()
		over := c.over
		c.wmu.Unlock()
		if over || c.bench() {
			return
		}
		yield()
	}
}

// receiver reads and processes until there is nothing more. It has the token.
func (c *conn) receiver() {
	budget := c.rx.spinBudget(c.drv.cfg.Spin)
	for idle := 0; ; {
		c.rx.here = true
		moved := c.receive()
		due := c.rx.due
		c.rx.here, c.rx.due = false, false
		if due && !c.rx.over {
			// To deliver is the last that this goroutine does.
			c.inputs.Add(1)
			c.rest()
			c.qp.DeliverEvents()
			return
		}
		if moved {
			c.inputs.Add(1)
			if c.rx.over {
				c.stopReading()
				if due {
					c.qp.DeliverEvents()
				}
				return
			}
			c.rx.spun(idle > 0)
			idle = 0
			yield() // those whom the input woke go first
			continue
		}
		if c.bench() {
			c.rx.give()
			return
		}
		if idle++; idle > budget {
			break
		}
		yield()
	}
	if budget > 0 {
		c.rx.spun(false)
	}
	c.rest()
}

// rest leaves the input to a waiter. The caller has the token.
func (c *conn) rest() {
	c.rx.trim()
	c.rx.give()
	go c.waitFn()
}

// stopReading is called by the token's holder when nothing more will be read. The token is not given
// back.
func (c *conn) stopReading() {
	c.wmu.Lock()
	c.over, c.watched = true, false
	c.unlist()
	c.wmu.Unlock()
	c.rx.drop()
	if c.rx.timer != nil {
		c.rx.timer.Stop()
	}
	c.done(true, false)
}

// progress does a poller's round.
func (c *conn) progress() (moved bool) {
	if c.tx.pending.Load() {
		moved = c.push()
	}
	if c.rx.take() {
		if c.receive() {
			c.inputs.Add(1)
			moved = true
			if c.rx.over {
				c.stopReading()
				return true
			}
		}
		c.rx.give()
	}
	return moved
}
