package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// stream is the payload of one direction of a TCP connection, put together by sequence numbers.
type stream struct {
	syn, fin bool
	next     uint32
	data     []byte
}

// readCapture reads a pcapng file with a library of others. It checks the checksums and that the sequence
// numbers have no gap. The key is "source>destination".
func readCapture(t *testing.T, name string) map[string]*stream {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	streams := map[string]*stream{}
	for n := 0; ; n++ {
		data, ci, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return streams
		}
		if err != nil || ci.Timestamp.IsZero() || ci.CaptureLength != ci.Length {
			t.Fatalf("packet %d: %v, %+v", n, err, ci)
		}
		p := gopacket.NewPacket(data, r.LinkType(), gopacket.Default)
		if e := p.ErrorLayer(); e != nil {
			t.Fatalf("packet %d: %v", n, e.Error())
		}
		tcp := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if err := tcp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
		if err, bad := p.VerifyChecksums(); err != nil || len(bad) > 0 {
			t.Fatalf("packet %d: checksums %v, %v", n, err, bad)
		}
		from, to := p.NetworkLayer().NetworkFlow().Endpoints()
		key := fmt.Sprintf("%v:%d>%v:%d", from, tcp.SrcPort, to, tcp.DstPort)
		s := streams[key]
		if s == nil {
			s = &stream{next: tcp.Seq}
			streams[key] = s
		}
		if tcp.Seq != s.next || s.fin {
			t.Fatalf("packet %d: %s continues at %d instead of %d", n, key, tcp.Seq, s.next)
		}
		s.data = append(s.data, tcp.Payload...)
		s.syn, s.fin = s.syn || tcp.SYN, tcp.FIN
		s.next += uint32(len(tcp.Payload))
		if tcp.SYN || tcp.FIN {
			s.next++
		}
	}
}

// checkCapture checks a capture of so many connections that were ended, by one side at least, with another library and, if it is there,
// with tshark.
func checkCapture(t *testing.T, name string, connections, crcs int, opcodes ...string) {
	t.Helper()
	starts, ends := map[string]int{}, 0
	for key, s := range readCapture(t, name) {
		if !s.syn || len(s.data) == 0 {
			t.Errorf("%s: SYN %v, %d bytes", key, s.syn, len(s.data))
		}
		if s.fin {
			ends++
		}
		for _, start := range []string{"MPA ID Req Frame", "MPA ID Rep Frame"} {
			if bytes.HasPrefix(s.data, []byte(start)) {
				starts[start]++
			}
		}
	}
	if starts["MPA ID Req Frame"] != connections || starts["MPA ID Rep Frame"] != connections {
		t.Errorf("%v, want %d connections", starts, connections)
	}
	if ends < connections {
		t.Errorf("%d FINs of %d connections", ends, connections)
	}
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Log("no tshark in PATH: install Debian's package tshark to let it judge the file too")
		return
	}
	ask := func(args ...string) string {
		t.Helper()
		// Short sends look like RPC over RDMA to a heuristic of tshark's, which then calls them malformed.
		cmd := exec.Command(tshark, append([]string{"-n", "-r", name, "--disable-protocol", "rpcordma",
			"-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"}, args...)...)
		b, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", cmd, err)
		}
		return string(b)
	}
	if bad := ask("-Y", "_ws.malformed || tcp.checksum.status == 0 || ip.checksum.status == 0 || tcp.analysis.flags"); bad != "" {
		t.Errorf("tshark finds fault with\n%s", bad)
	}
	text := ask("-V")
	if strings.Contains(text, "Bad CRC32") || strings.Contains(text, "incorrect, should be") {
		t.Error("tshark finds a bad CRC")
	}
	if good := strings.Count(text, "(Good CRC32)"); crcs >= 0 && good < crcs {
		t.Errorf("tshark finds %d good CRCs, want at least %d", good, crcs)
	}
	for _, opcode := range opcodes {
		if !strings.Contains(text, opcode) {
			t.Errorf("tshark finds no %s", opcode)
		}
	}
}

func TestPcapOfPerf(t *testing.T) {
	withoutConf(t)
	name := filepath.Join(t.TempDir(), "a capture.pcapng")
	code, _, errs := kdapl(context.Background(), "perf", "--adapter", "iwarp0", "--size", "64KiB,200KiB", "--iters", "3", "--depth", "2", "--pcap", name)
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	checkCapture(t, name, 12, 12*3, "Send", "Write", "Read Request", "Read Response")
}

func TestPcapOfPerfWithoutCRC(t *testing.T) {
	withoutConf(t)
	name := filepath.Join(t.TempDir(), "capture.pcapng")
	code, _, errs := kdapl(context.Background(), "perf", "--adapter", "iwarp crc=off", "--size", "100KiB", "--iters", "3", "--depth", "2", "--set", "pcap="+name)
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	checkCapture(t, name, 6, -1, "Send", "Write", "Read Request", "Read Response")
}

func TestPcapOfClientAndServer(t *testing.T) {
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "server.pcapng"), filepath.Join(dir, "client.pcapng")
	s := serve(t, "--pcap", theirs)
	code, _, errs := kdapl(context.Background(), "perf", "--connect", s.address, "--op", "write", "--size", "8", "--post", "list=64", "--iters", "500", "--pcap", ours)
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	if code, errs := s.end(); code != exitOK {
		t.Fatalf("the server ends with %d, %s", code, errs)
	}
	checkCapture(t, ours, 2, 1000, "Write") // many short FPDUs in each packet
	a, b := readCapture(t, ours), readCapture(t, theirs)
	for key, s := range a {
		if o := b[key]; o == nil || !bytes.Equal(s.data, o.data) {
			t.Errorf("%s differs in the two captures", key)
		}
	}
}

func TestPcapOfRPingAndUCMatose(t *testing.T) {
	withoutConf(t)
	for _, c := range [][2][]string{
		{{"rping", "-s", "-p", "0", "-C", "2"}, {"rping", "-c", "-C", "2", "-a"}},
		{{"ucmatose", "-p", "0", "-c", "1", "-C", "3"}, {"ucmatose", "-c", "1", "-C", "3", "-s"}},
	} {
		name := filepath.Join(t.TempDir(), "capture.pcapng")
		addr, port, ended, _ := server(t, c[0]...)
		code, _, errs := kdapl(context.Background(), append(c[1], addr, "-p", port, "--pcap", name)...)
		if code != exitOK {
			t.Fatalf("exit code %d, %s", code, errs)
		}
		<-ended
		checkCapture(t, name, 1, 3, "Send")
	}
}

func TestPcapThatCannotBeWritten(t *testing.T) {
	withoutConf(t)
	code, _, errs := kdapl(context.Background(), "perf", "--adapter", "iwarp0", "--pcap", filepath.Join(t.TempDir(), "missing", "x"))
	if code == exitOK || !strings.Contains(errs, "capture: open ") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
