package rdmap

import "kdapl/device/iwarp/internal/ddp"

// AppendSend appends the header of one segment of a Send (RFC 5040 sections 4.6 and
// 4.7): op is one of the four kinds, inv the STag to invalidate, which is sent as 0
// for the kinds that invalidate nothing; mo is where this segment's payload begins
// in the message.
func AppendSend(b []byte, op Opcode, last bool, inv, msn, mo uint32) []byte {
	if !op.Invalidates() {
		inv = 0
	}
	return ddp.AppendUntagged(b, last, uint8(MakeControl(op)), inv, QueueSend, msn, mo)
}
