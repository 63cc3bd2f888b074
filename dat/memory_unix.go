//go:build unix

package dat

import "golang.org/x/sys/unix"

// allocate maps n bytes of zeroed memory outside of the Go heap.
func allocate(n int) (mem []byte, release func(), err error) {
	mem, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	return mem, func() { unix.Munmap(mem) }, nil
}
