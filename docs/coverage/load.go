package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// source is what the page is made from: packages of the module, type-checked, with their tests.
type source struct {
	root   string // directory of the module
	module string // its path
	fset   *token.FileSet
	// libs are the packages whose symbols the page is about, by path in the module.
	libs map[string]*types.Package
	// used has the symbols that library code refers to outside of the file that declares them.
	used map[string]bool
	// nodes are the functions and variables of tests, by key; tests are those that run.
	nodes map[string]*node
	tests []*test
}

// node is a function or variable of a test package, and what it refers to.
type node struct {
	symbols map[string]bool // of the libraries
	calls   map[string]bool // other nodes
}

// test is a test function, or a rule of dattest.
type test struct {
	name string // as the page shows it
	file string // in the module, with slashes
	node string
	// direct are the symbols that it names itself; all those that its helpers name too.
	direct, all map[string]bool
}

// listedPackage is what go list tells.
type listedPackage struct {
	ImportPath, Dir, Export, ForTest   string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Module                             *struct{ Path string }
}

// subjects are the packages of the module that are looked at; libraries are those whose symbols count.
var (
	subjects  = []string{"dat", "registry", "dat/dattest"}
	libraries = map[string]bool{"dat": true, "registry": true}
)

// naming are test files that check names and numbers of constants, or pass all of them as bad arguments: what is named
// there is not tested by that.
var naming = map[string]bool{
	"dat/errors_test.go": true, "dat/errtypes_test.go": true, "dat/events_test.go": true, "dat/flags_test.go": true,
	"dat/attr_ep_test.go": true, "dat/attr_ia_test.go": true, "dat/attr_provider_test.go": true, "dat/badargs_test.go": true,
}

