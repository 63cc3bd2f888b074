package evring

import "testing"

// The acceptance cases that this package answers; docs/acceptance.md is made from these names.
func TestAcceptance(t *testing.T) {
	t.Run("AC-09 consumers never overtake producers", TestRingIsABoundedFIFO)
}
