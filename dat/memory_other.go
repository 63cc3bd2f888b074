//go:build !unix

package dat

// allocate makes n bytes of zeroed memory. Where there is no mmap it is the Go heap's.
func allocate(n int) (mem []byte, release func(), err error) { return make([]byte, n), nil, nil }
