package netio

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawIO is the bare system call: SYS_READ or SYS_WRITE of p, which is not empty.
func rawIO(trap uintptr, fd int, p []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), errno
}
