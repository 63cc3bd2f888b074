package dat_test

import (
	"testing"

	"kdapl/dat"
)

var iaTables = []vocabTable{
	{prefixes: []string{"DAT_EXTENSION_"}, values: []vocabValue{
		{dat.ExtensionNone, "DAT_EXTENSION_NONE", 0},
		{dat.ExtensionIB, "DAT_EXTENSION_IB", 1},
		{dat.ExtensionIW, "DAT_EXTENSION_IW", 2},
	}},
	{values: []vocabValue{
		{dat.IAFieldAdapterName, "adapter_name", 0x1},
		{dat.IAFieldVendorName, "vendor_name", 0x2},
		{dat.IAFieldHardwareVersionMajor, "hardware_version_major", 0x4},
		{dat.IAFieldHardwareVersionMinor, "hardware_version_minor", 0x8},
		{dat.IAFieldFirmwareVersionMajor, "firmware_version_major", 0x10},
		{dat.IAFieldFirmwareVersionMinor, "firmware_version_minor", 0x20},
		{dat.IAFieldAddress, "ia_address_ptr", 0x40},
		{dat.IAFieldMaxEPs, "max_eps", 0x80},
		{dat.IAFieldMaxDTOPerEP, "max_dto_per_ep", 0x100},
		{dat.IAFieldMaxRDMAReadPerEPIn, "max_rdma_read_per_ep_in", 0x200},
		{dat.IAFieldMaxRDMAReadPerEPOut, "max_rdma_read_per_ep_out", 0x400},
		{dat.IAFieldMaxEVDs, "max_evds", 0x800},
		{dat.IAFieldMaxEVDQLen, "max_evd_qlen", 0x1000},
		{dat.IAFieldMaxIOVSegmentsPerDTO, "max_iov_segments_per_dto", 0x2000},
		{dat.IAFieldMaxLMRs, "max_lmrs", 0x4000},
		{dat.IAFieldMaxLMRBlockSize, "max_lmr_block_size", 0x8000},
		{dat.IAFieldMaxLMRVirtualAddress, "max_lmr_virtual_address", 0x10000},
		{dat.IAFieldMaxPZs, "max_pzs", 0x20000},
		{dat.IAFieldMaxMessageSize, "max_message_size", 0x40000},
		{dat.IAFieldMaxRDMASize, "max_rdma_size", 0x80000},
		{dat.IAFieldMaxRMRs, "max_rmrs", 0x100000},
		{dat.IAFieldMaxRMRTargetAddress, "max_rmr_target_address", 0x200000},
		{dat.IAFieldMaxSRQs, "max_srqs", 0x400000},
		{dat.IAFieldMaxEPPerSRQ, "max_ep_per_srq", 0x800000},
		{dat.IAFieldMaxRecvPerSRQ, "max_recv_per_srq", 0x1000000},
		{dat.IAFieldMaxIOVSegmentsPerRDMARead, "max_iov_segments_per_rdma_read", 0x2000000},
		{dat.IAFieldMaxIOVSegmentsPerRDMAWrite, "max_iov_segments_per_rdma_write", 0x4000000},
		{dat.IAFieldMaxRDMAReadIn, "max_rdma_read_in", 0x8000000},
		{dat.IAFieldMaxRDMAReadOut, "max_rdma_read_out", 0x10000000},
		{dat.IAFieldMaxRDMAReadPerEPInGuaranteed, "max_rdma_read_per_ep_in_guaranteed", 0x20000000},
		{dat.IAFieldMaxRDMAReadPerEPOutGuaranteed, "max_rdma_read_per_ep_out_guaranteed", 0x40000000},
		{dat.IAFieldZBSupported, "zb_supported", 0x80000000},
		{dat.IAFieldReservedLMRSupported, "reserved_lmr_supported", 0x100000000},
		{dat.IAFieldExtension, "extension_supported", 0x200000000},
		{dat.IAFieldExtensionVersion, "extension_version", 0x400000000},
		{dat.IAFieldNumTransportAttr, "num_transport_attr", 0x800000000},
		{dat.IAFieldTransportAttr, "transport_attr", 0x1000000000},
		{dat.IAFieldNumVendorAttr, "num_vendor_attr", 0x2000000000},
		{dat.IAFieldVendorAttr, "vendor_attr", 0x4000000000},
		{dat.IAFieldNone, "NONE", 0},
		{dat.IAFieldAll, "ALL", 0x7F_FFFF_FFFF},
	}, unions: []string{"ALL"}},
}

func TestIAMaskOfUDAPL(t *testing.T) {
	for _, c := range []struct {
		mask dat.IAMask
		want uint64
	}{
		{dat.IAFieldAdapterName, 1},
		{dat.IAFieldZBSupported, 0x8000_0000},
		{dat.IAFieldReservedLMRSupported, 0},
		{dat.IAFieldExtension, 0x1_0000_0000},
		{dat.IAFieldExtensionVersion, 0x2_0000_0000},
		{dat.IAFieldNumTransportAttr, 0x4_0000_0000},
		{dat.IAFieldTransportAttr, 0x8_0000_0000},
		{dat.IAFieldNumVendorAttr, 0x10_0000_0000},
		{dat.IAFieldVendorAttr, 0x20_0000_0000},
		{dat.IAFieldAll, 0x3F_FFFF_FFFF},
		{dat.IAFieldNone, 0},
	} {
		if got := c.mask.UDAPL(); got != c.want {
			t.Errorf("%v is %#x in uDAPL, want %#x", c.mask, got, c.want)
		}
	}
}
