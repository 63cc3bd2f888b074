package dat_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"kdapl/dat"
)

// Every method of every object, called on nil, on a zero value and on a freed object: INVALID_HANDLE with the
// subtype of the object, zero results, no panic. The methods are found by reflection, so a new one is covered from its first
// day; one without an error must be given what it returns.

// kind is a kind of object.
type kind struct {
	null any // a nil pointer
	sub  dat.Subtype
	// freed makes one and frees it, together with everything of p.
	make func(t *testing.T, p *pair) dat.Object
}

var kinds = map[string]kind{
	"IA":  {(*dat.IA)(nil), dat.InvalidHandleIA, func(t *testing.T, p *pair) dat.Object { return p.a.ia }},
	"PZ":  {(*dat.PZ)(nil), dat.InvalidHandlePZ, func(t *testing.T, p *pair) dat.Object { return p.a.pz }},
	"LMR": {(*dat.LMR)(nil), dat.InvalidHandleLMR, func(t *testing.T, p *pair) dat.Object { return p.a.lmr }},
	"RMR": {(*dat.RMR)(nil), dat.InvalidHandleRMR, func(t *testing.T, p *pair) dat.Object { return must[*dat.RMR](t)(p.a.pz.NewRMR()) }},
	"EP":  {(*dat.EP)(nil), dat.InvalidHandleEP, func(t *testing.T, p *pair) dat.Object { return p.a.ep }},
	"SRQ": {(*dat.SRQ)(nil), dat.InvalidHandleSRQ, func(t *testing.T, p *pair) dat.Object {
		return must[*dat.SRQ](t)(p.a.pz.NewSRQ(dat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1}))
	}},
	"EVD": {(*dat.EVD)(nil), dat.InvalidHandle1, func(t *testing.T, p *pair) dat.Object { return p.a.evd }},
	"CNO": {(*dat.CNO)(nil), dat.InvalidHandleCNO, func(t *testing.T, p *pair) dat.Object { return must[*dat.CNO](t)(p.a.ia.NewCNO(nil)) }},
	"PSP": {(*dat.PSP)(nil), dat.InvalidHandlePSP, func(t *testing.T, p *pair) dat.Object {
		return must[*dat.PSP](t)(p.a.ia.NewPSP(dat.PSPConfig{EVD: p.a.evd}))
	}},
	"RSP": {(*dat.RSP)(nil), dat.InvalidHandleRSP, func(t *testing.T, p *pair) dat.Object {
		return must[*dat.RSP](t)(p.a.ia.NewRSP(dat.RSPConfig{EP: p.a.ep, EVD: p.a.evd}))
	}},
	"CSP": {(*dat.CSP)(nil), dat.InvalidHandleCSP, func(t *testing.T, p *pair) dat.Object {
		return must[*dat.CSP](t)(p.a.ia.NewCSP(dat.CSPConfig{EVD: p.a.evd}))
	}},
	"CR": {(*dat.CR)(nil), dat.InvalidHandleCR, func(t *testing.T, p *pair) dat.Object {
		psp := must[*dat.PSP](t)(p.a.ia.NewPSP(dat.PSPConfig{EVD: p.a.evd}))
		ok(t, p.b.ep.Connect(p.a.ia.Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: patience}))
		return p.a.request1(t)
	}},
	"AddressHandle": {(*dat.AddressHandle)(nil), dat.NoSubtype, nil},
}

// silent are the methods without an error: what they say for nil and zero objects.
var silent = map[string][]any{
	"IA.Name": {""}, "IA.AsyncEVD": {(*dat.EVD)(nil)}, "IA.Address": nil, "IA.Objects": {[]dat.Object(nil)},
	"LMR.Bytes": {[]byte(nil)}, "LMR.LMRContext": {uint32(0)}, "LMR.RMRContext": {uint32(0)}, "LMR.Address": {uint64(0)},
	"LMR.Triplet": {dat.LMRTriplet{}}, "LMR.RMRTriplet": {dat.RMRTriplet{}},
	"EVD.DequeueInto": {0}, "EVD.Drain": nil, "EVD.Events": nil,
	"CNO.FD": {-1}, "PSP.ConnQual": {uint64(0)}, "RSP.ConnQual": {uint64(0)}, "CSP.Address": nil,
	"HandleType": nil, "Context": {nil}, "SetContext": {}, "String": nil,
}

// arguments are harmless ones for a method.
func arguments(m reflect.Value) []reflect.Value {
	var in []reflect.Value
	typ := m.Type()
	for i := range typ.NumIn() {
		if typ.IsVariadic() && i == typ.NumIn()-1 {
			break
		}
		switch typ.In(i) {
		case reflect.TypeFor[context.Context]():
			in = append(in, reflect.ValueOf(background))
		default:
			in = append(in, reflect.Zero(typ.In(i)))
		}
	}
	return in
}

func errorOf(out []reflect.Value) (error, bool) {
	if len(out) == 0 || out[len(out)-1].Type() != reflect.TypeFor[error]() {
		return nil, false
	}
	err, _ := out[len(out)-1].Interface().(error)
	return err, true
}

