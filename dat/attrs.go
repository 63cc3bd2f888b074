package dat

import (
	"math"

	"kdapl/verbs"
)

// ibExtensionVersion is the version of dat_ib_extensions.h whose operations exist here.
const ibExtensionVersion = 209

// attributes tells an adapter's attributes in DAT's terms.
func attributes(name string, d *verbs.Attr) (IAAttr, ProviderAttr) {
	ia := IAAttr{
		AdapterName:                   name,
		VendorName:                    d.Vendor,
		HardwareVersionMajor:          d.HardwareMajor,
		HardwareVersionMinor:          d.HardwareMinor,
		FirmwareVersionMajor:          d.FirmwareMajor,
		FirmwareVersionMinor:          d.FirmwareMinor,
		Address:                       d.Addr,
		MaxEPs:                        d.MaxQP,
		MaxDTOPerEP:                   d.MaxQPWR,
		MaxRDMAReadPerEPIn:            d.MaxReadsIn,
		MaxRDMAReadPerEPOut:           d.MaxReadsOut,
		MaxEVDs:                       d.MaxCQ,
		MaxEVDQLen:                    d.MaxCQE,
		MaxIOVSegmentsPerDTO:          min(d.MaxSendSGE, d.MaxRecvSGE),
		MaxLMRs:                       d.MaxMR,
		MaxLMRBlockSize:               d.MaxMRSize,
		MaxLMRVirtualAddress:          math.MaxUint64,
		MaxPZs:                        d.MaxPD,
		MaxMessageSize:                d.MaxMessage,
		MaxRDMASize:                   d.MaxMessage,
		MaxRMRs:                       d.MaxMW,
		MaxRMRTargetAddress:           math.MaxUint64,
		MaxSRQs:                       d.MaxSRQ,
		MaxEPPerSRQ:                   d.MaxQP,
		MaxRecvPerSRQ:                 d.MaxSRQWR,
		MaxIOVSegmentsPerRDMARead:     d.MaxReadSGE,
		MaxIOVSegmentsPerRDMAWrite:    d.MaxSendSGE,
		MaxRDMAReadIn:                 saturate(d.MaxReadsIn, d.MaxQP),
		MaxRDMAReadOut:                saturate(d.MaxReadsOut, d.MaxQP),
		MaxRDMAReadPerEPInGuaranteed:  true,
		MaxRDMAReadPerEPOutGuaranteed: true,
		ZBSupported:                   d.Can(verbs.CapZeroBased),
	}
	if !d.Can(verbs.CapMW1) && !d.Can(verbs.CapMW2) {
		ia.MaxRMRs, ia.MaxRMRTargetAddress = 0, 0
	}
	if !d.Can(verbs.CapSRQ) {
		ia.MaxSRQs, ia.MaxEPPerSRQ, ia.MaxRecvPerSRQ = 0, 0, 0
	}
	if d.Can(verbs.CapAtomics) || d.Can(verbs.CapWriteImm) || d.Can(verbs.CapUD) {
		ia.Extension, ia.ExtensionVersion = ExtensionIB, ibExtensionVersion
	}
	scope := RMRScopePZ
	if d.Can(verbs.CapMW1 | verbs.CapMW2) {
		scope = RMRScopeAny
	} else if d.Can(verbs.CapMW2) {
		scope = RMRScopeEP
	}
	flags := CompletionSuppress | CompletionUnsignalled | CompletionBarrierFence | CompletionEVDThreshold | CompletionLMRInvalidateFence
	if d.Can(verbs.CapSolicited) {
		flags |= CompletionSolicitedWait
	}
	provider := ProviderAttr{
		Name:                          "kdapl",
		VersionMajor:                  0,
		VersionMinor:                  1,
		DAPLVersionMajor:              DAPLVersionMajor,
		DAPLVersionMinor:              DAPLVersionMinor,
		LMRMemTypesSupported:          MemVirtual | MemLMR,
		IOVOwnershipOnReturn:          IOVConsumer,
		QoSSupported:                  QoSBestEffort,
		CompletionFlagsSupported:      flags,
		ThreadSafe:                    true,
		MaxPrivateDataSize:            d.MaxPrivateData,
		EPCreator:                     EPCreatorIfAsked,
		PZSupport:                     PZUnique,
		UpcallPolicy:                  UpcallMany,
		OptimalBufferAlignment:        OptimalAlignment,
		EVDStreamMergingSupported:     FullMergeMatrix(),
		RDMAWriteForRDMAReadReq:       d.Can(verbs.CapReadSinkRemoteWrite),
		RMRScopeSupported:             scope,
		SignalSafe:                    false,
		InterruptSafe:                 true,
		SRQSupported:                  d.Can(verbs.CapSRQ),
		SRQInfoSupported:              count(d.Can(verbs.CapSRQ)),
		SRQWatermarksSupported:        count(d.Can(verbs.CapSRQ | verbs.CapSRQLimit)),
		SRQEPPZDifferenceSupported:    false, // QPs take SRQs of their own PD only
		EPRecvInfoSupported:           1,
		FMRSupported:                  d.Can(verbs.CapFastReg),
		LMRForFMRScopeSupported:       RMRScopePZ,
		DTOAsyncReturnGuaranteed:      false,
		ProviderSpecificAttrs:         providerSpecific(d),
		RDMAReadLMRRMRContextExposure: false,
	}
	return ia, provider
}

