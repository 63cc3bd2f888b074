//go:build kdapl_capi && cgo && linux

package main

// #include "kdapl.h"
import "C"

import (
	"unsafe"

	"kdapl/dat"
)

//export kdEVDCreate
func kdEVDCreate(h C.uintptr_t, qlen C.DAT_COUNT, cno C.uintptr_t, flags C.DAT_EVD_FLAGS, out *C.DAT_EVD_HANDLE) C.DAT_RETURN {
	ia, o, ok := find[*dat.IA](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleIA)
	}
	c, ok := optional[*dat.CNO](uintptr(cno))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleCNO)
	case out == nil:
		return badArg(5)
	}
	shared := newConsumer()
	if shared == nil {
		return fault(dat.InsufficientResources, dat.ResourceMemory)
	}
	evd, err := ia.NewEVD(dat.EVDConfig{MinLen: int(qlen), Streams: dat.Stream(flags), CNO: c, Memory: ringMemory, Foreign: shared})
	if err != nil {
		dropConsumer(shared)
		return argument(err, dat.InvalidArg5, 4) // the flags are one place earlier than in kDAPL
	}
	return giveShared(evd, o, shared, (*C.DAT_HANDLE)(out), evd.Free)
}

// argument is the result of a call whose argument has another place in uDAPL than in kDAPL.
func argument(err error, kdapl dat.Subtype, place int) C.DAT_RETURN {
	r := result(err)
	if r == fault(dat.InvalidParameter, kdapl) {
		return badArg(place)
	}
	return r
}

//export kdEVDQuery
func kdEVDQuery(h C.uintptr_t, mask C.DAT_EVD_PARAM_MASK, to *C.DAT_EVD_PARAM) C.DAT_RETURN {
	evd, o, ok := find[*dat.EVD](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandle1)
	case mask&^C.DAT_EVD_FIELD_ALL != 0:
		return badArg(2)
	case to == nil:
		return badArg(3)
	}
	p, err := evd.Query()
	if err != nil {
		return result(err)
	}
	*to = C.DAT_EVD_PARAM{
		evd_qlen: count(p.QLen), evd_state: C.DAT_EVD_STATE(p.State), evd_flags: C.DAT_EVD_FLAGS(p.Streams),
	}
	o.putIA(&to.ia_handle)
	if p.CNO != nil {
		to.cno_handle = C.DAT_CNO_HANDLE(handleOf(p.CNO, o.ia))
	}
	return C.DAT_SUCCESS
}

//export kdEVDModifyCNO
func kdEVDModifyCNO(h C.uintptr_t, cno C.uintptr_t) C.DAT_RETURN {
	evd, _, ok := find[*dat.EVD](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandle1)
	}
	c, ok := optional[*dat.CNO](uintptr(cno))
	if !ok {
		return badHandle(dat.InvalidHandleCNO)
	}
	return result(evd.ModifyCNO(c))
}

// onEVD runs a call that has no arguments beside the EVD.
func onEVD(h C.uintptr_t, f func(*dat.EVD) error) C.DAT_RETURN {
	evd, _, ok := find[*dat.EVD](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandle1)
	}
	return result(f(evd))
}

//export kdEVDEnable
func kdEVDEnable(h C.uintptr_t) C.DAT_RETURN { return onEVD(h, (*dat.EVD).Enable) }

//export kdEVDDisable
func kdEVDDisable(h C.uintptr_t) C.DAT_RETURN { return onEVD(h, (*dat.EVD).Disable) }

//export kdEVDSetUnwaitable
func kdEVDSetUnwaitable(h C.uintptr_t) C.DAT_RETURN {
	return onEVD(h, (*dat.EVD).SetUnwaitable)
}

//export kdEVDClearUnwaitable
func kdEVDClearUnwaitable(h C.uintptr_t) C.DAT_RETURN {
	return onEVD(h, (*dat.EVD).ClearUnwaitable)
}

//export kdEVDResize
func kdEVDResize(h C.uintptr_t, qlen C.DAT_COUNT) C.DAT_RETURN {
	return onEVD(h, func(evd *dat.EVD) error { return evd.Resize(int(qlen)) })
}

//export kdEVDFree
func kdEVDFree(h C.uintptr_t) C.DAT_RETURN {
	evd, o, ok := find[*dat.EVD](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandle1)
	}
	return o.gone(evd.Free())
}

// setAgent makes the function that a CNO calls, nil without an agent.
func (o *object) setAgent(f C.DAT_AGENT_FUNC, data C.uintptr_t) func(*dat.EVD) {
	o.mu.Lock()
	o.agentFunc, o.agentData = f, data
	o.mu.Unlock()
	return o.agent(f, data)
}

