//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"testing"
)

// The file has what a kernel sent in a session that failed: MPA's reply, and four FPDUs of which the third has its payload twice in
// its CRC.
func TestAWrongCRCIsSeen(t *testing.T) {
	data, err := os.ReadFile("testdata/summed-twice.bin")
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, data []byte, wrong int) {
		t.Helper()
		if w := wrongSums(data); w != wrong {
			t.Errorf("%s: %d wrong, want %d", what, w, wrong)
		}
	}
	check("as recorded", data, 1)
	at := startup + int(binary.BigEndian.Uint16(data[18:]))
	for range 2 {
		at += (2+int(binary.BigEndian.Uint16(data[at:]))+3)&^3 + 4
	}
	end := at + (2+int(binary.BigEndian.Uint16(data[at:]))+3)&^3
	const header = 16
	crc := crc32.Update(crc32.Checksum(data[at:end], castagnoli), castagnoli, data[at+header:end])
	if got := binary.LittleEndian.Uint32(data[end:]); got != crc {
		t.Errorf("the wrong CRC is %#x, that of the payload twice %#x", got, crc)
	}
	change := func(f func([]byte)) []byte {
		d := bytes.Clone(data)
		f(d)
		return d
	}
	check("with the right CRC", change(func(d []byte) {
		binary.LittleEndian.PutUint32(d[end:], crc32.Checksum(d[at:end], castagnoli))
	}), 0)
	check("with one more that is wrong", change(func(d []byte) { d[end+4+100]++ }), 2)
	for n := range data {
		if w := wrongSums(data[:n]); n < end+4 && w != 0 {
			t.Fatalf("cut after %d bytes, %d are wrong", n, w)
		}
	}
}

func TestWhatASideSentIsPutTogether(t *testing.T) {
	line := func(stream, seq int, data string) string {
		return fmt.Sprintf("%d\t%d\t%s\n", stream, seq, hex.EncodeToString([]byte(data)))
	}
	all := sent(line(0, 1, "abc") + line(1, 1, "xy") + line(0, 4, "de") +
		line(0, 1, "abc") + // again
		line(0, 3, "cdefg") + // and more
		line(1, 9, "z") + // behind a gap
		"\n0\t8\tzz\n0\tx\t61\n0\n")
	if len(all) != 2 || string(all["0"]) != "abcdefg" || string(all["1"]) != "xy" {
		t.Errorf("%q", all)
	}
}
