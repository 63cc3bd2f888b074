//go:build kdapl_capi && cgo && linux

package main

// #include "kdapl.h"
import "C"

import (
	"context"
	"unsafe"

	"kdapl/dat"
)

// put writes an event to C. evd is the EVD that it was taken from.
func put(to *C.DAT_EVENT, ev *dat.Event, evd *object) {
	C.kd_event(to, C.uint32_t(ev.Number), unsafe.Pointer(evd.shell))
	switch ev.Stream() {
	case dat.StreamDTO:
		d := ev.DTO()
		C.kd_event_dto(to, handleIf(d.EP, evd), C.uint64_t(d.Cookie), C.uint32_t(d.Status), C.uint32_t(d.Length),
			C.uint32_t(d.Operation), C.uint32_t(d.RMRContext))
	case dat.StreamRMRBind:
		d := ev.RMRBind()
		C.kd_event_bind(to, handleIf(d.RMR, evd), C.uint64_t(d.Cookie), C.uint32_t(d.Status))
	case dat.StreamConnectionRequest:
		putRequest(to, ev, evd)
	case dat.StreamConnection:
		if ev.Number >= dat.IBExtensionRangeBase {
			putUD(to, ev, evd)
			break
		}
		d := ev.Connection()
		if d.EP == nil {
			break
		}
		h := handleOf(d.EP, evd.ia)
		var private unsafe.Pointer
		if o := lookup(uintptr(h)); o != nil && len(d.PrivateData) > 0 {
			private = o.keepPrivate(d.PrivateData)
		}
		n := len(d.PrivateData)
		if private == nil {
			n = 0
		}
		C.kd_event_connection(to, h, C.int(n), private)
	case dat.StreamAsync:
		d := ev.Async()
		var h C.uintptr_t
		if ia, ok := d.Object.(*dat.IA); ok {
			h = C.kd_public(ia.Context().(*object).shell)
		} else if d.Object != nil {
			h = C.uintptr_t(uintptr(handleOf(d.Object, evd.ia)))
		}
		C.kd_event_async(to, h, C.int(d.Reason.DAT()))
	case dat.StreamSoftware:
		C.kd_event_software(to, C.uint64_t(ev.Software()))
	}
	if x, ok := ev.IBExtension(); ok {
		C.kd_event_ib(to, C.uint32_t(x.Type), C.uint32_t(x.Status), C.uint32_t(x.Immediate))
		if x.Handle != nil {
			putAH(to, x.Handle, evd)
		}
	}
}

// handleIf is the handle of an object that may be gone.
func handleIf[T interface {
	dat.Object
	comparable
}](obj T, evd *object) unsafe.Pointer {
	var none T
	if obj == none {
		return nil
	}
	return handleOf(obj, evd.ia)
}

func putRequest(to *C.DAT_EVENT, ev *dat.Event, evd *object) {
	d := ev.Request()
	if d.CR == nil {
		return
	}
	var sp unsafe.Pointer
	if d.ServicePoint != nil {
		sp = handleOf(d.ServicePoint, evd.ia)
	} else if p, err := d.CR.Query(); err == nil && p.LocalEP != nil {
		if eo := lookup(uintptr(handleOf(p.LocalEP, evd.ia))); eo != nil {
			eo.mu.Lock()
			sp = eo.rsp
			eo.mu.Unlock()
		}
	}
	ia := evd.ia
	address := ia.sockaddr(0, ia.obj.(*dat.IA).Address(), 0)
	truncated := C.int(0)
	if d.Truncated {
		truncated = 1
	}
	C.kd_event_cr(to, sp, unsafe.Pointer(address), C.uint64_t(d.ConnQual), handleOf(d.CR, ia), truncated)
}

func putUD(to *C.DAT_EVENT, ev *dat.Event, evd *object) {
	d := ev.UD()
	if d.EP == nil {
		return
	}
	h := handleOf(d.EP, evd.ia)
	var private unsafe.Pointer
	n := 0
	if o := lookup(uintptr(h)); o != nil {
		if private = o.keepPrivate(d.PrivateData); private != nil {
			n = len(d.PrivateData)
		}
	}
	C.kd_event_connection(to, h, C.int(n), private)
}

func putAH(to *C.DAT_EVENT, ah *dat.AddressHandle, evd *object) {
	p, err := ah.Query()
	if err != nil {
		return
	}
	var addr C.struct_sockaddr_in6
	putSockaddr(&addr, p.Address, uint16(p.PortQual))
	C.kd_event_ah(to, handleOf(ah, evd.ia), C.uint32_t(p.QPN), &addr)
}

// queueEmpty is what a dequeue of an empty EVD, and a wait on a CNO that timed out, return: the type without the
// bit for errors, since programs compare with that.
const queueEmpty = C.DAT_RETURN(C.DAT_QUEUE_EMPTY)

//export kdEVDDequeue
func kdEVDDequeue(h C.uintptr_t, to *C.DAT_EVENT) C.DAT_RETURN {
	evd, o, ok := find[*dat.EVD](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandle1)
	case to == nil:
		return badArg(2)
	}
	ev, err := evd.Dequeue()
	switch {
	case err == dat.ErrQueueEmpty:
		return queueEmpty
	case err != nil:
		return result(err)
	}
	put(to, &ev, o)
	return C.DAT_SUCCESS
}

//export kdEVDWaitStep
func kdEVDWaitStep(h C.uintptr_t, w *C.kd_wait, to *C.DAT_EVENT, more *C.DAT_COUNT) C.DAT_RETURN {
	step := stepOf(w)
	evd, o, ok := find[*dat.EVD](uintptr(h))
	if !ok {
		return answer(w, &step, badHandle(dat.InvalidHandle1))
	}
	ev, n, err := dat.ForeignWait(evd, &step)
	if !step.Sleep {
		*more = count(n)
		if err == nil {
			put(to, &ev, o)
		}
	}
	return answer(w, &step, result(err))
}

// kdEVDWait is the wait on an EVD that shares nothing with C: the asynchronous one of an IA.
//
//export kdEVDWait
func kdEVDWait(h C.uintptr_t, timeout C.DAT_TIMEOUT, threshold C.DAT_COUNT, to *C.DAT_EVENT, more *C.DAT_COUNT) C.DAT_RETURN {
	evd, o, ok := find[*dat.EVD](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandle1)
	case to == nil:
		return badArg(4)
	case more == nil:
		return badArg(5)
	}
	ev, n, err := evd.Wait(context.Background(), int(threshold), duration(timeout))
	*more = count(n)
	if err != nil {
		return result(err)
	}
	put(to, &ev, o)
	return C.DAT_SUCCESS
}

//export kdEVDPostSE
func kdEVDPostSE(h C.uintptr_t, ev *C.DAT_EVENT) C.DAT_RETURN {
	evd, _, ok := find[*dat.EVD](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandle1)
	case ev == nil || ev.event_number != C.DAT_SOFTWARE_EVENT:
		return badArg(2)
	}
	return result(evd.PostSE(uint64(C.kd_software_value(ev))))
}
