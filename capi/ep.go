//go:build kdapl_capi && cgo && linux

package main

// #include "kdapl.h"
import "C"

import (
	"net/netip"

	"kdapl/dat"
)

// epHandles finds the objects that an EP is made of, which may all be null.
func epHandles(cfg *dat.EPConfig, pz C.uintptr_t, recv, request, connect C.uintptr_t) C.DAT_RETURN {
	var ok bool
	if cfg.PZ, ok = optional[*dat.PZ](uintptr(pz)); !ok {
		return badHandle(dat.InvalidHandlePZ)
	}
	for _, r := range []struct {
		to  **dat.EVD
		h   C.uintptr_t
		sub dat.Subtype
	}{{&cfg.Recv, recv, dat.InvalidHandleEVDRecv}, {&cfg.Request, request, dat.InvalidHandleEVDRequest}, {&cfg.Connect, connect, dat.InvalidHandleEVDConn}} {
		if *r.to, ok = optional[*dat.EVD](uintptr(r.h)); !ok {
			return badHandle(r.sub)
		}
	}
	return C.DAT_SUCCESS
}

//export kdEPCreate
func kdEPCreate(h C.uintptr_t, pz C.uintptr_t, recv, request, connect C.uintptr_t, attr *C.DAT_EP_ATTR, out *C.DAT_EP_HANDLE) C.DAT_RETURN {
	ia, o, ok := find[*dat.IA](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleIA)
	}
	cfg := dat.EPConfig{Attr: fromEPAttr(attr)}
	if r := epHandles(&cfg, pz, recv, request, connect); r != C.DAT_SUCCESS {
		return r
	}
	if out == nil {
		return badArg(7)
	}
	return newEP(ia, o, cfg, 6, out)
}

// newEP makes an EP whose attributes are the argument at the place.
func newEP(ia *dat.IA, o *object, cfg dat.EPConfig, place int, out *C.DAT_EP_HANDLE) C.DAT_RETURN {
	var asked *sizes
	if cfg.Attr != nil {
		s := sizesOf(cfg.Attr)
		asked = &s
		widen(cfg.Attr, ia)
	}
	ep, err := ia.NewEP(cfg)
	if err != nil {
		return argument(err, dat.InvalidArg6, place)
	}
	r := give(ep, o, (*C.DAT_HANDLE)(out), ep.Free)
	if eo, ok := ep.Context().(*object); ok && r == C.DAT_SUCCESS {
		eo.mu.Lock()
		eo.asked = asked
		eo.mu.Unlock()
	}
	return r
}

//export kdEPCreateWithSRQ
func kdEPCreateWithSRQ(h C.uintptr_t, pz C.uintptr_t, recv, request, connect C.uintptr_t, srq C.uintptr_t, attr *C.DAT_EP_ATTR, out *C.DAT_EP_HANDLE) C.DAT_RETURN {
	ia, o, ok := find[*dat.IA](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleIA)
	}
	cfg := dat.EPConfig{Attr: fromEPAttr(attr)}
	if r := epHandles(&cfg, pz, recv, request, connect); r != C.DAT_SUCCESS {
		return r
	}
	if cfg.SRQ, _, ok = find[*dat.SRQ](uintptr(srq)); !ok {
		return badHandle(dat.InvalidHandleSRQ)
	}
	switch {
	case attr == nil:
		return badArg(7)
	case out == nil:
		return badArg(8)
	}
	return newEP(ia, o, cfg, 7, out)
}

