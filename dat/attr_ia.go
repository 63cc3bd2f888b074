package dat

import "net/netip"

// NamedAttr is an attribute of a transport, vendor or provider (DAT_NAMED_ATTR).
type NamedAttr struct {
	Name, Value string
}

// namedAttr returns the value of the first attribute of that name.
func namedAttr(attrs []NamedAttr, name string) (value string, ok bool) {
	for _, a := range attrs {
		if a.Name == name {
			return a.Value, true
		}
	}
	return "", false
}

// ExtensionType is the family of extensions that an IA has (DAT_EXTENSION_SUPPORTED).
type ExtensionType uint8

// The families of extensions.
const (
	ExtensionNone ExtensionType = iota // none
	ExtensionIB                        // InfiniBand: immediate data, atomics, datagrams
	ExtensionIW                        // iWARP: sockets as connections
)

var extensionNames = []string{"NONE", "IB", "IW"}

// String returns DAT's name without DAT_EXTENSION_.
func (e ExtensionType) String() string { return enumName("ExtensionType", extensionNames, e) }

// MarshalText returns String, so that JSON shows the name.
func (e ExtensionType) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// IAAttr describes an open interface adapter (DAT_IA_ATTR, from dat_ia_query). The
// counts of objects are limits for one IA. Whoever gets an IAAttr leaves its slices
// as they are.
type IAAttr struct {
	// AdapterName is the name that the IA was opened by; at most 255 bytes.
	AdapterName string
	// VendorName names who made the adapter; at most 255 bytes.
	VendorName string
	// HardwareVersionMajor and HardwareVersionMinor are the vendor's.
	HardwareVersionMajor, HardwareVersionMinor uint32
	// FirmwareVersionMajor and FirmwareVersionMinor are the vendor's.
	FirmwareVersionMajor, FirmwareVersionMinor uint32
	// Address is where peers connect to (ia_address_ptr).
	Address netip.Addr
	// MaxEPs limits the number of end points.
	MaxEPs int
	// MaxDTOPerEP limits the outstanding operations of each side of an EP, receives and
	// requests.
	MaxDTOPerEP int
	// MaxRDMAReadPerEPIn limits the RDMA reads and atomics of a peer that an EP answers at
	// a time, and MaxRDMAReadPerEPOut those that it has under way itself.
	MaxRDMAReadPerEPIn, MaxRDMAReadPerEPOut int
	// MaxEVDs limits the number of event dispatchers.
	MaxEVDs int
	// MaxEVDQLen limits the number of events that one EVD can hold.
	MaxEVDQLen int
	// MaxIOVSegmentsPerDTO limits the segments of a send or receive.
	MaxIOVSegmentsPerDTO int
	// MaxLMRs limits the number of local memory regions.
	MaxLMRs int
	// MaxLMRBlockSize limits the bytes of one region. The C attribute has 32 bits
	// and shows larger limits as its maximum.
	MaxLMRBlockSize uint64
	// MaxLMRVirtualAddress is the highest address that a region may contain.
	MaxLMRVirtualAddress uint64
	// MaxPZs limits the number of protection zones.
	MaxPZs int
	// MaxMessageSize limits the bytes of a send.
	MaxMessageSize uint32
	// MaxRDMASize limits the bytes of an RDMA read or write.
	MaxRDMASize uint32
	// MaxRMRs limits the number of remote memory regions; 0 is an adapter without them.
	MaxRMRs int
	// MaxRMRTargetAddress is the highest address that an RMR may contain.
	MaxRMRTargetAddress uint64
	// MaxSRQs limits the number of shared receive queues.
	MaxSRQs int
	// MaxEPPerSRQ limits the EPs of one SRQ.
	MaxEPPerSRQ int
	// MaxRecvPerSRQ limits the receives that an SRQ can hold.
	MaxRecvPerSRQ int
	// MaxIOVSegmentsPerRDMARead and MaxIOVSegmentsPerRDMAWrite limit the local segments
	// of an RDMA read and write.
	MaxIOVSegmentsPerRDMARead, MaxIOVSegmentsPerRDMAWrite int
	// MaxRDMAReadIn and MaxRDMAReadOut are the limits of MaxRDMAReadPerEPIn and
	// MaxRDMAReadPerEPOut for all EPs of the adapter together.
	MaxRDMAReadIn, MaxRDMAReadOut int
	// MaxRDMAReadPerEPInGuaranteed and MaxRDMAReadPerEPOutGuaranteed: an EP that was
	// created has what it asked for; without, it competes for the adapter's.
	MaxRDMAReadPerEPInGuaranteed, MaxRDMAReadPerEPOutGuaranteed bool
	// ZBSupported: regions may be addressed from 0 ([VATypeZB]).
	ZBSupported bool
	// ReservedLMRSupported: the IA has a reserved LMR (kDAPL).
	ReservedLMRSupported bool
	// Extension is the family of extensions (extension_supported), and
	// ExtensionVersion its version.
	Extension        ExtensionType
	ExtensionVersion int
	// TransportAttrs are what the transport says of itself.
	TransportAttrs []NamedAttr
	// VendorAttrs are what the vendor says of the adapter.
	VendorAttrs []NamedAttr
}

