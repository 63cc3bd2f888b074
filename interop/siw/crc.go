//go:build linux

package main

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strconv"
	"strings"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// summedTwice reports that the guest sent FPDUs with a wrong CRC in a capture, and that each of these is the CRC of the FPDU with
// its payload taken twice. Then all that was sent is right, and the kernel's sum is wrong: siw finds the socket full when it
// has summed an FPDU up, and goes on with it in another thread as soon as there is room. If that is before the first thread
// notes that the sum is complete, the payload is added once more (do_crc in siw_tx_hdt).
func summedTwice(file, guest string, ports []int) (bool, error) {
	out, err := tshark("-r", file, "-Y", "ip.src=="+guest+" && tcp.len>0 && ("+onPorts(ports)+")", "-T", "fields",
		"-e", "tcp.stream", "-e", "tcp.seq", "-e", "tcp.payload")
	if err != nil {
		return false, err
	}
	wrong, twice := 0, 0
	for _, data := range sent(string(out)) {
		w, t := sums(data)
		wrong, twice = wrong+w, twice+t
	}
	return wrong > 0 && wrong == twice, nil
}

// sent puts together what was sent in each stream, from what tshark prints of each segment: stream, sequence number, data. What
// is behind a gap is left out.
func sent(segments string) map[string][]byte {
	all := map[string][]byte{}
	for line := range strings.Lines(segments) {
		w := strings.Split(strings.TrimSpace(line), "\t")
		if len(w) < 3 {
			continue
		}
		seq, err := strconv.Atoi(w[1])
		data, err2 := hex.DecodeString(strings.ReplaceAll(w[2], ":", ""))
		have := len(all[w[0]])
		if err != nil || err2 != nil || seq-1 > have || seq-1+len(data) <= have {
			continue // damaged, behind a gap, or sent again
		}
		all[w[0]] = append(all[w[0]], data[have-(seq-1):]...)
	}
	return all
}

// Lengths on the wire: of MPA's request and reply, and of the length field and the headers of a tagged and an untagged FPDU.
const (
	startup  = 20
	tagged   = 2 + 14
	untagged = 2 + 18
)

// sums counts the FPDUs of one direction whose CRC is wrong, and those of them whose CRC has the payload twice.
func sums(data []byte) (wrong, twice int) {
	if len(data) < startup {
		return 0, 0
	}
	data = data[min(len(data), startup+int(binary.BigEndian.Uint16(data[18:]))):]
	for len(data) > untagged {
		end := (2 + int(binary.BigEndian.Uint16(data)) + 3) &^ 3
		header := untagged
		if data[2]&0x80 != 0 {
			header = tagged
		}
		if end+4 > len(data) || end < header {
			break
		}
		frame, crc := data[:end], binary.LittleEndian.Uint32(data[end:])
		if once := crc32.Checksum(frame, castagnoli); once != crc {
			wrong++
			if crc32.Update(once, castagnoli, frame[header:]) == crc {
				twice++
			}
		}
		data = data[end+4:]
	}
	return wrong, twice
}
