package dat_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"kdapl/dat"
)

// vocabValue is a value with its C name and number, both typed from the reference. Values
// that DAT does not have get the name that they would have.
type vocabValue struct {
	value fmt.Stringer
	name  string
	num   int64
}

// vocabTable is every value of a type.
type vocabTable struct {
	// The text of a value is its C name without the prefixes, each taken off once in this
	// order, and without the suffix.
	prefixes []string
	suffix   string
	values   []vocabValue
	// unions are the C names of values whose text is that of their bits.
	unions []string
	// aliases are the texts of C names that do not follow from the name.
	aliases map[string]string
}

func (tab vocabTable) text(v vocabValue) string {
	if text, ok := tab.aliases[v.name]; ok {
		return text
	}
	if slices.Contains(tab.unions, v.name) {
		var names []string
		for _, one := range tab.values {
			if bits.OnesCount64(uint64(one.num)) == 1 && v.num&one.num != 0 {
				names = append(names, tab.text(one))
			}
		}
		return strings.Join(names, "|")
	}
	name := v.name
	for _, p := range tab.prefixes {
		name = strings.TrimPrefix(name, p)
	}
	return strings.TrimSuffix(name, tab.suffix)
}

func vocabTypeName(v any) string { return reflect.TypeOf(v).Name() }

func vocabNumber(v any) int64 {
	r := reflect.ValueOf(v)
	if r.CanInt() {
		return r.Int()
	}
	return int64(r.Uint())
}

func vocabTables() []vocabTable {
	var all []vocabTable
	for _, part := range [][]vocabTable{
		flagTables, eventTables, errTables, iaTables, providerTables, epTables,
	} {
		all = append(all, part...)
	}
	return all
}

func TestValuesAreDATs(t *testing.T) {
	for _, tab := range vocabTables() {
		for _, v := range tab.values {
			if got := vocabNumber(v.value); got != v.num {
				t.Errorf("%s %s is %#x, DAT says %#x", vocabTypeName(v.value), v.name, got, v.num)
			}
		}
	}
}

func TestEveryValuePrintsItsName(t *testing.T) {
	for _, tab := range vocabTables() {
		for _, v := range tab.values {
			want := tab.text(v)
			if got := v.value.String(); got != want {
				t.Errorf("%s(%#x) prints as %q, want %q", vocabTypeName(v.value), v.num, got, want)
			}
			text, err := v.value.(encoding.TextMarshaler).MarshalText()
			if err != nil || string(text) != want {
				t.Errorf("%s(%#x) marshals as %q, %v, want %q", vocabTypeName(v.value), v.num, text, err, want)
			}
		}
	}
}

// Every constant of these types that the package declares is in a table, so that the tests
// above cannot miss one.
func TestEveryConstantIsInATable(t *testing.T) {
	declared := map[string]int{}
	fset := token.NewFileSet()
	for _, name := range []string{
		"errtypes.go", "events.go", "flags.go", "attr_ia.go", "attr_provider.go", "attr_ep.go",
	} {
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		countConstants(file, declared)
	}
	for _, tab := range vocabTables() {
		declared[vocabTypeName(tab.values[0].value)] -= len(tab.values)
	}
	for typ, n := range declared {
		if n != 0 {
			t.Errorf("%s: %d constants too many in the package for the table", typ, n)
		}
	}
}

// countConstants adds the exported constants of each type. A constant has the type of
// its declaration, or of the one above if it repeats that, or in a block of one type
// that of the block.
func countConstants(file *ast.File, count map[string]int) {
	for _, decl := range file.Decls {
		block, ok := decl.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		var typ string
		for _, spec := range block.Specs {
			spec := spec.(*ast.ValueSpec)
			if id, ok := spec.Type.(*ast.Ident); ok {
				typ = id.Name
			}
			for _, name := range spec.Names {
				if name.IsExported() && typ != "" {
					count[typ]++
				}
			}
		}
	}
}

