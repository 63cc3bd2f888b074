package perf

import (
	"encoding/binary"
	"math"

	"kdapl/dat"
)

// responder is the end that does not measure.
type responder struct {
	*End
	slots    int
	batch    int
	received int // messages; of RDMA, what the requester tells
	owed     int // messages that were received and for which no credit was sent
	unsent   int // answers and credits that are to be sent
	sent     int // answers and credits that were sent
	sending  int // those whose completion is awaited
	cpu      usage
	tally    tally
}

// Cookies of the responder's sends.
const (
	cookieAnswer = iota // answers and credits
	cookieAck
	cookieReport
)

func (r *responder) prepare() error {
	r.slots, r.batch = r.spec.slots(), r.spec.creditBatch()
	if r.spec.Op == Read || r.spec.pingPong() {
		r.fillOut(true, false)
	}
	binary.BigEndian.PutUint32(r.host.control(bufCredit), msgCredit)
	binary.BigEndian.PutUint32(r.host.control(bufCredit)[4:], uint32(r.batch))
	binary.BigEndian.PutUint32(r.host.control(bufAck), msgAck)
	binary.BigEndian.PutUint32(r.host.control(bufReport), msgReport)
	if r.spec.Op != Send { // only the messages that begin and end the measured time
		for i := range 2 {
			if err := r.ep.PostRecv(uint64(i), dat.CompletionDefault, r.host.local((bufRecv+i)*controlSize, controlLen)); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range r.slots {
		if err := r.receive(i); err != nil {
			return err
		}
	}
	return nil
}

// receive posts the i-th buffer.
func (r *responder) receive(i int) error {
	return r.ep.PostRecv(uint64(i), dat.CompletionDefault, r.host.local(r.spec.in(i), r.spec.Size))
}

func (r *responder) handle(ev *dat.Event) {
	if r.finished || ev.Number != dat.DTOCompletion {
		return
	}
	d := ev.DTO()
	var err error
	switch {
	case d.Status != dat.StatusSuccess:
		err = &CompletionError{Operation: d.Operation, Status: d.Status}
	case d.Operation != dat.OpReceive:
		switch d.Cookie {
		case cookieAnswer:
			r.sending--
			err = r.answer()
		case cookieReport:
			r.finish(nil)
		}
	case r.spec.Op != Send:
		err = r.told(&d)
	case d.Length == 0:
		err = r.end()
	default:
		err = r.message(&d)
	}
	if err != nil {
		r.finish(err)
	}
}

// message takes a message.
func (r *responder) message(d *dat.DTO) error {
	slot := r.received % r.slots
	if !r.due(d, uint64(slot), r.spec.Size) {
		return nil
	}
	if r.spec.Verify && r.received < r.spec.WarmUp {
		r.tally.warm(r.End, slot, false)
	}
	if r.received++; r.received == r.spec.WarmUp {
		r.cpu.begin()
	}
	if err := r.receive(slot); err != nil {
		return err
	}
	if r.owed++; r.owed == r.batch || r.spec.pingPong() {
		r.owed = 0
		r.unsent++
	}
	return r.answer()
}

// maxSending limits the answers and credits whose completion is awaited. A completion may come long after the
// peer has the message, and even after what it sent next.
const maxSending = controlSlots / 2

// answer sends the answers and credits that are due.
func (r *responder) answer() error {
	for r.unsent > 0 && r.sending < maxSending {
		var err error
		if r.spec.pingPong() {
			err = r.ep.PostSend(cookieAnswer, dat.CompletionDefault, r.host.local(r.spec.out(r.sent%r.slots), r.spec.Size))
		} else {
			err = r.send(cookieAnswer, bufCredit)
		}
		if err != nil {
			return err
		}
		r.unsent--
		r.sent++
		r.sending++
	}
	return nil
}

// told takes a control message of a requester that sends nothing else.
func (r *responder) told(d *dat.DTO) error {
	if !r.due(d, d.Cookie, controlLen) {
		return nil
	}
	b := r.host.control(bufRecv + int(d.Cookie))
	if binary.BigEndian.Uint32(b) == msgBegin {
		r.cpu.begin()
		return nil
	}
	r.received = int(min(binary.BigEndian.Uint64(b[8:]), math.MaxInt))
	return r.end()
}

// end ends the measurement.
func (r *responder) end() error {
	r.cpu.end()
	if err := r.send(cookieAck, bufAck); err != nil {
		return err
	}
	if r.spec.Verify && r.spec.Op != Read {
		r.tally.last(r.End, r.received, false)
	}
	r.tally.encode(r.host.control(bufReport))
	binary.BigEndian.PutUint64(r.host.control(bufReport)[32:], uint64(r.cpu.spent))
	return r.send(cookieReport, bufReport)
}

// send sends a control buffer.
func (r *responder) send(cookie uint64, buf int) error {
	return r.ep.PostSend(cookie, dat.CompletionDefault, r.host.local(buf*controlSize, controlLen))
}
