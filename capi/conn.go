//go:build kdapl_capi && cgo && linux

package main

// #include "kdapl.h"
import "C"

import (
	"errors"
	"unsafe"

	"kdapl/dat"
)

//export kdPSPCreate
func kdPSPCreate(h C.uintptr_t, qual C.DAT_CONN_QUAL, evd C.uintptr_t, flags C.DAT_PSP_FLAGS, out *C.DAT_PSP_HANDLE) C.DAT_RETURN {
	return pspCreate(h, uint64(qual), nil, evd, flags, out)
}

//export kdPSPCreateAny
func kdPSPCreateAny(h C.uintptr_t, qual *C.DAT_CONN_QUAL, evd C.uintptr_t, flags C.DAT_PSP_FLAGS, out *C.DAT_PSP_HANDLE) C.DAT_RETURN {
	if qual == nil {
		return badArg(2)
	}
	return pspCreate(h, 0, qual, evd, flags, out)
}

func pspCreate(h C.uintptr_t, qual uint64, any *C.DAT_CONN_QUAL, evd C.uintptr_t, flags C.DAT_PSP_FLAGS, out *C.DAT_PSP_HANDLE) C.DAT_RETURN {
	ia, o, ok := find[*dat.IA](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleIA)
	}
	e, _, ok := find[*dat.EVD](uintptr(evd))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleEVDCR)
	case out == nil:
		return badArg(5)
	case any == nil && qual == 0:
		return fault(dat.ConnQualUnavailable, dat.NoSubtype) // 0 is no qualifier here, and asks for any in package dat
	}
	p, err := ia.NewPSP(dat.PSPConfig{ConnQual: qual, EVD: e, Flags: dat.PSPFlags(flags)})
	if err != nil {
		return result(err)
	}
	if any != nil {
		*any = C.DAT_CONN_QUAL(p.ConnQual())
	}
	return give(p, o, (*C.DAT_HANDLE)(out), p.Free)
}

//export kdPSPQuery
func kdPSPQuery(h C.uintptr_t, mask C.DAT_PSP_PARAM_MASK, to *C.DAT_PSP_PARAM) C.DAT_RETURN {
	p, o, ok := find[*dat.PSP](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandlePSP)
	case mask&^C.DAT_PSP_FIELD_ALL != 0:
		return badArg(2)
	case to == nil:
		return badArg(3)
	}
	v, err := p.Query()
	if err != nil {
		return result(err)
	}
	*to = C.DAT_PSP_PARAM{
		conn_qual: C.DAT_CONN_QUAL(v.ConnQual), evd_handle: C.DAT_EVD_HANDLE(handleIf(v.EVD, o)),
		psp_flags: C.DAT_PSP_FLAGS(v.Flags),
	}
	o.putIA(&to.ia_handle)
	return C.DAT_SUCCESS
}

//export kdPSPFree
func kdPSPFree(h C.uintptr_t) C.DAT_RETURN {
	p, o, ok := find[*dat.PSP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandlePSP)
	}
	return o.gone(p.Free())
}

//export kdRSPCreate
func kdRSPCreate(h C.uintptr_t, qual C.DAT_CONN_QUAL, ep C.uintptr_t, evd C.uintptr_t, out *C.DAT_RSP_HANDLE) C.DAT_RETURN {
	ia, o, ok := find[*dat.IA](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleIA)
	}
	p, ok := optional[*dat.EP](uintptr(ep))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	e, _, ok := find[*dat.EVD](uintptr(evd))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleEVDCR)
	case out == nil:
		return badArg(5)
	case qual == 0:
		return fault(dat.ConnQualUnavailable, dat.NoSubtype)
	}
	r, err := ia.NewRSP(dat.RSPConfig{ConnQual: uint64(qual), EP: p, EVD: e})
	if err != nil {
		return result(err)
	}
	ret := give(r, o, (*C.DAT_HANDLE)(out), r.Free)
	// The request's event names the RSP, which is gone by then: its EP remembers it.
	if param, err := r.Query(); err == nil && ret == C.DAT_SUCCESS {
		if eo := lookup(uintptr(handleOf(param.EP, o))); eo != nil {
			eo.mu.Lock()
			eo.rsp = unsafe.Pointer(*out)
			eo.mu.Unlock()
		}
	}
	return ret
}

//export kdRSPQuery
func kdRSPQuery(h C.uintptr_t, mask C.DAT_RSP_PARAM_MASK, to *C.DAT_RSP_PARAM) C.DAT_RETURN {
	p, o, ok := find[*dat.RSP](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleRSP)
	case mask&^C.DAT_RSP_FIELD_ALL != 0:
		return badArg(2)
	case to == nil:
		return badArg(3)
	}
	v, err := p.Query()
	if err != nil {
		return result(err)
	}
	*to = C.DAT_RSP_PARAM{
		conn_qual: C.DAT_CONN_QUAL(v.ConnQual), evd_handle: C.DAT_EVD_HANDLE(handleIf(v.EVD, o)),
		ep_handle: C.DAT_EP_HANDLE(handleIf(v.EP, o)),
	}
	o.putIA(&to.ia_handle)
	return C.DAT_SUCCESS
}

//export kdRSPFree
func kdRSPFree(h C.uintptr_t) C.DAT_RETURN {
	p, o, ok := find[*dat.RSP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleRSP)
	}
	if err := p.Free(); err != nil && !errors.Is(err, dat.InvalidHandle) {
		return result(err)
	}
	// An RSP ends with its request, of which the program may not know yet; its handle lasts until it is freed.
	o.drop()
	return C.DAT_SUCCESS
}

