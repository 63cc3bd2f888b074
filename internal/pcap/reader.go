package pcap

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"time"
)

// Packet is one captured packet.
type Packet struct {
	Time    time.Time // to the file's resolution; zero where the file has none
	Link    LinkType
	Data    []byte // the captured bytes; valid until the next call of Next
	OrigLen int    // the packet's length on the wire
}

// Reader reads a capture from its beginning. It is used by one goroutine.
type Reader struct {
	r       *bufio.Reader
	order   binary.ByteOrder
	buf     []byte
	offset  int64
	ng      bool
	classic iface   // of a pcap file
	ifaces  []iface // of the current section of a pcapng file
}

type iface struct {
	link    LinkType
	snap    uint32
	perSec  uint64 // time stamp units per second
	offsets int64  // seconds to add
}

// NewReader reads the file header and tells pcap from pcapng by it, in either
// byte order. The error is [ErrFormat] or r's own.
func NewReader(r io.Reader) (*Reader, error) {
	rd := &Reader{r: bufio.NewReaderSize(r, 64<<10)}
	magic, err := rd.r.Peek(4)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if binary.BigEndian.Uint32(magic) == blockSection { // reads the same in both orders
		rd.ng = true
		return rd, nil
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		switch order.Uint32(magic) {
		case magicMicro:
			rd.classic.perSec = 1e6
		case magicNano:
			rd.classic.perSec = 1e9
		default:
			continue
		}
		rd.order = order
	}
	if rd.order == nil {
		return nil, fmt.Errorf("%w: magic % x", ErrFormat, magic)
	}
	h, err := rd.read(24)
	if err != nil {
		return nil, rd.truncated(err)
	}
	rd.classic.link = LinkType(rd.order.Uint32(h[20:]))
	return rd, nil
}

// Next returns the next packet, and io.EOF behind the last one. A file that ends
// inside a record gives io.ErrUnexpectedEOF; one that contradicts itself,
// [ErrFormat].
func (r *Reader) Next() (Packet, error) {
	if r.ng {
		return r.nextBlock()
	}
	h, err := r.read(16)
	if err != nil {
		return Packet{}, err
	}
	sec, sub := r.order.Uint32(h), r.order.Uint32(h[4:])
	n, orig := r.order.Uint32(h[8:]), r.order.Uint32(h[12:])
	if n > maxBlock || orig > math.MaxInt32 {
		return Packet{}, r.malformed("record of %d bytes", n)
	}
	data, err := r.read(int(n))
	if err != nil {
		return Packet{}, r.truncated(err)
	}
	ts := uint64(sec)*r.classic.perSec + uint64(sub)
	return Packet{r.classic.time(ts), r.classic.link, data, int(orig)}, nil
}

func (r *Reader) nextBlock() (Packet, error) {
	for {
		kind, body, err := r.block()
		if err != nil {
			return Packet{}, err
		}
		switch kind {
		case blockInterface:
			if err := r.addInterface(body); err != nil {
				return Packet{}, err
			}
		case blockEnhanced:
			return r.enhanced(body)
		case blockSimple:
			return r.simple(body)
		}
	}
}

// block reads one block and returns its body, without header and trailing length.
func (r *Reader) block() (kind uint32, body []byte, err error) {
	h, err := r.r.Peek(12)
	if err != nil {
		if len(h) > 0 {
			err = r.truncated(io.EOF)
		}
		return 0, nil, err
	}
	if binary.BigEndian.Uint32(h) == blockSection {
		r.ifaces = r.ifaces[:0]
		switch {
		case binary.LittleEndian.Uint32(h[8:]) == byteOrderMagic:
			r.order = binary.LittleEndian
		case binary.BigEndian.Uint32(h[8:]) == byteOrderMagic:
			r.order = binary.BigEndian
		default:
			return 0, nil, r.malformed("byte-order magic % x", h[8:])
		}
	}
	kind = r.order.Uint32(h)
	n := r.order.Uint32(h[4:])
	if n < 12 || n%4 != 0 || n > maxBlock {
		return 0, nil, r.malformed("block length %d", n)
	}
	b, err := r.read(int(n))
	if err != nil {
		return 0, nil, r.truncated(err)
	}
	if tail := r.order.Uint32(b[n-4:]); tail != n {
		return 0, nil, r.malformed("block lengths %d and %d", n, tail)
	}
	return kind, b[8 : n-4], nil
}