// IAMask is a set of fields of [IAAttr], as kDAPL numbers them (DAT_IA_ATTR_MASK).
type IAMask uint64

// The fields of IAAttr, a bit each (DAT_IA_FIELD_…). The fields with Num count the
// named attributes that follow.
const (
	IAFieldAdapterName IAMask = 1 << iota
	IAFieldVendorName
	IAFieldHardwareVersionMajor
	IAFieldHardwareVersionMinor
	IAFieldFirmwareVersionMajor
	IAFieldFirmwareVersionMinor
	IAFieldAddress
	IAFieldMaxEPs
	IAFieldMaxDTOPerEP
	IAFieldMaxRDMAReadPerEPIn
	IAFieldMaxRDMAReadPerEPOut
	IAFieldMaxEVDs
	IAFieldMaxEVDQLen
	IAFieldMaxIOVSegmentsPerDTO
	IAFieldMaxLMRs
	IAFieldMaxLMRBlockSize
	IAFieldMaxLMRVirtualAddress
	IAFieldMaxPZs
	IAFieldMaxMessageSize
	IAFieldMaxRDMASize
	IAFieldMaxRMRs
	IAFieldMaxRMRTargetAddress
	IAFieldMaxSRQs
	IAFieldMaxEPPerSRQ
	IAFieldMaxRecvPerSRQ
	IAFieldMaxIOVSegmentsPerRDMARead
	IAFieldMaxIOVSegmentsPerRDMAWrite
	IAFieldMaxRDMAReadIn
	IAFieldMaxRDMAReadOut
	IAFieldMaxRDMAReadPerEPInGuaranteed
	IAFieldMaxRDMAReadPerEPOutGuaranteed
	IAFieldZBSupported
	IAFieldReservedLMRSupported
	IAFieldExtension
	IAFieldExtensionVersion
	IAFieldNumTransportAttr
	IAFieldTransportAttr
	IAFieldNumVendorAttr
	IAFieldVendorAttr

	IAFieldNone IAMask = 0                        // no field
	IAFieldAll         = IAFieldVendorAttr<<1 - 1 // every field
)

var iaFieldNames = []string{
	"adapter_name", "vendor_name", "hardware_version_major", "hardware_version_minor",
	"firmware_version_major", "firmware_version_minor", "ia_address_ptr", "max_eps",
	"max_dto_per_ep", "max_rdma_read_per_ep_in", "max_rdma_read_per_ep_out", "max_evds",
	"max_evd_qlen", "max_iov_segments_per_dto", "max_lmrs", "max_lmr_block_size",
	"max_lmr_virtual_address", "max_pzs", "max_message_size", "max_rdma_size", "max_rmrs",
	"max_rmr_target_address", "max_srqs", "max_ep_per_srq", "max_recv_per_srq",
	"max_iov_segments_per_rdma_read", "max_iov_segments_per_rdma_write",
	"max_rdma_read_in", "max_rdma_read_out", "max_rdma_read_per_ep_in_guaranteed",
	"max_rdma_read_per_ep_out_guaranteed", "zb_supported", "reserved_lmr_supported",
	"extension_supported", "extension_version", "num_transport_attr", "transport_attr",
	"num_vendor_attr", "vendor_attr",
}

// String returns the names of DAT's struct fields.
func (m IAMask) String() string { return bitString("IAMask", "NONE", iaFieldNames, uint64(m)) }

// MarshalText returns String, so that JSON shows the names.
func (m IAMask) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UDAPL returns the mask as uDAPL numbers it: there is no reserved_lmr_supported, and
// what follows it comes one bit earlier.
func (m IAMask) UDAPL() uint64 {
	low := IAFieldReservedLMRSupported - 1
	return uint64(m&low | m>>1&^low)
}