//export kdCSPCreate
func kdCSPCreate(h C.uintptr_t, comm *C.DAT_COMM, address C.DAT_IA_ADDRESS_PTR, evd C.uintptr_t, out *C.DAT_CSP_HANDLE) C.DAT_RETURN {
	ia, o, ok := find[*dat.IA](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleIA)
	}
	if comm != nil && comm._type != C.SOCK_STREAM && comm._type != 0 {
		return fault(dat.CommNotSupported, dat.NoSubtype)
	}
	a, ok := addrPort(address)
	if !ok {
		return fault(dat.InvalidAddress, dat.InvalidAddressUnsupported)
	}
	e, _, ok := find[*dat.EVD](uintptr(evd))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleEVDCR)
	case out == nil:
		return badArg(5)
	}
	p, err := ia.NewCSP(dat.CSPConfig{Address: a, EVD: e})
	if err != nil {
		return result(err)
	}
	r := give(p, o, (*C.DAT_HANDLE)(out), p.Free)
	if co := lookup(word((*C.DAT_HANDLE)(out))); r == C.DAT_SUCCESS && co != nil && comm != nil {
		co.mu.Lock()
		co.comm = (*C.DAT_COMM)(C.malloc(C.sizeof_DAT_COMM))
		*co.comm = *comm
		co.mem = append(co.mem, unsafe.Pointer(co.comm))
		co.mu.Unlock()
	}
	return r
}

//export kdCSPQuery
func kdCSPQuery(h C.uintptr_t, mask C.DAT_CSP_PARAM_MASK, to *C.DAT_CSP_PARAM) C.DAT_RETURN {
	p, o, ok := find[*dat.CSP](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleCSP)
	case mask&^C.DAT_CSP_FIELD_ALL != 0:
		return badArg(2)
	case to == nil:
		return badArg(3)
	}
	v, err := p.Query()
	if err != nil {
		return result(err)
	}
	*to = C.DAT_CSP_PARAM{
		comm: o.comm, address_ptr: o.sockaddr(0, v.Address.Addr(), v.Address.Port()),
		evd_handle: C.DAT_EVD_HANDLE(handleIf(v.EVD, o)),
	}
	o.putIA(&to.ia_handle)
	return C.DAT_SUCCESS
}

//export kdCSPFree
func kdCSPFree(h C.uintptr_t) C.DAT_RETURN {
	p, o, ok := find[*dat.CSP](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleCSP)
	}
	return o.gone(p.Free())
}

//export kdCRQuery
func kdCRQuery(h C.uintptr_t, mask C.DAT_CR_PARAM_MASK, to *C.DAT_CR_PARAM) C.DAT_RETURN {
	cr, o, ok := find[*dat.CR](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleCR)
	case mask&^C.DAT_CR_FIELD_ALL != 0:
		return badArg(2)
	case to == nil:
		return badArg(3)
	}
	p, err := cr.Query()
	if err != nil {
		return result(err)
	}
	// The private data are copied once: programs write to them.
	o.mu.Lock()
	if o.private == nil && len(p.PrivateData) > 0 && !o.freed {
		o.private = C.CBytes(p.PrivateData)
	}
	private := o.private
	o.mu.Unlock()
	*to = C.DAT_CR_PARAM{
		remote_ia_address_ptr: o.sockaddr(0, p.RemoteAddress, uint16(p.RemotePortQual)),
		remote_port_qual:      C.DAT_PORT_QUAL(p.RemotePortQual),
		private_data_size:     count(len(p.PrivateData)),
		private_data:          C.DAT_PVOID(private),
		local_ep_handle:       C.DAT_EP_HANDLE(handleIf(p.LocalEP, o)),
	}
	return C.DAT_SUCCESS
}

//export kdCRAccept
func kdCRAccept(h C.uintptr_t, ep C.uintptr_t, size C.DAT_COUNT, data C.uintptr_t) C.DAT_RETURN {
	cr, o, ok := find[*dat.CR](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleCR)
	}
	p, ok := optional[*dat.EP](uintptr(ep))
	if !ok {
		return badHandle(dat.InvalidHandleEP)
	}
	private, ok := bytesAt(data, size)
	if !ok {
		return badArg(4)
	}
	return o.answered(cr.Accept(p, private))
}

// answered ends the handle of a request that was answered. An error leaves the request as it is.
func (o *object) answered(err error) C.DAT_RETURN {
	if err == nil || errors.Is(err, dat.InvalidHandleCR) {
		o.drop()
	}
	return result(err)
}

//export kdCRReject
func kdCRReject(h C.uintptr_t, size C.DAT_COUNT, data C.uintptr_t) C.DAT_RETURN {
	cr, o, ok := find[*dat.CR](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleCR)
	}
	private, ok := bytesAt(data, size)
	if !ok {
		return badArg(3)
	}
	return o.dropped(cr, cr.Reject(private))
}

//export kdCRHandoff
func kdCRHandoff(h C.uintptr_t, qual C.DAT_CONN_QUAL) C.DAT_RETURN {
	cr, o, ok := find[*dat.CR](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleCR)
	}
	return o.dropped(cr, cr.Handoff(uint64(qual)))
}

// dropped is answered for a request that was not accepted: with it goes an EP that the provider made for it.
func (o *object) dropped(cr *dat.CR, err error) C.DAT_RETURN {
	if err == nil {
		o.ia.mu.Lock()
		var eps []*object
		for c := range o.ia.children {
			if ep, ok := c.obj.(*dat.EP); ok {
				if _, err := ep.Status(); errors.Is(err, dat.InvalidHandle) {
					eps = append(eps, c)
				}
			}
		}
		o.ia.mu.Unlock()
		for _, c := range eps {
			c.drop()
		}
	}
	return o.answered(err)
}
