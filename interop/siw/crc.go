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

// wrongCRC reports that the guest sent FPDUs with a wrong CRC in a capture, and the host none. The capture is what left the guest, so
// it is the kernel that has summed up something else than it sent.
func wrongCRC(file, guest string, ports []int) (bool, error) {
	wrong := map[string]int{}
	for _, side := range []string{guest, hostIP} {
		out, err := tshark("-r", file, "-Y", "ip.src=="+side+" && tcp.len>0 && ("+onPorts(ports)+")", "-T", "fields",
			"-e", "tcp.stream", "-e", "tcp.seq", "-e", "tcp.payload")
		if err != nil {
			return false, err
		}
		for _, data := range sent(string(out)) {
			wrong[side] += wrongSums(data)
		}
	}
	return wrong[guest] > 0 && wrong[hostIP] == 0, nil
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

// startup is the length of MPA's request and reply without private data.
const startup = 20

// wrongSums counts the FPDUs of one direction whose CRC is wrong.
func wrongSums(data []byte) (wrong int) {
	if len(data) < startup {
		return 0
	}
	data = data[min(len(data), startup+int(binary.BigEndian.Uint16(data[18:]))):]
	for len(data) > 2 {
		end := (2 + int(binary.BigEndian.Uint16(data)) + 3) &^ 3
		if end+4 > len(data) {
			break
		}
		if crc32.Checksum(data[:end], castagnoli) != binary.LittleEndian.Uint32(data[end:]) {
			wrong++
		}
		data = data[end+4:]
	}
	return wrong
}
