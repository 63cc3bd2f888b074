package registry

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// unjoin returns the errors that were joined.
func unjoin(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	return nil
}

func TestConfFieldsMeanWhatTheDocumentSays(t *testing.T) {
	file := "\uFEFF# adapters\r\n" +
		"\r\n" +
		"loop1 k2.0 threadsafe default kdapl kdapl.1.0 \"loop addr=127.0.0.2\" \"\"\r\n" +
		"\t  # another comment \" with a quote\n" +
		"\"a name\"\tu1.2  nonthreadsafe nondefault \"C:\\\\Program Files\\\\libkdapl.dll\" intel.x86.4.17 \"say \\\"hi\\\" \\\\ # no comment\" \"x\" # comment\n" +
		"a#b k3.10 threadsafe nondefault /usr/lib/libdapl.so.2 d.0.0 \"\" \"\""
	lines, err := ParseConf("dat.conf", strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want := []Line{
		{Number: 3, Entry: Entry{Name: "loop1", API: 'k', Major: 2, ThreadSafe: true, Default: true, LibPath: "kdapl",
			ProviderID: "kdapl", ProviderMajor: 1, IAParams: "loop addr=127.0.0.2"}},
		{Number: 5, Entry: Entry{Name: "a name", API: 'u', Major: 1, Minor: 2, LibPath: `C:\Program Files\libkdapl.dll`,
			ProviderID: "intel.x86", ProviderMajor: 4, ProviderMinor: 17, IAParams: `say "hi" \ # no comment`, PlatformParams: "x"}},
		{Number: 6, Entry: Entry{Name: "a#b", API: 'k', Major: 3, Minor: 10, ThreadSafe: true, LibPath: "/usr/lib/libdapl.so.2",
			ProviderID: "d"}},
	}
	if !reflect.DeepEqual(lines, want) {
		t.Errorf("got\n%+v\nwant\n%+v", lines, want)
	}
}

func TestMalformedLineSaysWhereAndWhatWasExpected(t *testing.T) {
	const good = `k2.0 threadsafe default kdapl kdapl.1.0 "loop" ""`
	for _, c := range []struct{ line, want string }{
		{`loop1`, `1:6: api_version: expected k or u and a version, as in k2.0, found the end of the line`},
		{`loop1 # k2.0`, `1:7: api_version: expected k or u and a version, as in k2.0, found the end of the line`},
		{`"" ` + good, `1:1: ia_name: expected a name of 1 to 255 bytes, found 0 bytes`},
		{strings.Repeat("x", 256) + " " + good, `1:1: ia_name: expected a name of 1 to 255 bytes, found 256 bytes`},
		{`l 2.0 threadsafe`, `1:3: api_version: expected k or u and a version, as in k2.0, found "2.0"`},
		{`l K2.0 threadsafe`, `1:3: api_version: expected k or u and a version, as in k2.0, found "K2.0"`},
		{`l k2 threadsafe`, `1:3: api_version: expected k or u and a version, as in k2.0, found "k2"`},
		{`l k2.0.1 threadsafe`, `1:3: api_version: expected k or u and a version, as in k2.0, found "k2.0.1"`},
		{`l k2.-1 threadsafe`, `1:3: api_version: expected k or u and a version, as in k2.0, found "k2.-1"`},
		{`l k4294967296.0 threadsafe`, `1:3: api_version: expected k or u and a version, as in k2.0, found "k4294967296.0"`},
		{`l k2.0 safe default`, `1:8: thread_safety: expected threadsafe or nonthreadsafe, found "safe"`},
		{`l k2.0 threadsafe Default`, `1:19: default: expected default or nondefault, found "Default"`},
		{`l k2.0 threadsafe default`, `1:26: lib_path: expected the path of a library, as in libkdapl.so, found the end of the line`},
		{`l k2.0 threadsafe default "" x.1.0`, `1:27: lib_path: expected the path of a library, as in libkdapl.so, found ""`},
		{`l k2.0 threadsafe default kdapl 1.0 "" ""`, `1:33: provider_version: expected an id and a version, as in kdapl.1.0, found "1.0"`},
		{`l k2.0 threadsafe default kdapl .1.0 "" ""`, `1:33: provider_version: expected an id and a version, as in kdapl.1.0, found ".1.0"`},
		{`l k2.0 threadsafe default kdapl x.1.y "" ""`, `1:33: provider_version: expected an id and a version, as in kdapl.1.0, found "x.1.y"`},
		{`l k2.0 threadsafe default kdapl x.1.0 loop ""`, `1:39: ia_params: expected a quoted string, found "loop"`},
		{`l k2.0 threadsafe default kdapl x.1.0 "loop"`, `1:45: platform_params: expected a quoted string, found the end of the line`},
		{`l k2.0 threadsafe default kdapl x.1.0 "loop" "`, `1:47: platform_params: expected a closing ", found the end of the line`},
		{`l k2.0 threadsafe default kdapl x.1.0 "a\nb" ""`, `1:41: ia_params: expected \\ or \", found "\\n"`},
		{`l k2.0 threadsafe default kdapl x.1.0 "a\`, `1:41: ia_params: expected \\ or \", found "\\"`},
		{`l k2.0 threadsafe default kdapl x.1.0 "a"b ""`, `1:42: ia_params: expected a space behind the quoted string, found "b"`},
		{`l k2.0 threadsafe default kd"apl x.1.0 "a" ""`, `1:29: lib_path: expected a space before a quoted string, found "\""`},
		{`l ` + good + ` more`, `1:53: expected the end of the line, found "more"`},
		{"l k2.0 threadsafe default kd\x01apl x.1.0", `1:29: lib_path: expected no control character, found "\x01"`},
		{"l k2.0 threadsafe default kdapl x.1.0 \"a\rb\" \"\"", `1:41: ia_params: expected no control character, found "\r"`},
	} {
		lines, err := ParseConf("dat.conf", strings.NewReader(c.line))
		errs := unjoin(err)
		if len(errs) != 1 || len(lines) != 0 {
			t.Errorf("%s: lines %v, errors %v; want one error", c.line, lines, err)
			continue
		}
		if got := errs[0].Error(); got != "dat.conf:"+c.want {
			t.Errorf("%s:\ngot  %s\nwant dat.conf:%s", c.line, got, c.want)
		}
	}
}

func TestGoodLinesOutliveMalformedOnes(t *testing.T) {
	lines, err := ParseConf("f", strings.NewReader(
		"bad\nl1 k2.0 threadsafe default kdapl x.1.0 \"\" \"\"\nbad too\nl2 k2.0 threadsafe default kdapl x.1.0 \"\" \"\"\n"))
	errs := unjoin(err)
	if len(errs) != 2 || len(lines) != 2 || lines[0].Number != 2 || lines[1].Number != 4 {
		t.Fatalf("lines %+v, errors %v", lines, err)
	}
	for i, want := range []int{1, 3} {
		var s *SyntaxError
		if !errors.As(errs[i], &s) || s.Line != want {
			t.Errorf("error %d is %v, want one of line %d", i, errs[i], want)
		}
	}
}

type failingReader struct{ error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.error }

func TestReadErrorOfConfIsReturned(t *testing.T) {
	broken := errors.New("broken disk")
	if _, err := ParseConf("f", failingReader{broken}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestWrittenConfReadsBackTheSame(t *testing.T) {
	want := []Entry{
		{Name: "loop1", API: 'k', Major: 2, ThreadSafe: true, Default: true, LibPath: "kdapl", ProviderID: "kdapl", ProviderMajor: 1, IAParams: "loop"},
		{Name: "#1", API: 'u', Major: 4294967295, Minor: 7, LibPath: `C:\x y\lib"q".dll`, ProviderID: "a b.c", IAParams: `"\`, PlatformParams: "\t"},
	}
	var b bytes.Buffer
	if err := WriteConf(&b, want...); err != nil {
		t.Fatal(err)
	}
	const text = `loop1 k2.0 threadsafe default kdapl kdapl.1.0 "loop" ""` + "\n" +
		`"#1" u4294967295.7 nonthreadsafe nondefault "C:\\x y\\lib\"q\".dll" "a b.c.0.0" "\"\\" "` + "\t" + `"` + "\n"
	if b.String() != text {
		t.Errorf("got\n%swant\n%s", &b, text)
	}
	lines, err := ParseConf("f", &b)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range lines {
		if l.Entry != want[i] {
			t.Errorf("got %+v, want %+v", l.Entry, want[i])
		}
	}
}

func TestEntryThatNoLineCanExpressIsNotWritten(t *testing.T) {
	good := Entry{Name: "n", API: 'k', LibPath: "l", ProviderID: "p"}
	for i, change := range []func(*Entry){
		func(e *Entry) { e.Name = "" },
		func(e *Entry) { e.Name = strings.Repeat("n", 256) },
		func(e *Entry) { e.Name = "a\nb" },
		func(e *Entry) { e.API = 'x' },
		func(e *Entry) { e.LibPath = "" },
		func(e *Entry) { e.LibPath = "\x7F" },
		func(e *Entry) { e.ProviderID = "" },
		func(e *Entry) { e.ProviderID = "\x00" },
		func(e *Entry) { e.IAParams = "\r" },
		func(e *Entry) { e.PlatformParams = "\n" },
	} {
		bad := good
		change(&bad)
		var b bytes.Buffer
		if err := WriteConf(&b, good, bad); err == nil || b.Len() > 0 {
			t.Errorf("%d: %+v: error %v, %d bytes written", i, bad, err, b.Len())
		}
	}
}

func TestLibPathThatNamesThisModule(t *testing.T) {
	for path, want := range map[string]bool{
		"kdapl": true, "libkdapl.so": true, "libkdapl.so.2": true, "/usr/lib/x/libkdapl.so.2.0.1": true,
		`C:\dat\libkdapl.dll`: true, "libkdapl.dylib": true, "/opt/libkdapl.2.dylib": true,
		"": false, "kdapl.so": false, "libkdapl": false, "libkdapl.": false, "libkdapl.so2": false, "libdaplofa.so.2": false,
		"/opt/kdapl": false, "xlibkdapl.so": false, "libkdapl.so/other.so": false,
	} {
		if got := (Entry{LibPath: path}).Ours(); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}

func FuzzParseConf(f *testing.F) {
	f.Add("loop1 k2.0 threadsafe default kdapl kdapl.1.0 \"loop addr=127.0.0.2\" \"\" # c\n")
	f.Add("\uFEFF\"a b\" u1.2 nonthreadsafe nondefault \"C:\\\\x\" i.d.1.2 \"\\\"\" \"\"\r\nbad\r\n\n#\n")
	f.Add("l k2.0 threadsafe default k\"x")
	f.Add("l k2.0 threadsafe default kdapl x.1.0 \"\\")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := ParseConf("f", strings.NewReader(text))
		raw := strings.Split(strings.TrimPrefix(text, "\uFEFF"), "\n")
		said := map[int]bool{}
		for _, e := range unjoin(err) {
			var s *SyntaxError
			if !errors.As(e, &s) || s.Line < 1 || s.Line > len(raw) || s.Column < 1 || s.Column > len(raw[s.Line-1])+1 || s.Want == "" || s.Got == "" {
				t.Fatalf("useless error %#v", e)
			}
			said[s.Line] = true
		}
		var b bytes.Buffer
		for _, l := range lines {
			if said[l.Number] {
				t.Fatalf("line %d is both good and bad", l.Number)
			}
			said[l.Number] = true
			if err := WriteConf(&b, l.Entry); err != nil {
				t.Fatalf("%+v was read and cannot be written: %v", l, err)
			}
		}
		for i, line := range raw { // no line is passed over in silence
			line = strings.Trim(strings.TrimRight(line, "\r"), " \t")
			if (line != "" && line[0] != '#') != said[i+1] {
				t.Fatalf("line %d, %q: entry or error is %v", i+1, line, said[i+1])
			}
		}
		again, err := ParseConf("g", &b)
		if err != nil || len(again) != len(lines) {
			t.Fatalf("written %d lines, read %d, %v", len(lines), len(again), err)
		}
		for i := range again {
			if again[i].Entry != lines[i].Entry {
				t.Fatalf("written %+v, read %+v", lines[i].Entry, again[i].Entry)
			}
		}
	})
}

func ExampleParseConf() {
	_, err := ParseConf("dat.conf", strings.NewReader(`loop1 k2.0 safe default kdapl kdapl.1.0 "loop" ""`))
	fmt.Println(err)
	// Output: dat.conf:1:12: thread_safety: expected threadsafe or nonthreadsafe, found "safe"
}

func ExampleWriteConf() {
	var b bytes.Buffer
	if err := WriteConf(&b, Entry{
		Name: "loop1", API: 'k', Major: 2, ThreadSafe: true, Default: true,
		LibPath: "kdapl", ProviderID: "kdapl", ProviderMajor: 1, IAParams: "loop addr=127.0.0.2",
	}); err != nil {
		fmt.Println(err)
	}
	fmt.Print(&b)
	// Output: loop1 k2.0 threadsafe default kdapl kdapl.1.0 "loop addr=127.0.0.2" ""
}
