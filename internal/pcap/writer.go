package pcap

import (
	"bufio"
	"encoding/binary"
	"io"
	"sync"
	"time"
)

// Dir is a packet's direction, seen from the device that captures.
type Dir uint8

// The two directions; the values are those of pcapng's packet flags.
const (
	Received Dir = 1
	Sent     Dir = 2
)

// Writer writes a pcapng file with one Ethernet interface and time stamps in
// nanoseconds. Its methods, and those of its connections, may be called by
// several goroutines; each writes whole packets under one lock and blocks as long
// as the underlying writer does. The first error stops all further writing and is
// what Flush returns from then on.
type Writer struct {
	mu    sync.Mutex
	w     *bufio.Writer
	buf   []byte // one block, reused
	conns uint32 // connections begun
	err   error
}

// NewWriter starts a file; application is noted in it as its writer. The file
// header is written with the first Flush or when the buffer fills.
func NewWriter(w io.Writer, application string) *Writer {
	pw := &Writer{w: bufio.NewWriterSize(w, 64<<10)}
	le := binary.LittleEndian

	b := beginBlock(nil, blockSection)
	b = le.AppendUint32(b, byteOrderMagic)
	b = le.AppendUint32(b, 1)          // version 1.0
	b = le.AppendUint64(b, ^uint64(0)) // section length unknown
	b = appendOption(b, optionUserAppl, application)
	b = le.AppendUint32(b, optionEnd)
	b = endBlock(b)
	pw.write(b)

	b = beginBlock(b[:0], blockInterface)
	b = le.AppendUint16(b, uint16(LinkEthernet))
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, 0) // no snap length
	b = appendOption(b, optionTSResol, "\x09")
	b = le.AppendUint32(b, optionEnd)
	b = endBlock(b)
	pw.write(b)

	pw.buf = b[:0]
	return pw
}

// Flush hands everything written so far to the underlying writer. It returns the
// first error of any write since NewWriter.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.w.Flush()
	}
	return w.err
}

// packet writes one packet block: frame's headers, then n bytes of the pieces from
// offset on. w.mu is held.
func (w *Writer) packet(dir Dir, at time.Time, header []byte, pieces [][]byte, offset, n int) {
	le := binary.LittleEndian
	ts := uint64(at.UnixNano())
	size := uint32(len(header) + n)
	b := beginBlock(w.buf[:0], blockEnhanced)
	b = le.AppendUint32(b, 0) // interface
	b = le.AppendUint32(b, uint32(ts>>32))
	b = le.AppendUint32(b, uint32(ts))
	b = le.AppendUint32(b, size)
	b = le.AppendUint32(b, size)
	b = append(b, header...)
	for _, p := range pieces {
		skip := min(offset, len(p))
		take := min(n, len(p)-skip)
		b = append(b, p[skip:skip+take]...)
		offset -= skip
		n -= take
	}
	b = pad4(b)
	b = le.AppendUint16(b, optionFlags)
	b = le.AppendUint16(b, 4)
	b = le.AppendUint32(b, uint32(dir))
	b = le.AppendUint32(b, optionEnd)
	w.buf = endBlock(b)
	w.write(w.buf)
}

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
	}
}

// beginBlock starts a block in the empty slice b; endBlock closes it by filling in
// both lengths.
func beginBlock(b []byte, kind uint32) []byte {
	b = binary.LittleEndian.AppendUint32(b, kind)
	return binary.LittleEndian.AppendUint32(b, 0)
}

func endBlock(b []byte) []byte {
	n := uint32(len(b) + 4)
	binary.LittleEndian.PutUint32(b[4:], n)
	return binary.LittleEndian.AppendUint32(b, n)
}

func appendOption(b []byte, code uint16, value string) []byte {
	value = value[:min(len(value), 1<<10)]
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))
	return pad4(append(b, value...))
}

func pad4(b []byte) []byte { return append(b, "\x00\x00\x00"[:-len(b)&3]...) }
