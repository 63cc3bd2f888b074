package dat_test

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"kdapl/dat"
)

var epTables = []vocabTable{
	{prefixes: []string{"DAT_", "IB_", "SERVICE_TYPE_"}, values: []vocabValue{
		{dat.ServiceRC, "DAT_SERVICE_TYPE_RC", 0},
		{dat.ServiceUD, "DAT_IB_SERVICE_TYPE_UD", 1},
	}},
	{values: []vocabValue{
		{dat.EPFieldIA, "ia_handle", 0x1},
		{dat.EPFieldState, "ep_state", 0x2},
		{dat.EPFieldComm, "comm", 0x4},
		{dat.EPFieldLocalIAAddress, "local_ia_address", 0x8},
		{dat.EPFieldLocalPortQual, "local_port_qual", 0x10},
		{dat.EPFieldRemoteIAAddress, "remote_ia_address", 0x20},
		{dat.EPFieldRemotePortQual, "remote_port_qual", 0x40},
		{dat.EPFieldPZ, "pz_handle", 0x80},
		{dat.EPFieldRecvEVD, "recv_evd_handle", 0x100},
		{dat.EPFieldRequestEVD, "request_evd_handle", 0x200},
		{dat.EPFieldConnectEVD, "connect_evd_handle", 0x400},
		{dat.EPFieldSRQ, "srq_handle", 0x800},
		{dat.EPFieldServiceType, "service_type", 0x1000},
		{dat.EPFieldMaxMessageSize, "max_message_size", 0x2000},
		{dat.EPFieldMaxRDMASize, "max_rdma_size", 0x4000},
		{dat.EPFieldQoS, "qos", 0x8000},
		{dat.EPFieldRecvCompletionFlags, "recv_completion_flags", 0x10000},
		{dat.EPFieldRequestCompletionFlags, "request_completion_flags", 0x20000},
		{dat.EPFieldMaxRecvDTOs, "max_recv_dtos", 0x40000},
		{dat.EPFieldMaxRequestDTOs, "max_request_dtos", 0x80000},
		{dat.EPFieldMaxRecvIOV, "max_recv_iov", 0x100000},
		{dat.EPFieldMaxRequestIOV, "max_request_iov", 0x200000},
		{dat.EPFieldMaxRDMAReadIn, "max_rdma_read_in", 0x400000},
		{dat.EPFieldMaxRDMAReadOut, "max_rdma_read_out", 0x800000},
		{dat.EPFieldSRQSoftHW, "srq_soft_hw", 0x1000000},
		{dat.EPFieldMaxRDMAReadIOV, "max_rdma_read_iov", 0x2000000},
		{dat.EPFieldMaxRDMAWriteIOV, "max_rdma_write_iov", 0x4000000},
		{dat.EPFieldNumTransportSpecific, "ep_transport_specific_count", 0x8000000},
		{dat.EPFieldTransportSpecific, "ep_transport_specific", 0x10000000},
		{dat.EPFieldNumProviderSpecific, "ep_provider_specific_count", 0x20000000},
		{dat.EPFieldProviderSpecific, "ep_provider_specific", 0x40000000},
		{dat.EPFieldNone, "NONE", 0},
		{dat.EPFieldAll, "ALL", 0x7FFF_FFFF},
		{dat.EPFieldAttrAll, "ATTR_ALL", 0x7FFF_F000},
	}, unions: []string{"ALL", "ATTR_ALL"}},
}

// drawIA draws the limits that EP attributes depend on, none of them beyond DAT_COUNT.
func drawIA(t *rapid.T) dat.IAAttr {
	count := rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(0, math.MaxInt32-1))
	size := rapid.OneOf(rapid.Uint32Range(0, 4096), rapid.Uint32Range(1<<31-1, 1<<31+1), rapid.Uint32Max(math.MaxUint32-1))
	return dat.IAAttr{
		MaxDTOPerEP:                count.Draw(t, "MaxDTOPerEP"),
		MaxRDMAReadPerEPIn:         count.Draw(t, "MaxRDMAReadPerEPIn"),
		MaxRDMAReadPerEPOut:        count.Draw(t, "MaxRDMAReadPerEPOut"),
		MaxIOVSegmentsPerDTO:       count.Draw(t, "MaxIOVSegmentsPerDTO"),
		MaxMessageSize:             size.Draw(t, "MaxMessageSize"),
		MaxRDMASize:                size.Draw(t, "MaxRDMASize"),
		MaxIOVSegmentsPerRDMARead:  count.Draw(t, "MaxIOVSegmentsPerRDMARead"),
		MaxIOVSegmentsPerRDMAWrite: count.Draw(t, "MaxIOVSegmentsPerRDMAWrite"),
	}
}

