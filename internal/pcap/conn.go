package pcap

import (
	"encoding/binary"
	"net/netip"
	"time"
)

const (
	etherHeader = 14
	ip4Header   = 20
	ip6Header   = 40
	tcpHeader   = 20
	// maxSegment is the most TCP payload in one packet: an IPv4 datagram ends at
	// 65,535 bytes, and a larger FPDU than this does not exist without siw's GSO.
	maxSegment = 65535 - ip4Header - tcpHeader
	// The window scale of the SYNs, so that no dissector finds a window exceeded.
	windowScale = 14
	window      = 0xFFFF

	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagPSH = 0x08
	flagACK = 0x10
)

// Conn writes one connection's byte streams as TCP packets. See [Writer] for
// locking and errors.
type Conn struct {
	w     *Writer
	ends  [2]end // of the local and of the remote side
	v6    bool
	ident uint16
	limit int // payload of one packet
	hdr   [etherHeader + ip6Header + tcpHeader + 8]byte
}

type end struct {
	addr [16]byte
	port uint16
	next uint32 // the next sequence number this side sends
}

// Conn adds a connection to the file and writes the three packets of its TCP
// handshake, all at the same time; opener says which side dialled. Addresses of
// different families are both written as IPv6; an invalid address as ::.
func (w *Writer) Conn(at time.Time, opener Dir, local, remote netip.AddrPort) *Conn {
	la, ra := local.Addr().Unmap(), remote.Addr().Unmap()
	c := &Conn{w: w, v6: !la.Is4() || !ra.Is4(), limit: maxSegment}
	for i, a := range []netip.Addr{la, ra} {
		if a.IsValid() {
			c.ends[i].addr = a.As16()
		}
	}
	c.ends[0].port, c.ends[1].port = local.Port(), remote.Port()
	w.mu.Lock()
	defer w.mu.Unlock()
	// Sequence numbers of its own, so that a connection with the addresses of an
	// earlier one is not taken for its repetition.
	w.conns++
	c.ends[0].next = w.conns * 0x9E3779B1
	c.ends[1].next = ^c.ends[0].next
	answer := Sent + Received - opener
	c.segment(at, opener, flagSYN, nil, 0, 0)
	c.segment(at, answer, flagSYN|flagACK, nil, 0, 0)
	c.segment(at, opener, flagACK, nil, 0, 0)
	return c
}

// Data writes the bytes of the pieces, one after the other, as they went through
// the stream in one direction; a new packet begins with each call, and another one
// every 65,495 bytes, or the limit that Limit set. No bytes, no packet. The pieces are not kept.
func (c *Conn) Data(at time.Time, dir Dir, pieces ...[]byte) {
	total := 0
	for _, p := range pieces {
		total += len(p)
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for off := 0; off < total; {
		n := min(total-off, c.limit)
		c.segment(at, dir, flagACK|flagPSH, pieces, off, n)
		off += n
	}
}

// Limit makes packets of data that follow smaller than they need be: 1 to 65,495 bytes of payload.
func (c *Conn) Limit(payload int) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.limit = min(max(payload, 1), maxSegment)
}

// FIN notes the orderly end of one direction.
func (c *Conn) FIN(at time.Time, dir Dir) { c.control(at, dir, flagFIN|flagACK) }

// RST notes that the connection was reset by the side that dir names as sender.
func (c *Conn) RST(at time.Time, dir Dir) { c.control(at, dir, flagRST|flagACK) }

func (c *Conn) control(at time.Time, dir Dir, flags byte) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.segment(at, dir, flags, nil, 0, 0)
}

// segment writes one TCP segment with n bytes of the pieces from offset on.
func (c *Conn) segment(at time.Time, dir Dir, flags byte, pieces [][]byte, offset, n int) {
	from, to := &c.ends[0], &c.ends[1]
	if dir == Received {
		from, to = to, from
	}
	be := binary.BigEndian
	c.ident++

	// Locally administered MAC addresses that tell the two sides apart.
	b := append(c.hdr[:0], 2, 0, 0, 0, 0, byte(3-dir), 2, 0, 0, 0, 0, byte(dir))
	tcpLen := tcpHeader + n
	if flags&flagSYN != 0 {
		tcpLen += 8
	}
	var pseudo uint32 // sum of the pseudo header (RFC 9293 section 3.1)
	if c.v6 {
		b = be.AppendUint16(b, 0x86DD)
		b = append(b, 0x60, 0, 0, 0)
		b = be.AppendUint16(b, uint16(tcpLen))
		b = append(b, 6, 64)
		b = append(b, from.addr[:]...)
		b = append(b, to.addr[:]...)
		pseudo = sum(0, b[etherHeader+8:etherHeader+ip6Header])
	} else {
		b = be.AppendUint16(b, 0x0800)
		b = append(b, 0x45, 0)
		b = be.AppendUint16(b, uint16(ip4Header+tcpLen))
		b = be.AppendUint16(b, c.ident)
		b = append(b, 0x40, 0, 64, 6, 0, 0) // don't fragment
		b = append(b, from.addr[12:]...)
		b = append(b, to.addr[12:]...)
		pseudo = sum(0, b[etherHeader+12:etherHeader+ip4Header])
		be.PutUint16(b[etherHeader+10:], fold(sum(0, b[etherHeader:etherHeader+ip4Header])))
	}
	tcp := len(b)
	b = be.AppendUint16(b, from.port)
	b = be.AppendUint16(b, to.port)
	b = be.AppendUint32(b, from.next)
	ack := to.next
	if flags&flagACK == 0 {
		ack = 0
	}
	b = be.AppendUint32(b, ack)
	b = append(b, byte((tcpLen-n)/4)<<4, flags)
	b = be.AppendUint16(b, window)
	b = append(b, 0, 0, 0, 0)
	if flags&flagSYN != 0 {
		b = append(b, 2, 4, maxSegment>>8, maxSegment&0xFF, 1, 3, 3, windowScale)
	}

	// The checksum is a sum of 16-bit words, so a piece of odd length moves the
	// bytes of the following one to the other half of their words.
	s := sum(pseudo+6+uint32(tcpLen), b[tcp:])
	odd := false
	skip, left := offset, n
	for _, p := range pieces {
		k := min(skip, len(p))
		skip -= k
		p = p[k:]
		p = p[:min(left, len(p))]
		left -= len(p)
		part := uint32(^fold(sum(0, p)))
		if odd {
			part = part>>8 | part&0xFF<<8
		}
		s += part
		odd = odd != (len(p)&1 == 1)
	}
	be.PutUint16(b[tcp+16:], fold(s))

	c.w.packet(dir, at, b, pieces, offset, n)
	from.next += uint32(n)
	if flags&(flagSYN|flagFIN) != 0 {
		from.next++
	}
}

// sum adds the 16-bit words of b to s (RFC 1071); fold makes the checksum of it.
func sum(s uint32, b []byte) uint32 {
	t := uint64(s)
	for len(b) >= 4 {
		t += uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		t += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		t += uint64(b[0]) << 8
	}
	for t > 0xFFFF {
		t = t>>16 + t&0xFFFF
	}
	return uint32(t)
}

func fold(s uint32) uint16 {
	for s > 0xFFFF {
		s = s>>16 + s&0xFFFF
	}
	return ^uint16(s)
}
