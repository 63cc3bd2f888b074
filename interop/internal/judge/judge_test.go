package judge

import "testing"

func TestOutputIsJudgedAndNotTheExitCode(t *testing.T) {
	for _, c := range []struct {
		name string
		rule Rule
		out  string
		pass bool
	}{
		{"dtest that passed", Dtest, "1: DAPL Test Complete. PASSED\n", true},
		{"dtest that failed and returned 0", Dtest, "1: DAPL Test Complete. FAILED\n", false},
		{"dtest with an error before it passed", Dtest, "1: ERROR: dat_ep_post_send()\n1: DAPL Test Complete. PASSED\n", false},
		{"dtest that printed nothing", Dtest, "", false},
		{"dapltest with results", DapltestStats, "----- Stats ---- : 1 threads\nDT_cs_Client: == End of Work -- Client Exiting\n", true},
		{"dapltest whose server was killed", DapltestStats, "DT_cs_Client: == End of Work -- Client Exiting\n", false},
		{"dapltest that warned", DapltestStats, "Warning: x\n----- Stats ----\nEnd of Work\n", false},
		{"dapltest server with wrong data", DapltestServer, "\tLength mismatch (xfer 0x0 wanted 0x1000)\n", false},
		{"FFT that passed", DapltestFFT, "Result: PASS\n", true},
		{"FFT that says so after a failed assertion", DapltestFFT, "x failed in file y\nResult: PASS\n", false},
		{"SRQ of either kind", Dtestsrq, " DAPL RC none SRQ Test Complete.\n", true},
	} {
		if why := c.rule.Judge("client", c.out); (why == "") != c.pass {
			t.Errorf("%s: judged %q, pass %v expected", c.name, why, c.pass)
		}
	}
	own := "getaddrinfo () failed (unknown node name)\nResult: PASS\n"
	if got := Trim(own); got != "Result: PASS\n" {
		t.Errorf("dapltest's look-up of its own name is left: %q", got)
	}
}
