//go:build kdapl_capi && cgo && linux

package main

// #cgo LDFLAGS: -ldat2
// #include "kdapl.h"
import "C"

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"kdapl/dat"
	"kdapl/internal/foreign"
)

// object is what Go knows of a handle.
type object struct {
	obj   dat.Object
	shell *C.kd_shell
	ia    *object // itself, for an IA

	mu    sync.Mutex
	freed bool
	mem   []unsafe.Pointer // C memory that lives as long as the object
	// Of an EP: the private data of its last connection, which live until a reset.
	private unsafe.Pointer
	// Of an EP that was made with attributes: what it was asked for.
	asked *sizes
	// Of an EP: the RSP that reserved it last.
	rsp unsafe.Pointer
	// The addresses of an IA, EP, CR or CSP that C was told of.
	addrs [2]*C.struct_sockaddr_in6
	// Of a CNO: its agent. Of an IA: its attributes.
	agentFunc C.DAT_AGENT_FUNC
	agentData C.uintptr_t
	attrs     *attributes
	// Of an IA: its objects, and that C asked for no asynchronous EVD.
	children map[*object]struct{}
	noAsync  bool
	// Of an EVD or CNO: what it shares with C.
	consumer *foreign.Consumer
	// Of a CSP: its communicator.
	comm *C.DAT_COMM
	// Of an LMR: the privileges it was asked for, and the handle that it shares the region with.
	priv   C.DAT_MEM_PRIV_FLAGS
	source C.uintptr_t
}

// The table of objects, by the index of the shell, in chunks.
const (
	chunkBits  = 10
	chunkCount = int(C.KD_SHELLS) >> chunkBits
	// quarantine is how many freed shells wait before the first of them is used again.
	quarantine = 1024
)

var handles struct {
	base   atomic.Uintptr
	chunks [chunkCount]atomic.Pointer[[1 << chunkBits]atomic.Pointer[object]]

	mu   sync.Mutex
	next int
	free []int
}

// lookup is the object of a handle, nil if it is none or was freed.
//
// Handles of C are numbers here: one that is none may have any value, and Go minds pointers that are none.
func lookup(h uintptr) *object {
	off := h - handles.base.Load()
	if h == 0 || off >= uintptr(C.KD_SHELLS)*unsafe.Sizeof(C.kd_shell{}) || off%unsafe.Sizeof(C.kd_shell{}) != 0 {
		return nil
	}
	i := int(off / unsafe.Sizeof(C.kd_shell{}))
	c := handles.chunks[i>>chunkBits].Load()
	if c == nil {
		return nil
	}
	return c[i&(1<<chunkBits-1)].Load()
}

// find is the DAT object of a handle, if it is of the type.
func find[T dat.Object](h uintptr) (T, *object, bool) {
	var zero T
	o := lookup(h)
	if o == nil {
		return zero, nil, false
	}
	t, ok := o.obj.(T)
	return t, o, ok
}

// optional is find for a handle that may be null.
func optional[T dat.Object](h uintptr) (T, bool) {
	if h == 0 {
		var zero T
		return zero, true
	}
	t, _, ok := find[T](h)
	return t, ok
}

// add makes a handle for an object. nil: there are no more.
//
// consumer is what an EVD or CNO shares with C, nil for other objects and for EVDs that are left to Go.
func add(obj dat.Object, ia *object, provider *C.DAT_PROVIDER, consumer *foreign.Consumer) *object {
	h := &handles
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, ok := obj.Context().(*object); ok {
		return o
	}
	var i int
	switch {
	case len(h.free) > quarantine || h.next == int(C.KD_SHELLS) && len(h.free) > 0:
		i, h.free = h.free[0], h.free[1:]
	case h.next < int(C.KD_SHELLS):
		i = h.next
		h.next++
	default:
		return nil
	}
	c := h.chunks[i>>chunkBits].Load()
	if c == nil {
		c = new([1 << chunkBits]atomic.Pointer[object])
		h.chunks[i>>chunkBits].Store(c)
	}
	base := C.kd_shells()
	h.base.Store(uintptr(unsafe.Pointer(base)))
	s := (*C.kd_shell)(unsafe.Add(unsafe.Pointer(base), i*int(unsafe.Sizeof(C.kd_shell{}))))
	o := &object{obj: obj, shell: s, ia: ia, consumer: consumer}
	s.provider, s.context, s.control, s.names = provider, 0, nil, nil
	if ia == nil {
		o.ia, o.children = o, map[*object]struct{}{}
		s.names = (*C.kd_names)(memory.get(int(unsafe.Sizeof(C.kd_names{}))))
	} else {
		s.provider, s.names = ia.shell.provider, ia.shell.names
		if consumer != nil {
			s.control = (*C.kd_control)(unsafe.Pointer(consumer.Control))
		}
		ia.name(obj, s)
		ia.mu.Lock()
		ia.children[o] = struct{}{}
		ia.mu.Unlock()
	}
	atomic.StoreUint32((*uint32)(&s.kind), uint32(obj.HandleType().UDAPL())+1)
	obj.SetContext(o)
	c[i&(1<<chunkBits-1)].Store(o)
	return o
}

