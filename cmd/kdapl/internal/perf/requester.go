package perf

import (
	"encoding/binary"
	"math"
	"time"

	"kdapl/dat"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// part is the part of a measurement that a requester is in.
type part uint8

const (
	warming part = iota
	timing
	ending  // the last message has completed, the responder is to be told
	closing // it was told; its ack and report are awaited
)

// Control messages begin with their kind. Of the responder: a credit has the number of messages, a report the
// tally and the processor time. Of the requester of RDMA: the last has the number of messages.
const (
	msgCredit = 1
	msgAck    = 2
	msgReport = 3
	msgBegin  = 4
	msgEnd    = 5
)

// Cookies of the sends that begin and end the measured time.
const (
	finCookie   = math.MaxUint64
	beginCookie = finCookie - 1
)

// requester is what the two requesting roles have in common.
type requester struct {
	*End
	part   part
	posted int // messages that were posted
	done   int // messages that are complete
	first  int // the first message that is measured
	limit  int // messages to post in this part
	start  time.Duration
	at     time.Duration // when the present sample began
	timer  *time.Timer
	cost   time.Duration
	tally  tally
	cpu    usage
	result Result
}

func (r *requester) init() {
	r.cost = ClockCost()
	r.limit = r.spec.WarmUp
	r.result.Spec = r.spec
	if r.spec.Kind == Latency {
		r.result.Histogram = newHistogram()
	}
	if r.spec.Op != Read {
		r.fillOut(false, false)
	}
}

// more reports whether another message is to be posted in this part. However short the duration, there is
// one to be measured.
func (r *requester) more() bool {
	if r.posted >= r.limit {
		return false
	}
	return !r.stop.Load() || r.part == timing && r.posted == r.first && !r.cut.Load()
}

// next goes to the next part when all that was posted is complete: false if the measurement has
// messages to post.
func (r *requester) next() (ends bool) {
	if r.part == timing {
		r.clockOut()
		r.part = ending
		return true
	}
	if r.stop.Load() { // before anything was measured
		r.result.Interrupted = true
		r.finish(nil)
		return true
	}
	r.part, r.first, r.limit = timing, r.posted, math.MaxInt
	if r.spec.Messages > 0 && r.spec.Messages < math.MaxInt-r.posted {
		r.limit = r.posted + r.spec.Messages
	}
	if r.spec.Op == Write {
		r.fillOut(false, true)
	}
	if r.spec.Op != Send && !r.begin() {
		return true
	}
	r.cpu.begin()
	r.start = now()
	if r.spec.Duration > 0 {
		r.timer = time.AfterFunc(r.spec.Duration, func() { r.stop.Store(true) })
	}
	return false
}

// begin tells a responder that receives no messages that the measured time begins.
func (r *requester) begin() bool {
	binary.BigEndian.PutUint32(r.host.control(bufBegin), msgBegin)
	err := r.ep.PostSend(beginCookie, dat.CompletionDefault, r.host.local(bufBegin*controlSize, controlLen))
	if err != nil {
		r.finish(err)
	}
	return err == nil
}

// clockOut ends the time that is measured, as far as is known.
func (r *requester) clockOut() {
	r.result.Elapsed = now() - r.start
	r.cpu.end()
	r.result.Messages = r.done - r.first
	r.result.Interrupted = r.cut.Load() && r.posted < r.limit
}

// sample records the present sample, which ended at the given time.
func (r *requester) sample(end time.Duration) {
	v := end - r.at - r.cost
	// Values outside of the histogram's range are counted at its ends.
	r.result.Histogram.RecordValue(int64(min(max(v, 0), maxLatency)))
}

// fin tells the responder that the measurement is over: by an empty message or, if it receives
// nothing else, by one with the number of messages.
func (r *requester) fin() {
	r.part = closing
	if r.timer != nil {
		r.timer.Stop()
	}
	var err error
	if r.spec.Op == Send {
		err = r.ep.PostSend(finCookie, dat.CompletionDefault)
	} else {
		binary.BigEndian.PutUint32(r.host.control(bufEnd), msgEnd)
		binary.BigEndian.PutUint64(r.host.control(bufEnd)[8:], uint64(r.done))
		err = r.ep.PostSend(finCookie, dat.CompletionDefault, r.host.local(bufEnd*controlSize, controlLen))
	}
	if err != nil {
		r.finish(err)
	}
}

// told takes a control message of the responder after fin.
func (r *requester) told(b []byte) {
	switch binary.BigEndian.Uint32(b) {
	case msgAck:
		if !r.host.acked && r.spec.Kind == Throughput {
			r.clockOut() // only now is it sure that the data is there
		}
	case msgReport:
		r.report(b)
	}
}

// report takes the responder's report, and ends.
func (r *requester) report(b []byte) {
	theirs := decodeTally(b)
	if r.spec.Verify {
		if r.spec.Op == Read {
			r.tally.last(r.End, r.done, true)
		}
		r.result.Checked = r.tally.checked + theirs.checked
	}
	r.result.CPU = CPU{Requester: r.cpu.spent, Responder: time.Duration(binary.BigEndian.Uint64(b[32:]))}
	err := theirs.err("responder")
	if r.tally.bad > 0 {
		err = r.tally.err("requester")
	}
	r.finish(err)
}

// failed ends the role if the completion is a failure.
func (r *requester) failed(d *dat.DTO) bool {
	if d.Status == dat.StatusSuccess {
		return false
	}
	r.finish(&CompletionError{Operation: d.Operation, Status: d.Status})
	return true
}

// fillOut fills what the end sends.
func (e *End) fillOut(responders, timed bool) {
	for i := 0; e.spec.Verify && i < e.spec.slots(); i++ {
		fill(e.host.mem[e.spec.out(i):][:e.spec.Size], e.spec.seed(i, responders, timed))
	}
}

// due ends the role if a completion is not that of the message that is due.
func (e *End) due(d *dat.DTO, message uint64, length int) bool {
	if d.Cookie == message && int(d.Length) == length {
		return true
	}
	e.finish(&OrderError{Operation: d.Operation, Message: d.Cookie, WantMessage: message, Length: int(d.Length), WantLength: length})
	return false
}

// maxLatency is the longest latency that is told from longer ones.
const maxLatency = time.Minute

// newHistogram has a precision of three digits.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(maxLatency), 3)
}

