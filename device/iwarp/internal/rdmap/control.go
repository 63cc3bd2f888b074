package rdmap

import (
	"fmt"

	"kdapl/device/iwarp/internal/ddp"
)

// Opcode says which message a segment belongs to (RFC 5040 figure 4, RFC 7306
// figure 2).
type Opcode uint8

// The opcodes. 0xC to 0xE are unassigned.
const (
	OpWrite          Opcode = 0x0
	OpReadRequest    Opcode = 0x1
	OpReadResponse   Opcode = 0x2
	OpSend           Opcode = 0x3
	OpSendInv        Opcode = 0x4 // Send with Invalidate
	OpSendSE         Opcode = 0x5 // Send with Solicited Event
	OpSendSEInv      Opcode = 0x6 // Send with Solicited Event and Invalidate
	OpTerminate      Opcode = 0x7
	OpImmediate      Opcode = 0x8 // Immediate Data
	OpImmediateSE    Opcode = 0x9 // Immediate Data with Solicited Event
	OpAtomicRequest  Opcode = 0xA
	OpAtomicResponse Opcode = 0xB
	OpExperimental   Opcode = 0xF // kept for experiments (RFC 6580 section 3.4); not known here
)

// Queue numbers of untagged messages (RFC 7306 section 10.2).
const (
	QueueSend           = 0 // Sends and immediate data
	QueueReadRequest    = 1 // Read and Atomic Requests
	QueueTerminate      = 2
	QueueAtomicResponse = 3
	Queues              = 4
)

// message describes the messages of one opcode.
type message struct {
	name   string
	tagged bool
	queue  uint8
	// size is the length of a message that has nothing but its own header and so
	// comes in one segment; 0 for one with payload, and for Terminate.
	size uint8
}

var messages = [16]message{
	OpWrite:          {"RDMA Write", true, 0, 0},
	OpReadRequest:    {"RDMA Read Request", false, QueueReadRequest, ReadRequestLen},
	OpReadResponse:   {"RDMA Read Response", true, 0, 0},
	OpSend:           {"Send", false, QueueSend, 0},
	OpSendInv:        {"Send with Invalidate", false, QueueSend, 0},
	OpSendSE:         {"Send with SE", false, QueueSend, 0},
	OpSendSEInv:      {"Send with SE and Invalidate", false, QueueSend, 0},
	OpTerminate:      {"Terminate", false, QueueTerminate, 0},
	OpImmediate:      {"Immediate Data", false, QueueSend, ImmediateLen},
	OpImmediateSE:    {"Immediate Data with SE", false, QueueSend, ImmediateLen},
	OpAtomicRequest:  {"Atomic Request", false, QueueReadRequest, AtomicRequestLen},
	OpAtomicResponse: {"Atomic Response", false, QueueAtomicResponse, AtomicResponseLen},
}

// Known reports whether RFC 5040 or RFC 7306 defines the opcode.
func (o Opcode) Known() bool { return o < OpAtomicResponse+1 }

// Tagged reports whether the message's segments are tagged.
func (o Opcode) Tagged() bool { return messages[o&0xF].tagged }

// Queue is the queue number of an untagged message's segments.
func (o Opcode) Queue() uint32 { return uint32(messages[o&0xF].queue) }

// Send reports whether the message is a Send of any kind.
func (o Opcode) Send() bool { return o >= OpSend && o <= OpSendSEInv }

// Solicited reports whether the message asks for an event at its receiver.
func (o Opcode) Solicited() bool { return o == OpSendSE || o == OpSendSEInv || o == OpImmediateSE }

// Invalidates reports whether the message names an STag to invalidate.
func (o Opcode) Invalidates() bool { return o == OpSendInv || o == OpSendSEInv }

// String names the message.
func (o Opcode) String() string {
	if o.Known() {
		return messages[o].name
	}
	return fmt.Sprintf("RDMAP opcode %#x", uint8(o))
}

// Control is the RDMAP control byte: DDP's ULP byte (RFC 5040 section 4.1).
type Control uint8

// Version is the value of RV for RFC 5040.
const Version = 1

// MakeControl is the control byte of a message sent. Reserved bits are 0.
func MakeControl(o Opcode) Control { return Version<<6 | Control(o&0xF) }

// Version is the RV field.
func (c Control) Version() uint8 { return uint8(c >> 6) }

// Opcode is the message's opcode, known or not.
func (c Control) Opcode() Opcode { return Opcode(c & 0xF) }

// CheckHeader verifies what a segment's headers say about themselves, and returns
// the message's opcode: the DDP version, the queue number, the RDMAP version, the
// opcode, that opcode, T bit and queue belong together, and that a message without
// payload is whole and of its right length (RFC 5040 section 7.2, RFC 7306 sections
// 6.3 and 8.2). Which MSN, offset or STag is right it cannot know.
//
// ulpduLen is the ULPDU_Length. b holds the ULPDU or its beginning, at least its DDP
// header; the header is then a [ddp.Tagged] or a [ddp.Untagged] by the opcode's T
// bit.
func CheckHeader(b []byte, ulpduLen int) (Opcode, error) {
	c, err := ddp.ParseControl(b, ulpduLen)
	if err != nil {
		return 0, err
	}
	head := c.HeaderLen()
	if len(b) < head {
		return 0, ddp.ErrShort
	}
	if err := c.CheckVersion(); err != nil {
		return 0, err
	}
	var qn uint32
	if !c.Tagged() {
		if qn = (*ddp.Untagged)(b).QN(); qn >= Queues {
			return 0, ddp.ErrQN
		}
	}
	r := Control(b[1])
	if r.Version() != Version {
		return r.Opcode(), ErrVersion
	}
	op := r.Opcode()
	m := &messages[op]
	switch {
	case !op.Known() || m.tagged != c.Tagged():
		return op, ErrOpcode
	case qn != uint32(m.queue):
		return op, ddp.ErrQN
	}
	n := ulpduLen - head
	switch {
	case op == OpTerminate:
		if n < TerminateLen {
			return op, ErrLength
		}
	case m.size != 0:
		if n > int(m.size) {
			return op, ddp.ErrTooLong
		}
		if n < int(m.size) || !c.Last() {
			return op, ErrLength
		}
	}
	return op, nil
}
