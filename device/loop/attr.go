package loop

import (
	"kdapl/device/internal/softnic"
	"kdapl/verbs"
)

// attributes are what the adapter can do. The limits are those of its tables; none is a
// promise of memory.
func attributes(cfg Config) verbs.Attr {
	a := verbs.Attr{
		Name:          cfg.Name,
		Vendor:        "kdapl",
		HardwareMajor: 1,
		FirmwareMajor: 1,
		Addr:          cfg.Addr,
		Caps: verbs.CapUD | verbs.CapSRQ | verbs.CapSRQLimit | verbs.CapSRQResize | verbs.CapMW1 | verbs.CapMW2 |
			verbs.CapFastReg | verbs.CapZeroBased | verbs.CapAtomics | verbs.CapSendImm | verbs.CapWriteImm |
			verbs.CapSendInval | verbs.CapReadInval | verbs.CapSolicited | verbs.CapPeek | verbs.CapPostChecks |
			verbs.CapInline,
		Completion:      cfg.Completion,
		MaxQP:           1 << 20,
		MaxCQ:           1 << 20,
		MaxPD:           1 << 20,
		MaxMR:           softnic.MaxKeys / 2,
		MaxMW:           softnic.MaxKeys / 2,
		MaxSRQ:          1 << 20,
		MaxAH:           1 << 16,
		MaxQPWR:         1 << 16,
		MaxCQE:          1 << 22,
		MaxSRQWR:        1 << 16,
		MaxSRQSGE:       verbs.MaxSGE,
		MaxSendSGE:      verbs.MaxSGE,
		MaxRecvSGE:      verbs.MaxSGE,
		MaxReadSGE:      verbs.MaxSGE,
		MaxReadsIn:      128,
		MaxReadsOut:     128,
		MaxMessage:      1 << 30,
		MaxMRSize:       1 << 46,
		MaxInline:       256,
		MaxFastRegPages: 512,
		PageSize:        4096,
		MaxPrivateData:  512,
		MaxPort:         1<<64 - 1,
	}
	if cfg.Completion == verbs.RemoteAcked {
		a.Caps |= verbs.CapRNR
	}
	if cfg.Adjust != nil {
		most := a
		cfg.Adjust(&a)
		a.Caps = a.Caps&most.Caps | verbs.CapPostChecks // softnic cannot do without
	}
	return a
}
