//go:build race || !amd64

package evring

import "sync/atomic"

// storeRelease stores v so that earlier loads and stores are seen before it.
func storeRelease(p *atomic.Uint64, v uint64) { p.Store(v) }
