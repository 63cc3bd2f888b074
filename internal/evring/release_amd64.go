//go:build !race

package evring

import "sync/atomic"

// storeRelease stores v so that earlier loads and stores are seen before it. On this
// processor a plain store does that, at a third of the cost of the exchange that
// sync/atomic's sequentially consistent Store compiles to; it is in assembly so that the
// compiler moves nothing across it.
//
//go:noescape
func storeRelease(p *atomic.Uint64, v uint64)
