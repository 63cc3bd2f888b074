package mutation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// switchEnv tells a program of Together which change it is to have, from 1 on.
const switchEnv = "KDAPL_MUTATION"

// Programs are the tests of a package with one of several changes at a time.
type Programs struct {
	together string
	alone    map[int]string
}

// Program returns the program that has the i-th change, and the variable that its environment needs for it.
func (p Programs) Program(i int) (program, env string) {
	if alone, ok := p.alone[i]; ok {
		return alone, switchEnv + "=0"
	}
	return p.together, fmt.Sprintf("%s=%d", switchEnv, i+1)
}

// Unchanged is Program for the source as it is.
func (p Programs) Unchanged() (program, env string) { return p.together, switchEnv + "=0" }

// Together compiles the tests of a package like Change.Build, for many changes, all of one other package, with few builds: a
// function that is changed is there a second time, with the change, and the first begins by asking which of them is meant. A change
// outside of functions is a build of its own.
func Together(root, pkg, tags, dir string, changes []Change) (Programs, error) {
	p := Programs{alone: map[int]string{}}
	replace := map[string]string{}
	files := map[string]*file{}
	for i, c := range changes {
		if _, err := c.Apply(root); err != nil {
			return p, err
		}
		f := files[c.File]
		if f == nil {
			var err error
			if f, err = parse(root, c.File); err != nil {
				return p, err
			}
			files[c.File] = f
		}
		if f.add(i+1, c) {
			continue
		}
		own := filepath.Join(dir, fmt.Sprint("alone", i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return p, err
		}
		program, err := c.Build(root, pkg, tags, own)
		if err != nil {
			return p, fmt.Errorf("%s, %q: %w", c.File, c.Old, err)
		}
		p.alone[i] = program
	}
	for name, f := range files {
		changed := filepath.Join(dir, fmt.Sprint("changed", len(replace), ".go"))
		if err := os.WriteFile(changed, f.source(), 0o600); err != nil {
			return p, err
		}
		replace[filepath.Join(root, name)] = changed
	}
	if err := p.addSwitch(root, dir, replace, files); err != nil {
		return p, err
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return p, err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return p, err
	}
	p.together, err = build(root, pkg, dir, "-tags", tags, "-overlay", overlay)
	return p, err
}

// addSwitch adds the file that reads the environment to the changed package.
func (p Programs) addSwitch(root, dir string, replace map[string]string, files map[string]*file) error {
	var folder, pkg string
	for name, f := range files {
		if folder != "" && (path.Dir(name) != folder || f.ast.Name.Name != pkg) {
			return errors.New("mutation: changes of several packages")
		}
		folder, pkg = path.Dir(name), f.ast.Name.Name
	}
	text := "package " + pkg + "\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar mutationSwitch, _ = strconv.Atoi(os.Getenv(\"" + switchEnv + "\"))\n"
	name := filepath.Join(dir, "switch.go")
	replace[filepath.Join(root, folder, "mutation_switch.go")] = name
	return os.WriteFile(name, []byte(text), 0o600)
}

// file is a source file that gets changed copies of its functions.
type file struct {
	text   []byte
	fset   *token.FileSet
	ast    *ast.File
	begins map[int]string // by offset, what the bodies of functions begin with
	copies bytes.Buffer
}

func parse(root, name string) (*file, error) {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	f := &file{text: text, fset: token.NewFileSet(), begins: map[int]string{}}
	f.ast, err = parser.ParseFile(f.fset, name, text, parser.SkipObjectResolution)
	return f, err
}

func (f *file) offset(p token.Pos) int { return f.fset.Position(p).Offset }

// add makes the changed copy of the function around a change. It returns false if there is none, or none that can be called by
// another with the same signature.
func (f *file) add(n int, c Change) bool {
	at := bytes.Index(f.text, []byte(c.Old))
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		start, body, stop := f.offset(fn.Pos()), f.offset(fn.Body.Lbrace)+1, f.offset(fn.End())
		if at < start || at+len(c.Old) > stop {
			continue
		}
		if at < body && !strings.HasPrefix(c.New, c.Old[:min(body-at, len(c.Old))]) {
			return false // it changes the signature
		}
		call, ok := callOf(fn, n)
		if !ok {
			return false
		}
		changed := string(f.text[start:at]) + c.New + string(f.text[at+len(c.Old):stop])
		was, name := f.offset(fn.Name.Pos())-start, fn.Name.Name
		fmt.Fprintf(&f.copies, "\n%s\n", changed[:was]+changedName(name, n)+changed[was+len(name):])
		f.begins[body] += fmt.Sprintf(" if mutationSwitch == %d { %s };", n, call)
		return true
	}
	return false
}

func changedName(name string, n int) string { return fmt.Sprintf("%sMutation%d", name, n) }

// callOf is the statement with which a function becomes its n-th copy.
func callOf(fn *ast.FuncDecl, n int) (string, bool) {
	name := changedName(fn.Name.Name, n)
	if fn.Type.TypeParams != nil {
		return "", false
	}
	if fn.Recv != nil {
		if names := fn.Recv.List[0].Names; len(names) == 0 || names[0].Name == "_" {
			return "", false
		} else {
			name = names[0].Name + "." + name
		}
	}
	var args []string
	for _, field := range fn.Type.Params.List {
		if len(field.Names) == 0 {
			return "", false
		}
		for _, id := range field.Names {
			if id.Name == "_" {
				return "", false
			}
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				args = append(args, id.Name+"...")
			} else {
				args = append(args, id.Name)
			}
		}
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if fn.Type.Results == nil {
		return call + "; return", true
	}
	return "return " + call, true
}

// source is the file with all copies.
func (f *file) source() []byte {
	var out bytes.Buffer
	for i, b := range f.text {
		out.WriteString(f.begins[i])
		out.WriteByte(b)
	}
	out.Write(f.copies.Bytes())
	return out.Bytes()
}
