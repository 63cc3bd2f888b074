package kdapl

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers says which packages of the module a package may import, by prefix, longest match
// first. Imports point down only.
var layers = []struct {
	pkg     string
	imports []string
}{
	{"capi", []string{"dat", "internal/foreign", "registry", "verbs"}},
	{"cmd/kdapl/internal/", []string{"cmd/kdapl/internal/", "registry", "dat", "internal/"}},
	{"cmd/", []string{"registry", "dat", "internal/", "stat"}},
	{"stat", []string{"dat"}},
	{"registry", []string{"dat", "verbs", "device/"}},
	{"dat/dattest", []string{"dat"}},
	{"dat", []string{"verbs", "internal/evring", "internal/explore", "internal/fastlock", "internal/foreign"}},
	{"verbs/verbstest", []string{"verbs"}},
	{"verbs", nil},
	{"device/iwarp/internal/wiretest", []string{"internal/pcap", "device/iwarp/internal/"}},
	{"device/iwarp/internal/", []string{"device/iwarp/internal/"}},
	{"device/internal/softnic", []string{"verbs", "internal/explore", "internal/fastlock"}},
	{"device/", []string{"verbs", "device/internal/", "device/iwarp/internal/", "internal/"}},
	{"internal/", []string{"internal/"}},
	{"model/mutate", []string{"internal/"}},
	{"model", nil},
	{"docs/", nil},
	{"examples/", []string{"registry", "dat"}},
	{"docs", nil},
	{"bench", []string{"bench/internal/", "dat", "device/", "internal/", "registry", "verbs"}},
	{"interop", []string{"interop/", "dat", "device/", "internal/", "registry", "verbs"}},
}

// library are the packages that depend on nothing but the standard library, golang.org/x/sys and
// the module itself.
var library = []string{"dat", "verbs", "device/", "registry", "internal/", "stat"}

type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func listPackages(t *testing.T, pattern string) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Standard", pattern).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func module(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m").Output()
	if err != nil {
		t.Fatalf("go list -m: %v", err)
	}
	return strings.TrimSpace(string(out)) + "/"
}

func hasPrefix(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if name == p || strings.HasPrefix(name, strings.TrimSuffix(p, "/")+"/") {
			return true
		}
	}
	return false
}

func TestImportsPointDown(t *testing.T) {
	mod := module(t)
	for _, p := range listPackages(t, "./...") {
		name, _ := strings.CutPrefix(p.ImportPath, mod)
		if name+"/" == mod {
			continue // this package, which has tests only
		}
		found := false
		for _, l := range layers {
			if !hasPrefix(name, []string{l.pkg}) {
				continue
			}
			found = true
			for _, imp := range p.Imports {
				if to, ours := strings.CutPrefix(imp, mod); ours && !hasPrefix(to, l.imports) && !hasPrefix(to, []string{name}) {
					t.Errorf("%s imports %s; it may import %q only", name, to, l.imports)
				}
			}
			break
		}
		if !found {
			t.Errorf("%s has no place in the layers: say in this test what it may import", name)
		}
	}
}

func TestLibraryDependsOnTheStandardLibraryOnly(t *testing.T) {
	mod := module(t)
	standard := map[string]bool{"C": true, "unsafe": true}
	for _, p := range listPackages(t, "std") {
		standard[p.ImportPath] = true
	}
	for _, p := range listPackages(t, "./...") {
		name, _ := strings.CutPrefix(p.ImportPath, mod)
		if !hasPrefix(name, library) {
			continue
		}
		for _, imp := range p.Imports {
			if !standard[imp] && !strings.HasPrefix(imp, mod) && !strings.HasPrefix(imp, "golang.org/x/sys/") {
				t.Errorf("%s imports %s", name, imp)
			}
		}
	}
}

// No package of a normal build uses C, whose libraries may keep state for each thread (AC-68).
func TestAC68NoStateOfThreads(t *testing.T) {
	for _, p := range listPackages(t, "./...") {
		if slices.Contains(p.Imports, "C") {
			t.Errorf("%s imports C", p.ImportPath)
		}
	}
}
