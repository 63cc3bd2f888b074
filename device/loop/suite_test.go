package loop

import (
	"net/netip"
	"testing"

	"kdapl/verbs"
	"kdapl/verbs/verbstest"
)

// Two adapters with addresses of their own keep the contract, in both meanings of a
// completion, and so do adapters that can less.
func TestContract(t *testing.T) {
	nowhere := verbs.Address{IP: netip.MustParseAddr("192.0.2.1"), Port: 7}
	for name, cfg := range map[string]Config{
		"acked":    {Completion: verbs.RemoteAcked},
		"reusable": {Completion: verbs.SourceReusable},
		"bare":     {Adjust: func(a *verbs.Attr) { a.Caps = 0 }},
		"small": {Adjust: func(a *verbs.Attr) {
			a.Caps &^= verbs.CapRNR | verbs.CapMW1 | verbs.CapUD | verbs.CapSRQLimit
			a.MaxSendSGE, a.MaxRecvSGE, a.MaxReadSGE, a.MaxSRQSGE = 3, 2, 1, 2
			a.MaxQPWR, a.MaxSRQWR, a.MaxCQE, a.MaxInline, a.MaxPrivateData = 64, 64, 512, 24, 56
			a.MaxMessage, a.MaxPort, a.MaxReadsIn, a.MaxReadsOut, a.MaxFastRegPages = 1<<20, 65535, 1, 1, 4
		}},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := cfg, cfg
			one.Name, two.Name, two.Addr = "loop7", "loop8", netip.MustParseAddr("::8")
			a, b := New(one), New(two)
			verbstest.Run(t, func(testing.TB) verbstest.Pair {
				return verbstest.Pair{Active: a, Passive: b, Unreachable: nowhere}
			})
		})
	}
}
