package pcap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const captures = "../../device/iwarp/internal/wiretest/testdata"

func open(t testing.TB, b []byte) *Reader {
	t.Helper()
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func drain(r *Reader) (n int, err error) {
	for {
		if _, err = r.Next(); err != nil {
			return n, err
		}
		n++
	}
}

// The numbers are those that tshark and the wire's fact sheet give for the files.
func TestKernelCapturesAreReadWhole(t *testing.T) {
	packets := map[string]int{
		"siw-crc-rping": 26, "siw-dapltest": 99, "siw-dtest-W": 25, "siw-dtest": 249, "siw-dtestcm": 28,
		"siw-mpa1-ucmatose": 17, "siw-p2p-rping": 28, "siw-rping": 26, "siw-ucmatose": 17,
	}
	conns, total, ends := 0, 0, 0
	for name, want := range packets {
		b, err := os.ReadFile(filepath.Join(captures, name+".pcap"))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := drain(open(t, b)); n != want || err != io.EOF {
			t.Errorf("%s: %d packets and %v, want %d and EOF", name, n, err, want)
		}
		cs, err := Assemble(open(t, b))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		conns += len(cs)
		for _, c := range cs {
			total += len(c.ToServer.Bytes) + len(c.ToClient.Bytes)
			if c.ToServer.FIN && c.ToClient.FIN {
				ends++
			}
			if c.ToServer.RST || c.ToClient.RST {
				t.Errorf("%s: a reset that is not in the capture", name)
			}
		}
	}
	if conns != 15 || total != 119110 || ends != conns {
		t.Errorf("%d connections (%d ended by FIN), %d bytes; want 15 and 119110", conns, ends, total)
	}
}

type chunk struct {
	dir  Dir
	data []byte
}

// record writes a connection whose chunks went through in order; every chunk is
// given in two pieces cut at a random place.
func record(t testing.TB, local, remote string, chunks []chunk, rng *rand.Rand) []byte {
	t.Helper()
	var file bytes.Buffer
	w := NewWriter(&file, "pcap test")
	at := time.Unix(1_700_000_000, 123_456_789)
	c := w.Conn(at, Received, netip.MustParseAddrPort(local), netip.MustParseAddrPort(remote))
	for i, k := range chunks {
		cut := rng.IntN(len(k.data) + 1)
		c.Data(at.Add(time.Duration(i)), k.dir, k.data[:cut], nil, k.data[cut:])
	}
	c.FIN(at, Sent)
	c.RST(at, Received)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func randomChunks(rng *rand.Rand) []chunk {
	cs := make([]chunk, 12)
	for i := range cs {
		n := []int{0, 1, 2, 3, 57, 1448, maxSegment, maxSegment + 1, 200_001}[rng.IntN(9)]
		cs[i] = chunk{Sent - Dir(rng.IntN(2)), make([]byte, n)}
		for j := range cs[i].data {
			cs[i].data[j] = byte(rng.Uint32())
		}
	}
	return cs
}

func TestWrittenStreamsAreAssembledAgain(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		chunks := randomChunks(rng)
		local, remote := "10.1.2.3:4420", "10.1.2.4:50000"
		if seed%2 == 1 {
			local, remote = "[fd00::1]:4420", "10.1.2.4:50000"
		}
		b := record(t, local, remote, chunks, rng)
		cs, err := Assemble(open(t, b))
		if err != nil || len(cs) != 1 {
			t.Fatalf("seed %d: %d connections, %v", seed, len(cs), err)
		}
		var sent, received []byte
		starts := map[Dir][]int{Sent: nil, Received: nil}
		for _, c := range chunks {
			dst := &sent
			if c.dir == Received {
				dst = &received
			}
			for off := 0; off < len(c.data); off += maxSegment {
				starts[c.dir] = append(starts[c.dir], len(*dst)+off)
			}
			*dst = append(*dst, c.data...)
		}
		// The remote side dialled, so it is the client.
		got := cs[0]
		if got.Client.Port() != 50000 || got.Server.Port() != 4420 {
			t.Errorf("seed %d: client %v, server %v", seed, got.Client, got.Server)
		}
		if !bytes.Equal(got.ToClient.Bytes, sent) || !bytes.Equal(got.ToServer.Bytes, received) {
			t.Errorf("seed %d: the streams differ from what was written", seed)
		}
		if !equal(got.ToClient.Starts, starts[Sent]) || !equal(got.ToServer.Starts, starts[Received]) {
			t.Errorf("seed %d: packets begin at %v and %v", seed, got.ToClient.Starts, got.ToServer.Starts)
		}
		if !got.ToClient.FIN || got.ToServer.FIN || got.ToClient.RST || !got.ToServer.RST {
			t.Errorf("seed %d: ends: %+v %+v", seed, got.ToClient.FIN, got.ToServer.RST)
		}
	}
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// The ones' complement sum of a header with its checksum is all ones (RFC 1071).
func TestWrittenPacketsHaveRightTimesAndChecksums(t *testing.T) {
	for _, local := range []string{"192.0.2.1:7", "[fd00::7]:7"} {
		rng := rand.New(rand.NewPCG(7, 7))
		r := open(t, record(t, local, "192.0.2.2:9", randomChunks(rng), rng))
		for n := 0; ; n++ {
			p, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.Time.Unix() != 1_700_000_000 || p.Time.Nanosecond() < 123_456_789 || p.Time.Nanosecond() > 123_456_801 {
				t.Fatalf("packet %d at %v", n, p.Time)
			}
			if p.OrigLen != len(p.Data) {
				t.Fatalf("packet %d: %d of %d bytes", n, len(p.Data), p.OrigLen)
			}
			ip := p.Data[etherHeader:]
			var pseudo, tcp []byte
			if ip[0]>>4 == 4 {
				if fold(sum(0, ip[:20])) != 0 {
					t.Fatalf("packet %d: IP checksum", n)
				}
				pseudo, tcp = ip[12:20], ip[20:]
			} else {
				pseudo, tcp = ip[8:40], ip[40:]
			}
			if fold(sum(sum(0, pseudo)+6+uint32(len(tcp)), tcp)) != 0 {
				t.Fatalf("packet %d: TCP checksum", n)
			}
		}
	}
}

// classic builds a pcap file by hand.
func classic(order binary.AppendByteOrder, magic uint32, sub uint32, packets ...[]byte) []byte {
	b := order.AppendUint32(nil, magic)
	b = order.AppendUint16(b, 2)
	b = order.AppendUint16(b, 4)
	b = append(b, make([]byte, 8)...)
	b = order.AppendUint32(b, 65535)
	b = order.AppendUint32(b, uint32(LinkEthernet))
	for _, p := range packets {
		b = order.AppendUint32(b, 1000)
		b = order.AppendUint32(b, sub)
		b = order.AppendUint32(b, uint32(len(p)))
		b = order.AppendUint32(b, uint32(len(p)+1))
		b = append(b, p...)
	}
	return b
}

func ngBlock(order binary.AppendByteOrder, kind uint32, body []byte) []byte {
	b := order.AppendUint32(nil, kind)
	b = order.AppendUint32(b, uint32(12+len(body)))
	b = append(b, body...)
	return order.AppendUint32(b, uint32(12+len(body)))
}

func TestBothByteOrdersResolutionsAndFormatsAreRead(t *testing.T) {
	want := time.Unix(1000, 5000)
	packet := []byte("abcdef")
	files := map[string][]byte{
		"pcap micro little": classic(binary.LittleEndian, magicMicro, 5, packet),
		"pcap micro big":    classic(binary.BigEndian, magicMicro, 5, packet),
		"pcap nano little":  classic(binary.LittleEndian, magicNano, 5000, packet),
		"pcap nano big":     classic(binary.BigEndian, magicNano, 5000, packet),
	}
	for name, o := range map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
		head := o.AppendUint32(nil, byteOrderMagic)
		head = append(head, make([]byte, 12)...)
		for res, units := range map[string]struct {
			opt []byte
			ts  uint64
		}{
			"micro by default": {nil, 1000*1e6 + 5},
			"nano":             {[]byte{9}, 1000*1e9 + 5000},
			"2^-32 s":          {[]byte{0x80 | 32}, 1000<<32 + 21475}, // rounds up to 5000.1 ns
		} {
			idb := []byte{0, 0, 0, 0, 0, 0, 0, 0}
			o2 := o.AppendUint16(nil, uint16(LinkEthernet))
			copy(idb, o2)
			if units.opt != nil {
				idb = o.AppendUint16(idb, optionTSResol)
				idb = o.AppendUint16(idb, 1)
				idb = append(idb, units.opt[0], 0, 0, 0)
			}
			epb := o.AppendUint32(nil, 0)
			epb = o.AppendUint32(epb, uint32(units.ts>>32))
			epb = o.AppendUint32(epb, uint32(units.ts))
			epb = o.AppendUint32(epb, uint32(len(packet)))
			epb = o.AppendUint32(epb, uint32(len(packet)+1))
			epb = append(append(epb, packet...), 0, 0)
			f := ngBlock(o, blockSection, head)
			f = append(f, ngBlock(o, blockInterface, idb)...)
			f = append(f, ngBlock(o, 0xBAD, []byte("skip"))...)
			f = append(f, ngBlock(o, blockEnhanced, epb)...)
			files["pcapng "+name+" "+res] = f
		}
	}
	for name, f := range files {
		r := open(t, f)
		p, err := r.Next()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !p.Time.Equal(want) || string(p.Data) != string(packet) || p.OrigLen != 7 || p.Link != LinkEthernet {
			t.Errorf("%s: %v %q %d %d", name, p.Time, p.Data, p.OrigLen, p.Link)
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("%s: %v behind the packet", name, err)
		}
		for n := range f { // cut everywhere: an error, never a packet that is not whole
			r, err := NewReader(bytes.NewReader(f[:n]))
			if err != nil {
				continue
			}
			if k, err := drain(r); k != 0 || err == nil {
				t.Errorf("%s cut at %d: %d packets", name, n, k)
			}
		}
	}
}

func TestSimplePacketBlocksEndAtTheSnapLength(t *testing.T) {
	o := binary.LittleEndian
	head := append(o.AppendUint32(nil, byteOrderMagic), make([]byte, 12)...)
	f := ngBlock(o, blockSection, head)
	f = append(f, ngBlock(o, blockInterface, []byte{1, 0, 0, 0, 3, 0, 0, 0})...)
	f = append(f, ngBlock(o, blockSimple, append(o.AppendUint32(nil, 9), "abc\x00"...))...)
	p, err := open(t, f).Next()
	if err != nil || string(p.Data) != "abc" || p.OrigLen != 9 || !p.Time.IsZero() {
		t.Errorf("%q of %d at %v, %v", p.Data, p.OrigLen, p.Time, err)
	}
}

// sequence builds a capture of the connection's SYN and then the given segments of
// the stream "0123456789", each [from, to).
func sequence(cuts ...[2]int) []byte {
	var file bytes.Buffer
	w := NewWriter(&file, "")
	c := w.Conn(time.Time{}, Sent, netip.MustParseAddrPort("1.1.1.1:1"), netip.MustParseAddrPort("2.2.2.2:2"))
	base := c.ends[0].next
	for _, k := range cuts {
		c.ends[0].next = base + uint32(k[0])
		c.Data(time.Time{}, Sent, []byte("0123456789")[max(k[0], 0):k[1]])
	}
	w.Flush()
	return file.Bytes()
}

func TestSegmentsOutOfOrderAndRepeatedCountOnce(t *testing.T) {
	for name, cuts := range map[string][][2]int{
		"in order":    {{0, 4}, {4, 10}},
		"swapped":     {{4, 10}, {0, 4}},
		"repeated":    {{0, 4}, {0, 4}, {4, 10}, {4, 10}},
		"overlapping": {{0, 4}, {2, 7}, {1, 3}, {6, 10}},
		"gaps closed": {{8, 10}, {2, 4}, {6, 8}, {4, 6}, {0, 2}},
		"keep-alive":  {{0, 10}, {-1, 0}, {-1, 1}},
	} {
		cs, err := Assemble(open(t, sequence(cuts...)))
		if err != nil || len(cs) != 1 || string(cs[0].ToServer.Bytes) != "0123456789" {
			t.Errorf("%s: %v, %v", name, cs, err)
		}
	}
	if _, err := Assemble(open(t, sequence([2]int{0, 4}, [2]int{5, 10}))); !errors.Is(err, ErrMissing) {
		t.Errorf("a gap gives %v", err)
	}
}

// A SYN that is sent again is not a second connection; the same addresses with other
// sequence numbers are one.
func TestRepeatedSYNsAndReusedPorts(t *testing.T) {
	a, b := netip.MustParseAddrPort("1.1.1.1:1"), netip.MustParseAddrPort("2.2.2.2:2")
	var file bytes.Buffer
	w := NewWriter(&file, "")
	c := w.Conn(time.Time{}, Sent, a, b)
	c.ends[0].next--
	c.control(time.Time{}, Sent, flagSYN)
	c.Data(time.Time{}, Sent, []byte("first"))
	c = w.Conn(time.Time{}, Sent, a, b)
	c.Data(time.Time{}, Sent, []byte("second"))
	w.Flush()
	cs, err := Assemble(open(t, file.Bytes()))
	if err != nil || len(cs) != 2 || string(cs[0].ToServer.Bytes) != "first" || string(cs[1].ToServer.Bytes) != "second" {
		t.Errorf("%d connections, %v", len(cs), err)
	}
}

// An acknowledgement covers everything that the other side has sent, SYN and FIN
// included, as far as the capture has come.
func TestSequenceNumbersContinue(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	r := open(t, record(t, "1.1.1.1:1", "2.2.2.2:2", randomChunks(rng), rng))
	next := map[uint16]uint32{}
	for n := 0; ; n++ {
		p, err := r.Next()
		if err == io.EOF {
			return
		}
		s, ok, err2 := parseSegment(p.Data)
		if err != nil || !ok || err2 != nil {
			t.Fatal(err, ok, err2)
		}
		if want, begun := next[s.from.Port()]; begun && s.seq != want {
			t.Fatalf("packet %d: sequence number %d, want %d", n, s.seq, want)
		}
		if ack := binary.BigEndian.Uint32(p.Data[etherHeader+ip4Header+8:]); n > 0 && ack != next[s.to.Port()] {
			t.Fatalf("packet %d: acknowledges %d, want %d", n, ack, next[s.to.Port()])
		}
		next[s.from.Port()] = s.seq + uint32(len(s.data))
		if s.flags&(flagSYN|flagFIN) != 0 {
			next[s.from.Port()]++
		}
	}
}

func TestInterfacesBelongToTheirSection(t *testing.T) {
	o := binary.LittleEndian
	section := ngBlock(o, blockSection, append(o.AppendUint32(nil, byteOrderMagic), make([]byte, 12)...))
	ethernet := ngBlock(o, blockInterface, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	packet := ngBlock(o, blockSimple, o.AppendUint32(nil, 0))
	one := bytes.Join([][]byte{section, ethernet, packet}, nil)
	if n, err := drain(open(t, append(bytes.Clone(one), one...))); n != 2 || err != io.EOF {
		t.Errorf("%d packets, %v", n, err)
	}
	if n, err := drain(open(t, bytes.Join([][]byte{one, section, packet}, nil))); n != 1 || !errors.Is(err, ErrFormat) {
		t.Errorf("no interface in the second section: %d packets, %v", n, err)
	}
}

type failing struct{ after int }

func (f *failing) Write(b []byte) (int, error) {
	if f.after -= len(b); f.after < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}

func TestFirstWriteErrorStaysAndStopsWriting(t *testing.T) {
	f := &failing{after: 1 << 20}
	w := NewWriter(f, "x")
	c := w.Conn(time.Time{}, Sent, netip.AddrPort{}, netip.AddrPort{})
	for range 40 {
		c.Data(time.Time{}, Sent, make([]byte, 60_000))
	}
	if err := w.Flush(); err != io.ErrClosedPipe {
		t.Errorf("Flush = %v", err)
	}
	f.after = 1 << 30
	c.FIN(time.Time{}, Sent)
	if err := w.Flush(); err != io.ErrClosedPipe {
		t.Errorf("Flush = %v after the writer recovered", err)
	}
}

func TestRecordingAllocatesNothing(t *testing.T) {
	w := NewWriter(io.Discard, "x")
	c := w.Conn(time.Time{}, Sent, netip.MustParseAddrPort("1.1.1.1:1"), netip.MustParseAddrPort("2.2.2.2:2"))
	head, body := make([]byte, 20), make([]byte, 100_000)
	at := time.Unix(1, 0)
	c.Data(at, Sent, head, body)
	if n := testing.AllocsPerRun(100, func() { c.Data(at, Sent, head, body) }); n != 0 {
		t.Errorf("%v allocations per call", n)
	}
}

func FuzzReader(f *testing.F) {
	for _, name := range []string{"siw-p2p-rping.pcap", "siw-mpa1-ucmatose.pcap"} {
		b, err := os.ReadFile(filepath.Join(captures, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(sequence([2]int{4, 10}, [2]int{0, 5}))
	f.Add(classic(binary.BigEndian, magicNano, 1, []byte("x"), nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		for total := 0; ; {
			p, err := r.Next()
			if err != nil {
				break
			}
			if total += len(p.Data); total > len(b) {
				t.Fatalf("%d bytes of packets in a file of %d", total, len(b))
			}
		}
		if cs, err := Assemble(open(t, b)); err == nil {
			total := 0
			for _, c := range cs {
				total += len(c.ToServer.Bytes) + len(c.ToClient.Bytes)
			}
			if total > len(b) {
				t.Fatalf("%d bytes of streams in a file of %d", total, len(b))
			}
		}
	})
}
