package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"

	"kdapl/dat"
)

// attribute is a field of dat.IAAttr or dat.ProviderAttr.
type attribute struct {
	name  string // of the C struct
	field string // of the Go struct
	show  func(v any) string
}

// attributeGroup are attributes that belong together.
type attributeGroup struct {
	title      string
	provider   bool // of ProviderAttr
	attributes []attribute
}

// attributeGroups are all attributes.
var attributeGroups = []attributeGroup{
	{title: "adapter", attributes: []attribute{
		{"adapter_name", "AdapterName", nil},
		{"vendor_name", "VendorName", nil},
		{"hardware_version_major", "HardwareVersionMajor", nil},
		{"hardware_version_minor", "HardwareVersionMinor", nil},
		{"firmware_version_major", "FirmwareVersionMajor", nil},
		{"firmware_version_minor", "FirmwareVersionMinor", nil},
		{"ia_address_ptr", "Address", nil},
		{"extension_supported", "Extension", nil},
		{"extension_version", "ExtensionVersion", nil},
		{"transport_attr", "TransportAttrs", nil},
		{"vendor_attr", "VendorAttrs", nil},
	}},
	{title: "end points and transfers", attributes: []attribute{
		{"max_eps", "MaxEPs", nil},
		{"max_dto_per_ep", "MaxDTOPerEP", nil},
		{"max_message_size", "MaxMessageSize", showBytes},
		{"max_rdma_size", "MaxRDMASize", showBytes},
		{"max_iov_segments_per_dto", "MaxIOVSegmentsPerDTO", nil},
		{"max_iov_segments_per_rdma_read", "MaxIOVSegmentsPerRDMARead", nil},
		{"max_iov_segments_per_rdma_write", "MaxIOVSegmentsPerRDMAWrite", nil},
		{"max_rdma_read_in", "MaxRDMAReadIn", nil},
		{"max_rdma_read_out", "MaxRDMAReadOut", nil},
		{"max_rdma_read_per_ep_in", "MaxRDMAReadPerEPIn", nil},
		{"max_rdma_read_per_ep_out", "MaxRDMAReadPerEPOut", nil},
		{"max_rdma_read_per_ep_in_guaranteed", "MaxRDMAReadPerEPInGuaranteed", nil},
		{"max_rdma_read_per_ep_out_guaranteed", "MaxRDMAReadPerEPOutGuaranteed", nil},
	}},
	{title: "events", attributes: []attribute{
		{"max_evds", "MaxEVDs", nil},
		{"max_evd_qlen", "MaxEVDQLen", nil},
	}},
	{title: "memory", attributes: []attribute{
		{"max_pzs", "MaxPZs", nil},
		{"max_lmrs", "MaxLMRs", nil},
		{"max_lmr_block_size", "MaxLMRBlockSize", showBytes},
		{"max_lmr_virtual_address", "MaxLMRVirtualAddress", showAddress},
		{"max_rmrs", "MaxRMRs", nil},
		{"max_rmr_target_address", "MaxRMRTargetAddress", showAddress},
		{"zb_supported", "ZBSupported", nil},
		{"reserved_lmr_supported", "ReservedLMRSupported", nil},
	}},
	{title: "shared receive queues", attributes: []attribute{
		{"max_srqs", "MaxSRQs", nil},
		{"max_ep_per_srq", "MaxEPPerSRQ", nil},
		{"max_recv_per_srq", "MaxRecvPerSRQ", nil},
	}},
	{title: "provider", provider: true, attributes: []attribute{
		{"provider_name", "Name", nil},
		{"provider_version_major", "VersionMajor", nil},
		{"provider_version_minor", "VersionMinor", nil},
		{"dapl_version_major", "DAPLVersionMajor", nil},
		{"dapl_version_minor", "DAPLVersionMinor", nil},
		{"is_thread_safe", "ThreadSafe", nil},
		{"is_signal_safe", "SignalSafe", nil},
		{"is_interrupt_safe", "InterruptSafe", nil},
		{"provider_specific_attr", "ProviderSpecificAttrs", nil},
	}},
	{title: "provider: connections and transfers", provider: true, attributes: []attribute{
		{"max_private_data_size", "MaxPrivateDataSize", showBytes},
		{"dat_qos_supported", "QoSSupported", nil},
		{"supports_multipath", "SupportsMultipath", nil},
		{"ha_supported", "HASupported", nil},
		{"ha_loadbalancing", "HALoadBalancing", nil},
		{"ep_creator", "EPCreator", nil},
		{"ep_recv_info_supported", "EPRecvInfoSupported", nil},
		{"iov_ownership_on_return", "IOVOwnershipOnReturn", nil},
		{"completion_flags_supported", "CompletionFlagsSupported", nil},
		{"dto_async_return_guaranteed", "DTOAsyncReturnGuaranteed", nil},
		{"rdma_write_for_rdma_read_req", "RDMAWriteForRDMAReadReq", nil},
		{"rdma_read_lmr_rmr_context_exposure", "RDMAReadLMRRMRContextExposure", nil},
	}},
	{title: "provider: events", provider: true, attributes: []attribute{
		{"upcall_policy", "UpcallPolicy", nil},
		{"evd_stream_merging_supported", "EVDStreamMergingSupported", nil},
	}},
	{title: "provider: memory", provider: true, attributes: []attribute{
		{"lmr_mem_types_supported", "LMRMemTypesSupported", nil},
		{"optimal_buffer_alignment", "OptimalBufferAlignment", showBytes},
		{"lmr_sync_req", "LMRSyncReq", nil},
		{"pz_support", "PZSupport", nil},
		{"rmr_scope_supported", "RMRScopeSupported", nil},
		{"fmr_supported", "FMRSupported", nil},
		{"lmr_for_fmr_scope_supported", "LMRForFMRScopeSupported", nil},
	}},
	{title: "provider: shared receive queues", provider: true, attributes: []attribute{
		{"srq_supported", "SRQSupported", nil},
		{"srq_watermarks_supported", "SRQWatermarksSupported", nil},
		{"srq_ep_pz_difference_supported", "SRQEPPZDifferenceSupported", nil},
		{"srq_info_supported", "SRQInfoSupported", nil},
	}},
}