func load(root string) (*source, error) {
	s := &source{root: root, fset: token.NewFileSet(), libs: map[string]*types.Package{}, used: map[string]bool{}, nodes: map[string]*node{}}
	var patterns []string
	for _, p := range subjects {
		if _, err := os.Stat(filepath.Join(root, p)); err == nil {
			patterns = append(patterns, "./"+p)
		}
	}
	listed, err := goList(root, append([]string{"-export", "-deps", "-test"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	// Packages that are compiled anew for a test have that test's files in them.
	export := map[string]map[string]string{}
	var ours []listedPackage
	for _, p := range listed {
		path, _, _ := strings.Cut(p.ImportPath, " ")
		if export[p.ForTest] == nil {
			export[p.ForTest] = map[string]string{}
		}
		if !strings.HasSuffix(path, ".test") && !strings.HasSuffix(path, "_test") {
			export[p.ForTest][path] = p.Export
		}
		if p.Module != nil && p.ForTest == "" && !strings.HasSuffix(p.ImportPath, ".test") {
			rel, err := filepath.Rel(root, p.Dir)
			if err != nil {
				return nil, err
			}
			for _, sub := range subjects {
				if filepath.ToSlash(rel) == sub {
					s.module = p.Module.Path
					ours = append(ours, p)
				}
			}
		}
	}
	for _, p := range ours {
		importer := func(forTest string) types.Importer {
			return importer.ForCompiler(s.fset, "gc", func(path string) (io.ReadCloser, error) {
				for _, from := range []string{forTest, ""} {
					if file := export[from][path]; file != "" {
						return os.Open(file)
					}
				}
				return nil, fmt.Errorf("no export data of %s", path)
			})
		}
		if err := s.check(p, importer); err != nil {
			return nil, err
		}
	}
	for _, t := range s.tests {
		t.direct, t.all = s.nodes[t.node].symbols, map[string]bool{}
		s.closure(t.node, t.all, map[string]bool{})
	}
	return s, nil
}

func goList(dir string, args ...string) ([]listedPackage, error) {
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Export,ForTest,GoFiles,TestGoFiles,XTestGoFiles,Module"}, args...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	var all []listedPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// check type-checks a package, alone and with its tests, and enters what it finds.
func (s *source) check(p listedPackage, importer func(forTest string) types.Importer) error {
	rel, _ := filepath.Rel(s.root, p.Dir)
	rel = filepath.ToSlash(rel)
	parse := func(names []string) ([]*ast.File, error) {
		var files []*ast.File
		for _, name := range names {
			f, err := parser.ParseFile(s.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
		return files, nil
	}
	lib, err := parse(p.GoFiles)
	if err != nil {
		return err
	}
	inside, err := parse(p.TestGoFiles)
	if err != nil {
		return err
	}
	outside, err := parse(p.XTestGoFiles)
	if err != nil {
		return err
	}
	typed := func(path, forTest string, files []*ast.File) (*types.Package, *types.Info, error) {
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
		pkg, err := (&types.Config{Importer: importer(forTest)}).Check(path, s.fset, files, info)
		return pkg, info, err
	}
	pkg, info, err := typed(p.ImportPath, "", append(slices.Clone(lib), inside...))
	if err != nil {
		return err
	}
	if libraries[rel] {
		s.libs[rel] = pkg
		s.noteUse(lib, info)
	} else { // a suite: its rules are tests
		s.noteTests(rel, lib, info, true)
	}
	s.noteTests(rel, inside, info, false)
	if len(outside) > 0 {
		_, info, err := typed(p.ImportPath+"_test", p.ImportPath, outside)
		if err != nil {
			return err
		}
		s.noteTests(rel, outside, info, false)
	}
	return nil
}

// noteUse enters the symbols that library code uses outside of the file that declares them.
func (s *source) noteUse(files []*ast.File, info *types.Info) {
	for _, f := range files {
		in := s.fset.File(f.Pos()).Name()
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if obj := info.Uses[id]; obj != nil && s.fset.File(obj.Pos()) != nil && s.fset.File(obj.Pos()).Name() != in {
					s.used[s.key(obj)] = true
				}
			}
			return true
		})
	}
}

// noteTests enters the functions and variables of test files, or of a suite, and which of them run.
func (s *source) noteTests(rel string, files []*ast.File, info *types.Info, suite bool) {
	for _, f := range files {
		name := rel + "/" + filepath.Base(s.fset.File(f.Pos()).Name())
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				key := s.nodeKey(info.Defs[d.Name])
				s.enter(key, d, info, naming[name])
				if !suite && d.Recv == nil && (strings.HasPrefix(d.Name.Name, "Test") || strings.HasPrefix(d.Name.Name, "Example")) && d.Name.Name != "TestMain" {
					s.tests = append(s.tests, &test{name: d.Name.Name, file: name, node: key})
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					v, ok := spec.(*ast.ValueSpec)
					if !ok {
						continue
					}
					for _, id := range v.Names {
						s.enter(s.nodeKey(info.Defs[id]), v, info, naming[name])
					}
					if suite {
						s.noteRules(name, v, info)
					}
				}
			}
		}
	}
}

// noteRules finds the rules of a suite: elements of a list of rules, each a name and a function.
func (s *source) noteRules(file string, v *ast.ValueSpec, info *types.Info) {
	for i, value := range v.Values {
		list, ok := value.(*ast.CompositeLit)
		if !ok || i >= len(v.Names) {
			continue
		}
		group, isRules := strings.CutSuffix(v.Names[i].Name, "Rules")
		if !isRules {
			continue
		}
		for _, e := range list.Elts {
			rule, ok := e.(*ast.CompositeLit)
			if !ok {
				continue
			}
			var name string
			key := fmt.Sprintf("%s:%d", file, s.fset.Position(rule.Pos()).Offset)
			s.enter(key, rule, info, false)
			for _, field := range rule.Elts {
				if kv, ok := field.(*ast.KeyValueExpr); ok {
					field = kv.Value
				}
				if lit, ok := field.(*ast.BasicLit); ok && lit.Kind == token.STRING && name == "" {
					name = strings.Trim(lit.Value, "\"`")
				}
			}
			// What a rule's function names itself counts as named by the rule.
			for called := range s.nodes[key].calls {
				if n := s.nodes[called]; n != nil {
					for sym := range n.symbols {
						s.nodes[key].symbols[sym] = true
					}
				}
			}
			s.tests = append(s.tests, &test{name: group + "/" + name, file: file, node: key})
		}
	}
}

// enter notes what a declaration refers to, without constants if it only names them.
func (s *source) enter(key string, n ast.Node, info *types.Info, naming bool) {
	entry := &node{symbols: map[string]bool{}, calls: map[string]bool{}}
	s.nodes[key] = entry
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		obj := info.Uses[id]
		if obj == nil || obj.Pkg() == nil {
			return true
		}
		if _, constant := obj.(*types.Const); constant && naming {
			return true
		}
		if sym := s.key(obj); sym != "" {
			entry.symbols[sym] = true
		}
		entry.calls[s.nodeKey(obj)] = true
		return true
	})
}

