// Package judge says from what Debian's DAT test programs print whether they passed: their exit codes do not
// tell.
package judge

import (
	"fmt"
	"regexp"
	"strings"
)

// Rule says what the output of a side must have and must not have.
type Rule struct {
	// Must are texts that the output has.
	Must []string
	// Never is what it must not have.
	Never *regexp.Regexp
}

// Judge says why the output does not pass, "" if it does.
func (r Rule) Judge(side, out string) string {
	if bad := r.Never.FindString(out); bad != "" {
		return fmt.Sprintf("%s: %q", side, line(out, bad))
	}
	for _, m := range r.Must {
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

	// The rules of the programs, and of dapltest's kinds of tests.
	Dtest          = Rule{[]string{"DAPL Test Complete. PASSED"}, dtestBad}
	Dtestcm        = Rule{[]string{"DAPL Connection Test Complete"}, dtestBad}
	Dtestsrq       = Rule{[]string{"SRQ Test Complete"}, dtestBad}
	Dtestx         = Rule{[]string{"IB extension test - immed/atomic test PASSED"}, dtestBad}
	DapltestServer = Rule{nil, dapltestBad}
	DapltestStats  = Rule{[]string{"----- Stats ----", "End of Work"}, dapltestBad}
	DapltestRaw    = Rule{[]string{"raw:", "End of Work"}, dapltestBad}
	DapltestFFT    = Rule{[]string{"Result: PASS"}, regexp.MustCompile(`failed in file|Result: FAIL`)}
	// The limit of posted receives is found by an error.
	DapltestLimits = Rule{[]string{"Limitation Test"}, regexp.MustCompile(`Test Error|unexpected|INTERNAL_ERROR|INVALID`)}
)

// Trim takes away what dapltest says when it looks its own name up first, and does not find it.
func Trim(out string) string { return lookup.ReplaceAllString(out, "") }
