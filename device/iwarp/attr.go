package iwarp

import (
	"kdapl/device/internal/softnic"
	"kdapl/device/iwarp/internal/mpa"
	"kdapl/verbs"
)

// maxReads limits the reads and atomics that one connection answers and asks for at a time, as
// Linux siw does.
const maxReads = 128

// attributes are what the adapter can do.
func attributes(cfg *Config) verbs.Attr {
	a := verbs.Attr{
		Name:          cfg.Name,
		Vendor:        "kdapl",
		HardwareMajor: 1,
		FirmwareMajor: 1,
		Addr:          cfg.Addr,
		Caps: verbs.CapSRQ | verbs.CapSRQLimit | verbs.CapSRQResize | verbs.CapMW1 | verbs.CapMW2 | verbs.CapFastReg |
			verbs.CapZeroBased | verbs.CapAtomics | verbs.CapWriteImm | verbs.CapSendInval | verbs.CapReadInval |
			verbs.CapSolicited | verbs.CapPeek | verbs.CapPostChecks | verbs.CapInline,
		Completion:      verbs.SourceReusable,
		MaxQP:           1 << 20,
		MaxCQ:           1 << 20,
		MaxPD:           1 << 20,
		MaxMR:           softnic.MaxKeys / 2,
		MaxMW:           softnic.MaxKeys / 2,
		MaxSRQ:          1 << 20,
		MaxQPWR:         1 << 16,
		MaxCQE:          1 << 22,
		MaxSRQWR:        1 << 16,
		MaxSRQSGE:       verbs.MaxSGE,
		MaxSendSGE:      verbs.MaxSGE,
		MaxRecvSGE:      verbs.MaxSGE,
		MaxReadSGE:      verbs.MaxSGE,
		MaxReadsIn:      maxReads,
		MaxReadsOut:     maxReads,
		MaxMessage:      1 << 30,
		MaxMRSize:       1 << 46,
		MaxInline:       256,
		MaxFastRegPages: 512,
		PageSize:        4096,
		MaxPrivateData:  mpa.MaxULPData,
		MaxPort:         65535,
	}
	if cfg.Rev == 1 {
		a.MaxPrivateData = mpa.MaxPrivateData
	}
	if cfg.Adjust != nil {
		most := a
		cfg.Adjust(&a)
		a.Caps &= most.Caps
	}
	return a
}
