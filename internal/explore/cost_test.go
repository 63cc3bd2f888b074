package explore_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The machine code of a normal build is that of the same packages without the points.
func TestPointsCostNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages twice; not in the short form")
	}
	for _, pkg := range []string{"dat", "internal/evring", "internal/fastlock"} {
		t.Run(pkg, func(t *testing.T) {
			dir, err := filepath.Abs(filepath.Join("..", "..", pkg))
			if err != nil {
				t.Fatal(err)
			}
			overlay, points := withoutPoints(t, dir)
			if points == 0 {
				t.Fatal("there are no points in it")
			}
			with, without := machineCode(t, dir), machineCode(t, dir, "-overlay="+overlay)
			if len(with) == 0 || len(with) != len(without) {
				t.Errorf("%d functions with the points, %d without", len(with), len(without))
			}
			for name, code := range without {
				if with[name] != code {
					t.Errorf("%s: the points change the code from\n%s\nto\n%s", name, code, with[name])
				}
			}
			t.Logf("%d points, %d functions", points, len(with))
		})
	}
}

// withoutPoints makes an overlay of the files of a package without what concerns package explore, and counts that.
func withoutPoints(t *testing.T, dir string) (overlay string, points int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	tmp := t.TempDir()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		before := points
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				n.List = strip(n.List, &points)
			case *ast.CaseClause:
				n.Body = strip(n.Body, &points)
			case *ast.CommClause:
				n.Body = strip(n.Body, &points)
			}
			return true
		})
		if points == before {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ImportSpec); ok && strings.HasSuffix(spec.Path.Value, `/internal/explore"`) {
				spec.Name = ast.NewIdent("_")
			}
			return true
		})
		var text bytes.Buffer
		if err := format.Node(&text, set, file); err != nil {
			t.Fatal(err)
		}
		code := text.Bytes()
		if !bytes.Contains(code, []byte("cmp.")) { // used by what was stripped only
			code = bytes.ReplaceAll(code, []byte("\t\"cmp\"\n"), nil)
		}
		replace[name] = filepath.Join(tmp, filepath.Base(name))
		if err := os.WriteFile(replace[name], code, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay, points
}

// strip removes the statements that concern package explore.
func strip(list []ast.Stmt, points *int) (kept []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && mentions(call.Fun) {
				*points++
				continue
			}
		case *ast.IfStmt:
			if mentions(s.Cond) {
				*points++
				if s.Else == nil {
					continue
				}
				kept = append(kept, &ast.BlockStmt{List: append([]ast.Stmt{s.Init}, s.Else)})
				continue
			}
		}
		kept = append(kept, s)
	}
	return kept
}

// mentions reports whether an expression begins with a name of package explore.
func mentions(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.BinaryExpr:
		return mentions(x.X)
	case *ast.SelectorExpr:
		id, ok := x.X.(*ast.Ident)
		return ok && id.Name == "explore"
	}
	return false
}

var (
	function    = regexp.MustCompile(`(?m)^\S+ STEXT.*\n(?:\t.*\n)*`)
	instruction = regexp.MustCompile(`(?m)^\t0x[0-9a-f]+ \d+ \([^)]*\)\t(.*)$`)
)

// machineCode is the assembly of each function of a package.
func machineCode(t *testing.T, dir string, flags ...string) map[string]string {
	t.Helper()
	cmd := exec.Command("go", append(append([]string{"build", "-gcflags=-S"}, flags...), ".")...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all := map[string]string{}
	for _, f := range function.FindAllString(string(out), -1) {
		var code strings.Builder
		for _, i := range instruction.FindAllStringSubmatch(f, -1) {
			if !strings.HasPrefix(i[1], "PCDATA") && !strings.HasPrefix(i[1], "FUNCDATA") && i[1] != "NOP" {
				code.WriteString(i[1])
				code.WriteByte('\n')
			}
		}
		name, _, _ := strings.Cut(f, " ")
		all[name] = code.String()
	}
	return all
}