// of returns the attribute's value.
func (g *attributeGroup) of(p *dat.IAParam, a attribute) any {
	from := reflect.ValueOf(&p.Attr)
	if g.provider {
		from = reflect.ValueOf(&p.Provider)
	}
	return from.Elem().FieldByName(a.field).Interface()
}

// text is the value for people.
func (a attribute) text(v any) string {
	if a.show != nil {
		return a.show(v)
	}
	switch v := v.(type) {
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case int:
		return grouped(v)
	case uint32:
		return grouped(v)
	case netip.Addr:
		if !v.IsValid() {
			return "none"
		}
	case []dat.NamedAttr:
		var lines []string
		for _, n := range v {
			lines = append(lines, n.Name+" = "+n.Value)
		}
		if lines == nil {
			return "none"
		}
		return strings.Join(lines, "\n")
	case dat.MergeMatrix:
		return showMatrix(v)
	}
	return strings.ReplaceAll(fmt.Sprint(v), "|", "\n") // flags
}

func showBytes(v any) string {
	n := reflect.ValueOf(v)
	if n.CanInt() {
		return formatBytes(uint64(n.Int()))
	}
	if n.Uint() == math.MaxUint32 || n.Uint() == math.MaxUint64 {
		return "no limit"
	}
	return formatBytes(n.Uint())
}

func showAddress(v any) string { return fmt.Sprintf("%#x", v) }

// mergeStreams are the streams of a merge matrix.
var mergeStreams = [dat.MergeCount]dat.Stream{
	dat.MergeSoftware:          dat.StreamSoftware,
	dat.MergeConnectionRequest: dat.StreamConnectionRequest,
	dat.MergeDTO:               dat.StreamDTO,
	dat.MergeConnection:        dat.StreamConnection,
	dat.MergeRMRBind:           dat.StreamRMRBind,
	dat.MergeAsync:             dat.StreamAsync,
}

// showMatrix says which streams an EVD cannot carry together.
func showMatrix(m dat.MergeMatrix) string {
	if m == dat.FullMergeMatrix() {
		return "all streams with all"
	}
	lines := []string{"all streams with all, but not"}
	for i := range m {
		for j := range m[:i] {
			if !m[i][j] {
				lines = append(lines, fmt.Sprintf("%v with %v", mergeStreams[j], mergeStreams[i]))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// document is the value for programs.
func document(v any) any {
	switch v := v.(type) {
	case []dat.NamedAttr:
		m := map[string]string{}
		for _, n := range v {
			m[n.Name] = n.Value
		}
		return m
	case dat.MergeMatrix:
		m := map[string]map[string]bool{}
		for i, row := range v {
			m[mergeStreams[i].String()] = map[string]bool{}
			for j, ok := range row {
				m[mergeStreams[i].String()][mergeStreams[j].String()] = ok
			}
		}
		return m
	}
	return v
}

// ordered is a JSON object whose members stay in order.
type ordered []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o ordered) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// documents are the attributes of the adapter, or of its provider, by their names in C.
func documents(p *dat.IAParam, provider bool) ordered {
	var o ordered
	for _, g := range attributeGroups {
		for _, a := range g.attributes {
			if g.provider == provider {
				o = append(o, member{a.name, document(g.of(p, a))})
			}
		}
	}
	return o
}
