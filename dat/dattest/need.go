package dattest

import "kdapl/dat"

// need is a set of features.
type need uint32

const (
	needRMR         need = 1 << iota // RMRs of the PZ
	needRMRForEP                     // RMRs for an EP
	needZB                           // zero-based regions
	needFMR                          // fast registration
	needInvalidate                   // sends that invalidate
	needSRQ                          // shared receive queues
	needWatermark                    // their watermarks
	needImmediate                    // RDMA writes with immediate data
	needAtomics                      // fetch-and-add, compare-and-swap
	needUD                           // datagrams
	needWait                         // sends wait for receives
	needUnreachable                  // an address that cannot be reached
	needRemove                       // a way to take the adapter away
)

var needNames = []string{
	"RMRs", "RMRs for EPs", "zero-based regions", "fast registration", "send with invalidate", "SRQs", "watermarks",
	"immediate data", "atomics", "datagrams", "receiver-not-ready", "an unreachable address", "a way to take the adapter away",
}

// has tells what a side offers.
func (s *side) has() need {
	var n need
	add := func(is bool, f need) {
		if is {
			n |= f
		}
	}
	windows := s.attr.MaxRMRs > 0
	add(windows && s.prov.RMRScopeSupported != dat.RMRScopeEP, needRMR)
	add(windows && s.prov.RMRScopeSupported != dat.RMRScopePZ, needRMRForEP)
	add(s.attr.ZBSupported, needZB)
	add(s.prov.FMRSupported, needFMR)
	add(s.named(dat.AttrSendInvalidate) == "TRUE", needInvalidate)
	add(s.prov.SRQSupported, needSRQ)
	add(s.prov.SRQWatermarksSupported != 0, needWatermark)
	add(s.named(dat.AttrImmediate) == "TRUE", needImmediate)
	add(s.named(dat.AttrFetchAdd) == "TRUE" && s.named(dat.AttrCompareSwap) == "TRUE", needAtomics)
	add(s.named(dat.AttrUD) == "TRUE", needUD)
	return n
}

// can reports whether both ends, and the pair, offer the features.
func (e *env) can(n need) bool { return e.missing(n) == 0 }

func (e *env) missing(n need) need {
	has := e.a.has() & e.b.has()
	if e.waits() {
		has |= needWait
	}
	if e.ad.Unreachable.IsValid() {
		has |= needUnreachable
	}
	if e.ad.Remove != nil {
		has |= needRemove
	}
	return n &^ has
}

// require skips the rule unless the features are there.
func (e *env) require(n need) {
	e.Helper()
	missing := e.missing(n)
	for i, name := range needNames {
		if missing>>i&1 != 0 {
			e.Skipf("there are no %s", name)
		}
	}
}