// drop ends a handle and gives its memory back.
func (o *object) drop() {
	o.mu.Lock()
	if o.freed {
		o.mu.Unlock()
		return
	}
	o.freed = true
	children := o.children
	o.children = map[*object]struct{}{}
	mem := append(o.mem, o.private)
	o.mem, o.private = nil, nil
	for _, a := range o.addrs {
		mem = append(mem, unsafe.Pointer(a))
	}
	o.mu.Unlock()

	for c := range children {
		c.drop()
	}
	if o.ia != o {
		o.ia.mu.Lock()
		delete(o.ia.children, o)
		o.ia.mu.Unlock()
	}
	i := int((uintptr(unsafe.Pointer(o.shell)) - handles.base.Load()) / unsafe.Sizeof(C.kd_shell{}))
	handles.chunks[i>>chunkBits].Load()[i&(1<<chunkBits-1)].Store(nil)
	atomic.StoreUint32((*uint32)(&o.shell.kind), 0)
	for _, p := range mem {
		C.free(p)
	}
	if o.ia == o {
		dropNames(o.shell.names)
	}
	dropConsumer(o.consumer)
	handles.mu.Lock()
	handles.free = append(handles.free, i)
	handles.mu.Unlock()
}

// handleOf is the handle of an object, made if C has not seen the object yet.
func handleOf(obj dat.Object, ia *object) unsafe.Pointer {
	o, ok := obj.Context().(*object)
	if !ok {
		if o = add(obj, ia, nil, nil); o == nil {
			return nil
		}
	}
	return unsafe.Pointer(o.shell)
}

// give makes the handle of a new object and hands it out; if there is none, the object is freed again.
func give(obj dat.Object, ia *object, out *C.DAT_HANDLE, free func() error) C.DAT_RETURN {
	return giveShared(obj, ia, nil, out, free)
}

// giveShared is give for an object that shares memory with C.
func giveShared(obj dat.Object, ia *object, consumer *foreign.Consumer, out *C.DAT_HANDLE, free func() error) C.DAT_RETURN {
	o := add(obj, ia, nil, consumer)
	if o == nil {
		free()
		dropConsumer(consumer)
		return fault(dat.InsufficientResources, dat.ResourceMemory)
	}
	*out = C.DAT_HANDLE(unsafe.Pointer(o.shell))
	return C.DAT_SUCCESS
}

// gone ends the handle after a call that freed the object, or found it freed.
func (o *object) gone(err error) C.DAT_RETURN {
	if err == nil || errors.Is(err, dat.InvalidHandle) {
		o.drop()
	}
	return result(err)
}

// word reads a handle from a structure of C.
func word(p *C.DAT_HANDLE) uintptr { return *(*uintptr)(unsafe.Pointer(p)) }

// putIA writes the handle of the object's IA to C memory, as the registry knows it: as a small number. It is never a pointer of
// Go's, not even on the stack: the runtime ends a program that has such a one there.
func (o *object) putIA(to *C.DAT_IA_HANDLE) {
	*(*C.uintptr_t)(unsafe.Pointer(to)) = C.kd_public(o.ia.shell)
}

// pointer is an address of C's as a pointer. Only one that C vouches for may become one.
func pointer(p C.uintptr_t) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// fault is a DAT_RETURN of class error.
func fault(t dat.Type, sub dat.Subtype) C.DAT_RETURN {
	return C.DAT_RETURN(C.DAT_CLASS_ERROR | uint32(t) | uint32(sub))
}

func badArg(n int) C.DAT_RETURN {
	return fault(dat.InvalidParameter, dat.InvalidArg1+dat.Subtype(n-1))
}

