package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// page is docs/coverage.md as it is being made.
type page struct {
	src *source
	// before has, for each row of the page as it was, the tests that it named: they stay as long as they fit.
	before map[string][]string
	out    strings.Builder
	// holes are rows without a test and without a reason, and reasons for what has a test.
	holes []string
}

// pagePath is the page, in the module.
const pagePath = "docs/coverage.md"

// newPage starts a page in the place of one with the text before.
func newPage(src *source, before string) *page {
	p := &page{src: src, before: map[string][]string{}}
	for line := range strings.Lines(before) {
		if row, rest, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok {
			for _, m := range link.FindAllStringSubmatch(rest, -1) {
				p.before[row] = append(p.before[row], m[1]+" "+m[2])
			}
		}
	}
	return p
}

var link = regexp.MustCompile(`\[([^\]]+)\]\(\.\./([^)]+)\)`)

// rule tells rules of the public suite from tests of the repository.
func (t *test) rule() bool {
	return strings.HasPrefix(t.file, "dat/dattest/") && strings.Contains(t.name, "/")
}

// pick finds the test for a symbol: one that shows names, the one of the page as it is, or else the one that names
// the symbol itself and the fewest others.
func (p *page) pick(row, symbol string, rules bool) *test {
	var best *test
	words := symbolWords(symbol)
	score := func(t *test) int {
		s := 1000 + len(t.all)
		if t.direct[symbol] || t.direct[sameAs[symbol]] {
			s = len(t.direct)
		}
		for _, w := range words {
			if strings.Contains(strings.ToLower(t.name), w) {
				s -= 15 // it says that it is about the symbol
			}
		}
		return s
	}
	fits := func(t *test) bool { return t.rule() == rules && p.src.covers(t, symbol) }
	for _, name := range shows[strings.Trim(row, "`")] {
		for _, t := range p.src.tests {
			if t.name == name && fits(t) {
				return t
			}
		}
	}
	for _, known := range p.before[row] {
		for _, t := range p.src.tests {
			if known == t.name+" "+t.file && fits(t) && (t.direct[symbol] || !p.anyDirect(symbol, rules)) {
				return t
			}
		}
	}
	for _, t := range p.src.tests {
		if fits(t) && (best == nil || cmp.Or(cmp.Compare(score(t), score(best)), cmp.Compare(t.name, best.name)) < 0) {
			best = t
		}
	}
	return best
}

// symbolWords are the words of a symbol's name: "dat.EP.PostRDMARead" has ep, post, rdma, read.
func symbolWords(symbol string) []string {
	var words []string
	for _, part := range strings.Split(symbol, ".")[1:] {
		start := 0
		for i := 1; i < len(part); i++ {
			upper := func(i int) bool { return unicode.IsUpper(rune(part[i])) }
			if upper(i) && (!upper(i-1) || i+1 < len(part) && !upper(i+1)) {
				words = append(words, strings.ToLower(part[start:i]))
				start = i
			}
		}
		words = append(words, strings.ToLower(part[start:]))
	}
	return words
}

func (p *page) anyDirect(symbol string, rules bool) bool {
	return slices.ContainsFunc(p.src.tests, func(t *test) bool { return t.rule() == rules && t.direct[symbol] })
}

// covers reports whether a test refers to a symbol. A method of an interface is covered by that of any type.
func (s *source) covers(t *test, symbol string) bool {
	if t.all[symbol] || t.all[sameAs[symbol]] {
		return true
	}
	rest, ok := strings.CutPrefix(symbol, "dat.Object.")
	if !ok {
		return false
	}
	for sym := range t.direct {
		if strings.HasPrefix(sym, "dat.") && strings.HasSuffix(sym, "."+rest) {
			return true
		}
	}
	return false
}

