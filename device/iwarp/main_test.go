package iwarp

import (
	"testing"

	"go.uber.org/goleak"
)

// Ended connections may linger for a moment; goleak looks again for a while.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