// providerSpecific are the attributes that DAT has no field for.
func providerSpecific(d *verbs.Attr) []NamedAttr {
	meaning := "REMOTE_ACKED"
	if d.Completion == verbs.SourceReusable {
		meaning = "SOURCE_REUSABLE"
	}
	return []NamedAttr{
		// C programs of the OpenIB providers ask for these.
		{AttrRDMARead, "TRUE"},
		{AttrImmediate, truth(d.Can(verbs.CapWriteImm))},
		{AttrFetchAdd, truth(d.Can(verbs.CapAtomics))},
		{AttrCompareSwap, truth(d.Can(verbs.CapAtomics))},
		{AttrUD, truth(d.Can(verbs.CapUD))},
		{AttrCompletionMeaning, meaning},
		{AttrSolicitedKnown, truth(d.Can(verbs.CapSolicited))},
		{AttrReceiverNotReady, truth(d.Can(verbs.CapRNR))},
		{AttrSendInvalidate, truth(d.Can(verbs.CapSendInval))},
	}
}

// The names of this provider's specific attributes.
const (
	// AttrRDMARead: TRUE if RDMA reads work.
	AttrRDMARead = "DAT_IB_RDMA_READ"
	// AttrImmediate: TRUE if RDMA writes with immediate data work.
	AttrImmediate = "DAT_IB_IMMED_DATA"
	// AttrFetchAdd and AttrCompareSwap: TRUE if atomics work.
	AttrFetchAdd    = "DAT_IB_FETCH_AND_ADD"
	AttrCompareSwap = "DAT_IB_CMP_AND_SWAP"
	// AttrCompletionMeaning: what a successful send or RDMA write completion means. REMOTE_ACKED: it
	// is placed at the peer, and the peer accepted it. SOURCE_REUSABLE: the source may be
	// reused; a refusal shows as the end of the connection.
	AttrCompletionMeaning = "KDAPL_COMPLETION_MEANING"
	// AttrSolicitedKnown: TRUE if the adapter tells solicited receives from others.
	AttrSolicitedKnown = "KDAPL_SOLICITED_KNOWN"
	// AttrReceiverNotReady: TRUE if a send that finds no receive waits for one; otherwise it ends the
	// connection.
	AttrReceiverNotReady = "KDAPL_RECEIVER_NOT_READY"
	// AttrSendInvalidate: TRUE if sends can invalidate.
	AttrSendInvalidate = "KDAPL_SEND_WITH_INVALIDATE"
)

// count is 1 for a feature that is there.
func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func truth(b bool) string {
	if b {
		return "TRUE"
	}
	return "FALSE"
}

// saturate multiplies counts within 31 bits, as DAT_COUNT has.
func saturate(a, b int) int {
	if a > 0 && b > math.MaxInt32/a {
		return math.MaxInt32
	}
	return a * b
}
