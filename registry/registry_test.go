package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kdapl/dat"
	"kdapl/device/loop"
	"kdapl/verbs"
)

// withConf is a registry of its own, with a dat.conf of these lines.
func withConf(t *testing.T, lines ...string) *providers {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dat.conf")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return newProviders(func() (string, bool) { return path, true })
}

// line is a line of dat.conf for an adapter of this module.
func line(name, api, safety, params string) string {
	return fmt.Sprintf("%s %s %s default kdapl kdapl.1.0 %q %q", name, api, safety, params, "")
}

func closeIA(t *testing.T, ia *dat.IA) {
	t.Helper()
	if err := ia.Close(context.Background(), dat.CloseGraceful); err != nil {
		t.Error(err)
	}
}

func wantFailure(t *testing.T, err error, sub dat.Subtype, parts ...string) {
	t.Helper()
	if !errors.Is(err, dat.ProviderNotFound) || !errors.Is(err, sub) {
		t.Errorf("got %v, want PROVIDER_NOT_FOUND %v", err, sub)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
}

func TestBuiltInNameOpens(t *testing.T) {
	t.Setenv("DAT_OVERRIDE", filepath.Join(t.TempDir(), "missing"))
	ia, err := Open("loop0") // needs no file
	if err != nil {
		t.Fatal(err)
	}
	defer closeIA(t, ia)
	if ia.Name() != "loop0" || ia.Address() != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("opened %s at %s", ia.Name(), ia.Address())
	}
}

func TestEnvironmentNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dat.conf")
	if err := os.WriteFile(path, []byte(line("elsewhere", "k2.0", "threadsafe", "loop addr=127.0.0.7")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DAT_OVERRIDE", path)
	ia, err := Open("elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	defer closeIA(t, ia)
	if ia.Address() != netip.MustParseAddr("127.0.0.7") {
		t.Errorf("opened at %s", ia.Address())
	}
	infos, err := List()
	if err != nil {
		t.Fatal(err)
	}
	last := infos[len(infos)-1]
	want := Info{Name: "elsewhere", Major: 2, ThreadSafe: true, Source: path + ":1", Library: "kdapl", Params: "loop addr=127.0.0.7", Openable: true, Open: 1}
	if last != want {
		t.Errorf("listed %+v, want %+v", last, want)
	}
}

func TestFileThatTheEnvironmentNamesMustBeThere(t *testing.T) {
	t.Setenv("DAT_OVERRIDE", filepath.Join(t.TempDir(), "missing"))
	_, err := Open("loop1")
	wantFailure(t, err, dat.NameNotRegistered, "missing", "known adapters: iwarp0, loop0")
	if !errors.Is(err, os.ErrNotExist) {
		t.Error("the cause is lost")
	}
	if infos, err := List(); !errors.Is(err, os.ErrNotExist) || len(infos) == 0 {
		t.Errorf("listed %v, %v", infos, err)
	}
}

func TestSystemsFileNeedNotBeThere(t *testing.T) {
	s := newProviders(func() (string, bool) { return filepath.Join(t.TempDir(), "missing"), false })
	if infos, err := s.list(); err != nil || len(infos) != 2 || infos[0].Name != "iwarp0" || infos[1].Name != "loop0" || infos[0].Source != "built in" {
		t.Errorf("listed %+v, %v", infos, err)
	}
}

func TestMatchingSaysHowFarTheSearchCame(t *testing.T) {
	s := withConf(t,
		line("a", "k2.3", "threadsafe", "loop"),
		line("a", "u1.2", "nonthreadsafe", "loop"),
		line("c", "k2.0", "nonthreadsafe", "loop"))
	for _, c := range []struct {
		name         string
		major, minor uint32
		non          bool
		want         dat.Subtype
	}{
		{name: "a"},
		{name: "a", major: 2, minor: 3},
		{name: "a", major: 1, minor: 0, non: true},
		{name: "a", major: 1, minor: 2, non: true},
		{name: "c", non: true},
		{name: "loop0", major: 2, minor: 0},
		{name: "A", want: dat.NameNotRegistered},
		{name: "", want: dat.NameNotRegistered},
		{name: "a", major: 3, want: dat.MajorNotFound},
		{name: "loop0", major: 1, want: dat.MajorNotFound},
		{name: "a", major: 2, minor: 4, want: dat.MinorNotFound},
		{name: "a", major: 1, minor: 3, non: true, want: dat.MinorNotFound},
		{name: "loop0", major: 2, minor: 1, want: dat.MinorNotFound},
		{name: "a", major: 2, non: true, want: dat.ThreadSafetyNotFound},
		{name: "a", major: 1, minor: 2, want: dat.ThreadSafetyNotFound},
		{name: "c", want: dat.ThreadSafetyNotFound},
		{name: "loop0", non: true, want: dat.ThreadSafetyNotFound},
	} {
		ia, err := s.openWith(c.name, Options{Major: c.major, Minor: c.minor, NonThreadSafe: c.non})
		if c.want != dat.NoSubtype {
			wantFailure(t, err, c.want)
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		closeIA(t, ia)
	}
}

func TestDuplicateNamesAreTriedInTurn(t *testing.T) {
	s := withConf(t,
		`x k2.0 threadsafe default libdaplofa.so.2 dapl.2.0 "mlx4_0 1" ""`,
		line("x", "k1.0", "threadsafe", "loop addr=127.0.0.3"),
		line("x", "k2.0", "threadsafe", "hoop"),
		line("x", "k2.0", "threadsafe", "loop addr=127.0.0.4"),
		line("x", "k2.0", "threadsafe", "loop addr=127.0.0.5"))
	ia, err := s.openWith("x", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeIA(t, ia)
	if ia.Address() != netip.MustParseAddr("127.0.0.4") {
		t.Errorf("opened the one at %s", ia.Address())
	}
}

func TestNothingThatFitsWorksTellsEveryCause(t *testing.T) {
	s := withConf(t,
		`x k2.0 threadsafe default libdaplofa.so.2 dapl.2.0 "mlx4_0 1" ""`,
		line("x", "k2.0", "threadsafe", "loop addr=nowhere"),
		"y k2.0")
	_, err := s.openWith("x", Options{})
	path, _ := s.conf()
	wantFailure(t, err, dat.NameNotRegistered,
		path+":1: libdaplofa.so.2 is a library for C programs",
		path+":2: ia_params: addr: ParseAddr",
		path+":3:7: thread_safety: expected")
	if strings.Contains(err.Error(), "\n") {
		t.Error("the error has several lines")
	}
	var syntax *SyntaxError
	if !errors.As(err, &syntax) {
		t.Error("the malformed line is not among the causes")
	}
}

func TestIAParamsThatMakeNoSense(t *testing.T) {
	for params, want := range map[string]string{
		"":                         "ia_params are empty; they begin with a kind of adapter: iwarp, loop",
		"hoop":                     `no kind of adapter "hoop"; known: iwarp, loop`,
		"iwarp crc=maybe":          "crc=maybe",
		"iwarp colour=red":         `unknown option "colour"`,
		"loop addr":                `"addr" is not a new key=value`,
		"loop addr=1.2.3.4 addr=1": `"addr=1" is not a new key=value`,
		"loop address=1.2.3.4":     "address: unknown; loop has addr, completion and rnr-timeout",
		"loop addr=1.2.3":          "addr: ParseAddr",
		"loop completion=later":    `completion: "later" is neither remote-acked nor source-reusable`,
		"loop rnr-timeout=1":       "rnr-timeout: time: missing unit",
		"loop rnr-timeout=-1s":     "rnr-timeout: -1s is negative",
	} {
		_, err := withConf(t, line("x", "k2.0", "threadsafe", params)).openWith("x", Options{})
		wantFailure(t, err, dat.NameNotRegistered, want)
	}
}

func TestIAParamsReachTheAdapter(t *testing.T) {
	s := withConf(t, line("x", "k2.0", "threadsafe", "loop addr=::1 completion=source-reusable rnr-timeout=20ms"))
	ia, err := s.openWith("x", Options{Config: dat.Config{Name: "mine"}})
	if err != nil {
		t.Fatal(err)
	}
	defer closeIA(t, ia)
	p, err := ia.Query()
	if err != nil {
		t.Fatal(err)
	}
	meaning := ""
	for _, a := range p.Provider.ProviderSpecificAttrs {
		if a.Name == dat.AttrCompletionMeaning {
			meaning = a.Value
		}
	}
	if ia.Name() != "mine" || ia.Address() != netip.IPv6Loopback() || meaning != "SOURCE_REUSABLE" {
		t.Errorf("opened %s at %s, completion means %s", ia.Name(), ia.Address(), meaning)
	}
}

func TestFaultsOfTheFileAreLoggedIfTheNameIsFound(t *testing.T) {
	var log bytes.Buffer
	s := withConf(t, "bad", line("x", "k2.0", "threadsafe", "loop"))
	ia, err := s.openWith("x", Options{Config: dat.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	if err != nil {
		t.Fatal(err)
	}
	closeIA(t, ia)
	if !strings.Contains(log.String(), "dat.conf:1:4: api_version") {
		t.Errorf("logged %q", &log)
	}
}

func TestArgumentsThatTheAdapterRefusesEndTheSearch(t *testing.T) {
	s := withConf(t, line("loop0", "k2.0", "threadsafe", "loop"))
	_, err := s.openWith("loop0", Options{Config: dat.Config{MaxUpcalls: -1}})
	if !errors.Is(err, dat.InvalidParameter) {
		t.Errorf("got %v, want INVALID_PARAMETER", err)
	}
}

func TestRegisteredNameComesBeforeTheFile(t *testing.T) {
	s := withConf(t, line("mine", "k2.0", "threadsafe", "loop addr=127.0.0.9"))
	broken := errors.New("no such card")
	fails := true
	if err := s.register("mine", func() (verbs.Device, error) {
		if fails {
			return nil, broken
		}
		return loop.New(loop.Config{Name: "card", Addr: netip.MustParseAddr("127.0.0.8")}), nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"127.0.0.9", "127.0.0.8"} { // the file stands in while the card is missing
		ia, err := s.openWith("mine", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if ia.Address() != netip.MustParseAddr(want) {
			t.Errorf("opened the one at %s, want %s", ia.Address(), want)
		}
		closeIA(t, ia)
		fails = false
	}
}

func TestIAsOfANameShareADevice(t *testing.T) {
	s := newProviders(func() (string, bool) { return "", false })
	made := 0
	if err := s.register("one", func() (verbs.Device, error) {
		made++
		return loop.New(loop.Config{}), nil
	}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ia, err := s.openWith("one", Options{})
			if err != nil {
				t.Error(err)
				return
			}
			closeIA(t, ia)
		})
	}
	wg.Wait()
	if made != 1 {
		t.Errorf("%d devices were made", made)
	}
}

func TestDeviceThatHasGoneIsMadeAnew(t *testing.T) {
	s := newProviders(func() (string, bool) { return "", false })
	var devices []*loop.Device
	if err := s.register("plug", func() (verbs.Device, error) {
		d := loop.New(loop.Config{})
		devices = append(devices, d)
		return d, nil
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		ia, err := s.openWith("plug", Options{})
		if err != nil {
			t.Fatal(err)
		}
		devices[i].Remove()
		closeIA(t, ia)
	}
	if len(devices) != 2 {
		t.Errorf("%d devices were made", len(devices))
	}
	// One that is gone as soon as it is made is an error, not a loop.
	devices = nil
	if err := s.register("dud", func() (verbs.Device, error) {
		d := loop.New(loop.Config{})
		devices = append(devices, d)
		d.Remove()
		return d, nil
	}); err != nil {
		t.Fatal(err)
	}
	_, err := s.openWith("dud", Options{})
	wantFailure(t, err, dat.NameNotRegistered)
	if len(devices) != 1 {
		t.Errorf("%d devices were made", len(devices))
	}
}

func TestNameIsRegisteredOnce(t *testing.T) {
	s := newProviders(func() (string, bool) { return "", false })
	make := func() (verbs.Device, error) { return loop.New(loop.Config{}), nil }
	if err := s.register("mine", make); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine", "loop0"} {
		if err := s.register(name, make); !errors.Is(err, dat.ProviderAlreadyRegistered) {
			t.Errorf("%s: %v, want PROVIDER_ALREADY_REGISTERED", name, err)
		}
	}
}

func TestRegisterRefusesBadArguments(t *testing.T) {
	s := newProviders(func() (string, bool) { return "", false })
	make := func() (verbs.Device, error) { return nil, nil }
	for _, name := range []string{"", strings.Repeat("x", 256), "a\nb"} {
		if err := s.register(name, make); !errors.Is(err, dat.InvalidParameter) || !errors.Is(err, dat.InvalidArg1) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := s.register("x", nil); !errors.Is(err, dat.InvalidArg2) {
		t.Error(err)
	}
	if err := s.register("nothing", make); err != nil {
		t.Fatal(err)
	}
	_, err := s.openWith("nothing", Options{})
	wantFailure(t, err, dat.NameNotRegistered, "made no device")
}

func TestProviderInUseIsNotRemoved(t *testing.T) {
	s := newProviders(func() (string, bool) { return "", false })
	first, err := s.openWith("loop0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.openWith("loop0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ia := range []*dat.IA{first, second} {
		if err := s.unregister("loop0"); !errors.Is(err, dat.ProviderInUse) {
			t.Fatalf("got %v, want PROVIDER_IN_USE", err)
		}
		closeIA(t, ia)
		ia.Close(context.Background(), dat.CloseAbrupt) // a second close counts nothing
	}
	if err := s.unregister("loop0"); err != nil {
		t.Fatal(err)
	}
	_, err = s.openWith("loop0", Options{})
	wantFailure(t, err, dat.NameNotRegistered, "known adapters: iwarp0")
	err = s.unregister("loop0")
	wantFailure(t, err, dat.NameNotRegistered)
}

func TestFailedOpenLeavesNoUse(t *testing.T) {
	s := newProviders(func() (string, bool) { return "", false })
	ia, err := s.openWith("loop0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	evd, err := ia.NewEVD(dat.EVDConfig{MinLen: 1, Streams: dat.StreamDTO})
	if err != nil {
		t.Fatal(err)
	}
	// The device opens, and then dat refuses the EVD, which lacks the stream.
	if _, err := s.openWith("loop0", Options{Config: dat.Config{AsyncEVD: evd}}); !errors.Is(err, dat.InvalidHandleEVDAsync) {
		t.Fatal(err)
	}
	if infos, err := s.list(); err != nil || infos[1].Open != 1 {
		t.Errorf("listed %+v, %v", infos, err)
	}
	if err := ia.Close(context.Background(), dat.CloseAbrupt); err != nil {
		t.Fatal(err)
	}
	if infos, err := s.list(); err != nil || infos[0].Open != 0 {
		t.Errorf("listed %+v, %v", infos, err)
	}
}

// Adapters of one registry reach each other through their devices.
func TestOpenedAdaptersConnect(t *testing.T) {
	s := newProviders(func() (string, bool) { return "", false })
	var ias [2]*dat.IA
	var evds [2]*dat.EVD
	var eps [2]*dat.EP
	for i := range ias {
		var err error
		if ias[i], err = s.openWith("loop0", Options{}); err != nil {
			t.Fatal(err)
		}
		defer ias[i].Close(context.Background(), dat.CloseAbrupt)
		if evds[i], err = ias[i].NewEVD(dat.EVDConfig{MinLen: 4, Streams: dat.StreamConnection | dat.StreamConnectionRequest | dat.StreamDTO}); err != nil {
			t.Fatal(err)
		}
		pz, err := ias[i].NewPZ()
		if err != nil {
			t.Fatal(err)
		}
		if eps[i], err = pz.NewEP(dat.EPConfig{Recv: evds[i], Request: evds[i], Connect: evds[i]}); err != nil {
			t.Fatal(err)
		}
	}
	psp, err := ias[1].NewPSP(dat.PSPConfig{EVD: evds[1]})
	if err != nil {
		t.Fatal(err)
	}
	if err := eps[0].Connect(ias[1].Address(), psp.ConnQual(), dat.ConnectConfig{Timeout: time.Second}); err != nil {
		t.Fatal(err)
	}
	ev, _, err := evds[1].Wait(context.Background(), 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := ev.Request().CR.Accept(eps[1], nil); err != nil {
		t.Fatal(err)
	}
	for _, e := range evds {
		if ev, _, err := e.Wait(context.Background(), 1, time.Second); err != nil || ev.Number != dat.ConnectionEstablished {
			t.Errorf("%v, %v", ev, err)
		}
	}
}

func ExampleOpen() {
	ia, err := Open("loop0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ia.Close(context.Background(), dat.CloseAbrupt)
	fmt.Println(ia.Name(), ia.Address())
	// Output: loop0 127.0.0.1
}

func TestOpenParamsOpensWhatNoListNames(t *testing.T) {
	ia, err := OpenParams("iwarp addr=127.0.0.1 crc=off", dat.Config{Name: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if ia.Name() != "mine" || ia.Address().String() != "127.0.0.1" {
		t.Errorf("%v at %v", ia.Name(), ia.Address())
	}
	if err := ia.Close(context.Background(), dat.CloseAbrupt); err != nil {
		t.Error(err)
	}
	for _, params := range []string{"", "tokenring", "iwarp addr", "iwarp addr=0.0.0.0", "loop speed=1"} {
		if ia, err := OpenParams(params, dat.Config{}); ia != nil || !errors.Is(err, dat.ProviderNotFound) {
			t.Errorf("%q: %v, %v", params, ia, err)
		}
	}
}

func TestNewDeviceMakesWhatALineDescribes(t *testing.T) {
	d, err := NewDevice("mine", "loop addr=127.0.0.9")
	if err != nil || d.Name() != "mine" {
		t.Fatalf("%v, %v", d, err)
	}
	if d, err := NewDevice("mine", "loop addr=nowhere"); d != nil || err == nil {
		t.Fatalf("%v, %v", d, err)
	}
}
