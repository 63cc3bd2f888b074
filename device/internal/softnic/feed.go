package softnic

import "kdapl/verbs"

// Feed is what a driver keeps of a CQ whose consumers can help it along: the connections that
// complete to it. Methods are called with no lock held.
type Feed interface {
	// Progress implements verbs.Progresser.
	Progress() bool
	// Armed tells that the CQ was armed and had nothing: the consumer will not look again before
	// it is notified.
	Armed()
}

// fedCQ is the face of a CQ with a feed.
type fedCQ struct {
	*CQ
	feed Feed
}

// Progress implements [verbs.Progresser].
func (c *fedCQ) Progress() bool { return c.feed.Progress() }

// Arm implements [verbs.CQ].
func (c *fedCQ) Arm(kind verbs.ArmKind) (ready bool) {
	if ready = c.CQ.Arm(kind); !ready {
		c.feed.Armed()
	}
	return ready
}

// cqOf finds the CQ behind what the consumer has.
func cqOf(v verbs.CQ) *CQ {
	switch c := v.(type) {
	case *CQ:
		return c
	case *fedCQ:
		return c.CQ
	}
	return nil
}

// Armed reports that the CQ is armed and has not notified since.
func (c *CQ) Armed() bool {
	t := c.lock()
	armed := c.armed != armedNot
	c.unlock(t)
	return armed
}

// face is what the consumer has of a CQ.
func (c *CQ) face() verbs.CQ {
	if c.fed != nil {
		return c.fed
	}
	return c
}

// Feeds are those of the QP's send and receive CQs, nil where there is none.
func (q *QP) Feeds() (send, recv Feed) {
	if q.sendCQ != nil && q.sendCQ.fed != nil {
		send = q.sendCQ.fed.feed
	}
	if q.recvCQ != nil && q.recvCQ.fed != nil {
		recv = q.recvCQ.fed.feed
	}
	return send, recv
}

// Doorbell is what a wire implements that gathers requests and sends them together. It is asked
// instead of Wire.Posted, also if the device is direct.
type Doorbell interface {
	// Rang is called with the lane of the send side once for each list that was posted, and starts
	// what is queued. If it returns true, Flush is called when the lane has been released.
	Rang(l *Lane) bool
	// Flush is called with no lock held, in the stack of the post.
	Flush()
}

// Queued reports, to Wire.Start, that the request is in the queue, so that it may answer Running. The
// caller holds the lane of the send side.
func (q *QP) Queued() bool { return q.sq.next != q.sq.tail }

// Busy reports that more than the last n requests are queued, running, or completed without the
// consumer having polled the completion. The caller holds the lane of the send side.
func (q *QP) Busy(n int) bool {
	if q.sendUsed() > uint32(n) {
		q.sendRecount()
	}
	return q.sendUsed() > uint32(n)
}