func (r *Reader) addInterface(b []byte) error {
	if len(b) < 8 || len(r.ifaces) >= maxInterfaces {
		return r.malformed("interface block of %d bytes", len(b))
	}
	f := iface{link: LinkType(r.order.Uint16(b)), snap: r.order.Uint32(b[4:]), perSec: 1e6}
	for opts := b[8:]; len(opts) >= 4; {
		code, n := r.order.Uint16(opts), int(r.order.Uint16(opts[2:]))
		padded := 4 + (n+3)&^3
		if code == optionEnd || padded > len(opts) {
			break
		}
		v := opts[4 : 4+n]
		switch {
		case code == optionTSResol && n == 1:
			f.perSec = 0 // stays so if the resolution cannot be held in 64 bits
			if e := v[0] & 0x7F; v[0]&0x80 != 0 && e < 64 {
				f.perSec = 1 << e
			} else if v[0]&0x80 == 0 && e < 20 {
				f.perSec = 1
				for range e {
					f.perSec *= 10
				}
			}
		case code == optionTSOffset && n == 8:
			f.offsets = int64(r.order.Uint64(v))
		}
		opts = opts[padded:]
	}
	r.ifaces = append(r.ifaces, f)
	return nil
}

func (r *Reader) enhanced(b []byte) (Packet, error) {
	if len(b) < enhancedHeader-8 {
		return Packet{}, r.malformed("packet block of %d bytes", len(b))
	}
	id, n := r.order.Uint32(b), r.order.Uint32(b[12:])
	ts := uint64(r.order.Uint32(b[4:]))<<32 | uint64(r.order.Uint32(b[8:]))
	orig := r.order.Uint32(b[16:])
	if uint64(id) >= uint64(len(r.ifaces)) || uint64(n) > uint64(len(b)-20) || orig > math.MaxInt32 {
		return Packet{}, r.malformed("packet of %d bytes on interface %d", n, id)
	}
	f := &r.ifaces[id]
	return Packet{f.time(ts), f.link, b[20 : 20+n], int(orig)}, nil
}

func (r *Reader) simple(b []byte) (Packet, error) {
	if len(b) < 4 || len(r.ifaces) == 0 {
		return Packet{}, r.malformed("simple packet block of %d bytes", len(b))
	}
	f := &r.ifaces[0]
	orig := r.order.Uint32(b)
	n := orig
	if f.snap != 0 {
		n = min(n, f.snap)
	}
	if uint64(n) > uint64(len(b)-4) || orig > math.MaxInt32 {
		return Packet{}, r.malformed("simple packet of %d bytes", n)
	}
	return Packet{Link: f.link, Data: b[4 : 4+n], OrigLen: int(orig)}, nil
}

// time turns a count of time stamp units into a time.
func (f *iface) time(ts uint64) time.Time {
	if f.perSec == 0 {
		return time.Time{}
	}
	sec, sub := int64(ts/f.perSec)+f.offsets, ts%f.perSec
	if 1e9%f.perSec == 0 {
		return time.Unix(sec, int64(sub*(1e9/f.perSec)))
	}
	return time.Unix(sec, int64(float64(sub)/float64(f.perSec)*1e9))
}

// read returns the next n bytes in the reader's own buffer, or io.EOF before the
// first of them.
func (r *Reader) read(n int) ([]byte, error) {
	if cap(r.buf) < n {
		// Grow with what is really there: n is only a claim of the file.
		r.buf = make([]byte, 0, min(n, 64<<10))
	}
	b := r.buf[:0]
	for len(b) < n {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		k, err := r.r.Read(b[len(b):min(n, cap(b))])
		b = b[:len(b)+k]
		r.offset += int64(k)
		if err != nil {
			if err == io.EOF && len(b) > 0 && len(b) < n {
				err = io.ErrUnexpectedEOF
			}
			if len(b) < n {
				r.buf = b
				return nil, err
			}
		}
	}
	r.buf = b
	return b, nil
}

func (r *Reader) malformed(format string, args ...any) error {
	return fmt.Errorf("%w near byte %d: %s", ErrFormat, r.offset, fmt.Sprintf(format, args...))
}

// truncated turns the end of the file inside a record into an error that says so.
func (r *Reader) truncated(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("pcap: after byte %d: %w", r.offset, err)
}