func (o *object) agent(f C.DAT_AGENT_FUNC, data C.uintptr_t) func(*dat.EVD) {
	if f == nil {
		return nil
	}
	return func(evd *dat.EVD) {
		var h unsafe.Pointer
		if evd != nil {
			h = handleOf(evd, o.ia)
		}
		C.kd_call_agent(f, data, C.DAT_EVD_HANDLE(h))
	}
}

//export kdCNOCreate
func kdCNOCreate(h C.uintptr_t, f C.DAT_AGENT_FUNC, data C.uintptr_t, out *C.DAT_CNO_HANDLE) C.DAT_RETURN {
	ia, o, ok := find[*dat.IA](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleIA)
	case out == nil:
		return badArg(3)
	}
	c, err := ia.NewCNO(o.agent(f, data))
	if err != nil {
		return result(err)
	}
	r := giveCNO(c, o, out)
	if co := lookup(word((*C.DAT_HANDLE)(out))); r == C.DAT_SUCCESS && co != nil {
		co.setAgent(f, data)
	}
	return r
}

//export kdCNOFDCreate
func kdCNOFDCreate(h C.uintptr_t, fd *C.DAT_FD, out *C.DAT_CNO_HANDLE) C.DAT_RETURN {
	ia, o, ok := find[*dat.IA](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleIA)
	case fd == nil:
		return badArg(2)
	case out == nil:
		return badArg(3)
	}
	c, err := ia.NewCNOFD()
	if err != nil {
		return result(err)
	}
	*fd = C.DAT_FD(c.FD())
	return giveCNO(c, o, out)
}

func giveCNO(c *dat.CNO, ia *object, out *C.DAT_CNO_HANDLE) C.DAT_RETURN {
	shared := newConsumer()
	if shared == nil {
		c.Free()
		return fault(dat.InsufficientResources, dat.ResourceMemory)
	}
	dat.ForeignCNO(c, shared)
	return giveShared(c, ia, shared, (*C.DAT_HANDLE)(out), c.Free)
}

//export kdCNOModifyAgent
func kdCNOModifyAgent(h C.uintptr_t, f C.DAT_AGENT_FUNC, data C.uintptr_t) C.DAT_RETURN {
	c, o, ok := find[*dat.CNO](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleCNO)
	}
	err := c.ModifyAgent(o.agent(f, data))
	if err == nil {
		o.setAgent(f, data)
	}
	return result(err)
}

//export kdCNOQuery
func kdCNOQuery(h C.uintptr_t, mask C.DAT_CNO_PARAM_MASK, to *C.DAT_CNO_PARAM) C.DAT_RETURN {
	c, o, ok := find[*dat.CNO](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleCNO)
	case mask > C.DAT_CNO_FIELD_ALL:
		return badArg(2)
	case to == nil:
		return badArg(3)
	}
	p, err := c.Query()
	if err != nil {
		return result(err)
	}
	*to = C.DAT_CNO_PARAM{}
	o.putIA(&to.ia_handle)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case p.FD >= 0:
		to.proxy_type = C.DAT_PROXY_TYPE_FD
		C.kd_cno_fd(to, C.int(p.FD))
	case o.agentFunc != nil:
		to.proxy_type = C.DAT_PROXY_TYPE_AGENT
		C.kd_cno_agent(to, o.agentData, o.agentFunc)
	}
	return C.DAT_SUCCESS
}

//export kdCNOFree
func kdCNOFree(h C.uintptr_t) C.DAT_RETURN {
	c, o, ok := find[*dat.CNO](uintptr(h))
	if !ok {
		return badHandle(dat.InvalidHandleCNO)
	}
	return o.gone(c.Free())
}

//export kdCNOWaitStep
func kdCNOWaitStep(h C.uintptr_t, w *C.kd_wait, out *C.DAT_EVD_HANDLE) C.DAT_RETURN {
	step := stepOf(w)
	r := cnoTake(h, 3, out, func(c *dat.CNO) (*dat.EVD, error) { return dat.ForeignCNOWait(c, &step) })
	return answer(w, &step, r)
}

//export kdCNOTrigger
func kdCNOTrigger(h C.uintptr_t, out *C.DAT_EVD_HANDLE) C.DAT_RETURN {
	return cnoTake(h, 2, out, (*dat.CNO).Trigger)
}

// cnoTake takes a trigger of a CNO; out is the argument at that place.
func cnoTake(h C.uintptr_t, place int, out *C.DAT_EVD_HANDLE, take func(*dat.CNO) (*dat.EVD, error)) C.DAT_RETURN {
	c, o, ok := find[*dat.CNO](uintptr(h))
	switch {
	case !ok:
		return badHandle(dat.InvalidHandleCNO)
	case out == nil:
		return badArg(place)
	}
	*out = nil
	evd, err := take(c)
	if evd != nil {
		*out = C.DAT_EVD_HANDLE(handleOf(evd, o.ia))
	}
	if err == dat.ErrQueueEmpty {
		return queueEmpty
	}
	return result(err)
}
