package dat

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// notifyFD is a descriptor that is readable while it is set.
type notifyFD struct{ fd int }

func newNotifyFD() (*notifyFD, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &notifyFD{fd}, nil
}

func (n *notifyFD) number() int { return n.fd }

func (n *notifyFD) set() {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], 1)
	unix.Write(n.fd, b[:])
}

func (n *notifyFD) clear() {
	var b [8]byte
	unix.Read(n.fd, b[:])
}

func (n *notifyFD) close() { unix.Close(n.fd) }
