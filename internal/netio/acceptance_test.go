package netio

import "testing"

// The acceptance cases that this package answers; docs/acceptance.md is made from these names.
func TestAcceptance(t *testing.T) {
	t.Run("AC-47 AC-48 listening anywhere tells the real port", TestListenReportsTheRealPort)
	t.Run("AC-47 accepted connections have real addresses", TestAcceptedConnectionHasItsRealAddresses)
	t.Run("AC-44 a close ends Accept", TestCloseEndsAccept)
}