// drawGood draws attributes that the IA and the provider can honour.
func drawGood(t *rapid.T, ia dat.IAAttr, provider dat.ProviderAttr) dat.EPAttr {
	upTo := func(name string, limit int) int { return rapid.IntRange(0, limit).Draw(t, name) }
	flags := func(name string, one ...dat.CompletionFlags) dat.CompletionFlags {
		return rapid.SampledFrom(one).Filter(func(f dat.CompletionFlags) bool {
			return f == dat.CompletionEVDThreshold || f&^provider.CompletionFlagsSupported == 0
		}).Draw(t, name)
	}
	a := dat.EPAttr{
		MaxMessageSize: rapid.Uint32Max(ia.MaxMessageSize).Draw(t, "size"),
		MaxRDMASize:    rapid.Uint32Max(ia.MaxRDMASize).Draw(t, "rdma size"),
		QoS:            dat.QoS(rapid.Uint32Max(15).Draw(t, "qos")) & provider.QoSSupported,
		RecvCompletionFlags: flags("recv", dat.CompletionDefault, dat.CompletionEVDThreshold,
			dat.CompletionUnsignalled, dat.CompletionSolicitedWait),
		RequestCompletionFlags: flags("request", dat.CompletionDefault, dat.CompletionEVDThreshold,
			dat.CompletionUnsignalled),
		MaxRecvDTOs:     upTo("recv dtos", ia.MaxDTOPerEP),
		MaxRequestDTOs:  upTo("request dtos", ia.MaxDTOPerEP),
		MaxRecvIOV:      upTo("recv iov", ia.MaxIOVSegmentsPerDTO),
		MaxRequestIOV:   upTo("request iov", ia.MaxIOVSegmentsPerDTO),
		MaxRDMAReadIn:   upTo("reads in", ia.MaxRDMAReadPerEPIn),
		MaxRDMAReadOut:  upTo("reads out", ia.MaxRDMAReadPerEPOut),
		SRQSoftHW:       rapid.IntRange(dat.WatermarkInfinite, 0).Draw(t, "soft hw"),
		MaxRDMAReadIOV:  upTo("read iov", ia.MaxIOVSegmentsPerRDMARead),
		MaxRDMAWriteIOV: upTo("write iov", ia.MaxIOVSegmentsPerRDMAWrite),
	}
	if provider.SRQWatermarksSupported != 0 {
		a.SRQSoftHW = rapid.IntRange(dat.WatermarkInfinite, math.MaxInt32).Draw(t, "soft hw")
	}
	return a
}

func drawProvider(t *rapid.T) dat.ProviderAttr {
	return dat.ProviderAttr{
		QoSSupported:             dat.QoS(rapid.Uint32Max(15).Draw(t, "QoSSupported")),
		CompletionFlagsSupported: dat.CompletionFlags(rapid.Uint32Max(0x3F).Draw(t, "CompletionFlagsSupported")),
		SRQWatermarksSupported:   rapid.IntRange(0, 2).Draw(t, "SRQWatermarksSupported"),
	}
}

