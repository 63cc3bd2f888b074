//go:build kdapl_capi && cgo && linux

package main

// #include "kdapl.h"
import "C"

import (
	"math"
	"unsafe"

	"kdapl/dat"
)

// attributes are the named attributes of an IA in C memory.
type attributes struct {
	transport, vendor, provider *C.DAT_NAMED_ATTR
}

// attributes makes them once. nil: the IA was closed.
func (o *object) attributes(p *dat.IAParam) *attributes {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.freed {
		return nil
	}
	if o.attrs == nil {
		o.attrs = &attributes{o.named(p.Attr.TransportAttrs), o.named(p.Attr.VendorAttrs), o.named(p.Provider.ProviderSpecificAttrs)}
	}
	return o.attrs
}

// named puts named attributes into C memory of the object, whose lock is held.
func (o *object) named(attrs []dat.NamedAttr) *C.DAT_NAMED_ATTR {
	if len(attrs) == 0 {
		return nil
	}
	p := C.calloc(C.size_t(len(attrs)), C.sizeof_DAT_NAMED_ATTR)
	o.mem = append(o.mem, p)
	for i, a := range unsafe.Slice((*C.DAT_NAMED_ATTR)(p), len(attrs)) {
		a.name, a.value = C.CString(attrs[i].Name), C.CString(attrs[i].Value)
		o.mem = append(o.mem, unsafe.Pointer(a.name), unsafe.Pointer(a.value))
		unsafe.Slice((*C.DAT_NAMED_ATTR)(p), len(attrs))[i] = a
	}
	return (*C.DAT_NAMED_ATTR)(p)
}

// fromNamed reads named attributes of C.
func fromNamed(p *C.DAT_NAMED_ATTR, n C.DAT_COUNT) []dat.NamedAttr {
	if p == nil || n <= 0 {
		return nil
	}
	out := make([]dat.NamedAttr, 0, n)
	for _, a := range unsafe.Slice(p, int(n)) {
		var v dat.NamedAttr
		if a.name != nil {
			v.Name = C.GoString(a.name)
		}
		if a.value != nil {
			v.Value = C.GoString(a.value)
		}
		out = append(out, v)
	}
	return out
}

func putName(to *[C.DAT_NAME_MAX_LENGTH]C.char, s string) {
	for i := range to {
		to[i] = 0
		if i < len(s) && i < len(to)-1 {
			to[i] = C.char(s[i])
		}
	}
}

func count(n int) C.DAT_COUNT { return C.DAT_COUNT(min(n, math.MaxInt32)) }

func length(n uint64) C.DAT_SEG_LENGTH { return C.DAT_SEG_LENGTH(min(n, math.MaxUint32)) }

func putIAAttr(to *C.DAT_IA_ATTR, a *dat.IAAttr, mem *attributes) {
	*to = C.DAT_IA_ATTR{
		hardware_version_major:              C.DAT_UINT32(a.HardwareVersionMajor),
		hardware_version_minor:              C.DAT_UINT32(a.HardwareVersionMinor),
		firmware_version_major:              C.DAT_UINT32(a.FirmwareVersionMajor),
		firmware_version_minor:              C.DAT_UINT32(a.FirmwareVersionMinor),
		max_eps:                             count(a.MaxEPs),
		max_dto_per_ep:                      count(a.MaxDTOPerEP),
		max_rdma_read_per_ep_in:             count(a.MaxRDMAReadPerEPIn),
		max_rdma_read_per_ep_out:            count(a.MaxRDMAReadPerEPOut),
		max_evds:                            count(a.MaxEVDs),
		max_evd_qlen:                        count(a.MaxEVDQLen),
		max_iov_segments_per_dto:            count(a.MaxIOVSegmentsPerDTO),
		max_lmrs:                            count(a.MaxLMRs),
		max_lmr_block_size:                  length(a.MaxLMRBlockSize),
		max_lmr_virtual_address:             C.DAT_VADDR(a.MaxLMRVirtualAddress),
		max_pzs:                             count(a.MaxPZs),
		max_message_size:                    C.DAT_SEG_LENGTH(a.MaxMessageSize),
		max_rdma_size:                       C.DAT_SEG_LENGTH(a.MaxRDMASize),
		max_rmrs:                            count(a.MaxRMRs),
		max_rmr_target_address:              C.DAT_VADDR(a.MaxRMRTargetAddress),
		max_srqs:                            count(a.MaxSRQs),
		max_ep_per_srq:                      count(a.MaxEPPerSRQ),
		max_recv_per_srq:                    count(a.MaxRecvPerSRQ),
		max_iov_segments_per_rdma_read:      count(a.MaxIOVSegmentsPerRDMARead),
		max_iov_segments_per_rdma_write:     count(a.MaxIOVSegmentsPerRDMAWrite),
		max_rdma_read_in:                    count(a.MaxRDMAReadIn),
		max_rdma_read_out:                   count(a.MaxRDMAReadOut),
		max_rdma_read_per_ep_in_guaranteed:  boolean(a.MaxRDMAReadPerEPInGuaranteed),
		max_rdma_read_per_ep_out_guaranteed: boolean(a.MaxRDMAReadPerEPOutGuaranteed),
		zb_supported:                        boolean(a.ZBSupported),
		extension_supported:                 C.DAT_EXTENSION(a.Extension),
		extension_version:                   count(a.ExtensionVersion),
		num_transport_attr:                  count(len(a.TransportAttrs)),
		transport_attr:                      mem.transport,
		num_vendor_attr:                     count(len(a.VendorAttrs)),
		vendor_attr:                         mem.vendor,
	}
	putName(&to.adapter_name, a.AdapterName)
	putName(&to.vendor_name, a.VendorName)
}