func TestMethodsOfObjectsThatAreNotThere(t *testing.T) {
	for name, k := range kinds {
		typ := reflect.TypeOf(k.null)
		objects := map[string]reflect.Value{"nil": reflect.ValueOf(k.null), "zero": reflect.New(typ.Elem())}
		if k.make != nil {
			p := newPair(t, pairConfig{})
			o := k.make(t, p)
			ok(t, p.a.ia.Close(background, dat.CloseAbrupt))
			objects["freed"] = reflect.ValueOf(o)
		}
		for state, o := range objects {
			for i := range typ.NumMethod() {
				method := typ.Method(i).Name
				t.Run(fmt.Sprintf("%s.%s of a %s object", name, method, state), func(t *testing.T) {
					out := o.Method(i).Call(arguments(o.Method(i)))
					if err, has := errorOf(out); has {
						if method == "Connect" || method == "CommonConnect" {
							// whose arguments are checked too; the object comes first
							if !errors.Is(err, dat.InvalidHandle) {
								t.Fatal(err)
							}
						}
						refused(t, err, dat.InvalidHandle, k.sub)
						for _, v := range out[:len(out)-1] {
							if !v.IsZero() {
								t.Fatalf("a result beside the error: %v", v)
							}
						}
						return
					}
					want, known := silent[name+"."+method]
					if !known {
						want, known = silent[method]
					}
					if !known {
						t.Fatal("returns no error, and nobody says what it returns instead")
					}
					if state == "freed" {
						return // some go on telling what was
					}
					for i, w := range want {
						if got := out[i].Interface(); !reflect.DeepEqual(got, w) {
							t.Fatalf("returns %v, want %v", got, w)
						}
					}
				})
			}
		}
	}
}

// What the methods without an error do in full.
func TestSilentMethodsOfObjectsThatAreNotThere(t *testing.T) {
	freed := newEVD(t, newIA(t), dat.EVDConfig{})
	ok(t, freed.Free())
	for _, e := range []*dat.EVD{nil, {}, freed} {
		for ev := range e.Drain() {
			t.Fatal(ev)
		}
		n := 0
		for ev, err := range e.Events(background) {
			n++
			if refused(t, err, dat.InvalidHandle, dat.InvalidHandle1); ev.Number != 0 {
				t.Fatal(ev)
			}
		}
		if n != 1 || e.DequeueInto(make([]dat.Event, 1)) != 0 {
			t.Fatal(n)
		}
	}
	for name, k := range kinds {
		for state, o := range map[string]dat.Object{"nil": k.null.(dat.Object), "zero": reflect.New(reflect.TypeOf(k.null).Elem()).Interface().(dat.Object)} {
			o.SetContext(1)
			if o.Context() != nil || name != "AddressHandle" && (o.HandleType().String() != name || o.String() != "no "+name) {
				t.Errorf("%s %s: %v %q %v", state, name, o.HandleType(), o, o.Context())
			}
		}
	}
	if err := dat.ExtensionOp(nil, dat.IBFetchAndAdd, dat.IBArgs{}); !errors.Is(err, dat.InvalidHandleEP) {
		t.Fatal(err)
	}
	if err := dat.ExtensionOp((*dat.EP)(nil), dat.IBFetchAndAdd, dat.IBArgs{}); !errors.Is(err, dat.InvalidHandleEP) {
		t.Fatal(err)
	}
	if err := dat.ExtensionOp(freed, dat.IBFetchAndAdd, dat.IBArgs{}); !errors.Is(err, dat.InvalidHandleEP) {
		t.Fatal(err)
	}
}

// The views of a zero event are zero.
func TestViewsOfAZeroEvent(t *testing.T) {
	var ev dat.Event
	v := reflect.ValueOf(&ev)
	for i := range v.NumMethod() {
		if m := v.Type().Method(i); m.Type.NumIn() == 1 && m.Name != "String" {
			for _, out := range v.Method(i).Call(nil) {
				if !out.IsZero() {
					t.Errorf("%s returns %v", m.Name, out)
				}
			}
		}
	}
}

// exported are the exported methods of the package's objects, from its source: "EP.Connect".
func exported(t testing.TB) map[string]*ast.FuncType {
	t.Helper()
	files, err := filepath.Glob("*.go")
	ok(t, err)
	all := map[string]*ast.FuncType{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f, nil, 0)
		ok(t, err)
		for _, d := range file.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is || fn.Recv == nil || !fn.Name.IsExported() {
				continue
			}
			if star, is := fn.Recv.List[0].Type.(*ast.StarExpr); is {
				all[star.X.(*ast.Ident).Name+"."+fn.Name.Name] = fn.Type
			}
		}
	}
	return all
}

// The table of kinds has every type of the package that is an object.
func TestEveryKindOfObjectIsTested(t *testing.T) {
	found := 0
	for name := range exported(t) {
		if typ, is := strings.CutSuffix(name, ".HandleType"); is {
			found++
			if _, has := kinds[typ]; !has {
				t.Errorf("%s is an object, and not in the table", typ)
			}
		}
	}
	if found != len(kinds) {
		t.Errorf("%d kinds of objects in the source, %d in the table", found, len(kinds))
	}
}
