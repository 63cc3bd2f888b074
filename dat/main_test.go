package dat_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childEnv names a case that a test runs in a child process, because it ends the process.
const childEnv = "KDAPL_DAT_TEST_CHILD"

// childCases are those cases.
var childCases = map[string]func(){}

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		childCases[name]()
		fmt.Println("the case has returned")
		return
	}
	goleak.VerifyTestMain(m)
}