// closure collects the symbols that a node and those it calls refer to.
func (s *source) closure(key string, into, seen map[string]bool) {
	n := s.nodes[key]
	if n == nil || seen[key] {
		return
	}
	seen[key] = true
	for sym := range n.symbols {
		into[sym] = true
	}
	for called := range n.calls {
		s.closure(called, into, seen)
	}
}

// key names an exported symbol of the libraries: "dat.EP.PostSend", "dat.StatusFlushed". Others are "".
func (s *source) key(obj types.Object) string {
	if obj.Pkg() == nil || !obj.Exported() {
		return ""
	}
	path, ours := strings.CutPrefix(obj.Pkg().Path(), s.module+"/")
	if path = strings.TrimSuffix(path, "_test"); !ours || !libraries[path] {
		return ""
	}
	if f, ok := obj.(*types.Func); ok {
		if recv := f.Signature().Recv(); recv != nil {
			t := recv.Type()
			if p, ok := t.(*types.Pointer); ok {
				t = p.Elem()
			}
			if named, ok := t.(*types.Named); ok {
				return path + "." + named.Obj().Name() + "." + obj.Name()
			}
			return ""
		}
	}
	if v, ok := obj.(*types.Var); ok && v.IsField() {
		return ""
	}
	return path + "." + obj.Name()
}

// nodeKey names a function or variable of a test package, by where it is declared.
func (s *source) nodeKey(obj types.Object) string {
	if obj == nil {
		return ""
	}
	pos := s.fset.Position(obj.Pos())
	return fmt.Sprintf("%s:%d:%d", pos.Filename, pos.Line, pos.Column)
}

// exists reports whether a symbol is exported by a library: "dat.EP.PostSend", or an interface's method.
func (s *source) exists(symbol string) bool {
	obj, method := s.find(symbol)
	return obj != nil && (method == "" || hasMethod(obj, method))
}

func (s *source) find(symbol string) (obj types.Object, method string) {
	parts := strings.Split(symbol, ".")
	if len(parts) < 2 || s.libs[parts[0]] == nil {
		return nil, ""
	}
	obj = s.libs[parts[0]].Scope().Lookup(parts[1])
	if len(parts) == 3 {
		method = parts[2]
	}
	return obj, method
}

func hasMethod(obj types.Object, method string) bool {
	t := obj.Type()
	if !types.IsInterface(t) {
		t = types.NewPointer(t)
	}
	return types.NewMethodSet(t).Lookup(obj.Pkg(), method) != nil
}

// constants lists the exported constants of a type, in the order of their values and then of the source.
func (s *source) constants(typ string) []string {
	scope := s.libs["dat"].Scope()
	var all []types.Object
	for _, name := range scope.Names() {
		if c, ok := scope.Lookup(name).(*types.Const); ok && c.Exported() {
			if named, ok := c.Type().(*types.Named); ok && named.Obj().Name() == typ {
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b types.Object) int { return int(a.Pos() - b.Pos()) })
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Name()
	}
	return names
}
