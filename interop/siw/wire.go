//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// capture is a tcpdump that runs.
type capture struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has said all
	drops string        // how many packets it has lost, as it says
}

// record begins to capture what goes over an interface, but for the agent's connections. The snapshot length is small, because
// each packet in tcpdump's buffer takes as much.
func record(iface, file string) (*capture, error) {
	c := &capture{ended: make(chan struct{}), cmd: exec.Command("tcpdump", "-Z", "root", "--immediate-mode", "-U", "-s4096", "-B65536",
		"-i", iface, "-w", file, "tcp and not port 7000")}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "listening on") {
			go func() {
				defer close(c.ended)
				for lines.Scan() {
					if n, ok := strings.CutSuffix(lines.Text(), " dropped by kernel"); ok {
						c.drops = n
					}
				}
			}()
			return c, nil
		}
	}
	return nil, fmt.Errorf("tcpdump does not listen on %s: %w", iface, c.cmd.Wait())
}

// end ends the capture. It is an error if packets are missing in it.
func (c *capture) end() error {
	time.Sleep(50 * time.Millisecond) // what is on its way
	c.cmd.Process.Signal(syscall.SIGINT)
	<-c.ended
	c.cmd.Wait()
	if c.drops != "0 packets" {
		return fmt.Errorf("tcpdump has lost %q", c.drops)
	}
	return nil
}

// found is what tshark finds in a capture.
type found struct {
	frames    int // FPDUs
	crcGood   int
	crcBad    int
	malformed int
	loose     int // segments of the host with data of the iWARP ports that are not dissected; siw splits FPDUs
}

func (f *found) add(g found) {
	f.frames += g.frames
	f.crcGood += g.crcGood
	f.crcBad += g.crcBad
	f.malformed += g.malformed
	f.loose += g.loose
}

// clean reports that nothing is wrong.
func (f found) clean() bool { return f.malformed == 0 && f.crcBad == 0 && f.loose == 0 }

// tshark runs the program. It must look for MPA before it goes by the ports: that of the host may be one it takes for another protocol's.
func tshark(args ...string) ([]byte, error) {
	var errs bytes.Buffer
	cmd := exec.Command("tshark", append([]string{"-o", "tcp.try_heuristic_first:TRUE"}, args...)...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("tshark: %w: %s", err, errs.String())
	}
	return out, nil
}

// check merges captures into one, has tshark dissect it, and removes them but for those of failed tries; ports are those
// that carry iWARP.
func check(file string, parts []string, ports []int) (found, error) {
	f, err := inParts(file, parts, ports)
	for _, p := range parts {
		if !strings.HasSuffix(p, "-failed.pcap") {
			os.Remove(p)
		}
	}
	return f, err
}

// inParts dissects captures as one and, if something is wrong, by halves: what counts is what is wrong with one by itself, because
// two tries may have used the same ports, which tshark takes for one connection.
func inParts(file string, parts []string, ports []int) (f found, err error) {
	if out, err := exec.Command("mergecap", append([]string{"-w", file}, parts...)...).CombinedOutput(); err != nil {
		return f, fmt.Errorf("mergecap: %w: %s", err, out)
	}
	if f, err = dissect(file, ports); err != nil || f.clean() || len(parts) == 1 {
		return f, err
	}
	f = found{}
	for _, half := range [][]string{parts[:len(parts)/2], parts[len(parts)/2:]} {
		g, err := inParts(file, half, ports)
		if err != nil {
			return f, err
		}
		f.add(g)
	}
	return f, nil
}

// dissect counts what tshark sees in a capture.
func dissect(file string, ports []int) (f found, err error) {
	out, err := tshark("-r", file, "-V", "-O", "iwarp_mpa")
	if err != nil {
		return f, err
	}
	for line := range bytes.Lines(out) {
		switch {
		case bytes.Contains(line, []byte("ULPDU length:")):
			f.frames++
		case bytes.Contains(line, []byte("Good CRC32")):
			f.crcGood++
		case bytes.Contains(line, []byte("Bad CRC32")):
			f.crcBad++
		case bytes.Contains(line, []byte("Malformed Packet")):
			f.malformed++
		}
	}
	// In two passes, for a segment knows the one that completes its FPDU only then: TCP cuts an FPDU where the window ends.
	out, err = tshark("-2", "-r", file, "-Y", "ip.src=="+hostIP+" && tcp.len>0 && !iwarp_mpa && !tcp.reassembled_in && !tcp.analysis.retransmission && ("+onPorts(ports)+")",
		"-T", "fields", "-e", "frame.number")
	f.loose = bytes.Count(out, []byte("\n"))
	return f, err
}

