package dat

// DAPLVersionMajor and DAPLVersionMinor are the version of DAT that this package is.
const (
	DAPLVersionMajor = 2
	DAPLVersionMinor = 0
)

// OptimalAlignment is the largest alignment of buffers that a provider may prefer, in
// bytes; what it prefers divides it (DAT_OPTIMAL_ALIGNMENT).
const OptimalAlignment = 256

// IOVOwnership says to whom the segment list of a post belongs when the post has
// returned (DAT_IOV_OWNERSHIP).
type IOVOwnership uint8

// The owners.
const (
	IOVConsumer      IOVOwnership = iota // the consumer, who may reuse it
	IOVProviderNoMod                     // the provider until completion, who does not change it
	IOVProviderMod                       // the provider until completion, who may change it
)

var iovOwnershipNames = []string{"CONSUMER", "PROVIDER_NOMOD", "PROVIDER_MOD"}

// String returns DAT's name without DAT_IOV_.
func (o IOVOwnership) String() string { return enumName("IOVOwnership", iovOwnershipNames, o) }

// MarshalText returns String, so that JSON shows the name.
func (o IOVOwnership) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// EPCreator says whether the provider makes EPs for the requests at public service
// points (DAT_EP_CREATOR_FOR_PSP).
type EPCreator uint8

// The answers.
const (
	EPCreatorNever   EPCreator = iota // only PSPConsumer is possible
	EPCreatorIfAsked                  // both are possible
	EPCreatorAlways                   // only PSPProvider is possible
)

var epCreatorNames = []string{"NEVER", "IFASKED", "ALWAYS"}

// String returns DAT's name without DAT_PSP_CREATES_EP_.
func (c EPCreator) String() string { return enumName("EPCreator", epCreatorNames, c) }

// MarshalText returns String, so that JSON shows the name.
func (c EPCreator) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// PZSupport says whether processes can share a protection zone (DAT_PZ_SUPPORT, uDAPL).
type PZSupport uint8

// The answers.
const (
	PZUnique    PZSupport = iota // each process has its own
	PZShareable                  // processes may share them
)

var pzSupportNames = []string{"UNIQUE", "SHAREABLE"}

// String returns DAT's name without DAT_PZ_.
func (p PZSupport) String() string { return enumName("PZSupport", pzSupportNames, p) }

// MarshalText returns String, so that JSON shows the name.
func (p PZSupport) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// RMRScope says through which EPs an RMR, or an LMR for fast registration, can be used
// (DAT_RMR_SCOPE).
type RMRScope uint8

// The scopes.
const (
	RMRScopeEP  RMRScope = iota // the EP that it was bound on
	RMRScopePZ                  // the EPs of its protection zone
	RMRScopeAny                 // as attribute: either
)

var rmrScopeNames = []string{"EP", "PZ", "ANY"}

// String returns DAT's name without DAT_RMR_SCOPE_.
func (s RMRScope) String() string { return enumName("RMRScope", rmrScopeNames, s) }

