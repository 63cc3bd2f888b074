package main

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestSymbolWords(t *testing.T) {
	for symbol, want := range map[string][]string{
		"dat.EP.PostRDMARead":     {"ep", "post", "rdma", "read"},
		"dat.StatusFlushed":       {"status", "flushed"},
		"dat.IA.NewCNOFD":         {"ia", "new", "cnofd"},
		"registry.Register":       {"register"},
		"dat.PZ.NewRMRForEP":      {"pz", "new", "rmr", "for", "ep"},
		"dat.IBUDAHFree":          {"ibudah", "free"},
		"dat.SRQ.SetLowWatermark": {"srq", "set", "low", "watermark"},
	} {
		if got := symbolWords(symbol); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, want %q", symbol, got, want)
		}
	}
}

// The page in the repository is the one that the code and its tests make.
func TestPageIsCurrentAndHasNoHole(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the page is made on Linux, which has all tests")
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, holes, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range holes {
		t.Errorf("hole: %s", h)
	}
	page, err := os.ReadFile(filepath.Join(root, pagePath))
	if err != nil {
		t.Fatal(err)
	}
	// A row that came or went is a fault; that a rule has got another test beside those on the page is not.
	first := func(line string) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		switch {
		case strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "###"):
			return line // of the list of the suite's rules
		case !strings.HasPrefix(line, "|"):
			return "" // prose
		}
		return name
	}
	was, is := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(page)) {
		was[first(line)] = true
	}
	for line := range strings.Lines(text) {
		if is[first(line)] = true; !was[first(line)] {
			t.Errorf("not on the page: %s", line)
		}
	}
	for line := range strings.Lines(string(page)) {
		if !is[first(line)] {
			t.Errorf("no longer true: %s", line)
		}
	}
	for _, m := range link.FindAllStringSubmatch(string(page), -1) {
		file, err := os.ReadFile(filepath.Join(root, m[2]))
		name := m[1]
		if _, rule, suite := strings.Cut(name, "/"); suite {
			name = rule
		}
		if err != nil || !strings.Contains(string(file), name) {
			t.Errorf("%s is not in %s: %v", m[1], m[2], err)
		}
	}
	if t.Failed() {
		t.Logf("%s is not current; run: go run ./docs/coverage", pagePath)
	}
}

// A page without the facts is refused: what the test above relies on.
func TestHolesAreFound(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	src, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	holes := func(change func(p *page)) []string {
		p := &page{src: src, before: map[string][]string{}}
		change(p)
		return p.holes
	}
	for name, c := range map[string]struct {
		change func(*page)
		want   string
	}{
		"no such symbol":        {func(p *page) { p.call(call{"dat_x", "k", []string{"dat.EP.NoSuchCall"}, ""}) }, "there is no dat.EP.NoSuchCall"},
		"no test":               {func(p *page) { p.call(call{"dat_x", "k", []string{"dat.NameMaxLength2"}, ""}) }, "no test of"},
		"a reason for nothing":  {func(p *page) { p.enumeration(enumeration{typ: "Status", why: map[string]string{"StatusNever": "x"}}) }, "there is no Status StatusNever"},
		"a reason for a tested": {func(p *page) { p.enumeration(enumeration{typ: "Status", why: map[string]string{"StatusFlushed": "x"}}) }, "StatusFlushed has a reason"},
		"neither":               {func(p *page) { p.enumeration(enumeration{typ: "Operation"}) }, "OpCollective has no test"},
		"unused without reason": {func(p *page) { p.enumeration(enumeration{typ: "Subtype", onlyUsed: true}) }, "InvalidArg10 is not used"},
	} {
		if got := holes(c.change); !slices.ContainsFunc(got, func(h string) bool { return strings.Contains(h, c.want) }) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
