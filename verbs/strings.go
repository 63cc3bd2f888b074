package verbs

import (
	"fmt"
	"strconv"
	"strings"
)

// The names below are those of the constants without their common prefix, so that a
// log line reads like the source. A value without a name is written as its type and
// number, an unknown bit of a set as a hexadecimal number.

// name picks the name of an enumeration's value.
func name(typ string, names []string, v uint8) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return typ + "(" + strconv.Itoa(int(v)) + ")"
}

// set writes a bit set as A|B; the empty set is 0.
func set(names []string, v uint32) string {
	if v == 0 {
		return "0"
	}
	var b strings.Builder
	for i, n := range names {
		if v&(1<<i) == 0 {
			continue
		}
		v &^= 1 << i
		if b.Len() == 0 && v == 0 {
			return n
		}
		if b.Len() > 0 {
			b.WriteByte('|')
		}
		b.WriteString(n)
	}
	if v != 0 {
		if b.Len() > 0 {
			b.WriteByte('|')
		}
		b.WriteString("0x")
		b.WriteString(strconv.FormatUint(uint64(v), 16))
	}
	return b.String()
}

var capNames = []string{
	"UD", "SRQ", "SRQLimit", "SRQResize", "MW1", "MW2", "FastReg", "ZeroBased", "Atomics",
	"SendImm", "WriteImm", "SendInval", "ReadInval", "Solicited", "Peek", "RNR", "PostChecks",
	"ReadSinkRemoteWrite", "Inline",
}

// String writes the set as its members joined by |, for example UD|SRQ.
func (c Caps) String() string { return set(capNames, uint32(c)) }

var completionMeaningNames = []string{"RemoteAcked", "SourceReusable"}

func (m CompletionMeaning) String() string {
	return name("CompletionMeaning", completionMeaningNames, uint8(m))
}

var connEventNames = []string{
	"Established", "Rejected", "Refused", "Unreachable", "TimedOut", "AcceptFailed", "Aborted",
	"Disconnected", "Broken",
}

func (k ConnEventKind) String() string { return name("ConnEventKind", connEventNames, uint8(k)) }

// SetUp reports whether the event is the outcome of a set-up: one of ConnEstablished to
// ConnAborted.
func (k ConnEventKind) SetUp() bool { return k <= ConnAborted }

// Terminal reports whether the event ends an established connection: ConnDisconnected or
// ConnBroken.
func (k ConnEventKind) Terminal() bool { return k == ConnDisconnected || k == ConnBroken }

// String is for messages: kind, both ends and cause.
func (e ConnEvent) String() string {
	s := fmt.Sprintf("%v %v -> %v", e.Kind, e.Local, e.Remote)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

var asyncEventNames = []string{
	"CQError", "QPFatal", "LastWQE", "SRQLimit", "SRQError", "DeviceFatal",
}

func (k AsyncEventKind) String() string { return name("AsyncEventKind", asyncEventNames, uint8(k)) }

// String is for messages: kind, object and cause.
func (e AsyncEvent) String() string {
	s := fmt.Sprintf("%v of %#x", e.Kind, e.UserData)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

var mwTypeNames = []string{MWType1: "Type1", MWType2: "Type2"}

func (t MWType) String() string { return name("MWType", mwTypeNames, uint8(t)) }

var armNames = []string{"Next", "Solicited"}

func (k ArmKind) String() string { return name("ArmKind", armNames, uint8(k)) }

var qpTypeNames = []string{"RC", "UD"}

func (t QPType) String() string { return name("QPType", qpTypeNames, uint8(t)) }

var qpStateNames = []string{"Reset", "Initialized", "RTR", "RTS", "SQD", "Error"}

func (s QPState) String() string { return name("QPState", qpStateNames, uint8(s)) }

var accessNames = []string{
	"LocalWrite", "RemoteRead", "RemoteWrite", "RemoteAtomic", "MWBind", "ZeroBased", "NoLocalRead",
}

// String writes the set as its members joined by |, for example LocalWrite|RemoteRead.
func (a Access) String() string { return set(accessNames, uint32(a)) }

var opcodeNames = []string{
	"Send", "SendImm", "SendInval", "RDMAWrite", "RDMAWriteImm", "RDMARead", "RDMAReadInval",
	"FetchAdd", "CompareSwap", "BindMW", "RegMR", "LocalInval", "Recv", "RecvRDMAImm", "Drained",
}

func (o Opcode) String() string { return name("Opcode", opcodeNames, uint8(o)) }

var sendFlagNames = []string{"Signaled", "Solicited", "Fence", "InvalFence", "Inline"}

// String writes the set as its members joined by |, for example Signaled|Fence.
func (f SendFlags) String() string { return set(sendFlagNames, uint32(f)) }

var statusNames = []string{
	"Success", "Flushed", "LocalLength", "LocalQPOp", "LocalProtection", "MWBind", "BadResponse",
	"RemoteInvalidRequest", "RemoteAccess", "RemoteOp", "RetryExceeded", "RNRRetryExceeded",
	"MemoryManagement", "Fatal",
}

func (s Status) String() string { return name("Status", statusNames, uint8(s)) }

var completionFlagNames = []string{"Solicited", "Imm", "Inval", "RecvQueue", "GRH"}

// String writes the set as its members joined by |, for example Imm|RecvQueue.
func (f CompletionFlags) String() string { return set(completionFlagNames, uint32(f)) }

// String is for messages: operation, status, flags, request and QP.
func (c Completion) String() string {
	return fmt.Sprintf("%v %v flags %v id %#x qp %#x user %#x length %d",
		c.Op, c.Status, c.Flags, c.ID, c.QPN, c.UserData, c.Length)
}
