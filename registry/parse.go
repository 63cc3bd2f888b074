package registry

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"kdapl/dat"
)

// The fields of a line, by the names that the DAT documents give them.
const (
	fieldName            = "ia_name"
	fieldAPIVersion      = "api_version"
	fieldThreadSafety    = "thread_safety"
	fieldDefault         = "default"
	fieldLibPath         = "lib_path"
	fieldProviderVersion = "provider_version"
	fieldIAParams        = "ia_params"
	fieldPlatformParams  = "platform_params"
)

// SyntaxError says what is wrong with a line of a dat.conf file.
type SyntaxError struct {
	// File is the file's name.
	File string
	// Line and Column say where, both from 1 on; columns count bytes.
	Line, Column int
	// Field is the field that the parser was at, as in "ia_params"; "" behind the last one.
	Field string
	// Want is what the parser expected, and Got what it found.
	Want, Got string
}

// Error returns one line, as compilers do:
//
//	dat.conf:3:14: thread_safety: expected threadsafe or nonthreadsafe, found "safe"
func (e *SyntaxError) Error() string {
	field := e.Field
	if field != "" {
		field += ": "
	}
	return fmt.Sprintf("%s:%d:%d: %sexpected %s, found %s", e.File, e.Line, e.Column, field, e.Want, e.Got)
}

// Line is a line of a dat.conf file that has an entry.
type Line struct {
	Entry
	// Number is the number of the line, from 1 on.
	Number int
}

// ParseConf reads a dat.conf file; file is its name, for messages. It returns the entries in order,
// and one [*SyntaxError] for each malformed line, joined; the good lines are returned
// with them.
func ParseConf(file string, r io.Reader) ([]Line, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var lines []Line
	var errs []error
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(string(text), "\uFEFF")) {
		number++
		p := parser{file: file, number: number, line: strings.TrimRight(line, "\r\n")}
		if e, ok := p.entry(); p.err != nil {
			errs = append(errs, p.err)
		} else if ok {
			lines = append(lines, Line{Entry: e, Number: number})
		}
	}
	return lines, errors.Join(errs...)
}

// parser reads one line.
type parser struct {
	file   string
	number int
	line   string
	pos    int // what is read
	err    error
}

// token is a field as it was found. end is the end of the line, or a comment.
type token struct {
	text   string
	column int
	quoted bool
	end    bool
}

func (t token) String() string {
	if t.end {
		return "the end of the line"
	}
	return strconv.Quote(t.text)
}

// fail notes the line's first error.
func (p *parser) fail(column int, field, want, got string) {
	if p.err == nil {
		p.err = &SyntaxError{File: p.file, Line: p.number, Column: column, Field: field, Want: want, Got: got}
	}
}

// entry parses the line; false if it has no entry.
func (p *parser) entry() (Entry, bool) {
	var e Entry
	t := p.next(fieldName)
	if t.end {
		return e, false
	}
	if e.Name = t.text; e.Name == "" || len(e.Name) >= dat.NameMaxLength {
		p.fail(t.column, fieldName, fmt.Sprintf("a name of 1 to %d bytes", dat.NameMaxLength-1), fmt.Sprintf("%d bytes", len(e.Name)))
	}
	t = p.next(fieldAPIVersion)
	const api = "k or u and a version, as in k2.0"
	if t.text == "" || t.text[0] != 'k' && t.text[0] != 'u' {
		p.fail(t.column, fieldAPIVersion, api, t.String())
		return e, false
	}
	e.API = t.text[0]
	var rest string
	var ok bool
	if rest, e.Major, e.Minor, ok = cutVersion("." + t.text[1:]); !ok || rest != "" {
		p.fail(t.column, fieldAPIVersion, api, t.String())
	}
	e.ThreadSafe = p.choice(fieldThreadSafety, "threadsafe", "nonthreadsafe")
	e.Default = p.choice(fieldDefault, "default", "nondefault")
	t = p.next(fieldLibPath)
	if e.LibPath = t.text; e.LibPath == "" {
		p.fail(t.column, fieldLibPath, "the path of a library, as in libkdapl.so", t.String())
	}
	t = p.next(fieldProviderVersion)
	if e.ProviderID, e.ProviderMajor, e.ProviderMinor, ok = cutVersion(t.text); !ok || e.ProviderID == "" {
		p.fail(t.column, fieldProviderVersion, "an id and a version, as in kdapl.1.0", t.String())
	}
	e.IAParams = p.quoted(fieldIAParams)
	e.PlatformParams = p.quoted(fieldPlatformParams)
	if t = p.next(""); !t.end {
		p.fail(t.column, "", "the end of the line", t.String())
	}
	return e, p.err == nil
}