func TestDefaultEPAttrIsTheReferencesWithinTheLimits(t *testing.T) {
	roomy := dat.IAAttr{
		MaxDTOPerEP: 1000, MaxRDMAReadPerEPIn: 128, MaxRDMAReadPerEPOut: 128, MaxIOVSegmentsPerDTO: 30,
		MaxMessageSize: math.MaxUint32, MaxRDMASize: math.MaxUint32,
		MaxIOVSegmentsPerRDMARead: 30, MaxIOVSegmentsPerRDMAWrite: 30,
	}
	want := dat.EPAttr{
		ServiceType: dat.ServiceRC, MaxMessageSize: 0x8000_0000, MaxRDMASize: 0x8000_0000,
		QoS: dat.QoSBestEffort, RecvCompletionFlags: dat.CompletionEVDThreshold,
		RequestCompletionFlags: dat.CompletionEVDThreshold,
		MaxRecvDTOs:            16, MaxRequestDTOs: 16, MaxRecvIOV: 4, MaxRequestIOV: 4,
		MaxRDMAReadIn: 4, MaxRDMAReadOut: 4, SRQSoftHW: dat.WatermarkInfinite,
		MaxRDMAReadIOV: 4, MaxRDMAWriteIOV: 4,
	}
	if got := dat.DefaultEPAttr(roomy); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	tight := dat.IAAttr{
		MaxDTOPerEP: 2, MaxRDMAReadPerEPIn: 1, MaxRDMAReadPerEPOut: 3, MaxIOVSegmentsPerDTO: 2,
		MaxMessageSize: 100, MaxRDMASize: 200, MaxIOVSegmentsPerRDMARead: 1, MaxIOVSegmentsPerRDMAWrite: 3,
	}
	want.MaxMessageSize, want.MaxRDMASize = 100, 200
	want.MaxRecvDTOs, want.MaxRequestDTOs, want.MaxRecvIOV, want.MaxRequestIOV = 2, 2, 2, 2
	want.MaxRDMAReadIn, want.MaxRDMAReadOut, want.MaxRDMAReadIOV, want.MaxRDMAWriteIOV = 1, 3, 1, 3
	if got := dat.DefaultEPAttr(tight); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDefaultEPAttrSuitsEveryIA(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ia := drawIA(t)
		if f := dat.DefaultEPAttr(ia).Check(ia, dat.ProviderAttr{}); f != nil {
			t.Fatalf("%v: %s", f.Field, f.Hint)
		}
	})
}

func TestEPAttrWithinTheLimitsHasNoFault(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ia, provider := drawIA(t), drawProvider(t)
		if f := drawGood(t, ia, provider).Check(ia, provider); f != nil {
			t.Fatalf("%v: %s", f.Field, f.Hint)
		}
	})
}