var flagTables = []vocabTable{
	{prefixes: []string{"DAT_HANDLE_TYPE_"}, values: []vocabValue{
		{dat.HandleCR, "DAT_HANDLE_TYPE_CR", 0},
		{dat.HandleEP, "DAT_HANDLE_TYPE_EP", 1},
		{dat.HandleEVD, "DAT_HANDLE_TYPE_EVD", 2},
		{dat.HandleIA, "DAT_HANDLE_TYPE_IA", 3},
		{dat.HandleLMR, "DAT_HANDLE_TYPE_LMR", 4},
		{dat.HandlePSP, "DAT_HANDLE_TYPE_PSP", 5},
		{dat.HandlePZ, "DAT_HANDLE_TYPE_PZ", 6},
		{dat.HandleRMR, "DAT_HANDLE_TYPE_RMR", 7},
		{dat.HandleRSP, "DAT_HANDLE_TYPE_RSP", 8},
		{dat.HandleSRQ, "DAT_HANDLE_TYPE_SRQ", 9},
		{dat.HandleCSP, "DAT_HANDLE_TYPE_CSP", 10},
		{dat.HandleExtensionBase, "DAT_HANDLE_TYPE_EXTENSION_BASE", 11},
		{dat.HandleCNO, "DAT_HANDLE_TYPE_CNO", 0xFF},
	}},
	{prefixes: []string{"DAT_MEM_PRIV_"}, suffix: "_FLAG", values: []vocabValue{
		{dat.PrivNone, "DAT_MEM_PRIV_NONE_FLAG", 0x00},
		{dat.PrivLocalRead, "DAT_MEM_PRIV_LOCAL_READ_FLAG", 0x01},
		{dat.PrivRemoteRead, "DAT_MEM_PRIV_REMOTE_READ_FLAG", 0x02},
		{dat.PrivLocalWrite, "DAT_MEM_PRIV_LOCAL_WRITE_FLAG", 0x10},
		{dat.PrivRemoteWrite, "DAT_MEM_PRIV_REMOTE_WRITE_FLAG", 0x20},
		{dat.PrivAll, "DAT_MEM_PRIV_ALL_FLAG", 0x33},
		{dat.PrivRemoteAtomic, "DAT_MEM_PRIV_EXTENSION_BASE", 0x40},
	}, unions: []string{"DAT_MEM_PRIV_ALL_FLAG"},
		aliases: map[string]string{"DAT_MEM_PRIV_EXTENSION_BASE": "REMOTE_ATOMIC"}},
	{prefixes: []string{"DAT_VA_TYPE_"}, values: []vocabValue{
		{dat.VATypeVA, "DAT_VA_TYPE_VA", 0},
		{dat.VATypeZB, "DAT_VA_TYPE_ZB", 1},
	}},
	{prefixes: []string{"DAT_MEM_TYPE_"}, values: []vocabValue{
		{dat.MemVirtual, "DAT_MEM_TYPE_VIRTUAL", 0x00},
		{dat.MemLMR, "DAT_MEM_TYPE_LMR", 0x01},
		{dat.MemSharedVirtual, "DAT_MEM_TYPE_SHARED_VIRTUAL", 0x02},
		{dat.MemPhysical, "DAT_MEM_TYPE_PHYSICAL", 0x10},
		{dat.MemPlatform, "DAT_MEM_TYPE_PLATFORM", 0x20},
		{dat.MemIA, "DAT_MEM_TYPE_IA", 0x40},
		{dat.MemBypass, "DAT_MEM_TYPE_BYPASS", 0x80},
		{dat.MemPhysicalVarPages, "DAT_MEM_TYPE_PHYSICAL_VAR_PAGES", 0x100},
	}},
	{prefixes: []string{"DAT_MEM_OPTIMIZE_"}, values: []vocabValue{
		{dat.MemOptimizeDontCare, "DAT_MEM_OPTIMIZE_DONT_CARE", 0},
		{dat.MemOptimizeIA, "DAT_MEM_OPTIMIZE_IA", 1},
		{dat.MemOptimizeMinExposure, "DAT_MEM_OPTIMIZE_MIN_EXPOSURE", 2},
		{dat.MemOptimizeExactExposure, "DAT_MEM_OPTIMIZE_EXACT_EXPOSURE", 4},
	}},
	{prefixes: []string{"DAT_COMPLETION_"}, suffix: "_FLAG", values: []vocabValue{
		{dat.CompletionDefault, "DAT_COMPLETION_DEFAULT_FLAG", 0x00},
		{dat.CompletionSuppress, "DAT_COMPLETION_SUPPRESS_FLAG", 0x01},
		{dat.CompletionSolicitedWait, "DAT_COMPLETION_SOLICITED_WAIT_FLAG", 0x02},
		{dat.CompletionUnsignalled, "DAT_COMPLETION_UNSIGNALLED_FLAG", 0x04},
		{dat.CompletionBarrierFence, "DAT_COMPLETION_BARRIER_FENCE_FLAG", 0x08},
		{dat.CompletionEVDThreshold, "DAT_COMPLETION_EVD_THRESHOLD_FLAG", 0x10},
		{dat.CompletionLMRInvalidateFence, "DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG", 0x20},
	}},
	{prefixes: []string{"DAT_UPCALL_"}, values: []vocabValue{
		{dat.UpcallDisable, "DAT_UPCALL_DISABLE", 0},
		{dat.UpcallSingleInstance, "DAT_UPCALL_SINGLE_INSTANCE", 1},
		{dat.UpcallNotify, "DAT_UPCALL_NOTIFY", 2},
		{dat.UpcallMany, "DAT_UPCALL_MANY", 100},
		{dat.UpcallTeardown, "DAT_UPCALL_TEARDOWN", -1},
	}},
	{prefixes: []string{"DAT_UPCALL_"}, values: []vocabValue{
		{dat.InvocNew, "DAT_UPCALL_INVOC_NEW", 0},
		{dat.InvocAny, "DAT_UPCALL_INVOC_ANY", 1},
		{dat.InvocEmpty, "DAT_UPCALL_INVOC_EMPTY", 2},
	}},
	{prefixes: []string{"DAT_CLOSE_"}, suffix: "_FLAG", values: []vocabValue{
		{dat.CloseAbrupt, "DAT_CLOSE_ABRUPT_FLAG", 0},
		{dat.CloseGraceful, "DAT_CLOSE_GRACEFUL_FLAG", 1},
	}},
	{prefixes: []string{"DAT_CONNECT_"}, suffix: "_FLAG", values: []vocabValue{
		{dat.ConnectDefault, "DAT_CONNECT_DEFAULT_FLAG", 0},
		{dat.ConnectMultipathRequested, "DAT_CONNECT_MULTIPATH_REQUESTED_FLAG", 1},
		{dat.ConnectMultipathRequired, "DAT_CONNECT_MULTIPATH_REQUIRED_FLAG", 2},
	}},
	{prefixes: []string{"DAT_QOS_"}, values: []vocabValue{
		{dat.QoSBestEffort, "DAT_QOS_BEST_EFFORT", 0},
		{dat.QoSHighThroughput, "DAT_QOS_HIGH_THROUGHPUT", 1},
		{dat.QoSLowLatency, "DAT_QOS_LOW_LATENCY", 2},
		{dat.QoSEconomy, "DAT_QOS_ECONOMY", 4},
		{dat.QoSPremium, "DAT_QOS_PREMIUM", 8},
	}},
	{prefixes: []string{"DAT_PSP_"}, suffix: "_FLAG", values: []vocabValue{
		{dat.PSPConsumer, "DAT_PSP_CONSUMER_FLAG", 0},
		{dat.PSPProvider, "DAT_PSP_PROVIDER_FLAG", 1},
	}},
	{prefixes: []string{"DAT_EP_STATE_"}, values: []vocabValue{
		{dat.StateUnconnected, "DAT_EP_STATE_UNCONNECTED", 0},
		{dat.StateUnconfiguredUnconnected, "DAT_EP_STATE_UNCONFIGURED_UNCONNECTED", 1},
		{dat.StateReserved, "DAT_EP_STATE_RESERVED", 2},
		{dat.StateUnconfiguredReserved, "DAT_EP_STATE_UNCONFIGURED_RESERVED", 3},
		{dat.StatePassiveConnectionPending, "DAT_EP_STATE_PASSIVE_CONNECTION_PENDING", 4},
		{dat.StateUnconfiguredPassive, "DAT_EP_STATE_UNCONFIGURED_PASSIVE", 5},
		{dat.StateActiveConnectionPending, "DAT_EP_STATE_ACTIVE_CONNECTION_PENDING", 6},
		{dat.StateTentativeConnectionPending, "DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING", 7},
		{dat.StateUnconfiguredTentative, "DAT_EP_STATE_UNCONFIGURED_TENTATIVE", 8},
		{dat.StateConnected, "DAT_EP_STATE_CONNECTED", 9},
		{dat.StateDisconnectPending, "DAT_EP_STATE_DISCONNECT_PENDING", 10},
		{dat.StateDisconnected, "DAT_EP_STATE_DISCONNECTED", 11},
		{dat.StateCompletionPending, "DAT_EP_STATE_COMPLETION_PENDING", 12},
		{dat.StateConnectedSinglePath, "DAT_EP_STATE_CONNECTED_SINGLE_PATH", 13},
		{dat.StateConnectedMultiPath, "DAT_EP_STATE_CONNECTED_MULTI_PATH", 14},
	}},
	{prefixes: []string{"DAT_SRQ_STATE_"}, values: []vocabValue{
		{dat.SRQStateError, "DAT_SRQ_STATE_ERROR", 0},
		{dat.SRQStateOperational, "DAT_SRQ_STATE_OPERATIONAL", 1},
		{dat.SRQStateShutdown, "DAT_SRQ_STATE_SHUTDOWN", 2},
	}},
	{prefixes: []string{"DAT_EVD_STATE_"}, values: []vocabValue{
		{dat.EVDStateEnabled, "DAT_EVD_STATE_ENABLED", 0x01},
		{dat.EVDStateDisabled, "DAT_EVD_STATE_DISABLED", 0x02},
		{dat.EVDStateWaitable, "DAT_EVD_STATE_WAITABLE", 0x04},
		{dat.EVDStateUnwaitable, "DAT_EVD_STATE_UNWAITABLE", 0x08},
		{dat.EVDStateConfigNotify, "DAT_EVD_STATE_CONFIG_NOTIFY", 0x10},
		{dat.EVDStateConfigSolicited, "DAT_EVD_STATE_CONFIG_SOLICITED", 0x20},
		{dat.EVDStateConfigThreshold, "DAT_EVD_STATE_CONFIG_THRESHOLD", 0x30},
	}},
}

