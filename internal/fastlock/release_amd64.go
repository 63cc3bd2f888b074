//go:build !race

package fastlock

import "sync/atomic"

// On this processor a plain store is a release store, at a third of the cost of the exchange
// that sync/atomic's sequentially consistent Store compiles to. It is in assembly so that
// the compiler moves nothing across it.

// StoreRelease32 stores v so that earlier loads and stores are seen before it.
//
//go:noescape
func StoreRelease32(p *atomic.Uint32, v uint32)

// StoreRelease64 stores v so that earlier loads and stores are seen before it.
//
//go:noescape
func StoreRelease64(p *atomic.Uint64, v uint64)
