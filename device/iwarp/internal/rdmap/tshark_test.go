package rdmap_test

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kdapl/device/iwarp/internal/ddp"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/device/iwarp/internal/rdmap"
	"kdapl/internal/pcap"
)

// Wireshark's dissector, written by others, reads a session with every message, with
// CRCs, with and without markers, as this package meant it, and finds nothing wrong.
func TestWiresharkReadsEveryMessage(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("no tshark in PATH: install Debian's package tshark to run this test")
	}
	for _, markers := range []bool{false, true} {
		file, want := session(t, markers)
		name := filepath.Join(t.TempDir(), "session.pcapng")
		if err := os.WriteFile(name, file, 0o600); err != nil {
			t.Fatal(err)
		}
		ask := func(args ...string) string {
			// Short Sends look like RPC over RDMA to a heuristic of tshark's, which then
			// calls them malformed.
			cmd := exec.Command(tshark, append([]string{"-r", name, "--disable-protocol", "rpcordma",
				"-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"}, args...)...)
			b, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %v", cmd, err)
			}
			return string(b)
		}
		if bad := ask("-Y", "_ws.malformed || tcp.checksum.status == 0 || ip.checksum.status == 0 || tcp.analysis.flags"); bad != "" {
			t.Errorf("markers %v: %s", markers, bad)
		}
		if n := strings.Count(ask("-V"), "(Good CRC32)"); n != len(want) {
			t.Errorf("markers %v: %d good CRCs, want %d", markers, n, len(want))
		}
		args := []string{"-Y", "iwarp_rdma", "-T", "fields", "-E", "separator=,"}
		for _, f := range strings.Fields("ddp.tagged_flag ddp.last_flag ddp.stag ddp.tagged_offset ddp.qn ddp.msn ddp.mo rdma.opcode " +
			"rdma.inval_stag rdma.sinkstag rdma.sinkto rdma.rdmardsz rdma.srcstag rdma.srcto rdma.term_etype_rdma rdma.term_errcode_rdma rdma.term_ddp_seg_len") {
			args = append(args, "-e", "iwarp_"+f)
		}
		got := strings.Split(strings.TrimSpace(ask(args...)), "\n")
		if len(got) != len(want) {
			t.Fatalf("markers %v: %d messages seen, want %d", markers, len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("markers %v, message %d: %s, want %s", markers, i, got[i], want[i])
			}
		}
	}
}

// session is a capture of one connection, and for each FPDU tshark's words for its
// fields: T, L, STag, TO, QN, MSN, MO, opcode, Invalidate STag, the five of a Read
// Request, and type, code and length of a Terminate.
func session(t *testing.T, markers bool) (file []byte, want []string) {
	flags := mpa.FlagCRC | mpa.FlagEnhanced
	if markers {
		flags |= mpa.FlagMarkers
	}
	head := mpa.Header{Flags: flags, Rev: 2, Enhanced: mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRWrite, IRD: 4, ORD: 5}}
	req, err := mpa.AppendStartup(nil, mpa.Request, head, []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := mpa.AppendStartup(nil, mpa.Reply, head, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	at := time.Unix(1_700_000_000, 0)
	w := pcap.NewWriter(&b, "kdapl test")
	c := w.Conn(at, pcap.Sent, netip.MustParseAddrPort("10.0.0.1:40000"), netip.MustParseAddrPort("10.0.0.2:7174"))
	c.Data(at, pcap.Sent, req)
	c.Data(at, pcap.Received, rep)

	encoders := map[pcap.Dir]*mpa.Encoder{pcap.Sent: {CRC: true, Markers: markers}, pcap.Received: {CRC: true, Markers: markers}}
	fpdu := func(dir pcap.Dir, header []byte, payload int, fields string) {
		want = append(want, fields)
		c.Data(at, dir, encoders[dir].Finish(append(append(mpa.Begin(nil), header...), make([]byte, payload)...), 0))
	}
	const out, in = pcap.Sent, pcap.Received
	fpdu(out, rdmap.AppendWrite(nil, true, 1, 0), 0, "1,1,0x00000001,0x0000000000000000,,,,0x00,,,,,,,,,")
	fpdu(out, rdmap.AppendWrite(nil, true, 0xAABBCCDD, 0x1122334455667788), mpa.MaxULPDU-ddp.TaggedLen, "1,1,0xaabbccdd,0x1122334455667788,,,,0x00,,,,,,,,,")
	for i, n := range []int{0, 1, 2, 3} {
		msn := string(rune('1' + i))
		op := rdmap.OpSend + rdmap.Opcode(i)
		inv := [...]string{"", "7", "", "7"}[i]
		fpdu(out, rdmap.AppendSend(nil, op, true, 7, uint32(i+1), 0), n, "0,1,,,0,"+msn+",0,0x0"+string(rune('3'+i))+","+inv+",,,,,,,,")
	}
	fpdu(out, rdmap.AppendSend(nil, rdmap.OpSend, false, 0, 5, 0), 1400, "0,0,,,0,5,0,0x03,,,,,,,,,")
	fpdu(out, rdmap.AppendSend(nil, rdmap.OpSend, true, 0, 5, 1400), 9, "0,1,,,0,5,1400,0x03,,,,,,,,,")
	fpdu(out, rdmap.AppendReadRequest(nil, 1, rdmap.ReadRequest{SinkSTag: 3, SinkTO: 4, Size: 77, SrcSTag: 5, SrcTO: 6}), 0,
		"0,1,,,1,1,0,0x01,,0x00000003,0x0000000000000004,77,0x00000005,0x0000000000000006,,,")
	fpdu(in, rdmap.AppendReadResponse(nil, true, 3, 4), 77, "1,1,0x00000003,0x0000000000000004,,,,0x02,,,,,,,,,")
	fpdu(out, rdmap.AppendImmediate(nil, rdmap.OpImmediate, 6, [8]byte{1}), 0, "0,1,,,0,6,0,0x08,,,,,,,,,")
	fpdu(out, rdmap.AppendImmediate(nil, rdmap.OpImmediateSE, 7, [8]byte{1}), 0, "0,1,,,0,7,0,0x09,,,,,,,,,")
	fpdu(out, rdmap.AppendAtomicRequest(nil, 2, rdmap.AtomicRequest{Op: rdmap.CmpSwap, STag: 5, TO: 8}), 0, "0,1,,,1,2,0,0x0a,,,,,,,,,")
	fpdu(in, rdmap.AppendAtomicResponse(nil, 1, rdmap.AtomicResponse{ID: 1, Original: 2}), 0, "0,1,,,3,1,0,0x0b,,,,,,,,,")
	read := rdmap.AppendReadRequest(nil, 3, rdmap.ReadRequest{Size: 1, SrcSTag: 9})
	fpdu(out, read, 0, "0,1,,,1,3,0,0x01,,0x00000000,0x0000000000000000,1,0x00000009,0x0000000000000000,,,")
	m, _ := rdmap.TerminateFor(rdmap.ErrAccess, read, len(read))
	fpdu(in, rdmap.AppendTerminate(nil, m), 0, "0,1,,,2,1,0,0x07,,,,,,,0x01,0x02,002e")
	c.FIN(at, pcap.Received)
	c.FIN(at, pcap.Sent)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), want
}
