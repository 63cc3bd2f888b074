package mpa_test

import "testing"

// The acceptance cases that this package answers; docs/acceptance.md is made from these names.
func TestAcceptance(t *testing.T) {
	t.Run("AC-28 the initiator's depths", TestInitiatorDepthsFollowRFC6581Section91)
	t.Run("AC-28 the responder's depths", TestResponderDepthsFollowRFC6581Section91)
	t.Run("AC-29 both revisions", TestRevisions)
}
