package dat_test

import (
	"testing"

	"kdapl/dat"
)

var providerTables = []vocabTable{
	{prefixes: []string{"DAT_IOV_"}, values: []vocabValue{
		{dat.IOVConsumer, "DAT_IOV_CONSUMER", 0},
		{dat.IOVProviderNoMod, "DAT_IOV_PROVIDER_NOMOD", 1},
		{dat.IOVProviderMod, "DAT_IOV_PROVIDER_MOD", 2},
	}},
	{prefixes: []string{"DAT_PSP_CREATES_EP_"}, values: []vocabValue{
		{dat.EPCreatorNever, "DAT_PSP_CREATES_EP_NEVER", 0},
		{dat.EPCreatorIfAsked, "DAT_PSP_CREATES_EP_IFASKED", 1},
		{dat.EPCreatorAlways, "DAT_PSP_CREATES_EP_ALWAYS", 2},
	}},
	{prefixes: []string{"DAT_PZ_"}, values: []vocabValue{
		{dat.PZUnique, "DAT_PZ_UNIQUE", 0},
		{dat.PZShareable, "DAT_PZ_SHAREABLE", 1},
	}},
	{prefixes: []string{"DAT_RMR_SCOPE_"}, values: []vocabValue{
		{dat.RMRScopeEP, "DAT_RMR_SCOPE_EP", 0},
		{dat.RMRScopePZ, "DAT_RMR_SCOPE_PZ", 1},
		{dat.RMRScopeAny, "DAT_RMR_SCOPE_ANY", 2},
	}},
	{prefixes: []string{"DAT_HA_LB_"}, values: []vocabValue{
		{dat.HALoadBalancingNone, "DAT_HA_LB_NONE", 0},
		{dat.HALoadBalancingInterComm, "DAT_HA_LB_INTERCOMM", 1},
		{dat.HALoadBalancingIntraComm, "DAT_HA_LB_INTRACOMM", 2},
	}},
	{prefixes: []string{"DAT_HA_"}, values: []vocabValue{
		{dat.HAFalse, "DAT_HA_FALSE", 0},
		{dat.HATrue, "DAT_HA_TRUE", 1},
		{dat.HAUnknown, "DAT_HA_UNKNOWN", 2},
		{dat.HAConflicting, "DAT_HA_CONFLICTING", 3},
		{dat.HAExtensionBase, "DAT_HA_EXTENSION_BASE", 4},
	}},
	{values: []vocabValue{
		{dat.ProviderFieldName, "provider_name", 0x1},
		{dat.ProviderFieldVersionMajor, "provider_version_major", 0x2},
		{dat.ProviderFieldVersionMinor, "provider_version_minor", 0x4},
		{dat.ProviderFieldDAPLVersionMajor, "dapl_version_major", 0x8},
		{dat.ProviderFieldDAPLVersionMinor, "dapl_version_minor", 0x10},
		{dat.ProviderFieldLMRMemTypesSupported, "lmr_mem_types_supported", 0x20},
		{dat.ProviderFieldIOVOwnershipOnReturn, "iov_ownership_on_return", 0x40},
		{dat.ProviderFieldQoSSupported, "dat_qos_supported", 0x80},
		{dat.ProviderFieldCompletionFlagsSupported, "completion_flags_supported", 0x100},
		{dat.ProviderFieldThreadSafe, "is_thread_safe", 0x200},
		{dat.ProviderFieldMaxPrivateDataSize, "max_private_data_size", 0x400},
		{dat.ProviderFieldSupportsMultipath, "supports_multipath", 0x800},
		{dat.ProviderFieldEPCreator, "ep_creator", 0x1000},
		{dat.ProviderFieldUpcallPolicy, "upcall_policy", 0x2000},
		{dat.ProviderFieldOptimalBufferAlignment, "optimal_buffer_alignment", 0x4000},
		{dat.ProviderFieldEVDStreamMergingSupported, "evd_stream_merging_supported", 0x8000},
		{dat.ProviderFieldSRQSupported, "srq_supported", 0x10000},
		{dat.ProviderFieldSRQWatermarksSupported, "srq_watermarks_supported", 0x20000},
		{dat.ProviderFieldSRQEPPZDifferenceSupported, "srq_ep_pz_difference_supported", 0x40000},
		{dat.ProviderFieldSRQInfoSupported, "srq_info_supported", 0x80000},
		{dat.ProviderFieldEPRecvInfoSupported, "ep_recv_info_supported", 0x100000},
		{dat.ProviderFieldLMRSyncReq, "lmr_sync_req", 0x200000},
		{dat.ProviderFieldDTOAsyncReturnGuaranteed, "dto_async_return_guaranteed", 0x400000},
		{dat.ProviderFieldRDMAWriteForRDMAReadReq, "rdma_write_for_rdma_read_req", 0x800000},
		{dat.ProviderFieldRDMAReadLMRRMRContextExposure, "rdma_read_lmr_rmr_context_exposure", 0x1000000},
		{dat.ProviderFieldRMRScopeSupported, "rmr_scope_supported", 0x2000000},
		{dat.ProviderFieldInterruptSafe, "is_interrupt_safe", 0x4000000},
		{dat.ProviderFieldFMRSupported, "fmr_supported", 0x8000000},
		{dat.ProviderFieldLMRForFMRScopeSupported, "lmr_for_fmr_scope_supported", 0x10000000},
		{dat.ProviderFieldHASupported, "ha_supported", 0x20000000},
		{dat.ProviderFieldHALoadBalancing, "ha_loadbalancing", 0x40000000},
		{dat.ProviderFieldNumProviderSpecificAttr, "num_provider_specific_attr", 0x80000000},
		{dat.ProviderFieldProviderSpecificAttr, "provider_specific_attr", 0x100000000},
		{dat.ProviderFieldNone, "NONE", 0},
		{dat.ProviderFieldAll, "ALL", 0x1_FFFF_FFFF},
	}, unions: []string{"ALL"}},
}

func TestProviderMaskOfUDAPL(t *testing.T) {
	for _, c := range []struct {
		mask dat.ProviderMask
		want uint64
	}{
		{dat.ProviderFieldName, 1},
		{dat.ProviderFieldUpcallPolicy, 0x2000},
		{dat.ProviderFieldInterruptSafe, 0x400_0000},
		{dat.ProviderFieldFMRSupported, 0},
		{dat.ProviderFieldLMRForFMRScopeSupported, 0},
		{dat.ProviderFieldHASupported, 0x800_0000},
		{dat.ProviderFieldHALoadBalancing, 0x1000_0000},
		{dat.ProviderFieldNumProviderSpecificAttr, 0x2000_0000},
		{dat.ProviderFieldProviderSpecificAttr, 0x4000_0000},
		{dat.ProviderFieldAll, 0x7FFF_FFFF},
		{dat.ProviderFieldNone, 0},
	} {
		if got := c.mask.UDAPL(); got != c.want {
			t.Errorf("%v is %#x in uDAPL, want %#x", c.mask, got, c.want)
		}
	}
}
