//go:build !linux

package dat

import "errors"

// notifyFD does not exist here.
type notifyFD struct{}

func newNotifyFD() (*notifyFD, error) { return nil, errors.ErrUnsupported }

func (*notifyFD) number() int { return -1 }
func (*notifyFD) set()        {}
func (*notifyFD) clear()      {}
func (*notifyFD) close()      {}
