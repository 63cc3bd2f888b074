package softnic

import "testing"

// The acceptance cases that this package answers; docs/acceptance.md is made from these names.
func TestAcceptance(t *testing.T) {
	t.Run("AC-09 a completion queue against a model", TestCQAgainstAModel)
	t.Run("AC-38 a last word in the own callback", TestFinishInTheOwnCallbackIsTheLastWord)
}
