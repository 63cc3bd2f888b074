package verbstest_test

import (
	"testing"

	"kdapl/device/loop"
	"kdapl/verbs"
	"kdapl/verbs/verbstest"
)

// The suite branches on attributes only. Lesser adapters show that each branch holds: what
// is missing is refused, limits are kept, and everything else is as on the full one.
func TestLesserAdapters(t *testing.T) {
	without := func(c verbs.Caps) func(*verbs.Attr) { return func(a *verbs.Attr) { a.Caps &^= c } }
	for name, cfg := range map[string]loop.Config{
		"without any capability": {Adjust: without(^verbs.Caps(0))},
		"without any capability, source reusable": {
			Adjust: without(^verbs.Caps(0)), Completion: verbs.SourceReusable,
		},
		"with one segment, one read, and fewer objects": {Adjust: func(a *verbs.Attr) {
			a.Caps &^= verbs.CapMW1 | verbs.CapSRQLimit | verbs.CapSRQResize | verbs.CapPeek
			a.MaxSendSGE, a.MaxRecvSGE, a.MaxReadSGE, a.MaxSRQSGE = 1, 1, 1, 1
			a.MaxReadsIn, a.MaxReadsOut = 1, 1
		}},
		"with small tables": {Adjust: func(a *verbs.Attr) {
			a.MaxPD, a.MaxCQ, a.MaxMR, a.MaxMW, a.MaxSRQ, a.MaxAH, a.MaxQP = 60, 700, 900, 300, 20, 20, 300
			a.MaxQPWR, a.MaxCQE, a.MaxSRQWR = 100, 500, 100
			a.MaxMessage, a.MaxMRSize, a.MaxInline = 1<<20, 1<<22, 16
			a.MaxFastRegPages, a.MaxPrivateData, a.MaxPort = 3, 56, 65535
		}},
	} {
		t.Run(name, func(t *testing.T) { verbstest.Run(t, onLoop(cfg)) })
	}
}
