//go:build race || !amd64

package fastlock

import "sync/atomic"

// StoreRelease32 stores v so that earlier loads and stores are seen before it.
func StoreRelease32(p *atomic.Uint32, v uint32) { p.Store(v) }

// StoreRelease64 stores v so that earlier loads and stores are seen before it.
func StoreRelease64(p *atomic.Uint64, v uint64) { p.Store(v) }
