package dat

import (
	"fmt"
	"math"
	"slices"
)

// ServiceType is the service of an EP (DAT_SERVICE_TYPE).
type ServiceType uint8

// The services.
const (
	// ServiceRC: reliable connections.
	ServiceRC ServiceType = iota
	// ServiceUD: unreliable datagrams, an extension (DAT_IB_SERVICE_TYPE_UD).
	ServiceUD
)

var serviceNames = []string{"RC", "UD"}

// String returns DAT's name without DAT_SERVICE_TYPE_ or DAT_IB_SERVICE_TYPE_.
func (s ServiceType) String() string { return enumName("ServiceType", serviceNames, s) }

// MarshalText returns String, so that JSON shows the name.
func (s ServiceType) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// AttrUD is the name of the transport or provider attribute of an IA that has
// [ServiceUD]; its value is not "FALSE".
const AttrUD = "DAT_IB_UD"

// EPAttr describes an end point (DAT_EP_ATTR). The values are taken literally: a zero
// EPAttr is an EP that cannot send or receive a byte. Start from [DefaultEPAttr].
type EPAttr struct {
	// ServiceType is the service.
	ServiceType ServiceType
	// MaxMessageSize limits the bytes of a send, MaxRDMASize those of an RDMA
	// read or write.
	MaxMessageSize, MaxRDMASize uint32
	// QoS is the quality of service.
	QoS QoS
	// RecvCompletionFlags and RequestCompletionFlags say which completions of a side
	// notify. CompletionDefault and CompletionEVDThreshold: all of them.
	// CompletionUnsignalled: as each post says. CompletionSolicitedWait, receives only:
	// the solicited ones. Failures always notify.
	RecvCompletionFlags, RequestCompletionFlags CompletionFlags
	// MaxRecvDTOs and MaxRequestDTOs limit the outstanding receives, and the
	// outstanding sends, RDMAs, binds and so on. The EP that is created may have more.
	MaxRecvDTOs, MaxRequestDTOs int
	// MaxRecvIOV and MaxRequestIOV limit the segments of a receive, and of a send. The EP
	// that is created may have more. An EP with an SRQ ignores MaxRecvIOV.
	MaxRecvIOV, MaxRequestIOV int
	// MaxRDMAReadIn limits the peer's RDMA reads and atomics that are answered at a
	// time, MaxRDMAReadOut the own ones that are under way.
	MaxRDMAReadIn, MaxRDMAReadOut int
	// SRQSoftHW is the soft high watermark of an EP with an SRQ: an asynchronous event
	// tells when the EP holds more buffers. WatermarkInfinite or 0: none.
	SRQSoftHW int
	// MaxRDMAReadIOV and MaxRDMAWriteIOV limit the local segments of an RDMA read
	// and write.
	MaxRDMAReadIOV, MaxRDMAWriteIOV int
	// TransportSpecific are attributes for the transport.
	TransportSpecific []NamedAttr
	// ProviderSpecific are attributes for the provider.
	ProviderSpecific []NamedAttr
}

// DefaultEPAttr returns the attributes of an EP that is created without attributes: 16
// operations for each side, 4 segments, 4 RDMA reads each way, messages of up to 2 GiB, all
// within the limits of the IA; a reliable connection, best effort, every completion
// notifies.
func DefaultEPAttr(ia IAAttr) EPAttr {
	const (
		size = 0x8000_0000
		dtos = 16
		iov  = 4
		read = 4
	)
	return EPAttr{
		ServiceType:            ServiceRC,
		MaxMessageSize:         min(size, ia.MaxMessageSize),
		MaxRDMASize:            min(size, ia.MaxRDMASize),
		QoS:                    QoSBestEffort,
		RecvCompletionFlags:    CompletionEVDThreshold,
		RequestCompletionFlags: CompletionEVDThreshold,
		MaxRecvDTOs:            min(dtos, ia.MaxDTOPerEP),
		MaxRequestDTOs:         min(dtos, ia.MaxDTOPerEP),
		MaxRecvIOV:             min(iov, ia.MaxIOVSegmentsPerDTO),
		MaxRequestIOV:          min(iov, ia.MaxIOVSegmentsPerDTO),
		MaxRDMAReadIn:          min(read, ia.MaxRDMAReadPerEPIn),
		MaxRDMAReadOut:         min(read, ia.MaxRDMAReadPerEPOut),
		SRQSoftHW:              WatermarkInfinite,
		MaxRDMAReadIOV:         min(iov, ia.MaxIOVSegmentsPerRDMARead),
		MaxRDMAWriteIOV:        min(iov, ia.MaxIOVSegmentsPerRDMAWrite),
	}
}

// EPAttrFault says what is wrong with an EPAttr.
type EPAttrFault struct {
	// Field is the field, one bit.
	Field EPMask
	// Type is the type of the DAT error: InvalidParameter for a value that is out of range,
	// ModelNotSupported for one that the adapter lacks.
	Type Type
	// Hint says it in words, for Error.Hint.
	Hint string
}

