//go:build !race

package fastlock

import (
	"sync/atomic"
	"unsafe"
)

// On this processor a plain store is a release store, at a third of the cost of the exchange
// that sync/atomic's sequentially consistent Store compiles to. The compiler does its part: for it, each store is a new
// state of memory made from the one before, so stores keep their order, and a load that comes before a store is
// done before it. Under the race detector, and elsewhere, the store is sync/atomic's.

// StoreRelease32 stores v so that earlier loads and stores are seen before it.
func StoreRelease32(p *atomic.Uint32, v uint32) { *(*uint32)(unsafe.Pointer(p)) = v }

// StoreRelease64 stores v so that earlier loads and stores are seen before it.
func StoreRelease64(p *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(p)) = v }