// One field is put out of range in attributes that are right otherwise: that field, and
// no other, is at fault.
func TestEPAttrFaultNamesTheField(t *testing.T) {
	type fault struct {
		field dat.EPMask
		typ   dat.Type
		spoil func(t *rapid.T, a *dat.EPAttr, ia dat.IAAttr, provider *dat.ProviderAttr)
	}
	count := func(field dat.EPMask, of func(*dat.EPAttr) *int, limit func(dat.IAAttr) int) fault {
		return fault{field, dat.InvalidParameter, func(t *rapid.T, a *dat.EPAttr, ia dat.IAAttr, _ *dat.ProviderAttr) {
			*of(a) = rapid.OneOf(rapid.IntRange(limit(ia)+1, math.MaxInt32), rapid.IntRange(math.MinInt32, -1)).Draw(t, "count")
		}}
	}
	size := func(field dat.EPMask, of func(*dat.EPAttr) *uint32, limit func(dat.IAAttr) uint32) fault {
		return fault{field, dat.InvalidParameter, func(t *rapid.T, a *dat.EPAttr, ia dat.IAAttr, _ *dat.ProviderAttr) {
			*of(a) = rapid.Uint32Range(limit(ia)+1, math.MaxUint32).Draw(t, "size")
		}}
	}
	flags := func(field dat.EPMask, of func(*dat.EPAttr) *dat.CompletionFlags, bad ...dat.CompletionFlags) fault {
		return fault{field, dat.InvalidParameter, func(t *rapid.T, a *dat.EPAttr, _ dat.IAAttr, provider *dat.ProviderAttr) {
			provider.CompletionFlagsSupported = 0x3F // a wrong flag is wrong although it is offered
			*of(a) = rapid.SampledFrom(bad).Draw(t, "flags")
		}}
	}
	recv := func(a *dat.EPAttr) *dat.CompletionFlags { return &a.RecvCompletionFlags }
	request := func(a *dat.EPAttr) *dat.CompletionFlags { return &a.RequestCompletionFlags }
	dtos := func(ia dat.IAAttr) int { return ia.MaxDTOPerEP }
	segments := func(ia dat.IAAttr) int { return ia.MaxIOVSegmentsPerDTO }
	lacking := func(field dat.EPMask, of func(*dat.EPAttr) *dat.CompletionFlags, flag dat.CompletionFlags) fault {
		return fault{field, dat.ModelNotSupported, func(_ *rapid.T, a *dat.EPAttr, _ dat.IAAttr, provider *dat.ProviderAttr) {
			a.RecvCompletionFlags, a.RequestCompletionFlags = dat.CompletionDefault, dat.CompletionEVDThreshold
			provider.CompletionFlagsSupported = 0x3F &^ flag
			*of(a) = flag
		}}
	}

	faults := []fault{
		size(dat.EPFieldMaxMessageSize, func(a *dat.EPAttr) *uint32 { return &a.MaxMessageSize }, func(ia dat.IAAttr) uint32 { return ia.MaxMessageSize }),
		size(dat.EPFieldMaxRDMASize, func(a *dat.EPAttr) *uint32 { return &a.MaxRDMASize }, func(ia dat.IAAttr) uint32 { return ia.MaxRDMASize }),
		count(dat.EPFieldMaxRecvDTOs, func(a *dat.EPAttr) *int { return &a.MaxRecvDTOs }, dtos),
		count(dat.EPFieldMaxRequestDTOs, func(a *dat.EPAttr) *int { return &a.MaxRequestDTOs }, dtos),
		count(dat.EPFieldMaxRecvIOV, func(a *dat.EPAttr) *int { return &a.MaxRecvIOV }, segments),
		count(dat.EPFieldMaxRequestIOV, func(a *dat.EPAttr) *int { return &a.MaxRequestIOV }, segments),
		count(dat.EPFieldMaxRDMAReadIn, func(a *dat.EPAttr) *int { return &a.MaxRDMAReadIn }, func(ia dat.IAAttr) int { return ia.MaxRDMAReadPerEPIn }),
		count(dat.EPFieldMaxRDMAReadOut, func(a *dat.EPAttr) *int { return &a.MaxRDMAReadOut }, func(ia dat.IAAttr) int { return ia.MaxRDMAReadPerEPOut }),
		count(dat.EPFieldMaxRDMAReadIOV, func(a *dat.EPAttr) *int { return &a.MaxRDMAReadIOV }, func(ia dat.IAAttr) int { return ia.MaxIOVSegmentsPerRDMARead }),
		count(dat.EPFieldMaxRDMAWriteIOV, func(a *dat.EPAttr) *int { return &a.MaxRDMAWriteIOV }, func(ia dat.IAAttr) int { return ia.MaxIOVSegmentsPerRDMAWrite }),
		flags(dat.EPFieldRecvCompletionFlags, recv, dat.CompletionSuppress, dat.CompletionBarrierFence,
			dat.CompletionLMRInvalidateFence, dat.CompletionUnsignalled|dat.CompletionSolicitedWait, 0x40),
		flags(dat.EPFieldRequestCompletionFlags, request, dat.CompletionSuppress, dat.CompletionBarrierFence,
			dat.CompletionLMRInvalidateFence, dat.CompletionSolicitedWait, dat.CompletionUnsignalled|dat.CompletionEVDThreshold, 0x40),
		lacking(dat.EPFieldRecvCompletionFlags, recv, dat.CompletionSolicitedWait),
		lacking(dat.EPFieldRecvCompletionFlags, recv, dat.CompletionUnsignalled),
		lacking(dat.EPFieldRequestCompletionFlags, request, dat.CompletionUnsignalled),
		{dat.EPFieldSRQSoftHW, dat.InvalidParameter, func(t *rapid.T, a *dat.EPAttr, _ dat.IAAttr, _ *dat.ProviderAttr) {
			a.SRQSoftHW = rapid.IntRange(math.MinInt32, dat.WatermarkInfinite-1).Draw(t, "soft hw")
		}},
		{dat.EPFieldSRQSoftHW, dat.ModelNotSupported, func(t *rapid.T, a *dat.EPAttr, _ dat.IAAttr, provider *dat.ProviderAttr) {
			provider.SRQWatermarksSupported = 0
			a.SRQSoftHW = rapid.IntRange(1, math.MaxInt32).Draw(t, "soft hw")
		}},
		{dat.EPFieldQoS, dat.ModelNotSupported, func(t *rapid.T, a *dat.EPAttr, _ dat.IAAttr, provider *dat.ProviderAttr) {
			lack := rapid.SampledFrom([]dat.QoS{dat.QoSHighThroughput, dat.QoSLowLatency, dat.QoSEconomy, dat.QoSPremium, 0x10}).Draw(t, "qos")
			provider.QoSSupported &^= lack
			a.QoS = a.QoS&provider.QoSSupported | lack
		}},
		{dat.EPFieldServiceType, dat.ModelNotSupported, func(_ *rapid.T, a *dat.EPAttr, _ dat.IAAttr, _ *dat.ProviderAttr) {
			a.ServiceType = dat.ServiceUD
		}},
		{dat.EPFieldServiceType, dat.InvalidParameter, func(t *rapid.T, a *dat.EPAttr, _ dat.IAAttr, _ *dat.ProviderAttr) {
			a.ServiceType = dat.ServiceType(rapid.Uint8Min(2).Draw(t, "service"))
		}},
	}
	for _, fault := range faults {
		t.Run(fault.typ.String()+" "+fault.field.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				ia, provider := drawIA(t), drawProvider(t)
				a := drawGood(t, ia, provider)
				fault.spoil(t, &a, ia, &provider)
				f := a.Check(ia, provider)
				if f == nil || f.Field != fault.field || f.Type != fault.typ || f.Hint == "" {
					t.Fatalf("%+v: got %+v", a, f)
				}
			})
		})
	}
}

