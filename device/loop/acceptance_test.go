package loop

import "testing"

// The acceptance cases that this package answers; docs/acceptance.md is made from these names.
func TestAcceptance(t *testing.T) {
	t.Run("AC-23 a send that waits for a receive in vain", TestASendGivesUpWhenNoReceiveIsPostedInTime)
	t.Run("AC-34 a set-up that takes too long", TestASetUpTimesOut)
	t.Run("AC-67 an adapter that is removed", TestRemoveEndsEverythingOfTheAdapter)
}