// MarshalText returns String, so that JSON shows the name.
func (s RMRScope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// HALoadBalancing says how a provider spreads load over several paths (DAT_HA_LB).
type HALoadBalancing uint32

// The ways.
const (
	HALoadBalancingNone      HALoadBalancing = iota // not at all
	HALoadBalancingInterComm                        // connection by connection
	HALoadBalancingIntraComm                        // within a connection
)

var haLoadBalancingNames = []string{"NONE", "INTERCOMM", "INTRACOMM"}

// String returns DAT's name without DAT_HA_LB_.
func (h HALoadBalancing) String() string {
	return enumName("HALoadBalancing", haLoadBalancingNames, h)
}

// MarshalText returns String, so that JSON shows the name.
func (h HALoadBalancing) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// HARelationship says whether two adapters can stand in for each other
// (DAT_HA_RELATIONSHIP, from dat_registry_providers_related).
type HARelationship uint8

// The answers.
const (
	HAFalse         HARelationship = iota // no
	HATrue                                // yes
	HAUnknown                             // nobody knows
	HAConflicting                         // the two do not agree
	HAExtensionBase                       // the first value for extensions
)

var haRelationshipNames = []string{"FALSE", "TRUE", "UNKNOWN", "CONFLICTING", "EXTENSION_BASE"}

// String returns DAT's name without DAT_HA_.
func (h HARelationship) String() string {
	return enumName("HARelationship", haRelationshipNames, h)
}

// MarshalText returns String, so that JSON shows the name.
func (h HARelationship) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// ProviderAttr describes the provider of an IA (DAT_PROVIDER_ATTR, from dat_ia_query):
// what it can do, and how it behaves where DAT leaves a choice. It has the fields of
// kDAPL and uDAPL. Whoever gets a ProviderAttr leaves its slices as they are.
type ProviderAttr struct {
	// Name is the provider's name (provider_name); at most 255 bytes.
	Name string
	// VersionMajor and VersionMinor are the provider's own version.
	VersionMajor, VersionMinor uint32
	// DAPLVersionMajor and DAPLVersionMinor are the version of DAT.
	DAPLVersionMajor, DAPLVersionMinor uint32
	// LMRMemTypesSupported is the set of memory types; VIRTUAL is implied.
	LMRMemTypesSupported MemType
	// IOVOwnershipOnReturn says to whom a posted segment list belongs.
	IOVOwnershipOnReturn IOVOwnership
	// QoSSupported is the set of qualities of service; BEST_EFFORT is implied.
	QoSSupported QoS
	// CompletionFlagsSupported is the set of completion flags; DEFAULT is implied.
	CompletionFlagsSupported CompletionFlags
	// ThreadSafe: calls on the same object may run at the same time (is_thread_safe).
	ThreadSafe bool
	// MaxPrivateDataSize limits the private data of connect, accept and reject, in bytes.
	// DAT promises 64; an adapter of a transport with less says so here.
	MaxPrivateDataSize int
	// SupportsMultipath: connections over several paths.
	SupportsMultipath bool
	// EPCreator says who makes EPs for the requests at PSPs.
	EPCreator EPCreator
	// PZSupport says whether processes can share protection zones (uDAPL).
	PZSupport PZSupport
	// UpcallPolicy is the most that EVDs offer (kDAPL): MANY means every policy.
	UpcallPolicy UpcallPolicy
	// OptimalBufferAlignment is the alignment of buffers that is fastest, in bytes; it
	// divides OptimalAlignment.
	OptimalBufferAlignment uint32
	// EVDStreamMergingSupported says which streams an EVD may carry together.
	EVDStreamMergingSupported MergeMatrix
	// SRQSupported: shared receive queues.
	SRQSupported bool
	// SRQWatermarksSupported is not 0 if SRQs have a low watermark and their EPs high ones.
	SRQWatermarksSupported int
	// SRQEPPZDifferenceSupported: an EP and its SRQ may be of different protection zones.
	SRQEPPZDifferenceSupported bool
	// SRQInfoSupported is not 0 if an SRQ's available and outstanding counts are known.
	SRQInfoSupported int
	// EPRecvInfoSupported is not 0 if dat_ep_recv_query has answers.
	EPRecvInfoSupported int
	// LMRSyncReq: memory is not coherent, and the dat_lmr_sync calls are needed.
	LMRSyncReq bool
	// DTOAsyncReturnGuaranteed: a completion never comes before its post has returned.
	DTOAsyncReturnGuaranteed bool
	// RDMAWriteForRDMAReadReq: the sink of an RDMA read needs remote write (iWARP).
	RDMAWriteForRDMAReadReq bool
	// RDMAReadLMRRMRContextExposure: an RDMA read shows the peer a context of its sink
	// with which it could write there (iWARP).
	RDMAReadLMRRMRContextExposure bool
	// RMRScopeSupported is the scope of RMRs.
	RMRScopeSupported RMRScope
	// SignalSafe: calls may be made from signal handlers (is_signal_safe, uDAPL).
	SignalSafe bool
	// InterruptSafe: calls may be made where sleeping is forbidden
	// (is_interrupt_safe, kDAPL).
	InterruptSafe bool
	// FMRSupported: fast registration (kDAPL).
	FMRSupported bool
	// LMRForFMRScopeSupported is the scope of LMRs for fast registration (kDAPL).
	LMRForFMRScopeSupported RMRScope
	// HASupported: connections survive the loss of a path.
	HASupported bool
	// HALoadBalancing says how load is spread over several paths.
	HALoadBalancing HALoadBalancing
	// ProviderSpecificAttrs are what else the provider says of itself.
	ProviderSpecificAttrs []NamedAttr
}

// ProviderMask is a set of fields of [ProviderAttr], as kDAPL numbers them
// (DAT_PROVIDER_ATTR_MASK).
type ProviderMask uint64

// The fields of ProviderAttr, a bit each (DAT_PROVIDER_FIELD_…).
const (
	ProviderFieldName ProviderMask = 1 << iota
	ProviderFieldVersionMajor
	ProviderFieldVersionMinor
	ProviderFieldDAPLVersionMajor
	ProviderFieldDAPLVersionMinor
	ProviderFieldLMRMemTypesSupported
	ProviderFieldIOVOwnershipOnReturn
	ProviderFieldQoSSupported
	ProviderFieldCompletionFlagsSupported
	ProviderFieldThreadSafe
	ProviderFieldMaxPrivateDataSize
	ProviderFieldSupportsMultipath
	ProviderFieldEPCreator
	ProviderFieldUpcallPolicy // PZSupport in uDAPL
	ProviderFieldOptimalBufferAlignment
	ProviderFieldEVDStreamMergingSupported
	ProviderFieldSRQSupported
	ProviderFieldSRQWatermarksSupported
	ProviderFieldSRQEPPZDifferenceSupported
	ProviderFieldSRQInfoSupported
	ProviderFieldEPRecvInfoSupported
	ProviderFieldLMRSyncReq
	ProviderFieldDTOAsyncReturnGuaranteed
	ProviderFieldRDMAWriteForRDMAReadReq
	ProviderFieldRDMAReadLMRRMRContextExposure
	ProviderFieldRMRScopeSupported
	ProviderFieldInterruptSafe // SignalSafe in uDAPL
	ProviderFieldFMRSupported
	ProviderFieldLMRForFMRScopeSupported
	ProviderFieldHASupported
	ProviderFieldHALoadBalancing
	ProviderFieldNumProviderSpecificAttr
	ProviderFieldProviderSpecificAttr

	ProviderFieldNone ProviderMask = 0                                        // no field
	ProviderFieldAll               = ProviderFieldProviderSpecificAttr<<1 - 1 // every field
)

var providerFieldNames = []string{
	"provider_name", "provider_version_major", "provider_version_minor",
	"dapl_version_major", "dapl_version_minor", "lmr_mem_types_supported",
	"iov_ownership_on_return", "dat_qos_supported", "completion_flags_supported",
	"is_thread_safe", "max_private_data_size", "supports_multipath", "ep_creator",
	"upcall_policy", "optimal_buffer_alignment", "evd_stream_merging_supported",
	"srq_supported", "srq_watermarks_supported", "srq_ep_pz_difference_supported",
	"srq_info_supported", "ep_recv_info_supported", "lmr_sync_req",
	"dto_async_return_guaranteed", "rdma_write_for_rdma_read_req",
	"rdma_read_lmr_rmr_context_exposure", "rmr_scope_supported", "is_interrupt_safe",
	"fmr_supported", "lmr_for_fmr_scope_supported", "ha_supported", "ha_loadbalancing",
	"num_provider_specific_attr", "provider_specific_attr",
}

// String returns the names of kDAPL's struct fields.
func (m ProviderMask) String() string {
	return bitString("ProviderMask", "NONE", providerFieldNames, uint64(m))
}

// MarshalText returns String, so that JSON shows the names.
func (m ProviderMask) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UDAPL returns the mask as uDAPL numbers it: there are no attributes of fast
// registration, and what follows them comes two bits earlier.
func (m ProviderMask) UDAPL() uint64 {
	low := ProviderFieldFMRSupported - 1
	return uint64(m&low | m>>2&^low)
}
