package iwarp

import (
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/verbs"
)

// startup collects one start-up frame from a stream, as it comes. It does no I/O.
type startup struct {
	kind  mpa.Kind
	frame mpa.Startup // when it is whole
	b     []byte
}

// want is how many more bytes may be read without taking any that are behind the frame: none when
// the frame is whole, or is wrong.
func (s *startup) want() int {
	if s.frame != nil {
		return 0
	}
	n, err := mpa.StartupLen(s.b, s.kind)
	if err != nil {
		return 0
	}
	return n - len(s.b)
}

// feed takes bytes, at most as many as want says.
func (s *startup) feed(p []byte) error {
	s.b = append(s.b, p...)
	f, _, err := mpa.ParseStartup(s.b, s.kind)
	s.frame = f
	return err
}

// responder is the passive side's part of a negotiation.
func (d *driver) responder(p *verbs.ConnParams) mpa.Local {
	l := d.local(p)
	l.RTR = mpa.RTRWrite | mpa.RTRRead | mpa.RTRSend
	return l
}

// depths are what a request wishes, as the passive side sees it. Revision 1 says nothing of them.
func depths(h mpa.Header, attr *verbs.Attr) (in, out int) {
	in, out = attr.MaxReadsIn, attr.MaxReadsOut
	if h.HasEnhanced() {
		if h.Enhanced.ORD != mpa.NotNegotiated {
			in = int(h.Enhanced.ORD)
		}
		if h.Enhanced.IRD != mpa.NotNegotiated {
			out = int(h.Enhanced.IRD)
		}
	}
	return in, out
}