func putProviderAttr(to *C.DAT_PROVIDER_ATTR, a *dat.ProviderAttr, mem *attributes) {
	*to = C.DAT_PROVIDER_ATTR{
		provider_version_major:     C.DAT_UINT32(a.VersionMajor),
		provider_version_minor:     C.DAT_UINT32(a.VersionMinor),
		dapl_version_major:         C.DAT_VERSION_MAJOR,
		dapl_version_minor:         C.DAT_VERSION_MINOR,
		lmr_mem_types_supported:    C.DAT_MEM_TYPE(a.LMRMemTypesSupported & (dat.MemLMR | dat.MemSharedVirtual)),
		iov_ownership_on_return:    C.DAT_IOV_OWNERSHIP(a.IOVOwnershipOnReturn),
		dat_qos_supported:          C.DAT_QOS(a.QoSSupported),
		completion_flags_supported: C.DAT_COMPLETION_FLAGS(a.CompletionFlagsSupported &^ dat.CompletionLMRInvalidateFence),
		// libdat2 closes an IA by the name, version and thread safety that are said here, and programs open
		// it as not thread-safe. It is.
		is_thread_safe:                     C.DAT_FALSE,
		max_private_data_size:              count(a.MaxPrivateDataSize),
		supports_multipath:                 boolean(a.SupportsMultipath),
		ep_creator:                         C.DAT_EP_CREATOR_FOR_PSP(a.EPCreator),
		pz_support:                         C.DAT_PZ_SUPPORT(a.PZSupport),
		optimal_buffer_alignment:           C.DAT_UINT32(a.OptimalBufferAlignment),
		srq_supported:                      boolean(a.SRQSupported),
		srq_watermarks_supported:           count(a.SRQWatermarksSupported),
		srq_ep_pz_difference_supported:     boolean(a.SRQEPPZDifferenceSupported),
		srq_info_supported:                 count(a.SRQInfoSupported),
		ep_recv_info_supported:             count(a.EPRecvInfoSupported),
		lmr_sync_req:                       boolean(a.LMRSyncReq),
		dto_async_return_guaranteed:        boolean(a.DTOAsyncReturnGuaranteed),
		rdma_write_for_rdma_read_req:       boolean(a.RDMAWriteForRDMAReadReq),
		rdma_read_lmr_rmr_context_exposure: boolean(a.RDMAReadLMRRMRContextExposure),
		rmr_scope_supported:                C.DAT_RMR_SCOPE(a.RMRScopeSupported),
		is_signal_safe:                     boolean(a.SignalSafe),
		ha_supported:                       boolean(a.HASupported),
		ha_loadbalancing:                   C.DAT_HA_LB(a.HALoadBalancing),
		num_provider_specific_attr:         count(len(a.ProviderSpecificAttrs)),
		provider_specific_attr:             mem.provider,
	}
	putName(&to.provider_name, a.Name)
	for i := range a.EVDStreamMergingSupported {
		for j, merges := range a.EVDStreamMergingSupported[i] {
			to.evd_stream_merging_supported[i][j] = boolean(merges)
		}
	}
}

