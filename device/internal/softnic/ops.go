package softnic

import "kdapl/verbs"

// opClass sorts operations by what they do.
type opClass uint8

const (
	classNone opClass = iota
	classSend
	classWrite
	classRead
	classAtomic
	classLocal
)

// opInfo is what the checks need to know of a send-side operation.
type opInfo struct {
	class opClass
	caps  verbs.Caps
	need  verbs.Access // right to the local segments
}

var ops = [...]opInfo{
	verbs.OpSend:          {classSend, 0, localRead},
	verbs.OpSendImm:       {classSend, verbs.CapSendImm, localRead},
	verbs.OpSendInval:     {classSend, verbs.CapSendInval, localRead},
	verbs.OpRDMAWrite:     {classWrite, 0, localRead},
	verbs.OpRDMAWriteImm:  {classWrite, verbs.CapWriteImm, localRead},
	verbs.OpRDMARead:      {classRead, 0, verbs.AccessLocalWrite},
	verbs.OpRDMAReadInval: {classRead, verbs.CapReadInval, verbs.AccessLocalWrite},
	verbs.OpFetchAdd:      {classAtomic, verbs.CapAtomics, verbs.AccessLocalWrite},
	verbs.OpCompareSwap:   {classAtomic, verbs.CapAtomics, verbs.AccessLocalWrite},
	verbs.OpBindMW:        {classLocal, 0, 0},
	verbs.OpRegMR:         {classLocal, verbs.CapFastReg, 0},
	verbs.OpLocalInval:    {classLocal, 0, 0},
	15:                    {},
}

// opMask is a set of operations, a bit each.
type opMask uint16

// allowed is the set of operations that a QP type may post on a device with the
// capabilities.
func allowed(t verbs.QPType, caps verbs.Caps) (m opMask) {
	for op, info := range ops {
		switch {
		case info.class == classNone, caps&info.caps != info.caps:
		case t == verbs.UD && (info.class != classSend || op == int(verbs.OpSendInval)):
		case op == int(verbs.OpBindMW) && caps&(verbs.CapMW1|verbs.CapMW2) == 0:
		case op == int(verbs.OpLocalInval) && caps&(verbs.CapFastReg|verbs.CapMW2) == 0:
		default:
			m |= 1 << op
		}
	}
	return m
}

// Verdict is what became of an operation at its target, or of a look-up of memory.
type Verdict uint8

// The verdicts.
const (
	// Accepted: it was done.
	Accepted Verdict = iota
	// NotReady: there is no receive. Wire.RecvReady tells when there is.
	NotReady
	// TooLong: the message does not fit the receive, whose completion says so.
	TooLong
	// RecvFault: the receive's own memory is not usable, and its completion says so.
	RecvFault
	// BadKey: no such region or window, or it is no longer valid.
	BadKey
	// BadDomain: it belongs to another PD or QP.
	BadDomain
	// BadRight: it lacks the right.
	BadRight
	// BadBounds: the range lies outside.
	BadBounds
	// BadInvalidate: the key is not one that the peer may invalidate.
	BadInvalidate
	// Misaligned: an atomic's address is not a multiple of 8.
	Misaligned
)

var verdictText = [...]string{
	Accepted: "accepted", NotReady: "no receive posted", TooLong: "message longer than the receive",
	RecvFault: "memory of the receive not usable", BadKey: "no such memory key",
	BadDomain: "memory of another protection domain", BadRight: "access right missing",
	BadBounds: "range outside of the memory", BadInvalidate: "key cannot be invalidated",
	Misaligned: "address of an atomic not aligned",
}

func (v Verdict) String() string { return verdictText[v] }

// postError is the answer of a post whose local segment was refused.
func (v Verdict) postError() error {
	switch v {
	case BadRight:
		return verbs.ErrAccess
	case BadBounds:
		return verbs.ErrBounds
	case TooLong:
		return verbs.ErrLength
	}
	return verbs.ErrProtection
}
