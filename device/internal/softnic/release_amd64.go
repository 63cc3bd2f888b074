//go:build !race

package softnic

import "sync/atomic"

// storeRelease stores v so that earlier loads and stores are seen before it. A plain store
// of this processor does that; sync/atomic's Store is sequentially consistent, and an exchange. It
// is in assembly so that the compiler moves nothing across it.
//
//go:noescape
func storeRelease(p *atomic.Uint32, v uint32)

// storeReleaseWord is storeRelease for 64 bits.
//
//go:noescape
func storeReleaseWord(p *atomic.Uint64, v uint64)
