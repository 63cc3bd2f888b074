// Package iwarp is a software iWARP adapter: RDMAP (RFC 5040, RFC 7306) over DDP (RFC 5041) over MPA
// (RFC 5044, RFC 6581) over ordinary TCP. It needs no RDMA hardware, kernel module, privilege or
// cgo, and speaks with Linux siw and with real iWARP adapters.
//
// [New] makes a device of package verbs from a [Config]; [ParseConfig] reads one from a string. Any number of
// devices, and of instances of one, may be open in a process. What the memory keys, queues and states
// do is the business of package softnic.
//
// # Set-up
//
// The active side sends an MPA request of revision 2 with enhanced set-up, CRC and peer-to-peer mode, offers a
// zero-length write and a zero-length read as RTR message, and sends the one that the reply names, a write if
// it may choose. If the peer resets the connection in answer, it tries once more with revision 1. The
// passive side accepts revisions 1 and 2 and all three RTR messages; in peer-to-peer mode it is established by
// the first FPDU, of whatever kind, and otherwise at once, with its requests held back until the first
// FPDU has come (RFC 5044 section 7.1.2).
//
// A consumer's rejection is a reply with the reject bit, and closes TCP. A refusal by the provider
// (nobody listens any more, no room, Refuse) closes TCP without a reply, in an orderly way, so that it is not
// taken for a peer that knows revision 1 only.
//
// The read depths are those that the frames name: ORD never exceeds the peer's IRD. In revision 1, which says
// nothing of them, each side keeps its own.
//
// # Sending
//
// A message that fits is copied into a buffer with its headers and CRC, and is complete: its source may
// be reused (verbs.SourceReusable). The only request of an idle queue leaves in the poster's own call, in one
// vectored write that does not block. While completions of earlier ones have not been polled, requests gather
// and leave together: when the buffer has grown, at the consumer's next fruitless poll, or by a
// goroutine that is started for it. So nothing waits for a timer or for a consumer.
//
// What is sent is a copy, and the CRC that of the copy. So a region whose owner, or a peer, writes
// to it while it is being sent or read breaks no connection. Without CRCs, sends and writes of 16 KiB and
// more are sent from where they lie, and complete when TCP has taken their last byte.
//
// Segments follow TCP's maximum segment size; on loopback that is about 64 KiB.
//
// # Receiving
//
// Each connection has one receive token. A goroutine with a small stack sleeps until there is input, and then
// a receiver reads, looks around for more, and ends. A consumer that polls a CQ (verbs.Progresser) takes the
// token itself, for up to 16 connections a CQ; while it does, these have no goroutine at all. When the CQ
// is armed, or a few milliseconds after polling stops, they have theirs again.
//
// An FPDU is whole, and its CRC right, before anything of it is placed or acted upon. Without CRCs, the payload
// of a large one is read to its place as it arrives, in ascending order, and the memory looked up again for
// each read. Reads and atomics
// of the peer are answered from the send side and never block receiving. A polled word that a peer writes is
// defined only for aligned words of 8 bytes, through sync/atomic; all else is read after the completion of
// a later send.
//
// # Ends
//
// A violation is answered with the Terminate that RFC 6580 has for it and shows as verbs.ConnBroken with a
// [Fault]; a Terminate of the peer shows there too. A FIN between two FPDUs is verbs.ConnDisconnected; one
// inside, a reset, a time-out or an FPDU that is not completed in time is verbs.ConnBroken. At an end of
// this side what is encoded is sent, then FIN; input is discarded up to the peer's FIN, and only after
// [Config].Linger the connection is reset. Close and Destroy do not wait for that.
//
// # Security (RFC 5042)
//
// The requirements for an RNIC, and where they are met:
//
//   - An STag is valid for one protection domain only: softnic checks the QP's domain at each access, for
//     reads and atomics of the peer too. Type 2 windows are bound to one stream.
//   - No access outside of a buffer as registered; base, bounds, wrap and rights are checked at each segment,
//     under a lock that deregistration takes: when Dereg or an invalidation has returned, the network neither
//     changes nor reads the buffer.
//   - A peer invalidates only what its own stream may: fast-registered regions with remote rights and
//     type 2 windows of its QP.
//   - STags are spread over the whole 32-bit range by a secret bijection of each instance, and carry a
//     generation.
//   - A CQ belongs to one instance; that its overflow harms the QPs on it only is softnic's. dat reserves room.
//   - Inbound reads and atomics are bounded by the agreed depth, at most 128, and queued for each connection;
//     the one beyond ends it (1/2/02).
//   - The connections in the start-up phase are bounded in number ([Config].MaxHalfOpen), in time
//     ([Config].StartTimeout) and in size (532 bytes); unanswered requests by the listener's backlog.
//   - Nothing is taken from the wire before its length is checked (rdmap.CheckHeader).
//   - An established connection holds at most one receive buffer of 256 KiB, and only while there is an
//     incomplete FPDU or its CQ is polled; an FPDU that is not completed within [Config].UserTimeout ends it.
//   - The sink of a read is found by the request, and the response is checked against it; the sink needs
//     no remote right, and its STag on the wire names nothing.
//   - Detecting that a peer takes more than its share of an SRQ is the consumer's: a QP with an SRQ counts as
//     any other.
//   - IPsec, if wanted, is the host's.
//
// # Known limitations
//
//   - No port mapper (iwpmd): it is needed only where an adapter has a TCP stack of its own beside the
//     host's. Peers with offloaded ports have to be addressed by their real port.
//   - No half-closed operation: a peer's FIN ends both directions.
//   - Out-of-order placement by markers needs TCP's own segments, so there is none; markers are sent to
//     a peer that asks, and asked for by option only.
//   - No send with immediate data, no UD QPs, no RNR: a send without a receive ends the connection.
//   - A responder of revision 1 that closes, rather than resets, the connection when it sees revision 2
//     is reached with rev=1 only.
//   - MPA revision 0 (RDMA Consortium) is refused.
package iwarp