func TestCountsAndTimesWithAMeaning(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"DAT_VALUE_UNKNOWN", dat.ValueUnknown, -2},
		{"DAT_WATERMARK_INFINITE", dat.WatermarkInfinite, -1},
		{"DAT_SRQ_LW_DEFAULT", dat.SRQLowWatermarkDefault, 0},
		{"DAT_NAME_MAX_LENGTH", dat.NameMaxLength, 256},
		{"DAT_OPTIMAL_ALIGNMENT", dat.OptimalAlignment, 256},
		{"dapl_version_major", dat.DAPLVersionMajor, 2},
		{"dapl_version_minor", dat.DAPLVersionMinor, 0},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", c.name, c.got, c.want)
		}
	}
	if dat.Infinite >= 0*time.Second {
		t.Errorf("Infinite is %v, which a real timeout could be", dat.Infinite)
	}
}

func TestHandleTypesOfUDAPLAreShiftedByTheCNO(t *testing.T) {
	want := map[dat.HandleType]int{
		dat.HandleCR: 0, dat.HandleEP: 1, dat.HandleEVD: 2, dat.HandleIA: 3, dat.HandleLMR: 4,
		dat.HandlePSP: 5, dat.HandlePZ: 6, dat.HandleRMR: 7, dat.HandleRSP: 8,
		dat.HandleCNO: 9, dat.HandleSRQ: 10, dat.HandleCSP: 11, dat.HandleExtensionBase: 12,
		dat.HandleExtensionBase + 1: 13,
	}
	for h, u := range want {
		if got := h.UDAPL(); got != u {
			t.Errorf("%v is %d in uDAPL, want %d", h, got, u)
		}
	}
}

