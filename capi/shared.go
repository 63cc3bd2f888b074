//go:build kdapl_capi && cgo && linux

package main

// #include "kdapl.h"
import "C"

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"kdapl/dat"
	"kdapl/internal/foreign"
)

// What C reads without a call may be looked at by a thread of a program that has freed the EVD meanwhile. So its memory
// is never given back to the system, only used again, and not at once.

// recycler keeps blocks of memory for C by size.
type recycler struct {
	mu   sync.Mutex
	free map[int][]unsafe.Pointer
	slab []byte // small blocks are cut from it
}

const (
	// resting is how many freed blocks of a size wait before the first of them is used again.
	resting = 16
	// slabSize is the piece of memory for blocks of at most smallBlock bytes, which begin at multiples of blockAlign.
	slabSize, smallBlock, blockAlign = 64 << 10, 4 << 10, 64
)

var memory = recycler{free: map[int][]unsafe.Pointer{}}

// get returns zeroed memory, nil if there is none.
func (r *recycler) get(size int) unsafe.Pointer {
	p := r.take(size)
	if p != nil {
		clear(unsafe.Slice((*byte)(p), size))
	}
	return p
}

// take returns memory with what was last in it.
func (r *recycler) take(size int) unsafe.Pointer {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.free[size]
	if len(list) <= resting {
		return r.fresh(size)
	}
	p := list[0]
	r.free[size] = slices.Delete(list, 0, 1)
	return p
}

// fresh returns memory that was never used. mu is held.
func (r *recycler) fresh(size int) unsafe.Pointer {
	if size > smallBlock {
		return C.kd_map(C.size_t(size))
	}
	size = (size + blockAlign - 1) &^ (blockAlign - 1)
	if len(r.slab) < size {
		p := C.kd_map(slabSize)
		if p == nil {
			return nil
		}
		r.slab = unsafe.Slice((*byte)(p), slabSize)
	}
	p := unsafe.Pointer(unsafe.SliceData(r.slab))
	r.slab = r.slab[size:]
	return p
}

func (r *recycler) put(p unsafe.Pointer, size int) {
	if p == nil {
		return
	}
	r.mu.Lock()
	r.free[size] = append(r.free[size], p)
	r.mu.Unlock()
}

// ringMemory supplies the memory of EVDs' queues.
func ringMemory(size int) ([]byte, func()) {
	p := memory.get(size)
	if p == nil {
		return []byte{}, nil // refused as too small
	}
	return unsafe.Slice((*byte)(p), size), func() { memory.put(p, size) }
}

// The part of the control block that Go knows has the same form: these do not compile otherwise.
var (
	_ [C.KD_CONTROL_SHARED]struct{} = [foreign.Size]struct{}{}
	_ [C.KD_FREED]struct{}          = [foreign.StatusFreed]struct{}{}
	_ [C.KD_WAITED]struct{}         = [foreign.StatusWaited]struct{}{}
	_ [C.KD_UNWAITABLE]struct{}     = [foreign.StatusUnwaitable]struct{}{}
	_ [C.KD_HAS_CQ]struct{}         = [foreign.FlagCQ]struct{}{}
	_ [C.KD_HELP]struct{}           = [foreign.FlagHelp]struct{}{}
)

// newConsumer makes the control block of an EVD or CNO. nil: there is no memory.
func newConsumer() *foreign.Consumer {
	p := (*C.kd_control)(memory.take(int(unsafe.Sizeof(C.kd_control{}))))
	if p == nil {
		return nil
	}
	// Somebody who waited at the one before, and has not yet gone to sleep, must not find the word that it knows.
	*p = C.kd_control{wake: p.wake + 1}
	word := unsafe.Pointer(&p.wake)
	return &foreign.Consumer{Control: (*foreign.Control)(unsafe.Pointer(p)), Notify: func() {
		const futexWakePrivate = 1 | 128
		syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(word), futexWakePrivate, math.MaxInt32, 0, 0, 0)
	}}
}

func dropConsumer(c *foreign.Consumer) {
	if c != nil {
		memory.put(unsafe.Pointer(c.Control), int(unsafe.Sizeof(C.kd_control{})))
	}
}

// name makes the handle known by which the slots of an IA's EVDs name the object. handles.mu is held.
func (ia *object) name(obj dat.Object, s *C.kd_shell) {
	ref := dat.ForeignRef(obj)
	names := ia.shell.names
	if i := int(uint32(ref)) / C.KD_NAMES; ref != 0 && names != nil && i < C.KD_NAME_CHUNKS {
		chunk := (*unsafe.Pointer)(unsafe.Pointer(&names.chunk[i]))
		if *chunk == nil {
			p := memory.get(C.KD_NAMES * int(unsafe.Sizeof(C.kd_name{})))
			if p == nil {
				return
			}
			atomic.StorePointer(chunk, p)
		}
		n := &unsafe.Slice((*C.kd_name)(*chunk), C.KD_NAMES)[int(uint32(ref))%C.KD_NAMES]
		// A reader looks at the reference before and after the handle.
		atomic.StoreUint64((*uint64)(&n.ref), 0)
		atomic.StorePointer((*unsafe.Pointer)(unsafe.Pointer(&n.shell)), unsafe.Pointer(s))
		atomic.StoreUint64((*uint64)(&n.ref), ref)
	}
}

// dropNames gives the names of a closed IA back.
func dropNames(names *C.kd_names) {
	if names == nil {
		return
	}
	for i := range names.chunk {
		memory.put(unsafe.Pointer(names.chunk[i]), C.KD_NAMES*int(unsafe.Sizeof(C.kd_name{})))
	}
	memory.put(unsafe.Pointer(names), int(unsafe.Sizeof(C.kd_names{})))
}

// stepOf is a step of a wait as package dat has it.
func stepOf(w *C.kd_wait) foreign.Wait {
	return foreign.Wait{Threshold: int(w.threshold), Started: w.started != 0, Expired: w.expired != 0}
}

// answer tells C the outcome of a step.
func answer(w *C.kd_wait, step *foreign.Wait, r C.DAT_RETURN) C.DAT_RETURN {
	if w.started != 0 && r&^C.DAT_SUBTYPE_MASK == fault(dat.InvalidHandle, 0) {
		r = fault(dat.Abort, dat.NoSubtype) // only an IA that is closed ends objects that are waited for
	}
	w.started, w.sleep, w.word = 1, 0, C.uint32_t(step.Word)
	if step.Sleep {
		w.sleep = 1
	}
	return r
}