// Check returns what is wrong with the attributes for an EP of that IA, nil if nothing
// is. It judges an EP with an SRQ as any other: a MaxRecvIOV that is to be ignored is
// for the caller to clear. Transport- and provider-specific attributes are for those
// who know them.
func (a EPAttr) Check(ia IAAttr, provider ProviderAttr) *EPAttrFault {
	if f := a.checkLimits(ia); f != nil {
		return f
	}
	if f := a.checkOptions(ia, provider); f != nil {
		return f
	}
	all := []CompletionFlags{CompletionDefault, CompletionEVDThreshold, CompletionUnsignalled, CompletionSolicitedWait}
	supported := provider.CompletionFlagsSupported
	if f := checkDiscipline(EPFieldRecvCompletionFlags, a.RecvCompletionFlags, all, supported); f != nil {
		return f
	}
	return checkDiscipline(EPFieldRequestCompletionFlags, a.RequestCompletionFlags, all[:3], supported)
}

// checkLimits compares the numbers with the IA's limits.
func (a EPAttr) checkLimits(ia IAAttr) *EPAttrFault {
	for _, l := range [...]struct {
		field           EPMask
		value, min, max int64
	}{
		{EPFieldMaxMessageSize, int64(a.MaxMessageSize), 0, int64(ia.MaxMessageSize)},
		{EPFieldMaxRDMASize, int64(a.MaxRDMASize), 0, int64(ia.MaxRDMASize)},
		{EPFieldMaxRecvDTOs, int64(a.MaxRecvDTOs), 0, int64(ia.MaxDTOPerEP)},
		{EPFieldMaxRequestDTOs, int64(a.MaxRequestDTOs), 0, int64(ia.MaxDTOPerEP)},
		{EPFieldMaxRecvIOV, int64(a.MaxRecvIOV), 0, int64(ia.MaxIOVSegmentsPerDTO)},
		{EPFieldMaxRequestIOV, int64(a.MaxRequestIOV), 0, int64(ia.MaxIOVSegmentsPerDTO)},
		{EPFieldMaxRDMAReadIn, int64(a.MaxRDMAReadIn), 0, int64(ia.MaxRDMAReadPerEPIn)},
		{EPFieldMaxRDMAReadOut, int64(a.MaxRDMAReadOut), 0, int64(ia.MaxRDMAReadPerEPOut)},
		{EPFieldSRQSoftHW, int64(a.SRQSoftHW), WatermarkInfinite, math.MaxInt32},
		{EPFieldMaxRDMAReadIOV, int64(a.MaxRDMAReadIOV), 0, int64(ia.MaxIOVSegmentsPerRDMARead)},
		{EPFieldMaxRDMAWriteIOV, int64(a.MaxRDMAWriteIOV), 0, int64(ia.MaxIOVSegmentsPerRDMAWrite)},
	} {
		if l.value < l.min || l.value > l.max {
			return &EPAttrFault{l.field, InvalidParameter,
				fmt.Sprintf("%v is %d, allowed are %d to %d", l.field, l.value, l.min, l.max)}
		}
	}
	return nil
}

// checkOptions looks for things that the adapter must have.
func (a EPAttr) checkOptions(ia IAAttr, provider ProviderAttr) *EPAttrFault {
	switch a.ServiceType {
	case ServiceRC:
	case ServiceUD:
		if !hasUD(ia, provider) {
			return &EPAttrFault{EPFieldServiceType, ModelNotSupported,
				"the adapter has no datagrams (attribute " + AttrUD + ")"}
		}
	default:
		return &EPAttrFault{EPFieldServiceType, InvalidParameter,
			fmt.Sprintf("service_type is %v, allowed are RC and UD", a.ServiceType)}
	}
	if lack := a.QoS &^ provider.QoSSupported; lack != 0 {
		return &EPAttrFault{EPFieldQoS, ModelNotSupported,
			fmt.Sprintf("qos %v is not offered, only %v", lack, provider.QoSSupported)}
	}
	if a.SRQSoftHW > 0 && provider.SRQWatermarksSupported == 0 {
		return &EPAttrFault{EPFieldSRQSoftHW, ModelNotSupported, "the adapter has no watermarks"}
	}
	return nil
}

// hasUD reports whether the IA offers datagrams.
func hasUD(ia IAAttr, provider ProviderAttr) bool {
	for _, attrs := range [...][]NamedAttr{ia.TransportAttrs, provider.ProviderSpecificAttrs} {
		if value, ok := namedAttr(attrs, AttrUD); ok && value != "FALSE" {
			return true
		}
	}
	return false
}

// checkDiscipline checks one side's completion flags: one of the allowed, and supported.
func checkDiscipline(field EPMask, flags CompletionFlags, allowed []CompletionFlags, supported CompletionFlags) *EPAttrFault {
	if !slices.Contains(allowed, flags) {
		return &EPAttrFault{field, InvalidParameter,
			fmt.Sprintf("%v is %v, allowed is one of %v", field, flags, allowed)}
	}
	if flags != CompletionEVDThreshold && flags&^supported != 0 {
		return &EPAttrFault{field, ModelNotSupported,
			fmt.Sprintf("%v %v is not offered", field, flags)}
	}
	return nil
}