func TestUnknownValuesPrintTypeAndNumber(t *testing.T) {
	for _, c := range []struct {
		value fmt.Stringer
		want  string
	}{
		{dat.EventNumber(0x1234), "EventNumber(0x1234)"},
		{dat.EventNumber(0), "EventNumber(0x0)"},
		{dat.Status(13), "Status(0xd)"},
		{dat.Operation(0xFF), "Operation(0xff)"},
		{dat.EPState(15), "EPState(0xf)"},
		{dat.HandleType(12), "HandleType(0xc)"},
		{dat.HandleType(0xFE), "HandleType(0xfe)"},
		{dat.UpcallPolicy(-5), "UpcallPolicy(-5)"},
		{dat.UpcallPolicy(3), "UpcallPolicy(3)"},
		{dat.UpcallFlag(1 << 31), "UpcallFlag(0x80000000)"},
		{dat.AsyncReason(0), "AsyncReason(0x0)"},
		{dat.Type(0x0018_0000), "Type(0x180000)"},
		{dat.Type(0x0001_0001), "Type(0x10001)"},
		{dat.Subtype(104), "Subtype(0x68)"},
		{dat.CompletionFlags(0x40), "CompletionFlags(0x40)"},
		{dat.EVDState(0x40), "EVDState(0x40)"},
		{dat.EPMask(1 << 63), "EPMask(0x8000000000000000)"},
	} {
		if got := c.value.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestSetsPrintTheirMembers(t *testing.T) {
	for _, c := range []struct {
		value fmt.Stringer
		want  string
	}{
		{dat.CompletionSuppress | dat.CompletionBarrierFence, "SUPPRESS|BARRIER_FENCE"},
		{dat.CompletionSuppress | 0x140, "SUPPRESS|0x140"},
		{dat.StreamDTO | dat.StreamConnection, "DTO|CONNECTION"},
		{dat.StreamDefault, "CR|DTO|CONNECTION|RMR_BIND|ASYNC"},
		{dat.PrivLocalWrite | dat.PrivRemoteAtomic, "LOCAL_WRITE|REMOTE_ATOMIC"},
		{dat.MemVirtual | dat.MemLMR | dat.MemPhysical, "LMR|PHYSICAL"},
		{dat.EVDStateEnabled | dat.EVDStateWaitable | dat.EVDStateConfigThreshold, "ENABLED|WAITABLE|CONFIG_THRESHOLD"},
		{dat.EVDStateDisabled | dat.EVDStateConfigSolicited, "DISABLED|CONFIG_SOLICITED"},
		{dat.EPFieldPZ | dat.EPFieldMaxRecvDTOs, "pz_handle|max_recv_dtos"},
	} {
		if got := c.value.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestJSONShowsNames(t *testing.T) {
	got, err := json.Marshal(struct {
		State  dat.EPState
		Priv   dat.Priv
		Policy dat.UpcallPolicy
		Event  dat.EventNumber
	}{dat.StateConnected, dat.PrivLocalRead | dat.PrivRemoteRead, dat.UpcallMany, dat.DTOCompletion})
	want := `{"State":"CONNECTED","Priv":"LOCAL_READ|REMOTE_READ","Policy":"MANY","Event":"DTO_COMPLETION_EVENT"}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestOnlySingleNotifyAndManyAreLive(t *testing.T) {
	for p, want := range map[dat.UpcallPolicy]bool{
		dat.UpcallDisable: false, dat.UpcallSingleInstance: true, dat.UpcallNotify: true,
		dat.UpcallMany: true, dat.UpcallTeardown: false, 3: false,
	} {
		if p.Live() != want {
			t.Errorf("%v is live: %v", p, p.Live())
		}
	}
}

func TestSubtypeOfAnEPState(t *testing.T) {
	want := map[dat.EPState]dat.Subtype{
		dat.StateUnconnected: 47, dat.StateActiveConnectionPending: 48,
		dat.StatePassiveConnectionPending: 49, dat.StateTentativeConnectionPending: 50,
		dat.StateConnected: 51, dat.StateConnectedSinglePath: 51, dat.StateConnectedMultiPath: 51,
		dat.StateDisconnected: 52, dat.StateReserved: 53, dat.StateCompletionPending: 54,
		dat.StateDisconnectPending: 55, dat.StateUnconfiguredUnconnected: 63,
		dat.StateUnconfiguredReserved: 64, dat.StateUnconfiguredPassive: 65,
		dat.StateUnconfiguredTentative: 66,
	}
	for s := dat.StateUnconnected; s <= dat.StateConnectedMultiPath; s++ {
		if got := s.Subtype(); got != want[s] || got == dat.NoSubtype {
			t.Errorf("%v has subtype %v, want %v", s, got, want[s])
		}
	}
	if got := dat.EPState(15).Subtype(); got != dat.NoSubtype {
		t.Errorf("a number that is no state has subtype %v", got)
	}
}