func badHandle(sub dat.Subtype) C.DAT_RETURN { return fault(dat.InvalidHandle, sub) }

// result is the DAT_RETURN of an error.
func result(err error) C.DAT_RETURN {
	if err == nil {
		return C.DAT_SUCCESS
	}
	if e, ok := err.(*dat.Error); ok {
		return C.DAT_RETURN(e.Return())
	}
	var e *dat.Error
	if errors.As(err, &e) {
		return C.DAT_RETURN(e.Return())
	}
	return fault(dat.InternalError, dat.NoSubtype)
}

func boolean(b bool) C.DAT_BOOLEAN {
	if b {
		return C.DAT_TRUE
	}
	return C.DAT_FALSE
}

// duration is a DAT_TIMEOUT, which counts microseconds.
func duration(t C.DAT_TIMEOUT) time.Duration {
	if t == ^C.DAT_TIMEOUT(0) {
		return dat.Infinite
	}
	return time.Duration(t) * time.Microsecond
}

// fromSockaddr reads an address and its port. false: null, or of no known family.
func fromSockaddr(p C.DAT_IA_ADDRESS_PTR) (netip.AddrPort, bool) {
	if p == nil {
		return netip.AddrPort{}, false
	}
	switch p.sa_family {
	case C.AF_INET:
		in := (*C.struct_sockaddr_in)(unsafe.Pointer(p))
		a := *(*[4]byte)(unsafe.Pointer(&in.sin_addr))
		return netip.AddrPortFrom(netip.AddrFrom4(a), ntohs(in.sin_port)), true
	case C.AF_INET6:
		in := (*C.struct_sockaddr_in6)(unsafe.Pointer(p))
		a := *(*[16]byte)(unsafe.Pointer(&in.sin6_addr))
		return netip.AddrPortFrom(netip.AddrFrom16(a).Unmap(), ntohs(in.sin6_port)), true
	}
	return netip.AddrPort{}, false
}

func ntohs(p C.in_port_t) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&p))
	return uint16(b[0])<<8 | uint16(b[1])
}

// putSockaddr writes an address to C memory that has room for either family.
func putSockaddr(to *C.struct_sockaddr_in6, addr netip.Addr, port uint16) {
	*to = C.struct_sockaddr_in6{}
	bp := [2]byte{byte(port >> 8), byte(port)}
	if addr.Is6() {
		to.sin6_family, to.sin6_port = C.AF_INET6, *(*C.in_port_t)(unsafe.Pointer(&bp))
		*(*[16]byte)(unsafe.Pointer(&to.sin6_addr)) = addr.As16()
		return
	}
	in := (*C.struct_sockaddr_in)(unsafe.Pointer(to))
	in.sin_family, in.sin_port = C.AF_INET, *(*C.in_port_t)(unsafe.Pointer(&bp))
	if addr.Is4() {
		*(*[4]byte)(unsafe.Pointer(&in.sin_addr)) = addr.As4()
	}
}

// sockaddr is one of the object's addresses in C memory, which is the same at every call.
func (o *object) sockaddr(which int, addr netip.Addr, port uint16) C.DAT_IA_ADDRESS_PTR {
	if !addr.IsValid() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.freed {
		return nil
	}
	if o.addrs[which] == nil {
		o.addrs[which] = (*C.struct_sockaddr_in6)(C.calloc(1, C.sizeof_struct_sockaddr_in6))
	}
	putSockaddr(o.addrs[which], addr, port)
	return C.DAT_IA_ADDRESS_PTR(unsafe.Pointer(o.addrs[which]))
}

// keepPrivate copies private data to C memory that lives until the next connection, a reset or the end of the object.
func (o *object) keepPrivate(data []byte) unsafe.Pointer {
	o.mu.Lock()
	defer o.mu.Unlock()
	C.free(o.private)
	o.private = nil
	if len(data) > 0 && !o.freed {
		o.private = C.CBytes(data)
	}
	return o.private
}

// bytesAt is C memory as a slice; nothing is copied.
func bytesAt(p C.uintptr_t, n C.DAT_COUNT) ([]byte, bool) {
	switch {
	case n < 0 || n > 0 && p == 0:
		return nil, false
	case n == 0:
		return nil, true
	}
	return unsafe.Slice((*byte)(pointer(p)), int(n)), true
}
