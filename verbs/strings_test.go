package verbs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
)

// constants maps each type of the package to the names of its constants, in source order.
func constants(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			typ := ""
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				if id, ok := v.Type.(*ast.Ident); ok {
					typ = id.Name
				}
				if typ != "" {
					all[typ] = append(all[typ], v.Names[0].Name)
				}
			}
		}
	}
	return all
}

// Every constant prints as its own name without the prefix, in the order of the source:
// a constant that is added without a name, or moved, fails here.
func TestEveryConstantPrintsItsName(t *testing.T) {
	type kind struct {
		prefix string
		first  uint32
		bits   bool
		str    func(uint32) string
	}
	kinds := map[string]kind{
		"Caps":              {"Cap", 0, true, func(v uint32) string { return Caps(v).String() }},
		"CompletionMeaning": {"", 0, false, func(v uint32) string { return CompletionMeaning(v).String() }},
		"ConnEventKind":     {"Conn", 0, false, func(v uint32) string { return ConnEventKind(v).String() }},
		"AsyncEventKind":    {"Async", 0, false, func(v uint32) string { return AsyncEventKind(v).String() }},
		"MWType":            {"MW", 1, false, func(v uint32) string { return MWType(v).String() }},
		"ArmKind":           {"Arm", 0, false, func(v uint32) string { return ArmKind(v).String() }},
		"QPType":            {"", 0, false, func(v uint32) string { return QPType(v).String() }},
		"QPState":           {"QP", 0, false, func(v uint32) string { return QPState(v).String() }},
		"Access":            {"Access", 0, true, func(v uint32) string { return Access(v).String() }},
		"Opcode":            {"Op", 0, false, func(v uint32) string { return Opcode(v).String() }},
		"SendFlags":         {"Send", 0, true, func(v uint32) string { return SendFlags(v).String() }},
		"Status":            {"Status", 0, false, func(v uint32) string { return Status(v).String() }},
		"CompletionFlags":   {"Completion", 0, true, func(v uint32) string { return CompletionFlags(v).String() }},
	}
	all := constants(t)
	for typ := range all {
		if _, ok := kinds[typ]; !ok {
			t.Errorf("type %s has constants but no entry here", typ)
		}
	}
	for typ, k := range kinds {
		if len(all[typ]) == 0 {
			t.Errorf("no constants of type %s found", typ)
		}
		for i, constant := range all[typ] {
			v := k.first + uint32(i)
			if k.bits {
				v = 1 << i
			}
			if got, want := k.str(v), strings.TrimPrefix(constant, k.prefix); got != want {
				t.Errorf("%s %s prints as %q, want %q", typ, constant, got, want)
			}
		}
		beyond := k.first + uint32(len(all[typ]))
		want := fmt.Sprintf("%s(%d)", typ, beyond)
		if k.bits {
			beyond = 1 << len(all[typ])
			want = fmt.Sprintf("%#x", beyond)
		}
		if typ == "Access" || typ == "SendFlags" || typ == "CompletionFlags" {
			beyond &= 0xff
		}
		if got := k.str(beyond); got != want {
			t.Errorf("%s beyond its constants prints as %q, want %q", typ, got, want)
		}
	}
	if got := MWType(0).String(); got != "MWType(0)" {
		t.Errorf("MWType 0 prints as %q", got)
	}
}

func TestSetsPrintAsMembersJoinedByBars(t *testing.T) {
	for got, want := range map[string]string{
		Caps(0).String():                                    "0",
		(CapUD | CapInline).String():                        "UD|Inline",
		(CapMW1 | 1<<30).String():                           "MW1|0x40000000",
		(AccessLocalWrite | AccessRemoteRead).String():      "LocalWrite|RemoteRead",
		(SendSignaled | SendFence | SendInline).String():    "Signaled|Fence|Inline",
		(CompletionImm | CompletionRecvQueue).String():      "Imm|RecvQueue",
		(AccessLocalWrite | 0x80).String():                  "LocalWrite|0x80",
		fmt.Sprint(CapSolicited, AccessMWBind, OpBindMW):    "Solicited MWBind BindMW",
		fmt.Sprintf("%v %v", StatusRNRRetryExceeded, QPSQD): "RNRRetryExceeded SQD",
	} {
		if got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
	}
}

func TestEveryConnEventIsSetUpOrTerminal(t *testing.T) {
	for k := ConnEstablished; k <= ConnBroken; k++ {
		if k.SetUp() == k.Terminal() {
			t.Errorf("%v: SetUp %v, Terminal %v", k, k.SetUp(), k.Terminal())
		}
	}
	if ConnEventKind(200).SetUp() || ConnEventKind(200).Terminal() {
		t.Error("an unknown event counts as set-up or terminal")
	}
}

func TestEventsAndCompletionsPrintTheirCause(t *testing.T) {
	end := Address{netip.MustParseAddr("127.0.0.1"), 7}
	for got, want := range map[string]string{
		ConnEvent{Kind: ConnBroken, Local: end, Remote: end, Err: errors.New("cable")}.String():            "Broken 127.0.0.1 port 7 -> 127.0.0.1 port 7: cable",
		ConnEvent{Kind: ConnEstablished, Local: end, Remote: end}.String():                                 "Established 127.0.0.1 port 7 -> 127.0.0.1 port 7",
		AsyncEvent{Kind: AsyncSRQLimit, UserData: 16}.String():                                             "SRQLimit of 0x10",
		AsyncEvent{Kind: AsyncCQError, Err: errors.New("full")}.String():                                   "CQError of 0x0: full",
		Completion{ID: 1, UserData: 2, Length: 3, QPN: 4, Op: OpRecv, Flags: CompletionRecvQueue}.String(): "Recv Success flags RecvQueue id 0x1 qp 0x4 user 0x2 length 3",
	} {
		if got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
	}
}

// Names are printed in error paths and logs of data paths.
func TestPrintingASingleNameDoesNotAllocate(t *testing.T) {
	var sink string
	if n := testing.AllocsPerRun(100, func() {
		sink = StatusRemoteAccess.String()
		sink = CapRNR.String()
		sink = AccessRemoteWrite.String()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	_ = sink
}