// tests writes the cells of the tests for symbols: own tests, and rules of the public suite.
func (p *page) tests(row string, symbols []string) (own, public string, found bool) {
	cells := [2][]string{}
	found = true
	for _, symbol := range symbols {
		any := false
		for i := range cells {
			t := p.pick(row, symbol, i == 1)
			if t == nil {
				continue
			}
			any = true
			if cell := fmt.Sprintf("[%s](../%s)", t.name, t.file); !slices.Contains(cells[i], cell) {
				cells[i] = append(cells[i], cell)
			}
		}
		found = found && any
	}
	return strings.Join(cells[0], ", "), strings.Join(cells[1], ", "), found
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

func (p *page) hole(format string, args ...any) {
	p.holes = append(p.holes, fmt.Sprintf(format, args...))
}

// make writes the page.
func (p *page) make() error {
	p.printf("# What of DAT is here, and which test shows it\n\n")
	p.printf("Made by `go run ./docs/coverage`, which reads the code and its tests: a symbol that does not exist, a test that is gone or does not\n")
	p.printf("refer to its symbol, and a row without a test or a reason stop it. CI checks that the page is current.\n")
	p.printf("*Test* is a test of this repository, *rule* one of the public suite `dat/dattest`, which any adapter can run.\n")
	for _, s := range sections {
		p.printf("\n## %s\n\n| call | | Go | test | rule |\n|---|---|---|---|---|\n", s.title)
		for _, c := range s.calls {
			p.call(c)
		}
	}
	for _, e := range enumerations {
		p.enumeration(e)
	}
	if err := p.transitions(); err != nil {
		return err
	}
	p.rules()
	for row, names := range shows {
		for _, name := range names {
			if !p.shown(row, name) {
				p.hole("%s does not show %s", name, row)
			}
		}
	}
	return nil
}

// shown reports whether the page names a test in a row.
func (p *page) shown(row, name string) bool {
	for line := range strings.Lines(p.out.String()) {
		if strings.HasPrefix(line, "| `"+row+"` |") && strings.Contains(line, "["+name+"](") {
			return true
		}
	}
	return false
}

func (p *page) call(c call) {
	row := "`" + c.name + "`"
	if c.why != "" {
		p.printf("| %s | %s | – | %s | |\n", row, c.flavour, c.why)
		return
	}
	var names []string
	for _, symbol := range c.symbols {
		if !p.src.exists(symbol) {
			p.hole("%s: there is no %s", c.name, symbol)
		}
		names = append(names, "`"+strings.TrimPrefix(symbol, "dat.")+"`")
	}
	own, public, ok := p.tests(row, c.symbols)
	if !ok {
		p.hole("%s: no test of one of %v", c.name, c.symbols)
	}
	p.printf("| %s | %s | %s | %s | %s |\n", row, c.flavour, strings.Join(names, ", "), own, public)
}

func (p *page) enumeration(e enumeration) {
	p.printf("\n## %s\n\n", e.title)
	if e.note != "" {
		p.printf("%s\n\n", e.note)
	}
	p.printf("| `%s` | test | rule |\n|---|---|---|\n", e.typ)
	names := p.src.constants(e.typ)
	for name := range maps.Keys(e.why) {
		if !slices.Contains(names, name) {
			p.hole("there is no %s %s to have a reason", e.typ, name)
		}
	}
	for _, name := range names {
		row, symbol := "`"+name+"`", "dat."+name
		why, reasoned := e.why[name]
		own, public, tested := p.tests(row, []string{symbol})
		used := !e.onlyUsed || p.src.used[symbol]
		switch {
		case reasoned && why != "" && tested && (!e.onlyUsed || used):
			p.hole("%s %s has a reason why it has no test, and a test: %s %s", e.typ, name, own, public)
		case reasoned && why != "" && (!tested || !used):
			own, public = why, ""
		case !used && !tested:
			p.hole("%s %s is not used by the library and has no reason for that", e.typ, name)
		case !tested:
			p.hole("%s %s has no test", e.typ, name)
		}
		p.printf("| %s | %s | %s |\n", row, own, public)
	}
}

// transitions lists the moves of the EP machine, from the table that its test is checked against.
func (p *page) transitions() error {
	const file, name = "dat/epstate_test.go", "TestEPMachineIsTheOneOfTheSpecification"
	if !slices.ContainsFunc(p.src.tests, func(t *test) bool { return t.name == name && t.file == file }) {
		p.hole("%s is not in %s", name, file)
	}
	table, err := stringConst(filepath.Join(p.src.root, file), "epTable")
	if err != nil {
		return err
	}
	p.printf("\n## Transitions of an end point\n\nEvery cause in every state is compared with this table by [%s](../%s); what is not in it is refused or, from the network, ignored.\n\n", name, file)
	p.printf("| state | cause | next state | event |\n|---|---|---|---|\n")
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] != "#" {
			event := strings.Join(f[3:], " ")
			p.printf("| %s | %s | %s | %s |\n", f[0], f[1], f[2], event)
		}
	}
	return nil
}

// stringConst reads a string constant of a file.
func stringConst(file, name string) (string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			if v, ok := s.(*ast.ValueSpec); ok && v.Names[0].Name == name && len(v.Values) == 1 {
				if lit, ok := v.Values[0].(*ast.BasicLit); ok {
					return strconv.Unquote(lit.Value)
				}
			}
		}
	}
	return "", fmt.Errorf("%s has no string constant %s", file, name)
}

// rules lists the rules of the public suite.
func (p *page) rules() {
	groups := map[string][]string{}
	for _, t := range p.src.tests {
		if group, name, ok := strings.Cut(t.name, "/"); ok && t.rule() {
			groups[group] = append(groups[group], name)
		}
	}
	if len(groups) == 0 {
		return
	}
	p.printf("\n## Rules of the public suite\n")
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		p.printf("\n### %s\n\n", g)
		for _, name := range groups[g] {
			p.printf("- %s\n", name)
		}
	}
}
