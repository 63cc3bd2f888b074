package main

import (
	"slices"
	"testing"
)

func TestShortCasesAreCases(t *testing.T) {
	for _, name := range shortCases {
		if !slices.ContainsFunc(cases, func(c testCase) bool { return c.name == name }) {
			t.Errorf("there is no case %q", name)
		}
	}
}

func TestOutputIsJudgedAndNotTheExitCode(t *testing.T) {
	for _, c := range []struct {
		name string
		rule rule
		out  string
		pass bool
	}{
		{"dtest that passed", dtestPass, "1: DAPL Test Complete. PASSED\n", true},
		{"dtest that failed and returned 0", dtestPass, "1: DAPL Test Complete. FAILED\n", false},
		{"dtest with an error before it passed", dtestPass, "1: ERROR: dat_ep_post_send()\n1: DAPL Test Complete. PASSED\n", false},
		{"dtest that printed nothing", dtestPass, "", false},
		{"dapltest with results", statsPass, "----- Stats ---- : 1 threads\nDT_cs_Client: == End of Work -- Client Exiting\n", true},
		{"dapltest whose server was killed", statsPass, "DT_cs_Client: == End of Work -- Client Exiting\n", false},
		{"dapltest that warned", statsPass, "Warning: x\n----- Stats ----\nEnd of Work\n", false},
		{"dapltest server with wrong data", serverPass, "\tLength mismatch (xfer 0x0 wanted 0x1000)\n", false},
		{"FFT that passed", fftPass, "Result: PASS\n", true},
		{"FFT that says so after a failed assertion", fftPass, "x failed in file y\nResult: PASS\n", false},
		{"SRQ of either kind", dtestsrqPass, " DAPL RC none SRQ Test Complete.\n", true},
	} {
		if why := c.rule.judge("client", c.out); (why == "") != c.pass {
			t.Errorf("%s: judged %q, pass %v expected", c.name, why, c.pass)
		}
	}
	own := "getaddrinfo () failed (unknown node name)\nResult: PASS\n"
	if got := lookup.ReplaceAllString(own, ""); got != "Result: PASS\n" {
		t.Errorf("dapltest's look-up of its own name is left: %q", got)
	}
}
