package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"kdapl/cmd/kdapl/internal/perf"
	"kdapl/dat"
	"kdapl/registry"

	"github.com/HdrHistogram/hdrhistogram-go"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))) {
		t.Errorf("differs from %s (go test ./cmd/kdapl -update writes it anew):\n%s", path, got)
	}
}

// rendered is what a function writes.
func rendered(t *testing.T, e env, f func(env) error) []byte {
	t.Helper()
	var b bytes.Buffer
	e.ctx, e.stdout = context.Background(), &b
	if err := f(e); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var someVersion = versionInfo{Version: "v1.2.3", Revision: "abcdef", DAT: "2.0", Go: "go1.26.0", OS: "linux", Arch: "amd64"}

// someReport is a report of made-up measurements.
func someReport() *perfReport {
	r := &perfReport{
		Program: someVersion, CPUs: 8, Clock: 28 * time.Nanosecond,
		Adapter: "loop0", Address: netip.MustParseAddr("127.0.0.1"), Meaning: "REMOTE_ACKED",
		Completion: perf.Upcall, List: 1, Verify: true,
	}
	for _, op := range perf.Ops {
		for i, size := range []int{8, 4096, 1 << 20} {
			h := hdrhistogram.New(1, int64(time.Minute), 3)
			base := int64(45 + 40*i + size/25)
			if op == perf.Send {
				base *= 6
			}
			for j := range int64(1000) {
				if err := h.RecordValue(base + j*base/1500); err != nil {
					panic(err)
				}
			}
			if err := h.RecordValue(40 * base); err != nil {
				panic(err)
			}
			r.add(perf.Result{Spec: perf.Spec{Op: op, Kind: perf.Latency, Size: size, Depth: 1, List: 1},
				Messages: 1001, Elapsed: 150 * time.Millisecond, Checked: 1002, Histogram: h})
			r.add(perf.Result{Spec: perf.Spec{Op: op, Kind: perf.Throughput, Size: size, Depth: 64 >> (2 * i), List: 1},
				Messages: 3_000_000 >> (5 * i), Elapsed: 150 * time.Millisecond, Checked: 128,
				CPU: perf.CPU{Requester: 140 * time.Millisecond, Responder: 70 * time.Millisecond}})
		}
	}
	return r
}

func TestPerfTable(t *testing.T) {
	golden(t, "perf.txt", rendered(t, env{}, someReport().text))
}

func TestPerfTableInColor(t *testing.T) {
	golden(t, "perf-color.txt", rendered(t, env{color: true}, someReport().text))
}

func TestPerfHistograms(t *testing.T) {
	r := someReport()
	r.Rows, r.histogram = r.Rows[:2], true
	golden(t, "perf-histogram.txt", rendered(t, env{}, r.text))
}

func TestPerfTableOfOtherModes(t *testing.T) {
	r := someReport()
	r.Rows = r.Rows[:1]
	r.Verify, r.List, r.Completion = false, 16, perf.Dequeue
	golden(t, "perf-modes.txt", rendered(t, env{}, r.text))
}

func TestPerfTableOfAnInterruptedRun(t *testing.T) {
	r := someReport()
	r.Rows = r.Rows[:2]
	r.Rows[1].Throughput = nil
	r.Interrupted = true
	golden(t, "perf-interrupted.txt", rendered(t, env{}, r.text))
	r.Rows = nil
	golden(t, "perf-nothing.txt", rendered(t, env{}, r.text))
}

func TestPerfTableOfOneSize(t *testing.T) {
	r := someReport()
	r.Rows = []perfRow{r.Rows[0], r.Rows[3], r.Rows[6]}
	r.CPUs = 1
	golden(t, "perf-one-size.txt", rendered(t, env{}, r.text))
}

func TestPerfTableTellsOfPauses(t *testing.T) {
	r := someReport()
	r.Rows = r.Rows[:1]
	if err := r.Rows[0].Latency.Histogram.RecordValue(int64(80 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	golden(t, "perf-pauses.txt", rendered(t, env{}, r.text))
}

func TestPerfOfTwoProcesses(t *testing.T) {
	r := someReport()
	r.Rows = r.Rows[:2]
	r.Adapter, r.Completion, r.Meaning = "iwarp0", perf.Dequeue, "SOURCE_REUSABLE"
	r.Server, r.Settings = &remote{netip.MustParseAddrPort("127.0.0.1:18515")}, map[string]string{"crc": "off", "pcap": "/a/b.pcapng"}
	golden(t, "perf-remote.txt", rendered(t, env{}, r.text))
	golden(t, "perf-remote.json", rendered(t, env{}, r.json))
}

func TestServerLines(t *testing.T) {
	client := netip.MustParseAddrPort("127.0.0.1:40000")
	for name, json := range map[string]bool{"perf-server.txt": false, "perf-server.json": true} {
		var b bytes.Buffer
		l := newServerLog(&b, json)
		l.listening("iwarp0", netip.MustParseAddrPort("127.0.0.1:18515"))
		s := perf.Served{Client: client, Spec: perf.Spec{Op: perf.Write, Kind: perf.Throughput, Size: 4096, Depth: 64},
			Completion: perf.Wait, Messages: 12345, CPU: 250 * time.Millisecond}
		l.served(s)
		s.Err = errors.Join(errors.New("one"), errors.New("two"))
		l.served(s)
		s.Refused = true
		l.served(s)
		l.served(perf.Served{Client: client, Refused: true, Err: errors.New("a stranger")})
		golden(t, name, b.Bytes())
	}
}

func TestPerfJSON(t *testing.T) {
	r := someReport()
	r.Rows = r.Rows[:4]
	r.Rows[3].Throughput = nil
	golden(t, "perf.json", rendered(t, env{}, r.json))
	r.Rows, r.histogram, r.Interrupted = r.Rows[:1], true, true
	golden(t, "perf-histogram.json", rendered(t, env{}, r.json))
	r.Rows = nil
	golden(t, "perf-nothing.json", rendered(t, env{}, r.json))
}

// someParam has a value of its own in every attribute.
func someParam(name string) dat.IAParam {
	var p dat.IAParam
	n := uint64(100)
	for _, v := range []reflect.Value{reflect.ValueOf(&p.Attr).Elem(), reflect.ValueOf(&p.Provider).Elem()} {
		for i := range v.NumField() {
			switch f := v.Field(i); {
			case f.Type() == reflect.TypeFor[string]():
				f.SetString(fmt.Sprintf("%s-%d", name, n))
			case f.Type().PkgPath() != "": // enumerations: their zero
			case f.CanInt():
				f.SetInt(int64(n))
			case f.CanUint():
				f.SetUint(n)
			case f.Kind() == reflect.Bool:
				f.SetBool(n%2 == 0)
			}
			n++
		}
	}
	p.Attr.Address = netip.MustParseAddr("192.0.2.1")
	p.Attr.MaxLMRBlockSize = 1 << 40
	p.Attr.MaxMessageSize = 1<<32 - 1
	p.Attr.VendorAttrs = []dat.NamedAttr{{Name: "COLOR", Value: "green"}, {Name: "LEDS", Value: "2"}}
	p.Provider.CompletionFlagsSupported = dat.CompletionSuppress | dat.CompletionSolicitedWait
	p.Provider.UpcallPolicy = dat.UpcallMany
	p.Provider.EVDStreamMergingSupported = dat.FullMergeMatrix()
	return p
}

func someAdapters() []opened {
	lesser := someParam("lesser")
	lesser.Attr.Address = netip.Addr{}
	lesser.Provider.EVDStreamMergingSupported[dat.MergeSoftware][dat.MergeDTO] = false
	lesser.Provider.EVDStreamMergingSupported[dat.MergeDTO][dat.MergeSoftware] = false
	return []opened{
		{Info: registry.Info{Name: "loop0", Major: 2, ThreadSafe: true, Source: "built in", Openable: true}, param: someParam("loop0")},
		{Info: registry.Info{Name: "lesser", Major: 2, Source: "/etc/dat.conf:3", Library: "kdapl", Params: "loop addr=192.0.2.1", Openable: true}, param: lesser},
		{Info: registry.Info{Name: "mlx", Major: 2, Source: "/etc/dat.conf:4", Library: "libdapl.so"}, err: errors.New("is not of this module")},
	}
}

func TestInfoTable(t *testing.T) {
	golden(t, "info.txt", rendered(t, env{}, func(e env) error { return infoText(e, someAdapters()) }))
}

func TestInfoJSON(t *testing.T) {
	got := rendered(t, env{}, func(e env) error { return infoJSON(e, someAdapters()) })
	golden(t, "info.json", got)
	var v any
	if err := json.Unmarshal(got, &v); err != nil {
		t.Error(err)
	}
}

func TestVersionLine(t *testing.T) {
	if got, want := someVersion.String(), "kdapl v1.2.3, DAT 2.0, go1.26.0, linux/amd64, revision abcdef"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEveryAttributeIsShownOnceUnderItsName(t *testing.T) {
	listed := map[bool]map[string]string{false: {}, true: {}}
	for _, g := range attributeGroups {
		for _, a := range g.attributes {
			if listed[g.provider][a.field] != "" {
				t.Errorf("%s is listed twice", a.field)
			}
			listed[g.provider][a.field] = a.name
		}
	}
	names := map[string]bool{"pz_support": true, "is_signal_safe": true} // uDAPL's, at places that kDAPL uses otherwise
	for i := range 64 {
		names[dat.IAMask(1<<i).String()] = true
		names[dat.ProviderMask(1<<i).String()] = true
	}
	for provider, of := range map[bool]reflect.Type{false: reflect.TypeFor[dat.IAAttr](), true: reflect.TypeFor[dat.ProviderAttr]()} {
		if got, want := len(listed[provider]), of.NumField(); got != want {
			t.Errorf("%v: %d attributes are listed, there are %d", of, got, want)
		}
		for i := range of.NumField() {
			name := listed[provider][of.Field(i).Name]
			if name == "" {
				t.Errorf("%s is not listed", of.Field(i).Name)
			} else if !names[name] {
				t.Errorf("%s is called %s, which is no name of DAT", of.Field(i).Name, name)
			}
			if !strings.Contains(strings.ReplaceAll(name, "_", ""), strings.TrimSuffix(strings.ToLower(of.Field(i).Name), "s")) {
				t.Errorf("%s is called %s", of.Field(i).Name, name)
			}
		}
	}
}
