package mpa

import (
	"encoding/binary"
	"slices"
)

// Encoder finishes the FPDUs of one direction: length, pad, markers, CRC. Its zero
// value makes FPDUs without markers and with a CRC of zero.
type Encoder struct {
	CRC     bool // compute CRCs; otherwise the field is sent as zero
	Markers bool // set before the first FPDU, then never changed

	pos uint32 // stream bytes since full operation began, modulo 2^32
}

// Begin appends the place of the ULPDU_Length, which [Encoder.Finish] fills in.
func Begin(b []byte) []byte { return append(b, 0, 0) }

// Finish completes the FPDU that begins at b[start] with [Begin], and whose ULPDU,
// 1 to [MaxULPDU] bytes, is everything behind that: it sets the length, and appends
// pad and CRC. If markers are due it inserts them, which moves the bytes behind
// them.
func (e *Encoder) Finish(b []byte, start int) []byte {
	n := len(b) - start - LengthLen
	binary.BigEndian.PutUint16(b[start:], uint16(n))
	b = append(b, zeros[:PadLen(n)]...)
	if e.Markers {
		return e.finishMarked(b, start)
	}
	var crc uint32
	if e.CRC {
		crc = UpdateCRC(0, b[start:])
	}
	return AppendCRC(b, crc)
}

var zeros [MaxPad]byte

// finishMarked makes room for the markers, back to front, then appends the CRC.
// b[start:] is the FPDU without CRC; a marker that is due between pad and CRC
// belongs to it (RFC 5044 section 4.4 rule 1).
func (e *Encoder) finishMarked(b []byte, start int) []byte {
	n := len(b) - start
	count := MarkerCount(e.pos, n+CRCLen)
	first := untilMarker(e.pos)
	b = slices.Grow(b, count*MarkerLen+CRCLen)[:len(b)+count*MarkerLen]
	fpdu := b[start:]
	lead := 0 // bytes of a marker that comes before the ULPDU_Length
	if first == 0 {
		lead = MarkerLen
	}
	end := n // of the bytes not yet moved
	for i := count - 1; i >= 0; i-- {
		at := first + i*MarkerInterval // of the marker, in the finished FPDU
		from := at - i*MarkerLen       // of the bytes that follow it, in the unmarked one
		copy(fpdu[at+MarkerLen:], fpdu[from:end])
		AppendMarker(fpdu[at:at], uint16(max(at-lead, 0)))
		end = from
	}
	var crc uint32
	if e.CRC {
		crc = UpdateCRC(0, fpdu)
	}
	b = AppendCRC(b, crc)
	e.pos += uint32(len(b) - start)
	return b
}

// FinishVec is [Encoder.Finish] for payload that is referenced, not copied: the
// FPDU consists of head, made by [Begin] and the appended headers, and of the
// payload's pieces. It sets the length in head, appends to vec the slices to send,
// in order, and to scratch the bytes of its own that some of these refer to:
// markers, pad and CRC, at most [ScratchLen].
//
// scratch needs that much spare capacity to avoid an allocation. The slices stay
// valid as long as head, payload and scratch are unchanged; what is sent must be
// what the CRC was computed over.
func (e *Encoder) FinishVec(vec [][]byte, scratch, head []byte, payload ...[]byte) (v [][]byte, s []byte) {
	n := len(head) - LengthLen
	for _, p := range payload {
		n += len(p)
	}
	binary.BigEndian.PutUint16(head, uint16(n))
	w := weaver{enc: e, vec: vec, scratch: scratch, own: -1, pos: e.pos}
	w.add(head)
	for _, p := range payload {
		w.add(p)
	}
	// A marker due behind the pad stands before the CRC and is covered by it, so
	// the two are woven in before the CRC is known.
	w.addOwn(zeros[:PadLen(n)])
	if e.Markers && untilMarker(w.pos) == 0 {
		w.marker()
	}
	w.addOwn(AppendCRC(w.tail[:0], w.crc))
	e.pos = w.pos
	return w.vec, w.scratch
}

// ScratchLen is the most scratch that [Encoder.FinishVec] uses for an FPDU with a
// ULPDU of n bytes.
func ScratchLen(n int, markers bool) int {
	if !markers {
		return MaxPad + CRCLen
	}
	return MaxPad + CRCLen + MarkerLen*(FPDULen(n)/(MarkerInterval-MarkerLen)+1)
}

// weaver cuts the parts of one FPDU where markers are due.
type weaver struct {
	enc     *Encoder
	vec     [][]byte
	scratch []byte
	own     int // where in scratch the last slice of vec begins; -1 if it is not there
	pos     uint32
	start   uint32 // position of the ULPDU_Length
	begun   bool   // start is known
	crc     uint32
	tail    [CRCLen]byte
}

// add puts p into the list, cut by markers.
func (w *weaver) add(p []byte) {
	for len(p) > 0 {
		run := len(p)
		if w.enc.Markers {
			if untilMarker(w.pos) == 0 {
				w.marker()
			}
			run = min(run, untilMarker(w.pos))
		}
		if !w.begun {
			w.start, w.begun = w.pos, true
		}
		if w.enc.CRC {
			w.crc = UpdateCRC(w.crc, p[:run])
		}
		w.vec, w.own = append(w.vec, p[:run:run]), -1
		w.pos += uint32(run)
		p = p[run:]
	}
}

// marker adds the marker that is due at w.pos.
func (w *weaver) marker() {
	ptr := uint16(0)
	if w.begun {
		ptr = uint16(w.pos - w.start)
	}
	w.addOwn(AppendMarker(w.tail[:0], ptr))
}

// addOwn copies p to scratch; what follows on another slice of scratch joins it.
// No marker is due within p: pad ends, and CRC and markers begin, at a multiple of 4.
func (w *weaver) addOwn(p []byte) {
	if len(p) == 0 {
		return
	}
	from := len(w.scratch)
	w.scratch = append(w.scratch, p...)
	if w.enc.CRC {
		w.crc = UpdateCRC(w.crc, w.scratch[from:])
	}
	if w.own < 0 {
		w.own = from
		w.vec = append(w.vec, nil)
	}
	w.vec[len(w.vec)-1] = w.scratch[w.own:]
	w.pos += uint32(len(p))
}