// tally counts messages whose data was checked.
type tally struct {
	checked, bad   uint64
	buffer, offset uint32 // the first bad byte
}

// message checks the message in a buffer.
func (t *tally) message(e *End, slot int, responders, timed bool) {
	t.checked++
	at := check(e.host.mem[e.spec.in(slot):][:e.spec.Size], e.spec.seed(slot, responders, timed))
	if at < 0 {
		return
	}
	if t.bad++; t.bad == 1 {
		t.buffer, t.offset = uint32(slot), uint32(at)
	}
}

// warm checks a message of the warm-up, and clears its buffer, so that the next one must arrive to be
// found good.
func (t *tally) warm(e *End, slot int, responders bool) {
	t.message(e, slot, responders, false)
	clear(e.host.mem[e.spec.in(slot):][:e.spec.Size])
}

// last checks the last message of every buffer, of so many in all. Those of the warm-up were
// checked when they came, but for RDMA writes.
func (t *tally) last(e *End, messages int, responders bool) {
	slots := e.spec.slots()
	for m := max(0, messages-slots); m < messages; m++ {
		if timed := m >= e.spec.WarmUp; timed || e.spec.Op == Write {
			t.message(e, m%slots, responders, timed)
		}
	}
}

func (t *tally) err(by string) error {
	if t.bad == 0 {
		return nil
	}
	return &DataError{By: by, Checked: t.checked, Bad: t.bad, Buffer: t.buffer, Offset: t.offset}
}

func (t *tally) encode(b []byte) {
	binary.BigEndian.PutUint64(b[8:], t.checked)
	binary.BigEndian.PutUint64(b[16:], t.bad)
	binary.BigEndian.PutUint32(b[24:], t.buffer)
	binary.BigEndian.PutUint32(b[28:], t.offset)
}

func decodeTally(b []byte) tally {
	return tally{checked: binary.BigEndian.Uint64(b[8:]), bad: binary.BigEndian.Uint64(b[16:]),
		buffer: binary.BigEndian.Uint32(b[24:]), offset: binary.BigEndian.Uint32(b[28:])}
}