//export kdEPQuery
func kdEPQuery(h C.uintptr_t, mask C.DAT_EP_PARAM_MASK, to *C.DAT_EP_PARAM) C.DAT_RETURN {
	ep, o, ok := find[*dat.EP](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleEP)
	case uint64(mask)&^uint64(dat.EPFieldAll) != 0:
		return badArg(2)
	case to == nil:
		return badArg(3)
	}
	p, err := ep.Query()
	if err != nil {
		return result(err)
	}
	*to = C.DAT_EP_PARAM{
		ep_state:              C.DAT_EP_STATE(p.State),
		local_ia_address_ptr:  o.sockaddr(0, p.LocalAddress, uint16(p.LocalPortQual)),
		local_port_qual:       C.DAT_PORT_QUAL(p.LocalPortQual),
		remote_ia_address_ptr: o.sockaddr(1, p.RemoteAddress, uint16(p.RemotePortQual)),
		remote_port_qual:      C.DAT_PORT_QUAL(p.RemotePortQual),
		pz_handle:             C.DAT_PZ_HANDLE(handleIf(p.PZ, o)),
		recv_evd_handle:       C.DAT_EVD_HANDLE(handleIf(p.Recv, o)),
		request_evd_handle:    C.DAT_EVD_HANDLE(handleIf(p.Request, o)),
		connect_evd_handle:    C.DAT_EVD_HANDLE(handleIf(p.Connect, o)),
		srq_handle:            C.DAT_SRQ_HANDLE(handleIf(p.SRQ, o)),
	}
	o.putIA(&to.ia_handle)
	o.mu.Lock()
	if o.asked != nil {
		o.asked.to(&p.Attr)
	}
	o.mu.Unlock()
	putEPAttr(&to.ep_attr, &p.Attr)
	return C.DAT_SUCCESS
}

