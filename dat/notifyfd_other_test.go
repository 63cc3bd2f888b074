//go:build !linux

package dat_test

import (
	"testing"

	"kdapl/dat"
)

func TestCNOWithDescriptorIsOfLinux(t *testing.T) {
	_, err := newIA(t).NewCNOFD()
	refused(t, err, dat.ModelNotSupported, dat.NoSubtype)
}
