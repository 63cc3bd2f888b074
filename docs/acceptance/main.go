// Command acceptance makes docs/acceptance.md: each case of users of RDMA libraries with the tests that show what happens
// here. A test belongs to a case if its name, or that of a subtest, carries the number: TestAC24…, or "AC-24 …".
// Run it in the module: go run ./docs/acceptance.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const pagePath = "docs/acceptance.md"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	text, err := generate(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, pagePath), []byte(text), 0o644)
}

// moduleRoot is the folder of the module that the command runs in.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no go.mod above the working directory")
			return "", err
		}
	}
	return "", err
}

// found is a test that carries the number of a case.
type found struct {
	file string // slash-separated, below the root
	name string // TestX, or TestX/subtest
	by   string // the function that a subtest runs, if it is a named one
}

// generate makes the page. A case without test or reason, a case with both, and a test of an unknown case are errors.
func generate(root string) (string, error) {
	tests, err := findTests(root)
	if err != nil {
		return "", err
	}
	return page(cases, tests)
}

func page(cases []acceptanceCase, tests map[string][]found) (string, error) {
	var s strings.Builder
	s.WriteString(`# Acceptance cases

What users of RDMA libraries have run into, and the test that shows what happens here. Made by ` + "`go run ./docs/acceptance`" + ` from
the names of tests and subtests that carry the numbers; CI checks that the page is current. ` + "`go test ./dat -run Acceptance/AC-41`" + `
runs one.

| case | what it is about | test |
|---|---|---|
`)
	known := map[string]bool{}
	var faults []error
	for _, c := range cases {
		known[c.id] = true
		cell := "— " + c.why
		switch list := tests[c.id]; {
		case len(list) == 0 && c.why == "":
			faults = append(faults, fmt.Errorf("%s has neither a test nor a reason", c.id))
		case len(list) > 0 && c.why != "":
			faults = append(faults, fmt.Errorf("%s has a test and a reason why it has none", c.id))
		case len(list) > 0:
			var links []string
			for _, f := range list {
				name := f.by
				if name == "" {
					_, name, _ = strings.Cut(f.name, "/")
				}
				if name == "" {
					name = f.name
				}
				links = append(links, fmt.Sprintf("[%s](../%s)", name, f.file))
			}
			slices.Sort(links)
			cell = strings.Join(slices.Compact(links), ", ")
		}
		fmt.Fprintf(&s, "| %s | %s | %s |\n", c.id, c.words, cell)
	}
	for id, list := range tests {
		if !known[id] {
			faults = append(faults, fmt.Errorf("%s in %s is no case", id, list[0].file))
		}
	}
	return s.String(), errors.Join(faults...)
}

var (
	inFunction = regexp.MustCompile(`AC(\d\d)`)
	inSubtest  = regexp.MustCompile(`^(?:AC-\d\d )+`)
	numbers    = regexp.MustCompile(`AC-\d\d`)
)

// findTests reads the test files of the module.
func findTests(root string) (map[string][]found, error) {
	tests := map[string][]found{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "build" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for id, list := range testsOf(file, filepath.ToSlash(rel)) {
			tests[id] = append(tests[id], list...)
		}
		return nil
	})
	return tests, err
}

// testsOf finds the tests and subtests of a file that carry numbers.
func testsOf(file *ast.File, rel string) map[string][]found {
	tests := map[string][]found{}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
			continue
		}
		for _, m := range inFunction.FindAllStringSubmatch(f.Name.Name, -1) {
			tests["AC-"+m[1]] = append(tests["AC-"+m[1]], found{file: rel, name: f.Name.Name})
		}
		subtest := func(args []ast.Expr) {
			if len(args) < 2 {
				return
			}
			lit, ok := args[0].(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				return
			}
			for _, id := range numbers.FindAllString(inSubtest.FindString(text), -1) {
				t := found{file: rel, name: f.Name.Name + "/" + text}
				if by, ok := args[1].(*ast.Ident); ok && strings.HasPrefix(by.Name, "Test") {
					t.by = by.Name
				} else {
					t.name = f.Name.Name + "/" + inSubtest.ReplaceAllString(text, "")
				}
				tests[id] = append(tests[id], t)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit: // {"AC-24 …", test}
				subtest(n.Elts)
			case *ast.CallExpr: // t.Run("AC-24 …", test)
				subtest(n.Args)
			}
			return true
		})
	}
	return tests
}
