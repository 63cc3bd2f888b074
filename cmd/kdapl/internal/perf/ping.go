package perf

import "kdapl/dat"

// pinger is the requester that sends a message and waits for an answer of the same size.
type pinger struct {
	requester
	sent     int  // pings whose send is complete
	awaiting bool // a ping is due that waits for its buffer
	answers  int  // receives that have completed: answers, ack and report
}

func (p *pinger) prepare() error {
	p.init()
	for i := range p.spec.slots() {
		if err := p.receive(i); err != nil {
			return err
		}
	}
	return nil
}

func (p *pinger) connected(dat.RMRTriplet) {}

// receive posts the i-th buffer. Control messages come here too, so it has room for them.
func (p *pinger) receive(i int) error {
	return p.ep.PostRecv(uint64(i), dat.CompletionDefault, p.host.local(p.spec.in(i), p.spec.stride()))
}

func (p *pinger) handle(ev *dat.Event) {
	if p.finished {
		return
	}
	if ev.Number == dat.SoftwareEvent {
		p.advance()
		return
	}
	d := ev.DTO()
	switch {
	case p.failed(&d):
	case d.Operation == dat.OpReceive:
		p.answer(&d)
	case d.Cookie != finCookie:
		if p.due(&d, uint64(p.sent), p.spec.Size) {
			if p.sent++; p.awaiting {
				p.ping()
			}
		}
	}
}

// answer takes an answer of the responder, or a control message after the last one.
func (p *pinger) answer(d *dat.DTO) {
	end := now()
	slot := p.answers % p.spec.slots()
	p.answers++
	if p.part == closing {
		if p.due(d, uint64(slot), controlLen) {
			p.told(p.host.mem[p.spec.in(slot):][:controlLen])
		}
		return
	}
	if p.part == timing {
		p.sample(end)
	}
	if !p.due(d, uint64(slot), p.spec.Size) {
		return
	}
	if p.part == warming && p.spec.Verify {
		p.tally.warm(p.End, slot, true)
	}
	p.done++
	if err := p.receive(slot); err != nil {
		p.finish(err)
		return
	}
	p.advance()
}

// advance sends the next ping or goes to the next part. Nothing is under way.
func (p *pinger) advance() {
	for !p.more() {
		if p.next() {
			if !p.finished {
				if p.spec.Verify { // before ack and report use the buffers
					p.tally.last(p.End, p.done, true)
				}
				p.fin()
			}
			return
		}
	}
	p.ping()
}

// ping sends, as soon as the buffer's last send is complete.
func (p *pinger) ping() {
	if p.awaiting = p.posted-p.sent >= p.spec.slots(); p.awaiting {
		return
	}
	slot := p.posted % p.spec.slots()
	p.at = now()
	err := p.ep.PostSend(uint64(p.posted), dat.CompletionDefault, p.host.local(p.spec.out(slot), p.spec.Size))
	if p.posted++; err != nil {
		p.finish(err)
	}
}