// choice reads a field that is one of two words, and reports whether it is the first.
func (p *parser) choice(field, yes, no string) bool {
	t := p.next(field)
	if t.text != yes && t.text != no {
		p.fail(t.column, field, yes+" or "+no, t.String())
	}
	return t.text == yes
}

func (p *parser) quoted(field string) string {
	t := p.next(field)
	if !t.quoted {
		p.fail(t.column, field, "a quoted string", t.String())
	}
	return t.text
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// unprintable reports control characters, which no field may hold.
func unprintable(c rune) bool { return c < ' ' && c != '\t' || c == 0x7F }

// next reads a field.
func (p *parser) next(field string) token {
	for p.pos < len(p.line) && isSpace(p.line[p.pos]) {
		p.pos++
	}
	t := token{column: p.pos + 1}
	switch {
	case p.pos == len(p.line) || p.line[p.pos] == '#':
		t.end = true
	case p.line[p.pos] == '"':
		t.quoted = true
		p.pos++
		t.text = p.unquote(field)
	default:
		start := p.pos
		for p.pos < len(p.line) && !isSpace(p.line[p.pos]) {
			if c := p.line[p.pos]; c == '"' {
				p.fail(p.pos+1, field, "a space before a quoted string", `"\""`)
			} else if unprintable(rune(c)) {
				p.fail(p.pos+1, field, "no control character", strconv.Quote(string(rune(c))))
			}
			p.pos++
		}
		t.text = p.line[start:p.pos]
	}
	return t
}

// unquote reads a quoted string behind its first quote.
func (p *parser) unquote(field string) string {
	var text strings.Builder
	for ; p.pos < len(p.line); p.pos++ {
		c := p.line[p.pos]
		switch {
		case c == '"':
			p.pos++
			if p.pos < len(p.line) && !isSpace(p.line[p.pos]) {
				p.fail(p.pos+1, field, "a space behind the quoted string", strconv.Quote(p.line[p.pos:p.pos+1]))
			}
			return text.String()
		case c == '\\':
			p.pos++
			if p.pos == len(p.line) || p.line[p.pos] != '\\' && p.line[p.pos] != '"' {
				p.fail(p.pos, field, `\\ or \"`, strconv.Quote(p.line[p.pos-1:min(p.pos+1, len(p.line))]))
				return text.String()
			}
			c = p.line[p.pos]
		case unprintable(rune(c)):
			p.fail(p.pos+1, field, "no control character", strconv.Quote(string(rune(c))))
		}
		text.WriteByte(c)
	}
	p.fail(len(p.line)+1, field, `a closing "`, "the end of the line")
	return text.String()
}

// cutVersion cuts ".major.minor" off the end.
func cutVersion(s string) (id string, major, minor uint32, ok bool) {
	j := strings.LastIndexByte(s, '.')
	if j < 0 {
		return "", 0, 0, false
	}
	i := strings.LastIndexByte(s[:j], '.')
	if i < 0 {
		return "", 0, 0, false
	}
	x, err := strconv.ParseUint(s[i+1:j], 10, 32)
	y, err2 := strconv.ParseUint(s[j+1:], 10, 32)
	return s[:i], uint32(x), uint32(y), err == nil && err2 == nil
}