//export kdEPModify
func kdEPModify(h C.uintptr_t, mask C.DAT_EP_PARAM_MASK, from *C.DAT_EP_PARAM) C.DAT_RETURN {
	ep, o, ok := find[*dat.EP](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleEP)
	case from == nil:
		return badArg(3)
	}
	m := dat.EPMask(mask)
	p := dat.EPParam{Attr: *fromEPAttr(&from.ep_attr)}
	asked := sizesOf(&p.Attr)
	widen(&p.Attr, o.ia.obj.(*dat.IA))
	var cfg dat.EPConfig
	// Handles that are not asked for may be anything.
	pick := func(f dat.EPMask, h *C.DAT_HANDLE) C.uintptr_t {
		if m&f == 0 {
			return 0
		}
		return C.uintptr_t(word(h))
	}
	r := epHandles(&cfg, pick(dat.EPFieldPZ, (*C.DAT_HANDLE)(&from.pz_handle)),
		pick(dat.EPFieldRecvEVD, (*C.DAT_HANDLE)(&from.recv_evd_handle)),
		pick(dat.EPFieldRequestEVD, (*C.DAT_HANDLE)(&from.request_evd_handle)),
		pick(dat.EPFieldConnectEVD, (*C.DAT_HANDLE)(&from.connect_evd_handle)))
	if r != C.DAT_SUCCESS {
		return r
	}
	p.PZ, p.Recv, p.Request, p.Connect = cfg.PZ, cfg.Recv, cfg.Request, cfg.Connect
	if err := ep.Modify(m, p); err != nil {
		return result(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asked != nil {
		var have dat.EPAttr
		o.asked.to(&have)
		var want dat.EPAttr
		asked.to(&want)
		*o.asked = sizesOf(new(have.With(m, want)))
	}
	return C.DAT_SUCCESS
}

// connectConfig reads what the connect calls have in common; place is that of the private data's size.
func connectConfig(timeout C.DAT_TIMEOUT, size C.DAT_COUNT, data C.uintptr_t, place int) (dat.ConnectConfig, C.DAT_RETURN) {
	private, ok := bytesAt(data, size)
	if !ok {
		return dat.ConnectConfig{}, badArg(place)
	}
	return dat.ConnectConfig{Timeout: duration(timeout), PrivateData: private}, C.DAT_SUCCESS
}

//export kdEPConnect
func kdEPConnect(h C.uintptr_t, to C.DAT_IA_ADDRESS_PTR, qual C.DAT_CONN_QUAL, timeout C.DAT_TIMEOUT, size C.DAT_COUNT, data C.uintptr_t, qos C.DAT_QOS, flags C.DAT_CONNECT_FLAGS) C.DAT_RETURN {
	ep, _, ok := find[*dat.EP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	addr, ok := fromSockaddr(to)
	if !ok {
		if to == nil {
			return badArg(2)
		}
		return fault(dat.InvalidAddress, dat.InvalidAddressUnsupported)
	}
	cfg, r := connectConfig(timeout, size, data, 5)
	if r != C.DAT_SUCCESS {
		return r
	}
	cfg.QoS, cfg.Flags = dat.QoS(qos), dat.ConnectFlags(flags)
	return result(ep.Connect(addr.Addr(), uint64(qual), cfg))
}

//export kdEPCommonConnect
func kdEPCommonConnect(h C.uintptr_t, to C.DAT_IA_ADDRESS_PTR, timeout C.DAT_TIMEOUT, size C.DAT_COUNT, data C.uintptr_t) C.DAT_RETURN {
	ep, _, ok := find[*dat.EP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	addr, ok := fromSockaddr(to)
	if !ok {
		if to == nil {
			return badArg(2)
		}
		return fault(dat.InvalidAddress, dat.InvalidAddressUnsupported)
	}
	cfg, r := connectConfig(timeout, size, data, 4)
	if r != C.DAT_SUCCESS {
		return r
	}
	return result(ep.CommonConnect(addr, cfg))
}

//export kdEPDupConnect
func kdEPDupConnect(h, dup C.uintptr_t, timeout C.DAT_TIMEOUT, size C.DAT_COUNT, data C.uintptr_t, qos C.DAT_QOS) C.DAT_RETURN {
	ep, _, ok := find[*dat.EP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	other, _, ok := find[*dat.EP](uintptr(dup))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	cfg, r := connectConfig(timeout, size, data, 4)
	if r != C.DAT_SUCCESS {
		return r
	}
	cfg.QoS = dat.QoS(qos)
	return result(ep.DupConnect(other, cfg))
}

// onEP runs a call on an EP.
func onEP(h C.uintptr_t, f func(*dat.EP) error) C.DAT_RETURN {
	ep, _, ok := find[*dat.EP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	return result(f(ep))
}

//export kdEPDisconnect
func kdEPDisconnect(h C.uintptr_t, flags C.DAT_CLOSE_FLAGS) C.DAT_RETURN {
	return onEP(h, func(ep *dat.EP) error { return ep.Disconnect(dat.CloseFlags(flags)) })
}

//export kdEPReset
func kdEPReset(h C.uintptr_t) C.DAT_RETURN { return onEP(h, (*dat.EP).Reset) }

//export kdEPFree
func kdEPFree(h C.uintptr_t) C.DAT_RETURN {
	ep, o, ok := find[*dat.EP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	return o.gone(ep.Free())
}

//export kdEPGetStatus
func kdEPGetStatus(h C.uintptr_t, state *C.DAT_EP_STATE, recv, request *C.DAT_BOOLEAN) C.DAT_RETURN {
	return onEP(h, func(ep *dat.EP) error {
		s, err := ep.Status()
		if err != nil {
			return err
		}
		if state != nil {
			*state = C.DAT_EP_STATE(s.State)
		}
		if recv != nil {
			*recv = boolean(s.RecvIdle)
		}
		if request != nil {
			*request = boolean(s.RequestIdle)
		}
		return nil
	})
}

//export kdEPRecvQuery
func kdEPRecvQuery(h C.uintptr_t, allocated, span *C.DAT_COUNT) C.DAT_RETURN {
	return onEP(h, func(ep *dat.EP) error {
		i, err := ep.RecvQuery()
		if err != nil {
			return err
		}
		if allocated != nil {
			*allocated = count(i.Allocated)
		}
		if span != nil {
			*span = count(i.Span)
		}
		return nil
	})
}

//export kdEPSetWatermark
func kdEPSetWatermark(h C.uintptr_t, soft, hard C.DAT_COUNT) C.DAT_RETURN {
	return onEP(h, func(ep *dat.EP) error { return ep.SetWatermark(int(soft), int(hard)) })
}

// addrPort is a socket address that may be null: the adapter's own, and any port.
func addrPort(p C.DAT_IA_ADDRESS_PTR) (netip.AddrPort, bool) {
	if p == nil {
		return netip.AddrPort{}, true
	}
	a, ok := fromSockaddr(p)
	if ok && a.Addr().IsUnspecified() {
		a = netip.AddrPortFrom(netip.Addr{}, a.Port())
	}
	return a, ok
}
