// Package wiretest gives tests the recorded sessions of the Linux siw driver: whole
// TCP connections between two kernels, from the SYN to both FINs.
//
// The captures in testdata were recorded in the project's interop lab with Debian's
// clients (kernel 6.1). CRCs are off, and the CRC field is zero, but for
// siw-crc-rping; siw-p2p-rping begins with a zero-length Write as RTR;
// siw-mpa1-ucmatose is MPA revision 1; dtest, dtestcm and dapltest carry private
// data. Two of dtest's connections and one of dtestcm's are the program's own plain
// TCP side channel.
package wiretest

import (
	"bytes"
	"embed"
	"strings"
	"testing"

	"kdapl/internal/pcap"
)

//go:embed testdata/*.pcap
var captures embed.FS

// Session is one TCP connection of a capture. Where it speaks MPA, the client is
// the MPA initiator.
type Session struct {
	Capture string // the file's name without suffix
	CRC     bool   // the FPDUs carry CRCs
	*pcap.Connection
}

// MPA reports whether the connection speaks MPA at all.
func (s Session) MPA() bool { return bytes.HasPrefix(s.ToServer.Bytes, []byte("MPA ID Req Frame")) }

// Sessions returns every connection of every capture.
func Sessions(tb testing.TB) []Session {
	tb.Helper()
	files, err := captures.ReadDir("testdata")
	if err != nil {
		tb.Fatal(err)
	}
	var all []Session
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".pcap")
		b, err := captures.ReadFile("testdata/" + f.Name())
		if err != nil {
			tb.Fatal(err)
		}
		r, err := pcap.NewReader(bytes.NewReader(b))
		if err != nil {
			tb.Fatalf("%s: %v", name, err)
		}
		conns, err := pcap.Assemble(r)
		if err != nil {
			tb.Fatalf("%s: %v", name, err)
		}
		for _, c := range conns {
			all = append(all, Session{name, strings.HasPrefix(name, "siw-crc"), c})
		}
	}
	return all
}

// MPA returns the connections that speak MPA.
func MPA(tb testing.TB) []Session {
	tb.Helper()
	var all []Session
	for _, s := range Sessions(tb) {
		if s.MPA() {
			all = append(all, s)
		}
	}
	return all
}
