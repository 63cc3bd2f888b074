package mpa

// Event is what [Deframer.Next] came to.
type Event uint8

// The events, in the order of an FPDU.
const (
	// More: everything was consumed, and there is nothing to report.
	More Event = iota
	// Start: the ULPDU_Length is known; see [Deframer.ULPDULen].
	Start
	// Data: the next bytes of the ULPDU, not yet covered by a verified CRC.
	Data
	// End: the FPDU is complete, and its CRC and markers are right.
	End
)

// Step is one result of [Deframer.Next].
type Step struct {
	Event Event
	N     int    // bytes consumed
	Data  []byte // with Data: the last bytes of what was consumed, not a copy
}

// Deframer takes the byte stream of one direction apart, split in any way, with
// markers and without. It copies nothing: ULPDU bytes come as slices of the input.
// Its zero value takes a stream without markers and does not check CRCs.
//
// A reader that knows where the payload goes reads up to [Deframer.Run] bytes
// straight to their place and then passes these same bytes to Next.
type Deframer struct {
	CRC     bool
	Markers bool // set before the first byte, then never changed

	pos    uint32 // stream bytes since full operation began, modulo 2^32
	start  uint32 // position of the current FPDU's ULPDU_Length
	phase  phase
	have   uint8 // bytes of the length, of the pad or of the CRC that have come
	field  [CRCLen]byte
	mark   [MarkerLen]byte
	askew  bool // a marker of this FPDU points elsewhere
	size   int  // ULPDU_Length
	offset int  // ULPDU bytes reported
	crc    uint32
	err    error
}

type phase uint8

const (
	inLength phase = iota
	inULPDU
	inPad
	inCRC
)

// Next consumes bytes of p up to the next event. It is called again with the rest
// of p, until it returns [More]; More consumes everything.
//
// [ErrCRC] and [ErrMarker] are final: RFC 5044 section 8 forbids to deliver
// anything more of this direction, and Next repeats the error. With CRC on,
// markers are judged once the CRC has been found right (section 8, code 3).
func (d *Deframer) Next(p []byte) (Step, error) {
	if d.err != nil {
		return Step{}, d.err
	}
	n := 0
	for {
		if d.inMarker() && n < len(p) {
			n += d.takeMarker(p[n:])
			if d.err != nil {
				return Step{N: n}, d.err
			}
			continue
		}
		switch d.phase {
		case inLength:
			k := d.take(p[n:], LengthLen)
			if n += k; d.have < LengthLen {
				return Step{N: n}, nil
			}
			d.phase, d.have, d.offset = inULPDU, 0, 0
			d.size = ULPDULen([LengthLen]byte(d.field[:]))
			return Step{Event: Start, N: n}, nil
		case inULPDU:
			if run := min(d.Run(), len(p)-n); run > 0 {
				data := p[n : n+run : n+run]
				d.cover(data)
				d.offset += run
				return Step{Event: Data, N: n + run, Data: data}, nil
			}
			if d.offset < d.size {
				return Step{N: n}, nil
			}
			d.phase = inPad
		case inPad:
			// No marker can stand inside the pad, but one may follow it.
			pad := PadLen(d.size)
			n += d.take(p[n:], pad)
			if int(d.have) < pad {
				return Step{N: n}, nil
			}
			d.phase, d.have = inCRC, 0
		case inCRC:
			if n == len(p) {
				return Step{N: n}, nil
			}
			k := copy(d.field[d.have:], p[n:])
			d.have += uint8(k)
			d.pos += uint32(k)
			if n += k; d.have == CRCLen {
				if err := d.finish(); err != nil {
					return Step{N: n}, err
				}
				return Step{Event: End, N: n}, nil
			}
		}
	}
}

// finish judges the FPDU and gets ready for the next one.
func (d *Deframer) finish() error {
	switch {
	case d.CRC && d.crc != ReadCRC(d.field):
		d.err = ErrCRC
	case d.askew:
		d.err = ErrMarker
	}
	d.phase, d.have, d.crc = inLength, 0, 0
	return d.err
}

// take collects bytes of the length or the pad, up to n in all.
func (d *Deframer) take(p []byte, n int) int {
	if d.phase == inLength && d.have == 0 {
		d.start = d.pos
	}
	k := min(n-int(d.have), len(p))
	copy(d.field[d.have:], p[:k])
	d.have += uint8(k)
	d.cover(p[:k])
	return k
}

// cover counts p as bytes of the stream that the CRC covers.
func (d *Deframer) cover(p []byte) {
	if d.CRC {
		d.crc = UpdateCRC(d.crc, p)
	}
	d.pos += uint32(len(p))
}

// inMarker reports whether the next byte of the stream belongs to a marker.
func (d *Deframer) inMarker() bool { return d.Markers && d.pos&(MarkerInterval-1) < MarkerLen }

// takeMarker collects and judges a marker.
func (d *Deframer) takeMarker(p []byte) int {
	at := d.pos & (MarkerInterval - 1)
	k := copy(d.mark[at:], p)
	d.cover(p[:k])
	if d.inMarker() {
		return k
	}
	want := uint16(0) // between two FPDUs; no marker stands inside the length
	if d.phase != inLength {
		want = uint16(d.pos - MarkerLen - d.start)
	}
	if FPDUPtr(d.mark) != want {
		d.askew = true
		if !d.CRC {
			d.err = ErrMarker
		}
	}
	return k
}

// ULPDULen is the ULPDU_Length of the FPDU that Start announced.
func (d *Deframer) ULPDULen() int { return d.size }

// Offset is how many bytes of the ULPDU have been reported, the last Data included.
func (d *Deframer) Offset() int { return d.offset }

// Run is how many bytes of the current ULPDU come next in the stream, before its
// end or a marker; 0 outside of a ULPDU.
func (d *Deframer) Run() int {
	if d.phase != inULPDU || d.inMarker() {
		return 0
	}
	run := d.size - d.offset
	if d.Markers {
		run = min(run, untilMarker(d.pos))
	}
	return run
}

// AtBoundary reports whether the stream may end here: between two FPDUs, with no
// byte of the second one, nor of a marker that belongs to it.
func (d *Deframer) AtBoundary() bool {
	at := d.pos & (MarkerInterval - 1)
	marker := d.Markers && at > 0 && at <= MarkerLen // the last bytes were one's
	return d.err == nil && d.phase == inLength && d.have == 0 && !marker
}
