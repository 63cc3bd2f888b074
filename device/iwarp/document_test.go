package iwarp_test

import (
	"flag"
	"os"
	"strings"
	"testing"
)

// update writes what the tables of this package's tests come out as into docs/faults.md.
var update = flag.Bool("update", false, "write docs/faults.md anew")

// document checks that a section of docs/faults.md, between its marks, is what has just been seen.
func document(t *testing.T, section, text string) {
	t.Helper()
	if t.Failed() {
		return
	}
	const name = "../../docs/faults.md"
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(raw), "\r\n", "\n")
	begin, end := "<!-- begin "+section+" -->\n", "<!-- end "+section+" -->\n"
	i, k := strings.Index(page, begin), strings.Index(page, end)
	if i < 0 || k < i {
		t.Fatalf("%s has no section %q", name, section)
	}
	i += len(begin)
	if page[i:k] == text {
		return
	}
	if !*update {
		old, now := strings.Split(page[i:k], "\n"), strings.Split(text, "\n")
		for n := 0; n < len(old) && n < len(now); n++ {
			if old[n] != now[n] {
				t.Errorf("docs/faults.md says\n%s\nbut it is\n%s", old[n], now[n])
			}
		}
		t.Errorf("%s is not what is; if it is right: go test -run 'TestFaults|TestEndings' ./device/iwarp -update", name)
		return
	}
	if err := os.WriteFile(name, []byte(page[:i]+text+page[k:]), 0o644); err != nil {
		t.Fatal(err)
	}
}