func putEPAttr(to *C.DAT_EP_ATTR, a *dat.EPAttr) {
	*to = C.DAT_EP_ATTR{
		service_type:                C.DAT_SERVICE_TYPE(a.ServiceType),
		max_message_size:            C.DAT_SEG_LENGTH(a.MaxMessageSize),
		max_rdma_size:               C.DAT_SEG_LENGTH(a.MaxRDMASize),
		qos:                         C.DAT_QOS(a.QoS),
		recv_completion_flags:       C.DAT_COMPLETION_FLAGS(a.RecvCompletionFlags),
		request_completion_flags:    C.DAT_COMPLETION_FLAGS(a.RequestCompletionFlags),
		max_recv_dtos:               count(a.MaxRecvDTOs),
		max_request_dtos:            count(a.MaxRequestDTOs),
		max_recv_iov:                count(a.MaxRecvIOV),
		max_request_iov:             count(a.MaxRequestIOV),
		max_rdma_read_in:            count(a.MaxRDMAReadIn),
		max_rdma_read_out:           count(a.MaxRDMAReadOut),
		srq_soft_hw:                 count(a.SRQSoftHW),
		max_rdma_read_iov:           count(a.MaxRDMAReadIOV),
		max_rdma_write_iov:          count(a.MaxRDMAWriteIOV),
		ep_transport_specific_count: 0,
		ep_provider_specific_count:  0,
	}
}

func fromEPAttr(a *C.DAT_EP_ATTR) *dat.EPAttr {
	if a == nil {
		return nil
	}
	return &dat.EPAttr{
		ServiceType:            dat.ServiceType(a.service_type),
		MaxMessageSize:         uint32(a.max_message_size),
		MaxRDMASize:            uint32(a.max_rdma_size),
		QoS:                    dat.QoS(a.qos),
		RecvCompletionFlags:    dat.CompletionFlags(a.recv_completion_flags),
		RequestCompletionFlags: dat.CompletionFlags(a.request_completion_flags),
		MaxRecvDTOs:            int(a.max_recv_dtos),
		MaxRequestDTOs:         int(a.max_request_dtos),
		MaxRecvIOV:             int(a.max_recv_iov),
		MaxRequestIOV:          int(a.max_request_iov),
		MaxRDMAReadIn:          int(a.max_rdma_read_in),
		MaxRDMAReadOut:         int(a.max_rdma_read_out),
		SRQSoftHW:              int(a.srq_soft_hw),
		MaxRDMAReadIOV:         int(a.max_rdma_read_iov),
		MaxRDMAWriteIOV:        int(a.max_rdma_write_iov),
		TransportSpecific:      fromNamed(a.ep_transport_specific, a.ep_transport_specific_count),
		ProviderSpecific:       fromNamed(a.ep_provider_specific, a.ep_provider_specific_count),
	}
}

// sizes are the limits of an EP that C programs leave 0, or set lower than what they use, since C providers
// do not check them.
type sizes struct {
	message, rdma     uint32
	readIOV, writeIOV int
}

func sizesOf(a *dat.EPAttr) sizes {
	return sizes{a.MaxMessageSize, a.MaxRDMASize, a.MaxRDMAReadIOV, a.MaxRDMAWriteIOV}
}

func (s sizes) to(a *dat.EPAttr) {
	a.MaxMessageSize, a.MaxRDMASize, a.MaxRDMAReadIOV, a.MaxRDMAWriteIOV = s.message, s.rdma, s.readIOV, s.writeIOV
}

// widen raises the sizes to the adapter's limits. What is above them stays, to be refused.
func widen(a *dat.EPAttr, ia *dat.IA) {
	p, err := ia.Query()
	if a == nil || err != nil {
		return
	}
	a.MaxMessageSize = max(a.MaxMessageSize, p.Attr.MaxMessageSize)
	a.MaxRDMASize = max(a.MaxRDMASize, p.Attr.MaxRDMASize)
	a.MaxRDMAReadIOV = max(a.MaxRDMAReadIOV, p.Attr.MaxIOVSegmentsPerRDMARead)
	a.MaxRDMAWriteIOV = max(a.MaxRDMAWriteIOV, p.Attr.MaxIOVSegmentsPerRDMAWrite)
}
