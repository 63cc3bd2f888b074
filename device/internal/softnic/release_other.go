//go:build race || !amd64

package softnic

import "sync/atomic"

// storeRelease stores v so that earlier loads and stores are seen before it.
func storeRelease(p *atomic.Uint32, v uint32) { p.Store(v) }

// storeReleaseWord is storeRelease for 64 bits.
func storeReleaseWord(p *atomic.Uint64, v uint64) { p.Store(v) }
