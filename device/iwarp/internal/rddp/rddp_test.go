package rddp

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestCodeSplitsIntoLayerTypeAndValue(t *testing.T) {
	for v := range 1 << 16 {
		c := Code(v)
		if got := MakeCode(c.Layer(), c.Type(), c.Value()); got != c {
			t.Fatalf("MakeCode(parts of %#04x) = %#04x", uint16(c), uint16(got))
		}
	}
	if got := MakeCode(0x1F, 0x2F, 0x06); got != 0xFF06 {
		t.Errorf("MakeCode takes the low nibbles only: got %#04x", uint16(got))
	}
}

// The registry's size is that of RFC 6580 sections 3.1-3.3 and RFC 6581 section 8:
// 13 + 12 + 7 single codes, and two error types that take any code.
func TestRegistryHoldsExactlyTheAssignedCodes(t *testing.T) {
	n := 0
	for v := range 1 << 16 {
		if Code(v).Registered() {
			n++
		}
	}
	if want := 13 + 12 + 7 + 256 + 256; n != want {
		t.Errorf("%d codes registered, want %d", n, want)
	}
	if Code(0x0105).Registered() || Code(0x2105).Registered() || Code(0x1200).Registered() {
		t.Error("an unassigned code passes as registered")
	}
}

func TestCodeStringNamesLayerTypeAndCode(t *testing.T) {
	for c, want := range map[Code]string{
		MPACRC:                 "2/0/02 MPA: CRC error",
		RDMAPOpcode:            "0/2/06 RDMAP: unexpected opcode",
		DDPNoBuffer:            "1/2/02 DDP: no buffer for this message sequence number",
		0x00AB:                 "0/0/ab RDMAP: local catastrophic error",
		0x1377:                 "1/3/77 DDP: error of the lower layer",
		0x7123:                 "7/1/23 layer 7: unassigned",
		MPAInsufficientIRD:     "2/0/06 MPA: insufficient IRD",
		DDPTaggedVersion:       "1/1/04 DDP: invalid DDP version in a tagged segment",
		RDMAPProtectInvalidate: "0/1/09 RDMAP: STag cannot be invalidated",
	} {
		if got := c.String(); got != want {
			t.Errorf("%#04x: %q, want %q", uint16(c), got, want)
		}
	}
}

func TestLostStreamAndBadStartupSendNoTerminate(t *testing.T) {
	for c := range names {
		if want := c != 0x2001 && c != 0x2004; c.Sendable() != want {
			t.Errorf("%v: Sendable() = %v", c, c.Sendable())
		}
	}
}

func TestCodeOfFindsTheErrorInATree(t *testing.T) {
	e := &Error{DDPBounds, "TO outside the region"}
	if c, ok := CodeOf(fmt.Errorf("while placing: %w", errors.Join(io.EOF, e))); !ok || c != DDPBounds {
		t.Errorf("CodeOf = %v, %v", c, ok)
	}
	if _, ok := CodeOf(io.EOF); ok {
		t.Error("io.EOF has a code")
	}
	if s := e.Error(); !strings.Contains(s, "TO outside the region") || !strings.Contains(s, "1/1/01") {
		t.Errorf("Error() = %q", s)
	}
}
