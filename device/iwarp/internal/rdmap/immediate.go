package rdmap

import "kdapl/device/iwarp/internal/ddp"

// ImmediateLen is the length of immediate data, exactly (RFC 7306 section 6.3).
const ImmediateLen = 8

// AppendImmediate appends the whole ULPDU of an Immediate Data message: op is
// [OpImmediate] or [OpImmediateSE]. It takes a sequence number of the Sends' queue
// and a receive buffer of the peer's, as a Send does.
func AppendImmediate(b []byte, op Opcode, msn uint32, data [ImmediateLen]byte) []byte {
	b = ddp.AppendUntagged(b, true, uint8(MakeControl(op)), 0, QueueSend, msn, 0)
	return append(b, data[:]...)
}

// ParseImmediate reads the data behind the DDP header. [ErrLength] unless it is 8
// bytes.
func ParseImmediate(b []byte) ([ImmediateLen]byte, error) {
	if len(b) != ImmediateLen {
		return [ImmediateLen]byte{}, ErrLength
	}
	return [ImmediateLen]byte(b), nil
}