func TestDatagramEPNeedsTheAttribute(t *testing.T) {
	ud := dat.EPAttr{ServiceType: dat.ServiceUD}
	yes, no := []dat.NamedAttr{{Name: dat.AttrUD, Value: "TRUE"}}, []dat.NamedAttr{{Name: dat.AttrUD, Value: "FALSE"}}
	for _, c := range []struct {
		transport, provider []dat.NamedAttr
		want                bool
	}{
		{nil, nil, false}, {yes, nil, true}, {nil, yes, true}, {no, nil, false}, {no, yes, true},
		{[]dat.NamedAttr{{Name: "DAT_IB_IMMED_DATA", Value: "TRUE"}}, nil, false},
	} {
		f := ud.Check(dat.IAAttr{TransportAttrs: c.transport}, dat.ProviderAttr{ProviderSpecificAttrs: c.provider})
		if (f == nil) != c.want {
			t.Errorf("transport %v, provider %v: %+v", c.transport, c.provider, f)
		}
	}
}

// Each field of EPAttr has its bit: With takes exactly the fields of the mask. The fields
// and bits are in the same order, except for the bits that count named attributes.
func TestWithTakesTheFieldsOfTheMask(t *testing.T) {
	var zero, full dat.EPAttr
	set := reflect.ValueOf(&full).Elem()
	var masks []dat.EPMask
	for m := dat.EPFieldServiceType; m <= dat.EPFieldProviderSpecific; m <<= 1 {
		if m != dat.EPFieldNumTransportSpecific && m != dat.EPFieldNumProviderSpecific {
			masks = append(masks, m)
		}
	}
	if len(masks) != set.NumField() {
		t.Fatalf("%d bits for %d fields", len(masks), set.NumField())
	}
	for i := range set.NumField() {
		switch f := set.Field(i); {
		case f.CanInt():
			f.SetInt(int64(i) + 1)
		case f.CanUint():
			f.SetUint(uint64(i) + 1)
		default:
			f.Set(reflect.ValueOf([]dat.NamedAttr{{Name: "n"}}))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		mask := dat.EPMask(rapid.Uint64().Draw(t, "mask"))
		got := reflect.ValueOf(zero.With(mask, full))
		for i, m := range masks {
			if changed := !got.Field(i).IsZero(); changed != (mask&m != 0) {
				t.Fatalf("%s taken: %v", got.Type().Field(i).Name, changed)
			}
			if mask&m != 0 && !reflect.DeepEqual(got.Field(i).Interface(), set.Field(i).Interface()) {
				t.Fatalf("%s is %v", got.Type().Field(i).Name, got.Field(i))
			}
		}
	})
}
