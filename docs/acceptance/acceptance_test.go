package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page in the repository is the one that the tests make.
func TestPageIsCurrent(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join(root, pagePath))
	if err != nil || strings.ReplaceAll(string(old), "\r\n", "\n") != text {
		t.Errorf("%s is out of date (%v): go run ./docs/acceptance", pagePath, err)
	}
}

func TestNamesAreFound(t *testing.T) {
	const source = `package p
func TestAC24Full(t *testing.T) {}
func TestBoth(t *testing.T) {
	for _, c := range []struct{ name string; test func(*testing.T) }{
		{"AC-01 AC-02 one", TestOne},
		{"nothing about AC-03", TestOne},
	} { t.Run(c.name, c.test) }
	t.Run("AC-05 inline", func(t *testing.T) {})
}
func helperAC09(t *testing.T) {}
`
	file, err := parser.ParseFile(token.NewFileSet(), "p_test.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := testsOf(file, "p/p_test.go")
	for id, want := range map[string]found{
		"AC-24": {"p/p_test.go", "TestAC24Full", ""},
		"AC-01": {"p/p_test.go", "TestBoth/AC-01 AC-02 one", "TestOne"},
		"AC-02": {"p/p_test.go", "TestBoth/AC-01 AC-02 one", "TestOne"},
		"AC-05": {"p/p_test.go", "TestBoth/inline", ""},
	} {
		if list := got[id]; len(list) != 1 || list[0] != want {
			t.Errorf("%s: %v, want %v", id, list, want)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d cases: %v", len(got), got)
	}
}

func TestHolesAreErrors(t *testing.T) {
	test := map[string][]found{"AC-01": {{"a_test.go", "TestAC01", ""}}}
	for name, c := range map[string]struct {
		cases []acceptanceCase
		tests map[string][]found
	}{
		"no test":      {[]acceptanceCase{{"AC-01", "x", ""}}, nil},
		"both":         {[]acceptanceCase{{"AC-01", "x", "because"}}, test},
		"unknown case": {nil, test},
	} {
		if _, err := page(c.cases, c.tests); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if text, err := page([]acceptanceCase{{"AC-01", "x", ""}}, test); err != nil || !strings.Contains(text, "| AC-01 | x | [TestAC01](../a_test.go) |") {
		t.Errorf("%v\n%s", err, text)
	}
}
