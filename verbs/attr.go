package verbs

import "net/netip"

// MaxSGE is the length of the segment list of a work request, and so the most
// segments that any device of this contract can offer.
const MaxSGE = 8

// Caps is a set of things that a device can do. What is missing is refused with
// [ErrNotSupported].
type Caps uint32

// The capabilities.
const (
	// CapUD: unreliable datagram QPs and address handles.
	CapUD Caps = 1 << iota
	// CapSRQ: shared receive queues.
	CapSRQ
	// CapSRQLimit: SRQ.SetLimit arms an AsyncSRQLimit event.
	CapSRQLimit
	// CapSRQResize: SRQ.Resize.
	CapSRQResize
	// CapMW1: type 1 memory windows (bound again and again, any QP of the PD).
	CapMW1
	// CapMW2: type 2 memory windows (bound once, tied to the QP, invalidated).
	CapMW2
	// CapFastReg: fast registration and local invalidate as work requests.
	CapFastReg
	// CapZeroBased: regions and windows addressed from 0.
	CapZeroBased
	// CapAtomics: 64-bit fetch-and-add and compare-and-swap.
	CapAtomics
	// CapSendImm: send with immediate data.
	CapSendImm
	// CapWriteImm: RDMA write with immediate data.
	CapWriteImm
	// CapSendInval: send with invalidate.
	CapSendInval
	// CapReadInval: RDMA read that invalidates its local sink key.
	CapReadInval
	// CapSolicited: the device tells solicited receive completions from others, so
	// ArmSolicited and CompletionSolicited mean something.
	CapSolicited
	// CapPeek: the device's CQs implement Peeker.
	CapPeek
	// CapRNR: a send that finds no receive waits for one (receiver not ready); without
	// it, such a send ends the connection.
	CapRNR
	// CapPostChecks: keys, rights and bounds of local segments are checked by the post
	// call, which refuses them; otherwise they complete with StatusLocalProtection.
	CapPostChecks
	// CapReadSinkRemoteWrite: the sink of an RDMA read needs AccessRemoteWrite (iWARP).
	CapReadSinkRemoteWrite
	// CapInline: SendInline.
	CapInline
)

// CompletionMeaning says what a successful completion of a send or RDMA write
// means on a device.
type CompletionMeaning uint8

const (
	// RemoteAcked: the message is placed at the peer and the peer accepted it (IB, RoCE).
	RemoteAcked CompletionMeaning = iota
	// SourceReusable: the source memory may be reused; a refusal by the peer shows as the
	// connection's end (iWARP). Reads and atomics still complete with the peer's verdict.
	SourceReusable
)

// Attr describes an open device: limits, capabilities and what completions mean
// (IBTA Query HCA). Counts are of objects in one Context unless said otherwise; sizes
// are bytes.
type Attr struct {
	// Name is the adapter's name, as in "loop0".
	Name string
	// Vendor names who made the device.
	Vendor string
	// HardwareMajor to FirmwareMinor are the vendor's version numbers.
	HardwareMajor, HardwareMinor, FirmwareMajor, FirmwareMinor uint32
	// Addr is the address that the device listens and connects from.
	Addr netip.Addr

	// Caps is what the device can do beyond RC sends, receives, RDMA writes and reads.
	Caps Caps
	// Completion is the meaning of a successful send or write completion.
	Completion CompletionMeaning

	// MaxQP, MaxCQ, MaxPD, MaxMR, MaxMW, MaxSRQ and MaxAH limit the number of objects.
	MaxQP, MaxCQ, MaxPD, MaxMR, MaxMW, MaxSRQ, MaxAH int
	// MaxQPWR limits the depth of each work queue of a QP.
	MaxQPWR int
	// MaxCQE limits the length of a CQ.
	MaxCQE int
	// MaxSRQWR and MaxSRQSGE limit an SRQ's depth and its segments per request.
	MaxSRQWR, MaxSRQSGE int
	// MaxSendSGE, MaxRecvSGE and MaxReadSGE limit segments per request, at most MaxSGE.
	MaxSendSGE, MaxRecvSGE, MaxReadSGE int
	// MaxReadsIn and MaxReadsOut limit the RDMA reads and atomics that one QP
	// answers and has under way at a time (IRD and ORD).
	MaxReadsIn, MaxReadsOut int
	// MaxMessage limits one message, send or RDMA.
	MaxMessage uint32
	// MaxMR size in bytes of one region.
	MaxMRSize uint64
	// MaxInline limits the payload of a SendInline request.
	MaxInline int
	// MaxFastRegPages limits the ranges of one fast registration.
	MaxFastRegPages int
	// PageSize is the granule of fast registration ranges.
	PageSize int
	// MaxPrivateData limits the private data of Connect, Accept and Reject.
	MaxPrivateData int
	// MaxPort is the highest port that can be listened on and connected to.
	MaxPort uint64
}

// Can reports whether the device has every capability of want.
func (a *Attr) Can(want Caps) bool { return a.Caps&want == want }
