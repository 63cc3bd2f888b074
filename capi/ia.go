//go:build kdapl_capi && cgo && linux

package main

// #include "kdapl.h"
import "C"

import (
	"context"
	"unsafe"

	"kdapl/dat"
)

//export kdAddName
func kdAddName(name, params *C.char) C.int {
	addAdapter(C.GoString(name), C.GoString(params))
	return 1
}

//export kdIAOpen
func kdIAOpen(name C.DAT_NAME_PTR, qlen C.DAT_COUNT, async *C.DAT_EVD_HANDLE, out *C.DAT_IA_HANDLE) C.DAT_RETURN {
	switch {
	case name == nil:
		return badArg(1)
	case qlen < 0:
		return badArg(2)
	case async == nil:
		return badArg(3)
	case out == nil:
		return badArg(4)
	}
	cfg := dat.Config{Name: C.GoString(name), AsyncEVDMinLen: int(qlen)}
	// DAT_EVD_ASYNC_EXISTS: another IA has the EVD. This one's events are queued where nobody looks.
	given := word((*C.DAT_HANDLE)(async))
	none := given == 1
	if given != 0 && !none {
		evd, _, ok := find[*dat.EVD](given)
		if !ok {
			return badHandle(dat.InvalidHandleEVDAsync)
		}
		cfg.AsyncEVD = evd
	}
	d, err := adapter(cfg.Name)
	if err != nil {
		return fault(dat.ProviderNotFound, dat.NameNotRegistered)
	}
	ia, err := dat.Open(d, cfg)
	if err != nil {
		return result(err)
	}
	o := add(ia, nil, C.kd_provider(name), nil)
	if o == nil {
		ia.Close(context.Background(), dat.CloseAbrupt)
		return fault(dat.InsufficientResources, dat.ResourceMemory)
	}
	o.noAsync = none
	if !none {
		*async = C.DAT_EVD_HANDLE(handleOf(ia.AsyncEVD(), o))
	}
	*out = C.DAT_IA_HANDLE(unsafe.Pointer(o.shell))
	return C.DAT_SUCCESS
}

//export kdIAClose
func kdIAClose(h C.uintptr_t, flags C.DAT_CLOSE_FLAGS) C.DAT_RETURN {
	ia, o, ok := find[*dat.IA](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleIA)
	}
	return o.gone(ia.Close(context.Background(), dat.CloseFlags(flags)))
}

//export kdIAQuery
func kdIAQuery(h C.uintptr_t, async *C.DAT_EVD_HANDLE, iaMask C.DAT_IA_ATTR_MASK, iaAttr *C.DAT_IA_ATTR, mask C.DAT_PROVIDER_ATTR_MASK, attr *C.DAT_PROVIDER_ATTR) C.DAT_RETURN {
	ia, o, ok := find[*dat.IA](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleIA)
	case uint64(iaMask)&^dat.IAFieldAll.UDAPL() != 0:
		return badArg(3)
	case iaMask != 0 && iaAttr == nil:
		return badArg(4)
	case uint64(mask)&^dat.ProviderFieldAll.UDAPL() != 0:
		return badArg(5)
	case mask != 0 && attr == nil:
		return badArg(6)
	}
	p, err := ia.Query()
	if err != nil {
		return result(err)
	}
	if async != nil {
		if o.noAsync {
			*(*uintptr)(unsafe.Pointer(async)) = 2 // DAT_EVD_OUT_OF_SCOPE
		} else {
			*async = C.DAT_EVD_HANDLE(handleOf(p.AsyncEVD, o))
		}
	}
	a := o.attributes(&p)
	if a == nil {
		return badHandle(dat.InvalidHandleIA)
	}
	if iaMask != 0 {
		putIAAttr(iaAttr, &p.Attr, a)
		iaAttr.ia_address_ptr = o.sockaddr(0, p.Attr.Address, 0)
	}
	if mask != 0 {
		putProviderAttr(attr, &p.Provider, a)
	}
	return C.DAT_SUCCESS
}

//export kdIAHARelated
func kdIAHARelated(h C.uintptr_t, name C.DAT_NAME_PTR, answer *C.DAT_BOOLEAN) C.DAT_RETURN {
	ia, _, ok := find[*dat.IA](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleIA)
	case name == nil:
		return badArg(2)
	case answer == nil:
		return badArg(3)
	}
	related, err := ia.HARelated(C.GoString(name))
	*answer = boolean(related)
	return result(err)
}
