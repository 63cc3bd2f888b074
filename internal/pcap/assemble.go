package pcap

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"slices"
)

// maxStream bounds how many bytes of one direction are put together.
const maxStream = 1 << 30

// Connection is one TCP connection of a capture.
type Connection struct {
	Client, Server netip.AddrPort // the side that sent the SYN, and the other
	ToServer       Stream
	ToClient       Stream
}

// Stream is one direction of a connection.
type Stream struct {
	Bytes  []byte // everything that was sent, once and in order
	Starts []int  // where in Bytes a TCP segment began, ascending
	FIN    bool
	RST    bool

	isn     uint32
	started bool
	pending []fragment
}

// fragment is a segment that lies beyond a gap.
type fragment struct {
	off  int
	data []byte
}

// Assemble reads the whole capture and returns its TCP connections over IPv4 and
// IPv6 in the order of their SYNs. Packets that are not TCP are passed over, as is
// what belongs to no SYN in the capture; repeated segments count once. IP
// fragments, packets cut short by the capture and gaps give [ErrMissing].
func Assemble(r *Reader) ([]*Connection, error) {
	type key struct{ from, to netip.AddrPort }
	open := map[key]*Connection{}
	var all []*Connection
	for n := 1; ; n++ {
		p, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if p.Link != LinkEthernet {
			return nil, fmt.Errorf("%w: %d in packet %d", ErrLinkType, p.Link, n)
		}
		s, ok, err := parseSegment(p.Data)
		if err != nil {
			return nil, fmt.Errorf("%w in packet %d", err, n)
		}
		if !ok {
			continue
		}
		if s.flags&(flagSYN|flagACK) == flagSYN {
			if old := open[key{s.from, s.to}]; old == nil || old.ToServer.isn != s.seq {
				c := &Connection{Client: s.from, Server: s.to}
				open[key{s.from, s.to}], all = c, append(all, c)
			}
		}
		if c := open[key{s.from, s.to}]; c != nil {
			err = c.ToServer.add(s)
		} else if c := open[key{s.to, s.from}]; c != nil {
			err = c.ToClient.add(s)
		}
		if err != nil {
			return nil, fmt.Errorf("%w in packet %d", err, n)
		}
	}
	for _, c := range all {
		if len(c.ToServer.pending)+len(c.ToClient.pending) > 0 {
			return nil, fmt.Errorf("%w: %v to %v", ErrMissing, c.Client, c.Server)
		}
	}
	return all, nil
}

type segment struct {
	from, to netip.AddrPort
	seq      uint32
	flags    byte
	data     []byte
}

// parseSegment finds the TCP segment in an Ethernet frame; ok is false for
// anything else.
func parseSegment(b []byte) (s segment, ok bool, err error) {
	if len(b) < etherHeader {
		return s, false, nil
	}
	kind := binary.BigEndian.Uint16(b[12:])
	b = b[etherHeader:]
	var from, to netip.Addr
	switch {
	case kind == 0x0800 && len(b) >= ip4Header && b[0]>>4 == 4:
		head, total := int(b[0]&0xF)*4, int(binary.BigEndian.Uint16(b[2:]))
		if b[9] != 6 {
			return s, false, nil
		}
		if head < ip4Header || total < head || binary.BigEndian.Uint16(b[6:])&0x3FFF != 0 || total > len(b) {
			return s, false, ErrMissing
		}
		from, to = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		b = b[head:total]
	case kind == 0x86DD && len(b) >= ip6Header && b[0]>>4 == 6:
		n := int(binary.BigEndian.Uint16(b[4:]))
		if b[6] != 6 {
			return s, false, nil
		}
		if n > len(b)-ip6Header {
			return s, false, ErrMissing
		}
		from, to = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		b = b[ip6Header : ip6Header+n]
	default:
		return s, false, nil
	}
	if len(b) < tcpHeader {
		return s, false, ErrMissing
	}
	off := int(b[12]>>4) * 4
	if off < tcpHeader || off > len(b) {
		return s, false, ErrMissing
	}
	return segment{
		from:  netip.AddrPortFrom(from, binary.BigEndian.Uint16(b)),
		to:    netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2:])),
		seq:   binary.BigEndian.Uint32(b[4:]),
		flags: b[13],
		data:  b[off:],
	}, true, nil
}

// add takes one segment into the stream, at once or when the gap before it closes.
func (s *Stream) add(seg segment) error {
	if seg.flags&flagSYN != 0 && !s.started {
		s.started, s.isn = true, seg.seq
	}
	if !s.started {
		return ErrMissing
	}
	s.FIN = s.FIN || seg.flags&flagFIN != 0
	s.RST = s.RST || seg.flags&flagRST != 0
	if len(seg.data) == 0 || seg.flags&flagSYN != 0 {
		return nil
	}
	// The distance from what is already there, as TCP counts: modulo 2^32, signed.
	next := s.isn + 1 + uint32(len(s.Bytes))
	off := len(s.Bytes) + int(int32(seg.seq-next))
	if off < 0 || off > maxStream-len(seg.data) {
		return nil // a keep-alive probe, or nothing of this connection
	}
	if off > len(s.Bytes) {
		s.pending = append(s.pending, fragment{off, slices.Clone(seg.data)})
		return nil
	}
	s.take(off, seg.data)
	slices.SortFunc(s.pending, func(a, b fragment) int { return cmp.Compare(a.off, b.off) })
	for len(s.pending) > 0 && s.pending[0].off <= len(s.Bytes) {
		s.take(s.pending[0].off, s.pending[0].data)
		s.pending = s.pending[1:]
	}
	return nil
}

func (s *Stream) take(off int, data []byte) {
	if have := len(s.Bytes) - off; have < len(data) {
		s.Starts = append(s.Starts, len(s.Bytes))
		s.Bytes = append(s.Bytes, data[have:]...)
	}
}