// With returns the attributes with the fields of the mask taken from b, as
// dat_ep_modify does. Bits of the mask that are no attributes, and those that count
// named attributes, change nothing.
func (a EPAttr) With(mask EPMask, b EPAttr) EPAttr {
	take(mask, EPFieldServiceType, &a.ServiceType, b.ServiceType)
	take(mask, EPFieldMaxMessageSize, &a.MaxMessageSize, b.MaxMessageSize)
	take(mask, EPFieldMaxRDMASize, &a.MaxRDMASize, b.MaxRDMASize)
	take(mask, EPFieldQoS, &a.QoS, b.QoS)
	take(mask, EPFieldRecvCompletionFlags, &a.RecvCompletionFlags, b.RecvCompletionFlags)
	take(mask, EPFieldRequestCompletionFlags, &a.RequestCompletionFlags, b.RequestCompletionFlags)
	take(mask, EPFieldMaxRecvDTOs, &a.MaxRecvDTOs, b.MaxRecvDTOs)
	take(mask, EPFieldMaxRequestDTOs, &a.MaxRequestDTOs, b.MaxRequestDTOs)
	take(mask, EPFieldMaxRecvIOV, &a.MaxRecvIOV, b.MaxRecvIOV)
	take(mask, EPFieldMaxRequestIOV, &a.MaxRequestIOV, b.MaxRequestIOV)
	take(mask, EPFieldMaxRDMAReadIn, &a.MaxRDMAReadIn, b.MaxRDMAReadIn)
	take(mask, EPFieldMaxRDMAReadOut, &a.MaxRDMAReadOut, b.MaxRDMAReadOut)
	take(mask, EPFieldSRQSoftHW, &a.SRQSoftHW, b.SRQSoftHW)
	take(mask, EPFieldMaxRDMAReadIOV, &a.MaxRDMAReadIOV, b.MaxRDMAReadIOV)
	take(mask, EPFieldMaxRDMAWriteIOV, &a.MaxRDMAWriteIOV, b.MaxRDMAWriteIOV)
	take(mask, EPFieldTransportSpecific, &a.TransportSpecific, b.TransportSpecific)
	take(mask, EPFieldProviderSpecific, &a.ProviderSpecific, b.ProviderSpecific)
	return a
}

// take sets *to if the mask has the field.
func take[T any](mask, field EPMask, to *T, from T) {
	if mask&field != 0 {
		*to = from
	}
}

// EPMask is a set of parameters of an EP (DAT_EP_PARAM_MASK).
type EPMask uint64

// The parameters of an EP, a bit each (DAT_EP_FIELD_…). From EPFieldServiceType on they
// are the fields of [EPAttr]; those with Num count the named attributes that follow.
const (
	EPFieldIA EPMask = 1 << iota
	EPFieldState
	EPFieldComm
	EPFieldLocalIAAddress
	EPFieldLocalPortQual
	EPFieldRemoteIAAddress
	EPFieldRemotePortQual
	EPFieldPZ
	EPFieldRecvEVD
	EPFieldRequestEVD
	EPFieldConnectEVD
	EPFieldSRQ
	EPFieldServiceType
	EPFieldMaxMessageSize
	EPFieldMaxRDMASize
	EPFieldQoS
	EPFieldRecvCompletionFlags
	EPFieldRequestCompletionFlags
	EPFieldMaxRecvDTOs
	EPFieldMaxRequestDTOs
	EPFieldMaxRecvIOV
	EPFieldMaxRequestIOV
	EPFieldMaxRDMAReadIn
	EPFieldMaxRDMAReadOut
	EPFieldSRQSoftHW
	EPFieldMaxRDMAReadIOV
	EPFieldMaxRDMAWriteIOV
	EPFieldNumTransportSpecific
	EPFieldTransportSpecific
	EPFieldNumProviderSpecific
	EPFieldProviderSpecific

	EPFieldNone    EPMask = 0                                      // no parameter
	EPFieldAll            = EPFieldProviderSpecific<<1 - 1         // every parameter
	EPFieldAttrAll        = EPFieldAll &^ (EPFieldServiceType - 1) // every field of EPAttr
)

var epFieldNames = []string{
	"ia_handle", "ep_state", "comm", "local_ia_address", "local_port_qual",
	"remote_ia_address", "remote_port_qual", "pz_handle", "recv_evd_handle",
	"request_evd_handle", "connect_evd_handle", "srq_handle",
	"service_type", "max_message_size", "max_rdma_size", "qos", "recv_completion_flags",
	"request_completion_flags", "max_recv_dtos", "max_request_dtos", "max_recv_iov",
	"max_request_iov", "max_rdma_read_in", "max_rdma_read_out", "srq_soft_hw",
	"max_rdma_read_iov", "max_rdma_write_iov", "ep_transport_specific_count",
	"ep_transport_specific", "ep_provider_specific_count", "ep_provider_specific",
}

// String returns the names of DAT's struct fields.
func (m EPMask) String() string { return bitString("EPMask", "NONE", epFieldNames, uint64(m)) }

// MarshalText returns String, so that JSON shows the names.
func (m EPMask) MarshalText() ([]byte, error) { return []byte(m.String()), nil }