// onPorts is tshark's filter for connections of ports, or of any port if there are none.
func onPorts(ports []int) string {
	filter := "tcp"
	for i, p := range ports {
		if i == 0 {
			filter = ""
		} else {
			filter += " || "
		}
		filter += fmt.Sprintf("tcp.port==%d", p)
	}
	return filter
}

// owes reports that the step that is missing in the capture of a failed try is the kernel's:
//   - The kernel does not go on: in a stream that nobody had ended, the last data came from the host, the guest's TCP has
//     acknowledged it, and the guest has sent nothing more.
//   - The guest's program says that a request of its failed, or the host's has passed and the guest's has not, and the capture has
//     all of the guest's data delivered and the host's orderly end behind it: siw lets a request fail, or never completes it, though
//     its last segment was sent, if the peer's FIN comes meanwhile (siw_qp_sq_proc_tx).
//   - The guest, which is the client, has ended all streams in good order, and does not open the next.
func owes(file, guest string, r *row, o *outcome) (bool, error) {
	ports := r.ports
	out, err := tshark("-r", file, "-Y", onPorts(ports), "-T", "fields",
		"-e", "tcp.stream", "-e", "ip.src", "-e", "tcp.len", "-e", "tcp.nxtseq", "-e", "tcp.ack", "-e", "tcp.flags.fin", "-e", "tcp.flags.reset")
	if err != nil {
		return false, err
	}
	s := streams(string(out), guest)
	failed := strings.Contains(o.server+o.client, requestFailed)
	return len(ports) > 0 && stuck(s) || (failed || o.hostPassed) && delivered(s) || r.client.at != host && idle(s), nil
}

// requestFailed is what libdapl says of IBV_WC_LOC_QP_OP_ERR; the operation that it names is not always the one.
const requestFailed = "DTO completion ERR: status 2, op OP_"

// stream is what became of a TCP connection.
type stream struct {
	byHost, over bool // the last data came from the host; a side has ended it
	next, acked  int  // behind the host's last data; what the guest has acknowledged
	hostEnd      bool // the host ended it first
	reset        bool
	data, got    int // behind the guest's data; what the host has acknowledged
}

// streams reads what tshark prints of each segment: stream, source, length, next sequence number, acknowledged
// one, FIN, RST.
func streams(segments, guest string) map[string]*stream {
	all := map[string]*stream{}
	for line := range strings.Lines(segments) {
		w := strings.Split(strings.TrimSpace(line), "\t")
		if len(w) < 7 {
			continue
		}
		s := all[w[0]]
		if s == nil {
			s = &stream{}
			all[w[0]] = s
		}
		n := func(i int) int { v, _ := strconv.Atoi(w[i]); return v }
		fromGuest := w[1] == guest
		if fromGuest {
			s.acked = max(s.acked, n(4))
		} else {
			s.got = max(s.got, n(4))
		}
		if fromGuest && n(2) > 0 {
			s.data = max(s.data, n(3))
		}
		s.reset = s.reset || n(6) != 0
		if s.over {
			continue
		}
		if n(2) > 0 {
			if s.byHost = !fromGuest; s.byHost {
				s.next = n(3)
			}
		}
		if n(5) != 0 || n(6) != 0 {
			s.over = true
			s.hostEnd = !fromGuest
		}
	}
	return all
}

// stuck reports that a stream waits for the guest, or was given up by the host while it did. Of several equal streams, it is one in
// which the guest has sent less than in another: the end of a complete one looks the same.
func stuck(all map[string]*stream) bool {
	most := 0
	for _, s := range all {
		most = max(most, s.data)
	}
	for _, s := range all {
		if (len(all) == 1 || s.data < most) && s.byHost && s.acked >= s.next && (!s.over || s.hostEnd) {
			return true
		}
	}
	return false
}

// delivered reports that all data of the guest was delivered, no stream was reset, and the host ended one first.
func delivered(all map[string]*stream) bool {
	ended := false
	for _, s := range all {
		if s.reset || s.got < s.data {
			return false
		}
		ended = ended || s.hostEnd
	}
	return ended
}

// idle reports that there were streams, and that the guest ended each first, with all data of both sides delivered.
func idle(all map[string]*stream) bool {
	for _, s := range all {
		if !s.over || s.hostEnd || s.reset || s.got < s.data || s.acked < s.next {
			return false
		}
	}
	return len(all) > 0
}
