package main

import (
	"fmt"
	"regexp"
	"strings"
)

// rule says what the output of a side must have and must not have.
type rule struct {
	must  []string
	never *regexp.Regexp
}

// judge says why the output does not pass, "" if it does.
func (r rule) judge(side, out string) string {
	if bad := r.never.FindString(out); bad != "" {
		return fmt.Sprintf("%s: %q", side, line(out, bad))
	}
	for _, m := range r.must {
		if !strings.Contains(out, m) {
			return fmt.Sprintf("%s: no %q", side, m)
		}
	}
	return ""
}

// line is the line of the output that has the text.
func line(out, text string) string {
	for l := range strings.Lines(out) {
		if strings.Contains(l, text) {
			return strings.TrimSpace(l)
		}
	}
	return text
}

var (
	dtestBad    = regexp.MustCompile(`ERR|[Ee]rror|FAILED`)
	dapltestBad = regexp.MustCompile(`Test Error|Validation Error|[Ee]rror|Warning|mismatch|bad |fails|failed`)
	// dapltest looks its own name up first, and says so if that fails.
	lookup = regexp.MustCompile(`(?m)^getaddrinfo \(\) failed.*\n`)

	dtestPass    = rule{[]string{"DAPL Test Complete. PASSED"}, dtestBad}
	dtestcmPass  = rule{[]string{"DAPL Connection Test Complete"}, dtestBad}
	dtestsrqPass = rule{[]string{"SRQ Test Complete"}, dtestBad}
	dtestxPass   = rule{[]string{"IB extension test - immed/atomic test PASSED"}, dtestBad}
	serverPass   = rule{nil, dapltestBad}
	statsPass    = rule{[]string{"----- Stats ----", "End of Work"}, dapltestBad}
	rawPass      = rule{[]string{"raw:", "End of Work"}, dapltestBad}
	fftPass      = rule{[]string{"Result: PASS"}, regexp.MustCompile(`failed in file|Result: FAIL`)}
	// The limit of posted receives is found by an error.
	limitPass = rule{[]string{"Limitation Test"}, regexp.MustCompile(`Test Error|unexpected|INTERNAL_ERROR|INVALID`)}
)
